"""Many tasks are done in several processes, and some of the tasks never end.

Each process has one core and does one task after the other.  A process whose task takes
too much of the processor's time is ended, and another one takes its place.  What else
the machine does is not counted.
"""

from __future__ import annotations

import math
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, get_context
from typing import Any, NamedTuple, TypeVar

from tests.clock import HANG

Task = TypeVar("Task")
Answer = TypeVar("Answer")

_FORK = get_context("fork")
"""The processes have all that was made before they began."""


class _Worker(NamedTuple):
    process: Any
    pipe: Any
    core: int

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def answers(
    work: Callable[[Task], Answer],
    tasks: Sequence[Task],
    jobs: int,
    seconds: float,
) -> Iterator[tuple[Task, Answer | None]]:
    """Each task with its answer, in the order in which they come.

    There is no answer if it took more seconds of the processor, or if the process died.
    """
    waiting = list(reversed(tasks))
    idle = [_begin(work, core, seconds) for core in range(min(jobs, len(tasks)))]
    busy: dict[Any, tuple[_Worker, Task]] = {}
    try:
        while waiting or busy:
            while waiting and idle:
                worker, task = idle.pop(), waiting.pop()
                worker.pipe.send(task)
                busy[worker.pipe] = worker, task
            ready = connection.wait(list(busy), HANG)
            for pipe in ready or list(busy):
                worker, task = busy.pop(pipe)
                answer = _received(pipe) if pipe in ready else None
                if answer is None:
                    worker.end()
                    worker = _begin(work, worker.core, seconds)
                idle.append(worker)
                yield task, answer
    finally:
        for worker in [*idle, *(each[0] for each in busy.values())]:
            worker.end()


def _received(pipe: Any) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        return None


def _begin(work: Callable[[Any], Any], core: int, seconds: float) -> _Worker:
    ours, its = _FORK.Pipe()
    process = _FORK.Process(target=_serve, args=(work, its, core, seconds), daemon=True)
    process.start()
    its.close()
    return _Worker(process, ours, core)


def _serve(work: Callable[[Any], Any], pipe: Any, core: int, seconds: float) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})
    while True:
        try:
            task = pipe.recv()
        except EOFError:  # nobody asks any more
            return
        _allow(seconds)
        pipe.send(work(task))


def _allow(seconds: float) -> None:
    """The processor may take so much more time for this process, then it is ended."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + seconds)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, most))
