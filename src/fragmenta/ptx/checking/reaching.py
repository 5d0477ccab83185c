"""Finds registers that are read before they are written.

A write under a predicate counts as a write: what is read later is often guarded by the
same predicate.  A register that is written on some paths only is often right too, where
the other paths cannot be taken; so the two cases have different severities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fragmenta.ptx.checking.register_effects import Effects
from fragmenta.ptx.flow import BasicBlock, reverse_postorder
from fragmenta.ptx.module import Register


class Unwritten(NamedTuple):
    """A register that an instruction reads before it was written."""

    instruction: int
    register: Register
    when: str
    """``never``: nowhere in the function; ``later``: not before the first time that the
    instruction runs; ``maybe``: not on every path."""


def unwritten(
    made: Sequence[BasicBlock], effects: Sequence[Effects]
) -> Iterator[Unwritten]:
    """The first such read of each register, in the order of the text."""
    order = reverse_postorder(made)
    writes = [0] * len(made)
    for number in order:
        for effect in effects[made[number].start : made[number].end]:
            for register in effect.writes:
                writes[number] |= 1 << register.number
    anywhere = 0
    for each in writes:
        anywhere |= each
    known = _known_at(made, order, writes)
    maybe = _maybe_at(made, order, writes)
    reported: set[int] = set()
    for number in sorted(order):
        have, may = known[number], maybe[number]
        for index in range(made[number].start, made[number].end):
            for register in effects[index].reads:
                bit = 1 << register.number
                if not have & bit and register.number not in reported and register.type:
                    reported.add(register.number)
                    when = "later" if anywhere & bit else "never"
                    yield Unwritten(index, register, "maybe" if may & bit else when)
            for register in effects[index].writes:
                have |= 1 << register.number
                may |= 1 << register.number


def _known_at(
    made: Sequence[BasicBlock], order: Sequence[int], writes: Sequence[int]
) -> dict[int, int]:
    """The registers that every path to a block has written, as bits."""
    known = dict.fromkeys(order, -1)  # everything, until a path shows otherwise
    known[order[0]] = 0
    changed = True
    while changed:
        changed = False
        for number in order[1:]:
            found = -1
            for before in made[number].before:
                if before in known:
                    found &= known[before] | writes[before]
            if found != known[number]:
                known[number] = found
                changed = True
    return known


def _maybe_at(
    made: Sequence[BasicBlock], order: Sequence[int], writes: Sequence[int]
) -> dict[int, int]:
    """The registers that some path to a block has written, without any loop."""
    place = {number: position for position, number in enumerate(order)}
    found: dict[int, int] = {}
    for number in order:
        found[number] = 0
        for before in made[number].before:
            if before in place and place[before] < place[number]:
                found[number] |= found[before] | writes[before]
    return found
