"""The observer of a cluster's barrier in machine code.

:mod:`fragmenta.watch.races.cluster_clocks` is the half of this in Python.
"""

from __future__ import annotations

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Memory, Value, select
from fragmenta.engine.simt.library import POINTER, field
from fragmenta.engine.units.fast import layout as units
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.observing import Seen, observing, publish_at
from fragmenta.watch.races.shadow.order import acquire


class _Phases:
    """The clocks of the barrier."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen
        self._record: Raw = seen.head.pointer(layout.HEAD_PHASES)
        self.numbers = field(seen.code, self._record, layout.PHASES_NUMBERS, I64)
        self.known = field(seen.code, self._record, layout.PHASES_KNOWN, I32)

    def row(self, place: Value) -> Memory:
        """The clock at a place."""
        seen, b = self._seen, self._seen.code.builder
        rows = field(seen.code, self._record, layout.PHASES_ROWS, I32)
        start = place * seen.head.row_words()
        return Memory(b, b.gep(rows.raw, [start.raw]), I32)

    def known_at(self, place: Value) -> Memory:
        """Whether the clock at a place holds anything."""
        b = self._seen.code.builder
        return Memory(b, b.gep(self.known.raw, [place.raw]), I32)

    def forget(self, before: Value) -> None:
        """Forget the clocks of phases before one."""
        for each in range(layout.PHASES):
            old = self.numbers[each] < before
            self.known[each] = select(old, self.known[each].lift(0), self.known[each])

    def pass_mbarriers(self) -> None:
        """All blocks know of the mbarriers that were fenced."""
        code = self._seen.code
        count = field(code, self._record, layout.PHASES_FENCED_COUNT, I64)
        first = field(code, self._record, layout.PHASES_FENCED, POINTER)[0].raw
        fenced = field(code, first, 0, POINTER)
        with code.loop(count[0]) as number:
            record = fenced[number].raw
            flags = field(code, record, units.MBARRIER_FLAGS, I32)
            alive = field(code, record, units.MBARRIER_ALIVE, I32)[0] != 0
            good = alive & ((flags[0] & units.FENCED) != 0)
            flags[0] = flags[0] | select(good, flags[0].lift(units.PUBLIC), 0)
        count[0] = count[0].lift(0)


def _arrive(seen: Seen) -> None:
    """Lanes arrive at the barrier of the cluster."""
    code, phase = seen.code, seen.number
    seen.note("cluster arrive", seen.lanes, phase)
    phases, place = _Phases(seen), phase & (layout.PHASES - 1)
    known = phases.known_at(place)
    with code.when(phases.numbers[place] != phase):
        phases.numbers[place] = phase
        known[0] = seen.lanes.lift(0)
    publish_at(seen, phases.row(place), known)


def _pass(seen: Seen) -> None:
    """Lanes have passed the barrier of the cluster."""
    code, phase = seen.code, seen.number
    seen.note("cluster wait", seen.lanes, phase)
    phases, place = _Phases(seen), phase & (layout.PHASES - 1)
    phases.forget(phase - 1)
    same = phases.numbers[place] == phase
    with code.when(same & (phases.known[place] != 0)):
        acquire(seen.clocks, seen.lanes, seen.live, phases.row(place))
    phases.pass_mbarriers()


ROUTINES = {
    units.PORT_ARRIVE: observing("watch.port.arrive", _arrive),
    units.PORT_PASS: observing("watch.port.pass", _pass),
}
"""What answers the calls of the port."""
