"""The observer of bulk and tensor copies in machine code.

A copy that machine code issued is a task
(:mod:`fragmenta.engine.units.fast.task_layout`). What its issuer knew is kept in a row
for each task, until it signals an mbarrier.  The usual copy is observed here; the
others are left to Python, which gets the record:
:mod:`fragmenta.engine.units.task_copies`.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I1,
    I32,
    I64,
    LANES,
    Memory,
    Value,
    any_lane,
    convert,
    larger,
    ones,
    select,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import first_lane
from fragmenta.engine.units.fast import layout as units
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.fast.groups import READ
from fragmenta.engine.units.fast.step import shift
from fragmenta.engine.units.fast.tasks import each_rank
from fragmenta.watch.races.shadow import (
    boxes,
    lane_copies,
    layout,
    notes,
    shared_memory,
)
from fragmenta.watch.races.shadow.changed_maps import Changed
from fragmenta.watch.races.shadow.global_copies import informed, map_of, rows_of
from fragmenta.watch.races.shadow.global_records import Flags
from fragmenta.watch.races.shadow.layout import MBARRIERS
from fragmenta.watch.races.shadow.notes import NoteFields
from fragmenta.watch.races.shadow.observing import Seen, mark_used, observing
from fragmenta.watch.races.shadow.order import (
    BlockHead,
    acquire,
    clear,
    copy,
    merge,
    row_now,
)
from fragmenta.watch.races.shadow.shared_check import shadow

_ASK = ir.FunctionType(ir.VoidType(), [POINTER])
_STORES = Flags.WRITE | Flags.ASYNC
_BULK = [layout.AGENT_KINDS.index(each) for each in ("bulk-read", "bulk-write")]


def task_row(seen: Seen) -> Memory:
    """What the issuer of a task knew."""
    b, head = seen.code.builder, seen.head
    rows = field(seen.code, head.pointer(layout.HEAD_TASKS), 0, I32)
    place = convert(seen.word(at.TASK_INDEX)[0], I64) * head.row_words()
    return Memory(b, b.gep(rows.raw, [place.raw]), I32)


def _number(seen: Seen) -> Memory:
    """The number of the note of a task."""
    return seen.long(at.TASK_OBSERVED)


class _Copy:
    """A copy of the usual kind: one box, no reduction."""

    def __init__(self, seen: Seen) -> None:
        self.seen, self.clock = seen, task_row(seen)
        self.rows = rows_of(seen, self.clock)
        self.size = seen.word(at.TASK_LINES)[0] * seen.word(at.TASK_PITCH)[0]
        self.lane = first_lane(seen.lanes)
        self.ranks = seen.word(at.TASK_RANKS)[0]
        self.rank = first_lane(self.ranks)
        self.changed = Changed(seen, seen.long(at.TASK_MAP)[0])
        self.map = map_of(seen, self.clock)

    def is_usual(self, kind: int) -> Value:
        """Whether the observer can look at it here."""
        seen = self.seen
        moved = (seen.word(at.TASK_FLAGS)[0] & ~at.TENSOR) == 0
        plain = seen.word(at.TASK_LINE)[0] == seen.word(at.TASK_PITCH)[0]
        # A swizzle exchanges units of 128 bytes: these are all there.
        whole = (seen.word(at.TASK_SWIZZLE)[0] == 0) | ((self.size & 127) == 0)
        usual = moved & plain & whole & self.changed.may_use(self.clock)
        usual = usual & ~informed(seen) & (self.ranks != 0)
        found: Value = usual & (seen.word(at.TASK_KIND)[0] == kind)
        return found

    # ── the tensor map ──────────────────────────────────────────────────────

    def _map_is_watched(self) -> Value:
        """Whether the map is in memory that may be written, as nobody said so far."""
        slot = shift(self.changed.address, engine.SLOT_BITS)
        return (
            ~self.changed.there & (slot >= engine.FIRST_ARGUMENT) & self.map.watched()
        )

    def _map_record(self, agent: Value, epoch: Value) -> Value:
        """The record of the read of the map; -1 if there is none, 0: Python does it.

        Python compares the first use in a launch with those of earlier launches.
        """
        code = self.seen.code
        found = code.variable(code.constant(-1, I32))
        with code.when(self._map_is_watched()):
            found.value = code.constant(0, I32)
            with code.when(self.map.plain() & self.map.only_read()):
                found.value = self.map.own(agent, epoch, self.lane, Flags(0))
        return found.value

    def _use_map(self, agent: Value, epoch: Value, record: Value) -> None:
        """It reads the map, which nobody has written so far or has changed rightly."""
        self.changed.use(agent, epoch)
        with self.seen.code.when(record > 0):
            self.map.simple(record, write=False)

    # ── shared memory ───────────────────────────────────────────────────────

    def access(self, rank: Value, by: tuple[Value, Value], *, write: bool) -> None:
        """It accesses the shared memory of a block."""
        seen = self.seen
        kind = (layout.WRITES if write else layout.READS) | shared_memory.ASYNC
        start, who = seen.word(at.TASK_SHARED)[0], (*by, self.lane, seen.site)
        head = self._head(rank)
        shared_memory.touch(seen.code, head, start, self.size, kind, who, self.clock)

    def _head(self, rank: Value) -> Raw:
        """The head of a block."""
        at_rank = convert(rank, I64) * layout.HEAD_BYTES
        first = self.seen.head.pointer(layout.HEAD_FIRST)
        return self.seen.code.builder.gep(first, [at_rank.raw])

    def note(self, agents: Value, epoch: Value, place: Value, moved: Value) -> None:
        """Note its issue; its number is that of the note."""
        seen = self.seen
        _number(seen)[0] = notes.count(seen.code, seen.head)
        seen.note("copy", seen.lanes, agents, epoch, place, moved)

    # ── loads ───────────────────────────────────────────────────────────────

    def mbarriers_are_alike(self) -> Value:
        """Whether the mbarriers of all blocks have the same slot and phase."""
        seen, code = self.seen, self.seen.code
        alike = code.variable(code.constant(1, I32))
        first = _mbarrier(seen, self.rank)

        def one(rank: Value) -> None:
            other = _mbarrier(seen, rank)
            same = code.constant(1, I1)
            for offset, of in ((units.MBARRIER_SLOT, I32), (units.MBARRIER_PHASE, I64)):
                left, right = (field(code, e, offset, of)[0] for e in (first, other))
                same = same & (left == right)
            alike.value = select(same, alike.value, 0)

        each_rank(code, self.ranks, one)
        found: Value = alike.value != 0
        return found

    def load(self) -> Value:
        """Look at a load; whether that could be done here."""
        seen, code = self.seen, self.seen.code
        done = code.variable(code.constant(0, I32))
        record = _mbarrier(seen, self.rank)
        phase = field(code, record, units.MBARRIER_PHASE, I64)[0]
        agent = field(code, record, units.MBARRIER_AGENT, I32)[0]
        epoch = convert(phase, I32)
        fine = code.variable(code.constant(1, I32))
        with code.when(self.rows.watched()):
            good = self._checked(agent, epoch, write=False)
            fine.value = convert(good, I32, signed=False)
        read = self._map_record(agent, epoch)
        with code.when((fine.value != 0) & (read != 0)):
            done.value = code.constant(1, I32)
            self._note_load(agent, phase)
            each_rank(code, self.ranks, self._write_to)
            self._use_map(agent, epoch, read)
        return done.value

    def _note_load(self, agent: Value, phase: Value) -> None:
        """Note the issue of a load; a multicast names its blocks in the upper half."""
        seen = self.seen
        several = (self.ranks & (self.ranks - 1)) != 0
        first = agent - self.rank * MBARRIERS
        mask = convert(self.ranks, I64) << 32
        agents = select(several, mask | convert(first, I64), convert(agent, I64))
        place = field(seen.code, _mbarrier(seen, self.rank), units.MBARRIER_PLACE, I32)
        moved = convert(self.size * ones(self.ranks), I64)
        self.note(agents, phase, place[0], moved)

    def _write_to(self, rank: Value) -> None:
        """A load writes to a block, whose mbarrier counts it."""
        seen, code = self.seen, self.seen.code
        record = _mbarrier(seen, rank)
        mark_used(code, seen.head, record)
        phase = field(code, record, units.MBARRIER_PHASE, I64)[0]
        copied = field(code, record, units.MBARRIER_COPIED, I64)
        copied[0] = larger(copied[0], phase)
        issuer = seen.word(at.TASK_RANK)[0] << 16 | seen.word(at.TASK_NUMBER)[0]
        field(code, record, units.MBARRIER_COPIER, I32)[0] = issuer + 1
        field(code, record, units.MBARRIER_COPY_SITE, I32)[0] = seen.site
        agent = field(code, record, units.MBARRIER_AGENT, I32)[0]
        self.access(rank, (agent, convert(phase, I32)), write=True)
        self._box(rank)

    def _box(self, rank: Value) -> None:
        """Note which box it writes, if it has a tensor map."""
        seen, code, b = self.seen, self.seen.code, self.seen.code.builder
        form = seen.long(at.TASK_FORM)[0]
        kind = code.variable(code.constant(0, I64))
        with code.when(form != 0):
            record = b.inttoptr(form.raw, POINTER)
            kind.value = field(code, record, at.MAP_LAYOUT, I64)[0]
        issuer = seen.word(at.TASK_RANK)[0] << 16 | seen.word(at.TASK_NUMBER)[0]
        words = at.TASK_SWIZZLE, at.TASK_PITCH
        boxes.written(
            code,
            self._head(rank),
            seen.word(at.TASK_SHARED)[0].raw,
            self.size.raw,
            kind.value.raw,
            *(seen.word(each)[0].raw for each in words),
            seen.site.raw,
            issuer.raw,
            b.gep(seen.about, [ir.Constant(I64, at.TASK_COORDINATES)]),
        )

    # ── stores ──────────────────────────────────────────────────────────────

    def reads_what_is_there(self) -> Value:
        """Whether all of its box is stored, or all of it was written.

        What is outside of the tensor need not be written, which Python knows.
        """
        seen, code = self.seen, self.seen.code
        whole = convert(self.size, I64) == _moved(seen)
        found = code.variable(convert(whole, I32, signed=False))
        with code.when(~whole):
            found.value = self._all_written()
        there: Value = found.value != 0
        return there

    def _all_written(self) -> Value:
        """1 if every byte of the box was written before."""
        code = self.seen.code
        writes, _ = shadow(code, BlockHead(code, self._head(self.rank)))
        start = convert(self.seen.word(at.TASK_SHARED)[0], I64)
        first, count = shift(start, 2), shift(convert(self.size, I64), 2)
        found = code.variable(code.constant(1, I32))
        with code.loop(first + count, first, LANES) as place:
            ever = writes.lanes(place) & layout.EVER_FIELD
            missing = any_lane(ever != layout.EVER_FIELD)
            found.value = select(missing, found.value.lift(0), found.value)
        return found.value

    def store(self) -> Value:
        """Look at a store; whether that could be done here."""
        seen, code = self.seen, self.seen.code
        done = code.variable(code.constant(0, I32))
        reads, writes = (_agent(seen, kind) for kind in _BULK)
        epoch = seen.word(at.TASK_GROUP)[0]
        fine = code.variable(code.constant(0, I32))
        watched = self.rows.watched()
        with code.when(self.reads_what_is_there()):
            fine.value = code.constant(1, I32)
            with code.when(watched):
                good = self._checked(writes, epoch, write=True)
                fine.value = convert(good, I32, signed=False)
        read = self._map_record(reads, epoch)
        with code.when((fine.value != 0) & (read != 0)):
            done.value = code.constant(1, I32)
            both = convert(writes, I64) << 32 | convert(reads, I64)
            none, group = both.lift(-1), convert(epoch, I64)
            self.note(both, group, none, _moved(seen))
            self.access(self.rank, (reads, epoch), write=False)
            self._use_map(reads, epoch, read)
            with code.when(watched):
                own = self.rows.own(writes, epoch, self.lane, _STORES)
                with code.when(own != 0):
                    self.rows.written(own)
        return done.value

    def _checked(self, agent: Value, epoch: Value, *, write: bool) -> Value:
        """Whether its rows in global memory are in order."""
        code, flags = self.seen.code, _STORES if write else Flags.ASYNC
        fine = code.variable(code.constant(0, I32))
        with code.when(self.rows.plain()):
            own = self.rows.own(agent, epoch, self.lane, flags)
            good = self.rows.simple(own, write=write)
            fine.value = convert(good & (own != 0), I32, signed=False)
        is_fine: Value = fine.value != 0
        return is_fine


def _moved(seen: Seen) -> Value:
    """The bytes that a store moves."""
    total = seen.long(at.TASK_ROW)[0]
    for each in range(4):
        total = total * seen.long(at.TASK_COUNTS)[each]
    return total


def _mbarrier(seen: Seen, rank: Value) -> Raw:
    """The record of the mbarrier that counts a copy to a block."""
    code, b = seen.code, seen.code.builder
    peers = field(code, seen.cluster, units.CLUSTER_PEERS, POINTER)
    records = pointer_at(code, peers[convert(rank, I64)].raw, units.STATE_MBARRIERS)
    offset = convert(seen.word(at.TASK_MBARRIER)[0], I64)
    return b.gep(records, [(offset * (units.MBARRIER_BYTES // 8)).raw])


def _copy(seen: Seen) -> None:
    """A copy is in flight: its accesses may happen at any time from now on."""
    code, b = seen.code, seen.code.builder
    row_now(seen.clocks, seen.lanes, task_row(seen))
    done = code.variable(code.constant(0, I32))
    copy = _Copy(seen)
    signals = seen.word(at.TASK_SIGNALS)[0] != 0
    with (
        code.when(copy.is_usual(at.LOAD) & signals),
        code.when(copy.mbarriers_are_alike()),
    ):
        done.value = copy.load()
    with code.when(copy.is_usual(at.STORE)):
        done.value = copy.store()
    kind = seen.word(at.TASK_KIND)[0]
    with code.when(kind == at.LANE_COPY):
        done.value = lane_copies.copied(seen, task_row(seen))
    with code.when(kind == at.ARRIVAL):
        rank = first_lane(seen.word(at.TASK_SIGNALS)[0])
        lane_copies.arrives(seen, task_row(seen), _mbarrier(seen, rank))
        done.value = code.constant(1, I32)
    with code.when(done.value == 0):
        function = seen.head.pointer(layout.HEAD_ASK_COPY)
        b.call(b.bitcast(function, _ASK.as_pointer()), [seen.about])


def _copied(seen: Seen) -> None:
    """A copy is done; what only arrives has no number."""
    none, zero = (seen.lanes.lift(number) for number in (-1, 0))
    number = _number(seen)[0]
    note = NoteFields(seen.time, "done", zero, none, zero, none, zero, (number,))
    with seen.code.when(number >= 0):
        notes.add(seen.code, seen.head, note)


def _signal(seen: Seen) -> None:
    """A copy signals an mbarrier: a wait for it acquires what the issuer knew."""
    code, b, head = seen.code, seen.code.builder, seen.head
    record = b.inttoptr(seen.number.raw, POINTER)
    known = field(code, record, units.MBARRIER_KNOWN, I32)
    where = field(code, record, units.MBARRIER_CLOCK, I64)[0]
    goal = Memory(b, b.inttoptr(where.raw, I32.as_pointer()), I32)
    first = known[0] == 0
    with code.when(first):
        copy(code, head, goal, task_row(seen))
    with code.when(~first):
        merge(code, head, goal, task_row(seen))
    known[0] = known[0].lift(1)


def _agent(seen: Seen, kind: int) -> Value:
    """The agent of the bulk copies of the warp that read, or that write."""
    head = seen.head
    number = field(seen.code, seen.warp, engine.WARP_NUMBER, I32)[0]
    count = head.word(layout.HEAD_RANK) * head.word(layout.HEAD_WARPS)
    agent: Value = head.word(layout.HEAD_KINDS + 4 * kind) + count + number
    return agent


def _group(seen: Seen) -> None:
    """Lanes have waited for all groups of bulk copies before an epoch."""
    code, head = seen.code, seen.head
    flags = field(code, seen.event, units.EVENT_FLAGS, I32)[0]
    read = (flags & READ) != 0
    until = convert(seen.number, I32)
    seen.note("waited", seen.lanes, seen.number, convert(read, I64, signed=False))
    row = field(code, head.pointer(layout.HEAD_SPARE), 0, I32)
    clear(code, head, row)
    reads, writes = (convert(_agent(seen, kind), I64) for kind in _BULK)
    with code.loop(head.planes) as plane:
        first = plane * 3 * head.row
        row[first + reads] = larger(until, 0)
        row[first + writes] = select(read, until.lift(0), larger(until, 0))
    acquire(seen.clocks, seen.lanes, seen.live, row)


ROUTINES = {
    units.PORT_COPY: observing("watch.port.copy", _copy),
    units.PORT_COPIED: observing("watch.port.copied", _copied),
    units.PORT_SIGNAL: observing("watch.port.signal", _signal),
    units.PORT_GROUP: observing("watch.port.group", _group),
    units.PORT_LANES: lane_copies.LANES_ROUTINE,
}
"""What answers the calls of the port."""
