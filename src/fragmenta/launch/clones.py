"""Runners that are copies of one another, so that threads begin at once.

A runner has some sixty pieces of memory, and Python takes a millisecond or more to make
them, one thread after the other.  Here Python makes one runner, whose memory is an
:class:`~fragmenta.engine.simt.arena.Arena`.  A :class:`Clone` is a copy of that memory,
with its pointers moved.  Machine code runs it as it runs the first one.  What Python
has of a runner is made when Python has to take part: in the same memory, by the same
steps.

Whether a copy is like a runner that Python makes is found out once for each kind of
launch of a kernel: :meth:`Clones.take`.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.arena import PAGE, Arena, ArenaFull
from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.simt.context import BlockQueue, Context
from fragmenta.engine.simt.layout import Status
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.events import Described, once_per_kernel
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.observing import Copying
from fragmenta.engine.units.reset_schedule import routines
from fragmenta.launch.runners import BlockRunner, ClusterRunner, Runner, RunRecord
from fragmenta.ptx.module import demangled

if TYPE_CHECKING:
    from fragmenta.launch.launch import Launch

Bytes = NDArray[np.uint8]
DENSE, SPARSE = 1 << 24, 1 << 26
"""The most bytes of a runner that can be copied; the second of memory that is hardly
used."""


_GAP = 8
"""Pages that are copied, though they are empty, because others are on both sides."""


@once_per_kernel
def _verdicts(compiled: Described) -> dict[object, bool]:
    """Whether copies of runners of a kernel are like others, by the kind of launch."""
    return {}


class _MemorySlice(NamedTuple):
    """Where some memory of a runner is."""

    offset: int
    size: int

    def of(self, arena: Arena) -> Bytes:
        return arena.memory[self.offset : self.offset + self.size]


def _runs(image: Bytes) -> list[tuple[int, int]]:
    """Where memory is not empty: pages that are near each other, in bytes."""
    pages = np.flatnonzero(image.reshape(-1, PAGE).any(axis=1))
    parts = np.split(pages, np.flatnonzero(np.diff(pages) > _GAP) + 1)
    return [
        (int(each[0]) * PAGE, int(each[-1] - each[0] + 1) * PAGE)
        for each in parts
        if each.size
    ]


class _Template:
    """The memory of a runner as it was made."""

    def __init__(self, arena: Arena, runner: BlockRunner | ClusterRunner) -> None:
        self._base, self.pieces = arena.address, list(arena.pieces)
        self.dense = -(-arena.used // PAGE) * PAGE
        self.sparse = -(-arena.sparse_used // PAGE) * PAGE
        self._moved = self.dense - DENSE
        self._image = arena.memory[: self.dense].copy()
        self._runs = _runs(self._image)
        inside = self._image.view(np.int64) - arena.address
        self._places = np.flatnonzero((inside >= 0) & (inside < DENSE + SPARSE))
        self._goals = inside[self._places]
        # What is hardly used follows the rest at once in a copy.
        self._goals[self._goals >= DENSE] += self._moved
        self._find(arena, runner)

    def _find(self, arena: Arena, runner: BlockRunner | ClusterRunner) -> None:
        def place(memory: NDArray[np.generic]) -> _MemorySlice:
            offset = address_of(memory) - arena.address
            if offset >= DENSE:
                offset += self._moved
            return _MemorySlice(offset, memory.nbytes)

        contexts = runner.contexts
        self.room = sum(e.size for each in contexts for e in each.parts.values())
        self.blocks = [place(each.parts["block"]) for each in contexts]
        self.counts = [place(each.parts["counts"]) for each in contexts]
        self.halt = place(runner.halt)
        self.run = None
        if isinstance(runner, ClusterRunner):
            self.run = place(runner.record.raw)
        self.flags: list[_MemorySlice] = []
        """Words that are 0, unless Python has to know of something."""
        self.found: list[_MemorySlice] = []
        self.log: _MemorySlice | None = None
        copying = _copying(runner.launch)
        if copying is not None and runner.cluster is not None:
            results = copying.results(runner.cluster)
            self.flags = [place(each) for each in results.flags]
            self.found = [place(each) for each in results.counts]
            self.log = place(results.log)

    def copy(self) -> Arena:
        """Other memory with the same contents."""
        made, source = Arena(self.dense, self.sparse), address_of(self._image)
        for first, size in self._runs:  # other threads go on meanwhile
            ctypes.memmove(made.address + first, source + first, size)
        longs = made.memory[: self.dense].view(np.int64)
        longs[self._places] = self._goals + made.address
        return made


class Clones:
    """Makes the runners of a launch, as copies if that can be."""

    def __init__(self, launch: Launch, queue: BlockQueue) -> None:
        self.launch, self.queue = launch, queue
        self.template: _Template | None = None
        self._lock = threading.Lock()
        self._may = launch.tally is None and sys.platform != "win32"
        machine = launch.machine
        if machine is not None:
            stepped = machine.schedule.plan.stepped
            python = bool(machine.observers) and _copying(launch) is None
            alone = stepped or python or machine.grants or machine.notes
            self._may = self._may and not alone

    @property
    def _kind(self) -> object:
        """The kind of launch, as far as the memory of a runner depends on it."""
        launch = self.launch
        about: tuple[object, ...] = ()
        if launch.machine is not None:
            machine = launch.machine
            about = str(machine.schedule.work), machine.strict, not machine.observers
        sizes = launch.dynamic, launch.stack, launch.cooperative, launch.goes_on
        return launch.shape, launch.target, sizes, about

    def take(self) -> Runner:
        """A new runner, which takes blocks from the queue.

        The first two of a kind of launch are made by Python, and a copy of the one is
        compared with the other.
        """
        if self.template is not None:
            return Clone(self, self.template)
        with self._lock:
            if self._may and self.template is None:
                return self._first()
        if self.template is not None:
            return Clone(self, self.template)
        return self.plain()

    def plain(self) -> Runner:
        """A runner that Python makes."""
        made = self.launch.context()
        made.share(self.queue)
        return made

    def _first(self) -> Runner:
        """The first runner in an arena, if there can be copies of it."""
        verdicts, kind = _verdicts(self.launch.compiled), self._kind
        machine = self.launch.machine
        if verdicts.get(kind) is False:
            self._may = False
            return self.plain()
        if machine is not None and machine.asynchronous and not machine.settled:
            return self.plain()  # perhaps another thread knows more soon
        try:
            made = self.settled(Arena(DENSE, SPARSE))
        except OSError:  # no more addresses
            made = None
        if made is None:
            verdicts[kind] = self._may = False
            return self.plain()
        arena, runner = made
        template = _Template(arena, runner)
        if kind not in verdicts:
            second = self.settled(Arena(DENSE, SPARSE))
            verdicts[kind] = second is not None and _alike(template, second[0])
        if verdicts[kind]:
            self.template = template
        else:
            self._may = False
        return runner

    def settled(self, arena: Arena) -> tuple[Arena, BlockRunner | ClusterRunner] | None:
        """A runner in an arena, ready to be copied; None if it needs Python."""
        try:
            with arena.use():
                made = self.launch.context()
                made.share(self.queue)
                assert isinstance(made, BlockRunner | ClusterRunner)
                made.settle()
        except ArenaFull:
            self._may = False
            return None
        return (arena, made) if made.settled else None


def _copying(launch: Launch) -> Copying | None:
    """How copies are observed, if anything observes them."""
    machine = launch.machine
    if machine is None or machine.watching is None or machine.following is not None:
        return None  # values are followed in Python
    return machine.watching.copying()


def _alike(template: _Template, other: Arena) -> bool:
    """Whether a copy is like a runner that Python made."""
    if template.pieces != other.pieces:
        return False
    copy = template.copy()
    image = other.memory[: template.dense].copy().view(np.int64)
    inside = image - other.address
    found = (inside >= 0) & (inside < DENSE + SPARSE)
    goals = inside[found]
    goals[goals >= DENSE] += template.dense - DENSE
    image[found] = goals + copy.address
    untouched = other.memory[DENSE : DENSE + template.sparse]
    same = np.array_equal(image, copy.memory[: template.dense].view(np.int64))
    return same and not untouched.any()


class _Saved:
    """The contents of an arena, which is empty then."""

    def __init__(self, arena: Arena) -> None:
        self._pages = arena.memory.reshape(-1, PAGE)
        self._used = self._clear()

    def _clear(self) -> tuple[NDArray[np.int64], Bytes]:
        """Clear the pages that are used; what was there."""
        # Pages that are only read cost no memory.
        numbers = np.flatnonzero(self._pages.any(axis=1))
        found = self._pages[numbers]
        self._pages[numbers] = 0
        return numbers, found

    def put_back(self) -> None:
        """Let the arena be as it was."""
        self._clear()
        numbers, found = self._used
        self._pages[numbers] = found


class Clone:
    """A runner whose memory is a copy; Python makes its part when it is needed."""

    def __init__(self, clones: Clones, template: _Template) -> None:
        self.launch, self._clones, self._template = clones.launch, clones, template
        blocks = f"the blocks of {demangled(self.launch.compiled.kernel)}"
        self.launch.meter.room(template.room, blocks)
        self._arena: Arena | None = template.copy()
        self._told = False
        self._made: BlockRunner | ClusterRunner | None = None
        self._queue = clones.queue
        memory = self._arena
        assert memory is not None
        self.halt = template.halt.of(memory).view(np.int32)
        self._counts = [each.of(memory).view(np.int64) for each in template.counts]
        block = template.blocks[0].of(memory)
        self._narrow, self._wide = block.view(np.int32), block.view(np.int64)
        self._run = None
        if template.run is not None:
            self._run = RunRecord(template.run.of(memory))
        code = self.launch.compiled.code
        where = address_of(block if self._run is None else self._run.raw)
        self._call = code.grid if self._run is None else routines().clusters
        self._given = where, code.kernel

    @property
    def made(self) -> BlockRunner | ClusterRunner:
        """The runner that Python has; its memory stays as it is."""
        if self._made is None:
            arena = self._arena
            assert arena is not None
            saved = _Saved(arena)
            arena.restart()
            made = self._clones.settled(arena)
            assert made is not None
            assert arena.pieces == self._pieces()
            saved.put_back()
            self._made = made[1]
        return self._made

    def _pieces(self) -> list[tuple[int, int]]:
        """Where the pieces of the template are in a copy."""
        template, moved = self._template, self._template.dense - DENSE
        return [
            (start + moved if start >= DENSE else start, size)
            for start, size in template.pieces
        ]

    @property
    def contexts(self) -> list[Context]:
        """The memory of its blocks."""
        return self.made.contexts

    @property
    def failed(self) -> Context:
        """The context that failed, or that stands for all that wait."""
        return self.made.failed

    @property
    def cluster(self) -> Cluster | None:
        """What carries out events."""
        return self.made.cluster

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each code block was executed."""
        total: NDArray[np.int64] = np.sum(self._counts, 0)
        return total

    def release(self) -> None:
        """Free its memory, if nobody needs it: all has run."""
        self._tell()
        if self._made is None:
            block, run = self._narrow.copy(), self._run
            self._narrow, self._wide = block, block.view(np.int64)
            self._run = None if run is None else RunRecord(run.raw.copy())
            self._counts = [self.counts]
            self.halt = self.halt.copy()
            self._arena = None

    @property
    def status(self) -> Status:
        """The status of the present block or cluster."""
        if self._run is not None:
            return self._run.status
        return Status(int(self._narrow[layout.BLOCK_STATUS // 4]))

    @property
    def index(self) -> int:
        """The block or cluster that runs, or that was run last."""
        if self._run is not None:
            return self._run.index
        return int(self._wide[layout.BLOCK_INDEX // 8])

    @property
    def following(self) -> int:
        """The next one that nobody runs, or the first one that is not to be run."""
        return min(self._queue.following, self._queue.last)

    @property
    def finished(self) -> bool:
        """Whether all to run have ended, or others run them."""
        over = self._queue.following >= self._queue.last
        return over and self.status == Status.ENDED

    def begin(self, first: int, last: int) -> None:
        """Say which are to be run next."""
        self.made.begin(first, last)

    def keep_one(self) -> None:
        """Run no other after the present one."""
        self._queue.last = self._queue.following

    def share(self, queue: BlockQueue) -> None:
        """It takes them from the queue of the runner that it is a copy of."""
        assert queue is self._queue

    def allow(self, rounds: int, goes_on: bool) -> None:
        """Set after how many rounds of turns Python has its turn."""
        if self._run is not None:
            self._run.rounds, self._run.goes_on = rounds, goes_on
        else:
            self._narrow[layout.BLOCK_ROUNDS // 4] = rounds
            self._narrow[layout.BLOCK_GOES_ON // 4] = goes_on

    def run(self, turn: int) -> None:
        """Run until all have ended, or something else has to happen first."""
        if self.launch.machine is not None:
            self.launch.machine.local.runner = self
        if self._made is not None:
            self._made.run(turn)
            return
        self._call(*self._given, turn)
        run = self._run
        if run is None or run.status == Status.ENDED or self._keep_first(run):
            return
        if run.status != Status.SPENT or not run.changed or self._made is not None:
            made = self.made
            assert isinstance(made, ClusterRunner)
            made.returned(turn)

    def _keep_first(self, run: RunRecord) -> bool:
        """Keep what the first cluster did, if it has just ended and all was well."""
        log, ready = self._template.log, run.status == Status.READY
        clean = ready and run.first == fast.CLEAN_FIRST and not run.index
        if not clean or log is None or self._made is not None:
            return False
        copying = _copying(self.launch)
        assert copying is not None
        assert self._arena is not None
        copying.keep_first(log.of(self._arena))
        run.status = Status.ENDED
        return True

    def close(self) -> None:
        """All has run: tell the launch what it has to know."""
        self._tell()

    def _tell(self) -> None:
        copying, arena = _copying(self.launch), self._arena
        if self._told or self._made is not None or copying is None or arena is None:
            return
        self._told = True
        if any(each.of(arena).any() for each in self._template.flags):
            assert self.made  # its observer has found something
            return
        copying.add([each.of(arena).copy() for each in self._template.found])
