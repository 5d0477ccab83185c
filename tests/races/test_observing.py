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

from fragmenta.launch import grid
from fragmenta.races.global_watch import GlobalWatch
from fragmenta.races.launch_watch import LaunchWatch
from fragmenta.races.shadow.global_records import FIRST_ID, ID_SHIFT
from fragmenta.units.machine import Machine
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import Case, cases
from tests.thinning import some

SCHEDULES = ("eager", "lazy", 1)
CASES = some(
    [each for each in cases() if running.target(each.row.source) != "sm_80"], 9
)


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
            kept = Kept(patch)
            found.append((run(), kept.states))
    return found


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_fast_paths_leave_the_same(case: Case) -> None:
    schedule = SCHEDULES[zlib.crc32(case.name.encode()) // 7 % len(SCHEDULES)]

    def run() -> Any:
        said, arrays = running.launch(case, schedule)
        return said, running.left(case.row, arrays)

    (fast, states), (alone, others) = both(run)
    assert fast == alone
    assert len(states) == len(others)
    for one, other in zip(states, others, strict=True):
        for name in one:
            assert one[name] == other[name], name
