"""A Gluon kernel for a pair of blocks: both hold a half of A, of B and of the result."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tma,
)
from triton.experimental.gluon.language.nvidia.hopper import cluster

from fragmenta.inspect.evidence.arguments import Spec, integers, output
from tests.ptx.corpus.triton_hopper import Launched, described, i32


@gluon.jit
def pair_matmul(
    a_map,
    b_map,
    c_map,
    k,
    M: gl.constexpr,
    N: gl.constexpr,
    K: gl.constexpr,
    SUMS: gl.constexpr,
):
    left = gl.allocate_shared_memory(gl.float16, [M, K], a_map.layout)
    right = gl.allocate_shared_memory(gl.float16, [K, N], b_map.layout)
    sums = allocate_tensor_memory(gl.float32, [M, N], SUMS)
    full = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=tcgen05_mma_barrier_count([left, right], False, True))
    cluster.barrier()
    phase = 0
    for i in range(0, k, K):
        mbarrier.expect(full, a_map.nbytes_per_cta + b_map.nbytes_per_cta)
        tma.async_load(a_map, [0, i], full, left)
        tma.async_load(b_map, [i, 0], full, right)
        mbarrier.wait(full, phase, deps=[left, right])
        tcgen05_mma(left, right, sums, use_acc=(i > 0), mbarriers=[done])
        mbarrier.wait(done, phase, deps=[left, right])
        phase ^= 1
    mbarrier.invalidate(full)
    mbarrier.invalidate(done)
    out = gl.allocate_shared_memory(gl.float32, [M, N], c_map.layout)
    out.store(sums.load())
    fence_async_shared()
    tma.async_store(c_map, [0, 0], out)
    tma.store_wait(0)


def shared(spec: Spec, across: list[int], *block: int) -> Spec:
    """A descriptor of an array whose blocks are divided between the pair."""
    return {**described(spec, *block), "pair": across}


def _pair(m: int, n: int, k: int, deep: int) -> Launched:
    sums = TensorMemoryLayout(
        (m // 2, n), col_stride=1, cga_layout=[[1, 0]], two_ctas=True
    )
    return Launched(
        pair_matmul,
        (1, 1, 1),
        [
            shared(integers("f16", m, k, low=-8, high=9), [1, 0], m, deep),
            shared(integers("f16", k, n, low=-8, high=9), [0, 1], deep, n),
            shared(output("f32", m, n), [1, 0], m, n),
            i32(k),
        ],
        {"M": m, "N": n, "K": deep, "SUMS": sums},
        {"num_ctas": 2},
        "",
    )


LAUNCHES: list[Launched] = [_pair(256, 128, 192, 64)]
