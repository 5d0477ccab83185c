"""Routines that write down steps and accesses, in compiled code."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Memory, Value, convert, copy_memory
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.library import POINTER, Routine, field, pointer_at
from fragmenta.engine.simt.memory import addresses
from fragmenta.engine.simt.warps import P, put_lanes, routine
from fragmenta.engine.tracing.code import layout as at

_HOST = ir.FunctionType(ir.VoidType(), [])


@contextmanager
def recorded(code: Code, block: Raw, lanes: Value) -> Iterator[tuple[Raw, Raw]]:
    """Only if the block is recorded and a lane takes part: its record, and the log."""
    b = code.builder
    own = pointer_at(code, block, layout.BLOCK_TRACE)
    there = Value(b, b.icmp_unsigned("!=", own, ir.Constant(POINTER, None)))
    with code.when(there & (lanes != 0)):
        yield own, pointer_at(code, own, at.OWN_LOG)


def empty_if(code: Code, log: Raw, full: Value) -> None:
    """Let the host take everything out of the log, if there is no room."""
    b = code.builder
    with b.if_then(full.raw):
        host = pointer_at(code, log, at.FULL)
        b.call(b.bitcast(host, _HOST.as_pointer()), [])


def warp_number(code: Code, warp: Raw, own: Raw) -> Value:
    """The number of a warp among all that are recorded."""
    first = field(code, own, at.OWN_WARP, I32)[0]
    return first + field(code, warp, layout.WARP_NUMBER, I32)[0]


def place(code: Code, log: Raw, array: int, used: Value, size: int) -> Raw:
    """Where the next row of an array of the log is."""
    base = pointer_at(code, log, array)
    return code.builder.gep(base, [(used * size).raw])


def put(code: Code, row: Raw, values: Sequence[Value]) -> None:
    """Write the first words of a row."""
    for number, value in enumerate(values):
        field(code, row, 4 * number, I32)[0] = value


# ── steps ───────────────────────────────────────────────────────────────────


def step(sizes: Sequence[int]) -> Routine:
    """The routine of a step that writes registers: so many words side by side each.

    It gets the number of the instruction, the lanes, and where the registers are.
    """
    name = ".".join(("replay.step", *map(str, sizes)))

    def trace(
        code: Code, warp: Raw, block: Raw, site: Value, lanes: Value, *places: Value
    ) -> None:
        b, total = code.builder, sum(sizes)
        with recorded(code, block, lanes) as (own, log):
            steps, words = (
                field(code, log, each, I64) for each in (at.STEPS, at.WORDS)
            )
            room = field(code, log, at.STEP_ROOM, I64)[0]
            full = steps[0] >= room
            if total:
                full = full | (
                    words[0] + total > field(code, log, at.WORD_ROOM, I64)[0]
                )
            empty_if(code, log, full)
            row = place(code, log, at.STEPS_AT, steps[0], 4 * at.STEP_WORDS)
            used = words[0]
            put(
                code,
                row,
                [site, warp_number(code, warp, own), lanes, convert(used, I32)],
            )
            goal = place(code, log, at.WORDS_AT, used, 4)
            done = 0
            for size, register in zip(sizes, places, strict=True):
                to = b.gep(goal, [ir.Constant(I64, 4 * done)])
                of = b.gep(warp, [register.raw])
                copy_memory(b, to, of, ir.Constant(I64, 4 * size))
                done += size
            steps[0] = steps[0] + 1
            if total:
                words[0] = used + total

    given = [P, P, I32, I32, *[I64] * len(sizes)]
    return routine(name, trace, given, None)


# ── accesses ────────────────────────────────────────────────────────────────


def access(bits: Sequence[int], data: int) -> Routine:
    """The routine of an access: its lanes and their addresses are written down.

    ``bits`` are those of each register with addresses; an offset goes with each.
    ``data`` are the words after them, whose bytes are taken when it is done.
    ``pending`` is its number among the accesses of its instruction.
    """
    name = ".".join(("replay.access", *map(str, bits), f"d{data}"))

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        form: Value,
        lanes: Value,
        pending: Value,
        reads: Value,
        *given: Raw | Value,
    ) -> None:
        with recorded(code, block, lanes) as (own, log):
            rows, used = (
                field(code, log, each, I64) for each in (at.ACCESSES, at.DATA)
            )
            most, room = (
                field(code, log, each, I64)[0]
                for each in (at.ACCESS_ROOM, at.DATA_ROOM)
            )
            full = (rows[0] > most - at.LEAST_ROWS) | (used[0] > room - at.LEAST_WORDS)
            empty_if(code, log, full & (pending == 0))
            time = (
                field(code, log, at.BASE, I64)[0] + field(code, log, at.STEPS, I64)[0]
            )
            row = place(code, log, at.ACCESSES_AT, rows[0], 4 * at.ROW_WORDS)
            number = warp_number(code, warp, own)
            put(
                code,
                row,
                [convert(time, I32), form, lanes, number, convert(used[0], I32), reads],
            )
            goal = place(code, log, at.DATA_AT, used[0], 4)
            for which, width in enumerate(bits):
                register, offset = given[2 * which : 2 * which + 2]
                assert isinstance(offset, Value)
                assert not isinstance(register, Value)
                where = addresses(code, register, width, offset)
                step = ir.Constant(I64, 4 * at.ADDRESS_WORDS * which)
                put_lanes(code, code.builder.gep(goal, [step]), where)
            rows[0] = rows[0] + 1
            if data:
                _pending(code, log, pending)[0] = rows[0]
            used[0] = used[0] + (len(bits) * at.ADDRESS_WORDS + data)

    kinds = [P, P, I32, I32, I32, I32, *[P, I64] * len(bits)]
    return routine(name, trace, kinds, None)


def _pending(code: Code, log: Raw, number: Value) -> Memory:
    b = code.builder
    step = convert(number, I64, signed=False) * 8 + at.PENDING
    return field(code, b.gep(log, [step.raw]), 0, I64)


def _there(code: Code, block: Raw, number: Value) -> Value:
    """The data of an access that is not complete; 0 if there is none."""
    b = code.builder
    found = code.variable(convert(number, I64).lift(0))
    with recorded(code, block, number.lift(1)) as (_, log):
        waits = _pending(code, log, number)[0]
        with code.when(waits != 0):
            row = place(code, log, at.ACCESSES_AT, waits - 1, 4 * at.ROW_WORDS)
            start = convert(field(code, row, 16, I32)[0], I64, signed=False)
            data = place(code, log, at.DATA_AT, start, 4)
            found.value = Value(b, b.ptrtoint(data, I64))
    return found.value


def _complete(
    code: Code, block: Raw, number: Value, failed: Value, past: Value
) -> None:
    """The bytes of an access are there, but for some lanes, or for none of them."""
    with recorded(code, block, number.lift(1)) as (_, log):
        waits = _pending(code, log, number)
        row = place(code, log, at.ACCESSES_AT, waits[0] - 1, 4 * at.ROW_WORDS)
        lanes = field(code, row, 8, I32)
        lanes[0] = lanes[0] & ~past
        with code.when(failed != 0):
            lanes[0] = past.lift(0)
        waits[0] = waits[0].lift(0)


THERE = routine("replay.there", _there, [P, I32], I64)
COMPLETE = routine("replay.complete", _complete, [P, I32, I32, I32], None)
