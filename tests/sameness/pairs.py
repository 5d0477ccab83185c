"""Small pairs of kernels, and whether they leave the same bits for every input.

Each thread computes ``y`` from one element of ``x`` and one of ``z``; the registers of a
type are ``%f``, ``%h`` or ``%r``, number 0 is the result.  ``same`` is the truth: where
kernels part, an input is known, and where they do not, IEEE 754 or the integers say why.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta import ptx

TEXT = """
.version 8.6
.target sm_90a
.address_size 64
.entry pair(.param .u64 y, .param .u64 x, .param .u64 z)
{
    .reg .b64 %rd<9>;
    .reg .b32 %r<20>;
    .reg .f32 %f<20>;
    .reg .b16 %h<20>;
    .reg .pred %p<9>;
    ld.param.u64 %rd1, [y];
    ld.param.u64 %rd2, [x];
    ld.param.u64 %rd3, [z];
    mov.u32 %r10, %tid.x;
    mul.wide.u32 %rd4, %r10, SIZE;
    add.s64 %rd1, %rd1, %rd4;
    add.s64 %rd2, %rd2, %rd4;
    add.s64 %rd3, %rd3, %rd4;
    ld.global.TYPE REG1, [%rd2];
    ld.global.TYPE REG2, [%rd3];
    BODY
    st.global.TYPE [%rd1], REG0;
    ret;
}"""
KINDS = {
    "f32": ("f32", "%f", np.float32),
    "f16": ("b16", "%h", np.float16),
    "s32": ("s32", "%r", np.int32),
    "u32": ("u32", "%r", np.uint32),
}
ONE, TWO, HALF, ZERO, MINUS, LESS = (
    f"0f{bits}"
    for bits in (
        "3f800000",
        "40000000",
        "3f000000",
        "00000000",
        "80000000",
        "bf800000",
    )
)


class Pair(NamedTuple):
    """Two bodies of a kernel."""

    what: str
    kind: str
    one: str
    two: str
    same: bool

    def calls(self, count: int = 32) -> tuple[ptx.Call, ptx.Call]:
        """Both launches, on ones and twos."""
        kind, register, of = KINDS[self.kind]
        x, z = np.ones(count, of), np.full(count, 2, of)
        y = np.full(count, 77, of)
        made = []
        for body in (self.one, self.two):
            text = TEXT.replace("SIZE", str(y.itemsize)).replace("TYPE", kind)
            text = text.replace("REG", register).replace("BODY", body)
            made.append(ptx.Call(ptx.parse(text).kernels["pair"], 1, count, [y, x, z]))
        return made[0], made[1]


def _wide(operation: str) -> str:
    """An operation on halves in f32."""
    return (
        "cvt.f32.f16 %f1, %h1; cvt.f32.f16 %f2, %h2; "
        f"{operation} cvt.rn.f16.f32 %h0, %f0;"
    )


def _mean(halved: str, sign: str = "u") -> str:
    """Half of a sum of 64 bits."""
    return (
        f"cvt.{sign}64.{sign}32 %rd5, %r1; cvt.{sign}64.{sign}32 %rd6, %r2; "
        f"add.u64 %rd5, %rd5, %rd6; {halved} %rd5, %rd5, 1; cvt.u32.u64 %r0, %rd5;"
    )


# One pair is one line.
# fmt: off
PAIRS = [
    # ── floats that part ────────────────────────────────────────────────────
    Pair("ftz or none", "f32", "add.ftz.f32 %f0, %f1, %f2;", "add.f32 %f0, %f1, %f2;", False),
    Pair("x + 0 and x", "f32", f"add.f32 %f0, %f1, {ZERO};", "mov.f32 %f0, %f1;", False),
    Pair("x - 0 and x", "f32", f"sub.f32 %f0, %f1, {ZERO};", "mov.f32 %f0, %f1;", False),
    Pair("x * 1 and x", "f32", f"mul.f32 %f0, %f1, {ONE};", "mov.f32 %f0, %f1;", False),
    Pair("fma(x, y, +0) and x * y", "f32", f"fma.rn.f32 %f0, %f1, %f2, {ZERO};", "mul.rn.f32 %f0, %f1, %f2;", False),
    Pair("x * 0 and 0", "f32", f"mul.f32 %f0, %f1, {ZERO};", f"mov.f32 %f0, {ZERO};", False),
    Pair("x - x and 0", "f32", "sub.f32 %f0, %f1, %f1;", f"mov.f32 %f0, {ZERO};", False),
    Pair("-(a - b) and b - a", "f32", "sub.f32 %f3, %f1, %f2; neg.f32 %f0, %f3;", "sub.f32 %f0, %f2, %f1;", False),
    Pair("0 - x and -x", "f32", f"sub.f32 %f0, {ZERO}, %f1;", "neg.f32 %f0, %f1;", False),
    Pair("max and max.NaN", "f32", "max.f32 %f0, %f1, %f2;", "max.NaN.f32 %f0, %f1, %f2;", False),
    Pair("max and a choice", "f32", "max.f32 %f0, %f1, %f2;", "setp.gt.f32 %p1, %f1, %f2; selp.f32 %f0, %f1, %f2, %p1;", False),
    Pair("a choice, turned", "f32", "setp.gt.f32 %p1, %f1, %f2; selp.f32 %f0, %f1, %f2, %p1;", "setp.le.f32 %p1, %f1, %f2; selp.f32 %f0, %f2, %f1, %p1;", False),
    Pair("abs by a branch", "f32", f"setp.lt.f32 %p1, %f1, {ZERO}; @!%p1 bra DONE; neg.f32 %f1, %f1; DONE: mov.f32 %f0, %f1;", "abs.f32 %f0, %f1;", False),
    Pair("abs by a mask", "f32", "mov.b32 %r1, %f1; and.b32 %r1, %r1, 0x7fffffff; mov.b32 %f0, %r1;", "abs.f32 %f0, %f1;", False),
    Pair("fused or not", "f32", "fma.rn.f32 %f0, %f1, %f2, %f1;", "mul.rn.f32 %f3, %f1, %f2; add.rn.f32 %f0, %f3, %f1;", False),
    Pair("other rounding", "f32", "add.rz.f32 %f0, %f1, %f2;", "add.rn.f32 %f0, %f1, %f2;", False),
    Pair("(a + b) - b and a", "f32", "add.f32 %f3, %f1, %f2; sub.f32 %f0, %f3, %f2;", "mov.f32 %f0, %f1;", False),
    Pair("x / 3 and x * (1 / 3)", "f32", "div.rn.f32 %f0, %f1, 0f40400000;", "mul.f32 %f0, %f1, 0f3eaaaaab;", False),
    Pair("(2 x) y and 2 (x y)", "f32", f"mul.rn.f32 %f3, %f1, {TWO}; mul.rn.f32 %f0, %f3, %f2;", f"mul.rn.f32 %f3, %f1, %f2; mul.rn.f32 %f0, %f3, {TWO};", False),
    Pair("x / 2 * 2 and x", "f32", f"mul.rn.f32 %f3, %f1, {HALF}; mul.rn.f32 %f0, %f3, {TWO};", "mov.f32 %f0, %f1;", False),
    Pair("through bf16", "f32", "cvt.rn.bf16.f32 %h1, %f1; cvt.f32.bf16 %f0, %h1;", "mov.f32 %f0, %f1;", False),
    Pair("through s32", "f32", "cvt.rzi.s32.f32 %r1, %f1; cvt.rn.f32.s32 %f0, %r1;", "cvt.rzi.f32.f32 %f0, %f1;", False),
    Pair("sqrt(x)^2 and x", "f32", "sqrt.rn.f32 %f3, %f1; mul.rn.f32 %f0, %f3, %f3;", "mov.f32 %f0, %f1;", False),
    Pair("saturated or clamped", "f32", f"add.sat.f32 %f0, %f1, {ZERO};", f"max.f32 %f3, %f1, {ZERO}; min.f32 %f0, %f3, {ONE};", True),
    Pair("halves: fma in f32", "f16", "fma.rn.f16 %h0, %h1, %h2, %h1;", _wide("fma.rn.f32 %f0, %f1, %f2, %f1;"), False),
    Pair("halves: sum of three", "f16", "add.f16 %h3, %h1, %h2; add.f16 %h0, %h3, %h1;", _wide("add.f32 %f3, %f1, %f2; add.f32 %f0, %f3, %f1;"), False),
    # ── whole numbers that part ─────────────────────────────────────────────
    Pair("x >> 1 and x / 2", "s32", "shr.s32 %r0, %r1, 1;", "div.s32 %r0, %r1, 2;", False),
    Pair("x & 7 and x % 8", "s32", "and.b32 %r0, %r1, 7;", "rem.s32 %r0, %r1, 8;", False),
    Pair("one rare input", "s32", "mul.lo.s32 %r3, %r1, %r1; setp.eq.s32 %p1, %r3, 0x12345679; selp.b32 %r0, 7, %r1, %p1;", "mov.b32 %r0, %r1;", False),
    Pair("min as signed or not", "u32", "min.u32 %r0, %r1, %r2;", "min.s32 %r0, %r1, %r2;", False),
    # ── floats that are the same ────────────────────────────────────────────
    Pair("a + b and b + a", "f32", "add.f32 %f0, %f1, %f2;", "add.f32 %f0, %f2, %f1;", True),
    Pair("2 x and x + x", "f32", f"mul.f32 %f0, %f1, {TWO};", "add.f32 %f0, %f1, %f1;", True),
    Pair("x / 2 and x * 0.5", "f32", f"div.rn.f32 %f0, %f1, {TWO};", f"mul.f32 %f0, %f1, {HALF};", True),
    Pair("a - b and a + -b", "f32", "sub.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f2; add.f32 %f0, %f1, %f3;", True),
    Pair("fma(x, y, -0) and x * y", "f32", f"fma.rn.f32 %f0, %f1, %f2, {MINUS};", "mul.rn.f32 %f0, %f1, %f2;", True),
    Pair("x + -0 and x * 1", "f32", f"add.f32 %f0, %f1, {MINUS};", f"mul.f32 %f0, %f1, {ONE};", True),
    Pair("1 / x and rcp.rn", "f32", f"div.rn.f32 %f0, {ONE}, %f1;", "rcp.rn.f32 %f0, %f1;", True),
    Pair("fma(a, -1, c) and c - a", "f32", f"fma.rn.f32 %f0, %f1, {LESS}, %f2;", "sub.f32 %f0, %f2, %f1;", True),
    Pair("fma(-1, a, c) and c - a", "f32", f"fma.rp.ftz.f32 %f0, {LESS}, %f1, %f2;", "sub.rp.ftz.f32 %f0, %f2, %f1;", True),
    Pair("fma(1, a, c) and a + c", "f32", f"fma.rm.f32 %f0, {ONE}, %f1, %f2;", "add.rm.f32 %f0, %f2, %f1;", True),
    Pair("fma(a, -1, c) and a - c", "f32", f"fma.rn.f32 %f0, %f1, {LESS}, %f2;", "sub.f32 %f0, %f1, %f2;", False),
    Pair("fma.rm(a, -1, c) and -(a - c)", "f32", f"fma.rm.f32 %f0, %f1, {LESS}, %f2;", "sub.rm.f32 %f3, %f1, %f2; neg.f32 %f0, %f3;", False),
    Pair("fma(a, -1, c), saturated", "f32", f"fma.rn.sat.f32 %f0, %f1, {LESS}, %f2;", "sub.f32 %f0, %f2, %f1;", False),
    Pair("fma(a, -1, c), flushed", "f32", f"fma.rn.ftz.f32 %f0, %f1, {LESS}, %f2;", "sub.f32 %f0, %f2, %f1;", False),
    Pair("floor and ceil", "f32", "cvt.rmi.f32.f32 %f0, %f1;", "neg.f32 %f3, %f1; cvt.rpi.f32.f32 %f3, %f3; neg.f32 %f0, %f3;", True),
    Pair("(-a) b and -(a b)", "f32", "neg.f32 %f3, %f1; mul.f32 %f0, %f3, %f2;", "mul.f32 %f3, %f1, %f2; neg.f32 %f0, %f3;", True),
    Pair("add.rm and -add.rp(-a, -b)", "f32", "add.rm.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f1; neg.f32 %f4, %f2; add.rp.f32 %f3, %f3, %f4; neg.f32 %f0, %f3;", True),
    Pair("add.rp and -add.rm(-a, -b)", "f32", "add.rp.ftz.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f1; neg.f32 %f4, %f2; add.rm.ftz.f32 %f3, %f4, %f3; neg.f32 %f0, %f3;", True),
    Pair("sub.rm and -sub.rp(b, a)", "f32", "sub.rm.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f1; neg.f32 %f4, %f2; sub.rp.f32 %f3, %f3, %f4; neg.f32 %f0, %f3;", True),
    Pair("mul.rp and -mul.rm(a, -b)", "f32", "mul.rp.f32 %f0, %f1, %f2;", "neg.f32 %f4, %f2; mul.rm.f32 %f3, %f1, %f4; neg.f32 %f0, %f3;", True),
    Pair("fma.rm and -fma.rp(-a, b, -a)", "f32", "fma.rm.f32 %f0, %f1, %f2, %f1;", "neg.f32 %f3, %f1; fma.rp.f32 %f4, %f3, %f2, %f3; neg.f32 %f0, %f4;", True),
    Pair("add.rz and -add.rz(-a, -b)", "f32", "add.rz.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f1; neg.f32 %f4, %f2; add.rz.f32 %f3, %f3, %f4; neg.f32 %f0, %f3;", False),
    Pair("add.rm and -add.rm(-a, -b)", "f32", "add.rm.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f1; neg.f32 %f4, %f2; add.rm.f32 %f3, %f3, %f4; neg.f32 %f0, %f3;", False),
    Pair("mul.rm and -mul.rm(-a, b)", "f32", "mul.rm.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f1; mul.rm.f32 %f3, %f3, %f2; neg.f32 %f0, %f3;", False),
    Pair("(-a) / b and -(a / b)", "f32", "neg.f32 %f3, %f1; div.rn.f32 %f0, %f3, %f2;", "div.rn.f32 %f3, %f1, %f2; neg.f32 %f0, %f3;", True),
    Pair("|a| / |b| and |a / b|", "f32", "abs.f32 %f3, %f1; abs.f32 %f4, %f2; div.rz.f32 %f0, %f3, %f4;", "div.rz.f32 %f3, %f1, %f2; abs.f32 %f0, %f3;", True),
    Pair("div.rm and -div.rp(a, -b)", "f32", "div.rm.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f2; div.rp.f32 %f3, %f1, %f3; neg.f32 %f0, %f3;", True),
    Pair("div.rm and -div.rm(-a, b)", "f32", "div.rm.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f1; div.rm.f32 %f3, %f3, %f2; neg.f32 %f0, %f3;", False),
    Pair("a / b and b / a", "f32", "div.rp.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f2; neg.f32 %f4, %f1; div.rp.f32 %f0, %f3, %f4;", False),
    Pair("max and -min(-a, -b)", "f32", "max.f32 %f0, %f1, %f2;", "neg.f32 %f3, %f1; neg.f32 %f4, %f2; min.f32 %f3, %f3, %f4; neg.f32 %f0, %f3;", True),
    Pair("max of three", "f32", "neg.f32 %f3, %f2; max.f32 %f4, %f1, %f2; max.f32 %f0, %f4, %f3;", "neg.f32 %f3, %f2; max.f32 %f4, %f3, %f2; max.f32 %f0, %f1, %f4;", True),
    Pair("min of two, twice", "f32", "min.ftz.f32 %f3, %f1, %f2; min.ftz.f32 %f0, %f1, %f3;", "min.ftz.f32 %f0, %f2, %f1;", True),
    Pair("max of one, and it", "f32", "max.f32 %f0, %f1, %f1;", "mov.f32 %f0, %f1;", False),
    Pair("max and min of three", "f32", f"max.f32 %f3, %f1, %f2; min.f32 %f0, %f3, {ONE};", f"min.f32 %f3, %f1, {ONE}; max.f32 %f0, %f3, %f2;", False),
    Pair("max, then max.NaN", "f32", f"max.f32 %f3, %f1, %f2; max.NaN.f32 %f0, %f3, {ONE};", f"max.NaN.f32 %f3, %f1, {ONE}; max.f32 %f0, %f3, %f2;", False),
    Pair("halves: max of three", "f16", "neg.f16 %h3, %h2; max.f16 %h4, %h1, %h2; max.f16 %h0, %h4, %h3;", "neg.f16 %h3, %h2; max.f16 %h4, %h3, %h2; max.f16 %h0, %h1, %h4;", True),
    Pair("|a| |b| and |a b|", "f32", "abs.f32 %f3, %f1; abs.f32 %f4, %f2; mul.f32 %f0, %f3, %f4;", "mul.f32 %f3, %f1, %f2; abs.f32 %f0, %f3;", True),
    Pair("fma(-a, b, a) and fma(a, -b, a)", "f32", "neg.f32 %f3, %f1; fma.rn.f32 %f0, %f3, %f2, %f1;", "neg.f32 %f3, %f2; fma.rn.f32 %f0, %f1, %f3, %f1;", True),
    Pair("a < b and b > a", "f32", "setp.lt.f32 %p1, %f1, %f2; selp.f32 %f0, %f1, %f2, %p1;", "setp.gt.f32 %p1, %f2, %f1; selp.f32 %f0, %f1, %f2, %p1;", True),
    Pair("a choice or a branch", "f32", "setp.lt.f32 %p1, %f1, %f2; selp.f32 %f0, %f1, %f2, %p1;", "mov.f32 %f0, %f2; setp.lt.f32 %p1, %f1, %f2; @%p1 mov.f32 %f0, %f1;", True),
    Pair("halves: 2 x and x + x", "f16", "mov.b16 %h3, 0x4000; mul.f16 %h0, %h1, %h3;", "add.f16 %h0, %h1, %h1;", True),
    Pair("halves: a sum in f32", "f16", "add.f16 %h0, %h1, %h2;", _wide("add.f32 %f0, %f1, %f2;"), True),
    Pair("halves: a square root in f32", "f16", "mul.f16 %h0, %h1, %h1;", "cvt.f32.f16 %f1, %h1; mul.f32 %f0, %f1, %f1; cvt.rn.f16.f32 %h0, %f0;", True),
    Pair("relu", "f32", f"max.f32 %f0, %f1, {ZERO};", f"setp.gt.f32 %p1, %f1, {ZERO}; selp.f32 %f0, %f1, {ZERO}, %p1;", True),
    # ── whole numbers that are the same ─────────────────────────────────────
    Pair("x << 1 and x + x", "s32", "shl.b32 %r0, %r1, 1;", "add.s32 %r0, %r1, %r1;", True),
    Pair("u >> 3 and u / 8", "u32", "shr.u32 %r0, %r1, 3;", "div.u32 %r0, %r1, 8;", True),
    Pair("a + b of bits", "s32", "xor.b32 %r3, %r1, %r2; and.b32 %r4, %r1, %r2; shl.b32 %r4, %r4, 1; add.s32 %r0, %r3, %r4;", "add.s32 %r0, %r1, %r2;", True),
    Pair("the mean of two", "u32", "and.b32 %r3, %r1, %r2; xor.b32 %r4, %r1, %r2; shr.u32 %r4, %r4, 1; add.u32 %r0, %r3, %r4;", _mean("shr.u64"), True),
    Pair("the mean of two, above", "u32", "or.b32 %r3, %r1, %r2; xor.b32 %r4, %r1, %r2; shr.u32 %r4, %r4, 1; sub.u32 %r0, %r3, %r4;", _mean("add.u64 %rd5, %rd5, 1; shr.u64"), True),
    Pair("the mean of two that wrap", "u32", "add.u32 %r3, %r1, %r2; shr.u32 %r0, %r3, 1;", _mean("shr.u64"), False),
    Pair("the mean of two, signed", "s32", "and.b32 %r3, %r1, %r2; xor.b32 %r4, %r1, %r2; shr.s32 %r4, %r4, 1; add.s32 %r0, %r3, %r4;", _mean("shr.s64", "s"), True),
    Pair("|a - b| of bits", "u32", "sub.u32 %r3, %r1, %r2; setp.lt.u32 %p1, %r1, %r2; selp.b32 %r4, -1, 0, %p1; xor.b32 %r3, %r3, %r4; sub.u32 %r0, %r3, %r4;", "max.u32 %r3, %r1, %r2; min.u32 %r4, %r1, %r2; sub.u32 %r0, %r3, %r4;", True),
    Pair("one rare pair", "u32", "xor.b32 %r3, %r1, 0x1234567; xor.b32 %r4, %r2, 0x89abcdef; or.b32 %r3, %r3, %r4; setp.eq.u32 %p1, %r3, 0; selp.b32 %r0, 7, %r1, %p1;", "mov.b32 %r0, %r1;", False),
    Pair("(a - b) + b and a", "s32", "sub.s32 %r3, %r1, %r2; add.s32 %r0, %r3, %r2;", "mov.b32 %r0, %r1;", True),
    Pair("(a + b)^2", "s32", "add.s32 %r3, %r1, %r2; mul.lo.s32 %r0, %r3, %r3;", "mul.lo.s32 %r3, %r1, %r1; mul.lo.s32 %r4, %r2, %r2; mul.lo.s32 %r5, %r1, %r2; add.s32 %r0, %r3, %r4; mad.lo.s32 %r0, %r5, 2, %r0;", True),
]
# fmt: on
