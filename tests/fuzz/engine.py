"""Makes, judges, counts and repeats hostile calls.

A *game* is a function that makes a few calls and compares what comes back with
an answer found in another way.  It raises :class:`Wrong` where they differ.
Besides, whatever the game: only :class:`fragmenta.Error` may escape from a call,
and a refusal takes at most :data:`PATIENCE`.

Every game is played with a generator of its own, made from the seed, the name of
the surface and the number of the game: a finding is repeated by these three.
"""

from __future__ import annotations

import random
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

import fragmenta as fm
from tests.clock import work

PATIENCE = 0.2
"""Seconds that refusing something typed may take."""
_MANY = 20
"""Findings of one kind that are kept; the others are counted."""


Clock = Callable[[], float]


class Wrong(Exception):
    """An answer is not the one it should be."""


class Ask:
    """Makes calls for a game, counts them and remembers the last one."""

    def __init__(self, rng: random.Random, clock: Clock) -> None:
        self.rng, self.clock = rng, clock
        self.calls = self.refusals = 0
        self.slowest = self._start = 0.0
        self.last: Any = None

    def __call__(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call; an :class:`fragmenta.Error` goes through, and ends the game well."""
        self.calls += 1
        self.last = (function, args, named)
        self._start = self.clock()
        try:
            return function(*args, **named)
        except fm.Error:
            self.count_refusal()
            raise

    def count_refusal(self) -> None:
        """The last call was refused, in whatever way it says so."""
        self.refusals += 1
        self.slowest = max(self.slowest, self.clock() - self._start)

    def accepted(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Call what must not be refused."""
        try:
            return self(function, *args, **named)
        except fm.Error as why:
            raise Wrong(f"refused, but it is right: {why}") from None

    def refused(self, function: Callable[..., Any], *args: Any, **named: Any) -> None:
        """Call what must be refused."""
        try:
            found = self(function, *args, **named)
        except fm.Error as why:
            if not str(why):
                raise Wrong("refused without a word") from None
            return
        raise Wrong(f"accepted, but it is wrong: {found!r:.200}")

    def maybe(
        self, right: bool, function: Callable[..., Any], *args: Any, **named: Any
    ) -> Any:
        """Call what must be accepted if it is right, and refused if not."""
        if right:
            return self.accepted(function, *args, **named)
        self.refused(function, *args, **named)
        return None


Game = Callable[[Ask], None]


@dataclass(frozen=True)
class Surface:
    """Games with their weights."""

    name: str
    games: Mapping[Game, int]
    share: float
    """Its part of the calls of ``make fuzz``."""

    def choose(self, rng: random.Random) -> Game:
        """One of the games."""
        return rng.choices(list(self.games), list(self.games.values()))[0]


@dataclass(frozen=True)
class Finding:
    """What went wrong, and how to see it again."""

    surface: str
    seed: int
    number: int
    game: str
    what: str
    call: str


@dataclass
class Result:
    """How a run went."""

    surface: str
    seed: int
    calls: int = 0
    refusals: int = 0
    games: int = 0
    found: int = 0
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)

    def add(self, other: Result) -> None:
        """Take in what another process did."""
        self.calls += other.calls
        self.refusals += other.refusals
        self.games += other.games
        self.found += other.found
        self.seconds += other.seconds
        self.findings = (self.findings + other.findings)[:_MANY]

    def to_json(self) -> dict[str, Any]:
        """For the report."""
        return {**asdict(self), "seconds": round(self.seconds, 1)}


def play(
    surface: Surface, seed: int, number: int, clock: Clock = time.perf_counter
) -> tuple[Ask, Finding | None]:
    """One game."""
    rng = random.Random(f"{seed} {surface.name} {number}")
    game, ask = surface.choose(rng), Ask(rng, clock)
    what = ""
    try:
        game(ask)
    except fm.Error:
        pass
    except Wrong as why:
        what = str(why)
    except Exception as why:  # whatever escapes is a finding
        lines = traceback.format_exception(why)
        what = f"{type(why).__name__} escaped: {why}\n{''.join(lines[-3:])}"
    if not what and ask.slowest > PATIENCE:
        what = f"took {ask.slowest:.2f} s to refuse"
    if not what:
        return ask, None
    shown = _shown(ask.last)
    return ask, Finding(surface.name, seed, number, game.__name__, what[:2000], shown)


