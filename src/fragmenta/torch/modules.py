"""The layer SparseLinear, and the conversion of whole models."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from fragmenta.errors import (
    BadCall,
    BadMetadata,
    Error,
    NotSparse,
    ValueRangeError,
    one_of,
)
from fragmenta.kernels.config import Kernel
from fragmenta.kernels.four_bits import Integers
from fragmenta.kernels.kept import TRAINED
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
    granularity_of,
    is_semi_structured,
    listed,
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
from fragmenta.torch.training import (
    check_codes,
    check_trained,
    gather_kept_on_cpu,
    kept_codes,
    kept_width,
    row_codes,
)
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
    rounds: bool = False,
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
    x, kind = _rounded(x, element_type, out_dtype, rounds)
    return linear(x, packed, element_type, shape, bias, out_dtype=kind, promote=promote)


def trained_layer(
    x: Tensor,
    values: Tensor,
    codes: Tensor,
    element_type: str,
    shape: tuple[int, int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    transposable: bool,
    rounds: bool,
) -> Tensor:
    """The result of a layer whose kept values are trained.

    >>> made = SparseLinear(8, 4, train=True)
    >>> x = torch.ones(1, 8, dtype=torch.bfloat16)
    >>> y = made(x)
    >>> y.requires_grad, y.shape
    (True, torch.Size([1, 4]))
    """
    check_input(x, shape)
    x, kind = _rounded(x, element_type, out_dtype, rounds)
    if bias is not None and bias.dtype != torch.float32:
        bias = bias.float()
    out = kind or x.dtype
    return call(
        "kept_linear", x, values, codes, bias, element_type, out, transposable, ()
    )


def _rounded(
    x: Tensor, element_type: str, out_dtype: torch.dtype | None, rounds: bool
) -> tuple[Tensor, torch.dtype | None]:
    """x in the type of the weight if it is to be rounded, and the type of the result.

    Autocast does so, and layers that were made with ``dtype``; these return the type
    that x had.
    """
    kind = DTYPES[element_type]
    # Rounding to 8 bits needs scales, which the caller must choose.
    wide = kind.itemsize > 1 and isinstance(x, Tensor) and x.is_floating_point()
    if not wide or x.dtype == kind:
        return x, out_dtype
    if _autocasts(x.device.type):
        return x.to(kind), out_dtype
    if rounds and x.dtype in OUTPUTS:
        return x.to(kind), out_dtype or x.dtype
    return x, out_dtype


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
torch.fx.wrap("trained_layer")


class SparseLinear(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """``torch.nn.Linear`` with a sparse weight, for inference or for training.

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

    With ``train`` the places of the kept values are fixed, and the parameter
    ``weight_values`` has the values; the bias is a parameter, too.  ``transposable``
    says that the places are sparse along rows and along columns.  See
    :func:`~fragmenta.torch.linears` and :func:`~fragmenta.torch.freeze`.

    ``model_dtype`` is the type of the model around the layer, if it is not ``dtype``.
    Then x is rounded to ``dtype``, the result has the type of x, and values that are
    trained have the type of the model.

    >>> linear = torch.nn.Linear(8, 4).bfloat16()
    >>> layer = SparseLinear.from_linear(linear, prune=True)
    >>> layer(torch.ones(2, 8, dtype=torch.bfloat16)).shape
    torch.Size([2, 4])
    """

    weight_packed: Tensor | None
    """The bytes that the kernels read; None if the layer is trained."""
    weight_values: torch.nn.Parameter | None
    """The kept values, row by row; None if the layer is not trained."""
    weight_codes: Tensor | None
    """Their places, 4 bits for each chunk; None if the layer is not trained."""
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
        train: bool = False,
        transposable: bool = False,
        model_dtype: torch.dtype | None = None,
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
        _check_training(self.weight_type, train, transposable, quantize)
        self.trained, self.transposable = train, transposable
        own = DTYPES.get(self.weight_type)  # integers have none
        self.rounds = own is not None and model_dtype not in (None, own)
        empty = empty_packed(self.weight_type, out_features, in_features, device)
        self._packed_shape = tuple(empty.shape)
        # Two axes: with four, a change to channels_last would reorder the bytes.
        self.register_buffer("weight_packed", None if train else empty.flatten(1))
        self._register_kept(empty, model_dtype if self.rounds else None)
        values = torch.zeros(out_features, dtype=torch.float32, device=device)
        if train:
            self.register_parameter(
                "bias", torch.nn.Parameter(values) if bias else None
            )
        else:
            self.register_buffer("bias", values if bias else None)
        integers = Integers.named(self.weight_type)
        rows = quantize and not (integers and integers.group)
        self.register_buffer("weight_scale", values + 1 if rows else None)
        one = torch.ones((), dtype=torch.float32, device=device)
        self.register_buffer("input_scale", one if static else None)

    def _register_kept(self, empty: Tensor, kind: torch.dtype | None) -> None:
        """The values and codes of a layer that is trained: all values are zero."""
        values = codes = None
        if self.trained:
            name, shape = self.weight_type, (self.out_features, self.in_features)
            codes = row_codes(empty, name, shape)
            size = (self.out_features, kept_width(name, self.in_features))
            zeros = torch.zeros(size, dtype=kind or DTYPES[name], device=empty.device)
            values = torch.nn.Parameter(zeros)
        self.register_parameter("weight_values", values)
        self.register_buffer("weight_codes", codes)

    @classmethod
    def from_linear(
        cls,
        module: torch.nn.Linear,
        *,
        prune: bool | None = None,
        dtype: torch.dtype | None = None,
        train: bool = False,
        transposable: bool = False,
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

        All other options are as for :func:`~fragmenta.torch.linears`.
        """
        _check_quantization(quantize, scales, activation_scale, group)
        made = cls._made(
            module,
            prune,
            dtype=dtype,
            train=train,
            transposable=transposable,
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
        module: torch.nn.Linear | SparseLinear,
        prune: bool | None,
        name: str = "",
        *,
        dtype: torch.dtype | None,
        train: bool,
        transposable: bool,
        quantize: str | None,
        scales: str,
        activation_scale: float | None,
        out_dtype: torch.dtype | None,
        promote: bool,
        group: int | None,
    ) -> SparseLinear:
        weight = _weight_of(module)
        allowed = True if prune is None else prune
        eight: QuantizedWeight | None = None
        if quantize is not None and dtype is not None:
            raise BadCall(
                f"quantize={quantize!r} decides the type of the weight; leave "
                f"dtype out; given {dtype}"
            )
        if quantize in FOUR_BITS:
            kind = layer_type(quantize, group)
            eight = integer_weight(weight, kind, prune=allowed)
        elif quantize is not None:
            eight = quantized_weight(weight, quantize, scales=scales, prune=allowed)
        rounded = _of_type(weight, dtype)
        sparse = eight.sparse if eight else compress(rounded, prune=allowed)
        made = cls(
            module.in_features,
            module.out_features,
            module.bias is not None,
            dtype=None if quantize else sparse.dtype,
            device=weight.device,
            quantize=quantize,
            group=group,
            static=activation_scale is not None,
            train=train,
            transposable=transposable,
            model_dtype=_model_type(module, dtype),
            out_dtype=out_dtype or getattr(module, "out_dtype", None),
            promote=promote,
        )
        if train:
            made._keep(weight, rounded, allowed)
            made._want_as(module)
        else:
            made.weight_packed.copy_(sparse.data.flatten(1))  # type: ignore[union-attr, unused-ignore]
        pruned = eight.pruned if eight else None
        made.pruning = taken(weight, made.weight if train else sparse, name, pruned)
        if eight:
            if eight.scales is not None:
                made.weight_scale.copy_(eight.scales)  # type: ignore[union-attr, unused-ignore]
            made.pruning = replace(made.pruning, weight_error=eight.error())
        if activation_scale is not None:
            made.input_scale.fill_(checked_scale(activation_scale, "activation_scale"))  # type: ignore[union-attr, unused-ignore]
        made._copy_bias(module)
        made.train(module.training)
        return made

    def _want_as(self, module: torch.nn.Module) -> None:
        """Train what was trained before; all of a layer that was for inference."""
        for mine, theirs in (("weight_values", "weight"), ("bias", "bias")):
            before, now = getattr(module, theirs), getattr(self, mine)
            if isinstance(before, torch.nn.Parameter):
                now.requires_grad_(before.requires_grad)

    def _copy_bias(self, module: torch.nn.Module) -> None:
        if self.bias is not None:
            with torch.no_grad():
                self.bias.copy_(module.bias.detach())

    def _keep(self, weight: Tensor, rounded: Tensor, prune: bool) -> None:
        """Choose the places of the kept values, and take the values from a weight."""
        assert self.weight_values is not None
        assert self.weight_codes is not None
        if is_semi_structured(weight):
            weight = rounded = weight.to_dense()
        name = self.weight_type
        codes = kept_codes(rounded, name, self.transposable)
        values = gather_kept_on_cpu(weight, codes, name)  # of any type and device
        lost = int(weight.count_nonzero() - values.count_nonzero())
        if lost and not prune:
            raise NotSparse(
                f"{lost} elements are too many for a mask that is "
                f"{granularity_of(name)} in both directions; prune=True sets them to "
                "zero"
            )
        self.weight_codes.copy_(codes)
        with torch.no_grad():
            self.weight_values.copy_(values)

    def _frozen(self) -> SparseLinear:
        """The same layer for inference."""
        assert self.weight_values is not None
        weight = self.weight
        made = SparseLinear(
            self.in_features,
            self.out_features,
            self.bias is not None,
            dtype=weight.dtype,
            device=weight.device,
            out_dtype=self.out_dtype,
            model_dtype=self.weight_values.dtype if self.rounds else None,
        )
        made.weight_packed.copy_(weight.data.flatten(1))  # type: ignore[union-attr, unused-ignore]
        made.pruning = self.pruning
        made._copy_bias(self)
        made.train(self.training)
        return made

    @property
    def weight(self) -> SparseMatrix:
        """The weight, out x in."""
        shape = (self.out_features, self.in_features)
        if self.weight_values is None:
            assert self.weight_packed is not None
            data = self.weight_packed.view(self._packed_shape)
        else:
            values = self.weight_values.detach().to(DTYPES[self.weight_type])
            rest = (self.weight_type, self.in_features, False)
            data = call("pack_kept", values, self.weight_codes, *rest)
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
        if self.weight_values is not None:
            return trained_layer(
                input,
                self.weight_values,
                self.weight_codes,
                self.weight_type,
                shape,
                self.bias,
                self.out_dtype,
                self.transposable,
                self.rounds,
            )
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
            self.rounds,
        )

    def _check_type(self, fn: Callable[[Tensor], Tensor]) -> None:
        """Refuse a change of type that the weight would not follow.

        Quantised layers take any type, and so do those that round x.
        """
        if self.quantize is not None or self.rounds:
            return
        place = self.weight_codes if self.trained else self.weight_packed
        assert place is not None
        kind = DTYPES[self.weight_type]
        wanted = fn(torch.empty(0, dtype=kind, device=place.device)).dtype
        if wanted != kind:
            raise BadCall(
                f"this SparseLinear has a weight of {self.weight_type}, and cannot "
                f"become {wanted}: its type is chosen when it is made; use "
                f"model.to({wanted}) before linears, or linears(model, dtype={wanted})"
            )

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> SparseLinear:
        """Move the layer; refuse another type.

        The scales are moved but stay float32: they must be exact.
        """
        self._check_type(fn)
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
        if self.rounds:
            state["rounds"] = True
        if self.trained:
            state |= {"train": True, "transposable": self.transposable}
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
        *_, errors = rest
        codes = state_dict.get(f"{prefix}weight_codes")
        if self.trained and isinstance(codes, Tensor) and not codes.is_meta:
            try:
                check_codes(codes, self.weight_type)
            except BadMetadata as why:
                errors.append(f"{prefix or 'the layer'}: {why}")
                return
        if found is not None and found != self.get_extra_state():
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
        if self.trained:
            settings += f", train=True, transposable={self.transposable}"
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


