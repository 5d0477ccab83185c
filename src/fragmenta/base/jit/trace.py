"""Traced functions: stand-ins for numbers and arrays that emit LLVM instructions.

A traced function gets stand-ins for numbers and arrays; their operators emit LLVM
instructions.  A :class:`Value` is a number or a vector of numbers.  If a vector and a
scalar are combined, the scalar is repeated in every lane.  Integers are
signed unless a function says otherwise.  Floating-point operations follow IEEE 754
exactly: they are never reordered or contracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

from llvmlite import ir

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.llvm import Builder, Raw, Type

#: Numbers in a vector by default.
LANES = 8

I1, I8, I16, I32, I64 = (ir.IntType(width) for width in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()

Number: TypeAlias = "Value | int | float"
Trace: TypeAlias = "Callable[..., Value | None]"
"""A function that is traced: it is given the code and the parameters."""

_FLOATS: dict[Type, Type] = {F32: I32, F64: I64}


def scalar_type(of: Type) -> Type:
    """The type of one number of a vector, or the type itself."""
    return of.element if isinstance(of, ir.VectorType) else of


def like(of: Type, shape: Type) -> Type:
    """``of``, or a vector of it where ``shape`` is a vector."""
    return ir.VectorType(of, shape.count) if isinstance(shape, ir.VectorType) else of


def size_of(of: Type) -> int:
    """The bytes of a scalar type."""
    width: int = _FLOATS[of].width if of in _FLOATS else of.width
    return width // 8


class _InLanes(ir.Constant):  # type: ignore[misc]
    """A constant vector with one integer in every lane.

    LLVM's binding would make a constant for each lane, and its text again and again.
    """

    def __init__(self, of: Type, number: int) -> None:
        self.type = of
        self.constant = number
        self._text = f"<{', '.join([f'{of.element} {number}'] * of.count)}>"

    def _get_reference(self) -> str:
        return self._text


@once
def _in_lanes(of: Type, count: int, number: int) -> Raw:
    made: Raw = _InLanes(ir.VectorType(of, count), number)
    return made


class Value:
    """A number, or a vector of them, that is computed when the machine code runs."""

    __slots__ = ("builder", "raw")

    def __init__(self, builder: Builder, raw: Raw) -> None:
        self.builder = builder
        self.raw = raw

    @property
    def type(self) -> Type:
        """Its LLVM type."""
        return self.raw.type

    @property
    def is_float(self) -> bool:
        """Whether it is a float, or a vector of floats."""
        return scalar_type(self.type) in _FLOATS

    def _new(self, raw: Raw) -> Value:
        return Value(self.builder, raw)

    def lift(self, other: Number) -> Value:
        """Another number as a value of this one's shape."""
        if not isinstance(other, Value):
            vector = isinstance(self.type, ir.VectorType)
            if vector and not self.is_float:
                kind, count = self.type.element, self.type.count
                return self._new(_in_lanes(kind, count, int(other)))
            number = float(other) if self.is_float else int(other)
            several = [number] * self.type.count if vector else number
            return self._new(ir.Constant(self.type, several))
        if isinstance(self.type, ir.VectorType):
            return other.in_all_lanes(self.type.count)
        return other

    def in_all_lanes(self, count: int = LANES) -> Value:
        """A vector with this number in every lane."""
        if isinstance(self.type, ir.VectorType):
            return self
        vector = ir.VectorType(self.type, count)
        undefined = ir.Constant(vector, ir.Undefined)
        zero = ir.Constant(I32, 0)
        first = self.builder.insert_element(undefined, self.raw, zero)
        picks = ir.Constant(ir.VectorType(I32, count), [0] * count)
        return self._new(self.builder.shuffle_vector(first, undefined, picks))

    def _both(self, other: Number) -> tuple[Value, Value]:
        right = self.lift(other)
        left = right.lift(self)
        if left.type != right.type:
            raise TypeError(f"{left.type} and {right.type} do not mix; convert one")
        return left, right

    def _emit(self, names: tuple[str, str], other: Number) -> Value:
        left, right = self._both(other)
        name = names[left.is_float]
        return self._new(getattr(left.builder, name)(left.raw, right.raw))

    def _compare(self, sign: str, other: Number) -> Value:
        left, right = self._both(other)
        b = left.builder
        # NaN is unequal to everything, also to itself, and has no order.
        ordered = b.fcmp_unordered if sign == "!=" else b.fcmp_ordered
        emit = ordered if left.is_float else b.icmp_signed
        return self._new(emit(sign, left.raw, right.raw))

    def __add__(self, other: Number) -> Value:
        return self._emit(("add", "fadd"), other)

    def __sub__(self, other: Number) -> Value:
        return self._emit(("sub", "fsub"), other)

    def __mul__(self, other: Number) -> Value:
        return self._emit(("mul", "fmul"), other)

    def __and__(self, other: Number) -> Value:
        return self._emit(("and_", ""), other)

    def __or__(self, other: Number) -> Value:
        return self._emit(("or_", ""), other)

    def __xor__(self, other: Number) -> Value:
        return self._emit(("xor", ""), other)

    def __lshift__(self, other: Number) -> Value:
        return self._emit(("shl", ""), other)

    def __rshift__(self, other: Number) -> Value:
        return self._emit(("ashr", ""), other)

    def __floordiv__(self, other: Number) -> Value:
        return self._emit(("sdiv", ""), other)

    def __truediv__(self, other: Number) -> Value:
        return self._emit(("", "fdiv"), other)

    def __mod__(self, other: Number) -> Value:
        return self._emit(("srem", ""), other)

    def __radd__(self, other: Number) -> Value:
        return self.lift(other) + self

    def __rsub__(self, other: Number) -> Value:
        return self.lift(other) - self

    def __rmul__(self, other: Number) -> Value:
        return self.lift(other) * self

    def __invert__(self) -> Value:
        return self ^ -1

    def __abs__(self) -> Value:
        return _absolute(self)

    def __eq__(self, other: object) -> Any:
        return self._compare("==", other)  # type: ignore[arg-type]

    def __ne__(self, other: object) -> Any:
        return self._compare("!=", other)  # type: ignore[arg-type]

    def __lt__(self, other: Number) -> Value:
        return self._compare("<", other)

    def __le__(self, other: Number) -> Value:
        return self._compare("<=", other)

    def __gt__(self, other: Number) -> Value:
        return self._compare(">", other)

    def __ge__(self, other: Number) -> Value:
        return self._compare(">=", other)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError(
            "a traced value is not true or false before the machine code runs; "
            "use select() or code.when()"
        )


