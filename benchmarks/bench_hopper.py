"""The speed of a warp-specialised Hopper kernel on the CPU, watched and not.

The project's own GEMM in bf16, 1024 x 1024 x 1024, with bulk copies, mbarriers and
wgmma, against :func:`fragmenta.matmul` of the same product in the same run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from timing import least

import fragmenta as fm
from fragmenta import ptx
from fragmenta.kernels import Kernel, Tile, unpack
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import Gemm

SIZE = 1024
GOALS = {"not watched": 1.3, "watched": 3}


@pytest.mark.parametrize("watched", [False, True], ids=["not watched", "watched"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_a_product(benchmark: Any, sparse: bool, watched: bool) -> None:
    """At most 1.3 times as long as fm.matmul, watched 3 times."""
    tile = Tile(256, 128) if sparse else Tile(128, 256)  # of large products
    kernel = Kernel("bf16", out="f32", tile=tile, sparse=sparse)
    gemm = Gemm(kernel, SIZE, SIZE, SIZE, blocks=132)
    compiled = ptx.parse(gemm.text).kernels[launching.ENTRY]
    found = []

    def run() -> None:
        found[:] = [launching.launch(gemm, compiled, watch=watched)]

    B, op = np.ascontiguousarray(gemm.b.T), kernel.instruction
    A = gemm.a if isinstance(gemm.a, np.ndarray) else unpack(gemm.a)
    whole = least(lambda: fm.matmul(op, A, B), 3)
    benchmark.pedantic(run, rounds=3, warmup_rounds=1)
    assert found[0].right(gemm)
    seconds = benchmark.stats.stats.min
    kind = "watched" if watched else "not watched"
    print(
        f"\n{kernel}, {kind}: {seconds:.2f} s, fm.matmul {whole:.2f} s, the same bits: "
        f"{seconds / whole:.2f} times as long; the goal is at most {GOALS[kind]}"
    )
