"""The observer of ``cp.async`` in machine code: copies, groups, arrivals.

The usual copy is observed here: each lane reads all of its bytes or none, and what it
reads was written before by others only if that is ordered.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Memory,
    Value,
    convert,
    larger,
    ones,
    select,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.layout import LANES, SLOT_BITS
from fragmenta.engine.simt.library import POINTER, field
from fragmenta.engine.simt.memory import has
from fragmenta.engine.simt.warps import all_lanes, first_lane, to_word
from fragmenta.engine.units.fast import layout as units
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.fast.step import declared, shift
from fragmenta.watch.races.shadow import layout, notes, shared_memory
from fragmenta.watch.races.shadow.global_check import interned
from fragmenta.watch.races.shadow.global_copies import Do, Rows, informed, rows_of
from fragmenta.watch.races.shadow.global_records import ID_SHIFT, MASK_BITS
from fragmenta.watch.races.shadow.observing import Seen, mark_used, observing
from fragmenta.watch.races.shadow.order import acquire, clear


def _all(seen: Seen, offset: int) -> Value:
    """A number of each lane."""
    b = seen.code.builder
    return all_lanes(seen.code, b.gep(seen.about, [ir.Constant(I32, offset)]), I32)


def _reading(seen: Seen) -> Value:
    """The lanes that read anything."""
    lanes: Value = to_word(_all(seen, at.TASK_COUNTED) != 0) & seen.lanes
    return lanes


class _LaneRows(Rows):
    """What the lanes read, in the shadow of global memory."""

    def watched(self) -> Value:
        """Whether the memory can be written, so that it has a shadow."""
        there: Value = (self._shadow(0) != 0) & (_reading(self.seen) != 0)
        return there

    def plain(self) -> Value:
        """Whether all of it was written before; lanes read whole words."""
        good: Value = self._shadow(2) == 0
        return good

    def _each(self, words: Do, one: Do) -> None:
        """Do something for all words."""
        code, seen = self.seen.code, self.seen
        reading, size = _reading(seen), convert(seen.word(at.TASK_LINE)[0], I64)
        with code.loop(LANES) as lane, code.when(has(reading, lane)):
            source = seen.long(at.TASK_SOURCES)[lane] & (1 << SLOT_BITS) - 1
            with code.loop(shift(size, 2)) as word:
                one(shift(source, 2) + word)

    def mine(self, lane: Value) -> Value:
        """The record of these reads, which are the warp's; 0 if there is no room."""
        here, site = self.here, self.seen.site
        number = field(here.code, here.warp, engine.WARP_NUMBER, I32)[0]
        epoch = here.clocks.epoch[0]
        found = interned(here, number, here.agent, epoch, site, site.lift(0))
        made = found << ID_SHIFT | lane << MASK_BITS | 0b1111
        return select(found == 0, found, made)


def copied(seen: Seen, clock: Memory) -> Value:
    """Look at a copy; whether that could be done here."""
    code = seen.code
    rows = _LaneRows(*rows_of(seen, clock))
    counts, size = _all(seen, at.TASK_COUNTED), seen.word(at.TASK_LINE)[0]
    partly = to_word((counts != 0) & (counts != counts.lift(size))) & seen.lanes
    done = code.variable(code.constant(0, I32))
    with code.when((partly == 0) & ~informed(seen)):
        done.value = code.constant(1, I32)
        with code.when(rows.watched()):
            done.value = code.constant(0, I32)
            with code.when(rows.plain()):
                own = rows.mine(first_lane(seen.lanes))
                good = rows.simple(own, write=False) & (own != 0)
                done.value = convert(good, I32, signed=False)
        with code.when(done.value != 0):
            _note(seen, size)
            _write(seen, size, clock)
    return done.value


def _epoch(seen: Seen) -> Value:
    """The epoch of the copies of the warp."""
    b, queue = seen.code.builder, seen.long(at.TASK_QUEUE)[0]
    record = b.inttoptr(queue.raw, POINTER)
    return field(seen.code, record, at.LANES_MARKS, I32)[0]


def _note(seen: Seen, size: Value) -> None:
    seen.long(at.TASK_OBSERVED)[0] = notes.count(seen.code, seen.head)
    place = seen.lanes.lift(-2) - seen.head.word(layout.HEAD_RANK)
    moved = ones(seen.lanes) * size
    seen.note("copy", seen.lanes, seen.clocks.copier, _epoch(seen), place, moved)


