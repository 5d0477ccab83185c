"""Times of the kernels against those of an older checkout.

    python benchmarks/gpu/bench_change.py OLDER [--out FOLDER] [--only e4m3]

The kernels of both, each with the tile that its own checkout chooses, take turns in one
run: between two runs the clock of the card may differ by more than what is looked for.
The older checkout says in a process of its own which sources and launches it has; they
are compiled and launched here.  Writes change.md and change.json into the folder.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from bench_gemm import SIZES, bytes_of, operands, our_kernels, sets
from measuring import Call, in_processes, medians_us, versions
from torch import Tensor

from fragmenta.cuda.tools.compiler import to_cubin
from fragmenta.hopper.kernels.arguments import Box, Geometry
from fragmenta.hopper.kernels.config import Kernel
from fragmenta.hopper.kernels.launch import LaunchPlan, launch, plan_of_code, processors
from fragmenta.hopper.kernels.source import TARGET
from fragmenta.hopper.torch.matrix import RESULTS
from fragmenta.hopper.torch.running import rows_of

# What a checkout is asked: for each product the source of the chosen kernel, and its
# launch.  Only names that the kernels have had for long are used.
_DESCRIBE = """
import json, sys
import fragmenta
from fragmenta.hopper.kernels.arguments import geometry
from fragmenta.kernels import Kernel, Tile, choose
from fragmenta.hopper.kernels.source import source
print(fragmenta.__file__)
for line in sys.stdin:
    fields, size, blocks = json.loads(line)
    chosen = choose(Kernel(**fields, tile=Tile(64, 64)), *size)
    kernel, *launch = geometry(chosen, *size, blocks)
    print(json.dumps([str(chosen.tile), source(chosen), launch]))
"""
_FIELDS = ("a", "b", "out", "sparse", "promote", "scaled", "transposed", "xor")


@dataclass(frozen=True)
class Product:
    """One of the products that are compared."""

    label: str
    kernel: Kernel
    size: tuple[int, int, int]

    @property
    def fields(self) -> dict[str, Any]:
        """The kernel's, without its tile."""
        return {x: y for x, y in vars(self.kernel).items() if x in _FIELDS}


@dataclass(frozen=True)
class Described:
    """How a checkout computes a product."""

    tile: str
    source: str
    launch: list[Any]

    def geometry(self, kernel: Kernel) -> Geometry:
        """The launch, without its pointers."""
        grid, block, cluster, shared, sizes, *boxes = self.launch
        return Geometry(
            kernel,
            grid,
            block,
            tuple(cluster),
            shared,
            tuple(sizes),
            *(Box(*each) for each in boxes[:3]),  # newer ones count experts, too
        )

    def plan(self, kernel: Kernel) -> LaunchPlan:
        """The launch on this card."""
        return plan_of_code(self.geometry(kernel), to_cubin(self.source, TARGET))

    @property
    def starts_early(self) -> bool:
        """Whether the kernel waits for the one before it where it must."""
        return "griddepcontrol.wait" in self.source


@dataclass
class Row:
    """One comparison."""

    what: str
    size: tuple[int, int, int]
    before: str
    after: str
    before_us: float
    after_us: float

    @property
    def ratio(self) -> float:
        """How long it takes now: below 1, it got faster."""
        return self.after_us / self.before_us


