"""The words of reports on tiles that are read in another layout than they have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import Error
from fragmenta.reference.shared.box_layouts import BoxLayout
from fragmenta.reference.shared.copied_operands import (
    Box,
    Mismatch,
    Repair,
    SharedOperand,
    mismatch,
    repaired,
)
from fragmenta.reference.shared.descriptor import span
from fragmenta.reference.shared.operand_steps import KStep, OperandStart
from fragmenta.reference.shared.swizzles import Swizzle, pattern

_FIELDS = {
    "swizzle": "swizzle",
    "stride": "stride offset",
    "leading": "leading offset",
    "base_offset": "base offset",
    "start": "start address",
}
_ANY = (
    "Let the descriptor and the tensor map agree: their swizzles, and the offsets with "
    "the box."
)
_OVERLAP = (
    "Let the offsets be at least as large as the atoms that they step over, or 0 if a "
    "part is to be repeated."
)
_STEPS = (
    "Advance the descriptors of A and B by the same number of k steps from one product "
    "to the next, in their tiles and in the coordinates of their copies."
)
_TYPE = (
    "Give the tensor map the type of the elements, and count its sizes and its box in "
    "these."
)


def _shape(layout: BoxLayout) -> str:
    return " x ".join(map(str, layout.counts))


def _written(layout: BoxLayout, at: int) -> str:
    """What a copy wrote."""
    return (
        f"the copy wrote a box of {_shape(layout)} elements of {layout.dtype} from "
        f"byte {at} on, with {_with(layout.swizzle)}"
    )


def _with(swizzle: Swizzle) -> str:
    words = pattern(swizzle).words
    return f"a {words}" if swizzle else words


def _place(
    layout: BoxLayout, coordinates: tuple[int, ...], line: int, byte: int
) -> str:
    """An element by its coordinates, the innermost first."""
    if not layout.steps:  # rows in any order
        return f"byte {byte} of line {line} of the box"
    found = layout.place(coordinates, line, byte)
    return f"the element at ({', '.join(map(str, found))}) of the tensor"


def of_product(
    reading: SharedOperand,
    boxes: Sequence[Box],
    found: Mismatch,
    coordinates: Sequence[tuple[int, ...]],
    others: Sequence[Box] = (),
) -> tuple[str, str]:
    """What is wrong with an operand of a product, and what repairs it.

    ``others`` are boxes that another descriptor might read.
    """
    box = boxes[found.box]
    what = reading.element(found.across, found.along)
    both = (
        f"{_written(box.layout, box.at)}; the descriptor of {reading.name} says "
        f"{reading.descriptor}"
    )
    if found.type:
        kind = reading.op.types[reading.name.lower()]
        bits = box.layout.element * 8
        return (
            f"{reading.name} has elements of {kind}, not of {bits} bits; {both}",
            _TYPE,
        )
    there = _place(box.layout, coordinates[found.box], found.line, found.byte)
    message = (
        f"{what} is read where {there} is, {_why(found, box, coordinates)}; {both}"
    )
    return message, _repair(reading, boxes, others)


def _why(found: Mismatch, box: Box, coordinates: Sequence[tuple[int, ...]]) -> str:
    if found.leaves is not None:
        return "in the next box, because the operand begins too late in its own"
    if found.wanted is None:
        return "which is not the next of the lines of the box"
    line, byte = found.wanted
    layout = box.layout
    if 0 <= line < layout.lines and 0 <= byte < layout.line:
        wanted = _place(layout, coordinates[found.box], line, byte)
        return f"but {wanted} belongs there"
    if byte >= layout.line:
        return "because the line of the box before it has ended"
    return "which belongs elsewhere"


def _repair(reading: SharedOperand, boxes: Sequence[Box], others: Sequence[Box]) -> str:
    """What to change in the descriptor, or in the map."""
    other = repaired(reading, [*boxes, *others])
    of_map = _other_map(reading, boxes)
    if other is None and not of_map:
        return _ANY
    if other is None:
        return f"Make the tensor map with {of_map}."
    changes = " and ".join(
        f"its {_FIELDS[name]} to {_value(other, name)}" for name in other.fields
    )
    given = f"In the descriptor of {reading.name}, set {changes}"
    return f"{given}; or make the tensor map with {of_map}." if of_map else f"{given}."


def _value(of: Repair, name: str) -> str:
    value = getattr(of.reading.descriptor, name)
    if name == "swizzle":
        return pattern(value).constant if not value else f"{value} bytes"
    return str(value)


def _other_map(reading: SharedOperand, boxes: Sequence[Box]) -> str:
    """The swizzle that the map would have for this descriptor; nothing if none fits."""
    swizzle = reading.descriptor.swizzle
    layouts = {box.layout for box in boxes}
    if len(layouts) > 1 or not isinstance(swizzle, int):
        return ""
    (layout,) = layouts
    if swizzle == layout.swizzle or (swizzle and layout.line > swizzle):
        return ""
    changed = [box._replace(layout=layout._replace(swizzle=swizzle)) for box in boxes]
    try:
        fits = mismatch(reading, changed) is None
    except Error:
        return ""
    return f"{pattern(swizzle).constant}" if fits else ""


def of_rows(
    box: Box,
    number: int,
    rows: NDArray[np.int64],
    swizzle: Swizzle,
    coordinates: tuple[int, ...],
) -> tuple[str, str]:
    """What is wrong with the rows of a matrix of ``ldmatrix``, and what repairs it."""
    layout = box.layout
    line, byte = layout.find(box.at, rows)
    first = next(n for n in range(1, len(rows)) if byte[n] != byte[0])
    one, two = (
        _place(layout, coordinates, int(line[n]), int(byte[n])) for n in (0, first)
    )
    meant = "without a swizzle" if not swizzle else f"with a {swizzle}-byte swizzle"
    message = (
        f"row 0 of matrix {number} begins with {one}, but row {first} with {two}: "
        f"{_written(layout, box.at)}, and the addresses are those of a box {meant}"
    )
    repair = f"Compute the addresses of the rows with {_with(layout.swizzle)}"
    if not swizzle or layout.line <= pattern(swizzle).span:
        repair += f"; or make the tensor map with {pattern(swizzle).constant}"
    return message, f"{repair}."


def of_overlap(
    reading: SharedOperand, one: tuple[int, int], other: tuple[int, int]
) -> tuple[str, str]:
    """The message and the repair of an operand whose parts are the same bytes."""
    address = int(reading.addresses()[one])
    first, second = (reading.element(*each) for each in (one, other))
    message = (
        f"the descriptor of {reading.name} takes {first} and {second} from the same 16 "
        f"bytes, at shared {address:#x}: its atoms of 8 lines overlap, with a leading "
        f"offset of {reading.descriptor.leading}, a stride offset of "
        f"{reading.descriptor.stride} and {_with(reading.descriptor.swizzle)}"
    )
    return message, _OVERLAP


def of_steps(parts: Sequence[OperandStart], moves: Sequence[KStep]) -> tuple[str, str]:
    """The message and the repair of a product whose A and B are at different k."""
    how = [
        f"{part.reading.name} {_step(move)} of k ({_way(part, move)})"
        for part, move in zip(parts, moves, strict=True)
    ]
    message = (
        f"since the product before, {' and '.join(how)}: both add to the same D, so "
        "one of the two has A and B of different k"
    )
    return message, _STEPS


def _step(move: KStep) -> str:
    """How far an operand goes."""
    if not move.steps:
        return "stays at its part"
    verb = "advances" if move.steps > 0 else "goes back"
    count = abs(move.steps)
    return f"{verb} by {count} step{'s' if count != 1 else ''}"


def _way(part: OperandStart, move: KStep) -> str:
    """From where to where."""
    if part.box is None:
        return f"from byte {move.old} to {move.new} of its lines"
    return f"from element {move.old} to {move.new} of its tensor"


def of_uneven(reading: SharedOperand, name: str) -> tuple[str, str]:
    """The same for an offset that does not step over whole lines of the swizzle."""
    of = reading.descriptor
    offset, line = getattr(of, name), span(of.swizzle)
    message = (
        f"the descriptor of {reading.name} has a {_FIELDS[name]} of {offset} bytes and "
        f"{_with(of.swizzle)}, whose lines have {line} bytes: its parts begin at "
        "different bytes of their lines"
    )
    return message, f"Let the {_FIELDS[name]} be a multiple of {line}."
