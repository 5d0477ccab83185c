"""The layer SparseLinear, and the conversion of whole models."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from fragmenta.errors import BadCall, Error, one_of
from fragmenta.kernels.config import Kernel
from fragmenta.kernels.four_bits import Integers
from fragmenta.torch.calibration import (
    check_model,
    check_replaceable,
    checked_scales,
    original,
)
from fragmenta.torch.matrix import (
    DTYPES,
    OUTPUTS,
    TYPES,
    SparseMatrix,
    empty_packed,
    type_name,
    whole_sizes,
)
from fragmenta.torch.operators import call
from fragmenta.torch.products import check_input, check_options, compress, linear
from fragmenta.torch.pruning import (
    LayerPruning,
    PruningReport,
    Skip,
    taken,
    warn_pruned,
    without_skipped,
)
from fragmenta.torch.quantizing import FOUR_BITS, LAYERS, checked_scale, layer_type
from fragmenta.torch.weights import (
    QuantizedWeight,
    integer_weight,
    quantized_weight,
)


def layer(
    x: Tensor,
    packed: Tensor,
    element_type: str,
    shape: tuple[int, int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    promote: bool,
    weight_scale: Tensor | None = None,
    input_scale: Tensor | None = None,
) -> Tensor:
    """The result of a layer; with ``weight_scale``, x is quantised first.

    >>> made = SparseLinear(8, 4)
    >>> x = torch.ones(1, 8, dtype=torch.bfloat16)
    >>> layer(x, made.weight_packed, "bf16", (4, 8), made.bias, None, False)
    tensor([[0., 0., 0., 0.]], dtype=torch.bfloat16)
    """
    integers = Integers.named(element_type)
    if integers and integers.b != "e4m3":
        check_input(x, shape)
        kind = out_dtype or _autocast_type(x)
        given = x if x.dtype in _HALVES else x.to(torch.bfloat16)
        return linear(
            given,
            packed,
            element_type,
            shape,
            bias,
            out_dtype=kind,
            scale_weight=weight_scale,
            promote=promote,
        )
    if weight_scale is not None or integers:
        check_input(x, shape)
        kind = out_dtype or _autocast_type(x)
        flat = x.reshape(-1, shape[1])
        of = integers.b if integers else element_type
        values, scales = call("quantize_rows", flat, of, input_scale)
        y = linear(
            values,
            packed,
            element_type,
            shape,
            bias,
            out_dtype=kind,
            scale_x=scales,
            scale_weight=weight_scale,
            promote=promote,
        )
        return y.reshape(*x.shape[:-1], shape[0])
    kind = DTYPES[element_type]
    # Rounding to 8 bits needs scales, which the caller must choose.
    wide = kind.itemsize > 1 and isinstance(x, Tensor) and x.is_floating_point()
    if wide and x.dtype != kind and _autocasts(x.device.type):
        x = x.to(kind)
    return linear(
        x, packed, element_type, shape, bias, out_dtype=out_dtype, promote=promote
    )


_HALVES = (torch.bfloat16, torch.float16)


def _autocasts(device: str) -> bool:
    """Whether autocast is on; PyTorch cannot say it for some devices, such as meta.

    ``torch.compile`` of PyTorch 2.11 cannot list the devices, so they are named here.
    """
    return device in ("cpu", "cuda") and bool(torch.is_autocast_enabled(device))


def _autocast_type(x: Tensor) -> torch.dtype:
    """The default type of a result."""
    device = x.device.type
    if _autocasts(device):
        found: torch.dtype = torch.get_autocast_dtype(device)
        return found
    return x.dtype


torch.fx.wrap("layer")  # symbolic tracing records it as one call


class SparseLinear(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """``torch.nn.Linear`` with a sparse weight, for inference.

    The state dict holds ``weight_packed``, ``bias`` if there is one, and the type
    and shape of the weight.  ``out_dtype`` is the type of the result; without it
    the result has the type of x, or float32 if x is fp8.  ``promote`` adds fp8
    products in f32, see :func:`~fragmenta.torch.sparse_mm`.

    With ``quantize="fp8"`` or ``"int8"`` the weight has 8-bit elements and
    ``weight_scale``, a scale for each output.  x is bfloat16, float16 or float32, and
    the layer quantises its rows.  Each row has its own scale, or with ``static`` all
    have ``input_scale``.  See :func:`~fragmenta.torch.quantize_rows`.

    With ``quantize="int4"`` the weight has 4-bit integers, and ``group`` columns share
    a scale: 32, 64, 128 (the default), or 0 for a whole row, whose scale is in
    ``weight_scale``.  x is bfloat16 or float16 (float32 becomes bfloat16).  With
    ``"int4-fp8"`` the layer quantises the rows of x to e4m3.

    >>> linear = torch.nn.Linear(8, 4).bfloat16()
    >>> layer = SparseLinear.from_linear(linear, prune=True)
    >>> layer(torch.ones(2, 8, dtype=torch.bfloat16)).shape
    torch.Size([2, 4])
    """

    weight_packed: Tensor
    bias: Tensor | None
    weight_scale: Tensor | None
    """A float32 for each output; None if the layer is not quantised."""
    input_scale: Tensor | None
    """The scale of all rows of x; None if each row has its own."""
    pruning: LayerPruning | None
    """What pruning took from the weight; None if it was not made from a Linear."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        out_dtype: torch.dtype | None = None,
        promote: bool = False,
        quantize: str | None = None,
        static: bool = False,
        group: int | None = None,
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = whole_sizes((out_features, in_features))
        self.weight_type = _weight_type(dtype, quantize, static, group)
        scaled = bool(bias or quantize)
        _check_result(self.weight_type, out_dtype, promote, scaled)
        self.quantize = quantize
        self.out_dtype = out_dtype
        self.promote = promote
        self.pruning = None
        empty = empty_packed(self.weight_type, out_features, in_features, device)
        self._packed_shape = tuple(empty.shape)
        # Two axes: with four, a change to channels_last would reorder the bytes.
        self.register_buffer("weight_packed", empty.flatten(1))
        values = torch.zeros(out_features, dtype=torch.float32, device=device)
        self.register_buffer("bias", values if bias else None)
        integers = Integers.named(self.weight_type)
        rows = quantize and not (integers and integers.group)
        self.register_buffer("weight_scale", values + 1 if rows else None)
        one = torch.ones((), dtype=torch.float32, device=device)
        self.register_buffer("input_scale", one if static else None)

    @classmethod
    def from_linear(
        cls,
        module: torch.nn.Linear,
        *,
        prune: bool | None = None,
        out_dtype: torch.dtype | None = None,
        promote: bool = False,
        quantize: str | None = None,
        scales: str = "row",
        activation_scale: float | None = None,
        group: int | None = None,
    ) -> SparseLinear:
        """A SparseLinear from a Linear, with its weight pruned and compressed.

        A weight that is sparse already keeps every value, bit for bit.  Others are
        pruned, with a warning; ``layer.pruning`` says what it lost.  ``prune=True``
        says that pruning is meant, without a warning.  With ``prune=False`` the weight
        must be sparse already.

        ``quantize``, ``scales``, ``group`` and ``activation_scale`` are as for
        :func:`~fragmenta.torch.linears`.
        """
        _check_quantization(quantize, scales, activation_scale, group)
        made = cls._made(
            module,
            prune,
            scales=scales,
            activation_scale=activation_scale,
            out_dtype=out_dtype,
            promote=promote,
            quantize=quantize,
            group=group,
        )
        if prune is None and made.pruning is not None:
            warn_pruned(PruningReport((made.pruning,)), 2)
        return made

    @classmethod
    def _made(
        cls,
        module: torch.nn.Linear,
        prune: bool | None,
        name: str = "",
        *,
        quantize: str | None,
        scales: str,
        activation_scale: float | None,
        out_dtype: torch.dtype | None,
        promote: bool,
        group: int | None,
    ) -> SparseLinear:
        if not isinstance(module, torch.nn.Linear):
            raise BadCall(
                f"from_linear takes a torch.nn.Linear; given a {type(module).__name__}"
            )
        if isinstance(module.weight, torch.nn.UninitializedParameter):
            raise BadCall(
                "the layer has no weight yet: it is lazy; call it once before"
            )
        weight = module.weight.detach()
        allowed = True if prune is None else prune
        eight: QuantizedWeight | None = None
        if quantize in FOUR_BITS:
            kind = layer_type(quantize, group)
            eight = integer_weight(weight, kind, prune=allowed)
        elif quantize is not None:
            eight = quantized_weight(weight, quantize, scales=scales, prune=allowed)
        sparse = eight.sparse if eight else compress(weight, prune=allowed)
        has_bias = module.bias is not None
        made = cls(
            module.in_features,
            module.out_features,
            has_bias,
            dtype=None if quantize else sparse.dtype,
            device=weight.device,
            quantize=quantize,
            group=group,
            static=activation_scale is not None,
            out_dtype=out_dtype,
            promote=promote,
        )
        made.weight_packed.copy_(sparse.data.flatten(1))
        made.pruning = taken(weight, sparse, name, eight.pruned if eight else None)
        if eight:
            if eight.scales is not None:
                made.weight_scale.copy_(eight.scales)  # type: ignore[union-attr, unused-ignore]
            made.pruning = replace(made.pruning, weight_error=eight.error())
        if activation_scale is not None:
            made.input_scale.fill_(checked_scale(activation_scale, "activation_scale"))  # type: ignore[union-attr, unused-ignore]
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

    def dense_weight(self) -> Tensor:
        """The weight as a dense float32 matrix, out x in, with its scales applied.

        >>> linear = torch.nn.Linear(4, 1).bfloat16()
        >>> _ = linear.weight.data.copy_(torch.tensor([[3.0, 0.0, 0.0, -1.0]]))
        >>> SparseLinear.from_linear(linear, quantize="fp8").dense_weight()
        tensor([[ 3.0000,  0.0000,  0.0000, -0.9643]])
        """
        dense = self.weight.to_dense().float()
        return (
            dense if self.weight_scale is None else dense * self.weight_scale[:, None]
        )

    def forward(self, input: Tensor) -> Tensor:
        """y = x W^T + bias; autocast converts x to the type of the weight."""
        shape = (self.out_features, self.in_features)
        return layer(
            input,
            self.weight_packed,
            self.weight_type,
            shape,
            self.bias,
            self.out_dtype,
            self.promote,
            self.weight_scale,
            self.input_scale,
        )

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> SparseLinear:
        """Move the scales with the layer, but keep them float32: they must be exact."""
        names = ("weight_scale", "input_scale")
        before = {name: getattr(self, name) for name in names}
        super()._apply(fn, recurse)
        for name, scale in before.items():
            if scale is not None and getattr(self, name).dtype != scale.dtype:
                setattr(self, name, scale.to(getattr(self, name).device))
        return self

    # ── the state dict ──────────────────────────────────────────────────────

    def get_extra_state(self) -> dict[str, object]:
        """The type and shape of the packed weight, and how the layer is quantised."""
        state: dict[str, object] = {
            "type": self.weight_type,
            "in_features": self.in_features,
            "out_features": self.out_features,
        }
        if self.quantize is None:
            return state
        return {**state, "quantize": self.quantize, "static": self._static}

    @property
    def _static(self) -> bool:
        return self.input_scale is not None

    def set_extra_state(self, state: object) -> None:
        """Do nothing: the state was compared before anything was loaded."""

    def _load_from_state_dict(
        self, state_dict: dict[str, object], prefix: str, *rest: Any
    ) -> None:
        found = state_dict.get(f"{prefix}_extra_state")
        if found is not None and found != self.get_extra_state():
            *_, errors = rest
            errors.append(
                f"{prefix or 'the layer'} is {self.get_extra_state()}; the "
                f"state is from a layer with {found}"
            )
            return
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        weight = f"{self.weight_type} {self.weight.granularity}"
        settings = (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, weight={weight}"
        )
        if self.quantize is None:
            return settings
        return f"{settings}, quantize={self.quantize}, static={self._static}"


