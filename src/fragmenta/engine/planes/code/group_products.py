"""Second values through ``wgmma``: all at issue, in one call of compiled code.

The hardware's D is computed on a copy, since the product itself may run later.  Its
operands are read as the product reads them: from the registers of four warps, and from
shared memory through descriptors.  The planes are read in the same way: those of
registers beside them, those of shared memory in its shadows::

    int32 f(const int64 *warps, const int64 *table, const int64 *descriptors,
            const uint8 *shared, int64 size, const int64 *shadows,
            const int64 *selectors, uint64 *work,
            int64 data, int64 site, int64 chain, int64 block, int64 warp,
            int64 writes)

``warps`` are the addresses of four warps, ``shadows`` those of shared memory in each
plane.  ``writes`` says whether the hardware's D is written to the registers.  The
result is 1 if it could be computed.  The table has a pair for each register of A, of
metadata, and of D: its place in a warp, and that of its plane 0, -1 if it has none.
``work`` is memory for matrices.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, address_of_call, pointer
from fragmenta.base.jit.trace import (
    I1,
    I8,
    I32,
    I64,
    Code,
    Memory,
    Value,
    any_lane,
    convert,
    picked,
    select,
    shift_unsigned,
    smaller,
)
from fragmenta.engine.planes.code.gathering import (
    clear,
    columns_of,
    end_bits,
    gather,
    held_by,
    memory_at,
    raw_bits,
    scatter,
)
from fragmenta.engine.planes.code.products import (
    Ends,
    ProductAlgebra,
    ProductMatrices,
    ProductShape,
    ProductSite,
    product_model,
)
from fragmenta.engine.simt.layout import LANES
from fragmenta.reference.execution.warp_operands import (
    Side,
    WarpOperands,
    from_registers,
)
from fragmenta.reference.execution.warp_registers import Items, Panels, items_of
from fragmenta.reference.execution.warpgroup import (
    WarpgroupFunction,
    warpgroup_function,
)
from fragmenta.reference.execution.warpgroup_shared import (
    CheckedShared,
    from_shared,
    steps_of,
)
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.tables.wgmma import Ways
from fragmenta.reference.shared.descriptor import LINES, MAJORS, extent

WARPS = 4
ROW = WARPS * LANES
"""Words of a register in all warps."""
PANEL = 8
REPEAT = 1024
"""Bytes after which every swizzle repeats."""
_HARDWARE = "hardware"


def described(
    op: Instruction, target: str, algebra: ProductAlgebra, ways: Ways
) -> ProductShape:
    """The product of an instruction with its immediates."""
    negated = (ways.imm_scale_a == -1, ways.imm_scale_b == -1)
    return ProductShape(
        op, product_model(op, target), algebra.planes, negated, algebra.most
    )


def _sizes(how: ProductShape) -> list[int]:
    """Words of 64 bits of the matrices in the memory that is given."""
    bits = [how.sizes[name] for name in "abcd"]
    seconds = [how.words(name) * how.sizes[name] for name in "abcd"]
    return [*bits, *seconds]


def room(how: ProductShape) -> int:
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
        **dict.fromkeys((*ProductSite._fields, "writes"), I64),
    }
    trace = partial(_trace, how, algebra, ways)
    name = f"{algebra.name}_group_product"
    calls = {_HARDWARE: hardware.traced}
    return Traced(name, parameters, trace, I32, calls)


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
    how: ProductShape,
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
    *rest, writes = numbers
    op, model = how.op, how.model
    parts = _parted(how, work)
    registers = _Registers(code, how, ways, warps, table)
    inputs = registers.inputs()
    metadata = inputs.after((registers.inputs_count - op.sparse) * ROW)
    c = registers.hardware(registers.d_first, registers.d_count)
    _keep(code, c, registers.d_count, selectors[0])
    panels = _by_panel(how, algebra)
    d = c
    if not panels:
        d = code.scratch(I32, registers.d_count * ROW)
        _copied(code, d, c, registers.d_count * ROW)
    given: list[Memory | Value] = [d, inputs, descriptors, shared, size]
    given += [metadata, selectors]
    steps = [code.constant(number, I64) for number in (ROW, LANES)]
    failed = _called(code, address_of_call(code, _HARDWARE), [*given, *steps])
    status = code.variable(code.constant(0, I32))
    reader = _DescriptorReader(code, how, ways, descriptors, size, status)
    sides = reader.sides(shared, inputs, flipped=True)
    for name, side in sides.items():
        raw_bits(code, how, side, getattr(parts, name))
    has = [
        _second_of_operand(code, how, reader, registers, shadows, name, goal)
        for name, goal in (("a", parts.a2), ("b", parts.b2))
    ]
    if panels:
        ends = _PanelEnds(code, how, registers, parts, d, selectors[0])
        how = how._replace(ends=Ends(ends.begin, ends.end))
        has.append(code.constant(1, I1))
    else:
        end_bits(code, how, "c", c, parts.c)
        end_bits(code, how, "d", d, parts.d)
        has.append(registers.second_of_c(parts.c2, selectors[0]))
    chosen = {"selector": selectors[1]} if op.sparse else {}
    all_given = WarpOperands(op, model, sides["a"], sides["b"], c, d, metadata, chosen)
    index, _ = columns_of(code, all_given)
    tiles = ProductMatrices(
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
        *has,  # type: ignore[arg-type]  # three flags
        *rest,
    )
    made = convert(algebra.product(code, how, tiles), I32, signed=False)
    if not panels:
        registers.scattered(parts.d2, made != 0)
    good = failed == 0
    with code.when(good & (writes != 0)):
        registers.put(d)
    return convert(good, I32, signed=False)


def _called(code: Code, address: Value, given: list[Memory | Value]) -> Value:
    """Call the hardware's function; 0 if it could compute D."""
    b, raws = code.builder, [each.raw for each in given]
    kind = ir.FunctionType(I32, [raw.type for raw in raws])
    return Value(b, b.call(b.inttoptr(address.raw, kind.as_pointer()), raws))


