"""The instrument that counts: lanes, branches, sectors, passes and bytes of copies."""

from __future__ import annotations

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.emitter import MEMORY, InMemory, Writer, address_of
from fragmenta.engine.simt.lane_copies import is_lane_copy, lane_copy
from fragmenta.engine.simt.library import Routine
from fragmenta.engine.simt.memory import AccessForm
from fragmenta.engine.simt.probes import Probes
from fragmenta.engine.simt.program import stays
from fragmenta.engine.units.fast.copy_forms import form
from fragmenta.ptx.checking.tensor import Remark, named
from fragmenta.ptx.module import Address, Instruction, Operand, Pair, Register
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.reference.isa.tables.moves import ROW_BYTES
from fragmenta.values.counters.code import layout as at
from fragmenta.values.counters.code.results import count_result, keep_operands, record
from fragmenta.values.counters.code.routines import (
    counted_box,
    counted_global,
    counted_goal,
    counted_products,
    counted_shared,
    counted_size,
)
from fragmenta.values.counters.products import tensor_kind


class CounterProbes(Probes):
    """The instrument that counts.

    ``values``: it also counts how the results of instructions differ.
    """

    def __init__(self, values: bool = False) -> None:
        self._values = values

    def head(self) -> list[str]:
        """Where the counters are."""
        place = layout.BLOCK_COUNTERS
        return [
            f"  %counters_at = getelementptr i8, ptr %block, i64 {place}",
            "  %counters = load ptr, ptr %counters_at",
        ]

    def executed(self, writer: Writer, number: int) -> None:
        """Count the lanes of a code block."""
        _add(writer, at.HEAD + 8 * number, _ones(writer, writer.active()))

    def before(self, writer: Writer, instruction: Instruction) -> None:
        """Count lanes that a guard excludes, branches and asynchronous copies."""
        if instruction.guard is not None and not stays(instruction):
            off = writer.value(f"xor i32 {writer.lanes()}, {writer.active()}")
            _add(writer, at.PREDICATED_OFF, _ones(writer, off))
            _ways(writer, writer.lanes(), off)
            if instruction.opcode == "bra":
                _divergence(writer, off)
        if self._values:
            keep_operands(writer, instruction)
        multiplies = kind_of(instruction.mnemonic).word == "multiplies"
        if instruction.of_tensor_memory and multiplies:
            _tensor_products(writer, instruction)
        if not instruction.is_copy:
            return
        if is_lane_copy(instruction):
            _lane_copy(writer, instruction)
        elif "bulk" in instruction.qualifiers:
            _bulk_copy(writer, instruction)

    def after(self, writer: Writer, instruction: Instruction) -> None:
        """Count for how many lanes a comparison is true."""
        if self._values and count_result(writer, instruction):
            return
        decides = instruction.is_comparison or (
            self._values and _joins_predicates(instruction)
        )
        goal = instruction.operands[0] if decides else None
        first = goal.first if isinstance(goal, Pair) else goal
        if isinstance(first, Register):
            word = writer.predicate(first)
            on = writer.value(f"and i32 {word}, {writer.lanes()}")
            _ways(writer, on, writer.value(f"xor i32 {on}, {writer.lanes()}"))

    def access(
        self,
        writer: Writer,
        instruction: Instruction,
        what: AccessForm,
        at: InMemory,
        offset: int,
        registers: list[str],
        kind: str,
        banks: bool = True,
    ) -> None:
        """Count the sectors or passes of an access."""
        words = set(instruction.qualifiers)
        if what.space == "local" or words & {"const", "param"}:
            return
        if what.space == "global":
            reads, writes = kind != "write", kind != "read"
            counts = counted_global(what, reads=reads, writes=writes)
        else:
            counts = counted_shared(what)
        _call(writer, counts, at, offset, writer.lanes())

    def matrix_rows(
        self,
        writer: Writer,
        at: InMemory,
        offset: int,
        used: int,
        stores: bool,
        values: str,
        width: int,
    ) -> None:
        """Count the passes of ``ldmatrix`` or ``stmatrix``."""
        if width != ROW_BYTES:  # which rows of 8 bytes one pass takes is not known
            return
        chosen = (1 << used) - 1
        signed = chosen - (1 << 32) if chosen >> 31 else chosen
        lanes = writer.value(f"and i32 {writer.lanes()}, {signed}")
        what = AccessForm("shared", 32, 32, width // 4, address=at.bits)
        _call(writer, counted_shared(what, rows=True), at, offset, lanes)


def _joins_predicates(instruction: Instruction) -> bool:
    """Whether it makes a condition of others."""
    return instruction.opcode in ("and", "or", "xor", "not") and (
        "pred" in instruction.qualifiers
    )


def _lane_copy(writer: Writer, instruction: Instruction) -> None:
    """Count what a ``cp.async`` reads."""
    given = lane_copy(writer, instruction)
    bits = 8 * given.size
    source = AccessForm("global", bits, bits, address=given.of.bits)
    lanes = writer.value(f"and i32 {writer.lanes()}, {given.reading(writer)}")
    past = "cg" in instruction.qualifiers
    counts = counted_global(source, reads=True, past_l1=past)
    _call(writer, counts, given.of, given.of_offset, lanes)
    if past:
        _call(writer, counted_goal(given.to.bits), given.to, given.to_offset, lanes)


def _bulk_copy(writer: Writer, instruction: Instruction) -> None:
    """Count the bytes of a bulk copy or of a box."""
    of = form(instruction.mnemonic) if _moves(instruction) else None
    if of is None:
        return
    given = dict(zip(of.operands, instruction.operands, strict=False))
    if "size" in given:
        at = writer.exact(given["size"], "u32")
        _call(writer, counted_size(at.bits), at, 0, writer.lanes())
    elif "tensor" in given:
        tensor: Operand = given["tensor"]
        assert isinstance(tensor, Address)
        at, offset = address_of(writer, tensor)
        _call(writer, counted_box(at.bits, of.rows), at, offset, writer.lanes())


def _tensor_products(writer: Writer, instruction: Instruction) -> None:
    """Count the products of a ``tcgen05.mma``, whose descriptor has their number."""
    op = named(instruction.mnemonic)
    if isinstance(op, Remark):
        return
    place = [each.name for each in op.operands].index("idesc")
    given = writer.exact(instruction.operands[place], "u32")
    counts = counted_products(given.bits, tensor_kind(instruction.mnemonic))
    _call(writer, counts, given, 0, writer.lanes())


def _moves(instruction: Instruction) -> bool:
    """Whether it is a copy, and no group or wait."""
    return not {"commit_group", "wait_group"} & set(instruction.qualifiers)


# ── emitted code ────────────────────────────────────────────────────────────


def _call(
    writer: Writer, routine: Routine, where: InMemory, offset: int, lanes: str
) -> None:
    """Count for a site of its own."""
    address = f"ptr {writer.address(where)}", f"i64 {offset}"
    row = f"i32 {record(writer)}"
    writer.call(routine, *MEMORY, *address, f"i32 {lanes}", row)


def _ways(writer: Writer, on: str, off: str) -> None:
    """Count the lanes of both ways that a condition can go."""
    row = record(writer)
    _add(writer, row + at.SITE_ON, _ones(writer, on))
    _add(writer, row + at.SITE_OFF, _ones(writer, off))


def _ones(writer: Writer, word: str) -> str:
    """How many bits of a word are set, as a number of 64 bits."""
    found = writer.call_name("llvm.ctpop.i32", f"i32 {word}", returns="i32")
    return writer.value(f"zext i32 {found} to i64")


def _add(writer: Writer, place: int, number: str) -> None:
    cell = writer.at("%counters", place)
    before = writer.value(f"load i64, ptr {cell}")
    after = writer.value(f"add i64 {before}, {number}")
    writer.line(f"store i64 {after}, ptr {cell}")


def _divergence(writer: Writer, off: str) -> None:
    """Count a branch that some lanes take and others do not."""
    some = writer.value(f"icmp ne i32 {writer.lanes()}, 0")
    others = writer.value(f"icmp ne i32 {off}, 0")
    both = writer.value(f"and i1 {some}, {others}")
    _add(writer, at.DIVERGENT, writer.value(f"zext i1 {both} to i64"))
