"""The record of a launch: what compiled code and units wrote down, not read yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.tracing.log import EffectRows, StepChunk, Words
from fragmenta.engine.units.findings import Finding, Launched

if TYPE_CHECKING:
    from fragmenta.engine.simt.compiled import Compiled
    from fragmenta.engine.units.events import Event
    from fragmenta.engine.units.tensor_forms import TensorForm
    from fragmenta.engine.units.wgmma_forms import FormRecord

Bytes: TypeAlias = NDArray[np.uint8]
Starts: TypeAlias = NDArray[np.int64]
Where: TypeAlias = tuple[str, int]
"""A memory: ``shared``, ``tensor`` or ``local`` of a block, or ``global`` of a slot."""


class Window(NamedTuple):
    """What of a launch is recorded.

    >>> Window(blocks=(0, 1), most=5000)
    Window(blocks=(0, 1), first=0, most=5000)
    """

    blocks: tuple[int, ...] = ()
    """The blocks, by their number in the grid, with all of their clusters.

    Without any, it is the first cluster, or the first one with a problem.
    """
    first: int = 0
    """The first step that is kept."""
    most: int = 200_000
    """The most steps that are kept.

    If there are more, they are the first ones, or the last ones before a problem.
    """


class State(NamedTuple):
    """What the memories of a cluster hold before a step."""

    step: int
    cluster: int
    warps: dict[int, Bytes]
    """The memory of each warp, with its registers, by its number."""
    memories: dict[Where, Bytes]
    whole: bool
    """Whether the cluster has just begun, so that nothing was written by it."""
    ran: Mapping[tuple[int, int], int] = {}
    """The lanes that have run an instruction before, by warp and site."""


class Moved(NamedTuple):
    """Bytes that a unit read or wrote: pieces of the same size."""

    step: int
    where: Where
    starts: Starts
    size: int
    data: Bytes | None = None
    """The bytes that were written, piece after piece; None if they were read."""


class CopiedBytes(NamedTuple):
    """Bytes that a unit has copied as they are: pieces of the same size."""

    to: Where
    starts: Starts
    of: Where
    sources: Starts
    size: int


@dataclass
class Unit:
    """A piece of asynchronous work."""

    number: int
    kind: str
    """The instruction in the table of effects."""
    done_by: str
    """How it completes."""
    site: int
    """A number of ``Compiled.places``."""
    warp: int
    lanes: int
    issued: int
    done: int = -1
    taken: int = -1
    """When its source was read, if that was before it was done."""
    waited: int = -1
    bytes: int = 0
    signals: tuple[tuple[int, int, int], ...] = ()
    """The mbarriers that it signals: block, offset and phase."""
    group: int = -1
    """Its group, if it is in one."""
    goals: list[Moved] = field(default_factory=list)
    """What it will write, without the bytes."""


class Late(NamedTuple):
    """Registers of a warp that a unit has written."""

    step: int
    site: int
    """A number of ``Compiled.places``."""
    unit: int
    """-1 if not all warps have issued it."""
    warp: int
    words: Words
    """All lanes of each register of its instruction, side by side."""


class Mark(NamedTuple):
    """Something that happened at a barrier."""

    step: int
    kind: str
    """``mbarrier``, ``wait``, ``cluster arrive`` or ``cluster wait``."""
    block: int
    offset: int
    """Of an mbarrier, in the shared memory of the block."""
    phase: int
    pending: int
    bytes: int
    warp: int
    """-1 if it is not known."""
    expected: int = 0
    """The arrivals of a phase."""


class Fault(NamedTuple):
    """An instruction that could not be executed."""

    site: int
    """A number of ``Compiled.places``."""
    warp: int
    lanes: int
    memory: Bytes
    """That of the warp, with its registers."""


class Wait(NamedTuple):
    """Lanes have waited for something."""

    step: int
    warp: int
    done_by: str
    until: int
    """The phase that is over; of groups, the first that they did not wait for."""
    read: bool = False
    """Whether they only waited until the sources of copies were read."""
    block: int = -1
    """The place of the block of an mbarrier, and where that is; -1: it is none."""
    offset: int = -1


class PythonCall(NamedTuple):
    """What a recorder has heard of Python: a call of ``Gathering``."""

    note: int
    """The number of the next note of machine code."""
    name: str
    given: tuple[Any, ...]


class TraceContext(NamedTuple):
    """What is needed to read the notes of a launch."""

    compiled: Compiled
    events: Sequence[Event]
    slots: frozenset[int]
    """Where memory is."""
    products: Mapping[int, FormRecord]
    """The forms of products of warpgroups, by their addresses."""
    tensor_products: Mapping[int, TensorForm]
    """The forms of products of ``tcgen05``, by their addresses."""


class Raw(NamedTuple):
    """What units and barriers did, as it was written down."""

    known: TraceContext
    notes: list[EffectRows]
    heard: list[PythonCall]


@dataclass
class Trace:
    """What was recorded of a launch."""

    window: Window
    blocks: list[int] = field(default_factory=list)
    """The blocks, by their number in the grid."""
    warps: list[tuple[int, int]] = field(default_factory=list)
    """Of each warp that was recorded, the place of its block and its number there."""
    pieces: list[StepChunk] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    moved: list[tuple[int, Moved]] = field(default_factory=list)
    """What units read and wrote, in this order, each with the number of its unit.

    It is -1 for what was written by no unit, such as the bits of an mbarrier.
    """
    copied: list[tuple[int, CopiedBytes]] = field(default_factory=list)
    """What units copied, each with the number of its unit."""
    late: list[Late] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    times: list[tuple[int, int]] = field(default_factory=list)
    """The number of an event in its cluster, and the step at which it was."""
    raw: Raw | None = None
    """From what units, moved, late, marks and times are gathered, until they are."""
    total: int = 0
    """All steps of these blocks, also those that are not kept."""
    fault: Fault | None = None
    """The instruction that could not be executed, if one stopped the launch."""
    cut: bool = False
    """Whether recording ended before these blocks did."""
    stopped: bool = False
    """Whether these blocks did not come to their end."""
    others: bool = False
    """Whether blocks ran that are not recorded."""
    wrong: bool = False
    """Whether a problem was found in these blocks."""
    reordered: Callable[[int], int] = int
    """The number of a step in the record, from the one that it had in the launch."""
    large: list[tuple[str, int]] = field(default_factory=list)
    """Arrays that are too large to be kept, and their bytes."""


class Stepped(NamedTuple):
    """The record of one run of a launch, and what is needed to read it."""

    schedule: str
    target: str
    told: Trace
    of: Launched
    found: list[tuple[Launched, Finding]]
    """The problems of this run."""

    def __repr__(self) -> str:
        """Short: the trace itself is megabytes."""
        return f"Stepped(schedule={self.schedule!r}, target={self.target!r})"
