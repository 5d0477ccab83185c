"""Pruning: makes a matrix sparse by dropping its smallest magnitudes.

A sparse instruction stores only some elements of each chunk of a row of A.  Pruning
keeps those with the largest magnitudes and sets the others to zero.  The result can
be compressed without loss.

>>> import fragmenta as fm
>>> op = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
>>> prune(op, [[1, -2, 3, -4, 5, 5, 5, 5]])
array([[ 0,  0,  3, -4,  5,  5,  0,  0]])
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.base.arrays.threads import in_blocks
from fragmenta.base.progress import Progress
from fragmenta.errors import ShapeError, ValueRangeError
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.dtype import DTYPES, DType
from fragmenta.reference.registers.granularity import Granularity, locate
from fragmenta.reference.sparse import loops
from fragmenta.reference.sparse.compression import sparse, whole_chunks
from fragmenta.reference.sparse.loops import places_of, rows_of

# The element type that a NumPy type stores; float32 holds both f32 and tf32.
_STORED = {
    of.storage: of
    for of in DTYPES.values()
    if of.name in ("s4", "u4") or (of.kind == "float" and of.name != "tf32")
}

# One-byte types whose magnitudes are not small integers.
_WIDE = {of.storage for of in _STORED.values() if of.bits in (6, 8)}


def prune(
    op: Instruction | str,
    A: ArrayLike,
    *,
    scores: ArrayLike | None = None,
    pad: bool = False,
    progress: Progress | None = None,
) -> Array:
    """A with the largest magnitudes of each chunk; all other elements are zero.

    Of equal magnitudes, the one in the lower column is kept.  If elements are
    stored in pairs (4-bit types), the pairs with the greatest sums of magnitudes are
    kept.  With ``scores``, a matrix of the shape of A, the elements with the greatest
    scores are kept instead.

    NaN counts as greater than infinity, and all NaN as equal, so that NaN is kept
    before numbers.  A NaN among the scores is refused.

    The result has the dtype of A, which may be any real type, not only the one that
    the instruction reads.  The number of columns must be a multiple of the chunk;
    with ``pad``, zeros are added and the result is wider than A.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> prune(op, [[0.5, -4.0, 3.0, -3.0]])
    array([[ 0., -4.,  3.,  0.]])
    >>> prune(op, [[0.5, -4.0, 3.0, -3.0]], scores=[[4, 3, 2, 1]])
    array([[ 0.5, -4. ,  0. ,  0. ]])
    """
    op, granularity = sparse(op)
    matrix = _real(A, granularity, pad)
    ranked = None if scores is None else _scores(scores, A, granularity, pad)
    run = partial(loops.prune_chunks, granularity.picks)
    out = np.empty_like(matrix)
    rows, kept_rows = rows_of(matrix), rows_of(out)

    def work(block: slice) -> None:
        if ranked is None:
            keys = _keys(rows[block].reshape(-1), granularity.group)
        else:
            keys = _score_keys(ranked, granularity, block)
        _prune_block(run, keys, rows[block], kept_rows[block], granularity.group)

    # Memory for each element: pairs need a second temporary array, and scores and wide
    # pairs have keys of 8 bytes.
    small = scores is None and (granularity.group == 1 or rows.itemsize == 1)
    width = granularity.group * rows.itemsize if small else 2 * 8
    count = len(rows) if rows.size else 0
    in_blocks(work, count, rows.shape[-1] * width, progress)
    return out


def _prune_block(
    run: Callable[[Array, Array, Array], None],
    keys: Array,
    rows: Array,
    out: Array,
    group: int,
) -> None:
    if group * rows.itemsize <= 8:
        run(keys, places_of(rows, group), places_of(out, group))
        return
    # A pair of 8-byte elements does not fit an integer: choose first, then copy.
    chosen = np.empty(keys.shape, np.uint8)
    run(keys, np.ones_like(chosen), chosen)
    pairs = rows.reshape(-1, group)
    out.reshape(-1, group)[...] = np.where(chosen[:, None], pairs, pairs.dtype.type(0))


def _keys(flat: Array, group: int) -> Array:
    """Numbers that rank places by magnitude."""
    if group == 1:
        return _magnitudes(flat)
    if flat.itemsize == 1 and flat.dtype not in _WIDE:
        both = _magnitudes(flat).view(np.uint16)
        sums: Array = both & 255
        sums += both >> 8
        return sums
    if _is_wide(flat):
        magnitudes = _magnitudes(flat)
        return _sums_of_integers(magnitudes[0::2], magnitudes[1::2])
    of = _STORED.get(flat.dtype)
    wide = flat.astype(np.float64) if of is None else of.to_float64(of.encode(flat))
    np.abs(wide, out=wide)
    return _sums(wide[0::2], wide[1::2])


# ── exact sums of two ───────────────────────────────────────────────────────
#
# A sum that float64 or 64 bits cannot hold is kept in several parts, which are
# compared one after the other: whether it is finite, the rounded sum, and the
# rounding error.


def _sums(first: Array, second: Array) -> Array:
    """Keys in the order of the exact sums ``first + second``; NaN is the greatest."""
    with np.errstate(all="ignore"):
        total = first + second
        finite = np.isfinite(total)
        lost = _rounded_off(first, second, total)
        if finite.all() and not lost.any():
            return total
        # If a sum overflows, halves are added instead; halving is exact here.
        over = ~finite & np.isfinite(first) & np.isfinite(second)
        halves = first / 2, second / 2
        half = halves[0] + halves[1]
        beyond = np.sign(total) * np.where(over, 1, 2)
        beyond[np.isnan(total)] = 3
        parts = (
            np.where(finite, 0, beyond),
            np.where(finite, total, np.where(over, half, 0)),
            np.where(finite, lost, np.where(over, _rounded_off(*halves, half), 0)),
        )
    return _beaten(*parts)


def _rounded_off(first: Array, second: Array, total: Array) -> Array:
    """The exact sum minus the rounded one: Knuth's two-sum."""
    share = total - first
    lost: Array = (first - (total - share)) + (second - share)
    return lost


