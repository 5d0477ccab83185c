"""Tiles stored by rows or by columns: the addresses of their 16-byte units.

A tile has *lines*: its rows, or its columns if it is stored by columns.  Lines are
``pitch`` bytes apart, which may be more than they have (padding).  Tensor-map copies
cut long lines into *spans*: all lines of the first span come first, as a box, then the
next box.  So the offset of a unit is::

    line * pitch + unit % units * 16 + unit // units * lines * pitch

Then the swizzle exchanges units.  All of this is a layout (:attr:`Placement.layout`)
and one number of bytes for each of its coordinates (:attr:`Placement.weights`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, Required, TypedDict

import numpy as np
from numpy.typing import ArrayLike

from fragmenta.base.arrays.checks import Array, as_array, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import AddressError, BadCall, ShapeError
from fragmenta.reference.registers.fragment import Fragment
from fragmenta.reference.registers.layout import Digit, Digits, Layout
from fragmenta.reference.registers.words import pack_words, unpack_words
from fragmenta.reference.shared.descriptor import LIMIT, Addresses
from fragmenta.reference.shared.swizzles import (
    UNIT,
    AnySwizzle,
    XorSwizzle,
    moved,
    unit_swizzle,
)
from fragmenta.reference.shared.tiles import Image, as_image

Order = Literal["row", "col"]


class Placed(TypedDict, total=False):
    """How a tile is stored: the arguments of :meth:`Placement.of`."""

    order: Required[Order]
    pitch: int | None
    start: int
    swizzle: AnySwizzle
    span: int | None
    packed: bool


@dataclass(frozen=True)
class Placement:
    """How a tile of one operand is stored in shared memory; sizes are in bytes.

    >>> import fragmenta as fm
    >>> b = fm.mma("m16n8k16", a="f16", d="f32").b
    >>> tile = Placement.of(b, (64, 128), order="col", swizzle=128)
    >>> tile.pitch, tile.bytes, tile.repeat
    (128, 16384, 1024)
    >>> print(tile.words)
    column-major, columns 128 bytes apart, 128-byte swizzle
    >>> tile.units()[:3, :2].tolist()
    [[0, 16], [144, 128], [288, 304]]
    """

    part: Fragment
    shape: tuple[int, int]
    """Rows and columns of the tile."""
    order: Order
    pitch: int
    """The distance of lines."""
    start: int
    swizzle: XorSwizzle
    span: int
    """Bytes of a line that lie together."""
    packed: bool = False

    @classmethod
    def of(
        cls,
        part: Fragment,
        shape: tuple[int, int],
        *,
        order: Order,
        pitch: int | None = None,
        start: int = 0,
        swizzle: AnySwizzle = 0,
        span: int | None = None,
        packed: bool = False,
    ) -> Placement:
        """The placement of a tile, checked."""
        if not isinstance(order, str) or order not in ("row", "col"):
            raise BadCall(f'order must be "row" or "col"; given {order!r}')
        _check_packed(part, packed)
        slot = 8 if packed else part.container.bits
        line = -(-shape[order == "row"] * slot // 8)
        cut = line if span is None else span
        odd = not is_whole(cut) or cut < UNIT or cut % UNIT or line % cut
        if odd and span is not None:
            raise AddressError(
                f"span must be a multiple of {UNIT} bytes that divides a line of "
                f"{line} bytes; given {span!r}"
            )
        apart = cut if pitch is None else pitch
        whole = is_whole(start) and is_whole(apart)
        if not whole or start % UNIT or apart % UNIT or apart < cut or start < 0:
            raise AddressError(
                f"rows of a matrix are {UNIT} aligned bytes, so the tile must start at "
                f"a multiple of {UNIT}, and its {_lines(order)} of {cut} bytes must be "
                f"a multiple of {UNIT} apart; given start {start!r}, pitch {apart!r}"
            )
        xor = unit_swizzle(swizzle)
        if xor.repeat > LIMIT:
            raise AddressError(
                f"the pattern of {xor} has {xor.repeat:,} bytes; shared memory has at "
                f"most {LIMIT:,}"
            )
        made = cls(
            part, shape, order, int(apart), int(start), xor, int(cut), bool(packed)
        )
        if made.end > LIMIT:
            raise AddressError(
                f"the tile ends at byte {made.end:,}; byte addresses in shared memory "
                f"must be below {LIMIT:,}"
            )
        return made

    # ── sizes ───────────────────────────────────────────────────────────────

    @property
    def slot(self) -> int:
        """Bits from one element to the next."""
        return 8 if self.packed else self.part.container.bits

    @property
    def along(self) -> str:
        """The coordinate whose elements are adjacent: col if lines are rows."""
        return "col" if self.order == "row" else "row"

    @property
    def lines(self) -> int:
        """Rows, or columns if the tile is stored by columns."""
        return self.shape[self.order == "col"]

    @property
    def line_bytes(self) -> int:
        """Bytes that a line has."""
        return self.shape[self.order == "row"] * self.slot // 8

    @property
    def boxes(self) -> int:
        """Spans of a line."""
        return self.line_bytes // self.span

    @property
    def bytes(self) -> int:
        """Bytes that the tile takes, from its start, with the padding."""
        return self.boxes * self.lines * self.pitch

    @property
    def repeat(self) -> int:
        """What the address that counts as 0 must be a multiple of."""
        return self.swizzle.repeat

    @property
    def end(self) -> int:
        """Where the tile ends; a swizzle exchanges whole patterns."""
        return -(-(self.start + self.bytes) // self.repeat) * self.repeat

    @property
    def words(self) -> str:
        """How it is stored, as a sentence has it."""
        major = {"row": "row-major", "col": "column-major"}[self.order]
        boxes = f", in {self.boxes} boxes" if self.boxes > 1 else ""
        apart = f"{_lines(self.order)} {self.pitch} bytes apart"
        return f"{major}, {apart}{boxes}, {self.swizzle.words}"

    # ── addresses ───────────────────────────────────────────────────────────

    @cached_property
    def layout(self) -> Layout:
        """The line, the unit and the box by row and col; one of them counts units."""
        units, inside = self.line_bytes // UNIT, self.span // UNIT
        across = self.order

        def cut(stride: int, size: int) -> Digits:
            return tuple(Digit(self.along, stride, size).bits()) if size > 1 else ()

        lines = tuple(Digit(across, 1, self.lines).bits()) if self.lines > 1 else ()
        return Layout(
            (
                ("line", lines),
                ("unit", cut(1, inside)),
                ("box", cut(inside, self.boxes)),
            ),
            ((across, self.lines), (self.along, units)),
        )

    @property
    def weights(self) -> dict[str, int]:
        """Bytes from one line, unit and box to the next."""
        return {"line": self.pitch, "unit": UNIT, "box": self.lines * self.pitch}

    def addresses(self, line: ArrayLike, unit: ArrayLike) -> Addresses:
        """The addresses of units, which are counted in their lines."""
        place = {self.order: line, self.along: unit}
        return self.swizzled(self.layout.element(**place))

    def swizzled(self, places: Mapping[str, ArrayLike]) -> Addresses:
        """The addresses of a line, a unit and a box."""
        offset = sum(
            np.asarray(places[name], np.int64) * weight
            for name, weight in self.weights.items()
        )
        found: Addresses = np.asarray(moved(self.start + offset, self.swizzle))
        return found

    def units(self) -> Addresses:
        """The address of each unit: (lines, units of a line)."""
        line, unit = np.ogrid[: self.lines, : self.line_bytes // UNIT]
        return np.array(np.broadcast_arrays(self.addresses(line, unit))[0])

    # ── content ─────────────────────────────────────────────────────────────

    def image(self, matrix: ArrayLike) -> Image:
        """Bytes of shared memory that hold a matrix, or several: (…, bytes)."""
        given = as_array(matrix)
        if given.shape[-2:] != self.shape:
            raise ShapeError(
                f"the tile has {self.shape[0]} x {self.shape[1]} elements; given "
                f"{given.shape}"
            )
        bits = self.part.dtype.encode(given)
        slots = bits if self.packed else self.part.container.insert(bits)
        slots = slots if self.order == "row" else np.swapaxes(slots, -1, -2)
        where = self.units()
        units = self._to_bytes(slots).reshape(*slots.shape[:-2], *where.shape, UNIT)
        made = np.zeros((*slots.shape[:-2], self.end), np.uint8)
        made[..., where[..., None] + np.arange(UNIT)] = units
        return made

    def matrix(self, image: ArrayLike) -> Array:
        """The matrix that an image holds: the inverse of :meth:`image`."""
        memory, where = as_image(image), self.units()
        if memory.shape[-1] < int(where.max()) + UNIT:
            raise AddressError(
                f"the tile ends at byte {int(where.max()) + UNIT}; the image has "
                f"{memory.shape[-1]}"
            )
        units = memory[..., where[..., None] + np.arange(UNIT)]
        slots = self._from_bytes(units.reshape(*units.shape[:-2], -1))
        slots = slots if self.order == "row" else np.swapaxes(slots, -1, -2)
        bits = slots if self.packed else self.part.container.extract(slots)
        return self.part.dtype.decode(bits)

    def _to_bytes(self, slots: Array) -> Image:
        rows = np.ascontiguousarray(slots)
        if self.packed:  # 16 elements, lowest first, then bytes that are not used
            bits = np.unpackbits(rows[..., None].view(np.uint8), -1, bitorder="little")
            units = bits[..., : self.part.dtype.bits].reshape(
                *rows.shape[:-1], -1, UNIT
            )
            units = units.reshape(*rows.shape[:-1], -1, UNIT * self.part.dtype.bits)
            held = np.packbits(units, -1, bitorder="little")
            spare = UNIT - held.shape[-1]
            return np.pad(held, [(0, 0)] * (held.ndim - 1) + [(0, spare)])
        packed = pack_words(rows, self.slot, 32) if self.slot < 8 else rows
        return np.ascontiguousarray(packed).view(np.uint8)

    def _from_bytes(self, lines: Image) -> Array:
        lines = np.ascontiguousarray(lines)
        if self.packed:
            width = self.part.dtype.bits
            units = lines.reshape(*lines.shape[:-1], -1, UNIT)[..., : 2 * width]
            bits = np.unpackbits(units, -1, bitorder="little")
            grouped = bits.reshape(*units.shape[:-1], UNIT, width)
            found = np.packbits(grouped, -1, bitorder="little")
            return found.reshape(*lines.shape[:-1], -1)
        return (
            unpack_words(lines, self.slot)
            if self.slot < 8
            else lines.view(f"u{self.slot // 8}")
        )


def _lines(order: Order) -> str:
    return "rows" if order == "row" else "columns"


def _check_packed(part: Fragment, packed: bool) -> None:
    if not isinstance(packed, bool | np.bool_):
        raise BadCall(f"packed must be True or False; given {packed!r}")
    if not packed:
        return
    if part.dtype.bits not in (4, 6):
        raise BadCall(f"packed is for 6-bit and 4-bit types; given {part.dtype}")
    if part.container.shift:
        raise BadCall(
            f"{part.dtype} must be in bits {part.container.shift} and up of a byte, "
            "but unpacking puts it into the lowest bits: shift it by "
            f"{part.container.shift} afterwards"
        )
