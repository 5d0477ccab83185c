"""Routines of instructions that work lane by lane.

The routine takes a pointer to the warp, and how far behind it each result and then
each operand is: 32 values side by side, or one word of 32 bits for a predicate.  So a
call is one line of code: a constant needs no instruction of its own, as a pointer
would.  There are two of each: one for all lanes, and one that changes only the lanes
in a mask.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple, TypeAlias

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import I1, I8, I16, I32, I64, Code, Value, convert
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import POINTER, Routine, define
from fragmenta.ptx.opcodes.table import Match

MASKED = "|masked"
CHUNK = 8
"""Lanes that a long routine computes at a time."""

_WIDTHS = {1: I1, 8: I8, 16: I16, 32: I32, 64: I64}


class Elementwise(NamedTuple):
    """The routines of an instruction."""

    name: str
    full: Routine
    masked: Routine


class ElementOperand(NamedTuple):
    """An operand: the bits of its type, and of the register that holds it."""

    bits: int
    register: int
    signed: bool = False


def elementwise(
    mnemonic: str,
    match: Match,
    results: tuple[ElementOperand, ...],
    operands: tuple[ElementOperand | None, ...],
    extra: tuple[tuple[str, str], ...] = (),
) -> Elementwise:
    """The routines for an instruction whose meaning is in the table.

    An operand that was not written is None.  ``extra`` are further qualifiers that the
    function of the table needs, such as the selectors of video instructions.
    """
    shape = ",".join(
        "-" if each is None else f"{each.bits}:{each.register}{'s' * each.signed}"
        for each in (*results, *operands)
    )
    more = "".join(f" {name}={word}" for name, word in extra)
    name = f"{mnemonic}|{len(results)}|{shape}{more}"
    qualifiers = {**match.qualifiers, **dict(extra)}

    def build(module: ir.Module, *, masked: bool) -> None:
        _define(module, name, match, qualifiers, results, operands, masked)

    return Elementwise(
        name,
        Routine(name, partial(build, masked=False)),
        Routine(name + MASKED, partial(build, masked=True)),
    )


def _define(
    module: ir.Module,
    name: str,
    match: Match,
    qualifiers: dict[str, str],
    results: tuple[ElementOperand, ...],
    operands: tuple[ElementOperand | None, ...],
    masked: bool,
) -> None:
    emit, large = match.syntax.emit, match.syntax.large
    assert emit is not None
    count = CHUNK if large else LANES
    written = [each for each in operands if each is not None]

    def lanes(code: Code, index: Value, given: list[Raw]) -> None:
        places = iter(given[len(results) :])
        values = [
            None if held is None else _load(code, next(places), held, index, count)
            for held in operands
        ]
        found = emit(qualifiers, *values)
        # One result of 128 bits is a pair of halves.
        several = isinstance(found, tuple) and [each.bits for each in results] != [128]
        found = found if several else (found,)
        mask = _bits(code, given[-1], index, count) if masked else None
        for held, place, value in zip(results, given, found, strict=False):
            _store(code, place, held, index, count, value, mask)

    def trace(code: Code, *given: Raw | Value) -> None:
        warp, *rest = given
        assert not isinstance(warp, Value)
        offsets = [each for each in rest if isinstance(each, Value)]
        mask = offsets.pop() if masked else None
        pointers = [code.builder.gep(warp, [each.raw]) for each in offsets]
        if mask is not None:  # in memory, where a part of it can be loaded
            slot = code.array(I32)
            code.builder.store(mask.raw, slot)
            pointers.append(code.builder.bitcast(slot, POINTER))
        if large:
            with code.loop(LANES // CHUNK) as index:
                lanes(code, index, pointers)
        else:
            lanes(code, code.constant(0, I64), pointers)

    offsets = [I64] * (len(results) + len(written))
    parameters = [POINTER, *offsets, *[I32] * masked]
    define(module, name + MASKED * masked, parameters, trace)


Loaded: TypeAlias = "Value | tuple[Loaded, ...]"
"""A value, or the two halves of one of 128 bits."""


def _place(code: Code, pointer: Raw, of: Type, count: int, index: Value) -> Raw:
    """Where chunk number ``index`` of a register begins."""
    b = code.builder
    wide = ir.VectorType(of, count)
    return b.gep(b.bitcast(pointer, wide.as_pointer()), [index.raw])


def _bits(code: Code, pointer: Raw, index: Value, count: int) -> Value:
    """A part of a predicate: one bit for each lane.

    Each lane tests a bit of its own: processors without mask registers do that
    faster than they unpack a word.
    """
    b = code.builder
    of = ir.IntType(count)
    word = Value(b, b.load(b.gep(b.bitcast(pointer, of.as_pointer()), [index.raw])))
    every = convert(word, I32, signed=False).in_all_lanes(count)
    own = ir.Constant(ir.VectorType(I32, count), [1 << i for i in range(count)])
    chosen: Value = (every & Value(b, own)) != 0
    return chosen


def _load(
    code: Code, pointer: Raw, held: ElementOperand, index: Value, count: int
) -> Loaded:
    if held.bits == 1:
        return _bits(code, pointer, index, count)
    if held.bits == 128:
        step = code.builder.gep(pointer, [ir.Constant(I32, 8 * LANES)])
        half = ElementOperand(64, 64)
        return tuple(_load(code, p, half, index, count) for p in (pointer, step))
    of = _WIDTHS[held.register]
    loaded = code.builder.load(_place(code, pointer, of, count, index))
    loaded.align = 16
    return convert(Value(code.builder, loaded), _container(held.bits))


def _container(bits: int) -> Type:
    """The integer type that holds so many bits."""
    made: Type = _WIDTHS.get(bits, I8)
    return made


def _store(
    code: Code,
    pointer: Raw,
    held: ElementOperand,
    index: Value,
    count: int,
    value: Loaded,
    mask: Value | None,
) -> None:
    b = code.builder
    if held.bits == 1:
        assert isinstance(value, Value)
        of = ir.IntType(count)
        place = b.gep(b.bitcast(pointer, of.as_pointer()), [index.raw])
        if mask is not None:
            before = b.bitcast(b.load(place), value.type)
            value = Value(b, b.select(mask.raw, value.raw, before))
        b.store(b.bitcast(value.raw, of), place)
        return
    if held.bits == 128:
        step = b.gep(pointer, [ir.Constant(I32, 8 * LANES)])
        assert isinstance(value, tuple)
        for part, place in zip(value, (pointer, step), strict=True):
            _store(code, place, ElementOperand(64, 64), index, count, part, mask)
        return
    assert isinstance(value, Value)
    value = convert(value, _WIDTHS[held.register], signed=held.signed)
    place = _place(code, pointer, _WIDTHS[held.register], count, index)
    if mask is not None:
        before = b.load(place)
        before.align = 16
        value = Value(b, b.select(mask.raw, value.raw, before))
    b.store(value.raw, place).align = 16
