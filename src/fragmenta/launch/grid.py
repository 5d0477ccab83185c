"""Runs all blocks of a grid, in one thread or in several.

Blocks run one after the other in a context; each thread of the host has a context of
its own.  If blocks may influence one another, through atomics or volatile memory, they
run in one thread, in turns.  So a block can wait for another one, and the result does
not depend on the number of cores.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import numpy as np

from fragmenta.arrays.threads import cores
from fragmenta.errors import LimitReached
from fragmenta.launch import faults
from fragmenta.launch.launch import Launch, Runner
from fragmenta.launch.result import total
from fragmenta.simt.layout import Status

MOST_WAITING = 4096
"""The most blocks that may be in flight at a time."""
PATIENCE = 4
"""How many turns blocks in flight have before a new one begins."""


def run(launch: Launch, limit: int | None) -> None:
    """Run all blocks."""
    try:
        with launch.interrupts:
            run_blocks(launch, limit, 0, launch.cluster_count)
    finally:
        launch.arguments.write_back()
        machine = launch.machine
        if machine is not None and machine.watching is not None:
            machine.watching.collect(machine.problems)


def run_blocks(launch: Launch, limit: int | None, first: int, last: int) -> None:
    """Run some blocks of the grid, or clusters."""
    if first >= last:
        return
    threads = min(cores(), last - first)
    ordered = launch.compiled.ordered or launch.cooperative
    if ordered or launch.compiled.prints or threads == 1:
        _in_turns(launch, limit, first, last)
    else:
        _in_parallel(launch, limit, threads, first, last)


class _Pace:
    """How many blocks run in one call of machine code, so that Python has its turn."""

    def __init__(self) -> None:
        self.blocks = 1
        self._start = time.perf_counter()

    def begin(self) -> None:
        """Start the clock: blocks begin."""
        self._start = time.perf_counter()

    def end(self) -> None:
        """They have ended; take more of them next time, if that took little time."""
        seconds = time.perf_counter() - self._start
        self.blocks = self.blocks * 2 if seconds < 0.02 else max(1, self.blocks // 2)


def _in_turns(launch: Launch, limit: int | None, first: int, last: int) -> None:
    """Run the blocks in one thread: a block that waits gives way to the others."""
    free: list[Runner] = []
    waiting: deque[Runner] = deque()
    every: list[Runner] = []
    following, patience, pace = first, 0, _Pace()
    # All blocks of a cooperative grid are on the device at the same time.
    most = last - first if launch.cooperative else MOST_WAITING
    try:
        while following < last or waiting:
            if following < last and not patience and len(waiting) < most:
                if not free:
                    free.append(launch.context())
                    every.append(free[-1])
                context = free.pop()
                count = 1 if waiting else pace.blocks
                context.begin(following, min(last, following + count))
            else:
                context = waiting.popleft()
            pace.begin()
            _step(launch, context, every, limit)
            pace.end()
            launch.progress((following - first) / (last - first))
            if context.status == Status.ENDED:
                free.append(context)
                following = max(following, context.index)
            else:
                waiting.append(context)
                following = max(following, context.index + 1)
                # Its other blocks are started again, one at a time.
                context.begin(context.index, context.index + 1)
            patience = (patience or min(PATIENCE, len(waiting)) + 1) - 1
    finally:
        launch.counts = np.sum([each.counts for each in every], axis=0)
        # The traceback of an error keeps this frame; it must not keep their memory.
        for runners in (every, free, waiting):
            runners.clear()


def _step(
    launch: Launch, context: Runner, every: list[Runner], limit: int | None
) -> None:
    launch.run(context)
    launch.check(context)
    launch.interrupts.check()
    launch.meter.check()
    if limit is not None:
        used = sum(total(launch.compiled, each.counts) for each in every)
        if used > limit:
            raise faults.endless(launch.place(context), limit)


def _in_parallel(
    launch: Launch, limit: int | None, threads: int, first: int, last: int
) -> None:
    """Run the blocks in several threads, each with a portion at a time."""
    workers = _Workers(launch, limit, threads, first, last)
    started = [
        threading.Thread(target=workers.work, daemon=True) for _ in range(threads)
    ]
    try:  # an interrupt may come as soon as the first of them runs
        for each in started:
            each.start()
        for each in started:
            while each.is_alive():
                each.join(0.1)
                launch.interrupts.check()
                launch.meter.check()
                launch.progress((workers.following - first) / (last - first))
    except BaseException:
        workers.stop()
        _wait_for(started)
        raise
    finally:
        if workers.contexts:
            launch.counts = np.sum([each.counts for each in workers.contexts], axis=0)
        workers.contexts.clear()
    workers.raise_first()


def _wait_for(threads: list[threading.Thread]) -> None:
    """Wait until no thread uses the memory of the launch, however often interrupted."""
    interrupted = None
    for each in threads:
        while each.is_alive():
            try:
                each.join()
            except KeyboardInterrupt as why:
                interrupted = why
    if interrupted is not None:
        raise interrupted


class _Workers:
    """The threads of a launch, and what they share."""

    def __init__(
        self, launch: Launch, limit: int | None, threads: int, first: int, last: int
    ) -> None:
        self.launch, self.limit = launch, limit
        self.lock = threading.Lock()
        self.following, self.last = first, last
        self.portion = max(1, (last - first) // (threads * 8))
        if limit is not None:  # it is checked between two portions
            self.portion = min(self.portion, 16)
        self.contexts: list[Runner] = []
        self.errors: list[tuple[int, Exception]] = []

    def take(self, context: Runner) -> bool:
        """Give a context the next blocks to run, if there are any."""
        with self.lock:
            first = self.following
            if first >= self.last:
                return False
            self.following = min(first + self.portion, self.last)
            context.begin(first, self.following)
            return True

    def stop(self, index: int = -1) -> None:
        """Let no block after this one begin.

        Those before it go on: so the first block that fails is always the same.
        """
        with self.lock:
            self.last = min(self.last, index)
            for each in self.contexts:
                if each.index > index:
                    each.halt[0] = 1

    def raise_first(self) -> None:
        """Raise the error of the first block that failed, if one did.

        Its traceback has this object, which must not keep it.
        """
        found = sorted(self.errors, key=lambda each: each[0])[:1]
        self.errors.clear()
        if found:
            raise found.pop()[1]

    def work(self) -> None:
        """Run blocks until there are no more."""
        try:
            context = self.launch.context()
        except Exception as error:  # no memory, for example
            self.stop()
            self.errors.append((-1, error))
            return
        self.contexts.append(context)
        while not context.halt[0] and self.take(context):
            try:
                while not context.halt[0] and context.index < context.last:
                    _step(self.launch, context, self.contexts, self.limit)
            except Exception as error:  # raised again where the launch was made
                limits = isinstance(error, LimitReached)
                over = limits or getattr(error, "kind", "") == "limit"
                self.stop(-1 if over else context.index)
                self.errors.append((context.index, error))
                return
