"""Litmus tests: coherence and observation."""

from __future__ import annotations

from tests.races.litmus.rows import (
    ALLOWED,
    DARTAGNAN,
    FORBIDDEN,
    ORDERED,
    RACE,
    Topic,
)

litmus = Topic("Coherence and observation")

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
