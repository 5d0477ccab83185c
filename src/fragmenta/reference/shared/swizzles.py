"""Swizzles: layouts of bytes in shared memory whose digits are XORs of address bits.

Rows of a tile are *spans*.  Without a swizzle a span has 16 bytes.  A swizzle exchanges
parts of the 128 bytes of a line, so that the same part of several rows is in different
banks.  Some bits of the address from bit 4 up are XORed with as many from bit 7 up.
:data:`PATTERNS` has the layout of each: ``A`` is the address before the swizzle.  It is
the address in shared memory, not the place in a tile.

A swizzle is named by the bytes of its span.  ``"128/32"`` is a span of 128 bytes in
*atoms* of 32 bytes.  ``tcgen05`` and tensor maps of sm_100 have it; ``wgmma`` has not.
A kernel that computes its own addresses may use any XOR: :class:`XorSwizzle`.

A sum of steps, such as a start address or rows that are a padded pitch apart, carries
from one bit to the next.  So it is no layout, and comes before the swizzle:
:func:`moved` applies the layout to the sum.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from fragmenta.base.arrays.checks import is_whole
from fragmenta.errors import AddressError, one_of
from fragmenta.reference.isa.table import read
from fragmenta.reference.registers.dtype import DType, dtype
from fragmenta.reference.registers.expressions import XorSum, terms
from fragmenta.reference.registers.layout import Layout

Swizzle: TypeAlias = int | str
"""0, 32, 64, 128 or ``"128/32"``."""

ATOM_32 = "128/32"
"""The swizzle of 128 bytes whose atoms have 32 bytes."""
UNIT = 16
"""Bytes that stay together under every swizzle."""
LINE = 128
"""Bytes of all banks: what a swizzle exchanges stays in its line."""
REPEAT = 1024
"""Bytes after which every pattern begins anew."""

#: Of each swizzle: the bytes of a span, the spans of an atom of a tile, and the layout
#: of an aligned kilobyte.
PATTERNS = """
swizzle | span | lines | layout
0       | 16   | 8     | address = A*
32      | 32   | 8     | address = A0 A1 A2 A3 A4^A7 A5*
64      | 64   | 8     | address = A0 A1 A2 A3 A4^A7 A5^A8 A6*
128     | 128  | 8     | address = A0 A1 A2 A3 A4^A7 A5^A8 A6^A9 A7*
128/32  | 128  | 4     | address = A0 A1 A2 A3 A4 A5^A7 A6^A8 A7*
"""


class Pattern(NamedTuple):
    """What a swizzle does to addresses."""

    swizzle: Swizzle
    span: int
    """Bytes of a row of a tile that are adjacent before the swizzle."""
    lines: int
    """Spans that follow each other in an atom of a tile."""
    layout: Layout
    """Where it moves each byte of an aligned kilobyte."""

    @property
    def xor(self) -> XorSwizzle:
        """The same swizzle in CuTe's words.

        >>> [str(pattern(swizzle).xor) for swizzle in (64, 128, "128/32")]
        ['Swizzle<2,4,3>', 'Swizzle<3,4,3>', 'Swizzle<2,5,2>']
        """
        return _xor(self.swizzle)

    @property
    def changed(self) -> int:
        """The bits of an address that it changes.

        >>> [hex(pattern(swizzle).changed) for swizzle in (0, 64, 128, "128/32")]
        ['0x0', '0x30', '0x70', '0x60']
        """
        return self.xor.changed

    @property
    def atom(self) -> int:
        """Bytes of an atom of a tile."""
        return self.span * self.lines

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats.

        >>> [pattern(swizzle).repeat for swizzle in SWIZZLES]
        [16, 256, 512, 1024, 512]
        """
        return self.xor.repeat

    @property
    def words(self) -> str:
        """The swizzle as a sentence has it.

        >>> pattern("128/32").words, pattern(0).words
        ('128/32-byte swizzle', 'no swizzle')
        """
        return f"{self.swizzle}-byte swizzle" if self.swizzle else "no swizzle"

    @property
    def constant(self) -> str:
        """Its name in the driver's interface for tensor maps.

        >>> pattern("128/32").constant
        'SWIZZLE_128B_ATOM_32B'
        """
        if not self.swizzle:
            return "SWIZZLE_NONE"
        return f"SWIZZLE_{self.span}B" + ("_ATOM_32B" * (self.swizzle == ATOM_32))


