"""What is missing between the two accesses of a problem, in a few words: for pictures.

The hint of a report is a sentence.  A picture has room for the instruction that would
make the order, and for the place where it would stand.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fragmenta.engine.simt.naming import KernelNames
from fragmenta.engine.units.findings import Finding
from fragmenta.ptx import rules
from fragmenta.ptx.languages import PTX, Words
from fragmenta.watch.races.report.problem_context import Agent, Collision
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.layout import Apart

_BAR, _WARP_BAR = PTX.block_barrier, PTX.warp_barrier
_CLUSTER_BAR = "barrier.cluster"
_BARRIERS = {
    _WARP_BAR: _WARP_BAR,
    _BAR: _BAR,
    "a barrier of the cluster": _CLUSTER_BAR,
}
"""Barriers, by the words of hints."""
_COMMIT = "tcgen05.commit and a wait for its mbarrier"

_BY_RULE = {
    rules.WGMMA_REGISTERS_IN_FLIGHT: "wgmma.wait_group",
    rules.MISSING_WGMMA_FENCE: "wgmma.fence",
    rules.TENSOR_REGISTERS_IN_FLIGHT: "tcgen05.wait::ld",
    rules.MISSING_TENSOR_FENCE: "tcgen05.fence::after_thread_sync",
    rules.LEAK: "a wait before the end",
}
"""What is missing by the rule alone."""
_BY_REPAIR = (
    (r"tcgen05\.wait::\w+", "{0}"),
    (r"tcgen05\.commit", _COMMIT),
    (r"phase (\d+) of the mbarrier at (0x\w+)", "mbarrier.try_wait {2}, phase {1}"),
    (r"elect\.sync", "elect.sync"),
    (re.escape(_BAR), _BAR),
)
"""What is missing by the words of a repair, the first that are in it."""
_GROUPS = {
    layout.WARPGROUP: "wgmma.wait_group",
    "cp.async": f"cp.async.wait_group and {_BAR}",
    "bulk-read": "cp.async.bulk.wait_group.read",
    "bulk-write": "cp.async.bulk.wait_group",
    layout.COMMITTED: _COMMIT,
    "tcgen05.ld": "tcgen05.wait::ld",
    "tcgen05.st": "tcgen05.wait::st",
}
"""What waits for work in flight, by the kind of its agent."""


class Missing(NamedTuple):
    """What would make the order."""

    words: str
    after_first: bool = False
    """Whether it belongs after the earlier access, not before the later one."""
    site: int = -1
    """The instruction before which it belongs, if it is neither of the two."""


def missing(
    found: Finding, names: KernelNames, language: Words = PTX, hint: str = ""
) -> Missing | None:
    """What is missing between two accesses; None if no single instruction is.

    A hint may ask for a wider barrier than these two need, which repairs other errors,
    too: then it is that one.
    """
    made = _of(found, names)
    if made is None:
        return None
    words = made.words
    if words in _BARRIERS.values():
        asked = (f"Let {language.spoken(each)} come" for each in _BARRIERS)
        told = zip(asked, _BARRIERS.values(), strict=True)
        words = next((barrier for said, barrier in told if said in hint), words)
    words = language.spoken(words).replace(_BAR, "bar.sync")
    return made._replace(words=words)


def _of(found: Finding, names: KernelNames) -> Missing | None:
    if isinstance(found, Collision):
        return _between(found, names)
    if found.rule is rules.TENSOR_MEMORY_RACE and found.repair is not None:
        return _repaired(found.repair, names)
    if found.rule is rules.MBARRIER and "initialisation" in found.message:
        return Missing(_BAR)
    words = _BY_RULE.get(found.rule)
    return None if words is None else Missing(words)


def _repaired(repair: str, names: KernelNames) -> Missing | None:
    for pattern, words in _BY_REPAIR:
        told = re.search(pattern, repair)
        if told is not None:
            said = [told[0], *told.groups()]
            if len(said) > 2:
                said[2] = names.shared(int(said[2], 16)) or said[2]
            return Missing(words.format(*said))
    return None


def _between(found: Collision, names: KernelNames) -> Missing | None:
    story, case = found.story, found.noted.case
    now, before = story.now, story.before
    if found.rule is rules.MISSING_PROXY_FENCE:
        return Missing("fence.proxy.async", after_first=True)
    simple = found.rule.race and not (case.same_value or found.unused)
    if before is None or not simple or story.narrow is not None:
        return None
    if before.is_copy and before.mbarrier is not None:
        name = names.shared(before.mbarrier[1]) or f"{before.mbarrier[1]:#x}"
        return Missing(f"mbarrier.try_wait {name}, phase {before.epoch}")
    if before.kind != "warp":
        words = _GROUPS.get(before.kind)
        if words is None:
            return None
        far = (now.rank, now.number) != (before.rank, before.number)
        arrival = -1 if story.wait is None else story.wait.arrival
        # Who issued the work has to wait for it, then to tell the others.
        return Missing(words, far and before.kind != layout.COMMITTED, arrival)
    return Missing(_of_threads(found, now, before))


def _of_threads(found: Collision, now: Agent, before: Agent) -> str:
    """What orders what a thread did before something else."""
    space, apart = found.noted.case.space, found.apart
    if space == "global" and (apart & Apart.GROUP or now.kind != "warp"):
        return "a release and an acquire"
    if now.kind != "warp":
        done = "read" if found.noted.now_write else "written"
        return f"a wait until warp {before.number} has {done}"
    if now.rank != before.rank or apart & Apart.BLOCK:
        return _CLUSTER_BAR
    same = now.number == before.number and not apart & Apart.WARP
    return _WARP_BAR if same else _BAR
