"""`fragmenta launch --replay` writes the steps of a launch."""

from __future__ import annotations

from pathlib import Path

import pytest

from fragmenta import ptx
from tests.asking import answer, ask, complaint
from tests.replay.kernels import HEAD, TURNED

ASKED = ("launch", "turned.ptx", "--block", "64", "--arg", "arange:u32:64")
ASKED = (*ASKED, "--arg", "zeros:u32:64")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("turned.ptx").write_text(HEAD + TURNED.replace("BARRIER", ""))


def test_a_race_is_kept_in_a_page_and_in_a_file() -> None:
    result = ask(*ASKED, "--replay", "race.html")
    assert result.exit_code == 1
    assert '"code":"shared-race"' in Path("race.html").read_text()
    assert ask(*ASKED, "--replay", "race.npz").exit_code == 1
    replay = ptx.Replay.load("race.npz")
    assert [each["missing"] for each in replay.problems] == ["bar.sync"]


def test_steps_that_are_left_out_are_told() -> None:
    Path("turned.ptx").write_text(HEAD + TURNED.replace("BARRIER", "bar.sync 0;"))
    said = answer(*ASKED, "--replay", "part.npz", "--replay-from", "10")
    assert "part.npz: steps 10 to 33 of 34 are kept" in " ".join(said.split())
    assert len(ptx.Replay.load("part.npz")) == 24


def test_wrong_options_are_refused() -> None:
    assert "a .html or .npz file" in complaint(*ASKED, "--replay", "race.txt")
    assert "needs --replay" in complaint(*ASKED, "--replay-from", "3")
    Path("there.html").write_text("")
    assert "already exists" in complaint(*ASKED, "--replay", "there.html")
    words = complaint(*ASKED, "--replay", "other.html", "--isolated")
    assert "--replay cannot be combined with --isolated" in words
