"""Warp functions against ``op.execute``: some of each form, type and model.

``python -m tests.execution.warps`` compares all of them.
"""

import ctypes

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.errors import Error, LayoutError, UnsupportedTarget
from fragmenta.reference.arithmetic import multiply
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.execution.warp import warp_function
from fragmenta.reference.execution.warp_registers import items_of
from fragmenta.reference.isa.families import OF_WARPS
from tests.thinning import some

from .warps import columns, computed, differences, given, nibbles, turned

SP, ORDERED = "mma.sp.sync.aligned", "mma.sp::ordered_metadata.sync.aligned"
SOME = [
    ("mma.m16n8k16.f32.f16.f16.f32", "sm_90a"),
    ("mma.m16n8k16.f32.f16.f16.f32", "sm_80"),
    ("mma.m16n8k8.f16.f16.f16.f16", "sm_75"),
    ("mma.m8n8k4.col.row.f32.f16.f16.f16", "sm_70"),
    ("mma.m8n8k4.row.col.f16.f16.f16.f16", "sm_90a"),
    ("mma.m8n8k4.col.col.f32.f16.f16.f32", "sm_80"),
    ("mma.m16n8k8.f32.bf16.bf16.f32", "sm_100a"),
    (f"{SP}.m16n8k16.row.col.f32.tf32.tf32.f32", "sm_90a"),
    (f"{ORDERED}.m16n8k16.row.col.f16.f16.f16.f16", "sm_90a"),
    ("mma.m16n8k32.f32.e4m3.e5m2.f32", "sm_89"),
    (f"{SP}.m16n8k64.row.col.f32.e5m2.e4m3.f32", "sm_90a"),
    ("mma.m16n8k32.kind::f8f6f4.f16.e3m2.e2m1.f16", "sm_120a"),
    ("mma.m16n8k32.kind::mxf8f6f4.f32.e2m3.e5m2.f32", "sm_120a"),
    ("mma.m16n8k64.kind::mxf4.f32.e2m1.e2m1.f32", "sm_120a"),
    (f"{ORDERED}.m16n8k128.kind::mxf4nvf4.scale_vec::4X.ue4m3", "sm_120a"),
    ("mma.m8n8k4.f64.f64.f64.f64", "sm_80"),
    ("mma.m16n8k8.f64.f64.f64.f64.rp", "sm_90a"),
    ("mma.m16n8k16.satfinite.s32.s8.u8.s32", "sm_90a"),
    (f"{SP}.m16n8k64.row.col.s32.u4.s4.s32", "sm_80"),
    ("mma.m16n8k256.b1.xor", "sm_80"),
    ("wmma.mma.row.col.m8n32k16.f16.f32", "sm_90a"),
    ("wmma.mma.row.row.m16n16k8.tf32", "sm_90a"),
    ("wmma.mma.col.row.m32n8k16.s32.s8.s8.s32", "sm_90a"),
]
KINDS = ("near", "special", "cut", "c", "registers")


@pytest.mark.parametrize("text, target", some(SOME, 2))
def test_the_bits_of_execute(text, target):
    differ, compared = differences(
        fm.find(text), target, np.random.default_rng(3), 2, KINDS
    )
    assert compared
    assert not differ


def test_another_target_has_other_bits():
    """What is compared shows how a target cuts its sums."""
    op, rng = fm.mma("m16n8k16", a="f16", d="f32"), np.random.default_rng(3)
    a, b, c, _ = given(op, "sm_90a", rng, 4, "cut")
    expected = op.execute(a, b, c, target="sm_90a")
    assert (computed(op, "sm_90a", a, b, c) == expected).all()
    assert (computed(op, "sm_80", a, b, c) != expected).any()


