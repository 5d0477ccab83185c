"""What right kernels of ``layouts.cu``, ``lifetimes.cu`` and others must leave in memory.

They compute with small whole numbers, so that every order of sums has the same result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.reference.shared.tensor_map import TensorMap

Array = NDArray[Any]


def _rows(_: Any, __: Any, a: Array, b: Array, out: Array) -> None:
    out[:] = a.astype(np.float32) @ b.astype(np.float32).T


def _plain_rows(a: Array, b: Array, out: Array) -> None:
    out[:] = a.astype(np.float32) @ b.astype(np.float32).T


def _heads(_: Any, __: Any, a: Array, b: Array, out: Array) -> None:
    """Two heads of A, with the first half of B."""
    of_a, of_b = a.astype(np.float32), b.astype(np.float32)[:, :32].T
    out[:] = np.concatenate([of_a[:, :32] @ of_b, of_a[:, 32:] @ of_b])


def _packed(_: Any, a: Array, b: Array, out: Array) -> None:
    """Units of 16 bytes are swizzled in each row of A."""
    units, rows = a.reshape(64, 8, 8), np.arange(64)[:, None]
    plain = units[rows, np.arange(8) ^ rows % 8].reshape(64, 64)
    out[:] = plain.astype(np.float32) @ b.astype(np.float32).T


def _columns(_: Any, __: Any, a: Array, b: Array, out: Array) -> None:
    out[:] = a.astype(np.float32).T @ b.astype(np.float32)


def _matrices(_: Any, tensor: Array, out: Array) -> None:
    pairs = np.ascontiguousarray(tensor[:, 24:32]).view(np.uint32)
    out[:] = pairs.reshape(4, 32)


def _copied(given: Array, out: Array) -> None:
    out[:] = given[:32]


def _boxes(of: dict[str, Any], maps: Array, tensor: Array, out: Array) -> None:
    maps[:] = np.frombuffer(TensorMap.of(tensor, of["box"]).encode(), np.uint32)
    out[:] = np.stack([tensor[row : row + 8, 8:24] for row in (0, 4)]).reshape(-1)


def _core(tiles: Array) -> Array:
    """A matrix of matrices of 8 rows of 8 elements, k fastest; k is 16."""
    return tiles.reshape(-1, 2, 8, 8).swapaxes(1, 2).reshape(-1, 16).astype(np.float32)


def _few(a: Array, b: Array, out: Array) -> None:
    out[:, :32] = (_core(a)[:64] @ _core(b).T).reshape(2, 32, 8)


def _few_again(a: Array, b: Array, out: Array) -> None:
    out[:32] = _core(a)[:32] @ _core(b).T


def _tensor_few(a: Array, b: Array, out: Array) -> None:
    out[:32] = (_core(a)[:32] @ _core(b).T).view(np.uint32)


RESULTS: dict[str, Callable[..., None]] = {
    "k_major": _rows,
    "k_steps": _rows,
    "stored_k_steps": _plain_rows,
    "two_sums": _heads,
    "prepacked": _packed,
    "mn_major": _columns,
    "plain_boxes": _rows,
    "rearranged": _rows,
    "matrix_rows": _matrices,
    "next_to_barrier": _copied,
    "stored_map": _boxes,
    "few_rows": _few,
    "few_rows_again": _few_again,
    "tensor_few_rows": _tensor_few,
    "tensor_boxes": _rows,
}
