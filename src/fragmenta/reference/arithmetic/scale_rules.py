"""Rules that choose the scale of a block.

The largest magnitude of a block, amax, decides.  Let L be the largest element of the
type (6 for e2m1) and emax its exponent (2)::

    scale   rule      the scale
    ue8m0   ocp       2 to the floor(log2(amax)) - emax: the rule of the OCP standard
            up        the least power of two with amax / scale <= L
            nearest   the power of two nearest to amax / 2**emax; half way, the larger
    ue4m3   nearest   amax / L in ue4m3, rounded to nearest even
            up        amax / L in ue4m3, rounded up
    f32     nearest   amax / L in float32, rounded to nearest even
            up        amax / L in float32, rounded up

With ``ocp``, and where amax / L is rounded down, the largest magnitudes of a block may
be beyond L; they become L.  A scale outside the range of its type becomes the nearest
end of the range.  A block of zeros has the least scale of its type: 2**-127 or 0.  In
float32 it has 1, and a scale is never 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fragmenta.reference.arithmetic.rounding import (
    Numbers,
    largest_element,
    round_elements,
    round_float32,
)
from fragmenta.reference.registers.dtype import DType

RULES = {
    "ue8m0": ("ocp", "up", "nearest"),
    "ue4m3": ("nearest", "up"),
    "f32": ("nearest", "up"),
}
"""The rules of each type of scales, the default first."""

_LEAST, _MOST = -127, 127  # the exponents of ue8m0


def block_scales(
    amax: Numbers, of: DType, scale: DType, rule: str, unit: Numbers | float = 1.0
) -> Numbers:
    """The scale of each block in multiples of ``unit``, as float64.

    >>> import fragmenta as fm
    >>> amax, e2m1 = np.array([7.0, 8.0, 0.0]), fm.dtype("e2m1")
    >>> block_scales(amax, e2m1, fm.dtype("ue8m0"), "ocp")
    array([1.00000000e+00, 2.00000000e+00, 5.87747175e-39])
    >>> block_scales(amax, e2m1, fm.dtype("ue8m0"), "up")[:2]
    array([2., 2.])
    >>> block_scales(amax, e2m1, fm.dtype("ue8m0"), "nearest")[:2]
    array([2., 2.])
    >>> block_scales(amax, e2m1, fm.dtype("ue4m3"), "nearest")
    array([1.125, 1.375, 0.   ])
    """
    if scale.name == "ue8m0":
        exponents = np.where(amax == 0, _LEAST, _exponents(amax, of, rule))
        return np.asarray(np.ldexp(1.0, np.clip(exponents, _LEAST, _MOST)))
    with np.errstate(over="ignore", under="ignore"):
        wanted: Numbers = amax / (largest_element(of) * unit)
    if scale.name == "f32":
        found = round_float32(wanted, up=rule == "up")
        return np.where(amax == 0, 1.0, found)
    return round_elements(wanted, scale, up=rule == "up")


def tensor_scales(amax: Numbers, of: DType, scale: DType) -> Numbers:
    """The float32 that puts the largest block at the largest scale; 1 for zeros.

    This is the outer scale of NVIDIA's NVFP4: amax / (6 * 448).

    >>> import fragmenta as fm
    >>> tensor_scales(np.array([2688.0, 0.0]), fm.dtype("e2m1"), fm.dtype("ue4m3"))
    array([1., 1.])
    """
    wanted = amax / (largest_element(of) * largest_element(scale))
    return np.where(amax == 0, 1.0, round_float32(wanted))


def _exponents(amax: Numbers, of: DType, rule: str) -> NDArray[np.int_]:
    """The exponent of each scale that is a power of two, before its range is kept."""
    most = largest_element(of)
    emax = np.frexp(most)[1] - 1
    significand, exponent = np.frexp(amax)  # 0.5 <= significand < 1
    found = exponent - 1 - emax
    if rule == "up":
        with np.errstate(over="ignore"):
            return np.asarray(found + (amax > np.ldexp(most, found)))
    return np.asarray(found + (significand >= 0.75) if rule == "nearest" else found)
