"""Where the registers of a kernel come from: memory, places, sizes or clocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from fragmenta.frontends.judge.unrolling import of_compilers, of_functions
from fragmenta.ptx import families
from fragmenta.ptx.module import (
    Function,
    Immediate,
    Instruction,
    Not,
    Register,
    Special,
    Symbol,
)

SMALL = 32
"""Whole numbers below this one are compared with to begin, unroll and end loops."""


def where(function: Function, instruction: Instruction) -> str:
    """The place of an instruction, in words."""
    if instruction.source is not None:
        return f"{function.shown}, {instruction.source.words}"
    return f"{function.shown}, PTX line {instruction.line}"


class Argument(NamedTuple):
    """What a launch gave for a parameter."""

    value: int = 0
    """The bits of a number."""
    pointer: bool = False
    given: bool = False
    """Whether it is a number of the inputs."""


class Parameters(NamedTuple):
    """What is known of the parameters of a kernel, by their names."""

    fixed: Mapping[str, int] = MappingProxyType({})
    """Those that were the same for all sizes, and what they were."""
    pointers: frozenset[str] = frozenset()
    scalars: frozenset[str] = frozenset()
    """Those that are numbers of the inputs."""


class Roots:
    """Where the registers of a function come from, as far as its text says.

    >>> from fragmenta.ptx.reading import parse
    >>> function = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u32 n) {
    ...     .reg .pred %p; .reg .b32 %r<3>;
    ...     ld.param.u32 %r0, [n];
    ...     shr.u32 %r1, %r0, 20;
    ...     setp.ne.u32 %p, %r1, 0;
    ...     ret;
    ... }''').functions["f"]
    >>> Roots(function).is_bound(function.instructions[2])
    False
    """

    def __init__(self, function: Function, given: Parameters = Parameters()) -> None:  # noqa: B008
        self._given = given
        self._addresses: set[int] = set()
        self._kinds: dict[int, set[str]] = {}
        self._largest: Counter[int] = Counter()
        self._named: dict[int, set[str]] = {}
        added = of_compilers(function)
        self._added = {id(function.instructions[each]) for each in added}
        inlined = of_functions(function)
        self._inlined = {id(function.instructions[each]) for each in inlined}
        self._atomics = {
            register
            for each in function.instructions
            if each.is_fetch and "cas" not in each.qualifiers
            for register in registers(each.operands[0])
        }
        changed = True
        while changed:
            before = self._known()
            for each in function.instructions:
                self._pass(each)
            changed = before != self._known()

    def _known(self) -> tuple[int, ...]:
        rows = [sum(map(len, e.values())) for e in (self._kinds, self._named)]
        return *rows, self._largest.total(), len(self._addresses)

    def _pass(self, instruction: Instruction) -> None:
        """Results of an instruction come from where its operands come from."""
        if instruction.opcode in families.WITHOUT_RESULT:
            return
        goal, *given = (*instruction.operands, None)
        kinds, largest = set[str](), 0
        for each in given:
            found, number = self.of(each)
            if instruction.opcode in ("shr", "bfe") and isinstance(each, Immediate):
                number = 1 << min(number, 32)
            kinds, largest = kinds | found, max(largest, number)
        if instruction.is_comparison:
            kinds = set() if self.is_bound(instruction) else {UNBOUND}
        if instruction.opcode in _LOADS:
            kinds = {PARAMETER if "param" in instruction.qualifiers else MEMORY}
            largest = 0
            named = [each.partition("+") for each in self.names_of(given)]
            if kinds == {PARAMETER} and any(
                e[0] in self._given.pointers for e in named
            ):
                self._addresses |= registers(goal)
            for name, _, offset in named if kinds == {PARAMETER} else ():
                if name in self._given.fixed and offset == "0":
                    kinds, largest = set(), abs(self._given.fixed[name])
        elif self.is_of_address(instruction) and instruction.opcode in _ADDRESSES:
            self._addresses |= registers(goal)
        fresh = instruction.opcode in _LOADS and "param" not in instruction.qualifiers
        names = set() if fresh else self.names_of(given)
        for register in registers(goal):
            self._named.setdefault(register, set()).update(names)
            self._kinds.setdefault(register, set()).update(kinds)
            self._largest[register] = max(self._largest[register], largest)

    def of(self, operand: object) -> tuple[set[str], int]:
        """What an operand comes from, and the largest constant on the way."""
        if isinstance(operand, Immediate):
            value = operand.value if isinstance(operand.value, int) else 0
            return set(), min(abs(value), abs(value - (1 << 32)))
        if isinstance(operand, Special):
            return {_special(operand.name)}, 0
        found: set[str] = set()
        largest = 0
        for each in registers(operand):
            found |= self._kinds.get(each, set())
            largest = max(largest, self._largest[each])
        return found, largest

    def names_of(self, given: Iterable[object]) -> set[str]:
        """The parameters and variables that operands come from."""
        found: set[str] = set()
        for each in given:
            base = getattr(each, "base", each)
            if isinstance(base, Symbol):
                found.add(f"{base.name}+{getattr(each, 'offset', 0)}")
            for register in registers(each):
                found |= self._named.get(register, set())
        return found

    def is_of_address(self, instruction: Instruction) -> bool:
        """Whether an instruction gets an address of an array as a number."""
        loads = instruction.opcode in _OF_MEMORY
        read = {n for each in instruction.operands[1:] for n in registers(each)}
        return not loads and bool(read & self._addresses)

    def is_given(self, operands: Iterable[object]) -> bool:
        """Whether operands come from numbers of the inputs alone."""
        names = {each.partition("+")[0] for each in self.names_of(operands)}
        return bool(names) and names <= self._given.scalars

    def is_fixed(self, operand: object) -> bool:
        """Whether an operand is a number that was the same for all sizes."""
        names = {each.partition("+")[0] for each in self.names_of([operand])}
        return (
            bool(names)
            and names <= self._given.fixed.keys()
            and not self.of(operand)[0]
        )

    def mixes(self, instruction: Instruction) -> bool:
        """Whether an instruction gets what comes from two parameters or variables."""
        return len(self.names_of(instruction.operands[1:])) > 1

    def asks_atomic(self, setp: Instruction) -> bool:
        """Whether a comparison asks what an atomic found, not for the last block."""
        read = {n for each in setp.operands[1:] for n in registers(each)}
        return bool(read & self._atomics) and id(setp) not in self._added

    def is_inlined(self, instruction: Instruction) -> bool:
        """Whether an instruction is one of a function of CUDA that was inlined."""
        return id(instruction) in self._inlined

    def kinds_of(self, instruction: Instruction) -> set[str]:
        """What the operands of an instruction come from."""
        return {k for each in instruction.operands[1:] for k in self.of(each)[0]}

    def largest_of(self, instruction: Instruction) -> int:
        """The largest constant on the way to its operands."""
        return max((self.of(each)[1] for each in instruction.operands[1:]), default=0)

    def is_bounded(self, guarded: Instruction) -> bool:
        """Whether the guard of an instruction comes from such comparisons alone."""
        guard = guarded.guard
        register = guard.of if isinstance(guard, Not) else guard
        return register is None or UNBOUND not in self.of(register)[0]

    def asks_for_end(self, setp: Instruction) -> bool:
        """Whether a comparison asks for NaN, infinity or the largest number."""
        if id(setp) in self._added or setp.qualifiers[-1][0] in "sub":
            return False
        given = {each.bits for each in setp.operands if isinstance(each, Immediate)}
        return bool({"num", "nan"} & {*setp.qualifiers} or given & {*_OF_LIBRARIES[1:]})

    def is_bound(self, setp: Instruction) -> bool:
        """Whether a comparison is one of places and sizes, as of loops and ends.

        Numbers of memory and of clocks are neither, nor are sizes that are compared
        with a large constant.  Library functions ask for NaN, for infinity and for the
        smallest normal number.
        """
        if {"num", "nan"} & {*setp.qualifiers} or id(setp) in self._added:
            return True
        kind = setp.qualifiers[-1]
        if kind[0] not in "sub":
            given = [e for e in setp.operands if isinstance(e, Immediate)]
            return any(each.bits in _OF_LIBRARIES for each in given)
        sides = [self.of(each) for each in setp.operands[1:]]
        kinds = {each for found, _ in sides for each in found}
        if kinds & {MEMORY, CLOCK}:
            return False
        if kinds == {THREAD}:  # a block has few threads, and all of them ran
            return True
        direct = [
            e for e in setp.operands[1:] if isinstance(e, Immediate) or self.is_fixed(e)
        ]
        same = kinds == {PARAMETER} and {"eq", "ne"} & {*setp.qualifiers}
        if same and self.mixes(setp):  # one of them may be a number of the host
            return False
        if kinds & {INDEX, THREAD} and not direct:
            return True
        return max(number for _, number in sides) < SMALL


THREAD, INDEX, PARAMETER = "thread", "index", "parameter"
MEMORY, CLOCK = "memory", "clock"
UNBOUND = "unbound"
"""What a predicate comes from that is no comparison of places and sizes."""
_OF_LIBRARIES = (0x00800000, 0x7F800000, 0x7F7FFFFF)
"""The bits of the smallest and of the largest normal float32, and of infinity."""
ENDS = (0x00000000, 0x80000000, 0x7F800000, 0xFF800000)
"""The bits of zeros and infinities."""
_LOADS = families.READS | families.ROW_LOADS | families.WARP_PRODUCTS | {"call", "tex"}
_OF_MEMORY = _LOADS | families.ACCESSES | families.COPIES | {"prefetch", "cvta"}
_ADDRESSES = families.SUMS | families.CONVERSIONS | {"mov", "cvta", "mad", "or"}
_ADDRESSES |= {"and", "shr"}
"""What makes an address, or a part of it, of another."""


def _special(name: str) -> str:
    if "clock" in name or "timer" in name:
        return CLOCK
    if any(each in name for each in ("tid", "lane", "warp")):
        return THREAD
    return PARAMETER if "nctaid" in name or "nsmid" in name else INDEX


def registers(operand: object) -> set[int]:
    """The numbers of the registers that an operand names."""
    if isinstance(operand, Register):
        return {operand.number}
    found: set[int] = set()
    for part in ("items", "base", "of", "first", "second"):
        inner = getattr(operand, part, None)
        for each in inner if isinstance(inner, tuple) else (inner,):
            if each is not None:
                found |= registers(each)
    return found
