"""Small kernels whose sums are associated in different ways."""

import numpy as np

from fragmenta import ptx

HEAD = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry {name}(.param .u64 x, .param .u64 y)
{{
    .reg .b32 %r<12>; .reg .b64 %rd<9>; .reg .f32 %f<16>; .reg .pred %p<4>;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 16; mul.wide.u32 %rd4, %r1, 4;
    add.s64 %rd5, %rd1, %rd3; add.s64 %rd6, %rd2, %rd4;
    ld.global.v4.f32 {{%f1, %f2, %f3, %f4}}, [%rd5];
    {body}
    {store}
    ret;
}}"""
STORE = "st.global.f32 [%rd6], %f9;"
BODIES = {
    "chain": "add.f32 %f5, %f1, %f2; add.f32 %f6, %f5, %f3; add.f32 %f9, %f6, %f4;",
    "turned": "add.f32 %f5, %f2, %f1; add.f32 %f6, %f3, %f5; add.f32 %f9, %f4, %f6;",
    "tree": "add.f32 %f5, %f1, %f2; add.f32 %f6, %f3, %f4; add.f32 %f9, %f5, %f6;",
    "contracted": "mul.f32 %f5, %f1, %f2; add.f32 %f9, %f5, %f3;",
    "fused": "fma.rn.f32 %f9, %f1, %f2, %f3;",
    "apart": "mul.rn.f32 %f5, %f1, %f2; add.rn.f32 %f9, %f5, %f3;",
    "compared": "setp.gt.f32 %p1, %f1, %f2; selp.f32 %f9, %f1, %f2, %p1;",
    "negated": "mov.b32 %r2, %f1; xor.b32 %r3, %r2, 0x80000000; mov.b32 %f9, %r3;",
    "copied": "mov.f32 %f9, %f1;",
    "masked": "mov.b32 %r2, %f1; mov.b32 %r3, %f2; and.b32 %r4, %r2, %r3; mov.b32 %f9, %r4;",
    "exponent": "mov.b32 %r2, %f1; and.b32 %r3, %r1, 7; shr.u32 %r4, %r2, %r3; mov.b32 %f9, %r4;",
    "integer": "cvt.rni.s32.f32 %r2, %f1; add.s32 %r3, %r2, 3; cvt.rn.f32.s32 %f9, %r3;",
    "rounded": "cvt.rn.bf16.f32 %h1, %f1; mov.b32 %r2, {%h0, %h1}; mov.b32 %f9, %r2;",
}


def call(name, x=None, y=None, body=None, store=STORE, **options):
    """A launch of one warp."""
    x = np.ones((32, 4), np.float32) if x is None else x
    y = np.zeros(32, np.float32) if y is None else y
    text = HEAD.format(name="k", body=body or BODIES[name], store=store)
    return ptx.Call(ptx.parse(text).kernels["k"], 1, 32, [x, y], **options)
