"""The numbers of a model and of its types that kernels need.

All of them are known before anything is computed.  The kernels for whole matrices get
them as arguments; the functions for one warp have them in their machine code.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.jit.trace import F32, F64
from fragmenta.reference.arithmetic.elements import Format
from fragmenta.reference.arithmetic.floating import FusedVariant
from fragmenta.reference.arithmetic.grouped import GroupedVariant
from fragmenta.reference.arithmetic.models import GROUP, Model
from fragmenta.reference.registers.dtype import dtype

#: Twice the value of each e2m1.
TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


class FusedConstants(NamedTuple):
    """What the fused steps of a model need."""

    variant: FusedVariant  #: without infinities and NaN
    rounding: tuple[int, int, int, int]
    c_least: int
    a: Format
    b: Format


@cache
def fused_constants(model: Model) -> FusedConstants:
    """The constants of a model whose form is ``fused``.

    >>> from fragmenta.reference.arithmetic import model
    >>> fused_constants(model("sm_90", "f16", "f16", "f32", "f32", 16)).rounding
    (25, -133, 23, -126)
    """
    a, b = (format_of(name, model.operand) for name in (model.a, model.b))
    narrow = max(a.exponent_bits, b.exponent_bits) <= 5 and not model.scale
    variant = FusedVariant(
        values=F32 if narrow else F64,
        products=model.products,
        nearest=model.rounding == "rn",
        from_zero=model.start == "zero",
        half=model.accumulator == "f16",
        careful=False,
    )
    return FusedConstants(variant, rounding(model), least(model.c_enters), a, b)


def grouped_variant(model: Model) -> GroupedVariant:
    """What must be known to compile the steps of a model whose form is ``grouped``."""
    groups, nearest = model.products // GROUP, model.rounding == "rn"
    return GroupedVariant(GROUP, groups, nearest, model.sparse)


def rounding(model: Model) -> tuple[int, int, int, int]:
    """The fraction, the floor, the bits to keep and the least exponent of a step."""
    return model.fraction, model.floor, model.keep, least(model.accumulator)


def least(name: str) -> int:
    """The exponent of a type's subnormals.

    >>> least("f16")
    -14
    """
    return 1 - dtype(name).bias


def format_of(name: str, operand: str | None = None) -> Format:
    """A type as the kernels need it, after conversion to ``operand``.

    >>> format_of("e4m3").special  # all ones: NaN
    127
    """
    kind = dtype(name)
    top = ((1 << kind.exponent_bits) - 1) << kind.fraction_bits
    special = infinity = 1 << 30  # greater than every pattern
    if kind.has_infinity:
        special = infinity = top & (infinity - 1)
    elif kind.has_nan:
        special = top | ((1 << kind.fraction_bits) - 1)
    of = operand or name
    return Format(kind.exponent_bits, kind.fraction_bits, special, infinity, least(of))


def _scale_parts(name: str) -> tuple[Array, NDArray[np.int32]]:
    bits = np.arange(256)
    if name == "ue8m0":
        exponents = (bits - 127).astype(np.int32)
        return np.where(bits == 255, np.nan, np.ldexp(1.0, exponents)), exponents
    field, fraction = bits >> 3, (bits & 7).astype(float)
    exponents = (np.maximum(field, 1) - 7).astype(np.int32)
    values = np.ldexp(np.where(field > 0, fraction + 8, fraction), exponents - 3)
    values[127] = np.nan
    return values, exponents


#: The value and the exponent of every scale of a type.  The exponent of a subnormal is
#: not normalised.
SCALE_PARTS = {name: _scale_parts(name) for name in ("ue8m0", "ue4m3")}
