"""Which machine operations do the compiled loops need that Numba does not name?

Scalars: reading the bits of a float and back, the fused multiply-add, cutting
toward zero, counting ones.  And the loops of the hot path, eight columns
at a time: written as vectors, because LLVM does not find eight lanes in a
loop over products.  LLVM turns the vectors into what the host has (AVX-512,
AVX2, NEON, plain scalars); nothing here depends on which.

Numba's disk cache watches only the file of a compiled function: whoever edits a
part of it in another file must delete ``__pycache__`` to see the change.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar, cast

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

# Inside compiled functions Numba infers the types, and mypy cannot follow.
Array: TypeAlias = Any
Integer: TypeAlias = Any
Real: TypeAlias = Any

#: Columns that go through the hot loops together.
LANES = 8

#: Products whose aligned terms surely fit in 32 bits when added (F <= 25).
SAFE = 16

_Function = TypeVar("_Function", bound=Callable[..., Any])

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_F32, _F64 = ir.FloatType(), ir.DoubleType()


def compiled(function: _Function) -> _Function:
    """Compile on first call, keep the result on disk, release the GIL.

    Numba keeps it beside the source file, or in the user's cache directory;
    where it may write to neither, every process compiles anew.
    """
    try:
        decorate = njit(cache=True, nogil=True, error_model="numpy")
        return cast(_Function, decorate(function))
    except RuntimeError:
        return part(function)


def part(function: _Function) -> _Function:
    """Compile as a part of the compiled functions that call it.

    >>> @part
    ... def double(x):
    ...     return 2 * x
    >>> double(21)
    42
    """
    return cast(_Function, njit(nogil=True, error_model="numpy")(function))


def _scalar(result: Any, argument: Any, count: int, build: Callable[..., Any]) -> Any:
    """An intrinsic on one or three scalars of a type."""
    signature = result(*[argument] * count)

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return build(builder, *values)

    def of_one(typing_context: Any, x: Any) -> Any:
        return signature, code

    def of_three(typing_context: Any, x: Any, y: Any, z: Any) -> Any:
        return signature, code

    return intrinsic(of_one if count == 1 else of_three)


def _truncate(builder: Any, x: Any) -> Any:
    function = builder.module.declare_intrinsic("llvm.trunc", [_F64])
    return builder.call(function, [x])


#: The float64 with these bits.
float64_of = _scalar(types.float64, types.int64, 1, lambda b, x: b.bitcast(x, _F64))
#: The bits of a float64.
bits64_of = _scalar(types.int64, types.float64, 1, lambda b, x: b.bitcast(x, _I64))
#: The float32 with these bits.
float32_of = _scalar(types.float32, types.int32, 1, lambda b, x: b.bitcast(x, _F32))
#: The bits of a float32.
bits32_of = _scalar(types.int32, types.float32, 1, lambda b, x: b.bitcast(x, _I32))
#: The integer next to a float64 on the side of zero.
cut = _scalar(types.float64, types.float64, 1, _truncate)
#: x * y + z with one rounding, to nearest.
fma64 = _scalar(types.float64, types.float64, 3, lambda b, *xyz: b.fma(*xyz))
fma32 = _scalar(types.float32, types.float32, 3, lambda b, *xyz: b.fma(*xyz))
#: How many bits of a word are set.
ones = _scalar(types.int64, types.uint64, 1, lambda b, x: b.ctpop(x))


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
        slot = cast(Any, cgutils).alloca_once(self.builder, initial.type)
        self.builder.store(initial, slot)
        return slot

    def loop(self, count: Any) -> Any:
        """A loop of that many turns; its variable is ``.index``."""
        return cast(Any, cgutils).for_range(self.builder, count)


def _bytes(of: Any) -> int:
    return of.width // 8 if isinstance(of, ir.IntType) else 8 if of == _F64 else 4


def _product(lanes: _Lanes, p: Any, values: Any, of: Any) -> tuple[Any, Any]:
    """The operands of product p: ``a[a_at + p]`` in every lane, and of ``b`` the
    eight elements from ``rows[rows_at + p] + b_at`` on.
    """
    builder = lanes.builder
    _, a_at, _, b_at, _, rows_at, *_ = values
    row = lanes.scalar(4, builder.add(rows_at, p))
    b_row = builder.add(builder.sext(row, _I64), b_at)
    return lanes.scalar(0, builder.add(a_at, p)), lanes.load(2, b_row, of)


def _over_products(of: Any, step: Callable[..., Any]) -> Any:
    """The code that takes eight accumulators, argument 7 from argument 8 on, through
    all products; ``step`` makes the next ones of two operands and the last ones.
    """

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lanes = _Lanes(context, builder, signature, values)
        slot = lanes.variable(lanes.load(7, values[8], _I32))
        with lanes.loop(values[6]) as loop:
            x, y = _product(lanes, loop.index, values, of)
            builder.store(step(lanes, x, y, builder.load(slot)), slot)
        lanes.store(builder.load(slot), 7, values[8])
        return context.get_dummy_value()

    return code


def _raise_exponents(
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
    """largest[at + lane] = max(itself, a + b over all products)."""

    def larger(lanes: _Lanes, x: Any, y: Any, so_far: Any) -> Any:
        builder = lanes.builder
        sums = builder.add(lanes.all(x), y)
        more = builder.icmp_signed(">", sums, so_far)
        return builder.select(more, sums, so_far)

    arguments = (a, a_at, b, b_at, rows, rows_at, count, largest, at)
    return types.void(*arguments), _over_products(_I32, larger)


def _add_products(
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
    """total[at + lane] += a * b over all products: integers, modulo 2**32."""

    def more(lanes: _Lanes, x: Any, y: Any, so_far: Any) -> Any:
        builder, vector = lanes.builder, ir.VectorType(_I32, LANES)
        x = (builder.sext if a.dtype.signed else builder.zext)(x, _I32)
        y = (builder.sext if b.dtype.signed else builder.zext)(y, vector)
        return builder.add(so_far, builder.mul(lanes.all(x), y))

    arguments = (a, a_at, b, b_at, rows, rows_at, count, total, at)
    return types.void(*arguments), _over_products(ir.IntType(b.dtype.bitwidth), more)


def _add_aligned(
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
    careful: Any,
    at: Any,
) -> Any:
    """total[at + lane] += cut(a * b * 2**(fraction - largest)) over all products.

    Products of finite operands are exact by choice of the float type.  One that
    is infinite or NaN goes to ``special`` instead; only then ``careful`` must
    be set.
    """
    of = _F32 if a.dtype == types.float32 else _F64

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        lanes = _Lanes(context, builder, signature, values)
        with builder.if_else(values[11]) as (then, otherwise):
            with then:
                _sum_aligned(lanes, of, values, careful=True)
            with otherwise:
                _sum_aligned(lanes, of, values, careful=False)
        return context.get_dummy_value()

    arguments = (a, a_at, b, b_at, rows, rows_at, count, largest, fraction)
    return types.void(*arguments, total, special, careful, at), code


def _sum_aligned(lanes: _Lanes, of: Any, values: Any, careful: bool) -> None:
    builder = lanes.builder
    count, fraction, at = values[6], values[8], values[12]
    scale = _power_of_two(lanes, fraction, lanes.load(7, at, _I32), of)
    zeros, integers = lanes.constant(0.0, of), ir.VectorType(_I32, LANES)
    total, special = lanes.variable(lanes.constant(0, _I32)), lanes.variable(zeros)
    with lanes.loop(count) as loop:
        x, y = _product(lanes, loop.index, values, of)
        product = builder.fmul(lanes.all(x), y)
        if careful:
            # x - x is zero for finite x, else NaN.
            finite = builder.fcmp_ordered("==", builder.fsub(product, product), zeros)
            odd = builder.select(finite, zeros, product)
            builder.store(builder.fadd(builder.load(special), odd), special)
            product = builder.select(finite, product, zeros)
        aligned = builder.fptosi(builder.fmul(product, scale), integers)
        builder.store(builder.add(builder.load(total), aligned), total)
    doubles = ir.VectorType(_F64, LANES)
    wide = builder.sitofp(builder.load(total), doubles)
    lanes.store(builder.fadd(lanes.load(9, at, _F64), wide), 9, at)
    if careful:
        odd = builder.load(special)
        odd = builder.fpext(odd, doubles) if of is _F32 else odd
        lanes.store(builder.fadd(lanes.load(10, at, _F64), odd), 10, at)


def _power_of_two(lanes: _Lanes, fraction: Any, largest: Any, of: Any) -> Any:
    """2**(fraction - largest), kept within the range of normal floats.

    Out of range means that every product is zero, or is cut to zero.
    """
    builder = lanes.builder
    if of is _F32:
        bits, width, bias = _I32, 23, 127
        fraction = builder.trunc(fraction, _I32)
    else:
        bits, width, bias = _I64, 52, 1023
        largest = builder.sext(largest, ir.VectorType(_I64, LANES))
    power = builder.sub(lanes.all(fraction), largest)
    field = builder.add(power, lanes.constant(bias, bits))
    for limit, beyond in ((1, "<"), (2 * bias, ">")):
        edge = lanes.constant(limit, bits)
        over = builder.icmp_signed(beyond, field, edge)
        field = builder.select(over, edge, field)
    shifted = builder.shl(field, lanes.constant(width, bits))
    return builder.bitcast(shifted, ir.VectorType(of, LANES))


raise_exponents: Callable[..., None] = cast(Any, intrinsic(_raise_exponents))
add_products: Callable[..., None] = cast(Any, intrinsic(_add_products))
add_aligned: Callable[..., None] = cast(Any, intrinsic(_add_aligned))
