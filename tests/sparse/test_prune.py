"""Pruning keeps the largest elements."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.sparse.compression import (
    check as check_sparse,
)
from fragmenta.reference.sparse.pruning import prune
from tests.sparse.by_hand import (
    F16,
    FORMS,
    S4,
    S8,
    TF32,
    every_form,
    name,
    patterns,
    prune_by_hand,
    raw,
)


@every_form
@pytest.mark.parametrize("shape", [(1, 8), (5, 40), (2, 3, 7, 16)])
def test_prune_keeps_the_largest(op, shape):
    A = patterns(op, shape, seed=len(shape))
    pruned = prune(op, A)
    assert pruned.dtype == A.dtype
    assert (raw(pruned) == raw(prune_by_hand(A, op.granularity))).all()
    check_sparse(op, pruned)
    assert (raw(prune(op, pruned)) == raw(pruned)).all()


FOREIGN = [
    np.float64,
    np.float32,
    np.int64,
    np.int32,
    np.int16,
    np.int8,
    np.uint8,
    np.uint16,
    np.bool_,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e4m3fn,
]


@pytest.mark.parametrize("op", [S8, S4, TF32], ids=name)
@pytest.mark.parametrize("dtype", FOREIGN, ids=lambda t: np.dtype(t).name)
def test_prune_ranks_any_real_type(op, dtype):
    values = np.random.default_rng(0).integers(-128, 128, (6, 32))
    A = values.astype(dtype)
    pruned = prune(op, A)
    assert pruned.dtype == A.dtype
    assert (pruned == prune_by_hand(A, op.granularity)).all()


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_the_least_integer_is_the_largest_magnitude(dtype):
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    A = np.array([[most, least, 0, most]], dtype)
    assert prune(S8, A).tolist() == [[most, least, 0, 0]]
    assert prune(TF32, A).tolist() == [[0, least, 0, most]]


def test_wide_integers_are_not_rounded():
    A = np.array([[2**62, 2**62 + 1, 2**62 + 2, 0]])
    assert prune(S8, A).tolist() == [[0, 2**62 + 1, 2**62 + 2, 0]]


def test_ties_go_to_the_lowest_column():
    assert prune(S8, [[1, -1, 1, -1]]).tolist() == [[1, -1, 0, 0]]
    assert prune(S8, [[0, 2, -2, 2]]).tolist() == [[0, 2, -2, 0]]
    assert prune(TF32, [[3.0, -3.0]]).tolist() == [[3, 0]]
    assert prune(S4, [[1, 1, 2, 0, 0, -2, -1, 1]]).tolist() == [
        [1, 1, 2, 0, 0, 0, 0, 0]
    ]


def test_pairs_are_judged_by_the_sum_of_magnitudes():
    # 7 alone loses to 4 + 4; -8 is 8.
    A = np.array([[7, 0, 4, -4, -8, 0, 0, 7]])
    assert prune(S4, A).tolist() == [[0, 0, 4, -4, -8, 0, 0, 0]]
    fp4 = next(op for op in FORMS if op.types["a"].name == "e2m1" and op.kind == "mxf4")
    A = np.array([[6, 0, 4, 3, 1.5, 6, 0.5, 6]], ml_dtypes.float4_e2m1fn)
    assert prune(fp4, A).astype(float).tolist() == [[0, 0, 4, 3, 1.5, 6, 0, 0]]


def test_nan_is_kept_before_everything_and_all_nan_are_equal():
    nan, inf = math.nan, math.inf
    pruned = prune(F16, [[inf, nan, -inf, 1.0]])
    assert np.array_equal(pruned, [[inf, nan, 0, 0]], equal_nan=True)
    # Payloads do not rank: of three the two lower columns stay.
    bits = np.array([[0x7C01, 0x7FFF, 0xFE00, 0x7BFF]], np.uint16)
    pruned = raw(prune(F16, bits.view(np.float16)))
    assert pruned.tolist() == [[0x7C01, 0x7FFF, 0, 0]]
    # One NaN makes its pair the first.
    A = np.array([[1e300, inf, nan, 0, 9, 9, inf, inf]])
    pruned = prune(S4, A)
    assert np.array_equal(pruned, [[1e300, inf, nan, 0, 0, 0, 0, 0]], equal_nan=True)


@pytest.mark.parametrize("op", [S8, S4, TF32], ids=name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_scores_rank_instead(op, dtype):
    A = patterns(op, (3, 5, 16), zeros=0)
    scores = np.random.default_rng(1).integers(-9, 9, A.shape).astype(dtype)
    pruned = prune(op, A, scores=scores)
    by_hand = prune_by_hand(A, op.granularity, lambda s: (0, float(s)), scores)
    assert (raw(pruned) == raw(by_hand)).all()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_large_integer_scores_are_told_apart(dtype):
    top = np.iinfo(dtype).max
    scores = np.array([[top - 3, top - 2, top - 1, top, 5]], dtype)
    pruned = prune(S8, [[1, 2, 3, 4, 5]], scores=scores, pad=True)
    assert pruned.tolist() == [[0, 0, 3, 4, 5, 0, 0, 0]]
    with pytest.raises(fm.errors.ValueRangeError, match="to 2\\*\\*52"):
        prune(S4, np.ones((1, 8), int), scores=np.full((1, 8), top, dtype))
    large = 2**52
    scores = np.array([[large, 0, large, 1, large, 3, 0, 0]], dtype)
    pruned = prune(S4, np.ones((1, 8), int), scores=scores)
    assert pruned.tolist() == [[0, 0, 1, 1, 1, 1, 0, 0]]


def test_minus_infinity_scores_go_first():
    scores = [[-np.inf, 0, -np.inf, -5]]
    assert prune(S8, [[9, 1, 8, 2]], scores=scores).tolist() == [[0, 1, 0, 2]]


@every_form
def test_padding_fills_the_last_chunk_with_zeros(op):
    A = patterns(op, (3, 13))
    wide = np.zeros((3, 16), A.dtype)
    wide[:, :13] = A
    pruned = prune(op, A, pad=True)
    assert pruned.shape[-1] % op.granularity.chunk == 0
    assert (raw(pruned) == raw(prune(op, wide))[:, : pruned.shape[1]]).all()
    scores = np.ones((3, 13))
    assert prune(op, A, scores=scores, pad=True).shape == pruned.shape


def test_padding_never_takes_the_place_of_an_element():
    A, scores = [[1, 2, 3, 4, 5, 6]], [[-1, -2, -3, -4, -5, -6]]
    assert prune(S8, A, scores=scores, pad=True).tolist() == [[1, 2, 0, 0, 5, 6, 0, 0]]
    A, scores = [[1, 2, 3, 4, 5]], [[-9, -9, -2, -2, -5]]
    assert prune(S4, A, scores=scores, pad=True).tolist() == [[0, 0, 3, 4, 5, 0, 0, 0]]
