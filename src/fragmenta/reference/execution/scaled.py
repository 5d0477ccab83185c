"""Applies the scales of quantised operands to a product.

Some scales are operands of the instruction, and some are factors that a kernel
multiplies D with at its end::

    the instruction has   scales of A and B           where they go
    block scales          ue8m0 or ue4m3, for 16 or   into the instruction
                          32 elements along k
                          and a float32 for all       a factor of D
    no scales             float32, for a row of A, a  a factor of D
                          column of B, or all
    no scales             for some elements along k   nowhere: refused

The factors of A and of B are multiplied with each other, then with D.  Both products
are rounded to float32, as in kernels that take alpha = t_a * t_b.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import BadCall, ShapeError
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.quant.quantization import Quantized
from fragmenta.reference.sparse.compression import Compressed

Factor = NDArray[np.float32]
_ALONG = {"A": -1, "B": -2}
"""The axis of k."""


class ScaledOperand(NamedTuple):
    """What an operand of a product is made of."""

    values: Any
    scales: Any = None
    """What the instruction takes."""
    factor: Factor | None = None
    """What D is to be multiplied with."""


def operand(
    op: Instruction,
    name: str,
    given: ArrayLike | Compressed | Quantized,
    scales: ArrayLike | None,
) -> ScaledOperand:
    """A or B with the scales that belong to it; what is not quantised stays as it is.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k64", a="e2m1", kind="mxf4nvf4", stype="ue4m3")
    >>> part = operand(op, "A", fm.quant.quantize("nvfp4", np.ones((5, 80))), None)
    >>> part.values.shape, part.scales.shape, part.factor
    ((5, 80), (5, 8), array([[0.00037202]], dtype=float32))
    """
    if not isinstance(given, Quantized):
        return ScaledOperand(given, scales)
    if scales is not None:
        raise BadCall(
            f"{name} is Quantized and has its own scales; leave "
            f"scale_{name.lower()} out"
        )
    if not op.scale_vec:
        return ScaledOperand(given.values, None, _outer(op, name, given))
    _check_blocks(op, name, given)
    return ScaledOperand(given.values, _whole(op, name, given), given.tensor_scale)


def rescaled(D: Array, a: ScaledOperand, b: ScaledOperand) -> Array:
    """D multiplied with the factors of both operands, if there are any.

    >>> half = ScaledOperand(None, factor=np.float32([[0.5]]))
    >>> tens = ScaledOperand(None, factor=np.float32([[10, 20]]))
    >>> rescaled(np.int32([[7, 9]]), half, tens)
    array([[35., 90.]], dtype=float32)
    """
    factors = [part.factor for part in (a, b) if part.factor is not None]
    if not factors:
        return D
    factor = factors[0] * factors[-1] if len(factors) > 1 else factors[0]
    scaled: Array = D.astype(np.float32) * factor
    return scaled


def _outer(op: Instruction, name: str, q: Quantized) -> Factor:
    """The scales of an operand whose instruction has none, as a factor of D."""
    along, size = _ALONG[name], q.shape[q.axis]
    scales = q.scales.astype(np.float32)
    if q.axis != along:
        scales = scales.repeat(min(q.block, size), axis=q.axis)
        scales = scales[..., :size] if q.axis == -1 else scales[..., :size, :]
    elif q.block >= size:  # others belong to nothing
        scales = scales[..., :1] if q.axis == -1 else scales[..., :1, :]
    if scales.shape[along] > 1:
        each = f"{q.block} elements" if q.axis == along else "element"
        what = "row" if name == "A" else "column"
        raise BadCall(
            f"{name} has a scale for every {each} along k, and {op} takes none; "
            f"quantise with per='{what}' or per='tensor', or take an instruction with "
            "block scales"
        )
    return scales if q.tensor_scale is None else scales * q.tensor_scale


def _check_blocks(op: Instruction, name: str, q: Quantized) -> None:
    """Refuse scales that are not those of the instruction."""
    scale, block = op.scale_a.dtype, op.shape.k // op.scale_vec
    if (q.scale_dtype, q.block, q.axis) == (scale, block, _ALONG[name]):
        return
    if (q.scale_dtype, q.block) == (scale, block):
        raise ShapeError(
            f"blocks of {name} lie along k, axis {_ALONG[name]}; these lie along axis "
            f"{q.axis}: quantize(X, op, operand='{name}')"
        )
    raise BadCall(
        f"{op} takes one {scale} for {block} elements along k; {name} has one "
        f"{q.scale_dtype} for {q.block}: quantize(X, op, operand='{name}')"
    )


def _whole(op: Instruction, name: str, q: Quantized) -> Array:
    """A scale for every block of every instruction; those of padding are zero bits."""
    along, across = _ALONG[name], -3 - _ALONG[name]
    count = -(-q.shape[along] // op.shape.k) * op.scale_vec
    shape = list(q.scales.shape)
    shape[across], shape[along] = q.shape[across], count
    scales = np.zeros(shape, np.uint8)
    kept = min(count, q.scales.shape[along])
    bits = q.scale_dtype.encode(q.scales)
    if along == -1:
        scales[..., :kept] = bits[..., :kept]
    else:
        scales[..., :kept, :] = bits[..., :kept, :]
    return q.scale_dtype.decode(scales)
