"""The streams of the debugger: a prompt, a script, or messages of an editor."""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fragmenta.commands.output import complain, emit, write
from fragmenta.errors import BadFile, Error
from fragmenta.inspect.debugging.dap import framing
from fragmenta.inspect.debugging.dap.adapter import Adapter

if TYPE_CHECKING:
    from fragmenta.inspect.debugging.terminal import Terminal
    from fragmenta.inspect.replay.recorded import Replay

PROMPT = "(fragmenta) "
MOST_COLUMNS = 120
Record = Callable[[dict[str, Any]], "Replay"]


def converse(
    replay: Replay, width: int, script: str | None, commands: Sequence[str]
) -> bool:
    """Carry out the commands of a script, of options, of a pipe, or of a person.

    A script ends at the first error; then the answer is False.
    """
    # An editor is answered before this is loaded.
    from fragmenta.inspect.debugging.debugger import Debugger
    from fragmenta.inspect.debugging.terminal import Terminal

    terminal = Terminal(Debugger(replay), min(width, MOST_COLUMNS))
    person = sys.stdin is not None and sys.stdin.isatty()
    if person:
        _say(terminal.opening())
    lines: Iterable[str] = list(commands)
    if script is not None:
        content = Path(script).read_text(encoding="utf-8", errors="replace")
        lines = [*content.splitlines(), *lines]
    given = script is not None or bool(commands)
    if not given and not person and sys.stdin is not None:
        lines = _piped(terminal, sys.stdin)
    done = _scripted(terminal, lines)
    if person and done:
        _interactive(terminal)
    return done


def _piped(terminal: Terminal, stream: Iterable[str]) -> Iterator[str]:
    """The lines of a pipe; if there is none, say what there is to debug."""
    some = False
    for line in stream:
        some = True
        yield line
    if not some:
        _say(terminal.opening())


def _say(lines: Iterable[str]) -> None:
    text = "\n".join(lines)
    if text:
        emit(text)


def _scripted(terminal: Terminal, lines: Iterable[str]) -> bool:
    """Carry out lines; empty ones separate them."""
    for line in lines:
        if terminal.ended:
            break
        if not line.strip():
            continue
        try:
            _say(terminal.do(line))
        except Error as why:
            complain(f"{line.strip()[:60]}: {why}")
            return False
    return True


def _interactive(terminal: Terminal) -> None:
    """Ask for commands until the end."""
    _use_readline()
    while not terminal.ended:
        try:
            line = input(PROMPT)
        except EOFError:
            write("")
            return
        except KeyboardInterrupt:
            write("")
            continue
        try:
            _say(terminal.do(line))
        except Error as why:
            complain(str(why))


def _use_readline() -> None:
    """Let a person edit lines, and complete commands."""
    try:
        from readline import get_begidx, parse_and_bind, set_completer
    except ImportError:  # it is not on every system
        return

    from fragmenta.inspect.debugging.terminal import COMMANDS

    def complete(word: str, state: int) -> str | None:
        if get_begidx():
            return None
        found = [f"{each} " for each in COMMANDS if each.startswith(word)]
        return found[state] if state < len(found) else None

    set_completer(complete)
    parse_and_bind("tab: complete")


# ── editors ─────────────────────────────────────────────────────────────────


def serve(incoming: IO[bytes], outgoing: IO[bytes], record: Record) -> None:
    """Answer one editor until it leaves."""

    def quietly(given: dict[str, Any]) -> Replay:
        # The standard output belongs to the protocol.
        with contextlib.redirect_stdout(sys.stderr):
            return record(given)

    adapter = Adapter(quietly)
    for request in _requests(incoming):
        for message in adapter.answers(request):
            outgoing.write(framing.framed(message))
        outgoing.flush()
        if adapter.ended:
            return


def _requests(incoming: IO[bytes]) -> Iterator[framing.Message]:
    """The messages of a stream; one that cannot be read ends it."""
    while True:
        try:
            found = framing.read(incoming)
        except BadFile as why:
            complain(f"Error: {why}")
            return
        if found is None:
            return
        yield found


def listen(port: int, record: Record) -> None:
    """Answer one editor on a port of this machine."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        emit(f"listening at 127.0.0.1:{listening.getsockname()[1]}")
        sys.stdout.flush()
        connection, _ = listening.accept()
        gone = contextlib.suppress(ConnectionError)
        incoming, outgoing = connection.makefile("rb"), connection.makefile("wb")
        with gone, connection, incoming, outgoing:
            serve(incoming, outgoing, record)
