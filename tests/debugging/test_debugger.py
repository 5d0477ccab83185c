"""Moving about a recording: forwards, backwards, to lines, writes, problems and NaN."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fragmenta.errors import BadCall, Error
from fragmenta.inspect.debugging.dap.showing import Showing
from fragmenta.inspect.debugging.debugger import Debugger, Stop
from fragmenta.inspect.debugging.moments import Moments
from fragmenta.inspect.debugging.terminal import Terminal
from fragmenta.inspect.replay.recorded import Replay
from tests.debugging import kernels


def runs(at: Debugger, back: bool) -> Iterator[Stop]:
    """Why it stops, up to the end."""
    while (stop := at.run(back)).why not in ("start", "end"):
        yield stop


def moments(at: Debugger, back: bool) -> list[int]:
    """Where it stops up to the end."""
    return [at.moment for _ in runs(at, back)]


def test_every_value_is_that_of_the_recording() -> None:
    """At each moment a register is what the instructions before it left in it."""
    replay = kernels.race()
    at = Debugger(replay)
    for moment in range(len(replay) + 1):
        at.goto(moment)
        for warp in (0, 1):
            at.look_at(warp)
            wanted = replay.registers_at(moment - 1, warp)
            for name, values in wanted.items():
                np.testing.assert_array_equal(at.evaluate(name).data, values)


def test_what_goes_forwards_comes_back() -> None:
    at = Debugger(kernels.calls())
    at.at_problems = False
    at.break_at("call")
    at.break_at("ptx:8")
    at.break_at("st.global")
    forwards = moments(at, back=False)
    assert len(forwards) == 3 + 3 + 1  # a call is one stop, though it returns
    assert at.moment == len(at)
    assert moments(at, back=True) == forwards[::-1]


@pytest.mark.parametrize("by", ["instruction", "line"])
def test_a_step_back_undoes_a_step(by: str) -> None:
    at = Debugger(kernels.calls())
    seen = [at.moment]
    while at.step(by).why != "end":
        seen.append(at.moment)
    assert len(seen) > 20
    for moment in reversed(seen):
        assert at.step(by, back=True).why in ("step", "start")
        assert at.moment == moment


def test_a_step_of_a_warp_lets_the_others_run() -> None:
    replay = kernels.race()
    at = Debugger(replay)
    at.look_at(1)
    first = at.current()
    at.step("instruction")
    assert at.warp == 1
    assert at.moment == at.current() == replay.next_step(first, warp=1)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(("by", "over"), [("instruction", False), ("line", True)])
def test_a_step_stops_where_a_run_does(by: str, over: bool, back: bool) -> None:
    """Breakpoints, writes and problems of every warp; steps pass none of them."""
    at = Debugger(kernels.met())
    at.break_at("add.f32")
    at.break_at("st.shared", "%tid.x[0] == 32")
    at.break_on_write("tile[8]")
    start = len(at) if back else 0
    at.goto(start)
    wanted = [(stop, at.moment, at.warp) for stop in runs(at, back)]
    assert {stop.why for stop, *_ in wanted} == {"breakpoint", "write", "problem"}
    found = []
    for warp in (0, 1):
        at.goto(start)
        at.look_at(warp)
        while (stop := at.step(by, back, over)).why not in ("start", "end"):
            if stop.why != "step":
                found.append((stop.breakpoint, stop.problem, at.moment, at.warp))
                at.look_at(warp)
    assert {*found} == {(s.breakpoint, s.problem, *rest) for s, *rest in wanted}


def test_a_stop_says_which_warp_it_is_of() -> None:
    at = Debugger(kernels.met())
    at.at_problems = False
    at.break_at("mov.u32", "%tid.x[0] == 32")
    assert at.finish().words.endswith("; block 0 warp 1 stopped")
    assert at.warp == 1
    assert at.step("instruction").words == ""
    terminal = Terminal(Debugger(kernels.met()))
    terminal.do("break add.f32")
    terminal.do("continue")
    said = terminal.do("step 99")
    assert said[0] == "breakpoint 1, add.f32; block 0 warp 1 stopped"
    assert terminal.debugger.moment < len(terminal.debugger)


def test_next_goes_over_a_call_and_step_into_it() -> None:
    at = Debugger(kernels.calls())
    at.break_at("call")
    at.run()
    at.step("line", over=True)
    assert at.site is not None
    assert at.site.text.startswith("mov.f32 %f1, %f2")
    at.step("line", back=True, over=True)
    assert at.site.opcode.startswith("call")
    at.step("line")
    assert [each.site.function for each in at.frames()] == ["twice", "calls"]
    at.finish()
    assert [each.site.function for each in at.frames()] == ["calls"]


def test_next_shows_the_line_that_was_inlined_into() -> None:
    at = Debugger(kernels.inlined())
    over = [at.place]
    while at.step("line", over=True).why != "end":
        over.append(at.place)
    assert [line for _, line in filter(None, over)] == [10, 11, 12, 13, 14]
    at.goto(0)
    inner = [at.place]
    while at.step("line").why != "end":
        inner.append(at.place)
    assert [line for _, line in filter(None, inner)] == [10, 11, 5, 6, 12, 13, 14]


def test_a_breakpoint_may_be_at_a_line_with_inlined_code_only() -> None:
    at = Debugger(kernels.inlined())
    made = at.break_at("kernel.cu:12")
    assert list(made.steps) == [2]
    at.run()
    assert at.place == ("kernel.cu", 12)
    assert at.break_at("helper.cuh:6").place == ("helper.cuh", 6)


def test_a_breakpoint_moves_to_the_next_line_with_code() -> None:
    at = Debugger(kernels.calls())
    assert at.break_at("ptx:10").text.endswith(":13")
    with pytest.raises(BadCall, match="no instruction at line 99"):
        at.break_at("ptx:99")


def test_a_condition_decides_where_to_stop() -> None:
    at = Debugger(kernels.calls())
    at.break_at("call", "%r2[0] == 2")
    at.run()
    assert at.evaluate("%r2[0]").texts == ["0x2"]
    assert at.run().why == "end"


def test_a_write_is_over_when_it_stops() -> None:
    at = Debugger(kernels.calls())
    at.break_on_write("out[3]")
    assert at.run().why == "write"
    assert at.evaluate("out[0:6]").texts == ["0", "8", "16", "24", "32", "0"]
    assert at.run(back=True).why == "write"
    assert at.evaluate("out[3]").texts == ["0"]


def test_a_problem_stops_before_its_second_access() -> None:
    at = Debugger(kernels.race())
    stop = at.run()
    assert (stop.why, stop.problem) == ("problem", 1)
    assert at.site is not None
    assert at.site.opcode.startswith("ld.shared")
    assert "race" in stop.title
    at.goto(0)
    assert at.problem().words == stop.words
    with pytest.raises(BadCall, match="no step shows problem 9"):
        at.problem(9)


def test_the_first_nan_is_found() -> None:
    at = Debugger(kernels.calls())
    assert at.nan().words.endswith("%f4 in all lanes")
    assert at.site is not None
    assert at.site.opcode == "div.rn.f32"
    with pytest.raises(BadCall, match="no instruction gives NaN after"):
        at.nan()
    with pytest.raises(BadCall, match="no recorded instruction gives NaN"):
        Debugger(kernels.race()).nan()


def test_nan_is_found_in_every_type_and_only_in_lanes_that_run() -> None:
    """A lane has NaN in a register of each type, and changes its sign."""
    words = {"f16": 0x7E00, "bf16": 0x7FC0, "f32": 0x7FC00000, "f64": 0x7FF8 << 48}
    words |= {"f16x2": 0x7E00 << 16, "bf16x2": 0x7FC0 << 16}
    bits = {"f16": 16, "bf16": 16, "f64": 64}
    lines = [
        line.format(kind=kind, bits=bits.get(kind, 32), word=word)
        for kind, word in words.items()
        for line in (
            ".reg .b{bits} %{kind}a, %{kind}b;",
            "mov.b{bits} %{kind}a, 0;",
            "@%p1 mov.b{bits} %{kind}a, {word};",
            "@%p1 neg.{kind} %{kind}b, %{kind}a;",
            "@!%p1 neg.{kind} %{kind}b, %{kind}a;",
        )
    ]
    body = "\n".join(sorted(lines, key=lambda line: line[0] != "."))
    text = f"""{kernels.HEAD}.entry k() {{
        .reg .b32 %r1; .reg .pred %p1;
        mov.u32 %r1, %laneid;
        setp.eq.u32 %p1, %r1, 3;
        {body}
        ret;
    }}"""
    at = Debugger(kernels.launched(text, 32))
    for kind in words:
        assert at.nan().words.endswith(f"gives NaN: %{kind}b in lane 3")
    assert len(at.nan_steps) == len(words)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("kernel.cu:3", "no file kernel.cu"),
        ("mna", r"no function or instruction 'mna'"),
        ("", "no function or instruction"),
        ("ptx:99999", "no instruction at line"),
    ],
)
def test_places_that_do_not_exist(place: str, words: str) -> None:
    with pytest.raises(BadCall, match=words):
        Debugger(kernels.calls()).break_at(place)


def test_moves_that_cannot_be() -> None:
    at = Debugger(kernels.race())
    with pytest.raises(BadCall, match="warps are 0 to 1; given 7"):
        at.look_at(7)
    with pytest.raises(BadCall, match="steps are 0 to"):
        at.goto(10**6)
    with pytest.raises(BadCall, match="no breakpoint 3; there is none"):
        at.delete(3)
    with pytest.raises(Error, match="nothing is at address 0xffffff"):
        at.span("0xffffff")


def test_the_steps_of_a_warp_are_its_own() -> None:
    replay = kernels.race()
    every = Moments(replay)
    both = np.concatenate([every.of_warp(0), every.of_warp(1)])
    assert sorted(both) == list(range(len(replay)))


def test_a_warp_without_recorded_steps() -> None:
    """Steps were left out: of one warp there is none."""
    whole = kernels.race()
    steps = np.flatnonzero(whole.steps.warp == 1)
    columns = {name: whole.columns[name][steps] for name in ("site", "warp", "lanes")}
    part = Replay(whole.head, {**whole.columns, **columns, "at": whole.columns["at"]})
    at = Debugger(part)
    at.look_at(0)
    assert at.current() is None
    assert at.step("line").why == "end"
    assert at.step("line", back=True, over=True).why == "start"
    assert at.finish(back=True).why == "start"
    assert Terminal(at).do("list")
    assert Showing(at).frames(1) == []
    assert at.evaluate("%tid.x[0]").texts == ["0"]
