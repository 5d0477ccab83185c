"""How is a kernel launched?

Blocks run one after the other in a context; a thread of the host has a context of its
own.  If blocks may influence one another, through atomics or volatile memory, they run
in one thread, in turns: so that a block may wait for another, and so that the result
does not depend on the number of cores.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.checks import is_whole
from fragmenta.arrays.threads import cores
from fragmenta.errors import Error, LimitReached, ValueRangeError
from fragmenta.launch import faults
from fragmenta.launch.limits import Meter
from fragmenta.launch.result import total
from fragmenta.launch.runners import Single, Team
from fragmenta.launch.variables import Variables
from fragmenta.launch.warp_functions import function_table
from fragmenta.progress import Progress, ignore_progress
from fragmenta.ptx.module import Function, Module
from fragmenta.simt import layout
from fragmenta.simt.arguments import Arguments, Segment
from fragmenta.simt.compiled import Compiled
from fragmenta.simt.context import Context, Shape, template
from fragmenta.simt.host import Host
from fragmenta.simt.layout import Status
from fragmenta.simt.mode import Mode
from fragmenta.units.faults import Stop
from fragmenta.units.findings import Launched, Place, Problems
from fragmenta.units.machine import Machine

Runner: TypeAlias = Context | Single | Team
"""What runs blocks, one after the other."""
TURN = 2000
"""How often a warp may jump back before another has its turn."""
MOST_WAITING = 4096
"""The most blocks that may be under way at a time."""
PATIENCE = 4
"""How often blocks that are under way have their turn before a new one begins."""
STACK, MOST_STACK, SAVED = 1 << 16, 1 << 20, 1 << 18
"""Bytes of each thread: its stack, the most of it, and saved registers."""


class Launch:
    """All that is the same for every block of a launch."""

    def __init__(
        self,
        module: Callable[[], Module],
        compiled: Compiled,
        shape: Shape,
        arguments: Arguments,
        variables: Variables,
        dynamic: int,
        stack: int,
        meter: Meter,
        cooperative: bool = False,
    ) -> None:
        self.meter = meter
        self.module, self.compiled, self.shape = module, compiled, shape
        self.dynamic = dynamic
        self.stack = stack if compiled.recursive or compiled.allocates else 0
        self.saved = SAVED
        self.arguments, self.parameters = arguments, arguments.parameters
        self.places: list[Segment] = [*arguments.segments, *variables.segments]
        self.cooperative = cooperative
        if cooperative:
            self.places.append(_workspace())
        self.segments = np.zeros((layout.SLOTS, 4), np.int64)
        for each in self.places:
            where = each.data.ctypes.data
            self.segments[each.slot, :3] = where, each.data.size, not each.writable
        where = self.parameters.ctypes.data
        self.segments[layout.PARAM_SLOT, :3] = where, self.parameters.size, 1
        self.constants = compiled.memory
        self.functions, self._kept = function_table(compiled.functions)
        at = layout.WORKSPACE_SLOT << layout.SLOT_BITS if cooperative else 0
        self.template = template(compiled.local, compiled.shared, dynamic, shape, at)
        self.host = Host(self)
        self.host_address = self.host.address
        self.counts: NDArray[np.int64] = np.zeros(len(compiled.counted), np.int64)
        self.progress: Progress = ignore_progress
        self.interrupts = Interrupts()
        self.target = self.language = ""
        self.machine: Machine | None = None
        """What carries out events; none if the kernel has none and nobody watches."""

    def attend(self, schedule: str | int, strict: bool, seed: int = 0) -> None:
        """Carry out events, and do asynchronous work as a schedule says.

        ``seed`` says what undefined memory holds, if undefined bits are followed.
        """
        # Each of these carries out some instructions.
        from fragmenta.units import registry

        assert registry
        self.machine = Machine(self, schedule, Problems(), strict)
        if Mode(*self.compiled.mode).watch:
            from fragmenta.races.launch_watch import LaunchWatch

            self.machine.watching = LaunchWatch(self.machine)
        elif Mode(*self.compiled.mode).defined:
            from fragmenta.races.definedness_watch import DefinedWatch

            self.machine.watching = DefinedWatch(self.machine, seed)

    @property
    def kept(self) -> Launched:
        """What is needed to tell its problems when it has ended."""
        places = tuple(Place(e.slot, e.name, e.elements) for e in self.places)
        return Launched(self.module, self.compiled, self.shape, places, self.language)

    def close(self) -> None:
        """Let go of all that only the run needed.

        What runs a kernel names one another in circles: callbacks, blocks, watchers.
        Their memory, with the shadows of all arrays, would be kept until Python's
        collector comes by, and by the traceback of an error as long as that is kept.
        """
        if self.machine is not None:
            self.machine.close()
            self.machine = None
        self.host.close()

    @property
    def units(self) -> int:
        """What is run one after the other: clusters, or blocks without a machine."""
        return self.shape.blocks // self.shape.cluster_blocks

    def context(self) -> Runner:
        """A new context, or those of a cluster."""
        if self.machine is not None:
            alone = self.shape.cluster_blocks == 1 and not self.machine.asynchronous
            return Single(self) if alone else Team(self)
        return Context(self.compiled, self.shape, self, self.dynamic)

    def run(self, context: Runner) -> None:
        """Let a context run until its blocks have ended or it has to stop."""
        code = self.compiled.code
        if not isinstance(context, Context):
            context.run(TURN)
        else:
            code.grid(context.address, code.kernel, TURN)

    def check(self, runner: Runner) -> None:
        """Raise what went wrong in a context, if anything did."""
        context = runner if isinstance(runner, Context) else runner.failed
        if runner.status == Status.FAULT:
            failed: Any = self.host.errors.get(context.address)
            if failed is None and self.machine is not None:
                failed = self.machine.errors.get(context.address)
            if isinstance(failed, Stop):
                raise faults.stopped(self.place(runner), failed.rule, str(failed))
            if failed is not None and type(failed) is not Error:
                try:
                    raise failed
                finally:  # its traceback has this frame, which must not have it
                    del failed
            raise faults.explain(self.place(runner), str(failed or ""))
        if runner.status == Status.BLOCKED:
            cluster = None if isinstance(runner, Context) else runner.cluster
            raise faults.stuck(self.place(runner), cluster)

    def place(self, runner: Runner) -> faults.Place:
        """What an error is about."""
        context = runner if isinstance(runner, Context) else runner.failed
        return faults.Place(
            self.module(),
            self.compiled,
            self.shape,
            self.places,
            context,
            self.parameters.size,
        )


def _workspace() -> Segment:
    """Where the blocks of a cooperative grid synchronise: its size, and a counter.

    CUDA's headers have ``grid.sync()`` count arrivals there, and look at it until its
    highest bit has changed.
    """
    data = np.zeros(8, np.uint8)
    data.view(np.uint32)[0] = data.size
    return Segment("the workspace of the grid", data, True, layout.WORKSPACE_SLOT)


class Interrupts:
    """Keeps Ctrl-C until the launch looks for it.

    Python would raise it wherever it is, also on the way into a function that machine
    code calls: there it would be lost.
    """

    def __init__(self) -> None:
        self._seen = False
        self._before: Any = None

    def __enter__(self) -> None:
        own = threading.current_thread() is threading.main_thread()
        if own and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._note)

    def __exit__(self, *error: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None
        if error[0] is None:
            self.check()

    def _note(self, *_: object) -> None:
        self._seen = True

    def check(self) -> None:
        """Raise what has come, in the thread that waits for it."""
        if self._seen and threading.current_thread() is threading.main_thread():
            self._seen = False
            raise KeyboardInterrupt


def run(launch: Launch, limit: int | None) -> None:
    """Run all blocks."""
    try:
        with launch.interrupts:
            run_blocks(launch, limit, 0, launch.units)
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
    """How many blocks are run at a time, before Python may be interrupted."""

    def __init__(self) -> None:
        self.blocks = 1
        self._start = time.perf_counter()

    def begin(self) -> None:
        """Blocks begin."""
        self._start = time.perf_counter()

    def end(self) -> None:
        """They have ended: more the next time, if that took little time."""
        seconds = time.perf_counter() - self._start
        self.blocks = self.blocks * 2 if seconds < 0.02 else max(1, self.blocks // 2)


def _in_turns(launch: Launch, limit: int | None, first: int, last: int) -> None:
    """One thread: a block that waits gives way to the others."""
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
                # The others of its blocks are started anew, by themselves.
                context.begin(context.index, context.index + 1)
            patience = (patience or min(PATIENCE, len(waiting)) + 1) - 1
    finally:
        launch.counts = np.sum([each.counts for each in every], axis=0)
        # The traceback of an error keeps this frame, and must not keep their memory.
        for runners in (every, free, waiting):
            runners.clear()


def _step(launch: Launch, context: Runner, every: list[Any], limit: int | None) -> None:
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
    """Several threads, each with some blocks at a time."""
    shared = _Shared(launch, limit, threads, first, last)
    workers = [
        threading.Thread(target=shared.work, daemon=True) for _ in range(threads)
    ]
    try:  # an interrupt may come as soon as the first of them runs
        for each in workers:
            each.start()
        for each in workers:
            while each.is_alive():
                each.join(0.1)
                launch.interrupts.check()
                launch.meter.check()
                launch.progress((shared.following - first) / (last - first))
    except BaseException:
        shared.stop()
        _wait_for(workers)
        raise
    finally:
        if shared.contexts:
            launch.counts = np.sum([each.counts for each in shared.contexts], axis=0)
        shared.contexts.clear()
    shared.raise_first()


def _wait_for(workers: list[threading.Thread]) -> None:
    """Wait until no thread uses the memory of the launch, however often interrupted."""
    interrupted = None
    for each in workers:
        while each.is_alive():
            try:
                each.join()
            except KeyboardInterrupt as why:
                interrupted = why
    if interrupted is not None:
        raise interrupted


class _Shared:
    """What the threads of a launch share."""

    def __init__(
        self, launch: Launch, limit: int | None, threads: int, first: int, last: int
    ) -> None:
        self.launch, self.limit = launch, limit
        self.lock = threading.Lock()
        self.following, self.last = first, last
        self.portion = max(1, (last - first) // (threads * 8))
        if limit is not None:  # it is looked at between two portions
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
        """Let no block behind this one begin.

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
        context = self.launch.context()
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


