"""The log of a cluster: what its warps did to what synchronises, one entry each.

The order of entries of different warps is that of the one run, and means nothing.  What
counts is the order of the entries that one lane takes part in.
"""

from __future__ import annotations

from dataclasses import field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.units.work import Range

Place: TypeAlias = tuple[int, int]
"""The rank of a block, and an offset in its shared memory."""


class Arrives(NamedTuple):
    """Lanes arrive at a barrier of the block."""

    mode: str
    """``sync``, ``arrive`` or ``red``."""
    number: int
    threads: int
    """The threads that it is for; 0 for all of the block."""
    missing: int
    """Threads that have ended and count as arrived, because all others of the warp are
    here."""


class Met(NamedTuple):
    """Lanes of a warp go on together; of a warpgroup, if it is a product."""

    warpgroup: bool = False


class Exited(NamedTuple):
    """Lanes ended."""


class Initialised(NamedTuple):
    """An mbarrier was initialised; without arrivals, it was made invalid."""

    mbarrier: Place
    arrivals: int
    """That each phase expects."""


class Counted(NamedTuple):
    """An instruction counted arrivals and bytes at an mbarrier, for all its lanes."""

    mbarrier: Place
    arrivals: int
    expected: int
    """Bytes; less than 0 for ``complete_tx``."""
    drops: bool
    phase: int
    """Of the one run, before it."""
    words: tuple[str, ...]


class Waited(NamedTuple):
    """Lanes waited for a phase of an mbarrier."""

    mbarrier: Place
    phase: int
    """In the one run."""
    parity: bool
    """Whether they named it by its parity, not by a state."""
    words: tuple[str, ...]
    pending: bool = False
    """Whether they still waited when the launch ended."""


class Peeked(NamedTuple):
    """Lanes asked whether a phase is over, and were told that it is not."""

    mbarrier: Place
    phase: int


class Issued(NamedTuple):
    """Work is in flight."""

    work: Flying


@dataclass(eq=False)
class Flying:
    """Work in flight: what it reads, writes and signals."""

    name: str
    site: int
    done_by: str
    """A line of ``COMPLETIONS`` in :mod:`fragmenta.ptx.effects`."""
    proxy: str
    queue: tuple[str, int, int, int] = ("", 0, 0, 0)
    """Whose groups it is in: kind, rank, warp or warpgroup, lane."""
    epoch: int = 0
    """Its place among the groups: a wait for what comes before a later one ends it."""
    signals: list[tuple[Place, int, int]] = field(default_factory=list)
    """The mbarriers that it signals: arrivals and bytes at each."""
    reads: list[Range] = field(default_factory=list)
    writes: list[Range] = field(default_factory=list)
    after: list[Flying] = field(default_factory=list)
    """Work that is done before it."""
    combines: bool = False
    ordinal: int = 0
    """Its place among all work of the cluster."""


class Joined(NamedTuple):
    """Lanes waited for groups of work."""

    queue: tuple[str, int, int, int]
    until: int
    """The first epoch that they did not wait for."""
    read: bool
    """Whether they waited only until the sources were read."""


class ClusterArrived(NamedTuple):
    """Lanes arrived at the barrier of the cluster."""

    words: tuple[str, ...]


class ClusterWaited(NamedTuple):
    """Lanes waited at the barrier of the cluster."""


class Fenced(NamedTuple):
    """A fence."""

    words: tuple[str, ...]


class Until(NamedTuple):
    """What a loop on a word waits for: ``value & mask`` compared with a number."""

    compare: str
    """A word of PTX, such as ``ge``, or ``ge.s`` of signed numbers."""
    value: int
    mask: int


class Looped(NamedTuple):
    """A loop on a word that has to be run to know what it waits for."""

    registers: tuple[int, ...]
    """Where it starts: ``inputs`` of ``PollingLoop`` in ``races.probes.polling``."""


class Flag(NamedTuple):
    """A strong access of one word, by some lanes together."""

    address: int
    """Generic."""
    size: int
    opcode: str
    operation: str
    """Of an atomic; empty for loads and stores."""
    scope: str
    sense: str
    given: tuple[int, ...]
    """What is stored, or the operands of an atomic."""
    found: int
    """What was there before."""
    until: Until | Looped | None = None
    """What a loop on it waits for, if it is one and that is known."""
    pending: bool = False
    """Whether the loop had not ended when the launch did."""
    guessed: bool = False
    """Whether it is not known what the loop waits for: only what ended it."""
    kind: str = "u32"
    """The type."""
    work: Flying | None = None
    """The work in flight that does it, if it is not done at once."""


class Touched(NamedTuple):
    """Plain accesses: an address for each lane."""

    write: bool
    shared: bool
    size: int
    lanes: NDArray[np.int64]
    addresses: NDArray[np.int64]
    values: NDArray[np.int64] | None = None
    """What is stored, if that is one number for each lane."""


Action: TypeAlias = (
    Arrives
    | Met
    | Exited
    | Initialised
    | Counted
    | Waited
    | Peeked
    | Issued
    | Joined
    | ClusterArrived
    | ClusterWaited
    | Fenced
    | Flag
    | Touched
)


class Entry(NamedTuple):
    """What some lanes of a warp did."""

    lanes: int
    site: int
    action: Action


@dataclass(eq=False)
class Log:
    """What the warps of one cluster did."""

    cluster: int
    blocks: list[int]
    """Its blocks in the grid, by rank."""
    warps: int
    """Warps of a block."""
    threads: int
    """Threads of a block."""
    entries: dict[tuple[int, int], list[Entry]] = field(default_factory=dict)
    """By rank and warp."""
    cut: str = ""
    """Why it was not recorded to the end; nothing if it was."""
