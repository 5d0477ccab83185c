"""Operands of products in memory: shared memory by descriptors, and tensor memory.

``wgmma`` and ``tcgen05.mma`` read and write memory when they are done, which may be
long after they were issued.  So A and B are as they were then; while the product is in
flight they are as they are now.  D is as it is now.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import BadCall
from fragmenta.inspect.debugging.printing import grid
from fragmenta.inspect.debugging.values import text as value_text
from fragmenta.ptx.module import Address, Immediate, Instruction, Operand, Register
from fragmenta.reference.execution.tcgen05 import unsigned_operands
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.registers.tensor_fragment import TensorAddress, TensorFragment
from fragmenta.reference.shared.descriptor import Descriptor
from fragmenta.reference.shared.elements import MajorAxis
from fragmenta.reference.shared.operands import extent, family_of, major_of
from fragmenta.reference.shared.tiles import read_tile

if TYPE_CHECKING:
    from fragmenta.inspect.debugging.debugger import Debugger
    from fragmenta.inspect.debugging.records import UnitHistory
    from fragmenta.inspect.replay.recorded import Replay


class Matrix(NamedTuple):
    """An operand in memory."""

    values: NDArray[np.generic]
    """(rows, columns), decoded."""
    places: list[list[str]]
    """Where each element is: an address, or lane and column."""
    words: str
    """In which memory, and whether it is there already."""


def number(replay: Replay, step: int, operand: Operand) -> int:
    """What the first lane that ran a step had as an operand."""
    if isinstance(operand, Immediate):
        return operand.bits
    if isinstance(operand, Address):
        base = operand.base
        if isinstance(base, Register):
            return number(replay, step, base) + operand.offset & 0xFFFFFFFF
        if isinstance(base, int):
            return base + operand.offset
    if not isinstance(operand, Register):
        raise BadCall(f"the operand {operand} of step {step:,} has no number")
    function = replay.sites[int(replay.steps.site[step])].function
    own = [n for n, each in enumerate(replay.registers) if each.function == function]
    register = own[operand.number]
    held = replay.value(step - 1, int(replay.steps.warp[step]), register)
    if held is None:
        name = replay.registers[register].name
        raise BadCall(f"{name} was not written before the product")
    lanes = int(replay.steps.lanes[step])
    lane = (lanes & -lanes).bit_length() - 1 if lanes else 0
    return int.from_bytes(np.ascontiguousarray(held)[lane].tobytes(), "little")


def descriptor_word(replay: Replay, step: int, op: Op, given: Instruction) -> int:
    """The instruction descriptor that a ``tcgen05.mma`` had at a step."""
    names = [each.name for each in op.operands]
    return number(replay, step, given.operands[names.index("idesc")])


def with_shape(at: Debugger, step: int, op: Op, given: Instruction) -> Op:
    """A ``tcgen05.mma`` with what its instruction descriptor says."""
    return op.with_descriptor(descriptor_word(at.replay, step, op, given))


def matrix(at: Debugger, step: int, op: Op, given: Instruction, name: str) -> Matrix:
    """An operand in memory of the product of a step: A, B or D."""
    unit = next((each for each in at.units if each.issued == step), None)
    moment, told = at.moment - 1, ""
    if unit is not None and not 0 <= unit.done < at.moment:
        told = "; the product is in flight"
    elif unit is not None and name != "D":
        moment = unit.done
    if op.tensor_memory:
        return _of_tcgen05(at, step, op, given, name, (moment, unit, told))
    word = number(at.replay, step, given.operands["DAB".index(name)])
    major = _major(op, given, name)
    shared = _memory(at, "shared", at.replay.warps[at.warp].block, moment)
    bits = read_tile(op, name, shared, word, major=major)
    return Matrix(
        op.types[name.lower()].decode(bits),
        _addresses(op, name, word, major),
        f"in shared memory, descriptor {word:#x}{told}",
    )


def _of_tcgen05(
    at: Debugger,
    step: int,
    op: Op,
    given: Instruction,
    name: str,
    when: tuple[int, UnitHistory | None, str],
) -> Matrix:
    moment, unit, told = when
    blocks = _blocks(at, step, unit, op.cta_group == 2)
    tensor = [_memory(at, "tensor", each, moment).view(np.uint32) for each in blocks]
    shared = [_memory(at, "shared", each, moment) for each in blocks]
    cells = np.stack(tensor).reshape(len(blocks), 128, 512)
    pair = len(blocks) == 2
    where = _given(at, step, given)
    found = unsigned_operands(
        op,
        cells if pair else cells[0],
        np.stack(shared) if pair else shared[0],
        {**where, "enable_input_d": 1},
    )
    bits = found["ABD".index(name)]
    place = where[name.lower()]
    of = op.types[name.lower()]
    stored = ", as stored" if op.sparse and name == "A" else ""
    if name == "D" or isinstance(place, TensorAddress):
        part = op.fragment(name)
        assert isinstance(part, TensorFragment)
        spots, memory = _cells(part, TensorAddress.of(place)), "tensor"
    else:
        spots, memory = _addresses(op, name, place, major_of(op, name)), "shared"
        told = f", descriptor {place:#x}{told}"
    return Matrix(of.decode(bits), spots, f"in {memory} memory{stored}{told}")


def _given(at: Debugger, step: int, given: Instruction) -> dict[str, Any]:
    """Where the operands of a ``tcgen05.mma`` are."""
    d, a, b = given.operands[:3]
    left = number(at.replay, step, a)
    inside = isinstance(a, Address)  # else a descriptor
    return {
        "d": number(at.replay, step, d),
        "a": TensorAddress.decode(left) if inside else left,
        "b": number(at.replay, step, b),
    }


def _blocks(at: Debugger, step: int, unit: UnitHistory | None, pair: bool) -> list[int]:
    """The blocks whose memories a product uses: that of its warp, or a pair."""
    own = at.replay.warps[int(at.moments.warps[step])].block
    if not pair:
        return [own]
    wrote = {where for where, *_ in unit.writes} if unit else set()
    found = sorted({at.replay.memories[each].block for each in wrote})
    if len(found) != 2:
        raise BadCall("the memories of the other block of the pair were not recorded")
    return found


def _memory(at: Debugger, kind: str, block: int, step: int) -> NDArray[np.uint8]:
    """The bytes of a memory of a block after a step."""
    for index, each in enumerate(at.replay.memories):
        if (each.kind, each.block) == (kind, block):
            return at.replay.memory_at(step, index)[0]
    raise BadCall(f"the {kind} memory of block {block} was not recorded")


def _major(op: Op, given: Instruction, name: str) -> MajorAxis:
    """Along which axis a wgmma has an operand: its last numbers say it."""
    transposed = [each for each in given.operands[6:] if isinstance(each, Immediate)]
    which = {"A": 0, "B": -1}[name]
    if name == "A" and len(transposed) < 2:
        return "k"
    return "mn" if transposed and transposed[which].bits else "k"


def _addresses(op: Op, name: str, word: int, major: MajorAxis) -> list[list[str]]:
    """The address of each element, in the order of the matrix."""
    of = Descriptor.decode(word, family_of(op) or "wgmma")
    rows, k = extent(op, name)
    row, along = np.ogrid[:rows, :k]
    kind = op.types[name.lower()]
    found = np.asarray(of.bit_address(row, along, kind, major, op.kind)) // 8
    if op.cta_group == 2:  # the other block has its half at the same addresses
        found = np.concatenate([found, found])
    every = found if name == "A" else found.T
    return [[f"{place:#x}" for place in line] for line in every.tolist()]


def _cells(part: TensorFragment, address: TensorAddress) -> list[list[str]]:
    """The lane and the column of each element."""
    slots = part.slots(address)[0] // part.elements
    lane, column = np.divmod(slots % (128 * 512), 512)
    named = [
        f"lane {row}, column {each}"
        for row, each in zip(lane.tolist(), column.tolist(), strict=True)
    ]
    across = part.shape[-1]
    return [named[first : first + across] for first in range(0, len(named), across)]


def matrix_lines(found: Matrix, name: str, row: int | None, width: int) -> list[str]:
    """All rows, each cut to a line; or one row, with the places of its elements."""
    rows = len(found.values)
    if row is None:
        margin = len(f"{name}[{rows - 1}]") + 2
        return [
            f"{name}[{index}]".ljust(margin) + _cut(each, width - margin)
            for index, each in enumerate(found.values)
        ]
    if not row < rows:
        raise BadCall(f"{name} has rows 0 to {rows - 1}; given {row}")
    cells = [f"[{row},{k}]={value_text(e)}" for k, e in enumerate(found.values[row])]
    widest = max(map(len, cells))
    lines = grid(found.places[row], [f"{each:<{widest}}" for each in cells], width)
    return [each.rstrip() for each in lines]


def _cut(values: NDArray[np.generic], width: int) -> str:
    """Values in a line, as many as there is room for."""
    line = ""
    for index, each in enumerate(values):
        text = f"  {value_text(each)}" if index else value_text(each)
        more = 3 * (index + 1 < len(values))  # room to say that there are others
        if len(line) + len(text) + more > width:
            return f"{line}  …"
        line += text
    return line
