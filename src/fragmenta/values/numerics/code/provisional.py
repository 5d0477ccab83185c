"""Decisions that a branch may throw away.

CUDA's ``sinf`` first reduces its argument in a quick way, which begins with a rounding
to an integer.  Then it branches, and for large arguments it computes all of that anew.
What was decided before counts only for threads that go the way on which it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import or_
from typing import NamedTuple

from fragmenta.base.arrays.once import OncePer
from fragmenta.engine.planes.code.kinds import from_float
from fragmenta.ptx.checking.register_effects import effects, effects_of
from fragmenta.ptx.dataflow import bits, solved
from fragmenta.ptx.families import BARRIERS, COPIES, SHUFFLES, WRITES
from fragmenta.ptx.flow import destinations, falls_through, successors
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


@OncePer
def provisional(function: Function) -> Provisional:
    """What a function decides for some threads only."""
    at: dict[int, list[PendingDecision]] = {}
    for place, each in enumerate(function.instructions):
        if each.is_conversion and each.guard is None and from_float(each):
            for branch, taken in _branch(function, place):
                at.setdefault(branch, []).append(PendingDecision(place, taken))
    found = frozenset(each.decision for kept in at.values() for each in kept)
    return Provisional(found, at)


def _branch(function: Function, place: int) -> Iterator[tuple[int, bool]]:
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
            live, held = _live(function), bits(made)
            ways = [bool(live[at] & held) for at in (branch + 1, goals[0])]
            if ways.count(True) == 1:
                yield branch, ways[1]
            return
        if not falls_through(each):
            return
        written = {one.number for one in used.writes}
        if written & needed:
            return
        made |= written if reads else frozenset()


def _acts(each: Instruction) -> bool:
    """Whether what it reads is seen elsewhere, or decides whether it is done."""
    return each.opcode in _ACTS or not effects(each).writes


@OncePer
def _live(function: Function) -> list[int]:
    """For each place the registers that are read on a way from there, as bits."""
    each = effects_of(function)
    read = [-1 if of.unknown else bits(r.number for r in of.reads) for of in each]
    kept = [
        -1 if instruction.guard is not None else ~bits(r.number for r in of.writes)
        for instruction, of in zip(function.instructions, each, strict=True)
    ]

    def before(place: int, later: int) -> int:
        return read[place] | later & kept[place]

    given = dict.fromkeys(range(len(each)), 0)
    later = solved(successors(function), given, or_, before, back=True)
    return [*(before(*both) for both in later.items()), 0]
