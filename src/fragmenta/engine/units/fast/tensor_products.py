"""A product of ``tcgen05.mma`` in machine code.

Operands are gathered by the tables of the form, the steps of
:mod:`fragmenta.reference.arithmetic.floors` compute D, and D is put back.  What these
steps cannot compute (an infinity, scales whose copies differ, a store in flight) is
left to Python: then nothing is changed.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    F32,
    I8,
    I16,
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    half_bits,
    half_of,
    is_nan,
    select,
)
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import P, clear_memory, routine
from fragmenta.engine.units.fast import tensor_layout as at
from fragmenta.engine.units.fast.step import shift
from fragmenta.reference.arithmetic.blocks import BlockSizes
from fragmenta.reference.arithmetic.floor_steps import FloorNumbers
from fragmenta.reference.arithmetic.floors import FloorSizes
from fragmenta.reference.arithmetic.grouped import GroupedNumbers

_UNITS = {1: I8, 2: I16, 4: I32, 16: ir.VectorType(I32, 4)}
"""The types that units of so many bytes are moved as."""
_WHERE = at.SECOND - 1


class FastProduct:
    """The record of a product, and what its form says about operands."""

    def __init__(self, code: Code, record: Raw) -> None:
        self.code, self.record = code, record
        self.form = pointer_at(code, record, at.PRODUCT_FORM)
        tensors = [
            pointer_at(code, record, at.PRODUCT_TENSORS + 8 * each) for each in range(2)
        ]
        self.images = [pointer_at(code, each, at.TENSOR_IMAGE) for each in tensors]
        self.tensors = tensors
        self.scratch = pointer_at(code, tensors[0], at.TENSOR_SCRATCH)

    def part(self, number: int, offset: int) -> Memory:
        """A word of what the form says about an operand."""
        place = at.FORM_PARTS + number * at.PART_BYTES + offset
        return field(self.code, self.form, place, I32)

    def table(self, number: int) -> Raw:
        """The table of an operand in tensor memory; none if it is not there."""
        place = at.FORM_PARTS + number * at.PART_BYTES + at.PART_TABLE
        return pointer_at(self.code, self.form, place)

    def place(self, number: int) -> Value:
        """Where an operand is: a column, or a source."""
        return field(self.code, self.record, at.PRODUCT_PLACES, I64)[number]

    def room(self, number: int) -> Raw:
        """A part of the scratch memory."""
        start = field(self.code, self.form, at.FORM_ROOM, I64)[number]
        return self.code.builder.gep(self.scratch, [start.raw])

    def word(self, offset: int) -> Value:
        """A word of the form."""
        return field(self.code, self.form, offset, I32)[0]

    def long(self, offset: int) -> Value:
        """A word of 64 bits of the form."""
        return field(self.code, self.form, offset, I64)[0]


def _typed(code: Code, base: Raw, of: Type) -> Memory:
    return Memory(code.builder, code.builder.bitcast(base, of.as_pointer()), of)


class _Table:
    """A table of places in the memory of a block, or of two."""

    def __init__(self, code: Code, raw: Raw, bases: list[Raw], start: Value) -> None:
        self._code, self._raw, self._start = code, raw, start
        self._bases = bases

    def at(self, number: Value) -> Raw:
        """Where a unit is."""
        base, place = self._place(number)
        return self._code.builder.gep(base, [(place + self._start).raw])

    def _place(self, number: Value) -> tuple[Raw, Value]:
        b = self._code.builder
        place = _typed(self._code, self._raw, I32)[number]
        second = (place & at.SECOND) != 0
        base = b.select(second.raw, self._bases[1], self._bases[0])
        return base, convert(place & _WHERE, I64)

    def bits(self, number: Value, width: Value) -> Value:
        """An element of less than 8 bits, which may be in two bytes."""
        b = self._code.builder
        base, place = self._place(number)
        low, high = (
            convert(
                Value(b, b.load(b.gep(base, [(shift(each, 3) + self._start).raw]))),
                I32,
                signed=False,
            )
            for each in (place, place + (convert(width, I64) - 1))
        )
        both = (high << 8 | low) >> convert(place & 7, I32)
        one = width.lift(1)
        return convert(both & ((one << width) - 1), I8)


def _each_unit(
    code: Code, unit: Value, count: Value, do: Callable[[Value, Type], None]
) -> None:
    """Do something with each unit, as a number of its type."""
    for size, of in _UNITS.items():
        with code.when(unit == size), code.loop(count) as number:
            do(number, of)


def _load(code: Code, where: Raw, of: Type) -> Raw:
    b = code.builder
    found = b.load(b.bitcast(where, of.as_pointer()))
    found.align = 1
    return found


def _store(code: Code, value: Raw, where: Raw) -> None:
    b = code.builder
    b.store(value, b.bitcast(where, value.type.as_pointer())).align = 1


def _step(code: Code, base: Raw, number: Value, of: Type) -> Raw:
    b = code.builder
    return b.gep(b.bitcast(base, of.as_pointer()), [number.raw])


def _from_cells(product: FastProduct, number: int, goal: Raw, status: Memory) -> None:
    """Gather an operand from tensor memory; all its copies must be equal."""
    code, b = product.code, product.code.builder
    unit = product.part(number, at.PART_UNIT)[0]
    count = convert(product.part(number, at.PART_COUNT)[0], I64)
    copies = convert(product.part(number, at.PART_COPIES)[0], I64)
    table = _Table(
        code, product.table(number), product.images, product.place(number) << 2
    )

    def copied(index: Value, of: Type) -> None:
        _store(code, _load(code, table.at(index), of), _step(code, goal, index, of))

    _each_unit(code, unit, count, copied)

    def compared(index: Value, of: Type) -> None:
        with code.loop(copies - 1) as copy:
            other = _load(code, table.at((copy + 1) * count + index), of)
            mine = _load(code, _step(code, goal, index, of), of)
            unequal = b.icmp_unsigned("!=", mine, other)
            if isinstance(of, ir.VectorType):
                unequal = b.icmp_unsigned(
                    "!=",
                    b.bitcast(unequal, ir.IntType(of.count)),
                    ir.Constant(ir.IntType(of.count), 0),
                )
            with b.if_then(unequal):
                status[0] = code.constant(at.PYTHON, I32)

    with code.when(copies > 1):
        _each_unit(code, unit, count, compared)


def _from_shared(product: FastProduct, number: int, goal: Raw) -> None:
    """Gather an operand from shared memory."""
    code, b = product.code, product.code.builder
    source = b.inttoptr(product.place(number).raw, POINTER)
    bases = [
        pointer_at(code, product.record, at.PRODUCT_SHARED + 8 * each)
        for each in range(2)
    ]
    start = field(code, source, at.SOURCE_START, I64)[0]
    table = _Table(code, pointer_at(code, source, at.SOURCE_TABLE), bases, start)
    unit, count = (
        field(code, source, each, I32)[0] for each in (at.SOURCE_UNIT, at.SOURCE_COUNT)
    )

    def copied(index: Value, of: Type) -> None:
        _store(code, _load(code, table.at(index), of), _step(code, goal, index, of))

    _each_unit(code, unit, convert(count, I64), copied)
    with code.when(unit < 0), code.loop(convert(count, I64)) as index:
        _store(code, table.bits(index, 0 - unit).raw, _step(code, goal, index, I8))


# ── D ───────────────────────────────────────────────────────────────────────


def _old_d(product: FastProduct, goal: Raw) -> None:
    """The old D as float32; zeros if it is not added."""
    code, b = product.code, product.code.builder
    kept = field(code, product.record, at.PRODUCT_ENABLE, I64)[0] != 0
    half = product.word(at.FORM_HALF) != 0
    unit = product.part(at.D, at.PART_UNIT)[0]
    count = convert(product.part(at.D, at.PART_COUNT)[0], I64)
    table = _cells_of_d(product)
    with code.when(~kept):
        clear_memory(b, goal, product.long(at.FORM_D_BYTES).raw)

    def copied(index: Value, of: Type) -> None:
        _store(code, _load(code, table.at(index), of), _step(code, goal, index, of))

    with code.when(kept & ~half):
        _each_unit(code, unit, count, copied)
    with code.when(kept & half), code.loop(count) as index:
        bits = Value(b, _load(code, table.at(index), I16))
        _store(code, half_of(bits).raw, _step(code, goal, index, F32))


def _cells_of_d(product: FastProduct) -> _Table:
    return _Table(
        product.code, product.table(at.D), product.images, product.place(at.D) << 2
    )


def _new_d(product: FastProduct, source: Raw) -> None:
    """Put D into its cells; the upper half of one with an f16 becomes 0."""
    code, b = product.code, product.code.builder
    half = product.word(at.FORM_HALF) != 0
    unit = product.part(at.D, at.PART_UNIT)[0]
    count = convert(product.part(at.D, at.PART_COUNT)[0], I64)
    table = _cells_of_d(product)

    def copied(index: Value, of: Type) -> None:
        _store(code, _load(code, _step(code, source, index, of), of), table.at(index))

    with code.when(~half):
        _each_unit(code, unit, count, copied)
    with code.when(half), code.loop(count) as index:
        x = Value(b, _load(code, _step(code, source, index, F32), F32))
        bits = half_bits(x)
        rounded = select(is_nan(x), bits.lift(0x7FFF), bits)
        _store(code, convert(rounded, I32, signed=False).raw, table.at(index))


# ── steps ───────────────────────────────────────────────────────────────────


def _steps(product: FastProduct) -> Value:
    """Call the machine code of the steps; 0 if it could compute everything."""
    code, b = product.code, product.code.builder
    blocks = product.long(at.FORM_BLOCKS)
    status, numbers = product.room(at.ROOM_WORK), product.long(at.FORM_NUMBERS)
    given = field(code, b.inttoptr(numbers.raw, POINTER), 0, I64)
    small = len(FloorNumbers._fields)
    count = small + len(FloorSizes._fields)
    values = [given[number] for number in range(count)]
    arguments = [
        *(product.room(each) for each in (at.ROOM_A, at.ROOM_B)),
        b.bitcast(product.room(at.ROOM_D), F32.as_pointer()),
        product.room(at.ROOM_A),  # no index
        *(product.room(each) for each in (at.ROOM_SCALE_A, at.ROOM_SCALE_B)),
        status,
        *(convert(each, I32).raw for each in values[:small]),
        *(each.raw for each in values[small:]),
        b.gep(status, [ir.Constant(I32, 64)]),
        ir.Constant(I64, 0),
        blocks.raw,
    ]
    kind = ir.FunctionType(ir.VoidType(), [each.type for each in arguments])
    function = pointer_at(code, product.form, at.FORM_FUNCTION)
    b.call(b.bitcast(function, kind.as_pointer()), arguments)
    wrong = code.variable(code.constant(0, I8))
    with code.loop(blocks) as block:
        wrong.value = wrong.value | field(code, status, 0, I8)[block]
    return convert(wrong.value, I32)


def _call(
    code: Code, numbers: Memory, where: int, pointers: list[Raw], *others: Value
) -> None:
    """Call the function whose address is among the numbers of a form."""
    b = code.builder
    arguments = [*pointers, *(each.raw for each in others)]
    kind = ir.FunctionType(ir.VoidType(), [each.type for each in arguments])
    b.call(b.inttoptr(numbers[where].raw, kind.as_pointer()), arguments)


def _grouped(product: FastProduct, status: Memory) -> None:
    """Sums of groups of e2m1 products, as ``arithmetic.grouped`` has them."""
    with product.code.when(_wrong_scales(product) != 0):
        status[0] = product.code.constant(at.PYTHON, I32)
    with product.code.when(status[0] == at.DONE):
        _grouped_steps(product)


def _wrong_scales(product: FastProduct) -> Value:
    """Bits of scales that their type does not have."""
    code, of = product.code, at.Grouped
    numbers = _numbers(product)
    found = code.variable(code.constant(0, I8))
    for room, count in (
        (at.ROOM_SCALE_A, of.SCALE_COUNT_A),
        (at.ROOM_SCALE_B, of.SCALE_COUNT_B),
    ):
        scales = _typed(code, product.room(room), I8)
        with code.loop(numbers[count]) as number:
            found.value = found.value | scales[number]
    return found.value & convert(numbers[of.UNUSED], I8)


def _numbers(product: FastProduct) -> Memory:
    """The numbers of a form."""
    code, b = product.code, product.code.builder
    return _typed(code, b.inttoptr(product.long(at.FORM_NUMBERS).raw, POINTER), I64)


def _grouped_steps(product: FastProduct) -> None:
    code, b, of = product.code, product.code.builder, at.Grouped
    numbers = _numbers(product)
    work = product.room(at.ROOM_WORK)

    def room(name: int) -> Raw:
        return b.gep(work, [numbers[name].raw])

    def given(name: int) -> Raw:
        return b.inttoptr(numbers[name].raw, POINTER)

    for where, raw, values, masks, count in (
        (of.ROWS, at.ROOM_A, of.A, of.SOME_A, of.COUNT_A),
        (of.COLUMNS, at.ROOM_B, of.B, of.SOME_B, of.COUNT_B),
    ):
        some = [product.room(raw), room(values), room(masks)]
        _call(code, numbers, where, some, numbers[count])
    for raw, values, powers, count in (
        (at.ROOM_SCALE_A, of.SCALES_A, of.POWERS_A, of.SCALE_COUNT_A),
        (at.ROOM_SCALE_B, of.SCALES_B, of.POWERS_B, of.SCALE_COUNT_B),
    ):
        tables = [given(of.VALUES), given(of.POWERS)]
        some = [product.room(raw), *tables, room(values), room(powers)]
        _call(code, numbers, of.SCALES, some, numbers[count])
    scales = [room(e) for e in (of.SCALES_A, of.POWERS_A, of.SCALES_B, of.POWERS_B)]
    masks_ = [room(of.SOME_A), room(of.SOME_B)]
    operands = [room(of.A), given(of.OFFSETS), room(of.B), *scales, *masks_]
    fields = len(BlockSizes._fields) + len(GroupedNumbers._fields)
    sizes = [numbers[of.SIZES + each] for each in range(fields)]
    pointers = [*operands, product.room(at.ROOM_D)]
    _call(code, numbers, of.STEPS, pointers, *sizes)


def _integers(product: FastProduct) -> None:
    """Sums of integers, as ``arithmetic.integer_kernels`` has them."""
    code, b, of = product.code, product.code.builder, at.Integers
    numbers = _numbers(product)
    offsets = b.inttoptr(numbers[of.OFFSETS].raw, POINTER)
    rooms = [product.room(each) for each in (at.ROOM_A, at.ROOM_B, at.ROOM_D)]
    count = len(BlockSizes._fields)
    sizes = [numbers[of.SIZES + each] for each in range(count)]
    pointers = [rooms[0], offsets, *rooms[1:]]
    _call(code, numbers, of.STEPS, pointers, *sizes)


def _multiply(code: Code, record: Raw) -> Value:
    """Compute a product and write D; ``DONE``, or ``PYTHON`` and nothing changed."""
    product, b = FastProduct(code, record), code.builder
    slot = Memory(b, code.array(I32), I32)
    slot[0] = code.constant(at.DONE, I32)
    there = b.icmp_unsigned(
        "!=",
        pointer_at(code, product.form, at.FORM_FUNCTION),
        ir.Constant(POINTER, None),
    )
    storing = [field(code, e, at.TENSOR_STORING, I32)[0] for e in product.tensors]
    able = Value(b, there) & ((storing[0] | storing[1]) == 0)
    with code.when(~able):
        slot[0] = code.constant(at.PYTHON, I32)
    with code.when(able):
        _gathered(product, slot)
        kind, ready = product.word(at.FORM_KIND), slot[0] == at.DONE
        with code.when(ready & (kind == at.FUSED)):
            slot[0] = select(_steps(product) == 0, slot[0].lift(at.DONE), at.PYTHON)
        with code.when(ready & (kind == at.GROUPED)):
            _grouped(product, slot)
        with code.when(ready & (kind == at.INTEGERS)):
            _integers(product)
        with code.when(slot[0] == at.DONE):
            _new_d(product, product.room(at.ROOM_D))
    return slot[0]


def _gathered(product: FastProduct, status: Memory) -> None:
    """Gather all operands."""
    code, b = product.code, product.code.builder
    cells = b.icmp_unsigned("!=", product.table(at.A), ir.Constant(POINTER, None))
    in_cells = Value(b, cells)
    with code.when(in_cells):
        _from_cells(product, at.A, product.room(at.ROOM_A), status)
    with code.when(~in_cells):
        _from_shared(product, at.A, product.room(at.ROOM_A))
    _from_shared(product, at.B, product.room(at.ROOM_B))
    _old_d(product, product.room(at.ROOM_D))
    with code.when(product.word(at.FORM_SCALED) != 0):
        for part, room in (
            (at.SCALE_A, at.ROOM_SCALE_A),
            (at.SCALE_B, at.ROOM_SCALE_B),
        ):
            _from_cells(product, part, product.room(room), status)


MULTIPLY = routine("units.tensor.multiply", _multiply, [P], I32)
ROUTINES = (MULTIPLY,)
