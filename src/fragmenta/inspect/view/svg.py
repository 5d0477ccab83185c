"""The picture of a fragment or of an instruction, as SVG.

The matrix is drawn as on paper: each cell names the lane and the element, ``T13`` and
``a5`` as in the manual's figures.  Colours are lanes, frames are registers.  A picture
is plain text, made of small :class:`Drawing` objects put side by side and on top of
each other; :mod:`fragmenta.inspect.view.grid` selects the lines that it shows of a
large operand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall, MissingPackage, missing, one_of
from fragmenta.inspect.view import palette
from fragmenta.inspect.view.grid import Grid, GridLine, grids
from fragmenta.reference.registers.tensor_fragment import TensorFragment

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fragmenta.reference.isa.instruction import Instruction
    from fragmenta.reference.registers.fragment import Fragment

FORMATS = ("svg", "png", "pdf")

_LETTER = 5.6  # the width of a letter of 9 pixels
_GAP = 18  # the width of a gap
_MARGIN = 14
_STYLE = """
svg.fm text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
svg.fm .m{text-anchor:middle;font-size:9px}
svg.fm .n{text-anchor:middle;font-size:9px;font-weight:bold}
svg.fm .u{text-anchor:middle;font-size:7px}
svg.fm .r{text-anchor:end;font-size:9px}
svg.fm .k{font-size:11px}
svg.fm .g{font-size:14px;font-weight:bold}
svg.fm .o{fill:none;stroke-width:1.4}
svg.fm text{white-space:pre;pointer-events:none}
svg.fm .h{stroke-width:.5}
"""


@dataclass(frozen=True)
class Drawing:
    """A piece of a picture: its size, and the elements in it."""

    width: float
    height: float
    body: str = ""

    def at(self, x: float, y: float) -> str:
        """The elements, moved."""
        return f'<g transform="translate({x:g} {y:g})">{self.body}</g>\n'


def across(drawings: Iterable[Drawing], gap: float = 26) -> Drawing:
    """Drawings side by side, their bottoms on one line."""
    drawings = [each for each in drawings if each.width]
    height = max((each.height for each in drawings), default=0)
    body, x = [], 0.0
    for each in drawings:
        body.append(each.at(x, height - each.height))
        x += each.width + gap
    return Drawing(max(0, x - gap), height, "".join(body))


def down(drawings: Iterable[Drawing], gap: float = 12) -> Drawing:
    """Drawings on top of each other, their left sides on one line."""
    drawings = [each for each in drawings if each.height]
    body, y = [], 0.0
    for each in drawings:
        body.append(each.at(0, y))
        y += each.height + gap
    width = max((each.width for each in drawings), default=0)
    return Drawing(width, max(0, y - gap), "".join(body))


def words(text: str, style: str = "k t") -> Drawing:
    """One line of text."""
    size = {"g": 14, "k": 11}[style[0]]
    width = len(text) * size * 0.62
    body = f'<text class="{style}" x="0" y="{size}">{escape(text)}</text>'
    return Drawing(width, size + 4, body)


# ── a whole picture ─────────────────────────────────────────────────────────


def fragment_svg(fragment: Fragment, values: ArrayLike | None = None) -> str:
    """The picture of one operand: every matrix, every choice of selectors.

    With ``values``, a cell has its value in the place of its name.

    >>> import fragmenta as fm
    >>> picture = fragment_svg(fm.find("mma.m16n8k64.s4.s4").a)
    >>> picture[:5], "A[3, 17]: lane 14, register 0, bits 7:4, a1" in picture
    ('<svg ', True)
    """
    shown = list(grids(fragment, values=values))
    layout = words(str(fragment.layout), "k s")
    head = down([words(_heading(fragment), "g t"), layout], 4)
    panels = _panels(fragment, shown)
    notes = down((words(line, "k s") for line in _legend(fragment, shown)), 2)
    return document(down([head, panels, notes]), _heading(fragment))


def instruction_svg(op: Instruction) -> str:
    """The picture of an instruction: B above D, A beside it, metadata beside A.

    Of selectors only the first choice is drawn.  Tensor memory is drawn by
    :mod:`fragmenta.inspect.view.tensor_memory`.

    >>> import fragmenta as fm
    >>> picture = instruction_svg(fm.find("mma.sp.m16n8k64.s4.s4"))
    >>> "metadata[3, 2]: lane 12, register 0, bits 11:8, e2" in picture
    True
    """
    from fragmenta.reference.isa.instruction import check_holds  # light without it

    check_holds(op, "draw")
    parts = dict(op.fragments)
    head = down([words(str(op), "g t"), words(f"requires {op.requires}", "k s")], 4)
    if not {"A", "C", "D"} <= set(parts) or not op.shape.k:
        body = across(_operand([part]) for part in parts.values())
        return document(down([head, body], 18), str(op))
    result, accumulator = parts.pop("D"), parts.pop("C")
    alike = (result.dtype, result.layout) == (accumulator.dtype, accumulator.layout)
    below = [[accumulator, result]] if alike else [[result], [accumulator]]
    above = [parts[name] for name in ("scale_B", "B") if name in parts]
    least = _columns([*above, *(each[0] for each in below)])
    results = [_operand(each, least) for each in below]
    a = across(_operand([parts[n]]) for n in ("metadata", "scale_A", "A") if n in parts)
    upper = [_operand([part], least) for part in above]
    b = down(upper, 18) if upper else _shared(op)
    lower = max(a.height, results[0].height)
    d = across(results)
    # B is above D and A is beside it; the corner has the layouts, as in the explorer.
    body = Drawing(
        a.width + 34 + max(b.width, d.width),
        b.height + 22 + lower,
        _lines(op, a.width, b.height)
        + b.at(a.width + 34, 0)
        + a.at(0, b.height + 22 + lower - a.height)
        + d.at(a.width + 34, b.height + 22 + lower - d.height),
    )
    notes = down((words(line, "k s") for line in _notes(op)), 2)
    return document(down([head, body, notes], 18), str(op))


def _lines(op: Instruction, width: float, height: float) -> str:
    """The layouts of all operands and what their letters mean, if there is room."""
    longest = max(map(len, op.fragments))
    said = [f"{name:<{longest}}  {e.layout}" for name, e in op.fragments.items()]
    hint = "L lane, R register, E element in it, W warp; the lowest bit first"
    drawn = down([words(line, "k t") for line in said], 3)
    hints = [words(line, "k s") for line in wrap(hint, int(width / 11 / 0.62) or 1)]
    drawn = down([drawn, down(hints, 2)], 8)
    if drawn.width > width or drawn.height > height:
        return ""
    opened = _opened(op, width)
    rest = height - drawn.height - 20
    more = opened.at(0, height - opened.height) if opened.height <= rest else ""
    return drawn.at(0, 0) + more


def _opened(op: Instruction, width: float) -> Drawing:
    """A sparse A as it multiplies, for codes that are only an example."""
    of = op.granularity
    if of is None:
        return Drawing(0, 0)
    a, k = op.fragments["A"], op.shape.k
    rows, chunks = a.shape[0], k // of.chunk
    codes = of.codes(op.values.get("sp") != "sp")
    wide, high, left = min(18.0, (width - 40) // k), 13, 28
    parts = []
    for row in range(rows):
        y = 40 + high * row
        parts.append(f'<text class="r s" x="{left - 5}" y="{y + 10}">{row}</text>')
        for chunk in range(chunks):
            code = codes[(row + 2 * chunk) % len(codes)]
            for index, place in enumerate(of.positions(code)):
                lane = a.where(row, of.kept * chunk + index).lane
                x = left + wide * (of.chunk * chunk + place)
                box = f'x="{x:g}" y="{y}" width="{wide:g}" height="{high}"'
                parts.append(f'<rect class="l{lane % 32} h" {box}/>')
    edges = [left + wide * of.chunk * each for each in range(chunks + 1)]
    parts += [f'<path class="h" d="M{x:g} 40v{high * rows}"/>' for x in edges]
    parts += [
        f'<text class="m s" x="{x + wide / 2:g}" y="34">{of.chunk * number}</text>'
        for number, x in enumerate(edges[:-1])
    ]
    title = f"A: {op.types['a']} {rows} x {k} as it multiplies, example codes"
    grid = Drawing(edges[-1] + 4, 44 + high * rows, "".join(parts))
    return Drawing(grid.width, grid.height, words(title).at(0, 0) + grid.body)


def _notes(op: Instruction) -> list[str]:
    """Notes below the picture of an instruction."""
    lines = ["T13 is lane 13, a5 its element 5; a frame is one register"]
    for part in op.fragments.values():
        for name in part.selectors:
            last = part.layout.sizes[name] - 1
            lines.append(
                f"{part.name} is drawn for {name} 0, which may be up to {last}"
            )
    if op.observed:
        lines.append(f"observed on {op.observed}; the manual leaves it open")
    return lines


def _shared(op: Instruction) -> Drawing:
    """B of a warpgroup, which no register holds."""
    text = [f"B: {op.types['b']} {op.shape.k} x {op.shape.n}", "in shared memory,"]
    lines = [words(text[0], "g t"), words(text[1]), words("through the descriptor b")]
    inner = down(lines, 4)
    width, height = inner.width + 24, inner.height + 24
    frame = f'<rect class="o" width="{width:g}" height="{height:g}" rx="6" '
    return Drawing(width, height, f'{frame}stroke-dasharray="5 4"/>{inner.at(12, 10)}')


def document(drawing: Drawing, title: str, style: str = "") -> str:
    """A drawing as a file of its own; ``style`` are further rules."""
    width, height = (round(x + 2 * _MARGIN) for x in (drawing.width, drawing.height))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fm" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" role="img">\n'
        f"<title>{escape(title)}</title>\n"
        f"<style>{palette.css('svg.fm')}{_STYLE}{style}</style>\n"
        f'<rect class="p" width="{width}" height="{height}"/>\n'
        f"{drawing.at(_MARGIN, _MARGIN)}</svg>\n"
    )


def _heading(*parts: Fragment) -> str:
    size = " x ".join(map(str, parts[0].shape))
    names = " and ".join(part.name for part in parts)
    stored = " as stored" if parts[0].stored > 1 else ""
    return f"{names}: {parts[0].dtype} {size}{stored}"


@dataclass(frozen=True)
class _Least:
    """The least width of columns, so that those of two operands are aligned."""

    width: float = 0
    left: float = 0


_FREE = _Least()


def _drawn(part: Fragment) -> list[Grid]:
    """The grids of an operand in the picture of its instruction."""
    return list(grids(part, most=32, first=True))


def _columns(parts: Sequence[Fragment]) -> _Least:
    """The common width of the columns of B and D, which are aligned."""
    shown = [grid for part in parts for grid in _drawn(part)]
    return _Least(max(_cell(each)[0] for each in shown), max(map(_left, shown)))


def _operand(parts: Sequence[Fragment], least: _Least = _FREE) -> Drawing:
    """An operand in the picture of its instruction."""
    body = _panels(parts[0], _drawn(parts[0]), least)
    return down([words(_heading(*parts), "g t"), body], 6)


def _panels(fragment: Fragment, shown: list[Grid], least: _Least = _FREE) -> Drawing:
    """All grids: matrices and last selectors in a row, first selectors below."""
    selectors = [name for name in fragment.selectors if name in shown[0].at]
    if len(shown) == 4 and not selectors:
        columns = 2
    else:
        columns = fragment.layout.sizes[selectors[-1]] if selectors else len(shown)
    panels = [panel(grid, least) for grid in shown]
    rows = [panels[at : at + columns] for at in range(0, len(panels), columns)]
    return down(map(across, rows), 18)


def _legend(fragment: Fragment, shown: list[Grid]) -> list[str]:
    """What cells and frames mean, by the example of the last lane."""
    grid = shown[-1]
    row, col = (size - 1 for size in fragment.shape[-2:])
    if grid.cells:
        return _legend_of_cells(fragment, grid, row, col)
    described = grid.describe(row, col).partition(": ")[2]
    place, _, label = described.rpartition(", ")
    lines = [f"T{grid.lane[row][col]} {label} is {place}; a frame is one register"]
    if fragment.layout.data[-1] == "chunk":
        lines.append("small figures are bits of the word: idx1 in the upper two of")
        lines[-1] += " a code, idx0 in the lower two"
    if fragment.stored > 1:
        lines.append("metadata says which columns of its chunk the stored ones are")
    if "copy" in fragment.layout.free:
        lines.append("numbers after a comma are copies in the same lane")
    if fragment.observed:
        lines.append(f"observed on {fragment.observed}; the manual leaves it open")
    for name, lines_shown in (("rows", grid.rows), ("columns", grid.cols)):
        gaps = [slot for slot in lines_shown if slot.hidden]
        if gaps and not gaps[0].inside:
            first, last = gaps[0].index, gaps[0].index + gaps[0].hidden - 1
            lines.append(f"{name} {first} to {last} repeat the pattern")
        elif gaps:
            lines.append(f"⋯ leaves out {name} of the same register")
    return lines


def _legend_of_cells(fragment: Fragment, grid: Grid, row: int, col: int) -> list[str]:
    """What cells and frames mean in tensor memory."""
    place = grid.describe(row, col).partition(": ")[2].partition(";")[0]
    place, _, warp = place.rpartition(", warp ")
    name = f"{grid.head(row, col)} {grid.label(row, col)}"
    lines = [f"{name} is {place}; a frame is one cell of tensor memory"]
    if "copy" in fragment.layout.free:
        lines.append("there are copies in other lanes; point at an element to see them")
    else:
        lines.append(f"warp {warp} of a warpgroup reaches it by tcgen05.ld")
    if "base" in fragment.layout.free:
        lines.append("at an address with lane 16, every lane is 16 higher")
    if fragment.layout.data[-1] == "chunk":
        lines.append("small figures are bits of the cell: idx1 in the upper two of")
        lines[-1] += " a code, idx0 in the lower two"
    if fragment.stored > 1:
        lines.append("metadata says which columns of its chunk the stored ones are")
    if any(slot.hidden for slot in (*grid.rows, *grid.cols)):
        lines.append("⋮ and ⋯ leave out lanes and columns that go on in the same way")
    return lines


# ── one grid ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Track:
    """The lines along one direction: where each is, and how wide."""

    slots: tuple[GridLine, ...]
    starts: tuple[float, ...]
    sizes: tuple[float, ...]

    @classmethod
    def lay(cls, slots: tuple[GridLine, ...], size: float) -> _Track:
        sizes = tuple(_GAP if s.hidden and not s.inside else size for s in slots)
        starts, at = [], 0.0
        for each in sizes:
            starts.append(at)
            at += each
        return cls(slots, tuple(starts), sizes)

    @property
    def end(self) -> float:
        return self.starts[-1] + self.sizes[-1]

    def runs(self, length: int) -> Iterator[tuple[range, float, float]]:
        """Slots in one register, or one block of ``length``: which, and where."""

        def block(number: int) -> tuple[bool, int]:
            slot = self.slots[number]
            return bool(slot.hidden) and not slot.inside, slot.index // length

        for (gap, _), found in groupby(range(len(self.slots)), block):
            numbers = list(found)
            if not gap:
                first, last = numbers[0], numbers[-1]
                start = self.starts[first]
                size = self.starts[last] + self.sizes[last] - start
                yield range(first, last + 1), start, size


def panel(grid: Grid, least: _Least = _FREE) -> Drawing:
    """One grid with its axes, and the names of chunks, warps and selectors."""
    width, height = _cell(grid)
    cols = _Track.lay(grid.cols, max(width, least.width))
    rows = _Track.lay(grid.rows, height)
    part = grid.fragment
    left = max(_left(grid), least.left)
    top = 30 + (20 if grid.at else 0) + (18 if part.stored > 1 else 0)
    body = [_title(grid), *_axes(grid, rows, cols, left, top)]
    if part.stored > 1:
        body += _chunks(grid, cols, left, top - 34)
    if grid.cells:
        body += _reaching(grid, rows, top)
    elif part.lanes > 32:
        body += _warps(rows, top)
    cells = "\n".join(_cells(grid, rows, cols))
    body.append(Drawing(0, 0, cells).at(left, top))
    needed = len(grid.title()) * 7.0
    return Drawing(max(left + cols.end, needed) + 2, top + rows.end + 2, "".join(body))


def _left(grid: Grid) -> float:
    """Room for the numbers of rows, and for the names of warps."""
    return 30 + (24 if grid.fragment.lanes > 32 else 0)


def _cell(grid: Grid) -> tuple[float, float]:
    """Width and height of a cell; it is smaller where elements share a lane's name."""
    label = grid.widest * _LETTER + 5
    head = len(grid.head(-1, -1)) * _LETTER + 5
    if grid.fragment.layout.data[-1] == "chunk":
        return 30, 28
    if grid.across > 1:
        across = min(grid.across, len(grid.cols))
        return max(label, 28 / grid.across, head / across), 28
    if grid.down > 1:
        return label + _beside(grid), 14
    return max(label, 26, head + 4 if grid.cells else 0), 28