def _pattern(line: dict[str, str]) -> Pattern:
    name = line["swizzle"]
    return Pattern(
        name if name == ATOM_32 else int(name),
        int(line["span"]),
        int(line["lines"]),
        Layout.parse(line["layout"], A=REPEAT),
    )


_PATTERNS = {pattern.swizzle: pattern for pattern in map(_pattern, read(PATTERNS))}
SWIZZLES: tuple[Swizzle, ...] = tuple(_PATTERNS)
"""All swizzles by name."""
WGMMA_SWIZZLES = (0, 32, 64, 128)
"""Those that ``wgmma`` has, and tensor maps of sm_90."""


FLIP_8, ATOM_64 = "128/32/8", "128/64"
"""Swizzles that only tensor maps have: atoms of 32 bytes in which the halves of each 16
bytes change places in every other line, and atoms of 64 bytes."""


def pattern(swizzle: Swizzle) -> Pattern:
    """The pattern of a swizzle.

    >>> pattern(64).layout
    Layout('address = A0 A1 A2 A3 A4^A7 A5^A8 A6 A7 A8 A9', A=1024)
    >>> pattern(16)
    Traceback (most recent call last):
    fragmenta.errors.AddressError: swizzle must be 0, 32, 64, 128 or '128/32'; given 16
    """
    known = is_whole(swizzle) or isinstance(swizzle, str)
    if not known or swizzle not in _PATTERNS:
        names = one_of(map(repr, SWIZZLES))
        raise AddressError(f"swizzle must be {names}; given {swizzle!r}")
    return _PATTERNS[swizzle]


def read_swizzle(text: str) -> Any:
    """A swizzle from the text of an option; whether there is one is not checked.

    >>> read_swizzle("64"), read_swizzle("128/32"), read_swizzle("2,4,4")
    (64, '128/32', XorSwizzle(bits=2, base=4, shift=4))
    """
    if numbers := _XOR.fullmatch(text):
        return XorSwizzle(*map(int, numbers.groups()))
    number = text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if number else text


# ── any XOR ─────────────────────────────────────────────────────────────────

_XOR = re.compile(r"(?:Swizzle<)?\s*(\d{1,2}),\s*(\d{1,2}),\s*(-?\d{1,2})\s*>?", re.A)
_MOST_BIT = 32


