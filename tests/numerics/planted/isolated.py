"""Two kernels of single instructions, and their exact results.

Each row is a piece of PTX that makes %y of %a, %b and %c, what it is exactly, and the
largest error that it may have, as a part of the result.  In the first kernel, every
instruction that rounds stands alone.  In the second, the product %x of %a and %b, or %h,
which is that as a half, is moved in every way before it is stored.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.numerics.planted import exact
from tests.numerics.planted.cases import spread

Array = NDArray[Any]
LANES = 32


class Row(NamedTuple):
    """One instruction."""

    name: str
    code: str
    exact: Callable[[Fraction, Fraction, Fraction], Any]
    most: float
    """The largest error, as a part of the result."""


def _log2(x: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = exact.DIGITS
        return exact.decimal(x).ln() / Decimal(2).ln()


def _tanh(x: Fraction) -> Decimal:
    with localcontext() as context:
        context.prec = exact.DIGITS
        grown = (2 * exact.decimal(x)).exp()
        return (grown - 1) / (grown + 1)


def _cosine(x: Fraction) -> float:
    return 1 - 2 * exact.sine(x / 2) ** 2


def _halves(operation: str, kind: str = "f16") -> str:
    """An operation on halves of the operands, which are then halves exactly."""
    return (
        f"cvt.rn.{kind}.f32 %ha, %a; cvt.rn.{kind}.f32 %hb, %b; "
        f"cvt.rn.{kind}.f32 %hc, %c; {operation} cvt.f32.{kind} %y, %hy;"
    )


# fmt: off
ROWS = [
    Row("add", "add.rn.f32 %y, %a, %b;", lambda a, b, c: a + b, 2**-24),
    Row("add_rz", "add.rz.f32 %y, %a, %b;", lambda a, b, c: a + b, 2**-23),
    Row("sub", "sub.rn.f32 %y, %a, %c;", lambda a, b, c: a - c, 2**-24),
    Row("mul", "mul.rn.f32 %y, %a, %b;", lambda a, b, c: a * b, 2**-24),
    Row("mul_rp", "mul.rp.f32 %y, %a, %b;", lambda a, b, c: a * b, 2**-23),
    Row("fma", "fma.rn.f32 %y, %a, %b, %c;", lambda a, b, c: a * b + c, 2**-24),
    Row("div", "div.rn.f32 %y, %a, %b;", lambda a, b, c: a / b, 2**-24),
    Row("div_full", "div.full.f32 %y, %a, %b;", lambda a, b, c: a / b, 2**-21),
    Row("div_approx", "div.approx.f32 %y, %a, %b;", lambda a, b, c: a / b, 2**-21),
    Row("rcp", "rcp.rn.f32 %y, %a;", lambda a, b, c: 1 / a, 2**-24),
    Row("rcp_approx", "rcp.approx.f32 %y, %a;", lambda a, b, c: 1 / a, 2**-23),
    Row("sqrt", "sqrt.rn.f32 %y, %a;", lambda a, b, c: exact.root(a), 2**-24),
    Row("sqrt_approx", "sqrt.approx.f32 %y, %a;", lambda a, b, c: exact.root(a), 2**-22),
    Row("rsqrt", "rsqrt.approx.f32 %y, %a;", lambda a, b, c: 1 / exact.root(a), 2**-22),
    Row("ex2", "ex2.approx.f32 %y, %a;", lambda a, b, c: exact.power(a), 2**-22),
    Row("lg2", "lg2.approx.f32 %y, %a;", lambda a, b, c: _log2(a), 2**-21),
    Row("sin", "sin.approx.f32 %y, %a;", lambda a, b, c: exact.sine(a), 2**-18),
    Row("cos", "cos.approx.f32 %y, %c;", lambda a, b, c: _cosine(c), 2**-18),
    Row("tanh", "tanh.approx.f32 %y, %a;", lambda a, b, c: _tanh(a), 2**-10),
    Row("to_f16", "cvt.rn.f16.f32 %hy, %a; cvt.f32.f16 %y, %hy;", lambda a, b, c: a, 2**-11),
    Row("to_f16_rz", "cvt.rz.f16.f32 %hy, %a; cvt.f32.f16 %y, %hy;", lambda a, b, c: a, 2**-10),
    Row("to_bf16", "cvt.rn.bf16.f32 %hy, %a; mov.b32 %w, {%zero, %hy}; mov.b32 %y, %w;", lambda a, b, c: a, 2**-8),
    Row("to_tf32", "cvt.rna.tf32.f32 %w, %a; mov.b32 %y, %w;", lambda a, b, c: a, 2**-11),
    Row("to_e4m3", "cvt.rn.satfinite.e4m3x2.f32 %hy, %b, %a; cvt.rn.f16x2.e4m3x2 %w, %hy; "
        "mov.b32 {%ha, %hb}, %w; cvt.f32.f16 %y, %ha;", lambda a, b, c: a, 2**-4),
    Row("to_e5m2", "cvt.rn.satfinite.e5m2x2.f32 %hy, %b, %a; cvt.rn.f16x2.e5m2x2 %w, %hy; "
        "mov.b32 {%ha, %hb}, %w; cvt.f32.f16 %y, %hb;", lambda a, b, c: b, 2**-3),
    Row("add_f16", _halves("add.rn.f16 %hy, %ha, %hb;"), lambda a, b, c: a + b, 2**-9),
    Row("mul_f16", _halves("mul.rn.f16 %hy, %ha, %hb;"), lambda a, b, c: a * b, 2**-9),
    Row("fma_f16", _halves("fma.rn.f16 %hy, %ha, %hb, %hc;"), lambda a, b, c: a * b + c, 2**-9),
    Row("fma_f16x2", "cvt.rn.f16x2.f32 %w, %a, %b; cvt.rn.f16x2.f32 %v, %b, %c; fma.rn.f16x2 %w, %w, %v, %w; "
        "mov.b32 {%ha, %hb}, %w; cvt.f32.f16 %y, %hb;", lambda a, b, c: a * b + a, 2**-9),
    Row("wide", "cvt.f64.f32 %da, %a; cvt.f64.f32 %db, %b; div.rn.f64 %dy, %da, %db; cvt.rn.f32.f64 %y, %dy;",
        lambda a, b, c: a / b, 2**-23.9),
    Row("shuffled", "mul.rn.f32 %x, %a, %b; mov.b32 %w, %x; shfl.sync.bfly.b32 %w, %w, 0, 31, -1; mov.b32 %x, %w; "
        "add.rn.f32 %y, %x, %c;", lambda a, b, c: a * b + c, 2**-22),
    Row("chosen", "mul.rn.f32 %x, %a, %b; setp.gt.f32 %p, %x, %c; selp.f32 %y, %x, %c, %p;",
        lambda a, b, c: a * b, 2**-24),
    Row("bits", "mul.rn.f32 %x, %a, %b; mov.b32 %w, %x; xor.b32 %w, %w, 0x80000000; mov.b32 %x, %w; neg.f32 %y, %x;",
        lambda a, b, c: a * b, 2**-24),
]

F32, F16 = 2**-24, 2**-10.9


def _product(a: Fraction, b: Fraction, c: Fraction) -> Fraction:
    return a * b


MOVES = {
    "shared": "st.shared.f32 [%s], %x; ld.shared.f32 %y, [%s];",
    "shared_v4": "st.shared.v4.f32 [%s4], {%c, %c, %x, %c}; ld.shared.v2.f32 {%y, %z}, [%s4+8];",
    "local": "st.local.f32 [own+8], %x; ld.local.f32 %y, [own+8];",
    "global": "st.global.f32 [%pg], %x; ld.global.f32 %y, [%pg];",
    "async": "st.global.f32 [%pg], %x; cp.async.ca.shared.global [%s], [%pg], 4; cp.async.commit_group; "
             "cp.async.wait_group 0; ld.shared.f32 %y, [%s];",
    "halves": "mov.b32 {%ha, %hb}, %x; st.shared.b16 [%s+2], %hb; st.shared.b16 [%s], %ha; ld.shared.f32 %y, [%s];",
    "bytes": "mov.b32 %w, %x; st.shared.b8 [%s], %w; shr.u32 %v, %w, 8; st.shared.b8 [%s+1], %v; shr.u32 %v, %w, 16; "
             "st.shared.b8 [%s+2], %v; shr.u32 %v, %w, 24; st.shared.b8 [%s+3], %v; ld.shared.f32 %y, [%s];",
    "prmt": "mov.b32 %w, %x; prmt.b32 %w, %w, 0, 0x0123; prmt.b32 %w, %w, 0, 0x0123; mov.b32 %y, %w;",
    "rotated": "mov.b32 %w, %x; shf.l.wrap.b32 %w, %w, %w, 8; shf.l.wrap.b32 %w, %w, %w, 24; mov.b32 %y, %w;",
    "inserted": "mov.b32 %w, %x; bfe.u32 %v, %w, 16, 16; bfi.b32 %w, %v, %w, 16, 16; mov.b32 %y, %w;",
    "paired": "mov.b64 %q, {%c, %x}; st.shared.b64 [%s4], %q; ld.shared.b64 %q, [%s4]; mov.b64 {%z, %y}, %q;",
    "exchanged": "st.shared.f32 [%s], %x; mov.b32 %w, 0; atom.shared.exch.b32 %w, [%s], %w; mov.b32 %y, %w;",
    "reduced": "st.shared.f32 [%s], 0f00000000; red.shared.add.f32 [%s], %x; ld.shared.f32 %y, [%s];",
    "shuffled": "mov.b32 %w, %x; shfl.sync.bfly.b32 %w, %w, 5, 31, -1; shfl.sync.bfly.b32 %w, %w, 5, 31, -1; mov.b32 %y, %w;",
    "chosen": "setp.lt.u32 %p, %lane, 16; selp.f32 %y, %x, %c, %p; @!%p mov.f32 %y, %x;",
    "sign": "mov.b32 %w, %x; or.b32 %w, %w, 0x80000000; and.b32 %w, %w, 0x7FFFFFFF; mov.b32 %y, %w;",
    "lop3": "mov.b32 %w, %x; lop3.b32 %w, %w, 0x80000000, 0, 0x3C; lop3.b32 %w, %w, 0x80000000, 0, 0x3C; mov.b32 %y, %w;",
}
HALF_MOVES = {
    "packed": "mov.b32 %w, {%zero, %h}; mov.b32 {%ha, %hb}, %w; cvt.f32.f16 %y, %hb;",
    "ldmatrix": "mov.b32 %w, {%h, %zero}; st.shared.b32 [%s], %w; bar.warp.sync -1; "
                "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%w}, [%row]; mov.b32 {%ha, %hb}, %w; cvt.f32.f16 %y, %ha;",
    "stmatrix": "mov.b32 %w, {%zero, %h}; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%row], {%w}; bar.warp.sync -1; "
                "ld.shared.b16 %ha, [%s+2]; cvt.f32.f16 %y, %ha;",
    "movmatrix": "mov.b32 %w, {%h, %zero}; movmatrix.sync.aligned.m8n8.trans.b16 %w, %w; "
                 "movmatrix.sync.aligned.m8n8.trans.b16 %w, %w; mov.b32 {%ha, %hb}, %w; cvt.f32.f16 %y, %ha;",
    "stored": "st.global.b16 [%pg], %h; ld.global.b16 %ha, [%pg]; cvt.f32.f16 %y, %ha;",
}
MOVED = [
    *(Row(name, code, _product, F32) for name, code in MOVES.items()),
    *(Row(name, code, _product, F16) for name, code in HALF_MOVES.items()),
    # The upper half of an f32 is a bf16, which cuts the rest.
    Row("upper", "mov.b32 {%ha, %hb}, %x; mov.b32 %y, {%zero, %hb};", _product, 2**-7),
    # An f32 times 8 by its exponent, as polynomials for powers of two do.
    Row("exponent", "mov.b32 %w, %x; add.s32 %w, %w, 0x01800000; mov.b32 %y, %w;", lambda a, b, c: 8 * a * b, F32),
    # Small whole numbers become floats by 2^23 + n.
    Row("magic", "or.b32 %w, %lane, 0x4B000000; mov.b32 %z, %w; add.rn.f32 %z, %z, 0fCB000000; fma.rn.f32 %y, %z, 0f00000000, %x;",
        _product, F32),
]
# fmt: on


def text(rows: list[Row]) -> str:
    """The PTX: each row stores its own 32 results."""
    body = []
    for number, row in enumerate(rows):
        body += [*(f"    {each};" for each in row.code.rstrip(";").split("; "))]
        body += [f"    st.global.f32 [%py+{4 * LANES * number}], %y;"]
        body += ["    bar.warp.sync -1;"]
    lines = "\n".join(body)
    return f"""\
