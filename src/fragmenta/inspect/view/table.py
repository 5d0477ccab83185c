"""Tables of a fragment: which lane holds which element.

A table by matrix has rows and columns as on paper; each cell is the lane and the
element number of the manual's figures, ``T13:a5``, or the lane and the column of tensor
memory, ``T13:C5``.  A table by lane has one line per lane and register, with the
elements in order of their bits, lowest first.

Both begin as a list of :class:`Sheet`, which every format then writes.
"""

from __future__ import annotations

import csv
import io
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import product
from typing import TYPE_CHECKING

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.inspect.view import places
from fragmenta.inspect.view.places import Record
from fragmenta.reference.registers.tensor_fragment import TensorAddress

if TYPE_CHECKING:
    from fragmenta.reference.registers.fragment import Fragment

VIEWS = ("matrix", "lane")
FORMATS = ("text", "csv", "markdown", "json")


@dataclass(frozen=True)
class Sheet:
    """One grid of cells, with its matrix and selectors."""

    at: Mapping[str, int]
    head: tuple[str, ...]
    body: list[tuple[str, ...]]


def table(
    fragment: Fragment,
    by: str = "matrix",
    format: str = "text",
    width: int = 80,
    address: int | TensorAddress = 0,
) -> str:
    """A fragment as a table; ``width`` is the most columns of text.

    ``address`` is that of an operand in tensor memory.

    >>> import fragmenta as fm
    >>> c = fm.find("mma.m8n8k4.f64").c
    >>> print(table(c, format="csv").splitlines()[1])
    0,T0:c0,T0:c1,T1:c0,T1:c1,T2:c0,T2:c1,T3:c0,T3:c1
    """
    _check("by", by, VIEWS)
    _check("format", format, FORMATS)
    at = TensorAddress.of(address)
    if format == "json":
        return _json(fragment, by, at)
    if by == "matrix":
        sheets = _by_matrix(fragment, at)
        corner = f"{fragment.layout.data[-2]}\\{fragment.layout.data[-1]}"
    else:
        sheets = [_by_lane(fragment, at, whole=format == "csv")]
        corner = ""
    if format == "csv":
        return _csv(sheets)
    if format == "markdown":
        return _markdown(sheets, corner)
    return _text(fragment, at, sheets, corner, width)


