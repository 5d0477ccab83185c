"""A pool of processes that launch kernels: ``ptx.Pool``."""

from __future__ import annotations

import atexit
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast
from weakref import WeakSet, finalize

import numpy as np

from fragmenta.base.arrays.checks import check_flags, is_whole
from fragmenta.base.arrays.threads import cores
from fragmenta.errors import BadCall, Error, one_of
from fragmenta.frontends.api.kernels import Result
from fragmenta.frontends.pool.confining import check_system
from fragmenta.frontends.pool.job import Job, checked, launched
from fragmenta.frontends.pool.manager import AnyJob, Manager
from fragmenta.frontends.pool.orders import PROGRAM, WorkerTerms
from fragmenta.frontends.pool.packing import pack, plain
from fragmenta.frontends.pool.questions import Check, KernelText, LaunchQuestion
from fragmenta.launch.instruments import Counting, ExactValues, Watch
from fragmenta.launch.kernel import Kernel, Loaded
from fragmenta.launch.limits import Limits, check_limits
from fragmenta.launch.request import MADE_HERE, Extent, LaunchOptions, LaunchRequest
from fragmenta.reference.isa.target import check_target

if TYPE_CHECKING:
    from fragmenta.ptx.checking.problem import Problem

MOST_WORKERS = 1024
LAUNCHES = 10_000
"""Launches after which a worker is replaced."""
_INSTRUMENTS = Watch, Counting, ExactValues
"""What an answer of a worker can tell of."""
_CHECKED = ("watch", "instruments", "limits", "replay", "algebra", *MADE_HERE)
"""Options that are checked when a request is made of them."""
AHEAD = 4
"""Jobs for each worker that are taken from an iterator ahead of their turn."""

Option = TypeVar("Option")
AJob = TypeVar("AJob", bound="Job[Result] | Job[list[Problem]]")


