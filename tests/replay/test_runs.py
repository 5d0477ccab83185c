"""Several runs beside one another: schedules, a repair, files and places."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import BadCall, Error
from fragmenta.inspect.replay.parts import MOST_RUNS
from tests.replay.kernels import HEAD, TURNED, copied
from tests.replay.test_replay import _changed


@pytest.fixture(scope="module")
def runs() -> ptx.Replay:
    found = copied(False, ("eager", "lazy", 3)).replay()
    return found.beside(copied(True, "lazy").replay(), "repaired")


def said(replay: ptx.Replay, step: int) -> str:
    return replay.sites[replay.steps.site[step]].opcode


def test_a_launch_with_several_schedules_has_all_its_runs(runs: ptx.Replay) -> None:
    assert [each.name for each in runs.runs] == ["eager", "lazy", "3", "repaired"]
    assert [each.schedule for each in runs.runs] == ["eager", "lazy", "3", "lazy"]
    assert "beside it lazy, 3 and repaired" in repr(runs)
    eager, lazy, _, repaired = runs.runs
    assert all(isinstance(each, ptx.Replay) for each in runs.runs)
    assert not repaired.problems
    # What the copy brings is there when it is read, or it is not.
    for run in (eager, lazy):
        step = run.problems[0]["steps"][1]
        state = run.memory_at(step, "shared memory of block 0")[1][0x480]
        assert state == (1 if run is eager else 2)
    (one,) = copied(False, ("eager", "lazy")).replay("lazy").runs
    assert one.name == "lazy"


def test_each_run_has_the_problems_that_it_shows() -> None:
    """A wrong step would be shown, if steps of one run were those of another."""
    found = copied(False, ("eager", "lazy+oldest-waits")).replay()
    for run in found.runs:
        (problem,) = (e for e in run.problems if e["code"] == "read-before-arrival")
        first, second = problem["steps"]
        assert said(run, first).startswith("cp.async.bulk.")
        assert said(run, second) == "ld.shared.f32"
        assert run.steps.warp[first] == 0


def test_bits_that_differ_are_a_problem_at_the_end(runs: ptx.Replay) -> None:
    for run in runs.runs[:3]:
        (problem,) = (each for each in run.problems if each["code"] == "schedule")
        assert problem["steps"] == [-1, len(run) - 1]
    first, second = (
        run.memory_at(len(run) - 1, "argument 1 (out)")[0] for run in runs.runs[:2]
    )
    assert (first != second).any()


def test_places_of_other_runs_are_found(runs: ptx.Replay) -> None:
    for other in runs.others[:2]:
        for step in range(len(runs)):
            there = runs.aligned(step, other)
            assert other.steps.site[there] == runs.steps.site[step]
            assert other.steps.warp[there] == runs.steps.warp[step]
            assert other.aligned(there, runs) == step
    repaired, same = runs.others[2], 0
    for step in range(len(runs)):
        there = runs.aligned(step, repaired)
        here, now = (
            r.sites[r.steps.site[s]] for r, s in ((runs, step), (repaired, there))
        )
        assert repaired.steps.warp[there] == runs.steps.warp[step]
        assert (here.file, here.line) == (now.file, now.line)
        same += here.opcode == now.opcode
    assert same > 0.9 * len(runs)


def turned(text: str) -> ptx.Replay:
    given, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    run = ptx.parse(HEAD + text).kernels["turned"].launch
    return run(1, 64, [given, out], watch="report", replay=True).replay()


def test_lines_of_ptx_are_compared_without_the_numbers_of_registers() -> None:
    wrong = turned(TURNED.replace("BARRIER", ""))
    more = TURNED.replace("BARRIER", "bar.sync 0;\n    mov.u32 %r1, %r1;")
    repaired = turned(more.replace("%r7", "%r2"))
    both = wrong.beside(repaired, "repaired")
    (pair,) = both.others[0].lines_of_first
    lines = [
        line for _, theirs, n in pair["blocks"] for line in range(theirs, theirs + n)
    ]
    assert len(lines) == len(both.lines(both.ptx_file)) - 1  # the empty one
    load = wrong.problems[0]["steps"][1]
    there = both.aligned(load, both.others[0])
    assert said(both.others[0], there) == said(wrong, load) == "ld.shared.u32"
    # The barrier has no line here: what comes before it has.
    (barrier, *_) = (s for s in range(len(repaired)) if said(repaired, s) == "bar.sync")
    assert said(both, both.others[0].aligned(barrier, both)) == "st.shared.u32"


def test_a_file_has_all_runs_and_what_is_the_same_once(
    runs: ptx.Replay, tmp_path: Path
) -> None:
    path = tmp_path / "runs.npz"
    runs.save(path)
    found = ptx.Replay.load(path)
    assert repr(found) == repr(runs)
    for one, other in zip(found.runs, runs.runs, strict=True):
        assert one.head == other.head
        assert all((one.columns[n] == other.columns[n]).all() for n in one.columns)
    runs.runs[0].save(tmp_path / "one.npz")
    with np.load(path) as kept:
        assert "1.initial" not in kept.files
        assert any(each.startswith(("1.", "2.")) for each in kept.files)
    page = tmp_path / "runs.html"
    runs.to_html(page)
    text = page.read_text()
    assert text.count('id="replay-head') == 4
    alone = tmp_path / "one.html"
    ptx.Replay(runs.head, runs.columns).to_html(alone)
    assert len(text) < 2 * len(alone.read_text())


def test_wrong_runs_are_refused(runs: ptx.Replay) -> None:
    with pytest.raises(BadCall, match="is a Replay; given 3"):
        runs.beside(3)
    with pytest.raises(BadCall, match="eager, lazy, 3 and repaired are there"):
        runs.beside(runs)
    with pytest.raises(BadCall, match="at most 40 letters"):
        runs.beside(runs, "x" * 41)
    with pytest.raises(BadCall, match="is a Replay"):
        runs.aligned(0, None)
    many = runs
    for number in range(MOST_RUNS - 4):
        many = many.beside(runs, f"run {number}")
    with pytest.raises(BadCall, match=f"at most {MOST_RUNS} runs"):
        many.beside(runs, "more")


@pytest.mark.long
def test_damaged_files_with_runs_are_refused(tmp_path: Path) -> None:
    made = turned(TURNED.replace("BARRIER", ""))
    made = made.beside(turned(TURNED.replace("BARRIER", "bar.sync 0;")), "repaired")
    path, rng, good = tmp_path / "run.npz", np.random.default_rng(0), 0
    made.save(path)
    with np.load(path) as kept:
        arrays = dict(kept)
    for _ in range(60):
        given = dict(arrays)
        name = str(rng.choice(["head", "1.head", *given]))
        if name.endswith("head"):
            head = _changed(rng, json.loads(given[name].tobytes()))
            given[name] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        else:
            given[name] = given[name][: given[name].size // 2]
        np.savez(path, **given)
        try:
            found = ptx.Replay.load(path)
        except Error:
            continue
        good += 1
        for other in found.others:
            for step in range(0, len(found), 7):
                found.aligned(step, other)
    assert good
