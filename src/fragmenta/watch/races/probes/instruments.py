"""Instrumentation: the code that detectors add to a watched kernel.

Before a load, a store or an atomic operation, the code of a watched kernel calls the
routines that compare it with the accesses before it.  Accesses through which threads
may synchronise are events, too.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary
from zlib import crc32

from fragmenta.engine.planes.code.probes import shadow_lines
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.emitter import MEMORY, InMemory, Writer
from fragmenta.engine.simt.events import described, if_some, located, notify, tell
from fragmenta.engine.simt.library import Routine, as_signed
from fragmenta.engine.simt.memory import AccessForm
from fragmenta.engine.simt.mode import Mode
from fragmenta.engine.simt.probes import Probes
from fragmenta.engine.simt.program import Program
from fragmenta.ptx.module import Address, Function, Immediate, Instruction
from fragmenta.ptx.ordering import STRONG, Scope, orders, role, scope, synchronises
from fragmenta.reference.isa.tables.moves import ROW_BYTES
from fragmenta.watch.races.probes.definedness import (
    follow,
    poisoned,
    undefined_at_first,
)
from fragmenta.watch.races.probes.registers_in_flight import watch_registers
from fragmenta.watch.races.probes.synchronisation import OrderProbes
from fragmenta.watch.races.probes.unwritten_registers import doubtful, watch_unwritten
from fragmenta.watch.races.probes.windows import GLOBAL, NEAR, window_of
from fragmenta.watch.races.shadow import layout as shadow
from fragmenta.watch.races.shadow.bank_counts import counted_banks
from fragmenta.watch.races.shadow.barrier_clocks import (
    BAR_AFTER,
    BAR_BEFORE,
    EXIT,
    EXITED,
    MODES,
    WARP_SYNC,
)
from fragmenta.watch.races.shadow.barrier_roles import COLLIDES, MEETS
from fragmenta.watch.races.shadow.boxes import watched_rows
from fragmenta.watch.races.shadow.global_memory import GLOBAL_SUPPORT, watched_global
from fragmenta.watch.races.shadow.shared_memory import SUPPORT, watched

_ORDERED: WeakKeyDictionary[Program, bool] = WeakKeyDictionary()
_BOXES: WeakKeyDictionary[Program, bool] = WeakKeyDictionary()
_LINES: WeakKeyDictionary[Program, set[int]] = WeakKeyDictionary()
_SYNCHRONISING: dict[int, tuple[Function, set[int]]] = {}


class RaceProbes(Probes):
    """The instrument of the race detector."""

    def before(self, writer: Writer, instruction: Instruction) -> None:
        """Check registers that are in flight, or that may be unwritten."""
        watch_registers(writer, instruction)
        watch_unwritten(writer, instruction)

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
        """Compare an access with the shadow of its memory."""
        if what.space == "local":
            return
        window = window_of(instruction)
        if not window:
            return
        if kind != "atomic" and STRONG & set(instruction.qualifiers):
            kind = f"strong {kind}"
        given = _given(writer, at, offset, writer.lanes())
        # A store is compared with what is there; the registers of others are not read.
        places = [f"ptr {each}" for each in registers if kind.endswith("write")]
        _synchronises(writer, instruction)
        of = scope((instruction.opcode, *instruction.qualifiers))
        small = of is Scope.CTA and shadow.KINDS[kind] & shadow.STRONG
        near_kind = f"narrow {kind}" if small else kind
        if kind != "atomic" and "volatile" in instruction.qualifiers:
            near_kind = kind.replace("strong", "volatile")
        raced = writer.mode.raced and instruction.is_load
        if raced and window != GLOBAL:
            about = ["raced", str(what.bytes), window]
            tell(writer, about, [located(writer, at, offset)])
        if what.space == "global":
            _link(writer, GLOBAL_SUPPORT)
            constant = "nc" in instruction.qualifiers
            check = watched_global(what, kind, scope=of, constant=constant)
            writer.call(check, *given, *places)
            if window != GLOBAL:
                check = watched(what._replace(space="shared"), near_kind, raced)
                _in_window(writer, check, offset, given, places)
            return
        near = what._replace(space="shared")
        _link(writer, SUPPORT)
        writer.call(watched(near, near_kind, raced), *given, *places)
        if banks and kind in ("read", "write") and what.space == "shared":
            writer.call(counted_banks(near), *given)

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
        """Compare both sides of a ``cp.async``."""
        _link(writer, SUPPORT)
        _link(writer, GLOBAL_SUPPORT)
        lanes = writer.lanes()
        there = AccessForm("shared", 32, 32, size // 4, address=to.bits)
        goal = _given(writer, to, to_offset, lanes)
        writer.call(watched(there, "cp.async"), *goal)
        here = AccessForm("global", 32, 32, size // 4, address=of.bits)
        reading = writer.value(f"and i32 {lanes}, {reads}")
        source = _given(writer, of, of_offset, reading)
        writer.call(watched_global(here, "read"), *source)

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
        """Compare the rows of ``ldmatrix`` or ``stmatrix``."""
        what = AccessForm("shared", 8 * width, 8 * width, address=at.bits)
        chosen = writer.value(f"and i32 {writer.lanes()}, {_signed((1 << used) - 1)}")
        given = _given(writer, at, offset, chosen)
        _link(writer, SUPPORT)
        if stores:
            writer.call(watched(what, "write"), *given, f"ptr {values}")
        else:
            raced = writer.mode.raced
            if raced:
                about = ["raced", str(width), NEAR]
                notify(writer, about, [located(writer, at, offset)], chosen)
            writer.call(watched(what, "read", raced), *given)
        if width == ROW_BYTES and not stores and _copies_boxes(writer.program):
            writer.call(watched_rows(at.bits), *given)
        if width == ROW_BYTES:  # which rows of 8 bytes one pass takes is not known
            words = what._replace(bits=32, register=32, elements=width // 4)
            writer.call(counted_banks(words), *given)

    def named_barrier(self, writer: Writer, number: str, count: str) -> None:
        """Find warps that use the barrier of others."""
        lanes, site = f"i32 {writer.lanes()}", f"i32 {writer.site()}"
        given = f"ptr {number}", f"ptr {count}", lanes, site
        found = writer.call(COLLIDES, *MEMORY, *given, returns="i32")
        with if_some(writer, found):
            notify(writer, ["collides"], [], found)

    def whole_barrier(self, writer: Writer, number: str) -> None:
        """Find warps that meet at ``__syncthreads()`` of different lines."""
        instruction = writer.unit.function.instructions[writer.index]
        if not _is_syncthreads(instruction):
            return
        line = _line(instruction)
        if not line or len(_barrier_lines(writer.program)) < 2:
            return
        given = f"ptr {number}", f"i32 {writer.lanes()}", f"i32 {line}"
        site = f"i32 {writer.site()}"
        found = writer.call(MEETS, *MEMORY, *given, site, returns="i32")
        with if_some(writer, found):
            notify(writer, ["collides"], [], found)

    def barrier_arrives(self, writer: Writer, number: str, mode: str) -> None:
        """Publish what the lanes know to the barrier."""
        lanes, how = f"i32 {writer.lanes()}", f"i32 {MODES[mode]}"
        site = f"i32 {writer.site()}"
        writer.call(BAR_BEFORE, *MEMORY, f"ptr {number}", lanes, how, site)

    def barrier_passed(
        self, writer: Writer, number: str, passed: str, whole: bool
    ) -> None:
        """Take what the barrier knows; report threads that ended before it."""
        given = (*MEMORY, f"ptr {number}", f"i32 {passed}")
        writer.call(BAR_AFTER, *given)
        if whole:
            lanes = writer.call(EXITED, *given, returns="i32")
            with if_some(writer, lanes):
                notify(writer, ["exited"], [], lanes)

    def warp_barrier_passed(self, writer: Writer, passed: str) -> None:
        """The lanes know what each of them knew."""
        writer.call(WARP_SYNC, *MEMORY, f"i32 {passed}")

    def leaves(self, writer: Writer) -> None:
        """Keep what the lanes knew when they ended."""
        writer.call(EXIT, *MEMORY, f"i32 {writer.lanes()}")

    def about(self, program: Program) -> dict[str, object]:
        """Where the bytes of registers are, and whether any may be unwritten."""
        return {"dirty": program.dirty, "doubtful": doubtful(program)}


class DefinednessProbes(Probes):
    """The instrument that follows undefined bits through a kernel."""

    def head(self) -> list[str]:
        """The shadow of a block, and that of a warp."""
        return shadow_lines(1)

    def before(self, writer: Writer, instruction: Instruction) -> None:
        """Execute the twin of the instruction on the shadows."""
        follow(writer, instruction)

    def about(self, program: Program) -> dict[str, object]:
        """Which registers begin undefined, and where their shadows are."""
        return {
            "poisoned": poisoned(program),
            "shadows": [[at, *of] for at, of in sorted(program.shadows.items())],
            "undefined": undefined_at_first(program),
        }


def probes(mode: Mode) -> Probes:
    """The instrument that a mode asks for."""
    if mode.recorded:
        return OrderProbes()
    return DefinednessProbes() if mode.defined else RaceProbes()


# ── emitted checks ──────────────────────────────────────────────────────────


def _given(writer: Writer, at: InMemory, offset: int, lanes: str) -> tuple[str, ...]:
    """The arguments that every check of an access takes."""
    where = f"ptr {writer.address(at)}", f"i64 {offset}"
    return (*MEMORY, *where, f"i32 {lanes}", f"i32 {writer.site()}")


def _link(writer: Writer, support: tuple[Routine, ...]) -> None:
    """Link the routines that checks call."""
    writer.routines.update({each.name: each for each in support})


def _copies_boxes(program: Program) -> bool:
    """Whether any function copies boxes by tensor maps."""
    if program not in _BOXES:
        _BOXES[program] = any(
            each.is_copy and "tensor" in each.qualifiers
            for unit in program.units.values()
            for each in unit.function.instructions
        )
    return _BOXES[program]


def _in_window(
    writer: Writer,
    check: Routine,
    offset: int,
    given: tuple[str, ...],
    places: list[str],
) -> None:
    """Check generic addresses that are in shared memory: subtract its window.

    Other addresses are then far outside of shared memory, and left out.
    """
    _link(writer, SUPPORT)
    moved = list(given)
    moved[3] = f"i64 {as_signed(offset - layout.SHARED_WINDOW, 64)}"
    writer.call(check, *moved, *places)


def _is_syncthreads(instruction: Instruction) -> bool:
    """Whether it is the barrier of CUDA C++: 0, for all threads.

    Others may be met at several places: Triton's warps that wait for work do so.
    """
    if not instruction.is_barrier or "warp" in instruction.qualifiers:
        return False
    numbers = [each for each in instruction.operands if isinstance(each, Immediate)]
    return [each.value for each in numbers] == [0]


def _line(instruction: Instruction) -> int:
    """The line of the source as a number, with the calls it is in; 0 without one."""
    source = instruction.source
    if source is None:
        return 0
    return crc32(" ".join(map(str, source.frames)).encode()) & 0x7FFFFFFF or 1


def _barrier_lines(program: Program) -> set[int]:
    """The lines that have a ``__syncthreads()``."""
    if program not in _LINES:
        _LINES[program] = {
            _line(each)
            for unit in program.units.values()
            for each in unit.function.instructions
            if _is_syncthreads(each)
        } - {0}
    return _LINES[program]


def _synchronises(writer: Writer, instruction: Instruction) -> None:
    """Emit an event, if threads may synchronise through this access."""
    if writer.index not in _numbers(writer):
        return
    found = role(instruction)
    address = next((o for o in instruction.operands if isinstance(o, Address)), None)
    if found is None or address is None:
        return
    generic = "" if any(w.startswith("shared") for w in instruction.qualifiers) else "g"
    words = ["location", *(str(int(each)) for each in found), generic]
    tell(writer, words, [described(writer, address)])


def _numbers(writer: Writer) -> set[int]:
    program = writer.program
    if program not in _ORDERED:
        every = [unit.function for unit in program.units.values()]
        _ORDERED[program] = orders(every)
    if not _ORDERED[program]:
        return set()
    function = writer.unit.function
    known = _SYNCHRONISING.get(id(function))
    if known is None or known[0] is not function:
        known = function, synchronises(function, True)
        _SYNCHRONISING[id(function)] = known
    return known[1]


def _signed(number: int) -> int:
    return number - (1 << 32) if number >> 31 else number