def select(condition: Value, yes: Number, no: Number) -> Value:
    """``yes`` where the condition holds, else ``no``; both are computed."""
    kind = yes if isinstance(yes, Value) else no
    if not isinstance(kind, Value):
        raise TypeError("one of the two must be a traced value")
    first, second = kind.lift(yes), kind.lift(no)
    if isinstance(condition.type, ir.VectorType):
        count = condition.type.count
        first, second = first.in_all_lanes(count), second.in_all_lanes(count)
    first, second = first._both(second)
    raw = condition.builder.select(condition.raw, first.raw, second.raw)
    return Value(condition.builder, raw)


def larger(x: Value, y: Number) -> Value:
    """The larger of two integers."""
    left, right = x._both(y)
    return select(left > right, left, right)


def smaller(x: Value, y: Number) -> Value:
    """The smaller of two integers."""
    left, right = x._both(y)
    return select(left < right, left, right)


def compare_unsigned(sign: str, x: Value, y: Number) -> Value:
    """A comparison of unsigned integers."""
    left, right = x._both(y)
    return Value(x.builder, x.builder.icmp_unsigned(sign, left.raw, right.raw))


def shift_unsigned(x: Value, by: Number) -> Value:
    """An unsigned integer shifted right; ``by`` must be less than its width."""
    left, right = x._both(by)
    return Value(x.builder, x.builder.lshr(left.raw, right.raw))


def recast(x: Value, of: Type) -> Value:
    """The same bits as a vector of wider or narrower integers, the lowest first."""
    count = x.type.count * scalar_type(x.type).width // of.width
    return Value(x.builder, x.builder.bitcast(x.raw, ir.VectorType(of, count)))


def bits_of(x: Value) -> Value:
    """The bits of floats, as integers."""
    to = like(_FLOATS[scalar_type(x.type)], x.type)
    return Value(x.builder, x.builder.bitcast(x.raw, to))


