"""The picture of tensor memory with the operands of an instruction in it.

Lanes run downwards, in four bands: those that the warps of a warpgroup reach.  Columns
run to the right, and each operand has some of them.  A block is a part of an operand
that continues regularly; it is computed from the fragment.  Its stripes are lanes, four
of one hue, in the colours of the registers that load them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import one_of
from fragmenta.inspect.view import places
from fragmenta.inspect.view.svg import Drawing, across, document, down, words
from fragmenta.reference.registers.tensor_fragment import (
    COLUMNS,
    TensorAddress,
    TensorFragment,
)

if TYPE_CHECKING:
    from fragmenta.reference.isa.instruction import Instruction

WARPS = 4
_LANE = 2.5  # the height of a lane
_QUARTER = 32 * _LANE
_BETWEEN = 7  # between the bands of two warps
_HEADER = 52
_LEFT = 62

Extent = tuple[int, int]


@dataclass(frozen=True)
class Rectangle:
    """Lanes and columns that hold a rectangle of an operand."""

    cta: int
    warp: int
    lanes: Extent
    columns: Extent
    rows: Extent
    cols: Extent

    def describe(self, part: TensorFragment) -> str:
        """Its complete description."""
        row, col = part.layout.data[-2:]
        cta = f"CTA {self.cta}, " if part.pair else ""
        return (
            f"{part.name}, {_extent(row, self.rows)}, {_extent(col, self.cols)}: {cta}"
            f"{_extent('lane', self.lanes)}, {_extent('column', self.columns)}, "
            f"warp {self.warp}"
        )


def _extent(name: str, extent: Extent) -> str:
    first, last = extent
    return f"{name} {first}" if first == last else f"{name}s {first}–{last}"


def arrangement(op: Instruction) -> dict[str, TensorAddress]:
    """Addresses at which all operands fit: D first, then the others, four by four.

    Kernels choose their own addresses; these are for the picture.

    >>> import fragmenta as fm
    >>> op = fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4")
    >>> {name: at.column for name, at in arrangement(op).items()}
    {'D': 0, 'A': 64, 'scale_A': 72, 'scale_B': 76}
    """
    found, column = dict[str, TensorAddress](), 0
    for name, part in op.fragments.items():
        assert isinstance(part, TensorFragment)
        found[name] = TensorAddress(0, column)
        column = -(-(column + part.skipped + part.columns) // 4) * 4
    return found


def blocks(part: TensorFragment, at: TensorAddress) -> list[Rectangle]:
    """The parts of an operand that continue regularly.

    >>> import fragmenta as fm
    >>> d = fm.tcgen05("m64n32k16", a="f16", d="f32").d
    >>> for block in blocks(d, TensorAddress(0, 8))[:2]:
    ...     print(block.describe(d))
    D, rows 0–15, cols 0–31: lanes 0–15, columns 8–39, warp 0
    D, rows 16–31, cols 0–31: lanes 32–47, columns 8–39, warp 1
    """
    apart = part.name.startswith("scale")  # the next 32 rows are in the next column
    joined: list[Rectangle] = []
    for cta, warp, column, l0, l1, r0, r1, c0, c1 in _columns(part, at):
        here = Rectangle(cta, warp, (l0, l1), (column, column), (r0, r1), (c0, c1))
        last = joined[-1] if joined else None
        if last and not apart and _goes_on(last, here):
            columns, cols = (
                (last.columns[0], column),
                (last.cols[0], max(last.cols[1], c1)),
            )
            joined[-1] = Rectangle(cta, warp, (l0, l1), columns, (r0, r1), cols)
        else:
            joined.append(here)
    return joined


def _columns(part: TensorFragment, at: TensorAddress) -> list[list[int]]:
    """For each CTA, warp and column: the first and last lane, row and column."""
    held = part.held()
    if "base" in held:
        chosen = held["base"] == at.lane // 16
        held = {name: each[chosen] for name, each in held.items()}
    row, col = part.layout.data[-2:]
    cta = held.get("cta", np.zeros_like(held["lane"]))
    band = cta * WARPS + places.reaching_warp(held["lane"])
    key = band * COLUMNS + held["column"] + at.column
    order = np.argsort(key, kind="stable")
    each, starts = np.unique(key[order], return_index=True)
    bands, columns = np.divmod(each, COLUMNS)
    found = np.vstack([*np.divmod(bands, WARPS), columns])
    ends = [
        reduce.reduceat(held[name][order], starts)
        for name in ("lane", row, col)
        for reduce in (np.minimum, np.maximum)
    ]
    listed: list[list[int]] = np.vstack([found, *ends]).T.tolist()
    return listed


def _goes_on(last: Rectangle, here: Rectangle) -> bool:
    return (last.cta, last.warp, last.lanes, last.rows, last.columns[1] + 1) == (
        here.cta,
        here.warp,
        here.lanes,
        here.rows,
        here.columns[0],
    )


# ── the picture ─────────────────────────────────────────────────────────────


def tensor_memory_svg(op: Instruction) -> str:
    """The picture of tensor memory with the operands of an instruction.

    >>> import fragmenta as fm
    >>> picture = tensor_memory_svg(fm.tcgen05("m256n64k16", a="f16", cta_group=2))
    >>> "D, rows 224–255, cols 0–63: CTA 1, lanes 96–127, columns 0–63" in picture
    True
    """
    head = [words(str(op), "g t"), words(summary(op), "k s")]
    notes = down((words(line, "k s") for line in _notes(op)), 2)
    return document(down([down(head, 4), memory(op), notes], 18), str(op))


def summary(op: Instruction) -> str:
    """Shape, types and layout of an instruction in one line."""
    ctas = "two CTAs" if op.cta_group == 2 else "one CTA"
    return f"{op.descriptor}, layout {op.layout_letter}, {ctas}; requires {op.requires}"


def memory(op: Instruction) -> Drawing:
    """Tensor memory of one CTA, or of both side by side."""
    at = arrangement(op)
    parts = {n: p for n, p in op.fragments.items() if isinstance(p, TensorFragment)}
    found = {name: blocks(part, at[name]) for name, part in parts.items()}
    ctas = range(op.cta_group or 1)
    return across((_cta(parts, found, cta, len(ctas) > 1) for cta in ctas), 40)


def _notes(op: Instruction) -> Iterator[str]:
    yield "a band is the 32 lanes that one warp of a warpgroup reaches by tcgen05.ld"
    yield "columns are counted from address 0; a kernel chooses its own addresses"
    if "base" in str(op.fragments["D"].layout):
        yield "at an address with lane 16, the other half of each band is used"
    copied = [n for n, p in op.fragments.items() if "copy" in p.layout.free]
    if copied:
        yield f"{one_of(copied, 'and')}: the same elements are in several bands"
    if "A" in op.fragments:
        yield "A may be read from shared memory instead; B always is"


def _cta(
    parts: Mapping[str, TensorFragment],
    found: Mapping[str, list[Rectangle]],
    cta: int,
    pair: bool,
) -> Drawing:
    top = 18 if pair else 0
    body = [words(f"CTA {cta}", "g t").at(0, 0)] if pair else []
    body += _bands(top + _HEADER)
    x = float(_LEFT)
    for name, part in parts.items():
        here = [block for block in found[name] if block.cta == cta]
        width = _width(part, here)
        body += _operand(part, here, x, top, width)
        x += width + 14
    height = top + _HEADER + WARPS * (_QUARTER + _BETWEEN)
    return Drawing(x - 14, height, "".join(body))


def _y(lane: float) -> float:
    """Where a lane is, from the first one."""
    return lane * _LANE + lane // 32 * _BETWEEN


def _bands(top: float) -> Iterator[str]:
    for warp in range(WARPS):
        y = top + _y(32 * warp)
        yield (
            f'<rect class="b" x="0" y="{y:g}" width="16" height="{_QUARTER:g}" rx="3"/>'
            f'<text class="m t" transform="translate(11 {y + _QUARTER / 2:g}) '
            f'rotate(-90)">warp {warp}</text><g class="r s">'
            f'<text x="{_LEFT - 6}" y="{y + 8:g}">lane {32 * warp}</text>'
            f'<text x="{_LEFT - 6}" y="{y + _QUARTER - 1:g}">{32 * warp + 31}</text>'
            "</g>"
        )


def _width(part: TensorFragment, here: list[Rectangle]) -> float:
    """Wide enough for all columns, and for what is written into blocks."""
    steps = {block.columns for block in here}
    heading = 7.2 * max(map(len, _heading(part, here)))
    return max(min(part.columns, 256) * 1.25, 34 * len(steps), heading, 96)


def _heading(part: TensorFragment, here: list[Rectangle]) -> tuple[str, str, str]:
    first = min(block.columns[0] for block in here)
    last = max(block.columns[1] for block in here)
    size = " x ".join(map(str, part.shape))
    stored = " stored" if part.stored > 1 else ""
    return part.name, f"{part.dtype} {size}{stored}", _extent("column", (first, last))


def _operand(
    part: TensorFragment, here: list[Rectangle], x: float, top: float, width: float
) -> Iterator[str]:
    name, size, columns = _heading(part, here)
    yield f'<text class="g t" x="{x:g}" y="{top + 13}">{escape(name)}</text>'
    yield f'<text class="k t" x="{x:g}" y="{top + 28}">{size}</text>'
    yield f'<text class="k s" x="{x:g}" y="{top + 43}">{columns}</text>'
    first = min(block.columns[0] for block in here)
    last = max(block.columns[1] for block in here) + 1
    scale = width / (last - first)
    for warp in range(WARPS):
        y = top + _HEADER + _y(32 * warp)
        yield _rect("b", x, y, width, _QUARTER)
    for block in here:
        left = x + (block.columns[0] - first) * scale
        wide = (block.columns[1] + 1 - block.columns[0]) * scale
        yield from _block(part, block, left, top + _HEADER, wide)


def _block(
    part: TensorFragment, block: Rectangle, x: float, top: float, width: float
) -> Iterator[str]:
    start, end = block.lanes
    yield f"<g><title>{escape(block.describe(part))}</title>"
    for lane in range(start, end + 1, 4):
        height = min(4, end + 1 - lane) * _LANE
        yield _rect(f"l{lane % 32 + 1}", x, top + _y(lane), width, height)
    y, height = top + _y(start), (end + 1 - start) * _LANE
    yield _rect("o", x, y, width, height)
    yield from _label(part, block, x, y, width, height)
    yield "</g>"


def _rect(style: str, x: float, y: float, width: float, height: float) -> str:
    return (
        f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:g}" '
        f'height="{height:g}"/>'
    )


def _label(
    part: TensorFragment,
    block: Rectangle,
    x: float,
    y: float,
    width: float,
    height: float,
) -> Iterator[str]:
    """The rows and columns that it holds, on a plate that is legible on all colours."""
    row, col = part.layout.data[-2:]
    lines = [_extent(row, block.rows), _extent(col, block.cols)]
    room = 5.8 * max(map(len, lines)) + 8
    middle = x + width / 2, y + height / 2
    turned = room > width
    if turned:  # one column of scales: say what changes from block to block
        of_b = part.name.endswith("B")
        lines = [_extent(col, block.cols) if of_b else _extent(row, block.rows)]
        room = 5.8 * len(lines[0]) + 8
    tall = 12 * len(lines) + 4
    spin = " rotate(-90)" if turned else ""
    yield f'<g transform="translate({middle[0]:g} {middle[1]:g}){spin}">'
    yield (
        f'<rect class="p" fill-opacity=".85" x="{-room / 2:g}" y="{-tall / 2:g}" '
        f'width="{room:g}" height="{tall:g}" rx="4"/>'
    )
    for number, line in enumerate(lines):
        at = -tall / 2 + 11 + 12 * number
        yield f'<text class="m t" y="{at:g}">{line}</text>'
    yield "</g>"
