"""Headers for NVRTC, which has no C++ standard library.

A file that is compiled with ``nvcc`` includes what the host needs, too: ``<cstdio>``,
``<vector>``.  NVRTC gets a text for each such name.  Integers, limits and constants are
defined here.  What the device can use of C++'s library is that of ``<cuda/std/...>``,
if the wheel ``nvidia-cuda-cccl`` or a toolkit is installed.  The rest is empty: only
the host's code needs it, which NVRTC does not compile.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_INTEGERS = {
    f"{sign}int{kind}{bits}_t": f"{'unsigned ' * bool(sign)}{word}"
    for bits, word in {8: "char", 16: "short", 32: "int", 64: "long long"}.items()
    for sign in ("", "u")
    for kind in ("", "_least", "_fast")
} | {
    "intptr_t": "long long",
    "uintptr_t": "unsigned long long",
    "intmax_t": "long long",
    "uintmax_t": "unsigned long long",
}
_SIGNED = {"int8_t": "signed char", "int_least8_t": "signed char"}
_SIGNED["int_fast8_t"] = "signed char"

_LIMITS = {
    "CHAR_BIT": "8",
    "SCHAR_MIN": "(-128)",
    "SCHAR_MAX": "127",
    "UCHAR_MAX": "255",
    "SHRT_MIN": "(-32768)",
    "SHRT_MAX": "32767",
    "USHRT_MAX": "65535",
    "INT_MIN": "(-2147483647 - 1)",
    "INT_MAX": "2147483647",
    "UINT_MAX": "4294967295U",
    "LONG_MIN": "(-9223372036854775807L - 1)",
    "LONG_MAX": "9223372036854775807L",
    "ULONG_MAX": "18446744073709551615UL",
    "LLONG_MIN": "(-9223372036854775807LL - 1)",
    "LLONG_MAX": "9223372036854775807LL",
    "ULLONG_MAX": "18446744073709551615ULL",
}
_INTEGER_LIMITS = {
    f"{sign}INT{bits}_{end}": _LIMITS[f"{sign}{word}_{end}"]
    for bits, word in {16: "SHRT", 32: "INT", 64: "LLONG"}.items()
    for sign, end in (("", "MIN"), ("", "MAX"), ("U", "MAX"))
} | {"INT8_MIN": "(-128)", "INT8_MAX": "127", "UINT8_MAX": "255"}
_INTEGER_LIMITS |= {
    "SIZE_MAX": _LIMITS["ULONG_MAX"],
    "INTPTR_MAX": _LIMITS["LONG_MAX"],
    "UINTPTR_MAX": _LIMITS["ULONG_MAX"],
}
_FLOATS = {
    "FLT_RADIX": "2",
    "FLT_MANT_DIG": "24",
    "FLT_DIG": "6",
    "FLT_MIN": "1.17549435082228750797e-38F",
    "FLT_MAX": "3.40282346638528859812e+38F",
    "FLT_EPSILON": "1.19209289550781250000e-7F",
    "DBL_MANT_DIG": "53",
    "DBL_DIG": "15",
    "DBL_MIN": "2.22507385850720138309e-308",
    "DBL_MAX": "1.79769313486231570815e+308",
    "DBL_EPSILON": "2.22044604925031308085e-16",
}
_MATHS = {
    "M_E": "2.7182818284590452354",
    "M_LOG2E": "1.4426950408889634074",
    "M_LOG10E": "0.43429448190325182765",
    "M_LN2": "0.69314718055994530942",
    "M_LN10": "2.30258509299404568402",
    "M_PI": "3.14159265358979323846",
    "M_PI_2": "1.57079632679489661923",
    "M_PI_4": "0.78539816339744830962",
    "M_1_PI": "0.31830988618379067154",
    "M_2_PI": "0.63661977236758134308",
    "M_2_SQRTPI": "1.12837916709551257390",
    "M_SQRT2": "1.41421356237309504880",
    "M_SQRT1_2": "0.70710678118654752440",
    "INFINITY": "__int_as_float(0x7f800000)",
    "NAN": "__int_as_float(0x7fffffff)",
    "HUGE_VALF": "__int_as_float(0x7f800000)",
}
# NVRTC knows them without a header, but not in std.
_FUNCTIONS = """
abs acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp
exp2 expm1 fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma llrint
llround log log10 log1p log2 logb lrint lround modf nearbyint nextafter pow
remainder remquo rint round scalbln scalbn signbit sin sinh sqrt tan tanh tgamma
trunc isfinite isinf isnan
"""
_STANDARD_LIBRARY = {"EXIT_SUCCESS": "0", "EXIT_FAILURE": "1", "NULL": "0"}


def _defined(names: dict[str, str]) -> str:
    """Constants, where nobody has defined them."""
    lines = [
        f"#ifndef {n}\n#define {n} {value}\n#endif\n" for n, value in names.items()
    ]
    return "".join(lines)


def _integers() -> str:
    """The integers of ``<stdint.h>``, also in ``std``, and their limits."""
    types = _INTEGERS | _SIGNED
    lines = [f"typedef {word} {name};\n" for name, word in types.items()]
    return "".join(lines) + _in_std(types) + _defined(_INTEGER_LIMITS)


def _in_std(names: Iterable[str]) -> str:
    """Global names, made names of ``std``."""
    return "namespace std {\n" + "".join(f"using ::{n};\n" for n in names) + "}\n"


_WRITTEN = {
    "stdint.h": _integers(),
    "limits.h": _defined(_LIMITS),
    "float.h": _defined(_FLOATS),
    "math.h": _defined(_MATHS) + _in_std(_FUNCTIONS.split()),
    "stdlib.h": _defined(_STANDARD_LIBRARY) + _in_std(["abs"]),
    "stddef.h": _in_std(["size_t", "ptrdiff_t"]),
    "inttypes.h": "#include <stdint.h>\n",
}
_C = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp
signal stdalign stdarg stdatomic stdbool stddef stdint stdio stdlib string tgmath
time uchar wchar wctype
"""
_HOST = """
any barrier charconv chrono condition_variable deque exception execution filesystem
format forward_list fstream future iomanip ios iosfwd iostream istream list locale
map memory mutex new ostream print queue random regex semaphore set shared_mutex
sstream stack stdexcept stop_token streambuf string string_view system_error thread
typeindex typeinfo unordered_map unordered_set valarray vector unistd.h sys/time.h
sys/types.h sys/stat.h getopt.h pthread.h dlfcn.h malloc.h memory.h strings.h
fcntl.h
"""
# What <cuda/std/...> has for the device.
_DEVICE = """
algorithm array atomic bit bitset complex concepts functional initializer_list
iterator limits numbers numeric optional ranges ratio span tuple type_traits utility
variant
"""


