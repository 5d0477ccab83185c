"""Cells of tensor memory in machine code: read, written, hidden and shown."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I1,
    I8,
    I16,
    I32,
    I64,
    Code,
    Memory,
    Value,
    convert,
    intrinsic,
    select,
)
from fragmenta.engine.simt.layout import LANES, POISON
from fragmenta.engine.simt.library import POINTER, field, pointer_at
from fragmenta.engine.simt.warps import repeat
from fragmenta.engine.units.fast import tensor_layout as at


def there(code: Code, pointer: Raw) -> Value:
    """Whether a pointer points to something."""
    b = code.builder
    return Value(b, b.icmp_unsigned("!=", pointer, ir.Constant(POINTER, None)))


def after(code: Code, base: Raw, offset: int) -> Raw:
    """A pointer so many bytes further on."""
    return code.builder.gep(base, [ir.Constant(I32, offset)])


# ── regions ─────────────────────────────────────────────────────────────────


class CellRegion:
    """Some lanes, and adjacent columns from the column of an address on."""

    def __init__(self, code: Code, record: Raw, column: Value) -> None:
        self.code, self.record = code, record
        self.lanes = field(code, record, at.REGION_LANES, I64)
        first = field(code, record, at.REGION_FIRST, I32)[0]
        self.first = convert(first, I64) + column
        self.columns = convert(field(code, record, at.REGION_COLUMNS, I32)[0], I64)

    def allocated(self, tensor: Raw) -> Value:
        """Whether all its columns are allocated."""
        code = self.code
        inside = (self.first >= 0) & (self.first + self.columns <= at.COLUMNS)
        answer = code.variable(convert(inside, I32, signed=False))
        flags = field(code, pointer_at(code, tensor, at.TENSOR_ALLOCATED), 0, I8)
        with code.when(inside), code.loop(self.columns) as column:
            taken = convert(flags[self.first + column], I32)
            answer.value = answer.value & taken
        result: Value = answer.value != 0
        return result

    def each_lane(self, do: Callable[[Value], None]) -> None:
        """Do something with the first cell of each lane, by its number."""
        code, b = self.code, self.code.builder
        for half in range(2):
            left = code.variable(self.lanes[half])
            with code.when(left.value != 0), repeat(code) as again:
                now = left.value
                zero = ir.Constant(I1, 0)
                lane = intrinsic(b, "llvm.cttz.i64", I64, [now.raw, zero])
                do((Value(b, lane) + 64 * half) * at.COLUMNS + self.first)
                left.value = now & (now - 1)
                again(left.value != 0)

    def count(self, cells: Raw, by: int) -> None:
        """Add to the count of each cell."""
        code = self.code
        counts = field(code, cells, 0, I16)

        def one(first: Value) -> None:
            with code.loop(self.columns) as column:
                place = first + column
                counts[place] = counts[place] + by

        self.each_lane(one)


# ── products ────────────────────────────────────────────────────────────────


def part_region(
    code: Code, form: Raw, part: int, block: int, column: Value
) -> CellRegion:
    """The cells of an operand of a product in a block."""
    place = at.FORM_PARTS + part * at.PART_BYTES + at.PART_REGIONS
    record = after(code, form, place + block * at.REGION_BYTES)
    return CellRegion(code, record, column)


def each_block(code: Code, product: Raw, do: Callable[[int, Raw], None]) -> None:
    """Do something for each block of a product, with its tensor memory."""
    form = pointer_at(code, product, at.PRODUCT_FORM)
    do(0, pointer_at(code, product, at.PRODUCT_TENSORS))
    with code.when(field(code, form, at.FORM_PAIR, I32)[0] != 0):
        do(1, pointer_at(code, product, at.PRODUCT_TENSORS + 8))


def hide_product(code: Code, product: Raw, by: int) -> None:
    """Hide D of a product in flight, or show it again."""

    def one(tensor: Raw, region: CellRegion) -> None:
        with code.when(field(code, tensor, at.TENSOR_LATE, I32)[0] != 0):
            region.count(pointer_at(code, tensor, at.TENSOR_QUEUED), by)

    each_product_region(code, product, one)


def each_product_region(
    code: Code, product: Raw, do: Callable[[Raw, CellRegion], None]
) -> None:
    """Do something with the cells of D of a product, in each block."""
    form = pointer_at(code, product, at.PRODUCT_FORM)
    column = field(code, product, at.PRODUCT_PLACES + 8 * at.D, I64)[0]

    def one(block: int, tensor: Raw) -> None:
        do(tensor, part_region(code, form, at.D, block, column))

    each_block(code, product, one)


# ── loads and stores ────────────────────────────────────────────────────────


class CellMove:
    """A load or a store of a warp."""

    def __init__(
        self, code: Code, move: Raw, entry: Raw, column: Value, tensor: Raw
    ) -> None:
        self.code, self.move, self.entry = code, move, entry
        self.column, self.tensor = column, tensor
        self._table = field(code, pointer_at(code, entry, at.ENTRY_TABLE), 0, I32)
        self._places = field(code, pointer_at(code, move, at.MOVE_REGISTERS), 0, I64)
        self.count = convert(field(code, move, at.MOVE_COUNT, I32)[0], I64)
        self.packed = field(code, move, at.MOVE_PACKED, I32)[0] != 0
        self.image = field(code, pointer_at(code, tensor, at.TENSOR_IMAGE), 0, I32)

    def each_region(self, do: Callable[[CellRegion], None]) -> None:
        """Do something with each region."""
        code = self.code
        regions = field(code, self.move, at.MOVE_REGIONS, I32)[0]
        for number in range(2):
            with code.when(regions > number):
                place = at.ENTRY_REGIONS + number * at.REGION_BYTES
                do(CellRegion(code, after(code, self.entry, place), self.column))

    def cell(self, register: Value, lane: Value, part: int, parts: int) -> Value:
        """The number of the cell of a lane of a register."""
        place = (register * LANES + lane) * parts + part
        return convert(self._table[place], I64) + self.column

    def register(self, base: Raw, number: Value) -> Memory:
        """A register of a warp, 32 words."""
        b = self.code.builder
        place = b.gep(base, [self._places[number].raw])
        return Memory(b, b.bitcast(place, I32.as_pointer()), I32)

    def load(self, warp: Raw) -> None:
        """Fill the registers with what the cells hold now."""
        code = self.code
        late = field(code, self.tensor, at.TENSOR_LATE, I32)[0] != 0
        for hidden, parts in ((False, 1), (True, 1), (False, 2), (True, 2)):
            chosen = late if hidden else ~late
            kind = self.packed if parts == 2 else ~self.packed
            with (
                code.when(chosen & kind),
                code.loop(self.count) as number,
            ):
                goal = self.register(warp, number)
                with code.loop(LANES) as lane:
                    goal[lane] = self._word(number, lane, parts, hidden)

    def _word(self, number: Value, lane: Value, parts: int, hidden: bool) -> Value:
        found = []
        for part in range(parts):
            cell = self.cell(number, lane, part, parts)
            word = self.image[cell]
            found.append(self._seen(cell, word) if hidden else word)
        if parts == 1:
            return found[0]
        low, high = (each & 0xFFFF for each in found)
        return low | high << 16

    def _seen(self, cell: Value, word: Value) -> Value:
        code = self.code
        stores, queued = (
            field(code, pointer_at(code, self.tensor, each), 0, I16)[cell]
            for each in (at.TENSOR_STORES, at.TENSOR_QUEUED)
        )
        return select((stores | queued) != 0, word.lift(POISON), word)

    def store(self, words: Callable[[Value], Memory]) -> None:
        """Fill the cells with registers."""
        code = self.code
        with code.when(~self.packed), code.loop(self.count) as number:
            source = words(number)
            with code.loop(LANES) as lane:
                self.image[self.cell(number, lane, 0, 1)] = source[lane]
        with code.when(self.packed), code.loop(self.count) as number:
            source = words(number)
            with code.loop(LANES) as lane:
                word = source[lane]
                self.image[self.cell(number, lane, 0, 2)] = word & 0xFFFF
                high = (word >> 16) & 0xFFFF
                self.image[self.cell(number, lane, 1, 2)] = high


def _store_of(code: Code, record: Raw) -> CellMove:
    return CellMove(
        code,
        pointer_at(code, record, at.STORE_MOVE),
        pointer_at(code, record, at.STORE_ENTRY),
        field(code, record, at.STORE_COLUMN, I64)[0],
        pointer_at(code, record, at.STORE_TENSOR),
    )


def write(code: Code, record: Raw, words: Raw) -> None:
    """Fill the cells of a store with the registers that were kept."""
    b = code.builder
    kept = Memory(b, b.bitcast(words, I32.as_pointer()), I32)

    def row(number: Value) -> Memory:
        return Memory(b, b.gep(kept.raw, [(number * LANES).raw]), I32)

    _store_of(code, record).store(row)


def each_store_region(
    code: Code, record: Raw, do: Callable[[Raw, CellRegion], None]
) -> None:
    """Do something with the cells of a store."""
    move = _store_of(code, record)
    move.each_region(lambda region: do(move.tensor, region))


def hide_store(code: Code, record: Raw, by: int) -> None:
    """Hide the cells of a store in flight, or show them again."""
    move = _store_of(code, record)
    cells = pointer_at(code, move.tensor, at.TENSOR_STORES)
    storing = field(code, move.tensor, at.TENSOR_STORING, I32)

    def one(region: CellRegion) -> None:
        region.count(cells, by)
        storing[0] = storing[0] + by

    move.each_region(one)
