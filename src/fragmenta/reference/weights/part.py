"""What a lane holds of a weight, and how many steps one load takes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from math import gcd, prod
from typing import NamedTuple

from fragmenta.base.arrays.checks import check_numbers, is_among, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import (
    BadCall,
    Error,
    LayoutError,
    ShapeError,
    UnknownOperand,
    one_of,
)
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.weights.orders import BITS, WORD, multiples

LOADS = (4, 8, 16, 32, 64)
"""The bytes that a lane may load at once; above 16, they are several loads."""
_USUAL = 16

Sizes = Mapping[str, int]


class LoadTiling(NamedTuple):
    """The instructions whose registers one load brings: along k and along n."""

    k: int
    n: int


@dataclass(frozen=True)
class WeightOperand:
    """An operand that is a weight, with elements of so many bits."""

    op: Instruction
    letter: str
    bits: int
    tiles: str = ""
    """Which rows and columns each instruction takes, if not a tile."""

    def __post_init__(self) -> None:
        fragment, width = self.fragment, self.container
        if fragment.layout.free:
            raise Error(f"{self.letter} of {self.op} is held more than once")
        if width > WORD:
            raise BadCall(f"{self.letter} of {self.op} has elements of {width} bits")
        if self.bits > width:
            raise BadCall(
                f"{self.letter} of {self.op} has elements of {width} bits, so a weight "
                f"has {one_of(b for b in BITS if b <= width)}; given {self.bits}"
            )

    @property
    def fragment(self) -> Fragment:
        """The operand."""
        return self.op.fragment(self.letter)

    @property
    def container(self) -> int:
        """The bits of an element in a register."""
        return self.fragment.container.bits

    @cached_property
    def line_of_tiles(self) -> str:
        """The row and the column of the weight, by those in the operand."""
        first, second = ("k", "n") if self.letter == "B" else ("n", "k")
        return self.tiles or f"{first} = row* Y*  {second} = col* X*"

    @property
    def names(self) -> tuple[str, str]:
        """The coordinates of the weight, rows first."""
        first, second = (
            part.split()[0] for part in self.line_of_tiles.split("  ") if part
        )
        return first, second

    @property
    def axes(self) -> dict[str, str]:
        """The axis that counts the tiles along k, and that along n."""
        return {"k": "Y", "n": "X"} if self.letter == "B" else {"k": "X", "n": "Y"}

    @property
    def tile(self) -> dict[str, int]:
        """The elements of k and of n in one instruction."""
        rows, columns = self.fragment.shape
        along = {"Y": rows, "X": columns}
        return {name: along[axis] for name, axis in self.axes.items()}

    @property
    def lane_bits(self) -> int:
        """The bits of a lane's elements in one step."""
        held = self.fragment
        return held.registers * held.elements * self.bits

    # ── the order ───────────────────────────────────────────────────────────

    def counts(self, line: str, sizes: Sizes, name: str) -> dict[str, int]:
        """The tiles along each axis; sizes that are no whole number are refused."""
        check_line(line)
        least, tile = multiples(line), self.tile
        units = {each: tile[each] * least.get(self.axes[each], 1) for each in tile}
        check_multiples(sizes, units, self.names, name)
        return {axis: sizes[each] // tile[each] for each, axis in self.axes.items()}

    def places(self, counts: Sizes) -> Layout:
        """The row and the column of the weight at each place."""
        rows, columns = self.fragment.shape
        both = {"Y": counts["Y"], "X": counts["X"], "row": rows, "col": columns}
        return self.fragment.layout.then(Layout.parse(self.line_of_tiles, **both))

    def memory(self, line: str, counts: Sizes) -> Layout:
        """The order in memory that a line says."""
        axes = {"Y": counts["Y"], "X": counts["X"], **dict(self.fragment.layout.axes)}
        return memory_of(line, axes)

    def channel(self, line: str, counts: Sizes) -> Layout:
        """The column at each offset, by a line over the fragment of D.

        D has the rows of A, or the columns of B.
        """
        d, axis = self.op.fragment("D").layout, self.axes["n"]
        parts = self.line_of_tiles.split("  ")
        columns = next(part for part in parts if part.startswith("n ="))
        other = "row" if self.letter == "B" else "col"
        sizes = {axis: counts[axis], **d.sizes}
        tiles = Layout.parse(f"{columns}  rest = {other}*", **sizes)
        order = Layout.parse(f"offset = {line}", **{axis: counts[axis]}, **dict(d.axes))
        return order.inverse().then(d.then(tiles))

    def line(self, steps: LoadTiling, inner: str) -> str:
        """The order in which one load brings so many steps."""
        if not is_among(inner, ("k", "n")):
            raise BadCall(f"inner is 'k' or 'n'; given {inner!r}")
        held = [axis for axis, _ in self.fragment.layout.axes]
        words = [f"{axis}*" for axis in "ER" if axis in held]
        rest = {}
        for name, count in zip("kn", steps, strict=True):
            digits = count.bit_length() - 1
            axis = self.axes[name]
            words += [f"{axis}{digit}" for digit in range(digits)]
            rest[name] = f"{axis}{digits}*"
        words += [f"{axis}*" for axis in "LW" if axis in held]
        outer = "n" if inner == "k" else "k"
        return " ".join([*words, rest[inner], rest[outer]])

    # ── steps ───────────────────────────────────────────────────────────────

    def steps(
        self,
        sizes: Sizes,
        load_bytes: int | None,
        k_steps: int | None,
        n_steps: int | None,
    ) -> LoadTiling:
        """The steps along k and n that a load brings."""
        given = {"load_bytes": load_bytes, "k_steps": k_steps, "n_steps": n_steps}
        known = {name: value for name, value in given.items() if value is not None}
        check_numbers(**known)
        if k_steps is not None and n_steps is not None and load_bytes is None:
            load = self.lane_bits * k_steps * n_steps
        else:
            load = 8 * (_USUAL if load_bytes is None else load_bytes)
        if load not in [8 * size for size in LOADS]:
            raise ShapeError(
                f"a lane loads {one_of(LOADS)} bytes at once; given "
                f"{_listed(known)}{'' if load_bytes else f', which are {load / 8:g}'}"
            )
        total = load // self.lane_bits
        if not total:
            raise ShapeError(
                f"a lane has {self.lane_bits // 8} bytes of {self.letter} in one step, "
                f"so load_bytes is at least that; given {_listed(known) or load // 8}"
            )
        pairs = [(total >> i, 1 << i) for i in range(total.bit_length())]
        tiles = {name: sizes[name] // size for name, size in self.tile.items()}
        if k_steps is None and n_steps is None:
            k_steps = gcd(total, tiles["k"]) or total
        fits = [
            pair
            for pair in pairs
            if k_steps in (None, pair[0]) and n_steps in (None, pair[1])
        ]
        if not fits:
            held = f"{self.lane_bits / 8:g} bytes"
            if self.lane_bits < 8:
                held = f"{self.lane_bits} bits"
            listed = one_of(f"{k} x {n}" for k, n in pairs)
            raise ShapeError(
                f"a lane has {held} of {self.letter} in one step, so {load // 8} bytes "
                f"are k_steps x n_steps of {listed}; given {_listed(known)}"
            )
        return LoadTiling(*fits[0])


def _listed(given: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={value}" for name, value in given.items())


def check_line(line: object) -> None:
    """Refuse what is no text of one line."""
    if not isinstance(line, str):
        raise LayoutError(f"memory is a line, such as 'E* R* L* Y* X*'; given {line!r}")


def memory_of(line: str, axes: Sizes) -> Layout:
    """The order in memory that a line says, over some axes."""
    whole = line if "=" in line else f"offset = {line}"
    found = Layout.parse(whole, **axes)
    if found.data != ("offset",) or found.free:
        raise LayoutError(f"{line}: an order in memory has one coordinate, the offset")
    if found.has_xor:
        raise LayoutError(f"{line}: an order of weights has no XOR; list its digits")
    if prod(found.place_shape) >= 1 << 40:
        raise ShapeError(f"a weight of {prod(found.place_shape)} elements is too large")
    return found


def check_multiples(
    sizes: Sizes, units: Sizes, names: tuple[str, str], what: str
) -> None:
    """Refuse a weight that is no whole number of blocks."""
    short = {name: -sizes[name] % units.get(name, 1) for name in names}
    if any(short.values()):
        rows, columns = names
        raise ShapeError(
            f"{what} takes multiples of {units.get(rows, 1)} rows ({rows}) and "
            f"{units.get(columns, 1)} columns ({columns}); given "
            f"{sizes[rows]}x{sizes[columns]}; the next is "
            f"{sizes[rows] + short[rows]}x{sizes[columns] + short[columns]}"
        )


def check_bits(bits: object) -> None:
    """Refuse elements that do not fill words."""
    if not is_whole(bits) or bits not in BITS:
        raise ShapeError(f"an element has {one_of(BITS)} bits; given {bits!r}")


def check_shape(shape: object, names: tuple[str, str]) -> dict[str, int]:
    """The sizes of a weight by the names of its coordinates."""
    good = isinstance(shape, tuple | list) and len(shape) == 2
    if not good or not all(is_whole(size) and size > 0 for size in shape):  # type: ignore[attr-defined]
        first, second = names
        raise ShapeError(
            f"shape is ({first.upper()}, {second.upper()}), two whole numbers above 0; "
            f"given {shape!r}"
        )
    return dict(zip(names, map(int, shape), strict=True))  # type: ignore[call-overload]


def check_operand(op: Instruction, operand: str) -> str:
    """A or B, held in registers."""
    letter = str(operand).upper()
    if letter not in ("A", "B"):
        raise UnknownOperand(f"a weight is A or B of an instruction; given {operand!r}")
    found = op.fragment(letter)
    if not isinstance(found, Fragment) or len(found.shape) != 2:
        raise BadCall(f"{letter} of {op} is not a matrix in registers")
    return letter