def run(
    surface: Surface,
    calls: int,
    seed: int,
    *,
    first: int = 0,
    step: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> Result:
    """Play every ``step``-th game from ``first`` on, until so many calls are made."""
    result = Result(surface.name, seed)
    start = time.perf_counter()
    number = first
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        while result.calls < calls:
            ask, finding = play(surface, seed, number)
            if finding is not None and "s to refuse" in finding.what:
                # Another process may have had the processor: count only our work.
                _, finding = play(surface, seed, number, work)
            result.calls += max(1, ask.calls)
            result.refusals += ask.refusals
            result.games += 1
            if finding is not None:
                result.found += 1
                result.findings = [*result.findings, finding][:_MANY]
            number += step
            if not result.games % 64:
                progress(result.calls)
    progress(result.calls)
    result.seconds = time.perf_counter() - start
    return result


def _shown(last: Any) -> str:
    if last is None:
        return "no call"
    function, args, named = last
    name = getattr(function, "__qualname__", repr(function))
    listed = [*map(_text, args), *(f"{n}={_text(v)}" for n, v in named.items())]
    return f"{name}({', '.join(listed)})"[:2000]


def _text(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as why:  # a value may be as odd as it likes
        return f"<{type(value).__name__}: {why}>"
    return text if len(text) < 400 else f"{text[:300]} … ({len(text)} characters)"


# ── what games are made of ──────────────────────────────────────────────────

NUMBERS = (
    0,
    1,
    -1,
    2,
    7,
    8,
    15,
    16,
    31,
    32,
    33,
    63,
    64,
    127,
    128,
    255,
    256,
    1024,
    2**15,
    2**16,
    2**18,
    2**31 - 1,
    2**31,
    2**32,
    2**53 + 1,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    2**70,
    -(2**31),
    -(2**63),
    -(2**70),
)
NO_NUMBERS = (
    None,
    True,
    False,
    0.0,
    1.5,
    float("nan"),
    float("inf"),
    "",
    "1",
    "x",
    b"1",
    [],
    [1],
    (),
    {},
    1j,
)


def odd(rng: random.Random) -> Any:
    """What is seldom meant: numbers at the ends, and what is no number."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.choice(NO_NUMBERS)
    if kind == 1:
        return np.array(rng.choice([[], [1], [[1, 2]], 1, 1.5, "x", [-1]]))
    number = rng.choice(NUMBERS)
    if kind == 2:
        return number
    types = (np.int8, np.uint8, np.int32, np.int64, np.uint64, np.float32, np.float64)
    chosen = rng.choice(types)
    if issubclass(chosen, np.integer):
        info = np.iinfo(chosen)
        number = min(max(number, int(info.min)), int(info.max))
    return chosen(number)


def bits(rng: random.Random, kind: Any, shape: Sequence[int]) -> Any:
    """Random bits of an unsigned type."""
    kind, size = np.dtype(kind), int(np.prod(shape))
    return np.frombuffer(rng.randbytes(size * kind.itemsize), kind).reshape(shape)


def integers(rng: random.Random, low: int, high: int, shape: Sequence[int]) -> Any:
    """Integers from low to high, both included."""
    wide = bits(rng, np.uint32, shape).astype(np.int64)
    return low + wide % (high - low + 1)


def index(shape: Sequence[int], rng: random.Random) -> tuple[int, ...]:
    """A random place in an array."""
    return tuple(rng.randrange(size) for size in shape)


def expect(right: bool, what: str) -> None:
    """Say what is wrong unless it is right."""
    if not right:
        raise Wrong(what)


def same(found: Any, wanted: Any, what: str) -> None:
    """Two arrays are the same in shape and in every element."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape:
        raise Wrong(f"{what}: shape {found.shape}, not {wanted.shape}")
    if not (found == wanted).all():
        at = tuple(np.argwhere(found != wanted)[0].tolist())
        raise Wrong(f"{what}: {found[at]!r} at {at}, not {wanted[at]!r}")


def pieces(total: int, jobs: int) -> Iterator[tuple[int, int]]:
    """The first game and the calls of each process."""
    for job in range(jobs):
        yield job, total // jobs + (job < total % jobs)
