"""The record of a product, made from the arguments of an operator.

The operators of PyTorch have flat arguments.  Each operator turns them into a
:class:`ProductRequest` at once, and its implementations for CUDA, for the CPU and for
tensors without data take that record.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fragmenta.errors import BadCall, ShapeError
from fragmenta.hopper.kernels.config import ALIGNMENT, Kernel
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.torch.matrix import (
    DTYPES,
    as_packed,
    check_multiplied,
    type_name,
    whole_sizes,
)
from fragmenta.hopper.torch.running import (
    EpilogueTensors,
    check_depth,
    check_epilogue,
    check_tile,
    description,
    kernel_for,
)

EPILOGUE = ("scale", "scale_m", "scale_n", "bias")
"""The tensors of an epilogue, in the order in which every operator takes them."""
_COMPATIBLE = ({"e4m3", "e5m2"}, {"s8", "u8"})  # types that may be mixed


class OperandNames(NamedTuple):
    """The names of the operands in error messages."""

    a: str
    b: str
    epilogue: dict[str, str]


MATRICES = OperandNames("A", "B", {})
LINEAR = OperandNames(
    "the weight", "x", {"scale_m": "scale_weight", "scale_n": "scale_x"}
)


class ProductRequest(NamedTuple):  # five times as fast to make as a frozen dataclass
    """One product D = A B, as an operator was called.

    The fields are unchecked; :meth:`kernel` checks them.

    >>> one = torch.ones(2, 4, dtype=torch.int8)
    >>> options = (torch.int32, None, None, None, None, False, False, [])
    >>> str(dense_product(one, one, *options).kernel())
    's8 s32 dense 64x64'
    """

    a: Tensor
    """A dense A (m x k), or the packed bytes of a sparse one."""
    b: Tensor
    """B, given as n x k."""
    a_type: str
    """The element type of A."""
    m: int
    sparse: bool
    out: torch.dtype
    epilogue: EpilogueTensors
    transposed: bool
    promote: bool
    tile: tuple[int, ...]
    """m, n, cluster, turns and split; empty if the tile is to be chosen."""
    names: OperandNames = MATRICES
    leading: tuple[int, ...] | None = None
    """All axes of x but the last, if x does not have two."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """m, n and k."""
        n, k = self.b.shape
        return self.m, n, k

    @property
    def key(self) -> Hashable:
        """A key that is equal for products which differ only in addresses of tensors.

        >>> one = torch.ones(2, 16, dtype=torch.int8)
        >>> options = (torch.int32, None, None, None, None, False, False, [])
        >>> product = dense_product(one, one, *options)
        >>> product.key == dense_product(one + one, one, *options).key
        True
        """
        return (
            self.a_type,
            self.m,
            self.sparse,
            self.out,
            self.transposed,
            self.promote,
            self.tile,
            *self.epilogue,
            description(self.a),
            description(self.b),
            *[description(x) for x in self.epilogue.values()],
        )

    def kernel(self) -> Kernel:
        """The kernel before its tile is chosen; refuses operands that do not match."""
        check_tile(self.tile)
        if self.sparse:
            self.packed()
        self._check_types()
        check_devices(self.a, self.b, self.names)
        check_depth(self.b)
        check_epilogue(self.epilogue, self.m, self.b, self.names.epilogue)
        return kernel_for(
            self.a_type,
            self.b.dtype,
            self.out,
            sparse=self.sparse,
            scaled=bool(self.epilogue),
            transposed=self.transposed,
            promote=self.promote,
        )

    def packed(self) -> Tensor:
        """The bytes of a sparse A, checked: a kernel would read any bytes."""
        if self.b.ndim != 2:
            raise ShapeError(
                f"{self.names.b} must be a matrix; given shape {tuple(self.b.shape)}"
            )
        k = self.b.shape[1]
        if not isinstance(k, int) or not isinstance(self.m, int):  # not known yet
            return self.a
        return as_packed(self.a, self.a_type, whole_sizes((self.m, k)))

    def check_alignment(self) -> None:
        """Refuse a sparse A whose bytes a bulk copy cannot read."""
        if self.sparse and self.a.data_ptr() % ALIGNMENT:
            raise ShapeError(
                f"the bytes of a sparse matrix must begin on a multiple of "
                f"{ALIGNMENT}; given address {self.a.data_ptr():#x}"
            )

    def shaped(self, d: Tensor) -> Tensor:
        """The result with the axes that x had."""
        return d if self.leading is None else d.reshape(*self.leading, self.m)

    def _check_types(self) -> None:
        a, b = self.a_type, type_name(self.b.dtype, self.names.b)
        if integers := Integers.named(a):
            check_multiplied(integers, self.b.dtype, self.names.a, self.names.b)
            return
        if a != b and not any({a, b} <= group for group in _COMPATIBLE):
            raise BadCall(
                f"{self.names.a} is {DTYPES[a]} and {self.names.b} {self.b.dtype}: "
                f"both must have the same type, or both be fp8, or both 8-bit "
                f"integers; use {self.names.b}.to({DTYPES[a]})"
            )


def check_devices(a: Tensor, b: Tensor, names: OperandNames = MATRICES) -> None:
    """Refuse operands on different devices.

    >>> check_devices(torch.ones(1), torch.ones(1, device="meta"))
    Traceback (most recent call last):
    fragmenta.errors.BadCall: A is on cpu and B on meta; use B.to("cpu")
    """
    if a.device != b.device:
        raise BadCall(
            f"{names.a} is on {a.device} and {names.b} on {b.device}; "
            f'use {names.b}.to("{a.device}")'
        )


# ── from the arguments of an operator ───────────────────────────────────────


def _given(**tensors: Tensor | None) -> EpilogueTensors:
    """The tensors of the epilogue that were given, by name."""
    return {name: x for name, x in tensors.items() if x is not None}


def sparse_product(
    packed: Tensor,
    b: Tensor,
    a: str,
    m: int,
    out: torch.dtype,
    scale: Tensor | None,
    scale_m: Tensor | None,
    scale_n: Tensor | None,
    bias: Tensor | None,
    transposed: bool,
    promote: bool,
    tile: Sequence[int],
) -> ProductRequest:
    """The product that ``sparse_mm`` is asked for."""
    epilogue = _given(scale=scale, scale_m=scale_m, scale_n=scale_n, bias=bias)
    return ProductRequest(
        packed, b, a, m, True, out, epilogue, transposed, promote, tuple(tile)
    )


def linear_product(
    x: Tensor,
    packed: Tensor,
    a: str,
    m: int,
    out: torch.dtype,
    scale: Tensor | None,
    scale_weight: Tensor | None,
    scale_x: Tensor | None,
    bias: Tensor | None,
    promote: bool,
    tile: Sequence[int],
) -> ProductRequest:
    """The product that ``sparse_linear`` is asked for: A is the weight, B is x."""
    if not x.ndim:
        raise ShapeError("x must have at least one axis; given a single number")
    flat, leading = x, None
    if x.ndim != 2:
        flat, leading = x.reshape(-1, x.shape[-1]), x.shape[:-1]
    epilogue = _given(scale=scale, scale_m=scale_weight, scale_n=scale_x, bias=bias)
    return ProductRequest(
        packed,
        flat,
        a,
        m,
        True,
        out,
        epilogue,
        True,
        promote,
        tuple(tile),
        LINEAR,
        leading,
    )


def dense_product(
    a: Tensor,
    b: Tensor,
    out: torch.dtype,
    scale: Tensor | None,
    scale_m: Tensor | None,
    scale_n: Tensor | None,
    bias: Tensor | None,
    transposed: bool,
    promote: bool,
    tile: Sequence[int],
) -> ProductRequest:
    """The product that ``dense_mm`` is asked for."""
    if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[1]:
        raise ShapeError(
            f"A must be m x k and B n x k; given {tuple(a.shape)} and {tuple(b.shape)}"
        )
    epilogue = _given(scale=scale, scale_m=scale_m, scale_n=scale_n, bias=bias)
    return ProductRequest(
        a,
        b,
        type_name(a.dtype, "A"),
        a.shape[0],
        False,
        out,
        epilogue,
        transposed,
        promote,
        tuple(tile),
    )
