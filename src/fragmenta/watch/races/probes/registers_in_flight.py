"""Instrumentation for registers that a ``wgmma`` or ``tcgen05.ld`` in flight uses.

It stands only before instructions that name a register of some ``wgmma``, or of the
result of a ``tcgen05.ld``.  Each register has two bytes in the warp's memory, after all
registers: how it was used since the last fence, and what it is for work in flight; see
:mod:`fragmenta.watch.races.probes.register_roles`.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.emitter import Writer
from fragmenta.engine.simt.events import notify
from fragmenta.engine.simt.program import PlacedFunction, Program
from fragmenta.ptx.checking.register_effects import effects
from fragmenta.ptx.module import Instruction
from fragmenta.watch.races.probes.register_roles import REGISTER_BYTES, Role, roles
from fragmenta.watch.races.shadow.product_layout import COMPUTED, MOVED, READ

# Plain numbers: most of the time of a search would be spent in the class of flags.
_ROLES: WeakKeyDictionary[PlacedFunction, dict[int, int]] = WeakKeyDictionary()
_READ = int(Role.ACCUMULATOR | Role.FRAGMENT | Role.LOADED)
_WRITTEN = _READ | int(Role.METADATA)
_FENCED = int(Role.ACCUMULATOR | Role.FRAGMENT | Role.METADATA)
_SUMMED = int(Role.ACCUMULATOR)


def watch_registers(writer: Writer, instruction: Instruction) -> None:
    """Write the code before an instruction that uses registers of a product."""
    if instruction.of_warpgroup:
        return
    known = _roles(writer)
    if not known:
        return
    found = effects(instruction)
    named = {register.number for register in (*found.reads, *found.writes)}
    if named.isdisjoint(known):
        return
    read = {register.number for register in found.reads}
    reads = _places(writer, read, known, _READ)
    written = {register.number for register in found.writes}
    writes = _places(writer, written, known, _WRITTEN)
    if reads or writes:
        _ask(writer, reads, writes)
    for place in _places(writer, read, known, _SUMMED):
        _mark(writer, place, READ)
    for place in _places(writer, written, known, _FENCED):
        _mark(writer, place, MOVED if instruction.is_move else COMPUTED)


def _roles(writer: Writer) -> dict[int, int]:
    unit = writer.unit
    if unit not in _ROLES:
        found = roles(unit.function)
        _ROLES[unit] = {number: int(role) for number, role in found.items()}
    if _ROLES[unit]:
        _reserve(writer.program)
    return _ROLES[unit]


def _reserve(program: Program) -> None:
    """Make room for the bytes."""
    if not program.dirty:
        program.dirty = program.warp_bytes
        size = 2 * program.warp_bytes // REGISTER_BYTES
        program.warp_bytes += -(-size // 64) * 64


def _places(
    writer: Writer, numbers: set[int], known: dict[int, int], asked: int
) -> list[int]:
    """Where the registers with one of these roles are."""
    return [
        writer.unit.registers[number]
        for number in sorted(numbers)
        if known.get(number, 0) & asked
    ]


def _ask(writer: Writer, reads: list[int], writes: list[int]) -> None:
    """Call Python if one of the registers is in flight."""
    look, call, after = (writer.new_label() for _ in range(3))
    flights = writer.load("i32", "%warp", layout.IN_FLIGHT)
    some = writer.value(f"icmp ne i32 {flights}, 0")
    writer.line(f"br i1 {some}, label %{look}, label %{after}")
    writer.label(look)
    busy = "0"
    for places, asked in ((reads, _READ), (writes, _WRITTEN)):
        for place in places:
            byte = writer.load("i8", "%warp", _busy(writer.program, place))
            mine = writer.value(f"and i8 {byte}, {asked}")
            busy = writer.value(f"or i8 {busy}, {mine}")
    any_lane = writer.value(f"icmp ne i32 {writer.lanes()}, 0")
    in_flight = writer.value(f"icmp ne i8 {busy}, 0")
    both = writer.value(f"and i1 {any_lane}, {in_flight}")
    writer.line(f"br i1 {both}, label %{call}, label %{after}")
    writer.label(call)
    operands = [["v", [["r", p, 32] for p in places]] for places in (reads, writes)]
    notify(writer, ["touched"], operands, writer.lanes())
    writer.line(f"br label %{after}")
    writer.label(after)


def _mark(writer: Writer, place: int, how: int) -> None:
    """Note that a register was read or written, if any lane takes part."""
    at = writer.program.dirty + place // REGISTER_BYTES
    new = str(how)
    if writer.mask:
        some = writer.value(f"icmp ne i32 {writer.mask}, 0")
        new = writer.value(f"select i1 {some}, i8 {how}, i8 0")
    before = writer.load("i8", "%warp", at)
    writer.store("i8", writer.value(f"or i8 {before}, {new}"), "%warp", at)


def _busy(program: Program, place: int) -> int:
    return program.dirty + (program.dirty + place) // REGISTER_BYTES
