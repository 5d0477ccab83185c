"""Compiled code reports only what an exact judge reports; what it misses is counted.

Random programs of a few warps with four lanes each run on both.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from fragmenta.engine.simt import layout
from fragmenta.watch.races.order import know
from fragmenta.watch.races.shadow.detected import Detected
from tests.races.reference import Both, Reference
from tests.races.rig import START, Rig
from tests.thinning import repeats, some

WARPS, BOXES = 3, 3


class Program:
    """A random program, step by step on both."""

    def __init__(self, seed: int, *, simple: bool = False, lanes: int = 4) -> None:
        self.random = random.Random(seed)
        self.simple = simple
        self.lanes, self.live = lanes, (1 << lanes) - 1
        self.words = 6 if lanes == 4 else 64
        self.order = seed % 4 * 3
        """How much of the program is synchronisation."""
        self.rig = Rig(WARPS)
        self.rig.memory.view(np.uint32)[:, layout.LIVE // 4] = self.live
        self.rig.block.view(np.int32)[layout.BLOCK_LIVE // 4] = self.lanes * WARPS
        self.exact = Reference()
        order = self.rig.order
        self.boxes = [(order.new_clock(), Both()) for _ in range(BOXES)]
        self.phase, self.copies = 0, 0
        self.arriving = (order.new_clock(), Both())
        self.rig.site = 1
        for word in range(0, self.words, self.lanes):  # nothing is uninitialised
            lanes = self.live >> max(0, word + self.lanes - self.words)
            at = [START + 4 * (word + lane) for lane in range(32)]
            self._access("write", 0, lanes, at, 4)
        self.barrier(list(range(WARPS)))

    def run(self, steps: int) -> None:
        for _ in range(steps):
            names = ["read"] * 5 + ["write"] * 4 + ["send", "receive", "bar", "pair"]
            names += ["warp_sync"] * 2 + ["bar", "warp_sync", "send"] * self.order
            if not self.simple:
                names += ["strong", "strong", "fence", "copy", "wait", "tensor"]
            getattr(self, self.random.choice(names))()

    # ── choices ─────────────────────────────────────────────────────────────

    def _warp(self) -> int:
        return self.random.randrange(WARPS)

    def _lanes(self) -> int:
        if self.random.random() < 0.5:
            return self.live
        if self.simple:
            return 1 << self.random.randrange(self.lanes)
        return self.random.randrange(1, self.live + 1)

    def _all(self) -> int:
        return self.live if self.simple else self._lanes()

    def _threads(self, warp: int, lanes: int) -> list[int]:
        return [
            self.lanes * warp + lane for lane in range(self.lanes) if lanes >> lane & 1
        ]

    # ── steps ───────────────────────────────────────────────────────────────

    def read(self) -> None:
        self._random_access("read")

    def write(self) -> None:
        self._random_access("write")

    def strong(self) -> None:
        self._random_access(self.random.choice(["atomic", "strong read"]))

    def _random_access(self, kind: str) -> None:
        sizes = [1, 2, 4, 4, 8] if self.lanes == 4 else [1, 2, 4, 8, 16]
        size = 4 if self.simple else self.random.choice(sizes)
        places = 4 * self.words // size
        shape = self.random.choice(["line", "same", "any"])
        first = self.random.randrange(places)
        if self.lanes == 32 and self.random.random() < 0.8:
            first = self.random.choice([0, places // 2])
        step = {"line": 1, "same": 0, "any": 0}[shape]
        numbers = [(first + step * lane) % places for lane in range(32)]
        if shape == "any":
            numbers = [self.random.randrange(places) for _ in range(32)]
        if self.simple and kind == "write" and shape != "line":
            numbers = [(first + lane) % places for lane in range(32)]
        at = [START + size * number for number in numbers]
        self._access(kind, self._warp(), self._lanes(), at, size)

    def _access(
        self, kind: str, warp: int, lanes: int, at: list[int], size: int
    ) -> None:
        values = [lane * 3 + 50 * self.rig.site for lane in range(32)]
        parts = max(1, size // 8)
        site = self.rig.access(
            kind, warp, at, lanes, size=size, values=values, elements=parts
        )
        for lane in range(self.lanes):
            if lanes >> lane & 1:
                self.exact.access(
                    self.lanes * warp + lane,
                    warp,
                    site,
                    range(at[lane], at[lane] + size),
                    writes=kind in ("write", "atomic"),
                    strong=kind in ("atomic", "strong read"),
                )

    def send(self) -> None:
        warp, lanes = self._warp(), self._all()
        clock, exact = self.random.choice(self.boxes)
        self.rig.order.merge(clock, self.rig.order.publish(0, warp, lanes, self.live))
        for thread in self._threads(warp, lanes):
            exact.join(self.exact.clocks[thread])

    def receive(self) -> None:
        warp, lanes = self._warp(), self._all()
        clock, exact = self.random.choice(self.boxes)
        self.rig.order.acquire(0, warp, lanes, self.live, clock)
        for thread in self._threads(warp, lanes):
            self.exact.clocks[thread].join(exact)

    def barrier(self, warps: list[int], number: int = 0) -> None:
        count = 0 if len(warps) == WARPS else 32 * len(warps)
        for warp in warps:
            self.rig.bar(warp, number, count, self.live)
        for warp in warps[:-1]:
            assert self.rig.bar(warp, number, count, self.live) == self.live
        self.exact.meet([t for warp in warps for t in self._threads(warp, self.live)])

    def bar(self) -> None:
        self.barrier(self.random.sample(range(WARPS), WARPS))

    def pair(self) -> None:
        self.barrier(self.random.sample(range(WARPS), 2), 3)

    def warp_sync(self) -> None:
        warp, lanes = self._warp(), self._all()
        assert self.rig.warp_sync(warp, lanes, lanes) == lanes
        self.exact.meet(self._threads(warp, lanes))

    def fence(self) -> None:
        warp, lanes = self._warp(), self._lanes()
        self.rig.fence(warp, lanes)
        for thread in self._threads(warp, lanes):
            self.exact.fence(thread)

    def _work(self, kind: str, number: int, epoch: int, *, write: bool) -> int:
        """Something asynchronous that a lane starts; its thread in the reference."""
        warp, lane = self._warp(), self.random.randrange(self.lanes)
        order, issuer = self.rig.order, self.lanes * warp + lane
        clock = order.row(0, warp, 1 << lane)
        begin = START + 4 * self.random.randrange(self.words - 1)
        self.rig.site += 1
        site, agent = self.rig.site, order.agent(kind, 0, number)
        self.rig.shared.touch(0, [begin], 8, write, agent, epoch, site, clock)
        self.copies += 1
        thread = 1000 + self.copies
        self.exact.clocks[thread].join(self.exact.clocks[issuer])
        self.exact.access(
            thread, agent, site, range(begin, begin + 8), writes=write, generic=False
        )
        order.merge(self.arriving[0], clock)
        self.arriving[1].join(self.exact.clocks[thread])
        return thread

    def copy(self) -> None:
        """A bulk copy that the mbarrier counts in its present phase."""
        self._work("mbarrier", 0, self.phase, write=True)

    def tensor(self) -> None:
        """Tensor Cores read; a wait for the phase waits for them, too."""
        self._work("wgmma", 0, self.phase, write=False)

    def wait(self) -> None:
        """The phase ends, and lanes see it."""
        warp, lanes = self._warp(), self._lanes()
        order, (clock, exact) = self.rig.order, self.arriving
        self.phase += 1
        for kind in ("mbarrier", "wgmma"):
            know(clock, order.agent(kind, 0, 0), self.phase)
        order.acquire(0, warp, lanes, self.live, clock)
        # What completed is known through both proxies.
        for thread in self._threads(warp, lanes):
            self.exact.clocks[thread].join(exact)


# Every program; the numbers of lanes take turns.
@repeats(together=1)
@pytest.mark.parametrize("lanes", [4, 32])
@pytest.mark.parametrize("seed", some(range(40), 3))
def test_no_false_alarm(seed: int, lanes: int) -> None:
    program = Program(seed, lanes=lanes)
    program.run(80 if lanes == 4 else 25)
    real = {(r.byte // 4, r.site, r.agent, r.fence) for r in program.exact.races}
    # Whoever knows too much of a race may still say that a fence is missing.
    real |= {(word, site, agent, True) for word, site, agent, _ in real}
    found = program.rig.shared.found()
    for each in found:
        if each.case in (Detected.SAME_VALUE, Detected.ONE_STORE):
            continue
        assert each.before is not None, each
        fence = each.case is Detected.MISSING_PROXY_FENCE
        for word in range(each.first // 4, -(-each.last // 4)):
            key = word, each.now.site, each.before.agent, fence
            assert key in real, each


@repeats(together=1)
@pytest.mark.parametrize("lanes", [4, 32])
@pytest.mark.parametrize("seed", some(range(40), 3))
def test_first_race_of_each_word_is_found(seed: int, lanes: int) -> None:
    """With whole words, and if whole warps learn, nothing is missed."""
    program = Program(1000 + seed, simple=True, lanes=lanes)
    program.run(25)
    reported = {each.now.site for each in program.rig.shared.found()}
    first: dict[int, int] = {}
    for race in program.exact.races:
        first.setdefault(race.byte // 4, race.site)
    assert set(first.values()) <= reported


def test_programs_are_neither_all_clean_nor_all_wrong() -> None:
    clean, cases = 0, set()
    for seed in range(40):
        program = Program(seed)
        program.run(20)
        clean += not program.exact.races
        cases |= {each.case for each in program.rig.shared.found()}
    assert 0 < clean < 40
    shared = {each for each in Detected if each < Detected.WRITE_WRITE}
    assert cases == shared - {Detected.UNINITIALISED}
