"""Fragments of the last product of a warp: which elements its registers hold.

The instruction is read again from the recorded PTX, and its fragments are those of the
catalogue: nothing about a layout is written down here.  Operands that are in memory are
those of :mod:`fragmenta.inspect.debugging.matrices`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import BadCall, Error, one_of, shortened
from fragmenta.inspect.debugging.matrices import matrix, matrix_lines, with_shape
from fragmenta.inspect.debugging.moments import before
from fragmenta.inspect.debugging.printing import grid
from fragmenta.inspect.debugging.values import text as value_text
from fragmenta.ptx.checking.tensor import Remark, named
from fragmenta.ptx.module import Immediate, Instruction, Operand, Register, Vector
from fragmenta.ptx.opcodes.kinds import kind_of
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.registers.fragment import Fragment

if TYPE_CHECKING:
    from fragmenta.inspect.debugging.debugger import Debugger


Elements = list[tuple[tuple[int, ...], str]]
"""Elements of a lane: place in the matrix, and value."""


class ExecutedProduct(NamedTuple):
    """An instruction that multiplies, and the step that ran it."""

    step: int
    op: Op
    operands: dict[str, tuple[Operand, ...]]
    """The registers of each operand that is in registers."""
    given: Instruction
    in_memory: tuple[str, ...]
    """Operands in shared memory or in tensor memory."""


def last_product(at: Debugger) -> ExecutedProduct:
    """The last product that the warp in view has run.

    If it has run none, the last ``tcgen05.mma`` of its block: any warp may read D.
    """
    found = {n: e.opcode for n, e in enumerate(at.replay.sites) if multiplies(e.opcode)}
    if not found:
        raise BadCall("the kernel has no mma, wmma, wgmma or tcgen05.mma in its steps")
    steps = at.moments.of_sites([*found])
    step = before(steps[at.moments.warps[steps] == at.warp], at.moment)
    if step is None:
        tensor = [
            each for each, opcode in found.items() if opcode.startswith("tcgen05")
        ]
        steps = at.moments.of_sites(tensor)
        blocks = np.array([each.block for each in at.replay.warps])
        mine = blocks[at.moments.warps[steps]] == blocks[at.warp]
        step = before(steps[mine], at.moment)
    if step is None:
        raise BadCall(
            "this warp has run no mma, wmma, wgmma or tcgen05.mma yet; break mma stops "
            "at the first"
        )
    return product(at, step)


def multiplies(opcode: str) -> bool:
    """Whether an instruction multiplies fragments.

    >>> multiplies("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    True
    >>> multiplies("wgmma.fence.sync.aligned")
    False
    """
    return kind_of(opcode).word == "multiplies"


def product(at: Debugger, step: int) -> ExecutedProduct:
    """The product of a step, with its operands."""
    found = at.lines.instruction(at.moments.site(step))
    op = named(found.mnemonic)
    if isinstance(op, Remark):
        raise Error(op.message)
    if op.tensor_memory:
        op = with_shape(at, step, op, found)
        return ExecutedProduct(step, op, {}, found, ("D", "A", "B"))
    registers = _operands(op, found)
    places = [each for each in "AB" if op.warpgroup and each not in registers]
    return ExecutedProduct(step, op, registers, found, tuple(places))


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


def words(at: Debugger, found: ExecutedProduct, which: str) -> NDArray[np.generic]:
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
    found = np.ascontiguousarray(np.ma.getdata(values))
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
    """An operand of the last product: its elements by lane, or by row if in memory."""
    found = last_product(at)
    name = rest[0].upper() if rest and not rest[0].isdecimal() else "D"
    which = int(rest[-1][:6]) if rest and rest[-1].isdecimal() else None
    every = (*found.operands, *found.in_memory)
    if name not in every:
        have = one_of(every, "and")
        raise BadCall(f"{found.op} has {have}; given {shortened(name, 20)}")
    inside = name in found.operands
    if len(rest) > 2 or (inside and which is not None and which > 31):
        raise BadCall("fragment [A|B|C|D] [LANE], with a lane from 0 to 31")
    warp = at.replay.warps[int(at.moments.warps[found.step])].warp
    if not inside:
        held = matrix(at, found.step, found.op, found.given, name)
        rows, columns = held.values.shape
        of = found.op.types[name.lower()]
        head = f"{name}: {rows} x {columns} {of}, step {found.step:,}, warp {warp}"
        body = matrix_lines(held, name, which, width)
        return [str(found.op), f"{head}, {held.words}", *body]
    part = found.op.fragments[name]
    elements = values(part, words(at, found, name), warp % 4)
    shape = " x ".join(map(str, part.shape))
    head = f"{name}: {shape} {part.dtype}, step {found.step:,}, warp {warp}"
    lines = [str(found.op), head]
    if which is not None:
        return lines + _one_lane(found, name, part, elements[which])
    return lines + _every_lane(elements, width)


def _every_lane(every: list[Elements], width: int) -> list[str]:
    """The elements of all lanes."""
    cells = [[f"{_index(place)}={shown}" for place, shown in row] for row in every]
    widest = max(len(text) for row in cells for text in row)
    lines = []
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
    found: ExecutedProduct,
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
