"""The problems of a timeline: where their accesses are, and what is missing there.

A problem has the number that it has in ``result.problems``.  Work that a problem is
about may still be in flight when the other access comes: it is hatched until somebody
has waited for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import NamedTuple, Protocol, TypeAlias

from fragmenta.engine.simt.naming import block_words, place
from fragmenta.engine.units.findings import Finding, Launched
from fragmenta.inspect.view.timeline_rows import ClusterRows, Point
from fragmenta.ptx import rules
from fragmenta.ptx.checking.problem import Problem
from fragmenta.watch.races.report.history import Recorded
from fragmenta.watch.races.report.messages import Reporter, grouped, key
from fragmenta.watch.races.report.missing import missing
from fragmenta.watch.races.report.problem_context import Agent, Collision, context_of

MOST_MARKS = 9
_IN_FLIGHT = (
    rules.LEAK,
    rules.WGMMA_REGISTERS_IN_FLIGHT,
    rules.TENSOR_REGISTERS_IN_FLIGHT,
)
"""Rules about work that is not waited for, beside those of races."""
_WIDTH = 138
"""The most letters of a line below the picture."""
_MOST_STUCK = 4
"""Warps that wait for ever which have a mark."""


Numbers: TypeAlias = dict[tuple[str, ...], int]
"""The number of each problem of a report, by what makes two of them one."""


class Watched(Protocol):
    """The result of a launch, with the events of some of its clusters."""

    @property
    def recorded(self) -> list[Recorded]:
        """The events, by cluster."""

    @property
    def found(self) -> list[tuple[Launched, Finding]]:
        """The problems of the run, before they are put into words."""

    @property
    def problems(self) -> list[Problem]:
        """The problems in the order of the report."""

    @property
    def instructions(self) -> int:
        """All executed warp instructions."""


class Ghost(NamedTuple):
    """What is missing, and where it would stand."""

    point: Point
    words: str
    after: bool = False
    """Whether it belongs after the point, not before it."""


class ProblemMark(NamedTuple):
    """A problem in the picture."""

    number: int
    rule: str
    points: list[Point]
    ghost: Ghost | None
    lines: list[str]
    """What is written below the picture."""
    work: int = -1
    """The note of the work that may still be in flight; -1 if there is none."""
    memory: str = ""
    """What it may still read or write."""
    own: bool = True
    """Whether the problem shows in this cluster; else its earlier access is here."""


def numbers(result: Watched) -> Numbers:
    """The numbers of the problems of a report, by what makes two of them one."""
    return {key(each): number for number, each in enumerate(result.problems, 1)}


def numbered(result: Watched, known: Numbers) -> dict[object, int]:
    """The number of everything that was found, by its key; notes have none."""
    return {
        each.key: number
        for problem, some in grouped(result.found)
        if (number := _number(problem, known)) and problem.severity != rules.INFO
        for each in some
    }


def _number(problem: Problem, known: Numbers) -> int | None:
    """The number of a problem; of another schedule, of the first with its rule."""
    if key(problem) in known:
        return known[key(problem)]
    return min(
        (n for (rule, *_), n in known.items() if rule == problem.rule), default=None
    )


def marks(
    seen: ClusterRows, found: Iterable[tuple[Launched, Finding]], known: Numbers
) -> list[ProblemMark]:
    """The marks of a cluster, by number; ``known`` are the numbers of problems."""
    every = list(found)
    launches = {each.key: launch for launch, each in every}
    here = {each.key: each for each in seen.recorded.problems}
    made = []
    for problem, some in grouped(every):
        mine = next((here[each.key] for each in some if each.key in here), None)
        own = mine is not None
        mine = mine or next((each for each in some if _began(each, seen)), None)
        number = _number(problem, known)
        if mine is None or number is None or problem.severity == rules.INFO:
            continue
        marked = _Marked(seen, Reporter(launches[mine.key]), mine, problem.hint)
        mark = marked.mark(number)
        made.append(mark._replace(own=own))
    return sorted(made)[:MOST_MARKS]


def _began(found: Finding, seen: ClusterRows) -> bool:
    """Whether the earlier access of a problem is in a cluster."""
    story = context_of(found)
    before = None if story is None else story.before
    return before is not None and before.block in seen.recorded.members


def _wrapped(line: str) -> list[str]:
    return wrap(line, _WIDTH, subsequent_indent="   ", break_on_hyphens=False)


class _Marked:
    """One problem of a cluster."""

    def __init__(
        self, seen: ClusterRows, reporter: Reporter, found: Finding, hint: str
    ) -> None:
        self.seen, self.reporter, self.found = seen, reporter, found
        self.hint = hint
        self.names = seen.names

    def mark(self, number: int) -> ProblemMark:
        """Its mark."""
        points = self._points()
        late = points[0 if self.found.rule is rules.LEAK else -1] if points else None
        if not (self.found.rule.race or self.found.rule in _IN_FLIGHT):
            late = None
        memory, doing = "", ""
        if isinstance(self.found, Collision):
            memory = self.reporter.memory(self.found)
            doing = "write" if self.found.noted.was_write else "read"
        return ProblemMark(
            number,
            self.found.rule.name,
            [each for each in points if each is not None],
            self._ghost(points),
            [line for each in self._lines(number) for line in _wrapped(each)],
            -1 if late is None else late.work,
            f"may still {doing} {memory}" if memory else "may still be in flight",
        )

    def _rank(self) -> int:
        members = self.seen.recorded.members
        return members.index(self.found.block) if self.found.block in members else 0

    def _points(self) -> list[Point | None]:
        """The later access, and the earlier one."""
        found, seen = self.found, self.seen
        story = context_of(found)
        if story is not None:
            return [self._point(story.now), self._point(story.before)]
        if found.rule is rules.DEADLOCK:
            return list(self._stuck())
        if found.rule is rules.LEAK:
            return [seen.at_site(found.site, self._rank(), seen.last)]
        if found.time < 0:
            at = seen.at_site(found.site, self._rank(), seen.last)
            end = Point(("warp", self._rank(), found.warp), seen.last - 0.5)
            return [end if at is None or found.rule.stops else at]
        now = Point(("warp", self._rank(), found.warp), found.time)
        if found.other is None:
            return [now]
        return [now, seen.at_site(found.other, self._rank(), found.time)]

    def _point(self, agent: Agent | None) -> Point | None:
        """The place of an access, if it is one of this cluster."""
        members = self.seen.recorded.members
        if agent is None or (agent.block >= 0 and agent.block not in members):
            return None
        if self.found.rule is rules.MBARRIER and agent.is_copy:
            return self.seen.at_site(agent.site, agent.rank, self.seen.last)
        return self.seen.point(agent)

    def _stuck(self) -> list[Point]:
        """Where warps wait for ever."""
        rows = [row for band in self.seen.bands for row in band.rows]
        stuck = [
            Point(row.key, bar.start)
            for row in rows
            for bar in row.bars
            if row.key[0] == "warp" and bar.open
        ]
        return stuck[:_MOST_STUCK]

    def _ghost(self, points: Sequence[Point | None]) -> Ghost | None:
        """What is missing, in the row of the warp that would execute it."""
        instruction = self.names.instruction(self.found.site)
        source = None if instruction is None else instruction.source
        language = self.reporter.language(source)
        made = missing(self.found, self.names, language, self.hint)
        if made is None or not points:
            return None
        after = made.after_first and len(points) > 1
        point = points[1 if after else 0]
        if made.site >= 0:
            at = self.seen.at_site(made.site, self._rank(), self._time(points))
            if at is not None:
                return Ghost(at, made.words)
        if point is None:
            return None
        at = self.seen.issuer(point)
        if self.found.rule is rules.LEAK:
            at = at._replace(time=self.seen.ended)
        return Ghost(at, made.words, after)

    def _time(self, points: Sequence[Point | None]) -> int:
        """The time of the later access."""
        return self.seen.last if points[0] is None else int(points[0].time)

    # ── below the picture ───────────────────────────────────────────────────

    def _lines(self, number: int) -> list[str]:
        found, story = self.found, context_of(self.found)
        if story is None or not isinstance(found, Collision):
            lines = [f"{number}  {found.rule.name}{self._places()}"]
            said = self.names.with_mbarriers(found.message.partition("; ")[0])
            known = found.rule.race and len(said) < _WIDTH
            return [*lines, f"   {said}"] if known else lines
        memory = self.reporter.memory(found)
        lines = [f"{number}  {found.rule.name}: {memory}"]
        verb = "writes" if found.noted.now_write else "reads"
        told = [f"{self._who(story.now)} {verb} it"]
        if found.rule is rules.MBARRIER and found.other is not None:
            told.append(f"{self.names.place(found.other)}: it is an mbarrier")
        elif story.before is not None:
            was = "writes" if found.noted.was_write else "reads"
            late = story.before.kind != "warp"
            verb = f"may still {was[:-1]} it" if late else f"{was} it"
            told.append(f"{self._who(story.before)} {verb}")
        return [*lines, f"   {'; '.join(told)}"]

    def _who(self, agent: Agent) -> str:
        what = self.names.mnemonic(agent.site)
        if agent.is_copy or agent.kind in ("bulk-read", "bulk-write"):
            what = "the copy"
        of = f" of warp {agent.number}" if agent.kind == "warp" else ""
        shape = self.reporter.launch.shape
        if agent.block >= 0 and agent.block not in self.seen.recorded.members:
            of += f" of {block_words(shape.block_at(agent.block))}"
        return f"{self.names.place(agent.site)}: {what}{of}"

    def _places(self) -> str:
        at = self.names.at_line(self.found.line)
        if at is not None:
            what = "" if self.found.rule is rules.DEADLOCK else f"{at.mnemonic} at "
            return f": {what}{place(at)}"
        sites = [
            each for each in (self.found.site, self.found.other) if each is not None
        ]
        places = [
            f"{self.names.mnemonic(each)} at {self.names.place(each)}"
            for each in sites
            if self.names.instruction(each) is not None
        ]
        return f": {' and '.join(places)}" if places else ""
