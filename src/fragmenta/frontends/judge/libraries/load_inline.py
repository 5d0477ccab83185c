"""``torch.utils.cpp_extension.load_inline`` for a candidate: CUDA C++ without a GPU.

NVRTC compiles the kernels, as it compiles those of ``ptx.RawKernel``.  The functions in
C++ that launch them are run by :mod:`host_code`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import cast

import torch
import torch.utils.cpp_extension as extension

from fragmenta.engine.simt.arguments import Pointer
from fragmenta.frontends.api.raw import RawKernel
from fragmenta.frontends.judge.libraries.host_code import Host
from fragmenta.frontends.judge.libraries.host_values import Data
from fragmenta.frontends.judge.libraries.host_words import (
    Function,
    NotRun,
    Token,
    tokens,
)

_INCLUDE = re.compile(
    r"#\s*include\s*[<\"](?:torch/|ATen/|c10/|pybind11|cuda_runtime|cuda\.h|vector|string|"
    r"iostream|cstdio|stdio|tuple|algorithm|cmath|math\.h|cfloat|float\.h|climits|"
    r"limits\.h|limits|cstdint|stdint\.h|device_launch|utility|functional|stdexcept)"
)
_HOST = re.compile(r"\bTensor\b|^\s*PYBIND11_MODULE\b|<<<|\bTORCH_LIBRARY\b")
_PLAIN = re.compile(
    r"\s*(?!struct|class|union|enum|namespace|extern|using|typedef|template)"
    r"(?![^({]*\bconstexpr\b)[\w:&*\s]+?\b\w+\s*\([^{]*\)\s*\{"
)
"""A function without a word of CUDA, which no kernel can call.

NVRTC takes it for one of the host.  If it follows a template of a kernel, the instances
of that kernel have no body.
"""
_CODE = re.compile(r"__global__|__device__|__constant__|__host__")
_LIMITS = """
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define INT_MAX 2147483647
#define M_PI 3.14159265358979323846
typedef long long int64_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef unsigned char uint8_t;
#endif
#line 1
"""
"""What headers of C++ say, which NVRTC does not have."""


_HALVES = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
"""What PyTorch's headers include; the lines of a source are counted behind it."""


def _has_halves(texts: Sequence[str]) -> bool:
    """Whether a source has PyTorch's headers, and names types of 16 bits."""
    whole = "\n".join(texts)
    headers = re.search(r"#\s*include\s*[<\"](?:torch/|ATen/|c10/)", whole)
    return bool(headers and re.search(r"half|bfloat16|Half|HALF", whole))


HOSTS: list[Host] = []
"""The functions of all extensions."""


def install(target: str) -> None:
    """From now on, ``load_inline`` compiles kernels for a target and runs them here."""
    extension.load_inline = partial(load_inline, target)
    torch.utils.cpp_extension.load_inline = extension.load_inline
    extension.load = _refused


def _refused(*_: object, **__: object) -> object:
    raise NotRun("cpp_extension.load compiles files; load_inline takes texts")


def load_inline(
    target: str,
    name: str,
    cpp_sources: str | Sequence[str] = (),
    cuda_sources: str | Sequence[str] = (),
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cuda_cflags: Sequence[str] = (),
    **options: object,
) -> SimpleNamespace:
    """The functions of an extension, which can be called from Python."""
    check_flags(_list(cast("Sequence[str]", options.get("extra_cflags"))), HOST_FLAGS)
    flags = check_flags(extra_cuda_cflags, f"{CUDA_FLAGS}|{HOST_FLAGS}")
    texts = [*_list(cuda_sources), *_list(cpp_sources)]
    kernels, host = split("\n".join(texts))
    launch = _launcher(_HALVES * _has_halves(texts) + _LIMITS + kernels, target, flags)
    machine = Host(host, launch, constants(_defines(flags) + kernels))
    HOSTS.append(machine)
    wanted = [functions] if isinstance(functions, str) else list(functions or host)
    made: dict[str, Callable[..., object]] = {}
    for each in wanted:
        if each not in host:
            raise NotRun(
                f"load_inline: no function {each} in the sources; there are "
                f"{', '.join(host) or 'none'}"
            )
        made[each] = _caller(machine, each)
    return SimpleNamespace(__name__=name, **made)


