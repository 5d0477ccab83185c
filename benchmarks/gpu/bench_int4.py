"""Times of layers with 2:4 weights of 4-bit integers, beside other layers.

Layers of models of 8 and 70 billion parameters.  A weight has three bits and a scale
for each group of 128 columns; activations are bf16, or fp8 (e4m3).  The others:

    bf16          dense, ``torch.nn.functional.linear``
    fp8           dense, ``torch._scaled_mm``, one scale; batches of 16 at least
    int4          dense, ``torch._weight_int4pack_mm``, groups of 128, bf16 activations
    2:4 fp8       this project's kernel with 8-bit weights
    2:4 int4 x b  this project's kernel with 4-bit weights

Weights rotate through more memory than the L2 holds, all calls are replayed from CUDA
graphs in turn, and times are medians of one run.

    python benchmarks/gpu/bench_int4.py [--out FOLDER] [--tiles 8] [--batches 1,16]

With ``--tiles N``, the N tiles of each case with the least expected time are measured.
Writes int4.json and int4.md into the folder.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from bench_gemm import dense, packed, packed_integers
from bench_layers import dense_call, likely, sets_for
from measuring import (
    Call,
    Run,
    costs_of_choices,
    mean,
    medians_us,
    options_of,
    read_cases,
    sizes,
)
from torch import Tensor

from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.torch import run

LAYERS = (
    (6144, 4096),
    (4096, 4096),
    (14336, 4096),
    (4096, 14336),
    (10240, 8192),
    (8192, 8192),
    (28672, 8192),
    (8192, 28672),
)
BATCHES = (1, 4, 16, 32, 48, 64, 96, 128, 256, 1024)
GROUP = 128
OURS = {"2:4 int4 x bf16": "bf16", "2:4 int4 x fp8": "e4m3"}
MEMORY = 4.8e6
"""Bytes that the memory of an H200 moves in a microsecond, as NVIDIA says."""
WARM, BUSY = 1e-3, 4e-3  # seconds of each rival before it is timed, and timed


@dataclass
class Case:
    """One layer at one batch: microseconds by name."""

    m: int
    k: int
    n: int
    us: dict[str, float] = field(default_factory=dict)
    tile: dict[str, str] = field(default_factory=dict)
    tiles: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def limit_us(self) -> float:
        """The time of moving the bytes of the weight, x and y once."""
        m, k, n = self.m, self.k, self.n
        return (m * k * (3 + 16 / GROUP) / 8 + 2 * n * (m + k)) / MEMORY


def base(name: str) -> Kernel:
    """The kernel of a layer, before its tile is chosen."""
    if name == "2:4 fp8":
        return Kernel("e4m3", out="bf16", tile=Tile(64, 64), transposed=True)
    return Kernel("s4", OURS[name], "bf16", Tile(64, 64), transposed=True, group=GROUP)


def tried(name: str, m: int, n: int, k: int, most: int) -> list[Kernel]:
    """The chosen kernel first, then those that look best after it."""
    return likely(base(name), m, n, k, most)


def tinygemm(m: int, k: int) -> tuple[Tensor, Tensor]:
    """A dense weight of 4-bit integers as PyTorch packs it, and its scales."""
    raw = torch.randint(0, 256, (m, k // 2), dtype=torch.uint8, device="cuda")
    scales = torch.rand((k // GROUP, m, 2), device="cuda").mul_(0.01).bfloat16()
    return torch._convert_weight_to_int4pack(raw, 8), scales


class Layer:
    """The weights of one layer in every form."""

    def __init__(self, m: int, k: int) -> None:
        self.m, self.k = m, k
        whole = m * k
        self.bf16 = [dense("bf16", m, k) for _ in range(sets_for(2 * whole))]
        self.fp8 = [dense("e4m3", m, k) for _ in range(sets_for(whole))]
        self.sparse = [packed("e4m3", m, k) for _ in range(sets_for(whole * 0.62))]
        self.four = [tinygemm(m, k) for _ in range(sets_for(whole * 0.52))]
        self.ours = {
            b: [packed_integers(b, m, k) for _ in range(sets_for(whole * 0.39))]
            for b in OURS.values()
        }

    def rivals(self, n: int, slow: bool = True) -> dict[str, list[Call]]:
        """The calls of everything that has no tiles here; ``slow``: of int4, too."""
        x, y = dense("bf16", n, self.k), dense("e4m3", max(16, n), self.k)
        found: dict[str, list[Call]] = {
            "bf16": [dense_call("bf16", w, x) for w in self.bf16],
            "fp8": [dense_call("e4m3", w, y) for w in self.fp8],
        }
        if slow:
            found["int4"] = [
                partial(torch._weight_int4pack_mm, x, w, GROUP, s) for w, s in self.four
            ]
        return found

    def sparse_calls(self, name: str, kernel: Kernel, n: int) -> list[Call]:
        """The calls of one of this project's kernels."""
        b = kernel.b
        x = dense(b, n, self.k)
        weights = self.ours[b] if name in OURS else self.sparse
        return [partial(run, kernel, a, x, self.m) for a in weights]


