"""Work in flight: what asynchronous instructions do after their issue.

A piece of :class:`Work` is made when its instruction is issued, and whatever is wrong
with its operands is raised then.  It is in flight until :meth:`Work.finish`: the work
before it is done, the source is read, the work is no longer in flight, the result is
written, and mbarriers are signalled.  All of this may happen much later than the issue.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.layout import PLAIN, POISON, RANK_BITS
from fragmenta.engine.units.faults import CopyFault
from fragmenta.engine.units.port import Clock
from fragmenta.ptx import rules
from fragmenta.ptx.effects import Effect
from fragmenta.ptx.ordering import Role

if TYPE_CHECKING:
    from fragmenta.engine.units import clusters
    from fragmenta.engine.units.blocks import Thread, Warp
    from fragmenta.engine.units.mbarrier_state import Mbarrier
    from fragmenta.engine.units.tmem_cells import Cells
    from fragmenta.reference.shared.box_layouts import BoxLayout

Bytes: TypeAlias = NDArray[np.uint8]
Starts: TypeAlias = NDArray[np.int64]


# ── who ─────────────────────────────────────────────────────────────────────


class Cluster(Protocol):
    """Blocks that reach one another's shared memory."""

    @property
    def blocks(self) -> Sequence[CopyBlock]:
        """Its blocks by rank."""


class CopyBlock(Protocol):
    """A block of threads, as far as a copy needs it."""

    @property
    def cluster(self) -> Cluster:
        """The cluster that it is in."""

    @property
    def rank(self) -> int:
        """Its place in the cluster."""

    @property
    def shared(self) -> Bytes:
        """Its shared memory; the index is the address without the rank."""

    def memory(self, address: int) -> tuple[Bytes, int]:
        """The memory that a generic address is in, and the index there.

        An array that the kernel must not write is not writeable.  An address where
        nothing is raises an :class:`~fragmenta.errors.Error`.
        """


# ── where ───────────────────────────────────────────────────────────────────


class Range(NamedTuple):
    """Bytes that a piece of work touches: one piece, or several of the same size."""

    space: str
    """``shared`` or ``global``."""
    rank: int
    """The block of shared memory; -1 for global memory."""
    start: int | Starts
    """An address without the rank of the block, or a sorted array of addresses."""
    size: int

    @property
    def starts(self) -> Starts:
        """All first addresses.

        >>> Range("shared", 0, 1024, 16).starts
        array([1024])
        """
        return np.atleast_1d(np.asarray(self.start, np.int64))

    @property
    def bytes(self) -> int:
        """The number of bytes; those in two pieces count twice.

        >>> Range("shared", 0, np.array([1024, 2048]), 16).bytes
        32
        """
        return self.starts.size * self.size


def pieces(space: str, rank: int, starts: Starts, size: int) -> list[Range]:
    """Pieces of the same size as few ranges: neighbours are one piece.

    >>> [(r.start, r.size) for r in pieces("shared", 0, np.array([32, 16, 64]), 16)]
    [(64, 16), (16, 32)]
    """
    if not starts.size or not size:
        return []
    sorted_ = np.unique(starts)
    breaks = np.flatnonzero(np.diff(sorted_) != size) + 1
    edges = np.concatenate(([0], breaks, [sorted_.size]))
    firsts, sizes = sorted_[edges[:-1]], np.diff(edges) * size
    found = []
    for each in np.unique(sizes).tolist():
        chosen = firsts[sizes == each]
        start: int | Starts = int(chosen[0]) if chosen.size == 1 else chosen
        found.append(Range(space, rank, start, each))
    return found


class Pair(NamedTuple):
    """Bytes that are copied as they are: pieces of the same size."""

    to: Range
    """Where each piece goes; ``tensor`` is a space, too, with bytes of its cells."""
    of: Range
    """Where each piece comes from."""


