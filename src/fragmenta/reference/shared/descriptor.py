"""Descriptors: where an operand of ``wgmma`` or ``tcgen05`` is in shared memory.

``wgmma`` and ``tcgen05.mma`` read B, and optionally A, from shared memory.  A 64-bit
descriptor says where.  Elements that are adjacent along k (K-major), or along m or n
(MN-major), are adjacent in memory, in *spans*.  A span has 16 bytes without swizzle;
with a swizzle it is as wide as the swizzle.  Eight spans follow each other, one for
each of eight adjacent elements in the other direction; four with the swizzle
``"128/32"``.  They are an *atom* of lines x span bytes.  The two offsets are the
distances between atoms::

    address = start + along % span + across % lines * span
            + along // span * (one offset) + across // lines * (the other)

``along`` counts bytes in the direction of the spans, and ``across`` counts elements in
the other direction.  :data:`OFFSETS` says which offset is which.  Finally the swizzle
exchanges parts of 128-byte lines (:mod:`fragmenta.reference.shared.swizzles`); the
line's number, less the base offset, says how.
"""

from __future__ import annotations

import operator
from dataclasses import field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import as_array, batch_shape, check_numbers, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import AddressError, ShapeError
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.table import read
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.shared.elements import MAJORS, MajorAxis, check_family, stored
from fragmenta.reference.shared.fields import (
    FIELDS,
    MODES,
    Family,
    check_swizzle,
    decode_fields,
    encode_fields,
)
from fragmenta.reference.shared.operands import check_belongs, extent, major_of
from fragmenta.reference.shared.swizzles import (
    ATOM_32,
    UNIT,
    AnySwizzle,
    Swizzle,
    exchanged,
    moved,
    pattern,
    span,
)

# Other rooms find here all that they need to use descriptors.
__all__ = [
    "FAR",
    "FIELDS",
    "LIMIT",
    "LINES",
    "MAJORS",
    "MODES",
    "OFFSETS",
    "READ",
    "UNIT",
    "Addresses",
    "Descriptor",
    "Family",
    "MajorAxis",
    "Swizzle",
    "atoms",
    "exchanged",
    "extent",
    "major_of",
    "offset_names",
    "span",
    "swizzled",
]

Addresses: TypeAlias = NDArray[np.int64]

#: Which offset is the distance to the next span, and which to the next eight across;
#: with ``128/32`` it is the next four.
OFFSETS = """
major | swizzle   | along // span | across // 8
k     | none      | leading       | stride
k     | 32 64 128 | leading       | stride
mn    | 32 64 128 | leading       | stride
mn    | none      | stride        | leading
mn    | 128/32    | leading       | stride
"""
_OFFSETS = {
    (line["major"], mode): (line["along // span"], line["across // 8"])
    for line in read(OFFSETS)
    for mode in line["swizzle"].split()
}

LIMIT = 1 << 18
"""A descriptor can express addresses and offsets below this."""
FAR = 1 << 31
"""The limit of rows and columns, so that addresses fit 64 bits."""
LINES = 8
"""Spans in an atom, but for the swizzle ``"128/32"``, whose atoms have four."""
READ = 32
"""Bytes of k in each row that one instruction reads; 64 for B if A is sparse."""


def swizzled(address: ArrayLike, swizzle: AnySwizzle) -> Addresses:
    """The address to which a swizzle moves the byte at ``address``.

    With 128 bytes, bits 4 to 6 are XORed with bits 7 to 9; with 64, bits 4 and 5 with
    bits 7 and 8; with 32, bit 4 with bit 7.  With ``"128/32"``, bits 5 and 6 are XORed
    with bits 7 and 8.  Address 0 is a multiple of 1024 in shared memory.  The swizzle
    is its own inverse.

    >>> [int(swizzled(line * 128, 128)) for line in range(4)]
    [0, 144, 288, 432]
    """
    found: Addresses = moved(_index("an address", address, 1 << 62), swizzle)
    return found


def offset_names(major: MajorAxis, swizzle: Swizzle) -> tuple[str, str]:
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


