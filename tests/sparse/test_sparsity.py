"""Does pruning keep the largest, and does compressing keep everything?"""

from __future__ import annotations

import doctest
import math
import os
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta.isa.parse import catalogue
from fragmenta.registers.granularity import Granularity
from fragmenta.sparse import loops as sparsity_loops
from fragmenta.sparse.compress import (
    Compressed,
    check_sparse,
    compress,
    decompress,
    sparsity_report,
)
from fragmenta.sparse.prune import prune


def forms():
    """One sparse instruction for each type of A and container."""
    found = {}
    for family in ("mma.sp", "wgmma.sp"):
        for op in catalogue(family):
            found.setdefault((op.types["a"].name, op.granularity), op)
    return list(found.values())


FORMS = forms()
S8 = fm.mma("m16n8k32", a="s8", sp="sp::ordered_metadata")
S4 = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
F16 = fm.mma("m16n8k32", a="f16", d="f32", sp="sp::ordered_metadata")
TF32 = fm.mma("m16n8k16", a="tf32", sp="sp::ordered_metadata")


def name(op):
    return f"{op.types['a']} {op.granularity}"


every_form = pytest.mark.parametrize("op", FORMS, ids=name)


def raw(array):
    """Raw bits, so that NaN payloads and signed zeros count."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def patterns(op, shape, seed=0, zeros=0.3):
    """Any pattern of the type at all, and a good many zeros."""
    of, random = op.types["a"], np.random.default_rng(seed)
    bits = random.integers(0, of.mask, shape, of.bits_dtype, endpoint=True)
    bits[random.random(shape) < zeros] = 0
    return of.decode(bits)


# ── the definitions, one element at a time ──────────────────────────────────


def magnitude(value):
    """What pruning ranks by: NaN above infinity."""
    size = abs(float(value))
    return (1, 0.0) if math.isnan(size) else (0, size)


def keep_largest(chunk, granularity, rank):
    """The places of a chunk that stay: greatest first, of equals the lower."""
    group = granularity.group
    groups = [chunk[i : i + group] for i in range(0, len(chunk), group)]
    ranks = [tuple(map(sum, zip(*map(rank, g), strict=True))) for g in groups]
    # One NaN in a pair is as good as two.
    ranks = [(1, 0.0) if r[0] else r for r in ranks]
    order = sorted(range(len(groups)), key=lambda i: (-ranks[i][0], -ranks[i][1], i))
    return sorted(order[: granularity.picks])


def prune_by_hand(A, granularity, rank=magnitude, scores=None):
    out = np.zeros_like(A)
    ranked = A if scores is None else scores
    width, group = granularity.chunk, granularity.group
    for index in np.ndindex(*A.shape[:-1]):
        for start in range(0, A.shape[-1], width):
            chunk = list(ranked[index][start : start + width])
            for place in keep_largest(chunk, granularity, rank):
                at = slice(start + group * place, start + group * (place + 1))
                out[index][at] = A[index][at]
    return out


def compress_row_by_hand(bits, granularity, value_mask):
    """Stored bits and codes of a row; the free places go to 2, then to 3."""
    stored, codes = [], []
    width, group = granularity.chunk, granularity.group
    for start in range(0, len(bits), width):
        chunk = [int(b) for b in bits[start : start + width]]
        places = [chunk[i : i + group] for i in range(0, width, group)]
        kept = [i for i, p in enumerate(places) if any(b & value_mask for b in p)]
        fill = [2, 3] if granularity.picks == 2 else [1]
        while len(kept) < granularity.picks:
            kept.append(next(i for i in fill if i not in kept))
        kept.sort()
        stored += [b for i in kept for b in places[i]]
        if granularity.picks == 2:
            codes.append(kept[0] + 4 * kept[1])
        else:
            codes.append(0b1110 if kept[0] else 0b0100)
    return stored, codes


def value_mask(op, keep_negative_zero=False):
    of = op.types["a"]
    return of.mask if of.is_integer or keep_negative_zero else of.mask >> 1


# ── prune ───────────────────────────────────────────────────────────────────


@every_form
@pytest.mark.parametrize("shape", [(1, 8), (5, 40), (2, 3, 7, 16)])
def test_prune_keeps_the_largest(op, shape):
    A = patterns(op, shape, seed=len(shape))
    pruned = prune(A, op)
    assert pruned.dtype == A.dtype
    assert (raw(pruned) == raw(prune_by_hand(A, op.granularity))).all()
    check_sparse(pruned, op)
    assert (raw(prune(pruned, op)) == raw(pruned)).all()


FOREIGN = [np.float64, np.float32, np.int64, np.int32, np.int16, np.int8, np.uint8,
           np.uint16, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]  # fmt: skip


@pytest.mark.parametrize("op", [S8, S4, TF32], ids=name)
@pytest.mark.parametrize("dtype", FOREIGN, ids=lambda t: np.dtype(t).name)
def test_prune_ranks_any_real_type(op, dtype):
    values = np.random.default_rng(0).integers(-128, 128, (6, 32))
    A = values.astype(dtype)
    pruned = prune(A, op)
    assert pruned.dtype == A.dtype
    assert (pruned == prune_by_hand(A, op.granularity)).all()


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_the_least_integer_is_the_largest_magnitude(dtype):
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    A = np.array([[most, least, 0, most]], dtype)
    assert prune(A, S8).tolist() == [[most, least, 0, 0]]
    assert prune(A, TF32).tolist() == [[0, least, 0, most]]


def test_wide_integers_are_not_rounded():
    A = np.array([[2**62, 2**62 + 1, 2**62 + 2, 0]])
    assert prune(A, S8).tolist() == [[0, 2**62 + 1, 2**62 + 2, 0]]


def test_ties_go_to_the_lowest_column():
    assert prune([[1, -1, 1, -1]], S8).tolist() == [[1, -1, 0, 0]]
    assert prune([[0, 2, -2, 2]], S8).tolist() == [[0, 2, -2, 0]]
    assert prune([[3.0, -3.0]], TF32).tolist() == [[3, 0]]
    assert prune([[1, 1, 2, 0, 0, -2, -1, 1]], S4).tolist() == [
        [1, 1, 2, 0, 0, 0, 0, 0]
    ]


def test_pairs_are_judged_by_the_sum_of_magnitudes():
    # 7 alone loses to 4 + 4; -8 is 8.
    A = np.array([[7, 0, 4, -4, -8, 0, 0, 7]])
    assert prune(A, S4).tolist() == [[0, 0, 4, -4, -8, 0, 0, 0]]
    fp4 = next(op for op in FORMS if op.types["a"].name == "e2m1" and op.kind == "mxf4")
    A = np.array([[6, 0, 4, 3, 1.5, 6, 0.5, 6]], ml_dtypes.float4_e2m1fn)
    assert prune(A, fp4).astype(float).tolist() == [[0, 0, 4, 3, 1.5, 6, 0, 0]]


def test_nan_is_kept_before_everything_and_all_nan_are_equal():
    nan, inf = math.nan, math.inf
    pruned = prune([[inf, nan, -inf, 1.0]], F16)
    assert np.array_equal(pruned, [[inf, nan, 0, 0]], equal_nan=True)
    # Payloads do not rank: of three the two lower columns stay.
    bits = np.array([[0x7C01, 0x7FFF, 0xFE00, 0x7BFF]], np.uint16)
    pruned = raw(prune(bits.view(np.float16), F16))
    assert pruned.tolist() == [[0x7C01, 0x7FFF, 0, 0]]
    # One NaN makes its pair the first.
    A = np.array([[1e300, inf, nan, 0, 9, 9, inf, inf]])
    pruned = prune(A, S4)
    assert np.array_equal(pruned, [[1e300, inf, nan, 0, 0, 0, 0, 0]], equal_nan=True)


@pytest.mark.parametrize("op", [S8, S4, TF32], ids=name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_scores_rank_instead(op, dtype):
    A = patterns(op, (3, 5, 16), zeros=0)
    scores = np.random.default_rng(1).integers(-9, 9, A.shape).astype(dtype)
    pruned = prune(A, op, scores=scores)
    by_hand = prune_by_hand(A, op.granularity, lambda s: (0, float(s)), scores)
    assert (raw(pruned) == raw(by_hand)).all()


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_large_integer_scores_are_told_apart(dtype):
    top = np.iinfo(dtype).max
    scores = np.array([[top - 3, top - 2, top - 1, top, 5]], dtype)
    pruned = prune([[1, 2, 3, 4, 5]], S8, scores=scores, pad=True)
    assert pruned.tolist() == [[0, 0, 3, 4, 5, 0, 0, 0]]
    with pytest.raises(fm.ValueRangeError, match="up to 2\\*\\*52"):
        prune(np.ones((1, 8), int), S4, scores=np.full((1, 8), top, dtype))
    large = 2**52
    scores = np.array([[large, 0, large, 1, large, 3, 0, 0]], dtype)
    pruned = prune(np.ones((1, 8), int), S4, scores=scores)
    assert pruned.tolist() == [[0, 0, 1, 1, 1, 1, 0, 0]]


def test_minus_infinity_scores_go_first():
    scores = [[-np.inf, 0, -np.inf, -5]]
    assert prune([[9, 1, 8, 2]], S8, scores=scores).tolist() == [[0, 1, 0, 2]]


@every_form
def test_padding_fills_the_last_chunk_with_zeros(op):
    A = patterns(op, (3, 13))
    wide = np.zeros((3, 16), A.dtype)
    wide[:, :13] = A
    pruned = prune(A, op, pad=True)
    assert pruned.shape[-1] % op.granularity.chunk == 0
    assert (raw(pruned) == raw(prune(wide, op))[:, : pruned.shape[1]]).all()
    scores = np.ones((3, 13))
    assert prune(A, op, scores=scores, pad=True).shape == pruned.shape


def test_padding_never_takes_the_place_of_an_element():
    A, scores = [[1, 2, 3, 4, 5, 6]], [[-1, -2, -3, -4, -5, -6]]
    assert prune(A, S8, scores=scores, pad=True).tolist() == [[1, 2, 0, 0, 5, 6, 0, 0]]
    A, scores = [[1, 2, 3, 4, 5]], [[-9, -9, -2, -2, -5]]
    assert prune(A, S4, scores=scores, pad=True).tolist() == [[0, 0, 3, 4, 5, 0, 0, 0]]


# ── compress and decompress ─────────────────────────────────────────────────


@every_form
@pytest.mark.parametrize("shape", [(1, 8), (5, 40), (2, 3, 7, 16)])
def test_compress_as_defined(op, shape):
    A = prune(patterns(op, shape, seed=7, zeros=0.5), op)
    sp = compress(A, op)
    of = op.types["a"]
    assert sp.values.dtype == of.storage
    assert sp.indices.dtype == np.uint8
    assert sp.shape == shape
    for index in np.ndindex(*shape[:-1]):
        stored, codes = compress_row_by_hand(
            raw(A)[index], op.granularity, value_mask(op)
        )
        assert raw(sp.values)[index].tolist() == stored
        assert sp.indices[index].tolist() == codes
    assert np.isin(sp.indices, op.granularity.codes(ordered=True)).all()


@every_form
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_decompress_gives_back_every_bit(op, data):
    batch = data.draw(st.lists(st.integers(0, 3), max_size=2))
    rows = data.draw(st.integers(0, 5))
    width = data.draw(st.integers(0, 40))
    seed = data.draw(st.integers(0, 999))
    A = patterns(op, (*batch, rows, width), seed, zeros=0.6)
    A = prune(A, op, pad=True)[..., :width]
    sp = compress(A, op, keep_negative_zero=True, pad=True)
    assert sp.shape == A.shape
    back = decompress(sp, op)
    assert back.shape == A.shape
    assert back.dtype == A.dtype
    # What pruning drops is +0.0, so that -0.0 does not crowd a chunk.
    assert (raw(back) == raw(A)).all()


@pytest.mark.parametrize(
    "op", [op for op in FORMS if not op.types["a"].is_integer], ids=name
)
def test_negative_zero_is_a_value_only_if_asked(op):
    of = op.types["a"]
    sign = (of.mask >> 1) + 1
    bits = np.zeros((1, 8), of.bits_dtype)
    bits[0, 0] = sign
    A = of.decode(bits)
    plain, kept = compress(A, op), compress(A, op, keep_negative_zero=True)
    assert not raw(plain.values).any()
    assert (plain.indices == op.granularity.empty).all()
    assert raw(kept.values)[0, 0] == sign
    assert kept.columns()[0, 0] == 0
    # Where its place is stored anyway it stays what it is.
    bits[...] = 0
    bits[0, -1] = sign
    assert (raw(decompress(compress(of.decode(bits), op), op)) == bits).all()


@every_form
def test_columns_say_where_values_came_from(op):
    A = prune(patterns(op, (2, 3, 24)), op)
    sp = compress(A, op)
    columns = sp.columns()
    assert columns.dtype == np.int32
    assert columns.shape == sp.values.shape
    assert (raw(np.take_along_axis(A, columns, -1)) == raw(sp.values)).all()
    assert (np.diff(columns) > 0).all()


def test_unordered_codes_are_put_back_in_their_order():
    plain = fm.mma("m16n8k32", a="s8", sp="sp")
    sp = Compressed(np.int8([[5, 6]]), np.uint8([[0b0111]]), plain.granularity)
    assert decompress(sp, plain).tolist() == [[0, 6, 0, 5]]
    assert sp.columns().tolist() == [[3, 1]]
    with pytest.raises(fm.BadMetadata, match="row 0, chunk 0: code 0111 names"):
        decompress(sp, S8)


def test_values_of_another_dtype_are_taken_exactly_or_refused():
    assert compress([[0, 1.5, 0, -2]], F16).values.dtype == np.float16
    assert compress([[0, 0, 7, -8, 0, 0, 0, 0]], S4).values.dtype == ml_dtypes.int4
    with pytest.raises(fm.ValueRangeError, match="8 at"):
        compress([[0, 0, 8, 0, 0, 0, 0, 0]], S4)
    with pytest.raises(fm.ValueRangeError, match="rounds it"):
        compress([[0, 0.1, 0, 0]], F16)


def test_stored_4_bit_integers_may_have_a_dirty_upper_half():
    A = np.uint8([[0xF0, 0xF0, 0xF1, 0xF0, 0, 0, 0xF7, 0]]).view(ml_dtypes.int4)
    sp = compress(A, S4)
    assert f"{sp.indices[0, 0]:04b}" == "1101"
    assert prune(A, S4).astype(int).tolist() == [[0, 0, 1, 0, 0, 0, 7, 0]]


@pytest.mark.parametrize("order", ["C", "F"])
def test_any_strides(order):
    A = np.asarray(patterns(S8, (2, 6, 32)), order=order)[:, ::2, ::-1]
    pruned = prune(A, S8)
    assert (pruned == prune_by_hand(A, S8.granularity)).all()
    sp = compress(np.asarray(pruned, order=order), S8)
    loose = Compressed(sp.values[:, ::-1], sp.indices[:, ::-1], sp.granularity)
    assert (decompress(loose, S8) == pruned[:, ::-1]).all()


def test_mnemonics_are_taken_for_instructions():
    text = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    A = prune([[1.0, 2, 3, 4]], text)
    assert decompress(compress(A, text), text).tolist() == [[0, 0, 3, 4]]


def test_a_tile_is_ready_for_its_fragments():
    A = prune(patterns(S8, (16, 32), zeros=0), S8)
    sp = compress(A, S8)
    assert S8.a.pack(sp.values).shape == (32, 2)
    words = S8.metadata.pack(sp.indices, selector=1)
    assert (S8.metadata.unpack(words, selector=1) == sp.indices).all()


# ── refusals ────────────────────────────────────────────────────────────────


@every_form
def test_not_sparse_names_the_first_and_counts_all(op):
    chunk = op.granularity.chunk
    A = np.zeros((2, 3, 4 * chunk), op.types["a"].storage)
    A[1, 1, 2 * chunk : 3 * chunk] = 1
    A[1, 2, :chunk] = 1
    words = (
        rf"batch \[1\], row 1, chunk 2 \(columns {2 * chunk} to {3 * chunk - 1}\) has "
        rf"{op.granularity.places} .*non-zeros, and {op.granularity} stores "
        rf"{op.granularity.picks}; 2 of 24 chunks are too full; prune makes them fit"
    )
    for call in (compress, check_sparse):
        with pytest.raises(fm.NotSparse, match=words):
            call(A, op)
    report = sparsity_report(A, op)
    assert (report.first, report.violating, report.chunks) == ((1, 1, 2), 2, 24)
    assert report.share == 2 / 24
    assert report.zeros == A.size - 2 * chunk
    assert not report.satisfied
    assert report.shape == A.shape


def test_a_report_on_what_fits():
    report = sparsity_report(np.zeros((4, 8), np.int8), S8)
    assert report.satisfied
    assert report.first is None
    assert str(report) == "all 8 chunks satisfy 2:4"
    assert sparsity_report(np.zeros((0, 8), np.int8), S8).share == 0.0
    padded = sparsity_report(np.ones((1, 5), np.int8), S8, pad=True)
    assert (padded.zeros, padded.violating) == (0, 1)


def test_negative_zeros_are_too_many_only_if_asked():
    A = np.float16([[-0.0, -0.0, 1, 2]])
    check_sparse(A, F16)
    with pytest.raises(fm.NotSparse, match="has 4 non-zeros"):
        check_sparse(A, F16, keep_negative_zero=True)
    with pytest.raises(fm.NotSparse, match="has 4 non-zeros"):
        compress(A, F16, keep_negative_zero=True)


TWO_OF_FOUR = Granularity(2, 4)
BAD = {
    "dense": (
        lambda: prune([[1, 2]], fm.mma("m16n8k16", a="s8")), fm.Error, "is dense"),
    "unknown": (
        lambda: prune([[1, 2]], "mma.sp.m16n8k9"), fm.UnknownInstruction, "m16n8k9"),
    "width": (
        lambda: prune([[1, 2, 3, 4, 5]], S8), fm.ShapeError,
        "5 columns are not a whole number of 2:4 chunks of 4; pad=True adds 3 zeros"),
    "width to compress": (
        lambda: compress([[1, 2, 3]], F16), fm.ShapeError, "pad=True adds 1 zeros"),
    "axes": (
        lambda: prune([1, 2, 3, 4], S8), fm.ShapeError, "2 axes or more"),
    "axes to compress": (
        lambda: compress([0, 0, 3, 4], S8), fm.ShapeError, "2 axes or more"),
    "complex": (
        lambda: prune([[1j, 2, 3, 4]], S8), fm.ValueRangeError, "only real numbers"),
    "text": (
        lambda: prune([["a", "b"]], TF32), fm.ValueRangeError, "only real numbers"),
    "scores: shape": (
        lambda: prune([[1, 2, 3, 4]], S8, scores=[1, 2, 3, 4]), fm.ShapeError,
        r"A has the shape \(1, 4\), the scores \(4,\)"),
    "scores: NaN": (
        lambda: prune(np.ones((9, 8)), S8, scores=nan_at(3, 6)), fm.ValueRangeError,
        "row 3, chunk 1 hold a NaN"),
    "scores: NaN of a pair": (
        lambda: prune([[1] * 8], S4, scores=[[0, 0, np.inf, -np.inf, 0, 0, 0, 0]]),
        fm.ValueRangeError, "row 0, chunk 0 hold a NaN"),
    "compressed: shape": (
        lambda: Compressed(np.ones((1, 3)), np.full((1, 1), 4), TWO_OF_FOUR),
        fm.ShapeError, "2:4 stores 2 values for each code"),
    "compressed: axes": (
        lambda: Compressed(np.ones(2), np.full(1, 4), TWO_OF_FOUR),
        fm.ShapeError, "2:4 stores 2 values for each code"),
    "compressed: width": (
        lambda: Compressed(np.ones((1, 2)), np.full((1, 1), 4), TWO_OF_FOUR, 9),
        fm.ShapeError, "1 chunks are 4 columns, not 9"),
    "compressed: codes": (
        lambda: Compressed(np.ones((1, 2)), np.full((1, 1), 16), TWO_OF_FOUR),
        fm.BadMetadata, "from 0 to 15"),
    "columns": (
        lambda: Compressed(np.ones((1, 2)), np.uint8([[0]]), TWO_OF_FOUR).columns(),
        fm.BadMetadata, "row 0, chunk 0: code 0000 names position 0 twice"),
    "other granularity": (
        lambda: decompress(compress([[0, 1, 0, 2]], S8), TF32),
        fm.BadMetadata, "is 1:2; A is 2:4"),
}  # fmt: skip


def nan_at(row, column):
    scores = np.ones((9, 8))
    scores[row, column] = np.nan
    return scores


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_what_is_allowed(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()


# ── large matrices ──────────────────────────────────────────────────────────


@pytest.fixture
def small_blocks(monkeypatch):
    """As if every matrix were large: many blocks, several threads."""
    monkeypatch.setattr("fragmenta.arrays.threads._BLOCK", 256)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("op", [S8, S4, F16, TF32], ids=name)
def test_blocks_in_threads_are_the_whole(op):
    A = patterns(op, (3, 41, 64))
    shares: list[float] = []
    pruned = prune(A, op, progress=shares.append)
    assert (raw(pruned) == raw(prune_by_hand(A, op.granularity))).all()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    sp = compress(pruned, op, keep_negative_zero=True)
    assert (raw(decompress(sp, op)) == raw(pruned)).all()
    full = np.array(pruned)
    full[2, 7, :] = 1
    report = sparsity_report(full, op)
    assert report.first == (2, 7, 0)
    assert report.violating == 64 // op.granularity.chunk
    scores = np.zeros(A.shape)
    scores[1, 7, 0] = np.nan
    with pytest.raises(fm.ValueRangeError, match=r"batch \[1\], row 7, chunk 0"):
        prune(A, op, scores=scores)


def test_callers_may_use_threads_themselves():
    A = patterns(S8, (64, 4096), zeros=0)
    expected = prune(A, S8)
    results: list[bool] = []

    def work() -> None:
        results.append(bool((prune(A, S8) == expected).all()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


@pytest.mark.parametrize("op", [S8, S4, F16, TF32], ids=name)
def test_memory_stays_within_twice_the_input(op):
    A = patterns(op, (2048, 2048), zeros=0)
    prune(A[:4], op)  # compiles
    sp = compress(prune(A, op), op)
    decompress(sp, op)

    def beyond(call, out):
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak - out

    stored = sp.values.nbytes + sp.indices.nbytes
    pruned = prune(A, op)
    assert beyond(lambda: prune(A, op), A.nbytes) <= 2 * A.nbytes
    assert beyond(lambda: compress(pruned, op), stored) <= 2 * A.nbytes
    assert beyond(lambda: decompress(sp, op), A.nbytes) <= 2 * A.nbytes


def test_importing_does_not_import_llvm():
    query = (
        "import sys, fragmenta.sparse.prune, fragmenta.sparse.compress, fragmenta.sparse.exchange; "
        "print('llvmlite' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", query],
        env=os.environ | {"PYTHONPATH": str(Path(fm.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"


def test_the_page_about_sparsity_runs():
    page = Path(__file__).parents[2] / "docs" / "sparsity.md"
    found = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert found.attempted > 40
    assert found.failed == 0


# ── the kernels, against the rules said in NumPy ────────────────────────────


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
        sparsity_loops.prune(picks, keys, places, out)
        assert (out == np.where(kept_by_rank(keys, picks), places, 0)).all()


def test_the_greatest_unsigned_keys_are_large():
    keys = np.array([2**64 - 1, 1, 2, 2**63], np.uint64)
    out = np.zeros(4, np.uint8)
    sparsity_loops.prune(2, keys, np.arange(1, 5, dtype=np.uint8), out)
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
    sparsity_loops.compress(picks, places, value_bits, stored, codes)
    chunks = places.reshape(-1, size)
    values = (chunks & of(value_bits)) != 0
    full = values.sum(axis=1) > picks
    assert ((codes == 0) == full).all()
    out = np.full_like(places, 5)
    sparsity_loops.decompress(picks, stored, codes, out)
    back = out.reshape(-1, size)[~full]
    assert ((back & of(value_bits)) == (chunks & of(value_bits))[~full]).all()
    legal = {0b0100, 0b1110} if picks == 1 else {0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110}  # fmt: skip
    assert set(codes[~full].tolist()) == legal
