"""What the right kernels with tiles that are not full must leave in memory.

They compute with whole numbers, so that every order of sums has the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def _dropped(given: Array, out: Array, count: Any) -> None:
    out[: int(count)] = given


def _shuffled(given: Array, out: Array) -> None:
    out[:] = np.cumsum(given, dtype=np.uint32)


def _scanned(given: Array, out: Array, count: Any) -> None:
    out[: int(count)] = np.cumsum(given, dtype=np.uint32)


def _cancelled(given: Array, out: Array, count: Any) -> None:
    out[1 : int(count) + 1] = np.cumsum(given, dtype=np.uint32)
    out[0] = 0


def _product(a: Array, b: Array) -> Array:
    left, right = (each.reshape(-1, 16).astype(np.float32) for each in (a, b))
    return np.asarray(left @ right.T)


def _some_rows(a: Array, b: Array, out: Array, rows: Any) -> None:
    out[: int(rows)] = _product(a, b)[: int(rows)]


def _some_columns(a: Array, b: Array, out: Array, columns: Any) -> None:
    out[:] = _product(a, b)[:, : int(columns)].max(axis=1)


def _decided(given: Array, out: Array, count: Any) -> None:
    out[:] = np.arange(out.size)
    out[: int(count)][given > 500] = 1


def _branched(given: Array, out: Array, count: Any) -> None:
    out[: int(count)] = np.where(given > 500, 7, 3 * given)


def _indexed(given: Array, out: Array, count: Any) -> None:
    out[: int(count)] = 3 * (given % 32)
    out[int(count) :] = 0


def _halves(given: Array, out: Array) -> None:
    half = given.astype(np.uint16).view(np.float16)
    double = (half + half).view(np.uint16).astype(np.uint32)
    out[:] = 3 * double + given + (given << 16 >> 20)


def _voted(given: Array, out: Array, count: Any) -> None:
    out[:] = sum(1 << int(lane) for lane in np.flatnonzero(given > 500))


def _written_and_returned(out: Array) -> None:
    out[:] = 5 * (95 - np.arange(40)) + 5 * (39 - np.arange(40))


def _returned(out: Array) -> None:
    out[:] = 32 + np.arange(32)


def _replicated(given: Array, out: Array) -> None:
    out[:] = given[:64] + given[64:]


RESULTS: dict[str, Callable[..., None]] = {
    "dropped": _dropped,
    "shuffled": _shuffled,
    "scanned": _scanned,
    "cancelled": _cancelled,
    "some_rows": _some_rows,
    "some_columns": _some_columns,
    "decided": _decided,
    "branched": _branched,
    "indexed": _indexed,
    "halves": _halves,
    "voted": _voted,
    "written_and_returned": _written_and_returned,
    "returned": _returned,
    "replicated": _replicated,
}