def described(checkout: Path, products: list[Product], blocks: int) -> list[Described]:
    """What a checkout has for these products, on so many multiprocessors."""
    asked = [json.dumps([each.fields, each.size, blocks]) + "\n" for each in products]
    said = subprocess.run(
        [sys.executable, "-c", _DESCRIBE],
        input="".join(asked),
        env={**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    if said.returncode:
        raise SystemExit(f"{checkout} cannot say what it has:\n{said.stderr}")
    used, *lines = said.stdout.splitlines()
    if not Path(used).is_relative_to(checkout.resolve()):  # Python found another one
        raise SystemExit(f"{checkout} is no checkout: it has no src/fragmenta")
    return [Described(*json.loads(line)) for line in lines]


def calls(product: Product, found: Described, given: list[Any]) -> list[Call]:
    """One launch for each set of operands."""
    kernel, planned = product.kernel, found.plan(product.kernel)

    def call(a: Tensor, b: Tensor, parts: dict[str, Tensor], d: Tensor) -> None:
        launch(
            planned,
            a.data_ptr() if kernel.sparse else rows_of(a),
            rows_of(b),
            rows_of(d),
            stream=torch.cuda.current_stream().cuda_stream,
            epilogue={name: part.data_ptr() for name, part in parts.items()},
            early=kernel.sparse and found.starts_early,
        )

    return [partial(call, *each) for each in given]


def sets_of(product: Product) -> list[Any]:
    """A, B, what the epilogue reads, and D: so often that the L2 does not hold them."""
    kernel, (m, n, k) = product.kernel, product.size
    # Rows of D begin on multiples of 16 bytes.
    shape = (n, m) if kernel.transposed else (m, -(-n // 8) * 8)
    kind = RESULTS[kernel.out]
    return [
        (*operands(kernel, m, n, k), torch.empty(shape, dtype=kind, device="cuda"))
        for _ in range(sets(bytes_of(kernel, m, n, k)))
    ]


def compared(
    products: list[Product], before: list[Described], after: list[Described]
) -> Iterator[Row]:
    """Measure all products, older and newer kernel in turn."""
    warm = 0.5  # seconds, until the clock of the card is what it will be
    for product, *both in zip(products, before, after, strict=True):
        given = sets_of(product)
        rivals = [calls(product, each, given) for each in both]
        took = medians_us(rivals, warm, busy=0.04)
        warm = 5e-3
        tiles = (each.tile for each in both)
        yield Row(product.label, product.size, *tiles, *took)
        del rivals, given
        torch.cuda.empty_cache()


def table(rows: list[Row], about: dict[str, str]) -> str:
    """Markdown, the greatest ratio first."""
    lines = [
        ", ".join(f"{name} {value}" for name, value in about.items()),
        "",
        "| what | m x n x k | before | us | after | us | ratio |",
        "|---|---|---|---:|---|---:|---:|",
    ]
    lines += [
        f"| {r.what} | {' x '.join(map(str, r.size))} | {r.before} | "
        f"{r.before_us:.1f} | {r.after} | {r.after_us:.1f} | {r.ratio:.3f} |"
        for r in sorted(rows, key=lambda r: -r.ratio)
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", type=Path, help="the folder of another checkout")
    parser.add_argument("--out", type=Path, default=Path())
    parser.add_argument("--only", default="", help="types whose name has this")
    options = parser.parse_args()
    torch.zeros(1, device="cuda")
    products = [
        Product(f"{label.removeprefix('fragmenta ')} {kernel.a}", kernel, size)
        for size in SIZES
        for kernel, label in our_kernels()
        if options.only in kernel.a
    ]
    here = Path(__file__).resolve().parents[2]
    both = (options.older, here)
    before, after = (described(each, products, processors()) for each in both)
    sources = dict.fromkeys(each.source for each in (*before, *after))
    in_processes(partial(to_cubin, target=TARGET), sources)
    rows = []
    for row in compared(products, before, after):
        rows.append(row)
        took = f"{row.before_us:8.1f} -> {row.after_us:8.1f} us"
        tiles = f"{row.before} -> {row.after}"
        print(f"{row.ratio:.3f} {took}  {row.what} {row.size} {tiles}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    about = versions()
    (options.out / "change.md").write_text(table(rows, about))
    record = {"about": about, "rows": [asdict(row) for row in rows]}
    (options.out / "change.json").write_text(json.dumps(record, indent=0) + "\n")
    print(f"{sum(row.ratio > 1 for row in rows)} of {len(rows)} got slower")
    return 0


if __name__ == "__main__":
    sys.exit(main())
