"""The table against the facts, typed in again by hand."""

import pickle

import pytest

from fragmenta.arithmetic import ARCHITECTURES, model
from fragmenta.errors import Error, ShapeError, UnknownType, UnsupportedTarget


def numbers(how):
    return how.products, how.fraction, how.floor, how.keep, how.rounding


@pytest.mark.parametrize(
    "target, a, d, k, more, expected",
    [
        ("sm_70", "f16", "f32", 4, {}, (4, 23, -131, 23, "rz")),
        ("sm_72", "f16", "f16", 4, {}, (4, 23, -19, 10, "rn")),
        ("sm_75", "f16", "f32", 8, {}, (8, 24, -132, 23, "rz")),
        ("sm_75", "f16", "f16", 8, {}, (8, 24, -20, 10, "rn")),
        ("sm_75", "f16", "f32", 4, {}, (4, 23, -131, 23, "rz")),
        ("sm_80", "bf16", "f32", 16, {}, (8, 24, -132, 23, "rz")),
        ("sm_86", "tf32", "f32", 8, {}, (4, 24, -132, 23, "rz")),
        ("sm_87", "f16", "f16", 16, {}, (8, 24, -20, 10, "rn")),
        ("sm_89", "e4m3", "f32", 32, {}, (16, 13, -132, 13, "rz")),
        ("sm_89", "e5m2", "f16", 32, {}, (16, 13, -20, 10, "rn")),
        ("sm_90", "f16", "f32", 16, {}, (16, 25, -133, 23, "rz")),
        ("sm_90", "f16", "f32", 8, {}, (8, 25, -133, 23, "rz")),
        ("sm_90", "bf16", "f32", 32, {"sparse": True}, (16, 25, -133, 23, "rz")),
        ("sm_90a", "tf32", "f32", 8, {"unit": "wgmma"}, (8, 25, -133, 23, "rz")),
        ("sm_90a", "tf32", "f32", 4, {}, (4, 25, -133, 23, "rz")),
        ("sm_90a", "f16", "f16", 16, {"unit": "wgmma"}, (16, 25, -21, 10, "rn")),
        ("sm_90a", "e4m3", "f32", 32, {"unit": "wgmma"}, (32, 13, -133, 13, "rz")),
        ("sm_90a", "e5m2", "f16", 32, {"unit": "wgmma"}, (32, 13, -21, 10, "rn")),
        ("sm_90", "e4m3", "f32", 32, {}, (16, 25, -133, 23, "rz")),
        ("sm_90", "e4m3", "f16", 16, {}, (8, 25, -21, 10, "rn")),
        ("sm_90", "tf32", "f32", 8, {"unit": "wmma"}, (4, 25, -133, 23, "rz")),
        ("sm_100a", "f16", "f32", 16, {}, (16, 25, -133, 23, "rz")),
        ("sm_103", "e4m3", "f32", 32, {}, (16, 25, -133, 23, "rz")),
        ("sm_120", "e4m3", "f32", 32, {}, (32, 25, -133, 23, "rz")),
        ("sm_121a", "e2m1", "f16", 32, {"kind": "f8f6f4"}, (32, 25, -21, 10, "rn")),
        ("sm_120a", "e4m3", "f32", 32, {"kind": "mxf8f6f4"}, (32, 25, -133, 23, "rz")),
        ("sm_120a", "e2m1", "f32", 64, {"kind": "mxf4"}, (32, 35, -139, 23, "rz")),
    ],
)
def test_the_numbers(target, a, d, k, more, expected):
    assert numbers(model(target, a, a, d, d, k, **more)) == expected


def test_every_architecture_multiplies_f16():
    for number in ARCHITECTURES:
        how = model(f"sm_{number}", "f16", "f16", "f32", "f32", 16, unit="wmma")
        assert how.source == ("measured on H200" if number == 90 else "published")


def test_a_suffix_changes_nothing():
    plain, special = (
        model(target, "f16", "f16", "f32", "f32", 16) for target in ("sm_90", "sm_90a")
    )
    assert numbers(plain) == numbers(special)


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
        (("sm_80", "f17", *["f16"] * 3, 16), {}, UnknownType, "no element type f17"),
        (("sm_75", "bf16", "bf16", "f32", "f32", 16), {}, UnsupportedTarget, "sm_80"),
        (("sm_90", *["e2m1"] * 2, "f32", "f32", 32), {}, UnsupportedTarget, "sm_120"),
        (("sm_80", "f16", "f16", "f32", "f32", 16), {"unit": "wgmma"},
         UnsupportedTarget, "sm_90 has"),
        (("sm_80", "f16", "bf16", "f32", "f32", 16), {}, Error, "f16 multiplies f16"),
        (("sm_80", "f16", "f16", "f32", "f32", 0), {}, ShapeError, "k is 0"),
        (("sm_80", "f16", "f16", "f32", "f32", 12), {}, ShapeError, "steps take 8"),
        (("sm_80", "s8", "f16", "s32", "s32", 32), {}, Error, "multiplies"),
        (("sm_80", "s8", "s8", "f32", "f32", 32), {}, Error, "s32 accumulators"),
        (("sm_80", "b1", "b1", "s32", "s32", 128), {}, Error, "bitop='xor'"),
        (("sm_80", *["f64"] * 4, 4), {"rounding": "up"}, Error, "rn, rz, rm and rp"),
        (("sm_90", *["e4m3"] * 2, "f32", "f32", 32), {"toolkit": "12.4"}, Error,
         "from toolkit 13.0"),
        (("sm_90", *["e4m3"] * 2, "f32", "f32", 32), {"toolkit": "new"}, Error,
         "no toolkit version"),
        (("sm_120a", *["e2m1"] * 2, "f32", "f32", 64), {"kind": "mxf4nvf4"}, Error,
         "scale_vec=4"),
        (("sm_100a", *["e4m3"] * 2, "f32", "f32", 32), {"kind": "mxf8f6f4"},
         UnsupportedTarget, "sm_120 and sm_121 have"),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_refused(arguments, more, error, message):
    with pytest.raises(error, match=message):
        model(*arguments, **more)
