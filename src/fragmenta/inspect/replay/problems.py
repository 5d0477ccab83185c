"""The steps of the two accesses of a problem, and the instruction that is missing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from fragmenta.engine.simt import layout
from fragmenta.engine.tracing.trace import Stepped
from fragmenta.engine.units.findings import Finding, Launched
from fragmenta.inspect.replay.parts import Array, Row, Value
from fragmenta.inspect.replay.recorded import Replay
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem
from fragmenta.watch.races.report.messages import Reporter, grouped, key
from fragmenta.watch.races.report.missing import missing
from fragmenta.watch.races.report.problem_context import (
    Agent,
    Collision,
    ProblemContext,
    context_of,
)
from fragmenta.watch.races.shadow.problem_table import DetectedProblem

Found: TypeAlias = tuple[Launched, Finding]
Span: TypeAlias = tuple[int, int, int]
"""Bytes: the number of their memory, the first offset, and how many they are."""


def problems_of(
    replay: Replay,
    stepped: Stepped,
    problems: Sequence[Problem],
    found: Sequence[Found],
    others: Sequence[Found],
) -> list[Row]:
    """The problems of a run, with the steps of its record that they are about.

    ``problems`` and ``found`` are those of all runs.  Those that only other runs have
    found, which are ``others``, are left out; numbers stay.
    """
    steps = _StepFinder(replay, stepped)
    mine, elsewhere, every = map(_by_key, (stepped.found, others, found))
    made = []
    for number, each in enumerate(problems, 1):
        of = _key(each)
        if of in elsewhere and of not in mine:
            continue
        known = mine.get(of) or every.get(of)
        about = steps.stopped()
        if known is not None:
            about = {**steps.about(known[0][1]), "missing": _missing(known, each.hint)}
        if each.rule == rules.SCHEDULE.name:  # arrays differ at the end
            about = {"steps": [-1, len(replay) - 1]}
        made.append(problem_row(number, each, **about))
    return made


def problem_row(number: int, problem: Problem, **about: Value) -> Row:
    """A problem of a record; what is known about its steps is given."""
    source = problem.source
    return {
        "number": number,
        "code": problem.rule,
        "severity": problem.severity,
        "words": problem.message,
        "hint": problem.hint,
        "ptx_line": problem.line,
        "file": source.file if source else "",
        "line": source.line if source else 0,
        "steps": [-1, -1],
        "units": [-1, -1],
        "memory": -1,
        "offset": 0,
        "size": 0,
        "missing": "",
        **about,
    }


def _key(problem: Problem) -> tuple[str, ...]:
    """The rule and the lines; how severe it is may differ between runs."""
    rule, _, *lines = key(problem)
    return rule, *lines


def _by_key(found: Sequence[Found]) -> dict[tuple[str, ...], list[Found]]:
    """What was found, by the problems that reports make of it."""
    launches = {id(each): launched for launched, each in found}
    made: dict[tuple[str, ...], list[Found]] = {}
    for problem, some in grouped(found):
        pairs = [(launches[id(each)], each) for each in some]
        made.setdefault(_key(problem), []).extend(pairs)
    return made


def _missing(known: Sequence[Found], hint: str) -> str:
    """What would order the two accesses, in the words of the hint."""
    launched, first = known[0]
    reporter, apart = Reporter(launched), 0
    for _, each in known:
        apart |= each.apart
    instruction = reporter.names.instruction(first.site)
    source = None if instruction is None else instruction.source
    language = reporter.language(source)
    made = missing(replace(first, apart=apart), reporter.names, language, hint)
    return "" if made is None else made.words


class _StepFinder:
    """Finds the steps of accesses."""

    def __init__(self, replay: Replay, stepped: Stepped) -> None:
        self.replay, self.told = replay, stepped.told
        self.compiled, self.shape = stepped.of.compiled, stepped.of.shape
        bases: dict[str, int] = {}
        total, module = 0, stepped.of.module()
        for name in self.compiled.traced["functions"]:
            bases[name] = total
            total += len(module.functions[name].instructions)
        self.sites = [
            bases[name] + index if name in bases else -1
            for name, index in self.compiled.places
        ]
        self.first = self.told.pieces[0].base if self.told.pieces else 0
        self.times = [time for time, _ in self.told.times]

    def stopped(self) -> Row:
        """The last step, if the launch was stopped there."""
        return {"steps": [-1, len(self.replay) - 1]} if self.told.stopped else {}

    def about(self, finding: Finding) -> Row:
        """The steps, units and memory of a problem."""
        story = context_of(finding)
        if story is None or not isinstance(finding, Collision):
            place = self._block(finding.block)
            if place is None:
                return {}
            return {"steps": [-1, self._last(finding.site, place, finding.warp)]}
        memory = self._memory(finding, story.cluster)
        after = self._access(story.now, memory, story.cluster, finding.noted)
        before = self._earlier(story, memory, after[0], finding.noted)
        found: Row = {
            "steps": [before[0], after[0]],
            "units": [before[1], after[1]],
        }
        if memory is not None:
            found |= dict(zip(("memory", "offset", "size"), memory, strict=True))
        return found

    def _block(self, block: int) -> int | None:
        """The place of a block of the grid among those that are recorded."""
        return self.told.blocks.index(block) if block in self.told.blocks else None

    def _memory(self, finding: Collision, cluster: int) -> Span | None:
        """The memory, the offset and the size that a problem is about."""
        noted = finding.noted
        size = noted.last - noted.first
        if noted.case.space == "shared":
            rank, offset = divmod(noted.first, 1 << layout.RANK_BITS)
            members = self.shape.members(cluster)
            block = members[rank] if rank < len(members) else -1
            for number, each in enumerate(self.replay.memories):
                if each.kind == "shared" and each.block == block:
                    return number, offset, size
            return None
        for number, each in enumerate(self.replay.memories):
            if each.kind == "global" and 0 <= noted.first - each.start < each.size:
                return number, noted.first - each.start, size
        return None

    def _access(
        self, agent: Agent, memory: Span | None, cluster: int, noted: DetectedProblem
    ) -> tuple[int, int]:
        """The step of the later access, and the unit that made it; -1: not known."""
        place = self._block_of(agent, cluster)
        if place is None:
            return -1, -1
        if agent.kind != "warp":
            return self._by_unit(agent)
        steps = self._touches(agent, self._warp(place, agent.number), memory)
        # The step at which it was found is known, unless that was in another run.
        here = steps[steps == self._found_at(noted)] if noted.step >= 0 else steps[:0]
        later = here if here.size else steps[steps >= self._step_of(agent.time)]
        chosen = later if later.size else steps[-1:]
        return (int(chosen[0]) if chosen.size else -1), -1

    def _earlier(
        self,
        story: ProblemContext,
        memory: Span | None,
        now: int,
        noted: DetectedProblem,
    ) -> tuple[int, int]:
        """The same of the earlier access: of a warp, it is the last one before.

        If an earlier execution of its instruction is not ordered, neither is the last.
        """
        agent, after = story.before, story.now
        place = None if agent is None else self._block_of(agent, story.cluster)
        if agent is None or place is None:
            return -1, -1
        if agent.kind != "warp":
            return self._by_unit(agent)
        if after.kind == "warp" and now >= 0 and memory is not None:
            memory = self._common(memory, now, after.lane)
        steps = self._touches(agent, self._warp(place, agent.number), memory)
        end = self._found_at(noted) if noted.step >= 0 else now
        if after.kind == "warp":
            end = now
        together = noted.lanes and agent[:3] == after[:3] and agent.site == after.site
        before = steps[steps < end + bool(together)] if end >= 0 else steps
        return (int(before[-1]) if before.size else -1), -1

    def _found_at(self, noted: DetectedProblem) -> int:
        """The step of the record at which a problem was found."""
        return self.told.reordered(noted.step) - self.first

    def _block_of(self, agent: Agent, cluster: int) -> int | None:
        """The place of the block of an agent among those that are recorded."""
        if agent.block >= 0:
            return self._block(agent.block)
        return self._block(self.shape.members(cluster)[agent.rank])

    def _warp(self, place: int, number: int) -> int:
        return self.told.warps.index((place, number))

    def _step_of(self, time: int) -> int:
        """The step at which an event was, by its number."""
        where = bisect_left(self.times, time)
        if time < 0 or where >= len(self.told.times):
            return 0
        return self.told.times[where][1] - self.first

    def _touches(self, agent: Agent, warp: int, memory: Span | None) -> Array:
        """The executions of the instruction of a warp that touch some bytes."""
        steps = self._executions(agent.site, warp)
        if memory is not None and steps.size:
            touched = self._touching(memory, agent.lane)
            steps = steps[np.isin(steps, touched)] if touched.size else steps
        return steps

    def _executions(self, site: int, warp: int) -> Array:
        steps = self.replay.steps_of_warp(warp)
        own = self.sites[site] if 0 <= site < len(self.sites) else -1
        found: Array = steps[self.replay.steps.site[steps] == own]
        return found

    def _rows(self, memory: Span, lane: int) -> Iterator[dict[str, Array]]:
        """The reads, then the writes, that touch some bytes."""
        number, first, size = memory
        for begin in "rw":
            of = {
                name: self.replay.columns[f"{begin}_{name}"].astype(np.int64)
                for name in ("step", "memory", "offset", "size", "lane")
            }
            chosen = (of["memory"] == number) & (of["offset"] < first + size)
            chosen &= of["offset"] + of["size"] > first
            if lane >= 0:
                chosen &= of["lane"] == lane
            yield {name: data[chosen] for name, data in of.items()}

    def _touching(self, memory: Span, lane: int) -> Array:
        """The steps that touch some bytes."""
        return np.unique(np.concatenate([e["step"] for e in self._rows(memory, lane)]))

    def _common(self, memory: Span, step: int, lane: int) -> Span:
        """What a step touches of some bytes: a problem is also about its neighbours."""
        number, first, size = memory
        for each in self._rows(memory, lane):
            here = np.flatnonzero(each["step"] == step)[:1]
            if here.size:
                start = int(each["offset"][here[0]])
                end = min(first + size, start + int(each["size"][here[0]]))
                start = max(first, start)
                return number, start, end - start
        return memory

    def _by_unit(self, agent: Agent) -> tuple[int, int]:
        own = self.sites[agent.site] if 0 <= agent.site < len(self.sites) else -1
        fits = [n for n, each in enumerate(self.replay.units) if each["site"] == own]
        if not fits:
            return -1, -1
        step = self._step_of(agent.time)
        chosen = min(fits, key=lambda n: abs(self.replay.units[n]["issued"] - step))
        return self.replay.units[chosen]["issued"], chosen

    def _last(self, site: int, place: int, number: int) -> int:
        """The last step of an instruction by a warp."""
        if (place, number) not in self.told.warps:
            return -1
        warp = self._warp(place, number)
        steps = self._executions(site, warp)
        steps = steps if steps.size else self.replay.steps_of_warp(warp)
        return int(steps[-1]) if steps.size else -1
