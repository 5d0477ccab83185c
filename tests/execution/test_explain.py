"""One element explained: the same bits, and every number on the way."""

import json
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta import instruction

OPS = [
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64.rz",
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32",
    "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3",
    "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32",
]


def matrices(op, k, seed=0):
    rng = np.random.default_rng(seed)
    m, n, _ = op.shape

    def random(of, shape):
        if of.kind == "float":
            return rng.standard_normal(shape).astype(of.storage)
        low, high = of.limits
        return rng.integers(low, high + 1, shape).astype(of.storage)

    A = random(op.types["a"], (m, k))
    if op.sparse:
        A = fm.sparse.prune(op, A)
    C = random(op.types.get("c", op.types["d"]), (m, n))
    return A, random(op.types["b"], (k, n)), C


@pytest.mark.parametrize("text", OPS)
def test_the_explained_bits_are_the_computed_ones(text):
    op = instruction(text)
    A, B, C = matrices(op, 2 * op.shape.k)
    D = op.types["d"].encode(fm.matmul(op, A, B, C))
    for row, col in ((0, 0), (op.shape.m - 1, 7), (5, 3)):
        told = op.explain(A, B, C, row=row, col=col)
        assert told.explanation.bits == int(D[row, col]), (row, col)


def test_what_was_lost_adds_up():
    op = instruction("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3")
    A, B, C = matrices(op, 32)
    told = op.explain(A, B, C * 1000, row=1, col=2).explanation
    (step,) = told.steps
    lost = sum((term.lost for term in step.terms), Fraction())
    assert lost != 0  # thirteen bits cannot hold it all
    assert sum((t.aligned for t in step.terms), Fraction()) == step.total
    assert told.difference == step.value - step.total - lost


@pytest.mark.parametrize("text", OPS)
def test_the_losses_add_up_to_the_difference(text):
    op = instruction(text)
    A, B, C = matrices(op, 2 * op.shape.k, seed=1)
    told = op.explain(A, B, C, row=5, col=3)
    lost = told.losses
    assert lost.alignment.total + lost.rounding.total == told.explanation.difference
    if lost.ulp is not None:
        near = op.types["d"].storage.type(float(told.explanation.exact))
        assert float(lost.ulp) == abs(np.spacing(near))


def test_the_end_says_what_was_lost_and_where():
    op = fm.wgmma("m64n8k32", a="e4m3", d="f32")
    A, B = np.full((64, 32), 0.125), np.full((32, 8), 0.125)
    A[:, 7] = B[7] = 16
    text = str(op.explain(A, B, row=0, col=0)).splitlines()
    assert text[-3:] == [
        "alignment   -0.484375 (-15872 ulp) in 31 of 32 terms, most at k 0 in step 1",
        "rounding    nothing lost",
        "ulp         2^-15, of f32 at the exact result",
    ]
    rows = [line.split()[0] for line in text if line.startswith("  ")]
    assert rows[1:5] == ["0…6", "7", "8…31", "c"]


def test_integers_lose_by_wrapping_and_infinities_are_not_counted():
    op = fm.mma("m16n8k32", a="s8")
    ones = np.ones((16, 32), np.int8), np.ones((32, 8), np.int8)
    C = np.full((16, 8), 2**31 - 1, np.int32)
    text = str(op.explain(*ones, C, row=0, col=0))
    assert text.endswith("wrapping    -4294967296 in 1 of 1 steps, most in step 1")
    half = fm.mma("m16n8k16", a="f16", d="f32")
    A, B = np.ones((16, 16), np.float16), np.full((16, 8), np.inf, np.float16)
    told = half.explain(A, B, row=0, col=0)
    assert told.losses is None
    assert str(told).endswith("lost        not counted: a sum is not finite")


def test_long_sums_fit_into_80_columns():
    op = fm.mma("m16n8k16", a="f16", d="f32")
    A = np.full((16, 1040), 1.0009765625, np.float16)
    text = str(op.explain(A, A.T, row=0, col=0))
    assert "1024…1039" in text
    assert max(map(len, text.splitlines())) <= 80


def test_block_scales_are_shown():
    op = fm.find("mma.kind::mxf4nvf4.scale_vec::4X.ue4m3")
    A, B = np.ones((16, 128), np.float32), np.ones((128, 8), np.float32)
    scale_a = np.arange(8, dtype=np.float32) + np.ones((16, 1), np.float32)
    scale_b = np.full((8, 8), 0.5, np.float32)
    given = {"scale_a": scale_a, "scale_b": scale_b}
    told = op.explain(A, B, row=0, col=0, **given)
    lines = str(told).splitlines()
    first = lines.index("block scales, ue4m3")
    assert [line.split() for line in lines[first + 2 : first + 4]] == [
        ["0…15", "1", "0.5", "0.5"],
        ["16…31", "2", "0.5", "1"],
    ]
    blocks = told.to_dict()["blocks"]
    assert blocks[7] == {"k": [112, 128], "scale_a": "8", "scale_b": "0.5"}
    assert str(told.explanation.value) == str(sum(8 * (n + 1) for n in range(8)))


def test_the_text_fits_and_the_record_is_json():
    op = instruction("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32")
    A, B, C = matrices(op, 32)
    A[3, 4] = ml_dtypes.float8_e4m3fn(np.nan)
    told = op.explain(A, B, C, row=3, col=5)
    lines = str(told).splitlines()
    assert max(map(len, lines)) <= 80
    assert "nan" in str(told)
    text = json.dumps(told.to_dict(), allow_nan=False)
    assert json.loads(text)["target"] == "sm_90a"


def test_indices_and_batches_are_checked():
    op = instruction(OPS[0])
    A, B, C = matrices(op, 16)
    with pytest.raises(
        fm.errors.ShapeError, match="row 16 is out of range; it is 0 to 15"
    ):
        op.explain(A, B, C, row=16, col=0)
    with pytest.raises(fm.errors.ShapeError, match="no batch axes"):
        op.explain(A[None], B, C, row=0, col=0)


def test_numbers_beyond_float64_are_written():
    X = np.full((8, 4), 1e200)
    text = str(fm.mma("m8n8k4", a="f64").explain(X, X.T, row=0, col=0))
    assert "e+400" in text


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"C": np.ones((32, 32), np.float32)}, "A B is 16x8; C has shape"),
        ({"C": np.ones((2, 16, 8), np.float32)}, "A B is 16x8; C has shape"),
        ({"row": 1.5}, "row 1.5 is out of range"),
        ({"row": "1"}, "row 1 is out of range"),
    ],
)
def test_what_cannot_be_explained(wrong, said):
    op = fm.mma("m16n8k16", a="f16", d="f32")
    A, B = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    given = {"C": None, "row": 0, **wrong}
    with pytest.raises(fm.errors.ShapeError, match=said):
        op.explain(A, B, given["C"], row=given["row"], col=0)
