"""Barriers of a grid that are made by hand: which of them hang, and what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.launch import grid
from tests.thinning import repeats

KERNEL = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry meet(.param .u64 words, .param .u32 wanted, .param .u32 gone)
{{
    .shared .align 4 .b32 flag[4];
    .reg .pred %p, %q; .reg .b32 %r<12>; .reg .b64 %d;
    ld.param.u64 %d, [words]; ld.param.u32 %r1, [wanted];
    ld.param.u32 %r2, [gone];
    mov.u32 %r3, %ctaid.x; mov.u32 %r4, %tid.x;
    mov.u32 %r5, 0; mov.u32 %r6, 8;
    setp.eq.u32 %p, %r3, %r2;
    @%p bra END;
    setp.ne.u32 %q, %r4, 0;
    {meet}
    bar.sync 0;
END:
    ret;
}}"""
ARRIVE = """@%q bra DONE;
    atom.release.gpu.global.add.u32 %r0, [%d], 1;
    """
LOADS = "AGAIN: ld.acquire.gpu.global.u32 %r0, [%d];"
ENDS = """setp.lt.u32 %p, %r0, %r1;
    @%p bra AGAIN;
DONE:"""
LOOPS = {
    "a load": f"{ARRIVE} {LOADS} {ENDS}",
    "an atomic that adds nothing": f"""{ARRIVE}
AGAIN: atom.global.add.u32 %r0, [%d], 0; {ENDS}""",
    "an atomic or with nothing": f"""{ARRIVE}
AGAIN: atom.global.or.b32 %r0, [%d], 0; {ENDS}""",
    "an operand that is computed each time": f"""{ARRIVE}
AGAIN: add.u32 %r7, %r1, 1; atom.global.cas.b32 %r0, [%d], %r7, %r7; {ENDS}""",
    "sleep": f"{ARRIVE} {LOADS} nanosleep.u32 100; {ENDS}",
    "longer and longer sleep": f"""{ARRIVE} {LOADS}
    nanosleep.u32 %r6; shl.b32 %r7, %r6, 1; min.u32 %r6, %r7, 256; {ENDS}""",
    "a count that nobody asks for": f"{ARRIVE} {LOADS} add.u32 %r5, %r5, 1; {ENDS}",
    "a second word": f"""{ARRIVE} {LOADS}
    ld.acquire.gpu.global.u32 %r7, [%d+4];
    setp.ne.u32 %p, %r7, 0; @%p bra DONE; {ENDS}""",
    "three phases of sleep": f"""{ARRIVE} {LOADS}
    nanosleep.u32 %r5; add.u32 %r5, %r5, 1; setp.eq.u32 %p, %r5, 3;
    selp.u32 %r5, 0, %r5, %p; setp.eq.u32 %p, %r5, 7; @%p bra DONE; {ENDS}""",
    "all threads ask": """@%q bra AGAIN;
    red.release.gpu.global.add.u32 [%d], 1;
AGAIN: ld.acquire.gpu.global.u32 %r0, [%d];
    setp.lt.u32 %p, %r0, %r1; @%p bra AGAIN;""",
    "the warp votes": """@%q bra AGAIN;
    red.release.gpu.global.add.u32 [%d], 1;
AGAIN: ld.acquire.gpu.global.u32 %r0, [%d];
    setp.lt.u32 %p, %r0, %r1; vote.sync.any.pred %p, %p, -1; @%p bra AGAIN;""",
    "the block votes": """@%q bra AGAIN;
    red.release.gpu.global.add.u32 [%d], 1;
AGAIN: ld.acquire.gpu.global.u32 %r0, [%d];
    setp.lt.u32 %p, %r0, %r1; barrier.red.or.pred %p, 1, %p; @%p bra AGAIN;""",
}
NOBODY = 99
"""A block that there is not."""
LIMITS = ptx.Limits(instructions=20_000_000)


def launched(meet: str, wanted: int, gone: int = NOBODY, **options: Any) -> np.ndarray:
    words = np.zeros(4, np.uint32)
    kernel = ptx.parse(KERNEL.format(meet=meet)).kernels["meet"]
    options = {"limits": LIMITS} | options
    kernel.launch(4, 64, [words, np.uint32(wanted), np.uint32(gone)], **options)
    return words


@repeats(3)
@pytest.mark.parametrize("name", LOOPS)
def test_one_that_does_not_come_is_a_deadlock(name: str) -> None:
    with pytest.raises(ptx.KernelFault) as caught:
        launched(LOOPS[name], 4, gone=2)
    assert caught.value.kind == "deadlock"
    text = " ".join(str(caught.value).split())
    assert "and so do those of 2 other blocks; 1 block has ended" in text
    assert "spinning on the word at byte 0 of argument 0 (words)" in text
    assert "it holds 3" in text


@repeats(3, start=1)
@pytest.mark.parametrize("name", LOOPS)
def test_one_at_which_all_meet_has_an_end(name: str) -> None:
    assert launched(LOOPS[name], 4)[0] == 4


