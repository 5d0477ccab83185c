"""Reports time, speed and error of each sparse layer and block of a model.

The model is called once.  While it runs, each of its sparse layers is compared with a
dense one, and so is each block with sparse activations.  Errors are measured on the
CPU, too, times only on a GPU.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall, ShapeError, nearest
from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Tile
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.torch.calibration import call_with, check_model, original
from fragmenta.hopper.torch.feedforward import (
    FUNCTIONS,
    DenseBlock,
    SparseFeedForward,
    block_of,
)
from fragmenta.hopper.torch.matrix import DTYPES
from fragmenta.hopper.torch.modules import SparseLinear
from fragmenta.hopper.torch.pruning import table
from fragmenta.hopper.torch.running import kernel_for, tiled
from fragmenta.hopper.torch.tuning import milliseconds
from fragmenta.hopper.torch.weights import relative_error

_WIDTH = 80
_LONG = 1000  # microseconds from which decimals are noise
_LINEAR: Callable[[Tensor, Tensor, Tensor | None], Tensor] = torch.nn.functional.linear


@dataclass(frozen=True)
class LayerReport:
    """One sparse layer in one call of a model.

    >>> LayerReport("0", (8, 4), "bf16", time_us=2.0, dense_us=3.0).ratio
    1.5
    """

    name: str
    """The name of the layer in its model."""
    shape: tuple[int, int]
    """Out x in."""
    element_type: str
    """The type of the weights as the tensor core reads them."""
    batch: int = 0
    """Rows of x in the first call; 0 if the layer was not called."""
    tile: str = ""
    """The tile of the kernel; empty if there was nothing to multiply."""
    time_us: float | None = None
    """Microseconds of the layer on the GPU; None on the CPU."""
    dense_us: float | None = None
    """The same of ``torch.nn.functional.linear`` with a dense weight."""
    error: float | None = None
    """The relative error of the output; None if there was none."""

    @property
    def ratio(self) -> float | None:
        """How many times as fast as dense the layer is; None on the CPU."""
        if self.time_us is None or self.dense_us is None:
            return None
        return self.dense_us / self.time_us

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        return {**asdict(self), "ratio": self.ratio}


@dataclass(frozen=True)
class BlockReport:
    """One block with sparse activations in one call of a model.

    >>> BlockReport("mlp", (4, 8), "relu2", 5, zeros=20, values=20, lost=3).share
    0.15
    """

    name: str
    """The name of the block in its model."""
    shape: tuple[int, int]
    """Wide x in."""
    activation: str
    tokens: int = 0
    """Rows of x in the first call; 0 if the block was not called."""
    zeros: int = 0
    """Activations that are zero before two of four are kept."""
    values: int = 0
    """Activations that are not."""
    lost: int = 0
    """Those of them that are not kept."""
    norm_lost: float | None = None
    """The share of the norm of all activations that is lost."""
    time_us: float | None = None
    """Microseconds of the block on the GPU; None on the CPU."""
    dense_us: float | None = None
    """The same with dense weights of the type of x, by PyTorch."""
    error: float | None = None
    """The relative error of the output against dense activations in float32, with
    the weights of the block, or with those of the reference."""

    @property
    def share(self) -> float | None:
        """The share of the activations that are not zero which is lost."""
        return self.lost / self.values if self.values else None

    @property
    def ratio(self) -> float | None:
        """How many times as fast as dense the block is; None on the CPU."""
        if self.time_us is None or self.dense_us is None:
            return None
        return self.dense_us / self.time_us

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        return {**asdict(self), "share": self.share, "ratio": self.ratio}


@dataclass(frozen=True)
class ModelReport:
    """What :func:`report` found; ``str()`` is a table.

    >>> print(ModelReport((LayerReport("body.0", (8, 4), "bf16", 5, "64x8"),)))
    shape  batch  type  tile  us  ratio  error  layer
    8x4        5  bf16  64x8   -      -      -  body.0
    error: of y against x W^T + bias in float32, W as the layer stores it
    times: measured on a Hopper GPU only
    """

    rows: tuple[LayerReport, ...]
    """One for each sparse layer."""
    reference: bool = False
    """Whether errors are against the layers of another model."""
    blocks: tuple[BlockReport, ...] = ()
    """One for each block with sparse activations."""

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        found: dict[str, object] = {
            "reference": self.reference,
            "layers": [each.to_dict() for each in self.rows],
        }
        if self.blocks:
            found["blocks"] = [each.to_dict() for each in self.blocks]
        return found

    def to_json(self) -> str:
        """The same as JSON, in which an error that is no number is the text "nan".

        >>> ModelReport(()).to_json()
        '{"reference": false, "layers": []}'
        """
        return json.dumps(_without_nan(self.to_dict()), allow_nan=False)

    def __str__(self) -> str:
        parts = [self._layers()] if self.rows or not self.blocks else []
        return "\n".join([*parts, *([self._blocks()] if self.blocks else [])])

    def _blocks(self) -> str:
        titles = (
            "block",
            "tokens",
            "zero",
            "lost",
            "norm lost",
            "us",
            "ratio",
            "error",
        )
        rows = [titles, *map(_block_cells, self.blocks)]
        whose = "the reference's weights" if self.reference else "the same weights"
        return "\n".join(
            [
                *table(rows, (1, 2, 3, 4, 5, 6, 7)),
                "lost: of the activations that are not zero, those beyond two of four",
                f"error: of y against all activations and {whose} in float32",
            ]
        )

    def _layers(self) -> str:
        titles = ("shape", "batch", "type", "tile", "us", "ratio", "error", "layer")
        rows = [titles, *map(_cells, self.rows)]
        room = _WIDTH - max(map(len, table([(*row[:-1], "|") for row in rows], ()))) + 1
        short = [(*row[:-1], _shortened(row[-1], max(room, 8))) for row in rows]
        whose = "of the reference model" if self.reference else "as the layer stores it"
        lines = [
            *table(short, (1, 4, 5, 6)),
            f"error: of y against x W^T + bias in float32, W {whose}",
        ]
        if all(each.time_us is None for each in self.rows):
            return "\n".join([*lines, "times: measured on a Hopper GPU only"])
        return "\n".join(
            [*lines, "ratio: the time of a dense layer / us; above 1, sparse is faster"]
        )


def _cells(each: LayerReport) -> tuple[str, ...]:
    numbers = (
        _number(each.time_us, ".1f" if (each.time_us or 0) < _LONG else ".0f"),
        _number(each.ratio, ".2f"),
        _number(each.error, ".1e"),
    )
    rows, columns = each.shape
    start = (f"{rows}x{columns}", str(each.batch), each.element_type, each.tile or "-")
    return (*start, *numbers, each.name or "(it)")


def _block_cells(each: BlockReport) -> tuple[str, ...]:
    every = each.zeros + each.values
    return (
        each.name or "(it)",
        str(each.tokens),
        _number(each.zeros / every if every else None, ".1%"),
        _number(each.share, ".1%"),
        _number(each.norm_lost, ".1%"),
        _number(each.time_us, ".1f" if (each.time_us or 0) < _LONG else ".0f"),
        _number(each.ratio, ".2f"),
        _number(each.error, ".1e"),
    )


def _without_nan(x: object) -> object:
    """The same values, with text for numbers that JSON does not have."""
    if isinstance(x, dict):
        return {name: _without_nan(each) for name, each in x.items()}
    if isinstance(x, list | tuple):
        return [_without_nan(each) for each in x]
    return str(x) if isinstance(x, float) and not math.isfinite(x) else x


def _number(x: float | None, form: str) -> str:
    return "-" if x is None else f"{x:{form}}"


def _shortened(name: str, most: int) -> str:
    """The end of a long name, which differs from layer to layer."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


