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

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fragmenta.numerics.code.constants import constant_of
from fragmenta.planes.code.flow import DOTS
from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.module import Function, Instruction, Pair, Register, type_bits
from fragmenta.ptx.opcodes.table import TYPES

LOWEST = frozenset({-32768, -32767, -128, -127, -8, -7, 0})
HIGHEST = frozenset({7, 15, 127, 255, 32767, 65535})
OPERATIONS = DOTS | {"min", "max", "add", "sub", "mul", "mad", "neg", "abs"}
"""Operations on integers that keep second values."""
_MOVES = frozenset({"mov", "selp"})
_WORDS = frozenset({"s32", "u32", "s16", "u16"})
_BYTES = frozenset({"s8", "u8"})
_BYTE_BITS = 8
_UNPACKS = frozenset({"and", "bfe", "shr", "prmt", "lop3"})
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
    narrowed: frozenset[int]
    """Conversions to an integer of what is one, by ``id``: they decide nothing."""
    cut: dict[int, tuple[str, ...]]
    """Conversions that cut an integer to fewer bits, by ``id``: the qualifiers of the
    same from all of its bits to those that are left."""
    unrounded: dict[int, str]
    """Conversions that cut a product that should be rounded, by ``id``: ``all`` of its
    numbers, or ``negative`` ones: what is positive may be a colour or a place."""


_KNOWN: dict[int, tuple[Function, Quantised]] = {}


def quantised(function: Function) -> Quantised:
    """What a function quantises; found once."""
    known = _KNOWN.get(id(function))
    if known is None or known[0] is not function:
        known = _KNOWN[id(function)] = function, _found(function)
    return known[1]


def _found(function: Function) -> Quantised:
    roundings = [each for each in function.instructions if _rounds(each)]
    chosen: list[Instruction] = []
    bounds: dict[int, int] = {}
    for each in roundings:
        stored, kept = _bounds(function, each)
        within = {"min", "max"} <= {one.opcode for one in kept.values()}
        if not (stored or within):
            # An exponent has a constant added and is cut, too: it is no byte.
            stored, kept = _bounds(function, each, shifts=True)
            stored &= {"min", "max"} <= {one.opcode for one in kept.values()}
        if stored or within:
            chosen.append(each)
            bounds |= {id(one): place for place, one in _placed(function, kept)}
    narrowed = {id(one): one for each in chosen for one in _narrowed(function, each)}
    chosen += [each for each in narrowed.values() if _cuts(each)]
    chosen += [each for each in function.instructions if _zero_point(function, each)]
    whole = {_goal(each) for each in chosen if _type(each) in _WORDS | _BYTES}
    integers = _integers(function, whole)
    numbers = frozenset(map(id, chosen)), integers, bounds
    cut, unrounded = dict(_cut(function, integers)), dict(_unrounded(function))
    return Quantised(*numbers, frozenset(narrowed), cut, unrounded)


def _unrounded(function: Function) -> Iterator[tuple[int, str]]:
    """Conversions that cut a product which is kept in a few bits.

    A sum is none: ``x * scale + 0.5f`` is rounded, and nobody knows what else is added.
    """
    made = _makers(function)
    for each in function.instructions:
        if each.opcode != "cvt" or "rzi" not in each.qualifiers or _is_whole(each):
            continue
        stored, kept = _bounds(function, each)
        lowest = [least for one in kept.values() for least in _least(function, one)]
        ranged = {"min", "max"} <= {one.opcode for one in kept.values()}
        if not (stored or ranged) or any(least >= 0 for least in lowest):
            continue
        near = _reached(function, set(_reads(each)[:1]), back=True)
        makers = [one for number in near for one in made.get(number, ())]
        passed = {"min", "max", "mov", "mul", "div"}
        if any(one.opcode in ("mul", "div") for one in makers) and all(
            one.opcode in passed for one in makers
        ):
            yield id(each), "all" if ranged else "negative"


def _least(function: Function, bound: Instruction) -> Iterator[float]:
    """The constant below which no number comes."""
    kind = _type(bound)
    given = (constant_of(function, each, kind) for each in bound.operands[1:])
    yield from (each for each in given if each is not None and bound.opcode == "max")


