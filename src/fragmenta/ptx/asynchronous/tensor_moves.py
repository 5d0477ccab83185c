"""How do warps load and store tensor memory?

``tcgen05.ld`` fills registers some time between its issue and ``wait::ld``.
``tcgen05.st`` takes its registers when it is issued, and fills cells some time between
that and ``wait::st``.  Warp w of a warpgroup reaches lanes 32w to 32w + 31.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.isa.instruction import Instruction as Op
from fragmenta.ptx.asynchronous.events import Event, Operand, carries_out
from fragmenta.ptx.asynchronous.machine import Stop, Warp
from fragmenta.ptx.asynchronous.tensor_cells import Cells, TensorMemory
from fragmenta.ptx.asynchronous.tensor_operands import check_cells, memory, named_op
from fragmenta.ptx.asynchronous.warpgroups import Registers
from fragmenta.ptx.asynchronous.work import POISON
from fragmenta.ptx.engine.layout import LANES
from fragmenta.registers.tensor import TensorAddress

QUARTER = 32
"""Lanes of tensor memory that one warp of a warpgroup reaches."""
_WARPS = 4


class Way(NamedTuple):
    """Which cell each register of each lane of a warp holds.

    Arrays are (registers, lanes, elements of a register): the lane and the column
    from the address, and the number of the access.
    """

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    half: NDArray[np.int64]
    height: int
    width: int
    """Lanes and columns of an access."""

    @property
    def packed(self) -> bool:
        """Whether two columns share a register."""
        return self.rows.shape[-1] == 2

    def places(self, at: tuple[TensorAddress, ...]) -> tuple[Any, Any]:
        """The lanes and the columns of all registers."""
        lane = np.array([each.lane for each in at])[self.half]
        column = np.array([each.column for each in at])[self.half]
        return self.rows + lane, self.columns + column


@lru_cache(maxsize=512)
def way(op: Op) -> Way:
    """How an instruction goes through tensor memory."""
    part = op.fragments["R"]
    grid = part.layout.grid()
    shape = (LANES, part.registers, -1)

    def turned(name: str) -> NDArray[np.int64]:
        found = np.asarray(grid[name], np.int64).reshape(shape)
        return np.ascontiguousarray(found.swapaxes(0, 1))

    rows = turned("row")
    half = turned("half") if "half" in grid else np.zeros_like(rows)
    height, width = part.shape[-2:]
    return Way(rows, turned("col"), half, height, width)


class Move:
    """A load or a store of a warp that was issued."""

    def __init__(
        self, kind: str, warp: Warp, event: Event, op: Op,
        at: tuple[TensorAddress, ...],
    ) -> None:  # fmt: skip
        self.kind, self.warp, self.site = kind, warp, event.site
        self.cluster, self.memory = warp.block.cluster, memory(warp, event)
        self.op, self.way, self.at = op, way(op), at
        self.done = False
        lanes = [tuple(range(a.lane, a.lane + self.way.height)) for a in at]
        self.cells = [
            Cells(warp.block.rank, lane, each.column, self.way.width)
            for lane, each in zip(lanes, at, strict=True)
        ]

    def finish(self) -> None:
        """Move the words."""
        if self.done:
            return
        self.done = True
        if self in self.cluster.pending:
            self.cluster.pending.remove(self)
        self.move()
        self.cluster.changes += 1

    def poison(self) -> None:
        """Make it visible that the words are not there yet."""

    def move(self) -> None:
        """Move the words now."""


class Load(Move):
    """``tcgen05.ld`` of a warp."""

    def __init__(
        self, warp: Warp, event: Event, op: Op, at: tuple[TensorAddress, ...],
        results: Registers, reduced: Operand | None,
    ) -> None:  # fmt: skip
        super().__init__("ld", warp, event, op, at)
        self.results, self.reduced = results, reduced

    def poison(self) -> None:
        """The registers hold nothing yet."""
        self.results.fill(POISON)
        if self.reduced is not None:
            self.reduced.lanes(self.warp)[:] = POISON

    def move(self) -> None:
        """Fill the registers with what the cells hold now."""
        found = self.memory.seen(self.way.places(self.at))
        if self.way.packed:
            low = found & np.uint32(0xFFFF)
            words = low[..., 0] | low[..., 1] << np.uint32(16)
        else:
            words = found[..., 0]
        self.results.put(words)
        if self.reduced is not None:
            self.reduced.lanes(self.warp)[:] = _reduced(self, words)


class Store(Move):
    """``tcgen05.st`` of a warp."""

    def __init__(
        self, warp: Warp, event: Event, op: Op, at: tuple[TensorAddress, ...],
        words: NDArray[np.uint32],
    ) -> None:  # fmt: skip
        super().__init__("st", warp, event, op, at)
        self.words = words

    def poison(self) -> None:
        """The cells hold nothing that may be read yet."""
        for each in self.cells:
            self.memory.hide(each, stored=True)
        self.hides = True

    hides = False

    def move(self) -> None:
        """Fill the cells."""
        words = self.words[..., None]
        if self.way.packed:
            halves = (words & np.uint32(0xFFFF), words >> np.uint32(16))
            words = np.concatenate(halves, axis=-1)
        self.memory.image[self.way.places(self.at)] = words
        for each in self.cells if self.hides else ():
            self.memory.show(each, stored=True)


# ── reducing ────────────────────────────────────────────────────────────────


def _reduced(load: Load, words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The least or greatest of the values that each lane has loaded."""
    values = load.op.values
    least = values["red"] == "min"
    if values["type"] != "f32":
        numbers = words.view(np.int32) if values["type"] == "s32" else words
        found = numbers.min(axis=0) if least else numbers.max(axis=0)
        return np.asarray(found.view(np.uint32))
    bits = words & np.uint32(0x7FFFFFFF) if values["abs"] else words
    floats = bits.view(np.float32)
    if np.isnan(floats).any():
        _unknown(load, "NaN among the values")
    found = floats.min(axis=0) if least else floats.max(axis=0)
    zero = (bits & np.uint32(0x7FFFFFFF)) == 0
    signs = (zero & (bits != 0)).any(axis=0) & (zero & (bits == 0)).any(axis=0)
    if (signs & (found == 0)).any():
        _unknown(load, "zeros of both signs")
    return np.asarray(np.ascontiguousarray(found).view(np.uint32))


