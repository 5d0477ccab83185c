"""Fast paths of ``tcgen05.mma``, ``tcgen05.commit`` and ``tcgen05.fence``.

A product that is issued is a task.  It is done at once, or when a commit of its thread
signals.  Python makes the form of an instruction, and looks at each descriptor once.
"""

from __future__ import annotations

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Value, convert, select
from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.engine.simt.library import POINTER, as_signed, field, pointer_at
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast import task_layout as tasks
from fragmenta.engine.units.fast import tensor_layout as at
from fragmenta.engine.units.fast.copies import Issue
from fragmenta.engine.units.fast.step import FastMbarrier, FastStep, fast_path, shift
from fragmenta.engine.units.fast.tasks import call, each_rank
from fragmenta.engine.units.fast.tensor_cells import after, part_region, there
from fragmenta.engine.units.fast.tensor_products import MULTIPLY

D, A, B, IDESC, ENABLE, SCALE_A, SCALE_B = range(7)
"""Operands of a product."""
GENERIC, MULTICAST = 1, 2
"""Words of a commit: whether the address is generic, and whether there is a mask."""
BEFORE = 1
"""A word of a fence: ``before_thread_sync``; without it, ``after_thread_sync``."""


def queue_of(step: FastStep) -> Raw:
    """What the thread has issued to the Tensor Cores, none of it Python's."""
    code, b = step.code, step.code.builder
    step.require((step.lanes & (step.lanes - 1)) == 0)
    first = pointer_at(code, step.state, layout.STATE_THREADS)
    thread = convert(step.number, I64) * 32 + convert(step.leader, I64)
    queue = b.gep(first, [(thread * tasks.QUEUE_RECORD).raw])
    step.require(step.word(queue, tasks.QUEUE_WORK)[0] == 0)
    return queue


class _Product:
    """A product that is about to be issued."""

    def __init__(self, step: FastStep, record: Raw) -> None:
        self.step, self.record, code = step, record, step.code
        self.form = pointer_at(code, step.event, layout.EVENT_FORM)
        step.require(there(code, self.form))
        function = pointer_at(code, self.form, at.FORM_FUNCTION)
        step.require(there(code, function))
        self.scaled = step.word(self.form, at.FORM_SCALED)[0] != 0
        self.pair = step.word(self.form, at.FORM_PAIR)[0] != 0
        idesc = convert(step.value(IDESC), I32)
        step.require(idesc == step.word(self.form, at.FORM_IDESC)[0])

    def _put(self, offset: int, number: Value) -> None:
        self.step.long(self.record, offset)[0] = number

    def blocks(self) -> None:
        """Find the memories of the block, or of the pair."""
        step, code, b = self.step, self.step.code, self.step.code.builder
        rank, one = step.rank, step.rank.lift(1)
        count = step.word(step.cluster, layout.CLUSTER_BLOCKS)[0]
        step.require(~self.pair | ((rank | 1) < count))
        ended = step.word(step.cluster, layout.CLUSTER_ENDED)[0]
        peers = field(code, step.cluster, layout.CLUSTER_PEERS, POINTER)
        first = select(self.pair, rank & ~one, rank)
        last = select(self.pair, rank | one, rank)
        for number, each in enumerate((first, last)):
            step.require(((ended >> each) & 1) == 0)
            state = peers[convert(each, I64)].raw
            tensor = pointer_at(code, state, layout.STATE_TENSOR)
            step.require(there(code, tensor))
            shared = pointer_at(code, state, layout.STATE_SHARED)
            for offset, pointer in (
                (at.PRODUCT_TENSORS, tensor),
                (at.PRODUCT_SHARED, shared),
            ):
                self._put(offset + 8 * number, Value(b, b.ptrtoint(pointer, I64)))

    def in_cells(self, part: int, operand: int, bits: int = at.ADDRESS_BITS) -> None:
        """An operand in tensor memory: its cells must be allocated."""
        step, code = self.step, self.step.code
        address = step.value(operand) & (1 << bits) - 1
        lane = at.FORM_PARTS + part * at.PART_BYTES + at.PART_LANE
        own = convert(step.word(self.form, lane)[0], I64)
        step.require(shift(address, 16) == own)
        column = address & 0xFFFF
        for block in range(2):
            region = part_region(code, self.form, part, block, column)
            tensor = pointer_at(code, self.record, at.PRODUCT_TENSORS + 8 * block)
            if block:
                with code.when(self.pair):
                    step.require(region.allocated(tensor))
            else:
                step.require(region.allocated(tensor))
        self._put(at.PRODUCT_PLACES + 8 * part, column)
        if part != at.D:
            self._apart(part, column)

    def _apart(self, part: int, column: Value) -> None:
        """Require that an operand has no column of D; Python looks closer."""
        step, code = self.step, self.step.code
        of_d = step.long(self.record, at.PRODUCT_PLACES + 8 * at.D)[0]
        for block in range(2):
            one = part_region(code, self.form, part, block, column)
            two = part_region(code, self.form, at.D, block, of_d)
            before = one.first + one.columns <= two.first
            apart = before | (two.first + two.columns <= one.first)
            step.require(apart if not block else apart | ~self.pair)

    def in_shared(self, part: int, operand: int) -> None:
        """An operand in shared memory: Python must have seen its descriptor."""
        step, code, b = self.step, self.step.code, self.step.code.builder
        word = step.value(operand)
        where = pointer_at(code, self.form, at.FORM_SOURCES + 8 * part)
        known = field(code, where, 0, I64)
        start = shift(word * as_signed(layout.HASH, 64), 56)
        found = code.variable(word.lift(0))
        for probe in range(layout.PROBES):
            source = known[(start + probe) & layout.KNOWN - 1]
            with code.when(source != 0):
                record = b.inttoptr(source.raw, POINTER)
                same = step.long(record, at.SOURCE_WORD)[0] == word
                found.value = select(same, source, found.value)
        step.require(found.value != 0)
        self._put(at.PRODUCT_PLACES + 8 * part, found.value)

    def operands(self) -> None:
        """Find all operands."""
        step, code, b = self.step, self.step.code, self.step.code.builder
        self._put(at.PRODUCT_FORM, Value(b, b.ptrtoint(self.form, I64)))
        self.blocks()
        self.in_cells(at.D, D)
        table = at.FORM_PARTS + at.A * at.PART_BYTES + at.PART_TABLE
        cells = there(code, pointer_at(code, self.form, table))
        with code.when(cells):
            self.in_cells(at.A, A)
        with code.when(~cells):
            self.in_shared(at.A, A)
        self.in_shared(at.B, B)
        with code.when(self.scaled):
            self.in_cells(at.SCALE_A, SCALE_A, at.SCALE_ADDRESS_BITS)
            self.in_cells(at.SCALE_B, SCALE_B, at.SCALE_ADDRESS_BITS)
        enable = convert(step.value(ENABLE) != 0, I64, signed=False)
        self._put(at.PRODUCT_ENABLE, enable)


