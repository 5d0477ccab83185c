"""The lines of the table of opcodes that can run, found by trying each of them.

An instruction is written for every word that a line allows.  The emitter then writes
its code or says why it cannot.  For an instruction that a unit carries out, it looks
whether there is such a unit.
"""

from __future__ import annotations

from collections.abc import Iterator

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt import compiling
from fragmenta.engine.simt.emitter import HANDLERS, Writer
from fragmenta.engine.simt.program import program
from fragmenta.engine.units.registry import refusal
from fragmenta.ptx import reading
from fragmenta.ptx.families import STORES
from fragmenta.ptx.module import type_bytes
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.table import Qualifiers, Slot, Syntax

TARGET = "sm_90a"
_HEAD = f"""\
.version 9.4
.target {TARGET}
.address_size 64
.func helper() {{ ret; }}
.entry tried(.param .b64 given) {{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<99>; .reg .b64 %d<99>; .reg .b128 %q<9>;
.param .b64 passed;
choice: .branchtargets END;
"""
_REGISTERS = {1: "%h", 2: "%h", 4: "%r", 8: "%d", 16: "%q"}
_OTHERS = {
    "label": "END",
    "targets": "choice",
    "call": "helper",
    "src": "%r1",
    "address": "%d1",
}


@dataclass(frozen=True)
class Covered:
    """Whether a line of the table runs."""

    syntax: Syntax
    tried: tuple[str, ...]
    """The mnemonics that were tried."""
    refused: dict[str, str]
    """Those that do not run, and why."""

    @property
    def runs(self) -> str:
        """``yes``, ``no``, or ``in part``."""
        if not self.refused:
            return "yes"
        return "no" if len(self.refused) == len(self.tried) else "in part"


def coverage() -> list[Covered]:
    """Every line of the table, and whether it runs.

    >>> said = {each.syntax.text.split()[0]: each.runs for each in coverage()}
    >>> said["mbarrier.init{.space}.b64"], said["st.bulk{.weak}{.space}"]
    ('yes', 'no')
    """
    return [
        covered(line)
        for opcode, lines in TABLE.lines.items()
        if not opcode.startswith("_")  # steps of other instructions
        for line in lines
    ]


def runs(opcode: str) -> bool:
    """Whether any form of an opcode runs, also of a Tensor Core instruction.

    >>> runs("wgmma"), runs("tcgen05")
    (True, True)
    """
    return opcode in HANDLERS or any(line.emit for line in TABLE.lines.get(opcode, ()))


def covered(line: Syntax) -> Covered:
    """Try one line of the table."""
    tried = dict(_statements(line))
    text = _HEAD + "\n".join(tried.values()) + "\nEND: ret;\n}\n"
    module = reading.parse(text)
    writer = Writer(program(module, "tried"), TARGET)
    compiling.write(writer)
    instructions = module.functions["tried"].instructions
    refused = {}
    for site, why in writer.refusals.items():
        refused[instructions[writer.sites[site].place].mnemonic] = why
    for _, words, _ in writer.events:
        why = refusal(".".join(words))
        if why:
            refused[".".join(words)] = why
    return Covered(line, tuple(tried), refused)


def _statements(line: Syntax) -> Iterator[tuple[str, str]]:
    """Mnemonics with operands: the shortest, and one more for each further word."""
    pieces = list(enumerate(line.pieces))
    least = {place: each.words[0] for place, each in pieces if not each.optional}
    every = [least]
    for place, piece in pieces:
        every += [{**least, place: word} for word in piece.words]
    for words in every:
        mnemonic = ".".join((line.opcode, *(words[i] for i in sorted(words))))
        match = line.match(mnemonic)
        assert match is not None, mnemonic
        operands = [
            _operand(line, slot, match.qualifiers)
            for slot in line.operands
            if not slot.hidden and (not slot.optional or slot.name == "c")
        ]
        yield mnemonic, f"{mnemonic} {', '.join(operands)};"


def _operand(line: Syntax, slot: Slot, found: Qualifiers) -> str:
    """One operand that a slot takes."""
    if slot.type in ("tensor", "im2col"):
        return "[%d1, {%r1, %r2}]" if slot.type == "tensor" else "{%h1}"
    if slot.address:
        if "param" not in found.get("space", ""):
            return "[%d2]"
        return "[passed]" if line.opcode in STORES else "[given]"
    if slot.type == "imm":
        return slot.values[0].partition(".")[0] if slot.values else "16"
    if slot.type in _OTHERS or slot.name == "sink":
        return _OTHERS.get(slot.type, "_")
    kind = line.type_of(slot, found)
    name = "%p" if kind == "pred" else _REGISTERS[type_bytes(kind)]
    if "|" in slot.name:
        return f"{name}1|%p2"
    count = found.get(slot.vector, slot.vector).lstrip("v")
    if count:
        return f"{{{', '.join(f'{name}{i}' for i in range(int(count)))}}}"
    return f"{name}{len(slot.name)}"
