"""Lanes of a warp that went different ways wait for one another in loops.

Since Volta each lane makes progress by itself: a lane that polls a flag, a lock or an
mbarrier does not keep the lanes of its warp from reaching what it polls for.
"""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import KernelFault
from tests.thinning import some

HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x) {
.reg .pred %p<8>; .reg .b32 %r<20>, %t; .reg .b64 %d<20>;
.shared .align 8 .b8 bar[16]; .shared .align 4 .b32 flag;
ld.param.u64 %d9, [x]; mov.u32 %t, %tid.x;
"""
#: One thread of the block makes an mbarrier for all of them.
INIT = """setp.ne.u32 %p1, %t, 0; @%p1 bra INIT;
mbarrier.init.shared.b64 [bar], COUNT; INIT: bar.sync 0; """
LATE = "mov.u32 %r5, 0; L: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 300; @%p3 bra L;"
ARRIVE = "mbarrier.arrive.shared.b64 %d1, [bar];"
POLL = "mbarrier.test_wait.shared.b64 %p4, [bar], %d1; @!%p4 bra"
LOCK = "atom.acquire.gpu.global.cas.b32 %r1, [%d9], 0, 1; setp.ne.u32 %p2, %r1, 0;"
UNLOCK = "atom.release.gpu.global.exch.b32 %r1, [%d9], 0;"
COUNTED = """ld.volatile.global.u32 %r2, [%d9+4]; add.u32 %r2, %r2, 1;
st.volatile.global.u32 [%d9+4], %r2; """


def flag(lane: int, load: str, store: str, pause: str = "") -> str:
    """All lanes but one poll a word; that one stores it, late and behind the loop."""
    return f"""setp.eq.u32 %p1, %t, {lane}; @%p1 bra SET;
    WAIT: {pause} {load} setp.eq.u32 %p2, %r1, 0; @%p2 bra WAIT; bra DONE;
    SET: {LATE} {store} DONE: ret; }}"""


RIGHT = {
    "volatile in shared memory": flag(
        0, "ld.volatile.shared.u32 %r1, [flag];", "st.volatile.shared.u32 [flag], 1;"
    ),
    "relaxed in global memory": flag(
        31,
        "ld.relaxed.gpu.global.u32 %r1, [%d9];",
        "st.relaxed.gpu.global.u32 [%d9], 1;",
    ),
    "atomic with nanosleep": flag(
        17,
        "atom.shared.or.b32 %r1, [flag], 0;",
        "atom.shared.exch.b32 %r1, [flag], 1;",
        "nanosleep.u32 100;",
    ),
    "the flag is set above the loop": f"""setp.ne.u32 %p1, %t, 5; @%p1 bra WAIT;
    {LATE} st.volatile.shared.u32 [flag], 1; bra DONE;
    WAIT: ld.volatile.shared.u32 %r1, [flag]; setp.eq.u32 %p2, %r1, 0; @%p2 bra WAIT;
    DONE: ret; }}""",
    "a chain: each lane waits for the one before": """
    WAIT: ld.volatile.global.u32 %r1, [%d9+4]; setp.ne.u32 %p2, %r1, %t; @%p2 bra WAIT;
    add.u32 %r1, %r1, 1; st.volatile.global.u32 [%d9+4], %r1; ret; }""",
    "a lock": f"LOCK: {LOCK} @%p2 bra LOCK; {COUNTED} {UNLOCK} ret; }}",
    "a lock, with a branch inside": f"""LOCK: {LOCK} @%p2 bra LOCK;
    setp.gt.u32 %p3, %t, 7; @%p3 bra M; add.u32 %r7, %r7, 1; M: {COUNTED} {UNLOCK}
    ret; }}""",
    "a lock, left to a loop's end": f"""mov.u32 %r7, 0;
    TOP: {LOCK} @%p2 bra TOP; {COUNTED} {UNLOCK} ret; }}""",
    "an if before an mbarrier": f"""{INIT} mov.u32 %r9, 0;
    TOP: setp.gt.s32 %p3, %t, 15; @%p3 bra ON; add.s32 %r7, %t, 1; ON: {ARRIVE}
    POLL: {POLL} POLL; add.s32 %r9, %r9, 1; setp.lt.s32 %p6, %r9, 4; @%p6 bra TOP;
    ret; }}""",
    "some arrive late, behind the others": f"""{INIT} setp.lt.u32 %p3, %t, 16;
    @%p3 bra LOW; {ARRIVE} POLL: {POLL} POLL; bra DONE;
    LOW: {LATE} {ARRIVE} POLL2: {POLL} POLL2; DONE: ret; }}""",
    "some arrive late, before the others": f"""{INIT} setp.gt.u32 %p3, %t, 16;
    @%p3 bra HIGH; {LATE} {ARRIVE} POLL: {POLL} POLL; bra DONE;
    HIGH: {ARRIVE} POLL2: {POLL} POLL2; DONE: ret; }}""",
    "each lane arrives by itself": f"""{INIT} mov.u32 %r5, 0;
    L: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, %t; @%p3 bra L;
    {ARRIVE} POLL: {POLL} POLL; ret; }}""",
    "one arrives for those that are active": f"""{INIT} mov.u32 %r9, 0;
    TOP: setp.gt.s32 %p3, %t, 3; @%p3 bra ON; add.s32 %r7, %t, 1;
    ON: activemask.b32 %r1; match.any.sync.b32 %r2, %r9, %r1; popc.b32 %r3, %r2;
    brev.b32 %r4, %r2; bfind.shiftamt.u32 %r4, %r4; mov.u32 %r6, %laneid;
    setp.ne.u32 %p5, %r4, %r6; mov.u64 %d1, 0; @%p5 bra NOT;
    mbarrier.arrive.shared.b64 %d1, [bar], %r3;
    NOT: mov.b64 {{%r10, %r11}}, %d1; shfl.sync.idx.b32 %r10, %r10, %r4, 31, %r2;
    shfl.sync.idx.b32 %r11, %r11, %r4, 31, %r2; mov.b64 %d1, {{%r10, %r11}};
    POLL: {POLL} POLL; add.s32 %r9, %r9, 1; setp.lt.s32 %p6, %r9, 4; @%p6 bra TOP;
    ret; }}""",
    "lanes that give up": f"""{INIT.replace("COUNT", "1024")} {ARRIVE} mov.u32 %r5, 0;
    POLL: add.u32 %r5, %r5, 1; setp.gt.u32 %p3, %r5, 40; @%p3 bra DONE; {POLL} POLL;
    DONE: ret; }}""",
}
COUNTING = [name for name in RIGHT if "lock" in name or "chain" in name]
WRONG = {
    "one arrival too few": f"{INIT.replace('COUNT', '1024')} {ARRIVE} POLL: {POLL} POLL; ret; }}",
    "two loops": f"""{INIT.replace("COUNT", "1024")} setp.lt.u32 %p3, %t, 16;
    @%p3 bra LOW; {ARRIVE} POLL: {POLL} POLL; bra DONE;
    LOW: {ARRIVE} POLL2: {POLL} POLL2; DONE: ret; }}""",
    "some wait to meet those that poll": f"""{INIT} setp.lt.u32 %p3, %t, 16;
    @%p3 bra LOW; {ARRIVE} POLL: {POLL} POLL; bra DONE;
    LOW: bar.warp.sync -1; {ARRIVE} DONE: ret; }}""",
    "some wait at a barrier": f"""{INIT} setp.lt.u32 %p3, %t, 32; @%p3 bra LOW;
    {ARRIVE} POLL: {POLL} POLL; bra DONE; LOW: barrier.sync 1; {ARRIVE} DONE: ret; }}""",
}


def launch(body: str, threads: int, *, watch: bool) -> np.ndarray:
    x = np.zeros(2, np.uint32)
    text = HEAD + body.replace("COUNT", str(threads))
    made = ptx.parse(text).kernels["k"]
    made.launch(1, threads, [x], watch=watch, limits=ptx.Limits(instructions=3_000_000))
    return x


@pytest.mark.long
@pytest.mark.parametrize("watch", some([True, False], 2))
@pytest.mark.parametrize("name", RIGHT)
def test_every_lane_makes_progress(name: str, watch: bool) -> None:
    """An H200 leaves the same in memory; a flag in global memory stays set."""
    for threads in (32, 64):
        x = launch(RIGHT[name], threads, watch=watch)
        flag_set = int("global" in name)
        assert x.tolist() == [flag_set, threads if name in COUNTING else 0]


@pytest.mark.parametrize("name", WRONG)
def test_a_deadlock_is_still_found(name: str) -> None:
    with pytest.raises(KernelFault, match="deadlock"):
        launch(WRONG[name], 64, watch=True)


def test_lanes_that_nobody_keeps_waiting_stay_together() -> None:
    """A long loop does not let the lanes that have left it run ahead of the others."""
    text = (
        HEAD
        + """
    setp.gt.u32 %p1, %t, 15; @%p1 bra ON; mov.u32 %r5, 0;
    L: add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 1900; @%p3 bra L;
    ON: activemask.b32 %r1; setp.ne.u32 %p2, %t, 20; @%p2 bra DONE;
    st.global.u32 [%d9], %r1; DONE: ret; }"""
    )
    x = np.zeros(1, np.uint32)
    result = ptx.parse(text).kernels["k"].launch(1, 32, [x])
    assert x[0] == 0xFFFFFFFF
    assert result.counts["activemask.b32"] == 1
