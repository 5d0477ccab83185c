"""The runs of one launch: with each schedule, and again to follow undefined bits.

A launch with several schedules is run once with each, on the same memory.  A run that
read unwritten memory or registers is repeated: see
:mod:`fragmenta.watch.races.suspicions`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.progress import ignore_progress
from fragmenta.engine.simt import layout, untouched
from fragmenta.engine.simt.arguments import Arguments, Passed, segments_of
from fragmenta.engine.simt.naming import element
from fragmenta.engine.units.events import once_per_kernel
from fragmenta.engine.units.findings import Finding, Launched
from fragmenta.engine.units.machine import Machine
from fragmenta.engine.units.schedule import Given
from fragmenta.engine.units.schedule import read as read_schedule
from fragmenta.errors import KernelFault, LimitReached
from fragmenta.launch.grid import may_wait, threads_of
from fragmenta.launch.launch import Launch
from fragmenta.launch.result import first_errors, total
from fragmenta.ptx import rules
from fragmenta.ptx.rules import ERROR, SEVERITIES

if TYPE_CHECKING:
    from fragmenta.engine.simt.compiled import Compiled
    from fragmenta.engine.tracing.trace import Stepped, Trace
    from fragmenta.ptx.checking.touching import Touched
    from fragmenta.ptx.module import Function
    from fragmenta.watch.races.report.history import Recorded

Attach: TypeAlias = Callable[[Machine], None]
"""Attaches to the machine of a launch what it is run again for."""
Images: TypeAlias = list[NDArray[np.uint8] | None]
"""A copy of the memory of each segment of a launch; None if it is not needed."""
SEEDS = 1, 2
"""What undefined bits are in further runs; in the first one they are 0."""
LEAST = 1_000_000
"""Warp instructions of a further run, in addition to twice those of the first."""
MOST_FENCED = 100_000
"""Warp instructions of a cluster that is run again to look for fences."""


class PrepareRun(Protocol):
    """Makes a launch that is ready to run."""

    def __call__(
        self,
        schedule: Given,
        defined: int | None = None,
        recorded: bool = False,
        raced: bool = False,
        traced: bool = False,
        quiet: bool = False,
        strict: bool = False,
        again: bool = False,
    ) -> Launch:
        """``defined`` is the seed of undefined bits, if they are followed.

        ``recorded``: what synchronises is recorded.  With ``raced``, what racy loads
        read is undefined.  ``traced``: its steps are recorded.  ``quiet``: it is not
        watched.  ``strict``: with all rules.  ``again``: the run is known already.
        """


class RunLaunch(Protocol):
    """Runs a launch; what the kernel printed."""

    def __call__(self, launch: Launch, most: int | None = ..., here: bool = ...) -> str:
        """``most`` are the warp instructions that it may execute.

        ``here``: in this process, also if others run blocks of the launch.
        """


class ScheduledRuns:
    """The runs of one launch, with one schedule each."""

    def __init__(
        self,
        prepare: PrepareRun,
        run: RunLaunch,
        schedules: list[Given],
        reports: bool,
        replays: bool = False,
    ) -> None:
        self._prepare, self._run, self.schedules = prepare, run, schedules
        self._reports, self._replays = reports, replays
        self.found: list[tuple[Launched, Finding]] = []
        """What was found, with the first run in which it was."""
        self.recorded: list[Recorded] = []
        """What happened in some clusters of each run."""
        self.steps: list[Stepped] = []
        """The steps of each run, if they are recorded."""
        self._used: set[tuple[str, int]] = set()
        """Where unwritten registers were used: function and instruction."""
        self.complete = True
        """Whether all runs came to their end."""
        self.fault = ""
        """The kind of the fault that stopped one of them."""
        self._remember: Callable[[], None] | None = None
        """Lets later launches know of the first run."""
        self.launch: Launch
        self.launches: list[Launch] = []
        """The run with each schedule, so far."""

    def all(self) -> str:
        """Run with every schedule; what the first run printed.

        Afterwards the memory is as the first run left it.
        """
        self.launch = self._prepared(self.schedules[0])
        several = len(self.schedules) > 1
        before: Images = []
        if several:
            before = copies(self.launch)
        elif self._replays and self.launch.cluster_count > 1:
            before = copies(self.launch, changed(self.launch))
        elif _may_doubt(self.launch):
            before = copies(self.launch, reread(self.launch))
        output = self._one(self.launch, self.schedules[0], before)
        after = copies(self.launch) if several else []
        for each in self.schedules[1:]:
            restore(self.launch, before)
            other = self._prepared(each)
            self._one(other, each, before)
            self._compare(other, each, after)
        if several:
            restore(self.launch, after)
        if self._remember is not None:
            self._remember()
        return output

    def _one(self, launch: Launch, schedule: Given, before: Images) -> str:
        self.launches.append(launch)
        try:
            return self._watched(launch, schedule, before)
        finally:
            launch.close()

    def _prepared(self, schedule: Given) -> Launch:
        """A launch that is ready to run; recorded, if that is not done apart."""
        launch = self._prepare(schedule, traced=self._replays)
        if launch.recorder is None or not _is_recorded_apart(launch):
            return launch
        if launch.recorder.window.most == 1:  # for the events of blocks, not for steps
            return launch
        launch.close()
        return self._prepare(schedule)

    def _record(
        self,
        launch: Launch,
        schedule: Given,
        before: Images,
        fault: KernelFault | None = None,
    ) -> None:
        """Keep the steps that were recorded; if a problem is elsewhere, those there."""
        if not self._replays:
            return
        cluster, recorder = _wrong_cluster(launch, fault), launch.recorder
        if recorder is None:
            self._record_again(launch, schedule, before, cluster)
            return
        elsewhere = cluster is not None and cluster not in recorder.clusters
        if before and elsewhere and not recorder.window.blocks:
            self._record_again(launch, schedule, before, cluster)
        else:
            self._keep(launch, schedule, recorder.result(), cluster is not None, [])

    def _keep(
        self,
        launch: Launch,
        schedule: Given,
        told: Trace,
        wrong: bool,
        found: list[tuple[Launched, Finding]],
    ) -> None:
        from fragmenta.engine.tracing.trace import Stepped

        told.wrong |= wrong
        name = str(read_schedule(schedule).name)
        self.steps.append(Stepped(name, launch.target, told, launch.kept, found))

    def _record_again(
        self, launch: Launch, schedule: Given, before: Images, cluster: int | None
    ) -> None:
        """Run a launch again up to a cluster with a problem, and record that one.

        Without one it is the first, which is not watched: that takes less time.
        """
        if launch.recording.plan.chooser is not None:  # it is asked once
            schedule = launch.recording.to_json()
        slots = {
            e.slot
            for e, data in zip(launch.places, before, strict=True)
            if data is not None
        }
        after = copies(launch, slots)
        restore(launch, before)
        again = self._prepare(schedule, traced=True, quiet=cluster is None, again=True)
        assert again.recorder is not None
        assert again.machine is not None
        again.progress = ignore_progress
        if not again.recorder.window.blocks:
            again.recorder.choose(cluster or 0)
        again.part = 0, again.recorder.clusters[-1] + 1
        try:
            with suppress(KernelFault):  # the first run reported it
                self._run(again)
            kept, wrong = again.kept, cluster is not None
            own = [(kept, each) for each in again.machine.problems]
            self._keep(again, schedule, again.recorder.result(), wrong, own)
        finally:
            restore(launch, after)
            again.close()

    def _watched(self, launch: Launch, schedule: Given, before: Images) -> str:
        output, stopped = "", None
        try:
            output = self._run(launch)
        except KernelFault as fault:
            limit = isinstance(fault, LimitReached)
            if limit or not self._reports or launch.machine is None:
                self._record(launch, schedule, before, fault)
                self._found_before(launch, fault)
                if self._replays:
                    self._fatal(launch, fault)
                    self._gather(launch, [])
                raise
            stopped = fault
        self._compare_stores(launch, schedule, before)
        hidden = self._follow_races(launch, schedule, before)
        more = hidden + self._follow(launch, schedule, before)
        if stopped is None:
            more += self._fences(launch, schedule, before)
        self._record(launch, schedule, before, stopped)
        if stopped is not None:
            self._fatal(launch, stopped)
            stopped = None  # its traceback keeps this frame, which must not keep it
        self._gather(launch, more)
        self.found += more
        return output

    def _follow(
        self, launch: Launch, schedule: Given, before: Images
    ) -> list[tuple[Launched, Finding]]:
        """Run a launch again, if it read unwritten memory or registers.

        A read whose value has no effect is no longer one of its problems.  Uses of
        undefined values are returned.
        """
        if not before or launch.machine is None:
            return []
        from fragmenta.watch.races.definedness_watch import DefinedWatch
        from fragmenta.watch.races.suspicions import in_doubt, settle, suspected

        if not suspected(launch):
            return []
        if launch.recording.plan.chooser is not None:  # it is asked once
            schedule = launch.recording.to_json()
        after = copies(launch)
        most = 2 * total(launch.compiled, launch.counts) + LEAST

        def follow(seed: int) -> Launch:
            restore(launch, before)
            again = self._prepare(schedule, defined=seed)
            assert again.machine is not None
            observer = again.machine.watching
            assert isinstance(observer, DefinedWatch)
            try:
                self._run(again, most)
            except KernelFault:  # the first run reported it, or this one has no end
                observer.left = ()
            else:
                observer.leave()
            finally:
                restore(launch, after)
            return again

        again, kept = follow(0), []
        others = [follow(seed) for seed in SEEDS] if in_doubt(again) else []
        for each in settle(launch, again, others):
            function, index = again.compiled.places[each.site]
            if (function, index) not in self._used:
                self._used.add((function, index))
                kept.append((again.kept, each))
        for run in (again, *others):
            run.close()
        return kept

    def _fences(
        self, launch: Launch, schedule: Given, before: Images
    ) -> list[tuple[Launched, Finding]]:
        """Missing fences of tensor memory, in the first cluster of a launch.

        Compiled code does not count them, so that cluster is run again with all rules.
        A kernel without one of the two is left alone: its compiler does without.
        """
        if not before or not _has_tensor_fences(launch):
            return []
        if launch.recording.plan.chooser is not None:  # it is asked once
            schedule = launch.recording.to_json()
        after = copies(launch)
        restore(launch, before)
        again = self._prepare(schedule, strict=True)
        again.progress, again.part = ignore_progress, (0, 1)
        assert again.machine is not None
        try:
            with suppress(KernelFault):  # the first run came to its end
                self._run(again, MOST_FENCED, here=True)
            kept = again.kept
            return [
                (kept, each)
                for each in again.machine.problems
                if each.rule is rules.MISSING_TENSOR_FENCE
            ]
        finally:
            restore(launch, after)
            again.close()

    def _compare_stores(self, launch: Launch, schedule: Given, before: Images) -> None:
        """Run a launch again in one thread, if blocks may have stored the same.

        A store of another thread may have been on its way when they were compared.
        """
        if not before or launch.machine is None or threads_of(launch) == 1:
            return
        from fragmenta.watch.races.equal_writes import doubtful, settle

        count = total(launch.compiled, launch.counts)
        found = doubtful(launch, count)
        if not found:
            return
        if launch.recording.plan.chooser is not None:  # it is asked once
            schedule = launch.recording.to_json()
        after = copies(launch)
        restore(launch, before)
        again = self._prepare(schedule)
        again.progress, again.threads = ignore_progress, 1
        try:
            with suppress(KernelFault):  # the first run came to its end
                self._run(again, 2 * count + LEAST, here=True)
                settle(launch, found, again)
        finally:
            restore(launch, after)
            again.close()

    def _follow_races(
        self, launch: Launch, schedule: Given, before: Images
    ) -> list[tuple[Launched, Finding]]:
        """Run a launch again, if loads race: those that nobody uses are notes.

        Races that these have hidden are returned.
        """
        if not before or launch.machine is None:
            return []
        from fragmenta.watch.races.unused_reads import (
            Rerun,
            judge,
            judge_elsewhere,
            racy_reads,
            seen_elsewhere,
        )

        count = total(launch.compiled, launch.counts)
        elsewhere = seen_elsewhere(launch, count)
        found = [] if elsewhere else racy_reads(launch, count)
        if not (found or elsewhere):
            return []
        if launch.recording.plan.chooser is not None:  # it is asked once
            schedule = launch.recording.to_json()
        after, runs = copies(launch), []

        def run(
            prepare: Callable[[], Launch],
            attach: Attach,
            part: tuple[int, int] | None,
        ) -> Launch | None:
            restore(launch, before)
            again = prepare()
            again.part, again.progress = part, ignore_progress
            assert again.machine is not None
            attach(again.machine)
            runs.append(again)
            try:
                self._run(again, 2 * count + LEAST, here=True)
            except KernelFault:  # what happens then is not known
                return None
            finally:
                restore(launch, after)
            return again

        again = Rerun(
            partial(run, partial(self._prepare, schedule, raced=True)),
            partial(run, partial(self._prepare, schedule, defined=0, raced=True)),
        )
        try:
            if not elsewhere:
                hidden = judge(launch, found, again)
            else:
                whole = run(
                    partial(self._prepare, schedule), lambda machine: None, None
                )
                hidden = whole and judge_elsewhere(launch, whole, count, again)
            if hidden is None or hidden.machine is None:
                return []
            kept = next(each.kept for each in runs if each is hidden)
            return [(kept, each) for each in hidden.machine.problems]
        finally:
            for each in runs:
                each.close()

    def _found_before(self, launch: Launch, fault: KernelFault) -> None:
        """Attach earlier errors to a fault: one of them may be its cause."""
        if launch.machine is None or fault.problems:
            return
        before = [each for each in launch.machine.problems if each.severity == "error"]
        if before:
            from fragmenta.watch.races.report.messages import reports

            kept = launch.kept
            fault.problems = reports((kept, each) for each in before)
            fault.before = first_errors(fault.problems)

    def _fatal(self, launch: Launch, fault: KernelFault) -> None:
        """Report a run that could not go on as a problem like the others."""
        self.complete, self.fault = False, fault.kind
        block = fault.block or (0, 0, 0)
        x, y, _ = launch.shape.grid
        number = block[0] + x * (block[1] + y * block[2])
        rule = rules.of_fault(fault.kind)
        made = Finding(
            rule,
            -1,
            str(fault),
            number,
            severity=ERROR,
            line=fault.line,
            repair=fault.hint or None,
        )
        if fault.thread is not None:
            x, y, z = fault.thread
            wide, high, _ = launch.shape.block
            made.warp = (x + wide * (y + high * z)) // 32
        assert launch.machine is not None
        launch.machine.problems.put(made)

    def _gather(self, launch: Launch, more: list[tuple[Launched, Finding]]) -> None:
        """Collect what was found; ``more`` was found when it was run again."""
        if launch.machine is None:
            return
        if self._replays:
            own = [(launch.kept, each) for each in launch.machine.problems]
            self.steps[-1].found.extend([*own, *more])
        watching = launch.machine.watching
        if watching is not None:
            from fragmenta.watch.races.launch_watch import LaunchWatch

            if isinstance(watching, LaunchWatch):
                self.recorded += watching.recorded()
                self._remember = self._remember or watching.remembered()
        known, kept = {each.key for _, each in self.found}, launch.kept
        for each in launch.machine.problems:
            if each.key not in known:
                self.found.append((kept, each))

    def _compare(self, launch: Launch, schedule: Given, after: Images) -> None:
        """Report the arrays that differ from those of the first run."""
        first, other = (
            read_schedule(each).name for each in (self.schedules[0], schedule)
        )
        for segment, wanted in zip(launch.places, after, strict=True):
            if wanted is None:
                continue
            different = untouched.different(segment.data, wanted)
            if not different.size:
                continue
            where = element(segment.name, segment.elements, int(different[0]))
            message = (
                f"the schedules {first!r} and {other!r} give different bits: "
                f"{different.size:,} bytes of {segment.name} differ, the first is "
                f"{where}"
            )
            made = Finding(rules.SCHEDULE, -1, message)
            if made.key not in {each.key for _, each in self.found}:
                self.found.append((launch.kept, made))


def _has_tensor_fences(launch: Launch) -> bool:
    """Whether the kernel has both fences of tensor memory, and no error so far."""
    machine = launch.machine
    if machine is None or machine.watching is None or not machine.tensor:
        return False
    if machine.strict or any(each.severity == ERROR for each in machine.problems):
        return False
    size = total(launch.compiled, launch.counts) // launch.cluster_count
    words = {word for each in machine.events for word in each.words[1:2]}
    fenced = words >= {"fence::before_thread_sync", "fence::after_thread_sync"}
    return fenced and size <= MOST_FENCED


def _may_doubt(launch: Launch) -> bool:
    """Whether the launch is observed, and can read unwritten memory or registers."""
    if launch.machine is None or launch.machine.watching is None:
        return False
    from fragmenta.watch.races.suspicions import may_doubt

    return may_doubt(launch)


def _is_recorded_apart(launch: Launch) -> bool:
    """Whether steps are recorded in a run of their own.

    The launch is watched as fast as any other then, and only what is recorded runs
    again.  So blocks must not influence one another, and their turns must be the same.
    """
    assert launch.machine is not None
    together = may_wait(launch) or launch.compiled.prints
    several = launch.cluster_count > 1 and not launch.machine.schedule.plan.stepped
    return several and not together and launch.machine.watching is not None


def _wrong_cluster(launch: Launch, fault: KernelFault | None) -> int | None:
    """The cluster to look at: that of a fault, or the first with the worst problem."""
    shape = launch.shape
    if fault is not None and fault.block is not None:
        x, y, z = fault.block
        return shape.cluster_of(x + shape.grid[0] * (y + shape.grid[1] * z))
    every = () if launch.machine is None else (*launch.machine.problems,)
    found = [
        (SEVERITIES.index(each.severity), shape.cluster_of(each.block))
        for each in every
        if 0 <= each.block < shape.blocks
    ]
    return min(found)[1] if found else None


def copies(launch: Launch, slots: set[int] | None = None) -> Images:
    """A copy of the memory that a launch may write; if slots are given, of theirs."""
    return [
        untouched.copied(each.data)
        if each.writable and (slots is None or each.slot in slots)
        else None
        for each in launch.places
    ]


def reread(launch: Launch) -> set[int]:
    """The slots of memory that the kernel may load from and store to.

    A second run needs only what these held before: other memory is not changed, or is
    not read.
    """
    loaded, stored = _reached(launch)
    return loaded & stored


def changed(launch: Launch) -> set[int]:
    """The slots of memory that the kernel may store to."""
    return _reached(launch)[1]


def _reached(launch: Launch) -> tuple[set[int], set[int]]:
    """The slots of memory that the kernel may load from, and may store to."""
    every = {each.slot for each in launch.places}
    function = launch.module().functions[launch.compiled.kernel]
    found, given = _touched(launch.compiled, function), launch.arguments
    if found is None or not isinstance(given, Arguments):
        return every, every
    slots = {
        each.name: _slots(passed, every)
        for each, passed in zip(function.parameters, given.passed, strict=True)
    }
    others = every - {each.slot for each in given.segments}
    loaded, stored = (
        {slot for name in names for slot in slots.get(name, every)} | others
        for names in (found.loaded, found.stored)
    )
    return loaded, stored


def _touched(compiled: Compiled, function: Function) -> Touched | None:
    """What a kernel may touch; its text is read once."""
    # The table of opcodes takes a while to import.
    from fragmenta.ptx.checking.touching import touched

    kept = _read(compiled)
    if not kept:
        kept.append(touched(function))
    return kept[0]


@once_per_kernel
def _read(compiled: Compiled) -> list[Touched | None]:
    """What was read of the text of a kernel."""
    return []


def _slots(passed: Passed, every: set[int]) -> set[int]:
    """The slots of the memory that a parameter points to."""
    if isinstance(passed, bytes):
        if len(passed) > 8:  # addresses may be anywhere in it
            return every
        return {int.from_bytes(passed, "little") >> layout.SLOT_BITS} & every
    return {layout.FIRST_ARGUMENT + number for number in segments_of(passed)}


def restore(launch: Launch, memory: Images) -> None:
    """Make the memory of a launch what it was."""
    for segment, data in zip(launch.places, memory, strict=True):
        if data is not None:
            untouched.put_back(segment.data, data)
    launch.arguments.write_back()
