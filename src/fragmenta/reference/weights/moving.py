"""Reorders large weights, block by block.

The highest digits of an offset usually count tiles of the matrix.  So a weight is cut
into blocks that are small enough for the cache, and all blocks have the same index.
"""

from __future__ import annotations

from functools import cached_property
from math import prod
from typing import NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import ValueRangeError
from fragmenta.reference.registers.fragment import reordered
from fragmenta.reference.registers.layout import Digit, Index, Layout
from fragmenta.reference.registers.words import pack_words, unpack_words
from fragmenta.reference.weights.orders import WORD

Words = NDArray[np.uint32]

_BLOCK = 1 << 16
"""The most elements of a block, if the order has blocks at all."""


class Blocks:
    """The blocks of a matrix, in the order of their offsets.

    >>> order = Layout.parse("offset = n0 k0 n1 k1", k=4, n=4)
    >>> blocks = Blocks(order, ("k", "n"))
    >>> matrix = np.arange(16).reshape(4, 4)
    >>> blocks.gather(matrix)
    array([ 0,  1,  4,  5,  2,  3,  6,  7,  8,  9, 12, 13, 10, 11, 14, 15])
    >>> bool((blocks.scatter(blocks.gather(matrix)) == matrix).all())
    True
    """

    def __init__(self, order: Layout, names: tuple[str, str], most: int = _BLOCK):
        sizes = dict(order.axes)
        self.names, self.shape = names, tuple(sizes[name] for name in names)
        digits = list(order.coordinates[0][1])
        self.outer: list[Digit] = []
        """Digits that count blocks, the outermost first."""
        while digits and prod(sizes[name] for name in names) > most:
            last = digits[-1]
            if last.stride * last.size != sizes[last.axis]:
                break
            sizes[last.axis] = last.stride
            self.outer.append(digits.pop())
        self.block = tuple(sizes[name] for name in names)
        axes = tuple(zip(names, self.block, strict=True))
        self._inner = Layout((("offset", tuple(digits)),), axes)

    @cached_property
    def _gather(self) -> Index:
        return self._inner.inverse().gather(self.names)

    @cached_property
    def _scatter(self) -> Index:
        return self._inner.gather().reshape(-1)

    @cached_property
    def _cut(self) -> _Cut:
        """How the rows and the columns are cut, and the order of the parts."""
        sizes: list[int] = []
        where: dict[Digit, int] = {}
        kept = []
        for name, size in zip(self.names, self.block, strict=True):
            for digit in self.outer:
                if digit.axis == name:
                    where[digit] = len(sizes)
                    sizes.append(digit.size)
            kept.append(len(sizes))
            sizes.append(size)
        return _Cut(sizes, [*(where[digit] for digit in self.outer), *kept])

    def gather(self, matrix: Array) -> Array:
        """The elements of (…, rows, columns) in the order of their offsets."""
        batch = matrix.shape[:-2]
        cut, count = self._cut, len(batch)
        parts = matrix.reshape(*batch, *cut.sizes)
        axes = (*range(count), *(count + axis for axis in cut.order))
        moved = np.ascontiguousarray(parts.transpose(axes))
        blocks = moved.reshape(*batch, -1, prod(self.block))
        return reordered(blocks, 1, self._gather).reshape(*batch, -1)

    def scatter(self, elements: Array) -> Array:
        """The matrix again: the inverse of :meth:`gather`."""
        batch = elements.shape[:-1]
        cut, count = self._cut, len(batch)
        blocks = elements.reshape(*batch, -1, prod(self.block))
        parts = reordered(blocks, 1, self._scatter)
        parts = parts.reshape(*batch, *(cut.sizes[axis] for axis in cut.order))
        back = [count + int(axis) for axis in np.argsort(cut.order)]
        matrix = parts.transpose((*range(count), *back))
        return np.ascontiguousarray(matrix).reshape(*batch, *self.shape)


class _Cut(NamedTuple):
    sizes: list[int]
    """The sizes of all parts, as they lie in the matrix."""
    order: list[int]
    """The parts in the order of the offsets."""


# ── elements and words ──────────────────────────────────────────────────────


def codes_of(given: Array, bits: int) -> Array:
    """The raw bits of each element, as unsigned numbers."""
    of, highest = given.dtype, (1 << bits) - 1
    ours = of.type.__module__ == "ml_dtypes"
    if ours and "int" in of.name:
        given = given.astype(np.int8)
    elif of.kind == "f" or ours:
        width = _float_bits(of) if ours else of.itemsize * 8
        if width != bits:
            raise ValueRangeError(
                f"a weight of {bits} bits is given as codes, whole numbers from 0 to "
                f"{highest}; given {of}"
            )
        return np.ascontiguousarray(given).view(f"u{of.itemsize}")
    elif of.kind not in "biu":
        raise ValueRangeError(f"a weight holds whole numbers; given {of}")
    low, high = (int(given.min()), int(given.max())) if given.size else (0, 0)
    if low < 0 or high > highest:
        wrong = (given < 0) | (given > highest)
        index = [int(i) for i in np.unravel_index(int(wrong.argmax()), given.shape)]
        hint = f"; add the zero point, such as {highest // 2 + 1}" if low < 0 else ""
        raise ValueRangeError(
            f"codes of {bits} bits are 0 to {highest}; given {given[tuple(index)]} at "
            f"{index}{hint}"
        )
    return given.astype(f"u{max(8, bits) // 8}", copy=False)


def _float_bits(of: np.dtype[np.generic]) -> int:
    return int(ml_dtypes.finfo(of).bits)  # type: ignore[no-untyped-call]


def packed(codes: Array, bits: int) -> Words:
    """Words of codes along the last axis, the lowest bits first."""
    if bits == 2:
        pairs = codes[..., 0::2] | codes[..., 1::2] << 2
        return pack_words(pairs, 4, WORD)
    return pack_words(codes, bits, WORD)


def unpacked(words: Words, bits: int) -> Array:
    """The codes of words: the inverse of :func:`packed`."""
    if bits == 2:
        pairs = unpack_words(words, 4)
        both = np.stack([pairs & 3, pairs >> 2], axis=-1)
        return both.reshape(*pairs.shape[:-1], -1)
    return unpack_words(words, bits)
