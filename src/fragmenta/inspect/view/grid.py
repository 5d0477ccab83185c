"""Selects the cells that the picture of a fragment shows.

A picture is one grid for each matrix and each choice of the selectors.  Small
operands are shown whole.  Large ones repeat themselves, and a picture leaves
repetitions out, by three rules taken in this order along each direction:

1. Of more than 32 lines in more than two repetitions that differ only in the
   register, the first repetition and the last are shown.
2. If more than ``most`` lines are left, of the four warps the first and the
   last are shown.
3. If still more than ``most`` are left, of more than four neighbours in one
   register the first two and the last are shown.

In tensor memory, of the lanes of a warp or of columns that continue regularly, the
first and the last are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import ShapeError
from fragmenta.inspect.view.places import reaching_warp
from fragmenta.reference.registers.tensor_fragment import TensorFragment

if TYPE_CHECKING:
    from fragmenta.reference.registers.fragment import Fragment
    from fragmenta.reference.registers.layout import Digits, Index, Layout

Shown = NDArray[np.bool_]
Cells = list[list[int]]

REPEATS = 32
"""Lines that are always shown, even if they repeat."""


@dataclass(frozen=True)
class GridLine:
    """One line of a picture, or a gap: ``hidden`` lines from ``index`` on."""

    index: int
    hidden: int = 0
    inside: bool = False
    """Whether the gap lies within one register."""


@dataclass(frozen=True)
class Grid:
    """One matrix of a fragment: the place of each element, and what is shown.

    >>> import fragmenta as fm
    >>> grid = next(grids(fm.find("mma.m16n8k64.s4.s4").a))
    >>> grid.label(3, 17), grid.lane[3][17], grid.across, grid.down
    ('a1', 14, 8, 1)
    """

    fragment: Fragment
    at: dict[str, int]
    """The matrix and the selectors that this grid is for."""
    rows: tuple[GridLine, ...]
    cols: tuple[GridLine, ...]
    warp: Cells
    lane: Cells
    register: Cells
    element: Cells
    numbers: list[list[list[int]]]
    """The manual's index i of each element, once for each copy."""
    across: int
    """Neighbours in a row that share a register."""
    down: int
    """Neighbours in a column that share a register."""
    values: list[list[str]] | None = None
    """What each element is, if that is drawn, too."""

    @property
    def cells(self) -> bool:
        """Whether places are cells of tensor memory: lanes and columns."""
        return isinstance(self.fragment, TensorFragment)

    @property
    def boxed(self) -> bool:
        """Whether several elements share a frame."""
        return self.across * self.down > 1

    def head(self, row: int, col: int) -> str:
        """The lane of a frame, ``T13``, with the column where elements share a cell."""
        column = f" C{self.register[row][col]}" if self.cells and self.boxed else ""
        return f"T{self.lane[row][col]}{column}"

    def label(self, row: int, col: int) -> str:
        """The element as the manual writes it; copies after a comma.

        In tensor memory, it is the column and the element in the cell.  Where values
        are drawn, it is the value.
        """
        if self.values is not None:
            return self.values[row][col]
        if self.cells:
            several = self.fragment.elements > 1
            element = f"E{self.element[row][col]}" if several else ""
            return element if self.boxed else f"C{self.register[row][col]}{element}"
        return self.fragment.letter + ",".join(map(str, self.numbers[row][col]))

    @property
    def widest(self) -> int:
        """The length of the longest label."""
        if self.values is not None:
            return max(len(text) for line in self.values for text in line)
        # All digits of the last element are the largest, so it has the longest name.
        return len(self.label(-1, -1))

    def bits(self, row: int, col: int) -> tuple[int, int]:
        """The lowest and the highest bit of an element in its register."""
        slot = self.fragment.container
        low = self.element[row][col] * slot.bits + slot.shift
        return low, low + self.fragment.dtype.bits - 1

    def describe(self, row: int, col: int) -> str:
        """The complete description of one element.

        >>> import fragmenta as fm
        >>> next(grids(fm.find("mma.m16n8k64.s4.s4").a)).describe(3, 17)
        'A[3, 17]: lane 14, register 0, bits 7:4, a1'
        """
        part = self.fragment
        if self.values is not None:
            place = replace(self, values=None).describe(row, col)
            return f"{place} = {self.values[row][col]}"
        if isinstance(part, TensorFragment):
            return _describe_cell(part, row, col)
        index = [self.at[n] for n in part.layout.data[:-2] if n in self.at]
        inside = ", ".join(map(str, [*index, row, col]))
        warp = f"warp {self.warp[row][col]}, " if part.lanes > 32 else ""
        low, high = self.bits(row, col)
        place = f"bits {high}:{low}" if high > low else f"bit {low}"
        return (
            f"{part.name}[{inside}]: {warp}lane {self.lane[row][col]}, "
            f"register {self.register[row][col]}, {place}, {self.label(row, col)}"
        )

    def title(self) -> str:
        """Which matrix, which selectors: empty where there is only one.

        >>> import fragmenta as fm
        >>> op = fm.mma("m16n8k64", a="s4", sp="sp")
        >>> [grid.title() for grid in grids(op.metadata)]
        ['selector 0', 'selector 1']
        """
        return ", ".join(f"{name} {value}" for name, value in self.at.items())


