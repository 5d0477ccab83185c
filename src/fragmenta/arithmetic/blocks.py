"""How is a product cut into blocks that fit the caches, and laid out for kernels?

The kernels walk through *tiles* (matrices of a batch), *panels* of eight columns and
rows.  A block is some of each; blocks are what threads share out among them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np

from fragmenta.arithmetic.models import Model
from fragmenta.arithmetic.operands import Bits, Operands
from fragmenta.arrays.threads import share_out
from fragmenta.machine.trace import LANES

#: Rows, columns and products along k of one block: its parts fit in the L2 cache.
ROWS, COLUMNS, DEPTH = 128, 128, 256


class Block(NamedTuple):
    """Some tiles of a batch, and some of their rows and columns."""

    tiles: slice
    rows: slice
    columns: slice

    @property
    def shape(self) -> tuple[int, int, int]:
        """How many tiles, rows and columns."""
        tiles, rows, columns = (part.stop - part.start for part in self)
        return tiles, rows, columns

    def of(self, matrix: Bits) -> Bits:
        """This part of a matrix as large as the result."""
        return matrix[self]

    def of_a(self, matrix: Bits) -> Bits:
        """The rows of a matrix that goes along A; one tile if all share it."""
        return self._tiles(matrix)[:, self.rows]

    def of_b(self, matrix: Bits) -> Bits:
        """The columns of a matrix that goes along B; one tile if all share it."""
        return self._tiles(matrix)[:, :, self.columns]

    def _tiles(self, matrix: Bits) -> Bits:
        return matrix if len(matrix) == 1 else matrix[self.tiles]


def each_block(given: Operands, work: Callable[[Block], None]) -> None:
    """Do all blocks of a product, on all cores."""
    rows, columns = min(ROWS, given.rows), min(COLUMNS, given.columns)
    depth = min(DEPTH, given.model.stored * given.instructions)
    # Small matrices are taken several at a time.
    most = min(COLUMNS // columns, DEPTH // depth) * (ROWS // rows)
    tiles = min(max(1, most), given.batches)
    counts = [
        -(-whole // part)
        for whole, part in (
            (given.batches, tiles),
            (given.rows, rows),
            (given.columns, columns),
        )
    ]

    def run(first: int, last: int) -> None:
        for number in range(first, last):
            rest, column = divmod(number, counts[2])
            tile, row = divmod(rest, counts[1])
            work(
                Block(
                    _slice(tile, tiles, given.batches),
                    _slice(row, rows, given.rows),
                    _slice(column, columns, given.columns),
                )
            )

    pieces = counts[0] * counts[1] * counts[2]
    share_out(run, pieces, given.products, given.progress)


def _slice(number: int, size: int, whole: int) -> slice:
    return slice(number * size, min((number + 1) * size, whole))


def to_panels(matrix: Bits) -> Bits:
    """(tiles, k, columns) as (tiles, panels, k, 8), with zeros up to the last eight.

    It may be the same memory.

    >>> to_panels(np.arange(20).reshape(1, 2, 10))[0, 1]
    array([[ 8,  9,  0,  0,  0,  0,  0,  0],
           [18, 19,  0,  0,  0,  0,  0,  0]])
    """
    tiles, k, columns = matrix.shape
    if columns == LANES:
        return np.ascontiguousarray(matrix).reshape(tiles, 1, k, LANES)
    matrix = padded(matrix, -(-columns // LANES) * LANES)
    parted = matrix.reshape(tiles, k, -1, LANES)
    return np.ascontiguousarray(parted.transpose(0, 2, 1, 3))


def from_panels(panels: Bits, columns: int) -> Bits:
    """What :func:`to_panels` made a panel of, as a matrix again."""
    tiles, _, rows, _ = panels.shape
    return panels.transpose(0, 2, 1, 3).reshape(tiles, rows, -1)[..., :columns]


def padded(array: Bits, width: int) -> Bits:
    """The array with columns of zeros up to a width."""
    if array.shape[-1] == width:
        return array
    whole = np.zeros((*array.shape[:-1], width), array.dtype)
    whole[..., : array.shape[-1]] = array
    return whole


def stride(array: Bits) -> int:
    """Items from one tile to the next; none if there is one for all."""
    return 0 if len(array) == 1 else array[0].size


def row_stride(offsets: Bits) -> int:
    """Items from the offsets of one row to those of the next, as for :func:`stride`."""
    return 0 if offsets.shape[1] == 1 else offsets.shape[2]


def row_offsets(given: Operands, block: Block, first: int, count: int) -> Bits:
    """Where the row of B of each product begins in a panel.

    Of shape (tiles, rows, products), or (1, 1, products) if all rows share them.
    """
    model = given.model
    if given.index is None:
        return _dense_offsets(model, count)
    some = slice(first * model.stored, (first + count) * model.stored)
    index = block.of_a(given.index)[..., some]
    parted = index.reshape(*index.shape[:2], count, model.stored)
    if model.reordered:
        parted = parted[..., model.order]
    places = np.multiply(parted, LANES, dtype=np.int32, order="C")
    places += np.arange(count, dtype=np.int32)[:, None] * (model.k * LANES)
    return places.reshape(index.shape)


@cache
def _dense_offsets(model: Model, count: int) -> Bits:
    order = np.array(model.order, np.int32)
    base = np.arange(count, dtype=np.int32)[:, None] * model.k
    return ((base + order) * np.int32(LANES)).reshape(1, 1, -1)
