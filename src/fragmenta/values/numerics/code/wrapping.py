"""Sums of bytes that are kept in a byte, and then go on as numbers.

A difference of two bytes that becomes a float, or a sum that is divided by a shift, is
meant as a number: what the byte takes off is an error.  A checksum is stored as it is;
a hash is mixed by ``xor`` and products, compared, or used as a place.  Those are meant.
"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.ptx.dataflow import reached
from fragmenta.ptx.module import Instruction, Register, type_bits
from fragmenta.values.numerics.code.ranges import mask_of
from fragmenta.values.numerics.code.uses import (
    BYTES,
    Uses,
    goal_of,
    is_whole,
    reads,
    type_of,
)


def wrapping(uses: Uses) -> list[Instruction]:
    """The masks that keep a sum of bytes in a byte, where it goes on as a number."""
    return [
        each
        for each in uses.function.instructions
        if _keeps_byte(uses, each)
        and len(_summed(uses, each, frozenset())) > 1
        and _is_number(uses, each)
    ]


def _keeps_byte(uses: Uses, each: Instruction) -> bool:
    """Whether it keeps the lowest byte, or those bits of it that a shift leaves."""
    if mask_of(uses, each) == "u8":
        return True
    users = uses.readers.get(goal_of(each), [])
    shifts = [one for one in users if one.opcode == "shr"]
    steps = [int(uses.constants(one, "u32")[1] or 0) for one in shifts]
    if each.opcode != "and" or not steps or len(shifts) != len(users):
        return False
    return (0xFF >> min(steps)) << min(steps) in uses.constants(each, "u32")


def _summed(uses: Uses, each: Instruction, seen: frozenset[int]) -> list[Instruction]:
    """The loads of the bytes whose sum it reads; nothing if it is another number.

    What the launch was given may be added, such as a zero point.  A sum in a loop is
    made of itself: it is none.
    """
    found: list[Instruction] = []
    for number in reads(each):
        makers = uses.writers.get(number, [])
        if len(makers) != 1 or number in seen:
            return []
        (made,) = makers
        given = "param" in made.qualifiers and type_bits(type_of(made)) <= 32
        if made.is_load and (given or type_of(made) in BYTES):
            found.append(made)
            continue
        users = uses.readers.get(number, [])
        if not _sums(made) or not all(one is each or _sums(one) for one in users):
            return []
        more = _summed(uses, made, seen | {number})
        if not more and reads(made):
            return []
        found += more
    return found


def _sums(each: Instruction) -> bool:
    """Whether it adds integers, or moves one."""
    small = type_bits(type_of(each)) <= 32 if type_of(each) else each.is_move
    return (
        (each.is_sum or each.is_move or each.is_conversion) and is_whole(each) and small
    )


def _is_number(uses: Uses, mask: Instruction) -> bool:
    """Whether all that is done with a byte takes it for a number.

    It becomes a float, or is divided by a shift; before that, numbers may be added.
    """

    def goes_on(at: tuple[int, bool]) -> Iterator[tuple[int, bool]]:
        number, divided = at
        for each in uses.readers.get(number, ()):
            if _sums(each):
                yield goal_of(each), divided
            elif _divides(uses, each, number):
                yield goal_of(each), True

    ends = False
    for number, divided in reached([(goal_of(mask), False)], goes_on):
        for each in uses.readers.get(number, ()):
            floats = each.is_conversion and not is_whole(each)
            if floats or _divides(uses, each, number):
                ends = True
            elif not (_sums(each) or (divided and each.is_store)):
                return False
    return ends


def _divides(uses: Uses, each: Instruction, number: int) -> bool:
    """Whether a number is divided, by a constant shift or otherwise."""
    if each.opcode not in ("shr", "div") or type_bits(type_of(each)) > 32:
        return False
    given, by = each.operands[1], uses.constants(each, "u32")[1]
    known = each.opcode == "div" or by is not None
    return known and isinstance(given, Register) and given.number == number
