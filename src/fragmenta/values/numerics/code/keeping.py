"""Keeps second values over time: what each store leaves in memory goes to a log.

A row of the log has the site, the warp and the lanes.  Then come the planes of what the
lanes have stored, as memory has them after the instruction, and the bytes themselves.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, convert
from fragmenta.engine.planes.code import accesses
from fragmenta.engine.planes.code.accesses import AccessRegister
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.accessing import element_type, param_space, space_of
from fragmenta.engine.simt.emitter import MEMORY, InMemory, address_of
from fragmenta.engine.simt.events import if_some
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.simt.memory import AccessForm, load
from fragmenta.engine.simt.warps import P, routine
from fragmenta.errors import Error
from fragmenta.ptx.checking.register_effects import effects, registers
from fragmenta.ptx.module import Address, Vector, type_bits
from fragmenta.values.numerics.code import layout as at
from fragmenta.values.numerics.code.steps import NumericsStep

USED = 0  #: i64: bytes of the log that are used, with its head
ROOM = 8  #: i64: how many may be
LOST = 16  #: i64: rows for which there was no room
LOG_HEAD = 64
"""Bytes before the rows."""
ROW_SIZE, ROW_SITE, ROW_LANES, ROW_WARP, ROW_BLOCK, ROW_WIDTH = 0, 4, 8, 12, 16, 24
"""Words of a row; that of the block has 64 bits.  The width is that of an element."""
ROW_HEAD = 64
"""Bytes of a row before its planes."""


class _Kept(NamedTuple):
    """An access whose result is kept."""

    access: AccessForm
    at: InMemory
    offset: int


class KeepingStep(NumericsStep):
    """The same as numerics, and stores are written down with their second values."""

    def after(self) -> None:
        """Write down what was stored."""
        super().after()
        before = len(self.writer.lines)
        try:
            what = self._kept()
            if what is not None:
                self._keep(what)
        except Error:  # the instruction is refused, too
            self.writer.take_back(before)

    def _kept(self) -> _Kept | None:
        """What lanes have stored to arrays or to shared memory; None if nothing."""
        given, writer = self.instruction, self.writer
        words = given.qualifiers
        if not given.is_write or {"async", "bulk"} & set(words):
            return None
        address = next((e for e in given.operands if isinstance(e, Address)), None)
        if address is None or {*registers([address])} & {*effects(given).writes}:
            return None
        space = param_space(writer, space_of(given), address)
        if space not in ("global", "shared", "cluster"):
            return None
        data = given.operands[2 if given.is_fetch else 1]
        count = len(data.items) if isinstance(data, Vector) else 1
        bits = type_bits(element_type(given))
        width = min(bits, 64)
        at_, offset = address_of(writer, address)
        what = AccessForm(space, width, width, count * (bits // width), False, at_.bits)
        return _Kept(what, at_, offset)

    def _keep(self, what: _Kept) -> None:
        writer, access = self.writer, what.access
        lanes = f"i32 {writer.lanes()}"
        each = access.bits // 8 * LANES
        size = ROW_HEAD + each * access.elements * (self.planes + 1)
        numbers = (f"i32 {n}" for n in (self.number, size, access.bits // 8))
        row = writer.call(NEW_ROW, *MEMORY, self.table, lanes, *numbers, returns="i64")
        some = writer.value(f"icmp ne i64 {row}, 0")
        with if_some(writer, writer.value(f"zext i1 {some} to i32")):
            base = writer.value(f"inttoptr i64 {row} to ptr")
            where = f"ptr {writer.address(what.at)}", f"i64 {what.offset}", lanes
            self._planes(access, where, base, each)
            self._bytes(access, where, base, each)

    def _planes(
        self, what: AccessForm, where: tuple[str, ...], base: str, each: int
    ) -> None:
        """Load the planes of what is in memory now into the row."""
        writer, step = self.writer, each * self.planes
        goals = [ROW_HEAD + step * number for number in range(what.elements)]
        held = (AccessRegister(True, each),) * what.elements
        made = accesses.access(what, False, held, self.planes)
        places = [f"ptr {writer.at(base, goal)}" for goal in goals]
        with writer.in_plane(0):
            writer.call(made, *writer.memory, *where, "i32 0", *places, returns="i32")

    def _bytes(
        self, what: AccessForm, where: tuple[str, ...], base: str, each: int
    ) -> None:
        """Load the bytes of what is in memory now, behind the planes.

        Lanes that stored past the end of an argument have left none.
        """
        writer = self.writer
        first = ROW_HEAD + each * self.planes * what.elements
        goals = [first + each * number for number in range(what.elements)]
        status, past = (
            writer.load("i32", "%warp", place) for place in (layout.STATUS, layout.PAST)
        )
        writer.store("i32", 0, "%warp", layout.PAST)
        places = [f"ptr {writer.at(base, goal)}" for goal in goals]
        made = load(what, what.space == "global")
        failed = writer.call(made, *MEMORY, *where, "i32 0", *places, returns="i32")
        none = writer.load("i32", "%warp", layout.PAST)
        writer.call(COMPLETE, f"ptr {base}", f"i32 {failed}", f"i32 {none}")
        writer.store("i32", status, "%warp", layout.STATUS)
        writer.store("i32", past, "%warp", layout.PAST)


def _new_row(
    code: Code,
    warp: Raw,
    block: Raw,
    table: Raw,
    lanes: Value,
    number: Value,
    size: Value,
    width: Value,
) -> Value:
    """Where a new row is; 0 if no lane takes part, or if there is no room."""
    b = code.builder
    log = pointer_at(code, table, at.KEPT)
    used, room, lost = (field(code, log, place, I64) for place in (USED, ROOM, LOST))
    found = code.variable(used[0].lift(0))
    wide = convert(size, I64)
    with code.when((lanes != 0) & (used[0] + wide > room[0])):
        # What comes later is not kept, however small it is: rows are counted.
        lost[0], room[0] = lost[0] + 1, room[0].lift(0)
    with code.when((lanes != 0) & (used[0] + wide <= room[0])):
        row = b.gep(log, [used[0].raw])
        words = (
            (ROW_SIZE, size),
            (ROW_SITE, number),
            (ROW_LANES, lanes),
            (ROW_WARP, field(code, warp, layout.WARP_NUMBER, I32)[0]),
            (ROW_WIDTH, width),
        )
        for place, value in words:
            field(code, row, place, I32)[0] = value
        index = field(code, block, layout.BLOCK_INDEX, I64)[0]
        field(code, row, ROW_BLOCK, I64)[0] = index
        used[0] = used[0] + wide
        found.value = Value(b, b.ptrtoint(row, I64))
    return found.value


def _complete(code: Code, row: Raw, failed: Value, past: Value) -> None:
    """The bytes of a row are there, but for some lanes, or for none of them."""
    lanes = field(code, row, ROW_LANES, I32)
    lanes[0] = lanes[0] & ~past
    with code.when(failed != 0):
        lanes[0] = past.lift(0)


NEW_ROW = routine("numerics.row", _new_row, [P, P, P, I32, I32, I32, I32], I64)
COMPLETE = routine("numerics.row.complete", _complete, [P, I32, I32], None)
