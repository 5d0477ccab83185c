"""The events of a launch in memory, as fast paths read them."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np

from fragmenta.base.arrays.once import once
from fragmenta.engine.simt.compiled import address_of, aligned
from fragmenta.engine.simt.loaded import RoutinesOnDemand
from fragmenta.engine.units.events import Event, EventOperand
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.records import Record

if TYPE_CHECKING:
    from fragmenta.engine.units.fast.handlers import Handler


@once
def code() -> RoutinesOnDemand:
    """The machine code of the fast paths."""
    # Tracing takes a while to import.
    from fragmenta.engine.units.fast.dispatch import DISPATCH
    from fragmenta.engine.units.fast.handlers import ROUTINES

    return RoutinesOnDemand([DISPATCH, *ROUTINES])


_HANDLER = ctypes.CFUNCTYPE(ctypes.c_uint32, *3 * (ctypes.c_void_p,), ctypes.c_uint32)
"""The type of a fast path."""
_KINDS = {
    "_": layout.NOTHING,
    "i": layout.CONSTANT,
    "s": layout.CONSTANT,
    "r": layout.REGISTER,
    "p": layout.PREDICATE,
}


def calls(events: Sequence[Event]) -> frozenset[int]:
    """The functions of an observer that the fast paths of events call, by slot."""
    from fragmenta.engine.units.fast.handlers import handler

    every = (handler(each.words, len(each.operands)) for each in events)
    return frozenset(slot for found in every if found for slot in found.calls)


class EventTable:
    """The records of all events of a launch.

    ``observed`` are the functions that the observer has in machine code; None if
    nobody observes.  Instructions that need others are left to Python.  If they are
    ``traced``, so are those that do not tell a recorder what they do.
    """

    def __init__(
        self,
        events: Sequence[Event],
        observed: Collection[int] | None = None,
        traced: bool = False,
    ) -> None:
        self.memory = aligned(max(1, len(events)) * layout.EVENT_BYTES)
        self.records = self.memory.reshape(-1, layout.EVENT_BYTES)
        self.address = address_of(self.memory)
        self._write(events, observed, traced)

    def _write(
        self, events: Sequence[Event], observed: Collection[int] | None, traced: bool
    ) -> None:
        from fragmenta.engine.units.fast.dispatch import DISPATCH
        from fragmenta.engine.units.fast.handlers import handler

        words = self.records.view(np.int32)[: len(events)]
        words[:, layout.EVENT_NUMBER >> 2] = [each.number for each in events]
        words[:, layout.EVENT_SITE >> 2] = [each.site for each in events]
        there = None if observed is None else {*observed}
        fast: list[tuple[Event, Record, Handler]] = []
        for event, record in zip(events, self.records, strict=False):
            found = handler(event.words, len(event.operands))
            if found is None or (traced and not found.noted):
                continue
            if there is None or there.issuperset(found.calls):
                fast.append((event, Record(record), found))
        code().load([DISPATCH, *(found.routine for _, _, found in fast)])
        self.dispatch = code().address(DISPATCH)
        for each in fast:
            _write(*each)

    def call(self, event: Event, block: int, warp: int, lanes: int) -> int | None:
        """Carry out an event in its fast path; None if it has none."""
        record = Record(self.records[event.number])
        where = int(record.longs[layout.EVENT_HANDLER >> 3])
        if not where:
            return None
        found: int = _HANDLER(where)(block, warp, record.address, lanes)
        return found

    def know_form(self, number: int, form: int) -> None:
        """Note where there is more about an event; the first note stays."""
        place = self.records[number].view(np.int64)[layout.EVENT_FORM >> 3 :][:1]
        if not place[0]:
            place[0] = form


def _write(event: Event, record: Record, found: Handler) -> None:
    given = [_chosen(event, each) for each in found.order]
    for number, operand in enumerate(given):
        start = layout.EVENT_OPERANDS + number * layout.OPERAND_BYTES
        part = Record(record.raw[start : start + layout.OPERAND_BYTES])
        if operand is not None and not _operand(operand, part):
            return
    record.words[layout.EVENT_FLAGS >> 2] = found.flags
    record.words[layout.EVENT_COUNT >> 2] = len(given)
    record.longs[layout.EVENT_HANDLER >> 3] = code().address(found.routine)


def _chosen(event: Event, place: int | tuple[int, ...]) -> EventOperand | None:
    """The operand that a fast path reads, or an item of one; None if it reads none."""
    first, *rest = (place,) if isinstance(place, int) else place
    if first < 0:
        return None
    found = event.operands[first]
    for each in rest:
        if each < len(found.items):
            found = found.items[each]
        elif each or found.kind == "v":  # one number needs no braces
            return EventOperand("?")
    return found


def _operand(operand: EventOperand, record: Record) -> bool:
    """Describe an operand; whether a fast path can read it."""
    base, added = operand, 0
    if operand.kind == "a":
        (base,), added = operand.base, operand.place
        record.words[layout.OPERAND_WRAPS >> 2] = base.bits == 32
    if base.kind not in _KINDS:
        return False
    record.words[layout.OPERAND_KIND >> 2] = _KINDS[base.kind]
    record.words[layout.OPERAND_BITS >> 2] = base.bits
    record.longs[layout.OPERAND_PLACE >> 3] = np.uint64(
        base.place & (1 << 64) - 1
    ).astype(np.int64)
    record.longs[layout.OPERAND_ADDED >> 3] = added
    record.words[layout.OPERAND_RANKED >> 2] = base.kind == "s"
    return True
