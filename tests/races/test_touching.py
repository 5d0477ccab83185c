"""Accesses of many words at once leave what accesses word by word leave.

Compiled code decides once for words that are alike, and compares four of them at a
time.  A call for one word has nothing to compare with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.watch.races.order import Order
from fragmenta.watch.races.shadow.problem_table import ProblemTable
from fragmenta.watch.races.shared_shadow import SharedShadow

FIRST, BYTES = 2048, 512
AGENTS = [
    ("mbarrier", 0),
    ("mbarrier", 1),
    ("wgmma", 0),
    ("wgmma", 1),
    ("bulk-read", 1),
    ("cp.async", 2),
    ("warp", 3),
]


class Rig:
    """The shadow of a block, without kernels."""

    def __init__(self, strict: bool) -> None:
        self.order = Order(1, 8, FIRST + BYTES)
        self.problems = ProblemTable()
        self.shadow = SharedShadow(self.order, self.problems, strict=strict)

    def touch(self, starts: Any, size: int, given: Any) -> None:
        write, agent, epoch, site, known, proxy = given
        clock = self.order.new_clock()
        clock[:, 0] = known[:, : clock.shape[2]]
        who = self.order.agent(agent[0], 0, agent[1])
        more = {"proxy": proxy, "lane": epoch % 32}
        self.shadow.touch(0, starts, size, write, who, epoch, site, clock, **more)

    @property
    def left(self) -> Any:
        found = sorted(
            (each.case.name, each.now, each.before, each.count, each.apart)
            for each in self.shadow.found()
        )
        return found, self.shadow.memory.tobytes()


def program(seed: int) -> list[Any]:
    """Accesses by agents that usually know what the others did."""
    rng = np.random.default_rng(seed)
    made = []
    for epoch in range(1, 60):
        agent = AGENTS[rng.integers(len(AGENTS))]
        write = bool(
            rng.random() < (0.7 if agent[0] in ("mbarrier", "cp.async") else 0.1)
        )
        behind = rng.choice([0, 0, 0, 3, 60], (2, 256))
        behind[1] *= rng.random() < 0.3
        known = np.maximum(epoch - behind, 0)
        proxy = "generic" if agent[0] == "warp" else "async"
        size = int(rng.choice([16, 16, 32, 128, 20, 4]))
        unit = 4 if size % 16 else 16
        count = int(rng.integers(1, 12))
        places = rng.permutation((BYTES - size) // unit)[:count] * unit + FIRST
        given = write, agent, epoch, int(rng.integers(1, 9)), known, proxy
        made.append((places.astype(np.uint32), size, given))
    return made


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_many_words_are_as_one_by_one(seed: int, strict: bool) -> None:
    together, apart = Rig(strict), Rig(strict)
    for starts, size, given in program(seed):
        together.touch(starts, size, given)
        for start in starts:
            for word in range(int(start), int(start) + size, 4):
                apart.touch([word], 4, given)
        assert together.left == apart.left
