"""``run`` computes what the library computes, and compares it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta.commands.float64_errors import compare
from tests.asking import complaint, page

F16 = "mma.m16n8k16.f32.f16"
S8 = "mma.m16n8k32.s32.s8.s8"
E4M3 = "mma.m16n8k32.f32.e4m3.e4m3"
SPARSE = "mma.sp::ordered_metadata.m16n8k32.f32.f16"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(**matrices: object) -> None:
    for name, matrix in matrices.items():
        np.save(f"{name}.npy", np.asarray(matrix))


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# ── the result ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "a", "b"),
    [
        (F16, np.float16, np.float16),
        (E4M3, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fn),
        (
            "wgmma.m64n8k32.f32.e5m2.e4m3",
            ml_dtypes.float8_e5m2,
            ml_dtypes.float8_e4m3fn,
        ),
        ("mma.m16n8k64.s4.s4", ml_dtypes.int4, ml_dtypes.int4),
        (S8, np.int8, np.int8),
        ("mma.m16n8k8.f32.tf32", np.float32, np.float32),
        ("wmma.mma.row.col.m16n16k16.f32.bf16", ml_dtypes.bfloat16, ml_dtypes.bfloat16),
    ],
)
def test_run_is_the_library(text: str, a: type, b: type) -> None:
    op = fm.find(text)
    A = (3 * normal(20, 70)).astype(a)
    B = (3 * normal(70, 9, seed=1)).astype(b)
    C = np.round(normal(20, 9, seed=2)).astype(op.d.dtype.storage)
    save(a=A, b=B, c=C)
    page("matmul", text, "a.npy", "b.npy", "c.npy", "-o", "d.npy")
    expected = fm.matmul(op, A, B, C)
    found = np.load("d.npy")
    assert found.dtype == expected.dtype
    assert found.tobytes() == expected.tobytes()


def test_run_for_a_target() -> None:
    A, B = normal(16, 64).astype("f2"), normal(64, 8, seed=1).astype("f2")
    save(a=A, b=B)
    text = page("matmul", F16, "a.npy", "b.npy", "-o", "d.npy", "--target", "sm_80")
    assert "target  sm_80" in text.splitlines()
    expected = fm.matmul(fm.find(F16), A, B, target="sm_80")
    assert (np.load("d.npy") == expected).all()


@pytest.mark.parametrize("how", [["--prune"], ["--prune", "--compress"]])
def test_run_takes_what_sparsity_writes(how: list[str]) -> None:
    A, B = normal(32, 96).astype("f2"), normal(96, 8, seed=1).astype("f2")
    save(a=A, b=B)
    page("sparsity", "a.npy", SPARSE, *how, "-o", "a.npz")
    page("matmul", SPARSE, "a.npz", "b.npy", "-o", "d.npy")
    op = fm.find(SPARSE)
    expected = fm.matmul(op, fm.sparse.prune(op, A), B)
    assert (np.load("d.npy") == expected).all()


def test_run_takes_compressed_bytes_of_their_own_type_only() -> None:
    text = "mma.sp.m16n8k64.f32.{0}.{0}"
    A = np.zeros((16, 64), ml_dtypes.float8_e4m3fn)
    save(a=A, b=np.zeros((64, 8), ml_dtypes.float8_e4m3fn))
    page("sparsity", "a.npy", text.format("e4m3"), "--compress", "-o", "a.npz")
    page("matmul", text.format("e4m3"), "a.npz", "b.npy", "-o", "d.npy")
    said = complaint("matmul", text.format("e5m2"), "a.npz", "b.npy", "-o", "e.npy")
    assert "a.npz holds e4m3" in said
    assert "multiplies" not in said
    assert "is dense" in complaint("matmul", E4M3, "a.npz", "b.npy", "-o", "e.npy")


def test_run_with_block_scales() -> None:
    op = fm.find("mma.m16n8k32.kind::mxf8f6f4.e4m3.e4m3")
    A = normal(16, 64).astype(ml_dtypes.float8_e4m3fn)
    B = normal(64, 8, seed=1).astype(ml_dtypes.float8_e4m3fn)
    scale_a = np.full((16, 2), 2.0).astype(ml_dtypes.float8_e8m0fnu)
    scale_b = np.full((2, 8), 0.25).astype(ml_dtypes.float8_e8m0fnu)
    save(a=A, b=B, sa=scale_a, sb=scale_b)
    words = ("matmul", op, "a.npy", "b.npy", "--compare", "float64", "--json")
    scales = ("--scale-a", "sa.npy", "--scale-b", "sb.npy")
    found = json.loads(page(*words, *scales, "-o", "d.npy"))
    expected = fm.matmul(op, A, B, scale_a=scale_a, scale_b=scale_b)
    assert (np.load("d.npy") == expected).all()
    assert found["compare"]["relative_error"]["max"] < 1e-2
    assert found["scale_a"]["type"] == "ue8m0"
    assert "give --scale-a and --scale-b" in complaint(*words)
    assert "takes no scales" in complaint(
        "matmul", E4M3, "a.npy", "b.npy", *scales, "-o", "x.npy"
    )


# ── the comparison ──────────────────────────────────────────────────────────


def compared(text: str, **matrices: object) -> dict[str, object]:
    save(**matrices)
    files = [f"{name}.npy" for name in matrices]
    whole = page("matmul", text, *files, "--compare", "float64", "--json")
    found = json.loads(whole)["compare"]
    assert isinstance(found, dict)
    return found


def test_exact_sums_have_no_error() -> None:
    random = np.random.default_rng(0)
    A = random.integers(-128, 128, (40, 100), np.int8)
    B = random.integers(-128, 128, (100, 10), np.int8)
    found = compared(S8, a=A, b=B, c=np.full((40, 10), -7, np.int32))
    assert found["absolute_error"]["max"] == 0
    assert found["differ_from_rounded"] == 0
    assert "absolute error  none" in page(
        "matmul", S8, "a.npy", "b.npy", "--compare", "float64"
    )


@pytest.mark.parametrize("operation", ["xor", "and"])
def test_bits_have_no_error(operation: str) -> None:
    random = np.random.default_rng(0)
    A, B = random.integers(0, 2, (16, 300)), random.integers(0, 2, (300, 8))
    text = f"mma.m16n8k256.b1.b1.s32.{operation}.popc"
    assert compared(text, a=A, b=B)["absolute_error"]["max"] == 0


def test_integers_that_wrap_are_wrong() -> None:
    """1 more than the greatest s32 is 2**32 off, and its sign is the other."""
    A, B = np.zeros((16, 32), np.int8), np.zeros((32, 8), np.int8)
    A[3, 0], B[0, 5] = 1, 1
    C = np.full((16, 8), 2**31 - 1, np.int32)
    found = compared(S8, a=A, b=B, c=C)
    assert found["absolute_error"]["max"] == 2**32
    assert found["absolute_error"]["at"] == [3, 5]
    assert found["differ_from_rounded"] == 1


def test_errors_are_those_of_a_plain_loop() -> None:
    """Every number once more, from Python's own fractions."""
    from fractions import Fraction

    A, B = normal(5, 40).astype("f2"), normal(40, 3, seed=1).astype("f2")
    C = normal(5, 3, seed=2).astype("f4")
    found = compared(F16, a=A, b=B, c=C)
    D = fm.matmul(fm.find(F16), A, B, C)
    absolute, relative, differing = {}, {}, 0
    for row, col in np.ndindex(5, 3):
        exact = Fraction(float(C[row, col])) + sum(
            Fraction(float(x)) * Fraction(float(y))
            for x, y in zip(A[row], B[:, col], strict=True)
        )
        error = abs(Fraction(float(D[row, col])) - exact)
        absolute[row, col], relative[row, col] = error, error / abs(exact)
        differing += np.float32(float(exact)) != D[row, col]
    for name, errors in (("absolute_error", absolute), ("relative_error", relative)):
        where = max(errors, key=lambda at: errors[at])
        mean = float(sum(errors.values()) / len(errors))
        said = found[name]
        assert said["max"] == pytest.approx(float(errors[where]), rel=1e-6)
        assert said["at"] == list(where)
        assert said["mean"] == pytest.approx(mean, rel=1e-6)
    assert found["differ_from_rounded"] == differing
    assert found["elements"] == 15


