"""A GEMM in the CuTe DSL: a warp copies through a ring, a warpgroup multiplies."""

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

# What the compiler is told has to be there before it is imported.
WRITTEN = tempfile.TemporaryDirectory()
os.environ.update(
    CUTE_DSL_ARCH="sm_90a", CUTE_DSL_KEEP="ptx", CUTE_DSL_DUMP_DIR=WRITTEN.name
)

import cutlass  # noqa: E402
from cutlass import cute, pipeline, tensor_utils  # noqa: E402
from cutlass.cute.nvgpu import cpasync, warpgroup  # noqa: E402
from cutlass.cute.runtime import make_fake_compact_tensor  # noqa: E402
from cutlass.memory import SmemAllocator  # noqa: E402
from cutlass.utils import hopper_helpers  # noqa: E402

M, N, K = 128, 64, 64
"""The tile of a block."""
STAGES = 3


def kernels(element: Any, cluster: int) -> Any:  # noqa: PLR0915 (one kernel)
    """The host function of the GEMM, for clusters of so many blocks along M."""

    @cute.kernel
    def gemm(
        copy_a: cute.CopyAtom,
        a: cute.Tensor,
        copy_b: cute.CopyAtom,
        b: cute.Tensor,
        c: cute.Tensor,
        mma: cute.TiledMma,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        row, column, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        memory = SmemAllocator()
        barriers = memory.allocate_array(cutlass.Int64, 2 * STAGES)
        shared_a = memory.allocate_tensor(element, layout_a.outer, 1024, layout_a.inner)
        shared_b = memory.allocate_tensor(element, layout_b.outer, 1024, layout_b.inner)
        one_a = cute.slice_(layout_a, (None, None, 0))
        one_b = cute.slice_(layout_b, (None, None, 0))
        blocks = cute.make_layout((1, cluster, 1, 1))
        ring = pipeline.PipelineTmaAsync.create(
            barrier_storage=barriers,
            num_stages=STAGES,
            producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
            consumer_group=pipeline.CooperativeGroup(
                pipeline.Agent.Thread, 4 * cluster
            ),
            tx_count=cute.size_in_bytes(element, one_a)
            + cute.size_in_bytes(element, one_b),
            cta_layout_vmnk=blocks,
        )
        tile_a = cute.local_tile(a, (M, K), (row, None))
        tile_b = cute.local_tile(b, (N, K), (column, None))
        tile_c = cute.local_tile(c, (M, N), (row, column))
        to_a, from_a = cpasync.tma_partition(
            copy_a,
            0,
            cute.make_layout(1),
            cute.group_modes(shared_a, 0, 2),
            cute.group_modes(tile_a, 0, 2),
        )
        to_b, from_b = cpasync.tma_partition(
            copy_b,
            rank,
            cute.make_layout(cluster),
            cute.group_modes(shared_b, 0, 2),
            cute.group_modes(tile_b, 0, 2),
        )
        steps = cute.size(tile_a, mode=[2])
        if warp == 4:
            state = pipeline.make_pipeline_state(
                pipeline.PipelineUserType.Producer, STAGES
            )
            for _ in cutlass.range(steps, unroll=1):
                ring.producer_acquire(state)
                full = ring.producer_get_barrier(state)
                cute.copy(
                    copy_a,
                    from_a[None, state.count],
                    to_a[None, state.index],
                    tma_bar_ptr=full,
                    mcast_mask=0,
                )
                cute.copy(
                    copy_b,
                    from_b[None, state.count],
                    to_b[None, state.index],
                    tma_bar_ptr=full,
                    mcast_mask=cutlass.Int16((1 << cluster) - 1),
                )
                ring.producer_commit(state)
                state.advance()
            ring.producer_tail(state)
        else:
            part = mma.get_slice(thread)
            left = mma.make_fragment_A(part.partition_A(shared_a))
            right = mma.make_fragment_B(part.partition_B(shared_b))
            out = part.partition_C(tile_c)
            total = cute.make_rmem_tensor(out.shape, cutlass.Float32)
            state = pipeline.make_pipeline_state(
                pipeline.PipelineUserType.Consumer, STAGES
            )
            mma.set(warpgroup.Field.ACCUMULATE, False)
            for _ in cutlass.range(steps, unroll=1):
                ring.consumer_wait(state)
                warpgroup.fence()
                for i in cutlass.range(cute.size(left, mode=[2]), unroll_full=True):
                    at = (None, None, i, state.index)
                    cute.gemm(mma, total, left[at], right[at], total)
                    mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                warpgroup.wait_group(0)
                ring.consumer_release(state)
                state.advance()
            cute.autovec_copy(total, out)

    @cute.jit
    def host(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor) -> None:
        major = tensor_utils.LayoutEnum.from_tensor(a)
        mma = hopper_helpers.make_trivial_tiled_mma(
            element,
            element,
            major.sm90_mma_major_mode(),
            major.sm90_mma_major_mode(),
            cutlass.Float32,
            (1, 1, 1),
            tiler_mn=(64, N),
        )
        tile = (M, N, K)
        layout_a = hopper_helpers.make_smem_layout_a(major, tile, element, STAGES)
        layout_b = hopper_helpers.make_smem_layout_b(major, tile, element, STAGES)
        copy_a, map_a = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(),
            a,
            cute.slice_(layout_a, (None, None, 0)),
            (M, K),
        )
        kind = cpasync.CopyBulkTensorTileG2SMulticastOp
        copy_b, map_b = cpasync.make_tiled_tma_atom(
            kind() if cluster > 1 else cpasync.CopyBulkTensorTileG2SOp(),
            b,
            cute.slice_(layout_b, (None, None, 0)),
            (N, K),
            cluster,
        )
        gemm(copy_a, map_a, copy_b, map_b, c, mma, layout_a, layout_b).launch(
            grid=(a.shape[0] // M, b.shape[0] // N, 1),
            block=(160, 1, 1),
            cluster=(cluster, 1, 1),
        )

    return host


@cache
def text(kind: str, cluster: int, m: int, n: int, k: int) -> str:
    """The PTX of the GEMM for matrices of these sizes."""
    element = getattr(cutlass, kind)
    a, b, c = (
        make_fake_compact_tensor(of, shape, stride_order=(1, 0), assumed_align=16)
        for of, shape in [
            (element, (m, k)),
            (element, (n, k)),
            (cutlass.Float32, (m, n)),
        ]
    )
    cute.compile(kernels(element, cluster), a, b, c)
    (found,) = Path(WRITTEN.name).glob("*.ptx")
    try:
        return found.read_text().rstrip("\0")
    finally:
        found.unlink()
