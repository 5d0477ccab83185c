"""The debug adapter: every request, in the order of an editor, and hostile ones."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
import pytest

from fragmenta.errors import BadCall, BadFile
from fragmenta.inspect.debugging.dap import framing
from fragmenta.inspect.debugging.dap.adapter import CAPABILITIES, Adapter
from fragmenta.inspect.replay.recorded import Replay
from tests.debugging import kernels


class Editor:
    """Asks an adapter, and keeps the events."""

    def __init__(self, replay: Replay) -> None:
        self.adapter = Adapter(lambda given: replay)
        self.events: list[dict[str, Any]] = []
        self.sequence = 0

    def ask(self, command: str, **given: Any) -> dict[str, Any]:
        """The response, whether it is a success or not."""
        self.sequence += 1
        asked = {"seq": self.sequence, "type": "request", "command": command}
        answers = list(self.adapter.answers({**asked, "arguments": given}))
        response, *self.events = answers
        assert response["type"] == "response"
        assert response["request_seq"] == self.sequence
        for each in answers:  # they can be written
            framing.framed(each)
        return response

    def get(self, command: str, **given: Any) -> dict[str, Any]:
        """The body of a response."""
        response = self.ask(command, **given)
        assert response["success"], response.get("message")
        return response.get("body", {})

    def stopped(self) -> dict[str, Any]:
        """The last event, which says where it stopped."""
        assert self.events[-1]["event"] == "stopped"
        body: dict[str, Any] = self.events[-1]["body"]
        return body

    def line(self, thread: int = 1) -> int:
        """The line of the innermost frame."""
        frames = self.get("stackTrace", threadId=thread)["stackFrames"]
        found: int = frames[0]["line"]
        return found


def editor(replay: Replay, *filters: str, entry: bool = True) -> Editor:
    """An editor that has begun a session."""
    made = Editor(replay)
    assert made.get("initialize", adapterID="fragmenta") == CAPABILITIES
    made.get("launch", program="k.ptx", stopOnEntry=entry)
    assert made.events[-1]["event"] == "initialized"
    made.get("setExceptionBreakpoints", filters=list(filters))
    made.get("configurationDone")
    return made


def test_a_session() -> None:
    made = editor(kernels.calls())
    assert made.stopped()["reason"] == "entry"
    assert made.get("threads")["threads"] == [{"id": 1, "name": "block 0 warp 0"}]
    assert made.line() == 13
    source = made.get("stackTrace", threadId=1)["stackFrames"][0]["source"]
    asked = [{"line": 18}, {"line": 26, "condition": "%r2[0] == 9"}, {"line": 99}]
    found = made.get("setBreakpoints", source=source, breakpoints=asked)["breakpoints"]
    assert [each["verified"] for each in found] == [True, True, False]
    assert "the last one is at line" in found[2]["message"]
    made.get("continue", threadId=1)
    assert made.stopped()["reason"] == "breakpoint"
    assert made.stopped()["hitBreakpointIds"] == [found[0]["id"]]
    made.get("next", threadId=1, granularity="instruction")
    assert made.line() == 19
    made.get("stepBack", threadId=1)
    made.get("next", threadId=1)
    assert made.line() == 19
    made.get("stepBack", threadId=1)
    made.get("stepIn", threadId=1)
    frames = made.get("stackTrace", threadId=1)
    assert [each["name"] for each in frames["stackFrames"]] == ["twice", "calls"]
    one = made.get("stackTrace", threadId=1, startFrame=1, levels=1)
    assert [each["name"] for each in one["stackFrames"]] == ["calls"]
    made.get("stepOut", threadId=1)
    assert made.line() == 18
    made.get("reverseContinue", threadId=1)
    made.get("setBreakpoints", source=source, breakpoints=[])
    made.get("continue", threadId=1)
    assert made.stopped()["description"] == "the recording ends here"
    assert made.get("pause", threadId=1) == {}
    assert made.line() == 29  # of a warp that has ended
    text = made.get("source", source=source, sourceReference=source["sourceReference"])
    assert text["content"] == kernels.CALLS
    made.get("terminate")
    assert made.events[-1]["event"] == "terminated"
    made.get("disconnect")
    assert made.adapter.ended


def test_variables_are_the_lanes_of_registers() -> None:
    replay = kernels.race()
    made = editor(replay, "problems", entry=False)
    assert made.stopped()["reason"] == "exception"
    thread = made.stopped()["threadId"]
    told = made.get("exceptionInfo", threadId=1)
    assert told["exceptionId"] == "shared-race"
    assert told["description"].startswith("problem 1, shared-race: block (0, 0, 0)")
    frame = made.get("stackTrace", threadId=thread)["stackFrames"][0]["id"]
    scopes = made.get("scopes", frameId=frame)["scopes"]
    names = [each["name"] for each in scopes]
    assert names[:3] == ["Registers", "Predicates", "Special registers"]
    assert {"shared memory", "global data memory", "Units", "Barriers"} <= {*names}
    below = {
        scope["name"]: made.get("variables", **scope)["variables"] for scope in scopes
    }
    step = made.adapter._at.moment
    wanted = replay.registers_at(step - 1, thread - 1)
    assert {each["name"] for each in below["Registers"]} == wanted.keys()
    (f2,) = (each for each in below["Registers"] if each["name"] == "%f2")
    lanes = made.get("variables", variablesReference=f2["variablesReference"])
    shown = [float(each["value"]) for each in lanes["variables"]]
    np.testing.assert_array_equal(shown, wanted["%f2"])
    some = made.get(
        "variables", variablesReference=f2["variablesReference"], start=30, count=9
    )
    assert [each["name"] for each in some["variables"]] == ["[30]", "[31]"]
    for each in lanes["variables"][:3]:
        again = made.get("evaluate", expression=each["evaluateName"], frameId=frame)
        assert again["result"] == each["value"]
    (tile, *_) = below["shared memory"]
    reference = tile["memoryReference"]
    found = made.get("readMemory", memoryReference=reference, offset=4, count=4)
    assert np.frombuffer(base64.b64decode(found["data"]), np.float32) == [2.0]
    past = made.get("readMemory", memoryReference=reference, offset=1 << 20, count=8)
    assert past["unreadableBytes"] == 8


def test_data_breakpoints_and_functions() -> None:
    made = editor(kernels.calls(), "nan")
    info = made.get("dataBreakpointInfo", name="out[3]")
    assert info["accessTypes"] == ["write"]
    assert made.get("dataBreakpointInfo", name="nothing")["dataId"] is None
    made.get("setDataBreakpoints", breakpoints=[{"dataId": info["dataId"]}])
    made.get("setFunctionBreakpoints", breakpoints=[{"name": "twice"}])
    reasons = []
    for _ in range(6):
        made.get("continue", threadId=1)
        reasons.append(made.stopped()["reason"])
    wanted = ["breakpoint"] * 3 + ["data breakpoint", "exception", "pause"]
    assert reasons == wanted


def test_a_console_takes_commands_that_look() -> None:
    made = editor(kernels.calls())
    assert (
        "block 0 warp 0"
        in made.get("evaluate", expression="info warps", context="repl")["result"]
    )
    assert made.get("evaluate", expression="1 + 2", context="repl")["result"] == "3"
    moved = made.ask("evaluate", expression="step", context="repl")
    assert not moved["success"]
    assert "no register, variable or memory step" in moved["message"]


def test_inlined_code_has_frames_of_its_own() -> None:
    made = editor(kernels.inlined())
    source = {"name": "helper.cuh", "path": "/home/me/helper.cuh"}
    found = made.get("setBreakpoints", source=source, breakpoints=[{"line": 6}])
    assert found["breakpoints"] == [{"id": 1, "verified": True, "line": 6}]
    made.get("continue", threadId=1)
    frames = made.get("stackTrace", threadId=1)["stackFrames"]
    assert [(each["source"]["name"], each["line"]) for each in frames][:2] == [
        ("helper.cuh", 6),
        ("kernel.cu", 12),
    ]


REQUESTS = [name[4:] for name in dir(Adapter) if name.startswith("_on_")]


@pytest.mark.parametrize("name", REQUESTS)
def test_wrong_arguments_are_answered_in_words(name: str) -> None:
    """No request ends the session, with whatever it comes."""
    first, *rest = name.split("_")
    command = first + "".join(each.title() for each in rest)
    keys = ("threadId", "frameId", "variablesReference", "source", "breakpoints")
    keys += ("expression", "memoryReference", "count", "filters", "start", "offset")
    for value in (None, -1, 10**30, "x", [], [1], {}, {"a": 1}, True, 1.5):
        for made in (Editor(kernels.inlined()), editor(kernels.inlined())):
            answer = made.ask(command, **dict.fromkeys(keys, value))
            assert answer["success"] or answer["message"]


def test_what_is_no_request() -> None:
    made = editor(kernels.inlined())
    assert not list(made.adapter.answers({"type": "event"}))
    assert not list(made.adapter.answers({"type": "request", "command": 5}))
    answer = made.ask("evalute", expression="1")
    assert answer["message"] == "no request evalute (did you mean evaluate?)"
    assert not made.ask("_on_next")["success"]
    assert made.ask("launch")["message"] == "one launch is recorded already"
    early = Editor(kernels.inlined())
    assert early.ask("next")["message"].startswith("nothing is recorded yet")


def test_an_error_of_the_launch_is_told() -> None:
    def fails(given: dict[str, Any]) -> Replay:
        raise BadCall("--block is missing")

    made = Editor(kernels.inlined())
    made.adapter = Adapter(fails)
    answer = made.ask("launch", program="k.ptx")
    assert (answer["success"], answer["message"]) == (False, "--block is missing")


@pytest.mark.parametrize(
    "content",
    [
        b"Content-Length: 99999999999\r\n\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: 2\r\n\r\n[]",
        b"Content-Length: 3\r\n\r\n{a}",
        b"\r\n\r\n",
        b"X: 1\r\n" * 99,
        b"Content-Length: 200000\r\n\r\n" + b"[" * 200000,
    ],
)
def test_what_is_no_message(content: bytes) -> None:
    with pytest.raises(BadFile):
        framing.read(io.BytesIO(content))


def test_a_stream_that_ends() -> None:
    assert framing.read(io.BytesIO(b"")) is None
    assert framing.read(io.BytesIO(b"Content-Length: 9\r\n\r\n{}")) is None