def test_what_is_not_finite_is_counted_apart() -> None:
    A, B = np.ones((16, 16), "f2"), np.ones((16, 8), "f2")
    A[2, 3], A[4, 4] = np.inf, np.nan
    found = compared(F16, a=A, b=B)
    assert found["not_finite"] == 16
    assert found["absolute_error"]["max"] == 0
    assert found["differ_from_rounded"] == 0
    A[:] = np.nan
    assert compared(F16, a=A, b=B)["absolute_error"]["max"] is None
    text = page("matmul", F16, "a.npy", "b.npy", "--compare", "float64")
    assert "128 elements, left out of the errors" in text


def test_blocks_of_rows_are_one_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    A, B = normal(2, 30, 40).astype("f2"), normal(40, 7, seed=1).astype("f2")
    op = fm.find(F16)
    D = fm.matmul(op, A, B)
    told: list[float] = []
    whole = compare(op, A, B, None, D, {}, told.append)
    monkeypatch.setattr("fragmenta.commands.float64_errors._ROWS", 21)
    parts = compare(op, A, B, None, D, {}, told.append)
    assert parts.absolute.at == whole.absolute.at
    assert len(parts.absolute.at) == 3
    assert parts.relative.greatest == whole.relative.greatest
    assert parts.absolute.total == pytest.approx(whole.absolute.total)
    assert parts.differing == whole.differing
    assert told[-1] == 1


