"""Grouped products: the weight of each expert times its tokens, in one launch.

Like :mod:`fragmenta.hopper.torch.request` for a product of two matrices: the arguments
of the operator become a record, and the implementations for CUDA, for the CPU and for
tensors without data take it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from fragmenta.errors import BadCall, ShapeError, ValueRangeError
from fragmenta.hopper.kernels.arguments import check_experts
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.emulate import Epilogue, emulate_grouped
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.grouping import choose_grouped
from fragmenta.hopper.kernels.packing import Packed
from fragmenta.hopper.torch.matrix import (
    DTYPES,
    RESULTS,
    bytes_of,
    check_device,
    check_multiplied,
    matrix_of,
    packed_integers,
    tensor_of,
    type_name,
)
from fragmenta.hopper.torch.running import (
    EpilogueTensors,
    Ready,
    check_tile,
    description,
    kernel_for,
    prepared,
    remembered,
    tile_of,
    tiled,
)
from fragmenta.hopper.torch.stack import check_stack


class GroupedProduct(NamedTuple):
    """y = x W^T with a W for each expert, as the operator was called."""

    x: Tensor
    """The tokens, sorted by expert: tokens x k."""
    packed: Tensor
    """The packed bytes of all weights."""
    offs: Tensor
    """The number of tokens up to and with each expert, int32."""
    settled: bool
    element_type: str
    m: int
    out: torch.dtype
    epilogue: EpilogueTensors
    promote: bool
    tile: tuple[int, ...]

    @property
    def experts(self) -> int:
        """The number of experts."""
        return len(self.packed)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """m, tokens, k and experts."""
        return self.m, *self.x.shape, self.experts

    def kernel(self) -> Kernel:
        """The kernel with its tile; refuses operands that do not match."""
        check_tile(self.tile)
        self._check_tensors()
        self._check_epilogue()
        kernel = kernel_for(
            self.element_type,
            self.x.dtype,
            self.out,
            sparse=True,
            scaled=bool(self.epilogue),
            transposed=True,
            promote=self.promote,
            grouped=True,
        )
        check_experts(kernel, self.experts)
        if not self.tile:
            return choose_grouped(kernel, *self.shape)
        return replace(kernel, tile=tile_of(self.tile))

    def _check_tensors(self) -> None:
        x, packed, offs = self.x, self.packed, self.offs
        if x.ndim != 2 or not x.shape[1]:
            raise ShapeError(
                f"x must be a matrix, tokens x k; given shape {tuple(x.shape)}"
            )
        integers = Integers.named(self.element_type)
        if integers:
            check_multiplied(integers, x.dtype)
        elif type_name(x.dtype, "x") != self.element_type:
            raise BadCall(
                f"the weights are {DTYPES[self.element_type]} and x is {x.dtype}; use "
                f"x.to({DTYPES[self.element_type]})"
            )
        check_stack(packed, self.element_type, (self.experts, self.m, x.shape[1]))
        if offs.dtype != torch.int32 or offs.shape != (self.experts,):
            raise ShapeError(
                f"offs must be {self.experts} int32, one for each expert; given "
                f"{offs.dtype} of shape {tuple(offs.shape)}"
            )
        if not offs.is_contiguous():
            raise ShapeError(f"offs must be contiguous; given stride {offs.stride()}")
        check_device(packed, x.device, "the weight")
        check_device(offs, x.device, "offs")

    def _check_epilogue(self) -> None:
        sizes = {"scale": (1,), "scale_n": (self.x.shape[0],)}
        names = {"scale_m": "scale_weight", "scale_n": "scale_x"}
        for name, part in self.epilogue.items():
            wanted = sizes.get(name, (self.experts, self.m))
            fits = part.shape == wanted or (name == "scale" and part.numel() == 1)
            if not fits or part.dtype != torch.float32 or part.device != self.x.device:
                raise ShapeError(
                    f"{names.get(name, name)} must be float32 of shape {wanted} on "
                    f"{self.x.device}; given {part.dtype} of shape {tuple(part.shape)} "
                    f"on {part.device}"
                )


def grouped_product(
    x: Tensor,
    packed: Tensor,
    offs: Tensor,
    settled: bool,
    element_type: str,
    m: int,
    out: torch.dtype,
    scale: Tensor | None,
    scale_weight: Tensor | None,
    scale_x: Tensor | None,
    bias: Tensor | None,
    promote: bool,
    tile: Sequence[int],
) -> GroupedProduct:
    """The product that ``grouped_linear`` is asked for."""
    given = {"scale": scale, "scale_m": scale_weight, "scale_n": scale_x, "bias": bias}
    epilogue = {name: part for name, part in given.items() if part is not None}
    return GroupedProduct(
        x, packed, offs, settled, element_type, m, out, epilogue, promote, tuple(tile)
    )


# ── implementations ─────────────────────────────────────────────────────────


def grouped_on_cuda(*arguments: object) -> Tensor:
    """One launch on the current stream; nobody waits for ``offs``."""
    given = grouped_product(*arguments)  # type: ignore[arg-type]

    def make() -> Ready:
        return prepared(
            tiled(given.kernel(), given.shape, given.tile, given.x.device.index),
            given.packed,
            given.x,
            given.m,
            given.epilogue,
            given.experts,
        )

    key = (
        "grouped",
        *given[4:7],
        given.promote,
        given.tile,
        *given.epilogue,
        *map(description, (*given[:3], *given.epilogue.values())),
    )
    ready = remembered(key, make)
    return ready.run(given.packed, given.x, given.epilogue, given.offs, given.settled)


def grouped_on_cpu(*arguments: object) -> Tensor:
    """The emulation; here the offsets are known, and checked."""
    given = grouped_product(*arguments)  # type: ignore[arg-type]
    kernel, (m, tokens, k, _) = given.kernel(), given.shape
    ends = bytes_of(given.offs)
    bounds = [0, *ends.tolist(), tokens]
    if any(y < x for x, y in pairwise(bounds)):
        raise ValueRangeError(
            f"offs must ascend from 0 to at most {tokens}, the tokens of x; given "
            f"{ends.tolist()}"
        )
    if not tokens:
        return given.x.new_empty((0, m), dtype=given.out)
    parts = {name: part.detach().numpy() for name, part in given.epilogue.items()}
    if "scale" in parts:
        parts["scale"] = parts["scale"].reshape(())
    integers = Integers.named(given.element_type)
    weights: list[Packed] = [
        packed_integers(each, integers, (m, k))
        if integers
        else Packed(bytes_of(each), given.element_type, (m, k))
        for each in given.packed
    ]
    x = matrix_of(given.x, type_name(given.x.dtype, "x"))
    found = emulate_grouped(kernel, weights, x, ends, Epilogue(**parts))
    return tensor_of(found, RESULTS[kernel.out])


def grouped_without_data(*arguments: object) -> Tensor:
    """The shape and type of the result."""
    given = grouped_product(*arguments)  # type: ignore[arg-type]
    return given.x.new_empty((given.x.shape[0], given.m), dtype=given.out)
