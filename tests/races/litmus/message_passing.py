"""Litmus tests: message passing."""

from __future__ import annotations

from tests.races.litmus.rows import (
    ALLOWED,
    DARTAGNAN,
    FORBIDDEN,
    MIXED,
    ORDERED,
    RACE,
    Topic,
)

litmus = Topic("Message passing")

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
