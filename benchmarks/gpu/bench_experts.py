"""Times of mixtures of experts: one grouped sparse product beside its rivals.

Weights of real models, with tokens routed unevenly: a router whose experts have
different biases.  The rivals are a loop of single sparse products, whose sizes the host
has to know, and PyTorch's dense grouped products: ``torch._grouped_mm`` for bf16,
``torch._scaled_grouped_mm`` for fp8 with a scale for each token and each output.  Calls
are replayed from CUDA graphs in turn; each replay has several routings, so that small
weights are not in the L2.  Times are medians of one run.

Offsets that the previous kernel may have written are read when it has ended.  That is
so if the offsets are made just before.  If another kernel runs between, they are
settled, and the product starts earlier.  Both are measured.

    python benchmarks/gpu/bench_experts.py [--out FOLDER] [--types bf16,e4m3]
    python benchmarks/gpu/bench_experts.py --types s4-128,s4-128-e4m3
    python benchmarks/gpu/bench_experts.py --tiles 12 --out FOLDER
    python benchmarks/gpu/bench_experts.py --judge FOLDER/experts.json
    python benchmarks/gpu/bench_experts.py --page FOLDER/experts.json

Types named s4 are 4-bit integers with a scale for 128 columns, and x of bf16 or e4m3.
With ``--tiles N``, the N tiles of each case with the least expected time are measured,
without the rivals.
``--judge`` says how much slower the chosen tile is than the fastest one that was
measured; ``--page`` prints experts.md again.  Writes experts.json and experts.md.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from bench_gemm import dense, packed, packed_integers
from measuring import (
    Call,
    Run,
    costs_of_choices,
    mean,
    medians_us,
    options_of,
    read_cases,
)
from torch import Tensor

from fragmenta.hopper.kernels.choosing import candidates, choose
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.grouping import expected_time
from fragmenta.hopper.torch.grouping import grouped_on_cuda
from fragmenta.torch import run


class Layer(NamedTuple):
    """The weights of a mixture's experts, and the share of them on one card."""

    name: str
    experts: int
    m: int
    k: int
    top: int
    """Experts of each token."""
    rows: int
    """Rows of x for each token of a batch."""


#: One of eight cards has 32 of DeepSeek's 256 experts, and gets tokens of all eight.
LAYERS = (
    Layer("Mixtral gate", 8, 14336, 4096, 2, 2),
    Layer("Mixtral down", 8, 4096, 14336, 2, 2),
    Layer("Qwen3 gate, up", 128, 1536, 2048, 8, 8),
    Layer("Qwen3 down", 128, 2048, 768, 8, 8),
    Layer("DeepSeek gate, up", 32, 4096, 7168, 8, 8),
    Layer("DeepSeek down", 32, 7168, 2048, 8, 8),
)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 512, 1024, 2048, 4096, 8192)
TYPES = ("bf16", "e4m3")
UNEVEN = 0.6  # the standard deviation of the experts' biases
WARM, BUSY = 2e-3, 6e-3  # seconds of each rival before it is timed, and timed


@dataclass
class Case:
    """One layer at one batch."""

    type: str
    layer: str
    experts: int
    m: int
    k: int
    batch: int
    rows: int
    active: float = math.nan
    """Experts with tokens, on average."""
    grouped_us: float = math.nan
    settled_us: float = math.nan
    """With offsets that the previous kernel does not write."""
    loop_us: float = math.nan
    dense_us: float = math.nan
    tile: str = ""
    tiles: dict[str, float] = field(default_factory=dict)


