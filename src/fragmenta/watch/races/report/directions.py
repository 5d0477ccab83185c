"""Which of two accesses is meant to come first, by the text of the kernel.

The order of a run is chance: a warp may read before another has issued the copy of what
it reads.  The paths of the text say which order nothing keeps
(:mod:`fragmenta.ptx.barrier_places`).  A problem that was seen the other way round is
turned, so that its hint is about the wait or the barrier that is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from fragmenta.engine.simt.compiled import Compiled
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.naming import place
from fragmenta.ptx.barrier_places import (
    Gap,
    Paths,
    is_block_barrier,
    is_cluster_barrier,
    is_relaxed_arrival,
    is_warp_barrier,
)
from fragmenta.ptx.flow import ENDS
from fragmenta.ptx.module import Address, Instruction, Location, Module
from fragmenta.watch.races.report.problem_context import Collision
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.layout import COUNTED, Apart

LANE_WAITS = ("cp.async", "bulk-read", "bulk-write")
"""Agents whose work the threads wait for that have issued it."""


class Between(NamedTuple):
    """What the text says about two accesses."""

    paths: Paths
    gaps: tuple[Gap, ...]
    now: int
    before: int
    """The two instructions, in the function."""

    @property
    def backwards(self) -> bool:
        """Whether nothing keeps the order that was not seen, and only that one."""
        return bool(self.gaps) and all(
            each.first == self.now != each.second for each in self.gaps
        )

    @property
    def meet(self) -> bool:
        """Whether one thread can come to both."""
        one, other = self.now, self.before
        return self.paths.reaches(one, other) or self.paths.reaches(other, one)

    @property
    def adds(self) -> bool:
        """Whether one statement loads, then stores the place, as ``x += 1`` does."""
        load, store = (self.paths.code[e] for e in sorted((self.now, self.before)))
        if not (load.is_load and store.is_store and _one_line(load, store)):
            return False
        places = [
            next((e for e in each.operands if isinstance(e, Address)), None)
            for each in (load, store)
        ]
        return places[0] is not None and places[0] == places[1]

    def passed(
        self, gap: Gap, closes: Callable[[Instruction], bool]
    ) -> Instruction | None:
        """The barrier of the loop that orders the two accesses of one round.

        In a loop that was unrolled, it is in a line between theirs.
        """
        code = self.paths.code
        if gap.passed >= 0:
            return code[gap.passed]
        first, second = code[gap.first].source, code[gap.second].source
        if first is None or second is None:
            return None
        for each in code:
            source = each.source
            between = source is not None and source.caller is None and closes(each)
            if (
                source
                and between
                and _earlier(second, source)
                and _earlier(source, first)
            ):
                return each
        return None

    def next_round(self, gap: Gap) -> bool:
        """Whether the second access of a gap belongs to the next round of a loop.

        In a loop that was unrolled, the text goes back to an earlier line.
        """
        if gap.around:
            return True
        first, second = (self.paths.code[each].source for each in gap[:2])
        return first is not None and second is not None and _earlier(second, first)


def _ends(code: Sequence[Instruction]) -> list[int]:
    return [n for n, each in enumerate(code) if each.opcode in ENDS]


def _group_kind(work: Instruction) -> str:
    """How the names of commit_group and wait_group begin, for a copy or a product."""
    words = {*work.qualifiers}
    if work.of_warpgroup:
        return "wgmma" if "mma_async" in words else ""
    if not work.is_copy or "async" not in words:
        return ""
    if words & {"commit_group", "wait_group", "wait_all", "mbarrier"}:
        return ""
    kind = "cp.async"
    if "bulk" not in words:
        return kind
    return f"{kind}.bulk" if "bulk_group" in words else ""


def _gives_back(each: Instruction, lock: Instruction) -> bool:
    """Whether an instruction writes the word of a lock."""
    if not each.is_write:
        return False
    one, other = (
        next((e for e in made.operands if isinstance(e, Address)), None)
        for made in (each, lock)
    )
    return one is not None and one == other


def _anything(_: Instruction) -> bool:
    """Nothing is asked about gaps."""
    return True


def _one_line(one: Instruction, other: Instruction) -> bool:
    """Whether two instructions belong to one line of the source, if there is one."""
    if one.source is None or other.source is None:
        return True
    return str(one.source) == str(other.source)


def _earlier(one: Location, other: Location) -> bool:
    """Whether a place is before another one in the same function."""
    for here, there in zip(one.frames, other.frames, strict=False):
        if here.file != there.file:
            return False
        if (here.line, here.column) != (there.line, there.column):
            return (here.line, here.column) < (there.line, there.column)
    return False


class Directions:
    """The paths of the functions of a kernel, and the problems on them."""

    def __init__(self, module: Module, compiled: Compiled) -> None:
        self._module, self._compiled = module, compiled
        self._paths: dict[str, Paths] = {}
        self._known: dict[tuple[object, ...], Between] = {}
        self._relaxed: dict[tuple[int, int], tuple[int, ...]] = {}

    def between(
        self, found: Collision, closes: Callable[[Instruction], bool]
    ) -> Between | None:
        """What the text says about a pair; None if it is not in one function."""
        story = found.story
        if story.before is None:
            return None
        return self._pair(story.now.site, story.before.site, closes)

    def _pair(
        self, now: int, before: int, closes: Callable[[Instruction], bool]
    ) -> Between | None:
        places = self._compiled.places
        if not (0 <= now < len(places) and 0 <= before < len(places)):
            return None
        (function, one), (named, other) = places[now], places[before]
        if function != named:
            return None
        key = function, one, other, closes
        if key not in self._known:
            paths = self._of(function)
            gaps = tuple(paths.gaps(other, one, closes))
            self._known[key] = Between(paths, gaps, one, other)
        return self._known[key]

    def _of(self, function: str) -> Paths:
        paths = self._paths.get(function)
        if paths is None:
            paths = self._paths[function] = Paths(self._module.functions[function])
        return paths

    def relaxed(self, now: int, before: int) -> tuple[int, ...]:
        """The relaxed arrivals at the barrier of the cluster behind an access.

        Empty if a path to the other access passes none.  The thread of the first
        access may arrive elsewhere than that of the second.
        """
        if (now, before) not in self._relaxed:
            self._relaxed[now, before] = self._relaxed_between(now, before)
        return self._relaxed[now, before]

    def _relaxed_between(self, now: int, before: int) -> tuple[int, ...]:
        between = self._pair(now, before, _anything)
        if between is None or not any(map(is_relaxed_arrival, between.paths.code)):
            return ()
        for pair in (between[:1:-1], between[2:]):
            if between.paths.passed(*pair, is_relaxed_arrival) >= 0:
                found = between.paths.met(pair[0], is_relaxed_arrival)
                return tuple(self._site(between, each) for each in found)
        return ()

    def condition(self, site: int) -> str:
        """The line of the branch that keeps threads of a warp from an instruction."""
        if not 0 <= site < len(self._compiled.places):
            return ""
        function, index = self._compiled.places[site]
        paths = self._of(function)
        branches = sorted(branch for branch, _ in paths.divided(index))
        return place(paths.code[branches[-1]]) if branches else ""

    def uncommitted(self, site: int, used: int = -1) -> Instruction | None:
        """A wait for groups, to which a path from a copy or product has no commit.

        A path without one leads to the use, too, or to the end of the kernel.
        """
        places = self._compiled.places
        if not 0 <= site < len(places):
            return None
        function, index = places[site]
        paths = self._of(function)
        kind = _group_kind(paths.code[index])
        if not kind:
            return None

        def is_commit(each: Instruction) -> bool:
            return each.mnemonic.startswith(f"{kind}.commit_group")

        goals = [places[used][1]] if used >= 0 else _ends(paths.code)
        if not any(paths.open(index, each, is_commit) for each in goals):
            return None
        for number, each in enumerate(paths.code):
            waits = each.mnemonic.startswith(f"{kind}.wait_group")
            if waits and paths.open(index, number, is_commit):
                return each
        return None

    def lock(self, now: int, before: int) -> tuple[Instruction, Instruction] | None:
        """Where a spin lock is taken before two accesses, and where it is given back.

        None if there is none, or if it acquires.
        """
        between = self._pair(now, before, _anything)
        if between is None:
            return None
        paths = between.paths
        for taken, each in enumerate(paths.code):
            words = {*each.qualifiers}
            spins = any(taken in body for body in paths.loops.values())
            if not each.is_fetch or "cas" not in words or not spins:
                continue
            held = not paths.avoids(taken, between.now)
            if words & {"acquire", "acq_rel"} or paths.avoids(taken, between.before):
                continue
            gives = [
                n
                for n, other in enumerate(paths.code)
                if held
                and n != taken
                and _gives_back(other, each)
                and paths.reaches(between.now, n)
            ]
            if gives:
                return each, paths.code[gives[0]]
        return None

    def turned(self, found: Collision) -> Collision:
        """The problem in the order that nothing keeps, if it was seen in the other."""
        now, before = found.story.now, found.story.before
        kinds = {now.kind, before.kind if before is not None else ""}
        other_rule = kinds & {*LANE_WAITS, COUNTED} and "warp" in kinds
        if before is None or not found.rule.race or not other_rule:
            return found
        if found.noted.case.space != "shared" or found.noted.before is None:
            return found
        between = self.between(found, is_block_barrier)
        if between is None or not between.backwards:
            return found
        if COUNTED in kinds and between.paths.reaches(between.before, between.now):
            return found  # a wait for the mbarrier may be what is missing
        return _exchanged(found, self._own_wait(between, now.kind))

    def _own_wait(self, between: Between, kind: str) -> int:
        """The wait for all work of a kind on every path from the later access."""

        def waits(each: Instruction) -> bool:
            words = {*each.qualifiers}
            mine = ("bulk" in words) == (kind != "cp.async")
            return (
                each.is_copy
                and mine
                and bool(words & {"wait_group", "wait_all"})
                and (kind != "bulk-write" or "read" not in words)
                and all(getattr(one, "value", 1) == 0 for one in each.operands)
            )

        if kind not in LANE_WAITS:
            return -1
        return self._site(between, between.paths.passed(*between[2:], waits))

    def _site(self, between: Between, index: int) -> int:
        """The number of an instruction among the sites; -1 if it has none."""
        place = [between.paths.function.name, index]
        return next(
            (n for n, e in enumerate(self._compiled.places) if [*e] == place), -1
        )


def _exchanged(found: Collision, own_wait: int) -> Collision:
    """A problem whose two accesses have changed places."""
    story, noted = found.story, found.noted
    assert story.before is not None
    assert noted.before is not None
    now, before = story.before, story.now
    case = Detected.SHARED_RACE
    if before.kind != "warp":
        case = (
            Detected.READ_BEFORE_ARRIVAL
            if noted.now_write
            else Detected.OVERWRITE_WHILE_READ
        )
    return replace(
        found,
        rule=case.rule,
        site=now.site,
        other=before.site,
        warp=now.number if now.kind == "warp" else found.warp,
        lanes=1 << now.lane if now.lane >= 0 else (1 << LANES) - 1,
        noted=replace(
            noted,
            case=case,
            now=noted.before,
            before=noted.now,
            now_write=noted.was_write,
            was_write=noted.now_write,
        ),
        story=story._replace(now=now, before=before, wait=None, own_wait=own_wait),
    )


# ── what closes a gap ───────────────────────────────────────────────────────


class Need(NamedTuple):
    """The least barrier that orders the threads of a problem."""

    rank: int
    """Of several needs, the largest is enough for all."""
    closes: Callable[[Instruction], bool]


WARP = Need(0, is_warp_barrier)
BLOCK = Need(1, is_block_barrier)
CLUSTER = Need(2, is_cluster_barrier)


def need(found: Collision) -> Need:
    """The barrier that two accesses of threads need, and others as far apart."""
    now, before = found.story.now, found.story.before
    assert before is not None
    if now.rank != before.rank or found.apart & Apart.BLOCK:
        return CLUSTER
    same = now.number == before.number and not found.apart & Apart.WARP
    return WARP if same else BLOCK
