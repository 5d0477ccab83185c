"""Litmus tests: store buffering, load buffering, independent reads."""

from __future__ import annotations

from tests.races.litmus.rows import (
    ALLOWED,
    DARTAGNAN,
    FORBIDDEN,
    ORDERED,
    RACE,
    Topic,
)

litmus = Topic("Store buffering, load buffering, independent reads")

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
