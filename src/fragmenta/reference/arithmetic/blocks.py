"""Cuts a product into blocks that fit the caches, and lays them out for kernels.

The kernels loop over *tiles* (the matrices of a batch), *panels* (eight columns each)
and rows.  A block is a part of each.  Threads work on different blocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from math import prod
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import DTypeLike

from fragmenta.base.arrays.threads import cores, share_out
from fragmenta.base.jit.trace import LANES
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.arithmetic.operands import Bits, Operands

#: The most rows and columns of a block, and products along k that it takes at a
#: time: the parts of A and B then fit in the L2 cache, a panel of B in L1.
SIDE, DEPTH = 256, 256

#: A block has at least this many products: preparing one takes Python some time.
_LEAST = 1 << 20

#: Each thread keeps arrays of at most this many bytes for later use.
_KEPT = 1 << 22


Size = TypeVar("Size")


class Block(NamedTuple):
    """Some tiles of a batch, and some of their rows and columns."""

    tiles: slice
    rows: slice
    columns: slice

    @property
    def shape(self) -> tuple[int, int, int]:
        """The number of tiles, rows and columns."""
        tiles, rows, columns = (part.stop - part.start for part in self)
        return tiles, rows, columns

    def of(self, matrix: Bits) -> Bits:
        """This part of a matrix as large as the result."""
        return matrix[self]

    def of_a(self, matrix: Bits) -> Bits:
        """The block's rows of A, or of a matrix with the rows of A.

        If all tiles share the matrix, the result has one tile.
        """
        return self._tiles(matrix)[:, self.rows]

    def of_b(self, matrix: Bits) -> Bits:
        """The block's columns of B, or of a matrix with the columns of B.

        If all tiles share the matrix, the result has one tile.
        """
        return self._tiles(matrix)[:, :, self.columns]

    def _tiles(self, matrix: Bits) -> Bits:
        return matrix if len(matrix) == 1 else matrix[self.tiles]


PANEL = LANES
"""Columns that kernels compute together: B and D lie in panels of so many."""


class BlockSizes(NamedTuple, Generic[Size]):
    """The sizes of a block, as the kernels take them; in a trace they are values."""

    tiles: Size
    rows: Size
    panels: Size
    instructions: Size
    k: Size
    stored: Size
    a_tile: Size  #: items from one tile of A to the next; 0 if all share one
    b_tile: Size
    offsets_tile: Size
    offsets_row: Size  #: 0 if all rows of A have the same offsets


def sizes_of(
    given: Operands, block: Block, instructions: int, a: Bits, b: Bits, offsets: Bits
) -> BlockSizes[int]:
    """The sizes of a block whose operands lie in these arrays; B is in panels."""
    tiles, rows, columns = block.shape
    model = given.model
    return BlockSizes(
        tiles,
        rows,
        -(-columns // LANES),
        instructions,
        model.k,
        model.stored,
        stride(a),
        stride(b),
        stride(offsets),
        row_stride(offsets),
    )


def whole_of(given: Operands) -> Block:
    """All of a product as one block."""
    return Block(*(slice(0, size) for size in given.shape))


def each_block(given: Operands, work: Callable[[Block], None]) -> None:
    """Call ``work`` for every block of a product, on all cores."""
    if given.products <= _LEAST:
        work(whole_of(given))
        return
    tiles, rows, columns = sizes = _block_sizes(given)
    pairs = zip(given.shape, sizes, strict=True)
    counts = [-(-whole // part) for whole, part in pairs]

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


def _block_sizes(given: Operands) -> tuple[int, int, int]:
    """Tiles, rows and columns of a block: as large as the caches allow.

    They are smaller where there would not be two blocks for every core.
    """
    rows, columns = min(SIDE, given.rows), min(SIDE, given.columns)
    length = given.model.stored * given.instructions
    fit = min(SIDE // columns, DEPTH // min(DEPTH, length)) * (SIDE // rows)
    tiles = min(max(1, fit), given.batches)
    wanted = max(_LEAST, given.products // (2 * cores()))
    while tiles * rows * columns * length > wanted:
        if tiles > 1:
            tiles = (tiles + 1) // 2
        elif rows >= columns and rows > LANES:
            rows = (rows + 1) // 2
        elif columns > LANES:
            columns = -(-columns // (2 * LANES)) * LANES
        else:
            break
    return tiles, rows, columns


def _slice(number: int, size: int, whole: int) -> slice:
    return slice(number * size, min((number + 1) * size, whole))


def to_panels(matrix: Bits) -> Bits:
    """(tiles, k, columns) as (tiles, panels, k, 8); zeros fill the last panel.

    The result may share memory with the matrix.

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
    """The matrix from its panels: the inverse of :func:`to_panels`."""
    tiles, _, rows, _ = panels.shape
    return panels.transpose(0, 2, 1, 3).reshape(tiles, rows, -1)[..., :columns]


def padded(array: Bits, width: int) -> Bits:
    """The array with columns of zeros added up to this width."""
    if array.shape[-1] == width:
        return array
    whole = np.zeros((*array.shape[:-1], width), array.dtype)
    whole[..., : array.shape[-1]] = array
    return whole


_scratch = threading.local()


def scratch(name: str, shape: tuple[int, ...], kind: DTypeLike) -> Bits:
    """An array that this thread uses again and again; its content is arbitrary.

    A new array would take longer: the system clears every page before its first use.

    >>> scratch("A", (2, 3), np.int32).shape
    (2, 3)
    """
    of = np.dtype(kind)
    size = prod(shape) * of.itemsize
    if size > _KEPT:
        return np.empty(shape, of)
    held = getattr(_scratch, name, None)
    if held is None or held.nbytes < size:
        held = np.empty(size, np.uint8)
        setattr(_scratch, name, held)
    return held[:size].view(of).reshape(shape)


def stride(array: Bits) -> int:
    """The number of items from one tile to the next; 0 if all share one tile."""
    return 0 if len(array) == 1 else array[0].size


def row_stride(offsets: Bits) -> int:
    """The number of items from the offsets of one row to those of the next.

    It is 0 if all rows share their offsets.
    """
    return 0 if offsets.shape[1] == 1 else offsets.shape[2]


def row_offsets(given: Operands, block: Block, first: int, count: int) -> Bits:
    """For each product, where its row of B begins in a panel.

    The shape is (tiles, rows, products), or (1, 1, products) if all rows share them.
    """
    model = given.model
    if given.index is None:
        return dense_offsets(model, count)
    some = slice(first * model.stored, (first + count) * model.stored)
    index = block.of_a(given.index)[..., some]
    parted = index.reshape(*index.shape[:2], count, model.stored)
    if model.reordered:
        parted = parted[..., model.order]
    places = np.multiply(parted, LANES, dtype=np.int32, order="C")
    places += np.arange(count, dtype=np.int32)[:, None] * (model.k * LANES)
    return places.reshape(index.shape)


@cache
def dense_offsets(model: Model, count: int) -> Bits:
    """Where the rows of B begin in a panel, if all rows of A share them."""
    order = np.array(model.order, np.int32)
    base = np.arange(count, dtype=np.int32)[:, None] * model.k
    return ((base + order) * np.int32(LANES)).reshape(1, 1, -1)