def check_options(limit: Any, stack: Any, shared: Any) -> None:
    """Refuse what is not a number of instructions or bytes."""
    if not is_whole(shared) or shared < 0:
        raise Error(f"shared is the bytes of dynamic shared memory; given {shared!r}")
    if limit is not None and (not is_whole(limit) or limit < 0):
        raise Error(f"limit is a number of warp instructions, or None; given {limit!r}")
    if not is_whole(stack) or not 0 <= stack <= MOST_STACK:
        raise Error(
            f"stack is the bytes of each thread's stack, 0 to {MOST_STACK:,}; given "
            f"{stack!r}"
        )


def check_cooperative(cooperative: Any, client: Any) -> None:
    """Refuse what is not a flag, and blocks that cannot run together."""
    if not isinstance(cooperative, bool | np.bool_):
        raise Error(f"cooperative is True or False; given {cooperative!r}")
    if cooperative and client is not None:
        raise Error(
            "the blocks of a cooperative grid run together; the workers of a Dask "
            "cluster cannot"
        )


def check_shared(compiled: Compiled, dynamic: int, target: str) -> None:
    """Refuse more shared memory than a block can have."""
    static = compiled.shared - layout.SHARED_START
    if static + dynamic <= 48 * 1024:  # every target has so much
        return
    # It takes a while to import.
    from fragmenta.ptx.checking.memory import limits

    most = limits(target)[1]
    if static + dynamic > most:
        raise ValueRangeError(
            f"a block on {target} has {most:,} bytes of shared memory; the kernel "
            f"declares {static:,}, and shared={dynamic:,}"
        )


