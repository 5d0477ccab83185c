"""Where does a swizzle move a byte of shared memory?

Rows of a tile are *spans*.  Without a swizzle a span has 16 bytes.  A swizzle exchanges
parts of the 128 bytes of a line, so that the same part of several rows is in different
banks.  It is an XOR on the address: some bits from bit 4 up change by as many bits from
bit 7 up.  It takes the address in shared memory, not the place in a tile.

A swizzle is named by the bytes of its span.  ``"128/32"`` is a span of 128 bytes in
*atoms* of 32 bytes.  ``tcgen05`` and tensor maps of sm_100 have it; ``wgmma`` has not.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from fragmenta.arrays.checks import is_whole
from fragmenta.errors import AddressError, one_of
from fragmenta.isa.table import read

Swizzle: TypeAlias = int | str
"""0, 32, 64, 128 or ``"128/32"``."""

ATOM_32 = "128/32"
"""The swizzle of 128 bytes whose atoms have 32 bytes."""
UNIT = 16
"""Bytes that stay together under every swizzle."""
LINE = 128
"""Bytes of all banks: what a swizzle exchanges stays in its line."""

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
    def atom(self) -> int:
        """Bytes of an atom of a tile."""
        return self.span * self.lines

    @property
    def repeat(self) -> int:
        """Bytes after which the pattern repeats.

        >>> [pattern(swizzle).repeat for swizzle in SWIZZLES]
        [16, 256, 512, 1024, 512]
        """
        return LINE * (self.mask + 1) if self.mask else UNIT

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


def read_swizzle(text: str) -> Swizzle:
    """A swizzle from the text of an option; whether there is one is not checked.

    >>> read_swizzle("64"), read_swizzle("128/32")
    (64, '128/32')
    """
    number = text.isascii() and text.isdecimal() and len(text) < 10
    return int(text) if number else text


def span(swizzle: Swizzle) -> int:
    """Bytes of a span: those of the swizzle, or 16 without one.

    >>> span(0), span(64), span("128/32")
    (16, 64, 128)
    """
    return pattern(swizzle).span


def moved(address: Any, swizzle: Swizzle, base_offset: Any = 0) -> Any:
    """Addresses to which a swizzle moves bytes; nothing but the swizzle is checked.

    >>> moved(256, "128/32"), moved(256, 128)
    (320, 288)
    """
    of = pattern(swizzle)
    return exchanged(address, of.mask, base_offset, of.shift)


def exchanged(address: Any, mask: Any, base_offset: Any = 0, shift: Any = 4) -> Any:
    """An address with its part of the line exchanged, as a swizzle does.

    ``mask`` is one less than the parts that are exchanged, ``1 << shift`` their bytes.
    The address may be a number, an array or a traced value.

    >>> exchanged(128, 7), exchanged(128, 7, base_offset=1), exchanged(128, 3, shift=5)
    (144, 128, 160)
    """
    return address ^ ((address >> 7) - base_offset & mask) << shift
