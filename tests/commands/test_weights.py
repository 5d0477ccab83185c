"""``shuffle`` writes what the library packs."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from tests.asking import complaint, page

MMA = "mma.m16n8k16.f32.f16"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    codes = np.random.default_rng(0).integers(0, 16, (64, 128), dtype=np.uint8)
    np.save("w.npy", codes)


def answer(*words: object) -> str:
    return page("shuffle", *words).rstrip("\n")


def test_orders_are_listed() -> None:
    assert "sparse_marlin  Sparse-Marlin" in answer()
    assert json.loads(answer("--json"))["awq"]["bits"] == [4]


def test_an_order_is_told() -> None:
    text = answer("marlin", "--size", "64x128")
    assert "stored       offset = k3 n3 k0 n4 n5 k1 k2 n0 n1 n2 n6 k4 k5" in text
    assert "weight       4096 x 4096 (k x n), 4 bits" in answer("gptq")
    found = json.loads(answer(*MMA.split("."), "A", "--bits", 8, "--json"))
    assert found["shape"] == {"n": 4096, "k": 4096}
    assert (found["load_bytes"], found["k_steps"], found["n_steps"]) == (16, 2, 1)
    words = (
        MMA,
        "B",
        "--layout",
        "E* R* X0 X1 X2 L* X3* Y*",
        "--nibbles",
        "0,2,4,6,1,3,5,7",
    )
    same = json.loads(answer(*words, "--json"))
    assert same["stored"] == json.loads(answer("marlin", "--json"))["stored"]


def test_files_are_packed_and_unpacked() -> None:
    codes = np.load("w.npy")
    order = fm.weights.shuffle("marlin", shape=(64, 128))
    text = answer("marlin", "--pack", "w.npy", "-o", "words.npy")
    assert "written      4 x 256 uint32 to words.npy" in text
    assert (np.load("words.npy") == order.pack(codes)).all()
    answer("marlin", "--size", "64x128", "--unpack", "words.npy", "-o", "again.npy")
    assert (np.load("again.npy") == codes).all()
    np.save("u4.npy", codes.astype(ml_dtypes.uint4).view("V1"))
    answer("marlin", "--pack", "u4.npy", "-o", "words.npy", "--force")
    assert (np.load("words.npy") == order.pack(codes)).all()


def test_scales_and_zero_points() -> None:
    order = fm.weights.shuffle("marlin", shape=(64, 128))
    scales = np.arange(256, dtype=np.float16).reshape(2, 128)
    np.save("s.npy", scales)
    answer("marlin", "--size", "64x128", "--scales", "s.npy", "-o", "t.npy")
    assert (np.load("t.npy") == order.pack_scales(scales)).all()
    np.save("z.npy", scales.astype(int) % 16)
    answer("marlin", "--size", "64x128", "--zeros", "z.npy", "-o", "p.npy")
    assert (np.load("p.npy") == order.pack_zeros(scales.astype(int) % 16)).all()


def test_cuda_is_the_library() -> None:
    order = fm.weights.shuffle("marlin", shape=(64, 128))
    words = ("marlin", "--size", "64x128", "--function")
    assert answer(*words, "load") == order.to_cuda("load")
    text = order.to_cuda("repack", source="awq")
    assert answer(*words, "repack", "--source", "awq") == text
    assert (
        json.loads(answer(*words, "repack", "--source", "awq", "--json"))["cuda"]
        == text
    )
    said = answer(*words, "fragments", "--to", "bf16", "--zero", 0, "-o", "x.cuh")
    wanted = order.to_cuda("fragments", to="bf16", zero=0)
    assert Path("x.cuh").read_text() == wanted + "\n"
    assert said == f"{len(wanted.splitlines())} lines of CUDA to x.cuh"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["marlin", "--pack", "w.npy"], "name it with -o FILE"),
        (["marlin", "-o", "x.npy"], "-o needs --pack"),
        (["marlin", "--pack", "w.npy", "-o", "w.npy"], "already exists"),
        (
            ["marlin", "--pack", "w.npy", "--function", "load", "-o", "x.npy"],
            "one thing",
        ),
        (["marlin", "--pack", "w.npy", "-o", "x.txt"], "must name a .npy file"),
        (["marlin", "--unpack", "w.npy", "-o", "x.npy"], "--size KxN"),
        (["marlin", "--function", "load"], "--size KxN"),
        (["marlin", "--zero", "3"], "--zero cannot be given without --function"),
        (["--size", "64x64"], "--size cannot be given without an ORDER"),
        (["marlin", "--size", "64"], "such as 4096x11008"),
        (["marlin", "B"], "own order; operand"),
        (["marlon"], "did you mean marlin"),
        (["bf16", "B"], "fits 58 instructions; say more"),
        ([MMA], "A or B?"),
        ([MMA, "B", "--nibbles", "x"], "numbers and commas"),
        (["marlin", "--size", "32x128", "--pack", "w.npy", "-o", "x.npy"], "32x128"),
    ],
)
def test_what_cannot_be_done_is_refused(words: list[str], message: str) -> None:
    assert message in complaint("shuffle", *words)
    assert not Path("x.npy").exists()
