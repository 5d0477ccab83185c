"""What ties the rows of the table to one another, and what it refuses.

The numbers themselves are proven elsewhere: sm_90 by the recordings of an H200
(tests/test_golden.py), the others by MMA-Sim's answers (test_published.py).
"""

import pickle
from dataclasses import replace

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.errors import Error, ShapeError, UnknownType, UnsupportedTarget
from fragmenta.reference.arithmetic import explain_steps, model
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.target import ARCHITECTURES


def test_every_architecture_multiplies_f16():
    for number in ARCHITECTURES:
        how = model(f"sm_{number}", "f16", "f16", "f32", "f32", 16, unit="wmma")
        assert how.source == ("measured on H200" if number == 90 else "published")


def test_a_suffix_changes_nothing():
    plain, special = (
        model(target, "f16", "f16", "f32", "f32", 16) for target in ("sm_90", "sm_90a")
    )
    assert replace(plain, target="sm_90a") == special


@pytest.mark.parametrize("number", ARCHITECTURES)
@pytest.mark.parametrize("d", ["f32", "f16"])
def test_wmma_takes_the_steps_of_mma(number, d):
    """MMA-Sim has no wmma; on sm_90 an H200 has answered for it."""
    k = 4 if number < 75 else 8 if number == 75 else 16
    chained = model(f"sm_{number}", "f16", "f16", d, d, k)
    wmma = model(f"sm_{number}", "f16", "f16", d, d, 16, unit="wmma")
    names = ("fraction", "floor", "keep", "rounding", "form", "c_enters", "products")
    assert [getattr(wmma, n) for n in names] == [getattr(chained, n) for n in names]


def test_a_sparse_instruction_takes_the_steps_of_a_dense_one():
    """Only stored products count, so k is twice as long and no more changes."""
    checked = 0
    for sparse in fm.catalogue("mma.sp"):
        k, target = sparse.shape.k // 2, sparse.requires.targets[0]
        how = numeric_model(sparse, target)
        more = {"kind": how.kind, "scale": how.scale, "scale_vec": how.scale_vec}
        if how.form in ("fused", "grouped"):
            dense = model(target, how.a, how.b, how.c, how.d, k, **more)
            assert replace(how, k=k) == dense
            checked += 1
    assert checked > 100


def test_fp4_with_block_scales_is_one_step_of_four_groups():
    """It was two steps of 32 products, in groups of 8, until it was judged."""
    whole = [
        fm.tcgen05("m128n64", a="e2m1", kind="mxf4", sp=sp, cta_group=1)
        for sp in (False, True)
    ]
    for op in [op for op in fm.catalogue() if not op.tensor_memory] + whole:
        if op.kind in ("mxf4", "mxf4nvf4"):
            how = numeric_model(op, "sm_100a" if op.tensor_memory else "sm_120a")
            assert how.steps == (tuple(range(64)),)
            a = np.full(how.stored, 2, np.uint8)  # 1.0
            scales = np.full(
                how.scale_vec, 127 if how.scale == "ue8m0" else 56, np.uint8
            )
            index = {"index": np.arange(0, how.k, 2)} if how.sparse else {}
            (step,) = explain_steps(
                a,
                np.full(how.k, 2, np.uint8),
                0,
                how,
                **index,
                scale_a=scales,
                scale_b=scales,
            ).steps
            assert [len(term.k) for term in step.terms] == [16, 16, 16, 16, 0]


def test_the_explanation_tells_the_groups():
    op = fm.find("mma.m16n8k64.kind::mxf4.e2m1")
    A = np.ones((16, 64), op.types["a"].storage)
    scale = np.ones((16, 2), op.scale_a.dtype.storage)
    told = op.explain(A, A[:8].T, row=0, col=0, scale_a=scale, scale_b=scale[:8].T)
    assert "step 1 of 1: 64 products in groups of 16 and the accumulator" in str(told)
    assert "48…63" in str(told)


