"""Whole matrices: equal to chaining instructions by hand, at every edge."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fragmenta as fm
from fragmenta import instruction
from fragmenta.reference.arithmetic import integers

F16 = instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
HALF = instruction("mma.sync.aligned.m16n8k8.row.col.f16.f16.f16.f16")
S8 = instruction("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32")
SAT = instruction("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32")
U4 = instruction("mma.sync.aligned.m16n8k64.row.col.s32.u4.s4.s32")
B1 = instruction("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc")
SP8 = instruction(
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.u8.s32"
)
SPF = instruction(
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
)
TF32 = instruction("mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32")
SCALED = (
    "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
    ".f32.e4m3.e4m3.f32.ue8m0"
)
OPS = [F16, HALF, S8, SAT, U4, B1, SP8, SPF, TF32]


def random(of, shape, rng):
    if of.kind == "float":
        return rng.standard_normal(shape).astype(of.storage)
    low, high = of.limits
    return rng.integers(low, high + 1, shape).astype(of.storage)


def by_hand(op, A, B, C, target):
    """Tile by tile, k ascending, through the registers of the instruction."""
    m, n, k = op.shape
    M, N, K = C.shape[0], C.shape[1], B.shape[0]
    up = [-M % m, -N % n, -K % k]
    A = np.pad(A, [(0, up[0]), (0, K + up[2] - A.shape[1])])
    B = np.pad(B, [(0, up[2]), (0, up[1])])
    D = np.pad(C, [(0, up[0]), (0, up[1])])
    for i in range(0, M, m):
        for j in range(0, N, n):
            c = op.c.pack(D[i : i + m, j : j + n])
            for p in range(0, K, k):
                a = A[i : i + m, p : p + k]
                extra = {}
                if op.sparse:
                    sp = fm.sparse.compress(op, a)
                    extra["metadata"] = op.metadata.pack(sp.indices)
                    a = sp.values
                b = op.b.pack(B[p : p + k, j : j + n])
                c = op.execute(op.a.pack(a), b, c, target=target, **extra)
            D[i : i + m, j : j + n] = op.d.unpack(c)
    return D[:M, :N]


@settings(max_examples=6, deadline=None)
@given(st.data())
@pytest.mark.parametrize("op", OPS, ids=str)
def test_any_size_equals_chaining_by_hand(op, data):
    M, N = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 20))
    K = data.draw(st.integers(1, 3 * op.shape.k))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    A, B = random(op.types["a"], (M, K), rng), random(op.types["b"], (K, N), rng)
    C = random(op.types["c"], (M, N), rng)
    if op.types["a"].is_integer:
        near = C.astype(np.int64) // 2**20 + 2**31 - 2**12  # wraps, or saturates
        C = near.astype(np.uint32).view(np.int32)
    if op.sparse:
        K += -K % op.granularity.chunk
        A = fm.sparse.prune(op, random(op.types["a"], (M, K), rng))
        B = random(op.types["b"], (K, N), rng)
    found = fm.matmul(op, A, B, C, target="sm_90")
    expected = by_hand(op, A, B, C, "sm_90")
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("op", [S8, U4, SP8, SAT], ids=str)
def test_the_fast_integers_are_the_plain_ones(op, monkeypatch):
    rng = np.random.default_rng(1)
    A, B = random(op.types["a"], (65, 640), rng), random(op.types["b"], (640, 33), rng)
    if op.sparse:
        A = fm.sparse.prune(op, A)
    fast = fm.matmul(op, A, B)
    monkeypatch.setattr(integers, "suits_blas", lambda *_: False)
    assert (fm.matmul(op, A, B) == fast).all()
    assert (fast == A.astype(np.int64) @ B.astype(np.int64)).all()


def test_batches_broadcast():
    rng = np.random.default_rng(2)
    A = rng.standard_normal((2, 1, 20, 30)).astype(np.float16)
    B = rng.standard_normal((3, 30, 10)).astype(np.float16)
    D = fm.matmul(F16, A, B)
    assert D.shape == (2, 3, 20, 10)
    assert (D[1, 2] == fm.matmul(F16, A[1, 0], B[2])).all()


def test_compressed_and_text_are_taken():
    rng = np.random.default_rng(3)
    A = fm.sparse.prune(SPF, rng.standard_normal((20, 64)).astype(ml_dtypes.bfloat16))
    B = rng.standard_normal((64, 10)).astype(ml_dtypes.bfloat16)
    assert (
        fm.matmul(str(SPF), A, B) == fm.matmul(SPF, fm.sparse.compress(SPF, A), B)
    ).all()


def test_block_scales_along_k():
    op = instruction(
        "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X"
        ".f32.e4m3.e2m1.f32.ue8m0"
    )
    A = np.ones((20, 64), ml_dtypes.float8_e4m3fn)
    B = np.ones((64, 10), ml_dtypes.float4_e2m1fn)
    scale_a = np.full((20, 2), 2.0, np.float32).astype(ml_dtypes.float8_e8m0fnu)
    scale_b = np.full((2, 10), 0.5, np.float32).astype(ml_dtypes.float8_e8m0fnu)
    D = fm.matmul(op, A, B, scale_a=scale_a, scale_b=scale_b)
    assert (D == 64).all()


def test_progress_is_reported_to_the_end():
    seen = []
    A, B = np.ones((300, 64), np.float16), np.ones((64, 9), np.float16)
    fm.matmul(F16, A, B, progress=seen.append)
    assert seen[-1] == 1.0
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("A", "B", "C", "words"),
    [
        ((16, 32), (31, 8), None, "A has 32 columns and B has 31 rows"),
        ((16,), (16, 8), None, "2 axes or more"),
        ((2, 16, 32), (3, 32, 8), None, "do not broadcast together"),
        ((16, 32), (32, 8), (16, 9), "C has shape"),
    ],
)
def test_shapes_that_do_not_fit(A, B, C, words):
    C = None if C is None else np.zeros(C, np.int32)
    with pytest.raises(fm.errors.ShapeError, match=words):
        fm.matmul(S8, np.zeros(A, np.int8), np.zeros(B, np.int8), C)


def test_what_does_not_multiply_is_refused():
    with pytest.raises(fm.Error, match="does not multiply"):
        fm.matmul(fm.find("movmatrix"), np.zeros((8, 8)), np.zeros((8, 8)))


def test_batches_of_scales_broadcast():
    op = instruction(SCALED)
    A = np.ones((20, 64), ml_dtypes.float8_e4m3fn)
    B = np.ones((64, 10), ml_dtypes.float8_e4m3fn)
    scale_a = 2.0 ** np.arange(3)[:, None, None] * np.ones((3, 20, 2))
    scale_a = scale_a.astype(ml_dtypes.float8_e8m0fnu)
    scale_b = np.ones((2, 10), ml_dtypes.float8_e8m0fnu)
    found = fm.matmul(op, A, B, scale_a=scale_a, scale_b=scale_b)
    assert found.shape == (3, 20, 10)
    assert found[:, 0, 0].tolist() == [64, 128, 256]
    with pytest.raises(
        fm.errors.ShapeError, match="batch axes do not broadcast together"
    ):
        fm.matmul(op, np.stack([A, A]), B, scale_a=scale_a, scale_b=scale_b)


@pytest.mark.parametrize("op", [F16, S8], ids=str)
def test_sums_of_nothing_are_refused(op):
    of = op.types["a"].storage
    with pytest.raises(fm.errors.ShapeError, match="nothing to multiply"):
        fm.matmul(op, np.ones((4, 0), of), np.ones((0, 4), of))


def test_what_moves_multiplies_nothing():
    op = instruction("ldmatrix.sync.aligned.m8n8.x1.shared.b16")
    A, B = np.ones((16, 16)), np.ones((16, 8))
    for call in (op, lambda A, B: op.explain(A, B, row=0, col=0)):
        with pytest.raises(fm.Error, match="does not multiply; mma"):
            call(A, B)
