"""What can stand in a model?"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fragmenta.kernels.packing import packed_shape
from fragmenta.torch.matrix import TYPES, SparseMatrix, compress
from fragmenta.torch.products import packed_linear


class SparseLinear(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """``torch.nn.Linear`` with a sparse weight, for inference.

    The state dict holds ``weight_packed`` and, if there is one, ``bias``.

    >>> layer = SparseLinear.from_linear(torch.nn.Linear(8, 4).bfloat16())
    >>> layer(torch.ones(2, 8, dtype=torch.bfloat16)).shape
    torch.Size([2, 4])
    """

    weight_packed: Tensor
    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: torch.dtype = torch.bfloat16,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight_type = TYPES[dtype]
        shape = packed_shape(self.weight_type, out_features, in_features)
        empty = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.register_buffer("weight_packed", empty)
        values = torch.zeros(out_features, device=device) if bias else None
        self.register_buffer("bias", values)

    @classmethod
    def from_linear(
        cls, module: torch.nn.Linear, *, prune: bool = True
    ) -> SparseLinear:
        """The layer with its weight pruned (unless it is sparse) and compressed."""
        weight = module.weight.detach()
        has_bias = module.bias is not None
        made = cls(
            module.in_features, module.out_features, has_bias, dtype=weight.dtype,
            device=weight.device,
        )  # fmt: skip
        made.weight_packed.copy_(compress(weight, prune=prune).data)
        if has_bias:
            made.bias.copy_(module.bias.detach())  # type: ignore[union-attr, unused-ignore]
        return made

    @property
    def weight(self) -> SparseMatrix:
        """The weight, out x in."""
        shape = (self.out_features, self.in_features)
        return SparseMatrix(self.weight_packed, self.weight_type, shape)

    def forward(self, x: Tensor) -> Tensor:
        """y = x W^T + bias, in the type of x."""
        bias = self.bias
        if bias is not None and bias.dtype != torch.float32:  # after module.half()
            bias = bias.float()
        shape = (self.out_features, self.in_features)
        parts = (None, None, None, bias)
        return packed_linear(x, self.weight_packed, self.weight_type, shape, parts)

    @property
    def _pattern(self) -> str:
        return "1:2" if self.weight_type == "tf32" else "2:4"

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, weight={self.weight_type} {self._pattern}"
        )


def linears(model: torch.nn.Module, *, least: int = 1) -> torch.nn.Module:
    """Replace every ``torch.nn.Linear`` of a model, in place, by a SparseLinear.

    ``least`` spares layers with fewer weights.

    >>> print(linears(torch.nn.Sequential(torch.nn.Linear(8, 4).bfloat16())))
    Sequential(
      (0): SparseLinear(in_features=8, out_features=4, bias=True, weight=bf16 2:4)
    )
    """
    for name, child in model.named_children():
        if type(child) is torch.nn.Linear and math.prod(child.weight.shape) >= least:
            setattr(model, name, SparseLinear.from_linear(child))
        else:
            linears(child, least=least)
    return model