def _write(seen: Seen, size: Value, clock: Memory) -> None:
    """The copy writes shared memory."""
    code, b = seen.code, seen.code.builder
    touch = declared(b.module, shared_memory.TOUCH.name, shared_memory.TOUCHES)
    b.call(
        touch,
        [
            seen.head.raw,
            b.bitcast(_sorted_goals(seen), POINTER),
            convert(ones(seen.lanes), I64).raw,
            size.raw,
            ir.Constant(I32, layout.WRITES),
            seen.clocks.copier.raw,
            _epoch(seen).raw,
            first_lane(seen.lanes).raw,
            seen.site.raw,
            b.bitcast(clock.raw, POINTER),
            code.constant(0, I32).raw,
        ],
    )


def _sorted_goals(seen: Seen) -> Raw:
    """Where the lanes write, in the order of addresses."""
    code, b = seen.code, seen.code.builder
    every, starts = _all(seen, at.TASK_GOALS), code.array(I32, LANES)
    sorted_ = Memory(b, b.bitcast(starts, I32.as_pointer()), I32)
    with code.loop(LANES) as lane, code.when(has(seen.lanes, lane)):
        own = seen.word(at.TASK_GOALS)[lane]
        bit = own.lift(1) << convert(lane, I32)
        before = to_word(every < every.lift(own))
        before = before | (to_word(every == every.lift(own)) & (bit - 1))
        sorted_[convert(ones(before & seen.lanes), I64)] = own
    return starts


def arrives(seen: Seen, clock: Memory, mbarrier: Raw) -> None:
    """``cp.async.mbarrier.arrive``: the copies so far signal an mbarrier."""
    code, b = seen.code, seen.code.builder
    mark_used(code, seen.head, mbarrier)
    seen.long(at.TASK_OBSERVED)[0] = code.constant(-1, I64)
    queue = b.inttoptr(seen.long(at.TASK_FORM)[0].raw, POINTER)
    _know(seen, clock, field(code, queue, at.LANES_MARKS, I32)[0])


def _know(seen: Seen, row: Memory, until: Value) -> None:
    """Let a row know the copies of the warp before an epoch, and nothing else."""
    clear(seen.code, seen.head, row)
    copier = convert(seen.clocks.copier, I64)
    with seen.code.loop(seen.head.planes) as plane:
        row[plane * 3 * seen.head.row + copier] = larger(until, 0)


def _lanes(seen: Seen) -> None:
    """Lanes have waited for the groups before an epoch; or something else happens."""
    code, until = seen.code, convert(seen.number, I32)
    with code.when(until == units.NEW_EPOCH):
        state = seen.clocks.state
        field(code, state, layout.STATE_COPIES, I32)[0] = code.constant(0, I32)
        epoch = seen.word(at.LANES_MARKS)[0]
        field(code, state, layout.STATE_COPY_EPOCH, I32)[0] = epoch
    with code.when(until == units.MADE_AT_ONCE):
        _add_made(seen)
    with code.when(until >= 0):
        how = code.constant(notes.LANES_WAITED, I64)
        seen.note("waited", seen.lanes, seen.number, how)
        _waited(seen, until)


def _add_made(seen: Seen) -> None:
    """Add copies that compiled code has made at once to the open group, as one."""
    code = seen.code
    made = field(code, seen.clocks.state, layout.STATE_COPIES, I32)[0]
    with code.when(made != 0):
        open_ = seen.word(at.LANES_OPEN)
        open_[0] = open_[0] | seen.lanes
        for each in (at.LANES_UNWAITED, at.LANES_ISSUED):
            seen.word(each)[0] = seen.word(each)[0] + 1
        seen.word(at.LANES_SITE)[0] = seen.site + 1


def _waited(seen: Seen, until: Value) -> None:
    """Let lanes know the copies before an epoch.

    Copies that are made at once have a lane each.  If all lanes have waited, each knows
    its own: others' are known when they meet.
    """
    code = seen.code
    eager = field(code, seen.cluster, units.CLUSTER_SCHEDULE, I32)[0] == units.EAGER
    own = eager & ((seen.live & ~seen.lanes) == 0)
    with code.when(own):
        waited = field(code, seen.clocks.state, layout.STATE_WAITED, I32)
        waited[0] = larger(waited[0], until)
    with code.when(~own):
        row = field(code, seen.head.pointer(layout.HEAD_SPARE), 0, I32)
        _know(seen, row, until)
        acquire(seen.clocks, seen.lanes, seen.live, row)


LANES_ROUTINE = observing("watch.port.lanes", _lanes)
