"""Weights of checkpoints are read as their formats define them."""

import numpy as np
import pytest

import fragmenta as fm

HALF = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
TF32 = fm.mma("m16n8k16", a="tf32", d="f32", sp="sp::ordered_metadata")
S8 = fm.mma("m16n8k64", a="s8", sp="sp::ordered_metadata")
S4 = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
OPS = [HALF, TF32, S8, S4]


def drawn(op, rows, columns, seed=0):
    """A random sparse matrix of integers."""
    rng = np.random.default_rng(seed)
    return fm.sparse.prune(op, rng.integers(-7, 8, (rows, columns)))


@pytest.mark.parametrize("op", OPS, ids=str)
@pytest.mark.parametrize("columns", [8, 40, 64])
def test_the_bitmask_has_a_bit_for_each_stored_column(op, columns):
    sp = fm.sparse.compress(op, drawn(op, 5, columns))
    stored = np.zeros((5, columns), bool)
    np.put_along_axis(stored, sp.columns(), True, axis=1)
    mask = fm.sparse.to_bitmask(sp)
    assert (mask == np.packbits(stored, axis=1, bitorder="little")).all()
    back = fm.sparse.from_bitmask(op, sp.values, mask, columns)
    assert (back.indices == sp.indices).all()
    assert (back.values == sp.values).all()


def test_half_a_byte_may_be_left():
    sp = fm.sparse.compress(HALF, drawn(HALF, 3, 12))
    mask = fm.sparse.to_bitmask(sp)
    assert mask.shape == (3, 2)
    assert not (mask[:, 1] >> 4).any()
    assert fm.sparse.from_bitmask(HALF, sp.values, mask, 12).shape == (3, 12)
    mask[1, 1] |= 0x10
    with pytest.raises(fm.errors.BadMetadata, match=r"12 columns.*bits beyond"):
        fm.sparse.from_bitmask(HALF, sp.values, mask, 12)


@pytest.mark.parametrize("bits", [b for b in range(16) if b.bit_count() != 2])
def test_other_counts_than_two_are_refused(bits):
    mask = np.full((2, 1), 0x33, np.uint8)
    mask[1, 0] = 0x03 | bits << 4
    with pytest.raises(
        fm.errors.BadMetadata, match=r"row 1, columns 4 to 7.*1 of 4 chunks"
    ):
        fm.sparse.from_bitmask(HALF, np.ones((2, 4), np.float16), mask)


@pytest.mark.parametrize(
    ("values", "mask", "width", "told"),
    [
        (np.ones((1, 4)), np.zeros((1, 1), np.int8), -1, "matrix of uint8"),
        (np.ones((1, 4)), np.zeros(1, np.uint8), -1, "matrix of uint8"),
        (np.ones((1, 4)), np.full((1, 1), 0x33, np.uint8), 6, "multiple of 4"),
        (np.ones((1, 4)), np.full((1, 1), 0x33, np.uint8), 12, "at most 8"),
        (np.ones((1, 4)), np.full((1, 2), 0x33, np.uint8), 8, "given 8"),
        (np.ones((1, 3)), np.full((1, 1), 0x33, np.uint8), 8, "2 values for each code"),
        (np.ones((2, 4)), np.full((1, 1), 0x33, np.uint8), 8, "2 values for each code"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(values, mask, width, told):
    with pytest.raises(fm.errors.ShapeError, match=told):
        fm.sparse.from_bitmask(HALF, values.astype(np.float16), mask, width)


def test_a_padded_matrix_has_no_bitmask():
    with pytest.raises(fm.errors.ShapeError, match="multiples of 4 columns; given 6"):
        fm.sparse.to_bitmask(
            fm.sparse.compress(HALF, drawn(HALF, 2, 8)[:, :6], pad=True)
        )
