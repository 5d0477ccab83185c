"""Which roundings quantise: those of numbers that are kept within a few bits.

A rounding is whatever makes an integer of a number by a half-way rule: a conversion to
the nearest, or one that cuts a sum with a half, as ``roundf`` and ``floorf(x + 0.5f)``
do.  Between it and its range, a zero point may be added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fragmenta.ptx import dataflow, families
from fragmenta.ptx.module import Instruction, Operand, Register, type_bits
from fragmenta.values.numerics.code.exact import AWAY
from fragmenta.values.numerics.code.uses import (
    Uses,
    goal_of,
    is_whole,
    reads,
    type_of,
    types_of,
)

LOWEST = frozenset({-32768, -32767, -128, -127, -8, -7, 0})
HIGHEST = frozenset({7, 15, 127, 255, 32767, 65535})
MASKS = {255: "u8", 65535: "u16"}
"""Masks that make an integer shorter, and what of it is left."""
_HALVES = {"rmi": (0.5,), "rpi": (-0.5,), "rzi": (0.5, -0.5, AWAY)}
"""What is added to a number before it is cut so, to round it."""
_EXPONENTS = frozenset({20, 23, 52})
"""Where exponents of floats begin; in the upper word of an f64, at bit 20."""
_BYTE_BITS = 8
_LARGE = 16
"""The part of a range that is a large change."""


class RoundedEncoding(NamedTuple):
    """How a rounded number is kept in a few bits."""

    stored: bool
    """Whether it is stored as a byte, or put into a word as one."""
    bounds: dict[int, Instruction]
    """``min`` and ``max`` that keep it in a range, by ``id``."""
    low: bool = False
    """Whether it is none below zero anyway: a conversion has seen to that."""

    @property
    def within(self) -> bool:
        """Whether it is kept within a range of both sides."""
        known = {one.opcode for one in self.bounds.values()}
        return {"min", "max"} <= known | ({"max"} if self.low else set())


def half_of(uses: Uses, each: Instruction) -> float | str | None:
    """What was added to a number that is cut so that this rounds it.

    0 for a conversion to the nearest integer; None if it does not round.
    """
    if not each.is_conversion:
        return None
    if "rni" in each.qualifiers:
        return 0.0
    mode = next((one for one in each.qualifiers if one in _HALVES), "")
    if not mode or is_whole(each) or len(each.operands) != 2:
        return None
    found = {_added(uses, one) for one in uses.makers(each.operands[1])}
    (half,) = found if len(found) == 1 else (None,)
    return half if half in _HALVES[mode] else None


def _added(uses: Uses, each: Instruction) -> float | str | None:
    """The half that an instruction adds; None if it adds none."""
    sums = {"add": each.operands[1:], "sub": each.operands[2:]}
    sums |= dict.fromkeys(("fma", "mad"), each.operands[3:])
    for operand, constant in zip(each.operands[1:], uses.constants(each), strict=True):
        if operand not in sums.get(each.opcode, ()):
            continue
        if constant in (0.5, -0.5):
            return -constant if each.opcode == "sub" else constant
        if _has_sign(uses, operand):
            return AWAY
    return None


def _has_sign(uses: Uses, operand: Operand) -> bool:
    """Whether an operand is a half with the sign of something."""
    made = uses.makers(operand)
    halves = [set(uses.constants(each)) for each in made if type_of(each) == "f32"]
    return len(made) == 1 == len(halves) and (
        (made[0].opcode == "copysign" and bool({0.5, -0.5} & halves[0]))
        or (made[0].opcode == "selp" and {0.5, -0.5} <= halves[0])
    )


def cuts(each: Instruction) -> bool:
    """Whether a float is cut to an integer; one that was rounded before is kept."""
    return each.is_conversion and bool({"rzi", "rmi", "rpi"} & {*each.qualifiers})


def kept(uses: Uses, rounding: Instruction) -> RoundedEncoding | None:
    """How a rounded number is kept in a few bits; None if it is not quantised."""
    if _is_meant(uses, rounding):
        return None
    found = bounds_of(uses, rounding)
    if not (found.stored or found.within):
        found = bounds_of(uses, rounding, shifts=True)
    return found if found.stored or found.within else None


def _is_meant(uses: Uses, rounding: Instruction) -> bool:
    """Whether it becomes an exponent, or what it leaves of the number is used."""
    near = reached(uses, {goal_of(rounding)}, back=False, shifts=True)
    if any(_is_exponent(uses, each) for each in uses.reading(near)):
        return True
    exact = reached(uses, {goal_of(rounding)}, back=False)
    given = _given_to(uses, rounding)
    return any(
        each.opcode == "sub" and given & set(reads(each)) and type_of(each)[0] == "f"
        for each in uses.reading(exact)
    )


def _given_to(uses: Uses, rounding: Instruction) -> set[int]:
    """The number that is rounded, without the half that is added to it."""
    found = set(reads(rounding)[:1])
    if half_of(uses, rounding):
        for each in uses.makers(rounding.operands[1]):
            found |= set(reads(each)) if each.is_sum else set()
    return found


def _is_exponent(uses: Uses, each: Instruction) -> bool:
    if each.opcode == "shl":
        return bool(_EXPONENTS.intersection(uses.constants(each, "u32")[1:]))
    if (each.is_product or each.is_fused) and type_of(each)[0] in "us":
        return 2.0**23 in uses.constants(each)
    return each.opcode == "ex2"


def bounds_of(
    uses: Uses, rounding: Instruction, *, shifts: bool = False
) -> RoundedEncoding:
    """Whether a rounded number is stored as a byte; what keeps it in a range.

    With ``shifts``, a zero point may be added before.
    """
    near = reached(uses, {goal_of(rounding)}, back=False, shifts=shifts)
    near |= reached(uses, _given_to(uses, rounding), back=True)
    stored, low, found = False, _is_unsigned(rounding), dict[int, Instruction]()
    for each in uses.reading(near):
        stored |= each.is_store and type_bits(type_of(each)) == 8
        stored |= _packs(uses, each)
        low |= _is_unsigned(each)
        if each.opcode in ("min", "max") and len(each.operands) == 3:
            given = set(uses.constants(each))
            if given & (LOWEST if each.opcode == "max" else HIGHEST):
                found[id(each)] = each
    return RoundedEncoding(stored, found, low)


def _is_unsigned(each: Instruction) -> bool:
    """Whether it makes an unsigned integer of a float, which is none below zero."""
    kinds = types_of(each) if each.is_conversion else []
    return len(kinds) == 2 and kinds[0][0] == "u" and kinds[1][0] == "f"


def placed(uses: Uses, found: RoundedEncoding) -> Iterator[tuple[int, Instruction]]:
    """Each bound, and the place of the operand that is no constant."""
    for each in found.bounds.values():
        for place, number in enumerate(uses.constants(each)):
            if number is None:
                yield place, each


def large_change(uses: Uses, found: RoundedEncoding) -> float:
    """What a range may not take off of many numbers: a sixteenth, and more than a code.

    0 for a range that is not on both sides of zero: ``max(x, 0)`` may be what is meant.
    """
    sides = [(e.opcode, n) for e in found.bounds.values() for n in uses.constants(e)]
    least = max(
        (n for opcode, n in sides if opcode == "max" and n is not None), default=0.0
    )
    most = min(
        (n for opcode, n in sides if opcode == "min" and n is not None), default=0.0
    )
    return max(1.5, (most - least) / _LARGE) if least < 0 < most else 0.0


def narrowed(uses: Uses, rounding: Instruction) -> Iterator[Instruction]:
    """The conversions to an integer of a rounded float."""
    near = reached(uses, {goal_of(rounding)}, back=False, shifts=True)
    for each in uses.reading(near):
        whole = each.is_conversion and type_of(each)[:1] in ("s", "u")
        if whole and "rni" not in each.qualifiers:
            yield each


def masked(uses: Uses, rounding: Instruction) -> Iterator[Instruction]:
    """The masks of a rounded number, which are meant to leave it as it is.

    What a mask takes out of a number to put it into a word may have been negative.
    """
    near = reached(uses, {goal_of(rounding)}, back=False, shifts=True)
    for each in uses.reading(near):
        users = uses.readers.get(goal_of(each), ())
        if mask_of(uses, each) and all(_counts(one) for one in users):
            yield each


def mask_of(uses: Uses, each: Instruction) -> str:
    """The type of what a mask leaves of an integer; nothing if it is no such mask."""
    if each.opcode != "and":
        return ""
    given = uses.constants(each, "u32" if type_bits(type_of(each)) == 32 else "u16")
    return next((MASKS[int(e)] for e in given if e is not None and e in MASKS), "")


def _counts(each: Instruction) -> bool:
    """Whether it takes an integer for a number, or stores it."""
    computes = each.is_sum or each.is_product or each.opcode in ("mad", "min", "max")
    return computes or each.is_conversion or each.is_store


def _packs(uses: Uses, each: Instruction) -> bool:
    """Whether it puts a byte into a word; one that is masked alone may be an index."""
    if each.opcode == "bfi":
        return uses.constants(each, "u32")[3] == _BYTE_BITS
    if each.opcode != "and":
        return each.opcode in families.PERMUTATIONS
    if 255 not in uses.constants(each, "u32"):
        return False
    words, ways = {goal_of(each)}, [goal_of(each)]
    while ways:
        for other in uses.readers.get(ways.pop(), ()):
            if goal_of(other) in words:
                continue
            if other.opcode in families.PERMUTATIONS | {"or", "bfi", "lop3"}:
                return True
            if other.is_move or other.opcode == "shl":
                words.add(goal_of(other))
                ways.append(goal_of(other))
    return False


# ── registers with the same number ──────────────────────────────────────────


def reached(
    uses: Uses, start: set[int], *, back: bool, shifts: bool = False
) -> set[int]:
    """Registers that hold the same number, but for bounds, moves, and zero points."""
    ways = uses.writers if back else uses.readers

    def near(number: int) -> Iterator[int]:
        for each in ways.get(number, ()):
            if _keeps(uses, each, back) or (shifts and _shifts(uses, each)):
                yield from _varying(uses, each) if back else [goal_of(each)]

    return {*dataflow.reached(start, near)}


def _varying(uses: Uses, each: Instruction) -> list[int]:
    """The registers that it reads and that are no constants, which others share."""
    both = zip(each.operands[1:], uses.constants(each), strict=True)
    known = {one for one, number in both if number is not None}
    named = [one for one in each.operands[1:] if one not in known]
    return [one.number for one in named if isinstance(one, Register)]


def _keeps(uses: Uses, each: Instruction, back: bool) -> bool:
    """Whether its result is the number that it was given, but for bounds."""
    if each.is_conversion and "rni" not in each.qualifiers:
        first, last = (kind[:1] for kind in (types_of(each) * 2)[:2])
        return is_whole(each) or (not back and (first in "us" or last in "us"))
    if each.opcode == "and":
        return not back and bool(mask_of(uses, each))
    return each.is_move or each.opcode in ("min", "max")


def _shifts(uses: Uses, each: Instruction) -> bool:
    """Whether a zero point is added: a constant, or what the launch was given.

    One that was computed is subtracted from the codes again.
    """
    if not each.is_sum or len(each.operands) != 3:
        return False
    if any(number is not None for number in uses.constants(each)):
        return True
    return any(
        _is_given(uses, one) or _is_taken_back(uses, one, each)
        for one in each.operands[1:]
    )


def _is_given(uses: Uses, operand: Operand) -> bool:
    """Whether an operand was loaded, and at most converted."""
    seen: set[int] = set()
    made = uses.makers(operand)
    passing = families.MOVES | families.CONVERSIONS | {"neg"}
    while len(made) == 1 and made[0].opcode in passing:
        if id(made[0]) in seen or {"rni"} & {*made[0].qualifiers}:
            return False
        seen.add(id(made[0]))
        made = uses.makers(made[0].operands[1])
    return len(made) == 1 and made[0].is_load


def _is_taken_back(uses: Uses, operand: Operand, shift: Instruction) -> bool:
    """Whether an operand of a sum is subtracted from what the sum becomes."""
    if shift.opcode != "add":
        return False
    near = reached(uses, {goal_of(shift)}, back=False)
    return any(
        each.opcode == "sub" and len(each.operands) == 3 and each.operands[2] == operand
        for each in uses.reading(near)
    )