def _weight_of(module: torch.nn.Module) -> Tensor:
    """The dense weight of a layer; refuses what is no layer."""
    if isinstance(module, SparseLinear):
        return module.weight.to_dense()
    if not isinstance(module, torch.nn.Linear):
        raise BadCall(
            f"from_linear takes a torch.nn.Linear; given a {type(module).__name__}"
        )
    if isinstance(module.weight, torch.nn.UninitializedParameter):
        raise BadCall("the layer has no weight yet: it is lazy; call it once before")
    weight: Tensor = module.weight.detach()
    return weight


def _model_type(
    module: torch.nn.Module, dtype: torch.dtype | None
) -> torch.dtype | None:
    """The type of the model around a layer, if another one may be asked for."""
    if isinstance(module, SparseLinear):
        return torch.float32 if module.rounds or dtype is not None else None
    kind: torch.dtype = module.weight.dtype
    return None if dtype is None else kind


def _of_type(weight: Tensor, dtype: torch.dtype | None) -> Tensor:
    """A weight rounded to the type that was asked for."""
    if dtype is None or dtype == weight.dtype:
        return weight
    allowed = [DTYPES[name] for name in TRAINED]
    if dtype not in allowed or not weight.is_floating_point():
        raise BadCall(
            f"dtype rounds a weight of floating point to {listed(allowed)}; given "
            f"{dtype} for {weight.dtype}; quantize='fp8' or 'int8' makes 8 bits"
        )
    rounded = weight.to(dtype)
    if (rounded.isinf() & weight.isfinite()).any():
        raise ValueRangeError(
            f"weights up to {float(weight.abs().max()):g} are too large for {dtype}; "
            "use dtype=torch.bfloat16"
        )
    return rounded


