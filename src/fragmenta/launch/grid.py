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
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from functools import partial

import numpy as np

from fragmenta.base.arrays.context import held
from fragmenta.base.arrays.threads import cores
from fragmenta.base.progress import log
from fragmenta.engine.simt.context import BlockQueue
from fragmenta.engine.simt.layout import Status
from fragmenta.errors import LimitReached
from fragmenta.launch import faults
from fragmenta.launch.clones import Clones
from fragmenta.launch.launch import Launch
from fragmenta.launch.result import total
from fragmenta.launch.runners import Runner
from fragmenta.launch.standstill import Standstill

MOST_WAITING = 4096
"""The most blocks that may be in flight at a time."""
PATIENCE = 4
"""How many turns blocks in flight have before a new one begins."""
SLICE = 0.02
"""For about so many seconds machine code runs before Python has its turn."""
LONG_SLICE = 0.1
"""The same in a thread beside others, which would wait for each other in Python."""
FEW = 4
"""With fewer threads than this, copies of runners are of little use."""
ROUNDS = 16
"""How many rounds such a thread begins with: it is halted in any of them."""
RAMP = 0.001
"""So many seconds pass before the number of threads is doubled.

A thread needs a context, which takes about as long to make.  A short launch has few."""


_SEED: ContextVar[int | None] = ContextVar("the seed of an order", default=None)
_ALONE: ContextVar[bool] = ContextVar("one thread of the host", default=False)


def shuffled(seed: int) -> AbstractContextManager[None]:
    """Blocks that may influence one another begin in another order in this block.

    With seed 0 the last one begins first; other seeds are random orders.
    """
    return held(_SEED, seed)


def one_at_a_time(needed: bool) -> AbstractContextManager[None]:
    """If needed, blocks run one after the other: with a race, always the same way."""
    return held(_ALONE, needed or _ALONE.get())


def _order(first: int, last: int) -> list[int] | None:
    """The order in which blocks begin; None: their own."""
    seed = _SEED.get()
    if seed is None:
        return None
    if not seed:
        return list(range(last - 1, first - 1, -1))
    order: list[int] = np.random.default_rng(seed).permutation(last - first).tolist()
    return [first + each for each in order]


def run(launch: Launch, limit: int | None) -> None:
    """Run all blocks, or those of a part of the grid."""
    part = None if may_wait(launch) else launch.part
    try:
        with launch.interrupts:
            run_blocks(launch, limit, *(part or (0, launch.cluster_count)))
    finally:
        launch.arguments.write_back()
        machine = launch.machine
        if machine is not None:
            for observer in machine.observers:
                observer.collect(machine.problems)


def run_blocks(launch: Launch, limit: int | None, first: int, last: int) -> None:
    """Run some blocks of the grid, or clusters."""
    if first >= last:
        return
    launch.counts = np.zeros_like(launch.counts)
    if may_wait(launch) or launch.compiled.prints:
        _in_turns(launch, limit, first, last)
        return
    for start, end, recorded in _parts(launch, first, last):
        launch.hear(recorded)
        workers = _Workers(launch, limit, (start, end), (first, last), recorded)
        if workers.most == 1:
            workers.alone()
        else:
            _in_parallel(workers)


def _parts(launch: Launch, first: int, last: int) -> Iterator[tuple[int, int, bool]]:
    """Clusters that run with one another: from, to, and whether they are recorded.

    One that is recorded runs alone, in one order of steps; the others are as fast as
    those of any launch.
    """
    chosen = launch.recorder.clusters if launch.recorder is not None else []
    following = first
    for each in (number for number in chosen if first <= number < last):
        if following < each:
            yield following, each, False
        yield each, each + 1, True
        following = each + 1
    if following < last:
        yield following, last, False


def threads_of(launch: Launch) -> int:
    """How many threads of the host may run its blocks at once."""
    if may_wait(launch) or launch.compiled.prints or _ALONE.get():
        return 1
    return min(launch.threads or cores(), launch.cluster_count)


def may_wait(launch: Launch) -> bool:
    """Whether blocks may wait for one another."""
    grants = launch.machine is not None and launch.machine.grants
    return bool(launch.compiled.ordered or launch.cooperative or grants)