def _beside(grid: Grid) -> float:
    """The width of a frame's name where elements stand beside it."""
    return max(24, len(grid.head(-1, -1)) * _LETTER + 6)


def _title(grid: Grid) -> str:
    title = escape(grid.title())
    return f'<text class="k t" x="0" y="11">{title}</text>' if title else ""


def _axes(
    grid: Grid, rows: _Track, cols: _Track, left: float, top: float
) -> Iterator[str]:
    """The numbers of rows and columns, and what they count."""
    row, col = map(escape, grid.fragment.layout.data[-2:])
    yield f'<text class="r s" x="{left - 5}" y="{top - 5}">{row}</text>'
    yield f'<text class="s" font-size="9" x="{left}" y="{top - 18}">{col} →</text>'
    yield '<g class="r s">'
    for slot, y, size in zip(rows.slots, rows.starts, rows.sizes, strict=True):
        text = "⋮" if slot.hidden else slot.index
        yield f'<text x="{left - 5}" y="{y + top + size / 2 + 3:g}">{text}</text>'
    yield '</g><g class="m s">'
    for slot, x, size in zip(cols.slots, cols.starts, cols.sizes, strict=True):
        text = "⋯" if slot.hidden else slot.index
        yield f'<text x="{x + left + size / 2:g}" y="{top - 5}">{text}</text>'
    yield "</g>\n"