def _weight_type(
    dtype: torch.dtype | None, quantize: str | None, static: bool, group: int | None
) -> str:
    """The element type of a layer; refuses options that do not go together."""
    if quantize is None:
        if static or group is not None:
            name = "static" if static else "group"
            raise BadCall(
                f"{name} is for layers that are quantised; give quantize, too"
            )
        return type_name(torch.bfloat16 if dtype is None else dtype, "a weight")
    element_type = layer_type(quantize, group)
    if quantize == "int4" and static:
        raise BadCall(
            "quantize='int4' does not quantise x, so that nothing is static; "
            "quantize='int4-fp8' does"
        )
    own = DTYPES.get(element_type)
    if dtype not in (None, own):
        raise BadCall(
            f"quantize={quantize!r} has a weight of {own or element_type}; given "
            f"dtype={dtype}"
        )
    return element_type


def _check_result(
    element_type: str, out_dtype: torch.dtype | None, promote: bool, scaled: bool
) -> None:
    """Refuse options with which every call of the layer would fail."""
    check_options(out_dtype, promote=promote)
    if Integers.named(element_type):
        element_type, scaled = "s4", True
    if out_dtype is None:
        Kernel(element_type, promote=promote)
    else:
        Kernel(element_type, out=OUTPUTS[out_dtype], promote=promote, scaled=scaled)


