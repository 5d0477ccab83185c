"""Large matrices, threads and memory change no result."""

from __future__ import annotations

import threading
import tracemalloc

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.sparse.compression import (
    compress,
    decompress,
)
from fragmenta.reference.sparse.compression import (
    report as sparsity_report,
)
from fragmenta.reference.sparse.pruning import prune
from tests.sparse.by_hand import F16, S4, S8, TF32, name, patterns, prune_by_hand, raw


@pytest.fixture
def small_blocks(monkeypatch):
    """As if every matrix were large: many blocks, several threads."""
    monkeypatch.setattr("fragmenta.base.arrays.threads._BLOCK", 256)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("op", [S8, S4, F16, TF32], ids=name)
def test_blocks_in_threads_are_the_whole(op):
    A = patterns(op, (3, 41, 64))
    shares: list[float] = []
    pruned = prune(op, A, progress=shares.append)
    assert (raw(pruned) == raw(prune_by_hand(A, op.granularity))).all()
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    sp = compress(op, pruned, keep_negative_zero=True)
    assert (raw(decompress(op, sp)) == raw(pruned)).all()
    full = np.array(pruned)
    full[2, 7, :] = 1
    report = sparsity_report(op, full)
    assert report.first == (2, 7, 0)
    assert report.violating == 64 // op.granularity.chunk
    scores = np.zeros(A.shape)
    scores[1, 7, 0] = np.nan
    with pytest.raises(fm.errors.ValueRangeError, match=r"batch \[1\], row 7, chunk 0"):
        prune(op, A, scores=scores)


def test_callers_may_use_threads_themselves():
    A = patterns(S8, (64, 4096), zeros=0)
    expected = prune(S8, A)
    results: list[bool] = []

    def work() -> None:
        results.append(bool((prune(S8, A) == expected).all()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


@pytest.mark.parametrize("op", [S8, S4, F16, TF32], ids=name)
def test_memory_stays_within_twice_the_input(op):
    A = patterns(op, (2048, 2048), zeros=0)
    prune(op, A[:4])  # compiles
    sp = compress(op, prune(op, A))
    decompress(op, sp)

    def beyond(call, out):
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak - out

    stored = sp.values.nbytes + sp.indices.nbytes
    pruned = prune(op, A)
    assert beyond(lambda: prune(op, A), A.nbytes) <= 2 * A.nbytes
    assert beyond(lambda: compress(op, pruned), stored) <= 2 * A.nbytes
    assert beyond(lambda: decompress(op, sp), A.nbytes) <= 2 * A.nbytes
