"""The observer of ``mbarrier.init``, ``.inval`` and their fence, in machine code.

:mod:`fragmenta.watch.races.mbarrier_clocks` is the half of this in Python.
"""

from __future__ import annotations

from fragmenta.base.jit.trace import I32, I64, Memory, Value, convert, larger, select
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.simt.warps import first_lane
from fragmenta.engine.units.fast import layout as units
from fragmenta.watch.races.shadow import layout, shared_memory
from fragmenta.watch.races.shadow.layout import LAST_EPOCH, MBARRIERS
from fragmenta.watch.races.shadow.observing import Seen, observing
from fragmenta.watch.races.shadow.order import row_now

_KIND = layout.HEAD_KINDS + 4 * layout.AGENT_KINDS.index(layout.COUNTED)


def _make(seen: Seen) -> Value:
    """Whether there are clocks for an mbarrier; the number is its place.

    Of one that is ended, whether all that waited for it are known to have done so.
    """
    code = seen.code
    answer = code.variable(code.constant(0, I32))
    ends = seen.number == units.ENDS
    with code.when(ends):
        answer.value = _may_end(seen)
    with code.when(~ends):
        answer.value = _has_clocks(seen)
    return answer.value


def _may_end(seen: Seen) -> Value:
    """Whether lanes know of the last wait of every other warp for an mbarrier."""
    code, clocks = seen.code, seen.clocks
    own = convert(field(code, seen.warp, engine.WARP_NUMBER, I32)[0], I64)
    row, first = clocks.row_of(seen.lanes), convert(clocks.agent, I64) - own
    unknown = code.variable(code.constant(0, I32))
    with code.loop(units.MBARRIER_WARPS) as number:
        waited = seen.word(units.MBARRIER_WAITED)[number]
        base, extra = (row[first + number + seen.head.row * part] for part in (0, 1))
        late = (waited > larger(base, extra)) & (number != own)
        with code.when(late):
            unknown.value = code.constant(1, I32)
    return convert(unknown.value == 0, I32, signed=False)


def _has_clocks(seen: Seen) -> Value:
    """Whether there are clocks for an mbarrier; the number is its place."""
    code, made = seen.code, seen.head.pointer(layout.HEAD_MADE)
    clocks = seen.long(units.MBARRIER_CLOCKS)
    count, room, rows = (
        field(code, made, each, I64)
        for each in (layout.MADE_COUNT, layout.MADE_ROOM, layout.MADE_ROWS)
    )
    with code.when((clocks[0] == 0) & (count[0] < room[0])):
        clocks[0] = rows[0] + count[0] * (seen.head.row_words() * 8)
        places = field(code, pointer_at(code, made, layout.MADE_PLACES), 0, I32)
        places[count[0]] = convert(seen.number, I32)
        count[0] = count[0] + 1
    return convert(clocks[0] != 0, I32, signed=False)


def _made(seen: Seen) -> None:
    """An mbarrier was made, or is no longer one."""
    code, head = seen.code, seen.head
    agent, epoch = seen.clocks.agent, seen.clocks.epoch[0]
    lane = first_lane(seen.lanes)
    for number, each in enumerate((agent, lane, epoch, seen.site)):
        seen.word(units.MBARRIER_BIRTH + 4 * number)[0] = each
    own = _attach(seen)
    seen.word(units.MBARRIER_FLAGS)[0] = lane.lift(0)
    place = seen.word(units.MBARRIER_PLACE)[0]
    seen.note("init", seen.lanes, place, seen.word(units.MBARRIER_EXPECTED)[0])
    # Nothing happens after this write: ordinary accesses collide with it.
    alive = seen.word(units.MBARRIER_ALIVE)[0] != 0
    who = select(alive, own, agent), select(alive, epoch.lift(LAST_EPOCH), epoch)
    start = place & (1 << engine.RANK_BITS) - 1
    by, kind = (*who, lane, seen.site), layout.WRITES
    row = _known(seen)
    shared_memory.touch(code, head.raw, start, lane.lift(8), kind, by, row)


def _attach(seen: Seen) -> Value:
    """Give an mbarrier its clocks and its agent."""
    code, head = seen.code, seen.head
    slot = seen.word(units.MBARRIER_SLOT)[0] & (MBARRIERS - 1)
    number = head.word(layout.HEAD_RANK) * MBARRIERS + slot
    agent = head.word(_KIND) + number
    seen.word(units.MBARRIER_AGENT)[0] = agent
    clocks = seen.long(units.MBARRIER_CLOCKS)[0]
    seen.long(units.MBARRIER_CLOCK)[0] = clocks
    seen.long(units.MBARRIER_CLOCK_LAST)[0] = clocks + head.row_words() * 4
    made = head.pointer(layout.HEAD_MADE)
    offsets = field(code, pointer_at(code, made, layout.MADE_OFFSETS), 0, I32)
    place = seen.word(units.MBARRIER_PLACE)[0] & (1 << engine.RANK_BITS) - 1
    offsets[convert(number, I64)] = place + 1
    for each in (units.MBARRIER_OBSERVED, units.MBARRIER_COPIED):
        seen.long(each)[0] = code.constant(-1, I64)
    return agent


def _known(seen: Seen) -> Memory:
    """What lanes know; also all that mbarriers did, if one was here before."""
    code, head = seen.code, seen.head
    row = field(code, head.pointer(layout.HEAD_SPARE), 0, I32)
    row_now(seen.clocks, seen.lanes, row)
    with code.when(seen.word(units.MBARRIER_AGAIN)[0] != 0):
        first = head.word(_KIND) + head.word(layout.HEAD_RANK) * MBARRIERS
        with code.loop(head.planes) as plane, code.loop(MBARRIERS) as number:
            at = plane * 3 * head.row + convert(first, I64) + number
            row[at] = code.constant(LAST_EPOCH + 1, I32)
    return row


def _fence(seen: Seen) -> Value:
    """``fence.mbarrier_init``: 0 if there is no room to note what it orders."""
    code, head, b = seen.code, seen.head, seen.code.builder
    phases = head.pointer(layout.HEAD_PHASES)
    count, room = (
        field(code, phases, each, I64)
        for each in (layout.PHASES_FENCED_COUNT, layout.PHASES_FENCED_ROOM)
    )
    fenced = field(code, pointer_at(code, phases, layout.PHASES_FENCED), 0, I64)
    state = seen.about
    made = convert(field(code, state, units.STATE_MADE_COUNT, I32)[0], I64)
    offsets = field(code, pointer_at(code, state, units.STATE_MADE), 0, I32)
    records = pointer_at(code, state, units.STATE_MBARRIERS)
    enough = count[0] + made <= room[0]
    with code.when(enough), code.loop(made) as number:
        place = convert(offsets[number], I64) * (units.MBARRIER_BYTES // 8)
        record = b.gep(records, [place.raw])
        maker = field(code, record, units.MBARRIER_BIRTH, I32)[0]
        with code.when(maker == seen.clocks.agent):
            flags = field(code, record, units.MBARRIER_FLAGS, I32)
            flags[0] = flags[0] | units.FENCED
            fenced[count[0]] = Value(b, b.ptrtoint(record, I64))
            count[0] = count[0] + 1
    return convert(enough, I32, signed=False)


ROUTINES = {
    units.PORT_MAKE: observing("watch.port.make", _make),
    units.PORT_MADE: observing("watch.port.made", _made),
    units.PORT_INIT_FENCE: observing("watch.port.init_fence", _fence),
}
"""What answers the calls of the port."""
LINKED = (shared_memory.TOUCH, *shared_memory.SUPPORT)
"""Routines that these call."""