def _sums_of_integers(first: Array, second: Array) -> Array:
    """Keys in the order of the exact sums of unsigned 64-bit integers."""
    low = first + second
    carry = low < first
    return _beaten(carry, low) if carry.any() else low


def _beaten(*parts: Array) -> Array:
    """Keys from the parts of sums: how many places of its chunk each place exceeds."""
    chunks = [part.reshape(-1, 4) for part in parts]
    keys = np.zeros(chunks[0].shape, np.uint8)
    for one in range(4):
        for other in range(4):
            greater = np.zeros(len(keys), bool)
            for part in reversed(chunks):
                mine, theirs = part[:, one], part[:, other]
                greater = (mine > theirs) | ((mine == theirs) & greater)
            keys[:, one] += greater
    return keys.reshape(-1)


def _magnitudes(flat: Array) -> Array:
    """Unsigned integers in the order of the magnitudes; NaN is the greatest."""
    unsigned = np.dtype(f"u{flat.itemsize}")
    of = _STORED.get(flat.dtype)
    if of is None:
        return _unsigned(np.abs(flat) if flat.dtype.kind == "i" else flat)
    # Without the sign bit, the bits of a float are in the order of its magnitude.
    used = of.mask if of.is_integer else of.mask >> 1
    keys: Array = flat.view(unsigned) & unsigned.type(used)
    if of.name == "s4":
        np.minimum(keys, 16 - keys, out=keys)
    if of.name == "e2m1":  # pairs are added, so twice the value: 0 1 2 3 4 6 8 12
        steep = keys.view(np.int8)
        np.maximum(steep, np.maximum(2 * steep - 4, 4 * steep - 16), out=steep)
    if of.has_infinity:
        np.minimum(keys, unsigned.type(_infinity(of) + 1), out=keys)
    return keys


def _unsigned(magnitudes: Array) -> Array:
    """Magnitudes as unsigned integers; that of the least integer needs one."""
    return magnitudes.view(np.dtype(f"u{magnitudes.itemsize}"))


def _infinity(of: DType) -> int:
    return ((1 << of.exponent_bits) - 1) << of.fraction_bits


def _scores(
    scores: ArrayLike, A: ArrayLike, granularity: Granularity, pad: bool
) -> Array:
    """The scores, padded to whole chunks so that the padding is dropped first."""
    given, wanted = as_array(scores), as_array(A).shape
    if given.shape != wanted:
        raise ShapeError(
            f"scores must have the shape of A, {wanted}; given scores of shape "
            f"{given.shape}"
        )
    ranked = _real(given, granularity, pad)
    if granularity.group == 2 and _beyond_float64(ranked):
        raise ValueRangeError(
            "scores of pairs are added in float64, so integers must be from -2**52 to "
            f"2**52; given {ranked.min()} to {ranked.max()}"
        )
    width = wanted[-1]
    if ranked.shape[-1] > width:
        whole = _ranked_whole(ranked, granularity)
        ranked = ranked if whole else ranked.astype(np.float64)
        least = np.iinfo(ranked.dtype).min if whole else -np.inf
        # Padding that shares a pair with an element leaves the score of that pair.
        ranked[..., width + width % granularity.group :] = least
    return ranked


def _ranked_whole(scores: Array, granularity: Granularity) -> bool:
    """Whether scores are compared as integers: float64 may not tell them apart."""
    return granularity.group == 1 and _is_wide(scores)


def _is_wide(scores: Array) -> bool:
    return scores.dtype.kind in "iu" and scores.itemsize == 8


def _beyond_float64(scores: Array) -> bool:
    """Whether float64 may round a sum of two of these integers."""
    if not scores.size or not _is_wide(scores):
        return False
    return int(scores.max()) > 1 << 52 or int(scores.min()) < -(1 << 52)


def _score_keys(scores: Array, granularity: Granularity, block: slice) -> Array:
    keys = rows_of(scores)[block].reshape(-1)
    if _ranked_whole(keys, granularity):
        return keys
    keys = keys.astype(np.float64)
    unranked = np.isnan(keys)
    if granularity.group == 2:
        with np.errstate(all="ignore"):
            unranked = np.isnan(keys[0::2] + keys[1::2])
        keys = _sums(keys[0::2], keys[1::2])
    if unranked.any():
        *batch, columns = scores.shape
        chunks = columns // granularity.chunk
        first = block.start * chunks + int(unranked.argmax()) // granularity.places
        index = np.unravel_index(first, (*batch, chunks))
        raise ValueRangeError(
            f"the scores of {locate([int(i) for i in index])} contain or add up to a "
            "NaN, which cannot be compared; use -inf for elements to drop first"
        )
    return keys


def _real(A: ArrayLike, granularity: Granularity, pad: bool) -> Array:
    """A contiguous matrix of real numbers in whole chunks."""
    array = as_array(A)
    if array.dtype not in _STORED and array.dtype.kind not in "biu":
        raise ValueRangeError(f"only real numbers can be pruned; given {array.dtype}")
    return whole_chunks(array, granularity, pad)
