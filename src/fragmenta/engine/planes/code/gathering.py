"""Compiled code that gathers the second values of operands, and scatters those of D."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
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
    shift_unsigned,
)
from fragmenta.engine.planes.code.products import ProductShape, fields
from fragmenta.engine.simt.layout import LANES as WARP
from fragmenta.reference.execution.warp_operands import (
    Side,
    WarpOperands,
    each_scale,
    metadata_index,
    scale_places,
)
from fragmenta.reference.execution.warp_registers import (
    Items,
    Panels,
    items_of,
    places_from,
)
from fragmenta.reference.registers.words import Container

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


def raw_bits(code: Code, how: ProductShape, side: Side, goal: Memory) -> None:
    """The raw bits of A or B in panels."""

    def put(bits: Value, row: Value) -> None:
        goal[row * LANES] = convert(bits, how.raw, signed=False)

    side.panels(code).each(put)


def end_bits(
    code: Code, how: ProductShape, name: str, of: Memory, goal: Memory
) -> None:
    """The raw bits of C or D, which are in the order (register, lane), in panels."""
    part = how.op.fragment(name.upper())
    items = items_of(part, "col", single=True)
    panels = Panels(code, of, items, part.container)

    def put(bits: Value, row: Value) -> None:
        goal[row * LANES] = convert(bits, how.raw, signed=False)

    panels.each(put)


def columns_of(code: Code, given: WarpOperands) -> tuple[Memory | None, Value]:
    """The logical k of each element of a sparse A, and 1 if its metadata is illegal."""
    if not given.op.sparse:
        return None, code.constant(0, I32)
    narrow, illegal = metadata_index(code, given)
    count = given.op.shape[0] * given.model.stored
    goal = code.scratch(I32, count)
    with code.loop(count, step=LANES) as at:
        goal[at] = convert(narrow.lanes(at), I32, signed=False)
    return goal, illegal


def scales_of(code: Code, given: WarpOperands, side: Side) -> Memory | None:
    """The raw bits of the block scales of A or B, in panels."""
    if not given.model.scale:
        return None
    rows = given.op.shape[0 if side.name == "a" else 1] * given.model.scale_vec
    goal = code.scratch(I8, rows)
    with each_scale(code, given, side) as (bits, row):
        for lane, each in enumerate(bits):
            goal[row * LANES + lane] = convert(each, I8)
    return goal


def second_scales(
    code: Code,
    how: ProductShape,
    given: WarpOperands,
    side: Side,
    read: Callable[[Value, Memory], None],
) -> tuple[Memory, Value]:
    """The second values of block scales in panels, and whether there are any: an I1.

    ``read`` copies one plane of the register with the scales to memory.
    """
    part = given.op.fragment(f"scale_{side.name}")
    found = scale_places(part)
    chosen = (given.selectors[f"{which}_{side.name}"] for which in ("byte", "thread"))
    first = found.first(*chosen)
    table = code.table(found.places.ravel().tolist(), I16)
    goal = code.scratch(I64, found.rows * LANES)
    planes = code.scratch(I32, how.planes * WARP)
    with code.loop(how.planes) as plane:
        read(plane, planes.after(plane * WARP))
    has = any_of(code, planes, how.planes * WARP)
    scales = planes.view(I8)
    with code.when(has), code.loop(found.rows) as row:
        for lane, place in enumerate(places_from(table, (first + row) * LANES)):
            word = code.variable(code.constant(0, I64))
            for number in range(how.planes):
                byte = convert(scales[place + number * WARP * 4], I64, signed=False)
                word.value = word.value | ((byte & 255) << (8 * number))
            goal[row * LANES + lane] = word.value
    return goal, has


class GatherBuffer(NamedTuple):
    """Memory for one round of planes of an operand, and how it is read in panels."""

    memory: Memory
    """(planes of a round, words of 32 bits)"""
    size: int
    """Words of one plane."""
    items: Items

    def plane(self, number: Value) -> Memory:
        """The memory of one plane of the round."""
        return self.memory.after(number * self.size)


def held_by(
    code: Code, how: ProductShape, name: str, size: int, items: Items
) -> GatherBuffer:
    """Memory for the planes of an operand that make one word."""
    count = min(how.planes, fields(how.bits(name)).per)
    return GatherBuffer(code.scratch(I32, count * size), size, items)


def rounds(how: ProductShape, name: str) -> list[range]:
    """The planes that make each word, as far as the algebra uses them."""
    part = fields(how.bits(name))
    used = -(-how.words(name) // len(part.quarters))
    starts = range(0, min(how.planes, used * part.per), part.per)
    return [range(each, min(each + part.per, how.planes)) for each in starts]


def _used(how: ProductShape, name: str, number: int) -> tuple[int, ...]:
    """The fields of an element that make words of a round, as far as they are used."""
    quarters = fields(how.bits(name)).quarters
    return quarters[: how.words(name) - number * len(quarters)]


def gather(
    code: Code,
    how: ProductShape,
    name: str,
    held: GatherBuffer,
    read: Callable[[Value, Memory], None],
    goal: Memory,
) -> Value:
    """Fill ``goal`` with second values; whether there are any: an I1.

    ``read`` copies one plane of the operand to memory.  Nothing is filled if there are
    none.
    """
    has = code.variable(code.constant(0, I32))
    for number, planes in enumerate(rounds(how, name)):
        with code.loop(len(planes)) as plane:
            read(plane + planes.start, held.plane(plane))
        some = any_of(code, held.memory, len(planes) * held.size)
        # Later words are filled if any round has something, or an earlier one had.
        if number:
            some = some | (has.value != 0)
        with code.when(some):
            if number:
                _cleared_before(code, how, name, goal, number, has.value == 0)
            has.value = code.constant(1, I32)
            _joined(code, how, name, held, len(planes), goal, number)
    there: Value = has.value != 0
    return there


def _cleared_before(
    code: Code, how: ProductShape, name: str, goal: Memory, number: int, first: Value
) -> None:
    """Clear the words of earlier rounds, which had no bits."""
    count = number * len(fields(how.bits(name)).quarters) * how.sizes[name]
    zero = code.constant(0, I64).in_all_lanes()
    with code.when(first), code.loop(count, step=LANES) as at:
        goal[at] = zero


def _joined(
    code: Code,
    how: ProductShape,
    name: str,
    held: GatherBuffer,
    planes: int,
    goal: Memory,
    number: int,
) -> None:
    """Make words of the planes of one round."""
    bits, count = how.bits(name), how.sizes[name]
    part = fields(bits)
    every = [
        Panels(code, held.memory.after(plane * held.size), held.items, whole(bits))
        for plane in range(planes)
    ]
    many, deep, _ = held.items.places.shape
    per, mask = held.items.per, (1 << part.bits) - 1
    first = number * len(part.quarters) * count
    with code.loop(many) as panel, code.loop(deep) as row:
        found = [convert(e.read(panel, row), I64, signed=False) for e in every]
        for element in range(per):
            place = ((panel * deep + row) * per + element) * LANES
            for goal_number, quarter in enumerate(_used(how, name, number)):
                low = element * bits + part.bits * quarter
                word = found[0].lift(0)
                for plane, each in enumerate(found):
                    field = shift_unsigned(each, low) & mask
                    word = word | (field << (part.bits * plane))
                goal[place + (first + goal_number * count)] = word


def scatter(
    code: Code,
    how: ProductShape,
    source: Memory,
    held: GatherBuffer,
    write: Callable[[Value, Memory], None],
) -> None:
    """Put the second values of D into planes.

    A round of planes is put into memory, in the order (register, lane); then ``write``
    copies each of them.
    """
    bits, count = how.bits("d"), how.sizes["d"]
    part, of = fields(bits), _ITEMS[bits]
    mask = (1 << part.bits) - 1
    many, deep, _ = held.items.places.shape
    for number, planes in enumerate(rounds(how, "d")):
        every = [
            Panels(code, held.memory.after(place * held.size), held.items, whole(bits))
            for place in range(len(planes))
        ]
        first = number * len(part.quarters) * count
        with code.loop(many) as panel, code.loop(deep) as row:
            at = (panel * deep + row) * LANES + first
            quarters = _used(how, "d", number)
            words = [source.lanes(at + place * count) for place in range(len(quarters))]
            for place, panels in enumerate(every):
                found = words[0].lift(0)
                for word, quarter in zip(words, quarters, strict=True):
                    field = shift_unsigned(word, part.bits * place) & mask
                    found = found | (field << (part.bits * quarter))
                panels.write(panel, row, convert(found, of))
        with code.loop(len(planes)) as plane:
            write(plane + planes.start, held.plane(plane))


def clear(
    code: Code,
    how: ProductShape,
    held: GatherBuffer,
    write: Callable[[Value, Memory], None],
) -> None:
    """Clear the planes of D."""
    zero = code.constant(0, I32).in_all_lanes()
    with code.loop(held.size, step=LANES) as at:
        held.memory[at] = zero
    with code.loop(how.planes) as plane:
        write(plane, held.memory)
