"""Where in shared memory is this operand?

``wgmma`` reads B, and A if one likes, from shared memory.  A 64-bit descriptor
says where, and this is all there is to it.  Elements that are neighbours along
k (K-major) or along m or n (MN-major) lie side by side in *spans*: 16 bytes
without swizzle, else as many bytes as the swizzle is wide.  Eight spans, one
for each of eight neighbours in the other direction, follow each other; they
are an *atom* of 8 x span bytes.  Two offsets lead from atom to atom::

    address = start + along % span + across % 8 * span
            + along // span * (one offset) + across // 8 * (the other)

where ``along`` counts bytes in the direction of the spans and ``across``
elements in the other.  :data:`OFFSETS` says which offset is which.  At last the
swizzle exchanges 16-byte units: some of the address bits 4 to 6 are XORed with
as many of the bits from 7 up.
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

Major: TypeAlias = Literal["k", "mn"]
MAJORS: tuple[Major, Major] = ("k", "mn")
"""What runs along memory: plain, and transposed."""
Addresses: TypeAlias = NDArray[np.int64]

#: Which offset leads to the next span, and which to the next eight across.
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

#: The descriptor, from its lowest bit.  ``unit`` is what the field counts in.
FIELDS = """
field       | low | bits | unit
start       | 0   | 14   | 16
leading     | 16  | 14   | 16
stride      | 32  | 14   | 16
base_offset | 49  | 3    | 1
swizzle     | 62  | 2    | mode
"""
_FIELDS = read(FIELDS)
_MODES = (0, 128, 64, 32)  # the swizzle in bytes of each mode

UNIT = 16
"""Bytes that no swizzle ever parts."""
LIMIT = 1 << 18
"""Addresses and offsets that a descriptor can express lie below this."""
FAR = 1 << 31
"""Rows and columns lie below this: what follows from them fits 64 bits."""
LINES = 8
"""Spans that follow each other before an offset is used."""
READ = 32
"""Bytes of k per row that one dense ``wgmma`` reads (64 of a sparse one's B)."""


def swizzled(address: ArrayLike, swizzle: int) -> Any:
    """The address where a swizzle puts what would lie at ``address``.

    Bits 4 to 6 are XORed with bits 7 to 9 (128 bytes), bits 4 and 5 with 7
    and 8 (64), bit 4 with bit 7 (32).  Addresses count from a multiple of
    1024.  The swizzle is its own inverse.

    >>> [int(swizzled(line * 128, 128)) for line in range(4)]
    [0, 144, 288, 432]
    """
    return _swizzled(_index("an address", address, 1 << 62), swizzle)


def _swizzled(address: Addresses, swizzle: int) -> Any:
    units = span(swizzle) // UNIT
    return address ^ ((address >> 7) & (units - 1)) << 4


def span(swizzle: int) -> int:
    """Bytes that lie side by side: the swizzle, or 16 without one.

    >>> span(0), span(64)
    (16, 64)
    """
    if not is_whole(swizzle) or swizzle not in _MODES:
        raise AddressError(f"a swizzle is 0, 32, 64 or 128 bytes; given {swizzle!r}")
    return int(swizzle) or UNIT


def _whole(name: str, value: object) -> int:
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise AddressError(f"{name} is a whole number; given {value!r}") from None


@dataclass(frozen=True)
class Descriptor:
    """Where ``wgmma`` finds an operand in shared memory; all in bytes.

    ``swizzle`` is 0, 32, 64 or 128.  Addresses count from a multiple of 1024,
    because the swizzle looks at their bits.

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
                f"a base offset has 3 bits, 0 to 7; given {self.base_offset!r}"
            )
        if self.base_offset and not self.swizzle:
            raise AddressError("without a swizzle there is no base offset; it is 0")
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
            value = _MODES.index(value) if mode else value // int(line["unit"])
            word |= value << int(line["low"])
        return word

    @classmethod
    def decode(cls, word: int) -> Descriptor:
        """The descriptor that a 64-bit word holds.

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
            values[line["field"]] = _MODES[value] if mode else value * int(line["unit"])
        if given:
            wrong = [bit for bit in range(64) if given >> bit & 1]
            raise AddressError(
                f"{int(word):#018x} is no wgmma descriptor: bit "
                f"{one_of(wrong, 'and')} must be 0"
            )
        return cls(**values)

    # ── the map ─────────────────────────────────────────────────────────────

    def address(
        self, mn: ArrayLike, k: ArrayLike, dtype: str | DType, major: Major = "k"
    ) -> Any:
        """The byte that holds (the first bits of) element ``(mn, k)``.

        ``mn`` is the row of A or the column of B.  Arrays broadcast.  For a
        type narrower than a byte, :meth:`bit_address` says which bit of it.

        >>> d = Descriptor(start=0, leading=512, stride=128, swizzle=0)
        >>> d.address(mn=[0, 1, 8], k=8, dtype="f16")
        array([512, 528, 640])
        """
        found = self.bit_address(mn, k, dtype, major)
        return found // 8

    def bit_address(
        self, mn: ArrayLike, k: ArrayLike, dtype: str | DType, major: Major = "k"
    ) -> Any:
        """Eight times the byte address, plus the lowest bit of the element.

        >>> Descriptor(0, 128, 256, swizzle=0).bit_address(mn=0, k=130, dtype="b1")
        1026
        """
        if self.base_offset:
            raise AddressError(
                f"what base offset {self.base_offset} does has not been measured; "
                "let the swizzle pattern start at a multiple of "
                f"{LINES * self.swizzle} bytes, with base offset 0"
            )
        rows, columns = _index("mn", mn), _index("k", k)
        batch_shape(mn=rows.shape, k=columns.shape)
        linear = self._linear(rows, columns, dtype, major)
        found = _swizzled(linear // 8, self.swizzle) * 8 + linear % 8
        return found if np.ndim(found) else int(found)

    def _linear(
        self, mn: Addresses, k: Addresses, of: str | DType, major: Major
    ) -> Addresses:
        """Bit addresses before the swizzle: the formula at the top."""
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

    def _offsets(self, major: Major) -> tuple[int, int]:
        """The offset to the next span, and to the next eight across."""
        names = _OFFSETS[major, str(self.swizzle or "none")]
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
        major: Major = "k",
    ) -> Descriptor:
        """The descriptor of the tile that begins ``k`` and ``mn`` further on.

        Only the start address changes, by the distance of the two first
        elements.  That is right when every element that the instruction reads
        moves by the same distance, and refused otherwise.  So inside a swizzle
        row of 128 bytes a dense operand may advance by any multiple of 16 up
        to 96: the 32 bytes a row that it reads must not pass the end of the
        span.  The swizzle needs no care, it acts on the sum.  ``k`` counts
        stored columns, which are half of a sparse A's.

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
                f"{operand} of {op} cannot begin at mn {mn}, k {k}: from there its "
                f"{rows} x {columns} elements do not lie as they do from 0, in "
                f"{span(self.swizzle)}-byte spans and {LINES} lines at a time"
                + self._nearest(op, operand, k, mn, major)
            )
        return replace(self, start=self.start + distance)

    def _distance(
        self, op: Instruction, operand: str, k: int, mn: int, major: Major
    ) -> int | None:
        """Bytes by which every element of a tile moves; None if they disagree."""
        rows, columns = extent(op, operand)
        of = op.types[operand.lower()]
        grid = np.ogrid[:rows, :columns]
        moved = self._linear(grid[0] + mn, grid[1] + k, of, major)
        distance = moved - self._linear(grid[0], grid[1], of, major)
        first = int(distance[0, 0])
        whole = first % (8 * UNIT) == 0
        return first // 8 if whole and (distance == first).all() else None

    def _nearest(
        self, op: Instruction, operand: str, k: int, mn: int, major: Major
    ) -> str:
        """The last k before this one that can be reached, for a message."""
        step = LINES if major == "mn" else 8 * UNIT // op.types[operand.lower()].bits
        # Spans are alike, and so are eights of lines: one of them shows all.
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
        major: Major = "k",
        swizzle: int = 128,
        start: int = 0,
        order: Major | None = None,
    ) -> Descriptor:
        """The descriptor of a tile that fills shared memory without gaps.

        ``rows`` are the rows of A or the columns of B; ``k`` counts what is
        stored.  ``order`` says in which direction atoms are neighbours; by
        default across the spans, as tensor-map copies leave them, one span
        after the other.  A tile narrower than its span leaves the rest of
        each span unused.

        >>> Descriptor.for_tile(64, 64, "f16", swizzle=128)
        Descriptor(start=0, leading=8192, stride=1024, swizzle=128, base_offset=0)
        >>> Descriptor.for_tile(64, 64, "s8", major="mn")
        Traceback (most recent call last):
        fragmenta.errors.AddressError: s8 cannot be MN-major: wgmma \
transposes 16-bit types only, f16 and bf16; major="k" takes every type
        """
        lines, spans = atoms(rows, k, dtype, major, swizzle)
        atom = LINES * span(swizzle)
        if not is_whole(start) or (swizzle and int(start) % atom):
            raise AddressError(
                f"a tile with a {swizzle}-byte swizzle starts at a multiple of {atom} "
                f"bytes, where its pattern does; given {start}"
            )
        if not (order is None or (isinstance(order, str) and order in MAJORS)):
            raise AddressError(
                f"atoms follow one another along k or mn; given {order!r}"
            )
        across_first = (order or ("mn" if major == "k" else "k")) != major
        steps = (lines * atom, atom) if across_first else (atom, spans * atom)
        return cls.from_steps(start, *steps, major=major, swizzle=swizzle)

    @classmethod
    def from_steps(
        cls, start: int, along: int, across: int, *, major: Major, swizzle: int
    ) -> Descriptor:
        """A descriptor by what its offsets do, whichever is called which.

        ``along`` leads from a span to the next, ``across`` from eight lines
        to the next eight.

        >>> Descriptor.from_steps(0, 128, 256, major="mn", swizzle=0)
        Descriptor(start=0, leading=256, stride=128, swizzle=0, base_offset=0)
        """
        span(swizzle)
        _element("f16", major)
        names = _OFFSETS[major, str(swizzle or "none")]
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
        raise Error(f"{op} takes no descriptors; wgmma.mma_async does")
    if not isinstance(operand, str) or operand not in ("A", "B"):
        raise Error(f"in shared memory are the operands A and B; given {operand!r}")
    return _extent(op, operand)


@lru_cache(maxsize=1024)
def _extent(op: Instruction, operand: str) -> tuple[int, int]:
    if operand == "A":
        rows, k = op.fragments["A"].shape
        return rows, k
    return op.shape.n, op.shape.k


def atoms(
    rows: int, k: int, of: str | DType, major: Major, swizzle: int
) -> tuple[int, int]:
    """How many atoms a tile takes, across its spans and along them.

    >>> atoms(64, 64, "f16", "k", 128), atoms(24, 16, "f16", "mn", 32)
    ((8, 1), (2, 2))
    """
    dt = _element(of, major)
    wide = span(swizzle)
    if not is_whole(rows) or rows <= 0 or rows % LINES:
        raise AddressError(f"rows come in eights; given {rows!r}")
    if not is_whole(k) or k <= 0 or int(k) * dt.bits % (8 * READ):
        least = 8 * READ // dt.bits
        raise AddressError(
            f"wgmma reads {READ} bytes of k at a time, {least} elements of {dt}; "
            f"k is a multiple of that, and {k!r} is not"
        )
    along, across = (k, rows) if major == "k" else (rows, k)
    return int(across) // LINES, -(-int(along) * dt.bits // (8 * wide))


def _element(of: str | DType, major: str) -> DType:
    dt = dtype(of)
    if not isinstance(major, str) or major not in MAJORS:
        raise AddressError(f'an operand is major="k" or major="mn"; given {major!r}')
    if dt.bits == 6:
        raise AddressError(f"{dt} has no packed form, and wgmma does not take it")
    if major == "mn" and dt.bits != 16:
        raise AddressError(
            f"{dt} cannot be MN-major: wgmma transposes 16-bit types only, f16 and "
            'bf16; major="k" takes every type'
        )
    return dt


def _check_field(name: str, value: Any) -> None:
    what = "start address" if name == "start" else f"{name} offset"
    if not is_whole(value):
        raise AddressError(f"the {what} is a number of bytes; given {value!r}")
    if value % UNIT:
        raise AddressError(
            f"the {what} is a multiple of {UNIT} bytes; given {value}, nearest "
            f"{round(value / UNIT) * UNIT}"
        )
    if not 0 <= value < LIMIT:
        raise AddressError(
            f"the {what} has 18 bits, 0 to {LIMIT - UNIT} bytes; given {value}"
        )


def _index(name: str, value: ArrayLike, limit: int = FAR) -> Addresses:
    given = as_array(value)
    large = is_whole(value) and given.dtype.kind == "O"  # no machine integer
    if given.dtype.kind not in "iu" and not large:
        raise ShapeError(f"{name} is a whole number, 0 or more; given {value!r}")
    if given.size and not 0 <= int(given.min()) <= int(given.max()) < limit:
        wrong = given[(given < 0) | (given >= limit)].flat[0]
        raise ShapeError(f"{name} is 0 to {limit - 1}; given {wrong}")
    return given.astype(np.int64)
