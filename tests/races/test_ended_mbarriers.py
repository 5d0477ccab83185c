"""``mbarrier.inval``: all waits for the mbarrier have to come before it."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx

#: Thread 0 arrives; all wait, and do MEET; then thread 0 ends the mbarrier.
TEXT = """.version 8.7
.target sm_90a
.address_size 64
.visible .entry f(.param .u64 y) {
    .shared .align 8 .b64 bar[2];
    .reg .b32 %r<6>; .reg .b64 %d<4>; .reg .pred %p<3>;
    mov.u32 %r0, %tid.x; mov.u32 %r1, bar; mov.u32 %r2, %ctaid.x;
    setp.eq.u32 %p0, %r0, 0;
    @%p0 mbarrier.init.shared.b64 [%r1], 1;
    @%p0 mbarrier.init.shared.b64 [%r1+8], 64;
    bar.sync 0;
    @%p0 mbarrier.arrive.shared.b64 _, [%r1];
again:
    mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;
    @!%p1 bra again;
    MEET
    @%p0 mbarrier.inval.shared.b64 [%r1];
    ld.param.u64 %d0, [y]; mad.lo.u32 %r3, %r2, 64, %r0;
    mul.wide.u32 %d1, %r3, 4; add.u64 %d2, %d0, %d1;
    st.global.u32 [%d2], %r3;
    ret;
}"""
OTHER = """
    mbarrier.arrive.shared.b64 _, [%r1+8];
    @!%p0 bra done;
other:
    mbarrier.try_wait.parity.shared.b64 %p1, [%r1+8], 0;
    @!%p1 bra other;
done:
"""
"""Thread 0 waits until all have arrived at another mbarrier."""
BLOCKS = 5


@pytest.mark.parametrize("schedule", ["eager", "eager+in-steps"])
@pytest.mark.parametrize(
    ("meet", "wrong"),
    [("", True), ("bar.warp.sync -1;", True), ("bar.sync 0;", False), (OTHER, False)],
    ids=["nothing", "a warp", "a block", "another mbarrier"],
)
def test_waits_come_before_the_end(schedule: str, meet: str, wrong: bool) -> None:
    y = np.zeros(64 * BLOCKS, np.uint32)
    kernel = ptx.parse(TEXT.replace("MEET", meet)).kernels["f"]
    found = kernel.launch(BLOCKS, 64, [y], watch="report", schedule=schedule)
    assert np.array_equal(y, np.arange(y.size))
    said = [" ".join(each.message.split()) for each in found.hazards]
    assert len(said) == wrong
    assert all("nothing orders that after the wait of warp 1" in each for each in said)
