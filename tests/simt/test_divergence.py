"""The lanes of a warp diverge, wait for one another, and converge."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from tests.simt.kernels import launched

LIMIT = 5_000_000
STORE = "st.global.u32 [%mine], %r1;"


def test_nested_branches() -> None:
    found = launched(f"""
        mov.u32 %r1, 0;
        setp.lt.u32 %p1, %lane, 20;
        and.b32 %r2, %lane, 1;
        setp.eq.u32 %p2, %r2, 0;
        @!%p1 bra FAR;
        @!%p2 bra ODD;
        add.u32 %r1, %r1, 1;
        bra INNER;
    ODD: add.u32 %r1, %r1, 2;
    INNER: add.u32 %r1, %r1, 10;
        bra END;
    FAR: @!%p2 bra LAST;
        add.u32 %r1, %r1, 100;
    LAST: add.u32 %r1, %r1, 1000;
    END: add.u32 %r1, %r1, 10000;
        {STORE}""")
    lane = np.arange(32)
    near = np.where(lane % 2, 12, 11)
    far = np.where(lane % 2, 1000, 1100)
    assert (found == 10000 + np.where(lane < 20, near, far)).all()


def test_loops_with_different_trip_counts_and_a_break() -> None:
    found = launched(f"""
        mov.u32 %r1, 0;
        mov.u32 %r2, 0;
    LOOP: setp.ge.u32 %p1, %r2, %lane;
        @%p1 bra END;
        add.u32 %r2, %r2, 1;
        setp.eq.u32 %p2, %r2, 20;
        @%p2 bra OUT;
        add.u32 %r1, %r1, %r2;
        bra LOOP;
    OUT: add.u32 %r1, %r1, 5000;
    END: {STORE}""")
    want = [sum(range(min(n, 19) + 1)) + (5000 if n >= 20 else 0) for n in range(32)]
    assert found.tolist() == want


def test_a_loop_within_a_loop() -> None:
    found = launched(f"""
        mov.u32 %r1, 0;
        mov.u32 %r2, %lane;
    OUTER: setp.eq.u32 %p1, %r2, 0;
        @%p1 bra END;
        and.b32 %r3, %r2, 3;
    INNER: setp.eq.u32 %p2, %r3, 0;
        @%p2 bra NEXT;
        add.u32 %r1, %r1, 1;
        sub.u32 %r3, %r3, 1;
        bra INNER;
    NEXT: sub.u32 %r2, %r2, 1;
        bra OUTER;
    END: {STORE}""")
    assert found.tolist() == [sum(k & 3 for k in range(n + 1)) for n in range(32)]


def test_a_switch() -> None:
    found = launched(f"""
        and.b32 %r2, %lane, 3;
    TABLE: .branchtargets A, B, C, A;
        brx.idx %r2, TABLE;
    A: mov.u32 %r1, 10;
        bra END;
    B: mov.u32 %r1, 11;
        bra END;
    C: mov.u32 %r1, 12;
    END: {STORE}""")
    assert found.tolist() == [10, 11, 12, 10] * 8


def test_a_guarded_switch_leaves_the_others_alone() -> None:
    found = launched(f"""
        and.b32 %r2, %lane, 1;
        mov.u32 %r1, 7;
        setp.lt.u32 %p1, %lane, 4;
    TABLE: .branchtargets A, B;
        @%p1 brx.idx %r2, TABLE;
        bra END;
    A: mov.u32 %r1, 10;
        bra END;
    B: mov.u32 %r1, 11;
    END: {STORE}""")
    assert found.tolist() == [10, 11, 10, 11] + [7] * 28


def test_a_spin_lock_between_the_lanes_of_a_warp() -> None:
    found = launched(
        """
        .shared .align 4 .b32 lock;
        .shared .align 4 .b32 sum;
        mov.u32 %r1, lock;
        mov.u32 %r2, sum;
        st.volatile.shared.u32 [%r1], 0;
        st.volatile.shared.u32 [%r2], 0;
        bar.warp.sync 0xffffffff;
    AGAIN: atom.shared.cas.b32 %r3, [%r1], 0, 1;
        setp.ne.u32 %p1, %r3, 0;
        @%p1 bra AGAIN;
        ld.volatile.shared.u32 %r4, [%r2];
        add.u32 %r4, %r4, %lane;
        st.volatile.shared.u32 [%r2], %r4;
        membar.cta;
        st.volatile.shared.u32 [%r1], 0;
        bar.warp.sync 0xffffffff;
        ld.volatile.shared.u32 %r4, [%r2];
        st.global.u32 [%mine], %r4;""",
        limits=ptx.Limits(instructions=LIMIT),
    )
    assert (found == sum(range(32))).all()


def test_a_lane_hands_values_to_the_next() -> None:
    found = launched(
        f"""
        .shared .align 4 .b32 slots[33];
        mov.u32 %r5, slots;
        mad.lo.u32 %r5, %lane, 4, %r5;
        st.volatile.shared.u32 [%r5], 0;
        bar.warp.sync 0xffffffff;
        setp.eq.u32 %p1, %lane, 31;
        mov.u32 %r1, 100;
        @%p1 bra GIVE;
    WAIT: ld.volatile.shared.u32 %r1, [%r5+4];
        setp.eq.u32 %p2, %r1, 0;
        @%p2 bra WAIT;
    GIVE: add.u32 %r1, %r1, 1;
        st.volatile.shared.u32 [%r5], %r1;
        {STORE}""",
        limits=ptx.Limits(instructions=LIMIT),
    )
    assert found.tolist() == [132 - lane for lane in range(32)]


CLEAR_FLAGS = """
    .shared .align 4 .b32 flags[2];
    mov.u32 %r5, flags;
    st.volatile.shared.u32 [%r5], 0;
    st.volatile.shared.u32 [%r5+4], 0;
    bar.warp.sync 0xffffffff;
