"""Feed-forward blocks whose activations are sparse.

After relu many activations are zero.  The block keeps the two greatest of each four
neighbours, so that its second product is sparse; its weights stay dense, in fp8.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from fragmenta.errors import BadCall, ShapeError, UnknownType
from fragmenta.hopper.kernels.activate import ELEMENT, GIVEN, checked_power
from fragmenta.hopper.kernels.config import check_activation
from fragmenta.hopper.torch.calibration import call_with, check_model, original
from fragmenta.hopper.torch.matrix import DTYPES, RESULTS, listed, whole_sizes
from fragmenta.hopper.torch.operators import call, call_pair
from fragmenta.hopper.torch.products import check_input, quantize_rows
from fragmenta.hopper.torch.pruning import Skip, without_skipped

_KINDS = [RESULTS[name] for name in GIVEN]
_RESULTS = [*_KINDS, torch.float32]
FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "relu2": lambda x: torch.relu(x).square(),
    "none": lambda x: x,
}
"""The activations as PyTorch computes them."""


class Hidden(NamedTuple):
    """The sparse activations of a block."""

    packed: Tensor
    scale: Tensor | None
    """One scale for all rows, or None."""
    scales: Tensor | None
    """A scale for each row, or None."""


class SparseFeedForward(torch.nn.Module):  # type: ignore[misc, unused-ignore]
    """``down(activation(up(x)))`` with sparse activations, for inference.

    Both weights are dense e4m3, with a scale for each output.  x is bfloat16, float16
    or float32, and its rows are quantised.  Of each four activations the two greatest
    are kept and rounded to e4m3.  The result has the type of x.

    Each row of activations has its own scale.  With ``hidden_scale``, a power of two,
    all have the same; then the first product applies the activation itself, which is
    faster.  What is beyond 448 times that scale becomes as much.
    :func:`~fragmenta.torch.feed_forwards` finds such scales.

    >>> up, down = torch.nn.Linear(64, 256, bias=False), torch.nn.Linear(256, 64)
    >>> block = SparseFeedForward.from_linears(up, down, "relu2")
    >>> block
    SparseFeedForward(hidden=64, wide=256, activation=relu2, bias=True, static=False)
    >>> block(torch.ones(3, 64, dtype=torch.bfloat16)).shape
    torch.Size([3, 64])
    """

    up_weight: Tensor
    up_scale: Tensor
    up_bias: Tensor | None
    down_weight: Tensor
    down_scale: Tensor
    down_bias: Tensor | None
    hidden_scale: Tensor | None
    """The scale of all rows of activations; None if each row has its own."""

    def __init__(
        self,
        in_features: int,
        wide: int,
        out_features: int | None = None,
        *,
        activation: str = "relu2",
        up_bias: bool = False,
        down_bias: bool = False,
        hidden_scale: float | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__()
        last = in_features if out_features is None else out_features
        self.wide, self.in_features = whole_sizes((wide, in_features))
        self.out_features = whole_sizes((last, wide))[0]
        self.activation = check_activation(activation)
        kind = DTYPES[ELEMENT]
        for name, rows, columns, bias in (
            ("up", self.wide, self.in_features, up_bias),
            ("down", self.out_features, self.wide, down_bias),
        ):
            weight = torch.zeros((rows, columns), dtype=kind, device=device)
            scale = torch.ones(rows, dtype=torch.float32, device=device)
            self.register_buffer(f"{name}_weight", weight)
            self.register_buffer(f"{name}_scale", scale)
            self.register_buffer(f"{name}_bias", scale - 1 if bias else None)
        self.register_buffer("hidden_scale", None)
        self.register_buffer("_inverse", None, persistent=False)
        if hidden_scale is not None:
            self.fix_scale(hidden_scale)

    @classmethod
    def from_linears(
        cls,
        up: torch.nn.Linear,
        down: torch.nn.Linear,
        activation: str = "relu2",
        *,
        hidden_scale: float | None = None,
    ) -> SparseFeedForward:
        """A block from its two layers, whose weights are rounded to e4m3."""
        for layer in (up, down):
            if not isinstance(layer, torch.nn.Linear):
                raise BadCall(
                    f"from_linears takes two torch.nn.Linear; given a "
                    f"{type(layer).__name__}"
                )
        if up.out_features != down.in_features:
            raise ShapeError(
                f"up has {up.out_features} outputs, and down {down.in_features} inputs"
            )
        made = cls(
            up.in_features,
            up.out_features,
            down.out_features,
            activation=activation,
            up_bias=up.bias is not None,
            down_bias=down.bias is not None,
            hidden_scale=hidden_scale,
            device=up.weight.device,
        )
        for name, layer in (("up", up), ("down", down)):
            values, scales = quantize_rows(layer.weight.detach())
            getattr(made, f"{name}_weight").copy_(values)
            getattr(made, f"{name}_scale").copy_(scales)
            if layer.bias is not None:
                getattr(made, f"{name}_bias").copy_(layer.bias.detach())
        made.train(up.training)
        return made

    def fix_scale(self, scale: float | None) -> None:
        """Give all rows of activations the same scale, or each its own (None)."""
        if scale is None:
            self.hidden_scale = self._inverse = None
            return
        if self.up_bias is not None:
            raise BadCall(
                "a block whose first layer has a bias needs a scale for each row: "
                "hidden_scale=None"
            )
        known = checked_power(scale)
        options = {"dtype": torch.float32, "device": self.up_weight.device}
        self.hidden_scale = torch.tensor([known], **options)
        self._inverse = torch.tensor([1 / known], **options)

    def forward(self, x: Tensor) -> Tensor:
        """The result, with the axes and the type of x."""
        if x.dtype not in _RESULTS:
            raise UnknownType(f"x must be {listed(_RESULTS)}; given {x.dtype}")
        check_input(x, (self.wide, self.in_features))
        flat = x.reshape(-1, self.in_features)
        if not flat.shape[0]:
            return x.new_empty((*x.shape[:-1], self.out_features))
        hidden = self.hidden(flat)
        y = call(
            "sparse_mm",
            hidden.packed,
            self.down_weight,
            ELEMENT,
            flat.shape[0],
            x.dtype,
            hidden.scale,
            hidden.scales,
            self.down_scale,
            None,
            False,
            False,
            (),
        )
        if self.down_bias is not None:
            y = y + self.down_bias.to(y.dtype)
        return y.reshape(*x.shape[:-1], self.out_features)

    def hidden(self, flat: Tensor) -> Hidden:
        """The activations of rows of x, packed."""
        values, scales = call_pair("quantize_rows", flat, ELEMENT, None)
        kind = flat.dtype if flat.dtype in _KINDS else torch.bfloat16
        if self.hidden_scale is not None and self._inverse is not None:
            known = (scales, self.up_scale, self._inverse)
            packed = call(
                "activated_mm",
                values,
                self.up_weight,
                self.activation,
                kind,
                *known,
                (),
            )
            return Hidden(packed, self.hidden_scale, None)
        packed, rows = call_pair(
            "activate_rows", self._dense(values, scales, kind), self.activation
        )
        return Hidden(packed, None, rows)

    def _dense(self, values: Tensor, scales: Tensor, kind: torch.dtype) -> Tensor:
        """The result of the first layer."""
        epilogue = (None, scales, self.up_scale, None)
        options = (kind, *epilogue, False, False, ())
        h = call("dense_mm", values, self.up_weight, *options)
        return h if self.up_bias is None else h + self.up_bias.to(kind)

    def dense_activations(self, x: Tensor) -> Tensor:
        """All activations of rows of x, in float32, before two of four are kept."""
        flat = x.reshape(-1, self.in_features)
        kind = flat.dtype if flat.dtype in _KINDS else torch.bfloat16
        values, scales = call_pair("quantize_rows", flat, ELEMENT, None)
        return FUNCTIONS[self.activation](self._dense(values, scales, kind).float())

    def dense_weights(self) -> tuple[Tensor, Tensor]:
        """Both weights as float32, with their scales applied.

        >>> block = SparseFeedForward(4, 8)
        >>> [tuple(weight.shape) for weight in block.dense_weights()]
        [(8, 4), (4, 8)]
        """
        up = self.up_weight.float() * self.up_scale[:, None]
        return up, self.down_weight.float() * self.down_scale[:, None]

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> SparseFeedForward:
        """Move the tensors with the block, but keep their types: they must be exact."""
        before = dict(self.named_buffers(recurse=False))
        super()._apply(fn, recurse)
        for name, value in before.items():
            if getattr(self, name).dtype != value.dtype:
                setattr(self, name, value.to(getattr(self, name).device))
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Tensor], prefix: str, *rest: object
    ) -> None:
        scale = state_dict.get(f"{prefix}hidden_scale")
        self.fix_scale(None if scale is None else float(scale))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """What ``print(module)`` shows."""
        bias = self.up_bias is not None or self.down_bias is not None
        return (
            f"hidden={self.in_features}, wide={self.wide}, "
            f"activation={self.activation}, bias={bias}, "
            f"static={self.hidden_scale is not None}"
        )


# ── models ──────────────────────────────────────────────────────────────────


class DenseBlock(NamedTuple):
    """A block of a model: its layers and its activation."""

    up: torch.nn.Linear
    down: torch.nn.Linear
    activation: str


def feed_forwards(
    model: torch.nn.Module,
    *,
    skip: Skip = (),
    batches: Iterable[object] | None = None,
) -> torch.nn.Module:
    """Replace the feed-forward blocks of a model by SparseFeedForward.

    A block is a module with two Linear and no other parameters, which computes
    ``down(relu(up(x)))`` or ``down(relu(up(x)) ** 2)``.  Whether it does is tried with
    random numbers.  The model is changed in place and returned; a model that is itself
    a block is not changed, so use what is returned.  ``skip`` is as for
    :func:`~fragmenta.torch.linears`.

    Gated blocks, ``down(act(gate(x)) * up(x))``, are left as they are.  With silu or
    gelu, as in most models, none of their activations is zero: two of four would lose
    half of them, a sixth of their norm.  Their weights can be sparse:
    :func:`~fragmenta.torch.linears`.

    With ``batches``, the model is called with each of them, and each block gets the
    greatest scale that its rows had, for all rows.

    >>> class SquaredReLU(torch.nn.Module):
    ...     def forward(self, x):
    ...         return torch.relu(x) ** 2
    >>> model = torch.nn.Sequential(
    ...     torch.nn.Linear(16, 64), SquaredReLU(), torch.nn.Linear(64, 16)
    ... )
    >>> feed_forwards(model)
    SparseFeedForward(hidden=16, wide=64, activation=relu2, bias=True, static=False)
    """
    check_model(model, "feed_forwards")
    watched = original(model)
    found: dict[str, DenseBlock] = {}
    for name, module in watched.named_modules():  # what is around a block comes first
        inside = any(name.startswith(f"{x}." if x else "") for x in found)
        block = None if inside else block_of(module)
        if block is not None:
            found[name] = block
    named = [(name, watched.get_submodule(name)) for name in found]
    made: dict[torch.nn.Module, SparseFeedForward] = {}
    for name, module in without_skipped(named, skip):
        made[module] = SparseFeedForward.from_linears(*found[name])
    if not made:
        warnings.warn(
            "the model has no feed-forward block with relu or its square, so nothing "
            f"was replaced{_gated_blocks(watched)}",
            stacklevel=2,
        )
        return model
    for parent in list(watched.modules()):
        for name, child in list(parent._modules.items()):
            if child in made:
                setattr(parent, name, made[child])
    changed: torch.nn.Module = made.get(watched, model)
    if batches is not None:
        _calibrate(changed, made.values(), batches)
    return changed


def _gated_blocks(model: torch.nn.Module) -> str:
    """What is said about the gated blocks of a model; nothing if it has none."""
    found = [name for name, module in model.named_modules() if is_gated(module)]
    if not found:
        return ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return (
        f"; {found[0] or 'itself'}{more} are gated, act(gate(x)) * up(x): with silu or "
        "gelu no activation is zero, and two of four would lose half of them; "
        "ft.linears makes their weights sparse instead"
    )


def is_gated(module: torch.nn.Module) -> bool:
    """Whether a module looks like a gated feed-forward block: gate, up and down.

    gate and up may be one layer with both outputs.

    >>> def linears(*sizes):
    ...     return torch.nn.ModuleList(torch.nn.Linear(*x) for x in sizes)
    >>> is_gated(linears((8, 32), (8, 32), (32, 8)))
    True
    >>> is_gated(linears((8, 64), (32, 8)))
    True
    >>> is_gated(linears((8, 32), (32, 8)))
    False
    """
    own = [x for x in module.children() if isinstance(x, torch.nn.Linear)]
    if isinstance(module, torch.nn.Sequential) or len(own) not in (2, 3):
        return False
    *first, down = [(x.in_features, x.out_features) for x in own]
    wide, out = down
    if len(own) == 3:
        return first[0] == first[1] == (out, wide)
    return first[0] == (out, 2 * wide)


def block_of(module: torch.nn.Module) -> DenseBlock | None:
    """The layers and the activation of a feed-forward block; None if it is none.

    >>> layers = torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)
    >>> block_of(torch.nn.Sequential(*layers)).activation
    'relu'
    >>> block_of(torch.nn.Sequential(layers[0], torch.nn.GELU(), layers[2])) is None
    True
    """
    layers = [x for x in module.modules() if isinstance(x, torch.nn.Linear)]
    own = {id(p) for layer in layers for p in layer.parameters()}
    plain = {id(p) for p in module.parameters()} == own and module not in layers
    if len(layers) != 2 or not plain or any(x.weight.is_meta for x in layers):
        return None
    for up, down in (layers, layers[::-1]):
        if up.out_features != down.in_features:
            continue
        for activation in ("relu2", "relu"):
            if _computes(module, up, down, activation):
                return DenseBlock(up, down, activation)
    return None


def _computes(
    module: torch.nn.Module,
    up: torch.nn.Linear,
    down: torch.nn.Linear,
    activation: str,
) -> bool:
    """Whether a module gives the same as its two layers with an activation."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, up.in_features, generator=generator).to(up.weight)
    training = module.training
    module.eval()
    try:
        with torch.no_grad():
            y = module(x)
            want = down(FUNCTIONS[activation](up(x)))
    except Exception:  # it takes other arguments, or other shapes
        return False
    finally:
        module.train(training)
    if not isinstance(y, Tensor) or y.shape != want.shape or not want.any():
        return False
    apart = (y.float() - want.float()).norm() / want.float().norm()
    return bool(apart < 0.01)


def _calibrate(
    model: torch.nn.Module,
    blocks: Iterable[SparseFeedForward],
    batches: Iterable[object],
) -> None:
    """Give each block the greatest scale of its rows."""
    seen: dict[SparseFeedForward, float] = {}

    def note(block: SparseFeedForward, inputs: tuple[Tensor, ...]) -> None:
        flat = inputs[0].reshape(-1, block.in_features)
        scales = block.hidden(flat).scales
        if scales is not None and scales.isfinite().any():
            most = float(scales[scales.isfinite()].max())
            seen[block] = max(seen.get(block, 0.0), most)

    every = [block for block in blocks if block.up_bias is None]
    handles = [block.register_forward_pre_hook(note) for block in every]
    try:
        with torch.no_grad():
            for batch in batches:
                call_with(model, batch)
    finally:
        for handle in handles:
            handle.remove()
    for block, scale in seen.items():
        block.fix_scale(scale)
