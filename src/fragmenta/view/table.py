"""Which lane holds which element, written out?

A fragment by matrix: rows and columns as on paper, each cell the lane and the
element number of the manual's figures, ``T13:a5``.  A fragment by lane: one
line per lane and register, its elements with the lowest bits first.

Both begin as a list of :class:`Sheet`, which every format then writes.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

from fragmenta.errors import Error, nearest, one_of

if TYPE_CHECKING:
    from fragmenta.registers.fragment import Fragment

VIEWS = ("matrix", "lane")
FORMATS = ("text", "csv", "markdown", "json")

Record = dict[str, int]


@dataclass(frozen=True)
class Sheet:
    """One grid of cells, and which matrix or selector it is for."""

    at: Mapping[str, int]
    head: tuple[str, ...]
    body: list[tuple[str, ...]]


def table(
    fragment: Fragment, by: str = "matrix", format: str = "text", width: int = 80
) -> str:
    """A fragment as a table; ``width`` is what text may take.

    >>> import fragmenta as fm
    >>> c = fm.find("mma.m8n8k4.f64").c
    >>> print(table(c, format="csv").splitlines()[1])
    0,T0:c0,T0:c1,T1:c0,T1:c1,T2:c0,T2:c1,T3:c0,T3:c1
    """
    _check("by", by, VIEWS)
    _check("format", format, FORMATS)
    if format == "json":
        return _json(fragment, by)
    if by == "matrix":
        sheets = _by_matrix(fragment)
        corner = f"{fragment.layout.data[-2]}\\{fragment.layout.data[-1]}"
    else:
        sheets = [_by_lane(fragment, whole=format == "csv")]
        corner = ""
    if format == "csv":
        return _csv(sheets)
    if format == "markdown":
        return _markdown(sheets, corner)
    return _text(fragment, sheets, corner, width)


def _check(what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        hint = nearest(str(given), allowed)
        raise Error(f"{what}={given!r} is not one of {one_of(allowed)}{hint}")


# ── runs of neighbours ──────────────────────────────────────────────────────


@dataclass
class Span:
    """Neighbouring elements, lowest bits first, in one register of one lane."""

    warp: int | None
    lane: int
    register: int
    low: int
    high: int
    count: int
    first: dict[str, int]
    last: dict[str, int] = field(default_factory=dict)

    @property
    def place(self) -> tuple[int | None, int, int]:
        """Warp, lane and register."""
        return self.warp, self.lane, self.register


def spans(fragment: Fragment, records: Iterable[Record]) -> Iterator[Span]:
    """Join records of :meth:`Fragment.rows` that count up one coordinate.

    >>> import fragmenta as fm
    >>> b = fm.find("mma.m16n8k64.s4.s4").b
    >>> span = next(spans(b, b.rows()))
    >>> print(name(b, span), bits(b, span))
    B[0..7, 0] bits 31:0
    """
    names = list(fragment.layout.sizes)
    span: Span | None = None
    for record in records:
        element = {each: record[each] for each in names}
        if span is not None and _continues(fragment, span, record, element):
            span.last, span.high = element, record["high"]
            span.count += 1
            continue
        if span is not None:
            yield span
        place = record.get("warp"), record["lane"], record["register"]
        span = Span(*place, record["low"], record["high"], 1, element, element)
    if span is not None:
        yield span


def _continues(
    fragment: Fragment, span: Span, record: Record, element: dict[str, int]
) -> bool:
    if span.place != (record.get("warp"), record["lane"], record["register"]):
        return False
    if record["low"] != span.low + span.count * fragment.container.bits:
        return False
    moved = [n for n, value in element.items() if value != span.last[n]]
    running = [n for n, value in span.last.items() if value != span.first[n]]
    if len(moved) != 1 or running not in ([], moved):
        return False
    return element[moved[0]] == span.last[moved[0]] + 1


def name(fragment: Fragment, span: Span) -> str:
    """The elements of a span, such as ``A[3, 8..15] selector 0``."""

    def extent(coordinate: str) -> str:
        first, last = span.first[coordinate], span.last[coordinate]
        return str(first) if first == last else f"{first}..{last}"

    inside = ", ".join(extent(each) for each in fragment.layout.data)
    free = "".join(f" {each} {extent(each)}" for each in fragment.layout.free)
    return f"{fragment.name}[{inside}]{free}"


def bits(fragment: Fragment, span: Span) -> str:
    """Where in the register a span is, such as ``bits 31:0``."""
    slot = fragment.container
    if slot.bits == fragment.dtype.bits or span.count == 1:
        whole = f"bits {span.high}:{span.low}"
        return whole if span.high > span.low else f"bit {span.low}"
    top, first = slot.shift + fragment.dtype.bits - 1, span.low // slot.bits
    inside = f"bits {top}:{slot.shift}"
    return f"{inside} of bytes {first + span.count - 1}:{first}"


def number(fragment: Fragment, register: int, low: int) -> int:
    """The index i of an element in its lane, as the manual counts."""
    return register * fragment.elements + low // fragment.container.bits


# ── by matrix ───────────────────────────────────────────────────────────────


def _by_matrix(fragment: Fragment) -> list[Sheet]:
    """One sheet for each matrix and each choice of the selectors."""
    *outer, row, col = fragment.layout.data
    sizes = fragment.layout.sizes
    keys = [*outer, *fragment.selectors]
    cells: defaultdict[tuple[int, ...], list[Record]] = defaultdict(list)
    for record in fragment.rows():
        at = tuple(record[key] for key in (*keys, row, col))
        cells[at].append(record)
    head = ("", *map(str, range(sizes[col])))
    sheets = []
    for at in product(*(range(sizes[key]) for key in keys)):
        body = [
            (str(r), *(_cell(fragment, cells[*at, r, c]) for c in range(sizes[col])))
            for r in range(sizes[row])
        ]
        told = {k: v for k, v in zip(keys, at, strict=True) if sizes[k] > 1}
        sheets.append(Sheet(told, head, body))
    return sheets


def _cell(fragment: Fragment, records: list[Record]) -> str:
    """``T13:a5``; copies in the same lane after a comma, in others after a /."""
    lanes: defaultdict[str, list[str]] = defaultdict(list)
    for record in records:
        i = number(fragment, record["register"], record["low"])
        lanes[_lane(record)].append(f"{fragment.letter}{i}")
    return "/".join(f"{lane}:{','.join(held)}" for lane, held in lanes.items())


def _lane(record: Record) -> str:
    warp = f"W{record['warp']}." if "warp" in record else ""
    return f"{warp}T{record['lane']}"


# ── by lane ─────────────────────────────────────────────────────────────────


def _by_lane(fragment: Fragment, whole: bool) -> Sheet:
    """One row per lane and register; ``whole`` gives each element a cell."""
    registers: defaultdict[tuple[int, ...], list[Record]] = defaultdict(list)
    named = _places(fragment)
    for record in fragment.rows():
        registers[tuple(record[axis] for axis in named)].append(record)
    if whole:
        first = next(iter(registers.values()))
        held = [bits(fragment, span) for r in first for span in spans(fragment, [r])]
    else:
        held = ["elements, lowest bits first"]
    body = [
        (*map(str, at), *_held(fragment, records, whole))
        for at, records in registers.items()
    ]
    return Sheet({}, (*named, *held), body)


def _places(fragment: Fragment) -> list[str]:
    return (["warp"] if fragment.lanes > 32 else []) + ["lane", "register"]


def _held(fragment: Fragment, records: list[Record], whole: bool) -> list[str]:
    if not whole:
        return ["  ".join(name(fragment, span) for span in spans(fragment, records))]
    return [name(fragment, next(spans(fragment, [record]))) for record in records]


# ── formats ─────────────────────────────────────────────────────────────────


def _csv(sheets: list[Sheet]) -> str:
    """All sheets as one; what tells them apart is in the first columns."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    keys = tuple(sheets[0].at)
    corner = sheets[0].head[0] or "row"
    writer.writerow((*keys, corner, *sheets[0].head[1:]))
    for sheet in sheets:
        writer.writerows((*sheet.at.values(), *row) for row in sheet.body)
    return out.getvalue().rstrip("\n")


