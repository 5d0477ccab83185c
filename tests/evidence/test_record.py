"""Files of recordings: found, read, told apart, and replayed anywhere."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.inspect.evidence import record
from fragmenta.inspect.evidence.record import CaseRecording
from fragmenta.inspect.evidence.registers import RegisterCase
from fragmenta.inspect.evidence.validation import RecordedCase
from fragmenta.reference.isa.families import catalogue
from tests.asking import ask

GOLDEN = Path(__file__).parents[1] / "golden" / "h200"


KINDS = {
    "mma": "registers",
    "mma.sp": "registers",
    "wgmma": "warpgroup",
    "moves": "moves",
    "wmma": "wmma",
}


@pytest.mark.parametrize("name", record.KINDS)
def test_files_from_before_kinds_were_written_down_are_read(name):
    with np.load(GOLDEN / f"{name}.npz") as stored:
        about = json.loads(stored["about"].tobytes())
    assert not any("kind" in each for each in about["cases"])
    found = record.load(GOLDEN / f"{name}.npz")
    assert {case.kind for case in found.cases} == {KINDS[name]}
    for case, each in zip(found.cases, about["cases"], strict=True):
        kept = {**vars(case), "shape": list(case.shape)}
        assert {field: kept[field] for field in each} == each


@pytest.mark.parametrize("name", record.KINDS)
def test_what_is_saved_says_its_kind(name, tmp_path):
    found = record.load(GOLDEN / f"{name}.npz")
    few = CaseRecording(found.made, found.cases[::60], found.words)
    few.save(tmp_path / "few.npz")
    with np.load(tmp_path / "few.npz") as stored:
        about = json.loads(stored["about"].tobytes())
    assert {each["kind"] for each in about["cases"]} == {KINDS[name]}
    again = record.load(tmp_path / "few.npz")
    assert again.cases == few.cases
    assert not [wrong for _, wrong in record.replay(again) if wrong]


def test_one_file_may_hold_cases_of_several_kinds(tmp_path):
    """Each case says how it is replayed; the file need not."""
    made, cases, words, start = {}, [], [], 0
    for name in record.KINDS:
        found = record.load(GOLDEN / f"{name}.npz")
        answer = found.result(found.cases[3]).reshape(-1).view(np.uint32)
        cases.append(replace(found.cases[3], start=start))
        words.append(answer)
        start += answer.size
        made = found.made
    CaseRecording(made, cases, np.concatenate(words)).save(tmp_path / "all.npz")
    compared = list(record.replay(record.load(tmp_path / "all.npz")))
    assert [wrong for _, wrong in compared] == [None] * 5


def test_a_kind_that_does_not_exist_is_refused(tmp_path):
    found = record.load(GOLDEN / "mma.npz")
    wrong = [replace(found.cases[0], kind="register")]
    CaseRecording(found.made, wrong, found.words).save(tmp_path / "x.npz")
    with pytest.raises(fm.Error, match=r"case 0.*register.*did you mean registers"):
        record.load(tmp_path / "x.npz")


def test_a_folder_is_replayed_as_a_whole(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    shutil.copy(GOLDEN / "moves.npz", inner)
    found = record.load(GOLDEN / "mma.npz")
    few = found.cases[::20]
    CaseRecording(found.made, few, found.words).save(tmp_path / "few.npz")
    result = ask("replay", tmp_path)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("few.npz  (NVIDIA H200, 2026-11-15)")
    assert f"{len(few)} cases  no bit differs" in lines[0]
    assert "37 cases  no bit differs" in lines[1]
    told = json.loads(ask("replay", tmp_path, "--json").stdout)
    assert [each["cases"] for each in told] == [len(few), 37]
    assert told[1]["made"]["gpu"] == "NVIDIA H200"


def test_what_is_no_recording_is_refused(tmp_path):
    text, other, empty = (tmp_path / f"{n}.npz" for n in ("text", "other", "empty"))
    text.write_text("hello")
    np.savez(other, words=np.zeros(3))
    CaseRecording({}, [], np.zeros(0, np.uint32)).save(empty)
    for path in (text, other, empty):
        result = ask("replay", path)
        assert result.exit_code == 2, path
        assert "is not a recording" in result.stderr.replace("\n", " ")
    missing = ask("replay", tmp_path / "nowhere")
    assert missing.exit_code == 2
    assert "there is no" in missing.stderr
    (tmp_path / "folder").mkdir()
    nothing = ask("replay", tmp_path / "folder")
    assert nothing.exit_code == 2
    assert "holds no recordings" in nothing.stderr.replace("\n", " ")


def test_instructions_that_do_not_exist_are_refused(tmp_path):
    name = "mma.sync.aligned.m99n9k9"
    case = RecordedCase("registers", name, None, 1, 1, "0" * 16, 0, (1, 32, 4))
    CaseRecording({"target": "sm_90a"}, [case], np.zeros(128, np.uint32)).save(
        tmp_path / "wrong.npz"
    )
    result = ask("replay", tmp_path)
    assert result.exit_code == 2
    assert "m99n9k9" in result.stderr


def test_the_counts_are_those_of_the_golden_files():
    for kind in ("mma", "mma.sp", "wgmma", "moves"):
        cases = record.load(GOLDEN / f"{kind}.npz").cases
        assert record.count_on(kind, "sm_90a") == len(cases)
    assert record.count_on("wgmma", "sm_80") == 0


def test_unknown_kinds_are_refused(monkeypatch):
    with pytest.raises(fm.Error, match="did you mean moves"):
        record.check_kind("move")


def test_block_scales_are_replayed():
    """A recording of sm_120a has them, though this project has no such GPU."""
    op = next(op for op in catalogue("mma.sp") if op.scale_vec)
    asked = RegisterCase(op, op.selectors[0], tiles=8, seed=1)
    inputs = asked.inputs()
    d = asked.expect(inputs, "sm_120a")
    case = RecordedCase(
        *("registers", str(op), asked.selector, 8, 1, asked.digest(inputs), 0, d.shape)
    )
    made = CaseRecording({"target": "sm_120a"}, [case], d.reshape(-1).view(np.uint32))
    ((_, difference),) = record.replay(made)
    assert difference is None
