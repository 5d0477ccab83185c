"""Are weights of checkpoints read as their formats define them?"""

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
    return fm.prune(rng.integers(-7, 8, (rows, columns)), op)


@pytest.mark.parametrize("op", OPS, ids=str)
@pytest.mark.parametrize("columns", [8, 40, 64])
def test_the_bitmask_has_a_bit_for_each_stored_column(op, columns):
    sp = fm.compress(drawn(op, 5, columns), op)
    stored = np.zeros((5, columns), bool)
    np.put_along_axis(stored, sp.columns(), True, axis=1)
    mask = fm.to_bitmask(sp)
    assert (mask == np.packbits(stored, axis=1, bitorder="little")).all()
    back = fm.from_bitmask(sp.values, mask, op, columns)
    assert (back.indices == sp.indices).all()
    assert (back.values == sp.values).all()


def test_half_a_byte_may_be_left():
    sp = fm.compress(drawn(HALF, 3, 12), HALF)
    mask = fm.to_bitmask(sp)
    assert mask.shape == (3, 2)
    assert not (mask[:, 1] >> 4).any()
    assert fm.from_bitmask(sp.values, mask, HALF, 12).shape == (3, 12)
    mask[1, 1] |= 0x10
    with pytest.raises(fm.BadMetadata, match=r"12 columns.*bits beyond"):
        fm.from_bitmask(sp.values, mask, HALF, 12)


@pytest.mark.parametrize("bits", [b for b in range(16) if b.bit_count() != 2])
def test_other_counts_than_two_are_refused(bits):
    mask = np.full((2, 1), 0x33, np.uint8)
    mask[1, 0] = 0x03 | bits << 4
    with pytest.raises(fm.BadMetadata, match=r"row 1, columns 4 to 7.*1 of 4 chunks"):
        fm.from_bitmask(np.ones((2, 4), np.float16), mask, HALF)


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
    with pytest.raises(fm.ShapeError, match=told):
        fm.from_bitmask(values.astype(np.float16), mask, HALF, width)


def test_a_padded_matrix_has_no_bitmask():
    with pytest.raises(fm.ShapeError, match="multiples of 4 columns; given 6"):
        fm.to_bitmask(fm.compress(drawn(HALF, 2, 8)[:, :6], HALF, pad=True))


# ── Marlin ──────────────────────────────────────────────────────────────────

# The integers of a word, lowest first: which of the lane's four stored inputs, and
# whether it is of the output 4 further on.
ORDER = {
    4: [(0, 0), (2, 0), (0, 1), (2, 1), (1, 0), (3, 0), (1, 1), (3, 1)],
    8: [(0, 0), (2, 0), (1, 0), (3, 0), (0, 1), (2, 1), (1, 1), (3, 1)],
}
SCALES = [0, 4, 1, 5, 2, 6, 3, 7]  # the output of each place among eight


def marlin(integers, scales, bits):
    """Stored integers (out, in / 2) as the kernel's lanes load them, word by word."""
    out, stored = integers.shape
    words = np.zeros((stored // 16, out // 64, 32, 4, bits), np.uint32)
    for k, n, lane, j in np.ndindex(words.shape[:-1]):
        row, pair = divmod(lane, 4)
        for place, (which, far) in enumerate(ORDER[bits]):
            column = 2 * pair + (which & 1) + 8 * (which >> 1)
            value = integers[64 * n + 8 * row + 4 * far + j, 16 * k + column]
            word, at = divmod(place, 32 // bits)
            words[k, n, lane, j, word] |= int(value) + (1 << bits - 1) << bits * at
    words = words[..., : bits // 4].reshape(stored // 16, -1).view(np.int32)
    if scales.shape[1] > 1:
        places = np.add.outer(8 * np.arange(out // 8), SCALES).ravel()
        scales = scales[places]
    return words, np.ascontiguousarray(scales.T)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("columns", [64, 384])
def test_marlin_is_read(bits, columns):
    rng = np.random.default_rng(bits)
    low = 1 << bits - 1
    dense = fm.prune(rng.integers(-low, low, (128, columns)), S8).astype(np.int8)
    sp = fm.compress(dense, S8)
    groups = columns // 128 if columns > 128 else 1
    scales = rng.uniform(0.5, 2, (128, groups)).astype(np.float16)
    words, packed = marlin(sp.values, scales, bits)
    half = fm.compress(dense.astype(np.float16), HALF)
    meta = fm.to_sparse_marlin(half, HALF).meta.reshape(columns // 32, 256)
    found = fm.from_marlin_24(words, packed, meta)
    assert found.bits == bits
    assert (fm.decompress(found.compressed, S8) == dense).all()
    assert (found.scales == scales).all()


def test_marlin_arrays_that_do_not_fit_are_refused():
    words, meta = np.zeros((4, 128), np.int32), np.full((4, 128), 0x4444, np.int16)
    scales = np.ones((1, 64), np.float16)
    assert fm.from_marlin_24(words, scales, meta).compressed.shape == (64, 128)
    for parts, told in [
        ((words.astype(np.int64), scales, meta), "weight_packed.*int32; given int64"),
        ((words, scales.astype(np.float32), meta), "scale_packed.*float16"),
        ((words, scales, meta[0]), "meta of marlin-24 is a matrix of int16"),
        ((words, scales[:, :32], meta), "4 or 8 bits"),
        ((words[:, :64], scales, meta), "4 or 8 bits"),
        ((words, scales, meta[:2]), "4 or 8 bits"),
        ((words, np.ones((4, 64), np.float16), meta), "each 128 columns; given 4"),
    ]:
        with pytest.raises(fm.ShapeError, match=told):
            fm.from_marlin_24(*parts)
    words, meta = np.zeros((8, 128), np.int32), np.full((8, 128), 0x4444, np.int16)
    with pytest.raises(fm.ShapeError, match="order of the scales of 256 columns"):
        fm.from_marlin_24(words, np.ones((2, 64), np.float16), meta)
    meta[3, 5] = 0
    with pytest.raises(fm.BadMetadata, match="0000"):
        fm.from_marlin_24(words, scales, meta)
