"""What can be a layer of a model?"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fragmenta.errors import Error
from fragmenta.torch.matrix import (
    DTYPES,
    TYPES,
    SparseMatrix,
    empty_packed,
    type_name,
    whole_sizes,
)
from fragmenta.torch.products import compress, linear
from fragmenta.torch.pruning import (
    LayerPruning,
    PruningReport,
    Skip,
    taken,
    warn_pruned,
    without_skipped,
)


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

    >>> linear = torch.nn.Linear(8, 4).bfloat16()
    >>> layer = SparseLinear.from_linear(linear, prune=True)
    >>> layer(torch.ones(2, 8, dtype=torch.bfloat16)).shape
    torch.Size([2, 4])
    """

    weight_packed: Tensor
    bias: Tensor | None
    pruning: LayerPruning | None
    """What pruning took from the weight; None if it was not made from a Linear."""

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
        self.pruning = None
        empty = empty_packed(self.weight_type, out_features, in_features, device)
        self._packed_shape = tuple(empty.shape)
        # Two axes: with four, a change to channels_last would reorder the bytes.
        self.register_buffer("weight_packed", empty.flatten(1))
        values = torch.zeros(out_features, dtype=torch.float32, device=device)
        self.register_buffer("bias", values if bias else None)

    @classmethod
    def from_linear(
        cls,
        module: torch.nn.Linear,
        *,
        prune: bool | None = None,
        out_dtype: torch.dtype | None = None,
        promote: bool = False,
    ) -> SparseLinear:
        """A SparseLinear from a Linear, with its weight pruned and compressed.

        A weight that is sparse already keeps every value, bit for bit.  Any other is
        pruned, with a warning; ``layer.pruning`` says what it lost.  ``prune=True``
        says that pruning is meant, without a warning.  With ``prune=False`` the weight
        must be sparse already.
        """
        made = cls._made(module, prune, out_dtype=out_dtype, promote=promote)
        if prune is None and made.pruning is not None:
            warn_pruned(PruningReport((made.pruning,)), 2)
        return made

    @classmethod
    def _made(
        cls, module: torch.nn.Linear, prune: bool | None, name: str = "", **options: Any
    ) -> SparseLinear:
        if not isinstance(module, torch.nn.Linear):
            raise Error(
                f"from_linear takes a torch.nn.Linear; given a {type(module).__name__}"
            )
        if isinstance(module.weight, torch.nn.UninitializedParameter):
            raise Error("the layer has no weight yet: it is lazy; call it once before")
        weight = module.weight.detach()
        sparse = compress(weight, prune=True if prune is None else prune)
        has_bias = module.bias is not None
        made = cls(
            module.in_features, module.out_features, has_bias, dtype=weight.dtype,
            device=weight.device, **options,
        )  # fmt: skip
        made.weight_packed.copy_(sparse.data.flatten(1))
        made.pruning = taken(weight, sparse, name)
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
    model: torch.nn.Module,
    *,
    prune: bool | None = None,
    skip: Skip = (),
    least: int = 1,
    out_dtype: torch.dtype | None = None,
    promote: bool = False,
) -> torch.nn.Module:
    """Replace every ``torch.nn.Linear`` of a model by a SparseLinear.

    The model is changed in place and returned; a model that is itself a Linear is
    not changed, so use what is returned.  Hooks of a layer are lost.

    A weight that is sparse already keeps every value, bit for bit.  Any other is
    pruned, with a warning; :func:`pruning_report` says what each layer lost.
    ``prune=True`` says that pruning is meant, without a warning; ``prune=False``
    refuses it.

    Left as they are: layers that ``skip`` names, layers with fewer than ``least``
    weights, and subclasses of Linear.  ``skip`` is a name, several, or patterns such as
    ``"*.head"``; a name of a module stands for all in it.  Or it is a function of the
    name and the layer.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    >>> print(linears(model.bfloat16(), prune=True, skip="1"))
    Sequential(
      (0): SparseLinear(in_features=8, out_features=4, bias=True, weight=bf16 2:4)
      (1): Linear(in_features=4, out_features=2, bias=True)
    )
    """
    every = [each for each in model.named_modules() if type(each[1]) is torch.nn.Linear]
    listed = [
        (name, module)
        for name, module in without_skipped(every, skip)
        if math.prod(module.weight.shape) >= least
    ]
    made: dict[torch.nn.Module, SparseLinear] = {}
    for name, layer in listed:  # make all before changing any
        try:
            made[layer] = SparseLinear._made(
                layer, prune, name, out_dtype=out_dtype, promote=promote
            )
        except Error as why:
            raise type(why)(f"layer {name or 'itself'}: {why}") from None
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                setattr(parent, name, made[child])
    if prune is None:
        found = [each.pruning for each in made.values() if each.pruning is not None]
        warn_pruned(PruningReport(tuple(found)), 2)
    replaced: torch.nn.Module = made.get(model, model)
    return replaced


def pruning_report(model: torch.nn.Module) -> PruningReport:
    """What pruning took from each SparseLinear of a model, and would from each Linear.

    Ask it before :func:`linears` to see what would be lost, and after it to see what
    was.  What a layer lost is not in its state dict.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4).bfloat16())
    >>> pruning_report(model).layers[0].state
    'dense'
    >>> pruning_report(linears(model, prune=True)).layers[0].state
    'pruned'
    """
    found = []
    for name, module in model.named_modules():
        if isinstance(module, SparseLinear):
            found.append(_known(module, name))
        elif type(module) is torch.nn.Linear:
            found.append(_expected(module, name))
    return PruningReport(tuple(found))


def _known(layer: SparseLinear, name: str) -> LayerPruning:
    if layer.pruning is not None:
        return replace(layer.pruning, name=name)
    shape, granularity = layer.weight.shape, str(layer.weight.granularity)
    return LayerPruning(name, shape, layer.weight_type, granularity, "loaded")


def _expected(layer: torch.nn.Linear, name: str) -> LayerPruning:
    weight = layer.weight.detach()
    if weight.dtype not in TYPES or weight.is_meta:
        shape = (layer.out_features, layer.in_features)
        return LayerPruning(name, shape, "", "", "dense")
    return replace(taken(weight, compress(weight), name), state="dense")
