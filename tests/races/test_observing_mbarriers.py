"""Fast paths make, use and end mbarriers as Python alone does.

Each program runs with fast paths and without, watched and not: reports, bits, notes,
clocks and shadows are equal.  Lanes of a warp may name different mbarriers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.errors import Error
from fragmenta.watch.races.mbarrier_clocks import ROOM
from tests.races.test_observing import events, reports, same
from tests.simt.kernels import kernel
from tests.thinning import some

BEGIN = """
    .shared .align 8 .b64 bars[{most}]; .shared .align 16 .b8 data[1024];
    mov.u32 %r1, bars; shl.b32 %r2, %t, 3; and.b32 %r3, %t, 31; shl.b32 %r4, %r3, 3;
    add.u32 %r5, %r1, %r4; setp.lt.u32 %p1, %t, {some}; setp.eq.u32 %p2, %t, 0;
    mov.u32 %r6, %cluster_ctarank; xor.b32 %r7, %r6, 1; mov.u32 %r9, 0;
    setp.lt.u32 %p6, %r3, {some};
"""
SYNC = "bar.sync 0;"
EACH = "@%p1 mbarrier.init.shared.b64 [%r5], {count};" + SYNC
WAIT = "{0}: mbarrier.try_wait.parity.shared.b64 %p4, [%r5], {1}; @!%p4 bra {0};"
PEER = "mapa.shared::cluster.u32 %r8, %r5, %r7;"
MEET = "barrier.cluster.arrive; barrier.cluster.wait;"
PROGRAMS = {
    "each lane its own": EACH.replace("{count}", "2")
    + "@%p6 mbarrier.arrive.shared.b64 _, [%r5];"
    + "@%p6 bra L;bra E;L:"
    + WAIT.format("W", 0)
    + "E:"
    + SYNC
    + "@%p1 mbarrier.inval.shared.b64 [%r5];",
    "pairs of lanes": EACH.replace("{count}", "32")
    + "and.b32 %r10, %r4, 0x30; add.u32 %r5, %r1, %r10;"
    + "mbarrier.arrive.shared.b64 _, [%r5];" * 2
    + WAIT.format("W", 0),
    "different counts": EACH.replace("{count}", "900")
    + "add.u32 %r10, %r3, 1; and.b32 %r10, %r10, 3; and.b32 %r4, %r4, 0x18;"
    + "add.u32 %r5, %r1, %r4;"
    + "mbarrier.arrive.shared.b64 %rd9, [%r5], %r10;",
    "bytes": EACH.replace("{count}", "2")
    + "@%p1 mbarrier.expect_tx.relaxed.cta.shared.b64 [%r5], 16;"
    + "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [%r5], 16;"
    + "@%p1 mbarrier.complete_tx.relaxed.cta.shared.b64 [%r5], 32;",
    "one is missing": "@%p2 mbarrier.init.shared.b64 [%r1], 64;"
    + SYNC
    + "@%p6 mbarrier.arrive.shared.b64 _, [%r5];",
    "too many arrivals": EACH.replace("{count}", "1")
    + "mbarrier.arrive.shared.b64 _, [%r1];" * 2,
    "made again": EACH * 2 + "@%p1 mbarrier.arrive.shared.b64 _, [%r5];",
    "ended and made again": (EACH + "@%p1 mbarrier.inval.shared.b64 [%r5];") * 2 + EACH,
    "ended out of order": EACH.replace("{count}", "3")
    + "and.b32 %r10, %t, 2; setp.eq.and.u32 %p5, %r10, 0, %p1;"
    + "@%p5 mbarrier.inval.shared.b64 [%r5];"
    + "@%p5 mbarrier.init.shared.b64 [%r5], 3;"
    + SYNC
    + "@%p1 mbarrier.arrive.noComplete.shared.b64 %rd9, [%r5], 1;",
    "made while it is used": EACH.replace("{count}", "2")
    + "@%p1 mbarrier.arrive.shared.b64 _, [%r5];"
    + EACH.replace("{count}", "2"),
    "ended while it is used": EACH.replace("{count}", "2")
    + "@%p1 mbarrier.arrive.shared.b64 _, [%r5];"
    + "@%p1 mbarrier.inval.shared.b64 [%r5];",
    "used after its end": EACH
    + "@%p2 mbarrier.inval.shared.b64 [%r5];@%p1 mbarrier.arrive.shared.b64 _, [%r5];",
    "written over": EACH
    + "@%p2 st.shared.u32 [%r5], 5;@%p1 mbarrier.inval.shared.b64 [%r5];",
    "read": EACH + "@%p1 ld.shared.u32 %r10, [%r5];",
    "memory of an ended one": EACH
    + "@%p1 mbarrier.inval.shared.b64 [%r5];"
    + SYNC
    + "st.shared.u64 [%r5], %rd9;",
    "not ordered": "@%p1 mbarrier.init.shared.b64 [%r5], 1;"
    "mbarrier.arrive.shared.b64 _, [%r1];",
    "a count of nothing": "@%p2 mbarrier.init.shared.b64 [%r1], 0;",
    "a crooked address": "add.u32 %r5, %r5, 4;" + EACH,
    "outside": "add.u32 %r5, %r5, 400000;" + EACH,
    "the other block": EACH
    + "fence.mbarrier_init.release.cluster;"
    + MEET
    + PEER
    + "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];"
    + "@%p1 bra L;bra E;L:"
    + WAIT.format("W", 0)
    + "E:"
    + MEET,
    "both blocks": EACH.replace("{count}", "2")
    + "fence.mbarrier_init.release.cluster;"
    + MEET
    + "and.b32 %r10, %r3, 1; mapa.shared::cluster.u32 %r8, %r1, %r10;"
    + "setp.lt.u32 %p5, %t, 2;"
    + "@%p5 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];"
    + "mov.u32 %r5, bars;"
    + WAIT.format("W", 0)
    + MEET,
    "without the fence": EACH
    + MEET.replace("arrive", "arrive.relaxed")
    + PEER
    + "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];"
    + MEET,
    "many fences": EACH
    + "fence.mbarrier_init.release.cluster;" * 20
    + MEET
    + PEER
    + "@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];"
    + MEET,
    "registers": "setmaxnreg.inc.sync.aligned.u32 40;"
    "setmaxnreg.dec.sync.aligned.u32 24;",
}
WRONG = {
    "one is missing",
    "too many arrivals",
    "made while it is used",
    "ended while it is used",
    "used after its end",
    "written over",
    "not ordered",
    "a count of nothing",
    "a crooked address",
    "outside",
    "without the fence",
}
ALONE = {
    "each lane its own",
    "pairs of lanes",
    "made again",
    "ended and made again",
    "the other block",
    "both blocks",
    "registers",
}
"""What machine code does alone."""


def _run(name: str, watch: str | bool, schedule: str | int) -> str:
    """What is said about a program."""
    text = (BEGIN + PROGRAMS[name]).replace("{some}", "8").replace("{most}", "32")
    used = kernel(text.replace("{count}", "1"))
    out = np.zeros(64, np.uint32)
    given: dict[str, Any] = {"cluster": 2, "schedule": schedule, "watch": watch}
    try:
        result = used.launch(4, 64, [out], **given)
    except Error as error:
        return str(error)
    return reports(result)


@pytest.mark.long
@pytest.mark.parametrize("name", some(PROGRAMS, 2))
def test_programs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, said = events(monkeypatch), []

    def run(watch: str | bool, schedule: str | int) -> str:
        asked.clear()
        said.append(_run(name, watch, schedule))
        return said[-1]

    for schedule in ("eager", "lazy", 5):
        same(lambda s=schedule: run("report", s))
    same(lambda: run(False, "lazy"))
    assert any(said) == (name in WRONG), said
    said.clear()
    run("report", "lazy")
    others = [each for each in asked if not each.startswith("apart")]
    assert (name in ALONE) <= (others == []), others


def test_more_mbarriers_than_have_clocks_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Python gives clocks to those for which there is no room."""
    asked = events(monkeypatch)
    text = (
        BEGIN
        + """
    add.u32 %r5, %r1, %r2; mbarrier.init.shared.b64 [%r5], 2; bar.sync 0;
    xor.b32 %r2, %r2, 8; add.u32 %r8, %r1, %r2; mbarrier.arrive.shared.b64 _, [%r8];
    mbarrier.arrive.shared.b64 _, [%r5];"""
        + WAIT.format("W", 0)
    )
    used = kernel(text.replace("{some}", "8").replace("{most}", "96"))
    inits = []

    def run() -> Any:
        asked.clear()
        out = np.zeros(64, np.uint32)
        result = used.launch(2, 96, [out], cluster=2, watch="report")
        inits.append(sum("init" in each for each in asked))
        return reports(result)

    same(run)
    assert inits[0] == 2 * 96 - 2 * ROOM
