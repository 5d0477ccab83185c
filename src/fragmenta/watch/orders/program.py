"""The vocabulary of a launch without its arithmetic: who synchronises with whom.

A :class:`Program` has agents: warps, or groups of lanes of a warp.  Each agent runs
:class:`Events`: a list of events, one after the other.  Copies and products are units:
:class:`Issue` starts one, and it runs its own events beside the agents.

The value that the last of ``Events`` observes chooses what follows.  So an agent's
events are a tree: ``Events.after`` has one continuation for each value that is known.
Events that are not the last may observe values, too; those values decide nothing.

Plain accesses of memory are events that order nothing.  They are there so that races
are found in every order.

>>> full = Mbarrier(0, 0x400)
>>> tile = Span("shared:0", 0, 1024)
>>> copy = Unit("copy", "cp.async.bulk", (
...     Access(writes=(tile,), proxy=Proxy.ASYNC), CompleteTx(full, 1024)))
>>> producer = Events([MbarrierInit(full, 1), Sync(Barrier(0, 0), 32),
...     MbarrierArrive(full, expect=1024), Issue(copy), Exit(32)])
>>> consumer = Events([Sync(Barrier(0, 0), 32),
...     MbarrierWait(full, parity=0), Access(reads=(tile,)), Exit(32)])
>>> program = Program([Agent("warp 0", 0, 32, producer),
...     Agent("warp 1", 0, 32, consumer)])
>>> [len(each.steps.events) for each in program.agents]
[5, 4]
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import field
from enum import Enum
from typing import NamedTuple, TypeAlias

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.ptx.ordering import Scope

# ── what is synchronised on ─────────────────────────────────────────────────


class Order(Enum):
    """Which accesses of the same thread an operation is ordered with."""

    RELAXED = "relaxed"
    RELEASE = "release"
    ACQUIRE = "acquire"
    ACQ_REL = "acq_rel"

    @property
    def releases(self) -> bool:
        """Whether earlier accesses of the thread are handed over."""
        return self in (Order.RELEASE, Order.ACQ_REL)

    @property
    def acquires(self) -> bool:
        """Whether later accesses of the thread are ordered after what is read."""
        return self in (Order.ACQUIRE, Order.ACQ_REL)


class Proxy(Enum):
    """Through which proxy memory is accessed."""

    GENERIC = "generic"
    ASYNC = "async"
    CP_ASYNC = "cp.async"
    """The generic proxy.  Shipped kernels read such data through the async proxy
    without a fence, so its writes need none (see ``ptx/effects.py``)."""


@dataclass(frozen=True, slots=True)
class Barrier:
    """A named barrier of a block: ``bar.sync number``."""

    block: int
    number: int


@dataclass(frozen=True, slots=True)
class WarpBarrier:
    """Where lanes of a warp meet: ``bar.warp.sync mask``, or four warps at ``wgmma``.

    ``name`` distinguishes meeting places of one warp with the same mask, if needed.
    """

    block: int
    warp: int
    mask: int = 0xFFFFFFFF
    name: str = ""


@dataclass(frozen=True, slots=True)
class ClusterBarrier:
    """The barrier of a cluster: ``barrier.cluster``."""

    cluster: int


@dataclass(frozen=True, slots=True)
class Mbarrier:
    """An mbarrier, by the block that it is in and its address."""

    block: int
    address: int


@dataclass(frozen=True, slots=True)
class Word:
    """A word of memory through which threads synchronise, such as a flag or a lock."""

    space: str
    """As in :class:`Span`."""
    address: int
    size: int = 4


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes ``start`` to ``stop - 1`` of a memory."""

    space: str
    """Which memory: ``global``, ``shared:3`` (of block 3), ``tensor:3``, any name."""
    start: int
    stop: int


Meeting: TypeAlias = Barrier | WarpBarrier
Place: TypeAlias = Hashable
"""Where an event is in the program's text.  Explorers hand it on unread."""


# ── barriers ────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Sync:
    """``bar.sync``, ``bar.red``, ``bar.warp.sync``: arrive, and wait for the others."""

    barrier: Meeting
    threads: int
    """How many threads arrive with this event."""
    count: int | None = None
    """How many threads meet; None: all threads of the block that have not exited."""
    place: Place = None


@dataclass(frozen=True, slots=True)
class Arrive:
    """``bar.arrive``: arrive at a barrier, and go on."""

    barrier: Meeting
    threads: int
    count: int | None = None
    place: Place = None


