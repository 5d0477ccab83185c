"""Schedules: when asynchronous work is done, and which warp is next.

*Work* is done ``eager``: when it is issued; ``lazy``: not before lanes wait for it.  A
number is the seed of a random order: each piece of work is done some time between the
two.  ``held`` work is done when a turn says so, or when nothing else can go on.

*Warps* take turns.  ``round-robin``, the default, is fast: a turn ends at a wait, or
after many jumps back.  In all other orders, it ends at every synchronising event
(``simt.synchronisation``), and a policy says which warp is next:

- ``in-steps``: the one after the last, in a circle;
- ``oldest-waits``, ``youngest-waits``: the warp with the lowest (the highest) number
  runs only while no other one can go on, then the next;
- ``producer-waits``: the same of the warps that have issued a copy so far;
- ``consumer-waits``: the same of those that have waited for copies and issued none;
- ``random-7``: any that can go on, by this seed.

``mbarrier.try_wait`` may give up before its phase is over.  It does so once for each
phase and warp in random orders and in those that let warps wait.  Otherwise it waits
until the phase is over, or nothing else can happen.

A schedule is spelled as one of these words, or as both with a plus between them:
``lazy+oldest-waits``, ``3+random-7``.

A caller can decide every turn.  A *turn* is one of these:

- ``(rank, warp)``: this warp of this block of the cluster runs up to its next event,
  or until it has to wait, or its budget is spent;
- ``("work", n)``: the n-th piece of work that the cluster put in flight is done;
- ``"relax"``: nobody could go on, and work was done as its schedule says;
- ``"impatient"``: there was none; waits with a time limit give up;
- ``"away"``: all that could go on polled memory, and other clusters had their turn;
- ``"look"``: all warps were asked once more;
- ``"deadlock"``: nothing helped, and the launch ended.

A recorded schedule is a dictionary that JSON can hold: ``work`` and ``warps`` as above,
``hasty``, whether waits give up, and ``turns``, a list of turns for each cluster by its
number.  Turns are taken first; then the policy goes on.  So a prefix of turns followed
by ``in-steps`` runs a kernel along that prefix, and all turns of a launch repeat it
exactly.  A :class:`Chooser` is asked for each turn.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    Protocol,
    TypeAlias,
    runtime_checkable,
)

from fragmenta.base.arrays.checks import is_among, is_whole
from fragmenta.engine.simt.layout import Policy
from fragmenta.errors import BadCall, nearest, one_of

if TYPE_CHECKING:
    from fragmenta.engine.units.work import Work

EAGER, LAZY, HELD = "eager", "lazy", "held"
ROUND_ROBIN = "round-robin"
POLICIES = {
    "in-steps": Policy.IN_STEPS,
    "oldest-waits": Policy.OLDEST_WAITS,
    "youngest-waits": Policy.YOUNGEST_WAITS,
    "producer-waits": Policy.PRODUCER_WAITS,
    "consumer-waits": Policy.CONSUMER_WAITS,
}
ADVERSARIAL = tuple(f"lazy+{each}" for each in POLICIES)
"""Schedules that keep some warps waiting; ``"adversarial"`` is short for all."""
RELAX, IMPATIENT, AWAY, LOOK = "relax", "impatient", "away", "look"
DEADLOCK = "deadlock"
MARKS = (RELAX, IMPATIENT, AWAY, LOOK, DEADLOCK)
"""Turns that no warp has."""
WORK = "work"
_RANDOM = "random-"

Turn: TypeAlias = "tuple[int, int] | tuple[str, int] | str"
Given: TypeAlias = "str | int | Mapping[str, Any] | Chooser"
"""What a launch takes as a schedule."""


class Taken(NamedTuple):
    """A turn that a warp had."""

    rank: int
    warp: int
    ended: str
    """Why it ended: ``event``, ``waits``, ``spent`` or ``ended``."""
    function: str = ""
    instruction: int = -1
    """The event: its function, and the number of the instruction there."""


class Standing(NamedTuple):
    """How a cluster stands before a turn."""

    cluster: int
    can_go_on: tuple[tuple[int, int], ...]
    """The warps that may go on, as (rank, warp)."""
    waiting: tuple[tuple[int, int], ...]
    """Those that had to wait, and nothing has let them go on since."""
    in_flight: tuple[int, ...]
    """The work in flight, by its number in the cluster, the oldest first."""
    last: Taken | None
    """The turn before, if a warp had it."""


@runtime_checkable
class Chooser(Protocol):
    """Decides every turn of a launch."""

    work: str | int
    """When asynchronous work is done: mostly ``held``."""

    def choose(self, standing: Standing) -> tuple[int, int] | tuple[str, int] | None:
        """The next turn: a warp, or work; None: ``in-steps`` from now on."""


class ParsedSchedule(NamedTuple):
    """A schedule as it was read."""

    work: str | int = EAGER
    warps: str = ROUND_ROBIN
    turns: Mapping[int, Sequence[Turn]] = {}
    chooser: Chooser | None = None
    gave_up: bool | None = None
    """Whether waits gave up in the launch that was recorded, if one was."""

    @property
    def stepped(self) -> bool:
        """Whether turns end at every synchronising event."""
        return self.warps != ROUND_ROBIN or bool(self.turns) or self.chooser is not None

    @property
    def policy(self) -> Policy:
        """Which warp is next."""
        if self.warps.startswith(_RANDOM):
            return Policy.RANDOM
        return POLICIES.get(self.warps, Policy.IN_STEPS)

    @property
    def hasty(self) -> bool:
        """Whether the first ``mbarrier.try_wait`` for a phase gives up at once.

        >>> [read(each).hasty for each in ("lazy", 7, "lazy+oldest-waits", "in-steps")]
        [False, True, True, False]
        """
        if self.gave_up is not None:
            return self.gave_up
        by_chance = self.work not in (EAGER, LAZY, HELD)
        return by_chance or self.warps not in (ROUND_ROBIN, "in-steps")

    @property
    def name(self) -> str | int:
        """How it is spelled, without its turns."""
        if self.chooser is not None or self.turns:
            return f"{self.work}+turns"
        if self.warps == ROUND_ROBIN:
            return self.work
        return f"{self.work}+{self.warps}"


def read(given: object) -> ParsedSchedule:
    """Read a schedule.

    >>> read("lazy+oldest-waits").work, read("random-7").policy.name, read(3).stepped
    ('lazy', 'RANDOM', False)
    >>> read("lasy")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: a schedule is 'eager', 'lazy', or the seed of a random \
