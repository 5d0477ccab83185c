"""Where in shared memory is this operand?

``wgmma`` reads B, and optionally A, from shared memory.  A 64-bit descriptor says
where.  Elements that are adjacent along k (K-major), or along m or n (MN-major), are
adjacent in memory, in *spans*.  A span has 16 bytes without swizzle; with a swizzle
it is as wide as the swizzle.  Eight spans follow each other, one for each of eight
adjacent elements in the other direction.  They are an *atom* of 8 x span bytes.  The
two offsets are the distances between atoms::

    address = start + along % span + across % 8 * span
            + along // span * (one offset) + across // 8 * (the other)

``along`` counts bytes in the direction of the spans, and ``across`` counts elements in
the other direction.  :data:`OFFSETS` says which offset is which.  Finally the swizzle
exchanges 16-byte units: the lowest one, two or three of the address bits 4 to 6 are
XORed with as many bits from bit 7 up, less the base offset.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.arrays.checks import as_array, batch_shape, check_numbers, is_whole
from fragmenta.errors import AddressError, Error, ShapeError, one_of
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.table import read
from fragmenta.registers.dtype import DType, dtype

MajorAxis: TypeAlias = Literal["k", "mn"]
MAJORS: tuple[MajorAxis, MajorAxis] = ("k", "mn")
"""Which coordinate is adjacent in memory: k (plain), or m or n (transposed)."""
Addresses: TypeAlias = NDArray[np.int64]

#: Which offset is the distance to the next span, and which to the next eight across.
OFFSETS = """
major | swizzle   | along // span | across // 8
k     | none      | leading       | stride
k     | 32 64 128 | leading       | stride
mn    | 32 64 128 | leading       | stride
mn    | none      | stride        | leading
"""
_OFFSETS = {
    (line["major"], mode): (line["along // span"], line["across // 8"])
    for line in read(OFFSETS)
    for mode in line["swizzle"].split()
}

#: The fields of a descriptor, lowest first.  ``unit`` is the bytes that 1 stands for.
FIELDS = """
field       | low | bits | unit
start       | 0   | 14   | 16
leading     | 16  | 14   | 16
stride      | 32  | 14   | 16
base_offset | 49  | 3    | 1
swizzle     | 62  | 2    | mode
"""
_FIELDS = read(FIELDS)
MODES = (0, 128, 64, 32)
"""The swizzle in bytes of each mode."""

UNIT = 16
"""Bytes that stay together under every swizzle."""
LIMIT = 1 << 18
"""A descriptor can express addresses and offsets below this."""
FAR = 1 << 31
"""The limit of rows and columns, so that addresses fit 64 bits."""
LINES = 8
"""Spans in an atom."""
READ = 32
"""Bytes of k in each row that one ``wgmma`` reads; 64 for B if A is sparse."""


def swizzled(address: ArrayLike, swizzle: int) -> Any:
    """The address to which a swizzle moves the byte at ``address``.

    With 128 bytes, bits 4 to 6 are XORed with bits 7 to 9; with 64, bits 4 and 5 with
    bits 7 and 8; with 32, bit 4 with bit 7.  Address 0 is a multiple of 1024 in
    shared memory.  The swizzle is its own inverse.

    >>> [int(swizzled(line * 128, 128)) for line in range(4)]
    [0, 144, 288, 432]
    """
    return _swizzled(_index("an address", address, 1 << 62), swizzle)


def _swizzled(address: Addresses, swizzle: int, base_offset: int = 0) -> Any:
    return exchanged(address, span(swizzle) // UNIT - 1, base_offset)


def exchanged(address: Any, mask: Any, base_offset: Any = 0) -> Any:
    """An address with its 16-byte unit exchanged, as a swizzle does.

    ``mask`` is one less than the units of a span.  The address may be a number, an
    array or a traced value.

    >>> exchanged(128, 7), exchanged(128, 7, base_offset=1)
    (144, 128)
    """
    return address ^ ((address >> 7) - base_offset & mask) << 4


def span(swizzle: int) -> int:
    """Bytes of a span: the swizzle, or 16 without one.

    >>> span(0), span(64)
    (16, 64)
    """
    if not is_whole(swizzle) or swizzle not in MODES:
        raise AddressError(f"swizzle must be 0, 32, 64 or 128 bytes; given {swizzle!r}")
    return int(swizzle) or UNIT


def offset_names(major: MajorAxis, swizzle: int) -> tuple[str, str]:
    """The offset to the next span, and the one to the next eight across.

    >>> offset_names("mn", 0), offset_names("mn", 128)
    (('stride', 'leading'), ('leading', 'stride'))
    """
    return _OFFSETS[major, str(swizzle or "none")]


def _whole(name: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise AddressError(f"{name} must be a whole number; given {value!r}") from None


@dataclass(frozen=True)
class Descriptor:
    """Where ``wgmma`` finds an operand in shared memory; all values are in bytes.

    ``swizzle`` is 0, 32, 64 or 128.  Address 0 is a multiple of 1024 in shared memory,
    because the swizzle depends on bits of the address.  ``base_offset`` is the line of
    128 bytes, modulo 8, in which the pattern of the swizzle begins.

    >>> d = Descriptor(start=0, leading=128, stride=1024, swizzle=128)
    >>> hex(d.encode())
    '0x4000004000080000'
    >>> Descriptor.decode(d.encode()) == d
    True
    >>> d.address(mn=1, k=0, dtype="f16")
    144
    """

    start: int
    leading: int
    stride: int
    swizzle: int
    base_offset: int = 0

    def __post_init__(self) -> None:
        span(self.swizzle)
        for name in ("start", "leading", "stride"):
            _check_field(name, getattr(self, name))
        if not is_whole(self.base_offset) or self.base_offset not in range(8):
            raise AddressError(
                f"base_offset must be 0 to 7; given {self.base_offset!r}"
            )
        if self.base_offset and not self.swizzle:
            raise AddressError(
                f"base_offset must be 0 without a swizzle; given {self.base_offset!r}"
            )
        for name, value in vars(self).items():
            # A NumPy integer would lose bits when it is shifted into the word.
            object.__setattr__(self, name, _whole(name, value))

    # ── the 64-bit word ─────────────────────────────────────────────────────

    def encode(self) -> int:
        """The 64-bit word that the instruction takes.

        >>> hex(Descriptor(0x400, 16, 256, swizzle=32).encode())
        '0xc000001000010040'
        """
        word = 0
        for line in _FIELDS:
            value: int = getattr(self, line["field"])
            mode = line["unit"] == "mode"
            value = MODES.index(value) if mode else value // int(line["unit"])
            word |= value << int(line["low"])
        return word

    @classmethod
    def decode(cls, word: int) -> Descriptor:
        """The descriptor encoded in a 64-bit word.

        >>> Descriptor.decode(0xC000001000010040)
        Descriptor(start=1024, leading=16, stride=256, swizzle=32, base_offset=0)
        """
        given = _whole("a descriptor", word)
        if not 0 <= given < 1 << 64:
            raise AddressError(f"a descriptor has 64 bits; given {given:#x}")
        values = {}
        for line in _FIELDS:
            low, bits = int(line["low"]), int(line["bits"])
            value = given >> low & (1 << bits) - 1
            given &= ~((1 << bits) - 1 << low)
            mode = line["unit"] == "mode"
            values[line["field"]] = MODES[value] if mode else value * int(line["unit"])
        if given:
            wrong = [bit for bit in range(64) if given >> bit & 1]
            raise AddressError(
                f"{int(word):#018x} is not a wgmma descriptor: bit "
                f"{one_of(wrong, 'and')} must be 0"
            )
        return cls(**values)

    # ── the map ─────────────────────────────────────────────────────────────

    def address(
        self, mn: ArrayLike, k: ArrayLike, dtype: str | DType, major: MajorAxis = "k"
    ) -> Any:
        """The address of the first byte of element ``(mn, k)``.

        ``mn`` is the row of A or the column of B.  Arrays broadcast.  For a type
        narrower than a byte, :meth:`bit_address` returns the bit too.

        >>> d = Descriptor(start=0, leading=512, stride=128, swizzle=0)
        >>> d.address(mn=[0, 1, 8], k=8, dtype="f16")
        array([512, 528, 640])
        """
        found = self.bit_address(mn, k, dtype, major)
        return found // 8

    def bit_address(
        self, mn: ArrayLike, k: ArrayLike, dtype: str | DType, major: MajorAxis = "k"
    ) -> Any:
        """Eight times the byte address, plus the lowest bit of the element.

        >>> Descriptor(0, 128, 256, swizzle=0).bit_address(mn=0, k=130, dtype="b1")
        1026
        """
        rows, columns = _index("mn", mn), _index("k", k)
        batch_shape(mn=rows.shape, k=columns.shape)
        linear = self._linear(rows, columns, dtype, major)
        where = _swizzled(linear // 8, self.swizzle, self.base_offset)
        found = where * 8 + linear % 8
        return found if np.ndim(found) else int(found)

    def _linear(
        self, mn: Addresses, k: Addresses, of: str | DType, major: MajorAxis
    ) -> Addresses:
        """Bit addresses before the swizzle, by the formula of this module."""
        bits = _element(of, major).bits
        along, across = (k, mn) if major == "k" else (mn, k)
        to_span, to_lines = self._offsets(major)
        byte, bit = np.divmod(along * bits, 8)
        wide = span(self.swizzle)
        address = (
            self.start
            + byte % wide
            + across % LINES * wide
            + byte // wide * to_span
            + across // LINES * to_lines
        )
        found: Addresses = address * 8 + bit
        return found

    def _offsets(self, major: MajorAxis) -> tuple[int, int]:
        """The offset to the next span, and to the next eight across."""
        names = offset_names(major, self.swizzle)
        along, across = (int(getattr(self, name)) for name in names)
        return along, across

    # ── moving and making ───────────────────────────────────────────────────

    def advance(
        self,
        op: Instruction,
        operand: str,
        *,
        k: int = 0,
        mn: int = 0,
        major: MajorAxis = "k",
    ) -> Descriptor:
        """The descriptor of the tile that begins at element ``(mn, k)``.

        Only the start address changes, by the distance between the first elements
        of the two tiles.  That is right if all elements that the instruction reads
        move by the same distance; otherwise it is refused.  For example, within a
        128-byte span a dense operand can advance by multiples of 16 bytes up to 96,
        because it reads 32 bytes of each row.  The swizzle needs no attention: it is
        applied after the start address is added.  ``k`` counts stored columns; a
        sparse A stores half of its columns.

        >>> import fragmenta as fm
        >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
        >>> d = Descriptor.for_tile(64, 64, "f16", swizzle=128)
        >>> [d.advance(op, "A", k=16 * step).start for step in range(4)]
        [0, 32, 64, 96]
        """
        check_numbers(k=k, mn=mn)
        k, mn = int(_index("k", k)), int(_index("mn", mn))
        distance = self._distance(op, operand, k, mn, major)
        if distance is None:
            rows, columns = extent(op, operand)
            raise AddressError(
                f"{operand} of {op} cannot begin at mn {mn}, k {k}: from there, its "
                f"{rows} x {columns} elements are not at the same distances as from 0, "
                f"in {span(self.swizzle)}-byte spans and atoms of {LINES} lines"
                + self._nearest(op, operand, k, mn, major)
            )
        return replace(self, start=self.start + distance)

    def _distance(
        self, op: Instruction, operand: str, k: int, mn: int, major: MajorAxis
    ) -> int | None:
        """Bytes by which every element of a tile moves; None if they differ."""
        rows, columns = extent(op, operand)
        of = op.types[operand.lower()]
        grid = np.ogrid[:rows, :columns]
        moved = self._linear(grid[0] + mn, grid[1] + k, of, major)
        distance = moved - self._linear(grid[0], grid[1], of, major)
        first = int(distance[0, 0])
        whole = first % (8 * UNIT) == 0
        return first // 8 if whole and (distance == first).all() else None

    def _nearest(
        self, op: Instruction, operand: str, k: int, mn: int, major: MajorAxis
    ) -> str:
        """For a message: the greatest k below this one that is possible."""
        step = LINES if major == "mn" else 8 * UNIT // op.types[operand.lower()].bits
        # All spans are alike, and so are all eights of lines: it is enough to try one.
        tries = 1 if major == "mn" else span(self.swizzle) // UNIT
        for before in range((k - 1) // step * step, -1, -step)[:tries]:
            if self._distance(op, operand, before, mn, major) is not None:
                return f"; k {before} is possible"
        return ""

    @classmethod
    def for_tile(
        cls,
        rows: int,
        k: int,
        dtype: str | DType,
        *,
        major: MajorAxis = "k",
        swizzle: int = 128,
        start: int = 0,
        order: MajorAxis | None = None,
    ) -> Descriptor:
        """The descriptor of a tile without gaps between its atoms.

        ``rows`` is the number of rows of A or of columns of B; ``k`` is the number of
        stored columns.  ``order`` is the direction in which atoms follow each other;
        by default it is across the spans, as tensor-map copies write them.  If a tile
        is narrower than a span, the rest of each span is unused.

        >>> Descriptor.for_tile(64, 64, "f16", swizzle=128)
        Descriptor(start=0, leading=8192, stride=1024, swizzle=128, base_offset=0)
        >>> Descriptor.for_tile(64, 64, "s8", major="mn")
        Traceback (most recent call last):
        fragmenta.errors.AddressError: s8 cannot be MN-major: wgmma \
