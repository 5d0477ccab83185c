"""CUDA C++ as people write it, compiled to PTX: also with a ``main``, and templates.

NVRTC is asked first.  The host's code is left out (:mod:`host_code`), and the instances
of templates that it launches are compiled.  What NVRTC cannot compile nevertheless goes
to ``nvcc``, if there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace
from pathlib import Path

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools import compiler, host_code, messages
from fragmenta.cuda.tools.compiler import TranslationUnit
from fragmenta.errors import BadFile, CompileError, MissingPackage, one_of

MOST_ROUNDS = 50
"""How often NVRTC is asked; it names at most a hundred declarations at a time."""
_LINES = "-lineinfo"
_NO_LINES = {"-G", "--device-debug", "-lineinfo", "--generate-line-info"}


@dataclass(frozen=True)
class Compiled:
    """PTX that was made of CUDA C++."""

    text: str
    code: str
    names: dict[str, str] = field(default_factory=dict)
    """The mangled name of each kernel that was asked for by an expression."""
    notes: tuple[str, ...] = ()
    """What was left out, and which compiler was taken instead, in words."""


def read(path: str | Path) -> str:
    """The text of a file of CUDA C++."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")
    except OSError as why:
        raise BadFile(f"{path} cannot be read: {why.strerror}") from why
    except UnicodeDecodeError as why:
        raise BadFile(f"{path} is not a text in UTF-8: {why.reason}") from why


def to_ptx(
    code: str,
    target: str,
    options: Iterable[str] = (),
    path: str = "",
    names: Iterable[str] = (),
    backend: str | None = None,
) -> Compiled:
    """The PTX of a source, with its lines.

    ``names`` are expressions, such as ``scale<float>``, that name kernels; ``path`` is
    the file that the source is from.

    >>> found = to_ptx("__global__ void f() {} int main() { f<<<1, 1>>>(); }", "sm_90a")
    >>> ".entry _Z1fv" in found.text, found.notes
    (True, ('the code of the host is not compiled: main in line 1',))
    """
    words = tuple(options)
    words += (_LINES,) if _NO_LINES.isdisjoint(words) else ()
    unit = TranslationUnit(code, target, words, path, tuple(names))
    if backend == "nvcc":
        return _with_nvcc(unit)
    try:
        return _with_nvrtc(unit)
    except (CompileError, MissingPackage) as why:
        # nvcc reads a file on disk; expressions are understood by NVRTC only.
        if backend is not None or unit.names:
            raise
        try:
            found = _with_nvcc(unit)
        except MissingPackage:
            raise why from None
        except CompileError as other:  # nvcc shows lines as the preprocessor left them
            same = messages.places(other.log) & messages.places(_log(why))
            raise (why if same else other) from None
        return replace(found, notes=("nvrtc cannot compile it, so nvcc does",))


def _log(error: CompileError | MissingPackage) -> str:
    return error.log if isinstance(error, CompileError) else ""


def _with_nvcc(unit: TranslationUnit) -> Compiled:
    text, names = compiler.compiled(unit, compiler.find("nvcc"))
    return Compiled(text, unit.code, names)


def _with_nvrtc(unit: TranslationUnit) -> Compiled:
    """NVRTC's PTX, without the code of the host."""
    chosen = compiler.find("nvrtc")
    left: list[host_code.Omitted] = []
    for _ in range(MOST_ROUNDS):
        try:
            text, names = compiler.compiled(unit, chosen)
            break
        except CompileError as why:
            places = host_code.refused(why.log, unit.file)
            code, more = host_code.without(unit.code, places)
            if code == unit.code:
                raise
            launched = host_code.launched_templates(unit.code) if more else []
            asked = dict.fromkeys((*unit.names, *launched))
            unit = unit._replace(code=code, names=tuple(asked))
            left += more
    else:
        raise CompileError(f"{unit.file} has too much code of the host for nvrtc")
    notes = (_note(left),) if left else ()
    return Compiled(text, unit.code, names, notes)


def _note(left: list[host_code.Omitted]) -> str:
    """What was left out."""
    ordered = sorted(left, key=lambda each: (each.name != "main", each.line))
    named = [f"{each.name} in line {each.line}" for each in ordered]
    if len(named) > 4:
        named = [*named[:3], f"{len(named) - 3} more"]
    return f"the code of the host is not compiled: {one_of(named, 'and')}"