CUDA_FLAGS = (
    r"--?use_fast_math|--fmad=\w+|-fmad=\w+|--?ftz=\w+|--?prec-(?:div|sqrt)=\w+"
    r"|--?std=c\+\+\d\d|-D\w+(?:=[\w.]+)?"
)
"""Flags that mean something for kernels: NVRTC gets them."""
HOST_FLAGS = (
    r"-O\d|-std=c\+\+\d\d|-g|-v|-w|-Wall|-lineinfo|--?gen(?:erate-)?code.*|--?arch.*"
    r"|arch=compute.*|sm_\w+|-Xptxas.*|--ptxas-options.*|-Xcompiler.*|--compiler-options.*"
    r"|-U__CUDA_NO_\w+|--expt-\w+-\w+|--?extended-lambda|--?maxrregcount.*|-fPIC|-march=\w+"
    r"|-diag-suppress.*|--verbose|--threads.*|--resource-usage"
)
"""Flags that change no result."""


def check_flags(flags: Sequence[str], known: str) -> list[str]:
    """The flags that NVRTC must have; one that is not known is refused.

    >>> check_flags(["-O3", "-DTILE=16"], f"{CUDA_FLAGS}|{HOST_FLAGS}")
    ['-DTILE=16']
    """
    for each in flags:
        if not re.fullmatch(known, each):
            raise NotRun(f"load_inline: what the flag {each} means is not known here")
    return [each for each in flags if re.fullmatch(CUDA_FLAGS, each)]


def _defines(flags: Sequence[str]) -> str:
    """The macros that flags define, as lines of the preprocessor."""
    named = [each[2:].partition("=") for each in flags if each.startswith("-D")]
    return "".join(f"#define {name} {value or 1}\n" for name, _, value in named)


def _list(given: str | Sequence[str] | None) -> list[str]:
    if given is None:
        return []
    return [given] if isinstance(given, str) else [*given]


def _caller(machine: Host, name: str) -> Callable[..., object]:
    def call(*given: object) -> object:
        return machine.call(name, given)

    return call


def _launcher(
    code: str, target: str, flags: Sequence[str]
) -> Callable[[str, object, object, int, Sequence[object]], None]:
    """What launches a kernel of a source; all kernels have the same variables."""
    compiled: dict[str, RawKernel] = {}
    variables: dict[str, bytes] = {}

    def launch(
        name: str, grid: object, block: object, shared: int, given: Sequence[object]
    ) -> None:
        if name not in compiled:
            compiled[name] = RawKernel(code, name, flags, target=target)
        arguments = [_argument(each) for each in given]
        sizes = cast("Sequence[int]", grid), cast("Sequence[int]", block)
        loaded = compiled[name].kernel.loaded
        own = loaded.module.variables
        loaded.renew({each: data for each, data in variables.items() if each in own})
        compiled[name](*sizes, arguments, shared=shared)
        variables.update(loaded.kept)

    return launch


def _argument(value: object) -> object:
    """An argument of a kernel; the memory of a tensor is that of its storage."""
    if not isinstance(value, Data):
        return value
    tensor = value.tensor.detach()
    if tensor.is_contiguous() and tensor.numel() and not value.offset:
        words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
        return tensor.view(words[tensor.element_size()]).numpy()
    storage = tensor.untyped_storage()
    memory = torch.tensor([], dtype=torch.uint8).set_(storage).numpy()
    first = tensor.storage_offset() * tensor.element_size()
    return Pointer(memory, first + value.offset)


# ── sources ─────────────────────────────────────────────────────────────────


def split(text: str) -> tuple[str, dict[str, Function]]:
    """The code of the GPU as a text, and the functions of the host."""
    kept: list[str] = []
    host: dict[str, Function] = {}
    line, conditions = 1, 0
    plain = _without_comments(text)
    _check_names(plain)
    for chunk in chunks(plain):
        lead = chunk[: len(chunk) - len(chunk.lstrip())]
        start = line + lead.count("\n")
        line += chunk.count("\n")
        if chunk.lstrip().startswith("#"):
            conditions += _opens(chunk)
            dropped = bool(_INCLUDE.match(chunk.lstrip()))
        else:
            is_host = _is_host(chunk)
            dropped = is_host or chunk.lstrip().startswith(
                ("using namespace", "namespace py")
            )
            if is_host and "{" in chunk and not chunk.lstrip().startswith("PYBIND"):
                _add(host, chunk, start, conditions > 0)
        kept.append("\n" * chunk.count("\n") if dropped else chunk)
    return "".join(kept), host


def _is_host(chunk: str) -> bool:
    """Whether it is of the host: a function that launches, or has no word of CUDA."""
    signature, brace, _ = chunk.partition("{")
    host = _HOST.search(chunk) or _PLAIN.match(signature + brace)
    return bool(host) and not _CODE.search(signature)


