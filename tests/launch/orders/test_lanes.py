"""Lanes of a warp that are agents of their own, and do something with one instruction.

Lane 0 of the first warp initialises what all wait for, so it is an agent.  What the
instruction observes or hands over is that of all its lanes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out)
{
    .shared .align 8 .b8 tile[256];
    .shared .align 8 .b64 word;
    .reg .pred %p, %q, %first;
    .reg .b32 %r<9>;
    .reg .b64 %d<4>;
    mov.u32 %r0, %tid.x;
    shl.b32 %r1, %r0, 2;
    mov.u32 %r2, tile;
    add.u32 %r3, %r2, %r1;
    sub.u32 %r4, 252, %r1;
    add.u32 %r4, %r4, %r2;
    shr.u32 %r7, %r0, 5;
    setp.eq.u32 %first, %r0, 0;
    ld.param.u64 %d0, [out];
    cvta.to.global.u64 %d0, %d0;
    mad.wide.u32 %d0, %r0, 4, %d0;
"""
COUNTED = """
    @%first st.shared.u32 [word], 0;
    bar.sync 0;
    st.shared.u32 [%r3], %r0;
    {before}
    {signal}
POLL:
    {poll}
    setp.{until} %q, %r5, {value};
    @%q bra POLL;
    {after}
    ld.shared.u32 %r6, [%r4];
    st.global.u32 [%d0], %r6;
    ret;
}}"""
MBARRIER = """
    @%first mbarrier.init.shared.b64 [word], 64;
    bar.sync 0;
    st.shared.u32 [%r3], %r0;
    {before}
    {signal}
POLL:
    {poll}
    @!%q bra POLL;
    {after}
    ld.shared.u32 %r6, [%r4];
    st.global.u32 [%d0], %r6;
    ret;
}}"""
FENCE = "fence.acq_rel.cta;"
ADD = "red{}.shared.add.u32 [word], 1;"
POLLS = {
    "load": "ld.relaxed.cta.shared.u32 %r5, [word];",
    "volatile": "ld.volatile.shared.u32 %r5, [word];",
    "atomic": "atom.relaxed.cta.shared.add.u32 %r5, [word], 0;",
    "acquire": "ld.acquire.cta.shared.u32 %r5, [word];",
}
ARRIVE = "mbarrier.arrive{}.shared::cta.b64 _, [word], 1;"
WAIT = "mbarrier.try_wait.parity{}.shared::cta.b64 %q, [word], 0;"
RELAXED = ".relaxed.cta"


def counted(
    poll: str, before: str = FENCE, after: str = FENCE, signal: str = ""
) -> str:
    """All threads raise a counter and poll it."""
    raised = signal or ADD.format(RELAXED)
    how = {"poll": POLLS[poll], "until": "lt.u32", "value": 64, "signal": raised}
    return COUNTED.format(before=before, after=after, **how)


def arrived(sent: str, taken: str, before: str, after: str) -> str:
    """All threads arrive at an mbarrier and wait for it."""
    signal, poll = ARRIVE.format(sent), WAIT.format(taken)
    return MBARRIER.format(before=before, after=after, signal=signal, poll=poll)


RIGHT = {
    **{f"counted-{poll}": counted(poll) for poll in POLLS},
    "counted-acquire-alone": counted("acquire", after=""),
    "counted-release": counted("load", "", FENCE, ADD.format(".release.cta")),
    "arrived": arrived("", "", "", ""),
    "arrived-relaxed": arrived(RELAXED, RELAXED, FENCE, FENCE),
    "arrived-relaxed-wait": arrived("", RELAXED, "", FENCE),
}
WRONG = {
    **{f"counted-{poll}-before": counted(poll, before="") for poll in POLLS},
    **{
        f"counted-{poll}-after": counted(poll, after="")
        for poll in POLLS
        if poll != "acquire"
    },
    "arrived-relaxed-before": arrived(RELAXED, RELAXED, "", FENCE),
    "arrived-relaxed-after": arrived(RELAXED, RELAXED, FENCE, ""),
}


@cache
def kernel(body: str) -> Any:
    version = "8.0" if "mbarrier" not in body else "8.7"
    return ptx.parse(HEAD.replace("8.0", version) + body).kernels["kernel"]


def found(body: str, threads: int = 64) -> Any:
    out = np.zeros(64, np.uint32)
    return kernel(body).launch(1, threads, [out], orders="all", watch="report")


def rules(result: Any) -> set[str]:
    return {each.rule for each in result.problems if each.severity == "error"}