def _chunks(grid: Grid, cols: _Track, left: float, y: float) -> Iterator[str]:
    """The chunks of a sparse A, each with the columns it is stored from."""
    from fragmenta.reference.registers.granularity import granularity

    part = grid.fragment
    kind = "mxf4" if part.container.bits == 4 else "f8f6f4"
    rule = granularity(part.dtype, kind)
    for numbers, x, size in cols.runs(rule.kept):
        chunk = cols.slots[numbers[0]].index // rule.kept
        first, last = chunk * rule.chunk, (chunk + 1) * rule.chunk - 1
        text = f"k {first}–{last}"
        text = text if len(text) * 4.4 < size else f"{first}–{last}"
        text = text if len(text) * 4.4 < size else f"{first}–"
        title = f"chunk {chunk}: {rule.kept} of columns {first} to {last} are stored"
        yield (
            f'<g><title>{title}</title><rect class="b" x="{x + left + 0.8:g}" '
            f'y="{y - 12:g}" width="{size - 1.6:g}" height="14" rx="3"/>'
            f'<text class="u t" x="{x + left + size / 2:g}" y="{y - 2.5:g}">'
            f"{text}</text></g>"
        )


def _warps(rows: _Track, top: float) -> Iterator[str]:
    """The warps of a warpgroup, 16 rows each."""
    for numbers, y, size in rows.runs(16):
        warp = rows.slots[numbers[0]].index // 16
        yield _band(f"warp {warp}", y + top, size)


