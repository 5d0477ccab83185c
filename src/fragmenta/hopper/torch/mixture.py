"""The experts of a mixture with sparse weights, and the conversion of models.

A :class:`SparseExperts` stands for the module of transformers that holds the weights of
all experts of a layer: ``gate_up_proj`` (experts x 2 intermediate x hidden) and
``down_proj`` (experts x hidden x intermediate).  Mixtral, Qwen-MoE and DeepSeek have it
in transformers 5.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fragmenta.errors import BadCall, Error, ShapeError, one_of
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.torch.calibration import check_replaceable, original
from fragmenta.hopper.torch.operators import call
from fragmenta.hopper.torch.products import compress, grouped_linear
from fragmenta.hopper.torch.pruning import (
    LayerPruning,
    PruningReport,
    Skip,
    taken,
    warn_pruned,
    without_skipped,
)
from fragmenta.hopper.torch.quantizing import FOUR_BITS, layer_type
from fragmenta.hopper.torch.stack import SparseStack, stacked
from fragmenta.hopper.torch.weights import integer_weight, quantized_weight


def sort_by_expert(index: Tensor, experts: int) -> tuple[Tensor, Tensor]:
    """The order that sorts rows by expert, and the ends of the experts' rows.

    ``index`` has the expert of each row.  Rows of one expert keep their order.  Rows
    whose expert is not below ``experts`` come last.  The host does not wait.

    >>> sort_by_expert(torch.tensor([2, 0, 2, 5]), 4)
    (tensor([1, 0, 2, 3]), tensor([1, 1, 3, 3], dtype=torch.int32))
    """
    known, order = index.flatten().sort(stable=True)
    numbers = torch.arange(experts, device=index.device, dtype=known.dtype)
    return order, torch.searchsorted(known, numbers, right=True, out_int32=True)


class _Made(NamedTuple):
    """The weights of all experts after compression."""

    stack: SparseStack
    scales: Tensor | None
    pruning: LayerPruning


class SparseExperts(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """The gated feed-forward blocks of experts, with sparse weights, for inference.

    It is called as the module of transformers is: with x (tokens x hidden), the experts
    of each token and their weights (both tokens x top).  The result is the sum of
    ``weight * down(act(gate(x)) * up(x))``, added in float32 in the order of the
    experts that were given.  Experts that do not exist count as zero.

    Each of the two products is one launch, and the host waits for nothing, so that a
    CUDA graph can be replayed with other tokens.  With ``quantize="fp8"`` or
    ``"int8"``, the weights have 8-bit elements with a scale for each output, and the
    rows of x are quantised, as in :class:`~fragmenta.torch.SparseLinear`.  With
    ``"int4"`` they have 4-bit integers, and ``group`` columns share a scale;
    ``"int4-fp8"`` quantises the rows of x, too.

    >>> gate_up = torch.randn(4, 64, 16, dtype=torch.bfloat16)
    >>> down = torch.randn(4, 16, 32, dtype=torch.bfloat16)
    >>> layer = SparseExperts.from_weights(gate_up, down, prune=True)
    >>> layer
    SparseExperts(experts=4, hidden=16, intermediate=32, weight=bf16 2:4)
    >>> x = torch.randn(5, 16, dtype=torch.bfloat16)
    >>> layer(x, torch.randint(0, 4, (5, 2)), torch.rand(5, 2)).shape
    torch.Size([5, 16])
    """

    gate_up_packed: Tensor
    down_packed: Tensor
    gate_up_scale: Tensor | None
    """A float32 for each output of each expert; None if it is not quantised."""
    down_scale: Tensor | None
    pruning: tuple[LayerPruning, ...]
    """What pruning took from both weights; empty if they were loaded."""

    def __init__(
        self,
        gate_up: SparseStack,
        down: SparseStack,
        *,
        act: Callable[[Tensor], Tensor] = torch.nn.functional.silu,
        gate_up_scale: Tensor | None = None,
        down_scale: Tensor | None = None,
        quantize: str | None = None,
        promote: bool = False,
    ) -> None:
        super().__init__()
        check_shapes(gate_up.shape, down.shape)
        self.num_experts, self.hidden, self.intermediate = down.shape
        self.weight_type = gate_up.element_type
        self.act, self.quantize, self.promote = act, quantize, promote
        self.pruning = ()
        self._packed = tuple(gate_up.data.shape), tuple(down.data.shape)
        # Two axes: with more, a change to channels_last would reorder the bytes.
        self.register_buffer("gate_up_packed", gate_up.data.flatten(1))
        self.register_buffer("down_packed", down.data.flatten(1))
        self.register_buffer("gate_up_scale", gate_up_scale)
        self.register_buffer("down_scale", down_scale)

    @classmethod
    def from_weights(
        cls,
        gate_up: Tensor,
        down: Tensor,
        *,
        prune: bool | None = None,
        act: Callable[[Tensor], Tensor] = torch.nn.functional.silu,
        quantize: str | None = None,
        group: int | None = None,
        promote: bool = False,
    ) -> SparseExperts:
        """The experts with these weights, pruned and compressed.

        ``prune`` and ``group`` are as for :func:`~fragmenta.torch.linears`.
        """
        made = cls._made(
            gate_up,
            down,
            prune,
            act=act,
            quantize=quantize,
            group=group,
            promote=promote,
        )
        if prune is None:
            warn_pruned(PruningReport(made.pruning), 2)
        return made

    @classmethod
    def _made(
        cls,
        gate_up: Tensor,
        down: Tensor,
        prune: bool | None,
        *,
        act: Callable[[Tensor], Tensor],
        quantize: str | None,
        group: int | None,
        promote: bool,
    ) -> SparseExperts:
        for name, each in (("gate_up", gate_up), ("down", down)):
            if not isinstance(each, Tensor) or each.ndim != 3:
                raise ShapeError(
                    f"{name} must be experts x out x in; given "
                    f"{tuple(each.shape) if isinstance(each, Tensor) else each!r}"
                )
        check_shapes(tuple(gate_up.shape), tuple(down.shape))
        allowed = True if prune is None else prune
        options = (allowed, quantize, _group(quantize, group))
        first = _compressed(gate_up.detach(), "gate_up_proj", *options)
        second = _compressed(down.detach(), "down_proj", *options)
        made = cls(
            first.stack,
            second.stack,
            act=act,
            gate_up_scale=first.scales,
            down_scale=second.scales,
            quantize=quantize,
            promote=promote,
        )
        made.pruning = (first.pruning, second.pruning)
        return made

    @property
    def gate_up(self) -> SparseStack:
        """The weights of gate and up: experts x 2 intermediate x hidden."""
        shape = (self.num_experts, 2 * self.intermediate, self.hidden)
        data = self.gate_up_packed.view(self._packed[0])
        return SparseStack(data, self.weight_type, shape)

    @property
    def down(self) -> SparseStack:
        """The weights of down: experts x hidden x intermediate."""
        shape = (self.num_experts, self.hidden, self.intermediate)
        data = self.down_packed.view(self._packed[1])
        return SparseStack(data, self.weight_type, shape)

    def forward(
        self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
    ) -> Tensor:
        """The weighted sum of the experts of each token."""
        tokens, top = top_k_index.shape
        order, offs = sort_by_expert(top_k_index, self.num_experts)
        h = self._product(
            hidden_states, self.gate_up, offs, self.gate_up_scale, order // top
        )
        gate, up = h.chunk(2, dim=-1)
        y = self._product(self.act(gate) * up, self.down, offs, self.down_scale)
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order), device=order.device)
        each = y[back].reshape(tokens, top, self.hidden)
        # Rows of experts that do not exist were not written.
        missing = (top_k_index < 0) | (top_k_index >= self.num_experts)
        each = each.masked_fill(missing[..., None], 0.0)
        each = each * top_k_weights[..., None].float()
        return each.sum(dim=1).to(hidden_states.dtype)

    @property
    def _quantized(self) -> str | None:
        """The type that the rows of x are quantised to; None if they stay."""
        if integers := Integers.named(self.weight_type):
            return "e4m3" if integers.b == "e4m3" else None
        return None if self.gate_up_scale is None else self.weight_type

    def _product(
        self,
        x: Tensor,
        weights: SparseStack,
        offs: Tensor,
        scale: Tensor | None,
        rows: Tensor | None = None,
    ) -> Tensor:
        """A product for all experts; ``rows`` of x are taken, or all."""
        # Another kernel ran after the one that made the offsets: it took rows, or it
        # applied the activation.  A compiler may change that order.
        settled = not torch.compiler.is_compiling()
        if self._quantized is None:
            chosen = x if rows is None else x[rows]
            return grouped_linear(
                chosen,
                weights,
                offs,
                scale_weight=scale,
                promote=self.promote,
                settled=settled,
            )
        values, scales = call("quantize_rows", x, self._quantized, None)
        if rows is not None:  # quantise each token once
            values = values.view(torch.uint8)[rows].view(values.dtype)
            scales = scales[rows]
        return grouped_linear(
            values,
            weights,
            offs,
            out_dtype=x.dtype,
            scale_x=scales,
            scale_weight=scale,
            promote=self.promote,
            settled=settled,
        )

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> SparseExperts:
        """Move the scales with the module, but keep them float32: they are exact."""
        names = ("gate_up_scale", "down_scale")
        before = {name: getattr(self, name) for name in names}
        super()._apply(fn, recurse)
        for name, scale in before.items():
            if scale is not None and getattr(self, name).dtype != scale.dtype:
                setattr(self, name, scale.to(getattr(self, name).device))
        return self

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        settings = (
            f"experts={self.num_experts}, hidden={self.hidden}, "
            f"intermediate={self.intermediate}, "
            f"weight={self.weight_type} {self.down.granularity}"
        )
        return settings if self.quantize is None else f"{settings}, {self.quantize}"


def check_shapes(gate_up: tuple[int, ...], down: tuple[int, ...]) -> None:
    """Refuse weights that are not those of gated feed-forward blocks.

    >>> check_shapes((4, 16, 64), (4, 32, 16))
    Traceback (most recent call last):
    fragmenta.errors.ShapeError: down is experts x hidden x intermediate, (4, 32, 16), \
