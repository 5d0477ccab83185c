"""The products of a recorded run, for its page.

For each instruction that multiplies fragments, and for each that moves one, the page
has the record that the explorer has of it, and which registers its operands are.  So
both pages draw and explain it with the same code.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fragmenta.errors import Error
from fragmenta.inspect.debugging.matrices import descriptor_word
from fragmenta.inspect.debugging.places import SourceLines
from fragmenta.inspect.replay.parts import Site
from fragmenta.inspect.replay.recorded import Replay
from fragmenta.inspect.view.explorer_data import JsonRecord, drawn_record
from fragmenta.ptx.checking.tensor import Remark, fit, named
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Register,
    Vector,
)
from fragmenta.ptx.opcodes.tensor import TENSOR
from fragmenta.reference.execution.tcgen05 import not_known
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.isa.operand_lists import slots
from fragmenta.reference.shared.operands import major_of


def products_record(replay: Replay) -> JsonRecord | None:
    """What the page must know about products; None if the kernel has none."""
    found = _Products(replay)
    found.read()
    if not any(op.multiplies for op in found.ops):
        return None
    return {"catalogue": drawn_record(found.ops), "sites": found.sites}


class _Products:
    """Collects the products of one recording."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay
        self.ops: list[Op] = []
        self.sites: dict[int, JsonRecord] = {}
        self._lines = SourceLines(replay)
        self._bases: dict[str, int] = {}
        for number, each in enumerate(replay.registers):
            self._bases.setdefault(each.function, number)

    def read(self) -> None:
        """Look at all instructions that may be products."""
        for number, site in enumerate(self.replay.sites):
            if site.opcode.partition(".")[0] not in TENSOR:
                continue
            try:
                found = self._product(number, self._lines.instruction(site))
            except Error:
                # What cannot be read again has no picture; the rest of the page stays.
                continue
            if found is not None:
                self.sites[number] = found

    def _product(self, number: int, of: Instruction) -> JsonRecord | None:
        op = named(of.mnemonic)
        if isinstance(op, Remark):
            return None
        if op.tensor_memory and op.multiplies:
            return self._in_tensor_memory(number, op, of)
        moves = op.moves in ("load", "transpose")
        moves |= (op.moves, op.unit) == ("store", "tcgen05")
        if not op.fragments or not (op.multiplies or moves):
            return None
        return self._bound(number, op, of)

    def _bound(self, number: int, op: Op, of: Instruction) -> JsonRecord | None:
        """An instruction, and the registers of its operands."""
        site = self.replay.sites[number]
        taken = fit(op, of, "", False)
        if isinstance(taken, Remark):
            return None
        operands: dict[str, list[object]] = {}
        for names, operand in zip(slots(taken), of.operands, strict=True):
            items = _items(operand)
            if len(names) > 1:
                for name, each in zip(names, items, strict=True):
                    operands[name.name] = self._sources(site, (each,))
            else:
                operands[names[0].name] = self._sources(site, items)
        return {"op": self._number(op), "operands": operands}

    def _in_tensor_memory(
        self, number: int, op: Op, of: Instruction
    ) -> JsonRecord | None:
        """A ``tcgen05.mma``: its shape is in a register, and may change.

        So the record has an instruction for each descriptor that was recorded.
        """
        shapes: dict[str, JsonRecord] = {}
        first: Op | None = None
        steps = np.flatnonzero(self.replay.steps.site == number)
        for step in steps[self.replay.steps.lanes[steps] != 0].tolist():
            word = descriptor_word(self.replay, step, op, of)
            if str(word) in shapes:
                continue
            try:
                whole = op.with_descriptor(word)
            except Error:
                continue  # the launch has refused it
            first = first or whole
            shapes[str(word)] = self._shape(whole)
        found = self._bound(number, first, of) if first else None
        if not found:
            return None
        unknown = {"unknown": _unknown(op)} if not_known(op) else {}
        return {**found, "shapes": shapes, **unknown}

    def _shape(self, op: Op) -> JsonRecord:
        """What an instruction descriptor says besides shape and types."""
        of = op.descriptor
        assert of is not None
        return {
            "op": self._number(op),
            "major": {name: major_of(op, name) for name in "AB"},
            "negated": [
                name
                for name, negated in (("A", of.negate_a), ("B", of.negate_b))
                if negated
            ],
        }

    def _number(self, op: Op) -> int:
        if op not in self.ops:
            self.ops.append(op)
        return self.ops.index(op)

    def _sources(self, site: Site, items: Sequence[Operand]) -> list[object]:
        """Numbers of registers; ``["=", bits]`` is a constant, ``["!", …]`` negated."""
        return [self._source(site, each) for each in items]

    def _source(self, site: Site, operand: Operand) -> object:
        base = self._bases[site.function]
        match operand:
            case Register():
                return base + operand.number
            case Not():
                return ["!", base + operand.of.number]
            case Immediate():
                return ["=", str(operand.bits)]
            case Address(Register() as register, offset):
                return ["+", base + register.number, offset]
            case Address(int() as start, offset):
                return ["=", str(start + offset)]
        raise Error(f"{type(operand).__name__} is no operand of a product")


_DRAWN = {
    "ashift": "A is drawn as it lies in tensor memory, before it is shifted.",
    "lut": "B is drawn without values: they come from a table.",
}


def _unknown(op: Op) -> JsonRecord:
    """Of an instruction whose D nobody can compute: why, and what is drawn of it."""
    drawn = [words for name, words in _DRAWN.items() if op.values.get(name)]
    reason = not_known(op)
    words = " ".join([f"{reason[0].upper()}{reason[1:]}.", *drawn])
    return {"words": words, "unread": ["B"] if op.values.get("lut") else []}


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)
