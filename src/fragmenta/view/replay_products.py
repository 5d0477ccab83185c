"""The products of a recorded run, for its page.

For each instruction that multiplies fragments, and for each ``ldmatrix``, the page has
the record that the explorer has of it, and which registers its operands are.  So both
pages draw and explain it with the same code.
"""

from __future__ import annotations

from collections.abc import Sequence

from fragmenta.debugging.places import Lines
from fragmenta.errors import Error
from fragmenta.isa.instruction import Instruction as Op
from fragmenta.isa.operand_lists import slots
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
from fragmenta.replay.parts import Site
from fragmenta.replay.recorded import Replay
from fragmenta.view.explorer_data import JsonRecord, drawn_record

_OPCODES = ("mma", "wmma", "wgmma", "tcgen05", "ldmatrix")


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
        self._lines = Lines(replay)
        self._bases: dict[str, int] = {}
        for number, each in enumerate(replay.registers):
            self._bases.setdefault(each.function, number)

    def read(self) -> None:
        """Look at all instructions that may be products."""
        for number, site in enumerate(self.replay.sites):
            if site.opcode.partition(".")[0] not in _OPCODES:
                continue
            try:
                found = self._product(site, self._lines.instruction(site))
            except Error:
                # What cannot be read again has no picture; the rest of the page stays.
                continue
            if found is not None:
                self.sites[number] = found

    def _product(self, site: Site, of: Instruction) -> JsonRecord | None:
        op = named(of.mnemonic)
        if isinstance(op, Remark) or not op.fragments:
            return None
        if not (op.multiplies or op.moves == "load") or op.tensor_memory:
            return None
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
        raise Error(f"{type(operand).__name__} is no operand of a product")


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)
