"""Kinds of instructions, as far as second values go: which move, and which compute."""

from __future__ import annotations

from fragmenta.ptx.families import PERMUTATIONS
from fragmenta.ptx.module import Immediate, Instruction, Operand, Register, type_bits
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.ptx.opcodes.table import TYPES

FLOATS = frozenset(
    {
        each
        for each in TYPES
        if each[0] in "f" or each.startswith(("bf16", "tf32", "e", "ue8m0", "s2f6"))
    }
)
"""The types of floats."""
_WHOLE = frozenset(
    {
        f"{kind}{bits}"
        for kind in "usb"
        for bits in (8, 16, 32, 64)
        if f"{kind}{bits}" in TYPES
    }
)


def floating(instruction: Instruction) -> bool:
    """Whether an instruction computes with floats in each lane; no move does.

    >>> from fragmenta.ptx.reading import parse
    >>> body = "add.f32 %f1, %f1, %f1; mov.f32 %f1, %f1; cvt.rn.f32.s32 %f1, %r1;"
    >>> text = ".version 8.0 .target sm_80 .entry f() { .reg .f32 %f<2>; .reg .b32 "
    >>> found = parse(text + "%r<2>;" + body + "}").functions["f"].instructions
    >>> [floating(each) for each in found]
    [True, False, True]
    """
    if kind_of(instruction.mnemonic).word == "moves":
        return False
    return bool(FLOATS & set(instruction.qualifiers))


def from_float(instruction: Instruction) -> bool:
    """Whether it makes a whole number of a float."""
    if not instruction.is_conversion:
        return False
    kinds = [each for each in instruction.qualifiers if each in TYPES]
    return len(kinds) == 2 and kinds[0] in _WHOLE and kinds[1] in FLOATS


def transparent(instruction: Instruction, granule: int) -> bool:
    """Whether it only moves granules of so many bits, each as a whole.

    Operands that are no constants may move others: then the code finds out.
    """
    kind, words = kind_of(instruction.mnemonic), set(instruction.qualifiers)
    if kind.word == "bitwise":
        return "pred" not in words and _keeps(instruction, granule)
    if kind.word != "moves":
        return False
    given = [instruction.operands[each] for each in kind.controls]
    if instruction.opcode == "selp":
        return True
    if instruction.opcode in PERMUTATIONS:
        return words == {"b32"} and _permutes(given[0], granule)
    if instruction.is_conversion:
        return min(map(type_bits, words & TYPES)) >= granule
    return all(_fits(each, granule) for each in given)


def _fits(operand: Operand, granule: int) -> bool:
    """Whether a distance is a number of granules, as far as that is known."""
    return not isinstance(operand, Immediate) or int(operand.value) % granule == 0


def _permutes(operand: Operand, granule: int) -> bool:
    """Whether a ``prmt`` with this selector moves granules, as far as that is known."""
    if not isinstance(operand, Immediate):
        return True
    selector = int(operand.value)
    bytes_ = [selector >> 4 * place & 15 for place in range(4)]
    if any(each & 8 for each in bytes_):  # copies of a sign
        return False
    size = granule // 8
    if size <= 1:
        return True
    groups = [bytes_[i : i + size] for i in range(0, 4, size)]
    return all(
        each[0] % size == 0 and each == list(range(each[0], each[0] + size))
        for each in groups
    )


def truth_table(instruction: Instruction) -> tuple[int, int]:
    """The truth table of a bitwise operation, and how many operands it has.

    The table is one of ``lop3``, whose last operands are those of the others: bits 1
    and 0 of the index.
    """
    kind = kind_of(instruction.mnemonic)
    if kind.table is not None:
        return kind.table, len(instruction.operands) - 1
    table = instruction.operands[kind.controls[0]]
    assert isinstance(table, Immediate)
    return int(table.value) & 255, 3


def _keeps(instruction: Instruction, granule: int) -> bool:
    """Whether constants keep or drop each granule of the one register as a whole.

    With several registers, the code finds out.
    """
    table, count = truth_table(instruction)
    given = instruction.operands[1 : 1 + count]
    places = [i for i, each in enumerate(given) if isinstance(each, Register)]
    constants = [isinstance(each, Immediate) for each in given]
    if len(places) != 1 or sum(constants) != count - 1:
        return bool(places)
    bits = type_bits(instruction.qualifiers[-1])
    full = (1 << bits) - 1
    numbers = [
        0 if i in places else int(getattr(each, "bits", 0)) & full
        for i, each in enumerate(given)
    ]
    ones = list(numbers)
    ones[places[0]] = full
    off, on = (evaluate(table, each, full) for each in (numbers, ones))
    for start in range(0, bits, granule):
        mask = ((1 << min(granule, bits)) - 1) << start
        passes, same = on & ~off & mask, (on ^ off) & mask
        if passes != mask and same:
            return False
    return True


def evaluate(table: int, numbers: list[int], full: int) -> int:
    """The bits that a truth table makes of some numbers; ``full`` are all bits.

    >>> evaluate(0x88, [12, 10], 15), evaluate(0xEA, [12, 10, 1], 15)
    (8, 9)
    """
    found, count = 0, len(numbers)
    for index in range(1 << count):
        chosen = full
        for place, number in enumerate(numbers):
            there = index >> (count - 1 - place) & 1
            chosen &= number if there else ~number
        if table >> index & 1:
            found |= chosen & full
    return found
