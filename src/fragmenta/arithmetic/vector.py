"""Which machine operations do the compiled loops need that Numba does not name?

Scalars: reading the bits of a float and back, the fused multiply-add, cutting
toward zero, counting ones.  And the loops of the hot path, eight columns
at a time: written as vectors, because LLVM does not find eight lanes in a
loop over products.  LLVM turns the vectors into what the host has (AVX-512,
AVX2, NEON, plain scalars); nothing here depends on which.

Numba's disk cache watches only the file of a compiled function, so whoever
edits this file must delete ``__pycache__`` before the loops see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

#: Columns that go through the hot loops together.
LANES = 8

#: Products whose aligned terms surely fit in 32 bits when added (F <= 25).
SAFE = 16

_Function = TypeVar("_Function", bound=Callable[..., Any])

# NumPy's error model: a division by zero is no exception, so loops need no check.
_OPTIONS = {"nogil": True, "error_model": "numpy"}

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_F32, _F64 = ir.FloatType(), ir.DoubleType()


def compiled(function: _Function) -> _Function:
    """Compile on first call, keep the result on disk, release the GIL.

    Numba keeps it beside the source file, or in the user's cache directory.
    """
    return cast(_Function, njit(cache=True, **_OPTIONS)(function))


def part(function: _Function) -> _Function:
    """Compile as a part of the compiled functions that call it.

    >>> @part
    ... def double(x):
    ...     return 2 * x
    >>> double(21)
    42
    """
    return cast(_Function, njit(**_OPTIONS)(function))


def _scalar(result: Any, *arguments: Any) -> Any:
    """An intrinsic on scalars of given types, built by the decorated function."""

    def decorate(build: Callable[..., Any]) -> Any:
        signature = result(*arguments)

        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            return build(builder, *values)

        if len(arguments) == 1:

            def typing1(typing_context: Any, x: Any) -> Any:
                return signature, code

            return intrinsic(typing1)

        def typing3(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
            return signature, code

        return intrinsic(typing3)

    return decorate


@_scalar(types.float64, types.int64)
def float64_of(builder: Any, bits: Any) -> Any:
    """The float64 with these bits."""
    return builder.bitcast(bits, _F64)


@_scalar(types.int64, types.float64)
def bits64_of(builder: Any, x: Any) -> Any:
    """The bits of a float64."""
    return builder.bitcast(x, _I64)


@_scalar(types.float32, types.int32)
def float32_of(builder: Any, bits: Any) -> Any:
    """The float32 with these bits."""
    return builder.bitcast(bits, _F32)


@_scalar(types.int32, types.float32)
def bits32_of(builder: Any, x: Any) -> Any:
    """The bits of a float32."""
    return builder.bitcast(x, _I32)


@_scalar(types.float64, types.float64)
def cut(builder: Any, x: Any) -> Any:
    """The integer next to x on the side of zero."""
    function = builder.module.declare_intrinsic("llvm.trunc", [_F64])
    return builder.call(function, [x])


@_scalar(types.float64, types.float64, types.float64, types.float64)
def fma64(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding, to nearest."""
    return builder.fma(x, y, z)


