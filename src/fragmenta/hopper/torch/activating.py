"""Turns activations into a sparse matrix of e4m3 and scales.

The kernel and its rule are in :mod:`fragmenta.hopper.kernels.activate`.  The epilogue
of a dense product can do the same, if the scale is known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

import torch
from torch import Tensor

from fragmenta.errors import ShapeError, UnknownType
from fragmenta.hopper.kernels.activate import (
    ELEMENT,
    GIVEN,
    activate_on_device,
    emulate_activate,
    emulate_activated,
)
from fragmenta.hopper.kernels.arguments import Matrix
from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Kernel, Tile, check_activation
from fragmenta.hopper.kernels.emulate import Epilogue
from fragmenta.hopper.kernels.launch import launch
from fragmenta.hopper.kernels.packing import packed_shape
from fragmenta.hopper.torch.matrix import (
    OUTPUTS,
    RESULTS,
    listed,
    matrix_of,
    rows_aligned,
    tensor_of,
)
from fragmenta.hopper.torch.quantizing import Pair
from fragmenta.hopper.torch.request import ProductRequest, dense_product
from fragmenta.hopper.torch.running import EpilogueTensors, planned_on, rows_of, tiled

_KINDS = [RESULTS[name] for name in GIVEN]
_BLOCK = Kernel(ELEMENT, tile=Tile(64, 8)).block_bytes
_TORCH: ModuleType = torch._C


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


# ── as the epilogue of a product ────────────────────────────────────────────


class ActivatedProduct:
    """A dense product whose result goes through an activation, as it was asked for."""

    def __init__(
        self,
        a: Tensor,
        b: Tensor,
        activation: str,
        out: torch.dtype,
        scale_m: Tensor | None,
        scale_n: Tensor | None,
        inverse: Tensor,
        tile: Sequence[int],
    ) -> None:
        check_activation(activation)
        if out not in _KINDS:
            raise UnknownType(f"activations must be {listed(_KINDS)}; given {out}")
        if not a.numel() or not b.numel():
            raise ShapeError(
                f"a product with an activation must have elements; given "
                f"{tuple(a.shape)} and {tuple(b.shape)}"
            )
        one = inverse.dtype == torch.float32 and inverse.numel() == 1
        if not one or inverse.device != b.device:
            raise ShapeError(
                f"inverse must be one float32 on {b.device}; given {inverse.dtype} of "
                f"shape {tuple(inverse.shape)} on {inverse.device}"
            )
        options = (None, scale_m, scale_n, None, False, False, tile)
        self.product: ProductRequest = dense_product(a, b, out, *options)
        self.inverse = inverse
        kernel = replace(self.product.kernel(), scaled=True, tile=Tile(64, 128))
        self.kernel = replace(kernel, activation=activation)

    @property
    def epilogue(self) -> EpilogueTensors:
        """The tensors of the epilogue."""
        return self.product.epilogue

    def empty(self) -> Tensor:
        """Memory for the result."""
        m, n, _ = self.product.shape
        shape = packed_shape(ELEMENT, m, n)
        return self.product.b.new_empty(shape, dtype=torch.uint8)


def activated_without_data(*arguments: object) -> Tensor:
    """The shape and type of the result."""
    return ActivatedProduct(*arguments).empty()  # type: ignore[arg-type]


def activated_on_cuda(*arguments: object) -> Tensor:
    """One launch on the current stream."""
    asked = ActivatedProduct(*arguments)  # type: ignore[arg-type]
    product, packed = asked.product, asked.empty()
    device, shape = packed.device, product.shape
    if shape[0] % 256:  # no tile may reach the last rows: legal codes stand there
        packed[-1].fill_(0xEE)
    kernel = tiled(asked.kernel, shape, product.tile, device.index)
    planned = planned_on(kernel, *shape, device.index)
    parts = {name: part.contiguous() for name, part in asked.epilogue.items()}
    pointers = {name: part.data_ptr() for name, part in parts.items()}
    blocks = packed.numel() // _BLOCK
    a, b = (
        rows_aligned(product.a),
        rows_aligned(product.b),
    )  # both live until the launch
    with torch.cuda.device(device):
        launch(
            planned,
            rows_of(a),
            rows_of(b),
            Matrix(packed.data_ptr(), blocks, _BLOCK, _BLOCK),  # it has no tensor map
            stream=_TORCH._cuda_getCurrentRawStream(device.index),
            epilogue={
                **pointers,
                "bias": asked.inverse.data_ptr(),
                "count_m": packed.data_ptr(),
            },
        )
    return packed


def activated_on_cpu(*arguments: object) -> Tensor:
    """The emulation."""
    asked = ActivatedProduct(*arguments)  # type: ignore[arg-type]
    product = asked.product
    kernel = asked.kernel
    if product.tile:
        kernel = tiled(kernel, product.shape, product.tile)
    else:
        kernel = choose(kernel, *product.shape)
    parts = {
        name: part.detach().numpy().reshape(-1) for name, part in asked.epilogue.items()
    }
    packed = emulate_activated(
        kernel,
        matrix_of(product.a, product.a_type),
        matrix_of(product.b, kernel.b),
        Epilogue(**parts),
        1.0 / float(asked.inverse.reshape(())),
    )
    return torch.from_numpy(packed.data)
