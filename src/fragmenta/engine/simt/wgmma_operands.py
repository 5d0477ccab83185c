"""The operands of a ``wgmma.mma_async``, and their places in a warp.

:func:`describe` reads an instruction of a PTX file.  :meth:`WgmmaForm.located` turns
its registers into places in the memory of a warp.  These are all that is needed to run
it, and are kept beside the machine code of a kernel.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import astuple
from functools import cached_property
from typing import Any, NamedTuple

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.once import once
from fragmenta.errors import BadOperands, Error
from fragmenta.ptx.checking.tensor import Remark, named
from fragmenta.ptx.module import (
    Immediate,
    Instruction,
    Not,
    Operand,
    Register,
    Vector,
    type_bits,
)
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.isa.reading import instruction as by_name
from fragmenta.reference.isa.tables.wgmma import Ways, operands_from


class LaneOperand(NamedTuple):
    """A value of each lane: a register, or a constant."""

    offset: int
    """The bytes before the register in a warp's memory; -1 for a constant."""
    constant: int = 0
    negated: bool = False
    """Whether a predicate is negated."""


@dataclass(frozen=True, eq=False)
class Located:
    """A ``wgmma.mma_async`` with the places of its operands in a warp's memory.

    Two of them are equal only if they are the same object: that makes it a quick key.
    """

    mnemonic: str
    d: tuple[int, ...]
    """Where each register of D is."""
    a: tuple[LaneOperand, ...]
    """The registers of A; none if A is in shared memory."""
    descriptors: tuple[LaneOperand, ...]
    """That of A, if A is in shared memory, and that of B."""
    metadata: LaneOperand | None
    scale_d: LaneOperand
    selector: int
    ways: Ways

    @property
    def read(self) -> tuple[LaneOperand, ...]:
        """What it reads from registers: A, then the metadata."""
        return (*self.a, *([self.metadata] if self.metadata else ()))

    @cached_property
    def op(self) -> Op:
        """The instruction of the catalogue."""
        return by_name(self.mnemonic)

    def to_list(self) -> list[Any]:
        """Plain values, for JSON."""
        return list(astuple(self))

    @classmethod
    def from_list(cls, given: list[Any]) -> Located:
        """What :meth:`to_list` made, also after it went through JSON.

        Equal lists give the same object: the emitter writes an instruction more than
        once, for all lanes and for some of them.
        """
        return _located(json.dumps(given))


@once
def _located(text: str) -> Located:
    mnemonic, d, a, descriptors, metadata, scale_d, selector, ways = json.loads(text)
    return Located(
        mnemonic,
        tuple(d),
        tuple(LaneOperand(*each) for each in a),
        tuple(LaneOperand(*each) for each in descriptors),
        None if metadata is None else LaneOperand(*metadata),
        LaneOperand(*scale_d),
        selector,
        Ways(*ways),
    )


class WgmmaForm(NamedTuple):
    """The operands of a ``wgmma.mma_async``."""

    op: Op
    d: tuple[Operand, ...]
    a: tuple[Operand, ...]
    """None if A is in shared memory."""
    descriptors: tuple[Operand, ...]
    metadata: Operand | None
    scale_d: Operand
    selector: int
    ways: Ways

    def located(self, place: Callable[[Register], int]) -> Located:
        """The same with places; ``place`` says where a register is in a warp."""

        def source(operand: Operand) -> LaneOperand:
            return _source(operand, place)

        return Located(
            str(self.op),
            tuple(source(each).offset for each in self.d),
            tuple(map(source, self.a)),
            tuple(map(source, self.descriptors)),
            None if self.metadata is None else source(self.metadata),
            source(self.scale_d),
            self.selector,
            self.ways,
        )


def is_wgmma(instruction: Instruction) -> bool:
    """Whether it multiplies; ``wgmma.fence`` and the like do not."""
    return instruction.of_warpgroup and "mma_async" in instruction.qualifiers


def describe(instruction: Instruction) -> WgmmaForm:
    """The operands of an instruction by their names in the manual.

    >>> from fragmenta.ptx.module import Immediate, Instruction, Register, Vector
    >>> d = Vector(tuple(Register(f"f{i}", "f32", i) for i in range(4)))
    >>> a, b = Register("a", "b64", 4), Register("b", "b64", 5)
    >>> constants = tuple(Immediate(i, "int", i) for i in (1, 1, 1, 0, 1))
    >>> text = "mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    >>> words = tuple(text.split("."))
    >>> form = describe(Instruction("wgmma", words, (d, a, b, *constants), None, 1, 1))
    >>> form.ways.trans_b, form.scale_d.value, len(form.descriptors)
    (1, 1, 2)
    """
    op = named(instruction.mnemonic)
    if isinstance(op, Remark):
        raise Error(op.message)
    if not op.warpgroup:
        raise Error(f"{instruction.mnemonic} does not multiply")
    operands = instruction.operands
    in_registers = len(operands) > 1 and len(_items(operands[1])) > 1
    names = [each.name for each in operands_from(op, registers=in_registers)]
    if len(names) != len(operands):
        raise Error(f"{op} has {len(names)} operands; given {len(operands)}")
    given = dict(zip(names, operands, strict=True))
    places = ("b",) if in_registers else ("a", "b")
    metadata = _items(given["metadata"])[0] if op.sparse else None
    _counted(op, "D", given["d"])
    if in_registers:
        _counted(op, "A", given["a"])
    return WgmmaForm(
        op,
        _items(given["d"]),
        _items(given["a"]) if in_registers else (),
        tuple(given[name] for name in places),
        metadata,
        given["scale_d"],
        _constant(given, "selector", 0),
        Ways(
            in_registers,
            _constant(given, "imm_scale_a", 1),
            _constant(given, "imm_scale_b", 1),
            _constant(given, "trans_a", 0),
            _constant(given, "trans_b", 0),
        ),
    )


def _items(operand: Operand) -> tuple[Operand, ...]:
    """What stands in braces, or the elements of a vector register."""
    return operand.items if isinstance(operand, Vector) else (operand,)


def _counted(op: Op, name: str, operand: Operand) -> None:
    """Refuse more or fewer registers than a product has, or others than of 32 bits."""
    wanted, items = op.fragments[name].registers, _items(operand)
    narrow = [e for e in items if isinstance(e, Register) and type_bits(e.type) != 32]
    if len(items) != wanted or narrow:
        raise BadOperands(
            f"{name} of {op} is {wanted} registers of 32 bits; given {len(items)}"
        )


def _constant(given: dict[str, Operand], name: str, otherwise: int) -> int:
    operand = given.get(name)
    if operand is None:
        return otherwise
    if not isinstance(operand, Immediate):
        raise Error(f"{name} must be a constant")
    return int(operand.value)


def _source(operand: Operand, place: Callable[[Register], int]) -> LaneOperand:
    match operand:
        case Register():
            return LaneOperand(place(operand))
        case Not():
            return LaneOperand(place(operand.of), negated=True)
        case Immediate():
            return LaneOperand(-1, operand.bits)
    raise Error(f"{type(operand).__name__} cannot be an operand of wgmma")
