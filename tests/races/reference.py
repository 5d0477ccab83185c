"""An exact and slow judge of races: a vector clock for each thread and each copy.

Nothing is summarised: every access of every byte is kept, with its own stamp.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

Times = dict[int, int]


class Past(NamedTuple):
    """An access that happened."""

    thread: int
    stamp: int
    site: int
    agent: int
    writes: bool
    strong: bool
    generic: bool
    observed: tuple[Past, ...] = ()
    """The strong writes whose values it has read, if it is strong."""


class Race(NamedTuple):
    """Two accesses of a byte that nothing orders."""

    byte: int
    site: int
    agent: int
    """The agent of the access before."""
    fence: bool
    """Only a proxy fence is missing."""


def join(into: Times, other: Times) -> None:
    """Know what another clock says, too."""
    for thread, stamp in other.items():
        into[thread] = max(into.get(thread, 0), stamp)


class Both:
    """What is known through the generic proxy and through the async proxy."""

    def __init__(self) -> None:
        self.generic: Times = {}
        self.async_: Times = {}

    def join(self, other: Both) -> None:
        join(self.generic, other.generic)
        join(self.async_, other.async_)

    def copy(self) -> Both:
        made = Both()
        made.join(self)
        return made


class Reference:
    """Threads, what each of them knows, and all races."""

    def __init__(self) -> None:
        self.clocks: defaultdict[int, Both] = defaultdict(Both)
        self.stamps: defaultdict[int, int] = defaultdict(int)
        self.past: defaultdict[int, list[Past]] = defaultdict(list)
        self.races: list[Race] = []

    def access(
        self,
        thread: int,
        agent: int,
        site: int,
        bytes_: range,
        *,
        writes: bool,
        strong: bool = False,
        generic: bool = True,
    ) -> None:
        """A thread or a copy accesses bytes."""
        self.stamps[thread] += 1
        stamp, clock = self.stamps[thread], self.clocks[thread]
        clock.generic[thread] = stamp
        now = Past(thread, stamp, site, agent, writes, strong, generic)
        for byte in bytes_:
            for old in self.past[byte]:
                self._compare(byte, old, now, clock)
            self.past[byte].append(now._replace(observed=self._read(byte, now)))

    def _read(self, byte: int, now: Past) -> tuple[Past, ...]:
        """The strong writes that a strong read observes, through atomic ones, too."""
        writes = [old for old in self.past[byte] if old.writes]
        if not (now.strong and writes and writes[-1].strong):
            return ()
        return (writes[-1], *writes[-1].observed)

    def _compare(self, byte: int, old: Past, now: Past, clock: Both) -> None:
        if not (old.writes or now.writes) or (old.strong and now.strong):
            return
        if clock.generic.get(old.thread, 0) < old.stamp:
            if any(
                old.thread == seen.thread and old.stamp == seen.stamp
                for each in self.past[byte]
                if clock.generic.get(each.thread, 0) >= each.stamp
                for seen in each.observed
            ):
                return
            self.races.append(Race(byte, now.site, old.agent, False))
            return
        crosses = old.writes and old.generic and not now.generic
        if crosses and clock.async_.get(old.thread, 0) < old.stamp:
            self.races.append(Race(byte, now.site, old.agent, True))

    def fence(self, thread: int) -> None:
        """``fence.proxy.async``"""
        clock = self.clocks[thread]
        join(clock.async_, clock.generic)

    def meet(self, threads: list[int]) -> None:
        """All get to know what any of them knows."""
        every = Both()
        for thread in threads:
            every.join(self.clocks[thread])
        for thread in threads:
            self.clocks[thread].join(every)
