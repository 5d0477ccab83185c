"""Fast paths of the barrier of a cluster: arriving and waiting."""

from __future__ import annotations

from collections.abc import Callable

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    ones,
    select,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.layout import Status
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import P, routine
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.fast.step import FastStep, fast_path, note, observe
from fragmenta.engine.units.fast.tasks import call


class _WarpRecord:
    """What is known of a warp."""

    def __init__(self, code: Code, barrier: Raw, rank: Value, warp: Value) -> None:
        number = convert(rank, I64) * at.ENTRIES + convert(warp, I64)
        place = number * at.ENTRY_BYTES + at.BARRIER_WARPS
        self.at = code.builder.gep(barrier, [place.raw])
        self.code = code

    def word(self, offset: int) -> Memory:
        """A word of 32 bits."""
        return field(self.code, self.at, offset, I32)

    @property
    def phase(self) -> Memory:
        """The phase in which lanes arrived."""
        return field(self.code, self.at, at.ENTRY_PHASE, I64)


def _each_block(
    code: Code, cluster: Raw, do: Callable[[Value, Raw, Raw], None]
) -> None:
    """Do something for each block that has not ended: its rank, state and memory."""
    count = convert(field(code, cluster, layout.CLUSTER_BLOCKS, I32)[0], I64)
    peers = field(code, cluster, layout.CLUSTER_PEERS, POINTER)
    with code.loop(count) as rank:
        state = peers[rank].raw
        block = pointer_at(code, state, layout.STATE_BLOCK)
        status = field(code, block, engine.BLOCK_STATUS, I32)[0]
        with code.when(status != Status.ENDED):
            do(rank, state, block)


def _settle(code: Code, cluster: Raw) -> None:
    """Begin the next phase, if all have arrived."""
    barrier = pointer_at(code, cluster, layout.CLUSTER_BARRIER)
    arrived = field(code, barrier, at.BARRIER_ARRIVED, I32)
    threads = code.variable(code.constant(0, I32))

    def add(rank: Value, state: Raw, block: Raw) -> None:
        live = field(code, block, engine.BLOCK_LIVE, I32)[0]
        threads.value = threads.value + live

    with code.when(arrived[0] != 0):
        _each_block(code, cluster, add)
        # If fewer arrived than there are, somebody is missing.
        with code.when(arrived[0] >= threads.value):
            _settle_all(code, cluster, barrier)


def _settle_all(code: Code, cluster: Raw, barrier: Raw) -> None:
    missing = code.variable(code.constant(0, I32))
    b = code.builder

    def look(rank: Value, state: Raw, block: Raw) -> None:
        first = pointer_at(code, block, engine.BLOCK_FIRST_WARP)
        size = field(code, block, engine.BLOCK_WARP_BYTES, I64)[0]
        warps = convert(field(code, state, layout.STATE_WARPS, I32)[0], I64)
        with code.loop(warps) as number:
            warp = b.gep(first, [(number * size).raw])
            live = field(code, warp, engine.LIVE, I32)[0]
            here = _WarpRecord(code, barrier, rank, number).word(at.ENTRY_ARRIVED)[0]
            missing.value = missing.value | (live & ~here)

    _each_block(code, cluster, look)
    with code.when(missing.value == 0):
        for count in (
            field(code, barrier, at.BARRIER_PHASE, I64),
            field(code, cluster, layout.CLUSTER_CHANGES, I64),
            field(code, cluster, layout.CLUSTER_WAKES, I64),
        ):
            count[0] = count[0] + 1
        field(code, barrier, at.BARRIER_ARRIVED, I32)[0] = code.constant(0, I32)
        blocks = field(code, cluster, layout.CLUSTER_BLOCKS, I32)[0]
        with code.loop(convert(blocks, I64) * at.ENTRIES) as number:
            entry = _WarpRecord(code, barrier, number.lift(0), number)
            entry.word(at.ENTRY_ARRIVED)[0] = code.constant(0, I32)


SETTLE = routine("units.cluster.settle", _settle, [P], None)


def _here(step: FastStep) -> tuple[Raw, Memory, _WarpRecord]:
    """The barrier, its phase, and what is known of the warp."""
    code = step.code
    barrier = pointer_at(code, step.cluster, layout.CLUSTER_BARRIER)
    step.require(step.word(barrier, at.BARRIER_MIXED)[0] == 0)
    entry = _WarpRecord(code, barrier, step.rank, step.number)
    return barrier, step.long(barrier, at.BARRIER_PHASE), entry


def _arrive(step: FastStep) -> Value:
    """Arrive at the barrier."""
    barrier, phase, entry = _here(step)
    here, tickets = (entry.word(each) for each in (at.ENTRY_ARRIVED, at.ENTRY_LANES))
    step.require((here[0] & step.lanes) == 0)
    step.require((tickets[0] == 0) | (entry.phase[0] == phase[0]))
    here[0] = here[0] | step.lanes
    tickets[0] = tickets[0] | step.lanes
    entry.phase[0] = phase[0]
    count = step.word(barrier, at.BARRIER_ARRIVED)
    count[0] = count[0] + ones(step.lanes)
    step.observe(layout.PORT_ARRIVE, barrier, phase[0])
    step.note(layout.NOTE_ARRIVED, barrier, phase[0])
    step.changed()
    call(step.code, SETTLE, step.cluster)
    return step.lanes


def _wait(step: FastStep) -> Value:
    """Wait until all threads have arrived."""
    barrier, phase, entry = _here(step)
    call(step.code, SETTLE, step.cluster)
    tickets = entry.word(at.ENTRY_LANES)
    over = entry.phase[0] < phase[0]
    passed = step.code.variable(step.lanes.lift(0))
    passed.value = select(over, tickets[0] & step.lanes, 0)
    with step.code.when(passed.value != 0):
        who = step.block, step.warp, step.event, passed.value.raw
        until = entry.phase[0]
        observe(step.code, step.cluster, layout.PORT_PASS, who, barrier, until)
        note(step.code, step.cluster, layout.NOTE_PASSED, who, barrier, until)
        tickets[0] = tickets[0] & ~passed.value
        step.changed()
    return passed.value


ARRIVE = fast_path("units.cluster.arrive", _arrive)
WAIT = fast_path("units.cluster.wait", _wait)

ROUTINES = (SETTLE, ARRIVE, WAIT)
