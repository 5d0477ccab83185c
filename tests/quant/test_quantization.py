"""Elements and scales of quantisation follow the rules exactly.

The judge computes with exact fractions.  It knows the types only by their numbers of
exponent and fraction bits.
"""

from __future__ import annotations

from bisect import bisect_left
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import fragmenta as fm

Numbers = NDArray[np.float64]

# exponent bits, fraction bits, largest magnitude
TYPES = {
    "e2m1": (2, 1, 6),
    "e2m3": (2, 3, Fraction(15, 2)),
    "e3m2": (3, 2, 28),
    "e4m3": (4, 3, 448),
    "e5m2": (5, 2, 57344),
    "f32": (8, 23, None),
}
FORMATS = {
    "nvfp4": ("e2m1", 16),
    "mxfp4": ("e2m1", 32),
    "mxfp6_e2m3": ("e2m3", 32),
    "mxfp6_e3m2": ("e3m2", 32),
    "mxfp8_e4m3": ("e4m3", 32),
    "mxfp8_e5m2": ("e5m2", 32),
}
POWERS = [Fraction(2) ** n for n in range(-127, 128)]  # every ue8m0
MX = [name for name in FORMATS if name != "nvfp4"]
NVFP4 = "mma.m16n8k64.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3"


@cache
def magnitudes(of: str) -> list[Fraction]:
    """Every magnitude of a type, in order; the place in the list is the pattern."""
    if of in ("s4", "s8"):
        return [Fraction(n) for n in range(8 if of == "s4" else 128)]
    exponent_bits, fraction_bits, most = TYPES[of]
    assert most is not None
    bias = 2 ** (exponent_bits - 1) - 1
    found = []
    for field, digits in product(range(2**exponent_bits), range(2**fraction_bits)):
        normal = 1 if field else 0
        significand = Fraction(digits, 2**fraction_bits) + normal
        found.append(significand * Fraction(2) ** (max(field, 1) - bias))
    return [each for each in found if each <= most]


def rounded(x: Fraction, of: str, up: bool = False) -> Fraction:
    """The nearest element, of two the one with the even pattern; saturating."""
    every = magnitudes(of)
    size = abs(x)
    if size >= every[-1]:
        found = every[-1]
    else:
        above = bisect_left(every, size)
        found = every[above]
        if found != size and not up:
            below, half = every[above - 1], (every[above - 1] + every[above]) / 2
            even = every[above] if above % 2 == 0 else below
            found = below if size < half else every[above] if size > half else even
    return -found if x < 0 else found


def floor_log2(x: Fraction) -> int:
    near = x.numerator.bit_length() - x.denominator.bit_length()
    return near if Fraction(2) ** near <= x else near - 1


def float32(x: Fraction, up: bool = False) -> Fraction:
    """The nearest float32 of a positive number, between its least and its greatest."""
    step = Fraction(2) ** (max(floor_log2(x), -126) - 23)
    quotient, rest = divmod(x, step)
    half = 2 * rest > step or (2 * rest == step and quotient % 2)
    found = (quotient + bool(rest if up else half)) * step
    most = Fraction(2**24 - 1) * 2**104
    return min(max(found, Fraction(1, 2**149)), most)


def power_scale(amax: Fraction, of: str, rule: str) -> Fraction:
    """A scale that is a power of two."""
    most = magnitudes(of)[-1]
    if amax == 0:
        return POWERS[0]
    if rule == "ocp":
        exponent = floor_log2(amax) - floor_log2(most)
        return POWERS[min(max(exponent, -127), 127) + 127]
    if rule == "up":
        return next((p for p in POWERS if amax / most <= p), POWERS[-1])
    wanted = amax / Fraction(2) ** floor_log2(most)
    # Of two that are equally near, the larger one.
    return min(POWERS, key=lambda p: (abs(p - wanted), -p))


def judged(block: list[Fraction], scale: Fraction, of: str) -> list[Fraction]:
    return [rounded(x / scale, of) if scale else Fraction(0) for x in block]


