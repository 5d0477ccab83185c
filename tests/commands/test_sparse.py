"""The commands about sparsity judge, prune, compress and decode."""

from __future__ import annotations

import json
import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta.reference.sparse.compression import report as sparsity_report
from tests.asking import answer, ask, complaint, page

F16 = "mma.sp::ordered_metadata.m16n8k32.f32.f16"
S4 = "mma.sp::ordered_metadata.m16n8k64.s4.s4"
TF32 = "mma.sp::ordered_metadata.m16n8k16.f32.tf32"
WGMMA = "wgmma.sp.m64n8k64.f32.e4m3.e4m3"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def archive(path: str) -> dict[str, np.ndarray]:
    with np.load(path) as found:
        return dict(found)


# ── sparsity ────────────────────────────────────────────────────────────────


def test_a_sparse_matrix() -> None:
    A = np.ones((6, 16), "f2")
    A[:, ::2] = 0
    np.save("a.npy", A)
    assert page("sparsity", "a.npy", F16).splitlines()[1:] == [
        "file       a.npy, 6 x 16, satisfies 2:4",
        "zeros      48 of 96 (50.00%)",
        "too full   0 of 24 chunks (0.00%)",
    ]


def test_a_dense_chunk_is_named_and_is_status_1() -> None:
    A = np.zeros((6, 16), "f2")
    A[2, 8:11] = 1
    A[5, :4] = -1
    np.save("a.npy", A)
    assert page("sparsity", "a.npy", F16, status=1).splitlines()[1:] == [
        "file       a.npy, 6 x 16, does not satisfy 2:4",
        "zeros      89 of 96 (92.71%)",
        "too full   2 of 24 chunks (8.33%)",
        "first      row 2, chunk 2 (columns 8 to 11): 3 values",
        "           row 5, chunk 0 (columns 0 to 3): 4 values",
    ]
    parsed = json.loads(page("sparsity", "a.npy", F16, "--json", status=1))
    assert (parsed["violating"], parsed["chunks"], parsed["satisfied"]) == (
        2,
        24,
        False,
    )
    assert parsed["first"][1] == {"index": [5, 0], "columns": [0, 3], "non_zeros": 4}