def test_tf32_is_compared_as_it_is_given() -> None:
    """The low 13 bits of an input are ignored, which is told and is an error."""
    A, B = np.zeros((16, 8), "f4"), np.zeros((8, 8), "f4")
    A[0, 0], B[0, 0] = 1 + 2**-20, 1
    found = compared("mma.m16n8k8.f32.tf32", a=A, b=B)
    assert found["absolute_error"]["max"] == 2**-20
    lines = page("matmul", "mma.m16n8k8.f32.tf32", "a.npy", "b.npy").splitlines()
    assert lines[2].endswith("a.npy, low bits of 1 element ignored")
    assert lines[3].endswith("from b.npy")


# ── what is said, and what is refused ───────────────────────────────────────


def test_run_says_what_it_did() -> None:
    save(a=np.ones((20, 30), "f2"), b=np.ones((30, 9), "f2"))
    assert page("matmul", F16, "a.npy", "b.npy", "-o", "d.npy").splitlines()[1:] == [
        "target  sm_90a",
        "A       20 x 30 f16 from a.npy",
        "B       30 x 9 f16 from b.npy",
        "D       20 x 9 f32 to d.npy",
    ]
    words = ("matmul", F16, "a.npy", "b.npy", "-o", "d.npy", "--force", "--json")
    assert json.loads(page(*words))["D"] == {
        "file": "d.npy",
        "shape": [20, 9],
        "type": "f32",
    }


def test_refusals_leave_no_file() -> None:
    save(a=np.ones((20, 30), "f2"), b=np.ones((31, 9), "f2"), third=[[1 / 3]])
    before = sorted(os.listdir())
    for words, message in [
        ((F16, "a.npy", "b.npy"), "A has 30 columns and B has 31 rows"),
        ((F16, "a.npy", "none.npy"), "none.npy: No such file or directory"),
        (
            (F16, "third.npy", "b.npy"),
            "third.npy: 0.3333333333333333 at [0, 0]: f16 cannot hold",
        ),
        ((S8, "third.npy", "b.npy"), "s8 holds integers from -128 to 127"),
        ((F16, "a.npy", "a.npy", "--target", "sm_75"), "needs PTX 7.0, sm_80+"),
        ((F16, "a.npy", "a.npy", "--target", "sm_91"), "did you mean sm_90?"),
        (("ldmatrix.m8n8.x1.b16", "a.npy", "b.npy"), "does not multiply"),
        (("movmatrix", "a.npy", "b.npy"), "does not multiply"),
        ((SPARSE, "a.npy", "b.npy"), "2:4"),
    ]:
        assert message in complaint("matmul", *words, "-o", "d.npy")
    assert sorted(os.listdir()) == before
    said = complaint("matmul", F16, "a.npy", "b.npy", "-o", "d.txt")
    assert "-o must name a .npy file; did you mean d.txt.npy?" in said
    assert "'-' is not a file name" in complaint(
        "matmul", F16, "a.npy", "b.npy", "-o", "-"
    )
    said = complaint("matmul", F16, "a.npy", "b.npy", "--compare", "float32")
    assert "float32 is not float64" in said


