"""The commands of a debugger: a line goes in, lines of text come out.

No line is ever executed as a program, and no name of a file is opened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fragmenta.errors import BadCall, Error, nearest, one_of, shortened
from fragmenta.inspect.debugging import status
from fragmenta.inspect.debugging.debugger import Debugger, Stop
from fragmenta.inspect.debugging.fragments import fragment_lines
from fragmenta.inspect.debugging.printing import WIDTH, shown
from fragmenta.inspect.debugging.values import reinterpreted

Lines = list[str]
MOST = 1_000_000
"""How often a command can be repeated by its number."""


class Command(NamedTuple):
    """A command: how it is written, and what it does."""

    usage: str
    does: str
    run: Callable[[Terminal, str], Lines]


class Terminal:
    """A debugger that is used by lines of text.
    ``do`` carries out a line and returns what is told; an error says what is wrong
    with the line.
    """

    def __init__(self, debugger: Debugger, width: int = WIDTH) -> None:
        self.debugger = debugger
        self.width = max(40, width)
        self.ended = False
        self._last = ""
        self._watched: list[str] = []
        self._listed: tuple[str, int] | None = None

    def opening(self) -> Lines:
        """What is said first."""
        return [*status.summary(self.debugger), *self._where()]

    def do(self, line: str) -> Lines:
        """Carry out a line; an empty one repeats the last."""
        line = line.strip()
        if line.startswith("#"):
            return []
        line = line or self._last
        if not line:
            return []
        self._last = line
        found = re.match(r"([A-Za-z][\w-]*)(/\w+)?\s*", line)
        if found is None:
            raise BadCall(
                f"a line begins with a command, such as step or print; given "
                f"{shortened(line, 40)}"
            )
        rest = (found[2] or "") + line[found.end() :]
        lines = COMMANDS[meant(found[1])].run(self, rest)
        return [each for line in lines for each in status.wrapped(line, self.width)]

    # ── moving ──────────────────────────────────────────────────────────────

    def _where(self) -> Lines:
        lines = status.where(self.debugger)
        for text in self._watched:
            try:
                lines += shown(text, self.debugger.evaluate(text), self.width)
            except Error as why:
                lines.append(f"{text}: {why}")
        self._listed = None
        return lines

    def _moved(self, stop: Stop) -> Lines:
        return [*status.stopped(stop), *self._where()]

    def _times(self, rest: str, move: Callable[[], Stop], moves: str = "step") -> Lines:
        """Move so often, or up to an end; a step that is stopped is the last."""
        for _ in range(count(rest)):
            stop = move()
            if stop.why in ("start", "end") or (moves == "step" and stop.why != moves):
                break
        return self._moved(stop)

    def _step(self, rest: str) -> Lines:
        at = self.debugger
        return self._times(rest, lambda: at.step("line"))

    def _stepi(self, rest: str) -> Lines:
        at = self.debugger
        return self._times(rest, lambda: at.step("instruction"))

    def _next(self, rest: str) -> Lines:
        at = self.debugger
        return self._times(rest, lambda: at.step("line", over=True))

    def _back(self, rest: str) -> Lines:
        at = self.debugger
        return self._times(rest, lambda: at.step("line", back=True))

    def _backi(self, rest: str) -> Lines:
        at = self.debugger
        return self._times(rest, lambda: at.step("instruction", back=True))

    def _back_next(self, rest: str) -> Lines:
        at = self.debugger
        return self._times(rest, lambda: at.step("line", back=True, over=True))

    def _go_on(self, rest: str) -> Lines:
        return self._times(rest, self.debugger.run, "run")

    def _reverse(self, rest: str) -> Lines:
        return self._times(rest, lambda: self.debugger.run(back=True), "run")

    def _finish(self, rest: str) -> Lines:
        nothing(rest, "finish")
        return self._moved(self.debugger.finish())

    def _goto(self, rest: str) -> Lines:
        if rest in ("start", "end"):
            return self._moved(
                self.debugger.goto(0 if rest == "start" else len(self.debugger))
            )
        return self._moved(self.debugger.goto(number(rest, "goto STEP")))

    def _problem(self, rest: str) -> Lines:
        if rest == "back":
            return self._moved(self.debugger.problem(back=True))
        which = number(rest, "problem [NUMBER|back]") if rest else None
        return self._moved(self.debugger.problem(which))

    def _nan(self, rest: str) -> Lines:
        if rest not in ("", "back"):
            raise BadCall(f"nan takes nothing, or back; given {shortened(rest, 40)}")
        return self._moved(self.debugger.nan(back=rest == "back"))

    def _warp(self, rest: str) -> Lines:
        if rest:
            self.debugger.look_at(number(rest, "warp NUMBER"))
        return self._where()

    # ── breakpoints ─────────────────────────────────────────────────────────

    def _set_break(self, rest: str, once: bool = False) -> Lines:
        where, condition = with_condition(rest)
        found = re.fullmatch(r"when\s+(.+)", where)
        at = self.debugger
        if found:
            made = at.break_on_write(found[1], condition)
        else:
            made = at.break_at(where, condition, once)
        return status.breakpoint_lines(made)

    def _temporary(self, rest: str) -> Lines:
        return self._set_break(rest, once=True)

    def _watch(self, rest: str) -> Lines:
        where, condition = with_condition(rest)
        return status.breakpoint_lines(self.debugger.break_on_write(where, condition))

    def _delete(self, rest: str) -> Lines:
        numbers = rest.split() or [str(each) for each in self.debugger.breakpoints]
        for each in numbers:
            self.debugger.delete(number(each, "delete [NUMBER...]"))
        return []

    # ── looking ─────────────────────────────────────────────────────────────

    def _print(self, rest: str) -> Lines:
        form = re.match(r"/(\w+)\s*", rest)
        text = rest[form.end() :] if form else rest
        word, _, more = text.partition(" ")
        if word == "fragment":
            return self._fragment(more)
        if not text:
            raise BadCall("print EXPRESSION, such as print %r5[3] or print %f1 * 2")
        value = self.debugger.evaluate(text)
        if form:
            kind = "b" if form[1] == "x" else form[1]
            if kind == "b":
                kind = f"b{8 * max(1, value.data.dtype.itemsize)}"
            value = reinterpreted(value, kind)
        return shown(text, value, self.width)

    def _display(self, rest: str) -> Lines:
        if not rest:
            return list(self._watched)
        lines = shown(rest, self.debugger.evaluate(rest), self.width)
        self._watched.append(rest)
        return lines

    def _undisplay(self, rest: str) -> Lines:
        if rest and rest not in self._watched:
            have = one_of(self._watched, "and") or "nothing"
            raise BadCall(f"{rest} is not displayed; displayed is {have}")
        self._watched = [each for each in self._watched if rest and each != rest]
        return []

    def _fragment(self, rest: str) -> Lines:
        return fragment_lines(self.debugger, rest.split(), self.width)

    def _who(self, rest: str) -> Lines:
        if not rest:
            raise BadCall("who PLACE, such as who 0x400 or who tile[3]")
        return status.who(self.debugger, rest)

    def _list(self, rest: str) -> Lines:
        lines, self._listed = status.listing(self.debugger, rest, self._listed)
        return lines

    def _backtrace(self, rest: str) -> Lines:
        nothing(rest, "backtrace")
        return status.backtrace(self.debugger)

    def _info(self, rest: str) -> Lines:
        word, _, more = rest.partition(" ")
        if not word:
            raise BadCall(f"info takes {one_of(status.INFO)}")
        return status.INFO[chosen(word, list(status.INFO), "info")](
            self.debugger, more.strip()
        )

    def _help(self, rest: str) -> Lines:
        if rest:
            found = COMMANDS[meant(rest.split(maxsplit=1)[0])]
            return [found.usage, f"  {found.does}"]
        short = {name: letter for letter, name in SHORT.items()}
        return [
            f"{each.usage:<28} {each.does}"
            + (f" ({short[name]})" if name in short else "")
            for name, each in COMMANDS.items()
        ] + ["", "A command may be shortened. An empty line repeats the last one."]

    def _quit(self, rest: str) -> Lines:
        nothing(rest, "quit")
        self.ended = True
        return []


# ── words ───────────────────────────────────────────────────────────────────


def number(text: str, usage: str) -> int:
    """A number behind a command."""
    if not re.fullmatch(r"\d{1,12}", text, re.ASCII):
        raise BadCall(f"{usage}, with a whole number; given {shortened(text, 40)}")
    return int(text)


def count(text: str) -> int:
    """How often a command is meant."""
    found = number(text, "a count follows the command") if text else 1
    if not 0 < found <= MOST:
        raise BadCall(f"a command is repeated 1 to {MOST:,} times; given {found}")
    return found


def nothing(rest: str, name: str) -> None:
    """Refuse words behind a command that takes none."""
    if rest:
        raise BadCall(f"{name} takes nothing; given {shortened(rest, 40)}")


def with_condition(text: str) -> tuple[str, str]:
    """A place, and the condition behind it.

    >>> with_condition("k.cu:31 if %r5[0] == 2")
    ('k.cu:31', '%r5[0] == 2')
    """
    where, _, condition = re.sub(r"\s+if\s+", "\0", text, count=1).partition("\0")
    if not where.strip():
        raise BadCall(
            "break FILE:LINE, LINE, ptx:LINE, FUNCTION, OPCODE or when PLACE; then "
            "maybe if EXPRESSION"
        )
    return where.strip(), condition.strip()


def _begun(word: str, every: Iterable[str], said: str) -> str | None:
    """The one that a word is the beginning of; None if there is none."""
    found = [each for each in every if each.startswith(word)]
    if word in found:
        return word
    if len(found) > 1:
        raise BadCall(f"{said} may be {one_of(found)}")
    return found[0] if found else None


def chosen(word: str, every: Lines, what: str) -> str:
    """The one of several that a word means."""
    found = _begun(word, every, f"{what} {word}")
    if found is not None:
        return found
    raise BadCall(
        f"no {what} {word:.40}{nearest(word, every)}; there are {one_of(every, 'and')}"
    )


def meant(word: str) -> str:
    """The command that a word means.

    >>> meant("b"), meant("cont"), meant("reverse-c")
    ('break', 'continue', 'reverse-continue')
    """
    if word in SHORT:
        return SHORT[word]
    found = _begun(word, COMMANDS, word)
    if found is not None:
        return found
    raise BadCall(
        f"no command {word:.40}{nearest(word, COMMANDS)}; help lists the commands"
    )


COMMANDS = {
    "step": Command("step [N]", "to the warp's next line", Terminal._step),
    "stepi": Command("stepi [N]", "to its next instruction", Terminal._stepi),
    "next": Command("next [N]", "as step, over calls", Terminal._next),
    "finish": Command("finish", "until the function returns", Terminal._finish),
    "back": Command("back [N]", "to the line before", Terminal._back),
    "backi": Command("backi [N]", "to the instruction before", Terminal._backi),
    "back-next": Command("back-next [N]", "as back, over calls", Terminal._back_next),
    "continue": Command("continue [N]", "to a breakpoint or problem", Terminal._go_on),
    "reverse-continue": Command(
        "reverse-continue [N]", "the same, backwards", Terminal._reverse
    ),
    "goto": Command("goto STEP|start|end", "to a step", Terminal._goto),
    "problem": Command(
        "problem [NUMBER|back]", "to the next problem, or to one", Terminal._problem
    ),
    "nan": Command("nan [back]", "to the next that gives NaN", Terminal._nan),
    "warp": Command("warp [NUMBER]", "look at another warp", Terminal._warp),
    "break": Command(
        "break WHERE [if EXPR]",
        "stop at FILE:LINE, ptx:LINE, OPCODE, when PLACE",
        Terminal._set_break,
    ),
    "tbreak": Command("tbreak WHERE [if EXPR]", "the same, once", Terminal._temporary),
    "watch": Command(
        "watch PLACE [if EXPR]", "stop when it is written", Terminal._watch
    ),
    "delete": Command("delete [NUMBER...]", "forget breakpoints", Terminal._delete),
    "print": Command(
        "print[/TYPE] EXPR", "%r5, %r5[3], shared[0:16] as f16", Terminal._print
    ),
    "display": Command("display [EXPR]", "print it at every stop", Terminal._display),
    "undisplay": Command("undisplay [EXPR]", "no more", Terminal._undisplay),
    "fragment": Command(
        "fragment [A|B|C|D] [LANE]",
        "operands of the last product, or a row",
        Terminal._fragment,
    ),
    "who": Command("who PLACE", "who wrote and read a byte", Terminal._who),
    "list": Command("list [WHERE]", "source around here", Terminal._list),
    "backtrace": Command("backtrace", "the functions under way", Terminal._backtrace),
    "info": Command("info WHAT", f"{one_of(status.INFO)}", Terminal._info),
    "help": Command("help [COMMAND]", "this", Terminal._help),
    "quit": Command("quit", "end", Terminal._quit),
}
SHORT = {
    "s": "step",
    "si": "stepi",
    "n": "next",
    "c": "continue",
    "rs": "back",
    "rsi": "backi",
    "rn": "back-next",
    "rc": "reverse-continue",
    "b": "break",
    "p": "print",
    "l": "list",
    "bt": "backtrace",
    "i": "info",
    "w": "warp",
    "h": "help",
    "q": "quit",
}
