"""Is a Tensor Core instruction in the catalogue, and do its operands fit it?

The catalogue of :mod:`fragmenta.isa` is the judge, with the words that
:func:`fragmenta.instruction` has for the same mistakes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fragmenta.errors import BadOperands, UnknownInstruction
from fragmenta.isa import operands
from fragmenta.isa.instruction import Instruction as Tensor
from fragmenta.isa.reading import instruction
from fragmenta.isa.target import TARGETS
from fragmenta.ptx.checking.problem import ERROR, INFO, WARNING
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Part,
    Register,
    Sink,
    Symbol,
    Vector,
)


class Remark(NamedTuple):
    """What the catalogue says about an instruction."""

    rule: str
    severity: str
    message: str
    hint: str = ""


def named(mnemonic: str) -> Tensor | Remark:
    """The instruction of a mnemonic, or why there is none.

    >>> named("movmatrix.sync.aligned.m8n8.trans.b16")
    <movmatrix.sync.aligned.m8n8.trans.b16>
    """
    try:
        return instruction(mnemonic)
    except UnknownInstruction as why:
        message, _, hint = str(why).partition("; ")
        return Remark("tensor", ERROR, message, hint)


def unfit(op: Tensor, of: Instruction, text: str, declared: bool) -> Remark | None:
    """What is wrong with the operands, which were written as ``text``."""
    guard = of.guard.of if isinstance(of.guard, Not) else of.guard
    names = (
        {each.name: _declared(each) for each in _registers(of)} if declared else None
    )
    try:
        operands.check(op, text, guard=guard.name if guard else "", declared=names)
    except BadOperands as why:
        message, _, hint = str(why).partition("; its operands")
        return Remark("tensor", ERROR, message, f"its operands{hint}" if hint else "")
    return None


def _declared(of: Register | Symbol) -> str:
    if isinstance(of, Symbol):  # its address
        return ".b64"
    return f".v{of.lanes} .{of.type}" if of.lanes > 1 else f".{of.type}"


def _registers(of: Instruction) -> Iterator[Register | Symbol]:
    """All registers of an instruction, and the variables whose address it takes."""
    stack: list[Operand] = list(of.operands)
    if of.guard is not None:
        stack.append(of.guard)
    while stack:
        each = stack.pop()
        if isinstance(each, Register | Symbol):
            if not isinstance(each, Register) or each.type:
                yield each
        elif isinstance(each, Not | Part):
            stack.append(each.of)
        elif isinstance(each, Vector):
            stack += each.items
        elif isinstance(each, Pair):
            stack += (each.first, each.second)
        elif isinstance(each, Address) and not isinstance(each.base, int):
            stack.append(each.base)


def signature(of: Instruction) -> tuple[object, ...]:
    """What decides whether the operands fit: types and constants, but no names.

    Many instructions of a kernel differ in the names of their registers only.
    """
    guard = None if of.guard is None else _shape(of.guard)
    return (of.mnemonic, guard, *map(_shape, of.operands))


def _shape(each: Operand) -> object:
    if isinstance(each, Register):
        return each.type, each.lanes
    if isinstance(each, Vector):
        return tuple(map(_shape, each.items))
    if isinstance(each, Immediate):
        return each.form, each.value
    if isinstance(each, Not):
        return "!", each.of.type
    if isinstance(each, Address):
        base = each.base
        return (
            "[]",
            base.type if isinstance(base, Register) else type(base),
            *map(_shape, each.items),
        )
    return type(each) if isinstance(each, Sink) else each


def remarks(
    op: Tensor, targets: Iterable[str], version: tuple[int, int] | None
) -> Iterator[Remark]:
    """What the targets and the version of a file say about an instruction."""
    for target in targets:
        if target not in TARGETS:
            continue
        if not op.supported_on(target):
            yield Remark(
                "target",
                ERROR,
                f"{target} does not have {op}",
                f"it needs {op.requires}",
            )
            return
        if version is not None and version < op.requires.ptx_on(target):
            yield Remark(
                "version",
                ERROR,
                f"{op} needs PTX {op.requires.ptx_on(target)}; the file has "
                f"{version[0]}.{version[1]}",
            )
            return
        instead = op.expanded_to(target)
        if instead:
            yield Remark(
                "expanded", INFO, f"on {target} the assembler makes {instead} of {op}"
            )
    yield from _deprecated(op, targets)


def _deprecated(op: Tensor, targets: Iterable[str]) -> Iterator[Remark]:
    new = any(int(each[3:].rstrip("af")) >= 90 for each in targets if each in TARGETS)
    for note in op.notes:
        if "deprecates" in note:
            if new:
                yield Remark("deprecated", WARNING, note)
        elif "advises" in note:
            yield Remark("deprecated", WARNING, note)


def written(op: Tensor) -> Mapping[str, bool]:
    """The operand that is written, by name, and whether it is read first."""
    name = operands.destination(op)
    return {name: False} if name else {}
