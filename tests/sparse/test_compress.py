"""Compressing keeps everything, and refuses what does not fit."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta.reference.registers.granularity import Granularity
from fragmenta.reference.sparse.compression import (
    Compressed,
    compress,
    decompress,
)
from fragmenta.reference.sparse.compression import (
    check as check_sparse,
)
from fragmenta.reference.sparse.compression import (
    report as sparsity_report,
)
from fragmenta.reference.sparse.pruning import prune
from tests.sparse.by_hand import (
    F16,
    FORMS,
    S4,
    S8,
    TF32,
    compress_row_by_hand,
    every_form,
    name,
    patterns,
    prune_by_hand,
    raw,
    value_mask,
)

# ── compress and decompress ─────────────────────────────────────────────────


@every_form
@pytest.mark.parametrize("shape", [(1, 8), (5, 40), (2, 3, 7, 16)])
def test_compress_as_defined(op, shape):
    A = prune(op, patterns(op, shape, seed=7, zeros=0.5))
    sp = compress(op, A)
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
    A = prune(op, A, pad=True)[..., :width]
    sp = compress(op, A, keep_negative_zero=True, pad=True)
    assert sp.shape == A.shape
    back = decompress(op, sp)
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
    plain, kept = compress(op, A), compress(op, A, keep_negative_zero=True)
    assert not raw(plain.values).any()
    assert (plain.indices == op.granularity.empty).all()
    assert raw(kept.values)[0, 0] == sign
    assert kept.columns()[0, 0] == 0
    # Where its place is stored anyway it stays what it is.
    bits[...] = 0
    bits[0, -1] = sign
    assert (raw(decompress(op, compress(op, of.decode(bits)))) == bits).all()


@every_form
def test_columns_say_where_values_came_from(op):
    A = prune(op, patterns(op, (2, 3, 24)))
    sp = compress(op, A)
    columns = sp.columns()
    assert columns.dtype == np.int32
    assert columns.shape == sp.values.shape
    assert (raw(np.take_along_axis(A, columns, -1)) == raw(sp.values)).all()
    assert (np.diff(columns) > 0).all()


def test_unordered_codes_are_put_back_in_their_order():
    plain = fm.mma("m16n8k32", a="s8", sp="sp")
    sp = Compressed(np.int8([[5, 6]]), np.uint8([[0b0111]]), plain.granularity)
    assert decompress(plain, sp).tolist() == [[0, 6, 0, 5]]
    assert sp.columns().tolist() == [[3, 1]]
    with pytest.raises(fm.errors.BadMetadata, match="row 0, chunk 0: code 0111 names"):
        decompress(S8, sp)


def test_values_of_another_dtype_are_taken_exactly_or_refused():
    assert compress(F16, [[0, 1.5, 0, -2]]).values.dtype == np.float16
    assert compress(S4, [[0, 0, 7, -8, 0, 0, 0, 0]]).values.dtype == ml_dtypes.int4
    with pytest.raises(fm.errors.ValueRangeError, match="8 at"):
        compress(S4, [[0, 0, 8, 0, 0, 0, 0, 0]])
    with pytest.raises(fm.errors.ValueRangeError, match="rounds it"):
        compress(F16, [[0, 0.1, 0, 0]])


def test_stored_4_bit_integers_may_have_a_dirty_upper_half():
    A = np.uint8([[0xF0, 0xF0, 0xF1, 0xF0, 0, 0, 0xF7, 0]]).view(ml_dtypes.int4)
    sp = compress(S4, A)
    assert f"{sp.indices[0, 0]:04b}" == "1101"
    assert prune(S4, A).astype(int).tolist() == [[0, 0, 1, 0, 0, 0, 7, 0]]


@pytest.mark.parametrize("order", ["C", "F"])
def test_any_strides(order):
    A = np.asarray(patterns(S8, (2, 6, 32)), order=order)[:, ::2, ::-1]
    pruned = prune(S8, A)
    assert (pruned == prune_by_hand(A, S8.granularity)).all()
    sp = compress(S8, np.asarray(pruned, order=order))
    loose = Compressed(sp.values[:, ::-1], sp.indices[:, ::-1], sp.granularity)
    assert (decompress(S8, loose) == pruned[:, ::-1]).all()


def test_mnemonics_are_taken_for_instructions():
    text = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
    A = prune(text, [[1.0, 2, 3, 4]])
    assert decompress(text, compress(text, A)).tolist() == [[0, 0, 3, 4]]


def test_a_tile_is_ready_for_its_fragments():
    A = prune(S8, patterns(S8, (16, 32), zeros=0))
    sp = compress(S8, A)
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
        with pytest.raises(fm.errors.NotSparse, match=words):
            call(op, A)
    report = sparsity_report(op, A)
    assert (report.first, report.violating, report.chunks) == ((1, 1, 2), 2, 24)
    assert report.share == 2 / 24
    assert report.zeros == A.size - 2 * chunk
    assert not report.satisfied
    assert report.shape == A.shape


def test_a_report_on_what_fits():
    report = sparsity_report(S8, np.zeros((4, 8), np.int8))
    assert report.satisfied
    assert report.first is None
    assert str(report) == "all 8 chunks satisfy 2:4"
    assert sparsity_report(S8, np.zeros((0, 8), np.int8)).share == 0.0
    padded = sparsity_report(S8, np.ones((1, 5), np.int8), pad=True)
    assert (padded.zeros, padded.violating) == (0, 1)


def test_negative_zeros_are_too_many_only_if_asked():
    A = np.float16([[-0.0, -0.0, 1, 2]])
    check_sparse(F16, A)
    with pytest.raises(fm.errors.NotSparse, match="has 4 non-zeros"):
        check_sparse(F16, A, keep_negative_zero=True)
    with pytest.raises(fm.errors.NotSparse, match="has 4 non-zeros"):
        compress(F16, A, keep_negative_zero=True)


TWO_OF_FOUR = Granularity(2, 4)
BAD = {
    "dense": (
        lambda: prune(fm.mma("m16n8k16", a="s8"), [[1, 2]]),
        fm.Error,
        "is dense",
    ),
    "unknown": (
        lambda: prune("mma.sp.m16n8k9", [[1, 2]]),
        fm.errors.UnknownInstruction,
        "m16n8k9",
    ),
    "width": (
        lambda: prune(S8, [[1, 2, 3, 4, 5]]),
        fm.errors.ShapeError,
        "5 columns are not a whole number of 2:4 chunks of 4; pad=True adds 3 zeros",
    ),
    "width to compress": (
        lambda: compress(F16, [[1, 2, 3]]),
        fm.errors.ShapeError,
        "pad=True adds 1 zeros",
    ),
    "axes": (lambda: prune(S8, [1, 2, 3, 4]), fm.errors.ShapeError, "2 or more axes"),
    "axes to compress": (
        lambda: compress(S8, [0, 0, 3, 4]),
        fm.errors.ShapeError,
        "2 or more axes",
    ),
    "complex": (
        lambda: prune(S8, [[1j, 2, 3, 4]]),
        fm.errors.ValueRangeError,
        "only real numbers",
    ),
    "text": (
        lambda: prune(TF32, [["a", "b"]]),
        fm.errors.ValueRangeError,
        "only real numbers",
    ),
    "scores: shape": (
        lambda: prune(S8, [[1, 2, 3, 4]], scores=[1, 2, 3, 4]),
        fm.errors.ShapeError,
        r"shape of A, \(1, 4\); given scores of shape \(4,\)",
    ),
    "scores: NaN": (
        lambda: prune(S8, np.ones((9, 8)), scores=nan_at(3, 6)),
        fm.errors.ValueRangeError,
        "row 3, chunk 1 contain or add up to a NaN",
    ),
    "scores: NaN of a pair": (
        lambda: prune(S4, [[1] * 8], scores=[[0, 0, np.inf, -np.inf, 0, 0, 0, 0]]),
        fm.errors.ValueRangeError,
        "row 0, chunk 0 contain or add up to a NaN",
    ),
    "compressed: shape": (
        lambda: Compressed(np.ones((1, 3)), np.full((1, 1), 4), TWO_OF_FOUR),
        fm.errors.ShapeError,
        "2:4 stores 2 values for each code",
    ),
    "compressed: axes": (
        lambda: Compressed(np.ones(2), np.full(1, 4), TWO_OF_FOUR),
        fm.errors.ShapeError,
        "2:4 stores 2 values for each code",
    ),
    "compressed: width": (
        lambda: Compressed(np.ones((1, 2)), np.full((1, 1), 4), TWO_OF_FOUR, 9),
        fm.errors.ShapeError,
        "1 chunks of 2:4 have 4 columns; given width 9",
    ),
    "compressed: codes": (
        lambda: Compressed(np.ones((1, 2)), np.full((1, 1), 16), TWO_OF_FOUR),
        fm.errors.BadMetadata,
        "from 0 to 15",
    ),
    "columns": (
        lambda: Compressed(np.ones((1, 2)), np.uint8([[0]]), TWO_OF_FOUR).columns(),
        fm.errors.BadMetadata,
        "row 0, chunk 0: code 0000 names position 0 twice",
    ),
    "other granularity": (
        lambda: decompress(TF32, compress(S8, [[0, 1, 0, 2]])),
        fm.errors.BadMetadata,
        "is 1:2; given an A of 2:4",
    ),
}


def nan_at(row, column):
    scores = np.ones((9, 8))
    scores[row, column] = np.nan
    return scores


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_what_is_allowed(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()


# ── the page, and what is imported ──────────────────────────────────────────


def test_importing_does_not_import_llvm():
    query = (
        "import sys, fragmenta.reference.sparse.pruning, fragmenta.reference.sparse.compression, fragmenta.reference.sparse.exchange; "
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
