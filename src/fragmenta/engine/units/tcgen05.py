"""``tcgen05.mma`` and ``tcgen05.commit``: the Tensor Cores of a block, or of a pair.

A thread issues products and copies into tensor memory.  They are done in the order in
which that thread issued them, before the mbarrier of a later ``tcgen05.commit`` is
signalled.  Their operands are read when they are done, not when they are issued.
"""

from __future__ import annotations

import ctypes
from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.simt.layout import RANK_BITS
from fragmenta.engine.simt.naming import counted
from fragmenta.engine.units.blocks import Thread, Warp
from fragmenta.engine.units.clusters import Cluster
from fragmenta.engine.units.copy_groups import Arrival
from fragmenta.engine.units.events import (
    Event,
    EventOperand,
    carries_out,
    first,
    numbers,
)
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.fast import task_layout as tasks
from fragmenta.engine.units.fast import tensor_layout as tensors
from fragmenta.engine.units.faults import Stop
from fragmenta.engine.units.mbarrier_state import Mbarrier
from fragmenta.engine.units.mbarriers import find, possible, shared_address
from fragmenta.engine.units.port import Step
from fragmenta.engine.units.records import Flag, Record, Word
from fragmenta.engine.units.tasks import UNBLOCK, TaskFields
from fragmenta.engine.units.tcgen05_sources import sources
from fragmenta.engine.units.tensor_forms import Key, TensorForm, TensorProduct, multiply
from fragmenta.engine.units.tmem_cells import Cells, TensorMemory
from fragmenta.engine.units.tmem_operands import (
    check_cells,
    check_target,
    complete,
    memory,
    operand_cells,
    pair,
)
from fragmenta.engine.units.work import Range, Work, ranks
from fragmenta.errors import BadMetadata, Error
from fragmenta.ptx import rules
from fragmenta.ptx.effects import effect
from fragmenta.ptx.rules import Rule
from fragmenta.reference.execution.tcgen05 import check_apart, execute
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.registers.tensor_fragment import TensorAddress

IN_TENSOR_MEMORY = ("d", "metadata", "scale_a", "scale_b")
"""Operands that are always addresses in tensor memory."""


class IssueQueue(Record):
    """What one thread has issued.

    ``waiting`` and ``commits`` are Python's.  What machine code issued is in the pool
    of tasks, and older: machine code issues nothing while Python's work is in flight.
    """

    uncommitted = Flag(tasks.QUEUE_THERE)
    """Whether there is work that no commit covers yet."""
    _python = Word(tasks.QUEUE_WORK)

    def __init__(self, warp: Warp, lane: int) -> None:
        super().__init__(warp.block.thread_memory(warp.number, lane))
        self._pool = warp.block.cluster.pool
        self._waiting: deque[Queued] = deque()
        self._commits: list[Commit] = []

    def run_before(self, last: Queued) -> None:
        """Finish all work before a piece of work, and take that from the queue."""
        for each in self._pool.issued(self.address):
            each.finish()
        while self._waiting[0] is not last:
            self._waiting[0].finish()
        self._waiting.popleft()
        self._count()

    def before(self) -> list[Work]:
        """What a commit waits for; earlier commits of the thread signal before it."""
        self._commits = [each for each in self._commits if not each.done]
        tasks_ = self._pool.issued(self.address)
        return [*tasks_, *self._commits, *self._waiting]

    def add(self, work: Queued) -> None:
        """Add a product or a copy."""
        self._waiting.append(work)
        self.uncommitted = True
        self._count()

    def commit(self, some: list[Commit]) -> None:
        """Add commits."""
        self._commits += some
        self.uncommitted = False
        self._count()

    def committed(self) -> None:
        """A commit has signalled."""
        self._commits = [each for each in self._commits if not each.done]
        self._count()

    def _count(self) -> None:
        self._python = len(self._waiting) + len(self._commits)


def queue(warp: Warp, lane: int) -> IssueQueue:
    """The queue of a thread."""
    found = warp.block.queues.get((warp.number, lane))
    if found is None:
        found = warp.block.queues[warp.number, lane] = IssueQueue(warp, lane)
    return found


