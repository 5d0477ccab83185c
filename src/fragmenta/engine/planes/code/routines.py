"""Routines that move second values in compiled code, in all planes at once.

Plane ``p`` of a register begins ``p`` times its bytes after plane 0.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import (
    I8,
    I32,
    I64,
    Code,
    Value,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.engine.planes.code import layout as planes_at
from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import Routine, as_signed, field, pointer_at
from fragmenta.engine.simt.memory import has, lane_of
from fragmenta.engine.simt.moving import load_lanes, store_lanes
from fragmenta.engine.simt.synchronising import readable, source_lane
from fragmenta.engine.simt.warps import P, routine


def size_of(bits: int) -> int:
    """The bytes of one plane of a register."""
    return bits // 8 * LANES


def plane_of(code: Code, base: Raw, bits: int, plane: int) -> Raw:
    """Where a plane of a register begins."""
    return warps.place(code, base, plane * size_of(bits))


def load_plane(code: Code, base: Raw, bits: int, plane: int) -> Value:
    """A plane of a register of up to 64 bits, in all lanes."""
    return load_lanes(code, plane_of(code, base, bits, plane), bits)


def _split(given: tuple[Raw | Value, ...]) -> tuple[list[Raw], list[Value]]:
    """The parameters of a routine: pointers, and numbers."""
    pointers = [each for each in given if not isinstance(each, Value)]
    return pointers, [each for each in given if isinstance(each, Value)]


def clear(bits: int, planes: int) -> Routine:
    """No second value in some lanes: base, lanes."""

    def trace(code: Code, base: Raw, lanes: Value) -> None:
        b = code.builder
        with b.if_else((lanes == -1).raw) as (every, some):
            with every:
                size = ir.Constant(I64, planes * size_of(bits))
                warps.clear_memory(b, base, size)
            with some:
                for part in range(planes * max(1, bits // 64)):
                    at = plane_of(code, base, min(bits, 64), part)
                    zero = load_lanes(code, at, min(bits, 64)).lift(0)
                    store_lanes(code, at, zero, lanes)

    return routine(f"planes.clear.{bits}.{planes}", trace, [P, I32], None)


def move(bits: int, planes: int) -> Routine:
    """All planes of one register to another of its width: goal, source, lanes."""

    def trace(code: Code, to: Raw, of: Raw, lanes: Value) -> None:
        b = code.builder
        with b.if_else((lanes == -1).raw) as (every, some):
            with every:
                for part in range(planes * max(1, bits // 64)):
                    narrow = min(bits, 64)
                    value = load_plane(code, of, narrow, part)
                    warps.put_lanes(code, plane_of(code, to, narrow, part), value)
            with some:
                for part in range(planes * max(1, bits // 64)):
                    narrow = min(bits, 64)
                    value = load_plane(code, of, narrow, part)
                    at = plane_of(code, to, narrow, part)
                    store_lanes(code, at, value, lanes)

    return routine(f"planes.move.{bits}.{planes}", trace, [P, P, I32], None)


def chosen(bits: int, planes: int, first: bool, second: bool) -> Routine:
    """``selp``: goal, the sources that are followed, the choice, lanes."""

    def trace(code: Code, to: Raw, *given: Raw | Value) -> None:
        pointers, (choice, lanes) = _split(given)
        which = warps.to_lanes(choice)
        for plane in range(planes):
            of = iter(pointers)
            zero = load_plane(code, to, bits, plane).lift(0)
            yes = load_plane(code, next(of), bits, plane) if first else zero
            no = load_plane(code, next(of), bits, plane) if second else zero
            at = plane_of(code, to, bits, plane)
            store_lanes(code, at, select(which, yes, no), lanes)

    name = f"planes.chosen.{bits}.{planes}.{int(first)}{int(second)}"
    return routine(name, trace, [P, *[P] * (first + second), I32, I32], None)


def shuffled(mode: str, planes: int) -> Routine:
    """``shfl`` in all planes: goal, source, steps, limits, members, apart, lanes.

    A lane that reads none of those with it has no second value: its value is 0.
    """

    def trace(
        code: Code,
        to: Raw,
        of: Raw,
        b: Raw,
        c: Raw,
        members: Raw,
        apart: Value,
        lanes: Value,
    ) -> None:
        kept = []  # the goal may be the source
        for plane in range(planes):
            values = code.array(load_plane(code, of, 32, plane).type)
            code.builder.store(load_plane(code, of, 32, plane).raw, values)
            kept.append(code.builder.bitcast(values, I32.as_pointer()))
        goals = [
            warps.words(code, plane_of(code, to, 32, each)) for each in range(planes)
        ]
        steps, limits, named = (warps.words(code, each) for each in (b, c, members))
        with code.loop(LANES) as lane, code.when(has(lanes, lane)):
            given = (lane_of(code, each, lane) for each in (steps, limits))
            chosen, _ = source_lane(mode, convert(lane, I32), *given)
            own = lanes.lift(1) << convert(lane, I32)
            part = (lane_of(code, named, lane) | own) & lanes
            here = has(readable(part, apart, lanes), chosen)
            for values, goal in zip(kept, goals, strict=True):
                place = code.builder.gep(goal, [lane.raw])
                value = lane_of(code, values, chosen)
                code.builder.store(select(here, value, value.lift(0)).raw, place)

    given = [P, P, P, P, P, I32, I32]
    return routine(f"planes.shfl.{mode}.{planes}", trace, given, None)


def packed(goal: int, parts: tuple[bool, ...], planes: int) -> Routine:
    """``mov`` of several registers to one: goal, those that are followed, lanes."""
    width = goal // len(parts)

    def trace(code: Code, to: Raw, *given: Raw | Value) -> None:
        pointers, (lanes,) = _split(given)
        for plane in range(planes):
            of = iter(pointers)
            total = load_plane(code, to, goal, plane).lift(0)
            for place, there in enumerate(parts):
                if there:
                    part = load_plane(code, next(of), width, plane)
                    wide = convert(part, ir.IntType(goal), signed=False)
                    total = total | (wide << (width * place) if place else wide)
            store_lanes(code, plane_of(code, to, goal, plane), total, lanes)

    words = "".join(str(int(each)) for each in parts)
    kinds = [P, *[P] * sum(parts), I32]
    return routine(f"planes.packed.{goal}.{words}.{planes}", trace, kinds, None)


def unpacked(source: int, parts: tuple[bool, ...], planes: int) -> Routine:
    """``mov`` of one register to several: source, those that are followed, lanes."""
    width = source // len(parts)

    def trace(code: Code, of: Raw, *given: Raw | Value) -> None:
        goals, (lanes,) = _split(given)
        for plane in range(planes):
            value, to = load_plane(code, of, source, plane), iter(goals)
            for place, there in enumerate(parts):
                if there:
                    moved = shift_unsigned(value, width * place) if place else value
                    part = convert(moved, ir.IntType(width))
                    at = plane_of(code, next(to), width, plane)
                    store_lanes(code, at, part, lanes)

    words = "".join(str(int(each)) for each in parts)
    kinds = [P, *[P] * sum(parts), I32]
    return routine(f"planes.unpacked.{source}.{words}.{planes}", trace, kinds, None)


def misplaced(bits: int, granule: int) -> Routine:
    """The lanes whose distance is no number of granules."""

    def trace(code: Code, of: Raw) -> Value:
        rest = load_lanes(code, of, bits) & (granule - 1)
        return warps.to_word(rest != 0)

    return routine(f"planes.misplaced.{bits}.{granule}", trace, [P], I32)


def unpermuted(granule: int) -> Routine:
    """The lanes whose selector of ``prmt`` does not move whole granules."""

    def trace(code: Code, of: Raw) -> Value:
        selector = load_lanes(code, of, 32)
        wrong = (selector & 0x8888) != 0
        if granule == 16:  # each half is two neighbours, the even one first
            wrong = wrong | ((selector & 0x1111) != 0x1010)
            wrong = wrong | ((((selector >> 4) ^ selector) & 0x0606) != 0)
        return warps.to_word(wrong)

    return routine(f"planes.unpermuted.{granule}", trace, [P], I32)


def looked_up(
    bits: int, table: int, followed: tuple[bool, ...], planes: int, granule: int
) -> Routine:
    """A bitwise operation: granules that pass as a whole keep their second values.

    Goal, then for each operand its value and, if it is followed, its planes; lanes.
    A granule that is changed in part has no second value, nor has its register.
    """
    count = len(followed)

    def trace(code: Code, to: Raw, *given: Raw | Value) -> None:
        pointers, (lanes,) = _split(given)
        rest, values, bases = iter(pointers), [], []
        for each in followed:
            values.append(load_lanes(code, next(rest), bits))
            bases.append(next(rest) if each else None)
        zero = values[0].lift(0)
        total, lost = [zero] * planes, zero
        for place, base in enumerate(bases):
            if base is None:
                continue
            on, off = (_evaluated(table, values, place, there) for there in (-1, 0))
            passes, matters = on & ~off, on ^ off
            kept = _granules(passes, bits, granule)
            every = zero
            for plane in range(planes):
                part = load_plane(code, base, bits, plane)
                every = every | part
                total[plane] = total[plane] | (part & kept)
            held = _any(every, bits, granule)
            lost = lost | (held & matters & ~kept)
        for plane, found in enumerate(total):
            at = plane_of(code, to, bits, plane)
            store_lanes(code, at, select(lost != 0, zero, found), lanes)

    which = "".join(str(int(each)) for each in followed)
    name = f"planes.table.{bits}.{table}.{which}.{planes}.{granule}"
    kinds = [P, *[P] * (count + sum(followed)), I32]
    return routine(name, trace, kinds, None)


def _evaluated(table: int, values: list[Value], place: int, there: int) -> Value:
    """The bits of a truth table if all bits of one operand are 1, or 0."""
    given = [e.lift(there) if i == place else e for i, e in enumerate(values)]
    count, zero = len(values), values[0].lift(0)
    found = zero
    for index in range(1 << count):
        if table >> index & 1:
            possible = zero.lift(-1)
            for number, value in enumerate(given):
                bit = index >> (count - 1 - number) & 1
                possible = possible & (value if bit else ~value)
            found = found | possible
    return found


def _any(value: Value, bits: int, granule: int) -> Value:
    """All bits of each granule that has any."""
    found = value.lift(0)
    for start in range(0, bits, granule):
        mask = as_signed(((1 << min(granule, bits)) - 1) << start, bits)
        found = select((value & mask) != 0, found | mask, found)
    return found


def _granules(value: Value, bits: int, granule: int) -> Value:
    """All bits of each granule that has all of them."""
    return ~_any(~value, bits, granule)


def second_lanes(bits: int, planes: int) -> Routine:
    """The lanes of a register that have a second value."""

    def trace(code: Code, of: Raw) -> Value:
        narrow = min(bits, 64)
        total = load_plane(code, of, narrow, 0)
        for part in range(1, planes * max(1, bits // 64)):
            total = total | load_plane(code, of, narrow, part)
        return warps.to_word(total != 0)

    return routine(f"planes.lanes.{bits}.{planes}", trace, [P], I32)


def renew(code: Code, block: Raw) -> None:
    """A block begins: so do the planes of its shared and of its local memory."""
    b = code.builder
    size = field(code, block, layout.BLOCK_SHARED_SIZE, I64)[0]
    count = convert(field(code, block, layout.BLOCK_WARPS, I32)[0], I64)
    local = field(code, block, layout.BLOCK_LOCAL_SIZE, I64)[0] * LANES * count
    first = pointer_at(code, block, layout.BLOCK_SHADOW)
    place = code.variable(Value(b, b.ptrtoint(first, I64)))
    with warps.repeat(code) as again:
        shadow = b.inttoptr(place.value.raw, P)
        shared = pointer_at(code, shadow, layout.BLOCK_SHARED)
        byte = convert(field(code, shadow, planes_at.FILL, I64)[0], I8)
        warps.fill_memory(b, shared, byte.raw, size.raw)
        base = field(code, shadow, planes_at.WARPS_AT + layout.LOCAL_BASE, I64)[0]
        warps.clear_memory(b, b.inttoptr(base.raw, P), local.raw)
        place.value = field(code, shadow, planes_at.NEXT, I64)[0]
        again(place.value != 0)


RENEW = routine("planes.renew", renew, [P], None)
"""Called when a block begins: the block."""


def _quiet(
    code: Code,
    block: Raw,
    warp: Raw,
    event: Raw,
    lanes: Value,
    about: Raw,
    number: Value,
) -> Value:
    return code.constant(1, I32)


QUIET = routine("planes.port.quiet", _quiet, [P, P, P, I32, P, I64], I32)
"""Answers that all is well, for an observer that a call tells nothing."""
