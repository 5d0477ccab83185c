"""The kernel that packs activations: its PTX, run here, before the emulation.

And the emulation before the functions that users have: ``fm.sparse`` and ``fm.quant``.
"""

from functools import cache

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_ptx
from fragmenta.hopper.kernels import activate as acts
from fragmenta.hopper.kernels.config import ACTIVATIONS
from fragmenta.hopper.kernels.packing import packed_shape
from fragmenta.kernels import Kernel, unpack
from tests.thinning import THOROUGH

GIVEN = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}
KINDS = [(given, name) for given in GIVEN for name in ACTIVATIONS]
SOME = KINDS if THOROUGH else [("bf16", "relu2"), ("f16", "none"), ("f16", "relu")]


@cache
def text(given, activation, held):
    return to_ptx(acts.activate_source(given, activation, held), "sm_90a")


def launched(x, given, activation, change=None, **options):
    """Packed bytes, and scales as words; the launch is watched for hazards."""
    rows, columns = x.shape
    width = 2 * columns
    room = np.full((rows, -(-width // 16) * 16), 0xFF, np.uint8)  # NaN, if read
    room[:, :width] = x.view(np.uint8)
    packed = np.full(packed_shape("e4m3", rows, columns), 0xA5, np.uint8)
    scales = np.zeros(rows, np.float32)
    written = text(given, activation, acts.held_slabs(columns))
    if change is not None:
        assert change[0] in written
        written = written.replace(*change)
    kernel = ptx.parse(written).kernels[acts.entry_for(columns)]
    arguments = [room, room.shape[1], rows, columns, packed, scales]
    blocks = acts.blocks_for(rows)
    result = kernel.launch(blocks, acts.THREADS, arguments, **options)
    return packed, scales.view(np.uint32), result.problems


def compare(x, given, activation, **options):
    packed, scales, problems = launched(x, given, activation, **options)
    assert not problems
    wanted, wanted_scales = acts.emulate_activate(x, activation)
    np.testing.assert_array_equal(scales, wanted_scales.view(np.uint32))
    np.testing.assert_array_equal(packed, wanted.data)


def hostile(given, rows, columns, seed=3):
    """Any bits, few different numbers, tiny and huge ones, NaN of both signs."""
    rng = np.random.default_rng(seed)
    kind = np.dtype(GIVEN[given])
    x = rng.normal(size=(rows, columns)).astype(kind)
    x[rng.random(x.shape) < 0.3] = 0
    bits = rng.integers(0, 1 << 16, (rows, columns), np.uint16)
    most = 0x7F80 if given == "bf16" else 0x7C00
    special = [
        np.where(bits[0] & 0x7FFF < most, bits[0], 0).astype(np.uint16),
        bits[1],  # NaN and infinities
        rng.choice(np.uint16([0, 0x8000, 0x3C00, 0xBC00]), columns),  # ties
        rng.integers(0, 9, columns, np.uint16),  # subnormal numbers
        np.zeros(columns, np.uint16),
        np.full(columns, 0x8000, np.uint16),
    ]
    for at, each in enumerate(special):
        x[at] = each.view(kind)
    for at, word in enumerate((0xFFFF, 0x7FFF, 0xFF80, 0xFC00, 0x7F80, most - 1), 6):
        x[at, at] = np.uint16(word).view(kind)
    x[12, 1:] = 0
    for at, greatest in enumerate((1.9375, 1.75), 13):  # its square: 1.88 * 2
        x[at] = np.clip(x[at], -1, 1)
        x[at, 0] = greatest
    return x


@pytest.mark.long
@pytest.mark.parametrize("given, activation", SOME)
def test_every_bit(given, activation):
    compare(hostile(given, 21, 304), given, activation)
    compare(hostile(given, 15, 133), given, activation)


@pytest.mark.parametrize("schedule", ["eager", "lazy", 1, 2])
def test_every_schedule_leaves_the_same(schedule):
    x = hostile("bf16", 66, 520)
    compare(x, "bf16", "relu2", schedule=schedule)


def test_a_row_that_registers_do_not_hold():
    columns = 128 * 16 * 7 + 200
    x = hostile("bf16", 15, columns)
    x[0] = np.abs(x[0])
    x[0, -1] = 99  # the greatest one is read last
    compare(x, "bf16", "relu")


@pytest.mark.parametrize("columns", [1, 3, 4, 8, 9])
def test_narrow_rows(columns):
    x = hostile("f16", 15, 16)[:, :columns].copy()
    compare(x, "f16", "relu2")


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_rules_are_those_of_sparse_and_quant(activation):
    """Finite rows: prune, quantise with scales rounded up, compress."""
    x = np.random.default_rng(0).normal(size=(40, 256)).astype(np.float16)
    x[5] = 0
    x[x > 2] = 2  # ties
    numbers = acts.activated(x, activation)
    op = Kernel("e4m3").instruction
    pruned = fm.sparse.prune(op, numbers)
    packed, scales = acts.emulate_activate(x, activation)
    stored = unpack(packed)
    found = fm.sparse.decompress(op, stored).astype(np.float64) * scales[:, None]
    amax = np.abs(pruned).max(axis=1)
    powers = np.log2(scales)
    assert (powers == np.round(powers)).all()
    assert (amax <= 448 * scales).all()
    assert ((amax > 224 * scales) | (amax == 0)).all()
    for row in range(len(x)):
        wanted = (pruned[row] / scales[row]).astype(ml_dtypes.float8_e4m3fn)
        np.testing.assert_array_equal(found[row], wanted.astype(float) * scales[row])
    codes = fm.sparse.compress(op, (pruned != 0).astype(ml_dtypes.float8_e4m3fn))
    np.testing.assert_array_equal(stored.indices, codes.indices)


# ── mistakes are seen ───────────────────────────────────────────────────────


def test_a_missing_barrier_is_reported():
    x = hostile("bf16", 15, 520)
    barrier = next(
        line
        for line in text("bf16", "relu2", acts.held_slabs(x.shape[1])).splitlines()
        if "bar" in line
    )
    *_, problems = launched(x, "bf16", "relu2", (barrier, ""), watch="report")
    assert problems


@pytest.mark.parametrize(
    "change",
    [
        ("max.s16x2", "min.s16x2"),  # no relu
        ("cvt.rn.satfinite.e4m3x2", "cvt.rn.satfinite.e5m2x2"),
        ("max.u16x2", "min.u16x2"),  # negative NaN
        (", 1026;", ", 1025;"),  # which zero is stored
        (", 2097151;", ", 0;"),  # 1.75 in the scale
        ("30258, 21520", "21520, 30258"),  # whose codes a lane stores
    ],
)
def test_a_changed_step_changes_the_bytes(change):
    x = hostile("bf16", 21, 304)
    packed, scales, _ = launched(x, "bf16", "relu2", change, watch="report")
    wanted, wanted_scales = acts.emulate_activate(x, "relu2")
    same = (packed == wanted.data).all()
    assert not (same and (scales == wanted_scales.view(np.uint32)).all())


def test_what_is_refused():
    with pytest.raises(fm.errors.UnknownType, match="must be bf16 or f16; given f32"):
        acts.activate_source("f32", "relu", 1)
    with pytest.raises(fm.errors.BadCall, match="an activation must be none, relu or"):
        acts.activate_source("bf16", "silu", 1)
    with pytest.raises(fm.errors.ShapeError, match="must be a matrix with elements"):
        acts.emulate_activate(np.zeros((0, 4), np.float16), "relu")
    with pytest.raises(fm.errors.UnknownType, match="given float64"):
        acts.emulate_activate(np.zeros((1, 4)), "relu")