def test_fp8_without_hardware_takes_halves_from_zero():
    how = model("sm_90", "e4m3", "e5m2", "f32", "f32", 32)
    assert (how.operand, how.start, how.form) == ("f16", "zero", "fused")
    first, second = how.steps
    assert {p % 4 for p in first} == {0, 1}
    assert {p % 4 for p in second} == {2, 3}
    sparse = model("sm_90", "e4m3", "e5m2", "f32", "f32", 64, sparse=True)
    assert sparse.steps == how.steps


def test_f16_of_k_4_became_software():
    assert model("sm_75", "f16", "f16", "f32", "f32", 4).form == "fused"
    assert model("sm_80", "f16", "f16", "f32", "f32", 4).form == "chain"
    assert model("sm_90", "f16", "f16", "f16", "f16", 4).form == "pairs"


def test_steps_cover_every_product_once():
    for k, sparse in ((16, False), (32, False), (64, True)):
        how = model("sm_90", "e4m3", "e4m3", "f32", "f32", k, sparse=sparse)
        taken = sorted(p for step in how.steps for p in step)
        assert taken == list(range(how.stored))


def test_a_model_is_the_same_after_pickling():
    how = model("sm_90", "e4m3", "e4m3", "f32", "f32", 32)
    copy = pickle.loads(pickle.dumps(how))
    assert copy == how
    assert hash(copy) == hash(how)


@pytest.mark.parametrize(
    "arguments, more, error, message",
    [
        (("sm_91", *["f16"] * 4, 16), {}, UnsupportedTarget, "no target sm_91"),
        (("sm_80a", *["f16"] * 4, 16), {}, UnsupportedTarget, "no target sm_80a"),
        (("sm_80", "f17", *["f16"] * 3, 16), {}, UnknownType, "no element type f17"),
        (("sm_75", "bf16", "bf16", "f32", "f32", 16), {}, UnsupportedTarget, "sm_80"),
        (("sm_90", *["e2m1"] * 2, "f32", "f32", 32), {}, UnsupportedTarget, "sm_120"),
        (
            ("sm_80", "f16", "f16", "f32", "f32", 16),
            {"unit": "wgmma"},
            UnsupportedTarget,
            "targets with it: sm_90",
        ),
        (("sm_80", "f16", "bf16", "f32", "f32", 16), {}, Error, "B must be f16"),
        (("sm_80", "f16", "f16", "f32", "f32", 0), {}, ShapeError, "k is 0"),
        (("sm_80", "f16", "f16", "f32", "f32", 12), {}, ShapeError, "steps of 8"),
        (("sm_80", "s8", "f16", "s32", "s32", 32), {}, Error, "B must be s8"),
        (("sm_80", "s8", "s8", "f32", "f32", 32), {}, Error, "must be s32"),
        (("sm_80", "b1", "b1", "s32", "s32", 128), {}, Error, "bitop='xor'"),
        (("sm_80", *["f64"] * 4, 4), {"rounding": "up"}, Error, "rn, rz, rm and rp"),
        (
            ("sm_90", *["e4m3"] * 2, "f32", "f32", 32),
            {"toolkit": "12.4"},
            Error,
            "from toolkit 13.0",
        ),
        (
            ("sm_90", *["e4m3"] * 2, "f32", "f32", 32),
            {"toolkit": "new"},
            Error,
            "not a toolkit version",
        ),
        (
            ("sm_90", *["e4m3"] * 2, "f32", "f32", 32),
            {"toolkit": "13.0abc"},
            Error,
            "not a toolkit version",
        ),
        (
            ("sm_120a", *["e2m1"] * 2, "f32", "f32", 64),
            {"kind": "mxf4nvf4"},
            Error,
            "scale_vec=4",
        ),
        (
            ("sm_100a", *["e4m3"] * 2, "f32", "f32", 32),
            {"kind": "mxf8f6f4"},
            UnsupportedTarget,
            "targets with it: .*sm_120 and sm_121",
        ),
    ],
)
def test_what_does_not_exist_is_refused(arguments, more, error, message):
    with pytest.raises(error, match=message):
        model(*arguments, **more)


def tcgen05(a="f16", d="f32", k=16, target="sm_100a", **more):
    b = more.pop("b", a)
    return model(target, a, b, d, d, k, unit="tcgen05", **more)


SCALED = {"kind": "mxf4nvf4", "scale": "ue4m3", "scale_vec": 4}


