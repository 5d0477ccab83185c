"""Threads wait at barriers for the right threads, and for no others."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import KernelFault
from tests.simt.kernels import launched

LIMIT = 5_000_000
SHARED = """
    .shared .align 4 .b32 values[1024];
    mov.u32 %r5, values;
    mad.lo.u32 %r6, %t, 4, %r5;
"""
REVERSED = """
    sub.u32 %r7, %n, %t;
    mad.lo.u32 %r7, %r7, 4, %r5;
    ld.shared.u32 %r1, [%r7-4];
    st.global.u32 [%mine], %r1;
"""


@pytest.mark.parametrize("threads", [1, 33, 100, 1024])
@pytest.mark.parametrize("barrier", ["bar.sync 0", "barrier.sync 3"])
def test_all_threads_of_a_block(threads: int, barrier: str) -> None:
    found = launched(
        f"{SHARED} st.shared.u32 [%r6], %t; {barrier}; {REVERSED}", threads
    )
    assert found.tolist() == list(range(threads))[::-1]


def test_a_barrier_is_used_many_times() -> None:
    # Values go round the block, one place in each of 50 steps.
    found = launched(
        f"""{SHARED}
        add.u32 %r7, %t, 1;
        rem.u32 %r7, %r7, %n;
        mad.lo.u32 %r7, %r7, 4, %r5;
        mov.u32 %r1, %t;
        mov.u32 %r2, 0;
    LOOP: st.shared.u32 [%r6], %r1;
        bar.sync 0;
        ld.shared.u32 %r1, [%r7];
        bar.sync 0;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p1, %r2, 50;
        @%p1 bra LOOP;
        st.global.u32 [%mine], %r1;""",
        160,
    )
    assert (found == (np.arange(160) + 50) % 160).all()


def test_warps_at_barriers_of_their_own() -> None:
    # Pairs of warps exchange values; each pair has a barrier.
    found = launched(
        f"""{SHARED}
        shr.u32 %r8, %warp, 1;
        add.u32 %r8, %r8, 1;
        st.shared.u32 [%r6], %t;
        bar.sync %r8, 64;
        xor.b32 %r7, %t, 32;
        mad.lo.u32 %r7, %r7, 4, %r5;
        ld.shared.u32 %r1, [%r7];
        st.global.u32 [%mine], %r1;""",
        256,
    )
    assert (found == np.arange(256) ^ 32).all()


def test_one_warp_arrives_and_another_waits() -> None:
    # Warp 0 makes values, warp 1 takes them; it says when a slot is free again.
    body = f"""{SHARED}
        mad.lo.u32 %r6, %lane, 4, %r5;
        mov.u32 %r1, 0;
        mov.u32 %r2, 0;
        setp.eq.u32 %p1, %warp, 0;
        @!%p1 bra TAKE;
    GIVE: bar.sync 1, 64;
        mad.lo.u32 %r3, %r2, 100, %lane;
        st.shared.u32 [%r6], %r3;
        bar.arrive 2, 64;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, 20;
        @%p2 bra GIVE;
        bra END;
    TAKE: bar.arrive 1, 64;
        bar.sync 2, 64;
        ld.shared.u32 %r3, [%r6];
        add.u32 %r1, %r1, %r3;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 %p2, %r2, 20;
        @%p2 bra TAKE;
    END: st.global.u32 [%mine], %r1;"""
    found = launched(body, 64, limits=ptx.Limits(instructions=LIMIT))
    assert not found[:32].any()
    assert (found[32:] == 19000 + 20 * np.arange(32)).all()


@pytest.mark.parametrize("threads", [32, 50, 96])
def test_votes_of_a_block(threads: int) -> None:
    found = launched(
        """
        setp.ge.u32 %p1, %t, 7;
        setp.lt.u32 %p2, %t, 2000;
        bar.red.popc.u32 %r1, 0, %p1;
        bar.red.popc.u32 %r2, 1, !%p1;
        bar.red.and.pred %p3, 0, %p2;
        bar.red.or.pred %p4, 0, !%p2;
        bar.red.and.pred %p5, 0, %p1;
        bar.red.or.pred %p6, 0, %p1;
        selp.u32 %r3, 1, 0, %p3;
        selp.u32 %r4, 2, 0, %p4;
        selp.u32 %r5, 4, 0, %p5;
        selp.u32 %r6, 8, 0, %p6;
        or.b32 %r3, %r3, %r4;
        or.b32 %r5, %r5, %r6;
        or.b32 %r3, %r3, %r5;
        mad.wide.u32 %mine, %t, 16, %out;
        st.global.v4.u32 [%mine], {%r1, %r2, %r3, 0};""",
        threads,
        words=4 * threads,
    ).reshape(-1, 4)
    assert (found == [threads - 7, 7, 9, 0]).all()


@pytest.mark.parametrize("threads", [20, 64, 100])
def test_lanes_of_a_warp_arrive_from_two_branches(threads: int) -> None:
    found = launched(
        f"""{SHARED}
        st.shared.u32 [%r6], %t;
        setp.lt.u32 %p1, %lane, 8;
        @%p1 bra A;
        barrier.sync 0;
        bra B;
    A: barrier.sync 0;
    B: {REVERSED}""",
        threads,
    )
    assert found.tolist() == list(range(threads))[::-1]


def test_lanes_of_a_warp_are_at_different_barriers() -> None:
    # The first half of both warps is at barrier 1, the second at barrier 2.
    found = launched(
        f"""{SHARED}
        st.shared.u32 [%r6], %t;
        shr.u32 %r8, %lane, 4;
        add.u32 %r8, %r8, 1;
        barrier.sync %r8, 32;
        xor.b32 %r7, %t, 32;
        mad.lo.u32 %r7, %r7, 4, %r5;
        ld.shared.u32 %r1, [%r7];
        st.global.u32 [%mine], %r1;""",
        64,
    )
    assert (found == np.arange(64) ^ 32).all()


def test_lanes_that_come_later_to_the_same_barrier() -> None:
    # Half of each warp first waits for the others, which wait at the barrier already.
    found = launched(
        f"""{SHARED}
        setp.lt.u32 %p1, %lane, 16;
        @%p1 bra LATE;
        st.volatile.shared.u32 [%r6], 1;
        bra MEET;
    LATE: ld.volatile.shared.u32 %r2, [%r6+64];
        setp.eq.u32 %p2, %r2, 0;
        @%p2 bra LATE;
        st.volatile.shared.u32 [%r6], 1;
    MEET: barrier.sync 0;
        xor.b32 %r7, %t, 63;
        mad.lo.u32 %r7, %r7, 4, %r5;
        ld.shared.u32 %r1, [%r7];
        st.global.u32 [%mine], %r1;""",
        64,
        limits=ptx.Limits(instructions=LIMIT),
    )
    assert (found == 1).all()


@pytest.mark.parametrize("barrier", ["bar.sync 0", "barrier.sync 0"])
def test_threads_that_have_ended_are_not_waited_for(barrier: str) -> None:
    found = launched(
        f"""{SHARED}
        setp.lt.u32 %p1, %lane, 5;
        setp.eq.u32 %p2, %warp, 2;
        @%p1 exit;
        @%p2 exit;
        st.shared.u32 [%r6], %t;
        {barrier};
        xor.b32 %r7, %t, 32;
        mad.lo.u32 %r7, %r7, 4, %r5;
        ld.shared.u32 %r1, [%r7];
        st.global.u32 [%mine], %r1;""",
        100,
    )
    thread = np.arange(100)
    gone = (thread % 32 < 5) | (thread // 32 == 2)
    partner = thread ^ 32
    known = (partner < 100) & (partner // 32 != 2)
    assert (found == np.where(~gone & known, partner, 0)).all()


def test_lanes_end_after_others_have_arrived() -> None:
    found = launched(
        """
        mov.u32 %r1, 1;
        setp.lt.u32 %p1, %lane, 16;
        @!%p1 bra WAIT;
        exit;
    WAIT: barrier.sync 0;
        st.global.u32 [%mine], %r1;""",
        48,
    )
    assert found.tolist() == [0] * 16 + [1] * 16 + [0] * 16


def test_a_guarded_barrier() -> None:
    found = launched(
        f"""{SHARED}
        setp.lt.u32 %p1, %warp, 2;
        st.shared.u32 [%r6], %t;
        @%p1 bar.sync 1, 64;
        xor.b32 %r7, %t, 32;
        mad.lo.u32 %r7, %r7, 4, %r5;
        @%p1 ld.shared.u32 %r1, [%r7];
        @%p1 st.global.u32 [%mine], %r1;""",
        96,
    )
    assert (found[:64] == np.arange(64) ^ 32).all()
    assert not found[64:].any()


def fault(body: str, threads: int) -> KernelFault:
    with pytest.raises(KernelFault) as caught:
        launched(body, threads, limits=ptx.Limits(instructions=LIMIT))
    return caught.value


def test_warps_at_different_barriers_wait_forever() -> None:
    error = fault(
        """
        setp.eq.u32 %p1, %warp, 0;
        @%p1 bra A;
        bar.sync 1;
        bra B;
    A: bar.sync 2;
    B: ret;""",
        64,
    )
    assert error.kind == "deadlock"
    assert "warp 0 lanes 0-31" in str(error)
    assert "bar.sync 1;" in str(error)
    assert "A: bar.sync 2;" in str(error)


def test_lanes_at_different_aligned_instructions_wait_forever() -> None:
    error = fault(
        """
        setp.lt.u32 %p1, %lane, 4;
        @%p1 bra A;
        bar.sync 0;
        bra B;
    A: bar.sync 0;
    B: ret;""",
        32,
    )
    assert error.kind == "deadlock"
    assert "warp 0 lanes 0-3" in str(error)
    assert "warp 0 lanes 4-31" in str(error)


def test_lanes_that_name_a_lane_that_waits_elsewhere_wait_forever() -> None:
    error = fault(
        """
        setp.lt.u32 %p1, %lane, 4;
        @%p1 bra A;
        shfl.sync.idx.b32 %r1, %lane, 0, 31, 0xffffffff;
        bra B;
    A: redux.sync.add.u32 %r1, %lane, 0xffffffff;
    B: ret;""",
        32,
    )
    assert error.kind == "deadlock"
    assert "redux.sync.add.u32" in str(error)


def test_a_count_that_is_never_reached() -> None:
    error = fault("bar.sync 1, 128;", 64)
    assert error.kind == "deadlock"
    assert "warp 0 lanes 0-31; warp 1 lanes 0-31" in str(error)


def test_barriers_have_numbers_up_to_15() -> None:
    assert launched("mov.u32 %r1, 15; bar.sync %r1; st.global.u32 [%mine], 1;").all()
    error = fault("add.u32 %r1, %n, -16; bar.sync %r1;", 32)
    assert error.kind == "barrier"
    assert "barrier 16" in str(error)
