"""`fragmenta launch` shows the problems of a kernel, and fails because of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fragmenta.ptx.rules import RULES
from tests.asking import answer, ask, complaint, page

RACE = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry reverse(.param .u64 out)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd0, [out];
    mov.u32 %r0, %tid.x;
    mov.u32 %r1, tile;
    shl.b32 %r2, %r0, 2;
    add.u32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %r0;
    BARRIER
    sub.u32 %r4, 252, %r2;
    add.u32 %r5, %r1, %r4;
    ld.shared.u32 %r6, [%r5];
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    st.global.u32 [%rd2], %r6;
    ret;
}
"""
ASKED = ("launch", "race.ptx", "--block", "64", "--arg", "zeros:u32:64")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("race.ptx").write_text(RACE.replace("BARRIER", ""))
    Path("right.ptx").write_text(RACE.replace("BARRIER", "bar.sync 0;"))


def test_a_race_is_told() -> None:
    result = ask(*ASKED)
    assert result.exit_code == 1
    said = result.stderr
    flat = " ".join(said.split())
    assert "race.ptx:19:5: error: shared-race: block (0, 0, 0): ld.shared of" in flat
    assert "reads tile" in flat
    assert "st.shared of warp" in flat
    assert "at PTX line 15 wrote it, and nothing orders the two" in flat
    assert "    ld.shared.u32 %r6, [%r5];\n    ^~~~~~~~~~~~~" in said
    assert (
        "hint: Let a barrier (bar.sync) come between the two: before PTX line 19."
        in flat
    )
    assert all(len(line) <= 80 for line in said.splitlines())
    assert not Path("out.npy").exists()


def test_report_shows_and_saves_in_spite_of_errors() -> None:
    result = ask(*ASKED, "--problems", "report", "--save", "0=out.npy")
    assert result.exit_code == 1
    assert "problems      " in result.stdout
    assert "shared-race: " in result.stdout
    assert np.load("out.npy").shape == (64,)


def test_right_kernels_end_well() -> None:
    words = ("launch", "right.ptx", "--block", "64", "--arg", "zeros:u32:64")
    assert "problems" not in page(*words)
    found = json.loads(answer(*words, "--json", "--schedules", "eager,lazy,3"))
    assert found["problems"] == []


def test_nothing_is_looked_for_with_no_check() -> None:
    assert "race" not in page(*ASKED, "--no-check").replace("race.ptx", "")


@pytest.mark.parametrize("how", ["raise", "report"])
def test_json_has_the_problems(how: str) -> None:
    found = json.loads(answer(*ASKED, "--json", "--problems", how, status=1))
    problem = found["problems"][0]
    assert (problem["rule"], problem["severity"]) == ("shared-race", "error")
    assert (problem["line"], problem["block"]) == (19, [0, 0, 0])
    assert problem["count"] > 1
    assert problem["related"][0]["line"] == 15
    assert problem["related"][0]["text"] == "st.shared.u32 [%r3], %r0;"


def test_sarif_is_written_to_a_file() -> None:
    ask(*ASKED, "--sarif", "race.sarif")
    log = json.loads(Path("race.sarif").read_text())
    (run,) = log["runs"]
    result = run["results"][0]
    assert list(RULES)[result["ruleIndex"]] == result["ruleId"] == "shared-race"
    place = result["locations"][0]["physicalLocation"]
    assert place["region"]["startLine"] == 19
    (related,) = result["relatedLocations"]
    assert related["physicalLocation"]["region"]["startLine"] == 15
    assert related["message"]["text"] == "the other access"
    assert json.loads(ask(*ASKED, "--sarif", "-").stdout) == log
    assert "cannot both be printed" in complaint(*ASKED, "--sarif", "-", "--json")
    assert "already exists" in complaint(*ASKED, "--sarif", "race.sarif")


def test_faults_are_in_sarif_too() -> None:
    words = ("launch", "right.ptx", "--block", "64", "--arg", "zeros:u32:8")
    ask(*words, "--sarif", "fault.sarif")
    (run,) = json.loads(Path("fault.sarif").read_text())["runs"]
    assert run["results"][0]["ruleId"] == "fault"
    assert "out of bounds" in run["results"][0]["message"]["text"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--problems", "ignore"), "problems is 'raise' or 'report'"),
        (("--schedule", "lazy", "--schedules", "1,2"), "cannot both be given"),
        (("--schedule", "soon"), "soon"),
        (("--cluster", "a"), "--cluster takes one to three whole numbers"),
        (("--cluster", "2"), "cannot be divided into clusters"),
    ],
)
def test_bad_input(words: tuple[str, ...], message: str) -> None:
    assert message in complaint(*ASKED, *words)