class XorSwizzle(NamedTuple):
    """CuTe's ``Swizzle<bits, base, shift>`` on byte addresses.

    ``bits`` bits from bit ``base`` up are XORed with as many bits, which begin
    ``shift`` bits higher.  If ``shift`` is negative, the upper bits are XORed with the
    lower ones.  CuTe often counts elements; :meth:`of_elements` converts.

    >>> import fragmenta as fm
    >>> fm.shared.XorSwizzle(3, 4, 3).words
    '128-byte swizzle'
    >>> str(fm.shared.XorSwizzle.of_elements(2, 3, 3, "f16"))
    'Swizzle<2,4,3>'
    """

    bits: int
    base: int
    shift: int

    @classmethod
    def of_elements(
        cls, bits: int, base: int, shift: int, of: str | DType
    ) -> XorSwizzle:
        """The swizzle of bytes that a swizzle of elements is.

        >>> XorSwizzle.of_elements(3, 2, 3, "tf32")
        XorSwizzle(bits=3, base=4, shift=3)
        """
        power = dtype(of).bits.bit_length() - 4
        if dtype(of).bits.bit_count() != 1:
            raise AddressError(
                f"elements of {dtype(of).bits} bits have no swizzle of their own; "
                "count bytes"
            )
        return xor_swizzle(cls(bits, base + power, shift))

    @classmethod
    def of_layout(cls, layout: Layout) -> XorSwizzle:
        """The three numbers of a layout of addresses.

        >>> line = "address = A0 A1 A2 A3 A4^A8 A5^A9 A6*"
        >>> XorSwizzle.of_layout(Layout.parse(line, A=1024))
        XorSwizzle(bits=2, base=4, shift=4)
        """
        flipped = terms(layout, "address").flipped
        if not flipped:
            return cls(0, UNIT.bit_length() - 1, 3)
        run = flipped[0]
        low, source = (n.bit_length() - 1 for n in (run.weight, run.stride))
        found = cls(run.size.bit_length() - 1, min(low, source), source - low)
        if found.layout(layout.sizes["address"]) != layout:
            raise AddressError(f"{layout} is not the layout of one XOR, as {found} is")
        return found

    def layout(self, size: int = 0) -> Layout:
        """Where it moves each of ``size`` bytes, by default of one pattern.

        >>> XorSwizzle(1, 4, 3).layout()
        Layout('address = A0 A1 A2 A3 A4^A7 A5 A6 A7', A=256)
        """
        whole, bits = size or self.repeat, range(self.bits)
        low = self.low if self.bits else 0
        if whole % self.repeat or whole & (whole - 1):
            raise AddressError(
                f"the layout of {self} has a power of two of bytes, from "
                f"{self.repeat} on; given {size!r}"
            )
        line = " ".join(f"A{at}" for at in range(low))
        line += "".join(f" A{low + bit}^A{self.source + bit}" for bit in bits)
        return Layout.parse(f"address = {line} A{low + self.bits}*", A=whole)

    @property
    def changed(self) -> int:
        """The bits of an address that it changes."""
        return ((1 << self.bits) - 1) << self.low

    @property
    def low(self) -> int:
        """The lowest bit that changes."""
        return self.base - min(self.shift, 0)

    @property
    def source(self) -> int:
        """The lowest bit that says how."""
        return self.base + max(self.shift, 0)

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats.

        >>> XorSwizzle(3, 4, 3).repeat, XorSwizzle(0, 4, 3).repeat
        (1024, 16)
        """
        return 1 << max(self.low, self.source) + self.bits if self.bits else UNIT

    @property
    def words(self) -> str:
        """The swizzle as a sentence has it.

        >>> XorSwizzle(2, 4, 4).words, XorSwizzle(2, 5, 2).words
        ('Swizzle<2,4,4>', '128/32-byte swizzle')
        """
        for each in _PATTERNS.values():
            if each.xor == self or not (self.bits or each.changed):
                return each.words
        return str(self)

    def __str__(self) -> str:
        return f"Swizzle<{self.bits},{self.base},{self.shift}>"


AnySwizzle: TypeAlias = int | str | tuple[int, int, int]
"""A swizzle by its name, or the three numbers of an :class:`XorSwizzle`."""


def xor_swizzle(swizzle: AnySwizzle) -> XorSwizzle:
    """A swizzle in CuTe's words, by its name or by its three numbers, checked.

    >>> xor_swizzle(64), xor_swizzle((1, 4, 4))
    (XorSwizzle(bits=2, base=4, shift=3), XorSwizzle(bits=1, base=4, shift=4))
    >>> xor_swizzle((3, 4, 2))
    Traceback (most recent call last):
    fragmenta.errors.AddressError: Swizzle<3,4,2> would change bits that it depends \
