"""Compiled reads of operands in shared memory.

The 64-bit descriptor is known only when the machine code runs
(:mod:`fragmenta.reference.shared.descriptor` says what it means).  Whatever it says, 16
bytes stay together: eight elements of 16 bits, for example.  Each such unit is checked
against the size of shared memory and copied to where panels of eight rows of A, or
eight columns of B, have it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.base.jit.trace import (
    I8,
    I16,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    Variable,
    each_lane,
    recast,
    select,
    shift_unsigned,
)
from fragmenta.reference.execution.warp_operands import Side
from fragmenta.reference.execution.warp_registers import Items
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.table import read
from fragmenta.reference.registers.words import container
from fragmenta.reference.shared.descriptor import (
    FIELDS,
    LINES,
    MODES,
    UNIT,
    MajorAxis,
    exchanged,
    extent,
    offset_names,
    span,
)
from fragmenta.reference.shared.swizzles import pattern

#: What a function returns if it cannot read an operand.
OUTSIDE, UNKNOWN = 2, 3


class CheckedShared(NamedTuple):
    """Shared memory, and what happens to a function that reads it."""

    memory: Memory
    size: Value
    status: Variable  #: becomes OUTSIDE or UNKNOWN


# -- descriptors --------------------------------------------------------------


class DecodedDescriptor(NamedTuple):
    """A descriptor, taken apart; bytes, but for the first three."""

    log_span: Value
    changed: Value  #: the bits of an address that the swizzle changes
    base_offset: Value
    start: Value
    to_span: Value
    to_lines: Value

    def address(self, unit: Value, across: Value) -> Value:
        """The address of 16 bytes: the formula of descriptors, and the swizzle."""
        along = unit * UNIT
        span_number = along >> self.log_span
        linear = (
            self.start
            + (along - (span_number << self.log_span))
            + ((across & (LINES - 1)) << self.log_span)
            + span_number * self.to_span
            + (across >> (LINES.bit_length() - 1)) * self.to_lines
        )
        address: Value = exchanged(linear, self.changed, self.base_offset)
        return address


def steps_of(
    code: Code, word: Value, major: MajorAxis, status: Variable
) -> DecodedDescriptor:
    """The steps of a descriptor; one of unknown meaning sets ``status``."""
    fields, meant = {}, 0
    for line in read(FIELDS):
        name, low, mask = line["field"], int(line["low"]), (1 << int(line["bits"])) - 1
        unit = 1 if line["unit"] == "mode" else int(line["unit"])
        fields[name] = (shift_unsigned(word, low) & mask) * unit
        meant |= mask << low
    mode = fields["swizzle"]
    rest = word & ~meant & ((1 << 64) - 1)
    status.value = select(rest != 0, UNKNOWN, status.value)
    spans = [span(mode) for mode in MODES]
    offsets = [
        select(mode == 0, fields[plain], fields[swizzled])
        for plain, swizzled in zip(
            offset_names(major, 0), offset_names(major, MODES[1]), strict=True
        )
    ]
    return DecodedDescriptor(
        code.table([each.bit_length() - 1 for each in spans], I64)[mode],
        code.table([pattern(each).changed for each in MODES], I64)[mode],
        fields["base_offset"],  # without a swizzle, nothing is exchanged
        fields["start"],
        *offsets,
    )


# -- copies -------------------------------------------------------------------


def from_shared(
    code: Code,
    op: Instruction,
    name: str,
    word: Value,
    shared: CheckedShared,
    major: MajorAxis,
    flipped: int,
) -> Side:
    """A or B, copied from shared memory into panels; a K-major A, row by row."""
    rows, k = extent(op, name.upper())
    of = op.types[name]
    steps = steps_of(code, word, major, shared.status)
    panels = code.scratch(I32, rows * k * of.bits // 32)
    along, across = (k, rows) if major == "k" else (rows, k)
    units = along * of.bits // (8 * UNIT)
    by_rows = name == "a" and major == "k"
    with (
        code.when(shared.status.value == 0),
        code.loop(across) as line,
        code.loop(units) as unit,
    ):
        at = steps.address(unit, line)
        outside = at + UNIT > shared.size
        shared.status.value = select(outside, OUTSIDE, shared.status.value)
        with code.when(~outside):
            halves = [shared.memory.lanes(at + half) for half in (0, UNIT // 2)]
            if by_rows:
                _put_row(panels, halves, line * units + unit)
            elif major == "k":
                _put_column(panels, halves, line, unit, units)
            else:
                _put_row(panels, halves, unit * k + line)
    kind, per = (I32, 32 // of.bits) if major == "k" else (I16, 1)
    places = np.arange(rows * k // per).reshape(rows // LANES, k // per, LANES)
    if by_rows:
        places = places.reshape(rows // LANES, LANES, k // per).swapaxes(1, 2)
    return Side(name, of, panels, Items(kind, per, places), container(of), k, flipped)


def _put_column(
    panels: Memory, halves: list[Value], line: Value, unit: Value, units: int
) -> None:
    """K-major: four words along k, in one of the eight columns of a panel."""
    panel, lane = line >> (LANES.bit_length() - 1), line & (LANES - 1)
    first = (panel * units + unit) * (UNIT // 4 * LANES) + lane
    words = [word for half in halves for word in each_lane(recast(half, I32))]
    for place, each in enumerate(words):
        panels[first + place * LANES] = each


def _put_row(panels: Memory, halves: list[Value], row: Value) -> None:
    """16 bytes as they are: of an MN-major operand, eight elements of one k."""
    for place, half in enumerate(halves):
        panels.view(I8)[row * UNIT + place * (UNIT // 2)] = half
