"""Names of kernels as C++ writes them, with template arguments and parameters.

Compilers mangle a name, ``scale<float>`` to ``_Z5scaleIfEvPT_``.  The C++ library of
the system reads such names.  Where there is none, names are known without templates and
parameters, as :func:`fragmenta.ptx.module.demangled` reads them.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
from functools import cache

from fragmenta.base.arrays.once import once
from fragmenta.ptx.module import demangled

_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")


@cache
def signature(name: str) -> str:
    """A function with its parameters, without the type that it returns.

    >>> signature("_Z5scalePfi"), signature("add")
    ('scale(float*, int)', 'add')
    """
    found = _whole(name)
    if found is None:
        return demangled(name)
    head, _, rest = _cut(found)
    return (head + rest).replace("(anonymous namespace)::", "")


def fitting(given: str, names: Iterable[str]) -> list[str]:
    """The mangled names that a name of C++ may mean.

    It may have template arguments and parameters, and may leave both out, and the
    namespace, too.

    >>> fitting("scale", ["_Z5scalePfi", "_Z3addPf"])
    ['_Z5scalePfi']
    """
    wanted = _plain(given)
    found = [each for each in names if wanted in _forms(each)]
    return found or [
        each for each in names if wanted == demangled(each).rpartition("::")[2]
    ]


def _forms(name: str) -> set[str]:
    """What a name may be called: with and without its parameters and its templates."""
    whole = signature(name)
    head = _cut(whole)[0]
    short = head.rpartition("::")[2] if "<" not in head else ""
    forms = {name, demangled(name), whole, head, short} - {""}
    return {_plain(each) for each in forms}


def _plain(text: str) -> str:
    """A name without blanks, and without the suffixes of numbers: 4u is 4."""
    text = re.sub(r"\((?:unsigned |signed )?(?:int|long|char|bool|short)\)", "", text)
    text = re.sub(r"\b(\d+)[uUlL]+\b", r"\1", text)
    return re.sub(r"\s+", "", text)


def _cut(text: str) -> tuple[str, str, str]:
    """A demangled name: the name, the return type before it, the parameters behind."""
    depth, begin, end = 0, 0, len(text)
    for at, letter in enumerate(text):
        if letter == "(" and not depth and not text.startswith("(anonymous", at):
            end = at
            break
        depth += (letter in "<([") - (letter in ">)]")
        if letter == " " and not depth:
            begin = at + 1
    return text[begin:end], text[:begin], text[end:]


@cache
def _whole(name: str) -> str | None:
    """What the system's library reads; None if there is none, or it cannot."""
    read = _reader()
    if read is None or not name.startswith("_Z") or _may_be_long(name):
        return None
    status = ctypes.c_int()
    found = read(name.encode(), None, None, ctypes.byref(status))
    if not found or status.value:
        return None
    try:
        return ctypes.string_at(found).decode("utf-8", "replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(found))


def _may_be_long(name: str) -> bool:
    """Whether what a name stands for may have millions of characters.

    Each reference to an earlier part repeats at most all that is there, so a short name
    can have a reading that fills the memory.

    >>> _may_be_long("_Z5scaleIfEvPT_"), _may_be_long("_Z1f1AIiiE" + 20 * "S_IS0_S0_E")
    (False, True)
    """
    references = len(re.findall(r"[ST][0-9A-Z]*_", name))
    return len(name) << min(references, 64) > 1 << 24


@once
def _reader() -> ctypes._CFuncPtr | None:  # type: ignore[name-defined, unused-ignore]
    """The function that reads mangled names."""
    for name in _LIBRARIES:
        try:
            found = ctypes.CDLL(name).__cxa_demangle
        except (OSError, AttributeError):
            continue
        found.restype = ctypes.c_void_p
        return found
    return None
