"""Runs kernels of TileLang without a GPU.

TileLang makes CUDA C++ of a kernel, which ``nvcc`` compiles to PTX; tensor maps are
encoded as its own host code does it.  Sizes are fixed numbers.  Arrays are NumPy's or
PyTorch's CPU tensors.  Reports name the lines of the CUDA C++, ``kernel.source``::

    with fragmenta.frontends.tilelang.on_cpu("sm_90a") as cpu:
        kernel = tilelang.compile(matmul(128, 128, 64), out_idx=[2])
        c = kernel(a, b)
    print(cpu.last)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, SupportsInt, Unpack

import numpy as np

from fragmenta.cuda.tools import files
from fragmenta.engine.simt.arguments import Pointer, Struct, pointer
from fragmenta.errors import BadCall, MissingPackage, missing
from fragmenta.frontends.protocol import (
    CompiledPtx,
    Passed,
    Patches,
    Session,
)
from fragmenta.launch.request import OptionsOnTarget
from fragmenta.ptx.languages import Words
from fragmenta.reference.shared.tensor_map import ALIGNMENT, TensorMap, element_types

try:
    import tilelang
    from tvm.target import Target
except ImportError as why:
    raise MissingPackage(
        f"fragmenta.frontends.tilelang needs TileLang: {missing('tilelang', why)}"
    ) from None

_FOLDER = Path(tilelang.__file__).parent
_INCLUDED = (_FOLDER / "src", _FOLDER / "3rdparty" / "cutlass" / "include")
_CODES = {each.code: each.name for each in element_types() if not each.tf32}
_AXES = ("x", "y", "z")


class TileLangParameter(Protocol):
    """A parameter of a kernel of TileLang."""

    shape: Sequence[object]

    def torch_dtype(self) -> object:
        """The type of its elements, as PyTorch calls it."""


class TileLangKernel:
    """A kernel of TileLang that runs here, as ``tilelang.compile`` returns one."""

    def __init__(
        self, session: Session[TileLangKernel], function: object, results: Sequence[int]
    ) -> None:
        self._session = session
        target = Target({"kind": "cuda", "arch": session.target})
        lower = sys.modules["tilelang.engine.lower"].lower
        with target:
            made = lower(function, target=target, enable_device_compile=False)
        self.source = str(made.kernel_source)
        """The CUDA C++ that TileLang has made."""
        self.parameters: list[TileLangParameter] = list(made.params)
        self.results = [each % len(self.parameters) for each in results]
        if len(made.device_mod.functions) != 1:
            raise BadCall(
                "a function of TileLang with several kernels does not run here"
            )
        ((_, device),) = made.device_mod.functions.items()
        ((_, host),) = made.host_mod.functions.items()
        self.names = [str(each.name) for each in device.params]
        self._attributes = dict(device.attrs)
        self.maps: dict[str, list[object]] = {
            str(key.name): list(value)
            for key, value in dict(host.attrs).get("tma_descriptor_args", {}).items()
        }
        found = getattr(function, "buffer_map", {})
        self.buffers = [str(found[each].name) for each in function.params]  # type: ignore[attr-defined]

    def get_kernel_source(self) -> str:
        """The CUDA C++ that TileLang has made."""
        return self.source

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return _whole(self._attributes.get("dyn_shared_memory_buf", 0), "shared memory")

    def sizes(self, kind: str) -> tuple[int, ...]:
        """The sizes of the grid (``blockIdx``) or of a block (``threadIdx``)."""
        extents = self._attributes["thread_extent"]
        assert isinstance(extents, Mapping)
        known = {str(key): value for key, value in extents.items()}
        return tuple(_whole(known.get(f"{kind}.{axis}", 1), kind) for axis in _AXES)

    def __call__(self, *given: object) -> object:
        """Launch it; arrays that it results in are made and returned."""
        wanted = len(self.parameters) - len(self.results)
        if len(given) != wanted:
            raise BadCall(f"the kernel takes {wanted} arguments; given {len(given)}")
        rest = iter(given)
        arguments = [
            _new(each, given) if index in self.results else next(rest)
            for index, each in enumerate(self.parameters)
        ]
        self._session.launch(
            self,
            self.sizes("blockIdx"),
            self.sizes("threadIdx"),
            arguments,
            shared=self.shared,
        )
        made = [arguments[index] for index in self.results]
        return made[0] if len(made) == 1 else made or None


def _whole(value: object, what: str) -> int:
    if not isinstance(value, SupportsInt):
        raise BadCall(f"{what} of the kernel depends on its arguments: {value}")
    try:
        return int(value)
    except TypeError:
        raise BadCall(
            f"{what} of the kernel depends on its arguments: {value}"
        ) from None


def _new(parameter: TileLangParameter, given: Sequence[object]) -> object:
    """A new array: PyTorch's if tensors are given, else NumPy's."""
    shape = tuple(_whole(each, "the shape of a result") for each in parameter.shape)
    kind = parameter.torch_dtype()
    if any(isinstance(each, np.ndarray) for each in given):
        return np.zeros(shape, str(kind).rpartition(".")[2])
    import torch

    return torch.zeros(shape, dtype=kind)  # type: ignore[call-overload, unused-ignore]


class TileLang:
    """TileLang, as :mod:`fragmenta.frontends.protocol` describes front ends."""

    words = Words(
        "tilelang",
        "T.sync_warp()",
        "T.sync_threads()",
        "T.atomic_add",
        'T.atomic_add with memory_order="release"',
    )

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], CompiledPtx] = {}

    def made(
        self, kernel: TileLangKernel, arguments: Sequence[object], target: str
    ) -> CompiledPtx:
        """The PTX of the CUDA C++ that TileLang has made."""
        key = kernel.source, target
        if key not in self._made:
            options = ["-std=c++17", *(f"-I{each}" for each in _INCLUDED)]
            # NVRTC refuses the headers of TileLang.
            found = files.source(
                kernel.source, target=target, options=options, backend="nvcc"
            )
            self._made[key] = CompiledPtx(found.module.text)
        return self._made[key]

    def passed(
        self, kernel: TileLangKernel, arguments: Sequence[object]
    ) -> Iterator[Passed]:
        """Pointers, numbers, and tensor maps where the kernel has copies by TMA."""
        known = dict(zip(kernel.buffers, arguments, strict=True))
        for name in kernel.names:
            if name in kernel.maps:
                yield Passed(name, _tensor_map(kernel.maps[name], known))
            else:
                yield Passed(name, known[name])

    def divert(self, session: Session[TileLangKernel]) -> Callable[[], None]:
        """Let ``tilelang.compile`` make kernels that run here."""

        def compile_here(
            func: object,
            out_idx: int | Sequence[int] | None = None,
            *given: object,
            **named: object,
        ) -> TileLangKernel:
            results = [out_idx] if isinstance(out_idx, int) else list(out_idx or ())
            return TileLangKernel(session, func, results)

        patches = Patches()
        for owner in (tilelang, sys.modules["tilelang.jit"]):
            patches.set(owner, "compile", compile_here)
        return patches.undo


def _tensor_map(words: list[object], known: Mapping[str, object]) -> Struct:
    """A tensor map of the arguments that TileLang gives ``cuTensorMapEncodeTiled``."""
    if "create_tiled" not in str(words[0]):
        raise BadCall(f"a tensor map by {words[0]} does not run here")
    code, rank = (_whole(each, "a tensor map") for each in words[2:4])
    base = known[str(getattr(words[4], "name", words[4]))]
    numbers = [_whole(each, "a tensor map") for each in words[5:]]
    sizes, steps, box, strides = (
        tuple(numbers[rank * i : rank * (i + 1)]) for i in range(4)
    )
    interleave, swizzle, l2, fill = numbers[4 * rank :]
    made = TensorMap(
        _CODES[code],
        sizes,
        steps[1:],
        box=box,
        element_strides=strides,
        interleave=(0, 16, 32)[interleave],
        swizzle=(0, 32, 64, 128)[swizzle],
        l2=("none", 64, 128, 256)[l2],
        fill="nan" if fill else "zeros",
    )
    place = base if isinstance(base, Pointer) else pointer(base)
    return Struct(made.encode(), ((0, place),), ALIGNMENT)


@contextmanager
def on_cpu(
    target: str = "sm_90a", **options: Unpack[OptionsOnTarget]
) -> Iterator[Session[TileLangKernel]]:
    """In this block, ``tilelang.compile`` makes kernels that run here.

    The options are those of :meth:`fragmenta.ptx.Kernel.launch`: ``schedule``,
    ``watch``, ``limits``, ``numerics`` and ``nan``.  ``with`` gives an object with
    ``last``, the result of the last launch.
    """
    with Session(TileLang(), target, **options).diverted() as session:
        yield session
