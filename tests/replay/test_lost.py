"""Numerics together with a replay: errors of elements, of lines, and births of NaN."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import BadCall, Error, KernelFault
from tests.replay.kernels import HEAD, LOSS
from tests.replay.test_replay import _changed

OUT = "argument 1 (out)"


def launched(**options: object) -> tuple[ptx.Result, np.ndarray]:
    given, out = np.linspace(-1, 2, 64).astype(np.float32), np.zeros(64, np.float32)
    run = ptx.parse(HEAD + LOSS).kernels["loss"].launch
    options = {"numerics": True, "replay": True, **options}
    return run(1, 64, [given, out], **options), out


@pytest.fixture(scope="module")
def both() -> tuple[ptx.Result, np.ndarray]:
    return launched()


def test_errors_are_those_of_numerics(both: tuple[ptx.Result, np.ndarray]) -> None:
    result, out = both
    replay, wanted = result.replay(), result.numerics.outputs[OUT]
    found = replay.errors(OUT)
    good = np.isfinite(out)
    assert 3 < good.sum() < 64
    assert (found.exact[good] == wanted.exact[good]).all()
    for mine, theirs in (
        (found.error, wanted.error),
        (found.ulp, wanted.ulp),
        (found.lost_bits, wanted.lost_bits),
    ):
        assert np.array_equal(mine, theirs.astype(np.float32), equal_nan=True)
    assert found.lost_bits[good].max() > 4
    assert replay.errors("argument 0 (in)") is None
    # What was recorded is what numerics are about.
    last = replay.memory_at(len(replay) - 1, OUT)[0].view(np.float32)
    assert last.tobytes() == out.tobytes() == wanted.values.astype("f4").tobytes()
    assert not result.differs


def test_findings_have_their_steps(both: tuple[ptx.Result, np.ndarray]) -> None:
    replay = both[0].replay()
    (nan,) = (each for each in replay.problems if each["code"] == "nan")
    step = nan["steps"][1]
    assert replay.sites[replay.steps.site[step]].opcode == "sqrt.rn.f32"
    before, after = (replay.registers_at(s, 0).get("%f4") for s in (step - 1, step))
    assert np.isnan(after[0])
    assert before is None or not np.isnan(before[0])
    worst = max(replay.head["numerics"]["sites"], key=lambda each: each["bits"])
    assert replay.sites[worst["site"]].opcode == "sub.rn.f32"
    (cancelled,) = (e for e in replay.problems if e["code"] == "cancellation")
    assert replay.steps.site[cancelled["steps"][1]] == worst["site"]
    numbers = [each["number"] for each in replay.problems]
    assert numbers == list(range(1, len(numbers) + 1))


def test_hazards_are_found_too_and_keep_their_numerics() -> None:
    with pytest.raises(ptx.KernelHazard) as caught:
        race()
    result = caught.value.result
    assert result.numerics.outputs
    assert caught.value.replay().head["numerics"]["outputs"]


def race() -> None:
    text = LOSS.replace("add.s64 %rd5, %rd4, %rd2;", "mov.u64 %rd5, %rd4;")
    given, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    given[40:] = 2
    run = ptx.parse(HEAD + text).kernels["loss"].launch
    run(1, 64, [given, out], numerics=True, replay=True)


def test_a_birth_that_stops_the_launch_has_the_record() -> None:
    with pytest.raises(KernelFault) as caught:
        launched(nan="raise")
    assert len(caught.value.replay()) > 20


def test_what_is_refused_changes_nothing() -> None:
    given, out = np.ones(64, np.float32), np.zeros(64, np.float32)
    run = ptx.parse(HEAD + LOSS).kernels["loss"].launch
    with pytest.raises(BadCall, match="blocks of the grid are 0 to 0; given 7"):
        run(1, 64, [given, out], numerics=True, replay=ptx.Window(blocks=(7,)))
    assert not out.any()
    with pytest.raises(BadCall, match="numerics must be True or False"):
        run(1, 64, [given, out], numerics="yes", replay=True)


def test_bits_that_differ_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([("argument 1 (out)",)])
    monkeypatch.setattr("fragmenta.launch.joining._different", lambda *_: next(found))
    replay = launched()[0].replay()
    assert "numerics" not in replay.head
    assert "left other bits in argument 1 (out)" in replay.left_out


def test_errors_of_large_arrays_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fragmenta.replay.lost.MOST_ERRORS", 32)
    replay = launched()[0].replay()
    assert replay.errors(OUT) is None
    assert "errors of out (argument 1) are not kept" in replay.left_out


def test_files_keep_errors_and_damaged_ones_are_refused(
    both: tuple[ptx.Result, np.ndarray], tmp_path: Path
) -> None:
    replay, path = both[0].replay(), tmp_path / "lost.npz"
    replay.save(path)
    kept = ptx.Replay.load(path).errors(OUT)
    for mine, theirs in zip(kept, replay.errors(OUT), strict=True):
        assert mine.tobytes() == theirs.tobytes()
    part = both[0].replay()
    assert part.head["numerics"] == replay.head["numerics"]
    with np.load(path) as found:
        arrays = dict(found)
    rng, good = np.random.default_rng(1), 0
    for _ in range(40):
        head = json.loads(arrays["head"].tobytes())
        head["numerics"] = _changed(rng, head["numerics"])
        text = np.frombuffer(json.dumps(head).encode(), np.uint8)
        np.savez(path, **{**arrays, "head": text})
        try:
            again = ptx.Replay.load(path)
        except Error:
            continue
        good += 1
        for number in range(len(again.memories)):
            again.errors(number)
    assert good
    np.savez(path, **{**arrays, "e_ulp": arrays["e_ulp"][:3]})
    with pytest.raises(Error, match="e_ulp is cut off"):
        ptx.Replay.load(path)
    old = {name: data for name, data in arrays.items() if not name.startswith("e_")}
    head = json.loads(arrays["head"].tobytes())
    del head["numerics"]
    np.savez(
        path, **{**old, "head": np.frombuffer(json.dumps(head).encode(), np.uint8)}
    )
    assert ptx.Replay.load(path).errors(OUT) is None
