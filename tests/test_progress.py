"""Long work is reported, and only long work.  The clock is moved by hand."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from fragmenta.base import progress
from fragmenta.errors import Error
from tests.clock import ByHand


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ByHand:
    monkeypatch.delenv(progress.VARIABLE)
    by_hand = ByHand()
    monkeypatch.setattr(progress, "clock", by_hand)
    return by_hand


@pytest.mark.parametrize(
    "given, passes, told",
    [
        (None, 0.9, False),
        (None, 1.0, True),
        ("0", 0.0, True),
        ("2.5", 2.4, False),
        ("2.5", 2.5, True),
        ("never", 1e9, False),
    ],
)
def test_a_notice_and_a_bar_come_when_patience_ends(
    given: str | None,
    passes: float,
    told: bool,
    clock: ByHand,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if given is not None:
        monkeypatch.setenv(progress.VARIABLE, given)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.notice("compiling"):
        clock.move(passes)
    clock.move(10)  # what is done is not told afterwards
    assert sys.stderr.getvalue() == ("fragmenta: compiling\n" if told else "")
    assert not clock.due
    monkeypatch.setattr(sys, "stderr", Terminal())
    with progress.bar("multiplying") as done:
        clock.move(passes)
        done(0.5)
    assert ("multiplying" in sys.stderr.getvalue()) == told


def test_lines_say_how_long_the_rest_may_take(
    clock: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.lines("launching f") as done:
        done(0)
        clock.move(0.5)  # it is compiled
        done(0.01)
        clock.move(0.25)
        done(0.02)
        clock.move(0.25)  # now the rate is known: a hundredth in a quarter of a second
        for _ in range(36):
            clock.move(0.25)
            done(0.02 + (clock.time - 1.0) / 25)
    clock.move(1000)
    said = sys.stderr.getvalue().splitlines()
    assert said == [
        "fragmenta: launching f: 2% done, about 24 s left",
        "fragmenta: launching f: 37% done, about 16 s left",
    ]
    assert not clock.due
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.lines("launching f") as done:
        done(0)
        clock.move(1)  # nothing is done, so nothing is known
        done(0.5)
        done(0)  # it begins once more
        clock.move(9)
    assert sys.stderr.getvalue() == "fragmenta: launching f\n" * 2


def test_there_is_no_bar_where_no_terminal_is(
    clock: ByHand, monkeypatch: pytest.MonkeyPatch
) -> None:
    for stream in (io.StringIO(), None):
        monkeypatch.setattr(sys, "stderr", stream)
        with progress.bar("multiplying") as done:
            clock.move(100)
            done(0.5)
        assert stream is None or stream.getvalue() == ""


@pytest.mark.parametrize("given", ["", "soon", "-1", "nan", "inf", "1e300"])
def test_patience_that_is_none_is_refused(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(progress.VARIABLE, given)
    with pytest.raises(Error, match=r"a number of seconds from 0, or 'never'"):
        progress.patience()


def test_the_clock_of_the_package_calls_and_calls_off() -> None:
    """The one test of the real clock: it waits for what happens, however long."""
    import threading

    called, never = threading.Event(), threading.Event()
    call_off = progress.Clock().after(3600, never.set)
    call_off()
    progress.Clock().after(0, called.set)
    called.wait()
    assert not never.is_set()
    assert progress.Clock().now() <= progress.Clock().now()


def test_a_program_decides_where_messages_go(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger("fragmenta")
    monkeypatch.setattr(logger, "handlers", [])
    progress.log().info("one")
    assert capsys.readouterr().err == "fragmenta: one\n"
    seen: list[str] = []
    own = logging.Handler()
    monkeypatch.setattr(own, "emit", lambda record: seen.append(record.getMessage()))
    monkeypatch.setattr(logger, "handlers", [own])
    progress.log().info("two")
    assert (seen, capsys.readouterr().err) == (["two"], "")
