"""Which bytes are in shared memory?

An *image* is the content of shared memory from a multiple of 1024 on: an array of
bytes, whose index is the address.  :func:`shared_tile` writes a matrix into an image,
and :func:`read_tile` reads what ``wgmma`` reads.  The descriptor says where each
element is.  :func:`tensor_map` describes tensor-map copies that write the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.arrays.checks import as_array, batch_shape
from fragmenta.errors import AddressError, Error, ShapeError
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.reading import instruction
from fragmenta.registers.dtype import DType, dtype
from fragmenta.registers.words import pack_words, unpack_words
from fragmenta.shared.descriptor import (
    LIMIT,
    LINES,
    UNIT,
    Addresses,
    Descriptor,
    MajorAxis,
    atoms,
    extent,
    span,
)
from fragmenta.shared.tensor_map import CONSTANT, TensorMap, element_type
from fragmenta.shared.tensor_map_rules import MOST_BOX

Image = NDArray[np.uint8]

PATTERN = 1024
"""Every swizzle pattern repeats after this many bytes."""


# ── writing ─────────────────────────────────────────────────────────────────


def shared_tile(
    matrix: ArrayLike,
    op: Instruction | str,
    operand: str,
    *,
    swizzle: int = 128,
    major: MajorAxis = "k",
    start: int | None = None,
    order: MajorAxis | None = None,
    image: ArrayLike | None = None,
) -> tuple[Image, Descriptor]:
    """An image with a matrix in it, and the descriptor of the matrix.

    A is (…, m, k), or the stored values of a sparse A; B is (…, k, n).  Each is a whole
    number of the instruction's tiles, stored as in :meth:`Descriptor.for_tile`.  The
    tile begins at ``start``.  By default that is 0, or the next multiple of 1024 if
    the tile is added to an ``image``.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> A = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
    >>> image, descriptor = shared_tile(A, op, "A")
    >>> image.shape, str(descriptor)
    ((8192,), 'start 0, leading offset 8192, stride offset 1024, 128-byte swizzle')
    >>> image, b = shared_tile(np.ones((64, 8)), op, "B", image=image)
    >>> image.shape, b.start
    ((9216,), 8192)
    """
    op = instruction(op)
    lines = _lines(matrix, op, operand)
    of = op.types[operand.lower()]
    if start is None:
        before = 0 if image is None else as_image(image).shape[-1]
        start = -(-before // PATTERN) * PATTERN
    shape = (int(lines.shape[-2]), int(lines.shape[-1]))
    descriptor = Descriptor.for_tile(
        *shape, of, major=major, swizzle=swizzle, start=start, order=order
    )
    count, spans = atoms(*shape, of, major, swizzle)
    end = start + count * spans * LINES * span(swizzle)
    if end > LIMIT:
        raise AddressError(
            f"a {shape[0]}x{shape[1]} tile of {of} from byte {start} on ends at "
            f"{end}; it must end by {LIMIT}, the limit of descriptors"
        )
    written = _room(image, lines.shape[:-2], end)
    index, unit = _index(descriptor, shape, of, major)
    values = _cells(lines, of, unit)
    cells = written.view(f"u{unit}")
    cells[..., index.ravel()] = values.reshape(*values.shape[:-2], -1)
    return written, descriptor


def _lines(matrix: ArrayLike, op: Instruction, operand: str) -> NDArray[Any]:
    """Raw bits of the matrix, (…, m or n, k), which must be whole tiles."""
    rows, k = extent(op, operand)
    bits = op.types[operand.lower()].encode(as_array(matrix))
    lines = bits if operand == "A" or bits.ndim < 2 else np.swapaxes(bits, -1, -2)
    if not bits.size or bits.ndim < 2 or lines.shape[-2] % rows or lines.shape[-1] % k:
        whole = f"{rows}x{k}" if operand == "A" else f"{k}x{rows}"
        what = f"the stored {operand}" if op.sparse and operand == "A" else operand
        raise ShapeError(
            f"{what} of {op} must be a whole number of {whole} tiles; given "
            f"{bits.shape}"
        )
    return lines


def _room(image: ArrayLike | None, batch: tuple[int, ...], size: int) -> Image:
    """A new image of at least ``size`` bytes, with the old content."""
    if image is None:
        return np.zeros((*batch, size), np.uint8)
    old = as_image(image)
    batch = batch_shape(image=old.shape[:-1], matrix=batch)
    fresh = np.zeros((*batch, max(size, -(-old.shape[-1] // UNIT) * UNIT)), np.uint8)
    fresh[..., : old.shape[-1]] = old
    return fresh


# ── reading ─────────────────────────────────────────────────────────────────


def read_tile(
    image: ArrayLike,
    descriptor: Descriptor | ArrayLike,
    op: Instruction | str,
    operand: str,
    *,
    major: MajorAxis = "k",
    packed: bool = False,
) -> NDArray[Any]:
    """The raw bits that one ``wgmma`` reads: A (…, m, k) or B (…, k, n).

    ``image`` is (…, bytes).  A descriptor is a :class:`Descriptor`, its 64-bit word,
    or an array of words, whose axes broadcast with those of the image.  A sparse A is
    returned as stored, with half of k.  With ``packed``, b1 is returned as 32-bit
    words along k.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="s8")
    >>> B = np.arange(256, dtype=np.uint8).view(np.int8).reshape(32, 8)
    >>> image, descriptor = shared_tile(B, op, "B", swizzle=32)
    >>> bool((read_tile(image, descriptor, op, "B").view(np.int8) == B).all())
    True
    >>> read_tile(image[:96], descriptor, op, "B")
    Traceback (most recent call last):
    fragmenta.errors.AddressError: B of \
wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8: row 0, column 3 is at address 96, \
outside the image of 96 bytes
    """
    op, memory = instruction(op), as_image(image)
    if isinstance(descriptor, Descriptor):
        return _read(memory, descriptor, op, operand, major, packed)
    words = as_words(descriptor)
    if not words.ndim:
        found = Descriptor.decode(int(words))
        return _read(memory, found, op, operand, major, packed)
    batch = batch_shape(image=memory.shape[:-1], descriptors=words.shape)
    different = np.unique(words)
    if not prod(batch):
        return _no_tiles(batch, op, operand, packed)
    if len(different) == 1:
        found = Descriptor.decode(int(different[0]))
        tile = _read(memory, found, op, operand, major, packed)
        return np.broadcast_to(tile, (*batch, *tile.shape[-2:]))
    # Tiles that share a descriptor are read together.
    images = memory.reshape(prod(memory.shape[:-1]), memory.shape[-1])
    numbers = np.arange(len(images)).reshape(memory.shape[:-1])
    which = np.broadcast_to(numbers, batch).ravel()
    flat = np.broadcast_to(words, batch).ravel()
    places = [np.flatnonzero(flat == word) for word in different]
    parts = [
        _read(images[which[here]], Descriptor.decode(int(word)), op, operand, major,
              packed)
        for word, here in zip(different, places, strict=True)
    ]  # fmt: skip
    order = np.argsort(np.concatenate(places))
    tiles = np.concatenate(parts)[order]
    return tiles.reshape(*batch, *tiles.shape[1:])


def _no_tiles(
    batch: tuple[int, ...], op: Instruction, operand: str, packed: bool
) -> NDArray[Any]:
    """The empty result for a batch without descriptors or images."""
    rows, k = extent(op, operand)
    of = op.types[operand.lower()]
    if packed and of.bits < 8:
        k, kind = k * of.bits // 32, np.dtype(np.uint32)
    else:
        kind = of.bits_dtype
    return np.empty((*batch, *((rows, k) if operand == "A" else (k, rows))), kind)


def _read(
    memory: Image,
    descriptor: Descriptor,
    op: Instruction,
    operand: str,
    major: MajorAxis,
    packed: bool,
) -> NDArray[Any]:
    """Read with one descriptor from any number of images."""
    shape = extent(op, operand)
    of = op.types[operand.lower()]
    index, unit = _index(descriptor, shape, of, major)
    size = memory.shape[-1]
    if (int(index.max()) + 1) * unit > size:
        raise _outside(op, operand, index * unit, unit, size)
    cells = np.ascontiguousarray(memory[..., : size // unit * unit]).view(f"u{unit}")
    index = index if operand == "A" else index.T
    # The index was checked above; "wrap" skips NumPy's slower check.
    found = np.take(cells, index.ravel(), axis=-1, mode="wrap")
    found = found.reshape(*memory.shape[:-1], *index.shape)
    if of.bits >= 8 or packed:
        return found
    if operand == "A":
        return unpack_words(found, of.bits)
    along = np.ascontiguousarray(np.swapaxes(found, -1, -2))
    return np.swapaxes(unpack_words(along, of.bits), -1, -2)


def _outside(
    op: Instruction, operand: str, address: Addresses, unit: int, size: int
) -> AddressError:
    per_cell = extent(op, operand)[1] // address.shape[1]
    table = address if operand == "A" else address.T
    row, column = np.argwhere(table + unit > size)[0].tolist()
    where = int(table[row, column])
    row, column = (
        (row, column * per_cell) if operand == "A" else (row * per_cell, column)
    )
    return AddressError(
        f"{operand} of {op}: row {row}, column {column} is at address {where}, "
        f"outside the image of {size} bytes"
    )


@lru_cache(maxsize=64)
def _index(
    descriptor: Descriptor, shape: tuple[int, int], of: DType, major: MajorAxis
) -> tuple[Addresses, int]:
    """The cell of each row and k, and the bytes of a cell.

    Elements narrower than a byte are moved as 32-bit words.
    """
    rows, k = shape
    step = 1 if of.bits >= 8 else 32 // of.bits
    unit = of.bits * step // 8
    grid = np.ogrid[:rows, :k:step]
    address = descriptor.address(grid[0], grid[1], of, major)
    index: Addresses = np.ascontiguousarray(address // unit)
    index.setflags(write=False)
    return index, unit


def _cells(lines: NDArray[Any], of: DType, unit: int) -> NDArray[Any]:
    if of.bits >= 8:
        return lines
    return pack_words(np.ascontiguousarray(lines), of.bits, 8 * unit)


def as_image(image: ArrayLike) -> Image:
    """Bytes of shared memory, checked: (…, bytes) as uint8.

    >>> as_image([1, 2]).dtype
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: an image of shared memory must be an array of \
uint8, (…, bytes); given int64 of shape (2,)
    """
    given = as_array(image)
    if given.dtype != np.uint8 or not given.ndim:
        raise ShapeError(
            "an image of shared memory must be an array of uint8, (…, bytes); given "
            f"{given.dtype} of shape {given.shape}"
        )
    if given.shape[-1] > LIMIT:
        raise AddressError(
            f"an image has at most {LIMIT} bytes, because descriptors have 18-bit "
            f"addresses; given {given.shape[-1]}"
        )
    return given


def as_words(descriptor: ArrayLike) -> NDArray[np.uint64]:
    """Descriptors as 64-bit words, checked: uint64 of any shape.

    >>> as_words([1 << 62])
    array([4611686018427387904], dtype=uint64)
    """
    given = as_array(descriptor)
    if given.dtype.kind not in "iu" or (given.dtype.kind == "i" and (given < 0).any()):
        raise AddressError(
            "a descriptor must be a Descriptor, a 64-bit word or an array of words; "
            f"given {descriptor!r}"
        )
    return given.astype(np.uint64)


# ── the same bytes by a tensor map ──────────────────────────────────────────


@dataclass(frozen=True)
class TileCopies:
    """The tensor-map copies that write the bytes of a tile.

    ``copies`` are the ``cp.async.bulk.tensor`` instructions to issue: for each, the
    coordinates of its first element, fastest dimension first and counted from the
    first element of the tile, and the address in shared memory.
    """

    dtype: str
    """The element type of the map; types that it does not have are copied as bytes."""
    dimensions: tuple[str, str]
    """The dimensions of the tensor, fastest first."""
    box: tuple[int, int]
    swizzle: int
    copies: tuple[tuple[tuple[int, int], int], ...]

    @property
    def data_type(self) -> str:
        """The element type in the driver's interface."""
        return f"{CONSTANT}DATA_TYPE_{element_type(self.dtype).constant}"

    def map(self, sizes: tuple[int, int], stride: int, address: int = 0) -> TensorMap:
        """The map of a tensor with these sizes, fastest first, and bytes in a row.

        >>> tensor_map(64, 128, "f16").map((512, 4096), 1024).box_bytes
        8192
        """
        return TensorMap(
            self.dtype, sizes, (stride,), self.box, address=address,
            swizzle=self.swizzle,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """The arguments of ``cuTensorMapEncodeTiled`` and the copies, for a program."""
        mode = f"{self.swizzle}B" if self.swizzle else "NONE"
        return {
            "data_type": self.data_type,
            "dimensions": self.dimensions,
            "box": self.box,
            "swizzle": f"{CONSTANT}SWIZZLE_{mode}",
            "copies": self.copies,
            "interleave": f"{CONSTANT}INTERLEAVE_NONE",
            "element_strides": (1, 1),
        }

    def __str__(self) -> str:
        told = self.to_json()
        lines = [
            f"tensorDataType {self.data_type}, tensorRank 2",
            f"globalDim      {{{', '.join(self.dimensions)}}}",
            f"boxDim         {{{self.box[0]}, {self.box[1]}}}, elementStrides {{1, 1}}",
            f"interleave     {told['interleave']}",
            f"swizzle        {told['swizzle']}",
        ]
        for (first, second), address in self.copies:
            lines.append(f"copy {{{first}, {second}}} to shared address {address}")
        return "\n".join(lines)


_DTYPES = {"f16": "f16", "bf16": "bf16", "tf32": "f32"}
"""The types of a map that copy these; no copy converts anything."""


def tensor_map(
    rows: int,
    k: int,
    of: str | DType,
    *,
    major: MajorAxis = "k",
    swizzle: int = 128,
    start: int = 0,
) -> TileCopies:
    """The tensor-map copies that write the tile of :meth:`Descriptor.for_tile`.

    There is one copy for each span and each 256 elements across.  A span that the
    tile does not fill still has its full width in shared memory.

    >>> print(tensor_map(64, 128, "f16", swizzle=128))
    tensorDataType CU_TENSOR_MAP_DATA_TYPE_FLOAT16, tensorRank 2
    globalDim      {k, m or n}
    boxDim         {64, 64}, elementStrides {1, 1}
    interleave     CU_TENSOR_MAP_INTERLEAVE_NONE
    swizzle        CU_TENSOR_MAP_SWIZZLE_128B
    copy {0, 0} to shared address 0
    copy {64, 0} to shared address 8192
    """
    dt = dtype(of)
    # A tile that does not fit is refused here, with the reason.
    descriptor = Descriptor.for_tile(
        rows, k, dt, major=major, swizzle=swizzle, start=start
    )
    end = start + prod(atoms(rows, k, dt, major, swizzle)) * LINES * span(swizzle)
    if end > LIMIT:
        raise AddressError(
            f"{rows} x {k} elements of {dt} from byte {start} on end at byte {end:,}; "
            f"they must end by {LIMIT:,}, the limit of descriptors"
        )
    along, across = (k, rows) if major == "k" else (rows, k)
    per_item = max(1, 8 // dt.bits)  # elements per item of the tensor
    items = along // per_item
    item_bytes = dt.bits * per_item // 8
    wide = min(items, span(swizzle) // item_bytes)
    high = min(across, MOST_BOX)
    if items % wide or across % high:
        raise Error(
            f"{along} x {across} elements of {dt} are not a whole number of boxes of "
            f"{wide * per_item} x {high}: the last copy would read beyond the tile"
        )
    copies = []
    for first in range(0, items, wide):
        for second in range(0, across, high):
            mn, at = (second, first * per_item) if major == "k" else (first, second)
            where = descriptor.address(mn, at, dt, major)
            copies.append(((first, second), where))
    return TileCopies(
        _DTYPES.get(dt.name, "u8"),
        ("k", "m or n") if major == "k" else ("m or n", "k"),
        (wide, high),
        swizzle,
        tuple(copies),
    )
