"""The names of operations: what decides their bits, and no more.

``add.f32`` is ``add.rn.f32``; a packed operation has the name of one of its halves; an
exact conversion has no rounding.  ``.ftz``, ``.sat`` and ``.relu`` are parts of a name.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.errors import UnknownType
from fragmenta.ptx.families import PRODUCTS, SUMS
from fragmenta.ptx.module import Instruction, type_bits
from fragmenta.ptx.opcodes.table import TYPES
from fragmenta.reference.registers.dtype import dtype

_ROUNDED = SUMS | PRODUCTS | {"fma"}
_ROUNDINGS = frozenset({"rn", "rz", "rm", "rp", "rna", "rs"})
_CLEAN = frozenset({"f32", "f16", "bf16"})
"""Types whose operations have one NaN, so that operands commute."""
_COMMUTE = frozenset({"add", "mul", "fma", "min", "max", "mad"})


class ElementOperation(NamedTuple):
    """An operation in each element of its registers."""

    name: str
    goal: int
    """The bits of an element of the result."""
    sources: int
    """The bits of an element of the operands."""
    commutes: int = 0
    negated: int | None = None
    """The operand that is negated: of ``sub``, the second one."""
    form: str = "operation"
    """``operation``, ``neg``, ``widen`` (bf16 to f32), or ``pack`` (two operands)."""
    clean: bool = False
    associates: bool = False
    """Whether operands commute, and it does not matter where brackets are."""


def single(kind: str) -> str:
    """The type of an element: that of one half for a packed type.

    >>> single("f16x2"), single("f32"), single("e4m3x2")
    ('f16', 'f32', 'e4m3')
    """
    return kind.partition("x")[0] if kind[0] != "x" else kind


def element_bits(kind: str) -> int:
    """The bits of an element in a register.

    >>> element_bits("bf16x2"), element_bits("e4m3x2"), element_bits("f32")
    (16, 8, 32)
    """
    packed = kind.rpartition("x")[2]
    many = int(packed) if "x" in kind and packed.isdigit() else 1
    return type_bits(kind) // many


def narrow(kind: str) -> bool:
    """Whether an element has fewer than 8 bits: planes have no room for its hash.

    >>> narrow("e2m1x2"), narrow("e3m2x2"), narrow("e4m3x2"), narrow("u32")
    (True, True, False, False)
    """
    try:
        return dtype(single(kind)).bits < 8
    except UnknownType:
        return False


def exact(to: str, of: str) -> bool:
    """Whether every number of a type is one of another.

    >>> exact("f32", "bf16"), exact("f16", "e4m3"), exact("f16", "bf16")
    (True, True, False)
    """
    try:
        goal, source = dtype(to), dtype(of)
    except UnknownType:
        return False
    if goal.is_integer or source.is_integer or to == of:
        return False
    return (
        goal.fraction_bits >= source.fraction_bits
        and goal.exponent_bits >= source.exponent_bits
    )


def conversion(to: str, of: str, words: tuple[str, ...] = ("rn",)) -> str:
    """The name of a conversion; ``words`` are its other qualifiers.

    >>> conversion("f16", "e4m3"), conversion("f16", "f32")
    ('cvt.f16.e4m3', 'cvt.rn.f16.f32')
    """
    if exact(to, of):
        words = tuple(each for each in words if each not in _ROUNDINGS)
    return ".".join(("cvt", *words, to, of))


def named(instruction: Instruction) -> ElementOperation:
    """The operation of an instruction that computes in each lane.

    >>> from fragmenta.ptx.reading import parse
    >>> text = ".version 8.0 .target sm_80 .entry f() { .reg .f32 %f<4>; .reg .b32 "
    >>> body = "%r<4>; sub.f32 %f1, %f2, %f3; fma.rn.f16x2 %r1, %r2, %r3, %r1; }"
    >>> found = parse(text + body).functions["f"].instructions
    >>> [named(each)[:5] for each in found]
    [('add.rn.f32', 32, 32, 2, 1), ('fma.rn.f16', 16, 16, 2, None)]
    """
    opcode, words = instruction.opcode, instruction.qualifiers
    kinds = [each for each in words if each in TYPES]
    if instruction.is_conversion and len(kinds) == 2:
        return _conversion(instruction, kinds)
    if not kinds or len(set(kinds)) > 1:
        bits = type_bits(kinds[-1]) if kinds else 32
        return ElementOperation(
            instruction.mnemonic, type_bits(kinds[0]) if kinds else 32, bits
        )
    kind = single(kinds[0])
    bits = element_bits(kinds[0])
    others = tuple(each for each in words if each not in TYPES)
    if opcode in _ROUNDED and not _ROUNDINGS & set(others) and kind[0] in "fb":
        others = ("rn", *others)
    clean = kind in _CLEAN
    name = ".".join((opcode, *others, kind))
    if opcode == "neg" and kind == "f32" and not others:
        return ElementOperation(name, bits, bits, form="neg")
    if opcode == "sub" and kind == "f32":
        return ElementOperation(
            ".".join(("add", *others, kind)), bits, bits, 2, 1, clean=True
        )
    whole = kind[0] in "usb" and not kind.startswith("bf")
    commutes = 2 if opcode in _COMMUTE and (clean or whole) else 0
    # Of floats, any NaN becomes the one, or none does; and +0 is more than -0.
    extreme = (
        opcode in ("min", "max") and bool(commutes) and {*others} <= {"ftz", "NaN"}
    )
    return ElementOperation(
        name, bits, bits, commutes, clean=kind == "f32", associates=extreme
    )


def _conversion(instruction: Instruction, kinds: list[str]) -> ElementOperation:
    to, of = map(single, kinds)
    others = tuple(each for each in instruction.qualifiers if each not in TYPES)
    name = conversion(to, of, others)
    goal, source = map(element_bits, kinds)
    packs = "x" in kinds[0] and "x" not in kinds[1]
    if (to, of) == ("f32", "bf16") and not set(others) - _ROUNDINGS:
        return ElementOperation(name, goal, source, form="widen")
    form = "pack" if packs and len(instruction.operands) > 2 else "operation"
    return ElementOperation(name, goal, source, form=form, clean=to == "f32")
