"""Units, barriers and problems of a recording, with names and types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fragmenta.ptx.rules import LEAK

if TYPE_CHECKING:
    from fragmenta.inspect.replay.recorded import Replay

Range = tuple[int, int, int]
"""A memory, an offset and a number of bytes."""


class UnitHistory(NamedTuple):
    """A piece of asynchronous work; a step is -1 if it did not come."""

    number: int
    kind: str
    name: str
    warp: int
    issued: int
    done: int
    waited: int
    bytes: int
    writes: tuple[Range, ...]

    def state(self, moment: int) -> str:
        """What it is doing at a moment."""
        if self.issued >= moment:
            return "not issued"
        if not 0 <= self.done < moment:
            return "in flight"
        if not 0 <= self.waited < moment:
            return "done, not waited for"
        return "done"


class BarrierHistory(NamedTuple):
    """A barrier, and what happened there: a step and words for it."""

    name: str
    events: tuple[tuple[int, str], ...]


class LocatedProblem(NamedTuple):
    """A problem, and the steps of its accesses; without any if they are not kept."""

    number: int
    code: str
    words: str
    steps: tuple[int, ...]
    ranges: tuple[Range, ...]
    missing: str

    @property
    def shows(self) -> int:
        """The step that shows it: the later access."""
        return max(self.steps, default=-1)


def units(replay: Replay) -> list[UnitHistory]:
    """The units of a recording."""
    return [
        UnitHistory(
            number,
            each["kind"],
            each["name"],
            each["warp"],
            each["issued"],
            each["done"],
            each["waited"],
            each["bytes"],
            tuple((where, start, size) for where, start, size in each["writes"]),
        )
        for number, each in enumerate(replay.units)
    ]


def barriers(replay: Replay) -> list[BarrierHistory]:
    """The barriers of a recording."""
    many = len({each.block for each in replay.warps}) > 1
    found = []
    for each in replay.barriers:
        kind = "mbarrier " if each["kind"] == "mbarrier" else ""
        block = f" of block {each['block']}" if many and "block" in each else ""
        events = [(step, _phase(*rest)) for step, *rest in each.get("phases", ())]
        events += [(step, _passed(warps)) for step, warps in each.get("uses", ())]
        found.append(
            BarrierHistory(f"{kind}{each['name']}{block}", tuple(sorted(events)))
        )
    return found


def _phase(phase: int, pending: int, *more: int) -> str:
    wanted = f", {more[0]:,} bytes to come" if more and more[0] else ""
    return f"phase {phase}, {pending} to arrive{wanted}"


def _passed(warps: list[int]) -> str:
    return f"passed by {len(warps)} warp{'s' * (len(warps) != 1)}"


def problems(replay: Replay) -> list[LocatedProblem]:
    """The problems of a recording, as they are numbered in the report."""
    return [_problem(each, len(replay) - 1) for each in replay.problems]


def _problem(each: dict[str, Any], end: int) -> LocatedProblem:
    steps = tuple(step for step in each["steps"] if step >= 0)
    if steps and each["code"] == LEAK.name:  # it shows when the block has ended
        steps = (*steps, end)
    place = each["memory"], each["offset"], each["size"]
    ranges = (place,) if place[0] >= 0 else ()
    return LocatedProblem(
        each["number"],
        each["code"],
        each["words"],
        steps,
        ranges,
        each["missing"],
    )