def routed(layer: Layer, batch: int, seed: int) -> Tensor:
    """The tokens of each expert, on the host: top experts of random scores."""
    made = torch.Generator().manual_seed(seed)
    biases = UNEVEN * torch.randn(layer.experts, generator=made)
    tokens = -(-batch * layer.rows // layer.top)
    noise = torch.rand(tokens, layer.experts, generator=made).clamp_min(1e-9)
    scores = biases - torch.log(-torch.log(noise))
    chosen = scores.topk(layer.top, dim=1).indices.flatten()[: batch * layer.rows]
    return torch.bincount(chosen, minlength=layer.experts)


def routings(layer: Layer, batch: int) -> list[Tensor]:
    """So many that their weights do not fit in the L2, and typical."""
    few = 8 if batch * layer.rows <= 8 * layer.experts else 2
    return [routed(layer, batch, seed) for seed in range(few)]


def base_kernel(of: str, grouped: bool = True) -> Kernel:
    """The kernel before its tile is chosen; x of fp8 has scales."""
    integers = Integers.named(of)
    plain = integers.kernel() if integers else Kernel(of, tile=Tile(64, 64))
    return replace(
        plain,
        out="bf16",
        transposed=True,
        scaled=plain.b == "e4m3",
        grouped=grouped,
    )


def tried(of: str, layer: Layer, batch: int, most: int) -> list[Kernel]:
    """The chosen kernel first, then those that look best after it."""

    def took(kernel: Kernel) -> float:
        rows = batch * layer.rows
        return expected_time(kernel, layer.m, rows, layer.k, layer.experts)

    return sorted(candidates(base_kernel(of)), key=took)[:most]


def singles(of: str, layer: Layer, batch: int) -> set[Kernel]:
    """The kernels of a loop of single products."""
    counts = {int(n) for each in routings(layer, batch) for n in each if n}
    single = base_kernel(of, grouped=False)
    return {choose(single, layer.m, n, layer.k) for n in counts}


class Weights(NamedTuple):
    """What a layer multiplies with, on the card."""

    sparse: Tensor
    dense: Tensor | None
    scales: Tensor | None
    """A scale for each output, if x has 8 bits."""
    integers: bool = False
    """Whether the sparse weights have scales of their own."""

    @property
    def sparse_scales(self) -> Tensor | None:
        """The scales that the sparse product is given."""
        return None if self.integers else self.scales


def weights_of(of: str, layer: Layer, rivals: bool) -> Weights:
    """Random weights."""
    integers, b, sizes = Integers.named(of), base_kernel(of).b, (layer.m, layer.k)
    sparse = torch.stack(
        [
            packed_integers(b, *sizes) if integers else packed(of, *sizes)
            for _ in range(layer.experts)
        ]
    )
    whole = None
    if rivals:
        whole = torch.stack([dense(b, *sizes) for _ in range(layer.experts)])
    scales = torch.rand(layer.experts, layer.m, device="cuda") + 0.5
    return Weights(sparse, whole, scales if b == "e4m3" else None, bool(integers))


def grouped_call(
    kernel: Kernel,
    layer: Layer,
    w: Weights,
    x: Tensor,
    s: Tensor | None,
    ends: Tensor,
    settled: bool = False,
) -> Call:
    """One launch for all experts."""
    tile = kernel.tile
    sizes = tuple(map(int, astuple(tile)))
    options = (torch.bfloat16, None, w.sparse_scales, s, None, False, sizes)
    kind = Integers(kernel.b, kernel.group, kernel.scales).name
    of = kind if kernel.four_bits else kernel.a
    given = (x, w.sparse, ends, settled, of, layer.m)
    return partial(grouped_on_cuda, *given, *options)


def loop_call(
    of: str, layer: Layer, w: Weights, x: Tensor, s: Tensor | None, counts: Tensor
) -> Call:
    """A launch for each expert with tokens."""
    calls: list[Call] = []
    first, single = 0, base_kernel(of, grouped=False)
    for expert, n in enumerate(counts.tolist()):
        if n:
            rows = slice(first, first + n)
            parts = {} if s is None else {"scale_n": s[rows]}
            if w.sparse_scales is not None:
                parts["scale_m"] = w.sparse_scales[expert]
            kernel = choose(single, layer.m, n, layer.k)
            given = (kernel, w.sparse[expert], x[rows], layer.m, parts)
            calls.append(partial(run, *given))
        first += n
    return lambda: [call() for call in calls]


def dense_call(w: Weights, x: Tensor, s: Tensor | None, ends: Tensor) -> Call:
    """PyTorch's grouped product."""
    assert w.dense is not None
    across = w.dense.transpose(-2, -1)
    if s is None or w.scales is None:
        return lambda: torch._grouped_mm(x, across, offs=ends, out_dtype=torch.bfloat16)
    return lambda: torch._scaled_grouped_mm(
        x, across, s, w.scales, offs=ends, out_dtype=torch.bfloat16, use_fast_accum=True
    )


def measured(of: str, layer: Layer, batches: list[int], most: int) -> Iterator[Case]:
    """All batches of one layer; the weights are made once."""
    w = weights_of(of, layer, rivals=most == 1)
    for batch in batches:
        shares, rows = routings(layer, batch), batch * layer.rows
        case = Case(of, layer.name, layer.experts, layer.m, layer.k, batch, rows)
        case.active = statistics.fmean(int((each > 0).sum()) for each in shares)
        b = base_kernel(of).b
        x = dense(b, rows, layer.k)
        s = torch.rand(rows, device="cuda") + 0.5 if b == "e4m3" else None
        ends = [each.cumsum(0).int().cuda() for each in shares]
        kernels = tried(of, layer, batch, most)
        rivals = [
            [grouped_call(kernel, layer, w, x, s, each) for each in ends]
            for kernel in kernels
        ]
        if most == 1:
            rivals += [
                [grouped_call(kernel, layer, w, x, s, each, True) for each in ends]
                for kernel in kernels
            ]
            rivals.append([loop_call(of, layer, w, x, s, each) for each in shares])
            rivals.append([dense_call(w, x, s, each) for each in ends])
        took = medians_us(rivals, WARM, BUSY, most=40)
        if most == 1:
            case.settled_us, case.loop_us, case.dense_us = took[1:]
        names = [str(each.tile) for each in kernels]
        case.tile, case.grouped_us = names[0], took[0]
        case.tiles = dict(zip(names, took, strict=False)) if most != 1 else {}
        yield case


def table(cases: list[Case]) -> str:
    """All cases, one row each."""
    lines = [
        "| type | experts | batch | rows | active | tile | us | known | loop | dense |",
        "|---|---|---:|---:|---:|---|---:|---:|---:|---:|",
    ]
    for c in cases:
        loop, whole = c.loop_us / c.grouped_us, c.dense_us / c.grouped_us
        lines.append(
            f"| {c.type} | {c.layer} {c.experts} x {c.m} x {c.k} | {c.batch} "
            f"| {c.rows} | {c.active:.0f} | {c.tile} | {c.grouped_us:.1f} "
            f"| {c.settled_us:.1f} | {loop:.2f} | {whole:.2f} |"
        )
    return "\n".join(lines)


def summary(cases: list[Case]) -> str:
    """Means by type and batch: how many times as fast as each rival."""
    lines = [
        "| type | batch | cases | dense | least | loop | least | slower than a loop |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for of in dict.fromkeys(case.type for case in cases):
        for low, high in ((1, 128), (129, max(BATCHES))):
            some = [c for c in cases if c.type == of and low <= c.batch <= high]
            if some:
                loops = [c.loop_us / c.grouped_us for c in some]
                whole = [c.dense_us / c.grouped_us for c in some]
                slower = sum(ratio < 1 for ratio in loops)
                lines.append(
                    f"| {of} | {low} to {high} | {len(some)} | {mean(whole):.2f} | "
                    f"{min(whole):.2f} | {mean(loops):.2f} | {min(loops):.2f} | "
                    f"{slower} |"
                )
    return "\n".join(lines)


def page(cases: list[Case]) -> str:
    """The summary, and tables with a row for each layer and a column for each batch."""
    lines = [summary(cases), ""]
    titles = {
        "Than dense": lambda c: f"{c.dense_us / c.grouped_us:.2f}",
        "Than a loop": lambda c: f"{c.loop_us / c.grouped_us:.2f}",
        "Microseconds": lambda c: f"{c.grouped_us:.1f}",
        "Microseconds, settled": lambda c: f"{c.settled_us:.1f}",
    }
    for of in dict.fromkeys(case.type for case in cases):
        batches = list(dict.fromkeys(c.batch for c in cases if c.type == of))
        for title, cell in titles.items():
            lines += [f"### {title}, {of}", ""]
            unit = "us" if title.startswith("Microseconds") else "experts"
            lines.append(f"| {unit} | " + " | ".join(map(str, batches)) + " |")
            lines.append("|---|" + "---:|" * len(batches))
            for name in dict.fromkeys(c.layer for c in cases):
                row = [c for c in cases if (c.type, c.layer) == (of, name)]
                if row:
                    shape = f"{row[0].experts} x {row[0].m} x {row[0].k}"
                    cells = " | ".join(map(cell, row))
                    lines.append(f"| {name}, {shape} | {cells} |")
            lines.append("")
    return "\n".join(lines)


def judge(path: Path) -> str:
    """What the choice of tiles costs, by the measurements of a file."""
    layers = {layer.name: layer for layer in LAYERS}
    return costs_of_choices(
        (
            f"{case['type']} {case['layer']} at {case['batch']}",
            [
                str(each.tile)
                for each in tried(
                    case["type"], layers[case["layer"]], case["batch"], 999
                )
            ],
            case["tiles"],
        )
        for case in read_cases(path)
    )


def main() -> int:
    """Measure, print and write."""
    parser = options_of(__doc__, BATCHES, "Mixtral or down", 300.0)
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--judge", type=Path, help="the measurements of many tiles")
    parser.add_argument("--page", type=Path, help="print the page of a file")
    options = parser.parse_args()
    if options.judge:
        print(judge(options.judge))
        return 0
    if options.page:
        print(page([Case(**each) for each in read_cases(options.page)]), end="")
        return 0
    layers = [each for each in LAYERS if options.layers in each.name]
    cases_of = [(of, layer) for of in options.types.split(",") for layer in layers]
    going = Run("experts", options)
    going.compile(
        kernel
        for of, layer in cases_of
        for batch in options.batches
        for kernel in (
            *tried(of, layer, batch, options.tiles),
            *(singles(of, layer, batch) if options.tiles == 1 else ()),
        )
    )
    for of, layer in cases_of:
        if going.reaches(f"{of} {layer.name}"):
            going.keep(measured(of, layer, options.batches, options.tiles), table)
    if options.tiles == 1:
        going.finish(page(going.cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
