"""Compression of a sparse matrix: its kept values, and the codes of their places.

The instruction defines what sparse means: how many elements of each chunk of a row
of A are stored, and whether adjacent elements are stored in pairs (see
:class:`~fragmenta.reference.registers.granularity.Granularity`).

    check         refuse an A with too many non-zeros in a chunk
    compress      A -> stored values and one 4-bit code per chunk
    decompress    stored values and codes -> A

Matrices are the last two axes; any batch axes may come before.  These functions
keep every value or refuse the matrix.  To make a matrix sparse, use
:func:`fragmenta.reference.sparse.pruning.prune`.

>>> import fragmenta as fm
>>> op = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
>>> sp = compress(op, [[0, 0, 3, 4, 5, 0, 0, 8]])
>>> sp.values, [f"{code:04b}" for code in sp.indices[0]]
(array([[3, 4, 5, 8]], dtype=int8), ['1110', '1100'])
>>> decompress(op, sp)
array([[0, 0, 3, 4, 5, 0, 0, 8]], dtype=int8)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array, check_flags, is_whole, is_zero
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.threads import in_blocks
from fragmenta.base.progress import Progress
from fragmenta.errors import BadCall, BadMetadata, NotSparse, ShapeError
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.registers.granularity import (
    Codes,
    Granularity,
    as_codes,
    locate,
)
from fragmenta.reference.registers.metadata import Nibble
from fragmenta.reference.sparse import loops
from fragmenta.reference.sparse.loops import places_of, rows_of


@dataclass(frozen=True, eq=False, repr=False)
class Compressed:
    """A sparse A as the instruction takes it: stored values and codes.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
    >>> sp = compress(op, [[0, 0, 1, 2, 0, 0, 3, 0]])
    >>> sp
    <Compressed 1x8 int4, 4:8 in pairs>
    >>> sp.values, f"{sp.indices[0, 0]:04b}", sp.columns()
    (array([[1, 2, 3, 0]], dtype=int4), '1101', array([[2, 3, 6, 7]], dtype=int32))
    """

    values: Array
    """The stored values, (…, M, stored columns)."""
    indices: Codes
    """One 4-bit code per chunk, (…, M, chunks)."""
    granularity: Granularity
    width: int = -1
    """Columns of A; less than the columns of all chunks if A was padded."""

    def __post_init__(self) -> None:
        if not isinstance(self.granularity, Granularity):
            raise BadCall(
                f"granularity must be that of an instruction, op.granularity; given "
                f"{self.granularity!r}"
            )
        object.__setattr__(self, "values", as_array(self.values))
        object.__setattr__(self, "indices", as_codes(self.indices))
        *rows, chunks = self.indices.shape or (0,)
        wanted = (*rows, self.granularity.kept * chunks)
        if len(wanted) < 2 or self.values.shape != wanted:
            raise ShapeError(
                f"{self.granularity} stores {self.granularity.kept} values for each "
                f"code; given values of shape {self.values.shape} and codes of "
                f"shape {self.indices.shape}"
            )
        span = self.granularity.chunk * chunks
        width = span if is_whole(self.width) and self.width == -1 else self.width
        if not is_whole(width) or not 0 <= span - int(width) < self.granularity.chunk:
            raise ShapeError(
                f"{chunks} chunks of {self.granularity} have {span} columns; given "
                f"width {width!r}"
            )
        object.__setattr__(self, "width", int(width))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of A."""
        return (*self.indices.shape[:-1], self.width)

    def columns(self) -> NDArray[np.int32]:
        """The column of A of each stored value, in the shape of ``values``.

        >>> import fragmenta as fm
        >>> op = fm.mma("m16n8k8", a="tf32", sp="sp")
        >>> compress(op, np.float32([[0, 1, 2, 0]])).columns()
        array([[1, 2]], dtype=int32)
        """
        offsets = self.granularity.offsets(self.indices)
        starts = np.arange(self.indices.shape[-1], dtype=np.int32)
        columns = offsets + (starts * self.granularity.chunk)[:, None]
        return columns.reshape(self.values.shape)

    def __repr__(self) -> str:
        size = "x".join(map(str, self.shape))
        return f"<Compressed {size} {self.values.dtype}, {self.granularity}>"


def sparse(op: Instruction | str) -> tuple[Instruction, Granularity]:
    """The instruction, which must be sparse, and its granularity.

    >>> op, granularity = sparse("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16")
    >>> print(granularity)
    2:4
    """
    found = instruction(op)
    if found.granularity is None:
        raise BadCall(f"{found} is dense; the sparse families are mma.sp and wgmma.sp")
    return found, found.granularity