@pytest.mark.parametrize("watch", [False, "report"])
def test_the_missing_arrivals_are_counted(watch: Any) -> None:
    text, options = "", {"watch": watch}
    try:
        words = np.zeros(4, np.uint32)
        kernel = ptx.parse(KERNEL.format(meet=LOOPS["a load"])).kernels["meet"]
        given = [words, np.uint32(6), np.uint32(NOBODY)]
        result = kernel.launch(4, 64, given, limits=LIMITS, **options)
        text = "\n".join(each.message for each in result.problems)
    except ptx.KernelFault as fault:
        text = str(fault)
    assert "the loop ends if it is at least 6: 4 of 6 arrivals came" in text


def test_arrivals_that_are_too_many_are_counted() -> None:
    exact = LOOPS["a load"].replace("setp.lt", "setp.ne")
    with pytest.raises(ptx.KernelFault, match="4 arrivals came, 1 too many"):
        launched(exact, 3)


def test_blocks_that_have_not_begun_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid, "MOST_WAITING", 3)
    with pytest.raises(ptx.KernelFault) as caught:
        launched(LOOPS["a load"], 4)
    text = " ".join(str(caught.value).split())
    assert "1 block of the grid has not begun: 3 wait" in text
    assert "3 of 4 arrivals came" in text
    assert "Launch no more blocks than fit" in caught.value.hint


def test_those_that_fit_one_after_the_other_are_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grid, "MOST_WAITING", 3)
    assert launched(LOOPS["a load"], 3)[0] == 4


GIVES_UP = f"""{ARRIVE} {LOADS}
    add.u32 %r5, %r5, 1; setp.eq.u32 %p, %r5, 20000; @%p bra DONE; {ENDS}"""
LOCKED = """@%q bra DONE;
    mov.u32 %r8, 0;
AGAIN: atom.acquire.gpu.global.exch.b32 %r0, [%d+8], 1;
    setp.ne.u32 %p, %r0, 0; @%p bra AGAIN;
    ld.global.u32 %r7, [%d]; setp.lt.u32 %p, %r7, %r3; mov.u32 %r9, 0;
HOLD: add.u32 %r9, %r9, 1; setp.lt.u32 %q, %r9, 2000; @%q bra HOLD;
    @%p bra BACK;
    add.u32 %r7, %r7, 1; st.global.u32 [%d], %r7;
BACK:
    atom.release.gpu.global.exch.b32 %r0, [%d+8], 0;
    @%p bra AGAIN;
DONE:"""
"""Each block waits, under a lock, until those before it have counted."""


@pytest.mark.parametrize(
    ("meet", "wanted", "watch"),
    [(GIVES_UP, 6, False), (LOCKED, 0, False), (LOCKED, 0, "report")],
    ids=["gives up", "lock", "watched lock"],
)
def test_who_goes_on_is_no_deadlock(meet: str, wanted: int, watch: Any) -> None:
    assert launched(meet, wanted, watch=watch)[0] == 4


WORKS = """@%q bra DONE;
    atom.acq_rel.gpu.global.add.u32 %r0, [%d], 1;
AGAIN: ld.acquire.gpu.global.u32 %r0, [%d]; setp.eq.u32 %p, %r0, 0; @%p bra AGAIN;
    mov.u32 %r9, 0;
HOLD: add.u32 %r9, %r9, 1; setp.lt.u32 %p, %r9, 60000; @%p bra HOLD;
    setp.ne.u32 %p, %r3, 0; @%p bra WAIT;
    st.release.gpu.global.u32 [%d+4], 1;
WAIT: ld.acquire.gpu.global.u32 %r0, [%d+4]; setp.eq.u32 %p, %r0, 0; @%p bra WAIT;
DONE:"""
"""Between two loops on words, one block computes for many turns."""


def test_who_computes_between_two_waits_is_no_deadlock() -> None:
    assert launched(WORKS, 0, watch=False)[:2].tolist() == [4, 1]


@pytest.mark.long
def test_a_clock_is_no_deadlock() -> None:
    timed = f"""{ARRIVE} mov.u32 %r8, %clock;
    {LOADS} mov.u32 %r9, %clock; sub.u32 %r9, %r9, %r8; setp.gt.u32 %p, %r9, 300000;
    @%p bra DONE; {ENDS}"""
    assert launched(timed, 6)[0] == 4


MANY = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry many(.param .u64 x)
{
    .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d;
    ld.param.u64 %d, [x];
    mov.u32 %r0, 0;
AGAIN:
    bar.sync 0;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p, %r0, 1000;
    @%p bra AGAIN;
    red.global.add.u32 [%d], 1;
    ret;
}"""


def test_many_barriers_are_no_deadlock() -> None:
    """Machine code ends its turn in between; nobody is stuck then."""
    total = np.zeros(1, np.uint32)
    ptx.parse(MANY).kernels["many"].launch(2, 64, [total], watch=False)
    assert total[0] == 128


@pytest.mark.long
def test_operands_that_are_made_of_one_another_are_left_to_the_limits() -> None:
    swaps = f"""{ARRIVE} mov.u32 %r7, 0; mov.u32 %r8, 0;
AGAIN: mov.u32 %r7, %r8; atom.global.add.u32 %r0, [%d], %r7; mov.u32 %r8, %r7; {ENDS}"""
    with pytest.raises(ptx.KernelFault) as caught:
        launched(swaps, 6, limits=ptx.Limits(instructions=300_000))
    assert caught.value.kind == "limit"
