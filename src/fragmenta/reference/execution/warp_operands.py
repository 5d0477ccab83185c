"""What a compiled instruction takes: operands, scales, metadata, accumulators.

Scales and metadata are one register each.  Selectors, known only when the machine
code runs, choose the lanes and bytes that are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from typing import NamedTuple

import numpy as np

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
    bits_of,
    convert,
    float_of,
)
from fragmenta.reference.arithmetic.constants import format_of
from fragmenta.reference.arithmetic.elements import small_value, to_half
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.execution.warp_registers import (
    Items,
    Panels,
    Places,
    items_of,
    places_from,
    places_of,
)
from fragmenta.reference.isa.instruction import WARP, Instruction
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.words import Container


class Side(NamedTuple):
    """A or B: where its elements are, in panels of eight rows or eight columns."""

    name: str
    dtype: DType
    memory: Memory
    items: Items
    slot: Container
    depth: int  #: elements of a panel along k
    flipped: int = 0  #: the bits of every element that are inverted

    def panels(self, code: Code) -> Panels:
        """The elements."""
        return Panels(code, self.memory, self.items, self.slot, self.flipped)


def from_registers(
    name: str, part: Fragment, registers: Memory, depth: int, flipped: int = 0
) -> Side:
    """A or B in registers."""
    items = items_of(part, "row" if name == "a" else "col")
    return Side(name, part.dtype, registers, items, part.container, depth, flipped)


class RegisterStrides(NamedTuple):
    """Distances in D, in registers of one lane."""

    register: Value  #: from a register of a warp to the next
    warp: Value  #: from a warp to the next


class WarpOperands(NamedTuple):
    """What a compiled function is given, and for which instruction."""

    op: Instruction
    model: Model
    a: Side
    b: Side
    c: Memory
    d: Memory
    extra: Memory
    selectors: dict[str, Value]
    kept: Value | None = None  #: the bits of C that are used, if not all
    steps: RegisterStrides | None = (
        None  #: where the registers of D are, if not in order
    )

    def sides(self) -> tuple[Side, Side]:
        """A and B."""
        return self.a, self.b


# -- rows of the result -------------------------------------------------------


class ResultRow(NamedTuple):
    """Eight neighbours of one row of the result."""

    m: Value  #: the row of its matrix
    a: Value  #: where the row of A begins, in panels that are one element deep
    a_panel: Value  #: counted over all matrices
    b_panel: Value  #: counted over all matrices, too


@contextmanager
def each_row(code: Code, op: Instruction) -> Iterator[ResultRow]:
    """Every row of the result: all rows of one panel of B, then those of the next."""
    m, n, _ = op.shape
    matrices = op.d.shape[0] if len(op.d.shape) > 2 else 1
    with code.loop(matrices) as matrix, code.loop(n // LANES) as panel:
        b_panel = matrix * (n // LANES) + panel
        with code.loop(m) as row:
            a_panel = matrix * (m // LANES) + (row >> (LANES.bit_length() - 1))
            yield ResultRow(row, row & (LANES - 1), a_panel, b_panel)


class Ends:
    """C and D, eight neighbours of a row at a time, as integers."""

    def __init__(self, code: Code, given: WarpOperands) -> None:
        self._c, self._d = (
            Panels(code, memory, items_of(part, "col", single=True), part.container)
            for memory, part in ((given.c, given.op.c), (given.d, given.op.d))
        )
        self._kept = given.kept

    def read(self, row: ResultRow) -> Value:
        """C."""
        bits = self._c.read(row.b_panel, row.m)
        return bits if self._kept is None else bits & self._kept

    def write(self, row: ResultRow, bits: Value) -> None:
        """D."""
        self._d.write(row.b_panel, row.m, bits)


class FloatEnds(Ends):
    """C and D, f16 or f32, as float32."""

    def __init__(self, code: Code, given: WarpOperands) -> None:
        super().__init__(code, given)
        self._from_half = format_of("f16") if given.model.c == "f16" else None
        self._to_half = given.model.d == "f16"

    def read(self, row: ResultRow) -> Value:
        """C."""
        bits = super().read(row)
        half = self._from_half
        return float_of(bits) if half is None else small_value(bits, half)

    def write(self, row: ResultRow, x: Value) -> None:
        """D, rounded to nearest if it is f16."""
        super().write(row, to_half(x) if self._to_half else bits_of(x))


# -- metadata -----------------------------------------------------------------


class Offsets(NamedTuple):
    """For every stored element of A, where its row of B begins in a panel."""

    memory: Memory | None  #: None if the rows of B are taken one after the other
    row: int  #: items from one row of A to the next
    illegal: Value  #: 1 if a metadata code is illegal, otherwise 0


def offsets_of(code: Code, given: WarpOperands) -> Offsets:
    """Which rows of B the products take, in the order of the products."""
    if given.op.sparse:
        return _read_metadata(code, given)
    legal, order = code.constant(0, I32), given.model.order
    if not given.model.reordered:
        return Offsets(None, 0, legal)
    return Offsets(code.table([p * LANES for p in order], I32), 0, legal)


def metadata_index(code: Code, given: WarpOperands) -> tuple[Memory, Value]:
    """The rows of B that the metadata chooses, in 8 bits, and 1 if it is illegal."""
    found = _read_metadata(code, given, I8, 1)
    assert found.memory is not None
    return found.memory, found.illegal


def _read_metadata(
    code: Code, given: WarpOperands, of: Type = I32, each: int = LANES
) -> Offsets:
    """The rows of B that the metadata chooses; an illegal code, those that it names.

    They are numbers of a type, and ``each`` apart.
    """
    op, stored = given.op, given.model.stored
    granularity, codes = op.granularity, range(16)
    assert granularity is not None
    kept, ordered = granularity.kept, op.metadata.ordered
    places = _metadata_places(op)
    selectors, rows, chunks = places.shape
    table = code.table(places.ravel().tolist(), I16)
    named = code.table([p for c in codes for p in granularity.named(c)], I32)
    wrong = code.table([int(bool(granularity.problem(c, ordered))) for c in codes], I32)
    target = code.table(np.argsort(given.model.order).tolist(), I32)
    out = code.scratch(of, rows * stored)
    illegal = code.variable(code.constant(0, I32))
    first = (given.selectors["selector"] & (selectors - 1)) * (rows * chunks)
    with code.loop(rows) as row, code.loop(chunks) as chunk:
        place = convert(table[first + row * chunks + chunk], I32, signed=False)
        word = given.extra[convert(place >> 3, I64)]
        found = convert((word >> ((place & 7) << 2)) & 15, I64)
        illegal.value = illegal.value | wrong[found]
        start = convert(chunk, I32) * granularity.chunk
        for i in range(kept):
            to = convert(target[chunk * kept + i], I64)
            column = start + named[found * kept + i]
            out[row * stored + to] = convert(column * each, of)
    return Offsets(out, stored, illegal.value)


def _metadata_places(op: Instruction) -> Places:
    """Where the code of each row and chunk is, in nibbles, for each selector."""
    layout = op.metadata.fragment.layout
    selectors = range(layout.sizes.get("selector", 1))
    pinned = [{"selector": s} if "selector" in layout.free else {} for s in selectors]
    return np.stack([places_of(layout, **each) for each in pinned])


# -- scales -------------------------------------------------------------------


class ScalePlaces(NamedTuple):
    """Where the scales of A or B are, in bytes, for every pair of selectors."""

    places: Places  #: (bytes, threads, panels, scales along k, 8)
    step: int  #: byte selectors are multiples of this

    @property
    def rows(self) -> int:
        """Rows of eight scales."""
        return prod(self.places.shape[2:4])

    def first(self, byte: Value, thread: Value) -> Value:
        """The first row of places for two selectors; other bits are ignored."""
        bytes_, threads = map(int, self.places.shape[:2])
        group: Value = (byte >> (self.step.bit_length() - 1)) & (bytes_ - 1)
        chosen: Value = thread & (threads - 1)
        return (group * threads + chosen) * self.rows


def scale_places(part: Fragment) -> ScalePlaces:
    """The places of the scales of A or B.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k32", kind="mxf8f6f4", a="e4m3", b="e4m3", d="f32")
    >>> scale_places(op.scale_a).places.shape
    (4, 2, 2, 1, 8)
    """
    sizes = part.layout.sizes
    step = sizes["col" if part.name == "scale_A" else "row"]
    group = "pair" if "pair" in sizes else "byte"
    bytes_, threads = sizes.get(group, 1), sizes.get("thread", 1)
    found = []
    for byte, thread in np.ndindex(bytes_, threads):
        chosen = {group: byte, "thread": thread}
        pinned = {name: v for name, v in chosen.items() if name in part.selectors}
        places = places_of(part.layout, **pinned)
        along = places.T if part.name == "scale_B" else places
        found.append(along.reshape(-1, LANES, step).swapaxes(1, 2))
    shape = (bytes_, threads, *found[0].shape)
    return ScalePlaces(np.stack(found).reshape(shape), step)


@contextmanager
def each_scale(
    code: Code, given: WarpOperands, side: Side
) -> Iterator[tuple[list[Value], Value]]:
    """The bits of eight scales of A or B, and their row in panels."""
    part = given.op.fragment(f"scale_{side.name}")
    found = scale_places(part)
    chosen = (given.selectors[f"{which}_{side.name}"] for which in ("byte", "thread"))
    first = found.first(*chosen)
    table = code.table(found.places.ravel().tolist(), I16)
    registers = given.extra.after((given.op.sparse + (side.name == "b")) * WARP)
    scales, mask = registers.view(I8), part.dtype.mask
    with code.loop(found.rows) as row:
        places = places_from(table, (first + row) * LANES)
        bits = [convert(scales[place], I64, signed=False) & mask for place in places]
        yield bits, row
