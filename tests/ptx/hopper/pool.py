"""How are many tasks done in several processes, when some of them never end?

Each process has one core and does one task after the other.  A process whose task takes
too long is ended, and another one takes its place.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection, get_context
from typing import Any, NamedTuple, TypeVar

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

    There is no answer if it took longer, or if the process died.
    """
    waiting = list(reversed(tasks))
    idle = [_begin(work, core) for core in range(min(jobs, len(tasks)))]
    busy: dict[Any, tuple[_Worker, Task, float]] = {}
    try:
        while waiting or busy:
            while waiting and idle:
                worker, task = idle.pop(), waiting.pop()
                worker.pipe.send(task)
                busy[worker.pipe] = worker, task, time.monotonic() + seconds
            ready = connection.wait(list(busy), 0.5)
            late = [x for x in busy if time.monotonic() > busy[x][2]]
            for pipe in {*ready, *late}:
                worker, task, _ = busy.pop(pipe)
                answer = _received(pipe) if pipe in ready else None
                if answer is None:
                    worker.end()
                    worker = _begin(work, worker.core)
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


def _begin(work: Callable[[Any], Any], core: int) -> _Worker:
    ours, its = _FORK.Pipe()
    process = _FORK.Process(target=_serve, args=(work, its, core), daemon=True)
    process.start()
    its.close()
    return _Worker(process, ours, core)


def _serve(work: Callable[[Any], Any], pipe: Any, core: int) -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[core % len(cores)]})
    while True:
        try:
            task = pipe.recv()
        except EOFError:  # nobody asks any more
            return
        pipe.send(work(task))
