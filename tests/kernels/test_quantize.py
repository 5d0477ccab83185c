"""The kernel that quantises rows: its PTX, run here, before ``fm.quant.quantize``."""

from functools import cache

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.cuda.tools.compiler import to_ptx
from fragmenta.hopper.kernels import quantize as rows_of
from fragmenta.reference.arithmetic.rounding import largest_element, round_elements
from fragmenta.reference.registers.dtype import dtype
from tests.thinning import THOROUGH

GIVEN = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
PAIRS = [(given, of) for given in GIVEN for of in rows_of.ELEMENTS]


@cache
def kernels(given, of):
    text = to_ptx(rows_of.quantize_source(given, of), "sm_90a")
    return ptx.parse(text).kernels


def launched(x, given, of, scale=None):
    """Elements as bytes, and scales as words; the launch is watched for hazards."""
    rows, columns = x.shape
    width = columns * x.itemsize
    room = np.full((rows, -(-width // 16) * 16), 0xFF, np.uint8)  # NaN, if read
    room[:, :width] = x.view(np.uint8)
    pitch = -(-columns // rows_of.ROOM) * rows_of.ROOM
    values = np.full((rows, pitch), 0xA5, np.uint8)
    scales = np.zeros(rows, np.float32)
    arguments = [room, room.shape[1], columns, values, pitch, scales]
    name = "quantize_rows"
    if scale is not None:
        arguments.append(np.array([scale], np.float32))
        name += "_by"
    result = kernels(given, of)[name].launch(rows, rows_of.THREADS, arguments)
    assert not result.problems
    return values[:, :columns], scales.view(np.uint32)


def compare(x, given, of, scale=None):
    values, scales = launched(x, given, of, scale)
    wanted, wanted_scales = rows_of.emulate_quantize(x, of, scale)
    np.testing.assert_array_equal(scales, wanted_scales.view(np.uint32))
    np.testing.assert_array_equal(values, wanted.view(np.uint8))


def ties(of, scale, count, rng):
    """Numbers at and beside those whose quotients are half way between elements."""
    every = np.arange(128) + 0.5
    if not of.is_integer:
        codes = np.arange(127, dtype=np.uint8).view(of.storage).astype(np.float64)
        every = (codes[1:] + codes[:-1]) / 2
    most = np.finfo(np.float32).max
    near = np.minimum(rng.choice(every, count) * np.float64(scale), most)
    near = near.astype(np.float32)
    steps = rng.integers(-2, 3, count)
    return (near.view(np.int32) + steps.astype(np.int32)).view(np.float32)


def hostile(given, of, columns=501):
    """Rows of all kinds: any bits, ties, tiny and huge ones, zeros, NaN, infinities."""
    rng = np.random.default_rng(7)
    kind = np.dtype(GIVEN[given])
    x = rng.normal(size=(11, columns)).astype(kind)
    words = f"u{kind.itemsize}"
    any_bits = rng.integers(0, 1 << 8 * kind.itemsize, (2, columns), words).view(kind)
    with np.errstate(invalid="ignore"):  # signalling NaN
        x[0] = np.where(np.isfinite(any_bits[0]), any_bits[0], kind.type(0))
    x[1] = any_bits[1]  # NaN and infinities
    for at, amax in ((2, 3.0), (3, 0.7)):
        most = kind.type(amax)
        scale = np.float32(most) / np.float32(largest_element(of))
        drawn = ties(of, scale, columns, rng).astype(kind)
        x[at] = np.clip(drawn, -most, most)
        x[at, ::3] *= kind.type(-1)
        x[at, 5] = most
    tiny, huge = ml_dtypes.finfo(kind).smallest_subnormal, ml_dtypes.finfo(kind).max
    x[4] = (rng.integers(-300, 300, columns) * np.float64(tiny)).astype(kind)
    x[5] = (rng.uniform(-1, 1, columns) * np.float64(huge)).astype(kind)
    x[6] = 0
    x[6, ::2] = kind.type(-0.0)
    x[7, -1] = kind.type(np.inf)
    x[8, 0] = kind.type(np.nan)
    x[9, :-1] = 0  # the only one is the last one
    x[10] = (rng.integers(-99, 99, columns) * np.float64(tiny)).astype(kind)
    return x


@pytest.mark.parametrize(
    "given, of", PAIRS if THOROUGH else [PAIRS[0], PAIRS[3], PAIRS[4]]
)
def test_every_bit_of_a_row_with_its_own_scale(given, of):
    compare(hostile(given, dtype(of)), given, of)


@pytest.mark.parametrize("given, of", [PAIRS[1], PAIRS[2], PAIRS[5]])
def test_every_bit_with_a_known_scale(given, of):
    compare(hostile(given, dtype(of), 203), given, of, 3 / 448)


@pytest.mark.parametrize(
    "scale", [2.0**-149, 3e-42, 2.0**-61, 2.0**101, 3.4e38, 0.0, -1.0, np.inf, np.nan]
)
def test_scales_of_all_sizes(scale):
    x = hostile("f32", dtype("e4m3"), 131)
    if 0 < scale < np.inf:
        x[3] = ties(dtype("e4m3"), scale, 131, np.random.default_rng(1))
    compare(x, "f32", "e4m3", scale)


def test_a_row_that_registers_do_not_hold():
    x = np.random.default_rng(0).normal(size=(2, 5 * 2048 + 9))
    x[1, -2] = 99
    compare(x.astype(ml_dtypes.bfloat16), "bf16", "e4m3")


@pytest.mark.parametrize("columns", [1, 7, 8, 9])
def test_narrow_rows(columns):
    compare(hostile("f16", dtype("s8"), 17)[:, :columns].copy(), "f16", "s8")


def test_the_rule_is_that_of_quantize_and_not_two_roundings():
    """27/64 / (9/448) is 21.0000003 with the scale in f32, and 21, a tie, in f32."""
    x = np.float32([[9.0, 27 / 64]])
    values, scales = launched(x, "f32", "e4m3")
    assert values.view(ml_dtypes.float8_e4m3fn).astype(float).tolist() == [[448, 22]]
    assert x[0, 1] / scales.view(np.float32)[0] == np.float32(21)
    drawn = hostile("f32", dtype("e4m3"))[2:4]
    quotients = drawn / fm.quant.quantize("e4m3", drawn).scales  # rounded to f32
    twice = round_elements(quotients.astype(np.float64), dtype("e4m3"))
    once = fm.quant.quantize("e4m3", drawn).values.astype(np.float64)
    assert (twice != once).any()  # the test above would see the difference


def test_what_cannot_be_quantised_is_refused():
    with pytest.raises(
        fm.errors.UnknownType, match="rows of f32, f16 or bf16 are quantised"
    ):
        rows_of.quantize_source("e5m2", "e4m3")
    with pytest.raises(fm.errors.ShapeError, match="must be a matrix with columns"):
        rows_of.emulate_quantize(np.ones(3), "s8")
    values, scales = rows_of.emulate_quantize(np.ones((0, 3)), "s8", 1.0)
    assert values.shape == (0, 3)
    assert scales.shape == (0,)