class Pool:
    """Processes that stay warm and launch many kernels.

    Each launch has limits of time and memory, and runs in a process of the pool: what
    goes wrong there, a crash included, is an exception of that job, and the process is
    replaced.  ``workers`` is how many launches run at the same time, by default one on
    each core.  ``limits`` are for launches that bring none of their own.  A process
    runs ``launches`` of them, one after the other; with ``launches=1``, each has a
    process of its own.  ``warm=False`` starts sooner, for a pool that launches little.

    >>> import numpy as np
    >>> from fragmenta import ptx
    >>> text = '''
    ... .version 8.0
    ... .target sm_80
    ... .address_size 64
    ... .visible .entry add(.param .u64 data, .param .u32 number)
    ... {
    ...     .reg .b32 %r<4>;
    ...     .reg .b64 %rd<4>;
    ...     ld.param.u64 %rd1, [data];
    ...     ld.param.u32 %r3, [number];
    ...     mov.u32 %r1, %tid.x;
    ...     mul.wide.u32 %rd2, %r1, 4;
    ...     add.s64 %rd3, %rd1, %rd2;
    ...     ld.global.u32 %r2, [%rd3];
    ...     add.s32 %r2, %r2, %r3;
    ...     st.global.u32 [%rd3], %r2;
    ...     ret;
    ... }'''
    >>> x = np.arange(3, dtype=np.int32)
    >>> with ptx.Pool(workers=2, limits=ptx.Limits(seconds=60)) as pool:
    ...     jobs = [pool.submit(text, 1, 3, [x, n]) for n in (10, 20)]
    ...     for job in pool.in_order(jobs):
    ...         print(job.result().instructions, job.arguments[0])
    9 [10 11 12]
    9 [20 21 22]
    """

    # What the fork server runs.
    _program = PROGRAM
    # Further words of its command.
    _words: tuple[str, ...] = ()

    def __init__(
        self,
        workers: int | None = None,
        *,
        limits: Limits = Limits(),  # noqa: B008 - it cannot be changed
        launches: int = LAUNCHES,
        warm: bool = True,
    ) -> None:
        check_system()
        count = cores() if workers is None else workers
        for name, given, most in (
            ("workers", count, MOST_WORKERS),
            ("launches", launches, 1 << 31),
        ):
            if not is_whole(given) or not 1 <= given < most:
                raise BadCall(
                    f"{name} is a whole number from 1 to {most - 1:,}; given {given!r}"
                )
        check_limits(limits)
        self.workers = int(count)
        self.limits = limits
        each = max(1, cores() // self.workers)
        terms = WorkerTerms(int(launches), each)
        self._process = os.getpid()
        self._manager = Manager(
            self.workers, terms, bool(warm), self._program, self._words
        )
        self._manager.start()
        _MANAGERS.add(self._manager)
        # A pool that nobody has any more ends when its jobs are done.
        finalize(self, self._manager.close).atexit = False

    # ── jobs ────────────────────────────────────────────────────────────────

    def submit(
        self,
        ptx: str | bytes | Kernel | Loaded,
        grid: Extent,
        block: Extent,
        arguments: Iterable[object] = (),
        *,
        kernel: str | None = None,
        timeline: bool = False,
        **options: Unpack[LaunchOptions],
    ) -> Job[Result]:
        """Launch a kernel in a process of the pool; see ``Kernel.launch``.

        ``ptx`` is a text, a module or a kernel; ``kernel`` is the name of the kernel in
        a text or a module that has several.  Arrays are copied now, and the given ones
        are not changed: ``job.arguments`` has them as the launch left them.  With
        ``timeline``, ``job.timeline`` is a picture of what a cluster did.  What
        ``numerics`` found cannot be run again here: ``blame`` needs a launch without a
        pool.
        """
        packed, memory = pack(arguments)
        check_flags(timeline=timeline)
        text, request = _text(ptx, kernel), self._request(grid, block, options)
        question = LaunchQuestion(text, request, packed, bool(timeline))
        return self._add(Job(question, memory, partial(launched, text.text)))

    def _request(
        self, grid: Extent, block: Extent, options: LaunchOptions
    ) -> LaunchRequest:
        """What a worker is asked for, without arguments."""
        given: dict[str, Any] = {
            name: value if name in _CHECKED else _sent(name, value)
            for name, value in options.items()
        }
        given["limits"] = self._limits(options.get("limits"))
        sizes = _sent("grid", grid), _sent("block", block)
        made = LaunchRequest.of(*sizes, **given)
        for each in made.instruments:
            if type(each) not in _INSTRUMENTS:
                names = [kind.__name__ for kind in _INSTRUMENTS]
                raise BadCall(
                    f"a launch in a pool has the instruments {one_of(names, 'and')}; "
                    f"given {type(each).__name__}"
                )
        for name in MADE_HERE:
            if name in options:
                raise BadCall(f"a launch in a pool has no {name}")
        return made

    def check(
        self,
        ptx: str | bytes | Kernel | Loaded,
        target: str | None = None,
        *,
        limits: Limits | None = None,
    ) -> Job[list[Problem]]:
        """Check a text in a process of the pool, as ``module.check`` does.

        A text that cannot be read is one problem.
        """
        limits = self._limits(limits)
        where = None if target is None else check_target(target)
        return self._add(Job(Check(_text(ptx, None), where, limits), [], checked))

    def _limits(self, given: Limits | None) -> Limits:
        """The limits of a job: given, or those of the pool."""
        limits = self.limits if given is None else given
        check_limits(limits)
        return Limits(*map(plain, limits))  # type: ignore[arg-type]

    def _add(self, job: AJob) -> AJob:
        if os.getpid() != self._process:
            raise Error("a pool is of the process that made it; make one in each")
        self._manager.add(cast(AnyJob, job))
        return job

    def as_completed(self, jobs: Iterable[AJob]) -> Iterator[AJob]:
        """Jobs in the order in which they are done.

        Of an iterator, such as ``(pool.submit(...) for text in texts)``, only some are
        taken at a time, so that not all arrays are in memory at once.
        """
        done: queue.SimpleQueue[AJob] = queue.SimpleQueue()
        left, waiting = iter(jobs), 0
        while True:
            for job in islice(left, self._room(jobs, waiting)):
                waiting += 1
                job.add_done_callback(done.put)  # type: ignore[arg-type]
            if not waiting:
                return
            yield done.get()
            waiting -= 1

    def in_order(self, jobs: Iterable[AJob]) -> Iterator[AJob]:
        """The same jobs in the order in which they are given, each when it is done."""
        left: Iterator[AJob] = iter(jobs)
        waiting: list[AJob] = []
        while True:
            waiting += islice(left, self._room(jobs, len(waiting)))
            if not waiting:
                return
            job = waiting.pop(0)
            _wait(job)
            yield job

    def _room(self, jobs: Iterable[AJob], waiting: int) -> int | None:
        """How many jobs to take now; all of those that exist already."""
        if isinstance(jobs, Sequence | set | frozenset | dict):
            return None
        return max(0, AHEAD * self.workers - waiting)

    # ── the end ─────────────────────────────────────────────────────────────

    def close(self, cancel: bool = False) -> None:
        """Wait for all jobs, or cancel them, and end the processes."""
        if os.getpid() != self._process:
            return
        if cancel:
            self._manager.cancel_all()
        self._manager.close()
        self._manager.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(cancel=error is not None)

    def __repr__(self) -> str:
        return f"<Pool of {self.workers} workers>"


def _wait(job: Job[Result] | Job[list[Problem]]) -> None:
    """Wait until a job is done, however it ends."""
    ended = threading.Event()
    job.add_done_callback(lambda _: ended.set())
    ended.wait()


def _sent(name: str, value: Option) -> Option:
    """An option as it is sent; the launch itself checks its value."""
    given = value.tolist() if isinstance(value, np.ndarray) else value
    try:
        return cast(Option, plain(given))
    except (TypeError, RecursionError):
        raise BadCall(
            f"{name} is a number, a text, or a list of them; given "
            f"{type(value).__name__}"
        ) from None


def _text(given: str | bytes | Kernel | Loaded, name: str | None) -> KernelText:
    """What a worker needs to know of a text, a module or a kernel."""
    if name is not None and not isinstance(name, str):
        raise BadCall(f"kernel is the name of a kernel; given {name!r}")
    name = None if name is None else str(name)
    if isinstance(given, Kernel):
        if name not in (None, given.name):
            raise BadCall(f"the kernel is {given.name}; given kernel={name!r}")
        loaded: Loaded = given.loaded
        about = (given.name, loaded.kept, given.names, given.language)
        return KernelText(loaded.module.text, loaded.module.name, *about)
    if isinstance(given, Loaded):
        return KernelText(given.module.text, given.module.name, name, given.kept)
    if isinstance(given, bytes):
        given = given.rstrip(b"\0").decode("utf-8", "replace")
    if not isinstance(given, str):
        raise BadCall(
            "ptx is a text, a module of ptx.parse or ptx.load, or a kernel; given "
            f"{type(given).__name__}"
        )
    return KernelText(given, "", name)


_MANAGERS: WeakSet[Manager] = WeakSet()


def _in_child() -> None:
    """A forked process must not keep the sockets of pools open."""
    for each in [*_MANAGERS]:
        each.release()
    _MANAGERS.clear()


def _at_exit() -> None:
    """Whoever leaves Python does not wait for what is under way."""
    for each in [*_MANAGERS]:
        each.cancel_all()
        each.close()
        each.join()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
