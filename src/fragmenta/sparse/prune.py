"""What goes, when not everything can stay?

An instruction stores a few elements of each chunk of a row of A.  Pruning
keeps the largest magnitudes and makes the rest zero, so that compressing then
loses nothing.

>>> import fragmenta as fm
>>> op = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
>>> prune([[1, -2, 3, -4, 5, 5, 5, 5]], op)
array([[ 0,  0,  3, -4,  5,  5,  0,  0]])
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.arrays.checks import as_array
from fragmenta.arrays.threads import in_blocks
from fragmenta.errors import ShapeError, ValueRangeError
from fragmenta.isa.instruction import Instruction
from fragmenta.registers.dtype import DTYPES, DType
from fragmenta.registers.granularity import Granularity, locate
from fragmenta.sparse import loops
from fragmenta.sparse.compress import sparse, whole_chunks
from fragmenta.sparse.loops import Progress, places_of, rows_of

Array = NDArray[Any]

# The element type that a NumPy type stores; float32 holds both f32 and tf32.
_STORED = {
    of.storage: of
    for of in DTYPES.values()
    if of.name in ("s4", "u4") or (of.kind == "float" and of.name != "tf32")
}

# One-byte types whose magnitudes are no small integers.
_WIDE = {of.storage for of in _STORED.values() if of.bits in (6, 8)}


def prune(
    A: ArrayLike,
    op: Instruction | str,
    *,
    scores: ArrayLike | None = None,
    pad: bool = False,
    progress: Progress | None = None,
) -> Array:
    """A with the largest magnitudes of each chunk kept and the rest zero.

    Of equal magnitudes the lower column is kept.  Where neighbours go in
    pairs (4-bit types), the pair with the greater sum of magnitudes is.
    ``scores``, a matrix of the same shape, ranks instead of the magnitudes:
    the greater score is kept, whatever the value.

    NaN counts as greater than infinity, all NaN as equal: pruning never
    hides that a matrix holds one.  A NaN among the scores is refused.

    The result has the dtype of A, which may be any real type, not only the
    one that the instruction reads.  A width that is no multiple of the chunk
    is refused; with ``pad`` the result is that much wider.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> prune([[0.5, -4.0, 3.0, -3.0]], op)
    array([[ 0., -4.,  3.,  0.]])
    >>> prune([[0.5, -4.0, 3.0, -3.0]], op, scores=[[4, 3, 2, 1]])
    array([[ 0.5, -4. ,  0. ,  0. ]])
    """
    op, granularity = sparse(op)
    matrix = _real(A, granularity, pad)
    ranked = None if scores is None else _scores(scores, A, granularity, pad)
    run = partial(loops.prune, granularity.picks)
    out = np.empty_like(matrix)
    rows, kept_rows = rows_of(matrix), rows_of(out)

    def work(block: slice) -> None:
        if ranked is None:
            keys = _keys(rows[block].reshape(-1), granularity.group)
        else:
            keys = _score_keys(ranked, granularity, block)
        _prune_block(run, keys, rows[block], kept_rows[block], granularity.group)

    # Pairs take a second temporary; scores and wide pairs are ranked in 8 bytes.
    small = scores is None and (granularity.group == 1 or rows.itemsize == 1)
    width = granularity.group * rows.itemsize if small else 2 * 8
    count = len(rows) if rows.size else 0
    in_blocks(work, count, rows.shape[-1] * width, progress)
    return out


def _prune_block(run: Any, keys: Array, rows: Array, out: Array, group: int) -> None:
    if group * rows.itemsize <= 8:
        run(keys, places_of(rows, group), places_of(out, group))
        return
    # A pair of 8-byte elements is wider than any integer: choose, then copy.
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
# A sum that float64 or 64 bits cannot hold is kept in parts, the first of them
# deciding: how far it lies beyond the finite ones, the sum, and what rounding
# took from it.


def _sums(first: Array, second: Array) -> Array:
    """Keys in the exact order of ``first + second``, NaN above infinity."""
    with np.errstate(all="ignore"):
        total = first + second
        finite = np.isfinite(total)
        lost = _rounded_off(first, second, total)
        if finite.all() and not lost.any():
            return total
        # Sums beyond the finite ones are added again in halves, which is exact.
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
    """What the rounded sum lacks of the exact one: Knuth's two-sum."""
    share = total - first
    lost: Array = (first - (total - share)) + (second - share)
    return lost


def _sums_of_integers(first: Array, second: Array) -> Array:
    """Keys in the exact order of sums of unsigned 64-bit integers."""
    low = first + second
    carry = low < first
    return _beaten(carry, low) if carry.any() else low


def _beaten(*parts: Array) -> Array:
    """How many of its chunk of four each place beats: keys of the same order."""
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
    """Unsigned integers in the order of the magnitudes, NaN above all."""
    unsigned = np.dtype(f"u{flat.itemsize}")
    of = _STORED.get(flat.dtype)
    if of is None:
        return _unsigned(np.abs(flat) if flat.dtype.kind == "i" else flat)
    # Without its sign, the pattern of a float grows with its magnitude.
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
    """The least integer has a magnitude that only an unsigned type holds."""
    return magnitudes.view(np.dtype(f"u{magnitudes.itemsize}"))


def _infinity(of: DType) -> int:
    return ((1 << of.exponent_bits) - 1) << of.fraction_bits


def _scores(
    scores: ArrayLike, A: ArrayLike, granularity: Granularity, pad: bool
) -> Array:
    """Scores of whole chunks: what fills A is dropped before any of A is."""
    given, wanted = as_array(scores), as_array(A).shape
    if given.shape != wanted:
        raise ShapeError(
            f"scores rank the elements one by one; A has the shape {wanted}, the "
            f"scores {given.shape}"
        )
    ranked = _real(given, granularity, pad)
    if granularity.group == 2 and _beyond_float64(ranked):
        raise ValueRangeError(
            "scores of pairs are added in float64, which holds integers up to 2**52; "
            f"given {ranked.min()} to {ranked.max()}"
        )
    width = wanted[-1]
    if ranked.shape[-1] > width:
        whole = _ranked_whole(ranked, granularity)
        ranked = ranked if whole else ranked.astype(np.float64)
        least = np.iinfo(ranked.dtype).min if whole else -np.inf
        # The lone half of a pair keeps the score of the element beside it.
        ranked[..., width + width % granularity.group :] = least
    return ranked


def _ranked_whole(scores: Array, granularity: Granularity) -> bool:
    """Integers that float64 may not tell apart are ranked as they are."""
    return granularity.group == 1 and _is_wide(scores)


def _is_wide(scores: Array) -> bool:
    return scores.dtype.kind in "iu" and scores.itemsize == 8


def _beyond_float64(scores: Array) -> bool:
    """Whether a sum of two of these integers may be none of float64's."""
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
            f"the scores of {locate([int(i) for i in index])} hold a NaN, which has "
            "no rank; -inf is always dropped first"
        )
    return keys


def _real(A: ArrayLike, granularity: Granularity, pad: bool) -> Array:
    """A matrix of real numbers in whole chunks, contiguous."""
    array = as_array(A)
    if array.dtype not in _STORED and array.dtype.kind not in "biu":
        raise ValueRangeError(f"only real numbers can be ranked; given {array.dtype}")
    return whole_chunks(array, granularity, pad)