@pytest.mark.parametrize("text", [F16, S4, TF32])
@pytest.mark.parametrize("shape", [(40, 32), (2, 3, 20, 64)])
def test_violations_are_those_of_a_plain_loop(
    text: str, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    op = fm.find(text)
    g = op.granularity
    assert g is not None
    random = np.random.default_rng(0)
    A = random.integers(0, 2, shape) * (random.random(shape) < 0.6)
    np.save("a.npy", A.astype(np.int8))
    too_full = []
    for index in np.ndindex(*shape[:-1], shape[-1] // g.chunk):
        *row, chunk = index
        values = A[tuple(row)][chunk * g.chunk : (chunk + 1) * g.chunk]
        count = sum(map(any, values.reshape(g.places, g.group)))
        if count > g.picks:
            too_full.append({"index": list(index), "non_zeros": count})
    monkeypatch.setattr("fragmenta.commands.sparse._BLOCK", 100)
    parsed = json.loads(page("sparsity", "a.npy", text, "--json", status=1))
    assert parsed["violating"] == len(too_full) > 5
    for found in parsed["first"]:
        del found["columns"]
    assert parsed["first"] == too_full[:5]
    assert f"and {len(too_full) - 5} more" in page("sparsity", "a.npy", text, status=1)


def test_unrounded_weights_are_judged_by_their_zeros() -> None:
    A = np.random.default_rng(0).standard_normal((8, 16))
    A[:, 1::2] = 0
    np.save("a.npy", A)
    assert "satisfies 2:4" in page("sparsity", "a.npy", F16)
    assert "cannot hold it exactly" in complaint(
        "sparsity", "a.npy", F16, "--compress", "-o", "x.npz"
    )
    page("sparsity", "a.npy", F16, "--prune", "-o", "x.npz")
    assert (archive("x.npz")["pruned"] == A).all()


def test_raw_items_are_the_type_of_the_instruction() -> None:
    A = np.random.default_rng(0).standard_normal((64, 64))
    small = A.astype(ml_dtypes.float8_e4m3fn)
    np.save("a.npy", small)
    parsed = json.loads(page("sparsity", "a.npy", WGMMA, "--json", status=1))
    report = sparsity_report(fm.find(WGMMA), small)
    assert parsed["violating"] == report.violating
    assert parsed["zeros"] == report.zeros


@pytest.mark.parametrize(
    ("text", "storage"),
    [(F16, "f2"), (S4, ml_dtypes.int4), (TF32, "f4"), (WGMMA, ml_dtypes.float8_e4m3fn)],
)
def test_pruned_and_compressed_are_the_library(text: str, storage: type) -> None:
    op = fm.find(text)
    A = (3 * np.random.default_rng(0).standard_normal((32, 64))).astype(storage)
    np.save("a.npy", A)
    page("sparsity", "a.npy", text, "--prune", "-o", "p.npz")
    said = page("sparsity", "a.npy", text, "--prune", "--compress", "-o", "c.npz")
    pruned = fm.sparse.prune(op, A)
    sp = fm.sparse.compress(op, pruned)
    assert archive("p.npz")["pruned"].tobytes() == pruned.tobytes()
    found = archive("c.npz")
    assert found["values"].tobytes() == sp.values.tobytes()
    assert (found["indices"] == sp.indices).all()
    assert int(found["width"]) == 64
    assert str(found["type"]) == op.types["a"].name
    assert said.splitlines()[-1] == (
        f"written    values 32 x 32 and indices 32 x {sp.indices.shape[1]} to c.npz"
    )


def test_padding_is_asked_for() -> None:
    np.save("a.npy", np.ones((4, 6), "f2"))
    assert "adds 2 zeros" in complaint("sparsity", "a.npy", F16)
    page("sparsity", "a.npy", F16, "--pad", status=1)
    words = ("sparsity", "a.npy", F16, "--pad", "--prune", "--compress")
    page(*words, "-o", "a.npz")
    assert int(archive("a.npz")["width"]) == 6
    assert archive("a.npz")["values"].shape == (4, 4)


def test_sparsity_refuses() -> None:
    np.save("a.npy", np.ones((4, 8), "f2"))
    for words, message in [
        (("--prune",), "name it with -o FILE"),
        (("-o", "x.npz"), "-o needs --prune, --compress or both"),
        (("--compress", "-o", "x.npz"), "--prune makes them fit"),
        (
            ("--prune", "-o", "a.npy"),
            "-o must name a .npz file; did you mean a.npy.npz?",
        ),
        (("--prune", "--selector", "0", "-o", "x.npz"), "--selector needs --compress"),
        (("--compress", "--selector", "4", "-o", "x.npz"), "selector 4 is out of"),
    ]:
        assert message in complaint("sparsity", "a.npy", F16, *words)
    assert "is dense" in complaint("sparsity", "a.npy", "mma.m16n8k16.f32.f16")
    assert "is dense" in complaint("sparsity", "mma.m16n8k16.f32.f16", "a.npy")
    assert os.listdir() == ["a.npy"]


def test_sparsity_takes_the_file_first_or_last() -> None:
    np.save("a.npy", np.eye(4, 8, dtype="f2"))
    assert answer("sparsity", F16, "a.npy") == answer("sparsity", "a.npy", F16)


# ── metadata ────────────────────────────────────────────────────────────────


def test_metadata_of_pairs() -> None:
    assert page("metadata", S4, "0xe4e4d894").splitlines()[1:7] == [
        "lane 0, read with selector 0",
        "  nibble  code  row  chunk  kept      columns",
        "       0  0100    0      0  xxxx....  0 1 2 3",
        "       1  1001    0      1  ..xxxx..  10 11 12 13",
        "       2  1000    0      2  xx..xx..  16 17 20 21",
        "       3  1101    0      3  ..xx..xx  26 27 30 31",
    ]


def test_metadata_says_what_is_illegal() -> None:
    text = page("metadata", S4, "0x44444437", "0", status=1)
    for line in (
        "       0  0111    0      0  ????????  illegal",
        "lane 0, nibble 0: code 0111 names pair 3 before 1; ordered metadata names the",
        "  lower one first",
        "lane 0, nibble 1: code 0011 names pair 3 before 0; ordered metadata names the",
        "lane 1, nibbles 0-7: code 0000 names pair 0 twice",
    ):
        assert line in text.splitlines()


def test_the_order_matters_only_where_it_is_promised() -> None:
    swapped = "0x11111111"
    page("metadata", S4, swapped, status=1)
    assert "xxxx" in page("metadata", S4.replace("::ordered_metadata", ""), swapped)


def test_metadata_of_a_warpgroup() -> None:
    text = "wgmma.sp.m64n8k32.f32.f16"
    lines = page("metadata", text, "44ee44ee", "--warp", 1, "--lane", 2).splitlines()
    assert lines[1] == "warp 1, lane 2, read with selector 1"
    assert lines[3] == "       0  1110   16      0  ..xx  2 3"


def test_metadata_of_one_selector() -> None:
    words = ("metadata", "mma.sp.m16n8k16.f32.f16", "44444444", "eeeeeeee")
    both = page(*words)
    assert "lane 0, read with selector 0" in both
    assert "lane 1, read with selector 1" in both
    one = page(*words, "--selector", 1)
    assert "lane 0" not in one
    none = ask(*words, "--selector", 3)
    assert (none.exit_code, none.stdout) == (1, "")
    assert "No word is in a lane that selector 3 reads" in none.stderr


@pytest.mark.parametrize("text", [F16, S4, TF32, WGMMA])
def test_metadata_reads_what_the_library_packs(text: str) -> None:
    """Every row, chunk and column of a tile comes back from its words."""
    op = fm.find(text)
    A = np.random.default_rng(0).integers(1, 8, (op.shape.m, op.shape.k))
    sp = fm.sparse.compress(op, fm.sparse.prune(op, A))
    words = op.metadata.pack(sp.indices)[:, 0]
    per = op.metadata.granularity.kept
    found = json.loads(
        page("metadata", text, *map(hex, words), "--selector", 0, "--json")
    )
    assert found["legal"]
    columns = np.full((op.shape.m, op.shape.k // 2), -1)
    for code in found["codes"]:
        at = slice(code["chunk"] * per, (code["chunk"] + 1) * per)
        columns[code["row"], at] = code["columns"]
    assert (columns == sp.columns()).all()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((S4, "0xg"), "'0xg' is not a hexadecimal number"),
        ((S4, ""), "'' is not a hexadecimal number"),
        ((S4, "0x1ffffffff"), "a metadata word has 32 bits"),
        ((S4, "-1"), "a metadata word has 32 bits"),
        ((S4, "4", "--lane", 32), "lanes are 0 to 31"),
        ((S4, "4", "--lane", -1), "lane -1 is out of range"),
        ((S4, "4", "--warp", 1), "there is one warp, 0"),
        ((WGMMA, "4", "--warp", 4), "warps are 0 to 3"),
        ((S4, "4", "4", "--lane", 31), "do not fit"),
        ((S4, "4", "--selector", 2), "it is 0 or 1"),
        (("mma.m16n8k64.s4.s4", "4"), "is dense"),
        ((S4,), "Missing argument"),
    ],
)
def test_metadata_refuses(words: tuple[object, ...], message: str) -> None:
    assert message in complaint("metadata", *words)


def test_metadata_words_of_a_matrix() -> None:
    """The archive has what the instruction reads, tile by tile."""
    rng = np.random.default_rng(5)
    np.save("a.npy", rng.integers(-8, 8, (20, 70), np.int8))
    for name, selector in ((S4, 1), (TF32, 0), (WGMMA, 0)):
        op = fm.find(name)
        words = ("sparsity", "a.npy", name, "--prune", "--compress", "--pad", "--force")
        page(*words, "--selector", selector, "-o", "a.npz")
        found = archive("a.npz")
        tiles = found["metadata"]
        assert tiles.shape[2] == op.metadata.lanes
        for row, column in np.ndindex(tiles.shape[:2]):
            codes = op.metadata.unpack(tiles[row, column, :, None], selector=selector)
            rows, chunks = codes.shape
            whole = found["indices"][rows * row :, chunks * column :][:rows, :chunks]
            part = codes[: len(whole), : whole.shape[1]]
            np.testing.assert_array_equal(part, whole)
