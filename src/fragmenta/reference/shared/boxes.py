"""The bytes that a tensor-map copy moves, and where to.

:class:`BoxAddresses` has one entry for each element of a box: its address in global
memory, its address in shared memory, and whether the copy moves it.  Rows of a box
follow each other in shared memory.  With a swizzle, a row has the full width of the
swizzle, and the swizzle moves each 16 bytes by their address.

This is the plain reference, an array operation for each step.  All of it was seen on an
H200, and so were two details that the manual does not have.  A store moves whole units
of 16 bytes: if a tensor's rows end within a unit, the rest of the unit is written, too.
And with an interleave, dimension 0 counts slices of 16 or 32 bytes, and the dimension
before the last, which counts slices of channels, has a box of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array, check_numbers, is_whole
from fragmenta.errors import AddressError, OutOfBounds, ShapeError
from fragmenta.reference.shared.descriptor import UNIT, Addresses
from fragmenta.reference.shared.reductions import reduced
from fragmenta.reference.shared.swizzles import moved_in_box
from fragmenta.reference.shared.tensor_map import Im2col, TensorMap
from fragmenta.reference.shared.tensor_map_rules import (
    CORNER_BITS,
    MOST_SIZE,
    PADDED_BOX,
)
from fragmenta.reference.shared.tiles import Image, as_image

ALIGNMENT = 128
"""The bytes that the address of a box in shared memory is a multiple of."""
OUTSIDE = 0x7FF7
"""The 16 bits that fill what is outside, if NaN does."""


class BoxAddresses(NamedTuple):
    """Where each element of a box is; arrays of the same shape, the innermost last."""

    memory: Addresses
    """The address in global memory; without a meaning where nothing is moved."""
    shared: Addresses
    """The address in shared memory."""
    inside: NDArray[np.bool_]
    """Whether the element is moved; a load fills the others."""


def plan(
    map: TensorMap,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    *,
    at: int = 0,
    store: bool = False,
) -> BoxAddresses:
    """Where each element of the box at these coordinates is.

    ``coordinates`` are those of the instruction, the innermost first.  ``offsets`` are
    those of an im2col load.  ``at`` is the address of the box in shared memory.

    >>> map = TensorMap("f16", (256, 100), (512,), box=(64, 8), swizzle=128)
    >>> found = plan(map, (64, 96), at=1024)
    >>> found.memory[1, 0], found.shared[1, 0]
    (np.int64(49792), np.int64(1168))
    >>> found.inside[:, 0].tolist()
    [True, True, True, True, False, False, False, False]
    """
    check_copy(map, coordinates, offsets, at=at, store=store)
    data = map.element.data
    map, coordinates = flattened(map, coordinates)
    column = map.im2col
    places = (
        _tile(map, coordinates)
        if column is None
        else _column(map, column, coordinates, offsets)
    )
    size, wide = map.element.bytes, slice_bytes(map)
    limits = list(map.sizes)
    if store and not map.interleave:
        limits[0] = -(-limits[0] * size // UNIT) * UNIT // size
    inside = np.ones(places[0].shape, bool)
    for place, limit in zip(places, limits, strict=True):
        inside &= (place >= 0) & (place < limit)
    memory = map.address + places[0] * wide
    for place, stride in zip(places[1:], map.strides, strict=True):
        memory = memory + place * stride
    lines = _lines(map, places[0].shape, wide, data)
    memory, linear = memory.astype(np.int64), at + lines
    if map.interleave:  # the elements of each slice
        each = np.arange(0, wide, size)
        memory, linear = memory[..., None] + each, linear[..., None] + each
        inside = np.broadcast_to(inside[..., None], linear.shape)
    return BoxAddresses(memory, moved_in_box(linear, map.swizzle), inside)


def flattened(
    map: TensorMap, coordinates: Sequence[int]
) -> tuple[TensorMap, Sequence[int]]:
    """A map and coordinates in whole bytes, if elements have less.

    >>> map, place = flattened(TensorMap("b4x16", (64,), box=(32,)), (32,))
    >>> map.box, place
    ((16,), (16,))
    """
    if map.element.bytes:
        return map, coordinates
    return map.flat, (map.flat_count(coordinates[0]), *coordinates[1:])


def slice_bytes(map: TensorMap) -> int:
    """The bytes that dimension 0 counts: an element, or a slice of channels.

    >>> slice_bytes(TensorMap("f16", (8, 8, 8), (128, 1024), (8, 1, 1), interleave=16))
    16
    """
    return map.interleave or map.element.bytes


def _lines(
    map: TensorMap, shape: tuple[int, ...], wide: int, data: int = UNIT
) -> Addresses:
    """The addresses in shared memory before the swizzle, from 0.

    ``data`` bytes of each 16 are data.
    """
    *lines, inner = shape
    row = inner * wide * UNIT // data
    pitch = row if map.interleave else max(row, map.span)
    first = np.arange(int(np.prod(lines))).reshape(*lines, 1) * pitch
    unit, byte = np.divmod(np.arange(inner) * wide, data)
    return np.asarray(first + unit * UNIT + byte, np.int64)


def _tile(map: TensorMap, coordinates: Sequence[int]) -> list[Addresses]:
    """The coordinates of each element, or slice, of a box."""
    grid = np.indices(map.counts[::-1])[::-1]
    steps = map.element_strides if map.interleave else (1, *map.element_strides[1:])
    return [
        start + index * step
        for start, index, step in zip(coordinates, grid, steps, strict=True)
    ]


def _column(
    map: TensorMap, column: Im2col, coordinates: Sequence[int], offsets: Sequence[int]
) -> list[Addresses]:
    """The coordinates of each channel of each pixel of a column."""
    first, count = map.first_pixel, map.rank - 2
    inner = 1 if map.interleave else column.channels
    places = np.zeros((map.rank, column.pixels, inner), np.int64)
    places += np.array(coordinates)[:, None, None]
    if not map.interleave:
        places[0] += np.arange(inner)
    shift = offsets or [0] * count
    pixels = _pixels(map, column, coordinates)
    for dimension in range(count):
        places[first + dimension] = pixels[:, dimension, None] + shift[dimension]
    places[-1] = pixels[:, -1, None]
    return list(places)


def _pixels(
    map: TensorMap, column: Im2col, coordinates: Sequence[int]
) -> NDArray[np.int64]:
    """W, H, D and the image of each pixel, before the offsets are added."""
    first, count = map.first_pixel, map.rank - 2
    place = [*coordinates[first : first + count], coordinates[-1]]
    steps = [*map.element_strides[first : first + count], map.element_strides[-1]]
    found = np.zeros((column.pixels, count + 1), np.int64)
    for pixel in range(column.pixels):
        found[pixel] = place
        for dimension in range(count):
            place[dimension] += steps[dimension]
            if (
                place[dimension]
                < map.sizes[first + dimension] + column.upper[dimension]
            ):
                break
            place[dimension] = column.lower[dimension]  # and on to the next dimension
        else:
            place[-1] += steps[-1]
    return found


# ── what a copy must not be ─────────────────────────────────────────────────


def check_copy(
    map: TensorMap,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    *,
    at: int = 0,
    store: bool = False,
) -> None:
    """Refuse a copy that an H200 refuses as an illegal instruction.

    >>> check_copy(TensorMap("f16", (256,), box=(64,)), (4,))
    Traceback (most recent call last):
    fragmenta.errors.AddressError: a box must begin at a multiple of 16 bytes, 8 \
