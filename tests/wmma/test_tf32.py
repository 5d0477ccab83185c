"""Numbers are rounded to tf32, and multiplied, as on the GPU."""

from __future__ import annotations

import numpy as np

import fragmenta as fm
from fragmenta import wmma
from tests.wmma.fragments import multiply, operands


def nearest_tf32(bits):
    """cvt.rna.tf32.f32 of a finite float, in whole numbers."""
    sign, rest = bits & 0x80000000, bits & 0x7FFFFFFF
    low = rest % 8192
    return sign | (rest - low + (8192 if low >= 4096 else 0))


def test_tf32_rounding_of_every_exponent_near_ties():
    upper = [0, 1, 2, 0x155, 0x1FF, 0x200, 0x3FE, 0x3FF]
    lower = [0, 1, 2, 0xFFE, 0xFFF, 0x1000, 0x1001, 0x1002, 0x1FFE, 0x1FFF]
    bits = [
        sign << 31 | exponent << 23 | high << 13 | low
        for sign in (0, 1)
        for exponent in range(255)
        for high in upper
        for low in lower
    ]
    given = np.array(bits, np.uint32).view(np.float32)
    rounded = wmma.__float_to_tf32(given).view(np.uint32)
    assert rounded.tolist() == [nearest_tf32(each) for each in bits]


def test_tf32_rounding_of_every_low_pattern():
    """All 2^14 patterns around one tf32 value, of both parities and signs."""
    for base in (0x3F800000, 0xBF802000, 0x00000000, 0x807FE000, 0x7F7FC000):
        bits = base + np.arange(1 << 13, dtype=np.uint32)
        rounded = wmma.__float_to_tf32(bits.view(np.float32)).view(np.uint32)
        assert rounded.tolist() == [nearest_tf32(int(each)) for each in bits]


def test_tf32_of_what_is_not_finite():
    for given, result in (
        (0x7F800000, 0x7F800000),
        (0xFF800000, 0xFF800000),  # infinities
        (0x7F7FFFFF, 0x7F800000),
        (0xFF7FF000, 0xFF800000),  # overflow
        (0x7F7FEFFF, 0x7F7FE000),  # just below it
        (0x7FFFFFFF, 0x7FFFE000),
        (0xFFC00000, 0xFFC00000),  # NaN
        (0x7F802000, 0x7F802000),
        (0x7F801FFF, 0x7F800000),
        (0xFF800001, 0xFF800000),  # payload cut off
    ):
        value = np.uint32(given).view(np.float32)
        assert int(wmma.__float_to_tf32(value).view(np.uint32)) == result


def test_tf32_takes_scalars_lists_and_doubles():
    assert wmma.float_to_tf32 is wmma.__float_to_tf32
    assert isinstance(wmma.float_to_tf32(1.0), np.float32)
    assert wmma.float_to_tf32([[1.0], [2.0]]).shape == (2, 1)
    assert np.isposinf(wmma.float_to_tf32(1e300))


def test_wmma_tf32_is_two_chained_steps_of_four():
    """Unlike mma.m16n8k8 on sm_90, which adds eight products at once."""
    op = fm.find("wmma.mma.row.col.m16n16k8.tf32")
    frags, bits = operands(op, warps=(50,))
    D = multiply(op, frags)
    A, B, C = (op.types[n].decode(bits[n]) for n in "abc")
    four = fm.mma("m16n8k4", a="tf32")
    eight = fm.mma("m16n8k8", a="tf32")
    for half in (slice(0, 8), slice(8, 16)):
        step = four(A[..., :4], B[:, :4, half], C[..., half])
        chained = four(A[..., 4:], B[:, 4:, half], step)
        assert (D[..., half].view(np.uint32) == chained.view(np.uint32)).all()
    at_once = eight(A, B[..., :8], C[..., :8])
    assert (D[..., :8] != at_once).any()


def test_wmma_tf32_ignores_the_low_bits():
    a = wmma.fragment(wmma.matrix_a, 16, 16, 8, wmma.precision.tf32, wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, 16, 16, 8, wmma.precision.tf32, wmma.col_major)
    c = wmma.fragment(wmma.accumulator, 16, 16, 8, float)
    wmma.fill_fragment(a, 1 + 2**-11)
    wmma.fill_fragment(b, 1.0)
    wmma.fill_fragment(c, 0.0)
    wmma.mma_sync(c, a, b, c)
    assert (c.x == 8).all()
    a.x = wmma.__float_to_tf32(a.x)
    wmma.fill_fragment(c, 0.0)
    wmma.mma_sync(c, a, b, c)
    assert (c.x == 8 * (1 + 2**-10)).all()
