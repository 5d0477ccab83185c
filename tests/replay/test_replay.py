"""A recorded run: registers, memory, who wrote what, problems, windows and files."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.tracing import log
from fragmenta.errors import BadCall, Error, KernelFault, ValueRangeError
from fragmenta.inspect.debugging.debugger import Debugger
from fragmenta.inspect.debugging.terminal import Terminal
from fragmenta.inspect.replay.parts import COLUMNS
from tests.ptx import recordings
from tests.replay.ending import differences, endings
from tests.replay.kernels import COUNTED, HEAD, PAST, ROUNDS, SUMS, TURNED, kernel
from tests.thinning import THOROUGH, some

IN, OUT = "argument 0 (in)", "argument 1 (out)"
SHARED = "shared memory of block 0"


def sums(n: int = 5, **options: object) -> ptx.Replay:
    data = np.arange(64, dtype=np.uint32)
    made = kernel(SUMS, "sums").launch(1, 64, [data, n], **{"replay": True, **options})
    assert (data == n * np.arange(64)).all()
    return made.replay()


def turned(barrier: str = "bar.sync 0;") -> ptx.Replay:
    given, out = np.arange(100, 164, dtype=np.uint32), np.zeros(64, np.uint32)
    run = kernel(TURNED, "turned", barrier).launch
    replay = run(1, 64, [given, out], watch="report", replay=True).replay()
    if barrier:
        assert (out == given[::-1]).all()
    return replay


def steps_of(replay: ptx.Replay, opcode: str, warp: int) -> list[int]:
    mine = replay.steps_of_warp(warp).tolist()
    return [s for s in mine if replay.sites[replay.steps.site[s]].opcode == opcode]


# ── registers ───────────────────────────────────────────────────────────────


def test_registers_are_what_the_kernel_computes() -> None:
    replay = sums()
    for warp in (0, 1):
        lanes = 32 * warp + np.arange(32)
        adds = steps_of(replay, "add.s32", warp)
        assert len(adds) == 10
        for turn, step in enumerate(adds[::2], 1):
            seen = replay.registers_at(step, warp)
            assert (seen["%r2"] == turn * lanes).all()
            assert (seen["%r3"] == turn - 1).all()
            assert (seen["%h1"] == lanes).all()
            assert seen["%h1"].dtype == np.uint16
        for turn, step in enumerate(steps_of(replay, "setp.lt.u32", warp), 1):
            assert (replay.registers_at(step, warp)["%p1"] == (turn < 5)).all()


def test_a_register_that_was_not_written_is_not_there() -> None:
    replay = sums()
    assert "%r2" not in replay.registers_at(0, 0)
    assert not replay.registers_at(-1, 0)


# ── memory ──────────────────────────────────────────────────────────────────


def test_who_wrote_a_byte_and_who_read_it() -> None:
    replay = turned()
    last = len(replay) - 1
    for word in (0, 31, 32, 63):
        wrote = replay.writer(last, SHARED, 1024 + 4 * word + 1)
        assert wrote is not None
        assert (wrote.lane, wrote.value) == (word % 32, bytes([100 + word, 0, 0, 0]))
        assert replay.warps[replay.steps.warp[wrote.step]].warp == word // 32
        (read,) = replay.readers(last, SHARED, 1024 + 4 * word)
        assert read.lane == 31 - word % 32
        assert replay.steps.warp[read.step] == 1 - word // 32
        assert replay.next_write(-1, SHARED, 1024 + 4 * word) == wrote.step
        assert replay.next_write(wrote.step, SHARED, 1024 + 4 * word) is None
        assert replay.writer(wrote.step - 1, SHARED, 1024 + 4 * word) is None
    assert replay.writer(last, IN, 0) is None
    assert len(replay.readers(last, IN, 0)) == 1


def test_memory_is_as_it_was() -> None:
    replay = turned()
    (first,), (second,) = (steps_of(replay, "st.shared.u32", warp) for warp in (0, 1))
    data, state = replay.memory_at(first, SHARED)
    assert (data[1024:1152].view(np.uint32) == np.arange(100, 132)).all()
    assert state[1024:1152].all()
    assert not state[1152:].any()
    assert not state[:1024].any()
    assert replay.memory_at(second, SHARED)[1][1024:].all()
    assert (replay.memory_at(len(replay) - 1, OUT)[0].view(np.uint32)[0]) == 163


def test_atomics_leave_what_memory_has() -> None:
    total = np.zeros(2, np.uint32)
    made = kernel(COUNTED, "counted").launch(1, 64, [total], replay=True).replay()
    seen = made.memory_at(len(made) - 1, 1)[0].view(np.uint32)
    assert (seen == total).all()
    assert total.tolist() == [2016, 63]
    first = steps_of(made, "atom.global.add.u32", 0)[0]
    assert made.memory_at(first, 1)[0].view(np.uint32)[0] == 496
    assert len(made.readers(-1, 1, 0)) == 32


# ── going on ────────────────────────────────────────────────────────────────


def test_steps_by_instruction_line_and_event() -> None:
    replay = turned()
    (barrier,) = steps_of(replay, "bar.sync", 0)
    assert replay.next_step(0, 0, "event") == barrier
    assert replay.next_step(len(replay) - 1, 0, "event", back=True) == barrier
    assert replay.next_step(-1) == 0
    assert replay.next_step(len(replay) - 1) is None
    mine = replay.steps_of_warp(1)
    assert replay.next_step(int(mine[0]), 1) == mine[1]
    # Without a source, lines are those of the PTX.
    assert replay.next_step(int(mine[0]), 1, "line") == mine[1]
    assert replay.next_step(int(mine[2]), 1, "line", back=True) == mine[1]
    line = replay.sites[replay.steps.site[barrier]].ptx_line
    found = replay.steps_of_line(replay.ptx_file, line)
    assert barrier in found.tolist()
    assert len(found) == 2
    assert "bar.sync" in replay.lines(replay.ptx_file)[line - 1]
    (bar,) = replay.barriers
    assert bar["kind"] == "bar.sync"
    assert sorted(bar["uses"][0][1]) == [0, 1]


def test_a_warp_comes_to_lines_that_are_numbered() -> None:
    """One line for all instructions but the barrier, which has none."""
    replay = turned()
    lines = np.zeros(len(replay.sites), np.int64)
    lines[[each.opcode.startswith("bar") for each in replay.sites]] = -1
    mine = replay.steps_of_warp(0)
    (barrier,) = steps_of(replay, "bar.sync", 0)
    after = mine[mine > barrier][0]
    assert np.flatnonzero(replay.entries(lines)[mine]).tolist() == [
        0,
        mine.tolist().index(after),
    ]


def test_wrong_questions_are_refused() -> None:
    replay = turned()
    with pytest.raises(ValueRangeError, match="steps are -1 to"):
        replay.memory_at(len(replay), 0)
    with pytest.raises(BadCall, match="the memories are"):
        replay.memory_at(0, "nothing")
    with pytest.raises(ValueRangeError, match="bytes 0 to"):
        replay.writer(0, OUT, 4096)
    with pytest.raises(BadCall, match="by is"):
        replay.next_step(0, by="day")
    with pytest.raises(BadCall, match=r"a whole number for each of \d+ instructions"):
        replay.entries(np.zeros(3, np.int64))
    with pytest.raises(ValueRangeError, match="warps are 0 to 1"):
        replay.registers_at(0, 2)
    with pytest.raises(BadCall, match="was not recorded"):
        kernel(SUMS, "sums").launch(1, 32, [np.zeros(32, np.uint32), 1]).replay()
    for wrong, words in (
        (ptx.Window(blocks=(3,)), "the blocks of the grid are 0 to 0; given 3"),
        (ptx.Window(first=-1), "steps are counted from 0; given -1"),
        (ptx.Window(most=0), "at least 1 step"),
        (ptx.Window(first=10**6), "have 140 steps; given the first step 1,000,000"),
    ):
        with pytest.raises(BadCall, match=words):
            sums(12, replay=wrong)


# ── problems ────────────────────────────────────────────────────────────────


def test_a_race_names_both_accesses_and_what_is_missing() -> None:
    replay = turned("")
    (problem,) = replay.problems
    assert (problem["number"], problem["missing"]) == (1, "bar.sync")
    first, second = problem["steps"]
    opcodes = [replay.sites[replay.steps.site[s]].opcode for s in (first, second)]
    assert sorted(opcodes) == ["ld.shared.u32", "st.shared.u32"]
    assert replay.steps.warp[first] != replay.steps.warp[second]
    memory, offset = problem["memory"], problem["offset"]
    assert replay.memories[memory].name == SHARED
    assert 1024 <= offset < 1280


def barriers_before(replay: ptx.Replay, step: int) -> int:
    """How many barriers its warp has passed before a step."""
    passed = steps_of(replay, "bar.sync", int(replay.steps.warp[step]))
    return sum(each < step for each in passed)


def touched(replay: ptx.Replay, step: int) -> set[int]:
    """The bytes of shared memory that a step reads or writes."""
    shared = [each.name for each in replay.memories].index(SHARED)
    found = set()
    for begin in "rw":
        of = [replay.columns[f"{begin}_{n}"] for n in ("step", "memory")]
        for row in np.flatnonzero((of[0] == step) & (of[1] == shared)).tolist():
            first = int(replay.columns[f"{begin}_offset"][row])
            found |= {*range(first, first + int(replay.columns[f"{begin}_size"][row]))}
    return found


@pytest.mark.parametrize("schedule", ["eager", "lazy", 3, 4])
@pytest.mark.parametrize(
    ("apart", "repair"), [(4, "__syncwarp()"), (128, "__syncthreads()")]
)
def test_a_race_in_a_loop_names_the_rounds_that_race(
    apart: int, repair: str, schedule: str | int
) -> None:
    text = HEAD + ROUNDS.replace("APART", str(apart))
    given, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    made = (
        ptx.parse(text)
        .kernels["rounds"]
        .launch(1, 64, [given, out], watch="report", replay=True, schedule=schedule)
    )
    replay = made.replay()
    (problem,) = replay.problems
    first, second = problem["steps"]
    assert first < second
    opcodes = [replay.sites[replay.steps.site[s]].opcode for s in (first, second)]
    assert sorted(opcodes) == ["ld.shared.u32", "st.shared.u32"]
    assert barriers_before(replay, first) == barriers_before(replay, second)
    assert touched(replay, first) & touched(replay, second)
    warps = replay.steps.warp[[first, second]].tolist()
    assert (warps[0] == warps[1]) == (apart == 4)
    assert (problem["missing"], problem["hint"]) == (
        repair,
        f"Let {repair} come between the two: after rounds.cu:7, at the end of the loop.",
    )


def test_two_races_of_one_line_have_steps_of_their_own() -> None:
    body = TURNED.replace(
        "st.shared.u32 [%r5], %r2;",
        ".reg .pred %p;\n    and.b32 %r6, %r1, 16;\n    setp.eq.u32 %p, %r6, 0;\n"
        "    @%p st.shared.u32 [%r5], %r2;\n    @!%p st.shared.u32 [%r5], %r2;",
    )
    given, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    run = kernel(body, "turned", "").launch
    replay = run(1, 64, [given, out], watch="report", replay=True).replay()
    read = [e for e in replay.problems if " reads " in e["words"]]
    assert len(read) == 2
    for each in read:
        first, second = (replay.sites[replay.steps.site[s]] for s in each["steps"])
        assert second.ptx_line == each["ptx_line"]
        assert f"PTX line {first.ptx_line} wrote it" in each["words"]


# ── windows ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("small", [False, True])
def test_a_window_shows_the_same_values(
    small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sums(30)
    if small:  # the log is emptied every 64 steps
        rooms = [
            (*e[:3], 64 if e[4] == 4 else 256 if e[4] == 8 else 1 << 17, e[4])
            for e in log._ROOMS
        ]
        monkeypatch.setattr(log, "_ROOMS", tuple(rooms))
    for first, most in ((0, 100), (37, 100), (200, 500), (130, 50), (0, 10**6)):
        part = sums(30, replay=ptx.Window(first=first, most=most))
        assert len(part) == min(most, len(whole) - first)
        assert part.head["first"] == first
        assert bool(part.left_out) == (len(part) < len(whole))
        for step in (0, len(part) // 2, len(part) - 1):
            for warp in (0, 1):
                wanted = whole.registers_at(step + first, warp)
                found = part.registers_at(step, warp)
                assert all((found[name] == wanted[name]).all() for name in wanted)
            seen, there = part.memory_at(step, 1), whole.memory_at(step + first, 1)
            assert (seen[0] == there[0]).all()


def test_a_long_run_keeps_the_steps_before_its_problem() -> None:
    given, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    made = kernel(TURNED, "turned", "").launch(
        1, 64, [given, out], watch="report", replay=ptx.Window(most=20)
    )
    replay = made.replay()
    assert len(replay) == 20
    assert "are kept" in replay.left_out
    assert max(replay.problems[0]["steps"]) >= 0


# ── files ───────────────────────────────────────────────────────────────────


def test_a_file_has_the_same_record(tmp_path: Path) -> None:
    replay = turned("")
    replay.save(tmp_path / "run.npz")
    again = ptx.Replay.load(tmp_path / "run.npz")
    assert again.head == replay.head
    assert all((again.columns[n] == replay.columns[n]).all() for n in COLUMNS)
    (tmp_path / "no.npz").write_bytes(b"nothing")
    with pytest.raises(Error, match=r"is not a .npy or .npz file"):
        ptx.Replay.load(tmp_path / "no.npz")
    np.savez(tmp_path / "no.npz", site=np.zeros(3))
    with pytest.raises(Error, match="is no record of a launch: it has no at"):
        ptx.Replay.load(tmp_path / "no.npz")


HOSTILE = ("<!--<script>", "</script><img src=x>", "]]><!-- -->", "<!doctype html>")


@pytest.mark.parametrize("words", HOSTILE)
def test_no_text_of_a_kernel_ends_the_record_in_its_page(
    words: str, tmp_path: Path
) -> None:
    pages = []
    for each in ("words", words):
        text = HEAD + f'.file 1 "{each}.cu"\n// {each}' + COUNTED
        text = text.replace("mov.u32", ".loc 1 1 1\n    mov.u32")
        (made,) = ptx.parse(text).kernels.values()
        replay = made.launch(1, 32, [np.zeros(2, np.uint32)], replay=True).replay()
        replay.to_html(tmp_path / "page.html")
        pages.append((tmp_path / "page.html").read_text())
        found = re.search(r'id="replay-head">([^<]*)</script>', pages[-1])
        assert found is not None
        (file,) = {site["file"] for site in json.loads(found[1])["sites"]} - {""}
        assert file.endswith(f"{each}.cu")
    # A parser of HTML sees the same elements, and no others.
    assert pages[0].count("<") == pages[1].count("<")


def test_a_page_has_the_record(tmp_path: Path) -> None:
    replay = turned("")
    replay.to_html(tmp_path / "run.html")
    text = (tmp_path / "run.html").read_text()
    head = re.search(r'id="replay-head">(.*?)</script>', text, re.DOTALL)
    data = re.search(r'id="replay-data">(.*?)</script>', text, re.DOTALL)
    assert head is not None
    assert data is not None
    found = json.loads(head.group(1))
    raw = zlib.decompress(base64.b64decode(data.group(1)), -15)
    place = 0
    for name, column in found["columns"].items():
        kind = column["type"][0] + str(int(column["type"][1:]) // 8)
        values = np.frombuffer(raw, kind, column["count"], place)
        assert (values == replay.columns[name]).all(), name
        place += -(-values.nbytes // 4) * 4
    assert place == len(raw)
    assert found["problems"] == replay.problems
    assert "srcdoc" in replay._repr_html_()


# ── recorded launches ───────────────────────────────────────────────────────

SOURCES = ("atomics", "control", "handwritten", "integers", "memory")
CHOSEN = some((e for s in SOURCES for e in recordings.of_source(s)[:4]), 5)


@pytest.mark.parametrize("launch", CHOSEN, ids=lambda each: each.identity)
def test_recorded_launches_end_with_the_same_bytes(launch: recordings.Launch) -> None:
    """Registers, shared memory and arrays end as they really were."""
    row, (name, text) = launch.row, launch.file.texts[launch.row.text]
    run = ptx.parse(text, name).kernels[row.entry].launch
    given = launch.make_arguments()
    with endings() as found:
        made = run(
            row.grid, row.block, given, shared=row.shared, watch=False, replay=True
        )
    for left, wanted in zip(given, launch.expected(), strict=True):
        assert np.asarray(left).tobytes() == np.asarray(wanted).tobytes()
    (stepped,) = made.steps
    (ending,) = [each for each in found if each.told is stepped.told]
    assert not differences(made.replay(), ending, stepped)


NAMED = """.version 8.0
.target sm_80
.address_size 64
.file 1 "{0}"
.visible .entry named(.param .u64 out)
{{
    .reg .f32 %f<2>;
    .reg .b64 %rd<2>;
    .loc 1 1 0
    ld.param.u64 %rd1, [out];
    mov.f32 %f1, 0f3F800000;
    add.f32 %f1, %f1, 0f33000000;
    st.global.f32 [%rd1], %f1;
    ret;
}}"""


def test_files_that_ptx_names_are_not_opened(tmp_path: Path) -> None:
    secret = tmp_path / "secret.cu"
    secret.write_text("nobody may see this\n")
    run = ptx.parse(NAMED.format(secret)).kernels["named"].launch
    made = run(1, 1, [np.zeros(1, np.float32)], replay=True)
    assert [each["name"] for each in made.replay().head["files"]] == ["kernel.ptx"]
    found = run(1, 1, [np.zeros(1, np.float32)], numerics=True).numerics
    said = f"{found}{found.to_json()}"
    assert "secret.cu" in said
    assert "nobody" not in said


def _changed(rng, value):
    """A value of JSON with one part that is something else."""
    others = (None, -1, 1 << 40, "", "x", [], {}, True, 0.5, [[1, 2, 3]])
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = str(rng.choice(list(value)))
        if rng.random() < 0.1:
            return {key: each for key, each in value.items() if key != name}
        return {**value, name: _changed(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = int(rng.integers(len(value)))
        return [*value[:place], _changed(rng, value[place]), *value[place + 1 :]]
    return others[rng.integers(len(others))]


def _asked(replay):
    """Ask for all that a reader shows."""
    for step in (-1, 0, len(replay) // 2, len(replay) - 1):
        for warp in range(len(replay.warps)):
            replay.registers_at(step, warp)
        for number, memory in enumerate(replay.memories):
            replay.memory_at(step, number)
            if memory.size:
                replay.writer(step, number, memory.size - 1)
                replay.readers(step, number, memory.size // 2)
    at = Terminal(Debugger(replay))
    at.opening()
    for word in ("info problems", "info units", "info barriers", "continue", "list"):
        at.do(word)


@pytest.mark.parametrize("seed", range(4 if THOROUGH else 2))
def test_damaged_records_are_refused_in_words(tmp_path, seed):
    rng, path = np.random.default_rng(seed), tmp_path / "run.npz"
    made = (turned(""), sums())[seed % 2]
    good = 0
    for _ in range(60):
        head, columns = {"format": 1, **made.head}, dict(made.columns)
        if rng.random() < 0.6:
            head = _changed(rng, head)
        else:
            name = str(rng.choice(list(columns)))
            data = columns[name].copy()
            if data.size and rng.random() < 0.7:
                data[rng.integers(data.size)] = rng.integers(np.iinfo(data.dtype).max)
            else:
                data = data[: data.size // 2].astype(rng.choice(["u1", "i8", "f4"]))
            columns[name] = data
        np.savez(
            path, head=np.frombuffer(json.dumps(head).encode(), np.uint8), **columns
        )
        try:
            replay = ptx.Replay.load(path)
        except Error:
            continue
        good += 1
        try:
            _asked(replay)
        except Error:
            continue
    assert good


# ── what stops, and what is left out ────────────────────────────────────────


@pytest.mark.parametrize("watch", [True, False])
def test_a_fault_has_its_replay(watch: bool) -> None:
    given = np.zeros(250, np.uint32)
    with pytest.raises(KernelFault, match="out of bounds") as caught:
        kernel(PAST, "past").launch(1, 64, [given], watch=watch, replay=True)
    replay = caught.value.replay()
    assert isinstance(replay, ptx.Replay)
    last = len(replay) - 1
    assert "%rd3+1000000" in replay.sites[replay.steps.site[last]].text
    (problem,) = replay.problems
    assert problem["steps"] == [-1, last]
    seen = replay.memory_at(last, "argument 0 (x)")[0].view(np.uint32)
    assert (seen == given).all()
    assert given[31] == 31
    assert not caught.value.result.complete
    with pytest.raises(KernelFault) as caught:
        kernel(PAST, "past").launch(1, 64, [given], watch=watch)
    with pytest.raises(BadCall, match="launch it with replay=True"):
        caught.value.replay()


def test_arrays_that_are_too_large_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fragmenta.engine.tracing.recorder.MOST_COPIED", 300)
    run = kernel(TURNED, "turned").launch
    given, out = np.zeros(100, np.uint32), np.zeros(64, np.uint32)
    replay = run(1, 64, [given, out], replay=True).replay()
    assert [each.name for each in replay.memories] == [SHARED, OUT]
    assert "argument 0 (in), 0 MiB, is not kept" in replay.left_out
