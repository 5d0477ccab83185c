"""Fast paths of mbarriers: making, arriving and waiting."""

from __future__ import annotations

from fragmenta.base.jit.trace import (
    I32,
    I64,
    LANES,
    Value,
    any_lane,
    convert,
    select,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt import warps
from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast.step import FastMbarrier, FastStep, fast_path, shift
from fragmenta.engine.units.fast.tasks import WANTED, call

EXPECTS, PARITY, TESTS, GENERIC, COUNTED, NARROW = 1, 2, 4, 8, 16, 64
"""Words of the instruction: ``.expect_tx``, ``.parity``, ``test_wait``; whether the
address is generic, whether there is a count of arrivals, and whether it names the scope
of the block."""

_WATCHED_PHASES = 2
"""The last phase of which Python looks whether a wait can miss it."""


def _own(step: FastStep) -> tuple[Value, FastMbarrier]:
    """The place of the first operand in the block's own memory, and its mbarrier."""
    generic = (step.flags & GENERIC) != 0
    address = step.shared_address(step.value(0), generic)
    step.require(shift(address, RANK_BITS) == step.rank)
    offset = address & (1 << RANK_BITS) - 1
    step.require(offset >= engine.SHARED_START)
    return address, step.mbarrier_at(step.state, convert(offset, I64))


def _idle(mbarrier: FastMbarrier) -> Value:
    """Whether no phase is under way, and nobody waits."""
    code, word = mbarrier.step.code, mbarrier.word
    waiting = code.variable(code.constant(0, I32))
    with code.loop(layout.MBARRIER_WARPS, step=LANES) as warp:
        some = word(layout.MBARRIER_WAITING).lanes(warp)
        found = convert(any_lane(some != 0), I32, signed=False)
        waiting.value = waiting.value | found
    idle = waiting.value == 0
    for each in (layout.MBARRIER_WORK, layout.MBARRIER_TASKS, layout.MBARRIER_TX):
        idle = idle & (word(each)[0] == 0)
    expected = word(layout.MBARRIER_EXPECTED)[0]
    found_: Value = idle & (word(layout.MBARRIER_PENDING)[0] == expected)
    return found_


def _init(step: FastStep) -> Value:
    """Make an mbarrier; ``operands`` are the address and the count."""
    code, (address, mbarrier) = step.code, _own(step)
    count, old = step.value(1), mbarrier.alive
    step.require((count >= 1) & (count <= layout.MOST))
    b = code.builder
    port = pointer_at(code, step.cluster, layout.CLUSTER_PORT)
    observed = Value(b, b.ptrtoint(port, I64)) != 0
    fresh = mbarrier.phase[0] == 0
    step.require(~old | (_idle(mbarrier) & (fresh | ~observed)))
    place = convert(address, I64)
    step.require(step.observe(layout.PORT_MAKE, mbarrier.record, place) != 0)
    made = step.word(step.state, layout.STATE_MADE_COUNT)
    ever = step.word(step.state, layout.STATE_MADE_EVER)
    slot = ever[0]
    ever[0] = slot + 1
    with code.when(~old):
        offset = address & (1 << RANK_BITS) - 1
        list_ = pointer_at(code, step.state, layout.STATE_MADE)
        field(code, list_, 0, I32)[convert(made[0], I64)] = offset
        made[0] = made[0] + 1
    again = convert(old, I32, signed=False)
    _begin(mbarrier, slot, again, convert(count, I32), address)
    step.observe(layout.PORT_MADE, mbarrier.record)
    return step.lanes


def _begin(
    mbarrier: FastMbarrier, slot: Value, again: Value, count: Value, address: Value
) -> None:
    """Begin the first phase of a new mbarrier."""
    step, code, word = mbarrier.step, mbarrier.step.code, mbarrier.word
    clocks = step.long(mbarrier.record, layout.MBARRIER_CLOCKS)
    kept, whole = clocks[0], word(0)
    with code.loop(layout.MBARRIER_BYTES >> 2, step=LANES) as at:
        whole[at] = whole.lanes(at).lift(0)
    clocks[0] = kept
    one, none = count.lift(1), count.lift(-1)
    for offset, number in (
        (layout.MBARRIER_ALIVE, one),
        (layout.MBARRIER_SLOT, slot),
        (layout.MBARRIER_EXPECTED, count),
        (layout.MBARRIER_PENDING, count),
        (layout.MBARRIER_AGAIN, again),
        (layout.MBARRIER_PLACE, address),
        *((layout.MBARRIER_BIRTH + 4 * each, none) for each in range(4)),
    ):
        word(offset)[0] = number
    for offset in (layout.MBARRIER_OBSERVED, layout.MBARRIER_COPIED):
        step.long(mbarrier.record, offset)[0] = code.constant(-1, I64)
    mbarrier.write()


def _inval(step: FastStep) -> Value:
    """End an mbarrier; the operand is its address."""
    code, (address, mbarrier) = step.code, _own(step)
    step.require(mbarrier.alive & mbarrier.intact)
    step.require(_idle(mbarrier))
    ends = step.observe(layout.PORT_MAKE, mbarrier.record, layout.ENDS)
    step.require(ends != 0)
    offset = address & (1 << RANK_BITS) - 1
    list_ = field(code, pointer_at(code, step.state, layout.STATE_MADE), 0, I32)
    made = step.word(step.state, layout.STATE_MADE_COUNT)
    left = code.variable(code.constant(0, I64))
    with code.loop(convert(made[0], I64)) as number:
        each = list_[number]
        with code.when(each != offset):
            list_[left.value] = each
            left.value = left.value + 1
    made[0] = convert(left.value, I32)
    mbarrier.word(layout.MBARRIER_AGAIN)[0] = offset.lift(1)
    mbarrier.word(layout.MBARRIER_ALIVE)[0] = offset.lift(0)
    step.observe(layout.PORT_MADE, mbarrier.record)
    return step.lanes


def _found(step: FastStep, operand: int) -> tuple[Value, FastMbarrier]:
    """The address of an operand, and the mbarrier there."""
    generic = (step.flags & GENERIC) != 0
    address = step.shared_address(step.value(operand), generic)
    return address, step.mbarrier(address)


def _more_bytes(step: FastStep, mbarrier: FastMbarrier, count: Value) -> Value:
    """The bytes that are pending if more are expected."""
    sum_ = mbarrier.word(layout.MBARRIER_TX)[0] + count
    step.require((sum_ >= -layout.MOST) & (sum_ <= layout.MOST))
    return sum_


def _arrive(step: FastStep) -> Value:
    """Arrive; ``operands`` are the result, the address, and a count, if there is one.

    The count is of bytes if the instruction expects some.
    """
    threads = step.threads
    expects = (step.flags & EXPECTS) != 0
    address, mbarrier = _found(step, 1)
    # Python reports a scope that leaves out the block of the mbarrier.
    near = shift(address, RANK_BITS) == step.rank
    step.require(near | ((step.flags & NARROW) == 0))
    given = step.value(2)
    step.require((given >= 0) & (given <= layout.MOST))
    count = convert(given, I32)
    bytes_ = _more_bytes(step, mbarrier, select(expects, count * threads, 0))
    counted = (step.flags & COUNTED) != 0
    arrivals = select(counted, count, 1) * threads
    pending = mbarrier.word(layout.MBARRIER_PENDING)
    step.require((arrivals > 0) & (arrivals <= pending[0]))
    remote = mbarrier.word(layout.MBARRIER_REMOTE)
    remote[0] = select(near | expects, remote[0], 1)
    token = mbarrier.phase[0] << 32 | convert(pending[0], I64)
    mbarrier.word(layout.MBARRIER_TX)[0] = bytes_
    step.observe(layout.PORT_RELEASE, mbarrier.record)
    pending[0] = pending[0] - arrivals
    mbarrier.settle()
    step.put(0, token)
    step.changed()
    return step.lanes


def _expect(step: FastStep) -> Value:
    """Expect bytes; ``operands`` are nothing, the address, and the count."""
    _, mbarrier = _found(step, 1)
    count = step.value(2)
    step.require((count >= 0) & (count <= layout.MOST))
    bytes_ = _more_bytes(step, mbarrier, convert(count, I32) * step.threads)
    mbarrier.word(layout.MBARRIER_TX)[0] = bytes_
    mbarrier.write()
    step.changed()
    return step.lanes


def _wait(step: FastStep) -> Value:
    """Test whether a phase is over; operands: the result, the address, the phase."""
    code = step.code
    address, mbarrier = _found(step, 1)
    step.require(shift(address, RANK_BITS) == step.rank)
    alone = (step.flags & NARROW) == 0
    step.require(alone | (mbarrier.word(layout.MBARRIER_REMOTE)[0] == 0))
    given, phase = step.value(2), mbarrier.phase[0]
    parity = (step.flags & PARITY) != 0
    named = phase - ((phase ^ given) & 1)
    wanted = select(parity, named, shift(given, 32))
    step.require((wanted >= phase - 1) & (wanted <= phase))
    step.require((wanted < phase) | (mbarrier.word(layout.MBARRIER_WORK)[0] == 0))
    step.require(~(_looked_at(step, mbarrier, wanted) & (wanted < phase)))
    waiting = mbarrier.word(layout.MBARRIER_WAITING)
    own, number = convert(step.number, I64), convert(wanted, I32) + 1
    hasty = step.word(step.cluster, layout.CLUSTER_HASTY)[0] != 0
    gives_up = hasty & (waiting[own] != number)
    tasks = mbarrier.word(layout.MBARRIER_TASKS)[0] > 0
    with code.when((wanted >= phase) & tasks & ~gives_up):
        offset = address & (1 << RANK_BITS) - 1
        who = step.cluster, step.rank.raw, offset.raw
        failed = Value(code.builder, call(code, WANTED, *who, returns=I32))
        step.require(failed == 0)  # Python finishes the others
    ended = wanted < mbarrier.phase[0]
    passed = code.variable(step.lanes)
    way = _gives_way(step, mbarrier, wanted, ended)
    over = ended & ~way
    with code.when(way):
        passed.value = step.lanes.lift(0)
        step.changed()
    with code.when(over):
        waiting[own] = step.lanes.lift(0)
        _saw(mbarrier, own, convert(wanted, I32))
        step.observe(layout.PORT_ACQUIRE, mbarrier.record, wanted)
        step.note(layout.NOTE_WAITED, mbarrier.record, wanted)
        step.put(0, wanted.lift(1))
        step.changed()
    with code.when(~ended):
        with code.when(waiting[own] != number):
            step.observe(layout.PORT_STALL, mbarrier.record, wanted)
        waiting[own] = number
        step.tested()
        impatient = step.word(step.cluster, layout.CLUSTER_IMPATIENT)[0] != 0
        tests = ((step.flags & TESTS) != 0) | impatient | gives_up
        with code.when(tests):
            step.put(0, wanted.lift(0))
            step.word(step.warp, engine.BUDGET)[0] = step.lanes.lift(0)
        with code.when(~tests):
            passed.value = step.lanes.lift(0)
    return passed.value


def _saw(mbarrier: FastMbarrier, warp: Value, phase: Value) -> None:
    """Note that a warp has seen the end of a phase, as ``FastMbarrier.saw`` does."""
    seen = mbarrier.word(layout.MBARRIER_SEEN)
    following = seen[warp]
    late = (phase > following) & (((phase - following) & 1) == 0)
    seen[warp] = select(late, following, phase) + 1


def _driven(step: FastStep, mbarrier: FastMbarrier) -> Value:
    """Whether the warp has ended the last phase of an mbarrier, and gives way."""
    fair = step.word(step.cluster, layout.CLUSTER_FAIR)[0] != 0
    found: Value = fair & (mbarrier.word(layout.MBARRIER_DRIVER)[0] == step.name)
    return found


def _looked_at(step: FastStep, mbarrier: FastMbarrier, wanted: Value) -> Value:
    """Whether Python looks if waits for a phase can miss it, in the first cluster."""
    b, port = (
        step.code.builder,
        pointer_at(step.code, step.cluster, layout.CLUSTER_PORT),
    )
    watched = Value(b, b.icmp_unsigned("!=", port, port.type(None)))
    first = step.long(step.cluster, layout.CLUSTER_NUMBER)[0] == 0
    held = mbarrier.word(layout.MBARRIER_HELD)[0] != 0
    early = watched & first & (wanted <= _WATCHED_PHASES)
    found: Value = early & (held | _driven(step, mbarrier))
    return found


def _gives_way(
    step: FastStep, mbarrier: FastMbarrier, wanted: Value, ended: Value
) -> Value:
    """Whether the warp lets the others have a turn first: ``units.fairness``."""
    code = step.code
    tests = (step.flags & TESTS) != 0
    held, count = (
        mbarrier.word(each)
        for each in (layout.MBARRIER_HELD, layout.MBARRIER_HELD_COUNT)
    )
    ready = code.variable(code.constant(0, I32))
    with code.when(ended & ~tests & _driven(step, mbarrier)):
        number = convert(wanted, I32) + 1
        new = held[0] != number
        held[0] = number
        count[0] = select(new, count[0].lift(0), count[0])
        others = warps.others(code, step.block, step.number, new)
        may = new | (count[0] < layout.PATIENCE)
        budget = step.word(step.warp, engine.BUDGET)
        given_up = ~new & (budget[0] == 0)  # by other lanes of the warp, in this turn
        more = select(may & ~given_up, others, others.lift(0))
        count[0] = count[0] + more
        ready.value = select(given_up, more.lift(1), more)
        budget[0] = select(more != 0, more.lift(0), budget[0])
    found: Value = ready.value != 0
    return found


INIT = fast_path("units.mbarrier.init", _init, split=(0, 1))
INVAL = fast_path("units.mbarrier.inval", _inval, split=(0,))
ARRIVE = fast_path("units.mbarrier.arrive", _arrive, split=(1, 2))
EXPECT = fast_path("units.mbarrier.expect_tx", _expect, split=(1, 2))
WAIT = fast_path("units.mbarrier.wait", _wait, split=(1, 2))

ROUTINES = INIT, INVAL, ARRIVE, EXPECT, WAIT
