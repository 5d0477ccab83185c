"""Orders in which a word's value takes another way: each way is run, and looked at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.thinning import repeats

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 data, .param .u64 words, .param .u64 result)
{
    .reg .pred %p, %q, %z;
    .reg .b32 %i, %n, %old, %sum, %r<8>;
    .reg .b64 %data, %words, %result, %at;
    ld.param.u64 %data, [data];
    ld.param.u64 %words, [words];
    ld.param.u64 %result, [result];
    mov.u32 %i, %tid.x;
    setp.ne.u32 %p, %i, 0;
    @%p ret;
    mov.u32 %i, %ctaid.x;
    mov.u32 %n, %nctaid.x;
    mul.wide.u32 %at, %i, 4;
"""

LAST = """
    // Each block stores its part.  The one that comes last adds them up.
    add.u64 %at, %at, %data;
    add.u32 %r1, %i, 1;
    st.global.u32 [%at], %r1;
    setp.eq.u32 %q, %i, UNFENCED;
    @%q bra UNFENCED_BLOCK;
    membar.gl;
UNFENCED_BLOCK:
    DRAW
    membar.gl;
    @!%p bra DONE;
    ld.global.u32 %sum, [%data];
    ld.global.u32 %r2, [%data+4];
    add.u32 %sum, %sum, %r2;
    ld.global.u32 %r2, [%data+8];
    add.u32 %sum, %sum, %r2;
    st.global.u32 [%result], %sum;
DONE:
    ret;
}
"""
DRAWS = {
    "add": """
    atom.global.add.u32 %old, [%words], 1;
    setp.eq.u32 %p, %old, 2;
    """,
    "inc": """
    atom.global.inc.u32 %old, [%words], 2;
    setp.eq.u32 %p, %old, 2;
    """,
    "or": """
    mov.u32 %r3, 1;
    shl.b32 %r3, %r3, %i;
    atom.global.or.b32 %old, [%words], %r3;
    or.b32 %old, %old, %r3;
    setp.eq.u32 %p, %old, 7;
    """,
}


def explored(text: str, blocks: int, without: str = "nothing") -> Any:
    """All orders of a kernel, and what they show."""
    arrays = [np.zeros(16, np.uint32) for _ in range(3)]
    kernel = ptx.parse(HEAD.replace(without, "") + text).kernels["k"]
    return kernel.launch(blocks, 32, arrays, orders="all", watch="report")


def lines(text: str, result: Any) -> set[tuple[str, str]]:
    """The rules of what was found, with the instructions."""
    code = (HEAD + text).splitlines()
    return {(each.rule, code[each.line - 1].strip()) for each in result.problems}


# Every way to draw; the place of the missing fence takes turns.
@repeats(together=1)
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("unfenced", [2, 7])
def test_any_block_may_be_the_last(draw: str, unfenced: int) -> None:
    """Block 2 is the last as it runs, and then needs no fence; in other orders it does.

    There is no block 7: then all have fences.
    """
    text = LAST.replace("DRAW", DRAWS[draw])
    text = text.replace("%i, UNFENCED;", f"%i, {unfenced};")
    result = explored(text, 3)
    assert result.orders.coverage == "all orders"
    assert not result.orders.hangs
    raced = {("global-race", "ld.global.u32 %r2, [%data+8];")}
    assert lines(text, result) == (raced if unfenced == 2 else set())


def test_more_warps_than_are_tried_are_said() -> None:
    text = LAST.replace("DRAW", DRAWS["add"]).replace("%i, UNFENCED;", "%i, 2;")
    found = explored(text, 12).orders
    assert found.verdict == "incomplete"
    assert found.reasons[0].startswith("which warp finds which value with atom")
    assert found.reasons[0].endswith("as 12 warps use it, more than 4")


TOLD = """
    // Lane 0 draws; all lanes of the block that comes last add up.
    .shared .b32 drawn;
    @%p bra TOLD;
    add.u64 %at, %at, %data;
    st.global.u32 [%at], 1;
    membar.gl;
    atom.global.add.u32 %old, [%words], 1;
    TELL
    membar.gl;
    setp.ne.u32 %q, %r1, 2;
    @%q bra DONE;
    ld.global.u32 %sum, [%data+4];
    st.global.u32 [%result], %sum;
DONE:
    ret;
}
"""
TELLS = {
    "shared memory": """
    st.shared.u32 [drawn], %old;
TOLD:
    bar.sync 0;
    ld.shared.u32 %r1, [drawn];
    """,
    "a shuffle": """
TOLD:
    shfl.sync.idx.b32 %r1, %old, 0, 31, -1;
    """,
}


@pytest.mark.parametrize("tell", TELLS)
def test_a_value_that_other_threads_are_told_is_not_tried(tell: str) -> None:
    """What the others do after it is known of the recorded run only."""
    text = TOLD.replace("TELL\n", TELLS[tell], 1)
    found = explored(text, 3, "@%p ret;").orders
    assert (found.verdict, found.found) == ("incomplete", ())
    assert found.reasons[0].endswith("as other threads are told it")