@dataclass(frozen=True, repr=False)
class Descriptor:
    """Where an instruction finds an operand in shared memory; all values are in bytes.

    ``swizzle`` is 0, 32, 64 or 128, or ``"128/32"``.  Address 0 is a multiple of 1024
    in shared memory, because the swizzle depends on bits of the address.
    ``base_offset`` is the line of 128 bytes, modulo 8, in which the pattern of the
    swizzle begins; without a swizzle it means nothing.  ``family`` is ``"wgmma"`` or
    ``"tcgen05"``.  Of ``tcgen05`` on sm_103a, ``absolute`` says that ``leading`` is an
    address.

    >>> d = Descriptor(start=0, leading=128, stride=1024, swizzle=128)
    >>> hex(d.encode())
    '0x4000004000080000'
    >>> Descriptor.decode(d.encode()) == d
    True
    >>> d.address(mn=1, k=0, dtype="f16")
    144
    >>> hex(d.to_tcgen05().encode())
    '0x4000404000080000'
    """

    start: int
    leading: int
    stride: int
    swizzle: Swizzle
    base_offset: int = 0
    family: Family = "wgmma"
    absolute: bool = False
    tile: tuple[int, int] | None = field(default=None, compare=False)
    """Rows (m or n) and stored columns (k) from the start on; None if not known.  The
    word does not have it."""

    def __post_init__(self) -> None:
        check_family(self.family)
        check_swizzle(self.swizzle, self.family)
        for name in ("start", "leading", "stride"):
            _check_field(name, getattr(self, name), self.family)
        if not is_whole(self.base_offset) or self.base_offset not in range(8):
            raise AddressError(
                f"base_offset must be 0 to 7; given {self.base_offset!r}"
            )
        if not isinstance(self.absolute, bool | np.bool_):
            raise AddressError(f"absolute must be a bool; given {self.absolute!r}")
        if self.absolute:
            self._check_absolute()
        for name in ("start", "leading", "stride", "base_offset"):
            # A NumPy integer would lose bits when it is shifted into the word.
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        object.__setattr__(self, "swizzle", pattern(self.swizzle).swizzle)
        object.__setattr__(self, "absolute", bool(self.absolute))

    def _check_absolute(self) -> None:
        """Refuse an absolute leading offset where no target has it."""
        right = {"family": "tcgen05", "swizzle": 128, "base_offset": 0}
        for name, value in right.items():
            if getattr(self, name) != value:
                raise AddressError(
                    f"an absolute leading offset needs {name} {value}, and sm_103a; "
                    f"given {getattr(self, name)!r}"
                )

    # ── the 64-bit word ─────────────────────────────────────────────────────

    def encode(self) -> int:
        """The 64-bit word that the instruction takes.

        >>> hex(Descriptor(0x400, 16, 256, swizzle=32).encode())
        '0xc000001000010040'
        """
        return encode_fields(self.family, vars(self))

    @classmethod
    def decode(cls, word: int, family: Family = "wgmma") -> Descriptor:
        """The descriptor encoded in a 64-bit word.

        >>> Descriptor.decode(0xC000001000010040)
        Descriptor(start=1024, leading=16, stride=256, swizzle=32, base_offset=0)
        >>> Descriptor.decode(0x4000004000010000, family="tcgen05")
        Traceback (most recent call last):
        fragmenta.errors.AddressError: 0x4000004000010000 is not a tcgen05 \
descriptor: bit 46 is not set: this is a wgmma descriptor; for tcgen05 set it: \
0x4000404000010000
        """
        check_family(family)
        return cls(**decode_fields(family, word), family=family)

    def to_tcgen05(self) -> Descriptor:
        """The same for ``tcgen05``: bit 46 is set.

        >>> d = Descriptor(0, 16, 1024, swizzle=128)
        >>> hex(d.encode()), hex(d.to_tcgen05().encode())
        ('0x4000004000010000', '0x4000404000010000')
        """
        return replace(self, family="tcgen05")

    def to_wgmma(self) -> Descriptor:
        """The same for ``wgmma``; refused if ``wgmma`` cannot say it.

        >>> d = Descriptor(0, 512, 1024, swizzle="128/32", family="tcgen05")
        >>> d.to_wgmma()
        Traceback (most recent call last):
        fragmenta.errors.AddressError: swizzle must be 0, 32, 64 or 128 bytes; given \
'128/32'
        """
        return replace(self, family="wgmma")

    # ── the map ─────────────────────────────────────────────────────────────

    def address(
        self,
        mn: ArrayLike,
        k: ArrayLike,
        dtype: str | DType,
        major: MajorAxis = "k",
        kind: str | None = None,
    ) -> Any:
        """The address of the first byte of element ``(mn, k)``.

        ``mn`` is the row of A or the column of B.  Arrays broadcast.  For a type
        narrower than a byte, :meth:`bit_address` returns the bit too; ``kind`` says
        whether ``tcgen05`` pads it.

        >>> d = Descriptor(start=0, leading=512, stride=128, swizzle=0)
        >>> d.address(mn=[0, 1, 8], k=8, dtype="f16")
        array([512, 528, 640])
        """
        found = self.bit_address(mn, k, dtype, major, kind)
        return found // 8

    def bit_address(
        self,
        mn: ArrayLike,
        k: ArrayLike,
        dtype: str | DType,
        major: MajorAxis = "k",
        kind: str | None = None,
    ) -> Any:
        """Eight times the byte address, plus the lowest bit of the element.

        >>> Descriptor(0, 128, 256, swizzle=0).bit_address(mn=0, k=130, dtype="b1")
        1026
        """
        rows, columns = _index("mn", mn), _index("k", k)
        batch_shape(mn=rows.shape, k=columns.shape)
        linear = self._linear(rows, columns, dtype, major, kind)
        where = moved(linear // 8, self.swizzle, self.base_offset)
        found = where * 8 + linear % 8
        return found if np.ndim(found) else int(found)

    def _linear(
        self,
        mn: Addresses,
        k: Addresses,
        of: str | DType,
        major: MajorAxis,
        kind: str | None,
    ) -> Addresses:
        """Bit addresses before the swizzle, by the formula of this module."""
        element = stored(of, major, self.family, self.swizzle, kind)
        along, across = (k, mn) if major == "k" else (mn, k)
        to_span, to_lines = self._offsets(major)
        byte, bit = np.divmod(element.bit(along), 8)
        shape = pattern(self.swizzle)
        if self.family == "tcgen05":
            self._check_known(int(np.max(byte, initial=0)), major)
        address = (
            self.start
            + byte % shape.span
            + across % shape.lines * shape.span
            + byte // shape.span * to_span
            + across // shape.lines * to_lines
        )
        found: Addresses = address * 8 + bit
        return found

    def _check_known(self, byte: int, major: MajorAxis) -> None:
        """Refuse what only a Blackwell can say."""
        if self.base_offset and self.swizzle:
            raise AddressError(
                "how tcgen05 applies a base offset was not seen on hardware; begin the "
                f"pattern at a multiple of {pattern(self.swizzle).repeat} bytes, with "
                f"base_offset 0; given {self.base_offset}"
            )
        if self.absolute and major != "k":
            raise AddressError("an absolute leading offset is for K-major operands")
        wide = span(self.swizzle)
        if self.absolute and self.start % wide + byte >= wide:
            raise AddressError(
                "how sm_103a finds what is beyond a span by an absolute leading offset "
                f"was not seen on hardware: byte {byte} from start {self.start} on is "
                f"beyond {wide} bytes"
            )

    def check_reach(self, size: int) -> None:
        """Refuse K-major rows of ``size`` bytes that ``tcgen05`` cannot read.

        With a swizzle it does not use the leading offset, so a row must end within
        its span.

        >>> Descriptor(96, 16, 1024, 128, family="tcgen05").check_reach(48)
        Traceback (most recent call last):
        fragmenta.errors.AddressError: rows of 48 bytes from byte 96 of a span on end \
beyond its 128 bytes; with a swizzle, K-major rows of tcgen05 must be within a span
        """
        wide = span(self.swizzle)
        inside = self.start % wide
        if self.family == "tcgen05" and self.swizzle and inside + size > wide:
            raise AddressError(
                f"rows of {size} bytes from byte {inside} of a span on end beyond its "
                f"{wide} bytes; with a swizzle, K-major rows of tcgen05 must be within "
                "a span"
            )

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
        major: MajorAxis | None = None,
    ) -> Descriptor:
        """The descriptor of the operand that begins ``mn`` rows and ``k`` columns on.

        Both are counted from where this descriptor begins, so that steps add up:
        ``d.advance(op, "A", k=16).advance(op, "A", k=16)`` is two steps.  ``k`` counts
        stored columns; a sparse A stores half of its columns.  ``major`` is K by
        default; of ``tcgen05`` the instruction descriptor has it.

        Only the start address changes, by the distance between the first elements.
        That is right if all elements that the instruction reads move by the same
        distance; otherwise it is refused.  For example, within a 128-byte span a dense
        operand can advance by multiples of 16 bytes up to 96, because it reads 32
        bytes of each row.  The swizzle needs no attention: it is applied after the
        start address is added.

        What leaves the tile is refused, if the tile is known: that of
        :meth:`for_tile` is, that of a word is not.

        >>> import fragmenta as fm
        >>> op = fm.wgmma("m64n8k16", a="f16", d="f32")
        >>> d = Descriptor.for_tile(64, 64, "f16", swizzle=128)
        >>> [d.advance(op, "A", k=16 * step).start for step in range(4)]
        [0, 32, 64, 96]
        >>> d.advance(op, "A", k=48).advance(op, "A", k=16)
        Traceback (most recent call last):
        fragmenta.errors.AddressError: A of wgmma.mma_async.sync.aligned.m64n8k16.f32.\
f16.f16 is 64 x 16 and leaves its tile: from mn 0, k 16 on it is 64 x 0; k 0 is the \
last step that fits
        """
        check_numbers(k=k, mn=mn)
        k, mn = int(_index("k", k)), int(_index("mn", mn))
        check_belongs(self.family, op)
        side = major_of(op, operand, major)
        distance = self._distance(op, operand, k, mn, side)
        if distance is None:
            rows, columns = extent(op, operand)
            raise AddressError(
                f"{operand} of {op} cannot begin at mn {mn}, k {k}: from there, its "
                f"{rows} x {columns} elements are not at the same distances as from 0, "
                f"in {span(self.swizzle)}-byte spans and atoms of "
                f"{pattern(self.swizzle).lines} lines"
                + self._nearest(op, operand, k, mn, side)
            )
        return replace(
            self, start=self.start + distance, tile=self._rest(op, operand, k, mn)
        )

    def _rest(
        self, op: Instruction, operand: str, k: int, mn: int
    ) -> tuple[int, int] | None:
        """What is left of the tile, in which the operand must fit."""
        if self.tile is None:
            return None
        rows, columns = extent(op, operand)
        left = self.tile[0] - mn, self.tile[1] - k
        if rows > left[0] or columns > left[1]:
            last = self.tile[1] - columns
            fits = f"; k {last} is the last step that fits" if last >= 0 else ""
            raise AddressError(
                f"{operand} of {op} is {rows} x {columns} and leaves its tile: from mn "
                f"{mn}, k {k} on it is {max(0, left[0])} x {max(0, left[1])}"
                + (fits if rows <= left[0] else "")
            )
        return left

    def _distance(
        self, op: Instruction, operand: str, k: int, mn: int, major: MajorAxis
    ) -> int | None:
        """Bytes by which every element of a tile moves; None if they differ."""
        rows, columns = extent(op, operand)
        of = op.types[operand.lower()]
        grid = np.ogrid[:rows, :columns]
        # A descriptor that has advanced begins inside a span.  Places are counted from
        # the beginning of the span, but the hardware counts from the start address.
        inside = self.start % span(self.swizzle)
        element = stored(of, major, self.family, self.swizzle, op.kind)
        before = inside * 8 // element.bits
        k, mn = (k + before, mn) if major == "k" else (k, mn + before)
        spans = replace(self, start=self.start - inside)
        there = spans._linear(grid[0] + mn, grid[1] + k, of, major, op.kind)
        distance = there - self._linear(grid[0], grid[1], of, major, op.kind)
        first = int(distance[0, 0])
        units = first % (8 * UNIT) == 0
        return first // 8 if units and (distance == first).all() else None

    def _nearest(
        self, op: Instruction, operand: str, k: int, mn: int, major: MajorAxis
    ) -> str:
        """For a message: the greatest k below this one that is possible."""
        shape = pattern(self.swizzle)
        of = stored(
            op.types[operand.lower()], major, self.family, self.swizzle, op.kind
        )
        step = shape.lines if major == "mn" else 8 * UNIT // of.bits
        # All spans are alike, and so are all eights of lines: it is enough to try one.
        tries = 1 if major == "mn" else shape.span // UNIT
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
        swizzle: Swizzle = 128,
        start: int = 0,
        order: MajorAxis | None = None,
        family: Family = "wgmma",
        kind: str | None = None,
    ) -> Descriptor:
        """The descriptor of a tile without gaps between its atoms.

        ``rows`` is the number of rows of A or of columns of B; ``k`` is the number of
        stored columns.  ``order`` is the direction in which atoms follow each other;
        by default it is across the spans, as tensor-map copies write them.  If a tile
        is narrower than a span, the rest of each span is unused.  ``kind`` is that of
        ``tcgen05``; it says whether narrow elements are padded.

        >>> Descriptor.for_tile(64, 64, "f16", swizzle=128)
        Descriptor(start=0, leading=8192, stride=1024, swizzle=128, base_offset=0)
        >>> Descriptor.for_tile(64, 64, "s8", major="mn")
        Traceback (most recent call last):
        fragmenta.errors.AddressError: s8 cannot be MN-major: wgmma \
transposes only 16-bit types, f16 and bf16; use major="k"
        """
        lines, spans = atoms(rows, k, dtype, major, swizzle, family, kind)
        atom = pattern(swizzle).atom
        if not is_whole(start) or (swizzle and int(start) % atom):
            raise AddressError(
                f"a tile with a {pattern(swizzle).words} must start at a multiple of "
                f"{atom} bytes; given {start!r}"
            )
        if not (order is None or (isinstance(order, str) and order in MAJORS)):
            raise AddressError(f"order must be 'k' or 'mn'; given {order!r}")
        across_first = (order or ("mn" if major == "k" else "k")) != major
        steps = (lines * atom, atom) if across_first else (atom, spans * atom)
        made = cls.from_steps(
            start, *steps, major=major, swizzle=swizzle, family=family
        )
        return replace(made, tile=(int(rows), int(k)))

    @classmethod
    def from_steps(
        cls,
        start: int,
        along: int,
        across: int,
        *,
        major: MajorAxis,
        swizzle: Swizzle,
        family: Family = "wgmma",
    ) -> Descriptor:
        """A descriptor from the distances between atoms, in bytes.

        ``along`` is the distance from a span to the next, ``across`` that from the
        lines of an atom to the next.  :data:`OFFSETS` says which is which offset.

        >>> Descriptor.from_steps(0, 128, 256, major="mn", swizzle=0)
        Descriptor(start=0, leading=256, stride=128, swizzle=0, base_offset=0)
        """
        check_family(family)
        check_swizzle(swizzle, family)
        stored("tf32" if swizzle == ATOM_32 else "f16", major, family, swizzle)
        names = offset_names(major, swizzle)
        named = dict(zip(names, (along, across), strict=True))
        return cls(start, named["leading"], named["stride"], swizzle, family=family)

    def __repr__(self) -> str:
        names = ["start", "leading", "stride", "swizzle", "base_offset"]
        names += ["family"] * (self.family != "wgmma") + ["absolute"] * self.absolute
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"Descriptor({fields})"

    def __str__(self) -> str:
        base = f", base offset {self.base_offset}" if self.base_offset else ""
        leading = "leading address" if self.absolute else "leading offset"
        return (
            f"start {self.start}, {leading} {self.leading}, "
            f"stride offset {self.stride}, {pattern(self.swizzle).words}{base}"
        )