order, a whole number, and with a plus an order of warps, such as \
'lazy+oldest-waits'; given 'lasy' (did you mean lazy?)
    """
    if is_whole(given) and not isinstance(given, bool):
        return ParsedSchedule(given)  # type: ignore[arg-type]
    if isinstance(given, str):
        return _spelled(given)
    if isinstance(given, Mapping):
        return _recorded(given)
    if isinstance(given, Chooser):
        return ParsedSchedule(_work(given.work), "in-steps", {}, given)
    raise _unknown(given)


def _spelled(given: str) -> ParsedSchedule:
    work, plus, warps = given.partition("+")
    if plus:
        seed = work.isdecimal() and len(work) < 20
        return ParsedSchedule(
            _work(int(work) if seed else work, given), _warps(warps, given)
        )
    if is_among(given, (EAGER, LAZY)):
        return ParsedSchedule(given)
    if given in (*POLICIES, ROUND_ROBIN) or given.startswith(_RANDOM):
        return ParsedSchedule(EAGER, _warps(given, given))
    raise _unknown(given)


def _work(work: object, given: object = None) -> str | int:
    if is_whole(work) and not isinstance(work, bool):
        return int(work)  # type: ignore[call-overload, no-any-return]
    if not is_among(work, (EAGER, LAZY, HELD)):
        raise _unknown(work if given is None else given)
    return str(work)


def _warps(warps: object, given: object) -> str:
    if isinstance(warps, str):
        if warps in POLICIES or warps == ROUND_ROBIN:
            return warps
        seed = warps.removeprefix(_RANDOM)
        if warps.startswith(_RANDOM) and seed.isdecimal() and len(seed) < 20:
            return warps
    raise _unknown(given)


def _unknown(given: object) -> BadCall:
    hint = ""
    if isinstance(given, str):
        orders = (*POLICIES, f"{_RANDOM}1", ROUND_ROBIN)
        both = [f"{work}+{each}" for work in (EAGER, LAZY, 1) for each in orders]
        hint = nearest(given, [EAGER, LAZY, "adversarial", *orders, *both])
    return BadCall(
        "a schedule is 'eager', 'lazy', or the seed of a random order, a whole number, "
        "and with a plus an order of warps, such as 'lazy+oldest-waits'; given "
        f"{given!r}{hint}"
    )


# ── recorded turns ──────────────────────────────────────────────────────────


def _recorded(given: Mapping[object, Any]) -> ParsedSchedule:
    """Read a schedule that was recorded."""
    known = ("work", "warps", "turns", "hasty")
    for each in given:
        if each not in known:
            hint = nearest(str(each), known)
            raise BadCall(
                f"a recorded schedule has {one_of(known, 'and')}; given {each!r}{hint}"
            )
    turns = given.get("turns", {})
    if not isinstance(turns, Mapping):
        raise BadCall(
            f"turns are lists by the number of the cluster; given {turns!r:.60}"
        )
    made = {_number(key): _turns(some) for key, some in turns.items()}
    warps = _warps(given.get("warps", ROUND_ROBIN), given.get("warps"))
    hasty = given.get("hasty")
    if not (hasty is None or isinstance(hasty, bool)):
        raise BadCall(f"hasty is True or False; given {hasty!r:.60}")
    return ParsedSchedule(_work(given.get("work", EAGER)), warps, made, None, hasty)


def _number(key: object) -> int:
    if isinstance(key, str) and key.isdecimal():
        return int(key)
    if is_whole(key):
        return int(key)  # type: ignore[call-overload, no-any-return]
    raise BadCall(f"turns are lists by the number of the cluster; given {key!r}")


def _turns(given: object) -> list[Turn]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise BadCall(f"the turns of a cluster are a list; given {given!r:.60}")
    return [_turn(each) for each in given]


def _turn(given: object) -> Turn:
    """One turn, as JSON has it."""
    if is_among(given, MARKS):
        return str(given)
    if isinstance(given, Sequence) and len(given) == 2 and not isinstance(given, str):
        first, second = given
        if is_whole(second) and (first == WORK or is_whole(first)):
            return (first if first == WORK else int(first), int(second))
    raise BadCall(
        f"a turn is (rank, warp), ('work', number), {one_of(map(repr, MARKS))}; given "
        f"{given!r:.60}{nearest(given, MARKS) if isinstance(given, str) else ''}"
    )


# ── while a launch runs ─────────────────────────────────────────────────────


class _Held:
    """Work that is not done by chance."""

    def random(self) -> float:
        """No piece of work is done because of this."""
        return 1.0

    def choice(self, left: list[Work]) -> Work:
        """The oldest is done if nobody can go on."""
        return left[0]


class Schedule:
    """When pieces of work are done, and the plan of the order of warps.

    >>> Schedule("lazy").eager, Schedule(3).random is None
    (False, False)
    """

    def __init__(self, given: Given) -> None:
        self.plan, self.spelled = read(given), given
        self.given = self.plan.name
        """Its name."""
        self.work = self.plan.work
        self.eager = self.work == EAGER
        self.random: random.Random | _Held | None = None
        if self.work == HELD:
            self.random = _Held()
        elif self.work not in (EAGER, LAZY):
            self.random = random.Random(int(self.work))

    def fork(self, number: int) -> Schedule:
        """The schedule of one cluster: random orders differ from cluster to cluster."""
        made = Schedule.__new__(Schedule)
        vars(made).update(vars(self))
        if isinstance(self.random, random.Random):
            made.random = random.Random(f"{self.work} {number}")
        return made

    def some(self, pending: Collection[Work]) -> list[Work]:
        """Random pieces of work, to be done now."""
        if self.random is None or not pending:
            return []
        return [each for each in pending if self.random.random() < 0.2]
