"""How does compiled code see that a lane reads a register before it was written?

Most reads are known to be right before a kernel runs.  Only a register that may be read
too early on some way has a word in the warp's memory: the lanes that have written it.
What is only moved does no harm: a copy of an unwritten register is unwritten, too.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from fragmenta.ptx.checking.effects import effects, registers
from fragmenta.ptx.checking.flow import blocks
from fragmenta.ptx.checking.reaching import unwritten
from fragmenta.ptx.engine import layout
from fragmenta.ptx.engine.program import Program, Unit
from fragmenta.ptx.engine.writing import BEFORE, Writer
from fragmenta.ptx.module import Function, Instruction, Register

_PLACES: WeakKeyDictionary[Unit, dict[int, int]] = WeakKeyDictionary()
"""Where the word of each register is, by its number."""
_CHOICES = frozenset({"selp", "slct"})
"""Opcodes that take one of their sources only."""


def maybe_unwritten(function: Function) -> set[Register]:
    """The registers that some way through a function may read too early.

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
    effect = [effects(each) for each in function.instructions]
    found = unwritten(blocks(function), effect)
    return {each.register for each in found if each.register.name not in given}


def _moved(instruction: Instruction) -> tuple[Register, Register] | None:
    """The goal and the source of a plain move of one register."""
    if instruction.opcode != "mov" or len(instruction.operands) != 2:
        return None
    goal, source = instruction.operands
    if isinstance(goal, Register) and isinstance(source, Register):
        return goal, source
    return None


def tracked(function: Function) -> set[int]:
    """The numbers of the registers that need a word: also copies of such ones."""
    found = {each.number for each in maybe_unwritten(function)}
    moves = [each for each in map(_moved, function.instructions) if each is not None]
    count = -1
    while found and count != len(found):
        count = len(found)
        found |= {goal.number for goal, source in moves if source.number in found}
    return found


def watch_unwritten(writer: Writer, instruction: Instruction) -> None:
    """Write what goes before an instruction that names such a register.

    What it writes counts as written before it runs: lanes that have to wait at an
    instruction come to no other one.
    """
    places = _places(writer)
    if not places:
        return
    guard = () if instruction.guard is None else (instruction.guard,)
    for each in registers(guard):
        if each.number in places:
            _check(writer, places[each.number], each.number, writer.active())
    moved = _moved(instruction)
    if moved is not None:
        _move(writer, places, *moved)
        return
    found = effects(instruction)
    for number in dict.fromkeys(each.number for each in found.reads):
        if number in places and instruction.opcode not in _CHOICES:
            _check(writer, places[number], number, writer.lanes())
    for number in dict.fromkeys(each.number for each in found.writes):
        if number in places:
            _written(writer, places[number])


def _written(writer: Writer, place: int) -> None:
    word = writer.load("i32", "%warp", place)
    new = writer.value(f"or i32 {word}, {writer.lanes()}")
    writer.store("i32", new, "%warp", place)


def _places(writer: Writer) -> dict[int, int]:
    """The words of the present function; their room is behind all registers."""
    unit = writer.unit
    if unit not in _PLACES:
        # A function that calls itself keeps its registers elsewhere in between.
        numbers = set() if unit.recursive else tracked(unit.function)
        _PLACES[unit] = _reserve(writer.program, sorted(numbers))
    return _PLACES[unit]


def _reserve(program: Program, numbers: list[int]) -> dict[int, int]:
    start = program.warp_bytes
    program.warp_bytes += -(-4 * len(numbers) // 64) * 64
    return {number: start + 4 * index for index, number in enumerate(numbers)}


def _move(
    writer: Writer, places: dict[int, int], goal: Register, source: Register
) -> None:
    """A copy is written where its source is."""
    if goal.number not in places:
        return
    place, lanes = places[goal.number], writer.lanes()
    if source.number not in places:
        _written(writer, place)
        return
    known = writer.load("i32", "%warp", places[source.number])
    others = writer.value(f"xor i32 {lanes}, -1")
    kept = writer.value(f"and i32 {writer.load('i32', '%warp', place)}, {others}")
    new = writer.value(f"and i32 {known}, {lanes}")
    writer.store("i32", writer.value(f"or i32 {kept}, {new}"), "%warp", place)


def _check(writer: Writer, place: int, number: int, lanes: str) -> None:
    """Call Python if a lane reads the register too early; once for each lane."""
    call, behind = writer.new_label(), writer.new_label()
    word = writer.load("i32", "%warp", place)
    absent = writer.value(f"xor i32 {word}, -1")
    missing = writer.value(f"and i32 {lanes}, {absent}")
    some = writer.value(f"icmp ne i32 {missing}, 0")
    writer.line(f"br i1 {some}, label %{call}, label %{behind}")
    writer.label(call)
    writer.store("i32", writer.value(f"or i32 {word}, {missing}"), "%warp", place)
    name = writer.unit.function.registers[number].name
    writer.events.append([writer.site(), ["unwritten", name], []])
    function = writer.load("ptr", "%block", layout.BLOCK_EVENT)
    event = len(writer.events) - 1
    passed = writer.value(
        f"call i32 {function}(ptr %block, ptr %warp, i32 {event}, i32 {missing})"
    )
    good = writer.value(f"icmp eq i32 {passed}, {missing}")
    writer.line(f"br i1 {good}, label %{behind}, label %stop")
    writer.label(behind)


BEFORE.append(watch_unwritten)
