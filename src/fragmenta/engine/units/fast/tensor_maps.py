"""Fast paths of tensor maps that a kernel makes: fields are set, maps are copied.

A map is in shared memory of the own block, or in global memory; the instruction says
which.  Python does the rest: generic addresses, types that set a bit of their own, and
all that is refused.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I8,
    I64,
    Value,
    compare_unsigned,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.engine.simt.memory import inside, pointer, shared
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast.copies import MAP_ALIGNMENT, MAP_SIZE, memory
from fragmenta.engine.units.fast.map_fields import (
    LIMITS,
    REPLACED,
    STRIDE_BITS,
    STRIDE_LOW,
    SWIZZLE_96,
    TF32,
)
from fragmenta.engine.units.fast.step import FastStep, fast_path, shift
from fragmenta.reference.shared.tensor_map import FIELD

# Where the flags have what an instruction says of its field, from bit 0: the first bit
# in the map, the bits less 1, the bits from one number to the next or the largest
# number, how many numbers there are, what is subtracted; the field has a largest
# number; the map is in shared memory.
_BITS, _STEP, _MANY, _LESS, _LIMITED, SHARED = 10, 17, 23, 26, 27, 1 << 28


def field_flags(name: str) -> int:
    """What a fast path has to know of a field.

    >>> hex(field_flags("swizzle_mode"))
    '0x886044d'
    """
    line = REPLACED[name]
    of, limit = FIELD[line["map"]], LIMITS.get(name)
    if name == "elemtype":  # others set a bit of their own
        limit = min(TF32) - 1
    step = of.step if limit is None else limit
    found = of.low | (of.bits - 1) << _BITS | step << _STEP
    found |= int(line["many"]) << _MANY | int(line["less"]) << _LESS
    return found | (limit is not None) << _LIMITED


def _in_shared(step: FastStep, address: Value) -> Raw:
    """Where a map in shared memory is."""
    where = shared(step.code, step.block)
    aligned = (address & (MAP_ALIGNMENT - 1)) == 0
    step.require(aligned & inside(where, address, MAP_SIZE))
    return pointer(step.code, where, address, I8)


def _in_global(step: FastStep, address: Value) -> Raw:
    """Where a map in global memory is, which may be written."""
    where = memory(step, address)
    aligned = (address & (MAP_ALIGNMENT - 1)) == 0
    step.require(aligned & inside(where, address, MAP_SIZE) & (where.flags == 0))
    return pointer(step.code, where, address, I8)


def _change(step: FastStep, address: Value) -> None:
    """Tell the observer that a map in global memory is changed, if it may be."""
    fine = step.observe(layout.PORT_CHANGE_MAP, step.state, address)
    step.require(fine != 0)


class _Field:
    """The field of an instruction."""

    def __init__(self, step: FastStep) -> None:
        step.require(step.threads == 1)
        flags = convert(step.flags, I64)
        self.low = flags & ((1 << _BITS) - 1)
        self.bits = (shift(flags, _BITS) & 63) + 1
        more = shift(flags, _STEP) & 63
        limited = ((flags >> _LIMITED) & 1) != 0
        self.ordinal, self.value = step.value(1), step.value(2)
        many = shift(flags, _MANY) & 7
        step.require(compare_unsigned("<", self.ordinal, many))
        step.require(~limited | compare_unsigned("<=", self.value, more))
        self.step = select(limited, more.lift(0), more)
        self.raw = self.value - (shift(flags, _LESS) & 1)


def _place(step: FastStep) -> Raw:
    """Where the map is that an instruction changes; nothing is required after this."""
    code, b = step.code, step.code.builder
    address = step.value(0)
    found = code.array(I64)
    in_shared = (step.flags & SHARED) != 0
    with code.when(in_shared):
        b.store(b.ptrtoint(_in_shared(step, address), I64), found)
    with code.when(~in_shared):
        b.store(b.ptrtoint(_in_global(step, address), I64), found)
        _change(step, address)
    return b.inttoptr(b.load(found), I8.as_pointer())


def _put(step: FastStep, base: Raw, first: Value, bits: Value, raw: Value) -> None:
    """Put bits into a map; all 64 only at a whole byte."""
    b = step.code.builder
    at = b.bitcast(b.gep(base, [(first >> 3).raw]), I64.as_pointer())
    old = b.load(at)
    old.align = 1
    mask, by = shift_unsigned(raw.lift(-1), bits.lift(64) - bits), first & 7
    new = (Value(b, old) & ~(mask << by)) | ((raw & mask) << by)
    b.store(new.raw, at).align = 1


def _replace(step: FastStep) -> Value:
    """Operands: the map, the number of the dimension, the value."""
    field = _Field(step)
    place = _place(step)
    first = field.low + field.ordinal * field.step
    _put(step, place, first, field.bits, field.raw)
    with step.code.when(field.low == FIELD["swizzle"].low):
        one = first.lift(1)
        _put(step, place, first.lift(SWIZZLE_96), one, first.lift(0))
    return step.lanes


def _replace_stride(step: FastStep) -> Value:
    """The same for a stride, which is in two fields."""
    field = _Field(step)
    place = _place(step)
    for name, by in (
        ("stride_low", STRIDE_BITS),
        ("stride_high", STRIDE_BITS + STRIDE_LOW),
    ):
        of = FIELD[name]
        first = field.ordinal * of.step + of.low
        _put(step, place, first, first.lift(of.bits), shift(field.value, by))
    return step.lanes


def _copy(step: FastStep) -> Value:
    """Copy a map from shared to global memory; operands: the goal, the source."""
    b, goal = step.code.builder, step.value(0)
    source, into = _in_shared(step, step.value(1)), _in_global(step, goal)
    _change(step, goal)
    kind = ir.VectorType(I64, MAP_SIZE // 8).as_pointer()
    data = b.load(b.bitcast(source, kind))
    data.align = 1
    b.store(data, b.bitcast(into, kind)).align = 1
    return step.lanes


def _acquire(step: FastStep) -> Value:
    """``fence.proxy.tensormap`` that acquires a map; only an observer needs it."""
    step.observe(layout.PORT_ACQUIRE_MAP, step.state, step.value(0))
    return step.lanes


REPLACE = fast_path("units.map.replace", _replace)
REPLACE_STRIDE = fast_path("units.map.replace_stride", _replace_stride)
COPY = fast_path("units.map.copy", _copy)
ACQUIRE = fast_path("units.map.acquire", _acquire)

ROUTINES = (REPLACE, REPLACE_STRIDE, COPY, ACQUIRE)
