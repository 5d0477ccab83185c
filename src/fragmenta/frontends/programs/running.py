"""Runs a program: starts it, serves its processes, and collects what happened.

``fragmenta run`` is the parent of the program and of a server for each of its processes
that uses CUDA.  They meet at a socket in a folder that only this user can enter.  All
of it ends with the parent, and the folder is removed.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from types import FrameType, ModuleType

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.progress import Progress, clock, ignore_progress
from fragmenta.cuda.tools import assembler
from fragmenta.errors import Error, MissingPackage
from fragmenta.frontends.pool.confining import die_with_parent
from fragmenta.frontends.programs import building, compiling, elf
from fragmenta.frontends.programs.asked import Asked, ProgramOptions, Wanted
from fragmenta.frontends.programs.reports import Called, LaunchReport, Recorded, Refused

VARIABLE, RECORDING = "FRAGMENTA_RUN", "FRAGMENTA_RECORD"
"""Where the client finds the socket: to run kernels here, to record them on a card."""
GRACE = 5.0
"""Seconds that servers have after the program has ended, and the program after
Ctrl-C."""


@dataclass
class Outcome:
    """What came of a program."""

    status: int = 0
    """Its exit status; the negative number of a signal that ended it."""
    launches: list[LaunchReport] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Functions of CUDA that are not there, with the reason; launches that could not
    be recorded."""
    calls: list[Called] = field(default_factory=list)
    """Copies to the host of memory that nobody has written; uses of freed memory."""
    crashes: list[str] = field(default_factory=list)
    """What went wrong with the servers themselves."""


def run(
    words: Sequence[str],
    options: ProgramOptions,
    *,
    flags: Sequence[str] = (),
    output: int | None = None,
    progress: Progress = ignore_progress,
) -> Outcome:
    """Run a program with its arguments; what came of it.

    If the first word is a ``.cu`` file, it is compiled, with these flags for nvcc.
    ``output`` is the file that gets what the program prints.
    """
    source = compiling.is_source(words[0])
    if source:
        compiling.check_source(words[0])
    else:
        elf.check(words[0])
    with _folder("run") as folder:
        building.build(folder)
        if source:
            target = options.arithmetic
            made = compiling.compile_program(words[0], target, flags, folder)
            words = [str(made), *words[1:]]
        libraries = elf.check(words[0])
        with _Terminated(), _Runner(folder, options, progress) as runner:
            there = _environment(folder, libraries, VARIABLE)
            return runner.run(words, there, output)


def record(
    words: Sequence[str], wanted: Wanted, *, output: int | None = None
) -> Outcome:
    """Run a program on the real card, and record chosen launches."""
    path = elf.find(words[0])
    with _folder("record") as folder:
        building.build_recorder(folder, building.real_driver())
        libraries = [building.DRIVER] if building.DRIVER in elf.needed(path) else []
        with _Terminated(), _Runner(folder, wanted, ignore_progress) as runner:
            there = _environment(folder, libraries, RECORDING)
            return runner.run(words, there, output)


@contextmanager
def _folder(what: str) -> Iterator[Path]:
    """A folder for the libraries and the socket, which only this user can enter.

    A process of its own removes it, also if this one is killed.
    """
    if not hasattr(os, "memfd_create") or not hasattr(os, "pidfd_open"):
        raise Error(f"fragmenta {what} needs Linux 5.3 or later")
    folder = Path(tempfile.mkdtemp(prefix=f"fragmenta-{what}-"))
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(writing)
        _remove_at_the_end(reading, folder)
    os.close(reading)
    try:
        yield folder
    finally:
        os.close(writing)
        os.waitpid(child, 0)
        shutil.rmtree(folder, ignore_errors=True)  # if somebody ended the child


def _remove_at_the_end(reading: int, folder: Path) -> None:
    """Wait until nobody holds the other end of a pipe, then remove a folder."""
    try:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_IGN)
        os.setsid()
        os.read(reading, 1)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _environment(folder: Path, libraries: list[str], variable: str) -> dict[str, str]:
    """The environment of the program: our libraries come first."""
    made = dict(os.environ)
    before = made.get("LD_LIBRARY_PATH")
    made["LD_LIBRARY_PATH"] = f"{folder}:{before}" if before else str(folder)
    ours = [str(folder / each) for each in libraries if (folder / each).exists()]
    loaded = [*ours, *filter(None, [made.get("LD_PRELOAD")])]
    if loaded:
        made["LD_PRELOAD"] = ":".join(loaded)
    made[variable] = str(folder / "socket")
    return made | _of_compilers(folder) if variable == VARIABLE else made


def _of_compilers(folder: Path) -> dict[str, str]:
    """What tells Python, and compilers that the program starts, what is different here.

    With line information, machine code has its PTX beside it.  What the CuTe DSL
    compiles calls the libraries of ``CUTE_DSL_LIBS``.  PyCUDA looks for nvcc in
    ``PATH``; that of the wheels is the last there.
    """
    libraries = (building.RUNTIMES["13"], building.DRIVER)
    flags = os.environ.get("NVCC_APPEND_FLAGS", "")
    path = [str(folder / building.PYTHON), os.environ.get("PYTHONPATH", "")]
    search = [os.environ.get("PATH", "")]
    with suppress(MissingPackage):
        search.append(str(assembler.tool("nvcc").parent))
    return {
        "PATH": ":".join(filter(None, search)),
        "PYTHONPATH": ":".join(filter(None, path)),
        "NVCC_APPEND_FLAGS": f"{flags} -lineinfo".strip(),
        "CUTE_DSL_LINEINFO": "1",
        "CUTE_DSL_LIBS": ":".join(str(folder / each) for each in libraries),
    }


