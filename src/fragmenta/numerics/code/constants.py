"""What is known of registers before a kernel runs: constants, and words of f64."""

from __future__ import annotations

import struct

from fragmenta.numerics.code.exact import SUMS
from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.module import (
    Function,
    Immediate,
    Instruction,
    Operand,
    Register,
    Vector,
    type_bits,
)

_MAGIC = {"f32": 23, "f64": 52, "f16": 10, "bf16": 7, "f32x2": 23, "f16x2": 10}
"""Bits of fractions: from this power of two up, all numbers are integers."""
_KNOWN: dict[int, tuple[Function, dict[int, int]]] = {}
_UPPER: dict[int, tuple[Function, frozenset[int]]] = {}


def _constants(function: Function) -> dict[int, int]:
    """Registers that only ever hold one constant: its bits."""
    known = _KNOWN.get(id(function))
    if known is not None and known[0] is function:
        return known[1]
    found: dict[int, int] = {}
    several: set[int] = set()
    for each in function.instructions:
        for register in effects(each).writes:
            number = register.number
            if number in found:
                several.add(number)
            found[number] = _moved(each) if each.guard is None else -1
    kept = {n: b for n, b in found.items() if b >= 0 and n not in several}
    _KNOWN[id(function)] = function, kept
    return kept


def _moved(instruction: Instruction) -> int:
    """The bits of the constant that an instruction moves; -1 if it does not."""
    if not instruction.is_move:
        return -1
    goal, source = instruction.operands
    if not isinstance(goal, Register) or not isinstance(source, Immediate):
        return -1
    return immediate(source, instruction.qualifiers[-1])


def immediate(operand: Immediate, kind: str) -> int:
    """The bits of a constant of a type."""
    bits = type_bits(kind)
    if operand.form == "f64" and bits == 32:
        return int.from_bytes(struct.pack("<f", operand.value), "little")
    return operand.bits & (1 << bits) - 1


def constant_of(function: Function, operand: Operand, kind: str) -> float | None:
    """The number that an operand always is; None if that is not known."""
    if isinstance(operand, Immediate):
        bits = immediate(operand, kind)
    elif isinstance(operand, Register):
        bits = _constants(function).get(operand.number, -1)
    else:
        return None
    if bits < 0 or kind not in ("f32", "s32", "u32", "s16", "u16"):
        return None
    size = type_bits(kind) // 8
    form = {"f32": "<f", "s32": "<i", "u32": "<I", "s16": "<h", "u16": "<H"}[kind]
    found: float = struct.unpack(form, bits.to_bytes(8, "little")[:size])[0]
    return found


def rounds_by_magic(function: Function, instruction: Instruction) -> bool:
    """Whether a sum with a large constant is meant to round to an integer.

    So is ``x + 12582912.0``: all f32 from 2**23 to 2**24 are integers.
    """
    if instruction.opcode not in SUMS:
        return False
    kind = next((e for e in instruction.qualifiers if e in _MAGIC), "")
    if not kind:
        return False
    *_, last = instruction.operands
    given = instruction.operands[1:] if instruction.is_sum else (last,)
    return any(_magic(function, each, kind) for each in given)


def _magic(function: Function, operand: Operand, kind: str) -> bool:
    if isinstance(operand, Immediate):
        bits = immediate(operand, kind)
    elif isinstance(operand, Register):
        bits = _constants(function).get(operand.number, -1)
    else:
        return False
    if bits < 0:
        return False
    exponent, fraction, bias, low = {
        "f64": (11, 52, 1023, 64),
        "f16": (5, 10, 15, 16),
        "f16x2": (5, 10, 15, 16),
        "bf16": (8, 7, 127, 16),
    }.get(kind, (8, 23, 127, 32))
    word = bits & (1 << low) - 1
    power = (word >> fraction & (1 << exponent) - 1) - bias
    return power == fraction  # from 2**23 to 2**24


def upper_words(function: Function) -> frozenset[int]:
    """Registers that hold a word of an f64, or are computed from one."""
    known = _UPPER.get(id(function))
    if known is not None and known[0] is function:
        return known[1]
    found: set[int] = set()
    changed = True
    while changed:
        changed = False
        for each in function.instructions:
            effect = effects(each)
            numbers = {e.number for e in effect.writes if e.type != "pred"}
            if numbers <= found:
                continue
            from_wide = _unpacks(each)
            same = any(e.number in found for e in effect.reads)
            if from_wide or (same and _whole(each)):
                found |= numbers
                changed = True
    _UPPER[id(function)] = function, frozenset(found)
    return frozenset(found)


def _unpacks(instruction: Instruction) -> bool:
    """Whether it takes an f64 apart."""
    if not instruction.is_move or "b64" not in instruction.qualifiers:
        return False
    goal, source = instruction.operands
    return (
        isinstance(goal, Vector)
        and len(goal.items) == 2
        and isinstance(source, Register)
        and source.type == "f64"
    )


def _whole(instruction: Instruction) -> bool:
    """Whether it computes 32-bit whole numbers."""
    return bool({"b32", "s32", "u32"} & set(instruction.qualifiers)) and not (
        instruction.is_load or instruction.is_conversion
    )
