"""``fragmenta serve``: answers in lines, for several clients, within its bounds."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fragmenta as fm
from fragmenta import ptx
from fragmenta.commands import serve, serve_connections, serve_requests
from fragmenta.commands.app import examples
from fragmenta.commands.serve_connections import Server
from fragmenta.commands.serve_requests import FIELDS, PROTOCOL, Folders
from fragmenta.frontends.pool.pool import Pool
from tests.asking import answer, complaint
from tests.clock import HANG
from tests.pool.texts import TEXT

COMMAND = [sys.executable, "-m", "fragmenta", "serve"]


class Client:
    """A client of a server."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(HANG)
        self.socket.connect(path)
        self._file = self.socket.makefile("rb")
        self.hello = self.hear()

    def say(self, *requests: Any) -> None:
        lines = [
            each if isinstance(each, bytes) else json.dumps(each).encode()
            for each in requests
        ]
        self.socket.sendall(b"".join(line + b"\n" for line in lines))

    def hear(self) -> Any:
        return json.loads(self._file.readline())

    def ask(self, *requests: Any) -> Any:
        """Say something, and hear as many replies."""
        self.say(*requests)
        found = [self.hear() for _ in requests]
        return found[0] if len(found) == 1 else found

    def close(self) -> None:
        self._file.close()
        self.socket.close()


