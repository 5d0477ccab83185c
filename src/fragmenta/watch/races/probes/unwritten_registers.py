"""Instrumentation for registers that a lane may use before it has written them.

Most reads are known to be right before a kernel runs.  Only a register that some path
may read too early has a word in the warp's memory, with the lanes that have written it;
so has each register that is computed from such ones.  A compiler may move and add up
values that are not needed.  So a use is noted only when a value leaves the registers of
its lane: it is stored or exchanged, or decides a branch or an address.  What becomes of
it is found out by :mod:`definedness`, in a second run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

from fragmenta.engine.simt.emitter import Writer
from fragmenta.engine.simt.events import if_some, notify
from fragmenta.engine.simt.program import PlacedFunction, Program
from fragmenta.engine.simt.wgmma_operands import describe, is_wgmma
from fragmenta.errors import Error
from fragmenta.ptx.checking.reaching import unwritten
from fragmenta.ptx.checking.register_effects import (
    Effects,
    effects,
    effects_of,
    flows,
    registers,
    ways,
)
from fragmenta.ptx.dataflow import reached
from fragmenta.ptx.flow import blocks
from fragmenta.ptx.module import (
    Function,
    Immediate,
    Instruction,
    Not,
    Operand,
    Register,
)
from fragmenta.ptx.opcodes.kinds import computes

_PLACES: WeakKeyDictionary[PlacedFunction, dict[int, int]] = WeakKeyDictionary()
"""Where the word of each register is, by its number."""


def maybe_unwritten(function: Function) -> set[Register]:
    """The registers that some path through a function may read too early.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f(.param .u32 n) {
    ...     .reg .pred %p; .reg .b32 %r<4>;
    ...     ld.param.u32 %r1, [n];
    ...     setp.eq.u32 %p, %r1, 0;
    ...     @%p bra L;
    ...     mov.u32 %r2, 1;
    ... L:  add.u32 %r3, %r1, %r2;
    ...     ret;
    ... }''')
    >>> [each.name for each in maybe_unwritten(module.functions["f"])]
    ['%r2']
    """
    if not function.instructions:
        return set()
    given = {each.name for each in (*function.parameters, *function.returns)}
    both = zip(function.instructions, effects_of(function), strict=True)
    effect = [_certain(*each) for each in both]
    found = unwritten(blocks(function), effect)
    return {each.register for each in found if each.register.name not in given}


def _certain(instruction: Instruction, found: Effects) -> Effects:
    """What an instruction reads, and what it writes whatever its guard is.

    While a kernel runs, it is known which lanes a guard lets write.
    """
    if is_wgmma(instruction):
        return found._replace(reads=[*found.reads, *registers(_added(instruction))])
    return found if instruction.guard is None else found._replace(writes=[])


def _added(instruction: Instruction) -> tuple[Operand, ...]:
    """The accumulators of a ``wgmma``, unless it never adds to them."""
    try:
        form = describe(instruction)
    except Error:  # it is refused
        return ()
    scale = form.scale_d
    never = isinstance(scale, Immediate) and not scale.value
    return () if never else form.d


def tracked(function: Function) -> set[int]:
    """The numbers of the registers that need a word, also those computed from such."""
    found = [each.number for each in maybe_unwritten(function)]
    graph = flows(function, ways(function, lambda each: computes(each.mnemonic)))
    return {*reached(found, graph.__getitem__)}


def doubtful(program: Program) -> bool:
    """Whether any function may read a register too early."""
    return any(maybe_unwritten(unit.function) for unit in program.units.values())


def watch_unwritten(writer: Writer, instruction: Instruction) -> None:
    """Write the code before an instruction that names such a register.

    What it writes counts as written before it runs: lanes that have to wait at an
    instruction come to no other one.
    """
    places = _places(writer)
    if not places:
        return
    for operands, needing in _needed(writer, instruction):
        for number in dict.fromkeys(each.number for each in registers(operands)):
            if number in places:
                _check(writer, places[number], number, needing())
    found = effects(instruction)
    goals = [n for n in dict.fromkeys(r.number for r in found.writes) if n in places]
    if not goals:
        return
    known = "-1"
    if computes(instruction.mnemonic):
        known = _known(writer, instruction, places)
    lanes = writer.lanes()
    others = writer.value(f"xor i32 {lanes}, -1")
    new = writer.value(f"and i32 {known}, {lanes}")
    for number in goals:
        word = writer.load("i32", "%warp", places[number])
        kept = writer.value(f"and i32 {word}, {others}")
        both = writer.value(f"or i32 {kept}, {new}")
        writer.store("i32", both, "%warp", places[number])


def _needed(
    writer: Writer, instruction: Instruction
) -> Iterator[tuple[tuple[Operand, ...], Callable[[], str]]]:
    """Operands that matter at once, and the lanes for which they do."""
    if instruction.guard is not None:
        yield (instruction.guard,), writer.active
    if computes(instruction.mnemonic):
        return
    found = effects(replace(instruction, guard=None))
    yield tuple(found.reads), writer.lanes
    if is_wgmma(instruction) and _added(instruction):
        scale = describe(instruction).scale_d

        def adding() -> str:
            lanes = writer.lanes()
            if not isinstance(scale, Register | Not):
                return lanes
            return writer.value(f"and i32 {lanes}, {writer.predicate(scale)}")

        yield _added(instruction), adding


def _known(writer: Writer, instruction: Instruction, places: dict[int, int]) -> str:
    """The lanes in which all sources are written, of those that count."""

    def word(operand: Operand) -> str:
        total = "-1"
        for each in registers((operand,)):
            if each.number in places:
                one = writer.load("i32", "%warp", places[each.number])
                total = writer.value(f"and i32 {total}, {one}")
        return total

    if instruction.opcode == "selp":
        _, first, second, chosen = instruction.operands
        assert isinstance(chosen, Register | Not)
        yes = writer.predicate(chosen)
        no = writer.value(f"xor i32 {yes}, -1")
        one = writer.value(f"and i32 {yes}, {word(first)}")
        other = writer.value(f"and i32 {no}, {word(second)}")
        either = writer.value(f"or i32 {one}, {other}")
        return writer.value(f"and i32 {either}, {word(chosen)}")
    total = "-1"
    for each in effects(instruction).reads:
        if each.number in places:
            one = writer.load("i32", "%warp", places[each.number])
            total = writer.value(f"and i32 {total}, {one}")
    return total


def _places(writer: Writer) -> dict[int, int]:
    """The words of the present function; they are after all registers."""
    unit = writer.unit
    if unit not in _PLACES:
        # A function that calls itself keeps its registers elsewhere in between.
        numbers = set[int]() if unit.recursive else tracked(unit.function)
        _PLACES[unit] = _reserve(writer.program, sorted(numbers))
    return _PLACES[unit]


def _reserve(program: Program, numbers: list[int]) -> dict[int, int]:
    start = program.warp_bytes
    program.warp_bytes += -(-4 * len(numbers) // 64) * 64
    return {number: start + 4 * index for index, number in enumerate(numbers)}


def _check(writer: Writer, place: int, number: int, lanes: str) -> None:
    """Call Python if a lane needs the register too early; once for each lane."""
    word = writer.load("i32", "%warp", place)
    absent = writer.value(f"xor i32 {word}, -1")
    missing = writer.value(f"and i32 {lanes}, {absent}")
    with if_some(writer, missing):
        writer.store("i32", writer.value(f"or i32 {word}, {missing}"), "%warp", place)
        name = writer.unit.function.registers[number].name
        notify(writer, ["unwritten", name], [], missing)
