"""Events: instructions that compiled code hands to Python.

The copy engine, the tensor cores of a warpgroup, mbarriers and clusters are written in
Python.  Compiled code calls one function for each such instruction, an *event*, and
gets the lanes that may go on.  The others stay at the instruction and try again when
their warp has its turn.

The places of the operands of an event are known when the kernel is compiled.  They are
lists, so that they can be kept on disk:

- ``["r", offset, bits]``: a register, so many bytes after the start of the warp;
- ``["p", offset, negated]``: a predicate;
- ``["i", number]``: a constant;
- ``["s", number]``: an address in the shared memory of the block;
- ``["a", base, offset, items]``: a place in memory;
- ``["v", items]``: several operands;
- ``["_"]``: nothing.

A ``wgmma.mma_async`` has one list instead: see ``simt.wgmma_operands.Located``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fragmenta.engine.simt import layout, warps
from fragmenta.engine.simt.emitter import (
    HANDLERS,
    InMemory,
    Writer,
    handles,
    immediate_bits,
)
from fragmenta.engine.simt.layout import Status
from fragmenta.engine.simt.program import waits
from fragmenta.engine.simt.wgmma_operands import describe as form
from fragmenta.engine.simt.wgmma_operands import is_wgmma
from fragmenta.errors import Error
from fragmenta.ptx.effects import OPCODES
from fragmenta.ptx.families import MBARRIERS
from fragmenta.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    Vector,
)
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.ptx.opcodes.table import TABLE


@handles(*MBARRIERS, "tensormap", "spcompress", "spdecompress")
def event(writer: Writer, instruction: Instruction) -> None:
    """An instruction that is carried out in Python."""
    lanes = writer.lanes()
    with if_some(writer, lanes):
        words, operands = describe(writer, instruction)
        if waits(instruction):
            passed = _call(writer, words, operands, lanes)
            _wait(writer, passed, lanes)
            go_on(writer, passed)
        else:
            notify(writer, words, operands, lanes)


for _opcode in OPCODES:  # a handler of its own comes first: those of cp, st and red
    HANDLERS.setdefault(_opcode, event)


def tell(writer: Writer, words: list[str], operands: list[Any]) -> None:
    """Tell an observer of something, if any lane takes part."""
    lanes = writer.lanes()
    with if_some(writer, lanes):
        notify(writer, words, operands, lanes)


@contextmanager
def if_some(writer: Writer, lanes: str) -> Iterator[None]:
    """Write code that runs only if there is a lane in a mask."""
    on, after = writer.new_label(), writer.new_label()
    some = writer.value(f"icmp ne i32 {lanes}, 0")
    writer.line(f"br i1 {some}, label %{on}, label %{after}")
    writer.label(on)
    yield
    writer.line(f"br label %{after}")
    writer.label(after)


def notify(writer: Writer, words: list[str], operands: list[Any], lanes: str) -> None:
    """An event for some lanes, none of which has to wait."""
    passed = _call(writer, words, operands, lanes)
    on = writer.new_label()
    whole = writer.value(f"icmp eq i32 {passed}, {lanes}")
    writer.line(f"br i1 {whole}, label %{on}, label %stop")
    writer.label(on)


def _call(writer: Writer, words: list[str], operands: list[Any], lanes: str) -> str:
    """List an event, and write the call that carries it out."""
    writer.events.append([writer.site(), words, operands])
    number = len(writer.events) - 1
    function = writer.load("ptr", "%block", layout.BLOCK_EVENT)
    return writer.value(
        f"call i32 {function}(ptr %block, ptr %warp, i32 {number}, i32 {lanes})"
    )


def describe(writer: Writer, instruction: Instruction) -> tuple[list[str], list[Any]]:
    """The words of an instruction, and where its operands are."""
    if is_wgmma(instruction):
        places = writer.unit.registers
        located = form(instruction).located(lambda each: places[each.number])
        operands = [located.to_list()]
        writer.fidelity[instruction.mnemonic] = "h200"
    else:
        kind = instruction.qualifiers[-1] if instruction.qualifiers else ""
        operands = [described(writer, each, kind) for each in instruction.operands]
        sure, known = _fidelity(instruction), writer.fidelity
        if sure != "ieee" or instruction.mnemonic not in known:
            known[instruction.mnemonic] = sure
    return [instruction.opcode, *instruction.qualifiers], operands


def _fidelity(instruction: Instruction) -> str:
    """How sure its bits are; an instruction without a result has none."""
    given = instruction.operands
    if instruction.of_tensor_memory:
        return _of_tensor_memory(instruction)
    if instruction.opcode in ("spcompress", "spdecompress"):
        return "modelled"
    if instruction.is_mbarrier and given and isinstance(given[0], Sink):
        return "ieee"
    match = TABLE.find(instruction.mnemonic, len(given))
    return match.syntax.fidelity if match else "ieee"


def _of_tensor_memory(instruction: Instruction) -> str:
    """How sure the bits of a ``tcgen05`` are: moves are exact, sums are published.

    Nobody has published the sums of sparse products, of ``.ws`` and of pairs.
    """
    words, kind = instruction.qualifiers, kind_of(instruction.mnemonic).word
    if kind == "loads" and "f32" in words:
        return "modelled"
    if kind != "multiplies" or "kind::i8" in words:
        return "ieee"
    alone = not {"sp", "ws", "cta_group::2"} & set(words)
    return "published" if alone else "modelled"


def located(writer: Writer, at: InMemory, offset: int) -> list[Any]:
    """Where an event finds the addresses of all lanes."""
    if at.base != "%warp":
        copied = writer.temporary(at.bits)
        writer.compute(f"mov.b{at.bits}", copied, at)
        at = copied
    return ["a", ["r", at.offset, at.bits], offset, []]


def described(writer: Writer, operand: Operand, kind: str = "") -> list[Any]:
    """Where an operand of a type is, as a list."""
    match operand:
        case Register():
            place = writer.unit.registers[operand.number]
            if operand.type == "pred":
                return ["p", place, False]
            return ["r", place, writer.register(operand).bits]
        case Not():
            return ["p", writer.unit.registers[operand.of.number], True]
        case Immediate():
            if isinstance(operand.value, float):  # a size is a whole number
                return ["i", immediate_bits(operand, kind)]
            return ["i", int(operand.value)]
        case Special():
            where = layout.special_place(operand.name)
            if where is None:
                raise Error(f"the special register {operand.name} is not supported")
            wide = operand.name in layout.SPECIALS_64
            return ["r", where, 64 if wide else 32]
        case Symbol():
            return _symbol(writer, operand)
        case Address():
            base = operand.base
            of = ["i", base] if isinstance(base, int) else described(writer, base)
            items = [described(writer, each) for each in operand.items]
            return ["a", of, operand.offset, items]
        case Vector():
            return ["v", [described(writer, each, kind) for each in operand.items]]
        case Pair():
            both = (operand.first, operand.second)
            return ["v", [described(writer, each) for each in both]]
        case Sink():
            return ["_"]
    raise Error(f"{type(operand).__name__} cannot be an operand here")


def _symbol(writer: Writer, operand: Symbol) -> list[Any]:
    unit, name = writer.unit, operand.name
    if name in unit.shared:
        return ["s", unit.shared[name] + operand.offset]
    if name in unit.local:
        raise Error(f"{name} is in local memory, which cannot be named here")
    variable = writer.program.module.variables.get(name)
    place = writer.program.addresses.get(name)
    if place is None:
        raise Error(f"{name} is not declared")
    shared = variable is not None and variable.space == "shared"
    return ["s" if shared else "i", place + operand.offset]


def _wait(writer: Writer, passed: str, lanes: str) -> None:
    """Note the lanes that wait, and that there is progress if any passed."""
    others = writer.value(f"xor i32 {passed}, -1")
    staying = writer.value(f"and i32 {lanes}, {others}")
    before = writer.load("i32", "%warp", layout.WAITING)
    after = writer.value(f"or i32 {before}, {staying}")
    writer.store("i32", after, "%warp", layout.WAITING)
    progress = writer.load("i32", "%block", layout.BLOCK_PROGRESS)
    more = writer.value(f"or i32 {progress}, {passed}")
    writer.store("i32", more, "%block", layout.BLOCK_PROGRESS)


def go_on(writer: Writer, passed: str) -> None:
    """Go on, if all lanes may; otherwise those that may not stay in the code block."""
    on, some, stay = (writer.new_label() for _ in range(3))
    lanes = writer.lanes()
    good = writer.value(f"icmp eq i32 {passed}, {lanes}")
    writer.line(f"br i1 {good}, label %{on}, label %{some}")
    writer.label(some)
    status = writer.load("i32", "%warp", layout.STATUS)
    bad = writer.value(f"icmp eq i32 {status}, {int(Status.FAULT)}")
    writer.line(f"br i1 {bad}, label %stop, label %{stay}")
    writer.label(stay)
    # Lanes that the guard excludes go on, too.
    others = writer.value(f"xor i32 {passed}, -1")
    staying = writer.value(f"and i32 {lanes}, {others}")
    here, after = f"i32 {writer.block.number}", f"i32 {writer.block.number + 1}"
    writer.call(warps.STAY, "ptr %warp", f"i32 {staying}", here, after)
    writer.line("br label %dispatch")
    writer.label(on)