# ── measuring ───────────────────────────────────────────────────────────────


def report(
    model: torch.nn.Module, x: object, *, reference: torch.nn.Module | None = None
) -> ModelReport:
    """Tile, time, speed and error of each sparse layer, in one call of a model.

    Of each :class:`~fragmenta.torch.SparseFeedForward` it says how many activations
    were zero, how many others were lost because two of four are kept, and the error.

    ``x`` is a tensor, a tuple of arguments, or a dict of named ones.

    The error is the norm of the difference from the dense result in float32, divided by
    the norm of that.  The dense weight is what the layer stores, so that the error is
    that of the arithmetic and of quantising x.  With ``reference``, the model before it
    was converted, it is the weight of the layer with the same name there, so that what
    pruning and rounding cost is in it, too.  Of a block, these are both weights, the
    biases and the activation.

    On a GPU, times are medians of replays of a CUDA graph.  The dense layer has a
    weight of the same shape and type.  If that has 8 bits, which ``linear`` of PyTorch
    does not take, the dense layer has the type of x.  On the CPU the tile is that of an
    H200.

    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 32).bfloat16())
    >>> from fragmenta.torch import linears
    >>> found = report(linears(model, prune=True), torch.ones(5, 64).bfloat16())
    >>> found.rows[0].batch, found.rows[0].time_us, found.rows[0].error < 0.01
    (5, None, True)
    """
    check_model(model, "report")
    watched = original(model)
    layers = {
        name: module
        for name, module in watched.named_modules()
        if isinstance(module, SparseLinear)
    }
    blocks = {
        name: module
        for name, module in watched.named_modules()
        if isinstance(module, SparseFeedForward)
    }
    if not layers and not blocks:
        raise BadCall(
            "the model has no sparse layers; fragmenta.torch.linears makes them"
        )
    weights = _weights(reference, layers) if reference is not None else {}
    dense = _dense_blocks(reference, blocks) if reference is not None else {}
    found: dict[str, LayerReport] = {}
    handles = [
        layer.register_forward_hook(
            _reporting(found, name, weights.get(name)), with_kwargs=True
        )
        for name, layer in layers.items()
    ]
    seen: dict[str, BlockReport] = {}
    handles += [
        block.register_forward_hook(_block_reporting(seen, name, dense.get(name)))
        for name, block in blocks.items()
    ]
    try:
        with torch.no_grad():
            call_with(watched, x)
    finally:
        for handle in handles:
            handle.remove()
    rows = [
        found.get(name) or LayerReport(name, layer.weight.shape, layer.weight_type)
        for name, layer in layers.items()
    ]
    empty = [
        seen.get(name) or BlockReport(name, (block.wide, block.in_features), "")
        for name, block in blocks.items()
    ]
    return ModelReport(tuple(rows), reference is not None, tuple(empty))


