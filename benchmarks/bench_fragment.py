"""Packing a whole matrix into registers, against copying its bytes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm

SIZE = 8192
#: instruction, operand, type of the matrix, most copies allowed
CASES = {
    "A s8": ("mma.m16n8k32.s8.s8", "a", np.int8, 4),
    "A f16": ("mma.m16n8k16.f32.f16.f16.f32", "a", np.float16, 4),
    "A bf16": ("mma.m16n8k16.bf16", "a", ml_dtypes.bfloat16, 4),
    "A s4": ("mma.m16n8k64.s4.s4", "a", np.int8, 8),
    "A e4m3 (wgmma)": (
        "wgmma.m64n64k32.f32.e4m3.e4m3",
        "a",
        ml_dtypes.float8_e4m3fn,
        4,
    ),
    "B s8, column-major": ("mma.m16n8k32.s8.s8", "b", np.int8, 8),
    "C s32": ("mma.m16n8k32.s8.s8", "c", np.int32, 4),
}


def matrix(kind, column_major):
    rng = np.random.default_rng(0)
    if np.dtype(kind).kind == "i":
        values = rng.integers(-8, 8, (SIZE, SIZE), dtype=kind)
    else:
        values = rng.standard_normal((SIZE, SIZE), np.float32).astype(kind)
    return np.asfortranarray(values) if column_major else values


@pytest.mark.parametrize("name", CASES)
def test_pack_tiles(name, within_copies):
    text, operand, kind, limit = CASES[name]
    part = getattr(fm.find(text), operand)
    values = matrix(kind, "column" in name)
    within_copies(lambda: part.pack_tiles(values), values.nbytes, limit)
