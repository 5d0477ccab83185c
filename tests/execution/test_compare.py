"""The errors of a comparison, computed again in fractions."""

import json
from fractions import Fraction

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.execution.reference import twice_as_precise
from fragmenta.reference.execution.samples import Samples, rounded
from fragmenta.reference.execution.summing import summing

F16 = fm.mma("m16n8k16", a="f16", d="f32")
FP8 = fm.mma("m16n8k32", a="e4m3", d="f32")


def exact(op, a, b, scales):
    """A B in fractions, scales included."""

    def numbers(operand, matrix, scale, axis):
        of = op.types[operand]
        found = np.vectorize(Fraction, otypes=[object])(
            of.to_float64(of.encode(matrix))
        )
        if scale is None:
            return found
        kind = op.scale_a.dtype
        wide = kind.to_float64(kind.encode(scale))
        each = np.vectorize(Fraction, otypes=[object])(wide)
        each = each.repeat(op.shape.k // op.scale_vec, axis)
        return found * (each[:, : found.shape[1]] if axis else each[: len(found)])

    left = numbers("a", a, scales.get("scale_a"), 1)
    return left @ numbers("b", b, scales.get("scale_b"), 0)


@pytest.mark.parametrize(
    "op, target",
    [
        (F16, "sm_80"),
        (FP8, "sm_89"),
        (fm.mma("m16n8k16", a="f16", d="f16"), "sm_90"),
        (fm.mma("m16n8k8", a="tf32"), "sm_90"),
        (fm.mma("m16n8k8", a="f64"), "sm_90"),
        (fm.mma("m16n8k16", a="bf16", sp="sp::ordered_metadata"), "sm_80"),
        (fm.find("mma.kind::mxf4nvf4.scale_vec::4X.ue4m3"), "sm_120a"),
        (fm.find("mma.kind::mxf8f6f4.e5m2.e3m2.f32.ue8m0"), "sm_120a"),
    ],
    ids=str,
)
def test_errors_are_those_of_fractions(op, target):
    rng = np.random.default_rng(3)
    given = rng.standard_normal((3, 90)), rng.standard_normal((90, 2))
    (row,) = fm.compare(op, target, input=given).rows
    a, b, scales, *before, factor, how = Samples.make(given, None, 0).operands(op, 90)
    D = fm.matmul(op, a, b, target=target, **scales)
    of = op.types["d"]
    found = of.to_float64(of.encode(D))
    right = exact(op, a, b, scales)
    relative = [
        abs((Fraction(x) - y) / y) for x, y in zip(found.flat, right.flat, strict=True)
    ]
    assert row.max_relative == pytest.approx(float(max(relative)), rel=1e-6)
    assert row.mean_relative == pytest.approx(float(sum(relative) / 6), rel=1e-6)
    near = right.astype(float).astype(of.storage)
    units = [
        abs(float(Fraction(x) - y) / float(np.spacing(abs(z))))
        for x, y, z in zip(found.flat, right.flat, near.flat, strict=True)
    ]
    assert row.max_ulp == pytest.approx(max(units), rel=1e-6)
    assert row.mean_ulp == pytest.approx(sum(units) / 6, rel=1e-6)
    left, right = (np.vectorize(Fraction, otypes=[object])(each) for each in before)
    if not op.sparse:
        for each, numbers in zip(before, given, strict=True):
            assert np.array_equal(each, numbers)
    whole = [
        abs((Fraction(x) * Fraction(factor) - y) / y)
        for x, y in zip(found.flat, (left @ right).flat, strict=True)
    ]
    assert row.max_total == pytest.approx(float(max(whole)), rel=1e-6)
    assert row.mean_total == pytest.approx(float(sum(whole) / 6), rel=1e-6)
    assert ("quantised" if op.scale_vec else "rounded") in how


@pytest.mark.parametrize(
    "text",
    [
        "mma.kind::mxf8f6f4.e4m3.e4m3",
        "mma.sp::ordered_metadata.kind::mxf8f6f4.e4m3.e4m3",
    ],
)
def test_given_numbers_get_the_block_scales_that_they_need(text):
    rng = np.random.default_rng(3)
    a, b = rng.standard_t(2, (8, 900)), rng.standard_t(2, (900, 8))
    op = fm.find(f"{text}.f32.ue8m0")
    (row,) = fm.compare(op, "sm_120a", input=(a, b)).rows
    (large,) = fm.compare(op, "sm_120a", input=(a * 2.0**20, b)).rows  # beyond e4m3
    assert row == large
    assert row.mean_relative > 0


def test_targets_may_be_words():
    rows = fm.compare(F16, "ada, Hopper", k=16).rows
    assert [row.target for row in rows] == ["sm_89", "sm_90a"]
    with pytest.raises(
        fm.errors.UnsupportedTarget, match=r"no target 'hoper' \(did you mean"
    ):
        fm.compare(F16, "hoper", k=16)
    with pytest.raises(
        fm.errors.UnsupportedTarget, match=r"ampere is sm_80, .* or sm_88; name one"
    ):
        F16.supported_on("ampere")
    assert F16.supported_on("H100")


def test_two_floats_hold_a_sum_of_f64_products():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 50)), rng.standard_normal((50, 2))
    high, low = twice_as_precise(a, b)
    right = sum(Fraction(x) * Fraction(y) for x, y in zip(a[1], b[:, 0], strict=True))
    both = Fraction(high[1, 0]) + Fraction(low[1, 0])
    assert abs(both - right) <= abs(right) / 2**100
    assert high[1, 0] == float(right)


