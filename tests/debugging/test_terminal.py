"""The commands: what they say fits 80 columns, and mistakes are explained."""

from __future__ import annotations

import contextlib

import pytest

from fragmenta.errors import Error
from fragmenta.inspect.debugging.debugger import Debugger
from fragmenta.inspect.debugging.terminal import COMMANDS, SHORT, Terminal, meant
from tests.debugging import kernels


def test_a_session_with_a_race() -> None:
    at = Terminal(Debugger(kernels.race()))
    assert at.opening()[0].startswith(
        "race, sm_80, schedule eager: 28 steps of 2 warps"
    )
    assert at.do("continue")[0].startswith("problem 1, shared-race: block (0, 0, 0)")
    assert at.do("print %f2[3]") == ["%f2[3] = 70, f32"]
    assert at.do("who tile[3]")[:3] == [
        "shared 0x40c-0x40f, before step 25",
        "  written at step 9 by block 0 warp 0 lane 3, kernel.ptx:17: st.shared.f32",
        "    [%r4], %f2;",
    ]
    assert at.do("info warps")[0].startswith("  0   block 0 warp 0  ended")
    assert at.do("reverse-continue")[0] == "the recording begins here"


def test_an_empty_line_repeats() -> None:
    at = Terminal(Debugger(kernels.calls()))
    assert at.do("") == []
    at.do("stepi 2")
    at.do("")
    assert at.debugger.moment == 4
    assert at.do("# a comment") == []


def test_lists_go_on() -> None:
    at = Terminal(Debugger(kernels.calls()))
    first = at.do("list")
    assert first[5] == ">   13      ld.param.u64 %rd1, [out];"
    assert at.do("list")[0].split()[0] == "19"
    assert at.do("list twice")[5].split()[0] == "7"


def test_display_shows_at_every_stop() -> None:
    at = Terminal(Debugger(kernels.calls()))
    at.do("stepi 3")
    assert at.do("display %r2[0]") == ["%r2[0] = 0x0, b32"]
    assert at.do("stepi")[-1] == "%r2[0] = 0x0, b32"
    at.do("undisplay")
    assert at.do("stepi")[-1].startswith("ptx")


def test_every_command_fits_the_width() -> None:
    """All commands without words, at the end and in the middle of a run."""
    for replay in (kernels.race(), kernels.calls(), kernels.inlined()):
        at = Terminal(Debugger(replay))
        lines = at.opening()
        for moment in (0, len(replay) // 2, len(replay)):
            for name in [*COMMANDS, *(f"info {each}" for each in told())]:
                at.debugger.goto(moment)
                with contextlib.suppress(Error):  # some need words
                    lines += at.do(name)
        assert max(map(len, lines)) <= 80


def told() -> list[str]:
    return ["warps", "problems", "units", "barriers", "breakpoints", "registers"]


def test_words_may_be_shortened() -> None:
    assert {meant(each) for each in SHORT} == set(SHORT.values())
    assert meant("cont") == "continue"
    with pytest.raises(Error, match="no command b2"):
        meant("b2")
    with pytest.raises(Error, match="ba may be back, backi, back-next or backtrace"):
        meant("ba")
    assert kernels.terminal(kernels.race(), "info w")[0].startswith(">")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("frobnicate", "no command frobnicate; help lists the commands"),
        ("contineu", r"no command contineu \(did you mean continue\?\)"),
        ("5", "a line begins with a command"),
        ("step x", "a whole number; given 'x'"),
        ("step 0", "1 to 1,000,000 times"),
        ("goto", "goto STEP"),
        ("info", "info takes warps"),
        ("info worps", r"no info worps \(did you mean warps\?\)"),
        ("print", "print EXPRESSION"),
        ("break", "break FILE:LINE"),
        ("break if %r1", "no function or instruction"),
        ("watch %r1", "was not written|a whole number"),
        ("who", "who PLACE"),
        ("delete 4", "no breakpoint 4; there is none"),
        ("undisplay x", "x is not displayed"),
        ("backtrace 3", "backtrace takes nothing"),
        ("list nothing.cu:3", "no file nothing.cu"),
        ("problem x", "a whole number"),
        ("nan 3", "nan takes nothing, or back"),
        ("warp 9", "warps are 0 to 1"),
    ],
)
def test_mistakes(line: str, words: str) -> None:
    with pytest.raises(Error, match=words):
        kernels.terminal(kernels.race(), line)
