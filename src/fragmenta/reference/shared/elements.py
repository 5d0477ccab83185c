"""How elements are stored in a row of shared memory.

Most elements follow each other without gaps, the first in the lowest bits.  The kinds
``f8f6f4`` and ``mxf8f6f4`` of ``tcgen05`` mix elements of 8, 6 and 4 bits and count a
byte for each: 16 elements of 4 bits are 8 bytes and 8 bytes of padding, 16 elements of
6 bits are 12 bytes and 4 bytes of padding.  The kinds ``mxf4`` and ``mxf4nvf4`` have
two elements in each byte.

:data:`TCGEN05_SWIZZLES` says which elements may be major along which side, and with
which swizzles.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fragmenta.base.arrays.checks import Array, as_array
from fragmenta.errors import AddressError, ShapeError, one_of
from fragmenta.reference.isa.table import read
from fragmenta.reference.registers.dtype import DType, dtype
from fragmenta.reference.registers.words import pack_words, unpack_words
from fragmenta.reference.shared.fields import FAMILIES, Family, check_swizzle
from fragmenta.reference.shared.swizzles import ATOM_32, Swizzle, pattern, read_swizzle

MajorAxis: TypeAlias = Literal["k", "mn"]
MAJORS: tuple[MajorAxis, MajorAxis] = ("k", "mn")
"""Which coordinate is adjacent in memory: k (plain), or m or n (transposed)."""

PADDED_KINDS = ("f8f6f4", "mxf8f6f4")
"""The kinds that have a byte of shared memory for each narrow element."""
GROUP = 16
"""Elements that are packed together before the padding; also the bytes they take."""

#: The swizzles of tcgen05, by the major side and the bits of an element.
TCGEN05_SWIZZLES = """
major | bits        | swizzle
k     | 4 6 8 16 32 | 0 32 64 128
mn    | 8 16        | 0 32 64 128
mn    | 32          | 128/32
"""
_SWIZZLES = {
    (line["major"], int(bits)): line["swizzle"].split()
    for line in read(TCGEN05_SWIZZLES)
    for bits in line["bits"].split()
}


class StoredElement(NamedTuple):
    """An element type as rows of shared memory have it."""

    dtype: DType
    padded: bool

    @property
    def bits(self) -> int:
        """Bits of a row for each element, on average."""
        return 8 if self.padded else self.dtype.bits

    def bit(self, index: NDArray[np.int64]) -> NDArray[np.int64]:
        """The first bit of an element of a row.

        >>> stored("e2m3", "k", "tcgen05", 128, "f8f6f4").bit(np.array([1, 15, 16]))
        array([  6,  90, 128])
        """
        if not self.padded:
            return index * self.dtype.bits
        return index // GROUP * (8 * GROUP) + index % GROUP * self.dtype.bits


def stored(
    of: str | DType,
    major: str = "k",
    family: Family = "wgmma",
    swizzle: Swizzle = 0,
    kind: str | None = None,
) -> StoredElement:
    """The element of a tile; what the instruction does not take is refused.

    >>> stored("e2m1", "k", "tcgen05", 128, kind="mxf4").bits
    4
    >>> stored("tf32", "mn", "tcgen05", 128)
    Traceback (most recent call last):
    fragmenta.errors.AddressError: an MN-major operand of tf32 has only swizzle \
