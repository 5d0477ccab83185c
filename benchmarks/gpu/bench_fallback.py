"""From how many rows on 4-bit layers are faster with wide weights.

The product of 4-bit weights, that of the 2:4 weights of 8 or 16 bits that are made of
them, and the kernel that makes these, each alone.  Weights rotate through more memory
than the L2 holds, all calls are replayed from CUDA graphs in turn, and times are
medians of one run.

    python benchmarks/gpu/bench_fallback.py [--out FOLDER] [--layers 8192x8192]
    python benchmarks/gpu/bench_fallback.py --page FOLDER/fallback.json

The page says for each layer from which batch on wide weights that are kept are faster,
and those that are made in each call: ``narrow_limit`` in ``kernels/widening.py`` has
these numbers.  Writes fallback.json and fallback.md.
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
from bench_layers import FOUR_BITS, base_kernel, sets_for
from measuring import Call, Run, mean, medians_us, options_of, read_cases, sizes

from fragmenta.hopper.kernels.choosing import choose
from fragmenta.hopper.kernels.config import Kernel, Tile
from fragmenta.hopper.kernels.packing import packed_shape
from fragmenta.hopper.kernels.widening import FALLBACKS, narrow_limit
from fragmenta.torch import run

LAYERS = ((6144, 4096), (14336, 4096), (4096, 14336), (8192, 8192), (28672, 8192))
BATCHES = (48, 64, 80, 96, 112, 128, 144, 192, 256, 512, 1024, 1536, 2048, 4096)
WARM, BUSY = 1e-3, 4e-3  # seconds of each rival before it is timed, and timed
OPS = torch.ops.fragmenta


@dataclass
class Case:
    """One layer at one batch: microseconds."""

    type: str
    m: int
    k: int
    n: int
    four_us: float = math.nan
    wide_us: float = math.nan
    making_us: float = math.nan
    rate: float = math.nan
    """Bytes that making the wide weight moves in a microsecond."""


def kernels(of: str, m: int, n: int, k: int) -> tuple[Kernel, Kernel]:
    """The kernels of 4-bit weights and of wide ones."""
    four = base_kernel(of)
    kind = {"out": "bf16", "tile": Tile(64, 64), "scaled": True, "transposed": True}
    return choose(four, m, n, k), choose(Kernel(four.b, **kind), m, n, k)


def measured(of: str, m: int, k: int, batches: list[int]) -> Iterator[Case]:
    """All batches of one layer."""
    integers = FOUR_BITS[of]
    name, b = integers.name, integers.b
    four = [packed_integers(b, m, k) for _ in range(sets_for(m * k * 25 // 64))]
    bits = {"e4m3": 5, "bf16": 9}[b]
    wide = [packed(b, m, k) for _ in range(sets_for(m * k * bits // 8))]
    powers = torch.full((m,), 0.125, device="cuda")
    made: list[Call] = [partial(OPS.widen, x, name, m, k, b, powers) for x in four]
    moved = four[0].numel() + math.prod(packed_shape(b, m, k))
    for n in batches:
        x = dense(b, n, k)
        narrow, broad = kernels(of, m, n, k)
        rivals = [
            [partial(run, narrow, a, x, m) for a in four],
            [partial(run, broad, a, x, m, {"scale_m": powers}) for a in wide],
            made,
        ]
        took = medians_us(rivals, WARM, BUSY, most=60)
        yield Case(of, m, k, n, *took, moved / took[2])


def crossing(cases: list[Case], made: bool) -> int:
    """The most rows for which 4-bit weights are not slower; 0 if they always are."""
    found = 0
    for case in sorted(cases, key=lambda each: each.n):
        if case.four_us <= case.wide_us + (case.making_us if made else 0.0):
            found = case.n
    return found


def page(cases: list[Case]) -> str:
    """The crossings, and all times."""
    lines = [
        "| type | layer | kept | made | limits | bytes/us of making |",
        "|---|---|---:|---:|---|---:|",
    ]
    for of in dict.fromkeys(each.type for each in cases):
        limits = ", ".join(str(narrow_limit(FOUR_BITS[of], x)) for x in FALLBACKS[::-1])
        for m, k in dict.fromkeys((x.m, x.k) for x in cases if x.type == of):
            some = [x for x in cases if (x.type, x.m, x.k) == (of, m, k)]
            rate = mean([each.rate for each in some])
            ends = f"{crossing(some, False)} | {crossing(some, True)} | {limits}"
            lines.append(f"| {of} | {m} x {k} | {ends} | {rate:,.0f} |")
    lines += ["", "| type | layer | batch | 4-bit | wide | making |"]
    lines.append("|---|---|---:|---:|---:|---:|")
    for x in cases:
        times = " | ".join(f"{y:.1f}" for y in (x.four_us, x.wide_us, x.making_us))
        lines.append(f"| {x.type} | {x.m} x {x.k} | {x.n} | {times} |")
    return "\n".join(lines)


def main() -> int:
    """Measure, print and write."""
    parser = options_of(__doc__, BATCHES, "8192x8192", 120.0, tiles=False)
    parser.add_argument("--types", default=",".join(FOUR_BITS))
    parser.add_argument("--page", type=Path, help="print the page of a file")
    options = parser.parse_args()
    if options.page:
        print(page([Case(**each) for each in read_cases(options.page)]))
        return 0
    layers, types = sizes(options.layers, LAYERS), options.types.split(",")
    going = Run("fallback", options)
    going.compile(
        kernel
        for of in types
        for m, k in layers
        for n in options.batches
        for kernel in kernels(of, m, n, k)
    )
    for m, k in layers:
        for of in types:
            if going.reaches(f"{of} {m}x{k}"):
                going.keep(measured(of, m, k, options.batches), page)
    going.finish(page(going.cases))
    return 0


if __name__ == "__main__":
    sys.exit(main())
