"""What an exploration answers: hangs, races, misuse, and an order that shows each.

An order is a tuple of :class:`~fragmenta.watch.orders.program.OrderStep`.  Everything
that a report needs is data here; no sentence is made.
"""

from __future__ import annotations

from collections.abc import Hashable
from enum import Enum
from typing import TypeAlias

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.watch.orders.program import Event, OrderStep, Span

Order: TypeAlias = tuple[OrderStep, ...]


class Coverage(Enum):
    """How much an answer is about."""

    ALL = "all orders"
    PATH = "this path only"
    """All orders of what was recorded; other data may take other branches."""
    INCOMPLETE = "incomplete"


class MisuseKind(Enum):
    """How an object of synchronisation is used as it must not be."""

    NOT_INITIALISED = "the mbarrier is not initialised"
    INITIALISED_TWICE = "the mbarrier is initialised again while it is in use"
    BAD_COUNT = "the count of an mbarrier is 1 to 1048575"
    TOO_MANY_ARRIVALS = "more arrivals than the phase of the mbarrier waits for"
    TOO_MANY_BYTES = "the mbarrier counts at most 1048575 bytes at a time"
    COMPLETED = "an arrival with .noComplete completes the phase"
    OTHER_COUNT = "threads wait at one barrier with different counts"
    ARRIVED_TWICE = "an agent arrives twice before the barrier is complete"
    TOO_MANY_THREADS = "more threads arrive at the barrier than its count"
    WAIT_WITHOUT_ARRIVAL = "barrier.cluster.wait without barrier.cluster.arrive"


# ── hangs ───────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class MbarrierState:
    """An mbarrier at the end of an order."""

    phase: int
    """How many phases are complete; also the number of the current one."""
    pending: int
    expected: int
    tx: int
    """Bytes that are expected and have not arrived."""


@dataclass(frozen=True, slots=True)
class MeetingState:
    """A barrier of a block, a warp or a cluster at the end of an order."""

    arrived: tuple[int, ...]
    """The agents that have arrived in the present phase."""
    threads: int
    """How many threads they are."""
    count: int
    """How many it waits for."""


@dataclass(frozen=True, slots=True)
class WordState:
    """A word at the end of an order."""

    value: int


@dataclass(frozen=True, slots=True)
class WorkState:
    """Units that are waited for and not done at the end of an order."""

    units: tuple[Hashable, ...]


ObjectState: TypeAlias = MbarrierState | MeetingState | WordState | WorkState


@dataclass(frozen=True, slots=True)
class Waiting:
    """An agent or a unit that waits for ever, and what it waits for."""

    agent: int
    unit: Hashable
    event: Event
    state: ObjectState
    history: tuple[tuple[int, int], ...] = ()
    """Of an mbarrier or a barrier: ``(phase, index)`` for each event of the order that
    counted in a phase: arrivals, bytes expected, bytes arrived."""
    completed: tuple[int, ...] = ()
    """The index of the event that completed each phase."""
    seen: tuple[int, ...] = ()
    """The phases of an mbarrier whose end this agent has waited for before."""
    missing: tuple[tuple[int, Event], ...] = ()
    """Events that would have counted, of agents that hang themselves: the agent, and
    the first such event that it has not reached."""


@dataclass(frozen=True, slots=True)
class Hang:
    """An order at the end of which nobody can go on."""

    order: Order
    waiting: tuple[Waiting, ...]


# ── races and misuse ────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Race:
    """Two accesses of one place that nothing orders, at least one of them a write."""

    first: OrderStep
    second: OrderStep
    span: Span
    """Some bytes that both access."""
    order: Order
    """An order that ends with the second access."""
    fence: bool = False
    """Whether only ``fence.proxy.async`` is missing."""


@dataclass(frozen=True, slots=True)
class Misuse:
    """An event that uses an object as it must not be used."""

    kind: MisuseKind
    step: OrderStep
    order: Order
    """An order that ends with the event."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of an exploration."""

    coverage: Coverage
    reasons: tuple[str, ...]
    """Why it is not about all orders."""
    hang: Hang | None
    """The shortest order that hangs; None: none of those explored does."""
    races: tuple[Race, ...]
    misuses: tuple[Misuse, ...]
    orders: int
    """How many orders were run; every other one differs from one of them only in the
    order of events that do not affect each other."""
    states: int
    """How many different states these orders visit."""
    steps: int
    """How many events were carried out."""
    shortest: bool = True
    """Whether no order that hangs is shorter than ``hang``."""

    @property
    def clean(self) -> bool:
        """Whether no hang, race or misuse was found."""
        return not (self.hang or self.races or self.misuses)
