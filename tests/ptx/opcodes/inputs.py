"""The numbers that the forms of the table are tried on.

One pool for each kind of operand and place among the operands.  All pools follow from
a seed.  The first half has special numbers, every pair of them in the first two places;
the second half is random.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

COUNT = 1024
PLACES = 8
SEED = 20_270_101

Words = NDArray[np.uint64]

_FLOATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52)}
KINDS = (
    "pred",
    "i8",
    "i16",
    "i32",
    "i64",
    "i16x2",
    "i8x4",
    *_FLOATS,
    "f16x2",
    "bf16x2",
)


def kind_of(type_name: str, width: int) -> str:
    """The kind of pool for an operand of a type."""
    if type_name in ("pred", *_FLOATS, "f16x2", "bf16x2"):
        return type_name
    if type_name[1:] in ("16x2", "8x4"):
        return f"i{type_name[1:]}"
    if type_name in ("u8", "s8"):
        return "i32"  # their registers have bits above, which must not count
    return f"i{min(width, 64)}"


@cache
def pool(kind: str, place: int) -> Words:
    """The numbers for one operand, as bits in the low end of 64-bit words."""
    draw = np.random.default_rng([SEED, KINDS.index(kind), place])
    if kind == "pred":
        return draw.integers(0, 2, COUNT, dtype=np.uint64)
    if "x" in kind:
        return _packed(kind, place, draw)
    special = np.array(_special(kind), np.uint64)
    half, many = COUNT // 2, len(special)
    order = np.arange(half)
    if place == 0:
        first = special[order % many]
    elif place == 1:
        first = special[(order + order // many) % many]
    else:
        first = draw.choice(special, half)
    rest = _random_floats if kind in _FLOATS else _random_integers
    return np.concatenate([first, rest(kind, draw, COUNT - half)])


def _packed(kind: str, place: int, draw: np.random.Generator) -> Words:
    """Several numbers in a word, each from the pool of its kind."""
    base, _, times = kind.partition("x")
    parts, width = int(times), 32 // int(times)
    found = np.zeros(COUNT, np.uint64)
    for part in range(parts):
        one = np.roll(pool(base, place), part * (37 if place else 41))
        found |= one << np.uint64(width * part)
    return found


def _special(kind: str) -> list[int]:
    if kind in _FLOATS:
        return _special_floats(*_FLOATS[kind])
    width = int(kind[1:])
    top, every = 1 << (width - 1), (1 << width) - 1
    small = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 255]
    large = [every, every - 1, top - 1, top, top + 1, every // 3, every // 3 * 2]
    return sorted({number & every for number in small + large})


def _special_floats(exponent: int, mantissa: int) -> list[int]:
    """Zeros, subnormals, ends of the range, infinities, NaNs, and small numbers."""
    bias, top = (1 << (exponent - 1)) - 1, 1 << (exponent + mantissa)
    one, infinity = bias << mantissa, ((1 << exponent) - 1) << mantissa
    half = 1 << (mantissa - 1)
    positive = [
        0,
        1,
        (1 << mantissa) - 1,
        1 << mantissa,
        one,
        one + 1,
        one - 1,
        one + half,
        (bias + 1) << mantissa,
        infinity - 1,
        infinity,
    ]
    nans = [infinity + half, infinity + 1, infinity + half + 5]
    return positive + [top | each for each in positive[:9] + positive[10:]] + nans[:2]


def _random_integers(kind: str, draw: np.random.Generator, count: int) -> Words:
    """Numbers of every length, and their negatives."""
    width = int(kind[1:])
    every = np.uint64((1 << width) - 1)
    found = draw.integers(0, 1 << 64, count, dtype=np.uint64) & every
    shift = draw.integers(0, width, count, dtype=np.uint64)
    shift[: count // 3] = 0
    found >>= shift
    flip = draw.integers(0, 2, count).astype(bool)
    return np.where(flip, ~found & every, found)


def _random_floats(kind: str, draw: np.random.Generator, count: int) -> Words:
    """Any bits, and numbers whose exponents are near that of one."""
    exponent, mantissa = _FLOATS[kind]
    every = np.uint64((1 << (exponent + mantissa + 1)) - 1)
    found = draw.integers(0, 1 << 64, count, dtype=np.uint64) & every
    near = count * 2 // 3
    bias, reach = (1 << (exponent - 1)) - 1, min(12, (1 << (exponent - 1)) - 2)
    exponents = draw.integers(bias - reach, bias + reach, near, dtype=np.uint64)
    keep = np.uint64((1 << (exponent + mantissa)) | ((1 << mantissa) - 1))
    found[:near] = (found[:near] & keep) | (exponents << np.uint64(mantissa))
    return found


@cache
def pools() -> Words:
    """All of them, a row for each kind and place."""
    return np.stack([pool(kind, place) for kind in KINDS for place in range(PLACES)])


def row(kind: str, place: int) -> int:
    """The row of a pool among all of them."""
    return KINDS.index(kind) * PLACES + place
