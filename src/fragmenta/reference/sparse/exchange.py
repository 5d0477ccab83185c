"""The orders in which other libraries store metadata.

All libraries store the same values, (…, M, K/2); they differ in the order of the
codes.  As with every layout here, each order is one line that permutes digits, here
those of a position in memory::

    plain     row-major nibbles, the first chunk in the low half of a byte
    torch     PyTorch's SparseSemiStructuredTensorCUTLASS: int16 or int32
    marlin    Sparse-Marlin, and vLLM and torchao after it: the same words in another
              order, although their function has the same name as PyTorch's
    cutlass   CUTLASS's kernels for Hopper (sm_90a), by tile K: bytes

Axis N is the nibble in a word; X and Y count tiles along k and m, and are outermost.
If cuSPARSELt is installed, ``to_sparse_semi_structured`` uses its format.  That
format is not documented, and only cuSPARSELt reads it.

>>> import fragmenta as fm
>>> from fragmenta.reference.sparse.compression import compress
>>> op = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
>>> sp = compress(op, [[0, 0, 3, 4, 5, 0, 0, 8]])
>>> [hex(byte) for byte in to_nibbles(sp)[0]]
['0xce']
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array, check_numbers, is_zero
from fragmenta.errors import BadCall, BadMetadata, ShapeError, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.granularity import Codes, Granularity
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.registers.words import pack_words, unpack_words
from fragmenta.reference.sparse.compression import (
    Compressed,
    check_compressed,
    require_compressed,
    sparse,
)

# By the bits of a word.  O is the position in memory of a word within a tile, which has
# two columns of words and 32 or 16 rows.
TORCH = {
    16: "row = O3 O4 O5 O0 O2 Y*  chunk = N* O1 X*",  # 32 rows
    32: "row = O2 O3 O4 O0 Y*  chunk = N* O1 X*",  # 16 rows
}
# Rows 8g + j and 8g + 4 + j share 32 bits.  Four ``mma.sp`` of one warp, j = 0 to 3,
# take them as their rows g and g + 8.  O1 to O5 are the lane, O2 the selector, O6 the
# register.
MARLIN = dict.fromkeys((16, 32), "row = O2 O6 O0 O3 O4 O5 Y*  chunk = N* O1 X*")

# A tile has 64 rows.  For 16-bit and 32-bit types, the word of row G + 8 (H) follows
# that of row G, and then those of the next instructions (B) follow.  So the words that
# a lane needs are adjacent.  P is the lane's half of the columns, W the warp.
CUTLASS = {
    8: "row = R* Y*  chunk = N* C* X*",
    16: "row = G* H* W* Y*  chunk = N* P* B* X*",
    32: "row = G* H* W* Y*  chunk = N* P* B* X*",
}


# ── plain row-major nibbles ─────────────────────────────────────────────────


def to_nibbles(sp: Compressed) -> NDArray[np.uint8]:
    """Two codes per byte in row-major order, (…, M, chunks / 2).

    >>> import fragmenta as fm
    >>> from fragmenta.reference.sparse.compression import compress
    >>> op = fm.mma("m16n8k8", a="tf32", sp="sp::ordered_metadata")
    >>> [f"{b:08b}" for b in to_nibbles(compress(op, np.float32([[0, 1, 2, 0]])))[0]]
    ['01001110']
    """
    require_compressed(sp)
    if sp.indices.shape[-1] % 2:
        raise ShapeError(
            f"two codes share a byte, so a row must have an even number of chunks; "
            f"given {sp.indices.shape[-1]}"
        )
    return pack_words(sp.indices, 4, 8)


def from_nibbles(
    op: Instruction | str, values: ArrayLike, nibbles: ArrayLike
) -> Compressed:
    """A compressed matrix from stored values and nibbles in row-major order.

    The nibbles are in bytes, or in little-endian words.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k8", a="tf32", sp="sp::ordered_metadata")
    >>> from_nibbles(op, np.float32([[1, 2]]), np.uint8([[0b01001110]])).columns()
    array([[1, 2]], dtype=int32)
    """
    words = as_array(nibbles)
    if words.dtype.kind not in "iu" or not words.ndim:
        raise ShapeError(f"nibbles must be an array of integers; given {words!r}")
    codes = unpack_words(words.view(f"u{words.itemsize}"), 4)
    return _checked(values, codes, *sparse(op))


# ── PyTorch ─────────────────────────────────────────────────────────────────


class TorchSparse(NamedTuple):
    """The tensors of PyTorch's SparseSemiStructuredTensorCUTLASS.

    >>> TorchSparse(np.ones((16, 32)), np.zeros((16, 2), np.int32)).meta.dtype
    dtype('int32')
    """

    packed: Array
    """The stored values, (M, K/2)."""
    meta: Array
    """The reordered codes, int32 for 8-bit types, else int16."""


def to_torch(op: Instruction | str, sp: Compressed) -> TorchSparse:
    """``packed`` and ``meta`` as PyTorch's CUTLASS backend takes them.

    The types are f16, bf16, tf32 (torch.float32) and s8.  As in PyTorch, the number
    of rows must be a multiple of 32 (16 for s8), and a row must have an even number
    of words.

    >>> import fragmenta as fm
    >>> from fragmenta.reference.sparse.compression import compress
    >>> op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> packed, meta = to_torch(op, compress(op, np.eye(32, dtype=np.float16)))
    >>> packed.shape, meta.shape, meta.dtype
    ((32, 16), (32, 2), dtype('int16'))
    """
    return TorchSparse(*_to_words(sp, op, _PYTORCH))


def from_torch(op: Instruction | str, packed: ArrayLike, meta: ArrayLike) -> Compressed:
    """A compressed matrix from ``packed`` and ``meta`` of PyTorch's CUTLASS backend.

    Codes that are not ordered are refused.  Codes of Sparse-Marlin are refused if
    stored zeros show that they are.  Without stored zeros they cannot be recognized:
    use :func:`from_marlin` for them.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> meta = np.full((32, 2), 0x4444, np.int16)
    >>> from_torch(op, np.ones((32, 16), np.float16), meta).columns()[5, :4]
    array([0, 1, 4, 5], dtype=int32)
    """
    words = _words(meta, op, _PYTORCH)
    return _from_words(packed, words, op, _PYTORCH)


# ── Sparse-Marlin ───────────────────────────────────────────────────────────


class SparseMarlin(NamedTuple):
    """The result of Sparse-Marlin's sparse_semi_structured_from_dense_cutlass.

    >>> SparseMarlin(np.ones((64, 16)), np.zeros((64, 2), np.int16)).meta.shape
    (64, 2)
    """

    packed: Array
    """The stored values, (M, K/2), before they are quantized and permuted."""
    meta: Array
    """The reordered codes, int16 of (M, K/16); for s8, int32 of (M, K/32)."""


def to_marlin(op: Instruction | str, sp: Compressed) -> SparseMarlin:
    """Values and codes in the order of Sparse-Marlin's conversion.

    The types are f16, bf16, tf32 (torch.float32) and s8.  M, the number of output
    features, must be a multiple of 64.  The kernels take the int16 codes of an f16
    A.  vLLM and torchao keep the same codes as ``meta.reshape(K // 32, 2 * M)``.

    >>> import fragmenta as fm
    >>> from fragmenta.reference.sparse.compression import compress
    >>> op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> packed, meta = to_marlin(op, compress(op, np.eye(64, dtype=np.float16)))
    >>> packed.shape, meta.shape, meta.dtype
    ((64, 32), (64, 4), dtype('int16'))
    """
    return SparseMarlin(*_to_words(sp, op, _MARLIN))


def from_marlin(
    op: Instruction | str, packed: ArrayLike, meta: ArrayLike
) -> Compressed:
    """A compressed matrix from Sparse-Marlin, or from Marlin 2:4 in vLLM or torchao.

    ``packed`` is (M, K/2) with the values of each row, as their
    sparse_semi_structured_from_dense_cutlass returns it.  The permuted words of 4-bit
    or 8-bit values that the kernel takes are something else.  ``meta`` is int16 of
    (M, K/16), or of (K/32, 2M) as vLLM and torchao keep it; for s8 it may be int32 of
    (M, K/32).

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> meta = np.full((1, 128), 0x4444, np.int16)
    >>> from_marlin(op, np.ones((64, 16), np.float16), meta).columns()[5, :4]
    array([0, 1, 4, 5], dtype=int32)
    """
    op, granularity = sparse(op)
    words, stored = _words(meta, op, _MARLIN), as_array(packed)
    rows, width = stored.shape if stored.ndim == 2 else (0, 0)
    columns = width // granularity.kept // (words.itemsize * 2)
    if rows * columns and words.shape == (columns // 2, 2 * rows):
        words = words.reshape(rows, columns)
    return _from_words(stored, words, op, _MARLIN)


# ── words in some order ─────────────────────────────────────────────────────


class _Order(NamedTuple):
    """How a library stores words of codes."""

    name: str
    lines: dict[int, str]
    """The line of each order, by the bits of a word."""
    bits: dict[str, tuple[int, ...]]
    """The bits that a word may have, by the element type; the first is written."""
    read: str
    """The function that reads this order."""

    def layout(
        self, bits: int, shape: tuple[int, ...], granularity: Granularity
    ) -> Layout:
        """The layout of a matrix of codes; a shape that does not fit is refused."""
        line, per_word = self.lines[bits], bits // 4
        places = (
            1 << max(int(digit[1:]) for digit in line.split() if digit[0] == "O") + 1
        )
        parts = (places // 2, 2 * per_word)
        if len(shape) != 2 or not all(shape) or any(np.remainder(shape, parts)):
            columns = parts[1] * granularity.chunk
            raise ShapeError(
                f"{self.name} takes multiples of {parts[0]} rows and {columns} "
                f"columns; given codes of shape {shape}"
            )
        y, x = (size // part for size, part in zip(shape, parts, strict=True))
        return Layout.parse(line, X=x, Y=y, O=places, N=per_word)

    def word(self, op: Instruction) -> tuple[int, ...]:
        """The bits that a word of metadata may have for the type of A."""
        of = op.types["a"].name
        if of not in self.bits:
            raise BadCall(f"{self.name} has {one_of(self.bits, 'and')}; given {of}")
        return self.bits[of]


_HALF: dict[str, tuple[int, ...]] = {"f16": (16,), "bf16": (16,), "tf32": (16,)}
_PYTORCH = _Order(
    "PyTorch's CUTLASS backend", TORCH, _HALF | {"s8": (32,)}, "from_torch"
)
# Quantized values as int32 have words of 16 bits, those as int8 words of 32.
_MARLIN = _Order("Sparse-Marlin", MARLIN, _HALF | {"s8": (32, 16)}, "from_marlin")
#: This many chunks that a conversion never writes cannot be an accident.
_EVIDENCE = 8


def _to_words(
    sp: Compressed, op: Instruction | str, order: _Order
) -> tuple[Array, Array]:
    op, granularity = sparse(op)
    check_compressed(sp, op)
    of, given = op.types["a"], sp.values.dtype
    if given != of.storage:
        raise ShapeError(f"A of {op} must have values of {of.storage}; given {given}")
    bits = order.word(op)[0]
    layout = order.layout(bits, sp.indices.shape, granularity)
    if not op.metadata.ordered:  # the instruction allows more codes
        granularity.check(sp.indices, ordered=True)
    words = pack_words(sp.indices, 4, bits)
    meta = _to_places(words, layout).reshape(words.shape)
    return sp.values, meta.view(f"i{bits // 8}")


def _words(meta: ArrayLike, op: Instruction | str, order: _Order) -> Array:
    """A matrix of words of the right size."""
    op, given = sparse(op)[0], as_array(meta)
    allowed = order.word(op)
    if given.dtype.kind not in "iu" or given.itemsize * 8 not in allowed:
        names = one_of(f"int{bits}" for bits in allowed)
        raise ShapeError(
            f"meta of {op.types['a']} must be {names}; given {given.dtype}"
        )
    if given.ndim != 2:
        raise ShapeError(f"meta must be a matrix; given shape {given.shape}")
    return np.ascontiguousarray(given).view(f"u{given.itemsize}")


def _from_words(
    values: ArrayLike, words: Array, op: Instruction | str, order: _Order
) -> Compressed:
    op, granularity = sparse(op)
    bits = words.itemsize * 8
    shape = (words.shape[0], words.shape[1] * (bits // 4))

    def read(order: _Order) -> Codes:
        layout = order.layout(bits, shape, granularity)
        return unpack_words(_from_places(words.reshape(-1), layout), 4)

    sp = _checked(values, read(order), op, granularity, ordered=True)
    odd = _unwritten(sp.values, sp.indices, granularity)
    for other in (_PYTORCH, _MARLIN):
        if odd < _EVIDENCE or other is order or bits not in other.word(op):
            continue
        try:
            codes = read(other)
        except ShapeError:
            continue
        if not _unwritten(sp.values, codes, granularity):
            raise BadMetadata(
                f"the codes are not in the order of {order.name}: {odd} chunks have a "
                f"zero as their first stored value, but not the code "
                f"{granularity.empty:04b} that its conversion writes then; they fit "
                f"the order of {other.name}, which {other.read} reads"
            )
    return sp


def _unwritten(values: Array, codes: Codes, granularity: Granularity) -> int:
    """The number of chunks that neither conversion writes.

    Both search for non-zeros from the left.  So the first stored value is zero only
    if the first half of the chunk is, and then the second half is stored.
    """
    first = values.reshape(*codes.shape, granularity.kept)[..., 0]
    return int(np.count_nonzero(is_zero(first) & (codes != granularity.empty)))


# ── CUTLASS for Hopper ──────────────────────────────────────────────────────


def to_cutlass_sm90(
    op: Instruction | str, sp: Compressed, *, tile_k: int = 128
) -> NDArray[np.uint8]:
    """The bytes of tensor E as CUTLASS's sparse Hopper kernels read them.

    ``tile_k`` is K of the kernel's tile shape.  M is padded to a multiple of 64 and
    K to a multiple of the tile; the padding has the code of an empty chunk.

    >>> import fragmenta as fm
    >>> from fragmenta.reference.sparse.compression import compress
    >>> op = fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")
    >>> to_cutlass_sm90(op, compress(op, np.eye(64, 256))).shape
    (2048,)
    """
    op, granularity = sparse(op)
    check_compressed(sp, op)
    *batch, rows, chunks = sp.indices.shape
    layout = _cutlass_layout(op, granularity, rows, chunks, tile_k)
    padded = np.full((*batch, *layout.shape), granularity.empty, np.uint8)
    padded[..., :rows, :chunks] = sp.indices
    bits = 4 * dict(layout.axes)["N"]
    image = _to_places(pack_words(padded, 4, bits), layout)
    return np.ascontiguousarray(image).view(np.uint8)


def from_cutlass_sm90(
    op: Instruction | str, values: ArrayLike, metadata: ArrayLike, *, tile_k: int = 128
) -> Compressed:
    """A compressed matrix from stored values and the bytes of CUTLASS's tensor E.

    Padding is ignored.  CUTLASS writes the code 0000 for a chunk of zeros, which the
    ISA does not allow, because it names a place twice.  If both stored values are
    zero, it is read as the code of an empty chunk; otherwise it is refused.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")
    >>> from_cutlass_sm90(op, np.zeros((64, 64)), np.zeros(1024, np.uint8))
    <Compressed 64x128 float16, 2:4>
    """
    op, granularity = sparse(op)
    stored = op.types["a"].decode(op.types["a"].encode(as_array(values)))
    *batch, rows, width = stored.shape if stored.ndim > 1 else (0, 0)
    chunks = width // granularity.kept
    layout = _cutlass_layout(op, granularity, rows, chunks, tile_k)
    image = _image(metadata, (*batch, layout.shape[0] * layout.shape[1] // 2))
    words = image.view(f"u{dict(layout.axes)['N'] // 2}")
    codes = unpack_words(_from_places(words, layout), 4)[..., :rows, :chunks]
    if stored.shape[-1:] == (chunks * granularity.kept,) and granularity.picks == 2:
        zeros = is_zero(stored).reshape(*codes.shape, granularity.kept).all(axis=-1)
        codes = np.where((codes == 0) & zeros, np.uint8(granularity.empty), codes)
    return _checked(stored, codes, op, granularity)


def _image(metadata: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    stored = as_array(metadata)
    if stored.dtype.kind not in "iuV" or stored.dtype.hasobject:
        raise ShapeError(f"metadata must be bytes or integers; given {stored.dtype}")
    given = np.ascontiguousarray(stored).view(np.uint8)
    if given.size != np.prod(shape, dtype=int):
        raise ShapeError(
            f"the metadata of these values must have {shape[-1]} bytes for each "
            f"matrix; given {given.size} bytes in all"
        )
    return given.reshape(shape)


def _cutlass_layout(
    op: Instruction, granularity: Granularity, rows: int, chunks: int, tile_k: int
) -> Layout:
    width = op.types["a"].bits
    if width not in CUTLASS or granularity.group != 1:
        raise BadCall(f"CUTLASS has no sparse Hopper kernels for {op.types['a']}")
    check_numbers(tile_k=tile_k)
    if not rows * chunks:
        raise ShapeError(f"the matrix is empty; given {rows} rows of {chunks} chunks")
    block = 512 // width  # columns of one instruction
    tile = min(tile_k, 128)
    if tile <= 0 or tile % block:
        raise ShapeError(
            f"tile_k of {op.types['a']} must be a multiple of {block}; given {tile_k}"
        )
    sizes = {
        "X": -(-chunks * granularity.chunk // tile),
        "Y": -(-rows // 64),
    }
    if width == 8:
        sizes |= {"R": 64, "C": tile // granularity.chunk // 8, "N": 8}
    else:
        sizes |= {"W": 4, "P": 2, "G": 8, "B": tile // block, "H": 2, "N": 4}
    return Layout.parse(CUTLASS[width], **sizes)


# ── moving words ────────────────────────────────────────────────────────────


def _split(layout: Layout) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The digits of a matrix of words, outermost first, and their memory order."""
    words = layout.without("N")
    digits = [d for name in words.data for d in dict(words.coordinates)[name][::-1]]
    axes = [name for name, _ in words.axes]
    order = sorted(
        range(len(digits)),
        key=lambda i: (axes.index(digits[i].axis), -digits[i].stride),
    )
    return tuple(digit.size for digit in digits), tuple(order)


def _to_places(words: Array, layout: Layout) -> Array:
    """A matrix of words (…, rows, columns) in memory order, (…, words)."""
    sizes, order = _split(layout)
    batch = words.shape[:-2]
    axes = (*range(len(batch)), *(len(batch) + i for i in order))
    places = prod(sizes)
    return words.reshape(*batch, *sizes).transpose(axes).reshape(*batch, places)


def _from_places(image: Array, layout: Layout) -> Array:
    """The matrix of words: the inverse of :func:`_to_places`."""
    sizes, order = _split(layout)
    batch = image.shape[:-1]
    back = np.argsort(order)
    axes = (*range(len(batch)), *(len(batch) + int(i) for i in back))
    rows, chunks = layout.shape
    columns = chunks // dict(layout.axes)["N"]
    digits = image.reshape(*batch, *(sizes[i] for i in order))
    return digits.transpose(axes).reshape(*batch, rows, columns)


def _checked(
    values: ArrayLike,
    codes: Codes,
    op: Instruction,
    granularity: Granularity,
    ordered: bool = False,
) -> Compressed:
    """A compressed matrix whose codes the instruction allows."""
    of = op.types["a"]
    sp = Compressed(of.decode(of.encode(as_array(values))), codes, granularity)
    granularity.check(sp.indices, ordered or op.metadata.ordered)
    return sp