elements of f16; given coordinate 4 in dimension 0, nearest 0
    """
    check_numbers(at=at, **{f"coordinate {i}": x for i, x in enumerate(coordinates)})
    if len(coordinates) != map.rank:
        raise ShapeError(
            f"a tensor of {map.rank} dimensions needs as many coordinates; given "
            f"{len(coordinates)}: {tuple(coordinates)}"
        )
    loads_column = map.im2col is not None and not store
    if len(offsets) != (map.rank - 2 if loads_column else 0):
        needed = f"{map.rank - 2} offsets" if loads_column else "no offsets"
        raise ShapeError(f"this copy takes {needed}; given {len(offsets)}")
    if max(map.sizes) > MOST_SIZE:
        raise AddressError(
            f"a copy takes sizes up to 2**31; given {max(map.sizes)}, which the driver "
            "accepts in a map"
        )
    if at % ALIGNMENT:
        raise AddressError(
            f"a box in shared memory must begin at a multiple of {ALIGNMENT} bytes; "
            f"given {at}, nearest {round(at / ALIGNMENT) * ALIGNMENT}"
        )
    element = map.element
    if element.padded and store and element.bits == 4:
        raise AddressError(f"a map of {map.dtype} can be loaded by, not stored by")
    unit = PADDED_BOX if element.padded else 8 * UNIT // element.bits
    if not map.interleave and coordinates[0] % unit:
        size = unit * element.bits // 8
        raise AddressError(
            f"a box must begin at a multiple of {size} bytes, {unit} elements of "
            f"{map.dtype}; given coordinate {coordinates[0]} in dimension 0, nearest "
            f"{coordinates[0] // unit * unit}"
        )
    if store and min(coordinates) < 0:
        raise AddressError(
            f"a store must not begin before the tensor; given {tuple(coordinates)}"
        )
    if map.im2col is not None:
        _check_start(map, map.im2col, coordinates)
        _check_column(map, map.im2col, offsets, store)


def _check_column(
    map: TensorMap, column: Im2col, offsets: Sequence[int], store: bool
) -> None:
    """Offsets fit their bits; a store has no pixels outside the tensor."""
    most = (1 << CORNER_BITS[map.rank]) - 1
    for offset in offsets:
        if not is_whole(offset) or not 0 <= offset <= most:
            raise AddressError(
                f"an offset of a tensor of {map.rank} dimensions must be 0 to {most}; "
                f"given {offset!r}"
            )
    if store and (min(column.lower) < 0 or max(column.upper) > 0):
        raise AddressError(
            "a store must not have pixels outside the tensor: the lower corner must be "
            f"0 or more, the upper 0 or less; given {column.lower} and {column.upper}"
        )


def _check_start(map: TensorMap, column: Im2col, coordinates: Sequence[int]) -> None:
    """The first pixel is between the corners."""
    for place, (low, high) in enumerate(zip(column.lower, column.upper, strict=True)):
        dimension = map.first_pixel + place
        end = map.sizes[dimension] + high
        if not low <= coordinates[dimension] < end:
            raise AddressError(
                f"the first pixel must be between the corners: coordinate "
                f"{coordinates[dimension]} of dimension {dimension} is not in "
                f"{low} to {end - 1}"
            )


# ── copies ──────────────────────────────────────────────────────────────────


def load_box(
    map: TensorMap,
    memory: ArrayLike,
    image: ArrayLike,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    *,
    at: int = 0,
    origin: int = 0,
) -> Image:
    """The image of shared memory after a box was loaded to it.

    ``memory`` are bytes of global memory; the first of them has the address
    ``origin``.  A tf32 map rounds to 10 fraction bits; nothing else is changed.

    >>> map = TensorMap("u8", (20,), box=(16,))
    >>> load_box(map, np.arange(20, dtype=np.uint8), np.zeros(16, np.uint8), (16,))
    array([16, 17, 18, 19,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0],
          dtype=uint8)
    """
    after = np.array(as_image(image))
    fill_box(map, _bytes(memory), after, coordinates, offsets, at=at, origin=origin)
    return after


def fill_box(
    map: TensorMap,
    memory: Image,
    image: Image,
    coordinates: Sequence[int],
    offsets: Sequence[int] = (),
    *,
    at: int = 0,
    origin: int = 0,
) -> None:
    """Load a box into an image of shared memory itself, as :func:`load_box` does."""
    found, source, after = plan(map, coordinates, offsets, at=at), memory, image
    size = map.element.bytes or 1
    each = np.arange(size)
    values = np.empty((*found.inside.shape, size), np.uint8)
    values[...] = np.resize(_fill(map), size)
    inside = _indices(found.memory[found.inside] - origin, source, "global")
    moved = source[inside[:, None] + each]
    values[found.inside] = _rounded(moved) if map.element.tf32 else moved
    goal = _indices(found.shared.reshape(-1), after, "shared", size)
    after[goal[:, None] + each] = values.reshape(-1, size)


def store_box(
    map: TensorMap,
    memory: ArrayLike,
    image: ArrayLike,
    coordinates: Sequence[int],
    *,
    at: int = 0,
    origin: int = 0,
    operation: str | None = None,
) -> Image:
    """Global memory after a box was stored to it, or combined with it.

    ``operation`` is that of ``cp.reduce.async.bulk.tensor``, such as ``"add"``.

    >>> map = TensorMap("u32", (4,), box=(4,))
    >>> memory = np.arange(4, dtype=np.uint32).view(np.uint8)
    >>> store_box(map, memory, memory, (0,), operation="add").view(np.uint32)
    array([0, 2, 4, 6], dtype=uint32)
    """
    after = np.array(_bytes(memory))
    put_box(
        map,
        after,
        as_image(image),
        coordinates,
        at=at,
        origin=origin,
        operation=operation,
    )
    return after


def put_box(
    map: TensorMap,
    memory: Image,
    image: Image,
    coordinates: Sequence[int],
    *,
    at: int = 0,
    origin: int = 0,
    operation: str | None = None,
) -> None:
    """Store a box to global memory itself, as :func:`store_box` does."""
    found = plan(map, coordinates, at=at, store=True)
    source, after = image, memory
    size = map.element.bytes or 1
    each = np.arange(size)
    taken = _indices(found.shared[found.inside], source, "shared", size)
    goal = _indices(found.memory[found.inside] - origin, after, "global", size)
    values = source[taken[:, None] + each]
    if map.element.padded:
        values = _six_bits(map, found, source)
    if operation is not None:
        kind = np.dtype(f"u{size}")
        old = np.ascontiguousarray(after[goal[:, None] + each]).view(kind)
        new = np.ascontiguousarray(values).view(kind)
        values = reduced(operation, map.dtype, old, new).view(np.uint8)
    after[goal[:, None] + each] = values


def _six_bits(map: TensorMap, found: BoxAddresses, source: Image) -> Image:
    """The bytes that a store makes of elements that have 6 bits of a byte each.

    The low 6 bits of 16 adjacent bytes of shared memory are 12 bytes of the tensor.
    """
    data = map.element.data
    first = found.shared.reshape(-1, data)[:, 0]
    units = source[_indices(first, source, "shared", UNIT)[:, None] + np.arange(UNIT)]
    bits = np.unpackbits(units[..., None], axis=-1, bitorder="little")[..., :6]
    packed = np.packbits(bits.reshape(-1, 6 * UNIT), axis=-1, bitorder="little")
    return packed.reshape(found.inside.shape)[found.inside][:, None]


def _bytes(memory: ArrayLike) -> Image:
    given = as_array(memory)
    if given.dtype != np.uint8 or given.ndim != 1:
        raise ShapeError(
            "memory must be bytes, an array of uint8 with one axis; given "
            f"{given.dtype} of shape {given.shape}"
        )
    return given


def _fill(map: TensorMap) -> Image:
    word = OUTSIDE if map.fill == "nan" else 0
    return np.array([word], np.uint16).view(np.uint8)


def _rounded(elements: Image) -> Image:
    """f32 rounded to the nearest tf32, a tie to the even one; NaN is 0x7fffe000."""
    bits = np.ascontiguousarray(elements).view(np.uint32)
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    up = bits + np.uint32(0xFFF) + (bits >> 13 & 1)
    return np.where(nan, 0x7FFFE000, up & 0xFFFFE000).astype(np.uint32).view(np.uint8)


def _indices(places: Addresses, memory: Image, name: str, size: int = 1) -> Addresses:
    """Places in memory, all of which must be in it."""
    if places.size and (places.min() < 0 or places.max() + size > memory.size):
        raise OutOfBounds(
            f"the box is at bytes {places.min()} to {places.max() + size - 1} of "
            f"{name} memory, of which {memory.size} are given"
        )
    return places
