"""Products are those of the instructions, and targets allow the right ones."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import catalogue, wmma
from fragmenta.reference.registers.dtype import DTYPES
from tests.thinning import some
from tests.wmma.fragments import multiply, operands


def test_flags_and_operations_are_what_they_are_called():
    frags, _ = operands(fm.find("wmma.mma.xor.popc.m8n8k128"))
    a, b, c = (frags[name] for name in "abc")
    for op in (wmma.experimental.bmmaAccumulateOpPOPC, True, 1, "xor"):
        with pytest.raises(fm.Error, match="bmmaBitOp must be bmmaBitOpXOR or"):
            wmma.bmma_sync(c, a, b, c, op)
    frags, _ = operands(fm.find("wmma.mma.m8n8k32.u4"))
    a, b, c = (frags[name] for name in "abc")
    with pytest.raises(fm.Error, match="satf must be True or False; given 'sm_80'"):
        wmma.mma_sync(c, a, b, c, "sm_80")


# ── multiplication ──────────────────────────────────────────────────────────

PRODUCTS = [
    op for op in catalogue("wmma.mma") if not op.values.get("rounding")
]  # the C++ API rounds f64 to nearest only


@pytest.mark.parametrize("op", some(PRODUCTS, 2), ids=str)
def test_results_are_those_of_the_instruction(op):
    frags, _ = operands(op, warps=(2, 3))
    registers = [frags[name].registers.copy() for name in "abc"]
    multiply(op, frags)
    assert (frags["d"].registers == op.execute(*registers, target="sm_90")).all()


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::fragmenta.wmma.DeprecatedVariant")
@pytest.mark.parametrize(
    "target", ["sm_70", "sm_72", "sm_75", "sm_80", "sm_89", "sm_120a"]
)
def test_results_follow_the_target(target):
    for op in PRODUCTS:
        frags, _ = operands(op)
        if not op.supported_on(target):
            with pytest.raises(fm.errors.UnsupportedTarget, match=f"given {target}"):
                multiply(op, frags, target)
            continue
        registers = [frags[name].registers for name in "abc"]
        expected = op.execute(*registers, target=target)
        with wmma.target(target):
            multiply(op, frags)
        assert (frags["d"].registers == expected).all()


def exact(op, bits):
    """Integers by NumPy: products exact, then wrapped or clamped."""
    a, b, c = (op.types[n].decode(bits[n]).astype(np.int64) for n in "abc")
    if op.values.get("bitop", "").startswith("xor"):
        product = (a[..., :, :, None] ^ b[..., None, :, :]).sum(-2)
    else:
        product = a @ b
    if op.satfinite:
        return np.clip(c + product, -(2**31), 2**31 - 1).astype(np.int32)
    return (c + product).astype(np.int32)


@pytest.mark.parametrize(
    "op", [op for op in PRODUCTS if op.types["a"].is_integer], ids=str
)
def test_integers_are_those_of_numpy(op):
    for seed in range(3):
        frags, bits = operands(op, warps=(5,), seed=seed)
        assert (multiply(op, frags) == exact(op, bits)).all()


@pytest.mark.parametrize("satf", [False, True])
@pytest.mark.parametrize("of", ["s8", "u8", "s4", "u4"])
def test_saturation(of, satf):
    shape = (8, 8, 32) if of.endswith("4") else (16, 16, 16)
    low, high = DTYPES[of].limits
    a = wmma.fragment(wmma.matrix_a, *shape, of, wmma.row_major)
    b = wmma.fragment(wmma.matrix_b, *shape, of, wmma.col_major)
    c = wmma.fragment(wmma.accumulator, *shape, int)
    for start, sign in ((2**31 - 1, 1), (-(2**31), -1)):
        wmma.fill_fragment(a, high)
        wmma.fill_fragment(b, high if sign > 0 else low)
        wmma.fill_fragment(c, start)
        wmma.mma_sync(c, a, b, c, satf)
        total = start + shape[2] * high * (high if sign > 0 else low)
        wrapped = (total + 2**31) % 2**32 - 2**31
        clamped = max(-(2**31), min(2**31 - 1, total))
        assert (c.x == (clamped if satf else wrapped)).all()


def test_d_may_be_c_and_operands_broadcast_over_warps():
    op = fm.instruction("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    frags, _ = operands(op, warps=(4,))
    alone, _ = operands(op, seed=1)
    a, c = frags["a"], frags["c"]
    expected = op.execute(a.registers, alone["b"].registers, c.registers)
    wmma.mma_sync(c, a, alone["b"], c)
    assert (c.registers == expected).all()
    with pytest.raises(fm.errors.ShapeError, match="do not fit those of d"):
        wmma.mma_sync(alone["d"], a, alone["b"], c)
    odd = wmma.fragment(wmma.matrix_b, 16, 16, 16, "f16", wmma.col_major, warps=3)
    with pytest.raises(fm.errors.ShapeError, match="do not fit those of d"):
        wmma.mma_sync(c, a, odd, c)


def test_operands_must_belong_together():
    def of(use, shape, kind, layout=None):
        made = wmma.fragment(use, *shape, kind, layout)
        wmma.fill_fragment(made, 1)
        return made

    square, flat = (16, 16, 16), (32, 8, 16)
    row, col = wmma.row_major, wmma.col_major
    a = of(wmma.matrix_a, square, "f16", row)
    b = of(wmma.matrix_b, square, "f16", col)
    c = of(wmma.accumulator, square, "f32")
    with pytest.raises(fm.Error, match=r"a must be matrix_a; given fragment<matrix_b"):
        wmma.mma_sync(c, b, b, c)
    with pytest.raises(fm.Error, match=r"c must be accumulator; given"):
        wmma.mma_sync(c, a, b, a)
    with pytest.raises(fm.errors.ShapeError, match="the shapes must be the same"):
        wmma.mma_sync(c, a, of(wmma.matrix_b, flat, "f16", col), c)
    with pytest.raises(fm.errors.ShapeError, match="the shapes must be the same"):
        wmma.mma_sync(of(wmma.accumulator, flat, "f32"), a, b, c)
    with pytest.raises(
        fm.errors.UnknownInstruction, match="element types must be the same"
    ):
        wmma.mma_sync(c, a, of(wmma.matrix_b, square, "bf16", col), c)
    with pytest.raises(
        fm.errors.UnknownInstruction, match="half has no mma_sync with c of int"
    ):
        wmma.mma_sync(c, a, b, of(wmma.accumulator, square, "s32"))
    bf = [
        of(wmma.matrix_a, square, "bf16", row),
        of(wmma.matrix_b, square, "bf16", col),
    ]
    half = of(wmma.accumulator, square, "f16")
    with pytest.raises(
        fm.errors.UnknownInstruction, match="__nv_bfloat16 has no mma_sync"
    ):
        wmma.mma_sync(half, *bf, half)
    u8 = of(wmma.matrix_a, square, "u8", row)
    s8 = of(wmma.matrix_b, square, "s8", col)
    i = of(wmma.accumulator, square, "s32")
    with pytest.raises(
        fm.errors.UnknownInstruction, match="element types must be the same"
    ):
        wmma.mma_sync(i, u8, s8, i)
    with pytest.raises(fm.Error, match="satf is for integers"):
        wmma.mma_sync(c, a, b, c, True)


def test_arguments_in_the_wrong_order_are_named():
    c = wmma.fragment(wmma.accumulator, 16, 16, 16, float)
    memory = np.zeros(256, np.float32)
    with pytest.raises(fm.Error, match="frag must be a fragment; given ndarray"):
        wmma.load_matrix_sync(memory, c, 16, wmma.mem_row_major)
    with pytest.raises(fm.Error, match="frag must be a fragment; given ndarray"):
        wmma.store_matrix_sync(c, memory, 16, wmma.mem_row_major)
    with pytest.raises(fm.Error, match="frag must be a fragment; given int"):
        wmma.fill_fragment(0, c)
    with pytest.raises(fm.Error, match="a must be a fragment; given ndarray"):
        wmma.mma_sync(c, memory, c, c)


def test_bits_and_numbers_have_their_own_functions():
    frags, _ = operands(fm.find("wmma.mma.xor.popc.m8n8k128"))
    a, b, c, d = (frags[name] for name in "abcd")
    with pytest.raises(fm.Error, match="mma_sync does not multiply"):
        wmma.mma_sync(d, a, b, c)
    with pytest.raises(fm.Error, match="bmmaBitOp must be"):
        wmma.bmma_sync(d, a, b, c, 3)
    with pytest.raises(fm.Error, match="bmmaAccumulateOp must be"):
        wmma.bmma_sync(d, a, b, c, accumulate=2)
    wmma.bmma_sync(d, a, b, c)  # XOR and POPC unless told otherwise
    xor = d.x.copy()
    wmma.bmma_sync(d, a, b, c, wmma.experimental.bmmaBitOpXOR)
    assert (d.x == xor).all()
    frags, _ = operands(fm.find("wmma.mma.m8n8k32.s4.s4"))
    a, b, c, d = (frags[name] for name in "abcd")
    with pytest.raises(fm.Error, match="bmma_sync does not multiply"):
        wmma.bmma_sync(d, a, b, c)


# ── targets ─────────────────────────────────────────────────────────────────


def quiet(call, *arguments, **options):
    """Nothing is said."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        call(*arguments, **options)


