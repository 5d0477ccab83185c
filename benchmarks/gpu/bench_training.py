"""Times of a training step of one layer: dense, sparse, and sparse in both directions.

A step is forward, backward (dX and dW) and Adam (``torch.optim.Adam(fused=True)``), in
bf16.  Rivals are replayed from CUDA graphs in turn, and times are medians of one run.
Dense is ``torch.nn.Linear``.  The sparse layers have the kept values alone in the
optimiser; every forward packs them, and that is in its time.

    python benchmarks/gpu/bench_training.py [--out FOLDER]

Also the passes over memory on their own: packing the values, packing the transpose, the
dense matrix, the kept places of a gradient; and the search for masks.  Writes
training.json and training.md into the folder.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from measuring import Call, compile_all, medians_us, versions
from torch import Tensor, nn

import fragmenta.torch as ft
from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.torch.training import transposable_mask

LAYERS = ((4096, 14336), (14336, 4096), (4096, 4096))
TOKENS = (2048, 8192)
KINDS: dict[str, dict[str, bool] | None] = {
    "dense": None,
    "sparse": {"transposable": False},
    "transposable": {"transposable": True},
}
HEAD = (
    "layer",
    "tokens",
    "part",
    "dense us",
    "sparse us",
    "times",
    "both us",
    "times, both",
)
PARTS = ("forward", "forward and backward", "step")
WARM, BUSY = 5e-3, 40e-3  # seconds of each rival before it is timed, and timed


class Training:
    """One layer, its optimiser and its input: the calls that are timed."""

    def __init__(self, kind: str, rows: int, columns: int, tokens: int) -> None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        place = {"device": device, "dtype": torch.bfloat16}
        torch.manual_seed(0)
        linear = nn.Linear(columns, rows, bias=False, **place)
        options = KINDS[kind]
        self.layer: nn.Module = linear
        if options is not None:
            self.layer = ft.SparseLinear.from_linear(
                linear, prune=True, train=True, **options
            )
        self.x = torch.randn(tokens, columns, **place).requires_grad_()
        self.gradient = torch.randn(tokens, rows, **place) / rows
        on = device == "cuda"
        self.optimiser = torch.optim.Adam(
            self.layer.parameters(), lr=1e-4, fused=on, capturable=on
        )

    def forward(self) -> Tensor:
        """y, without anything kept for the backward pass."""
        with torch.no_grad():
            y: Tensor = self.layer(self.x)
        return y

    def both(self) -> None:
        """Forward and backward: dX and dW."""
        self.x.grad = None
        self.optimiser.zero_grad(set_to_none=True)
        self.layer(self.x).backward(self.gradient)

    def step(self) -> None:
        """Forward, backward and Adam."""
        self.both()
        self.optimiser.step()

    def bytes(self) -> int:
        """What is kept between steps: parameters, codes and the states of Adam."""
        self.step()
        kept = [*self.layer.parameters(), *self.layer.buffers()]
        for state in self.optimiser.state.values():
            kept += [x for x in state.values() if isinstance(x, Tensor)]
        return sum(x.numel() * x.element_size() for x in kept)


def measured(rows: int, columns: int, tokens: int) -> dict[str, Any]:
    """All kinds of one layer at one number of tokens."""
    rivals = {kind: Training(kind, rows, columns, tokens) for kind in KINDS}
    found: dict[str, Any] = {"rows": rows, "columns": columns, "tokens": tokens}
    for part in PARTS:
        name = {"forward and backward": "both"}.get(part, part)
        calls: list[list[Call]] = [[getattr(each, name)] for each in rivals.values()]
        took = medians_us(calls, WARM, BUSY)
        found[part] = dict(zip(rivals, took, strict=True))
    found["bytes"] = {kind: each.bytes() for kind, each in rivals.items()}
    return found


def passes(rows: int, columns: int) -> dict[str, float]:
    """The passes over memory that a step of a sparse layer has besides, in us."""
    layer = Training("transposable", rows, columns, 64).layer
    values, codes = layer.weight_values.detach(), layer.weight_codes
    dense, ops = layer.weight.to_dense(), torch.ops.fragmenta
    calls = {
        "copy": values.clone,
        "pack": lambda: ops.pack_kept(values, codes, "bf16", columns, False),
        "pack transposed": lambda: ops.pack_kept(values, codes, "bf16", columns, True),
        "dense": lambda: ops.kept_to_dense(values, codes, "bf16", columns),
        "gather": lambda: ops.gather_kept(dense, codes, "bf16"),
    }
    took = medians_us([[call] for call in calls.values()], WARM, BUSY)
    found = dict(zip(calls, took, strict=True))
    weight = torch.randn(rows, columns, device="cuda")
    transposable_mask(weight)
    torch.cuda.synchronize()
    begun = time.perf_counter()
    transposable_mask(weight)
    torch.cuda.synchronize()
    found["search for a mask"] = (time.perf_counter() - begun) * 1e6
    return found


def kernels(layers: list[tuple[int, int]], tokens: list[int]) -> Iterator[Kernel]:
    """Every kernel that is launched: y = x W^T, and dX = dY W."""
    base = Kernel("bf16", out="bf16", transposed=True)
    for rows, columns in layers:
        for n in (*tokens, 64):
            yield choose(base, rows, n, columns)
            yield choose(base, columns, n, rows)


def table(record: dict[str, Any]) -> str:
    """Times, and how many times as fast as dense."""
    lines = [
        f"| {' | '.join(HEAD)} |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for case in record["cases"]:
        for part in PARTS:
            took = case[part]
            cells = [f"{took['dense']:.0f}"]
            for kind in ("sparse", "transposable"):
                ratio = took["dense"] / took[kind]
                cells += [f"{took[kind]:.0f}", f"{ratio:.2f}"]
            layer = f"{case['rows']} x {case['columns']}"
            said = " | ".join([layer, str(case["tokens"]), part, *cells])
            lines.append(f"| {said} |")
    first = record["cases"][0]["bytes"]
    share = first["sparse"] / first["dense"]
    lines += ["", f"Parameters, codes and states of Adam: {share:.3f} of dense.", ""]
    lines += ["| layer | " + " | ".join(next(iter(record["passes"].values()))) + " |"]
    lines += ["|---|" + "---:|" * len(next(iter(record["passes"].values())))]
    for layer, took in record["passes"].items():
        lines.append(f"| {layer} | {' | '.join(f'{us:.0f}' for us in took.values())} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=500.0, help="stop after")
    options = parser.parse_args()
    begun = time.time()
    layers, tokens = list(LAYERS), list(TOKENS)
    needed = sorted(set(kernels(layers, tokens)), key=str)
    compile_all(needed)
    print(f"{len(needed)} kernels compiled in {time.time() - begun:.0f} s", flush=True)
    record: dict[str, Any] = {"about": versions(), "cases": [], "passes": {}}
    options.out.mkdir(parents=True, exist_ok=True)
    work = [partial(measured, *layer, n) for layer in layers for n in tokens]
    for each in work:
        if time.time() - begun > options.seconds:
            print(f"not reached: {each.args}", flush=True)
            continue
        record["cases"].append(each())
        torch.cuda.empty_cache()
        print(f"{record['cases'][-1]}  ({time.time() - begun:.0f} s)", flush=True)
    for rows, columns in layers:
        record["passes"][f"{rows} x {columns}"] = passes(rows, columns)
    (options.out / "training.json").write_text(json.dumps(record, indent=1) + "\n")
    text = table(record)
    (options.out / "training.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
