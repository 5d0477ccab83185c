"""``spcompress``, ``spdecompress``: structured sparsity in the registers of a thread.

``spcompress`` keeps two of each four elements, as a descriptor says, and tells their
indices.  ``spdecompress`` puts elements back to where their indices say, with zeros
between them.  Every thread works on its own registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from fragmenta.reference.isa.instruction import Instruction, Operand, Parts
from fragmenta.reference.isa.table import Form, Row
from fragmenta.reference.isa.target import Version

#: Bits of an element and of an index, as both instructions write them.
SIZES = ("b8.b2", "b8.b4", "b16.b2", "b16.b4")
#: How often it is done: so many registers of results of ``spcompress``.
NUMBERS = (1, 2, 4, 8, 16, 32, 64)
#: So many elements are spread over so many; ``spcompress`` has 2:4 alone.
FACTORS = ("1:2", "1:4", "1:8", "1:16", "2:4", "2:8", "2:16", "4:8", "4:16")
WORD = 32
#: The most bits that ``spdecompress`` writes: 128 registers.
MOST = 4096
NEEDS = (Version(9, 4), "sm_107a")

DOES = {
    "spcompress": "Keeps two of each four elements in registers, and tells their "
    "indices; the descriptor says of which type they are, and which two remain.",
    "spdecompress": "Puts elements where their indices say, with zeros between them.",
}


def _bits(sizes: str) -> tuple[int, int]:
    element, index = (int(word[1:]) for word in sizes.split("."))
    return element, index


def _factor(text: str) -> tuple[int, int]:
    kept, of = (int(number) for number in text.removeprefix("sp::").split(":"))
    return kept, of


def _rows() -> Iterator[Row]:
    """The rows of ``spdecompress``: the manual's conditions on its qualifiers."""
    for sizes, factor in product(SIZES, FACTORS):
        (element, index), (kept, of) = _bits(sizes), _factor(factor)
        one_register = kept * element <= WORD
        can_count = 1 << index >= of
        numbers = [n for n in NUMBERS if WORD <= of * element * n <= MOST]
        if one_register and can_count and numbers:
            yield _row("spdecompress", (sizes,), factor, numbers)


def _row(name: str, sizes: tuple[str, ...], factor: str, numbers: list[int]) -> Row:
    fields = {
        "sizes": sizes,
        "sp": (f"sp::{factor}",),
        "num": tuple(f"x{number}" for number in numbers),
    }
    return Row(fields, *NEEDS, facts={"does": DOES[name]})


# ── operands ────────────────────────────────────────────────────────────────


class Sizes(NamedTuple):
    """The sizes in the name of an instruction."""

    element: int
    """Bits of an element."""
    index_bits: int
    kept: int
    of: int
    number: int
    """How often it is done."""


def sizes_of(op: Instruction) -> Sizes:
    """The sizes of an instruction.

    >>> import fragmenta as fm
    >>> sizes_of(fm.instruction("spdecompress.b8.b4.sp::2:4.x2"))
    Sizes(element=8, index_bits=4, kept=2, of=4, number=2)
    """
    count = int(op.values["num"][1:])
    return Sizes(*_bits(op.values["sizes"]), *_factor(op.values["sp"]), count)


def _registers(bits: int) -> int:
    return -(-bits // WORD)


def compress_operands(op: Instruction) -> tuple[Operand, ...]:
    """Indices and elements that are kept, all elements, and the descriptor."""
    element, index, _, _, count = sizes_of(op)
    return (
        Operand("mdata", ".b32", -(-count * index // element)),
        Operand("cdata", ".b32", count),
        Operand("data", ".b32", 2 * count),
        Operand("spdesc", ".b32", vector=False),
    )


def decompress_operands(op: Instruction) -> tuple[Operand, ...]:
    """All elements, then the indices and the elements that are not zeros."""
    element, index, kept, of, count = sizes_of(op)
    return (
        Operand("data", ".b32", _registers(of * element * count)),
        Operand("mdata", ".b32", _registers(kept * index * count)),
        Operand("cdata", ".b32", _registers(kept * element * count)),
    )


def parts(op: Instruction) -> Parts:
    """None: indices decide what the registers hold."""
    return {}


SPCOMPRESS = Form(
    "spcompress",
    ("spcompress.{sizes}.{sp}.{num}",),
    (_row("spcompress", SIZES, "2:4", list(NUMBERS)),),
    compress_operands,
    parts,
    any_order="spcompress",
    unit="sparsity",
)
SPDECOMPRESS = Form(
    "spdecompress",
    ("spdecompress.{sizes}.{sp}.{num}",),
    tuple(_rows()),
    decompress_operands,
    parts,
    any_order="spdecompress",
    unit="sparsity",
)