def blocks(of: str, width: int, count: int, seed: int) -> Numbers:
    """Blocks of zeros, of tiny and huge numbers, of ties and of their neighbours."""
    rng = np.random.default_rng(seed)
    found = rng.normal(size=(count, width))
    found *= np.exp2(rng.integers(-30, 30, (count, 1)))
    every = np.array([float(m) for m in magnitudes(of)])
    ties = (every[1:] + every[:-1]) / 2
    for row in range(0, count, 2):  # a power of two is their scale with most rules
        signs = rng.choice([-1.0, 1.0], width)
        near = rng.choice(ties, width) * signs
        near[1::3] = np.nextafter(near[1::3], np.inf)
        near[2::3] = np.nextafter(near[2::3], 0)
        near[0] = every[-1]
        found[row] = np.ldexp(near, int(rng.integers(-20, 20)))
    found[1], found[3, ::2] = 0, -0.0
    found[5] = rng.normal(size=width) * 5e-324 * 2**20  # subnormal in float64
    found[7] = rng.normal(size=width) * 2.0**-130
    found[9] = rng.normal(size=width) * 1e38
    found[11] = rng.uniform(-1, 1, width) * 1.7e308
    found[13] = rng.normal(size=width) * 1e300 * 10.0 ** -rng.integers(0, 600, width)
    for row, top in ((15, np.inf), (17, 0), (19, 0)):  # half way between two scales
        half = 1.5 * 2.0**row
        found[row, 3] = half if row == 17 else np.nextafter(half, top)
        found[row] = np.clip(found[row], -found[row, 3], found[row, 3])
    return found


def exact(numbers: NDArray[np.generic]) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in row] for row in numbers.astype(float)]


@pytest.mark.parametrize(("name", "rule"), [*product(MX, ["ocp", "up", "nearest"])])
def test_mx_formats(name: str, rule: str) -> None:
    of, width = FORMATS[name]
    X = blocks(of, width, 24, seed=len(name + rule))
    q = fm.quant.quantize(name, X, rule=rule)
    assert q.values.dtype == fm.dtype(of).storage
    found = zip(exact(X), exact(q.values), exact(q.scales), strict=True)
    for block, values, (scale,) in found:
        assert scale == power_scale(max(map(abs, block)), of, rule)
        assert values == judged(block, scale, of)


@pytest.mark.parametrize(("rule", "given"), [*product(["nearest", "up"], [None, 0.75])])
def test_nvfp4(rule: str, given: float | None) -> None:
    X = blocks("e2m1", 16, 64, seed=1)[14:]
    X[3] *= 2.0**-40
    q = fm.quant.quantize("nvfp4", X, rule=rule, tensor_scale=given)
    assert q.tensor_scale is not None
    top = max(abs(x) for row in exact(X) for x in row)
    unit = float32(top / (6 * 448)) if given is None else Fraction(given)
    assert Fraction(float(q.tensor_scale[0, 0])) == unit
    found = zip(exact(X), exact(q.values), exact(q.scales), strict=True)
    for block, values, (scale,) in found:
        amax = max(map(abs, block))
        assert scale == rounded(amax / 6 / unit, "e4m3", up=rule == "up")
        assert values == judged(block, scale * unit, "e2m1")


@pytest.mark.parametrize(
    ("of", "rule"), [*product(["e4m3", "e5m2", "s8", "s4", "e2m3"], ["nearest", "up"])]
)
def test_plain_types(of: str, rule: str) -> None:
    X = blocks(of, 24, 24, seed=2)
    q = fm.quant.quantize(of, X, rule=rule)
    most = magnitudes(of)[-1]
    assert q.scales.dtype == np.float32
    found = zip(exact(X), exact(q.values), exact(q.scales), strict=True)
    for block, values, (scale,) in found:
        amax = max(map(abs, block))
        assert scale == (float32(amax / most, rule == "up") if amax else 1)
        assert values == judged(block, scale, of)


@pytest.mark.parametrize("name", [*FORMATS, "e4m3", "s8", "s4"])
def test_what_is_made_again_stays(name: str) -> None:
    """What the format holds exactly is kept by the rule that needs no rounding."""
    X = np.random.default_rng(3).normal(size=(2, 6, 64))
    first = fm.quant.dequantize(fm.quant.quantize(name, X))
    again = fm.quant.quantize(name, first)
    if name.startswith("mx"):
        assert (fm.quant.dequantize(again) == first).all()
    step = np.abs(X).max() * (1 if name == "nvfp4" else 0.26)
    assert np.abs(X - first).max() < step
    assert np.abs(fm.quant.dequantize(again) - first).max() <= np.abs(first).max() / 6


