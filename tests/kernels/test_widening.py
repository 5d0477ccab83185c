"""4-bit integers become 8 or 16 bits: the kernel, run by the engine, and its rule."""

import os
from functools import cache

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_ptx
from fragmenta.errors import BadCall, Error
from fragmenta.hopper.kernels import widening
from fragmenta.hopper.kernels.four_bits import (
    SCALE_TYPES,
    Integers,
    pack_integers,
    unpack_integers,
)
from fragmenta.hopper.kernels.packing import packed_shape, unpack
from fragmenta.hopper.kernels.source import TARGET
from tests.thinning import some

KINDS = [
    (Integers(b, group, scales), to)
    for b, group, scales, to in (
        ("bf16", 128, "f16", "bf16"),
        ("e4m3", 64, "bf16", "e4m3"),
        ("bf16", 32, "bf16", "f16"),
        ("e4m3", 0, "f16", "e4m3"),
        ("bf16", 0, "f16", "bf16"),
        ("e4m3", 128, "f16", "e4m3"),
        ("bf16", 64, "f16", "f16"),
    )
]
SIZES = [(70, 190), (300, 128), (64, 388)]
COMPLETE = bool(os.environ.get("FRAGMENTA_HOPPER"))
SCHEDULES = ("eager", "lazy", 1, 2) if COMPLETE else ("lazy",)


@cache
def kernel(integers, to):
    try:
        text = to_ptx(widening.widen_source(integers, to), TARGET, compiler="nvrtc")
    except Error:
        pytest.skip("needs NVRTC")
    return ptx.parse(text).kernels["widen"]


def packed(integers, m, k, seed=0):
    """Random integers at random places, with scales of many sizes."""
    rng = np.random.default_rng(seed)
    op = fm.wgmma("m64n8k64", a="s8", d="s32", sp="sp")
    wide = -(-k // 4) * 4
    drawn = rng.integers(-8, 8, (m, wide))
    drawn[:, k:] = 0
    sp = fm.sparse.compress(op, fm.sparse.prune(op, drawn.astype(np.int8)))
    sp = fm.sparse.Compressed(sp.values, sp.indices, sp.granularity, k)
    if not integers.group:
        return pack_integers(sp, b=integers.b)
    scales = rng.uniform(0.5, 1, (m, -(-k // integers.group)))
    scales = scales * 2.0 ** rng.integers(-12, 3, (m, 1))
    scales = scales.astype(np.float32).astype(SCALE_TYPES[integers.scales])
    return pack_integers(sp, scales, b=integers.b, group=integers.group)


def powers_of(made):
    scales = unpack_integers(made)[1]
    return None if scales is None else widening.row_powers(scales)


@pytest.mark.long
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("integers", "to"), KINDS, ids=str)
def test_the_kernel_leaves_the_bytes_of_the_rule(integers, to, schedule):
    for m, k in SIZES if COMPLETE else some(SIZES, 2):
        made = packed(integers, m, k)
        powers = powers_of(made)
        wanted = widening.widened(made, to, powers).data
        left = np.full(wanted.shape, 0xA5, np.uint8)
        given = [
            made.data,
            0 if powers is None else powers,
            left,
            m,
            packed_shape(to, m, k)[1],
        ]
        result = kernel(integers, to).launch(
            widening.widen_grid(integers, m, k),
            widening.THREADS,
            given,
            schedule=schedule,
            watch="report",
        )
        assert left.tobytes() == wanted.tobytes()
        assert all(x.severity == "info" for x in result.problems)


@pytest.mark.parametrize(("integers", "to"), KINDS, ids=str)
def test_each_value_is_rounded_once(integers, to):
    """Against integer x scale / power of float64."""
    made = packed(integers, 70, 190)
    found, scales = unpack_integers(made)
    powers = powers_of(made)
    wide = unpack(widening.widened(made, to, powers))
    assert (wide.indices == found.indices).all()
    exact = found.values.astype(np.float64)
    if scales is not None:
        column = np.arange(exact.shape[1]) * 2 // integers.group
        exact = exact * scales.astype(np.float64)[:, column] / powers[:, None]
    assert np.abs(exact).max() <= 448
    values = wide.values.astype(np.float64)
    step = 2.0 ** -{"bf16": 8, "f16": 11, "e4m3": 4}[to]
    least = {"bf16": 0, "f16": 2.0**-25, "e4m3": 2.0**-10}[to]
    assert (np.abs(values - exact) <= np.maximum(np.abs(exact) * step, least)).all()
    if not integers.group:
        assert (values == exact).all()


def test_powers_of_rows():
    scales = np.float16([[1, 0.5], [56, 1], [56.03, 1], [0, 0], [65504, 1]])
    powers = widening.row_powers(scales)
    assert (np.log2(powers) % 1 == 0).all()
    largest = 8 * np.abs(scales.astype(np.float64)).max(axis=1) / powers
    assert (largest <= 448).all()
    assert (largest[[0, 1, 2, 4]] > 224).all()  # no larger than needed
    assert powers[3] == 1


@pytest.mark.parametrize("group", [32, 64, 128])
def test_scales_without_their_integers(group):
    made = packed(Integers("bf16", group), 300, 190)
    assert (widening.row_scales(made) == unpack_integers(made)[1]).all()


def test_what_they_do_not_become():
    made = packed(Integers("e4m3", 0), 8, 16)
    with pytest.raises(BadCall, match="s4-row-e4m3 become e4m3; given bf16"):
        widening.widened(made, "bf16")