on: its shift must be at least 3, or -3 or less
    """
    if not isinstance(swizzle, tuple):
        known = is_whole(swizzle) or isinstance(swizzle, str)
        if not known or swizzle not in _PATTERNS:
            names = ", ".join(map(repr, SWIZZLES))
            raise AddressError(
                f"swizzle must be {names} or XorSwizzle(bits, base, shift); given "
                f"{swizzle!r}"
            )
        return _PATTERNS[swizzle].xor
    if len(swizzle) != 3 or not all(map(is_whole, swizzle)):
        raise AddressError(
            f"a swizzle has three whole numbers: bits, base, shift; given {swizzle!r}"
        )
    found = XorSwizzle(*map(int, swizzle))
    if min(found.bits, found.base) < 0 or max(map(abs, found)) > _MOST_BIT:
        raise AddressError(
            f"bits and base of a swizzle must be 0 to {_MOST_BIT}, and its shift at "
            f"most that; given {found}"
        )
    if abs(found.shift) < found.bits:
        raise AddressError(
            f"{found} would change bits that it depends on: its shift must be at "
            f"least {found.bits}, or -{found.bits} or less"
        )
    if found.repeat > 1 << _MOST_BIT:
        raise AddressError(
            f"{found} takes bits beyond bit {_MOST_BIT - 1} of an address"
        )
    return found


def span(swizzle: Swizzle) -> int:
    """Bytes of a span: those of the swizzle, or 16 without one.

    >>> span(0), span(64), span("128/32")
    (16, 64, 128)
    """
    return pattern(swizzle).span


def unit_swizzle(swizzle: AnySwizzle) -> XorSwizzle:
    """:func:`xor_swizzle`, if it keeps 16 aligned bytes together.

    >>> unit_swizzle((3, 3, 3))
    Traceback (most recent call last):
    fragmenta.errors.AddressError: Swizzle<3,3,3> separates 16 aligned bytes, which \
one lane takes; the lowest bit that it changes must be 4 or higher, but it is 3
    """
    found = xor_swizzle(swizzle)
    if found.bits and 1 << found.low < UNIT:
        raise AddressError(
            f"{found} separates {UNIT} aligned bytes, which one lane takes; the lowest "
            f"bit that it changes must be 4 or higher, but it is {found.low}"
        )
    return found


@lru_cache(maxsize=256)
def _terms(swizzle: XorSwizzle) -> XorSum:
    return terms(swizzle.layout(), "address")


def moved(address: Any, swizzle: AnySwizzle, base_offset: int = 0) -> Any:
    """Addresses to which a swizzle moves bytes; nothing but the swizzle is checked.

    The address may be a number, an array or a traced value.  ``base_offset`` is the
    line in which the pattern begins: of 128 bytes, if bit 7 is the first that says how.

    >>> moved(256, "128/32"), moved(256, 128), moved(256, XorSwizzle(1, 4, 4))
    (320, 288, 272)
    """
    of = xor_swizzle(swizzle)
    place = address - (base_offset << of.source) if base_offset else address
    return address ^ _terms(of).flips({"A": place})


_OF_MAPS: dict[Swizzle, tuple[AnySwizzle, ...]] = {
    FLIP_8: (ATOM_32, XorSwizzle(1, 3, 4)),
    ATOM_64: (XorSwizzle(1, 6, 1),),
}
"""What swizzles do that only tensor maps have, one XOR after the other."""


def moved_in_box(address: Any, swizzle: Swizzle) -> Any:
    """Addresses to which the swizzle of a tensor map moves bytes.

    >>> [moved_in_box(128, each) for each in (128, "128/32", "128/32/8", "128/64")]
    [144, 160, 168, 192]
    """
    for each in _OF_MAPS.get(swizzle, (swizzle,)):
        address = moved(address, each)
    return address


def map_span(swizzle: Swizzle) -> int:
    """Bytes in which the swizzle of a tensor map exchanges; 0 without one.

    >>> map_span(64), map_span("128/32/8")
    (64, 128)
    """
    return swizzle if isinstance(swizzle, int) else LINE


@lru_cache
def _xor(swizzle: Swizzle) -> XorSwizzle:
    """A swizzle in CuTe's words, found out once."""
    return XorSwizzle.of_layout(pattern(swizzle).layout)


def exchanged(address: Any, changed: Any, base_offset: Any = 0) -> Any:
    """An address moved by a swizzle of ``wgmma`` that is known when the code runs.

    ``changed`` are the bits that it changes (:attr:`Pattern.changed`).  Every swizzle
    of ``wgmma`` is that of 128 bytes in some of these bits.

    >>> exchanged(128, 0x70), exchanged(128, 0x70, base_offset=1), exchanged(128, 0)
    (144, 128, 128)
    """
    widest = _terms(pattern(WGMMA_SWIZZLES[-1]).xor)
    return address ^ (widest.flips({"A": address - LINE * base_offset}) & changed)
