"""Times of sparse layers against dense ones.

The linear layers of real models at batches from 1 to 8192: the time of a dense
layer divided by that of a sparse one.  Weights rotate through more memory than the L2
holds, dense and sparse calls are replayed from CUDA graphs in turn, and times are
medians of one run.  Dense: ``torch.nn.functional.linear`` (bf16, tf32),
``torch._scaled_mm`` (fp8) and ``torch._int_mm`` (int8); these need batches of 16 and
32, so smaller ones are rounded up for them.

    python benchmarks/gpu/bench_layers.py [--out FOLDER] [--types bf16,e4m3]
    python benchmarks/gpu/bench_layers.py --tiles 20 --out FOLDER
    python benchmarks/gpu/bench_layers.py --judge FOLDER/layers.json

With ``--tiles N``, the N tiles of each case with the least expected time are measured.
``--judge`` says how much slower the chosen tile is than the fastest one that was
measured; it needs no GPU.  Writes layers.json and layers.md into the folder.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from bench_gemm import dense, packed
from measuring import Call, compile_all, medians_us, versions
from torch import Tensor

from fragmenta.kernels.config import Kernel, Tile, candidates, expected_time
from fragmenta.registers.dtype import dtype
from fragmenta.torch import run

#: Rows and columns of weights: models of 8 and 70 billion parameters, and others.
LAYERS = (
    (6144, 4096),
    (4096, 4096),
    (14336, 4096),
    (28672, 4096),
    (4096, 14336),
    (28672, 8192),
    (8192, 28672),
    (10240, 8192),
    (8192, 8192),
    (1024, 4096),
)
BATCHES = (
    1,
    2,
    5,
    8,
    16,
    17,
    32,
    48,
    64,
    65,
    96,
    100,
    128,
    160,
    192,
    200,
    256,
    320,
    384,
    512,
    700,
    1024,
    1536,
    2000,
    4096,
    8192,
)
TYPES = ("bf16", "e4m3", "s8", "tf32")
SETS_BYTES = 160 << 20  # the L2 holds 50 MB
MOST_SETS = 40
WARM, BUSY = 2e-3, 8e-3  # seconds of each rival before it is timed, and timed


@dataclass
class Case:
    """One layer at one batch."""

    type: str
    m: int
    k: int
    n: int
    dense_us: float = math.nan
    sparse_us: float = math.nan
    tile: str = ""
    tiles: dict[str, float] | None = None

    @property
    def ratio(self) -> float:
        """Times as fast as dense."""
        return self.dense_us / self.sparse_us


def sets_for(size: int) -> int:
    """Weights of so many bytes that do not fit in the L2 together."""
    return max(2, min(MOST_SETS, -(-SETS_BYTES // size)))


def dense_call(of: str, weight: Tensor, x: Tensor) -> Call:
    """The dense layer, as PyTorch has it."""
    if of == "e4m3":
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(
            x, weight.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True
        )
    if of == "s8":
        return lambda: torch._int_mm(x, weight.t())
    return lambda: torch.nn.functional.linear(x, weight)


def base_kernel(of: str) -> Kernel:
    """The kernel of a layer, before its tile is chosen."""
    out = {"bf16": "bf16", "e4m3": "bf16", "s8": "s32", "tf32": "f32"}[of]
    return Kernel(of, out=out, tile=Tile(64, 64), transposed=True)


def tried(of: str, m: int, n: int, k: int, most: int) -> list[Kernel]:
    """The chosen kernel first, then those that look best after it."""
    listed = candidates(base_kernel(of))
    return sorted(listed, key=lambda each: expected_time(each, m, n, k))[:most]


def measured(of: str, m: int, k: int, batches: list[int], most: int) -> Iterator[Case]:
    """All batches of one layer; the weights are made once."""
    bits = dtype(of).bits
    if of == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
    whole = [dense(of, m, k) for _ in range(sets_for(m * k * bits // 8))]
    stored = [packed(of, m, k) for _ in range(sets_for(m * k * bits // 15))]
    for n in batches:
        case = Case(of, m, k, n)
        least = {"e4m3": 16, "s8": 32}.get(of, 1)
        x = dense(of, max(least, n), k)
        kernels = tried(of, m, n, k, most)
        whole_calls = [dense_call(of, weight, x) for weight in whole]
        sparse_calls = [
            [partial(run, kernel, a, x[:n], m) for a in stored] for kernel in kernels
        ]
        rivals = [whole_calls, *sparse_calls]
        case.dense_us, *took = medians_us(rivals, WARM, BUSY, most=60)
        found = dict(zip((str(each.tile) for each in kernels), took, strict=True))
        case.tile, case.sparse_us = next(iter(found.items()))
        case.tiles = found if most > 1 else None
        yield case


def mean(ratios: list[float]) -> float:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def summary(cases: list[Case]) -> str:
    """Means by type and batch, and every case slower than dense."""
    lines = [
        "| type | n | cases | geometric mean | least | slower than dense |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for of in dict.fromkeys(case.type for case in cases):
        for low, high in ((1, 64), (65, 512), (513, max(BATCHES))):
            some = [c.ratio for c in cases if c.type == of and low <= c.n <= high]
            if some:
                slower = sum(ratio < 1 for ratio in some)
                lines.append(
                    f"| {of} | {low} to {high} | {len(some)} | {mean(some):.2f} | "
                    f"{min(some):.2f} | {slower} |"
                )
    return "\n".join(lines)


def table(cases: list[Case]) -> str:
    """All cases: one row for each layer, one column for each batch."""
    lines: list[str] = []
    for of in dict.fromkeys(case.type for case in cases):
        batches = list(dict.fromkeys(c.n for c in cases if c.type == of))
        lines += [
            f"### {of}",
            "",
            "| layer | " + " | ".join(map(str, batches)) + " |",
            "|---|" + "---:|" * len(batches),
        ]
        for m, k in dict.fromkeys((c.m, c.k) for c in cases if c.type == of):
            row = {c.n: c for c in cases if (c.type, c.m, c.k) == (of, m, k)}
            cells = [f"{row[n].ratio:.2f}" if n in row else "" for n in batches]
            lines.append(f"| {m} x {k} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)


def judge(path: Path) -> None:
    """Print what the choice of tiles costs, by the measurements of a file."""
    costs: list[tuple[float, str]] = []
    for case in json.loads(path.read_text())["cases"]:
        of, m, n, k = (case[name] for name in ("type", "m", "n", "k"))
        known = {
            str(x.tile): expected_time(x, m, n, k) for x in tried(of, m, n, k, 999)
        }
        took = {tile: us for tile, us in (case["tiles"] or {}).items() if tile in known}
        if len(took) > 1:
            chosen = min(took, key=known.__getitem__)
            best = min(took, key=took.__getitem__)
            told = f"{chosen} {took[chosen]:.1f} us, {best} {took[best]:.1f} us"
            costs.append((took[chosen] / took[best], f"{of} {m}x{n}x{k}: {told}"))
    costs.sort(reverse=True)
    print("\n".join(f"{cost:.2f}  {told}" for cost, told in costs[:20]))
    print(f"{len(costs)} cases: {mean([cost for cost, _ in costs]):.3f} on average")


def main() -> int:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--layers", default="", help="such as 4096x4096,1024x4096")
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)))
    parser.add_argument("--tiles", type=int, default=1, help="tiles to measure")
    parser.add_argument("--seconds", type=float, default=500.0, help="stop after")
    parser.add_argument("--judge", type=Path, help="the measurements of many tiles")
    options = parser.parse_args()
    if options.judge:
        judge(options.judge)
        return 0
    begun = time.time()
    layers = [
        tuple(map(int, each.split("x"))) for each in options.layers.split(",") if each
    ] or LAYERS
    batches = [int(n) for n in options.batches.split(",")]
    types = options.types.split(",")
    needed = {
        kernel
        for of in types
        for m, k in layers
        for n in batches
        for kernel in tried(of, m, n, k, options.tiles)
    }
    compile_all(sorted(needed, key=str))
    print(f"{len(needed)} kernels compiled in {time.time() - begun:.0f} s", flush=True)
    cases: list[Case] = []
    options.out.mkdir(parents=True, exist_ok=True)
    for of in types:
        for m, k in layers:
            if time.time() - begun > options.seconds:
                print(f"not reached: {of} {m}x{k}", flush=True)
                continue
            cases += measured(of, m, k, batches, options.tiles)
            torch.cuda.empty_cache()
            rows = [c for c in cases if (c.type, c.m, c.k) == (of, m, k)]
            said = " ".join(f"{c.n}:{c.ratio:.2f}" for c in rows)
            print(f"{of} {m}x{k}  {said}  ({time.time() - begun:.0f} s)", flush=True)
            record = {"about": versions(), "cases": [vars(c) for c in cases]}
            (options.out / "layers.json").write_text(json.dumps(record, indent=0))
    text = f"{summary(cases)}\n\n{table(cases)}"
    (options.out / "layers.md").write_text(text + "\n")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
