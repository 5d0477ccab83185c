"""The elements and scales of mxf4 and mxf4nvf4, as the kernels take them."""

import numpy as np
import pytest

from fragmenta.reference.arithmetic import dispatch, grouped, model
from fragmenta.reference.arithmetic.constants import SCALE_PARTS, TWICE

CODES = np.arange(16, dtype=np.uint8)


def elements(shape):
    """Random e2m1 numbers, half of them zeros, some of them negative zeros."""
    rng = np.random.default_rng(0)
    some = rng.choice(CODES, shape)
    return np.where(rng.random(shape) < 0.5, some & 8, some).astype(np.uint8)


def test_every_code_of_e2m1():
    values, masks = dispatch._e2m1("A", CODES[None, None], grouped.unpack_rows)
    assert np.array_equal(values[0, 0], TWICE)
    assert masks.tolist() == [0b1111111011111110]


def test_masks_of_rows_and_columns_are_alike():
    """A row of A and the same elements as a column of B have the same masks."""
    a = elements((3, 8, 64))
    values, masks = dispatch._e2m1("A", a, grouped.unpack_rows)
    bits = np.asarray(a & 7 != 0).reshape(3, 8, 4, 16)
    wanted = (bits << np.arange(16)).sum(-1)
    assert np.array_equal(masks.reshape(wanted.shape), wanted)
    assert np.array_equal(values, TWICE[a])
    b = np.ascontiguousarray(a.swapaxes(1, 2))
    values, masks = dispatch._e2m1("B", b, grouped.unpack_columns)
    assert np.array_equal(masks.reshape(3, 4, 8), wanted.swapaxes(1, 2))
    assert np.array_equal(values, TWICE[b])


@pytest.mark.parametrize("scale", SCALE_PARTS)
def test_every_scale(scale):
    about = {"kind": "mxf4nvf4", "scale": scale}
    vec = 4 if scale == "ue4m3" else 2
    how = model("sm_120a", *["e2m1"] * 2, *["f32"] * 2, 64, **about, scale_vec=vec)
    every = np.arange(256, dtype=np.uint8)[None, None]
    found = dispatch._scale_parts("A", every, how)
    for mine, wanted in zip(found, SCALE_PARTS[scale], strict=True):
        assert np.array_equal(mine[0, 0], wanted, equal_nan=True)
