"""The picture of a fragment in a terminal.

There is one line for each row of the matrix; a box is the part of it that one register
holds, ``T13 a4-7``, or one cell of tensor memory, ``T13 C5``, in the colour of its
lane. Wide matrices are cut into blocks.  Without colours the same text is a plain
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from fragmenta.inspect.view.grid import Grid, GridLine, grids
from fragmenta.inspect.view.palette import terminal_style
from fragmenta.reference.registers.tensor_fragment import TensorFragment

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from rich.text import Text

    from fragmenta.reference.registers.fragment import Fragment

Colored = tuple[str, int | None]
"""Text, and the lane whose colour it has."""

_CHUNK_NOTE = "e3 is bits 15:12 of the word: idx1 in bits 15:14, idx0 in bits 13:12"


def plain(fragment: Fragment, width: int = 80, values: ArrayLike | None = None) -> str:
    r"""The picture as text.

    >>> import fragmenta as fm
    >>> print(plain(fm.find("mma.m8n8k4.f64").a))
    A: f64 8 x 4, row = L2 L3 L4  col = L0 L1
    row\col      0      1      2      3
          0  T0 a0  T1 a0  T2 a0  T3 a0
          1  T4 a0  T5 a0  T6 a0  T7 a0
          2  T8 a0  T9 a0 T10 a0 T11 a0
          3 T12 a0 T13 a0 T14 a0 T15 a0
          4 T16 a0 T17 a0 T18 a0 T19 a0
          5 T20 a0 T21 a0 T22 a0 T23 a0
          6 T24 a0 T25 a0 T26 a0 T27 a0
          7 T28 a0 T29 a0 T30 a0 T31 a0
    """
    lines = (
        "".join(text for text, _ in line) for line in _lines(fragment, width, values)
    )
    return "\n".join(line.rstrip() for line in lines)


def painted(
    fragment: Fragment, width: int = 80, values: ArrayLike | None = None
) -> Text:
    """The picture for rich to print: each box in the colour of its lane.

    >>> import fragmenta as fm
    >>> text = painted(fm.find("mma.m8n8k4.f64").a)
    >>> text.plain == plain(fm.find("mma.m8n8k4.f64").a)
    True
    """
    from rich.text import Text

    rows = []
    for line in _lines(fragment, width, values):
        styled = [
            (text, "" if lane is None else terminal_style(lane)) for text, lane in line
        ]
        rows.append(Text.assemble(*styled))
        rows[-1].rstrip()
    return Text("\n").join(rows)


def _lines(
    fragment: Fragment, width: int, values: ArrayLike | None
) -> Iterator[list[Colored]]:
    size = " x ".join(map(str, fragment.shape))
    stored = " as stored" if fragment.stored > 1 else ""
    head = f"{fragment.name}: {fragment.dtype} {size}{stored}, "
    layout = str(fragment.layout)
    if len(head + layout) <= width:
        head, layout = head + layout, ""
    yield [(head, None)]
    if layout:
        yield [(layout, None)]
    if fragment.layout.data[-1] == "chunk":
        note = _CHUNK_NOTE
        if isinstance(fragment, TensorFragment):
            note = "E" + note[1:].replace("word", "cell")
        yield [(note, None)]
    for grid in grids(fragment, values=values):
        if grid.at:
            yield []
            yield [(grid.title(), None)]
        yield from _blocks(grid, width)


def _blocks(grid: Grid, width: int) -> Iterator[list[Colored]]:
    """The grid, in as many blocks of columns as it takes."""
    row, col = grid.fragment.layout.data[-2:]
    corner = f"{row}\\{col}"
    label = max(len(corner), 3 + 6 * _of_warps(grid))
    boxes = _boxes(grid.cols, grid.across)
    heads = [_extent(grid, box) for box in boxes]
    body = {
        slot: [_box(grid, slot, box) for box in boxes]
        for slot in grid.rows
        if not slot.hidden
    }
    texts = [text for line in body.values() for text, _ in line]
    cell = max(map(len, (*heads, *texts)))
    fit = max(1, (width - label) // (cell + 1))
    fit = -(-len(boxes) // -(-len(boxes) // fit))  # blocks of one size
    for start in range(0, len(boxes), fit):
        if start:
            yield []
        end = start + fit
        yield [
            (" ".join([f"{corner:>{label}}", *_right(heads[start:end], cell)]), None)
        ]
        for slot in grid.rows:
            yield [(f"{_name(grid, slot):>{label}}", None)] + [
                piece
                for text, lane in body.get(slot, [])[start:end]
                for piece in ((" ", None), (f"{text:>{cell}}", lane))
            ]


def _right(texts: Iterable[str], size: int) -> list[str]:
    return [f"{text:>{size}}" for text in texts]


def _boxes(slots: tuple[GridLine, ...], length: int) -> list[list[GridLine]]:
    """Columns that share a register, and gaps by themselves."""

    def box(slot: GridLine) -> tuple[bool, int]:
        return bool(slot.hidden) and not slot.inside, slot.index // length

    return [list(found) for _, found in groupby(slots, box)]


def _extent(grid: Grid, box: list[GridLine]) -> str:
    first, last = box[0], box[-1]
    if first.hidden:
        return "…"
    return str(first.index) if first is last else f"{first.index}-{last.index}"


def _name(grid: Grid, slot: GridLine) -> str:
    if slot.hidden:
        return "…"
    if _of_warps(grid):
        return f"warp {grid.warp[slot.index][0]} {slot.index:>2}"
    return str(slot.index)


def _of_warps(grid: Grid) -> bool:
    return grid.fragment.lanes > 32 and not grid.cells


def _box(grid: Grid, row: GridLine, box: list[GridLine]) -> Colored:
    """``T13 a4-7``: the lane, and which of its elements these are."""
    first, last = box[0], box[-1]
    if first.hidden:
        return "…", None
    lane = grid.lane[row.index][first.index]
    if grid.values is not None:
        texts = [grid.label(row.index, slot.index) for slot in box]
        return " ".join([grid.head(row.index, first.index), *texts]), lane
    if grid.cells:
        return _cell(grid, row.index, first.index, last.index), lane
    ends = zip(
        grid.numbers[row.index][first.index],
        grid.numbers[row.index][last.index],
        strict=True,
    )
    held = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ends)
    return f"T{lane} {grid.fragment.letter}{held}", lane


def _cell(grid: Grid, row: int, first: int, last: int) -> str:
    """``T13 C5``, after the CTA of a pair and before the elements of the cell."""
    of_pair = isinstance(grid.fragment, TensorFragment) and grid.fragment.pair
    cta = f"P{grid.warp[row][first]} " if of_pair else ""
    text = f"{cta}T{grid.lane[row][first]} C{grid.register[row][first]}"
    if grid.fragment.elements == 1:
        return text
    ends = dict.fromkeys((grid.element[row][first], grid.element[row][last]))
    return f"{text}E{'-'.join(map(str, ends))}"
