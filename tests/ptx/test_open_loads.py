"""Elements that Triton's ``tl.load`` masks off, in PTX as Triton writes it."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.ptx.open_loads import left_open, open_loads

CODE = """
  %row = tt.load %at, %inside{other} : tensor<32x!tt.ptr<f32>> loc(#loc5)
#loc1 = loc("/home/k.py":4:11)
#loc2 = loc("/home/k.py":9:3)
#loc5 = loc("row"(#loc6))
#loc6 = loc(callsite(#loc1 at #loc2))
"""
TEXT = """
.version 8.0
.target sm_80
.address_size 64
.file 1 "/home/k.py"
.entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
    .loc 1 3 0
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r2, [n];
    mov.u32 %r3, %tid.x; setp.lt.u32 %p1, %r3, %r2;
    mul.wide.u32 %rd3, %r3, 4; add.s64 %rd1, %rd1, %rd3; add.s64 %rd2, %rd2, %rd3;
    // begin inline asm
    .loc 1 4 11
    mov.u32 %r1, 0x0;
    @%p1 ld.global.b32 {{ %r1 }}, [ %rd1 + 0 ];
    // end inline asm
    .loc 1 5 3
    {then}
    ret;
}}"""
STORED = "st.global.b32 [%rd2], %r1;"


def launched(then: str, other: str, count: int) -> ptx.Result:
    """A launch of one warp, of which so many lanes load."""
    text = left_open(TEXT.format(then=then), open_loads(CODE.format(other=other)))
    x, y = np.arange(1, 33, dtype=np.float32), np.full(32, 9, np.float32)
    found = ptx.parse(text).kernels["k"].launch(1, 32, [x, y, count], watch="report")
    if "@" not in then:
        assert np.array_equal(y, np.where(np.arange(32) < count, x, 0))
    return found


def test_elements_that_are_masked_off_are_found_where_they_are_stored() -> None:
    (found,) = launched(STORED, "", 20).problems
    assert (found.rule, found.severity) == ("uninitialised", "warning")
    assert found.source is not None
    assert found.source.line == 5
    assert "elements that tl.load of line 4 masks off, without other=" in found.message


@pytest.mark.parametrize(
    ("then", "other", "count"),
    [(STORED, ", %zero", 20), (STORED, "", 32), (f"@%p1 {STORED}", "", 20)],
    ids=["other", "whole", "masked"],
)
def test_what_is_not_open_or_not_used_is_silent(
    then: str, other: str, count: int
) -> None:
    assert not launched(then, other, count).problems
