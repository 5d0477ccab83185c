"""The litmus tests: programs, what the model says, and what is reported here.

``model`` is the verdict of the PTX memory model on executions in which every loop ends:
``ordered`` (every pair of conflicting accesses is ordered, or both are morally strong)
or ``race``.  ``weak`` says whether the model allows the outcome that the test is named
after; it is empty where no outcome is in question.  ``report`` is the rule that a launch
reports, or nothing.  Where the report does not follow from the verdict, ``differs`` says
why.
"""

from __future__ import annotations

from typing import NamedTuple

from tests.races.litmus.notation import Program

ORDERED, RACE = "ordered", "race"
ALLOWED, FORBIDDEN = "allowed", "forbidden"
GLOBAL, SHARED, MBARRIER = "global-race", "shared-race", "mbarrier"
EARLY, PROXY = "read-before-arrival", "missing-proxy-fence"
OVERWRITTEN = "overwrite-while-read"
MANUAL, MIXED, DARTAGNAN = "PTX ISA", "mixedproxy", "Dartagnan"
"""Where a test was published: the manual of PTX, NVIDIA's mixedproxy, Dat3M."""


class Litmus(NamedTuple):
    """One test."""

    name: str
    topic: str
    program: Program
    model: str
    why: str
    report: str = ""
    weak: str = ""
    published: str = ""
    """Where a test of this name is found."""
    differs: str = ""
    lazy: bool = False
    """Whether the schedule ``lazy`` leaves other results than ``eager``."""


TESTS: list[Litmus] = []
_TOPIC = [""]


def topic(name: str) -> None:
    """What the following tests are about."""
    _TOPIC[0] = name


def litmus(
    name: str,
    at: str,
    text: str,
    model: str,
    why: str,
    *,
    counts: tuple[int, ...] = (),
    report: str | None = None,
    weak: str = "",
    published: str = "",
    differs: str = "",
    lazy: bool = False,
) -> None:
    """Add a test; a race of the model is reported as one, if nothing else is said."""
    program = Program(text, at, counts)
    said = (GLOBAL if model == RACE else "") if report is None else report
    fields = (said, weak, published, differs, lazy)
    TESTS.append(Litmus(name, _TOPIC[0], program, model, why, *fields))


# ── message passing ─────────────────────────────────────────────────────────

topic("Message passing")
litmus(
    "MP-weak",
    "grid",
    """
    st x 1 | ld f == 1
    st f 1 | ld x
    """,
    RACE,
    "nothing is strong",
    weak=ALLOWED,
)
litmus(
    "MP-relaxed-flag",
    "grid",
    """
    st x 1             | ld.relaxed.gpu f == 1
    st.relaxed.gpu f 1 | ld x
    """,
    RACE,
    "the flag is strong, but neither releases nor acquires",
    weak=ALLOWED,
)
litmus(
    "MP-relaxed",
    "warps",
    """
    st.release.sys x 1 | ld.relaxed.sys y
    st.release.sys y 1 | ld.acquire.gpu x
    """,
    ORDERED,
    "all accesses are morally strong, so none races; a relaxed load does not acquire",
    weak=ALLOWED,
    published=DARTAGNAN,
)
for _scope, _place in (("gpu", "warps"), ("gpu", "grid"), ("sys", "grid")):
    litmus(
        "MP-gpu" if _scope == "gpu" else "MP-sys",
        _place,
        f"""
        st x 1                  | ld.acquire.{_scope} y == 1
        st.release.{_scope} y 1 | ld x
        """,
        ORDERED,
        "a release synchronises with the acquire that reads its value",
        weak=FORBIDDEN,
        published=DARTAGNAN,
    )
