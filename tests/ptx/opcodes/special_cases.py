"""Operands for the approximate instructions, and how these are run.

The operands of a recording are made again wherever it is replayed.  So a recording holds
only results: every 32nd in full, and a checksum of each 128.
"""

from __future__ import annotations

import zlib
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from fragmenta.base.jit.compiler import Traced, kernel, pointer
from fragmenta.base.jit.trace import I16, I32, I64, LANES, Code, Memory, Value, convert
from fragmenta.ptx.opcodes import special
from fragmenta.ptx.opcodes.table import TABLE

Words = NDArray[Any]

_WITH_FTZ = ("rcp", "rsqrt", "sqrt", "ex2", "lg2", "sin", "cos")
SINGLE = (
    *(f"{name}.approx{ftz}.f32" for name in _WITH_FTZ for ftz in ("", ".ftz")),
    "tanh.approx.f32",
)
NARROW = (
    "ex2.approx.f16",
    "tanh.approx.f16",
    "ex2.approx.ftz.bf16",
    "tanh.approx.bf16",
)
PAIRS = tuple(f"{name}x2" for name in NARROW)
WIDE_UPPER = ("rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64")
WIDE = "rsqrt.approx.f64"
DIVISIONS = tuple(
    f"div.{how}{ftz}.f32" for how in ("approx", "full") for ftz in ("", ".ftz")
)
INSTRUCTIONS = (*SINGLE, *NARROW, *PAIRS, *WIDE_UPPER, WIDE, *DIVISIONS)

_SIZES = {"f32": I32, "f16": I16, "bf16": I16, "f64": I64}
_KINDS = {I16: np.uint16, I32: np.uint32, I64: np.uint64}


# ── the model ───────────────────────────────────────────────────────────────


def kind_of(mnemonic: str) -> Any:
    """The type of the integers that hold an instruction's operands."""
    return _SIZES.get(mnemonic.rpartition(".")[2], I32)


def _emit(mnemonic: str, *given: Value) -> Value:
    found = TABLE.find(mnemonic)
    assert found is not None, mnemonic
    assert found.syntax.emit is not None, mnemonic
    assert found.syntax.emit.__module__ == special.__name__, mnemonic
    result: Value = found.syntax.emit(found.qualifiers, *given)
    return result


@cache
def over_arrays(mnemonic: str) -> Traced:
    """An instruction for arrays of operands, whose length is a multiple of eight."""
    operands = 2 if mnemonic in DIVISIONS else 1

    def special_list(code: Code, *given: Any) -> None:
        *sources, target, count = given
        with code.loop(count, step=LANES) as i:
            target[i] = _emit(mnemonic, *(each.lanes(i) for each in sources))

    names = ["a", "b"][:operands]
    of = pointer(kind_of(mnemonic))
    return kernel(**dict.fromkeys(names, of), d=of, count=I64)(special_list)


@cache
def over_numbers(mnemonic: str) -> Traced:
    """An instruction for the operands start, start + 1, …; upper words for f64."""
    of = kind_of(mnemonic)

    def special_range(code: Code, d: Memory, start: Value, count: Value) -> None:
        steps = ir.Constant(ir.VectorType(I64, LANES), list(range(LANES)))
        with code.loop(count, step=LANES) as i:
            number = (start + i).in_all_lanes() + Value(code.builder, steps)
            operand = number << 32 if of == I64 else convert(number, of)
            d[i] = _emit(mnemonic, operand)

    return kernel(d=pointer(of), start=I64, count=I64)(special_range)


def results(mnemonic: str, *operands: Words) -> Words:
    """What fragmenta computes."""
    found = np.empty_like(operands[0])
    over_arrays(mnemonic)(*operands, found, found.size)
    return found


# ── operands ────────────────────────────────────────────────────────────────


def mixed(count: int, seed: int) -> Words:
    """Numbers of 64 bits that look random and are the same everywhere."""
    x = np.arange(seed, seed + count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def singles(seed: int = 1) -> Words:
    """20,480 f32: every exponent, the edges of every segment, and others."""
    every = np.arange(512, dtype=np.uint32)[:, None] << 23
    ends = (every | np.array([0, 1, 0x7FFFFF], np.uint32)).ravel()
    near = np.arange(118, 136, dtype=np.uint32)[:, None] << 23
    first = np.arange(128, dtype=np.uint32) << 16
    edges = (near | np.concatenate([first, first | 0xFFFF])).ravel()
    more = mixed(20_480 - ends.size - edges.size, seed)
    other = (more & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    # Half of them not far from one, where the functions are not constant.
    exponent = ((more >> np.uint64(40)) % np.uint64(32)).astype(np.uint32) + 108
    close = (other & np.uint32(0x807FFFFF)) | (exponent << 23)
    return np.concatenate([ends, edges, np.where(more >> np.uint64(63), close, other)])


def pairs(count: int, seed: int) -> tuple[Words, Words]:
    """Dividends and divisors; the quotient of every second pair is 2**-126, or nearly.

    There it is decided what ``.ftz`` flushes.
    """
    both = mixed(count, seed)
    a = (both & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    b = (both >> np.uint64(32)).astype(np.uint32)
    large = (b & 0x7FFFFFFF) | 0x3F800000
    close = np.where(a & 7, large - (126 << 23) + a % 3 - 1, (a & 0xFFFFFF))
    second = np.arange(count) % 2 == 1
    return np.where(second, close.astype(np.uint32), a), np.where(second, large, b)


def recorded_operands(mnemonic: str) -> tuple[Words, ...]:
    """The operands of a recording."""
    if mnemonic in SINGLE:
        return (singles(),)
    if mnemonic in DIVISIONS:
        listed, (a, b) = singles(), pairs(20_480, 7)
        return np.concatenate([listed, a]), np.concatenate([listed[::-1], b])
    if mnemonic in NARROW:
        return (np.arange(1 << 16, dtype=np.uint16),)
    if mnemonic in PAIRS:
        low = np.arange(1 << 16, dtype=np.uint32)
        return (low | ((low ^ 0x5A5A) << 16),)
    return (doubles(),)


def doubles() -> Words:
    """24,576 f64: every exponent, subnormal numbers, and others."""
    every = np.arange(4096, dtype=np.uint64)[:, None] << np.uint64(52)
    ends = np.array([0, 1, (1 << 32) - 1, (1 << 52) - 1], np.uint64)
    others = mixed(8192, 3)
    others[::4] &= np.uint64(0x800FFFFFFFFFFFFF)
    return np.concatenate([(every | ends).ravel(), others])


# ── recordings ──────────────────────────────────────────────────────────────

FULL = 32
BLOCK = 128


def compacted(found: Words) -> tuple[Words, Words]:
    """Some results in full, and the checksums of all."""
    blocks = found.reshape(-1, BLOCK)
    sums = [
        zlib.crc32(block.astype(found.dtype.newbyteorder("<")).tobytes())
        for block in blocks
    ]
    return found[::FULL], np.array(sums, np.uint32)