def _zero_point(function: Function, each: Instruction) -> bool:
    """Whether a float from memory is cut to an integer, only to shift codes by it.

    So is ``int z = zero[group]`` in ``(code - z) * scale``, where the code was unpacked
    from a word.  Elsewhere, cutting off is meant.
    """
    if each.opcode != "cvt" or "rzi" not in each.qualifiers or _type(each) != "s32":
        return False
    uses, made = _users(function), _makers(function)
    (source,) = _reads(each)[:1] or (-1,)
    kept = {one.opcode for one in made.get(source, ())}
    if kept != {"ld"} or uses.get(source) != [each] or made.get(_goal(each)) != [each]:
        return False
    shifts = uses.get(_goal(each), [])
    return bool(shifts) and all(
        one.opcode in ("sub", "add")
        and len(_reads(one)) == 2
        and all(_is_code(made.get(code)) for code in _reads(one) if code != _goal(each))
        and {user.opcode for user in uses.get(_goal(one), ())} == {"cvt"}
        and all(_type(user)[:1] in ("f", "b") for user in uses[_goal(one)])
        for one in shifts
    )


def _is_code(makers: list[Instruction] | None) -> bool:
    """Whether a register holds what was unpacked from a word, or a byte."""
    return bool(makers) and all(
        each.opcode in _UNPACKS or (each.opcode == "ld" and _type(each) in _BYTES)
        for each in makers or ()
    )


def _users(function: Function) -> dict[int, list[Instruction]]:
    """The instructions that read each register."""
    found: dict[int, list[Instruction]] = {}
    for each in function.instructions:
        for number in dict.fromkeys(_reads(each)):
            found.setdefault(number, []).append(each)
    return found


def _makers(function: Function) -> dict[int, list[Instruction]]:
    """The instructions that write each register."""
    found: dict[int, list[Instruction]] = {}
    for each in function.instructions:
        for one in effects(each).writes:
            found.setdefault(one.number, []).append(each)
    return found


