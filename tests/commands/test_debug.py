"""The command debug: a terminal, scripts, files and streams of editors."""

from __future__ import annotations

import io
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import fragmenta
from fragmenta.commands import app, debug_streams
from fragmenta.inspect.debugging.dap import framing
from tests.asking import WIDTH, answer, complaint
from tests.clock import HANG
from tests.debugging import kernels

RACE = ["--block", "64", "--arg", "arange:f32:64"]


@pytest.fixture
def race(tmp_path: Path) -> str:
    file = tmp_path / "race.ptx"
    file.write_text(kernels.RACE)
    return str(file)


def piped(text: str, *words: str) -> Result:
    return CliRunner().invoke(app, ["debug", *words], input=text)


def test_commands_of_a_pipe(race: str) -> None:
    found = piped(
        "break st.shared\ncontinue\n\nprint %f2[3]\nquit\nstep\n", race, *RACE
    )
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0] == "breakpoint 1: st.shared, reached 2 times"
    assert lines[-1] == "%f2[3] = 6, f32"
    assert max(map(len, lines)) <= WIDTH


def test_an_empty_pipe_says_what_there_is(race: str) -> None:
    assert piped("", race, *RACE).stdout.startswith("race, sm_80, schedule eager: 28")


def test_a_script_ends_at_its_first_error(race: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("# a comment\n\nprint 1 + 1\nprint nothing\nprint 3\n")
    found = piped("print 4", race, *RACE, "-x", str(script))
    assert (found.exit_code, found.stdout) == (1, "1 + 1 = 2\n")
    assert "no register, variable or memory nothing" in found.stderr
    found = piped("print 4", race, *RACE, "-e", "print 5", "-e", "print 6")
    assert (found.exit_code, found.stdout) == (0, "5 = 5\n6 = 6\n")


def test_a_replay_that_was_saved(tmp_path: Path) -> None:
    file = str(tmp_path / "race.npz")
    kernels.race().save(file)
    assert answer("debug", file, "-e", "goto end").splitlines()[0].endswith("ended")
    assert "which is of one launch" in complaint("debug", file, "race")
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    assert "bad.npz" in complaint("debug", str(tmp_path / "bad.npz"))
    assert "is no file" in complaint("debug", str(tmp_path / "none.npz"))


def test_a_launch_that_was_recorded() -> None:
    file = Path(__file__).parents[1] / "golden" / "programs" / "tile-1.npz"
    told = answer("debug", file, "tile", "-e", "info warps")
    assert told.startswith("> 0   block 0 warp 0")
    message = complaint("debug", file, "tilf")
    assert "has the launches tile; name one (did you mean tile?)" in message


def test_a_part_of_a_launch(race: str) -> None:
    words = [race, *RACE, "--replay-from", "20", "-e", "info warps"]
    assert "block 0 warp 1" in answer("debug", *words)
    message = complaint("debug", race, *RACE, "--blocks", "7")
    assert "the blocks of the grid are 0 to 0; given 7" in message
    assert "--blocks takes numbers" in complaint("debug", race, *RACE, "--blocks", "x")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "a kernel's file is missing, or --dap"),
        (["k.ptx", "--port", "0"], "--port needs --dap"),
        (["--dap", "--port", "0"], "--port needs the kernel's file"),
        (["k.ptx", "--dap", "--port", "70000"], "a port is 0 to 65535; given 70000"),
        (["--dap", "-e", "step"], "--dap takes no commands"),
        (["k.ptx", "-x", "none"], "--script none is no file"),
    ],
)
def test_what_is_refused(words: list[str], message: str) -> None:
    assert message in complaint("debug", *words)


def test_a_person_is_asked(race: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    asked: list[str] = []
    lines = iter(["stepi", "", "nonsense", None, "print %tid.x[3]"])

    def typed(prompt: str) -> str:
        asked.append(prompt)
        try:
            line = next(lines)
        except StopIteration:
            raise EOFError from None
        if line is None:
            raise KeyboardInterrupt
        return line

    monkeypatch.setattr("builtins.input", typed)
    monkeypatch.setattr(sys, "stdin", Typed())
    said: list[str] = []
    monkeypatch.setattr(debug_streams, "emit", said.append)
    monkeypatch.setattr(debug_streams, "complain", said.append)
    assert debug_streams.converse(kernels.race(), WIDTH, None, ())
    assert asked == [debug_streams.PROMPT] * 6
    assert [text.splitlines()[0][:12] for text in said] == [
        "race, sm_80,",
        "step 1 of 28",
        "step 2 of 28",
        "no command n",
        "%tid.x[3] = ",
    ]


# ── editors ─────────────────────────────────────────────────────────────────


def requests(*every: tuple[str, dict[str, Any]]) -> bytes:
    return b"".join(
        framing.framed(
            {"seq": number, "type": "request", "command": name, "arguments": given}
        )
        for number, (name, given) in enumerate(every, 1)
    )


def messages(content: bytes) -> list[dict[str, Any]]:
    stream, found = io.BytesIO(content), []
    while (message := framing.read(stream)) is not None:
        found.append(message)
    return found


@pytest.mark.long
def test_an_editor_names_the_launch(race: str) -> None:
    asked = requests(
        ("initialize", {}),
        ("launch", {"args": "--block 64"}),
        ("launch", {"program": race, "args": "--block 64"}),
        ("launch", {"program": race, "args": ["--blok", "64"]}),
        ("launch", {"program": race, "args": "--help"}),
        ("launch", {"program": race, "args": RACE, "stopOnEntry": True}),
        ("configurationDone", {}),
        ("disconnect", {}),
    )
    package = str(Path(fragmenta.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-m", "fragmenta", "debug", "--dap"],
        input=asked,
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        timeout=HANG,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = messages(done.stdout)
    answers = [each for each in told if each["type"] == "response"]
    assert [each["success"] for each in answers] == [True, *[False] * 4, *[True] * 3]
    said = [each.get("message", "") for each in answers]
    assert "program is missing" in said[1]
    assert "argument" in said[2]
    assert "--blok" in said[3]
    assert "fragmenta debug --help" in said[4]
    events = [each["event"] for each in told if each["type"] == "event"]
    assert events == ["initialized", "stopped"]


def test_an_editor_connects_to_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command line named is what it debugs, whatever it asks for."""
    said: list[str] = []
    ready = threading.Event()

    def emit(text: str) -> None:
        said.append(text)
        ready.set()

    monkeypatch.setattr(debug_streams, "emit", emit)
    replay = kernels.race()
    given: list[dict[str, Any]] = []

    def record(about: dict[str, Any]) -> Any:
        given.append(about)
        return replay

    server = threading.Thread(target=debug_streams.listen, args=(0, record))
    server.start()
    assert ready.wait(HANG)
    host, _, port = said[0].removeprefix("listening at ").partition(":")
    assert host == "127.0.0.1"
    with socket.create_connection((host, int(port))) as connection:
        asked = ("attach", {"program": "/etc/passwd"}), ("threads", {})
        connection.sendall(requests(("initialize", {}), *asked, ("disconnect", {})))
        with connection.makefile("rb") as stream:
            told = messages(stream.read())
    server.join(HANG)
    names = [each.get("command", each.get("event")) for each in told]
    assert names == ["initialize", "attach", "initialized", "threads", "disconnect"]
    assert len(told[3]["body"]["threads"]) == 2
    assert given == [{"program": "/etc/passwd"}]
