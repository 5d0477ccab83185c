"""What was once accepted in silence, and gave other numbers than it should."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import wmma
from fragmenta.reference.registers.layout import Layout
from fragmenta.reference.shared.descriptor import swizzled
from fragmenta.reference.sparse.compression import Compressed, compress
from fragmenta.reference.sparse.pruning import prune

S8 = fm.mma("m16n8k32", a="s8", sp="sp")
S4 = fm.mma("m16n8k64", a="s4", sp="sp::ordered_metadata")
TF32 = fm.mma("m16n8k16", a="tf32", sp="sp")
DENSE = fm.mma("m16n8k32", a="s8")


# ── A and B have the same k ─────────────────────────────────────────────────


def wide_a(op, columns):
    A = np.zeros((16, columns), op.types["a"].storage)
    A[:, ::4] = 1
    return A


@pytest.mark.parametrize("op", [S8, S4, TF32], ids=str)
@pytest.mark.parametrize("missing", [1, -1, 3])
def test_a_sparse_product_wants_the_same_k(op, missing):
    k = op.shape.k
    A, B = wide_a(op, k), np.ones((k - missing, 8), op.types["b"].storage)
    words = f"A has {k} columns and B has {k - missing} rows"
    for given in (A, compress(op, A)):
        with pytest.raises(fm.errors.ShapeError, match=words):
            fm.matmul(op, given, B)
        with pytest.raises(fm.errors.ShapeError, match=words):
            op.explain(given, B, row=0, col=0)


def test_the_width_of_a_compressed_a_is_its_own():
    A = wide_a(S8, 30)
    sp = compress(S8, A, pad=True)
    B = np.arange(240, dtype=np.int8).reshape(30, 8)
    assert (fm.matmul(S8, sp, B) == A.astype(int) @ B.astype(int)).all()
    for rows in (28, 29, 31, 32):
        with pytest.raises(
            fm.errors.ShapeError, match=f"30 columns and B has {rows} rows"
        ):
            fm.matmul(S8, sp, np.ones((rows, 8), np.int8))
    with pytest.raises(fm.errors.ShapeError, match="given a Compressed of 16x30"):
        S8(sp, np.ones((32, 8), np.int8))


@pytest.mark.parametrize("width", [7.5, "8", True, np.float64(8), 2**70, [8]])
def test_a_width_is_a_whole_number(width):
    values, codes = np.ones((1, 4), np.int8), np.full((1, 2), 0b0100, np.uint8)
    with pytest.raises(fm.errors.ShapeError, match="columns"):
        Compressed(values, codes, S8.granularity, width)
    assert Compressed(values, codes, S8.granularity, np.int8(7)).shape == (1, 7)


# ── pairs are ranked exactly ────────────────────────────────────────────────


def exact_rank(pair):
    """The sum of magnitudes as no rounding can spoil it."""
    values = [float(x) if isinstance(x, float) else int(x) for x in pair]
    if any(map(math.isnan, values)):
        return (2, 0)
    if any(map(math.isinf, values)):
        return (1, 0)
    return (0, sum(abs(Fraction(x)) for x in values))


def pruned_exactly(row):
    pairs = [row[i : i + 2] for i in range(0, 8, 2)]
    order = sorted(range(4), key=lambda i: (exact_rank(pairs[i]), -i), reverse=True)
    kept = set(order[:2])
    return [x if i // 2 in kept else type(x)(0) for i, x in enumerate(row)]


LARGEST = float(np.finfo(np.float64).max)
EXTREMES = {
    np.int64: [0, 1, -(2**63), 2**63 - 1, 2**53, 2**53 + 1, -(2**62)],
    np.uint64: [0, 1, 2**63, 2**64 - 1, 2**64 - 2, 2**53 + 1],
    np.float64: [
        0.0,
        5e-324,
        1.0,
        2.0**-60,
        1 + 2.0**-52,
        LARGEST,
        2.0**1023,
        float("inf"),
        float("nan"),
        -LARGEST,
        LARGEST / 2,
    ],
    np.float32: [0.0, 1.0, 2.0**-149, 2.0**-60, 2.0**127, float("inf"), -1.0],
}


@pytest.mark.parametrize("kind", EXTREMES, ids=lambda kind: kind.__name__)
def test_pairs_are_ranked_by_their_exact_sums(kind):
    rng = np.random.default_rng(7)
    extremes = np.array(EXTREMES[kind], kind)
    rows = rng.choice(extremes, (400, 8)).tolist()
    last = EXTREMES[kind][-1], EXTREMES[kind][1]
    rows += [[*pair, *last, 0, 0, 1, 0] for pair in product(EXTREMES[kind], repeat=2)]
    A = np.array(rows, kind)
    expected = np.array([pruned_exactly(row) for row in A.tolist()], kind)
    assert (prune(S4, A).view("u1") == expected.view("u1")).all()


def test_scores_of_pairs_are_added_exactly():
    tiny, big = 2.0**-60, LARGEST
    A = np.ones((1, 8))
    scores = [[1, 0, 1, tiny, 0, 0, 1, tiny]]
    assert prune(S4, A, scores=scores).tolist() == [[0, 0, 1, 1, 0, 0, 1, 1]]
    scores = [[big, big / 2, big, big, -big, -big, -np.inf, 0]]
    assert prune(S4, A, scores=scores).tolist() == [[1, 1, 1, 1, 0, 0, 0, 0]]
    scores = [[-np.inf, 0, -big, -big, -big, -big / 2, -np.inf, -1]]
    assert prune(S4, A, scores=scores).tolist() == [[0, 0, 1, 1, 1, 1, 0, 0]]
    with pytest.raises(
        fm.errors.ValueRangeError, match="chunk 0 contain or add up to a NaN"
    ):
        prune(S4, A, scores=[[np.inf, -np.inf, 0, 0, 0, 0, 0, 0]])


# ── masks are refused ───────────────────────────────────────────────────────


def test_masked_arrays_are_refused_by_name():
    A = np.ma.masked_array(np.ones((16, 32), np.int8), mask=np.eye(16, 32))
    B = np.ones((32, 8), np.int8)
    half = wmma.fragment(wmma.matrix_a, 16, 16, 16, wmma.half, wmma.row_major)
    calls = [
        lambda: DENSE.a.pack(A),
        lambda: DENSE.a.pack(list(A)),
        lambda: DENSE.a.pack_tiles(A),
        lambda: prune(S8, A),
        lambda: prune(S8, np.ones((16, 32)), scores=A),
        lambda: compress(S8, A),
        lambda: fm.matmul(DENSE, A, B),
        lambda: fm.matmul(DENSE, A.data, np.ma.array(B)),
        lambda: fm.matmul(DENSE, A.data, B, np.ma.zeros((16, 8), np.int32)),
        lambda: DENSE(A, B),
        lambda: DENSE.a.layout.element(L=np.ma.array([1]), R=0, E=0),
        lambda: fm.shared.Descriptor(0, 16, 16, 0).address(np.ma.array([1]), 0, "f16"),
        lambda: wmma.load_matrix_sync(half, np.ma.ones((16, 16), np.float16), 16),
    ]
    for call in calls:
        with pytest.raises(fm.Error, match="a masked array has no values"):
            call()


# ── nothing wraps ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("far", [2**62, np.uint64(2**63), 2**70, [2**31], 2**31])
def test_addresses_do_not_wrap(far):
    descriptor = fm.shared.Descriptor(0, 128, 256, swizzle=0)
    for place in ({"mn": far, "k": 0}, {"mn": 0, "k": far}):
        with pytest.raises(
            fm.errors.ShapeError, match="must be 0 to 2147483647; given"
        ):
            descriptor.address(**place, dtype="f16")
    top = 2**31 - 1
    assert descriptor.bit_address(top, top, "f16") == 8 * (
        top % 8 * 2 + top * 2 // 16 * 128 + top % 8 * 16 + top // 8 * 256
    ) - 8 * (top % 8 * 2) + 8 * (top * 2 % 16)


@pytest.mark.parametrize("far", [2**62, 2**63 - 1, 2**70, -8, np.int32(-(2**31))])
def test_descriptors_do_not_advance_beyond_all_memory(far):
    op = fm.wgmma("m64n8k16", a="f16", d="f32")
    descriptor = fm.shared.Descriptor.for_tile(128, 64, "f16", swizzle=128)
    for place in ({"k": far}, {"mn": far}):
        with pytest.raises(
            fm.errors.ShapeError, match="must be 0 to 2147483647; given"
        ):
            descriptor.advance(op, "A", **place)
    assert descriptor.advance(op, "A", mn=np.int8(64)).start == 8192


def test_swizzled_addresses_are_whole_numbers():
    for wrong in (-1, 1.5, "0", 2**63, [np.nan]):
        with pytest.raises(fm.errors.ShapeError, match="an address must be"):
            swizzled(wrong, 128)
    assert swizzled(np.uint8([255]), 128).tolist() == [255 ^ 16]


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int16, np.uint64])
def test_coordinates_are_not_of_the_callers_type(kind):
    layout = Layout.parse("row = L0  col = L1 L2 L3 L4 R*", L=32, R=16)
    found = layout.element(L=kind([31]), R=kind([15]))
    assert found["col"].tolist() == [255]
    layout = fm.wgmma("m64n256k16", a="f16", d="f32").d.layout
    found = layout.element(W=kind(0), L=kind(0), R=kind([64]), E=0)
    assert found["col"].tolist() == [128]


# ── what must go together ───────────────────────────────────────────────────


def test_explain_wants_numbers():
    A, B = np.ones((16, 32), np.int8), np.ones((32, 8), np.int8)
    with pytest.raises(fm.errors.ShapeError, match="row True is out of range"):
        DENSE.explain(A, B, row=True, col=0)
    assert DENSE.explain(A, B, row=np.int8(1), col=0).explanation.value == 32


def test_layouts_of_places_that_do_not_go_together():
    layout = DENSE.a.layout
    with pytest.raises(fm.errors.ShapeError, match=r"L \(2,\), R \(3,\)"):
        layout.element(L=[0, 1], R=[0, 1, 2], E=0)
