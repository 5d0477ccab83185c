"""Numbers at which kernels part: NaN, infinities, -0, subnormals, ties, extremes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from fragmenta.inspect.sameness.cones import ConeNode, Words

_BITS = """
    00000000 80000000 3F800000 BF800000 00000001 80000001 007FFFFF 807FFFFF 00800000
    80800000 00400000 7F7FFFFF FF7FFFFF 7F800000 FF800000 7FC00000 FFC00000 7FFFFFFF
    FFFFFFFF 7F800001 FFA00001 3F800001 3F7FFFFF 3F000000 BF000000 3FC00000 40200000
    40400000 40000000 C0000000 3EAAAAAB 3DCCCCCD 4B800000 4B800001 4B000001 4A800001
    4F000000 CF000000 4F800000 5F000000 477FE000 477FF000 47800000 38800000 33800000
    33000000 33000001 7F000000 7E800000 01000000 00800001 1F800000 5F800000 0000BEEF
    3F801000 3F808000 00000007 00000020 42FE0000 C2FC0000 437F0000 41200000 C1200001
"""
_F32 = tuple(int(each, 16) for each in _BITS.split())
"""Bits of f32."""
_WHOLE = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    10,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    100,
    127,
    128,
    255,
    256,
)


def specials(bits: int, name: str) -> Words:
    """The numbers of a type that are tried in all combinations.

    >>> specials(16, "float16")[:4].tolist(), specials(32, "int32").size > 40
    ([0, 32768, 15360, 48128], True)
    """
    if name == "float32":
        return np.array(_F32, np.uint64)
    mask = (1 << bits) - 1
    if name == "bfloat16":
        found = [each >> 16 for each in _F32] + [1, 0x8001, 0x7F, 0x3F81, 0x3F7F]
    elif name == "float16":
        with np.errstate(all="ignore"):
            halves = np.array(_F32, np.uint32).view(np.float32).astype(np.float16)
        found = halves.view(np.uint16).tolist()
        found += [
            1,
            0x8001,
            0x3FF,
            0x400,
            0x7BFF,
            0xFBFF,
            0x7E00,
            0x7FFF,
            0x7C01,
            0x3C01,
        ]
    elif name == "float64":
        wide = np.array(_F32, np.uint32).view(np.float32).astype(np.float64)
        found = wide.view(np.uint64).tolist()
        found += [1, 1 << 63 | 1, (1 << 52) - 1, 1 << 52, 0x7FEFFFFFFFFFFFFF]
        found += [0x7FF0000000000001, 0x3FF0000000000001, 0x41E0000000000000]
    else:
        top = 1 << (bits - 1)
        found = [*_WHOLE, *(-each for each in _WHOLE), top, top - 1, top + 1]
        found += [
            0x55555555,
            0xAAAAAAAA,
            0x0F0F0F0F,
            0x80808080,
            0x00FF00FF,
            0x12345678,
        ]
    listed = dict.fromkeys(each & mask for each in found)
    return np.array(list(listed), np.uint64)


def numbers_for(
    inputs: Sequence[ConeNode],
    loaded: Sequence[bool],
    random: np.random.Generator,
    count: int,
) -> Iterator[list[Words]]:
    """Some vectors of inputs after others; those that are not loaded are ignored."""
    if not inputs:
        yield []
        return
    lists = [
        specials(each.bits, each.name) if is_loaded else np.zeros(1, np.uint64)
        for each, is_loaded in zip(inputs, loaded, strict=True)
    ]
    if np.prod([float(each.size) for each in lists]) <= 4 * count:
        every = np.array(list(product(*(each.tolist() for each in lists))), np.uint64)
        yield [np.ascontiguousarray(column) for column in every.T]
    else:
        yield [random.choice(each, count) for each in lists]
    masks = [np.uint64((1 << each.bits) - 1) for each in inputs]
    whole = [random.integers(0, 1 << 64, count, np.uint64) for _ in inputs]
    yield [word & mask for word, mask in zip(whole, masks, strict=True)]
    yield _near(inputs, random, count)
    mixed = [random.choice(each, count) for each in lists]
    keep = [random.random(count) < 0.5 for _ in inputs]
    yield [
        np.where(k, m, w & mask)
        for k, m, w, mask in zip(keep, mixed, whole, masks, strict=True)
    ]


def _near(
    inputs: Sequence[ConeNode], random: np.random.Generator, count: int
) -> list[Words]:
    """Numbers of like magnitudes with few bits, and pairs that nearly cancel."""
    found: list[Words] = []
    base: Words | None = None
    for each in inputs:
        bits, mask = each.bits, np.uint64((1 << each.bits) - 1)
        if each.name not in ("float32", "float16", "bfloat16", "float64"):
            found.append(random.integers(0, 1 << min(bits, 12), count, np.uint64))
            continue
        width = {"float32": 23, "float16": 10, "bfloat16": 7, "float64": 52}[each.name]
        bias = (1 << (bits - width - 2)) - 1
        exponent = bias + random.integers(-4, 5, count)
        fraction = random.integers(0, 1 << width, count, np.uint64)
        few = random.integers(0, width, count).astype(np.uint64)
        fraction = np.where(
            random.random(count) < 0.5, fraction >> few << few, fraction
        )
        made = exponent.astype(np.uint64) << np.uint64(width) | fraction
        if base is not None and base.size and random.random() < 0.7:
            step = random.integers(-2, 3, count).astype(np.uint64)
            made = np.where(random.random(count) < 0.5, base + step, made)
        sign = random.integers(0, 2, count).astype(np.uint64) << np.uint64(bits - 1)
        base = made & (mask >> np.uint64(1))
        found.append(made & mask ^ sign)
    return found
