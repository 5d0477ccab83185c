"""Which copy wrote what, and what reads it, in machine code.

:data:`WRITTEN` notes a box.  :data:`LOOK` asks Python about an operand of a product
that was not judged yet; :data:`ROWS` about rows of ``ldmatrix`` that are not at the
same byte of their lines.  :mod:`fragmenta.watch.races.layout_watch` is the half in
Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I8, I32, I64, Code, Memory, Value, convert, select
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt import memory
from fragmenta.engine.simt.library import (
    POINTER,
    Routine,
    as_signed,
    define,
    field,
    pointer_at,
)
from fragmenta.engine.simt.warps import P, routine
from fragmenta.engine.units.fast.layout import HASH
from fragmenta.engine.units.fast.step import declared, shift
from fragmenta.reference.shared.swizzles import exchanged
from fragmenta.watch.races.shadow import box_layout as at
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.barrier_clocks import watching
from fragmenta.watch.races.shadow.order import BlockHead

START = 0x3FFF
"""The bits of a descriptor that have the start address, in units of 16 bytes."""
_REPEAT = 64
"""A swizzle repeats after so many units."""
MATRIX = 8
"""Rows of one matrix of ``ldmatrix``."""
_ASK = ir.FunctionType(ir.VoidType(), [I64] * 5)
_ASK_ROWS = ir.FunctionType(ir.VoidType(), [I64, I64, I64, POINTER])


class Boxes:
    """The boxes of a block."""

    def __init__(self, code: Code, head: BlockHead) -> None:
        self.code, self.raw = code, head.pointer(layout.HEAD_BOXES)
        self.signature = field(code, self.raw, at.BOXES_SIGNATURE, I64)
        self.count = field(code, self.raw, at.BOXES_COUNT, I64)[0]

    @property
    def lines(self) -> Memory:
        """Where the box of each line begins, plus 1."""
        return field(self.code, pointer_at(self.code, self.raw, at.BOXES_LINES), 0, I32)

    def record(self, line: Value) -> Raw:
        """The record of the box that begins at a line."""
        first = pointer_at(self.code, self.raw, at.BOXES_RECORDS)
        return self.code.builder.gep(first, [(line * at.BOX_BYTES).raw])


def there(code: Code, pointer: Raw) -> Value:
    """Whether a pointer is not null."""
    b = code.builder
    return Value(b, b.icmp_unsigned("!=", pointer, ir.Constant(POINTER, None)))


def mixed(number: Value) -> Value:
    """A hash of a number."""
    by = as_signed(HASH, 64)
    once = number * by
    found: Value = (once ^ shift(once, 32)) * by
    return found


def _hashed(code: Code, layout_: Value, line: Value) -> Value:
    """The part of a box in the signature."""
    return mixed((layout_ << 20) + line + 1)


# ── copies ──────────────────────────────────────────────────────────────────


def _written(
    code: Code,
    head_at: Raw,
    start: Value,
    size: Value,
    kind: Value,
    swizzle: Value,
    pitch: Value,
    site: Value,
    copier: Value,
    coordinates: Raw,
) -> None:
    """A copy writes bytes: a box whose layout has a number, or others (0)."""
    head = BlockHead(code, head_at)
    with code.when(there(code, head.pointer(layout.HEAD_BOXES))):
        boxes = Boxes(code, head)
        first = convert(shift(start, 7), I64)
        count = convert(shift(size + (at.LINE - 1), 7), I64)
        good = (count > 0) & (first + count <= boxes.count)
        with code.when(good & ((kind != 0) | (boxes.signature[0] != 0))):
            _renew(code, boxes, first, count, kind)
            with code.when(kind != 0):
                record = boxes.record(first)
                for offset, number in (
                    (at.BOX_SITE, site),
                    (at.BOX_COPIER, copier),
                    (at.BOX_SWIZZLE, swizzle),
                    (at.BOX_PITCH, pitch),
                ):
                    field(code, record, offset, I32)[0] = number
                goal = field(code, record, at.BOX_COORDINATES, I64)
                source = field(code, coordinates, 0, I64)
                for each in range(5):
                    goal[each] = source[each]


def _renew(code: Code, boxes: Boxes, first: Value, count: Value, kind: Value) -> None:
    """Note the box; usually it is the same one as before."""
    lines, number = boxes.lines, convert(first, I32) + 1
    own = field(code, boxes.record(first), at.BOX_LAYOUT, I64)
    whole = (lines[first] == number) & (lines[first + count - 1] == number)
    with code.when(~((own[0] == kind) & (kind != 0) & whole)):
        field(code, boxes.raw, at.BOXES_USED, I32)[0] = code.constant(1, I32)
        used = convert(convert(kind != 0, I32, signed=False), I32)
        with code.loop(first + count, first) as line:
            kept = field(code, boxes.record(line), at.BOX_LAYOUT, I64)
            with code.when(kept[0] != 0):
                gone = _hashed(code, kept[0], line)
                boxes.signature[0] = boxes.signature[0] ^ gone
                kept[0] = code.constant(0, I64)
            lines[line] = number * used
        with code.when(kind != 0):
            own[0] = kind
            made = _hashed(code, kind, first)
            boxes.signature[0] = boxes.signature[0] ^ made


WRITTEN = routine("watch.box", _written, [P, I32, I32, I64, *4 * [I32], P], None)
"""The head of a block, where the bytes begin, how many, the number of the layout, the
bits of its swizzle, its pitch, the site, the warp, and where the coordinates are."""
_WRITES = ir.FunctionType(ir.VoidType(), [POINTER, I32, I32, I64, *4 * [I32], POINTER])


def written(code: Code, *given: Raw) -> None:
    """Write a call of :data:`WRITTEN`."""
    b = code.builder
    b.call(declared(b.module, WRITTEN.name, _WRITES), list(given))


# ── products ────────────────────────────────────────────────────────────────

_TRIES = 4
"""So many places of a table may have a number, so that two of them seldom meet."""


@contextmanager
def if_new(code: Code, table: Memory, hashed: Value) -> Iterator[None]:
    """Write what is done if a table of 4096 numbers lacks one; it has it then."""
    first = shift(hashed, 52)
    with code.when(table[first] != hashed):
        places = [first + n & 0xFFF for n in range(_TRIES)]
        lacks, goal = table[places[1]] != hashed, first
        for place in reversed(places[1:]):
            lacks = lacks & (table[place] != hashed)
            goal = select(table[place] == 0, place, goal)
        goal = select(table[first] == 0, first, goal)
        with code.when(lacks):
            table[goal] = hashed
            yield


def _look(
    code: Code, head_at: Raw, of: Value, word: Value, site: Value, warp: Value
) -> None:
    """A product reads an operand: judge it, if that was not done."""
    b, head = code.builder, BlockHead(code, head_at)
    with code.when(there(code, head.pointer(layout.HEAD_BOXES))):
        boxes = Boxes(code, head)
        signature = boxes.signature[0]
        line = (word & START) >> 3
        begins = code.variable(code.constant(0, I32))
        with code.when((signature != 0) & (line < boxes.count)):
            begins.value = boxes.lines[line]
        # What begins in no box is judged by itself, wherever it is.
        alone = begins.value == 0
        near = select(alone, word & ~(START & -_REPEAT), word)
        boxed = select(alone, signature.lift(0), signature)
        judged = field(code, head.pointer(layout.HEAD_JUDGED), 0, I64)
        hashed = mixed(mixed(near ^ (of << 48)) ^ boxed)
        with if_new(code, judged, hashed):
            rank = convert(head.word(layout.HEAD_RANK), I64)
            ask = head.pointer(layout.HEAD_ASK_LAYOUT)
            given = [rank, of, word, convert(site, I64), convert(warp, I64)]
            raws = [each.raw for each in given]
            b.call(b.bitcast(ask, _ASK.as_pointer()), raws)


LOOK = routine("watch.look", _look, [P, I64, I64, I32, I32], None)
"""The head of a block, the operand (as units have it), the descriptor, the site and
the warp."""
_LOOKS = ir.FunctionType(ir.VoidType(), [POINTER, I64, I64, I32, I32])


def look(code: Code, *given: Raw) -> None:
    """Write a call of :data:`LOOK`."""
    b = code.builder
    b.call(declared(b.module, LOOK.name, _LOOKS), list(given))


# ── ldmatrix ────────────────────────────────────────────────────────────────


def watched_rows(bits: int) -> Routine:
    """The routine that looks at the rows of ``ldmatrix``, with addresses of ``bits``.

    It has the parameters of a check of an access.
    """

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        site: Value,
    ) -> None:
        def check(head: BlockHead) -> None:
            with code.when(there(code, head.pointer(layout.HEAD_BOXES))):
                boxes = Boxes(code, head)
                left = field(code, head.pointer(layout.HEAD_ROWS), 0, I8)
                place = convert(site, I64)
                many = left[place] == as_signed(at.ROWS, 8)
                with code.when((boxes.signature[0] != 0) & ~many):
                    left[place] = left[place] + 1
                    where = memory.addresses(code, register, bits, offset)
                    spilled = memory.spill(code, where)
                    _rows(code, head, boxes, warp, spilled, lanes, site)

        watching(code, block, check)

    name = f"watch.rows.{bits}"

    def build(module: ir.Module) -> None:
        given = [POINTER, POINTER, POINTER, I64, I32, I32]
        define(module, name, given, trace)

    return Routine(name, build)


def _rows(
    code: Code,
    head: BlockHead,
    boxes: Boxes,
    warp: Raw,
    spilled: Raw,
    lanes: Value,
    site: Value,
) -> None:
    """Ask Python about a matrix whose rows begin at different bytes of their lines."""
    b = code.builder
    odd = code.variable(code.constant(0, I32))
    with code.loop(engine.LANES) as lane, code.when(memory.has(lanes, lane)):
        first = lane - (lane & (MATRIX - 1))
        own, leader = (
            _byte(code, boxes, memory.lane_of(code, spilled, each))
            for each in (lane, first)
        )
        differs = (own >= 0) & (leader >= 0) & (own != leader)
        odd.value = odd.value | convert(differs, I32, signed=False)
    with code.when(odd.value != 0):
        number = field(code, warp, engine.WARP_NUMBER, I32)[0]
        given = [head.word(layout.HEAD_RANK), number, site]
        raws = [convert(each, I64).raw for each in given]
        ask = head.pointer(layout.HEAD_ASK_ROWS)
        function = b.bitcast(ask, _ASK_ROWS.as_pointer())
        b.call(function, [*raws, b.bitcast(spilled, POINTER)])


def _byte(code: Code, boxes: Boxes, address: Value) -> Value:
    """The byte of a line of its box that an address is at; -1: it is in no box."""
    found = code.variable(code.constant(-1, I32))
    line = shift(address, 7)
    with code.when((line >= 0) & (line < boxes.count)):
        first = convert(boxes.lines[line], I64) - 1
        with code.when(first >= 0):
            record = boxes.record(first)

            def word(offset: int) -> Value:
                return field(code, record, offset, I32)[0]

            linear = exchanged(convert(address, I32), word(at.BOX_SWIZZLE))
            inside = linear - convert(first, I32) * at.LINE
            found.value = inside % word(at.BOX_PITCH)
    return found.value
