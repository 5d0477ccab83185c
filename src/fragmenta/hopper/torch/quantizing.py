"""Quantises tensors to 8-bit elements and scales.

The kernel and its rule are in :mod:`fragmenta.hopper.kernels.quantize`.  Rows of x and
rows of a weight are quantised in the same way.
"""

from __future__ import annotations

import math
import numbers

import numpy as np
import torch
from torch import Tensor

from fragmenta.errors import (
    BadCall,
    ShapeError,
    UnknownType,
    ValueRangeError,
    nearest,
    one_of,
)
from fragmenta.hopper.kernels.config import GROUPS
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.quantize import (
    FLOATS,
    ROOM,
    emulate_quantize,
    quantize_on_device,
)
from fragmenta.hopper.torch.matrix import (
    DTYPES,
    OUTPUTS,
    listed,
    matrix_of,
    rows_aligned,
    tensor_of,
)
from fragmenta.reference.arithmetic.scale_rules import block_scales
from fragmenta.reference.registers.dtype import dtype

QUANTIZED = {"fp8": "e4m3", "int8": "s8"}
"""The element type of each kind of quantisation."""
FOUR_BITS = {"int4": "bf16", "int4-fp8": "e4m3"}
"""Layers with 4-bit weights: the type of what they are multiplied with."""
LAYERS = (*QUANTIZED, *FOUR_BITS)
"""All kinds of quantised layers."""
PER = ("row", "tensor")
"""The parts of a weight that may share a scale."""
_KINDS = [kind for kind, name in OUTPUTS.items() if name in FLOATS]

Pair = tuple[Tensor, Tensor]


def quantized_type(quantize: object) -> str:
    """The element type of a kind of quantisation.

    >>> quantized_type("fp8")
    'e4m3'
    >>> quantized_type("fp4")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: quantize must be fp8 or int8; given 'fp4' (did you mean \
fp8?)
    """
    if not isinstance(quantize, str) or quantize not in QUANTIZED:
        hint = nearest(str(quantize), QUANTIZED)
        raise BadCall(f"quantize must be {one_of(QUANTIZED)}; given {quantize!r}{hint}")
    return QUANTIZED[quantize]


def layer_type(quantize: object, group: int | None = None) -> str:
    """The element type of the weights of a quantised layer.

    >>> layer_type("int8"), layer_type("int4"), layer_type("int4-fp8", 0)
    ('s8', 's4-128', 's4-row-e4m3')
    >>> layer_type("fp8", 64)
    Traceback (most recent call last):
    fragmenta.errors.BadCall: group is for int4 or int4-fp8; given 64 with 'fp8'
    """
    if not isinstance(quantize, str) or quantize not in LAYERS:
        hint = nearest(str(quantize), LAYERS)
        raise BadCall(f"quantize must be {one_of(LAYERS)}; given {quantize!r}{hint}")
    if quantize in FOUR_BITS:
        return _integers(FOUR_BITS[quantize], 128 if group is None else group)
    if group is not None:
        raise BadCall(
            f"group is for {one_of(FOUR_BITS)}; given {group!r} with {quantize!r}"
        )
    return QUANTIZED[quantize]


def _integers(b: str, group: object) -> str:
    """The name of the format of 4-bit integers with these groups."""
    allowed = [each for each in GROUPS if (b, each) != ("e4m3", 32)]
    if isinstance(group, bool) or group not in allowed:
        raise BadCall(
            f"group is {one_of(allowed[1:])} columns that share a scale, or 0: a whole "
            f"row; given {group!r}"
        )
    assert isinstance(group, int)
    return Integers(b, group).name


def activation_type(quantize: object) -> str:
    """The element type that a quantised layer gives its activations.

    >>> activation_type("int4-fp8"), activation_type("int8")
    ('e4m3', 's8')
    """
    return quantized_type("fp8" if quantize == "int4-fp8" else quantize)