class _Pace:
    """How many rounds machine code runs before Python has its turn.

    A round is a turn of each warp, or less if the block ends.
    """

    def __init__(self, seconds: float = SLICE, rounds: int = 1) -> None:
        self.rounds, self._seconds = rounds, seconds
        self._start = time.perf_counter()

    def begin(self) -> None:
        """Start the clock."""
        self._start = time.perf_counter()

    def end(self) -> None:
        """Allow more rounds next time, if these took little time."""
        seconds = time.perf_counter() - self._start
        faster = seconds < self._seconds
        self.rounds = min(self.rounds * 2, 1 << 20) if faster else -(-self.rounds // 2)


def _in_turns(launch: Launch, limit: int | None, first: int, last: int) -> None:
    """Run the blocks in one thread: a block that waits gives way to the others."""
    free: list[Runner] = []
    waiting: deque[Runner] = deque()
    every: list[Runner] = []
    following, patience, pace = first, 0, _Pace()
    order, still = _order(first, last), Standstill()
    # All blocks of a cooperative grid are on the device at the same time.
    most = last - first if launch.cooperative else MOST_WAITING
    try:
        while following < last or waiting:
            if following < last and not patience and len(waiting) < most:
                if not free:
                    free.append(launch.context())
                    every.append(free[-1])
                context = free.pop()
                count = 1 if waiting or order else pace.rounds
                start = following if order is None else order[following - first]
                still.moved()
                context.begin(start, min(last, start + count))
                context.allow(count, False)
                following += order is not None
            else:
                context = waiting.popleft()
            pace.begin()
            _step(launch, context, every, limit, together=True)
            pace.end()
            if order is None:
                following = max(following, context.following)
            if context.status == Status.ENDED:
                free.append(context)
                still.moved()
            else:
                waiting.append(context)
                context.keep_one()  # the others are begun one at a time
                all_begun = following >= last or len(waiting) >= most
                if still.turn(context, len(waiting)) and all_begun:
                    ended, later = following - first - len(waiting), last - following
                    left = [launch.place(each) for each in waiting]
                    raise faults.standstill(left, ended, later)
            launch.progress((following - first - len(waiting)) / (last - first))
            patience = (patience or min(PATIENCE, len(waiting)) + 1) - 1
    finally:
        launch.counts = np.sum([each.counts for each in every], axis=0)
        # The traceback of an error keeps this frame; it must not keep their memory.
        for runners in (every, free, waiting):
            runners.clear()
        still.forget()


def _step(
    launch: Launch,
    context: Runner,
    every: list[Runner],
    limit: int | None,
    together: bool = False,
) -> None:
    """Let a runner have a turn, and raise what has to end the launch.

    ``together``: the others run in this thread, too, so that they can be looked at.
    """
    launch.run(context)
    launch.check(context)
    seen = [context, *(e for e in every if e is not context)] if together else [context]
    seen = [each for each in seen if each.status != Status.ENDED]
    launch.spins.look(launch.compiled.kernel, (partial(launch.place, e) for e in seen))
    with _explained(launch, seen):
        launch.interrupts.check()
        launch.meter.check()
    if limit is not None:
        used = sum(total(launch.compiled, each.counts) for each in every)
        if used > limit:
            raise faults.endless([launch.place(each) for each in seen], limit)


@contextmanager
def _explained(launch: Launch, runners: list[Runner]) -> Iterator[None]:
    """What ends a launch from outside says where its threads are."""
    try:
        yield
    except LimitReached as limit:
        if limit.kind == "seconds" and limit.block is None:
            faults.with_places(limit, [launch.place(each) for each in runners])
        raise
    except KeyboardInterrupt:
        for each in runners:
            for words in faults.spun_words(launch.place(each)):
                log().info(f"interrupted: {words}; {faults.ORDERS}")
                raise  # one is enough
        raise


def _in_parallel(workers: _Workers) -> None:
    """Run the blocks in several threads."""
    started: list[threading.Thread] = []
    try:  # an interrupt may come as soon as the first of them runs
        while not workers.enough(len(started)):
            left = workers.most - len(started)
            more = left if workers.quick else min(max(1, len(started)), left)
            for _ in range(more):
                started.append(threading.Thread(target=workers.work, daemon=True))
                started[-1].start()
            started[0].join(RAMP)
        for each in started:
            while each.is_alive():
                each.join(0.1)
                workers.check()
    except BaseException as why:
        workers.stop()
        _wait_for(started)
        workers.explain(why)
        raise
    finally:
        workers.close()
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
        self,
        launch: Launch,
        limit: int | None,
        part: tuple[int, int],
        whole: tuple[int, int],
        recorded: bool = False,
    ) -> None:
        self.launch, self.limit = launch, limit
        self.lock = threading.Lock()
        self._whole = whole
        self.last = part[1]
        most = threads_of(launch)
        self.most = 1 if recorded else min(most, part[1] - part[0])
        self.queue = BlockQueue(*part)
        self._clones = Clones(launch, self.queue)
        self.contexts: list[Runner] = []
        self.errors: list[tuple[int, Exception]] = []

    def enough(self, threads: int) -> bool:
        """Whether no further thread is needed."""
        return threads == self.most or self.queue.following >= self.queue.last

    @property
    def quick(self) -> bool:
        """Whether further threads need hardly any time to begin."""
        return self._clones.template is not None

    def check(self) -> None:
        """Raise what has to end the launch, and tell how far it is."""
        self.launch.interrupts.check()
        self.launch.meter.check()
        first, last = self._whole
        begun = min(self.queue.following, self.last) - first
        running = sum(not each.finished for each in self.contexts)
        self.launch.progress(max(0, begun - running) / (last - first))

    def explain(self, why: BaseException) -> None:
        """Let what ended the launch from outside say where its threads were."""
        left = [each for each in self.contexts if each.status == Status.SPENT]
        with suppress(type(why)), _explained(self.launch, left):
            raise why

    def stop(self, index: int = -1) -> None:
        """Let no block after this one begin.

        Those before it go on: so the first block that fails is always the same.
        """
        with self.lock:
            self.queue.last = min(self.queue.last, index)
            for each in self.contexts:
                if each.index > index:
                    each.halt[0] = 1

    def close(self) -> None:
        """Add up what was executed; the memory of the contexts is not needed."""
        for each in self.contexts:
            each.close()
        if self.contexts:
            counts = [each.counts for each in self.contexts]
            self.launch.counts = self.launch.counts + np.sum(counts, axis=0)
        self.contexts.clear()

    def raise_first(self) -> None:
        """Raise the error of the first block that failed, if one did.

        Its traceback has this object, which must not keep it.
        """
        found = sorted(self.errors, key=lambda each: each[0])[:1]
        self.errors.clear()
        if found:
            raise found.pop()[1]

    def alone(self) -> None:
        """Run all blocks in this thread."""
        try:
            context = self._context()
            for _ in self._slices(context):
                with _explained(self.launch, [context]):
                    self.check()
        finally:
            self.close()

    def work(self) -> None:
        """Run blocks until there are no more."""
        try:
            context = self._context()
        except Exception as error:  # no memory, for example
            self.stop()
            self.errors.append((-1, error))
            return
        try:
            for _ in self._slices(context):
                pass
            context.release()
        except Exception as error:  # raised again where the launch was made
            limits = isinstance(error, LimitReached)
            over = limits or getattr(error, "kind", "") == "limit"
            self.stop(-1 if over else context.index)
            self.errors.append((context.index, error))

    def _context(self) -> Runner:
        """A new context, which takes blocks from the queue."""
        context = self._clones.take() if self.most >= FEW else self._clones.plain()
        self.contexts.append(context)
        return context

    def _slices(self, context: Runner) -> Iterator[None]:
        """Run blocks until there are no more; Python has its turn now and then."""
        alone = self.most == 1
        pace = _Pace(SLICE) if alone else _Pace(LONG_SLICE, ROUNDS)
        still = Standstill()
        while not context.halt[0] and not context.finished:
            context.allow(pace.rounds, True)
            pace.begin()
            _step(self.launch, context, self.contexts, self.limit)
            pace.end()
            begun = self.queue.following >= self.queue.last
            if alone and begun and context.status == Status.SPENT:
                if still.turn(context, 1):
                    raise faults.standstill([self.launch.place(context)])
            else:
                still.moved()
            yield