def _cut(
    function: Function, integers: frozenset[int]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Conversions by which a sum of signed integers may wrap."""
    computed: dict[int, bool] = {}
    for each in function.instructions:
        of_words = _type(each) == "s32" and (_computes(each) or each.opcode in DOTS)
        for one in effects(each).writes:
            computed[one.number] = of_words and computed.get(one.number, True)
    for each in function.instructions:
        kinds = [word for word in each.qualifiers if word in TYPES]
        if each.opcode != "cvt" or len(kinds) != 2 or not _carries(each):
            continue
        (source,), narrow = _reads(each) or [-1], min(kinds, key=type_bits)
        signed = {*kinds} <= {"s32", "s16", "s8"} and narrow != "s32"
        if signed and source in integers and computed.get(source):
            yield id(each), (narrow, "s32")


def _narrowed(function: Function, rounding: Instruction) -> Iterator[Instruction]:
    """The conversions to an integer of a rounded float."""
    near = _reached(function, {_goal(rounding)}, back=False, shifts=True)
    for each in function.instructions:
        whole = each.opcode == "cvt" and _type(each)[:1] in ("s", "u")
        if whole and not _rounds(each) and near.intersection(_reads(each)):
            yield each


def _placed(
    function: Function, kept: dict[int, Instruction]
) -> Iterator[tuple[int, Instruction]]:
    """Each bound, and the place of the operand that is no constant."""
    for each in kept.values():
        kind = _type(each)
        for place, one in enumerate(each.operands[1:]):
            if constant_of(function, one, kind) is None:
                yield place, each


def _rounds(each: Instruction) -> bool:
    return each.opcode == "cvt" and "rni" in each.qualifiers


def _cuts(each: Instruction) -> bool:
    """Whether a float is cut to an integer; one that was rounded before is kept."""
    return each.opcode == "cvt" and bool({"rzi", "rmi", "rpi"} & {*each.qualifiers})


def _to_whole(each: Instruction) -> bool:
    return _rounds(each) or _cuts(each)


def _type(each: Instruction) -> str:
    return next((word for word in each.qualifiers if word in TYPES), "")


def _goal(each: Instruction) -> int:
    goal = next(iter(each.operands), None)
    goal = goal.first if isinstance(goal, Pair) else goal
    return goal.number if isinstance(goal, Register) else -1


def _reads(each: Instruction) -> list[int]:
    return [one.number for one in effects(each).reads]


def _bounds(
    function: Function, rounding: Instruction, *, shifts: bool = False
) -> tuple[bool, dict[int, Instruction]]:
    """Whether a rounded number is stored as a byte; what keeps it in a range.

    With ``shifts``, a zero point may be added before.
    """
    near = _reached(function, {_goal(rounding)}, back=False, shifts=shifts)
    near |= _reached(function, set(_reads(rounding)[:1]), back=True)
    stored = False
    kept: dict[int, Instruction] = {}
    for each in function.instructions:
        if not near.intersection(_reads(each)):
            continue
        stored |= each.opcode == "st" and type_bits(_type(each)) == 8
        stored |= _packs(function, each)
        if each.opcode in ("min", "max") and len(each.operands) == 3:
            given = {constant_of(function, e, _type(each)) for e in each.operands[1:]}
            if given & (LOWEST if each.opcode == "max" else HIGHEST):
                kept[id(each)] = each
    return stored, kept


def _packs(function: Function, each: Instruction) -> bool:
    """Whether it puts a byte into a word; one that is masked alone may be an index."""
    if each.opcode == "bfi":
        return constant_of(function, each.operands[4], "u32") == _BYTE_BITS
    if each.opcode == "and":
        given = {constant_of(function, one, "u32") for one in each.operands[1:]}
        words, changed = {_goal(each)}, 255 in given
        while changed:
            changed = False
            for other in function.instructions:
                if words.isdisjoint(_reads(other)) or _goal(other) in words:
                    continue
                if other.opcode in ("or", "prmt", "bfi", "lop3"):
                    return True
                if other.opcode in ("shl", "mov"):
                    words.add(_goal(other))
                    changed = True
        return False
    return each.opcode == "prmt"


def _reached(
    function: Function, start: set[int], *, back: bool, shifts: bool = False
) -> set[int]:
    """Registers that hold the same number, but for bounds, moves, and zero points."""
    found, changed = set(start), True
    while changed:
        changed = False
        for each in function.instructions:
            narrows = each.opcode == "cvt" and not _rounds(each)
            narrows &= _is_whole(each) or (not back and _type(each)[:1] in ("s", "u"))
            shifted = shifts and _shifts(function, each)
            if each.opcode not in ("min", "max", "mov") and not narrows | shifted:
                continue
            near, far = {_goal(each)}, set(_reads(each))
            near, far = (near, far) if back else (far, near)
            if found & near and not far <= found:
                found |= far
                changed = True
    return found


def _shifts(function: Function, each: Instruction) -> bool:
    """Whether a constant is added."""
    if each.opcode not in ("add", "sub") or len(each.operands) != 3:
        return False
    given = (constant_of(function, e, _type(each)) for e in each.operands[1:])
    return any(one is not None for one in given)


def _is_whole(each: Instruction) -> bool:
    kinds = [word for word in each.qualifiers if word in TYPES]
    return all(kind[0] in "us" for kind in kinds)


def _integers(function: Function, start: Iterable[int]) -> frozenset[int]:
    """Registers that hold what is computed from quantised integers.

    Bytes in memory, and products of packed bytes, may stand for numbers, too.
    """
    found = {*start, *(goal for each in function.instructions for goal in _begun(each))}
    changed = True
    while changed:
        changed = False
        for each in function.instructions:
            goal = _goal(each)
            uses = bool(found.intersection(_reads(each))) and goal not in found
            if uses and (_computes(each) or _carries(each)):
                found.add(goal)
                changed = True
    others = {
        _goal(each)
        for each in function.instructions
        if _goal(each) in found
        and not (_computes(each) or _carries(each) or _begun(each))
        and not (_to_whole(each) and _type(each) in _WORDS | _BYTES)
    }
    return frozenset(found - others - {-1})


def _begun(each: Instruction) -> list[int]:
    """Registers in which an instruction begins an integer: of a byte, or a product."""
    if each.opcode in DOTS:
        return [_goal(each)]
    if each.opcode not in ("ld", "ldu") or _type(each) not in _BYTES:
        return []
    return [one.number for one in effects(each).writes]


def _computes(each: Instruction) -> bool:
    """Whether it computes with integers of 16 or 32 bits: their lower bits."""
    words = set(each.qualifiers)
    wide = "hi" in words or ("wide" in words and _type(each)[1:] == "32")
    return each.opcode in OPERATIONS and _type(each) in _WORDS and not wide


def _carries(each: Instruction) -> bool:
    """Whether it moves an integer, or makes it wider or narrower."""
    if each.opcode == "shfl":
        return True
    if each.opcode == "cvt":
        return _is_whole(each) and not {"sat", "relu"} & set(each.qualifiers)
    return each.opcode in _MOVES and type_bits(_type(each)) in (16, 32)
