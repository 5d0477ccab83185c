"""Sparsity: the right elements are kept, and the codes name their places.

The judge goes through each chunk in plain Python, with exact fractions.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np

import fragmenta as fm
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.registers.granularity import Granularity
from fragmenta.reference.sparse import exchange
from fragmenta.reference.sparse.compression import (
    Compressed,
    compress,
    decompress,
)
from fragmenta.reference.sparse.compression import (
    check as check_sparse,
)
from fragmenta.reference.sparse.compression import (
    report as sparsity_report,
)
from fragmenta.reference.sparse.pruning import prune
from tests.fuzz.engine import Ask, Surface, bits, expect, index, odd, same
from tests.fuzz.packing import is_index, patterns


@cache
def forms() -> list[fm.Instruction]:
    """One sparse instruction for each type of A, pattern and rule of order."""
    found: dict[Any, fm.Instruction] = {}
    for family in ("mma.sp", "wgmma.sp"):
        for op in catalogue(family):
            key = (op.types["a"].name, op.granularity, op.metadata.ordered)
            found.setdefault(key, op)
    return list(found.values())


ANY = (
    np.float64,
    np.float32,
    np.float16,
    ml_dtypes.bfloat16,
    np.int64,
    np.uint64,
    np.int32,
    np.int16,
    np.int8,
    np.uint8,
    np.bool_,
)


def raw(array: Any) -> Any:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def rank(values: list[Any]) -> tuple[int, Fraction]:
    """What a place is worth: NaN, infinity, or the exact sum of magnitudes."""
    numbers = [x if isinstance(x, int) else float(x) for x in values]
    if any(math.isnan(x) for x in numbers):
        return 2, Fraction(0)
    if any(math.isinf(x) for x in numbers):
        return 1, Fraction(0)
    return 0, sum((abs(Fraction(x)) for x in numbers), Fraction(0))


def keeps(row: list[Any], granularity: Granularity) -> list[bool]:
    """Which elements of a row pruning keeps."""
    kept = []
    for start in range(0, len(row), granularity.chunk):
        group = granularity.group
        places = [
            rank(row[start + group * p : start + group * (p + 1)])
            for p in range(granularity.places)
        ]
        order = sorted(range(len(places)), key=lambda p: (places[p], -p), reverse=True)
        chosen = set(order[: granularity.picks])
        kept += [p in chosen for p in range(len(places)) for _ in range(group)]
    return kept


def sparse_bits(op: fm.Instruction, shape: tuple[int, int], rng: random.Random) -> Any:
    """Random bits with no more values in a chunk than are stored."""
    granularity = op.granularity
    found = patterns(op.types["a"], shape, rng).copy()
    places = found.reshape(-1, granularity.places, granularity.group)
    keys = bits(rng, np.uint16, places.shape[:2])
    rank_ = keys.argsort(axis=1).argsort(axis=1)
    few = bits(rng, np.uint8, places.shape[:2]) < 80
    places[(rank_ >= granularity.picks) | few] = 0
    return found


def too_full(found: Any, op: fm.Instruction) -> list[int]:
    """Non-zero places of each chunk; -0.0 is a zero."""
    of, granularity = op.types["a"], op.granularity
    values = found & of.bits_dtype.type(of.mask if of.is_integer else of.mask >> 1)
    shape = (-1, granularity.places, granularity.group)
    counts = (values.reshape(shape) != 0).any(axis=-1).sum(axis=-1)
    return counts.tolist()


def size(op: fm.Instruction, rng: random.Random) -> tuple[int, int]:
    return rng.randint(1, 3), op.granularity.chunk * rng.randint(1, 3)


# ── games ───────────────────────────────────────────────────────────────────


def pruned(ask: Ask) -> None:
    """The largest exact magnitudes are kept, of any type."""
    rng = ask.rng
    op = rng.choice(forms())
    kind = np.dtype(rng.choice((*ANY, op.types["a"].storage)))
    shape = size(op, rng)
    if kind == np.bool_:
        A = bits(rng, np.uint8, shape) % 2 == 1
    else:
        A = bits(rng, f"u{kind.itemsize}", shape).view(kind)
        if rng.random() < 0.5:
            few = bits(rng, f"u{kind.itemsize}", (3,)).view(kind)
            A = few[bits(rng, np.uint8, shape) % 3]
    if kind in _NARROW:
        A = (raw(A) & np.uint8(15 if "4" in kind.name else 63)).view(kind)
    found = ask.accepted(prune, op, A)
    with np.errstate(all="ignore"):
        listed = A.tolist() if kind.kind in "iufb" else A.astype(np.float64).tolist()
        if kind.type.__module__ == "ml_dtypes" and "int" in kind.name:
            listed = A.astype(np.int64).tolist()
    mask = np.array([keeps(row, op.granularity) for row in listed])
    same(raw(found), np.where(mask, raw(A), 0), f"pruned {kind}")


_NARROW = [
    np.dtype(x)
    for x in (
        ml_dtypes.int4,
        ml_dtypes.uint4,
        ml_dtypes.float4_e2m1fn,
        ml_dtypes.float6_e2m3fn,
        ml_dtypes.float6_e3m2fn,
    )
]


def compressed(ask: Ask) -> None:
    """Nothing is lost on the way to stored values and codes, and back."""
    rng = ask.rng
    op = rng.choice(forms())
    found = sparse_bits(op, size(op, rng), rng)
    A = op.types["a"].decode(found)
    sp = ask.accepted(compress, op, A)
    op.granularity.check(sp.indices, ordered=True)
    again = ask.accepted(decompress, op, sp)
    of = op.types["a"]
    sign = 0 if of.is_integer else 1 << (of.bits - 1)
    there, given = of.encode(again), of.encode(A)
    lost = (there != given) & ~((there == 0) & (given == sign))
    expect(not lost.any(), f"{op} loses values: {given[lost][:3]}")
    row = rng.randrange(found.shape[0])
    at = sp.columns()[row].tolist()
    expect(sorted(at) == at, f"columns {at} are not in order")
    same(of.encode(sp.values)[row], there[row, at], "stored values")


def too_many(ask: Ask) -> None:
    """A chunk with too many values is refused, and counted."""
    rng = ask.rng
    op = rng.choice(forms())
    found = patterns(op.types["a"], size(op, rng), rng)
    counts = too_full(found, op)
    wrong = [count > op.granularity.picks for count in counts]
    A = op.types["a"].decode(found)
    report = ask.accepted(sparsity_report, op, A)
    expect(report.violating == sum(wrong), f"{report} of {sum(wrong)}")
    ask.maybe(not any(wrong), compress, op, A)
    ask.maybe(not any(wrong), check_sparse, op, A)


def odd_widths(ask: Ask) -> None:
    """A width is that of the matrix, a whole number within its last chunk."""
    rng = ask.rng
    op = rng.choice(forms())
    rows, columns = size(op, rng)
    sp = compress(op, op.types["a"].decode(sparse_bits(op, (rows, columns), rng)))
    width = odd(rng) if rng.random() < 0.6 else columns - rng.randint(-2, 9)
    whole = isinstance(width, int | np.integer) and not isinstance(width, bool)
    right = whole and (0 <= columns - int(width) < op.granularity.chunk or width == -1)
    ask.maybe(right, Compressed, sp.values, sp.indices, op.granularity, width)


def odd_codes(ask: Ask) -> None:
    """Codes that name no two places are refused wherever they go."""
    rng = ask.rng
    op = rng.choice(forms())
    legal = op.granularity.codes(op.metadata.ordered)
    codes = np.array(
        [[rng.choice(legal) for _ in range(2)] for _ in range(2)], np.uint8
    )
    wrong = rng.choice([c for c in range(16) if c not in legal])
    bad = rng.random() < 0.5
    if bad:
        codes[index(codes.shape, rng)] = wrong
    values = np.zeros((2, 2 * op.granularity.kept), op.types["a"].storage)
    try:
        sp = ask(Compressed, values, codes, op.granularity)
        ask.maybe(not bad, decompress, op, sp)
    except fm.Error:
        expect(bad, f"codes {codes.tolist()} are legal")


def metadata(ask: Ask) -> None:
    """The words of a tile hold its codes, whatever the selector."""
    rng = ask.rng
    op = rng.choice(forms())
    part = op.metadata
    legal = op.granularity.codes(part.ordered)
    count = int(np.prod(part.shape))
    codes = np.array(rng.choices(legal, k=count), np.uint8).reshape(part.shape)
    selector = rng.choice((*range(part.tiles), odd(rng)))
    right = is_index(selector, part.tiles) and not isinstance(selector, np.ndarray)
    words = ask.maybe(right, part.pack, codes, selector)
    if words is not None:
        same(ask.accepted(part.unpack, words, selector), codes, "codes")
        lane, nibble = rng.randrange(32), rng.randrange(8)
        listed = ask.accepted(part.decode, [int(words[lane, 0])], lane=lane)
        told = listed[nibble]
        if told.selector == int(selector):
            expect(
                told.code == codes[told.row, told.chunk],
                f"lane {lane}, nibble {nibble} is not {told}",
            )


def exchanged(ask: Ask) -> None:
    """Codes go to the orders of others and come back."""
    rng = ask.rng
    op = rng.choice(forms())
    of, granularity = op.types["a"], op.granularity
    rows, columns = 64 * rng.randint(1, 2), 256 * rng.randint(1, 2)
    sp = compress(op, of.decode(sparse_bits(op, (rows, columns), rng)))
    values, codes = sp.values, sp.indices
    chunks = codes.shape[1]
    nibbles = ask.accepted(exchange.to_nibbles, sp)
    at = index((rows, chunks), rng)
    half = int(nibbles[at[0], at[1] // 2]) >> 4 * (at[1] % 2) & 15
    expect(half == codes[at], f"nibble {at} is {half}")
    found = [ask.accepted(exchange.from_nibbles, op, values, nibbles)]
    if of.name in ("f16", "bf16", "tf32", "s8"):
        packed, meta = ask.accepted(exchange.to_torch, op, sp)
        found.append(ask.accepted(exchange.from_torch, op, packed, meta))
    if granularity.group == 1 and of.bits in (8, 16, 32):
        tile = rng.choice((64, 128, 256)) if of.bits > 8 else 128
        image = ask.accepted(exchange.to_cutlass_sm90, op, sp, tile_k=tile)
        again = exchange.from_cutlass_sm90
        found.append(ask.accepted(again, op, values, image, tile_k=tile))
    for each in found:
        same(each.indices, codes, f"codes of {op} exchanged")
        same(raw(each.values), raw(values), "values exchanged")


SURFACE = Surface(
    "sparsity",
    {
        pruned: 4,
        compressed: 3,
        too_many: 4,
        odd_widths: 6,
        odd_codes: 5,
        metadata: 4,
        exchanged: 1,
    },
    share=0.10,
)