def test_a_timeline_is_drawn() -> None:
    result = ask(*ASKED, "--timeline", "race.svg")
    assert result.exit_code == 1
    assert "problems      " in result.stdout
    assert "1  shared-race" in Path("race.svg").read_text()
    assert "already exists" in complaint(*ASKED, "--timeline", "race.svg")
    assert "must end in .svg" in complaint(*ASKED, "--timeline", "race.txt")
    assert "without --no-check" in complaint(
        *ASKED, "--timeline", "other.svg", "--no-check"
    )


COMPILED = """
.file 1 "MINE"
.file 2 "LIBRARY"
""" + RACE.replace(
    "    st.shared.u32 [%r3], %r0;",
    "    .loc 1 3 5\n    st.shared.u32 [%r3], %r0;",
).replace(
    "    ld.shared.u32 %r6, [%r5];",
    "    .loc 2 40 1, function_name $L__info_string0, inlined_at 1 4 9\n"
    "    .loc 1 7 2, function_name $L__info_string0, inlined_at 2 40 1\n"
    "    ld.shared.u32 %r6, [%r5];",
)


def located(places: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """The files and lines of places of SARIF."""
    found = [each["physicalLocation"] for each in places]
    return [
        (each["artifactLocation"]["uri"], each["region"]["startLine"]) for each in found
    ]


@pytest.mark.parametrize("here", [True, False])
def test_sarif_names_the_line_of_the_user(here: bool, tmp_path: Path) -> None:
    """The kernel's own line, if that file is here; else the PTX."""
    mine = tmp_path / "my kernel.cu"
    if here:
        mine.write_text("\n")
    installed = "/usr/include/copy.h"
    text = COMPILED.replace("MINE", str(mine)).replace("LIBRARY", installed)
    head, _, rest = text.partition(".address_size 64")
    files, _, version = head.partition(".version")
    text = f".version{version}.address_size 64\n{files}{rest}"
    Path("compiled.ptx").write_text(text.replace("BARRIER", ""))
    ask("launch", "compiled.ptx", *ASKED[2:], "--sarif", "k.sarif")
    (run,) = json.loads(Path("k.sarif").read_text())["runs"]
    result = next(e for e in run["results"] if e["ruleId"] == "shared-race")
    (primary,) = located(result["locations"])
    related = located(result["relatedLocations"])
    ptx = ("compiled.ptx", text.splitlines().index("    ld.shared.u32 %r6, [%r5];") + 1)
    uri = "my%20kernel.cu"
    chain = [(uri, 4), (f"file://{installed}", 40), (uri, 7)]
    assert (uri, 3) in related  # the other access
    if here:
        assert primary == (uri, 4)
        assert related[:3] == [ptx, *chain[1:]]
    else:
        assert primary == ptx
        assert related[:3] == chain


def test_a_fault_in_sarif_has_the_line_of_the_user() -> None:
    Path("k.cu").write_text("\n")
    text = '.version 8.0\n.target sm_80\n.address_size 64\n.file 1 "k.cu"\n'
    text += (
        ".entry f() { .reg .b64 %rd; mov.u64 %rd, 0;\n.loc 1 9 1\nst.u32 [%rd], 0; }"
    )
    Path("fault.ptx").write_text(text)
    ask("launch", "fault.ptx", "--block", "1", "--sarif", "fault.sarif")
    (run,) = json.loads(Path("fault.sarif").read_text())["runs"]
    assert located(run["results"][0]["locations"]) == [("k.cu", 9)]


@pytest.mark.long
def test_problems_on_a_terminal_have_numbers_and_colours() -> None:
    from tests.commands.test_cli import terminal

    said = terminal([*ASKED, "--problems", "report"], status=1, NO_COLOR="")
    assert "\x1b[1;7m1 \x1b[0m\x1b[1mrace.ptx:19:5:" in said
    assert "\x1b[1;31merror: shared-race" in said
    assert re.search(r"\x1b\[32m +hint: ", said)
    plain = terminal([*ASKED, "--problems", "report"], status=1, NO_COLOR="1")
    assert "\n1 race.ptx:19:5: error: shared-race" in plain.replace("\r", "")
    assert "\x1b" not in plain


def test_problems_have_numbers_beside_a_picture() -> None:
    said = ask(*ASKED, "--timeline", "race.svg").stdout
    assert "\n1 race.ptx:19:5: error: shared-race" in said
