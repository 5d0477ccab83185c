"""``quantize`` does what the library does, and files keep the result."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import fragmenta as fm
from fragmenta.base.arrays.safetensors import SafeArrays, to_bytes
from tests.asking import answer, complaint, page

NVFP4 = fm.mma("m16n8k64", a="e2m1", kind="mxf4nvf4", stype="ue4m3")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    np.save("x.npy", rng.standard_t(3, (20, 100)))
    np.save("y.npy", rng.standard_t(3, (100, 9)).astype(np.float32))


def x() -> np.ndarray:
    return np.load("x.npy")


def test_the_report_is_that_of_the_library() -> None:
    q = fm.quant.quantize("nvfp4", x())
    told = fm.quant.report(x(), q)
    parsed = json.loads(answer("quantize", "x.npy", "nvfp4", "--json"))
    assert {key: parsed[key] for key in told.to_dict()} == told.to_dict()
    assert parsed["format"] == "nvfp4"
    assert parsed["scales"] == [20, 7]
    assert q.tensor_scale is not None
    assert parsed["tensor_scale"] == [float(q.tensor_scale.item())]
    text = page("quantize", "x.npy", "nvfp4")
    assert "format   nvfp4: e2m1, one ue4m3 for 16 along axis -1, rule nearest" in text
    assert f"zeroed   {told.zeroed} of 2000" in text


@pytest.mark.parametrize(
    ("words", "options", "known"),
    [
        (["mxfp4"], ["--rule", "up"], {"op": "mxfp4", "rule": "up"}),
        (["int8"], ["--per", "tensor"], {"op": "s8", "per": "tensor"}),
        (["int4"], ["--per", "16"], {"op": "s4", "per": 16}),
        (["e4m3"], ["--operand", "B"], {"op": "e4m3", "operand": "B"}),
        (["nvfp4"], ["--tensor-scale", "1"], {"op": "nvfp4", "tensor_scale": 1}),
        (["mma", "nvfp4", "m16n8k64"], [], {"op": NVFP4}),
        ([str(NVFP4)], [], {"op": NVFP4}),
    ],
)
def test_files_keep_everything(
    words: list[str], options: list[str], known: dict[str, object]
) -> None:
    q = fm.quant.quantize(X=x(), **known)  # type: ignore[arg-type]
    page("quantize", "x.npy", *words, *options, "-o", "q.npz")
    page("quantize", "q.npz", "--dequantize", "-o", "back.npy")
    assert (np.load("back.npy") == fm.quant.dequantize(q)).all()
    with np.load("q.npz") as kept:
        assert kept["values"].tobytes() == q.values.tobytes()
        assert kept["scales"].tobytes() == q.scales.tobytes()
        assert [str(kept[name]) for name in ("format", "rule", "block", "axis")] == [
            q.format,
            q.rule,
            str(q.block),
            str(q.axis),
        ]


def test_run_takes_the_files() -> None:
    answer("quantize", "x.npy", "nvfp4", "-o", "a.npz")
    answer("quantize", "y.npy", "nvfp4", "--operand", "B", "-o", "b.npz")
    text = page("matmul", "mma", "nvfp4", "m16n8k64", "a.npz", "b.npz", "-o", "d.npy")
    assert "A       20 x 100 e2m1 from a.npz" in text
    a, b = (
        fm.quant.quantize(NVFP4, x()),
        fm.quant.quantize(NVFP4, np.load("y.npy"), operand="B"),
    )
    assert (np.load("d.npy") == fm.matmul(NVFP4, a, b)).all()
    words = ("matmul", NVFP4, "a.npz", "b.npz", "--compare", "float64", "--json")
    judged = json.loads(answer(*words))["compare"]
    assert judged["relative_error"]["max"] < 1e-4
    told = json.loads(
        answer("explain", NVFP4, "a.npz", "b.npz", "--row", 1, "--col", 2, "--json")
    )
    assert a.tensor_scale is not None
    assert b.tensor_scale is not None
    assert told["factor"] == float((a.tensor_scale * b.tensor_scale).item())


def test_run_says_what_scales_numbers() -> None:
    said = complaint("matmul", NVFP4, "x.npy", "y.npy")
    assert "'fragmenta quantize' scales numbers so that they fit" in said


def test_run_multiplies_with_outer_scales() -> None:
    answer("quantize", "x.npy", "s8", "-o", "a.npz")
    answer("quantize", "y.npy", "s8", "--operand", "B", "-o", "b.npz")
    words = ("matmul", "mma.m16n8k32.s8.s8", "a.npz", "b.npz")
    assert "D       20 x 9 f32 to d.npy" in page(*words, "-o", "d.npy")
    a, b = (
        fm.quant.quantize("s8", x()),
        fm.quant.quantize("s8", np.load("y.npy"), operand="B"),
    )
    assert (np.load("d.npy") == fm.matmul(fm.mma("m16n8k32", a="s8"), a, b)).all()
    np.save("c.npy", np.ones((20, 9), np.int32))
    assert "C would be multiplied" in complaint(*words, "c.npy")


def test_what_is_refused() -> None:
    answer("quantize", "x.npy", "mxfp4", "-o", "q.npz")
    np.savez("parts.npz", values=np.ones((2, 2)), scales=np.ones((2, 1)))
    two = {"a": np.ones((2, 32), np.float32), "b": np.ones((2, 32), np.float32)}
    Path("two.safetensors").write_bytes(b"".join(to_bytes(two)))
    np.save("raw.npy", np.ones((4, 4), np.uint8).view("V1"))
    for words, message in (
        (("x.npy",), "name a format after the file: nvfp4"),
        (("x.npy", "fp8"), "fp8 may be mxfp8_e4m3, mxfp8_e5m2, e4m3 or e5m2"),
        (("x.npy", "nvfp5"), "did you mean nvfp4?"),
        (("x.npy", "mxfp4", "-o", "q.npz"), "q.npz already exists; --force overwrites"),
        (("x.npy", "mxfp4", "-o", "q.npy"), "-o must name a .npz or .safetensors file"),
        (("x.npy", "mxfp4", "--rule", "down"), "the rules ocp, up and nearest"),
        (("x.npy", "s8", "--per", "half"), "per is row, column or tensor"),
        (("x.npy", "mxfp4", "--tensor-scale", "2"), "mxfp4 has no tensor scale"),
        (("q.npz", "mxfp4"), "q.npz is quantised already"),
        (("raw.npy", "mxfp4"), "items of 1 bytes without a type"),
        (("x.npy", "mxfp4", "--packed"), "name it with -o"),
        (("x.npy", "s8", "--packed", "-o", "p.npz"), "e2m1, e4m3 or e5m2; given s8"),
        (("q.npz", "--dequantize", "--packed"), "given also --packed"),
        (("two.safetensors", "mxfp4"), "name one, such as two.safetensors:a"),
        (("two.safetensors:c", "mxfp4"), "has no tensor 'c'"),
        (("q.npz", "--dequantize"), "name it with -o FILE.npy"),
        (("x.npy", "--dequantize", "-o", "z.npy"), "takes a file of quantize"),
        (("q.npz", "e4m3", "--dequantize", "-o", "z.npy"), "given also e4m3"),
        (("parts.npz", "--dequantize", "-o", "z.npy"), "has no dtype, scale_dtype"),
    ):
        assert message in complaint("quantize", *words), words
    assert "has its own scales" in complaint(
        "matmul", NVFP4, "q.npz", "q.npz", "--scale-a", "x.npy"
    )


def test_the_report_counts_by_hand() -> None:
    """7.5 / 1 is beyond 6 and its half step; 0.1 becomes 0; 7.0 is half way."""
    X = np.array([[7.5, 7.0, 0.1, 0.0, -6.0]])
    found = fm.quant.report(X, fm.quant.quantize("mxfp4", X))
    assert (found.clipped, found.zeroed, found.elements) == (1, 1, 5)
    assert (found.max_error, found.at) == (1.5, (0, 0))
    assert found.smallest_scale == found.largest_scale == 1.0
    errors = np.sqrt(1.5**2 + 1 + 0.1**2) / np.sqrt((X**2).sum())
    assert found.relative_rms == pytest.approx(errors)
    nothing = fm.quant.report([[0.0]], fm.quant.quantize("e4m3", [[0.0]]))
    assert nothing.relative_rms == nothing.max_error == nothing.largest_scale == 0
    with pytest.raises(fm.errors.ShapeError):
        fm.quant.report(np.ones((2, 2)), fm.quant.quantize("mxfp4", X))


def test_the_report_of_many_rows_is_that_of_one_piece() -> None:
    X = np.random.default_rng(1).standard_t(2, (3, 200, 900))
    X[2, 150, 7] = 1e5  # far from the first rows
    q = fm.quant.quantize("mxfp4", X)
    found, errors = fm.quant.report(X, q), np.abs(X - fm.quant.dequantize(q))
    assert found.at == np.unravel_index(errors.argmax(), X.shape)
    assert found.max_error == errors.max()
    assert found.zeroed == np.count_nonzero((q.values == 0) & (X != 0))
    rms = np.linalg.norm(errors) / np.linalg.norm(X)
    assert found.relative_rms == pytest.approx(rms, rel=1e-12)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize("packed", [(), ("--packed",)])
@pytest.mark.parametrize(
    "form", ["nvfp4", "mxfp4", "mxfp8_e5m2", "e4m3", "mxfp6_e2m3", "s8"]
)
@pytest.mark.parametrize("operand", "AB")
def test_every_file_holds_the_same_numbers(
    form: str, operand: str, packed: tuple[str, ...], ending: str
) -> None:
    numbers = np.random.default_rng(1).normal(size=(64, 32)).astype(np.float32)
    np.save("w.npy", numbers)
    q = fm.quant.quantize(form, numbers, operand=operand)
    words = ("quantize", "w.npy", form, "--operand", operand, "-o", f"q.{ending}")
    if packed and form in ("mxfp6_e2m3", "s8"):
        assert "takes e2m1, e4m3 or e5m2" in complaint(*words, *packed)
        return
    answer(*words, *packed)
    answer("quantize", f"q.{ending}", "--dequantize", "-o", "back.npy")
    assert np.array_equal(np.load("back.npy"), fm.quant.dequantize(q))


def test_packed_bytes_are_those_of_cublas() -> None:
    """Two e2m1 in a byte, the first one low; scale (r, c) at 16 (r % 32) + 4 (r // 32)
    + c of its block of 128 x 4, the blocks of a row one after the other."""
    numbers = np.zeros((130, 128), np.float32)
    numbers[:, 0::2], numbers[:, 1::2] = 1.0, 6.0
    numbers *= np.exp2(np.arange(130) % 5)[:, None].astype(np.float32)
    np.save("w.npy", numbers)
    words = ("quantize", "w.npy", "nvfp4", "--tensor-scale", "1", "--packed", "-o")
    answer(*words, "q.safetensors")
    found = SafeArrays("q.safetensors")
    assert found.metadata["packed"] == "cublas"
    assert set(found) == {"values", "scales", "tensor_scale"}
    values, scales = found["values"], found["scales"]
    assert (values.shape, values.dtype) == ((130, 64), np.uint8)
    assert (values == 0x72).all()  # 1.0 is code 2, 6.0 is code 7
    assert (scales.shape, scales.dtype) == ((2 * 2 * 512,), np.uint8)
    for row, col in ((0, 0), (1, 7), (33, 3), (97, 4), (127, 5), (129, 2)):
        block = row // 128 * 2 + col // 4
        inside = 16 * (row % 32) + 4 * (row % 128 // 32) + col % 4
        ue4m3 = (row % 5 + 7) << 3  # a power of two
        assert scales[512 * block + inside] == ue4m3
    assert not scales[1024 + 16 * 2 :: 16][: 512 // 16 - 2].any()  # rows beyond 129


def test_a_tensor_of_a_model_is_read(tmp_path: Path) -> None:
    x = np.random.default_rng(2).normal(size=(16, 64)).astype(ml_dtypes.bfloat16)
    tensors = {"layers.0.weight": x, "layers.1.weight": x * 2}
    Path("m.safetensors").write_bytes(b"".join(to_bytes(tensors)))
    answer("quantize", "m.safetensors:layers.1.weight", "e4m3", "-o", "q.npz")
    answer("quantize", "q.npz", "--dequantize", "-o", "back.npy")
    wide = (x * 2).astype(np.float32)
    assert np.array_equal(
        np.load("back.npy"), fm.quant.dequantize(fm.quant.quantize("e4m3", wide))
    )
    np.save("b.npy", np.ones((64, 8), np.float32))
    a = "m.safetensors:layers.0.weight"
    answer("matmul", "mma.m16n8k16.f32.bf16", a, "b.npy", "-o", "d.npy")
    op = fm.find("mma.m16n8k16.f32.bf16")
    D = fm.matmul(op, x, np.ones((64, 8)))
    assert np.array_equal(np.load("d.npy"), D)
