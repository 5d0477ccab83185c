"""Finds registers that are read before they are written.

A write under a predicate counts as a write: what is read later is often guarded by the
same predicate.  A register that is written on some paths only is often right too, where
the other paths cannot be taken; so the two cases have different severities.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_, or_
from typing import NamedTuple

from fragmenta.ptx.checking.register_effects import Effects
from fragmenta.ptx.dataflow import bits, solved
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
    after = [block.after for block in made]
    writes = [
        bits(r.number for e in effects[block.start : block.end] for r in e.writes)
        for block in made
    ]

    def written(number: int, have: int) -> int:
        return have | writes[number]

    known = solved(after, {0: 0}, and_, written)
    place = {number: rank for rank, number in enumerate(reverse_postorder(made))}
    for number, rank in place.items():  # some path, without any loop
        after[number] = [each for each in after[number] if place[each] > rank]
    maybe = solved(after, {0: 0}, or_, written)
    anywhere = reduce(or_, (writes[number] for number in known))
    reported: set[int] = set()
    for number in sorted(known):
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
