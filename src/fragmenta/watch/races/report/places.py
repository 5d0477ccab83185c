"""Where the barrier belongs that problems lack, in the lines of the user.

Several problems often lack one barrier.  Those whose gaps one place closes are told of
one barrier there, the widest that one of them needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.ptx.barrier_places import Gap, Paths
from fragmenta.ptx.module import Instruction
from fragmenta.watch.races.report.directions import BLOCK, Between, Need


class Advice(NamedTuple):
    """Where barriers belong that repair a problem."""

    where: str
    """``before tile.cu:18``; nothing if that is not known."""
    need: Need
    problems: int
    """How many problems they repair, all in all."""
    some_warps: bool
    """Whether only some warps come to that place."""


@dataclass
class _MissingBarrier:
    """One barrier that is missing: a place that closes several gaps."""

    paths: Paths
    around: bool
    common: tuple[int, ...]
    """The instructions before which it may stand."""
    gaps: list[Gap] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    problems: set[int] = field(default_factory=set)


class MissingBarriers:
    """The barriers that the problems of a launch lack."""

    def __init__(self) -> None:
        self._places: list[_MissingBarrier] = []
        self._of: dict[int, list[_MissingBarrier]] = {}

    def add(self, problem: int, between: Between, need: Need) -> None:
        """A problem has gaps that a barrier would close."""
        gaps = [each for each in between.gaps if each.places]
        around = [between.next_round(each) for each in gaps]
        if any(around) and not all(around):
            # In one statement, or where not all threads come, only the loop is meant.
            paths, near = between.paths, gaps[around.index(False)]
            if _same_line(paths, near) or paths.divided(near.places[0]):
                gaps = [gap for gap, far in zip(gaps, around, strict=True) if far]
        for gap in gaps:
            self._of.setdefault(problem, []).append(
                self._placed(problem, between, gap, need)
            )

    def _placed(
        self, problem: int, between: Between, gap: Gap, need: Need
    ) -> _MissingBarrier:
        around = between.next_round(gap)
        for each in self._places:
            common = tuple(n for n in each.common if n in gap.places)
            same = each.paths is between.paths and each.around == around
            if same and common and _goes(each.paths, common, [*each.gaps, gap]):
                break
        else:
            each = _MissingBarrier(between.paths, around, gap.places)
            common = gap.places
            self._places.append(each)
        each.common = common
        each.gaps.append(gap)
        each.needs.append(need)
        each.problems.add(problem)
        return each

    def advice(self, problem: int) -> Advice | None:
        """What to do about a problem."""
        places = self._of.get(problem, [])
        if not places:
            return None
        # A barrier that closes two gaps is told once.
        places = list({id(each): each for each in places}.values())
        words = [_words(each) for each in places]
        where = " and ".join(dict.fromkeys(words)) if all(words) else ""
        # Of a loop that was unrolled, several places are one line.
        alike = [e for e in self._places if any(map(_words(e).__eq__, words))]
        need = max((n for each in alike for n in each.needs), key=lambda n: n.rank)
        every = set[int]().union(*(each.problems for each in alike))
        together = len(set(words)) == 1
        divided = any(each.paths.divided(each.common[0]) for each in places)
        some_warps = need is BLOCK and divided
        return Advice(where, need, len(every) if together else 1, some_warps)


def _goes(paths: Paths, common: tuple[int, ...], gaps: list[Gap]) -> bool:
    """Whether there are words for a place that closes several gaps."""
    return bool(_words(_MissingBarrier(paths, gaps[0].around, common, gaps)))


# ── words ───────────────────────────────────────────────────────────────────


def _line(each: Instruction) -> tuple[str, int]:
    """The line of the kernel itself that an instruction belongs to."""
    if each.source is None:
        return "", each.line
    first = each.source.frames[0]
    return first.file, first.line


def _same_line(paths: Paths, gap: Gap) -> bool:
    return _line(paths.code[gap.first]) == _line(paths.code[gap.second])


def _words(place: _MissingBarrier) -> str:
    """Where a barrier belongs; nothing if lines cannot say it."""
    paths = place.paths
    some = {n for gap in place.gaps for n in (gap.first, gap.second, *gap.inside)}
    files = {_line(paths.code[n])[0] for n in some}
    if len(files) != 1:
        return ""
    (file,) = files
    if not file:
        return _in_ptx(place)
    at = file.rpartition("/")[2] + ":"
    firsts = [_line(paths.code[gap.first])[1] for gap in place.gaps]
    seconds = [_line(paths.code[gap.second])[1] for gap in place.gaps]
    if not place.around:
        near = [gap.second for gap in place.gaps if gap.second in place.common]
        if near and max(firsts) < min(seconds):
            return f"before {at}{min(seconds)}"
    last, more = _behind(place)
    if place.around:
        loop = _loop(place)
        lines = {_line(paths.code[n])[1] for n in loop}
        if len(lines) == 1:
            return f"in {at}{last}, at the end of the loop"
        if not loop or max(lines) <= last:
            more += ", at the end of the loop"
    elif min(seconds) <= last:
        if len({*firsts, *seconds}) > 1:
            return ""
        if not _leaves_condition(place):
            return f"in {at}{last}"
        more += ", at the end of the loop"  # it was unrolled
    return f"after {at}{last}{more}"


def _in_ptx(place: _MissingBarrier) -> str:
    """The same in a PTX text: the first line of a place, in the order of the paths."""
    code = place.paths.code
    starts = [n for n in place.common if n and code[n - 1].line < code[n].line] or list(
        place.common
    )
    chosen = starts[0] if place.around else starts[-1]
    if not place.around and any(
        code[g.first].line >= code[chosen].line for g in place.gaps
    ):
        return ""
    return f"before PTX line {code[chosen].line}"


def _behind(place: _MissingBarrier) -> tuple[int, str]:
    """The last line before a place, and what the place is outside of."""
    paths, at = place.paths, place.common[0]
    before = {gap.first for gap in place.gaps}
    for gap in place.gaps:
        before |= {n for n in gap.inside if _precedes(gap, n, at)}
    last = max(_line(paths.code[n])[1] for n in before)
    outside = set[int]()
    for gap in place.gaps:
        for branch, _ in paths.divided(gap.first) - paths.divided(at):
            outside.add(_line(paths.code[branch])[1])
    lines = sorted(each for each in outside if 0 < each < last)
    if lines:
        return last, f", outside the condition of line {lines[0]}"
    loops = [
        min(_line(paths.code[n])[1] or last for n in body)
        for body in paths.loops.values()
        if at not in body and all(gap.first in body for gap in place.gaps)
    ]
    inner = sorted(each for each in loops if 0 < each < last)
    return last, f", outside the loop of line {inner[0]}" if inner else ""


def _leaves_condition(place: _MissingBarrier) -> bool:
    """Whether fewer threads come to the first accesses than to the place behind."""
    paths = place.paths
    there = paths.divided(place.common[0])
    return any(paths.divided(gap.first) - there for gap in place.gaps)


def _precedes(gap: Gap, index: int, at: int) -> bool:
    """Whether an instruction comes before a place, on the way from the first."""
    if gap.first < at:
        return gap.first <= index < at
    return index >= gap.first or index < at


def _loop(place: _MissingBarrier) -> Sequence[int]:
    """The instructions of the smallest loop that has all accesses; none if unrolled."""
    wanted = {n for gap in place.gaps for n in (gap.first, gap.second)}
    found = [body for body in place.paths.loops.values() if wanted <= body]
    return sorted(sorted(found, key=len)[0]) if found else []
