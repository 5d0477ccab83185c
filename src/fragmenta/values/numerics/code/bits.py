"""Operations on the bits of floats: new signs and exponents keep second values.

Compilers change a sign with ``xor``, an absolute value is an ``and``, and an ``add`` to
the exponent multiplies by a power of two.  The routine looks at what came out: if it is
one of the operands with another sign or exponent, the second value changes alike.
Otherwise the second value is lost, which is counted.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Value,
    any_lane,
    bits_of,
    convert,
    float_of,
    select,
)
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import as_signed
from fragmenta.values.numerics.code.double import total
from fragmenta.values.numerics.code.elements import PackedFloats, pieces, spread
from fragmenta.values.numerics.code.records import CHUNK, Lanes, SiteRecord
from fragmenta.values.numerics.code.routines import (
    Form,
    Routines,
    RoutineWriter,
    made_of,
)

PARTS = "parts"
"""The operands are words of f64: the upper one has its sign and exponent."""
_FARTHEST = 1000
"""The largest change of an exponent that is followed."""
_SINGLE = PackedFloats("f32")
_DOUBLE = PackedFloats("f64", 1, 64)
_HALVES = {
    16: PackedFloats("f16", 1, 16),
    32: PackedFloats("f16", 2, 16),
    64: PackedFloats("f16", 4, 16),
}


def bit_routines(form: Form) -> Routines:
    """The routines beside an operation on bits."""
    return made_of(form, _write)


def _write(
    code: Code, form: Form, record: SiteRecord, pointers: list[Raw], lanes: Lanes
) -> Value:
    work = _Bits(code, form, record, pointers, lanes)
    with code.loop(LANES // CHUNK) as index:
        work.chunk(index)
    with code.when(work.lost.value != 0):
        record.begin(lanes, 0)
        record.add("restarted", work.lost.value)
    return code.constant(0, I32)


class _Bits(RoutineWriter):
    """The code of one routine."""

    def __init__(
        self,
        code: Code,
        form: Form,
        record: SiteRecord,
        pointers: list[Raw],
        lanes: Lanes,
    ) -> None:
        super().__init__(code, form, record, pointers, lanes)
        self.lost = code.variable(code.constant(0, I64))

    def chunk(self, index: Value) -> None:
        """Eight lanes."""
        form = self.form
        registers, planes = self.loaded(index)
        emit = form.match.syntax.emit
        assert emit is not None
        found = emit(form.words, *registers)
        found = found[0] if isinstance(found, tuple) else found
        lanes = self.lanes.part(index)
        goal = form.results[0]
        bits = goal.bits
        words: list[Value] | None = None
        there: Value | None = None
        kept: Value | None = None
        for register, second in zip(registers, planes, strict=True):
            if second is None or register is None:
                continue
            present = second[0]
            for each in second[1:]:
                present = present | each
            here = present != 0
            there = here if there is None else there | here
            if register.type != found.type or not goal.planes:
                continue
            upper = form.way == PARTS and bits == 32
            same, made = _changed(found, register, second, bits, goal.planes, upper)
            same = same & here
            if words is None:
                words = [select(same, each, 0) for each in made]
                kept = same
            else:
                assert kept is not None
                words = [
                    select(kept, old, select(same, new, 0))
                    for old, new in zip(words, made, strict=True)
                ]
                kept = kept | same
        assert there is not None
        gone = there if kept is None else there & ~kept
        gone = gone & lanes
        with self.code.when(any_lane(gone)):
            counted = total(convert(gone, I64, signed=False))
            self.lost.value = self.lost.value + counted
        if goal.planes:
            if words is None:
                zero = convert(found, _integer(goal.register)).lift(0)
                words = [zero] * goal.planes
            wide = [convert(e, _integer(goal.register), signed=False) for e in words]
            self.store(self.goals[0], goal, wide, lanes, index)


def _integer(bits: int) -> ir.Type:
    return ir.IntType(bits)


def _changed(
    found: Value,
    given: Value,
    planes: list[Value],
    bits: int,
    count: int,
    upper_word: bool,
) -> tuple[Value, list[Value]]:
    """Whether a result is an operand with another sign or exponent; its planes.

    The upper word of an f64 has the second value of it all.
    """
    if bits == 16:
        return _signs(found, given, planes, bits)
    kind = _DOUBLE if bits == 64 else _SINGLE
    fraction = 52 if bits == 64 else 20 if upper_word else 23
    exponents = (1 << (bits - 1 - fraction)) - 1
    here = (found >> fraction) & exponents
    there = (given >> fraction) & exponents
    mantissa = (1 << fraction) - 1
    scales = ((found ^ given) & mantissa) == 0
    inner = (here != 0) & (there != 0) & (here != exponents) & (there != exponents)
    step = convert(here - there, I64)
    scales = scales & inner & (step < _FARTHEST) & (step > -_FARTHEST)
    factor = float_of((step + 1023) << 52)
    sign = as_signed(1 << (bits - 1), bits)
    flipped = ((found ^ given) & sign) != 0
    factor = select(flipped, factor * -1.0, factor)
    upper, lower = pieces(planes, kind, 0)
    assert lower is not None
    parts = [bits_of(float_of(each) * factor) for each in (upper, lower)]
    made = spread([(parts[0], parts[1])], kind, count, bits)
    equal = found == given
    if upper_word:
        made = [select(equal, old, new) for old, new in zip(planes, made, strict=True)]
        return equal | scales, made
    signs, halves = _signs(found, given, planes, bits)
    only = ((found ^ given) & ~sign) == 0
    use_halves = signs & ~only
    made = [
        select(equal, old, select(use_halves, half, new))
        for old, half, new in zip(planes, halves, made, strict=True)
    ]
    return equal | scales | use_halves, made


def _signs(
    found: Value, given: Value, planes: list[Value], bits: int
) -> tuple[Value, list[Value]]:
    """Whether nothing but the signs of halves changed; the planes with new signs."""
    kind = _HALVES[bits]
    signs = sum(0x8000 << 16 * place for place in range(kind.many))
    changed = found ^ given
    alike = (changed & as_signed(((1 << bits) - 1) & ~signs, bits)) == 0
    # The sign of the number of 64 bits is that of the half in plane 3.
    made = [
        each ^ (changed & as_signed(signs, bits)) if number == 3 else each
        for number, each in enumerate(planes)
    ]
    return alike, made
