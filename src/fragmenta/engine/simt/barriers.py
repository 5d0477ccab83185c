"""Barriers of a block: threads wait for one another.

Threads arrive at a barrier one by one or by whole warps.  A lane that has arrived waits
in the code block of its barrier, and polls it in every turn of its warp.

A warp can signal with ``bar.arrive``, go on, and come to the same barrier again before
all others have come to it once.  It would then be counted twice in one phase, and a
warp that is late would be left out.  By the letter, that can happen on a GPU, too.  But
the work in between takes long there, and here it may take no time.  So such a warp lets
the others have a turn first, unless turns end at every event: these show what happens.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Trace,
    Value,
    compare_unsigned,
    convert,
    intrinsic,
    select,
)
from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.emitter import Writer, handles
from fragmenta.engine.simt.events import event, go_on
from fragmenta.engine.simt.layout import LANES, Fault
from fragmenta.engine.simt.library import field
from fragmenta.engine.simt.memory import fault, has, lane_of
from fragmenta.engine.simt.synchronising import outsiders
from fragmenta.engine.simt.warps import P, routine
from fragmenta.ptx.families import BARRIERS
from fragmenta.ptx.module import Immediate, Instruction, Operand

MODES = ("sync", "arrive", "red")
_VOTES = ("popc", "and", "or")
PATIENCE = 64
"""For how many turns a warp lets others come to a barrier first."""


@handles(*BARRIERS)
def bar(writer: Writer, instruction: Instruction) -> None:
    """A barrier of a block, or of the lanes of a warp."""
    words = instruction.qualifiers
    if "cluster" in words:
        event(writer, instruction)
        return
    if "warp" in words:
        outsiders(writer, instruction.operands[0])
        members = writer.pointer(instruction.operands[0], "b32")
        lanes = f"i32 {writer.lanes()}"
        given = "ptr %warp", f"ptr {members}", lanes
        passed = writer.call(SYNC_WARP, *given, returns="i32")
        writer.probes.warp_barrier_passed(writer, passed)
        go_on(writer, passed)
        return
    mode = next((word for word in words if word in MODES), "sync")
    operands = list(instruction.operands)
    result = operands.pop(0) if instruction.votes else None
    votes = _word(writer, operands.pop()) if instruction.votes else "0"
    number = writer.pointer(operands[0], "b32")
    count = operands[1] if len(operands) > 1 else Immediate(0, "int", 0)
    if len(operands) > 1 and not writer.mode.stepped:
        here = "ptr %warp", "ptr %block", f"ptr {number}", f"i32 {writer.lanes()}"
        go_on(writer, writer.call(GIVE_WAY, *here, returns="i32"))
    if len(operands) > 1:
        writer.probes.named_barrier(writer, number, writer.pointer(count, "b32"))
    else:
        writer.probes.whole_barrier(writer, number)
    writer.probes.barrier_arrives(writer, number, mode)
    passed = writer.call(
        BARRIER[mode],
        "ptr %warp",
        "ptr %block",
        f"ptr {number}",
        f"ptr {writer.pointer(count, 'b32')}",
        f"i32 {votes}",
        f"i32 {writer.lanes()}",
        f"i32 {writer.site()}",
        returns="i32",
    )
    if mode != "arrive":
        writer.probes.barrier_passed(writer, number, passed, len(operands) == 1)
    if result is not None:
        kind = "u32" if "popc" in words else "pred"
        which = next(i for i, word in enumerate(_VOTES) if word in words)
        goal = writer.pointer(result, kind, result=True)
        given = f"ptr {goal}", "ptr %block", f"ptr {number}"
        writer.call(VOTED[kind], *given, f"i32 {which}", f"i32 {passed}")
    go_on(writer, passed)


def _word(writer: Writer, operand: Operand) -> str:
    if isinstance(operand, Immediate):
        return "-1" if operand.value else "0"
    return writer.load("i32", writer.pointer(operand, "pred"), 0)


# ── routines ────────────────────────────────────────────────────────────────


def _count(word: Value) -> Value:
    b = word.builder
    return Value(b, intrinsic(b, "llvm.ctpop.i32", I32, [word.raw]))


def _barrier(mode: str) -> Trace:
    """The lanes that may go on.  Lanes may be at different barriers."""

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        numbers: Raw,
        counts: Raw,
        votes: Value,
        lanes: Value,
        site: Value,
    ) -> Value:
        passed, rest = code.variable(lanes.lift(0)), code.variable(lanes)
        every = warps.all_lanes(code, numbers)
        with warps.repeat(code) as again:
            first = convert(warps.first_lane(rest.value), I64) & (LANES - 1)
            number = lane_of(code, warps.words(code, numbers), first)
            expected = lane_of(code, warps.words(code, counts), first)
            group = warps.to_word(every == number) & rest.value
            known = compare_unsigned("<", number, 16)
            with code.when((group != 0) & known):
                passed.value = passed.value | _arrive(
                    code, mode, warp, block, number, expected, votes, group
                )
                rest.value = rest.value & ~group
            with code.when((group != 0) & ~known):
                fault(code, warp, Fault.BARRIER, site, first, convert(number, I64), 0)
                rest.value = rest.value.lift(0)
            again(rest.value != 0)
        return passed.value

    return trace


class _State:
    """The words of a barrier, by their places in it."""

    def __init__(self, code: Code, block: Raw, number: Value) -> None:
        b = code.builder
        step = (number * layout.BARRIER_BYTES) + layout.BLOCK_BARRIERS
        words = warps.words(code, b.gep(block, [step.raw]))
        self._builder = b
        self._places = [b.gep(words, [ir.Constant(I32, i)]) for i in range(8)]

    def __getitem__(self, index: int) -> Value:
        return Value(self._builder, self._builder.load(self._places[index]))

    def __setitem__(self, index: int, value: Value) -> None:
        self._builder.store(value.raw, self._places[index])


ROUNDED, EXACT, PHASE, YES, POPC, ALL, ANY, VOTERS = range(8)
"""What the words of a barrier are; see ``layout.BARRIER_BYTES``."""


def _arrive(
    code: Code,
    mode: str,
    warp: Raw,
    block: Raw,
    number: Value,
    expected: Value,
    votes: Value,
    lanes: Value,
) -> Value:
    """Lanes arrive at a barrier, or poll it; the result is those that may go on."""
    state = _State(code, block, number)
    flags = field(code, warp, layout.ARRIVED, I32)
    tickets = warps.place(code, warp, layout.TICKETS)
    progress = field(code, block, layout.BLOCK_PROGRESS, I32)
    new = lanes & ~flags[0]
    with code.when(new != 0):
        _add(code, state, warp, number, new, votes)
        before = warps.all_lanes(code, tickets)
        ticket = before.lift(state[PHASE])
        warps.put_lanes(code, tickets, select(warps.to_lanes(new), ticket, before))
        flags[0] = flags[0] | new
        signalled = field(code, warp, layout.SIGNALLED, I32)
        signals = mode == "arrive"
        signalled[0] = signalled[0] | new if signals else signalled[0] & ~new
        progress[0] = lanes.lift(1)
        field(code, warp, layout.HELD, I32)[0] = lanes.lift(0)
    live = field(code, block, layout.BLOCK_LIVE, I32)[0]
    full = select(expected == 0, state[EXACT] >= live, state[ROUNDED] >= expected)
    mine = warps.all_lanes(code, tickets)
    waits = warps.to_word(mine == state[PHASE]) & lanes
    with code.when((waits != 0) & full):
        state[POPC] = state[YES]
        state[ALL] = convert(state[YES] == state[VOTERS], I32, signed=False)
        state[ANY] = convert(state[YES] != 0, I32, signed=False)
        for index in (ROUNDED, EXACT, YES, VOTERS):
            state[index] = lanes.lift(0)
        state[PHASE] = state[PHASE] + 1
        wakes = field(code, block, layout.BLOCK_WAKES, I32)
        wakes[0] = wakes[0] + 1
    passed = warps.to_word(mine != state[PHASE]) & lanes
    passed = lanes if mode == "arrive" else passed
    flags[0] = flags[0] & ~passed
    progress[0] = select(passed != 0, progress[0].lift(1), progress[0])
    waiting = field(code, warp, layout.WAITING, I32)
    waiting[0] = waiting[0] | (lanes & ~passed)
    return passed


def _add(
    code: Code, state: _State, warp: Raw, number: Value, new: Value, votes: Value
) -> None:
    """Count lanes that arrive.

    If a barrier expects a number of threads, a warp counts as 32, however many of its
    lanes have not ended.
    """
    at = warps.place(code, warp, layout.BARRIER)
    before = warps.all_lanes(code, at)
    named = select(warps.to_lanes(new), before.lift(number), before)
    warps.put_lanes(code, at, named)
    live = field(code, warp, layout.LIVE, I32)[0]
    arrived = field(code, warp, layout.ARRIVED, I32)[0] | new
    here = warps.to_word(named == number) & arrived
    missing = select(here == live, LANES - _count(live), live.lift(0))
    state[ROUNDED] = state[ROUNDED] + _count(new) + missing
    state[EXACT] = state[EXACT] + _count(new)
    state[YES] = state[YES] + _count(votes & new)
    state[VOTERS] = state[VOTERS] + _count(new)


def _give_way(code: Code, warp: Raw, block: Raw, numbers: Raw, lanes: Value) -> Value:
    """The lanes, or 0 if they would be counted twice and let others come first."""
    passed = code.variable(lanes)
    arrived = field(code, warp, layout.ARRIVED, I32)[0]
    new = lanes & ~arrived & field(code, warp, layout.SIGNALLED, I32)[0]
    with code.when(new != 0):
        first = convert(warps.first_lane(new), I64) & (LANES - 1)
        number = lane_of(code, warps.words(code, numbers), first) & 15
        phase = _State(code, block, number)[PHASE]
        at, tickets = (
            warps.all_lanes(code, warps.place(code, warp, each))
            for each in (layout.BARRIER, layout.TICKETS)
        )
        twice = warps.to_word(at == number) & warps.to_word(tickets == phase) & new
        with code.when(twice != 0):
            own = field(code, warp, layout.WARP_NUMBER, I32)[0]
            held = field(code, warp, layout.HELD, I32)
            never = code.constant(0, I32) != 0
            late = warps.others(code, block, own, never) != 0
            budget = field(code, warp, layout.BUDGET, I32)
            asked = (held[0] != 0) & (budget[0] == 0)  # in this turn
            waits = asked | (held[0] == 0) | ((held[0] < PATIENCE) & late)
            held[0] = select(waits & ~asked, held[0] + 1, held[0])
            with code.when(waits):
                budget[0] = lanes.lift(0)
                waiting = field(code, warp, layout.WAITING, I32)
                waiting[0] = waiting[0] | lanes
                field(code, block, layout.BLOCK_PROGRESS, I32)[0] = lanes.lift(1)
                passed.value = lanes.lift(0)
    return passed.value


def _voted(kind: str) -> Trace:
    """The result of a vote, for the lanes that may go on."""

    def trace(
        code: Code, d: Raw, block: Raw, numbers: Raw, which: Value, lanes: Value
    ) -> None:
        b = code.builder
        first = convert(warps.first_lane(lanes), I64) & (LANES - 1)
        number = lane_of(code, warps.words(code, numbers), first) & 15
        step = (number * layout.BARRIER_BYTES) + layout.BLOCK_BARRIERS
        words = warps.words(code, b.gep(block, [step.raw]))
        value = Value(b, b.load(b.gep(words, [(which + POPC).raw])))
        if kind == "u32":
            before = warps.all_lanes(code, d)
            chosen = select(warps.to_lanes(lanes), before.lift(value), before)
            warps.put_lanes(code, d, chosen)
            return
        word = field(code, d, 0, I32)
        word[0] = select(value != 0, word[0] | lanes, word[0] & ~lanes)

    return trace


def _sync_warp(code: Code, warp: Raw, members: Raw, lanes: Value) -> Value:
    """The lanes that may go on from ``bar.warp.sync``.

    Lanes wait for those that they name to come to any ``bar.warp.sync`` with the same
    names, in whichever branch it is.
    """
    live = field(code, warp, layout.LIVE, I32)[0]
    waiting = field(code, warp, layout.WAITING, I32)
    synced = field(code, warp, layout.SYNCED, I32)
    released = field(code, warp, layout.RELEASED, I32)
    free = released[0] & lanes
    new = lanes & ~free
    at = warps.place(code, warp, layout.MEMBERS)
    named = select(
        warps.to_lanes(new), warps.all_lanes(code, members), warps.all_lanes(code, at)
    )
    warps.put_lanes(code, at, named)
    synced[0] = synced[0] | new
    words, met = warps.words(code, at), code.variable(lanes.lift(0))
    with code.loop(LANES) as lane, code.when(has(new, lane)):
        wanted = lane_of(code, words, lane)
        same = warps.to_word(named == wanted) & synced[0]
        own = lanes.lift(1) << convert(lane, I32)
        with code.when((wanted & live & ~same) == 0):
            met.value = met.value | (same & wanted) | own
    passed = free | (met.value & lanes)
    synced[0] = synced[0] & ~met.value
    released[0] = (released[0] & ~lanes) | (met.value & ~lanes)
    waiting[0] = (waiting[0] | (lanes & ~passed)) & ~released[0]
    return passed


SYNC_WARP = routine("bar.warp.sync", _sync_warp, [P, P, I32], I32)
BARRIER = {
    mode: routine(f"bar.{mode}", _barrier(mode), [P, P, P, P, I32, I32, I32], I32)
    for mode in MODES
}
GIVE_WAY = routine("bar.give_way", _give_way, [P, P, P, I32], I32)
VOTED = {
    kind: routine(f"voted.{kind}", _voted(kind), [P, P, P, I32, I32], None)
    for kind in ("u32", "pred")
}