def float_of(x: Value) -> Value:
    """The floats with these bits."""
    of = {I32: F32, I64: F64}[scalar_type(x.type)]
    return Value(x.builder, x.builder.bitcast(x.raw, like(of, x.type)))


def half_of(x: Value) -> Value:
    """The f16 numbers with these bits, as float32."""
    b = x.builder
    half = b.bitcast(x.raw, like(ir.HalfType(), x.type))
    return Value(b, b.fpext(half, like(F32, x.type)))


def half_bits(x: Value) -> Value:
    """The bits of float32 numbers as 16-bit floats, where they are such numbers."""
    b = x.builder
    half = b.fptrunc(x.raw, like(ir.HalfType(), x.type))
    return Value(b, b.bitcast(half, like(I16, x.type)))


def convert(x: Value, of: Type, *, signed: bool = True) -> Value:
    """A number converted to another type; a float becomes an integer by truncation."""
    source, to = scalar_type(x.type), like(of, x.type)
    if source == of:
        return x
    b = x.builder
    if source in _FLOATS:
        widens = of in _FLOATS and size_of(of) > size_of(source)
        emit = b.fptosi if of not in _FLOATS else b.fpext if widens else b.fptrunc
    elif of in _FLOATS:
        emit = b.sitofp if signed else b.uitofp
    else:
        wider = b.sext if signed else b.zext
        emit = wider if of.width > source.width else b.trunc
    return Value(b, emit(x.raw, to))


def _suffix(of: Type) -> str:
    """How the name of an intrinsic writes a type, such as ``v8f64``."""
    one = scalar_type(of)
    name = {F32: "f32", F64: "f64"}.get(one) or f"i{one.width}"
    return f"v{of.count}{name}" if one is not of else name


def intrinsic(builder: Builder, name: str, result: Type, raws: list[Raw]) -> Raw:
    """Call an intrinsic of LLVM; it is declared when first used."""
    module = builder.module
    function = module.globals.get(name)
    if function is None:
        kind = ir.FunctionType(result, [raw.type for raw in raws])
        function = ir.Function(module, kind, name)
    return builder.call(function, raws)


def _of_one_type(name: str) -> Callable[..., Value]:
    """An intrinsic whose arguments and result all have the same type."""

    def emit(*given: Value) -> Value:
        shape = next((x for x in given if x.type != scalar_type(x.type)), given[0])
        raws = [shape.lift(x).raw for x in given]
        of, builder = raws[0].type, shape.builder
        return Value(builder, intrinsic(builder, f"{name}.{_suffix(of)}", of, raws))

    return emit


#: x * y + z with one rounding.
fma = _of_one_type("llvm.fma")
_absolute = _of_one_type("llvm.fabs")
#: A float rounded to an integer, toward zero.
truncate = _of_one_type("llvm.trunc")
#: A float rounded down, up, or to the nearest integer (a tie to the even one).
floor = _of_one_type("llvm.floor")
ceiling = _of_one_type("llvm.ceil")
nearest = _of_one_type("llvm.rint")
#: The square root, correctly rounded.
root = _of_one_type("llvm.sqrt")
#: How many bits of an integer are set.
ones = _of_one_type("llvm.ctpop")
#: x + y of signed integers; beyond their range the limit.
saturated_sum = _of_one_type("llvm.sadd.sat")


def is_nan(x: Value) -> Value:
    """Whether a float is NaN."""
    return Value(x.builder, x.builder.fcmp_unordered("uno", x.raw, x.raw))


def to_integer(x: Value, of: Type, *, signed: bool = True) -> Value:
    """A float truncated to an integer; beyond its range the limit, 0 for NaN."""
    to = like(of, x.type)
    name = "llvm.fptosi.sat" if signed else "llvm.fptoui.sat"
    full = f"{name}.{_suffix(to)}.{_suffix(x.type)}"
    return Value(x.builder, intrinsic(x.builder, full, to, [x.raw]))


def leading_zeros(x: Value) -> Value:
    """How many zeros an unsigned integer begins with."""
    defined = ir.Constant(I1, 0)  # also for zero
    name = f"llvm.ctlz.{_suffix(x.type)}"
    return Value(x.builder, intrinsic(x.builder, name, x.type, [x.raw, defined]))