def _markdown(sheets: list[Sheet], corner: str) -> str:
    parts = []
    for sheet in sheets:
        rows = [(sheet.head[0] or corner, *sheet.head[1:]), *sheet.body]
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|" + (" ---: |" if corner else " --- |") * len(sheet.head))
        parts.append("\n".join([*_title(sheet, "**", "**\n"), *lines]))
    return "\n\n".join(parts)


def _title(sheet: Sheet, before: str = "", after: str = "") -> list[str]:
    text = ", ".join(f"{key} {value}" for key, value in sheet.at.items())
    return [f"{before}{text}{after}"] if text else []


def _text(fragment: Fragment, sheets: list[Sheet], corner: str, width: int) -> str:
    size = "x".join(map(str, fragment.shape))
    lines = [f"{fragment.name}  {fragment.dtype} {size}", *_legend(fragment, corner)]
    for sheet in sheets:
        write = _blocks(sheet, corner, width) if corner else _lines(sheet, width)
        lines += ["", *_title(sheet), *write]
    return "\n".join(lines)


def _legend(fragment: Fragment, corner: str) -> list[str]:
    """What a cell means, by the example of the last lane."""
    if not corner:
        return []
    last = list(fragment.rows())[-1]
    i = number(fragment, last["register"], last["low"])
    warp = f"warp {last['warp']}, " if "warp" in last else ""
    cell = f"{_lane(last)}:{fragment.letter}{i}"
    place = f"register {last['register']}"
    if fragment.elements > 1:
        place += f", bits {last['high']}:{last['low']}"
    return [f"{cell} is {warp}lane {last['lane']}, element {i} ({place})"]