def pairs(to: Range, of: Range) -> list[Pair]:
    """Pieces that are copied as few pairs: what stays together is one piece.

    >>> one = Range("shared", 0, np.array([32, 16, 64]), 16)
    >>> of = Range("global", -1, np.array([48, 32, 0]), 16)
    >>> [(each.to.starts, each.of.starts, each.to.size) for each in pairs(one, of)]
    [(array([64]), array([0]), 16), (array([16]), array([32]), 32)]
    """
    size = to.size
    if not to.starts.size or not size:
        return []
    order = np.argsort(to.starts, kind="stable")
    goals, sources = to.starts[order], of.starts[order]
    apart = (np.diff(goals) != size) | (np.diff(sources) != size)
    edges = np.concatenate(([0], np.flatnonzero(apart) + 1, [goals.size]))
    firsts, sizes = edges[:-1], np.diff(edges) * size
    return [
        Pair(
            to._replace(start=goals[firsts[sizes == each]], size=each),
            of._replace(start=sources[firsts[sizes == each]], size=each),
        )
        for each in np.unique(sizes).tolist()
    ]


def poisoned(address: Starts) -> Bytes:
    """The bytes of the poison at these addresses.

    >>> [hex(x) for x in poisoned(np.arange(4)).tolist()]
    ['0xff', '0x7f', '0xff', '0x7f']
    """
    return np.where(np.asarray(address) & 1, POISON >> 8 & 0xFF, POISON & 0xFF).astype(
        np.uint8
    )


_PATTERN = np.frombuffer(POISON.to_bytes(4, "little") * (1 << 17), np.uint8)


class Region(NamedTuple):
    """Adjacent bytes: the memory that they are in, and how the kernel names them."""

    memory: Bytes
    first: int
    range: Range

    def take(self) -> Bytes:
        """The bytes as they are now."""
        return self.memory[self.first : self.first + self.range.size].copy()

    def put(self, data: Bytes) -> None:
        """Overwrite them."""
        self.memory[self.first : self.first + self.range.size] = data

    def on(self, shadow: CopyBlock) -> Region:
        """The same bytes of the shadow of a block."""
        if self.range.space == "shared":
            memory = shadow.cluster.blocks[self.range.rank].shared
        elif self.range.size:
            memory, _ = shadow.memory(int(self.range.starts[0]))
        else:
            memory = self.memory
        return self._replace(memory=memory)


def shared_address(
    block: CopyBlock, address: int, what: str, space: str
) -> tuple[int, int]:
    """The rank and the offset of an address in a state space; without one, generic."""
    rank, offset = address >> RANK_BITS, address & (1 << RANK_BITS) - 1
    generic = address >> layout.SLOT_BITS
    if not space and generic == layout.SHARED_SLOT:
        rank = (address - layout.SHARED_WINDOW) >> RANK_BITS
    elif generic or not space:
        hint = "; cvta.to.shared converts it" if generic == layout.SHARED_SLOT else ""
        raise CopyFault(
            rules.OUT_OF_BOUNDS,
            f"{what} must be in shared memory; given the generic address "
            f"{address:#x}{hint}",
        )
    count = len(block.cluster.blocks)
    if not 0 <= rank < count:
        raise CopyFault(
            rules.OUT_OF_BOUNDS,
            f"{what} is in block {rank} of the cluster, which has {count}; given the "
            f"address {address:#x}",
        )
    if rank != block.rank and space in ("shared", "shared::cta"):
        raise CopyFault(
            rules.OTHER_BLOCK,
            f"{what} must be in the shared memory of the own block, {block.rank}; "
            f"given the address {address:#x}, which is in block {rank}",
        )
    return rank, offset


def in_shared(block: CopyBlock, rank: int, offset: int, size: int, what: str) -> Region:
    """Bytes of the shared memory of a block of the cluster."""
    memory = block.cluster.blocks[rank].shared
    if offset < layout.SHARED_START or offset + size > memory.size:
        raise CopyFault(
            rules.OUT_OF_BOUNDS,
            f"{what} is at bytes {offset - layout.SHARED_START} to "
            f"{offset + size - 1 - layout.SHARED_START} of shared memory, which has "
            f"{memory.size - layout.SHARED_START} bytes",
        )
    return Region(memory, offset, Range("shared", rank, offset, size))


def in_global(
    block: CopyBlock, address: int, size: int, what: str, *, writes: bool = False
) -> Region:
    """Bytes of global memory."""
    range_ = Range("global", -1, address, size)
    if not size:
        return Region(np.empty(0, np.uint8), 0, range_)
    memory, index = block.memory(address)
    if index < 0 or index + size > memory.size:
        raise CopyFault(
            rules.OUT_OF_BOUNDS,
            f"{what} is at bytes {index} to {index + size - 1} of its memory, which "
            f"has {memory.size} bytes",
        )
    if writes and not memory.flags.writeable:
        raise CopyFault(
            rules.READ_ONLY, f"{what} is in memory that must not be written"
        )
    return Region(memory, index, range_)


