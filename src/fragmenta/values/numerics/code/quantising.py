"""Rounding that quantises: its integers stand for the numbers that were rounded.

A number that is rounded to the nearest integer and kept within the range of a few
bits, such as -127 to 127, is quantised: what is meant is the number, and what rounding
and the range take away is an error.  So is a number that is stored as a byte, or put
into a word as one.  Other roundings to an integer, such as those of a function's
argument, are meant.

Second values then go through integers of 16 and 32 bits, through bytes in memory and
through products of packed bytes, until they become floats again: ``integers`` are the
registers that may hold them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fragmenta.ptx.families import MOVES, PERMUTATIONS, PRODUCTS
from fragmenta.ptx.module import Function, Instruction
from fragmenta.values.numerics.code.counting import Counted
from fragmenta.values.numerics.code.ranges import (
    bounds_of,
    cuts,
    half_of,
    kept,
    large_change,
    masked,
    narrowed,
    placed,
    reached,
)
from fragmenta.values.numerics.code.uses import (
    BYTES,
    Uses,
    goal_of,
    is_whole,
    reads,
    type_of,
)
from fragmenta.values.numerics.code.wrapping import wrapping

_UNPACKS = PERMUTATIONS | {"and", "bfe", "shr", "lop3"}
"""What takes a code out of a word."""


class Quantised(NamedTuple):
    """What a function quantises."""

    roundings: frozenset[int]
    """Instructions that quantise, by ``id``."""
    integers: frozenset[int]
    """Registers with integers that stand for numbers."""
    bounds: dict[int, int]
    """``min`` and ``max`` that keep them in a range, by ``id``: the operand that is no
    constant, from 0.  What they cut off is an error, too."""
    spans: dict[int, float]
    """Those of them that are one side of a range with zero in it, by ``id``: what is a
    large change."""
    narrowed: frozenset[int]
    """Conversions to an integer of what is one, by ``id``: they decide nothing."""
    cut: dict[int, tuple[str, ...]]
    """Conversions that cut an integer to fewer bits, by ``id``: the qualifiers of the
    same from all of its bits to those that are left."""
    wraps: frozenset[int]
    """Those of them that keep a sum of bytes in one, where it goes on as a number."""
    unrounded: dict[int, str]
    """Conversions that cut a product that should be rounded, by ``id``: ``all`` of its
    numbers, or ``negative`` ones: what is positive may be a colour or a place."""
    halves: dict[int, str]
    """What was added to a number before it is cut, by ``id``: it stands for less."""
    short: dict[int, str]
    """Registers of which only the lowest byte counts: its type."""


_KNOWN: dict[int, tuple[Function, Quantised]] = {}


def quantised(function: Function) -> Quantised:
    """What a function quantises; found once."""
    known = _KNOWN.get(id(function))
    if known is None or known[0] is not function:
        known = _KNOWN[id(function)] = function, _found(function)
    return known[1]


def _found(function: Function) -> Quantised:
    uses = Uses(function)
    chosen: list[Instruction] = []
    bounds: dict[int, int] = {}
    spans: dict[int, float] = {}
    for each in function.instructions:
        within = None if half_of(uses, each) is None else kept(uses, each)
        if within is not None:
            chosen.append(each)
            bounds |= {id(one): place for place, one in placed(uses, within)}
            spans |= dict.fromkeys(within.bounds, large_change(uses, within))
    halves = {id(each): str(half_of(uses, each) or "") for each in chosen}
    again = {id(one): one for each in chosen for one in narrowed(uses, each)}
    masks = {id(one): one for each in chosen for one in masked(uses, each)}
    wraps = wrapping(uses)
    masks |= {id(one): one for one in wraps}
    chosen += [one for one in again.values() if cuts(one) and id(one) not in halves]
    chosen += [each for each in function.instructions if _zero_point(uses, each)]
    counted = Counted(uses, chosen, masks)
    return Quantised(
        frozenset(map(id, chosen)),
        counted.integers,
        bounds,
        {number: change for number, change in spans.items() if change},
        frozenset(again),
        counted.cut,
        frozenset(map(id, wraps)),
        dict(_unrounded(uses)),
        {number: half for number, half in halves.items() if half},
        counted.short,
    )


def _unrounded(uses: Uses) -> Iterator[tuple[int, str]]:
    """Conversions that cut a product which is kept in a few bits.

    A sum is none: ``x * scale + 0.5f`` is rounded, and nobody knows what else is added.
    """
    for each in uses.function.instructions:
        if not each.is_conversion or "rzi" not in each.qualifiers or is_whole(each):
            continue
        found = bounds_of(uses, each)._replace(low=False)
        lowest = [least for one in found.bounds.values() for least in _least(uses, one)]
        if not (found.stored or found.within) or any(each >= 0 for each in lowest):
            continue
        near = reached(uses, set(reads(each)[:1]), back=True)
        makers = [one for number in near for one in uses.writers.get(number, ())]
        scaling = PRODUCTS | {"div"}
        passed = MOVES | scaling | {"min", "max"}
        if any(one.opcode in scaling for one in makers) and all(
            one.opcode in passed for one in makers
        ):
            yield id(each), "all" if found.within else "negative"


def _least(uses: Uses, bound: Instruction) -> Iterator[float]:
    """The constant below which no number comes."""
    given = uses.constants(bound)
    yield from (each for each in given if each is not None and bound.opcode == "max")


def _zero_point(of: Uses, each: Instruction) -> bool:
    """Whether a float from memory is cut to an integer, only to shift codes by it.

    So is ``int z = zero[group]`` in ``(code - z) * scale``, where the code was unpacked
    from a word.  Elsewhere, cutting off is meant.
    """
    if not each.is_conversion or "rzi" not in each.qualifiers or type_of(each) != "s32":
        return False
    uses, made = of.readers, of.writers
    (source,) = reads(each)[:1] or (-1,)
    loaded = {one.is_load for one in made.get(source, ())} == {True}
    if not loaded or uses.get(source) != [each] or made.get(goal_of(each)) != [each]:
        return False
    shifts = uses.get(goal_of(each), [])
    return bool(shifts) and all(
        one.is_sum
        and len(reads(one)) == 2
        and all(
            _is_code(made.get(code)) for code in reads(one) if code != goal_of(each)
        )
        and {user.is_conversion for user in uses.get(goal_of(one), ())} == {True}
        and all(type_of(user)[:1] in ("f", "b") for user in uses[goal_of(one)])
        for one in shifts
    )


def _is_code(makers: list[Instruction] | None) -> bool:
    """Whether a register holds what was unpacked from a word, or a byte."""
    return bool(makers) and all(
        each.opcode in _UNPACKS or (each.is_load and type_of(each) in BYTES)
        for each in makers or ()
    )
