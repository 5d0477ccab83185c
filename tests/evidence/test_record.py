"""Files of recordings: found, read, told apart, and replayed anywhere."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.evidence import record, wgmma_record
from fragmenta.evidence.record import Case, Recording
from tests.asking import ask

GOLDEN = Path(__file__).parents[1] / "golden" / "h200"


def test_every_kind_of_file_is_told_by_what_is_in_it():
    assert type(record.load(GOLDEN / "mma.npz")) is Recording
    for name in ("wgmma", "moves"):
        found = record.load(GOLDEN / f"{name}.npz")
        assert isinstance(found, wgmma_record.SharedRecording)


def test_a_folder_is_replayed_as_a_whole(tmp_path):
    inner = tmp_path / "inner"
    inner.mkdir()
    shutil.copy(GOLDEN / "moves.npz", inner)
    found = record.load(GOLDEN / "mma.npz")
    few = found.cases[::20]
    Recording(found.made, few, found.words).save(tmp_path / "few.npz")
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
    Recording({}, [], np.zeros(0, np.uint32)).save(empty)
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
    case = Case("mma.sync.aligned.m99n9k9", None, 1, 1, "0" * 16, 0, (1, 32, 4))
    Recording({"target": "sm_90a"}, [case], np.zeros(128, np.uint32)).save(
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
    from fragmenta.evidence import inputs
    from fragmenta.isa.families import catalogue

    op = next(op for op in catalogue("mma.sp") if op.scale_vec)
    each = next(inputs.trials(op, 8, 1))
    d = record.on_cpu(op, each, "sm_120a")
    case = Case(str(op), each.selector, 8, 1, each.digest(), 0, d.shape)
    made = Recording({"target": "sm_120a"}, [case], d.reshape(-1).view(np.uint32))
    ((_, difference),) = record.replay(made)
    assert difference is None
