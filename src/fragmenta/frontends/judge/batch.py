"""Judges many candidates: :class:`Batch`."""

from __future__ import annotations

import base64
import hashlib
import queue
import shutil
import tempfile
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, cast

import numpy as np

from fragmenta.errors import BadCall, Error, LimitReached
from fragmenta.frontends.judge.findings import Finding
from fragmenta.frontends.judge.questions import Prepare, Try
from fragmenta.frontends.judge.settings import Settings
from fragmenta.frontends.judge.verdict import Verdict, verdict_json, verdict_of
from fragmenta.frontends.pool.answers import Json
from fragmenta.frontends.pool.job import Job
from fragmenta.frontends.pool.manager import AnyJob
from fragmenta.frontends.pool.packing import MemoryRegion, PackedArguments
from fragmenta.frontends.pool.pool import Pool
from fragmenta.frontends.pool.questions import KernelText
from fragmenta.launch.limits import Limits

if TYPE_CHECKING:
    from distributed import Client

REFERENCE_SECONDS = 300.0
"""How long a reference may take for all its cases."""
AHEAD = 256
"""Candidates that are taken from an iterator ahead of their turn."""
GRACE = 15.0
"""Seconds after a candidate's time, in which its examiner must answer."""


class _Judges(Pool):
    """Processes that judge; each of them one candidate."""

    _program = "from fragmenta.frontends.judge.server import main; main()"

    def __init__(self, workers: int | None, folder: str) -> None:
        self._words = (folder,)
        super().__init__(workers, launches=1)

    def ask(self, question: Prepare | Try, data: bytes = b"") -> Job[Json]:
        """Ask a process; data are not copied for each question."""
        memory = [np.frombuffer(data, np.uint8)] if data else []
        job: Job[Json] = Job(question, memory, dict)
        self._manager.add(cast("AnyJob", job))
        return job


