"""A debug adapter: requests of an editor go in, responses and events come out.

It reads and writes nothing itself.  The launch is recorded when the editor asks for it;
then every request is answered at once: a recording has no waiting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from fragmenta.errors import BadCall, Error, nearest, one_of
from fragmenta.inspect.debugging.dap.framing import Message
from fragmenta.inspect.debugging.expressions import area, evaluate

if TYPE_CHECKING:
    from fragmenta.inspect.debugging.dap.showing import Showing
    from fragmenta.inspect.debugging.debugger import Breakpoint, Debugger, Stop
    from fragmenta.inspect.replay.recorded import Replay

Fields = dict[str, Any]

FILTERS = [
    {"filter": "problems", "label": "Races and other problems", "default": True},
    {"filter": "nan", "label": "NaN", "default": False},
]
"""What an editor may stop at, as exceptions."""
CAPABILITIES = {
    "supportsConfigurationDoneRequest": True,
    "supportsStepBack": True,
    "supportsConditionalBreakpoints": True,
    "supportsFunctionBreakpoints": True,
    "supportsDataBreakpoints": True,
    "supportsEvaluateForHovers": True,
    "supportsReadMemoryRequest": True,
    "supportsExceptionInfoRequest": True,
    "supportsSteppingGranularity": True,
    "supportsTerminateRequest": True,
    "supportsDelayedStackTraceLoading": True,
    "exceptionBreakpointFilters": FILTERS,
}
_REASONS = {
    "start": "entry",
    "step": "step",
    "breakpoint": "breakpoint",
    "write": "data breakpoint",
    "problem": "exception",
    "nan": "exception",
    "goto": "goto",
    "end": "pause",
}
LOOKING = ("print", "fragment", "who", "list", "backtrace", "info", "help")
"""Commands of the terminal that a console may use: they do not move."""


class Adapter:
    """Answers one editor."""

    def __init__(self, record: Callable[[Fields], Replay]) -> None:
        self._record = record
        self._sequence = 0
        self._debugger: Debugger | None = None
        self._showing: Showing | None = None
        self._set: dict[tuple[str, str], list[int]] = {}
        """The breakpoints of each file, and of each kind without files."""
        self._entry = False
        self._first_line = 1
        self.ended = False

    def answers(self, request: Message) -> Iterator[Message]:
        """The response to a request, and the events that follow."""
        command, given = request.get("command"), request.get("arguments")
        number = request.get("seq", 0)
        if request.get("type") != "request" or not isinstance(command, str):
            return
        events: list[Message] = []
        answer: Message = {
            "type": "response",
            "request_seq": number if isinstance(number, int) else 0,
            "success": True,
            "command": command,
        }
        try:
            body = self._answer(
                command, given if isinstance(given, dict) else {}, events
            )
            if body is not None:
                answer["body"] = body
        except (Error, MemoryError) as why:
            text = str(why) or type(why).__name__
            answer["success"], answer["message"] = False, text
            answer["body"] = {
                "error": {"id": 1, "format": _plain(text), "showUser": True}
            }
        for each in (answer, *events):
            self._sequence += 1
            yield {"seq": self._sequence, **each}

    def _answer(
        self, command: str, given: Fields, events: list[Message]
    ) -> Fields | None:
        name = "_on_" + re.sub(r"(?<=[a-z])(?=[A-Z])", "_", command).lower()
        handler = getattr(self, name, None)
        if handler is None or not re.fullmatch(r"[A-Za-z]+", command):
            known = [
                re.sub(r"_(\w)", lambda found: found[1].upper(), each[4:])
                for each in dir(self)
                if each.startswith("_on_")
            ]
            raise BadCall(f"no request {command:.40}{nearest(command, known)}")
        found: Fields | None = handler(given, events)
        return found

    # ── beginning and end ───────────────────────────────────────────────────

    def _on_initialize(self, given: Fields, events: list[Message]) -> Fields:
        self._first_line = 1 if given.get("linesStartAt1", True) else 0
        return CAPABILITIES

    def _on_launch(self, given: Fields, events: list[Message]) -> None:
        if self._debugger is not None:
            raise BadCall("one launch is recorded already")
        replay = self._record(given)
        # Editors wait for their first answer, so this is loaded behind it.
        from fragmenta.inspect.debugging.dap.showing import Showing
        from fragmenta.inspect.debugging.debugger import Debugger

        self._debugger = Debugger(replay)
        self._showing = Showing(self._debugger)
        self._entry = bool(given.get("stopOnEntry", False))
        printed = getattr(replay, "output", "")
        if printed:
            events.append(_event("output", category="stdout", output=printed))
        if replay.left_out:
            said = f"{replay.left_out}\n"
            events.append(_event("output", category="console", output=said))
        events.append(_event("initialized"))

    _on_attach = _on_launch

    def _on_configuration_done(self, given: Fields, events: list[Message]) -> None:
        at = self._at
        stop = at.stop if self._entry else at.run(first=True)
        self._stopped(stop, events)

    def _on_disconnect(self, given: Fields, events: list[Message]) -> None:
        self.ended = True

    def _on_terminate(self, given: Fields, events: list[Message]) -> None:
        events.append(_event("terminated"))

    @property
    def _at(self) -> Debugger:
        if self._debugger is None:
            raise BadCall("nothing is recorded yet; launch or attach comes first")
        return self._debugger

    @property
    def _shown(self) -> Showing:
        if self._showing is None:
            raise BadCall("nothing is recorded yet; launch or attach comes first")
        return self._showing

    # ── breakpoints ─────────────────────────────────────────────────────────

    def _on_set_breakpoints(self, given: Fields, events: list[Message]) -> Fields:
        source = _fields(given, "source")
        if reference := _number(source, "sourceReference", 0):
            file = self._at.lines.by_number(reference)
        else:
            file = str(source.get("path") or source.get("name") or "")

        def make(each: Fields) -> Breakpoint:
            line = _number(each, "line", 1) + 1 - self._first_line
            return self._at.break_at(f"{file}:{line}", _text(each, "condition"))

        return self._replaced(("line", file), _list(given, "breakpoints"), make)

    def _on_set_function_breakpoints(
        self, given: Fields, events: list[Message]
    ) -> Fields:
        def make(each: Fields) -> Breakpoint:
            return self._at.break_at(_text(each, "name"), _text(each, "condition"))

        return self._replaced(("function", ""), _list(given, "breakpoints"), make)

    def _on_data_breakpoint_info(self, given: Fields, events: list[Message]) -> Fields:
        name = _text(given, "name")
        try:
            span = self._at.span(name)
        except Error as why:
            return {"dataId": None, "description": str(why)}
        return {
            "dataId": name,
            "description": f"{span.text} written",
            "accessTypes": ["write"],
        }

    def _on_set_data_breakpoints(self, given: Fields, events: list[Message]) -> Fields:
        def make(each: Fields) -> Breakpoint:
            return self._at.break_on_write(
                _text(each, "dataId"), _text(each, "condition")
            )

        return self._replaced(("write", ""), _list(given, "breakpoints"), make)

    def _on_set_exception_breakpoints(
        self, given: Fields, events: list[Message]
    ) -> Fields:
        chosen = given.get("filters") or []
        if not isinstance(chosen, list):
            raise BadCall(f"filters is a list; given {chosen!r:.40}")
        known = [each["filter"] for each in FILTERS]
        for each in chosen:
            if each not in known:
                raise BadCall(
                    f"no filter {each!r:.40}; there are {one_of(known, 'and')}"
                )
        self._at.at_problems = "problems" in chosen
        self._at.at_nan = "nan" in chosen
        return {"breakpoints": [{"verified": True} for _ in chosen]}

    def _replaced(
        self,
        key: tuple[str, str],
        wanted: list[Fields],
        make: Callable[[Fields], Breakpoint],
    ) -> Fields:
        """Set the breakpoints of a file anew."""
        for number in self._set.pop(key, ()):
            self._at.breakpoints.pop(number, None)
        shown, numbers = [], []
        for each in wanted:
            try:
                made = make(each)
            except Error as why:
                shown.append({"verified": False, "message": str(why)})
                continue
            numbers.append(made.number)
            told: Fields = {"id": made.number, "verified": True}
            if key[0] == "line":
                told["line"] = made.place[1] - 1 + self._first_line
            shown.append(told)
        self._set[key] = numbers
        return {"breakpoints": shown}

    # ── moving ──────────────────────────────────────────────────────────────

    def _stopped(self, stop: Stop, events: list[Message]) -> None:
        self._shown.forget()
        body: Fields = {
            "reason": _REASONS[stop.why],
            "threadId": self._at.warp + 1,
            "allThreadsStopped": True,
        }
        if stop.words:
            body["description"] = stop.title or stop.words
            body["text"] = stop.words
        if stop.breakpoint:
            body["hitBreakpointIds"] = [stop.breakpoint]
        events.append({"type": "event", "event": "stopped", "body": body})

    def _chosen(self, given: Fields) -> None:
        """Take the warp of a request into view."""
        if "threadId" in given:
            self._at.look_at(self._shown.warp(_number(given, "threadId", 1)))

    def _step(
        self, given: Fields, events: list[Message], back: bool, over: bool
    ) -> None:
        self._chosen(given)
        by = "instruction" if given.get("granularity") == "instruction" else "line"
        self._stopped(self._at.step(by, back, over), events)

    def _on_next(self, given: Fields, events: list[Message]) -> None:
        self._step(given, events, back=False, over=True)

    def _on_step_in(self, given: Fields, events: list[Message]) -> None:
        self._step(given, events, back=False, over=False)

    def _on_step_back(self, given: Fields, events: list[Message]) -> None:
        self._step(given, events, back=True, over=True)

    def _on_step_out(self, given: Fields, events: list[Message]) -> None:
        self._chosen(given)
        self._stopped(self._at.finish(), events)

    def _on_continue(self, given: Fields, events: list[Message]) -> Fields:
        self._stopped(self._at.run(), events)
        return {"allThreadsContinued": True}

    def _on_reverse_continue(self, given: Fields, events: list[Message]) -> None:
        self._stopped(self._at.run(back=True), events)

    def _on_pause(self, given: Fields, events: list[Message]) -> None:
        self._chosen(given)
        stop = self._at.stop._replace(why="end", words="a recording stands still")
        self._stopped(stop._replace(title="", breakpoint=0), events)

    # ── looking ─────────────────────────────────────────────────────────────

    def _on_threads(self, given: Fields, events: list[Message]) -> Fields:
        return {"threads": self._shown.threads() if self._debugger else []}

    def _on_stack_trace(self, given: Fields, events: list[Message]) -> Fields:
        every = self._shown.frames(_number(given, "threadId", 1))
        for each in every:
            each["line"] += self._first_line - 1
        first, most = _number(given, "startFrame", 0), _number(given, "levels", 0)
        shown = every[first : first + most] if most else every[first:]
        return {"stackFrames": shown, "totalFrames": len(every)}

    def _on_scopes(self, given: Fields, events: list[Message]) -> Fields:
        return {"scopes": self._shown.scopes(_number(given, "frameId", 0))}

    def _on_variables(self, given: Fields, events: list[Message]) -> Fields:
        count = _number(given, "count", 0) or None
        reference = _number(given, "variablesReference", 0)
        start = max(0, _number(given, "start", 0))
        return {"variables": self._shown.variables(reference, start, count)}

    def _on_evaluate(self, given: Fields, events: list[Message]) -> Fields:
        text = _text(given, "expression").strip()
        if (
            given.get("context") == "repl"
            and (lines := self._console(text)) is not None
        ):
            return {"result": "\n".join(lines), "variablesReference": 0}
        frame = _number(given, "frameId", 0) or None
        names = self._shown.names(frame)
        value = evaluate(text, names)
        shown = self._shown.variable(text, value)
        found = {
            "result": shown["value"],
            "type": shown["type"],
            "variablesReference": shown["variablesReference"],
            "indexedVariables": shown.get("indexedVariables", 0),
        }
        if (part := area(text, names)) is not None:
            memory = names.memory_name(part)
            found["memoryReference"] = self._shown.reference_to(memory, part.start)
        return found

    def _console(self, text: str) -> list[str] | None:
        """What a command of the terminal says; None if it is an expression."""
        from fragmenta.inspect.debugging.terminal import Terminal, meant

        word = re.match(r"[a-z]+", text)
        try:
            name = meant(word[0]) if word else ""
        except Error:
            return None
        if name not in LOOKING or (word and text[word.end() :][:1] in ("[", "+")):
            return None
        return Terminal(self._at).do(text)

    def _on_exception_info(self, given: Fields, events: list[Message]) -> Fields:
        stop = self._at.stop
        if stop.why not in ("problem", "nan"):
            raise BadCall("the debugger has not stopped at a problem")
        found = next(
            (each for each in self._at.problems if each.number == stop.problem), None
        )
        return {
            "exceptionId": "nan" if found is None else found.code,
            "description": stop.words,
            "breakMode": "always",
            "details": {"message": stop.words},
        }

    def _on_read_memory(self, given: Fields, events: list[Message]) -> Fields:
        return self._shown.read_memory(
            _text(given, "memoryReference"),
            _number(given, "offset", 0),
            _number(given, "count", 0),
        )

    def _on_source(self, given: Fields, events: list[Message]) -> Fields:
        inner = _fields(given, "source")
        number = _number(given, "sourceReference", 0)
        number = number or _number(inner, "sourceReference", 0)
        file = self._at.lines.by_number(number)
        return {"content": "\n".join(self._at.replay.lines(file)) + "\n"}


# ── messages ────────────────────────────────────────────────────────────────


def _event(name: str, **body: object) -> Message:
    found: Message = {"type": "event", "event": name}
    if body:
        found["body"] = body
    return found


def _plain(text: str) -> str:
    """A text without braces, which the protocol replaces."""
    return text.replace("{", "(").replace("}", ")")


def _number(given: Fields, name: str, otherwise: int) -> int:
    found: Any = given.get(name, otherwise)
    if isinstance(found, bool) or not isinstance(found, int) or abs(found) > 1 << 48:
        raise BadCall(f"{name} is a whole number; given {found!r:.40}")
    return found


def _text(given: Fields, name: str) -> str:
    found = given.get(name) or ""
    if not isinstance(found, str):
        raise BadCall(f"{name} is a text; given {found!r:.40}")
    return found


def _fields(given: Fields, name: str) -> Fields:
    found = given.get(name) or {}
    if not isinstance(found, dict):
        raise BadCall(f"{name} is an object; given {found!r:.40}")
    return found


def _list(given: Fields, name: str) -> list[Fields]:
    found = given.get(name) or []
    if not isinstance(found, list) or not all(isinstance(e, dict) for e in found):
        raise BadCall(f"{name} is a list of objects")
    return found
