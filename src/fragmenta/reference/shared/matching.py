"""Which lane supplies the address of which row of an operand of ``mma``.

All of it is composed from layout lines.  With B for the bits of a register and V for
the bits of the 16 bytes at an address, each arrow is a layout::

    lane, V -> matrix, row, bit -> lane, register, B      the lines of the move
            -> lane, register, tile, B -> row, col        the line of the fragment

What remains is one line, such as that of A in ``m16n8k16``: lane 17 supplies the
address of row 1, column 8::

    row = L0 L1 L2 L3  col = U0 U1 U2 L4

U counts the elements of the 16 bytes.  If they are not the lowest digits of the
coordinate that is adjacent in memory, the move cannot be used.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import prod
from typing import Any, Literal, NamedTuple

from fragmenta.base.arrays.checks import is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import (
    BadCall,
    ShapeError,
    UnknownOperand,
    UnsupportedTarget,
    one_of,
)
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.tables.moves import PACKINGS
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Digit, Digits, Layout
from fragmenta.reference.shared.placement import Placement
from fragmenta.reference.shared.swizzles import UNIT

Along = Literal["m", "n", "k"]
Family = Literal["ldmatrix", "stmatrix"]

SIDES = {"A": "mk", "B": "kn", "C": "mn", "D": "mn"}
"""The dimensions of the rows and columns of each operand."""
PART = "part"
"""The axis that counts the moves of one fragment."""
_BITS = UNIT * 8


class Grouping(NamedTuple):
    """Which registers one instruction moves."""

    move: Instruction
    tiles: int = 1
    """Fragments that one instruction moves, adjacent ``along`` m, n or k."""
    along: Along | None = None
    parts: int = 1
    """Instructions that move one fragment."""
    tiles_first: bool = False
    """Whether the next register is that of the next fragment, not the next of one."""

    @property
    def num(self) -> str:
        """x1, x2 or x4."""
        return self.move.values["num"]

    def __str__(self) -> str:
        return self.num + (f" along {self.along}" if self.along else "")


@dataclass(frozen=True)
class TileGrid:
    """The fragments of a tile: how many there are in each dimension."""

    op: Instruction
    operand: str
    part: Fragment
    shape: tuple[int, int]

    @classmethod
    def of(
        cls, op: Instruction, operand: str, shape: tuple[int, int] | None
    ) -> TileGrid:
        """The tiles of an operand; by default one."""
        part = movable(op, operand)
        rows, cols = part.shape
        given = (rows, cols) if shape is None else shape
        pair = isinstance(given, tuple | list) and len(given) == 2
        whole = pair and all(is_whole(n) and n > 0 for n in given)
        if not whole or given[0] % rows or given[1] % cols:
            what = f"the stored {operand}" if part.stored > 1 else operand
            raise ShapeError(
                f"a tile of {what} of {op} must be (rows, columns), multiples of "
                f"{rows} and {cols}; given {shape!r}"
            )
        return cls(op, operand, part, (int(given[0]), int(given[1])))

    @property
    def counts(self) -> dict[str, int]:
        """The fragments along m, n or k: k first, as a loop over k has them."""
        sides = SIDES[self.operand]
        pairs = zip(sides, self.shape, self.part.shape, strict=True)
        found = {side: whole // one for side, whole, one in pairs}
        return dict(sorted(found.items(), key=lambda each: each[0] != "k"))

    def steps(self, group: Grouping) -> dict[str, int]:
        """How often an instruction is issued, by dimension, outermost first."""
        found = {
            side: count // (group.tiles if side == group.along else 1)
            for side, count in self.counts.items()
        }
        return found | ({PART: group.parts} if group.parts > 1 else {})


def movable(op: Instruction, operand: str) -> Fragment:
    """The fragment of an operand that moves can have, or why they cannot."""
    if not isinstance(operand, str) or operand not in op.fragments:
        raise UnknownOperand(
            f"{op} has the fragments {one_of(op.fragments, 'and')}; given {operand!r}"
        )
    part = op.fragments[operand]
    single = part.layout.data == ("row", "col") and not part.layout.free
    if not single or operand not in SIDES:
        raise BadCall(f"{operand} of {op} is not a single matrix without copies")
    if part.register_bits != 32:
        raise BadCall(
            f"ldmatrix and stmatrix move registers of 32 bits; {operand} of {op} has "
            f"registers of {part.register_bits} bits, so use ld.shared and st.shared "
            "with op.to_cuda()"
        )
    return part


# ── which registers one instruction moves ───────────────────────────────────


def groupings(
    family: Family, tiles: TileGrid, packed: bool, target: str
) -> Iterator[Grouping]:
    """All that fit the tile; those with more registers first, m or n before k."""
    wanted = {6: "b8x16.b6x16_p32", 4: "b8x16.b4x16_p64"}.get(tiles.part.dtype.bits)
    moves = [
        move
        for move in _moves(family, target)
        if (move.values["type"] in PACKINGS) == packed
        and (not packed or move.values["type"] == wanted)
    ]
    if not moves:
        what = f"packed {tiles.part.dtype} elements" if packed else "any operand"
        raise UnsupportedTarget(f"{target} has no {family} for {what}")
    for move in moves:
        yield from _of_move(move, tiles)


@cache
def _moves(family: Family, target: str) -> tuple[Instruction, ...]:
    """The instructions of a target, those with more registers first."""
    found = [
        move
        for move in catalogue(family)
        if not move.values["space"] and move.supported_on(target)
    ]
    return tuple(sorted(found, key=lambda each: -held(each).registers))


def _of_move(move: Instruction, tiles: TileGrid) -> Iterator[Grouping]:
    count, registers = held(move).registers, tiles.part.registers
    if registers % count == 0:
        yield Grouping(move, parts=registers // count)
    elif count % registers == 0:
        several: Any
        for several in sorted(tiles.counts, key=lambda side: side == "k"):
            if tiles.counts[several] % (count // registers) == 0:
                yield Grouping(move, count // registers, several)
                if registers > 1:
                    yield Grouping(move, count // registers, several, tiles_first=True)


def held(move: Instruction) -> Fragment:
    """What a move holds in registers."""
    (part,) = move.fragments.values()
    return part


def registers(group: Grouping, tiles: TileGrid) -> Layout:
    """Which register of which fragment each register of each instruction is.

    The coordinates are R and the tiles' dimensions; the axes are the steps and R, the
    register of the instruction.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> tiles = TileGrid.of(op, "B", (64, 64))
    >>> group = next(groupings("ldmatrix", tiles, False, "sm_80"))
    >>> print(group, "|", registers(group, tiles))
    x4 along n | R = R0  n = R1 n0 n1  k = k0 k1
    """
    count = held(group.move).registers
    own = count // group.tiles
    steps_of = (group.tiles, 1) if group.tiles_first else (1, own)
    digits: dict[str, Digits] = {"R": _digits("R", steps_of[0], own)}
    if group.along:
        digits[group.along] = _digits("R", steps_of[1], group.tiles)
    digits["R"] += _digits(PART, 1, group.parts)
    steps = tiles.steps(group)
    for side, size in tiles.counts.items():
        if size > 1:
            before = digits.get(side, ())
            digits[side] = before + _digits(side, 1, steps[side])
    axes = [(name, size) for name, size in steps.items() if size > 1]
    return Layout(tuple(digits.items()), (*axes, ("R", count)))


def _digits(axis: str, stride: int, size: int) -> Digits:
    return tuple(Digit(axis, stride, size).bits()) if size > 1 else ()


# ── who addresses what ──────────────────────────────────────────────────────


def addressed(group: Grouping, tiles: TileGrid, memory: Placement) -> Layout | str:
    """The row and col that each lane addresses in each step, or why none can.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> tiles = TileGrid.of(op, "B", (64, 64))
    >>> memory = Placement.of(op.b, (64, 64), order="row")
    >>> group = next(groupings("ldmatrix", tiles, False, "sm_80"))
    >>> addressed(group, tiles, memory)
    'ldmatrix.m8n8.b16 moves 16 adjacent bytes, but these are in several rows'
    >>> turned = fm.find("ldmatrix.m8n8.x4.trans.b16")
    >>> print(addressed(group._replace(move=turned), tiles, memory))
    row = L0 L1 L2 L3 k0 k1  col = U0 U1 U2 L4 n0 n1
    """
    part, slot = tiles.part, memory.slot
    whole = _tiled(_by_bits(part.layout, slot), tiles)
    loop = registers(group, tiles)
    found = _rows_by_lanes(held(group.move)).then(loop).then(whole)
    bits = _digits("V", 1, _BITS)
    inner = len(_digits("V", 1, slot))
    coordinates = dict(found.coordinates)
    adjacent = coordinates[memory.along]
    if coordinates["bit"] + adjacent[: len(bits) - inner] != bits:
        return f"{_short(group.move)} {_why(group.move, coordinates, memory)}"
    by_element = {
        name: tuple(
            Digit("U", digit.stride // slot, digit.size) if digit.axis == "V" else digit
            for digit in coordinates[name]
        )
        for name in ("row", "col")
    }
    sizes = dict(found.axes) | {"U": _BITS // slot}
    names = [*tiles.steps(group), "W", "L", "U"]
    axes = tuple((name, sizes[name]) for name in names if sizes.get(name, 1) > 1)
    return Layout(tuple(by_element.items()), axes)


@cache
def _rows_by_lanes(part: Fragment) -> Layout:
    """Where each bit of the row that a lane addresses goes: L, R and B by lane and V.

    Lane ``matrix * rows + row`` supplies the address of that row.
    """
    matrices, rows, cols = part.shape
    bits = part.dtype.bits
    lines = {
        "matrix": _digits("L", rows, matrices),
        "row": _digits("L", 1, rows),
        "col": _digits("V", bits, cols),
        "bit": _digits("V", 1, bits),
    }
    axes = (("L", matrices * rows), ("V", _BITS))
    found = Layout(tuple(lines.items()), axes)
    return found.then(_by_bits(part.layout, bits).inverse())


def _by_bits(layout: Layout, slot: int) -> Layout:
    """The layout with B, the bits of a register, in place of its elements."""
    coordinates = [
        (
            name,
            tuple(
                Digit("B", each.stride * slot, each.size) if each.axis == "E" else each
                for each in digits
            ),
        )
        for name, digits in layout.coordinates
    ]
    axes = [pair for pair in layout.axes if pair[0] != "E"]
    inside = ("bit", _digits("B", 1, slot))
    count = slot * dict(layout.axes).get("E", 1)
    return Layout((inside, *coordinates), (*axes, ("B", count)))


def _tiled(layout: Layout, tiles: TileGrid) -> Layout:
    """The layout of all fragments of a tile; m, n and k count them."""
    sides = dict(zip(("row", "col"), SIDES[tiles.operand], strict=True))
    coordinates = [
        (name, digits + _digits(side, 1, tiles.counts[side]))
        if (side := sides.get(name, ""))
        else (name, digits)
        for name, digits in layout.coordinates
    ]
    axes = [(side, count) for side, count in tiles.counts.items() if count > 1]
    return replace(layout, coordinates=tuple(coordinates), axes=(*axes, *layout.axes))


def _why(move: Instruction, found: dict[str, Digits], memory: Placement) -> str:
    """Why a form is not possible."""
    bits, slot = held(move).dtype.bits, memory.slot
    if move.values["trans"] and slot != bits:
        return f"transposes elements of {bits} bits, but these have {slot}"
    across = any(digit.axis == "V" for digit in found[memory.order])
    lines = {"row": "rows", "col": "columns"}[memory.order]
    if across or prod(digit.size for digit in found[memory.along]) * slot < _BITS:
        return f"moves {UNIT} adjacent bytes, but these are in several {lines}"
    return f"moves {UNIT} adjacent bytes, but these are apart in their {lines}"


def _short(move: Instruction) -> str:
    """The form, whatever the number of its matrices."""
    left = ("sync", "aligned", move.values["num"])
    return ".".join(word for word in str(move).split(".") if word not in left)
