"""Atomic operations: the lanes of a warp change memory one after the other.

The lanes of a warp do so in the order of their numbers.  Additions and the like of
whole numbers are atomic on the host, too, since several blocks may run at a time; for
all others the blocks of a kernel take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from llvmlite import ir

from fragmenta.base.jit.llvm import Builder, Raw
from fragmenta.base.jit.trace import (
    I32,
    I64,
    Code,
    Value,
    compare_unsigned,
    select,
)
from fragmenta.engine.simt.accessing import element_type, space_of
from fragmenta.engine.simt.emitter import Writer, address_of, handles
from fragmenta.engine.simt.events import event
from fragmenta.engine.simt.layout import LANES, MIXED, Fault
from fragmenta.engine.simt.library import Routine
from fragmenta.engine.simt.memory import (
    AccessForm,
    AddressRange,
    addresses,
    fault,
    generic,
    has,
    inside,
    lane_of,
    note,
    peer,
    pointer,
    shared,
    spill,
)
from fragmenta.engine.simt.warps import P, routine
from fragmenta.errors import BadOperands, Error
from fragmenta.ptx.effects import find
from fragmenta.ptx.families import REDUCING, UPDATES
from fragmenta.ptx.module import Address, Instruction, Operand, Sink, Vector, type_bits
from fragmenta.ptx.opcodes.atomics import OPERATIONS
from fragmenta.ptx.opcodes.table import TABLE

_HOST = ("add", "and", "or", "xor")
_WHOLE = frozenset({"u32", "s32", "b32", "u64", "s64", "b64"})


class Atomic(NamedTuple):
    """A kind of atomic operation."""

    operation: str
    type: str
    space: str
    address: int
    elements: int
    """Elements of each lane."""

    @property
    def name(self) -> str:
        """A name for the routine."""
        return f"atom.{'.'.join(map(str, self))}"


@handles(*UPDATES)
def atom(writer: Writer, instruction: Instruction) -> None:
    """An atomic operation, with or without the old value as a result."""
    words = instruction.qualifiers
    if find(instruction.mnemonic) is not None:  # red.async
        event(writer, instruction)
        return
    operation = next((w for w in words if w in OPERATIONS), "")
    if not operation:
        raise Error(f"{instruction.mnemonic} is not supported")
    kind = element_type(instruction)
    operands = list(instruction.operands)
    goal: Operand = operands.pop(0) if instruction.is_fetch else Sink()
    address = operands.pop(0)
    if not isinstance(address, Address):
        raise Error(f"{instruction.mnemonic} needs an address")
    at, offset = address_of(writer, address)
    count = len(operands[0].items) if isinstance(operands[0], Vector) else 1
    needed = 2 if operation == "cas" else 1
    sources = [_places(writer, each, kind, count, False) for each in operands[:needed]]
    goals = _places(writer, goal, kind, count, True)
    parts = 2 * count if type_bits(kind) == 128 else count
    if len(sources) != needed or any(len(each) != parts for each in (goals, *sources)):
        raise BadOperands(f"{instruction.mnemonic} with operands of different sizes")
    atomic = Atomic(operation, kind, space_of(instruction), at.bits, parts)
    what = AccessForm(
        "global" if atomic.space == "param" else atomic.space,
        min(type_bits(kind), 64),
        min(type_bits(kind), 64),
        parts,
        address=at.bits,
    )
    stored = (sources[0] * parts)[:parts]
    writer.probes.access(writer, instruction, what, at, offset, stored, "atomic")
    failed = writer.call(
        make(atomic),
        *writer.memory,
        f"ptr {writer.address(at)}",
        f"i64 {offset}",
        f"i32 {writer.lanes()}",
        f"i32 {writer.site()}",
        *(f"ptr {each}" for places in (goals, *sources) for each in places),
        returns="i32",
    )
    writer.stop_if(failed)


def _places(
    writer: Writer, operand: Operand, kind: str, count: int, result: bool
) -> list[str]:
    items: tuple[Operand, ...]
    if isinstance(operand, Vector):
        items = operand.items
    else:
        items = (operand,) * (count if isinstance(operand, Sink) else 1)
    found = []
    for each in items:
        found.append(writer.pointer(each, kind, result=result))
        if type_bits(kind) == 128:
            found.append(writer.at(found[-1], 8 * LANES))
    return found


COMMUTATIVE = tuple(
    (operation, kind)
    for operation in REDUCING
    for kind in ("u32", "s32", "b32", "u64", "s64", "b64")
)
"""Atomics whose order does not matter; their notes are 2, 3, ... in this order."""


def noted(atomic: Atomic) -> int:
    """The note of memory that an atomic operation changed."""
    return note_of(atomic.operation, atomic.type)


def note_of(operation: str, kind: str) -> int:
    """The note of memory that an operation changed, one element at a time.

    >>> note_of("add", "u32"), note_of("add", "f32") == MIXED
    (2, True)
    """
    key = (operation, kind)
    return 2 + COMMUTATIVE.index(key) if key in COMMUTATIVE else MIXED


# ── routines ────────────────────────────────────────────────────────────────


def make(atomic: Atomic) -> Routine:
    """The routine of an atomic operation; it returns 1 after a fault."""
    needed = 3 if atomic.operation == "cas" else 2

    def trace(
        code: Code,
        warp: Raw,
        block: Raw,
        register: Raw,
        offset: Value,
        lanes: Value,
        number: Value,
        *registers: Raw,
    ) -> Value:
        spilled = spill(code, addresses(code, register, atomic.address, offset))
        failed = code.variable(number.lift(0))
        size = min(type_bits(atomic.type), 64) // 8 * atomic.elements
        with (
            code.loop(LANES) as lane,
            code.when(has(lanes, lane) & (failed.value == 0)),
        ):
            address = lane_of(code, spilled, lane)
            if atomic.space == "shared":
                where = shared(code, block)
            elif atomic.space == "cluster":
                where = peer(code, block, address)
            else:
                where = generic(code, warp, block, address, lane)
            bounds = inside(where, address, size)
            writable = (where.flags & 1) == 0
            good = bounds & ((address & (size - 1)) == 0) & writable
            with code.when(~good):
                for wrong, kind in (
                    (~bounds, Fault.BOUNDS),
                    (bounds & ~writable, Fault.READ_ONLY),
                    (bounds & writable, Fault.ALIGNMENT),
                ):
                    with code.when(wrong):
                        fault(code, warp, kind, number, lane, address, size)
                failed.value = number.lift(1)
            with code.when(good):
                _lane(code, atomic, where, address, lane, registers)
                note(code, where, address, size, noted(atomic))
        return failed.value

    registers = [P] * (needed * atomic.elements)
    return routine(atomic.name, trace, [P, P, P, I64, I32, I32, *registers], I32)


def _lane(
    code: Code,
    atomic: Atomic,
    where: AddressRange,
    address: Value,
    lane: Value,
    registers: tuple[Raw, ...],
) -> None:
    """The operation of one lane."""
    b, count = code.builder, atomic.elements
    of = ir.IntType(min(type_bits(atomic.type), 64))
    memory = pointer(code, where, address, of)
    goals, first, second = (registers[i * count : (i + 1) * count] for i in range(3))

    def given(place: Raw) -> Value:
        return Value(b, b.load(b.gep(b.bitcast(place, of.as_pointer()), [lane.raw])))

    def result(place: Raw, old: Value) -> None:
        b.store(old.raw, b.gep(b.bitcast(place, of.as_pointer()), [lane.raw]))

    cells = [b.gep(memory, [ir.Constant(I32, i)]) for i in range(count)]
    x = [given(each) for each in first]
    if atomic.operation == "cas":
        news = [given(each) for each in second]
        olds = [_plain(b, each) for each in cells]
        same = olds[0] == x[0]
        for old, wanted in zip(olds[1:], x[1:], strict=True):
            same = same & (old == wanted)
        for cell, old, new in zip(cells, olds, news, strict=True):
            b.store(select(same, new, old).raw, cell)
    else:
        olds = [
            update(code, atomic, cell, value)
            for cell, value in zip(cells, x, strict=True)
        ]
    for place, old in zip(goals, olds, strict=True):
        result(place, old)


def update(code: Code, atomic: Atomic, cell: Raw, value: Value) -> Value:
    """Change one element in memory; its old value."""
    b, name = code.builder, atomic.operation
    whole = atomic.type in _WHOLE
    if whole and name in _HOST:
        return Value(b, b.atomic_rmw(name, cell, value.raw, "monotonic"))
    if whole and name in ("min", "max"):
        name = ("u" if atomic.type[0] == "u" else "") + name
        return Value(b, b.atomic_rmw(name, cell, value.raw, "monotonic"))
    old = _plain(b, cell)
    b.store(_combine(atomic)(old, value).raw, cell)
    return old


def _plain(b: Builder, cell: Raw) -> Value:
    return Value(b, b.load(cell))


def computing(atomic: Atomic) -> str:
    """The instruction that computes a new value from the old one and another.

    >>> computing(Atomic("add", "f32", "global", 64, 1))
    'add.rn.ftz.f32'
    """
    if atomic.operation != "add":
        return f"{atomic.operation}.{atomic.type}"
    # In global memory, f32 is added without subnormals.
    near = atomic.space in ("shared", "cluster")
    flushes = ".ftz" if atomic.type == "f32" and not near else ""
    return f"add.rn{flushes}.{atomic.type}"


def _combine(atomic: Atomic) -> Callable[[Value, Value], Value]:
    """The new value of memory, from the old one and what a lane gives."""
    if atomic.operation == "exch":
        return lambda old, value: value
    if atomic.operation == "inc":
        return lambda old, value: select(
            compare_unsigned(">=", old, value), old.lift(0), old + 1
        )
    if atomic.operation == "dec":
        return lambda old, value: select(
            (old == 0) | compare_unsigned(">", old, value), value, old - 1
        )
    name = computing(atomic)
    match = TABLE.find(name)
    if match is None or match.syntax.emit is None:
        raise Error(f"{atomic.operation} of {atomic.type} is not supported in memory")
    emit, qualifiers = match.syntax.emit, match.qualifiers

    def computed(old: Value, value: Value) -> Value:
        found = emit(qualifiers, *(each.in_all_lanes(1) for each in (old, value)))
        b = found.builder
        return Value(b, b.extract_element(found.raw, ir.Constant(I32, 0)))

    return computed