def call_address(address: Value, given: Iterable[Value | Memory]) -> None:
    """Call a compiled kernel by the address of its machine code."""
    b, raws = address.builder, [each.raw for each in given]
    kind = ir.FunctionType(ir.VoidType(), [raw.type for raw in raws])
    b.call(b.inttoptr(address.raw, kind.as_pointer()), raws)


def in_memory(x: Value, number: int) -> Value:
    """A number like x that is loaded from memory, so that LLVM does not know it.

    LLVM replaces a selection of a known number by three operations on bits.
    """
    b, of = x.builder, scalar_type(x.type)
    name = f"number.{_suffix(of)}.{number:x}"
    kept = b.module.globals.get(name)
    if kept is None:
        kept = ir.GlobalVariable(b.module, of, name)
        kept.initializer = ir.Constant(of, number)
        kept.linkage = "weak"
    return x.lift(Value(b, b.load(kept)))


def any_lane(condition: Value) -> Value:
    """Whether a condition holds in any lane; their number is a power of two."""
    while condition.type.count > LANES:
        half = condition.type.count // 2
        low, high = (picked(condition, range(s, s + half)) for s in (0, half))
        condition = low | high
    b = condition.builder
    name = f"llvm.vector.reduce.or.v{condition.type.count}i1"
    return Value(b, intrinsic(b, name, I1, [condition.raw]))


def picked(x: Value, places: Iterable[int], y: Value | None = None) -> Value:
    """A vector of the lanes of x (and y, whose lanes follow those of x) at places."""
    listed = list(places)
    picks = ir.Constant(ir.VectorType(I32, len(listed)), listed)
    other = ir.Constant(x.type, ir.Undefined) if y is None else y.raw
    return Value(x.builder, x.builder.shuffle_vector(x.raw, other, picks))


def joined(numbers: Iterable[Value]) -> Value:
    """A vector of numbers: the inverse of :func:`each_lane`."""
    every = list(numbers)
    first = every[0]
    vector = ir.Constant(ir.VectorType(first.type, len(every)), ir.Undefined)
    for lane, number in enumerate(every):
        place = ir.Constant(I32, lane)
        vector = first.builder.insert_element(vector, number.raw, place)
    return Value(first.builder, vector)


def each_lane(x: Value) -> list[Value]:
    """The numbers of a vector."""
    b = x.builder
    places = (ir.Constant(I32, lane) for lane in range(x.type.count))
    return [Value(b, b.extract_element(x.raw, place)) for place in places]


def prefetch(memory: Memory, place: Number) -> None:
    """Bring a line of memory into the cache; it need not be memory at all."""
    b, at = memory._builder, memory._at(place, I8)
    numbers = [ir.Constant(I32, number) for number in (0, 3, 1)]  # read, keep, data
    intrinsic(b, "llvm.prefetch.p0i8", ir.VoidType(), [at, *numbers])


def copy_bytes(to: Memory, source: Memory, count: Value) -> None:
    """Copy bytes between memories that do not overlap."""
    copy_memory(to._builder, to.view(I8).raw, source.view(I8).raw, count.raw)


def copy_memory(b: Builder, goal: Raw, source: Raw, size: Raw) -> None:
    """Copy so many bytes from one pointer to another."""
    raws = [goal, source, size, ir.Constant(I1, 0)]
    intrinsic(b, "llvm.memcpy.p0.p0.i64", ir.VoidType(), raws)