def test_bit_operations_and_their_targets():
    frags, _ = operands(fm.find("wmma.mma.xor.popc.m8n8k128"))
    d, a, b, c = (frags[name] for name in "dabc")
    bits = wmma.experimental
    quiet(wmma.bmma_sync, d, a, b, c, bits.bmmaBitOpXOR, target="sm_75")
    quiet(wmma.bmma_sync, d, a, b, c, bits.bmmaBitOpAND, target="sm_80")
    quiet(wmma.bmma_sync, d, a, b, c, bits.bmmaBitOpAND, target="sm_90")
    with pytest.raises(
        fm.errors.UnsupportedTarget, match=r"bmmaBitOpAND needs sm_80\+"
    ):
        wmma.bmma_sync(d, a, b, c, bits.bmmaBitOpAND, target="sm_75")
    with pytest.raises(
        fm.errors.UnsupportedTarget, match=r"bmmaBitOpXOR needs sm_75\+"
    ):
        wmma.bmma_sync(d, a, b, c, bits.bmmaBitOpXOR, target="sm_72")


@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100", "sm_120a"])
def test_deprecation_is_said_when_the_target_is_named(target):
    bits = wmma.experimental
    frags, _ = operands(fm.find("wmma.mma.xor.popc.m8n8k128"))
    b1 = [frags[name] for name in "dabc"]
    with pytest.warns(wmma.DeprecatedVariant, match="b1 with bmmaBitOpXOR") as said:
        wmma.bmma_sync(*b1, bits.bmmaBitOpXOR, target=target)
    assert said[0].filename == __file__
    quiet(wmma.bmma_sync, *b1, bits.bmmaBitOpAND, target=target)
    quiet(wmma.bmma_sync, *b1, bits.bmmaBitOpXOR)  # nobody named sm_90
    for of in ("u4", "s4"):
        frags, _ = operands(fm.find(f"wmma.mma.m8n8k32.{of}.{of}"))
        four = [frags[name] for name in "dabc"]
        with pytest.warns(wmma.DeprecatedVariant, match=f"precision::{of}"):
            wmma.mma_sync(*four, target=target)
        with wmma.target(target), pytest.warns(wmma.DeprecatedVariant):
            wmma.mma_sync(*four)
        quiet(wmma.mma_sync, *four)
        quiet(wmma.mma_sync, *four, target="sm_80")
    assert issubclass(wmma.DeprecatedVariant, DeprecationWarning)


