"""Clusters that run one after the other without Python between them.

``clusters`` takes the next cluster from a queue, which other threads may take from,
too.  It renews all memory that belongs to a cluster, and gives the blocks turns.  When
all have ended it looks whether anything is left.  Python has to begin, to end or to go
on with a cluster if it had a part in it, if something is left, or if nothing happens.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    copy_memory,
    select,
)
from fragmenta.engine.simt import layout as engine
from fragmenta.engine.simt import turns, warps
from fragmenta.engine.simt.layout import Status
from fragmenta.engine.simt.library import POINTER, field, pointer_at, taken
from fragmenta.engine.simt.warps import P, clear_memory, repeat, routine
from fragmenta.engine.units.fast import layout


class _Run:
    """The record of a run of clusters, while code is traced."""

    def __init__(self, code: Code, record: Raw) -> None:
        self.code, self.record = code, record
        self.status = self.word(layout.RUN_STATUS)
        self.index = self.long(layout.RUN_INDEX)
        self.cluster = pointer_at(code, record, layout.RUN_CLUSTER)
        blocks = field(code, self.cluster, layout.CLUSTER_BLOCKS, I32)[0]
        self.blocks = convert(blocks, I64)

    def word(self, offset: int) -> Memory:
        """A word of 32 bits."""
        return field(self.code, self.record, offset, I32)

    def long(self, offset: int) -> Memory:
        """A word of 64 bits, or the first of several."""
        return field(self.code, self.record, offset, I64)

    def state(self, rank: Value) -> Raw:
        """The state of the units of a block."""
        b = self.code.builder
        at = b.gep(self.cluster, [(rank * 8 + layout.CLUSTER_PEERS).raw])
        return b.load(b.bitcast(at, POINTER.as_pointer()))

    def block(self, rank: Value) -> Raw:
        """The memory of a block."""
        return pointer_at(self.code, self.state(rank), layout.STATE_BLOCK)

    def counted(self, offset: int) -> Memory:
        """A count of the cluster."""
        return field(self.code, self.cluster, offset, I64)

    def call(self, name: str, kinds: list[Type], given: list[Raw]) -> None:
        """Call a routine."""
        b = self.code.builder
        found = b.module.globals.get(name)
        if found is None:
            found = ir.Function(b.module, ir.FunctionType(ir.VoidType(), kinds), name)
        b.call(found, given)


def _clusters(code: Code, record: Raw, kernel: Raw, budget: Value) -> None:
    run = _Run(code, record)
    queue = pointer_at(code, record, layout.RUN_QUEUE)
    last = field(code, queue, engine.QUEUE_LAST, I64)
    halt = field(code, pointer_at(code, record, layout.RUN_HALT), 0, I32)
    rounds, ordered = run.word(layout.RUN_ROUNDS), run.long(layout.RUN_ORDER)
    ended = budget.lift(Status.ENDED)
    with repeat(code) as again:
        with code.when(run.status[0] == Status.ENDED):
            taken = _take(code, queue)
            run.index[0] = taken
            with code.when(taken < last[0]):
                _begin(run)
                run.status[0] = budget.lift(Status.SPENT)
        there = run.status[0] == Status.SPENT
        run.word(layout.RUN_ENDED)[0] = budget.lift(0)
        with code.when(there & (ordered[0] == 0)):
            _round(run, kernel, budget)
        with code.when(there & (ordered[0] != 0)):
            _steps(run, kernel, budget)
        with code.when(run.status[0] == Status.READY):
            _end(run)
        rounds[0] = rounds[0] - 1
        goes_on = run.word(layout.RUN_GOES_ON)[0] != 0
        changed = run.word(layout.RUN_CHANGED)[0] != 0
        spent = (run.status[0] == Status.SPENT) & changed & goes_on
        # In an order of warps, the others go on only if a block has ended.
        gone = run.word(layout.RUN_ENDED)[0] != 0
        cut = (run.word(layout.RUN_SPENT)[0] == Status.SPENT) & gone
        spent = spent & ((ordered[0] == 0) | cut)
        may = (halt[0] == 0) & (rounds[0] > 0)
        traced = convert(run.word(layout.RUN_TRACED)[0], I64)
        may = may & (traced < run.long(layout.RUN_ROOM)[0])
        again(there & may & ((run.status[0] == ended) | spent))


# ── begin ───────────────────────────────────────────────────────────────────


def _begin(run: _Run) -> None:
    """Make everything ready for the first instruction of a cluster."""
    code = run.code
    with code.loop(run.blocks) as rank:
        block = run.block(rank)
        field(code, block, engine.BLOCK_INDEX, I64)[0] = _member(run, rank)
        run.call("reset", [P], [block])
        status = field(code, block, engine.BLOCK_STATUS, I32)
        status[0] = run.status[0].lift(Status.READY)
        _forget_mbarriers(run, run.state(rank))
    entries = pointer_at(code, run.record, layout.RUN_BEGIN)
    with code.loop(run.long(layout.RUN_BEGIN_COUNT)[0]) as number:
        at = code.builder.gep(entries, [(number * layout.RENEW_BYTES).raw])
        _renew(run, at)
    run.counted(layout.CLUSTER_NUMBER)[0] = run.index[0]
    touched = field(code, run.cluster, layout.CLUSTER_TOUCHED, I32)
    touched[0] = touched[0].lift(0)


def _member(run: _Run, rank: Value) -> Value:
    """The number of a block of the cluster in the grid."""
    grid, shape = run.long(layout.RUN_GRID), run.long(layout.RUN_SHAPE)
    rest, inside = run.index[0], rank
    places = []
    for axis in range(3):
        clusters = grid[axis] // shape[axis]
        places.append(rest % clusters * shape[axis] + inside % shape[axis])
        rest, inside = rest // clusters, inside // shape[axis]
    x, y, z = places
    found: Value = x + grid[0] * (y + grid[1] * z)
    return found


def _forget_mbarriers(run: _Run, state: Raw) -> None:
    """End all mbarriers of the block before."""
    code = run.code
    made = field(code, state, layout.STATE_MADE_COUNT, I32)
    with code.loop(convert(made[0], I64)) as place:
        record = _mbarrier(run, state, place)
        alive = field(code, record, layout.MBARRIER_ALIVE, I32)
        alive[0] = made[0].lift(0)
    for each in (made, field(code, state, layout.STATE_MADE_EVER, I32)):
        each[0] = made[0].lift(0)


def _mbarrier(run: _Run, state: Raw, place: Value) -> Raw:
    """The record of the mbarrier at a place of the list of those of a block."""
    code, b = run.code, run.code.builder
    listed = pointer_at(code, state, layout.STATE_MADE)
    offset = convert(field(code, listed, 0, I32)[place], I64)
    records = pointer_at(code, state, layout.STATE_MBARRIERS)
    return b.gep(records, [(offset // 8 * layout.MBARRIER_BYTES).raw])


def _renew(run: _Run, entry: Raw) -> None:
    """Do what an entry says."""
    code, b = run.code, run.code.builder

    def long(offset: int) -> Value:
        return field(code, entry, offset, I64)[0]

    kind, source, size = (
        long(each)
        for each in (layout.RENEW_KIND, layout.RENEW_SOURCE, layout.RENEW_SIZE)
    )
    when, goal = (
        pointer_at(code, entry, each) for each in (layout.RENEW_WHEN, layout.RENEW_GOAL)
    )
    asked = code.variable(kind.lift(1))
    with b.if_then(b.icmp_unsigned("!=", when, when.type(None))):
        asked.value = field(code, when, 0, I64)[0]
    from_there = b.inttoptr(source.raw, POINTER)
    with (
        code.when((kind <= layout.COPY) & (asked.value != 0)),
        code.loop(long(layout.RENEW_COUNT)) as number,
    ):
        at = b.gep(goal, [(number * long(layout.RENEW_STEP)).raw])
        with code.when(kind == layout.CLEAR):
            clear_memory(b, at, size.raw)
        with code.when(kind == layout.COPY):
            image = b.gep(from_there, [(number * size).raw])
            copy_memory(b, at, image, size.raw)
    with code.when(kind == layout.NUMBER):
        field(code, goal, 0, I64)[0] = source + run.index[0]
    with code.when(kind == layout.COUNT):
        word = field(code, goal, 0, I32)
        word[0] = word[0] + 1
    with code.when(kind == layout.LIST):
        place = convert(field(code, from_there, 0, I32)[0], I64) - 1
        field(code, goal, 0, I64)[place] = run.index[0]
    with code.when(kind == layout.LOOKUP):
        field(code, goal, 0, I64)[0] = field(code, from_there, 0, I64)[run.index[0]]


# ── turns ───────────────────────────────────────────────────────────────────


def _round(run: _Run, kernel: Raw, budget: Value) -> None:
    """Give each block a turn, and see what came of it."""
    code = run.code
    before = code.variable(run.counted(layout.CLUSTER_CHANGES)[0])
    spent, left = (code.variable(budget.lift(0)) for _ in range(2))
    failed = code.variable(budget.lift(0))
    with code.loop(run.blocks) as rank:
        block = run.block(rank)
        status = field(code, block, engine.BLOCK_STATUS, I32)
        with code.when((status[0] != Status.ENDED) & (failed.value == 0)):
            run.call("turns", [P, P, I32], [block, kernel, budget.raw])
            used = convert(status[0] == Status.SPENT, I32, signed=False)
            spent.value = spent.value | used
            with code.when(status[0] == Status.FAULT):
                failed.value = budget.lift(1)
                run.word(layout.RUN_FAILED)[0] = convert(rank, I32)
            with code.when(status[0] == Status.ENDED):
                _ended(run, rank)
        on = convert(status[0] != Status.ENDED, I32, signed=False)
        left.value = left.value | on
    on, wrong = left.value != 0, failed.value != 0
    changed = _judge(run, before.value, on, wrong)
    run.word(layout.RUN_SPENT)[0] = spent.value
    with code.when(on & ~wrong & changed):
        _look(run)


def _steps(run: _Run, kernel: Raw, budget: Value) -> None:
    """Let warps of a block take turns in their order, and see what came of it."""
    code = run.code
    before = code.variable(run.counted(layout.CLUSTER_CHANGES)[0])
    order = pointer_at(code, run.record, layout.RUN_ORDER)
    masks = [
        field(code, order, e, I32) for e in (engine.ORDER_LEFT, engine.ORDER_READY)
    ]
    with code.loop(run.blocks) as rank:
        masks[1][rank] = masks[0][rank]
    field(code, order, engine.ORDER_MOVED, I32)[0] = budget.lift(0)
    quota = run.word(layout.RUN_QUOTA)[0]
    run.call("steps", [P, P, I32, I32], [order, kernel, budget.raw, quota.raw])
    found = field(code, order, engine.ORDER_STATUS, I32)[0]
    left = code.variable(budget.lift(0))
    with code.loop(run.blocks) as rank:
        status = field(code, run.block(rank), engine.BLOCK_STATUS, I32)
        gone = (masks[0][rank] == 0) & (status[0] != Status.ENDED)
        with code.when(gone & (found != Status.FAULT)):
            status[0] = budget.lift(Status.ENDED)
            _ended(run, rank)
        left.value = left.value | masks[0][rank]
    failed = found == Status.FAULT
    _judge(run, before.value, left.value != 0, failed)
    run.word(layout.RUN_SPENT)[0] = found


def _ended(run: _Run, rank: Value) -> None:
    """All threads of a block have ended: its shared memory is out of bounds."""
    code, b = run.code, run.code.builder
    for each in (layout.CLUSTER_CHANGES, layout.CLUSTER_WAKES):
        count = run.counted(each)
        count[0] = count[0] + 1
    for ended in (
        field(code, run.cluster, layout.CLUSTER_ENDED, I32),
        run.word(layout.RUN_ENDED),
    ):
        ended[0] = ended[0] | (ended[0].lift(1) << convert(rank, I32))
    with code.when(run.blocks > 1), code.loop(run.blocks) as other:
        peers = pointer_at(code, run.block(other), engine.BLOCK_PEERS)
        size = b.gep(peers, [(rank * 16 + 8).raw])
        field(code, size, 0, I64)[0] = rank.lift(0)


def _judge(run: _Run, before: Value, left: Value, failed: Value) -> Value:
    """Say how the cluster stands after a round; whether anything happened."""
    code = run.code
    changed: Value = run.counted(layout.CLUSTER_CHANGES)[0] != before
    run.word(layout.RUN_CHANGED)[0] = convert(changed, I32, signed=False)
    impatient = field(code, run.cluster, layout.CLUSTER_IMPATIENT, I32)
    with code.when(~failed):
        impatient[0] = impatient[0].lift(0)
    ready = impatient[0].lift(Status.READY)
    status = select(left, ready.lift(Status.SPENT), ready)
    run.status[0] = select(failed, ready.lift(Status.FAULT), status)
    return changed


def _look(run: _Run) -> None:
    """Begin to find out which lanes wait."""
    code, b = run.code, run.code.builder
    with code.loop(run.blocks) as rank:
        block = run.block(rank)
        size = field(code, block, engine.BLOCK_WARP_BYTES, I64)[0]
        first = pointer_at(code, block, engine.BLOCK_FIRST_WARP)
        count = field(code, block, engine.BLOCK_WARPS, I32)[0]
        with code.loop(convert(count, I64)) as number:
            warp = b.gep(first, [(number * size).raw])
            for each in (engine.ASKED, engine.STUCK):
                word = field(code, warp, each, I32)
                word[0] = word[0].lift(0)


# ── end ─────────────────────────────────────────────────────────────────────


def _end(run: _Run) -> None:
    """All blocks have ended: the cluster has, too, if nothing is left for Python."""
    code = run.code
    _trace(run)
    touched = field(code, run.cluster, layout.CLUSTER_TOUCHED, I32)[0]
    left = code.variable(touched)
    entries = pointer_at(code, run.record, layout.RUN_END)
    with code.loop(run.long(layout.RUN_END_COUNT)[0]) as number:
        at = code.builder.gep(entries, [(number * layout.CLEAN_BYTES).raw])
        left.value = left.value | _unclean(run, at)
    with (
        code.when(run.word(layout.RUN_LEAKS)[0] != 0),
        code.loop(run.blocks) as rank,
    ):
        left.value = left.value | _leaks(run, run.state(rank))
    first = run.word(layout.RUN_FIRST)
    with code.when((run.index[0] == 0) & (first[0] != 0) & (left.value == 0)):
        left.value = left.value.lift(1)
        first[0] = left.value.lift(layout.CLEAN_FIRST)
    over = left.value.lift(Status.ENDED)
    run.status[0] = select(left.value == 0, over, left.value.lift(Status.READY))


def _trace(run: _Run) -> None:
    """Note where the turns of the cluster end in the trace."""
    code = run.code
    with code.when(run.long(layout.RUN_ORDER)[0] != 0):
        order = pointer_at(code, run.record, layout.RUN_ORDER)
        turns_so_far = field(code, order, engine.ORDER_TRACED, I32)[0]
        count = run.word(layout.RUN_TRACED)
        listed = field(code, pointer_at(code, run.record, layout.RUN_TRACES), 0, I64)
        at = convert(count[0], I64) * 2
        listed[at] = run.index[0]
        listed[at + 1] = convert(turns_so_far, I64)
        count[0] = count[0] + 1


def _unclean(run: _Run, entry: Raw) -> Value:
    """Whether words are not what they have to be at the end."""
    code, b = run.code, run.code.builder
    like = pointer_at(code, entry, layout.CLEAN_LIKE)
    words = field(code, pointer_at(code, entry, layout.CLEAN_AT), 0, I32)
    found = code.variable(words[0].lift(0))
    with code.loop(field(code, entry, layout.CLEAN_WORDS, I64)[0]) as place:
        other = code.variable(words[0].lift(0))
        with b.if_then(b.icmp_unsigned("!=", like, like.type(None))):
            other.value = field(code, like, 0, I32)[place]
        found.value = found.value | (words[place] ^ other.value)
    return found.value


def _leaks(run: _Run, state: Raw) -> Value:
    """Whether an mbarrier counts a copy in a phase whose end nobody has seen."""
    code = run.code
    made = field(code, state, layout.STATE_MADE_COUNT, I32)[0]
    found = code.variable(made.lift(0))
    with code.loop(convert(made, I64)) as place:
        record = _mbarrier(run, state, place)
        copier = field(code, record, layout.MBARRIER_COPIER, I32)[0] != 0
        copied, observed = (
            field(code, record, each, I64)[0]
            for each in (layout.MBARRIER_COPIED, layout.MBARRIER_OBSERVED)
        )
        leak = convert(copier & (copied > observed), I32, signed=False)
        found.value = found.value | leak
    return found.value


def _take(code: Code, queue: Raw) -> Value:
    """The next of a queue; it may be past the last one."""
    return taken(code, code.builder.bitcast(queue, I64.as_pointer()))


TAKE = routine("units.take", _take, [P], I64)
CLUSTERS = routine("units.clusters", _clusters, [P, P, I32], None)
LINKED = (warps.RESET, warps.TURNS, turns.STEPS)
"""The routines that it calls."""
