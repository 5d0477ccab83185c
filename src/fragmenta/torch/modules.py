"""What can be a layer of a model?"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fragmenta.errors import Error
from fragmenta.torch.matrix import (
    DTYPES,
    SparseMatrix,
    empty_packed,
    type_name,
    whole_sizes,
)
from fragmenta.torch.products import compress, linear


def layer(
    x: Tensor,
    packed: Tensor,
    element_type: str,
    shape: tuple[int, int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    promote: bool,
) -> Tensor:
    """The result of a layer.

    >>> made = SparseLinear(8, 4)
    >>> x = torch.ones(1, 8, dtype=torch.bfloat16)
    >>> layer(x, made.weight_packed, "bf16", (4, 8), made.bias, None, False)
    tensor([[0., 0., 0., 0.]], dtype=torch.bfloat16)
    """
    kind = DTYPES[element_type]
    # Rounding to 8 bits needs scales, which only the caller can choose.
    wide = kind.itemsize > 1 and isinstance(x, Tensor) and x.is_floating_point()
    if wide and x.dtype != kind and torch.is_autocast_enabled(x.device.type):
        x = x.to(kind)
    return linear(
        x, packed, element_type, shape, bias, out_dtype=out_dtype, promote=promote
    )


torch.fx.wrap("layer")  # symbolic tracing records it as one call


class SparseLinear(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """``torch.nn.Linear`` with a sparse weight, for inference.

    The state dict holds ``weight_packed``, ``bias`` if there is one, and the type
    and shape of the weight.  ``out_dtype`` is the type of the result; without it
    the result has the type of x, or float32 if x is fp8.  ``promote`` adds fp8
    products in f32, see :func:`~fragmenta.torch.sparse_mm`.

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
        out_dtype: torch.dtype | None = None,
        promote: bool = False,
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = whole_sizes((out_features, in_features))
        self.weight_type = type_name(dtype, "a weight")
        self.out_dtype = out_dtype
        self.promote = promote
        empty = empty_packed(self.weight_type, out_features, in_features, device)
        self._packed_shape = tuple(empty.shape)
        # Two axes: with four, a change to channels_last would reorder the bytes.
        self.register_buffer("weight_packed", empty.flatten(1))
        values = torch.zeros(out_features, dtype=torch.float32, device=device)
        self.register_buffer("bias", values if bias else None)

    @classmethod
    def from_linear(
        cls, module: torch.nn.Linear, *, prune: bool = True, **options: Any
    ) -> SparseLinear:
        """A SparseLinear from a Linear, with its weight pruned and compressed.

        With ``prune=False`` the weight must be sparse already.  ``options`` are
        ``out_dtype`` and ``promote``.
        """
        if not isinstance(module, torch.nn.Linear):
            raise Error(
                f"from_linear takes a torch.nn.Linear; given a {type(module).__name__}"
            )
        if isinstance(module.weight, torch.nn.UninitializedParameter):
            raise Error("the layer has no weight yet: it is lazy; call it once before")
        weight = module.weight.detach()
        has_bias = module.bias is not None
        made = cls(
            module.in_features, module.out_features, has_bias, dtype=weight.dtype,
            device=weight.device, **options,
        )  # fmt: skip
        made.weight_packed.copy_(compress(weight, prune=prune).data.flatten(1))
        if has_bias:
            made.bias.copy_(module.bias.detach())  # type: ignore[union-attr, unused-ignore]
        made.train(module.training)
        return made

    @property
    def weight(self) -> SparseMatrix:
        """The weight, out x in."""
        shape = (self.out_features, self.in_features)
        data = self.weight_packed.view(self._packed_shape)
        return SparseMatrix(data, self.weight_type, shape)

    def forward(self, input: Tensor) -> Tensor:
        """y = x W^T + bias; autocast converts x to the type of the weight."""
        shape = (self.out_features, self.in_features)
        return layer(input, self.weight_packed, self.weight_type, shape, self.bias,
                     self.out_dtype, self.promote)  # fmt: skip

    # ── the state dict ──────────────────────────────────────────────────────

    def get_extra_state(self) -> dict[str, Any]:
        """The type and shape of the packed weight."""
        return {
            "type": self.weight_type,
            "in_features": self.in_features,
            "out_features": self.out_features,
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Do nothing: the state was compared before anything was loaded."""

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *rest: Any
    ) -> None:
        found = state_dict.get(f"{prefix}_extra_state")
        if found is not None and found != self.get_extra_state():
            *_, errors = rest
            errors.append(f"{prefix or 'the layer'} is {self.get_extra_state()}; the "
                          f"state is from a layer with {found}")  # fmt: skip
            return
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        weight = f"{self.weight_type} {self.weight.granularity}"
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, weight={weight}"
        )


def linears(
    model: torch.nn.Module, *, least: int = 1, **options: Any
) -> torch.nn.Module:
    """Replace every ``torch.nn.Linear`` of a model by a SparseLinear.

    The model is changed in place and returned; a model that is itself a Linear is
    not changed, so use what is returned.  Layers with fewer than ``least`` weights
    and subclasses of Linear are left as they are.  Hooks of a layer are lost.
    ``options`` are those of :meth:`SparseLinear.from_linear`.

    >>> print(linears(torch.nn.Sequential(torch.nn.Linear(8, 4).bfloat16())))
    Sequential(
      (0): SparseLinear(in_features=8, out_features=4, bias=True, weight=bf16 2:4)
    )
    """
    listed = [
        (name, module)
        for name, module in model.named_modules()
        if type(module) is torch.nn.Linear and math.prod(module.weight.shape) >= least
    ]
    for name, layer in listed:  # check all before changing any
        try:
            type_name(layer.weight.dtype, "a weight")
        except Error as why:
            raise Error(f"layer {name or 'itself'}: {why}") from why
    made: dict[torch.nn.Module, SparseLinear] = {
        layer: SparseLinear.from_linear(layer, **options) for _, layer in listed
    }
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                setattr(parent, name, made[child])
    replaced: torch.nn.Module = made.get(model, model)
    return replaced
