"""The race detector of registers that a ``wgmma`` in flight reads or writes.

Between its issue and the ``wgmma.wait_group`` that covers it, a product owns its
registers.  Other instructions must not touch them:

- accumulators and A: undefined in PTX.  ptxas sees it and waits there;
- metadata: an H200 reads it while the product runs, and ptxas does not see it.

Before a product, ``wgmma.fence`` orders what other instructions wrote to its
accumulators and to A, and what they read of its accumulators.  It is not needed between
products of one shape that add to the same accumulators.

Compiled code keeps two bytes for each register: how it was used since the last fence,
and what it is for a product in flight.  Both are in the memory of the warp, after its
registers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.ptx import rules
from fragmenta.ptx.effects import in_order
from fragmenta.ptx.rules import ERROR, Rule
from fragmenta.races.probes.register_roles import (
    COMPUTED,
    MOVED,
    READ,
    REGISTER_BYTES,
    Role,
)
from fragmenta.simt.wgmma_operands import Located
from fragmenta.units.events import Event
from fragmenta.units.machine import Warp
from fragmenta.units.port import Step, Waited
from fragmenta.units.wgmma_forms import WARPS

WORDS = {
    Role.ACCUMULATOR: "an accumulator",
    Role.FRAGMENT: "a register of A",
    Role.METADATA: "the metadata",
}
SERIALISED = "undefined in PTX; ptxas serialises here (warning C7510 or C7517)"
_WGMMA = "wgmma.mma_async"
FENCED = "ptxas inserts it (C7519)"


class Used(NamedTuple):
    """The registers of a product: their places, and their bytes."""

    places: dict[int, Role]
    bytes: NDArray[np.int64]
    roles: NDArray[np.uint8]
    ordered: NDArray[np.int64]
    """The bytes of those that a fence is about."""
    sums: NDArray[np.int64]
    """The bytes of the accumulators."""


@lru_cache(maxsize=4096)
def used(of: Located) -> Used:
    """The registers of a product."""
    places = dict.fromkeys(of.d, Role.ACCUMULATOR)
    read = [(Role.FRAGMENT, each) for each in of.a]
    if of.metadata is not None:
        read.append((Role.METADATA, of.metadata))
    for role, each in read:
        if each.offset >= 0:
            places[each.offset] = places.get(each.offset, Role(0)) | role
    numbers = np.array(list(places), np.int64) // REGISTER_BYTES
    flags = np.array(list(places.values()), np.uint8)
    sums = numbers[flags & Role.ACCUMULATOR != 0]
    return Used(places, numbers, flags, numbers[flags & 3 != 0], sums)


class _Flight(NamedTuple):
    number: int
    of: Located
    site: int


@lru_cache(maxsize=4096)
def _collision(of: Located, other: Located) -> tuple[Role, Role] | None:
    """What a register is for two products of which one gives what the other takes.

    None if there is no such register.
    """
    before = used(other).places
    for place, role in used(of).places.items():
        theirs = before.get(place, Role(0))
        both = role | theirs
        shared = role & theirs & Role.ACCUMULATOR
        if not theirs or not both & Role.ACCUMULATOR:
            continue  # both only read it
        chain = shared and other.op.shape == of.op.shape and both == shared
        if in_order(_WGMMA, _WGMMA, was_write=True, accumulates=bool(chain)):
            continue
        return role, theirs
    return None


@lru_cache(maxsize=4096)
def _misfit(of: Located, other: Located) -> bool:
    """Whether a product takes the accumulators of another one in another way."""
    goals = set(other.d)
    if of.op.shape != other.op.shape and goals & set(of.d):
        return True
    return any(each.offset in goals for each in of.a)


class RegisterWatch:
    """The registers of all warps of a cluster; it takes some calls of the port."""

    def __init__(self, dirty: int) -> None:
        self._dirty = dirty
        self._keepers: dict[tuple[int, int], Keeper] = {}

    def _of(self, warp: Warp) -> Keeper:
        key = warp.block.rank, warp.number
        found = self._keepers.get(key)
        if found is None:
            found = self._keepers[key] = Keeper(warp, self._dirty)
        return found

    def begin(self) -> None:
        """A new cluster begins."""
        for each in self._keepers.values():
            each.reset()

    def touch(self, step: Step, product: Located | None = None) -> None:
        """A warp is about to issue a product; or it uses registers in flight."""
        if product is not None:
            self._of(step.warp).issued(product, step.event)
        else:
            self._of(step.warp).touched(step.event, step.lanes)

    def acquire(self, step: Step, waited: Waited) -> None:
        """A warp has waited for products."""
        warp = step.warp
        warpgroup = warp.block.warpgroups[warp.number // WARPS]
        self._of(warp).retired(warpgroup.retired(warp))

    def fence(self, step: Step) -> None:
        """A warp executed ``wgmma.fence``, or ``wgmma.commit_group``."""
        if "fence" in step.event.words:
            self._of(step.warp).fence()


class Keeper:
    """Knows the registers of one warp: what is in flight, and what was written."""

    def __init__(self, warp: Warp, dirty: int) -> None:
        """``dirty`` is where the bytes begin in the warp's memory; 0: there are none.

        First those of registers that were used, then those of registers in flight.
        """
        self._warp = warp
        size = dirty // REGISTER_BYTES
        memory = warp.memory
        if dirty:
            self._touched = memory[dirty : dirty + size]
            self._busy = memory[dirty + size : dirty + 2 * size]
        else:
            self._touched = np.zeros(memory.size // REGISTER_BYTES, np.uint8)
            self._busy = self._touched.copy()
        self.reset()

    def reset(self) -> None:
        """The warp begins anew; its memory is clear."""
        self._flights: list[_Flight] = []
        self._issued = 0
        self._fenced = self._recent = False
        self._since: dict[Located, int] = {}
        """The products since the last fence, and their sites."""

    def fence(self) -> None:
        """``wgmma.fence``."""
        self._fenced = self._recent = True
        self._touched[:] = 0
        self._since.clear()

    def retired(self, end: int) -> None:
        """The warp has waited for so many of its products."""
        self._recent = False
        if not self._flights or self._flights[0].number >= end:
            return
        self._flights = [each for each in self._flights if each.number >= end]
        self._busy[:] = 0
        for each in self._flights:
            self._mark(each.of)

    def issued(self, of: Located, event: Event) -> None:
        """The warp has issued a product."""
        mine = used(of)
        self._check_fence(of, mine, event)
        if self._flights and self._busy[mine.bytes].any():
            self._check_flights(of, mine, event)
        self._flights.append(_Flight(self._issued, of, event.site))
        self._issued += 1
        self._mark(of)
        # Until the next fence, only this shape may go on with these accumulators.
        self._since[of] = event.site

    def _mark(self, of: Located) -> None:
        mine = used(of)
        self._busy[mine.bytes] |= mine.roles

    # ── rules ───────────────────────────────────────────────────────────────

    def _check_fence(self, of: Located, mine: Used, event: Event) -> None:
        if not self._fenced:
            self._fenced = True  # once is enough
            self._report(
                rules.MISSING_WGMMA_FENCE,
                event,
                None,
                f"there is no wgmma.fence before the first wgmma of a warp; {FENCED}",
            )
        elif done := self._changed(mine):
            self._report(
                rules.MISSING_WGMMA_FENCE,
                event,
                None,
                f"registers of this wgmma were {done} after the last wgmma.fence; "
                + FENCED,
            )
        else:
            self._check_shapes(of, event)
        self._touched[mine.ordered] = 0

    def _changed(self, mine: Used) -> str:
        """What was done to registers without a fence after it, if anything.

        Compilers set accumulators to zero between the fence and the product: moves
        count only if there was no fence since the last wait.  So do reads.
        """
        done = self._touched[mine.ordered]
        if (done & COMPUTED).any() or ((done & MOVED).any() and not self._recent):
            return "written"
        read = not self._recent and (self._touched[mine.sums] & READ).any()
        return "read" if read else ""

    def _check_shapes(self, of: Located, event: Event) -> None:
        """Accumulators of another shape, or taken as A, need a fence, too."""
        for other, site in self._since.items():
            if _misfit(of, other):
                self._report(
                    rules.MISSING_WGMMA_FENCE,
                    event,
                    site,
                    "this wgmma takes accumulators of a wgmma of another shape, or as "
                    f"its A, without a wgmma.fence between; {FENCED}",
                )
                return

    def _check_flights(self, of: Located, mine: Used, event: Event) -> None:
        """Products in flight that give or take what this one takes or gives."""
        for each in self._flights:
            found = _collision(of, each.of)
            if found is not None:
                role, theirs = found
                self._report(
                    rules.WGMMA_REGISTERS_IN_FLIGHT,
                    event,
                    each.site,
                    f"this wgmma takes {_words(role)} that is {_words(theirs)} of a "
                    f"wgmma in flight: {SERIALISED}",
                )
                return

    def touched(self, event: Event, lanes: int) -> None:
        """Another instruction read or wrote registers that are in flight."""
        reads, writes = ({each.place for each in part.items} for part in event.operands)
        for each in self._flights:
            mine = used(each.of).places
            for place in sorted(reads | writes):
                role = mine.get(place, Role(0))
                if place not in writes:
                    role &= ~Role.METADATA  # to read it does no harm
                if role:
                    self._report_touch(event, lanes, each, role, place in writes)
                    break

    def _report_touch(
        self, event: Event, lanes: int, flight: _Flight, role: Role, written: bool
    ) -> None:
        verb = "writes" if written else "reads"
        what = f"this instruction {verb} {_words(role)} of a wgmma that is in flight"
        if role & Role.METADATA:
            self._report(
                rules.WGMMA_REGISTERS_IN_FLIGHT,
                event,
                flight.site,
                f"{what}: the hardware reads it while the wgmma runs, so its results "
                "are wrong",
                ERROR,
                lanes,
            )
        else:
            self._report(
                rules.WGMMA_REGISTERS_IN_FLIGHT,
                event,
                flight.site,
                f"{what}: {SERIALISED}",
                lanes=lanes,
            )

    def _report(
        self,
        rule: Rule,
        event: Event,
        other: int | None,
        message: str,
        severity: str = "",
        lanes: int = 0xFFFFFFFF,
    ) -> None:
        self._warp.report(rule, event, lanes, message, severity, other=other)


def _words(role: Role) -> str:
    return next(words for each, words in WORDS.items() if role & each)
