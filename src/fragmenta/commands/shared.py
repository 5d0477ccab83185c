"""How does an operand lie in shared memory, and what does a warp pay for it?"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fragmenta.commands.app import AsJson, InstructionText, command, find
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.errors import Error

if TYPE_CHECKING:
    from fragmenta.banks import Tile
    from fragmenta.isa.instruction import Instruction
    from fragmenta.shared_memory import Descriptor, Major
    from fragmenta.shared_tiles import TensorMap

SWIZZLES = (0, 32, 64, 128)


@command(
    "shared",
    "fragmenta shared wgmma.m64n128k16.f32.f16 B --swizzle 64",
    "fragmenta shared mma.m16n8k16.f32.f16 A --k 64 --pitch 144",
    "fragmenta shared wgmma.m64n128k16.f32.bf16 A --major mn --json",
)
def shared(
    instruction: InstructionText,
    operand: Annotated[
        str, typer.Argument(metavar="OPERAND", help="A or B.", show_default=False)
    ],
    swizzle: Annotated[
        int | None,
        typer.Option(
            "--swizzle",
            metavar="BYTES",
            help="0, 32, 64 or 128; by default 128 for wgmma, else 0.",
        ),
    ] = None,
    major: Annotated[
        Literal["k", "mn"], typer.Option(help="What neighbouring elements share.")
    ] = "k",
    access: Annotated[
        Literal["ldmatrix", "rows", "column"],
        typer.Option(help="What the warp does, 16 bytes a lane."),
    ] = "ldmatrix",
    k: Annotated[
        int | None,
        typer.Option(
            help="The tile's k; by default one instruction's, or a full swizzle row."
        ),
    ] = None,
    pitch: Annotated[
        int | None,
        typer.Option(
            "--pitch", metavar="BYTES", help="From one row to the next; not for wgmma."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a tile in shared memory, and its bank conflicts.

    Accesses: with 'ldmatrix' lanes 8i to 8i + 7 take the same 16 bytes of eight
    rows; with 'rows' neighbouring lanes take neighbouring 16 bytes; with
    'column' each lane takes the same 16 bytes of its own row.
    """
    op = find(instruction)
    lying = _Lying.of(op, operand.upper(), swizzle, major, k, pitch)
    if as_json:
        emit_json(lying.about(access))
        return
    parts = [f"{op}\n{lying.head()}", lying.picture(access), lying.by_swizzle()]
    if lying.warpgroup:
        parts.append(lying.copies())
    else:
        parts.append(lying.load())
    emit("\n\n".join(parts))