@dataclass(frozen=True, slots=True)
class ClusterArrive:
    """``barrier.cluster.arrive``: all threads of the cluster that have not exited."""

    barrier: ClusterBarrier
    threads: int
    order: Order = Order.RELEASE
    place: Place = None


@dataclass(frozen=True, slots=True)
class ClusterWait:
    """``barrier.cluster.wait``: wait for the phase at which this agent arrived."""

    barrier: ClusterBarrier
    order: Order = Order.ACQUIRE
    place: Place = None


# ── mbarriers ───────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class MbarrierInit:
    """``mbarrier.init``: phase 0, with a count of arrivals for each phase."""

    mbarrier: Mbarrier
    count: int
    place: Place = None


@dataclass(frozen=True, slots=True)
class MbarrierInval:
    """``mbarrier.inval``."""

    mbarrier: Mbarrier
    place: Place = None


@dataclass(frozen=True, slots=True)
class MbarrierArrive:
    """``mbarrier.arrive``, also ``.expect_tx``, ``_drop``, ``.noComplete``, remote."""

    mbarrier: Mbarrier
    count: int = 1
    expect: int = 0
    """Bytes that are expected first: ``mbarrier.arrive.expect_tx``."""
    drop: bool = False
    no_complete: bool = False
    token: Hashable = None
    """A name for the returned state, if a wait of this agent uses it."""
    order: Order = Order.RELEASE
    scope: Scope = Scope.CTA
    place: Place = None


@dataclass(frozen=True, slots=True)
class MbarrierRaise:
    """``cp.async.mbarrier.arrive`` without ``.noinc`` first raises what is pending."""

    mbarrier: Mbarrier
    count: int = 1
    place: Place = None


@dataclass(frozen=True, slots=True)
class ExpectTx:
    """``mbarrier.expect_tx``: the phase also waits for so many bytes."""

    mbarrier: Mbarrier
    bytes: int
    place: Place = None


@dataclass(frozen=True, slots=True)
class CompleteTx:
    """``complete_tx`` on an mbarrier: so many bytes have arrived.

    A copy's completion releases what the copy has done; ``mbarrier.complete_tx`` of a
    thread is relaxed.
    """

    mbarrier: Mbarrier
    bytes: int
    order: Order = Order.RELEASE
    scope: Scope = Scope.CLUSTER
    place: Place = None


@dataclass(frozen=True, slots=True)
class MbarrierWait:
    """A loop on ``mbarrier.try_wait`` or ``test_wait`` that ends when it is true.

    With ``parity``, it is true while the current phase has the other parity.  With
    ``token``, the parity is that of the phase in which the arrival took place.
    """

    mbarrier: Mbarrier
    parity: int = 0
    token: Hashable = None
    order: Order = Order.ACQUIRE
    scope: Scope = Scope.CTA
    place: Place = None
    along: WarpBarrier | None = None
    """As of :class:`Await`."""


@dataclass(frozen=True, slots=True)
class MbarrierTest:
    """One ``mbarrier.test_wait`` or ``try_wait``; it observes 0 or 1."""

    mbarrier: Mbarrier
    parity: int = 0
    token: Hashable = None
    order: Order = Order.ACQUIRE
    scope: Scope = Scope.CTA
    place: Place = None


# ── asynchronous work ───────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Unit:
    """A copy, a product or a commit: events that run beside the agents.

    A unit begins when it is issued and knows what its issuer knew.  Its events happen
    at any time after that, one after the other; two units are in no order.
    :class:`ReadDone` among them marks that sources have been read.
    """

    name: Hashable
    """Unique in the whole program, on each path."""
    kind: str
    """The instruction, for the story: ``cp.async``, ``wgmma.mma_async``."""
    events: tuple[UnitEvent, ...] = ()
    after: tuple[Hashable, ...] = ()
    """Names of units of the same agent that are done before this one begins: the
    products before a ``tcgen05.commit``, the copies before a
    ``cp.async.mbarrier.arrive``."""
    group: Hashable = None
    """Which :class:`Commit` puts it into a group; None: none does."""


@dataclass(frozen=True, slots=True)
class Issue:
    """Start a unit."""

    unit: Unit
    place: Place = None


@dataclass(frozen=True, slots=True)
class ReadDone:
    """Inside a unit: what it reads has been read.  ``wait_group.read`` waits for it."""

    place: Place = None


