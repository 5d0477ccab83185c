"""Litmus tests: atomicity."""

from __future__ import annotations

from tests.races.litmus.rows import (
    ALLOWED,
    FORBIDDEN,
    MANUAL,
    ORDERED,
    RACE,
    SHARED,
    Topic,
)

litmus = Topic("Atomicity")

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
    "the load is weak, and its value is used",
)
litmus(
    "Atomicity-optimistic-load",
    "grid",
    """
    atom.add x 1 | ld x
                 | atom.add x 1
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
