"""The scheduler of a warp: which lanes execute next, and how they wait.

Every lane has the number of the code block that it executes next.  Of the lanes that
do not wait, those with the lowest number go first: so lanes that took different
paths meet again where the paths join.

Lanes may wait for one another in a loop: for a flag, a lock, an mbarrier.  A turn of a
warp is over when it has jumped back often, or when it polled without progress.  A
lane that could have run in this turn and did not has the right of way in the next one,
for some code blocks: more each time, until all lanes are together again.  All lanes
that did not run have it one after the other.  So every lane makes progress, as since
Volta, and lanes that do not wait stay together.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from fragmenta.base.jit.llvm import Builder, Raw, Type
from fragmenta.base.jit.trace import (
    I1,
    I8,
    I32,
    I64,
    Code,
    Trace,
    Value,
    compare_unsigned,
    convert,
    copy_memory,
    intrinsic,
    select,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import LANES, Fault, Status
from fragmenta.engine.simt.library import (
    POINTER,
    Routine,
    define,
    field,
    pointer_at,
    taken,
)

VECTOR = ir.VectorType(I32, LANES)
MASK = ir.VectorType(I1, LANES)


def all_lanes(code: Code, pointer: Raw, of: Type = I32) -> Value:
    """A register: 32 numbers, of 32 bits unless another type is given."""
    b = code.builder
    loaded = b.load(b.bitcast(pointer, ir.VectorType(of, LANES).as_pointer()))
    loaded.align = 16
    return Value(b, loaded)


def words(code: Code, pointer: Raw) -> Raw:
    """A register of 32 bits as words, one for each lane."""
    return code.builder.bitcast(pointer, I32.as_pointer())


def put_lanes(code: Code, pointer: Raw, value: Value) -> None:
    """Store a register: 32 numbers."""
    b = code.builder
    b.store(value.raw, b.bitcast(pointer, value.type.as_pointer())).align = 16


def to_word(value: Value) -> Value:
    """32 conditions as the bits of a word."""
    return Value(value.builder, value.builder.bitcast(value.raw, I32))


def to_lanes(word: Value) -> Value:
    """The bits of a word as 32 conditions."""
    return Value(word.builder, word.builder.bitcast(word.raw, MASK))


def first_lane(word: Value) -> Value:
    """The number of the lowest bit that is set; 32 if there is none."""
    b = word.builder
    false = Value(b, ir.Constant(I1, 0))
    return Value(b, intrinsic(b, "llvm.cttz.i32", I32, [word.raw, false.raw]))


def place(code: Code, base: Raw, offset: int) -> Raw:
    """A pointer so many bytes further on."""
    return code.builder.gep(base, [ir.Constant(I32, offset)])


def _least(code: Code, numbers: Value) -> Value:
    b = code.builder
    name = f"llvm.vector.reduce.umin.v{LANES}i32"
    return Value(b, intrinsic(b, name, I32, [numbers.raw]))


# ── choosing ────────────────────────────────────────────────────────────────


def _choose(code: Code, warp: Raw, block: Raw) -> Value:
    """The code block to execute, twice its number, plus 1 if not all lanes take part.

    -1 if no lane can go on; the status then says why.
    """
    live = field(code, warp, layout.LIVE, I32)
    waiting = field(code, warp, layout.WAITING, I32)
    moved = field(code, warp, layout.MOVED, I32)
    lanes = all_lanes(code, place(code, warp, layout.PC))
    # If all wait, they are polled once more after something has changed.
    stuck = (live[0] & ~waiting[0]) == 0
    waiting[0] = select(stuck & (moved[0] != 0), moved[0].lift(0), waiting[0])
    moved[0] = select(stuck, moved[0].lift(0), moved[0])
    ready = live[0] & ~waiting[0]
    numbers = select(to_lanes(ready), lanes, lanes.lift(layout.EXITED))
    lowest = _least(code, numbers)
    first, number = _right_of_way(code, warp, ready, numbers, lowest)
    here = to_word(numbers == number) & ready
    # Lanes in the same function but called from elsewhere are not together.
    calls = all_lanes(code, place(code, warp, layout.CONTEXT))
    leader = select(first >= 0, first, first_lane(here)) & (LANES - 1)
    same = calls == field(code, warp, layout.CONTEXT, I32)[convert(leader, I64)]
    active = to_word(same) & here
    field(code, warp, layout.ACTIVE, I32)[0] = active
    ran, grant = (field(code, warp, at, I32) for at in (layout.RAN, layout.GRANT))
    ran[0] = ran[0] | active
    grant[0] = select(active == live[0], grant[0].lift(0), grant[0])
    none = ready == 0
    with code.when(none):
        ended = select(live[0] == 0, number.lift(Status.ENDED), Status.BLOCKED)
        field(code, warp, layout.STATUS, I32)[0] = ended
    partial = convert(active != live[0], I32, signed=False)
    return select(none, number.lift(-1), number + number + partial)


FIRST_GRANT, MOST_GRANT = 64, 1 << 16
"""For how many code blocks a lane has the right of way: at first, and at most."""


def _right_of_way(
    code: Code, warp: Raw, ready: Value, numbers: Value, lowest: Value
) -> tuple[Value, Value]:
    """The lane that has the right of way, or -1, and the code block to execute next.

    A lane that has to wait loses it.
    """
    turn = field(code, warp, layout.TURN, I32)
    left = turn[0]
    leader = field(code, warp, layout.LEADER, I32)[0] & (LANES - 1)
    first = (left > 0) & (((ready >> leader) & 1) != 0)
    turn[0] = select(first, left - 1, left.lift(0))
    pcs = spill_words(code, numbers)
    theirs = Value(
        code.builder,
        code.builder.load(code.builder.gep(pcs, [convert(leader, I64).raw])),
    )
    return select(first, leader, left.lift(-1)), select(first, theirs, lowest)


def spill_words(code: Code, vector: Value) -> Raw:
    """The lanes of a vector of words in memory, where one of them can be reached."""
    slot = code.array(vector.type)
    code.builder.store(vector.raw, slot)
    return code.builder.bitcast(slot, I32.as_pointer())


def _diverge(code: Code, warp: Raw, taken: Value, yes: Value, no: Value) -> None:
    """The active lanes in ``taken`` go to one code block, the others to another."""
    active = field(code, warp, layout.ACTIVE, I32)[0]
    at = place(code, warp, layout.PC)
    before = all_lanes(code, at)
    there = select(to_lanes(taken), before.lift(yes), before.lift(no))
    put_lanes(code, at, select(to_lanes(active), there, before))
    field(code, warp, layout.MOVED, I32)[0] = active.lift(1)


def _stay(code: Code, warp: Raw, staying: Value, here: Value, after: Value) -> None:
    """Some of the active lanes have to wait in this block; the others go on."""
    moved = field(code, warp, layout.MOVED, I32)
    before = moved[0]
    _diverge(code, warp, staying, here, after)
    active = field(code, warp, layout.ACTIVE, I32)[0]
    moved[0] = select((active & ~staying) != 0, before.lift(1), before)


def _leave(code: Code, warp: Raw, block: Raw, lanes: Value) -> None:
    """Some lanes end."""
    live = field(code, warp, layout.LIVE, I32)
    ending = Value(
        code.builder,
        intrinsic(code.builder, "llvm.ctpop.i32", I32, [(live[0] & lanes).raw]),
    )
    threads = field(code, block, layout.BLOCK_LIVE, I32)
    threads[0] = threads[0] - ending
    live[0] = live[0] & ~lanes
    at = place(code, warp, layout.PC)
    before = all_lanes(code, at)
    put_lanes(code, at, select(to_lanes(lanes), before.lift(layout.EXITED), before))
    field(code, block, layout.BLOCK_PROGRESS, I32)[0] = lanes.lift(1)
    wakes = field(code, block, layout.BLOCK_WAKES, I32)
    wakes[0] = wakes[0] + 1
    field(code, warp, layout.MOVED, I32)[0] = lanes.lift(1)
    with code.when((live[0] == 0) & (lanes != 0)):
        alive = field(code, block, layout.BLOCK_ALIVE, I32)
        alive[0] = alive[0] - 1


def _spent(code: Code, warp: Raw) -> None:
    """End the turn of the warp; lanes that could not run have the right of way next."""
    turn = field(code, warp, layout.TURN, I32)
    ran = field(code, warp, layout.RAN, I32)
    leader = field(code, warp, layout.LEADER, I32)
    grant = field(code, warp, layout.GRANT, I32)
    waiting = field(code, warp, layout.WAITING, I32)
    stuck = field(code, warp, layout.STUCK, I32)
    ready = field(code, warp, layout.LIVE, I32)[0] & ~waiting[0]
    starved = ready & ~ran[0]
    some = starved != 0
    later = starved & (ready.lift(-1) << ((leader[0] + 1) & (LANES - 1)))
    chosen = first_lane(select(later != 0, later, starved))
    leader[0] = select(some, chosen, leader[0])
    blocks = grant[0] + FIRST_GRANT
    turn[0] = select(some, blocks, blocks.lift(0))
    more = select(blocks < MOST_GRANT, blocks, grant[0])
    grant[0] = select(some, more, grant[0])
    field(code, warp, layout.STATUS, I32)[0] = turn[0].lift(Status.SPENT)
    stuck[0] = stuck[0] | waiting[0]
    seen = field(code, warp, layout.SEEN, I32)
    seen[0] = seen[0] | ran[0] | waiting[0]
    waiting[0] = ran[0] = turn[0].lift(0)


def _yield(code: Code, warp: Raw, at: Value, kind: Value) -> None:
    """End the turn of the warp at an event; nothing else changes."""
    field(code, warp, layout.STATUS, I32)[0] = at.lift(Status.YIELDED)
    field(code, warp, layout.CUT_AT, I32)[0] = at
    field(code, warp, layout.CUT_KIND, I32)[0] = kind


def _fault(code: Code, warp: Raw, kind: Value, number: Value, lanes: Value) -> None:
    """An instruction cannot be executed; nothing happens if no lane does."""
    with code.when(lanes != 0):
        field(code, warp, layout.STATUS, I32)[0] = lanes.lift(Status.FAULT)
        field(code, warp, layout.FAULT_KIND, I32)[0] = kind
        field(code, warp, layout.FAULT_ID, I32)[0] = number
        field(code, warp, layout.FAULT_LANE, I32)[0] = first_lane(lanes)


def _tick(code: Code, warp: Raw) -> None:
    """Advance the clocks by a fixed amount each time they are read."""
    time = field(code, warp, layout.TIME, I64)
    now = time[0] + 32
    time[0] = now
    b = code.builder
    for name in layout.TICKING:
        offset = layout.special_place(name)
        assert offset is not None
        wide = name in layout.SPECIALS_64
        part = (
            Value(b, b.lshr(now.raw, ir.Constant(I64, 32)))
            if name.endswith("hi")
            else now
        )
        value = (part if wide else convert(part, I32)).in_all_lanes(LANES)
        at = b.bitcast(place(code, warp, offset), value.type.as_pointer())
        b.store(value.raw, at).align = 16


def _frame(code: Code, result: Raw, frame: Raw, offset: Value) -> None:
    """The address of a variable in the frames of a recursive function."""
    b = code.builder
    value = convert(all_lanes(code, frame), I64, signed=False) + offset
    b.store(value.raw, b.bitcast(result, value.type.as_pointer())).align = 16


def _table_jump(
    code: Code,
    warp: Raw,
    index: Raw,
    table: Raw,
    count: Value,
    lanes: Value,
    site: Value,
) -> Value:
    """Each lane goes to the code block that a table has for its index.

    1 if an index is beyond the table.
    """
    b = code.builder
    words = b.bitcast(table, I32.as_pointer())
    numbers = b.bitcast(index, I32.as_pointer())
    goals = b.bitcast(place(code, warp, layout.PC), I32.as_pointer())
    failed = code.variable(lanes.lift(0))
    with code.loop(LANES) as lane:
        bit = (lanes >> convert(lane, I32)) & 1
        with code.when((bit != 0) & (failed.value == 0)):
            number = Value(b, b.load(b.gep(numbers, [lane.raw])))
            inside = compare_unsigned("<", number, count)
            with code.when(inside):
                goal = b.load(b.gep(words, [number.raw]))
                b.store(goal, b.gep(goals, [lane.raw]))
            with code.when(~inside):
                _fault(
                    code, warp, site.lift(Fault.INDEX), site, bit << convert(lane, I32)
                )
                field(code, warp, layout.FAULT_ADDRESS, I64)[0] = convert(
                    number, I64, signed=False
                )
                failed.value = lanes.lift(1)
    field(code, warp, layout.MOVED, I32)[0] = lanes.lift(1)
    return failed.value


# ── a block of threads ──────────────────────────────────────────────────────


MOST_ROUNDS = 256
"""So often the warps of a block meet at barriers before others have their turn."""


def others(code: Code, block: Raw, own: Value, alive: Value) -> Value:
    """1 if another warp of the block is alive; or if its turn was over too early."""
    b = code.builder
    size = field(code, block, layout.BLOCK_WARP_BYTES, I64)[0]
    first = pointer_at(code, block, layout.BLOCK_FIRST_WARP)
    found = code.variable(code.constant(0, I32))
    count = convert(field(code, block, layout.BLOCK_WARPS, I32)[0], I64)
    with code.loop(count) as number, code.when(number != convert(own, I64)):
        warp = b.gep(first, [(number * size).raw])
        lives = field(code, warp, layout.LIVE, I32)[0] != 0
        spent = field(code, warp, layout.STATUS, I32)[0] == Status.SPENT
        one = convert(select(alive, lives, spent), I32, signed=False)
        found.value = found.value | one
    return found.value


def _turns(code: Code, block: Raw, kernel: Raw, budget: Value) -> None:
    """Let the warps of a block run in turns, until all ended or none can go on.

    A loop with a barrier has no end that is seen here: after many rounds it is a turn.
    """
    b = code.builder
    warps = convert(field(code, block, layout.BLOCK_WARPS, I32)[0], I64)
    size = field(code, block, layout.BLOCK_WARP_BYTES, I64)[0]
    first = pointer_at(code, block, layout.BLOCK_FIRST_WARP)
    progress = field(code, block, layout.BLOCK_PROGRESS, I32)
    status = field(code, block, layout.BLOCK_STATUS, I32)
    alive = field(code, block, layout.BLOCK_ALIVE, I32)
    run = b.bitcast(kernel, ir.FunctionType(ir.VoidType(), [POINTER] * 2).as_pointer())
    status[0] = budget.lift(Status.READY)
    left = code.variable(budget.lift(MOST_ROUNDS))
    with repeat(code) as again:
        spent = code.variable(budget.lift(0))
        progress[0] = budget.lift(0)
        left.value = left.value - 1
        with code.loop(warps) as number:
            warp = b.gep(first, [(number * size).raw])
            state = field(code, warp, layout.STATUS, I32)
            idle = (state[0] == Status.ENDED) | (status[0] == Status.FAULT)
            with code.when(~idle):
                field(code, warp, layout.WAITING, I32)[0] = budget.lift(0)
                field(code, warp, layout.BUDGET, I32)[0] = budget
                b.call(run, [warp, block])
                spent.value = spent.value | convert(
                    state[0] == Status.SPENT, I32, signed=False
                )
                with code.when(state[0] == Status.FAULT):
                    status[0] = budget.lift(Status.FAULT)
                    field(code, block, layout.BLOCK_FAULT_WARP, I32)[0] = convert(
                        number, I32
                    )
        failed = status[0] == Status.FAULT
        ended, used = alive[0] == 0, spent.value != 0
        stuck = progress[0] == 0
        status[0] = select(
            failed,
            budget.lift(Status.FAULT),
            select(
                ended,
                budget.lift(Status.ENDED),
                select(
                    used,
                    budget.lift(Status.SPENT),
                    select(stuck, budget.lift(Status.BLOCKED), Status.READY),
                ),
            ),
        )
        with code.when((status[0] == Status.READY) & (left.value <= 0)):
            status[0] = budget.lift(Status.SPENT)
            with code.loop(warps) as number:  # they went on: none of them is stuck
                warp = b.gep(first, [(number * size).raw])
                waiting = field(code, warp, layout.WAITING, I32)
                seen = field(code, warp, layout.SEEN, I32)
                ran = field(code, warp, layout.RAN, I32)
                seen[0] = seen[0] | ran[0] | waiting[0]
                field(code, warp, layout.STUCK, I32)[0] = budget.lift(0)
                waiting[0] = budget.lift(0)
        again(status[0] == Status.READY)


def _grid(code: Code, block: Raw, kernel: Raw, budget: Value) -> None:
    """Run blocks of the grid one after the other, until one cannot go on.

    If the status is ENDED, the next block is taken from the queue, which other threads
    may take from, too.  It gets fresh warps and shared memory first.  After some rounds
    of turns Python has its turn.
    """
    b = code.builder
    index = field(code, block, layout.BLOCK_INDEX, I64)
    queue = pointer_at(code, block, layout.BLOCK_QUEUE)
    last = field(code, queue, layout.QUEUE_LAST, I64)
    status = field(code, block, layout.BLOCK_STATUS, I32)
    rounds = field(code, block, layout.BLOCK_ROUNDS, I32)
    goes_on = field(code, block, layout.BLOCK_GOES_ON, I32)
    halt = pointer_at(code, block, layout.BLOCK_HALT)
    void = ir.VoidType()
    turns = ir.Function(
        b.module, ir.FunctionType(void, [POINTER, POINTER, I32]), "turns"
    )
    reset = ir.Function(b.module, ir.FunctionType(void, [POINTER]), "reset")
    with repeat(code) as again:
        with code.when(status[0] == Status.ENDED):
            index[0] = taken(code, b.bitcast(queue, I64.as_pointer()))
            with code.when(index[0] < last[0]):
                b.call(reset, [block])
        there = index[0] < last[0]
        with code.when(there):
            b.call(turns, [block, kernel, budget.raw])
        rounds[0] = rounds[0] - 1
        ended = status[0] == Status.ENDED
        spent = (status[0] == Status.SPENT) & (goes_on[0] != 0)
        may = (field(code, halt, 0, I32)[0] == 0) & (rounds[0] > 0)
        again(there & may & (ended | spent))


def _reset(code: Code, block: Raw) -> None:
    """Make everything ready for the first instruction of a block."""
    b = code.builder
    warps = convert(field(code, block, layout.BLOCK_WARPS, I32)[0], I64)
    size = field(code, block, layout.BLOCK_WARP_BYTES, I64)[0]
    first = pointer_at(code, block, layout.BLOCK_FIRST_WARP)
    template = pointer_at(code, block, layout.BLOCK_TEMPLATE)
    header = ir.Constant(I64, layout.HEADER)
    start = ir.Constant(I64, layout.REGISTERS)
    rest = size - layout.REGISTERS
    with code.loop(warps) as number:
        warp = b.gep(first, [(number * size).raw])
        source = b.gep(template, [(number * layout.HEADER).raw])
        copy_memory(b, warp, source, header)
        registers = b.gep(warp, [start])
        clear_memory(b, registers, rest.raw)
        _place_block(code, block, warp)
    shared = pointer_at(code, block, layout.BLOCK_SHARED)
    bytes_ = field(code, block, layout.BLOCK_SHARED_SIZE, I64)[0]
    clear_memory(b, shared, bytes_.raw)
    barriers = place(code, block, layout.BLOCK_BARRIERS)
    clear_memory(b, barriers, ir.Constant(I64, 16 * layout.BARRIER_BYTES))
    alive = field(code, block, layout.BLOCK_ALIVE, I32)
    alive[0] = field(code, block, layout.BLOCK_WARPS, I32)[0]
    live = field(code, block, layout.BLOCK_LIVE, I32)
    live[0] = field(code, block, layout.BLOCK_THREADS, I32)[0]
    for offset in (layout.BLOCK_RESET, layout.BLOCK_RESET_SHADOW):
        more = pointer_at(code, block, offset)
        with b.if_then(b.icmp_unsigned("!=", more, more.type(None))):
            kind = ir.FunctionType(ir.VoidType(), [POINTER])
            b.call(b.bitcast(more, kind.as_pointer()), [block])


def _place_block(code: Code, block: Raw, warp: Raw) -> None:
    """Write the block of the grid into a warp."""
    rest = field(code, block, layout.BLOCK_INDEX, I64)[0]
    for axis, name in enumerate("xyz"):
        size = field(code, block, layout.BLOCK_GRID + 8 * axis, I64)[0]
        number, rest = rest % size, rest // size
        blocks = field(code, block, layout.BLOCK_CLUSTER + 8 * axis, I64)[0]
        for special, where in (
            (f"%ctaid.{name}", number),
            (f"%clusterid.{name}", number // blocks),
        ):
            offset = layout.special_place(special)
            assert offset is not None
            lanes = convert(where, I32).in_all_lanes(LANES)
            put_lanes(code, place(code, warp, offset), lanes)


def fill_memory(b: Builder, goal: Raw, byte: Raw, size: Raw) -> None:
    """Fill memory with a byte."""
    given = [goal, byte, size, ir.Constant(I1, 0)]
    intrinsic(b, "llvm.memset.p0.i64", ir.VoidType(), given)


def clear_memory(b: Builder, goal: Raw, size: Raw) -> None:
    """Fill memory with zeros."""
    fill_memory(b, goal, ir.Constant(I8, 0), size)


class repeat:
    """A loop that goes on while a condition holds at its end."""

    def __init__(self, code: Code) -> None:
        self.code = code

    def __enter__(self) -> Callable[[Value], None]:
        b = self.code.builder
        self.body = b.append_basic_block()
        self.after = b.append_basic_block()
        b.branch(self.body)
        b.position_at_end(self.body)
        return self.again

    def again(self, condition: Value) -> None:
        """Go on if the condition holds."""
        self.code.builder.cbranch(condition.raw, self.body, self.after)

    def __exit__(self, *error: object) -> None:
        self.code.builder.position_at_end(self.after)


def routine(
    name: str, trace: Trace, parameters: list[Type], returns: Type | None
) -> Routine:
    """A routine that consists of one function."""

    def build(module: ir.Module) -> None:
        define(module, name, parameters, trace, returns)

    return Routine(name, build)


P = POINTER
CHOOSE = routine("choose", _choose, [P, P], I32)
DIVERGE = routine("diverge", _diverge, [P, I32, I32, I32], None)
STAY = routine("stay", _stay, [P, I32, I32, I32], None)
LEAVE = routine("leave", _leave, [P, P, I32], None)
SPENT = routine("spent", _spent, [P], None)
YIELD = routine("yield", _yield, [P, I32, I32], None)
FAULT = routine("fault", _fault, [P, I32, I32, I32], None)
TICK = routine("tick", _tick, [P], None)
FRAME = routine("frame", _frame, [P, P, I64], None)
TABLE_JUMP = routine("table_jump", _table_jump, [P, P, P, I32, I32, I32], I32)
RESET = routine("reset", _reset, [P], None)
TURNS = routine("turns", _turns, [P, P, I32], None)
GRID = routine("grid", _grid, [P, P, I32], None)
