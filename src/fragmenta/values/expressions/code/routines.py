"""Routines that hash what an instruction computes, for a warp."""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, any_lane, convert, select
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import Routine, field
from fragmenta.engine.simt.warps import P, routine
from fragmenta.values.expressions.code import hashing
from fragmenta.values.expressions.code.elements import (
    CHUNK,
    RegisterOperand,
    RegisterPlanes,
    put_words,
    stored,
)
from fragmenta.values.expressions.code.hashing import Hash
from fragmenta.values.expressions.code.logging import (
    OpenEntry,
    operation_entry,
    put_lanes,
)
from fragmenta.values.expressions.code.names import ElementOperation


def computed(
    of: ElementOperation,
    goal: RegisterOperand,
    sources: tuple[RegisterOperand, ...],
    logged: bool = False,
) -> Routine:
    """The hash of an operation: planes of the goal, then of each source its value and,
    if it is followed, its planes; then the lanes.

    Where no operand has a hash, the result is a constant, too.  If it is logged, the
    table comes after the sources, and the number of the instruction before the lanes.
    """

    def trace(code: Code, base: Raw, *given: Raw | Value) -> None:
        pointers = [each for each in given if not isinstance(each, Value)]
        *site, lanes = (each for each in given if isinstance(each, Value))
        entry = None
        if logged:
            many = 1 if of.form == "pack" else len(sources)
            entry = operation_entry(code, pointers[-1], site[0], goal.many, many)
        with code.loop(LANES // CHUNK) as index:
            registers = _registers(code, sources, pointers, index)
            mask = _mask(code, lanes, index)
            some = code.constant(0, I64).in_all_lanes(CHUNK)
            for each in registers:
                held = each.any()
                some = some if held is None else some | held
            zero = some.lift(0)
            results = [code.variable(zero) for _ in range(goal.many * _words(goal))]
            with code.when(any_lane(some != 0)):
                for number in range(goal.many):
                    made = _result(of, goal, registers, number, entry, index)
                    for place, word in enumerate(made):
                        results[number * _words(goal) + place].value = word
            words = [
                [results[n * _words(goal) + w].value for w in range(_words(goal))]
                for n in range(goal.many)
            ]
            put_words(code, base, goal, index, words, mask)
        if entry is not None:
            entry.keep()

    kinds = [P]
    for each in sources:
        kinds += [P, P] if each.followed else [P]
    kinds += [P, I64] if logged else []
    shape = ",".join(
        f"{e.register}:{e.bits}{'f' * e.followed}{'n' * e.negated}"
        for e in (goal, *sources)
    )
    how = f"{of.form}.{of.commutes}{int(of.clean)}{'A' * of.associates}{'L' * logged}"
    name = f"expression.{of.name}.{how}|{shape}"
    return routine(name, trace, [*kinds, I32], None)


def _words(goal: RegisterOperand) -> int:
    return {64: 4, 32: 2}.get(goal.bits, 1)


def _registers(
    code: Code, sources: tuple[RegisterOperand, ...], pointers: list[Raw], index: Value
) -> list[RegisterPlanes]:
    rest = iter(pointers)
    found = []
    for each in sources:
        value = next(rest)
        planes = next(rest) if each.followed else None
        found.append(RegisterPlanes(code, each, value, planes, index))
    return found


def _mask(code: Code, lanes: Value, index: Value) -> Value:
    """The lanes of a chunk that take part."""
    own = ir.Constant(ir.VectorType(I32, CHUNK), [1 << i for i in range(CHUNK)])
    part = lanes.in_all_lanes(CHUNK) >> convert(index * CHUNK, I32)
    found: Value = (part & Value(code.builder, own)) != 0
    return found


def _result(
    of: ElementOperation,
    goal: RegisterOperand,
    registers: list[RegisterPlanes],
    number: int,
    entry: OpenEntry | None,
    index: Value,
) -> tuple[Value, ...]:
    """The words of one element of the result."""
    if of.form == "pack":  # the first operand is the upper half
        registers = [registers[goal.many - 1 - number]]
    operands, known = [], None
    logged: list[Value] = []
    for each in registers:
        found, constant = each.element(number)
        operands.append(found)
        own = each.plain(number) if entry is not None else found
        logged += (select(constant, e.lift(0), e) for e in own)
        logged.append(each.raw(number))
        known = constant if known is None else known & constant
    assert known is not None
    if of.form == "widen":
        made = Hash(operands[0].u, operands[0].v ^ operands[0].v)
    elif of.form == "neg":
        made = hashing.negated(operands[0])
    elif of.associates:
        made = hashing.associated(of.name, operands, clean=of.clean)
    else:
        made = hashing.operation(of.name, operands, of.commutes, clean=of.clean)
    if goal.bits < 32:
        made = hashing.widened(made.u if of.associates else hashing.short(made))
    if entry is not None:
        entry.wanted.value = entry.wanted.value | 1
        with entry.code.when(entry.fits):
            whole = [select(known, e.lift(0), e) for e in made]
            put_lanes(entry, number, len(registers), index, [*whole, *logged])
    words = stored(goal.bits, made)
    return tuple(select(known, each.lift(0), each) for each in words)


def _noted(code: Code, table: Raw, place: Value, lanes: Value) -> None:
    with code.when(lanes != 0):
        counts = field(code, table, 0, I64)
        counts[place] = counts[place] + 1


NOTED = routine("expression.noted", _noted, [P, I64, I32], None)
"""Count in the table, if there are lanes: table, place, lanes."""
