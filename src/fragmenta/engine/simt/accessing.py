"""Loads, stores, and conversions of addresses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.emitter import (
    InMemory,
    Writer,
    address_of,
    handles,
)
from fragmenta.engine.simt.events import event, if_some, located, notify
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.library import Routine
from fragmenta.engine.simt.memory import AccessForm, load, store
from fragmenta.engine.simt.moving import pieces, splat
from fragmenta.engine.simt.program import parameter_offsets
from fragmenta.errors import BadOperands, Error
from fragmenta.ptx.effects import find
from fragmenta.ptx.families import LOADS, STORES
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Symbol,
    Vector,
    type_bits,
)
from fragmenta.ptx.opcodes.table import TYPES

_SPACES = {
    "global": "global",
    "const": "global",
    "local": "local",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "cluster",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
}


def space_of(instruction: Instruction) -> str:
    """The state space of an access; ``global`` stands for generic addresses, too."""
    for word in instruction.qualifiers:
        if word in _SPACES:
            return _SPACES[word]
    return "global"


def element_type(instruction: Instruction) -> str:
    """The type of one element."""
    return next(word for word in reversed(instruction.qualifiers) if word in TYPES)


def _address(instruction: Instruction) -> Address:
    for each in instruction.operands:
        if isinstance(each, Address):
            return each
    raise Error(f"{instruction.mnemonic} needs an address")


def _registers(
    writer: Writer, operand: Operand, kind: str, result: bool
) -> list[InMemory]:
    """Where the elements of a load or store are; b128 has two halves."""
    items = operand.items if isinstance(operand, Vector) else (operand,)
    found = []
    for each in items:
        at = writer.result(each, kind) if result else writer.source(each, kind)
        if type_bits(kind) != 128:
            found.append(at)
        elif at.bits == 128:
            found.append(at._replace(bits=64))
            found.append(at.moved(8 * LANES, 64))
        else:
            raise BadOperands(f"a .{kind} is in a register of 128 bits, not {at.bits}")
    return found


@handles(*LOADS)
def ld(writer: Writer, instruction: Instruction) -> None:
    """A load, of one element or a vector."""
    kind, address = element_type(instruction), _address(instruction)
    goals = _registers(writer, instruction.operands[0], kind, result=True)
    space = param_space(writer, space_of(instruction), address)
    if space == "param" and isinstance(address.base, Symbol):
        _load_parameter(writer, address, kind, goals)
        return
    _transfer(writer, instruction, load, space, kind, address, goals)


@handles(*STORES)
def st(writer: Writer, instruction: Instruction) -> None:
    """A store, of one element or a vector."""
    if find(instruction.mnemonic) is not None:  # st.async
        event(writer, instruction)
        return
    if "bulk" in instruction.qualifiers:
        raise Error("st.bulk is not supported yet")
    kind, address = element_type(instruction), _address(instruction)
    values = _registers(writer, instruction.operands[1], kind, result=False)
    space = param_space(writer, space_of(instruction), address)
    if space == "param" and isinstance(address.base, Symbol):
        _store_parameter(writer, address, kind, values)
        return
    _transfer(writer, instruction, store, space, kind, address, values)


def param_space(writer: Writer, space: str, address: Address) -> str:
    """``local`` for a parameter that is in local memory."""
    base = address.base
    if isinstance(base, Symbol) and base.name in writer.unit.addressed:
        return "local"
    return space


def access_of(
    space: str, kind: str, address: int, registers: list[InMemory], loads: bool
) -> AccessForm:
    """The kind of a load or a store; ``address`` are the bits of that register."""
    widths = {each.bits for each in registers}
    if len(widths) != 1:
        raise Error("the registers of a vector must have one width")
    if max(widths) > 64:
        raise Error("a part of a register of .b128")
    if min(widths) < 8:
        raise BadOperands("a predicate is not loaded or stored")
    bits, width = min(type_bits(kind), 64), widths.pop()
    return AccessForm(
        "global" if space == "param" else space,
        bits,
        width,
        len(registers),
        # The sign counts only where a load extends a value.
        kind.startswith("s") and loads and width > bits,
        address,
    )


def _transfer(
    writer: Writer,
    instruction: Instruction,
    make: Callable[[AccessForm, bool], Routine],
    space: str,
    kind: str,
    address: Address,
    registers: list[InMemory],
) -> None:
    at, offset = address_of(writer, address)
    access = access_of(space, kind, at.bits, registers, make is load)
    places = [writer.address(each) for each in registers]
    verb = "write" if make is store else "read"
    given = at, offset, places, verb
    writer.probes.access(writer, instruction, access, *given)
    observed = writer.mode.watch or writer.mode.defined
    spaces = ("global",) if make is load else ("global", "cluster")
    lenient = observed and access.space in spaces
    lenient |= make is store and access.space == "cluster"
    failed = writer.call(
        make(access, lenient),
        *writer.memory,
        f"ptr {writer.address(at)}",
        f"i64 {offset}",
        f"i32 {writer.lanes()}",
        f"i32 {writer.site()}",
        *(f"ptr {each}" for each in places),
        returns="i32",
    )
    writer.stop_if(failed)
    if lenient:
        kind = "w" if make is store else "s" if access.signed else "u"
        told = f"{kind}{access.bits}"
        past_the_end(writer, told, [located(writer, at, offset)], registers)


def past_the_end(
    writer: Writer, kind: str, operands: list[Any], registers: list[InMemory]
) -> None:
    """Tell of lanes whose access was none, but no fault: ``PAST`` has them.

    It is that of the warp whose memory was accessed, which may be a shadow.
    """
    warp = writer.memory[0].removeprefix("ptr ")
    past = writer.load("i32", warp, layout.PAST)
    with if_some(writer, past):
        writer.store("i32", 0, warp, layout.PAST)
        words = ["past-the-end", kind]
        if writer.plane is not None:
            words.append("shadow")
        places = [["r", each.offset, each.bits] for each in registers]
        notify(writer, words, [*operands, *places], past)


# ── parameters ──────────────────────────────────────────────────────────────


def _parameter(
    writer: Writer, address: Address, kind: str, count: int
) -> tuple[str, int, int]:
    """The parameter that is accessed, from which byte on, and the bytes of an element.

    Which bytes these are is known when the kernel is compiled: all of them have to be
    in the parameter.
    """
    base, function = address.base, writer.unit.function
    assert isinstance(base, Symbol)
    kernel = writer.program.units[writer.program.kernel.name]
    tables = (writer.unit.given, function.variables, kernel.given)
    found = next((each[base.name] for each in tables if base.name in each), None)
    if found is None or found.space == "reg":
        raise Error(f"{base.name} is not a parameter")
    offset, most = address.offset + base.offset, found.size
    size = min(type_bits(kind), 64) // 8
    if not 0 <= offset <= most - count * size:
        raise BadOperands(
            f"{base.name} has {most} bytes; given bytes {offset} to "
            f"{offset + count * size - 1}"
        )
    if offset % size:
        raise BadOperands(
            f"a .{kind} is at a multiple of {size} bytes of {base.name}; given {offset}"
        )
    return base.name, offset, size


def _words(writer: Writer) -> dict[str, int]:
    """Where the parameters of calls are, or their shadows."""
    unit, plane = writer.unit, writer.plane
    if plane is None:
        return unit.words
    return {name: places[plane] for name, places in unit.shadow_words.items()}


def _store_parameter(
    writer: Writer, address: Address, kind: str, values: list[InMemory]
) -> None:
    """A parameter by its name: of a function to be called, or a result."""
    name, offset, size = _parameter(writer, address, kind, len(values))
    first = _words(writer).get(name)
    if first is None:
        raise Error(f"{name} is not a parameter that can be written")
    for number, each in enumerate(values):
        pieces(writer, first, offset + number * size, size, each, put=True)


def _load_parameter(
    writer: Writer, address: Address, kind: str, goals: list[InMemory]
) -> None:
    """A parameter by its name: of the kernel, or of the present function."""
    name, offset, size = _parameter(writer, address, kind, len(goals))
    signed, words = kind.startswith("s"), _words(writer)
    places = parameter_offsets(writer.program.kernel)
    for number, each in enumerate(goals):
        place = offset + number * size
        if name in words:
            pieces(writer, words[name], place, size, each, put=False, signed=signed)
        elif name in places:
            splat(writer, each, places[name] + place, 8 * size, signed)
        else:
            raise Error(f"{name} is not a parameter that can be read")


# ── addresses ───────────────────────────────────────────────────────────────

_WINDOWS = {
    "shared": layout.SHARED_WINDOW,
    "cluster": layout.SHARED_WINDOW,
    "local": layout.LOCAL_WINDOW,
}


@handles("cvta")
def cvta(writer: Writer, instruction: Instruction) -> None:
    """Convert between a generic address and one in a state space."""
    d, a = instruction.operands
    window = _WINDOWS.get(space_of(instruction), 0)
    kind = element_type(instruction)
    words = "sub" if "to" in instruction.qualifiers else "add"
    bits = type_bits(kind)
    if writer.unit.function.kernel and instruction.qualifiers[0] == "param":
        # A 32-bit register has only the place among the parameters.
        source = writer.source(a, kind)
        writer.compute("or.b64", d, source, writer.constant(64, layout.PARAM_WINDOW))
        return
    if not window or bits == 32:
        writer.compute(f"mov.b{bits}", d, a)
        return
    source = writer.source(a, kind)
    writer.compute(f"{words}.s64", d, source, writer.constant(64, window))


@handles("isspacep")
def isspacep(writer: Writer, instruction: Instruction) -> None:
    """Whether a generic address is in a state space."""
    p, a = instruction.operands
    slots = {
        "shared": (layout.SHARED_SLOT, layout.SHARED_SLOT + 1),
        "shared::cta": (layout.SHARED_SLOT, layout.SHARED_SLOT + 1),
        "shared::cluster": (layout.SHARED_SLOT, layout.SHARED_SLOT + 1),
        "local": (layout.LOCAL_SLOT, layout.LOCAL_SLOT + 1),
        "param": (layout.PARAM_SLOT, layout.PARAM_SLOT + 1),
        "param::entry": (layout.PARAM_SLOT, layout.PARAM_SLOT + 1),
        "const": (layout.FIRST_CONSTANT, layout.SLOTS),
        "global": (layout.FIRST_ARGUMENT, layout.FIRST_CONSTANT),
    }
    first, last = slots[instruction.qualifiers[0]]
    slot = writer.temporary(64)
    given = writer.source(a, "u64")
    if given.bits == 32:
        raise Error("isspacep takes a 64-bit address")
    writer.compute(
        "shr.u64", slot, given, Immediate(layout.SLOT_BITS, "int", layout.SLOT_BITS)
    )
    writer.compute("sub.u64", slot, slot, writer.constant(64, first))
    writer.compute("setp.lt.u64", p, slot, writer.constant(64, last - first))


@handles("fence", "membar", "setmaxnreg")
def fence(writer: Writer, instruction: Instruction) -> None:
    """A fence, or ``setmaxnreg``, of which only an observer hears.

    Lanes of a block take turns in one thread of the host, so all of them see what one
    wrote.
    """
    if writer.mode.watch:
        event(writer, instruction)


@handles("mapa")
def mapa(writer: Writer, instruction: Instruction) -> None:
    """The address that another block of the cluster has for the same variable."""
    d, a, rank = instruction.operands
    kind = element_type(instruction)
    bits = type_bits(kind)
    own = writer.temporary(bits)
    other = writer.temporary(bits)
    writer.compute(f"mov.b{bits}", own, writer.source(a, kind))
    away = ~(0xFF << layout.RANK_BITS)
    writer.compute(f"and.b{bits}", own, own, writer.constant(bits, away))
    given = writer.source(rank, "u32")
    writer.compute("mov.b32" if bits == 32 else "cvt.u64.u32", other, given)
    step = Immediate(layout.RANK_BITS, "int", layout.RANK_BITS)
    writer.compute(f"shl.b{bits}", other, other, step)
    writer.compute(f"or.b{bits}", d, own, other)


@handles("getctarank")
def getctarank(writer: Writer, instruction: Instruction) -> None:
    """The rank of the block in whose shared memory an address is."""
    d, a = instruction.operands
    kind = element_type(instruction)
    bits = type_bits(kind)
    step = Immediate(layout.RANK_BITS, "int", layout.RANK_BITS)
    rank = writer.temporary(bits)
    writer.compute(f"shr.b{bits}", rank, writer.source(a, kind), step)
    writer.compute(f"and.b{bits}", rank, rank, writer.constant(bits, 0xFF))
    writer.compute("mov.b32" if bits == 32 else "cvt.u32.u64", d, rank)


@handles(
    "prefetch",
    "prefetchu",
    "applypriority",
    "discard",
    "nanosleep",
    "pmevent",
    "griddepcontrol",
)
def nothing(writer: Writer, instruction: Instruction) -> None:
    """An instruction without an effect on results here."""


@handles("createpolicy")
def createpolicy(writer: Writer, instruction: Instruction) -> None:
    """A cache policy: a number that has no effect."""
    writer.compute("mov.b64", instruction.operands[0], writer.constant(64, 0))


@handles("alloca")
def alloca(writer: Writer, instruction: Instruction) -> None:
    """Local memory whose size is known only when the kernel runs."""
    d, size = instruction.operands[:2]
    align = instruction.operands[2] if len(instruction.operands) > 2 else None
    step = align.value if isinstance(align, Immediate) else 16
    if not isinstance(step, int) or step < 1 or step & (step - 1):
        raise BadOperands(f"an alignment is a power of two; given {step}")
    stack = InMemory("%warp", layout.STACK, 32)
    kind = element_type(instruction)
    bits = type_bits(kind)
    rounded = writer.temporary(32)
    writer.compute("add.u32", stack, stack, writer.constant(32, step - 1))
    writer.compute("and.b32", stack, stack, writer.constant(32, -step))
    _resized(writer, d, stack, bits)
    source = writer.source(size, kind)
    if source.bits == 64:
        writer.compute("cvt.u32.u64", rounded, source)
        source = rounded
    writer.compute("add.u32", stack, stack, source)


@handles("stacksave")
def stacksave(writer: Writer, instruction: Instruction) -> None:
    """Where the stack ends now."""
    stack = InMemory("%warp", layout.STACK, 32)
    bits = type_bits(element_type(instruction))
    _resized(writer, instruction.operands[0], stack, bits)


@handles("stackrestore")
def stackrestore(writer: Writer, instruction: Instruction) -> None:
    """Free what was allocated since ``stacksave``."""
    stack = InMemory("%warp", layout.STACK, 32)
    kind = element_type(instruction)
    source = writer.source(instruction.operands[0], kind)
    writer.compute("cvt.u32.u64" if source.bits == 64 else "mov.u32", stack, source)


def _resized(writer: Writer, d: Operand, stack: InMemory, bits: int) -> None:
    assert isinstance(d, Register)
    writer.compute("cvt.u64.u32" if bits == 64 else "mov.u32", d, stack)
