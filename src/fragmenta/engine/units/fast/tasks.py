"""Tasks: copies in flight that machine code issued, and finishes.

:data:`ISSUE` begins a task: it does it at once, or keeps it in flight.  :data:`FINISH`
does what is left of one, :data:`WANTED` all that an mbarrier counts, :data:`TAKE` reads
the source of one.  Every piece of memory is bounded again when it is moved.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from fragmenta.base.jit.llvm import Builder, Raw, Type
from fragmenta.base.jit.trace import (
    I1,
    I16,
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    intrinsic,
    select,
    smaller,
)
from fragmenta.engine.simt.layout import POISON
from fragmenta.engine.simt.library import POINTER, Routine, field, pointer_at
from fragmenta.engine.simt.memory import AddressRange, inside, segment
from fragmenta.engine.simt.warps import P, clear_memory, repeat, routine
from fragmenta.engine.units.fast import layout, tensor_cells
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.fast import tensor_layout as tensors
from fragmenta.engine.units.fast.step import (
    FastMbarrier,
    FastStep,
    declared,
    note,
    observe,
    shift,
    woke,
)
from fragmenta.engine.units.fast.tensor_products import MULTIPLY
from fragmenta.reference.shared.swizzles import exchanged

UNIT = 16
WIDE = ir.VectorType(I16, UNIT // 2)


class FastTask:
    """The record of a task, as compiled code reads and writes it."""

    def __init__(self, code: Code, cluster: Raw, record: Raw) -> None:
        self.code, self.cluster, self.record = code, cluster, record
        self.pool = pointer_at(code, cluster, layout.CLUSTER_TASKS)

    def word(self, offset: int) -> Memory:
        """A word of 32 bits."""
        return field(self.code, self.record, offset, I32)

    def long(self, offset: int) -> Memory:
        """A word of 64 bits."""
        return field(self.code, self.record, offset, I64)

    def number(self, offset: int) -> Value:
        """A word of 32 bits as a number of 64."""
        return convert(self.word(offset)[0], I64)

    def pointer(self, offset: int) -> Raw:
        """A pointer in it."""
        return pointer_at(self.code, self.record, offset)

    def in_pool(self, offset: int) -> Memory:
        """A word of the pool."""
        return field(self.code, self.pool, offset, I32)

    def other(self, index: Value) -> FastTask:
        """Another task of the pool."""
        return task_at(self.code, self.cluster, index)

    @property
    def _who(self) -> tuple[Raw, Raw, Raw, Raw]:
        """Block, warp, event and lanes that issued it."""
        return (
            self.pointer(at.TASK_BLOCK),
            self.pointer(at.TASK_WARP),
            self.pointer(at.TASK_EVENT),
            self.word(at.TASK_LANES)[0].raw,
        )

    def observe(self, call: int, number: Value | int = 0) -> None:
        """Call a function of the observer about this task."""
        observe(self.code, self.cluster, call, self._who, self.record, number)

    def note(self, kind: int, number: Value | int = 0) -> None:
        """Tell a recorder what has happened to this task."""
        note(self.code, self.cluster, kind, self._who, self.record, number)

    def state_of(self, rank: Value) -> Raw:
        """The state of a block of the cluster."""
        peers = field(self.code, self.cluster, layout.CLUSTER_PEERS, POINTER)
        found: Raw = peers[convert(rank, I64)].raw
        return found

    def mbarrier(self, rank: Value) -> FastMbarrier:
        """The mbarrier of a block that it signals."""
        code, state = self.code, self.state_of(rank)
        b = code.builder
        out = b.block  # nothing is required of it any more
        step = FastStep(
            code,
            self.pointer(at.TASK_BLOCK),
            self.pointer(at.TASK_WARP),
            self.pointer(at.TASK_EVENT),
            self.word(at.TASK_LANES)[0],
            out,
        )
        offset = self.number(at.TASK_MBARRIER)
        records = pointer_at(code, state, layout.STATE_MBARRIERS)
        record = b.gep(records, [(offset * (layout.MBARRIER_BYTES // 8)).raw])
        shared = pointer_at(code, state, layout.STATE_SHARED)
        bits = b.bitcast(b.gep(shared, [offset.raw]), I64.as_pointer())
        return FastMbarrier(step, state, record, Memory(b, bits, I64))


def task_at(code: Code, cluster: Raw, index: Value) -> FastTask:
    """A task by its number in the pool."""
    b = code.builder
    pool = pointer_at(code, cluster, layout.CLUSTER_TASKS)
    place = convert(index, I64) * at.TASK_RECORD + at.POOL_TASKS
    return FastTask(code, cluster, b.gep(pool, [place.raw]))


def each_rank(code: Code, mask: Value, do: Callable[[Value], None]) -> None:
    """Do something for each block in a mask, by its rank."""
    left = code.variable(mask)
    with code.when(mask != 0), repeat(code) as again:
        now = left.value
        zero = ir.Constant(I1, 0)
        do(
            Value(
                code.builder,
                intrinsic(code.builder, "llvm.cttz.i32", I32, [now.raw, zero]),
            )
        )
        left.value = now & (now - 1)
        again(left.value != 0)


def call(code: Code, of: Routine, *given: Raw, returns: Type | None = None) -> Raw:
    """Call another routine."""
    b = code.builder
    kind = ir.FunctionType(returns or ir.VoidType(), [each.type for each in given])
    return b.call(declared(b.module, of.name, kind), list(given))


# ── bytes ───────────────────────────────────────────────────────────────────


def _unit(code: Code, base: Raw, place: Value) -> Raw:
    b = code.builder
    return b.bitcast(b.gep(base, [place.raw]), WIDE.as_pointer())


def _fill(code: Code, task: FastTask, base: Raw, pattern: Value) -> None:
    """Fill all lines of a box in shared memory with 16 bits, again and again."""
    b, first = code.builder, task.number(at.TASK_SHARED)
    units = task.number(at.TASK_LINE) >> 4
    pitch, changed = task.number(at.TASK_PITCH), task.number(at.TASK_SWIZZLE)
    wide = convert(pattern, I16).in_all_lanes(UNIT // 2)
    with (
        code.loop(task.number(at.TASK_LINES)) as line,
        code.loop(units) as unit,
    ):
        place = exchanged(first + line * pitch + (unit << 4), changed)
        b.store(wide.raw, _unit(code, base, place)).align = 1


def _extent(task: FastTask) -> Value:
    """The bytes from the first row in global memory to the end of the last."""
    counts, steps = task.long(at.TASK_COUNTS), task.long(at.TASK_STEPS)
    total = task.long(at.TASK_ROW)[0]
    for each in range(4):
        total = total + (counts[each] - 1) * steps[each]
    return total


def _each_row(code: Code, task: FastTask, do: Callable[[Value, Value], None]) -> None:
    """Do something for each row: where it is in global memory, and in the box."""
    counts, steps = task.long(at.TASK_COUNTS), task.long(at.TASK_STEPS)
    jumps = task.long(at.TASK_JUMPS)
    first, skip = task.long(at.TASK_FIRST)[0], task.long(at.TASK_SKIP)[0]
    with (
        code.loop(counts[3]) as i3,
        code.loop(counts[2]) as i2,
        code.loop(counts[1]) as i1,
        code.loop(counts[0]) as i0,
    ):
        there, here = first, task.number(at.TASK_SHARED) + skip
        for each, index in enumerate((i0, i1, i2, i3)):
            there = there + index * steps[each]
            here = here + index * jumps[each]
        do(there, here)


def _global(code: Code, task: FastTask) -> tuple[AddressRange, Value]:
    """The global memory of a task, and whether all of its rows are in it."""
    where = segment(code, task.pointer(at.TASK_BLOCK), task.long(at.TASK_FIRST)[0])
    some = task.long(at.TASK_ROW)[0] > 0
    return where, some & inside(where, task.long(at.TASK_FIRST)[0], _extent(task))


def _host(code: Code, where: AddressRange, address: Value) -> Raw:
    place = where.base + (address - where.start)
    return code.builder.inttoptr(place.raw, POINTER)


def _fits(task: FastTask, size: Value) -> Value:
    """Whether the lines of a task are in shared memory of this size."""
    first, lines = task.number(at.TASK_SHARED), task.number(at.TASK_LINES)
    end = first + lines * task.number(at.TASK_PITCH)
    good: Value = (first >= 0) & (lines >= 0) & (end <= size)
    return good


def _copy_rows(
    code: Code, task: FastTask, base: Raw, where: AddressRange, loads: bool
) -> None:
    """Copy all rows between global memory and the lines of a box."""
    b, row = code.builder, task.long(at.TASK_ROW)[0]
    changed = task.number(at.TASK_SWIZZLE)
    plain = changed == 0

    def one(there: Value, here: Value) -> None:
        memory = _host(code, where, there)
        with code.when(plain):
            place = b.gep(base, [here.raw])
            move(b, *((place, memory) if loads else (memory, place)), row.raw)
        with code.when(~plain):
            with code.loop(row >> 4) as unit:
                image = _unit(code, base, exchanged(here + (unit << 4), changed))
                other = _unit(code, memory, unit << 4)
                source, goal = (other, image) if loads else (image, other)
                loaded = b.load(source)
                loaded.align = 1
                b.store(loaded, goal).align = 1
            if loads:  # a store moves whole units
                whole = (row >> 4) << 4
                image = b.gep(base, [exchanged(here + whole, changed).raw])
                with code.loop(row - whole) as byte:
                    from_ = b.gep(memory, [(whole + byte).raw])
                    b.store(b.load(from_), b.gep(image, [byte.raw]))

    _each_row(code, task, one)


def move(b: Builder, goal: Raw, source: Raw, size: Raw) -> None:
    """Copy bytes, which may overlap."""
    kind = ir.FunctionType(ir.VoidType(), [POINTER, POINTER, I64, I1])
    function = declared(b.module, "llvm.memmove.p0.p0.i64", kind)
    b.call(function, [goal, source, size, ir.Constant(I1, 0)])


# ── moving ──────────────────────────────────────────────────────────────────


def _load(code: Code, task: FastTask) -> None:
    """Global to shared memory, of each block that it goes to."""
    where, some = _global(code, task)
    counts = task.long(at.TASK_COUNTS)
    rows = task.long(at.TASK_ROW)[0]
    for each in range(4):
        rows = rows * counts[each]
    whole = task.number(at.TASK_LINE) * task.number(at.TASK_LINES)
    outside = (rows != whole) | ~some

    def one(rank: Value) -> None:
        state = task.state_of(rank)
        base = pointer_at(code, state, layout.STATE_SHARED)
        size = field(code, state, layout.STATE_SHARED_SIZE, I64)[0]
        with code.when(_fits(task, size)):
            with code.when(outside):
                form = task.pointer(at.TASK_FORM)
                # Without a map nothing is outside.
                _fill(code, task, base, field(code, form, at.MAP_FILL, I32)[0])
            with code.when(some):
                _copy_rows(code, task, base, where, True)

    each_rank(code, task.word(at.TASK_RANKS)[0], one)


def _source(code: Code, task: FastTask) -> tuple[Raw, Value]:
    """Where a task reads shared memory, and its size: an image once it was read."""
    b, taken = code.builder, task.word(at.TASK_STATE)[0] == at.TAKEN
    state = task.state_of(task.word(at.TASK_RANK)[0])
    shared = pointer_at(code, state, layout.STATE_SHARED)
    size = field(code, state, layout.STATE_SHARED_SIZE, I64)[0]
    window, _ = _window(task)
    image = task.pointer(at.TASK_IMAGE)
    before = b.gep(image, [(window.lift(0) - window).raw])
    return b.select(taken.raw, before, shared), size


def _window(task: FastTask) -> tuple[Value, Value]:
    """Where the window of shared memory with the box begins, and its bytes."""
    first = task.number(at.TASK_SHARED)
    begin = first & -at.PATTERN
    lines = task.number(at.TASK_LINES) * task.number(at.TASK_PITCH)
    return begin, first - begin + lines


def _store(code: Code, task: FastTask) -> None:
    """Shared to global memory."""
    where, some = _global(code, task)
    base, size = _source(code, task)
    operation = shift(task.word(at.TASK_FLAGS)[0], at.OPERATION_AT)
    allowed = some & _fits(task, size) & ((where.flags & 1) == 0)
    with code.when(allowed & (operation == 0)):
        _copy_rows(code, task, base, where, False)
    with code.when(allowed & (operation != 0)):
        _reduce(code, task, where, base, convert(operation, I64))


REDUCE = ir.FunctionType(
    ir.VoidType(),
    [
        POINTER,
        I64.as_pointer(),
        I64.as_pointer(),
        POINTER,
        I64,
        I64,
        POINTER,
        I64,
        I64,
        I64.as_pointer(),
    ],
)
"""The code of a reduction: :func:`fragmenta.engine.simt.boxes.compiled`."""


def _reduce(
    code: Code, task: FastTask, where: AddressRange, base: Raw, number: Value
) -> None:
    """Combine a box with global memory."""
    b, form = code.builder, task.pointer(at.TASK_FORM)
    function = field(code, form, at.MAP_REDUCE, POINTER)[number].raw
    report = code.array(I64, 2)
    window, size = _window(task)
    known = b.icmp_unsigned("!=", function, ir.Constant(POINTER, None))
    with b.if_then(known):
        b.call(
            b.bitcast(function, REDUCE.as_pointer()),
            [
                b.gep(form, [ir.Constant(I32, at.MAP_DATA)]),
                task.long(at.TASK_COORDINATES).raw,
                report,
                b.inttoptr(where.base.raw, POINTER),
                where.size.raw,
                where.start.raw,
                b.gep(base, [window.raw]),
                size.raw,
                (task.number(at.TASK_SHARED) - window).raw,
                report,
            ],
        )


def _exchange(code: Code, task: FastTask) -> None:
    """Shared to shared memory of blocks of the cluster."""
    b, size = code.builder, task.number(at.TASK_LINE)
    source = task.word(at.TASK_SOURCE)[0]
    state = task.state_of(shift(source, 24))
    offset = convert(source & (1 << 24) - 1, I64)
    first, most = (
        pointer_at(code, state, layout.STATE_SHARED),
        field(code, state, layout.STATE_SHARED_SIZE, I64)[0],
    )

    def one(rank: Value) -> None:
        goal = task.state_of(rank)
        base = pointer_at(code, goal, layout.STATE_SHARED)
        there = field(code, goal, layout.STATE_SHARED_SIZE, I64)[0]
        with code.when(_fits(task, there) & (offset + size <= most)):
            to = b.gep(base, [task.number(at.TASK_SHARED).raw])
            move(b, to, b.gep(first, [offset.raw]), size.raw)

    each_rank(code, task.word(at.TASK_RANKS)[0], one)


def _each_lane(code: Code, task: FastTask, do: Callable[[Value, Raw], None]) -> None:
    """Do something for each lane of ``cp.async``: its number, and where it writes."""
    b, size = code.builder, task.number(at.TASK_LINE)
    state = task.state_of(task.word(at.TASK_RANK)[0])
    shared = pointer_at(code, state, layout.STATE_SHARED)
    most = field(code, state, layout.STATE_SHARED_SIZE, I64)[0]

    def one(lane: Value) -> None:
        number = convert(lane, I64)
        goal = convert(task.word(at.TASK_GOALS)[number], I64)
        with code.when((goal >= 0) & (goal + size <= most)):
            do(number, b.gep(shared, [goal.raw]))

    each_rank(code, task.word(at.TASK_LANES)[0], one)


def _lane_copy(code: Code, task: FastTask) -> None:
    """Some bytes of each lane, with zeros after them."""
    b, size = code.builder, task.number(at.TASK_LINE)
    block = task.pointer(at.TASK_BLOCK)

    def one(lane: Value, goal: Raw) -> None:
        source = task.long(at.TASK_SOURCES)[lane]
        count = convert(task.word(at.TASK_COUNTED)[lane], I64)
        clear_memory(b, goal, size.raw)
        where = segment(code, block, source)
        with code.when((count > 0) & (count <= size) & inside(where, source, count)):
            move(b, goal, _host(code, where, source), count.raw)

    _each_lane(code, task, one)


def _move(code: Code, cluster: Raw, record: Raw) -> None:
    """Move the bytes of a task."""
    task = FastTask(code, cluster, record)
    kind = task.word(at.TASK_KIND)[0]
    for number, do in (
        (at.LOAD, _load),
        (at.STORE, _store),
        (at.EXCHANGE, _exchange),
        (at.LANE_COPY, _lane_copy),
        (at.CELLS, _cells),
    ):
        with code.when(kind == number):
            do(code, task)


def _cells(code: Code, task: FastTask) -> None:
    """The registers of a warp to cells of tensor memory."""
    tensor_cells.write(code, _tensor(code, task), task.pointer(at.TASK_IMAGE))


def _tensor(code: Code, task: FastTask) -> Raw:
    return code.builder.gep(task.record, [ir.Constant(I32, at.TASK_TENSOR)])


MOVE = routine("units.task.move", _move, [P, P], None)


def _poison(code: Code, cluster: Raw, record: Raw) -> None:
    """Fill what a task will write with poison."""
    task = FastTask(code, cluster, record)
    kind, b = task.word(at.TASK_KIND)[0], code.builder
    pattern = code.constant(POISON & 0xFFFF, I32)

    def one(rank: Value) -> None:
        state = task.state_of(rank)
        size = field(code, state, layout.STATE_SHARED_SIZE, I64)[0]
        with code.when(_fits(task, size)):
            _fill(code, task, pointer_at(code, state, layout.STATE_SHARED), pattern)

    with code.when((kind == at.LOAD) | (kind == at.EXCHANGE)):
        each_rank(code, task.word(at.TASK_RANKS)[0], one)
    plain = shift(task.word(at.TASK_FLAGS)[0], at.OPERATION_AT) == 0
    where, some = _global(code, task)
    wide = convert(pattern, I16).in_all_lanes(UNIT // 2)

    def row(there: Value, here: Value) -> None:
        memory = _host(code, where, there)
        with code.loop(task.long(at.TASK_ROW)[0] >> 4) as unit:
            b.store(wide.raw, _unit(code, memory, unit << 4)).align = 1

    with code.when((kind == at.STORE) & plain & some & ((where.flags & 1) == 0)):
        _each_row(code, task, row)

    def lane(number: Value, goal: Raw) -> None:
        words = Memory(b, b.bitcast(goal, I32.as_pointer()), I32)
        with code.loop(task.number(at.TASK_LINE) >> 2) as word:
            words[word] = code.constant(POISON, I32)

    with code.when(kind == at.LANE_COPY):
        _each_lane(code, task, lane)
    _hide(code, task, 1)


def _hide(code: Code, task: FastTask, by: int) -> None:
    """Hide the cells that a task will write, or show them again."""
    kind = task.word(at.TASK_KIND)[0]
    with code.when(kind == at.CELLS):
        tensor_cells.hide_store(code, _tensor(code, task), by)
    with code.when(kind == at.PRODUCT):
        tensor_cells.hide_product(code, _tensor(code, task), by)


POISONED = routine("units.task.poison", _poison, [P, P], None)


def each_written(
    code: Code, cluster: Raw, record: Raw, do: Callable[[Raw, Value], None]
) -> None:
    """Do something with each piece of memory that a task writes: where it is, its size.

    A box in shared memory is one piece for each block, in whole units of its swizzle.
    Of other memory, a piece is a row, what a lane copies, or the cells of a lane.
    """
    task = FastTask(code, cluster, record)
    kind, b = task.word(at.TASK_KIND)[0], code.builder

    def box(rank: Value) -> None:
        state = task.state_of(rank)
        size = field(code, state, layout.STATE_SHARED_SIZE, I64)[0]
        with code.when(_fits(task, size)):
            begin = task.number(at.TASK_SHARED) & -at.EXCHANGED
            lines = task.number(at.TASK_LINES) * task.number(at.TASK_PITCH)
            end = task.number(at.TASK_SHARED) + lines + at.EXCHANGED - 1
            end = smaller(end & -at.EXCHANGED, size)
            shared = pointer_at(code, state, layout.STATE_SHARED)
            do(b.gep(shared, [begin.raw]), end - begin)

    with code.when((kind == at.LOAD) | (kind == at.EXCHANGE)):
        each_rank(code, task.word(at.TASK_RANKS)[0], box)
    where, some = _global(code, task)
    with code.when((kind == at.STORE) & some & ((where.flags & 1) == 0)):
        row = task.long(at.TASK_ROW)[0]
        _each_row(code, task, lambda there, _: do(_host(code, where, there), row))
    with code.when(kind == at.LANE_COPY):
        line = task.number(at.TASK_LINE)
        _each_lane(code, task, lambda _, goal: do(goal, line))

    def cells(tensor: Raw, region: tensor_cells.CellRegion) -> None:
        image = pointer_at(code, tensor, tensors.TENSOR_IMAGE)
        size = region.columns * 4
        region.each_lane(lambda first: do(b.gep(image, [(first * 4).raw]), size))

    each_region(code, cluster, record, cells)


def each_region(
    code: Code,
    cluster: Raw,
    record: Raw,
    do: Callable[[Raw, tensor_cells.CellRegion], None],
) -> None:
    """Do something with the cells that a task writes: in which memory, and which."""
    task = FastTask(code, cluster, record)
    kind, tensor = task.word(at.TASK_KIND)[0], _tensor(code, task)
    with code.when(kind == at.CELLS):
        tensor_cells.each_store_region(code, tensor, do)
    with code.when(kind == at.PRODUCT):
        tensor_cells.each_product_region(code, tensor, do)


# ── from issue to end ───────────────────────────────────────────────────────


def _complete(code: Code, cluster: Raw, record: Raw) -> None:
    """Do a task: it moves its bytes, and signals."""
    task = FastTask(code, cluster, record)
    changes = field(code, cluster, layout.CLUSTER_CHANGES, I64)
    changes[0] = changes[0] + 1
    woke(code, cluster)
    with code.when(task.word(at.TASK_KIND)[0] < at.CELLS):
        task.observe(layout.PORT_COPIED)
    call(code, MOVE, cluster, record)
    task.note(layout.NOTE_DONE)

    def one(rank: Value) -> None:
        mbarrier = task.mbarrier(rank)
        left = mbarrier.word(layout.MBARRIER_TASKS)
        left[0] = left[0] - smaller(left[0], 1)
        where = code.builder.ptrtoint(mbarrier.record, I64)
        task.observe(layout.PORT_SIGNAL, Value(code.builder, where))
        for offset, count in (
            (layout.MBARRIER_TX, at.TASK_BYTES),
            (layout.MBARRIER_PENDING, at.TASK_ARRIVALS),
        ):
            word = mbarrier.word(offset)
            word[0] = word[0] - task.word(count)[0]
        mbarrier.settle()

    each_rank(code, task.word(at.TASK_SIGNALS)[0], one)
    # The record is free again.
    with code.when(task.word(at.TASK_STATE)[0] == at.TAKEN):
        images = task.in_pool(at.POOL_TAKEN)
        images[0] = images[0] - 1
        used = field(code, task.pool, at.POOL_USED, I64)
        used[0] = select(images[0] == 0, used[0].lift(0), used[0])
    task.word(at.TASK_STATE)[0] = code.constant(at.FREE, I32)
    free = task.in_pool(at.POOL_FREE)
    task.word(at.TASK_NEXT)[0] = free[0]
    free[0] = task.word(at.TASK_INDEX)[0]


COMPLETE = routine("units.task.complete", _complete, [P, P], None)


def _issue(code: Code, cluster: Raw, record: Raw) -> None:
    """Begin the first free task, whose record says everything about it."""
    task = FastTask(code, cluster, record)
    ordinal = field(code, cluster, layout.CLUSTER_ORDINAL, I64)
    task.in_pool(at.POOL_FREE)[0] = task.word(at.TASK_NEXT)[0]
    ordinal[0] = ordinal[0] + 1
    task.long(at.TASK_ORDINAL)[0] = ordinal[0]
    # A store to tensor memory has read its registers.
    cells = task.word(at.TASK_KIND)[0] == at.CELLS
    task.word(at.TASK_STATE)[0] = select(
        cells, code.constant(at.TAKEN, I32), at.IN_FLIGHT
    )

    def counted(rank: Value) -> None:
        word = task.mbarrier(rank).word(layout.MBARRIER_TASKS)
        word[0] = word[0] + 1

    each_rank(code, task.word(at.TASK_SIGNALS)[0], counted)
    queue, b = task.pointer(at.TASK_QUEUE), code.builder
    with b.if_then(b.icmp_unsigned("!=", queue, ir.Constant(POINTER, None))):
        field(code, queue, at.QUEUE_THERE, I32)[0] = code.constant(1, I32)
        task.word(at.TASK_GROUP)[0] = field(code, queue, at.QUEUE_EPOCH, I32)[0]
    with code.when(task.word(at.TASK_KIND)[0] < at.CELLS):
        task.observe(layout.PORT_COPY)
    task.note(layout.NOTE_ISSUED, _epoch(code, task))
    eager = field(code, cluster, layout.CLUSTER_SCHEDULE, I32)[0] == layout.EAGER
    with code.when(eager):
        call(code, COMPLETE, cluster, record)
    with code.when(~eager):
        call(code, POISONED, cluster, record)
        task.note(layout.NOTE_HIDDEN)
        _link(code, task)


def _epoch(code: Code, task: FastTask) -> Value:
    """The epoch of its groups in which a task was issued; -1 if it is in none.

    For ``cp.async`` it is that of the observer: arrivals begin new ones, too.
    """
    queue, b = task.pointer(at.TASK_QUEUE), code.builder
    found = code.variable(code.constant(-1, I64))
    kind = task.word(at.TASK_KIND)[0]
    with b.if_then(b.icmp_unsigned("!=", queue, ir.Constant(POINTER, None))):
        with code.when(kind < at.LANE_COPY):
            found.value = task.number(at.TASK_GROUP)
        with code.when(kind == at.LANE_COPY):
            marks = field(code, queue, at.LANES_MARKS, I32)[0]
            found.value = convert(marks, I64)
    return found.value


def _link(code: Code, task: FastTask) -> None:
    """Put a task at the end of the list of those in flight."""
    first, last = task.in_pool(at.POOL_FIRST), task.in_pool(at.POOL_LAST)
    own, before = task.word(at.TASK_INDEX)[0], last[0]
    task.word(at.TASK_PREVIOUS)[0] = before
    task.word(at.TASK_NEXT)[0] = own.lift(-1)
    with code.when(before >= 0):
        task.other(before).word(at.TASK_NEXT)[0] = own
    first[0] = select(before >= 0, first[0], own)
    last[0] = own
    count = task.in_pool(at.POOL_COUNT)
    count[0] = count[0] + 1


def _unlink(code: Code, task: FastTask) -> None:
    """Take a task out of that list."""
    first, last = task.in_pool(at.POOL_FIRST), task.in_pool(at.POOL_LAST)
    before = task.word(at.TASK_PREVIOUS)[0]
    after = task.word(at.TASK_NEXT)[0]
    with code.when(before >= 0):
        task.other(before).word(at.TASK_NEXT)[0] = after
    with code.when(after >= 0):
        task.other(after).word(at.TASK_PREVIOUS)[0] = before
    first[0] = select(before >= 0, first[0], after)
    last[0] = select(after >= 0, last[0], before)
    count = task.in_pool(at.POOL_COUNT)
    count[0] = count[0] - 1


ISSUE = routine("units.task.issue", _issue, [P, P], None)


def _finish_before(code: Code, arrival: FastTask) -> None:
    """Finish the ``cp.async`` that an arrival waits for."""
    own, queue = arrival.long(at.TASK_ORDINAL)[0], arrival.long(at.TASK_FORM)[0]
    now = code.variable(arrival.in_pool(at.POOL_FIRST)[0])
    with repeat(code) as again:  # the arrival itself is in the list
        task = arrival.other(now.value)
        now.value = task.word(at.TASK_NEXT)[0]
        mine = task.long(at.TASK_QUEUE)[0] == queue
        with code.when(mine & (task.long(at.TASK_ORDINAL)[0] < own)):
            call_finish(code, arrival.cluster, task.record)
        again(now.value >= 0)


def _finish_queue(code: Code, last: FastTask, queue: Value) -> Value:
    """Finish what a thread issued to the Tensor Cores before a task; 0 if it is done.

    Only a commit waits for earlier commits.
    """
    own = last.long(at.TASK_ORDINAL)[0]
    commits = last.word(at.TASK_KIND)[0] == at.COMMIT
    failed = code.variable(code.constant(0, I32))
    now = code.variable(last.in_pool(at.POOL_FIRST)[0])
    with repeat(code) as again:  # the task itself is in the list
        task = last.other(now.value)
        now.value = task.word(at.TASK_NEXT)[0]
        signals = task.word(at.TASK_KIND)[0] == at.COMMIT
        mine = (task.long(at.TASK_QUEUE)[0] == queue) | (
            commits & signals & (task.long(at.TASK_FORM)[0] == queue)
        )
        older = task.long(at.TASK_ORDINAL)[0] < own
        with code.when(mine & older):
            failed.value = call_finish(code, last.cluster, task.record)
        again((now.value >= 0) & older & (failed.value == 0))
    return failed.value


def call_finish(code: Code, cluster: Raw, record: Raw) -> Value:
    """Finish a task; 0 if that could be done."""
    return Value(code.builder, call(code, FINISH, cluster, record, returns=I32))


def _ready(code: Code, task: FastTask) -> Value:
    """Do what must be done before a task, and compute a product; 0 if that is done.

    Otherwise the pool says which task Python has to look at.
    """
    kind = task.word(at.TASK_KIND)[0]
    failed = code.variable(code.constant(0, I32))
    own = code.variable(code.constant(0, I32))
    with code.when(kind == at.ARRIVAL):
        _finish_before(code, task)
    with code.when(kind == at.PRODUCT):
        failed.value = _finish_queue(code, task, task.long(at.TASK_QUEUE)[0])
        computed = (task.word(at.TASK_FLAGS)[0] & at.COMPUTED) != 0
        with code.when((failed.value == 0) & ~computed):
            product = _tensor(code, task)
            own.value = Value(code.builder, call(code, MULTIPLY, product, returns=I32))
    with code.when(kind == at.COMMIT):
        failed.value = _finish_queue(code, task, task.long(at.TASK_FORM)[0])
        with code.when(failed.value == 0):

            def pending(rank: Value) -> None:
                left = task.mbarrier(rank).word(layout.MBARRIER_PENDING)[0]
                few = left < task.word(at.TASK_ARRIVALS)[0]
                own.value = convert(few, I32, signed=False)

            each_rank(code, task.word(at.TASK_SIGNALS)[0], pending)
    with code.when(own.value != 0):
        task.in_pool(at.POOL_BLOCKED)[0] = task.word(at.TASK_INDEX)[0]
    return failed.value | own.value


def _finish(code: Code, cluster: Raw, record: Raw) -> Value:
    """Do what is left of a task that is in flight; nothing if it is done.

    The result is 0, or 1 if Python has to do something first.
    """
    task = FastTask(code, cluster, record)
    failed = code.variable(code.constant(0, I32))
    with code.when(task.word(at.TASK_STATE)[0] != at.FREE):
        failed.value = _ready(code, task)
        with code.when(failed.value == 0):
            _unlink(code, task)
            _hide(code, task, -1)
            call(code, COMPLETE, cluster, record)
    return failed.value


FINISH = routine("units.task.finish", _finish, [P, P], I32)


def _wanted(code: Code, cluster: Raw, rank: Value, offset: Value) -> Value:
    """Finish all tasks that an mbarrier counts, the oldest first; 0 if that is done."""
    pool = pointer_at(code, cluster, layout.CLUSTER_TASKS)
    failed = code.variable(code.constant(0, I32))
    with repeat(code) as again:
        # A task that is done may have finished others.
        now = code.variable(field(code, pool, at.POOL_FIRST, I32)[0])
        found = code.variable(rank.lift(-1))
        with code.when(now.value >= 0), repeat(code) as more:
            task = task_at(code, cluster, now.value)
            signals = (task.word(at.TASK_SIGNALS)[0] >> rank) & 1
            here = (signals != 0) & (task.word(at.TASK_MBARRIER)[0] == offset)
            found.value = select(here, now.value, found.value)
            now.value = task.word(at.TASK_NEXT)[0]
            more((now.value >= 0) & (found.value < 0))
        with code.when(found.value >= 0):
            record = task_at(code, cluster, found.value).record
            failed.value = call_finish(code, cluster, record)
        again((found.value >= 0) & (failed.value == 0))
    return failed.value


WANTED = routine("units.task.wanted", _wanted, [P, I32, I32], I32)


def image_bytes(task: FastTask) -> Value:
    """How much memory the image of a task needs."""
    _, size = _window(task)
    needed: Value = (size + 63) & -64
    return select(task.word(at.TASK_STATE)[0] == at.IN_FLIGHT, needed, 0)


def _take(code: Code, cluster: Raw, record: Raw, given: Raw) -> None:
    """Read the source of a task, if that was not done before.

    Where to is given, or in the arena, which must have room.
    """
    b, task = code.builder, FastTask(code, cluster, record)
    state = task.word(at.TASK_STATE)
    with code.when(state[0] == at.IN_FLIGHT):
        base, size = _source(code, task)
        window, count = _window(task)
        used = field(code, task.pool, at.POOL_USED, I64)
        arena = pointer_at(code, task.pool, at.POOL_ARENA)
        own = b.icmp_unsigned("==", given, ir.Constant(POINTER, None))
        image = b.select(own, b.gep(arena, [used[0].raw]), given)
        needed = image_bytes(task)
        used[0] = select(Value(b, own), used[0] + needed, used[0])
        with code.when(_fits(task, size)):
            move(b, image, b.gep(base, [window.raw]), count.raw)
        task.long(at.TASK_IMAGE)[0] = Value(b, b.ptrtoint(image, I64))
        state[0] = code.constant(at.TAKEN, I32)
        images = task.in_pool(at.POOL_TAKEN)
        images[0] = images[0] + 1


TAKE = routine("units.task.take", _take, [P, P, P], None)

ROUTINES = (MOVE, POISONED, COMPLETE, ISSUE, FINISH, WANTED, TAKE)
