"""Copies in machine code: what they move is moved in every plane when they are issued.

The record of a task says what it moves.  A copy of it is given to the routine that
moves bytes, once for each plane: with the shadow of the block, and with records of a
cluster whose memories are those of the plane.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I8, I32, I64, Code, Value, copy_memory
from fragmenta.engine.planes.code import layout as at
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import P, routine
from fragmenta.engine.units.fast import task_layout as tasks
from fragmenta.engine.units.fast.tasks import MOVE, call

_MAP = tasks.MAP_COUNTS
"""Bytes of a record of a tensor map that are read: what fills is zero in planes."""


def _copy(
    code: Code,
    block: Raw,
    warp: Raw,
    event: Raw,
    lanes: Value,
    record: Raw,
    number: Value,
) -> Value:
    """A copy is in flight: move the second values of what it moves."""
    b = code.builder
    own = b.bitcast(code.array(I8, tasks.TASK_RECORD), POINTER)
    nothing = b.bitcast(code.array(I8, _MAP), POINTER)
    for place in range(0, _MAP, 8):
        field(code, nothing, place, I64)[0] = code.constant(0, I64)
    size = ir.Constant(I64, tasks.TASK_RECORD)
    copy_memory(b, own, record, size)
    form = Value(b, b.ptrtoint(nothing, I64))
    field(code, own, tasks.TASK_FORM, I64)[0] = form
    shadow = code.variable(field(code, block, layout.BLOCK_SHADOW, I64)[0])
    count = pointer_at(code, block, layout.BLOCK_SHADOW)
    with code.loop(field(code, count, at.PLANES, I64)[0]):
        here = b.inttoptr(shadow.value.raw, POINTER)
        field(code, own, tasks.TASK_BLOCK, I64)[0] = shadow.value
        call(code, MOVE, pointer_at(code, here, at.CLUSTER), own)
        shadow.value = field(code, here, at.NEXT, I64)[0]
    return code.constant(1, I32)


COPY = routine("planes.copy", _copy, [P, P, P, I32, P, I64], I32)
