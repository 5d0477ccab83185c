"""Blocks that store the same value in one place: a note, whatever threads did.

Whether a block stores what is there already is seen in memory.  If blocks run in
several threads of the host, the other one may be about to store: it is in shadow
memory, but its value is not there yet.  So a launch in which values seemed to differ is
run again in one thread, and what that says counts.
"""

from __future__ import annotations

from fragmenta.engine.simt.compiled import Compiled
from fragmenta.engine.units.events import once_per_kernel
from fragmenta.engine.units.findings import Finding, Key
from fragmenta.ptx.rules import ERROR
from fragmenta.watch.races.report.problem_context import Collision
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.suspicions import FinishedRun

MOST = 1_000_000
"""Warp instructions of a launch that is run again, if no value was the same."""


@once_per_kernel
def _different(compiled: Compiled) -> set[Key]:
    """The pairs of stores that were seen to store different values."""
    return set()


def doubtful(launch: FinishedRun, instructions: int) -> list[Finding]:
    """Stores of blocks that may have been the same, in a launch of several threads."""
    every = [] if launch.machine is None else [*launch.machine.problems]
    stores = [
        each
        for each in every
        if isinstance(each, Collision)
        and each.noted.case in (Detected.WRITE_WRITE, Detected.GLOBAL_SAME_VALUE)
    ]
    same = {(e.site, e.other) for e in stores if e.noted.case.same_value}
    known = _different(launch.compiled)
    return [
        each
        for each in stores
        if each.severity == ERROR
        and each.key not in known
        and (instructions <= MOST or (each.site, each.other) in same)
    ]


def settle(launch: FinishedRun, found: list[Finding], again: FinishedRun) -> None:
    """Take what a run in one thread says about stores."""
    assert launch.machine is not None
    assert again.machine is not None
    now = {each.key: each for each in again.machine.problems}
    wrong = {each.key for each in found} - now.keys()
    _different(launch.compiled).update(each.key for each in found if each.key in now)
    launch.machine.problems.drop(lambda each: each.key in wrong)
    pairs = {(site, other) for _, _, site, other in wrong}
    known = {each.key for each in launch.machine.problems}
    for key, each in now.items():
        if key[2:] in pairs and key not in known:
            launch.machine.problems.put(each)