class Queued(Work):
    """Work that a thread issued to the Tensor Cores."""

    op: Op

    def __init__(self, warp: Warp, event: Event, lane: int) -> None:
        super().__init__(event.site)
        self.thread, self.event, self.hides = Thread(warp, lane), event, False
        self.cluster, self.queue = warp.block.cluster, queue(warp, lane)
        self.blocks = pair(warp, event, 1 << lane)
        self.threads = 1
        """How many lanes issued work with this instruction at once."""
        self.cells_read: list[Cells] = []
        self.cells_written: list[Cells] = []
        self._sources: list[Range] = []

    @property
    def sources(self) -> list[Range]:
        """The shared memory that it reads."""
        return self._sources

    @property
    def described(self) -> dict[str, int]:
        """Of a product, its operands in shared memory: names and descriptors."""
        return {}

    def check_blocks(self) -> None:
        """Refuse work in a block whose threads have ended."""
        for each in self.blocks:
            if each.ended:
                raise self.stop(
                    rules.SHARED_RACE,
                    f"{self.event.mnemonic} reaches into block {each.rank} of the "
                    "cluster, whose threads have all ended",
                )

    def poison(self) -> None:
        """Hide what it will write."""
        self.hides = True
        for each in self.cells_written:
            self._memory(each).hide(each, stored=False)

    def finish_before(self) -> None:
        """Finish what the thread issued before."""
        self.queue.run_before(self)

    def write(self) -> None:
        """Compute, and write tensor memory."""
        for each in self.cells_written if self.hides else ():
            self._memory(each).show(each, stored=False)
        try:
            self.compute()
        except Stop:
            raise
        except Error as error:
            metadata = isinstance(error, BadMetadata)
            rule = rules.ILLEGAL_METADATA if metadata else rules.BAD_DESCRIPTOR
            raise self.stop(rule, str(error)) from error

    def read_shared(self, name: str, descriptor: int) -> None:
        """Add the shared memory that an operand is in to the sources."""
        try:
            self._sources += sources(self.op, name, descriptor, self.blocks)
        except Error as error:
            raise self.stop(rules.BAD_DESCRIPTOR, str(error)) from error

    def compute(self) -> None:
        """Compute the result, and write it to tensor memory."""

    def stop(self, rule: Rule, message: str) -> Stop:
        """The error that ends the kernel because of this work."""
        return Stop(rule, self.site, self.thread.warp, 1 << self.thread.lane, message)

    def _memory(self, cells: Cells) -> TensorMemory:
        return memory(self.thread.warp, self.event, self.cluster.blocks[cells.rank])

    # ── the memories of one block, or of both ───────────────────────────────

    def images(self) -> NDArray[np.uint32]:
        """Tensor memory as this work sees it."""
        warp, event = self.thread.warp, self.event
        found = [memory(warp, event, each).operand() for each in self.blocks]
        return np.stack(found) if len(found) == 2 else found[0]

    def shared(self) -> NDArray[np.uint8]:
        """The shared memory of its block, or of both of a pair."""
        found = [each.shared for each in self.blocks]
        return np.stack(found) if len(found) == 2 else found[0]

    def put(self, image: NDArray[np.uint32]) -> None:
        """Write the cells of the result to tensor memory."""
        parts = image if len(self.blocks) == 2 else image[None]
        of = {block.rank: part for block, part in zip(self.blocks, parts, strict=True)}
        for each in self.cells_written:
            there = memory(self.thread.warp, self.event, self.cluster.blocks[each.rank])
            there.image[each.index] = of[each.rank][each.index]


