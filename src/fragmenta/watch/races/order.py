"""Happens-before in a cluster: who knows what, kept as vector clocks.

The detectors of shared, global and tensor memory each have a shadow of their memory.
All of them ask the one :class:`Order` of the cluster whether an access happened before
another.  Compiled code does the same with the same memory
(:mod:`fragmenta.watch.races.shadow.order`).

A clock is an array: planes (the generic and the async proxy), then ``base``, ``extra``
and ``mask``, then agents.  :mod:`fragmenta.watch.races.shadow.layout` says what they
mean.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.compiled import aligned
from fragmenta.engine.simt.loaded import LoadedRoutines
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.errors import BadCall, ShapeError, one_of
from fragmenta.ptx.ordering import Scope
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.layout import AGENT_KINDS, Plan

Clock: TypeAlias = NDArray[np.int32]
"""What lanes know: planes, then base, extra and mask, then agents."""
Plane: TypeAlias = NDArray[np.int32]
"""What they know through one proxy: base, extra and mask, then agents."""
IntegerT = TypeVar("IntegerT", np.int32, np.int64)
ALL = 0xFFFFFFFF
"""All lanes of a warp."""


# ── clocks ──────────────────────────────────────────────────────────────────


def knows(plane: Plane, agent: int, lane: int, epoch: int) -> bool:
    """Whether what a lane of an agent did in an epoch happened before.

    >>> plane = np.array([[3], [5], [0b10]], np.int32)
    >>> knows(plane, 0, 0, 2), knows(plane, 0, 0, 4), knows(plane, 0, 1, 4)
    (True, False, True)
    """
    return knows_lanes(plane, agent, 1 << lane, epoch)


def knows_lanes(plane: Plane, agent: int, lanes: int, epoch: int) -> bool:
    """Whether what some lanes of an agent did in an epoch happened before.

    >>> plane = np.array([[3], [5], [0b10]], np.int32)
    >>> knows_lanes(plane, 0, ALL, 2), knows_lanes(plane, 0, 0b11, 4)
    (True, False)
    """
    base, extra, mask = plane[:, agent].tolist()
    return epoch < base or (epoch < extra and not lanes & ~mask)


def knows_all(plane: Plane, agent: int, epoch: int) -> bool:
    """Whether what all lanes of an agent did in an epoch happened before."""
    return epoch < int(plane[0, agent])


def covers(one: Clock, other: Clock) -> bool:
    """Whether a clock knows all that another one knows."""
    base, extra, mask = other[..., 0, :], other[..., 1, :], other[..., 2, :]
    own_base, own_extra, own_mask = one[..., 0, :], one[..., 1, :], one[..., 2, :]
    named = (extra <= own_extra) & ((mask & ~own_mask) == 0)
    return bool(((base <= own_base) & ((extra <= own_base) | named)).all())


def joined(one: Clock, other: Clock) -> Clock:
    """Two clocks as one: what either of them knows; perhaps a little more."""
    made = np.maximum(one, other)
    base, extra = made[..., 0, :], made[..., 1, :]
    made[..., 2, :] = ((one[..., 1, :] > base) * one[..., 2, :]) | (
        (other[..., 1, :] > base) * other[..., 2, :]
    )
    extra[extra <= base] = 0
    return made


def know(clock: Clock, agent: int, epoch: int) -> None:
    """Let a clock know all accesses of an agent with a lower epoch."""
    base = clock[:, 0, agent]
    np.maximum(base, epoch, out=base)


# ── compiled functions ──────────────────────────────────────────────────────

_POINTER, _WORD = ctypes.c_void_p, ctypes.c_int32


@once
def functions() -> dict[str, Callable[..., None]]:
    """The functions of clocks, loaded once."""
    # Tracing takes a while to import.
    from fragmenta.watch.races.shadow import order

    lanes = (_POINTER, _WORD, _WORD, _WORD, _POINTER)
    kinds = {
        "publish": (order.PUBLISH, lanes),
        "acquire": (order.ACQUIRE, lanes),
        "row": (order.ROW, lanes),
        "sync": (order.SYNC, lanes),
        "fence": (order.FENCE, lanes),
        "merge": (order.MERGE, (_POINTER,) * 3),
    }
    loaded = LoadedRoutines(routine for routine, _ in kinds.values())
    return {name: loaded.function(each, *of) for name, (each, of) in kinds.items()}


# ── a cluster ───────────────────────────────────────────────────────────────


class Order:
    """The clocks of a cluster; used for one cluster after the other.

    ``shared_bytes`` are those of each block, with what belongs to the system.  Without
    ``asynchronous``, warps are the only agents, and there is no async proxy.

    >>> order = Order(1, 2, 2048, asynchronous=False)
    >>> released = order.publish(0, 0, ALL, ALL)
    >>> knows(order.row(0, 1, ALL)[0], 0, 0, 1)
    False
    >>> order.acquire(0, 1, ALL, ALL, released)
    >>> knows(order.row(0, 1, ALL)[0], 0, 0, 1)
    True
    """

    def __init__(
        self,
        blocks: int,
        warps: int,
        shared_bytes: int,
        mbarriers: int = 64,
        *,
        asynchronous: bool = True,
        tensor: bool = False,
    ) -> None:
        self.plan = Plan(blocks, warps, shared_bytes, mbarriers, asynchronous, tensor)
        plan = self.plan
        self._firsts = plan.firsts
        self._heads = aligned(blocks * layout.HEAD_BYTES)
        self._states = aligned(blocks * warps * plan.state_bytes)
        self._barriers = aligned(blocks * 32 * plan.barrier_bytes)
        rows = aligned((blocks * warps + 2) * plan.row_bytes)
        self._fences = rows.view(np.int32).reshape(-1, plan.planes, 3, plan.row)
        """What plain fences of warps have kept; the last two rows are spare."""
        self._near = aligned(blocks * warps * layout.NEAR_BYTES)
        self._start = int(self._heads.ctypes.data)
        self._counts, self._shape = plan.counts, (plan.planes, 3, plan.row)
        for rank in range(blocks):
            self._write_head(rank)
        self._calls = functions()
        self.reset()

    def _write_head(self, rank: int) -> None:
        plan = self.plan
        words, longs = self.head(rank, np.int32), self.head(rank, np.int64)
        for offset, number in (
            (layout.HEAD_RANK, rank),
            (layout.HEAD_BLOCKS, plan.blocks),
            (layout.HEAD_WARPS, plan.warps),
            (layout.HEAD_ROW, plan.row),
            (layout.HEAD_PLANES, plan.planes),
            (layout.HEAD_AGENT, rank * plan.warps),
            (layout.HEAD_CLUSTER, -1),
        ):
            words[offset // 4] = number
        first = layout.HEAD_KINDS // 4
        words[first : first + len(self._firsts)] = self._firsts
        barriers, near = 32 * plan.barrier_bytes, plan.warps * layout.NEAR_BYTES
        for offset, number in (
            (layout.HEAD_FIRST, self._start),
            (layout.HEAD_STATES, self._state(rank, 0).ctypes.data),
            (layout.HEAD_STATE_BYTES, plan.state_bytes),
            (layout.HEAD_BARRIERS, self._barriers.ctypes.data + rank * barriers),
            (layout.HEAD_BARRIER_BYTES, plan.barrier_bytes),
            (layout.HEAD_FENCES, self._fences[rank * plan.warps].ctypes.data),
            (layout.HEAD_SPARE, self._fences[-2].ctypes.data),
            (layout.HEAD_NEAR, self._near.ctypes.data + rank * near),
        ):
            longs[offset // 8] = number

    def head(self, rank: int, of: type[IntegerT]) -> NDArray[IntegerT]:
        """The head of a block as numbers: where compiled code finds everything."""
        return self._heads[rank * layout.HEAD_BYTES :][: layout.HEAD_BYTES].view(of)

    def _state(self, rank: int, warp: int) -> NDArray[np.uint8]:
        size = self.plan.state_bytes
        return self._states[(rank * self.plan.warps + warp) * size :][:size]

    def address(self, rank: int) -> int:
        """What ``BLOCK_WATCH`` of a block has to be."""
        return self._start + rank * layout.HEAD_BYTES

    def states(self, rank: int) -> NDArray[np.uint8]:
        """The clocks of the warps of a block: warps, then bytes."""
        every = self._states.reshape(-1, self.plan.state_bytes)
        return every[rank * self.plan.warps :][: self.plan.warps]

    def reset(self) -> None:
        """A new cluster begins."""
        plan = self.plan
        self._states[:] = 0
        states = self._states.reshape(-1, plan.state_bytes).view(np.int32)
        states[:, layout.STATE_EPOCH // 4] = 1
        clocks = self._barriers.reshape(-1, plan.barrier_bytes).view(np.int32)
        clocks[:, layout.CLOCK_PHASE // 4] = -1
        for field in layout.CLOCK_ZEROED:
            clocks[:, field // 4] = 0
        heads = self._heads.reshape(-1, layout.HEAD_BYTES).view(np.int32)
        heads[:, layout.HEAD_CLUSTER // 4] += 1
        heads[:, layout.HEAD_EXITED // 4] = 0

    @property
    def clusters(self) -> int:
        """How many clusters have begun."""
        return int(self.head(0, np.int32)[layout.HEAD_CLUSTER // 4])

    def renewed(self, resets: ResetSchedule, numbers: NDArray[np.int64]) -> None:
        """Tell what :meth:`reset` does; the list gets the number of each cluster."""
        plan = self.plan
        resets.copy(self._states)
        clocks = self._barriers.reshape(-1, plan.barrier_bytes).view(np.int32)
        for field in (layout.CLOCK_PHASE, *layout.CLOCK_ZEROED):
            resets.copy(clocks[:, field // 4])
        for rank in range(plan.blocks):
            head = self.head(rank, np.int32)
            resets.clear(head[layout.HEAD_EXITED // 4 :][:1])
            resets.count(head[layout.HEAD_CLUSTER // 4 :][:1], numbers)
        states = self._states.reshape(-1, plan.state_bytes).view(np.int32)
        resets.zero_at_end(states[:, layout.STATE_COPIES // 4])

    # ── agents ──────────────────────────────────────────────────────────────

    def agent(self, kind: str, rank: int, number: int) -> int:
        """The number of an agent of a block.

        >>> Order(2, 4, 2048).agent("warp", 1, 3)
        7
        """
        if kind not in AGENT_KINDS:
            raise BadCall(f"agents are {one_of(AGENT_KINDS)}; given {kind!r}")
        place = AGENT_KINDS.index(kind)
        count = self._counts[place]
        if not (0 <= number < count and 0 <= rank < self.plan.blocks):
            raise ShapeError(
                f"each of {self.plan.blocks} blocks has {count} agents {kind}; "
                f"given {number} of block {rank}"
            )
        return self._firsts[place] + rank * count + number

    def describe(self, agent: int) -> tuple[str, int, int]:
        """The kind, the rank and the number of an agent.

        >>> Order(2, 4, 2048).describe(7)
        ('warp', 1, 3)
        """
        for place, kind in enumerate(AGENT_KINDS):
            if self._firsts[place] <= agent < self._firsts[place + 1]:
                count = self.plan.counts[place]
                return (kind, *divmod(agent - self._firsts[place], count))
        raise ShapeError(f"there are {self._firsts[-1]} agents; given {agent}")

    # ── clocks ──────────────────────────────────────────────────────────────

    def new_clock(self) -> Clock:
        """A clock that knows nothing."""
        return np.zeros(self._shape, np.int32)

    def publish(self, rank: int, warp: int, lanes: int, live: int) -> Clock:
        """Lanes release: what they know and did; a new epoch begins."""
        clock = self.new_clock()
        self._lanes("publish", rank, warp, lanes, live, clock)
        return clock

    def row(self, rank: int, warp: int, lanes: int) -> Clock:
        """What lanes know now, their own accesses included."""
        clock = self.new_clock()
        self._lanes("row", rank, warp, lanes, lanes, clock)
        return clock

    def acquire(
        self, rank: int, warp: int, lanes: int, live: int, clock: Clock
    ) -> None:
        """Lanes acquire: they know what a clock knows."""
        self._lanes("acquire", rank, warp, lanes, live, clock)

    def fence_async(self, rank: int, warp: int, lanes: int, live: int) -> None:
        """Lanes execute ``fence.proxy.async``."""
        self._lanes("fence", rank, warp, lanes, live, None)

    def sync_warp(self, rank: int, warp: int, lanes: int, live: int) -> None:
        """Lanes of a warp have met."""
        self._lanes("sync", rank, warp, lanes, live, None)

    def _lanes(
        self,
        name: str,
        rank: int,
        warp: int,
        lanes: int,
        live: int,
        clock: Clock | None,
    ) -> None:
        where = None if clock is None else clock.ctypes.data
        self._calls[name](self.address(rank), warp, lanes, live, where)

    def merge(self, into: Clock, other: Clock) -> None:
        """Join what another clock knows."""
        self._calls["merge"](self.address(0), into.ctypes.data, other.ctypes.data)

    def epoch(self, rank: int, warp: int) -> int:
        """The present epoch of a warp."""
        return int(self._state(rank, warp).view(np.int32)[layout.STATE_EPOCH // 4])

    def ignore(self, rank: int, warp: int, lanes: int) -> None:
        """Do not look at the next read of some lanes of a warp."""
        words = self._state(rank, warp).view(np.uint32)
        words[layout.STATE_IGNORED // 4] = lanes

    def epochs(self, rank: int) -> NDArray[np.int32]:
        """The present epochs of the warps of a block, as they change."""
        return self.states(rank).view(np.int32)[:, layout.STATE_EPOCH // 4]

    # ── plain fences ────────────────────────────────────────────────────────

    def keep_fence(
        self, rank: int, warp: int, lanes: int, scope: Scope = Scope.SYS
    ) -> None:
        """Keep what lanes know at a plain fence, for relaxed operations after it."""
        clock = self._fences[rank * self.plan.warps + warp]
        self._lanes("row", rank, warp, lanes, lanes, clock)
        kept = layout.FENCED_BLOCK if scope is Scope.CTA else layout.FENCED_CLUSTER
        self._state(rank, warp).view(np.int32)[layout.STATE_FENCED // 4] = kept

    def fenced(self, rank: int, warp: int, needed: Scope = Scope.CTA) -> Clock | None:
        """What the last plain fence of a warp has kept, if its scope is enough."""
        least = layout.FENCED_BLOCK if needed is Scope.CTA else layout.FENCED_CLUSTER
        kept = self._state(rank, warp).view(np.int32)[layout.STATE_FENCED // 4]
        if kept < least:
            return None
        found: Clock = self._fences[rank * self.plan.warps + warp]
        return found

    # ── cp.async ────────────────────────────────────────────────────────────

    def copies(self, rank: int, warp: int, epoch: int) -> bool:
        """Begin an epoch of ``cp.async``; whether there were copies in the last one."""
        words = self._state(rank, warp).view(np.int32)
        there = bool(words[layout.STATE_COPIES // 4])
        words[layout.STATE_COPIES // 4] = 0
        words[layout.STATE_COPY_EPOCH // 4] = epoch
        return there

    def copies_waited(self, rank: int, warp: int, epoch: int) -> None:
        """Each lane of a warp has waited for its own ``cp.async`` before an epoch."""
        words = self._state(rank, warp).view(np.int32)
        at = layout.STATE_WAITED // 4
        words[at] = max(int(words[at]), epoch)
