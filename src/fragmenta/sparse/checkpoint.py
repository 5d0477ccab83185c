"""How do checkpoints store a sparse weight?

Two formats of compressed-tensors keep 2:4 weights of layers, out x in::

    sparse-24-bitmask   the stored values, and one bit for each column: 1 where a value
                        is stored.  Eight columns share a byte, the first one lowest.
    marlin-24           integers of 4 or 8 bits, their scales, and the codes, each
                        permuted as the Marlin 2:4 kernel reads them.

Axis W is a word of 32 bits in a tile of 64 outputs and 16 stored inputs, E the integer
in the word, S the place of a scale among 64.  Tiles of 64 outputs follow one another,
and then the next 16 stored inputs.

>>> import fragmenta as fm
>>> op = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
>>> sp = fm.compress([[0, 0, 3, 4, 5, 0, 0, 8]], op)
>>> [f"{byte:08b}" for byte in to_bitmask(sp)[0]]
['10011100']
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.arrays.checks import Array, as_array, check_numbers
from fragmenta.errors import BadMetadata, ShapeError, one_of
from fragmenta.isa.instruction import Instruction
from fragmenta.registers.granularity import Codes, Granularity
from fragmenta.registers.layout import Layout
from fragmenta.registers.words import unpack_words
from fragmenta.sparse.compress import Compressed, require_compressed, sparse
from fragmenta.sparse.exchange import from_sparse_marlin

# ── a bit for each column ───────────────────────────────────────────────────

_BYTE = 8


def to_bitmask(sp: Compressed) -> NDArray[np.uint8]:
    """One bit for each column, 1 where a value is stored; (…, M, ceil(K / 8)).

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> to_bitmask(fm.compress([[0, 1, 2, 0]], op))
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
    parts = whole.reshape(*rows, -1, per) << shifts
    found: NDArray[np.uint8] = np.bitwise_or.reduce(parts, axis=-1)
    return found


def from_bitmask(
    values: ArrayLike, bitmask: ArrayLike, op: Instruction | str, width: int = -1
) -> Compressed:
    """A compressed matrix from stored values and a bit for each column.

    ``width`` is the number of columns; without it, all bits count.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> sp = from_bitmask(np.float16([[1, 2]]), np.uint8([[0b0110]]), op, width=4)
    >>> sp.columns()
    array([[1, 2]], dtype=int32)
    >>> from_bitmask(np.float16([[1, 2, 3]]), np.uint8([[0b0111]]), op, width=4)
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
    table: Codes = of_chunk[every]
    return table[bitmask].reshape(*bitmask.shape[:-1], -1)


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


# ── Marlin ──────────────────────────────────────────────────────────────────

# A lane's four mma.sp have adjacent words.  Bits of an integer: two rows of a fragment,
# then the two outputs that differ by 4, as the kernel widens them in pairs.
VALUES = {
    4: "out = W0 W1 E1 W4 W5 W6  in = E2 W2 W3 E0",
    8: "out = W1 W2 W0 W5 W6 W7  in = E1 W3 W4 E0",
}
"""Where a tile has its integers, by their bits."""
SCALES = "out = S1 S2 S0 S3 S4 S5"
"""Where 64 scales of a group are; those of whole rows are in order."""
GROUP = 128
"""Columns that share a scale, if a row has several."""
_OUT, _IN = 64, 16
_INTEGERS = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"


class Marlin24(NamedTuple):
    """A quantised sparse weight: value = integer x scale.

    >>> import fragmenta as fm
    >>> parts = (np.zeros((1, 128), np.int32), np.ones((1, 64), np.float16),
    ...          np.full((1, 128), 0x4444, np.int16))
    >>> from_marlin_24(*parts).scales.shape
    (64, 1)
    """

    compressed: Compressed
    """The integers, int8, and their codes."""
    scales: Array
    """(out, groups): for each row, or for each 128 columns of it."""
    bits: int
    """4 or 8."""


def from_marlin_24(
    weight_packed: ArrayLike, scale_packed: ArrayLike, meta: ArrayLike
) -> Marlin24:
    """The integers, codes and scales of a weight in the format marlin-24.

    ``weight_packed`` is int32 of (in / 32, out * bits / 2), ``scale_packed`` float16 of
    (groups, out), and ``meta`` int16 of (in / 32, 2 * out).

    >>> words = np.full((1, 128), 0x99999999, np.uint32).view(np.int32)
    >>> meta = np.full((1, 128), 0x4444, np.int16)
    >>> found = from_marlin_24(words, np.ones((1, 64), np.float16), meta)
    >>> found.compressed, found.compressed.values.max(), found.bits
    (<Compressed 64x32 int8, 2:4>, np.int8(1), 4)
    """
    words, packed, codes = map(as_array, (weight_packed, scale_packed, meta))
    bits, rows, columns = _marlin_sizes(words, packed, codes)
    tile = Layout.parse(VALUES[bits], W=_OUT * _IN * bits // 32, E=32 // bits)
    integers = unpack_words(words.view(np.uint32), bits).reshape(
        columns // 2 // _IN, rows // _OUT, _OUT * _IN
    )
    parted = integers[..., tile.scatter()].transpose(1, 2, 0, 3)
    # Stored with an offset, so that they are not negative; here a byte wraps around.
    values = (parted.reshape(rows, -1) - np.uint8(1 << bits - 1)).view(np.int8)
    scales = packed
    if len(packed) > 1:
        order = Layout.parse(SCALES, S=_OUT).scatter()
        scales = packed.reshape(len(packed), -1, _OUT)[..., order].reshape(packed.shape)
    stored = from_sparse_marlin(values, codes, _INTEGERS)
    return Marlin24(stored, np.ascontiguousarray(scales.T), bits)


def _marlin_sizes(words: Array, scales: Array, meta: Array) -> tuple[int, int, int]:
    """Bits of an integer, rows and columns, if the three arrays fit together."""
    for name, each, kind in (
        ("weight_packed", words, np.dtype(np.int32)),
        ("scale_packed", scales, np.dtype(np.float16)),
        ("meta", meta, np.dtype(np.int16)),
    ):
        if each.dtype != kind or each.ndim != 2 or not each.size:
            raise ShapeError(
                f"{name} of marlin-24 is a matrix of {kind}; given {each.dtype} of "
                f"shape {each.shape}"
            )
    (groups, rows), columns = scales.shape, 32 * len(words)
    bits = next((b for b in VALUES if 2 * words.shape[1] == b * rows), 0)
    if not bits or rows % _OUT or meta.shape != (columns // 32, 2 * rows):
        raise ShapeError(
            f"marlin-24 has {one_of(VALUES)} bits, and a multiple of {_OUT} outputs: "
            f"weight_packed (in / 32, out * bits / 2), scale_packed (groups, out), "
            f"meta (in / 32, 2 * out); given {words.shape}, {scales.shape} and "
            f"{meta.shape}"
        )
    if groups != 1 and groups * GROUP != columns:
        raise ShapeError(
            f"marlin-24 has a scale for each row, or for each {GROUP} columns; given "
            f"{groups} for {columns} columns"
        )
    if groups == 2:  # the writer and the kernel do not agree in which order they are
        raise ShapeError(
            f"the order of the scales of {columns} columns in groups of {GROUP} is not "
            f"defined: marlin-24 must have one group, or more than two"
        )
    return bits, rows, columns
