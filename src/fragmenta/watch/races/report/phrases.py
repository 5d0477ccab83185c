"""The phrases of reports on launches.

Each phrase is here once, or in the row of its rule (:mod:`fragmenta.ptx.rules`).
Words in braces are filled in by :mod:`messages`.
"""

from __future__ import annotations

from fragmenta.errors import ranges
from fragmenta.ptx import rules
from fragmenta.ptx.languages import PTX
from fragmenta.ptx.rules import ATOMIC, Rule
from fragmenta.watch.races.report.problem_context import Agent
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.detected import Detected
from fragmenta.watch.races.shadow.layout import Apart

AGENTS = {
    "warp": "{mnemonic} of warp {number}{lane} at {place}",
    "cp.async": "cp.async of warp {number}{lane} at {place}",
    layout.WARPGROUP: "wgmma of warpgroup {number}{lane} at {place}",
    layout.COUNTED: "the copy of {place}{lane},",
    layout.COMMITTED: "{mnemonic} of warp {number}{lane} at {place}",
    "tcgen05.st": "{mnemonic} of warp {number} at {place}",
    "bulk-read": "the bulk copy of {place}, issued by warp {number}{lane},",
    "bulk-write": "the bulk copy of {place}, issued by warp {number}{lane},",
    "released": "{mnemonic} of warp {number}{lane} at {place}",
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
NOT_COHERENT = (
    "{other} {verb} it in the same launch, and ld.global.nc need not see that: it is "
    "for memory that no thread of the launch writes"
)
VOLATILE = (
    "{other} {verb} it; both are volatile, so nothing is torn, but lanes of a warp "
    "need not run together, and nothing says which is first"
)
BY_CASE = {
    Detected.VOLATILE: VOLATILE,
    Detected.ONE_STORE: ONE_STORE,
    Detected.ROUNDED: ROUNDED,
    Detected.NOT_COHERENT: NOT_COHERENT,
}
"""What is wrong, if another order would not help."""
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
BARRIERS = (_WARP, _BLOCK, "a barrier of the cluster")
"""What threads wait at, by how far apart they are."""
SOME_WARPS = (
    "a barrier of the warps that come there (a number of its own, and the count of "
    "their threads)"
)

ONE_LANE = "Let one lane store it, or let all of them store the same value."
COHERENT = (
    "Load it without .nc: without __ldg(), or without const together with __restrict__."
)
REPAIRS = {
    Detected.NOT_COHERENT: COHERENT,
    Detected.VOLATILE: f"Let {_WARP} come between the two.",
}
"""What repairs a case, whoever takes part."""
ONE_THREAD = "Let one thread store it, or let all of them store the same value."
ADDS = (
    f"If both add to it, use {ATOMIC}. Otherwise let one thread do it, or each in a "
    "place of its own."
)
BETWEEN = "Let {barrier} come between the two{place}."
OTHER_PATH = f"Let {_BLOCK} or an mbarrier come between the two."
EXPECT = (
    "Expect {surplus} more in the phase before (expect_tx): {mbarrier} got more bytes "
    "than were expected."
)
OWN_WAIT = (
    "{wait} at {where} waits for the copies of its own thread only. Let {barrier} come "
    "between that and {access}{place}."
)
OUTSIDE = (
    "Let {what} stand outside the condition of {where}, so that all threads of the "
    "warp execute it."
)
LOCK = (
    "The lock that is taken at {taken} orders nothing by itself. Let a fence "
    "(__threadfence() or fence.acq_rel.gpu) come after that, and another before it is "
    "given back at {given}; or take it with .acquire and give it back with .release."
)
RELAXED = "{relaxed} at {where} orders no memory. {instead}"
NOT_RELAXED = "Leave out .relaxed there."
UNLIKE = "Write {word} there instead of .relaxed."
LATER = " in the next round"
"""When the second access of a gap was, if it is the other one that is reported."""
SOONER = " in the round before"
PASSED = "the barrier of {where} comes before both"


def repairs(problems: int) -> str:
    """How many problems one barrier repairs.

    >>> repairs(1), repairs(2), repairs(3)
    ('', '; that repairs both errors', '; that repairs all 3 errors')
    """
    if problems < 2:
        return ""
    return f"; that repairs {'both' if problems == 2 else f'all {problems}'} errors"


NO_COMMIT = (
    "Execute {kind}.commit_group after the work of {work}: there is none between that "
    "and the {kind}.wait_group of {wait}, which waits for groups only."
)

_WAIT = "Wait for phase {phase} (parity {parity}) of {mbarrier} before {access}."
_GROUP = "Let the thread that issued it execute {wait} before {access}{others}."
_PRODUCT = (
    "Let {readers} execute wgmma.wait_group for it and then arrive at a barrier or an "
    "mbarrier, and wait for that before {access}."
)
_POLLED = (
    "Nothing waits for it: let {access} come after an ld.acquire that has read what it "
    "writes."
)
_USED = "Wait for the mbarrier of that copy before {access}."
_TOLD = (
    "Let the thread that issued it execute {wait} before it tells the other block that "
    "it is done."
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
USED_LOAD = "; its registers are used before, and ptxas waits there"
MISPLACED = (
    "Execute tcgen05.wait::{kind} before that arrival: what comes after it is not part "
    "of what the others wait for."
)
RELAXED_BARRIER = (
    "; it is done before the barrier of the cluster, but .relaxed orders no memory",
    "Leave out .relaxed at barrier.cluster.arrive.",
)
"""About tensor memory that is freed after a relaxed barrier of the cluster."""
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


_WAITS = {
    "mbarrier": "Wait for {mbarrier} before the {other}",
    "wgmma_group": "Execute wgmma.wait_group for the {work} before the {other}",
    "async_group": "Let cp.async.wait_group and then a barrier of the threads that "
    "issued the {work} come before the {other}",
    "bulk_group": "Let the thread that issued the {work} execute "
    "cp.async.bulk.wait_group{read}, and let the {other} wait for that thread",
    "commit": "Let a tcgen05.commit follow the {work}, and wait for its mbarrier "
    "before the {other}",
}
"""What waits for work in flight, by the lines of ``COMPLETIONS``."""
_FIRST = (
    "; a barrier alone does not wait for it. If the {other} is to come first, let a "
    "barrier or an mbarrier come after it, and issue the {work} after that."
)


def waited_for(
    done_by: str, work: str, other: str, mbarrier: str, only_read: bool
) -> str | None:
    """What orders work in flight and another access; None if nothing waits for it.

    >>> waited_for("wgmma_group", "wgmma", "st.shared", "", True)[:51]
    'Execute wgmma.wait_group for the wgmma before the s'
    """
    if done_by not in _WAITS or (done_by == "mbarrier" and not mbarrier):
        return None
    return (_WAITS[done_by] + _FIRST).format(
        work=work, other=other, mbarrier=mbarrier, read=".read" * only_read
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
    far = now.block != before.block
    match before.kind:
        case layout.COUNTED if before.mbarrier is not None:
            return _WAIT
        case layout.COUNTED:
            return rules.GLOBAL_RACE.repair if far else _USED
        case layout.WARPGROUP:
            return _PRODUCT
        case layout.COMMITTED:
            return _COMMITTED if now.rank == before.rank else _PEER
        case "cp.async":
            wait = "cp.async.wait_group and a barrier"
            return f"Let {{access}} come after {wait} of the threads that issued it."
        case "bulk-read":
            return _GROUP.replace("{wait}", "cp.async.bulk.wait_group.read").replace(
                "{others}", others
            )
        case "bulk-write":
            return (
                (_TOLD if far else _GROUP)
                .replace("{wait}", "cp.async.bulk.wait_group")
                .replace("{others}", others)
            )
        case "released":
            return _POLLED
    if now.kind not in ("warp", "cp.async"):
        phrase = _READERS if now_write else _WRITERS
        if now.rank == before.rank:
            return phrase
        return phrase.replace("a barrier", "a barrier of the cluster")
    return BETWEEN


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
