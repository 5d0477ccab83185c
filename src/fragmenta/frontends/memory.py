"""Memory of NumPy arrays, and numbers as bytes, as arguments of a kernel."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.lib.array_utils import byte_bounds

from fragmenta.base.arrays.checks import Array
from fragmenta.engine.simt.arguments import Pointer
from fragmenta.errors import ValueRangeError


def pointer_to(array: Array) -> Pointer:
    """A pointer to the first element; a kernel may reach the lowest to the highest.

    >>> pointer_to(np.arange(6)[::-1]).offset
    40
    """
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return Pointer(array, 0)
    low, high = byte_bounds(array)
    memory = (ctypes.c_uint8 * (high - low)).from_address(low)
    found = np.ctypeslib.as_array(memory)
    found.flags.writeable = array.flags.writeable
    return Pointer(found, int(array.ctypes.data) - low)


def whole(value: int, size: int, signed: bool, name: str) -> bytes:
    r"""A whole number of so many bytes.

    >>> whole(-2, 4, True, "n")
    b'\xfe\xff\xff\xff'
    """
    try:
        return int(value).to_bytes(size, "little", signed=signed)
    except OverflowError:
        kind = f"{'' if signed else 'unsigned '}number of {size} bytes"
        raise ValueRangeError(f"{name} is a {kind}; given {value}") from None
