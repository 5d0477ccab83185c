"""``check`` reports what is wrong and where, in text, JSON and SARIF."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fragmenta as fm
from fragmenta.commands import app
from fragmenta.ptx.checking.texts import check_text
from fragmenta.ptx.rules import RULES
from tests.asking import answer, ask, complaint, page

WRONG = """\
.version 8.0
.target sm_90a
.address_size 64
.entry f()
{
	.reg .b32 %r<3>; .reg .f32 %f<3>;
	mov.b32 %r1, 0;
	mov.f32 %f1, 0f00000000;
	add.s32 %r1, %r1, %f1;
	ret;
}
"""
RIGHT = WRONG.replace("%r1, %f1;", "%r1, 1;")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("wrong.ptx").write_text(WRONG)
    Path("right.ptx").write_text(RIGHT)


def test_a_wrong_file() -> None:
    assert page("check", "wrong.ptx", status=1) == (
        "wrong.ptx:9:20: error: b of add.s32 is a .s32 register; %f1 is declared as .f32\n"
        "    add.s32 %r1, %r1, %f1;\n"
        "                      ^~~\n"
        "  hint: mov.b32 moves its bits into a .s32 register\n"
        "1 file checked: 1 error\n"
    )


def test_files_without_problems() -> None:
    assert page("check", "right.ptx") == "1 file checked: no problems\n"
    said = page("check", "right.ptx", "wrong.ptx", "right.ptx", status=1)
    assert said.endswith("3 files checked: 1 error\n")


def test_the_standard_input() -> None:
    done = CliRunner().invoke(app, ["check", "-"], input=WRONG)
    assert done.exit_code == 1
    assert done.stdout.startswith("-:9:20: error: ")


def test_a_long_line_is_cut_around_the_problem() -> None:
    many = ", ".join(f"%r{i}" for i in range(30))
    text = RIGHT.replace("mov.b32 %r1, 0;", f"mov.b32 %r1, 0; // {'x' * 60}")
    Path("long.ptx").write_text(text.replace("ret;", f"{'/* */ ' * 30} ad.s32 {many};"))
    said = page("check", "long.ptx", status=1)
    line, mark = said.splitlines()[1:3]
    assert line[mark.index("^") :].startswith("ad.s32")


def test_one_instruction() -> None:
    op = "mma.sp.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32"
    d = "{%f0,%f1,%f2,%f3}"
    text = f"{op} {d}, {{%r0,%r1,%r2,%r3}}, {{%r4,%r5,%r6,%r7}}, {d}, %r8, 0x2;"
    said = answer("check", text, status=1)
    # The words are those of the library, at the same mistake.
    with pytest.raises(fm.Error) as refused:
        fm.instruction(text)
    assert " ".join(str(refused.value).split()) in " ".join(said.split())
    assert "0x2;\n" in said
    assert "1 text checked: 1 error" in said
    assert answer("check", "add.s32 %r1, %r2, 5;") == "1 text checked: no problems\n"
    assert "lacks" in answer("check", "@%p1 ld.relaxed.f32 %f1, [%rd1];", status=1)


def test_one_instruction_on_a_target() -> None:
    text = "redux.sync.min.f32 %f1, %f2, -1;"
    assert answer("check", text)
    said = answer("check", text, "--target", "sm_90a", status=1)
    assert "sm_90a does not have redux.sync.min.f32" in said


def test_a_syntax_error_is_one_problem() -> None:
    Path("broken.ptx").write_text(WRONG.replace("mov.b32 %r1, 0;", "mov.b32 %r1 0;"))
    said = page("check", "broken.ptx", status=1)
    assert said.startswith("broken.ptx:7:14: error: found ")
    assert said.endswith("1 file checked: 1 error\n")


def test_json() -> None:
    (found,) = json.loads(answer("check", "wrong.ptx", "--json", status=1))
    (problem,) = check_text(WRONG)
    assert found == {"file": "wrong.ptx", **problem.to_dict()}
    assert (found["rule"], found["line"], found["column"]) == ("register", 9, 20)
    assert json.loads(answer("check", "right.ptx", "--json")) == []


def test_sarif() -> None:
    Path("a b.ptx").write_text(WRONG)
    log = json.loads(answer("check", "a b.ptx", "--sarif", "-", status=1))
    assert (log["version"], log["$schema"]) == (
        "2.1.0",
        "https://json.schemastore.org/sarif-2.1.0.json",
    )
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [each["id"] for each in rules] == list(RULES)
    (result,) = run["results"]
    assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == "register"
    assert result["level"] == "error"
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b.ptx"
    assert place["region"]["startLine"] == 9
    assert place["region"]["snippet"]["text"].strip() == "add.s32 %r1, %r1, %f1;"
    empty = json.loads(answer("check", "right.ptx", "--sarif", "-"))
    assert empty["runs"][0]["results"] == []
    told = answer("check", "a b.ptx", "--sarif", "log.sarif", status=1)
    assert told == answer("check", "a b.ptx", status=1)
    assert json.loads(Path("log.sarif").read_text()) == log
    assert "already exists" in complaint("check", "a b.ptx", "--sarif", "log.sarif")
    answer("check", "a b.ptx", "--sarif", "log.sarif", "--force", status=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing.ptx",), "nothing.ptx: No such file or directory"),
        (("wrong.ptx", "--target", "sm_91"), "no target sm_91 (did you mean sm_90?)"),
        (("wrong.ptx", "--json", "--sarif", "-"), "cannot both be printed"),
        (("add.s32 %r1, %r2, 5; ret;",), "one instruction at a time"),
    ],
)
def test_bad_input(words: tuple[str, ...], message: str) -> None:
    assert message in complaint("check", *words)


def test_a_file_of_anything() -> None:
    Path("bytes.ptx").write_bytes(bytes(range(256)) * 4)
    result = ask("check", "bytes.ptx")
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    Path("empty.ptx").write_text("")
    assert "syntax" in answer("check", "empty.ptx", "--json", status=1)
