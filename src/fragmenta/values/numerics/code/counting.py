"""Registers with integers that stand for numbers, and where such integers are cut.

They begin where a number is quantised, with bytes from memory, and with products of
packed bytes, and go through computations with integers and through moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from fragmenta.engine.planes.code.flow import DOTS
from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.dataflow import reached
from fragmenta.ptx.families import MOVES, PRODUCTS, SUMS
from fragmenta.ptx.module import Instruction, Register, type_bits
from fragmenta.values.numerics.code.ranges import cuts, mask_of
from fragmenta.values.numerics.code.uses import (
    BYTES,
    Uses,
    goal_of,
    is_whole,
    reads,
    type_of,
    types_of,
)

_RINGS = SUMS | PRODUCTS | {"mad", "neg"}
"""Their lowest bits depend on nothing but the lowest bits of the operands."""
OPERATIONS = DOTS | _RINGS | {"min", "max", "abs"}
"""Operations on integers that keep second values."""
_MOVES = MOVES | {"selp"}
_WORDS = frozenset({"s32", "u32", "s16", "u16"})
_GOALS = _WORDS | BYTES | {"s64", "u64"}
"""Types of integers that a rounding makes."""


class Counted:
    """The integers of a function that stand for numbers."""

    def __init__(
        self, uses: Uses, chosen: list[Instruction], masks: dict[int, Instruction]
    ) -> None:
        self.uses, self.masks = uses, masks
        start = {goal_of(each) for each in chosen if type_of(each) in _GOALS}
        self.integers = self._integers(start)
        """Registers that hold what is computed from quantised integers."""
        self.short = dict.fromkeys(self._short(), "s8")
        """Registers of which only the lowest byte counts: its type."""
        self.cut = dict(self._masked()) | dict(self._cut())
        """Conversions that cut an integer to fewer bits."""

    def _integers(self, start: Iterable[int]) -> frozenset[int]:
        """Registers with integers; bytes in memory may stand for numbers, too."""
        given = self.uses.function.instructions
        start = {*start, *(goal for each in given for goal in _begun(each))} - {-1}
        readers = self.uses.readers

        def computed(number: int) -> Iterator[int]:
            every = filter(self._goes_on, readers.get(number, ()))
            return map(goal_of, every)

        found = {*reached(start, computed)}
        others = {
            goal_of(each)
            for each in given
            if goal_of(each) in found
            and not (self._goes_on(each) or _begun(each))
            and not (_to_whole(each) and type_of(each) in _GOALS)
        }
        return frozenset(found - others - {-1})

    def _goes_on(self, each: Instruction) -> bool:
        return _computes(each) or _carries(each) or id(each) in self.masks

    def _masked(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """A mask is the conversion that keeps as many bits."""
        for each in self.masks.values():
            if goal_of(each) in self.integers and isinstance(
                each.operands[1], Register
            ):
                bits = type_bits(type_of(each))
                yield id(each), (mask_of(self.uses, each) or "u8", f"u{bits}")

    def _cut(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """Conversions by which a sum of signed integers may wrap."""
        computed: dict[int, bool] = {}
        for each in self.uses.function.instructions:
            sums = type_of(each) == "s32" and (_computes(each) or each.opcode in DOTS)
            sums |= each.is_conversion and is_whole(each) and _all(each, computed)
            for one in effects(each).writes:
                computed[one.number] = sums and computed.get(one.number, True)
        for each in self.uses.function.instructions:
            kinds = types_of(each)
            if not each.is_conversion or len(kinds) != 2 or not _carries(each):
                continue
            (source,), narrow = reads(each) or [-1], min(kinds, key=type_bits)
            signed = {*kinds} <= {"s32", "s16", "s8"} and narrow != "s32"
            if signed and source in self.integers and computed.get(source):
                (given,) = (e for e in each.operands[1:] if isinstance(e, Register))
                yield id(each), (narrow, f"s{type_bits(given.type)}")

    def _short(self) -> set[int]:
        """Registers from which only a signed byte is taken in the end.

        So the sum of two bytes is, as a ``signed char``: it wraps where it is added,
        and bytes may have been loaded without their sign.
        """
        ways = [n for each in self._extensions() for n in reads(each)]
        writers = self.uses.writers

        def given(number: int) -> list[int]:
            return [n for e in writers.get(number, ()) if _is_ring(e) for n in reads(e)]

        found = {*reached(ways, given)}
        found &= self.integers
        changed = True
        while changed:
            kept = {one for one in found if self._only_low(one, found)}
            found, changed = kept, kept != found
        return found

    def _extensions(self) -> list[Instruction]:
        given = self.uses.function.instructions
        return [each for each in given if each.is_conversion and _extends(each)]

    def _only_low(self, number: int, short: set[int]) -> bool:
        """Whether a register is computed, and used for nothing but its lowest byte.

        What was converted from more bits, which others use, is cut there.
        """
        made = self.uses.writers.get(number, [])
        used = self.uses.readers.get(number, [])
        return all(
            (_is_ring(each) and not (each.is_conversion and {*reads(each)} - short))
            or (bool(_begun(each)) and each.opcode not in DOTS)
            for each in made
        ) and all(
            _extends(each)
            or (_is_ring(each) and goal_of(each) in short)
            or (each.is_store and type_of(each) in BYTES)
            for each in used
        )


def _extends(each: Instruction) -> bool:
    """Whether it takes the lowest byte with its sign."""
    kinds = types_of(each)
    return each.is_conversion and len(kinds) == 2 and kinds[1] == "s8"


def _is_ring(each: Instruction) -> bool:
    """Whether its lowest byte comes from the lowest bytes of its operands."""
    words = {"wide", "hi", "sat"} & {*each.qualifiers}
    if each.is_conversion:
        return is_whole(each) and not _extends(each) and not words
    return each.opcode in _RINGS and _computes(each) and not words


def _all(each: Instruction, computed: dict[int, bool]) -> bool:
    """Whether all of its operands were computed."""
    return bool(reads(each)) and all(computed.get(one, False) for one in reads(each))


def _to_whole(each: Instruction) -> bool:
    """Whether it makes an integer of a float."""
    rounds = each.is_conversion and "rni" in each.qualifiers
    return rounds or cuts(each)


def _begun(each: Instruction) -> list[int]:
    """Registers in which an instruction begins an integer: of a byte, or a product."""
    if each.opcode in DOTS:
        return [goal_of(each)]
    if not each.is_load or type_of(each) not in BYTES:
        return []
    return [one.number for one in effects(each).writes]


def _computes(each: Instruction) -> bool:
    """Whether it computes with integers of 16 or 32 bits: their lower bits."""
    words = set(each.qualifiers)
    wide = "hi" in words or ("wide" in words and type_of(each)[1:] == "32")
    return each.opcode in OPERATIONS and type_of(each) in _WORDS and not wide


def _carries(each: Instruction) -> bool:
    """Whether it moves an integer, or makes it wider or narrower."""
    if each.is_shuffle:
        return True
    if each.is_conversion:
        return is_whole(each) and not {"sat", "relu"} & set(each.qualifiers)
    return each.opcode in _MOVES and type_bits(type_of(each)) in (16, 32)
