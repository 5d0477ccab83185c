"""The command ``shared``: an operand in shared memory, and its bank conflicts."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

import typer

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.commands.app import command
from fragmenta.commands.arguments import InstructionText, find
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.commands.shared_access import WarpAccess
from fragmenta.commands.shared_loops import (
    WholeTile,
    check_alone,
    expressions,
    indented,
    loop_record,
)
from fragmenta.errors import (
    BadCall,
    Error,
    LayoutError,
    ShapeError,
    UnknownOperand,
    one_of,
)
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.shared.banks import (
    ACCESSES,
    RowTile,
    access_addresses,
    tile_picture,
)
from fragmenta.reference.shared.descriptor import (
    Descriptor,
    Family,
    MajorAxis,
    Swizzle,
    extent,
    major_of,
    span,
)
from fragmenta.reference.shared.elements import allowed_swizzles, stored
from fragmenta.reference.shared.loops import only_as, single_loop
from fragmenta.reference.shared.matching import Along
from fragmenta.reference.shared.matrix_loop import MatrixLoop
from fragmenta.reference.shared.operands import family_of
from fragmenta.reference.shared.placement import Order, Placed
from fragmenta.reference.shared.swizzles import WGMMA_SWIZZLES, AnySwizzle, read_swizzle
from fragmenta.reference.shared.tile_copies import TileCopies, tile_copies
from fragmenta.reference.shared.tiles import default_swizzle


@command(
    "shared",
    "fragmenta shared wgmma.m64n128k16.f32.f16 B --swizzle 64",
    "fragmenta shared mma.m16n8k16.f32.f16 A --k 64 --pitch 144",
    "fragmenta shared mma.m16n8k16.f32.f16 B --k 64 --num x4 --along n",
    "fragmenta shared mma.m16n8k16.f32.f16 B --k 64 --swizzle 128 --language cuda",
    "fragmenta shared mma.m16n8k16.f32.f16 A --k 32 --rows 64 --suggest",
    "fragmenta shared mma m16n8k16 f16 f32 A --k 32 --suggest --language cuda",
    "fragmenta shared wgmma.m64n128k16.f32.bf16 A --major mn --json",
    "fragmenta shared tcgen05.m128n256k16.f32.f16 B --swizzle 128",
)
def shared(
    instruction: InstructionText,
    operand: Annotated[
        str, typer.Argument(metavar="OPERAND", help="A or B.", show_default=False)
    ],
    swizzle: Annotated[
        str | None,
        typer.Option(
            "--swizzle",
            metavar="BYTES",
            help="0, 32, 64, 128, or 128/32 for tcgen05 (128 bytes in 32-byte atoms); "
            "by default 128 for wgmma and tcgen05, otherwise 0.  Operands of mma may "
            "have any Swizzle<B,M,S> of CuTe on bytes: 2,4,4.",
        ),
    ] = None,
    major: Annotated[
        Literal["k", "mn"] | None,
        typer.Option(
            help="The dimension along which elements are contiguous; by default k, for "
            "tcgen05 that of the instruction descriptor.",
            show_default=False,
        ),
    ] = None,
    access: Annotated[
        Literal["ldmatrix", "rows", "column"] | None,
        typer.Option(
            help="How the warp reads, 16 bytes per lane; by default ldmatrix, or rows "
            "if ldmatrix cannot load the operand.",
        ),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option(
            help="The tile's k; by default that of one instruction, for wgmma and "
            "tcgen05 a full swizzle row."
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            help="The tile's m (of A) or n (of B); by default that of one "
            "instruction.  Not for wgmma and tcgen05."
        ),
    ] = None,
    pitch: Annotated[
        int | None,
        typer.Option(
            "--pitch",
            metavar="BYTES",
            help="The distance from one row to the next; not for wgmma and tcgen05.",
        ),
    ] = None,
    num: Annotated[
        Literal["x1", "x2", "x4"] | None,
        typer.Option(
            help="The ldmatrix to use; by default the one that loads the operand of "
            "one instruction.",
        ),
    ] = None,
    along: Annotated[
        Literal["m", "n", "k"] | None,
        typer.Option(
            help="The dimension along which a larger ldmatrix loads more operands; "
            "by default, the tile then has so many of them."
        ),
    ] = None,
    suggest: Annotated[
        bool,
        typer.Option(
            "--suggest", help="Search a swizzle or padding without conflicts."
        ),
    ] = False,
    copy: Annotated[
        Literal["cp.async", "st.shared.v4", "ld.shared.v4", "tma"] | None,
        typer.Option(help="With --suggest: how the tile is written, too."),
    ] = None,
    language: Annotated[
        Literal["cuda"] | None,
        typer.Option(
            help="Write the function that loads the tile, in CUDA C++; with --suggest, "
            "from the best memory that was found.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """With --access ldmatrix, lanes 8i to 8i + 7 read the same 16 bytes of eight
    rows.  With rows, neighbouring lanes read neighbouring 16 bytes.  With column,
    each lane reads the same 16 bytes of its own row.
    """
    op = find(instruction)
    mode = None if swizzle is None else read_swizzle(swizzle)
    tile = _SharedOperand.of(op, operand.upper(), mode, major, (rows, k), pitch)
    if copy is not None and not suggest:
        raise BadCall(f"--copy is for --suggest; given --copy {copy}")
    if along and not tile.family and (k if along == "k" else rows) is None:
        tile = tile.widened(num, along)
    if suggest or language:
        check_alone("--suggest" if suggest else "--language", access=access)
        if suggest:
            check_alone("--suggest", swizzle=swizzle, pitch=pitch)
        whole = tile.whole()
        output = (
            whole.suggested(num, along, copy, language is not None)
            if suggest
            else whole.written(num, along)
        )
        if as_json:
            emit_json(output.record)
        else:
            emit(output.text)
        return
    chosen = tile.chosen(access, num, along)
    if as_json:
        emit_json(tile.about(chosen))
        return
    parts = [f"{op}\n{tile.head()}", tile.picture(chosen), tile.by_swizzle(chosen)]
    parts.append(tile.copies() if tile.family else tile.ways(chosen))
    emit("\n\n".join(parts))


class _Cost(NamedTuple):
    """What an access costs under a swizzle."""

    access: str
    swizzle: AnySwizzle
    degree: int
    turns: int


@dataclass(frozen=True)
class _SharedOperand:
    """An operand in shared memory: lines of k, or of m or n if that is major."""

    op: Instruction
    operand: str
    rows: int
    """m of A, n of B."""
    k: int
    """Stored columns, which are half of a sparse A's."""
    bits: int
    swizzle: Swizzle
    major: MajorAxis
    pitch: int | None

    @classmethod
    def of(
        cls,
        op: Instruction,
        operand: str,
        swizzle: Swizzle | None,
        major: MajorAxis | None,
        sizes: tuple[int | None, int | None],
        pitch: int | None,
    ) -> _SharedOperand:
        """The tile that the options describe, checked."""
        family = family_of(op)
        multiplies = family is not None or {"a", "b"} <= set(op.types)
        if operand not in ("A", "B") or not multiplies:
            raise UnknownOperand(
                "fragmenta shared takes operand A or B of an instruction that "
                f"multiplies; given {operand} of {op}"
            )
        side = major_of(op, operand, major)
        mode = swizzle
        if mode is None:
            mode = default_swizzle(op, operand, side) if family else 0
        (tall, k), xor = sizes, isinstance(mode, tuple)
        if family and xor:
            raise BadCall(f"{family} has no {mode}; it has {one_of(WGMMA_SWIZZLES)}")
        rows, least, bits = _extent(op, operand, side, mode)
        if family and tall is not None:
            raise BadCall(f"the --rows of a {family} tile are those of the instruction")
        if tall is not None and (tall <= 0 or tall % rows):
            what = {"A": "m", "B": "n"}[operand]
            raise ShapeError(
                f"the {what} of a tile must be a multiple of {rows}; given {tall}"
            )
        rows = rows if tall is None else tall
        if family and pitch is not None:
            raise BadCall(
                f"a {family} tile has no --pitch; the descriptor has its offsets"
            )
        if k is not None and (k <= 0 or k % least):
            raise ShapeError(
                f"the k of a tile must be a multiple of {least}; given {k}"
            )
        if k is None:
            # By default such a tile fills the rows of its swizzle, as in kernels.
            fills = family and side == "k" and mode
            k = math.lcm(least, span(mode) * 8 // bits) if fills else least
        return cls(op, operand, rows, k, bits, mode, side, pitch)

    @property
    def family(self) -> Family | None:
        """The family whose descriptor the instruction takes."""
        return family_of(self.op)

    @property
    def modes(self) -> tuple[Swizzle, ...]:
        """The swizzles that the operand may have."""
        if self.family != "tcgen05":
            also = () if self.swizzle in WGMMA_SWIZZLES else (self.swizzle,)
            return (*WGMMA_SWIZZLES, *also)
        return allowed_swizzles(self.op.types[self.operand.lower()], self.major)

    @property
    def side(self) -> Along:
        """The dimension of the operand besides k."""
        return "m" if self.operand == "A" else "n"

    @property
    def tile(self) -> RowTile:
        """The rows that bank conflicts are about; with descriptors, of one span."""
        along, across = (self.k, self.rows)[:: 1 if self.major == "k" else -1]
        wide = along * self.bits // 8
        row_bytes = span(self.swizzle) if self.family else wide
        return RowTile(across, row_bytes, self.swizzle, self.pitch)

    @property
    def descriptor(self) -> Descriptor | None:
        """The descriptor of the tile; None if the instruction takes none."""
        if self.family is None:
            return None
        return Descriptor.for_tile(
            *self._sizes,
            major=self.major,
            swizzle=self.swizzle,
            family=self.family,
            kind=self.op.kind,
        )

    @property
    def _sizes(self) -> tuple[int, int, str]:
        return self.rows, self.k, self.op.types[self.operand.lower()].name

    # ── text ────────────────────────────────────────────────────────────────

    def head(self) -> str:
        rows, k, of = self._sizes
        size = f"{rows} x {k}" if self.operand == "A" else f"{k} x {rows}"
        stored = " stored" if self.operand == "A" and self.op.sparse else ""
        major = "K-major" if self.major == "k" else "MN-major"
        pair = ", in each block of the pair" if self.op.cta_group == 2 else ""
        lines = [f"{self.operand}: {size} {of}{stored}, {major}{pair}"]
        if (descriptor := self.descriptor) is not None:
            lines.append(f"descriptor {descriptor.encode():#018x}")
            lines.append(f"  {descriptor}")
        across = {"A": "row of A", "B": "column of B"}[self.operand]
        what = across if self.major == "k" else "k"
        lines.append(f"rN.u below is 16-byte unit u of one {what}")
        return "\n".join(lines)

    def picture(self, chosen: WarpAccess) -> str:
        label = _plain(chosen.name)
        picture = tile_picture(chosen.tile, chosen.addresses, label)
        along = self.k if self.major == "k" else self.rows
        spans = -(-along * self.bits // (8 * chosen.tile.row_bytes))
        if self.family and spans > 1:
            picture += f"\nThis is the first of {spans} spans with the same layout."
        return picture

    def by_swizzle(self, chosen: WarpAccess) -> str:
        """What every access costs under every swizzle."""
        records = self.costs(chosen)
        names = [_mode(mode) for mode in self.modes]
        wide = max(11, *(len(name) + 1 for name in names))
        lines = [
            "the same rows with every swizzle:",
            " " * 12 + "".join(f"{name:>{wide}}" for name in names),
        ]
        for access in dict.fromkeys(record.access for record in records):
            ways = [each.degree for each in records if each.access == access]
            cells = "".join(f"{f'{n}-way' if n > 1 else 'free':>{wide}}" for n in ways)
            lines.append(f"  {access:<10}{cells}")
        return "\n".join(lines)

    def copies(self) -> str:
        found = self._tensor_map()
        if isinstance(found, str):
            return _wrapped(f"no tensor map can copy this tile: {found}")
        shown = textwrap.indent(str(found), "  ")
        return f"copied to shared memory by a tensor map:\n{shown}"

    def ways(self, chosen: WarpAccess) -> str:
        """Every ldmatrix that loads the operand, the chosen one marked."""
        found = self.loads(self.swizzle)
        if isinstance(found, str):
            return _wrapped(f"not loaded by ldmatrix: {found}")
        shown = " (* is shown above)" if chosen.access == "ldmatrix" else ""
        lines = [f"loaded by{shown}, addresses of the lanes from 0:"]
        for load in found:
            cost = load.cost
            ways = f"{cost.degree}-way" if cost.degree > 1 else "no conflicts"
            lines.append(f"{'*' if load == chosen else ' '} {load.name}")
            what = f"{self.covers(load)}; {cost.turns} turns, {ways}"
            option = f"--num {load.num}"
            option += f" --along {load.along}" if load.along else ""
            lines.append(f"    {what}" + ("" if load == chosen else f"; {option}"))
            lines += [f"    {line}" for line in textwrap.wrap(load.where, width() - 4)]
            numbers = " ".join(map(str, load.counted))
            lines += [f"    {line}" for line in textwrap.wrap(numbers, width() - 4)]
        loop = self.looped(chosen)
        if loop is not None and max(loop.steps.values()) > 1:
            lines += ["", "the whole tile (--language cuda writes the function):"]
            lines.append(indented(str(loop)))
        return "\n".join(lines)

    def covers(self, load: WarpAccess) -> str:
        """The ranges of k and m or n that a load brings."""
        rows, k, _ = _extent(self.op, self.operand)
        ends = {"k": k, self.side: rows}
        if load.along:
            ends[load.along] *= load.tiles
        ranges = ", ".join(f"{side} 0-{end - 1}" for side, end in ends.items())
        count = {1: "one", 2: "two", 4: "four"}[load.tiles]
        return f"{self.operand} of {count} mma: {ranges}"

    # ── for programs ────────────────────────────────────────────────────────

    def about(self, chosen: WarpAccess) -> dict[str, object]:
        rows, k, of = self._sizes
        descriptor, cost = self.descriptor, chosen.cost
        idle = [-1] * (len(chosen.addresses) - len(chosen.counted))
        about: dict[str, object] = {
            "instruction": str(self.op),
            "operand": self.operand,
            "type": of,
            "rows": rows,
            "k": k,
            "major": self.major,
            "swizzle": self.swizzle,
            "access": chosen.access,
            "addresses": chosen.counted + idle,
            "degree": cost.degree,
            "turns": cost.turns,
            "phases": [
                record if record["degree"] > 1 else record | {"busiest": []}
                for record in cost.records()
            ],
            "by_swizzle": [each._asdict() for each in self.costs(chosen)],
        }
        if descriptor is None:
            return {**about, **self._as_records(chosen)}
        word = f"{descriptor.encode():#018x}"
        copies = self._tensor_map()
        return {
            **about,
            "descriptor": {"word": word, **vars(descriptor)},
            "tensor_map": copies if isinstance(copies, str) else copies.to_json(),
        }

    def _as_records(self, chosen: WarpAccess) -> dict[str, object]:
        """The chosen load and all others as JSON, or why there is none."""
        found = self.loads(self.swizzle)
        if isinstance(found, str):
            return {"ldmatrix": found, "loads": [], "loop": None}
        records = [
            {
                "instruction": load.name,
                "covers": self.covers(load),
                "tiles": load.tiles,
                "along": load.along,
                "degree": load.cost.degree,
                "turns": load.cost.turns,
                "lane": load.where,
                "addresses": load.counted,
            }
            for load in found
        ]
        meant = found.index(chosen) if chosen.access == "ldmatrix" else 0
        loop = self.looped(chosen)
        whole = None if loop is None else loop_record(loop)
        return {"ldmatrix": records[meant], "loads": records, "loop": whole}

    def costs(self, chosen: WarpAccess) -> list[_Cost]:
        """One record for each access and swizzle."""
        records = []
        for access in ACCESSES:
            for mode in self.modes:
                same = chosen.access == access == "ldmatrix"
                tiles, along = (chosen.tiles, chosen.along) if same else (1, None)
                found = self._doing(access, mode, tiles, along)
                if isinstance(found, str):
                    break
                cost = found.cost
                records.append(_Cost(access, mode, cost.degree, cost.turns))
        return records

    # ── accesses ────────────────────────────────────────────────

    def chosen(
        self, access: str | None, num: str | None, along: str | None
    ) -> WarpAccess:
        """The access of the options, or the default."""
        loads = [] if self.family else self.loads(self.swizzle)
        missing = isinstance(loads, str)
        if missing and (access == "ldmatrix" or num or along):
            raise LayoutError(f"no ldmatrix loads this tile: {loads}")
        if access is None:
            access = "rows" if missing else "ldmatrix"
        if not isinstance(loads, str) and loads and access == "ldmatrix":
            return self._picked(loads, num, along)
        if num or along:
            what = self.family or f"--access {access}"
            raise BadCall(
                f"--num and --along choose an ldmatrix; {what} does not use it"
            )
        return self._must(access)

    def _picked(
        self, loads: list[WarpAccess], num: str | None, along: str | None
    ) -> WarpAccess:
        """The first load of this kind."""
        for load in loads:
            if num in (None, load.num) and along in (None, load.along):
                return load
        there = [
            load.num + (f" along {load.along}" if load.along else "") for load in loads
        ]
        others = only_as(self.operand, there, (num, along))
        raise LayoutError(f"ldmatrix loads {self.operand} of this tile as {others}")

    def _must(self, access: str) -> WarpAccess:
        found = self._doing(access, self.swizzle)
        assert not isinstance(found, str)
        return found

    def _doing(
        self, access: str, swizzle: Swizzle, tiles: int = 1, along: Along | None = None
    ) -> WarpAccess | str:
        """An access under a swizzle; of ldmatrix, why there is none."""
        if access == "ldmatrix" and not self.family:
            return self._load(swizzle, tiles, along)
        tile, taken = self.tile._replace(swizzle=swizzle), access
        where = access_addresses(tile, taken)  # type: ignore[arg-type]
        return WarpAccess(access, access, tile, where)

    def loads(self, swizzle: Swizzle) -> list[WarpAccess] | str:
        """Every ldmatrix for one operand or several, or why there is none."""
        one = self._load(swizzle, 1, None)
        if isinstance(one, str):
            return one
        several = (
            self._load(swizzle, tiles, along)
            for tiles in (2, 4)
            for along in ("k", self.side)
        )
        return [one, *(load for load in several if not isinstance(load, str))]

    def _load(
        self, swizzle: Swizzle, tiles: int, along: Along | None
    ) -> WarpAccess | str:
        tile = self._reached(tiles, along)._replace(swizzle=swizzle)
        pitch = self.tile.row_bytes if tile.pitch is None else tile.pitch
        if tiles > 1 and tile.row_bytes > pitch:
            return f"rows of {tile.row_bytes} bytes do not fit {pitch}"
        placed: Placed = {"order": self.order, "pitch": pitch, "swizzle": swizzle}
        try:
            loop = single_loop("ldmatrix", self.op, self.operand, placed, tiles, along)
        except Error as error:
            return str(error)
        load, addresses = loop.first
        where = expressions(loop)
        return WarpAccess("ldmatrix", str(load), tile, addresses, where, tiles, along)

    def widened(self, num: str | None, along: str) -> _SharedOperand:
        """The tile with as many operands along a dimension as one ldmatrix loads."""
        for tiles in (2, 4):
            side = "k" if along == "k" else "rows"
            wide = replace(self, **{side: tiles * getattr(self, side)})
            loads = wide.loads(wide.swizzle)
            if not isinstance(loads, str) and any(
                (load.tiles, load.along) == (tiles, along) and num in (None, load.num)
                for load in loads
            ):
                return wide
        return self

    @property
    def order(self) -> Order:
        """The order of the operand's elements in memory."""
        return "row" if (self.operand == "A") == (self.major == "k") else "col"

    def whole(self) -> WholeTile:
        """The tile of all its fragments, which only ldmatrix loads."""
        if self.family:
            raise BadCall(
                f"{self.op} takes a descriptor, not an ldmatrix; --language and "
                "--suggest are for operands in registers"
            )
        shape = (self.rows, self.k) if self.operand == "A" else (self.k, self.rows)
        tile = self.op, self.operand, shape, self.order
        return WholeTile(*tile, self.pitch, self.swizzle)

    def looped(self, chosen: WarpAccess) -> MatrixLoop | None:
        """The loop over the tile with the chosen ldmatrix, if there is one."""
        if chosen.access != "ldmatrix" or self.family:
            return None
        try:
            return self.whole().loop(chosen.num, chosen.along)
        except Error:  # the tile has one instruction's operand, or an odd number
            return None

    def _reached(self, tiles: int, along: Along | None) -> RowTile:
        """The tile, with rows or bytes added as several operands need them."""
        rows, k, _ = _extent(self.op, self.operand)
        k = max(self.k, k * tiles if along == "k" else 0)
        rows = max(self.rows, rows * tiles if along == self.side else 0)
        lines, inner = (rows, k) if self.major == "k" else (k, rows)
        return self.tile._replace(rows=lines, row_bytes=inner * self.bits // 8)

    def _tensor_map(self) -> TileCopies | str:
        """How copies write the tile, or why they cannot."""
        try:
            return tile_copies(
                *self._sizes,
                major=self.major,
                swizzle=self.swizzle,
                family=self.family or "wgmma",
                kind=self.op.kind,
            )
        except Error as error:
            return str(error)


def _extent(
    op: Instruction, operand: str, major: MajorAxis = "k", swizzle: Swizzle = 0
) -> tuple[int, int, int]:
    """Rows (m or n) and k of one instruction's operand, and the bits of a slot."""
    if family := family_of(op):
        of = op.types[operand.lower()]
        slot = stored(of, major, family, swizzle, op.kind)
        return *extent(op, operand), slot.bits
    part = op.fragments[operand]
    if part.layout.data != ("row", "col"):
        raise ShapeError(
            f"{operand} of {op} is several matrices; fragmenta shared shows only one"
        )
    rows, k = part.shape if operand == "A" else part.shape[::-1]
    return rows, k, part.container.bits


def _mode(swizzle: AnySwizzle) -> str:
    """A swizzle as the head of a column."""
    if isinstance(swizzle, tuple):
        return ",".join(map(str, swizzle))
    return f"{swizzle} bytes" if swizzle else "none"


def _plain(name: str) -> str:
    """An instruction without the words that every one of its family has."""
    return name.replace(".sync.aligned", "")


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width(), break_long_words=False, break_on_hyphens=False)