def test_targets_that_add_alike_are_computed_once_and_shown_together():
    told = fm.compare([F16, FP8], "sm_80,sm_89 sm_90", k=[64, 16, 64])
    assert [(r.target, r.k) for r in told.rows[:4]] == [
        ("sm_80", 16),
        ("sm_80", 64),
        ("sm_89", 16),
        ("sm_89", 64),
    ]
    assert told.missing == {(str(FP8), "sm_80"): "needs PTX 8.4, sm_89+"}
    text = str(told).splitlines()
    assert max(map(len, text)) <= 80
    assert "  sm_80: needs PTX 8.4, sm_89+" in text
    assert any(line.startswith("  sm_80 sm_89: 2 steps of 8 products") for line in text)
    json.dumps(told.to_dict(), allow_nan=False)


def test_a_tensor_memory_instruction_and_a_sum_that_is_not_published():
    known = fm.tcgen05("m128n64k16", a="f16", d="f32")
    wide = fm.tcgen05("m128n64k96", kind="mxf4", a="e2m1")
    told = fm.compare([known, wide], "sm_100,sm_103", k=32)
    assert [row.target for row in told.rows] == ["sm_100a", "sm_103a"]
    assert "sm_103: nobody has published" in " ".join(str(told).split())


def test_the_same_seed_gives_the_same_numbers_at_every_length():
    long = fm.compare(F16, "sm_90", k=[32, 128], seed=5).rows
    (short,) = fm.compare(str(F16), ["sm_90"], k=32, seed=5).rows
    assert long[0] == short
    assert fm.compare(F16, "sm_90", k=32, seed=6).rows[0] != short
    assert fm.compare(F16, "sm_90", k=32, input="uniform").rows[0] != short


@pytest.mark.parametrize("a", ["s8", "u8", "s4", "b1"])
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_integers_have_no_error(a, kind):
    k, bits = {"s4": 32, "b1": 256}.get(a, 32), {"bitop": "xor"} if a == "b1" else {}
    op = fm.mma(f"m16n8k{k}", a=a, **bits)
    (row,) = fm.compare(op, "sm_80", k=300, input=kind).rows
    assert (row.max_relative, row.max_ulp, row.not_finite) == (0, 0, 0)


def test_what_is_not_finite_is_left_out():
    half = fm.mma("m16n8k16", a="f16", d="f16")
    A = np.array([[60000.0, 60000.0], [1.0, 1.0]])
    told = fm.compare(half, "sm_90", input=(A, np.ones((2, 1))))
    assert (told.rows[0].not_finite, told.rows[0].max_ulp) == (1, 0)
    assert "1 of 2 not finite, left out" in str(told)
    zero = fm.compare(half, "sm_90", input=(A * 0, np.ones((2, 1)))).rows[0]
    assert (zero.max_relative, zero.mean_ulp) == (None, None)


