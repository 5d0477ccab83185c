"""The product in float64.

Products of types up to 16 bits are exact in float64, and their sums lose only the last
bits of a float64, far below what any accumulator keeps.  Sums of f64 products are
computed in twice that precision.
"""

from __future__ import annotations

from math import fsum

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.reference.isa.instruction import Instruction

Wide = NDArray[np.float64]

_SPLITTER = 2.0**27 + 1  # splits 53 bits into two halves of 26


def values(op: Instruction, operand: str, matrix: Array) -> Wide:
    """The values of A, B or C; those of tf32 with the bits that hardware ignores."""
    of = op.types.get(operand, op.types["d"])
    if of.name == "tf32":
        return matrix.astype(np.float64)
    return of.to_float64(of.encode(matrix))


def scaled_values(
    op: Instruction, operand: str, matrix: Array, scale: Array | None
) -> Wide:
    """The values of A or B, each multiplied by the scale of its block of k."""
    found = values(op, operand, matrix)
    if scale is None:
        return found
    axis = 1 if operand == "a" else 0
    of = op.scale_a.dtype
    each = of.to_float64(of.encode(scale)).repeat(op.shape.k // op.scale_vec, axis)
    kept = each[:, : found.shape[1]] if axis else each[: len(found)]
    scaled: Wide = found * kept
    return scaled


def product(op: Instruction, a: Wide, b: Wide) -> Wide:
    """A B, as the instruction combines the two: it may count bits that differ.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k256", a="b1", bitop="xor")
    >>> product(op, np.array([[1.0, 1.0, 0.0]]), np.array([[1.0], [0.0], [0.0]]))
    array([[1.]])
    """
    with np.errstate(all="ignore"):
        found: Wide = a @ b
    if op.values.get("bitop", "").startswith("xor"):
        # Ones on one side only: all ones, less twice those in common.
        found = a.sum(axis=1, keepdims=True) + b.sum(axis=0) - 2 * found
    return found


def twice_as_precise(a: Wide, b: Wide) -> tuple[Wide, Wide]:
    """A B of finite values as the sum of two float64: the nearest one and the rest.

    >>> high, low = twice_as_precise(np.array([[1e16, 1.0]]), np.array([[1.0], [1.0]]))
    >>> float(high[0, 0]), float(low[0, 0])
    (1e+16, 1.0)
    """
    high = np.empty((len(a), b.shape[1]))
    low = np.empty_like(high)
    for row, left in enumerate(a):
        near = left[:, None] * b
        (x, rest_x), (y, rest_y) = _halves(left[:, None]), _halves(b)
        rest = ((x * y - near) + x * rest_y + rest_x * y) + rest_x * rest_y
        columns = np.concatenate([near, rest]).T.tolist()
        for col, terms in enumerate(columns):
            high[row, col] = total = fsum(terms)
            low[row, col] = fsum([*terms, -total])
    return high, low


def _halves(x: Wide) -> tuple[Wide, Wide]:
    """Two numbers of 26 bits that add up to one of 53."""
    upper = x * _SPLITTER
    upper = upper - (upper - x)
    return upper, x - upper
