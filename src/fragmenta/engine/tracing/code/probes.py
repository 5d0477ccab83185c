"""The instrument that records: a step for every instruction, a row for every access."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.emitter import MEMORY, InMemory, Writer
from fragmenta.engine.simt.events import if_some
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.memory import AccessForm, load
from fragmenta.engine.simt.probes import Probes
from fragmenta.engine.simt.program import JUMPS, register_bytes
from fragmenta.engine.simt.program import Program as Compiled
from fragmenta.engine.tracing.code import layout as at
from fragmenta.engine.tracing.code.effects import (
    CallGraph,
    Owned,
    is_late,
    returns,
    written,
)
from fragmenta.engine.tracing.code.routines import COMPLETE, THERE, access, step
from fragmenta.ptx.module import Instruction

Form: TypeAlias = tuple[int, str, str, int, int]
"""A kind of row: site, what it is, space, bytes of an element, elements."""


class _Taken(NamedTuple):
    """An access whose bytes are taken when it is done."""

    access: AccessForm
    registers: int
    """How many registers of addresses are before the bytes."""
    lanes: str
    """The lanes; empty for those of the instruction."""


class TraceProbes(Probes):
    """The instrument that records."""

    def __init__(self) -> None:
        self._forms: list[Form] = []
        """For each kind of row: site, what it is, space, bytes, elements."""
        self._numbers: dict[Form, int] = {}
        self._waiting: list[_Taken] = []
        """What the present instruction writes."""
        self._bases: dict[str, int] = {}
        self._program: CallGraph | None = None

    # ── steps ───────────────────────────────────────────────────────────────

    def before(self, writer: Writer, instruction: Instruction) -> None:
        """A jump is a step before it is done; all lanes come to it."""
        self._waiting = []
        if instruction.opcode in JUMPS and instruction.opcode != "call":
            self._step(writer, writer.active())

    def entered(self, writer: Writer, instruction: Instruction) -> None:
        """A call is a step when the function has its arguments."""
        self._step(writer, writer.active())

    def after(self, writer: Writer, instruction: Instruction) -> None:
        """Take the bytes that were written, then the registers."""
        for number, what in enumerate(self._waiting):
            _take(writer, number, what)
        self._waiting = []
        self._step(writer, writer.lanes())

    def returned(self, writer: Writer, instruction: Instruction) -> None:
        """Lanes have returned from a call, with results."""
        if returns(self._known(writer.program), writer.unit.function, writer.index):
            self._step(writer, writer.active())

    def _known(self, program: Compiled) -> CallGraph:
        if self._program is None:
            recursive = [name for name, each in program.units.items() if each.recursive]
            given = program.module, tuple(program.units), tuple(recursive)
            self._program = CallGraph(*given)
        return self._program

    def _registers(self, writer: Writer) -> list[Owned]:
        program = self._known(writer.program)
        return written(program, writer.unit.function, writer.index)

    def _step(self, writer: Writer, lanes: str) -> None:
        """Write down a step of the present instruction."""
        places = _joined(writer, self._registers(writer))
        sizes = tuple(size for _, size in places)
        given = [f"i64 {place}" for place, _ in places]
        site = f"i32 {self._site(writer)}"
        writer.call(step(sizes), *MEMORY, site, f"i32 {lanes}", *given)

    def _site(self, writer: Writer) -> int:
        """The number of the present instruction among those of all functions."""
        if not self._bases:
            total = 0
            for name, unit in writer.program.units.items():
                self._bases[name] = total
                total += len(unit.function.instructions)
        return self._bases[writer.unit.function.name] + writer.index

    # ── accesses ────────────────────────────────────────────────────────────

    def access(
        self,
        writer: Writer,
        instruction: Instruction,
        what: AccessForm,
        at: InMemory,
        offset: int,
        registers: list[str],
        kind: str,
        banks: bool = True,
    ) -> None:
        """Write down the addresses of a load, a store or an atomic."""
        self._row(writer, what, kind, [(at, offset)])

    def lane_copy(
        self,
        writer: Writer,
        size: int,
        to: InMemory,
        to_offset: int,
        of: InMemory,
        of_offset: int,
        reads: str,
    ) -> None:
        """Write down the addresses of a ``cp.async`` that is done at once."""
        wide = min(8, size)
        what = AccessForm("shared", 8 * wide, 8 * wide, size // wide)
        both = [(to, to_offset), (of, of_offset)]
        self._row(writer, what, "copy", both, reads=reads)

    def matrix_rows(
        self,
        writer: Writer,
        at: InMemory,
        offset: int,
        used: int,
        stores: bool,
        values: str,
        width: int,
    ) -> None:
        """Write down the addresses of the rows of a matrix."""
        what = AccessForm("shared", 64, 64, width // 8)
        chosen = (1 << used) - 1
        lanes = str(chosen - (1 << 32) if chosen >> 31 else chosen)
        kind = "write" if stores else "read"
        self._row(writer, what, kind, [(at, offset)], lanes)

    def _row(
        self,
        writer: Writer,
        what: AccessForm,
        kind: str,
        places: list[tuple[InMemory, int]],
        lanes: str = "",
        reads: str = "0",
    ) -> None:
        """Write down an access; without lanes, of those of the instruction.

        ``reads`` are the lanes that read, of a copy.
        """
        form = self._form(writer, what, kind)
        takes = kind != "read"
        pending = len(self._waiting) if takes else 0
        data = what.bytes * LANES // 4 if takes else 0
        made = access([where.bits for where, _ in places], data)
        given = [
            word
            for where, offset in places
            for word in (f"ptr {writer.address(where)}", f"i64 {offset}")
        ]
        words = str(form), lanes or writer.lanes(), str(pending), reads
        numbers = [f"i32 {each}" for each in words]
        writer.call(made, *MEMORY, *numbers, *given)
        if takes:
            self._waiting.append(_Taken(what, len(places), lanes))

    def _form(self, writer: Writer, what: AccessForm, kind: str) -> int:
        """The number of a kind of row."""
        key = self._site(writer), kind, what.space, what.bits // 8, what.elements
        if key not in self._numbers:
            self._numbers[key] = len(self._forms)
            self._forms.append(key)
        return self._numbers[key]

    def about(self, program: Compiled) -> dict[str, object]:
        """What is needed to read the log."""
        known = self._known(program)
        places = {name: unit.registers for name, unit in program.units.items()}
        told = {
            "functions": list(known.functions),
            "recursive": list(known.recursive),
            "registers": places,
            "forms": self._forms,
            "late": {name: self._late(known, name) for name in known.functions},
        }
        return {"traced": told}

    def _late(self, program: CallGraph, name: str) -> dict[str, list[int]]:
        """The registers that instructions of a function write later, by their index."""
        function = program.module.functions[name]
        return {
            str(index): [each.number for _, each in written(program, function, index)]
            for index, each in enumerate(function.instructions)
            if is_late(each)
        }


def _joined(writer: Writer, registers: list[Owned]) -> list[tuple[int, int]]:
    """Where registers are in a warp, and their words; neighbours are one piece."""
    found: list[tuple[int, int]] = []
    for name, each in registers:
        place = writer.program.units[name].registers[each.number]
        size = register_bytes(each) // 4
        if found and found[-1][0] + 4 * found[-1][1] == place:
            found[-1] = found[-1][0], found[-1][1] + size
        else:
            found.append((place, size))
    return found


def _take(writer: Writer, number: int, what: _Taken) -> None:
    """Take the bytes that an access has left in memory.

    Lanes that stored past the end of an argument have left none.  To look there is no
    fault of the kernel.
    """
    block, which = MEMORY[1], f"i32 {number}"
    there = writer.call(THERE, block, which, returns="i64")
    some = writer.value(f"icmp ne i64 {there}, 0")
    with if_some(writer, writer.value(f"zext i1 {some} to i32")):
        status = writer.load("i32", "%warp", layout.STATUS)
        past = writer.load("i32", "%warp", layout.PAST)
        writer.store("i32", 0, "%warp", layout.PAST)
        addresses = writer.value(f"inttoptr i64 {there} to ptr")
        lenient = what.access.space == "global"
        bits = what.access.bits  # not those of the register, which may be wider
        given = what.access._replace(address=64, register=bits, signed=False)
        first, each = 4 * at.ADDRESS_WORDS * what.registers, given.bits // 8 * LANES
        goals = [first + each * element for element in range(given.elements)]
        failed = writer.call(
            load(given, lenient),
            *MEMORY,
            f"ptr {addresses}",
            "i64 0",
            f"i32 {what.lanes or writer.lanes()}",
            "i32 0",
            *(f"ptr {writer.at(addresses, goal)}" for goal in goals),
            returns="i32",
        )
        none = writer.load("i32", "%warp", layout.PAST)
        writer.call(COMPLETE, block, which, f"i32 {failed}", f"i32 {none}")
        writer.store("i32", status, "%warp", layout.STATUS)
        writer.store("i32", past, "%warp", layout.PAST)
