"""Weights in the format marlin-24 are read as the kernel's lanes load them."""

import numpy as np
import pytest

import fragmenta as fm

HALF = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
S8 = fm.mma("m16n8k64", a="s8", sp="sp::ordered_metadata")

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
    dense = fm.sparse.prune(S8, rng.integers(-low, low, (128, columns))).astype(np.int8)
    sp = fm.sparse.compress(S8, dense)
    groups = columns // 128 if columns > 128 else 1
    scales = rng.uniform(0.5, 2, (128, groups)).astype(np.float16)
    words, packed = marlin(sp.values, scales, bits)
    half = fm.sparse.compress(HALF, dense.astype(np.float16))
    meta = fm.sparse.to_marlin(HALF, half).meta.reshape(columns // 32, 256)
    found = fm.weights.from_marlin_24(words, packed, meta)
    assert found.bits == bits
    assert (fm.sparse.decompress(S8, found.compressed) == dense).all()
    assert (found.scales == scales).all()
    again = fm.weights.to_marlin_24(found.compressed, found.scales, bits=bits)
    for mine, theirs in zip(again, (words, packed, meta), strict=True):
        assert mine.dtype == theirs.dtype
        assert (mine == theirs).all()


def test_marlin_is_not_written_for_other_shapes():
    halves = fm.wgmma("m64n8k32", a="bf16", d="f32", sp="sp")
    integers = fm.wgmma("m64n8k64", a="s8", d="s32", sp="sp")
    sp = fm.sparse.compress(integers, np.zeros((72, 64), np.int8))
    ones = np.ones((72, 1), np.float16)
    with pytest.raises(fm.errors.ShapeError, match=r"multiple of 64 outputs.*72x64"):
        fm.weights.to_marlin_24(sp, ones)
    other = fm.sparse.compress(halves, np.zeros((64, 64), "bfloat16"))
    with pytest.raises(fm.errors.BadCall, match="int8; given bfloat16"):
        fm.weights.to_marlin_24(other, ones[:64])
    large = fm.sparse.compress(integers, np.diag(np.full(64, 9, np.int8)))
    with pytest.raises(fm.errors.ValueRangeError, match="-8 to 7; given 0 to 9"):
        fm.weights.to_marlin_24(large, ones[:64])
    with pytest.raises(fm.errors.ShapeError, match=r"float16 of \(64, groups\)"):
        fm.weights.to_marlin_24(large, ones, bits=8)


def test_marlin_arrays_that_do_not_fit_are_refused():
    words, meta = np.zeros((4, 128), np.int32), np.full((4, 128), 0x4444, np.int16)
    scales = np.ones((1, 64), np.float16)
    assert fm.weights.from_marlin_24(words, scales, meta).compressed.shape == (64, 128)
    for parts, told in [
        ((words.astype(np.int64), scales, meta), "weight_packed.*int32; given int64"),
        ((words, scales.astype(np.float32), meta), "scale_packed.*float16"),
        ((words, scales, meta[0]), "meta of marlin-24 is a matrix of int16"),
        ((words, scales[:, :32], meta), "4 or 8 bits"),
        ((words[:, :64], scales, meta), "4 or 8 bits"),
        ((words, scales, meta[:2]), "4 or 8 bits"),
        ((words, np.ones((4, 64), np.float16), meta), "each 128 columns; given 4"),
    ]:
        with pytest.raises(fm.errors.ShapeError, match=told):
            fm.weights.from_marlin_24(*parts)
    words, meta = np.zeros((8, 128), np.int32), np.full((8, 128), 0x4444, np.int16)
    with pytest.raises(
        fm.errors.ShapeError, match="order of the scales of 256 columns"
    ):
        fm.weights.from_marlin_24(words, np.ones((2, 64), np.float16), meta)
    meta[3, 5] = 0
    with pytest.raises(fm.errors.BadMetadata, match="0000"):
        fm.weights.from_marlin_24(words, scales, meta)
