"""A small machine for the tests: blocks of warps that access watched global memory."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.jit import compiler
from fragmenta.engine.simt import layout, library
from fragmenta.engine.simt.arguments import Segment
from fragmenta.engine.simt.compiled import aligned
from fragmenta.engine.simt.memory import AccessForm
from fragmenta.ptx.ordering import Scope
from fragmenta.watch.races.global_watch import GlobalWatch, Who
from fragmenta.watch.races.order import Order, joined
from fragmenta.watch.races.shadow import global_records
from fragmenta.watch.races.shadow import layout as clocks
from fragmenta.watch.races.shadow.global_memory import GLOBAL_SUPPORT, watched_global
from fragmenta.watch.races.shadow.problem_table import ProblemTable
from fragmenta.watch.races.shared_shadow import SharedShadow
from fragmenta.watch.races.strong_accesses import Actor

ALL = 0xFFFFFFFF
BASE = layout.FIRST_ARGUMENT << layout.SLOT_BITS
_ENGINES: list[Any] = []


@cache
def routine(access: AccessForm, kind: Any, scope: Scope = Scope.GPU) -> Any:
    """The routine as a function of addresses."""
    made = watched_global(access, kind, scope=scope)
    engine = compiler.load(o.code for o in library.objects([made, *GLOBAL_SUPPORT]))
    _ENGINES.append(engine)
    registers = access.elements if kind.endswith("write") else 0
    kinds = [ctypes.c_void_p] * 3 + [ctypes.c_int64] + [ctypes.c_int32] * 2
    kind_of = ctypes.CFUNCTYPE(None, *kinds, *[ctypes.c_void_p] * registers)
    return kind_of(engine.get_function_address(made.name))


class Block:
    """A block with its clocks."""

    def __init__(self, machine: Machine, number: int) -> None:
        self.machine, self.number = machine, number
        row, warps = machine.watch.row, machine.warps
        self.memory = aligned(layout.BLOCK_BYTES)
        self.wide = self.memory.view(np.int64)
        self.memory.view(np.int32)[layout.BLOCK_WARPS // 4] = warps
        self.wide[layout.BLOCK_INDEX // 8] = number
        self.wide[layout.BLOCK_SEGMENTS // 8] = machine.table.ctypes.data
        self.warps = [aligned(layout.REGISTERS) for _ in range(warps)]
        for each, warp in enumerate(self.warps):
            warp.view(np.int32)[layout.WARP_NUMBER // 4] = each
        self.order = Order(1, warps, 0, asynchronous=False)
        problems = ProblemTable()
        self.shared = SharedShadow(self.order, problems)
        assert self.order.plan.row == row
        self.states = self.order.states(0)
        self.states.view(np.int32)[:, clocks.STATE_EPOCH // 4] = 0
        self.wide[layout.BLOCK_WATCH // 8] = self.order.address(0)
        self.ledger = machine.watch.ledger(problems)
        self.ledger.attach(self.memory)

    # The clocks, as locations.Clocks wants them.

    def _clock(self, agent: int, second: bool) -> NDArray[np.int32]:
        row = self.machine.watch.row
        start = clocks.STATE_COMMON + 12 * row * second
        found: NDArray[np.int32] = self.states[agent, start : start + 12 * row].view(
            np.int32
        )
        return found.reshape(1, 3, row)

    def _word(self, agent: int, place: int) -> NDArray[np.uint32]:
        found: NDArray[np.uint32] = self.states[agent, place : place + 4].view(
            np.uint32
        )
        return found

    def epoch(self, agent: int) -> int:
        return int(self._word(agent, clocks.STATE_EPOCH)[0])

    def row(self, agent: int, lanes: int) -> NDArray[np.int32]:
        elect = int(self._word(agent, clocks.STATE_ELECT)[0])
        found = self._clock(agent, False)
        return joined(found, self._clock(agent, True) if elect & lanes else found)

    def knows(self, agent: int, lane: int, other: int, before: int, epoch: int) -> bool:
        if (other, before) == (agent, lane):
            return True
        base, extra, mask = (int(n) for n in self.row(agent, 1 << lane)[0, :, other])
        return epoch < base or (epoch < extra and bool(mask >> before & 1))

    def release(self, agent: int, lanes: int) -> NDArray[np.int32]:
        made = self.row(agent, lanes).copy()
        epoch = self.epoch(agent)
        if lanes == ALL:
            made[0, 0, agent] = epoch + 1
        else:
            own = np.zeros_like(made)
            own[0, 1:, agent] = epoch + 1, np.uint32(lanes).astype(np.int32)
            made = joined(made, own)
        self._word(agent, clocks.STATE_EPOCH)[0] += 1
        return made

    def acquire(self, agent: int, lanes: int, row: NDArray[np.int32]) -> None:
        common, second = self._clock(agent, False), self._clock(agent, True)
        elect = self._word(agent, clocks.STATE_ELECT)
        if lanes == ALL:
            common[:] = joined(common, row)
        else:
            second[:] = joined(joined(common, second), row)
            elect[0] |= lanes

    def syncwarp(self, agent: int) -> None:
        """bar.warp.sync of all lanes."""
        self.sync([agent])

    def sync(self, agents: list[int] | None = None) -> None:
        """bar.sync of warps."""
        agents = list(range(len(self.warps))) if agents is None else agents
        every = self._clock(agents[0], False)
        for agent in agents:
            elect = self._word(agent, clocks.STATE_ELECT)
            if elect[0]:
                self._clock(agent, False)[:] = self.row(agent, ALL)
                elect[0] = 0
                self._clock(agent, True)[:] = 0
            every = joined(every, self.release(agent, ALL))
        for agent in agents:
            self._clock(agent, False)[:] = every

    def access(
        self,
        warp: int,
        kind: Any,
        where: Any,
        *,
        lanes: int = ALL,
        site: int = 1,
        bits: int = 32,
        elements: int = 1,
        value: Any = None,
        scope: Scope = Scope.GPU,
    ) -> None:
        """Lanes access memory, and then store what they have."""
        access = AccessForm("global", bits, max(bits, 16), elements)
        given = np.zeros(32, np.int64) + where
        addresses = aligned(256).view(np.int64)
        addresses[:] = BASE + given
        values = aligned(32 * 8 * elements).reshape(elements, 256)
        writes = "write" in kind or kind == "atomic"
        if writes and value is not None:
            of = np.dtype(f"u{max(bits, 16) // 8}")
            for each in values:
                each.view(of)[:32] = np.zeros(32, of) + np.asarray(value, of)
        read = values if kind.endswith("write") else ()
        numbers = [each.ctypes.data for each in read]
        routine(access, kind, scope)(
            self.warps[warp].ctypes.data,
            self.memory.ctypes.data,
            addresses.ctypes.data,
            0,
            ctypes.c_int32(lanes).value,
            site,
            *numbers,
        )
        if writes:
            self._store(given, lanes, access, values)

    def _store(self, given: Any, lanes: int, access: AccessForm, values: Any) -> None:
        size = access.bits // 8
        held = access.register // 8
        for lane in range(32):
            for index, each in enumerate(values):
                start = int(given[lane]) + index * size
                fits = 0 <= start <= self.machine.data.size - size
                if lanes >> lane & 1 and fits:
                    data = each[lane * held : lane * held + size]
                    self.machine.data[start : start + size] = data

    def thread(self, warp: int, lanes: int = ALL) -> Actor:
        return Actor(self.number, warp, lanes, self, self.ledger)

    def who(
        self, warp: int, lane: int, flags: global_records.Flags, site: int = 9
    ) -> Who:
        return Who(site, self.number, warp, lane, self.epoch(warp), flags)


class Machine:
    """A launch with one array."""

    def __init__(
        self,
        size: int = 4096,
        blocks: int = 2,
        warps: int = 2,
        *,
        data: NDArray[np.uint8] | None = None,
        writable: bool = True,
        most: int = 4096,
    ) -> None:
        self.data = np.zeros(size, np.uint8) if data is None else data
        segment = Segment("x", self.data, writable, layout.FIRST_ARGUMENT)
        self.warps = warps
        self.table = np.zeros((layout.SLOTS, 4), np.int64)
        where = self.data.ctypes.data, self.data.size, not writable
        self.table[layout.FIRST_ARGUMENT, :3] = where
        self.watch = GlobalWatch([segment], blocks, 16, most)
        self.blocks = [Block(self, number) for number in range(blocks)]

    def rules(self) -> list[str]:
        """The names of all problems."""
        return [each.case.name for each in self.watch.found()]
