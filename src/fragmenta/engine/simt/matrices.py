"""Loads, stores and products of matrices by the lanes of a warp.

The catalogue has one line for each fragment, which says which lane holds which element.
Here it becomes a table: where each register of each lane comes from.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I8,
    I16,
    I32,
    I64,
    Code,
    Value,
    Variable,
    convert,
    select,
)
from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.emitter import InMemory, Writer, address_of, handles
from fragmenta.engine.simt.layout import LANES, PLAIN, Fault
from fragmenta.engine.simt.library import POINTER, Routine, as_signed, field
from fragmenta.engine.simt.memory import (
    AccessForm,
    addresses,
    fault,
    generic,
    inside,
    lane_of,
    note,
    pointer,
    shared,
    spill,
)
from fragmenta.engine.simt.warps import P, routine
from fragmenta.errors import BadOperands, Error
from fragmenta.ptx.checking.tensor import Remark, named
from fragmenta.ptx.families import ROW_LOADS, ROW_STORES, WARP_PRODUCTS
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Vector,
)
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.isa.tables.moves import PACKINGS, row_bytes
from fragmenta.reference.registers.fragment import Fragment

STAGE = {"d": 0, "a": 4096, "b": 8192, "c": 12288, "extra": 16384, "selectors": 17408}
WORD = 4 * LANES
"""Bytes of a word of each lane."""
_ROWS = 20480
"""Where in the stage the rows of a stmatrix are put together."""


def operation(instruction: Instruction) -> Op:
    """The instruction of the catalogue; ptxas takes modifiers in any order."""
    found = named(instruction.mnemonic)
    if isinstance(found, Remark):
        raise Error(found.message)
    return found


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _registers(
    writer: Writer, operand: Operand, part: Fragment, *, result: bool = False
) -> list[InMemory]:
    """Where the registers of a fragment are: as many as it has, and as wide."""
    items = _items(operand)
    if len(items) != part.registers:
        raise BadOperands(
            f"{part.name} has {part.registers} registers; given {len(items)}"
        )
    width = f"b{part.register_bits}"
    return [writer.exact(each, width, result=result) for each in items]


# ── multiplying ─────────────────────────────────────────────────────────────


@handles(*WARP_PRODUCTS)
def mma(writer: Writer, instruction: Instruction) -> None:
    """A multiplication, or a load or store of a fragment."""
    op = operation(instruction)
    if op.unit == "wmma" and op.moves:
        _wmma_memory(writer, instruction, op)
        return
    given = list(instruction.operands)
    number = len(writer.functions)
    key = (str(op), writer.target)
    if key in writer.functions:
        number = writer.functions.index(key)
    else:
        writer.functions.append(key)
    rows = [
        row
        for name, operand in zip("abc", given[1:4], strict=True)
        for row in _rows(writer, operand, op, name)
    ]
    rows += _stage_rest(writer, op, given[4:])
    results = _rows(writer, given[0], op, "d")
    data = b"".join(each.to_bytes() for each in (*rows, *results))
    illegal = writer.call(
        MULTIPLY,
        *("ptr %warp", "ptr %constants", "ptr %stage", "ptr %functions"),
        f"i64 {number}",
        f"i64 {writer.data(data)}",
        f"i64 {len(rows)}",
        f"i64 {len(rows) + len(results)}",
        returns="i32",
    )
    if op.sparse:
        _check_metadata(writer, illegal)
    writer.fidelity[instruction.mnemonic] = _fidelity(writer.target)


def _fidelity(target: str) -> str:
    return "h200" if target.startswith("sm_90") else "published"


class _Row(NamedTuple):
    """A word of each lane that is copied: its place in the stage, and the other one."""

    stage: int
    at: InMemory

    def to_bytes(self) -> bytes:
        """As :data:`MULTIPLY` reads it: a constant has a negative number."""
        constant = self.at.base == "%constants"
        other = ~self.at.offset if constant else self.at.offset
        return b"".join(
            each.to_bytes(8, "little", signed=True) for each in (self.stage, other)
        )


def _rows(writer: Writer, operand: Operand, op: Op, name: str) -> list[_Row]:
    """The words of a fragment."""
    part = op.fragments[name.upper()]
    words = part.register_bits // 32
    found = _registers(writer, operand, part, result=name == "d")
    return [
        _Row(STAGE[name] + WORD * (words * index + word), at.moved(WORD * word, 32))
        for index, at in enumerate(found)
        for word in range(words)
    ]


def _stage_rest(writer: Writer, op: Op, rest: list[Operand]) -> list[_Row]:
    """Stage selectors; the words of metadata and scales."""
    found: list[_Row] = []
    names = ("selector", "byte_a", "thread_a", "byte_b", "thread_b")
    parts = [part for each in rest for part in _items(each)]
    wanted = [each.name for each in op.operands[4:]]
    if len(parts) != len(wanted):
        raise BadOperands(
            f"{op} takes {len(wanted)} operands behind C; given {len(parts)}"
        )
    for name, each in zip(wanted, parts, strict=True):
        if name in names:
            place = STAGE["selectors"] + 8 * names.index(name)
            if isinstance(each, Immediate):
                writer.store("i64", int(each.value), "%stage", place)
            else:
                small = writer.load("i16", writer.pointer(each, "u16"), 0)
                wide = writer.value(f"zext i16 {small} to i64")
                writer.store("i64", wide, "%stage", place)
            continue
        place = STAGE["extra"] + WORD * len(found)
        found.append(_Row(place, writer.exact(each, "b32")))
    return found


def _check_metadata(writer: Writer, illegal: str) -> None:
    on, bad = writer.new_label(), writer.new_label()
    wrong = writer.value(f"icmp ne i32 {illegal}, 0")
    writer.line(f"br i1 {wrong}, label %{bad}, label %{on}")
    writer.label(bad)
    writer.fault(Fault.METADATA)
    writer.line(f"br label %{on}")
    writer.label(on)


# ── moving ──────────────────────────────────────────────────────────────────


class PieceAddresses(NamedTuple):
    """Where the pieces of each register are in memory.

    A piece is some bits of a register.  It is in line ``line``, ``bit`` bits after
    the start of that line; arrays are (lanes, registers, pieces).
    """

    line: NDArray[np.int32]
    bit: NDArray[np.int32]
    bits: int
    """The bits of a piece in memory."""
    slot: int
    """The bits of a piece in the register."""
    signed: bool = False
    """Whether the sign of a piece fills its place in the register."""


def _plan(
    part: Fragment, line: ArrayLike, place: ArrayLike, bits: int
) -> PieceAddresses:
    """Elements that are side by side in memory are moved together."""
    slot = part.container.bits
    shape = (part.lanes, part.registers, -1)
    lines = np.asarray(line, np.int32).reshape(shape)
    first = np.asarray(place, np.int64).reshape(shape) * bits
    whole = part.register_bits
    steps = np.arange(lines.shape[-1]) * bits
    together = (first == first[..., :1] + steps).all() and (
        lines == lines[..., :1]
    ).all()
    if together and bits == slot and bits * lines.shape[-1] == whole:
        return PieceAddresses(
            lines[..., :1], first[..., :1].astype(np.int32), whole, whole
        )
    return PieceAddresses(lines, first.astype(np.int32), bits, slot)


def _tables(writer: Writer, plan: PieceAddresses) -> tuple[str, str]:
    return tuple(  # type: ignore[return-value]
        writer.at("%constants", writer.data(np.ascontiguousarray(each).tobytes()))
        for each in (plan.line, plan.bit)
    )


@handles(*ROW_LOADS, *ROW_STORES)
def ldmatrix(writer: Writer, instruction: Instruction) -> None:
    """Load or store 8x8 matrices; the lanes have the addresses of their rows."""
    op = operation(instruction)
    (part,) = op.fragments.values()
    grid = part.layout.grid()
    rows = part.shape[1]
    packed = PACKINGS.get(op.values["type"])
    bits = packed.bits if packed else part.dtype.bits
    plan = _plan(part, grid["matrix"] * rows + grid["row"], grid["col"], bits)
    plan = plan._replace(signed=packed is not None and packed.signed)
    stores = op.stores
    address, registers = instruction.operands[:: 1 if stores else -1]
    if not isinstance(address, Address):
        raise Error(f"{instruction.mnemonic} needs an address")
    at, offset = address_of(writer, address)
    lines, places = _tables(writer, plan)
    used = part.shape[0] * rows
    window = 0 if op.values["space"] else layout.SHARED_WINDOW
    width = row_bytes(op)
    make = move_rows(plan, used, stores, at.bits, window, width)
    found = _registers(writer, registers, part, result=not stores)
    items = [writer.address(each) for each in found]
    if writer.mode.probed:
        stored = writer.at("%stage", _ROWS)
        if (
            stores and writer.mode.watch
        ):  # what each lane's row becomes, to be compared with what is there
            given = [f"ptr {each}" for each in (stored, lines, places, *items)]
            writer.call(gather_rows(plan), *given)
        start = as_signed(offset - window, 64)
        writer.probes.matrix_rows(writer, at, start, used, stores, stored, width)
    failed = writer.call(
        make,
        *writer.memory,
        f"ptr {writer.address(at)}",
        f"i64 {offset}",
        f"ptr {lines}",
        f"ptr {places}",
        f"i32 {writer.site()}",
        *(f"ptr {each}" for each in items),
        returns="i32",
    )
    writer.stop_if(failed)


@handles("movmatrix")
def movmatrix(writer: Writer, instruction: Instruction) -> None:
    """Transpose a matrix in the registers of a warp."""
    op = operation(instruction)
    a, d = op.fragments["A"].layout.grid(), op.fragments["D"].layout.grid()
    lane_at = np.zeros((8, 8), np.int32)
    half_at = np.zeros((8, 8), np.int32)
    lanes, halves = np.indices(np.asarray(a["row"]).reshape(LANES, 2).shape)
    row, col = (np.asarray(a[n]).reshape(LANES, 2) for n in ("row", "col"))
    lane_at[row, col], half_at[row, col] = lanes, halves
    row, col = (np.asarray(d[n]).reshape(LANES, 2) for n in ("row", "col"))
    table = (lane_at[row, col] * 2 + half_at[row, col]).astype(np.int32)
    place = writer.at("%constants", writer.data(table.tobytes()))
    goal, source = instruction.operands
    writer.call(
        TRANSPOSE,
        f"ptr {writer.pointer(goal, 'b32', result=True)}",
        f"ptr {writer.pointer(source, 'b32')}",
        f"ptr {place}",
    )


def _wmma_memory(writer: Writer, instruction: Instruction, op: Op) -> None:
    """``wmma.load`` and ``wmma.store``: a matrix with a distance between its lines."""
    (part,) = op.fragments.values()
    grid = part.layout.grid()
    by_row = op.values["layout"] == "row"
    line, place = (grid["row"], grid["col"]) if by_row else (grid["col"], grid["row"])
    bits = part.dtype.bits
    plan = _plan(part, line, place, bits)
    stores = op.stores
    operands = list(instruction.operands)
    registers = operands.pop(1 if stores else 0)
    address, *stride = operands
    if not isinstance(address, Address):
        raise Error(f"{instruction.mnemonic} needs an address")
    at, offset = address_of(writer, address)
    m, n = part.shape[-2:]
    tight = n if by_row else m
    step = stride[0] if stride else Immediate(tight, "int", tight)
    lines, places = _tables(writer, plan)
    found = _registers(writer, registers, part, result=not stores)
    items = [writer.address(each) for each in found]
    space = (
        "shared" if any(w.startswith("shared") for w in instruction.qualifiers) else ""
    )
    given = (
        f"ptr {writer.address(at)}",
        f"i64 {offset}",
        f"ptr {writer.pointer(step, 'u32')}",
        f"ptr {lines}",
        f"ptr {places}",
    )
    if writer.mode.probed:
        what = AccessForm(
            space or "global", plan.bits, part.register_bits, 1, address=64
        )
        made = line_addresses(plan, bits, at.bits)
        _watch_lines(writer, instruction, what, made, plan, given, items)
    failed = writer.call(
        move_lines(plan, bits, stores, at.bits, space, part.register_bits),
        *writer.memory,
        *given,
        f"i32 {writer.site()}",
        *(f"ptr {each}" for each in items),
        returns="i32",
    )
    writer.stop_if(failed)


def _watch_lines(
    writer: Writer,
    instruction: Instruction,
    what: AccessForm,
    made: Routine,
    plan: PieceAddresses,
    given: tuple[str, ...],
    items: list[str],
) -> None:
    """Write the checks of ``wmma.load`` or ``wmma.store``: piece after piece."""
    kind = "write" if "store" in instruction.qualifiers else "read"
    registers, pieces = plan.line.shape[1:]
    at = writer.temporary(64)
    for number in range(registers * pieces):
        writer.call(made, *given, f"i64 {number}", f"ptr {writer.address(at)}")
        value = items[number // pieces]
        writer.probes.access(writer, instruction, what, at, 0, [value], kind, False)


# ── routines ────────────────────────────────────────────────────────────────


def _multiply(
    code: Code,
    warp: Raw,
    constants: Raw,
    stage: Raw,
    functions: Raw,
    number: Value,
    table: Value,
    first: Value,
    last: Value,
) -> Value:
    """Copy operands into the stage, multiply, and copy the results out of it.

    The table has two numbers for each word: see :class:`_Row`.  Its first rows are
    those of the operands.  Without a result if the metadata are illegal.
    """
    b = code.builder
    rows = field(code, b.gep(constants, [table.raw]), 0, I64)

    def word(row: Value) -> tuple[Raw, Raw]:
        staged, other = rows[row * 2], rows[row * 2 + 1]
        base = b.select((other < 0).raw, constants, warp)
        offset = select(other < 0, ~other, other)
        return b.gep(stage, [staged.raw]), b.gep(base, [offset.raw])

    with code.loop(first) as row:
        to, of = word(row)
        warps.put_lanes(code, to, warps.all_lanes(code, of))
    kind = ir.FunctionType(I32, [POINTER] * len(STAGE)).as_pointer()
    place = b.gep(b.bitcast(functions, kind.as_pointer()), [number.raw])
    given = [warps.place(code, stage, each) for each in STAGE.values()]
    illegal = Value(b, b.call(b.load(place), given))
    with code.when(illegal == 0), code.loop(last, first) as row:
        of, to = word(row)
        warps.put_lanes(code, to, warps.all_lanes(code, of))
    return illegal


MULTIPLY = routine("multiply", _multiply, [P, P, P, P, I64, I64, I64, I64], I32)


def _sized(bits: int) -> Type:
    made: Type = ir.IntType(bits)
    return made


class _Mover(NamedTuple):
    """Moves the pieces of registers between memory and registers."""

    code: Code
    plan: PieceAddresses
    stores: bool
    registers: tuple[Raw, ...]
    width: int = 32

    def piece(self, memory: Raw, register: Raw, lane: Value, index: int) -> None:
        """Move one piece; ``memory`` points to its first byte."""
        b, plan = self.code.builder, self.plan
        slot = _sized(plan.slot)
        count = self.width // plan.slot
        start = b.add(b.mul(lane.raw, ir.Constant(I64, count)), ir.Constant(I64, index))
        at = b.gep(b.bitcast(register, slot.as_pointer()), [start])
        there = b.bitcast(memory, slot.as_pointer())
        if self.stores:
            b.store(b.load(at), there).align = 1
        else:
            loaded = b.load(there)
            loaded.align = 1
            b.store(loaded, at)

    def packed(
        self, memory: Raw, shift: Value, register: Raw, lane: Value, index: int
    ) -> None:
        """Move one piece of fewer than 8 bits into a byte."""
        b, plan = self.code.builder, self.plan
        start = b.add(b.mul(lane.raw, ir.Constant(I64, 4)), ir.Constant(I64, index))
        # A piece that is never in two bytes is read from one, and nothing past a row.
        size = I16 if 8 % plan.bits else I8
        loaded = b.load(b.bitcast(memory, size.as_pointer()))
        loaded.align = 1
        moved = b.trunc(b.lshr(loaded, b.trunc(shift.raw, size)), I8)
        unused = ir.Constant(I8, 8 - plan.bits)
        above = b.ashr if plan.signed else b.lshr
        b.store(above(b.shl(moved, unused), unused), b.gep(register, [start]))


def _check(
    code: Code,
    warp: Raw,
    number: Value,
    failed: Variable,
    lane: Value,
    address: Value,
    size: int,
    checks: dict[Fault, Value],
) -> None:
    """A fault for the first condition that does not hold, if there was none before."""
    for kind, good in checks.items():
        with code.when(~good & (failed.value == 0)):
            fault(code, warp, kind, number, lane, address, size)
            failed.value = number.lift(1)


def move_rows(
    plan: PieceAddresses, used: int, stores: bool, bits: int, window: int, width: int
) -> Routine:
    """Move rows of ``width`` bytes; each lane has the address of one."""
    registers, pieces = plan.line.shape[1:]

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lines: Raw,
        places: Raw,
        number: Value,
        *given: Raw,
    ) -> Value:
        b = code.builder
        at = addresses(code, register, bits, offset)
        at = at - window if window else at
        spilled = spill(code, at)
        where = shared(code, block)
        failed = code.variable(number.lift(0))
        with code.loop(used) as lane:
            address = lane_of(code, spilled, lane)
            checks = {
                Fault.BOUNDS: inside(where, address, width),
                Fault.ALIGNMENT: (address & (width - 1)) == 0,
            }
            _check(code, warp, number, failed, lane, address, width, checks)
        mover = _Mover(code, plan, stores, given)
        line_at, bit_at = (
            b.bitcast(each, I32.as_pointer()) for each in (lines, places)
        )
        # The result may be the register with the addresses: they were copied before.
        with code.when(failed.value == 0), code.loop(LANES) as lane:
            for index, goal in enumerate(given):
                for piece in range(pieces):
                    entry = (lane * registers + index) * pieces + piece
                    row = convert(lane_of(code, line_at, entry), I64)
                    bit = convert(lane_of(code, bit_at, entry), I64)
                    address = lane_of(code, spilled, row) + (bit >> 3)
                    memory = pointer(code, where, address, I8)
                    if plan.bits < 8:
                        mover.packed(memory, bit & 7, goal, lane, piece)
                    else:
                        mover.piece(memory, goal, lane, piece)
        return failed.value

    name = f"matrix.{stores:d}.{registers}.{pieces}.{plan.bits}.{used}"
    kinds = [P, P, P, I64, P, P, I32, *[P] * registers]
    sign = ".signed" * plan.signed
    return routine(f"{name}.{bits}.{window}.{width}{sign}", trace, kinds, I32)


def gather_rows(plan: PieceAddresses) -> Routine:
    """The rows that a stmatrix stores, side by side."""
    registers, pieces = plan.line.shape[1:]

    def trace(code: Code, goal: Raw, lines: Raw, places: Raw, *given: Raw) -> None:
        b = code.builder
        mover = _Mover(code, plan, True, given)
        line_at, bit_at = (
            b.bitcast(each, I32.as_pointer()) for each in (lines, places)
        )
        with code.loop(LANES) as lane:
            for index, source in enumerate(given):
                for piece in range(pieces):
                    entry = (lane * registers + index) * pieces + piece
                    row = convert(lane_of(code, line_at, entry), I64)
                    bit = convert(lane_of(code, bit_at, entry), I64)
                    memory = b.gep(goal, [(row * 16 + (bit >> 3)).raw])
                    mover.piece(memory, source, lane, piece)

    kinds = [P, P, P, *[P] * registers]
    name = f"stmatrix.rows.{registers}.{pieces}.{plan.bits}.{plan.slot}"
    return routine(name, trace, kinds, None)


def move_lines(
    plan: PieceAddresses, element: int, stores: bool, bits: int, space: str, width: int
) -> Routine:
    """Lines of a matrix, as far apart as a register says."""
    registers, pieces = plan.line.shape[1:]

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        stride: Raw,
        lines: Raw,
        places: Raw,
        number: Value,
        *given: Raw,
    ) -> Value:
        b = code.builder
        spilled = spill(code, addresses(code, register, bits, offset))
        steps = b.bitcast(stride, I32.as_pointer())
        line_at, bit_at = (
            b.bitcast(each, I32.as_pointer()) for each in (lines, places)
        )
        failed = code.variable(number.lift(0))
        mover = _Mover(code, plan, stores, given, width)
        size = -(-max(plan.bits, plan.slot) // 8)
        with code.loop(LANES) as lane:
            base = lane_of(code, spilled, lane)
            step = convert(lane_of(code, steps, lane), I64)
            for index, goal in enumerate(given):
                for piece in range(pieces):
                    entry = (lane * registers + index) * pieces + piece
                    line = convert(lane_of(code, line_at, entry), I64)
                    bit = convert(lane_of(code, bit_at, entry), I64)
                    address = base + ((line * step * element + bit) >> 3)
                    if space == "shared":
                        where = shared(code, block)
                    else:
                        where = generic(code, warp, block, address, lane)
                    checks = {Fault.BOUNDS: inside(where, address, size)}
                    if stores:
                        checks[Fault.READ_ONLY] = (where.flags & 1) == 0
                    _check(code, warp, number, failed, lane, address, size, checks)
                    with code.when(failed.value == 0):
                        memory = pointer(code, where, address, I8)
                        mover.piece(memory, goal, lane, piece)
                        if stores:
                            note(code, where, address, size, PLAIN)
        return failed.value

    name = f"wmma.{stores:d}.{registers}.{pieces}.{plan.bits}.{element}"
    kinds = [P, P, P, I64, P, P, P, I32, *[P] * registers]
    return routine(f"{name}.{bits}.{space}.{width}", trace, kinds, I32)


def line_addresses(plan: PieceAddresses, element: int, bits: int) -> Routine:
    """Where each lane has one piece of a matrix."""
    registers, pieces = plan.line.shape[1:]

    def trace(
        code: Code,
        register: Raw,
        offset: Value,
        stride: Raw,
        lines: Raw,
        places: Raw,
        number: Value,
        goal: Raw,
    ) -> None:
        b = code.builder
        spilled = spill(code, addresses(code, register, bits, offset))
        steps, line_at, bit_at = (
            b.bitcast(each, I32.as_pointer()) for each in (stride, lines, places)
        )
        made = field(code, goal, 0, I64)
        with code.loop(LANES) as lane:
            entry = lane * (registers * pieces) + number
            line, bit, step = (
                convert(lane_of(code, table, index), I64)
                for table, index in ((line_at, entry), (bit_at, entry), (steps, lane))
            )
            base = lane_of(code, spilled, lane)
            made[lane] = base + ((line * step * element + bit) >> 3)

    name = f"wmma.at.{registers}.{pieces}.{element}.{bits}"
    return routine(name, trace, [P, I64, P, P, P, I64, P], None)


def _transpose(code: Code, d: Raw, a: Raw, table: Raw) -> None:
    b = code.builder
    halves = code.array(I16, 2 * LANES)
    source = b.bitcast(a, I16.as_pointer())
    places, goal = b.bitcast(table, I32.as_pointer()), b.bitcast(d, I16.as_pointer())
    with code.loop(2 * LANES) as index:
        b.store(b.load(b.gep(source, [index.raw])), b.gep(halves, [index.raw]))
    with code.loop(2 * LANES) as index:
        place = lane_of(code, places, index)
        b.store(b.load(b.gep(halves, [place.raw])), b.gep(goal, [index.raw]))


TRANSPOSE = routine("movmatrix", _transpose, [P, P, P], None)
