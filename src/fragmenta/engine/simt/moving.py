"""Moves values between registers of different widths.

``mov`` packs a vector into one register and takes one apart.  The parameters of
functions are words; a wider or narrower value is a piece of them.
"""

from __future__ import annotations

from llvmlite import ir

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, Code, Trace, Value, convert, select
from fragmenta.engine.simt import warps
from fragmenta.engine.simt.emitter import InMemory, Writer, handles
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import POINTER, Routine, as_signed, define, field
from fragmenta.errors import Error
from fragmenta.ptx.families import MOVES
from fragmenta.ptx.module import Instruction, Operand, Sink, Vector, type_bits
from fragmenta.ptx.opcodes.table import TYPES


@handles(*MOVES)
def mov(writer: Writer, instruction: Instruction) -> None:
    """A move; of a vector, a packing or an unpacking."""
    d, a = instruction.operands
    kind = next(word for word in instruction.qualifiers if word in TYPES)
    if instruction.qualifiers[0] in ("v2", "v4"):
        _all(writer, instruction, kind)
    elif isinstance(d, Vector) and isinstance(a, Vector):
        raise Error(
            f"{instruction.mnemonic} packs or unpacks one register; between two "
            f"vectors it is mov.v{len(d.items)}.b{type_bits(kind) // len(d.items)}"
        )
    elif isinstance(a, Vector):
        _pack(writer, d, a, kind)
    elif isinstance(d, Vector):
        _unpack(writer, d, a, kind)
    else:
        _one(writer, kind, d, writer.source(a, kind))


def _one(writer: Writer, kind: str, d: Operand, source: InMemory) -> None:
    """Move one value."""
    if source.bits != type_bits(kind) and type_bits(kind) > 1:
        # A special register or an address may be wider or narrower.
        goal = writer.result(d, kind)
        writer.call(
            resize(source.bits, goal.bits),
            f"ptr {writer.address(goal)}",
            f"ptr {writer.address(source)}",
            f"i32 {writer.mask or -1}",
        )
    else:
        writer.compute(f"mov.{kind}", d, source)


def _all(writer: Writer, instruction: Instruction, kind: str) -> None:
    """Move the elements of a vector: all are read before one is written."""
    count, (d, a) = int(instruction.qualifiers[0][1:]), instruction.operands
    for each in (d, a):
        if not isinstance(each, Vector) or len(each.items) != count:
            raise Error(f"{instruction.mnemonic} takes vectors of {count} elements")
    assert isinstance(d, Vector)
    assert isinstance(a, Vector)
    kept = []
    for of in a.items:
        source = writer.source(of, kind)
        held = writer.temporary(source.bits)
        writer.compute(f"mov.b{source.bits}", held, source)
        kept.append(held)
    for to, held in zip(d.items, kept, strict=True):
        if not isinstance(to, Sink):
            _one(writer, kind, to, held)


def _parts(writer: Writer, vector: Vector, kind: str, result: bool) -> list[InMemory]:
    width = type_bits(kind) // len(vector.items)
    part = f"b{width}"
    found = []
    for each in vector.items:
        at = writer.result(each, part) if result else writer.source(each, part)
        found.append(at)
    return found


def _pack(writer: Writer, d: Operand, a: Vector, kind: str) -> None:
    goal = writer.result(d, kind)
    sources = _parts(writer, a, kind, result=False)
    step = type_bits(kind) // len(sources)
    for number, source in enumerate(sources):
        _insert(writer, goal, source, number * step, step)