.version 8.1
.target sm_90
.address_size 64

.visible .entry isolated(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 g, .param .u64 y)
{{
    .shared .align 16 .b8 room[512];
    .local .align 16 .b8 own[16];
    .reg .pred %p;
    .reg .b16 %ha, %hb, %hc, %hy, %h, %zero;
    .reg .b32 %lane, %w, %v, %s, %s4, %row;
    .reg .b64 %pa, %pb, %pc, %pg, %py, %at, %q;
    .reg .f32 %a, %b, %c, %x, %y, %z;
    .reg .f64 %da, %db, %dy;
    ld.param.u64 %pa, [a];
    ld.param.u64 %pb, [b];
    ld.param.u64 %pc, [c];
    ld.param.u64 %pg, [g];
    ld.param.u64 %py, [y];
    mov.u32 %lane, %tid.x;
    mul.wide.u32 %at, %lane, 4;
    add.u64 %pa, %pa, %at;
    add.u64 %pb, %pb, %at;
    add.u64 %pc, %pc, %at;
    add.u64 %pg, %pg, %at;
    add.u64 %py, %py, %at;
    mov.b16 %zero, 0;
    mov.u32 %row, room;
    mad.lo.u32 %s, %lane, 4, %row;
    mad.lo.u32 %s4, %lane, 16, %row;
    and.b32 %v, %lane, 7;
    mad.lo.u32 %row, %v, 16, %row;
    ld.global.f32 %a, [%pa];
    ld.global.f32 %b, [%pb];
    ld.global.f32 %c, [%pc];
    mul.rn.f32 %x, %a, %b;
    cvt.rn.f16.f32 %h, %x;
{lines}
    ret;
}}
"""


def arguments(rows: list[Row]) -> list[Array]:
    """Three arrays of operands, room for a while, and room for the results."""
    a, b = spread(LANES, low=1.1, high=3), spread(LANES, seed=2, low=1, high=5)
    c = spread(LANES, seed=3, low=0.1, high=0.9)
    return [
        a,
        b,
        c,
        np.zeros(LANES, np.float32),
        np.zeros((len(rows), LANES), np.float32),
    ]


def results(rows: list[Row]) -> Array:
    """What the rows are exactly."""
    columns = [exact.fractions(each) for each in arguments(rows)[:3]]
    return np.array(
        [[float(row.exact(*of)) for of in zip(*columns, strict=True)] for row in rows]
    )
