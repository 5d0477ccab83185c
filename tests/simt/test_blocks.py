"""Blocks run as on a GPU, whatever the number of cores."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fragmenta import ptx
from tests.simt.kernels import kernel, launched, module, run

LIMIT = 50_000_000
COUNTER = ".global .align 4 .b32 lock;\n.global .align 4 .b32 total;"


@pytest.fixture(params=[1, 3], ids=["one core", "three cores"])
def cores(request: pytest.FixtureRequest) -> Iterator[int]:
    """A number of threads for the blocks of a launch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fragmenta.launch.grid.cores", lambda: request.param)
        yield request.param


pytestmark = pytest.mark.usefixtures("cores")


def test_blocks_that_do_not_know_of_one_another() -> None:
    found = launched("mul.lo.u32 %r1, %all, %all; st.global.u32 [%mine], %r1;", 64, 50)
    assert (found == np.arange(3200) ** 2).all()


def test_shared_memory_and_registers_are_new_in_every_block() -> None:
    found = launched(
        """
        .shared .align 4 .b32 x[32];
        mov.u32 %r5, x;
        mad.lo.u32 %r5, %t, 4, %r5;
        ld.shared.u32 %r2, [%r5];
        add.u32 %r1, %r1, %r2;
        add.u32 %r1, %r1, 1;
        st.shared.u32 [%r5], %r1;
        st.global.u32 [%mine], %r1;""",
        32,
        40,
        watch=False,  # to read what nobody wrote is a mistake
    )
    assert (found == 1).all()


def test_a_lock_between_blocks() -> None:
    body = """
        setp.ne.u32 %p1, %t, 0;
        @%p1 ret;
    AGAIN: atom.global.cas.b32 %r1, [lock], 0, 1;
        setp.ne.u32 %p2, %r1, 0;
        @%p2 bra AGAIN;
        ld.volatile.global.u32 %r2, [total];
        add.u32 %r2, %r2, %cta;
        st.volatile.global.u32 [total], %r2;
        membar.gl;
        atom.global.exch.b32 %r1, [lock], 0;"""
    made = module(body, before=COUNTER)
    run(
        made.kernels["k"],
        np.zeros(1),
        blocks=100,
        limits=ptx.Limits(instructions=LIMIT),
    )
    assert made.variables["total"].view(np.uint32)[0] == sum(range(100))


def test_a_running_sum_by_looking_back() -> None:
    found = launched(
        """
        ld.param.u64 %rd1, [state];
        mad.wide.u32 %rd2, %cta, 8, %rd1;
        setp.ne.u32 %p1, %t, 0;
        @%p1 ret;
        mov.u32 %r1, 0;
        setp.eq.u32 %p2, %cta, 0;
        @%p2 bra GIVE;
    WAIT: ld.acquire.gpu.global.u32 %r3, [%rd2-4];
        setp.eq.u32 %p3, %r3, 0;
        @%p3 bra WAIT;
        ld.global.u32 %r1, [%rd2-8];
    GIVE: add.u32 %r1, %r1, %cta;
        st.global.u32 [%rd2], %r1;
        st.release.gpu.global.u32 [%rd2+4], 1;
        mad.wide.u32 %mine, %cta, 4, %out;
        st.global.u32 [%mine], %r1;""",
        32,
        200,
        [np.zeros((200, 2), np.uint32)],
        parameters=".param .u64 state",
        words=200,
        limits=ptx.Limits(instructions=LIMIT),
    )
    assert (found == np.cumsum(np.arange(200))).all()


def test_the_last_block_adds_everything_up() -> None:
    found = launched(
        """
        ld.param.u64 %rd1, [partial];
        mad.wide.u32 %rd2, %all, 4, %rd1;
        st.global.u32 [%rd2], %all;
        membar.gl;
        setp.ne.u32 %p1, %t, 0;
        @%p1 ret;
        mov.u32 %r9, %nctaid.x;
        sub.u32 %r8, %r9, 1;
        atom.global.inc.u32 %r1, [lock], %r8;
        setp.ne.u32 %p2, %r1, %r8;
        @%p2 ret;
        membar.gl;
        mul.lo.u32 %r9, %r9, %n;
        mov.u32 %r2, 0;
        mov.u32 %r3, 0;
    ADD: ld.global.u32 %r4, [%rd1];
        add.u32 %r2, %r2, %r4;
        add.u64 %rd1, %rd1, 4;
        add.u32 %r3, %r3, 1;
        setp.lt.u32 %p3, %r3, %r9;
        @%p3 bra ADD;
        st.global.u32 [%out], %r2;""",
        1,
        60,
        [np.zeros(60, np.uint32)],
        parameters=".param .u64 partial",
        before=COUNTER,
        words=1,
    )
    assert found[0] == sum(range(60))