transposes only 16-bit types, f16 and bf16; use major="k"
        """
        lines, spans = atoms(rows, k, dtype, major, swizzle)
        atom = LINES * span(swizzle)
        if not is_whole(start) or (swizzle and int(start) % atom):
            raise AddressError(
                f"a tile with a {swizzle}-byte swizzle must start at a multiple of "
                f"{atom} bytes; given {start!r}"
            )
        if not (order is None or (isinstance(order, str) and order in MAJORS)):
            raise AddressError(f"order must be 'k' or 'mn'; given {order!r}")
        across_first = (order or ("mn" if major == "k" else "k")) != major
        steps = (lines * atom, atom) if across_first else (atom, spans * atom)
        return cls.from_steps(start, *steps, major=major, swizzle=swizzle)

    @classmethod
    def from_steps(
        cls, start: int, along: int, across: int, *, major: MajorAxis, swizzle: int
    ) -> Descriptor:
        """A descriptor from the distances between atoms, in bytes.

        ``along`` is the distance from a span to the next, ``across`` that from eight
        lines to the next eight.  :data:`OFFSETS` says which is which offset.

        >>> Descriptor.from_steps(0, 128, 256, major="mn", swizzle=0)
        Descriptor(start=0, leading=256, stride=128, swizzle=0, base_offset=0)
        """
        span(swizzle)
        _element("f16", major)
        names = offset_names(major, swizzle)
        named = dict(zip(names, (along, across), strict=True))
        return cls(start, named["leading"], named["stride"], swizzle)

    def __str__(self) -> str:
        mode = f"{self.swizzle}-byte swizzle" if self.swizzle else "no swizzle"
        base = f", base offset {self.base_offset}" if self.base_offset else ""
        return (
            f"start {self.start}, leading offset {self.leading}, "
            f"stride offset {self.stride}, {mode}{base}"
        )


def extent(op: Instruction, operand: str) -> tuple[int, int]:
    """Rows (m or n) and stored k of an operand in shared memory.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n24k32", a="f16", d="f32", sp="sp")
    >>> extent(op, "A"), extent(op, "B")
    ((64, 16), (24, 32))
    """
    if not op.warpgroup:
        raise Error(f"{op} does not take descriptors; wgmma.mma_async does")
    if not isinstance(operand, str) or operand not in ("A", "B"):
        raise Error(f"operand must be 'A' or 'B'; given {operand!r}")
    return _extent(op, operand)


@lru_cache(maxsize=1024)
def _extent(op: Instruction, operand: str) -> tuple[int, int]:
    if operand == "A":
        rows, k = op.fragments["A"].shape
        return rows, k
    return op.shape.n, op.shape.k


def atoms(
    rows: int, k: int, of: str | DType, major: MajorAxis, swizzle: int
) -> tuple[int, int]:
    """The number of atoms of a tile, across its spans and along them.

    >>> atoms(64, 64, "f16", "k", 128), atoms(24, 16, "f16", "mn", 32)
    ((8, 1), (2, 2))
    """
    dt = _element(of, major)
    wide = span(swizzle)
    if not is_whole(rows) or rows <= 0 or rows % LINES:
        raise AddressError(f"rows must be a positive multiple of 8; given {rows!r}")
    if not is_whole(k) or k <= 0 or int(k) * dt.bits % (8 * READ):
        least = 8 * READ // dt.bits
        raise AddressError(
            f"k must be a positive multiple of {least}, the {READ} bytes of {dt} that "
            f"wgmma reads; given {k!r}"
        )
    along, across = (k, rows) if major == "k" else (rows, k)
    return int(across) // LINES, -(-int(along) * dt.bits // (8 * wide))


def _element(of: str | DType, major: str) -> DType:
    dt = dtype(of)
    if not isinstance(major, str) or major not in MAJORS:
        raise AddressError(f'major must be "k" or "mn"; given {major!r}')
    if dt.bits == 6:
        raise AddressError(f"wgmma does not take {dt}, which has no packed form")
    if major == "mn" and dt.bits != 16:
        raise AddressError(
            f"{dt} cannot be MN-major: wgmma transposes only 16-bit types, f16 and "
            'bf16; use major="k"'
        )
    return dt


def _check_field(name: str, value: Any) -> None:
    what = "start address" if name == "start" else f"{name} offset"
    if not is_whole(value):
        raise AddressError(f"the {what} must be a number of bytes; given {value!r}")
    if value % UNIT:
        raise AddressError(
            f"the {what} must be a multiple of {UNIT} bytes; given {value}, nearest "
            f"{round(value / UNIT) * UNIT}"
        )
    if not 0 <= value < LIMIT:
        raise AddressError(
            f"the {what} must be 0 to {LIMIT - UNIT} bytes; given {value}"
        )


def _index(name: str, value: ArrayLike, limit: int = FAR) -> Addresses:
    given = as_array(value)
    large = is_whole(value) and given.dtype.kind == "O"  # too large for 64 bits
    if given.dtype.kind not in "iu" and not large:
        raise ShapeError(f"{name} must be a whole number, 0 or more; given {value!r}")
    if given.size and not 0 <= int(given.min()) <= int(given.max()) < limit:
        wrong = given[(given < 0) | (given >= limit)].flat[0]
        raise ShapeError(f"{name} must be 0 to {limit - 1}; given {wrong}")
    return given.astype(np.int64)
