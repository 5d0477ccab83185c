"""Atomic operations whose result depends on the type: floats, and signed numbers.

Their names have the type, as in ``add.f32`` and ``min.s32``.  Words hold bits, as
unsigned numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

_FLOATS: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
_SIGNED = {"s32": np.int32, "s64": np.int64}
_COMPUTED = {"add": np.add, "min": np.fmin, "max": np.fmax}


def named(operation: str, kind: str) -> str:
    """The name of an atomic operation on a type.

    >>> named("add", "f32"), named("add", "s32"), named("min", "s32")
    ('add.f32', 'add', 'min.s32')
    """
    full = f"{operation}.{kind}"
    return full if full in TYPED else operation


def _typed(operation: str, of: Any, count: int) -> Callable[..., int]:
    """Compute with bits that are one number, or several side by side."""
    size = np.dtype(of).itemsize * count

    def compute(old: int, operand: int) -> int:
        both = [
            np.frombuffer(each.to_bytes(size, "little"), of) for each in (old, operand)
        ]
        with np.errstate(all="ignore"):
            made = np.asarray(_COMPUTED[operation](*both), of)
        return int.from_bytes(made.tobytes(), "little")

    return compute


TYPED: dict[str, Callable[[int, int], int]] = {
    **{
        f"{operation}.{kind}{f'x{count}' * (count > 1)}": _typed(operation, of, count)
        for operation in _COMPUTED
        for kind, of in _FLOATS.items()
        for count in (1, 2, 4)
    },
    **{
        f"{operation}.{kind}": _typed(operation, of, 1)
        for operation in ("min", "max")
        for kind, of in _SIGNED.items()
    },
}
"""What each of them computes: the old bits, the operand's bits, the new bits."""
