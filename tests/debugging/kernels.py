"""Kernels to debug, and what was recorded of them."""

from __future__ import annotations

from functools import cache

import numpy as np

from fragmenta import ptx
from fragmenta.inspect.debugging.debugger import Debugger
from fragmenta.inspect.debugging.terminal import Terminal
from fragmenta.inspect.replay.recorded import Replay

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"

RACE = (
    HEAD
    + """
.entry race(.param .u64 data) {
    .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .f32 %f<4>;
    .shared .align 4 .f32 tile[64];
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    add.f32 %f2, %f1, %f1;
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 2;
    add.s32 %r4, %r2, %r3;
    st.shared.f32 [%r4], %f2;
    xor.b32 %r5, %r4, 128;
    ld.shared.f32 %f3, [%r5];
    st.global.f32 [%rd3], %f3;
    ret;
}
"""
)
"""Two warps; each reads what the other writes, and nothing orders them."""

CALLS = (
    HEAD
    + """
.func (.reg .f32 %r) twice(.reg .f32 %x) {
    .reg .f32 %t;
    add.f32 %t, %x, %x;
    mov.f32 %r, %t;
    ret;
}
.entry calls(.param .u64 out) {
    .reg .b32 %r<5>; .reg .b64 %rd<4>; .reg .f32 %f<9>; .reg .pred %p<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %laneid;
    mov.u32 %r2, 0;
    cvt.rn.f32.u32 %f1, %r1;
LOOP:
    call (%f2), twice, (%f1);
    mov.f32 %f1, %f2;
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, 3;
    @%p1 bra LOOP;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd1, %rd2;
    setp.lt.u32 %p2, %r1, 5;
    @%p2 st.global.f32 [%rd3], %f1;
    sub.f32 %f3, %f1, %f1;
    div.rn.f32 %f4, %f3, %f3;
    ret;
}
"""
)
"""A loop with a call, a store of five lanes, and a NaN at the end."""

INLINED = (
    HEAD
    + """
.entry inlined(.param .u64 data) {
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    .loc 1 10 0
    ld.param.u64 %rd1, [data];
    .loc 1 11 0
    ld.global.u32 %r1, [%rd1];
    .loc 2 5 0, function_name $info, inlined_at 1 12 0
    add.u32 %r2, %r1, 1;
    .loc 2 6 0, function_name $info, inlined_at 1 12 0
    add.u32 %r3, %r2, %r2;
    .loc 1 12 0
    mov.u32 %r2, %r3;
    .loc 1 0 0
    mov.u32 %r1, %r2;
    .loc 1 13 0
    st.global.u32 [%rd1], %r3;
    .loc 1 14 0
    ret;
}
.file 1 "kernel.cu"
.file 2 "helper.cuh"
.section .debug_str {
$info:
.b8 104, 0
}
"""
)
"""Line 12 of kernel.cu is a function of helper.cuh that was inlined."""


def launched(text: str, threads: int, *arguments: object) -> Replay:
    """What is recorded of a launch of one block."""
    (kernel,) = ptx.parse(text).kernels.values()
    watch = ptx.Watch("report")
    return kernel.launch(1, threads, list(arguments), watch=watch, replay=True).replay()


@cache
def race() -> Replay:
    return launched(RACE, 64, np.arange(64, dtype=np.float32))


@cache
def met() -> Replay:
    """The race behind a barrier: one warp runs while the other waits."""
    text = RACE.replace("mov.u32 %r2, tile;", "bar.sync 0;\n    mov.u32 %r2, tile;")
    return launched(text, 64, np.arange(64, dtype=np.float32))


@cache
def calls() -> Replay:
    return launched(CALLS, 32, np.zeros(32, np.float32))


@cache
def inlined() -> Replay:
    return launched(INLINED, 1, np.uint32([20]))


def terminal(replay: Replay, *lines: str) -> list[str]:
    """What the last of some lines says."""
    at = Terminal(Debugger(replay))
    return [at.do(line) for line in lines][-1]