@pytest.mark.parametrize("name", [*FORMATS, "s8"])
def test_products_of_elements_and_scales_are_exact(name: str) -> None:
    X = np.random.default_rng(4).normal(size=(4, 32))
    q = fm.quant.quantize(name, X)
    values = exact(q.values)
    outer = 1 if q.tensor_scale is None else Fraction(float(q.tensor_scale[0, 0]))
    for row, (line, scales) in enumerate(zip(values, exact(q.scales), strict=True)):
        every = [v * scales[k // q.block] * outer for k, v in enumerate(line)]
        assert [Fraction(x) for x in fm.quant.dequantize(q)[row]] == every


@pytest.mark.parametrize("name", [*FORMATS, "s4"])
def test_b_is_a_transposed(name: str) -> None:
    X = np.random.default_rng(5).normal(size=(2, 3, 10, 70)).astype(np.float32)
    a, b = (
        fm.quant.quantize(name, X),
        fm.quant.quantize(name, X.swapaxes(-1, -2), operand="B"),
    )
    assert (a.values.swapaxes(-1, -2) == b.values).all()
    assert (a.scales.swapaxes(-1, -2) == b.scales).all()
    assert (fm.quant.dequantize(a).swapaxes(-1, -2) == fm.quant.dequantize(b)).all()
    one = fm.quant.quantize(name, X[1, 2])
    assert (one.values == a.values[1, 2]).all()
    assert (one.scales == a.scales[1, 2]).all()


def test_rows_columns_groups_and_matrices() -> None:
    X = np.arange(1.0, 25).reshape(4, 6)
    shapes: dict[str | int, tuple[int, int]]
    shapes = {
        "row": (4, 1),
        "column": (1, 6),
        "tensor": (1, 1),
        3: (4, 2),
        4: (4, 2),
        10**15: (4, 1),
    }
    for per, shape in shapes.items():
        q = fm.quant.quantize("s8", X, per=per)
        assert q.scales.shape == shape
        assert np.abs(fm.quant.dequantize(q) - X).max() <= 24 / 127 / 2
    group = fm.quant.quantize("int8", X, per=2, operand="B")
    assert group.scales.shape == (2, 6)
    assert group.scales[0, 0] == np.float32(7 / 127)


SCALED = {
    "mma, nvfp4": NVFP4,
    "mma, mxfp8": fm.mma(
        "m16n8k32",
        a="e4m3",
        b="e2m3",
        kind="mxf8f6f4",
        block_scale="block_scale",
        stype="ue8m0",
    ),
    "tcgen05, nvfp4": fm.tcgen05("m128n64k64", a="e2m1", kind="mxf4nvf4"),
    "tcgen05, mxfp6": fm.tcgen05("m128n64k32", a="e3m2", b="e5m2", kind="mxf8f6f4"),
}


@pytest.mark.parametrize("op", SCALED.values(), ids=SCALED)
def test_instructions_take_them(op: fm.Instruction | str) -> None:
    """The product is that of the numbers they stand for, up to float32."""
    op = fm.instruction(op) if isinstance(op, fm.Instruction) else fm.find(op)
    rng = np.random.default_rng(6)
    X, Y = rng.normal(size=(2, 40, 130)), rng.normal(size=(130, 24))
    a, b = fm.quant.quantize(op, X), fm.quant.quantize(op, Y, operand="B")
    D = fm.matmul(op, a.values, b.values, scale_a=a.scales, scale_b=b.scales)
    found = D.astype(np.float64)
    for q in (a, b):
        found = found if q.tensor_scale is None else found * q.tensor_scale
    assert np.abs(found - fm.quant.dequantize(a) @ fm.quant.dequantize(b)).max() < 1e-4
    m, n, k = op.shape
    a = fm.quant.quantize(op, rng.normal(size=(m, k)))
    b = fm.quant.quantize(op, rng.normal(size=(k, n)), operand="B")
    scales: dict[str, Any] = {"scale_a": a.scales, "scale_b": b.scales}
    one = op(a.values, b.values, **scales)
    assert (one == fm.matmul(op, a.values, b.values, **scales)).all()


def test_scales_fill_up_the_last_instruction() -> None:
    wide = fm.tcgen05("m128n64k96", a="e2m1", kind="mxf4nvf4")
    for op, scales in ((wide, 12), (fm.find(NVFP4), 8)):
        q = fm.quant.quantize(op, np.ones((2, 100)))
        assert (q.format, q.block) == ("nvfp4", 16)
        assert q.scales.shape == (2, scales)
        assert (q.scales[:, 7:] == 0).all()
    assert fm.quant.quantize("nvfp4", np.ones((2, 100))).scales.shape == (2, 7)


def test_an_instruction_without_scales_factors_them_out() -> None:
    op = fm.mma("m16n8k32", a="s8")
    rng = np.random.default_rng(7)
    X, Y = rng.normal(size=(20, 50)), rng.normal(size=(50, 9))
    a, b = fm.quant.quantize(op, X), fm.quant.quantize(op, Y, operand="B")
    D = fm.matmul(op, a.values, b.values) * (a.scales.astype(float) * b.scales)
    assert np.allclose(
        D, fm.quant.dequantize(a) @ fm.quant.dequantize(b), rtol=1e-12, atol=1e-12
    )


def test_scales_in_the_order_of_cublas_and_pytorch() -> None:
    """Both state the offset of a scale: 128 x 4 blocks, one after the other."""
    Y = np.random.default_rng(8).normal(size=(16 * 6, 200))
    q = fm.quant.quantize("nvfp4", Y, operand="B")
    order = fm.tensor_memory.scale_blocks(q.scales.swapaxes(-1, -2)).reshape(-1)
    for column, factor in product(range(200), range(6)):
        tile = column // 128 * 2 + factor // 4
        inside = column % 32 * 16 + column % 128 // 32 * 4 + factor % 4
        assert order[512 * tile + inside] == q.scales.view(np.uint8)[factor, column]


def test_it_differs_from_conversions_that_round_twice() -> None:
    x = 2.5 + 2.0**-40
    assert float(np.float64(x).astype(ml_dtypes.float4_e2m1fn)) in (2.0, 3.0)
    assert float(fm.quant.quantize("mxfp4", [[x, 6.0]]).values[0, 0]) == 3.0


def test_zeros() -> None:
    X = np.zeros((2, 32))
    for name, scale in {"mxfp4": 2.0**-127, "nvfp4": 0, "s8": 1}.items():
        q = fm.quant.quantize(name, X)
        assert (q.scales.astype(np.float64) == scale).all()
        assert (fm.quant.dequantize(q) == 0).all()
    assert fm.quant.quantize("nvfp4", X).tensor_scale == 1
    small = fm.quant.quantize("nvfp4", [[1e-9, -1e-9] * 8], tensor_scale=1)
    assert small.scales[0, 0] == 0
    assert (small.values == 0).all()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("fp8_e4m3", "e4m3"),
        ("torch.float8_e5m2", "e5m2"),
        (ml_dtypes.float8_e4m3fn, "e4m3"),
        (np.dtype(np.int8), "s8"),
    ],
    ids=str,
)
def test_types_as_libraries_call_them(given: Any, name: str) -> None:
    q = fm.quant.quantize(given, [[1.0, 300.0]])
    assert (q.format, q.scale_dtype.name) == (name, "f32")