def _reaching(grid: Grid, rows: _Track, top: float) -> Iterator[str]:
    """The warps that reach the rows, and the CTA of a pair."""
    shown = [slot.index for slot in grid.cols if not slot.hidden]
    pair = isinstance(grid.fragment, TensorFragment) and grid.fragment.pair

    def band(number: int) -> str:
        row = rows.slots[number].index
        lanes = {grid.lane[row][col] // 32 for col in shown}
        warps = ", ".join(map(str, sorted(lanes)))
        cta = f"CTA {grid.warp[row][shown[0]]}, " if pair else ""
        return f"{cta}warp{'s' * (len(lanes) > 1)} {warps}"

    found = [(text, list(at)) for text, at in groupby(range(len(rows.slots)), band)]
    if grid.fragment.shape[-2] < 32 or "copy" in grid.fragment.layout.free:
        return  # all warps reach copies, or the rows are no lanes
    for text, numbers in found:
        y = rows.starts[numbers[0]]
        size = rows.starts[numbers[-1]] + rows.sizes[numbers[-1]] - y
        yield _band(text, y + top, size)


def _band(text: str, y: float, size: float) -> str:
    return (
        f'<rect class="b" x="0" y="{y + 1:g}" width="16" height="{size - 2:g}" rx="3"/>'
        f'<text class="m t" transform="translate(11 {y + size / 2:g}) rotate(-90)">'
        f"{text}</text>"
    )


def _cells(grid: Grid, rows: _Track, cols: _Track) -> Iterator[str]:
    """The registers in their lanes' colours, then their elements."""
    fills: list[str] = []
    cells: list[str] = []
    elements: list[str] = []
    bits: list[str] = []
    frames: list[str] = []
    lanes: list[str] = []
    for row_numbers, y, height in rows.runs(grid.down):
        for col_numbers, x, width in cols.runs(grid.across):
            row, col = rows.slots[row_numbers[0]], cols.slots[col_numbers[0]]
            lane = grid.lane[row.index][col.index]
            box = f'x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"/>'
            # A lane of tensor memory has the colour of the lane that loads it.
            fills.append(f'<rect class="l{lane % 32}" {box}')
            frames.append(f"<rect {box}")
            head = grid.head(row.index, col.index)
            middle = x + _beside(grid) / 2, y + height / 2 + 3
            at = middle if grid.down > 1 else (x + width / 2, y + 10)
            lanes.append(f'<text x="{at[0]:g}" y="{at[1]:g}">{head}</text>')
            for r in row_numbers:
                for c in col_numbers:
                    cells += _element(grid, rows, cols, (r, c), elements, bits)
    yield "".join(fills)
    lined = "h" if grid.across * grid.down > 1 else "p"
    yield f'<g class="{lined}" fill-opacity="0">{"".join(cells)}</g>'
    yield f'<g class="m t">{"".join(elements)}</g>'
    yield f'<g class="u t">{"".join(bits)}</g>'
    yield f'<g class="o" pointer-events="none">{"".join(frames)}</g>'
    yield f'<g class="n t">{"".join(lanes)}</g>'
    yield from _gaps(rows, cols)


def _element(
    grid: Grid,
    rows: _Track,
    cols: _Track,
    at: tuple[int, int],
    elements: list[str],
    bits: list[str],
) -> Iterator[str]:
    """One element: a cell with a tooltip, its name, and its bits where needed."""
    (r, c), part = at, grid.fragment
    row, col = rows.slots[r], cols.slots[c]
    x, y, width, height = cols.starts[c], rows.starts[r], cols.sizes[c], rows.sizes[r]
    # Beside or below the name of the lane that the elements share.
    if grid.down > 1:
        beside = _beside(grid)
        x, width, base = x + beside - 1, width - beside + 1, y + 10.5
    elif grid.across == 1:
        base = y + 23
    elif part.layout.data[-1] == "chunk":
        y, height, base = y + 11, height - 11, y + 18.5
    else:
        y, height, base = y + 13, height - 13, y + 23
    middle = x + width / 2
    if row.hidden or col.hidden:
        text = "⋮" if row.hidden else "⋯"
        elements.append(f'<text x="{middle:g}" y="{base:g}">{text}</text>')
        return
    yield (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}">'
        f"<title>{escape(grid.describe(row.index, col.index))}</title></rect>"
    )
    label = escape(grid.label(row.index, col.index))
    elements.append(f'<text x="{middle:g}" y="{base:g}">{label}</text>')
    if part.layout.data[-1] == "chunk":
        low, high = grid.bits(row.index, col.index)
        bits.append(f'<text x="{middle:g}" y="{base + 7.5:g}">{high}:{low}</text>')


