"""Compiled code that gathers the second values of operands, and scatters those of D."""

from __future__ import annotations

from collections.abc import Callable

from fragmenta.execution.warp_operands import Given, Side, each_scale, metadata_index
from fragmenta.execution.warp_registers import Panels, items_of
from fragmenta.jit.llvm import Type
from fragmenta.jit.trace import (
    I8,
    I16,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    any_lane,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.planes.products import Product, fields
from fragmenta.registers.words import Container

_ITEMS = {16: I16, 32: I32, 64: I64}
_WIDE = 32
"""Words that are looked at together."""


def memory_at(code: Code, address: Value, of: Type) -> Memory:
    """Memory at an address."""
    b = code.builder
    return Memory(b, b.inttoptr(address.raw, of.as_pointer()), of)


def whole(bits: int) -> Container:
    """The place of an element of which all bits count."""
    return Container(bits, 0, bits)


def any_of(code: Code, memory: Memory, count: int) -> Value:
    """Whether any of so many words of 32 bits is not 0; count is a multiple of 8."""
    wide = _WIDE if count % _WIDE == 0 else LANES
    words = memory.view(I32)
    found = code.variable(code.constant(0, I32).in_all_lanes(wide))
    with code.loop(count, step=wide) as at:
        found.value = found.value | words.lanes(at, wide)
    return any_lane(found.value != 0)


def raw_bits(code: Code, how: Product, side: Side, goal: Memory) -> None:
    """The raw bits of A or B in panels."""

    def put(bits: Value, row: Value) -> None:
        goal[row * LANES] = convert(bits, how.raw, signed=False)

    side.panels(code).each(put)


def end_bits(code: Code, how: Product, name: str, of: Memory, goal: Memory) -> None:
    """The raw bits of C or D, which are in the order (register, lane), in panels."""
    part = how.op.fragment(name.upper())
    items = items_of(part, "col", single=True)
    panels = Panels(code, of, items, part.container)

    def put(bits: Value, row: Value) -> None:
        goal[row * LANES] = convert(bits, how.raw, signed=False)

    panels.each(put)


def columns_of(code: Code, given: Given) -> tuple[Memory | None, Value]:
    """The logical k of each element of a sparse A, and 1 if its metadata is illegal."""
    if not given.op.sparse:
        return None, code.constant(0, I32)
    narrow, illegal = metadata_index(code, given)
    count = given.op.shape[0] * given.model.stored
    goal = code.scratch(I32, count)
    with code.loop(count, step=LANES) as at:
        goal[at] = convert(narrow.lanes(at), I32, signed=False)
    return goal, illegal


def scales_of(code: Code, given: Given, side: Side) -> Memory | None:
    """The raw bits of the block scales of A or B, in panels."""
    if not given.model.scale:
        return None
    rows = given.op.shape[0 if side.name == "a" else 1] * given.model.scale_vec
    goal = code.scratch(I8, rows)
    with each_scale(code, given, side) as (bits, row):
        for lane, each in enumerate(bits):
            goal[row * LANES + lane] = convert(each, I8)
    return goal


def gather(
    code: Code,
    how: Product,
    name: str,
    read: Callable[[Value], Panels],
    memory: Memory,
    size: int,
    goal: Memory,
) -> Value:
    """Fill ``goal`` with second values; whether there are any: an I1.

    ``read`` copies one plane of the operand to ``memory``, which has so many words of 32
    bits.  Nothing is filled if there are none.
    """
    part, count = fields(how.bits(name)), how.sizes[name]
    total = how.words(name) * count
    mask = (1 << part.bits) - 1
    has = code.variable(code.constant(0, I32))
    with code.loop(how.planes) as plane:
        panels = read(plane)
        turn, place = plane // part.per, plane % part.per
        some = any_of(code, memory, size)
        with code.when(some & (has.value == 0)):
            zero = code.constant(0, I64).in_all_lanes()
            with code.loop(total, step=LANES) as at:
                goal[at] = zero
        with code.when(some):
            has.value = code.constant(1, I32)
            shift = place * part.bits
            first = turn * (len(part.quarters) * count)

            def put(bits: Value, row: Value) -> None:
                wide = convert(bits, I64, signed=False)
                for number, quarter in enumerate(part.quarters):
                    field = shift_unsigned(wide, part.bits * quarter) & mask
                    at = first + number * count + row * LANES  # noqa: B023
                    goal[at] = goal.lanes(at) | (field << shift)  # noqa: B023

            panels.each(put)
    return has.value != 0


def scatter(
    code: Code,
    how: Product,
    source: Memory,
    memory: Memory,
    write: Callable[[Value], None],
) -> None:
    """Put the second values of D into planes.

    One plane after the other is put into ``memory``, in the order (register, lane);
    then ``write`` copies it.
    """
    part, bits = how.op.fragment("D"), how.bits("d")
    field, count = fields(bits), how.sizes["d"]
    mask, of = (1 << field.bits) - 1, _ITEMS[bits]
    panels = Panels(code, memory, items_of(part, "col", single=True), whole(bits))
    many, deep, _ = panels.items.places.shape
    with code.loop(how.planes) as plane:
        turn, place = plane // field.per, plane % field.per
        shift, first = place * field.bits, turn * (len(field.quarters) * count)
        with code.loop(many) as panel, code.loop(deep) as row:
            at = first + (panel * deep + row) * LANES
            found = code.constant(0, I64).in_all_lanes()
            for number, quarter in enumerate(field.quarters):
                word = source.lanes(at + number * count)
                bits_ = shift_unsigned(word, word.lift(shift)) & mask
                found = found | (bits_ << (field.bits * quarter))
            panels.write(panel, row, convert(found, of))
        write(plane)


def scratch_side(side: Side, bits: int) -> Side:
    """The same side, of which all bits of an element count as they are."""
    return side._replace(slot=whole(bits), flipped=0)


def chosen(code: Code, condition: Value, yes: int, no: int) -> Value:
    """One of two numbers of 64 bits."""
    return select(condition, code.constant(yes, I64), no)
