"""Quantised matrices are stored as PyTorch's scaled products take them."""

from __future__ import annotations

import numpy as np
import pytest

import fragmenta as fm

FORMATS = ["nvfp4", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2", "e4m3", "e5m2"]


def quantized(name: str, operand: str, *shape: int) -> fm.quant.Quantized:
    X = np.random.default_rng(3).standard_t(3, shape)
    return fm.quant.quantize(name, X, operand=operand)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("operand", "shape"), [("A", (130, 200)), ("B", (2, 80, 6))])
def test_there_and_back(name: str, operand: str, shape: tuple[int, ...]) -> None:
    q = quantized(name, operand, *shape)
    part = fm.quant.to_scaled_mm(q)
    back = fm.quant.from_scaled_mm(
        part.values, part.scales, name, operand=operand, tensor_scale=part.tensor_scale
    )
    assert back.values.tobytes() == q.values.tobytes()
    assert back.scales.tobytes() == q.scales.tobytes()
    assert (back.block, back.axis, back.format) == (q.block, q.axis, q.format)
    assert (fm.quant.dequantize(back) == fm.quant.dequantize(q)).all()


def test_the_first_of_two_is_in_the_low_half() -> None:
    """Codes of e2m1 are 0, 0.5, 1, 1.5, 2, 3, 4, 6; the sign is bit 3."""
    numbers = [[6, 0.5, -1, 2], [1.5, 3, 4, -0.0]]
    q = fm.quant.quantize("mxfp4", numbers)
    assert fm.quant.to_scaled_mm(q).values.tolist() == [[0x17, 0x4A], [0x53, 0x86]]
    turned = fm.quant.quantize("mxfp4", np.transpose(numbers), operand="B")
    assert fm.quant.to_scaled_mm(turned).values.tolist() == [[0x17, 0x4A], [0x53, 0x86]]


def test_scales_are_in_blocks_of_128_rows_and_4_factors() -> None:
    """The formula of PyTorch's tests: row r and factor f of a block."""
    q = quantized("nvfp4", "A", 200, 96)
    flat = fm.quant.to_scaled_mm(q).scales
    assert flat.shape == (2 * 2 * 512,)
    bits = q.scales.view(np.uint8)
    for row, factor in ((0, 0), (33, 1), (127, 3), (128, 4), (199, 5)):
        block = row // 128 * 2 + factor // 4
        r = row % 128
        at = 512 * block + 16 * (r % 32) + 4 * (r // 32) + factor % 4
        assert flat[at] == bits[row, factor]


def test_what_is_refused() -> None:
    X = np.ones((4, 33))
    for given, message in (
        (fm.quant.quantize("mxfp4", X), "two e2m1 share a byte along k; given 33"),
        (
            fm.quant.quantize("mxfp6_e2m3", X),
            "scaled_mm takes e2m1, e4m3 or e5m2; given e2m3",
        ),
        (fm.quant.quantize("s8", X), "given s8"),
        (fm.quant.quantize("e4m3", X, per=16), "here is one for 16 elements"),
        (X, "takes what quantize returns; given ndarray"),
    ):
        with pytest.raises(fm.Error, match=message):
            fm.quant.to_scaled_mm(given)  # type: ignore[arg-type]
    part = fm.quant.to_scaled_mm(fm.quant.quantize("mxfp4", np.ones((4, 32))))
    values, scales = part.values, part.scales
    for given, options, message in (
        ((values, scales, "nvfp5"), {}, "no format 'nvfp5' .did you mean nvfp4"),
        ((values, scales, "s8"), {}, "scaled_mm takes nvfp4, mxfp4"),
        ((values, scales, "mxfp4"), {"operand": "C"}, "A and B; given 'C'"),
        ((values, scales, "mxfp4"), {"tensor_scale": 2}, "mxfp4 has no tensor scale"),
        ((values, scales[:-1], "mxfp4"), {}, "1 blocks of 512 bytes"),
        ((values.astype(int), scales, "mxfp4"), {}, "values are bytes; given int64"),
    ):
        with pytest.raises(fm.Error, match=message):
            fm.quant.from_scaled_mm(*given, **options)  # type: ignore[arg-type]


def test_a_plain_type_may_have_its_name_in_pytorch() -> None:
    q = fm.quant.quantize("e4m3", np.arange(8.0).reshape(2, 4))
    part = fm.quant.to_scaled_mm(q)
    back = fm.quant.from_scaled_mm(part.values, part.scales, part.types[0])
    assert (fm.quant.dequantize(back) == fm.quant.dequantize(q)).all()


@pytest.mark.torch
@pytest.mark.parametrize("name", FORMATS)
def test_tensors_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    q = quantized(name, "A", 8, 64)
    part = fm.quant.to_scaled_mm(q)
    values, scales, second = part.tensors()
    assert str(values.dtype) == f"torch.{part.types[0]}"
    assert str(scales.dtype) == f"torch.{part.types[1]}"
    assert values.data_ptr() == part.values.ctypes.data
    back = fm.quant.from_scaled_mm(values, scales, name, tensor_scale=second)
    assert (fm.quant.dequantize(back) == fm.quant.dequantize(q)).all()
    if values.dtype != torch.float4_e2m1fn_x2:
        assert (values.float().numpy() == q.values.astype(np.float32)).all()
