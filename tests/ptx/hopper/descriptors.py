"""Mutants of descriptors: kernels whose products read shared memory in a wrong way.

In each mutant, one field of the descriptor of A or of B is another one, in all products
of the kernel: a mistake in the constant from which a kernel makes its descriptors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from tests.ptx.hopper.mutants import Mutant

DESCRIPTOR = "descriptor of"
"""The names of these changes begin so."""
PRODUCT = re.compile(
    r"(wgmma\.mma_async\S*)\s+(\{[^}]*\}),\s*(\{[^}]*\}|%\w+),\s*(%\w+),\s*([^;]*);"
)


class Field(NamedTuple):
    """Bits of a descriptor."""

    low: int
    bits: int


FIELDS = {
    "start": Field(0, 14),
    "leading": Field(16, 14),
    "stride": Field(32, 14),
    "base": Field(49, 3),
    "swizzle": Field(62, 2),
}
CHANGES = {
    "swizzle": ("xor.b64 {0}, {0}, 1;", "xor.b64 {0}, {0}, 2;", "xor.b64 {0}, {0}, 3;"),
    "stride": (
        "shl.b64 {0}, {0}, 1;",
        "shr.u64 {0}, {0}, 1;",
        "add.s64 {0}, {0}, 8;",
        "add.s64 {0}, {0}, 1;",
        "sub.s64 {0}, {0}, 8;",
    ),
    "leading": (
        "shl.b64 {0}, {0}, 1;",
        "shr.u64 {0}, {0}, 1;",
        "add.s64 {0}, {0}, 8;",
        "add.s64 {0}, {0}, 1;",
    ),
    "start": (
        "add.s64 {0}, {0}, 1;",
        "add.s64 {0}, {0}, 2;",
        "add.s64 {0}, {0}, 8;",
        "add.s64 {0}, {0}, 64;",
        "sub.s64 {0}, {0}, 1;",
        "sub.s64 {0}, {0}, 8;",
    ),
    "base": ("xor.b64 {0}, {0}, 1;", "xor.b64 {0}, {0}, 4;"),
}
"""What is done to each field, in units of 16 bytes."""


def of_descriptor(change: str) -> bool:
    """Whether a change is one of these."""
    return change.startswith(DESCRIPTOR)


def changed(text: str, operand: str, field: str, calculation: str) -> str:
    """The text with another field in the descriptors of all products."""
    of = FIELDS[field]

    def one(found: re.Match[str]) -> str:
        mnemonic, d, a, b, rest = found.groups()
        old = a if operand == "A" else b
        if old.startswith("{"):
            return found[0]
        names = {"A": ("%mutant", b), "B": (a, "%mutant")}[operand]
        return (
            "{ .reg .b64 %mutant, %part; "
            f"bfe.u64 %part, {old}, {of.low}, {of.bits}; "
            f"{calculation.format('%part')} "
            f"bfi.b64 %mutant, %part, {old}, {of.low}, {of.bits}; "
            f"{mnemonic} {d}, {', '.join(names)}, {rest}; }}"
        )

    return PRODUCT.sub(one, text)


def transposed(text: str, operand: str) -> str:
    """The text with A or B of all products major along the other side."""

    def one(found: re.Match[str]) -> str:
        mnemonic, d, a, b, rest = found.groups()
        parts = rest.split(", ")
        place = {"A": -2, "B": -1}[operand]
        wide = mnemonic.endswith(("f16.f16", "bf16.bf16"))
        if not wide or (operand == "A" and a.startswith("{")):
            return found[0]
        parts[place] = str(1 - int(parts[place]))
        return f"{mnemonic} {d}, {a}, {b}, {', '.join(parts)};"

    return PRODUCT.sub(one, text)


def mutants(text: str) -> Iterator[Mutant]:
    """All kernels with one field changed."""
    for operand in "AB":
        for field, calculations in CHANGES.items():
            for each in calculations:
                made = changed(text, operand, field, each)
                yield from _mutant(text, f"{operand} {field}: {each.format('x')}", made)
        yield from _mutant(text, f"{operand} major", transposed(text, operand))


def _mutant(text: str, name: str, made: str) -> Iterator[Mutant]:
    """The whole text is another one, if it is."""
    if made != text:
        line = 1 + text.count("\n", 0, PRODUCT.search(text).start())  # type: ignore[union-attr]
        trap = PRODUCT.sub("trap;", text)
        yield Mutant(
            f"{DESCRIPTOR} {name}", line, (), 0, 0, len(text), made, text, trap
        )
