"""The commands ``where``, ``holds``, ``table`` and ``which``: places of elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Annotated, Literal

import typer

from fragmenta.commands.app import command
from fragmenta.commands.arguments import (
    Idesc,
    InstructionText,
    OperandName,
    find,
    find_operand,
    number,
)
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.commands.sass import print_machine
from fragmenta.commands.targets import complete_target
from fragmenta.errors import AddressError, BadCall, ShapeError, one_of
from fragmenta.inspect.view import places
from fragmenta.inspect.view import table as tables
from fragmenta.inspect.view.places import number as numbered
from fragmenta.inspect.view.places import reaching_warp
from fragmenta.inspect.view.table import ElementSpan
from fragmenta.reference.isa.families import check_multiplies
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.fragment import Fragment, Place
from fragmenta.reference.registers.tensor_fragment import (
    Cell,
    TensorAddress,
    TensorFragment,
)

Indices = Annotated[
    list[int],
    typer.Argument(
        metavar="INDEX",
        help="The row, then the column; also as 3,17.",
        show_default=False,
    ),
]

Address = Annotated[
    str,
    typer.Option(
        "--address",
        metavar="ADDRESS",
        help="Where an operand begins in tensor memory: lane << 16 | column.",
        show_default=False,
    ),
]

# ── where ───────────────────────────────────────────────────────────────────


@command(
    "where",
    "fragmenta where mma.m16n8k64.s4.s4 A 3 17",
    "fragmenta where mma.sp.m16n8k64.s4.s4 metadata 3 2 --json",
    "fragmenta where tcgen05.m128n64k16.f32.f16 D 100 40 --address 0x20",
    "fragmenta where mma m16n8k16 f32 f16 'B[9,3]'",
)
def where(
    instruction: InstructionText,
    operand_: OperandName,
    index: Indices,
    address: Address = "0",
    idesc: Idesc = None,
    as_json: AsJson = False,
) -> None:
    meant = find_operand(instruction, operand_, idesc)
    op, part, _ = meant
    _check_stored(op, part, index)
    at = _address(part, address)
    found = list(_places(part, index, at))
    if as_json:
        element = dict(zip(part.layout.data, index, strict=True))
        records = [{**selected, **_place(part, place)} for selected, place in found]
        about = {**meant.record, "element": element, "places": records}
        if part.stored > 1:
            about["columns"] = _logical(op, element["col"], element["col"])
        emit_json(about)
        return
    name = f"{part.name}[{', '.join(map(str, index))}]"
    lines = meant.head
    for selected, place in found:
        chosen = ", ".join(f"{key} {value}" for key, value in selected.items())
        lines.append(
            f"{name}  {chosen + ': ' if chosen else ''}{_place_text(part, place)}"
        )
        name = " " * len(name)
    if isinstance(part, TensorFragment):
        lines += _reached(cell for _, cell in found)
    if part.stored > 1:
        lines.append(_stored(op, *index))
    emit("\n".join(lines + _observed(part)))


def _address(part: Fragment, text: str) -> TensorAddress:
    at = TensorAddress.of(number(text, "an address"))
    if at != (0, 0) and not isinstance(part, TensorFragment):
        raise AddressError(
            f"{part.name} is in registers: it has no address in tensor memory"
        )
    return at


def _place_text(part: Fragment, place: Place | Cell) -> str:
    if isinstance(place, Cell):
        return str(place)
    i = numbered(part, place.register, place.bits[0])
    return f"{place} ({part.letter}{i})"


def _reached(cells: Iterable[Place | Cell]) -> list[str]:
    """Which warps load these cells."""
    warps = sorted({reaching_warp(cell.lane) for cell in cells})
    if len(warps) == 4:
        return ["every warp of a warpgroup reaches a copy by tcgen05.ld"]
    word = "warp" if len(warps) == 1 else "warps"
    verb = "reaches" if len(warps) == 1 else "reach"
    what = "it" if len(warps) == 1 else "a copy each"
    return [f"{word} {one_of(warps, 'and')} of a warpgroup {verb} {what} by tcgen05.ld"]


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


def _places(
    part: Fragment, index: list[int], at: TensorAddress
) -> Iterator[tuple[dict[str, int], Place | Cell]]:
    """Every place of an element, with the selectors that choose it."""
    if isinstance(part, TensorFragment):
        cell = part.where(*index, address=at)
        for each in (cell, *cell.copies):
            yield {}, each
        return
    part.where(*index)  # refuses bad indices first
    sizes = [range(part.layout.sizes[name]) for name in part.selectors]
    for values in product(*sizes):
        selected = dict(zip(part.selectors, values, strict=True))
        first = part.where(*index, **selected)
        for place in (first, *first.copies):
            yield selected, place


def _place(part: Fragment, place: Place | Cell) -> dict[str, object]:
    if isinstance(place, Cell):
        return {
            **({} if place.cta is None else {"cta": place.cta}),
            "lane": place.lane,
            "column": place.column,
            "bits": place.bits,
            "reached_by_warp": reaching_warp(place.lane),
        }
    warp = {} if place.warp is None else {"warp": place.warp}
    return {
        **warp,
        "lane": place.lane,
        "register": place.register,
        "bits": place.bits,
        "i": numbered(part, place.register, place.bits[0]),
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
    "fragmenta holds mma.m16n8k64.s4.s4 A 13",
    "fragmenta holds wgmma.m64n8k16.f32.f16 D 13 --warp 2 --register 1",
    "fragmenta holds tcgen05.m256n64k16.f32.f16 A 100 --cta 1 --column 3",
)
def holds(
    instruction: InstructionText,
    operand_: OperandName,
    lane: Annotated[
        int,
        typer.Argument(
            metavar="LANE",
            help="The lane, 0 to 31; of tensor memory, 0 to 127.",
            show_default=False,
        ),
    ],
    warp: Annotated[
        int | None, typer.Option(help="The warp of a warpgroup, 0 to 3; by default 0.")
    ] = None,
    register: Annotated[
        int | None, typer.Option(help="Only this register; by default all.")
    ] = None,
    column: Annotated[
        int | None, typer.Option(help="Only this column of tensor memory.")
    ] = None,
    cta: Annotated[
        int | None, typer.Option(help="The CTA of a pair, 0 or 1; by default 0.")
    ] = None,
    address: Address = "0",
    idesc: Idesc = None,
    as_json: AsJson = False,
) -> None:
    meant = find_operand(instruction, operand_, idesc)
    part = meant.part
    at = _address(part, address)
    asked = {"lane": lane}
    inside = isinstance(part, TensorFragment)
    _check_axes(part, {"warp": warp, "register": register}, column=column, cta=cta)
    if isinstance(part, TensorFragment):
        part.holds(lane, column=column, cta=cta, address=at)  # refuses, as below
        asked |= {"cta": cta or 0} if part.pair else {}
        asked |= {} if column is None else {"column": column}
    else:
        part.holds(lane, register=register, warp=warp)  # refuses what is out of range
        asked |= {} if register is None else {"register": register}
        asked |= {"warp": warp or 0} if part.lanes > 32 else {}
    records = [
        record
        for record in places.records(part, at)
        if all(record[key] == value for key, value in asked.items())
    ]
    if as_json:
        listed = [{**each, "bits": [each["low"], each["high"]]} for each in records]
        emit_json({**meant.record, "elements": listed})
        return
    outer = [axis for axis in places.axes(part)[:-1] if axis in asked]
    held = f"{part.name} in {places.in_words({k: asked[k] for k in outer})}"
    lines = [*meant.head, held]
    lines += _held(part, list(tables.spans(part, records, join=True)))
    if inside:
        lines.append(f"warp {reaching_warp(lane)} of a warpgroup reaches this lane")
    emit("\n".join(lines + _observed(part)))


def _check_axes(
    part: Fragment, of_registers: dict[str, int | None], **of_cells: int | None
) -> None:
    """Refuse options that this kind of place does not have."""
    inside = isinstance(part, TensorFragment)
    place = "tensor memory" if inside else "registers"
    instead = "--cta and --column" if inside else "--warp and --register"
    for name, given in (of_registers if inside else of_cells).items():
        if given is not None:
            raise BadCall(
                f"{part.name} is in {place}: there is no --{name}, but {instead}"
            )


def _held(part: Fragment, held: list[ElementSpan]) -> list[str]:
    """Lines of register or column, bits and elements."""
    if not held:
        return ["  nothing"]
    found = []
    for span in held:
        inner = span.place.rpartition(", ")[2]
        found.append(f"{inner}, {tables.bits(part, span)}")
    left = max(map(len, found))
    return [
        f"  {place:<{left}}  {tables.name(part, span)}"
        for place, span in zip(found, held, strict=True)
    ]


# ── table ───────────────────────────────────────────────────────────────────


@command(
    "table",
    "fragmenta table mma.m16n8k16.f32.f16 C",
    "fragmenta table mma.m16n8k64.s4.s4 A --by lane",
    "fragmenta table mma.m16n8k64.s4.s4 B --format csv > b.csv",
    "fragmenta table tcgen05.m64n16k16.f32.f16 D --by lane",
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
    address: Address = "0",
    idesc: Idesc = None,
    as_json: AsJson = False,
) -> None:
    """--json is the same as --format json."""
    if as_json and format_ not in ("text", "json"):
        raise BadCall(f"--json and --format {format_} contradict each other")
    format_ = "json" if as_json else format_
    meant = find_operand(instruction, operand_, idesc)
    part = meant.part
    text = tables.table(part, by, format_, width(), _address(part, address))
    if format_ == "text":
        text = "\n".join([*meant.head, text, *_observed(part)])
    emit(text)


# ── which ───────────────────────────────────────────────────────────────────


@command(
    "which",
    "fragmenta which mma.sp.m16n8k64.s4.s4 3 5",
    "fragmenta which wgmma.m64n8k16.f32.f16 40 5 --json",
    "fragmenta which tcgen05.mma.sp.m128n64k32.f32.f16 100 40",
    "fragmenta which HMMA.16816.F32 3,5",
    "fragmenta which HMMA.16816.F32",
    "fragmenta which '/*0090*/ @P0 IMMA.16832.S8.S8 R4, R8, R12, R4 ;'",
    "fragmenta which LDSM --target sm_90",
    "fragmenta which mma.m16n8k64.s4.s4",
)
def which(
    instruction: InstructionText,
    index: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="INDEX",
            help="The row, then the column; also as 3,17.",
            show_default=False,
        ),
    ] = None,
    idesc: Idesc = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="Without an index: only for this target, such as sm_90 or hopper.",
            autocompletion=complete_target,
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Without an index, INSTRUCTION is the name of a machine instruction, the beginning
    of one, or a line that a disassembler or profiler prints: the instructions of PTX
    that become it are shown.  Of an instruction of PTX, its machine instructions are.
    """
    if not index:
        print_machine(instruction, idesc, target, as_json)
        return
    if target is not None:
        raise BadCall("--target is about machine instructions; leave the index out")
    op = find(instruction, idesc)
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


