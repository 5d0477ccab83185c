"""Executes one ``mma`` on the registers of many warps, in machine code.

A thread copies the elements of a few tiles from registers to matrices, computes them
with the steps of :mod:`fragmenta.reference.arithmetic.floors`, and copies D to its
registers, while all of it is in the cache.  What those steps leave, such as tiles with
a NaN, is computed in another way.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from fragmenta.base.arrays.checks import Array, batch_shape
from fragmenta.base.arrays.once import once
from fragmenta.base.arrays.threads import share_out
from fragmenta.base.jit.compiler import Traced, kernel, pointer, type_of
from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import (
    F32,
    I8,
    I16,
    I32,
    I64,
    Code,
    Memory,
    Value,
    call_address,
    convert,
    smaller,
)
from fragmenta.reference.arithmetic import floored
from fragmenta.reference.arithmetic.blocks import scratch
from fragmenta.reference.arithmetic.floor_steps import LINE, FloorNumbers, starting_at
from fragmenta.reference.arithmetic.floors import FloorSizes
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.fragment import Fragment, Words, in_runs

# How many tiles a thread has in its cache at a time.
_TILES = 8

_PARTS = ("a", "b", "c")

# The most units of a run, whose distances are constants of the machine code.
_RUN = 16


class Batch(NamedTuple):
    """The registers of D, and the numbers of the tiles that are not computed."""

    d: Words
    left: Array


class Moves(NamedTuple):
    """How the elements of a fragment are copied, in units as wide as possible."""

    of: Type
    width: int  #: bytes of a unit
    starts: tuple[int, ...]  #: where runs of units begin in registers, row by row
    offsets: tuple[int, ...]  #: of the units of a run, the same in each

    @property
    def size(self) -> int:
        """The bytes of a matrix."""
        return len(self.starts) * len(self.offsets) * self.width


def suits(op: Instruction, model: Model) -> bool:
    """Whether an instruction is computed here.

    >>> import fragmenta as fm
    >>> from fragmenta.reference.execution.mma import numeric_model
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> suits(op, numeric_model(op, "sm_90"))
    True
    """
    parts = (op.a, op.b, op.c, op.d)
    return (
        floored.computes(model)
        and model.c == model.d == model.accumulator == "f32"
        and not (model.sparse or model.scale or model.reordered)
        and all(part.container.width == part.container.bits >= 8 for part in parts)
    )


def execute(op: Instruction, model: Model, given: dict[str, Words]) -> Batch:
    """Execute an instruction that :func:`suits`; registers are (…, lanes, n)."""
    leading = batch_shape(**{name: given[name].shape[:-2] for name in _PARTS})
    tiles, d = prod(leading), op.d
    flat = [_flat(given[name], leading) for name in _PARTS]
    out = np.empty((*leading, d.lanes, d.registers), np.uint32)
    status = np.zeros(tiles, np.uint8)
    made = floored.instruction(model, *d.shape, many=True)
    moves = tuple(_moves(part) for part in (op.a, op.b, op.c, d))
    strides = [each[0].nbytes if len(each) > 1 else 0 for each in flat]
    operands = [each.reshape(-1).view(np.uint8) for each in (*flat, out)]
    numbers = (made.steps.address, *made.numbers)
    run = _kernel(moves).bind(*operands, status, *strides, *numbers)
    room = _TILES * sum(each.size for each in moves[:3])

    def some(first: int, last: int) -> None:
        memory = scratch("tiles", (made.work + room + LINE,), np.uint8)
        start = memory.ctypes.data + -memory.ctypes.data % LINE
        run(start, start + made.work, first, last)

    share_out(some, tiles, tiles * prod(d.shape) * model.stored)
    return Batch(out, np.flatnonzero(status))


def _flat(registers: Array, leading: tuple[int, ...]) -> Array:
    """Registers with one axis for all tiles, of one tile if it is the same for all."""
    axes = registers.shape[:-2]
    if axes != leading and prod(axes) != 1:
        registers = np.broadcast_to(registers, leading + registers.shape[-2:])
    flat = np.ascontiguousarray(registers).reshape(-1, *registers.shape[-2:])
    # Units of several registers are at multiples of their size.
    return flat.copy() if flat.ctypes.data % np.dtype(np.uint64).itemsize else flat


@once
def _moves(part: Fragment) -> Moves:
    order, width = part.layout.scatter().ravel(), part.container.bits // 8
    units = part.lanes * part.registers * part.elements
    width, order = in_runs(order, units, width)
    of, length = type_of(np.dtype(f"u{width}")), _RUN
    while True:  # a run of one unit is always there
        runs = order.reshape(-1, length) if order.size % length == 0 else order[:, None]
        offsets = runs - runs[:, :1]
        if (offsets == offsets[0]).all():
            starts, each = runs[:, 0].tolist(), offsets[0].tolist()
            return Moves(of, width, tuple(starts), tuple(each))
        length //= 2


@once
def _kernel(moves: tuple[Moves, ...]) -> Traced:
    """The kernel for fragments that are copied in these ways."""

    @kernel(
        **dict.fromkeys(("a", "b", "c", "d", "status"), pointer(I8)),
        **dict.fromkeys(("a_step", "b_step", "c_step", "steps"), I64),
        **dict.fromkeys(FloorNumbers._fields, I32),
        **dict.fromkeys(FloorSizes._fields, I64),
        work=pointer(I8),
        room=pointer(I8),
        first=I64,
        last=I64,
    )
    def execute_tiles(code: Code, *given: Any) -> None:
        *registers, d, status = given[:5]
        *strides, steps = given[5:9]
        *numbers, work, room, start, stop = given[9:]
        matrices = _matrices(room, moves)
        from_a, from_b, from_c, to_d = (_Copy(code, each) for each in moves)
        with code.loop(stop, start=start, step=_TILES) as first:
            some = smaller(stop - first, _TILES)
            with code.loop(some) as tile:
                for number, copy in enumerate((from_a, from_b, from_c)):
                    there = (first + tile) * strides[number]
                    here = tile * moves[number].size
                    copy.gather(registers[number], there, matrices[number], here)
            x, y, z = matrices
            operands = (x, y, z.view(F32), x, x, x, starting_at(status, first))
            zero = code.constant(0, I64)
            call_address(steps, [*operands, *numbers, work, zero, some])
            with code.loop(some) as tile:
                size = moves[3].size
                to_d.scatter(z, tile * size, d, (first + tile) * size)

    return execute_tiles


class _Copy:
    """Copies a matrix from registers or to registers; places are in bytes."""

    def __init__(self, code: Code, moves: Moves) -> None:
        self.code, self.moves = code, moves
        self.table = code.table(moves.starts, I16)

    def gather(self, registers: Memory, there: Value, to: Memory, here: Value) -> None:
        """From registers."""
        self._each(registers, there, to, here, back=False)

    def scatter(self, source: Memory, here: Value, to: Memory, there: Value) -> None:
        """To registers."""
        self._each(to, there, source, here, back=True)

    def _each(
        self, registers: Memory, there: Value, matrix: Memory, here: Value, back: bool
    ) -> None:
        of, offsets = self.moves.of, self.moves.offsets
        spread = starting_at(registers, there).view(of)
        dense = starting_at(matrix, here).view(of)
        with self.code.loop(len(self.moves.starts)) as run:
            start = convert(self.table[run], I64, signed=False)
            first = run * len(offsets)
            for number, offset in enumerate(offsets):
                if back:
                    spread[start + offset] = dense[first + number]
                else:
                    dense[first + number] = spread[start + offset]


def _matrices(room: Memory, moves: tuple[Moves, ...]) -> list[Memory]:
    """Memory for some matrices A, B and C, one after the other."""
    found, at = [], 0
    for each in moves[:3]:
        found.append(room.after(at))
        at += _TILES * each.size
    return found