def _blocks(sheet: Sheet, corner: str, width: int) -> list[str]:
    """The grid cut into blocks of columns that fit."""
    label = max(len(corner), len(sheet.body[-1][0]))
    cell = 1 + max(len(text) for row in (sheet.head, *sheet.body) for text in row[1:])
    columns = len(sheet.head) - 1
    fit = max(1, (width - label) // cell)
    if fit < columns:
        fit = 1 << fit.bit_length() - 1  # neighbours in a register stay together
    lines = []
    for start in range(1, columns + 1, fit):
        if start > 1:
            lines.append("")
        for row in ((corner, *sheet.head[1:]), *sheet.body):
            cells = "".join(f"{text:>{cell}}" for text in row[start : start + fit])
            lines.append(f"{row[0]:>{label}}{cells}")
    return lines


def _lines(sheet: Sheet, width: int) -> list[str]:
    """Right-aligned places, then the elements, wrapped under themselves."""
    places = sheet.head[:-1]
    lines = ["  ".join(sheet.head)]
    indent = sum(len(place) + 2 for place in places)
    for row in sheet.body:
        left = "".join(f"{t:>{len(p)}}  " for t, p in zip(row, places, strict=False))
        wrapped = _wrap(row[-1], width - indent)
        lines.append(left + wrapped[0])
        lines += [" " * indent + more for more in wrapped[1:]]
    return lines


def _wrap(text: str, width: int) -> list[str]:
    """Break between elements only, which two spaces set apart."""
    lines: list[str] = []
    for element in text.split("  "):
        if lines and len(lines[-1]) + 2 + len(element) <= width:
            lines[-1] += f"  {element}"
        else:
            lines.append(element)
    return lines


def _json(fragment: Fragment, by: str) -> str:
    """An object with one element, or one register, per line of text."""
    about = {
        "fragment": fragment.name,
        "type": fragment.dtype.name,
        "shape": fragment.shape,
        "coordinates": fragment.layout.data,
        "layout": str(fragment.layout),
    }
    entries = _json_elements(fragment) if by == "matrix" else _json_registers(fragment)
    listed = ",\n  ".join(json.dumps(entry) for entry in entries)
    head = json.dumps(about)[:-1]
    key = "elements" if by == "matrix" else "registers"
    return f'{head},\n "{key}": [\n  {listed}\n]}}'


def _json_elements(fragment: Fragment) -> list[dict[str, Any]]:
    data = fragment.layout.data
    found: dict[tuple[int, ...], list[dict[str, Any]]] = {}
    for record in fragment.rows():
        place: dict[str, Any] = {k: v for k, v in record.items() if k not in data}
        place["bits"] = [place.pop("low"), place.pop("high")]
        place["i"] = number(fragment, record["register"], record["low"])
        found.setdefault(tuple(record[each] for each in data), []).append(place)
    return [
        {**dict(zip(data, at, strict=True)), "places": places}
        for at, places in sorted(found.items())
    ]


def _json_registers(fragment: Fragment) -> list[dict[str, Any]]:
    found: dict[tuple[int, ...], dict[str, Any]] = {}
    for record in fragment.rows():
        axes = {axis: record.pop(axis) for axis in _places(fragment)}
        line = found.setdefault(tuple(axes.values()), {**axes, "elements": []})
        extent = [record.pop("low"), record.pop("high")]
        line["elements"].append({"bits": extent, **record})
    return list(found.values())
