"""Where does a swizzle move a byte of shared memory?

Rows of a tile are *spans*.  Without a swizzle a span has 16 bytes.  A swizzle exchanges
parts of the 128 bytes of a line, so that the same part of several rows is in different
banks.  It is an XOR on the address: some bits from bit 4 up change by as many bits from
bit 7 up.  It takes the address in shared memory, not the place in a tile.

A swizzle is named by the bytes of its span.  ``"128/32"`` is a span of 128 bytes in
*atoms* of 32 bytes.  ``tcgen05`` and tensor maps of sm_100 have it; ``wgmma`` has not.
A kernel that computes its own addresses may use any XOR: :class:`XorSwizzle`.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, TypeAlias

from fragmenta.arrays.checks import is_whole
from fragmenta.errors import AddressError, one_of
from fragmenta.isa.table import read
from fragmenta.registers.dtype import DType, dtype

Swizzle: TypeAlias = int | str
"""0, 32, 64, 128 or ``"128/32"``."""

ATOM_32 = "128/32"
"""The swizzle of 128 bytes whose atoms have 32 bytes."""
UNIT = 16
"""Bytes that stay together under every swizzle."""
LINE = 128
"""Bytes of all banks: what a swizzle exchanges stays in its line."""
_LINE_BIT = LINE.bit_length() - 1

#: Of each swizzle: the bytes of a span, the spans of an atom of a tile, and which
#: address bits are XORed with which.
PATTERNS = """
swizzle | span | lines | bits  | with
0       | 16   | 8     |       |
32      | 32   | 8     | 4     | 7
64      | 64   | 8     | 4 5   | 7 8
128     | 128  | 8     | 4 5 6 | 7 8 9
128/32  | 128  | 4     | 5 6   | 7 8
"""


class Pattern(NamedTuple):
    """What a swizzle does to addresses."""

    swizzle: Swizzle
    span: int
    """Bytes of a row of a tile that are adjacent before the swizzle."""
    lines: int
    """Spans that follow each other in an atom of a tile."""
    shift: int
    """The lowest bit that changes."""
    mask: int
    """Ones for the bits that change, shifted to bit 0."""

    @property
    def xor(self) -> XorSwizzle:
        """The same swizzle in CuTe's words.

        >>> [str(pattern(swizzle).xor) for swizzle in (64, 128, "128/32")]
        ['Swizzle<2,4,3>', 'Swizzle<3,4,3>', 'Swizzle<2,5,2>']
        """
        return XorSwizzle(self.mask.bit_length(), self.shift, _LINE_BIT - self.shift)

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
    bits = [int(bit) for bit in line["bits"].split()]
    assert [int(bit) for bit in line["with"].split()] == list(range(7, 7 + len(bits)))
    name = line["swizzle"]
    return Pattern(
        name if name == ATOM_32 else int(name),
        int(line["span"]),
        int(line["lines"]),
        shift=bits[0] if bits else 4,
        mask=(1 << len(bits)) - 1,
    )


_PATTERNS = {pattern.swizzle: pattern for pattern in map(_pattern, read(PATTERNS))}
SWIZZLES: tuple[Swizzle, ...] = tuple(_PATTERNS)
"""All swizzles by name."""
WGMMA_SWIZZLES = (0, 32, 64, 128)
"""Those that ``wgmma`` has, and tensor maps of sm_90."""


def pattern(swizzle: Swizzle) -> Pattern:
    """The pattern of a swizzle.

    >>> pattern(64)
    Pattern(swizzle=64, span=64, lines=8, shift=4, mask=3)
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

    @property
    def mask(self) -> int:
        """Ones for the bits that change, shifted to bit 0."""
        return (1 << self.bits) - 1

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
            if each.xor == self or (not self.bits and not each.mask):
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


def moved(address: Any, swizzle: AnySwizzle, base_offset: Any = 0) -> Any:
    """Addresses to which a swizzle moves bytes; nothing but the swizzle is checked.

    >>> moved(256, "128/32"), moved(256, 128), moved(256, XorSwizzle(1, 4, 4))
    (320, 288, 272)
    """
    of = xor_swizzle(swizzle)
    return exchanged(address, of.mask, base_offset, of.low, of.source)


def exchanged(
    address: Any,
    mask: Any,
    base_offset: Any = 0,
    shift: Any = 4,
    source: Any = _LINE_BIT,
) -> Any:
    """An address with its part of the line exchanged, as a swizzle does.

    ``mask`` is one less than the parts that are exchanged, ``1 << shift`` their bytes.
    The bits that say how begin at bit ``source``.  The address may be a number, an
    array or a traced value.

    >>> exchanged(128, 7), exchanged(128, 7, base_offset=1), exchanged(128, 3, shift=5)
    (144, 128, 160)
    """
    return address ^ ((address >> source) - base_offset & mask) << shift
