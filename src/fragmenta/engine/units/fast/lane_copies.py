"""Fast paths of ``cp.async``, its groups, and arrivals that wait for it.

They do the ordinary case: all lanes of a warp that close groups also wait for them.
Otherwise Python takes the groups of the warp over, and keeps them.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Memory,
    Value,
    compare_unsigned,
    convert,
    larger,
    select,
)
from fragmenta.engine.simt.layout import (
    FIRST_ARGUMENT,
    LANES,
    RANK_BITS,
    SHARED_START,
    SLOT_BITS,
)
from fragmenta.engine.simt.library import pointer_at
from fragmenta.engine.simt.memory import inside, lane_of, segment, spill
from fragmenta.engine.simt.warps import first_lane, to_lanes, to_word
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.fast.copies import Issue
from fragmenta.engine.units.fast.groups import FINISHED
from fragmenta.engine.units.fast.step import FastStep, fast_path, shift
from fragmenta.engine.units.fast.tasks import call

ALL = 1
"""A word of a wait: it closes the open group, and waits for everything."""
GENERIC, NO_INCREMENT = 1, 2
"""Words of an arrival: the address is generic; it is not counted as pending."""


class _Queue:
    """The groups of a warp, if they are not Python's."""

    def __init__(self, step: FastStep, made_at_once: bool = False) -> None:
        """``made_at_once``: it asks the observer for copies that were made at once."""
        b, self.step = step.code.builder, step
        queues = pointer_at(step.code, step.state, layout.STATE_LANE_QUEUES)
        number = convert(step.number, I64) * at.LANES_RECORD
        self.record: Raw = b.gep(queues, [number.raw])
        step.require(self.word(at.QUEUE_WORK)[0] == 0)
        # An observer has recorded the copies that compiled code makes at once.
        schedule = step.word(step.cluster, layout.CLUSTER_SCHEDULE)[0]
        observed = step.long(step.cluster, layout.CLUSTER_PORT)[0] != 0
        known = schedule == layout.LAZY
        if made_at_once:
            known = known | (schedule == layout.EAGER)
        step.require(~observed | known)

    def word(self, offset: int) -> Memory:
        """A word of the record."""
        return self.step.word(self.record, offset)

    def is_of_lanes(self) -> Value:
        """Whether these lanes close the groups."""
        mask = self.word(at.LANES_MASK)[0]
        same: Value = (mask == 0) | (mask == self.step.lanes)
        return same

    def mark(self) -> None:
        """Begin a new epoch."""
        marks = self.word(at.LANES_MARKS)
        marks[0] = marks[0] + 1
        self.step.observe(layout.PORT_LANES, self.record, layout.NEW_EPOCH)

    def add(self) -> None:
        """Add a copy to the open group."""
        open_ = self.word(at.LANES_OPEN)
        open_[0] = open_[0] | self.step.lanes
        for each in (at.LANES_UNWAITED, at.LANES_ISSUED):
            self.word(each)[0] = self.word(each)[0] + 1
        site = self.step.word(self.step.event, layout.EVENT_SITE)[0]
        self.word(at.LANES_SITE)[0] = site + 1

    def wait(self, bound: Value) -> None:
        """Lanes have waited for the groups before a bound."""
        groups = self.word(at.QUEUE_EPOCH)[0]
        last, first = (
            convert(each & (at.GROUPS - 1), I64) for each in (bound - 1, bound)
        )
        some = bound > self.word(at.QUEUE_WAITED)[0]
        retired, left = self.word(at.LANES_RETIRED), self.word(at.LANES_UNWAITED)
        now = select(some, self.word(at.LANES_ENDS)[last], retired[0])
        left[0] = left[0] - (now - retired[0])
        retired[0] = now
        self.word(at.QUEUE_WAITED)[0] = bound
        began = self.word(at.LANES_BEGAN)[0], self.word(at.LANES_BEGUN)[first]
        until = convert(select(bound == groups, *began), I64)
        self.step.observe(layout.PORT_LANES, self.record, until)
        self.step.note(layout.NOTE_LANES, self.record, until)

    def commit(self) -> None:
        """Close the open group; all was asked for."""
        self.step.observe(layout.PORT_LANES, self.record, layout.MADE_AT_ONCE)
        groups, began = self.word(at.QUEUE_EPOCH), self.word(at.LANES_BEGAN)
        place = convert(groups[0] & (at.GROUPS - 1), I64)
        self.word(at.LANES_BEGUN)[place] = began[0]
        self.word(at.LANES_ENDS)[place] = self.word(at.LANES_ISSUED)[0]
        groups[0] = groups[0] + 1
        self.mark()
        began[0] = self.word(at.LANES_MARKS)[0]
        self.word(at.LANES_MASK)[0] = self.step.lanes
        self.word(at.LANES_OPEN)[0] = groups[0].lift(0)
        self.word(at.QUEUE_THERE)[0] = groups[0].lift(1)

    def may_commit(self) -> None:
        """Require what closing the open group needs."""
        left = self.word(at.LANES_OPEN)[0] & ~self.step.lanes
        self.step.require((left == 0) & self.is_of_lanes())


def _lanes_where(step: FastStep, condition: Value) -> Value:
    """The lanes for which a condition holds."""
    return to_word(condition) & step.lanes