def _weights(
    reference: torch.nn.Module, layers: dict[str, SparseLinear]
) -> dict[str, torch.nn.Linear]:
    """The dense layers of a model that correspond to the sparse ones."""
    check_model(reference, "reference=")
    every = dict(original(reference).named_modules())
    for name, layer in layers.items():
        dense = every.get(name)
        if not isinstance(dense, torch.nn.Linear):
            hint = "" if name in every else nearest(name, every)
            raise BadCall(
                f"reference has no Linear {name or 'itself'}{hint}; "
                "give the model before linears changed it, such as a deepcopy"
            )
        if tuple(dense.weight.shape) != layer.weight.shape:
            raise ShapeError(
                f"layer {name or 'itself'} is {layer.weight.shape}, and in reference "
                f"{tuple(dense.weight.shape)}"
            )
    return {name: every[name] for name in layers}


def _dense_blocks(
    reference: torch.nn.Module, blocks: dict[str, SparseFeedForward]
) -> dict[str, DenseBlock]:
    """The dense blocks of a model that correspond to those with sparse activations."""
    every = dict(original(reference).named_modules())
    found: dict[str, DenseBlock] = {}
    for name, block in blocks.items():
        dense = block_of(every[name]) if name in every else None
        if dense is None:
            hint = "" if name in every else nearest(name, every)
            raise BadCall(
                f"reference has no feed-forward block {name or 'itself'}{hint}; give "
                "the model before feed_forwards changed it, such as a deepcopy"
            )
        sizes = (dense.up.out_features, dense.up.in_features, dense.down.out_features)
        if sizes != (block.wide, block.in_features, block.out_features):
            raise ShapeError(
                f"block {name or 'itself'} has wide, in and out "
                f"{(block.wide, block.in_features, block.out_features)}, and in "
                f"reference {sizes}"
            )
        found[name] = dense
    return found


def _reporting(
    found: dict[str, LayerReport], name: str, dense: torch.nn.Linear | None
) -> Callable[..., None]:
    """A hook that reports the first call of a layer."""

    def note(
        layer: SparseLinear,
        inputs: Sequence[Tensor],
        named: dict[str, Tensor],
        y: Tensor,
    ) -> None:
        x = inputs[0] if inputs else named["input"]
        if name in found or not x.numel():
            return
        found[name] = LayerReport(
            name,
            layer.weight.shape,
            layer.weight_type,
            batch=x.numel() // x.shape[-1],
            tile=str(_tile(layer, x, y)),
            error=_error(layer, x, y, dense),
            **_times(layer, x),
        )

    return note


def _block_reporting(
    found: dict[str, BlockReport], name: str, dense: DenseBlock | None
) -> Callable[..., None]:
    """A hook that reports the first call of a block."""

    def note(block: SparseFeedForward, inputs: Sequence[Tensor], y: Tensor) -> None:
        x = inputs[0]
        if name not in found and x.numel():
            found[name] = _block_report(name, block, x, y, dense)

    return note