def _mma(step: FastStep) -> Value:
    """Issue a product."""
    code, b = step.code, step.code.builder
    issue = Issue(step, tasks.PRODUCT)
    queue = queue_of(step)
    record = after(code, issue.task.record, tasks.TASK_TENSOR)
    product = _Product(step, record)
    product.operands()
    step.require(step.observe(layout.PORT_TENSOR, record, 0) != 0)
    flags = code.variable(code.constant(0, I32))
    eager = step.word(step.cluster, layout.CLUSTER_SCHEDULE)[0] == layout.EAGER
    with code.when(eager):
        status = Value(b, call(code, MULTIPLY, record, returns=I32))
        step.require(status == at.DONE)
        flags.value = code.constant(tasks.COMPUTED, I32)
    issue.longs(
        {tasks.TASK_FIRST: 0, tasks.TASK_QUEUE: Value(b, b.ptrtoint(queue, I64))}
    )
    issue.words({tasks.TASK_BYTES: 0, tasks.TASK_RANKS: 0})
    issue.task.word(tasks.TASK_FLAGS)[0] = flags.value
    step.observe(layout.PORT_TENSOR_ISSUED, record)
    return issue.issue()


# ── commits ─────────────────────────────────────────────────────────────────


def _goals(step: FastStep, address: Value) -> Value:
    """The blocks whose mbarriers a commit signals, by rank."""
    code = step.code
    found = code.variable(address.lift(1) << shift(address, RANK_BITS))
    with code.when((step.flags & MULTICAST) != 0):
        mask = step.value(1)
        count = step.word(step.cluster, layout.CLUSTER_BLOCKS)[0]
        inside = (mask != 0) & (shift(mask, 16) == 0)
        step.require(inside & ((convert(mask, I32) >> count) == 0))
        found.value = convert(mask, I32)
    return found.value


def _commit(step: FastStep) -> Value:
    """Signal mbarriers when the work of the thread is done."""
    code, b = step.code, step.code.builder
    queue = queue_of(step)
    generic = (step.flags & GENERIC) != 0
    address = step.shared_address(step.value(0), generic)
    step.require(shift(address, RANK_BITS) < 16)
    goals, offset = _goals(step, address), address & (1 << RANK_BITS) - 1
    # Several commits need several records.
    step.require((goals & (goals - 1)) == 0)
    schedule = step.word(step.cluster, layout.CLUSTER_SCHEDULE)[0]

    def ready(rank: Value) -> None:
        mbarrier: FastMbarrier = step.mbarrier(rank << RANK_BITS | offset)
        step.require(mbarrier.word(layout.MBARRIER_EXPECTED)[0] >= 1)
        pending = mbarrier.word(layout.MBARRIER_PENDING)[0]
        step.require((schedule != layout.EAGER) | (pending >= 1))

    each_rank(code, goals, ready)
    step.require(step.observe(layout.PORT_COMMIT_ROOM, step.state) != 0)
    issue = Issue(step, tasks.COMMIT)
    issue.words(
        {
            tasks.TASK_SIGNALS: goals,
            tasks.TASK_MBARRIER: offset,
            tasks.TASK_ARRIVALS: 1,
            tasks.TASK_BYTES: 0,
            tasks.TASK_RANKS: 0,
        }
    )
    issue.longs(
        {tasks.TASK_FIRST: 0, tasks.TASK_FORM: Value(b, b.ptrtoint(queue, I64))}
    )
    covers = step.word(queue, tasks.QUEUE_THERE)
    some = convert(covers[0], I64)
    step.observe(layout.PORT_COMMIT, issue.task.record, some)
    covers[0] = goals.lift(0)
    return issue.issue()


def _fence(step: FastStep) -> Value:
    """``tcgen05.fence``: only an observer needs it."""
    step.observe(layout.PORT_TENSOR_FENCE, step.state)
    return step.lanes


MMA = fast_path("units.tensor.mma", _mma)
COMMIT = fast_path("units.tensor.commit", _commit)
FENCE = fast_path("units.tensor.fence", _fence)

ROUTINES = (MMA, COMMIT, FENCE)
