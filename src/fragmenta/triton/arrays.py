"""How does a Triton kernel take NumPy arrays?"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from fragmenta.arrays.checks import refuse_masks
from fragmenta.errors import Error


class _Array(np.ndarray[Any, Any]):
    """A NumPy array with the methods of a tensor that Triton calls."""

    def data_ptr(self) -> int:
        return int(self.ctypes.data)

    def element_size(self) -> int:
        return self.itemsize

    def stride(self, axis: int | None = None) -> Any:
        steps = tuple(step // self.itemsize for step in self.strides)
        return steps if axis is None else steps[axis]

    # For reset_to_zero= and restore_value= of @triton.autotune.

    def zero_(self) -> _Array:
        self.fill(0)
        return self

    def clone(self) -> _Array:
        return self.copy()

    def copy_(self, other: NDArray[Any]) -> _Array:
        self[...] = other
        return self


def as_tensor(value: Any) -> Any:
    """An argument as Triton takes it."""
    if isinstance(value, np.ndarray):
        if isinstance(value, _Array):
            return value
        refuse_masks(value)
        if value.dtype.hasobject or not value.dtype.isnative:
            raise Error(
                f"a kernel needs numbers in native byte order, not {value.dtype}"
            )
        return value.view(_Array)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        inner = [as_tensor(each) for each in value]
        return type(value)(*inner) if hasattr(value, "_fields") else type(value)(inner)
    return value


_RUNS: dict[type, Callable[..., Any]] = {}
"""How Triton runs each kind of kernel itself."""


def take_arrays() -> None:
    """Let kernels take NumPy arrays."""
    for kind in (JITFunction, Autotuner, Heuristics):
        _RUNS[kind] = kind.run
        kind.run = _taking_arrays(kind.run)


def give_back() -> None:
    """Let kernels run as Triton runs them."""
    for kind, run in _RUNS.items():
        kind.run = run  # type: ignore[attr-defined]
    _RUNS.clear()


def _taking_arrays(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def with_arrays(self: Any, *args: Any, **options: Any) -> Any:
        # A tuner keeps its benchmarker; the next launch may be on a GPU.
        vars(self).pop("do_bench", None)
        try:
            named = {name: as_tensor(value) for name, value in options.items()}
            return run(self, *map(as_tensor, args), **named)
        finally:
            vars(self).pop("do_bench", None)

    return with_arrays
