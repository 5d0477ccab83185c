"""How is an instruction written in PTX, operands and all?

Registers are named after their operands: ``%d0``, ``%a0`` … of the class the
manual gives.  An operand that is an immediate takes a value; by default the
first legal one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fragmenta.errors import Error, one_of
from fragmenta.isa.instruction import Instruction, Operand
from fragmenta.isa.tables.wgmma import operands_from


def operands(op: Instruction, *, a_registers: bool = False) -> tuple[Operand, ...]:
    """The operands; ``a_registers`` takes wgmma's A from registers."""
    if op.family.startswith("wgmma"):
        return operands_from(op, registers=a_registers)
    return op.operands


def statement(
    op: Instruction, *, a_registers: bool = False, **immediates: int | str
) -> str:
    """The instruction with its operands, as one PTX statement.

    >>> import fragmenta as fm
    >>> print(statement(fm.mma("m16n8k16", a="f16", d="f32")))
    mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%d0, %d1, %d2, %d3}, \
{%a0, %a1, %a2, %a3}, {%b0, %b1}, {%c0, %c1, %c2, %c3};
    """
    listed = operands(op, a_registers=a_registers)
    unknown = set(immediates) - {each.name for each in listed}
    if unknown:
        names = one_of((each.name for each in listed), "and")
        raise Error(f"{op} has no operand {min(unknown)}; it has {names}")
    texts = [_operand(each, immediates) for each in listed]
    joined = ", ".join(_braced(listed, texts))
    return f"{op} {joined};" if joined else f"{op};"


def declarations(op: Instruction, *, a_registers: bool = False) -> list[str]:
    """The registers that :func:`statement` names.

    >>> import fragmenta as fm
    >>> declarations(fm.mma("m16n8k16", a="f16", d="f32"))[0]
    '.reg .f32 %d<4>;'
    """
    lines = []
    for each in operands(op, a_registers=a_registers):
        if each.ptx in ("address", "stride"):
            kind = ".b64" if each.ptx == "address" else ".b32"
            lines.append(f".reg {kind} %{each.name};")
        elif each.ptx not in ("immediate", "integer"):
            name = f"%{each.name}<{each.count}>" if each.vector else f"%{each.name}"
            lines.append(f".reg {each.ptx} {name};")
    return lines


def module(
    statements: Iterable[Iterable[str]], target: str, version: object
) -> tuple[str, list[int]]:
    """A module with each statement (and its declarations) on one line.

    Returns the text and the line number of each, so that what an assembler
    says of a line can be told of its statement.
    """
    lines = [*header(target, version).splitlines(), ".visible .entry judge() {"]
    numbers = []
    for parts in statements:
        lines.append("{ " + " ".join(parts) + " }")
        numbers.append(len(lines))
    return "\n".join([*lines, "ret;", "}"]) + "\n", numbers


def entry(op: Instruction, name: str, **immediates: int | str) -> str:
    """A kernel that does one ``mma`` or ``mma.sp`` per warp on memory.

    Its parameters are pointers, one for each register operand in PTX order;
    each points to (tiles, 32 lanes, registers) as :meth:`Fragment.pack_tiles`
    and :meth:`Fragment.pack` lay them out.  Block x is tile x.
    """
    listed = [each for each in op.operands if each.ptx != "immediate"]
    params = ",\n    ".join(f".param .u64 p_{each.name}" for each in listed)
    body = [
        *declarations(op),
        ".reg .u64 %base, %offset;",
        ".reg .u32 %place, %tile;",
        "mov.u32 %tile, %ctaid.x;",
        "mov.u32 %place, %tid.x;",
        "mad.lo.u32 %place, %tile, 32, %place;",
        *(line for each in listed if each.name != "d" for line in move("ld", each)),
        statement(op, a_registers=False, **immediates),
        *move("st", listed[0]),
        "ret;",
    ]
    lines = "\n".join(f"    {line}" for line in body)
    return f".visible .entry {name}(\n    {params})\n{{\n{lines}\n}}\n"


def header(target: str, version: object) -> str:
    """The directives that open a module."""
    return f".version {version}\n.target {target}\n.address_size 64\n"


def move(
    direction: str, operand: Operand, array: str = "", place: str = "%place"
) -> list[str]:
    """Load (``ld``) or store (``st``) one operand's registers of this lane.

    They are at ``place`` in the array that parameter ``p_`` + ``array`` points
    to, by default named after the operand; %base and %offset are overwritten.

    >>> move("ld", Operand("metadata", ".b32", vector=False))[-1]
    'ld.global.b32 %metadata, [%base + 0];'
    """
    size = 8 if operand.ptx.endswith("64") else 4
    names = [f"%{operand.name}{i}" for i in range(operand.count)]
    names = names if operand.vector else [f"%{operand.name}"]
    lines = [
        f"ld.param.u64 %base, [p_{array or operand.name}];",
        "cvta.to.global.u64 %base, %base;",
        f"mul.wide.u32 %offset, {place}, {size * operand.count};",
        "add.u64 %base, %base, %offset;",
    ]
    for i, name in enumerate(names):
        address = f"[%base + {i * size}]"
        pair = f"{name}, {address}" if direction == "ld" else f"{address}, {name}"
        lines.append(f"{direction}.global{operand.ptx} {pair};")
    return lines


def _operand(operand: Operand, immediates: Mapping[str, int | str]) -> str:
    if operand.ptx == "immediate":
        return str(immediates.get(operand.name, operand.values[0]))
    if operand.ptx == "integer":
        return str(immediates.get(operand.name, 0))
    if operand.name in immediates:
        return str(immediates[operand.name])
    if operand.ptx == "address":
        return f"[%{operand.name}]"
    if not operand.vector:
        return f"%{operand.name}"
    return "{" + ", ".join(f"%{operand.name}{i}" for i in range(operand.count)) + "}"


def _braced(listed: tuple[Operand, ...], texts: list[str]) -> list[str]:
    """Join each pair of scale selectors, which PTX writes as {byte, thread}."""
    joined: list[str] = []
    for operand, text in zip(listed, texts, strict=True):
        if operand.name.startswith("thread_"):
            joined[-1] = "{" + f"{joined[-1]}, {text}" + "}"
        else:
            joined.append(text)
    return joined
