"""Small kernels whose steps are known."""

from __future__ import annotations

import numpy as np

from fragmenta import ptx

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
SUMS = """
.visible .entry sums(.param .u64 data, .param .u32 n)
{
    .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .b16 %h<2>;
    ld.param.u64 %rd1, [data];
    ld.param.u32 %r5, [n];
    mov.u32 %r1, %tid.x;
    cvt.u16.u32 %h1, %r1;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    mov.u32 %r2, 0;
    mov.u32 %r3, 0;
again:
    ld.global.u32 %r4, [%rd3];
    add.s32 %r2, %r2, %r4;
    add.s32 %r3, %r3, 1;
    setp.lt.u32 %p1, %r3, %r5;
    @%p1 bra again;
    st.global.u32 [%rd3], %r2;
    ret;
}
"""
"""Adds n times what is there; each lane has an element."""
TURNED = """
.visible .entry turned(.param .u64 in, .param .u64 out)
{
    .reg .b32 %r<8>; .reg .b64 %rd<6>;
    .shared .align 4 .b8 tile[256];
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.u32 %r2, [%rd4];
    shl.b32 %r3, %r1, 2;
    mov.u32 %r4, tile;
    add.u32 %r5, %r4, %r3;
    st.shared.u32 [%r5], %r2;
    BARRIER
    sub.u32 %r6, 252, %r3;
    add.u32 %r6, %r4, %r6;
    ld.shared.u32 %r7, [%r6];
    add.s64 %rd5, %rd2, %rd3;
    st.global.u32 [%rd5], %r7;
    ret;
}
"""
"""Two warps exchange 64 words through shared memory, in the reverse order."""
ROUNDS = """
.file 1 "rounds.cu"
.visible .entry rounds(.param .u64 in, .param .u64 out)
{
    .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .pred %p<2>;
    .shared .align 4 .b8 tile[256];
    .loc 1 3 1
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.u32 %r2, [%rd4];
    shl.b32 %r3, %r1, 2;
    mov.u32 %r4, tile;
    add.u32 %r5, %r4, %r3;
    xor.b32 %r6, %r3, APART;
    add.u32 %r6, %r4, %r6;
    mov.u32 %r8, 0;
again:
    .loc 1 5 1
    st.shared.u32 [%r5], %r2;
    .loc 1 6 1
    bar.sync 0;
    .loc 1 7 1
    ld.shared.u32 %r7, [%r6];
    add.u32 %r2, %r2, %r7;
    add.u32 %r8, %r8, 1;
    setp.lt.u32 %p1, %r8, 4;
    @%p1 bra again;
    .loc 1 9 1
    add.s64 %rd5, %rd2, %rd3;
    st.global.u32 [%rd5], %r2;
    ret;
}
"""
"""64 threads exchange words in four rounds; the barrier after each read is missing.  With
``APART`` 4 the other thread is in the same warp, with 128 in the other one."""
COUNTED = """
.visible .entry counted(.param .u64 total)
{
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [total];
    mov.u32 %r1, %tid.x;
    atom.global.add.u32 %r2, [%rd1], %r1;
    red.global.max.u32 [%rd1+4], %r1;
    ret;
}
"""
"""All lanes add to one word, and another has the greatest."""
PAST = """
.visible .entry past(.param .u64 x)
{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r1;
    st.global.u32 [%rd3+1000000], %r1;
    ret;
}
"""
"""Stores far behind the end of an array."""
LOSS = """
.visible .entry loss(.param .u64 in, .param .u64 out)
{
    .reg .b32 %r<3>; .reg .b64 %rd<6>; .reg .f32 %f<6>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd4, [out];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    add.s64 %rd5, %rd4, %rd2;
    ld.global.f32 %f1, [%rd3];
    mov.u32 %r2, 0;
again:
    mul.rn.f32 %f2, %f1, 0f3F8CCCCD;
    add.rn.f32 %f3, %f2, 0f461C4000;
    sub.rn.f32 %f3, %f3, 0f461C4000;
    st.global.f32 [%rd5], %f3;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 3;
    @%p1 bra again;
    sqrt.rn.f32 %f4, %f3;
    st.global.f32 [%rd5], %f4;
    ret;
}
"""
"""Adds 10,000 and takes it away again, thrice; then the root, also of negative ones."""
CHANGED = """
.visible .entry changed(.param .u64 x, .param .u64 sum)
{
    .reg .b32 %r<2>; .reg .b64 %rd<5>; .reg .f32 %f<3>; .reg .pred %p<2>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd4, [sum];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    add.rn.f32 %f2, %f1, 0f461C4000;
    st.global.f32 [%rd3], %f2;
    bar.sync 0;
    sub.rn.f32 %f2, %f2, 0f461C4000;
    setp.ne.u32 %p1, %r1, 5;
    @%p1 st.global.f32 [%rd3], %f2;
    red.global.add.f32 [%rd4], %f1;
    add.rn.f32 %f2, %f2, %f2;
    st.global.f32 [%rd3], %f2;
    ret;
}
"""
"""Each element gets 10,000, loses it again (but for one), and is doubled.  All inputs are
added between, in the order of the warps."""
WIDE = """
.visible .entry wide(.param .u64 a, .param .u64 h, .param .u64 d, .param .u64 s)
{
    .reg .b32 %r<4>; .reg .b64 %rd<9>; .reg .f32 %f<5>; .reg .f64 %d<2>;
    .reg .b16 %h<3>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [h];
    ld.param.u64 %rd3, [d];
    ld.param.u64 %rd4, [s];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r1, %r2, 32, %r1;
    mul.wide.u32 %rd5, %r1, 16;
    add.s64 %rd5, %rd1, %rd5;
    mul.wide.u32 %rd6, %r1, 4;
    add.s64 %rd6, %rd2, %rd6;
    mul.wide.u32 %rd7, %r1, 8;
    add.s64 %rd7, %rd3, %rd7;
    ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd5];
    add.rn.f32 %f1, %f1, 0f461C4000;
    mul.rn.f32 %f2, %f2, %f2;
    st.global.v4.f32 [%rd5], {%f1, %f2, %f3, %f4};
    cvt.rn.f16.f32 %h1, %f2;
    cvt.rn.f16.f32 %h2, %f3;
    mov.b32 %r3, {%h1, %h2};
    st.global.b32 [%rd6], %r3;
    cvt.f64.f32 %d1, %f2;
    mul.rn.f64 %d1, %d1, %d1;
    st.global.f64 [%rd7], %d1;
    red.global.add.f32 [%rd4], %f2;
    sub.rn.f32 %f1, %f1, 0f461C4000;
    st.global.f32 [%rd5], %f1;
    ret;
}
"""
"""Stores vectors, two halves in a word, f64, and adds to one word in all blocks."""
COPIED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry copied(.param .u64 in, .param .u64 out)
{
    .reg .pred %p<3>; .reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<2>;
    .shared .align 16 .f32 tile[64];
    .shared .align 8 .b64 full;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    mov.u32 %r3, full;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra issued;
    mbarrier.init.shared::cta.b64 [%r3], 1;
    mbarrier.arrive.expect_tx.shared::cta.b64 %rd3, [%r3], 256;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes
        [%r2], [%rd1], 256, [%r3];
issued:
    bar.sync 0;
    WAIT
    shl.b32 %r4, %r1, 2;
    add.u32 %r5, %r2, %r4;
    ld.shared.f32 %f1, [%r5];
    mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd2, %rd4;
    st.global.f32 [%rd5], %f1;
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
    ret;
}
"""
WAIT = """again:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;
    @!%p2 bra again;"""
"""A copy that two warps read; with WAIT, they wait for it."""


def copied(waits: bool, schedule: object, **options: object) -> ptx.Result:
    """A launch that reads before a copy has arrived; or one that waits for it."""
    text = COPIED.replace("    WAIT\n", WAIT + "\n" if waits else "")
    given, out = np.arange(64, dtype=np.float32) / 3, np.zeros(64, np.float32)
    options = {"watch": "report", "replay": True, "schedule": schedule, **options}
    return (
        ptx.parse(text, "copied")
        .kernels["copied"]
        .launch(1, 64, [given, out], **options)
    )


def kernel(text: str, name: str, barrier: str = "bar.sync 0;") -> ptx.Kernel:
    """A kernel of these."""
    return ptx.parse(HEAD + text.replace("BARRIER", barrier)).kernels[name]