class Memory:
    """Consecutive numbers in memory."""

    def __init__(self, builder: Builder, pointer: Raw, of: Type) -> None:
        self._builder = builder
        self.raw = pointer
        self.of = of

    def _at(self, place: Number, of: Type) -> Raw:
        b = self._builder
        index = place.raw if isinstance(place, Value) else ir.Constant(I64, place)
        address = b.gep(self.raw, [index])
        return b.bitcast(address, of.as_pointer()) if of != self.of else address

    def __getitem__(self, place: Number) -> Value:
        return Value(self._builder, self._builder.load(self._at(place, self.of)))

    def lanes(self, place: Number, count: int = LANES) -> Value:
        """Consecutive numbers, the first at this place."""
        vector = ir.VectorType(self.of, count)
        loaded = self._builder.load(self._at(place, vector))
        loaded.align = size_of(self.of)
        return Value(self._builder, loaded)

    def gather(self, places: Iterable[Value]) -> Value:
        """The numbers at eight places."""
        return joined([self[place] for place in places])

    def scatter(self, places: Iterable[Value], value: Value) -> None:
        """Write the eight numbers of a vector to eight places."""
        for place, number in zip(places, each_lane(value), strict=True):
            self[place] = number

    def after(self, count: Number) -> Memory:
        """The memory without its first numbers."""
        return Memory(self._builder, self._at(count, self.of), self.of)

    def view(self, of: Type) -> Memory:
        """The same memory as numbers of another type."""
        if of == self.of:
            return self
        pointer = self._builder.bitcast(self.raw, of.as_pointer())
        return Memory(self._builder, pointer, of)

    def __setitem__(self, place: Number, value: Value) -> None:
        stored = self._builder.store(value.raw, self._at(place, value.type))
        stored.align = size_of(self.of)


class Variable:
    """A value that changes while a loop runs."""

    def __init__(self, builder: Builder, slot: Raw) -> None:
        self._builder = builder
        self._slot = slot

    @property
    def value(self) -> Value:
        """What it holds now."""
        return Value(self._builder, self._builder.load(self._slot))

    @value.setter
    def value(self, new: Value) -> None:
        self._builder.store(new.raw, self._slot)


class Code:
    """The function that is being traced: its loops, branches and variables."""

    def __init__(self, function: ir.Function) -> None:
        self._entry = function.append_basic_block("entry")
        self.builder: Builder = ir.IRBuilder(function.append_basic_block("body"))

    def close(self, result: Value | None = None) -> None:
        """End the function, which returns a result or nothing."""
        if result is None:
            self.builder.ret_void()
        else:
            self.builder.ret(result.raw)
        ir.IRBuilder(self._entry).branch(self._entry.function.basic_blocks[1])

    def constant(self, number: float, of: Type) -> Value:
        """A constant, known while tracing."""
        return Value(self.builder, ir.Constant(of, number))

    def variable(self, initial: Value) -> Variable:
        """A variable with its first value."""
        slot = self.array(initial.type)
        variable = Variable(self.builder, slot)
        variable.value = initial
        return variable

    def array(self, of: Type, size: int = 1) -> Raw:
        """Memory that belongs to the function, allocated once on entry."""
        at_entry = ir.IRBuilder(self._entry)
        slot: Raw = at_entry.alloca(of, size=size)
        slot.align = 64
        return slot

    def scratch(self, of: Type, size: int) -> Memory:
        """An array that belongs to the function."""
        return Memory(self.builder, self.array(of, size), of)

    def table(self, numbers: Iterable[float], of: Type) -> Memory:
        """Constants that lie beside the machine code."""
        listed = list(numbers)
        module = self.builder.module
        kind = ir.ArrayType(of, len(listed))
        held = ir.GlobalVariable(module, kind, module.get_unique_name("table"))
        held.linkage, held.global_constant = "internal", True
        held.initializer = ir.Constant(kind, listed)
        zero = ir.Constant(I32, 0)
        return Memory(self.builder, held.gep([zero, zero]), of)

    @contextmanager
    def loop(
        self, stop: Number, start: Number = 0, step: Number = 1
    ) -> Iterator[Value]:
        """Repeat for start, start + step, ... below stop."""
        b = self.builder
        kind = self.constant(0, I64)
        first, last, by = (kind.lift(each) for each in (start, stop, step))
        before = b.block
        test, body, after = (b.append_basic_block() for _ in range(3))
        b.branch(test)
        b.position_at_end(test)
        index = b.phi(I64)
        index.add_incoming(first.raw, before)
        b.cbranch(b.icmp_signed("<", index, last.raw), body, after)
        b.position_at_end(body)
        yield Value(b, index)
        index.add_incoming(b.add(index, by.raw, flags=["nsw"]), b.block)
        b.branch(test)
        b.position_at_end(after)

    @contextmanager
    def when(self, condition: Value) -> Iterator[None]:
        """Do something only where a condition holds."""
        with self.builder.if_then(condition.raw):
            yield