def _describe_cell(part: TensorFragment, row: int, col: int) -> str:
    cell = part.where(row, col)
    warps = sorted({reaching_warp(each.lane) for each in (cell, *cell.copies)})
    others = [str(each.lane) for each in cell.copies if each.cta == cell.cta]
    copies = f"; copies in lanes {', '.join(others)}" if others else ""
    reached = ", ".join(map(str, warps))
    return f"{part.name}[{row}, {col}]: {cell}, warp {reached}{copies}"


def grids(
    fragment: Fragment,
    most: int = 64,
    first: bool = False,
    values: ArrayLike | None = None,
) -> Iterator[Grid]:
    """The grids of a fragment; ``first`` stops at the selectors' first choice.

    With ``values``, an array in the shape of the fragment, nothing is left out: values
    do not repeat themselves.

    >>> import fragmenta as fm
    >>> d = fm.find("wgmma.m64n256k16.f32.f16").d
    >>> (grid,) = grids(d)
    >>> [slot.index for slot in grid.cols if not slot.hidden][6:10]
    [6, 7, 248, 249]
    """
    layout = fragment.layout
    *outer, row, col = layout.data
    keys = [*outer, *fragment.selectors]
    copies = [name for name in layout.free if name not in keys]
    order = [name for name, _ in layout.coordinates]
    places = _used(fragment).transpose(
        [order.index(name) for name in (*keys, row, col, *copies)]
    )
    shape = places.shape[: len(keys) + 2]
    held = _axes(layout, places.reshape(*shape, -1))
    zero = np.zeros_like(places).reshape(*shape, -1)
    cells = isinstance(fragment, TensorFragment)
    outermost, lane, inner = "PTC" if cells else "WLR"
    warp, element = held.get(outermost, zero), held.get("E", zero)
    number = held[inner] * fragment.elements + element
    texts = None if values is None else value_texts(fragment, values)
    rows, cols = slots(fragment, row, most), slots(fragment, col, most)
    if texts is not None:
        rows, cols = (tuple(map(GridLine, range(n))) for n in fragment.shape[-2:])
    across, down = shared_by(fragment, col), shared_by(fragment, row)
    shown = [
        range(1 if first and key in fragment.selectors else layout.sizes[key])
        for key in keys
    ]
    skipped = fragment.skipped if isinstance(fragment, TensorFragment) else 0
    for at in product(*shown):
        here: tuple[int | slice, ...] = (*at, slice(None), slice(None), 0)
        chosen = zip(keys, at, strict=True)
        yield Grid(
            fragment,
            {k: v for k, v in chosen if layout.sizes[k] > 1},
            rows,
            cols,
            warp[here].tolist(),
            held[lane][here].tolist(),
            (held[inner][here] + skipped).tolist(),
            element[here].tolist(),
            number[at].tolist(),
            across,
            down,
            None if texts is None else texts[at[: len(outer)]].tolist(),
        )


def value_texts(fragment: Fragment, values: ArrayLike) -> NDArray[np.object_]:
    """Each value as it is drawn; what the operand cannot hold is refused.

    >>> import fragmenta as fm
    >>> value_texts(fm.mma("m8n8k4", a="f64").a, np.full((8, 4), 1 / 3))[0, 0]
    '0.3333'
    >>> e = fm.mma("m16n8k64", a="s4", sp="sp").metadata.fragment
    >>> value_texts(e, np.full((16, 8), 4))[0, 0]
    '0100'
    """
    given, of = as_array(values), fragment.dtype
    if given.shape != fragment.shape:
        size = " x ".join(map(str, fragment.shape))
        stored = " as stored" if fragment.stored > 1 else ""
        raise ShapeError(
            f"{fragment.name} is {size}{stored}; given values of shape {given.shape}"
        )
    bits = of.encode(given)
    if fragment.layout.data[-1] == "chunk":
        told = [f"{int(code):04b}" for code in bits.flat]
    elif of.is_integer or of.kind in ("bit", "raw"):
        told = [str(int(each)) for each in of.decode(bits).flat]
    else:
        told = [f"{each:.4g}" for each in of.to_float64(bits).flat]
    return np.array(told, object).reshape(given.shape)


def _used(fragment: Fragment) -> Index:
    """The flat places of the part of the layout that the operand has, at address 0."""
    layout = fragment.layout
    if not isinstance(fragment, TensorFragment):
        return layout.place_index()
    chosen = []
    for name, _ in layout.coordinates:
        if name in layout.data and fragment.windows:
            window = fragment.windows[layout.data.index(name)]
            chosen.append(window.at(np.arange(window.size)))
        else:
            chosen.append(np.arange(1 if name == "base" else layout.sizes[name]))
    return np.asarray(layout.place_index()[np.ix_(*chosen)])