def aligned(address: int, unit: int, what: str) -> None:
    """Refuse an address that is not a multiple of so many bytes."""
    if address % unit:
        raise CopyFault(
            rules.MISALIGNED,
            f"{what} must be at a multiple of {unit} bytes; given {address:#x}, "
            f"nearest {(address + unit // 2) // unit * unit:#x}",
        )


# ── what ────────────────────────────────────────────────────────────────────


class QueueSlot(NamedTuple):
    """A place in a queue: threads wait for all work of a queue before an epoch."""

    queue: str
    """``cp.async``, ``bulk``, ``wgmma``, ``tcgen05``, ``wait::ld`` or ``wait::st``."""
    rank: int
    """The block in the cluster."""
    number: int
    """The warp that issued it; of ``wgmma``, the warpgroup."""
    lane: int = 0
    """The thread; 0 if all lanes of the warp have one queue."""
    epoch: int = -1
    """-1: work of this queue has no epochs, all of it is waited for."""


class CopiedBox(NamedTuple):
    """A box of a tensor map that a copy puts into shared memory."""

    layout: BoxLayout | None
    """None: it is not made of lines, or not known."""
    ranks: list[int]
    """The blocks that it goes to."""
    at: int
    coordinates: tuple[int, ...]


class Work:
    """What an asynchronous instruction does: it is issued, in flight, done.

    Subclasses say what differs: what is poisoned, read and written, what has to be done
    before, and what is signalled at the end.  Who observes work asks for these fields,
    not for the subclass.
    """

    effect: Effect
    """The line of its instruction in the table of effects."""
    mbarriers: Sequence[Mbarrier] = ()
    """The mbarriers that it signals, once it is in flight."""
    bytes: int = 0
    """What it adds to ``complete_tx`` of each mbarrier."""
    arrivals = 0
    """How many arrivals it is at each mbarrier."""
    before: Sequence[Work] = ()
    """The work that it waits for."""
    follows = ""
    """Of an arrival, the queue of the work before it."""
    is_product = False
    """Whether it multiplies matrices."""
    fills: Sequence[Warp] = ()
    """The warps whose registers it writes when it is done."""
    registers: Sequence[int] = ()
    """Where in the memory of these warps the registers are."""
    cells_read: Sequence[Cells] = ()
    """The tensor memory that it reads."""
    cells_written: Sequence[Cells] = ()
    """The tensor memory that it writes."""
    map_range: Range | None = None
    """The tensor map that it reads through the tensormap proxy, if it is in memory."""
    box: CopiedBox | None = None
    """The box that it loads by a tensor map."""
    has_note = False
    """Whether compiled code writes notes of it for a recording."""
    cluster: clusters.Cluster
    """The cluster that it is in flight in, once it is started."""
    started = False
    was_read = done = False
    ordinal = 0
    """Its place among all work that was put in flight, once it is started."""
    number = -1
    """Its number among what the observer noted; -1: it was not noted."""
    repeats = False
    """Whether another lane issued an equal copy with the same instruction."""
    clock: Clock | None = None
    """What its issuer knew; the observer's."""
    role: Role | None = None
    """How it synchronises threads when it is done, if they may poll what it writes."""

    def __init__(self, site: int) -> None:
        self.site = site

    @property
    def completes(self) -> str:
        """How it completes: see :mod:`fragmenta.ptx.effects`."""
        return self.effect.done_by

    @property
    def proxy(self) -> str:
        """Through which proxy it reads and writes."""
        return self.effect.proxy

    @property
    def combines(self) -> bool:
        """Whether it combines with what memory holds, one element at a time."""
        return self.effect.combines

    @property
    def slot(self) -> QueueSlot | None:
        """Its place in a queue, as it is at its issue; None: it is in no queue."""
        return None

    @property
    def sources(self) -> list[Range]:
        """The shared and global memory that it reads."""
        return []

    @property
    def useful(self) -> list[Range]:
        """What it reads and uses."""
        return self.sources

    @property
    def useless(self) -> list[Range]:
        """What else it reads: that part of a box is outside of the tensor."""
        return []

    @property
    def goals(self) -> list[Range]:
        """The shared and global memory that it writes."""
        return []

    @property
    def pairs(self) -> list[Pair]:
        """Which bytes it copies as they are, and from where."""
        return []

    @property
    def noted(self) -> int:
        """The note of what it writes to global memory: see ``simt.memory.note``."""
        return PLAIN

    # ── what differs ────────────────────────────────────────────────────────

    def poison(self) -> None:
        """Fill what it will write with poison, which an early read then gets."""

    def finish_before(self) -> None:
        """Finish the work that is done before this one."""

    def read(self) -> None:
        """Take the source as it is now."""

    def write(self) -> None:
        """Put what was read where it goes."""

    def signal(self) -> None:
        """Signal the mbarriers."""

    def shown(self) -> AbstractContextManager[None]:
        """Let who looks on see the registers that it has hidden, as they are now."""
        return nullcontext()

    # ── what is the same ────────────────────────────────────────────────────

    def take(self) -> None:
        """Read the source, if that was not done before."""
        if not self.was_read:
            self.was_read = True
            self.read()

    def finish(self) -> None:
        """Do all that is left; nothing if it is done."""
        if self.done:
            return
        self.finish_before()
        self.take()
        self.done = True
        if self.started:
            self.cluster.finished(self)
        self.write()
        if self.started:
            self.cluster.port.wrote(self)
        self.signal()


