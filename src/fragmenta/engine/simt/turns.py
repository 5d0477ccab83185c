"""The scheduler of warps that end their turns at every synchronising event.

``steps`` gives one warp of a cluster after the other a turn, up to its next event.
Which one is next is given, or a policy says it.  A warp that could not go on is not
asked again before something has happened that may let it go on.

Every turn is in the trace: the warp, and what ended its turn: the code block of an
event, or -1 less the status of the warp.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    Variable,
    convert,
    intrinsic,
    leading_zeros,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import Policy, Status
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import P, first_lane, repeat, routine

PATIENCE = 64
"""How often a warp that jumps back without an event is taken to go on."""
_FACTOR = 6364136223846793005
"""Of a linear congruential generator, whose high bits are used."""


def ones(word: Value) -> Value:
    """How many bits are set."""
    b = word.builder
    return Value(b, intrinsic(b, "llvm.ctpop.i32", I32, [word.raw]))


class _Order:
    """The record of the order of warps, while code is traced."""

    def __init__(self, code: Code, record: Raw) -> None:
        self.code, self.record = code, record
        self.warps = self.word(layout.ORDER_WARPS)[0]
        self.blocks = self.word(layout.ORDER_BLOCKS)[0]
        self.left, self.ready, self.producers, self.consumers = (
            self.word(each)
            for each in (
                layout.ORDER_LEFT,
                layout.ORDER_READY,
                layout.ORDER_PRODUCERS,
                layout.ORDER_CONSUMERS,
            )
        )
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

    def wake(self) -> None:
        """Let all warps be asked again."""
        with self.code.loop(convert(self.blocks, I64)) as rank:
            self.ready[rank] = self.left[rank]


def _steps(code: Code, record: Raw, kernel: Raw, budget: Value, quota: Value) -> None:
    """Give warps turns until all ended, none can go on, or Python has to look."""
    order = _Order(code, record)
    left = code.variable(quota)
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
        rank = chosen.value // order.warps
        own = number.lift(1) << (chosen.value - rank * order.warps)
        with code.when((order.left[convert(rank, I64)] & own) == 0):
            order.status[0] = number.lift(Status.BLOCKED)  # Python says what is wrong
            following[0] = number
            chosen.value = number.lift(-1)
    asks = ~given & (order.word(layout.ORDER_ASKS)[0] != 0)
    with code.when(asks):
        order.status[0] = number.lift(Status.SPENT)
    with code.when(~given & ~asks):
        _choose(order, chosen)
        with code.when(chosen.value < 0):
            moved = order.word(layout.ORDER_MOVED)
            stuck = moved[0] == 0
            order.status[0] = select(stuck, number.lift(Status.BLOCKED), Status.READY)
            moved[0] = number.lift(0)
            order.wake()
    return chosen


def _choose(order: _Order, chosen: Variable) -> None:
    """The warp that the policy prefers of those that can go on."""
    code, policy = order.code, order.word(layout.ORDER_POLICY)[0]
    last = order.blocks - 1
    with code.when(policy == Policy.RANDOM):
        _any(order, chosen)
    lowest = policy == Policy.YOUNGEST_WAITS
    with code.when(lowest), code.loop(convert(order.blocks, I64)) as rank:
        mask = order.ready[rank]
        with code.when((mask != 0) & (chosen.value < 0)):
            chosen.value = convert(rank, I32) * order.warps + first_lane(mask)
    highest = policy == Policy.OLDEST_WAITS
    with code.when(highest), code.loop(convert(order.blocks, I64)) as step:
        rank = last - convert(step, I32)
        mask = order.ready[convert(rank, I64)]
        with code.when((mask != 0) & (chosen.value < 0)):
            chosen.value = rank * order.warps + (31 - leading_zeros(mask))
    with code.when(~lowest & ~highest & (policy != Policy.RANDOM)):
        for kept in (True, False):
            with code.when(chosen.value < 0):
                _after_last(order, chosen, policy if kept else None)


def _after_last(order: _Order, chosen: Variable, policy: Value | None) -> None:
    """The first after the last one, in a circle, without those that a policy keeps."""
    code = order.code
    last = order.word(layout.ORDER_LAST)[0]
    rank = code.variable(last // order.warps)
    above = last.lift(-2) << (last - rank.value * order.warps)
    with code.loop(convert(order.blocks, I64) + 1) as step:
        at = convert(rank.value, I64)
        mask = order.ready[at]
        if policy is not None:
            issued = order.producers[at]
            waited = order.consumers[at] & ~issued
            kept = select(policy == Policy.PRODUCER_WAITS, issued, mask.lift(0))
            kept = select(policy == Policy.CONSUMER_WAITS, waited, kept)
            mask = mask & ~kept
        end = convert(step, I32) == order.blocks
        mask = mask & select(step == 0, above, select(end, ~above, above.lift(-1)))
        with code.when((mask != 0) & (chosen.value < 0)):
            chosen.value = rank.value * order.warps + first_lane(mask)
        after = rank.value + 1
        rank.value = select(after < order.blocks, after, after.lift(0))


def _any(order: _Order, chosen: Variable) -> None:
    """Any of those that can go on, by chance."""
    code = order.code
    seed = field(code, order.record, layout.ORDER_SEED, I64)
    seed[0] = seed[0] * _FACTOR + 1442695040888963407
    count = code.variable(chosen.value.lift(0))
    with code.loop(convert(order.blocks, I64)) as rank:
        count.value = count.value + ones(order.ready[rank])
    with code.when(count.value > 0):
        number = convert(shift_unsigned(seed[0], 33), I32)
        skip = code.variable(number % count.value)
        with code.loop(convert(order.blocks, I64)) as rank:
            mask = code.variable(order.ready[rank])
            here = ones(mask.value)
            with code.when((chosen.value < 0) & (skip.value < here)):
                with code.loop(convert(skip.value, I64)):
                    mask.value = mask.value & (mask.value - 1)
                own = first_lane(mask.value)
                chosen.value = convert(rank, I32) * order.warps + own
            skip.value = skip.value - here


def _turn(order: _Order, chosen: Value, kernel: Raw, budget: Value) -> None:
    """Let a warp run up to its next event, and see what came of it."""
    code, b = order.code, order.code.builder
    rank = chosen // order.warps
    block = order.block(rank)
    size = field(code, block, layout.BLOCK_WARP_BYTES, I64)[0]
    first = pointer_at(code, block, layout.BLOCK_FIRST_WARP)
    warp = b.gep(first, [(convert(chosen - rank * order.warps, I64) * size).raw])
    status = field(code, warp, layout.STATUS, I32)
    resumed = convert(status[0] == Status.BLOCKED, I32, signed=False)
    field(code, warp, layout.RESUMED, I32)[0] = resumed
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
    at = convert(rank, I64)
    own = rank.lift(1) << (chosen - rank * order.warps)
    on = _judge(order, chosen, at, own, status[0], kind[0])
    moved = order.word(layout.ORDER_MOVED)
    # A wait that gave up without success counts as progress of its block.
    acted = (progress[0] != 0) & ((kind[0] & layout.POLLS) == 0)
    some = acted | changed | on
    moved[0] = select(some, moved[0].lift(1), moved[0])
    with code.when(freed):
        order.ready[at] = order.left[at]
    with code.when(woken):
        order.wake()
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


def _judge(
    order: _Order, chosen: Value, rank: Value, own: Value, status: Value, kind: Value
) -> Value:
    """Note what a warp did and whether it can go on; whether others may wait for it.

    A warp whose turn is spent may be polling memory.  It is if it did nothing else that
    others may wait for; if it had no event at all, it may also be computing.
    """
    did, spends = (order.word(e) for e in (layout.ORDER_DID, layout.ORDER_SPENDS))
    at = convert(chosen, I64)
    for masks, bit in (
        (order.producers, layout.ISSUES),
        (order.consumers, layout.WAITS),
    ):
        masks[rank] = masks[rank] | select((kind & bit) != 0, own, own.lift(0))
    did[at] = did[at] | kind
    spent = status == Status.SPENT
    acted = (did[at] & layout.ACTS) != 0
    times = select(did[at] != 0, status.lift(0), spends[at] + 1)
    polls = spent & ~acted & ((did[at] != 0) | (times > PATIENCE))
    with order.code.when(spent):
        spends[at] = select(polls, times.lift(0), times)
        did[at] = times.lift(0)
    ended = status == Status.ENDED
    order.left[rank] = order.left[rank] & ~select(ended, own, own.lift(0))
    tried = (status == Status.BLOCKED) | polls | ended
    ready = order.ready[rank]
    order.ready[rank] = select(tried, ready & ~own, ready | own)
    event = (status == Status.YIELDED) & ((kind & layout.ACTS) != 0)
    on: Value = event | (spent & ~polls) | ended
    return on


STEPS = routine("steps", _steps, [P, P, I32, I32], None)
