"""Litmus tests: mbarriers."""

from __future__ import annotations

from tests.races.litmus.rows import (
    ALLOWED,
    FORBIDDEN,
    GLOBAL,
    MBARRIER,
    ORDERED,
    RACE,
    SHARED,
    Topic,
)

litmus = Topic("mbarriers")

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
