"""Branches, returns and exits of lanes."""

from __future__ import annotations

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, convert
from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.emitter import Writer, handles
from fragmenta.engine.simt.layout import LANES, Fault
from fragmenta.engine.simt.library import field, pointer_at
from fragmenta.engine.simt.memory import has
from fragmenta.engine.simt.warps import P, routine
from fragmenta.errors import BadOperands, Error
from fragmenta.ptx.module import (
    Instruction,
    Label,
    Operand,
    Symbol,
)

# ── branches ────────────────────────────────────────────────────────────────


def _target(writer: Writer, operand: Operand) -> int:
    unit = writer.unit
    if not isinstance(operand, Label) or operand.name not in unit.function.labels:
        raise Error(f"a branch goes to a label of its function; given {operand}")
    return unit.at[unit.function.labels[operand.name]]


@handles("bra")
def bra(writer: Writer, instruction: Instruction) -> None:
    """A branch, with or without a guard."""
    goal = _target(writer, instruction.operands[-1])
    if instruction.guard is None:
        writer.goto(goal)
    else:
        writer.branch(writer.mask, goal, writer.block.number + 1)


@handles("brx")
def brx(writer: Writer, instruction: Instruction) -> None:
    """A branch to one of several labels, by a number."""
    index, table = instruction.operands
    labels = writer.unit.function.tables.get(name_of(table))
    if labels is None:
        raise BadOperands(f"{name_of(table)} is no list of .branchtargets")
    goals = [_target(writer, each) for each in labels]
    data = b"".join(goal.to_bytes(4, "little") for goal in goals)
    place = writer.at("%constants", writer.data(data))
    skip_excluded(writer, instruction)
    failed = writer.call(
        warps.TABLE_JUMP,
        "ptr %warp",
        f"ptr {writer.pointer(index, 'u32')}",
        f"ptr {place}",
        f"i32 {len(goals)}",
        f"i32 {writer.lanes()}",
        f"i32 {writer.site()}",
        returns="i32",
    )
    writer.stop_if(failed)
    if min(goals) <= writer.block.number:
        writer.spend_partial(min(goals))
    writer.line("br label %dispatch")


def skip_excluded(writer: Writer, instruction: Instruction) -> None:
    """Lanes that the guard excludes go on after the instruction."""
    if instruction.guard is not None:
        all_to(writer, writer.unit.at[writer.index + 1])


def all_to(writer: Writer, number: int) -> None:
    """Send all lanes of the code block to another one; others may move them again."""
    goal = f"i32 {number}"
    writer.call(warps.DIVERGE, "ptr %warp", "i32 -1", goal, goal)


def name_of(operand: Operand) -> str:
    """The name of an operand that is one."""
    if isinstance(operand, (Symbol, Label)):
        return operand.name
    raise Error(f"a name is needed; given {operand}")


# ── ends ────────────────────────────────────────────────────────────────────


@handles("exit")
def leave(writer: Writer, instruction: Instruction) -> None:
    """Some lanes end; the others go on."""
    skip_excluded(writer, instruction)
    writer.probes.leaves(writer)
    writer.call(warps.LEAVE, "ptr %warp", "ptr %block", f"i32 {writer.lanes()}")
    writer.line("br label %dispatch")


@handles("ret")
def ret(writer: Writer, instruction: Instruction) -> None:
    """Return from a function; at the end of a kernel the lanes end."""
    if writer.unit.function.kernel:
        leave(writer, instruction)
        return
    skip_excluded(writer, instruction)
    writer.call(RETURN, "ptr %warp", "ptr %block", f"i32 {writer.lanes()}")
    writer.line("br label %dispatch")


@handles("trap")
def trap(writer: Writer, instruction: Instruction) -> None:
    """Stop the kernel with a fault."""
    writer.fault(Fault.TRAP)
    writer.goto(writer.block.number + 1)


@handles("brkpt")
def brkpt(writer: Writer, instruction: Instruction) -> None:
    """A stop for a debugger; there is none."""
    writer.fault(Fault.TRAP)


# ── routines ────────────────────────────────────────────────────────────────


def return_addresses(code: Code, warp: Raw, block: Raw, lane: Value) -> Raw:
    """The calls that a lane is in: where to go on, what was called, the calls before.

    These are three lists, one after the other.
    """
    b = code.builder
    number = convert(field(code, warp, layout.WARP_NUMBER, I32)[0], I64)
    base = pointer_at(code, block, layout.BLOCK_RETURNS)
    size = 3 * layout.RETURNS
    place = (number * LANES + lane) * (4 * size)
    return b.bitcast(b.gep(base, [place.raw]), I32.as_pointer())


def _return(code: Code, warp: Raw, block: Raw, lanes: Value) -> None:
    b = code.builder
    depth = field(code, warp, layout.DEPTH, I32)
    pcs = field(code, warp, layout.PC, I32)
    calls = field(code, warp, layout.CONTEXT, I32)
    with code.loop(LANES) as lane, code.when(has(lanes, lane)):
        top = depth[lane] - 1
        depth[lane] = top
        stack = return_addresses(code, warp, block, lane)
        pcs[lane] = Value(b, b.load(b.gep(stack, [top.raw])))
        before = b.load(b.gep(stack, [(top + 2 * layout.RETURNS).raw]))
        calls[lane] = Value(b, before)
    field(code, warp, layout.MOVED, I32)[0] = lanes.lift(1)


RETURN = routine("return", _return, [P, P, I32], None)
