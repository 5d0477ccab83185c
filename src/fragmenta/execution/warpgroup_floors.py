"""Machine code for one ``wgmma`` that uses the kernels for whole matrices.

:func:`quick_function` copies A and B into rows, and D from and to the registers of four
warps.  In between it calls a kernel of :mod:`fragmenta.arithmetic.floors`, which is the
same for all shapes::

    int32 f(const int64 *warps, const int64 *places, const uint32 *a,
            const uint64 *descriptors, const uint8 *shared, int64 shared_size,
            const uint32 *metadata, const int64 *selectors, const int64 *numbers)

``warps`` are the addresses of four warps, and ``places`` says for each register of D
how many bytes it is behind them: 32 lanes follow each other.  ``numbers`` are those of
:class:`Numbers`.  The rest is as in :mod:`fragmenta.execution.warpgroup`.

The result is 0.  Otherwise D is not changed, and
:func:`fragmenta.execution.warpgroup.warpgroup_function` computes it or says what is
wrong: infinities and NaN, elements that are far apart, illegal metadata, operands that
are not in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from fragmenta.arithmetic.floored import _kernels, computes
from fragmenta.arithmetic.floors import MOST_COLUMNS
from fragmenta.arithmetic.models import Model
from fragmenta.arrays.once import once
from fragmenta.execution.mma import numeric_model
from fragmenta.execution.warp_operands import Given, Side, from_registers, offsets_of
from fragmenta.execution.warp_registers import items_of
from fragmenta.execution.warpgroup import sign_bit
from fragmenta.execution.warpgroup_shared import OUTSIDE, Shared, steps_of
from fragmenta.isa.instruction import WARP, Instruction
from fragmenta.isa.tables.wgmma import Ways
from fragmenta.isa.target import chosen_target
from fragmenta.jit.compiler import Pointer, Traced, pointer
from fragmenta.jit.llvm import Type
from fragmenta.jit.trace import (
    F32,
    I8,
    I16,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    convert,
    float_of,
    select,
    size_of,
)
from fragmenta.shared.descriptor import MAJORS, UNIT, extent

_ELEMENTS = {8: I8, 16: I16, 32: I32}
_BLOCK = LANES * LANES
FAILED = -1


def is_quick(op: Instruction, target: str) -> bool:
    """Whether an instruction has such a function."""
    model = numeric_model(op, chosen_target(op, target))
    plain = model.c == model.d == "f32" and not model.reordered
    return plain and not model.scale and computes(model)


class Numbers:
    """What a function of an instruction needs besides its operands.

    ``work`` is memory for :attr:`bytes` bytes, which one thread uses at a time.
    """

    def __init__(self, op: Instruction, target: str) -> None:
        model = numeric_model(op, chosen_target(op, target))
        kernels = self._kept = _kernels(model)
        self.bytes: int = kernels.work
        found = _sizes(op, model)
        found |= {
            "pack_rows": kernels.rows.address,
            "pack_columns": kernels.columns.address,
            "add": kernels.add.address if model.start == "zero" else 0,
        }
        self._numbers = [found[name] for name in _named(kernels.steps.parameters)]
        self._steps = kernels.steps.address

    def listed(self, work: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The numbers, with memory to work in."""
        first = self._steps, int(work.ctypes.data)
        return np.array([*first, *self._numbers], np.int64)


