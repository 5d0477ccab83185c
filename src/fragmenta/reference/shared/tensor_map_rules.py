"""The tensor maps that the driver refuses.

The rules are those of an H200's driver.  They were compared with it for thousands of
maps, most of which break a rule or are at a limit.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

from fragmenta.base.arrays.checks import is_among, is_whole
from fragmenta.errors import AddressError, BadCall, ShapeError, one_of
from fragmenta.reference.shared.swizzles import (
    ATOM_32,
    ATOM_64,
    FLIP_8,
    WGMMA_SWIZZLES,
    Swizzle,
    map_span,
)

if TYPE_CHECKING:
    from fragmenta.reference.shared.tensor_map import Im2col, TensorMap

SWIZZLES: tuple[Swizzle, ...] = (*WGMMA_SWIZZLES, ATOM_32, FLIP_8, ATOM_64)
"""By their numbers in the driver's interface; those from 4 on are of sm_100."""
PADDED_SWIZZLES = {8: (0, 128, ATOM_32), 12: (0, 128, ATOM_32, ATOM_64)}
"""Those of padded types, by the bytes of data in each 16 of shared memory."""
PADDED_BOX = 128
"""Elements of padded types that dimension 0 of a box has."""
INTERLEAVES = (0, 16, 32)
PROMOTIONS = ("none", 64, 128, 256)
FILLS = ("zeros", "nan")
MOST_BOX = 256
MOST_BYTES = 228 * 1024
"""The most bytes of a box: the shared memory of a multiprocessor."""
ADDRESS_BITS = 57
MOST_PIXELS = 1024
MOST_SIZE = 1 << 31
"""The largest size that a copy takes; the driver encodes sizes up to 2**32."""
MOST_STRIDE = 8
UNIT = 16
"""Bytes that addresses, strides and the rows of a box are multiples of."""
CORNER_BITS = {3: 16, 4: 8, 5: 5}
"""For each rank of im2col, the bits of each number of a corner, which has a sign."""


def check(map: TensorMap) -> None:
    """Refuse a map that the driver refuses."""
    _choices(map)
    _rank(map)
    _memory(map)
    _sizes("element stride", map.element_strides, MOST_STRIDE)
    if map.im2col is None:
        _box(map)
    else:
        _column(map, map.im2col)
    taken = driver_bytes(map)
    if taken > MOST_BYTES:
        raise ShapeError(
            f"a box must have at most {MOST_BYTES:,} bytes, which is the shared memory "
            f"of a multiprocessor; given {taken:,}"
        )


