"""Fast paths observe boxes as Python alone does: multicasts, maps, edges of tensors.

Each launch runs with fast paths and without: reports, bits, notes, clocks and shadows
are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt import layout
from fragmenta.reference.shared.tensor_map import TensorMap
from fragmenta.watch.races.definedness_watch import DefinedWatch
from tests.races.test_observing import events, reports, same
from tests.simt.kernels import kernel
from tests.thinning import some
from tests.units.test_fast_copies import CLUSTER

SCHEDULES = ("eager", "lazy", 3)

# ── multicasts ──────────────────────────────────────────────────────────────

LATE = "mov.u32 %r2, tile; mov.u32 %r3, bar;"
MULTICASTS = {
    "in order": CLUSTER,
    "not waited for": CLUSTER.replace("@!%p4 bra WAIT;", ""),
    "phases that differ": CLUSTER.replace(
        LATE, "@%p6 mbarrier.arrive.shared.b64 _, [bar];" + LATE
    ).replace("and.b32 %r8, %r4, 1;", "add.u32 %r8, %r4, %r1; and.b32 %r8, %r8, 1;"),
    "mbarriers in another order": CLUSTER.replace(
        "@%p1 mbarrier.init.shared.b64 [bar], 1;",
        "@%p6 mbarrier.init.shared.b64 [tile], 1;"
        "@%p1 mbarrier.init.shared.b64 [bar], 1; @%p6 mbarrier.inval.shared.b64 [tile];",
    ),
}
ALONE = ("in order", "not waited for")
"""Multicasts that machine code observes alone."""


@pytest.mark.long
@pytest.mark.parametrize("name", MULTICASTS)
def test_multicasts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, counts, said = events(monkeypatch), [], []
    used = kernel(MULTICASTS[name], ".param .align 64 .b8 map[128], .param .u64 memory")
    data = np.random.default_rng(4).integers(0, 256, (40, 64), np.uint8)
    data = data.repeat(2, 1).view(np.uint16)

    def run(schedule: str | int) -> Any:
        asked.clear()
        out = np.zeros(4 * 2 * 2048, np.uint32)
        given = [out, ptx.tensor_map(data, (8, 64), swizzle=128), data.copy()]
        result = used.launch(2, 32, given, cluster=2, schedule=schedule, watch="report")
        counts.append(asked.count("cp.async, issued"))
        said.append(reports(result))
        return said[-1], out.tobytes()

    for schedule in SCHEDULES:
        counts.clear()
        same(lambda schedule=schedule: run(schedule))
        # Four exchanges between blocks are Python's, and so is the first use of a map.
        if schedule == "lazy":
            assert (counts[0] == 4) == (name in ALONE), counts
    assert any("not waited" not in name or "arriv" in each for each in said)


# ── maps in memory, and the edges of tensors ────────────────────────────────

BOXES = """
    .shared .align 1024 .b8 tile[8192]; .shared .align 8 .b64 bar;
    setp.eq.u32 %p1, %t, 0; setp.eq.u32 %p3, %t, 5; mov.u32 %r1, tile; mov.u32 %r2, bar; mov.u32 %r9, 0;
    @%p1 mbarrier.init.shared.b64 [bar], 1;
    ld.param.u64 %rd2, [map]; ld.param.u32 %r3, [column]; ld.param.u32 %r4, [row];
    ld.param.u32 %r8, [wide];
    bar.sync 0;
    {before}
    mad.lo.u32 %r5, %t, 144, %r1; mov.u32 %r6, 0;
FILL: add.u32 %r7, %r5, %r6; st.shared.u32 [%r7], %t;
    add.u32 %r6, %r6, 4; setp.lt.u32 %p2, %r6, %r8; @%p2 bra FILL;
    fence.proxy.async; bar.sync 0;
    @%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group
        [%rd2, {{%r3, %r4}}], [%r1];
    @%p1 cp.async.bulk.commit_group;
    @%p1 cp.async.bulk.wait_group 0;
    bar.sync 0;
    {after}
"""
LOAD = """
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 4608;
    @%p1 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r1], [%rd2, {%r3, %r4}], [%r2];
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [bar], %r9; @!%p4 bra WAIT;
    bar.sync 0;
"""
CHANGE = "@%p1 ld.global.u32 %r10, [%rd2]; @%p1 st.global.u32 [%rd2], %r10;"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.sys [%rd2], 128;"
PARTS = {
    "a load": ("", LOAD),
    "nothing else": ("", ""),
    "the map is stored to": (CHANGE + "bar.sync 0;", ""),
    "the map is stored to and acquired": (CHANGE + "bar.sync 0;" + ACQUIRE, ""),
    "the map is stored to by another thread": (CHANGE.replace("p1", "p3"), ""),
    "the map is read": ("ld.global.u32 %r10, [%rd2];", LOAD),
    "the map is stored to later": ("", CHANGE),
}
WIDE = {"whole rows": 144, "what is inside": 128, "less": 96}
PLACES = {"inside": (0, 0), "the lower edge": (0, 80), "the right edge": (64, 90)}


@pytest.mark.long
@pytest.mark.parametrize("name", some(PARTS, 2))
@pytest.mark.parametrize("wide", WIDE)
def test_boxes(name: str, wide: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A box of 72 columns; the tensor has 64, or 128, of which one box has a part."""
    asked, again = events(monkeypatch), []
    begin = DefinedWatch.__init__
    monkeypatch.setattr(
        DefinedWatch, "__init__", lambda *given: again.append(1) or begin(*given)
    )
    before, after = PARTS[name]
    text = BOXES.format(before=before, after=after)
    more = ".param .u64 map, .param .u32 column, .param .u32 row, .param .u32 wide"
    used, counts = kernel(text, more), []

    def run(place: tuple[int, int], schedule: str | int, columns: int) -> Any:
        asked.clear()
        out = np.zeros((100, columns), np.uint16)
        where = layout.FIRST_ARGUMENT << layout.SLOT_BITS
        made = TensorMap("u16", (columns, 100), (2 * columns,), (72, 32), address=where)
        map_ = np.frombuffer(made.encode(), np.uint8).copy()
        given = [out, map_, *place, WIDE[wide]]
        result = used.launch(1, 32, given, schedule=schedule, watch="report")
        counts.append(asked.count("cp.async, issued"))
        return reports(result), out.tobytes()

    for place in PLACES.values():
        columns = 128 if place[0] else 64
        same(lambda p=place, c=columns: run(p, "lazy", c))
    for schedule in ("eager", 3):
        same(lambda s=schedule: run((0, 0), s, 64))
    again.clear()
    counts.clear()
    said = run((0, 0), "lazy", 64)[0]
    assert ("uninitialised" in said) == (wide == "less")
    assert bool(again) == (wide == "less")
    assert counts == [1], "Python looks at the first copy alone that uses a map"
