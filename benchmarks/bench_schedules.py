"""The cost of an order of warps, as a multiple of round robin, in one run.

With an order of warps, a turn ends at every synchronising event.  The goal is at most
1.5 times the CPU time of the same launch in round robin.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.units.schedule import POLICIES
from fragmenta.kernels import Kernel, Tile
from tests.ptx.hopper import launching
from tests.ptx.hopper.gemms import Gemm

GOAL = 1.5
ROUNDS = 5
ORDERS = (*POLICIES, "random-7")

#: Each thread adds its neighbour's number in a loop with two barriers of the block.
BARRIERS = r"""
extern "C" __global__ void turns(int *x)
{
    __shared__ int tile[512];
    int i = threadIdx.x, sum = 0;
    x += blockIdx.x * 512;
    for (int step = 0; step < 200; ++step) {
        tile[i] = x[i] + sum;
        __syncthreads();
        sum += tile[(i + 33) % 512];
        __syncthreads();
    }
    x[i] = sum;
}"""

#: Copies with ``cp.async`` through a ring of four stages, in every warp.
COPIES = r"""
extern "C" __global__ void turns(int *x)
{
    __shared__ __align__(16) int ring[4][1024];
    int i = threadIdx.x, sum = 0;
    auto copy = [&](int step) {
        unsigned to = __cvta_generic_to_shared(&ring[step % 4][4 * i]);
        int *from = x + blockIdx.x * 1024 + 4 * i;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(from));
        asm volatile("cp.async.commit_group;");
    };
    for (int step = 0; step < 3; ++step)
        copy(step);
    for (int step = 0; step < 100; ++step) {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        __syncthreads();
        for (int k = 0; k < 16; ++k)
            sum += ring[step % 4][(i * 5 + k * 77) % 1024] * k;
        copy(step + 3);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    x[4096 + blockIdx.x * 256 + i] = sum;
}"""


def _gemm(watch: bool) -> Callable[[str], object]:
    """A warp-specialised kernel: bulk copies, mbarriers and wgmma."""
    gemm = Gemm(Kernel("bf16", out="f32", tile=Tile(128, 256)), 512, 512, 512, 132)
    kernel = ptx.parse(gemm.text).kernels[launching.ENTRY]
    return lambda name: launching.launch(gemm, kernel, watch=watch, schedule=name)


#: So little that it matters how blocks begin and end.
SMALL = r"""
extern "C" __global__ void turns(int *x)
{
    __shared__ int tile[64];
    int i = threadIdx.x;
    x += blockIdx.x * 64;
    tile[i] = x[i];
    __syncthreads();
    int other = tile[(i + 33) % 64];
    __syncthreads();
    x[i] = other + 1;
}"""


def _source(
    text: str, block: int, watch: bool, grid: int = 4
) -> Callable[[str], object]:
    kernel = ptx.RawKernel(text, "turns").kernel
    data = np.arange(max(8192, grid * 64), dtype=np.int32)

    def run(name: str) -> object:
        return kernel.launch(grid, block, [data.copy()], watch=watch, schedule=name)

    return run


CASES: dict[str, Callable[[bool], Callable[[str], object]]] = {
    "wgmma": _gemm,
    "barriers": lambda watch: _source(BARRIERS, 512, watch),
    "cp.async": lambda watch: _source(COPIES, 256, watch),
    "1,024 small blocks": lambda watch: _source(SMALL, 64, watch, 1024),
}


def seconds(run: Callable[[str], object], names: list[str]) -> dict[str, float]:
    """The least CPU time with each schedule, which are run alternately."""
    found = dict.fromkeys(names, float("inf"))
    for each in names:
        run(each)  # compiles it
    for _ in range(ROUNDS):
        for each in names:
            start = time.process_time()
            run(each)
            found[each] = min(found[each], time.process_time() - start)
    return found


@pytest.mark.parametrize("watch", [False, True], ids=["not watched", "watched"])
@pytest.mark.parametrize("case", CASES)
def test_an_order_of_warps(benchmark: Any, case: str, watch: bool) -> None:
    """At most 1.5 times round robin."""
    run = CASES[case](watch)
    names = ["lazy", *(f"lazy+{each}" for each in ORDERS)]
    found = seconds(run, names)
    benchmark.pedantic(lambda: run("lazy"), rounds=1)
    whole = found.pop("lazy")
    said = ", ".join(f"{name[5:]} {each / whole:.2f}" for name, each in found.items())
    benchmark.extra_info["worst"] = max(found.values()) / whole
    kind = "watched" if watch else "not watched"
    print(f"\n{case}, {kind}: {whole:.3f} s; {said}; the goal is at most {GOAL}")