@pytest.mark.parametrize(
    "how, products, fraction, floor, keep",
    [
        (tcgen05(), 16, 25, -133, 23),
        (tcgen05("bf16"), 16, 25, -133, 23),
        (tcgen05(d="f16"), 16, 25, -21, 10),
        (tcgen05("tf32", k=8), 8, 25, -133, 23),
        (tcgen05("e4m3", b="e2m1", k=32, kind="f8f6f4"), 32, 25, -133, 23),
        (tcgen05("e3m2", "f16", k=32, kind="f8f6f4"), 32, 25, -21, 10),
        (tcgen05("e5m2", k=32, kind="mxf8f6f4"), 32, 25, -133, 23),
        (tcgen05("e2m1", k=64, **SCALED), 64, 35, -139, 23),
    ],
    ids=str,
)
def test_tcgen05_is_one_step(how, products, fraction, floor, keep):
    assert how.steps == (tuple(range(how.stored)),)
    found = (how.products, how.fraction, how.floor, how.keep)
    assert found == (products, fraction, floor, keep)
    assert how.rounding == ("rn" if how.d == "f16" else "rz")
    assert how.source == "published"


def test_fp8_of_tcgen05_keeps_more_than_that_of_wgmma():
    old = model("sm_90a", "e4m3", "e4m3", "f32", "f32", 32, unit="wgmma")
    assert (old.fraction, old.keep) == (13, 13)
    assert tcgen05("e4m3", k=32).fraction == 25


@pytest.mark.parametrize(
    "how, source",
    [
        (tcgen05(target="sm_103a"), "assumed: as on sm_100"),
        (tcgen05(ws=True), "assumed: as without .ws"),
        (tcgen05(cta_group=2), "assumed: as with cta_group::1"),
        (
            tcgen05(k=32, sparse=True),
            "assumed: stored products are counted as on sm_90",
        ),
        (
            tcgen05("e4m3", k=64, sparse=True, ws=True, target="sm_110a"),
            "assumed: as on sm_100; stored products are counted as on sm_90; "
            "as without .ws",
        ),
        (tcgen05("s8", "s32", 32), "exact by definition"),
        (tcgen05("s8", "s32", 64, sparse=True), "exact by definition"),
        (
            tcgen05("u8", "s32", 32, satfinite=True),
            "exact by definition; assumed: saturated at the end",
        ),
    ],
    ids=lambda each: str(each)[:40],
)
def test_tcgen05_says_what_is_assumed(how, source):
    assert how.source == source


def test_an_assumption_changes_no_number():
    plain = tcgen05("e2m1", k=64, **SCALED)
    other = tcgen05("e2m1", k=64, **SCALED, cta_group=2, target="sm_110f")
    assert replace(other, target="sm_100a", source="published") == plain


@pytest.mark.parametrize(
    "asked, error, message",
    [
        (
            lambda: tcgen05("e2m1", k=96, target="sm_103a", **SCALED),
            Error,
            "nobody has published how sm_103a adds .*k = 96.*; k = 64 is known",
        ),
        (lambda: tcgen05("e4m3", k=64, target="sm_107a"), Error, "k = 32 is known"),
        (lambda: tcgen05("e4m3", k=128, sparse=True), Error, "k = 64 is known"),
        (lambda: tcgen05("s8", "s32", 64), Error, "k = 32 is known"),
        (lambda: tcgen05("bf16", "f16"), UnsupportedTarget, "no tcgen05 of bf16"),
        (lambda: tcgen05(b="bf16"), Error, "B must be f16"),
        *(
            (
                lambda target=target: tcgen05(target=target),
                UnsupportedTarget,
                "targets with it: sm_100, sm_103, sm_107 and sm_110",
            )
            for target in ("sm_90a", "sm_120a", "sm_121a")
        ),
        (
            lambda: tcgen05("e2m1", k=64, target="sm_120a", **SCALED),
            UnsupportedTarget,
            "targets with it: sm_100, sm_103, sm_107 and sm_110",
        ),
    ],
)
def test_what_tcgen05_has_not_is_refused(asked, error, message):
    with pytest.raises(error, match=message):
        asked()
