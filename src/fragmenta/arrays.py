"""What is an array here, and which go together?

Plain ones, without a mask; and those whose batch axes broadcast.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import Error, ShapeError, one_of

Array = NDArray[Any]


def refuse_masks(array: object) -> None:
    """Refuse masked arrays: nothing here has a mask, and it would be lost.

    >>> refuse_masks(np.ma.masked_less([1, 2], 2))
    Traceback (most recent call last):
    fragmenta.errors.Error: a masked array has no values at its masked places, and \
registers have no mask; give .filled(value), or .data for what lies under the mask
    """
    module = sys.modules.get("numpy.ma")
    if module is None:  # then nobody can have made one
        return
    if isinstance(array, module.MaskedArray):
        raise Error(
            "a masked array has no values at its masked places, and registers have no "
            "mask; give .filled(value), or .data for what lies under the mask"
        )
    if isinstance(array, list | tuple):
        for each in array:
            if not isinstance(each, int | float):
                refuse_masks(each)


def batch_shape(**shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The axes that operands have together, each named with its batch axes.

    >>> batch_shape(a=(2, 1), b=(3,))
    (2, 3)
    >>> batch_shape(a=(2,), b=(3,))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: batch axes do not go together: a (2,) and b (3,)
    """
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        listed = one_of((f"{name} {each}" for name, each in shapes.items()), "and")
        raise ShapeError(f"batch axes do not go together: {listed}") from None


def is_zero(values: Array) -> NDArray[np.bool_]:
    """Where numbers are zero, of either sign; no NaN is, and none is complained of.

    >>> is_zero(np.array([0.0, -0.0, np.nan]))
    array([ True,  True, False])
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN
        zero: NDArray[np.bool_] = values == 0
    return zero
