"""``tcgen05.ld`` and ``tcgen05.st``: a warp loads and stores tensor memory.

``tcgen05.ld`` fills registers when it is issued, whatever the schedule is.  By the
manual they hold nothing before ``wait::ld``.  But ptxas makes every instruction that
needs such a register wait for the load, and Triton's kernels count on that.

``tcgen05.st`` takes its registers when it is issued, and fills cells some time between
that and ``wait::st``.  Warp w of a warpgroup reaches lanes 32w to 32w + 31.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, EventOperand, carries_out, numbers
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.port import Step, Waited
from fragmenta.engine.units.tensor_ways import CellPath, way
from fragmenta.engine.units.tmem_cells import Cells
from fragmenta.engine.units.tmem_operands import check_cells, memory, named_op
from fragmenta.engine.units.wgmma_forms import Registers
from fragmenta.engine.units.work import QueueSlot, Work
from fragmenta.errors import Error
from fragmenta.ptx import rules
from fragmenta.ptx.effects import effect
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.registers.tensor_fragment import LANES as TENSOR_LANES
from fragmenta.reference.registers.tensor_fragment import TensorAddress
from fragmenta.reference.tensor_memory.moves import (
    CompressedLoad,
    compressed,
    reduce,
    uncompressed,
)
from fragmenta.reference.tensor_memory.reaching import WARPS

ALL = 0xFFFFFFFF


class TmemMove(Work):
    """A load or a store of a warp that was issued."""

    def __init__(self, warp: Warp, event: Event, op: Op, to: CellPath) -> None:
        super().__init__(event.site)
        self.warp, self.memory = warp, memory(warp, event)
        self.cluster = warp.block.cluster
        self.op, self.way = op, to
        rank = warp.block.rank
        self.cells: Sequence[Cells] = [Cells(rank, *each) for each in to.cells]

    @property
    def slot(self) -> QueueSlot:
        """Its place among the loads, or the stores, of its warp."""
        return QueueSlot(self.completes, self.warp.block.rank, self.warp.number)

    @property
    def packed(self) -> bool:
        """Whether two columns share a register."""
        return bool(self.way.numbers.shape[-1] == 2)


class TmemLoad(TmemMove):
    """``tcgen05.ld`` of a warp."""

    effect = effect("tcgen05.ld")

    def __init__(
        self,
        warp: Warp,
        event: Event,
        op: Op,
        to: CellPath,
        results: Registers,
        reduced: EventOperand | None,
        indices: EventOperand | None = None,
    ) -> None:
        super().__init__(warp, event, op, to)
        self.results, self.reduced, self.indices = results, reduced, indices
        self.cells_read, self.fills = self.cells, (warp,)
        self.registers = (*results.offsets,)
        if reduced is not None:
            self.registers += (reduced.place,)
        if indices is not None:
            self.registers += tuple(each.place for each in indices.items)

    def write(self) -> None:
        """Fill the registers with what the cells hold now."""
        words = self._every()
        self.results.put(self.remaining(words))
        if self.reduced is not None:
            self.reduced.lanes(self.warp)[:] = self._least(words)
        for each, row in zip(*self._metadata(), strict=True):
            each.lanes(self.warp)[:] = row

    def _every(self) -> NDArray[np.uint32]:
        """The words that the cells make now: (words, lanes)."""
        return self.words_of(self.memory.seen(self.way.numbers))

    def _metadata(self) -> tuple[tuple[EventOperand, ...], NDArray[np.uint32]]:
        """The registers of indices, and what they get."""
        if self.indices is None:
            return (), np.zeros((0, LANES), np.uint32)
        return self.indices.items, self._compressed.mdata.T

    @cached_property
    def _compressed(self) -> CompressedLoad:
        """Which words remain, with ``.spcompress``."""
        try:
            return compressed(self.op, np.ascontiguousarray(self._every().T))
        except Error as error:
            raise Stop(rules.FAULT, self.site, self.warp, ALL, str(error)) from error

    def remaining(self, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The words of the registers, of all that are looked at: (registers, lanes)."""
        if self.indices is None:
            return words
        return np.take_along_axis(words, self._compressed.places.T, axis=0)

    def words_of(self, found: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The words of registers that cells make."""
        if not self.packed:
            return found[..., 0]
        low = found & np.uint32(0xFFFF)
        return low[..., 0] | low[..., 1] << np.uint32(16)

    def _least(self, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The least or greatest of the values that each lane has loaded."""
        try:
            return reduce(self.op, words.T)
        except Error as error:
            raise Stop(rules.FAULT, self.site, self.warp, ALL, str(error)) from error


class TmemStore(TmemMove):
    """``tcgen05.st`` of a warp."""

    effect = effect("tcgen05.st")

    def __init__(
        self, warp: Warp, event: Event, op: Op, to: CellPath, words: NDArray[np.uint32]
    ) -> None:
        super().__init__(warp, event, op, to)
        self.words, self.cells_written = words, self.cells

    def poison(self) -> None:
        """Hide the cells: they are not written yet."""
        for each in self.cells:
            self.memory.hide(each, stored=True)
        self.hides = True

    hides = False

    def write(self) -> None:
        """Fill the cells."""
        self.memory.flat[self.way.numbers] = self.cells_of(self.words)
        for each in self.cells if self.hides else ():
            self.memory.show(each, stored=True)

    def cells_of(self, given: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """The words of cells that registers make."""
        words = given[..., None]
        if not self.packed:
            return words
        halves = (words & np.uint32(0xFFFF), words >> np.uint32(16))
        return np.concatenate(halves, axis=-1)


# ── issuing ─────────────────────────────────────────────────────────────────


def _way(
    warp: Warp,
    event: Event,
    lanes: int,
    op: Op,
    address: EventOperand,
    rest: list[EventOperand],
) -> CellPath:
    """The cells of a move; an error if the warp does not reach them."""
    given = _same(warp, event, lanes, address)
    imm = rest[0].value(warp, 0) if rest else None
    try:
        found = way(op, given, warp.number % WARPS, imm)
    except Error as error:
        raise Stop(rules.TENSOR_MEMORY, event.site, warp, lanes, str(error)) from error
    lane = TensorAddress.decode(given).lane
    if lane >= TENSOR_LANES:
        warp.report(
            rules.TENSOR_MEMORY,
            event,
            lanes,
            f"{event.mnemonic} names lane {lane} of tensor memory, which has "
            f"{TENSOR_LANES}; a GPU ignores the bits above and takes lane "
            f"{lane % TENSOR_LANES}",
            rules.WARNING,
            repair="Count lanes from 0 in each CTA of a pair.",
        )
    return found


def _same(warp: Warp, event: Event, lanes: int, operand: EventOperand) -> int:
    """The address, which must be the same in all lanes."""
    given = operand.lanes(warp)
    live = given[:1]
    if lanes != ALL or (given != given[0]).any():
        live = np.unique(given[list(numbers(lanes))])
    if live.size > 1:
        raise Stop(
            rules.DIVERGENT_ALIGNED,
            event.site,
            warp,
            lanes,
            f"the address of {event.mnemonic} must be the same in all lanes of the "
            f"warp; given {int(live[0]):#x} and {int(live[-1]):#x}",
        )
    return int(live[0])


def _registers(warp: Warp, event: Event, operand: EventOperand) -> Registers:
    """The registers of a vector, worked out once for each warp."""
    found: Registers | None = warp.registers.get(event.number)
    if found is None:
        items = operand.items if operand.kind == "v" else (operand,)
        found = Registers(warp.words, [each.place for each in items])
        warp.registers[event.number] = found
    return found


def _start(warp: Warp, event: Event, lanes: int, task: TmemMove) -> int:
    cluster, block = warp.block.cluster, warp.block
    check_cells(warp, event, lanes, task.cells)
    kind = task.effect.kind
    block.moves.setdefault((kind, warp.number), []).append(task)
    loads = isinstance(task, TmemLoad)
    block.stores[warp.number] += not loads
    cluster.port.issue(Step(warp, event, lanes), task)
    if loads:
        task.started = True
        task.finish()
    else:
        cluster.start(task)
    return lanes


@carries_out("tcgen05.ld")
def load(warp: Warp, event: Event, lanes: int) -> int:
    """Load cells into the registers of a warp."""
    op = named_op(event.mnemonic)
    result, *rest = event.operands
    indices, whole = None, op
    if "spcompress" in event.words:
        indices, result, whole = result, rest.pop(0), uncompressed(op)
    reduced = rest.pop(0) if "red" in event.words else None
    to = _way(warp, event, lanes, whole, rest[0], rest[1:])
    results = _registers(warp, event, result)
    if reduced is indices is None:
        _know(warp, event, op, rest[0], rest[1:], result)
    task = TmemLoad(warp, event, op, to, results, reduced, indices)
    return _start(warp, event, lanes, task)


@carries_out("tcgen05.st")
def store(warp: Warp, event: Event, lanes: int) -> int:
    """Store the registers of a warp into cells."""
    op = named_op(event.mnemonic)
    address, *rest, source = event.operands
    to = _way(warp, event, lanes, op, address, rest)
    words = np.zeros(to.numbers.shape[:2], np.uint32)
    _given(warp, event, source, words)
    _know(warp, event, op, address, rest, source)
    return _start(warp, event, lanes, TmemStore(warp, event, op, to, words))


def _know(
    warp: Warp,
    event: Event,
    op: Op,
    address: EventOperand,
    rest: list[EventOperand],
    registers: EventOperand,
) -> None:
    """Let fast paths find the cells of a load or a store of this warp."""
    items = registers.items if registers.kind == "v" else (registers,)
    machine = warp.block.cluster.machine
    if any(each.kind != "r" for each in items) or any(e.kind != "i" for e in rest):
        return
    imm = rest[0].value(warp, 0) if rest else None
    at = TensorAddress.decode(int(address.lanes(warp)[0]))
    if at.lane >= TENSOR_LANES:  # every launch has to report it
        return
    known = machine.tensor_moves.of(event.number, [each.place for each in items])
    number = warp.number % WARPS
    if not known.knows(number):
        base = TensorAddress(at.lane, 0).encode()
        known.know(number, at.lane, way(op, base, number, imm))
    machine.know_form(event, known.address)


def _given(
    warp: Warp, event: Event, source: EventOperand, words: NDArray[np.uint32]
) -> None:
    """The registers that are stored; some may be constants."""
    items = source.items if source.kind == "v" else (source,)
    if all(each.kind == "r" for each in items):
        _registers(warp, event, source).get(words)
        return
    for row, each in zip(words, items, strict=True):
        row[:] = each.lanes(warp).astype(np.uint64) & 0xFFFFFFFF


# ── waiting ─────────────────────────────────────────────────────────────────


@carries_out("tcgen05.wait::ld", "tcgen05.wait::st")
def wait(warp: Warp, event: Event, lanes: int) -> int:
    """Wait until all loads of the warp have filled registers, or all stores cells."""
    block, kind = warp.block, event.words[1].removeprefix("wait::")
    found: list[Work] = [*block.moves.pop((kind, warp.number), [])]
    if kind == "st":
        found += block.cluster.pool.stores(block.rank, warp.number)
        block.stores[warp.number] = 0
    for each in sorted(found, key=lambda work: work.ordinal):
        each.finish()
    step = Step(warp, event, lanes)
    warp.block.cluster.port.acquire(step, Waited(f"wait::{kind}"))
    return lanes
