"""Compiled reads and writes of the registers of warps.

The registers of an operand are in the order (register, lane), with the lanes of all
warps.  A panel is eight rows of A, or eight columns of B, C and D: eight numbers of a
vector.  The place of every element is computed from the layout line of its fragment
and is a constant of the machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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
    convert,
    picked,
)
from fragmenta.errors import LayoutError
from fragmenta.reference.isa.instruction import WARP
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.registers.words import Container

_WORDS = {8: I8, 16: I16, 32: I32, 64: I64}

Places = NDArray[np.intp]


class Items(NamedTuple):
    """How a fragment is read in panels: whole registers, or parts of them."""

    of: Type  #: the integer type of an item
    per: int  #: elements in an item, one after the other along the panel
    places: Places  #: (panels, items of a panel, 8), in items

    @property
    def rows(self) -> int:
        """All rows of eight items."""
        return prod(self.places.shape[:-1])


def items_of(part: Fragment, across: str, *, single: bool = False) -> Items:
    """The items of a fragment in panels of eight along the coordinate ``across``.

    With ``single``, every item holds one element.

    >>> import fragmenta as fm
    >>> found = items_of(fm.mma("m16n8k16", a="f16", d="f32").b, "col")
    >>> str(found.of), found.per, found.places.shape
    ('i32', 2, (1, 8, 8))
    >>> found.places[0, 1]
    array([ 1,  5,  9, 13, 17, 21, 25, 29])
    """
    layout, along = part.layout, _other(across)
    joined = not single and part.elements > 1 and layout.low_run("E") == along
    if joined:
        layout, per, bits = layout.without("E"), part.elements, part.register_bits
    else:
        per, bits = 1, part.container.bits
    if bits not in _WORDS:
        raise LayoutError(f"{part}: its elements are not neighbours along {along}")
    return Items(_WORDS[bits], per, _panels(layout, across))


def _other(across: str) -> str:
    return next(name for name in ("row", "col") if name != across)


def _panels(layout: Layout, across: str) -> Places:
    """The places of a layout as (panels, along, 8)."""
    names = list(layout.data)
    order = [name for name in names if name not in ("row", "col")]
    order += [across, _other(across)]
    places = places_of(layout).transpose([names.index(name) for name in order])
    *_, wide, deep = places.shape
    parted = places.reshape(-1, wide // LANES, LANES, deep)
    return parted.swapaxes(-1, -2).reshape(-1, deep, LANES)


def places_of(layout: Layout, **selected: int) -> Places:
    """Where each element is, counted in the order register, lane, part of a register.

    >>> places_of(Layout.parse("row = L3 L4 R0  col = L0 L1 L2", L=32, R=2))[:, 0]
    array([ 0,  8, 16, 24, 32, 40, 48, 56])
    """
    names = [name for name, _ in layout.axes]
    found = np.unravel_index(layout.scatter(**selected), layout.place_shape)
    axes, sizes = dict(zip(names, found, strict=True)), dict(layout.axes)
    lane = axes["W"] * WARP + axes["L"] if "W" in sizes else axes["L"]
    place = axes["R"] * (WARP * sizes.get("W", 1)) + lane
    return place * sizes["E"] + axes["E"] if "E" in sizes else place


# -- reading and writing ------------------------------------------------------


class ItemAddresses:
    """The place of every item of a fragment.

    A layout puts every bit of a coordinate at a place of its own.  So a place is the
    sum of three numbers: one for the panel, one for the row of eight items in it, and
    one for the item of the eight.
    """

    def __init__(self, code: Code, places: Places) -> None:
        origin = places[0, 0, 0]
        panels, rows, eight = places[:, 0, 0], places[0, :, 0], places[0, 0] - origin
        sums = panels[:, None, None] + (rows - origin)[:, None] + eight
        if (sums != places).any():
            raise LayoutError("the places of panels are not at constant distances")
        self._panels = code.table(panels.tolist(), I16)
        self._rows = code.table((rows - origin).tolist(), I16)
        self._eight = eight.tolist()

    @property
    def consecutive(self) -> bool:
        """Whether the eight places of a row follow each other."""
        return bool(self._eight == list(range(LANES)))

    @property
    def paired(self) -> int:
        """How far apart the two rows of four are that eight places alternate between.

        0 if they are not.
        """
        apart = self._eight[1]
        halves = self._eight[0::2], self._eight[1::2]
        straight = list(range(LANES // 2))
        found = halves == (straight, [each + apart for each in straight])
        return int(apart) if found else 0

    def first(self, panel: Value, row: Value) -> Value:
        """The first place of a row."""
        return _place(self._panels, panel) + _place(self._rows, row)

    def every(self, panel: Value, row: Value) -> list[Value]:
        """The eight places of a row."""
        first = self.first(panel, row)
        return [first + each for each in self._eight]


class Panels:
    """An operand in memory, read or written eight elements at a time.

    ``flipped`` are the bits of every element that are inverted when it is read.
    """

    def __init__(
        self,
        code: Code,
        memory: Memory,
        items: Items,
        slot: Container,
        flipped: int = 0,
    ) -> None:
        self._code, self._slot, self._flipped = code, slot, flipped
        self.items = items
        self._memory = memory.view(items.of)
        self._where = ItemAddresses(code, items.places)

    @property
    def rows(self) -> int:
        """All rows of eight elements."""
        return self.items.rows * self.items.per

    def read(self, panel: Value, row: Value) -> Value:
        """Eight items as integers of at least 32 bits."""
        if self._where.consecutive:
            found = self._memory.lanes(self._where.first(panel, row))
        elif self._where.paired:
            first, half = self._where.first(panel, row), LANES // 2
            even = self._memory.lanes(first, half)
            odd = self._memory.lanes(first + self._where.paired, half)
            places = [each for lane in range(half) for each in (lane, half + lane)]
            found = picked(even, places, odd)
        else:
            found = self._memory.gather(self._where.every(panel, row))
        narrow = self.items.of in (I8, I16)
        return convert(found, I32, signed=False) if narrow else found

    def write(self, panel: Value, row: Value, bits: Value) -> None:
        """Write eight items."""
        if self._where.consecutive:
            self._memory[self._where.first(panel, row)] = bits
        elif self._where.paired:
            first = self._where.first(panel, row)
            self._memory[first] = picked(bits, range(0, LANES, 2))
            self._memory[first + self._where.paired] = picked(bits, range(1, LANES, 2))
        else:
            self._memory.scatter(self._where.every(panel, row), bits)

    def each_item(self, visit: Callable[[Value, Value], None]) -> None:
        """Visit all items, eight at a time.

        ``visit`` gets them and the number of the row of eight, counted over all
        panels.
        """
        panels, deep, _ = self.items.places.shape
        with self._code.loop(panels) as panel, self._code.loop(deep) as row:
            visit(self.read(panel, row), panel * deep + row)

    def each(self, visit: Callable[[Value, Value], None]) -> None:
        """Visit the raw bits of all elements, eight at a time, like their items."""
        slot, per = self._slot, self.items.per
        whole = self.items.of.width == slot.width

        def take_apart(word: Value, row: Value) -> None:
            for e in range(per):
                shifted = word >> (e * slot.bits + slot.shift)
                bits = word if whole else shifted & ((1 << slot.width) - 1)
                visit(bits ^ self._flipped if self._flipped else bits, row * per + e)

        self.each_item(take_apart)


def places_from(table: Memory, first: Value) -> list[Value]:
    """Eight consecutive places of a table of 16-bit integers."""
    return [_place(table, first + j) for j in range(LANES)]


def _place(table: Memory, at: Value) -> Value:
    return convert(table[at], I64, signed=False)
