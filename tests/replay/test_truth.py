"""A record says what the engine held and when: also in flight, also in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt.layout import POISON
from fragmenta.engine.tracing import log
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import Case, cases
from tests.replay.ending import Ending, differences, endings
from tests.replay.kernels import HEAD
from tests.thinning import THOROUGH, repeats

SHARED = "shared memory of block 0"
EVERY = {each.name: each for each in cases()}


def recorded(case: Case, schedule: str) -> tuple[ptx.Result, Ending, list[Any]]:
    """A launch of a hazard, what its recorded cluster held at its end, its arrays."""
    row, given = case.row, running.made(case.row)
    strict = row.source in running.STRICT
    options: dict[str, Any] = {"cluster": row.cluster} if row.cluster > 1 else {}
    with endings() as found:
        made = running.loaded(row.source, case.bug).kernels[row.entry]
        result = made.launch(
            row.grid,
            row.block,
            running.for_launch(row, given),
            schedule=schedule,
            watch=ptx.Watch("report", strict=strict),
            replay=True,
            limits=ptx.Limits(instructions=2_000_000),
            **options,
        )
    (stepped,) = result.steps
    (ending,) = [each for each in found if each.told is stepped.told]
    return result, ending, given


KNOWN = (
    "products-forgotten_product-1",
    "products-some_threads-2",
    "barriers-forgotten_load-1",
    "quiet-bytes",
    "maps-made_map",
)
"""Hazards whose records were not true once; a thorough run takes all."""


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("name", EVERY if THOROUGH else KNOWN)
def test_a_record_ends_with_what_the_engine_held(name: str, schedule: str) -> None:
    result, ending, _ = recorded(EVERY[name], schedule)
    assert not differences(result.replay(), ending, result.steps[0])


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_a_product_that_nobody_waits_for_has_its_sums(schedule: str) -> None:
    right, _, (_, _, sums) = recorded(EVERY["products-forgotten_product"], schedule)
    result, _, _ = recorded(EVERY["products-forgotten_product-1"], schedule)
    replay, wanted = result.replay(), right.replay()
    (unit,) = [each for each in replay.units if each["kind"] == "wgmma.mma_async"]
    d = [replay.registers[each].name for each in replay.sites[unit["site"]].writes]
    last, issued = len(replay) - 1, unit["issued"]
    for warp in range(4):
        shown = replay.registers_at(last, warp)
        there = wanted.registers_at(len(wanted) - 1, warp)
        assert all((shown[name] == there[name]).all() for name in d)
        assert any(shown[name].any() for name in d)
        early = replay.registers_at(issued, warp)[d[0]].view(np.uint32)
        assert (early == POISON).all() == (schedule == "lazy")
    assert unit["done"] == (last if schedule == "lazy" else issued)
    assert sums.any()


def issues(replay: ptx.Replay, unit: Any) -> list[int]:
    """The steps at which the warps of a warpgroup issue a product."""
    site, own = unit["site"], replay.warps[unit["warp"]]
    group = [
        number
        for number, each in enumerate(replay.warps)
        if each.block == own.block and each.warp // 4 == own.warp // 4
    ]
    before = [
        each["site"] == site and each["warp"] in group
        for each in replay.units[: replay.units.index(unit)]
    ]
    found = []
    for warp in group:
        mine = replay.steps_of_warp(warp)
        found.append(int(mine[replay.steps.site[mine] == site][sum(before)]))
    return found


# Every product, schedule and size occurs.
@repeats(together=1)
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("schedule", ["eager", "lazy", 3])
@pytest.mark.parametrize("name", ["products-fences", "products-a_in_registers"])
def test_a_product_is_done_after_its_last_warp_has_issued_it(
    name: str, schedule: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if small:  # the log is emptied every 64 steps
        rooms = [(*e[:3], 64 if e[4] == 4 else e[3], e[4]) for e in log._ROOMS]
        monkeypatch.setattr(log, "_ROOMS", tuple(rooms))
    result, ending, _ = recorded(EVERY[name], schedule)
    replay = result.replay()
    products = [each for each in replay.units if each["kind"] == "wgmma.mma_async"]
    assert products
    for unit in products:
        steps = issues(replay, unit)
        assert len(steps) == 4
        assert max(steps) == unit["issued"] <= unit["done"] <= unit["waited"]
        names = [replay.registers[n].name for n in replay.sites[unit["site"]].writes]
        for step in steps:
            warp = int(replay.steps.warp[step])
            now, before, after = (
                replay.registers_at(at, warp)
                for at in (step, step - 1, max(unit["done"], unit["issued"]))
            )
            for each in names:
                if step < unit["done"]:  # nothing is there before it was computed
                    held = now[each].view(np.uint32)
                    same = (held == before[each].view(np.uint32)).all()
                    assert same or (held == POISON).all()
                assert not (after[each].view(np.uint32) == POISON).all()
    assert not differences(replay, ending, result.steps[0])


def test_bytes_in_flight_are_what_loads_see() -> None:
    """A load before the copy has arrived: the record and the register agree."""
    result, _, _ = recorded(EVERY["barriers-forgotten_load-1"], "lazy")
    replay = result.replay()
    unit = next(each for each in replay.units if each["writes"])
    memory, start, size = unit["writes"][0]
    data, state = replay.memory_at(unit["issued"], memory)
    assert (state[start : start + size] == 2).all()
    assert (data[start : start + size].view(np.uint32) == POISON).all()
    wrote = replay.writer(unit["issued"], memory, start)
    assert wrote is not None
    assert wrote.unit == replay.units.index(unit)
    after, state = replay.memory_at(unit["done"], memory)
    assert (state[start : start + size] == 1).all()
    assert (after[start : start + size] != data[start : start + size]).any()


CALLED = """
.func (.reg .u32 %sum) added(.reg .u32 %x, .reg .u32 %y)
{
    add.u32 %sum, %x, %y;
    mov.u32 %x, 7;
    ret;
}
.visible .entry calls(.param .u64 out)
{
    .reg .u32 %r<4>; .reg .u64 %rd<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    CALL
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd2, %rd1, %rd2;
    st.global.u32 [%rd2], %r2;
    ret;
}
"""
BY_ADDRESS = """.reg .u64 %to; mov.u64 %to, added;
    proto: .callprototype (.reg .u32 _) _ (.reg .u32 _, .reg .u32 _);
    call (%r2), %to, (%r1, 40), proto;"""


@pytest.mark.parametrize("call", ["call (%r2), added, (%r1, 40);", BY_ADDRESS])
def test_a_call_writes_the_registers_that_it_passes(call: str) -> None:
    out = np.zeros(32, np.uint32)
    run = ptx.parse(HEAD + CALLED.replace("CALL", call)).kernels["calls"].launch
    replay = run(1, 32, [out], watch=False, replay=True).replay()
    lanes = np.arange(32)
    assert (out == 40 + lanes).all()
    called, returned = (
        step
        for step in range(len(replay))
        if replay.sites[replay.steps.site[step]].opcode == "call"
    )
    given = replay.registers_at(called, 0, "added")
    assert (given["%x"] == lanes).all()
    assert (given["%y"] == 40).all()
    assert (replay.registers_at(returned, 0, "added")["%x"] == 7).all()
    assert (replay.registers_at(returned, 0, "calls")["%r2"] == 40 + lanes).all()


NARROW = """
.visible .entry narrow()
{
    .reg .u32 %r<4>; .reg .u64 %rd<4>; .reg .b128 %q<2>;
    .shared .align 16 .b8 tile[512];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    add.u32 %r3, %r2, %r1;
    STORE
    ret;
}
"""


@pytest.mark.parametrize(
    "store, wanted",
    [
        ("st.shared.u8 [%r3], %r1;", np.arange(32, dtype=np.uint8)),
        (
            "shl.b32 %r3, %r1, 1; add.u32 %r3, %r2, %r3; st.shared.u16 [%r3], %r1;",
            np.arange(32, dtype=np.uint16),
        ),
        (
            "shl.b32 %r3, %r1, 3; add.u32 %r3, %r2, %r3;"
            "st.shared.v2.u32 [%r3], {%r1, %r2};",
            np.array([[n, 1024] for n in range(32)], np.uint32),
        ),
    ],
)
def test_stores_of_any_width_have_their_bytes(store: str, wanted: Any) -> None:
    text = HEAD + NARROW.replace("STORE", store)
    run = ptx.parse(text).kernels["narrow"].launch
    replay = run(1, 32, [], watch=False, replay=True).replay()
    data = replay.memory_at(len(replay) - 1, SHARED)[0][1024:]
    assert data[: wanted.nbytes].tobytes() == wanted.tobytes()


def test_mbarriers_have_the_names_of_reports() -> None:
    result, _, _ = recorded(EVERY["barriers-forgotten_load-1"], "lazy")
    named = [each["name"] for each in result.replay().barriers if "phases" in each]
    assert named
    assert all("+" not in each or "+0x" in each for each in named)
    said = " ".join(each.message for each in result.problems)
    assert any(each in said for each in named)


# ── which cluster ───────────────────────────────────────────────────────────

LATER = """
.visible .entry later(.param .u64 out)
{
    .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<2>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 64, %r1;
    mul.wide.u32 %rd2, %r3, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r4, [%rd3];
    shl.b32 %r5, %r1, 2;
    mov.u32 %r6, tile;
    add.u32 %r5, %r5, %r6;
    st.shared.u32 [%r5], %r4;
    setp.eq.u32 %p1, %r2, 5;
    @%p1 bra on;
    bar.sync 0;
on:
    xor.b32 %r5, %r5, 128;
    ld.shared.u32 %r7, [%r5];
    add.u32 %r7, %r7, %r2;
    st.global.u32 [%rd3], %r7;
    ret;
}
"""
"""Two warps of each block exchange words, which block 5 does without a barrier."""


def later(**options: Any) -> tuple[ptx.Result, Any]:
    out = np.arange(64 * 8, dtype=np.uint32)
    run = ptx.parse(HEAD + LATER).kernels["later"].launch
    return run(8, 64, [out], watch="report", **options), out


@pytest.mark.parametrize("schedule", ["eager", "lazy+oldest-waits"])
def test_the_cluster_with_a_problem_is_recorded(schedule: str) -> None:
    plain, left = later(schedule=schedule)
    result, out = later(schedule=schedule, replay=True)
    assert (out == left).all()
    assert result.counts == plain.counts
    assert [each.rule for each in result.problems] == [
        each.rule for each in plain.problems
    ]
    replay = result.replay()
    assert {each.block for each in replay.warps} == {5}
    steps = replay.problems[0]["steps"]
    opcodes = [replay.sites[replay.steps.site[each]].opcode for each in steps]
    assert sorted(opcodes) == ["ld.shared.u32", "st.shared.u32"]
    memory = replay.memory_at(-1, "argument 0 (out)")[0].view(np.uint32)
    assert (memory[64 * 5 :] == np.arange(64 * 5, 64 * 8)).all()
    ended = replay.memory_at(len(replay) - 1, "argument 0 (out)")[0].view(np.uint32)
    assert (ended[64 * 5 : 64 * 6] == out[64 * 5 : 64 * 6]).all()


def test_blocks_that_are_asked_for_are_recorded() -> None:
    result, out = later(replay=ptx.Window(blocks=(2, 6)))
    replay = result.replay()
    assert sorted({each.block for each in replay.warps}) == [2, 6]
    ended = replay.memory_at(len(replay) - 1, "argument 0 (out)")[0].view(np.uint32)
    for block in (2, 6):
        own = slice(64 * block, 64 * block + 64)
        assert (ended[own] == out[own]).all()
