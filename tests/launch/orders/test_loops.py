"""Loops on words that wait for more than a number: they are run to know when they end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_ptx
from tests.thinning import repeats

HEAD = """
.version 8.0
.target sm_90
.address_size 64
.entry k(.param .u64 word, .param .u64 data)
{
    .reg .pred %p<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [word];
    ld.param.u64 %rd2, [data];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra DONE;
"""
TAIL = """
DONE:
    ret;
}
"""


def explored(body: str, blocks: int = 2, start: int = 0, **options: Any) -> Any:
    kernel = ptx.parse(HEAD + body + TAIL).kernels["k"]
    words, data = np.zeros(4, np.uint32), np.zeros(8, np.uint32)
    words[0] = start
    options = {"watch": "report", "orders": "all", **options}
    return kernel.launch(blocks, 32, [words, data], **options)


def errors(result: Any) -> set[str]:
    return {each.rule for each in result.problems if each.severity == "error"}


# ── grid.sync ───────────────────────────────────────────────────────────────

GRID = """
#include <cooperative_groups.h>
extern "C" __global__ void k(unsigned *x, unsigned *y)
{
    auto grid = cooperative_groups::this_grid();
    unsigned mine = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned next = (blockIdx.x + 1) % gridDim.x * blockDim.x + threadIdx.x;
    x[mine] = mine;
    if (FIRST) grid.sync();
    y[mine] = x[next];
    if (SECOND) grid.sync();
    x[mine] = 7;
}
"""


def grid_sync(first: str, second: str, blocks: int = 2) -> Any:
    flags = f"-DFIRST={first}", f"-DSECOND={second}"
    kernel = ptx.parse(to_ptx(GRID, "sm_90a", *flags)).kernels["k"]
    given = [np.zeros(32 * blocks, np.uint32) for _ in range(2)]
    how: dict[str, Any] = {"cooperative": True, "orders": "all", "watch": "report"}
    return kernel.launch(blocks, 32, given, **how)


# One number of blocks, and one side of the barrier.
@repeats(2)
@pytest.mark.parametrize("blocks", [2, 3])
def test_grid_sync_is_clean_in_all_orders(blocks: int) -> None:
    """It waits until the sign of a counter is not what it was: no number is compared."""
    result = grid_sync("true", "true", blocks)
    assert result.orders.verdict == "all orders", result.orders.reasons
    assert result.orders.clean
    assert not errors(result)


@repeats(2, start=1)
@pytest.mark.parametrize(("first", "second"), [("false", "true"), ("true", "false")])
def test_a_grid_sync_that_is_missing_is_a_race(first: str, second: str) -> None:
    result = grid_sync(first, second)
    assert result.orders.verdict == "all orders", result.orders.reasons
    assert errors(result) == {"global-race"}


def test_a_block_that_leaves_grid_sync_out_hangs_the_others() -> None:
    result = grid_sync("true", "blockIdx.x == 0")
    assert result.orders.verdict == "hangs"
    assert "deadlock" in errors(result)
    story = " ".join(result.orders.text().split())
    assert "for which the loop goes on, and nobody is left to change it" in story


# ── loops in PTX ────────────────────────────────────────────────────────────

WAIT = """
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra WRITE;
LOOP:
    ld.acquire.gpu.global.u32 %r3, [%rd1];
    {test}
    @%p3 bra LOOP;
    ld.global.u32 %r9, [%rd2];
    bra DONE;
WRITE:
    st.global.u32 [%rd2], 5;
    st.release.gpu.global.u32 [%rd1], {value};
