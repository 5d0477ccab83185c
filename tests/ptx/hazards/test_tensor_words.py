"""Reports about tensor memory name the real cause.

One small kernel multiplies zeros.  A number that it is given makes one mistake in it.
"""

from __future__ import annotations

import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import KernelError
from fragmenta.watch.races.report import phrases
from fragmenta.watch.races.shadow.layout import Apart

WHOLE_WARP, OTHER_COMMITS, NO_WAIT, LANE_ALLOCATES = 1, 2, 3, 4
OVERWRITES, IN_D, ONE_ALLOCATES, NO_CLUSTER_BARRIER = 5, 6, 7, 8

KERNEL = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry f(.param .u64 out, .param .u32 lane, .param .u32 bug)
{
.reg .pred %p, %q, %issues, %commits, %allocs, %is<9>;
.reg .b16 %h; .reg .b32 %t, %w, %r<9>, %d, %bug, %rank; .reg .b64 %l<9>;
.shared .align 1024 .b8 tile[4096];
.shared .align 8 .b64 bar;
.shared .align 4 .b32 slot;
ld.param.u32 %bug, [bug];
SETTINGS
ld.param.u32 %r6, [lane];
mov.u32 %rank, %cluster_ctarank;
mov.u32 %t, %tid.x;
shr.u32 %w, %t, 5;
setp.eq.u32 %p, %w, 0;
setp.eq.or.u32 %allocs, %t, 0, !%is4;
and.pred %allocs, %allocs, %p;
setp.eq.or.u32 %q, %rank, 0, !%is7;
and.pred %allocs, %allocs, %q;
setp.eq.u32 %issues, %t, %r6;
selp.u32 %r6, 1, %r6, %is2;
setp.eq.u32 %commits, %t, %r6;
@%is1 mov.pred %issues, %p;
@%is1 mov.pred %commits, %p;
setp.eq.u32 %q, %rank, 0;
and.pred %issues, %issues, %q;
and.pred %commits, %commits, %q;

mov.u32 %r3, tile;
shl.b32 %r2, %t, 5;
add.u32 %r1, %r3, %r2;
mov.u32 %r0, 0;
st.shared.v4.u32 [%r1], {%r0, %r0, %r0, %r0};
st.shared.v4.u32 [%r1+16], {%r0, %r0, %r0, %r0};
setp.eq.u32 %q, %t, 0;
@%q mbarrier.init.shared::cta.b64 [bar], 1;
fence.proxy.async.shared::cta;
@!%allocs bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;
ALLOCATED:
bar.sync 0;
@%is8 bra FILLED;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
FILLED:
ld.shared.u32 %d, [slot];
shr.u32 %r3, %r3, 4;
cvt.u64.u32 %l3, %r3;
mov.u64 %l2, 0x0000401000080000;
or.b64 %l2, %l2, %l3;
mov.u32 %r7, 0x08080010;
setp.ne.u32 %q, %r0, 0;
@!%issues bra ISSUED;
@%is6 bra IN_D;
tcgen05.mma.cta_group::1.kind::f16 [%d], %l2, %l2, %r7, %q;
bra ISSUED;
IN_D:
tcgen05.mma.cta_group::1.kind::f16 [%d], [%d+4], %l2, %r7, %q;
ISSUED:
@!%commits bra COMMITTED;
COMMIT
COMMITTED:
@%is5 st.shared.u32 [%r1], %r0;
@%is3 bra WAITED;
WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0;
@!%q bra WAIT;
WAITED:
shl.b32 %r4, %w, 21;
add.u32 %r4, %r4, %d;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r5}, [%r4];
tcgen05.wait::ld.sync.aligned;
ld.param.u64 %l0, [out];
mul.wide.u32 %l1, %t, 4;
add.u64 %l0, %l0, %l1;
st.global.u32 [%l0], %r5;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
@%p tcgen05.dealloc.cta_group::1.sync.aligned.b32 %d, 64;
ret;
}
"""
COMMITS = {
    1: "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];",
    2: "mov.u16 %h, 3;\ntcgen05.commit.cta_group::2.mbarrier::arrive::one"
    ".shared::cluster.multicast::cluster.b64 [bar], %h;",
}


@cache
def kernel(blocks: int) -> Any:
    settings = "\n".join(f"setp.eq.u32 %is{n}, %bug, {n};" for n in range(1, 9))
    text = KERNEL.replace("SETTINGS", settings)
    text = text.replace("cta_group::1", f"cta_group::{blocks}")
    return ptx.parse(text.replace("COMMIT\n", f"{COMMITS[blocks]}\n")).kernels["f"]


def said(bug: int = 0, lane: int = 0, blocks: int = 1, watch: bool = True) -> str:
    """What is said about the kernel; nothing if it is right."""
    out = np.ones(128, np.uint32)
    try:
        kernel(blocks).launch(
            blocks, 128, [out, lane, bug], cluster=blocks, watch=watch
        )
    except KernelError as fault:
        return re.sub(r"\s+", " ", str(fault))
    assert not out.any()
    return ""


@pytest.mark.parametrize("lane", [0, 1, 30, 31])
def test_any_lane_may_issue_and_commit(lane: int) -> None:
    assert said(lane=lane) == ""


def test_a_whole_warp_issues_the_product() -> None:
    text = said(WHOLE_WARP)
    assert text.startswith("deadlock: ")
    assert "Seen before that: tensor-memory-race" in text
    assert "32 threads of the warp issue it, each for itself" in text
    assert "32 threads commit their work, which makes 32 arrivals at the" in text
    assert "a phase of it expects 1 arrival" in text


def test_an_operand_in_the_cells_of_d() -> None:
    text = said(IN_D)
    assert text.startswith("cells of A and D of tcgen05.mma.cta_group::1.kind::f16 0x")
    assert "overlap: columns 4 to 11 of tensor memory" in text
    assert "[%d+4], %l2" in text  # the line


def test_another_thread_commits() -> None:
    text = said(OTHER_COMMITS)
    assert text.startswith("tensor-memory-race")
    assert (
        "tcgen05.mma of warp 0 lane 0 writes there and need not be done: the "
        "tcgen05.commit of warp 0 lane 1 does not cover it, since a tcgen05.commit "
        "covers what its own thread has issued" in text
    )
    assert "Let the thread that issued it execute the tcgen05.commit, too" in text
    assert "Wait for phase" not in text


def test_nobody_waits_for_the_product() -> None:
    text = said(NO_WAIT)
    assert "tcgen05.ld of warp" in text
    assert (
        "wait for the mbarrier of its tcgen05.commit before the tcgen05.ld; a barrier "
        "alone does not help" in text
    )


def test_what_a_product_reads_is_written() -> None:
    text = said(OVERWRITES)
    assert text.startswith("shared-race")
    assert "wait for that before the tcgen05.mma is issued." in text
    assert "the copy" not in text


def test_a_pair_is_right() -> None:
    assert said(blocks=2) == ""


def test_one_thread_allocates() -> None:
    text = said(LANE_ALLOCATES)
    assert text.startswith("deadlock: ")
    assert "has to be executed by all lanes of a warp together" in text
    unwatched = said(LANE_ALLOCATES, watch=False)
    assert "shared::cta.b32 is .aligned: all lanes of warp 0 have to" in unwatched


def test_one_block_of_a_pair_allocates() -> None:
    assert (
        "warp 0 of block (0, 0, 0) waits for tcgen05.alloc.cta_group::2: a warp of "
        "both CTAs of the pair has to execute it, and none of block (1, 0, 0) has"
        in said(ONE_ALLOCATES, blocks=2)
    )


def test_a_barrier_of_the_block_before_the_product_of_a_pair() -> None:
    text = said(NO_CLUSTER_BARRIER, blocks=2)
    assert text.startswith("shared-race")
    assert "of block 1 of the cluster; st.shared of warp" in text
    assert "arrive at a barrier of the cluster, and wait for that before the" in text
    here, there = (
        SimpleNamespace(kind="warp", rank=n, number=0, block=-1) for n in (0, 1)
    )
    there.kind = "tcgen05"  # it has read before
    rule = "overwrite-while-read"
    hint = phrases.repair(rule, "shared", True, here, there, int(Apart.GROUP))
    assert "let a barrier of the cluster come between the two" in hint
