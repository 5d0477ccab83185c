"""Products of small, scaled and sparse operands: pairs whose answer is known."""

from itertools import combinations

import ml_dtypes
import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.reference.arithmetic.equality import equal_models
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.reading import instruction
from tests.thinning import some

TEXT = """
.version 8.8
.target {target}
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 e)
{{
    .reg .b32 %r<6>; .reg .b32 %a<4>; .reg .b32 %b<4>; .reg .b32 %e<4>;
    .reg .b64 %rd<12>; .reg .f32 %c<4>;
    ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [c]; ld.param.u64 %rd4, [e];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 16;
    add.s64 %rd6, %rd1, %rd5; add.s64 %rd7, %rd2, %rd5;
    add.s64 %rd8, %rd3, %rd5; add.s64 %rd9, %rd4, %rd5;
    ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%rd6];
    ld.global.v4.b32 {{%b0, %b1, %b2, %b3}}, [%rd7];
    ld.global.v4.f32 {{%c0, %c1, %c2, %c3}}, [%rd8];
    ld.global.v4.b32 {{%e0, %e1, %e2, %e3}}, [%rd9];
    {body}
    st.global.v4.f32 [%rd8], {{%c0, %c1, %c2, %c3}};
    ret;
}}"""
C = "{%c0, %c1, %c2, %c3}"
ZEROS = np.zeros((32, 4), np.uint32)


def floats(kind, seed=0):
    """Registers of random floats: four for each lane."""
    random = np.random.default_rng(seed)
    many = 16 // np.dtype(kind).itemsize
    return random.standard_normal((32, many)).astype(kind)


def call(body, target, a, b, e=ZEROS, c=None):
    c = floats(np.float32, 2) if c is None else c
    kernel = ptx.parse(TEXT.format(body=body, target=target)).kernels["k"]
    return ptx.Call(kernel, 1, 32, [a, b, c, e])


def asked(one, two, **options):
    return ptx.same(one, two, watch=False, **options)


# ── fp8 ─────────────────────────────────────────────────────────────────────

E4M3 = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
PLAIN = f"{E4M3} {C}, {{%a0, %a1, %a2, %a3}}, {{%b0, %b1}}, {C};"
HALVES = f"{E4M3} {C}, {{%a2, %a3, %a0, %a1}}, {{%b1, %b0}}, {C};"
"""The two halves of k in the other order."""
FP8 = ml_dtypes.float8_e4m3fn


@pytest.mark.long
@pytest.mark.parametrize("target", some(["sm_89", "sm_90a", "sm_120a"], 3))
def test_halves_of_k_of_fp8_commute_exactly_within_a_step(target):
    a, b = floats(FP8), floats(FP8, 1)
    one, two = (call(body, target, a, b) for body in (PLAIN, HALVES))
    steps = numeric_model(instruction(E4M3), target).steps
    kept = all({(k + 16) % 32 for k in step} == set(step) for step in steps)
    assert kept == (target != "sm_89")  # sm_90a takes every other pair in a step
    found = asked(one, two, by_value=["e"])
    assert found.verdict == ("same" if kept else "different")
    assert (found.by_value, found.open) == (("e",), ())


@pytest.mark.long
def test_targets_whose_fp8_sums_keep_other_bits_are_apart():
    made = call(PLAIN, "sm_89", floats(FP8), floats(FP8, 1))
    names = ["sm_89", "sm_90a", "sm_120a"]
    found = ptx.targets(made, names)
    models = [numeric_model(instruction(E4M3), each) for each in names]
    assert not any(equal_models(*pair) for pair in combinations(models, 2))
    assert found.members == (("sm_89",), ("sm_90a",), ("sm_120a",))
    assert {each.verdict for each in found.between.values()} == {"different"}


def test_labels_name_copies_of_fp8():
    a, b = floats(FP8), floats(FP8, 1)
    one = call(PLAIN, "sm_90a", a, b)
    other = call(PLAIN, "sm_90a", floats(FP8, 7), b.copy())
    assert asked(one, other).verdict == "different"
    assert asked(one, other, labels={"a": "a"}, by_value=["e"]).verdict == "same"
    late = asked(one, other, labels=({}, {"a": ("a", 1)}))  # from the next element on
    assert late.verdict == "different"