def _unknown(load: Load, what: str) -> None:
    raise Stop(
        "fault", load.site, load.warp, 0xFFFFFFFF,
        f"{load.op} with {what}: it is not known what a GPU returns",
    )  # fmt: skip


# ── issuing ─────────────────────────────────────────────────────────────────


def _addresses(
    warp: Warp, event: Event, lanes: int, op: Op, address: Operand,
    rest: tuple[Operand, ...],
) -> tuple[TensorAddress, ...]:  # fmt: skip
    """Where the accesses are, after the checks that a warp has to pass."""
    first = _same(warp, event, lanes, address)
    words = [first]
    for each in rest:  # .16x32bx2 has a second access
        words.append((first + each.value(warp, 0)) & 0xFFFFFFFF)
    at = tuple(TensorAddress.decode(word) for word in words)
    return tuple(_reached(warp, event, lanes, op, each) for each in at)


def _same(warp: Warp, event: Event, lanes: int, operand: Operand) -> int:
    """The address, which all lanes have to give."""
    given = operand.lanes(warp)
    if (given != given[0]).any():
        live = warp.live
        chosen = [int(given[i]) for i in range(LANES) if live >> i & 1]
        if len(set(chosen)) > 1:
            raise Stop(
                "divergent-aligned", event.site, warp, lanes,
                f"the address of {event.mnemonic} must be the same in all lanes of the "
                f"warp; given {min(chosen):#x} and {max(chosen):#x}",
            )  # fmt: skip
        return chosen[0]
    return int(given[0])


