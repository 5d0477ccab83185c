"""The connections of ``fragmenta serve``: lines come in, replies go out as they come.

All connections are handled in one thread, by asyncio; launches run in the processes of
a pool.  What a client may have under way is bounded, in number and in bytes.  When a
client goes, its launches are cancelled.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import socket
import stat
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import NamedTuple

from fragmenta import __version__
from fragmenta.commands import serve_requests as requests
from fragmenta.commands.serve_requests import (
    MOST_JOBS,
    MOST_LINE,
    MOST_MEMORY,
    PROTOCOL,
    Folders,
    Json,
    Key,
    PendingRequest,
    ServerRequest,
)
from fragmenta.errors import BadCall, BadFile
from fragmenta.frontends.pool.orders import remove_socket
from fragmenta.frontends.pool.pool import Pool
from fragmenta.launch.limits import Limits

PART = 1 << 16
MOST_REPLIES = 1024
"""Replies that wait for a client; until it reads some, it is not listened to."""
BYE = "bye"
"""The last event of a server."""


class ServingPool(Pool):
    """The pool of a server, whose fork server removes the socket if the server dies."""

    def __init__(
        self, place: Socket | None, workers: int | None, launches: int, limits: Limits
    ) -> None:
        self._words = () if place is None else place.words
        super().__init__(workers, limits=limits, launches=launches)


class Server:
    """What all connections share: the pool, the folders, and the end."""

    def __init__(self, pool: Pool, folders: Folders) -> None:
        self.pool, self.folders = pool, folders
        self.size = 0
        """Bytes of all requests that are under way."""
        self.signal = 0
        """The signal that ended it, if one did."""
        self._ending = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, listening: socket.socket) -> None:
        """Serve whoever connects, until the end."""
        server = await asyncio.start_unix_server(self._connected, sock=listening)
        await self._until_the_end()
        server.close()

    async def serve(self, one: socket.socket) -> None:
        """Serve one connection, until it ends."""
        streams = await asyncio.open_unix_connection(sock=one)
        task = asyncio.ensure_future(self._connected(*streams))
        task.add_done_callback(lambda _: self.end())
        await self._until_the_end()

    def end(self, number: int = 0) -> None:
        """End all connections."""
        self.signal = self.signal or number
        self._ending.set()

    async def _until_the_end(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.end, int(number))
        await self._ending.wait()
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await Connection(self, reader, writer).serve()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    def hello(self) -> Json:
        """The first line that a client gets."""
        return {
            "event": "hello",
            "protocol": PROTOCOL,
            "version": __version__,
            "workers": self.pool.workers,
            "limits": self.pool.limits._asdict(),
            "folders": list(self.folders.allowed),
            "bytes": MOST_LINE,
        }


class Connection:
    """A client: its requests that are under way, and what it is told."""

    def __init__(
        self,
        server: Server,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._server, self._reader, self._writer = server, reader, writer
        self._loop = asyncio.get_running_loop()
        self._asked: dict[Key, PendingRequest] = {}
        self._replies: asyncio.Queue[tuple[Json, PendingRequest | None]] = (
            asyncio.Queue()
        )
        self._read_some = asyncio.Event()
        self._ended = False

    async def serve(self) -> None:
        """Answer all requests, then end."""
        sending = asyncio.ensure_future(self._send())
        try:
            self._tell(self._server.hello())
            async for line in _lines(self._reader, self._too_long):
                self._handle(line)
                await asyncio.sleep(0)  # let others have their turn
                if self._replies.qsize() > MOST_REPLIES:
                    self._read_some.clear()
                    await self._read_some.wait()
            if not _has_gone(self._writer):
                self._ended = True
                self._tell({})
                await sending
        finally:
            self._ended = True
            sending.cancel()
            self._cancel_all()

    def _cancel_all(self) -> None:
        for asked in [*self._asked.values()]:
            asked.job.cancel()
            self._forget(asked)

    def _tell(self, what: Json, about: PendingRequest | None = None) -> None:
        self._replies.put_nowait((what, about))

    async def _send(self) -> None:
        """Send replies until the client has them all."""
        while not self._ended or self._asked or not self._replies.empty():
            what, about = await self._replies.get()
            if what:
                text = json.dumps(what, allow_nan=False)
                self._writer.write(text.encode() + b"\n")
                await self._writer.drain()
            if about is not None:
                self._forget(about)
            if self._replies.qsize() <= MOST_REPLIES:
                self._read_some.set()
            if what.get("event") == BYE:
                self._server.end()

    def _forget(self, asked: PendingRequest) -> None:
        key = asked.request.id
        if key is not None and self._asked.get(key) is asked:
            del self._asked[key]
            self._server.size -= asked.size

    def _too_long(self) -> None:
        why = BadCall(f"a line has at most {MOST_LINE:,} bytes")
        self._tell({"id": None, **requests.error_fields(why)})

    # ── requests ────────────────────────────────────────────────────────────

    def _handle(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            self._carry_out(requests.read(line))
        except Exception as error:  # no line ends a connection
            found = requests.id_of(line)
            self._tell({"id": found, **requests.error_fields(error)})

    def _carry_out(self, request: ServerRequest) -> None:
        match request.op:
            case "hello":
                self._greet(request)
            case "cancel":
                self._cancel(request)
            case "shutdown":
                self._tell({"id": request.id, "event": BYE})
            case _:
                self._submit(request)

    def _greet(self, request: ServerRequest) -> None:
        wanted = request.fields.get("protocol", PROTOCOL)
        if wanted != PROTOCOL:
            raise BadCall(
                f"this server speaks protocol {PROTOCOL}; given "
                f"{requests.shown(wanted)}"
            )
        self._tell({"id": request.id, **self._server.hello()})

    def _cancel(self, request: ServerRequest) -> None:
        assert request.id is not None
        asked = self._asked.get(request.id)
        if asked is None:
            raise BadCall(f"no request {request.id!r} is under way")
        asked.job.cancel()  # its own reply says so

    def _submit(self, request: ServerRequest) -> None:
        server, key = self._server, request.id
        assert key is not None
        if key in self._asked:
            raise BadCall(f"a request {key!r} is under way already; ids differ")
        if len(self._asked) >= MOST_JOBS:
            raise BadCall(
                f"{MOST_JOBS:,} requests are under way, which is the most; ask again "
                "when one of them is done"
            )
        asked = requests.submit(
            request, server.pool, server.folders, MOST_MEMORY - server.size
        )
        self._asked[key] = asked
        server.size += asked.size
        asked.job.add_done_callback(lambda _: self._notify(asked))

    def _notify(self, asked: PendingRequest) -> None:
        """A job is done; called by another thread."""
        with suppress(RuntimeError):  # the server has ended
            self._loop.call_soon_threadsafe(self._done, asked)

    def _done(self, asked: PendingRequest) -> None:
        try:
            told = requests.reply(asked)
        except Exception as error:  # each request has a reply
            told = {"id": asked.request.id, **requests.error_fields(error)}
        self._tell(told, asked)


async def _lines(
    reader: asyncio.StreamReader, too_long: Callable[[], None]
) -> AsyncIterator[bytes]:
    """The lines of a stream; one that is too long is left out."""
    parts: list[bytes] = []
    size = 0
    while part := await reader.read(PART):
        first, *others = part.split(b"\n")
        for rest in [first, *others][: len(others)] if others else []:
            size += len(rest)
            if size <= MOST_LINE:
                yield b"".join([*parts, rest])
            else:
                too_long()
            parts, size = [], 0
        last = others[-1] if others else first
        size += len(last)
        parts = [*parts, last] if size <= MOST_LINE else []
    if parts and size <= MOST_LINE:
        yield b"".join(parts)
    elif size > MOST_LINE:
        too_long()


def _has_gone(writer: asyncio.StreamWriter) -> bool:
    """Whether a client that sends no more has closed its connection altogether."""
    found = writer.get_extra_info("socket")
    poll = select.poll()
    poll.register(found.fileno(), select.POLLHUP)
    return any(events & select.POLLHUP for _, events in poll.poll(0))


# ── sockets ─────────────────────────────────────────────────────────────────


class Socket(NamedTuple):
    """A socket in the file system, which only this user can connect to."""

    listening: socket.socket
    path: str
    made: str
    """The folder that was made for it; empty if it was there."""
    inode: int

    def remove(self) -> None:
        """Close and remove it, unless another server has taken its place."""
        self.listening.close()
        remove_socket(*self.words)

    @property
    def words(self) -> tuple[str, str, str]:
        """What a fork server needs to remove it."""
        return self.path, str(self.inode), self.made


def open_socket(path: str | None) -> Socket:
    """Listen at a path, or in a new folder that only this user can enter."""
    made = ""
    if path is None:
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        within = runtime if runtime and _is_private(runtime) else None
        made = tempfile.mkdtemp(prefix="fragmenta-serve-", dir=within)
        path = os.path.join(made, "serve.sock")
    else:
        _check_place(path)
    listening = socket.socket(socket.AF_UNIX)
    before = os.umask(0o177)
    try:
        listening.bind(path)
    except OSError as why:
        listening.close()
        raise BadFile(
            f"no socket can be made at {path}: {why.strerror or why}"
        ) from None
    finally:
        os.umask(before)
    listening.listen(128)
    return Socket(listening, path, made, os.lstat(path).st_ino)


def _is_private(folder: str) -> bool:
    """Whether no other user can enter or write a folder."""
    try:
        about = os.stat(folder)
    except OSError:
        return False
    mine = about.st_uid == os.getuid()
    return stat.S_ISDIR(about.st_mode) and mine and not about.st_mode & 0o022


def _check_place(path: str) -> None:
    """Refuse a place that others can write; remove what a dead server left."""
    folder = os.path.dirname(os.path.abspath(path))
    if not _is_private(folder):
        raise BadFile(
            f"--socket must be in a folder that this user alone owns and can write; "
            f"{folder} is none"
        )
    try:
        about = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(about.st_mode):
        raise BadFile(f"{path} exists and is no socket")
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except OSError as why:
            raise BadFile(f"{path}: {why.strerror or why}") from None
    raise BadFile(f"a server listens at {path} already")


# ── the standard streams ────────────────────────────────────────────────────


class Bridge:
    """The standard streams as a socket; a file has no events to wait for."""

    def __init__(self, reads: int, writes: int) -> None:
        self.ours, self._theirs = socket.socketpair()
        self._into = threading.Thread(target=self._read, args=(reads,), daemon=True)
        self._out = threading.Thread(target=self._write, args=(writes,), daemon=True)
        self._into.start()
        self._out.start()

    def _read(self, source: int) -> None:
        try:
            while part := os.read(source, PART):
                self._theirs.sendall(part)
            self._theirs.shutdown(socket.SHUT_WR)
        except OSError:  # the server has ended
            pass

    def _write(self, to: int) -> None:
        try:
            while part := self._theirs.recv(PART):
                view = memoryview(part)
                while view:
                    view = view[os.write(to, view) :]
        except OSError:  # nobody reads the answers
            self._theirs.close()

    def finish(self) -> None:
        """Wait until all that was said has been written."""
        self.ours.close()
        self._out.join()
