"""Refuses instructions whose operands do not fit them, before they are compiled.

Compiled code trusts the number and the widths of the operands of an instruction: it
finds registers, parameters and constants at fixed places.  So an instruction whose
operands do not fit is refused before anything is compiled, whether or not the launch
is checked.  The rules are those of :mod:`fragmenta.ptx.checking`: the table of opcodes
and the catalogue of Tensor Core instructions.
"""

from __future__ import annotations

from collections.abc import Iterable

from fragmenta.errors import BadOperands
from fragmenta.ptx.checking import tensor
from fragmenta.ptx.checking.instructions import nearest_line
from fragmenta.ptx.checking.mnemonics import reading
from fragmenta.ptx.checking.operands import BadOperand, findings
from fragmenta.ptx.module import Address, Function, Instruction, Module, Not
from fragmenta.ptx.opcodes.tensor import TENSOR

_KNOWN: dict[object, str] = {}
"""The findings about operands of one kind; the names of registers do not count."""
_MOST_KNOWN = 1 << 14
_LONG = 300
"""Characters of a reason: it may quote thousands of operands."""


def admit(module: Module, functions: Iterable[Function]) -> None:
    """Refuse an instruction whose operands do not fit it.

    >>> from fragmenta.ptx.reading import parse
    >>> module = parse('''
    ... .version 8.0
    ... .target sm_80
    ... .entry f() {
    ...     .reg .b32 %r<2>; .reg .b64 %d<2>;
    ...     cp.async.ca.shared.global [%r1], [%d1], 1048576;
    ... }''')
    >>> admit(module, module.functions.values())
    Traceback (most recent call last):
    fragmenta.errors.BadOperands: size is 4, 8 or 16; given 1048576
      at PTX line 6: cp.async.ca.shared.global [%r1], [%d1], 1048576;
    """
    for function in functions:
        for each in function.instructions:
            why = wrong_operands(each)
            if why:
                raise refused(module, each, why)


def refused(module: Module, of: Instruction, why: str) -> BadOperands:
    """The error for an instruction that is not compiled."""
    short = why if len(why) <= _LONG else f"{why[: _LONG - 2]} …"
    return BadOperands(f"{short}\n  at {module.where(of)}")


def unknown(of: Instruction) -> str:
    """Why the table has no such instruction; nothing if it may have one.

    Instructions of Tensor Cores are looked up where they are compiled.
    """
    said = reading(of.mnemonic)
    return said.message if said.refuses else ""


def wrong_operands(of: Instruction) -> str:
    """What is wrong with the operands of an instruction; nothing if they fit."""
    if of.opcode.startswith("_"):  # made by ptx.ptxas from others that were checked
        return ""
    key = tensor.signature(of)
    if key not in _KNOWN:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = _guard(of) or _operands(of)
    return _KNOWN[key]


def _guard(of: Instruction) -> str:
    guard = of.guard.of if isinstance(of.guard, Not) else of.guard
    if guard is None or guard.type in ("pred", ""):
        return ""
    return f"a guard is a predicate; {guard.name} is declared as .{guard.type}"


def _operands(of: Instruction) -> str:
    if of.opcode in TENSOR:
        op = tensor.named(of.mnemonic)
        if isinstance(op, tensor.Remark):
            return ""
        said = tensor.fit(op, of, tensor.spelled(of), declared=True)
        return said.message if isinstance(said, tensor.Remark) else ""
    matches = reading(of.mnemonic).matches
    if not matches or of.opcode == "call":  # calls: see ``calling``
        return ""
    wrong = findings(of, nearest_line(of, matches))
    serious = (each for each in wrong if not _bounded(of, each))
    return next((each.message for each in serious if each.refuses), "")


def _bounded(of: Instruction, wrong: BadOperand) -> bool:
    """Whether it is a constant address, which is checked when it is accessed."""
    operand = None if wrong.operand is None else of.operands[wrong.operand]
    return isinstance(operand, Address) and isinstance(operand.base, int)
