"""Random inputs for instructions, the same on every machine.

There are several kinds of input.  They are made from the raw words of a counter-based
generator by integer arithmetic alone, so a recording stores only the answers of the
GPU.
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from fragmenta.reference.arithmetic.operands import Bits
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.dtype import DType
from fragmenta.reference.registers.fragment import Fragment, Words

#: The kinds of input for floating point, and what each is for.
FLOAT_KINDS = {
    "bits": "uniform random bits: NaN, Inf and subnormals as they come",
    "normal": "ordinary values of similar size",
    "wide": "every finite exponent alike, so that most products are lost",
    "subnormal": "values at and below the smallest normal number",
    "cancel": "few different magnitudes of both signs, whose sums cancel",
    "overflow": "values near the largest, so that sums overflow",
    "zeros": "mostly zeros of both signs",
    "special": "ordinary values with some Inf, NaN and zero among them",
}
INTEGER_KINDS = {
    "bits": "uniform random bits",
    "extreme": "A and B at the ends of their range",
    "edge": "accumulators within 2^12 of the ends of 32 bits",
}


class WordStream:
    """A stream of raw 64-bit words that every platform and version repeats."""

    def __init__(self, *key: object) -> None:
        digest = hashlib.sha256(repr(key).encode()).digest()
        self._generator = np.random.Philox(key=int.from_bytes(digest[:16], "little"))

    def words(self, shape: tuple[int, ...]) -> NDArray[np.uint64]:
        """Uniform 64-bit words."""
        count = int(np.prod(shape))
        return self._generator.random_raw(count).reshape(shape)

    def below(self, bound: int, shape: tuple[int, ...]) -> NDArray[np.uint64]:
        """Integers from 0 to bound - 1, near enough to uniform for tests."""
        high = self.words(shape) >> np.uint64(32)
        return (high * np.uint64(bound)) >> np.uint64(32)


def kinds(op: Instruction) -> tuple[str, ...]:
    """The kinds of input that make sense for an instruction."""
    floating = op.types["a"].kind == "float"
    return tuple(FLOAT_KINDS if floating else INTEGER_KINDS)


def tile_count(op: Instruction, tiles: int) -> int:
    """The tiles of a trial: at least as many as given, the same number of each kind."""
    return -(-tiles // len(kinds(op))) * len(kinds(op))


def registers(
    op: Instruction, tiles: int, seed: int, selector: int | None
) -> dict[str, Words]:
    """Operands in registers for at least ``tiles`` tiles, of each kind in turn.

    >>> import fragmenta as fm
    >>> found = registers(fm.mma("m8n8k4", a="f64"), 8, 1, None)
    >>> {name: words.shape for name, words in found.items()}
    {'a': (8, 32, 1), 'b': (8, 32, 1), 'c': (8, 32, 2)}
    """
    source = WordStream(str(op), tiles, seed, selector)
    each = tile_count(op, tiles) // len(kinds(op))
    found: dict[str, Words] = {}
    for name, part in op.fragments.items():
        if name == "D":
            continue
        if name == "metadata":
            found[name] = metadata(op, tile_count(op, tiles), selector or 0, source)
            continue
        chunks = [elements(part, name, kind, each, source) for kind in kinds(op)]
        bits = np.concatenate(chunks)
        found[name.lower()] = part.pack(part.dtype.decode(bits))
    return found


# ── elements ────────────────────────────────────────────────────────────────


def elements(
    part: Fragment, name: str, kind: str, tiles: int, source: WordStream
) -> Bits:
    """Raw bits of one kind for every element of an operand."""
    shape = (tiles, *part.shape)
    dt = part.dtype
    if dt.kind == "float":
        bits = floats(dt, kind, name in "CD", shape, source)
    else:
        bits = integers(dt, kind, name in "CD", shape, source)
    return bits.astype(dt.bits_dtype)


def integers(
    dt: DType, kind: str, accumulator: bool, shape: tuple[int, ...], source: WordStream
) -> Bits:
    """Raw bits of one of :data:`INTEGER_KINDS`."""
    mask = np.uint64(dt.mask)
    words = source.words(shape)
    if kind == "extreme" and not accumulator and dt.bits > 1:
        low, high = dt.limits
        ends = np.array([low, high, high, -1 if low else 1], np.int64)
        chosen: Bits = ends.astype(np.uint64)[words & np.uint64(3)] & mask
        return chosen
    if kind == "edge" and accumulator:
        distance = words & np.uint64(0xFFF)
        top = np.uint64(0x7FFFFFFF) - distance
        bottom = np.uint64(0x80000000) + distance
        return np.where(words >> np.uint64(63), bottom, top)
    return words & mask


def floats(
    dt: DType, kind: str, accumulator: bool, shape: tuple[int, ...], source: WordStream
) -> Bits:
    """Raw bits of one of :data:`FLOAT_KINDS`: sign, exponent field, fraction."""
    words = source.words(shape)
    if kind == "bits":
        return words & np.uint64(dt.mask)
    sign = words >> np.uint64(63)
    fraction = words & np.uint64((1 << dt.fraction_bits) - 1)
    exponent = _exponents(dt, kind, accumulator, shape, source)
    if kind == "cancel":  # two leading fraction bits, the rest zero
        keep = min(2, dt.fraction_bits)
        fraction = (fraction >> np.uint64(dt.fraction_bits - keep)) << np.uint64(
            dt.fraction_bits - keep
        )
    bits = _assemble(dt, sign, exponent, fraction)
    if kind == "zeros":
        zero = source.below(8, shape) < 6
        return np.where(zero, _assemble(dt, sign, exponent * 0, fraction * 0), bits)
    if kind == "special":
        return _sprinkle(dt, bits, sign, source)
    return bits


def _exponents(
    dt: DType, kind: str, accumulator: bool, shape: tuple[int, ...], source: WordStream
) -> Bits:
    """Exponent fields; those of A and B leave room for their product."""
    largest = (1 << dt.exponent_bits) - 1 - int(dt.has_infinity)
    bias = np.uint64(dt.bias)
    if kind == "wide":
        return source.below(largest + 1, shape)
    if kind == "subnormal":
        return source.below(3, shape)
    if kind == "cancel":
        return np.broadcast_to(bias, shape).copy()
    if kind == "overflow":
        top = largest if accumulator else min(largest, dt.bias + dt.bias // 2 + 1)
        span = min(3, top)
        return np.uint64(top) - source.below(span, shape)
    spread = min(7, largest)
    low = max(0, min(int(bias) - spread // 2, largest - spread))
    return np.uint64(low) + source.below(spread, shape)


def _assemble(dt: DType, sign: Bits, exponent: Bits, fraction: Bits) -> Bits:
    # tf32 lives in an f32: its fields sit thirteen bits higher
    shift = 13 if dt.name == "tf32" else 0
    top = dt.fraction_bits + dt.exponent_bits
    fields = sign << np.uint64(top) | exponent << np.uint64(dt.fraction_bits) | fraction
    return fields << np.uint64(shift)


def _sprinkle(dt: DType, bits: Bits, sign: Bits, source: WordStream) -> Bits:
    """Replace about one element in forty by Inf, NaN or zero."""
    zero = np.zeros_like(bits)
    ones = np.uint64((1 << dt.exponent_bits) - 1)
    choices = [_assemble(dt, sign, zero, zero)]
    if dt.has_infinity:
        choices.append(_assemble(dt, sign, zero + ones, zero))
    if dt.has_nan:
        fraction = zero + np.uint64((1 << dt.fraction_bits) - 1)
        choices.append(_assemble(dt, sign, zero + ones, fraction))
    pick = source.below(40 * len(choices), bits.shape)
    for number, choice in enumerate(choices):
        bits = np.where(pick == number, choice, bits)
    return bits


# ── metadata ────────────────────────────────────────────────────────────────


@cache
def _legal(op: Instruction) -> NDArray[np.uint8]:
    """Every legal code, in the order of the positions that it names."""
    ordered = op.values.get("sp") == "sp::ordered_metadata"
    assert op.granularity is not None
    codes = op.granularity.codes(ordered=ordered)
    return np.array(sorted(codes, key=lambda code: (code & 3, code >> 2)), np.uint8)


def metadata(op: Instruction, tiles: int, selector: int, source: WordStream) -> Words:
    """Words of random legal codes, with junk in every lane that does not count."""
    part, legal = op.fragments["metadata"], _legal(op)
    codes = legal[source.below(len(legal), (tiles, *part.shape))]
    if not part.selectors:
        return part.pack(codes)
    words = part.pack(codes, selector=selector)
    mask = np.full(part.shape, 0xF, np.uint8)
    counted = part.pack(mask, selector=selector)
    junk = source.words(words.shape).astype(words.dtype)
    return np.where(counted != 0, words, junk)
