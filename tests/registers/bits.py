"""Bit patterns to test elements with."""

from __future__ import annotations

from typing import Any

import numpy as np

from fragmenta.reference.registers.dtype import DType


def patterns(dt: DType) -> np.ndarray[Any, np.dtype[Any]]:
    """Every pattern of a narrow type; a million random ones of a wide type."""
    if dt.bits <= 16:
        return np.arange(dt.mask + 1, dtype=dt.bits_dtype)
    random = np.random.default_rng(len(dt.name))
    drawn = random.integers(0, dt.mask, 1 << 20, dt.bits_dtype.type, endpoint=True)
    half = dt.mask >> 1
    ends = np.array([0, 1, half, half + 1, dt.mask], dt.bits_dtype)
    return np.concatenate([drawn, ends])


def same(left: Any, right: Any) -> bool:
    """Equal in every bit, so that NaN payloads and signed zeros count."""
    return bool(
        left.dtype == right.dtype
        and left.shape == right.shape
        and left.tobytes() == right.tobytes()
    )