@dataclass(frozen=True, slots=True)
class Commit:
    """``commit_group``: units issued since the last one with this name form a group.

    Groups belong to the name, such as ``("bulk", "warp 0")``; only agents that use the
    same name see them.
    """

    group: Hashable
    place: Place = None


@dataclass(frozen=True, slots=True)
class GroupWait:
    """``wait_group n``: all groups but the ``pending`` latest are complete."""

    group: Hashable
    pending: int = 0
    read: bool = False
    """``wait_group.read``: their sources have been read."""
    place: Place = None


@dataclass(frozen=True, slots=True)
class UnitWait:
    """Wait for units of this agent: ``tcgen05.wait::ld``, ``cp.async.wait_all``."""

    units: tuple[Hashable, ...]
    place: Place = None


# ── words, fences, memory ───────────────────────────────────────────────────


class Passed(NamedTuple):
    """What a loop on a word does while the word holds a value."""

    ends: bool
    value: int
    """What the word then holds, if the loop writes it."""
    known: bool = True
    """Whether that is known; if it is not, the loop counts as one that goes on."""


@dataclass(frozen=True, slots=True)
class Condition:
    """What a loop waits for: ``value & mask`` compared with a number.

    >>> Condition("ge", 4).holds(5), Condition("eq", 1, mask=1).holds(3)
    (True, True)
    >>> Condition("lt", 0, signed=32).holds(0xFFFFFFFF)
    True
    """

    compare: str
    """``eq``, ``ne``, ``lt``, ``le``, ``gt``, ``ge``."""
    value: int
    mask: int = -1
    signed: int = 0
    """The bits of signed numbers; 0: they are unsigned."""
    guessed: bool = False
    """Whether it is the value of one run, and others may end the loop, too."""

    @property
    def keeps(self) -> tuple[Hashable, ...]:
        """It depends on nothing that was found before."""
        return ()

    def holds(self, value: int) -> bool:
        """Whether a value fulfils it."""
        sign = 1 << self.signed >> 1  # a sign makes a number less, not more
        return COMPARE[self.compare](value & self.mask ^ sign, self.value ^ sign)

    def passed(self, value: int, kept: tuple[int, ...] = ()) -> Passed:
        """What the loop does while the word holds a value."""
        ends = self.holds(value)
        return Passed(ends, value, ends or not self.guessed)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop whose instructions are run to know for which values it ends."""

    name: Hashable
    """The same for loops that do the same."""
    run: Callable[[int, tuple[int, ...]], Passed] = field(compare=False, repr=False)
    """What it does, for a value of the word, and for values that were kept."""
    keeps: tuple[Hashable, ...] = ()
    """The names of values that the agent found before, on which it depends."""

    def passed(self, value: int, kept: tuple[int, ...] = ()) -> Passed:
        """What the loop does while the word holds a value."""
        return self.run(value, kept)


COMPARE: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@dataclass(frozen=True, slots=True)
class Load:
    """A strong load of a word; it observes the value."""

    word: Word
    order: Order = Order.RELAXED
    scope: Scope = Scope.GPU
    place: Place = None
    kept: Hashable = None
    """The name under which the agent keeps the value, for a :class:`Loop`."""


@dataclass(frozen=True, slots=True)
class Store:
    """A strong store to a word."""

    word: Word
    value: int
    order: Order = Order.RELAXED
    scope: Scope = Scope.GPU
    place: Place = None


@dataclass(frozen=True, slots=True)
class Atomic:
    """``atom`` or ``red``: read, compute, write; it observes the old value.

    ``red`` returns nothing: set ``returns`` to False, then it observes nothing.
    """

    word: Word
    operation: str
    """``add``, ``exch``, ``cas``, ``min``, ``max``, ``and``, ``or``, ``xor``, ``inc``,
    ``dec``, or ``take``: one less, but not below 0.  On floats and signed numbers it
    may have a type: ``add.f32``."""
    operand: int = 0
    compare: int = 0
    """What ``cas`` compares with."""
    returns: bool = True
    result: Word | None = None
    """A word that then holds the old value, such as the response of
    ``clusterlaunchcontrol.try_cancel``, which ``take``\\ s from the clusters left."""
    order: Order = Order.RELAXED
    scope: Scope = Scope.GPU
    place: Place = None
    times: int = 1
    """How often it is done at once: by so many lanes."""
    kept: Hashable = None
    """As in :class:`Load`."""


@dataclass(frozen=True, slots=True)
class Await:
    """A loop on a load, or on an atomic operation, that ends with a value."""

    word: Word
    condition: Condition | Loop
    update: Atomic | None = None
    """The atomic operation of the loop; None: a load.  It writes only in the pass that
    ends the loop, as ``atom.cas`` on a lock does.  What a :class:`Loop` writes, it says
    itself."""
    order: Order = Order.RELAXED
    scope: Scope = Scope.GPU
    place: Place = None
    along: WarpBarrier | None = None
    """Where other agents of the warp are, for whom this one waits, too: their fences
    before and after it count as its own do.  All meet there before and after it, and
    the others do nothing in between."""
    kept: Hashable = None
    """As in :class:`Load`."""


@dataclass(frozen=True, slots=True)
class Fence:
    """``fence.acq_rel``, ``fence.sc``, ``membar``."""

    scope: Scope = Scope.GPU
    order: Order = Order.ACQ_REL
    place: Place = None


@dataclass(frozen=True, slots=True)
class ProxyFence:
    """``fence.proxy.async``: what is known so far is known to the async proxy, too."""

    place: Place = None


@dataclass(frozen=True, slots=True)
class Access:
    """Accesses of memory between two synchronising events, which order nothing."""

    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    proxy: Proxy = Proxy.GENERIC
    scope: Scope | None = None
    """The scope of strong accesses; None: weak ones.  Two strong ones do not race if
    each is in the scope of the other."""
    place: Place = None


@dataclass(frozen=True, slots=True)
class Choose:
    """Something outside decides: each of the values is possible, and observed."""

    values: tuple[int, ...]
    place: Place = None


@dataclass(frozen=True, slots=True)
class Exit:
    """The agent's threads end.  Barriers of all threads no longer wait for them."""

    threads: int
    place: Place = None