@pytest.mark.parametrize("early", [False, True])
def test_a_counter_that_is_reset_by_a_plain_store(early: bool) -> None:
    """The store that follows the last ticket comes after all tickets, no other does."""
    tell = TELLS["shared memory"].replace("st.shared", "membar.gl; st.shared")
    text = TOLD.replace("TELL\n", tell, 1)
    before, after = ("membar.gl;", "") if early else ("DONE:\n", "@%p bra DONE;")
    text = text.replace(before, f"{after} st.global.u32 [%words], 0;\n{before}", 1)
    result = explored(text, 3, "@%p ret;")
    assert result.orders.verdict == "incomplete"
    assert result.orders.reasons[0].endswith("as other threads are told it")
    wrong = {each.rule for each in result.problems if each.severity == "error"}
    assert wrong == ({"global-race"} if early else set())


TWO_VALUES = """
    // Block 0 says 1 when the first number is there, and 2 when both are.
    setp.ne.u32 %q, %i, 0;
    @%q bra READER;
    st.global.u32 [%data], 10;
    membar.gl;
    st.volatile.global.u32 [%words], 1;
    st.global.u32 [%data+4], 20;
    membar.gl;
    st.volatile.global.u32 [%words], 2;
    ret;
READER:
    ld.volatile.global.u32 %old, [%words];
    setp.eq.u32 %p, %old, 0;
    @%p bra READER;
    membar.gl;
    setp.eq.u32 %p, %old, WHEN;
    READ
    st.global.u32 [%result], %sum;
    ret;
}
"""
READS = {
    "a branch": """
    @%p bra SECOND;
    ld.global.u32 %sum, [%data];
    bra READ;
SECOND:
    ld.global.u32 %sum, [%data+4];
READ:
    """,
    "an address": """
    selp.b64 %at, 4, 0, %p;
    add.u64 %at, %at, %data;
    ld.global.u32 %sum, [%at];
    """,
    "a guard": """
    @!%p ld.global.u32 %sum, [%data];
    @%p ld.global.u32 %sum, [%data+4];
    """,
}


@repeats(together=1)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("when", [1, 2])
def test_what_follows_a_loop_is_that_of_its_value(read: str, when: int) -> None:
    """The second number may be read after a 2, and not after a 1."""
    text = TWO_VALUES.replace("READ\n", READS[read], 1).replace("WHEN", str(when))
    result = explored(text, 2)
    assert result.orders.coverage == "all orders"
    assert not result.orders.hangs
    found = lines(text, result)
    assert {rule for rule, _ in found} == ({"global-race"} if when == 1 else set())
    assert len(found) == (when == 1)


TICKET = """
    // Who draws a ticket waits for its turn, and calls the next one.
    atom.global.add.u32 %old, [%words], 1;
TURN:
    ld.volatile.global.u32 %r1, [%words+4];
    setp.ne.u32 %p, %r1, %old;
    @%p bra TURN;
    membar.gl;
    add.u32 %r2, %old, NEXT;
    membar.gl;
    st.KIND.u32 [%words+4], %r2;
    ret;
}
"""


@pytest.mark.long
@repeats(2)
@pytest.mark.parametrize("kind", ["global", "volatile.global"])
def test_what_is_stored_is_that_of_the_value_that_was_found(kind: str) -> None:
    """Whoever draws the first ticket calls the second: no order hangs."""
    found = explored(TICKET.replace("KIND", kind).replace("NEXT", "1"), 2).orders
    assert (found.coverage, found.hangs) == ("all orders", False)
    wrong = explored(TICKET.replace("KIND", kind).replace("NEXT", "2"), 2).orders
    assert wrong.hangs
    assert "finds 0" in wrong.story
    assert "stores 2" in wrong.story


PASSED_ON = """
    // Block 0 draws a number and tells it; block 1 waits for any, block 2 draws first
    // or second.
    setp.eq.u32 %q, %i, 1;
    @%q bra WAIT;
    atom.global.add.u32 %old, [%words], 1;
    setp.eq.u32 %q, %i, 2;
    @%q ret;
    add.u32 %r2, %old, 1;
    st.KIND.u32 [%words+4], %r2;
    ret;
WAIT:
    ld.volatile.global.u32 %r1, [%words+4];
    setp.ne.u32 %p, %r1, 1;
    @%p bra WAIT;
    ret;
}
"""


@repeats(2, start=1)
@pytest.mark.parametrize("kind", ["global", "volatile.global"])
def test_a_number_that_is_passed_on_is_the_one_of_the_order(kind: str) -> None:
    """If block 2 draws first, block 0 tells 2, and block 1 waits for 1 for ever."""
    found = explored(PASSED_ON.replace("KIND", kind), 3).orders
    assert found.hangs
    assert "stores 2" in found.story


ENDLESS = """
.version 8.0 .target sm_80 .address_size 64
.entry f(.param .u64 x) {
    .reg .b64 %rd<2>; .reg .b32 %r<3>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %p1, %r1, 1;
    @%p1 bra WRITE;
    ld.acquire.gpu.global.u32 %r2, [%rd1];
    setp.eq.u32 %p2, %r2, 0;
    @%p2 HOW;
LOOP:
    bra LOOP;
WRITE:
    st.release.gpu.global.u32 [%rd1], 1;
DONE:
    ret;
}"""


@pytest.mark.parametrize("how", ["ret", "bra DONE"])
def test_a_word_that_decides_whether_a_thread_ends(how: str) -> None:
    """Block 0 reads 0 in the recorded run; if it reads 1, it loops for ever."""
    kernel = ptx.parse(ENDLESS.replace("HOW", how)).kernels["f"]
    orders = kernel.launch(2, 1, [np.zeros(1, np.uint32)], orders=200).orders
    assert orders.verdict == "incomplete"
    assert "before all threads had ended" in orders.reasons[0]
