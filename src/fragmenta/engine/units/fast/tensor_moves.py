"""Fast paths of ``tcgen05.ld``, ``tcgen05.st`` and their waits.

Python looks at the first address that each quarter of a warpgroup gives, and writes
down which cells it reaches.  Other columns of the same lanes are reached in the same
way.
"""

from __future__ import annotations

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Value, convert
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.simt.warps import all_lanes, put_lanes, repeat
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast import task_layout as tasks
from fragmenta.engine.units.fast import tensor_layout as at
from fragmenta.engine.units.fast.copies import Issue
from fragmenta.engine.units.fast.step import FastStep, fast_path, shift
from fragmenta.engine.units.fast.tasks import FastTask, call_finish, task_at
from fragmenta.engine.units.fast.tensor_cells import CellMove, CellRegion, after, there

ALL = -1
STORES = 1
"""A word of the instruction: ``st``; without it, ``ld``."""
WARPS = 4
_REGISTER = 4 * LANES


def _found(step: FastStep) -> CellMove:
    """The cells that a warp loads or stores; the operand is the address."""
    code, b = step.code, step.code.builder
    step.require(step.lanes == ALL)
    tensor = pointer_at(code, step.state, layout.STATE_TENSOR)
    move = pointer_at(code, step.event, layout.EVENT_FORM)
    step.require(there(code, tensor) & there(code, move))
    own = convert(step.number & WARPS - 1, I64) * at.ENTRY_BYTES
    entry = b.gep(after(code, move, at.MOVE_ENTRIES), [own.raw])
    step.require(there(code, pointer_at(code, entry, at.ENTRY_TABLE)))
    address = step.value(0)
    step.require(shift(address, 16) == convert(_word(step, entry, at.ENTRY_LANE), I64))
    column = address & 0xFFFF
    reach = convert(_word(step, entry, at.ENTRY_REACH), I64)
    step.require(column + reach <= at.COLUMNS)
    found = CellMove(code, move, entry, column, tensor)

    def allocated(region: CellRegion) -> None:
        step.require(region.allocated(tensor))

    found.each_region(allocated)
    step.require(step.observe(layout.PORT_MOVE, entry, column) != 0)
    return found


def _word(step: FastStep, base: Raw, offset: int) -> Value:
    return field(step.code, base, offset, I32)[0]


def _load(step: FastStep) -> Value:
    """Load cells into registers; the operand is the address."""
    move = _found(step)
    move.load(step.warp)
    step.note(layout.NOTE_LOADED, move.move)
    step.changed()
    return step.lanes


def _store(step: FastStep) -> Value:
    """Store registers into cells; the operand is the address.

    The registers are kept in the arena, which must have room.
    """
    code, b = step.code, step.code.builder
    issue = Issue(step, tasks.CELLS, alone=False)
    task, pool = issue.task, issue.task.pool
    used = step.long(pool, tasks.POOL_USED)
    move_record = pointer_at(code, step.event, layout.EVENT_FORM)
    step.require(there(code, move_record))
    size = convert(_word(step, move_record, at.MOVE_COUNT), I64) * _REGISTER
    step.require(used[0] + size <= tasks.ARENA_BYTES)
    move = _found(step)
    image = b.gep(pointer_at(code, pool, tasks.POOL_ARENA), [used[0].raw])
    with code.loop(move.count) as number:
        goal = b.gep(image, [(number * _REGISTER).raw])
        source = move.register(step.warp, number)
        put_lanes(code, goal, all_lanes(code, b.bitcast(source.raw, goal.type)))
    used[0] = used[0] + size
    images = step.word(pool, tasks.POOL_TAKEN)
    images[0] = images[0] + 1
    record = after(code, task.record, tasks.TASK_TENSOR)
    for offset, pointer in (
        (at.STORE_MOVE, move.move),
        (at.STORE_ENTRY, move.entry),
        (at.STORE_TENSOR, move.tensor),
    ):
        step.long(record, offset)[0] = Value(b, b.ptrtoint(pointer, I64))
    step.long(record, at.STORE_COLUMN)[0] = move.column
    issue.longs(
        {tasks.TASK_FIRST: 0, tasks.TASK_IMAGE: Value(b, b.ptrtoint(image, I64))}
    )
    issue.words({tasks.TASK_BYTES: 0, tasks.TASK_RANKS: 0})
    return issue.issue()


def _wait(step: FastStep) -> Value:
    """Wait for all loads, or all stores, of the warp."""
    code = step.code
    stores = (step.flags & STORES) != 0
    left = pointer_at(code, step.state, layout.STATE_STORES)
    mine = field(code, left, 0, I32)[convert(step.number, I64)]
    step.require((step.lanes == ALL) & (~stores | (mine == 0)))
    pool = pointer_at(code, step.cluster, layout.CLUSTER_TASKS)
    first = step.word(pool, tasks.POOL_FIRST)[0]
    with code.when(stores & (first >= 0)):
        _finish_stores(step, first)
    step.observe(layout.PORT_MOVED, step.state)
    step.note(layout.NOTE_MOVED, step.state)
    return step.lanes


def _finish_stores(step: FastStep, first: Value) -> None:
    """Finish the stores of the warp that are in flight, the oldest first."""
    code, b = step.code, step.code.builder
    now = code.variable(first)
    warp = Value(b, b.ptrtoint(step.warp, I64))
    with repeat(code) as again:
        task: FastTask = task_at(code, step.cluster, now.value)
        now.value = task.word(tasks.TASK_NEXT)[0]
        cells = task.word(tasks.TASK_KIND)[0] == tasks.CELLS
        with code.when(cells & (task.long(tasks.TASK_WARP)[0] == warp)):
            call_finish(code, step.cluster, task.record)
        again(now.value >= 0)


LOAD = fast_path("units.tensor.ld", _load)
STORE = fast_path("units.tensor.st", _store)
WAIT = fast_path("units.tensor.wait", _wait)

ROUTINES = (LOAD, STORE, WAIT)
