r"""What pruning to 2:4 costs in accuracy, and what it saves in time.

A small classifier is trained on synthetic patterns and pruned to 2:4.  It is then
trained a little more, with the pruned weights kept at zero, and run with
:class:`SparseLinear`.  On a Hopper GPU the script also times a large layer.  Without a
GPU it computes the accuracy by emulation.

    python examples/prune_model.py --results examples/prune_model.json \
        --plot examples/prune_model.png
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import fragmenta.torch as ft

CLASSES, WIDTH, HIDDEN = 10, 256, 512
NOISE = 2.6
TESTED = 2048


def patterns(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Noisy mixtures of waves; the class decides which waves."""
    waves = torch.randn(CLASSES, 6, WIDTH, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, CLASSES, (count,), generator=draw)
    amounts = torch.randn(count, 6, generator=draw)
    x = torch.einsum("ci,ciw->cw", amounts, waves[labels])
    return x + NOISE * torch.randn(count, WIDTH, generator=draw), labels


def classifier() -> nn.Sequential:
    """Three layers; the last one is small and stays dense."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(WIDTH, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, CLASSES),
    )


def masks(model: nn.Module) -> dict[str, torch.Tensor]:
    """Which weights of the large layers are kept: two of each four."""
    found = {}
    for name, weight in model.named_parameters():
        if weight.ndim == 2 and weight.shape[0] > CLASSES:
            kept = ft.compress(weight.detach().bfloat16()).to_dense()
            found[name] = kept != 0
    return found


def train(
    model: nn.Module,
    steps: int,
    rate: float,
    held: dict[str, torch.Tensor] | None = None,
) -> None:
    """Plain training; weights that ``held`` marks as pruned stay zero."""
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    x, labels = patterns(8192, seed=1)
    for step in range(steps):
        part = torch.arange(step * 256, step * 256 + 256) % len(x)
        loss = nn.functional.cross_entropy(model(x[part]), labels[part])
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        with torch.no_grad():
            for name, keep in (held or {}).items():
                model.get_parameter(name).mul_(keep)


def accuracy(model: nn.Module, kind: torch.dtype = torch.float32) -> float:
    """The share of fresh patterns that the model recognises."""
    x, labels = patterns(TESTED, seed=2)
    device = next(model.buffers(), next(model.parameters(), x)).device
    with torch.no_grad():
        guess = model(x.to(kind).to(device)).float().argmax(-1).cpu()
    return round((guess == labels).float().mean().item(), 4)


def recorded(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """Ten calls one after the other, as in a model."""
    graph = torch.cuda.CUDAGraph()
    call()
    with torch.cuda.graph(graph):
        for _ in range(10):
            call()
    return graph


def timed(*calls: Callable[[], object]) -> tuple[float, ...]:
    """Median microseconds of each, measured in turn: clocks change as the GPU warms."""
    graphs = [recorded(call) for call in calls]
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(20):
        for graph, found in zip(graphs, times, strict=True):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            graph.replay()
            after.record()
            torch.cuda.synchronize()
            found.append(before.elapsed_time(after) * 100)
    return tuple(round(statistics.median(found), 1) for found in times)


def layer_times(size: int = 8192) -> dict[int, tuple[float, ...]]:
    """Dense and sparse microseconds of one bf16 layer, by batch."""
    layer = nn.Linear(size, size, bias=False, device="cuda", dtype=torch.bfloat16)
    sparse = ft.SparseLinear.from_linear(layer, prune=True)
    found = {}
    with torch.no_grad():
        for batch in (16, 256, 2048, 8192):
            x = torch.randn(batch, size, device="cuda", dtype=torch.bfloat16)
            found[batch] = timed(lambda x=x: layer(x), lambda x=x: sparse(x))
    return found


def experiment(steps: int) -> dict[str, dict]:
    """Train, prune, train again, swap layers; return accuracies, and times on a GPU."""
    model = classifier()
    train(model, steps, 1e-3)
    scores = {"dense, f32": accuracy(model)}
    held = masks(model)
    with torch.no_grad():
        for name, keep in held.items():
            model.get_parameter(name).mul_(keep)
    scores["pruned to 2:4"] = accuracy(model)
    train(model, steps // 2, 5e-4, held)
    scores["trained on"] = accuracy(model)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sparse = copy.deepcopy(model).bfloat16().to(device)
    ft.linears(sparse, prune=True, least=CLASSES * HIDDEN + 1)
    scores[f"SparseLinear, bf16, {device}"] = accuracy(sparse, torch.bfloat16)
    return {"accuracy": scores, "times": layer_times() if device == "cuda" else {}}


def report(results: dict[str, dict]) -> None:
    """The numbers, line by line."""
    for name, score in results["accuracy"].items():
        print(f"{name:28} {100 * score:6.2f} %")
    for batch, (dense, fast) in results["times"].items():
        print(
            f"batch {batch:>5}  dense {dense:8.1f} us  sparse {fast:8.1f} us  "
            f"{dense / fast:.2f}x"
        )


def plot(path: Path, results: dict[str, dict]) -> None:
    """Wrong answers as bars, and speed over batch where there is a GPU."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    scores, times = results["accuracy"], results["times"]
    figure, axes = pyplot.subplots(
        1, 2 if times else 1, squeeze=False, figsize=(11, 3.2), layout="constrained"
    )
    draw_wrong(axes[0, 0], scores)
    if times:
        draw_speed(axes[0, 1], times)
    for each in axes.flat:
        each.spines[["top", "right"]].set_visible(False)
        each.title.set(fontsize=11, ha="left", x=0)
    figure.savefig(path, dpi=120)