def test_what_shares_a_scale_is_told() -> None:
    X = np.ones((4, 8))
    told = [
        repr(fm.quant.quantize("s8", X, per=per)) for per in ("row", "column", "tensor")
    ]
    assert [each.split(", ")[1] for each in told] == [
        "one f32 for 8 along axis -1",
        "one f32 for 4 along axis -2",
        "one f32 for each matrix",
    ]
    made = fm.quant.Quantized(
        X, np.ones((1, 2)), fm.dtype("s8"), fm.dtype("f32"), block=4
    )
    assert "one f32 for 4 along axis -1 of each matrix>" in repr(made)


REFUSED = {
    "NaN": (("mxfp4", [[1.0, np.nan]]), {}, r"nan at \[0, 1\]: it has no place"),
    "infinity": (("s8", [[-np.inf]]), {}, r"-inf at \[0, 0\]"),
    "vector": (("s8", [1.0]), {}, r"X is \(…, rows, columns\)"),
    "empty": (("s8", np.zeros((0, 4))), {}, "with an element or more"),
    "complex": (("s8", [[1j]]), {}, "takes real numbers, not complex128"),
    "wide": (("s8", [[2**60]]), {}, r"\.astype\(np.float64\) rounds them"),
    "choice": (("mxfp8", [[1.0]]), {}, "mxfp8 may be mxfp8_e4m3 or mxfp8_e5m2"),
    "format": (("nvpf4", [[1.0]]), {}, "did you mean nvfp4"),
    "type": ((fm.mma("m16n8k16", a="f16", d="f32"), [[1.0]]), {}, "is f16; numbers"),
    "operand": (("s8", [[1.0]]), {"operand": "D"}, "are A and B; given 'D'"),
    "rule": (("nvfp4", [[1.0]]), {"rule": "ocp"}, "the rules nearest and up"),
    "torchao": (("mxfp4", [[1.0]]), {"rule": "RCEIL"}, "torchao calls rceil is up"),
    "fp4": (("float4", [[1.0]]), {}, "float4 may be nvfp4, mxfp4 or e2m1"),
    "unit": (("omma", [[1.0]]), {}, "no format 'omma'"),
    "per": (("s8", [[1.0]]), {"per": "lane"}, "per is row, column or tensor"),
    "group": (("s8", [[1.0]]), {"per": 0}, "per is row, column or tensor"),
    "block": (("mxfp4", [[1.0]]), {"per": 8}, "one scale for 32 elements along k"),
    "no outer": (("s8", [[1.0]]), {"tensor_scale": 1}, "s8 has no tensor scale"),
    "outer": (("nvfp4", [[1.0]]), {"tensor_scale": 0}, "above 0 and finite"),
    "outers": (("nvfp4", [[1.0]]), {"tensor_scale": [1, 2]}, "is one number, or has"),
}


