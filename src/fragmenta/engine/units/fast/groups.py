"""Fast paths of groups of bulk copies: they are closed, and waited for."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, convert, larger, select
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import P, repeat, routine
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast import task_layout as at
from fragmenta.engine.units.fast.step import FastStep, fast_path, note, observe
from fragmenta.engine.units.fast.tasks import (
    TAKE,
    FastTask,
    call,
    call_finish,
    each_rank,
    image_bytes,
    task_at,
)

READ = 1
"""A word of the instruction: only the sources have to be read."""


def _each_queue(step: FastStep, do: Callable[[Value, Raw], None]) -> None:
    """Do something for each lane that has groups."""
    code, b = step.code, step.code.builder
    queues = pointer_at(code, step.state, layout.STATE_QUEUES)
    first = convert(step.number, I64) * at.QUEUES

    def one(lane: Value) -> None:
        place = (first + convert(lane, I64)) * at.QUEUE_RECORD
        queue = b.gep(queues, [place.raw])
        with code.when(field(code, queue, at.QUEUE_THERE, I32)[0] != 0):
            do(lane, queue)

    each_rank(code, step.lanes, one)


def _bound(step: FastStep, queue: Raw, left: Value) -> Value:
    """The first group that a wait leaves out."""
    epoch = step.word(queue, at.QUEUE_EPOCH)[0]
    waited = step.word(queue, at.QUEUE_WAITED)[0]
    kept = larger(waited, epoch - convert(left, I32))
    return select(left == 0, epoch, kept)


def _commit(step: FastStep) -> Value:
    """Close the group of each lane."""

    def one(lane: Value, queue: Raw) -> None:
        epoch = step.word(queue, at.QUEUE_EPOCH)
        epoch[0] = epoch[0] + 1

    _each_queue(step, one)
    return step.lanes


def _each_task(
    code: Code, cluster: Raw, queue: Raw, bound: Value, do: Callable[[FastTask], None]
) -> None:
    """Do something for each task of a queue that is in a group before a bound.

    It may be done afterwards.
    """
    b = code.builder
    pool = pointer_at(code, cluster, layout.CLUSTER_TASKS)
    own = b.ptrtoint(queue, I64)
    now = code.variable(field(code, pool, at.POOL_FIRST, I32)[0])
    with code.when(now.value >= 0), repeat(code) as again:
        task = task_at(code, cluster, now.value)
        now.value = task.word(at.TASK_NEXT)[0]
        here = task.long(at.TASK_QUEUE)[0] == Value(b, own)
        with code.when(here & (task.word(at.TASK_GROUP)[0] < bound)):
            do(task)
        again(now.value >= 0)


def _needed(code: Code, cluster: Raw, queue: Raw, bound: Value) -> Value:
    """How much memory the images of the tasks of a queue need."""
    total = code.variable(code.constant(0, I64))

    def one(task: FastTask) -> None:
        total.value = total.value + image_bytes(task)

    _each_task(code, cluster, queue, bound, one)
    return total.value


def _finish(code: Code, cluster: Raw, queue: Raw, bound: Value, read: Value) -> None:
    """Finish the tasks of a queue, or read their sources."""
    nothing = ir.Constant(POINTER, None)

    def one(task: FastTask) -> None:
        with code.when(read != 0):
            call(code, TAKE, cluster, task.record, nothing)
        with code.when(read == 0):
            call_finish(code, cluster, task.record)

    _each_task(code, cluster, queue, bound, one)


NEEDED = routine("units.groups.needed", _needed, [P, P, I32], I64)
FINISHED = routine("units.groups.finish", _finish, [P, P, I32, I32], None)


def _wait(step: FastStep) -> Value:
    """Wait for groups; the operand is how many are left out."""
    code, b = step.code, step.code.builder
    left = step.value(0)
    step.require((left >= 0) & (left < 1 << 30))
    read = step.flags & READ
    pool = pointer_at(code, step.cluster, layout.CLUSTER_TASKS)
    total = code.variable(step.long(pool, at.POOL_USED)[0])

    def ready(lane: Value, queue: Raw) -> None:
        step.require(step.word(queue, at.QUEUE_WORK)[0] == 0)
        with code.when(read != 0):
            given = step.cluster, queue, _bound(step, queue, left).raw
            more = Value(b, call(code, NEEDED, *given, returns=I64))
            total.value = total.value + more

    _each_queue(step, ready)
    step.require(total.value <= at.ARENA_BYTES)

    def one(lane: Value, queue: Raw) -> None:
        bound = _bound(step, queue, left)
        call(code, FINISHED, step.cluster, queue, bound.raw, read.raw)
        waited = step.word(queue, at.QUEUE_WAITED)
        waited[0] = select(read != 0, waited[0], bound)
        who = step.block, step.warp, step.event, (lane.lift(1) << lane).raw
        until = convert(bound, I64)
        observe(code, step.cluster, layout.PORT_GROUP, who, queue, until)
        note(code, step.cluster, layout.NOTE_GROUP, who, queue, until)

    _each_queue(step, one)
    return step.lanes


COMMIT = fast_path("units.groups.commit", _commit)
WAIT = fast_path("units.groups.wait", _wait)

ROUTINES = (NEEDED, FINISHED, COMMIT, WAIT)
