"""The results that the right kernels with tensor memory must leave.

They multiply small whole numbers, so that every order of sums has the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def matrix(tiles: Array) -> Array:
    """A matrix of tiles of 8 rows of 8 elements, k fastest; k is 16."""
    parts = tiles.reshape(-1, 2, 8, 8).swapaxes(1, 2).reshape(-1, 16)
    return parts.astype(np.float32)


def product(a: Array, b: Array) -> Array:
    """A B, with 128 rows and 16 columns."""
    found: Array = matrix(a) @ matrix(b).T
    return found


def _whole(a: Array, b: Array, out: Array) -> None:
    out[...] = product(a, b).view(np.uint32)


def _half(a: Array, b: Array, out: Array) -> None:
    out[:, :8] = product(a, b)[:, :8].view(np.uint32)


def _chain(a: Array, b: Array, out: Array) -> None:
    out[...] = (4 * product(a, b)).view(np.uint32)


def _copied_in(a: Array, b: Array, out: Array, words: Array) -> None:
    _whole(a, b, out)
    words[:] = matrix(a).astype(np.float16).view(np.uint32).reshape(-1)


def _refilled(a: Array, b: Array, out: Array) -> None:
    out[...] = (product(a, b[:256]) + product(a, b[256:])).view(np.uint32)


def _written(a: Array, b: Array, out: Array) -> None:
    _whole(a, np.ones_like(b), out)


def _two_shapes(a: Array, b: Array, out: Array) -> None:
    """The second product has 64 rows: 16 in each quarter of the lanes."""
    _whole(a, b, out)
    half = product(a[:1024], b).reshape(4, 16, 16)
    out.reshape(4, 32, 16)[:, :16] = half.view(np.uint32)


def _two_issuers(a: Array, b: Array, out: Array) -> None:
    out[...] = (2 * product(a, b)).view(np.uint32)


def _pipeline(a: Array, b: Array, out: Array, steps: Any) -> None:
    pairs = zip(a.reshape(int(steps), -1), b.reshape(int(steps), -1), strict=True)
    out[...] = sum(product(*each) for each in pairs).view(np.uint32)  # type: ignore[union-attr]


def _in_turns(a: Array, b: Array, out: Array, steps: Any) -> None:
    out[...] = product(a, b).view(np.uint32)


def _counted_by_pairs(box: Any, out: Array, tensor: Array) -> None:
    rows = np.zeros((8, 16), np.uint32)
    rows[:] = tensor[4:12, 16:32]
    for start in (0, 128):
        out[start : start + 128] = rows.reshape(-1)


RESULTS: dict[str, Callable[..., None]] = {
    "product": _whole,
    "stored": _whole,
    "freed": _whole,
    "fenced": _whole,
    "copied_twice": _whole,
    "loaded": _half,
    "unset_cells": _half,
    "allocation": _half,
    "chain": _chain,
    "copied_in": _copied_in,
    "refilled_operand": _refilled,
    "written_operand": _written,
    "two_shapes": _two_shapes,
    "two_issuers": _two_issuers,
    "pipeline": _pipeline,
    "sums_in_turns": _in_turns,
    "counted_by_pairs": _counted_by_pairs,
}
