"""Verdicts about reads of unwritten memory and registers.

A watched launch notes such reads.  Many of them do no harm: a tile is copied whole, and
what is past its end is dropped.  So the launch is run again with code that follows
undefined bits, and only a read whose value is used is reported: stored to memory that
outlives the launch, part of an address, or what a branch depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from fragmenta.engine.simt.compiled import Compiled
from fragmenta.engine.simt.layout import SHARED_START
from fragmenta.engine.units.findings import Finding, Use
from fragmenta.engine.units.machine import Machine
from fragmenta.errors import one_of
from fragmenta.ptx import rules
from fragmenta.ptx.module import Module
from fragmenta.ptx.open_loads import lines_of
from fragmenta.watch.races.definedness_watch import DefinedWatch
from fragmenta.watch.races.launch_watch import LaunchWatch
from fragmenta.watch.races.probes.undefined_flow import Followed, followed


class FinishedRun(Protocol):
    """A launch that has run, watched or with code that follows undefined bits."""

    @property
    def machine(self) -> Machine | None:
        """Its machine; None if it had no events."""

    @property
    def compiled(self) -> Compiled:
        """Its code."""

    @property
    def dynamic(self) -> int:
        """The bytes of shared memory that it was given."""

    @property
    def module(self) -> Callable[[], Module]:
        """Gives the module of its kernel."""


def may_doubt(launch: FinishedRun) -> bool:
    """Whether a launch can read anything unwritten, or what others write."""
    watch = None if launch.machine is None else launch.machine.watching
    if not isinstance(watch, LaunchWatch):
        return False
    shared = launch.compiled.shared + launch.dynamic > SHARED_START
    unset = launch.compiled.doubtful or watch.memory.unset
    return shared or unset or bool(watch.memory.shadows)  # loads may race


def suspected(launch: FinishedRun) -> list[Finding]:
    """Reads of what was not written, if their use can be followed."""
    return [each for each in _problems(launch) if _can_be_followed(each)]


def _problems(launch: FinishedRun) -> list[Finding]:
    return [] if launch.machine is None else list(launch.machine.problems)


def _defined(run: FinishedRun) -> DefinedWatch:
    """What followed undefined bits in a run."""
    assert run.machine is not None
    watch = run.machine.watching
    assert isinstance(watch, DefinedWatch)
    return watch


def _drop(launch: FinishedRun, unwanted: Callable[[Finding], bool]) -> None:
    if launch.machine is not None:
        launch.machine.problems.drop(unwanted)


def _can_be_followed(found: Finding) -> bool:
    if found.rule == rules.MEMBERMASK:  # a shuffle reads a lane that takes no part
        return found.severity == rules.WARNING
    return found.rule == rules.UNINITIALISED and not found.use


WAYS = frozenset({"branch", "guard"})
"""Uses that decide which way a thread takes."""


def in_doubt(again: FinishedRun) -> bool:
    """Whether undefined bits that are used may have no influence on what is left.

    Then only runs with other bits show it.  ``(a + b) - b`` is ``a``; and a branch for
    a row past the end of a tile may touch nothing but that row.
    """
    uses = [each for each in _problems(again) if each.use]
    kinds = {each.use for each in uses}
    functions = {place_of(again, each.site)[0] for each in uses}
    cancels = any(followed(again.module().functions[e]).cancels for e in functions)
    return "address" not in kinds and (cancels or bool(kinds & WAYS))


def _same(use: Finding, again: FinishedRun, others: Sequence[FinishedRun]) -> bool:
    """Whether what is stored is the same, whatever the undefined bits are."""
    if use.use != "store" or not others:
        return False
    place = place_of(again, use.site)
    every = [
        {k: v for k, v in _defined(each).stored.items() if k[:2] == place}
        for each in (again, *others)
    ]
    return bool(every[0]) and all(each == every[0] for each in every)


def settle(
    launch: FinishedRun, again: FinishedRun, others: Sequence[FinishedRun]
) -> list[Finding]:
    """Keep the suspicions of a launch whose values were used when it was run again.

    Uses of registers that were not written are returned: they are found by ``again``.
    ``others`` are runs in which undefined bits have other values.
    """
    suspicions, more = suspected(launch), []
    left = {_defined(each).left for each in (again, *others)}
    if others and len(left) == 1 and () not in left:
        for each in _problems(again):
            if each.use in WAYS:
                each.severity = (
                    rules.INFO
                )  # nothing that outlives the launch depends on it
    reads = [each for each in suspicions if not each.register]
    uses_of: dict[int, list[Finding]] = {id(each): [] for each in reads}
    used = [
        each
        for each in _problems(again)
        if each.rule == rules.UNINITIALISED and not _same(each, again, others)
    ]
    raced = _race_places(launch)
    slices = Slices(again)
    for use in used:
        places, names = slices.origins(use)
        named = [each for each in reads if place_of(launch, each.site) in places]
        if not named and not names and not raced & places:
            named = reads  # it went through memory
        for each in named:
            uses_of[id(each)].append(use)
        if not named and (names or not raced & places):
            stored = None if names else _stored(launch, suspicions, again)
            opened = lines_of(names or (slices.behind(stored) if stored else []))
            use.message = _opened(use.message, opened) or _words(use.message, names)
            use.other = None if stored is None else _site_of(stored, launch, again)
            more.append(use)
    _drop(launch, lambda each: _can_be_followed(each) and not uses_of.get(id(each)))
    for each in reads:
        uses = uses_of[id(each)]
        if uses and all(use.severity == rules.INFO for use in uses):
            each.severity = rules.INFO
        each.uses = tuple((use.use, place_of(again, use.site)) for use in uses)
    _once(launch, reads)
    return more


def _once(launch: FinishedRun, reads: list[Finding]) -> None:
    """Report harmless reads with the same uses once: many loads fill a tile."""
    known: dict[tuple[Use, ...], Finding] = {}
    alike: list[Finding] = []
    for each in reads:
        if each.severity != rules.INFO or not each.uses:
            continue
        first = known.setdefault(each.uses, each)
        if first is not each:
            first.alike += 1
            alike.append(each)
    _drop(launch, lambda found: any(found is each for each in alike))


def place_of(launch: FinishedRun, site: int) -> tuple[str, int]:
    """The function and the number of the instruction at a site."""
    function, index = launch.compiled.places[site]
    return function, index


def _race_places(launch: FinishedRun) -> set[tuple[str, int]]:
    """Accesses that race: what they read is wrong for another reason."""
    sites = {
        site
        for each in _problems(launch)
        if each.rule.race and each.severity != rules.INFO
        for site in (each.site, each.other)
        if site is not None and site >= 0
    }
    return {place_of(launch, site) for site in sites}


def _words(name: str, behind: list[str]) -> str:
    """The message about the use of a register that was not written."""
    if not behind:
        return (
            f"{name or 'the word'} depends on a register that was stored before "
            "anybody had written it"
        )
    if name in behind:
        text = f"{name} is needed here, but these lanes have not written it"
    else:
        made = one_of(behind[:3], "or") + " and others" * (len(behind) > 3)
        text = f"{name} is made of {made}, which these lanes have not written"
    return f"{text} on their way here"


def _opened(name: str, lines: list[int]) -> str:
    """The message about elements that loads of Triton leave open, if that is it."""
    if not lines:
        return ""
    at = " and ".join(f"line {each}" for each in lines)
    made = f"{name or 'the word'} is made of elements that tl.load of {at} masks off"
    return f"{made}, without other="


def _stored(
    launch: FinishedRun, suspicions: list[Finding], again: FinishedRun
) -> Finding | None:
    """A store of a register that was not written, if one is known."""
    places = {tuple(each) for each in again.compiled.places}
    for each in suspicions:
        if each.register and place_of(launch, each.site) in places:
            return each
    return None


def _site_of(found: Finding, launch: FinishedRun, again: FinishedRun) -> int:
    """The number of its instruction in another run."""
    places = [tuple(each) for each in again.compiled.places]
    return places.index(place_of(launch, found.site))


class Slices:
    """Where the values of registers come from, for each function of a launch."""

    def __init__(self, launch: FinishedRun) -> None:
        self.launch = launch
        self._known: dict[str, Followed] = {}

    def origins(self, use: Finding) -> tuple[set[tuple[str, int]], list[str]]:
        """The loads that a use may depend on, and the registers."""
        name, index = place_of(self.launch, use.site)
        found = self._found(name, use.message)
        places = {(name, each) for each in found if isinstance(each, int)}
        if use.use == "atomic" or not use.message:  # it reads memory itself
            places.add((name, index))
        return places, [each for each in found if isinstance(each, str)]

    def behind(self, stored: Finding) -> list[str]:
        """The registers that what was stored may depend on."""
        name, _ = place_of(self.launch, stored.site)
        found = self._found(name, stored.register)
        return [each for each in found if isinstance(each, str)]

    def _found(self, name: str, register: str) -> list[str | int]:
        """The loads, by their numbers, and the registers."""
        function = self.launch.module().functions[name]
        if name not in self._known:
            self._known[name] = followed(function)
        numbers = [e.number for e in function.registers if e.name == register]
        return self._known[name].origins(numbers)
