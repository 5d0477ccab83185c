"""Quantised matrices bring the right scales to a product."""

from __future__ import annotations

import numpy as np
import pytest

import fragmenta as fm

NVFP4 = fm.mma("m16n8k64", a="e2m1", kind="mxf4nvf4", stype="ue4m3")
MXFP8 = fm.tcgen05("m128n64k32", a="e4m3", kind="mxf8f6f4")
S8 = fm.mma("m16n8k32", a="s8")
FP8 = fm.wgmma("m64n8k32", a="e4m3", d="f32")


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_t(3, shape)


@pytest.mark.parametrize("op", [NVFP4, MXFP8])
@pytest.mark.parametrize("k", [64, 100])
def test_block_scales_go_into_the_instruction(op: fm.Instruction, k: int) -> None:
    X, Y = numbers(5, k), numbers(k, 7)
    a, b = fm.quant.quantize(op, X), fm.quant.quantize(op, Y, operand="B")
    plain = fm.matmul(op, a.values, b.values, scale_a=a.scales, scale_b=b.scales)
    D = fm.matmul(op, a, b, rescale=False)
    assert D.tobytes() == plain.tobytes()
    whole = fm.matmul(op, a, b)
    if a.tensor_scale is None:
        assert whole.tobytes() == plain.tobytes()
    else:
        assert b.tensor_scale is not None
        factor = a.tensor_scale * b.tensor_scale
        assert whole.tobytes() == (plain * factor).tobytes()
    exact = fm.quant.dequantize(a) @ fm.quant.dequantize(b)
    np.testing.assert_allclose(whole, exact, rtol=1e-5, atol=1e-6)


def test_a_format_needs_no_instruction() -> None:
    """A format has fewer scales than whole instructions; the others are of zeros."""
    X, Y = numbers(3, 70), numbers(70, 4)
    short = fm.quant.quantize("nvfp4", X), fm.quant.quantize("nvfp4", Y, operand="B")
    whole = fm.quant.quantize(NVFP4, X), fm.quant.quantize(NVFP4, Y, operand="B")
    assert short[0].scales.shape == (3, 5)
    assert whole[0].scales.shape == (3, 8)
    assert (fm.matmul(NVFP4, *short) == fm.matmul(NVFP4, *whole)).all()


@pytest.mark.parametrize("op", [S8, FP8])
@pytest.mark.parametrize("per", [None, "tensor"])
def test_outer_scales_are_factors(op: fm.Instruction, per: str | None) -> None:
    X, Y = numbers(2, 9, 48), numbers(48, 6)
    a = fm.quant.quantize(op, X, per=per)
    b = fm.quant.quantize(op, Y, operand="B", per=per)
    D = fm.matmul(op, a, b)
    bits = fm.matmul(op, a, b, rescale=False)
    assert bits.tobytes() == fm.matmul(op, a.values, b.values).tobytes()
    assert D.dtype == np.float32
    assert D.shape == (2, 9, 6)
    assert (bits.astype(np.float32) * (a.scales * b.scales) == D).all()
    assert np.linalg.norm(D - X @ Y) < 0.05 * np.linalg.norm(X @ Y)


def test_one_operand_may_be_quantised() -> None:
    a = fm.quant.quantize(S8, numbers(4, 64))
    B = np.ones((64, 3), np.int8)
    whole = np.float32(fm.matmul(S8, a.values, B)) * a.scales
    assert (fm.matmul(S8, a, B) == whole).all()
    a, b = (
        fm.quant.quantize(NVFP4, numbers(4, 64)),
        fm.quant.quantize("nvfp4", np.ones((64, 8))),
    )
    given = np.ones((4, 8)).astype(a.scales.dtype)
    whole = fm.matmul(NVFP4, a, b.values, scale_b=given)
    assert np.isfinite(whole).all()


def test_a_block_of_rows_shares_a_factor() -> None:
    """Blocks along M are constant along k, so they are a factor, too."""
    values = np.ones((4, 32), np.int8)
    a = fm.quant.Quantized(
        values, [[2.0], [3.0]], fm.dtype("s8"), fm.dtype("f32"), 2, axis=-2
    )
    D = fm.matmul(S8, a, np.ones((32, 1), np.int8))
    assert D[:, 0].tolist() == [64, 64, 96, 96]


def test_c() -> None:
    C = np.ones((4, 8), np.float32)
    a, b = (
        fm.quant.quantize(NVFP4, numbers(4, 64)),
        fm.quant.quantize(NVFP4, numbers(64, 8), operand="B"),
    )
    with pytest.raises(fm.Error, match="C would be multiplied with the scales"):
        fm.matmul(NVFP4, a, b, C)
    D = fm.matmul(NVFP4, a, b, C, rescale=False)
    assert (D - fm.matmul(NVFP4, a, b, rescale=False) == 1).all()
    a, b = (
        fm.quant.quantize(MXFP8, numbers(4, 64)),
        fm.quant.quantize(MXFP8, numbers(64, 8), operand="B"),
    )
    assert fm.matmul(MXFP8, a, b, C).shape == (4, 8)  # no factors: nothing to say


def test_what_is_refused() -> None:
    X, Y = numbers(4, 64), numbers(64, 8)
    a, b = fm.quant.quantize(NVFP4, X), fm.quant.quantize(NVFP4, Y, operand="B")
    one = fm.quant.quantize(S8, Y, operand="B")
    for given, options, message in (
        ((NVFP4, a, b), {"scale_a": a.scales}, "has its own scales; leave scale_a out"),
        ((NVFP4, a, b), {"rescale": 1}, "rescale must be True or False; given 1"),
        (
            (NVFP4, a, fm.quant.quantize(NVFP4, Y)),
            {},
            "blocks of B lie along k, axis -2",
        ),
        ((NVFP4, fm.quant.quantize("mxfp4", X), b), {}, "A has one ue8m0 for 32"),
        ((NVFP4, fm.quant.quantize("s8", X), b), {}, "A has one f32 for 64"),
        ((S8, fm.quant.quantize(S8, X, per=32), one), {}, "every 32 elements along k"),
        (
            (S8, fm.quant.quantize(S8, X, per="column"), one),
            {},
            "every element along k",
        ),
        ((FP8, fm.quant.quantize("mxfp8_e4m3", X), Y), {}, "every 32 elements along k"),
        ((NVFP4, a, b.values), {}, "needs scale_b"),
    ):
        with pytest.raises(fm.Error, match=message):
            fm.matmul(*given, **options)  # type: ignore[arg-type]
    with pytest.raises(fm.Error, match=r"fm\.matmul takes it whole"):
        NVFP4(a, b)
