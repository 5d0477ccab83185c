"""Instructions that count, find and move bits."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import or_

from fragmenta.base.jit.trace import I32, Value, convert, select
from fragmenta.ptx.opcodes import bits
from fragmenta.ptx.opcodes.table import Qualifiers, opcodes

# ── counting and finding ────────────────────────────────────────────────────


@opcodes("""
    popc.type  d:u32, a  ; type = b32 b64
""")
def popc(q: Qualifiers, a: Value) -> Value:
    """How many bits are set."""
    return convert(bits.count_ones(a), I32)


@opcodes("""
    clz.type  d:u32, a  ; type = b32 b64
""")
def clz(q: Qualifiers, a: Value) -> Value:
    """How many zeros stand above the highest one."""
    return convert(bits.leading_zeros(a), I32)


@opcodes("""
    bfind{.shiftamt}.type  d:u32, a  ; type = u32 u64 s32 s64
""")
def bfind(q: Qualifiers, a: Value) -> Value:
    """The place of the highest bit that is not a sign bit; all ones if there is none.

    ``.shiftamt`` gives how far it must be shifted to stand at the top.
    """
    if bits.is_signed(q["type"]):
        a = a ^ (a >> (bits.width(a) - 1))
    zeros = convert(bits.leading_zeros(a), I32)
    top = bits.width(a) - 1
    return select(a == 0, -1, zeros if q["shiftamt"] else top - zeros)


@opcodes("""
    brev.type  d, a  ; type = b32 b64 ; kind = reverses
""")
def brev(q: Qualifiers, a: Value) -> Value:
    """The bits in reverse order."""
    return bits.reverse_bits(a)


@opcodes(
    """
    fns.b32  d, mask, base, offset:s32
    """,
    large=True,
    fidelity="h200",
)
def fns(q: Qualifiers, mask: Value, base: Value, offset: Value) -> Value:
    """The place of the n-th one from a place on, upward or downward; else all ones.

    A search downward is a search upward in the reversed bits.  The n-th one is found
    by halving: if the lower half has too few ones, they are skipped.
    """
    down = offset < 0
    start = select(down, 31 - base, base)
    rest = select(down, bits.reverse_bits(mask), mask) & bits.shifted_left(
        mask.lift(-1), start
    )
    # The first one counts as number 1; with offset 0 the base itself must be set.
    wanted = select(offset == 0, 1, bits.magnitude(offset))
    place = mask.lift(0)
    left = wanted
    for step in (16, 8, 4, 2, 1):
        here = bits.shift_right(rest, place) & ((1 << step) - 1)
        ones = bits.count_ones(here)
        skip = bits.compared(">", left, ones, signed=False)
        left = select(skip, left - ones, left)
        place = select(skip, place + step, place)
    # Signed, as on the H200: the magnitude of the smallest offset is still negative.
    found = bits.count_ones(rest) >= wanted
    found = found & ((offset != 0) | (place == base))
    return select(found, select(down, 31 - place, place), -1)


# ── fields ──────────────────────────────────────────────────────────────────


def _eight_bits(a: Value, x: Value) -> Value:
    """A place or a count; only its lowest eight bits count for a field of 32 bits.

    The manual says the same of 64 bits, but the code that ptxas writes for them does
    not cut the numbers: a place from 64 on is beyond the top.
    """
    if bits.width(a) == 64:
        return x
    constant = bits.known(x)
    return x & 255 if constant is None else x.lift(constant & 255)


def _lowest(a: Value, count: Value) -> Value:
    """Ones in as many of the lowest bits."""
    constant = bits.known(count)
    if constant is not None:
        return a.lift((1 << min(constant, bits.width(a))) - 1)
    return ~bits.shifted_left(a.lift(-1), count)


@opcodes(
    """
    bfe.type  d, a, b:u32, c:u32  ; type = u32 u64 s32 s64 ; b = 0..255 ; c = 0..255 ; kind = moves b c
    """,
    fidelity="h200",
)
def bfe(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """``c`` bits of ``a`` from bit ``b`` on.

    Beyond the top of ``a`` a signed field has the sign of ``a``, an unsigned one zeros.
    The field's own top bit is the sign where it lies below the top of ``a``.
    """
    signed, size = bits.is_signed(q["type"]), bits.width(a)
    count = _eight_bits(a, c)
    moved = bits.shifted_right(a, _eight_bits(a, b), signed)
    if not signed:
        return moved & _lowest(a, count)
    above = size - bits.smaller_unsigned(count, size)
    constant = bits.known(count)
    if constant is not None:
        above = count.lift(size - min(constant, size))
    return bits.shifted_right(bits.shifted_left(moved, above), above, signed)


@opcodes(
    """
    bfi.type  d, a, b, place:u32, count:u32  ; type = b32 b64 ; place = 0..255 ; count = 0..255 ; kind = moves place count
    """,
    fidelity="h200",
)
def bfi(q: Qualifiers, a: Value, b: Value, place: Value, count: Value) -> Value:
    """``b`` with its bits from ``place`` on replaced by the lowest of ``a``."""
    first = _eight_bits(a, place)
    mask = bits.shifted_left(_lowest(a, _eight_bits(a, count)), first)
    return (bits.shifted_left(a, first) & mask) | (b & ~mask)


@opcodes("""
    szext.mode.type  d, a, b:u32  ; mode = clamp wrap ; type = u32 s32 ; ptx = 7.6
