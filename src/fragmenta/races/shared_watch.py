"""What is known about a cluster of blocks while it runs?"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.once import once
from fragmenta.errors import Error, one_of
from fragmenta.jit import compiler
from fragmenta.races.shadow import layout, problem_table
from fragmenta.races.shadow.layout import AGENT_KINDS, Plan
from fragmenta.races.shadow.problem_table import Moment, Noted
from fragmenta.simt import library
from fragmenta.simt.compiled import aligned

Clock: TypeAlias = NDArray[np.int32]
"""A clock row: planes, then base, extra and mask, then agents."""

_PROXIES = {"generic": 0, "cp.async": 0, "async": 8}
_POINTER, _WORD, _LONG = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64


class Machine:
    """The compiled functions that Python calls."""

    def __init__(self) -> None:
        # Tracing takes a while to import.
        from fragmenta.races.shadow import (
            barrier_clocks,
            clocks,
            collection,
            shared_memory,
        )

        lanes = (_POINTER, _WORD, _WORD, _WORD, _POINTER)
        given: dict[str, tuple[library.Routine, tuple[Any, ...]]] = {
            "publish": (clocks.PUBLISH, lanes),
            "acquire": (clocks.ACQUIRE, lanes),
            "row": (clocks.ROW, lanes),
            "sync": (clocks.SYNC, lanes),
            "fence": (clocks.FENCE, lanes),
            "merge": (clocks.MERGE, (_POINTER,) * 3),
            "touch": (
                shared_memory.TOUCH,
                (_POINTER, _POINTER, _LONG, *6 * (_WORD,), _POINTER),
            ),
        }
        routines = [*(each for each, _ in given.values()), collection.COLLECT]
        routines.append(barrier_clocks.RENEW)
        self._engine = compiler.load(library.objects(routines))
        self.calls: dict[str, Callable[..., None]] = {
            name: ctypes.CFUNCTYPE(None, *kinds)(
                self._engine.get_function_address(each.name)
            )
            for name, (each, kinds) in given.items()
        }
        self.renew = int(self._engine.get_function_address(barrier_clocks.RENEW.name))


@once
def machine() -> Machine:
    """The compiled functions, loaded once.

    Contexts are made in several threads at a time.  A second machine would be thrown
    away while one of them uses its functions.
    """
    return Machine()


class Watch:
    """What is known about a cluster under way; used for one cluster after the other.

    ``shared_bytes`` are those of each block, with what belongs to the system.  Without
    ``asynchronous``, warps are the only agents, and there is no async proxy.

    >>> watch = Watch(1, 2, 2048, asynchronous=False)
    >>> told = watch.publish(0, 0, 0xFFFFFFFF, 0xFFFFFFFF)
    >>> watch.acquire(0, 1, 0xFFFFFFFF, 0xFFFFFFFF, told)
    >>> watch.found()
    []
    """

    def __init__(
        self,
        blocks: int,
        warps: int,
        shared_bytes: int,
        mbarriers: int = 64,
        *,
        asynchronous: bool = True,
        strict: bool = False,
        tensor: bool = False,
    ) -> None:
        self._strict = strict
        self.plan = Plan(blocks, warps, shared_bytes, mbarriers, asynchronous, tensor)
        plan = self.plan
        self._firsts = plan.firsts
        self._heads = aligned(blocks * layout.HEAD_BYTES)
        self._shadow = aligned(blocks * 16 * plan.words).view(np.uint64)
        self._states = aligned(blocks * warps * plan.state_bytes)
        self._barriers = aligned(blocks * 32 * plan.barrier_bytes)
        self._problems = aligned(
            layout.PROBLEMS_TABLE + layout.PROBLEMS * layout.PROBLEM_BYTES
        )
        self._sets = aligned(layout.SETS_BYTES)
        self._start = int(self._heads.ctypes.data)
        self._counts, self._shape = plan.counts, (plan.planes, 3, plan.row)
        self._cluster = -1
        for rank in range(blocks):
            self._write_head(rank)
        self._machine = machine()  # its code is freed with it
        self._calls = self._machine.calls
        self.reset()

    def _write_head(self, rank: int) -> None:
        plan, head = self.plan, self._head(rank)
        words, longs = head.view(np.int32), head.view(np.int64)
        for offset, number in (
            (layout.HEAD_RANK, rank),
            (layout.HEAD_BLOCKS, plan.blocks),
            (layout.HEAD_WARPS, plan.warps),
            (layout.HEAD_ROW, plan.row),
            (layout.HEAD_PLANES, plan.planes),
            (layout.HEAD_STRICT, int(self._strict)),
        ):
            words[offset // 4] = number
        first = layout.HEAD_KINDS // 4
        words[first : first + len(self._firsts)] = self._firsts
        where = self._shadow.ctypes.data + 16 * rank * plan.words + 8 * layout.MARGIN
        barriers = 32 * plan.barrier_bytes
        for offset, number in (
            (layout.HEAD_FIRST, self._heads.ctypes.data),
            (layout.HEAD_WRITES, where),
            (layout.HEAD_READS, where + 8 * plan.words),
            (layout.HEAD_SIZE, plan.shared),
            (layout.HEAD_STATES, self._state(rank, 0).ctypes.data),
            (layout.HEAD_STATE_BYTES, plan.state_bytes),
            (layout.HEAD_BARRIERS, self._barriers.ctypes.data + rank * barriers),
            (layout.HEAD_BARRIER_BYTES, plan.barrier_bytes),
            (layout.HEAD_PROBLEMS, self._problems.ctypes.data),
            (layout.HEAD_SETS, self._sets.ctypes.data),
        ):
            longs[offset // 8] = number

    def _head(self, rank: int) -> NDArray[np.uint8]:
        return self._heads[rank * layout.HEAD_BYTES :][: layout.HEAD_BYTES]

    def _state(self, rank: int, warp: int) -> NDArray[np.uint8]:
        size = self.plan.state_bytes
        return self._states[(rank * self.plan.warps + warp) * size :][:size]

    # ── clusters ────────────────────────────────────────────────────────────

    def address(self, rank: int) -> int:
        """What ``BLOCK_WATCH`` of a block has to be."""
        return self._start + rank * layout.HEAD_BYTES

    @property
    def renew(self) -> int:
        """What ``BLOCK_RESET`` of a block has to be, if it runs without Python.

        Then what is found has the number of its block instead of its cluster.
        """
        return self._machine.renew

    def states(self, rank: int) -> int:
        """Where the clocks of the warps of a block are."""
        return int(self._state(rank, 0).ctypes.data)

    def reset(self) -> None:
        """A new cluster begins.  What was found stays."""
        plan = self.plan
        self._cluster += 1
        self._shadow[:] = 0
        self._states[:] = 0
        states = self._states.reshape(-1, plan.state_bytes).view(np.int32)
        states[:, layout.STATE_EPOCH // 4] = 1
        clocks = self._barriers.reshape(-1, plan.barrier_bytes).view(np.int32)
        clocks[:, layout.CLOCK_PHASE // 4] = -1
        clocks[:, layout.CLOCK_WAITING // 4] = 0
        self._sets[: layout.SETS_CELLS] = 0
        heads = self._heads.reshape(-1, layout.HEAD_BYTES).view(np.int32)
        heads[:, layout.HEAD_CLUSTER // 4] = self._cluster
        heads[:, layout.HEAD_EXITED // 4] = 0

    # ── agents ──────────────────────────────────────────────────────────────

    def agent(self, kind: str, rank: int, number: int) -> int:
        """The number of an agent of a block.

        >>> Watch(2, 4, 2048).agent("warp", 1, 3)
        7
        """
        if kind not in AGENT_KINDS:
            raise Error(f"agents are {one_of(AGENT_KINDS)}; given {kind!r}")
        place = AGENT_KINDS.index(kind)
        count = self._counts[place]
        if not (0 <= number < count and 0 <= rank < self.plan.blocks):
            raise Error(
                f"each of {self.plan.blocks} blocks has {count} agents {kind}; "
                f"given {number} of block {rank}"
            )
        return self._firsts[place] + rank * count + number

    def describe(self, agent: int) -> tuple[str, int, int]:
        """The kind, the rank and the number of an agent.

        >>> Watch(2, 4, 2048).describe(7)
        ('warp', 1, 3)
        """
        for place, kind in enumerate(AGENT_KINDS):
            if self._firsts[place] <= agent < self._firsts[place + 1]:
                count = self.plan.counts[place]
                return (kind, *divmod(agent - self._firsts[place], count))
        raise Error(f"there are {self._firsts[-1]} agents; given {agent}")

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
        """Lanes get to know what a clock says."""
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
        """Let a clock know what another says, too."""
        self._calls["merge"](self.address(0), into.ctypes.data, other.ctypes.data)

    def know(self, clock: Clock, agent: int, epoch: int) -> None:
        """Let a clock know all accesses of an agent with a lower epoch."""
        base = clock[:, 0, agent]
        np.maximum(base, epoch, out=base)

    def epoch(self, rank: int, warp: int) -> int:
        """The present epoch of a warp."""
        return int(self._state(rank, warp).view(np.int32)[layout.STATE_EPOCH // 4])

    def epochs(self, rank: int) -> NDArray[np.int32]:
        """The present epochs of the warps of a block, as they change."""
        plan = self.plan
        whole = self._states.view(np.int32).reshape(-1, plan.state_bytes // 4)
        return whole[rank * plan.warps :][: plan.warps, layout.STATE_EPOCH // 4]

    @property
    def noted(self) -> int:
        """How many problems are in the table."""
        return int(self._problems.view(np.int32)[layout.PROBLEMS_USED // 4])

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

    # ── accesses ────────────────────────────────────────────────────────────

    def touch(
        self,
        rank: int,
        starts: Sequence[int] | NDArray[np.uint32],
        size: int,
        write: bool,
        agent: int,
        epoch: int,
        site: int,
        clock: Clock,
        *,
        proxy: str = "async",
        lane: int = 0,
    ) -> None:
        """An agent that is not a lane accesses ``size`` bytes at each of these offsets.

        ``clock`` is what it knows.
        """
        if proxy not in _PROXIES:
            raise Error(f"proxies are {one_of(_PROXIES)}; given {proxy!r}")
        places = np.ascontiguousarray(starts, np.uint32)
        kind = (layout.WRITES if write else layout.READS) | _PROXIES[proxy]
        self._calls["touch"](
            self.address(rank),
            places.ctypes.data,
            places.size,
            size,
            kind,
            agent,
            epoch,
            lane,
            site,
            clock.ctypes.data,
        )

    def records(self, rank: int) -> NDArray[np.uint64]:
        """All different records of accesses to the shared memory of a block."""
        words = 2 * self.plan.words
        found = self._shadow[rank * words : (rank + 1) * words]
        return np.unique(found[found != 0])

    # ── results ─────────────────────────────────────────────────────────────

    def found(self) -> list[Noted[Moment]]:
        """The problems that were found so far."""
        return problem_table.decode(self._problems)

    @property
    def lost(self) -> int:
        """How many problems found no place in the table."""
        return int(self._problems.view(np.int32)[layout.PROBLEMS_LOST // 4])
