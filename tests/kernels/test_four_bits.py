"""4-bit integers are packed, unpacked and multiplied as they are."""

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta.hopper.kernels.emulate import Epilogue, emulate, fused
from fragmenta.hopper.kernels.four_bits import (
    INTEGERS,
    SCALE_TYPES,
    Integers,
    numbers_of,
    quantize_groups,
)
from fragmenta.kernels import Kernel, Tile, pack_integers, unpack_integers
from fragmenta.reference.sparse.compression import Compressed


def drawn(format: Integers, rows: int, columns: int, seed: int = 0):
    """Integers with codes, and scales."""
    rng = np.random.default_rng(seed)
    op = format.kernel().instruction
    dense = rng.integers(-8, 8, (rows, columns)).astype(op.types["a"].storage)
    sp = fm.sparse.compress(op, fm.sparse.prune(op, dense, pad=True), pad=True)
    values = sp.values.astype(np.float32).astype(np.int8)
    sp = Compressed(values, sp.indices, sp.granularity, sp.width)
    if not format.group:
        return sp, None
    scales = rng.normal(size=(rows, -(-columns // format.group)))
    return sp, scales.astype(np.float32).astype(SCALE_TYPES[format.scales])


def dense_of(sp, scales, group):
    values = numbers_of(
        sp, np.ones((len(sp.values), 1)) if scales is None else scales, group
    )
    dense = np.zeros((len(values), 4 * sp.indices.shape[1]), np.float32)
    np.put_along_axis(dense, sp.columns(), values, axis=1)
    return dense[:, : sp.width]


@pytest.mark.parametrize("name", INTEGERS)
def test_what_is_packed_is_unpacked(name):
    format = Integers.named(name)
    assert format.name == name
    sp, scales = drawn(format, 300, 200)
    packed = pack_integers(sp, scales, b=format.b, group=format.group)
    assert packed.data.shape == format.packed_shape(300, 200)
    assert packed.scales == format.scales
    again, factors = unpack_integers(packed)
    assert (again.values == sp.values).all()
    assert (again.indices == sp.indices).all()
    assert (factors is None) == (scales is None)
    assert scales is None or (factors == scales).all()
    assert (format.empty_block() >= 0).all()


def test_three_bits_for_a_weight():
    format = Integers()
    size = np.prod(format.packed_shape(4096, 4096))
    assert 8 * size / 4096**2 == 3 + 16 / 128


@pytest.mark.parametrize("name", ["s4-128", "s4-32-bf16", "s4-64-e4m3", "s4-row-e4m3"])
def test_the_product_is_that_of_the_numbers(name):
    format = Integers.named(name)
    sp, scales = drawn(format, 70, 300)
    rng = np.random.default_rng(1)
    kind = format.kernel().instruction.types["b"].storage
    b = rng.integers(-8, 9, (5, 300)).astype(kind)  # so that sums are exact
    kernel = Kernel(
        "s4", format.b, tile=Tile(64, 8), group=format.group, scales=format.scales
    )
    packed = pack_integers(sp, scales, b=format.b, group=format.group)
    found = emulate(kernel, packed, b)
    wanted = (
        dense_of(sp, scales, format.group).astype(np.float64) @ b.astype(np.float64).T
    )
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    if not format.group:  # the scale of a row comes later
        assert (found == wanted).all()
        rows = rng.normal(size=70).astype(np.float32)
        scaled = Kernel("s4", format.b, tile=Tile(64, 8), scaled=True)
        told = emulate(scaled, packed, b, Epilogue(scale_m=rows))
        assert (told == found * rows[:, None]).all()


def test_the_order_of_the_sum():
    """Groups are added in ascending k, each in one rounding; parts of k after that."""
    sp, scales = drawn(Integers(), 64, 1280)
    b = np.random.default_rng(2).normal(size=(3, 1280)).astype(ml_dtypes.bfloat16)
    kernel = Kernel("s4", tile=Tile(64, 8, split=2), group=128)
    found = emulate(kernel, pack_integers(sp, scales, group=128), b)
    op = kernel.instruction
    ends = [first for first, _ in kernel.parts(1280)]
    totals = []
    whole = dense_of(sp, None, 0)
    for at in range(0, 1280, 128):
        if at in ends:
            totals.append(np.zeros((64, 3), np.float32))
        part = fm.sparse.compress(
            op, whole[:, at : at + 128].astype(ml_dtypes.bfloat16)
        )
        sums = fm.matmul(op, part, b[:, at : at + 128].T)
        totals[-1] = fused(
            sums, scales[:, at // 128, None].astype(np.float32), totals[-1]
        )
    assert len(totals) == 2
    assert (found == totals[0] + totals[1]).all()


def test_afused_sum_is_rounded_once():
    x = np.float32([1 + 2**-23, 2**-30, 1e30, np.inf, 3.0])
    y = np.float32([1 - 2**-23, 2**-30, 1e30, 0.0, 2.0])
    z = np.float32([-1, 1, 0, 1, -np.inf])
    found = fused(x, y, z)
    assert found[0] == np.float32(-(2.0**-46))
    assert found[1] == 1
    assert found[2] == np.inf
    assert np.isnan(found[3])
    assert found[4] == -np.inf
    # Half way between two f32 but for one bit far below.
    assert fused(np.float32([2**-40]), np.float32([1.0]), np.float32([1 + 2**-23])) == (
        np.float32(1 + 2**-23)
    )
    half = np.float32([2**-24 * (1 + 2**-23)])
    assert fused(half, np.float32([1.0]), np.float32([1.0])) == np.float32(1 + 2**-23)
    assert fused(np.float32([2**-24]), np.float32([1.0]), np.float32([1.0])) == 1


def test_groups_are_quantised_by_their_own_scales():
    op = Integers().kernel().instruction
    rows = np.zeros((1, 256), np.float32)
    rows[0, [0, 1, 128, 129]] = 7.0, 3.6, 0.07, -0.021
    sp = fm.sparse.compress(op, rows.astype(ml_dtypes.bfloat16))
    made, scales = quantize_groups(sp, 128)
    assert scales.dtype == np.float16
    assert made.values[0, [0, 1, 64, 65]].tolist() == [7, 4, 7, -2]
    zero, ones = quantize_groups(
        Compressed(sp.values * 0, sp.indices, sp.granularity), 0
    )
    assert not zero.values.any()
    assert (ones == 1).all()


@pytest.mark.parametrize(
    "options, said",
    [
        ({"a": "s4", "b": "s8"}, "multiplied with bf16, f16 or e4m3"),
        ({"a": "s4", "sparse": False}, "a dense one and bf16"),
        ({"a": "s4", "group": 48}, "for 32, 64 or 128 columns"),
        ({"a": "s4", "b": "e4m3", "group": 32}, "shorter than an instruction"),
        ({"a": "bf16", "group": 64}, "groups with a scale are for s4"),
        ({"a": "s4", "tile": Tile(256, 128)}, "too many sums"),
        ({"a": "s4", "tile": Tile(128, 64, turns=True)}, "or turns"),
        ({"a": "s4", "promote": True}, "promotion is only for"),
    ],
)
def test_kernels_that_are_not_there_are_refused(options, said):
    with pytest.raises(fm.Error, match=said):
        Kernel(**options)


def test_what_cannot_be_packed_is_refused():
    sp, scales = drawn(Integers(), 64, 128)
    wide = Compressed(sp.values * 0 + 9, sp.indices, sp.granularity)
    for given, factors, group, said in [
        (wide, None, 0, "-8 to 7; given 9 to 9"),
        (sp, scales[:, :0], 128, r"scales of shape \(64, 1\); given \(64, 0\)"),
        (sp, None, 64, "given None"),
        (sp, scales.astype(np.float32), 128, "float16 or bfloat16; given float32"),
    ]:
        with pytest.raises(fm.Error, match=said):
            pack_integers(given, factors, group=group)
