"""Kernels for the tests of pools: right ones, wrong ones, and one that never ends."""

from __future__ import annotations

from tests.ptx.test_linear import HEAD

TEXT = f"""{HEAD}
.global .u32 counter = 5;
.extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
.global .b8 words[4] = {{104, 105, 10, 0}};
.visible .entry twice(.param .u64 x)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2; ld.global.u32 %r2, [%rd3]; add.s32 %r2, %r2, %r2;
    st.global.u32 [%rd3], %r2; ret;
}}
.visible .entry copy(.param .u64 from, .param .u64 to, .param .f32 plus)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<6>; .reg .f32 %f<4>;
    ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to]; ld.param.f32 %f1, [plus];
    mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3; ld.global.f32 %f2, [%rd4]; add.f32 %f2, %f2, %f1;
    add.s64 %rd5, %rd2, %rd3; st.global.f32 [%rd5], %f2; ret;
}}
.visible .entry count(.param .u64 x)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; ld.global.u32 %r1, [counter]; add.s32 %r1, %r1, 1;
    st.global.u32 [counter], %r1; st.global.u32 [%rd1], %r1; ret;
}}
.visible .entry race(.param .u64 x)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>; .shared .align 4 .b8 s[256];
    ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x;
    st.shared.u32 [s], %r1; ld.shared.u32 %r2, [s+4];
    st.shared.u32 [s+4], %r1; st.global.u32 [%rd1], %r2; ret;
}}
.visible .entry outside(.param .u64 x)
{{
    .reg .b32 %r<4>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [x]; st.global.u32 [%rd1], 7; ld.global.u32 %r2, [%rd1+4096];
    ret;
}}
.visible .entry prints(.param .u64 x)
{{
    .reg .b64 %rd<5>; .param .b64 a; .param .b64 b; .param .b32 r;
    mov.u64 %rd3, words; cvta.global.u64 %rd3, %rd3; st.param.b64 [a], %rd3;
    mov.u64 %rd4, 0; st.param.b64 [b], %rd4; call (r), vprintf, (a, b); ret;
}}
.visible .entry large(.param .u64 x)
{{
    .reg .b32 %r<4>; .local .b8 b[600000]; st.local.u8 [b], 1; ret;
}}
.visible .entry endless(.param .u64 x)
{{
    .reg .u64 %n; mov.u64 %n, 0;
L:  add.u64 %n, %n, 1; bra L;
}}
"""
