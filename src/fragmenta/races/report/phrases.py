"""The phrases of reports on launches.

Each phrase is here once, or in the row of its rule (:mod:`fragmenta.ptx.rules`).
Words in braces are filled in by :mod:`messages`.
"""

from __future__ import annotations

from fragmenta.errors import ranges
from fragmenta.ptx import rules
from fragmenta.ptx.languages import PTX
from fragmenta.ptx.rules import Rule
from fragmenta.races.report.stories import Agent
from fragmenta.races.shadow.detected import Detected
from fragmenta.races.shadow.layout import Apart

AGENTS = {
    "warp": "{mnemonic} of warp {number}{lane} at {place}",
    "cp.async": "cp.async of warp {number}{lane} at {place}",
    "wgmma": "wgmma of warpgroup {number}{lane} at {place}",
    "mbarrier": "the copy of {place}{lane},",
    "tcgen05": "{mnemonic} of warp {number}{lane} at {place}",
    "tcgen05.st": "{mnemonic} of warp {number} at {place}",
    "bulk-read": "the bulk copy of {place}, issued by warp {number}{lane},",
    "bulk-write": "the bulk copy of {place}, issued by warp {number}{lane},",
}
"""Who does something, by the kind of agent."""

UNUSED = "; nobody uses the value that was read"
SAME_VALUE = "{other} wrote the same value there, so the order does not matter"
ONE_STORE = (
    "{other} wrote another value there by the same instruction, and which lane's stays "
    "is left open by the PTX manual"
)
ROUNDED = (
    "{other} wrote there by the same instruction; both hold one reduction, rounded in "
    "different ways, and which lane's stays is left open by the PTX manual"
)
BY_CASE = {Detected.ONE_STORE: ONE_STORE, Detected.ROUNDED: ROUNDED}
"""What two lanes do that store by one instruction."""
SEVERAL = "several blocks have read it, and nothing orders the accesses"
SOMEBODY = "another block has accessed it, and nothing orders the two"
SCOPED = (
    "{other} {verb} it, and the scope of {narrow} leaves the other's block out: "
    "between blocks of the {where}, both need at least {needed}"
)
TOO_NARROW = (
    "what {release} released with the scope {given} was read by {acquire} with the "
    "scope {taken}; between blocks of the {where}, both need at least {needed}"
)
WIDEN = "Write {needed} as the scope of both."
NEW = (
    "{who} had waited at {where} for the phase before the first (parity 1), which "
    "every new mbarrier has behind it"
)
WAITED = "{who} had waited at {where} for phase {phase} (parity {parity})"
PAST = ", which was already past"
RELEASED = (
    "{who} had last waited, at {where}, for phase {phase} of {mbarrier}, where "
    "{readers} had arrived, at {arrival}, before they had waited for it"
)
ANOTHER = (
    "{who} had last waited, at {where}, for phase {phase} of {mbarrier}, which does "
    "not say that it is done"
)
COUNTED = "it belongs to phase {phase} of {mbarrier}"

HARMLESS = ", but with other bits there the kernel left the same"
ALIKE = "; so it is with {}"
UNWRITTEN = "which nobody has written"
PARTLY = "a part of which nobody has written"
USES = {
    "store": "is stored",
    "atomic": "is added to memory",
    "branch": "decides a branch",
    "guard": "decides whether an instruction runs",
    "address": "is part of an address",
    "operand": "says what an instruction does",
}
"""How an undefined value is used."""

_WARP, _BLOCK = PTX.warp_barrier, PTX.block_barrier

ONE_LANE = "Let one lane store it, or let all of them store the same value."

UNBALANCED = (
    "Check that the arrivals and bytes that are expected are those that come, and that "
    "every thread waits for the phase that it means."
)

