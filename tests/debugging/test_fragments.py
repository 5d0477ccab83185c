"""Fragments in registers: every element that is shown is that of the matrix."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import fragmenta as fm
from fragmenta.errors import Error
from fragmenta.inspect.debugging.debugger import Debugger
from fragmenta.inspect.debugging.fragments import (
    fragment_lines,
    last_product,
    values,
    words,
)
from fragmenta.inspect.replay.recorded import Replay
from tests.debugging import kernels

MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"

PRODUCT = f"""{kernels.HEAD}
.entry product(.param .u64 pa, .param .u64 pb) {{
    .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
    ld.param.u64 %rd1, [pa];
    ld.param.u64 %rd2, [pb];
    mov.u32 %r1, %laneid;
    mul.wide.u32 %rd3, %r1, 16;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%rd4];
    mul.wide.u32 %rd5, %r1, 8;
    add.s64 %rd6, %rd2, %rd5;
    ld.global.v2.b32 {{%r6, %r7}}, [%rd6];
    cvt.rn.f32.u32 %f5, %r1;
    {MMA}
        {{%f1, %f2, %f3, %f4}}, {{%r2, %r3, %r4, %r5}}, {{%r6, %r7}},
        {{%f5, 0f3F800000, %f5, %f5}};
    mov.b32 %r2, 0;
    ret;
}}
"""

GROUP = f""".version 8.0
.target sm_90a
.address_size 64
.entry group(.param .u64 pa) {{
    .reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .f32 %f<9>;
    .shared .align 128 .b8 ones[256];
    ld.param.u64 %rd1, [pa];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 16;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%rd4];
    mov.u32 %r6, ones;
    shl.b32 %r7, %r1, 1;
    add.u32 %r7, %r6, %r7;
    mov.b16 %r8h, 0x3C00;
    st.shared.b16 [%r7], %r8h;
    shr.u32 %r9, %r6, 4;
    cvt.u64.u32 %rd5, %r9;
    or.b64 %rd5, %rd5, 0x0000000800080000;
    fence.proxy.async;
    bar.sync 0;
    wgmma.fence.sync.aligned;
    {WGMMA} {{%f1, %f2, %f3, %f4}},
        {{%r2, %r3, %r4, %r5}}, %rd5, 0, 1, 1, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ret;
}}
""".replace("%rd<9>;", "%rd<9>; .reg .b16 %r8h;")


def matrix(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(-8, 9, shape).astype(np.float16)


@cache
def product() -> Replay:
    op = fm.instruction(MMA)
    a, b = op.a.pack(matrix(16, 16)), op.b.pack(matrix(16, 8))
    return kernels.launched(PRODUCT, 32, a, b)


@cache
def group() -> Replay:
    op = fm.instruction(WGMMA)
    return kernels.launched(GROUP, 128, op.a.pack(matrix(64, 16)))


def held(at: Debugger, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The matrix that the shown elements of the warp in view make."""
    found = last_product(at)
    part = found.op.fragments[name]
    made = np.full(shape, np.nan)
    warp = at.replay.warps[at.warp].warp
    for lane in values(part, words(at, found, name), warp):
        for place, text in lane:
            made[place] = float(text)
    return made


def test_the_operands_of_an_mma() -> None:
    at = Debugger(product())
    at.run()
    a, b = matrix(16, 16).astype(float), matrix(16, 8).astype(float)
    c = held(at, "C", (16, 8))
    assert c[0, 1] == 1  # a constant
    assert c[9, 0] == 4  # the number of its lane
    np.testing.assert_array_equal(held(at, "A", (16, 16)), a)  # as it was then
    np.testing.assert_array_equal(held(at, "B", (16, 8)), b)
    np.testing.assert_array_equal(held(at, "D", (16, 8)), a @ b + c)


def test_the_operands_of_a_wgmma_are_those_of_four_warps() -> None:
    at = Debugger(group())
    at.at_problems = False
    at.run()
    a = matrix(64, 16).astype(float)
    d = np.repeat(a.sum(axis=1, keepdims=True), 8, axis=1)
    for warp in range(4):
        at.look_at(warp)
        rows = slice(16 * warp, 16 * warp + 16)
        for name, wanted in (("A", a), ("D", d)):
            made = held(at, name, wanted.shape)
            np.testing.assert_array_equal(made[rows], wanted[rows])
            assert np.isnan(made).sum() == 0.75 * made.size  # of other warps


def test_the_words() -> None:
    at = Debugger(product())
    with pytest.raises(Error, match=r"run no mma, wmma, wgmma or tcgen05\.mma yet"):
        fragment_lines(at, [], 80)
    at.run()
    lines = fragment_lines(at, ["A", "5"], 80)
    shown = matrix(16, 16)[1, 2:4]
    assert lines[0] == MMA
    assert lines[2] == f"  %r2      A[1,2] = {shown[0]:g}, A[1,3] = {shown[1]:g}"
    every = fragment_lines(at, [], 80)
    assert len(every) == 2 + 32
    assert max(map(len, every)) <= 80
    with pytest.raises(Error, match=r"has D, A, B and C; given 'E'"):
        fragment_lines(at, ["E"], 80)
    with pytest.raises(Error, match="a lane from 0 to 31"):
        fragment_lines(at, ["A", "32"], 80)
    with pytest.raises(Error, match="has no mma"):
        fragment_lines(Debugger(kernels.race()), [], 80)