@pytest.mark.parametrize(
    "text, target",
    [
        (f"{ORDERED}.m16n8k32.row.col.f32.f16.f16.f32", "sm_90a"),
        (f"{SP}.m16n8k64.row.col.s32.s4.s4.s32", "sm_80"),
        (f"{SP}.m16n8k8.row.col.f32.tf32.tf32.f32", "sm_80"),
    ],
)
def test_illegal_metadata_is_told_and_read_as_it_is(text, target):
    op, rng = fm.find(text), np.random.default_rng(5)
    a, b, c, more = given(op, target, rng, 4, "near")
    codes = rng.integers(0, 16, (4, 32, 8))
    codes[0] = op.granularity.codes()[0]
    more["metadata"] = nibbles(codes)
    registers, flags = computed(op, target, a, b, c, flags=True, **more)
    index = columns(op, more["metadata"], more["selector"])
    parts = ((op.a, a), (op.b, b), (op.c, c))
    bits = (part.unpack_bits(words) for part, words in parts)
    expected = multiply(*bits, numeric_model(op, target), index=index)
    assert flags == [0, 1, 1, 1]
    assert (op.d.unpack_bits(registers) == expected).all()


def test_only_codes_that_are_read_are_illegal():
    """Ordered metadata must ascend; lanes of other selectors hold anything."""
    text = "m16n8k16.row.col.f32.f16.f16.f32"
    plain, ordered = fm.find(f"{SP}.{text}"), fm.find(f"{ORDERED}.{text}")
    a, b, c, more = given(plain, "sm_90a", np.random.default_rng(0), 1, "near")
    codes = np.zeros((1, 32, 8), int)
    codes[:, 2::4] = 0b0001  # positions 1 and 0
    more |= {"metadata": nibbles(codes), "selector": 2}
    for op, told in ((plain, [0]), (ordered, [1])):
        assert computed(op, "sm_90a", a, b, c, flags=True, **more)[1] == told


def test_selectors_have_no_effect_beyond_their_range():
    op = fm.find("mma.m16n8k32.kind::mxf8f6f4.f32.e4m3.e4m3.f32")
    a, b, c, more = given(op, "sm_120a", np.random.default_rng(0), 2, "wide")
    expected = computed(op, "sm_120a", a, b, c, **more)
    for name in ("byte_a", "thread_a", "byte_b", "thread_b"):
        more[name] += 1 << 8
    assert (computed(op, "sm_120a", a, b, c, **more) == expected).all()


def test_the_address_is_a_function_of_c():
    op = fm.mma("m16n8k32", a="s8")
    run = warp_function(op, "sm_90a")
    assert run is warp_function(op, "sm_90a")
    a, b, c, _ = given(op, "sm_90a", np.random.default_rng(0), 1, "bits")
    d = np.zeros((4, 32), np.uint32)
    arrays = [d, *(turned(x[0]) for x in (a, b, c)), np.zeros(5, np.int64)]
    kinds = [ctypes.c_void_p] * 6
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(run.address)
    places = [x.ctypes.data for x in arrays]
    assert call(*places[:4], None, places[4]) == 0
    assert (op.execute(a, b, c)[0] == d.T).all()


def test_every_place_of_d_is_written():
    """There are no copies of an element of D, which would need more writes."""
    for family in OF_WARPS:
        for op in catalogue(family):
            assert not op.d.layout.free, op


def test_other_instructions_and_targets_are_refused():
    with pytest.raises(Error, match=r"is not for one warp; mma, mma\.sp and wmma\.mma"):
        warp_function(fm.wgmma("m64n8k16", a="f16", d="f32"), "sm_90a")
    with pytest.raises(UnsupportedTarget, match="given sm_75"):
        warp_function(fm.mma("m16n8k16", a="f16", d="f32"), "sm_75")


def test_elements_that_are_no_neighbours_are_refused():
    """Four bits can be read only together with their neighbours along k."""
    part = fm.mma("m16n8k64", a="s4").a
    with pytest.raises(LayoutError, match="its elements are not neighbours along row"):
        items_of(part, "col")