def atoms(
    rows: int,
    k: int,
    of: str | DType,
    major: MajorAxis,
    swizzle: Swizzle,
    family: Family = "wgmma",
    kind: str | None = None,
) -> tuple[int, int]:
    """The number of atoms of a tile, across its spans and along them.

    >>> atoms(64, 64, "f16", "k", 128), atoms(24, 16, "f16", "mn", 32)
    ((8, 1), (2, 2))
    """
    element = stored(of, major, family, swizzle, kind)
    shape = pattern(swizzle)
    if not is_whole(rows) or rows <= 0 or rows % LINES:
        raise AddressError(f"rows must be a positive multiple of 8; given {rows!r}")
    # K = 96 of 4-bit elements is 48 bytes; all others read 32 or 64.
    read = UNIT if element.bits == 4 and family == "tcgen05" else READ
    if not is_whole(k) or k <= 0 or int(k) * element.bits % (8 * read):
        raise AddressError(
            f"k must be a positive multiple of {8 * read // element.bits}, the {read} "
            f"bytes of {element.dtype} that {family} reads; given {k!r}"
        )
    along, across = (k, rows) if major == "k" else (rows, k)
    return int(across) // shape.lines, -(-int(along) * element.bits // (8 * shape.span))


def _check_field(name: str, value: int, family: Family) -> None:
    what = "start address" if name == "start" else f"{name} offset"
    if not is_whole(value):
        raise AddressError(f"the {what} must be a number of bytes; given {value!r}")
    if value % UNIT:
        raise AddressError(
            f"the {what} must be a multiple of {UNIT} bytes; given {value}, nearest "
            f"{round(value / UNIT) * UNIT}"
        )
    if not 0 <= value < LIMIT:
        more = family == "tcgen05" and name != "stride" and LIMIT <= value < 2 * LIMIT
        raise AddressError(
            f"the {what} must be 0 to {LIMIT - UNIT} bytes; given {value}"
            + (", which has 15 bits, and only sm_107 has as many" if more else "")
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