class Batch:
    r"""Judges many candidates, in processes that stay warm.

    ``submit`` takes a reference and a candidate, as texts or paths, and returns a
    future; ``judge`` takes many of them, and yields verdicts as they come.  A reference
    is evaluated once.  ``client`` is a Dask client: then its workers judge.

    >>> reference = '''
    ... import numpy as np
    ... n = 64
    ... def get_inputs():
    ...     return [np.random.rand(n).astype(np.float32)]
    ... def reference(x):
    ...     return 2 * x
    ... '''
    >>> zeros = "import numpy as np\ndef candidate(x): return np.zeros_like(x)"
    >>> with Batch(workers=1) as batch:
    ...     batch.submit(reference, zeros).result().names
    ('zeros', 'no-launch', 'host-work')
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        settings: Settings | None = None,
        client: Client | None = None,
    ) -> None:
        self.settings = Settings() if settings is None else settings
        if not isinstance(self.settings, Settings):
            raise BadCall(f"settings is judge.Settings(...); given {settings!r}")
        self._client = client
        self._lock = threading.Lock()
        self._references: dict[str, Future[bytes]] = {}
        self._left: set[Future[Verdict]] = set()
        if client is None:
            self._folder = tempfile.mkdtemp()  # its name does not say whose it is
            try:
                self._judges = _Judges(workers, self._folder)
            except Error:
                shutil.rmtree(self._folder, ignore_errors=True)
                raise

    # ── candidates ──────────────────────────────────────────────────────────

    def submit(
        self, reference: str | Path, candidate: str | Path, name: str = ""
    ) -> Future[Verdict]:
        """Judge a candidate; the result of the future is a :class:`Verdict`.

        A text is a source if it has several lines, else the path of a file.
        """
        task, about = source(reference, "reference")
        text, own = source(candidate, "candidate")
        made: Future[Verdict] = Future()
        with self._lock:
            self._left.add(made)
        made.add_done_callback(self._ended)
        if self._client is not None:
            self._send(made, task, text, name or own)
            return made

        def prepared(ready: Future[bytes]) -> None:
            error = ready.exception()
            if error is not None:
                made.set_exception(error)
            else:
                self._try(made, text, name or own, ready.result())

        self._prepared(task, about).add_done_callback(prepared)
        return made

    def judge(
        self, pairs: Iterable[tuple[str | Path, str | Path]]
    ) -> Iterator[Verdict]:
        """Verdicts about pairs of a reference and a candidate, as they come."""
        return self.verdicts((*each, "") for each in pairs)

    def verdicts(
        self, given: Iterable[tuple[str | Path, str | Path, str]]
    ) -> Iterator[Verdict]:
        """The same, with a name for each candidate.

        If a reference fails, its candidates have the finding ``no-reference``.
        """
        done: queue.SimpleQueue[tuple[Future[Verdict], str]] = queue.SimpleQueue()
        left, waiting = iter(given), 0
        while True:
            for task, candidate, name in islice(left, max(0, AHEAD - waiting)):
                self._queue(done, task, candidate, name)
                waiting += 1
            if not waiting:
                return
            yield _verdict(*done.get())
            waiting -= 1

    def _queue(
        self,
        done: queue.SimpleQueue[tuple[Future[Verdict], str]],
        task: str | Path,
        candidate: str | Path,
        name: str,
    ) -> None:
        """Judge a candidate; the future comes to the queue when it is done."""
        shown = name or source(candidate, "candidate")[1]
        future = self.submit(task, candidate, name)
        future.add_done_callback(lambda each: done.put((each, shown)))

    def _ended(self, future: Future[Verdict]) -> None:
        with self._lock:
            self._left.discard(future)

    # ── processes ───────────────────────────────────────────────────────────

    def _prepared(self, text: str, name: str) -> Future[bytes]:
        """The cases of a reference."""
        key = hashlib.sha256(text.encode()).hexdigest()
        with self._lock:
            if key in self._references:
                return self._references[key]
            made: Future[bytes] = Future()
            self._references[key] = made
        limits = Limits(seconds=REFERENCE_SECONDS, memory=self.settings.memory)
        question = Prepare(KernelText(text, name), self.settings, self._folder, limits)

        def ready(job: Future[Json]) -> None:
            error = job.exception()
            if error is not None:
                made.set_exception(error)
            else:
                made.set_result(base64.b64decode(str(job.result()["cases"])))

        self._judges.ask(question).add_done_callback(ready)
        return made

    def _try(self, made: Future[Verdict], text: str, name: str, cases: bytes) -> None:
        seconds = self.settings.seconds + GRACE
        limits = Limits(seconds=seconds, memory=self.settings.memory)
        packed = PackedArguments([], [MemoryRegion(len(cases), False, ())])
        question = Try(
            KernelText(text, name), self.settings, self._folder, limits, packed
        )

        def ready(job: Future[Json]) -> None:
            error = job.exception()
            if isinstance(error, LimitReached):
                made.set_result(Verdict(name, (Finding("out-of-time", str(error)),)))
            elif isinstance(error, Error):
                made.set_result(Verdict(name, (Finding("crashed", str(error)),)))
            elif error is not None:
                made.set_exception(error)
            else:
                made.set_result(verdict_of(job.result()["verdict"]))

        try:
            self._judges.ask(question, cases).add_done_callback(ready)
        except Error as error:
            made.set_exception(error)

    # ── Dask ────────────────────────────────────────────────────────────────

    def _send(self, made: Future[Verdict], task: str, text: str, name: str) -> None:
        """Let a worker of a Dask cluster judge."""
        assert self._client is not None
        settings = asdict(self.settings)
        sent = self._client.submit(judge_there, task, text, name, settings, pure=False)

        def ready(future: object) -> None:
            try:
                made.set_result(verdict_of(cast("Json", sent.result())))
            except Exception as error:
                made.set_exception(error)

        sent.add_done_callback(ready)  # type: ignore[no-untyped-call, unused-ignore]

    # ── the end ─────────────────────────────────────────────────────────────

    def close(self, cancel: bool = False) -> None:
        """Wait for all verdicts, or give them up, and end the processes."""
        if self._client is not None:
            return
        while not cancel:
            with self._lock:
                left = [each for each in self._left if not each.done()]
            if not left:
                break
            _wait(left[0])
        self._judges.close(cancel)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(cancel=error is not None)

    def __repr__(self) -> str:
        return "<Batch>"


def _verdict(future: Future[Verdict], name: str) -> Verdict:
    """A verdict, also if nothing could be judged."""
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, Error):
        raise error
    return Verdict(name, (Finding("no-reference", str(error)),))


def _wait(future: Future[Verdict]) -> None:
    ended = threading.Event()
    future.add_done_callback(lambda _: ended.set())
    ended.wait()


def source(given: str | Path, what: str) -> tuple[str, str]:
    r"""A source and its name: of a text with several lines, or of a file.

    >>> source("def candidate(x):\n    return x", "candidate")[1]
    'candidate'
    """
    if not isinstance(given, str | Path):
        raise BadCall(f"the {what} is a text or a path; given {type(given).__name__}")
    if isinstance(given, str) and "\n" in given:
        return given, what
    path = Path(given)
    try:
        return path.read_text(encoding="utf-8"), str(given)
    except UnicodeDecodeError as why:
        raise BadCall(f"{given} is no text: {why}") from why


_THERE: dict[str, Batch] = {}
"""The batches of a worker of a Dask cluster, by their settings."""
_THERE_LOCK = threading.Lock()


def judge_there(
    task: str, text: str, name: str, settings: dict[str, object]
) -> dict[str, object]:
    """Judge on this machine; called on a worker of a Dask cluster."""
    key = repr(sorted(settings.items()))
    with _THERE_LOCK:
        if key not in _THERE:
            _THERE[key] = Batch(settings=Settings(**settings))  # type: ignore[arg-type]
        batch = _THERE[key]
    return cast(
        "dict[str, object]", verdict_json(batch.submit(task, text, name).result())
    )


def judge(
    reference: str | Path, candidate: str | Path, settings: Settings | None = None
) -> Verdict:
    r"""Judge one candidate.

    >>> reference = '''
    ... import numpy as np
    ... def get_inputs():
    ...     return [np.random.rand(8).astype(np.float32)]
    ... def reference(x):
    ...     return x + 1
    ... '''
    >>> judge(reference, "def candidate(x):\n    return x").word
    'wrong'
    """
    with Batch(1, settings=settings) as batch:
        return batch.submit(reference, candidate).result()