def _axes(layout: Layout, places: Index) -> dict[str, Index]:
    """Warp, lane, register and element of flat places.

    ``numpy.unravel_index`` would do the same, but that of NumPy 2.4 is wrong for large
    arrays whose last axis has one entry.
    """
    found = {}
    for name, size in reversed(layout.axes):
        places, found[name] = np.divmod(places, size)
    return found


def run(layout: Layout, coordinate: str) -> int:
    """How many neighbours along a coordinate share a register.

    >>> import fragmenta as fm
    >>> layout = fm.find("mma.m16n8k64.s4.s4").b.layout
    >>> run(layout, "row"), run(layout, "col")
    (8, 1)
    """
    digits = dict(layout.coordinates)[coordinate]
    size = 1
    for digit in digits:
        if digit.axis != "E" or digit.stride != size:
            break
        size *= digit.size
    return size


def shared_by(fragment: Fragment, coordinate: str) -> int:
    """As :func:`run`, of what the operand has of its layout."""
    length = run(fragment.layout, coordinate)
    if not isinstance(fragment, TensorFragment) or not fragment.windows:
        return length
    window = fragment.windows[fragment.layout.data.index(coordinate)]
    # Elements that begin inside a cell and continue in the next have no fixed frame.
    crosses = window.first and window.first + window.size > length
    return 1 if crosses or window.size == 1 else length


def slots(fragment: Fragment, coordinate: str, most: int) -> tuple[GridLine, ...]:
    """The lines that are shown along a coordinate, and the gaps between them."""
    if isinstance(fragment, TensorFragment):
        return tuple(_slots_of_cells(fragment, coordinate))
    layout = fragment.layout
    size = layout.sizes[coordinate]
    digits = dict(layout.coordinates)[coordinate]
    shown = np.ones(size, dtype=bool)
    if size > REPEATS:
        _hide_repeats(shown, digits, "R")
    if shown.sum() > most:
        _hide_repeats(shown, digits, "W")
    length = run(layout, coordinate)
    if shown.sum() > most and length > 4:
        inner = np.arange(size) % length
        shown &= (inner < 2) | (inner == length - 1)
    return tuple(_with_gaps(shown, length))


def _slots_of_cells(fragment: TensorFragment, coordinate: str) -> Iterator[GridLine]:
    """The first lines and the last of each run of lanes in a warp, or of columns."""
    at = fragment.layout.data.index(coordinate)
    size, length = fragment.shape[at], shared_by(fragment, coordinate)
    shown = np.ones(size, dtype=bool)
    if size > REPEATS:
        kind, block = _going_on(fragment, coordinate)
        part = fragment.windows[at].part if fragment.windows else 0
        inner = np.arange(size) % (part or block)
        last = min(part or block, size) - 1
        first, end = (3, 1) if kind == "lane" else (max(6, length), max(2, length))
        shown = (inner < first) | (inner > last - end)
        shown |= np.isin(inner, _turns(fragment, coordinate))
        shown[-1] = True
    yield from _with_gaps(shown, length)


def _turns(fragment: TensorFragment, coordinate: str) -> list[int]:
    """The lanes from which rows hold other elements of the same cells."""
    before, found = 1, list[int]()
    for digit in dict(fragment.layout.coordinates)[coordinate]:
        if digit.axis == "E" and before > 1:
            found += [before - 1, before, before + 1]
        before *= digit.size
    return found


def _going_on(fragment: TensorFragment, coordinate: str) -> tuple[str, int]:
    """How many indices continue in lanes of one warp, or in columns."""
    kind, block = "", 1
    for digit in dict(fragment.layout.coordinates)[coordinate]:
        if digit.axis == "E":
            this = kind or "column"
        elif digit.axis == "C":
            this = "column"
        else:
            this = "lane" if digit.axis == "T" and digit.stride < 32 else "far"
        if kind and this != kind:
            break
        kind, block = this, block * digit.size
    return kind, block


def _hide_repeats(shown: Shown, digits: Digits, axis: str) -> None:
    """Hide all but the first and the last repetition by the top digits of an axis."""
    kept = list(digits)
    while kept and kept[-1].axis == axis:
        kept.pop()
    period = prod(digit.size for digit in kept)
    count = len(shown) // period
    if kept and count > 2:
        block = np.arange(len(shown)) // period
        shown &= (block == 0) | (block == count - 1)


def _with_gaps(shown: Shown, length: int) -> Iterator[GridLine]:
    start: int | None = None
    for index, visible in enumerate(shown.tolist()):
        if not visible:
            start = index if start is None else start
            continue
        if start is not None:
            inside = (start - 1) // length == index // length
            yield GridLine(start, index - start, inside)
            start = None
        yield GridLine(index)
