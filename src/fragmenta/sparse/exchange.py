"""In what order do others keep the same codes?

The stored values of a sparse matrix are everywhere the same (…, M, K/2); what
differs is the order of the codes beside them.  Each order is one line that
permutes digits, as every layout here is, over a memory image::

    plain     row-major nibbles, the first chunk in the low half of a byte
    torch     PyTorch's SparseSemiStructuredTensorCUTLASS: int16 or int32
    marlin    Sparse-Marlin, and what vLLM and torchao took from it: the same
              words in another order, from a function of the same name
    cutlass   CUTLASS's kernels for Hopper (sm_90a), by tile K: bytes

Axis N is the nibble in a word, X and Y count tiles along k and m, outermost
first.  The blob of cuSPARSELt, which ``to_sparse_semi_structured`` makes where
that library is installed, is undisclosed: only cuSPARSELt reads it.

>>> import fragmenta as fm
>>> from fragmenta.sparse.compress import compress
>>> op = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
>>> sp = compress([[0, 0, 3, 4, 5, 0, 0, 8]], op)
>>> [hex(byte) for byte in to_nibbles(sp)[0]]
['0xce']
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.arrays.checks import as_array, check_numbers, is_zero
from fragmenta.errors import BadMetadata, Error, ShapeError, one_of
from fragmenta.isa.instruction import Instruction
from fragmenta.registers.granularity import Codes, Granularity
from fragmenta.registers.layout import Layout
from fragmenta.registers.words import pack_words, unpack_words
from fragmenta.sparse.compress import (
    Compressed,
    check_compressed,
    require_compressed,
    sparse,
)

Array = NDArray[Any]

# By the bits of a word: the words of so many rows and two columns of words, in
# memory order O.
TORCH = {
    16: "row = O3 O4 O5 O0 O2 Y*  chunk = N* O1 X*",  # 32 rows
    32: "row = O2 O3 O4 O0 Y*  chunk = N* O1 X*",  # 16
}
# Rows 8g + j and 8g + 4 + j share 32 bits, which four ``mma.sp`` (j) of one warp
# take as rows g and g + 8: O1 to O5 are the lane, O2 the selector, O6 the register.
MARLIN = dict.fromkeys((16, 32), "row = O2 O6 O0 O3 O4 O5 Y*  chunk = N* O1 X*")

# A tile is 64 rows.  Of 16 and 32-bit types, the word of row G is followed by
# that of row G + 8 (H), then come the blocks of further instructions (B): what
# one lane needs lies together.  P is the lane's half of the columns, W the warp.
CUTLASS = {
    8: "row = R* Y*  chunk = N* C* X*",
    16: "row = G* H* W* Y*  chunk = N* P* B* X*",
    32: "row = G* H* W* Y*  chunk = N* P* B* X*",
}


# ── plain row-major nibbles ─────────────────────────────────────────────────


def to_nibbles(sp: Compressed) -> NDArray[np.uint8]:
    """Two codes per byte in row-major order, (…, M, chunks / 2).

    >>> import fragmenta as fm
    >>> from fragmenta.sparse.compress import compress
    >>> op = fm.mma("m16n8k8", a="tf32", sp="sp::ordered_metadata")
    >>> [f"{b:08b}" for b in to_nibbles(compress(np.float32([[0, 1, 2, 0]]), op))[0]]
    ['01001110']
    """
    require_compressed(sp)
    if sp.indices.shape[-1] % 2:
        raise ShapeError(
            f"two codes share a byte, so a row has an even number of chunks; "
            f"this one has {sp.indices.shape[-1]}"
        )
    return pack_words(sp.indices, 4, 8)


def from_nibbles(
    values: ArrayLike, nibbles: ArrayLike, op: Instruction | str
) -> Compressed:
    """Stored values with plain nibbles, in bytes or in little-endian words.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k8", a="tf32", sp="sp::ordered_metadata")
    >>> from_nibbles(np.float32([[1, 2]]), np.uint8([[0b01001110]]), op).columns()
    array([[1, 2]], dtype=int32)
    """
    words = as_array(nibbles)
    if words.dtype.kind not in "iu" or not words.ndim:
        raise ShapeError(f"nibbles come in integers of 8 bits or more, not {words!r}")
    codes = unpack_words(words.view(f"u{words.itemsize}"), 4)
    return _checked(values, codes, *sparse(op))


# ── PyTorch ─────────────────────────────────────────────────────────────────


class TorchSparse(NamedTuple):
    """What PyTorch's SparseSemiStructuredTensorCUTLASS holds.

    >>> TorchSparse(np.ones((16, 32)), np.zeros((16, 2), np.int32)).meta.dtype
    dtype('int32')
    """

    packed: Array
    """The stored values, (M, K/2)."""
    meta: Array
    """The reordered codes, int32 for 8-bit types, else int16."""


def to_torch(sp: Compressed, op: Instruction | str) -> TorchSparse:
    """``packed`` and ``meta`` as PyTorch's CUTLASS backend wants them.

    For f16, bf16, tf32 (torch.float32) and s8.  Rows are a multiple of 32 (16
    for s8) and words a multiple of two in a row, as PyTorch asks.

    >>> import fragmenta as fm
    >>> from fragmenta.sparse.compress import compress
    >>> op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> packed, meta = to_torch(compress(np.eye(32, dtype=np.float16), op), op)
    >>> packed.shape, meta.shape, meta.dtype
    ((32, 16), (32, 2), dtype('int16'))
    """
    return TorchSparse(*_to_words(sp, op, _PYTORCH))


def from_torch(packed: ArrayLike, meta: ArrayLike, op: Instruction | str) -> Compressed:
    """The ``packed`` and ``meta`` of a PyTorch tensor of the CUTLASS backend.

    Codes that are not ordered are refused, and so are those of Sparse-Marlin
    where the stored zeros give them away; if no stored value is zero nothing
    does, and :func:`from_sparse_marlin` has to be asked by name.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> meta = np.full((32, 2), 0x4444, np.int16)
    >>> from_torch(np.ones((32, 16), np.float16), meta, op).columns()[5, :4]
    array([0, 1, 4, 5], dtype=int32)
    """
    words = _words(meta, op, _PYTORCH)
    return _from_words(packed, words, op, _PYTORCH)


# ── Sparse-Marlin ───────────────────────────────────────────────────────────


class SparseMarlin(NamedTuple):
    """What Sparse-Marlin's sparse_semi_structured_from_dense_cutlass returns.

    >>> SparseMarlin(np.ones((64, 16)), np.zeros((64, 2), np.int16)).meta.shape
    (64, 2)
    """

    packed: Array
    """The stored values, (M, K/2), before they are quantized and permuted."""
    meta: Array
    """The reordered codes, (M, K/16) of int16 (of s8: (M, K/32) of int32)."""


def to_sparse_marlin(sp: Compressed, op: Instruction | str) -> SparseMarlin:
    """Values and codes as Sparse-Marlin's conversion orders them.

    For f16, bf16, tf32 (torch.float32) and s8; M, the output features, is a
    multiple of 64.  The kernels take the int16 codes of an f16 A.  vLLM and
    torchao keep the same codes as ``meta.reshape(K // 32, 2 * M)``.

    >>> import fragmenta as fm
    >>> from fragmenta.sparse.compress import compress
    >>> op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> packed, meta = to_sparse_marlin(compress(np.eye(64, dtype=np.float16), op), op)
    >>> packed.shape, meta.shape, meta.dtype
    ((64, 32), (64, 4), dtype('int16'))
    """
    return SparseMarlin(*_to_words(sp, op, _MARLIN))


def from_sparse_marlin(
    packed: ArrayLike, meta: ArrayLike, op: Instruction | str
) -> Compressed:
    """Values and codes of Sparse-Marlin, vLLM's or torchao's Marlin 2:4.

    ``packed`` is (M, K/2), the values of each row side by side: what their
    sparse_semi_structured_from_dense_cutlass returns, not the permuted words of
    4 or 8 bits that the kernel takes.  ``meta`` is (M, K/16) of int16, or
    (K/32, 2M) as vLLM and torchao keep it; an s8 A may have (M, K/32) of int32.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
    >>> meta = np.full((1, 128), 0x4444, np.int16)
    >>> from_sparse_marlin(np.ones((64, 16), np.float16), meta, op).columns()[5, :4]
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
    """How someone keeps words of codes."""

    name: str
    lines: dict[int, str]
    """By the bits of a word, where each is in memory."""
    bits: dict[str, tuple[int, ...]]
    """By the element type, the bits of a word; the first is written."""
    read: str

    def layout(
        self, bits: int, shape: tuple[int, ...], granularity: Granularity
    ) -> Layout:
        """The layout of a matrix of codes, or what is wrong with its shape."""
        line, per_word = self.lines[bits], bits // 4
        places = (
            1 << max(int(digit[1:]) for digit in line.split() if digit[0] == "O") + 1
        )
        parts = (places // 2, 2 * per_word)
        if len(shape) != 2 or not all(shape) or any(np.remainder(shape, parts)):
            columns = parts[1] * granularity.chunk
            raise ShapeError(
                f"{self.name} takes matrices of {parts[0]} rows and {columns} columns, "
                f"or multiples; these are codes of shape {shape}"
            )
        y, x = (size // part for size, part in zip(shape, parts, strict=True))
        return Layout.parse(line, X=x, Y=y, O=places, N=per_word)

    def word(self, op: Instruction) -> tuple[int, ...]:
        """The bits of a word of metadata, by the type of A."""
        of = op.types["a"].name
        if of not in self.bits:
            raise Error(f"{self.name} has {one_of(self.bits, 'and')}, not {of}")
        return self.bits[of]


_HALF: dict[str, tuple[int, ...]] = {"f16": (16,), "bf16": (16,), "tf32": (16,)}
_PYTORCH = _Order(
    "PyTorch's CUTLASS backend", TORCH, _HALF | {"s8": (32,)}, "from_torch"
)
# Quantized values that come as int32 have words of 16 bits, those of int8 32.
_MARLIN = _Order(
    "Sparse-Marlin", MARLIN, _HALF | {"s8": (32, 16)}, "from_sparse_marlin"
)
#: So many chunks that no conversion writes are no accident.
_EVIDENCE = 8


def _to_words(
    sp: Compressed, op: Instruction | str, order: _Order
) -> tuple[Array, Array]:
    op, granularity = sparse(op)
    check_compressed(sp, op)
    of, given = op.types["a"], sp.values.dtype
    if given != of.storage:
        raise ShapeError(f"A of {op} is {of}; its values are {given}")
    bits = order.word(op)[0]
    layout = order.layout(bits, sp.indices.shape, granularity)
    if not op.metadata.ordered:  # the instruction would take more codes
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
        raise ShapeError(f"meta of {op.types['a']} is {names}; given {given.dtype}")
    if given.ndim != 2:
        raise ShapeError(f"meta is a matrix; given shape {given.shape}")
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
                f"this is not the order of {order.name}: in {odd} chunks the first "
                f"stored value is zero and the code is not {granularity.empty:04b}, "
                f"which its conversion always writes there; in the order of "
                f"{other.name} there is none such: {other.read} reads it"
            )
    return sp


def _unwritten(values: Array, codes: Codes, granularity: Granularity) -> int:
    """Chunks that neither conversion writes.

    Both look for non-zeros from the left, so the first stored value is zero
    only where the first half of the chunk is, and then the last half is kept.
    """
    first = values.reshape(*codes.shape, granularity.kept)[..., 0]
    return int(np.count_nonzero(is_zero(first) & (codes != granularity.empty)))


# ── CUTLASS for Hopper ──────────────────────────────────────────────────────


def to_cutlass_sm90(
    sp: Compressed, op: Instruction | str, *, tile_k: int = 128
) -> NDArray[np.uint8]:
    """The bytes of tensor E as CUTLASS's sparse Hopper kernels read them.

    ``tile_k`` is the K of the kernel's tile shape.  M is padded to 64 and K
    to the tile; the padding holds the code of an empty chunk.

    >>> import fragmenta as fm
    >>> from fragmenta.sparse.compress import compress
    >>> op = fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")
    >>> to_cutlass_sm90(compress(np.eye(64, 256), op), op).shape
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
    values: ArrayLike, metadata: ArrayLike, op: Instruction | str, *, tile_k: int = 128
) -> Compressed:
    """Stored values with the bytes of CUTLASS's tensor E; padding is ignored.

    CUTLASS writes 0000 for a chunk of zeros, which the ISA does not allow
    (it names a place twice).  Where both stored values are zero it is read as
    the code of an empty chunk; anywhere else it is refused.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="f16", d="f32", sp="sp")
    >>> from_cutlass_sm90(np.zeros((64, 64)), np.zeros(1024, np.uint8), op)
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
    given = np.ascontiguousarray(as_array(metadata)).view(np.uint8)
    if given.size != np.prod(shape, dtype=int):
        raise ShapeError(
            f"the metadata of these values is {shape[-1]} bytes for each matrix; "
            f"given {given.size} bytes in all"
        )
    return given.reshape(shape)


def _cutlass_layout(
    op: Instruction, granularity: Granularity, rows: int, chunks: int, tile_k: int
) -> Layout:
    width = op.types["a"].bits
    if width not in CUTLASS or granularity.group != 1:
        raise Error(f"CUTLASS has no sparse Hopper kernels for {op.types['a']}")
    check_numbers(tile_k=tile_k)
    if not rows * chunks:
        raise ShapeError(f"{rows} rows of {chunks} chunks are no matrix to tile")
    block = 512 // width  # columns of one instruction
    tile = min(tile_k, 128)
    if tile <= 0 or tile % block:
        raise ShapeError(
            f"tile_k of {op.types['a']} is a multiple of {block}; given {tile_k}"
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
    """The matrix of words again: undoes :func:`_to_places`."""
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
    """Values in the storage of A, beside codes that the instruction allows."""
    of = op.types["a"]
    sp = Compressed(of.decode(of.encode(as_array(values))), codes, granularity)
    granularity.check(sp.indices, ordered or op.metadata.ordered)
    return sp