class QueuedMma(Queued):
    """``tcgen05.mma`` in all its forms."""

    effect = effect("tcgen05.mma")
    is_product = True

    def __init__(self, warp: Warp, event: Event, lane: int) -> None:
        super().__init__(warp, event, lane)
        self.check_blocks()
        given = operands(event, warp, lane)
        self.idesc = given.pop("idesc")
        try:
            self.op = complete(event.mnemonic, self.idesc)
        except Error as error:
            raise self.stop(rules.BAD_DESCRIPTOR, str(error)) from error
        check_target(warp, event, 1 << lane, self.op)
        self.given = given
        self.places()

    @classmethod
    def issued(
        cls, warp: Warp, event: Event, lane: int, op: Op, given: dict[str, Any]
    ) -> QueuedMma:
        """A product that machine code issued."""
        made = cls.__new__(cls)
        Queued.__init__(made, warp, event, lane)
        made.op, made.given, made.exact = op, given, True
        made.places()
        return made

    exact = False
    """Whether machine code could not compute it."""

    def places(self) -> None:
        """Find the cells that it reads and writes."""
        for name, address in self.given.items():
            if name not in IN_TENSOR_MEMORY and not isinstance(address, TensorAddress):
                continue
            part = {"scale_a": "scale_A", "scale_b": "scale_B"}.get(name, name)
            part = part.upper() if len(part) == 1 else part
            try:
                cells = operand_cells(self.op, part, address, self.blocks)
            except Error as error:
                raise self.stop(rules.TENSOR_MEMORY, str(error)) from error
            if name == "d":
                self.cells_written += cells
            if name != "d" or self.given["enable_input_d"]:
                self.cells_read += cells
        try:
            check_apart(self.op, self.given["d"], self.given)
        except Error as error:
            raise self.stop(rules.TENSOR_MEMORY, str(error)) from error
        for name, descriptor in self.described.items():
            self.read_shared(name, descriptor)

    @property
    def described(self) -> dict[str, int]:
        """Its operands in shared memory: names and descriptors."""
        words = {"A": self.given["a"], "B": self.given["b"]}
        return {n: w for n, w in words.items() if not isinstance(w, TensorAddress)}

    def compute(self) -> None:
        """Compute D = A B + D, in machine code if that is possible."""
        fast = self.cluster.machine.fast and not self.exact
        record = self._record() if fast else None
        if record is not None and multiply()(record.address) == tensors.DONE:
            return
        given = dict(self.given)
        a, b = given.pop("a"), given.pop("b")
        target = self.cluster.machine.launch.target
        found = execute(
            self.op, self.images(), a, b, smem=self.shared(), target=target, **given
        )
        self.put(found)

    def form(self) -> TensorForm | None:
        """The form of the instruction; None if it has operands that forms have not."""
        rest = self.given.keys() - {"d", "a", "b", "enable_input_d", *SCALES}
        if rest - {"disable_output_lane"} or any(self.given.get(each) for each in rest):
            return None
        of = {
            name: TensorAddress.of(self.given[name])
            for name in ("d", *SCALES)
            if name in self.given
        }
        if isinstance(self.given["a"], TensorAddress):
            of["a"] = self.given["a"]
        lanes = tuple(of[name].lane if name in of else None for name in _ORDER)
        return self.cluster.machine.tensor_forms.of(Key(self.op, self.idesc, lanes))

    def make_known(self) -> bool:
        """Let fast paths find the form and the descriptors; whether they can."""
        form, machine = self.form(), self.cluster.machine
        if form is None or not form.able:
            return False
        machine.know_form(self.event, form.address)
        for number, name in enumerate(_ORDER):
            _place(form, number, self.given.get(name))
        return True

    def _record(self) -> TensorProduct | None:
        """The product as machine code takes it; None if it does not compute it."""
        form = self.form()
        if form is None or not form.able:
            return None
        warp, event = self.thread.warp, self.event
        tensors_ = [memory(warp, event, each).address for each in self.blocks]
        shared = [address_of(each.shared) for each in self.blocks]
        places = [_place(form, n, self.given.get(e)) for n, e in enumerate(_ORDER)]
        return TensorProduct(
            form, places, self.given["enable_input_d"], tensors_, shared
        )


SCALES = ("scale_a", "scale_b")
_ORDER = ("a", "b", "d", *SCALES)
"""Operands in the order of their parts in a form."""


def _place(form: TensorForm, number: int, given: int | TensorAddress | None) -> int:
    """The column of an operand in tensor memory, or the address of its source."""
    if given is None:
        return 0
    if form.key.lanes[number] is not None:
        return TensorAddress.of(given).column
    assert not isinstance(given, TensorAddress)  # or it had a lane
    return form.source(number, given).address


