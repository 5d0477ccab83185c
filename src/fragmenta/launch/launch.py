"""A launch: all that is the same for every block of a grid.

:class:`Launch` holds the machine code, the memory that all blocks see, and the machine
that carries out asynchronous work.  :mod:`fragmenta.launch.grid` runs its blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.progress import Progress, ignore_progress
from fragmenta.engine.simt import layout, naming
from fragmenta.engine.simt.arguments import Arguments, Received, Segment
from fragmenta.engine.simt.compiled import Compiled
from fragmenta.engine.simt.context import Grid, template
from fragmenta.engine.simt.host import Host
from fragmenta.engine.simt.layout import Status
from fragmenta.engine.simt.mode import Mode
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.findings import ArrayName, Launched, Problems
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.schedule import Given, ParsedSchedule
from fragmenta.errors import Error
from fragmenta.launch import faults
from fragmenta.launch.interrupts import Interrupts
from fragmenta.launch.limits import Meter
from fragmenta.launch.runners import BlockRunner, ClusterRunner, Runner
from fragmenta.launch.spin_notices import SpinNotices
from fragmenta.launch.stepping import StepRunner, TurnRecording
from fragmenta.launch.variables import Variables
from fragmenta.launch.warp_functions import function_table
from fragmenta.ptx.languages import PTX
from fragmenta.ptx.module import Module

if TYPE_CHECKING:
    from fragmenta.engine.planes.algebra import Algebra
    from fragmenta.engine.tracing.recorder import StepRecorder
    from fragmenta.engine.tracing.trace import Window
    from fragmenta.values.counters.tally import Tally

TURN = 2000
"""How often a warp may jump back before another has its turn."""
SAVED = 1 << 18
"""Bytes that each thread of a recursive kernel has for saved registers."""


class Launch:
    """All that is the same for every block of a launch."""

    def __init__(
        self,
        module: Callable[[], Module],
        compiled: Compiled,
        shape: Grid,
        arguments: Arguments | Received,
        variables: Variables,
        dynamic: int,
        stack: int,
        meter: Meter,
        cooperative: bool = False,
        goes_on: bool = False,
    ) -> None:
        self.meter, self.goes_on = meter, goes_on
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
        self.spins = SpinNotices()
        self.target = ""
        self.language = PTX
        self.machine: Machine | None = None
        """What carries out events; None if there are none and nothing observes."""
        self.recording: TurnRecording = TurnRecording(ParsedSchedule())
        """The turns of its warps."""
        self.tally: Tally | None = None
        """What counts, if the code was made for it."""
        self.recorder: StepRecorder | None = None
        """What records its steps, if the code was made for it."""
        self.algebra: Algebra | None = None
        """What second values are, if some are followed."""
        self.part: tuple[int, int] | None = None
        """The clusters that run, as a range; None if all do."""
        self.threads: int | None = None
        """How many threads of the host run its blocks; None: as many as are useful."""
        self._making = Lock()

    def count(self) -> None:
        """Let all contexts count memory traffic and lanes."""
        from fragmenta.values.counters.tally import Tally

        self.tally = Tally(self.compiled, self.places)

    def record(self, window: Window) -> None:
        """Record steps of the launch; the code was made for it."""
        from fragmenta.engine.tracing.recorder import StepRecorder

        assert self.machine is not None
        self.recorder = self.machine.tracer = StepRecorder(self.machine, window)

    def hear(self, recorded: bool) -> None:
        """Let the recorder hear of the clusters that are run next, or not."""
        if self.machine is not None:
            self.machine.tracer = self.recorder if recorded else None

    def attach_machine(self, schedule: Given, strict: bool, seed: int = 0) -> None:
        """Attach what carries out events, and the observer that the code was made for.

        The schedule says when asynchronous work is done.  ``seed`` says what undefined
        memory holds, if undefined bits are followed.
        """
        # Importing the registry registers the units.
        from fragmenta.engine.units import registry

        assert registry
        if Mode.of(self.compiled.mode).recorded:  # it registers events of its own
            from fragmenta.watch.races.recording import recorder

            assert recorder
        self.machine = Machine(self, schedule, Problems(), strict)
        self.machine.goes_on = self.goes_on
        self.recording = TurnRecording(self.machine.schedule.plan)
        mode = Mode.of(self.compiled.mode)
        if mode.recorded:
            from fragmenta.watch.races.recording.recorder import OrdersWatch

            self.machine.watching = OrdersWatch(self.machine)
        elif mode.watch:
            from fragmenta.watch.races.launch_watch import LaunchWatch

            self.machine.watching = LaunchWatch(self.machine)
        elif mode.defined:
            from fragmenta.watch.races.definedness_watch import DefinedWatch

            self.machine.watching = DefinedWatch(self.machine, seed)

    def follow(self, algebra: Algebra) -> None:
        """Follow second values; the code was made for this algebra."""
        from fragmenta.engine.planes.memory import PlaneWatch
        from fragmenta.engine.planes.shadows import quiet

        assert self.machine is not None
        self.saved *= 1 + algebra.planes  # planes of registers are saved, too
        self.machine.following = PlaneWatch(self.machine, algebra)
        self.machine.quiet = {quiet()}
        self.algebra, self.part = algebra, algebra.part

    @property
    def kept(self) -> Launched:
        """What a report of its problems needs after the launch has ended."""
        places = tuple(ArrayName(e.slot, e.name, e.elements) for e in self.places)
        return Launched(self.module, self.compiled, self.shape, places, self.language)

    def close(self) -> None:
        """Release all that only the run needed.

        Callbacks, blocks and observers refer to one another in circles.  Without this,
        their memory and the shadows of all arrays would live until Python's garbage
        collector runs, or as long as the traceback of an error is kept.
        """
        if self.recorder is not None:
            self.recorder.free()
        if self.machine is not None:
            self.machine.close()
            self.machine = None
        self.host.close()

    @property
    def cluster_count(self) -> int:
        """How many clusters the grid has; without clusters, how many blocks."""
        return self.shape.blocks // self.shape.cluster_blocks

    def context(self) -> Runner:
        """A new runner: the context of a block, or those of a cluster.

        Instruments number the contexts: threads make them one after the other.
        """
        with self._making:
            made = self._runner()
            if self.tally is not None:
                for each in made.contexts:
                    self.tally.attach(each)
            return made

    def _runner(self) -> Runner:
        if self.machine is None:
            return BlockRunner(self)
        if self.machine.schedule.plan.stepped:
            return StepRunner(self)
        alone = self.shape.cluster_blocks == 1 and not self.machine.asynchronous
        alone = alone and self.machine.tracer is None
        return BlockRunner(self) if alone else ClusterRunner(self)

    def run(self, runner: Runner) -> None:
        """Let a runner go on until its blocks have ended or it has to stop."""
        runner.run(TURN)

    def check(self, runner: Runner) -> None:
        """Raise the error of a runner, if it has failed or is stuck."""
        if runner.status == Status.FAULT:
            context = runner.failed
            failed = self.host.errors.get(context.address)
            failed = self.compiled.code.rest.errors.pop(context.address, failed)
            if failed is None and self.machine is not None:
                failed = self.machine.errors.get(context.address)
            if isinstance(failed, Stop):
                raise faults.stopped(self.place(runner), failed.rule, str(failed))
            if failed is not None and type(failed) is not Error:
                try:
                    raise failed
                finally:  # its traceback keeps this frame, which must not keep it
                    del failed
            raise faults.explain(self.place(runner), str(failed or ""))
        if runner.status == Status.BLOCKED:
            raise faults.stuck(self.place(runner), runner.cluster)

    def place(self, runner: Runner) -> faults.FaultContext:
        """Where and in which block an error happened."""
        return faults.FaultContext(
            self.module(),
            self.compiled,
            self.shape,
            self.places,
            runner.failed,
            self.parameters.size,
            self._written,
        )

    def _written(self, address: int) -> tuple[int, str]:
        """Who wrote a word of global memory last, if the launch is watched."""
        if self.machine is None or self.machine.watching is None:
            return -1, ""
        from fragmenta.watch.races.launch_watch import LaunchWatch

        watching = self.machine.watching
        if not isinstance(watching, LaunchWatch):
            return -1, ""
        found = watching.last_write(address)
        if found is None:
            return -1, "nobody"
        lane = "" if found.lane < 0 else f" lane {found.lane}"
        block = naming.block_words(self.shape.block_at(found.block))
        where = naming.KernelNames(self.module(), self.compiled).place(found.site)
        return found.site, f"warp {found.number}{lane} of {block} at {where}"


def _workspace() -> Segment:
    """The workspace of a cooperative grid: its size, and a counter.

    In CUDA's headers, ``grid.sync()`` counts arrivals there, and polls the counter
    until its highest bit has changed.
    """
    data = np.zeros(8, np.uint8)
    data.view(np.uint32)[0] = data.size
    return Segment("the workspace of the grid", data, True, layout.WORKSPACE_SLOT)
