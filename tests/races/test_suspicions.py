"""A launch that is run again to follow undefined bits leaves nothing else behind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt.layout import POISON
from fragmenta.errors import KernelHazard
from fragmenta.launch import scheduled_runs
from tests.simt.kernels import kernel

READ = """
    .shared .b32 tile[64];
    .reg .b32 %s;
    mov.u32 %s, tile;
    mad.lo.u32 %s, %t, 4, %s;
    ld.shared.u32 %r1, [%s];
"""
"""Each lane reads a word of shared memory that nobody has written."""


def rules(result: Any) -> dict[str, str]:
    """What is said about undefined values: the rules, and how bad they are."""
    found = result.hazards
    return {each.rule: each.severity for each in found if each.rule == "uninitialised"}


def test_memory_is_as_the_first_run_left_it() -> None:
    body = READ + "ld.global.u32 %r2, [%mine]; add.u32 %r2, %r2, {}; "
    body += "st.global.u32 [%mine], %r2; ret;"
    out = np.arange(32, dtype=np.uint32)
    assert rules(kernel(body.format("5")).launch(1, 32, [out])) == {}
    assert (out == np.arange(32) + 5).all()
    result = kernel(body.format("%r1")).launch(1, 32, [out])
    assert rules(result) == {"uninitialised": "warning"}
    assert (out == np.arange(32) + 5).all()  # shared memory begins with zeros here


def test_instructions_are_counted_once() -> None:
    stored = "st.global.u32 [%mine], %t; ret;"
    one = kernel(READ + stored).launch(1, 32, [np.zeros(32, np.uint32)])
    other = kernel(READ + stored).launch(1, 32, [np.zeros(32, np.uint32)], watch=False)
    assert one.instructions == other.instructions


def test_what_nobody_writes_stays_as_it_is() -> None:
    body = "ld.global.u32 %r1, [%mine]; sub.u32 %r2, %r1, %r1; setp.lt.u32 %p1, %t, 8;"
    body += "@%p1 st.global.u32 [%mine], %r2; ret;"
    out = ptx.empty(32, np.uint32)
    result = kernel(body).launch(1, 32, [out], watch="report")
    assert rules(result) == {}  # the undefined numbers cancel out
    assert (out[:8] == 0).all()
    assert (out[8:] == POISON).all()


def test_a_loop_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduled_runs, "LEAST", 10_000)
    body = (
        READ
        + """
    mov.u32 %r2, 0;
LOOP:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, %r1;
    @%p1 bra LOOP;
    st.global.u32 [%mine], %r2;
    ret;
    """
    )
    result = kernel(body).launch(1, 32, [np.zeros(32, np.uint32)])
    assert rules(result) == {"uninitialised": "warning"}


def test_several_schedules_are_followed() -> None:
    body = READ + "st.global.u32 [%mine], %r1; ret;"
    out = np.zeros(32, np.uint32)
    result = kernel(body).launch(1, 32, [out], schedule=["eager", "lazy"])
    assert rules(result) == {"uninitialised": "warning"}
    assert len([e for e in result.hazards if e.rule == "uninitialised"]) == 1


def test_a_harmless_branch_is_told_once() -> None:
    more = "".join(
        f"ld.shared.u32 %r{n}, [%s+{4 * n}]; or.b32 %r1, %r1, %r{n};"
        for n in range(2, 6)
    )
    body = READ.replace("tile[64]", "tile[64], rest[64]") + more
    body += "setp.eq.u32 %p1, %r1, 7; @%p1 bra L; mov.u32 %r2, 1; L: ret;"
    result = kernel(body).launch(1, 32, [np.zeros(32, np.uint32)])
    (found,) = [each for each in result.hazards if each.rule == "uninitialised"]
    assert found.severity == "info"
    text = " ".join(found.paragraph().split())
    assert "left the same; so it is with 4 other loads" in text


TREE = """
extern "C" __global__ void total(const float *given, float *out)
{
    __shared__ float part[64];
    unsigned t = threadIdx.x;
    part[t] = given[t] + given[t + 64];
    __syncthreads();
    for (unsigned half = 32; half; half >>= 1) {
        if (t < half) part[t] += part[t + half];
        __syncthreads();
    }
    if (!t) *out = part[0];
}
"""


def test_sums_of_many_unwritten_floats_are_seen() -> None:
    """Random bits must not become NaN in every run: then nothing would differ."""
    kernel = ptx.RawKernel(TREE, "total")
    with pytest.raises(KernelHazard, match="uninitialised"):
        kernel(1, 64, [ptx.empty(128, np.float32), np.zeros(1, np.float32)])
    kernel(1, 64, [np.ones(128, np.float32), np.zeros(1, np.float32)])


@pytest.mark.parametrize("lane", range(8))
def test_an_unwritten_number_is_not_lost_in_a_sum(lane: int) -> None:
    """Other bits that are tried are large enough for a sum to keep them."""
    body = READ + "mov.b32 %f1, %r1; ld.global.f32 %f2, [%mine]; add.f32 %f1, %f1, %f2;"
    body += f"setp.eq.u32 %p1, %t, {lane}; @%p1 st.global.f32 [%mine], %f1; ret;"
    result = kernel(body).launch(1, 32, [np.full(32, 1.5, np.float32)])
    assert rules(result) == {"uninitialised": "warning"}
