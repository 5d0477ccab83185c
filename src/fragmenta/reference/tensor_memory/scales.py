"""The order of scale factors in memory, and their copies in tensor memory.

cuBLAS, cuDNN and CUTLASS store the scale factors of a matrix in blocks of 128 rows and
4 factors, 512 bytes each.  All blocks of 128 rows follow each other, then come those of
the next 128 rows.  In a block, four bytes are the factors of one row; rows 0, 32, 64
and 96 are adjacent::

    offset = 16 (row % 32) + 4 (row / 32) + factor

So 16 bytes of a block are one lane of tensor memory with 4 columns, and one
``tcgen05.cp.32x128b.warpx4`` with a stride offset of 128 moves a block: block b of the
first factors to columns 4b to 4b + 3, in all four quarters of the lanes.  These columns
are where ``op.scale_a`` and ``op.scale_b`` have their factors::

    operand  of                            copy                   a CTA has the factors
    scale_A  every instruction             32x128b.warpx4         of its own rows
    scale_B  one CTA, or a pair with M 256  32x128b.warpx4        of all N columns
    scale_B  a pair with M 128             64x128b.warpx2::01_23  of all N columns

In the last row, a copy moves two blocks: the first half of N goes to the first two
quarters of the lanes, and the second half to the other two.  Each half has blocks of
its own.  Where N, or the half of it, is not a multiple of 128, the rest of the block is
unused.

The id of a scale in the instruction descriptor is the byte of the cell with the first
factor.  So four instructions with one factor for each row (``scale_vec::1X``) read the
same four columns with ids 0 to 3, two with two factors use ids 0 and 2.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array, check_numbers
from fragmenta.errors import BadCall, ShapeError, UnknownOperand
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.registers.layout import Index, Layout
from fragmenta.reference.registers.tiles import cut_tiles, whole_tiles

Bytes = NDArray[np.uint8]

ROWS, FACTORS = 128, 4
"""What one block has."""
BLOCK = "row = B4 B5 B6 B7 B8 B2 B3  col = B0 B1"
"""The row and the factor of byte B of a block."""


@lru_cache(maxsize=1)
def _orders() -> tuple[Index, Index]:
    """The factor of each byte of a block, and the byte of each factor."""
    layout = Layout.parse(BLOCK, B=ROWS * FACTORS)
    return layout.gather().ravel(), layout.scatter().ravel()


def scale_blocks(matrix: ArrayLike) -> Bytes:
    """Scale factors in the order of cuBLAS: (…, row blocks, factor blocks, 512) bytes.

    ``matrix`` is (…, rows, factors), with a byte for each factor: raw bits or a type of
    ml_dtypes.  For B, the rows are its columns.  Missing rows and factors are zeros.

    >>> import numpy as np
    >>> matrix = np.arange(128 * 4).reshape(128, 4).astype(np.uint8)
    >>> blocks = scale_blocks(matrix)
    >>> blocks.shape, blocks[0, 0, :8].tolist(), matrix[32].tolist()
    ((1, 1, 512), [0, 1, 2, 3, 128, 129, 130, 131], [128, 129, 130, 131])
    >>> scale_blocks(np.ones((200, 6), np.uint8)).shape
    (2, 2, 512)
    """
    given = as_array(matrix)
    if given.dtype.itemsize != 1 or given.ndim < 2:
        raise ShapeError(
            "scale factors are (…, rows, factors) of one byte each; given "
            f"{given.dtype} of shape {given.shape}"
        )
    bits = np.ascontiguousarray(given).view(np.uint8)
    whole = whole_tiles(bits, (ROWS, FACTORS), "scale", pad=True)
    batch, (rows, factors) = whole.shape[:-2], whole.shape[-2:]
    tiles = whole.reshape(*batch, rows // ROWS, ROWS, factors // FACTORS, FACTORS)
    flat = tiles.swapaxes(-3, -2).reshape(
        *batch, rows // ROWS, factors // FACTORS, ROWS * FACTORS
    )
    return flat.take(_orders()[0], axis=-1)


def scale_matrix(blocks: ArrayLike, rows: int, factors: int) -> Bytes:
    """The scale factors of blocks, as raw bits: the inverse of :func:`scale_blocks`.

    ``blocks`` is (…, bytes) or (…, row blocks, factor blocks, 512).

    >>> import numpy as np
    >>> matrix = np.arange(200 * 6).reshape(200, 6).astype(np.uint8)
    >>> blocks = scale_blocks(matrix)
    >>> bool((scale_matrix(blocks, 200, 6) == matrix).all())
    True
    >>> bool((scale_matrix(blocks.reshape(-1), 200, 6) == matrix).all())
    True
    """
    check_numbers(rows=rows, factors=factors)
    if rows < 1 or factors < 1:
        raise ShapeError(
            f"rows and factors must be 1 or more; given {rows} and {factors}"
        )
    down, along = -(-rows // ROWS), -(-factors // FACTORS)
    given, size = as_array(blocks), ROWS * FACTORS
    tail = (down, along, size)
    if given.dtype != np.uint8 or (
        given.shape[-3:] != tail and given.shape[-1:] != (down * along * size,)
    ):
        raise ShapeError(
            f"the factors of {rows} rows, {factors} each, are {down * along} blocks of "
            f"{size} bytes, uint8; given {given.dtype} of shape {given.shape}"
        )
    batch = given.shape[:-3] if given.shape[-3:] == tail else given.shape[:-1]
    tiles = given.reshape(*batch, *tail).take(_orders()[1], axis=-1)
    tiles = tiles.reshape(*batch, down, along, ROWS, FACTORS).swapaxes(-3, -2)
    whole = tiles.reshape(*batch, down * ROWS, along * FACTORS)
    return cut_tiles(whole, (ROWS, FACTORS), (rows, factors))


def scale_copy(op: Instruction | str, operand: str) -> Instruction:
    """The ``tcgen05.cp`` that moves blocks to where an instruction has its scales.

    >>> import fragmenta as fm
    >>> op = fm.tcgen05("m128n128k32", kind="mxf8f6f4", a="e4m3", cta_group=2)
    >>> print(scale_copy(op, "scale_A"))
    tcgen05.cp.cta_group::2.32x128b.warpx4
    >>> print(scale_copy(op, "scale_B"))
    tcgen05.cp.cta_group::2.64x128b.warpx2::01_23
    """
    found = instruction(op)
    if not isinstance(operand, str) or operand not in ("scale_A", "scale_B"):
        raise UnknownOperand(f"scales are scale_A and scale_B; given {operand!r}")
    if operand not in found.fragments or not found.tensor_memory:
        raise BadCall(f"{found} has no scales in tensor memory")
    halves = "T6" in str(found.fragments[operand].layout).partition("|")[0]
    shape = "64x128b.warpx2::01_23" if halves else "32x128b.warpx4"
    return instruction(f"tcgen05.cp.cta_group::{found.cta_group}.{shape}")
