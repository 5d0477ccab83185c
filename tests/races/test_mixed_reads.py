"""A plain load without order to atomic operations: an error if its value is used."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx

USES = {
    "nowhere": ("", "info"),
    "stored": ("st.global.u32 [%own], %r1;", "error"),
    "decides, through shared memory": (
        """st.shared.u32 [%s], %r1;
    bar.sync 0;
    ld.shared.u32 %r2, [%s];
    setp.gt.u32 %p1, %r2, 3;
    @%p1 st.global.u32 [%own], %lane;""",
        "error",
    ),
    "a test before an atomic operation": (
        """setp.gt.u32 %p1, %r1, 3;
    @%p1 red.global.add.u32 [%counts], 1;""",
        "info",
    ),
    "compare-and-swap": (
        """add.u32 %r2, %r1, 1;
    atom.global.cas.b32 %r3, [%counts], %r1, %r2;
    setp.eq.u32 %p1, %r3, %r1;
    @%p1 st.global.u32 [%own], 1;""",
        "info",
    ),
}
TEXT = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry adds(.param .u64 x, .param .u64 y)
{{
    .shared .align 4 .b8 sums[128];
    .reg .pred %p1;
    .reg .b32 %r<8>; .reg .b32 %s; .reg .b32 %lane; .reg .b32 %part;
    .reg .b64 %counts; .reg .b64 %own; .reg .b64 %w;
    ld.param.u64 %counts, [x];
    ld.param.u64 %own, [y];
    mov.u32 %lane, %tid.x;
    mov.u32 %part, %ctaid.x;
    mul.wide.u32 %w, %lane, 4;
    add.u64 %counts, %counts, %w;
    mad.wide.u32 %own, %part, 128, %own;
    add.u64 %own, %own, %w;
    mov.u32 %s, sums;
    mad.lo.u32 %s, %lane, 4, %s;
    red.global.add.u32 [%counts], %part;
    ld.global.u32 %r1, [%counts];
    {use}
    ret;
}}"""


@pytest.mark.parametrize("use", USES)
def test_a_read_beside_atomic_operations(use: str) -> None:
    text, severity = USES[use]
    made = ptx.parse(TEXT.format(use=text)).kernels["adds"]
    given = [np.zeros(32, np.uint32), np.zeros(128, np.uint32)]
    found = made.launch(4, 32, given, watch="report").hazards
    races = {e.severity for e in found if e.rule == "global-race"}
    assert ("error" in races) == (severity == "error")
