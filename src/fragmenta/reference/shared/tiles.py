"""Images of shared memory: the bytes of tiles.

An *image* is the content of shared memory from a multiple of 1024 on: an array of
bytes, whose index is the address.  :func:`tile` writes a matrix into an image,
and :func:`read_tile` reads what ``wgmma`` or ``tcgen05.mma`` reads.  The descriptor
says where each element is.  :func:`read_rows` reads the rows that ``tcgen05.cp``
copies.  :mod:`fragmenta.reference.shared.tile_copies` describes tensor-map copies that
write the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import (
    Array,
    as_array,
    batch_shape,
    check_flags,
    is_whole,
)
from fragmenta.errors import AddressError, BadCall, ShapeError
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.searching import instruction
from fragmenta.reference.registers.dtype import DType, dtype, unsigned_type
from fragmenta.reference.registers.words import pack_words, unpack_words
from fragmenta.reference.shared.descriptor import (
    LIMIT,
    UNIT,
    Addresses,
    Descriptor,
    Family,
    MajorAxis,
    Swizzle,
    atoms,
    extent,
    major_of,
)
from fragmenta.reference.shared.elements import pad_row, stored, unpad_row
from fragmenta.reference.shared.operands import check_belongs, family_of
from fragmenta.reference.shared.swizzles import ATOM_32, pattern

Image = NDArray[np.uint8]

PATTERN = 1024
"""Every swizzle pattern repeats after this many bytes."""


class _Moved(NamedTuple):
    """An operand as it is moved: padded elements are moved as bytes."""

    rows: int
    k: int
    of: DType
    major: MajorAxis
    padded: int
    """The bits of an element with padding, or 0."""


def _moved(
    op: Instruction,
    operand: str,
    shape: tuple[int, int],
    major: MajorAxis,
    swizzle: Swizzle,
) -> _Moved:
    of = op.types[operand.lower()]
    family = family_of(op) or "wgmma"
    if not stored(of, major, family, swizzle, op.kind).padded:
        return _Moved(*shape, of, major, 0)
    return _Moved(*shape, dtype("u8"), major, of.bits)


# ── writing ─────────────────────────────────────────────────────────────────


def tile(
    op: Instruction | str,
    operand: str,
    matrix: ArrayLike,
    *,
    swizzle: Swizzle | None = None,
    major: MajorAxis | None = None,
    start: int | None = None,
    order: MajorAxis | None = None,
    image: ArrayLike | None = None,
) -> tuple[Image, Descriptor]:
    """An image with a matrix in it, and the descriptor of the matrix.

    A is (…, m, k), or the stored values of a sparse A; B is (…, k, n).  Each is a whole
    number of the instruction's tiles, stored as in :meth:`Descriptor.for_tile`.  The
    tile begins at ``start``.  By default that is 0, or the next multiple of 1024 if
    the tile is added to an ``image``.  The swizzle is 128 by default, or ``"128/32"``
    where ``tcgen05`` has no other.  ``major`` is K by default; of ``tcgen05`` the
    instruction descriptor has it.  With ``.cta_group::2`` a matrix is the half that one
    block has; :func:`pair_halves` makes both.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
    >>> A = np.arange(64 * 64, dtype=np.float16).reshape(64, 64)
    >>> image, descriptor = tile(op, "A", A)
    >>> image.shape, str(descriptor)
    ((8192,), 'start 0, leading offset 8192, stride offset 1024, 128-byte swizzle')
    >>> image, b = tile(op, "B", np.ones((64, 8)), image=image)
    >>> image.shape, b.start
    ((9216,), 8192)
    """
    op = instruction(op)
    lines = _lines(matrix, op, operand)
    of, side = op.types[operand.lower()], major_of(op, operand, major)
    chosen = default_swizzle(op, operand, side) if swizzle is None else swizzle
    if start is None:
        before = 0 if image is None else as_image(image).shape[-1]
        start = -(-before // PATTERN) * PATTERN
    shape = (int(lines.shape[-2]), int(lines.shape[-1]))
    family = family_of(op) or "wgmma"
    descriptor = Descriptor.for_tile(
        *shape,
        of,
        major=side,
        swizzle=chosen,
        start=start,
        order=order,
        family=family,
        kind=op.kind,
    )
    end = start + prod(
        (*atoms(*shape, of, side, chosen, family, op.kind), pattern(chosen).atom)
    )
    if end > LIMIT:
        raise AddressError(
            f"a {shape[0]}x{shape[1]} tile of {of} from byte {start} on ends at "
            f"{end}; it must end by {LIMIT}, the limit of descriptors"
        )
    written = _room(image, lines.shape[:-2], end)
    moved = _moved(op, operand, shape, side, chosen)
    index, unit = _index(descriptor, moved)
    values = _cells(lines, moved, unit)
    cells = written.view(f"u{unit}")
    cells[..., index.ravel()] = values.reshape(*values.shape[:-2], -1)
    return written, descriptor


def default_swizzle(op: Instruction, operand: str, major: MajorAxis) -> Swizzle:
    """128, or ``"128/32"`` for an operand of ``tcgen05`` that has no other swizzle.

    >>> import fragmenta as fm
    >>> default_swizzle(fm.tcgen05("m128n64k8", a="tf32", d="f32"), "B", "mn")
    '128/32'
    """
    only = family_of(op) == "tcgen05" and op.types[operand.lower()].bits == 32
    return ATOM_32 if only and major == "mn" else 128


def pair_halves(matrix: ArrayLike, op: Instruction | str, operand: str) -> Array:
    """The two halves of A or B that the blocks of a pair have: (…, 2, rows, columns).

    The first block has the first rows of A and the first columns of B.  Without
    ``.cta_group::2`` the matrix is returned as it is.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.tcgen05("m256n32k16", a="f16", d="f32", cta_group=2)
    >>> pair_halves(np.zeros((16, 32)), op, "B").shape
    (2, 16, 16)
    """
    op, given = instruction(op), as_array(matrix)
    extent(op, operand)
    if op.cta_group != 2:
        return given
    axis = -2 if operand == "A" else -1
    if given.ndim < 2 or given.shape[axis] % 2:
        raise ShapeError(
            f"{operand} of {op} is shared by two blocks, so its "
            f"{'rows' if operand == 'A' else 'columns'} must be even; given "
            f"{given.shape}"
        )
    return np.stack(np.split(given, 2, axis=axis), axis=-3)


def _lines(matrix: ArrayLike, op: Instruction, operand: str) -> Array:
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
    op: Instruction | str,
    operand: str,
    image: ArrayLike,
    descriptor: Descriptor | ArrayLike,
    *,
    major: MajorAxis | None = None,
    packed: bool = False,
) -> Array:
    """The raw bits that one instruction reads: A (…, m, k) or B (…, k, n).

    ``image`` is (…, bytes).  A descriptor is a :class:`Descriptor`, its 64-bit word,
    or an array of words, whose axes broadcast with those of the image.  A sparse A is
    returned as stored, with half of k.  With ``packed``, elements narrower than a byte
    are returned as 32-bit words along k.  With ``.cta_group::2`` it is the half that
    one block has.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="s8")
    >>> B = np.arange(256, dtype=np.uint8).view(np.int8).reshape(32, 8)
    >>> image, descriptor = tile(op, "B", B, swizzle=32)
    >>> bool((read_tile(op, "B", image, descriptor).view(np.int8) == B).all())
    True
    >>> read_tile(op, "B", image[:96], descriptor)
    Traceback (most recent call last):
    fragmenta.errors.AddressError: B of \
wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8: row 0, column 3 is at address 96, \
outside the image of 96 bytes
    """
    op, memory = instruction(op), as_image(image)
    side = major_of(op, operand, major)
    family = family_of(op) or "wgmma"

    def read(some: Image, one: Descriptor) -> Array:
        return _read(some, one, op, operand, side, packed)

    def nothing(batch: tuple[int, ...]) -> Array:
        return _no_tiles(batch, op, operand, packed)

    return _by_descriptor(memory, descriptor, family, read, nothing)


def read_rows(
    image: ArrayLike, descriptor: Descriptor | ArrayLike, rows: int, size: int
) -> NDArray[np.uint8]:
    """The rows of ``size`` bytes that ``tcgen05.cp`` reads: (…, rows, size).

    The descriptor is K-major and of ``tcgen05``: eight rows follow each other, the next
    eight are at the stride offset, and without a swizzle the next 16 bytes at the
    leading offset.  Bytes are as they are in shared memory; padded elements stay
    padded.

    >>> image = np.arange(1024, dtype=np.uint16).view(np.uint8)
    >>> d = Descriptor(0, 512, 128, swizzle=0, family="tcgen05")
    >>> read_rows(image, d, 32, 32)[9, [0, 16]]  # bytes 144 and 656
    array([72, 72], dtype=uint8)
    """
    for name, value, step in (("rows", rows, 1), ("size", size, UNIT)):
        if not is_whole(value) or value <= 0 or value % step:
            raise ShapeError(
                f"{name} must be a positive multiple of {step}; given {value!r}"
            )
    shape = (int(rows), int(size))

    def read(some: Image, one: Descriptor) -> NDArray[np.uint8]:
        return _read_rows(some, one, *shape)

    def nothing(batch: tuple[int, ...]) -> NDArray[np.uint8]:
        return np.empty((*batch, *shape), np.uint8)

    return _by_descriptor(as_image(image), descriptor, "tcgen05", read, nothing)


def _by_descriptor(
    memory: Image,
    descriptor: Descriptor | ArrayLike,
    family: Family,
    read: Callable[[Image, Descriptor], Array],
    nothing: Callable[[tuple[int, ...]], Array],
) -> Array:
    """Read with one descriptor from all images, or with many."""
    if isinstance(descriptor, Descriptor):
        return read(memory, descriptor)
    words = as_words(descriptor)
    if not words.ndim:
        return read(memory, Descriptor.decode(int(words), family))
    batch = batch_shape(image=memory.shape[:-1], descriptors=words.shape)
    different = np.unique(words)
    if not prod(batch):
        return nothing(batch)
    if len(different) == 1:
        tile = read(memory, Descriptor.decode(int(different[0]), family))
        return np.broadcast_to(tile, (*batch, *tile.shape[-2:]))
    # Tiles that share a descriptor are read together.
    images = memory.reshape(prod(memory.shape[:-1]), memory.shape[-1])
    numbers = np.arange(len(images)).reshape(memory.shape[:-1])
    which = np.broadcast_to(numbers, batch).ravel()
    flat = np.broadcast_to(words, batch).ravel()
    places = [np.flatnonzero(flat == word) for word in different]
    parts = [
        read(images[which[here]], Descriptor.decode(int(word), family))
        for word, here in zip(different, places, strict=True)
    ]
    order = np.argsort(np.concatenate(places))
    tiles = np.concatenate(parts)[order]
    return tiles.reshape(*batch, *tiles.shape[1:])


def _no_tiles(
    batch: tuple[int, ...], op: Instruction, operand: str, packed: bool
) -> Array:
    """The empty result for a batch without descriptors or images."""
    rows, k = extent(op, operand)
    of = op.types[operand.lower()]
    kind = of.bits_dtype
    if packed and of.bits < 8:
        k, kind = k * of.bits // 32, unsigned_type(32)
    return np.empty((*batch, *((rows, k) if operand == "A" else (k, rows))), kind)


def _read(
    memory: Image,
    descriptor: Descriptor,
    op: Instruction,
    operand: str,
    major: MajorAxis,
    packed: bool,
) -> Array:
    """Read with one descriptor from any number of images."""
    check_belongs(descriptor.family, op)
    check_flags(packed=packed)
    tile = _moved(op, operand, extent(op, operand), major, descriptor.swizzle)
    if major == "k":
        descriptor.check_reach(tile.k * tile.of.bits // 8)
    if packed and tile.padded:
        raise BadCall(f"{operand} of {op} has padding, so it cannot be read as words")
    index, unit = _index(descriptor, tile)
    size = memory.shape[-1]
    if (int(index.max()) + 1) * unit > size:
        raise _outside(op, operand, index * unit, unit, size)
    cells = np.ascontiguousarray(memory[..., : size // unit * unit]).view(f"u{unit}")
    narrow = tile.of.bits < 8 or tile.padded
    index = index if operand == "A" or (narrow and not packed) else index.T
    # The index was checked above; "wrap" skips NumPy's slower check.
    found = np.take(cells, index.ravel(), axis=-1, mode="wrap")
    found = found.reshape(*memory.shape[:-1], *index.shape)
    if not narrow or packed:
        return found
    bits = (
        unpad_row(found, tile.padded)
        if tile.padded
        else unpack_words(found, tile.of.bits)
    )
    return bits if operand == "A" else np.swapaxes(bits, -1, -2)


def _read_rows(
    memory: Image, descriptor: Descriptor, rows: int, size: int
) -> NDArray[np.uint8]:
    """Rows by one descriptor, from any number of images."""
    if descriptor.family != "tcgen05":
        raise AddressError(
            "tcgen05.cp takes a descriptor of tcgen05; given one of wgmma; "
            ".to_tcgen05() converts it"
        )
    descriptor.check_reach(size)
    row, byte = np.ogrid[:rows, :size:UNIT]
    address = descriptor.address(row, byte, "u8")
    held = memory.shape[-1]
    if int(address.max()) + UNIT > held:
        where = int(address.max())
        first = np.argwhere(address + UNIT > held)[0][0]
        raise AddressError(
            f"row {first} of {rows} rows of {size} bytes is outside the image of "
            f"{held} bytes; the last byte is at address {where + UNIT - 1}"
        )
    units = memory[..., : held // UNIT * UNIT]
    units = units.reshape(*memory.shape[:-1], -1, UNIT)
    found: NDArray[np.uint8] = units[..., address // UNIT, :]
    return found.reshape(*memory.shape[:-1], rows, size)


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
def _index(descriptor: Descriptor, tile: _Moved) -> tuple[Addresses, int]:
    """The cell of each row and k, and the bytes of a cell.

    Elements narrower than a byte are moved as 32-bit words.
    """
    bits = tile.of.bits
    step = 1 if bits >= 8 else 32 // bits
    unit = bits * step // 8
    grid = np.ogrid[: tile.rows, : tile.k : step]
    address = descriptor.address(grid[0], grid[1], tile.of, tile.major)
    index: Addresses = np.ascontiguousarray(address // unit)
    index.setflags(write=False)
    return index, unit


def _cells(lines: Array, tile: _Moved, unit: int) -> Array:
    if tile.padded:
        return pad_row(lines, tile.padded)
    if tile.of.bits >= 8:
        return lines
    return pack_words(np.ascontiguousarray(lines), tile.of.bits, 8 * unit)


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
