"""Routines for shadow bits: which bits of a register are undefined.

The shadow of a register has its size; a bit is 1 if the bit of the register does not
depend on anything that was written.  The rules are those of Valgrind's memcheck: copies
carry shadow bits along, logic and shifts are exact, a carry spreads to the left, and
every other result is undefined as a whole if any bit of an operand is.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I8, I32, I64, Code, Value, convert, select
from fragmenta.engine.planes.code import layout as planes_at
from fragmenta.engine.planes.code.routines import renew
from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.library import Routine, as_signed, field, pointer_at
from fragmenta.engine.simt.moving import load_lanes, store_lanes
from fragmenta.engine.simt.warps import P, routine


def _word(code: Code, pointer: Raw) -> Value:
    return field(code, pointer, 0, I32)[0]


def _put_word(code: Code, pointer: Raw, word: Value, lanes: Value) -> None:
    place = field(code, pointer, 0, I32)
    place[0] = (place[0] & ~lanes) | (word & lanes)


def _any(code: Code, pointer: Raw, bits: int) -> Value:
    """The lanes in which a bit is set, as a word."""
    if bits == 1:
        return _word(code, pointer)
    return warps.to_word(load_lanes(code, pointer, bits) != 0)


def _put(code: Code, pointer: Raw, bits: int, word: Value, lanes: Value) -> None:
    """Set all bits of the lanes in a word, and none of the others."""
    if bits == 1:
        _put_word(code, pointer, word, lanes)
        return
    zero = load_lanes(code, pointer, bits).lift(0)
    value = select(warps.to_lanes(word), zero.lift(-1), zero)
    store_lanes(code, pointer, value, lanes)


def _split(given: tuple[Raw | Value, ...]) -> tuple[list[Raw], Value]:
    """The parameters of a routine: pointers, and the lanes after them."""
    lanes = given[-1]
    assert isinstance(lanes, Value)
    return [each for each in given if not isinstance(each, Value)], lanes


def whole(goal: int, *sources: int) -> Routine:
    """All bits of the goal where a source has any; numbers are the registers' bits."""

    def trace(code: Code, to: Raw, *given: Raw | Value) -> None:
        pointers, lanes = _split(given)
        word = lanes.lift(0)
        for pointer, bits in zip(pointers, sources, strict=True):
            word = word | _any(code, pointer, bits)
        _put(code, to, goal, word, lanes)

    name = f"undefined.whole.{goal}.{'.'.join(map(str, sources))}"
    return routine(name, trace, [P, *[P] * len(sources), I32], None)


def fill(goal: int) -> Routine:
    """All bits of some lanes: goal, lanes, those of them whose bits are set."""

    def trace(code: Code, to: Raw, lanes: Value, word: Value) -> None:
        _put(code, to, goal, word, lanes)

    return routine(f"undefined.fill.{goal}", trace, [P, I32, I32], None)


def lanes_with(bits: int) -> Routine:
    """The lanes that have a bit in a register."""

    def trace(code: Code, of: Raw) -> Value:
        return _any(code, of, bits)

    return routine(f"undefined.lanes.{bits}", trace, [P], I32)


def elements(bits: int, element: int, count: int) -> Routine:
    """All bits of each element of a register where the same one of a source has any."""

    def trace(code: Code, to: Raw, *given: Raw | Value) -> None:
        pointers, lanes = _split(given)
        total = load_lanes(code, to, bits).lift(0)
        for each in pointers:
            total = total | load_lanes(code, each, bits)
        found = total.lift(0)
        for start in range(0, bits, element):
            mask = as_signed(((1 << element) - 1) << start, bits)
            found = select((total & mask) != 0, found | mask, found)
        store_lanes(code, to, found, lanes)

    name = f"undefined.elements.{bits}.{element}.{count}"
    return routine(name, trace, [P, *[P] * count, I32], None)


