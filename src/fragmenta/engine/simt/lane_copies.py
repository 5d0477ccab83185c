"""``cp.async``: each lane copies from global to shared memory.

With the eager schedule, ``cp.async`` copies when it is executed: a program that waits
as it has to sees no difference.  Bulk copies are events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Builder, Raw
from fragmenta.base.jit.trace import (
    I8,
    I32,
    I64,
    Code,
    Number,
    Value,
    compare_unsigned,
    convert,
    select,
)
from fragmenta.engine.simt import layout
from fragmenta.engine.simt.accessing import past_the_end
from fragmenta.engine.simt.emitter import InMemory, Writer, address_of, handles
from fragmenta.engine.simt.events import event, located
from fragmenta.engine.simt.layout import LANES, Fault
from fragmenta.engine.simt.library import Routine, field
from fragmenta.engine.simt.memory import (
    AddressRange,
    addresses,
    fault,
    generic,
    has,
    inside,
    lane_of,
    past_end,
    pointer,
    shared,
    spill,
)
from fragmenta.engine.simt.warps import P, routine
from fragmenta.errors import BadOperands, Error
from fragmenta.ptx.families import COPIES
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Register,
)

SIZES = (4, 8, 16)
"""Bytes that each lane copies."""


class LaneCopy(NamedTuple):
    """The operands of a ``cp.async``."""

    size: int
    to: InMemory
    to_offset: int
    of: InMemory
    of_offset: int
    used: InMemory
    """The bytes that each lane reads."""
    ignored: str
    """The lanes that read none."""

    def reading(self, writer: Writer) -> str:
        """The lanes that read global memory."""
        some = writer.scratch(1)
        writer.compute("setp.ne.u32", some, self.used, writer.constant(32, 0))
        reads = writer.load("i32", writer.address(some), 0)
        kept = writer.value(f"xor i32 {self.ignored}, -1")
        return writer.value(f"and i32 {reads}, {kept}")


def is_lane_copy(instruction: Instruction) -> bool:
    """Whether each lane copies some bytes; no bulk copy, group or wait."""
    words = instruction.qualifiers
    others = {"bulk", "mbarrier", "commit_group", "wait_group", "wait_all"}
    return instruction.is_copy and words[0] == "async" and not others & set(words)


def lane_copy(writer: Writer, instruction: Instruction) -> LaneCopy:
    """The operands of a ``cp.async`` of 4, 8 or 16 bytes for each lane."""
    goal, source, size, *rest = instruction.operands
    if not isinstance(goal, Address) or not isinstance(source, Address):
        raise Error("cp.async needs two addresses")
    if not isinstance(size, Immediate):
        raise Error("the size of cp.async is a constant")
    bytes_ = int(size.value)
    if bytes_ not in SIZES:
        raise BadOperands(f"cp.async copies 4, 8 or 16 bytes; given {bytes_}")
    hint = "L2::cache_hint" in instruction.qualifiers
    used, ignored = _rest(writer, rest, bytes_, hint)
    to, of = address_of(writer, goal), address_of(writer, source)
    return LaneCopy(bytes_, *to, *of, used, ignored)


@handles(*COPIES)
def cp(writer: Writer, instruction: Instruction) -> None:
    """``cp.async`` of 4, 8 or 16 bytes for each lane, and its groups."""
    words = instruction.qualifiers
    bulk = words[:1] != ("async",) or not {"bulk", "mbarrier"}.isdisjoint(words)
    waits = words[1] in ("commit_group", "wait_group", "wait_all")
    if bulk or writer.mode.scheduled or (waits and writer.mode.watch):
        event(writer, instruction)
        return
    if waits:
        return  # everything has been copied already
    given = lane_copy(writer, instruction)
    size, to, to_offset, of, of_offset, used, _ = given
    if writer.mode.watch or writer.mode.traced:
        reads = given.reading(writer)
        writer.probes.lane_copy(writer, size, to, to_offset, of, of_offset, reads)
    lenient = writer.mode.watch or writer.mode.defined
    call_copy(writer, given, copy(size, to.bits, of.bits, lenient))
    if lenient:
        places = [
            located(writer, *each)
            for each in ((of, of_offset), (to, to_offset), (used, 0))
        ]
        past_the_end(writer, f"c{8 * size}", places, [])


def call_copy(writer: Writer, given: LaneCopy, made: Routine) -> None:
    """Call the routine of a ``cp.async``."""
    failed = writer.call(
        made,
        *writer.memory,
        f"ptr {writer.address(given.to)}",
        f"i64 {given.to_offset}",
        f"ptr {writer.address(given.of)}",
        f"i64 {given.of_offset}",
        f"ptr {writer.address(given.used)}",
        f"i32 {given.ignored}",
        f"i32 {writer.lanes()}",
        f"i32 {writer.site()}",
        returns="i32",
    )
    writer.stop_if(failed)


def _rest(
    writer: Writer, rest: list[Operand], size: int, hint: bool
) -> tuple[InMemory, str]:
    """The bytes to be read, and the lanes that read none."""
    if hint and rest:
        rest = rest[:-1]
    used, ignored = writer.constant(32, size), "0"
    for each in rest:
        predicate = each.of if isinstance(each, Not) else each
        if isinstance(predicate, Register) and predicate.type == "pred":
            assert isinstance(each, (Not, Register))
            ignored = writer.predicate(each)
        else:
            used = writer.exact(each, "u32")
    return used, ignored


Steps = Callable[[Code, Raw, AddressRange], Iterable[tuple[Number, Number]]]
"""How far behind goal and source copies are made, too: code, block, the source."""


def _once(
    code: Code, block: Raw, source: AddressRange
) -> Iterable[tuple[Number, Number]]:
    return [(0, 0)]


def copy(
    size: int,
    to_bits: int,
    of_bits: int,
    lenient: bool = False,
    name: str = "",
    steps: Steps = _once,
) -> Routine:
    """The routine that copies some bytes for each lane; zeros where none are read.

    If it is lenient, lanes that read past the end of an argument, but in its granule,
    copy what is there, and are noted in ``PAST`` of the warp.  ``steps`` says where
    else the same is copied; such a routine has a name.
    """

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        to: Raw,
        to_offset: Value,
        of: Raw,
        of_offset: Value,
        used: Raw,
        ignored: Value,
        lanes: Value,
        number: Value,
    ) -> Value:
        b = code.builder
        goals = spill(code, addresses(code, to, to_bits, to_offset))
        sources = spill(code, addresses(code, of, of_bits, of_offset))
        counts = b.bitcast(used, I32.as_pointer())
        failed = code.variable(number.lift(0))
        with (
            code.loop(LANES) as lane,
            code.when(has(lanes, lane) & (failed.value == 0)),
        ):
            given = lane_of(code, counts, lane)
            most = compare_unsigned(">", given, size)
            count = select(has(ignored, lane), 0, select(most, given.lift(size), given))
            goal, source = (lane_of(code, each, lane) for each in (goals, sources))
            there = shared(code, block)
            here = generic(code, warp, block, source, lane)
            if lenient:
                count = _clipped(code, warp, block, here, source, count, lane)
            nothing, wide = count == 0, convert(count, I64, signed=False)
            checks = (
                (Fault.ALIGNMENT, source, size, nothing | _multiple(source, size)),
                (Fault.BOUNDS, source, size, nothing | inside(here, source, wide)),
                (Fault.ALIGNMENT, goal, -size, _multiple(goal, size)),
                (Fault.BOUNDS, goal, -size, inside(there, goal, size)),
            )
            for kind, address, of_size, good in checks:
                with code.when(~good):  # a negative size: the destination
                    fault(code, warp, kind, number, lane, address, of_size)
                    failed.value = number.lift(1)
            with code.when(failed.value == 0):
                for far, near in steps(code, block, here):
                    at, place = (
                        pointer(code, there, goal + far, I8),
                        pointer(code, here, source + near, I8),
                    )
                    with b.if_else((count == size).raw) as (whole, part):
                        with whole:
                            _copy_all(b, at, place, size)
                        with part:
                            _copy_some(code, at, place, count, size)
        return failed.value

    kinds = [P, P, P, I64, P, I64, P, I32, I32, I32]
    own = f"cp.async.{size}.{to_bits}.{of_bits}{'.lenient' * lenient}{name}"
    return routine(own, trace, kinds, I32)


def _clipped(
    code: Code,
    warp: Raw,
    block: Raw,
    where: AddressRange,
    source: Value,
    count: Value,
    lane: Value,
) -> Value:
    """How many bytes there are to be read; a lane with fewer is noted."""
    wide = convert(count, I64, signed=False)
    past = past_end(code, block, where, source, wide) & (count != 0)
    with code.when(past):
        noted = field(code, warp, layout.PAST, I32)
        noted[0] = noted[0] | (count.lift(1) << convert(lane, I32))
    left = where.start + where.size - source
    left = select(left > 0, left, 0)
    return select(past, convert(left, I32), count)


def _copy_all(b: Builder, goal: Raw, source: Raw, size: int) -> None:
    of = ir.VectorType(I8, size).as_pointer()
    loaded = b.load(b.bitcast(source, of))
    loaded.align = 1
    b.store(loaded, b.bitcast(goal, of)).align = 1


def _copy_some(code: Code, goal: Raw, source: Raw, count: Value, size: int) -> None:
    """The first bytes; the others become zero."""
    b = code.builder
    for index in range(size):
        step = [ir.Constant(I32, index)]
        with code.when(compare_unsigned(">", count, index)):
            b.store(b.load(b.gep(source, step)), b.gep(goal, step))
        with code.when(compare_unsigned("<=", count, index)):
            b.store(ir.Constant(I8, 0), b.gep(goal, step))


def _multiple(address: Value, size: int) -> Value:
    multiple: Value = (address & (size - 1)) == 0
    return multiple
