"""The orders in which libraries store the elements of a weight.

Three lines say it.  The first is the fragment of the instruction.  The second is the
order in memory, here of ``mma.m16n8k16`` with two steps of k in 8 bytes::

    offset = E* R0 Y0 L* Y1* X*

E, R and L are the element, the register and the lane of the fragment (and W the warp
of a warpgroup).  Y counts tiles along the rows of the operand, X along its columns.
The third line is the order of the elements in a word::

    P = I1 I2 I0

I is the number of an element in its word by the second line, P the slot where it is
stored, the lowest bits first.  So the slots hold the elements 0, 2, 4, 6, 1, 3, 5, 7.

Orders that follow no instruction have the axes k and n: the rows and the columns of the
weight, which are input and output features.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fragmenta.base.arrays.checks import is_whole
from fragmenta.errors import LayoutError
from fragmenta.reference.registers.layout import Layout

WORD = 32
"""The bits of a stored word."""
BITS = (1, 2, 4, 8, 16, 32)
"""The bits that an element may have."""
Nibbles = str | Sequence[int]


def word_of(name: str, bits: int, then: str = "") -> str:
    """The elements of a word side by side along k or n, and the rest of the line.

    >>> word_of("k", 4, "n* k{}*"), word_of("n", 8, "n{}* k*")
    ('k0 k1 k2 n* k3*', 'n0 n1 n2* k*')
    """
    count = (WORD // bits).bit_length() - 1
    return " ".join([f"{name}{digit}" for digit in range(count)] + [then.format(count)])


def row_major(bits: int, outer: str = "k", inner: str = "n") -> str:
    """Rows one after the other, in each of them word after word.

    >>> row_major(4)
    'n0 n1 n2 n3* k*'
    """
    return word_of(inner, bits, f"{inner}{{}}* {outer}*")


class LibraryOrder(NamedTuple):
    """An order that a library uses."""

    about: str
    memory: Mapping[int, str]
    """The order in memory, by the bits of an element."""
    op: str = ""
    operand: str = ""
    tiles: str = ""
    """Which rows and columns of the weight each instruction takes, if not a tile."""
    nibbles: str = "fast"
    channel: str = ""
    """The order of scales for whole columns: by the fragment of D, where they are
    applied.  Without it, they have the order of all scales."""
    grouped: bool = True
    """Whether scales of groups have the order of the weight's columns; otherwise they
    have that of ``channel``."""


_F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
_S8 = "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
_SPARSE = "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
_BY_COLUMNS = "R0 X0 X1 L0 L1 X2* | m = L2 L3 L4 R1"

KNOWN = {
    "marlin": LibraryOrder(
        "Marlin, and vLLM's GPTQ and AWQ kernels after it: int4 and int8 for f16, bf16",
        dict.fromkeys((4, 8), "E* R* X0 X1 X2 L* X3* Y*"),
        _F16,
        "B",
        channel=_BY_COLUMNS,
    ),
    "marlin_a8": LibraryOrder(
        "Marlin with 8-bit activations, as in vLLM: int4 and int8 for s8",
        dict.fromkeys((4, 8), "E* R* X0 X1 L* X2* Y*"),
        _S8,
        "B",
        channel=_BY_COLUMNS,
        grouped=False,
    ),
    # The weight is A, transposed.  Rows g and g + 8 of instruction j are the columns
    # 8g + j and 8g + 4 + j of the weight, as in the metadata of Sparse-Marlin.
    "sparse_marlin": LibraryOrder(
        "Sparse-Marlin (Marlin 2:4): the stored values, K/2 x N",
        dict.fromkeys((4, 8), "E* R1 R0 Y0 Y1 L* Y2* X*"),
        _SPARSE,
        "A",
        tiles="k = col* X*  n = Y0 Y1 row3 row0 row1 row2 Y2*",
        channel="Y0 Y1 R1 L2 L3 L4 Y2* | m = R0 L0 L1",
    ),
    # 64 rows of 4 columns (int4) or of 2 (int8) are one cache line of 128 bytes.
    "tensorrt_llm": LibraryOrder(
        "TensorRT-LLM and FasterTransformer for f16 and bf16, sm_75 to sm_89",
        {
            4: "E* R0 Y0 L0 L1 Y1 L2 L3 Y2* L4 X*",
            8: "E* R0 L0 L1 Y0 Y1 L2 Y2* L3 L4 X*",
        },
        _F16,
        "B",
    ),
    "awq": LibraryOrder("AWQ's GEMM: words along n", {4: row_major(4)}),
    "gptq": LibraryOrder(
        "GPTQ: words along k",
        {bits: word_of("k", bits, "n* k{}*") for bits in (2, 4, 8)},
        nibbles="plain",
    ),
    "plain": LibraryOrder(
        "row-major, words along n",
        {bits: row_major(bits) for bits in BITS},
        nibbles="plain",
    ),
}


def multiples(line: str) -> dict[str, int]:
    """What each axis of a line must be a multiple of.

    >>> multiples("E* R* X0 X1 X2 L* X3* Y*")
    {'E': 1, 'R': 1, 'X': 8, 'L': 1, 'Y': 1}
    """
    found: dict[str, int] = {}
    for axis, digit, rest in re.findall(r"([A-Za-z_]+)(\d*)(\*?)", line):
        if len(digit) < 3:  # no weight has a larger one
            least = 1 << int(digit or 0) + (not rest)
            found[axis] = max(found.get(axis, 1), least)
    return found


def nibble_digits(nibbles: Nibbles, bits: int, container: int) -> list[int]:
    """The bit of I that each bit of P is.

    ``"fast"``: elements of one register are ``container`` bits apart, so that a mask
    or a permutation of bytes cuts out all elements of a register at once.

    >>> nibble_digits("fast", 4, 16), nibble_digits("fast", 4, 8)
    ([1, 2, 0], [2, 0, 1])
    >>> nibble_digits((0, 2, 1, 3), 8, 16), nibble_digits("plain", 8, 16)
    ([1, 0], [0, 1])
    """
    count = (WORD // bits).bit_length() - 1
    in_register = (WORD // container).bit_length() - 1
    if isinstance(nibbles, str) and nibbles == "fast":
        return [*range(in_register, count), *range(in_register)]
    if isinstance(nibbles, str) and nibbles == "plain":
        return list(range(count))
    given = tuple(nibbles) if isinstance(nibbles, tuple | list) else ()
    if len(given) == 1 << count and all(map(is_whole, given)):
        # If bits are permuted, the slots 1, 2, 4 ... hold the elements 1, 2, 4 ...
        digits = [int(given[1 << bit]).bit_length() - 1 for bit in range(count)]
        if sorted(digits) == list(range(count)) and listed(digits) == given:
            return digits
    usual = max(16, bits)
    raise LayoutError(
        f"nibbles are 'fast', 'plain', or the {WORD // bits} elements of a word from "
        f"the lowest bits on, such as {listed(nibble_digits('fast', bits, usual))}, in "
        f"an order that permutes the bits of their number; given {nibbles!r}"
    )


def listed(digits: Sequence[int]) -> tuple[int, ...]:
    """The element in each slot of a word.

    >>> listed([1, 2, 0])
    (0, 2, 4, 6, 1, 3, 5, 7)
    """
    slots = range(1 << len(digits))
    return tuple(
        sum((slot >> bit & 1) << digit for bit, digit in enumerate(digits))
        for slot in slots
    )


def stored(natural: Layout, digits: Sequence[int]) -> Layout:
    """The order in memory, with the elements of each word in the order of the slots.

    >>> natural = Layout.parse("offset = E0 R0 R1 L*", L=4, R=4, E=2)
    >>> print(stored(natural, [1, 2, 0]))
    offset = R0 R1 E0 L0 L1
    """
    inside = " ".join(f"offset{digit}" for digit in digits)
    line = f"offset = {inside} offset{len(digits)}*"
    return natural.then(Layout.parse(line, offset=natural.sizes["offset"]))
