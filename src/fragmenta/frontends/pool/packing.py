"""The arguments of a launch as bytes, which another process makes arguments of.

Arrays that share memory share it there, too: memory is sent in regions, and an array is
a place in one of them.  What a kernel may not write is not sent back.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.engine.simt.arguments import (
    RAW,
    ArrayAddress,
    Pointer,
    SegmentArrays,
    Struct,
    as_list,
    given_text,
    grouped,
    is_memory,
    memory_of,
)
from fragmenta.engine.simt.empties import count_as_empty, empty_parts
from fragmenta.errors import BadCall

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Bytes: TypeAlias = NDArray[np.uint8]


class PackedArray(NamedTuple):
    """An array: its place in a region, and what its bytes are."""

    region: int
    offset: int
    dtype: np.dtype[np.generic]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class PackedPointer(NamedTuple):
    """A pointer into an array."""

    array: PackedArray
    offset: int


class PackedStruct(NamedTuple):
    """The bytes of a struct, and its pointers with their places."""

    data: bytes
    pointers: tuple[tuple[int, PackedPointer], ...]
    align: int


class MemoryRegion(NamedTuple):
    """Memory that arrays share."""

    size: int
    writable: bool
    empty: tuple[tuple[int, int], ...]
    """The parts that count as unwritten: where each begins and ends."""


class PackedArguments(NamedTuple):
    """Arguments without their memory, as they are sent."""

    values: list[object]
    regions: list[MemoryRegion]

    @property
    def sizes(self) -> list[int]:
        """The bytes of each region."""
        return [each.size for each in self.regions]

    @property
    def returned(self) -> list[int]:
        """The regions that come back: those that a kernel may write."""
        return [i for i, each in enumerate(self.regions) if each.writable]


def pack(arguments: object) -> tuple[PackedArguments, list[Bytes]]:
    """The arguments of a launch, and copies of their memory as it is now.

    >>> x = np.arange(4, dtype=np.int32)
    >>> packed, memory = pack([x, Pointer(x, 8), 7])
    >>> packed.sizes, packed.values[2], memory[0].view(np.int32)
    ([16], 7, array([0, 1, 2, 3], dtype=int32))
    """
    values = [_checked(i, each) for i, each in enumerate(as_list(arguments))]
    places = [
        ArrayAddress(array, 0, "", pointer=False)
        for value in values
        for array in _arrays(value)
    ]
    groups = grouped(places)
    memory = [group.memory() for group in groups]
    regions = [
        MemoryRegion(data.size, group.writable, tuple(empty_parts(data)))
        for group, data in zip(groups, memory, strict=True)
    ]
    packed = PackedArguments([_packed(value, groups) for value in values], regions)
    return packed, [np.array(data) for data in memory]


def unpack(packed: PackedArguments, memory: Sequence[Bytes]) -> list[object]:
    """The arguments of a launch, with these regions as their memory.

    >>> x = np.arange(4, dtype=np.int32)
    >>> unpack(*pack([x, Pointer(x, 8)]))
    [array([0, 1, 2, 3], dtype=int32), Pointer(array=array([0, 1, 2, 3], dtype=int32), \
offset=8, slot=None)]
    """
    made: dict[PackedArray, Array] = {}

    def array(of: PackedArray) -> Array:
        if of not in made:
            made[of] = np.ndarray(
                of.shape, of.dtype, memory[of.region].data, of.offset, of.strides
            )
            made[of].flags.writeable = packed.regions[of.region].writable
        return made[of]

    def value(of: object) -> object:
        if isinstance(of, PackedArray):
            return array(of)
        if isinstance(of, PackedPointer):
            return Pointer(array(of.array), of.offset)
        if isinstance(of, PackedStruct):
            inside = [(at, array(to.array), to.offset) for at, to in of.pointers]
            pointers = tuple((at, Pointer(to, by)) for at, to, by in inside)
            return Struct(of.data, pointers, of.align)
        return of

    return [value(each) for each in packed.values]


def mark_empty(packed: PackedArguments, memory: Sequence[Bytes]) -> list[Bytes]:
    """Let what counted as unwritten count so here; as long as the result is kept."""
    parts = [
        data[first:last]
        for region, data in zip(packed.regions, memory, strict=True)
        for first, last in region.empty
    ]
    for each in parts:
        count_as_empty(each)
    return parts


def _checked(index: int, value: object) -> object:
    """An argument whose memory can be sent; what cannot be one is refused."""
    if isinstance(value, Pointer | Struct):
        return value
    if isinstance(value, np.void) and not value.dtype.hasobject:
        return value
    if isinstance(value, RAW) and not isinstance(value, np.void):
        return memoryview(cast("ReadableBuffer", value)).tobytes()
    if is_memory(value):
        return memory_of(value, f"argument {index}")
    try:
        return plain(value)
    except TypeError:
        pass
    raise BadCall(
        f"argument {index} is a number, an array, bytes, ptx.pointer, ptx.struct or "
        f"ptx.tensor_map; given {given_text(value)}"
    )


def plain(value: object) -> object:
    """A value that every process can read: numbers, texts, lists and dictionaries.

    >>> plain((1, [np.int32(2), "three"]))
    (1, [np.int32(2), 'three'])
    >>> plain(object())
    Traceback (most recent call last):
    TypeError: object
    """
    if type(value) in (list, tuple):
        assert isinstance(value, list | tuple)
        return type(value)(plain(each) for each in value)
    if type(value) is dict:
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, np.generic) and not value.dtype.hasobject:
        return value
    if value is None or type(value) in (bool, complex, Fraction, Decimal):
        return value
    for kind in (int, float, str):  # a class of the user is known only here
        if isinstance(value, kind):
            return kind(value)
    raise TypeError(type(value).__name__)


def _arrays(value: object) -> list[Array]:
    if isinstance(value, Struct):
        return [each.array for _, each in value.pointers]
    if isinstance(value, Pointer):
        return [value.array]
    return [value] if isinstance(value, np.ndarray) else []


def _packed(value: object, groups: Sequence[SegmentArrays]) -> object:
    if isinstance(value, Struct):
        pointers = [(at, _pointer(each, groups)) for at, each in value.pointers]
        return PackedStruct(value.data, tuple(pointers), value.align)
    if isinstance(value, Pointer):
        return _pointer(value, groups)
    return _array(value, groups) if isinstance(value, np.ndarray) else value


def _pointer(value: Pointer, groups: Sequence[SegmentArrays]) -> PackedPointer:
    return PackedPointer(_array(value.array, groups), value.offset)


def _array(array: Array, groups: Sequence[SegmentArrays]) -> PackedArray:
    for region, group in enumerate(groups):
        for place in group.places:
            if place.array is array:
                offset = place.start - group.start
                about = (array.dtype, array.shape, array.strides)
                return PackedArray(region, offset, *about)
    raise AssertionError("every array is in a region")