def test_the_surrounding_target():
    frags, _ = operands(fm.find("wmma.mma.row.col.m16n16k8.tf32"))
    d, a, b, c = (frags[name] for name in "dabc")
    with wmma.target("sm_75"):
        with pytest.raises(fm.errors.UnsupportedTarget, match="given sm_75"):
            wmma.mma_sync(d, a, b, c)
        wmma.mma_sync(d, a, b, c, target="sm_80")
        with wmma.target("sm_80"):
            wmma.mma_sync(d, a, b, c)
        with pytest.raises(fm.errors.UnsupportedTarget):
            wmma.load_matrix_sync(a, np.zeros(128, np.float32), 8)
    wmma.mma_sync(d, a, b, c)
    with pytest.raises(fm.errors.UnsupportedTarget, match="did you mean sm_90"):
        wmma.target("sm_91")
    with pytest.raises(fm.errors.UnsupportedTarget, match="ampere is sm_80, sm_86"):
        wmma.mma_sync(d, a, b, c, target="ampere")
    wmma.mma_sync(d, a, b, c, target="hopper")
    with pytest.raises(fm.Error, match="rules must be either, guide or ptx"):
        wmma.target("sm_90", rules="none")


def test_a_target_is_of_its_thread():
    seen = []

    def other():
        c = wmma.fragment(wmma.accumulator, 8, 8, 4, "f64")
        seen.append(c.layout().observed)

    with wmma.target("sm_80"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == ["sm_90 (H200)"]
