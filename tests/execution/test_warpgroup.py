"""Warpgroup functions against ``op.execute`` and an H200: some of each type and form.

``python -m tests.execution.warpgroups`` compares all of them.
"""

import ctypes
from dataclasses import replace

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import catalogue
from fragmenta.errors import AddressError, Error, ShapeError, UnsupportedTarget
from fragmenta.inspect.evidence.variants import Variant
from fragmenta.inspect.evidence.warpgroup import WarpgroupCase
from fragmenta.reference.arithmetic import multiply
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.execution.warp_floors import floors_compute
from fragmenta.reference.execution.warpgroup import warpgroup_function
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.tiles import read_tile
from fragmenta.reference.shared.tiles import tile as shared_tile
from tests.arithmetic.inputs import KINDS, operands, worth_compiling
from tests.thinning import THOROUGH

from .warpgroups import TARGET, computed, differences, function_for, inputs, recorded
from .warps import columns, nibbles

DENSE, SPARSE = "wgmma.mma_async.sync.aligned", "wgmma.mma_async.sp.sync.aligned"
SOME = [
    (f"{DENSE}.m64n40k16.f32.f16.f16", Variant(False, None, -1, 1, 1, 1)),
    (f"{DENSE}.m64n256k16.f16.f16.f16", Variant(True, None, 1, -1, 0, 1)),
    (f"{DENSE}.m64n8k16.f32.bf16.bf16", Variant(False, None, 1, -1, 1, 0)),
    (f"{DENSE}.m64n24k8.f32.tf32.tf32", Variant(True, None, -1, -1)),
    (f"{DENSE}.m64n72k32.f16.e4m3.e5m2", Variant(False, None, -1, 1)),
    (f"{DENSE}.m64n48k32.satfinite.s32.s8.u8", Variant(False)),
    (f"{DENSE}.m64n224k32.s32.u8.u8", Variant(True)),
    (f"{DENSE}.m64n96k256.s32.b1.b1.and.popc", Variant(False)),
    (f"{DENSE}.m64n8k256.s32.b1.b1.and.popc", Variant(True)),
    (f"{SPARSE}.m64n16k32.f32.f16.f16", Variant(False, 1, 1, -1, 1, 1)),
    (f"{SPARSE}.m64n120k16.f32.tf32.tf32", Variant(False, 0, -1, 1)),
    (f"{SPARSE}.m64n8k64.f32.e5m2.e5m2", Variant(True, 0, 1, -1)),
    (f"{SPARSE}.m64n32k64.satfinite.s32.s8.s8", Variant(False, 0)),
]


@pytest.mark.parametrize("text, variant", SOME)
def test_the_bits_of_execute(text, variant):
    differ, compared = differences(fm.find(text), variant, 8, 5)
    assert compared
    assert not differ


# ── chains of fused multiply-adds ───────────────────────────────────────────


def by_chains(op):
    return floors_compute(op, numeric_model(op, TARGET))


@pytest.mark.parametrize(
    "text, variant", [each for each in SOME if by_chains(fm.find(each[0]))]
)
@pytest.mark.parametrize("gap", [0, 80])
def test_d_stays_where_the_warps_have_it(text, variant, gap):
    case = WarpgroupCase(fm.find(text), variant, 8, 6)
    assert function_for(case.op, variant).in_place
    given = inputs(case)
    found = computed(case, given, gap=gap)
    assert (found == case.expect(given, TARGET)).all()


def test_every_wgmma_of_floats_is_computed_by_chains():
    every = [op for family in ("wgmma", "wgmma.sp") for op in catalogue(family)]
    some = [op for op in every if op.shape.n in (8, 24, 256)]
    wrong = [op for op in some if by_chains(op) == op.types["a"].is_integer]
    assert len(some) > 100
    assert not wrong


@pytest.mark.parametrize("text, variant", [e for e in SOME if by_chains(fm.find(e[0]))])
def test_chains_give_the_bits_of_single_products(text, variant):
    """For every kind of numbers, also beside those that chains cannot add."""
    op, rng = fm.find(text), np.random.default_rng(7)
    how = numeric_model(op, TARGET)
    for kind in KINDS:
        a, b, c, _ = operands(rng, how, kind, 1, 64, op.shape.n)
        metadata, more = None, {}
        if op.sparse:
            codes = rng.choice(op.granularity.codes(), (1, 128, 8))
            metadata = nibbles(codes)
            more["index"] = columns(op, metadata, variant.selector)
        with worth_compiling(1 << 62):
            expected = multiply(
                signed(op, "a", a, variant.scale_a),
                signed(op, "b", b, variant.scale_b),
                c,
                how,
                **more,
            )
        found = multiplied(op, variant, a[0], b[0], c[0], metadata)
        assert np.array_equal(found, expected[0]), kind