litmus(
    "MP-cta",
    "grid",
    """
    st x 1             | ld.acquire.cta y == 1
    st.release.cta y 1 | ld x
    """,
    RACE,
    "the scopes do not include the other thread",
    weak=ALLOWED,
    published=DARTAGNAN,
)
litmus(
    "MP-cta-gpu",
    "warps",
    """
    st x 1             | ld.acquire.gpu y == 1
    st.release.cta y 1 | ld x
    """,
    ORDERED,
    "each scope includes the other thread, though they are not the same",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
for _given, _taken in (("cta", "gpu"), ("gpu", "cta"), ("cluster", "gpu")):
    litmus(
        f"MP-{_given}-{_taken}-far",
        "grid",
        f"""
        st x 1                  | ld.acquire.{_taken} y == 1
        st.release.{_given} y 1 | ld x
        """,
        RACE,
        "one scope is too small: both must include the other thread",
        weak=ALLOWED,
    )
litmus(
    "MP-cluster",
    "cluster",
    """
    st x 1                 | ld.acquire.cluster y == 1
    st.release.cluster y 1 | ld x
    """,
    ORDERED,
    "both threads are in the cluster",
    weak=FORBIDDEN,
)
litmus(
    "MP-cta-in-a-cluster",
    "cluster",
    """
    st x 1             | ld.acquire.cluster y == 1
    st.release.cta y 1 | ld x
    """,
    RACE,
    "the scope of the release is the block",
    weak=ALLOWED,
)
for _place in ("warps", "grid"):
    litmus(
        "MP-sys-fence",
        _place,
        """
        st x 1             | ld.relaxed.sys y == 1
        fence.acq_rel.sys  | fence.acq_rel.sys
        st.relaxed.sys y 1 | ld x
        """,
        ORDERED,
        "a fence and a strong write are a release pattern, a strong read and a fence "
        "an acquire pattern",
        weak=FORBIDDEN,
        published=DARTAGNAN,
    )
litmus(
    "MP-narrow-fence",
    "grid",
    """
    st x 1             | ld.acquire.gpu y == 1
    fence.acq_rel.cta  | ld x
    st.relaxed.gpu y 1 |
    """,
    RACE,
    "the first operation of the release pattern is the fence; its scope is the block",
    weak=ALLOWED,
)
litmus(
    "MP-narrow-store",
    "grid",
    """
    st x 1             | ld.acquire.gpu y == 1
    fence.acq_rel.gpu  | ld x
    st.relaxed.cta y 1 |
    """,
    RACE,
    "the store and the load are not morally strong",
    weak=ALLOWED,
)
litmus(
    "MICRO24-Fig4a",
    "grid",
    """
    st x 1             | ld.relaxed.sys f == 1
    fence.sc.gpu       | fence.sc.cta
    st.relaxed.sys f 1 | ld x
    """,
    RACE,
    "the last operation of the acquire pattern is the fence; its scope is the block",
    weak=ALLOWED,
    published=DARTAGNAN,
)
litmus(
    "MICRO24-Fig4a-correct",
    "grid",
    """
    st x 1             | ld.relaxed.sys f == 1
    fence.sc.gpu       | fence.sc.gpu
    st.relaxed.sys f 1 | ld x
    """,
    ORDERED,
    "fence.sc is also a release and an acquire",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
litmus(
    "MP-one-sided-fences",
    "grid",
    """
    st x 1             | ld.relaxed.gpu f == 1
    fence.release.gpu  | fence.acquire.gpu
    st.relaxed.gpu f 1 | ld x
    """,
    ORDERED,
    "one fence releases, the other acquires",
    weak=FORBIDDEN,
)
litmus(
    "MP-wrong-sided-fence",
    "grid",
    """
    st x 1             | ld.acquire.gpu f == 1
    fence.acquire.gpu  | ld x
    st.relaxed.gpu f 1 |
    """,
    RACE,
    "fence.acquire does not release",
    weak=ALLOWED,
)
litmus(
    "MP-volatile",
    "grid",
    """
    st x 1          | ld.volatile f == 1
    membar.gl       | membar.gl
    st.volatile f 1 | ld x
    """,
    ORDERED,
    "volatile is relaxed.sys, membar.gl is fence.sc.gpu",
    weak=FORBIDDEN,
)
litmus(
    "MP-3-transitive",
    "two blocks",
    """
    st x 1             | ld.acquire.cta y == 1 | ld.acquire.gpu z == 1
    st.release.cta y 1 | st.release.gpu z 1    | ld x
    """,
    ORDERED,
    "causality order is transitive, through any scopes that fit each step",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
litmus(
    "MP-3-narrow-step",
    "grid",
    """
    st x 1             | ld.acquire.gpu y == 1 | ld.acquire.gpu z == 1
    st.release.cta y 1 | st.release.gpu z 1    | ld x
    """,
    RACE,
    "the first step does not synchronise, so the chain does not begin",
    weak=ALLOWED,
)
litmus(
    "MP+RMW",
    "grid",
    """
    st x 1             | ld.relaxed.gpu y == 1     | ld.acquire.gpu y == 2
    st.release.gpu y 1 | atom.relaxed.gpu.add y 1  | ld x
    """,
    ORDERED,
    "observation goes on through atomic operations",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
litmus(
    "MP+store",
    "grid",
    """
    st x 1             | ld.relaxed.gpu y == 1 | ld.acquire.gpu y == 2
    st.release.gpu y 1 | st.relaxed.gpu y 2    | ld x
    """,
    RACE,
    "a store of another thread ends the observation: it does not read",
    weak=ALLOWED,
)
litmus(
    "Release-acquire-pattern",
    "grid",
    """
    st y 1             | ld.relaxed.sys x == 2
    st.release.sys x 1 | fence.acq_rel.sys
    st.relaxed.sys x 2 | ld y
    """,
    ORDERED,
    "a release followed by a strong write of the same thread is a release pattern",
    weak=FORBIDDEN,
    published=MIXED,
)
litmus(
    "MP-red-does-not-acquire",
    "grid",
    """
    st x 1             | red.relaxed.gpu.add y 1
    st.release.gpu y 1 | fence.acq_rel.gpu
                       | ld x
    """,
    RACE,
    "the read of a reduction is no part of an acquire pattern",
    weak=ALLOWED,
)
litmus(
    "MP-poll-then-barrier",
    "two blocks",
    """
    bar.sync 0 | bar.sync 0 | ld.relaxed.gpu f == 1 | bar.sync 0
    st x 1     |            | bar.sync 0            | ld x
    st.release.gpu f 1 | | |
    """,
    RACE,
    "a barrier makes no acquire of a relaxed load",
    report="",
    weak=ALLOWED,
    differs="shipped kernels poll with relaxed loads and go on behind a barrier",
)
litmus(
    "MP-fence-of-another-thread",
    "two blocks",
    """
    st x 1            | bar.sync 0               | ld.acquire.gpu f == 1
    fence.acq_rel.gpu | st.relaxed.gpu f 1       | ld x
    bar.sync 0        |                          |
    """,
    RACE,
    "the fence is not in the thread that writes the flag",
    report="",
    weak=ALLOWED,
    differs="a fence counts if it happened before the write: kernels let all threads "
    "execute it before a barrier",
)

# ── store buffering, load buffering, independent reads ──────────────────────

topic("Store buffering, load buffering, independent reads")
litmus(
    "SB-weak",
    "grid",
    """
    st x 1 | st y 1
    ld y   | ld x
    """,
    RACE,
    "nothing is strong",
    weak=ALLOWED,
    published=DARTAGNAN,
)
litmus(
    "SB+sc-gpu",
    "grid",
    """
    st x 1       | st y 1
    fence.sc.gpu | fence.sc.gpu
    ld y         | ld x
    """,
    RACE,
    "fence.sc orders one of the two pairs; the other one is in no order",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
litmus(
    "SB+sc-gpu-strong",
    "grid",
    """
    st.relaxed.gpu x 1 | st.relaxed.gpu y 1
    fence.sc.gpu       | fence.sc.gpu
    ld.relaxed.gpu y   | ld.relaxed.gpu x
    """,
    ORDERED,
    "all accesses are morally strong; Fence-SC forbids that both read 0",
    weak=FORBIDDEN,
)
litmus(
    "SB+sc-cta-outScope",
    "grid",
    """
    st.relaxed.gpu x 1 | st.relaxed.gpu y 1
    fence.sc.cta       | fence.sc.cta
    ld.relaxed.gpu y   | ld.relaxed.gpu x
    """,
    ORDERED,
    "no race; the fences are not morally strong, so they are in no Fence-SC order",
    weak=ALLOWED,
    published=DARTAGNAN,
)
litmus(
    "SB+acq_rel-cta",
    "warps",
    """
    st.release.cta x 1 | st.release.cta y 1
    fence.acq_rel.cta  | fence.acq_rel.cta
    ld.acquire.cta y   | ld.acquire.cta x
    """,
    ORDERED,
    "no race; only fence.sc orders a store before a later load",
    weak=ALLOWED,
    published=DARTAGNAN,
)
litmus(
    "LB-weak",
    "grid",
    """
    ld x   | ld y
    st y 1 | st x 1
    """,
    RACE,
    "nothing is strong",
    weak=ALLOWED,
)
litmus(
    "LB-relaxed",
    "grid",
    """
    ld.relaxed.gpu x   | ld.relaxed.gpu y
    st.relaxed.gpu y 1 | st.relaxed.gpu x 1
    """,
    ORDERED,
    "no race; No Thin Air forbids only values that depend on themselves",
    weak=ALLOWED,
)
litmus(
    "IRIW-relaxed",
    "grid",
    """
    st.relaxed.gpu x 1 | ld.relaxed.gpu x | ld.relaxed.gpu y | st.relaxed.gpu y 1
                       | ld.relaxed.gpu y | ld.relaxed.gpu x |
    """,
    ORDERED,
    "no race; two readers may see the stores in different orders",
    weak=ALLOWED,
)
litmus(
    "IRIW-acquire",
    "grid",
    """
    st.release.gpu x 1 | ld.acquire.gpu x | ld.acquire.gpu y | st.release.gpu y 1
                       | ld.acquire.gpu y | ld.acquire.gpu x |
    """,
    ORDERED,
    "no race; the model is not multi-copy atomic",
    weak=ALLOWED,
)
litmus(
    "IRIW-sc",
    "grid",
    """
    st.relaxed.gpu x 1 | ld.relaxed.gpu x | ld.relaxed.gpu y | st.relaxed.gpu y 1
                       | fence.sc.gpu     | fence.sc.gpu     |
                       | ld.relaxed.gpu y | ld.relaxed.gpu x |
    """,
    ORDERED,
    "no race; Fence-SC makes the readers agree",
    weak=FORBIDDEN,
)
litmus(
    "IRIW-weak",
    "grid",
    """
    st x 1 | ld x | ld y | st y 1
           | ld y | ld x |
    """,
    RACE,
    "nothing is strong",
    weak=ALLOWED,
)

# ── coherence and observation ───────────────────────────────────────────────

topic("Coherence and observation")
litmus(
    "CoRR-acquire-weak",
    "grid",
    """
    st.release.gpu x 1 | ld.acquire.gpu x == 1
                       | ld x
    """,
    ORDERED,
    "who has read the value comes after its write",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
litmus(
    "CoRR-weak-weak",
    "grid",
    """
    st.release.gpu x 1 | ld x == 1
                       | ld x
    """,
    RACE,
    "a weak load is not morally strong with the store",
    weak=ALLOWED,
    published=DARTAGNAN,
)
litmus(
    "CoRR-relaxed",
    "grid",
    """
    st.relaxed.gpu x 1 | ld.relaxed.gpu x
                       | ld.relaxed.gpu x
    """,
    ORDERED,
    "Sequential Consistency Per Location",
    weak=FORBIDDEN,
)
litmus(
    "CoRRW-weak-between",
    "grid",
    """
    st.release.gpu x 1 | ld.relaxed.gpu x == 1
                       | ld x
                       | st x 2
    """,
    ORDERED,
    "a weak load between the two does not end it",
    weak=FORBIDDEN,
)
litmus(
    "CoRRW-shared",
    "warps",
    """
    st.relaxed.cta sx 1 | ld.relaxed.cta sx == 1
                        | ld sx
                        | st sx 2
    """,
    ORDERED,
    "the same in shared memory",
    weak=FORBIDDEN,
)
litmus(
    "CoRW",
    "grid",
    """
    st.release.gpu x 1 | ld.acquire.gpu x == 1
                       | st x 2
    """,
    ORDERED,
    "the store comes after the write whose value was read",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
litmus(
    "CoWR",
    "grid",
    """
    st.release.gpu x 1 | st.release.gpu x 2
                       | ld x
    """,
    RACE,
    "nothing orders the weak load and the store of the other thread",
    report="",
    weak=FORBIDDEN,
    published=DARTAGNAN,
    differs="a word keeps its last write only, which here is the thread's own",
)
litmus(
    "CoWW",
    "warps",
    """
    st x 1
    st x 2
    """,
    ORDERED,
    "program order",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
litmus(
    "CoWW-two-threads",
    "grid",
    """
    st x 1 | st x 2
    """,
    RACE,
    "nothing is strong",
)
litmus(
    "CoWW-RR",
    "warps",
    """
    st x 1 | ld x
    st x 2 | ld x
    """,
    RACE,
    "nothing is strong",
    weak=ALLOWED,
    published=DARTAGNAN,
)
litmus(
    "Coherence",
    "warps",
    """
    st.relaxed.sys x 1 | st.relaxed.sys x 2 | ld.acquire.sys x | ld.acquire.sys x
                       |                    | ld.acquire.sys x | ld.acquire.sys x
    """,
    ORDERED,
    "morally strong writes are in one coherence order",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
litmus(
    "Coherence-weak",
    "warps",
    """
    st x 1 | st x 2 | ld.acquire.sys x | ld.acquire.sys x
           |        | ld.acquire.sys x | ld.acquire.sys x
    """,
    RACE,
    "the stores are weak",
    weak=ALLOWED,
    published=DARTAGNAN,
)
litmus(
    "Cause-base-strong",
    "grid",
    """
    st.release.gpu x 1 | ld.acquire.gpu x == 1 | ld.acquire.sys f == 1
                       | st x 2                | ld x
                       | st.release.sys f 1    |
    """,
    ORDERED,
    "observation, then base causality order",
    weak=FORBIDDEN,
    published=DARTAGNAN,
)
for _load in ("ld.acquire.gpu", "ld.relaxed.gpu"):
    litmus(
        f"Lock-reset-{_load[3:10]}",
        "grid",
        f"""
        fence.acq_rel.gpu         | {_load} f == 1
        red.relaxed.gpu.add f 1   | st f 0
        """,
        ORDERED,
        "the plain store comes after the reduction whose value was read",
    )
litmus(
    "Lock-reset-weak",
    "grid",
    """
    fence.acq_rel.gpu         | ld f == 1
    red.relaxed.gpu.add f 1   | st f 0
    """,
    RACE,
    "a weak load observes nothing",
)
litmus(
    "Lock-reset-narrow",
    "grid",
    """
    fence.acq_rel.gpu         | ld.acquire.gpu f == 1
    red.relaxed.cta.add f 1   | st f 0
    """,
    RACE,
    "the reduction and the load are not morally strong",
)
litmus(
    "Lock-reset-chain",
    "grid",
    """
    red.relaxed.gpu.add f 1 | ld.relaxed.gpu f == 1   | ld.relaxed.gpu f == 2
                            | red.relaxed.gpu.add f 1 | st f 0
    """,
    ORDERED,
    "observation goes on through atomic operations",
)
litmus(
    "Lock-reset-behind-a-barrier",
    "two blocks",
    """
    red.relaxed.gpu.add f 1 | | ld.relaxed.gpu f == 1 | bar.sync 0
                            | | bar.sync 0            | st f 0
    """,
    ORDERED,
    "the barrier orders the load before the store of the other thread",
)

# ── atomicity ───────────────────────────────────────────────────────────────

topic("Atomicity")
litmus(
    "Atomicity-1",
    "grid",
    """
    atom.relaxed.sys.add x 1 | atom.relaxed.sys.add x 1
    """,
    ORDERED,
    "both are morally strong, so no increment is lost",
    weak=FORBIDDEN,
    published=MANUAL,
)
litmus(
    "Atomicity-2",
    "grid",
    """
    atom.relaxed.cta.add x 1 | atom.relaxed.gpu.add x 1
    """,
    RACE,
    "one scope leaves the other block out, so an increment may be lost",
    weak=ALLOWED,
    published=MANUAL,
)
for _place, _good in (("cluster", True), ("grid", False)):
    litmus(
        "Atomicity-cluster",
        _place,
        """
        atom.relaxed.cluster.add x 1 | atom.relaxed.cluster.add x 1
        """,
        ORDERED if _good else RACE,
        f"the threads are {'' if _good else 'not '}in one cluster",
        weak=FORBIDDEN if _good else ALLOWED,
    )
litmus(
    "Atomicity-default",
    "grid",
    """
    atom.add x 1 | red.add x 1
    """,
    ORDERED,
    "without a scope, atomic operations mean the GPU",
    weak=FORBIDDEN,
)
litmus(
    "Atomicity-weak-store",
    "grid",
    """
    atom.add x 1 | st x 5
    """,
    RACE,
    "the store is weak",
    weak=ALLOWED,
)
litmus(
    "Atomicity-weak-load",
    "grid",
    """
    atom.add x 1 | ld x
    """,
    RACE,
    "the load is weak",
    report="",
    differs="information only: loops with compare-and-swap begin with such a load",
)
for _scope, _good in (("cta", False), ("cluster", True), ("gpu", True)):
    litmus(
        f"Atomicity-shared-{_scope}",
        "cluster",
        f"""
        atom.relaxed.{_scope}.add sx 1 | atom.relaxed.{_scope}.add sx 1
        """,
        ORDERED if _good else RACE,
        "the shared memory of another block; the scope "
        + ("includes its threads" if _good else "is the block"),
        report="" if _good else SHARED,
        weak=FORBIDDEN if _good else ALLOWED,
    )
litmus(
    "Atomicity-shared-own",
    "warps",
    """
    atom.relaxed.cta.add sx 1 | atom.relaxed.cta.add sx 1
    """,
    ORDERED,
    "both threads are in the block",
    weak=FORBIDDEN,
)

# ── barriers ────────────────────────────────────────────────────────────────

topic("Barriers")
litmus(
    "Barrier",
    "warps",
    """
    st x 1     | bar.sync 0
    bar.sync 0 | ld x
    """,
    ORDERED,
    "bar.sync synchronises the block",
    weak=FORBIDDEN,
)
litmus(
    "Barrier-arrive",
    "warps",
    """
    st x 1           | bar.sync 1, 64
    bar.arrive 1, 64 | ld x
    """,
    ORDERED,
    "who arrives comes before who waits",
    weak=FORBIDDEN,
)
litmus(
    "Barrier-arrive-reversed",
    "warps",
    """
    ld x             | bar.sync 1, 64
    bar.arrive 1, 64 | st y 1
    ld y             | st x 1
    """,
    RACE,
    "who arrives does not wait: its later accesses are in no order",
)
litmus(
    "SB+bar-diff-cta",
    "grid",
    """
    st x 1     | bar.sync 0
    bar.sync 0 | ld x
    """,
    RACE,
    "a barrier is one of its block",
    weak=ALLOWED,
    published=DARTAGNAN,
)
litmus(
    "Barrier-warp",
    "lanes",
    """
    st x 1          | bar.warp.sync 3
    bar.warp.sync 3 | ld x
    """,
    ORDERED,
    "bar.warp.sync synchronises the lanes of its mask",
    weak=FORBIDDEN,
)
litmus(
    "Barrier-no-warp",
    "lanes",
    """
    st x 1 | ld x
    """,
    RACE,
    "lanes of a warp are threads like others",
    weak=ALLOWED,
)
litmus(
    "Barrier-cluster",
    "cluster",
    """
    st x 1                 | barrier.cluster.arrive
    barrier.cluster.arrive | barrier.cluster.wait
    barrier.cluster.wait   | ld x
    """,
    ORDERED,
    "arrive releases and wait acquires, for the cluster",
    weak=FORBIDDEN,
)
litmus(
    "Barrier-cluster-relaxed",
    "cluster",
    """
    st x 1                         | barrier.cluster.arrive
    barrier.cluster.arrive.relaxed | barrier.cluster.wait
    barrier.cluster.wait           | ld x
    """,
    RACE,
    "a relaxed arrival does not release",
    weak=ALLOWED,
)
for _scope, _good in (("cluster", True), ("cta", False)):
    litmus(
        f"Barrier-cluster-fence-{_scope}",
        "cluster",
        f"""
        st x 1                         | barrier.cluster.arrive
        fence.acq_rel.{_scope}         | barrier.cluster.wait
        barrier.cluster.arrive.relaxed | ld x
        barrier.cluster.wait           |
        """,
        ORDERED if _good else RACE,
        "a fence releases before a relaxed arrival"
        + ("" if _good else ", but not for another block"),
        weak=FORBIDDEN if _good else ALLOWED,
    )

# ── mbarriers ───────────────────────────────────────────────────────────────

topic("mbarriers")
litmus(
    "MB",
    "warps",
    """
    mbarrier.try_wait m 0 | st sx 1
    ld sx                 | mbarrier.arrive m
    """,
    ORDERED,
    "arrive releases and a wait that returns true acquires, for the block",
    counts=(1,),
    weak=FORBIDDEN,
)
litmus(
    "MB-no-wait",
    "warps",
    """
    ld sx                 | st sx 1
    mbarrier.try_wait m 0 | mbarrier.arrive m
    """,
    RACE,
    "the read comes before the wait",
    counts=(1,),
    report=SHARED,
    weak=ALLOWED,
)
litmus(
    "MB-relaxed-arrive",
    "warps",
    """
    mbarrier.try_wait m 0 | st sx 1
    ld sx                 | mbarrier.arrive.relaxed.cta m
    """,
    RACE,
    "a relaxed arrival does not release",
    counts=(1,),
    report=SHARED,
    weak=ALLOWED,
)
litmus(
    "MB-relaxed-arrive-fence",
    "warps",
    """
    mbarrier.try_wait m 0 | st sx 1
    ld sx                 | fence.acq_rel.cta
                          | mbarrier.arrive.relaxed.cta m
    """,
    ORDERED,
    "a fence and a relaxed arrival are a release pattern",
    counts=(1,),
    weak=FORBIDDEN,
)
litmus(
    "MB-relaxed-wait",
    "warps",
    """
    mbarrier.try_wait.relaxed.cta m 0 | st sx 1
    ld sx                             | mbarrier.arrive m
    """,
    RACE,
    "a relaxed wait does not acquire",
    counts=(1,),
    report=SHARED,
    weak=ALLOWED,
)
litmus(
    "MB-relaxed-wait-fence",
    "warps",
    """
    mbarrier.try_wait.relaxed.cta m 0 | st sx 1
    fence.acq_rel.cta                 | mbarrier.arrive m
    ld sx                             |
    """,
    ORDERED,
    "a relaxed wait and a fence are an acquire pattern",
    counts=(1,),
    weak=FORBIDDEN,
)
litmus(
    "MB-remote",
    "cluster",
    """
    mbarrier.try_wait.acquire.cluster m 0 | st x 1
    ld x                                  | mbarrier.arrive.release.cluster m
    """,
    ORDERED,
    "both scopes are the cluster",
    counts=(1,),
    weak=FORBIDDEN,
)
litmus(
    "MB-remote-cta",
    "cluster",
    """
    mbarrier.try_wait.acquire.cluster m 0 | st x 1
    ld x                                  | mbarrier.arrive.release.cta m
    """,
    RACE,
    "the scope of the arrival leaves out the block that waits",
    counts=(1,),
    report=f"{GLOBAL} {MBARRIER}",
    weak=ALLOWED,
)
litmus(
    "MB-remote-default",
    "cluster",
    """
    mbarrier.try_wait m 0 | st x 1
    ld x                  | mbarrier.arrive m
    """,
    RACE,
    "without a scope, an arrival means the block",
    counts=(1,),
    report="",
    weak=ALLOWED,
    differs="CUTLASS, FlashAttention-3 and DeepGEMM arrive at other blocks without a "
    "scope; a warning with strict rules",
)
litmus(
    "MB-remote-wait-cta",
    "cluster",
    """
    mbarrier.try_wait.acquire.cta m 0 | st x 1
    ld x                              | mbarrier.arrive.release.cluster m
    """,
    RACE,
    "the scope of the wait leaves out the block that arrives",
    counts=(1,),
    report=MBARRIER,
    weak=ALLOWED,
    differs="a warning about the wait, not about each access after it",
)
litmus(
    "MB-remote-fence-cta",
    "cluster",
    """
    mbarrier.try_wait.acquire.cluster m 0 | st x 1
    ld x                                  | fence.acq_rel.cta
                                          | mbarrier.arrive.relaxed.cluster m
    """,
    RACE,
    "the scope of the fence is the block",
    counts=(1,),
    weak=ALLOWED,
)
litmus(
    "MB-remote-fence-cluster",
    "cluster",
    """
    mbarrier.try_wait.acquire.cluster m 0 | st x 1
    ld x                                  | fence.acq_rel.cluster
                                          | mbarrier.arrive.relaxed.cluster m
    """,
    ORDERED,
    "the scope of the fence includes the block that waits",
    counts=(1,),
    weak=FORBIDDEN,
)

# ── asynchronous copies and proxies ─────────────────────────────────────────

topic("Asynchronous copies and proxies")
litmus(
    "CP",
    "warps",
    """
    cp.async sx x
    cp.async.wait_all
    ld sx
    """,
    ORDERED,
    "the thread has waited for its own copy",
)
litmus(
    "CP-no-wait",
    "warps",
    """
    cp.async sx x
    ld sx
    cp.async.wait_all
    """,
    RACE,
    "program order does not wait for an asynchronous copy",
    report=EARLY,
    lazy=True,
)
litmus(
    "CP-other-thread",
    "warps",
    """
    cp.async sx x     | bar.sync 0
    cp.async.wait_all | ld sx
    bar.sync 0        |
    """,
    ORDERED,
    "a wait, and then a barrier",
)
litmus(
    "CP-barrier-without-wait",
    "warps",
    """
    cp.async sx x     | bar.sync 0
    bar.sync 0        | ld sx
    cp.async.wait_all |
    """,
    RACE,
    "a barrier does not wait for asynchronous copies",
    report=EARLY,
)
litmus(
    "CP-mbarrier",
    "warps",
    """
    mbarrier.try_wait m 0 | cp.async sx x
    ld sx                 | cp.async.mbarrier.arrive.noinc m
    """,
    ORDERED,
    "the mbarrier counts the copies of the thread",
    counts=(1,),
)
litmus(
    "Bulk",
    "warps",
    """
    mbarrier.try_wait m 0 | mbarrier.arrive.expect_tx m 16
    ld sx                 | bulk.load sx x m
    """,
    ORDERED,
    "complete_tx of the copy synchronises with the wait",
    counts=(1,),
)
litmus(
    "Bulk-no-wait",
    "warps",
    """
    mbarrier.arrive.expect_tx m 16
    bulk.load sx x m
    ld sx
    mbarrier.try_wait m 0
    """,
    RACE,
    "the copy need not be complete",
    counts=(1,),
    report=EARLY,
    lazy=True,
)
litmus(
    "Bulk-store-no-proxy-fence",
    "warps",
    """
    st sx 1
    bulk.store x sx
    bulk.commit_group
    bulk.wait_group 0
    """,
    RACE,
    "a generic store is not in the causality order of the async proxy",
    report=PROXY,
)
litmus(
    "Bulk-store",
    "warps",
    """
    st sx 1
    fence.proxy.async
    bulk.store x sx
    bulk.commit_group
    bulk.wait_group 0
    ld x
    """,
    ORDERED,
    "a proxy fence before the copy, and a wait after it",
)
litmus(
    "Bulk-proxy-fence-of-the-reader",
    "warps",
    """
    st sx 1    | bar.sync 0
    bar.sync 0 | fence.proxy.async
               | bulk.store x sx
               | bulk.commit_group
               | bulk.wait_group 0
    """,
    ORDERED,
    "the proxy fence may be anywhere on the path",
)
litmus(
    "Bulk-source-overwritten",
    "warps",
    """
    st sx 1
    fence.proxy.async
    bulk.store x sx
    bulk.commit_group
    st sx 2
    bulk.wait_group 0
    """,
    RACE,
    "the copy may still read its source",
    report=OVERWRITTEN,
    lazy=True,
)
litmus(
    "Bulk-source-read",
    "warps",
    """
    st sx 1
    fence.proxy.async
    bulk.store x sx
    bulk.commit_group
    bulk.wait_group.read 0
    st sx 2
    bulk.wait_group 0
    """,
    ORDERED,
    "wait_group.read: the source has been read",
)
litmus(
    "Bulk-result-not-waited-for",
    "warps",
    """
    st sx 1
    fence.proxy.async
    bulk.store x sx
    bulk.commit_group
    bulk.wait_group.read 0
    ld x
    bulk.wait_group 0
    """,
    RACE,
    "wait_group.read does not say that the result is written",
    lazy=True,
)
litmus(
    "Async-store",
    "cluster",
    """
    mbarrier.arrive.expect_tx m 4 | st.async sx 5 m
    mbarrier.try_wait m 0         |
    ld sx                         |
    """,
    ORDERED,
    "st.async signals an mbarrier of the same block",
    counts=(1,),
)

# ── products and tensor maps ────────────────────────────────────────────────


class Kernel(NamedTuple):
    """A kernel of ``tests/ptx/hazards`` that is a litmus test, too."""

    source: str
    entry: str
    bug: int
    why: str


KERNELS = [
    Kernel(
        "idioms", "ring_wgmma", 0, "wgmma reads what a copy wrote, after the mbarrier"
    ),
    Kernel("pairs", "written_operands", 0, "stores, a proxy fence, a barrier, wgmma"),
    Kernel("pairs", "written_operands", 1, "the same without the proxy fence"),
    Kernel("pairs", "early_release", 1, "a stage is refilled while wgmma may read it"),
    Kernel("products", "fences", 0, "registers, wgmma.fence, wgmma"),
    Kernel("products", "fences", 1, "the same without wgmma.fence"),
    Kernel("products", "early_store", 1, "an operand is overwritten before the wait"),
    Kernel("maps", "box", 0, "a box is loaded through a tensor map, then waited for"),
    Kernel("maps", "box", 1, "the box is read before it has arrived"),
    Kernel("maps", "made_map", 0, "a map is changed, fenced and then used"),
    Kernel("maps", "made_map", 1, "the proxy fence of the map is missing"),
    Kernel("tensor", "product", 0, "tcgen05.mma, commit, wait, tcgen05.ld"),
    Kernel("tensor", "product", 1, "tcgen05.ld does not wait for the product"),
    Kernel("tensor", "written_operand", 1, "tcgen05.mma reads stores without a fence"),
]
"""What the notation is too small for."""
