"""Fragments of the last product of a warp: which elements its registers hold.

The instruction is read again from the recorded PTX, and its fragments are those of the
catalogue: nothing about a layout is written down here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.debugging.moments import before
from fragmenta.debugging.printing import grid
from fragmenta.debugging.values import text as value_text
from fragmenta.errors import BadCall, Error, one_of, shortened
from fragmenta.isa.instruction import Instruction as Op
from fragmenta.ptx.checking.tensor import Remark, named
from fragmenta.ptx.module import Immediate, Instruction, Operand, Register, Vector
from fragmenta.registers.fragment import Fragment

if TYPE_CHECKING:
    from fragmenta.debugging.debugger import Debugger


Elements = list[tuple[tuple[int, ...], str]]
"""Elements of a lane: place in the matrix, and value."""


class Product(NamedTuple):
    """An instruction that multiplies, and the step that ran it."""

    step: int
    op: Op
    operands: dict[str, tuple[Operand, ...]]
    """The registers of each operand that is in registers."""


def last_product(at: Debugger) -> Product:
    """The last product that the warp in view has run."""
    sites = [
        number for number, each in enumerate(at.replay.sites) if multiplies(each.opcode)
    ]
    if not sites:
        raise BadCall("the kernel has no mma, wmma or wgmma among its steps")
    steps = at.moments.of_sites(sites)
    step = before(steps[at.moments.warps[steps] == at.warp], at.moment)
    if step is None:
        raise BadCall(
            "this warp has run no mma, wmma or wgmma yet; break mma stops at the first"
        )
    return product(at, step)


def multiplies(opcode: str) -> bool:
    """Whether an instruction multiplies fragments.

    >>> multiplies("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    True
    >>> multiplies("wgmma.fence.sync.aligned")
    False
    """
    first, *rest = opcode.split(".")
    inner = {"wmma": "mma", "wgmma": "mma_async"}.get(first)
    return first == "mma" or inner in rest


def product(at: Debugger, step: int) -> Product:
    """The product of a step, with its operands in registers."""
    found = at.lines.instruction(at.moments.site(step))
    op = named(found.mnemonic)
    if isinstance(op, Remark):
        raise Error(op.message)
    return Product(step, op, _operands(op, found))


def _operands(op: Op, found: Instruction) -> dict[str, tuple[Operand, ...]]:
    """The operands whose registers are as many as their fragment has."""
    given = found.operands
    if op.warpgroup:
        names = ["D", "A"] if len(_items(given[1])) > 1 else ["D"]
    else:
        names = ["D", "A", "B", "C"]
    return {
        name: _items(operand)
        for name, operand in zip(names, given, strict=False)
        if name in op.fragments and len(_items(operand)) == op.fragments[name].registers
    }


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def words(at: Debugger, found: Product, which: str) -> NDArray[np.generic]:
    """The registers of an operand: (lanes, registers), as they were at the product.

    D are those after it, as they are now; other operands those before it.
    """
    part = found.op.fragments[which]
    moment = at.moment - 1 if which == "D" else found.step - 1
    function = at.moments.site(found.step).function
    names = [e.name for e in at.replay.registers if e.function == function]
    registers = at.replay.registers_at(moment, at.warp, function)
    kind = np.dtype(f"u{part.register_bits // 8}")
    columns = []
    for each in found.operands[which]:
        if isinstance(each, Register):
            name = names[each.number]
            if name not in registers:
                raise BadCall(f"{name} was not written before the product")
            columns.append(_bits(registers[name], kind))
        elif isinstance(each, Immediate):
            columns.append(np.full(32, each.bits & (1 << 8 * kind.itemsize) - 1, kind))
        else:
            raise BadCall(f"{which} of {found.op} is in no register")
    return np.stack(columns, axis=-1)


def _bits(
    values: NDArray[np.generic], kind: np.dtype[np.generic]
) -> NDArray[np.generic]:
    """The bits of a register in each lane, as a word."""
    found = np.ascontiguousarray(values)
    if found.ndim > 1:
        found = found.reshape(len(found), -1)
    return (
        found.view(np.uint8).reshape(32, -1)[:, : kind.itemsize].copy().view(kind)[:, 0]
    )


def values(part: Fragment, held: NDArray[np.generic], warp: int) -> list[Elements]:
    """For each lane its elements: place in the matrix and value, in register order."""
    bits = part.container.bits
    per = part.register_bits // bits
    lanes = np.ascontiguousarray(held)
    if bits >= 8:
        slots = lanes.view(f"u{bits // 8}").reshape(32, -1)
    else:
        shifts = np.arange(per, dtype=lanes.dtype) * lanes.dtype.type(bits)
        mask = lanes.dtype.type((1 << bits) - 1)
        slots = (lanes[..., None] >> shifts & mask).reshape(32, -1).astype(np.uint8)
    if part.container.width != part.container.bits:
        slots = part.container.extract(slots)
    decoded = part.dtype.decode(slots)
    many = "W" in dict(part.layout.axes)
    return [
        list(
            zip(
                part.holds(lane, warp=warp if many else None),
                (value_text(each) for each in decoded[lane]),
                strict=False,
            )
        )
        for lane in range(32)
    ]


def fragment_lines(at: Debugger, rest: list[str], width: int) -> list[str]:
    """An operand of the last product: the elements of each lane, or of one lane."""
    found = last_product(at)
    name = rest[0].upper() if rest and not rest[0].isdecimal() else "D"
    lane = rest[-1] if rest and rest[-1].isdecimal() else None
    if name not in found.operands:
        have = one_of(found.operands, "and")
        raise BadCall(
            f"{found.op} has {have} in registers; given {shortened(name, 20)}"
        )
    if len(rest) > 2 or (lane is not None and int(lane[:4]) > 31):
        raise BadCall("fragment [A|B|C|D] [LANE], with a lane from 0 to 31")
    part = found.op.fragments[name]
    warp = at.replay.warps[at.warp].warp % 4
    every = values(part, words(at, found, name), warp)
    shape = " x ".join(map(str, part.shape))
    number = at.replay.warps[at.warp].warp
    head = f"{name}: {shape} {part.dtype}, step {found.step:,}, warp {number}"
    lines = [str(found.op), head]
    if lane is not None:
        return lines + _one_lane(found, name, part, every[int(lane)])
    cells = [[f"{_index(place)}={shown}" for place, shown in row] for row in every]
    widest = max(len(text) for row in cells for text in row)
    for number, row in enumerate(cells):
        label = f"lane {number:>2}"
        rows = grid([label] * len(row), [f"{text:<{widest}}" for text in row], width)
        lines += [
            rows[0],
            *(" " * len(label) + each[len(label) :] for each in rows[1:]),
        ]
    return [each.rstrip() for each in lines]


def _index(place: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, place))}]"


def _one_lane(
    found: Product,
    name: str,
    part: Fragment,
    elements: list[tuple[tuple[int, ...], str]],
) -> list[str]:
    """The registers of a lane, one in a line, with what each of them holds."""
    per = max(1, len(elements) // part.registers)
    lines = []
    for number, operand in enumerate(found.operands[name]):
        called = operand.name if isinstance(operand, Register) else "constant"
        held = elements[number * per : (number + 1) * per]
        texts = [f"{name}{_index(place)} = {shown}" for place, shown in held]
        lines.append(f"  {called:<8} {', '.join(texts)}")
    return lines