def listed(name: str, m: int, n: int, k: int, most: int) -> list[Kernel]:
    """What is measured of one of this project's kernels."""
    return tried(name, m, n, k, most if name in OURS else 1)


def measured(layer: Layer, n: int, most: int) -> Case:
    """One batch."""
    case = Case(layer.m, layer.k, n)
    rivals: dict[tuple[str, str], list[Call]] = {
        (name, ""): calls for name, calls in layer.rivals(n, slow=most < 2).items()
    }
    for name in ("2:4 fp8", *OURS):
        kernels = listed(name, layer.m, n, layer.k, most)
        for kernel in kernels:
            calls = layer.sparse_calls(name, kernel, n)
            rivals[name, str(kernel.tile)] = calls
    took = medians_us(list(rivals.values()), WARM, BUSY, most=60)
    for (name, tile), us in zip(rivals, took, strict=True):
        if tile:
            case.tiles.setdefault(name, {})[tile] = us
        if name not in case.us:
            case.us[name], case.tile[name] = us, tile
    return case


def table(cases: list[Case]) -> str:
    """All cases."""
    names = list(cases[0].us)
    lines = [
        "| layer | batch | " + " | ".join(names) + " | limit |",
        "|---|---:|" + "---:|" * (len(names) + 1),
    ]
    for case in cases:
        cells = " | ".join(f"{case.us[name]:.1f}" for name in names)
        size = f"{case.m} x {case.k}"
        lines.append(f"| {size} | {case.n} | {cells} | {case.limit_us:.1f} |")
    return "\n".join(lines)


def summary(cases: list[Case]) -> str:
    """How many times as fast as the others, by batch."""
    others = [x for x in ("bf16", "fp8", "int4", "2:4 fp8") if x in cases[0].us]
    lines = [
        "| kernel | batch | " + " | ".join(others) + " | share of the limit |",
        "|---|---:|" + "---:|" * (len(others) + 1),
    ]
    for name in OURS:
        for n in dict.fromkeys(case.n for case in cases):
            some = [case for case in cases if case.n == n]
            cells = []
            for other in others:
                ratios = [case.us[other] / case.us[name] for case in some]
                cells.append(f"{mean(ratios):.2f} ({min(ratios):.2f})")
            share = mean([case.limit_us / case.us[name] for case in some])
            lines.append(f"| {name} | {n} | {' | '.join(cells)} | {share:.2f} |")
    return "\n".join(lines)


def ratios(cases: list[Case]) -> str:
    """How many times as fast as dense bf16: a row for each layer."""
    batches = list(dict.fromkeys(case.n for case in cases))
    lines: list[str] = []
    for name in OURS:
        lines += [
            f"### {name}",
            "",
            "| layer | " + " | ".join(map(str, batches)) + " |",
            "|---|" + "---:|" * len(batches),
        ]
        for m, k in dict.fromkeys((case.m, case.k) for case in cases):
            row = {case.n: case for case in cases if (case.m, case.k) == (m, k)}
            cells = [f"{row[n].us['bf16'] / row[n].us[name]:.2f}" for n in batches]
            lines.append(f"| {m} x {k} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def told(cases: list[Case]) -> str:
    """The cases of a layer, a line each."""
    lines = []
    for case in cases:
        said = " ".join(
            f"{name}={us:.1f}{'@' if case.tile[name] else ''}{case.tile[name]}"
            for name, us in case.us.items()
        )
        best = {x: min(y, key=y.__getitem__) for x, y in case.tiles.items()}
        more = " ".join(f"{case.tiles[x][best[x]]:.1f}@{best[x]}" for x in OURS)
        size = f"{case.m}x{case.k} n={case.n}"
        lines.append(f"{size} {said} best {more} limit {case.limit_us:.1f}")
    return "\n".join(lines)


def judge(path: Path) -> str:
    """What the choice of tiles costs, by the measurements of a file."""
    return costs_of_choices(
        (
            f"{name} {case['m']}x{case['n']}x{case['k']}",
            [str(x.tile) for x in tried(name, case["m"], case["n"], case["k"], 999)],
            took,
        )
        for case in read_cases(path)
        for name, took in case["tiles"].items()
    )


def main() -> int:
    """Measure, print and write."""
    parser = options_of(__doc__, BATCHES, "4096x4096,1024x4096")
    parser.add_argument("--judge", type=Path, help="the measurements of many tiles")
    options = parser.parse_args()
    if options.judge:
        print(judge(options.judge))
        return 0
    layers, batches = sizes(options.layers, LAYERS), options.batches
    most = options.tiles
    going = Run("int4", options)
    going.compile(
        kernel
        for m, k in layers
        for n in batches
        for name in ("2:4 fp8", *OURS)
        for kernel in listed(name, m, n, k, most)
    )
    for m, k in layers:
        if going.reaches(f"{m}x{k}"):
            layer = Layer(m, k)
            going.keep((measured(layer, n, most) for n in batches), told)
            del layer
    cases = going.cases
    text = f"{summary(cases)}\n\n{ratios(cases)}\n{table(cases)}"
    going.finish(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
