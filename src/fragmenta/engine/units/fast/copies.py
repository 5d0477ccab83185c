"""Fast paths of bulk and tensor copies: from an instruction to a task.

All that Python would refuse is left to it: a box that is misaligned or out of bounds, a
map that is not known yet, an mbarrier that is none.  The record of the first free task
is filled on the way; until it is issued, nobody reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    compare_unsigned,
    convert,
    larger,
    select,
    shift_unsigned,
    smaller,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt.layout import (
    RANK_BITS,
    SHARED_START,
    SHARED_WINDOW,
    SLOT_BITS,
)
from fragmenta.engine.simt.library import POINTER, as_signed, field, pointer_at
from fragmenta.engine.simt.memory import AddressRange, inside, segment
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.fast.step import FastStep, fast_path, shift
from fragmenta.engine.units.fast.tasks import (
    ISSUE,
    UNIT,
    FastTask,
    call,
    each_rank,
    task_at,
)

GENERIC, OWN, MASKED, PAIRED = 1, 2, 4, 8
"""Words of the instruction: whether addresses in shared memory are generic, whether
they must be in the own block, whether there is a mask of blocks, and whether the
mbarrier may be in the other block of a pair."""
RANK_AT = 20
"""Where the flags have the dimensions of a tensor; the operation is at bit 8."""
ALIGNMENT = 128
"""Bytes that a box in shared memory begins at a multiple of."""
MAP_ALIGNMENT, MAP_SIZE = 64, 128


def memory(step: FastStep, address: Value, *, constant: bool = False) -> AddressRange:
    """The global memory of an address; also the parameters, if it is constant."""
    slot = shift(address, SLOT_BITS)
    good = slot >= engine.FIRST_ARGUMENT
    if constant:
        good = good | (slot == engine.PARAM_SLOT)
    step.require(good)
    return segment(step.code, step.block, address)


class Issue:
    """A copy that one lane issues; or several lanes together."""

    def __init__(self, step: FastStep, kind: int, *, alone: bool = True) -> None:
        self.step, self.code = step, step.code
        schedule = step.word(step.cluster, layout.CLUSTER_SCHEDULE)[0]
        pool = pointer_at(self.code, step.cluster, layout.CLUSTER_TASKS)
        free = step.word(pool, at.POOL_FREE)[0]
        step.require((schedule != layout.RANDOM) & (free >= 0))
        if alone:
            step.require((step.lanes & (step.lanes - 1)) == 0)
        self.task: FastTask = task_at(self.code, step.cluster, free)
        self._begin(kind)

    def _begin(self, kind: int) -> None:
        """Write down who issues it; so far it moves nothing and signals nobody."""
        step, b = self.step, self.code.builder
        words: dict[int, Value | int] = {
            at.TASK_KIND: kind,
            at.TASK_FLAGS: step.flags & (0xFF << at.OPERATION_AT),
            at.TASK_RANK: step.rank,
            at.TASK_NUMBER: step.number,
            at.TASK_LANES: step.lanes,
            at.TASK_SIGNALS: 0,
            at.TASK_MBARRIER: 0,
            at.TASK_ARRIVALS: 0,
            at.TASK_SWIZZLE: 0,
            at.TASK_LINES: 1,
        }
        self.words(words)
        nothing = (at.TASK_QUEUE, at.TASK_ROW, at.TASK_SKIP, at.TASK_MAP, at.TASK_FORM)
        self.longs(dict.fromkeys(nothing, 0))
        for place, pointer in (
            (at.TASK_EVENT, step.event),
            (at.TASK_BLOCK, step.block),
            (at.TASK_WARP, step.warp),
        ):
            self.task.long(place)[0] = Value(b, b.ptrtoint(pointer, I64))

    def words(self, given: Mapping[int, Value | int]) -> None:
        """Set words of 32 bits of the record."""
        for place, number in given.items():
            self.task.word(place)[0] = self._as(number, I32)

    def longs(self, given: Mapping[int, Value | int]) -> None:
        """Set words of 64 bits of the record."""
        for place, number in given.items():
            self.task.long(place)[0] = self._as(number, I64)

    def _as(self, number: Value | int, of: ir.IntType) -> Value:
        if not isinstance(number, Value):
            return self.code.constant(number, of)
        return convert(number, of)

    # ── shared memory ───────────────────────────────────────────────────────

    def shared(self, operand: int, flags: Value | None = None) -> tuple[Value, Value]:
        """The rank and the offset of an address in shared memory."""
        step = self.step
        given, words = step.value(operand), step.flags if flags is None else flags
        generic = (words & GENERIC) != 0
        address = given - select(generic, given.lift(SHARED_WINDOW), 0)
        rank = shift(address, RANK_BITS)
        blocks = convert(step.word(step.cluster, layout.CLUSTER_BLOCKS)[0], I64)
        step.require(compare_unsigned("<", rank, blocks))
        own = convert(step.rank, I64)
        step.require(((words & OWN) == 0) | (rank == own))
        return convert(rank, I32), address & (1 << RANK_BITS) - 1

    def in_shared(self, offset: Value, size: Value | int) -> None:
        """Require bytes to be in shared memory, of which all blocks have as much."""
        most = self.step.long(self.step.state, layout.STATE_SHARED_SIZE)[0]
        self.step.require((offset >= SHARED_START) & (offset + size <= most))

    def ranks(self, operand: int, rank: Value) -> Value:
        """The blocks that a copy goes to."""
        step = self.step
        masked = (step.flags & MASKED) != 0
        mask = convert(step.value(operand), I32) & 0xFFFF
        blocks = step.word(step.cluster, layout.CLUSTER_BLOCKS)[0]
        step.require(~masked | ((mask != 0) & (shift_by(mask, blocks) == 0)))
        return select(masked, mask, rank.lift(1) << rank)

    def signals(self, operand: int, rank: Value, ranks: Value, bytes_: Value) -> None:
        """Let it signal the mbarriers of the blocks that it goes to."""
        step = self.step
        own, offset = self.shared(operand)
        masked, paired = ((step.flags & each) != 0 for each in (MASKED, PAIRED))
        step.require(~(masked & paired))
        near = select(paired, (own ^ rank).lift(1), 0)
        step.require(masked | compare_unsigned("<=", own ^ rank, near))
        self.in_shared(offset, 8)
        goals = select(paired, own.lift(1) << own, ranks)

        def one(each: Value) -> None:
            ended = step.word(step.cluster, layout.CLUSTER_ENDED)[0]
            step.require(((ended >> each) & 1) == 0)
            peers = field(self.code, step.cluster, layout.CLUSTER_PEERS, POINTER)
            step.mbarrier_of(peers[convert(each, I64)].raw, offset)

        each_rank(self.code, goals, one)
        self.words(
            {
                at.TASK_SIGNALS: goals,
                at.TASK_MBARRIER: offset,
                at.TASK_BYTES: bytes_,
            }
        )

    def grouped(self) -> None:
        """Let it be in a group of its lane."""
        step, b = self.step, self.code.builder
        queues = pointer_at(self.code, step.state, layout.STATE_QUEUES)
        number = convert(step.number * at.QUEUES + step.leader, I64)
        queue = b.gep(queues, [(number * at.QUEUE_RECORD).raw])
        self.task.long(at.TASK_QUEUE)[0] = Value(b, b.ptrtoint(queue, I64))
        self.words({at.TASK_BYTES: 0})

    # ── global memory ───────────────────────────────────────────────────────

    def rows(
        self, where: AddressRange, first: Value, extent: Value, row: Value, store: bool
    ) -> None:
        """Require rows to be in memory, which must be writable for a store."""
        good = inside(where, first, extent)
        if store:  # where what is written is noted, Python does it
            good = good & (where.flags == 0)
        self.step.require((row == 0) | good)
        self.longs({at.TASK_FIRST: first, at.TASK_ROW: row})

    def plain(self, store: bool, address: Value, size: Value) -> None:
        """Bytes side by side in global memory."""
        where = memory(self.step, address)
        self.step.require((address & (UNIT - 1)) == 0)
        self.rows(where, address, size, size, store)
        self.flat(size)

    def flat(self, size: Value) -> None:
        """One row and one line."""
        self.words({at.TASK_LINE: size, at.TASK_PITCH: size})
        for each in range(4):
            self.longs(
                {
                    at.TASK_COUNTS + 8 * each: 1,
                    at.TASK_STEPS + 8 * each: 0,
                    at.TASK_JUMPS + 8 * each: 0,
                }
            )

    def issue(self) -> Value:
        """Issue it; nothing may be required any more."""
        call(self.code, ISSUE, self.step.cluster, self.task.record)
        return self.step.lanes


def shift_by(number: Value, by: Value) -> Value:
    """An unsigned word shifted right by less than 32 bits."""
    return shift_unsigned(number, by)


# ── tensor maps ─────────────────────────────────────────────────────────────


class Map:
    """A tensor map that is known, as compiled code reads it."""

    def __init__(self, step: FastStep, operand: int) -> None:
        self.step, self.code = step, step.code
        self.address = address = step.value(operand)
        where = memory(step, address, constant=True)
        aligned = (address & (MAP_ALIGNMENT - 1)) == 0
        step.require(aligned & inside(where, address, MAP_SIZE))
        place = where.base + (address - where.start)
        data = self.code.builder.inttoptr(place.raw, POINTER)
        self.record = self._known(data)

    def _known(self, data: Raw) -> Raw:
        """The record of a map with these bytes, if Python has checked one."""
        b, step = self.code.builder, self.step
        table = pointer_at(self.code, step.cluster, layout.CLUSTER_MAPS)
        places = Memory(b, b.bitcast(table, POINTER.as_pointer()), POINTER)
        number = map_place([_longs(self.code, data)[each] for each in range(_LONGS)])
        first, second = (places[number ^ probe].raw for probe in (0, 1))
        record = b.select(_same(self.code, first, data).raw, first, second)
        step.require(_same(self.code, record, data))
        return record

    def word(self, offset: int) -> Value:
        """A number of 32 bits, as one of 64."""
        return convert(field(self.code, self.record, offset, I32)[0], I64)

    def long(self, offset: int, index: int = 0) -> Value:
        """A number of 64 bits."""
        return field(self.code, self.record, offset, I64)[index]


_LONGS = MAP_SIZE // 8


def _longs(code: Code, data: Raw) -> Memory:
    return field(code, data, 0, I64)


def _same(code: Code, one: Raw, other: Raw) -> Value:
    """Whether the bytes of two maps are the same."""
    b = code.builder
    kind = ir.VectorType(I64, _LONGS).as_pointer()
    both = [b.load(b.bitcast(each, kind)) for each in (one, other)]
    for loaded in both:
        loaded.align = 1
    changed = Value(b, both[0]) ^ Value(b, both[1])
    bits = ir.IntType(MAP_SIZE * 8)
    whole = b.bitcast(changed.raw, bits)
    return Value(b, b.icmp_unsigned("==", whole, ir.Constant(bits, 0)))


def map_place(longs: list[Value]) -> Value:
    """Where a map with these numbers of 64 bits is in the table of maps, or next to."""
    terms = (
        each * as_signed(at.map_factor(number), 64) for number, each in enumerate(longs)
    )
    return shift(reduce(lambda total, term: total + term, terms), at.MAP_SHIFT)


def _box(issue: Issue, operand: int, first: int, offset: Value, store: bool) -> Map:
    """The box of a tensor: its lines in shared memory, and its rows in the tensor."""
    step = issue.step
    form = Map(step, operand)
    issue.longs({at.TASK_MAP: form.address})
    b = issue.code.builder
    issue.task.long(at.TASK_FORM)[0] = Value(b, b.ptrtoint(form.record, I64))
    rank = shift(step.flags, RANK_AT)
    step.require(form.word(at.MAP_RANK) == convert(rank, I64))
    step.require((offset & (ALIGNMENT - 1)) == 0)
    places = [convert(convert(step.value(first + each), I32), I64) for each in range(5)]
    if store:
        for place in places:
            step.require(place >= 0)
    pitch, lines = form.word(at.MAP_PITCH), form.word(at.MAP_LINES)
    issue.in_shared(offset, lines * pitch)
    issue.words(
        {
            at.TASK_LINE: form.word(at.MAP_LINE),
            at.TASK_PITCH: pitch,
            at.TASK_LINES: lines,
            at.TASK_SWIZZLE: form.word(at.MAP_SWIZZLE),
        }
    )
    begin, row, skip = _inner(step, form, places[0], store)
    address, jump, extent = form.long(at.MAP_ADDRESS), pitch, row
    inside_, where = row > 0, memory(step, form.long(at.MAP_ADDRESS))
    address = address + begin
    for each in range(4):
        low, count = _clipped(form, each, places[each + 1])
        stride = form.long(at.MAP_STRIDES, each)
        step_ = form.long(at.MAP_STEPS, each) * stride
        address = address + places[each + 1] * stride + low * step_
        extent = extent + (count - 1) * step_
        inside_ = inside_ & (count > 0)
        skip = skip + low * jump
        issue.longs(
            {
                at.TASK_COUNTS + 8 * each: count,
                at.TASK_STEPS + 8 * each: step_,
                at.TASK_JUMPS + 8 * each: jump,
            }
        )
        jump = jump * form.long(at.MAP_COUNTS, each)
    row = select(inside_, row, 0)
    issue.rows(where, address, extent, row, store)
    issue.longs(
        {at.TASK_SKIP: skip}
        | {at.TASK_COORDINATES + 8 * i: place for i, place in enumerate(places)}
    )
    flags = issue.task.word(at.TASK_FLAGS)
    flags[0] = flags[0] | at.TENSOR
    return form


def _inner(
    step: FastStep, form: Map, place: Value, store: bool
) -> tuple[Value, Value, Value]:
    """Along dimension 0: where rows begin, their bytes, and what is before them."""
    start = place * form.word(at.MAP_ELEMENT)
    step.require((start & (UNIT - 1)) == 0)
    begin = larger(start, 0)
    limit = form.long(at.MAP_WIDTH)
    if store:  # it moves whole units
        limit = ((limit + UNIT - 1) >> 4) << 4
    size = larger(smaller(start + form.word(at.MAP_LINE), limit) - begin, 0)
    return begin, size, begin - start


def _clipped(form: Map, each: int, place: Value) -> tuple[Value, Value]:
    """Along another dimension: the first line that is inside, and how many are."""
    size, by = form.long(at.MAP_SIZES, each), form.long(at.MAP_STEPS, each)
    low = larger(place.lift(0) - place + by - 1, 0) // by
    left = larger(size - place + by - 1, 0) // by
    high = smaller(form.long(at.MAP_COUNTS, each), left)
    return low, larger(high - low, 0)


# ── instructions ────────────────────────────────────────────────────────────


def _tensor_load(step: FastStep) -> Value:
    """Operands: the goal, the map, the mbarrier, the mask, five coordinates."""
    issue = Issue(step, at.LOAD)
    rank, offset = issue.shared(0)
    form = _box(issue, 1, 4, offset, store=False)
    ranks = issue.ranks(3, rank)
    issue.words({at.TASK_RANKS: ranks, at.TASK_SHARED: offset})
    issue.signals(2, rank, ranks, form.word(at.MAP_BYTES))
    return issue.issue()


def _tensor_store(step: FastStep) -> Value:
    """Operands: the map, the source, five coordinates."""
    issue = Issue(step, at.STORE)
    rank, offset = issue.shared(1)
    form = _box(issue, 0, 2, offset, store=True)
    operation = convert(shift(step.flags, at.OPERATION_AT) & 0xFF, I64)
    code = field(step.code, form.record, at.MAP_REDUCE, I64)[operation]
    step.require((operation == 0) | (code != 0))
    issue.words({at.TASK_RANKS: rank.lift(1) << rank, at.TASK_SHARED: offset})
    issue.grouped()
    return issue.issue()


def _size(issue: Issue, operand: int) -> Value:
    """The bytes of a bulk copy."""
    size = issue.step.value(operand) & 0xFFFFFFFF
    issue.step.require(((size & (UNIT - 1)) == 0) & (size > 0))
    return size


def _bulk_load(step: FastStep) -> Value:
    """Operands: the goal, the source, the size, the mbarrier, the mask."""
    issue = Issue(step, at.LOAD)
    size = _size(issue, 2)
    rank, offset = issue.shared(0)
    issue.plain(False, step.value(1), size)
    step.require((offset & (UNIT - 1)) == 0)
    issue.in_shared(offset, size)
    ranks = issue.ranks(4, rank)
    issue.words({at.TASK_RANKS: ranks, at.TASK_SHARED: offset})
    issue.signals(3, rank, ranks, size)
    return issue.issue()


def _bulk_store(step: FastStep) -> Value:
    """Operands: the goal, the source, the size."""
    issue = Issue(step, at.STORE)
    size = _size(issue, 2)
    rank, offset = issue.shared(1)
    step.require((offset & (UNIT - 1)) == 0)
    issue.in_shared(offset, size)
    issue.plain(True, step.value(0), size)
    issue.words({at.TASK_RANKS: rank.lift(1) << rank, at.TASK_SHARED: offset})
    issue.grouped()
    return issue.issue()


def _exchange(step: FastStep) -> Value:
    """Operands: the goal, the source, the size, the mbarrier."""
    issue = Issue(step, at.EXCHANGE)
    step.require(step.word(step.cluster, layout.CLUSTER_BLOCKS)[0] > 1)
    size = _size(issue, 2)
    rank, offset = issue.shared(0)
    own, source = issue.shared(1, step.lanes.lift(OWN))
    for place in (offset, source):
        step.require((place & (UNIT - 1)) == 0)
        issue.in_shared(place, size)
    issue.flat(size)
    ranks = rank.lift(1) << rank
    issue.words(
        {
            at.TASK_RANKS: ranks,
            at.TASK_SHARED: offset,
            at.TASK_SOURCE: own << RANK_BITS | convert(source, I32),
        }
    )
    issue.signals(3, rank, ranks, size)
    return issue.issue()


def _tensor_prefetch(step: FastStep) -> Value:
    """A hint: the map, five coordinates."""
    form = Map(step, 0)
    rank = convert(shift(step.flags, RANK_AT), I64)
    step.require(form.word(at.MAP_RANK) == rank)
    place = convert(convert(step.value(1), I32), I64)
    start = place * form.word(at.MAP_ELEMENT)
    step.require((start & (UNIT - 1)) == 0)
    return step.lanes


def _bulk_prefetch(step: FastStep) -> Value:
    """A hint: the source, the size."""
    step.require(((step.value(0) | step.value(1)) & (UNIT - 1)) == 0)
    return step.lanes


TENSOR_LOAD = fast_path("units.copy.tensor_load", _tensor_load)
TENSOR_STORE = fast_path("units.copy.tensor_store", _tensor_store)
BULK_LOAD = fast_path("units.copy.bulk_load", _bulk_load)
BULK_STORE = fast_path("units.copy.bulk_store", _bulk_store)
EXCHANGE = fast_path("units.copy.exchange", _exchange)
TENSOR_PREFETCH = fast_path("units.copy.tensor_prefetch", _tensor_prefetch)
BULK_PREFETCH = fast_path("units.copy.bulk_prefetch", _bulk_prefetch)

ROUTINES = (
    TENSOR_LOAD,
    TENSOR_STORE,
    BULK_LOAD,
    BULK_STORE,
    EXCHANGE,
    TENSOR_PREFETCH,
    BULK_PREFETCH,
)
