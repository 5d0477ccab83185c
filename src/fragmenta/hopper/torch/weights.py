"""Quantises a sparse weight: its elements and scales.

A weight is pruned first, by the magnitudes that it has.  Then what is left of each row
gets a scale and is rounded to 8 bits.  4-bit integers have scales for groups of
columns, or one for each row.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fragmenta.errors import BadCall, NotSparse, UnknownType, ValueRangeError, one_of
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.four_bits import Integers, pack_integers, quantize_groups
from fragmenta.hopper.torch.matrix import (
    SparseMatrix,
    is_semi_structured,
    matrix_of,
    tensor_of,
)
from fragmenta.hopper.torch.products import check_numbers, compress, quantize_rows
from fragmenta.hopper.torch.quantizing import PER, QUANTIZED, quantized_type, scale_for
from fragmenta.reference.sparse.compression import Compressed
from fragmenta.reference.sparse.compression import compress as compress_matrix
from fragmenta.reference.sparse.pruning import prune as pruned


class QuantizedWeight(NamedTuple):
    """A sparse weight of 8-bit elements, or of 4-bit integers."""

    sparse: SparseMatrix
    """The elements."""
    scales: Tensor | None
    """One float32 for each row, to multiply with; None if groups have scales."""
    pruned: Tensor
    """The weight before it was rounded, with its zeros."""

    def error(self) -> float:
        """The relative error of what is left of the weight: that of rounding alone.

        >>> exact = quantized_weight(torch.tensor([[448.0, 0.0, -1.0, 0.0]]), "fp8")
        >>> exact.error()
        0.0
        """
        stored = self.sparse.to_dense().float()
        if self.scales is not None:
            stored = stored * self.scales[:, None]
        return relative_error(stored, self.pruned)


def relative_error(found: Tensor, wanted: Tensor) -> float:
    """The norm of the difference / the norm of what is wanted; 0 if both are 0.

    >>> relative_error(torch.tensor([3.0, 4.1]), torch.tensor([3.0, 4.0])) < 0.021
    True
    """
    norm = _norm(wanted.float())
    lost = _norm(found.float() - wanted.float())
    if not norm:
        return math.inf if lost else 0.0
    return lost / norm


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64))


def quantized_weight(
    weight: Tensor, quantize: str, *, scales: str = "row", prune: bool = True
) -> QuantizedWeight:
    """A weight pruned to 2:4 and then quantised.

    >>> made = quantized_weight(torch.tensor([[1.0, 3.0, 2.0, 0.5]]), "int8")
    >>> made.sparse.to_dense(), made.scales
    (tensor([[  0, 127,  85,   0]], dtype=torch.int8), tensor([0.0236]))
    """
    element_type = quantized_type(quantize)
    if scales not in PER:
        raise BadCall(f"scales must be {one_of(PER)}; given {scales!r}")
    left = _pruned(weight, element_type, prune)
    if not left.isfinite().all():
        raise ValueRangeError(
            "a weight that is quantised must be finite; this one has NaN or infinity"
        )
    one = None
    if scales == "tensor":
        factor = scale_for(float(left.abs().max()), element_type)
        one = torch.tensor(factor, dtype=torch.float32, device=left.device)
    values, factors = quantize_rows(left, quantize, scale=one)
    return QuantizedWeight(compress(values), factors, left)  # 2:4: nothing is pruned


def integer_weight(
    weight: Tensor, element_type: str, *, prune: bool = True
) -> QuantizedWeight:
    """A weight pruned to 2:4 and then rounded to 4-bit integers.

    >>> made = integer_weight(torch.tensor([[1.0, 3.5, 2.0, 0.5]]), "s4-128")
    >>> made.sparse.to_dense(), made.scales is None
    (tensor([[0.0000, 3.5000, 2.0000, 0.0000]]), True)
    """
    integers = Integers.named(element_type)
    assert integers is not None
    left = _pruned(weight, "bf16", prune)
    op = integers.kernel().instruction
    # The places of what is left are those of the same matrix in another type.
    matrix = matrix_of(left.float(), "f32")
    dense = np.where(matrix != 0, 1, 0).astype(op.types["a"].storage)
    places = compress_matrix(op, dense, pad=True)
    numbers = np.zeros((len(matrix), 4 * places.indices.shape[1]), np.float32)
    numbers[:, : matrix.shape[1]] = matrix
    stored = np.take_along_axis(numbers, places.columns(), axis=1)
    sp = Compressed(stored, places.indices, places.granularity, places.width)
    made, scales = quantize_groups(sp, integers.group, integers.scales)
    packed = pack_integers(
        made,
        scales if integers.group else None,
        b=integers.b,
        group=integers.group,
    )
    data = torch.from_numpy(packed.data).to(weight.device)
    factors = None
    if not integers.group:
        factors = torch.from_numpy(scales[:, 0].copy()).to(weight.device)
    return QuantizedWeight(
        SparseMatrix(data, element_type, packed.shape), factors, left
    )


def _pruned(weight: Tensor, element_type: str, prune: bool) -> Tensor:
    """The weight with the zeros that elements of 16 or fewer bits need, 2:4."""
    if weight.dtype in (torch.bfloat16, torch.float16) or is_semi_structured(weight):
        return compress(weight, prune=prune).to_dense()
    if weight.dtype != torch.float32:
        raise UnknownType(
            f"a weight of bfloat16, float16 or float32 is quantised to "
            f"{one_of(QUANTIZED)}; given {weight.dtype}"
        )
    check_numbers(weight)
    # As tf32 it would be pruned to 1:2.
    op = Kernel(element_type).instruction
    matrix = matrix_of(weight, "f32")
    kept = pruned(op, matrix, pad=True)[:, : matrix.shape[1]]
    changed = int(((kept != matrix) & (matrix != 0)).sum())
    if changed and not prune:
        raise NotSparse(
            f"{changed} elements are too many for 2:4; prune=True sets them to zero"
        )
    return tensor_of(kept, torch.float32).to(weight.device)