@lru_cache(maxsize=1024)
def _names(words: tuple[str, ...], kinds: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the operands of a product."""
    names = ["d", "a", "b"]
    if "sp" in words:
        names.append("metadata")
    if "decompress::lut::b" in words:
        names.append("lut")
    names.append("idesc")
    if "block_scale" in words:
        names += ["scale_a", "scale_b"]
    if kinds[len(names)] == "v":
        names.append("disable_output_lane")
    names.append("enable_input_d")
    names.append("zero_column_mask" if "ws" in words else "scale_input_d")
    return tuple(names[: len(kinds)])


def operands(event: Event, warp: Warp, lane: int) -> dict[str, Any]:
    """The operands that a thread gives a product, by name."""
    given = event.operands
    names = _names(event.words, tuple(each.kind for each in given))
    found: dict[str, Any] = {}
    for name, each in zip(names, given, strict=True):
        found[name] = _value(name, each, warp, lane)
    return found


def _value(name: str, operand: EventOperand, warp: Warp, lane: int) -> Any:
    if operand.kind == "v":
        return operand.values(warp, lane)
    value = operand.value(warp, lane)
    if name == "a" and operand.kind == "a":
        return TensorAddress.decode(value)
    if name == "enable_input_d":
        return int(bool(value))
    bits = 64 if name in ("a", "b", "zero_column_mask") else tensors.ADDRESS_BITS
    bits = tensors.SCALE_ADDRESS_BITS if name in SCALES else bits
    return value & (1 << bits) - 1


@carries_out("tcgen05.mma")
def mma(warp: Warp, event: Event, lanes: int) -> int:
    """Issue a product for each lane; usually there is one."""
    for lane in numbers(lanes):
        product = QueuedMma(warp, event, lane)
        if product.make_known() and not lanes & (lanes - 1):
            passed = warp.block.cluster.again(warp, event, lanes)
            if passed is not None:
                return passed
        issue(product, lanes)
    return lanes


def issue(task: Queued, lanes: int) -> None:
    """Put work in flight; ``lanes`` are all that execute the instruction."""
    warp, lane = task.thread
    task.threads = lanes.bit_count()
    cells = [*task.cells_read, *task.cells_written]
    check_cells(warp, task.event, 1 << lane, cells)
    task.queue.add(task)
    task.cluster.port.issue(Step(warp, task.event, 1 << lane), task)
    task.cluster.start(task)


# ── commit ──────────────────────────────────────────────────────────────────


class Covered(NamedTuple):
    """The work that commits of one instruction cover."""

    some: bool
    """Whether there is any."""
    time: int
    """The number of the event."""


class Commit(Arrival):
    """An arrival at an mbarrier once the work of a thread is done."""

    effect = effect("tcgen05.commit")
    follows = "tcgen05"

    def __init__(
        self,
        warp: Warp,
        event: Event,
        lane: int,
        mbarrier: Mbarrier,
        before: Sequence[Work],
        covers: Covered,
    ) -> None:
        super().__init__(event.site, Thread(warp, lane), mbarrier, 1, before)
        self.event, self.covers = event, covers
        self.queue = queue(warp, lane)

    def signal(self) -> None:
        """Arrive, unless no arrival is pending; that is reported."""
        warp, lane = self.thread
        self.arrivals = possible(warp, self.event, 1 << lane, self.mbarrier, 1)
        super().signal()
        self.queue.committed()


@carries_out("tcgen05.commit")
def commit(warp: Warp, event: Event, lanes: int) -> int:
    """Signal an mbarrier, or one in each of several blocks, when the work is done."""
    cluster = warp.block.cluster
    mbarriers = {lane: _mbarriers(warp, event, lane) for lane in numbers(lanes)}
    _check_arrivals(warp, event, lanes, mbarriers)
    for lane, found in mbarriers.items():
        mine = queue(warp, lane)
        before, covers = mine.before(), Covered(mine.uncommitted, cluster.time)
        arrivals = [Commit(warp, event, lane, m, before, covers) for m in found]
        mine.commit(arrivals)
        for each in arrivals:
            cluster.port.issue(Step(warp, event, 1 << lane), each)
        for each in arrivals:
            cluster.start(each)
    return lanes


def _check_arrivals(
    warp: Warp, event: Event, lanes: int, mbarriers: dict[int, list[Mbarrier]]
) -> None:
    """Report that more lanes commit together than an mbarrier expects."""
    arrivals = Counter(each for found in mbarriers.values() for each in found)
    for each, threads in arrivals.items():
        if threads > each.expected:
            expected = counted(each.expected, "arrival")
            warp.report(
                rules.MBARRIER,
                event,
                lanes,
                f"{threads} threads commit their work, which makes {threads} arrivals "
                f"at {each}; a phase of it expects {expected}",
                repair="Let one thread of the warp (elect.sync) issue the work and "
                "commit it, or initialise the mbarrier with a larger count.",
            )


def _mbarriers(warp: Warp, event: Event, lane: int) -> list[Mbarrier]:
    """The mbarriers that a commit names."""
    address, *mask = (each.value(warp, lane) for each in event.operands)
    place = shared_address(warp, event, address, 1 << lane)
    if not mask:
        goals = [place]
    else:
        offset = place & (1 << RANK_BITS) - 1
        goals = [rank << RANK_BITS | offset for rank in ranks(mask[0] & 0xFFFFFFFF)]
    return [find(warp, event, each, 1 << lane) for each in goals]


# ── tasks of machine code ───────────────────────────────────────────────────


def _issuer(cluster: Cluster, entry: TaskFields) -> tuple[Warp, int, Event]:
    """The warp, the lane and the instruction that issued a task."""
    warp = cluster.blocks[entry.rank].warps[entry.number]
    number = ctypes.c_int32.from_address(entry.event + layout.EVENT_NUMBER).value
    return warp, first(entry.lanes & 0xFFFFFFFF), cluster.machine.events[number]


def _compute(cluster: Cluster, entry: TaskFields) -> None:
    """Compute a product that machine code cannot compute."""
    warp, lane, event = _issuer(cluster, entry)
    record = Record(entry.raw[tasks.TASK_TENSOR :])
    form = cluster.machine.tensor_forms.by_address[
        int(record.longs[tensors.PRODUCT_FORM >> 3])
    ]
    given: dict[str, Any] = {}
    for number, (name, own) in enumerate(zip(_ORDER, form.key.lanes, strict=True)):
        place = int(record.longs[(tensors.PRODUCT_PLACES >> 3) + number])
        if own is not None:
            given[name] = TensorAddress(own, place)
        elif name in ("a", "b"):
            given[name] = form.sources[place][1]
    given["enable_input_d"] = int(record.longs[tensors.PRODUCT_ENABLE >> 3])
    product = QueuedMma.issued(warp, event, lane, form.key.op, given)
    product.write()
    entry.flags |= tasks.COMPUTED


def _signal(cluster: Cluster, entry: TaskFields) -> None:
    """Report a commit that makes an arrival too many."""
    warp, lane, event = _issuer(cluster, entry)
    for rank in ranks(entry.signals):
        mbarrier = cluster.blocks[rank].mbarriers[entry.mbarrier]
        entry.arrivals = possible(warp, event, 1 << lane, mbarrier, entry.arrivals)


UNBLOCK[tasks.PRODUCT] = _compute
UNBLOCK[tasks.COMMIT] = _signal


# ── fences ──────────────────────────────────────────────────────────────────


@carries_out("tcgen05.fence::before_thread_sync")
def fence_before(warp: Warp, event: Event, lanes: int) -> int:
    """Work before it is ordered before what synchronises threads."""
    warp.block.cluster.port.fence(Step(warp, event, lanes))
    return lanes


@carries_out("tcgen05.fence::after_thread_sync")
def fence_after(warp: Warp, event: Event, lanes: int) -> int:
    """Work after it is ordered after what synchronised threads."""
    warp.block.cluster.port.fence(Step(warp, event, lanes))
    return lanes