def signed(op, name, bits, scale):
    """Raw bits, times a sign."""
    top = bits.dtype.type(1 << (op.types[name].bits - 1))
    return bits if scale == 1 else bits ^ top


def multiplied(op, variant, a, b, c, metadata):
    """The raw bits of D, of a function that is given raw bits."""
    types = op.types["a"], op.types["b"], op.types["d"]
    a, b, c = (of.decode(bits) for of, bits in zip(types, (a, b, c), strict=True))
    image, at_b = shared_tile(op, "B", b, major=("k", "mn")[variant.trans_b])
    registers, words = None, [at_b.encode()]
    if variant.a_registers:
        registers = op.a.pack(a).T.copy()
    else:
        major = ("k", "mn")[variant.trans_a]
        image, at_a = shared_tile(op, "A", a, major=major, image=image)
        words = [at_a.encode(), *words]
    d = op.c.pack(c).T.copy()
    result = function_for(op, variant)(
        d,
        registers,
        np.array(words, np.uint64),
        image,
        None if metadata is None else metadata.ravel(),
        np.array([1, variant.selector or 0], np.int64),
    )
    assert result == 0
    return op.d.unpack_bits(d.T.copy())


# ── an H200 ─────────────────────────────────────────────────────────────────


def test_the_bits_of_an_h200():
    found = list(recorded(step=29 if THOROUGH else 87))
    assert len({case.op.family for case, *_ in found}) == 2
    assert sum(size for *_, size in found) > (20_000 if THOROUGH else 7_000)
    assert not [case for case, differ, _ in found if differ]


def test_signs_transpositions_and_the_old_d_matter():
    """What is compared shows every immediate."""
    op = fm.find(f"{DENSE}.m64n8k16.f32.f16.f16")
    case = WarpgroupCase(op, Variant(False), 8, 5)
    given = inputs(case)
    found = computed(case, given)
    other = {**given, "scale_d": 1 - given["scale_d"]}
    assert (computed(case, other) != found).any()
    ways = [{"scale_a": -1}, {"scale_b": -1}, {"trans_b": 1}]
    for way in ways:
        changed = replace(case, way=replace(case.way, **way))
        assert (computed(changed, given) != found).any(), way


# ── what cannot be read ─────────────────────────────────────────────────────


def run_with(op, descriptors, image, **ways):
    """The result of a call, and D, which was all ones."""
    d = np.ones((op.d.registers, 128), np.uint32)
    words = np.array([each.encode() for each in descriptors], np.uint64)
    return warpgroup_function(op, TARGET, **ways)(d, None, words, image), d


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(
    "text, trans",
    [(f"{DENSE}.m64n24k32.s32.u8.u8", 0), (f"{DENSE}.m64n8k16.f32.f16.f16", 1)],
)
def test_an_operand_must_end_inside(text, trans, swizzle):
    op, major = fm.find(text), ("k", "mn")[trans]
    made = {"swizzle": swizzle, "major": major}
    image, b = shared_tile(op, "B", np.zeros((op.shape.k, op.shape.n)), **made)
    image, a = shared_tile(op, "A", np.zeros((64, op.shape.k)), image=image, **made)
    ways = {"trans_a": trans, "trans_b": trans}
    of = op.types["a"]
    end = int(a.address(*np.ogrid[:64, : op.shape.k], of, major).max()) + of.bits // 8
    read_tile(op, "A", image[:end], a, major=major)
    assert run_with(op, (a, b), image[:end], **ways)[0] == 0
    for size in (end - 1, end - 16, 15, 0):
        with pytest.raises(AddressError, match="outside the image"):
            read_tile(op, "A", image[:size], a, major=major)
        result, d = run_with(op, (a, b), image[:size].copy(), **ways)
        assert result == 2
        assert (d == 1).all()