def pair(goal: int, high: int, low: int) -> Routine:
    """The halves of a register, made of one source each; 0 for a constant."""

    def trace(code: Code, to: Raw, *given: Raw | Value) -> None:
        pointers, lanes = _split(given)
        upper = as_signed(-1 << goal // 2, goal)
        found = load_lanes(code, to, goal).lift(0)
        for bits, mask in ((high, upper), (low, (1 << goal // 2) - 1)):
            if bits:
                word = warps.to_lanes(_any(code, pointers.pop(0), bits))
                found = select(word, found | mask, found)
        store_lanes(code, to, found, lanes)

    name = f"undefined.pair.{goal}.{high}.{low}"
    return routine(name, trace, [P, *[P] * (bool(high) + bool(low)), I32], None)


def carried(bits: int, count: int) -> Routine:
    """From the lowest undefined bit of any source up: what a sum depends on."""

    def trace(code: Code, to: Raw, *given: Raw | Value) -> None:
        pointers, lanes = _split(given)
        total = load_lanes(code, to, bits).lift(0)
        for each in pointers:
            total = total | load_lanes(code, each, bits)
        store_lanes(code, to, total | (total.lift(0) - total), lanes)

    name = f"undefined.carried.{bits}.{count}"
    return routine(name, trace, [P, *[P] * count, I32], None)


def looked_up(bits: int, table: int, count: int) -> Routine:
    """The bits of a truth table that an undefined operand can change.

    Goal, then value and shadow of each operand; the first is the highest bit of the
    index of the table.
    """

    def trace(code: Code, to: Raw, *given: Raw | Value) -> None:
        pointers, lanes = _split(given)

        def load(pointer: Raw) -> Value:
            if bits == 1:
                return _word(code, pointer)
            return load_lanes(code, pointer, bits)

        values = [load(each) for each in pointers[::2]]
        shadows = [load(each) for each in pointers[1::2]]
        zero = values[0].lift(0)
        found = [zero, zero]
        for index in range(1 << count):
            possible = zero.lift(-1)
            for place, (value, shadow) in enumerate(zip(values, shadows, strict=True)):
                there = index >> (count - 1 - place) & 1
                possible = possible & ((value if there else ~value) | shadow)
            found[table >> index & 1] = found[table >> index & 1] | possible
        result = found[0] & found[1]
        if bits == 1:
            _put_word(code, to, result, lanes)
        else:
            store_lanes(code, to, result, lanes)

    name = f"undefined.table.{bits}.{table}.{count}"
    return routine(name, trace, [P, *[P] * (2 * count), I32], None)


def chosen(bits: int) -> Routine:
    """``selp``: the chosen source; with an undefined choice, what both differ in.

    Goal, value and shadow of both sources, predicate and its shadow, lanes.
    """

    def trace(
        code: Code,
        to: Raw,
        a: Raw,
        a_: Raw,
        b: Raw,
        b_: Raw,
        p: Value,
        p_: Value,
        lanes: Value,
    ) -> None:
        x, x_, y, y_ = (load_lanes(code, each, bits) for each in (a, a_, b, b_))
        either = x_ | y_ | (x ^ y)
        one = select(warps.to_lanes(p), x_, y_)
        found = select(warps.to_lanes(p_), either, one)
        store_lanes(code, to, found, lanes)

    kinds = [P, P, P, P, P, I32, I32, I32]
    return routine(f"undefined.chosen.{bits}", trace, kinds, None)


# ── memory ──────────────────────────────────────────────────────────────────

POISON_AT = planes_at.OWN
"""In the shadow of a block: where the shadows are that begin undefined."""
POISON_BYTES = planes_at.OWN + 8
SEED = planes_at.OWN + 16
"""What undefined memory and registers hold; with 0, they hold 0."""
UNWRITTEN = planes_at.OWN + 24
"""Pointer to the places and sizes of registers that begin undefined."""
UNWRITTEN_COUNT = planes_at.OWN + 32


def _renew(code: Code, block: Raw) -> None:
    """A block begins: its shared memory is undefined, and some of its registers."""
    renew(code, block)
    b = code.builder
    shadow = pointer_at(code, block, layout.BLOCK_SHADOW)
    size = field(code, block, layout.BLOCK_SHARED_SIZE, I64)[0]
    every = ir.Constant(I8, -1)
    seed = convert(field(code, shadow, SEED, I64)[0], I32)
    memory = pointer_at(code, block, layout.BLOCK_SHARED)
    _scramble(code, memory, size, seed)
    count = convert(field(code, block, layout.BLOCK_WARPS, I32)[0], I64)
    step = field(code, block, layout.BLOCK_WARP_BYTES, I64)[0]
    first = pointer_at(code, block, layout.BLOCK_FIRST_WARP)
    start = field(code, shadow, POISON_AT, I64)[0]
    bytes_ = field(code, shadow, POISON_BYTES, I64)[0]
    with code.loop(count) as number:
        registers = b.gep(first, [(number * step + start).raw])
        warps.fill_memory(b, registers, every, bytes_.raw)
        table = field(code, pointer_at(code, shadow, UNWRITTEN), 0, I64)
        with code.loop(field(code, shadow, UNWRITTEN_COUNT, I64)[0]) as index:
            at = b.gep(first, [(number * step + table[index * 2]).raw])
            own = seed + convert(index * 40503 + number, I32)
            some = select(seed == 0, seed, own)
            _scramble(code, at, table[index * 2 + 1], some)


FINITE = 0xBFFFBFFF
"""The bits of a word that may be set if no float in it may be a NaN or an infinity."""
NEAR_ONE = 0x3C003C00
"""The bits that are set: no float is less than 2**-7, so that sums do not drop it."""


def _scramble(code: Code, memory: Raw, size: Value, seed: Value) -> None:
    """Fill memory with words that differ from one another, unless the seed is 0.

    None is a NaN or an infinity: what is computed of two of these does not differ.
    """
    words = field(code, memory, 0, I32)
    with code.when(seed != 0), code.loop(size // 4) as index:
        mixed = (convert(index, I32) + seed) * as_signed(0x9E3779B1, 32)
        some = (mixed ^ (mixed >> 15)) & as_signed(FINITE, 32)
        words[index] = some | as_signed(NEAR_ONE, 32)


RENEW = routine("undefined.renew", _renew, [P], None)
"""Called when a block begins: the block."""
