"""Instruments of a launch, as values: what watches, counts, follows and records it.

``kernel.launch(..., instruments=[...])`` takes any of them together, one of each kind.
Each says what it asks for; what a launch cannot do is refused here, in words.

| instrument | what the result has | short form |
| --- | --- | --- |
| :class:`Watch` | ``problems``: races, missing waits, … | ``watch=`` |
| :class:`AllOrders` | ``orders``: what other orders show | ``orders=`` |
| :class:`Counting` | ``counters``: traffic, by names of Nsight | ``counters=True`` |
| :class:`ExactValues` | ``numerics``: where bits were lost | ``numerics=``, ``nan=`` |
| an ``Algebra`` of :mod:`fragmenta.engine.planes` | what it keeps itself | ``algebra=``
| | a ``Window`` | ``replay()``: every step | ``replay=`` |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from fragmenta.base.arrays.checks import check_flags, is_among, is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.context import Grid
from fragmenta.errors import BadCall, nearest, one_of, shortened

if TYPE_CHECKING:
    from fragmenta.engine.planes.algebra import Algebra
    from fragmenta.engine.tracing.trace import Window

MOST_STATES = 1_000_000
"""States of an exploration of all orders, unless the user gives another number."""


@dataclass(frozen=True)
class Watch:
    """How a launch is watched.

    ``launch(watch=True)`` is ``Watch()``, ``watch="report"`` is ``Watch("report")``,
    and ``watch="strict"`` is ``Watch(strict=True)``; ``watch=False`` does not watch.

    >>> from fragmenta import ptx
    >>> ptx.Watch("report", strict=True)
    Watch(problems='report', strict=True)
    >>> ptx.Watch("rise")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: problems is 'raise' or 'report'; given 'rise' (did you \
mean raise?)
    """

    problems: str = "raise"
    """``"raise"``: an error is a :class:`KernelHazard`.  ``"report"``: it is in
    ``result.problems`` only."""
    strict: bool = False
    """Whether to report also what only some sources demand."""

    def __post_init__(self) -> None:
        words = ("raise", "report")
        if not is_among(self.problems, words):
            hint = nearest(str(self.problems), words)
            given = f"given {self.problems!r}{hint}"
            raise BadCall(f"problems is 'raise' or 'report'; {given}")
        check_flags(strict=self.strict)


@dataclass(frozen=True)
class AllOrders:
    """All orders in which the threads of a launch can synchronise are explored.

    ``launch(orders="all")`` is ``AllOrders()``; ``orders=500`` is ``AllOrders(500)``.

    >>> from fragmenta import ptx
    >>> ptx.AllOrders(500)
    AllOrders(states=500)
    """

    states: int = MOST_STATES
    """The most states that are looked at."""

    def __post_init__(self) -> None:
        good = is_whole(self.states) and not isinstance(self.states, bool)
        if not good or self.states < 1:
            raise BadCall(
                "orders is 'all', or the most states to look at, a whole number from "
                f"1; given {self.states!r}"
            )


@dataclass(frozen=True)
class Counting:
    """What Nsight Compute counts is counted: ``launch(counters=True)``.

    >>> from fragmenta import ptx
    >>> ptx.Counting()
    Counting()
    """


@dataclass(frozen=True)
class ExactValues:
    """Beside every float goes the value that exact arithmetic would have.

    ``launch(numerics=True, nan="raise")`` is ``ExactValues("raise")``.

    >>> from fragmenta import ptx
    >>> ptx.ExactValues("stop")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: nan is "report" or "raise"; given 'stop'
    """

    nan: str = "report"
    """``"raise"``: the birth of a NaN or of an infinity stops the launch."""

    def __post_init__(self) -> None:
        if not is_among(self.nan, ("report", "raise")):
            given = shortened(str(self.nan))
            raise BadCall(f'nan is "report" or "raise"; given {given}')


if TYPE_CHECKING:
    Instrument: TypeAlias = (
        Watch | AllOrders | Counting | ExactValues | Algebra | Window
    )


class Instruments(NamedTuple):
    """The instruments of a launch, by what they do; checked."""

    watch: Watch | None = None
    orders: AllOrders | None = None
    counting: bool = False
    exact: ExactValues | None = None
    algebra: Algebra | None = None
    window: Window | None = None

    @classmethod
    def of(cls, given: Iterable[Instrument]) -> Instruments:
        """Those that a launch was given, at most one of each kind.

        >>> Instruments.of([Watch("report"), Counting()]).counting
        True
        >>> Instruments.of([Counting(), Counting()])
        Traceback (most recent call last):
        fragmenta.errors.BadCall: a launch has one instrument of a kind; given two of \
