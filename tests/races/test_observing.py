"""Fast paths leave the race detector as Python alone leaves it.

The same launch runs with fast paths and without: reports, bits, notes, clocks and the
shadow of shared memory are equal, byte for byte.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fragmenta.engine.units.machine import Machine
from fragmenta.launch import grid
from fragmenta.watch.races import unused_reads
from fragmenta.watch.races.global_watch import GlobalWatch
from fragmenta.watch.races.launch_watch import LaunchWatch
from fragmenta.watch.races.shadow.global_records import FIRST_ID, ID_SHIFT
from fragmenta.watch.races.task_watch import TaskWatch
from fragmenta.watch.races.tmem_shadow import Watch
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import Case, cases
from tests.simt.kernels import kernel
from tests.thinning import some

SCHEDULES = ("eager", "lazy", 1)
ASYNCHRONOUS = [e for e in cases() if running.target(e.row.source) != "sm_80"]
WHOLE = ("maps", "layouts")
"""Sources of which every case runs."""
CASES = [
    *some([each for each in ASYNCHRONOUS if each.row.source not in WHOLE], 15),
    *[each for each in ASYNCHRONOUS if each.row.source in WHOLE],
]


def _named(memory: GlobalWatch) -> list[Any]:
    """The shadow of global memory, with what its records name instead of numbers."""
    found = []
    for shadow in memory.shadows:
        for records in (shadow.writes, shadow.reads):
            several = records >> ID_SHIFT
            entries = memory.table[several]
            entries[several < FIRST_ID] = (0, 0, 0, 0, 0)
            special = np.where(several < FIRST_ID, several, FIRST_ID)
            low = records & (1 << ID_SHIFT) - 1
            found.append((entries.tobytes(), special.tobytes(), low.tobytes()))
    return found


def _tensor(watch: Watch) -> list[Any]:
    """What is known of tensor memory."""
    lists = (watch.writes, watch.reads, watch.commits)
    rows = [each.rows[: each.count].tobytes() for each in lists]
    arrays = (watch.periods, watch.numbers, watch.cells)
    idle = [watch.idle(rank) for rank in range(len(watch.cells))]
    return [*rows, *(each.tobytes() for each in arrays), idle, watch.group]


class Kept:
    """What watches of launches have when they end."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.states: list[Any] = []
        close = LaunchWatch.close

        def closing(watch: LaunchWatch) -> None:
            for observer in watch.observers:
                rows = observer.mbarrier_clocks.rows
                self.states.append(
                    {
                        "notes": {k: list(v) for k, v in observer.history.kept.items()},
                        "last": list(observer.history.notes),
                        "clocks": [
                            observer.order.states(rank).tobytes()
                            for rank in range(observer.order.plan.blocks)
                        ],
                        "mbarriers": {k: v.tobytes() for k, v in rows.items()},
                        "cluster": observer.cluster_clocks.raw[8:].tobytes(),
                        "shadow": observer.shared.memory.tobytes(),
                        "problems": observer.problems.memory.tobytes(),
                        "used": watch.used.tobytes(),
                        "tensor": _tensor(observer.watch),
                        "maps": observer.maps.all,
                    }
                )
            self.states.append({"global": _named(watch.memory)})
            close(watch)

        patch.setattr(LaunchWatch, "close", closing)


def both(run: Callable[[], Any]) -> list[tuple[Any, list[Any]]]:
    """What a launch gives with fast paths and without, and what its watches have."""
    begin, found = Machine.__init__, []
    for fast in (True, False):
        with pytest.MonkeyPatch.context() as patch:

            def made(self: Machine, *given: Any, fast: bool = fast) -> None:
                begin(self, *given)
                self.fast = fast

            patch.setattr(Machine, "__init__", made)
            patch.setattr(grid, "cores", lambda: 1)  # always the same observers
            patch.setattr(unused_reads, "MOST_SHARED", 0)  # it runs once
            kept = Kept(patch)
            found.append((run(), kept.states))
    return found


def same(run: Callable[[], Any]) -> None:
    """Compare a launch with fast paths and without."""
    (fast, states), (alone, others) = both(run)
    assert fast == alone
    assert len(states) == len(others)
    for one, other in zip(states, others, strict=True):
        for name in one:
            assert one[name] == other[name], name