def driver_bytes(map: TensorMap) -> int:
    """The bytes of a box as the driver counts them.

    It rounds down where element strides do not divide the box, and it counts an
    interleaved box in elements.  A copy moves :attr:`TensorMap.box_bytes`.
    """
    if map.im2col is not None:
        return map.im2col.channels * map.im2col.pixels * map.element.bits // 8
    counts = zip(map.box, map.element_strides, strict=True)
    return prod(n // step for n, step in counts) * map.element.bits // 8


def _choices(map: TensorMap) -> None:
    for name, allowed in (
        ("swizzle", SWIZZLES),
        ("interleave", INTERLEAVES),
        ("l2", PROMOTIONS),
        ("fill", FILLS),
    ):
        value = getattr(map, name)
        if not is_among(value, allowed):
            raise BadCall(f"{name} must be {one_of(allowed)}; given {value!r}")
    if map.element.padded:
        _padded(map)
    if map.fill == "nan" and not map.element.is_float:
        raise BadCall(f"only floats can be filled with NaN; given {map.dtype}")


def _padded(map: TensorMap) -> None:
    """What the header of the driver says of 4 and 6 bits that fill 16 bytes."""
    allowed = PADDED_SWIZZLES[map.element.data]
    if map.swizzle not in allowed:
        raise BadCall(
            f"a map of {map.dtype} has the swizzle {one_of(allowed)}; given "
            f"{map.swizzle!r}"
        )
    if map.interleave:
        raise BadCall(f"a map of {map.dtype} has no interleave; given {map.interleave}")


def _rank(map: TensorMap) -> None:
    least = 3 if map.interleave or map.im2col is not None else 1
    if not least <= map.rank <= 5:
        what = "im2col" if map.im2col is not None else f"interleave {map.interleave}"
        why = f" with {what}" if least == 3 else ""
        raise ShapeError(
            f"a tensor map has {least} to 5 dimensions{why}; given {map.rank}"
        )
    for name, values, count in (
        ("strides", map.strides, map.rank - 1),
        ("element strides", map.element_strides, map.rank),
        ("box sizes", map.box, map.rank if map.im2col is None else 0),
    ):
        if len(values) != count:
            raise ShapeError(
                f"a tensor of {map.rank} dimensions has {count} {name} in its map; "
                f"given {len(values)}: {values}"
            )


def _memory(map: TensorMap) -> None:
    """The address, the sizes and the strides of the tensor."""
    unit = 32 if map.interleave == 32 or map.element.padded else UNIT
    _aligned("the address", map.address, unit)
    if not 0 <= map.address < 1 << ADDRESS_BITS:
        raise AddressError(
            f"an address has {ADDRESS_BITS} bits; given {map.address:#x}"
        )
    _sizes("size", map.sizes, 1 << 32)
    _whole_bytes(map)
    for place, stride in enumerate(map.strides):
        name = f"the stride of dimension {place + 1}"
        _aligned(name, stride, unit)
        if not 0 <= stride < 1 << 40:
            raise AddressError(
                f"{name} must be 0 to {(1 << 40) - unit} bytes; given {stride}"
            )


def _whole_bytes(map: TensorMap) -> None:
    """Small elements fill bytes, or the boxes of padded types."""
    step = PADDED_BOX if map.element.padded else 2
    if map.element.bits < 8 and map.sizes[0] % step:
        raise ShapeError(
            f"the size of dimension 0 must be a multiple of {step} elements of "
            f"{map.dtype}; given {map.sizes[0]}, nearest "
            f"{max(1, round(map.sizes[0] / step)) * step}"
        )


def _aligned(name: str, value: int, unit: int) -> None:
    if not is_whole(value):
        raise AddressError(f"{name} must be a whole number; given {value!r}")
    if value % unit:
        raise AddressError(
            f"{name} must be a multiple of {unit} bytes; given {value}, "
            f"nearest {(value + unit // 2) // unit * unit}"
        )


def _sizes(name: str, values: Sequence[int], most: int) -> None:
    for place, value in enumerate(values):
        if not is_whole(value) or not 1 <= value <= most:
            raise ShapeError(
                f"the {name} of dimension {place} must be 1 to {most}; given {value!r}"
            )


def _inner(map: TensorMap, count: int, name: str) -> None:
    """The bytes that a box has along the innermost dimension."""
    bits = map.element.bits
    if map.element.padded and count != PADDED_BOX:
        raise ShapeError(
            f"{name} must be {PADDED_BOX} elements of {map.dtype}; given {count}"
        )
    row, span = count * bits // 8, map_span(map.swizzle)
    if count * bits % (8 * UNIT):
        step = 8 * UNIT // bits
        raise ShapeError(
            f"{name} must be a multiple of {UNIT} bytes, {step} elements of "
            f"{map.dtype}; given {count}, nearest {max(1, round(count / step)) * step}"
        )
    if span and row > span and not map.interleave:
        raise ShapeError(
            f"with a swizzle of {map.swizzle} bytes, {name} must be at most "
            f"{8 * span // bits} elements of {map.dtype}; given {count}"
        )


def _box(map: TensorMap) -> None:
    _sizes("box size", map.box, MOST_BOX)
    _inner(map, map.box[0], "the box along dimension 0")


def _column(map: TensorMap, column: Im2col) -> None:
    """The box of a copy in the im2col mode."""
    for name, value, most in (
        ("channels per pixel", column.channels, MOST_BOX),
        ("pixels per column", column.pixels, MOST_PIXELS),
    ):
        if not is_whole(value) or not 1 <= value <= most:
            raise ShapeError(f"{name} must be 1 to {most}; given {value!r}")
    _inner(map, column.channels, "the channels of a pixel")
    limit = 1 << CORNER_BITS[map.rank] - 1
    for name, corner in (("lower", column.lower), ("upper", column.upper)):
        if len(corner) != map.rank - 2:
            raise ShapeError(
                f"the {name} corner of a tensor of {map.rank} dimensions has "
                f"{map.rank - 2} numbers; given {corner}"
            )
        for value in corner:
            if not is_whole(value) or not -limit <= value < limit:
                raise ShapeError(
                    f"the {name} corner of a tensor of {map.rank} dimensions must be "
                    f"{-limit} to {limit - 1}; given {value!r}"
                )
    _area(map, column)


def _area(map: TensorMap, column: Im2col) -> None:
    """The box of pixels, between the corners, is not empty."""
    first = map.first_pixel
    for place, (low, high) in enumerate(zip(column.lower, column.upper, strict=True)):
        # The driver computes with signed numbers of 32 bits.
        size = (map.sizes[first + place] + (1 << 31)) % (1 << 32) - (1 << 31)
        if size + high - low <= 0:
            raise ShapeError(
                f"the box of pixels is empty: in dimension {first + place} it is from "
                f"{low} to before {size + high}, the size {size} plus {high}"
            )