def _feeds(op: Instruction, index: list[int]) -> Iterator[tuple[Fragment, ElementSpan]]:
    """The place of the element of D, then those of its operands."""
    at = dict(zip(op.d.layout.data, index, strict=True))
    along = {"C": "", "D": "", "B": "row", "scale_B": "row"}
    for part in (op.d, *(p for name, p in op.fragments.items() if name != "D")):
        free = along.get(part.name, "col")
        pinned = {k: v for k, v in at.items() if k != free and k in part.layout.data}
        records = (
            record
            for record in places.records(part)
            if all(record[key] == value for key, value in pinned.items())
        )
        found = sorted(tables.spans(part, records, join=True), key=_reading_order)
        yield from ((part, span) for span in found)


def _reading_order(span: ElementSpan) -> tuple[int, ...]:
    """Selectors first, then columns, then rows: the sum runs along one of them."""
    return tuple(span.first.values())[::-1]


def _feed_record(
    op: Instruction, part: Fragment, span: ElementSpan
) -> dict[str, object]:
    def extent(coordinate: str) -> int | list[int]:
        first, last = span.first[coordinate], span.last[coordinate]
        return first if first == last else [first, last]

    record: dict[str, object] = {"operand": part.name}
    record["element"] = {name: extent(name) for name in span.first}
    if part.stored > 1:
        record["columns"] = _logical(op, span.first["col"], span.last["col"])
    return record | span.record


