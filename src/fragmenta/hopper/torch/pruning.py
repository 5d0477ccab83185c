"""Records what pruning took from the layers of a model.

A weight that is 2:4 (tf32: 1:2) already is stored as it is.  Every other weight loses
the smaller magnitudes of its chunks.  That is never silent: each layer keeps what it
lost, a report lists all layers, and a warning says so unless pruning was asked for.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import TypeAlias, TypeVar

import torch
from torch import Tensor

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.hopper.torch.matrix import SparseMatrix, is_semi_structured

Skip: TypeAlias = str | Iterable[str] | Callable[[str, torch.nn.Module], bool]
"""Which layers to leave as they are: patterns of names, or a function."""
Layer = TypeVar("Layer", bound=torch.nn.Module)


class PruningWarning(UserWarning):
    """A weight was pruned, and ``prune=True`` was not given."""


@dataclass(frozen=True)
class LayerPruning:
    """What pruning took from one layer.

    >>> weight = torch.tensor([[3.0, 0.0, 0.0, 4.0], [1.0, 2.0, 2.0, 0.0]]).half()
    >>> from fragmenta.torch import compress
    >>> print(taken(weight, compress(weight)))
    f16 2:4, 2x4: pruned, 1 of 8 weights set to zero, 0.1715 of the norm lost
    """

    name: str
    """The name of the layer in its model."""
    shape: tuple[int, int]
    """Out x in."""
    element_type: str
    """The type of the weights as the tensor core reads them; empty if it cannot."""
    granularity: str
    """2:4, or 1:2 for tf32; empty if the type has none."""
    state: str
    """``pruned``; ``kept`` if it was sparse already; ``dense`` if it is not sparse now;
    ``loaded`` if it came with a state dict, so that nothing is known."""
    dropped: int = 0
    """How many weights that were not zero became zero; of a dense layer, would."""
    norm: float = 0.0
    """The norm of the weight before."""
    lost: float = 0.0
    """The norm of what was set to zero."""
    weight_error: float | None = None
    """The relative error of rounding what was left to 8 bits; None if it was not."""

    @property
    def weights(self) -> int:
        """How many weights the layer has, zeros included."""
        return math.prod(self.shape)

    @property
    def share(self) -> float:
        """The share of the norm that was lost, 0 to 1; NaN if it is not finite."""
        return self.lost / self.norm if self.lost else 0.0

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        return {**asdict(self), "weights": self.weights, "share": self.share}

    def __str__(self) -> str:
        name = f"{self.name}: " if self.name else ""
        error = self.weight_error
        rounded = "" if error is None else f", {error:.4f} of the rest lost by rounding"
        rows, columns = self.shape
        return (
            f"{name}{self.element_type} {self.granularity}, {rows}x{columns}: "
            f"{self.state}, {self.dropped:,} of {self.weights:,} weights set to zero, "
            f"{self.share:.4f} of the norm lost{rounded}"
        )


@dataclass(frozen=True)
class PruningReport:
    """What pruning took from each layer of a model; ``str()`` is a table.

    >>> from fragmenta.torch import linears, pruning_report
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 2).half())
    >>> _ = model[0].weight.data.copy_(torch.tensor([[3, 0, 0, 4], [1, 2, 2, 0]]))
    >>> print(pruning_report(linears(model, prune=True)))
    state   zeroed  weights  norm lost  type      shape  layer
    pruned       1        8     0.1715  f16 2:4   2x4    0
    1 of 1 sparse layers was pruned: 0.1715 of the norm of their weights is lost
    """

    layers: tuple[LayerPruning, ...]

    @property
    def pruned(self) -> tuple[LayerPruning, ...]:
        """The layers that were not sparse before."""
        return tuple(each for each in self.layers if each.state == "pruned")

    @property
    def share(self) -> float:
        """The share of the norm of all sparse layers that was lost, 0 to 1."""
        sparse = [each for each in self.layers if each.state in ("pruned", "kept")]
        norm, lost = (
            math.hypot(*(getattr(each, name) for each in sparse))
            for name in ("norm", "lost")
        )
        return lost / norm if lost else 0.0

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        layers = [each.to_dict() for each in self.layers]
        return {"share": self.share, "layers": layers}

    def __str__(self) -> str:
        titles = ("state", "zeroed", "weights", "norm lost", "type", "shape", "layer")
        rows = [titles, *map(_cells, self.layers)]
        if any(each.weight_error is not None for each in self.layers):
            errors = ["rounding", *map(_error, self.layers)]
            pairs = zip(rows, errors, strict=True)
            rows = [(*row[:4], error, *row[4:]) for row, error in pairs]
        right = range(1, len(rows[0]) - 3)
        return "\n".join([*table(rows, right), self.summary()])

    def summary(self) -> str:
        """The last line of the table."""
        count = sum(each.state != "dense" for each in self.layers)
        pruned = len(self.pruned)
        verb = "was" if pruned == 1 else "were"
        summary = f"{pruned} of {count} sparse layers {verb} pruned"
        if not pruned:
            return f"{summary}: nothing is lost"
        return f"{summary}: {self.share:.4f} of the norm of their weights is lost"


def table(rows: Sequence[Sequence[str]], right: Iterable[int]) -> list[str]:
    """Lines of a table; ``right`` are the columns whose cells end at the same place.

    >>> table([("n", "name"), ("10", "ten")], [0])
    [' n  name', '10  ten']
    """
    wide = [max(map(len, column)) for column in zip(*rows, strict=True)]
    wide[-1] = 0
    return [
        "  ".join(
            f"{cell:{'>' if at in right else '<'}{wide[at]}}"
            for at, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]


def _error(each: LayerPruning) -> str:
    return "" if each.weight_error is None else f"{each.weight_error:.4f}"


def _cells(each: LayerPruning) -> tuple[str, ...]:
    numbers = (f"{each.dropped:,}", f"{each.weights:,}", f"{each.share:.4f}")
    if each.state == "loaded" or not each.element_type:
        numbers = ("?", numbers[1], "?")
    rows, columns = each.shape
    kind = f"{each.element_type} {each.granularity}".strip() or "no kernel"
    return (
        each.state,
        *numbers,
        f"{kind:<8}",
        f"{rows}x{columns}",
        each.name or "(it)",
    )


# ── what was lost ───────────────────────────────────────────────────────────


def taken(
    weight: Tensor, kept: SparseMatrix, name: str = "", pruned: Tensor | None = None
) -> LayerPruning:
    """What was lost between a weight and the sparse matrix that was made from it.

    ``pruned`` is the weight after it was pruned, if it was rounded besides.

    >>> from fragmenta.torch import compress
    >>> weight = torch.tensor([[0, 1, 2, 0]], dtype=torch.int8)
    >>> taken(weight, compress(weight)).state
    'kept'
    """
    kind = (kept.shape, kept.element_type, str(kept.granularity))
    if is_semi_structured(weight):  # sparse, whatever it holds
        return LayerPruning(name, *kind, "kept")
    left = kept.to_dense() if pruned is None else pruned
    before, after = weight.detach().float(), left.float()
    zeroed = (before != 0) & (after == 0)
    dropped = int(zeroed.sum())
    norm, lost = _norm(before), _norm(before[zeroed])
    state = "pruned" if dropped else "kept"
    return LayerPruning(name, *kind, state, dropped, norm, lost)


def _norm(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64))


def warn_pruned(report: PruningReport, level: int) -> None:
    """Warn if weights were pruned."""
    if report.pruned:
        worst = max(report.pruned, key=lambda each: each.share)
        at = f"; the most in layer {worst.name}" if worst.name else ""
        if any(each.element_type == "tf32" for each in report.pruned):
            at += (
                "; float32 weights became tf32, which is 1:2 and keeps one of two: "
                "dtype=torch.bfloat16 or torch.float16 makes them 2:4"
            )
        warnings.warn(
            f"{report.summary()}{at}; fragmenta.torch.pruning_report lists the layers; "
            "skip= leaves layers as they are, prune=True says that pruning is meant, "
            "prune=False refuses it",
            PruningWarning,
            stacklevel=level + 1,
        )


# ── which layers ────────────────────────────────────────────────────────────


def without_skipped(
    layers: Sequence[tuple[str, Layer]], skip: Skip
) -> Sequence[tuple[str, Layer]]:
    """The layers that are not to be left as they are.

    >>> two = [("head", torch.nn.Linear(4, 4)), ("body.0", torch.nn.Linear(4, 4))]
    >>> [name for name, _ in without_skipped(two, "body")]
    ['head']
    >>> without_skipped(two, "haed")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: skip='haed' fits no layer (did you mean head?)
    """
    if callable(skip):
        return [(name, layer) for name, layer in layers if not skip(name, layer)]
    patterns = (
        [skip] if isinstance(skip, str) or not isinstance(skip, Iterable) else skip
    )
    left = set()
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise BadCall(
                "skip must be names or patterns of names, or a function of a name and "
                f"a layer; given {pattern!r}"
            )
        fits = {name for name, _ in layers if _fits(name, pattern)}
        if not fits:
            hint = nearest(pattern, [name for name, _ in layers])
            raise BadCall(f"skip={pattern!r} fits no layer{hint}{_some(layers, hint)}")
        left |= fits
    return [(name, layer) for name, layer in layers if name not in left]


def _fits(name: str, pattern: str) -> bool:
    """Whether a pattern fits a layer, or a module that it is in."""
    parts = name.split(".")
    return any(
        fnmatchcase(".".join(parts[: at + 1]), pattern) for at in range(len(parts))
    )


def _some(layers: Sequence[tuple[str, Layer]], hint: str) -> str:
    if hint or not layers:
        return ""
    names = [name or "(the model itself)" for name, _ in layers[:4]]
    more = " …" if len(layers) > len(names) else ""
    return f"; there are {one_of(names, 'and')}{more}"
