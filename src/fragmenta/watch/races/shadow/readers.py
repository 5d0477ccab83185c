"""Sets of readers of a word of shared memory, in compiled code.

A record of reads is about one warp or agent, or it names a set.  A set is a record and
a smaller set.  Equal sets have equal numbers, so a step from one set to the next is
computed once for all words that were read in the same way.  The lane in the record of a
set is that of the word.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Value,
    Variable,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt.library import as_signed, field
from fragmenta.engine.simt.warps import P, place, repeat, routine
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.layout import Lanes
from fragmenta.watch.races.shadow.order import BlockHead, Plane
from fragmenta.watch.races.shadow.shared_records import (
    Viewer,
    agent_of,
    combined,
    epoch_of,
    is_strong,
    known,
    lane_in,
    lanes_of,
    mask_of,
    with_part,
)

_FACTOR = 0x9E3779B97F4A7C15


def is_set(record: Value) -> Value:
    """Whether a record names a set."""
    several: Value = agent_of(record) == layout.SET
    return several


def cell_at(code: Code, sets: Raw, number: Value) -> Raw:
    """The memory of a set."""
    b = code.builder
    step = convert(number, I64) * layout.CELL_BYTES + layout.SETS_CELLS
    return b.gep(sets, [step.raw])


def each_reader(
    code: Code, head: BlockHead, record: Value, visit: Callable[[Value], None]
) -> None:
    """Write code that runs for the record of each reader."""
    sets = head.pointer(layout.HEAD_SETS)
    several = is_set(record)
    number = code.variable(select(several, epoch_of(record), 0))
    entry = code.variable(record)
    with repeat(code) as again:
        with code.when(number.value != 0):
            cell = cell_at(code, sets, number.value)
            entry.value = field(code, cell, layout.CELL_ENTRY, I64)[0]
            number.value = field(code, cell, layout.CELL_REST, I32)[0]
        visit(entry.value)
        again(number.value != 0)


def bucket_of(entry: Value, rest: Value) -> Value:
    """Where to look for a set."""
    mixed = (entry ^ (convert(rest, I64) << 20)) * as_signed(_FACTOR, 64)
    return shift_unsigned(mixed, 64 - layout.HEADS.bit_length() + 1)


def joined(code: Code, head: BlockHead, rest: Value, entry: Value) -> Value:
    """The number of the set with one more record; 0 if there is no place for it."""
    sets = head.pointer(layout.HEAD_SETS)
    bucket = bucket_of(entry, rest)
    first = field(code, place(code, sets, layout.SETS_HEADS), 0, I32)
    found = code.variable(first[bucket])
    with repeat(code) as again:
        cell = cell_at(code, sets, found.value)
        same = (field(code, cell, layout.CELL_ENTRY, I64)[0] == entry) & (
            field(code, cell, layout.CELL_REST, I32)[0] == rest
        )
        go_on = (found.value != 0) & ~same
        with code.when(go_on):
            found.value = field(code, cell, layout.CELL_NEXT, I32)[0]
        again(go_on)
    used = field(code, sets, layout.SETS_USED, I32)
    with code.when((found.value == 0) & (used[0] < layout.CELLS - 1)):
        number = used[0] + 1
        cell = cell_at(code, sets, number)
        field(code, cell, layout.CELL_ENTRY, I64)[0] = entry
        field(code, cell, layout.CELL_REST, I32)[0] = rest
        field(code, cell, layout.CELL_NEXT, I32)[0] = first[bucket]
        first[bucket] = number
        used[0] = number
        found.value = number
    return found.value


def _entry(record: Value, lane: Value, word_lane: Value) -> Value:
    """A reader as a set keeps it: without its lane, which must be the word's."""
    lanes = lanes_of(record)
    strong = is_strong(lanes)
    free = (lanes == int(Lanes.SEVERAL)) | (lanes == int(Lanes.ANY))
    vague = select(strong, lanes.lift(int(Lanes.STRONG_ANY)), int(Lanes.ANY))
    kept = select(free | (lane == word_lane), lanes, vague)
    entry = with_part(record, layout.CLASS_AT, layout.CLASS_BITS, kept)
    return entry & as_signed(~layout.LANE_FIELD, 64)


def added(code: Code, head: BlockHead, viewer: Viewer, old: Value, new: Value) -> Value:
    """The record of the reads of a word after one more read.

    Readers that the new one knows are left out: who knows the new one knows them.
    """
    lane = lane_in(new)
    word_lane = lane_in(old)
    changes = code.variable(lane.lift(0))
    present = code.variable(lane.lift(0))
    result = code.variable(new)

    def look(entry: Value) -> None:
        there = (((entry ^ new) & _SAME) == 0) & _includes(entry, new, word_lane)
        present.value = present.value | _bit(there)
        gone = known(viewer, entry, word_lane, mask_of(entry))
        changes.value = changes.value | _bit(gone | (agent_of(entry) == agent_of(new)))

    with code.when(mask_of(old) != 0):
        each_reader(code, head, old, look)
        with code.when(present.value != 0):
            result.value = old
        with code.when((present.value == 0) & (changes.value == 0)):
            first = _entry(old, word_lane, word_lane)
            single = code.variable(epoch_of(old))
            with code.when(~is_set(old)):
                single.value = joined(code, head, lane.lift(0), first)
            _grow(code, head, single.value, mask_of(old), new, word_lane, result)
        with code.when((present.value == 0) & (changes.value != 0)):
            _rebuild(code, head, viewer, old, new, result)
    return result.value