Counting
        """
        made = cls()
        for each in given:
            name = _field(each)
            if getattr(made, name):
                kind = type(each).__name__
                raise BadCall(
                    f"a launch has one instrument of a kind; given two of {kind}"
                )
            value = True if name == "counting" else each
            made = made._replace(**{name: value})  # type: ignore[arg-type]
        return made

    def check(self, shape: Grid, client: object) -> None:
        """Refuse what these cannot do together, or not with so many blocks."""
        if self.exact is not None and self.algebra is not None:
            raise BadCall("a launch has one algebra; numerics is one")
        if self.orders is not None and self.watch is None:
            raise BadCall("orders need the launch to be watched, without watch=False")
        if client is not None:
            self._check_spread()
        if self.window is not None:
            _check_window(self.window, shape)

    def _check_spread(self) -> None:
        """Refuse what the workers of a Dask cluster cannot do."""
        if self.exact is not None or self.algebra is not None:
            raise BadCall(
                "second values are followed on one machine; the workers of a Dask "
                "cluster cannot; launch without client="
            )
        if self.window is not None:
            raise BadCall(
                "a launch on a Dask cluster is not recorded; leave client= out"
            )
        if self.orders is not None:
            raise BadCall(
                "orders are explored on one machine; the workers of a Dask cluster "
                "cannot"
            )


def _field(given: object) -> str:
    """Which of :class:`Instruments` it is."""
    for kind, name in (
        (Watch, "watch"),
        (AllOrders, "orders"),
        (Counting, "counting"),
        (ExactValues, "exact"),
    ):
        if isinstance(given, kind):
            return name
    # A launch without these does not load them.
    from fragmenta.engine.planes.algebra import Algebra
    from fragmenta.engine.tracing.trace import Window

    if isinstance(given, Window):
        return "window"
    if isinstance(given, Algebra):
        return "algebra"
    known = ("Watch", "AllOrders", "Counting", "ExactValues", "Window")
    raise BadCall(
        f"an instrument is one of {one_of(known)}, or an algebra; given "
        f"{shortened(repr(given))}"
    )


def _check_window(window: Window, shape: Grid) -> None:
    if not isinstance(window.blocks, list | tuple | range):
        raise BadCall(f"blocks are several numbers; given {window.blocks!r}")
    wrong = [each for each in window.blocks if not _is_block(each, shape)]
    if wrong:
        raise BadCall(
            f"the blocks of the grid are 0 to {shape.blocks - 1}; given {wrong[0]!r}"
        )
    if not is_whole(window.first) or window.first < 0:
        raise BadCall(f"steps are counted from 0; given {window.first!r}")
    if not is_whole(window.most) or window.most < 1:
        raise BadCall(f"at least 1 step is kept; given {window.most!r}")


def _is_block(given: int, shape: Grid) -> bool:
    return is_whole(given) and 0 <= int(given) < shape.blocks


# ── short forms ─────────────────────────────────────────────────────────────


def check_watch(watch: bool | str | Watch) -> Watch | None:
    """How a launch is watched; None if it is not.

    >>> check_watch("report"), check_watch(False)
    (Watch(problems='report', strict=False), None)
    """
    if isinstance(watch, Watch):
        return watch
    if isinstance(watch, bool | np.bool_):
        return Watch() if watch else None
    words = {"raise": Watch(), "report": Watch("report"), "strict": Watch(strict=True)}
    if isinstance(watch, str) and watch in words:
        return words[watch]
    hint = nearest(watch, words) if isinstance(watch, str) else ""
    raise BadCall(
        f"watch is True, False, {one_of(map(repr, words))}, or a ptx.Watch; given "
        f"{watch!r}{hint}"
    )


def read_orders(orders: object) -> AllOrders | None:
    """What ``orders=`` says.

    >>> read_orders("all"), read_orders(500), read_orders(None)
    (AllOrders(states=1000000), AllOrders(states=500), None)
    >>> read_orders("every")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: orders is 'all', or the most states to look at, a whole \
number from 1; given 'every'
    """
    if orders is None:
        return None
    if is_among(orders, ("all",)):
        return AllOrders()
    if is_whole(orders) and not isinstance(orders, bool):
        return AllOrders(int(orders))  # type: ignore[call-overload]
    hint = nearest(orders, ("all",)) if isinstance(orders, str) else ""
    raise BadCall(
        "orders is 'all', or the most states to look at, a whole number from 1; given "
        f"{orders!r}{hint}"
    )


def read_numerics(numerics: object, nan: object) -> ExactValues | None:
    """What ``numerics=`` and ``nan=`` say.

    >>> read_numerics(True, "raise"), read_numerics(False, "report")
    (ExactValues(nan='raise'), None)
    """
    check_flags(numerics=numerics)
    made = ExactValues(nan)  # type: ignore[arg-type]
    if made.nan == "raise" and not numerics:
        raise BadCall('nan="raise" needs numerics=True')
    return made if numerics else None


def read_replay(replay: object) -> Window | None:
    """What ``replay=`` says.

    >>> read_replay(True).most
    200000
    >>> read_replay("all")
    Traceback (most recent call last):
    fragmenta.errors.BadCall: replay is True, False or a Window; given 'all'
    """
    if replay is False:
        return None
    # A launch that is not recorded does not load it.
    from fragmenta.engine.tracing.trace import Window

    window = Window() if replay is True else replay
    if not isinstance(window, Window):
        raise BadCall(f"replay is True, False or a Window; given {replay!r}")
    return window
