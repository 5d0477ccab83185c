"""A block of warps without a kernel: routines are called one by one.

The memory of the block and of its warps is as the engine has it.  Each access really
happens in shared memory after it was checked.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from fragmenta.base.jit import compiler
from fragmenta.engine.simt import barriers, layout, library
from fragmenta.engine.simt.compiled import aligned
from fragmenta.engine.simt.memory import AccessForm
from fragmenta.watch.races.order import Order
from fragmenta.watch.races.shadow import barrier_clocks, shared_memory
from fragmenta.watch.races.shadow.problem_table import ProblemTable
from fragmenta.watch.races.shared_shadow import SharedShadow

ALL = 0xFFFFFFFF
WARP_BYTES = layout.REGISTERS + 1024
START = layout.SHARED_START

_KINDS: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int32,
    "l": ctypes.c_int64,
}


@cache
def engine(routines: tuple[library.Routine, ...]) -> Any:
    return compiler.load(o.code for o in library.objects(routines))


@cache
def function(routine: library.Routine, kinds: str, returns: str = "") -> Any:
    """A routine that can be called from Python."""
    loaded = engine((routine, *shared_memory.SUPPORT))
    address = loaded.get_function_address(routine.name)
    result = _KINDS[returns] if returns else None
    return ctypes.CFUNCTYPE(result, *(_KINDS[each] for each in kinds))(address)


class Rig:
    """Warps that access shared memory and meet, as a test says."""

    def __init__(
        self,
        warps: int = 2,
        size: int = 4096,
        blocks: int = 1,
        strict: bool = False,
        **options: Any,
    ) -> None:
        self.order = Order(blocks, warps, size, **options)
        self.shared = SharedShadow(self.order, ProblemTable(), strict=strict)
        self.warps = warps
        self.block = aligned(layout.BLOCK_BYTES)
        self.bytes = aligned(size)
        self.memory = aligned(warps * WARP_BYTES).reshape(warps, WARP_BYTES)
        longs = self.block.view(np.int64)
        longs[layout.BLOCK_SHARED // 8] = self.bytes.ctypes.data
        longs[layout.BLOCK_SHARED_SIZE // 8] = size
        longs[layout.BLOCK_WATCH // 8] = self.order.address(0)
        self.block.view(np.int32)[layout.BLOCK_LIVE // 4] = 32 * warps
        words = self.memory.view(np.uint32)
        words[:, layout.LIVE // 4] = ALL
        words[:, layout.WARP_NUMBER // 4] = np.arange(warps)
        self.registers = [aligned(512) for _ in range(6)]
        self.site = 0

    def live(self, warp: int) -> int:
        return int(self.memory.view(np.uint32)[warp, layout.LIVE // 4])

    def at(self, warp: int) -> int:
        return int(self.memory[warp].ctypes.data)

    # ── accesses ────────────────────────────────────────────────────────────

    def access(
        self,
        kind: str,
        warp: int,
        addresses: int | Sequence[int],
        lanes: int = ALL,
        size: int = 4,
        values: int | Sequence[int] = 0,
        site: int | None = None,
        elements: int = 1,
    ) -> int:
        """An access; its site, which is a new one unless one is given."""
        if site is None:
            self.site += 1
            site = self.site
        kept = np.broadcast_to(np.asarray(addresses, np.uint32), 32)
        self.registers[0].view(np.uint32)[:32] = kept
        given = np.broadcast_to(np.asarray(values, np.uint64), 32)
        bits = 8 * size // elements
        width = max(bits, 16)
        for register in self.registers[1 : 1 + elements]:
            register.view(f"u{width // 8}")[:32] = given.astype(f"u{width // 8}")
        routine = shared_memory.watched(
            AccessForm("shared", bits, width, elements, False, 32), kind
        )
        read = elements if kind.endswith("write") else 0
        call = function(routine, "ppplii" + "p" * read)
        places = [each.ctypes.data for each in self.registers]
        call(
            self.at(warp),
            self.block.ctypes.data,
            places[0],
            0,
            lanes,
            site,
            *places[1 : 1 + read],
        )
        if "write" in kind:
            for lane in range(32):
                if lanes >> lane & 1 and kept[lane] + size <= self.bytes.size:
                    data = np.tile(
                        given[lane : lane + 1].astype(f"u{bits // 8}"), elements
                    )
                    where = int(kept[lane])
                    self.bytes[where : where + size] = data.view(np.uint8)
        return site

    def read(self, warp: int, addresses: Any, lanes: int = ALL, **more: Any) -> int:
        return self.access("read", warp, addresses, lanes, **more)

    def write(self, warp: int, addresses: Any, lanes: int = ALL, **more: Any) -> int:
        more.setdefault("values", np.arange(32) + 1000 * self.site + 7)
        return self.access("write", warp, addresses, lanes, **more)

    # ── meeting ─────────────────────────────────────────────────────────────

    def bar(
        self,
        warp: int,
        number: int = 0,
        count: int = 0,
        lanes: int = ALL,
        mode: str = "sync",
    ) -> int:
        """One turn at a barrier; the lanes that passed."""
        numbers, counts = self.registers[4], self.registers[5]
        numbers.view(np.uint32)[:32] = number
        counts.view(np.uint32)[:32] = count
        where, block = self.at(warp), self.block.ctypes.data
        before = function(barrier_clocks.BAR_BEFORE, "pppiii")
        how = barrier_clocks.MODES[mode]
        before(where, block, numbers.ctypes.data, lanes, how, 0)
        call = function(barriers.BARRIER[mode], "ppppiii", "i")
        passed = call(
            where, block, numbers.ctypes.data, counts.ctypes.data, 0, lanes, 0
        )
        if mode != "arrive":
            after = function(barrier_clocks.BAR_AFTER, "pppi")
            after(where, block, numbers.ctypes.data, passed)
        return int(passed) & ALL

    def sync(self, *warps: int, number: int = 0) -> None:
        """All these warps, or all of the block, meet at a barrier."""
        those = warps or tuple(range(self.warps))
        count = 32 * len(warps)
        for warp in those:
            self.bar(warp, number, count)
        for warp in those[:-1]:
            assert self.bar(warp, number, count) == self.live(warp)

    def warp_sync(self, warp: int, members: int = ALL, lanes: int = ALL) -> int:
        """One turn at ``bar.warp.sync``; the lanes that passed."""
        named = self.registers[4]
        named.view(np.uint32)[:32] = members
        where, block = self.at(warp), self.block.ctypes.data
        call = function(barriers.SYNC_WARP, "ppi", "i")
        passed = call(where, named.ctypes.data, lanes)
        function(barrier_clocks.WARP_SYNC, "ppi")(where, block, passed)
        return int(passed) & ALL

    def fence(self, warp: int, lanes: int = ALL) -> None:
        call = function(barrier_clocks.FENCE_ASYNC, "ppi")
        call(self.at(warp), self.block.ctypes.data, lanes)

    # ── results ─────────────────────────────────────────────────────────────

    def rules(self) -> set[str]:
        """The rules that were broken."""
        return {
            each.case.name.lower().replace("_", "-") for each in self.shared.found()
        }


def line(start: int = START, step: int = 4) -> Any:
    """An address for each lane."""
    return start + step * np.arange(32)