def _sizes(op: Instruction, model: Model) -> dict[str, int]:
    """The numbers of the kernel, by name."""
    m, n, k = op.shape
    across = -(-n // MOST_COLUMNS)
    own = ("own_a", "own_b", "own_index", "own_scale_a", "own_scale_b")
    return {
        **dict.fromkeys(own, 0),
        "fraction": model.fraction,
        "floor": model.floor,
        "keep": model.keep,
        "rows": m,
        "columns": n,
        "instructions": 1,
        "stored": model.stored,
        "k": k,
        "scale_vec": model.scale_vec,
        "block_rows": m,
        "block_columns": min(MOST_COLUMNS, n),
        "across": across,
        "down": 1,
        "a_size": op.types["a"].bits // 8,
        "b_size": op.types["b"].bits // 8,
        "first": 0,
        "last": across,
    }


def _named(parameters: Mapping[str, Type | Pointer]) -> list[str]:
    """The parameters that are numbers."""
    return [name for name, of in parameters.items() if not isinstance(of, Pointer)]


@once
def quick_function(op: Instruction, target: str, ways: Ways) -> Traced:
    """The function for an instruction on a target; compiled when first used."""
    model = numeric_model(op, chosen_target(op, target))
    parameters = {
        "warps": pointer(I64),
        "places": pointer(I64),
        "a": pointer(I32),
        "descriptors": pointer(I64),
        "shared": pointer(I8),
        "shared_size": I64,
        "metadata": pointer(I32),
        "selectors": pointer(I64),
        "numbers": pointer(I64),
    }
    trace = partial(_trace, op, model, ways)
    return Traced("warpgroup_quick", parameters, trace, returns=I32)


def _trace(
    op: Instruction,
    model: Model,
    ways: Ways,
    code: Code,
    warps: Memory,
    places: Memory,
    a: Memory,
    descriptors: Memory,
    memory: Memory,
    size: Value,
    metadata: Memory,
    selectors: Memory,
    numbers: Memory,
) -> Value:
    m, n, k = op.shape
    status = code.variable(code.constant(0, I32))
    shared = Shared(memory, size, status)
    last = 0 if ways.a_from_registers else 1
    rows_a = code.scratch(_element(op, "a"), m * model.stored)
    rows_b = code.scratch(_element(op, "b"), k * n)
    flipped = sign_bit(op, "a", ways.imm_scale_a)
    if ways.a_from_registers:
        side = from_registers("a", op.a, a, model.stored, flipped)
        _from_registers(code, side, rows_a, model.stored)
    else:
        _from_shared(code, op, "a", descriptors[0], shared, ways, rows_a)
    _from_shared(code, op, "b", descriptors[last], shared, ways, rows_b)
    index = code.scratch(I8, m * model.stored if op.sparse else 1)
    if op.sparse:
        side = from_registers("a", op.a, a, model.stored)
        chosen = {"selector": selectors[1]}
        given = Given(op, model, side, side, a, a, metadata, chosen)
        offsets = offsets_of(code, given)
        status.value = status.value | offsets.illegal
        assert offsets.memory is not None
        with code.loop(m * model.stored, step=LANES) as at:
            index[at] = convert(offsets.memory.lanes(at) >> 3, I8)
    sums = code.scratch(F32, m * n)
    special = code.scratch(I8, -(-n // MOST_COLUMNS))
    d = Blocks(code, op, warps, places)
    with code.when(status.value == 0):
        d.load(sums, selectors[0] != 0)
        memories = {
            "a": rows_a,
            "b": rows_b,
            "d": sums,
            "index": index,
            "scale_a": index,
            "scale_b": index,
            "status": special,
        }
        _call(code, model, memories, numbers)
        for block in range(-(-n // MOST_COLUMNS)):
            status.value = status.value | convert(special[block], I32)
    with code.when(status.value == 0):
        d.store(sums)
    return select(status.value == 0, status.value, FAILED)


def _element(op: Instruction, name: str) -> Type:
    found: Type = _ELEMENTS[op.types[name].bits]
    return found


def _call(
    code: Code, model: Model, memories: dict[str, Memory], numbers: Memory
) -> None:
    """Call the kernel."""
    b = code.builder
    raws = []
    count = 2
    for name, of in _kernels(model).steps.parameters.items():
        if isinstance(of, Pointer):
            if name == "work":
                raws.append(b.inttoptr(numbers[1].raw, of.of.as_pointer()))
            else:
                raws.append(b.bitcast(memories[name].raw, of.of.as_pointer()))
        else:
            raws.append(convert(numbers[count], of).raw)
            count += 1
    kind = ir.FunctionType(ir.VoidType(), [raw.type for raw in raws])
    b.call(b.inttoptr(numbers[0].raw, kind.as_pointer()), raws)


# -- A and B ------------------------------------------------------------------


def _from_registers(code: Code, side: Side, rows: Memory, stored: int) -> None:
    """A from registers, in rows."""

    def put(bits: Value, at: Value) -> None:
        panel, k = at // stored, at % stored
        first = panel * (LANES * stored) + k
        narrow = convert(bits, rows.of)
        rows.scatter([first + lane * stored for lane in range(LANES)], narrow)

    side.panels(code).each(put)


def _from_shared(
    code: Code,
    op: Instruction,
    name: str,
    word: Value,
    shared: Shared,
    ways: Ways,
    rows: Memory,
) -> None:
    """A or B from shared memory, in rows: those of A have k along them, those of B n.

    A unit of 16 bytes goes along a row, or eight of them are transposed.
    """
    trans = ways.trans_a if name == "a" else ways.trans_b
    scale = ways.imm_scale_a if name == "a" else ways.imm_scale_b
    flipped = sign_bit(op, name, scale)
    outer, k = extent(op, name.upper())
    across, along = (k, outer) if trans else (outer, k)
    per = UNIT // size_of(rows.of)
    width = k if name == "a" else outer
    steps = steps_of(code, word, MAJORS[trans], shared.status)

    def unit(number: Value, line: Value) -> Value:
        at = steps.address(number, line)
        outside = at + UNIT > shared.size
        shared.status.value = select(outside, OUTSIDE, shared.status.value)
        found = _vector(shared.memory, select(outside, at.lift(0), at), rows.of, per)
        return found ^ _signed(flipped, rows.of) if flipped else found

    straight = (name == "a") == (trans == 0)
    lines = 1 if straight else LANES
    with code.loop(across, step=lines) as line, code.loop(along // per) as number:
        if straight:
            _put(rows, line * width + number * per, unit(number, line))
        else:
            found = _transposed([unit(number, line + each) for each in range(LANES)])
            for each in range(per):
                picks = range(each * LANES, (each + 1) * LANES)
                part = _picked(found, found, picks)
                _put(rows, (number * per + each) * width + line, part)


def _signed(bits: int, of: Type) -> int:
    """An unsigned number as LLVM writes it."""
    return bits - (1 << of.width) if bits >> (of.width - 1) else bits


def _vector(memory: Memory, at: Value, of: Type, count: int) -> Value:
    """Numbers at any address."""
    b = at.builder
    kind = ir.VectorType(of, count).as_pointer()
    loaded = b.load(b.bitcast(b.gep(memory.raw, [at.raw]), kind))
    loaded.align = 1
    return Value(b, loaded)


def _put(memory: Memory, at: Value, vector: Value) -> None:
    b = at.builder
    goal = b.bitcast(b.gep(memory.raw, [at.raw]), vector.type.as_pointer())
    b.store(vector.raw, goal).align = size_of(memory.of)


def _picked(x: Value, y: Value, places: range | list[int]) -> Value:
    """Some lanes of two vectors."""
    b = x.builder
    chosen = list(places)
    mask = ir.Constant(ir.VectorType(I32, len(chosen)), chosen)
    return Value(b, b.shuffle_vector(x.raw, y.raw, mask))


def _transposed(rows: list[Value]) -> Value:
    """Eight vectors as one: the first numbers of all, then the second ones."""
    while len(rows) > 1:
        half, count = len(rows) // 2, rows[0].type.count
        zipped = [lane + side * count for lane in range(count) for side in (0, 1)]
        rows = [_picked(rows[i], rows[i + half], zipped) for i in range(half)]
    return rows[0]


# -- D ------------------------------------------------------------------------


class Blocks:
    """D in the registers of four warps, eight rows and eight columns at a time.

    Two registers of a warp hold such a block.  The order in them is the same for all.
    """

    def __init__(
        self, code: Code, op: Instruction, warps: Memory, places: Memory
    ) -> None:
        self._code, self._warps, self._places = code, warps, places
        self._m, self._n, _ = op.shape
        found = items_of(op.d, "col", single=True).places
        blocks = found.reshape(self._n // LANES, self._m // LANES, _BLOCK)
        register, lane = blocks // (4 * WARP), blocks % (4 * WARP)
        first = register.min(axis=2, keepdims=True)
        second = register.max(axis=2, keepdims=True)
        warp, within = lane // WARP, lane % WARP
        order = np.where(register == first, within, within + WARP)
        one = (register == first) | (register == second)
        if not one.all() or (order != order[0, 0]).any() or np.ptp(warp, axis=2).any():
            raise AssertionError("D is not in blocks of two registers")
        self._order: list[int] = order[0, 0].tolist()
        self._tables = [
            code.table(each[:, :, 0].ravel().tolist(), I64)
            for each in (first, second, warp)
        ]

    def _registers(self, block: Value) -> list[Memory]:
        """The two registers of a block."""
        b = block.builder
        first, second, warp = (table[block] for table in self._tables)
        base = self._warps[warp]
        found = []
        for register in (first, second):
            at = base + self._places[register]
            found.append(Memory(b, b.inttoptr(at.raw, I32.as_pointer()), I32))
        return found

    def load(self, rows: Memory, kept: Value) -> None:
        """Copy D into rows; zeros if it is not kept."""
        code = self._code
        zero = code.constant(0.0, F32).in_all_lanes()
        with code.when(~kept), code.loop(self._m * self._n, step=LANES) as at:
            rows[at] = zero
        with code.when(kept), self._each() as (block, first):
            x, y = (_whole(each) for each in self._registers(block))
            block_rows = _picked(x, y, self._order)
            for row in range(LANES):
                part = range(row * LANES, (row + 1) * LANES)
                values = float_of(_picked(block_rows, block_rows, part))
                rows[first + row * self._n] = values

    def store(self, rows: Memory) -> None:
        """Copy rows into D."""
        back = np.argsort(self._order).tolist()
        with self._each() as (block, first):
            b = block.builder
            words, starts = rows.view(I32), range(0, LANES * self._n, self._n)
            parts = [words.lanes(first + start) for start in starts]
            while len(parts) > 1:
                count = 2 * parts[0].type.count
                pairs = zip(parts[::2], parts[1::2], strict=True)
                parts = [_picked(x, y, range(count)) for x, y in pairs]
            for number, register in enumerate(self._registers(block)):
                chosen = back[number * WARP : (number + 1) * WARP]
                vector = _picked(parts[0], parts[0], chosen)
                goal = b.bitcast(register.raw, vector.type.as_pointer())
                b.store(vector.raw, goal).align = 16

    @contextmanager
    def _each(self) -> Iterator[tuple[Value, Value]]:
        """The number of each block, and where it begins in rows."""
        bands = self._m // LANES
        panels = self._code.loop(self._n // LANES)
        with panels as panel, self._code.loop(bands) as band:
            yield panel * bands + band, (band * self._n + panel) * LANES


def _whole(register: Memory) -> Value:
    b = register._builder
    loaded = b.load(b.bitcast(register.raw, ir.VectorType(I32, WARP).as_pointer()))
    loaded.align = 16
    return Value(b, loaded)