def test_a_result_that_fits_no_memory_is_one_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("fragmenta.commands.compute.matmul", full)
    save(a=np.ones((16, 16), "f2"), b=np.ones((16, 8), "f2"))
    said = complaint("matmul", F16, "a.npy", "b.npy", "-o", "d.npy")
    assert "not enough memory for a D of 16 x 8" in said


def test_an_existing_result_is_refused_before_anything_is_read() -> None:
    save(d=np.zeros(1))
    assert "--force" in complaint("matmul", F16, "none.npy", "none.npy", "-o", "d.npy")


# ── explain ─────────────────────────────────────────────────────────────────


def test_explain_is_the_library() -> None:
    A, B = normal(20, 40).astype("f2"), normal(40, 9, seed=1).astype("f2")
    C = normal(20, 9, seed=2).astype("f4")
    save(a=A, b=B, c=C)
    words = ("explain", F16, "a.npy", "b.npy", "c.npy", "--row", 17, "--col", 8)
    told = fm.find(F16).explain(A, B, C, row=17, col=8, target="sm_80")
    assert page(*words, "--target", "sm_80") == f"{told}\n"
    parsed = json.loads(page(*words, "--json"))
    D = fm.matmul(fm.find(F16), A, B, C)
    assert parsed["bits"] == int(D.view(np.uint32)[17, 8])


@pytest.mark.parametrize(
    "text",
    [
        F16,
        SPARSE,
        S8,
        "wgmma.m64n8k32.f32.e4m3.e5m2",
        "mma.m16n8k256.b1.b1.s32.xor.popc",
        "mma.m16n8k64.kind::mxf4nvf4.ue4m3",
        "mma.m8n8k4.f64",
    ],
)
def test_explain_of_random_matrices(text: str) -> None:
    """The same seed is the same matrices; another is not."""
    words = ("explain", text, "--row", 3, "--col", 5, "--seed")
    first = page(*words, 1)
    assert "difference" in first
    assert page(*words, 1) == first
    assert page(*words, 2) != first


def test_explain_writes_json_that_everything_reads() -> None:
    A = np.ones((16, 16), "f2")
    A[0, 3] = np.inf
    save(a=A, b=np.ones((16, 8), "f2"))
    text = page("explain", F16, "a.npy", "b.npy", "--row", 0, "--col", 0, "--json")

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    parsed = json.loads(text, parse_constant=refuse)
    assert parsed["value"] == parsed["steps"][0]["total"] == "inf"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give the files of A and B, or --seed N"),
        (("a.npy",), "give the files of A and B"),
        (("a.npy", "a.npy", "--seed", 1), "--seed replaces the files"),
        (("--seed", -1), "a seed must be 0 or more"),
        (("--seed", "x"), "x is not a whole number"),
        (("--seed", 1, "--row", 16), "row 16 is out of range; it is 0 to 15"),
        (("--seed", 1, "--col", -1), "col -1 is out of range; it is 0 to 7"),
        (("--seed", 1, "--target", "sm_75"), "needs PTX 7.0, sm_80+"),
    ],
)
def test_explain_refuses(words: tuple[object, ...], message: str) -> None:
    save(a=np.ones((16, 16), "f2"))
    assert message in complaint("explain", F16, "--row", 0, "--col", 0, *words)


def test_explain_needs_an_element_and_a_product() -> None:
    assert "'--col'" in complaint("explain", F16, "--seed", 1, "--row", 0)
    words = ("--seed", 1, "--row", 0, "--col", 0)
    assert "does not multiply" in complaint("explain", "movmatrix", *words)


def test_a_result_that_goes_nowhere_is_shown() -> None:
    save(a=np.eye(16, dtype="f2"), b=np.full((16, 8), 0.5, "f2"))
    lines = page("matmul", F16, "a.npy", "b.npy").splitlines()
    assert lines[-16:] == [
        f"{'[[' if row == 0 else ' ['}{' '.join(['0.5'] * 8)}{']]' if row == 15 else ']'}"
        for row in range(16)
    ]
    save(a=np.ones((320, 16), "f2"), b=np.ones((16, 80), "f2"))
    assert "..." in page("matmul", F16, "a.npy", "b.npy")
