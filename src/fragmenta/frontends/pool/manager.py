"""The thread of a pool: it hands out jobs, ends workers, and replaces them.

Everything about workers is done in this thread, so nothing here needs a lock but the
queue.  A worker is ended if its launch takes too long or is cancelled, or if it answers
what is no answer.  A worker that ends is replaced at once.
"""

from __future__ import annotations

import json
import math
import os
import selectors
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeAlias

from fragmenta.base import progress
from fragmenta.errors import Error, KernelFault
from fragmenta.frontends.pool import confining
from fragmenta.frontends.pool.answers import Json
from fragmenta.frontends.pool.frames import Incoming
from fragmenta.frontends.pool.job import Job
from fragmenta.frontends.pool.orders import (
    END,
    ENDED,
    FORK,
    HERE,
    KILL,
    NEWS,
    ORDER,
    PROGRAM,
    READY,
    WorkerTerms,
)

AnyJob: TypeAlias = Job[object]
MOST_FAILURES = 5
"""Workers in a row that may end as they begin."""
LONGEST = 3600.0
"""Seconds that are waited at once; the system has no room for many more."""
REMEMBERED = 4096
"""Texts that a worker is known to have seen."""


class Worker:
    """A worker, as the manager knows it."""

    def __init__(self, number: int, pool: socket.socket) -> None:
        self.number, self.socket = number, pool
        self.job: AnyJob | None = None
        self.sending: list[memoryview] = []
        self.incoming: Incoming | None = None
        self.until: float | None = None
        """When it is ended if it has not answered."""
        self.error: Error | None = None
        """Why it was ended, for the one who waits for the job."""
        self.here = False
        """Whether it has begun."""
        self.ended = False
        """Whether no more jobs are given to it."""
        self.seen: set[int] = set()

    @property
    def idle(self) -> bool:
        """Whether it can take a job."""
        return self.here and self.job is None and not self.ended

    def take(self, job: AnyJob) -> None:
        """Give it a job."""
        self.job, self.sending = job, job.start()
        self.incoming = Incoming(job.number, job.sizes, job.most_head)
        self.seen.add(job.key)
        if len(self.seen) > REMEMBERED:
            self.seen.clear()
        seconds = job.limits.seconds
        if seconds is not None:
            self.until = progress.clock.now() + seconds + confining.GRACE


