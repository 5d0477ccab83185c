"""The bits of a shared-memory descriptor.

A descriptor has 64 bits.  ``wgmma`` and ``tcgen05`` have the same first five fields.
``tcgen05`` wants a constant in bits 46 to 48, has one more bit of swizzle, and one that
says that the leading offset is an address.  So a descriptor of ``wgmma`` becomes one of
``tcgen05`` when bit 46 is set: the codes of the three swizzles that both have are the
same bits.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from fragmenta.base.arrays.checks import is_whole
from fragmenta.errors import AddressError, Error, one_of
from fragmenta.reference.isa.table import read
from fragmenta.reference.shared.swizzles import (
    ATOM_32,
    WGMMA_SWIZZLES,
    Swizzle,
    pattern,
)

Family: TypeAlias = Literal["wgmma", "tcgen05"]
FAMILIES: tuple[Family, Family] = ("wgmma", "tcgen05")
"""The families of instructions that take descriptors."""

#: The fields of a descriptor, lowest first.  ``unit`` is the bytes that 1 stands for.
FIELDS = """
field       | low | bits | unit
start       | 0   | 14   | 16
leading     | 16  | 14   | 16
stride      | 32  | 14   | 16
base_offset | 49  | 3    | 1
swizzle     | 62  | 2    | mode
"""
#: The same for tcgen05.
TCGEN05_FIELDS = """
field       | low | bits | unit
start       | 0   | 14   | 16
leading     | 16  | 14   | 16
stride      | 32  | 14   | 16
constant    | 46  | 3    | 1
base_offset | 49  | 3    | 1
absolute    | 52  | 1    | 1
swizzle     | 61  | 3    | mode
"""
FIELDS_OF = {"wgmma": read(FIELDS), "tcgen05": read(TCGEN05_FIELDS)}
"""The rows of the table of each family."""

MODES = (0, 128, 64, 32)
"""The swizzle of each code of ``wgmma``."""
MODES_OF: Mapping[str, tuple[Swizzle | None, ...]] = {
    "wgmma": MODES,
    "tcgen05": (0, ATOM_32, 128, None, 64, None, 32, None),
}
"""The swizzle of each code; None if the code is invalid."""
CONSTANT = 0b001
"""What bits 46 to 48 of a descriptor of ``tcgen05`` are."""
CONSTANT_BIT = 46

#: Bits that mean something on sm_107 only.
SM_107 = {
    14: "the start address has 15 bits",
    30: "the leading offset has 15 bits",
    53: "it selects 24 bytes for .decompress::lut::b",
}


def check_swizzle(swizzle: Swizzle, family: Family) -> None:
    """Refuse a swizzle that descriptors of the family do not have.

    >>> check_swizzle("128/32", "wgmma")
    Traceback (most recent call last):
    fragmenta.errors.AddressError: swizzle must be 0, 32, 64 or 128 bytes; given \
'128/32'
    """
    if family == "tcgen05":
        pattern(swizzle)
    elif not is_whole(swizzle) or swizzle not in WGMMA_SWIZZLES:
        raise AddressError(f"swizzle must be 0, 32, 64 or 128 bytes; given {swizzle!r}")


def encode_fields(family: Family, values: Mapping[str, Any]) -> int:
    """The word that has these values, which are in bytes.

    >>> hex(encode_fields("wgmma", {"start": 32, "leading": 16, "stride": 0,
    ...                             "base_offset": 0, "swizzle": 64}))
    '0x8000000000010002'
    """
    word = 0
    for line in FIELDS_OF[family]:
        value = values.get(line["field"], CONSTANT)
        mode = line["unit"] == "mode"
        code = MODES_OF[family].index(value) if mode else value // int(line["unit"])
        word |= code << int(line["low"])
    return word


def decode_fields(family: Family, word: object) -> dict[str, Any]:
    """The values in a word; bits that no field has are refused.

    >>> decode_fields("wgmma", 0x8000000000010002)["start"]
    32
    """
    given = word_of(word)
    values: dict[str, Any] = {}
    rest = given
    for line in FIELDS_OF[family]:
        low, bits = int(line["low"]), int(line["bits"])
        code = given >> low & (1 << bits) - 1
        rest &= ~((1 << bits) - 1 << low)
        mode = line["unit"] == "mode"
        values[line["field"]] = (
            MODES_OF[family][code] if mode else code * int(line["unit"])
        )
    if family == "tcgen05":
        _check_tcgen05(given, rest, values)
    elif rest:
        raise AddressError(
            f"{given:#018x} is not a wgmma descriptor: bit "
            f"{one_of(_set_bits(rest), 'and')} must be 0" + _other_family(given)
        )
    return values


def word_of(
    word: object, what: str = "a descriptor", error: type[Error] = AddressError
) -> int:
    """A 64-bit word; anything else is refused.

    >>> word_of(5)
    5
    """
    try:
        given = operator.index(word)  # type: ignore[arg-type]
    except TypeError:
        raise error(f"{what} must be a whole number; given {word!r}") from None
    if not 0 <= given < 1 << 64:
        raise error(f"{what} has 64 bits; given {given:#x}")
    return given


def _set_bits(word: int) -> list[int]:
    return [bit for bit in range(64) if word >> bit & 1]


def _other_family(word: int) -> str:
    """For a message: what a word is that has the bit of tcgen05."""
    if word >> CONSTANT_BIT & 7 != CONSTANT:
        return ""
    return (
        f"; with bit {CONSTANT_BIT} set it is a descriptor of tcgen05: read it with "
        'family="tcgen05"'
    )


def _check_tcgen05(word: int, rest: int, values: dict[str, Any]) -> None:
    """Refuse a word that is no descriptor of tcgen05, with the reason."""
    what = f"{word:#018x} is not a tcgen05 descriptor"
    constant = values.pop("constant")
    if constant == 0:
        right = word | CONSTANT << CONSTANT_BIT
        raise AddressError(
            f"{what}: bit {CONSTANT_BIT} is not set: this is a wgmma descriptor; for "
            f"tcgen05 set it: {right:#018x}"
        )
    if constant != CONSTANT:
        raise AddressError(
            f"{what}: bits 46 to 48 must be 0b{CONSTANT:03b}; given 0b{constant:03b}"
        )
    if rest:
        reasons = [
            f"bit {bit} is for sm_107 only, where {SM_107[bit]}"
            for bit in _set_bits(rest)
            if bit in SM_107
        ]
        plain = [bit for bit in _set_bits(rest) if bit not in SM_107]
        if plain:
            reasons.append(f"bit {one_of(plain, 'and')} must be 0")
        raise AddressError(f"{what}: " + "; ".join(reasons))
    if values["swizzle"] is None:
        codes = MODES_OF["tcgen05"]
        valid = (
            f"{code} {swizzle}"
            for code, swizzle in enumerate(codes)
            if swizzle is not None
        )
        raise AddressError(
            f"{what}: swizzle code {word >> 61} is invalid; valid are "
            f"{one_of(valid, 'and')}"
        )
    values["absolute"] = bool(values["absolute"])
