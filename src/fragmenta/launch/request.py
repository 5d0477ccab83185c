"""What a launch is asked for, as one value.

A :class:`LaunchRequest` has the shape of a launch, its arguments, target, schedule,
limits and instruments.  ``kernel.launch`` makes one of its options, and everybody who
passes options on, such as a pool or a front end, names them as
:class:`LaunchOptions` does.  In JSON it is an object of the same fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, TypeVar, Unpack

import numpy as np

from fragmenta.base.arrays.checks import check_flags
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.progress import Progress, ignore_progress
from fragmenta.engine.units.schedule import EAGER, Given
from fragmenta.errors import BadCall, nearest, one_of, shortened
from fragmenta.launch.instruments import (
    Counting,
    Watch,
    check_watch,
    read_numerics,
    read_orders,
    read_replay,
)
from fragmenta.launch.limits import Limits

if TYPE_CHECKING:
    from fragmenta.engine.planes.algebra import Algebra
    from fragmenta.engine.tracing.trace import Window
    from fragmenta.launch.instruments import Instrument

Launched = TypeVar("Launched", bound="Callable[..., object]")
Extent: TypeAlias = int | Sequence[int]
"""A size along x, or along x, y and z."""


class ShortForms(TypedDict, total=False):
    """Common instruments in few words; :mod:`fragmenta.launch.instruments` has all."""

    watch: bool | str | Watch
    """How the launch is watched: by default, an error is raised."""
    orders: str | int | None
    """``"all"``: all orders of its synchronisation are explored."""
    counters: bool
    """Whether traffic, lanes and products are counted."""
    numerics: bool
    """Whether exact values go beside all floats."""
    nan: str
    """``"raise"``: with ``numerics``, the birth of a NaN stops the launch."""
    algebra: Algebra | None
    """What else goes beside all registers and memory."""
    replay: bool | Window
    """Whether steps are recorded, and which."""


class OptionsOnTarget(ShortForms, total=False):
    """The options of a launch whose target is known otherwise, as in a front end."""

    cluster: Extent | None
    cooperative: bool
    shared: int
    contract: bool
    schedule: Given | Sequence[Given]
    instruments: Sequence[Instrument]
    limits: Limits
    client: object
    progress: Progress


class LaunchOptions(OptionsOnTarget, total=False):
    """The options of ``kernel.launch``: the fields of :class:`LaunchRequest`.

    >>> from fragmenta import ptx
    >>> options: ptx.LaunchOptions = {"watch": "report", "schedule": ["eager", 7]}
    >>> ptx.LaunchRequest.of(1, 32, **options).schedule
    ['eager', 7]
    """

    target: str | None


SHORT_FORMS = frozenset(ShortForms.__annotations__)
"""The names of short forms."""
MADE_HERE = ("client", "progress")
"""Fields that mean something in one process only."""


@dataclass(frozen=True)
class LaunchRequest:
    """A launch of a kernel: its shape, its arguments, and how it is to run.

    >>> from fragmenta import ptx
    >>> made = ptx.LaunchRequest.of(4, (32, 2), shared=1024, watch="report")
    >>> made.to_json()["instruments"]
    [{'kind': 'Watch', 'problems': 'report', 'strict': False}]
    >>> ptx.LaunchRequest.from_json(made.to_json()) == made
    True
    """

    grid: Extent
    block: Extent
    arguments: Any = ()
    """What the kernel is given: arrays are changed in place."""
    cluster: Extent | None = None
    """Blocks of a cluster; by default as many as the kernel demands."""
    cooperative: bool = False
    """Whether all blocks are under way at the same time, for ``grid.sync()``."""
    shared: int = 0
    """Bytes of dynamic shared memory."""
    target: str | None = None
    """The GPU whose bits are wanted; by default that of the text."""
    contract: bool = True
    """Whether products and sums are fused, as the assembler does."""
    schedule: Given | Sequence[Given] = EAGER
    """When asynchronous work is done, and which warp is next; one or several."""
    instruments: Sequence[Instrument] = (Watch(),)
    """What watches, counts, follows and records the launch."""
    limits: Limits = Limits()
    """What it may take."""
    client: object = None
    """A Dask client, whose workers run the blocks, cluster by cluster."""
    progress: Progress = ignore_progress
    """Called with the share of blocks that are done."""

    @classmethod
    def of(
        cls,
        grid: Extent,
        block: Extent,
        arguments: Any = (),
        **options: Unpack[LaunchOptions],
    ) -> LaunchRequest:
        """The request of ``kernel.launch`` with these options.

        >>> from fragmenta import ptx
        >>> ptx.LaunchRequest.of(1, 32, wach="report")
        Traceback (most recent call last):
        fragmenta.errors.BadCall: a launch has no option wach (did you mean watch?)
        """
        given: dict[str, Any] = {**options}
        short = {name: given.pop(name) for name in SHORT_FORMS & given.keys()}
        for name in given:
            if name not in OPTIONS:
                near = nearest(name, (*OPTIONS, *sorted(SHORT_FORMS)))
                raise BadCall(f"a launch has no option {name}{near}")
        if "instruments" not in given:
            given["instruments"] = _instruments(short)
        elif short:
            names = one_of(sorted(short), "and")
            raise BadCall(
                f"instruments= says what watches and records a launch; {names} "
                "would say it again"
            )
        return cls(grid, block, arguments, **given)

    def to_json(self) -> dict[str, Any]:
        """The request in plain types, without its arguments, client and progress."""
        made = {
            each.name: _plain(getattr(self, each.name))
            for each in fields(self)
            if each.name not in ("arguments", "instruments", *MADE_HERE)
        }
        made["limits"] = self.limits._asdict()
        made["instruments"] = [_instrument_json(each) for each in self.instruments]
        return made

    @classmethod
    def from_json(cls, given: Mapping[str, Any], arguments: Any = ()) -> LaunchRequest:
        """The inverse of :meth:`to_json`; short forms are understood, too."""
        options = options_of_json(given)
        missing = [name for name in ("grid", "block") if name not in given]
        if missing:
            raise BadCall(f"launch needs {missing[0]}: one to three whole numbers")
        return cls.of(_size(given["grid"]), _size(given["block"]), arguments, **options)


OPTIONS = tuple(
    each for each in LaunchOptions.__annotations__ if each not in SHORT_FORMS
)
"""The names of all other options."""
IN_JSON = tuple(
    each
    for each in LaunchOptions.__annotations__
    if each not in (*MADE_HERE, "algebra")
)
"""The names of options that are the same in JSON."""


def options_of_json(given: Mapping[str, Any]) -> LaunchOptions:
    """The options of a launch in an object of JSON.

    >>> options_of_json({"watch": {"strict": True}, "grid": 1, "shared": 64})
    {'watch': Watch(problems='raise', strict=True), 'shared': 64}
    """
    found: dict[str, Any] = {n: value for n, value in given.items() if n in IN_JSON}
    if isinstance(found.get("limits"), Mapping):
        found["limits"] = Limits(**found["limits"])
    watch = found.get("watch", True)
    if isinstance(watch, Mapping):
        found["watch"] = _made("Watch", watch)
    elif not isinstance(watch, bool | str):
        raise BadCall(
            "watch is true, false, 'raise', 'report', 'strict', or an object with "
            f"problems and strict; given {shortened(repr(watch))}"
        )
    if isinstance(found.get("replay"), Mapping):
        found["replay"] = _made("Window", found["replay"])
    if "instruments" in found:
        found["instruments"] = tuple(map(_instrument_of, found["instruments"]))
    return found  # type: ignore[return-value]


def _size(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


def names_options(launch: Launched) -> Launched:
    """Let ``help`` show the options of a launch, with the values that they have."""
    here = signature(launch)
    options = {**_SHOWN, **{e.name: e.default for e in fields(LaunchRequest)[3:]}}
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default)
        for name, default in options.items()
        if name != "instruments"
    ]
    first = [e for e in here.parameters.values() if e.kind is not e.VAR_KEYWORD]
    more = Parameter("instruments", Parameter.KEYWORD_ONLY, default=())
    launch.__signature__ = here.replace(parameters=[*first, *named, more])  # type: ignore[attr-defined]
    return launch


_SHOWN: dict[str, object] = {
    "watch": True,
    "orders": None,
    "counters": False,
    "numerics": False,
    "nan": "report",
    "algebra": None,
    "replay": False,
}
"""What short forms are if nothing is given."""


def _instruments(short: Mapping[str, Any]) -> tuple[Instrument, ...]:
    """The instruments that short forms name."""
    given = {**_SHOWN, **short}
    check_flags(counters=given["counters"])
    every: tuple[Any, ...] = (
        check_watch(given["watch"]),
        read_orders(given["orders"]),
        Counting() if given["counters"] else None,
        read_numerics(given["numerics"], given["nan"]),
        given["algebra"],
        read_replay(given["replay"]),
    )
    return tuple(each for each in every if each is not None)


# ── JSON ────────────────────────────────────────────────────────────────────

_KINDS = ("Watch", "AllOrders", "Counting", "ExactValues", "Window")


def _plain(value: object) -> object:
    """A value in the types of JSON."""
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, Iterable) and not isinstance(value, str | Mapping):
        return [_plain(each) for each in value]
    return value


def _instrument_json(given: Instrument) -> dict[str, Any]:
    kind = type(given).__name__
    if kind not in _KINDS:
        raise BadCall(f"an algebra means something in one process only; given {kind}")
    own = given._asdict() if isinstance(given, tuple) else vars(given)
    return {"kind": kind, **{name: _plain(value) for name, value in own.items()}}


def _instrument_of(given: object) -> Instrument:
    if not isinstance(given, Mapping) or given.get("kind") not in _KINDS:
        raise BadCall(
            f"an instrument is an object with a kind, {one_of(_KINDS)}; given {given!r}"
        )
    own = {name: value for name, value in given.items() if name != "kind"}
    made: Instrument = _made(given["kind"], own)
    return made


def _made(kind: str, given: Mapping[str, Any]) -> Any:
    """An instrument of a kind with these fields."""
    from fragmenta.engine.tracing.trace import Window
    from fragmenta.launch import instruments

    of: Any = Window if kind == "Window" else getattr(instruments, kind)
    known = [*of.__annotations__]
    for name in given:
        if name not in known:
            near = nearest(name, known)
            raise BadCall(
                f"{kind} has {one_of(known, 'and') or 'no fields'}; given {name}{near}"
            )
    own = {n: tuple(v) if isinstance(v, list) else v for n, v in given.items()}
    return of(**own)
