"""Checks that something is an array of numbers, and that arrays fit together.

These checks need no knowledge of element types or instructions.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Container
from typing import Any, Protocol, cast

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import BadCall, ShapeError, one_of

Array = NDArray[Any]

# PyTorch has these types under the names of ml_dtypes, but cannot convert them to
# NumPy arrays.
_UNKNOWN_TO_NUMPY = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu")


def as_array(array: object) -> Array:
    """The given array as a NumPy array in native byte order.

    Accepted are NumPy arrays, nested lists, and anything with ``__array__`` or
    ``__dlpack__``, such as PyTorch, CuPy and JAX arrays in host memory.

    >>> as_array([[1, 2]]).shape
    (1, 2)
    """
    refuse_masks(array)
    if isinstance(array, np.ndarray):
        given: Array = np.asarray(array)  # a subclass becomes a plain array
    else:
        try:
            given = _foreign(array)
        except (TypeError, ValueError, RuntimeError, BufferError) as why:
            ragged = isinstance(array, list | tuple)
            raise (ShapeError if ragged else BadCall)(
                f"NumPy cannot read this {type(array).__name__} as an array: {why}"
            ) from why
    if given.dtype.isnative:
        return given
    return given.astype(given.dtype.newbyteorder("="))


def refuse_masks(array: object) -> None:
    """Refuse masked arrays: their mask would be lost.

    >>> refuse_masks(np.ma.masked_less([1, 2], 2))
    Traceback (most recent call last):
    fragmenta.errors.BadCall: a masked array has no values at its masked places, and \
registers have no mask; give .filled(value), or .data for the values under the mask
    """
    # Without the module, or while another thread imports it, no masked array exists.
    kind = getattr(sys.modules.get("numpy.ma"), "MaskedArray", None)
    if kind is None:
        return
    if isinstance(array, kind):
        raise BadCall(
            "a masked array has no values at its masked places, and registers have no "
            "mask; give .filled(value), or .data for the values under the mask"
        )
    if isinstance(array, list | tuple):
        for each in array:
            if not isinstance(each, int | float):
                refuse_masks(each)


class _Tensor(Protocol):
    """A tensor of PyTorch, as far as it is used here."""

    itemsize: int

    def view(self, of: object) -> object: ...


def _foreign(array: object) -> Array:
    name = str(getattr(array, "dtype", "")).removeprefix("torch.")
    if name in _UNKNOWN_TO_NUMPY and type(array).__module__ == "torch":
        torch, tensor = sys.modules["torch"], cast("_Tensor", array)
        bits = tensor.view(torch.uint8 if tensor.itemsize == 1 else torch.int16)
        return np.asarray(bits).view(getattr(ml_dtypes, name))
    if hasattr(array, "__dlpack__") and not hasattr(array, "__array__"):
        return np.from_dlpack(array)
    return np.asarray(array)


def batch_shape(**shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The batch axes of several operands, broadcast together.

    >>> batch_shape(a=(2, 1), b=(3,))
    (2, 3)
    >>> batch_shape(a=(2,), b=(3,))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: batch axes do not broadcast together: \
a (2,) and b (3,)
    """
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = one_of((f"{name} {each}" for name, each in shapes.items()), "and")
        raise ShapeError(f"batch axes do not broadcast together: {listed}") from None


def is_zero(values: Array) -> NDArray[np.bool_]:
    """Where numbers are zero, of either sign; a NaN is not, and causes no warning.

    >>> is_zero(np.array([0.0, -0.0, np.nan]))
    array([ True,  True, False])
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN
        zero: NDArray[np.bool_] = values == 0
    return zero


def is_real(given: Array) -> bool:
    """Whether these are real numbers, not strings, objects, complex numbers or dates.

    >>> is_real(np.float16([1])), is_real(np.array([1j])), is_real(np.array("1"))
    (True, False, False)
    """
    numpy_number = given.dtype.kind in "biuf"
    ml_number = given.dtype.type.__module__ == "ml_dtypes"
    return (numpy_number or ml_number) and "complex" not in given.dtype.name


def is_whole(value: object) -> bool:
    """Whether this is a whole number; True and False are not.

    >>> is_whole(np.int8(1)), is_whole(1.0), is_whole(True)
    (True, False, False)
    """
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_numbers(**given: object) -> None:
    """Refuse what is not a whole number; the message has its name.

    >>> check_numbers(lane=1.5)
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: lane must be a whole number; given 1.5
    """
    for name, value in given.items():
        if not is_whole(value):
            raise ShapeError(f"{name} must be a whole number; given {value!r}")


def is_among(value: object, allowed: Container[object]) -> bool:
    """Whether this is one of some words or numbers; an array or a list is none.

    >>> is_among("k", ("k", "n")), is_among(np.zeros(2), (0, 1)), is_among(True, (1,))
    (True, False, False)
    """
    plain = isinstance(value, str) or is_whole(value)
    return plain and value in allowed


def check_flags(**given: object) -> None:
    """Refuse what is neither true nor false; the message has its name.

    >>> check_flags(pad=np.zeros(2))
    Traceback (most recent call last):
    fragmenta.errors.BadCall: pad must be True or False; given ndarray
    """
    for name, value in given.items():
        if not isinstance(value, bool | np.bool_) and not is_among(value, (0, 1)):
            kind = type(value).__name__
            raise BadCall(f"{name} must be True or False; given {kind}")


def address_of(array: Array) -> int:
    """Where an array begins in memory; faster than its attribute ``ctypes``."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):  # read-only, empty or with gaps: it takes longer
        return int(array.ctypes.data)
