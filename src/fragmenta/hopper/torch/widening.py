"""Makes sparse weights of 8 or 16 bits from 4-bit integers, for large products.

The rule and the kernel are in :mod:`fragmenta.hopper.kernels.widening`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from fragmenta.errors import BadCall
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.packing import packed_shape
from fragmenta.hopper.kernels.widening import (
    row_powers,
    row_scales,
    wide_types,
    widen_on_device,
    widened,
)
from fragmenta.hopper.torch.matrix import (
    DTYPES,
    as_packed,
    check_device,
    listed,
    packed_integers,
    tensor_of,
    whole_sizes,
)


class Wide(NamedTuple):
    """What a layer of 4-bit integers has for products that are large."""

    limit: int
    """The most rows of x for which the integers are multiplied as they are."""
    powers: Tensor | None
    """The power of two of each row, with which the product is multiplied."""
    packed: Tensor | None = None
    """The wide weight, if it is kept."""
    kept: str = ""
    """Its element type."""


def powers_of(packed: Tensor, element_type: str, shape: tuple[int, int]) -> Tensor:
    """The power of two of each row of a weight with groups, on its device.

    >>> from fragmenta.hopper.torch.matrix import empty_packed
    >>> powers_of(empty_packed("s4-128", 2, 8), "s4-128", (2, 8))
    tensor([0.0312, 0.0312])
    """
    integers = _integers(element_type)
    data = as_packed(packed, element_type, shape)
    found = row_powers(row_scales(packed_integers(data, integers, shape)))
    return tensor_of(found, torch.float32).to(packed.device)


def _integers(element_type: str) -> Integers:
    integers = Integers.named(element_type)
    if integers is None:
        raise BadCall(f"only 4-bit integers become wider; given {element_type}")
    return integers


# ── the operator ────────────────────────────────────────────────────────────


def widen_without_data(
    packed: Tensor, element_type: str, m: int, k: int, to: str, powers: Tensor | None
) -> Tensor:
    """The shape of the wide weight.

    >>> from fragmenta.hopper.torch.matrix import empty_packed
    >>> four = empty_packed("s4-128", 2, 8)
    >>> widen_without_data(four, "s4-128", 2, 8, "bf16", None).shape
    torch.Size([1, 1, 4, 4608])
    """
    integers = _integers(element_type)
    if to not in wide_types(integers):
        kinds = [DTYPES[name] for name in wide_types(integers)]
        raise BadCall(f"{element_type} becomes {listed(kinds)}; given {to}")
    as_packed(packed, element_type, whole_sizes((m, k)))
    if powers is not None:
        check_device(powers, packed.device, "the powers of rows")
        if powers.shape != (m,) or powers.dtype != torch.float32:
            raise BadCall(
                f"the powers of rows must be {m} float32; given {powers.dtype} of "
                f"shape {tuple(powers.shape)}"
            )
    return packed.new_empty(packed_shape(to, m, k), dtype=torch.uint8)


def widen_on_cuda(
    packed: Tensor, element_type: str, m: int, k: int, to: str, powers: Tensor | None
) -> Tensor:
    """One launch on the current stream."""
    wide = widen_without_data(packed, element_type, m, k, to, powers)
    held = None if powers is None else powers.contiguous()
    widen_on_device(packed, _integers(element_type), (m, k), to, held, wide)
    return wide


def widen_on_cpu(
    packed: Tensor, element_type: str, m: int, k: int, to: str, powers: Tensor | None
) -> Tensor:
    """The same bytes.

    >>> from fragmenta.hopper.torch.matrix import SparseMatrix, empty_packed
    >>> wide = widen_on_cpu(empty_packed("s4-row", 1, 4), "s4-row", 1, 4, "f16", None)
    >>> SparseMatrix(wide, "f16", (1, 4)).to_dense()
    tensor([[0., 0., 0., 0.]], dtype=torch.float16)
    """
    widen_without_data(packed, element_type, m, k, to, powers)
    data = as_packed(packed, element_type, (m, k))
    given = packed_integers(data, _integers(element_type), (m, k))
    factors = None if powers is None else powers.detach().numpy()
    return torch.from_numpy(widened(given, to, factors).data)
