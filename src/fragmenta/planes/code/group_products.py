"""Second values through ``wgmma``: all at issue, in one call of compiled code.

The hardware's D is computed on a copy, since the product itself may run later.  Its
operands are read as the product reads them: from the registers of four warps, and from
shared memory through descriptors.  The planes are read in the same way: those of
registers beside them, those of shared memory in its shadows::

    int32 f(const int64 *warps, const int64 *table, const int64 *descriptors,
            const uint8 *shared, int64 size, const int64 *shadows,
            const int64 *selectors, uint64 *work,
            int64 data, int64 site, int64 chain, int64 block, int64 warp)

``warps`` are the addresses of four warps, ``shadows`` those of shared memory in each
plane.  The table has a pair for each register of A, of metadata, and of D: its place in
a warp, and that of its plane 0, -1 if it has none.  ``work`` is memory for matrices.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from fragmenta.arrays.once import once
from fragmenta.execution.warp_operands import Given, Side, from_registers
from fragmenta.execution.warp_registers import Items, items_of
from fragmenta.execution.warpgroup import WarpgroupFunction, warpgroup_function
from fragmenta.execution.warpgroup_shared import Shared, from_shared
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.tables.wgmma import Ways
from fragmenta.jit.compiler import Traced, address_of_call, pointer
from fragmenta.jit.trace import (
    I8,
    I32,
    I64,
    Code,
    Memory,
    Value,
    call_address,
    convert,
    select,
)
from fragmenta.planes.code.gathering import (
    clear,
    columns_of,
    end_bits,
    gather,
    held_by,
    memory_at,
    raw_bits,
    scatter,
)
from fragmenta.planes.code.products import (
    Product,
    ProductAlgebra,
    Tiles,
    Where,
    product_model,
)
from fragmenta.shared.descriptor import MAJORS
from fragmenta.simt.layout import LANES

WARPS = 4
ROW = WARPS * LANES
"""Words of a register in all warps."""
_HARDWARE = "hardware"


def described(
    op: Instruction, target: str, algebra: ProductAlgebra, ways: Ways
) -> Product:
    """The product of an instruction with its immediates."""
    negated = (ways.imm_scale_a == -1, ways.imm_scale_b == -1)
    return Product(op, product_model(op, target), algebra.planes, negated, algebra.most)


def _sizes(how: Product) -> list[int]:
    """Words of 64 bits of the matrices in the memory that is given."""
    bits = [how.sizes[name] for name in "abcd"]
    seconds = [how.words(name) * how.sizes[name] for name in "abcd"]
    return [*bits, *seconds]


def room(how: Product) -> int:
    """Words of 64 bits that the matrices of a product need."""
    return sum(_sizes(how))


@once
def group_product(
    op: Instruction, target: str, algebra: ProductAlgebra, ways: Ways
) -> Traced:
    """The function of an instruction with its immediates, for an algebra."""
    how = described(op, target, algebra, ways)
    hardware = _hardware(op, target, ways)
    parameters = {
        "warps": pointer(I64),
        "table": pointer(I64),
        "descriptors": pointer(I64),
        "shared": pointer(I8),
        "size": I64,
        "shadows": pointer(I64),
        "selectors": pointer(I64),
        "work": pointer(I64),
        **dict.fromkeys(Where._fields, I64),
    }
    trace = partial(_trace, how, algebra, ways)
    name = f"{algebra.name}_group_product"
    calls = {_HARDWARE: hardware.traced}
    return Traced(name, parameters, trace, I32, calls)  # type: ignore[arg-type]


def _hardware(op: Instruction, target: str, ways: Ways) -> WarpgroupFunction:
    return warpgroup_function(
        op,
        target,
        a_from_registers=ways.a_from_registers,
        imm_scale_a=ways.imm_scale_a,
        imm_scale_b=ways.imm_scale_b,
        trans_a=ways.trans_a,
        trans_b=ways.trans_b,
    )


class _Parts(NamedTuple):
    """The memory that was given, in its parts."""

    a: Memory
    b: Memory
    c: Memory
    d: Memory
    a2: Memory
    b2: Memory
    c2: Memory
    d2: Memory


def _trace(
    how: Product,
    algebra: ProductAlgebra,
    ways: Ways,
    code: Code,
    warps: Memory,
    table: Memory,
    descriptors: Memory,
    shared: Memory,
    size: Value,
    shadows: Memory,
    selectors: Memory,
    work: Memory,
    *numbers: Value,
) -> Value:
    op, model = how.op, how.model
    parts = _parted(how, work)
    registers = _Registers(code, how, ways, warps, table)
    inputs = registers.inputs()
    metadata = inputs.after((registers.inputs_count - op.sparse) * ROW)
    c = registers.hardware(registers.d_first, registers.d_count)
    _keep(code, c, registers.d_count, selectors[0])
    d = code.scratch(I32, registers.d_count * ROW)
    _copied(code, d, c, registers.d_count * ROW)
    given = [d, inputs, descriptors, shared, size, metadata, selectors]
    steps = [code.constant(number, I64) for number in (ROW, LANES)]
    call_address(address_of_call(code, _HARDWARE), [*given, *steps])
    status = code.variable(code.constant(0, I32))
    reader = _Reader(code, how, ways, descriptors, size, status)
    sides = reader.sides(shared, inputs, flipped=True)
    for name, side in sides.items():
        raw_bits(code, how, side, getattr(parts, name))
    end_bits(code, how, "c", c, parts.c)
    end_bits(code, how, "d", d, parts.d)
    has = [
        _second_of_operand(code, how, reader, registers, shadows, "a", parts.a2),
        _second_of_operand(code, how, reader, registers, shadows, "b", parts.b2),
        registers.second_of_c(parts.c2, selectors[0]),
    ]
    chosen = {"selector": selectors[1]} if op.sparse else {}
    all_given = Given(op, model, sides["a"], sides["b"], c, d, metadata, chosen)
    index, _ = columns_of(code, all_given)
    tiles = Tiles(
        parts.a,
        parts.b,
        parts.c,
        parts.d,
        index,
        None,
        None,
        parts.a2,
        parts.b2,
        parts.c2,
        parts.d2,
        *has,
        *numbers,
    )
    made = convert(algebra.product(code, how, tiles), I32, signed=False)
    registers.scattered(parts.d2, made != 0)
    return made


def _parted(how: Product, work: Memory) -> _Parts:
    found, start = [], 0
    for place, size in enumerate(_sizes(how)):
        part = work.after(start)
        found.append(part.view(how.raw) if place < 4 else part)
        start += size
    return _Parts(*found)


def _keep(code: Code, c: Memory, registers: int, scale_d: Value) -> None:
    """The old D is not added if scale-d is 0: C is zero then."""
    zero = code.constant(0, I32).in_all_lanes(LANES)
    with code.when(scale_d == 0), code.loop(registers * ROW, step=LANES) as at:
        c[at] = zero


def _copied(code: Code, to: Memory, of: Memory, count: int) -> None:
    with code.loop(count, step=LANES) as at:
        to[at] = of.lanes(at, LANES)


class _Reader:
    """Reads A and B through descriptors, from shared memory or from its shadows."""

    def __init__(
        self,
        code: Code,
        how: Product,
        ways: Ways,
        descriptors: Memory,
        size: Value,
        status: object,
    ) -> None:
        self.code, self.how, self.ways = code, how, ways
        self._descriptors, self._size, self._status = descriptors, size, status

    def in_shared(self, name: str, memory: Memory, flipped: int = 0) -> Side:
        """A or B in shared memory."""
        last = 0 if self.ways.a_from_registers else 1
        place = 0 if name == "a" else last
        trans = self.ways.trans_a if name == "a" else self.ways.trans_b
        shared = Shared(memory, self._size, self._status)  # type: ignore[arg-type]
        word = self._descriptors[place]
        major = MAJORS[trans]
        return from_shared(self.code, self.how.op, name, word, shared, major, flipped)

    def sides(
        self, shared: Memory, inputs: Memory, *, flipped: bool
    ) -> dict[str, Side]:
        """The hardware's A and B."""
        op, model = self.how.op, self.how.model
        signs = {
            name: 1 << (op.types[name].bits - 1) if negated and flipped else 0
            for name, negated in zip("ab", self.how.negated, strict=True)
        }
        if self.ways.a_from_registers:
            a = from_registers("a", op.a, inputs, model.stored, signs["a"])
        else:
            a = self.in_shared("a", shared, signs["a"])
        return {"a": a, "b": self.in_shared("b", shared, signs["b"])}


