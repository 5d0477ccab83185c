"""Turns activations into a sparse matrix of e4m3 and scales.

The kernel and its rule are in :mod:`fragmenta.kernels.activate`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fragmenta.errors import ShapeError, UnknownType
from fragmenta.kernels.activate import (
    ELEMENT,
    GIVEN,
    activate_on_device,
    emulate_activate,
)
from fragmenta.kernels.config import check_activation
from fragmenta.kernels.packing import packed_shape
from fragmenta.torch.matrix import (
    OUTPUTS,
    RESULTS,
    listed,
    matrix_of,
    rows_aligned,
    tensor_of,
)
from fragmenta.torch.quantizing import Pair

_KINDS = [RESULTS[name] for name in GIVEN]


def _given(x: Tensor, activation: str) -> str:
    """The type of x; refuses what the kernel does not take."""
    check_activation(activation)
    if x.dtype not in _KINDS:
        raise UnknownType(
            f"activations must be {listed(_KINDS)}; given {x.dtype}: use "
            "x.to(torch.bfloat16)"
        )
    if x.ndim != 2 or not x.numel():
        raise ShapeError(
            f"activations must be a matrix with elements; given {tuple(x.shape)}"
        )
    return OUTPUTS[x.dtype]


def _empty(x: Tensor) -> Pair:
    shape = packed_shape(ELEMENT, *x.shape)
    packed = x.new_empty(shape, dtype=torch.uint8)
    return packed, x.new_empty((x.shape[0],), dtype=torch.float32)


def activate_without_data(x: Tensor, activation: str) -> Pair:
    """The shapes and types of the result.

    >>> x = torch.ones(2, 20, device="meta", dtype=torch.bfloat16)
    >>> [tuple(each.shape) for each in activate_without_data(x, "relu")]
    [(1, 1, 4, 5120), (2,)]
    """
    _given(x, activation)
    return _empty(x)


def activate_on_cuda(x: Tensor, activation: str) -> Pair:
    """One launch on the current stream."""
    given = _given(x, activation)
    packed, scales = _empty(x)
    activate_on_device(rows_aligned(x), given, activation, packed, scales)
    return packed, scales


def activate_on_cpu(x: Tensor, activation: str) -> Pair:
    """The emulation.

    >>> activate_on_cpu(torch.tensor([[1.0, -2.0]]).half(), "relu2")[1]
    tensor([0.0039])
    """
    given = _given(x, activation)
    packed, scales = emulate_activate(matrix_of(x, given), activation)
    return torch.from_numpy(packed.data), tensor_of(scales, torch.float32)