_DRIVER = re.compile(
    r"^\s*(?:__CUDA_DEPRECATED\s+)?CUresult\s+CUDAAPI\s+\w+\([^;]*\);", re.MULTILINE
)


@cache
def standard(runtime: Path | None, libcu: Path | None) -> dict[str, str]:
    """The text of each header of the C++ standard library, and of ``<cuda.h>``.

    ``runtime`` is the folder with CUDA's headers, ``libcu`` that with ``cuda/std``, if
    they are there.  Of ``<cuda.h>``, kernels need the types, such as ``CUtensorMap``.

    >>> "typedef unsigned int uint32_t;" in standard(None, None)["stdint.h"]
    True
    >>> standard(None, None)["vector"].strip()
    '#pragma once'
    """
    found = {f"{name}.h": _WRITTEN.get(f"{name}.h", "") for name in _C.split()}
    found |= {f"c{name}": f"#include <{name}.h>\n" for name in _C.split()}
    found |= dict.fromkeys((*_HOST.split(), *_DEVICE.split()), "")
    for name in _DEVICE.split():
        if libcu is not None and (libcu / "cuda" / "std" / name).is_file():
            found[name] += (
                f"#include <cuda/std/{name}>\nnamespace std {{ using namespace "
                "cuda::std; }\n"
            )
    made = {name: f"#pragma once\n{text}" for name, text in found.items()}
    if runtime is not None and (runtime / "cuda.h").is_file():
        made["cuda.h"] = _DRIVER.sub("", (runtime / "cuda.h").read_text())
    return made


# ── the user's own headers ──────────────────────────────────────────────────

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)


def digest(source: str, folders: Iterable[Path]) -> str:
    """A digest of all files that a source includes from some folders, and from theirs.

    Their lines ``#include`` are read without looking at conditions.

    >>> digest("", []) == digest("#include <stdint.h>", [])
    True
    """
    state = hashlib.sha256()
    for path, text in sorted(_included(source, [*folders])):
        state.update(f"{path}\0{len(text)}\0".encode() + text)
    return state.hexdigest()


def _included(source: str, folders: list[Path]) -> Iterator[tuple[str, bytes]]:
    waiting = [(source, folders)]
    seen: set[str] = set()
    while waiting:
        text, places = waiting.pop()
        for quoted, angled in _INCLUDE.findall(text):
            for folder in places:
                path = os.path.normpath(folder / (quoted or angled))
                if os.path.isfile(path):
                    break
            else:
                continue
            if path not in seen:
                seen.add(path)
                data = Path(path).read_bytes()
                yield path, data
                inner = [Path(path).parent, *folders]
                waiting.append((data.decode("utf-8", "replace"), inner))