# ── compress and decompress ─────────────────────────────────────────────────


def compress(
    op: Instruction | str,
    A: ArrayLike,
    *,
    keep_negative_zero: bool = False,
    pad: bool = False,
    progress: Progress | None = None,
) -> Compressed:
    """The stored values and codes of a matrix that is sparse already.

    No value is dropped: a chunk with too many values is refused.  A chunk with fewer
    values than are stored is filled up with zeros: with that of place 2 first, then
    with that of place 3 (for tf32, with that of place 1).  So each chunk has exactly
    one code, which is legal and ordered.  PyTorch fills chunks in the same way.

    -0.0 counts as a zero.  It is kept if its place is stored anyway; otherwise it
    becomes 0.0.  With ``keep_negative_zero`` it counts as a value.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> sp = compress(op, [[0, 5, 0, 0], [0, 0, 0, 0]])
    >>> sp.values
    array([[5., 0.],
           [0., 0.]], dtype=float16)
    >>> [f"{code:04b}" for code in sp.indices[:, 0]]
    ['1001', '1110']
    >>> compress(op, [[1, 2, 3, 0]])
    Traceback (most recent call last):
    fragmenta.errors.NotSparse: row 0, chunk 0 (columns 0 to 3) has 3 non-zeros, and \
2:4 stores 2; 1 of 1 chunks is too full; prune makes them fit
    """
    op, granularity = sparse(op)
    bits, value_bits = _bits(A, op, keep_negative_zero, pad)
    rows, chunks = rows_of(bits), bits.shape[-1] // granularity.chunk
    stored = np.empty((len(rows), chunks * granularity.kept), bits.dtype)
    codes = np.empty((len(rows), chunks), np.uint8)
    group, picks = granularity.group, granularity.picks

    def work(block: slice) -> bool:
        found = codes[block].reshape(-1)
        places, kept = places_of(rows[block], group), places_of(stored[block], group)
        loops.compress_chunks(picks, places, value_bits, kept, found)
        return bool(found.min() == 0)  # a chunk is too full

    if any(in_blocks(work, *_extent(rows), progress)):
        check(op, A, keep_negative_zero=keep_negative_zero, pad=pad)
    return Compressed(
        values=stored.view(op.types["a"].storage).reshape(
            *bits.shape[:-1], stored.shape[-1]
        ),
        indices=codes.reshape(*bits.shape[:-1], chunks),
        granularity=granularity,
        width=as_array(A).shape[-1],
    )


def check_compressed(sp: Compressed, op: Instruction) -> None:
    """Refuse a compressed matrix that does not fit the instruction.

    It must have the instruction's granularity, its codes must be legal, and the
    values stored beyond its width must be zero.

    >>> import fragmenta as fm
    >>> tf32, f16 = (fm.wgmma("m64n8k16", a="tf32", d="f32", sp="sp"),
    ...              fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp"))
    >>> check_compressed(compress(tf32, np.zeros((1, 4))), f16)
    Traceback (most recent call last):
    fragmenta.errors.BadMetadata: wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 \
is 2:4; given an A of 1:2
    """
    _check_granularity(sp, op)
    sp.granularity.check(sp.indices, op.metadata.ordered)
    chunk, kept = sp.granularity.chunk, sp.granularity.kept
    if rest := sp.width % chunk:
        offsets = sp.granularity.offsets(sp.indices[..., -1])
        values = ~is_zero(sp.values[..., -kept:])
        _check_rest(values & (offsets >= rest), sp.width)


def require_compressed(sp: object) -> None:
    """Refuse what is not a compressed matrix.

    >>> require_compressed([[1, 0]])
    Traceback (most recent call last):
    fragmenta.errors.BadCall: A must be Compressed, as compress returns it; given list
    """
    if not isinstance(sp, Compressed):
        raise BadCall(
            f"A must be Compressed, as compress returns it; given {type(sp).__name__}"
        )


def _check_granularity(sp: Compressed, op: Instruction) -> None:
    require_compressed(sp)
    if sp.granularity != op.granularity:
        raise BadMetadata(f"{op} is {op.granularity}; given an A of {sp.granularity}")


def _check_rest(beyond: NDArray[np.bool_], width: int) -> None:
    if beyond.any():
        row = int(np.argwhere(beyond)[0][-2])
        raise ShapeError(
            f"A has {width} columns, but row {row} stores a value in a later column"
        )


