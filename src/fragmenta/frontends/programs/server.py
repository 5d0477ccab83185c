"""Answers the questions of one process, over the connection that it made.

A process of the program has a process of its own here, a child of ``fragmenta run``: if
one of them crashes, the others go on.  What happened is told to the parent as lines of
JSON, of which nothing is executed.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import traceback
from typing import Any, NamedTuple

from fragmenta.errors import Error
from fragmenta.frontends.pool.answers import problem_json, problem_of
from fragmenta.frontends.pool.confining import die_with_parent
from fragmenta.frontends.programs.asked import Asked, Wanted
from fragmenta.frontends.programs.device import Device
from fragmenta.frontends.programs.recording import RecordingServer
from fragmenta.frontends.programs.reports import (
    Called,
    LaunchReport,
    Recorded,
    Refused,
    Told,
)
from fragmenta.frontends.programs.verbs import HEAD, Answer, Request, Verb

MOST_DATA = 1 << 32
"""Bytes of a question: an image of a module is the largest."""


class ClientGone(Exception):
    """The program ended, or closed its connection."""


class Peer(NamedTuple):
    """A process of the program."""

    connection: socket.socket
    process: int


def work(peer: Peer, asked: Asked, report: int, parent: int) -> None:
    """Answer until the program ends; for a child that was forked for it."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program decides what it means
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    status = 1
    try:
        serve(peer, asked, report)
        status = 0
    except ClientGone:
        status = 0
    except BaseException:
        _write(report, {"crash": traceback.format_exc(limit=-3)})
    finally:
        os._exit(status)


def serve(peer: Peer, asked: Asked, report: int) -> None:
    """Answer all questions."""
    connection = peer.connection

    def tell(told: Told) -> None:
        _write(report, told_json(told))

    def progress(share: float) -> None:
        if _closed(connection):
            raise ClientGone
        _write(report, {"share": share})

    device: Device | RecordingServer
    if isinstance(asked, Wanted):
        device = RecordingServer(asked, tell, peer.process)
    else:
        device = Device(asked, tell, _Seldom(progress), peer.process)
    try:
        while (request := receive(connection)) is not None:
            send(connection, device.answer(request))
    finally:
        if isinstance(device, Device):
            device.end()
        device.close()


class _Seldom:
    """Progress that is told at most ten times a second."""

    def __init__(self, progress: Any) -> None:
        from fragmenta.base.progress import clock

        self._progress, self._clock, self._next = progress, clock, clock.now() + 1.0

    def __call__(self, share: float) -> None:
        now = self._clock.now()
        if now >= self._next:
            self._next = now + 0.1
            self._progress(share)


def _closed(connection: socket.socket) -> bool:
    """Whether the other side has gone; it sends nothing while it waits."""
    ready, _, _ = select.select([connection], [], [], 0)
    return bool(ready) and not connection.recv(1, socket.MSG_PEEK)


def receive(connection: socket.socket) -> Request | None:
    """The next question; None if there is no more."""
    head = _exactly(connection, HEAD.size)
    if head is None:
        return None
    verb, _, size, *words = HEAD.unpack(head)
    if size > MOST_DATA:
        raise Error(f"a question has {size:,} bytes; the most is {MOST_DATA:,}")
    data = _exactly(connection, size)
    return None if data is None else Request(Verb(verb), tuple(words), bytes(data))


def _exactly(connection: socket.socket, size: int) -> bytearray | None:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        try:
            got = connection.recv_into(view)
        except ConnectionError:
            return None
        if not got:
            return None
        view = view[got:]
    return data


def send(connection: socket.socket, answer: Answer) -> None:
    """Send an answer, and the file of shared memory with it."""
    head = answer.head()
    files = [] if answer.file is None else [answer.file]
    try:
        sent = socket.send_fds(connection, [head], files)
        connection.sendall(head[sent:] + answer.data)
    except ConnectionError as why:
        raise ClientGone from why


# ── what the parent is told ─────────────────────────────────────────────────


def _write(report: int, value: dict[str, Any]) -> None:
    line = json.dumps(value).encode() + b"\n"
    while line:
        line = line[os.write(report, line) :]


def told_json(told: Told) -> dict[str, Any]:
    """What happened, as JSON."""
    if isinstance(told, Refused):
        return {"refused": told.why}
    if isinstance(told, Recorded):
        return {"recorded": told._asdict()}
    if isinstance(told, Called):
        return {"called": problem_json(told.problem)}
    return {"launched": told._replace(problems=[])._asdict()} | {
        "problems": [problem_json(each) for each in told.problems]
    }


def told_of(given: dict[str, Any]) -> Told:
    """The inverse of :func:`told_json`."""
    if "refused" in given:
        return Refused(str(given["refused"]))
    if "recorded" in given:
        return Recorded(**given["recorded"])
    if "called" in given:
        return Called(problem_of(given["called"]))
    made = LaunchReport(**given["launched"])
    return made._replace(
        grid=tuple(made.grid),
        block=tuple(made.block),
        problems=[problem_of(each) for each in given["problems"]],
    )
