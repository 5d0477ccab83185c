"""The scheduler of warps that end their turns at every synchronising event.

``steps`` gives one warp of a cluster after the other a turn, up to its next event.
Which one is next is given, or a policy says it.  A warp that could not go on is not
asked again before something has happened that may let it go on.

Every turn is in the trace: the warp, and what ended its turn: the code block of an
event, or -1 less the status of the warp.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.jit.llvm import Raw
from fragmenta.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    Variable,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.simt import layout
from fragmenta.simt.layout import GONE, TRIED, Policy, Status
from fragmenta.simt.library import POINTER, field, pointer_at
from fragmenta.simt.warps import P, repeat, routine

PATIENCE = 64
"""How often a warp that jumps back without an event is taken to go on."""
_HASH = 0x9E3779B97F4A7C15 - (1 << 64)


class _Order:
    """The record of the order of warps, while code is traced."""

    def __init__(self, code: Code, record: Raw) -> None:
        self.code, self.record = code, record
        self.warps = self.word(layout.ORDER_WARPS)[0]
        self.count = self.word(layout.ORDER_BLOCKS)[0] * self.warps
        self.states = self.word(layout.ORDER_STATES)
        self.status = self.word(layout.ORDER_STATUS)

    def word(self, offset: int) -> Memory:
        """A word, or the first of many."""
        return field(self.code, self.record, offset, I32)

    def total(self, offset: int) -> Memory:
        """A count outside of the record."""
        there = pointer_at(self.code, self.record, offset)
        return field(self.code, there, 0, I64)

    def block(self, rank: Value) -> Raw:
        """The block of a rank."""
        b = self.code.builder
        place = convert(rank, I64) * 8 + layout.ORDER_PEERS
        at = b.gep(self.record, [place.raw])
        return b.load(b.bitcast(at, POINTER.as_pointer()))

    def wake(self, first: Value, count: Value) -> None:
        """Let some warps that were tried be tried again."""
        with self.code.loop(convert(count, I64)) as number:
            at = convert(first, I64) + number
            tried = self.states[at] == TRIED
            self.states[at] = select(tried, first.lift(0), self.states[at])


def _steps(code: Code, record: Raw, kernel: Raw, budget: Value, quota: Value) -> None:
    """Give warps turns until all ended, none can go on, or Python has to look."""
    order = _Order(code, record)
    left = code.variable(quota)
    order.wake(quota.lift(0), order.count)
    order.word(layout.ORDER_MOVED)[0] = quota.lift(0)
    with repeat(code) as again:
        order.status[0] = quota.lift(Status.READY)
        chosen = _next(order)
        with code.when(chosen.value >= 0):
            _turn(order, chosen.value, kernel, budget)
            left.value = left.value - 1
        traced, room = (
            order.word(each)[0] for each in (layout.ORDER_TRACED, layout.ORDER_ROOM)
        )
        over = (left.value <= 0) | (traced >= room)
        over = over & (order.status[0] == Status.READY)
        order.status[0] = select(over, quota.lift(Status.SPENT), order.status[0])
        again(order.status[0] == Status.READY)


def _next(order: _Order) -> Variable:
    """The warp whose turn it is; -1 if none is."""
    code = order.code
    following = order.word(layout.ORDER_GIVEN_NEXT)
    number = following[0]
    given = number < order.word(layout.ORDER_GIVEN_COUNT)[0]
    chosen = code.variable(number.lift(-1))
    with code.when(given):
        listed = pointer_at(code, order.record, layout.ORDER_GIVEN)
        chosen.value = field(code, listed, 0, I32)[convert(number, I64)]
        following[0] = number + 1
        gone = order.states[convert(chosen.value, I64)] == GONE
        with code.when(gone):  # Python says what is wrong
            order.status[0] = number.lift(Status.BLOCKED)
            following[0] = number
            chosen.value = number.lift(-1)
    asks = ~given & (order.word(layout.ORDER_ASKS)[0] != 0)
    with code.when(asks):
        order.status[0] = number.lift(Status.SPENT)
    with code.when(~given & ~asks):
        chosen.value = _best(order)
        with code.when(chosen.value < 0):
            moved = order.word(layout.ORDER_MOVED)
            stuck = moved[0] == 0
            order.status[0] = select(stuck, number.lift(Status.BLOCKED), Status.READY)
            moved[0] = number.lift(0)
            order.wake(number.lift(0), order.count)
    return chosen


def _best(order: _Order) -> Value:
    """The warp that the policy prefers of those that can go on; -1 if none can."""
    code = order.code
    policy = order.word(layout.ORDER_POLICY)[0]
    last = order.word(layout.ORDER_LAST)[0]
    count = order.count
    seed = field(code, order.record, layout.ORDER_SEED, I64)
    seed[0] = seed[0] * 6364136223846793005 + 1442695040888963407
    roles = order.word(layout.ORDER_ROLES)
    best, least = code.variable(count.lift(-1)), code.variable(count.lift(1 << 30))
    with code.loop(convert(count, I64)) as place:
        number = convert(place, I32)
        role = roles[place]
        issues = (role & layout.ISSUES) != 0
        only_waits = (role & (layout.ISSUES | layout.WAITS)) == layout.WAITS
        kept = (policy == Policy.PRODUCER_WAITS) & issues
        kept = kept | ((policy == Policy.CONSUMER_WAITS) & only_waits)
        behind = number - last - 1
        key = select(behind < 0, behind + count, behind)
        key = select(kept, key + count, key)
        key = select(policy == Policy.OLDEST_WAITS, count - number, key)
        key = select(policy == Policy.YOUNGEST_WAITS, number, key)
        mixed = (seed[0] ^ (place * _HASH)) * _HASH
        mixed = (mixed ^ shift_unsigned(mixed, 29)) * _HASH
        random = convert(shift_unsigned(mixed, 35), I32)
        key = select(policy == Policy.RANDOM, random, key)
        with code.when((order.states[place] == 0) & (key < least.value)):
            best.value, least.value = number, key
    return best.value


def _turn(order: _Order, chosen: Value, kernel: Raw, budget: Value) -> None:
    """Let a warp run up to its next event, and see what came of it."""
    code, b = order.code, order.code.builder
    rank = chosen // order.warps
    block = order.block(rank)
    size = field(code, block, layout.BLOCK_WARP_BYTES, I64)[0]
    first = pointer_at(code, block, layout.BLOCK_FIRST_WARP)
    warp = b.gep(first, [(convert(chosen - rank * order.warps, I64) * size).raw])
    status = field(code, warp, layout.STATUS, I32)
    with code.when(status[0] != Status.YIELDED):
        field(code, warp, layout.WAITING, I32)[0] = budget.lift(0)
        field(code, warp, layout.BUDGET, I32)[0] = budget
    kind = field(code, warp, layout.CUT_KIND, I32)
    progress = field(code, block, layout.BLOCK_PROGRESS, I32)
    kind[0] = progress[0] = budget.lift(0)
    counts = (
        field(code, block, layout.BLOCK_WAKES, I32),
        order.total(layout.ORDER_WAKES),
        order.total(layout.ORDER_CHANGES),
    )
    before = [each[0] for each in counts]
    run = b.bitcast(kernel, ir.FunctionType(ir.VoidType(), [POINTER] * 2).as_pointer())
    b.call(run, [warp, block])
    freed, woken, changed = (
        now[0] != then for now, then in zip(counts, before, strict=True)
    )
    order.word(layout.ORDER_LAST)[0] = chosen
    _trace(order, chosen, status[0], field(code, warp, layout.CUT_AT, I32)[0])
    on = _judge(order, convert(chosen, I64), status[0], kind[0])
    moved = order.word(layout.ORDER_MOVED)
    some = (progress[0] != 0) | changed | on
    moved[0] = select(some, moved[0].lift(1), moved[0])
    with code.when(freed):
        order.wake(rank * order.warps, order.warps)
    with code.when(woken):
        order.wake(rank.lift(0), order.count)
    ended = field(code, block, layout.BLOCK_ALIVE, I32)[0] == 0
    ended = ended & (status[0] == Status.ENDED)
    with code.when(ended):
        order.status[0] = rank.lift(Status.SPENT)
    with code.when(status[0] == Status.FAULT):
        order.status[0] = rank.lift(Status.FAULT)


def _trace(order: _Order, chosen: Value, status: Value, event: Value) -> None:
    """Write down a turn."""
    code = order.code
    traced = order.word(layout.ORDER_TRACED)
    there = pointer_at(code, order.record, layout.ORDER_TRACE)
    entries, at = field(code, there, 0, I32), convert(traced[0], I64) * 2
    entries[at] = chosen
    entries[at + 1] = select(status == Status.YIELDED, event, -1 - status)
    traced[0] = traced[0] + 1


def _judge(order: _Order, at: Value, status: Value, kind: Value) -> Value:
    """Note what a warp did and whether it can go on; whether others may wait for it.

    A warp whose turn is spent may be polling memory.  It is if it did nothing else that
    others may wait for; if it had no event at all, it may also be computing.
    """
    roles, did, spends = (
        order.word(each)
        for each in (layout.ORDER_ROLES, layout.ORDER_DID, layout.ORDER_SPENDS)
    )
    roles[at] = roles[at] | kind
    did[at] = did[at] | kind
    spent = status == Status.SPENT
    acted = (did[at] & layout.ACTS) != 0
    times = select(did[at] != 0, status.lift(0), spends[at] + 1)
    spends[at] = select(spent, times, spends[at])
    polls = spent & ~acted & ((did[at] != 0) | (times > PATIENCE))
    spends[at] = select(polls, status.lift(0), spends[at])
    did[at] = select(spent, status.lift(0), did[at])
    tried = (status == Status.BLOCKED) | polls
    state = select(tried, status.lift(TRIED), 0)
    order.states[at] = select(status == Status.ENDED, status.lift(GONE), state)
    event = (status == Status.YIELDED) & ((kind & layout.ACTS) != 0)
    on: Value = event | (spent & ~polls) | (status == Status.ENDED)
    return on


STEPS = routine("steps", _steps, [P, P, I32, I32], None)
