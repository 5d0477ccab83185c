"""The bitmasks and indices in which checkpoints store a sparse weight.

The format sparse-24-bitmask of compressed-tensors has the stored values, out x in / 2,
and one bit for each column: 1 where a value is stored.  Eight columns share a byte, the
first one lowest.

>>> import fragmenta as fm
>>> op = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
>>> sp = fm.sparse.compress(op, [[0, 0, 3, 4, 5, 0, 0, 8]])
>>> [f"{byte:08b}" for byte in to_bitmask(sp)[0]]
['10011100']
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array, check_numbers
from fragmenta.errors import BadMetadata, ShapeError, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.granularity import Codes, Granularity
from fragmenta.reference.sparse.compression import (
    Compressed,
    require_compressed,
    sparse,
)

_BYTE = 8


def to_bitmask(sp: Compressed) -> NDArray[np.uint8]:
    """One bit for each column, 1 where a value is stored; (…, M, ceil(K / 8)).

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> to_bitmask(fm.sparse.compress(op, [[0, 1, 2, 0]]))
    array([[6]], dtype=uint8)
    """
    require_compressed(sp)
    granularity = sp.granularity
    if sp.width % granularity.chunk:
        raise ShapeError(
            f"a bitmask of {granularity} takes multiples of {granularity.chunk} "
            f"columns; given {sp.width}"
        )
    granularity.check(sp.indices, ordered=True)
    masks = _masks(granularity)[sp.indices]
    per = _BYTE // granularity.chunk
    *rows, chunks = masks.shape
    whole = np.zeros((*rows, -(-chunks // per) * per), np.uint8)
    whole[..., :chunks] = masks
    shifts = np.arange(per, dtype=np.uint8) * np.uint8(granularity.chunk)
    parts = whole.reshape(*rows, whole.shape[-1] // per, per) << shifts
    found: NDArray[np.uint8] = np.bitwise_or.reduce(parts, axis=-1)
    return found


def from_bitmask(
    op: Instruction | str, values: ArrayLike, bitmask: ArrayLike, width: int = -1
) -> Compressed:
    """A compressed matrix from stored values and a bit for each column.

    ``width`` is the number of columns; without it, all bits count.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> sp = from_bitmask(op, np.float16([[1, 2]]), np.uint8([[0b0110]]), width=4)
    >>> sp.columns()
    array([[1, 2]], dtype=int32)
    >>> from_bitmask(op, np.float16([[1, 2, 3]]), np.uint8([[0b0111]]), width=4)
    Traceback (most recent call last):
    fragmenta.errors.BadMetadata: row 0, columns 0 to 3: the bitmask keeps 0, 1 and 2; \
2:4 stores 2 of 4; 1 of 1 chunks are wrong
    """
    op, granularity = sparse(op)
    found = as_array(bitmask)
    if found.dtype != np.uint8 or found.ndim < 2:
        raise ShapeError(
            f"a bitmask is a matrix of uint8; given {found.dtype} of shape "
            f"{found.shape}"
        )
    check_numbers(width=width)
    columns = _BYTE * found.shape[-1] if width == -1 else width
    if columns % granularity.chunk or -(-columns // _BYTE) != found.shape[-1]:
        raise ShapeError(
            f"a bitmask of {granularity} with {found.shape[-1]} bytes in a row has at "
            f"most {_BYTE * found.shape[-1]} columns, a multiple of "
            f"{granularity.chunk}; given {columns}"
        )
    codes = _codes(found, granularity)
    _check_masks(found, codes, granularity, columns)
    codes = np.ascontiguousarray(codes[..., : columns // granularity.chunk])
    of = op.types["a"]
    return Compressed(of.decode(of.encode(as_array(values))), codes, granularity)


def _masks(granularity: Granularity) -> NDArray[np.uint8]:
    """The bits of a chunk by its code; 0 for codes that are not ordered."""
    table = np.zeros(16, np.uint8)
    for code in granularity.codes():
        table[code] = sum(1 << place for place in granularity.positions(code))
    return table


def _codes(bitmask: NDArray[np.uint8], granularity: Granularity) -> Codes:
    """The codes of all chunks of a bitmask; 0, which is illegal, if there is none."""
    of_chunk = np.zeros(1 << granularity.chunk, np.uint8)
    masks = _masks(granularity)
    for code in granularity.codes():
        of_chunk[masks[code]] = code
    firsts = np.arange(0, _BYTE, granularity.chunk)
    every = np.arange(1 << _BYTE)[:, None] >> firsts & len(of_chunk) - 1
    # All codes of a byte are one word: looking it up is four times as fast.
    words = of_chunk[every].view(f"u{len(firsts)}")[:, 0]
    codes: Codes = words[bitmask].view(np.uint8)
    return codes


def _check_masks(
    bitmask: NDArray[np.uint8], codes: Codes, granularity: Granularity, columns: int
) -> None:
    chunk, chunks = granularity.chunk, columns // granularity.chunk
    wrong = codes[..., :chunks] == 0
    if wrong.any():
        *row, at = (int(i) for i in np.unravel_index(wrong.argmax(), wrong.shape))
        byte, first = int(bitmask[(*row, at * chunk // _BYTE)]), at * chunk
        kept = [first + i for i in range(chunk) if byte >> (first + i) % _BYTE & 1]
        where = (
            f"row {', '.join(map(str, row))}, columns {first} to {first + chunk - 1}"
        )
        pairs = " in pairs" if granularity.group > 1 else ""
        raise BadMetadata(
            f"{where}: the bitmask keeps {one_of(kept, 'and') or 'none'}; "
            f"{granularity} stores {granularity.kept} of {chunk}{pairs}; "
            f"{int(wrong.sum()):,} of {wrong.size:,} chunks are wrong"
        )
    if columns % _BYTE and (bitmask[..., -1] >> columns % _BYTE).any():
        raise BadMetadata(
            f"the matrix has {columns} columns, and the bitmask has bits beyond them"
        )
