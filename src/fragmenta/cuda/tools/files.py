"""Reads the files that have kernels: PTX, CUDA C++, and binaries with PTX inside.

A source is compiled; a fat binary, a cubin, an object file, a library or a program may
have several modules, of several files and for several targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools import fatbin
from fragmenta.cuda.tools.kinds import NO_KERNEL, is_source
from fragmenta.cuda.tools.parameter_names import parameter_names
from fragmenta.errors import BadCall, BadFile, one_of
from fragmenta.launch.kernel import Kernel, KernelsByName, Loaded, parse
from fragmenta.launch.source import ModuleOrigin
from fragmenta.ptx.demangling import signature
from fragmenta.ptx.languages import CUDA
from fragmenta.ptx.module import demangled
from fragmenta.reference.isa.target import check_target, number

TARGET = "sm_90a"
"""What CUDA C++ is compiled for if nothing is said."""


@dataclass(frozen=True)
class File:
    """A file with kernels: its modules."""

    path: str
    modules: tuple[Loaded, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """What users should know about its compilation."""
        return tuple(note for each in self.modules for note in each.origin.notes)

    def kernels(self, target: str | None = None) -> KernelsByName:
        """All kernels; of modules for several targets, those that a GPU would take."""
        best: dict[str, Kernel] = {}
        aliases: dict[str, str] = {}
        for loaded in sorted(self.modules, key=partial(_fitness, target)):
            best |= loaded.kernels
            aliases |= loaded.origin.aliases
        return KernelsByName(best, aliases)

    def kernel(self, name: str | None = None, target: str | None = None) -> Kernel:
        """A kernel by its name, which may be left out if there is one only."""
        found = self.kernels(target)
        if name is not None:
            return found[name]
        if not found:
            raise BadCall(f"{self.path} has no kernel; {NO_KERNEL}")
        if len(found) != 1:
            listed = one_of(map(signature, found), "and")
            raise BadCall(f"{self.path} has {len(found)} kernels, name one: {listed}")
        return next(iter(found.values()))


def _fitness(target: str | None, loaded: Loaded) -> tuple[bool, bool, int]:
    """How well a module fits a target; the largest is best."""
    own = loaded.module.target
    most = None if target is None else number(check_target(target))
    return own == target, most is None or number(own) <= most, number(own)


def read(
    path: str | Path,
    target: str | None = None,
    options: Sequence[str] = (),
    names: Iterable[str] = (),
    modules: type[Loaded] = Loaded,
) -> File:
    """Read a file: PTX, CUDA C++ or a binary.

    A source is compiled for ``target``, with the ``options`` of NVRTC.  ``names`` are
    instances of templates, such as ``scale<float>``.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as why:
        raise BadFile(f"{path} cannot be read: {why.strerror}") from why
    if fatbin.is_binary(data):
        return File(str(path), tuple(_binary(str(path), data, modules)))
    if is_source(path, data):
        from fragmenta.cuda.tools import sources

        text = sources.read(path)
        return File(
            str(path), (source(text, str(path), target, options, names, modules),)
        )
    if options:
        raise BadCall(f"{path} is PTX: it is not compiled, so it takes no options")
    return File(str(path), (modules(parse(data, str(path)).module),))


def _binary(path: str, data: bytes, modules: type[Loaded]) -> list[Loaded]:
    """The modules of a binary."""
    found = []
    for image in fatbin.ptx_texts(data, path):
        name = f"{path}({image.name})" if image.name else path
        found.append(modules(parse(image.text or "", name).module))
    return found


def source(
    code: str,
    path: str = "",
    target: str | None = None,
    options: Sequence[str] = (),
    names: Iterable[str] = (),
    modules: type[Loaded] = Loaded,
    backend: str | None = None,
) -> Loaded:
    """The module of a text in CUDA C++."""
    # PTX needs no compiler.
    from fragmenta.cuda.tools import sources

    made = sources.to_ptx(
        code, target or TARGET, options, path, _expressions(names), backend
    )
    module = parse(made.text).module  # the file has other lines than the PTX
    counts = {n: len(f.parameters) for n, f in module.functions.items() if f.kernel}
    named = {
        n: parameter_names(code, demangled(n), count) for n, count in counts.items()
    }
    return modules(module, ModuleOrigin(CUDA, named, made.notes, made.names))


def _expressions(names: Iterable[str]) -> list[str]:
    """The names that make instances of templates."""
    return [name for name in names if re.search(r"<.*>", name) and "(" not in name]