def done_at_once(site: int) -> Work:
    """Work that compiled code did when it was issued."""
    made = Work(site)
    made.was_read = made.done = True
    return made


class Transfer(Work):
    """Work that moves bytes between memories, and the same bytes of shadows."""

    thread: Thread
    """The thread that issued it, or the first."""

    @property
    def sum(self) -> tuple[str, str]:
        """If it combines: the operation, and the type of the elements."""
        return "", ""

    def summands(
        self, block: CopyBlock, values: Sequence[int] = ()
    ) -> list[tuple[Bytes, Bytes]]:
        """If it combines: what its goals hold in a block, and what is combined with it.

        Of the shadow of a block it is the same of the shadow, with ``values`` as those
        of registers.  Elements are where both have them; what is between is none.
        """
        return []

    def put_sums(self, block: CopyBlock, sums: Sequence[Bytes]) -> None:
        """If it combines: put something in the place of its goals in a block."""

    def carry(self, shadow: CopyBlock, values: Sequence[int] = ()) -> None:
        """Make the same copy in the shadow of a block, as :meth:`follow` does.

        What it does not copy becomes 0, and so do sums.
        """
        if self.combines:
            sums = [np.zeros_like(old) for old, _ in self.summands(shadow, values)]
            self.put_sums(shadow, sums)
        else:
            self.follow(shadow, values)

    def follow(self, shadow: CopyBlock, values: Sequence[int] = ()) -> Starts:
        """Make the same copy in the shadow of a block.

        The memories of the shadow have a bit for each bit, which is 1 where that is
        undefined.  ``values`` are the shadows of registers that are copied.  The
        result are the addresses of undefined bytes in global memory.  What does not
        come from memory or registers is defined.
        """
        raise NotImplementedError