def _check_training(
    element_type: str, train: object, transposable: object, quantize: object
) -> None:
    """Refuse options of training that do not go together."""
    for name, given in (("train", train), ("transposable", transposable)):
        if not isinstance(given, bool):
            raise BadCall(f"{name} must be True or False; given {given!r}")
    if not train and transposable:
        raise BadCall("transposable is for layers that are trained; give train=True")
    if train and quantize is not None:
        raise BadCall(
            f"a quantised layer cannot be trained; given quantize={quantize!r} and "
            "train=True; train first, then freeze the model and quantise it"
        )
    if train:
        check_trained(element_type)


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
    dtype: torch.dtype | None = None,
    train: bool = False,
    transposable: bool = False,
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

    ``dtype`` is the type of the weights, ``torch.bfloat16`` or ``torch.float16`` (2:4)
    or ``torch.float32`` (tf32, 1:2); without it, each layer keeps its own.  A layer
    that changes its type rounds x to it and returns the type that x had.

    ``train=True`` makes layers that are trained: which weights are kept is fixed now,
    and ``weight_values``, a parameter with half the elements, has their values.  The
    product by W of the backward pass is sparse with ``transposable=True``; it chooses
    masks that are sparse along rows and along columns, and lose more.  Layers that are
    SparseLinear already become trained, too.  :func:`freeze` ends the training.

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
    _check_training("bf16", train, transposable, quantize)
    if isinstance(least, bool) or not isinstance(least, Real) or not least >= 0:
        raise BadCall(f"least must be a number of weights, 0 or more; given {least!r}")
    named = original(model).named_modules()
    every = [each for each in named if _replaceable(each[1], train)]
    if not every:
        _warn_without_linears(model)
    listed = [
        (name, module)
        for name, module in without_skipped(every, skip)
        if module.in_features * module.out_features >= least
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
                dtype=dtype,
                train=train,
                transposable=transposable,
                out_dtype=out_dtype,
                promote=promote,
                quantize=quantize,
                scales=scales,
                activation_scale=known.get(name),
                group=group,
            )
        except Error as why:
            raise type(why)(f"layer {name or 'itself'}: {why}") from None
    if prune is None:
        found = [each.pruning for each in made.values() if each.pruning is not None]
        warn_pruned(PruningReport(tuple(found)), 2)
    return _replaced(model, made)


