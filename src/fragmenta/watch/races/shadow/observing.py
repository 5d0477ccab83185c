"""The observer in machine code: happens-before for fast paths of the units.

Each routine answers one call of the port (``PORT_...`` in
:mod:`fragmenta.engine.units.fast.layout`).  :mod:`fragmenta.watch.races.observer` does
the same in Python, with the same memory.  A routine that asks whether all is well
changes nothing: where the answer is no, Python carries out the instruction and reports
what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I8,
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    larger,
    select,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.library import Routine, field, pointer_at
from fragmenta.engine.simt.warps import P, routine
from fragmenta.engine.units.fast import layout as units
from fragmenta.watch.races.shadow import layout, notes
from fragmenta.watch.races.shadow.notes import NoteFields
from fragmenta.watch.races.shadow.order import (
    BlockHead,
    acquire,
    clear,
    copy,
    fence_async,
    merge,
    publish,
    warp_of,
)

_GIVEN = [P, P, P, I32, P, I64]


class Seen:
    """A call of the port: the instruction, the lanes, and what it is about."""

    def __init__(
        self,
        code: Code,
        block: Raw,
        warp: Raw,
        event: Raw,
        lanes: Value,
        about: Raw,
        number: Value,
    ) -> None:
        self.code, self.block, self.warp, self.event = code, block, warp, event
        self.lanes, self.about, self.number = lanes, about, number
        self.head = BlockHead(code, pointer_at(code, block, engine.BLOCK_WATCH))
        self.clocks = warp_of(code, self.head, warp)

    @property
    def live(self) -> Value:
        """The lanes of the warp that have not ended."""
        return field(self.code, self.warp, engine.LIVE, I32)[0]

    @property
    def site(self) -> Value:
        """The instruction."""
        return field(self.code, self.event, units.EVENT_SITE, I32)[0]

    @property
    def cluster(self) -> Raw:
        """The cluster."""
        state = pointer_at(self.code, self.block, engine.BLOCK_UNITS)
        return pointer_at(self.code, state, units.STATE_CLUSTER)

    @property
    def time(self) -> Value:
        """The number of the event."""
        return field(self.code, self.cluster, units.CLUSTER_TIME, I64)[0]

    def word(self, offset: int) -> Memory:
        """A word of what the call is about."""
        return field(self.code, self.about, offset, I32)

    def long(self, offset: int) -> Memory:
        """A word of 64 bits of what the call is about."""
        return field(self.code, self.about, offset, I64)

    def row(self, offset: int) -> Memory:
        """A clock that a record names."""
        return field(self.code, pointer_at(self.code, self.about, offset), 0, I32)

    def note(self, what: str, lanes: Value, *about: Value) -> None:
        """Note what the warp did."""
        rank = self.head.word(layout.HEAD_RANK)
        number = field(self.code, self.warp, engine.WARP_NUMBER, I32)[0]
        epoch = self.clocks.epoch[0]
        notes.add(
            self.code,
            self.head,
            NoteFields(self.time, what, rank, number, lanes, self.site, epoch, about),
        )


def observing(name: str, trace: Callable[[Seen], Value | None]) -> Routine:
    """A routine of the port; one that answers nothing answers 1."""

    def call(
        code: Code,
        block: Raw,
        warp: Raw,
        event: Raw,
        lanes: Value,
        about: Raw,
        number: Value,
    ) -> Value:
        answer = trace(Seen(code, block, warp, event, lanes, about, number))
        return code.constant(1, I32) if answer is None else answer

    return routine(name, call, _GIVEN, I32)


# ── mbarriers ───────────────────────────────────────────────────────────────


def _used(seen: Seen) -> Value:
    """Whether lanes know that an mbarrier was made."""
    agent, lane, epoch = (
        seen.word(units.MBARRIER_BIRTH + 4 * number)[0] for number in range(3)
    )
    public = (seen.word(units.MBARRIER_FLAGS)[0] & units.PUBLIC) != 0
    clocks, lanes = seen.clocks, seen.lanes
    mine = agent == clocks.agent
    row, at, length = clocks.row_of(lanes), convert(agent, I64), seen.head.row
    base, extra, mask = (row[at + length * part] for part in range(3))
    # What lanes did themselves they know, too.
    following = select(mine, clocks.epoch[0] + 1, 0)
    new, old = following > base, extra > base
    extra = larger(select(old, extra, 0), select(new, following, 0))
    mask = select(old, mask, 0) | select(new, lanes, 0)
    named = ((mask >> lane) & 1) != 0
    knows = (epoch < base) | ((epoch < extra) & named)
    maker = mine & (lanes == (lane.lift(1) << lane))
    return convert(public | maker | knows, I32, signed=False)


def mark_used(code: Code, head: BlockHead, record: Raw) -> None:
    """The mbarrier of this ``mbarrier.init`` is used."""
    site = convert(field(code, record, units.MBARRIER_BIRTH + 12, I32)[0], I64)
    used = field(code, head.pointer(layout.HEAD_USED), 0, I8)
    mark(code, used, site)


def mark(code: Code, marks: Memory, place: Value | int) -> None:
    """Set a byte that all threads share, once.

    A store makes the caches of all other cores fetch the line again.
    """
    with code.when(marks[place] == 0):
        marks[place] = code.constant(1, I8)


def _place(seen: Seen) -> Value:
    return seen.word(units.MBARRIER_PLACE)[0]


def _release(seen: Seen) -> None:
    """Lanes arrive at an mbarrier, whose phase is not over yet."""
    code, head, known = seen.code, seen.head, seen.word(units.MBARRIER_KNOWN)
    mark_used(code, head, seen.about)
    near = (_place(seen) >> engine.RANK_BITS) == head.word(layout.HEAD_RANK)
    publish_at(seen, seen.row(units.MBARRIER_CLOCK), known, near)
    # What lanes did before has an earlier epoch than this.
    phase = seen.long(units.MBARRIER_PHASE)[0]
    seen.note("arrive", seen.lanes, _place(seen), phase)


def publish_at(
    seen: Seen, row: Memory, known: Memory, near: Value | None = None
) -> None:
    """Lanes arrive at a barrier: add to its clock, which may hold nothing yet.

    ``near`` says that only lanes of their own block wait there.
    """
    code, head = seen.code, seen.head
    flags = field(code, seen.event, units.EVENT_FLAGS, I32)[0]
    relaxed = (flags & units.RELAXED) != 0
    with code.when(relaxed):
        _publish_fence(seen, row, known, near)
    with code.when(~relaxed):
        first = known[0] == 0
        with code.when(first):
            clear(code, head, row)
            publish(seen.clocks, seen.lanes, seen.live, row)
        with code.when(~first):
            spare = field(code, head.pointer(layout.HEAD_SPARE), 0, I32)
            clear(code, head, spare)
            publish(seen.clocks, seen.lanes, seen.live, spare)
            merge(code, head, row, spare)
        known[0] = known[0].lift(1)


def _publish_fence(seen: Seen, row: Memory, known: Memory, near: Value | None) -> None:
    """A relaxed arrival publishes what the last plain fence of the warp has kept.

    The scope of the fence has to include those who wait.
    """
    code, head, b = seen.code, seen.head, seen.code.builder
    fenced = field(code, seen.clocks.state, layout.STATE_FENCED, I32)[0]
    enough = fenced >= layout.FENCED_CLUSTER
    if near is not None:
        enough = enough | (near & (fenced != 0))
    with code.when(enough):
        number = convert(field(code, seen.warp, engine.WARP_NUMBER, I32)[0], I64)
        rows = field(code, head.pointer(layout.HEAD_FENCES), 0, I32)
        kept = b.gep(rows.raw, [(number * head.row_words()).raw])
        first = known[0] == 0
        with code.when(first):
            copy(code, head, row, Memory(b, kept, I32))
        with code.when(~first):
            merge(code, head, row, Memory(b, kept, I32))
        known[0] = known[0].lift(1)


def _acquire(seen: Seen) -> None:
    """Lanes have seen that a phase of an mbarrier is over."""
    code, head, phase = seen.code, seen.head, seen.number
    mark_used(code, head, seen.about)
    observed = seen.long(units.MBARRIER_OBSERVED)
    observed[0] = larger(observed[0], phase)
    own = convert(field(code, seen.warp, engine.WARP_NUMBER, I32)[0], I64)
    seen.word(units.MBARRIER_WAITED)[own] = seen.clocks.epoch[0] + 1
    with code.when(phase >= 0):
        row, known = seen.row(units.MBARRIER_CLOCK_LAST), units.MBARRIER_KNOWN_LAST
        with code.when(seen.word(known)[0] == 0):
            clear(code, head, row)
            seen.word(known)[0] = seen.lanes.lift(1)
        agent = convert(seen.word(units.MBARRIER_AGENT)[0], I64)
        epoch = convert(phase, I32) + 1
        with code.loop(head.planes) as plane:
            base = plane * 3 * head.row + agent
            row[base] = larger(row[base], epoch)
        acquire(seen.clocks, seen.lanes, seen.live, row)
    seen.note("wait", seen.lanes, _place(seen), phase)


def _stall(seen: Seen) -> None:
    """Lanes begin to wait for a phase."""
    seen.note("try", seen.lanes, _place(seen), seen.number)


def _phase(seen: Seen) -> None:
    """A phase of an mbarrier is over."""
    now, last = (
        seen.long(each) for each in (units.MBARRIER_CLOCK, units.MBARRIER_CLOCK_LAST)
    )
    kept = now[0]
    now[0] = last[0]
    last[0] = kept
    known = seen.word(units.MBARRIER_KNOWN)
    seen.word(units.MBARRIER_KNOWN_LAST)[0] = known[0]
    known[0] = known[0].lift(0)
    none, zero = (seen.lanes.lift(number) for number in (-1, 0))
    place, phase = _place(seen), seen.long(units.MBARRIER_PHASE)[0]
    rank = place >> engine.RANK_BITS
    notes.add(
        seen.code,
        seen.head,
        NoteFields(seen.time, "phase", rank, none, zero, none, zero, (place, phase)),
    )


# ── fences ──────────────────────────────────────────────────────────────────


def _proxy(seen: Seen) -> None:
    """Lanes execute ``fence.proxy.async``."""
    fence_async(seen.clocks, seen.lanes, seen.live)
    fenced = field(seen.code, seen.head.pointer(layout.HEAD_FENCED), 0, I8)
    mark(seen.code, fenced, 0)


ROUTINES = {
    units.PORT_USED: observing("watch.port.used", _used),
    units.PORT_RELEASE: observing("watch.port.release", _release),
    units.PORT_ACQUIRE: observing("watch.port.acquire", _acquire),
    units.PORT_STALL: observing("watch.port.stall", _stall),
    units.PORT_PHASE: observing("watch.port.phase", _phase),
    units.PORT_PROXY: observing("watch.port.proxy", _proxy),
}
"""What answers the calls of the port."""
