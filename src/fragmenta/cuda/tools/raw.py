"""Kernels in CUDA C++ that run without a GPU.

NVRTC compiles the source to PTX, and :mod:`fragmenta.ptx` runs the PTX.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

from fragmenta.arrays.once import once_property
from fragmenta.cuda.tools import compiler
from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.isa.target import check_target
from fragmenta.launch.kernel import Kernel, Loaded, parse
from fragmenta.launch.result import Result


class RawKernel:
    """A kernel in CUDA C++ that runs on the CPU, with the bits that a GPU returns.

    Its arguments and its call are those of ``cupy.RawKernel``; users have it as
    ``fragmenta.ptx.RawKernel``.
    """

    # The class of the PTX that was read.
    modules: ClassVar[type[Loaded]] = Loaded

    def __init__(
        self,
        code: str,
        name: str,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        *,
        enable_cooperative_groups: bool = False,
        target: str = "sm_90a",
    ) -> None:
        for what, given in (("code", code), ("name", name)):
            if not isinstance(given, str):
                raise BadCall(f"{what} is a text; given {type(given).__name__}")
        if isinstance(options, str) or not isinstance(options, Sequence):
            raise BadCall(f"options is a sequence of texts; given {options!r}")
        for word in map(str, options):
            if word.startswith(("-arch", "--gpu-architecture", "-gencode")):
                raise BadCall(f"the target is given as target='sm_100a', not as {word}")
        self.code, self.name = code, name
        self.options, self.backend = tuple(options), backend
        self.target = check_target(target)
        self.cooperative = enable_cooperative_groups

    @cached_property
    def _compiled(self) -> tuple[str, str]:
        """The PTX, and the name of the kernel in it; an expression is mangled."""
        lines = () if {"-G", "--device-debug"} & {*self.options} else ("-lineinfo",)
        words = (self.code, self.target, *self.options, *lines)
        if not {"<", ":"} & {*self.name}:
            return compiler.to_ptx(*words, compiler=self.backend), self.name
        return compiler.to_ptx_of(*words, name=self.name, compiler=self.backend)

    @property
    def ptx(self) -> str:
        """The PTX that the compiler makes of it, with the lines of the source."""
        return self._compiled[0]

    @once_property
    def kernel(self) -> Kernel:
        """The kernel as :mod:`fragmenta.ptx` has it."""
        text, name = self._compiled
        kernels = self.modules(parse(text, self.name).module).kernels
        mangled = f"_Z{len(name)}{name}"
        fitting = [each for each in kernels if each.startswith(mangled)]
        if name in kernels or len(fitting) == 1:
            found = kernels[name if name in kernels else fitting[0]]
            names = parameter_names(self.code, self.name, len(found.parameters))
            return replace(found, names=names, language="cuda")
        raise BadCall(
            f"the source has no kernel {name}{nearest(name, kernels)}; it has "
            f'{one_of(fitting or kernels, "and") or "none"}.  extern "C" keeps a name '
            "as it is, name<float> makes an instance of a template"
        )

    def compile(self) -> None:
        """Compile now; otherwise the first call does."""
        _ = self.kernel

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[object] = (),
        *,
        shared: int = 0,
        **options: Any,
    ) -> Result:
        """Run it.

        ``options`` are those of :meth:`fragmenta.ptx.Kernel.launch`, such as
        ``cluster``, ``schedule``, ``watch`` and ``limits``.
        """
        options.setdefault("cooperative", self.cooperative)
        return self.kernel.launch(
            grid, block, arguments, shared=shared, target=self.target, **options
        )

    def __repr__(self) -> str:
        return f"RawKernel({self.name}, {self.target})"


def parameter_names(code: str, kernel: str, count: int) -> tuple[str, ...]:
    """The names of a kernel's parameters in C++; none if they are not found.

    >>> code = "template <int N> __global__ void f(const float *x, int (&n)[2], T) {}"
    >>> parameter_names(code, "f<4>", 3)
    ('x', 'n', '')
    >>> parameter_names(code, "g", 3)
    ()
    """
    own = re.escape(kernel.partition("<")[0].rpartition("::")[2])
    for found in re.finditer(rf"\b{own}\s*\(", _without_comments(code)):
        parts = _parameters(_without_comments(code)[found.end() :])
        if len(parts) == count:
            return tuple(map(_declared, parts))
    return ()


def _without_comments(code: str) -> str:
    return re.sub(r"//[^\n]*|/\*.*?\*/", " ", code, flags=re.DOTALL)


def _parameters(text: str) -> list[str]:
    """The parameters between an opening parenthesis and the one that closes it."""
    depth, parts = 0, [""]
    for letter in text:
        if letter in "([{<":
            depth += 1
        elif letter in ")]}>":
            depth -= 1
        if depth < 0:
            break
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [each for each in map(str.strip, parts) if each and each != "void"]


def _declared(parameter: str) -> str:
    """The name that a parameter declares; nothing if it has only a type."""
    plain = re.sub(r"=.*|\[[^\]]*\]|<.*>", "", parameter, flags=re.DOTALL)
    inner = re.search(r"\(\s*[*&]+\s*(\w+)\s*\)", plain)  # int (&n)[2]
    if inner is not None:
        return inner[1]
    words = re.findall(r"\w+|[*&]", plain)
    types = {
        "int",
        "char",
        "short",
        "long",
        "unsigned",
        "signed",
        "float",
        "double",
        "bool",
        "const",
        "__restrict__",
    }
    last = words[-1] if len(words) > 1 else ""
    return last if last.isidentifier() and last not in types else ""
