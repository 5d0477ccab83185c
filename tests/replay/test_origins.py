"""Where a byte comes from: back through copies, to who made it or to the array."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.ptx.hazards.cases import cases
from tests.ptx.test_triton_hopper import recorded as hopper
from tests.replay.kernels import copied
from tests.replay.test_notes import LAUNCHES, _kept
from tests.replay.test_truth import recorded
from tests.thinning import THOROUGH


def value(replay: ptx.Replay, origin: Any) -> int:
    """What a byte held when it was copied, or as it is."""
    if origin.writer is None:
        data, _ = replay.memory_at(-1, origin.memory)
        return int(data[origin.offset])
    found: int = origin.writer.value[origin.offset - origin.writer.offset]
    return found


def followed(replay: ptx.Replay, count: int) -> Counter[tuple[str, ...]]:
    """Follow bytes that units wrote; through which units, and where each way ends.

    A byte that was copied is the byte that it was copied from.
    """
    rng, ways = np.random.default_rng(7), Counter[tuple[str, ...]]()
    columns = replay.columns
    every = np.flatnonzero((columns["w_unit"] >= 0) & (columns["w_size"] > 0))
    for write in rng.choice(every, min(count, every.size), replace=False).tolist():
        memory, first, size, step = (
            int(columns[f"w_{name}"][write])
            for name in ("memory", "offset", "size", "step")
        )
        offset = first + int(rng.integers(size))
        chain = replay.origins(min(step, len(replay) - 1), memory, offset)
        assert len({value(replay, each) for each in chain}) == 1
        kinds = [
            replay.units[each.writer.unit]["kind"]
            for each in chain
            if each.writer is not None and each.writer.unit is not None
        ]
        ways[*kinds, replay.memories[chain[-1].memory].kind] += 1
    return ways


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
def test_a_bulk_copy_has_its_bytes_from_the_array(schedule: str) -> None:
    replay = copied(True, schedule).replay()
    unit = replay.units[0]
    ((memory, start, size),) = unit["writes"]
    step = max(unit["done"], unit["waited"])
    for offset in (0, 5, size - 1):
        here, there = replay.origins(step, memory, start + offset)
        assert here.writer is not None
        assert here.writer.unit == 0
        assert (there.offset, there.writer) == (offset, None)
        assert replay.memories[there.memory].name == "argument 0 (in)"
    before = replay.origins(max(0, unit["issued"] - 1), memory, start)
    assert [each.writer for each in before] == [None]


def test_bytes_in_flight_come_from_nowhere() -> None:
    replay = copied(False, "lazy").replay()
    unit = replay.units[0]
    ((memory, start, _),) = unit["writes"]
    assert unit["issued"] < unit["done"]
    (here,) = replay.origins(unit["issued"], memory, start)
    assert here.writer is not None


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize(
    "name, ways",
    [
        (
            "wgmma, cp.async",
            {("cp.async", "global")},
        ),
        (
            "tcgen05, a pair",
            {("cp.async.bulk.tensor", "global"), ("tcgen05.mma", "tensor")},
        ),
    ],
)
def test_what_is_copied_is_what_was_there(
    name: str, ways: set[tuple[str, ...]], schedule: str
) -> None:
    run = LAUNCHES[name]()
    replay = run(watch=False, replay=True, schedule=schedule).replay()
    assert ways <= {*followed(replay, 150)}


STORED = "matmul_persistent"


@pytest.mark.parametrize("schedule", ["eager", "lazy"] if THOROUGH else ["lazy"])
def test_a_store_by_a_map_has_its_bytes_from_the_tile(schedule: str) -> None:
    """Shared memory is used again before such a store is done, if it may be late."""
    run = _kept(hopper("3.9.0")[STORED], "sm_90a")
    replay = run(watch=False, replay=True, schedule=schedule).replay()
    found = followed(replay, 400)
    assert ("cp.async.bulk.tensor", "global") in found
    assert ("cp.async.bulk.tensor", "shared") in found


COPIES = ("quiet-bytes", "maps-made_map")


@pytest.mark.parametrize("name", [e.name for e in cases()] if THOROUGH else COPIES)
def test_copies_of_hazards(name: str) -> None:
    (case,) = [each for each in cases() if each.name == name]
    for schedule in ("eager", "lazy"):
        followed(recorded(case, schedule)[0].replay(), 60)


def test_a_file_keeps_origins(tmp_path: Any) -> None:
    replay = copied(True, "lazy").replay()
    replay.save(tmp_path / "run.npz")
    kept, last = ptx.Replay.load(tmp_path / "run.npz"), len(replay) - 1
    ((memory, start, _),) = replay.units[0]["writes"]
    assert len(replay.origins(last, memory, start)) == 2
    assert kept.origins(last, memory, start) == replay.origins(last, memory, start)