so gate_up must be (4, 32, 32); given (4, 16, 64)
    """
    experts, hidden, intermediate = down
    if gate_up != (experts, 2 * intermediate, hidden):
        raise ShapeError(
            f"down is experts x hidden x intermediate, {down}, so gate_up must be "
            f"{(experts, 2 * intermediate, hidden)}; given {gate_up}"
        )


def _group(quantize: str | None, group: int | None) -> int | None:
    """The columns that share a scale, checked; None if weights have no such groups.

    >>> _group("int4", None), _group("fp8", None)
    (128, None)
    """
    if quantize is None:
        if group is not None:
            raise BadCall(
                f"group is for {one_of(FOUR_BITS)}; given {group!r} without quantize"
            )
        return None
    integers = Integers.named(layer_type(quantize, group))
    return integers.group if integers else None


def _compressed(
    weights: Tensor, name: str, prune: bool, quantize: str | None, group: int | None
) -> _Made:
    """All experts of one weight, each compressed by itself."""
    matrices, scales, lost = [], [], []
    for weight in weights:
        if quantize is None:
            matrices.append(compress(weight, prune=prune))
            lost.append(taken(weight, matrices[-1], name))
        else:
            made = (
                integer_weight(weight, layer_type(quantize, group), prune=prune)
                if quantize in FOUR_BITS
                else quantized_weight(weight, quantize, prune=prune)
            )
            matrices.append(made.sparse)
            scales += [] if made.scales is None else [made.scales.float()]
            pruned = taken(weight, made.sparse, name, made.pruned)
            lost.append(replace(pruned, weight_error=made.error()))
    found = torch.stack(scales) if scales else None
    return _Made(stacked(matrices), found, _together(lost))


def _together(lost: list[LayerPruning]) -> LayerPruning:
    """What all experts lost; their rows are counted together."""
    rows, columns = lost[0].shape
    pruned = any(each.state == "pruned" for each in lost)
    errors = [each.weight_error for each in lost if each.weight_error is not None]
    return replace(
        lost[0],
        shape=(len(lost) * rows, columns),
        state="pruned" if pruned else "kept",
        dropped=sum(each.dropped for each in lost),
        norm=math.hypot(*(each.norm for each in lost)),
        lost=math.hypot(*(each.lost for each in lost)),
        weight_error=max(errors) if errors else None,
    )


# ── models ──────────────────────────────────────────────────────────────────


def experts(
    model: torch.nn.Module,
    *,
    prune: bool | None = None,
    skip: Skip = (),
    quantize: str | None = None,
    group: int | None = None,
    promote: bool = False,
) -> torch.nn.Module:
    """Replace the stacked experts of a model by :class:`SparseExperts`.

    They are modules with ``gate_up_proj`` (experts x 2 intermediate x hidden),
    ``down_proj`` (experts x hidden x intermediate) and ``act_fn``, as Mixtral, Qwen-MoE
    and DeepSeek have them in transformers 5.  The model is changed in place and
    returned.  ``prune``, ``skip``, ``quantize`` and ``group`` are as for
    :func:`~fragmenta.torch.linears`; routers and shared experts are layers of their
    own, which ``linears`` replaces.

    >>> block = torch.nn.Module()
    >>> block.gate_up_proj = torch.nn.Parameter(torch.randn(4, 32, 8).bfloat16())
    >>> block.down_proj = torch.nn.Parameter(torch.randn(4, 8, 16).bfloat16())
    >>> block.act_fn = torch.nn.SiLU()
    >>> model = torch.nn.ModuleDict({"experts": block})
    >>> experts(model, prune=True)
    ModuleDict(
      (experts): SparseExperts(
        experts=4, hidden=8, intermediate=16, weight=bf16 2:4
        (act): SiLU()
      )
    )
    """
    check_replaceable(model, "experts")
    _group(quantize, group)
    every = [x for x in original(model).named_modules() if holds_experts(x[1])]
    if not every:
        raise BadCall(
            "the model has no stacked experts: no module has gate_up_proj (experts x 2 "
            "intermediate x hidden), down_proj (experts x hidden x intermediate) and "
            "act_fn"
        )
    made: dict[torch.nn.Module, SparseExperts] = {}
    for name, module in without_skipped(every, skip):  # all before changing any
        try:
            made[module] = SparseExperts._made(
                module.gate_up_proj,
                module.down_proj,
                prune,
                act=module.act_fn,
                quantize=quantize,
                group=group,
                promote=promote,
            )
        except Error as why:
            raise type(why)(f"experts {name or 'itself'}: {why}") from None
    for parent in list(model.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                setattr(parent, name, made[child])
    if prune is None:
        lost = [x for module in made.values() for x in module.pruning]
        warn_pruned(PruningReport(tuple(lost)), 2)
    replaced: torch.nn.Module = made.get(model, model)
    return replaced


def holds_experts(module: Any) -> bool:
    """Whether a module has the weights of experts, in the layout of transformers.

    >>> holds_experts(torch.nn.Linear(4, 4))
    False
    """
    weights = [getattr(module, x, None) for x in ("gate_up_proj", "down_proj")]
    if not all(isinstance(each, Tensor) and each.ndim == 3 for each in weights):
        return False
    transposed = getattr(module, "is_transposed", False)
    return callable(getattr(module, "act_fn", None)) and not transposed
