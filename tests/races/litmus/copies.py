"""Litmus tests: asynchronous copies and proxies."""

from __future__ import annotations

from tests.races.litmus.rows import (
    EARLY,
    ORDERED,
    OVERWRITTEN,
    PROXY,
    RACE,
    Topic,
)

litmus = Topic("Asynchronous copies and proxies")

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
