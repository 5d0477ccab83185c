"""Where is an element, what does a lane hold, what feeds a result?"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated, Any, Literal

import typer

from fragmenta.commands.app import command
from fragmenta.commands.arguments import (
    AsJson,
    InstructionText,
    OperandName,
    find,
    operand,
)
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.errors import Error, ShapeError
from fragmenta.isa.instruction import Instruction, check_multiplies
from fragmenta.registers.fragment import Fragment, Place
from fragmenta.view import table as tables
from fragmenta.view.table import Span

Indices = Annotated[
    list[int],
    typer.Argument(
        metavar="INDEX", help="The row, then the column.", show_default=False
    ),
]

# ── where ───────────────────────────────────────────────────────────────────


@command(
    "where",
    "fragmenta where mma.m16n8k64.s4.s4 A 3 17",
    "fragmenta where mma.sp.m16n8k64.s4.s4 metadata 3 2 --json",
)
def where(
    instruction: InstructionText,
    operand_: OperandName,
    index: Indices,
    as_json: AsJson = False,
) -> None:
    op = find(instruction)
    part = operand(op, operand_)
    _check_stored(op, part, index)
    part.where(*index)  # refuses bad indices before anything is printed
    found = list(_places(part, index))
    if as_json:
        element = dict(zip(part.layout.data, index, strict=True))
        places = [{**selected, **_place(part, place)} for selected, place in found]
        about: dict[str, Any] = {"instruction": str(op), "operand": part.name}
        about |= {"element": element, "places": places}
        if part.stored > 1:
            about["columns"] = _logical(op, element["col"], element["col"])
        emit_json(about)
        return
    name = f"{part.name}[{', '.join(map(str, index))}]"
    lines = [str(op)]
    for selected, place in found:
        chosen = ", ".join(f"{key} {value}" for key, value in selected.items())
        i = tables.number(part, place.register, place.bits[0])
        at = f"{place} ({part.letter}{i})"
        lines.append(f"{name}  {chosen + ': ' if chosen else ''}{at}")
        name = " " * len(name)
    if part.stored > 1:
        lines.append(_stored(op, *index))
    emit("\n".join(lines + _observed(part)))


def _check_stored(op: Instruction, part: Fragment, index: list[int]) -> None:
    """Explain a column that A has, but does not store."""
    if part.stored == 1 or len(index) != 2 or op.granularity is None:
        return
    row, col = index
    rows, stored = part.shape
    kept, chunk = op.granularity.kept, op.granularity.chunk
    if 0 <= row < rows and stored <= col < stored // kept * chunk:
        first = col // chunk * kept
        raise ShapeError(
            f"A is stored {rows}x{stored}, {op.granularity}: column {col} is one of "
            f"stored columns {first}..{first + kept - 1}, if metadata[{row}, "
            f"{col // chunk}] keeps it"
        )


def _places(part: Fragment, index: list[int]) -> Iterator[tuple[dict[str, int], Place]]:
    """Every place of an element, and the selectors under which it counts."""
    sizes = [range(part.layout.sizes[name]) for name in part.selectors]
    for values in product(*sizes):
        selected = dict(zip(part.selectors, values, strict=True))
        first = part.where(*index, **selected)
        for place in (first, *first.copies):
            yield selected, place


def _place(part: Fragment, place: Place) -> dict[str, Any]:
    warp = {} if place.warp is None else {"warp": place.warp}
    return {
        **warp,
        "lane": place.lane,
        "register": place.register,
        "bits": place.bits,
        "i": tables.number(part, place.register, place.bits[0]),
    }


def _logical(op: Instruction, first: int, last: int) -> tuple[int, int]:
    """The columns of A, zeros included, that stored columns are chosen from."""
    assert op.granularity is not None
    kept, chunk = op.granularity.kept, op.granularity.chunk
    return first // kept * chunk, (last // kept + 1) * chunk - 1


def _stored(op: Instruction, row: int, col: int) -> str:
    """What a stored column of a sparse A stands for."""
    low, high = _logical(op, col, col)
    chunk = low // (high - low + 1)
    return (
        f"A is stored {op.granularity}: metadata[{row}, {chunk}] says which of "
        f"columns {low}..{high} this is"
    )


def _observed(part: Fragment) -> list[str]:
    if not part.observed:
        return []
    return [f"(observed on {part.observed}; the manual does not specify it)"]


# ── holds ───────────────────────────────────────────────────────────────────


@command(
    "holds",
    "fragmenta holds mma.m16n8k64.s4.s4 A --lane 13",
    "fragmenta holds wgmma.m64n8k16.f32.f16 D --warp 2 --lane 13 --register 1",
)
def holds(
    instruction: InstructionText,
    operand_: OperandName,
    lane: Annotated[int, typer.Option(help="The lane, 0 to 31.", show_default=False)],
    warp: Annotated[
        int | None, typer.Option(help="The warp of a warpgroup, 0 to 3; by default 0.")
    ] = None,
    register: Annotated[
        int | None, typer.Option(help="Only this register; by default all.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    op = find(instruction)
    part = operand(op, operand_)
    part.holds(lane, register=register, warp=warp)  # refuses what is out of range
    asked = {"lane": lane, "register": register}
    if part.lanes > 32:
        asked["warp"] = warp or 0
    records = [
        record
        for record in part.rows()
        if all(
            record[key] == value for key, value in asked.items() if value is not None
        )
    ]
    if as_json:
        told = [{**each, "bits": [each["low"], each["high"]]} for each in records]
        emit_json({"instruction": str(op), "operand": part.name, "elements": told})
        return
    of_warp = f"warp {asked['warp']}, " if "warp" in asked else ""
    lines = [str(op), f"{part.name} in {of_warp}lane {lane}"]
    held = list(tables.spans(part, records))
    places = [f"register {span.register}, {tables.bits(part, span)}" for span in held]
    left = max(map(len, places))
    for place, span in zip(places, held, strict=True):
        lines.append(f"  {place:<{left}}  {tables.name(part, span)}")
    emit("\n".join(lines + _observed(part)))


# ── table ───────────────────────────────────────────────────────────────────


@command(
    "table",
    "fragmenta table mma.m16n8k16.f32.f16 C",
    "fragmenta table mma.m16n8k64.s4.s4 A --by lane",
    "fragmenta table mma.m16n8k64.s4.s4 B --format csv > b.csv",
)
def table(
    instruction: InstructionText,
    operand_: OperandName,
    by: Annotated[
        Literal["matrix", "lane"], typer.Option(help="What each line is about.")
    ] = "matrix",
    format_: Annotated[
        Literal["text", "csv", "markdown", "json"],
        typer.Option("--format", help="The format of the table."),
    ] = "text",
    as_json: AsJson = False,
) -> None:
    """--json is the same as --format json."""
    if as_json and format_ not in ("text", "json"):
        raise Error(f"--json and --format {format_} contradict each other")
    format_ = "json" if as_json else format_
    op = find(instruction)
    part = operand(op, operand_)
    text = tables.table(part, by, format_, width())
    if format_ == "text":
        text = "\n".join([str(op), text, *_observed(part)])
    emit(text)


# ── which ───────────────────────────────────────────────────────────────────


@command(
    "which",
    "fragmenta which mma.sp.m16n8k64.s4.s4 3 5",
    "fragmenta which wgmma.m64n8k16.f32.f16 40 5 --json",
)
def which(
    instruction: InstructionText, index: Indices, as_json: AsJson = False
) -> None:
    op = find(instruction)
    check_multiplies(op)
    op.d.where(*index)
    feeds = list(_feeds(op, index))
    if as_json:
        emit_json(
            {
                "instruction": str(op),
                "D": dict(zip(op.d.layout.data, index, strict=True)),
                "feeds": [_feed_record(op, part, span) for part, span in feeds],
                "shared_memory": [] if "B" in op.fragments else ["B"],
            }
        )
        return
    emit("\n".join([str(op), *_which_lines(op, index, feeds)]))


def _feeds(op: Instruction, index: list[int]) -> Iterator[tuple[Fragment, Span]]:
    """D's own place, then the row of A, the column of B and what goes with them."""
    at = dict(zip(op.d.layout.data, index, strict=True))
    along = {"C": "", "D": "", "B": "row", "scale_B": "row"}
    for part in (op.d, *(p for name, p in op.fragments.items() if name != "D")):
        free = along.get(part.name, "col")
        pinned = {k: v for k, v in at.items() if k != free and k in part.layout.data}
        records = (
            record
            for record in part.rows()
            if all(record[key] == value for key, value in pinned.items())
        )
        found = sorted(tables.spans(part, records), key=_reading_order)
        yield from ((part, span) for span in found)