def decompress(op: Instruction | str, sp: Compressed) -> Array:
    """The matrix of stored values and codes: the inverse of :func:`compress`.

    Codes that the instruction does not allow are refused.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> decompress(op, compress(op, [[0, 5, 0, 6]]))
    array([[0., 5., 0., 6.]], dtype=float16)
    """
    op, granularity = sparse(op)
    _check_granularity(sp, op)
    bits = rows_of(op.types["a"].encode(sp.values))
    codes = sp.indices.reshape(len(bits), sp.indices.shape[-1])
    out = np.empty((len(bits), codes.shape[-1] * granularity.chunk), bits.dtype)
    group, picks = granularity.group, granularity.picks
    ordered = op.metadata.ordered

    def work(block: slice) -> bool:
        flat = np.ascontiguousarray(codes[block]).reshape(-1)
        kept = np.ascontiguousarray(bits[block])
        places, whole = places_of(kept, group), places_of(out[block], group)
        loops.decompress_chunks(picks, places, flat, whole)
        return bool(granularity.illegal(flat, ordered).any())

    if any(in_blocks(work, *_extent(out))):
        granularity.check(sp.indices, ordered)
    _check_rest(out[:, sp.width :] != 0, sp.width)
    shape = (*sp.indices.shape[:-1], out.shape[-1])
    return out.view(op.types["a"].storage).reshape(shape)[..., : sp.width]


# ── check ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Report:
    """Which chunks of a matrix have too many non-zeros for an instruction.

    ``str()`` is a sentence about it.

    >>> import fragmenta as fm
    >>> print(report(fm.mma("m16n8k32", a="s8", sp="sp"), [[1, 0, 0, 2]]))
    all 1 chunks satisfy 2:4
    """

    instruction: str
    granularity: Granularity
    shape: tuple[int, ...]
    chunks: int
    """How many chunks the matrix has."""
    violating: int
    """How many of them have too many non-zeros."""
    zeros: int
    """How many elements are zero."""
    first: tuple[int, ...] | None
    """The first violating chunk: batch indices, row, chunk."""
    non_zeros: int
    """How many non-zeros (or pairs with one) that chunk has."""

    @property
    def satisfied(self) -> bool:
        """Whether the matrix can be compressed as it is."""
        return not self.violating

    @property
    def share(self) -> float:
        """The share of violating chunks, 0 to 1."""
        return self.violating / self.chunks if self.chunks else 0.0

    def __str__(self) -> str:
        if self.first is None:
            return f"all {self.chunks} chunks satisfy {self.granularity}"
        span = self.granularity.chunk
        start = self.first[-1] * span
        what = "pairs with non-zeros" if self.granularity.group == 2 else "non-zeros"
        are = "is" if self.violating == 1 else "are"
        return (
            f"{locate(self.first)} (columns {start} to {start + span - 1}) has "
            f"{self.non_zeros} {what}, and {self.granularity} stores "
            f"{self.granularity.picks}; {self.violating} of {self.chunks} chunks {are} "
            "too full"
        )


