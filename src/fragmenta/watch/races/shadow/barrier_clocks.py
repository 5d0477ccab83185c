"""Happens-before at barriers and fences, in compiled code.

Lanes that arrive at a barrier publish what they know to its clock; lanes that pass it
acquire that.  Each barrier has two clocks, for odd and even phases: some lanes may not
have passed one phase yet when others arrive in the next.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    compare_unsigned,
    convert,
    ones,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt import barriers, warps
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.simt.memory import lane_of
from fragmenta.engine.simt.warps import P, routine
from fragmenta.engine.units.fast import layout as units
from fragmenta.watch.races.shadow import layout, notes, problem_table
from fragmenta.watch.races.shadow.notes import NoteFields
from fragmenta.watch.races.shadow.order import (
    BlockHead,
    WarpClocks,
    acquire,
    clear,
    clock_row,
    fence_async,
    publish,
    sync_warp,
    warp_of,
)

MODES = {name: number for number, name in enumerate(barriers.MODES)}
"""The modes of a barrier as ``BAR_BEFORE`` takes them."""


def watching(code: Code, block: Raw, then: Callable[[BlockHead], None]) -> None:
    """Write code that runs only if the block is watched."""
    pointer = pointer_at(code, block, engine.BLOCK_WATCH)
    b = code.builder
    with b.if_then(b.icmp_unsigned("!=", pointer, pointer.type(None))):
        then(BlockHead(code, pointer))


def clock_at(code: Code, head: BlockHead, number: Value, phase: Value) -> Raw:
    """The clock of a phase of a barrier."""
    b = code.builder
    index = convert(number * 2 + (phase & 1), I64)
    step = index * head.long(layout.HEAD_BARRIER_BYTES)
    return b.gep(head.pointer(layout.HEAD_BARRIERS), [step.raw])


def each_barrier(
    code: Code, numbers: Raw, lanes: Value, each: Callable[[Value, Value], Value]
) -> None:
    """Write code that runs for each barrier that lanes are at.

    ``each`` gets the barrier and the lanes at it, and returns those that are done.
    """
    rest = code.variable(lanes)
    every = warps.all_lanes(code, numbers)
    with code.when(lanes != 0), warps.repeat(code) as again:
        first = convert(warps.first_lane(rest.value), I64) & (LANES - 1)
        number = lane_of(code, warps.words(code, numbers), first)
        group = warps.to_word(every == number) & rest.value
        done = code.variable(group)
        with code.when(compare_unsigned("<", number, 16)):
            done.value = each(number, group)
        rest.value = rest.value & ~done.value
        again(rest.value != 0)


def _live(code: Code, warp: Raw) -> Value:
    return field(code, warp, engine.LIVE, I32)[0]


def _note(
    code: Code,
    block: Raw,
    warp: Raw,
    clocks: WarpClocks,
    what: str,
    lanes: Value,
    site: Value,
    number: Value,
) -> None:
    """Note that lanes arrive at a barrier or pass it, which is an event, too."""
    with _noting(code, clocks.head):
        time = _time(code, block)
        time[0] = time[0] + 1
        rank = clocks.head.word(layout.HEAD_RANK)
        own = field(code, warp, engine.WARP_NUMBER, I32)[0]
        epoch = clocks.epoch[0]
        made = NoteFields(time[0], what, rank, own, lanes, site, epoch, (number,))
        notes.add(code, clocks.head, made)


def _noting(code: Code, head: BlockHead) -> AbstractContextManager[object]:
    """Write code that runs only if there is a log."""
    log, b = head.pointer(layout.HEAD_NOTES), code.builder
    there: AbstractContextManager[object] = b.if_then(
        b.icmp_unsigned("!=", log, log.type(None))
    )
    return there


def _time(code: Code, block: Raw) -> Memory:
    """How many events there were in the cluster."""
    state = pointer_at(code, block, engine.BLOCK_UNITS)
    cluster = pointer_at(code, state, units.STATE_CLUSTER)
    return field(code, cluster, units.CLUSTER_TIME, I64)


def _before(
    code: Code,
    warp: Raw,
    block: Raw,
    numbers: Raw,
    lanes: Value,
    mode: Value,
    site: Value,
) -> None:
    """Lanes that come to a barrier publish to its clock what they know."""

    def then(head: BlockHead) -> None:
        new = lanes & ~field(code, warp, engine.ARRIVED, I32)[0]
        clocks = warp_of(code, head, warp)

        def each(number: Value, group: Value) -> Value:
            _arrive(code, clocks, block, number, group, _live(code, warp), mode)
            arrives = "barrier arrive"
            _note(code, block, warp, clocks, arrives, group, site, number)
            return group

        each_barrier(code, numbers, new, each)

    watching(code, block, then)


def _arrive(
    code: Code,
    warp: WarpClocks,
    block: Raw,
    number: Value,
    lanes: Value,
    live: Value,
    mode: Value,
) -> None:
    clock = _present(code, warp, block, number)
    waiting = field(code, clock, layout.CLOCK_WAITING, I32)
    with code.when(mode != MODES["arrive"]):
        waiting[0] = waiting[0] + ones(lanes)
    publish(warp, lanes, live, clock_row(code, clock))


def _present(code: Code, warp: WarpClocks, block: Raw, number: Value) -> Raw:
    """The clock of the present phase of a barrier."""
    place = number * engine.BARRIER_BYTES + (engine.BLOCK_BARRIERS + 8)
    phase = field(code, code.builder.gep(block, [place.raw]), 0, I32)[0]
    clock = clock_at(code, warp.head, number, phase)
    about = field(code, clock, layout.CLOCK_PHASE, I32)
    waiting = field(code, clock, layout.CLOCK_WAITING, I32)
    # Lanes that still have to pass an earlier phase need its clock.
    with code.when((about[0] != phase) & (waiting[0] == 0)):
        clear(code, warp.head, clock_row(code, clock))
    about[0] = phase
    return clock


def _exit(code: Code, warp: Raw, block: Raw, lanes: Value) -> None:
    """Lanes end.  ``__syncthreads`` waits for the others until then.

    So what they did precedes what comes after the barrier, as if they arrived there.
    """

    def then(head: BlockHead) -> None:
        clocks, zero = warp_of(code, head, warp), lanes.lift(0)
        clock = _present(code, clocks, block, zero)
        publish(clocks, lanes, _live(code, warp), clock_row(code, clock))
        flag = field(code, head.raw, layout.HEAD_EXITED, I32)
        phase = field(code, clock, layout.CLOCK_PHASE, I32)[0]
        flag[0] = select(flag[0] == 0, phase + 1, flag[0])

    with code.when(lanes != 0):
        watching(code, block, then)


def _exited(code: Code, warp: Raw, block: Raw, numbers: Raw, passed: Value) -> Value:
    """The lanes that pass barrier 0, if others ended before it; once for those."""
    found = code.variable(passed.lift(0))
    first = convert(warps.first_lane(passed), I64) & (LANES - 1)
    number = lane_of(code, warps.words(code, numbers), first)
    tickets = warps.words(code, warps.place(code, warp, engine.TICKETS))
    ticket = lane_of(code, tickets, first)

    def then(head: BlockHead) -> None:
        flag = field(code, head.raw, layout.HEAD_EXITED, I32)
        ended = (flag[0] != 0) & (flag[0] <= ticket + 1)
        with code.when(ended & (passed != 0) & (number == 0)):
            flag[0] = passed.lift(0)
            found.value = passed

    watching(code, block, then)
    return found.value


def _after(code: Code, warp: Raw, block: Raw, numbers: Raw, passed: Value) -> None:
    """Lanes that pass a barrier acquire what its clock knows."""

    def then(head: BlockHead) -> None:
        clocks, live = warp_of(code, head, warp), _live(code, warp)
        tickets = warps.place(code, warp, engine.TICKETS)

        def each(number: Value, group: Value) -> Value:
            first = convert(warps.first_lane(group), I64) & (LANES - 1)
            ticket = lane_of(code, warps.words(code, tickets), first)
            same = warps.to_word(warps.all_lanes(code, tickets) == ticket) & group
            clock = clock_at(code, head, number, ticket)
            waiting = field(code, clock, layout.CLOCK_WAITING, I32)
            waiting[0] = waiting[0] - ones(same)
            acquire(clocks, same, live, clock_row(code, clock))
            with code.when((live & ~same) == 0):
                _all_met(code, clocks)
            none = same.lift(-1)
            _note(code, block, warp, clocks, "barrier", same, none, number)
            return same

        each_barrier(code, numbers, passed, each)

    watching(code, block, then)


def _all_met(code: Code, warp: WarpClocks) -> None:
    """All lanes of a warp passed together: each knows what all did before."""
    every = warp.epoch[0].lift(-1)
    sync_warp(warp, every, every)


def _warp_sync(code: Code, warp: Raw, block: Raw, passed: Value) -> None:
    """Lanes go on from ``bar.warp.sync``, or from an instruction of all lanes.

    Of the lanes that met, some may go on later.  The first that go on update the clocks
    for all of them.
    """

    def then(head: BlockHead) -> None:
        clocks, live = warp_of(code, head, warp), _live(code, warp)
        members = warps.place(code, warp, engine.MEMBERS)
        full = ((live & ~passed) == 0) & (passed != 0)
        # Lanes that go on together may have named different lanes.
        all_named = warps.to_word((warps.all_lanes(code, members) & live) == live)
        full = full & ((live & ~all_named) == 0)
        with code.when(full):
            _all_met(code, clocks)
        with code.when(~full):
            later = field(code, warp, engine.RELEASED, I32)[0]
            rest = code.variable(passed)
            with code.when(passed != 0), warps.repeat(code) as again:
                first = convert(warps.first_lane(rest.value), I64) & (LANES - 1)
                named = lane_of(code, warps.words(code, members), first)
                same = warps.to_word(warps.all_lanes(code, members) == named)
                met = named & live
                present = (passed | later) & same
                with code.when((met & ~present) == 0):
                    sync_warp(clocks, met, live)
                own = passed.lift(1) << convert(first, I32)
                rest.value = rest.value & ~(same | own)
                again(rest.value != 0)

    watching(code, block, then)


def _fence(code: Code, warp: Raw, block: Raw, lanes: Value) -> None:
    """Lanes execute ``fence.proxy.async``."""

    def then(head: BlockHead) -> None:
        fence_async(warp_of(code, head, warp), lanes, _live(code, warp))

    watching(code, block, then)


def _renew(code: Code, block: Raw) -> None:
    """A new block begins: clear its shadow and its clocks."""

    def then(head: BlockHead) -> None:
        number = field(code, block, engine.BLOCK_INDEX, I64)[0]
        field(code, head.raw, layout.HEAD_CLUSTER, I32)[0] = convert(number, I32)
        field(code, head.raw, layout.HEAD_EXITED, I32)[0] = convert(number, I32).lift(0)
        words = shift_unsigned(head.long(layout.HEAD_SIZE) + 3, 2) + layout.MARGIN
        for place in (layout.HEAD_WRITES, layout.HEAD_READS):
            _zero(code, head.pointer(place), words * 8)
        warps_, size = head.word(layout.HEAD_WARPS), head.long(layout.HEAD_STATE_BYTES)
        states = head.pointer(layout.HEAD_STATES)
        _zero(code, states, convert(warps_, I64) * size)
        with code.loop(convert(warps_, I64)) as warp:
            state = code.builder.gep(states, [(warp * size).raw])
            field(code, state, layout.STATE_EPOCH, I32)[0] = warps_.lift(1)
        step = head.long(layout.HEAD_BARRIER_BYTES)
        barriers = head.pointer(layout.HEAD_BARRIERS)
        with code.loop(32) as index:
            clock = code.builder.gep(barriers, [(index * step).raw])
            field(code, clock, layout.CLOCK_PHASE, I32)[0] = warps_.lift(-1)
            for word in layout.CLOCK_ZEROED:
                field(code, clock, word, I32)[0] = warps_.lift(0)
        sets = head.pointer(layout.HEAD_SETS)
        with code.when(field(code, sets, layout.SETS_USED, I32)[0] != 0):
            _zero(code, sets, step.lift(layout.SETS_CELLS))
        with _noting(code, head):
            _renew_notes(code, block, head, number)

    watching(code, block, then)


def _renew_notes(code: Code, block: Raw, head: BlockHead, number: Value) -> None:
    """The log is that of the last block, or of the first that has a problem."""
    log = head.pointer(layout.HEAD_NOTES)
    table = head.pointer(layout.HEAD_PROBLEMS)
    fine = field(code, table, problem_table.USED, I32)[0] == 0
    count = field(code, log, notes.COUNT, I64)
    ended = field(code, log, notes.ENDED, I64)
    _time(code, block)[0] = number.lift(0)
    with code.when(fine):
        count[0] = number.lift(0)
        field(code, log, notes.OWNER, I64)[0] = number
    with code.when(~fine & (ended[0] == 0)):
        ended[0] = count[0] + 1
        count[0] = number.lift(notes.MOST)


def _zero(code: Code, memory: Raw, size: Value) -> None:
    warps.clear_memory(code.builder, memory, size.raw)


RENEW = routine("watch.renew", _renew, [P], None)
"""Called when a block begins that runs without Python: the block."""
BAR_BEFORE = routine("watch.bar.before", _before, [P, P, P, I32, I32, I32], None)
"""Called before ``bar``: warp, block, barriers of the lanes, lanes, mode, site."""
BAR_AFTER = routine("watch.bar.after", _after, [P, P, P, I32], None)
"""Called after ``bar.sync`` and ``bar.red``, not after ``bar.arrive``: warp, block,
barriers of the lanes, lanes that passed."""
EXIT = routine("watch.exit", _exit, [P, P, I32], None)
"""Called before lanes end: warp, block, lanes."""
EXITED = routine("watch.exited", _exited, [P, P, P, I32], I32)
"""Called after a barrier of all threads: warp, block, barriers of the lanes, lanes that
passed; the lanes that report."""
WARP_SYNC = routine("watch.warp.sync", _warp_sync, [P, P, I32], None)
"""Called after ``bar.warp.sync`` and instructions of all lanes: warp, block, lanes."""
FENCE_ASYNC = routine("watch.fence.async", _fence, [P, P, I32], None)
"""Called at ``fence.proxy.async``: warp, block, lanes."""