def test_an_operand_may_be_far_beyond():
    """Addresses do not begin again at 0 after the last one."""
    op = fm.find(f"{DENSE}.m64n256k32.s32.u8.u8")
    image = np.zeros(1 << 18, np.uint8)
    a = Descriptor(0, 128, 256, 0)
    for b in (
        Descriptor((1 << 18) - 16, 16, 16, 0),
        Descriptor(0, 0, (1 << 18) - 16, 0),
    ):
        assert run_with(op, (a, b), image)[0] == 2
        with pytest.raises(AddressError):
            read_tile(op, "B", image, b)


@pytest.mark.parametrize("operand", [0, 1])
def test_descriptors_of_unknown_meaning_are_told(operand):
    op = fm.find(f"{DENSE}.m64n24k32.s32.u8.u8")
    plain = Descriptor(0, 128, 256, 128).encode()
    run = warpgroup_function(op, TARGET)
    for bit in range(64):
        words = np.full(2, plain, np.uint64)
        words[operand] ^= np.uint64(1 << bit)
        d = np.ones((op.d.registers, 128), np.uint32)
        try:
            read_tile(op, "AB"[operand], np.zeros(1 << 18, np.uint8), words[operand])
            known = True
        except AddressError as error:
            known = "outside" in str(error)
        result = run(d, None, words, np.zeros(1 << 16, np.uint8))
        assert result in ((0, 2) if known else (3,)), bit
        assert result == 0 or (d == 1).all()


def test_illegal_metadata_is_told_and_read_as_it_is():
    op = fm.find(f"{SPARSE}.m64n32k64.satfinite.s32.s8.s8")
    case = WarpgroupCase(op, Variant(True, 0), 4, 5)
    given, rng = inputs(case), np.random.default_rng(5)
    codes = rng.integers(0, 16, (4, 128, 8))
    codes[0] = op.granularity.codes()[0]
    given["metadata"] = nibbles(codes)
    registers, flags = computed(case, given, flags=True)
    assert flags == [0, 1, 1, 1]
    a, c = op.a.unpack_bits(given["a"]), op.c.unpack_bits(given["c"])
    c *= given["scale_d"].astype(c.dtype)[:, None, None]
    b = read_tile(op, "B", given["image"], given["b"])
    index = columns(op, given["metadata"], 0)
    expected = multiply(a, b, c, numeric_model(op, TARGET), index=index)
    assert (op.d.unpack_bits(registers) == expected).all()


# ── the function itself ─────────────────────────────────────────────────────


def test_the_address_is_a_function_of_c():
    """What the instruction does not have may be null; nothing need be aligned."""
    op = fm.find(f"{DENSE}.m64n24k32.s32.u8.u8")
    run = warpgroup_function(op, TARGET)
    assert run is warpgroup_function(op, TARGET, imm_scale_a=1, a_from_registers=False)
    case = WarpgroupCase(op, Variant(False), 1, 5)
    given = inputs(case)
    image = np.concatenate([[0], given["image"][0]]).astype(np.uint8)[1:]
    assert image.ctypes.data % 2
    d = np.ascontiguousarray(given["c"][0].T)
    words = np.array([given["a"][0], given["b"][0]])
    selectors = np.array([given["scale_d"][0], 0], np.int64)
    kinds = [*[ctypes.c_void_p] * 4, ctypes.c_int64, *[ctypes.c_void_p] * 2]
    call = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(run.address)
    places = [each.ctypes.data for each in (d, words, image, selectors)]
    assert call(places[0], None, *places[1:3], image.size, None, places[3]) == 0
    assert (case.expect(given, TARGET)[0] == d.T).all()


def test_other_instructions_targets_and_immediates_are_refused():
    with pytest.raises(Error, match=r"is not for a warpgroup; wgmma and wgmma\.sp are"):
        warpgroup_function(fm.mma("m16n8k16", a="f16", d="f32"), TARGET)
    half, byte = fm.wgmma("m64n8k16", a="f16", d="f32"), fm.wgmma("m64n8k32", a="s8")
    with pytest.raises(UnsupportedTarget, match="given sm_80"):
        warpgroup_function(half, "sm_80")
    with pytest.raises(Error, match="A from registers cannot be transposed"):
        warpgroup_function(half, TARGET, a_from_registers=True, trans_a=1)
    with pytest.raises(ShapeError, match="imm_scale_b 0 is not allowed"):
        warpgroup_function(half, TARGET, imm_scale_b=0)
    for wrong in ({"imm_scale_a": -1}, {"trans_b": 1}):
        with pytest.raises(ShapeError, match="is not allowed"):
            warpgroup_function(byte, TARGET, **wrong)
