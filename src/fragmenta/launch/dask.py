"""Runs the clusters of one grid on the workers of a Dask cluster.

What is spread are portions of the grid: whole clusters, which share nothing but global
memory.  Each worker runs one on a copy of the memory, watched as the launch is.  Then
the portions are merged: :mod:`fragmenta.launch.portions`.  If the launch is watched,
portions that touch what others write are run again here, one after the other, so that
bits and reports are those of one machine.  If it is not watched, reads are not known,
and a byte that two portions wrote is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import empties
from fragmenta.engine.simt.arguments import Received, Segment
from fragmenta.engine.simt.context import Grid
from fragmenta.engine.simt.mode import Mode
from fragmenta.engine.units.schedule import EAGER, Given
from fragmenta.errors import BadCall, KernelFault
from fragmenta.launch.faults import over_limit
from fragmenta.launch.grid import run_blocks
from fragmenta.launch.launch import Launch
from fragmenta.launch.limits import Limits, Meter
from fragmenta.launch.options import RunOptions
from fragmenta.launch.portions import (
    Conflicts,
    Merger,
    Portion,
    collect,
    conflicts,
    order_fault,
    portions,
)
from fragmenta.launch.result import total
from fragmenta.launch.source import PtxSource
from fragmenta.ptx import reading
from fragmenta.ptx.languages import Words
from fragmenta.ptx.module import demangled

if TYPE_CHECKING:
    from fragmenta.values.counters.tally import Taken

_PORTIONS = 4
"""Portions of the grid for each worker."""


class Client(Protocol):
    """What is used of a ``dask.distributed.Client``."""

    def submit(
        self,
        function: Callable[[int, int], Portion],
        first: int,
        last: int,
        *,
        pure: bool,
    ) -> object:
        """Let a worker call a function; the future of what it returns."""

    def gather(self, futures: list[object]) -> list[Portion]:
        """The results of futures."""

    def cancel(self, futures: list[object]) -> None:
        """Give up futures."""

    def nthreads(self) -> dict[str, int]:
        """The threads of each worker."""


class Recipe(TypedDict):
    """What a worker makes the same launch from."""

    text: str
    file: str
    variables: dict[str, bytes]
    shape: Grid
    name: str
    memory: list[_Memory]
    parameters: bytes
    options: RunOptions
    limits: Limits
    watch: bool
    strict: bool
    schedule: Given
    defined: int | None
    goes_on: bool
    counted: bool
    language: Words


class Spread:
    """Runs a launch on the workers of a Dask cluster, once for each schedule."""

    def __init__(
        self,
        source: PtxSource,
        name: str,
        options: RunOptions,
        limits: Limits,
        client: Client,
    ) -> None:
        self.source, self.name, self.client = source, name, client
        self.options, self.limits = options, limits
        self.output = ""
        """What the kernel has printed so far."""
        self._here: set[int] = set()
        """The portions that depend on others."""
        self._counts = np.zeros(0, np.int64)
        """How often each code block was executed."""

    def run(self, launch: Launch, limit: int | None) -> str:
        """Run all blocks; what they printed."""
        _refuse(launch)
        self.output = ""
        pieces = portions(launch.cluster_count, workers(self.client) * _PORTIONS)
        parts = self._run_there(launch, pieces, limit)
        segments = _writable(launch)
        found = conflicts([each.data.size for each in segments], parts)
        self._here |= self._dependent(launch, segments, found)
        self._counts = np.zeros_like(launch.counts)
        merger = Merger(segments)
        try:
            for number, (first, last) in enumerate(pieces):
                if number in self._here:
                    self._run_here(launch, limit, first, last)
                else:
                    self._take(launch, parts[number], merger)
                launch.progress((number + 1) / len(pieces))
        finally:
            launch.counts = self._counts
            launch.arguments.write_back()
            machine = launch.machine
            if machine is not None and machine.watching is not None:
                machine.watching.collect(machine.problems)
        if limit is not None and total(launch.compiled, self._counts) > limit:
            raise KernelFault(over_limit(limit), "limit")
        return self.output

    def _dependent(
        self, launch: Launch, segments: list[Segment], found: Conflicts
    ) -> set[int]:
        """The portions to run here; without an observer, they are refused."""
        mode = Mode.of(launch.compiled.mode)
        if found.first is not None and not (mode.watch or mode.defined):
            raise order_fault(segments[found.first.segment], found.first)
        return found.members

    def _run_there(
        self, launch: Launch, pieces: list[tuple[int, int]], limit: int | None
    ) -> dict[int, Portion]:
        """Let workers run all portions but those that depend on others."""
        recipe = self._recipe(launch)

        # A function without a name of its own is sent as it is.
        def work(first: int, last: int) -> Portion:
            from fragmenta.launch.dask import run_portion

            return run_portion(recipe, first, last, limit)

        chosen = {i: each for i, each in enumerate(pieces) if i not in self._here}
        submit = self.client.submit
        futures = [submit(work, *each, pure=False) for each in chosen.values()]
        try:
            return dict(zip(chosen, self.client.gather(futures), strict=True))
        except BaseException:
            self.client.cancel(futures)
            raise

    def _take(self, launch: Launch, part: Portion, merger: Merger) -> None:
        """Add what came of a portion to the launch."""
        merger.add(part)
        self._counts += part.counts
        if launch.tally is not None:
            launch.tally.add(cast("Taken", part.counted))
        self.output += part.output
        if launch.machine is not None:
            for each in part.problems:
                launch.machine.problems.put(each)
            if launch.machine.watching is not None:
                launch.machine.watching.take(part.told)
        if part.fault is not None:
            raise part.fault

    def _run_here(
        self, launch: Launch, limit: int | None, first: int, last: int
    ) -> None:
        """Run a portion on the memory of the launch."""
        before = len(launch.host.text)
        try:
            with launch.interrupts:
                run_blocks(launch, limit, first, last)
        finally:
            self.output += launch.host.text[before:]
            self._counts += launch.counts

    def _recipe(self, launch: Launch) -> Recipe:
        machine, mode = launch.machine, Mode.of(launch.compiled.mode)
        watching = None if machine is None else machine.watching
        kept = self.source.variables_of(launch.compiled).segments
        return {
            "text": self.source.module.text,
            "file": self.source.module.name,
            "variables": {each.name: each.data.tobytes() for each in kept},
            "shape": launch.shape,
            "name": self.name,
            "memory": _memory(launch),
            "parameters": launch.parameters.tobytes(),
            "options": self.options,
            "limits": self.limits,
            "watch": mode.watch,
            "strict": machine is not None and machine.strict,
            "schedule": EAGER if machine is None else machine.schedule.spelled,
            "defined": getattr(watching, "seed", None),
            "goes_on": launch.goes_on,
            "counted": launch.tally is not None,
            "language": launch.language,
        }


def _refuse(launch: Launch) -> None:
    """Refuse what cannot be spread."""
    named = demangled(launch.compiled.kernel)
    if launch.recording.plan.chooser is not None:
        raise BadCall("who decides every turn is asked here; launch without client=")
    if launch.compiled.ordered:
        raise BadCall(
            f"the blocks of {named} may influence one another, by atomics with "
            "results, atomics of floats, or volatile or ordered accesses: their order "
            "matters; launch without client="
        )


def _writable(launch: Launch) -> list[Segment]:
    return [each for each in launch.places if each.writable]


def workers(client: Client) -> int:
    """How many threads a cluster has."""
    try:
        return max(1, sum(map(int, client.nthreads().values())))
    except AttributeError as error:
        raise BadCall(
            f"client is a dask.distributed.Client; given {type(client).__name__}"
        ) from error


# ── on a worker ─────────────────────────────────────────────────────────────


def run_portion(recipe: Recipe, first: int, last: int, limit: int | None) -> Portion:
    """Run some clusters of a launch on copies of its memory; for a worker."""
    launch = _again(recipe)
    writable = _writable(launch)
    notes = [np.zeros(each.data.size, np.uint8) for each in writable]
    for segment, note in zip(writable, notes, strict=True):
        launch.segments[segment.slot, 2:] = 2, note.ctypes.data
        if launch.machine is not None:
            launch.machine.notes[segment.slot] = note
    fault = None
    try:
        run_blocks(launch, limit, first, last)
    except KernelFault as why:
        fault = why.with_traceback(None)
    reads, compared = _reads(launch, writable)
    machine = launch.machine
    watching = None if machine is None else machine.watching
    made = Portion(
        collect(writable, notes),
        reads,
        compared,
        launch.counts,
        launch.host.text,
        [] if machine is None else list(machine.problems),
        None if watching is None else watching.told(),
        fault,
        None if launch.tally is None else launch.tally.taken(),
    )
    launch.close()
    return made


def _reads(
    launch: Launch, segments: list[Segment]
) -> tuple[list[NDArray[np.uint8]], bool]:
    """Which bytes of each segment were read, and :attr:`Portion.compared`."""
    if not Mode.of(launch.compiled.mode).watch:
        return [], False
    from fragmenta.watch.races.launch_watch import LaunchWatch

    assert launch.machine is not None
    watching = launch.machine.watching
    assert isinstance(watching, LaunchWatch)
    memory = watching.memory
    reads = [np.packbits(memory.reads(each.slot)) for each in segments]
    return reads, memory.updated or memory.scoped


class _Memory(NamedTuple):
    """A segment of global memory that is sent to workers."""

    segment: Segment
    unwritten: bool
    """Whether bytes of it count as unwritten."""

    def copy(self) -> Segment:
        """The segment, with bytes of its own."""
        given = self.segment.data
        if self.unwritten:
            data = empties.empty(given.size, np.uint8)
            data[:] = given
        else:
            data = given.copy()
        return replace(self.segment, data=data)


def _memory(launch: Launch) -> list[_Memory]:
    """The arrays of a launch; unwritten bytes are as they were given."""
    watching = None if launch.machine is None else launch.machine.watching
    given: dict[int, NDArray[np.uint8]] = getattr(watching, "given", {})
    return [
        _Memory(replace(each, data=given[each.slot]), True)
        if each.slot in given
        else _Memory(each, empties.marks(each.data) is not None)
        for each in launch.arguments.segments
    ]


def _again(recipe: Recipe) -> Launch:
    """The same launch, on copies of its arrays."""
    source = PtxSource(reading.parse(recipe["text"], recipe["file"]))
    launch = source.launch(
        recipe["name"],
        recipe["shape"],
        Received([each.copy() for each in recipe["memory"]], recipe["parameters"]),
        meter=Meter(recipe["limits"]),
        watch=recipe["watch"],
        strict=recipe["strict"],
        schedule=recipe["schedule"],
        defined=recipe["defined"],
        goes_on=recipe["goes_on"],
        counted=recipe["counted"],
        language=recipe["language"],
        **recipe["options"],
    )
    variables = recipe["variables"]
    for each in launch.places:
        if each.name in variables:
            each.data[:] = np.frombuffer(variables[each.name], np.uint8)
    return launch
