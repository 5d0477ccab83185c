"""Litmus tests: barriers."""

from __future__ import annotations

from tests.races.litmus.rows import (
    ALLOWED,
    DARTAGNAN,
    FORBIDDEN,
    ORDERED,
    RACE,
    Topic,
)

litmus = Topic("Barriers")

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
