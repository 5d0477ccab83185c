"""Counts how the results of instructions differ, and whether their parts matter.

For each instruction that makes a number, the results of all lanes are added up, and
their squares: so it is seen whether there was ever another one.  Of sums, products and
choices, it is counted how often the result is not that of one part alone.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I32,
    I64,
    Code,
    Value,
    convert,
    intrinsic,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.emitter import InMemory, Writer
from fragmenta.engine.simt.library import POINTER, Routine, field, pointer_at
from fragmenta.engine.simt.memory import INTEGERS
from fragmenta.engine.simt.warps import all_lanes, routine, to_lanes, to_word
from fragmenta.ptx.families import PRODUCTS, SUMS, WITHOUT_RESULT
from fragmenta.ptx.module import Instruction, Operand, Register
from fragmenta.values.counters.code import layout as at

NEARLY = 2.0**-18
"""What a part adds to a sum matters from this share on."""
_MIX = 0x9E3779B1
_FLOAT, _SAME, _FUSED = "float", "same", "fused"
_FLOATS = {"f32": F32, "f64": F64}
_FLOATING = SUMS | PRODUCTS | {"div"}
_TWO = _FLOATING | {"min", "max", "and", "or", "xor", "selp", "rem"}
_WIDE = frozenset(["wide", "hi", "lo", "pred", "cc", "sat"])
"""Words of instructions whose parts are not looked at."""


class Composition(NamedTuple):
    """What a result is held against."""

    form: str
    """How: as floats, bit by bit, or as a product and what is added to it."""
    operands: tuple[int, ...]
    """The numbers of the operands that are read."""


def parts(instruction: Instruction) -> Composition | None:
    """The parts of a result that are looked at; None if it has none.

    >>> from fragmenta.ptx.reading import parse
    >>> text = ".version 8.0 .target sm_80 .entry f() { .reg .f32 %f<3>; {} ret; }"
    >>> text = text.replace("{}", "add.f32 %f0, %f1, %f2;")
    >>> parts(parse(text).functions["f"].instructions[0])
    Composition(form='float', operands=(1, 2))
    """
    words = instruction.qualifiers
    if not words or _WIDE & {*words} - {"lo"}:
        return None
    kind = words[-1]
    if instruction.is_fused and kind in _FLOATS:
        return Composition(_FUSED, (1, 2, 3))
    if instruction.opcode not in _TWO or len(instruction.operands) < 3:
        return None
    if instruction.opcode in _FLOATING and kind in _FLOATS:
        return Composition(_FLOAT, (1, 2))
    if instruction.is_product or instruction.opcode == "div":
        return None
    return Composition(_SAME, (1, 2))


def keep_operands(writer: Writer, instruction: Instruction) -> None:
    """Before an instruction: keep the operands that its result takes the place of."""
    _KEPT.pop(id(writer), None)
    found = parts(instruction)
    goal = _goal(instruction)
    if found is None or goal is None:
        return
    kept: dict[int, InMemory] = {}
    for number in found.operands:
        operand = instruction.operands[number]
        if isinstance(operand, Register) and operand.number == goal.number:
            old = writer.register(operand)
            place = writer.temporary(old.bits)
            kept[number] = place
            writer.call(
                _copied(old.bits),
                f"ptr {writer.address(place)}",
                f"ptr {writer.address(old)}",
            )
    if kept:
        _KEPT[id(writer)] = kept


_KEPT: dict[int, dict[int, InMemory]] = {}
"""Operands of the present instruction of a writer that are overwritten."""


def count_result(writer: Writer, instruction: Instruction) -> bool:
    """After an instruction: count its result; whether it has one."""
    goal = _goal(instruction)
    if goal is None:
        return False
    result = writer.register(goal)
    if result.bits not in (16, 32, 64):
        return False
    kept = _KEPT.pop(id(writer), {})
    found = parts(instruction)
    given = [kept.get(n) or _source(writer, instruction, n) for n in _numbers(found)]
    if any(each is None or each.bits != result.bits for each in given):
        found, given = None, []
    kind = instruction.qualifiers[-1] if instruction.qualifiers else ""
    form = found.form if found else ""
    places = [result, *(each for each in given if each is not None)]
    places += [result] * (4 - len(places))
    writer.call(
        _counted(result.bits, form, kind if form in (_FLOAT, _FUSED) else ""),
        "ptr %block",
        *(f"ptr {writer.address(each)}" for each in places),
        f"i32 {writer.lanes()}",
        f"i32 {record(writer)}",
    )
    return True


def _numbers(found: Composition | None) -> tuple[int, ...]:
    return found.operands if found else ()


def _source(writer: Writer, instruction: Instruction, number: int) -> InMemory | None:
    """Where an operand is; None if that is not known."""
    operand: Operand = instruction.operands[number]
    kind = instruction.qualifiers[-1]
    try:
        return writer.source(operand, kind)
    except Exception:  # the instruction itself says what is wrong with it
        return None


def _goal(instruction: Instruction) -> Register | None:
    """The one register with the result of an instruction; None if there is none."""
    first = instruction.operands[0] if instruction.operands else None
    none = instruction.opcode in WITHOUT_RESULT or instruction.is_comparison
    if none or not isinstance(first, Register) or first.type == "pred":
        return None
    return first


def record(writer: Writer) -> int:
    """Where the record of a new site is."""
    blocks = len(writer.program.blocks)
    return at.HEAD + 8 * blocks + at.SITE_BYTES_EACH * writer.site()


# ── routines ────────────────────────────────────────────────────────────────


def _copied(bits: int) -> Routine:
    def trace(code: Code, goal: Raw, source: Raw) -> None:
        value = all_lanes(code, source, INTEGERS[bits])
        b = code.builder
        b.store(value.raw, b.bitcast(goal, value.type.as_pointer())).align = 16

    return routine(f"count.keep.{bits}", trace, [POINTER, POINTER], None)


def _counted(bits: int, form: str, kind: str) -> Routine:
    """The routine that counts the results of an instruction."""

    def trace(
        code: Code,
        block: Raw,
        result: Raw,
        one: Raw,
        two: Raw,
        three: Raw,
        lanes: Value,
        number: Value,
    ) -> None:
        base = pointer_at(code, block, layout.BLOCK_COUNTERS)
        row = code.builder.gep(base, [convert(number, I64, signed=False).raw])
        made = all_lanes(code, result, INTEGERS[bits])
        chosen = to_lanes(lanes)
        folded = convert(made, I64, signed=False)
        if bits == 64:
            folded = folded ^ (shift_unsigned(folded, 32) * _MIX)
            folded = folded & 0xFFFFFFFF
        folded = select(chosen, folded, folded.lift(0))
        _add(code, row, at.SITE_MADE, _ones(code, lanes))
        _add(code, row, at.SITE_SUM, _total(code, folded))
        _add(code, row, at.SITE_SQUARES, _total(code, folded * folded))
        if not form:
            return
        pairs = _apart(code, form, kind, bits, (result, one, two, three))
        for place, apart in zip(
            (at.SITE_APART, at.SITE_APART_NEXT), pairs, strict=True
        ):
            _add(code, row, place, _ones(code, to_word(apart) & lanes))

    name = f"count.result.{bits}.{form}.{kind}"
    return routine(name, trace, [POINTER] * 5 + [I32, I32], None)


def _apart(
    code: Code, form: str, kind: str, bits: int, places: tuple[Raw, ...]
) -> tuple[Value, Value]:
    """The lanes whose result is not that of one part, and of the other part."""
    of = _FLOATS[kind] if kind else INTEGERS[bits]
    made, one, two, three = (all_lanes(code, each, of) for each in places)
    if form == _SAME:
        return made != one, made != two
    if form == _FUSED:
        return _is_apart(made, three), _is_apart(made, one * two)
    return _is_apart(made, one), _is_apart(made, two)


def _is_apart(made: Value, part: Value) -> Value:
    size = abs(part)
    return abs(made - part) > select(size > 1.0, size, size.lift(1)) * NEARLY


def _total(code: Code, values: Value) -> Value:
    b = code.builder
    return Value(b, intrinsic(b, "llvm.vector.reduce.add.v32i64", I64, [values.raw]))


def _ones(code: Code, word: Value) -> Value:
    return Value(
        code.builder, intrinsic(code.builder, "llvm.ctpop.i32", I32, [word.raw])
    )


def _add(code: Code, row: Raw, place: int, number: Value) -> None:
    cell = field(code, row, place, I64)
    cell[0] = cell[0] + convert(number, I64, signed=False)
