"""Times of sparse layers against dense ones.

The linear layers of real models at batches from 1 to 8192: the time of a dense
layer divided by that of a sparse one.  Weights rotate through more memory than the L2
holds, dense and sparse calls are replayed from CUDA graphs in turn, and times are
medians of one run.  Dense: ``torch.nn.functional.linear`` (bf16, tf32),
``torch._scaled_mm`` (fp8) and ``torch._int_mm`` (int8); these need batches of 16 and
32, so smaller ones are rounded up for them.  ``int4`` and ``int4-fp8`` have 4-bit
weights with scales for groups of 128 columns, beside dense bf16 and fp8; the other
rivals of them are in ``bench_int4.py``.  Above the limit of ``fallback="kept"``, their
product is that of the wide weights.

    python benchmarks/gpu/bench_layers.py [--out FOLDER] [--types bf16,e4m3]
    python benchmarks/gpu/bench_layers.py --tiles 20 --out FOLDER
    python benchmarks/gpu/bench_layers.py --judge FOLDER/layers.json

With ``--tiles N``, the N tiles of each case with the least expected time are measured.
``--judge`` says how much slower the chosen tile is than the fastest one that was
measured; it needs no GPU.  Writes layers.json and layers.md into the folder.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
    sizes,
)
from torch import Tensor

from fragmenta.hopper.kernels.choosing import candidates, expected_time
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.four_bits import Integers
from fragmenta.hopper.kernels.widening import narrow_limit
from fragmenta.reference.registers.dtype import dtype
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
TYPES = ("bf16", "e4m3", "s8", "tf32", "int4", "int4-fp8")
FOUR_BITS = {"int4": Integers("bf16"), "int4-fp8": Integers("e4m3")}
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


def sets_for(size: float) -> int:
    """Weights of so many bytes that do not fit in the L2 together."""
    return max(2, min(MOST_SETS, math.ceil(SETS_BYTES / size)))


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
    if four := FOUR_BITS.get(of):
        kind = {"group": four.group, "scales": four.scales, "transposed": True}
        return Kernel("s4", four.b, "bf16", Tile(64, 64), **kind)
    out = {"bf16": "bf16", "e4m3": "bf16", "s8": "s32", "tf32": "f32"}[of]
    return Kernel(of, out=out, tile=Tile(64, 64), transposed=True)


def wide(of: str, n: int) -> bool:
    """Whether a layer of 4-bit weights multiplies wide ones for so many rows."""
    four = FOUR_BITS.get(of)
    return four is not None and n > narrow_limit(four, "kept")


def likely(base: Kernel, m: int, n: int, k: int, most: int) -> list[Kernel]:
    """The chosen kernel first, then those that look best after it."""
    known = candidates(base)
    return sorted(known, key=lambda each: expected_time(each, m, n, k))[:most]


def tried(of: str, m: int, n: int, k: int, most: int) -> list[Kernel]:
    """The kernels of a type that look best: of wide weights, if they are faster."""
    base = base_kernel(of)
    if wide(of, n):
        base = Kernel(base.b, out="bf16", tile=base.tile, scaled=True, transposed=True)
    return likely(base, m, n, k, most)


class Weights:
    """The weights of one layer, dense and sparse, more than the L2 holds."""

    def __init__(self, of: str, m: int, k: int, batches: list[int]) -> None:
        four = FOUR_BITS.get(of)
        self.kind = four.b if four else of  # of x
        size = m * k * dtype(self.kind).bits // 8
        self.dense = [dense(self.kind, m, k) for _ in range(sets_for(size))]
        self.sparse: list[Tensor] = []
        self.four: list[Tensor] = []
        if not four or any(wide(of, n) for n in batches):
            count = sets_for(size * 8 // 15)
            self.sparse = [packed(self.kind, m, k) for _ in range(count)]
        if four:
            count = sets_for(m * k * 25 // 64)
            self.four = [packed_integers(four.b, m, k) for _ in range(count)]
        self.scales = torch.rand(m, device="cuda")

    def calls(self, kernel: Kernel, x: Tensor, m: int) -> list[Call]:
        """The calls of a sparse kernel."""
        parts = {"scale_m": self.scales} if kernel.scaled else {}
        weights = self.four if kernel.four_bits else self.sparse
        return [partial(run, kernel, a, x, m, parts) for a in weights]


def measured(of: str, m: int, k: int, batches: list[int], most: int) -> Iterator[Case]:
    """All batches of one layer; the weights are made once."""
    if of == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
    weights = Weights(of, m, k, batches)
    for n in batches:
        case = Case(of, m, k, n)
        least = {"e4m3": 16, "s8": 32}.get(weights.kind, 1)
        x = dense(weights.kind, max(least, n), k)
        kernels = tried(of, m, n, k, most)
        whole_calls = [dense_call(weights.kind, w, x) for w in weights.dense]
        sparse_calls = [weights.calls(kernel, x[:n], m) for kernel in kernels]
        rivals = [whole_calls, *sparse_calls]
        case.dense_us, *took = medians_us(rivals, WARM, BUSY, most=60)
        found = dict(zip((str(each.tile) for each in kernels), took, strict=True))
        case.tile, case.sparse_us = next(iter(found.items()))
        case.tiles = found if most > 1 else None
        yield case


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


def told(cases: list[Case]) -> str:
    """The cases of a layer in a line."""
    first = cases[0]
    ratios = " ".join(f"{case.n}:{case.ratio:.2f}" for case in cases)
    return f"{first.type} {first.m}x{first.k}  {ratios}"


def judge(path: Path) -> str:
    """What the choice of tiles costs, by the measurements of a file."""
    return costs_of_choices(
        (
            f"{case['type']} {case['m']}x{case['n']}x{case['k']}",
            [
                str(x.tile)
                for x in tried(case["type"], case["m"], case["n"], case["k"], 999)
            ],
            case["tiles"] or {},
        )
        for case in read_cases(path)
    )


def main() -> int:
    """Measure, print and write."""
    parser = options_of(__doc__, BATCHES, "4096x4096,1024x4096")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--judge", type=Path, help="the measurements of many tiles")
    options = parser.parse_args()
    if options.judge:
        print(judge(options.judge))
        return 0
    layers, types = sizes(options.layers, LAYERS), options.types.split(",")
    going = Run("layers", options)
    going.compile(
        kernel
        for of in types
        for m, k in layers
        for n in options.batches
        for kernel in tried(of, m, n, k, options.tiles)
    )
    for of in types:
        for m, k in layers:
            if going.reaches(f"{of} {m}x{k}"):
                found = measured(of, m, k, options.batches, options.tiles)
                going.keep(found, told)
    going.finish(f"{summary(going.cases)}\n\n{table(going.cases)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