"""

LOOPS = {
    "at least": ("setp.lt.u32 %p3, %r3, 4;", 0, 4, 3),
    "other than": ("setp.eq.u32 %p3, %r3, 6;", 6, 5, 6),
    "masked": ("and.b32 %r4, %r3, 12; setp.ne.u32 %p3, %r4, 8;", 0, 0x1B, 0x1F),
    "a bit changes": (
        "xor.b32 %r4, %r3, 3; and.b32 %r4, %r4, 4; setp.eq.u32 %p3, %r4, 0;",
        3,
        4,
        2,
    ),
    "signed": ("setp.lt.s32 %p3, %r3, 1;", 0, 1, 0xFFFFFFFF),
    "negative": ("setp.gt.s32 %p3, %r3, -1;", 0, 0x80000000, 0x7FFFFFFF),
    "shifted": ("shr.u32 %r4, %r3, 8; setp.ne.u32 %p3, %r4, 1;", 0, 0x1FF, 0xFF),
    "counted": ("popc.b32 %r4, %r3; setp.lt.u32 %p3, %r4, 3;", 0, 7, 3),
    "backoff": (
        "shl.b32 %r5, %r5, 1; or.b32 %r5, %r5, 1; nanosleep.u32 %r5;"
        "xor.b32 %r4, %r3, 1; setp.ne.u32 %p3, %r4, 8;",
        0,
        9,
        8,
    ),
    "float": ("mov.b32 %r4, %r3; setp.lt.f32 %p3, %r4, 0f3F800000;", 0, 0x40000000, 1),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_ends_with_the_values_that_end_it(name: str) -> None:
    test, start, right, _ = LOOPS[name]
    if name == "float":
        test = test.replace("mov.b32 %r4, %r3", "mov.b32 %f, %r3").replace("%r4", "%f")
        test = "{ .reg .f32 %f; " + test + " }"
    result = explored(WAIT.format(test=test, value=right), start=start)
    assert result.orders.verdict == "all orders", result.orders.reasons
    assert result.orders.clean
    assert not errors(result)


@pytest.mark.parametrize("name", ["masked", "a bit changes", "signed", "negative"])
def test_a_loop_waits_for_ever_with_other_values(name: str) -> None:
    test, start, _, wrong = LOOPS[name]
    result = explored(WAIT.format(test=test, value=wrong), start=start)
    assert (result.orders.verdict, errors(result)) == ("hangs", {"deadlock"})


TICKET = """
    atom.add.relaxed.gpu.global.u32 %r3, [%rd1], 1;
LOOP:
    ld.acquire.gpu.global.u32 %r4, [%rd1+4];
    setp.ne.u32 %p3, %r4, %r3;
    @%p3 bra LOOP;
    ld.global.u32 %r5, [%rd2];
    add.u32 %r5, %r5, 1;
    st.global.u32 [%rd2], %r5;
    add.u32 %r6, %r3, STEP;
    st.release.gpu.global.u32 [%rd1+4], %r6;
"""


@pytest.mark.long
def test_a_ticket_that_an_atomic_gave_is_waited_for() -> None:
    """Each block may get each ticket; what it waits for depends on that."""
    result = explored(TICKET.replace("STEP", "1"), blocks=3)
    assert result.orders.verdict == "all orders", result.orders.reasons
    assert result.orders.clean
    assert not errors(result)
    assert result.orders.orders > 1
    wrong = explored(TICKET.replace("STEP", "2"), blocks=3)
    assert wrong.orders.verdict == "hangs"


ADDED = TICKET.replace("STEP", "1").replace(
    "st.release.gpu.global.u32 [%rd1+4], %r6;",
    "red.add.release.gpu.global.u32 [%rd1+4], 1;",
)


@pytest.mark.long
def test_what_follows_a_ticket_is_explored_to_the_end() -> None:
    """The lock is taken twice; without the acquire, what it guards races."""
    again = ADDED + ADDED.replace("LOOP", "AGAIN")
    result = explored(again, blocks=2)
    assert result.orders.verdict == "all orders", result.orders.reasons
    assert not errors(result)
    racy = explored(again.replace("red.add.release", "red.add.relaxed"), blocks=2)
    assert "global-race" in errors(racy)


def test_a_loop_of_cas_ends_in_every_order() -> None:
    """What it found first decides what it writes: here the largest of all."""
    body = """
    ld.relaxed.gpu.global.u32 %r3, [%rd1];
    add.u32 %r4, %r2, 3;
LOOP:
    mov.u32 %r5, %r3;
    max.u32 %r6, %r5, %r4;
    atom.cas.relaxed.gpu.global.b32 %r3, [%rd1], %r5, %r6;
    setp.ne.u32 %p3, %r3, %r5;
    @%p3 bra LOOP;
"""
    result = explored(body, blocks=3)
    assert not errors(result), result.problems
    assert not result.orders.hangs


def test_a_loop_that_is_not_understood_makes_no_deadlock() -> None:
    """A loop that gives up after some time may end with any value."""
    body = """
    setp.eq.u32 %p2, %r2, 0;
    @%p2 bra WRITE;
LOOP:
    ld.acquire.gpu.global.u32 %r3, [%rd1];
    mov.u32 %r4, %clock;
    and.b32 %r4, %r4, 1;
    or.b32 %r4, %r4, %r3;
    setp.eq.u32 %p3, %r4, 0;
    @%p3 bra LOOP;
    bra DONE;