class Manager(threading.Thread):
    """The thread of a pool."""

    def __init__(
        self,
        count: int,
        terms: WorkerTerms,
        warm: bool,
        program: str = PROGRAM,
        words: Sequence[str] = (),
    ) -> None:
        """``words`` are further words of the fork server's command."""
        super().__init__(name="fragmenta pool", daemon=True)
        self._count, self._terms, self._warm = count, terms, warm
        self._program, self._words = program, words
        self._lock = threading.Lock()
        """Held where other threads see the jobs, or that the end has come."""
        self._queue: deque[AnyJob] = deque()
        self._handed_out: list[AnyJob] = []
        self._workers: dict[int, Worker] = {}
        self._numbers = 0
        self._failures = 0
        self._ready = False
        self._closing = False
        self._selector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        for each in (self._wake, self._woken):
            each.setblocking(False)
        self._selector.register(self._wake, selectors.EVENT_READ, self._wakened)
        self._start_server()

    # ── asked by other threads ──────────────────────────────────────────────

    def add(self, job: AnyJob) -> None:
        """Queue a job."""
        with self._lock:  # what is queued before the end is carried out
            if self._closing:
                raise Error("the pool is closed")
            self._queue.append(job)
        job.add_done_callback(self._was_done)
        self.wake()

    def close(self) -> None:
        """Carry out what is queued, then end."""
        with self._lock:
            self._closing = True
        self.wake()

    def cancel_all(self) -> None:
        """Cancel what is queued or under way."""
        with self._lock:
            jobs = [*self._queue, *self._handed_out]
        for job in jobs:
            job.cancel()

    def wake(self) -> None:
        """Let the thread look around."""
        with suppress(OSError):  # it will look anyway, or it has ended
            self._woken.send(b"w")

    def _was_done(self, job: Future[object]) -> None:
        if job.cancelled():
            self.wake()

    def release(self) -> None:
        """Close what a forked process has copies of."""
        for each in (self._wake, self._woken, self._control):
            each.close()
        for worker in [*self._workers.values()]:
            worker.socket.close()

    # ── the thread ──────────────────────────────────────────────────────────

    def run(self) -> None:
        """Hand out jobs until the pool is closed and all are done."""
        try:
            while not self._closing or self._queue or self._busy():
                self._hand_out()
                for key, events in self._selector.select(self._patience()):
                    key.data(events)
                self._end_late()
        except BaseException as error:  # whoever waits must not wait for ever
            self._fail_all(error)
            if not isinstance(error, Error):
                raise
        finally:
            with self._lock:
                self._closing = True
            self._end_server()
            self._fail_all(Error("the pool is closed"))

    def _busy(self) -> bool:
        return any(each.job is not None for each in self._workers.values())

    def _patience(self) -> float | None:
        """Seconds until the next worker is late."""
        until = [w.until for w in self._workers.values() if w.until is not None]
        left = min(until, default=math.inf) - progress.clock.now()
        return None if left == math.inf else min(max(0.0, left), LONGEST)

    def _wakened(self, _: int) -> None:
        while True:
            try:
                if not self._wake.recv(4096):
                    return
            except BlockingIOError:
                return

    def _hand_out(self) -> None:
        """Give jobs to idle workers, if possible to one that knows the text."""
        for worker in self._workers.values():
            if worker.job is not None and worker.job.cancelled() and not worker.ended:
                self._kill(worker)
        while self._queue:
            if self._queue[0].cancelled():
                self._queue.popleft()
                continue
            idle = [each for each in self._workers.values() if each.idle]
            if not idle:
                return
            with self._lock:
                job = self._queue.popleft()
                self._handed_out = [w.job for w in self._workers.values() if w.job]
                self._handed_out.append(job)
            key = job.key
            worker = next((each for each in idle if key in each.seen), idle[0])
            worker.take(job)
            self._listen(worker)

    def _listen(self, worker: Worker) -> None:
        if worker.socket.fileno() < 0:  # it has ended meanwhile
            return
        events = selectors.EVENT_READ
        if worker.sending:
            events |= selectors.EVENT_WRITE
        self._selector.modify(worker.socket, events, self._handler(worker))

    def _handler(self, worker: Worker) -> Callable[[int], None]:
        def handle(events: int) -> None:
            try:
                if events & selectors.EVENT_WRITE:
                    self._send(worker)
                if events & selectors.EVENT_READ:
                    self._receive(worker)
            except BlockingIOError:
                pass
            except OSError:  # it has ended; the fork server says how
                self._forget_socket(worker)

        return handle

    def _send(self, worker: Worker) -> None:
        while worker.sending:
            count = worker.socket.send(worker.sending[0])
            worker.sending[0] = worker.sending[0][count:]
            if not worker.sending[0]:
                del worker.sending[0]
        self._listen(worker)

    def _receive(self, worker: Worker) -> None:
        incoming = worker.incoming
        if incoming is None:
            if not worker.here and worker.socket.recv(len(HERE)) == HERE:
                worker.here = True
            else:  # it has ended, or says what nobody asked
                self._forget_socket(worker)
            return
        while incoming.read(worker.socket):
            if incoming.complete:
                self._finish(worker, incoming)
                return
        if incoming.broken:
            self._kill(worker, confining.crashed("gave no answer that can be read"))
        self._forget_socket(worker)

    def _finish(self, worker: Worker, incoming: Incoming) -> None:
        """A worker has answered."""
        job, worker.job, worker.incoming = worker.job, None, None
        worker.until, self._failures = None, 0
        assert job is not None
        head = _read(incoming.head)
        if worker.sending:  # it answers what it has not read
            head = {}
        if not job.finish(head, incoming.data):
            self._kill(worker)
        elif head.get("ends"):
            worker.ended = True
        if worker.ended:
            self._fork()

    def _end_late(self) -> None:
        """End the workers whose time is over."""
        now = progress.clock.now()
        for worker in self._workers.values():
            if worker.until is not None and worker.until <= now and worker.job:
                self._kill(worker, confining.out_of_time(worker.job.limits))

    def _kill(self, worker: Worker, why: Error | None = None) -> None:
        worker.ended, worker.until, worker.error = True, None, why
        self._order(KILL, worker.number)

    def _forget_socket(self, worker: Worker) -> None:
        """Its end is near; what it was comes from the fork server."""
        if worker.socket.fileno() >= 0:
            self._selector.unregister(worker.socket)
            worker.socket.close()
        worker.ended = True

    # ── the fork server ─────────────────────────────────────────────────────

    def _start_server(self) -> None:
        control, theirs = socket.socketpair()
        words = [theirs.fileno(), os.getpid(), *self._terms, int(self._warm)]
        more = [*map(str, words), *self._words]
        environment = {
            "OPENBLAS_NUM_THREADS": "1",  # its threads would not survive a fork
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            progress.VARIABLE: progress.NEVER,
        }
        self._server = subprocess.Popen(
            [sys.executable, "-c", self._program, *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=environment,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        control.setblocking(False)
        self._control, self._news, self._ready = control, b"", False
        self._selector.register(control, selectors.EVENT_READ, self._hear)
        for _ in range(self._count):
            self._fork()

    def _order(self, letter: bytes, number: int) -> None:
        with suppress(OSError):  # it has ended, which is seen where its news are read
            self._control.send(ORDER.pack(letter, number))

    def _fork(self) -> None:
        """Ask for another worker."""
        if self._closing and not self._queue:
            return
        ours, theirs = socket.socketpair()
        self._numbers += 1
        ours.setblocking(False)
        worker = self._workers[self._numbers] = Worker(self._numbers, ours)
        self._selector.register(ours, selectors.EVENT_READ, self._handler(worker))
        try:
            order = ORDER.pack(FORK, worker.number)
            socket.send_fds(self._control, [order], [theirs.fileno()])
        except OSError:
            pass
        theirs.close()

    def _hear(self, _: int) -> None:
        """Read the news of the fork server."""
        try:
            heard = self._control.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            heard = b""
        if not heard:
            self._lost_server()
            return
        self._news += heard
        while len(self._news) >= NEWS.size:
            letter, number, status = NEWS.unpack(self._news[: NEWS.size])
            self._news = self._news[NEWS.size :]
            if letter == READY:
                self._ready = True
            elif letter == ENDED:
                self._bury(number, status)

    def _bury(self, number: int, status: int) -> None:
        """A worker has ended."""
        worker = self._workers[number]
        if worker.incoming is not None and not worker.error:
            self._last_words(worker)
        self._workers.pop(number, None)
        self._forget_socket(worker)
        job = worker.job
        if job is None:
            self._failures += not worker.here
        elif not job.cancelled():
            job.fail(worker.error or confining.died(status, job.limits))
        if self._failures >= MOST_FAILURES:
            raise Error(
                f"{MOST_FAILURES} workers in a row ended as they began, the last with "
                f"status {status}; the error stream says why"
            )
        alive = sum(not each.ended for each in self._workers.values())
        for _ in range(alive, self._count):
            self._fork()

    def _last_words(self, worker: Worker) -> None:
        """What a worker answered before it ended may not have been read yet."""
        if worker.socket.fileno() >= 0:
            self._handler(worker)(selectors.EVENT_READ)

    def _lost_server(self) -> None:
        """The fork server has ended; the system ends its workers."""
        ready = self._ready
        self._selector.unregister(self._control)
        self._control.close()
        status = self._server.wait()
        if not ready:
            raise Error(
                f"the process that starts the workers of the pool ended with status "
                f"{status}; the error stream says why"
            )
        for worker in [*self._workers.values()]:
            self._forget_socket(worker)
            if worker.job is not None:
                worker.job.fail(worker.error or _gone(status))
        self._workers.clear()
        self._start_server()

    def _end_server(self) -> None:
        """End the fork server, which ends its workers."""
        if not self._ready:  # it has no workers yet, and may read orders late
            self._server.kill()
        self._order(END, 0)
        self._control.close()
        self._server.wait()
        for worker in self._workers.values():
            worker.socket.close()
        self._selector.close()
        self._wake.close()
        self._woken.close()

    def _fail_all(self, error: BaseException) -> None:
        jobs = [each.job for each in self._workers.values() if each.job is not None]
        for job in [*jobs, *self._queue]:
            if not job.done():
                job.fail(error)
        self._queue.clear()


def _read(head: bytes) -> Json:
    """The head of an answer; empty if it is none."""
    try:
        found = json.loads(head)
    except (ValueError, RecursionError):
        found = {}
    return found if isinstance(found, dict) else {}


def _gone(status: int) -> KernelFault:
    return KernelFault(
        f"the process that starts the workers ended with status {status}, and with it "
        "the one that ran the kernel",
        "crash",
    )