def _check_quantization(
    quantize: object, scales: object, static: object, group: int | None
) -> None:
    if quantize is not None:
        layer_type(quantize, group)
        if quantize in FOUR_BITS and scales != "row":
            raise BadCall(
                f"4-bit weights have scales for groups or rows: group=; given "
                f"scales={scales!r}"
            )
        if quantize == "int4" and static:
            raise BadCall(
                "quantize='int4' does not quantise x, so that it has no activation "
                "scales; quantize='int4-fp8' does"
            )
    elif scales != "row" or static is not None or group is not None:
        raise BadCall(
            "scales, groups and activation scales are for quantised layers; give "
            f"quantize={one_of(map(repr, LAYERS))}, too"
        )


def linears(
    model: torch.nn.Module,
    *,
    prune: bool | None = None,
    skip: Skip = (),
    least: int = 1,
    out_dtype: torch.dtype | None = None,
    promote: bool = False,
    quantize: str | None = None,
    scales: str = "row",
    activation_scales: Mapping[str, float] | None = None,
    group: int | None = None,
) -> torch.nn.Module:
    """Replace every ``torch.nn.Linear`` of a model by a SparseLinear.

    The model is changed in place and returned; a model that is itself a Linear is
    not changed, so use what is returned.  Hooks of a layer are lost.

    A weight that is sparse already keeps every value, bit for bit.  Others are
    pruned, with a warning; :func:`pruning_report` says what each layer lost.
    ``prune=True`` says that pruning is meant, without a warning; ``prune=False``
    refuses it.

    Left as they are: layers that ``skip`` names, layers with fewer than ``least``
    weights, and subclasses of Linear, such as parametrised ones.  ``skip`` is a name,
    several, or patterns such as ``"*.head"``; a name of a module stands for all in it.
    Or it is a function of the name and the layer.  A model in which there is nothing to
    replace gets a warning.

    ``quantize="fp8"`` (e4m3) or ``"int8"`` also rounds what pruning left to 8 bits.
    With ``scales="row"`` each output has a scale; with ``"tensor"`` all have the same.
    The layers quantise x, too.  Each of its rows gets its own scale, but in layers that
    ``activation_scales`` names all rows have the one given there; :func:`calibrate`
    finds such scales.

    ``quantize="int4"`` rounds what pruning left to 4-bit integers: three bits for each
    weight.  ``group`` columns share a scale: 32, 64, 128 (the default), or 0 for a
    whole row.  x stays bfloat16 or float16; ``"int4-fp8"`` quantises it to fp8.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
    >>> print(linears(model.bfloat16(), prune=True, skip="1"))
    Sequential(
      (0): SparseLinear(in_features=8, out_features=4, bias=True, weight=bf16 2:4)
      (1): Linear(in_features=4, out_features=2, bias=True)
    )
    """
    check_replaceable(model, "linears")
    _check_quantization(quantize, scales, activation_scales, group)
    if isinstance(least, bool) or not isinstance(least, Real) or not least >= 0:
        raise BadCall(f"least must be a number of weights, 0 or more; given {least!r}")
    named = original(model).named_modules()
    every = [each for each in named if type(each[1]) is torch.nn.Linear]
    if not every:
        _warn_without_linears(model)
    listed = [
        (name, module)
        for name, module in without_skipped(every, skip)
        if math.prod(module.weight.shape) >= least
    ]
    known = checked_scales(
        {} if activation_scales is None else activation_scales,
        [name for name, _ in every],
    )
    made: dict[torch.nn.Module, SparseLinear] = {}
    for name, layer in listed:  # make all before changing any
        try:
            made[layer] = SparseLinear._made(
                layer,
                prune,
                name,
                out_dtype=out_dtype,
                promote=promote,
                quantize=quantize,
                scales=scales,
                activation_scale=known.get(name),
                group=group,
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


def _warn_without_linears(model: torch.nn.Module) -> None:
    """Warn if there is nothing to replace, and nothing was replaced before."""
    modules = list(original(model).named_modules())
    if any(isinstance(module, SparseLinear) for _, module in modules):
        return
    kinds = (torch.nn.Linear, torch.nn.MultiheadAttention)
    left = [
        f"{name or 'itself'} ({type(module).__name__})"
        for name, module in modules
        if isinstance(module, kinds)
    ]
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    kept = f"; left as they are: {', '.join(left[:3])}{more}" if left else ""
    warnings.warn(
        f"the model has no torch.nn.Linear, so nothing was replaced{kept}",
        stacklevel=3,
    )


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
    check_model(model, "pruning_report")
    found = []
    for name, module in original(model).named_modules():
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
