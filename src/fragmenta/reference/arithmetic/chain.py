"""Chains of IEEE 754 operations.

f64 instructions are fused multiply-adds, one k after the other.  The f16 instruction
with k = 4 is a chain, too, on targets that no longer have it in hardware: there it is
computed by f32 operations in software.

The kernels use the fused multiply-add of this machine, in the rounding mode of the
instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, kernel, pointer
from fragmenta.base.jit.trace import (
    F32,
    F64,
    I32,
    I64,
    Code,
    Memory,
    Value,
    bits_of,
    float_of,
    fma,
    intrinsic,
    is_nan,
    select,
)

#: The numbers of the rounding modes in LLVM.
MODES = {"rz": 0, "rn": 1, "rp": 2, "rm": 3}

# The NaN of an invalid f64 operation such as inf - inf, and the quiet bit of a NaN.
_DEFAULT_NAN = -(1 << 51)
_QUIET = 1 << 51


class ChainSizes(NamedTuple):
    """The sizes of a chain."""

    rows: Value
    columns: Value
    k: Value
    own_a: Value  #: 1 if every matrix of a batch has its own A, 0 if all share one
    own_b: Value
    first: Value  #: the first row to compute, counted over all matrices
    last: Value


@contextmanager
def _each_row(code: Code, p: ChainSizes) -> Iterator[tuple[Value, Value, Value]]:
    """For every row: where the row of A, the matrix B and the row of D begin."""
    with code.loop(p.last, start=p.first) as row:
        a_row = select(p.own_a == 0, row % p.rows, row)
        matrix = row // p.rows * p.own_b
        yield a_row * p.k, matrix * p.k * p.columns, row * p.columns


@kernel(
    a=pointer(F64),
    b=pointer(F64),
    d=pointer(F64),
    **dict.fromkeys(ChainSizes._fields, I64),
)
def chain64(code: Code, a: Memory, b: Memory, d: Memory, *numbers: Value) -> None:
    """f64, rounded to nearest; the bits of NaNs may be wrong.  At first d holds c."""
    p = ChainSizes(*numbers)
    with _each_row(code, p) as (a_at, b_at, d_at), code.loop(p.k) as i:
        x, row = a[a_at + i], b_at + i * p.columns
        with code.loop(p.columns) as n:
            d[d_at + n] = fma(x, b[row + n], d[d_at + n])


@kernel(
    a=pointer(F64),
    b=pointer(F64),
    d=pointer(F64),
    mode=I32,
    **dict.fromkeys(ChainSizes._fields, I64),
)
def chain64_careful(
    code: Code, a: Memory, b: Memory, d: Memory, mode: Value, *numbers: Value
) -> None:
    """f64 in any rounding mode; NaNs have the same bits as in hardware."""
    p = ChainSizes(*numbers)
    set_rounding(code, mode)
    with _each_row(code, p) as (a_at, b_at, d_at), code.loop(p.k) as i:
        x, row = a[a_at + i], b_at + i * p.columns
        with code.loop(p.columns) as n:
            d[d_at + n] = fma_with_nan(x, b[row + n], d[d_at + n])
    set_rounding(code, code.constant(MODES["rn"], I32))


def set_rounding(code: Code, mode: Value) -> None:
    """Round in this mode (of :data:`MODES`) from now on."""
    intrinsic(code.builder, "llvm.set.rounding", ir.VoidType(), [mode.raw])


def fma_with_nan(x: Value, y: Value, z: Value) -> Value:
    """x * y + z.  If several are NaN, the result is the first NaN of y, z, x."""
    result = fma(x, y, z)
    chosen = bits_of(result).lift(_DEFAULT_NAN)
    for each in (x, z, y):
        chosen = select(is_nan(each), bits_of(each) | _QUIET, chosen)
    return select(is_nan(result), float_of(chosen), result)


@once
def chain32(pairs: bool) -> Traced:
    """One f16 instruction with k = 4, computed in f32 as in software."""

    @kernel(
        a=pointer(F32),
        b=pointer(F32),
        d=pointer(F32),
        **dict.fromkeys(ChainSizes._fields, I64),
    )
    def software(code: Code, a: Memory, b: Memory, d: Memory, *numbers: Value) -> None:
        p = ChainSizes(*numbers)
        with _each_row(code, p) as (a_at, b_at, d_at):
            x = [a[a_at + j] for j in range(4)]
            with code.loop(p.columns) as n:
                y = [b[b_at + j * p.columns + n] for j in range(4)]
                d[d_at + n] = software_sum(x, y, d[d_at + n], pairs)

    return software


def software_sum(x: list[Value], y: list[Value], c: Value, pairs: bool) -> Value:
    """c plus four products in f32, in pairs or one after the other."""
    if pairs:
        low = fma(x[1], y[1], x[0] * y[0])
        high = fma(x[3], y[3], x[2] * y[2])
        return (c + low) + high
    total = c.lift(0.0)
    for left, right in zip(x, y, strict=True):
        total = fma(left, right, total)
    return c + total