class Served:
    """A server, and the folder that it may read."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.allowed = folder / "allowed"
        self.allowed.mkdir()
        folder.chmod(0o700)
        self.path = str(folder / "s")
        words = ("--socket", self.path, "--allow", str(self.allowed), *words)
        self.process = subprocess.Popen(
            [*COMMAND, *words, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert self.process.stdout is not None
        self.told = json.loads(self.process.stdout.readline())
        self.clients: list[Client] = []

    def client(self) -> Client:
        self.clients.append(Client(self.path))
        return self.clients[-1]

    def end(self) -> tuple[int, bytes]:
        """Wait until all of its processes have ended; status and error stream."""
        for each in self.clients:
            each.close()
        _, said = self.process.communicate(timeout=HANG)
        return self.process.returncode, said


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("serve"), "--workers", "1")
    yield made
    made.process.terminate()
    assert made.end() == (0, b"")
    assert not os.path.exists(made.path)


@pytest.fixture
def client(served: Served) -> Iterator[Client]:
    made = served.client()
    yield made
    made.close()


def launch(number: Any, kernel: str, *arguments: Any, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "op": "launch",
        "ptx": TEXT,
        "kernel": kernel,
        "grid": 1,
        "block": 4,
        "arguments": list(arguments),
        **more,
    }


def array(given: np.ndarray[Any, Any], name: str) -> dict[str, Any]:
    data = base64.b64encode(given.tobytes()).decode()
    return {"type": name, "shape": list(given.shape), "data": data}


def test_only_its_user_can_connect(served: Served, client: Client) -> None:
    mode = os.stat(served.path).st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600
    about = {"event": "listening", "socket": served.path, "protocol": PROTOCOL}
    assert served.told == about
    assert client.hello["protocol"] == PROTOCOL
    assert client.hello["folders"] == [os.path.realpath(served.allowed)]


@pytest.mark.long
def test_a_launch_is_that_of_the_library(client: Client) -> None:
    x = np.arange(4, dtype=np.int32)
    told = client.ask(launch("a", "twice", array(x, "i32")))
    result = ptx.parse(TEXT).kernels["twice"].launch(1, 4, [x])
    assert (told["id"], told["event"], told["output"]) == ("a", "result", "")
    assert told["counts"] == result.counts
    assert told["problems"] == [each.to_dict() for each in result.problems]
    assert told["arrays"] == [{"argument": 0, **array(x, "i32")}]


def test_faults_and_hazards_say_what_the_library_says(client: Client) -> None:
    for kernel in ("race", "outside"):
        x = np.arange(4, dtype=np.int32)
        told = client.ask(launch(7, kernel, array(x, "i32")))
        with pytest.raises(fm.errors.KernelError) as why:
            ptx.parse(TEXT).kernels[kernel].launch(1, 4, [x])
        assert (told["id"], told["event"]) == (7, "error")
        assert told["error"] == type(why.value).__name__
        assert (told["message"], told["fault"]) == (str(why.value), why.value.kind)
        assert told["line"] == why.value.line
        assert told["arrays"] == [{"argument": 0, **array(x, "i32")}]
        assert ("counts" in told) == (kernel == "race")


def test_arguments_have_several_forms(served: Served, client: Client) -> None:
    np.save(served.allowed / "x.npy", np.arange(4, dtype=np.float32))
    (served.allowed / "k.ptx").write_text(TEXT)
    file = {"file": str(served.allowed / "x.npy")}
    asked = launch(1, "copy", file, "zeros:f32:2x4", 0.5)
    told = client.ask(asked | {"file": str(served.allowed / "k.ptx")} | {"ptx": None})
    assert "needs one of ptx" in told["message"]
    del asked["ptx"]
    told = client.ask(asked | {"file": str(served.allowed / "k.ptx")})
    wanted = np.zeros((2, 4), np.float32)
    wanted[0] = np.arange(4) + 0.5
    assert told["arrays"][1] == {"argument": 1, **array(wanted, "f32")}
    told = client.ask(launch(2, "copy", "arange:f32:8", "pointer:0+16", "f32:1"))
    wanted = np.array([0, 1, 2, 3, 1, 2, 3, 4], np.float32)
    assert told["arrays"] == [{"argument": 0, **array(wanted, "f32")}]
    told = client.ask(launch(3, "twice", "zeros:i32:4", arrays=False))
    assert told["event"] == "result"
    assert "arrays" not in told


def test_a_check_has_problems(client: Client) -> None:
    told = client.ask({"id": 1, "op": "check", "ptx": "nonsense"})
    assert [each["rule"] for each in told["problems"]] == ["syntax"]
    assert client.ask({"id": 1, "op": "check", "ptx": TEXT})["problems"] == [
        each.to_dict() for each in ptx.parse(TEXT).check()
    ]


GOOD = launch(1, "twice", "zeros:i32:4")
WRONG: dict[str, tuple[Any, str]] = {
    "no JSON": (b"nonsense", "a line is one JSON object; Expecting value"),
    "no object": (b"[1, 2]", "a line is one JSON object; given '[1, 2]'"),
    "no UTF-8": (b'{"op": "\xff"}', "a line is one JSON object"),
    "deep": (b"[" * 100_000, "a line is one JSON object"),
    "not a number": (b'{"id": NaN}', "NaN is no JSON"),
    "a long number": (b'{"id": ' + b"9" * 5000 + b"}", "a line is one JSON object"),
    "no op": ({"id": 1}, "there is no op 'None'; op is hello, launch, check"),
    "a wrong op": ({"id": 1, "op": "lunch"}, "(did you mean launch?)"),
    "an op that is a list": ({"id": 1, "op": [1]}, "there is no op '[1]'"),
    "no id": ({"op": "launch"}, "launch needs an id"),
    "a long id": ({"op": "check", "id": "x" * 201}, "at most 200 characters"),
    "a wrong id": ({"op": "check", "id": 1.5}, "or a whole number; given '1.5'"),
    "an unknown field": ({**GOOD, "gird": 1}, "'gird' (did you mean grid?)"),
    "no text": ({"id": 1, "op": "check"}, "needs one of ptx (a text) and file"),
    "null for a text": (
        {**GOOD, "ptx": None},
        "ptx (a text) and file (a path); given ptx, null",
    ),
    "null for a file": ({"id": 1, "op": "check", "file": None}, "given file, null"),
    "a text that is none": ({**GOOD, "ptx": 5}, "ptx is a text; given '5'"),
    "no grid": ({"id": 1, "op": "launch", "ptx": ""}, "launch needs grid"),
    "a wrong grid": ({**GOOD, "grid": "x"}, "grid is one to three whole numbers"),
    "a wrong block": ({**GOOD, "block": 4096}, "a block has 1 to 1,024 threads"),
    "a wrong kernel": ({**GOOD, "kernel": "twise"}, "(did you mean twice?)"),
    "a kernel that is a number": ({**GOOD, "kernel": 1}, "kernel is a text"),
    "a wrong target": ({**GOOD, "target": "sm_1"}, "sm_1"),
    "a wrong flag": ({**GOOD, "contract": 3}, "contract must be True or False"),
    "arrays": ({**GOOD, "arrays": "all"}, "arrays is true or false"),
    "a wrong watch": ({**GOOD, "watch": [1]}, "watch is true, false, 'raise'"),
    "a wrong schedule": ({**GOOD, "schedule": "now"}, "schedule"),
    "limits": ({**GOOD, "limits": 3}, "limits is an object"),
    "a wrong limit": ({**GOOD, "limits": {"second": 1}}, "(did you mean seconds?)"),
    "a limit that is a text": ({**GOOD, "limits": {"seconds": "1"}}, "seconds is how"),
    "a wide limit": ({**GOOD, "limits": {"seconds": 1e9}}, "at most seconds = 3,600"),
    "no limit": ({**GOOD, "limits": {"output": None}}, "at most output = 16,777,216"),
    "no list": ({**GOOD, "arguments": {}}, "arguments is a list"),
    "no argument": ({**GOOD, "arguments": [None]}, "argument 0: an argument is a num"),
    "words": ({**GOOD, "arguments": ["zeros:i32"]}, "zeros:TYPE:SHAPE"),
    "a large array": ({**GOOD, "arguments": ["ones:u8:9999999999"]}, "at most"),
    "a goal": ({**GOOD, "arguments": ["pointer:3"]}, "argument 3 is no array"),
    "base64": (
        {**GOOD, "arguments": [{"type": "i8", "shape": [1], "data": "!"}]},
        "argument 0: data is the bytes in base64",
    ),
    "a type": (
        {**GOOD, "arguments": [{"type": "i9", "shape": [1], "data": ""}]},
        "no type 'i9'; there are i8",
    ),
    "a shape": (
        {**GOOD, "arguments": [{"type": "i8", "shape": [-1], "data": ""}]},
        "shape is a list of whole numbers",
    ),
    "an empty array of a wide shape": (
        {**GOOD, "arguments": [{"type": "i32", "shape": [0, 1 << 62], "data": ""}]},
        "have a product below 2^63, in bytes; given [0, 4611686018427387904]",
    ),
    "the same in words": (
        {**GOOD, "arguments": ["zeros:i32:0x4611686018427387904"]},
        "have a product below 2^63",
    ),
    "bytes": (
        {**GOOD, "arguments": [{"type": "i16", "shape": [3], "data": "AAAA"}]},
        "data of i16 and shape [3] is 6 bytes; given 3",
    ),
    "a forbidden file": (
        {**GOOD, "arguments": [{"file": "/etc/passwd"}]},
        "is not in a folder that this server may read",
    ),
    "a zero byte": ({**GOOD, "arguments": [{"file": "a\0b"}]}, "no zero bytes"),
    "a file in words": ({**GOOD, "arguments": ["/etc/x.npy"]}, "neither a .npy"),
    "no request to cancel": ({"id": 9, "op": "cancel"}, "no request 9 is under way"),
    "another protocol": (
        {"op": "hello", "protocol": 2},
        "speaks protocol 1; given '2'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_request_is_answered(client: Client, case: str) -> None:
    request, said = WRONG[case]
    told = client.ask(request)
    assert told["event"] == "error"
    assert said in told["message"]
    assert issubclass(getattr(fm.errors, told["error"]), fm.Error)
    if isinstance(request, dict) and case not in ("a long id", "a wrong id"):
        assert told["id"] == request.get("id")
    assert client.ask({"op": "hello"})["event"] == "hello"


def test_a_mistake_of_ours_is_a_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise IndexError("list index out of range")

    monkeypatch.setattr(serve_requests, "submit", fail)
    with Pool(1) as pool:
        replies = asyncio.run(_replies_of(pool, [GOOD, {"op": "hello", "id": 2}]))
    assert [each["event"] for each in replies] == ["hello", "error", "hello"]
    assert "this is a mistake of fragmenta" in replies[1]["message"]


async def _replies_of(pool: Pool, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    ours, theirs = socket.socketpair()
    serving = asyncio.ensure_future(Server(pool, Folders(())).serve(ours))
    with theirs:
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        text = "".join(json.dumps(each) + "\n" for each in lines)
        await loop.sock_sendall(theirs, text.encode())
        theirs.shutdown(socket.SHUT_WR)
        found = b""
        while part := await loop.sock_recv(theirs, 1 << 16):
            found += part
    await serving
    return [json.loads(each) for each in found.splitlines()]


def test_files_outside_are_not_reached_by_links(served: Served, client: Client) -> None:
    (served.allowed / "link").symlink_to("/etc/passwd")
    for path in ("link", "../s", "missing.npy"):
        for request in (
            {**GOOD, "arguments": [{"file": str(served.allowed / path)}]},
            {"id": 1, "op": "check", "file": str(served.allowed / path)},
        ):
            told = client.ask(request)
            assert told["event"] == "error"
            inside = "No such file" if path == "missing.npy" else "may read"
            assert inside in told["message"]


def test_requests_are_cancelled_by_their_id(client: Client) -> None:
    client.say(launch(1, "endless", 0), launch(2, "endless", 0), {**GOOD, "id": 3})
    client.say({"id": 1, "op": "launch", "ptx": TEXT, "grid": 1, "block": 1})
    assert "under way already" in client.hear()["message"]
    client.say({"id": 2, "op": "cancel"}, {"id": 1, "op": "cancel"})
    told = [client.hear() for _ in range(3)]
    assert [(each["id"], each["event"]) for each in told] == [
        (2, "cancelled"),
        (1, "cancelled"),
        (3, "result"),
    ]


def test_what_a_client_asked_is_cancelled_when_it_goes(served: Served) -> None:
    gone, other = served.client(), served.client()
    gone.say(launch(1, "endless", 0), launch(2, "endless", 0))
    gone.close()
    assert other.ask({**GOOD, "id": 1})["event"] == "result"


def test_a_client_that_says_no_more_gets_its_replies(served: Served) -> None:
    made = served.client()
    made.say({**GOOD, "id": 1}, {**GOOD, "id": 2})
    made.socket.shutdown(socket.SHUT_WR)
    assert {made.hear()["id"] for _ in range(2)} == {1, 2}
    assert made._file.read() == b""


def test_a_limit_ends_a_launch(client: Client) -> None:
    told = client.ask(launch(1, "endless", 0, limits={"seconds": 0.05}))
    assert (told["error"], told["fault"]) == ("LimitReached", "seconds")
    assert "longer than 0.05 s" in told["message"]


def test_too_much_at_once_is_refused(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = client.ask(
        launch(1, "twice", f"zeros:u8:{serve_requests.MOST_MEMORY - len(TEXT) + 1}")
    )
    assert "an array has at most" in told["message"]


def test_lines_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve_connections, "MOST_LINE", 10)
    found: list[bytes] = []
    said = b"0123456789\n" + b"01234567890\n" + b"x" * 70_000 + b"\nab\n\ncd"

    async def read() -> None:
        reader = asyncio.StreamReader()
        reader.feed_data(said)
        reader.feed_eof()
        lines = serve_connections._lines(reader, lambda: found.append(b"too long"))
        found.extend([line async for line in lines])

    asyncio.run(read())
    assert found == [b"too long"] * 2 + [b"0123456789", b"ab", b"", b"cd"]


# ── the end ─────────────────────────────────────────────────────────────────


@pytest.mark.long
@pytest.mark.parametrize("end", ["shutdown", "interrupt", "kill"])
def test_a_server_leaves_nothing(tmp_path: Path, end: str) -> None:
    """The error stream is open as long as one of its processes lives."""
    made = Served(tmp_path, "--workers", "1")
    client = made.client()
    client.say(launch(1, "endless", 0))
    if end == "shutdown":
        assert client.ask({"id": 5, "op": "shutdown"}) == {"id": 5, "event": "bye"}
    else:
        number = signal.SIGINT if end == "interrupt" else signal.SIGKILL
        made.process.send_signal(number)
    wanted = {"shutdown": 0, "interrupt": 130, "kill": -9}[end]
    assert made.end() == (wanted, b"")
    assert not os.path.exists(made.path)


@pytest.mark.long
def test_the_standard_streams_are_served(tmp_path: Path) -> None:
    """Requests may be a file; what is under way at its end is finished."""
    lines = [{**GOOD, "id": 1}, {"id": 2, "op": "check", "ptx": TEXT}]
    (tmp_path / "asked").write_text("\n".join(map(json.dumps, lines)))
    with open(tmp_path / "asked", "rb") as asked:
        done = subprocess.run(
            [*COMMAND, "--stdio", "--workers", "1"],
            stdin=asked,
            capture_output=True,
            timeout=HANG,
            check=True,
        )
    hello, *told = map(json.loads, done.stdout.splitlines())
    assert hello["event"] == "hello"
    assert [(each["id"], each["event"]) for each in told] == [
        (1, "result"),
        (2, "result"),
    ]
    assert done.stderr == b""


def test_where_a_socket_may_be(tmp_path: Path, served: Served) -> None:
    open_folder = tmp_path / "open"
    open_folder.mkdir(mode=0o700)
    open_folder.chmod(0o777)
    told = complaint("serve", "--socket", open_folder / "s")
    assert "this user alone owns and can write" in told
    tmp_path.chmod(0o700)
    (tmp_path / "file").write_text("")
    assert "is no socket" in complaint("serve", "--socket", tmp_path / "file")
    assert "listens at" in complaint("serve", "--socket", served.path)
    assert "cannot both" in complaint("serve", "--stdio", "--socket", "x")
    assert "takes a folder" in complaint("serve", "--allow", tmp_path / "file")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    made = serve_connections.open_socket(str(tmp_path / "left"))
    made.remove()
    assert not (tmp_path / "left").exists()
    own = serve_connections.open_socket(None)
    folder = os.path.dirname(own.path)
    assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
    own.remove()
    assert not os.path.exists(folder)


@pytest.mark.parametrize("example", examples("serve"))
def test_the_examples_of_the_help_start_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, example: str
) -> None:
    """The server itself is left out here: it would not end."""
    started: list[Any] = []

    class Started(contextlib.AbstractContextManager[Any]):
        def __init__(self, *given: Any) -> None:
            started.append(given)

        def __exit__(self, *_: object) -> None:
            pass

        def close(self, cancel: bool) -> None:
            assert cancel

    async def served(*_: object) -> int:
        return 0

    tmp_path.chmod(0o700)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(serve, "ServingPool", Started)
    monkeypatch.setattr(serve, "_serve", served)
    _, *words = shlex.split(example.partition(" > ")[0])
    told = answer(*words)
    ((place, _, _, limits),) = started
    assert (place is None) == ("--stdio" in example)
    assert limits.seconds == (10 if "--seconds 10" in example else 3600)
    assert told == (f"listening at {place.path}\n" if place else "")
    assert not place or not os.path.exists(place.path)


def test_without_folders_no_file_is_read() -> None:
    with pytest.raises(fm.errors.BadCall, match="reads no files"):
        Folders.of([]).path("x.npy")


def test_the_page_names_every_operation_and_field() -> None:
    page = Path(__file__).parents[2] / "docs" / "serve.md"
    text = page.read_text("utf-8")
    words = {*FIELDS, *(each for fields in FIELDS.values() for each in fields)}
    assert not [word for word in words if f"`{word}`" not in text]