def _block_report(
    name: str, block: SparseFeedForward, x: Tensor, y: Tensor, dense: DenseBlock | None
) -> BlockReport:
    every = block.dense_activations(x)
    tokens = every.shape[0]
    kept = two_of_four(every)
    up, down = block.dense_weights()
    biases = [block.up_bias, block.down_bias]
    activation = block.activation
    if dense is not None:
        up, down = dense.up.weight.detach(), dense.down.weight.detach()
        biases = [dense.up.bias, dense.down.bias]
        activation = dense.activation
    first, second = (
        None if bias is None else bias.detach().float().to(x.device) for bias in biases
    )
    with _exactly():
        h = _LINEAR(x.float(), up.float().to(x.device), first)
        wanted = _LINEAR(FUNCTIONS[activation](h), down.float().to(x.device), second)
        error = relative_error(y, wanted)
    return BlockReport(
        name,
        (block.wide, block.in_features),
        block.activation,
        tokens,
        zeros=int((every == 0).sum()),
        values=int((every != 0).sum()),
        lost=int(((every != 0) & ~kept).sum()),
        norm_lost=relative_error(torch.where(kept, every, 0), every),
        error=error,
        **_block_times(block, x),
    )


def two_of_four(x: Tensor) -> Tensor:
    """Which two of each four neighbours have the greatest magnitudes.

    >>> two_of_four(torch.tensor([[1.0, -3.0, 0.0, 1.0, 5.0]]))
    tensor([[ True,  True, False, False,  True]])
    """
    rows, columns = x.shape
    chunks = torch.nn.functional.pad(x.abs(), (0, -columns % 4)).reshape(rows, -1, 4)
    first = chunks.sort(dim=-1, descending=True, stable=True).indices[..., :2]
    kept = torch.zeros_like(chunks, dtype=torch.bool).scatter_(-1, first, True)
    return kept.reshape(rows, -1)[:, :columns]


def _block_times(block: SparseFeedForward, x: Tensor) -> dict[str, float]:
    """Microseconds of the block and of a dense one, on a GPU."""
    if not x.is_cuda:
        return {}
    up, down = (weight.to(x.dtype) for weight in block.dense_weights())
    activate = FUNCTIONS[block.activation]

    def dense() -> Tensor:
        return _LINEAR(activate(_LINEAR(x, up, None)), down, None)

    with torch.cuda.device(x.device):
        return {
            "time_us": 1000 * milliseconds(partial(block.forward, x)),
            "dense_us": 1000 * milliseconds(dense),
        }


def _tile(layer: SparseLinear, x: Tensor, y: Tensor) -> Tile:
    """The tile with which this layer multiplies."""
    name = layer.multiplied_as(x)
    integers = Integers.named(layer.weight_type)
    scaled = layer.bias is not None or layer.weight_scale is not None
    if integers:  # x has scales, or wide weights have them
        scaled = scaled or integers.b == "e4m3" or name != layer.weight_type
    kernel = kernel_for(
        name,
        _multiplied(layer, x),
        y.dtype,
        sparse=True,
        scaled=scaled,
        transposed=True,
        promote=layer.promote and not Integers.named(name),
    )
    m, k = layer.weight.shape
    shape = (m, x.numel() // k, k)
    if not x.is_cuda:
        return choose(kernel, *shape).tile
    return tiled(kernel, shape, (), x.device.index).tile


def _multiplied(layer: SparseLinear, x: Tensor) -> torch.dtype:
    """The type of x in the product."""
    if integers := Integers.named(layer.weight_type):
        half = x.dtype if x.dtype.itemsize == 2 else torch.bfloat16
        return DTYPES["e4m3"] if integers.b == "e4m3" else half
    of = DTYPES[layer.weight_type]
    mixed = of.itemsize == 1 and layer.quantize is None  # e4m3 and e5m2, s8 and u8
    return x.dtype if mixed else of


def _error(
    layer: SparseLinear, x: Tensor, y: Tensor, dense: torch.nn.Linear | None
) -> float:
    weight = layer.dense_weight() if dense is None else dense.weight.detach().float()
    bias = layer.bias if dense is None else dense.bias
    weight = weight.to(x.device)
    bias = None if bias is None else bias.detach().float().to(x.device)
    with _exactly():
        return relative_error(y, _LINEAR(x.float(), weight, bias))


@contextmanager
def _exactly() -> Iterator[None]:
    """Multiply float32 as float32, and not as tf32, without autocast."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with (
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def _times(layer: SparseLinear, x: Tensor) -> dict[str, float]:
    """Microseconds of the layer and of a dense one, on a GPU."""
    if not x.is_cuda:
        return {}
    kind = DTYPES.get(layer.weight_type, torch.uint8)
    if kind.itemsize == 1:
        kind = x.dtype if x.dtype.itemsize > 1 else torch.bfloat16
    weight = layer.dense_weight().to(kind)
    bias = None if layer.bias is None else layer.bias.to(kind)
    given = x.to(kind)
    with torch.cuda.device(x.device):
        return {
            "time_us": 1000 * milliseconds(partial(layer.forward, x)),
            "dense_us": 1000 * milliseconds(partial(_LINEAR, given, weight, bias)),
        }