def test_bytes_are_fp8_if_types_say_so():
    a, b = (floats(FP8, n).view(np.uint8) for n in (0, 1))
    types = {"a": "e4m3", "b": "e4m3"}
    one, two = (call(body, "sm_120a", a, b) for body in (PLAIN, HALVES))
    found = asked(one, two, types=types, by_value=["e"])
    assert (found.verdict, found.by_value) == ("same", ("e",))
    whole = asked(one, two)
    assert (whole.verdict, set(whole.by_value)) == ("same here", {"a", "b", "e"})


# ── fp4 and block scales ────────────────────────────────────────────────────

NVFP4 = (
    "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X"
    ".f32.e2m1.e2m1.f32.ue4m3"
)


def scaled(a, b):
    """A product of four-bit numbers with their scales."""
    left, right = (f"{{%{a}0, %{a}1, %{a}2, %{a}3}}", f"{{%b{b}, %b{b + 1}}}")
    return f"{NVFP4} {C}, {left}, {right}, {C}, %e0, {{0, 0}}, %e1, {{0, 0}};"


def codes(seed):
    return np.random.default_rng(seed).integers(0, 1 << 32, (32, 4), np.uint32)


def scales(seed):
    """Positive scales of eight bits."""
    found = np.random.default_rng(seed).integers(0x30, 0x40, (32, 16), np.uint8)
    return found.view(np.uint32)


@pytest.mark.long
def test_block_scales_are_a_condition():
    made = [
        call(scaled("a", 0), "sm_120a", codes(1), codes(2), scales(3)) for _ in "ab"
    ]
    found = asked(*made)
    assert found.verdict == "same"
    assert [each.kind for each in found.conditions] == ["scales"]
    assert set(found.by_value) == {"a", "b", "e"}


def test_other_scales_and_other_codes_are_different():
    given = codes(1), codes(2), scales(3)
    one = call(scaled("a", 0), "sm_120a", *given)
    for place, other in ((0, codes(4)), (1, codes(5)), (2, scales(6))):
        changed = [other if n == place else each for n, each in enumerate(given)]
        found = asked(one, call(scaled("a", 0), "sm_120a", *changed))
        assert found.verdict == "different", place


def test_two_scaled_products_have_an_order():
    first, second = scaled("a", 0), scaled("a", 2)
    given = codes(1), codes(2), scales(3)
    one, two = (
        call(body, "sm_120a", *given) for body in (first + second, second + first)
    )
    assert asked(one, one).verdict == "same"
    assert asked(one, two).verdict == "different"


# ── sparse ──────────────────────────────────────────────────────────────────

WHOLE = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
HALF = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def sparse(name, a, b, e, selector=0):
    left, right = (f"{{{', '.join(each)}}}" for each in (a, b))
    return f"{name} {C}, {left}, {right}, {C}, {e}, {selector};"


A, B = [f"%a{n}" for n in range(4)], [f"%b{n}" for n in range(4)]
K32 = sparse(WHOLE, A, B, "%e0")
K16 = sparse(HALF, A[:2], B[:2], "%e1") + sparse(HALF, A[2:], B[2:], "%e2")


def metadata(code):
    """The same pair of kept elements everywhere: 0 and 1, or 2 and 3."""
    return np.full((32, 4), {"01": 0x44444444, "23": 0xEEEEEEEE}[code], np.uint32)


@pytest.mark.long
@pytest.mark.parametrize("target, same", [("sm_80", True), ("sm_90", False)])
def test_a_sparse_product_in_two_halves(target, same):
    """sm_80 adds eight stored products at a time anyway; sm_90 sixteen."""
    a, b = floats(np.float16), floats(np.float16, 1)
    one, two = (call(body, target, a, b, metadata("01")) for body in (K32, K16))
    found = asked(one, two, by_value=["e"])
    assert found.verdict == ("same" if same else "different")


def test_metadata_say_what_is_multiplied():
    a, b = floats(np.float16), floats(np.float16, 1)
    one, two = (call(K32, "sm_90", a, b, metadata(code)) for code in ("01", "23"))
    assert asked(one, one).verdict == "same"
    found = asked(one, two)
    assert found.verdict == "different"
    kept = [
        {y.name for step in tree.root.steps for (_, y) in step} for tree in found.trees
    ]
    assert len(kept[0]) == len(kept[1]) == 16
    assert not kept[0] & kept[1]  # other elements of B
