"""Kernels and modules in CUDA C++ that run without a GPU, called as CuPy's.

NVRTC compiles the source to PTX, and :mod:`fragmenta.ptx` runs the PTX.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once_property
from fragmenta.cuda.tools import files
from fragmenta.errors import BadCall, Error, nearest, one_of
from fragmenta.launch.kernel import Kernel, Loaded
from fragmenta.launch.result import Result
from fragmenta.ptx.demangling import fitting, signature
from fragmenta.reference.isa.target import check_target


class _Compiled:
    """What a kernel and a module of CUDA C++ have in common: how it is compiled."""

    # The class of the PTX that was read.
    modules: ClassVar[type[Loaded]] = Loaded
    default_target: ClassVar[str] = files.TARGET

    def __init__(
        self,
        code: str | None,
        path: str | os.PathLike[str] | None,
        options: Sequence[str],
        backend: str,
        names: Iterable[str],
        target: str | None,
    ) -> None:
        if code is not None and not isinstance(code, str):
            raise BadCall(f"code is a text; given {type(code).__name__}")
        if isinstance(options, str) or not isinstance(options, Sequence):
            raise BadCall(f"options is a sequence of texts; given {options!r}")
        for word in map(str, options):
            if word.startswith(("-arch", "--gpu-architecture", "-gencode")):
                raise BadCall(f"the target is given as target='sm_100a', not as {word}")
        self.code, self.backend = code, backend
        self.path = "" if path is None else os.fspath(path)
        self.options = tuple(options)
        chosen = self.default_target if target is None else target
        self.target = check_target(chosen)
        self._names = tuple(names)

    @once_property
    def file(self) -> files.File:
        """The modules of the source, or of the file."""
        if self.code is None:
            return files.read(
                self.path, self.target, self.options, self._names, self.modules
            )
        made = files.source(
            self.code,
            self.path,
            self.target,
            self.options,
            self._names,
            self.modules,
            self.backend,
        )
        return files.File(self.path or "the source", (made,))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not compiled, such as ``main``."""
        return self.file.notes

    def _chosen(self, name: str) -> Kernel:
        """The kernel of a name."""
        known = self.file.kernels(self.target)
        fit = known.meant(name)
        if len(fit) != 1:
            listed = map(signature, fit or known)
            raise BadCall(
                f"the source has no kernel {name}{nearest(name, known)}; it has "
                f'{one_of(listed, "and") or "none"}.  extern "C" keeps a name as it '
                "is, name<float> makes an instance of a template"
            )
        return known[fit[0]]


class RawKernel(_Compiled):
    """A kernel in CUDA C++ that runs on the CPU, with the bits that a GPU returns.

    Its arguments and its call are those of ``cupy.RawKernel``; users have it as
    ``fragmenta.ptx.RawKernel``.
    """

    def __init__(
        self,
        code: str,
        name: str,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        *,
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        jitify: bool = False,
        path: str | os.PathLike[str] | None = None,
        target: str | None = None,
    ) -> None:
        if not isinstance(name, str):
            raise BadCall(f"name is a text; given {type(name).__name__}")
        super().__init__(code, path, options, backend, [name], target)
        if code is None:
            raise BadCall("code is a text; ptx.load reads a file")
        self.name = name
        self.enable_cooperative_groups = enable_cooperative_groups
        self.max_dynamic_shared_size_bytes = 0
        """As in CuPy; here it is not needed."""

    @property
    def ptx(self) -> str:
        """The PTX that the compiler makes of it, with the lines of the source."""
        text: str = self.file.modules[0].module.text
        return text

    @once_property
    def kernel(self) -> Kernel:
        """The kernel as :mod:`fragmenta.ptx` has it."""
        return self._chosen(self.name)

    def compile(self, log_stream: object = None) -> None:
        """Compile now; otherwise the first call does."""
        _ = self.kernel

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        arguments: Sequence[object] = (),
        *,
        shared: int = 0,
        args: Sequence[object] | None = None,
        shared_mem: int | None = None,
        **options: Any,
    ) -> Result:
        """Run it.

        ``options`` are those of :meth:`fragmenta.ptx.Kernel.launch`, such as
        ``cluster``, ``schedule``, ``watch`` and ``limits``.  CuPy's words for
        ``arguments`` and ``shared`` are understood: ``args`` and ``shared_mem``.
        """
        for ours, theirs in (("arguments", args), ("shared", shared_mem)):
            if theirs is not None and {"arguments": arguments, "shared": shared}[ours]:
                raise BadCall(f"{ours} is given twice, also as CuPy calls it")
        options.setdefault("cooperative", self.enable_cooperative_groups)
        return self.kernel.launch(
            grid,
            block,
            arguments if args is None else args,
            shared=shared if shared_mem is None else shared_mem,
            target=self.target,
            **options,
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {self.target})"


class RawModule(_Compiled):
    """Kernels in CUDA C++, or of a file, that run on the CPU.

    Its arguments and its methods are those of ``cupy.RawModule``; users have it as
    ``fragmenta.ptx.RawModule``.
    """

    # The class of its kernels.
    kernel_type: ClassVar[type[RawKernel]] = RawKernel

    def __init__(
        self,
        *,
        code: str | None = None,
        path: str | os.PathLike[str] | None = None,
        options: Sequence[str] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: Iterable[str] | None = None,
        jitify: bool = False,
        target: str | None = None,
    ) -> None:
        if code is None and path is None:
            raise BadCall("give the code, or the path of a file")
        if isinstance(name_expressions, str):
            raise BadCall(
                f"name_expressions is a sequence of texts; given {name_expressions!r}"
            )
        names = () if name_expressions is None else tuple(name_expressions)
        super().__init__(code, path, options, backend, names, target)
        self.name_expressions = names
        self.enable_cooperative_groups = enable_cooperative_groups

    def compile(self, log_stream: object = None) -> None:
        """Compile now; otherwise the first use does."""
        _ = self.file

    def get_function(self, name: str) -> RawKernel:
        """A kernel of the module, by its name or by one of ``name_expressions``."""
        kernel = self._chosen(name)
        made = self.kernel_type(
            self.code or "",
            name,
            self.options,
            self.backend,
            enable_cooperative_groups=self.enable_cooperative_groups,
            path=self.path or None,
            target=self.target,
        )
        # Kernels of one module have the same variables.
        vars(made).update(file=self.file, kernel=kernel)
        return made

    def get_global(self, name: str) -> NDArray[np.uint8]:
        """The bytes of a variable of the module; they may be changed.

        ``numpy.ndarray(shape, dtype, module.get_global(name))`` has its elements.
        """
        known = {
            each: loaded for loaded in self.file.modules for each in loaded.variables
        }
        found = [name] if name in known else fitting(name, known)
        if len(found) != 1:
            listed = one_of(found or known, "and") or "none"
            raise Error(f"no variable {name}{nearest(name, known)}; there are {listed}")
        data: NDArray[np.uint8] = known[found[0]].variables[found[0]]
        return data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path or 'code'}, {self.target})"