@pytest.mark.parametrize("name", RIGHT)
def test_the_fences_of_all_lanes_count(name: str) -> None:
    result = found(RIGHT[name])
    assert rules(result) == set()
    assert result.orders.clean
    assert result.orders.verdict == "all orders"


@pytest.mark.parametrize("name", WRONG)
def test_a_fence_is_missed(name: str) -> None:
    assert rules(found(WRONG[name])) == {"shared-race"}


MEETINGS = """
    @%first mbarrier.init.shared.b64 [word], 1;
    @%first st.shared.u32 [tile], 7;
    setp.lt.u32 %p, %r0, 2;
    @!%p bra ALL;
    bar.warp.sync 3;
ALL:
    {all}
    ld.shared.u32 %r6, [tile];
    st.global.u32 [%d0], %r6;
    ret;
}}"""


def test_lanes_that_meet_later_learn_what_others_told_each_other() -> None:
    """Two lanes meet, and nothing happens until all do: all know what they did."""
    assert rules(found(MEETINGS.format(all="bar.warp.sync -1;"), 32)) == set()
    assert rules(found(MEETINGS.format(all=""), 32)) == {"shared-race"}


def test_lanes_that_toggle_a_word_together_toggle_it_each() -> None:
    """Two lanes leave it as it was; the third one changes it, and the wait ends."""
    toggled = """
    setp.lt.u32 %p, %r0, {lanes};
    @%p red.relaxed.cta.shared.xor.b32 [word], 1;"""
    for lanes in (1, 2, 3):
        signal = toggled.format(lanes=lanes)
        how = {"poll": POLLS["load"], "until": "eq.u32", "signal": signal}
        body = COUNTED.format(before="", after="bar.sync 1;", value=0, **how)
        assert found(body).orders.hangs == (lanes == 2)


RING = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 slot, .param .u64 flags)
{
    .reg .pred %p, %first, %reader;
    .reg .b32 %r<9>;
    .reg .b64 %d<6>;
    mov.u32 %r0, %laneid;
    mov.u32 %r1, %ctaid.x;
    setp.eq.u32 %first, %r0, 0;
    setp.eq.u32 %reader, %r1, 1;
    ld.param.u64 %d0, [slot];
    ld.param.u64 %d1, [flags];
    mad.wide.u32 %d2, %r0, 4, %d0;
    sub.u32 %r2, 31, %r0;
    mad.wide.u32 %d3, %r2, 4, %d0;
    mov.u32 %r3, 0;
    @%reader bra READ;
WRITE:
    @!%first bra FREE;
SPIN:
    ld.acquire.gpu.global.u32 %r4, [%d1+4];
    setp.lt.u32 %p, %r4, %r3;
    @%p bra SPIN;
FREE:
    bar.warp.sync FREED;
    st.global.u32 [%d2], %r3;
    bar.warp.sync -1;
    add.u32 %r3, %r3, 1;
    @%first st.release.gpu.global.u32 [%d1], %r3;
    setp.lt.u32 %p, %r3, 2;
    @%p bra WRITE;
    ret;
READ:
    @!%first bra FULL;
POLL:
    ld.acquire.gpu.global.u32 %r4, [%d1];
    setp.le.u32 %p, %r4, %r3;
    @%p bra POLL;
FULL:
    bar.warp.sync -1;
    ld.global.u32 %r5, [%d3];
    bar.warp.sync -1;
    add.u32 %r3, %r3, 1;
    @%first st.release.gpu.global.u32 [%d1+4], %r3;
    setp.lt.u32 %p, %r3, 2;
    @%p bra READ;
    st.global.u32 [%d3+256], %r5;
    ret;
}"""


@pytest.mark.parametrize(
    ("freed", "rules"), [("-1", set()), ("0x00000001", {"global-race"})]
)
def test_lanes_that_pass_a_barrier_one_after_another_have_met(freed, rules) -> None:
    """Lane 0 waits for the slot, and passes the barrier before those that waited."""
    barrier = f"bar.warp.sync {freed};"
    if freed != "-1":
        barrier = f"@%first {barrier}"
    kernel = ptx.parse(RING.replace("bar.warp.sync FREED;", barrier)).kernels["kernel"]
    memory = np.zeros(128, np.uint32), np.zeros(2, np.uint32)
    found = kernel.launch(2, 32, memory, cooperative=True, orders="all", watch="report")
    assert {each.rule for each in found.problems if each.severity == "error"} == rules