UnitEvent: TypeAlias = (
    Access
    | ReadDone
    | CompleteTx
    | MbarrierArrive
    | ExpectTx
    | Store
    | Atomic
    | ProxyFence
)
Event: TypeAlias = (
    UnitEvent
    | Sync
    | Arrive
    | ClusterArrive
    | ClusterWait
    | MbarrierInit
    | MbarrierInval
    | MbarrierRaise
    | MbarrierWait
    | MbarrierTest
    | Issue
    | Commit
    | GroupWait
    | UnitWait
    | Load
    | Await
    | Fence
    | Choose
    | Exit
)

OBSERVING = (MbarrierTest, Load, Atomic, Await, Choose)
"""Events that observe a value, on which the next events may depend."""


# ── programs ────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Events:
    """What an agent does, up to an event whose value decides how it goes on.

    The last event is an :class:`Exit`, or one that observes.  In the second case
    ``after`` has the continuation for each value that is known.  Steps that end
    otherwise are cut off, and so is the verdict; ``cut`` says why.
    """

    events: list[Event] = field(default_factory=list)
    after: dict[int, Events] = field(default_factory=dict)
    cut: str = ""
    ends: bool = False
    """Whether nobody goes on in an order that is cut off here: it is not looked at."""


@dataclass(slots=True)
class Agent:
    """A warp, or a group of its lanes."""

    name: str
    block: int
    threads: int
    steps: Events
    cluster: int = 0


@dataclass(slots=True)
class Program:
    """The synchronisation of a launch.  All threads of each block are in an agent."""

    agents: list[Agent]
    words: dict[Word, int] = field(default_factory=dict)
    """What words hold at the start; 0 if they are not listed."""
    limits: list[str] = field(default_factory=list)
    """Why the verdict is about this path only, if it is: branches on data, …"""


@dataclass(frozen=True, slots=True)
class OrderStep:
    """One step of an order: an agent or a unit, and what it did.

    ``agent`` is the number of the agent; for a unit, of the agent that issued it.
    """

    agent: int
    event: Event
    unit: Hashable = None
    """The unit's name; None: the agent itself."""
    observed: int | None = None


Extend: TypeAlias = Callable[
    [int, tuple[int, ...], tuple[OrderStep, ...]], Events | None
]
"""Asked for events that are not known yet: ``extend(agent, observed, order)``.

``observed`` are the values at the branches of this agent so far; the last one has no
continuation yet.  ``order`` is an order of all agents that leads there.  The answer is
what the agent does next, or None if that cannot be told.
"""