def _insert(
    writer: Writer, goal: InMemory, source: InMemory, bit: int, width: int
) -> None:
    """Put a value into some bits of a register; b128 has two halves."""
    if goal.bits == 128:
        goal, bit = goal.moved(8 * LANES * (bit // 64), 64), bit % 64
    writer.call(
        insert(goal.bits, source.bits, bit, width),
        f"ptr {writer.address(goal)}",
        f"ptr {writer.address(source)}",
        f"i32 {writer.mask or -1}",
    )


def _unpack(writer: Writer, d: Vector, a: Operand, kind: str) -> None:
    source = writer.source(a, kind)
    step = type_bits(kind) // len(d.items)
    for number, each in enumerate(d.items):
        if isinstance(each, Sink):
            continue
        goal = writer.result(each, f"b{step}")
        _extract(writer, goal, source, number * step, step, signed=False)


def _extract(
    writer: Writer, goal: InMemory, source: InMemory, bit: int, width: int, signed: bool
) -> None:
    if source.bits == 128:
        source, bit = source.moved(8 * LANES * (bit // 64), 64), bit % 64
    writer.call(
        extract(goal.bits, source.bits, bit, width, signed),
        f"ptr {writer.address(goal)}",
        f"ptr {writer.address(source)}",
        f"i32 {writer.mask or -1}",
    )


def pieces(
    writer: Writer,
    first: int,
    offset: int,
    size: int,
    value: InMemory,
    put: bool,
    signed: bool = False,
) -> None:
    """Move a value of some bytes between a register and words of a parameter."""
    for done in range(0, size, 4):
        width = 8 * min(size, 4)
        word = first + 4 * LANES * ((offset + done) // 4)
        bit = 8 * ((offset + done) % 4)
        here = InMemory("%warp", word, 32)
        if size > 4:  # each word is a part of a wide register
            if put:
                _extract(writer, here, value, 8 * done, 32, signed=False)
            else:
                _insert(writer, value, here, 8 * done, 32)
        elif put:
            _insert(writer, here, value, bit, width)
        else:
            _extract(writer, value, here, bit, width, signed)


def splat(writer: Writer, goal: InMemory, place: int, bits: int, signed: bool) -> None:
    """Put a parameter of the kernel into every lane of a register."""
    source = writer.at("%parameters", place)
    writer.call(
        spread(goal.bits, bits, signed),
        f"ptr {writer.address(goal)}",
        f"ptr {source}",
        f"i32 {writer.mask or -1}",
    )


# ── routines ────────────────────────────────────────────────────────────────


def load_lanes(code: Code, pointer: Raw, bits: int) -> Value:
    """The values of all lanes of a register."""
    b = code.builder
    of = ir.VectorType(ir.IntType(bits), LANES)
    loaded = b.load(b.bitcast(pointer, of.as_pointer()))
    loaded.align = 16
    return Value(b, loaded)


def store_lanes(code: Code, pointer: Raw, value: Value, lanes: Value) -> None:
    """Give some lanes of a register a value."""
    b = code.builder
    place = b.bitcast(pointer, value.type.as_pointer())
    before = b.load(place)
    before.align = 16
    chosen = select(warps.to_lanes(lanes), value, Value(b, before))
    b.store(chosen.raw, place).align = 16


def _two(name: str, trace: Trace) -> Routine:
    def build(module: ir.Module) -> None:
        define(module, name, [POINTER, POINTER, I32], trace)

    return Routine(name, build)


def insert(goal: int, source: int, bit: int, width: int) -> Routine:
    """Put the low bits of one register into some bits of another."""

    def trace(code: Code, to: Raw, of: Raw, lanes: Value) -> None:
        before = load_lanes(code, to, goal)
        mask = (1 << width) - 1
        value = convert(load_lanes(code, of, source), ir.IntType(goal), signed=False)
        kept = before & ~before.lift(as_signed(mask << bit, goal))
        store_lanes(code, to, kept | ((value & as_signed(mask, goal)) << bit), lanes)

    return _two(f"insert.{goal}.{source}.{bit}.{width}", trace)


def extract(goal: int, source: int, bit: int, width: int, signed: bool) -> Routine:
    """Take some bits out of a register."""

    def trace(code: Code, to: Raw, of: Raw, lanes: Value) -> None:
        b = code.builder
        value = load_lanes(code, of, source)
        moved = Value(b, b.lshr(value.raw, value.lift(bit).raw)) if bit else value
        part = convert(moved, ir.IntType(width)) if width < source else moved
        store_lanes(code, to, convert(part, ir.IntType(goal), signed=signed), lanes)

    sign = "s" if signed else "u"
    return _two(f"extract.{goal}.{source}.{bit}.{sign}{width}", trace)


def resize(source: int, goal: int) -> Routine:
    """A register as one of another width."""
    return extract(goal, source, 0, min(source, goal), signed=False)


def spread(goal: int, bits: int, signed: bool) -> Routine:
    """One number from memory in every lane."""

    def trace(code: Code, to: Raw, of: Raw, lanes: Value) -> None:
        number = field(code, of, 0, ir.IntType(bits))[0]
        wide = convert(number, ir.IntType(goal), signed=signed)
        store_lanes(code, to, wide.in_all_lanes(LANES), lanes)

    return _two(f"spread.{goal}.{'s' if signed else 'u'}{bits}", trace)