def _second_of_operand(
    code: Code,
    how: Product,
    reader: _Reader,
    registers: _Registers,
    shadows: Memory,
    name: str,
    goal: Memory,
) -> Value:
    """Fill ``goal`` with the second values of A or B; whether there are any."""
    if name == "a" and reader.ways.a_from_registers:
        return registers.second_of_a(goal)
    count = how.sizes[name] * how.bits(name) // 32
    # Where a side has its elements does not depend on the memory that it is read from.
    items = reader.in_shared(name, memory_at(code, shadows[0], I8)).items
    held = held_by(code, how, name, count, items)

    def read(plane: Value, goal: Memory) -> None:
        side = reader.in_shared(name, memory_at(code, shadows[plane], I8))
        with code.loop(count, step=8) as at:
            goal[at] = side.memory.lanes(at)

    return gather(code, how, name, held, read, goal)


class _Registers:
    """The registers of four warps, and their planes."""

    def __init__(
        self, code: Code, how: Product, ways: Ways, warps: Memory, table: Memory
    ) -> None:
        self._code, self._how, self._table = code, how, table
        op = how.op
        self.a_count = op.a.registers if ways.a_from_registers else 0
        self.inputs_count = self.a_count + op.sparse
        self.d_first, self.d_count = self.inputs_count, op.d.registers
        self._warps = [memory_at(code, warps[each], I32) for each in range(WARPS)]

    def _copy(
        self,
        first: int,
        count: int,
        held: Memory,
        plane: Value | None,
        out: bool = False,
    ) -> None:
        """Copy registers of all warps, or one plane of them, in or out."""
        code, table = self._code, self._table
        with code.loop(count) as register:
            entry = (register + first) * 2
            place = table[entry] if plane is None else table[entry + 1]
            there = place >= 0 if plane is None else (place >= 0) & (table[entry] >= 0)
            at = place >> 2 if plane is None else (place >> 2) + plane * LANES
            for number, warp in enumerate(self._warps):
                own = register * ROW + number * LANES
                with code.when(there):
                    if out:
                        warp[at] = held.lanes(own, LANES)
                    else:
                        held[own] = warp.lanes(at, LANES)
                if not out:
                    other = convert(table[entry + 1], I32)
                    nothing = other.lift(0) if plane is not None else other
                    with code.when(~there):
                        held[own] = nothing.in_all_lanes(LANES)

    def hardware(self, first: int, count: int) -> Memory:
        """Registers in the order (register, lane)."""
        held = self._code.scratch(I32, max(1, count) * ROW)
        self._copy(first, count, held, None)
        return held

    def inputs(self) -> Memory:
        """A and metadata, as far as they are in registers."""
        return self.hardware(0, self.inputs_count)

    def second_of_a(self, goal: Memory) -> Value:
        """The second values of A in registers; whether there are any."""
        part = self._how.op.a
        return self._second("a", 0, self.a_count, items_of(part, "row"), goal)

    def second_of_c(self, goal: Memory, scale_d: Value) -> Value:
        """The second values of the old D, if it is added; whether there are any."""
        items = items_of(self._how.op.d, "col", single=True)
        found = self._second("c", self.d_first, self.d_count, items, goal)
        return select(scale_d == 0, found.lift(0), found)

    def _second(
        self, name: str, first: int, count: int, items: Items, goal: Memory
    ) -> Value:
        code, how = self._code, self._how
        held = held_by(code, how, name, count * ROW, items)

        def read(plane: Value, goal: Memory) -> None:
            self._copy(first, count, goal, plane)

        return gather(code, how, name, held, read, goal)

    def scattered(self, source: Memory, made: Value) -> None:
        """Put second values into the planes of D, or clear them."""
        code, how, count = self._code, self._how, self.d_count
        items = items_of(how.op.d, "col", single=True)
        held = held_by(code, how, "d", count * ROW, items)

        def write(plane: Value, of: Memory) -> None:
            self._copy(self.d_first, count, of, plane, out=True)

        with code.when(made):
            scatter(code, how, source, held, write)
        with code.when(~made):
            clear(code, how, held, write)
