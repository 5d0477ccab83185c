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
    assert "part.npz: 24 steps; steps 10 to 33 of 34 are kept" in " ".join(said.split())
    assert len(ptx.Replay.load("part.npz")) == 24


def test_wrong_options_are_refused() -> None:
    assert "a .html or .npz file" in complaint(*ASKED, "--replay", "race.txt")
    assert "needs --replay" in complaint(*ASKED, "--replay-from", "3")
    Path("there.html").write_text("")
    assert "already exists" in complaint(*ASKED, "--replay", "there.html")
    words = complaint(*ASKED, "--replay", "other.html", "--isolated")
    assert "--replay cannot be combined with --isolated" in words


FAULT = (
    HEAD
    + """
.visible .entry past(.param .u64 x)
{
    .reg .b32 %r<3>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %ctaid.x;
    mul.wide.u32 %rd2, %r1, 64;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    bra again;
again:
    bra again;
}
"""
)
PAST = ("launch", "past.ptx", "--block", "32", "--arg", "zeros:u32:32")


def test_a_launch_that_is_stopped_has_its_steps() -> None:
    Path("past.ptx").write_text(FAULT)
    given = (*PAST, "--limit", "5000", "--replay", "past.npz", "--force")
    for more in ((), ("--no-check",)):
        result = ask(*given, *more)
        assert result.exit_code == 1
        said = "past.npz has every step until then" if more else "past.npz: 6,009 steps"
        assert said in " ".join(result.output.split())
        replay = ptx.Replay.load("past.npz")
        assert replay.sites[replay.steps.site[-1]].opcode == "bra"
        problem = replay.problems[0]
        assert problem["steps"] == [-1, len(replay) - 1]
        assert len(replay) > 5000


def test_blocks_are_chosen_and_what_is_left_out_is_told() -> None:
    Path("past.ptx").write_text(
        FAULT.replace("bra again;\nagain:\n    bra again", "ret")
    )
    wide = "zeros:u32:256"
    asked = (
        *PAST[:-1],
        wide,
        "--no-check",
        "--grid",
        "3",
        "--replay",
        "past.npz",
        "--force",
    )
    assert "only block 0 of the grid is recorded" in " ".join(answer(*asked).split())
    assert "only blocks 1, 2 of" in " ".join(answer(*asked, "--blocks", "1,2").split())
    replay = ptx.Replay.load("past.npz")
    assert [each.block for each in replay.warps] == [1, 2]
    assert "0 to 2; given 3" in complaint(*asked, "--blocks", "3")
    assert "such as 0,1; given 'x'" in complaint(*asked, "--blocks", "x")
    assert "needs --replay" in complaint(*PAST, "--blocks", "1")


def test_schedules_and_a_repair_are_beside_one_another() -> None:
    Path("right.ptx").write_text(HEAD + TURNED.replace("BARRIER", "bar.sync 0;"))
    right = ("launch", "right.ptx", *ASKED[2:], "--replay", "right.npz")
    assert ask(*right).exit_code == 0
    result = ask(
        *ASKED, "--schedules", "eager,lazy,3", "--replay", "all.npz",
        "--replay-beside", "right.npz=repaired", "--replay-beside", "right.npz",
    )  # fmt: skip
    assert result.exit_code == 1
    said = " ".join(result.output.split())
    assert "all.npz: 32 steps; beside it lazy, 3, repaired and right" in said
    found = ptx.Replay.load("all.npz")
    assert [len(each.problems) for each in found.runs] == [1, 1, 1, 0, 0]
    assert "needs --replay" in complaint(*ASKED, "--replay-beside", "right.npz")
    words = complaint(*ASKED, "--replay", "x.npz", "--replay-beside", "no.npz")
    assert "no.npz" in words


def test_errors_are_in_the_file() -> None:
    given = ("launch", "right.ptx", *ASKED[2:], "--numerics", "--replay", "lost.npz")
    Path("right.ptx").write_text(HEAD + TURNED.replace("BARRIER", "bar.sync 0;"))
    answer(*given)
    assert "numerics" in ptx.Replay.load("lost.npz").head