"""
TWO_LOOPS = f"""
    {CLEAR_FLAGS}
    mov.u32 %r1, 0;
    setp.eq.u32 %p1, %lane, 0;
    setp.eq.u32 %p2, %lane, 1;
    @%p1 bra A;
    @%p2 bra B;
    bra C;
A: ld.volatile.shared.u32 %r1, [%r5];
    setp.eq.u32 %p3, %r1, 0;
    @%p3 bra A;
    bra D;
B: ld.volatile.shared.u32 %r1, [%r5+4];
    setp.eq.u32 %p3, %r1, 0;
    @%p3 bra B;
    bra D;
C: setp.ne.u32 %p3, %lane, 2;
    @%p3 bra D;
    st.volatile.shared.u32 [%r5], 5;
    st.volatile.shared.u32 [%r5+4], 6;
D: {STORE}"""


def test_lanes_that_wait_in_two_loops_do_not_starve_the_one_they_wait_for() -> None:
    assert (
        launched(TWO_LOOPS, limits=ptx.Limits(instructions=LIMIT)).tolist()
        == [5, 6] + [0] * 30
    )


def test_lanes_that_wait_in_one_function_called_from_two_places() -> None:
    wait = """.func wait(.reg .b32 at) {
        .reg .b32 %r2;
        .reg .pred %p;
    L: ld.volatile.shared.u32 %r2, [at];
        setp.eq.u32 %p, %r2, 0;
        @%p bra L;
        ret;
    }"""
    body = f"""
        {CLEAR_FLAGS}
        mov.u32 %r1, 0;
        setp.eq.u32 %p1, %lane, 0;
        @%p1 bra A;
        setp.eq.u32 %p2, %lane, 1;
        @%p2 bra B;
        bra D;
    A: call wait, (%r5);
        mov.u32 %r1, 7;
        bra D;
    B: add.u32 %r3, %r5, 4;
        st.volatile.shared.u32 [%r3], 1;
        call wait, (%r3);
        st.volatile.shared.u32 [%r5], 1;
    D: {STORE}"""
    found = launched(body, before=wait, limits=ptx.Limits(instructions=LIMIT))
    assert found.tolist() == [7] + [0] * 31


def test_bar_warp_sync_with_partial_masks_in_both_branches() -> None:
    found = launched(f"""
        .shared .align 4 .b32 values[32];
        mov.u32 %r5, values;
        mad.lo.u32 %r6, %lane, 4, %r5;
        xor.b32 %r7, %lane, 1;
        mad.lo.u32 %r7, %r7, 4, %r5;
        setp.lt.u32 %p1, %lane, 12;
        @%p1 bra A;
        add.u32 %r2, %lane, 50;
        st.shared.u32 [%r6], %r2;
        bar.warp.sync 0xfffff000;
        ld.shared.u32 %r1, [%r7];
        bra D;
    A: st.shared.u32 [%r6], %lane;
        bar.warp.sync 0x00000fff;
        ld.shared.u32 %r1, [%r7];
    D: {STORE}""")
    other = np.arange(32) ^ 1
    assert (found == np.where(other < 12, other, other + 50)).all()


def test_bar_warp_sync_of_one_branch_meets_that_of_another() -> None:
    # Lanes of each branch read what the other branch wrote, three times.
    body = """
        .shared .align 4 .b32 values[32];
        mov.u32 %r5, values;
        mad.lo.u32 %r6, %lane, 4, %r5;
        xor.b32 %r7, %lane, 31;
        mad.lo.u32 %r7, %r7, 4, %r5;
        mov.u32 %r1, %lane;
        mov.u32 %r3, 0;
        setp.lt.u32 %p1, %lane, 16;
        @%p1 bra A;
    B: st.shared.u32 [%r6], %r1;
        bar.warp.sync 0xffffffff;
        ld.shared.u32 %r1, [%r7];
        bar.warp.sync 0xffffffff;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p2, %r3, 3;
        @%p2 bra B;
        bra D;
    A: st.shared.u32 [%r6], %r1;
        bar.warp.sync 0xffffffff;
        ld.shared.u32 %r1, [%r7];
        add.u32 %r1, %r1, 100;
        bar.warp.sync 0xffffffff;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p2, %r3, 3;
        @%p2 bra A;
    D: st.global.u32 [%mine], %r1;"""
    values = np.arange(32)
    for _ in range(3):
        values = values[::-1] + np.where(np.arange(32) < 16, 100, 0)
    assert (
        launched(body, limits=ptx.Limits(instructions=LIMIT)).tolist()
        == values.tolist()
    )


def test_exchanges_with_the_lanes_of_one_branch() -> None:
    found = launched(
        """
        setp.lt.u32 %p1, %lane, 12;
        @%p1 bra A;
        shfl.sync.bfly.b32 %r1, %lane, 1, 31, 0xfffff000;
        setp.gt.u32 %p2, %lane, 20;
        vote.sync.ballot.b32 %r2, %p2, 0xfffff000;
        shr.u32 %r4, %lane, 3;
        match.any.sync.b32 %r3, %r4, 0xfffff000;
        redux.sync.add.u32 %r5, %lane, 0xfffff000;
        bra D;
    A: shfl.sync.bfly.b32 %r1, %lane, 2, 31, 0x00000fff;
        setp.gt.u32 %p2, %lane, 4;
        vote.sync.ballot.b32 %r2, %p2, 0x00000fff;
        shr.u32 %r4, %lane, 2;
        match.any.sync.b32 %r3, %r4, 0x00000fff;
        redux.sync.add.u32 %r5, %lane, 0x00000fff;
    D: mad.wide.u32 %mine, %lane, 16, %out;
        st.global.v4.u32 [%mine], {%r1, %r2, %r3, %r5};""",
        words=128,
    ).reshape(32, 4)
    lane = np.arange(32)
    first = lane < 12
    assert (found[:, 0] == np.where(first, lane ^ 2, lane ^ 1)).all()
    assert set(found[first, 1]) == {0xFE0}
    assert set(found[~first, 1]) == {0xFFE00000}
    want = [
        sum(
            1 << k
            for k in range(32)
            if (k < 12) == (n < 12)
            and (k >> (2 if n < 12 else 3)) == (n >> (2 if n < 12 else 3))
        )
        for n in range(32)
    ]
    assert found[:, 2].tolist() == want
    assert found[:, 3].tolist() == [66] * 12 + [496 - 66] * 20


@pytest.mark.parametrize("threads", [1, 31, 33, 100, 1024])
def test_partial_warps_know_who_they_are(threads: int) -> None:
    found = launched(
        """
        activemask.b32 %r1;
        mad.wide.u32 %mine, %t, 16, %out;
        mov.u32 %r2, %nwarpid;
        st.global.v4.u32 [%mine], {%r1, %warp, %lane, %r2};""",
        threads,
        words=4 * threads,
    ).reshape(-1, 4)
    thread = np.arange(threads)
    left = np.minimum(32, threads - thread // 32 * 32)
    assert (found[:, 0] == (1 << left.astype(object)) - 1).all()
    assert (found[:, 1] == thread // 32).all()
    assert (found[:, 2] == thread % 32).all()


def test_blocks_and_grids_of_three_dimensions() -> None:
    found = launched(
        """
        mov.u32 %r1, %tid.y;
        mov.u32 %r2, %tid.z;
        mov.u32 %r3, %ctaid.y;
        mov.u32 %r4, %ctaid.z;
        mov.u32 %r5, %ntid.y;
        mov.u32 %r6, %nctaid.x;
        mov.u32 %r7, %nctaid.y;
        mad.lo.u32 %r8, %r4, %r7, %r3;
        mad.lo.u32 %r8, %r8, %r6, %cta;
        mad.lo.u32 %r9, %r2, %r5, %r1;
        mad.lo.u32 %r9, %r9, %n, %t;
        mov.u32 %r10, %ntid.z;
        mul.lo.u32 %r10, %r10, %r5;
        mul.lo.u32 %r10, %r10, %n;
        mad.lo.u32 %r11, %r8, %r10, %r9;
        mad.wide.u32 %mine, %r11, 4, %out;
        mad.lo.u32 %r12, %r4, 10, %r3;
        mad.lo.u32 %r12, %r12, 10, %cta;
        mad.lo.u32 %r12, %r12, 10, %r2;
        mad.lo.u32 %r12, %r12, 10, %r1;
        mad.lo.u32 %r12, %r12, 10, %t;
        st.global.u32 [%mine], %r12;""",
        (5, 3, 2),
        (3, 2, 4),
    )
    want = [
        int(f"{z}{y}{x}{c}{b}{a}")
        for z in range(4)
        for y in range(2)
        for x in range(3)
        for c in range(2)
        for b in range(3)
        for a in range(5)
    ]
    assert found.tolist() == want


FUNCTIONS = """
.func (.reg .b32 r) twice(.reg .b32 a) { add.u32 r, a, a; ret; }
.func (.reg .b32 r) hundred(.reg .b32 a) { add.u32 r, a, 100; ret; }
.func (.param .b32 r) fibonacci(.param .b32 n)
{
    .reg .b32 %r<4>, %n, %sum;
    .reg .pred %p;
    ld.param.b32 %n, [n];
    mov.u32 %sum, %n;
    setp.lt.u32 %p, %n, 2;
    @%p bra END;
    { .param .b32 given; .param .b32 got;
      sub.u32 %r1, %n, 1;
      st.param.b32 [given], %r1;
      call (got), fibonacci, (given);
      ld.param.b32 %sum, [got]; }
    { .param .b32 given; .param .b32 got;
      sub.u32 %r1, %n, 2;
      st.param.b32 [given], %r1;
      call (got), fibonacci, (given);
      ld.param.b32 %r2, [got]; }
    add.u32 %sum, %sum, %r2;
END: st.param.b32 [r], %sum;
    ret;
}
.func (.reg .b32 r) divisor(.reg .b32 a, .reg .b32 b)
{
    .reg .pred %p;
    mov.u32 r, a;
    setp.eq.u32 %p, b, 0;
    @%p ret;
    rem.u32 a, a, b;
    call (r), divisor, (b, a);
    ret;
}
.func (.reg .b32 r) deep(.reg .b32 n)
{
    .local .align 4 .b32 mine[4];
    .reg .b32 %x;
    .reg .pred %p;
    mov.u32 r, 0;
    setp.eq.u32 %p, n, 0;
    @%p ret;
    st.local.u32 [mine+8], n;
    sub.u32 %x, n, 1;
    call (r), deep, (%x);
    ld.local.u32 %x, [mine+8];
    mad.lo.u32 r, r, 2, %x;
    ret;
}
"""


def test_calls_from_divergent_branches() -> None:
    found = launched(
        f"""
        setp.lt.u32 %p1, %lane, 10;
        @%p1 bra A;
        call (%r1), twice, (%lane);
        add.u32 %r1, %r1, 1;
        bra D;
    A: call (%r1), twice, (%lane);
        add.u32 %r1, %r1, 2;
    D: call (%r1), hundred, (%r1);
        {STORE}""",
        before=FUNCTIONS,
    )
    lane = np.arange(32)
    assert (found == 2 * lane + np.where(lane < 10, 102, 101)).all()


def test_a_guarded_call_and_a_branch_past_a_call() -> None:
    found = launched(
        f"""
        mov.u32 %r1, 1;
        setp.lt.u32 %p1, %lane, 5;
        @%p1 call (%r1), hundred, (%lane);
        setp.lt.u32 %p2, %lane, 20;
        @%p2 bra L;
        call (%r1), twice, (%lane);
    L: {STORE}""",
        before=FUNCTIONS,
        limits=ptx.Limits(instructions=LIMIT),
    )
    want = [n + 100 if n < 5 else 1 if n < 20 else 2 * n for n in range(32)]
    assert found.tolist() == want


def test_constants_as_arguments_of_every_width() -> None:
    function = """.func (.param .b64 r) join(.param .b64 a, .param .b16 b, .reg .b8 c)
    {
        .reg .b64 %x<4>;
        ld.param.b64 %x1, [a];
        ld.param.u16 %x2, [b];
        cvt.u64.u8 %x3, c;
        add.u64 %x1, %x1, %x2;
        add.u64 %x1, %x1, %x3;
        st.param.b64 [r], %x1;
        ret;
    }"""
    out = launched(
        """
        .param .b64 got;
        call (got), join, (0x1234567800000000, 0xabcd, 3);
        ld.param.b64 %rd1, [got];
        mad.wide.u32 %mine, %lane, 8, %out;
        st.global.u64 [%mine], %rd1;""",
        before=function,
        words=64,
    )
    assert set(out.view(np.uint64)) == {0x123456780000ABD0}


def test_recursion_of_different_depths() -> None:
    found = launched(
        f"""
        .param .b32 given;
        .param .b32 got;
        and.b32 %r2, %lane, 7;
        st.param.b32 [given], %r2;
        call (got), fibonacci, (given);
        ld.param.b32 %r1, [got];
        {STORE}""",
        before=FUNCTIONS,
    )
    assert found.tolist() == [0, 1, 1, 2, 3, 5, 8, 13] * 4


def test_a_function_that_calls_itself_with_its_parameters_exchanged() -> None:
    found = launched(
        f"""
        add.u32 %r2, %lane, 1;
        call (%r1), divisor, (%r2, 24);
        {STORE}""",
        before=FUNCTIONS,
    )
    assert found.tolist() == np.gcd(np.arange(1, 33), 24).tolist()


def test_recursion_keeps_the_local_memory_of_each_call() -> None:
    found = launched(f"call (%r1), deep, (%lane); {STORE}", before=FUNCTIONS)
    want = [0]
    for n in range(1, 32):
        want.append((want[-1] * 2 + n) & 0xFFFFFFFF)
    assert found.tolist() == want


def test_indirect_calls_with_a_target_for_each_lane() -> None:
    found = launched(
        f"""
        .reg .b64 %function;
        mov.u64 %function, twice;
        and.b32 %r2, %lane, 1;
        setp.eq.u32 %p1, %r2, 1;
        @%p1 mov.u64 %function, hundred;
        setp.lt.u32 %p2, %lane, 30;
        mov.u32 %r1, 9;
    P: .callprototype (.reg .b32 r) _ (.reg .b32 a);
        @%p2 call (%r1), %function, (%lane), P;
        {STORE}""",
        before=FUNCTIONS,
    )
    lane = np.arange(32)
    want = np.where(lane % 2, lane + 100, 2 * lane)
    assert (found == np.where(lane < 30, want, 9)).all()


def test_lanes_that_end_within_a_recursion_leave_nothing_behind() -> None:
    function = """.func (.reg .b32 r) down(.reg .b32 n)
    {
        .reg .pred %p;
        .reg .b64 %unused<200>;
        setp.eq.u32 %p, n, 0;
        @%p exit;
        sub.u32 n, n, 1;
        call (r), down, (n);
        ret;
    }"""
    body = "call (%r1), down, (10); st.global.u32 [%mine], 1;"
    # Far more blocks than fit into the memory for saved registers.
    assert not launched(body, 1, 100, before=function).any()


def test_guarded_instructions_of_the_whole_warp_are_passed_by() -> None:
    found = launched(
        """
        mov.u32 %r1, 0x3c003c00;
        mov.u32 %r2, 3;
        mov.f32 %f1, 0f3f800000;
        setp.eq.u32 %p1, %n, 0;
        @%p1 mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32
            {%f1, %f1, %f1, %f1}, {%r1, %r1}, {%r1}, {%f1, %f1, %f1, %f1};
        @%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r2}, [%r2];
        @%p1 movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;
        mad.wide.u32 %mine, %lane, 16, %out;
        mov.b32 %r3, %f1;
        st.global.v4.u32 [%mine], {%r1, %r2, %r3, 0};""",
        words=128,
    ).reshape(32, 4)
    assert (found == [0x3C003C00, 3, 0x3F800000, 0]).all()
