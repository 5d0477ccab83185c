"""Is an access of global memory ordered after an earlier one?

These are small functions that every routine of :mod:`global_memory` calls.  They are
compiled once, not in each of the routines.  Two accesses of one group of blocks are
ordered if the clocks of the later lane say so.  Accesses of two groups are ordered if
the later group has acquired what the earlier one released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from fragmenta.jit.trace import I32, I64, Code, Memory, Value, convert, select
from fragmenta.races.shadow import global_records
from fragmenta.races.shadow import layout as clocks
from fragmenta.races.shadow.global_records import (
    FIRST_ID,
    SEVERAL,
    SEVERAL_STRONG,
    Flags,
)
from fragmenta.simt import layout
from fragmenta.simt.library import (
    POINTER,
    Routine,
    define,
    field,
    pointer_at,
)


class Order(NamedTuple):
    """How machine code reads the clocks of a group."""

    name: str
    epoch: Callable[..., Value]
    """``(code, warp, block)``: the epoch of the warp that runs."""
    known: Callable[..., Value]
    """``(code, warp, block, agent, before, epoch, lane)``: whether a lane knows what
    lane ``before`` of an agent did in an epoch."""
    all_known: Callable[..., Value]
    """``(code, warp, block, agent, epoch)``: whether all lanes know what all did."""


# ── clocks in memory ────────────────────────────────────────────────────────


def _state(code: Code, warp: Any, block: Any) -> Any:
    """The clocks of a warp."""
    ledger = pointer_at(code, block, layout.BLOCK_GLOBAL_WATCH)
    states = pointer_at(code, ledger, global_records.STATES)
    size = field(code, ledger, global_records.STATE_BYTES, I64)[0]
    number = field(code, warp, layout.WARP_NUMBER, I32)[0]
    return code.builder.gep(states, [(convert(number, I64) * size).raw])


def _row(code: Code, block: Any) -> Value:
    """How many agents each array of a clock has room for."""
    ledger = pointer_at(code, block, layout.BLOCK_GLOBAL_WATCH)
    return convert(field(code, ledger, global_records.ROW, I32)[0], I64)


def _knows(
    clock: Memory, row: Value, agent: Value, before: Value, epoch: Value
) -> Value:
    """Whether a clock covers an access."""
    place = convert(agent, I64)
    base, extra, mask = (clock[place + row * i] for i in range(3))
    named = ((mask >> before) & 1) != 0
    known: Value = (epoch < base) | ((epoch < extra) & named)
    return known


def _present(code: Code, warp: Any, block: Any) -> Value:
    return field(code, _state(code, warp, block), clocks.STATE_EPOCH, I32)[0]


def _known(
    code: Code,
    warp: Any,
    block: Any,
    agent: Value,
    before: Value,
    epoch: Value,
    lane: Value,
) -> Value:
    state, row = _state(code, warp, block), _row(code, block)
    ledger = pointer_at(code, block, layout.BLOCK_GLOBAL_WATCH)
    size = field(code, ledger, global_records.STATE_BYTES, I64)[0]
    second = (size - clocks.STATE_COMMON) // 2
    elect = field(code, state, clocks.STATE_ELECT, I32)[0]
    elected = ((elect >> lane) & 1) != 0
    start = select(elected, second, second.lift(0)) + clocks.STATE_COMMON
    clock = field(code, code.builder.gep(state, [start.raw]), 0, I32)
    return _knows(clock, row, agent, before, epoch)


def _all_known(code: Code, warp: Any, block: Any, agent: Value, epoch: Value) -> Value:
    state = _state(code, warp, block)
    clock = field(code, state, clocks.STATE_COMMON, I32)
    known: Value = epoch < clock[convert(agent, I64)]
    return known


CLOCKS = Order("clocks", _present, _known, _all_known)
"""The clocks behind the ledger."""


# ── functions ───────────────────────────────────────────────────────────────


def functions(order: Order) -> Routine:
    """The functions, as one routine that others call."""

    def build(module: ir.Module) -> None:
        for trace, parameters in _parameters().items():

            def body(code: Code, *given: Any, trace: Any = trace) -> Value:
                result: Value = trace(code, order, *given)
                return result

            name = called(trace.__name__[1:], order)
            define(module, name, parameters, body, I32)

    return Routine(f"watch.judging.{order.name}", build)


def declare(module: ir.Module, order: Order) -> None:
    """Let the routine of a module call the functions."""
    for trace, parameters in _parameters().items():
        kind = ir.FunctionType(I32, parameters)
        ir.Function(module, kind, called(trace.__name__[1:], order))


def called(name: str, order: Order) -> str:
    """What a function is called in machine code."""
    return f"watch.{order.name}.{name}"


def _parameters() -> dict[Callable[..., Value], list[Any]]:
    """The parameters of each function, after the code and the order."""
    counts: list[tuple[Callable[..., Value], int]] = [
        (_intern, 2),
        (_ordered, 5),
        (_all_ordered, 4),
        (_second_read, 3),
        (_report, 6),
    ]
    return {
        trace: [POINTER] * 3 + [I32] * count + [I64] * (trace is _report)
        for trace, count in counts
    }


def _group(code: Code, block: Any, ledger: Any) -> Value:
    """The number of the group of a block."""
    number = convert(field(code, block, layout.BLOCK_INDEX, I64)[0], I32)
    clustered = field(code, ledger, global_records.CLUSTERED, I32)[0]
    return select(
        clustered != 0, field(code, ledger, global_records.GROUP, I32)[0], number
    )


def _agent(code: Code, warp: Any, ledger: Any) -> Value:
    first = field(code, ledger, global_records.FIRST_AGENT, I32)[0]
    return first + field(code, warp, layout.WARP_NUMBER, I32)[0]


class _Entry(NamedTuple):
    """A line of the table of accesses."""

    group: Value
    agent: Value
    flags: Value
    epoch: Value
    site: Value


def _entry_at(code: Code, ledger: Any, number: Value) -> Memory:
    b = code.builder
    table = pointer_at(code, ledger, global_records.TABLE)
    place = convert(number, I64) * global_records.ENTRY.itemsize
    return field(code, b.gep(table, [place.raw]), 0, I32)


def _entry(code: Code, ledger: Any, number: Value) -> _Entry:
    line = _entry_at(code, ledger, number)
    agent = line[1]
    return _Entry(line[0], agent & 0xFFFF, agent >> 16, line[2], line[3])


def _intern(
    code: Code,
    order: Order,
    warp: Any,
    block: Any,
    ledger: Any,
    site: Value,
    flags: Value,
) -> Value:
    """The id of an access of a warp in its present epoch; 0 if there is no room."""
    b = code.builder
    epoch = order.epoch(code, warp, block)
    group = _group(code, block, ledger)
    number = field(code, warp, layout.WARP_NUMBER, I32)[0]
    wide = convert(group, I64) << 32 | convert(epoch, I64, signed=False)
    narrow = number << 20 | site
    line = (number * 37 + site) & (global_records.CACHE_LINES - 1)
    cached = b.gep(
        ledger, [(line * global_records.CACHE_BYTES + global_records.CACHE).raw]
    )
    key = field(code, cached, 0, I64)
    rest = field(code, cached, 8, I32)
    hit = (key[0] == wide) & (rest[0] == narrow) & (rest[1] != 0)
    found = code.variable(rest[1])
    with code.when(~hit):
        found.value = epoch.lift(0)
        following = b.bitcast(
            pointer_at(code, ledger, global_records.NEXT), I32.as_pointer()
        )
        limit = field(code, ledger, global_records.LIMIT, I32)[0]
        with code.when(Value(b, b.load(following)) < limit):
            one = ir.Constant(I32, 1)
            found.value = Value(b, b.atomic_rmw("add", following, one, "monotonic"))
        full = (found.value == 0) | (found.value >= limit)
        found.value = select(full, epoch.lift(0), found.value)
        with code.when(full):
            field(code, ledger, global_records.FULL, I32)[0] = epoch.lift(1)
        with code.when(~full):
            entry = _entry_at(code, ledger, found.value)
            entry[0] = group
            entry[1] = _agent(code, warp, ledger) | flags << 16
            entry[2], entry[3] = epoch, site
            # Another thread of the host sees the line before it sees a record.
            b.fence("release")
            key[0] = wide
            rest[0], rest[1] = narrow, found.value
    return found.value


def _is(flags: Value, flag: Flags) -> Value:
    found: Value = (flags & int(flag)) != 0
    return found


def _one_of_both(code: Code, condition: Value, yes: Any, no: Any) -> Value:
    """The result of one of two functions; the other is not called."""
    result = code.variable(code.constant(0, I32))
    with code.builder.if_else(condition.raw) as (then, otherwise):
        with then:
            result.value = yes()
        with otherwise:
            result.value = no()
    return result.value


def _word(condition: Value) -> Value:
    return convert(condition, I32, signed=False)


def _foreign(code: Code, block: Any, ledger: Any) -> tuple[Any, Value]:
    """What the group knows of others, and whether it knows anything."""
    b = code.builder
    foreign = pointer_at(code, ledger, global_records.FOREIGN)
    there = Value(b, b.ptrtoint(foreign, I64)) != 0
    owner = field(code, ledger, global_records.FOREIGN_OF, I64)[0]
    mine = convert(_group(code, block, ledger), I64)
    return foreign, there & (owner == mine)


def _of_other(
    code: Code,
    order: Order,
    warp: Any,
    block: Any,
    ledger: Any,
    entry: _Entry,
    before: Value,
    lane: Value | None,
) -> Value:
    """1 if an access of another group is known; without a lane, to all lanes."""
    foreign, there = _foreign(code, block, ledger)

    def look() -> Value:
        row = _row(code, block)
        place = convert(entry.group, I64) * row * 12
        clock = field(code, code.builder.gep(foreign, [place.raw]), 0, I32)
        known = _knows(clock, row, entry.agent, before, entry.epoch)
        return _one_of_both(
            code,
            known,
            lambda: _heard(code, order, warp, block, ledger, lane),
            lambda: lane_zero(code),
        )

    return _one_of_both(code, there, look, lambda: lane_zero(code))


def lane_zero(code: Code) -> Value:
    """The number 0."""
    return code.constant(0, I32)


def _heard(
    code: Code, order: Order, warp: Any, block: Any, ledger: Any, lane: Value | None
) -> Value:
    """1 if a lane, or every lane, comes after a thread of its group that acquired.

    The stamps say when each warp first acquired something.
    """
    stamps = pointer_at(code, ledger, global_records.STAMPS)
    count = field(code, stamps, 0, I32)[0]
    result = code.variable(_word(count < 0))
    mine = _agent(code, warp, ledger)
    with code.loop(convert(count, I64)) as number:
        place = (
            convert(number, I32) * global_records.STAMP_BYTES
            + global_records.STAMP_BYTES
        )
        stamp = field(code, code.builder.gep(stamps, [place.raw]), 0, I32)
        agent, epoch, lanes, first = (stamp[i] for i in range(4))
        if lane is None:
            known = order.all_known(code, warp, block, agent, epoch)
            known = known | ((agent == mine) & (lanes == -1))
        else:
            known = order.known(code, warp, block, agent, first, epoch, lane)
            known = known | ((agent == mine) & (((lanes >> lane) & 1) != 0))
        result.value = result.value | _word(known)
    return result.value


def _ordered(
    code: Code,
    order: Order,
    warp: Any,
    block: Any,
    ledger: Any,
    number: Value,
    before: Value,
    lane: Value,
    own: Value,
    flags: Value,
) -> Value:
    """1 if an access is ordered after an earlier one, 0 if not.

    2: its scope is too small; 3: one is atomic, the other a plain load.
    """
    strong = _is(flags, Flags.STRONG)
    atomic = _is(flags, Flags.ATOMIC)

    def special() -> Value:
        _, there = _foreign(code, block, ledger)
        good = _word(there | (strong & (number == SEVERAL_STRONG)))
        return select((good == 0) & atomic, good.lift(3), good)

    def line() -> Value:
        entry = _entry(code, ledger, number)
        same = entry.group == _group(code, block, ledger)
        both = strong & _is(entry.flags, Flags.STRONG)
        cta = _is(flags, Flags.CTA) & _is(entry.flags, Flags.CTA)

        def clocks() -> Value:
            thread = (entry.agent == _agent(code, warp, ledger)) & (before == lane)
            known = order.known(
                code, warp, block, entry.agent, before, entry.epoch, lane
            )
            return _word(thread | known)

        def others() -> Value:
            return _of_other(code, order, warp, block, ledger, entry, before, lane)

        found = _one_of_both(code, same, clocks, others)
        writes = _is(entry.flags, Flags.WRITE)
        mixed = (atomic & ~writes) | (
            ~_is(flags, Flags.WRITE) & _is(entry.flags, Flags.ATOMIC)
        )
        wrong = select(both, found.lift(1), select(mixed, found.lift(3), 0))
        scoped = both & cta & ~same
        return select(found == 1, found, select(scoped, found.lift(2), wrong))

    strong_self = (number == own) & strong
    simple = _one_of_both(code, number < FIRST_ID, special, line)
    return select(strong_self, simple.lift(1), simple)


def _all_ordered(
    code: Code,
    order: Order,
    warp: Any,
    block: Any,
    ledger: Any,
    number: Value,
    match: Value,
    own: Value,
    flags: Value,
) -> Value:
    """1 if all lanes are ordered after all lanes of an earlier access.

    With ``match`` each lane has to do with its own earlier access only.
    """
    strong = _is(flags, Flags.STRONG)

    def line() -> Value:
        entry = _entry(code, ledger, number)
        same = entry.group == _group(code, block, ledger)
        both = strong & _is(entry.flags, Flags.STRONG)
        cta = _is(flags, Flags.CTA) & _is(entry.flags, Flags.CTA)

        def clocks() -> Value:
            thread = (entry.agent == _agent(code, warp, ledger)) & (match != 0)
            return _word(
                thread | order.all_known(code, warp, block, entry.agent, entry.epoch)
            )

        def others() -> Value:
            return _of_other(
                code, order, warp, block, ledger, entry, number.lift(0), None
            )

        found = _one_of_both(code, same, clocks, others)
        return found | _word(both & (same | ~cta))

    own_lane = (number == own) & ((match != 0) | strong)
    several = strong & (number == SEVERAL_STRONG)
    return _one_of_both(
        code,
        own_lane | (number < FIRST_ID),
        lambda: _word(own_lane | several),
        line,
    )


def _second_read(
    code: Code,
    order: Order,
    warp: Any,
    block: Any,
    ledger: Any,
    number: Value,
    match: Value,
    flags: Value,
) -> Value:
    """What the record of a read becomes by another one.

    0: the new one; 1 or 2: the id for several groups; 3: it stays as it is.
    """
    strong = _is(flags, Flags.STRONG)

    def special() -> Value:
        kept = strong & (number == SEVERAL_STRONG)
        return select(kept, number, number.lift(SEVERAL))

    def line() -> Value:
        entry = _entry(code, ledger, number)
        both = strong & _is(entry.flags, Flags.STRONG)
        several = select(both, number.lift(SEVERAL_STRONG), number.lift(SEVERAL))

        def here() -> Value:
            thread = (entry.agent == _agent(code, warp, ledger)) & (match != 0)
            known = thread | order.all_known(
                code, warp, block, entry.agent, entry.epoch
            )
            # A plain load says more than a strong one.
            keep = strong & ~both & ~known
            return select(keep, number.lift(3), number.lift(0))

        def there() -> Value:
            zero = number.lift(0)
            known = _of_other(code, order, warp, block, ledger, entry, zero, None)
            return select(known != 0, zero, several)

        same = entry.group == _group(code, block, ledger)
        return _one_of_both(code, same, here, there)

    return _one_of_both(code, number < FIRST_ID, special, line)


def _report(
    code: Code,
    order: Order,
    warp: Any,
    block: Any,
    ledger: Any,
    rule: Value,
    site: Value,
    before: Value,
    own: Value,
    earlier: Value,
    lane: Value,
    address: Value,
) -> Value:
    """Write down a problem, once for each rule and pair of instructions."""
    b = code.builder
    size = global_records.PROBLEM.itemsize
    problems = pointer_at(code, ledger, global_records.PROBLEMS)
    count = field(code, ledger, global_records.FOUND, I32)
    there = before >= FIRST_ID
    line = _entry(code, ledger, select(there, before, before.lift(0)))
    other = select(there, line.site, site.lift(-1))
    apart = select(there, _apart(code, warp, block, ledger, line), GROUP)
    hit = code.variable(code.constant(-1, I32))
    with code.loop(convert(count[0], I64)) as number:
        known = field(code, b.gep(problems, [(number * size).raw]), 0, I32)
        same = (known[0] == rule) & (known[1] == site) & (known[2] == other)
        hit.value = select(same, convert(number, I32), hit.value)
    missing = hit.value < 0
    room = count[0] < global_records.MOST_PROBLEMS
    with code.when(missing & room):
        new = b.gep(problems, [(count[0] * size).raw])
        narrow, wide = field(code, new, 0, I32), field(code, new, 32, I64)
        first = (rule, site, other, own, before, lane, earlier, apart)
        for place, value in enumerate(first):
            narrow[place] = value
        wide[0] = address
        wide[1] = field(code, block, layout.BLOCK_INDEX, I64)[0]
        hit.value = count[0]
        count[0] = count[0] + 1
    with code.when(hit.value < 0):
        lost = field(code, ledger, global_records.LOST, I32)
        lost[0] = lost[0] + 1
    with code.when(hit.value >= 0):
        all_pairs = field(code, b.gep(problems, [(hit.value * size).raw]), 28, I32)
        all_pairs[0] = all_pairs[0] | apart
        times = field(code, b.gep(problems, [(hit.value * size).raw]), 48, I64)
        times[0] = times[0] + 1
    return rule


GROUP = int(clocks.Apart.GROUP)


def _apart(code: Code, warp: Any, block: Any, ledger: Any, entry: _Entry) -> Value:
    """How far a thread is from an earlier access: bits of ``Apart``."""
    mine, warps = (
        _agent(code, warp, ledger),
        field(code, block, layout.BLOCK_WARPS, I32),
    )
    nothing = mine.lift(0)
    found = select(entry.agent == mine, nothing, int(clocks.Apart.WARP))
    same = entry.agent // warps[0] == mine // warps[0]
    found = found | select(same, nothing, int(clocks.Apart.BLOCK))
    return select(entry.group == _group(code, block, ledger), found, GROUP)