'128/32' in tcgen05; given 128
    """
    dt = dtype(of)
    if not isinstance(major, str) or major not in MAJORS:
        raise AddressError(f'major must be "k" or "mn"; given {major!r}')
    check_family(family)
    check_swizzle(swizzle, family)
    if family == "wgmma":
        _check_wgmma(dt, major)
        return StoredElement(dt, padded=False)
    padded = dt.bits < 8 and kind in PADDED_KINDS
    _check_tcgen05(dt, major, swizzle, padded)
    return StoredElement(dt, padded)


def allowed_swizzles(of: str | DType, major: MajorAxis) -> tuple[Swizzle, ...]:
    """The swizzles that an operand of ``tcgen05`` may have.

    >>> allowed_swizzles("tf32", "mn"), allowed_swizzles("tf32", "k")
    (('128/32',), (0, 32, 64, 128))
    """
    return tuple(map(read_swizzle, _SWIZZLES.get((major, dtype(of).bits), ())))


def check_family(family: object) -> None:
    """Refuse what is no family with descriptors.

    >>> check_family("mma")
    Traceback (most recent call last):
    fragmenta.errors.AddressError: family must be 'wgmma' or 'tcgen05'; given 'mma'
    """
    if not isinstance(family, str) or family not in FAMILIES:
        names = one_of(map(repr, FAMILIES))
        raise AddressError(f"family must be {names}; given {family!r}")


def _check_wgmma(dt: DType, major: str) -> None:
    if dt.bits == 6:
        raise AddressError(f"wgmma does not take {dt}, which has no packed form")
    if major == "mn" and dt.bits != 16:
        raise AddressError(
            f"{dt} cannot be MN-major: wgmma transposes only 16-bit types, f16 and "
            'bf16; use major="k"'
        )


def _check_tcgen05(dt: DType, major: str, swizzle: Swizzle, padded: bool) -> None:
    """The rules of the table, each with its reason."""
    if ("k", dt.bits) not in _SWIZZLES:
        raise AddressError(
            f"tcgen05 does not take {dt}; its elements have "
            f"{one_of(sorted({bits for _, bits in _SWIZZLES}))} bits"
        )
    if dt.bits == 6 and not padded:
        raise AddressError(
            f"{dt} has no packed form; it exists only in the padded rows of "
            f"{one_of(f'kind={kind!r}' for kind in PADDED_KINDS)}"
        )
    if (major, dt.bits) not in _SWIZZLES:
        raise AddressError(
            f"{dt} cannot be MN-major: tcgen05 transposes only elements of 8, 16 and "
            '32 bits; use major="k"'
        )
    allowed = _SWIZZLES[major, dt.bits]
    if str(pattern(swizzle).swizzle) in allowed:
        return
    if swizzle != ATOM_32:
        raise AddressError(
            f"an MN-major operand of {dt} has only swizzle {ATOM_32!r} in tcgen05; "
            f"given {swizzle!r}"
        )
    side = "a K-major operand" if major == "k" else f"an MN-major operand of {dt}"
    raise AddressError(
        f"{side} cannot have swizzle {ATOM_32!r}: only MN-major elements of 32 bits "
        f"have atoms for it; use {one_of(allowed)}"
    )


# ── padded rows ─────────────────────────────────────────────────────────────


def pad_row(bits: ArrayLike, width: int) -> NDArray[np.uint8]:
    """Rows of bytes with padding, from raw bits of 4 or 6 bits each.

    >>> pad_row(np.arange(16, dtype=np.uint8), 4)[:9]
    array([ 16,  50,  84, 118, 152, 186, 220, 254,   0], dtype=uint8)
    """
    given = as_array(bits).astype(np.uint8)
    _check_groups(given)
    groups = given.reshape(*given.shape[:-1], -1, GROUP)
    if width == 4:
        packed = pack_words(groups, 4, 8)
    else:  # four elements of 6 bits are three bytes
        a, b, c, d = (groups[..., place::4] for place in range(4))
        three = (a | b << 6, b >> 2 | c << 4, c >> 4 | d << 2)
        packed = np.stack(three, axis=-1).reshape(*groups.shape[:-1], -1)
    out = np.zeros(groups.shape, np.uint8)
    out[..., : packed.shape[-1]] = packed
    return out.reshape(given.shape)


def unpad_row(row: ArrayLike, width: int) -> NDArray[np.uint8]:
    """Raw bits of each element in rows with padding: the inverse of `pad_row`.

    What is in the padding is ignored.

    >>> row = pad_row(np.arange(48, 64, dtype=np.uint8), 6)
    >>> unpad_row(row, 6)[[0, 15]]
    array([48, 63], dtype=uint8)
    """
    given = as_array(row)
    _check_groups(given)
    groups = given.reshape(*given.shape[:-1], -1, GROUP)
    used = np.ascontiguousarray(groups[..., : GROUP * width // 8])
    if width == 4:
        found = unpack_words(used, 4)
    else:
        a, b, c = (used[..., place::3] for place in range(3))
        four = (a, a >> 6 | b << 2, b >> 4 | c << 4, c >> 2)
        found = np.stack(four, axis=-1) & 0x3F
    return np.asarray(found, np.uint8).reshape(given.shape)


def _check_groups(given: Array) -> None:
    if not given.ndim or given.shape[-1] % GROUP:
        raise ShapeError(
            f"a padded row has groups of {GROUP}, so the last axis must be a multiple "
            f"of {GROUP}; the shape is {given.shape}"
        )
