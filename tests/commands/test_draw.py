"""``draw`` prints or writes the pictures of the library."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import fragmenta as fm
from fragmenta.commands import app
from tests.asking import answer, complaint


def run(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(words))
    return result.exit_code, result.output


def test_draw_in_a_pipe_is_plain() -> None:
    code, text = run("draw", "mma.m16n8k16.f32.f16", "C")
    assert code == 0
    assert text.startswith(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32\n\nC: f32"
    )
    assert "\x1b" not in text


def test_draw_everything() -> None:
    code, text = run("draw", "mma.sp.m16n8k64.s4.s4")
    assert code == 0
    assert [
        line[0] for line in text.splitlines() if re.match(r"\w+: \w+ \d", line)
    ] == [*"ABCDm"]


def test_draw_writes_pictures(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("pictures") / "a.svg"
    code, text = run("draw", "mma.m16n8k16.f32.f16", "a", "-o", str(file))
    assert code == 0
    assert text.endswith(f"A drawn in {file}\n")
    first = file.read_text(encoding="utf-8")
    assert first == fm.find("mma.m16n8k16.f32.f16").a.to_svg()
    code, text = run("draw", "mma.m16n8k16.f32.f16", "-o", str(file))
    assert code == 2
    assert "--force" in text
    assert run("draw", "mma.m16n8k16.f32.f16", "-o", str(file), "--force")[0] == 0
    assert file.read_text(encoding="utf-8") != first
    code, text = run(
        "draw", "mma.m16n8k16.f32.f16", "-o", str(file.with_suffix(".gif"))
    )
    assert code == 2
    assert ".svg, .png or .pdf" in " ".join(text.split())


def test_values_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("a.npy", np.arange(16 * 16).reshape(16, 16) / 4)
    text = answer("draw", "mma.m16n8k16.f32.f16", "A", "--values", "a.npy")
    row = next(line for line in text.splitlines() if line.split()[:1] == ["3"])
    assert row.split()[1:7] == ["T12", "12", "12.25", "T13", "12.5", "12.75"]
    answer("draw", "mma.m16n8k16.f32.f16", "A", "--values", "a.npy", "-o", "a.svg")
    part = fm.find("mma.m16n8k16.f32.f16").a
    assert Path("a.svg").read_text() == part.to_svg(np.load("a.npy"))
    for words, message in (
        ((), "needs an operand"),
        (("C",), "C is 16 x 8; given values of shape (16, 16)"),
    ):
        said = complaint("draw", "mma.m16n8k16.f32.f16", *words, "--values", "a.npy")
        assert message in said
