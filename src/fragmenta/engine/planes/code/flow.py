"""Which registers of a function are followed: those that second values may go through.

A register is followed if it may hold a second value, and if that may be used.  It may
hold one if it comes from memory or from a computation with floats, through moves.  One
is used by computations with floats, by Tensor Cores, and by stores.  So addresses and
counters are not followed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fragmenta.engine.planes.code.kinds import FLOATS, floating, transparent
from fragmenta.ptx.checking.register_effects import (
    Effects,
    effects_of,
    flows,
    registers,
)
from fragmenta.ptx.dataflow import reached, reversed_graph
from fragmenta.ptx.families import SHUFFLES
from fragmenta.ptx.module import (
    Address,
    Function,
    Instruction,
    Operand,
    OperandGroup,
    Register,
    Symbol,
)
from fragmenta.ptx.opcodes.kinds import computes, kind_of, opcodes_of

LANES = SHUFFLES | {"movmatrix"}
"""Opcodes that move values between lanes."""
DOTS = frozenset({"dp4a", "dp2a"})
"""Opcodes that multiply packed integers, which may stand for numbers."""
BYTES = frozenset({"s8", "u8"})
ACCESSES = frozenset({"loads", "stores", "updates"})
"""The kinds of those that access memory at once."""


class _Use(NamedTuple):
    """An instruction: what it reads as data, and what it writes."""

    way: tuple[list[Register], list[Register]]
    moves: bool
    """Whether second values go through it as they are."""


def can_follow(register: Register) -> bool:
    """Whether a register may have planes: a predicate is no value."""
    return register.type != "pred"


def of_lanes(instruction: Instruction) -> bool:
    """Whether the results of each lane come from its own operands, not from memory."""
    return computes(instruction.mnemonic)


def from_parameter(instruction: Instruction, function: Function) -> bool:
    """Whether it loads a parameter of a kernel, which is given: it has no planes."""
    if not any(each.startswith("param") for each in instruction.qualifiers):
        return False
    given = () if function.kernel else (*function.parameters, *function.returns)
    names = {each.name for each in (*given, *function.variables.values())}
    bases = [each.base for each in instruction.operands if isinstance(each, Address)]
    return not any(isinstance(e, Symbol) and e.name in names for e in bases)


def followed(function: Function, granule: int = 16, whole: bool = False) -> set[int]:
    """The numbers of the registers of a function that are followed.

    With ``whole``, whole numbers from memory are followed until they become floats.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u64 a) {
    ...     .reg .b32 %r<6>;
    ...     .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [a];
    ...     mov.u32 %r1, %tid.x;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.s64 %rd3, %rd1, %rd2;
    ...     ld.global.u32 %r2, [%rd3];
    ...     shl.b32 %r3, %r2, 16;
    ...     add.s32 %r4, %r2, %r1;
    ...     st.global.u32 [%rd3], %r3;
    ...     st.global.u32 [%rd3], %r4;
    ...     ret;
    ... }''')
    >>> function = module.functions["f"]
    >>> sorted(function.registers[n].name for n in followed(function))
    ['%r2', '%r3']
    """
    flow = _Flow(function, whole)
    for each, effect in zip(function.instructions, effects_of(function), strict=True):
        flow.add(each, effect, granule)
    given = _given(function)
    flow.begin(given)
    flow.use(given)
    return flow.solved()


def _given(function: Function) -> list[Register]:
    """The registers that a function is given, or that it returns."""
    both = (*function.parameters, *function.returns)
    names = {each.name for each in both if each.space == "reg"}
    return [each for each in function.registers if names & {each.name, each.vector}]


class _Flow:
    """What may hold second values, and what uses them."""

    def __init__(self, function: Function, whole: bool) -> None:
        self.function, self.whole = function, whole
        self.known = {each.number for each in function.registers if can_follow(each)}
        self.begun: set[int] = set()
        """From memory, or from floats."""
        self.computed: set[int] = set()
        """From floats, also through computations with whole numbers."""
        self.used: set[int] = set()
        """By floats or stores."""
        self.wanted: set[int] = set()
        """By floats."""
        self.uses: list[_Use] = []

    def begin(self, named: Iterable[Register]) -> None:
        self.begun |= {each.number for each in named} & self.known

    def use(self, named: Iterable[Register]) -> None:
        self.used |= {each.number for each in named} & self.known

    def add(self, of: Instruction, found: Effects, granule: int) -> None:
        """Add what an instruction makes, uses and moves."""
        opcode = of.opcode
        data = [e for o in of.operands if not isinstance(o, Address) for e in _of(o)]
        reads = [each for each in found.reads if each in data]
        if opcode == "call":
            every = [
                e for o in of.operands if isinstance(o, OperandGroup) for e in _of(o)
            ]
            self.begin(every)
            self.use(every)
        elif opcode in opcodes_of("multiplies"):
            self.begin(found.writes)
            self.use([*reads, *found.writes])  # a sum begins with its old value
            self.wanted |= {each.number for each in reads}
        elif opcode == "redux" and floating(of):
            self._floats(reads, found.writes)
        elif kind_of(of.mnemonic).word in ACCESSES:
            if not from_parameter(of, self.function):
                self.begin(found.writes)
            if (FLOATS | BYTES) & set(of.qualifiers):
                self.computed |= {e.number for e in found.writes} & self.known
            self.use(reads)
        elif opcode in LANES or of_lanes(of):
            self._computes(of, reads, found.writes, granule)

    def _floats(self, reads: list[Register], writes: list[Register]) -> None:
        self.begin(writes)
        self.computed |= {each.number for each in writes} & self.known
        self.use(reads)
        self.wanted |= {each.number for each in reads} & self.known

    def _computes(
        self,
        of: Instruction,
        reads: list[Register],
        writes: list[Register],
        granule: int,
    ) -> None:
        if of_lanes(of) and (floating(of) or of.opcode in DOTS):
            self._floats(reads, writes)
            return
        moves = of.opcode in LANES or transparent(of, granule)
        if of.is_shuffle:
            reads = [*registers(of.operands[1:2])]
        kept = [[e for e in each if e.number in self.known] for each in (reads, writes)]
        self.uses.append(_Use((kept[0], kept[1]), moves))

    def solved(self) -> set[int]:
        """The registers that may hold second values which are used."""
        every = flows(self.function, [each.way for each in self.uses])
        floats = {*reached(self.computed, every.__getitem__)}
        # Whole numbers that are computed from floats are followed until they are used.
        first = self.wanted if self.whole else ()
        wanted = {*reached(first, reversed_graph(every).__getitem__)}
        counted = [
            use.way
            for use in self.uses
            if use.moves
            or any(each.number in floats for each in use.way[0])
            or any(each.number in wanted for each in use.way[1])
        ]
        graph = flows(self.function, counted)
        held = {*reached(self.begun | self.computed, graph.__getitem__)}
        return held & {*reached(self.used, reversed_graph(graph).__getitem__)}


def _of(operand: Operand) -> Iterable[Register]:
    return registers((operand,))
