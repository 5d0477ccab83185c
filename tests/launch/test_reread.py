"""Memory is kept for a second run only if the kernel may load what it stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta.launch import scheduled_runs
from tests.simt.kernels import kernel

HEAD = """
    ld.param.u64 %rd1, [x]; ld.param.u32 %r9, [n]; mad.wide.u32 %rd2, %t, %r9, %rd1;
"""
PLACE = "mov.u32 %r2, tile; mad.lo.u32 %r2, %t, 4, %r2;"
BODIES = {
    "stores only": ("st.global.u32 [%mine], %t;", 0),
    "loads one, stores the other": (
        "ld.global.u32 %r1, [%rd2]; st.global.u32 [%mine], %r1;",
        0,
    ),
    "in place": ("ld.global.u32 %r1, [%mine]; st.global.u32 [%mine], %r1;", 1),
    "both in place": (
        "ld.global.u32 %r1, [%mine]; st.global.u32 [%mine], %r1;"
        "ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd2], %r1;",
        2,
    ),
    "an atomic": ("red.global.add.u32 [%mine], 1;", 1),
    "either of two": (
        "setp.eq.u32 %p1, %t, 3; selp.b64 %rd3, %rd2, %mine, %p1;"
        "ld.global.u32 %r1, [%rd3]; st.global.u32 [%mine], %r1;",
        1,
    ),
    "a loaded address": (
        "ld.global.u64 %rd3, [%rd1]; setp.eq.u64 %p1, %rd3, 1;"
        "@%p1 st.global.u32 [%rd3], %t; st.global.u32 [%mine], %t;",
        2,
    ),
    "a packed address": (
        "ld.global.u32 %r1, [%rd1]; mov.b64 %rd3, {%r1, %r1}; setp.eq.u32 %p1, %r1, 9;"
        "@%p1 ld.global.u32 %r1, [%rd3]; st.global.u32 [%mine], %r1;",
        2,
    ),
    "cp.async": (
        PLACE + "cp.async.ca.shared.global [%r2], [%rd2], 4; cp.async.wait_all;"
        "st.global.u32 [%mine], 5;",
        0,
    ),
    "cp.async in place": (
        PLACE + "cp.async.ca.shared.global [%r2], [%mine], 4; cp.async.wait_all;"
        "st.global.u32 [%mine], 5;",
        1,
    ),
    "an index": (
        "ld.global.u32 %r1, [%rd2]; and.b32 %r1, %r1, 7; mad.wide.u32 %rd3, %r1, 4, %out;"
        "st.global.u32 [%rd3], 5;",
        0,
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_only_what_is_loaded_and_stored_is_kept(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, count = BODIES[name]
    kept: list[int] = []
    copies = scheduled_runs.copies

    def copied(*given: Any) -> Any:
        found = copies(*given)
        kept.append(sum(each is not None for each in found))
        return found

    monkeypatch.setattr(scheduled_runs, "copies", copied)
    tile = ".shared .align 16 .b32 tile[32];" * ("tile" in body)
    made = kernel(tile + HEAD + body + "ret;", ".param .u64 x, .param .u32 n")
    given = [np.zeros(64, np.uint32), np.zeros(64, np.uint32), np.uint32(4)]
    made.launch(1, 32, given)
    assert kept == [count]
    given[1].flags.writeable = False
    if "rd2], %r1; st" not in body and name != "both in place":
        kept.clear()
        made.launch(1, 32, given)
        assert kept == [min(count, 1)]


def test_a_second_run_begins_as_the_first_did() -> None:
    """It follows a racy load of memory that is changed in place."""
    body = """
    ld.global.u32 %r1, [%mine];
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p1, %t, 32;
    ld.param.u64 %rd1, [x];
    and.b32 %r2, %t, 31;
    mad.wide.u32 %rd2, %r2, 4, %rd1;
    ld.global.u32 %r3, [%rd2];
    @%p1 st.global.u32 [%rd2], %r1;
    st.global.u32 [%mine], %r1;
    ret;
    """
    out, x = np.zeros(64, np.uint32), np.full(32, 9, np.uint32)
    made = kernel(body, ".param .u64 x")
    result = made.launch(1, 64, [out, x], watch="report")
    assert [(e.rule, e.severity) for e in result.hazards] == [("global-race", "info")]
    assert (out == 1).all()
    assert (x == 1).all()
