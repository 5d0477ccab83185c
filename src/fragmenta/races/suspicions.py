"""Verdicts about what a launch read though nobody had written it.

A watched launch notes such reads.  Many of them do no harm: a tile is copied whole, and
what is behind its end is dropped.  So the launch is run again with code that follows
undefined bits, and only what it saw used is reported: stored to memory that outlives
the launch, part of an address, or what a branch depends on.
"""

from __future__ import annotations

from typing import Any

from fragmenta.errors import one_of
from fragmenta.ptx import rules
from fragmenta.races.probes.undefined_flow import Followed, followed
from fragmenta.simt.layout import SHARED_START
from fragmenta.units.findings import Finding


def may_doubt(launch: Any) -> bool:
    """Whether a launch can read anything that nobody has written."""
    machine = launch.machine
    if machine is None or machine.watching is None:
        return False
    shared = launch.compiled.shared + launch.dynamic > SHARED_START
    return bool(shared or launch.compiled.doubtful or machine.watching.memory.unset)


def suspected(launch: Any) -> list[Finding]:
    """What a launch read that nobody had written, and whose use can be followed."""
    if launch.machine is None:
        return []
    return [each for each in launch.machine.problems if _can_be_followed(each)]


def _can_be_followed(found: Finding) -> bool:
    return found.rule == rules.UNINITIALISED and not found.use


WAYS = frozenset({"branch", "guard"})
"""Uses that decide which way a thread takes."""


def in_doubt(again: Any) -> bool:
    """Whether undefined bits that are used may have no influence on what is left.

    Then only runs with other bits can tell.  ``(a + b) - b`` is ``a``; and a branch for
    a row behind the end of a tile may touch nothing but that row.
    """
    uses = [each for each in again.machine.problems if each.use]
    kinds = {each.use for each in uses}
    functions = {_place(again, each.site)[0] for each in uses}
    cancels = any(followed(again.module().functions[e]).cancels for e in functions)
    return "address" not in kinds and (cancels or bool(kinds & WAYS))


def _same(use: Finding, again: Any, others: list[Any]) -> bool:
    """Whether what is stored is the same, whatever the undefined bits are."""
    if use.use != "store" or not others:
        return False
    place = _place(again, use.site)
    every = [
        {k: v for k, v in each.machine.watching.stored.items() if k[:2] == place}
        for each in (again, *others)
    ]
    return bool(every[0]) and all(each == every[0] for each in every)


def settle(launch: Any, again: Any, others: list[Any]) -> list[Finding]:
    """Keep the suspicions of a launch whose values were used when it was run again.

    Uses of registers that were not written are returned: they are found by ``again``.
    ``others`` are runs in which undefined bits have other values.
    """
    suspicions, more = suspected(launch), []
    left = {each.machine.watching.left for each in (again, *others)}
    if others and len(left) == 1 and () not in left:
        for each in again.machine.problems:
            if each.use in WAYS:
                each.severity = (
                    rules.INFO
                )  # nothing that outlives the launch depends on it
    reads = [each for each in suspicions if not each.register]
    uses_of: dict[int, list[Finding]] = {id(each): [] for each in reads}
    used = [
        each
        for each in again.machine.problems
        if each.rule == rules.UNINITIALISED and not _same(each, again, others)
    ]
    raced = _race_places(launch)
    slices = _Slices(again)
    for use in used:
        places, names = slices.origins(use)
        named = [each for each in reads if _place(launch, each.site) in places]
        if not named and not names and not raced & places:
            named = reads  # it went through memory
        for each in named:
            uses_of[id(each)].append(use)
        if not named and (names or not raced & places):
            use.message = _words(use.message, names)
            use.other = None if names else _stored(launch, suspicions, again)
            more.append(use)
    launch.machine.problems.drop(
        lambda each: _can_be_followed(each) and not uses_of.get(id(each))
    )
    for each in reads:
        uses = uses_of[id(each)]
        if uses and all(use.severity == rules.INFO for use in uses):
            each.severity = rules.INFO
        each.uses = tuple((use.use, _place(again, use.site)) for use in uses)
    _once(launch, reads)
    return more


def _once(launch: Any, reads: list[Finding]) -> None:
    """Say once what does no harm: a tile is loaded by many instructions."""
    known: dict[tuple[Any, ...], Finding] = {}
    alike: list[Finding] = []
    for each in reads:
        if each.severity != rules.INFO or not each.uses:
            continue
        first = known.setdefault(each.uses, each)
        if first is not each:
            first.alike += 1
            alike.append(each)
    launch.machine.problems.drop(lambda found: any(found is each for each in alike))


def _place(launch: Any, site: int) -> tuple[str, int]:
    function, index = launch.compiled.places[site]
    return function, index


def _race_places(launch: Any) -> set[tuple[str, int]]:
    """Accesses that race: what they read is wrong for another reason."""
    sites = {
        site
        for each in launch.machine.problems
        if each.rule.race and each.severity != rules.INFO
        for site in (each.site, each.other)
        if site is not None and site >= 0
    }
    return {_place(launch, site) for site in sites}


def _words(name: str, behind: list[str]) -> str:
    """What is said about the use of a register that was not written."""
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


def _stored(launch: Any, suspicions: list[Finding], again: Any) -> int | None:
    """Where a register that was not written was put into memory, if that is known."""
    places = [tuple(each) for each in again.compiled.places]
    for each in suspicions:
        found = _place(launch, each.site)
        if each.register and found in places:
            return places.index(found)
    return None


class _Slices:
    """Where the values of registers come from, for each function of a launch."""

    def __init__(self, launch: Any) -> None:
        self.launch = launch
        self._known: dict[str, Followed] = {}

    def origins(self, use: Finding) -> tuple[set[tuple[str, int]], list[str]]:
        """The loads that a use may depend on, and the registers."""
        name, index = _place(self.launch, use.site)
        function = self.launch.module().functions[name]
        if name not in self._known:
            self._known[name] = followed(function)
        numbers = [e.number for e in function.registers if e.name == use.message]
        found = self._known[name].origins(numbers)
        places = {(name, each) for each in found if isinstance(each, int)}
        if use.use == "atomic" or not use.message:  # it reads memory itself
            places.add((name, index))
        return places, [each for each in found if isinstance(each, str)]
