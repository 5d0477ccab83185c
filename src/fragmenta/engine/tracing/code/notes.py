"""The routine that writes down what units did: the function of a recorder.

Fast paths of the units call it after something has happened; see ``NOTE_...`` in
:mod:`fragmenta.engine.units.fast.layout`.  A note has the record that it is about as it
is now, and the bytes that were written.  Python reads notes when the launch is over.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, convert, copy_memory
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.loaded import LoadedRoutines
from fragmenta.engine.simt.warps import P, routine
from fragmenta.engine.tracing.code import layout as at
from fragmenta.engine.tracing.code.routines import (
    empty_if,
    place,
    put,
    recorded,
    warp_number,
)
from fragmenta.engine.units.fast import layout as units
from fragmenta.engine.units.fast import task_layout as tasks
from fragmenta.engine.units.fast import tensor_layout as tensors
from fragmenta.engine.units.fast.tasks import each_region, each_written

WARPS = 4
MBARRIER_BYTES = units.MBARRIER_WAITING
"""What a note has of the record of an mbarrier."""

TASK_BYTES = tasks.TASK_EVENT
"""What notes have of the record of a task that was issued before: its ordinal."""


class _Payload:
    """What is written down with a note."""

    def __init__(self, code: Code, log: Raw) -> None:
        self.code = code
        self.used = field(code, log, at.PAYLOAD, I64)
        self.base = pointer_at(code, log, at.PAYLOAD_AT)

    def add(self, source: Raw, size: Value) -> None:
        """Copy bytes; the next ones begin with a word."""
        b, used = self.code.builder, self.used[0]
        goal = b.gep(self.base, [(used * 4).raw])
        copy_memory(b, goal, source, size.raw)
        self.used[0] = used + ((size + 3) >> 2)

    def record(self, source: Raw, size: int) -> None:
        """Copy a record."""
        self.add(source, self.code.constant(size, I64))

    def registers(self, record: Raw, warp: Raw, there: int, count: int) -> None:
        """Copy registers of a warp: a record says where, and how many."""
        code, b = self.code, self.code.builder
        places = field(code, pointer_at(code, record, there), 0, I64)
        many = convert(field(code, record, count, I32)[0], I64)
        with code.loop(many) as number:
            self.record(b.gep(warp, [places[number].raw]), 4 * engine.LANES)

    def of_product(self, form: Raw, warp: Raw) -> None:
        """Copy the registers of D of a product."""
        self.registers(form, warp, units.FORM_D, units.FORM_D_COUNT)

    def of_load(self, move: Raw, warp: Raw) -> None:
        """Copy where the registers of a load of cells are, then these."""
        code = self.code
        count = field(code, move, tensors.MOVE_COUNT, I32)[0]
        self.add(
            pointer_at(code, move, tensors.MOVE_REGISTERS), convert(count, I64) * 8
        )
        self.registers(move, warp, tensors.MOVE_REGISTERS, tensors.MOVE_COUNT)


def _note(
    code: Code,
    block: Raw,
    warp: Raw,
    event: Raw,
    lanes: Value,
    kind: Value,
    about: Raw,
    number: Value,
) -> None:
    with recorded(code, block, lanes.lift(1)) as (own, log):
        notes = field(code, log, at.NOTES, I64)
        room, used = (
            field(code, log, each, I64)[0] for each in (at.PAYLOAD_ROOM, at.PAYLOAD)
        )
        full = notes[0] >= field(code, log, at.NOTE_ROOM, I64)[0]
        empty_if(code, log, full | (used > room - at.LEAST_PAYLOAD))
        row = place(code, log, at.NOTES_AT, notes[0], 4 * at.NOTE_WORDS)
        payload = _Payload(code, log)
        begin = payload.used[0]
        _put_head(code, row, (block, warp, event), lanes, kind, own, log)
        _put_payload(code, payload, kind, block, warp, about, number)
        time = field(code, _cluster(code, block), units.CLUSTER_TIME, I64)[0]
        longs = field(code, row, 32, I64)
        for where, value in enumerate((time, number, begin, payload.used[0] - begin)):
            longs[where] = value
        notes[0] = notes[0] + 1


def _cluster(code: Code, block: Raw) -> Raw:
    state = pointer_at(code, block, engine.BLOCK_UNITS)
    return pointer_at(code, state, units.STATE_CLUSTER)


def _put_head(
    code: Code,
    row: Raw,
    who: tuple[Raw, Raw, Raw],
    lanes: Value,
    kind: Value,
    own: Raw,
    log: Raw,
) -> None:
    """Who did it, and when."""
    b, (block, warp, event) = code.builder, who
    step = field(code, log, at.BASE, I64)[0] + field(code, log, at.STEPS, I64)[0]
    state = pointer_at(code, block, engine.BLOCK_UNITS)
    site, flags = (code.variable(code.constant(-1, I32)) for _ in range(2))
    with b.if_then(b.icmp_unsigned("!=", event, ir.Constant(POINTER, None))):
        site.value = field(code, event, units.EVENT_SITE, I32)[0]
        flags.value = field(code, event, units.EVENT_FLAGS, I32)[0]
    values = (
        kind,
        convert(step, I32),
        site.value,
        field(code, own, at.OWN_PLACE, I32)[0],
        field(code, state, units.STATE_RANK, I32)[0],
        warp_number(code, warp, own),
        lanes,
        flags.value,
    )
    put(code, row, values)


def _put_payload(
    code: Code,
    payload: _Payload,
    kind: Value,
    block: Raw,
    warp: Raw,
    about: Raw,
    number: Value,
) -> None:
    """What it is about, and what was written."""
    b, cluster = code.builder, _cluster(code, block)

    def one_of(*kinds: int) -> Value:
        found: Value = kind == kinds[0]
        for each in kinds[1:]:
            found = found | (kind == each)
        return found

    with code.when(one_of(units.NOTE_MBARRIER, units.NOTE_WAITED)):
        payload.record(about, MBARRIER_BYTES)
    with code.when(one_of(units.NOTE_ISSUED)):
        payload.record(about, tasks.TASK_RECORD)
        regions = tensors.REGION_BYTES
        each_region(
            code, cluster, about, lambda _, each: payload.record(each.record, regions)
        )
    with code.when(one_of(units.NOTE_HIDDEN, units.NOTE_DONE)):
        payload.record(about, TASK_BYTES)
    # Of cells that are hidden, it is known what a reader sees.
    written = code.variable(convert(one_of(units.NOTE_DONE), I32, signed=False))
    with code.when(one_of(units.NOTE_HIDDEN)):
        few = field(code, about, tasks.TASK_KIND, I32)[0] < tasks.CELLS
        written.value = convert(few, I32, signed=False)
    with code.when(written.value != 0):
        each_written(code, cluster, about, payload.add)
    with code.when(one_of(units.NOTE_LOADED)):
        payload.of_load(about, warp)
    with code.when(one_of(units.NOTE_PRODUCT, units.NOTE_RAN, units.NOTE_FAILED)):
        payload.record(about, units.PRODUCT_BYTES)
    with code.when(one_of(units.NOTE_RAN, units.NOTE_FAILED)):
        form = pointer_at(code, about, units.PRODUCT_FORM)
        group = b.inttoptr(number.raw, POINTER)
        warps = field(code, group, units.GROUP_WARPS, POINTER)
        for each in range(WARPS):
            payload.of_product(form, warps[each].raw)
    with code.when(one_of(units.NOTE_HELD)):
        payload.of_product(about, warp)


_NOTE = routine("replay.note", _note, [P, P, P, I32, I32, P, I64], None)


@once
def note() -> int:
    """Where the function of a recorder is."""
    return LoadedRoutines([_NOTE]).address(_NOTE)
