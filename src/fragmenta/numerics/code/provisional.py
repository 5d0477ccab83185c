"""Decisions that a branch may throw away.

CUDA's ``sinf`` first reduces its argument in a quick way, which begins with a rounding
to an integer.  Then it branches, and for large arguments it computes all of that anew.
What was decided before counts only for threads that go the way on which it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fragmenta.planes.code.kinds import from_float
from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.families import BARRIERS, COPIES, SHUFFLES, WRITES
from fragmenta.ptx.flow import destinations, successors
from fragmenta.ptx.module import Function, Instruction

_LONGEST = 64
"""The most instructions between a decision and the branch."""
_ACTS = WRITES | COPIES | SHUFFLES | BARRIERS | {"call", "vote"}
"""Instructions whose operands others see."""


class PendingDecision(NamedTuple):
    """A decision that counts only for threads that go one way at a branch."""

    decision: int
    """The place of the instruction that decides."""
    taken: bool
    """Whether those are the threads that take the branch."""


class Provisional(NamedTuple):
    """The decisions of a function that a branch may throw away."""

    decisions: frozenset[int]
    """Their places."""
    at: dict[int, list[PendingDecision]]
    """What is decided at the place of a branch."""


_KNOWN: dict[int, tuple[Function, Provisional]] = {}


def provisional(function: Function) -> Provisional:
    """What a function decides for some threads only; found once."""
    known = _KNOWN.get(id(function))
    if known is None or known[0] is not function:
        known = _KNOWN[id(function)] = function, _found(function)
    return known[1]


def _found(function: Function) -> Provisional:
    at: dict[int, list[PendingDecision]] = {}
    after: list[list[int]] = []
    for place, each in enumerate(function.instructions):
        if each.is_conversion and each.guard is None and from_float(each):
            after = after or successors(function)
            for branch, taken in _branch(function, place, after):
                at.setdefault(branch, []).append(PendingDecision(place, taken))
    found = frozenset(each.decision for kept in at.values() for each in kept)
    return Provisional(found, at)


def _branch(
    function: Function, place: int, after: list[list[int]]
) -> Iterator[tuple[int, bool]]:
    """The branch behind a decision on one side of which nothing of it is used."""
    given = function.instructions
    first = effects(given[place])
    made = {each.number for each in first.writes}
    needed = {each.number for each in first.reads} - made
    labels = set(function.labels.values())
    for branch in range(place + 1, min(place + _LONGEST, len(given))):
        each = given[branch]
        used = effects(each)
        reads = made.intersection(one.number for one in used.reads)
        if branch in labels or used.unknown or (reads and _acts(each)):
            return
        if each.opcode == "bra" and each.guard is not None:
            goals = destinations(function, each)
            if reads or len(goals) != 1 or goals[0] == branch + 1:
                return
            ways = [_is_used(given, after, made, at) for at in (branch + 1, goals[0])]
            if ways.count(True) == 1:
                yield branch, ways[1]
            return
        if branch + 1 not in after[branch]:
            return
        written = {one.number for one in used.writes}
        if written & needed:
            return
        made |= written if reads else frozenset()


def _acts(each: Instruction) -> bool:
    """Whether what it reads is seen elsewhere, or decides whether it is done."""
    return each.opcode in _ACTS or not effects(each).writes


def _is_used(
    given: list[Instruction] | tuple[Instruction, ...],
    after: list[list[int]],
    made: set[int],
    start: int,
) -> bool:
    """Whether any of some registers is read on a way that begins at a place."""
    seen: dict[int, frozenset[int]] = {}
    ways = [(start, frozenset(made))]
    while ways:
        place, held = ways.pop()
        held -= seen.get(place, frozenset())
        if not held or place >= len(given):
            continue
        seen[place] = seen.get(place, frozenset()) | held
        used = effects(given[place])
        if used.unknown or held.intersection(one.number for one in used.reads):
            return True
        if given[place].guard is None:
            held -= {one.number for one in used.writes}
        ways += [(one, held) for one in after[place]]
    return False
