"""One kernel in which every instruction that rounds stands alone, and its exact results.

Each row is a piece of PTX that makes %y of %a, %b and %c, what it is exactly, and the
largest error that the instruction may have, as a part of the result.
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
# fmt: on


def text() -> str:
    """The PTX: each row stores its own 32 results."""
    body = []
    for number, row in enumerate(ROWS):
        body += [*(f"    {each};" for each in row.code.rstrip(";").split("; "))]
        body += [f"    st.global.f32 [%py+{4 * LANES * number}], %y;"]
    lines = "\n".join(body)
    return f"""\
.version 8.1
.target sm_90
.address_size 64

.visible .entry isolated(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 y)
{{
    .reg .pred %p;
    .reg .b16 %ha, %hb, %hc, %hy, %zero;
    .reg .b32 %lane, %w, %v;
    .reg .b64 %pa, %pb, %pc, %py, %at;
    .reg .f32 %a, %b, %c, %x, %y;
    .reg .f64 %da, %db, %dy;
    ld.param.u64 %pa, [a];
    ld.param.u64 %pb, [b];
    ld.param.u64 %pc, [c];
    ld.param.u64 %py, [y];
    mov.u32 %lane, %tid.x;
    mul.wide.u32 %at, %lane, 4;
    add.u64 %pa, %pa, %at;
    add.u64 %pb, %pb, %at;
    add.u64 %pc, %pc, %at;
    add.u64 %py, %py, %at;
    mov.b16 %zero, 0;
    ld.global.f32 %a, [%pa];
    ld.global.f32 %b, [%pb];
    ld.global.f32 %c, [%pc];
{lines}
    ret;
}}
"""


def arguments() -> list[Array]:
    """Three arrays of operands, and room for the results."""
    a, b = spread(LANES, low=1.1, high=3), spread(LANES, seed=2, low=1, high=5)
    c = spread(LANES, seed=3, low=0.1, high=0.9)
    return [a, b, c, np.zeros((len(ROWS), LANES), np.float32)]


def results() -> Array:
    """What the rows are exactly."""
    columns = [exact.fractions(each) for each in arguments()[:3]]
    return np.array(
        [[float(row.exact(*of)) for of in zip(*columns, strict=True)] for row in ROWS]
    )