def scale_for(amax: float, element_type: str) -> float:
    """The scale that puts a largest magnitude at the largest element; 1 for zero.

    >>> scale_for(7.0, "e4m3")
    0.015625
    """
    most = np.array([float(amax)])
    found = block_scales(most, dtype(element_type), dtype("f32"), "nearest")
    return float(found[0])


def checked_scale(scale: object, name: str) -> float:
    """A scale as float32 holds it; it must be above zero and finite.

    >>> checked_scale(0.5, "a scale"), checked_scale(-1, "a scale")
    Traceback (most recent call last):
    fragmenta.errors.ValueRangeError: a scale must be above 0 and finite in float32; \
given -1
    """
    if isinstance(scale, Tensor) and scale.numel() == 1:
        scale = scale.item()
    if not isinstance(scale, numbers.Real) or isinstance(scale, bool):
        raise BadCall(f"{name} must be a number; given {scale!r}")
    with np.errstate(over="ignore", under="ignore"):
        found = float(np.float32(scale))
    if not 0 < found < math.inf:
        raise ValueRangeError(
            f"{name} must be above 0 and finite in float32; given {scale}"
        )
    return found


# ── the operator ────────────────────────────────────────────────────────────


def _given(x: Tensor, element_type: str, scale: Tensor | None) -> str:
    """The type of x; refuses what the kernel does not take."""
    if x.dtype not in _KINDS or element_type not in QUANTIZED.values():
        raise UnknownType(
            f"x must be {listed(_KINDS)} to be quantised to "
            f"{one_of(QUANTIZED.values())}; given {x.dtype} to {element_type}"
        )
    if x.ndim != 2 or not x.shape[1]:
        raise ShapeError(
            f"x must be a matrix with columns to be quantised; given {tuple(x.shape)}"
        )
    if scale is not None and (
        scale.numel() != 1 or scale.dtype != torch.float32 or scale.device != x.device
    ):
        raise ShapeError(
            f"scale must be one float32 on {x.device}; given {scale.dtype} of shape "
            f"{tuple(scale.shape)} on {scale.device}"
        )
    return OUTPUTS[x.dtype]


def _empty(x: Tensor, element_type: str) -> Pair:
    """Memory for the result; rows of elements begin on multiples of 16 bytes."""
    rows, columns = x.shape
    room = x.new_empty((rows, -(-columns // ROOM) * ROOM), dtype=DTYPES[element_type])
    return room[:, :columns], x.new_empty((rows,), dtype=torch.float32)


def quantize_without_data(x: Tensor, element_type: str, scale: Tensor | None) -> Pair:
    """The shapes and types of the result.

    >>> x = torch.ones(2, 20, device="meta")
    >>> [tuple(each.shape) for each in quantize_without_data(x, "s8", None)]
    [(2, 20), (2,)]
    """
    _given(x, element_type, scale)
    return _empty(x, element_type)


def quantize_on_cuda(x: Tensor, element_type: str, scale: Tensor | None) -> Pair:
    """One launch on the current stream."""
    given = _given(x, element_type, scale)
    values, scales = _empty(x, element_type)
    if x.shape[0]:
        quantize_on_device(rows_aligned(x), given, element_type, values, scales, scale)
    return values, scales


def quantize_on_cpu(x: Tensor, element_type: str, scale: Tensor | None) -> Pair:
    """The emulation.

    >>> quantize_on_cpu(torch.tensor([[1.0, -2.0]]), "s8", None)
    (tensor([[  64, -127]], dtype=torch.int8), tensor([0.0157]))
    """
    given = _given(x, element_type, scale)
    values, scales = _empty(x, element_type)
    known = None if scale is None else float(scale.reshape(()))
    found, factors = emulate_quantize(matrix_of(x, given), element_type, known)
    if x.shape[0]:
        values.copy_(tensor_of(found, values.dtype))
        scales.copy_(tensor_of(factors, torch.float32))
    return values, scales
