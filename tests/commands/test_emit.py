"""``emit`` writes what the library emits."""

from __future__ import annotations

from pathlib import Path

import pytest

import fragmenta as fm
from fragmenta.cuda.source.emit import header, to_cuda, to_ptx
from tests.asking import ask, complaint

MMA = "mma.m16n8k16.f32.f16"
WGMMA = "wgmma.m64n64k32.f32.e4m3.e4m3"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def source(*words: object) -> str:
    result = ask("emit", *words)
    assert result.exit_code == 0, result.output
    return result.stdout.rstrip("\n")


def test_emit_is_the_library() -> None:
    op, group = fm.find(MMA), fm.find(WGMMA)
    assert source(MMA) == to_cuda(op).rstrip("\n")
    assert source(WGMMA, "--a-registers") == to_cuda(group, a_registers=True).rstrip()
    words = (MMA, "--language", "ptx", "--target", "sm_80")
    assert source(*words) == to_ptx(op, target="sm_80").rstrip()


def test_tensor_memory() -> None:
    name = "tcgen05.mma.cta_group::1.kind::f16 0x08400010"
    op = fm.instruction(name)
    assert source(name, "--kernel") == to_cuda(op, kernel=True).rstrip()
    words = ("--a-tensor", "--with", "disable_output_lane", "--with", "scale_input_d")
    options = {"a_tensor": True, "disable_output_lane": True}
    right = to_cuda(op, **options, scale_input_d=True)
    assert source(name, *words) == right.rstrip()
    right = to_ptx(op, **options, scale_input_d=0)
    assert source(name, *words, "--language", "ptx") == right.rstrip()


def test_a_header_of_everything_that_fits() -> None:
    text = source("mma.m16n8k16.f32", "mma.m16n8k32.s8.s8", "--header")
    ops = [*fm.search("mma.m16n8k16.f32"), *fm.search("mma.m16n8k32.s8.s8")]
    assert len(ops) > 2
    assert text == header(ops).rstrip()


def test_emit_to_a_file() -> None:
    said = source(MMA, "-o", "mma.cuh")
    text = Path("mma.cuh").read_text()
    assert text == to_cuda(fm.find(MMA))
    assert said == f"{len(text.splitlines())} lines of CUDA to mma.cuh"
    assert "--force overwrites it" in complaint("emit", WGMMA, "-o", "mma.cuh")
    assert Path("mma.cuh").read_text() == text
    source(WGMMA, "--language", "ptx", "-o", "mma.cuh", "--force")
    assert ".visible .entry" in Path("mma.cuh").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("mma.m16n8k16.f32",), "mma.sync.aligned.m16n8k16"),
        ((MMA, WGMMA), "one instruction at a time, or a header"),
        ((MMA, "--language", "ptx", "--header"), "a header is CUDA"),
        ((MMA, "--language", "c"), "c is not cuda or ptx"),
        ((MMA, "--target", "sm_80"), "--target needs --language ptx"),
        ((MMA, "--language", "ptx", "--target", "sm_75"), "sm_75"),
        ((MMA, "--a-registers"), "only wgmma chooses"),
        ((MMA, "--kernel"), "whole kernels are for tcgen05.mma"),
        ((MMA, "--kernel", "--language", "ptx"), "a kernel is CUDA"),
        ((MMA, "--a-tensor", "--header"), "options are for one instruction"),
        ((MMA, "--with", "zero_column_mask"), "is for tcgen05.mma"),
        ((MMA, "--with", "zero_columns"), "did you mean zero_column_mask"),
        (("nonsense", "--header"), "nonsense"),
        ((), "Missing argument"),
    ],
)
def test_refusals(words: tuple[object, ...], message: str) -> None:
    assert message in complaint("emit", *words)