def report(
    op: Instruction | str,
    A: ArrayLike,
    *,
    keep_negative_zero: bool = False,
    pad: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Count the chunks that have more non-zeros than the instruction stores.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
    >>> found = report(op, [[1, 0, 2, 0, 0, 3, 0, 0], [0] * 8])
    >>> found.satisfied, found.share, found.first
    (False, 0.5, (0, 0))
    >>> print(found)
    row 0, chunk 0 (columns 0 to 7) has 3 pairs with non-zeros, and 4:8 in pairs \
stores 2; 1 of 2 chunks is too full
    """
    op, granularity = sparse(op)
    bits, value_bits = _bits(A, op, keep_negative_zero, pad)
    rows, chunks = rows_of(bits), bits.shape[-1] // granularity.chunk

    def work(block: slice) -> tuple[int, int, int]:
        places = places_of(rows[block], granularity.group)
        full = _too_full(places, value_bits, granularity)
        count, first = int(full.sum()), block.start * chunks
        values = np.count_nonzero(rows[block] & rows.dtype.type(value_bits))
        return count, first + int(full.argmax()) if count else -1, int(values)

    found = in_blocks(work, *_extent(rows), progress)
    at = next((first for count, first, _ in found if count), -1)
    index = np.unravel_index(at, (*bits.shape[:-1], chunks)) if at >= 0 else None
    return Report(
        instruction=str(op),
        granularity=granularity,
        shape=as_array(A).shape,
        chunks=len(rows) * chunks,
        violating=sum(count for count, _, _ in found),
        zeros=as_array(A).size - sum(values for _, _, values in found),
        first=None if index is None else tuple(int(i) for i in index),
        non_zeros=_non_zeros(rows, value_bits, granularity, at),
    )


def check(
    op: Instruction | str,
    A: ArrayLike,
    *,
    keep_negative_zero: bool = False,
    pad: bool = False,
) -> None:
    """Refuse a matrix that has more non-zeros than the instruction stores.

    >>> import fragmenta as fm
    >>> check(fm.mma("m16n8k8", a="tf32", sp="sp"), [[0, 1, 2, 0]])
    >>> check(fm.mma("m16n8k8", a="tf32", sp="sp"), [[1, 2, 0, 0]])
    Traceback (most recent call last):
    fragmenta.errors.NotSparse: row 0, chunk 0 (columns 0 to 1) has 2 non-zeros, and \
1:2 stores 1; 1 of 2 chunks is too full; prune makes them fit
    """
    found = report(op, A, keep_negative_zero=keep_negative_zero, pad=pad)
    if not found.satisfied:
        raise NotSparse(f"{found}; prune makes them fit")


def read_words(
    op: Instruction | str, words: ArrayLike, *, lane: int = 0, warp: int = 0
) -> list[Nibble]:
    """The codes in metadata words, and why a code is illegal.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k64", a="s8", sp="sp::ordered_metadata")
    >>> for found in read_words(op, [0x9E])[1:3]:
    ...     print(found.row, found.chunk, found.columns or found.problem)
    0 1 (5, 6)
    0 2 names position 0 twice
    """
    return sparse(op)[0].metadata.decode(words, lane=lane, warp=warp)


# ── whole chunks of raw bits ────────────────────────────────────────────────


def _bits(
    A: ArrayLike, op: Instruction, keep_negative_zero: bool, pad: bool
) -> tuple[Array, np.generic]:
    """The raw bits of A, and the mask of bits that make a place a value."""
    check_flags(keep_negative_zero=keep_negative_zero)
    granularity, of = sparse(op)[1], op.types["a"]
    bits = of.encode(as_array(A))
    signless = not of.is_integer and not keep_negative_zero
    mask = of.mask >> 1 if signless else of.mask
    if granularity.group == 2:
        mask |= mask << 8 * bits.itemsize
    place = np.dtype(f"u{granularity.group * bits.itemsize}")
    return whole_chunks(bits, granularity, pad), place.type(mask)


def whole_chunks(array: Array, granularity: Granularity, pad: bool) -> Array:
    """The matrix as a contiguous array, padded to whole chunks if ``pad`` is set.

    >>> whole_chunks(np.ones((1, 3)), Granularity(2, 4), pad=True)
    array([[1., 1., 1., 0.]])
    """
    check_flags(pad=pad)
    if array.ndim < 2:
        raise ShapeError(
            f"a matrix must have 2 or more axes; given shape {array.shape}"
        )
    short = -array.shape[-1] % granularity.chunk
    if short and not pad:
        width = array.shape[-1]
        raise ShapeError(
            f"{width} columns are not a whole number of {granularity} chunks of "
            f"{granularity.chunk}; pad=True adds {short} zeros to make {width + short}"
        )
    if short:
        array = np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, short)])
    return np.ascontiguousarray(array)


def _extent(rows: Array) -> tuple[int, int]:
    """The number of rows, or 0 if they are empty, and the bytes of a row."""
    return len(rows) if rows.size else 0, rows.shape[-1] * rows.itemsize


def _too_full(places: Array, value_bits: np.generic, granularity: Granularity) -> Array:
    """Which chunks have more values than can be stored."""
    is_value = (places & value_bits) != 0
    # Each flag is a byte.  Seen as one integer, a chunk has a set bit for each flag.
    chunks = is_value.view(np.dtype(f"u{granularity.places}"))
    full: Array = np.bitwise_count(chunks) > granularity.picks
    return full


def _non_zeros(
    rows: Array, value_bits: np.generic, granularity: Granularity, chunk: int
) -> int:
    if chunk < 0:
        return 0
    row, start = divmod(chunk * granularity.chunk, rows.shape[-1])
    places = places_of(rows[row, start : start + granularity.chunk], granularity.group)
    return int(np.count_nonzero(places & value_bits))
