"""Fused steps as chains of multiply-adds, against the same product by product."""

from unittest.mock import patch

import numpy as np
import pytest

from fragmenta.reference.arithmetic import floored, model, multiply
from fragmenta.reference.arithmetic.operands import Operands
from fragmenta.reference.arithmetic.packing import DEPTH, GROUP, SUMS

from .inputs import operands, raw, worth_compiling

F32, F16 = ("f32", "f32"), ("f16", "f16")
MX = {"kind": "mxf8f6f4", "scale": "ue8m0", "scale_vec": 1}
MODELS = {
    "f16": model("sm_90", "f16", "f16", *F32, 16),
    "f16, two steps": model("sm_80", "f16", "f16", *F32, 16),
    "f16 into f16": model("sm_90", "f16", "f16", *F16, 16),
    "bf16": model("sm_90", "bf16", "bf16", *F32, 16),
    "tf32": model("sm_90", "tf32", "tf32", *F32, 8),
    "e4m3, float32": model("sm_90a", "e4m3", "e4m3", *F32, 32, unit="wgmma"),
    "e4m3, 25 bits": model("sm_120", "e4m3", "e5m2", *F32, 32),
    "e4m3, c last": model("sm_90", "e4m3", "e4m3", *F32, 32),
    "scales": model("sm_120a", "e4m3", "e4m3", *F32, 32, **MX),
    "sparse": model("sm_90", "f16", "f16", *F32, 32, sparse=True),
    "sparse bf16": model("sm_90", "bf16", "bf16", *F32, 32, sparse=True),
    "sparse e4m3": model("sm_90a", "e4m3", "e4m3", *F32, 64, unit="wgmma", sparse=True),
}
SIZES = (
    (1, 1, 1, 1),
    (2, GROUP + 1, 9, 3),
    (1, 37, 24, 2),
    (1, 19, 47, 5),  # sparse: panels of sixteen columns, more of k than is packed
    (1, 5, 8, 40),
)
every_model = pytest.mark.parametrize("name", MODELS)


def both(a, b, c, how, more):
    """The result with the kernels for many products, and without."""
    found = []
    for products in (0, 1 << 62):
        with worth_compiling(products):
            found.append(multiply(a, b, c, how, **more))
    return found


@every_model
def test_no_size_changes_a_bit(name):
    """Also more of k than is packed at a time, and incomplete groups and panels."""
    how = MODELS[name]
    rng = np.random.default_rng(3)
    for kind in ("near", "zeros", "special"):
        for batch, rows, columns, chained in SIZES:
            more_k = 1 + DEPTH // how.k if chained == 40 else chained
            given = operands(rng, how, kind, batch, rows, columns, more_k)
            *matrices, more = given
            new, old = both(*matrices, how, more)
            assert np.array_equal(new, old), (kind, batch, rows, columns)


@pytest.mark.parametrize(("name", "columns"), [("bf16", 9), ("sparse", 24)])
def test_groups_of_another_size(name, columns):
    """As many sums at a time as with AVX-512, or as without it."""
    how = MODELS[name]
    *matrices, more = operands(np.random.default_rng(2), how, "near", 2, 11, columns, 3)
    with patch.object(floored, "SUMS", 96 - SUMS):
        new, old = both(*matrices, how, more)
    assert np.array_equal(new, old)


@every_model
def test_shared_operands(name):
    how = MODELS[name]
    a, b, c, more = operands(np.random.default_rng(4), how, "near", 3, 6, 10, 2)
    for shared in ("a", "b", "c", *more):
        every = {"a": a, "b": b, "c": c, **more}
        every[shared] = every[shared][:1]
        x, y, z = (every.pop(each) for each in "abc")
        new, old = both(x, y, z, how, every)
        assert np.array_equal(new, old), shared


def left(a, b, c, how, **more):
    """The blocks that are computed product by product."""
    given = Operands.check(how, a, b, c, **more)
    return floored.products(given)[1]


@every_model
def test_ordinary_numbers_leave_nothing(name):
    """Numbers around one, zeros among them: every block is computed here."""
    how = MODELS[name]
    for kind in ("near", "zeros"):
        a, b, c, more = operands(np.random.default_rng(5), how, kind, 2, 9, 17, 2)
        c = raw(np.random.default_rng(6), how.c, c.shape, "near")
        assert not left(a, b, c, how, **more)


def test_only_the_tile_with_a_nan_is_left():
    how = MODELS["f16"]
    a, b, c, _ = operands(np.random.default_rng(7), how, "near", 4, 16, 8, 1)
    a[2, 3, 5] = 0x7E00
    assert [block.tiles for block in left(a, b, c, how)] == [slice(2, 3)]
    new, old = both(a, b, c, how, {})
    assert np.array_equal(new, old)
    assert (new[2, 3] == 0x7FFFFFFF).all()


def test_an_exponent_far_below_the_row_s_is_left_where_it_decides():
    """The largest element of the row meets a zero; the others are clipped."""
    how = MODELS["bf16"]
    a, b = np.zeros((1, 1, 16), np.uint16), np.zeros((1, 16, 8), np.uint16)
    a[..., 0], a[..., 1] = 0x7E00, 0x0100  # 2**125 and 2**-125
    b[:, 1:] = 0x3F80
    c = np.zeros((1, 1, 8), np.uint32)
    assert left(a, b, c, how)
    new, old = both(a, b, c, how, {})
    assert np.array_equal(new, old)
    assert (new == 0x01000000).all()
    b[:, 0] = 0x3F80  # the largest one decides, and the other is cut off
    assert not left(a, b, c, how)
    new, old = both(a, b, c, how, {})
    assert np.array_equal(new, old)


@pytest.mark.parametrize("significand", [0x3C00, 0x3E00, 0x3FFF])
def test_sums_that_need_more_than_32_bits(significand):
    """All products have the same sign and the largest significand."""
    how = MODELS["f16"]
    a = np.full((1, 5, 64), significand, np.uint16)
    b = np.full((1, 64, 8), significand, np.uint16)
    b[..., 4:] ^= 0x8000
    c = np.full((1, 5, 8), 0x40490FDB, np.uint32)
    new, old = both(a, b, c, how, {})
    assert np.array_equal(new, old)


def test_the_rounding_mode_is_put_back():
    how = MODELS["f16"]
    a, b, c, _ = operands(np.random.default_rng(8), how, "near", 1, 8, 8, 1)
    with worth_compiling(0):
        multiply(a, b, c, how)
    tenth = np.float32(1) / np.arange(1, 40, dtype=np.float32)
    exact = 1 / np.arange(1, 40, dtype=np.float64)
    assert np.array_equal(tenth, exact.astype(np.float32))
    assert (tenth > exact).any()  # toward zero, none would be


def test_few_products_are_not_worth_a_compilation():
    how = MODELS["bf16"]
    a, b, c, _ = operands(np.random.default_rng(9), how, "near", 1, 16, 8, 1)
    with worth_compiling(1 << 20), patch.object(floored, "products") as called:
        multiply(a, b, c, how)
    called.assert_not_called()
    with worth_compiling(1 << 20):
        floored._COMPILED.add(how)  # somebody had many products
        given = Operands.check(how, a, b, c)
        assert floored.suits(given)