def _by_panel(how: ProductShape, algebra: ProductAlgebra) -> bool:
    """Whether C and D are read and written panel by panel.

    Then their second values stay in the cache.  The algebra must fill every ``d2``.
    """
    able = getattr(algebra, "by_panel", False) and how.bits("d") == QUARTERS
    places = items_of(how.op.d, "col", single=True).places
    pairs = [0, ROW, 1, ROW + 1, 2, ROW + 2, 3, ROW + 3]
    return bool(able and (places[0, 0] - places[0, 0, 0] == pairs).all())


QUARTERS = 32
"""Bits of an element of D whose second value is in halves of four planes."""


class _PanelEnds:
    """Eight columns of C and D at a time, straight from the registers of warps."""

    def __init__(
        self,
        code: Code,
        how: ProductShape,
        registers: _Registers,
        parts: _Parts,
        d: Memory,
        scale_d: Value,
    ) -> None:
        self.code, self.how, self.registers, self.parts = code, how, registers, parts
        places = items_of(how.op.d, "col", single=True).places
        self.rows = how.op.shape[0]
        rows = places[0, :, 0]
        lanes = rows % ROW
        self._register = code.table((rows // ROW).tolist(), I64)
        self._warp = code.table((lanes // LANES).tolist(), I64)
        self._lane = code.table((lanes % LANES).tolist(), I64)
        self._panel = code.table((places[:, 0, 0] // ROW).tolist(), I64)
        items = items_of(how.op.d, "col", single=True)
        self._hardware = Panels(code, d, items, how.op.d.container)
        kept = select(scale_d == 0, code.constant(0, I32), -1)
        self._kept, self._kept_wide = kept, convert(kept, I64)

    def _pair(self, panel: Value, row: Value, plane: bool) -> list[Memory]:
        """Where four lanes of each of two registers are, or of their plane 0."""
        registers = self.registers
        first = self._panel[panel] + self._register[row] + registers.d_first
        found = []
        for step in (0, 1):
            place = registers.table[(first + step) * 2 + int(plane)]
            start = registers.addresses[self._warp[row]] + place
            found.append(memory_at(self.code, start + self._lane[row] * 4, I32))
        return found

    def begin(self, panel: Value) -> None:
        """Read C of eight columns, its second values, and the hardware's D."""
        code, parts, count = self.code, self.parts, self.rows * PANEL
        order = [each for lane in range(4) for each in (lane, 4 + lane)]
        with code.loop(self.rows) as row:
            at = row * PANEL
            even, odd = self._pair(panel, row, False)
            c = picked(even.lanes(0, 4), order, odd.lanes(0, 4)) & self._kept
            parts.c[at] = c
            parts.d[at] = self._hardware.read(panel, row)
            even, odd = self._pair(panel, row, True)
            words = [
                picked(even.lanes(LANES * p, 4), order, odd.lanes(LANES * p, 4))
                for p in range(4)
            ]
            upper = _joined(
                shift_unsigned(words[0], 16) | (words[1] & -0x10000),
                shift_unsigned(words[2], 16) | (words[3] & -0x10000),
            )
            lower = _joined(
                (words[0] & 0xFFFF) | (words[1] << 16),
                (words[2] & 0xFFFF) | (words[3] << 16),
            )
            parts.c2[at] = upper & self._kept_wide
            parts.c2[at + count] = lower & self._kept_wide

    def end(self, panel: Value) -> None:
        """Write the second values of D of eight columns."""
        code, parts, count = self.code, self.parts, self.rows * PANEL
        with code.loop(self.rows) as row:
            at = row * PANEL
            upper, lower = parts.d2.lanes(at), parts.d2.lanes(at + count)
            words = []
            for shift in (0, 32):
                top = convert(shift_unsigned(upper, shift), I32)
                bottom = convert(shift_unsigned(lower, shift), I32)
                words.append((top << 16) | (bottom & 0xFFFF))
                words.append((top & -0x10000) | shift_unsigned(bottom, 16))
            even, odd = self._pair(panel, row, True)
            for plane in range(self.how.planes):
                word = words[plane] if plane < 4 else words[0].lift(0)
                even[plane * LANES] = picked(word, range(0, PANEL, 2))
                odd[plane * LANES] = picked(word, range(1, PANEL, 2))


def _joined(low: Value, high: Value) -> Value:
    """Two words of 32 bits as one of 64."""
    return convert(low, I64, signed=False) | (convert(high, I64, signed=False) << 32)


def _parted(how: ProductShape, work: Memory) -> _Parts:
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


class _DescriptorReader:
    """Reads A and B through descriptors, from shared memory or from its shadows."""

    def __init__(
        self,
        code: Code,
        how: ProductShape,
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
        shared = CheckedShared(memory, self._size, self._status)  # type: ignore[arg-type]
        word = self._descriptors[place]
        major = MAJORS[trans]
        return from_shared(self.code, self.how.op, name, word, shared, major, flipped)

    def window(self, name: str) -> tuple[Value, Value]:
        """A part of shared memory that A or B is in: its first byte, and its end."""
        code, op = self.code, self.how.op
        rows, k = extent(op, name.upper())
        trans = self.ways.trans_a if name == "a" else self.ways.trans_b
        along, across = (rows, k) if trans else (k, rows)
        last = 0 if self.ways.a_from_registers else 1
        word = self._descriptors[0 if name == "a" else last]
        steps = steps_of(code, word, MAJORS[trans], self._status)  # type: ignore[arg-type]
        wide = code.constant(along * op.types[name].bits // 8 - 1, I64)
        spans = wide >> steps.log_span
        far = spans * steps.to_span + ((across - 1) // LINES) * steps.to_lines
        end = steps.start + far + (code.constant(LINES, I64) << steps.log_span)
        first = steps.start & -REPEAT
        whole = (end + (REPEAT - 1)) & -REPEAT
        most = self._size & -(4 * LANES)
        return first, smaller(whole, most)

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
    how: ProductShape,
    reader: _DescriptorReader,
    registers: _Registers,
    shadows: Memory,
    name: str,
    goal: Memory,
) -> Value:
    """Fill ``goal`` with the second values of A or B; whether there are any."""
    if name == "a" and reader.ways.a_from_registers:
        return registers.second_of_a(goal)
    count = how.sizes[name] * how.bits(name) // 32
    first, last = reader.window(name)
    some = code.variable(code.constant(0, I32).in_all_lanes(LANES))
    with code.loop(how.planes) as plane:
        memory = memory_at(code, shadows[plane], I8)
        with code.loop(last, start=first, step=4 * LANES) as place:
            words = memory.after(place).view(I32).lanes(0, LANES)
            some.value = some.value | words
    has = code.variable(code.constant(0, I32))
    with code.when(any_lane(some.value != 0)):
        # Where a side has its elements does not depend on the memory that it is in.
        items = reader.in_shared(name, memory_at(code, shadows[0], I8)).items
        held = held_by(code, how, name, count, items)

        def read(plane: Value, goal: Memory) -> None:
            side = reader.in_shared(name, memory_at(code, shadows[plane], I8))
            with code.loop(count, step=8) as at:
                goal[at] = side.memory.lanes(at)

        found = gather(code, how, name, held, read, goal)
        has.value = convert(found, I32, signed=False)
    there: Value = has.value != 0
    return there


class _Registers:
    """The registers of four warps, and their planes."""

    def __init__(
        self, code: Code, how: ProductShape, ways: Ways, warps: Memory, table: Memory
    ) -> None:
        self._code, self._how, self._table = code, how, table
        self.table, self.addresses = table, warps
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

    def put(self, d: Memory) -> None:
        """Write D to its registers."""
        self._copy(self.d_first, self.d_count, d, None, out=True)

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