""")
def szext(q: Qualifiers, a: Value, b: Value) -> Value:
    """The lowest ``b`` bits of ``a``, extended with their sign or with zeros."""
    signed = bits.is_signed(q["type"])
    if q["mode"] == "wrap":
        b = b & 31
    kept = bits.smaller_unsigned(b, 32)
    low = bits.shifted_left(a, 32 - kept)
    field = bits.shifted_right(low, 32 - kept, signed)
    return select(kept == 0, 0, field)


@opcodes("""
    bmsk.mode.b32  d, a:u32, b:u32  ; mode = clamp wrap ; ptx = 7.6
""")
def bmsk(q: Qualifiers, a: Value, b: Value) -> Value:
    """Ones from bit ``a`` on, ``b`` of them as far as there is room."""
    if q["mode"] == "wrap":
        a, b = a & 31, b & 31
    return bits.shifted_left(_lowest(a, b), a)


# ── bytes ───────────────────────────────────────────────────────────────────


@opcodes("""
    prmt.b32  d, a, b, c  ; kind = moves c
""")
def prmt(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """Four bytes of ``b:a``, each chosen by four bits of ``c``.

    The highest of the four bits asks for the sign of the byte in all its bits.
    """
    constant = bits.known(c)
    if constant is not None and not constant & 0x8888:
        digits = f"{constant & 0xFFFF:04x}"
        return _picked(digits[::-1], a, b)
    return _word(
        _chosen(a, b, bits.field(c, 4 * place, 4, False)) for place in range(4)
    )


def _chosen(a: Value, b: Value, number: Value) -> Value:
    """One of eight bytes or, with 8 more, its sign in all bits."""
    word = select((number & 4) == 0, a, b)
    byte = bits.shift_right(word, (number & 3) << 3) & 255
    sign = (0 - bits.shift_right(byte, 7)) & 255
    return select((number & 8) == 0, byte, sign)


def _word(four: Iterable[Value]) -> Value:
    """Four bytes as one number, the lowest first."""
    found, *above = four
    for place, byte in enumerate(above, 1):
        found = found | (byte << (8 * place))
    return found


# For each choice 0 to 3 the bytes that a mode picks, the lowest first.
_MODES = {
    "f4e": ("0123", "1234", "2345", "3456"),
    "b4e": ("0765", "1076", "2107", "3210"),
    "rc8": ("0000", "1111", "2222", "3333"),
    "ecl": ("0123", "1123", "2223", "3333"),
    "ecr": ("0000", "0111", "0122", "0123"),
    "rc16": ("0101", "2323", "0101", "2323"),
}


@opcodes("""
    prmt.b32.mode  d, a, b, c  ; mode = f4e b4e rc8 ecl ecr rc16 ; kind = moves c
""")
def prmt_mode(q: Qualifiers, a: Value, b: Value, c: Value) -> Value:
    """Four bytes of ``b:a`` by a pattern that the lowest two bits of ``c`` choose."""
    *others, last = (_picked(pattern, a, b) for pattern in _MODES[q["mode"]])
    found = last
    for number, picked in enumerate(others):
        found = select((c & 3) == number, picked, found)
    return found


def _picked(pattern: str, a: Value, b: Value) -> Value:
    """Four bytes of ``b:a`` whose numbers are known; the lowest is named first.

    Bytes that stand next to each other in a word are moved together.
    """
    numbers = [int(digit) for digit in pattern]
    runs, place = [], 0
    while place < 4:
        first, count = numbers[place], 1
        while place + count < 4 and numbers[place + count] == first + count != 4:
            count += 1
        runs.append(_moved(b if first > 3 else a, first % 4, count, place))
        place += count
    return reduce(or_, runs)


def _moved(word: Value, first: int, count: int, place: int) -> Value:
    """Some bytes of a word at another place, all others zero."""
    if count < 4:
        word = word & (((1 << (8 * count)) - 1) << (8 * first))
    if place > first:
        return word << (8 * (place - first))
    return bits.shift_right(word, 8 * (first - place)) if place < first else word