@pytest.mark.long
@pytest.mark.parametrize("case", some(CASES, 2), ids=lambda case: case.name)
def test_fast_paths_leave_the_same(case: Case) -> None:
    schedule = SCHEDULES[zlib.crc32(case.name.encode()) // 7 % len(SCHEDULES)]

    def run() -> Any:
        said, arrays = running.launch(case, schedule)
        return said, running.left(case.row, arrays)

    same(run)


# ── cp.async and the barrier of clusters ────────────────────────────────────

LANES = """
    .shared .align 1024 .b8 tile[8192]; .shared .align 8 .b64 bar;
    setp.eq.u32 %p1, %t, 0; @%p1 mbarrier.init.shared.b64 [bar], 64;
    mov.u32 %r1, tile; ld.param.u64 %rd6, [memory]; xor.b32 %r2, %t, 5;
    shl.b32 %r2, %r2, 4; add.u32 %r1, %r1, %r2; cvt.u64.u32 %rd7, %r2;
    add.u64 %rd6, %rd6, %rd7; mov.u32 %r4, 0; bar.sync 0;
    and.b32 %r5, %t, 3; setp.eq.u32 %p6, %r5, 1; shl.b32 %r5, %r5, 2;
    mov.u32 %r9, %ctaid.x; mul.wide.u32 %rd7, %r9, 1024; add.u64 %out, %out, %rd7;
NEXT:
    cp.async.cg.shared.global [%r1], [%rd6], 16;
    cp.async.ca.shared.global [%r1+1024], [%rd6+8], 8;
    cp.async.commit_group;
    cp.async.ca.shared.global [%r1+2048], [%rd6+512], 4, %p6;
    cp.async.commit_group;
    {0}
    bar.sync 0;
    ld.shared.u32 %r7, [%r1+12]; ld.shared.u32 %r8, [%r1+2048];
    add.u32 %r7, %r7, %r8; mul.wide.u32 %rd8, %t, 4; add.u64 %rd8, %out, %rd8;
    st.global.u32 [%rd8], %r7; add.u64 %out, %out, 256;
    add.u64 %rd6, %rd6, 1024; add.u32 %r4, %r4, 1; bar.sync 0;
    setp.lt.u32 %p5, %r4, 3; @%p5 bra NEXT;
"""
WAIT = """and.b32 %r6, %r4, 1;
WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [bar], %r6; @!%p4 bra WAIT;"""
CLEAN = {
    "groups": "cp.async.wait_group 1; cp.async.wait_group 0;",
    "more groups than there are": "cp.async.wait_group 3; cp.async.wait_group 0;",
    "all": "cp.async.ca.shared.global [%r1+4096], [%rd6], 4; cp.async.wait_all;",
    "an mbarrier": "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];" + WAIT,
}
"""Ways to wait that machine code follows alone."""
OTHERS = {
    "part of a source": """cp.async.ca.shared.global [%r1+3072], [%rd6], 8, %r5;
    cp.async.wait_all;""",
    "nothing": "",
    "too few": "cp.async.wait_group 1;",
    "none of two groups": "cp.async.wait_group 3;",
    "nothing at last": "cp.async.wait_all; cp.async.cg.shared.global [%r1], [%rd6], 16;",
    "more than are kept": "cp.async.commit_group;" * 20 + "cp.async.wait_group 3;",
    "some lanes": "@%p6 cp.async.wait_group 0; cp.async.wait_group 0;",
    "some lanes of a group": """cp.async.wait_group 1;
    @%p6 cp.async.ca.shared.global [%r1+5120], [%rd6], 4;
    @%p6 cp.async.commit_group; cp.async.wait_group 0;""",
    "an mbarrier and groups": CLEAN["an mbarrier"] + "cp.async.wait_group 0;",
    "an mbarrier, and some lanes": CLEAN["an mbarrier"] + "@%p6 cp.async.wait_group 0;",
    "a source that was written": """st.global.u32 [%rd6], %t; bar.sync 0;
    cp.async.ca.shared.global [%r1+3072], [%rd6], 4; cp.async.wait_all;""",
    "a source that others write": """xor.b64 %rd9, %rd6, 16;
    st.global.u32 [%rd9], %t;
    cp.async.ca.shared.global [%r1+3072], [%rd6], 4; cp.async.wait_all;""",
}
"""What is wrong, or what Python looks at."""
WRONG = (
    "nothing",
    "too few",
    "none of two groups",
    "nothing at last",
    "a source that others write",
)


def reports(result: Any) -> str:
    """What is wrong with a launch."""
    found = [each for each in result.hazards if each.severity != "info"]
    return "".join(each.paragraph() for each in found)


def events(patch: pytest.MonkeyPatch) -> list[str]:
    """The events and the copies that Python is asked about."""
    seen: list[str] = []
    call, issue = Machine._call, TaskWatch.issued

    def called(self: Machine, block: int, warp: int, number: int, lanes: int) -> int:
        seen.append(self.events[number].mnemonic)
        return call(self, block, warp, number, lanes)

    def issued(self: TaskWatch, address: int) -> None:
        seen.append("cp.async, issued")
        issue(self, address)

    patch.setattr(Machine, "_call", called)
    patch.setattr(TaskWatch, "issued", issued)
    return seen


@pytest.mark.parametrize("name", some([*CLEAN, *OTHERS], 2))
def test_copies_of_lanes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, clean = events(monkeypatch), name in CLEAN
    used = kernel(LANES.format((CLEAN | OTHERS)[name]), ".param .u64 memory")
    counts, said = [], []

    def run(schedule: str | int, writable: bool) -> Any:
        asked.clear()
        data = np.arange(8192).astype(np.uint8)
        data.flags.writeable = writable or "source that" in name
        out = np.zeros(512, np.uint32)
        blocks = 1 if "source that" in name else 2
        given = [out, data]
        result = used.launch(blocks, 64, given, schedule=schedule, watch="report")
        counts.append(sum(each.startswith("cp.async") for each in asked))
        said.append(reports(result))
        return said[-1], out.tobytes(), data.tobytes()

    for writable in (True, False):
        counts.clear()
        same(lambda writable=writable: run("lazy", writable))
        assert counts[1] > 0
        assert counts[0] == 0 or not clean
        assert not clean or not any(said), said
    counts.clear()
    same(lambda: run("eager", True))
    assert counts[0] == 0 or not clean or name == "an mbarrier"
    same(lambda: run(3, True))
    assert any(said) or name not in WRONG
    assert not any(said) or name != "an mbarrier and groups", said


CLUSTER = """
    .shared .align 8 .b64 bar; .shared .b32 word;
    mov.u32 %r1, %cluster_ctarank; xor.b32 %r2, %r1, 1; mov.u32 %r3, word;
    mapa.shared::cluster.u32 %r4, %r3, %r2; setp.eq.u32 %p1, %t, 0; mov.u32 %r5, 0;
    @%p1 mbarrier.init.shared.b64 [bar], 1;
    fence.mbarrier_init.release.cluster;
    barrier.cluster.arrive{1}.aligned; barrier.cluster.wait.aligned;
    mov.u32 %r6, bar; mapa.shared::cluster.u32 %r7, %r6, %r2;
    @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
    mul.wide.u32 %rd7, %r1, 64; add.u64 %out, %out, %rd7;
NEXT:
    @%p1 st.shared::cluster.u32 [%r4], %r5;
    {0}
    ld.shared.u32 %r8, [word]; mul.wide.u32 %rd8, %t, 4; add.u64 %rd8, %out, %rd8;
    @%p1 st.global.u32 [%rd8], %r8;
    barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
    add.u32 %r5, %r5, 1; setp.lt.u32 %p5, %r5, 6; @%p5 bra NEXT;
"""
MEETINGS = {
    "in order": "barrier.cluster.arrive; barrier.cluster.wait;",
    "relaxed": "barrier.cluster.arrive.relaxed; barrier.cluster.wait;",
    "relaxed after a fence": """fence.acq_rel.cluster;
    barrier.cluster.arrive.relaxed; barrier.cluster.wait;""",
    "some lanes first": """@%p1 barrier.cluster.arrive; @!%p1 barrier.cluster.arrive;
    barrier.cluster.wait;""",
    "none": "",
}


@pytest.mark.parametrize("name", MEETINGS)
@pytest.mark.parametrize("first", ["", ".relaxed"])
def test_barriers_of_clusters(
    name: str, first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, counts = events(monkeypatch), []
    used = kernel(CLUSTER.format(MEETINGS[name], first))

    def run(schedule: str | int) -> Any:
        asked.clear()
        given = [np.zeros(32, np.uint32)]
        result = used.launch(2, 64, given, cluster=2, schedule=schedule, watch="report")
        counts.append(sum("barrier.cluster" in each for each in asked))
        wrong = name in ("relaxed", "none")
        said = reports(result)
        assert bool(said) == wrong, said
        return said

    for schedule in SCHEDULES:
        counts.clear()
        same(lambda schedule=schedule: run(schedule))
        assert counts[0] == 0 < counts[1]
