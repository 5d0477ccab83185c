"""The layer SparseLinear."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fragmenta.errors import BadCall, BadMetadata, NotSparse, ValueRangeError
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.kept import TRAINED
from fragmenta.hopper.kernels.widening import narrow_limit
from fragmenta.hopper.torch.forward import layer, trained_layer
from fragmenta.hopper.torch.matrix import (
    DTYPES,
    TYPES,
    SparseMatrix,
    empty_packed,
    granularity_of,
    is_semi_structured,
    listed,
    whole_sizes,
)
from fragmenta.hopper.torch.operators import call
from fragmenta.hopper.torch.options import (
    check_fallback,
    check_quantization,
    check_result,
    check_training,
    weight_type,
)
from fragmenta.hopper.torch.products import compress
from fragmenta.hopper.torch.pruning import (
    LayerPruning,
    PruningReport,
    taken,
    warn_pruned,
)
from fragmenta.hopper.torch.quantizing import FOUR_BITS, checked_scale, layer_type
from fragmenta.hopper.torch.training import (
    check_codes,
    check_transposable,
    gather_kept_on_cpu,
    kept_codes,
    kept_width,
    row_codes,
)
from fragmenta.hopper.torch.weights import (
    QuantizedWeight,
    integer_weight,
    quantized_weight,
)
from fragmenta.hopper.torch.widening import Wide, powers_of

torch.fx.wrap("layer")  # symbolic tracing of this module records it as one call
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
    ``"int4-fp8"`` the layer quantises the rows of x to e4m3.  ``fallback`` is for many
    rows of x: see :func:`~fragmenta.torch.linears`.

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
    weight_wide: Tensor | None
    """The wide weight, if a layer of 4-bit integers keeps it for many rows of x."""
    wide_powers: Tensor | None
    """The power of two of each of its rows; None if its groups have no scales."""
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
        fallback: str | None = "made",
        train: bool = False,
        transposable: bool = False,
        model_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.out_features, self.in_features = whole_sizes((out_features, in_features))
        self.weight_type = weight_type(dtype, quantize, static, group)
        scaled = bool(bias or quantize)
        check_result(self.weight_type, out_dtype, promote, scaled)
        self.quantize = quantize
        self.out_dtype = out_dtype
        self.promote = promote
        self.pruning = None
        check_training(self.weight_type, train, transposable, quantize)
        self.trained, self.transposable = train, transposable
        # Integers have no type of their own; quantised layers take x of any type.
        own = None if quantize else DTYPES.get(self.weight_type)
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
        check_fallback(quantize, fallback)
        self._register_wide(fallback if integers else None, model_dtype)

    def _register_wide(self, fallback: str | None, kind: torch.dtype | None) -> None:
        """What is needed for many rows of x; the state dict does not have it."""
        self.fallback = fallback
        integers = Integers.named(self.weight_type)
        takes = integers.takes if integers else ("",)
        wanted = TYPES.get(kind) if kind is not None else None
        self._wide_type = wanted if wanted in takes else takes[0]
        self.register_buffer("wide_powers", None, persistent=False)
        self.register_buffer("weight_wide", None, persistent=False)
        self._make_wide()

    def _make_wide(self) -> None:
        """Make anew what comes from the weight, because it has changed."""
        integers = Integers.named(self.weight_type)
        if integers is None or self.fallback is None:
            return
        assert self.weight_packed is not None
        data, name = self.weight_packed, self.weight_type
        shape = (self.out_features, self.in_features)
        if data.is_meta:
            return
        if integers.group:
            self.wide_powers = powers_of(data, name, shape)
        if self.fallback == "kept":
            rest = (name, *shape, self._wide_type, self.wide_powers)
            self.weight_wide = call("widen", data, *rest).flatten(1)

    def _wide(self) -> Wide | None:
        integers = Integers.named(self.weight_type)
        if integers is None or self.fallback is None:
            return None
        limit = narrow_limit(integers, self.fallback)
        return Wide(limit, self.wide_powers, self.weight_wide, self._wide_type)

    def multiplied_as(self, x: Tensor) -> str:
        """The element type of the weight in the product with this x.

        Many rows are multiplied with wide weights, if the weight has 4-bit integers.

        >>> layer = SparseLinear(64, 64, quantize="int4", fallback="kept")
        >>> few, many = torch.ones(8, 64).bfloat16(), torch.ones(500, 64).bfloat16()
        >>> layer.multiplied_as(few), layer.multiplied_as(many)
        ('s4-128', 'bf16')
        """
        wide, integers = self._wide(), Integers.named(self.weight_type)
        if wide is None or integers is None:
            return self.weight_type
        if x.numel() // self.in_features <= wide.limit:
            return self.weight_type
        if integers.b == "e4m3":
            return "e4m3"
        return "f16" if x.dtype == torch.float16 else "bf16"

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
        fallback: str | None = "made",
    ) -> SparseLinear:
        """A SparseLinear from a Linear, with its weight pruned and compressed.

        A weight that is sparse already keeps every value, bit for bit.  Others are
        pruned, with a warning; ``layer.pruning`` says what it lost.  ``prune=True``
        says that pruning is meant, without a warning.  With ``prune=False`` the weight
        must be sparse already.

        All other options are as for :func:`~fragmenta.torch.linears`.
        """
        check_quantization(quantize, scales, activation_scale, group, fallback)
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
            fallback=fallback,
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
        fallback: str | None,
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
            fallback=fallback,
            static=activation_scale is not None,
            train=train,
            transposable=transposable,
            model_dtype=weight.dtype if quantize else _model_type(module, dtype),
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
        made._make_wide()
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

    def keep_as_stored(self, weight: SparseMatrix) -> None:
        """Take places and values from a sparse weight of the same type and shape.

        A layer that is transposable refuses places that are sparse along rows only.

        >>> made = SparseLinear(4, 1, train=True)
        >>> made.keep_as_stored(compress(torch.tensor([[0.0, 1, 2, 0]]).bfloat16()))
        >>> made.weight_values
        Parameter containing:
        tensor([[1., 2.]], dtype=torch.bfloat16, requires_grad=True)
        """
        assert self.weight_values is not None
        assert self.weight_codes is not None
        name = self.weight_type
        codes = row_codes(weight.data, name, weight.shape)
        dense = weight.to_dense()
        if self.transposable:
            check_transposable(codes, name, self.in_features)
        self.weight_codes.copy_(codes)
        with torch.no_grad():
            self.weight_values.copy_(gather_kept_on_cpu(dense, codes, name))

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
            self._wide(),
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
        names = ("weight_scale", "input_scale", "wide_powers")
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
        self._make_wide()

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
        settings = f"{settings}, quantize={self.quantize}, static={self._static}"
        return f"{settings}, fallback=kept" if self.fallback == "kept" else settings


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
