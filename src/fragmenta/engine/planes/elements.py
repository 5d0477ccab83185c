"""Second values in arrays: the numbers of 64 bits of elements, and their planes.

An element of ``b`` bits has ``P * b`` bits of second value.  Of an element of 16 bits,
planes 0 to 3 have one number of 64 bits, the lowest 16 bits in plane 0.  An element of
32 bits has two such numbers: that of its upper half first, then that of its lower half.
So the upper half of a float of 32 bits, moved to a register of 16 bits, keeps the first
number.  An element of 8 bits has one number in 8 planes, one of 4 bits 32 bits.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

WORDS = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
"""The types of elements and parts."""


def joined(planes: NDArray[np.unsignedinteger], bits: int) -> NDArray[np.uint64]:
    """The second values of elements of so many bits: ``(elements, numbers)``.

    ``planes`` are bytes, or words of the elements' size: ``(P, elements)``.  An element
    has P * bits / 64 numbers: of 32 bits and 4 planes, that of its upper half first.

    >>> planes = np.array([[0x00010002], [0x00030004], [0], [0]], np.uint32)
    >>> [hex(each) for each in joined(planes, 32)[0].tolist()]
    ['0x30001', '0x40002']
    """
    width = min(bits, 16)
    group, parts = 64 // width, bits // width
    fields = np.ascontiguousarray(planes).view(WORDS[width])
    count = -(-fields.shape[0] // group)
    elements = fields.shape[1] // parts
    found = np.zeros((elements, count, parts, group), WORDS[width])
    for plane, each in enumerate(fields):
        number, index = divmod(plane, group)
        # The highest part of an element comes first.
        found[:, number, :, index] = each.reshape(elements, parts)[:, ::-1]
    return found.view(np.uint64).reshape(elements, count * parts)


def split(
    numbers: NDArray[np.uint64], bits: int, planes: int
) -> NDArray[np.unsignedinteger]:
    """The planes of elements with these second values: what :func:`joined` reads.

    >>> numbers = np.array([[0x30001, 0x40002]], np.uint64)
    >>> [hex(each) for each in split(numbers, 32, 4)[:, 0].tolist()]
    ['0x10002', '0x30004', '0x0', '0x0']
    """
    width = min(bits, 16)
    group, parts = 64 // width, bits // width
    found = np.zeros((planes, numbers.shape[0]), np.uint64)
    mask = np.uint64((1 << width) - 1)
    for plane in range(planes):
        number, index = divmod(plane, group)
        for place in range(parts):
            column = numbers[:, number * parts + place]
            piece = column >> np.uint64(width * index) & mask
            found[plane] |= piece << np.uint64(bits - width * (place + 1))
    return found.astype(WORDS[bits])