def _replaceable(module: torch.nn.Module, train: bool) -> bool:
    """Whether it is a Linear, or a sparse layer that is now to be trained."""
    if train and isinstance(module, SparseLinear):
        return not module.trained
    return type(module) is torch.nn.Linear


def _replaced(
    model: torch.nn.Module, made: Mapping[torch.nn.Module, SparseLinear]
) -> torch.nn.Module:
    """The model with other layers in the place of some."""
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                setattr(parent, name, made[child])
    replaced: torch.nn.Module = made.get(model, model)
    return replaced


def freeze(model: torch.nn.Module) -> torch.nn.Module:
    """Replace every layer that is trained by one for inference, with the same weights.

    The model is changed in place and returned; a model that is itself such a layer is
    not changed, so use what is returned.  ``model.eval()`` does not do this: a layer
    that is trained packs its values in every call, and a frozen one has them packed.

    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4).bfloat16())
    >>> trained = linears(model, prune=True, train=True)
    >>> [tuple(each.shape) for each in trained.parameters()]
    [(4, 4), (4,)]
    >>> freeze(trained)
    Sequential(
      (0): SparseLinear(in_features=8, out_features=4, bias=True, weight=bf16 2:4)
    )
    """
    check_replaceable(model, "freeze")
    modules = original(model).modules()
    layers = [x for x in modules if isinstance(x, SparseLinear) and x.trained]
    return _replaced(model, {each: each._frozen() for each in layers})


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
        elif isinstance(lost := getattr(module, "pruning", None), tuple):  # of experts
            found += [replace(each, name=f"{name}.{each.name}") for each in lost]
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