@pytest.mark.parametrize(("given", "options", "said"), REFUSED.values(), ids=REFUSED)
def test_refusals(
    given: tuple[object, ...], options: dict[str, object], said: str
) -> None:
    with pytest.raises(fm.Error, match=said):
        fm.quant.quantize(*given, **options)  # type: ignore[arg-type]


OTHERS: dict[str, tuple[tuple[Any, ...], dict[str, Any], str]] = {
    "few": (([[1, 2]], [[2]]), {}, r"scales of shape \(1, 2\); given \(1, 1\)"),
    "vector": (([[1, 2]], [2]), {}, "same batch axes"),
    "axis": (([[1, 2]], [[2]]), {"axis": 0}, "axis is -1 or -2"),
    "value": (([[300]], [[2]]), {}, "s8 holds integers"),
    "outer": (([[3]], [[2]]), {"tensor_scale": [1, 2]}, "tensor_scale is one number"),
}


@pytest.mark.parametrize(("given", "options", "said"), OTHERS.values(), ids=OTHERS)
def test_what_others_made_is_checked(
    given: tuple[Any, ...], options: dict[str, Any], said: str
) -> None:
    options |= {"dtype": fm.dtype("s8"), "scale_dtype": fm.dtype("f32"), "block": 1}
    with pytest.raises(fm.Error, match=said):
        fm.quant.Quantized(*given, **options)


def test_what_others_made_is_taken() -> None:
    """Also a -128, which quantize never gives."""
    values, scales = np.array([[-128]], np.int8), np.array([[2]], np.float32)
    made = fm.quant.Quantized(values, scales, fm.dtype("s8"), fm.dtype("f32"), block=1)
    assert fm.quant.dequantize(made) == -256


def test_only_quantized_is_taken_back() -> None:
    with pytest.raises(fm.Error, match="given list"):
        fm.quant.dequantize([[1]])  # type: ignore[arg-type]
