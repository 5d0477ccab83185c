"""Kernels of Triton and of Numba, for the fixture ``gpu`` of pytest."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np

from fragmenta.errors import BadCall

if TYPE_CHECKING:
    from fragmenta.launch.request import Extent


def _is_of(kernel: object, package: str, *names: str) -> bool:
    """Whether an object is of a class of a package, without loading the package."""
    kind = type(kernel)
    return kind.__module__.split(".")[0] == package and kind.__name__ in names


def _sizes(extent: Extent) -> tuple[int, ...]:
    return (extent,) if isinstance(extent, int) else tuple(extent)


class Triton:
    """Kernels of Triton and of Gluon."""

    def takes(self, kernel: object) -> bool:
        """Whether it is one, tuned or not."""
        names = "JITFunction GluonJITFunction Autotuner Heuristics"
        return _is_of(kernel, "triton", *names.split())

    def launch_here(
        self,
        target: str,
        kernel: object,
        grid: Extent,
        block: Extent | None,
        arguments: Sequence[object],
        **options: object,
    ) -> None:
        """Launch it on the CPU."""
        with importlib.import_module("fragmenta.triton").on_cpu(target):
            self._call(kernel, grid, block, arguments, options)

    def launch_there(
        self,
        kernel: object,
        grid: Extent,
        block: Extent | None,
        arguments: Sequence[object],
        **options: object,
    ) -> None:
        """Launch it on a GPU: arrays are copied there and back."""
        torch = importlib.import_module("torch")
        there: list[object] = []
        back: list[tuple[object, object]] = []
        for each in arguments:
            if isinstance(each, np.ndarray | torch.Tensor):
                copy = torch.as_tensor(each, device="cuda")
                back.append((each, copy))
                there.append(copy)
            else:
                there.append(each)
        self._call(kernel, grid, block, there, options)
        for mine, its in back:
            torch.as_tensor(mine).copy_(its)

    def _call(
        self,
        kernel: object,
        grid: Extent,
        block: Extent | None,
        arguments: Sequence[object],
        options: dict[str, object],
    ) -> None:
        if block is not None:
            raise BadCall(
                "a Triton kernel has no block: give None for it, and num_warps="
            )
        _called(kernel, _sizes(grid), arguments, options)


class Numba:
    """Kernels of numba-cuda."""

    def takes(self, kernel: object) -> bool:
        """Whether it is one."""
        return _is_of(kernel, "numba", "CUDADispatcher")

    def launch_here(
        self,
        target: str,
        kernel: object,
        grid: Extent,
        block: Extent | None,
        arguments: Sequence[object],
        **options: object,
    ) -> None:
        """Launch it on the CPU."""
        with importlib.import_module("fragmenta.frontends.numba").on_cpu(target):
            self.launch_there(kernel, grid, block, arguments, **options)

    def launch_there(
        self,
        kernel: object,
        grid: Extent,
        block: Extent | None,
        arguments: Sequence[object],
        **options: object,
    ) -> None:
        """Launch it as Numba does, which copies arrays there and back."""
        if block is None:
            raise BadCall("a kernel of Numba needs block, the threads of a block")
        _called(kernel, (_sizes(grid), _sizes(block)), arguments, options)


class _Indexed(Protocol):
    def __getitem__(self, sizes: tuple[object, ...]) -> Callable[..., object]: ...


def _called(
    kernel: object,
    sizes: tuple[object, ...],
    arguments: Sequence[object],
    options: dict[str, object],
) -> None:
    """Call ``kernel[sizes](*arguments, **options)``."""
    cast(_Indexed, kernel)[sizes](*arguments, **options)


LANGUAGES = (Triton(), Numba())
"""All front ends whose kernels the fixture takes."""