def _check(what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        hint = nearest(str(given), allowed)
        raise BadCall(f"{what}={given!r} is not one of {one_of(allowed)}{hint}")


# ── runs of neighbours ──────────────────────────────────────────────────────


@dataclass
class ElementSpan:
    """Neighbouring elements, lowest bits first, in one register of one lane.

    In tensor memory a span continues in the next column if the elements do.
    """

    at: dict[str, int]
    """Where it begins: warp, lane and register, or CTA, lane and column."""
    until: int
    """The last register or column."""
    low: int
    high: int
    count: int
    first: dict[str, int]
    last: dict[str, int] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it is, in words, such as ``lane 5, columns 0..7``."""
        *outer, (axis, start) = self.at.items()
        inner = f"{axis} {start}"
        if self.until > start:
            inner = f"{axis}s {start}..{self.until}"
        return ", ".join([*([places.in_words(dict(outer))] if outer else []), inner])

    @property
    def record(self) -> dict[str, int | list[int]]:
        """Its place, for JSON."""
        *_, (axis, start) = self.at.items()
        many = {axis: [start, self.until]} if self.until > start else {}
        return {**self.at, **many, "bits": [self.low, self.high]}


def spans(
    fragment: Fragment, records: Iterable[Record], join: bool = False
) -> Iterator[ElementSpan]:
    """Join records of :func:`places.records` that count up one coordinate.

    ``join`` lets a span in tensor memory continue in the next column.

    >>> import fragmenta as fm
    >>> b = fm.find("mma.m16n8k64.s4.s4").b
    >>> span = next(spans(b, b.rows()))
    >>> print(name(b, span), bits(b, span))
    B[0..7, 0] bits 31:0
    """
    names = list(places.coordinates(fragment))
    axes = places.axes(fragment)
    join = join and axes[-1] == "column"
    span: ElementSpan | None = None
    for record in records:
        element = {each: record[each] for each in names}
        place = {axis: record[axis] for axis in axes}
        if span is not None and _continues(fragment, span, record, element, join):
            span.last, span.until = element, record[axes[-1]]
            span.high = max(span.high, record["high"])
            span.count += 1
            continue
        if span is not None:
            yield span
        low, high = record["low"], record["high"]
        span = ElementSpan(place, place[axes[-1]], low, high, 1, element, element)
    if span is not None:
        yield span


def _continues(
    fragment: Fragment,
    span: ElementSpan,
    record: Record,
    element: dict[str, int],
    join: bool,
) -> bool:
    *outer, inner = span.at
    if any(record[axis] != span.at[axis] for axis in outer):
        return False
    size = fragment.container.bits
    slot = record["low"] // size
    if record[inner] != span.until:
        full = span.count % fragment.elements == 0 and slot == 0
        if not (join and full and record[inner] == span.until + 1):
            return False
    elif slot != span.low // size + span.count % fragment.elements:
        return False
    moved = [n for n, value in element.items() if value != span.last[n]]
    running = [n for n, value in span.last.items() if value != span.first[n]]
    if len(moved) != 1 or running not in ([], moved):
        return False
    return element[moved[0]] == span.last[moved[0]] + 1


def name(fragment: Fragment, span: ElementSpan) -> str:
    """The elements of a span, such as ``A[3, 8..15] selector 0``."""

    def extent(coordinate: str) -> str:
        first, last = span.first[coordinate], span.last[coordinate]
        return str(first) if first == last else f"{first}..{last}"

    data = fragment.layout.data
    inside = ", ".join(extent(each) for each in data)
    free = "".join(f" {each} {extent(each)}" for each in span.first if each not in data)
    return f"{fragment.name}[{inside}]{free}"


def bits(fragment: Fragment, span: ElementSpan) -> str:
    """Where in the register a span is, such as ``bits 31:0``."""
    slot = fragment.container
    count = min(span.count, fragment.elements)
    if slot.bits == fragment.dtype.bits or count == 1:
        whole = f"bits {span.high}:{span.low}"
        return whole if span.high > span.low else f"bit {span.low}"
    top, first = slot.shift + fragment.dtype.bits - 1, span.low // slot.bits
    inside = f"bits {top}:{slot.shift}"
    return f"{inside} of bytes {first + count - 1}:{first}"


# ── by matrix ───────────────────────────────────────────────────────────────


def _by_matrix(fragment: Fragment, at: TensorAddress) -> list[Sheet]:
    """One sheet for each matrix and each choice of the selectors."""
    *outer, row, col = fragment.layout.data
    sizes = places.coordinates(fragment)
    keys = [*outer, *fragment.selectors]
    cells: defaultdict[tuple[int, ...], list[Record]] = defaultdict(list)
    for record in places.records(fragment, at):
        key = tuple(record[key] for key in (*keys, row, col))
        cells[key].append(record)
    head = ("", *map(str, range(sizes[col])))
    sheets = []
    for chosen in product(*(range(sizes[key]) for key in keys)):
        body = [
            (
                str(r),
                *(
                    places.label(fragment, cells[*chosen, r, c])
                    for c in range(sizes[col])
                ),
            )
            for r in range(sizes[row])
        ]
        selected = {k: v for k, v in zip(keys, chosen, strict=True) if sizes[k] > 1}
        sheets.append(Sheet(selected, head, body))
    return sheets


# ── by lane ─────────────────────────────────────────────────────────────────


def _by_lane(fragment: Fragment, at: TensorAddress, whole: bool) -> Sheet:
    """One row per lane and register; ``whole`` gives each element a cell.

    In tensor memory, elements that continue in the next column share a row.
    """
    named = places.axes(fragment)
    if named[-1] == "column" and not whole:
        return _by_columns(fragment, at)
    registers: defaultdict[tuple[int, ...], list[Record]] = defaultdict(list)
    for record in places.records(fragment, at):
        registers[tuple(record[axis] for axis in named)].append(record)
    if whole:
        first = next(iter(registers.values()))
        held = [bits(fragment, span) for r in first for span in spans(fragment, [r])]
    else:
        held = ["elements, lowest bits first"]
    body = [
        (*map(str, place), *_held(fragment, records, whole))
        for place, records in registers.items()
    ]
    return Sheet({}, (*named, *held), body)


def _by_columns(fragment: Fragment, at: TensorAddress) -> Sheet:
    *outer, _ = places.axes(fragment)
    body = []
    for span in spans(fragment, places.records(fragment, at), join=True):
        start, end = span.at["column"], span.until
        columns = str(start) if start == end else f"{start}..{end}"
        held = f"{bits(fragment, span)}  {name(fragment, span)}"
        body.append((*(str(span.at[axis]) for axis in outer), columns, held))
    return Sheet({}, (*outer, "columns", "elements"), body)


def _held(fragment: Fragment, records: list[Record], whole: bool) -> list[str]:
    if not whole:
        return ["  ".join(name(fragment, span) for span in spans(fragment, records))]
    return [name(fragment, next(spans(fragment, [record]))) for record in records]


# ── formats ─────────────────────────────────────────────────────────────────


def _csv(sheets: list[Sheet]) -> str:
    """All sheets as one; the first columns say which sheet a line is of."""
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


def _text(
    fragment: Fragment, at: TensorAddress, sheets: list[Sheet], corner: str, width: int
) -> str:
    size = "x".join(map(str, fragment.shape))
    lines = [f"{fragment.name}  {fragment.dtype} {size}"]
    lines += _legend(fragment, at, corner)
    for sheet in sheets:
        write = _blocks(sheet, corner, width) if corner else _lines(sheet, width)
        lines += ["", *_title(sheet), *write]
    return "\n".join(lines)


def _legend(fragment: Fragment, at: TensorAddress, corner: str) -> list[str]:
    """What a cell means, by the example of the last lane."""
    if not corner:
        return []
    last = list(places.records(fragment, at))[-1]
    *outer, inner = places.axes(fragment)
    place = places.in_words({axis: last[axis] for axis in outer})
    where = f"{inner} {last[inner]}"
    if fragment.elements > 1:
        where += f", bits {last['high']}:{last['low']}"
    cell = places.label(fragment, [last])
    if inner == "column":
        return [f"{cell} is {place}, {where}"]
    i = places.number(fragment, last["register"], last["low"])
    return [f"{cell} is {place}, element {i} ({where})"]


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


def _json(fragment: Fragment, by: str, at: TensorAddress) -> str:
    """An object with one element, or one register, per line of text."""
    about = {
        "fragment": fragment.name,
        "type": fragment.dtype.name,
        "shape": fragment.shape,
        "coordinates": fragment.layout.data,
        "layout": str(fragment.layout),
    }
    records = places.records(fragment, at)
    by_matrix = by == "matrix"
    entries = (_json_elements if by_matrix else _json_registers)(fragment, records)
    listed = ",\n  ".join(json.dumps(entry) for entry in entries)
    head = json.dumps(about)[:-1]
    key = "elements" if by_matrix else f"{places.axes(fragment)[-1]}s"
    return f'{head},\n "{key}": [\n  {listed}\n]}}'


def _json_elements(
    fragment: Fragment, records: Iterable[Record]
) -> list[dict[str, object]]:
    data = fragment.layout.data
    found: dict[tuple[int, ...], list[dict[str, object]]] = {}
    skipped = {*data, "low", "high"}
    for record in records:
        place: dict[str, object] = {k: v for k, v in record.items() if k not in skipped}
        place["bits"] = [record["low"], record["high"]]
        if "register" in record:
            place["i"] = places.number(fragment, record["register"], record["low"])
        found.setdefault(tuple(record[each] for each in data), []).append(place)
    return [
        {**dict(zip(data, at, strict=True)), "places": places_}
        for at, places_ in sorted(found.items())
    ]


def _json_registers(
    fragment: Fragment, records: Iterable[Record]
) -> list[dict[str, object]]:
    found: dict[tuple[int, ...], list[dict[str, object]]] = {}
    axes = places.axes(fragment)
    for record in records:
        at = tuple(record.pop(axis) for axis in axes)
        extent = [record.pop("low"), record.pop("high")]
        found.setdefault(at, []).append({"bits": extent, **record})
    return [
        {**dict(zip(axes, at, strict=True)), "elements": elements}
        for at, elements in found.items()
    ]
