"""Grouped products: one launch for all experts, whatever their shares are.

``make hopper`` runs all launches in all schedules, ``make test`` a few.
"""

import json
import os
from dataclasses import replace

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_ptx
from fragmenta.errors import BadCall, ShapeError
from fragmenta.hopper.kernels.arguments import geometry
from fragmenta.hopper.kernels.config import MOST_EXPERTS
from fragmenta.hopper.kernels.source import TARGET
from fragmenta.kernels import Kernel, Tile
from tests.ptx.hopper import judging, launching
from tests.ptx.hopper.gemms import short_hash
from tests.ptx.hopper.grouped import GROUPED, Grouped, grouped, subject
from tests.ptx.hopper.record import GROUPED_FILE, recorded
from tests.thinning import some

COMPLETE = bool(os.environ.get("FRAGMENTA_HOPPER"))
LAUNCHES = GROUPED if COMPLETE else [GROUPED[3], GROUPED[7]]
SCHEDULES = ("eager", "lazy", 1) if COMPLETE else ("lazy",)
NARROW = Kernel("e4m3", out="bf16", tile=Tile(64, 8), transposed=True, grouped=True)

MISTAKES = {
    "bool whole = col + (s + 1) * COLUMNS <= edge.end;": "bool whole = true;",
    "if (col + c >= edge.end || first": "if (first",
    "|| first >= edge.width) continue;": ") continue;",
    "spot.end = all.bounds[spot.expert + 1];": "spot.end = n;",
    "spot.col = all.bounds[spot.expert];": "spot.col = 0;",
    "(max(end[i] - before, 0) + TILE_N - 1) / TILE_N": "(end[i] - before) / TILE_N",
    "int group = spot.expert *": "int group = 0 *",
    "min(max(((const volatile int*)ends)[expert], 0), tokens)": "ends[expert]",
    "__syncthreads();\n\n    Tiles": "__syncwarp();\n\n    Tiles",
}
"""Statements of the source, and what a mistake would be; each of them is seen."""
TRIED = list(MISTAKES) if COMPLETE else some(list(MISTAKES), 3)
SEEN = {"do not wait at try_wait": "rule", "remove bar.sync": "rule"}
"""Changes of the synchronisation that are tried, and what shows them."""


def names(launches: list[Grouped]) -> list[str]:
    return [each.name for each in launches]


def test_every_kind_is_there():
    kernels = [each.kernel for each in GROUPED]
    assert len(set(names(GROUPED))) == len(GROUPED) >= 16
    assert {each.out for each in kernels} == {"f32", "bf16", "f16"}
    assert {each.a for each in kernels} >= {"bf16", "e4m3", "f16", "e5m2", "tf32", "s8"}
    assert {each.tile.split for each in kernels} >= {1, 2, 4}
    assert {each.tile.cluster for each in kernels} == {1, 2}
    counts = [each.counts for each in GROUPED]
    assert any(0 in each for each in counts)
    assert any(sum(each.counts) < each.n for each in GROUPED)


def test_the_emulation_has_the_bits_of_an_h200():
    assert "H200" in json.loads(GROUPED_FILE.read_text())["made"]["gpu"]
    kept = recorded(GROUPED_FILE)
    assert list(kept) == names(GROUPED)
    for each in GROUPED if COMPLETE else some(GROUPED, 4):
        found = (each.digest(), short_hash(each.expected))
        assert found == (kept[each.name].inputs, kept[each.name].rows)


@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("launch", LAUNCHES, ids=names(LAUNCHES))
def test_a_launch_leaves_the_bytes_of_the_emulation(launch, schedule):
    found = launching.launch(launch, schedule=schedule, watch="report")
    assert found.right(launch)
    assert short_hash(found.d.buffer) == recorded(GROUPED_FILE)[launch.name].buffer
    assert not [str(each) for each in found.result.problems if each.severity == "error"]


@pytest.mark.parametrize("counts", [(0, 0, 0), (0, 1, 0, 9)])
def test_any_shares_work(counts):
    launch = grouped(NARROW, 1, counts)
    assert launching.launch(launch, schedule="lazy", watch=False).right(launch)


def test_bounds_that_make_no_sense_write_nothing_outside():
    launch = grouped(NARROW, 1, (3, 2, 6))
    memory = launch.memory()
    for ends in ([-5, 99, 7], [7, 3, 11], [2**31 - 1] * 3, [-(2**31)] * 3):
        made = replace(memory, ends=np.array(ends, np.int32))
        kernel = ptx.parse(launch.text).kernels[launching.ENTRY]
        given = launching.given(launch, made)
        shape = launch.geometry
        kernel.launch(shape.grid, shape.block, given, shared=shape.shared, watch=False)


# ── mistakes ────────────────────────────────────────────────────────────────


@pytest.mark.long
@pytest.mark.parametrize("statement", TRIED)
def test_a_mistake_is_seen(statement):
    launch = grouped(NARROW, 1, (3, 0, 12, 1))
    assert launch.source.count(statement) == 1
    wrong = launch.source.replace(statement, MISTAKES[statement])
    text = to_ptx(wrong, TARGET, "-lineinfo", compiler="nvrtc")
    memory = launch.memory()
    if "tokens)" in statement:  # shows only with an end beyond the tokens
        memory = replace(memory, ends=memory.ends + np.int32([0, 0, 0, 50]))
    kernel, shape = ptx.parse(text).kernels[launching.ENTRY], launch.geometry
    try:
        result = kernel.launch(
            shape.grid,
            shape.block,
            launching.given(launch, memory),
            shared=shape.shared,
            schedule="lazy",
            watch="report",
        )
    except ptx.KernelFault:
        return
    serious = [each for each in result.problems if each.severity == "error"]
    right = memory.d.inside.tobytes() == launch.expected.tobytes()
    assert serious or not right or (memory.d.buffer[:, memory.d.width :] != 0xA5).any()


@pytest.mark.long
def test_mutants_are_seen():
    small = subject(NARROW)
    if not COMPLETE:
        small = replace(small, launches=small.launches[:1])
    listed = judging.one_of_each(small.mutants())
    if not COMPLETE:
        kinds = {each.change: each for each in reversed(listed)}
        listed = [kinds[each] for each in SEEN]
    table = judging.run_mutants(small, ("lazy",), listed)
    first = {each.mutant.change: each.way for each in reversed(table)}
    assert {change: first[change] for change in SEEN} == SEEN
    assert not COMPLETE or sum(each.caught for each in table) > len(table) // 2


# ── what is refused ─────────────────────────────────────────────────────────


def test_what_a_grouped_kernel_cannot_be():
    with pytest.raises(BadCall, match="sparse weights, and D is stored transposed"):
        Kernel("bf16", grouped=True)
    with pytest.raises(ShapeError, match="takes no turns"):
        replace(NARROW, tile=Tile(64, 64, turns=True))
    with pytest.raises(ShapeError, match=f"1 to {MOST_EXPERTS} experts; given 0"):
        geometry(NARROW, 64, 8, 64, 1)
    with pytest.raises(ShapeError, match="is not grouped, but 3 experts"):
        geometry(replace(NARROW, grouped=False), 64, 8, 64, 1, 3)