def check_shape(kernel: Function, grid: Any, block: Any) -> Shape:
    """The grid and the block as three numbers each."""
    shape = Shape(_three(grid, "grid"), _three(block, "block"))
    if shape.threads > 1024 or shape.threads == 0 or shape.block[2] > 64:
        raise Error(
            f"a block has 1 to 1,024 threads, at most 64 along z; given {shape.block}"
        )
    x, y, z = shape.grid
    if x >= 1 << 31 or y >= 1 << 16 or z >= 1 << 16:
        raise Error(
            f"a grid has at most {(1 << 31) - 1:,} blocks along x and "
            f"{(1 << 16) - 1:,} along y and z; given {shape.grid}"
        )
    needed = kernel.directives.get("reqntid")
    if needed is not None:
        wanted = tuple(int(n) for n in (*needed, 1, 1)[:3])
        if wanted != shape.block:
            raise Error(f"{kernel.shown} needs blocks of {wanted}; given {shape.block}")
    most = kernel.directives.get("maxntid")
    if most is not None:
        allowed = int(np.prod([int(n) for n in most]))
        if shape.threads > allowed:
            raise Error(
                f"{kernel.shown} allows {allowed} threads in a block; given "
                f"{shape.threads}"
            )
    return shape


def _three(given: Any, name: str) -> tuple[int, int, int]:
    several = (
        np.ndim(given) == 1
        if isinstance(given, np.ndarray)
        else (isinstance(given, Iterable) and not isinstance(given, (str, bytes)))
    )
    numbers = tuple(given) if several else (given,)
    if not 1 <= len(numbers) <= 3 or not all(
        isinstance(n, (int, np.integer)) and not isinstance(n, bool) and n >= 0
        for n in numbers
    ):
        raise Error(f"{name} is one to three whole numbers; given {given!r}")
    x, y, z = (*(int(n) for n in numbers), 1, 1)[:3]
    return x, y, z
