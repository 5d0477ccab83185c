"""Where two runs are at the same place, though their orders or their kernels differ.

A run of the same kernel with another schedule executes the same instructions in another
order.  A kernel that was repaired has other lines: those that both have are found by a
comparison of the texts, and a step is compared by its line of the source, or of the PTX
if there is no source.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fragmenta.inspect.replay.parts import Head, Row

if TYPE_CHECKING:
    from fragmenta.inspect.replay.recorded import Replay

MOST_LINES = 20_000
"""Lines of texts that are compared; longer ones are compared by line numbers."""


def line_pairs(head: Head, first: Head) -> list[Row]:
    """Which lines of the files of a run are lines of another one.

    Lines of PTX may differ in the numbers of registers and labels.
    A row has the names of both files, and blocks: a line of each, from 1, and how many
    lines are the same from there on.  Files with the same text have no row.
    """
    found = []
    for mine, theirs in _file_pairs(head["files"], first["files"]):
        if mine["text"] == theirs["text"] and mine["name"] == theirs["name"]:
            continue
        one, other = (each["text"].splitlines() for each in (mine, theirs))
        if mine is head["files"][0]:
            one, other = (list(map(unnumbered, lines)) for lines in (one, other))
        if max(len(one), len(other)) > MOST_LINES:
            blocks = [[1, 1, min(len(one), len(other))]]
        else:
            same = SequenceMatcher(None, one, other).get_matching_blocks()
            blocks = [[each.a + 1, each.b + 1, each.size] for each in same if each.size]
        about = {"name": mine["name"], "first": theirs["name"], "blocks": blocks}
        found.append(about)
    return found


_NUMBERS = re.compile(r"(%[a-z]+|\$L__[A-Za-z_]+|__local_depot)\d+(?:_\d+)?")


def unnumbered(line: str) -> str:
    """A line of PTX without the numbers that compilers give registers and labels.

    >>> unnumbered("@%p12 bra $L__BB0_3;"), unnumbered("mov.u32 %r7, 16;")
    ('@%p bra $L__BB;', 'mov.u32 %r, 16;')
    """
    return _NUMBERS.sub(r"\1", line)


def _file_pairs(mine: list[Row], theirs: list[Row]) -> list[tuple[Row, Row]]:
    """Files that belong together: the PTX, sources of one name, then in their order."""
    pairs = [(mine[0], theirs[0])]
    named = {each["name"]: each for each in theirs[1:]}
    left = []
    for each in mine[1:]:
        if each["name"] in named:
            pairs.append((each, named.pop(each["name"])))
        else:
            left.append(each)
    return pairs + list(zip(left, named.values(), strict=False))


class SourceLine(NamedTuple):
    """A line of a file."""

    file: str
    line: int


def to_first(pairs: list[Row], place: SourceLine) -> SourceLine | None:
    """A line of a run as a line of the first one; None if that has no such line.

    >>> pairs = [{"name": "b.cu", "first": "a.cu", "blocks": [[1, 1, 3], [6, 4, 2]]}]
    >>> to_first(pairs, SourceLine("b.cu", 7)), to_first(pairs, SourceLine("b.cu", 4))
    (SourceLine(file='a.cu', line=5), None)
    """
    for each in pairs:
        if each["name"] == place.file:
            for mine, theirs, count in each["blocks"]:
                if mine <= place.line < mine + count:
                    return SourceLine(each["first"], place.line - mine + theirs)
            return None
    return place


def from_first(pairs: list[Row], place: SourceLine) -> SourceLine | None:
    """The other way round."""
    turned = [
        {
            "name": each["first"],
            "first": each["name"],
            "blocks": [[b, a, n] for a, b, n in each["blocks"]],
        }
        for each in pairs
    ]
    return to_first(turned, place)


def aligned(replay: Replay, step: int, other: Replay) -> int | None:
    """The step of another run at which the same warp is where it is at a step.

    If the other run has no such line, it is the line before it that both have.  None:
    the other run does not have the warp.
    """
    own, theirs = replay.warps[int(replay.steps.warp[step])], other.warps
    key = own.block, own.warp
    warp = next((n for n, e in enumerate(theirs) if (e.block, e.warp) == key), None)
    if warp is None or not other.steps_of_warp(warp).size:
        return None
    if replay.head["sites"] == other.head["sites"]:
        return _same_site(replay, step, other, warp)
    here = _Visits(replay, int(replay.steps.warp[step]))
    there = _Visits(other, warp)
    visit = here.of(step)
    while visit >= 0:
        place = to_first(replay.lines_of_first, here.place(visit))
        place = place and from_first(other.lines_of_first, place)
        if place is not None and there.at(place).size:
            found = there.at(place)
            number = int(np.searchsorted(here.at(here.place(visit)), visit))
            goal = int(found[min(number, found.size - 1)])
            wanted = step if visit == here.of(step) else here.last(visit)
            return _within(here, visit, wanted, there, goal)
        visit -= 1
    return int(other.steps_of_warp(warp)[0])


def _same_site(replay: Replay, step: int, other: Replay, warp: int) -> int:
    """The same instruction, executed as often; or the last time that it was."""
    site, mine = replay.steps.site[step], replay.steps_of_warp(replay.steps.warp[step])
    before = int((replay.steps.site[mine[mine <= step]] == site).sum())
    steps = other.steps_of_warp(warp)
    found = steps[other.steps.site[steps] == site]
    if not found.size:  # the other run was stopped, or begins later
        return int(steps[-1] if before else steps[0])
    return int(found[min(before, found.size) - 1])


class _Visits:
    """The lines that a warp comes to, one after the other."""

    def __init__(self, replay: Replay, warp: int) -> None:
        self.replay = replay
        self.steps = replay.steps_of_warp(warp)
        self._sites = replay.steps.site[self.steps].astype(np.int64)
        lines = replay.line_numbers[self._sites]
        first = np.ones(len(lines), bool)
        first[1:] = (lines[1:] != lines[:-1]) | (self._sites[1:] <= self._sites[:-1])
        self._begins = np.flatnonzero(first)
        self._lines = lines[self._begins]

    def of(self, step: int) -> int:
        """The visit that a step is in."""
        place = np.searchsorted(self.steps, step, "right") - 1
        return int(np.searchsorted(self._begins, place, "right")) - 1

    def place(self, visit: int) -> SourceLine:
        """The line of a visit."""
        return SourceLine(*self.replay.place(int(self._sites[self._begins[visit]])))

    def at(self, place: SourceLine) -> np.ndarray:
        """The visits of a line."""
        line = self.replay.line_number(place)
        return np.flatnonzero(self._lines == line)

    def span(self, visit: int) -> np.ndarray:
        """The steps of a visit."""
        end = [*self._begins[visit + 1 : visit + 2], len(self.steps)][0]
        return self.steps[self._begins[visit] : end]

    def last(self, visit: int) -> int:
        """The last step of a visit."""
        return int(self.span(visit)[-1])


def _within(here: _Visits, visit: int, step: int, there: _Visits, goal: int) -> int:
    """The step of a visit with the same opcode as one of another visit, as often."""

    def opcodes(of: _Visits, steps: np.ndarray) -> list[str]:
        return [of.replay.sites[s].opcode for s in of.replay.steps.site[steps]]

    mine, theirs = here.span(visit), there.span(goal)
    wanted = opcodes(here, mine[mine <= step])
    found = [n for n, e in enumerate(opcodes(there, theirs)) if e == wanted[-1]]
    if not found:
        return int(theirs[min(len(wanted), len(theirs)) - 1])
    return int(theirs[found[min(wanted.count(wanted[-1]), len(found)) - 1]])
