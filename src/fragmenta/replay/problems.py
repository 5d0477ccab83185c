"""The steps of the two accesses of a problem, and the instruction that is missing."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem
from fragmenta.races.report.stories import Agent, Collision, story_of
from fragmenta.replay.parts import Array, Row, Value
from fragmenta.replay.recorded import Replay
from fragmenta.simt import layout
from fragmenta.tracing.told import Stepped
from fragmenta.units.findings import Finding, Launched

_NAMED = re.compile(
    r"\b(?:wgmma|tcgen05|fence|mbarrier|cp|bar|barrier|membar)\.[\w.:]*\w"
)
_MISSING = {
    rules.READ_BEFORE_ARRIVAL.name: "mbarrier.try_wait",
    rules.OVERWRITE_WHILE_READ.name: "mbarrier.arrive",
    rules.SHARED_RACE.name: "bar.sync",
    rules.GLOBAL_RACE.name: "fence.acq_rel.gpu",
    rules.MISSING_PROXY_FENCE.name: "fence.proxy.async",
}
"""The instruction that would order the two accesses, if its repair names none."""
_WAITS = {
    "cp.async": "cp.async.wait_group",
    "wgmma.mma_async": "wgmma.wait_group",
    "tcgen05.ld": "tcgen05.wait::ld",
    "tcgen05.st": "tcgen05.wait::st",
}


def problems_of(
    replay: Replay,
    stepped: Stepped,
    problems: Sequence[Problem],
    found: Sequence[tuple[Launched, Finding]],
    others: Sequence[tuple[Launched, Finding]],
) -> list[Row]:
    """The problems of a run, with the steps of its record that they are about.

    ``problems`` and ``found`` are those of all runs.  Those that only other runs have
    found, which are ``others``, are left out; numbers stay.
    """
    steps = _Steps(replay, stepped)
    made = []
    for number, each in enumerate(problems, 1):
        finding = _finding(each, stepped.found)
        if finding is None and _finding(each, others) is not None:
            continue
        finding = finding or _finding(each, found)
        about = steps.stopped() if finding is None else steps.about(finding)
        if each.rule == rules.SCHEDULE.name:  # arrays differ at the end
            about = {"steps": [-1, len(replay) - 1]}
        made.append(problem_row(number, each, **about))
        made[-1]["missing"] = _missing(made[-1], replay)
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


def _finding(
    problem: Problem, found: Sequence[tuple[Launched, Finding]]
) -> Finding | None:
    """What was found, before it was put into the words of a problem."""
    for launched, each in found:
        if each.rule.name != problem.rule:
            continue
        places = launched.compiled.places
        if not 0 <= each.site < len(places):
            continue
        name, index = places[each.site]
        line = launched.module().functions[name].instructions[index].line
        if line == problem.line:
            return each
    return None


def _missing(problem: Row, replay: Replay) -> str:
    """The name of the instruction that would order the two accesses."""
    named = _NAMED.search(problem["hint"])
    if named is not None:
        return named.group()
    for unit in problem["units"]:
        if unit >= 0 and not replay.units[unit]["signals"]:
            kind = replay.units[unit]["kind"]
            if kind in _WAITS:
                return _WAITS[kind]
            if kind.startswith("cp.async.bulk"):
                return "cp.async.bulk.wait_group"
    return _MISSING.get(problem["code"], "")


class _Steps:
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
        story = story_of(finding)
        if story is None or not isinstance(finding, Collision):
            place = self._block(finding.block)
            if place is None:
                return {}
            return {"steps": [-1, self._last(finding.site, place, finding.warp)]}
        memory = self._memory(finding, story.cluster)
        both = [
            self._access(each, memory, story.cluster)
            for each in (story.before, story.now)
        ]
        found: Row = {
            "steps": [step for step, _ in both],
            "units": [unit for _, unit in both],
        }
        if memory is not None:
            found |= dict(zip(("memory", "offset", "size"), memory, strict=True))
        return found

    def _block(self, block: int) -> int | None:
        """The place of a block of the grid among those that are recorded."""
        return self.told.blocks.index(block) if block in self.told.blocks else None

    def _memory(self, finding: Collision, cluster: int) -> tuple[int, int, int] | None:
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
        self, agent: Agent | None, memory: tuple[int, int, int] | None, cluster: int
    ) -> tuple[int, int]:
        """The step of an access, and the unit that made it; -1 if it is not known."""
        if agent is None:
            return -1, -1
        members = self.shape.members(cluster)
        block = agent.block if agent.block >= 0 else members[agent.rank]
        place = self._block(block)
        if place is None:
            return -1, -1
        if agent.kind == "warp":
            warp = self._warp(place, agent.number)
            return self._by_warp(agent, warp, memory), -1
        return self._by_unit(agent)

    def _warp(self, place: int, number: int) -> int:
        return self.told.warps.index((place, number))

    def _step_of(self, time: int) -> int:
        """The step at which an event was, by its number."""
        where = bisect_left(self.times, time)
        if time < 0 or where >= len(self.told.times):
            return 0
        return self.told.times[where][1] - self.first

    def _by_warp(
        self, agent: Agent, warp: int, memory: tuple[int, int, int] | None
    ) -> int:
        steps = self._executions(agent.site, warp)
        if memory is not None and steps.size:
            touched = self._touching(memory, agent.lane)
            steps = steps[np.isin(steps, touched)] if touched.size else steps
        later = steps[steps >= self._step_of(agent.time)]
        chosen = later if later.size else steps[-1:]
        return int(chosen[0]) if chosen.size else -1

    def _executions(self, site: int, warp: int) -> Array:
        steps = self.replay.steps_of_warp(warp)
        own = self.sites[site] if 0 <= site < len(self.sites) else -1
        found: Array = steps[self.replay.steps.site[steps] == own]
        return found

    def _touching(self, memory: tuple[int, int, int], lane: int) -> Array:
        """The steps that touch some bytes."""
        number, first, size = memory
        found = []
        for begin in "rw":
            of = {
                name: self.replay.columns[f"{begin}_{name}"].astype(np.int64)
                for name in ("step", "memory", "offset", "size", "lane")
            }
            chosen = (of["memory"] == number) & (of["offset"] < first + size)
            chosen &= of["offset"] + of["size"] > first
            if lane >= 0:
                chosen &= of["lane"] == lane
            found.append(of["step"][chosen])
        return np.unique(np.concatenate(found))

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
