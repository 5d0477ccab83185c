"""Writes lines of the opcode table that the engine carries out itself as PTX."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from fragmenta.ptx.checking.registers import size
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.table import Slot, Syntax

LINES = [
    line
    for lines in TABLE.lines.values()
    for line in lines
    if line.emit is None and line.opcode not in ("call", "brx")
]
_NAMES = {1: "%h", 2: "%h", 4: "%r", 8: "%d", 16: "%q"}
_TIED = {"policy": "L2__cache_hint", "mask": "multicast__cluster"}

Addressed = Callable[[int, dict[str, str]], str]
"""How an address is written, by its number in the instruction and the qualifiers."""


class Statement(NamedTuple):
    """An instruction that a line allows."""

    line: Syntax
    qualifiers: dict[str, str]
    slots: tuple[Slot, ...]
    operands: tuple[str, ...]
    mnemonic: str

    @property
    def text(self) -> str:
        """The instruction as PTX."""
        return f"{self.mnemonic} {', '.join(self.operands)};"


def addressed(number: int, found: dict[str, str]) -> str:
    """An address that ptxas takes."""
    return "map" if "param" in found.get("space", "") else "%d2"


def registers(line: Syntax, slot: Slot, found: dict[str, str]) -> list[str]:
    """The registers of an operand: one, or as many as stand in braces."""
    kind = line.type_of(slot, found)
    name = "%p" if kind == "pred" else _NAMES[size(kind)]
    count = found.get(slot.vector, slot.vector).lstrip("v")
    if count:
        return [f"{name}{i}" for i in range(int(count))]
    return [f"{name}{len(slot.name) % 8}"]


def operand(
    line: Syntax, slot: Slot, found: dict[str, str], words: list[str], address: str
) -> str:
    """One operand that a slot takes."""
    dimension = next((int(word[0]) for word in words if word[1:] == "d"), 0)
    four = any(word.endswith(("gather4", "scatter4")) for word in words)
    if slot.type == "tensor":
        count = 5 if four else dimension
        return f"[{address}, {{{', '.join(f'%r{i}' for i in range(count))}}}]"
    if slot.address:
        return f"[{address}]"
    if slot.type == "im2col":
        count = dimension - 2 if found["mode"] == "im2col" else 2
        return f"{{{', '.join(f'%h{i}' for i in range(count))}}}"
    if slot.type == "imm":
        return slot.values[0].split(".")[0] if slot.values else "16"
    special = {"label": "DONE", "src": "%r1", "address": "%d1"}.get(slot.type)
    if special or slot.name == "sink":
        return special or "_"
    named = registers(line, slot, found)
    if "|" in slot.name:
        return f"{named[0][:-1]}1|%p2"
    return f"{{{', '.join(named)}}}" if len(named) > 1 else named[0]


def statements(
    line: Syntax, draw: random.Random, address: Addressed = addressed
) -> list[Statement]:
    """Some instructions that a line allows, with each of its words at least once."""
    found = []
    chosen = [(i, word) for i, piece in enumerate(line.pieces) for word in piece.words]
    for place, forced in chosen or [(-1, "")]:
        words = [
            forced if i == place else draw.choice(piece.words)
            for i, piece in enumerate(line.pieces)
            if i == place or not piece.optional or draw.random() < 0.4
        ]
        mnemonic = ".".join((line.opcode, *words))
        match = line.match(mnemonic)
        assert match
        groups = dict(match.qualifiers)
        slots = tuple(
            slot
            for slot in line.operands
            if not slot.optional
            or groups.get(_TIED.get(slot.name, ""), slot.name == "c")
        )
        places = [slot.address for slot in slots]
        there = tuple(
            operand(line, slot, groups, words, address(sum(places[:i]) + 1, groups))
            for i, slot in enumerate(slots)
        )
        found.append(Statement(line, groups, slots, there, mnemonic))
    return found