def _gaps(rows: _Track, cols: _Track) -> Iterator[str]:
    """Dots where whole registers or warps are left out."""
    yield '<g class="m s">'
    for number, slot in enumerate(cols.slots):
        if slot.hidden and not slot.inside:
            x = cols.starts[number] + cols.sizes[number] / 2
            for start, size in zip(rows.starts, rows.sizes, strict=True):
                yield f'<text x="{x:g}" y="{start + size / 2 + 3:g}">⋯</text>'
    for number, slot in enumerate(rows.slots):
        if slot.hidden and not slot.inside:
            y = rows.starts[number] + rows.sizes[number] / 2 + 3
            for start, size in zip(cols.starts, cols.sizes, strict=True):
                yield f'<text x="{start + size / 2:g}" y="{y:g}">⋮</text>'
    yield "</g>"


# ── other formats ───────────────────────────────────────────────────────────


def convert(svg: str, format: str) -> bytes:
    """The picture as ``svg``, ``png`` or ``pdf``; only SVG needs no library.

    >>> import fragmenta as fm
    >>> convert(fragment_svg(fm.find("mma.m8n8k4.f64").c), "svg")[:4]
    b'<svg'
    """
    if format == "svg":
        return svg.encode()
    if format not in FORMATS:
        raise BadCall(f"a picture is written as {one_of(FORMATS)}; given {format!r}")
    try:
        import cairosvg
    except (ImportError, OSError) as why:  # OSError: the system lacks libcairo
        raise MissingPackage(
            f"{format.upper()} needs CairoSVG: {missing('cairosvg', why)}; "
            "SVG does not need it"
        ) from None
    write = cairosvg.svg2png if format == "png" else cairosvg.svg2pdf
    options = {"scale": 2.0} if format == "png" else {}
    result: bytes = write(bytestring=svg.encode(), **options)
    return result