class Copy(Transfer):
    """A copy: the part that is the same for all instructions.

    Subclasses take addresses, coordinates and sizes as numbers.
    """

    name = "copy"
    """What a message calls it."""
    mbarrier: int | None = None
    """The shared address of the mbarrier that it signals, with the rank."""
    mask: int | None = None
    """The blocks that a multicast goes to."""
    paired = False
    """Whether its mbarrier may be in the other block of a pair, ``.cta_group::2``."""

    def __init__(self, block: CopyBlock, thread: Thread, site: int) -> None:
        super().__init__(site)
        self.block, self.thread = block, thread
        self.past: list[tuple[int, int, bool]] = []
        """What is partly past the end of an argument: address, size, whether it is
        written."""

    @property
    def slot(self) -> QueueSlot | None:
        """Its place among the bulk copies of its thread, which are waited for."""
        if self.completes != "bulk_group":
            return None
        warp, lane = self.thread
        epoch = warp.block.bulk_queue(warp.number, lane).epoch
        return QueueSlot("bulk", warp.block.rank, warp.number, lane, epoch)

    def signals(self) -> list[tuple[int, int]]:
        """The mbarriers that it signals: the block's rank, and the offset there."""
        if self.mbarrier is None:
            return []
        rank, offset = self.mbarrier >> RANK_BITS, self.mbarrier & (1 << RANK_BITS) - 1
        goals = [rank] if self.mask is None else ranks(self.mask)
        return [(self.counted_in(each), offset) for each in goals]

    def counted_in(self, goal: int) -> int:
        """The rank of the block whose mbarrier counts what goes to a block."""
        rank = (self.mbarrier or 0) >> RANK_BITS
        if self.mask is None:
            return rank
        # In each pair, the block of the same parity as the address' block.
        return goal & ~1 | rank & 1 if self.paired else goal

    def signal(self) -> None:
        """Count its bytes at the mbarriers."""
        for each in self.mbarriers:
            each.discount(self)
            self.cluster.port.signal(self, each)
            each.expect(-self.bytes)
            each.settle(self.thread.warp)

    def poison(self) -> None:
        """Poison what it will write, unless it combines with what is there."""
        if self.combines:
            return
        for each in self.goals:
            starts, index = each.starts, 0
            if each.space == "shared":
                memory = self.block.cluster.blocks[each.rank].shared
            else:
                memory, index = self.block.memory(int(starts[0]))
                index -= int(starts[0])
            if isinstance(each.start, int):  # usually: faster
                first, odd = each.start + index, each.start & 1
                part = memory[first : first + each.size]
                part[:] = _PATTERN[odd : odd + each.size]
            else:
                places = starts[:, None] + np.arange(each.size)
                memory[places + index] = poisoned(places)

    def follow(self, shadow: CopyBlock, values: Sequence[int] = ()) -> Starts:
        """Make the same copy in the shadow of a block; nothing becomes undefined."""
        for each in self.goals:
            places = each.starts[:, None] + np.arange(each.size)
            shadow.cluster.blocks[each.rank].shared[places] = 0
        return self._undefined(shadow)

    def _undefined(self, shadow: CopyBlock) -> Starts:
        """The bytes of global memory among its goals that are undefined."""
        found = [np.empty(0, np.int64)]
        for each in self.goals:
            if each.space == "global":
                places = (each.starts[:, None] + np.arange(each.size)).reshape(-1)
                memory, index = shadow.memory(int(places[0]))
                bits = memory[places - places[0] + index]
                found.append(places[bits != 0])
        return np.concatenate(found)

    def _signal(self, address: int | None, space: str, goal_rank: int) -> None:
        """Take the mbarrier; it must be in the block that the data goes to."""
        if address is None:
            return
        what = f"the mbarrier of a {self.name}"
        rank, offset = shared_address(self.block, address, what, space)
        aligned(offset, 8, what)
        in_shared(self.block, rank, offset, 8, what)
        away = rank ^ goal_rank
        if away > self.paired and self.mask is None:
            raise CopyFault(
                rules.OTHER_BLOCK,
                f"{what} must be in the block that the data goes to, {goal_rank}; "
                f"given the address {address:#x}, which is in block {rank}; an H200 "
                "signals the mbarrier at this place of the other block",
            )
        self.mbarrier = rank << RANK_BITS | offset


def spread(shadow: Bytes, size: int) -> Bytes:
    """All bits of each element in which any bit is undefined.

    >>> spread(np.array([0, 1, 0, 0], np.uint8), 2)
    array([255, 255,   0,   0], dtype=uint8)
    """
    some = shadow.reshape(-1, size).any(axis=1)
    return np.repeat(np.where(some, 0xFF, 0), size).astype(np.uint8)


def ranks(mask: int) -> list[int]:
    """The blocks in a mask of a multicast.

    >>> ranks(0b1101)
    [0, 2, 3]
    """
    return [each for each in range(mask.bit_length()) if mask >> each & 1]


def destinations(block: CopyBlock, rank: int, mask: int | None, name: str) -> list[int]:
    """The blocks that a copy goes to; an H200 does nothing if the mask is 0."""
    if mask is None:
        return [rank]
    count = len(block.cluster.blocks)
    if mask >> count:
        raise CopyFault(
            rules.BAD_MASK,
            f"the mask of a {name} names blocks of the cluster, 0 to {count - 1}; "
            f"given {mask:#b}",
        )
    return ranks(mask)
