"""The race detector of registers that a ``tcgen05.ld`` in flight fills.

Between ``tcgen05.ld`` and the ``tcgen05.wait::ld`` of its warp, the registers of its
result are in flight.  This is checked only with ``watch="strict"``: ptxas waits for the
registers wherever they are used, and Triton's kernels depend on that.  Compiled code
reads a byte for each register, as for those of ``wgmma``: see :mod:`register_watch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fragmenta.engine.simt.layout import IN_FLIGHT
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Event, EventOperand
from fragmenta.ptx import rules
from fragmenta.watch.races.probes.register_roles import REGISTER_BYTES, Role


class _Flight(NamedTuple):
    site: int
    places: frozenset[int]


def _results(operands: Sequence[EventOperand]) -> frozenset[int]:
    """Where the registers are that a load fills: operands before the address."""
    found: set[int] = set()
    for each in operands:
        if each.kind == "a":
            break
        found |= {one.place for one in each.items or (each,) if one.kind == "r"}
    return frozenset(found)


class LoadedRegisters:
    """The registers of all warps of a cluster that loads in flight fill."""

    def __init__(self, dirty: int) -> None:
        """``dirty`` is where the bytes begin in a warp's memory; 0: there are none."""
        self._dirty = dirty
        self._flights: dict[tuple[int, int], list[_Flight]] = {}

    def begin(self) -> None:
        """A new cluster begins; the memory of its warps is clear."""
        self._flights.clear()

    def loads(self, warp: Warp, event: Event) -> None:
        """A warp has issued a load."""
        if not self._dirty:
            return
        made = _Flight(event.site, _results(event.operands))
        self._flights.setdefault((warp.block.rank, warp.number), []).append(made)
        for each in made.places:
            warp.memory[self._byte(each)] |= int(Role.LOADED)
        warp.words[IN_FLIGHT >> 2] += 1

    def waited(self, warp: Warp) -> None:
        """A warp has executed ``tcgen05.wait::ld``."""
        flights = self._flights.pop((warp.block.rank, warp.number), [])
        for flight in flights:
            for each in flight.places:
                warp.memory[self._byte(each)] &= 0xFF ^ int(Role.LOADED)
        if flights:
            warp.words[IN_FLIGHT >> 2] -= len(flights)

    def touched(self, warp: Warp, event: Event, lanes: int) -> None:
        """An instruction touches registers that are in flight."""
        reads, writes = ({each.place for each in part.items} for part in event.operands)
        for flight in self._flights.get((warp.block.rank, warp.number), ()):
            if flight.places & (reads | writes):
                verb = "reads" if flight.places & reads else "writes"
                warp.report(
                    rules.TENSOR_REGISTERS_IN_FLIGHT,
                    event,
                    lanes,
                    f"this instruction {verb} a register that a tcgen05.ld in flight "
                    "fills: undefined in PTX; ptxas waits here",
                    other=flight.site,
                )
                return

    def _byte(self, place: int) -> int:
        return self._dirty + (self._dirty + place) // REGISTER_BYTES
