"""The observer of bulk and tensor copies in machine code.

A copy that machine code issued is a task (:mod:`fragmenta.units.fast.task_layout`).
What its issuer knew is kept in a row for each task, until it signals an mbarrier.  The
usual copy is observed here; the others are left to Python, which gets the record:
:mod:`fragmenta.races.task_copies`.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.jit.llvm import Raw
from fragmenta.jit.trace import I32, I64, Memory, Value, convert, larger, select
from fragmenta.races.shadow import boxes, lane_copies, layout, notes, shared_memory
from fragmenta.races.shadow.changed_maps import Changed
from fragmenta.races.shadow.global_copies import informed, rows_of
from fragmenta.races.shadow.global_records import Flags
from fragmenta.races.shadow.notes import Noting
from fragmenta.races.shadow.observing import Seen, mark_used, observing
from fragmenta.races.shadow.order import acquire, clear, copy, merge, row_now
from fragmenta.simt import layout as engine
from fragmenta.simt.library import POINTER, field, pointer_at
from fragmenta.simt.warps import first_lane
from fragmenta.units.fast import layout as units
from fragmenta.units.fast import task_layout as at
from fragmenta.units.fast.groups import READ
from fragmenta.units.fast.step import shift

_ASK = ir.FunctionType(ir.VoidType(), [POINTER])
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
    """A copy of the usual kind: one box, one block, no reduction."""

    def __init__(self, seen: Seen) -> None:
        self.seen, self.clock = seen, task_row(seen)
        self.rows = rows_of(seen, self.clock)
        self.size = seen.word(at.TASK_LINES)[0] * seen.word(at.TASK_PITCH)[0]
        self.lane = first_lane(seen.lanes)
        self.rank = first_lane(seen.word(at.TASK_RANKS)[0])
        self.map = Changed(seen, seen.long(at.TASK_MAP)[0])

    def is_usual(self, kind: int) -> Value:
        """Whether the observer can look at it here."""
        seen, ranks = self.seen, self.seen.word(at.TASK_RANKS)[0]
        moved = (seen.word(at.TASK_FLAGS)[0] & ~at.TENSOR) == 0
        plain = seen.word(at.TASK_LINE)[0] == seen.word(at.TASK_PITCH)[0]
        # A swizzle exchanges units of 128 bytes: these are all there.
        whole = (seen.word(at.TASK_SWIZZLE)[0] == 0) | ((self.size & 127) == 0)
        usual = moved & plain & whole & self.map.may_use(self.clock) & ~informed(seen)
        # A map in memory that may be written is compared with its writes.
        slot = shift(self.map.address, engine.SLOT_BITS)
        usual = usual & (self.map.there | (slot < engine.FIRST_ARGUMENT))
        one = (ranks != 0) & ((ranks & (ranks - 1)) == 0)
        found: Value = usual & one & (seen.word(at.TASK_KIND)[0] == kind)
        return found

    def access(self, agent: Value, epoch: Value, *, write: bool) -> None:
        """It accesses shared memory."""
        seen, b = self.seen, self.seen.code.builder
        at_rank = convert(self.rank, I64) * layout.HEAD_BYTES
        head = b.gep(seen.head.pointer(layout.HEAD_FIRST), [at_rank.raw])
        kind = (layout.WRITES if write else layout.READS) | shared_memory.ASYNC
        start, by = seen.word(at.TASK_SHARED)[0], (agent, epoch, self.lane, seen.site)
        shared_memory.touch(seen.code, head, start, self.size, kind, by, self.clock)

    def note(self, agents: Value, epoch: Value, place: Value, moved: Value) -> None:
        """Note its issue; its number is that of the note."""
        seen = self.seen
        _number(seen)[0] = notes.count(seen.code, seen.head)
        seen.note("copy", seen.lanes, agents, epoch, place, moved)

    def load(self) -> Value:
        """Look at a load; whether that could be done here."""
        seen, code = self.seen, self.seen.code
        done = code.variable(code.constant(0, I32))
        record = _mbarrier(seen, self.rank)

        def word(offset: int) -> Memory:
            return field(code, record, offset, I32)

        phase = field(code, record, units.MBARRIER_PHASE, I64)[0]
        agent, epoch = word(units.MBARRIER_AGENT)[0], convert(phase, I32)
        fine = code.variable(code.constant(1, I32))
        with code.when(self.rows.watched()):
            good = self._checked(agent, epoch, write=False)
            fine.value = convert(good, I32, signed=False)
        with code.when(fine.value != 0):
            done.value = code.constant(1, I32)
            mark_used(code, seen.head, record)
            moved = convert(self.size, I64)
            place = word(units.MBARRIER_PLACE)[0]
            self.note(convert(agent, I64), phase, place, moved)
            copied = field(code, record, units.MBARRIER_COPIED, I64)
            copied[0] = larger(copied[0], phase)
            issuer = seen.word(at.TASK_RANK)[0] << 16 | seen.word(at.TASK_NUMBER)[0]
            word(units.MBARRIER_COPIER)[0] = issuer + 1
            word(units.MBARRIER_COPY_SITE)[0] = seen.site
            self.access(agent, epoch, write=True)
            self.map.use(agent, epoch)
            self._box()
        return done.value

    def _box(self) -> None:
        """Note which box it writes, if it has a tensor map."""
        seen, code, b = self.seen, self.seen.code, self.seen.code.builder
        form = seen.long(at.TASK_FORM)[0]
        kind = code.variable(code.constant(0, I64))
        with code.when(form != 0):
            record = b.inttoptr(form.raw, POINTER)
            kind.value = field(code, record, at.MAP_LAYOUT, I64)[0]
        at_rank = convert(self.rank, I64) * layout.HEAD_BYTES
        head = b.gep(seen.head.pointer(layout.HEAD_FIRST), [at_rank.raw])
        issuer = seen.word(at.TASK_RANK)[0] << 16 | seen.word(at.TASK_NUMBER)[0]
        words = at.TASK_SWIZZLE, at.TASK_PITCH
        boxes.written(
            code,
            head,
            seen.word(at.TASK_SHARED)[0].raw,
            self.size.raw,
            kind.value.raw,
            *(seen.word(each)[0].raw for each in words),
            seen.site.raw,
            issuer.raw,
            b.gep(seen.about, [ir.Constant(I64, at.TASK_COORDINATES)]),
        )

    def store(self) -> Value:
        """Look at a store; whether that could be done here."""
        seen, code = self.seen, self.seen.code
        done = code.variable(code.constant(0, I32))
        reads, writes = (_agent(seen, kind) for kind in _BULK)
        epoch = seen.word(at.TASK_GROUP)[0]
        fine = code.variable(code.constant(1, I32))
        watched = self.rows.watched()
        with code.when(watched):
            good = self._checked(writes, epoch, write=True)
            fine.value = convert(good, I32, signed=False)
        with code.when(fine.value != 0):
            done.value = code.constant(1, I32)
            both = convert(writes, I64) << 32 | convert(reads, I64)
            none, group = both.lift(-1), convert(epoch, I64)
            self.note(both, group, none, _moved(seen))
            self.access(reads, epoch, write=False)
            self.map.use(reads, epoch)
            with code.when(watched):
                own = self.rows.own(writes, epoch, self.lane, Flags.WRITE)
                with code.when(own != 0):
                    self.rows.written(own)
        return done.value

    def _checked(self, agent: Value, epoch: Value, *, write: bool) -> Value:
        """Whether its rows in global memory are in order."""
        code, flags = self.seen.code, Flags.WRITE if write else Flags(0)
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
    with code.when(copy.is_usual(at.LOAD) & (seen.word(at.TASK_SIGNALS)[0] != 0)):
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
    note = Noting(seen.time, "done", zero, none, zero, none, zero, (number,))
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
