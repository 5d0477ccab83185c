"""How many times as fast several cores are as one, in one run.

A grid of 128 blocks, and exact products.  Each number of cores has a process of its own
that may use no others.  The goal is 10 times one core on 16 cores.  The time is that
which passes: other programs that use the cores make it worthless.
``PYTHONPATH=. python benchmarks/bench_cores.py --output FILE`` keeps it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench_products import BATCH, LARGE, problem
from timing import least

from fragmenta import ptx
from fragmenta.base.jit.compiler import processor
from fragmenta.kernels import Kernel, Tile
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import Gemm

SHOWN = [1, 2, 4, 8, 16]
BLOCKS = 128
ROUNDS = 3

SCALAR = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry scalar(.param .u64 x, .param .u32 times)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [x];
    ld.param.u32 %r1, [times];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r2, 256, %r3;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.u32 %r5, [%rd3];
again:
    mad.lo.u32 %r5, %r5, 1664525, 1013904223;
    xor.b32 %r5, %r5, %r1;
    sub.u32 %r1, %r1, 1;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra again;
    st.global.u32 [%rd3], %r5;
    ret;
}
"""
"""Each thread computes random numbers, and stores the last one."""


def scalar(watch: bool) -> Callable[[], object]:
    """A launch of a loop of ordinary instructions."""
    kernel = ptx.parse(SCALAR).kernels["scalar"]
    x = np.arange(256 * BLOCKS, dtype=np.uint32)
    return lambda: kernel.launch(BLOCKS, 256, [x, 20000], watch=watch)


def product(watch: bool, sparse: bool = False) -> Callable[[], object]:
    """A launch of the project's own kernel, one tile for each block."""
    tile = Tile(256, 128) if sparse else Tile(128, 256)
    made = Kernel("bf16", out="f32", tile=tile, sparse=sparse)
    m, n = (4096, 1024) if sparse else (2048, 2048)
    gemm = Gemm(made, m, n, 1024, blocks=BLOCKS)
    kernel = ptx.parse(gemm.text).kernels[launching.ENTRY]
    memory = gemm.memory()
    shape, given = gemm.geometry, launching.given(gemm, memory)
    return lambda: kernel.launch(
        shape.grid,
        shape.block,
        given,
        shared=shape.shared,
        target="sm_90a",
        watch=watch,
    )


LAUNCHES = {
    "scalar": scalar,
    "wgmma": product,
    "sparse wgmma": lambda watch: product(watch, sparse=True),
}
PRODUCTS = ["f16", "bf16", "tf32", "e4m3", "mxf8", "f16 sparse"]
TILES = 4096


def exact(case: str) -> tuple[Callable[[], object], int]:
    """Exact products: a call, and how many it has."""
    name, size = case.split(": ")
    return problem(name, size, TILES)


CASES = [
    *[f"{each}, watched" if watch else each for each in LAUNCHES for watch in (0, 1)],
    *[f"{each}: {size}" for each in PRODUCTS for size in (LARGE, BATCH)],
]


def work(case: str) -> tuple[Callable[[], object], int]:
    """The call of a case, and its products; 0 for a launch."""
    if ":" in case:
        return exact(case)
    name, _, watched = case.partition(", ")
    return LAUNCHES[name](bool(watched)), 0


def measure(case: str, cores: int) -> dict[str, float]:
    """The least time of a call in a process that may use so many cores."""
    words = [sys.executable, __file__, "--child", case, "--cores", str(cores)]
    places = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
    done = subprocess.run(
        words, check=True, stdout=subprocess.PIPE, text=True, env=environment
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def measured(case: str) -> dict[str, Any]:
    """A case on every number of cores: times one core, and products a second."""
    there = len(os.sched_getaffinity(0))
    found = {each: measure(case, each) for each in SHOWN if each <= there}
    one = found[1]["seconds"]
    return {
        "case": case,
        "times": {cores: one / each["seconds"] for cores, each in found.items()},
        "rates": {n: each["products"] / each["seconds"] for n, each in found.items()},
    }


@pytest.mark.parametrize("case", CASES)
def test_cores(case: str) -> None:
    shown = ", ".join(f"{n}: {each:.2f}" for n, each in measured(case)["times"].items())
    print(f"\n{case}, times as fast as on one core: {shown}")


def main() -> None:
    """Measure all cases into a file; or one of them, here."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", choices=CASES)
    parser.add_argument("--cores", type=int, default=1)
    given = parser.parse_args()
    if given.child:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: given.cores])
        call, products = work(given.child)
        print(json.dumps({"seconds": least(call, ROUNDS), "products": products}))
        return
    about = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {processor()[0]}",
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "blocks": BLOCKS,
        "tiles": TILES,
    }
    rows = []
    for case in CASES:
        rows.append(measured(case))
        text = json.dumps({"about": about, "rows": rows}, indent=1)
        if given.output:  # what is there already is kept
            given.output.write_text(text + "\n", "utf-8")
    print(text)


if __name__ == "__main__":
    main()