def _add(host: dict[str, Function], chunk: str, line: int, conditional: bool) -> None:
    """Add a function of the host; what has two meanings is refused."""
    try:
        function = _function(chunk.strip(), line)
    except NotRun:  # who calls it is told
        if _HOST.search(chunk):
            raise
        return
    if conditional or function.name in host:
        why = "is under a condition" if conditional else "has two definitions"
        raise NotRun(f"load_inline, line {line}: the function {function.name} {why}")
    host[function.name] = function


_STRING = r"\"(?:\\.|[^\"\\\n])*\""
_OF_COMPILERS = re.compile(
    r"\b(?:__CUDACC_\w+|__NVCC__|__GNU\w+|__clang\w*|_MSC_VER|__cplusplus|__FILE__"
    r"|__LINE__|__DATE__|__TIME\w*__|__COUNTER__|__BASE_FILE__|__INCLUDE_LEVEL__"
    r"|__has_\w+|__STDC\w*|__OPTIMIZE__|NDEBUG|__x86_64__|__linux__|_WIN32)\b|##"
)
"""What the compiler of an extension and NVRTC may have differently, and words that a
macro puts together, which may be such a name."""


def _check_names(text: str) -> None:
    """Refuse names that compilers define differently."""
    found = _OF_COMPILERS.search(re.sub(_STRING, lambda e: " " * len(e[0]), text))
    if found:
        line = text.count("\n", 0, found.start()) + 1
        raise NotRun(
            f"load_inline, line {line}: {found[0]} may be something else for the "
            "compiler of extensions than here"
        )


def _opens(line: str) -> int:
    """Conditions of the preprocessor that a line opens; less than 0, if it closes."""
    word = re.match(r"\s*#\s*(\w*)", line)
    return {"if": 1, "ifdef": 1, "ifndef": 1, "endif": -1}.get(
        word[1] if word else "", 0
    )


_MACRO = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n\\]+)$")
_CONSTANT = re.compile(
    r"(?m)^(?:static\s+)?(?:constexpr|const)\s+(?:static\s+)?[\w ]+?\s(\w+)\s*=\s*"
    r"([^;{}]+);"
)


def constants(text: str) -> dict[str, list[Token]]:
    r"""The macros without arguments, and the constants, that functions can name.

    >>> [each.text for each in constants("#define T 16\n")["T"]]
    ['16']
    """
    found = {}
    for name, value in (*_MACRO.findall(text), *_CONSTANT.findall(text)):
        try:
            found[name] = tokens(value)
        except NotRun:  # code of the GPU that no function of the host can use
            continue
    return found


def _without_comments(text: str) -> str:
    """Comments become blanks, and lines stay where they are."""

    def blank(found: re.Match[str]) -> str:
        return "\n" * found[0].count("\n") if found[0][0] == "/" else found[0]

    pattern = rf"//(?:\\\n|[^\n])*|/\*.*?\*/|{_STRING}"
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def chunks(text: str) -> list[str]:
    """Definitions and declarations at the top level, and lines of the preprocessor."""
    found, start, depth, at = [], 0, 0, 0
    while at < len(text):
        letter = text[at]
        if letter == "#" and not depth and not text[start:at].strip():
            end = text.find("\n", at)
            while end > 0 and text[end - 1] == "\\":
                end = text.find("\n", end + 1)
            at = len(text) if end < 0 else end
            found.append(text[start:at])
            start = at
            continue
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(letter, 0)
        at += 1
        ends_body = letter == "}" and not depth and _is_function(text[start:at])
        if not depth and (letter == ";" or ends_body):
            found.append(text[start:at])
            start = at
    return [*found, text[start:]]


def _is_function(text: str) -> bool:
    """Whether a definition ends with its brace: a function, or a namespace."""
    head = text.partition("{")[0]
    return ")" in head or head.lstrip().startswith(("namespace", "extern"))


def _function(text: str, line: int) -> Function:
    """The definition of a function."""
    head, _, body = text.partition("{")
    found = re.fullmatch(r"\s*([\w:<>,&\s]+?)\s*\b(\w+)\s*\((.*)\)\s*", head, re.DOTALL)
    if found is None:
        raise NotRun(f"load_inline, line {line}: {head.strip()!r} is not understood")
    parameters = []
    for each in _parameters(found[3]):
        plain = each.partition("=")[0].strip()
        kind, _, name = plain.replace("&", " ").replace("*", " * ").rpartition(" ")
        parameters.append((kind.strip(), name.strip()))
    start = line + head.count("\n")
    return Function(found[2], parameters, tokens("{" + body, start))


def _parameters(text: str) -> list[str]:
    depth, parts = 0, [""]
    for letter in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [each for each in parts if each.strip()]