def test_a_block_waits_for_a_later_one_and_a_barrier_of_the_grid() -> None:
    # All blocks wait for all others, five times.
    body = """
        mov.u32 %r9, %nctaid.x;
        mov.u32 %r1, 0;
        mov.u32 %r2, %r9;
    STEP: red.global.add.u32 [total], 1;
    WAIT: ld.volatile.global.u32 %r3, [total];
        setp.lt.u32 %p1, %r3, %r2;
        @%p1 bra WAIT;
        add.u32 %r2, %r2, %r9;
        add.u32 %r1, %r1, 1;
        setp.lt.u32 %p2, %r1, 5;
        @%p2 bra STEP;
        mad.wide.u32 %mine, %cta, 4, %out;
        st.global.u32 [%mine], %r1;"""
    found = launched(
        body, 1, 40, before=COUNTER, words=40, limits=ptx.Limits(instructions=LIMIT)
    )
    assert (found == 5).all()


def test_sums_in_memory_of_blocks_at_the_same_time() -> None:
    found = launched(
        """
        red.global.add.u32 [%out], 1;
        red.global.max.s32 [%out+4], %all;
        red.global.xor.b32 [%out+8], %all;
        red.global.add.u64 [%out+16], 3;""",
        128,
        64,
        words=6,
    )
    threads = 128 * 64
    every = np.bitwise_xor.reduce(np.arange(threads))
    assert found.tolist() == [threads, threads - 1, every, 0, 3 * threads, 0]


def test_counts_do_not_depend_on_the_cores() -> None:
    made = kernel("""
        mov.u32 %r1, 0;
    L: add.u32 %r1, %r1, 1;
        setp.lt.u32 %p1, %r1, %cta;
        @%p1 bra L;""")
    result = run(made, np.zeros(1), threads=64, blocks=30)
    loops = 2 * sum(max(1, n) for n in range(30))
    assert result.counts["setp.lt.u32"] == loops
    assert result.counts["mov.u32"] == 2 * 30 * 6
    assert result.instructions == sum(result.counts.values())


def test_many_small_blocks(cores: int) -> None:
    out = np.zeros(100_000, np.uint32)
    made = kernel("st.global.u32 [%mine], %cta;")
    run(made, out, threads=1, blocks=100_000)
    assert (out == np.arange(100_000)).all()


VARIABLES = """
.global .align 4 .b32 count = 5;
.global .align 8 .b64 place = table;
.const .align 8 .b64 places[2] = {table+8, generic(count)};
.const .align 4 .b32 table[4] = {10, 11, 12, 13};
.global .align 4 .b8 small[3] = {1, 2, 3};
"""


def test_variables_keep_their_values_between_launches() -> None:
    made = module(
        """
        ld.global.u32 %r1, [count];
        add.u32 %r1, %r1, 1;
        st.global.u32 [count], %r1;
        ld.global.u64 %rd1, [place];
        ld.const.u32 %r2, [%rd1+4];
        ld.const.u64 %rd2, [places];
        ld.u32 %r3, [%rd2];
        ld.const.u64 %rd3, [places+8];
        ld.u32 %r4, [%rd3];
        st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};""",
        before=VARIABLES,
    )
    out = np.zeros(4, np.uint32)
    for count in (6, 7, 8):
        run(made.kernels["k"], out, threads=1)
        assert out.tolist() == [count, 11, 12, count]
    count = made.variables["count"].view(np.uint32)
    assert count.tolist() == [8]
    count[0] = 100
    run(made.kernels["k"], out, threads=1)
    assert out[0] == 101
    assert made.variables["small"].tolist() == [1, 2, 3]
    again = module("st.global.u32 [%out], 1;", before=VARIABLES)
    assert again.variables["count"].view(np.uint32).tolist() == [5]
