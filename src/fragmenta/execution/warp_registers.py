"""How does a compiled function read and write the registers of warps?

The registers of an operand are in the order (register, lane), with the lanes of all
warps.  A panel is eight rows of A, or eight columns of B, C and D: eight numbers of a
vector.  The place of every element is computed from the layout line of its fragment
and is a constant of the machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import LayoutError
from fragmenta.isa.instruction import WARP
from fragmenta.machine.trace import (
    I8,
    I16,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    convert,
)
from fragmenta.registers.fragment import Fragment
from fragmenta.registers.layout import Layout
from fragmenta.registers.words import Container

_WORDS = {8: I8, 16: I16, 32: I32, 64: I64}

Places = NDArray[np.intp]


class Items(NamedTuple):
    """How a fragment is read in panels: whole registers, or parts of them."""

    of: Any  #: the integer type of an item
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


class Where:
    """The eight places of every row of a panel, with as few constants as possible."""

    def __init__(self, code: Code, places: Places) -> None:
        _, deep, _ = places.shape
        apart = places - places[..., :1]
        self.apart = apart[0, 0].tolist() if (apart == apart[0, 0]).all() else None
        self._rows, self._step = 0, 0
        if self.apart is None:
            self._table = code.table(places.ravel().tolist(), I16)
            return
        firsts = places[..., 0]
        steps = np.diff(firsts, axis=0)
        if deep & (deep - 1) == 0 and (steps == steps[:1, :1]).all():
            self._rows, self._step = deep, int(steps[0, 0]) if steps.size else 0
            firsts = firsts[0]
        self._table = code.table(firsts.ravel().tolist(), I16)

    def first(self, row: Value) -> Value:
        """The first place of a row, if the others are at constant distances."""
        if not self._rows:
            return _place(self._table, row)
        panel = row >> (self._rows.bit_length() - 1)
        return _place(self._table, row & (self._rows - 1)) + panel * self._step

    def places(self, row: Value) -> list[Value]:
        """The eight places of a row."""
        if self.apart is None:
            return places_from(self._table, row * LANES)
        first = self.first(row)
        return [first + each for each in self.apart]

    @property
    def consecutive(self) -> bool:
        """Whether the eight places of a row follow each other."""
        return self.apart == list(range(LANES))


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
        self._where = Where(code, items.places)

    @property
    def rows(self) -> int:
        """All rows of eight elements."""
        return self.items.rows * self.items.per

    def read(self, row: Value) -> Value:
        """Eight items as integers of at least 32 bits."""
        if self._where.consecutive:
            found = self._memory.lanes(self._where.first(row))
        else:
            found = self._memory.gather(self._where.places(row))
        narrow = self.items.of in (I8, I16)
        return convert(found, I32, signed=False) if narrow else found

    def write(self, row: Value, bits: Value) -> None:
        """Write eight items."""
        if self._where.consecutive:
            self._memory[self._where.first(row)] = bits
        else:
            self._memory.scatter(self._where.places(row), bits)

    def each(self, visit: Callable[[Value, Value], None]) -> None:
        """Visit the raw bits of all elements, eight at a time.

        ``visit`` gets them and the number of the row of eight, counted over all
        panels.
        """
        slot, per = self._slot, self.items.per
        whole = self.items.of.width == slot.width
        with self._code.loop(self.items.rows) as row:
            word = self.read(row)
            for e in range(per):
                shifted = word >> (e * slot.bits + slot.shift)
                bits = word if whole else shifted & ((1 << slot.width) - 1)
                visit(bits ^ self._flipped if self._flipped else bits, row * per + e)


def places_from(table: Memory, first: Value) -> list[Value]:
    """Eight consecutive places of a table of 16-bit integers."""
    return [_place(table, first + j) for j in range(LANES)]


def _place(table: Memory, at: Value) -> Value:
    return convert(table[at], I64, signed=False)
