"""The compiled loops against the reference, one element at a time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fragmenta.reference.arithmetic import model, multiply
from tests.thinning import repeats, some

from . import reference
from .inputs import KINDS, operands, worth_compiling

F32, F16 = ("f32", "f32"), ("f16", "f16")
S32 = ("s32", "s32")
MX = {"kind": "mxf8f6f4", "scale": "ue8m0", "scale_vec": 1}
WGMMA = {"unit": "wgmma"}
WMMA = {"unit": "wmma"}
SPARSE = {"sparse": True}

FLOATING = [
    # target, a, b, (c, d), k, more
    ("sm_70", "f16", "f16", F32, 4, {}),
    ("sm_70", "f16", "f16", F16, 4, {}),
    ("sm_70", "f16", "f16", ("f16", "f32"), 4, {}),
    ("sm_70", "f16", "f16", F32, 16, WMMA),
    ("sm_75", "f16", "f16", ("f16", "f32"), 4, {}),
    ("sm_75", "f16", "f16", F32, 8, {}),
    ("sm_75", "f16", "f16", F16, 16, WMMA),
    ("sm_80", "f16", "f16", F32, 16, {}),
    ("sm_80", "bf16", "bf16", F32, 16, {}),
    ("sm_80", "tf32", "tf32", F32, 8, {}),
    ("sm_86", "f16", "f16", F16, 32, SPARSE),
    ("sm_89", "e4m3", "e5m2", F32, 32, {}),
    ("sm_89", "e5m2", "e5m2", F16, 32, {}),
    ("sm_89", "e4m3", "e4m3", F32, 64, SPARSE),
    ("sm_90a", "f16", "f16", F32, 8, {}),
    ("sm_90a", "f16", "f16", F32, 16, {}),
    ("sm_90a", "f16", "f16", F16, 16, {}),
    ("sm_90a", "f16", "f16", F16, 16, SPARSE),
    ("sm_90a", "bf16", "bf16", F32, 32, SPARSE),
    ("sm_90a", "tf32", "tf32", F32, 4, {}),
    ("sm_90a", "tf32", "tf32", F32, 16, SPARSE),
    ("sm_90a", "tf32", "tf32", F32, 8, WMMA),
    ("sm_90a", "f16", "f16", ("f32", "f16"), 16, WMMA),
    ("sm_90a", "f16", "f16", ("f16", "f32"), 16, WMMA),
    ("sm_90a", "e4m3", "e4m3", F32, 32, {}),
    ("sm_90a", "e5m2", "e4m3", F32, 16, {}),
    ("sm_90a", "e4m3", "e5m2", F16, 32, {}),
    ("sm_90a", "e5m2", "e5m2", F32, 64, SPARSE),
    ("sm_90a", "e4m3", "e5m2", F32, 32, WGMMA),
    ("sm_90a", "e5m2", "e4m3", F16, 32, WGMMA),
    ("sm_90a", "e4m3", "e4m3", F32, 64, WGMMA | SPARSE),
    ("sm_100", "bf16", "bf16", F32, 16, {}),
    ("sm_120", "e4m3", "e5m2", F32, 32, {}),
    ("sm_120", "e4m3", "e4m3", F32, 16, {}),
    ("sm_120a", "e3m2", "e2m1", F32, 32, {"kind": "f8f6f4"}),
    ("sm_120a", "e2m3", "e5m2", F16, 64, {"kind": "f8f6f4"} | SPARSE),
    ("sm_120a", "e4m3", "e4m3", F32, 32, MX),
    ("sm_120a", "e5m2", "e2m3", F32, 64, MX | SPARSE),
    ("sm_120a", "e2m1", "e2m1", F32, 64, {"kind": "mxf4"}),
    ("sm_120a", "e2m1", "e2m1", F32, 64, {"kind": "mxf4nvf4", "scale_vec": 4}),
    (
        "sm_120a",
        "e2m1",
        "e2m1",
        F32,
        64,
        {"kind": "mxf4nvf4", "scale": "ue4m3", "scale_vec": 4},
    ),
    (
        "sm_120a",
        "e2m1",
        "e2m1",
        F32,
        128,
        {"kind": "mxf4nvf4", "scale": "ue4m3", "scale_vec": 4, "sparse": True},
    ),
    ("sm_80", "f16", "f16", F32, 4, {}),
    ("sm_90a", "f16", "f16", ("f16", "f32"), 4, {}),
    ("sm_120", "f16", "f16", F16, 4, {}),
    ("sm_80", "f64", "f64", ("f64", "f64"), 4, {}),
    ("sm_90a", "f64", "f64", ("f64", "f64"), 8, {"rounding": "rz"}),
    ("sm_90a", "f64", "f64", ("f64", "f64"), 16, {"rounding": "rm"}),
    ("sm_90a", "f64", "f64", ("f64", "f64"), 4, {"rounding": "rp"}),
]

EXACT = [
    ("sm_75", "s8", "s8", S32, 16, {}),
    ("sm_80", "u8", "s8", S32, 32, {"satfinite": True}),
    ("sm_80", "s8", "u8", S32, 64, {"satfinite": True, "sparse": True}),
    ("sm_80", "s4", "s4", S32, 64, {}),
    ("sm_90", "u4", "s4", S32, 32, {}),
    ("sm_90", "s4", "u4", S32, 128, {"sparse": True}),
    ("sm_90", "u8", "u8", S32, 32, WGMMA),
    ("sm_80", "b1", "b1", S32, 128, {"bitop": "xor"}),
    ("sm_90", "b1", "b1", S32, 256, {"bitop": "and"}),
]


def _model(row):
    target, a, b, (c, d), k, more = row
    return model(target, a, b, c, d, k, **more)


def _label(row):
    return str(_model(row)).replace(" ", "-")


def _assert_equal(a, b, c, how, more):
    expected = reference.multiply(a, b, c, how, **more)
    for products in (0, 1 << 62):  # with the kernels for many products, and without
        with worth_compiling(products):
            _assert_bits(multiply(a, b, c, how, **more), expected)


def _assert_bits(found, expected):
    wrong = np.argwhere(found != expected)
    assert not len(wrong), [
        (tuple(w), hex(found[tuple(w)]), hex(expected[tuple(w)])) for w in wrong[:3]
    ]


# Every model, and every kind of numbers.
@repeats(together=1)
@pytest.mark.parametrize(
    "row, kind",
    [
        pytest.param(row, kind, id=f"{_label(row)}-{kind}")
        for turn, row in enumerate(FLOATING)
        for kind in some(KINDS, 4, turn)
    ],
)
def test_every_floating_point_model(row, kind):
    how = _model(row)
    rng = np.random.default_rng(KINDS.index(kind))
    chained = 2 if how.c == how.d and how.k <= 32 else 1
    batch = 4 if how.stored <= 8 else 2
    a, b, c, more = operands(rng, how, kind, batch, chained=chained)
    _assert_equal(a, b, c, how, more)


@pytest.mark.parametrize("row", EXACT, ids=_label)
def test_every_exact_model(row):
    how = _model(row)
    rng = np.random.default_rng(1)
    a, b, c, more = operands(rng, how, "bits", 4, chained=3)
    edge = np.array([0x7FFFFFFF, 0x80000000, 0x7FFFFF00, 0x80000100, 0], np.uint32)
    _assert_equal(a, b, c, how, more)
    _assert_equal(a, b, edge[rng.integers(0, 5, c.shape)], how, more)


@pytest.mark.parametrize("row", FLOATING[13:20] + FLOATING[24:31], ids=_label)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_bits(row, data):
    how = _model(row)
    shapes = {"a": (1, 1, how.stored), "b": (1, how.k, 1), "c": (1, 1, 1)}
    given_bits = {}
    for name, shape in shapes.items():
        width = {"f16": 16, "bf16": 16, "tf32": 32, "f32": 32}.get(
            getattr(how, name), 8
        )
        one = st.integers(0, (1 << width) - 1)
        size = int(np.prod(shape))
        few = data.draw(st.lists(one, min_size=1, max_size=size))
        bits = np.resize(np.array(few, np.uint64), size).reshape(shape)
        given_bits[name] = bits.astype(f"u{width // 8}")
    more = {}
    if how.sparse:
        more["index"] = np.arange(0, how.k, 2, dtype=np.uint8).reshape(1, 1, -1)
    _assert_equal(given_bits["a"], given_bits["b"], given_bits["c"], how, more)


DIRECTED = st.floats(allow_nan=False, width=64)


@settings(max_examples=300, deadline=None)
@given(x=DIRECTED, y=DIRECTED, z=DIRECTED, rounding=st.sampled_from(["rz", "rm", "rp"]))
def test_directed_rounding(x, y, z, rounding):
    how = model("sm_90", "f64", "f64", "f64", "f64", 4, rounding=rounding)
    a = np.array([[x, 0, 0, 0]]).view(np.uint64)[None]
    b = np.array([[y], [0], [0], [0]]).view(np.uint64)[None]
    c = np.array([[[z]]]).view(np.uint64)
    _assert_equal(a, b, c, how, {})


def test_a_sum_that_rounds_to_a_power_of_two_and_back():
    one_below = np.nextafter(1.0, 0.0)
    how = model("sm_90", "f64", "f64", "f64", "f64", 4, rounding="rz")
    a = np.array([[one_below, 0, 0, 0]]).view(np.uint64)[None]
    b = np.array([[1.0], [0], [0], [0]]).view(np.uint64)[None]
    c = np.array([[[2.0**-60]]]).view(np.uint64)
    d = multiply(a, b, c, how).view(np.float64)
    assert d[0, 0, 0] == one_below