@_scalar(types.float32, types.float32, types.float32, types.float32)
def fma32(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """x * y + z with one rounding, to nearest."""
    return builder.fma(x, y, z)


@_scalar(types.int64, types.uint64)
def ones(builder: Any, word: Any) -> Any:
    """How many bits of a word are set."""
    return builder.ctpop(word)


class _Lanes:
    """Eight-lane loads, stores and constants on the arrays of an intrinsic."""

    def __init__(self, context: Any, builder: Any, signature: Any, values: Any):
        self.builder = builder
        self._data = {
            i: context.make_array(kind)(context, builder, value).data
            for i, (kind, value) in enumerate(zip(signature.args, values, strict=True))
            if isinstance(kind, types.Array)
        }

    def scalar(self, array: int, at: Any) -> Any:
        return self.builder.load(self.builder.gep(self._data[array], [at]))

    def _pointer(self, array: int, at: Any, of: Any) -> Any:
        address = self.builder.gep(self._data[array], [at])
        return self.builder.bitcast(address, ir.VectorType(of, LANES).as_pointer())

    def load(self, array: int, at: Any, of: Any) -> Any:
        vector = self.builder.load(self._pointer(array, at, of))
        vector.align = _bytes(of)
        return vector

    def store(self, vector: Any, array: int, at: Any) -> None:
        of = vector.type.element
        self.builder.store(vector, self._pointer(array, at, of)).align = _bytes(of)

    def all(self, scalar: Any) -> Any:
        """A vector with the same scalar in every lane."""
        vector_type = ir.VectorType(scalar.type, LANES)
        undefined = ir.Constant(vector_type, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, ir.Constant(_I32, 0))
        picks = ir.Constant(ir.VectorType(_I32, LANES), [0] * LANES)
        return self.builder.shuffle_vector(first, undefined, picks)

    def constant(self, number: float, of: Any) -> Any:
        return ir.Constant(ir.VectorType(of, LANES), [number] * LANES)

    def variable(self, initial: Any) -> Any:
        slot = cgutils.alloca_once(self.builder, initial.type)
        self.builder.store(initial, slot)
        return slot


def _bytes(of: Any) -> int:
    return of.width // 8 if isinstance(of, ir.IntType) else 8 if of == _F64 else 4


@intrinsic
def raise_exponents(
    typing_context: Any,
    a: Any,
    a_at: Any,
    b: Any,
    b_at: Any,
    rows: Any,
    rows_at: Any,
    count: Any,
    largest: Any,
    at: Any,
) -> Any:
    """largest[at + lane] = max(itself, a[p] + b[rows[p] + b_at + lane]) over p."""
    signature = types.void(a, a_at, b, b_at, rows, rows_at, count, largest, at)

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lanes = _Lanes(context, builder, signature, values)
        _, a_at, _, b_at, _, rows_at, count, _, at = values
        largest = lanes.variable(lanes.load(7, at, _I32))
        with cgutils.for_range(builder, count) as loop:
            row = lanes.scalar(4, builder.add(rows_at, loop.index))
            b_row = builder.add(builder.sext(row, _I64), b_at)
            a_all = lanes.all(lanes.scalar(0, builder.add(a_at, loop.index)))
            sums = builder.add(a_all, lanes.load(2, b_row, _I32))
            so_far = builder.load(largest)
            more = builder.icmp_signed(">", sums, so_far)
            builder.store(builder.select(more, sums, so_far), largest)
        lanes.store(builder.load(largest), 7, at)
        return context.get_dummy_value()

    return signature, code


def _add_aligned(careful: bool) -> Any:
    """The sum of aligned products, with or without infinities and NaN."""

    def typing(
        typing_context: Any,
        a: Any,
        a_at: Any,
        b: Any,
        b_at: Any,
        rows: Any,
        rows_at: Any,
        count: Any,
        largest: Any,
        fraction: Any,
        total: Any,
        special: Any,
        at: Any,
    ) -> Any:
        arguments = (a, a_at, b, b_at, rows, rows_at, count, largest, fraction)
        signature = types.void(*arguments, total, special, at)

        def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            lanes = _Lanes(context, builder, signature, values)
            of = _F32 if signature.args[0].dtype == types.float32 else _F64
            _sum_code(lanes, of, values, careful)
            return context.get_dummy_value()

        return signature, code

    return intrinsic(typing)


def _sum_code(lanes: _Lanes, of: Any, values: Any, careful: bool) -> None:
    """total[at + lane] += the sum over p of cut(a[p] * b[...] * 2**(F - emax)).

    Products of finite operands are exact in ``of`` by choice of ``of``; one
    that is infinite or NaN goes to ``special`` instead.
    """
    builder = lanes.builder
    _, a_at, _, b_at, _, rows_at, count, _, fraction, _, _, at = values
    scale = _power_of_two(lanes, fraction, lanes.load(7, at, _I32), of)
    total = lanes.variable(lanes.constant(0, _I32))
    zeros = lanes.constant(0.0, of)
    special = lanes.variable(zeros)
    with cgutils.for_range(builder, count) as loop:
        row = lanes.scalar(4, builder.add(rows_at, loop.index))
        b_row = builder.add(builder.sext(row, _I64), b_at)
        a_all = lanes.all(lanes.scalar(0, builder.add(a_at, loop.index)))
        product = builder.fmul(a_all, lanes.load(2, b_row, of))
        if careful:
            # x - x is zero for finite x, else NaN.
            finite = builder.fcmp_ordered("==", builder.fsub(product, product), zeros)
            odd = builder.select(finite, zeros, product)
            builder.store(builder.fadd(builder.load(special), odd), special)
            product = builder.select(finite, product, zeros)
        aligned = builder.fptosi(
            builder.fmul(product, scale), ir.VectorType(_I32, LANES)
        )
        builder.store(builder.add(builder.load(total), aligned), total)
    wide = builder.sitofp(builder.load(total), ir.VectorType(_F64, LANES))
    lanes.store(builder.fadd(lanes.load(9, at, _F64), wide), 9, at)
    if careful:
        odd = builder.load(special)
        if of is _F32:
            odd = builder.fpext(odd, ir.VectorType(_F64, LANES))
        lanes.store(builder.fadd(lanes.load(10, at, _F64), odd), 10, at)


def _power_of_two(lanes: _Lanes, fraction: Any, largest: Any, of: Any) -> Any:
    """2**(fraction - largest), kept within the range of normal floats.

    Out of range means that every product is zero, or is cut to zero.
    """
    builder = lanes.builder
    if of is _F32:
        bits, width, bias = _I32, 23, 127
    else:
        bits, width, bias = _I64, 52, 1023
        largest = builder.sext(largest, ir.VectorType(_I64, LANES))
    wanted = lanes.all(builder.trunc(fraction, bits) if of is _F32 else fraction)
    field = builder.add(builder.sub(wanted, largest), lanes.constant(bias, bits))
    for limit, beyond in ((1, "<"), (2 * bias, ">")):
        edge = lanes.constant(limit, bits)
        over = builder.icmp_signed(beyond, field, edge)
        field = builder.select(over, edge, field)
    shifted = builder.shl(field, lanes.constant(width, bits))
    return builder.bitcast(shifted, ir.VectorType(of, LANES))


add_aligned = _add_aligned(careful=False)
add_aligned_careful = _add_aligned(careful=True)


@intrinsic
def add_products(
    typing_context: Any,
    a: Any,
    a_at: Any,
    b: Any,
    b_at: Any,
    rows: Any,
    rows_at: Any,
    count: Any,
    total: Any,
    at: Any,
) -> Any:
    """total[at + lane] += the sum over p of a[p] * b[rows[p] + b_at + lane].

    The operands are integers of at most 32 bits, the sum wraps at 32.
    """
    signature = types.void(a, a_at, b, b_at, rows, rows_at, count, total, at)

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lanes = _Lanes(context, builder, signature, values)
        _, a_at, _, b_at, _, rows_at, count, _, at = values
        total = lanes.variable(lanes.load(7, at, _I32))
        with cgutils.for_range(builder, count) as loop:
            row = lanes.scalar(4, builder.add(rows_at, loop.index))
            b_row = builder.add(builder.sext(row, _I64), b_at)
            x = lanes.scalar(0, builder.add(a_at, loop.index))
            x = _widened(builder, x, signature.args[0].dtype, _I32)
            of = ir.IntType(signature.args[2].dtype.bitwidth)
            y = lanes.load(2, b_row, of)
            vector = ir.VectorType(_I32, LANES)
            y = _widened(builder, y, signature.args[2].dtype, vector)
            product = builder.mul(lanes.all(x), y)
            builder.store(builder.add(builder.load(total), product), total)
        lanes.store(builder.load(total), 7, at)
        return context.get_dummy_value()

    return signature, code


def _widened(builder: Any, integer: Any, kind: Any, to: Any) -> Any:
    if kind.bitwidth == 32:
        return integer
    return (builder.sext if kind.signed else builder.zext)(integer, to)
