"""Errors of arrays in a few numbers."""

from __future__ import annotations

from math import hypot, inf, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.values.numerics.seconds import ArrayPlanes, kind_of

Floats = NDArray[np.float64]
LARGE = 2.0**500
"""Squares of what is larger may not be numbers of f64."""


class Summary(NamedTuple):
    """The errors of an array."""

    total: float
    """The norm of the error, relative to that of the exact values."""
    worst: int
    """The element with the largest relative error, by its place in memory; or -1."""
    relative: float
    """That error."""
    ulp: float
    bits: float
    """The most bits that are lost."""
    mean_bits: float
    error: float
    """The largest error."""
    exact: float
    """The largest exact value."""
    nan: int
    infinite: int


def relative(error: Floats, exact: Floats) -> Floats:
    """Errors relative to exact values; NaN where there is none.

    >>> relative(np.array([1.0, 0.0, 1.0]), np.array([4.0, 0.0, 0.0]))
    array([0.25, 0.  ,  nan])
    """
    with np.errstate(all="ignore"):
        found = np.abs(error) / np.abs(exact)
    found = np.where(error == 0, 0.0, found)
    return np.where(np.isinf(found), np.nan, found)


def ulps(error: Floats, exact: Floats, name: str) -> Floats:
    """Errors in units of the last place of a format.

    >>> ulps(np.array([2.0**-23]), np.array([1.5]), "f32")
    array([1.])
    """
    kind = kind_of(name)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.abs(exact)))
        unit = np.exp2(exponent - (kind.precision - 1))
    unit = np.where(np.isfinite(unit), unit, 0.0)
    found: Floats = np.abs(error) / np.maximum(unit, kind.least)
    return found


def bits_lost(ulp: Floats, name: str) -> Floats:
    """The bits of elements that are wrong: 0 if they are rounded well.

    >>> bits_lost(np.array([0.5, 4.0, np.nan]), "f16")
    array([ 0.,  3., 11.])
    """
    with np.errstate(all="ignore"):
        found = np.log2(ulp * 2)
    most = kind_of(name).precision
    return np.clip(np.where(np.isfinite(ulp), found, most), 0, most)


def _norm(numbers: Floats) -> float:
    """The root of the sum of squares, also where a square is beyond f64.

    >>> _norm(np.array([3.0, 4.0]) * 2.0**600) / 2.0**600
    5.0
    """
    size = float(np.max(np.abs(numbers), initial=0.0))
    unit = size if LARGE < size < inf else 1.0
    return unit * sqrt(np.square(numbers / unit).sum())


def summary(held: ArrayPlanes) -> Summary:
    """The errors of an array, part by part."""
    made = Summary(0.0, -1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, 0)
    error_norm = exact_norm = bits_sum = 0.0
    for first, part in held.parts():
        with np.errstate(invalid="ignore"):
            exact, error = part.exact + part.lower, part.error
        ulp = ulps(error, exact, held.format)
        lost, ratio = bits_lost(ulp, held.format), relative(error, exact)
        good = np.isfinite(error)
        error_norm = hypot(error_norm, _norm(error[good]))
        exact_norm = hypot(exact_norm, _norm(exact[good]))
        bits_sum += float(lost.sum())
        worst, size = made.worst, made.relative
        if np.isfinite(ratio).any():
            place = int(np.nanargmax(ratio))
            if worst < 0 or ratio[place] > size:
                worst, size = first + place, float(ratio[place])
        made = Summary(
            0.0,
            worst,
            size,
            float(np.max(ulp[good], initial=made.ulp)),
            float(np.max(lost[good], initial=made.bits)),
            0.0,
            float(np.max(np.abs(error[good]), initial=made.error)),
            float(np.max(np.abs(exact[good]), initial=made.exact)),
            made.nan + int(np.isnan(part.values).sum()),
            made.infinite + int(np.isinf(part.values).sum()),
        )
    total = error_norm / exact_norm if exact_norm else error_norm
    return made._replace(total=total, mean_bits=bits_sum / max(1, held.size))
