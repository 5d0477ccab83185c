"""CCCL: CUB's algorithms for blocks and warps, and libcu++, in kernels of ours.

Each row is a kernel of one block: what it does with four numbers of each thread, and
what it ought to write.  NVRTC compiles it with the headers of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from corpus import host
from corpus.registry import case
from corpus.trial import Trial
from fragmenta.cuda.tools.raw import RawKernel

THREADS, ITEMS = 128, 4
SIZE = THREADS * ITEMS
Numbers = NDArray[np.int32]

FRAME = """
#include <{header}>
extern "C" __global__ void __launch_bounds__({threads})
{name}(const int *x, int *out) {{
    const int t = threadIdx.x;
    int v[{items}];
    for (int i = 0; i < {items}; i++)
        v[i] = x[{items} * t + i];
    {body}
}}
"""
KEEP = "for (int i = 0; i < 4; i++) out[4 * t + i] = v[i];"
"""Each thread writes its four numbers."""


def listed(
    name: str,
    header: str,
    body: str,
    reference: Callable[[Numbers], Any],
    high: int = 1000,
    small: bool = False,
) -> None:
    """Register a kernel with its reference."""

    @case(name=name, small=small)
    def run(trial: Trial) -> None:
        code = FRAME.format(
            header=header, name=name, threads=THREADS, items=ITEMS, body=body
        )
        kernel = RawKernel(
            code, name, ("-std=c++17", f"-I{host.cccl()}"), target="sm_90a"
        )
        given = trial.whole(SIZE, low=-high if high == 1000 else 0, high=high).numpy()
        x = given.astype(np.int32)
        out = np.zeros(SIZE, np.int32)
        trial.call(lambda: kernel((1,), (THREADS,), (x, out)))
        want = np.ascontiguousarray(reference(x), np.int32)
        trial.judge(out[: want.size], want)


def block(kind: str, words: str, call: str, type_: str = "int") -> str:
    """A body that has one algorithm of a block."""
    return (
        f"using A = cub::{kind}<{type_}, 128{words}>; "
        f"__shared__ typename A::TempStorage room; A made(room); {call}"
    )


def warp(kind: str, words: str, call: str) -> str:
    """A body that has one algorithm of each of four warps."""
    return (
        f"using A = cub::{kind}<int{words}>; "
        f"__shared__ typename A::TempStorage room[4]; A made(room[t / 32]); {call}"
    )


for _way in ("RAKING", "RAKING_COMMUTATIVE_ONLY", "WARP_REDUCTIONS"):
    listed(
        f"block_reduce_{_way.lower()}",
        "cub/block/block_reduce.cuh",
        block(
            "BlockReduce",
            f", cub::BLOCK_REDUCE_{_way}",
            "int all = made.Sum(v); if (t == 0) out[0] = all;",
        ),
        lambda x: [x.sum()],
        small=_way == "RAKING",
    )
for _way in ("RAKING", "RAKING_MEMOIZE", "WARP_SCANS"):
    listed(
        f"block_scan_{_way.lower()}",
        "cub/block/block_scan.cuh",
        block(
            "BlockScan", f", cub::BLOCK_SCAN_{_way}", f"made.InclusiveSum(v, v); {KEEP}"
        ),
        np.cumsum,
    )
listed(
    "block_radix_sort",
    "cub/block/block_radix_sort.cuh",
    block("BlockRadixSort", ", 4", f"made.Sort(v); {KEEP}"),
    np.sort,
    small=True,
)
listed(
    "block_radix_sort_descending",
    "cub/block/block_radix_sort.cuh",
    block(
        "BlockRadixSort",
        ", 4",
        "made.SortDescendingBlockedToStriped(v); "
        "for (int i = 0; i < 4; i++) out[128 * i + t] = v[i];",
    ),
    lambda x: np.sort(x)[::-1],
)
listed(
    "block_merge_sort",
    "cub/block/block_merge_sort.cuh",
    block(
        "BlockMergeSort",
        ", 4",
        f"made.Sort(v, [](int a, int b) {{ return a < b; }}); {KEEP}",
    ),
    np.sort,
)
for _way in ("SORT", "ATOMIC"):
    listed(
        f"block_histogram_{_way.lower()}",
        "cub/block/block_histogram.cuh",
        "unsigned char b[4]; for (int i = 0; i < 4; i++) b[i] = v[i]; "
        "__shared__ int bins[32]; "
        + block(
            "BlockHistogram",
            f", 4, 32, cub::BLOCK_HISTO_{_way}",
            "made.Histogram(b, bins); __syncthreads(); if (t < 32) out[t] = bins[t];",
            "unsigned char",
        ),
        lambda x: np.bincount(x, minlength=32),
        high=32,
    )
listed(
    "block_exchange_striped",
    "cub/block/block_exchange.cuh",
    block("BlockExchange", ", 4", f"made.BlockedToStriped(v, v); {KEEP}"),
    lambda x: x.reshape(ITEMS, THREADS).T.reshape(-1),
)
listed(
    "block_exchange_warp_striped",
    "cub/block/block_exchange.cuh",
    block("BlockExchange", ", 4", f"made.BlockedToWarpStriped(v, v); {KEEP}"),
    lambda x: x.reshape(4, ITEMS, 32).transpose(0, 2, 1).reshape(-1),
)
listed(
    "block_load_transpose",
    "cub/block/block_load.cuh",
    block(
        "BlockLoad",
        ", 4, cub::BLOCK_LOAD_TRANSPOSE",
        f"made.Load(x, v, 400, -1); {KEEP}",
    ),
    lambda x: np.where(np.arange(SIZE) < 400, x, -1),
)
listed(
    "block_load_warp_transpose",
    "cub/block/block_load.cuh",
    block(
        "BlockLoad", ", 4, cub::BLOCK_LOAD_WARP_TRANSPOSE", f"made.Load(x, v); {KEEP}"
    ),
    lambda x: x,
)
listed(
    "block_store_transpose",
    "cub/block/block_store.cuh",
    block("BlockStore", ", 4, cub::BLOCK_STORE_TRANSPOSE", "made.Store(out, v);"),
    lambda x: x,
)
listed(
    "block_adjacent_difference",
    "cub/block/block_adjacent_difference.cuh",
    block(
        "BlockAdjacentDifference",
        "",
        f"made.SubtractLeft(v, v, [](int a, int b) {{ return a - b; }}); {KEEP}",
    ),
    lambda x: np.diff(x, prepend=0),
)
listed(
    "block_discontinuity",
    "cub/block/block_discontinuity.cuh",
    block(
        "BlockDiscontinuity",
        "",
        "int flag[4]; made.FlagHeads(flag, v, [](int a, int b) { return a != b; }); "
        "for (int i = 0; i < 4; i++) out[4 * t + i] = flag[i];",
    ),
    lambda x: np.concatenate([[1], x[1:] != x[:-1]]),
    high=2,
)
listed(
    "block_shuffle",
    "cub/block/block_shuffle.cuh",
    block(
        "BlockShuffle",
        "",
        "int w[4]; made.Up(v, w); if (t == 0) w[0] = 0; "
        "for (int i = 0; i < 4; i++) out[4 * t + i] = w[i];",
    ),
    lambda x: np.concatenate([[0], x[:-1]]),
)
listed(
    "warp_reduce",
    "cub/warp/warp_reduce.cuh",
    warp(
        "WarpReduce",
        "",
        "int all = made.Reduce(v[0], [](int a, int b) "
        "{ return a > b ? a : b; }); if (t % 32 == 0) out[t / 32] = all;",
    ),
    lambda x: x[::4].reshape(4, 32).max(1),
    small=True,
)
listed(
    "warp_scan",
    "cub/warp/warp_scan.cuh",
    warp("WarpScan", "", "int sum; made.ExclusiveSum(v[0], sum); out[t] = sum;"),
    lambda x: (np.cumsum(x[::4].reshape(4, 32), 1) - x[::4].reshape(4, 32)).reshape(-1),
)
listed(
    "warp_merge_sort",
    "cub/warp/warp_merge_sort.cuh",
    warp(
        "WarpMergeSort",
        ", 4, 32",
        f"made.Sort(v, [](int a, int b) {{ return a < b; }}); {KEEP}",
    ),
    lambda x: np.sort(x.reshape(4, SIZE // 4), 1).reshape(-1),
)
listed(
    "atomic_ref",
    "cuda/atomic",
    "cuda::atomic_ref<int, cuda::thread_scope_device> all(out[0]); "
    "for (int i = 0; i < 4; i++) all.fetch_add(v[i], cuda::memory_order_relaxed);",
    lambda x: [2 * x.sum()],  # of both calls
)
listed(
    "barrier_wait",
    "cuda/barrier",
    "__shared__ cuda::barrier<cuda::thread_scope_block> all; __shared__ int room[512]; "
    "if (t == 0) init(&all, 128); __syncthreads(); "
    "for (int i = 0; i < 4; i++) room[4 * t + i] = v[i]; all.arrive_and_wait(); "
    "for (int i = 0; i < 4; i++) out[4 * t + i] = room[511 - 4 * t - i];",
    lambda x: x[::-1],
)
listed(
    "memcpy_async_barrier",
    "cuda/barrier",
    "__shared__ cuda::barrier<cuda::thread_scope_block> all; "
    "__shared__ alignas(16) int room[512]; if (t == 0) init(&all, 128); "
    "__syncthreads(); "
    "cuda::memcpy_async(room + 4 * t, x + 4 * t, cuda::aligned_size_t<16>(16), all); "
    "all.arrive_and_wait(); "
    "for (int i = 0; i < 4; i++) out[4 * t + i] = room[511 - 4 * t - i];",
    lambda x: x[::-1],
)
listed(
    "latch",
    "cuda/latch",
    "__shared__ cuda::std::latch *none; (void)none; "
    "__shared__ alignas(8) char place[sizeof(cuda::latch<cuda::thread_scope_block>)]; "
    "__shared__ int room[128]; auto *all = "
    "reinterpret_cast<cuda::latch<cuda::thread_scope_block> *>(place); "
    "if (t == 0) new (place) cuda::latch<cuda::thread_scope_block>(128); "
    "__syncthreads(); room[t] = v[0]; all->arrive_and_wait(); out[t] = room[127 - t];",
    lambda x: x[::4][::-1],
)
