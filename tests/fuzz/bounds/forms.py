"""The instructions that touch memory, and hostile operands for each of them.

The list is derived: lines of the table of opcodes with an address among their operands,
and instructions of the catalogue that take an address, a descriptor or tensor memory.

Registers are ``%d`` (64 bits), ``%r``, ``%h``, ``%q`` (128 bits) and ``%p``.  All of
them come from one row of six numbers for each thread: see :func:`column`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

from fragmenta import catalogue
from fragmenta.cuda.source import ptx as written
from fragmenta.engine.simt import emitter
from fragmenta.engine.simt.admitting import admit
from fragmenta.engine.simt.compiling import write
from fragmenta.engine.simt.program import program
from fragmenta.errors import BadOperands, Error
from fragmenta.ptx.checking.registers import size
from fragmenta.ptx.opcodes import TABLE
from fragmenta.ptx.opcodes.table import Syntax
from fragmenta.ptx.reading import parse
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.isa.instruction_descriptor import (
    InstructionDescriptor,
    type_codes,
)
from fragmenta.reference.registers.dtype import DTYPES, DType
from fragmenta.reference.shared.descriptor import MAJORS
from fragmenta.reference.shared.elements import MajorAxis
from fragmenta.reference.shared.fields import Family
from fragmenta.reference.shared.operands import extent, family_of, major_of
from fragmenta.reference.tensor_memory.copying import copies
from tests.ptx.opcodes.carried import Statement, registers, statements

COLUMNS = 6
"""Numbers of a row: three for registers of 64 bits, three for those of 32."""
OFFSETS = (*[0] * 12, 4, 16, -16, 1 << 20, -(1 << 31), (1 << 63) - 1)
"""Bytes that are added to an address in the text."""
ADDRESSES = ("address", "tensor")
"""What the catalogue calls operands that are addresses."""


class Touch(NamedTuple):
    """The one access of a load, a store or an atomic operation."""

    space: str
    """``generic``, ``shared``, ``cluster`` or ``local``."""
    register: str
    """What holds the address."""
    offset: int
    bytes: int
    writes: bool


class Reads(NamedTuple):
    """An operand that an instruction reads by a descriptor of shared memory."""

    column: int
    """The number of the row that is the descriptor."""
    name: str
    """``A``, ``B``, or ``S`` of a copy."""
    family: Family
    rows: int
    k: int
    type: DType
    major: MajorAxis
    kind: str | None


class Form(NamedTuple):
    """An instruction with hostile operands."""

    text: str
    family: str
    """What it is put together with: its opcode, or its family in the catalogue."""
    results: tuple[str, ...] = ()
    """The registers that a load fills, if it loads."""
    element: int = 0
    """Bytes of each element that is loaded or stored."""
    values: tuple[str, ...] = ()
    """The registers that a store writes to memory."""
    touch: Touch | None = None
    """None if more than one place is accessed, or none."""
    likes: tuple[tuple[int, str], ...] = ()
    """Numbers of the row that are often right, and what they name then: ``shared`` or
    ``global`` memory, an ``mbarrier``, or a tensor ``map``."""
    uniform: bool = False
    """Whether all lanes have to give the same."""
    threads: int = 32
    reads: tuple[Reads, ...] = ()
    """What is read by descriptors."""
    given: tuple[tuple[int, int], ...] = ()
    """Numbers of the row that are often these: an instruction descriptor, columns of
    tensor memory, metadata."""


def column(register: str) -> tuple[int, int]:
    """The number of a row that a register holds, and how many bits of it.

    >>> column("%d1"), column("%r1"), column("%h5")
    ((1, 64), (4, 32), (5, 16))
    """
    kind, number = register[1], int(register[2:])
    if kind == "d":
        return number % 3, 64
    return 3 + number % 3, {"r": 32, "h": 16, "p": 1}[kind]


# ── the table of opcodes ────────────────────────────────────────────────────


def lines() -> list[Syntax]:
    """The lines with an address among their operands."""
    every = [line for some in TABLE.lines.values() for line in some]
    return [line for line in every if any(slot.address for slot in line.operands)]


_SPACES = {
    "shared": "shared",
    "shared::cta": "shared",
    "local": "local",
    "shared::cluster": "cluster",
}


@cache
def table_forms(seed: int) -> tuple[Form, ...]:
    """Each word of each line at least once."""
    draw = random.Random(seed)
    found: dict[str, Form] = {}

    def address(number: int, found: dict[str, str]) -> str:
        near = found.get("space", "") in _SPACES and draw.random() < 0.5
        offset = draw.choice(OFFSETS)
        step = f"+{offset}" if offset else ""
        return f"{'%r' if near else '%d'}{number}{step}"

    for line in lines():
        for each in statements(line, draw, address):
            form = _form(each)
            found[form.text] = form
    return tuple(found.values())


def _form(of: Statement) -> Form:
    opcode, line = of.line.opcode, of.line
    plain = opcode in ("ld", "ldu", "st", "atom", "red")
    if not plain or "async" in of.mnemonic.split(".") or "bulk" in of.mnemonic:
        return Form(of.text, opcode, likes=tuple(_likes(of)))
    place = next(i for i, slot in enumerate(of.slots) if slot.address)
    name, _, step = of.operands[place].strip("[]").partition("+")
    data = next((s for s in of.slots if s.name in ("d", "b") and not s.address), None)
    if data is None:
        return Form(of.text, opcode, likes=tuple(_likes(of)))
    kind, held = line.type_of(data, of.qualifiers), registers(line, data, of.qualifiers)
    touch = Touch(
        _SPACES.get(of.qualifiers.get("space", ""), "generic"),
        name,
        int(step or 0),
        size(kind) * len(held),
        opcode in ("st", "atom", "red"),
    )
    loads, stores = opcode in ("ld", "ldu"), opcode == "st"
    return Form(
        of.text,
        opcode,
        tuple(held) if loads else (),
        size(kind),
        tuple(held) if stores else (),
        touch,
    )


def _likes(of: Statement) -> Iterator[tuple[int, str]]:
    """What the addresses of an instruction name, if it is right."""
    words = of.mnemonic.split(".")
    spaces = [w for w in words if w.startswith("shared") or w == "global"]
    for slot, text in zip(of.slots, of.operands, strict=True):
        if not slot.address:
            continue
        register = text.strip("[]").partition(",")[0].partition("+")[0]
        dimension = next((word[0] for word in words if word[1:] == "d"), "2")
        if slot.name == "mbar" or "mbarrier" in words[:3]:
            kind = "mbarrier" if spaces else "generic mbarrier"
        elif slot.type == "tensor":
            kind = f"map {dimension}"
        else:
            kind = spaces.pop(0) if spaces else "generic shared"
        yield column(register)[0], kind


# ── the catalogue ───────────────────────────────────────────────────────────


def catalogued() -> list[Op]:
    """Instructions that take an address, a descriptor or tensor memory."""
    return [
        op
        for op in catalogue()
        if any(
            o.ptx in ADDRESSES or (o.name in ("a", "b", "s") and o.ptx == ".b64")
            for o in op.operands
        )
    ]


@cache
def catalogue_forms() -> tuple[Form, ...]:
    """These instructions, each in a scope with registers of its own.

    Of those that read descriptors or tensor memory, which Python looks at first, one of
    each kind and each list of operands.
    """
    return tuple(_forms(catalogued()))


def first_reading(family: str) -> Form:
    """The first of a family that reads what its descriptors name."""
    of_family = (op for op in catalogued() if op.family == family)
    return next(form for form in _forms(of_family) if form.reads)


def _forms(ops: Iterable[Op]) -> Iterator[Form]:
    found = set()
    for op in ops:
        whole = op.warpgroup or op.family.startswith("tcgen05")
        threads = 128 if op.warpgroup else 32
        listed = tuple((o.name, o.ptx, min(o.count, 3)) for o in op.operands)
        for trans in (0, 1) if any(o.name == "trans_a" for o in op.operands) else (0,):
            given = {"trans_a": trans, "trans_b": trans} if trans else {}
            form = Form(_scoped(op, given), op.family, uniform=whole, threads=threads)
            key = (op.family, op.kind, listed, trans) if whole else form.text
            if key not in found:
                found.add(key)
                yield _described(form, op, trans) if whole else form


_PLACES = {"a": 1, "s": 1, "idesc": 1, "b": 2}
"""Which registers hold the operands of instructions with descriptors: of 64 and of 32
bits are counted apart.  Where D is has the first, all others the last."""
_METADATA = 0x4444_4444
"""Positions 0 and 1 of each four, which every type may have."""
_BEHIND = 96
"""The column of tensor memory of operands that are not D."""


def _described(form: Form, op: Op, trans: int) -> Form:
    """A form with what its descriptors name, if the other operands are right."""
    names = [each.name for each in op.operands if each.ptx == ".b64"]
    given = {"%r2": _BEHIND}
    if op.family.startswith("tcgen05"):
        given["%r0"] = 0  # D, in its first column
    if "idesc" in [each.name for each in op.operands]:
        whole = _whole(op)
        if whole is None:
            return form
        op, given[f"%r{_PLACES['idesc']}"] = whole, whole.idesc or 0
    elif op.sparse:
        given["%r2"] = _METADATA
    reads = tuple(_reads(op, name, trans) for name in names if name in _PLACES)
    numbers = tuple((column(name)[0], number) for name, number in given.items())
    return form._replace(reads=reads, given=numbers)


def _whole(op: Op) -> Op | None:
    """A product with an instruction descriptor that its mnemonic takes.

    None if only the spelling of its kind is known.
    """
    kind = op.kind or ""
    types = [type_codes(name, kind) or {"f32": 0} for name in ("a", "b", "d")]
    scales = type_codes("scale", kind) or {"": 0}
    for *some, scale, m, n in product(*types, scales, (128, 64, 256), (16, 32, 64)):
        try:
            made = InstructionDescriptor(
                kind, m, n, *some, scale=scale, sparse=op.sparse
            )
            return op.with_descriptor(made.encode())
        except Error:
            continue
    return None


def _reads(op: Op, name: str, trans: int) -> Reads:
    place, _ = column(f"%d{_PLACES[name]}")
    if name == "s":
        rows, words = copies(op).shape
        return Reads(place, "S", "tcgen05", rows, 4 * words, DTYPES["u8"], "k", None)
    operand, family = name.upper(), family_of(op)
    assert family is not None
    major = MAJORS[trans] if family == "wgmma" else major_of(op, operand)
    kind = op.kind if family == "tcgen05" else None
    rows, k = extent(op, operand)
    return Reads(place, operand, family, rows, k, op.types[name], major, kind)


def _scoped(op: Op, given: dict[str, int]) -> str:
    """An instruction after its registers were filled."""
    lines = ["{", *written.declarations(op)]
    whole = op.warpgroup or op.family.startswith("tcgen05")
    for number, each in enumerate(written.operands(op)):
        if whole and not each.vector:
            number = 2 if each.ptx == "tensor" else _PLACES.get(each.name, 2)
            number = 0 if each.name in ("d", "taddr") else number
        kind = written.DECLARED.get(each.ptx, each.ptx)
        names = [f"%{each.name}{i}" for i in range(each.count)]
        if not each.vector:
            names = [f"%{each.name}"]
        for index, name in enumerate(names):
            lines += _filled(kind, name, number + index)
    alone = "" if "aligned" in op.mnemonic.split(".") else "@%first "
    return "\n".join([*lines, f"{alone}{written.statement(op, **given)}", "}"])


_FILL = {
    8: "mov.b64 {}, %long{};",
    4: "mov.b32 {}, %word{};",
    2: "mov.b16 {}, %half{};",
}


def _filled(kind: str, name: str, number: int) -> list[str]:
    if kind in written.CONSTANTS:
        return []
    if kind == ".pred":
        return [f"setp.ne.b32 {name}, %word{number % 8}, 0;"]
    return [_FILL[size(kind[1:])].format(name, number % 8)]


# ── which are machine code ──────────────────────────────────────────────────


HEAD = """\
.version 9.4
.target sm_100a
.address_size 64
.global .align 16 .b8 variable[52];
.const .align 16 .b8 constant[40] = {1, 2, 3, 4, 5, 6, 7, 8};
"""
REGISTERS = """\
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .b128 %q<9>;
.reg .b16 %half<9>; .reg .b32 %word<9>; .reg .b64 %long<9>; .reg .pred %first;
"""


class Fate(NamedTuple):
    """What the engine makes of an instruction."""

    refused: bool
    """Whether it is not compiled: its operands do not go together."""
    event: bool
    """Whether Python carries it out, not machine code alone."""
    supported: bool
    code: tuple[object, ...] = ()
    """What its machine code consists of: routines and constants."""


@cache
def fate(text: str) -> Fate:
    """What becomes of an instruction."""
    tile = ".shared .align 128 .b8 tile[1000];"
    module = parse(f"{HEAD}.entry k() {{ {REGISTERS} {tile} {text} DONE: ret; }}")
    writer = emitter.Writer(program(module, "k"), "sm_100a")
    try:
        admit(module, [writer.unit.function])
        write(writer)
    except BadOperands:
        return Fate(True, False, False)
    routines = {name for each in writer.sections.values() for name in each.routines}
    code = (*sorted(routines), bytes(writer.constants))
    return Fate(False, bool(writer.events), not writer.refusals, code)
