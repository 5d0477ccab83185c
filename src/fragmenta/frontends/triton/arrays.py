"""Lets Triton kernels take NumPy arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import overload
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from triton.runtime import driver as triton_driver
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from fragmenta.base.arrays.checks import refuse_masks
from fragmenta.errors import BadCall
from fragmenta.frontends.triton.storages import ADDRESSES


class _Array(np.ndarray[tuple[int, ...], np.dtype[np.generic]]):
    """A NumPy array with the methods of a tensor that Triton calls."""

    def data_ptr(self) -> int:
        return int(self.ctypes.data)

    def element_size(self) -> int:
        return self.itemsize

    @overload
    def stride(self, axis: None = None) -> tuple[int, ...]: ...
    @overload
    def stride(self, axis: int) -> int: ...
    def stride(self, axis: int | None = None) -> tuple[int, ...] | int:
        steps = tuple(step // self.itemsize for step in self.strides)
        return steps if axis is None else steps[axis]

    # For reset_to_zero= and restore_value= of @triton.autotune.

    def zero_(self) -> _Array:
        self.fill(0)
        return self

    def clone(self) -> _Array:
        return self.copy()

    def copy_(self, other: NDArray[np.generic]) -> _Array:
        self[...] = other
        return self


def as_tensor(value: object) -> object:
    """An argument as Triton takes it."""
    if isinstance(value, np.ndarray):
        if isinstance(value, _Array):
            return value
        refuse_masks(value)
        if value.dtype.hasobject or not value.dtype.isnative:
            raise BadCall(
                f"a kernel needs numbers in native byte order, not {value.dtype}"
            )
        return value.view(_Array)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (tuple, list)):
        inner = [as_tensor(each) for each in value]
        kind: Callable[..., object] = type(value)
        return kind(*inner) if hasattr(value, "_fields") else kind(inner)
    return value


_RUNS: dict[type, Callable[..., object]] = {}
"""Triton's own method ``run`` of each kind of kernel."""


def take_arrays() -> None:
    """Let kernels take NumPy arrays."""
    for kind in (JITFunction, Autotuner, Heuristics):
        _RUNS[kind] = kind.run
        kind.run = _taking_arrays(kind)


def give_back() -> None:
    """Let kernels run as Triton runs them."""
    for kind, run in _RUNS.items():
        kind.run = run  # type: ignore[attr-defined]
    _RUNS.clear()
    for tuner, caches in _TUNED.items():
        tuner.cache = caches[""]
    _TUNED.clear()


_TUNED: WeakKeyDictionary[Autotuner, dict[str, dict[object, object]]] = (
    WeakKeyDictionary()
)
"""What each tuner has chosen: by the driver, and without one of ours."""


def _tune_here(tuner: Autotuner) -> None:
    """Give a tuner the choices that it made with this driver, not those for others."""
    cpu = triton_driver.active
    caches = _TUNED.setdefault(tuner, {"": tuner.cache})
    tuner.cache = caches.setdefault(f"{cpu.target} {cpu.autotune}", {})
    cpu.tune()


def _taking_arrays(kind: type) -> Callable[..., object]:
    run = _RUNS[kind]
    # Triton asks each tensor for its address, only to see what it is a multiple of.
    kernel = kind is JITFunction

    @functools.wraps(run)
    def with_arrays(self: object, *args: object, **options: object) -> object:
        # A tuner keeps its benchmarker; the next launch may be on a GPU.
        vars(self).pop("do_bench", None)
        if isinstance(self, Autotuner):
            _tune_here(self)
        try:
            named = {name: as_tensor(value) for name, value in options.items()}
            with ADDRESSES.real() if kernel else nullcontext():
                return run(self, *map(as_tensor, args), **named)
        finally:
            vars(self).pop("do_bench", None)

    return with_arrays