def draw_wrong(axes: Any, scores: dict[str, float]) -> None:
    """Answers that are wrong: accuracies all look like 99%, these differ."""
    wrong = [round(TESTED * (1 - score)) for score in scores.values()]
    colours = ["#7f7f7f", *["#4477aa"] * (len(wrong) - 1)]
    bars = axes.barh(list(scores), wrong, color=colours, height=0.65)
    labels = [
        f"{count}: {100 * score:.2f}% right"
        for count, score in zip(wrong, scores.values(), strict=True)
    ]
    axes.bar_label(bars, labels, padding=4)
    axes.set(xlabel=f"wrong answers, of {TESTED:,}", xlim=(0, 1.7 * max(wrong)))
    axes.set_title("A pruned classifier")
    axes.invert_yaxis()


def draw_speed(axes: Any, times: dict[str, tuple[float, float]]) -> None:
    """Times as fast as dense, between 1 (no gain) and 2 (half of the products)."""
    for place, (dense, fast) in enumerate(times.values()):
        axes.plot([1, dense / fast], [place] * 2, color="#ee6677", linewidth=3)
        axes.plot(dense / fast, place, "o", color="#ee6677", markersize=9)
        text = f"{dense / fast:.2f}: {dense:,.0f} → {fast:,.0f} µs"
        axes.annotate(text, (dense / fast, place), (9, -4), textcoords="offset points")
    axes.set_yticks(range(len(times)), [f"batch {batch}" for batch in times])
    axes.set_xticks([1, 1.25, 1.5, 1.75, 2], ["1", "1.25", "1.5", "1.75", "2"])
    axes.set(
        xlabel="times as fast as dense; 2 would be half of the time",
        xlim=(1, 2),
        ylim=(len(times) - 0.5, -0.5),
    )
    axes.set_title("A pruned layer, 8192 x 8192, bf16")


def main() -> None:
    """Run the experiment, or read its results, and report them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=400, help="training steps")
    parser.add_argument("--results", type=Path, help="write the numbers here, as JSON")
    parser.add_argument(
        "--again", action="store_true", help="read the numbers from --results instead"
    )
    parser.add_argument("--plot", type=Path, help="write a picture here")
    options = parser.parse_args()
    if options.again and not options.results:
        parser.error("--again needs --results, the file to read")
    if options.again:
        results = json.loads(options.results.read_text())
    else:
        results = experiment(options.steps)
        if options.results:
            options.results.write_text(json.dumps(results, indent=1) + "\n")
    report(results)
    if options.plot:
        plot(options.plot, results)


if __name__ == "__main__":
    main()