class _Terminated:
    """While it is entered, SIGTERM ends this process as an exception does."""

    def __enter__(self) -> None:
        def leave(number: int, _: FrameType | None) -> None:
            raise SystemExit(128 + number)

        self._before = signal.signal(signal.SIGTERM, leave)

    def __exit__(self, *error: object) -> None:
        signal.signal(signal.SIGTERM, self._before)


def _server() -> ModuleType:
    """What answers the program; it is loaded after the program was started."""
    from fragmenta.frontends.programs import server

    return server


class _Server:
    """A child that answers one process of the program."""

    def __init__(self, process: int, report: int) -> None:
        self.process, self.report = process, report
        self._rest = b""

    def lines(self) -> list[bytes] | None:
        """What it has told; None if it has ended."""
        data = os.read(self.report, 1 << 20)
        if not data:
            return None
        *whole, self._rest = (self._rest + data).split(b"\n")
        return whole


class _Runner:
    """The program, its servers, and what they tell."""

    def __init__(self, folder: Path, asked: Asked, progress: Progress) -> None:
        self.asked, self.progress = asked, progress
        self.outcome = Outcome()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(folder / "socket"))
        self._listener.listen(64)
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._servers: dict[int, _Server] = {}
        self._program: subprocess.Popen[bytes] | None = None
        self._watched = -1

    def __enter__(self) -> _Runner:
        return self

    def __exit__(self, *error: object) -> None:
        if self._program is not None and self._program.poll() is None:
            self._program.kill()
            self._program.wait()
        for each in list(self._servers.values()):
            with suppress(ProcessLookupError):
                os.kill(each.process, signal.SIGKILL)
            self._end(each)
        self._selector.close()
        self._listener.close()
        if self._watched >= 0:
            os.close(self._watched)

    def run(
        self, words: Sequence[str], environment: dict[str, str], output: int | None
    ) -> Outcome:
        """Run the program until it and its servers have ended."""
        parent = os.getpid()
        self._program = subprocess.Popen(
            list(words),
            env=environment,
            stdout=output,
            # No other thread runs here.
            preexec_fn=lambda: die_with_parent(parent),  # noqa: PLW1509
        )
        self._watched = os.pidfd_open(self._program.pid)
        _server()  # while the program starts
        self._selector.register(self._watched, selectors.EVENT_READ, self._ended)
        self._until(lambda: self._program is None or self._program.poll() is not None)
        self._until(lambda: not self._servers, GRACE)
        self.outcome.status = self._program.returncode
        return self.outcome

    def _until(self, done: Callable[[], bool], patience: float | None = None) -> None:
        """Serve until something is done, or for so many seconds."""
        end = None if patience is None else clock.now() + patience
        while not done():
            left = None if end is None else end - clock.now()
            if left is not None and left <= 0:
                return
            try:
                for key, _ in self._selector.select(left):
                    key.data()
            except KeyboardInterrupt:
                end = self._interrupted(end)

    def _interrupted(self, end: float | None) -> float:
        """Pass Ctrl-C on; after another one, or some seconds, the program is ended."""
        assert self._program is not None
        if end is None:
            with suppress(ProcessLookupError):
                self._program.send_signal(signal.SIGINT)
            return clock.now() + GRACE
        self._program.kill()
        return end

    def _ended(self) -> None:
        self._selector.unregister(self._watched)
        assert self._program is not None
        self._program.wait()

    def _accept(self) -> None:
        """A process of the program uses CUDA: fork a server for it."""
        server = _server()
        connection, _ = self._listener.accept()
        with connection:
            kind = struct.Struct("3i")  # process, user, group
            told = connection.getsockopt(
                socket.SOL_SOCKET, socket.SO_PEERCRED, kind.size
            )
            process, user, _ = kind.unpack(told)
            if user != os.getuid():
                return
            reading, writing = os.pipe()
            parent, child = os.getpid(), os.fork()
            if not child:
                os.close(reading)
                self._listener.close()
                peer = server.Peer(connection, process)
                server.work(peer, self.asked, writing, parent)
            os.close(writing)
        made = self._servers[child] = _Server(child, reading)
        self._selector.register(reading, selectors.EVENT_READ, lambda: self._hear(made))

    def _hear(self, of: _Server) -> None:
        lines = of.lines()
        if lines is None:
            self._end(of)
            return
        for line in lines:
            told = json.loads(line)
            if "share" in told:
                self.progress(told["share"])
            elif "crash" in told:
                self.outcome.crashes.append(told["crash"].strip())
            else:
                made = _server().told_of(told)
                if isinstance(made, Refused):
                    self.outcome.refused.append(made.why)
                elif isinstance(made, Recorded):
                    self.outcome.recorded.append(made)
                elif isinstance(made, Called):
                    self.outcome.calls.append(made)
                else:
                    self.outcome.launches.append(made)

    def _end(self, of: _Server) -> None:
        """A server has ended; a signal that ended it is told."""
        del self._servers[of.process]
        self._selector.unregister(of.report)
        os.close(of.report)
        _, status = os.waitpid(of.process, 0)
        if os.WIFSIGNALED(status) and self._program is not None:
            name = signal.Signals(os.WTERMSIG(status)).name
            self.outcome.crashes.append(f"the engine was ended by {name}")
