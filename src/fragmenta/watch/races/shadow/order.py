"""Happens-before in compiled code: the vector clocks of warps, barriers and agents.

Each warp has a clock row that holds for all of its lanes, and a second row for lanes
that learned something alone; the second row always knows at least as much as the first.
When several lanes use the second row, each of them knows what any of them learned.
That can hide a race, but it never invents one.  Lanes that met without the others know
no more of their own warp than that: a table says what each lane knows of each other
one, from then on until all lanes meet (:class:`Near`).

The detectors of shared and of global memory ask a :class:`Plane` whether an access
happened before.  :mod:`fragmenta.watch.races.order` is the half of this in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I1,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    convert,
    larger,
    select,
    smaller,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.simt.memory import has
from fragmenta.engine.simt.warps import (
    P,
    all_lanes,
    first_lane,
    place,
    put_lanes,
    routine,
    to_lanes,
    to_word,
)
from fragmenta.watch.races.shadow import layout


class BlockHead:
    """The head of a block, read by compiled code."""

    def __init__(self, code: Code, pointer: Raw) -> None:
        self.code, self.raw = code, pointer

    def word(self, offset: int) -> Value:
        """A word of 32 bits."""
        return field(self.code, self.raw, offset, I32)[0]

    def long(self, offset: int) -> Value:
        """A word of 64 bits."""
        return field(self.code, self.raw, offset, I64)[0]

    def pointer(self, offset: int) -> Raw:
        """A pointer."""
        return pointer_at(self.code, self.raw, offset)

    @property
    def row(self) -> Value:
        """The length of each array of a clock row."""
        return convert(self.word(layout.HEAD_ROW), I64)

    @property
    def planes(self) -> Value:
        """How many proxies have clocks."""
        return convert(self.word(layout.HEAD_PLANES), I64)

    def row_words(self) -> Value:
        """The words of a clock row."""
        return self.row * self.planes * 3


class Near(NamedTuple):
    """What lanes know of their own warp, if some have met without the others."""

    agent: Value
    there: Value
    """Whether that is so; otherwise the row of these lanes says it."""
    epochs: Value
    """They know what each lane did in an epoch below this."""
    common: Plane
    """What all lanes of the warp know."""


class Plane(NamedTuple):
    """What is known through one proxy: base, extra and mask for each agent."""

    row: Memory
    length: Value
    near: Near | None = None

    def of(self, agent: Value) -> tuple[Value, Value, Value]:
        """What is known of an agent: base, extra, mask."""
        at = convert(agent, I64)
        return self.row[at], self.row[at + self.length], self.row[at + self.length * 2]

    def known(self, agent: Value, epoch: Value) -> tuple[Value, Value]:
        """Whether what all lanes of an agent did in an epoch happened before.

        And, if not: of which lanes it did.
        """
        base, extra, mask = self.of(agent)
        every, lanes = epoch < base, select(epoch < extra, mask, 0)
        if self.near is not None:
            own = self.near.there & (agent == self.near.agent)
            shared, some = self.near.common.known(agent, epoch)
            met = to_word(self.near.epochs > self.near.epochs.lift(epoch))
            every, lanes = select(own, shared, every), select(own, some | met, lanes)
        return every, lanes

    def knows(self, agent: Value, lane: Value, epoch: Value) -> Value:
        """Whether what a lane of an agent did in an epoch happened before."""
        every, lanes = self.known(agent, epoch)
        known: Value = every | (((lanes >> lane) & 1) != 0)
        return known

    def knows_all(self, agent: Value, epoch: Value) -> Value:
        """Whether what all lanes of an agent did in an epoch happened before."""
        known: Value = epoch < self.row[convert(agent, I64)]
        return known


class WarpClocks(NamedTuple):
    """The clocks of a warp, read and changed by compiled code."""

    code: Code
    head: BlockHead
    state: Raw
    agent: Value

    @property
    def epoch(self) -> Memory:
        """Its present epoch."""
        return field(self.code, self.state, layout.STATE_EPOCH, I32)

    @property
    def elect(self) -> Memory:
        """The lanes that know more than the others."""
        return field(self.code, self.state, layout.STATE_ELECT, I32)

    def common(self) -> Memory:
        """The row of all lanes."""
        return field(self.code, self.state, layout.STATE_COMMON, I32)

    def elected(self) -> Memory:
        """The row of the lanes that know more."""
        b = self.code.builder
        first = self.common()
        return Memory(b, b.gep(first.raw, [self.head.row_words().raw]), I32)

    @property
    def copier(self) -> Value:
        """The agent of its ``cp.async``, if there are any."""
        return self.head.word(layout.HEAD_KINDS + 4) + self.agent

    @property
    def waited(self) -> Value:
        """Each lane has waited for its own ``cp.async`` before this epoch."""
        return field(self.code, self.state, layout.STATE_WAITED, I32)[0]

    @property
    def ignored(self) -> Value:
        """The lanes whose next read is not looked at."""
        return field(self.code, self.state, layout.STATE_IGNORED, I32)[0]

    def row_of(self, lanes: Value) -> Memory:
        """The row with all that any of these lanes knows."""
        return self._row((self.elect[0] & lanes) != 0)

    def row_of_all(self, lanes: Value) -> Memory:
        """The row with what every one of these lanes knows."""
        return self._row((lanes & ~self.elect[0]) == 0)

    def _row(self, second: Value) -> Memory:
        b = self.code.builder
        rows = self.elected().raw, self.common().raw
        return Memory(b, b.select(second.raw, *rows), I32)

    def plane_of(self, lane: Value) -> Plane:
        """What a lane knows through the generic proxy."""
        lanes = lane.lift(1) << lane
        return Plane(self.row_of(lanes), self.head.row, self.near(lanes))

    def plane_of_all(self, lanes: Value) -> Plane:
        """What every one of these lanes knows through the generic proxy."""
        return Plane(self.row_of_all(lanes), self.head.row, self.near(lanes))

    def common_plane(self) -> Plane:
        """What all lanes know through the generic proxy."""
        return Plane(self.common(), self.head.row)

    # ── lanes of the warp ───────────────────────────────────────────────────

    @property
    def apart(self) -> Memory:
        """The epoch after some lanes last met without the others."""
        return field(self.code, self.state, layout.STATE_APART, I32)

    def is_apart(self) -> Value:
        """Whether some lanes have met since all of them last did."""
        since: Value = self.apart[0] > self.common()[convert(self.agent, I64)]
        return since

    def near_row(self, lane: Value) -> Raw:
        """What a lane knows of each lane of its warp, while they are apart."""
        number = convert(self.agent - self.head.word(layout.HEAD_AGENT), I64)
        place = number * layout.NEAR_BYTES + lane * layout.NEAR_ROW
        return self.code.builder.gep(self.head.pointer(layout.HEAD_NEAR), [place.raw])

    def near(self, lanes: Value) -> Near:
        """What every one of these lanes knows of its warp."""
        code = self.code
        apart, first = self.is_apart(), convert(first_lane(lanes), I64) & 31
        epochs = code.variable(lanes.lift(0).in_all_lanes(32))
        with code.when(apart):
            epochs.value = all_lanes(code, self.near_row(first))
            with code.when((lanes & (lanes - 1)) != 0), self.each(lanes) as lane:
                row = all_lanes(code, self.near_row(lane))
                epochs.value = smaller(epochs.value, row)
        return Near(self.agent, apart, epochs.value, self.common_plane())

    @contextmanager
    def each(self, lanes: Value) -> Iterator[Value]:
        """Write code that runs for each of these lanes."""
        with self.code.loop(32) as lane, self.code.when(has(lanes, lane)):
            yield lane

    def met_apart(self, lanes: Value) -> None:
        """Some lanes meet: each knows what these knew and did; a new epoch follows."""
        code, nothing = self.code, lanes.lift(0).in_all_lanes(32)
        with code.when(~self.is_apart()):
            known = _epochs(Plane(self.elected(), self.head.row), self.agent)
            elect = self.elect[0]
            with code.loop(32) as lane:
                put_lanes(code, self.near_row(lane), select(has(elect, lane), known, 0))
        together = code.variable(nothing)
        with self.each(lanes) as lane:
            row = all_lanes(code, self.near_row(lane))
            together.value = larger(together.value, row)
        following = self.epoch[0] + 1
        row = select(to_lanes(lanes), nothing.lift(following), together.value)
        with self.each(lanes) as lane:
            put_lanes(code, self.near_row(lane), row)
        self.apart[0] = following

    def told_apart(self, lanes: Value, other: Memory) -> None:
        """Lanes acquire what a row knows of their own warp."""
        code = self.code
        with code.when(self.is_apart()):
            known = _epochs(Plane(other, self.head.row), self.agent)
            with self.each(lanes) as lane:
                row = self.near_row(lane)
                put_lanes(code, row, larger(all_lanes(code, row), known))


def _epochs(plane: Plane, agent: Value) -> Value:
    """Below which epoch each lane of an agent is known."""
    base, extra, mask = plane.of(agent)
    named = to_lanes(mask)
    return select(named, larger(base, extra).in_all_lanes(32), base.in_all_lanes(32))


def warp_at(code: Code, head: BlockHead, number: Value) -> WarpClocks:
    """The clocks of a warp of a block."""
    b = code.builder
    step = convert(number, I64) * head.long(layout.HEAD_STATE_BYTES)
    state = b.gep(head.pointer(layout.HEAD_STATES), [step.raw])
    return WarpClocks(code, head, state, head.word(layout.HEAD_AGENT) + number)


def warp_of(code: Code, head: BlockHead, warp: Raw) -> WarpClocks:
    """The clocks of the warp whose memory this is."""
    return warp_at(code, head, field(code, warp, engine.WARP_NUMBER, I32)[0])


# ── rows ────────────────────────────────────────────────────────────────────


def _merge_plane(code: Code, into: Memory, other: Memory, length: Value) -> None:
    """Join what another row knows, in one plane."""
    with code.loop(length, step=LANES) as at:
        places = at, at + length, at + length + length
        base, extra, mask = ((into.lanes(each), other.lanes(each)) for each in places)
        known = larger(*base)
        first, second = extra[0] > known, extra[1] > known
        into[places[0]] = known
        into[places[1]] = larger(
            select(first, extra[0], 0), select(second, extra[1], 0)
        )
        into[places[2]] = select(first, mask[0], 0) | select(second, mask[1], 0)


def _plane(code: Code, row: Memory, length: Value, number: int) -> Memory:
    b = code.builder
    return Memory(b, b.gep(row.raw, [(length * (3 * number)).raw]), I32)


def merge(code: Code, head: BlockHead, into: Memory, other: Memory) -> None:
    """Join what another row knows, in both planes."""
    length, b = head.row, code.builder
    with code.loop(head.planes) as plane:
        step = (plane * 3) * length
        one, two = (
            Memory(b, b.gep(each.raw, [step.raw]), I32) for each in (into, other)
        )
        _merge_plane(code, one, two, length)


def copy(code: Code, head: BlockHead, into: Memory, other: Memory) -> None:
    """Make a row equal to another."""
    with code.loop(head.row_words(), step=LANES) as at:
        into[at] = other.lanes(at)


def clear(code: Code, head: BlockHead, row: Memory) -> None:
    """Let a row know nothing."""
    with code.loop(head.row_words(), step=LANES) as at:
        into = row.lanes(at)
        row[at] = into.lift(0)


def know(
    row: Memory, length: Value, agent: Value, epoch: Value, lanes: Value, every: Value
) -> None:
    """Know the accesses of lanes of an agent below an epoch, in one plane."""
    at = convert(agent, I64)
    places = at, at + length, at + length + length
    base, extra, mask = (row[each] for each in places)
    known = select(every, larger(base, epoch), base)
    old = extra > known
    new = (epoch > known) & ~every
    row[places[0]] = known
    row[places[1]] = larger(select(old, extra, 0), select(new, epoch, 0))
    row[places[2]] = select(old, mask, 0) | select(new, lanes, 0)


# ── lanes ───────────────────────────────────────────────────────────────────


def _add_copies(warp: WarpClocks, row: Memory, lanes: Value, every: Value) -> None:
    """Add to a row the ``cp.async`` that lanes have waited for."""
    code, head = warp.code, warp.head
    with code.when(warp.waited != 0), code.loop(head.planes) as plane:
        b, step = code.builder, plane * 3 * head.row
        part = Memory(b, b.gep(row.raw, [step.raw]), I32)
        know(part, head.row, warp.copier, warp.waited, lanes, every)


def _covers(lanes: Value, live: Value) -> Value:
    """Whether all lanes that have not ended take part."""
    none_missing: Value = (live & ~lanes) == 0
    return none_missing


def publish(warp: WarpClocks, lanes: Value, live: Value, into: Memory) -> None:
    """Lanes release: add what they know and did to a row; begin a new epoch."""
    code, head = warp.code, warp.head
    merge(code, head, into, warp.row_of(lanes))
    following = warp.epoch[0] + 1
    know(into, head.row, warp.agent, following, lanes, _covers(lanes, live))
    _add_copies(warp, into, lanes, _covers(lanes, live))
    warp.epoch[0] = following


def _join(warp: WarpClocks, lanes: Value) -> Memory:
    """Let lanes use the second row."""
    code = warp.code
    with code.when(warp.elect[0] == 0):
        copy(code, warp.head, warp.elected(), warp.common())
    warp.elect[0] = warp.elect[0] | lanes
    return warp.elected()


def _settle(warp: WarpClocks, live: Value) -> None:
    """Make the second row the common one, if all lanes use it and are not apart."""
    with warp.code.when(_covers(warp.elect[0], live) & ~warp.is_apart()):
        copy(warp.code, warp.head, warp.common(), warp.elected())
        warp.elect[0] = live.lift(0)


def acquire(warp: WarpClocks, lanes: Value, live: Value, other: Memory) -> None:
    """Lanes acquire: they know what a row knows."""
    code, head = warp.code, warp.head
    full = _covers(lanes, live)
    with code.when(full):
        merge(code, head, warp.common(), other)
        with code.when(warp.elect[0] != 0):
            merge(code, head, warp.elected(), other)
    with code.when(~full & (lanes != 0)):
        warp.told_apart(lanes, other)
        merge(code, head, _join(warp, lanes), other)
        _settle(warp, live)


def row_now(warp: WarpClocks, lanes: Value, into: Memory) -> None:
    """Make a row equal to what lanes know now, their own accesses included."""
    code, never = warp.code, warp.code.constant(0, I1)
    copy(code, warp.head, into, warp.row_of(lanes))
    know(into, warp.head.row, warp.agent, warp.epoch[0] + 1, lanes, never)
    _add_copies(warp, into, lanes, never)


def sync_warp(warp: WarpClocks, lanes: Value, live: Value) -> None:
    """Lanes have met: each knows what all of them did before."""
    code, head = warp.code, warp.head
    full = _covers(lanes, live)
    following = warp.epoch[0] + 1
    with code.when(full):
        with code.when(warp.elect[0] != 0):
            copy(code, head, warp.common(), warp.elected())
            warp.elect[0] = live.lift(0)
        know(warp.common(), head.row, warp.agent, following, lanes, full)
        _add_copies(warp, warp.common(), lanes, full)
    with code.when(~full):
        warp.met_apart(lanes)
        row = _join(warp, lanes)
        know(row, head.row, warp.agent, following, lanes, full)
        _add_copies(warp, row, lanes, full)
        _settle(warp, live)
    warp.epoch[0] = following


def fence_async(warp: WarpClocks, lanes: Value, live: Value) -> None:
    """What lanes know and did is known to the async proxy, too."""
    code, head = warp.code, warp.head
    full, following = _covers(lanes, live), warp.epoch[0] + 1

    def fenced(row: Memory) -> None:
        second = _plane(code, row, head.row, 1)
        _merge_plane(code, second, row, head.row)
        know(second, head.row, warp.agent, following, lanes, full)

    with code.when((head.planes > 1) & (lanes != 0)):
        with code.when(full):
            fenced(warp.common())
            with code.when(warp.elect[0] != 0):
                fenced(warp.elected())
        with code.when(~full):
            fenced(_join(warp, lanes))
            _settle(warp, live)
        warp.epoch[0] = following


# ── routines for Python ─────────────────────────────────────────────────────


def _publish(
    code: Code, head: Raw, number: Value, lanes: Value, live: Value, into: Raw
) -> None:
    publish(_warp(code, head, number), lanes, live, field(code, into, 0, I32))


def _acquire(
    code: Code, head: Raw, number: Value, lanes: Value, live: Value, other: Raw
) -> None:
    acquire(_warp(code, head, number), lanes, live, field(code, other, 0, I32))


def _row(
    code: Code, head: Raw, number: Value, lanes: Value, live: Value, into: Raw
) -> None:
    row_now(_warp(code, head, number), lanes, field(code, into, 0, I32))


def _sync(
    code: Code, head: Raw, number: Value, lanes: Value, live: Value, unused: Raw
) -> None:
    sync_warp(_warp(code, head, number), lanes, live)


def _fence(
    code: Code, head: Raw, number: Value, lanes: Value, live: Value, unused: Raw
) -> None:
    fence_async(_warp(code, head, number), lanes, live)


def _merged(code: Code, head: Raw, into: Raw, other: Raw) -> None:
    rows = (field(code, each, 0, I32) for each in (into, other))
    merge(code, BlockHead(code, head), *rows)


def _warp(code: Code, head: Raw, number: Value) -> WarpClocks:
    return warp_at(code, BlockHead(code, head), number)


_GIVEN = [P, I32, I32, I32, P]
PUBLISH = routine("watch.publish", _publish, _GIVEN, None)
ACQUIRE = routine("watch.acquire", _acquire, _GIVEN, None)
ROW = routine("watch.row", _row, _GIVEN, None)
SYNC = routine("watch.sync", _sync, _GIVEN, None)
FENCE = routine("watch.fence", _fence, _GIVEN, None)
MERGE = routine("watch.merge", _merged, [P, P, P], None)


def clock_row(code: Code, clock: Raw) -> Memory:
    """The row of a barrier's clock."""
    return field(code, place(code, clock, layout.CLOCK_ROW), 0, I32)
