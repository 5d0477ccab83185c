"""Values that one lane finds and others are told: no order is made up for the others.

What the others do is known of the recorded run only.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.launch.orders.programs import _spelled
from fragmenta.watch.orders.program import Agent, Events

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.entry k(.param .u64 words, .param .u64 data)
{
    .reg .pred %lane, %q, %z;
    .reg .b32 %i, %w, %old, %r<8>;
    .reg .b64 %words, %data, %at;
    .shared .b32 drawn;
    ld.param.u64 %words, [words];
    ld.param.u64 %data, [data];
    mov.u32 %i, %tid.x;
    shr.u32 %w, %i, 5;
    and.b32 %r0, %i, 31;
    setp.ne.u32 %lane, %r0, 0;
    mov.u32 %old, 0;
"""
TICKET = """
    // The block that draws 0 calls all others, which wait for that.
    @%lane bra TELL;
    atom.global.add.u32 %old, [%words], 1;
TELL:
    TOLD
    @%q bra WAIT;
    @%lane ret;
    st.release.gpu.global.u32 [%words+4], 1;
    ret;
WAIT:
    ld.acquire.gpu.global.u32 %r1, [%words+4];
    setp.eq.u32 %z, %r1, 0;
    @%z bra WAIT;
    ret;
}
"""
TOLD = {
    "shfl": "shfl.sync.idx.b32 %r2, %old, 0, 31, -1; setp.ne.u32 %q, %r2, 0;",
    "vote": "setp.ne.u32 %q, %old, 0; vote.sync.any.pred %q, %q, -1;",
    "ballot": (
        "setp.ne.u32 %q, %old, 0; vote.sync.ballot.b32 %r2, %q, -1;"
        "setp.ne.u32 %q, %r2, 0;"
    ),
    "redux": "redux.sync.max.u32 %r2, %old, -1; setp.ne.u32 %q, %r2, 0;",
    "match": "match.all.sync.b32 %r2|%q, %old, -1; not.pred %q, %q;",
    "bar.red": "setp.ne.u32 %q, %old, 0; bar.red.or.pred %q, 0, %q;",
    "popc": (
        "setp.ne.u32 %q, %old, 0; bar.red.popc.u32 %r2, 0, %q; setp.ne.u32 %q, %r2, 0;"
    ),
    "shared memory": (
        "@!%lane st.shared.u32 [drawn], %old; bar.sync 0;"
        "ld.shared.u32 %r2, [drawn]; setp.ne.u32 %q, %r2, 0;"
    ),
}


def explored(text: str, blocks: int, threads: int = 32) -> Any:
    """All orders of a kernel, and what they show."""
    arrays = [np.zeros(1024, np.uint32) for _ in range(2)]
    kernel = ptx.parse(HEAD + text).kernels["k"]
    together = blocks > 1
    how: dict[str, Any] = {"orders": "all", "watch": "report"}
    return kernel.launch(blocks, threads, arrays, cooperative=together, **how)


def kept(result: Any) -> bool:
    """Whether only the recorded values were followed, and nothing was found."""
    assert not [each for each in result.problems if each.severity == "error"]
    assert not result.orders.hangs
    told = any(each.endswith("threads are told it") for each in result.orders.reasons)
    return told and result.orders.verdict == "incomplete"


@pytest.mark.parametrize("tell", TOLD)
def test_a_ticket_that_the_warp_is_told(tell: str) -> None:
    """The other lanes would stay on the way of another ticket, and wait for ever."""
    assert kept(explored(TICKET.replace("TOLD", TOLD[tell]), 2))


LOCK = """
    // Lane 0 takes a lock, and tells the warp when it has it.
AGAIN:
    mov.u32 %old, 1;
    @%lane bra TELL;
    atom.acquire.gpu.global.cas.b32 %old, [%words], 0, 1;
TELL:
    shfl.sync.idx.b32 %r1, %old, 0, 31, -1;
    setp.ne.u32 %q, %r1, 0;
    @%q bra AGAIN;
    bar.warp.sync -1;
    @%lane ret;
    atom.release.gpu.global.exch.b32 %old, [%words], 0;
    ret;
}
"""
POLL = """
    // Lane 0 of block 1 looks for a flag of block 0, and the warp votes.
    mov.u32 %r1, %ctaid.x;
    setp.ne.u32 %q, %r1, 0;
    @%q bra AGAIN;
    @%lane ret;
    st.release.gpu.global.u32 [%words], 1;
    ret;
AGAIN:
    mov.u32 %old, 0;
    @%lane bra TELL;
    ld.acquire.gpu.global.u32 %old, [%words];
TELL:
    setp.ne.u32 %q, %old, 0;
    vote.sync.any.pred %q, %q, -1;
    @!%q bra AGAIN;
    ret;
}
"""


@pytest.mark.parametrize("text", [LOCK, POLL], ids=["a lock", "a flag"])
def test_a_loop_that_a_told_value_ends(text: str) -> None:
    """No lane is kept in it for ever."""
    assert kept(explored(text, 2))


TURNS = """
    // One lane of each warp draws; the last one reads what the others wrote.
    mul.wide.u32 %at, %i, 4;
    add.u64 %at, %at, %data;
    @%lane ret;
    st.global.u32 [%at], 1;
    membar.gl;
    atom.global.add.u32 %old, [%words], 1;
    membar.gl;
    setp.ne.u32 %q, %old, 7;
    @%q bra DONE;
    ld.global.u32 %r1, [%data];
    ld.global.u32 %r1, [%data+128];
DONE:
    ret;
}
"""


def test_warps_of_one_block_that_are_not_tried_race_with_nobody() -> None:
    """What was taken as in the recorded run is compared in that order only."""
    result = explored(TURNS, 1, 256)
    assert [each for each in result.problems if each.severity == "error"] == []
    assert result.orders.verdict == "incomplete"
    assert "8 warps use it, more than 4" in result.orders.reasons[0]
    assert result.orders.states < 200


def test_agents_are_compared_however_deep_their_steps_are() -> None:
    """A loop that finds values again and again has a branch for each."""
    steps = [Events()]
    for _ in range(5_000):
        steps.append(Events([], {0: steps[-1]}))
    agent, other = (Agent("a", 0, 32, each) for each in steps[-2:])
    assert _spelled(agent) != _spelled(other)


INVALID = """
    // Warp 0 makes an mbarrier invalid, and warp 1 may still have to wait for it.
    .shared .b64 full;
    .reg .b64 %state;
    setp.ne.u32 %lane, %i, 0;
    @!%lane mbarrier.init.shared.b64 [full], 1;
    bar.sync 0;
    @!%lane mbarrier.arrive.shared.b64 %state, [full];
WAIT:
    mbarrier.test_wait.parity.shared.b64 %q, [full], 0;
    @!%q bra WAIT;
    @!%lane mbarrier.inval.shared.b64 [full];
    ret;
}
"""


def test_what_the_recorded_run_does_wrong_is_an_error() -> None:
    """It is one of the orders, and another schedule may hide it."""
    result = explored(INVALID, 1, 64)
    said = [each.message for each in result.problems if each.rule == "mbarrier"]
    assert any("where no mbarrier was initialised" in each for each in said)
    assert not result.orders.clean