_SAME = layout.EPOCH_FIELD | layout.AGENT_FIELD


def _includes(entry: Value, new: Value, word_lane: Value) -> Value:
    """Whether a reader in a set covers a new read of the same epoch."""
    there, here = lanes_of(entry), lanes_of(new)
    alike = (there == here) & (word_lane == lane_in(new))
    several = (there == int(Lanes.SEVERAL)) & (here <= int(Lanes.SEVERAL))
    anyone = (there == int(Lanes.ANY)) & ~is_strong(here)
    covers: Value = (mask_of(new) & ~mask_of(entry)) == 0
    found: Value = several | alike | anyone
    return covers & found


def _bit(condition: Value) -> Value:
    return convert(condition, I32, signed=False)


def _grow(
    code: Code,
    head: BlockHead,
    rest: Value,
    mask: Value,
    new: Value,
    lane: Value,
    result: Variable,
) -> None:
    """The result is a set with one more reader."""
    number = joined(code, head, rest, _entry(new, lane_in(new), lane))
    number = select(number != 0, number, rest)
    grown = _set_record(number, lane, mask | mask_of(new))
    result.value = select(number != 0, grown, new)


def _rebuild(
    code: Code,
    head: BlockHead,
    viewer: Viewer,
    old: Value,
    new: Value,
    result: Variable,
) -> None:
    """The result is a set without readers that are known, and with one more."""
    word_lane = lane_in(old)
    mine = code.variable(new)
    rest = code.variable(word_lane.lift(0))
    mask = code.variable(word_lane.lift(0))

    def visit(entry: Value) -> None:
        unknown = ~known(viewer, entry, word_lane, mask_of(entry))
        same = agent_of(entry) == agent_of(new)
        with code.when(same):
            at = with_part(entry, layout.LANE_AT, layout.LANE_BITS, word_lane)
            mine.value = _together(viewer, at, mine.value, unknown)
        with code.when(unknown & ~same):
            kept = _entry(entry, word_lane, word_lane)
            found = joined(code, head, rest.value, kept)
            rest.value = select(found != 0, found, rest.value)
            mask.value = mask.value | mask_of(entry)

    each_reader(code, head, old, visit)
    result.value = mine.value
    with code.when(rest.value != 0):
        _grow(code, head, rest.value, mask.value, mine.value, word_lane, result)


def _together(viewer: Viewer, old: Value, new: Value, unknown: Value) -> Value:
    """One record for two reads of one agent."""
    union = new | (old & layout.MASK_FIELD)
    covers = (mask_of(old) & ~mask_of(new)) == 0
    now = epoch_of(old) == epoch_of(new)
    # A later piece of work of an agent that is not a warp ends later.
    earlier = with_part(union, layout.EPOCH_AT, layout.EPOCH_BITS, epoch_of(old))
    work = select(now, union, select(covers, new, earlier))
    # A vague record may be about the same lane.
    base = viewer.plane.of(agent_of(old))[0]
    anyone = (lanes_of(old) == int(Lanes.ANY)) | (
        lanes_of(old) == int(Lanes.STRONG_ANY)
    )
    vague = anyone & (epoch_of(old) >= base)
    own = ((old ^ new) & (layout.LANE_FIELD | layout.CLASS_FIELD)) == 0
    lanes = select(
        unknown | vague,
        combined(old, new, lane_in(old)),
        select(now & own, union, new),
    )
    return select(viewer.agent < 0, work, lanes)


def _added(
    code: Code, head: Raw, row: Raw, agent: Value, own: Value, old: Value, new: Value
) -> Value:
    top = BlockHead(code, head)
    viewer = Viewer(Plane(field(code, row, 0, I32), top.row), agent, own)
    return added(code, top, viewer, old, new)


ADDED = routine("watch.added", _added, [P, P, I32, I32, I64, I64], I64)
"""The record of reads after one more: head, row, agent, own lane, old, new."""


def call_added(
    code: Code, head: BlockHead, viewer: Viewer, old: Value, new: Value
) -> Value:
    """The record of reads after one more; :data:`ADDED` must be linked."""
    b = code.builder
    function = b.module.globals.get(ADDED.name)
    if function is None:
        kind = ir.FunctionType(I64, [P, P, I32, I32, I64, I64])
        function = ir.Function(b.module, kind, ADDED.name)
    row = b.bitcast(viewer.plane.row.raw, P)
    given = [head.raw, row, viewer.agent.raw, viewer.own.raw, old.raw, new.raw]
    return Value(b, b.call(function, given))


def _set_record(number: Value, lane: Value, mask: Value) -> Value:
    record = convert(number, I64, signed=False) << layout.EPOCH_AT
    record = record | (layout.SET << layout.AGENT_AT)
    for value, at in ((lane, layout.LANE_AT), (mask, layout.MASK_AT)):
        record = record | (convert(value, I64, signed=False) << at)
    return record