def _reached(
    warp: Warp, event: Event, lanes: int, op: Op, at: TensorAddress
) -> TensorAddress:
    """The absolute address of an access; kernels also count lanes from the quarter."""
    start = QUARTER * (warp.number % _WARPS)
    height = way(op).height
    inside = at.lane % QUARTER
    if at.lane - inside not in (0, start) or inside % 16 or inside + height > QUARTER:
        bases = f"lane {start}" + (f" or {start + 16}" if height == 16 else "")
        raise Stop(
            "tensor-memory", event.site, warp, lanes,
            f"warp {warp.number} reaches lanes {start} to {start + QUARTER - 1} of "
            f"tensor memory; {event.mnemonic} is given {at}, and takes {bases}",
        )  # fmt: skip
    return TensorAddress(start + inside, at.column)


def _registers(warp: Warp, event: Event, operand: Operand) -> Registers:
    """The registers of a vector, worked out once for each warp."""
    found: Registers | None = warp.registers.get(event.number)
    if found is None:
        items = operand.items if operand.kind == "v" else (operand,)
        found = Registers(warp.words, [each.place for each in items])
        warp.registers[event.number] = found
    return found


def _start(warp: Warp, event: Event, lanes: int, task: Move) -> int:
    cluster, block = warp.block.cluster, warp.block
    check_cells(warp, event, lanes, task.cells)
    block.groups.setdefault(("tcgen05", task.kind, warp.number), []).append(task)
    cluster.watch.tensor_moves(task, warp, event, lanes)
    cluster.start(task)
    return lanes


@carries_out("tcgen05.ld")
def load(warp: Warp, event: Event, lanes: int) -> int:
    """Load cells into the registers of a warp."""
    op = named_op(event.mnemonic)
    result, *rest = event.operands
    reduced = rest.pop(0) if op.values.get("red") else None
    at = _addresses(warp, event, lanes, op, rest[0], tuple(rest[1:]))
    results = _registers(warp, event, result)
    return _start(warp, event, lanes, Load(warp, event, op, at, results, reduced))


@carries_out("tcgen05.st")
def store(warp: Warp, event: Event, lanes: int) -> int:
    """Store the registers of a warp into cells."""
    op = named_op(event.mnemonic)
    address, *rest, source = event.operands
    at = _addresses(warp, event, lanes, op, address, tuple(rest))
    words = np.zeros(way(op).rows.shape[:2], np.uint32)
    _given(warp, event, source, words)
    return _start(warp, event, lanes, Store(warp, event, op, at, words))


def _given(
    warp: Warp, event: Event, source: Operand, words: NDArray[np.uint32]
) -> None:
    """The registers that are stored; some may be constants."""
    items = source.items if source.kind == "v" else (source,)
    if all(each.kind == "r" for each in items):
        _registers(warp, event, source).get(words)
        return
    for row, each in zip(words, items, strict=True):
        row[:] = each.lanes(warp).astype(np.uint64) & 0xFFFFFFFF


# ── waiting ─────────────────────────────────────────────────────────────────


def _wait(warp: Warp, event: Event, lanes: int, kind: str) -> int:
    tasks: list[Any] = warp.block.groups.pop(("tcgen05", kind, warp.number), [])
    for each in tasks:
        each.finish()
    warp.block.cluster.watch.tensor_waited(warp, event, lanes, kind, tasks)
    return lanes


@carries_out("tcgen05.wait::ld")
def wait_ld(warp: Warp, event: Event, lanes: int) -> int:
    """Wait until all loads of the warp have filled their registers."""
    return _wait(warp, event, lanes, "ld")


@carries_out("tcgen05.wait::st")
def wait_st(warp: Warp, event: Event, lanes: int) -> int:
    """Wait until all stores of the warp have filled their cells."""
    return _wait(warp, event, lanes, "st")