@pytest.mark.parametrize(
    "given, said",
    [
        ({"targets": "sm_91"}, "no target sm_91"),
        ({"targets": ""}, "no targets to compare"),
        ({"ops": []}, "no instructions to compare"),
        ({"targets": "sm_70"}, "nothing to compare on sm_70: .* needs PTX 7.0, sm_80"),
        ({"ops": "movmatrix"}, "does not multiply"),
        ({"k": 0}, "k is a whole number from 1 to 262144; given 0"),
        ({"k": 2.5}, "k is a whole number from 1 to 262144; given 2.5"),
        ({"k": []}, "k is a whole number, or several; given none"),
        ({"input": "norma"}, "normal or uniform, or a pair of arrays.*norma"),
        ({"input": np.ones((4, 4))}, "a pair of arrays; given ndarray"),
        ({"input": (np.ones((4, 4)), np.ones((5, 4)))}, "A has 4 columns and B has 5"),
        ({"input": (np.ones(4), np.ones((4, 4)))}, r"A is a matrix; given shape \(4,"),
        ({"input": (np.full((4, 4), 1e9), np.eye(4))}, r"A\[0, 0\] is 1e\+09, but f16"),
        ({"input": (np.eye(4), np.full((4, 4), np.nan))}, r"B\[0, 0\] is nan"),
        ({"input": (np.eye(4), np.eye(4)), "k": 5}, "from 1 to 4; given 5"),
        ({"seed": -1}, "a seed is a whole number from 0; given -1"),
    ],
)
def test_what_cannot_be_compared(given, said):
    with pytest.raises(fm.Error, match=said):
        fm.compare(**{"ops": F16, "targets": "sm_80", "k": None, **given})


@pytest.mark.parametrize("name", ["f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "s4"])
def test_the_greatest_value_is_taken_and_no_greater_one(name):
    of = fm.dtype(name)
    shift = 13 if name == "tf32" else 0
    every = np.arange(1 << min(of.bits - shift, 19), dtype=np.uint32) << shift
    found = of.to_float64(every.astype(of.bits_dtype))
    most = np.max(found[np.isfinite(found)])
    same = rounded(of, np.array([[most]]), "A")
    assert of.to_float64(of.encode(same))[0, 0] == most
    with pytest.raises(fm.errors.ValueRangeError, match="goes from"):
        rounded(of, np.array([[most * 1.25]]), "A")


def test_f64_is_compared_where_its_products_are_exact():
    op = fm.mma("m16n8k8", a="f64")
    for far in (1e200, 1e-200):
        with pytest.raises(fm.errors.ValueRangeError, match=r"2\^-300 to 2\^300 only"):
            fm.compare(op, "sm_90", input=(np.full((2, 8), far), np.ones((8, 2))))


def test_the_plot_has_a_line_for_each_way_to_add():
    told = fm.compare([F16, fm.mma("m16n8k32", a="s8")], k=[64, 128])
    picture = told.to_svg()
    assert picture == told._repr_svg_()
    assert picture.count("<polyline") == 3
    assert ">0</text>" in picture  # integers have no error
    assert "nan" not in picture
    assert fm.compare(F16, k=64).to_svg().count("<polyline") == 2


def test_a_small_type_is_not_the_best_in_all():
    """Sums of nvfp4 are the most exact, because its products have few bits."""
    fp4 = fm.find("mma.kind::mxf4nvf4.scale_vec::4X.ue4m3")
    told = fm.compare([fp4, F16], "sm_120a", k=512, input="uniform")
    small, half = told.rows
    assert small.mean_relative < half.mean_relative
    assert small.mean_total > 100 * half.mean_total
    text = str(told)
    assert "the numbers are quantised first: e2m1, one ue4m3 for 16" in text
    assert "the numbers are rounded to f16 first" in text
    assert max(len(line) for line in text.splitlines() if line[:1] != "m") <= 80


def test_integers_are_rounded_too():
    """The error in all is that of the scaled numbers before they were rounded."""
    op = fm.mma("m16n8k32", a="s8")
    for kind in ("normal", "uniform"):
        (row,) = fm.compare(op, "sm_90", k=64, input=kind).rows
        assert row.max_relative == 0.0
        assert 1e-4 < row.mean_total < 0.5
    given = np.arange(64.0).reshape(1, 64), np.ones((64, 1))
    (row,) = fm.compare(op, "sm_90", input=given).rows
    assert (row.max_relative, row.max_total) == (0.0, 0.0)


@pytest.mark.parametrize("op", [FP8, fm.find("mma.sp.m16n8k64.f32.e4m3.e4m3")], ids=str)
@pytest.mark.parametrize("input", ["normal", "uniform"])
def test_a_rule_stands_beside_no_target_that_has_another(op, input):
    """Also if the errors happen to be equal, as small sums of e4m3 are."""
    targets = ["sm_89", "sm_90a", "sm_120a"]
    found = fm.compare(op, targets, k=64, input=input)
    for row in found.rows:
        assert row.rule == summing(op, row.target).how
    for groups in found.folded().values():
        for some, rows in groups:
            assert {summing(op, each).how for each in some} == {rows[0].rule}
    assert len({row.rule for row in found.rows}) > 1
    told = json.loads(json.dumps(found.to_dict()))["rows"]
    assert [row["rule"] for row in told] == [row.rule for row in found.rows]
    words = " ".join(str(found).split())
    assert all(" ".join(row.rule.split()) in words for row in found.rows)