def _reading_order(span: Span) -> tuple[int, ...]:
    """Selectors first, then columns, then rows: the sum runs along one of them."""
    return tuple(span.first.values())[::-1]


def _feed_record(op: Instruction, part: Fragment, span: Span) -> dict[str, Any]:
    def extent(coordinate: str) -> int | list[int]:
        first, last = span.first[coordinate], span.last[coordinate]
        return first if first == last else [first, last]

    record: dict[str, Any] = {"operand": part.name}
    record["element"] = {name: extent(name) for name in span.first}
    if part.stored > 1:
        record["columns"] = _logical(op, span.first["col"], span.last["col"])
    if span.warp is not None:
        record["warp"] = span.warp
    record |= {"lane": span.lane, "register": span.register}
    return {**record, "bits": [span.low, span.high]}


def _which_lines(
    op: Instruction, index: list[int], feeds: list[tuple[Fragment, Span]]
) -> list[str]:
    rows = []
    for part, span in feeds:
        element = tables.name(part, span)
        if part.stored > 1:
            low, high = _logical(op, span.first["col"], span.last["col"])
            element += f" of columns {low}..{high}"
        warp = "" if span.warp is None else f"warp {span.warp}, "
        place = f"{warp}lane {span.lane}, register {span.register}"
        rows.append((element, f"{place}, {tables.bits(part, span)}"))
    if "B" not in op.fragments:
        element = f"B[0..{op.shape.k - 1}, {index[-1]}]"
        rows.append((element, "in shared memory, through the descriptor b"))
    left = max(len(element) for element, _ in rows)
    lines = [f"{element:<{left}}  {place}" for element, place in rows]
    if op.granularity is not None:
        stored = f"A is stored {op.granularity}"
        lines.append(f"{stored}; metadata selects its columns, and so the rows of B")
    if "B" not in op.fragments:
        lines.append(
            "A is in these registers, unless it also comes through a descriptor"
        )
    return lines + _observed(op.d)
