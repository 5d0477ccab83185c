"""Rounds numbers to the nearest element of a type.

Numbers are float64.  They are rounded once, to the nearest element; of two that are
equally near, to the one with an even significand.  What is larger than the largest
element becomes the largest element, with its sign: this is ``cvt.rn.satfinite``.

Conversions of ml_dtypes go through float32 and round twice: a float64 just above 2.5
becomes 2 in e2m1, not 3.  So they are not used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.reference.registers.dtype import DType, largest

Numbers = NDArray[np.float64]


def largest_element(of: DType) -> float:
    """The largest element; integers are symmetric, so that -8 and -128 are not used.

    >>> import fragmenta as fm
    >>> largest_element(fm.dtype("e3m2")), largest_element(fm.dtype("s4"))
    (28.0, 7.0)
    """
    return float(of.limits[1]) if of.is_integer else largest(of)


def round_elements(numbers: Numbers, of: DType, *, up: bool = False) -> Numbers:
    """The nearest element of each number; with ``up``, the least that is not below it.

    >>> import fragmenta as fm
    >>> round_elements(np.array([2.5, 2.5 + 2**-40, 100, -0.2]), fm.dtype("e2m1"))
    array([ 2.,  3.,  6., -0.])
    >>> round_elements(np.array([2.5, 3.5, -200]), fm.dtype("s8"))
    array([   2.,    4., -127.])
    >>> round_elements(np.array([0.001, 17]), fm.dtype("ue4m3"), up=True)
    array([1.953125e-03, 1.800000e+01])
    """
    most = largest_element(of)
    kept = np.clip(numbers, -most, most)
    whole = np.ceil if up else np.rint
    if of.is_integer:
        return np.asarray(whole(kept))
    # The last digit of an element with this exponent, or of a subnormal.
    exponent = np.maximum(np.frexp(kept)[1] - 1, 1 - of.bias) - of.fraction_bits
    return np.asarray(np.ldexp(whole(np.ldexp(kept, -exponent)), exponent))


def round_float32(numbers: Numbers, *, up: bool = False) -> Numbers:
    """The nearest float32 of positive numbers, as float64; never zero or infinity.

    >>> round_float32(np.array([0.1, 1e-60, 1e60]))
    array([1.00000001e-01, 1.40129846e-45, 3.40282347e+38])
    """
    with np.errstate(over="ignore", under="ignore"):
        found = numbers.astype(np.float32)
        if up:
            found = np.where(
                found < numbers, np.nextafter(found, np.float32(np.inf)), found
            )
    limits = np.finfo(np.float32)
    kept = np.clip(found, limits.smallest_subnormal, limits.max)
    return np.asarray(kept, np.float64)