def _which_lines(
    op: Instruction, index: list[int], feeds: list[tuple[Fragment, ElementSpan]]
) -> list[str]:
    rows = []
    for part, span in feeds:
        element = tables.name(part, span)
        if part.stored > 1:
            low, high = _logical(op, span.first["col"], span.last["col"])
            element += f" of columns {low}..{high}"
        rows.append((element, f"{span.place}, {tables.bits(part, span)}"))
    if "B" not in op.fragments:
        element = f"B[0..{op.shape.k - 1}, {index[-1]}]"
        rows.append(
            (element, f"in {_memory_of_b(op, index)}, through the descriptor b")
        )
    left = max(len(element) for element, _ in rows)
    lines = [f"{element:<{left}}  {place}" for element, place in rows]
    if op.granularity is not None:
        stored = f"A is stored {op.granularity}"
        lines.append(f"{stored}; metadata selects its columns, and so the rows of B")
    if "B" not in op.fragments:
        place = "tensor memory" if op.tensor_memory else "these registers"
        lines.append(f"A is in {place}, unless it also comes through a descriptor")
    return lines + _observed(op.d)


def _memory_of_b(op: Instruction, index: list[int]) -> str:
    """Each CTA of a pair has half of the columns of B."""
    if op.cta_group != 2:
        return "shared memory"
    return f"shared memory of CTA {index[-1] // (op.shape.n // 2)}"