@dataclass(frozen=True)
class _Lying:
    """An operand in shared memory: lines of k, or of m or n if that is major."""

    op: Instruction
    operand: str
    rows: int
    """m of A, n of B."""
    k: int
    """Stored columns, which are half of a sparse A's."""
    bits: int
    swizzle: int
    major: Major
    pitch: int | None

    @classmethod
    def of(
        cls,
        op: Instruction,
        operand: str,
        swizzle: int | None,
        major: Major,
        k: int | None,
        pitch: int | None,
    ) -> _Lying:
        """The tile that was asked for, or what is wrong with it."""
        if operand not in ("A", "B") or "a" not in op.types or "b" not in op.types:
            raise Error(
                "in shared memory are the operands A and B of an instruction that "
                f"multiplies; given {operand} of {op}"
            )
        warpgroup = op.family.startswith("wgmma")
        mode = (128 if warpgroup else 0) if swizzle is None else swizzle
        rows, least, bits = _extent(op, operand)
        if warpgroup and pitch is not None:
            raise Error("a wgmma tile has no pitch; the descriptor's offsets say it")
        if k is not None and (k <= 0 or k % least):
            raise Error(f"the k of a tile is a multiple of {least}; given {k}")
        if k is None:
            # A wgmma tile fills its swizzle rows by default, as kernels have it.
            fills = warpgroup and major == "k"
            k = max(least, mode * 8 // bits) if fills else least
        return cls(op, operand, rows, k, bits, mode, major, pitch)

    @property
    def warpgroup(self) -> bool:
        return self.op.family.startswith("wgmma")

    @property
    def tile(self) -> Tile:
        """The rows that bank conflicts are about; for wgmma, of the first span."""
        from fragmenta.banks import Tile
        from fragmenta.shared_memory import span

        along, across = (self.k, self.rows)[:: 1 if self.major == "k" else -1]
        wide = along * self.bits // 8
        row_bytes = span(self.swizzle) if self.warpgroup else wide
        return Tile(across, row_bytes, self.swizzle, self.pitch)

    @property
    def descriptor(self) -> Descriptor | None:
        """What wgmma takes; None for instructions that take none."""
        from fragmenta.shared_memory import Descriptor

        if not self.warpgroup:
            return None
        return Descriptor.for_tile(*self._sizes, major=self.major, swizzle=self.swizzle)

    @property
    def _sizes(self) -> tuple[int, int, str]:
        return self.rows, self.k, self.op.types[self.operand.lower()].name

    # ── text ────────────────────────────────────────────────────────────────

    def head(self) -> str:
        rows, k, of = self._sizes
        size = f"{rows} x {k}" if self.operand == "A" else f"{k} x {rows}"
        stored = " stored" if self.operand == "A" and self.op.sparse else ""
        major = "K-major" if self.major == "k" else "MN-major"
        lines = [f"{self.operand}: {size} {of}{stored}, {major}"]
        if (descriptor := self.descriptor) is not None:
            lines.append(f"descriptor {descriptor.encode():#018x}")
            lines.append(f"  {descriptor}")
        across = {"A": "row of A", "B": "column of B"}[self.operand]
        what = across if self.major == "k" else "k"
        lines.append(f"rN.u below is 16-byte unit u of one {what}")
        return "\n".join(lines)

    def picture(self, access: Any) -> str:
        from fragmenta.banks import conflict_picture

        rows, row_bytes, swizzle, pitch = self.tile
        picture = conflict_picture(rows, row_bytes, swizzle, access, pitch)
        along = self.k if self.major == "k" else self.rows
        spans = -(-along * self.bits // (8 * row_bytes))
        if self.warpgroup and spans > 1:
            picture += f"\nThis is the first of {spans} spans that lie alike."
        return picture

    def by_swizzle(self) -> str:
        """What every access costs under every swizzle."""
        records = self.costs()
        names = {mode: f"{mode} bytes" if mode else "none" for mode in SWIZZLES}
        lines = [
            "such rows by swizzle:",
            " " * 12 + "".join(f"{names[m]:>11}" for m in SWIZZLES),
        ]
        for access in dict.fromkeys(record["access"] for record in records):
            ways = [r["degree"] for r in records if r["access"] == access]
            cells = "".join(f"{f'{n}-way' if n > 1 else 'free':>11}" for n in ways)
            lines.append(f"  {access:<10}{cells}")
        return "\n".join(lines)

    def copies(self) -> str:
        found = self._tensor_map()
        if isinstance(found, str):
            return _wrapped(f"no tensor map leaves this tile: {found}")
        return f"copied there by a tensor map:\n{textwrap.indent(str(found), '  ')}"

    def load(self) -> str:
        found = self._ldmatrix()
        if isinstance(found, str):
            return _wrapped(found)
        addresses = textwrap.wrap(" ".join(map(str, found["addresses"])), width() - 2)
        head = f"loaded by {found['instruction']}, lanes from 0:"
        return "\n".join([head, *(f"  {line}" for line in addresses)])

    # ── for programs ────────────────────────────────────────────────────────

    def about(self, access: Any) -> dict[str, Any]:
        from fragmenta.banks import access_addresses, bank_conflicts

        rows, k, of = self._sizes
        descriptor = self.descriptor
        addresses = access_addresses(self.tile, access)
        cost = bank_conflicts(addresses)
        about: dict[str, Any] = {
            "instruction": str(self.op),
            "operand": self.operand,
            "type": of,
            "rows": rows,
            "k": k,
            "major": self.major,
            "swizzle": self.swizzle,
            "access": access,
            "addresses": addresses.tolist(),
            "degree": cost.degree,
            "turns": cost.turns,
            "phases": [
                record if record["degree"] > 1 else record | {"busiest": []}
                for record in cost.records()
            ],
            "by_swizzle": self.costs(),
        }
        if descriptor is None:
            return {**about, "ldmatrix": self._ldmatrix()}
        word = f"{descriptor.encode():#018x}"
        copies = self._tensor_map()
        return {
            **about,
            "descriptor": {"word": word, **vars(descriptor)},
            "tensor_map": copies if isinstance(copies, str) else vars(copies),
        }

    def costs(self) -> list[dict[str, Any]]:
        """One record for each access and swizzle."""
        from fragmenta.banks import ACCESSES, access_addresses, bank_conflicts

        records = []
        for access in ACCESSES:
            for mode in SWIZZLES:
                taken: Any = access
                tile = self.tile._replace(swizzle=mode)
                where = access_addresses(tile, taken)
                cost = bank_conflicts(where)
                record = {"access": access, "swizzle": mode}
                records.append(record | {"degree": cost.degree, "turns": cost.turns})
        return records

    def _tensor_map(self) -> TensorMap | str:
        """How copies write the tile, or why they cannot."""
        from fragmenta.shared_tiles import tensor_map

        try:
            return tensor_map(*self._sizes, major=self.major, swizzle=self.swizzle)
        except Error as error:
            return str(error)

    def _ldmatrix(self) -> dict[str, Any] | str:
        """The load that makes the fragment, or why there is none."""
        from fragmenta.moves import ldmatrix_addresses

        by_rows = (self.operand == "A") == (self.major == "k")
        tile = self.tile
        try:
            load, addresses = ldmatrix_addresses(
                self.op,
                self.operand,
                order="row" if by_rows else "col",
                pitch=tile.row_bytes if tile.pitch is None else tile.pitch,
                swizzle=self.swizzle,
            )
        except Error as error:
            return str(error)
        matrices, rows, _ = load.fragments["D"].shape
        counted = addresses[..., : matrices * rows]
        return {"instruction": str(load), "addresses": counted.tolist()}


def _extent(op: Instruction, operand: str) -> tuple[int, int, int]:
    """Rows (m or n) and k of one instruction's operand, and the bits of a slot."""
    from fragmenta.shared_memory import extent

    if op.family.startswith("wgmma"):
        return *extent(op, operand), op.types[operand.lower()].bits
    part = op.fragments[operand]
    if part.layout.data != ("row", "col"):
        raise Error(f"{operand} of {op} is several matrices, and shared shows one")
    rows, k = part.shape if operand == "A" else part.shape[::-1]
    return rows, k, part.container.bits


def _wrapped(text: str) -> str:
    return textwrap.fill(text, width(), break_long_words=False, break_on_hyphens=False)
