"""Asynchronous stores and additions to global memory that release.

They are done at some time after their issue, and nothing tells the thread when.  A
thread that acquires the value knows what the issuing one knew at the issue.
"""

from __future__ import annotations

from fragmenta.engine.simt.atomics import note_of
from fragmenta.engine.simt.layout import PLAIN, SHARED_SLOT, SLOT_BITS, Fault
from fragmenta.engine.units.blocks import Thread, Warp
from fragmenta.engine.units.bulk_copies import AsyncStore
from fragmenta.engine.units.copy_events import issue
from fragmenta.engine.units.events import Event, carries_out, numbers
from fragmenta.engine.units.faults import CopyFault, Stop, WrongAddress, stopped
from fragmenta.engine.units.work import Copy, QueueSlot, Region, in_global
from fragmenta.errors import OutOfBounds
from fragmenta.ptx import rules
from fragmenta.ptx.effects import LINES, find
from fragmenta.ptx.module import type_bytes
from fragmenta.ptx.ordering import Role, scope
from fragmenta.reference.isa.target import expand

_TARGETS = frozenset(expand("sm_100+"))
_NAMES = tuple(each.instruction for each in LINES if each.done_by == "release")


class AsyncRelease(AsyncStore):
    """``st.async`` and ``red.async`` with ``.release``: from a register."""

    def __init__(self, warp: Warp, event: Event, lane: int) -> None:
        address, value = (each.value(warp, lane) for each in event.operands)
        Copy.__init__(self, warp.block, Thread(warp, lane), event.site)
        found = find(event.mnemonic)
        assert found is not None  # it is one of the lines
        self.effect, self.name, self.kind = found, found.instruction, event.words[-1]
        self.operation = event.words[-2] if self.combines else None
        self.bytes = type_bytes(self.kind)
        self._goal = self._at(address)
        self._data = self._bytes([value])
        self._epoch = warp.block.cluster.ordinal
        level = scope(event.words)
        self.role = Role(False, True, True, replaces=not self.combines, scope=level)

    def _at(self, address: int) -> Region:
        """The word at an address."""
        what, lanes = f"the goal of {self.name}", 1 << self.thread.lane
        if address >> SLOT_BITS == SHARED_SLOT:
            message = f"{what} must be in global memory; given {address:#x}, in shared"
            raise CopyFault(rules.OUT_OF_BOUNDS, message)
        if address % self.bytes:
            raise WrongAddress(Fault.ALIGNMENT, address, self.bytes, lanes)
        try:
            return in_global(self.block, address, self.bytes, what, writes=True)
        except OutOfBounds as error:
            raise WrongAddress(Fault.BOUNDS, address, self.bytes, lanes) from error

    @property
    def slot(self) -> QueueSlot:
        """Its place among the work of its warp."""
        warp, lane = self.thread
        return QueueSlot("released", warp.block.rank, warp.number, lane, self._epoch)

    @property
    def noted(self) -> int:
        """The note of what it writes to global memory."""
        return PLAIN if self.operation is None else note_of(self.operation, self.kind)

    def poison(self) -> None:
        """Leave what is there: threads that poll it see the old value or the new."""


@carries_out(*_NAMES)
def release(warp: Warp, event: Event, lanes: int) -> int:
    """A store or an addition by each lane."""
    target = warp.block.cluster.machine.launch.target
    if target not in _TARGETS:
        why = f"{target} does not have {event.mnemonic}; it needs sm_100 or later"
        raise Stop(rules.TARGET, event.site, warp, lanes, why)
    for lane in numbers(lanes):
        try:
            work = AsyncRelease(warp, event, lane)
        except CopyFault as error:
            raise stopped(error, event, warp, 1 << lane) from error
        issue(warp, event, 1 << lane, work)
    return lanes
