"""Numerics together with a replay: errors of elements, of lines, and births of NaN."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import BadCall, Error, KernelFault
from fragmenta.inspect.replay.trimming import trimmed
from fragmenta.ptx import Replay
from tests.replay.kernels import CHANGED, HEAD, LOSS, WIDE
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


def test_a_recording_is_of_the_run_with_numerics(
    both: tuple[ptx.Result, np.ndarray],
) -> None:
    (each,) = both[0].followed
    assert each is both[0].numerics
    alone, out = launched(replay=False)
    assert out.tobytes() == both[1].tobytes()
    assert str(alone.numerics["out"].error) == str(each["out"].error)


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


# ── over time ───────────────────────────────────────────────────────────────

X, SUM = "argument 0 (x)", "argument 1 (sum)"
COUNT = 70
"""Threads: the last warp has few."""


def inputs() -> np.ndarray:
    return np.linspace(0.1, 0.7, COUNT).astype(np.float32)


def changed(**options: object) -> ptx.Result:
    run = ptx.parse(HEAD + CHANGED).kernels["changed"].launch
    arguments = [inputs(), np.zeros(1, np.float32)]
    return run(
        1, COUNT, arguments, numerics=True, replay=True, watch="report", **options
    )


@pytest.fixture(scope="module")
def moments() -> ptx.Result:
    return changed(schedule=["eager", "oldest-waits", "random-7"])


def stores(replay: ptx.Replay) -> dict[int, tuple[str, int, np.ndarray]]:
    """The steps that store: what, how often that was, and the threads."""
    found, times = {}, {}
    for step, (site, warp, lanes) in enumerate(zip(*replay.steps, strict=True)):
        opcode = replay.sites[site].opcode
        if opcode.startswith(("st.", "red.")):
            number = times[opcode, warp] = times.get((opcode, warp), -1) + 1
            mask = int(lanes) >> np.arange(32) & 1
            threads = 32 * replay.warps[warp].warp + np.flatnonzero(mask)
            found[step] = opcode[:2], number, threads
    return found


def test_each_value_has_its_own_error_in_each_schedule(moments: ptx.Result) -> None:
    exact_x = inputs().astype(np.float64)
    last = set()
    for replay in moments.replay().runs:
        exact, total = np.full(COUNT, np.nan), 0.0
        written = stores(replay)
        for step in range(-1, len(replay)):
            opcode, number, threads = written.get(step, ("", 0, np.empty(0, int)))
            if opcode == "st":
                now = exact_x + 1e4, exact_x, 2 * exact_x
                exact[threads] = now[number][threads]
            elif opcode == "re":
                total += exact_x[threads].sum()
            found = replay.errors(X, step)
            held = replay.memory_at(step, X)[0].view(np.float32)
            assert np.array_equal(found.known, ~np.isnan(exact))
            np.testing.assert_allclose(found.exact, exact, rtol=1e-15)
            wanted = (held - exact).astype(np.float32)
            np.testing.assert_allclose(found.error, wanted, rtol=1e-5, atol=1e-12)
            if total:
                found = replay.errors(SUM, step)
                held = replay.memory_at(step, SUM)[0].view(np.float32)
                assert found.known.all()
                np.testing.assert_allclose(found.exact, total, rtol=1e-14)
                assert abs(found.error[0] - (held[0] - total)) < 1e-9
        last.add(float(replay.errors(SUM, len(replay) - 1).error[0]))
        for name in (X, SUM):
            ends = zip(
                replay.errors(name), replay.errors(name, len(replay) - 1), strict=True
            )
            assert all(mine.tobytes() == theirs.tobytes() for mine, theirs in ends)
    assert len(last) > 1  # schedules have errors of their own


def test_stores_of_all_widths_have_errors_also_in_one_of_many_blocks() -> None:
    given = np.random.default_rng(1).random((128, 4)).astype(np.float32)
    a, b, c, d = given.astype(np.float64).T
    arrays = [given, np.zeros(256, "f2"), np.zeros(128, "f8"), np.zeros(1, "f4")]
    launch = ptx.parse(HEAD + WIDE).kernels["wide"].launch
    how = {"numerics": True, "replay": ptx.Window(blocks=(2,)), "watch": "report"}
    replay = launch(4, 32, arrays, **how).replay()
    first, *_, total, last = stores(replay)
    names = [f"argument {n} ({name})" for n, name in enumerate("ahds")]
    wanted = {
        (first, 0): np.stack([a + 1e4, b * b, c, d], 1),
        (last, 0): np.stack([a, b * b, c, d], 1),
        (last, 1): np.stack([b * b, c], 1),
        (last, 2): b**4,
    }
    for (step, number), exact in wanted.items():
        found = replay.errors(names[number], step)
        each = exact.size // 4
        mine = slice(2 * each, 3 * each)
        assert np.flatnonzero(found.known).tolist() == [*range(mine.start, mine.stop)]
        precise = 1e-9 if number == 1 else 1e-15  # halves have less room beside them
        np.testing.assert_allclose(
            found.exact[mine], exact.reshape(-1)[mine], rtol=precise
        )
    for step, known in ((total - 1, False), (total, True)):
        assert replay.errors(names[3], step).known[0] == known
    held = replay.memory_at(total, names[3])[0].view(np.float32)[0]
    found = replay.errors(names[3], total)
    assert abs(held - found.exact[0] - found.error[0]) < 1e-10
    assert found.exact[0] < (b * b).sum() * (1 + 1e-12)


def test_a_part_has_the_errors_of_its_steps(moments: ptx.Result) -> None:
    whole = moments.replay()
    part = Replay(*trimmed(whole, 24, 15))
    for step in range(-1, 15):
        for name in (X, SUM):
            mine, theirs = part.errors(name, step), whole.errors(name, step + 24)
            for one, other in zip(mine, theirs, strict=True):
                assert one.tobytes() == other.tobytes()
    assert part.errors(X, 0).known.any()


def test_bits_that_are_not_the_same_have_no_error(moments: ptx.Result) -> None:
    replay = moments.replay("eager")
    kept = moments.numerics.kept
    row = kept.logs[0][: kept.logs[0][:4].view(np.uint32)[0]]
    assert kept.logs[0].flags.writeable
    ends = row, kept.logs[0]
    for each in ends:  # the first lane of the first and of the last store
        each[-4 * 32] ^= 1
    try:
        found = moments.replay("eager")
    finally:
        for each in ends:
            each[-4 * 32] ^= 1
    step = next(iter(stores(replay)))
    known, before = (each.errors(X, step).known for each in (found, replay))
    assert before[:32].all()
    assert not known[0]
    assert known[1:32].all()
    known = found.errors(X, len(found) - 1).known
    last = stores(replay)[max(stores(replay))][2]
    assert np.flatnonzero(~known).tolist() == [last[0]]


def test_errors_over_time_are_limited(
    moments: ptx.Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fragmenta.inspect.replay.lost.MOST_MOMENTS", 200)
    replay = moments.replay("eager")
    assert "errors of x (argument 0) are kept from the last writes on" in (
        replay.left_out
    )
    last = len(replay) - 1
    assert replay.errors(X, last).known.all()
    second = next(step for step, (_, n, _) in stores(replay).items() if n == 1)
    assert not replay.errors(X, second).known.any()


def test_a_full_log_leaves_errors_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fragmenta.values.numerics.engine.MOST_KEPT", 3000)
    replay = changed().replay()
    assert "errors of later stores are not kept" in replay.left_out
    found = [replay.errors(X, step) for step in range(len(replay))]
    assert found[-1].known.all()  # these are the last values
    wanted = stores(replay)
    late = [step for step, (_, n, threads) in wanted.items() if n == 1]
    assert not found[late[-1]].known[wanted[late[-1]][2]].all()


def test_errors_of_large_arrays_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fragmenta.inspect.replay.lost.MOST_ERRORS", 32)
    replay = launched()[0].replay()
    assert replay.errors(OUT) is None
    assert "errors of out (argument 1) are not kept" in replay.left_out


@pytest.mark.long
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
            again.errors(number, len(again) - 1)
    assert good
    np.savez(path, **{**arrays, "e_ulp": arrays["e_ulp"][:3]})
    with pytest.raises(Error, match="e_ulp is cut off"):
        ptx.Replay.load(path)
    np.savez(path, **{**arrays, "h_step": arrays["h_step"][::-1].copy()})
    with pytest.raises(Error, match="not sorted"):
        ptx.Replay.load(path)
    old = {n: data for n, data in arrays.items() if not n.startswith(("e_", "h_"))}
    head = json.loads(arrays["head"].tobytes())
    del head["numerics"]
    np.savez(
        path, **{**old, "head": np.frombuffer(json.dumps(head).encode(), np.uint8)}
    )
    assert ptx.Replay.load(path).errors(OUT) is None
