"""Fast paths of mbarriers: arriving and waiting."""

from __future__ import annotations

from fragmenta.jit.trace import I32, I64, Value, convert, select
from fragmenta.simt import layout as engine
from fragmenta.simt.layout import RANK_BITS
from fragmenta.units.fast import layout
from fragmenta.units.fast.step import Mbarrier, Step, fast_path, shift
from fragmenta.units.fast.tasks import WANTED, call

EXPECTS, PARITY, TESTS, GENERIC, COUNTED, NARROW = 1, 2, 4, 8, 16, 64
"""Words of the instruction: ``.expect_tx``, ``.parity``, ``test_wait``; whether the
address is generic, whether there is a count of arrivals, and whether it names the scope
of the block."""


def _found(step: Step, operand: int) -> tuple[Value, Mbarrier]:
    """The address of an operand, and the mbarrier there."""
    generic = (step.flags & GENERIC) != 0
    address = step.shared_address(step.value(operand), generic)
    return address, step.mbarrier(address)


def _more_bytes(step: Step, mbarrier: Mbarrier, count: Value) -> Value:
    """The bytes that are pending if more are expected."""
    sum_ = mbarrier.word(layout.MBARRIER_TX)[0] + count
    step.require((sum_ >= -layout.MOST) & (sum_ <= layout.MOST))
    return sum_


def _arrive(step: Step) -> Value:
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
    remote[0] = select(near, remote[0], 1)
    token = mbarrier.phase[0] << 32 | convert(pending[0], I64)
    mbarrier.word(layout.MBARRIER_TX)[0] = bytes_
    step.observe(layout.PORT_RELEASE, mbarrier.record)
    pending[0] = pending[0] - arrivals
    mbarrier.settle()
    step.put(0, token)
    step.changed()
    return step.lanes


def _expect(step: Step) -> Value:
    """Expect bytes; ``operands`` are nothing, the address, and the count."""
    _, mbarrier = _found(step, 1)
    count = step.value(2)
    step.require((count >= 0) & (count <= layout.MOST))
    bytes_ = _more_bytes(step, mbarrier, convert(count, I32) * step.threads)
    mbarrier.word(layout.MBARRIER_TX)[0] = bytes_
    mbarrier.bits[0] = mbarrier.packed()
    step.changed()
    return step.lanes


def _wait(step: Step) -> Value:
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
    with code.when((wanted >= phase) & (mbarrier.word(layout.MBARRIER_TASKS)[0] > 0)):
        offset = address & (1 << RANK_BITS) - 1
        who = step.cluster, step.rank.raw, offset.raw
        failed = Value(code.builder, call(code, WANTED, *who, returns=I32))
        step.require(failed == 0)  # Python finishes the others
    over = wanted < mbarrier.phase[0]
    waiting = mbarrier.word(layout.MBARRIER_WAITING)
    own = convert(step.number, I64)
    passed = code.variable(step.lanes)
    with code.when(over):
        waiting[own] = step.lanes.lift(0)
        step.observe(layout.PORT_ACQUIRE, mbarrier.record, wanted)
        step.put(0, wanted.lift(1))
        step.changed()
    with code.when(~over):
        number = convert(wanted, I32) + 1
        with code.when(waiting[own] != number):
            step.observe(layout.PORT_STALL, mbarrier.record, wanted)
        waiting[own] = number
        step.tested()
        impatient = step.word(step.cluster, layout.CLUSTER_IMPATIENT)[0] != 0
        tests = ((step.flags & TESTS) != 0) | impatient
        with code.when(tests):
            step.put(0, wanted.lift(0))
            step.word(step.warp, engine.BUDGET)[0] = step.lanes.lift(0)
        with code.when(~tests):
            passed.value = step.lanes.lift(0)
    return passed.value


ARRIVE = fast_path("units.mbarrier.arrive", _arrive)
EXPECT = fast_path("units.mbarrier.expect_tx", _expect)
WAIT = fast_path("units.mbarrier.wait", _wait)
