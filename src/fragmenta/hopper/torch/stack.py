"""The sparse weights of experts: matrices of one type and shape, stored in turn."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fragmenta.errors import BadCall, ShapeError, one_of
from fragmenta.hopper.kernels.config import ALIGNMENT
from fragmenta.hopper.kernels.four_bits import INTEGERS, Integers
from fragmenta.hopper.torch.matrix import (
    DTYPES,
    TYPES,
    SparseMatrix,
    bytes_shape,
    granularity_of,
    listed,
    whole_sizes,
)
from fragmenta.reference.registers.granularity import Granularity


class SparseStack:
    """2:4 (tf32: 1:2) matrices of one type and shape, as the kernels read them.

    >>> from fragmenta.torch import compress_experts
    >>> made = compress_experts(torch.ones(3, 8, 16, dtype=torch.bfloat16))
    >>> made, made[0]
    (<SparseStack 3x8x16 bf16 on cpu, 55296 bytes>, \
<SparseMatrix 8x16 bf16 on cpu, 18432 bytes>)
    """

    def __init__(
        self, data: Tensor, element_type: str, shape: tuple[int, int, int]
    ) -> None:
        if not torch.compiler.is_compiling():  # then it was checked before
            experts, *sizes = shape
            shape = (experts, *whole_sizes((sizes[0], sizes[1])))
            check_stack(data, element_type, shape)
        self.data, self.element_type, self.shape = data, element_type, shape

    @classmethod
    def __torch_function__(cls, *arguments: object, **options: object) -> object:
        """Refuse every function of PyTorch."""
        return NotImplemented

    @property
    def granularity(self) -> Granularity:
        """How many elements are stored out of how many: 2:4, or 1:2."""
        return granularity_of(self.element_type)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, expert: int) -> SparseMatrix:
        return SparseMatrix(self.data[expert], self.element_type, self.shape[1:])

    def to(self, device: torch.device | str) -> SparseStack:
        """The same matrices on another device."""
        return SparseStack(self.data.to(device), self.element_type, self.shape)

    def to_dense(self) -> Tensor:
        """The dense matrices, with their zeros.

        >>> from fragmenta.torch import compress_experts
        >>> compress_experts(torch.ones(2, 1, 4, dtype=torch.int8)).to_dense()
        tensor([[[1, 1, 0, 0]],
        <BLANKLINE>
                [[1, 1, 0, 0]]], dtype=torch.int8)
        """
        return torch.stack([self[x].to_dense() for x in range(len(self))])

    def __repr__(self) -> str:
        sizes = "x".join(map(str, self.shape))
        return (
            f"<SparseStack {sizes} {self.element_type} on {self.data.device}, "
            f"{self.data.numel()} bytes>"
        )


def stacked(matrices: Sequence[SparseMatrix]) -> SparseStack:
    """These matrices, one after the other.

    >>> from fragmenta.torch import compress
    >>> stacked([compress(torch.ones(8, 16, dtype=torch.int8))] * 2).shape
    (2, 8, 16)
    """
    first = matrices[0]
    data = torch.stack([each.data for each in matrices])
    return SparseStack(data, first.element_type, (len(matrices), *first.shape))


def check_stack(packed: Tensor, element_type: str, shape: tuple[int, int, int]) -> None:
    """Refuse bytes that do not match the type and shape, which no kernel checks.

    >>> check_stack(torch.zeros(8, dtype=torch.uint8), "bf16", (2, 64, 64))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: 2 matrices of 64x64 bf16 must have bytes of shape \
(2, 1, 1, 4, 4608); given torch.uint8 of shape (8,)
    """
    experts, m, k = shape
    known = element_type in DTYPES or Integers.named(element_type)
    if not known or not isinstance(packed, Tensor):
        raise BadCall(
            f"the weights must be a tensor of bytes, with elements of {listed(TYPES)}, "
            f"or {one_of(INTEGERS)}; given a {type(packed).__name__} of {element_type}"
        )
    wanted = (experts, *bytes_shape(element_type, m, k))
    if packed.shape != wanted or packed.dtype != torch.uint8:
        raise ShapeError(
            f"{experts} matrices of {m}x{k} {element_type} must have bytes of shape "
            f"{wanted}; given {packed.dtype} of shape {tuple(packed.shape)}"
        )
    if not packed.is_contiguous() or packed.storage_offset() % ALIGNMENT:
        raise ShapeError(
            f"the bytes of the weights must be contiguous and begin on a multiple of "
            f"{ALIGNMENT}; given strides {packed.stride()} and offset "
            f"{packed.storage_offset()}"
        )


torch.serialization.add_safe_globals([SparseStack])
