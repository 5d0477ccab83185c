"""Stores a sparse A of 4-bit integers: three bits for each weight, and scales.

A weight is integer x scale, and 32, 64 or 128 columns of a row, or all of them, share a
scale.  Two of four integers are stored.  For each 64 rows and 128 columns there are the
integers, 16 bytes for each of the 128 lanes that multiply them, then the metadata words
of these lanes, and then the scales of the rows::

    packed[256 rows][64 rows][slab][integers, metadata, scales]

A lane converts its integers to the type of the other operand without looking anything
up.  For bf16 and f16 a nibble is the integer plus 8, and the two elements of a register
are 16 bits apart.  For e4m3 a byte has two of them: three bits of each, and two signs.

Where an element goes is what the fragment of A says; no layout is written again here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall, ShapeError, ValueRangeError
from fragmenta.hopper.kernels.config import (
    GROUP_SCALES,
    GROUPS,
    PACKED_M,
    SLAB_S4,
    Kernel,
    Tile,
)
from fragmenta.hopper.kernels.packing import BLOCK, Packed, codes_of, metadata_words
from fragmenta.reference.sparse.compression import Compressed, sparse

SCALE_TYPES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
"""What scales are stored as."""
_LIMITS = {"f16": (2.0**-24, 65504.0), "bf16": (2.0**-133, 3.3895313892515355e38)}
LEAST, LARGEST = -8, 7
"""The integers."""
_LANES = 128
_INTEGERS = 16 * _LANES  # bytes of a block before its metadata
_CODES = 8 * _LANES
_SIGNS, _LOW = np.uint32(0x80808080), np.uint32(0x07070707)


@dataclass(frozen=True, eq=False, repr=False)
class PackedIntegers(Packed):
    """The packed bytes of a sparse A of 4-bit integers, with its groups.

    >>> import numpy as np, fragmenta as fm
    >>> from fragmenta.hopper.kernels.four_bits import pack_integers, quantize_groups
    >>> op = fm.wgmma("m64n8k32", a="bf16", d="f32", sp="sp")
    >>> sp = fm.sparse.compress(op, np.zeros((256, 1024), "bfloat16"))
    >>> pack_integers(*quantize_groups(sp, 128), group=128)
    <PackedIntegers 256x1024 s4 for bf16, f16 by 128, 102400 bytes>
    """

    b: str = "bf16"
    """The type that it is multiplied with; bf16 and f16 have the same bytes."""
    group: int = 0
    """Columns that share a scale; 0 if there are none here."""
    scales: str = "f16"
    """The type of the scales."""

    def __repr__(self) -> str:
        rows, columns = self.shape
        by = f", {self.scales} by {self.group}" if self.group else ""
        size = f"{self.data.size} bytes"
        return f"<PackedIntegers {rows}x{columns} s4 for {self.b}{by}, {size}>"


class Integers(NamedTuple):
    """What 4-bit integers are stored for: a type that has a name.

    >>> Integers("bf16", 128).name, Integers("e4m3", 0).name
    ('s4-128', 's4-row-e4m3')
    >>> Integers.named("s4-64-e4m3")
    Integers(b='e4m3', group=64, scales='f16')
    >>> Integers.named("bf16") is None
    True
    """

    b: str = "bf16"
    """bf16, which stands for f16, too; or e4m3."""
    group: int = 128
    scales: str = "f16"

    @property
    def name(self) -> str:
        """The name: s4, the columns that share a scale, and what is not usual."""
        words = ["s4", str(self.group or "row")]
        words += [self.scales] if self.scales != "f16" and self.group else []
        return "-".join(words + ([self.b] if self.b == "e4m3" else []))

    @classmethod
    def named(cls, name: object) -> Integers | None:
        """The format with this name; None if it is another type."""
        return _NAMED.get(name) if isinstance(name, str) else None

    @property
    def takes(self) -> tuple[str, ...]:
        """The types that it is multiplied with."""
        return ("e4m3",) if self.b == "e4m3" else ("bf16", "f16")

    def kernel(self, b: str = "") -> Kernel:
        """A kernel of these types, with any tile."""
        return _kernel(b or self.b, self.group, self.scales)

    def packed_shape(self, m: int, k: int) -> tuple[int, int, int, int]:
        """The shape of the packed bytes of an m x k matrix.

        >>> Integers("bf16", 128).packed_shape(300, 256)
        (2, 4, 2, 3200)
        """
        size = self.kernel().block_bytes
        return -(-m // PACKED_M), PACKED_M // BLOCK, -(-k // SLAB_S4), size

    def empty_block(self) -> NDArray[np.uint8]:
        """The bytes of a block of zeros."""
        zero = np.zeros((BLOCK, SLAB_S4 // 2), np.int8)
        granularity = sparse(self.kernel().instruction)[1]
        codes = np.full((BLOCK, SLAB_S4 // 4), granularity.empty, np.uint8)
        ones = np.ones((BLOCK, self.kernel().groups), SCALE_TYPES[self.scales])
        sp = Compressed(zero, codes, granularity)
        packed = pack_integers(
            sp, ones if self.group else None, b=self.b, group=self.group
        )
        block: NDArray[np.uint8] = packed.data[0, 0, 0]
        return block


_NAMED = {
    each.name: each
    for b in ("bf16", "e4m3")
    for group in GROUPS
    for scales in GROUP_SCALES
    for each in [Integers(b, group, scales)]
    if (group or scales == "f16") and not (b == "e4m3" and group == 32)
}
INTEGERS = tuple(_NAMED)
"""The names of all formats."""


@lru_cache(maxsize=64)
def _kernel(b: str, group: int, scales: str) -> Kernel:
    """A kernel of these types; all of them have the same order in memory."""
    return Kernel("s4", b, tile=Tile(64, 8), group=group, scales=scales)


# ── numbers to integers ─────────────────────────────────────────────────────


def quantize_groups(
    sp: Compressed, group: int, scales: str = "f16"
) -> tuple[Compressed, Array]:
    """The integers of a compressed matrix, and the scale of each group of columns.

    A scale is the largest magnitude of its group / 7, rounded to its type; 1 for a
    group of zeros.  Each number is divided by it and rounded once, to the nearest
    integer from -8 to 7, ties to even.  A ``group`` of 0 is a whole row.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="bf16", d="f32", sp="sp")
    >>> sp = fm.sparse.compress(op, np.array([[0, 1, -3.5, 0]], "bfloat16"))
    >>> integers, factors = quantize_groups(sp, 32)
    >>> integers.values, factors
    (array([[ 2, -7]], dtype=int8), array([[0.5]], dtype=float16))
    """
    numbers = np.asarray(sp.values).astype(np.float32)
    if not np.isfinite(numbers).all():
        raise ValueRangeError("weights of 4 bits must be finite; given NaN or infinity")
    rows, stored = numbers.shape
    wide = group * sp.granularity.kept // sp.granularity.chunk or stored
    count = -(-stored // wide)
    padded = np.zeros((rows, count * wide), np.float32)
    padded[:, :stored] = numbers
    parts = padded.reshape(rows, count, wide)
    largest = np.abs(parts).max(axis=2).astype(np.float64) / LARGEST
    of = SCALE_TYPES[scales]
    least, most = _LIMITS[scales]
    bounded = np.clip(largest, least, most)
    factors = np.where(largest > 0, bounded, 1.0).astype(np.float32).astype(of)
    wide_factors = factors.astype(np.float64)[:, :, None]
    rounded = np.clip(np.rint(parts / wide_factors), LEAST, LARGEST)
    integers = rounded.astype(np.int8).reshape(rows, -1)[:, :stored]
    made = Compressed(integers, sp.indices, sp.granularity, sp.width)
    return made, factors


def numbers_of(sp: Compressed, scales: ArrayLike, group: int) -> NDArray[np.float32]:
    """The stored values of integers with scales: integer x scale, in float32.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="bf16", d="f32", sp="sp")
    >>> sp = fm.sparse.compress(op, np.array([[0, 1, -3.5, 0]], "bfloat16"))
    >>> numbers_of(*quantize_groups(sp, 32), 32)
    array([[ 1. , -3.5]], dtype=float32)
    """
    stored = sp.values.shape[1]
    wide = group * sp.granularity.kept // sp.granularity.chunk or stored
    factors = as_array(scales).astype(np.float32).repeat(wide, axis=1)[:, :stored]
    return np.asarray(sp.values).astype(np.float32) * factors


# ── integers to bytes ───────────────────────────────────────────────────────


def pack_integers(
    sp: Compressed, scales: ArrayLike | None = None, *, b: str = "bf16", group: int = 0
) -> PackedIntegers:
    """Integers from -8 to 7 and their scales in the order of the kernels.

    ``scales`` are (rows, groups) of float16 or bfloat16; with ``group=0`` a row has
    none here, and the kernel takes them as ``scale_m``.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="bf16", d="f32", sp="sp")
    >>> rng = np.random.default_rng(0)
    >>> A = fm.sparse.prune(op, rng.normal(size=(64, 256))).astype("bfloat16")
    >>> integers, factors = quantize_groups(fm.sparse.compress(op, A), 64)
    >>> packed = pack_integers(integers, factors, b="e4m3", group=64)
    >>> again, same = unpack_integers(packed)
    >>> bool((again.values == integers.values).all() and (same == factors).all())
    True
    """
    factors = None if scales is None or not group else as_array(scales)
    named = {of: name for name, of in SCALE_TYPES.items()}
    if factors is not None and factors.dtype not in named:
        raise BadCall(
            f"scales of groups are float16 or bfloat16; given {factors.dtype}"
        )
    kernel = _kernel(b, group, named[factors.dtype] if factors is not None else "f16")
    op, granularity = sparse(kernel.instruction)
    _check_integers(sp, factors, group)
    m, k = sp.shape
    tall, blocks, slabs, size = Integers(b, group).packed_shape(m, k)
    rows = tall * PACKED_M
    raw = np.zeros((rows, slabs * SLAB_S4 // 2), op.types["a"].bits_dtype)
    codes = np.full((rows, slabs * SLAB_S4 // 4), granularity.empty)
    raw[:m, : sp.values.shape[1]] = _encoded(sp.values, b)
    raw[m:] = raw[:m, sp.values.shape[1] :] = _encoded(np.zeros(1, np.int8), b)[0]
    codes[:m, : sp.indices.shape[1]] = sp.indices
    data = np.empty((tall, blocks, slabs, size), np.uint8)
    registers = op.a.pack_tiles(raw.view(op.types["a"].storage)).view(np.uint32)
    words = _joined(registers, b)
    _fill(data, 0, words.reshape(tall, blocks, slabs, -1))
    words = metadata_words(codes.astype(np.uint8), op, kernel.words)
    _fill(data, _INTEGERS, words.reshape(tall, blocks, slabs, -1))
    if factors is not None:
        all_scales = np.ones((rows, slabs * kernel.groups), factors.dtype)
        all_scales[:m, : factors.shape[1]] = factors
        # Rows of a warp: 16, and a lane has those that are 8 apart.
        cut = all_scales.reshape(tall, blocks, 4, 2, 8, slabs, kernel.groups)
        ordered = np.ascontiguousarray(cut.transpose(0, 1, 5, 2, 4, 6, 3))
        _fill(data, _INTEGERS + _CODES, ordered.reshape(tall, blocks, slabs, -1))
    return PackedIntegers(data, "s4", (m, k), b, group, kernel.scales)


def _fill(data: Array, first: int, parts: Array) -> None:
    """Put parts of (256 rows, blocks, slabs) into the packed blocks."""
    bytes_ = np.ascontiguousarray(parts).view(np.uint8)
    data[..., first : first + bytes_.shape[-1]] = bytes_


def _check_integers(sp: Compressed, scales: Array | None, group: int) -> None:
    values = np.asarray(sp.values)
    if values.ndim != 2 or not values.size:
        raise ShapeError(
            f"pack_integers takes one matrix that is not empty; given values of shape "
            f"{values.shape}"
        )
    if str(sp.granularity) != "2:4":
        raise BadCall(f"4-bit integers are stored 2:4; given {sp.granularity}")
    if values.min() < LEAST or values.max() > LARGEST:
        raise ValueRangeError(
            f"integers of 4 bits are {LEAST} to {LARGEST}; given {values.min()} to "
            f"{values.max()}"
        )
    wanted = (len(values), -(-sp.width // group)) if group else None
    given = None if scales is None else scales.shape
    if given != wanted:
        raise ShapeError(
            f"{len(values)}x{sp.width} in groups of {group} has scales of shape "
            f"{wanted}; given {given}"
        )


def _encoded(values: Array, b: str) -> Array:
    """Each integer as its register of A has it, before two share a byte."""
    whole = np.asarray(values).astype(np.int8)
    if b != "e4m3":
        return (whole + np.int8(8)).astype(np.uint16)
    negative = whole < 0
    found: Array = np.where(negative, -1 - whole | np.int8(-128), whole).view(np.uint8)
    return found


def _joined(words: NDArray[np.uint32], b: str) -> NDArray[np.uint32]:
    """Four words of integers for each lane and slab: (blocks, slabs, lanes, 4)."""
    tall = len(words)
    if b != "e4m3":  # one word for an instruction: its register i has the nibbles i
        moved = words << np.arange(0, 16, 4, dtype=np.uint32)
        made = np.bitwise_or.reduce(moved, axis=-1).reshape(tall, -1, 4, _LANES)
    else:  # two words: one for two registers, the second one turned by four bits
        second = words[..., 1::2]
        turned = second << np.uint32(4) | second >> np.uint32(28)
        made = (words[..., ::2] | turned).reshape(tall, -1, 2, _LANES, 2)
        made = made.swapaxes(-1, -2).reshape(tall, -1, 4, _LANES)
    return np.ascontiguousarray(made.swapaxes(-1, -2))


def _parted(words: NDArray[np.uint32], b: str) -> NDArray[np.uint32]:
    """The registers of all tiles: the inverse of :func:`_joined`."""
    tall = len(words)
    made = words.swapaxes(-1, -2)
    if b != "e4m3":
        made = made.reshape(tall, -1, _LANES, 1)
        moved = made >> np.arange(0, 16, 4, dtype=np.uint32)
        return moved & np.uint32(0x000F000F)
    made = made.reshape(tall, -1, 2, _LANES).swapaxes(-1, -2)
    turned = made >> np.uint32(4) | made << np.uint32(28)
    both = np.stack([made, turned], axis=-1) & (_SIGNS | _LOW)
    return np.ascontiguousarray(both).reshape(tall, -1, _LANES, 4)


def unpack_integers(packed: PackedIntegers) -> tuple[Compressed, Array | None]:
    """The integers and scales of packed bytes: the inverse of :func:`pack_integers`."""
    b, group = packed.b, packed.group
    kernel = _kernel(b, group, packed.scales)
    op, granularity = sparse(kernel.instruction)
    m, k = packed.shape
    tall, blocks, slabs, _ = packed.data.shape
    ordered = packed.data
    words = np.ascontiguousarray(ordered[..., :_INTEGERS]).view(np.uint32)
    registers = _parted(words.reshape(tall * blocks, slabs, _LANES, 4), b)
    rows, wide = tall * PACKED_M, slabs * SLAB_S4 // 2
    raw = op.a.unpack_tiles(registers, (rows, wide)).view(op.types["a"].bits_dtype)
    bytes_ = packed.data[..., _INTEGERS : _INTEGERS + _CODES].swapaxes(1, 2)
    codes = codes_of(bytes_, op, kernel.words)
    chunks = -(-k // granularity.chunk)
    values = _decoded(raw[:m, : chunks * granularity.kept], b)
    found = Compressed(values, codes[:m, :chunks], granularity, k)
    if not group:
        return found, None
    bytes_ = np.ascontiguousarray(ordered[..., _INTEGERS + _CODES :])
    cut = bytes_.view(SCALE_TYPES[packed.scales])
    cut = cut.reshape(tall, blocks, slabs, 4, 8, kernel.groups, 2)
    factors = cut.transpose(0, 1, 3, 6, 4, 2, 5).reshape(rows, -1)
    return found, np.ascontiguousarray(factors[:m, : -(-k // group)])


def _decoded(raw: Array, b: str) -> NDArray[np.int8]:
    if b != "e4m3":
        return raw.astype(np.int8) - np.int8(8)
    low = (raw & 7).astype(np.int8)
    found: NDArray[np.int8] = np.where(raw >> 7, -1 - low, low).astype(np.int8)
    return found


def multiplied_values(sp: Compressed, b: str) -> Compressed:
    """The integers as the tensor core gets them: for e4m3, multiples of 2^-9.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k64", a="e4m3", d="f32", sp="sp")
    >>> sp = fm.sparse.compress(op, np.array([[0, 1, -7, 0]], "float8_e4m3fn"))
    >>> multiplied_values(quantize_groups(sp, 0)[0], "e4m3").values.astype(float) * 512
    array([[ 1., -7.]])
    """
    op = _kernel(b, 0, "f16").instruction
    unit = 512.0 if b == "e4m3" else 1.0
    numbers = np.asarray(sp.values).astype(np.float32) / np.float32(unit)
    values = numbers.astype(op.types["a"].storage)
    return Compressed(values, sp.indices, sp.granularity, sp.width)