WRITE:
    st.release.gpu.global.u32 [%rd1], 1;
    st.release.gpu.global.u32 [%rd1], 2;
"""
    result = explored(body, watch=True)  # nothing is raised
    assert result.orders.verdict == "incomplete"
    assert any("is not known" in each for each in result.orders.reasons)
    assert not result.orders.hangs
    assert not errors(result)


def test_lanes_that_wait_for_words_of_their_own_are_all_recorded() -> None:
    body = """
    setp.eq.u32 %p2, %r2, 0;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd3, %rd3, %rd1;
    @%p2 bra WRITE;
LOOP:
    ld.acquire.gpu.global.u32 %r3, [%rd3];
    xor.b32 %r4, %r3, 1;
    setp.ne.u32 %p3, %r4, 8;
    @%p3 bra LOOP;
    bra DONE;
WRITE:
    st.release.gpu.global.u32 [%rd3], 9;
"""
    head = HEAD.replace("setp.ne.u32 %p1, %r1, 0;", "setp.ge.u32 %p1, %r1, 4;")
    for left, verdict in (("", "all orders"), ("@%p3 ", "hangs")):
        text = body.replace("st.release", f"setp.ne.u32 %p3, %r1, 2;\n{left}st.release")
        kernel = ptx.parse(head + text + TAIL).kernels["k"]
        given = [np.zeros(4, np.uint32), np.zeros(8, np.uint32)]
        result = kernel.launch(2, 32, given, watch="report", orders="all")
        assert result.orders.verdict == verdict, result.orders.reasons


# ── plain stores and atomics of one word ────────────────────────────────────

RESET = """
    setp.ne.u32 %p2, %r2, WHO;
    @%p2 bra GO;
    st.global.u32 [%rd1], 0;
GO:
    atom.add.relaxed.gpu.global.u32 %r3, [%rd1], 1;
    setp.ne.u32 %p3, %r3, 2;
    @%p3 bra DONE;
    bar.sync 1, 32;
"""


@pytest.mark.parametrize("who", [0, 1, 2])
def test_a_plain_reset_races_with_the_atomics_of_others(who: int) -> None:
    """Whichever block resets: its own atomic operation afterwards hides nothing."""
    result = explored(RESET.replace("WHO", str(who)), blocks=3)
    assert errors(result) == {"global-race"}
    assert not result.orders.clean


def test_a_reset_by_the_last_block_is_clean() -> None:
    body = """
    atom.add.acq_rel.gpu.global.u32 %r3, [%rd1], 1;
    setp.ne.u32 %p3, %r3, 2;
    @%p3 bra DONE;
    st.global.u32 [%rd1], 0;
"""
    result = explored(body, blocks=3)
    assert result.orders.clean
    assert not errors(result)


def test_a_plain_store_to_a_flag_ends_the_wait_of_another_block() -> None:
    """It races, and hangs nobody: blocks without a strong access are part of it, too."""
    body = WAIT.format(test="setp.ne.u32 %p3, %r3, 4;", value=4)
    result = explored(body.replace("st.release.gpu.global", "st.global"))
    assert errors(result) == {"global-race"}
    assert not result.orders.hangs


@pytest.mark.parametrize("operation", ["cas", "exch"])
def test_words_of_128_bits(operation: str) -> None:
    """Their values, of each lane, are those of both halves."""
    compare = "%q0, " * (operation == "cas")
    body = f"""
    {{ .reg .b128 %q<3>; .reg .b64 %d;
    mov.u64 %d, 0;
    mov.b128 %q0, {{%d, %d}};
    cvt.u64.u32 %d, %r2;
    add.u64 %d, %d, 7;
    mov.b128 %q1, {{%d, %d}};
    atom.relaxed.gpu.global.{operation}.b128 %q2, [%rd2], {compare}%q1;
    st.relaxed.gpu.global.b128 [%rd2], %q1; }}
"""
    text = (HEAD + body + TAIL).replace("8.0", "8.4").replace("setp.ne", "setp.ge")
    kernel = ptx.parse(text.replace("%r1, 0;", "%r1, 32;")).kernels["k"]
    given = [np.zeros(4, np.uint32), np.zeros(8, np.uint32)]
    result = kernel.launch(2, 32, given, watch="report", orders="all")
    assert result.orders.verdict == "all orders"
    assert result.orders.clean