_WAIT = "Wait for phase {phase} (parity {parity}) of {mbarrier} before {access}."
_GROUP = "Let the thread that issued it execute {wait} before {access}{others}."
_PRODUCT = (
    "Let {readers} execute wgmma.wait_group for it and then arrive at an mbarrier, and "
    "wait for that before {access}."
)
_COMMITTED = (
    "Let a tcgen05.commit follow it, and wait for the mbarrier of that before {access}."
)
_PEER = (
    "If that instruction is to read what is written here, let a barrier of the cluster "
    f"come between the two; {_BLOCK} is not enough. If it is to come first, let a "
    "tcgen05.commit follow it, and wait for the mbarrier of that before {access}."
)
UNCOMMITTED = (
    "Let a tcgen05.commit follow it, and wait for the mbarrier of that before this "
    "instruction."
)
COVERS = "a tcgen05.commit covers what its own thread has issued"
OWN_COMMIT = (
    "Let the thread that issued it execute the tcgen05.commit, too, and wait for the "
    "mbarrier of that before this instruction."
)
UNSEEN_LOAD = (
    "If the tcgen05.ld is to load what this instruction writes, wait for the mbarrier "
    "of its tcgen05.commit before the tcgen05.ld; a barrier alone does not help. If "
    f"the tcgen05.ld is to come first, let {_BLOCK} come between the two."
)
UNSEEN = "Wait for phase {phase} of {mbarrier} before this instruction."
ELECT = "Let one thread of the warp issue it: the one that elect.sync chooses."
UNWAITED = "Execute tcgen05.wait::{kind} there first{others}."
UNORDERED = f"Let {_BLOCK} or an mbarrier come between the two."
_WRITERS = (
    "Let the writers execute fence.proxy.async and arrive at a barrier, and wait for "
    "that before {user} is issued."
)
_READERS = (
    "Let the readers arrive at a barrier or an mbarrier when they have read, and wait "
    "for that before {access}."
)
_FENCE = (
    "Execute fence.proxy.async in the threads that write, after they have written and "
    "before they arrive at the barrier."
)


def repair(
    rule: Rule, space: str, now_write: bool, now: Agent, before: Agent, apart: int
) -> str:
    """What would order two accesses, and all others that are as far ``apart``."""
    same_warp = (now.rank, now.number) == (before.rank, before.number)
    others = "" if same_warp else ", and the others wait for that thread"
    if rule is rules.MISSING_PROXY_FENCE:
        return _FENCE
    if rule is rules.MBARRIER:
        return "Keep away from it, or execute mbarrier.inval first."
    if (
        space == "global"
        and before.kind == "warp"
        and (apart & Apart.GROUP or now.kind != "warp")
    ):
        return rules.GLOBAL_RACE.repair
    match before.kind:
        case "mbarrier" if before.mbarrier is not None:
            return _WAIT
        case "wgmma":
            return _PRODUCT
        case "tcgen05":
            return _COMMITTED if now.rank == before.rank else _PEER
        case "cp.async":
            wait = "cp.async.wait_group and a barrier"
            return f"Let {{access}} come after {wait} of the threads that issued it."
        case "bulk-read":
            return _GROUP.replace("{wait}", "cp.async.bulk.wait_group.read").replace(
                "{others}", others
            )
        case "bulk-write":
            return _GROUP.replace("{wait}", "cp.async.bulk.wait_group").replace(
                "{others}", others
            )
    if now.kind != "warp":
        phrase = _READERS if now_write else _WRITERS
        if now.rank == before.rank:
            return phrase
        return phrase.replace("a barrier", "a barrier of the cluster")
    if now.rank != before.rank or apart & Apart.BLOCK:
        return "Let a barrier of the cluster come between the two."
    if now.number == before.number and not apart & Apart.WARP:
        return f"Let {_WARP} come between the two."
    return f"Let {_BLOCK} come between the two."


WIDER = {
    Apart.GROUP: "; the same happens between blocks of the grid",
    Apart.BLOCK: "; the same happens between blocks of the cluster",
    Apart.WARP: "; the same happens between warps",
}


def wider(apart: int, now: Agent, before: Agent) -> str:
    """The remark that threads farther apart than these two do the same."""
    if now.block != before.block:
        return ""
    near = now.rank != before.rank, now.number != before.number
    for each, clear in (
        (Apart.GROUP, False),
        (Apart.BLOCK, near[0]),
        (Apart.WARP, any(near)),
    ):
        if apart & each:
            return "" if clear else WIDER[each]
    return ""


def warps(numbers: list[int]) -> str:
    """Some warps.

    >>> warps([4, 5, 6, 7]), warps([2])
    ('warps 4-7', 'warp 2')
    """
    if not numbers:
        return ""
    return f"warp{'s' * (len(numbers) > 1)} {ranges(sorted(set(numbers)))}"
