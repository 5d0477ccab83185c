"""Sparse instructions, and pruning and compression one element at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.isa.families import catalogue


def forms():
    """One sparse instruction for each type of A and container."""
    found = {}
    for family in ("mma.sp", "wgmma.sp"):
        for op in catalogue(family):
            found.setdefault((op.types["a"].name, op.granularity), op)
    return list(found.values())


FORMS = forms()
S8 = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
S4 = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
F16 = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
TF32 = fm.mma("m16n8k16", a="tf32", sp="sp::ordered_metadata")


def name(op):
    return f"{op.types['a']} {op.granularity}"


every_form = pytest.mark.parametrize("op", FORMS, ids=name)


def raw(array):
    """Raw bits, so that NaN payloads and signed zeros count."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def patterns(op, shape, seed=0, zeros=0.3):
    """Any pattern of the type at all, and a good many zeros."""
    of, random = op.types["a"], np.random.default_rng(seed)
    bits = random.integers(0, of.mask, shape, of.bits_dtype, endpoint=True)
    bits[random.random(shape) < zeros] = 0
    return of.decode(bits)


# ── the definitions, one element at a time ──────────────────────────────────


def magnitude(value):
    """What pruning ranks by: NaN above infinity."""
    size = abs(float(value))
    return (1, 0.0) if math.isnan(size) else (0, size)


def keep_largest(chunk, granularity, rank):
    """The places of a chunk that stay: greatest first, of equals the lower."""
    group = granularity.group
    groups = [chunk[i : i + group] for i in range(0, len(chunk), group)]
    ranks = [tuple(map(sum, zip(*map(rank, g), strict=True))) for g in groups]
    # One NaN in a pair is as good as two.
    ranks = [(1, 0.0) if r[0] else r for r in ranks]
    order = sorted(range(len(groups)), key=lambda i: (-ranks[i][0], -ranks[i][1], i))
    return sorted(order[: granularity.picks])


def prune_by_hand(A, granularity, rank=magnitude, scores=None):
    out = np.zeros_like(A)
    ranked = A if scores is None else scores
    width, group = granularity.chunk, granularity.group
    for index in np.ndindex(*A.shape[:-1]):
        for start in range(0, A.shape[-1], width):
            chunk = list(ranked[index][start : start + width])
            for place in keep_largest(chunk, granularity, rank):
                at = slice(start + group * place, start + group * (place + 1))
                out[index][at] = A[index][at]
    return out


def compress_row_by_hand(bits, granularity, value_mask):
    """Stored bits and codes of a row; the free places go to 2, then to 3."""
    stored, codes = [], []
    width, group = granularity.chunk, granularity.group
    for start in range(0, len(bits), width):
        chunk = [int(b) for b in bits[start : start + width]]
        places = [chunk[i : i + group] for i in range(0, width, group)]
        kept = [i for i, p in enumerate(places) if any(b & value_mask for b in p)]
        fill = [2, 3] if granularity.picks == 2 else [1]
        while len(kept) < granularity.picks:
            kept.append(next(i for i in fill if i not in kept))
        kept.sort()
        stored += [b for i in kept for b in places[i]]
        if granularity.picks == 2:
            codes.append(kept[0] + 4 * kept[1])
        else:
            codes.append(0b1110 if kept[0] else 0b0100)
    return stored, codes


def value_mask(op, keep_negative_zero=False):
    of = op.types["a"]
    return of.mask if of.is_integer or keep_negative_zero else of.mask >> 1