def _copy(step: FastStep) -> Value:
    """Operands: the goal, the source, the size, and which lanes read, or how much."""
    code = step.code
    queue = _Queue(step)
    issue = Issue(step, at.LANE_COPY, alone=False)
    size = step.value(2)
    step.require((size == 4) | (size == 8) | (size == 16))
    goal, source = step.lane_values(0), step.lane_values(1)
    offset = goal & (1 << RANK_BITS) - 1
    own = (goal >> RANK_BITS) == convert(step.rank, I64)
    most = step.long(step.state, layout.STATE_SHARED_SIZE)[0]
    fits = (offset >= SHARED_START) & (offset + size <= most)
    even = (goal & (size - 1)) == 0
    step.require(_lanes_where(step, own & fits & even) == step.lanes)
    count = _counts(step, size)
    reading = _lanes_where(step, count > 0)
    some = reading != 0
    # All lanes that read do so in one array; usually these are all lanes.
    chosen = first_lane(select(some, reading, step.lanes))
    address = lane_of(code, spill(code, source), convert(chosen, I64))
    step.require(~some | (shift(address, SLOT_BITS) >= FIRST_ARGUMENT))
    where = segment(code, step.block, address)
    good = inside(where, source, count) & ((source & (size - 1)) == 0)
    step.require((_lanes_where(step, good) & reading) == reading)
    issue.longs({at.TASK_FIRST: select(some, address, 0)})
    issue.words({at.TASK_LINE: size, at.TASK_BYTES: 0, at.TASK_RANKS: 0})
    for place, numbers in (
        (at.TASK_GOALS, convert(offset, I32)),
        (at.TASK_COUNTED, convert(count, I32)),
        (at.TASK_SOURCES, source),
    ):
        at_ = code.builder.gep(issue.task.record, [ir.Constant(I32, place)])
        put = code.builder.bitcast(at_, numbers.type.as_pointer())
        code.builder.store(numbers.raw, put).align = 64
    pointer = code.builder.ptrtoint(queue.record, I64)
    issue.task.long(at.TASK_QUEUE)[0] = Value(code.builder, pointer)
    queue.add()
    return issue.issue()


def _counts(step: FastStep, size: Value) -> Value:
    """How many bytes each lane reads: a predicate says none, a number how many."""
    code = step.code
    whole = size.in_all_lanes(LANES)
    found = code.variable(whole)
    described = step.operand(3)
    kind = step.word(described, layout.OPERAND_KIND)[0]
    predicate = kind == layout.PREDICATE
    with code.when(~predicate & (kind != layout.NOTHING)):
        given = step.lane_values(3)
        less = compare_unsigned("<", given, whole)
        found.value = select(less, given, whole)
    with code.when(predicate):
        place = step.long(described, layout.OPERAND_PLACE)[0]
        at_ = code.builder.gep(step.warp, [place.raw])
        true = step.word(at_, 0)[0]
        negated = step.word(described, layout.OPERAND_BITS)[0] != 0
        ignored = select(negated, ~true, true)
        found.value = select(to_lanes(ignored), whole.lift(0), whole)
    return found.value


def _commit(step: FastStep) -> Value:
    """Close a group."""
    queue = _Queue(step, made_at_once=True)
    queue.may_commit()
    queue.commit()
    return step.lanes


def _wait(step: FastStep) -> Value:
    """Wait for groups; the operand is how many are left out."""
    code = step.code
    queue, left = _Queue(step, made_at_once=True), step.value(0)
    every = (step.flags & ALL) != 0
    step.require((left >= 0) & (left < at.GROUPS) & queue.is_of_lanes())
    with code.when(every):
        queue.may_commit()
        queue.commit()
    groups, waited = queue.word(at.QUEUE_EPOCH)[0], queue.word(at.QUEUE_WAITED)
    kept = larger(waited[0], groups - convert(left, I32))
    bound = select(every | (left == 0), groups, kept)
    nothing = groups.lift(0)
    call(code, FINISHED, step.cluster, queue.record, bound.raw, nothing.raw)
    queue.wait(bound)
    return step.lanes


def _arrive(step: FastStep) -> Value:
    """Arrive at an mbarrier when the ``cp.async`` so far are done."""
    b, queue = step.code.builder, _Queue(step)
    issue = Issue(step, at.ARRIVAL, alone=False)
    generic = (step.flags & GENERIC) != 0
    address = step.shared_address(step.value(0), generic)
    mbarrier = step.mbarrier(address)
    pending, count = mbarrier.word(layout.MBARRIER_PENDING), step.threads
    more = select((step.flags & NO_INCREMENT) != 0, count.lift(0), count)
    step.require((pending[0] + more <= layout.MOST) & (count <= pending[0] + more))
    pending[0] = pending[0] + more
    mbarrier.write()
    queue.mark()
    queue.word(at.QUEUE_THERE)[0] = count.lift(1)
    queue.word(at.LANES_UNWAITED)[0] = count.lift(0)  # the mbarrier waits for them
    rank = convert(convert(address, I64, signed=False) >> RANK_BITS, I32)
    issue.words(
        {
            at.TASK_SIGNALS: count.lift(1) << rank,
            at.TASK_MBARRIER: address & (1 << RANK_BITS) - 1,
            at.TASK_ARRIVALS: count,
            at.TASK_BYTES: 0,
            at.TASK_RANKS: 0,
        }
    )
    issue.task.long(at.TASK_FORM)[0] = Value(b, b.ptrtoint(queue.record, I64))
    return issue.issue()


COPY = fast_path("units.lanes.copy", _copy)
COMMIT = fast_path("units.lanes.commit", _commit)
WAIT = fast_path("units.lanes.wait", _wait)
ARRIVE = fast_path("units.lanes.arrive", _arrive)

ROUTINES = (COPY, COMMIT, WAIT, ARRIVE)
