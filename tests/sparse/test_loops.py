"""The compiled loops follow the rules, written again in NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta.reference.sparse import loops as sparsity_loops


def kept_by_rank(keys, picks):
    """Which places stay: the greatest keys, of equals the lower place."""
    chunks = keys.reshape(-1, 2 * picks)
    order = np.argsort(-chunks.astype(float), axis=1, kind="stable")
    kept = np.zeros(chunks.shape, bool)
    np.put_along_axis(kept, order[:, :picks], True, axis=1)
    return kept.reshape(-1)


@pytest.mark.parametrize("picks", [1, 2])
@pytest.mark.parametrize("of", ["u1", "u2", "u4", "u8", "i8", "f8"])
def test_pruning_keeps_the_greatest_keys(of, picks):
    random = np.random.default_rng(3)
    low = 0 if of[0] == "u" else -4
    keys = random.integers(low, 5, 1000).astype(of)
    for stored in ("u1", "u2", "u4", "u8"):
        places = random.integers(1, 200, keys.size).astype(stored)
        out = np.full_like(places, 77)
        sparsity_loops.prune_chunks(picks, keys, places, out)
        assert (out == np.where(kept_by_rank(keys, picks), places, 0)).all()


def test_the_greatest_unsigned_keys_are_large():
    keys = np.array([2**64 - 1, 1, 2, 2**63], np.uint64)
    out = np.zeros(4, np.uint8)
    sparsity_loops.prune_chunks(2, keys, np.arange(1, 5, dtype=np.uint8), out)
    assert out.tolist() == [1, 0, 0, 4]


@pytest.mark.parametrize("of", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("picks", [1, 2])
def test_compression_stores_what_the_code_says(of, picks):
    random = np.random.default_rng(4)
    top = int(np.iinfo(of).max)
    kinds = np.array([0, 0, 0, 1, top, top // 2 + 1], of)
    places = kinds[random.integers(0, len(kinds), 4000)]
    size, value_bits = 2 * picks, top >> 1  # a sign alone is a zero
    stored = np.zeros(places.size // 2, of)
    codes = np.zeros(places.size // size, np.uint8)
    sparsity_loops.compress_chunks(picks, places, value_bits, stored, codes)
    chunks = places.reshape(-1, size)
    values = (chunks & of(value_bits)) != 0
    full = values.sum(axis=1) > picks
    assert ((codes == 0) == full).all()
    out = np.full_like(places, 5)
    sparsity_loops.decompress_chunks(picks, stored, codes, out)
    back = out.reshape(-1, size)[~full]
    assert ((back & of(value_bits)) == (chunks & of(value_bits))[~full]).all()
    legal = (
        {0b0100, 0b1110}
        if picks == 1
        else {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}
    )
    assert set(codes[~full].tolist()) == legal
