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

from fragmenta.base.arrays.forking import Lock
from fragmenta.engine.simt.compiled import address_of, aligned, zeros
from fragmenta.engine.simt.wgmma_operands import Located
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.events import Described, Event, once_per_kernel
from fragmenta.engine.units.port import Step, Waited
from fragmenta.engine.units.records import Bytes, Flag, Record, Word
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.warpgroups import Wgmma
from fragmenta.engine.units.wgmma_forms import WARPS
from fragmenta.ptx import rules
from fragmenta.ptx.effects import in_order
from fragmenta.ptx.rules import ERROR, Rule
from fragmenta.watch.races.probes.register_roles import REGISTER_BYTES, Role
from fragmenta.watch.races.product_units import KnownUnits
from fragmenta.watch.races.shadow import product_layout as layout
from fragmenta.watch.races.shadow.product_layout import COMPUTED, MOVED, READ

WORDS = {
    Role.ACCUMULATOR: "an accumulator",
    Role.FRAGMENT: "a register of A",
    Role.METADATA: "the metadata",
}
SERIALISED = "undefined in PTX; ptxas serialises here (warning C7510 or C7517)"
_ROOM = 64
"""For so many products there is memory at first."""
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


class RegisterUse(Record):
    """An instruction of a kernel: its registers, and what it may follow."""

    def __init__(self, of: Located, number: int) -> None:
        super().__init__(aligned(layout.USE_BYTES))
        self.of, self.number, self.used = of, number, used(of)
        mine = self.used
        self.fits, self.apart = np.zeros((2, layout.MOST_USES), np.uint8)
        """FINE for uses that it was compared with; see ``USE_FITS``, ``USE_APART``."""
        self._kept = [
            each.astype(np.int32) for each in (mine.bytes, mine.ordered, mine.sums)
        ]
        self.words[layout.USE_NUMBER >> 2] = number
        for offset, each in zip(
            (layout.USE_COUNT, layout.USE_ORDERED_COUNT, layout.USE_SUMS_COUNT),
            self._kept,
            strict=True,
        ):
            self.words[offset >> 2] = each.size
        for offset, part in (
            (layout.USE_PLACES, self._kept[0]),
            (layout.USE_ROLES, mine.roles),
            (layout.USE_ORDERED, self._kept[1]),
            (layout.USE_SUMS, self._kept[2]),
            (layout.USE_FITS, self.fits),
            (layout.USE_APART, self.apart),
        ):
            self.longs[offset >> 3] = address_of(part)

    def misfits(self, other: RegisterUse) -> bool:
        """Whether it takes the accumulators of another one in another way."""
        found = _misfit(self.of, other.of)
        if not found and other.number < layout.MOST_USES:
            self.fits[other.number] = layout.FINE
        return found

    def collides(self, other: RegisterUse) -> tuple[Role, Role] | None:
        """What a register is for it and for another one in flight, if that is wrong."""
        found = _collision(self.of, other.of)
        if found is None and other.number < layout.MOST_USES:
            self.apart[other.number] = layout.FINE
        return found


class RegisterUses:
    """The instructions of a kernel that issue products, numbered as they are used."""

    def __init__(self, most: int) -> None:
        self._lock = Lock()
        self._made: dict[Located, RegisterUse] = {}
        self.all: list[RegisterUse] = []
        self.pointers = np.zeros(most + 1, np.int64)
        self.units = KnownUnits()
        """The units of shared memory that their descriptors name."""

    def of(self, located: Located) -> RegisterUse:
        """The use of an instruction."""
        found = self._made.get(located)
        if found is None:
            with self._lock:
                found = self._made.get(located)
                if found is None:
                    found = RegisterUse(located, len(self.all))
                    self.all.append(found)
                    self.pointers[found.number] = found.address
                    self._made[located] = found
        return found


@once_per_kernel
def register_uses(compiled: Described) -> RegisterUses:
    """The instructions of a kernel that issue products, as all its launches know them.

    Forms of products point to them, which launches share, too.
    """
    return RegisterUses(len(compiled.events))


class _Flight(NamedTuple):
    number: int
    of: RegisterUse
    site: int


@lru_cache(maxsize=4096)
def _collision(of: Located, other: Located) -> tuple[Role, Role] | None:
    """What a register is for two products of which one gives what the other takes.

    None if there is no such register.
    """
    before, wgmma = used(other).places, Wgmma.effect.instruction
    for place, role in used(of).places.items():
        theirs = before.get(place, Role(0))
        both = role | theirs
        shared = role & theirs & Role.ACCUMULATOR
        if not theirs or not both & Role.ACCUMULATOR:
            continue  # both only read it
        chain = shared and other.op.shape == of.op.shape and both == shared
        if in_order(wgmma, wgmma, was_write=True, accumulates=bool(chain)):
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

    def __init__(
        self, dirty: int, uses: RegisterUses | None = None, warps: int = 64
    ) -> None:
        self._dirty = dirty
        self._uses = RegisterUses(1 << 16) if uses is None else uses
        self._keepers: dict[tuple[int, int], Keeper] = {}
        self._records: dict[int, Bytes] = {}
        self._pairs: dict[int, NDArray[np.int32]] = {}
        """Memory for the products of each warp of a block, by rank."""
        self._warps = warps

    def records(self, rank: int) -> Bytes:
        """The records of the keepers of a block."""
        if rank not in self._records:
            self._records[rank] = aligned(self._warps * layout.KEEPER_BYTES)
            self._pairs[rank] = zeros((self._warps, 2, _ROOM, 2), np.int32)
        return self._records[rank]

    def prepare(self, warp: Warp) -> None:
        """Make the keeper of a warp, so that compiled code finds it."""
        self._of(warp)

    def _of(self, warp: Warp) -> Keeper:
        key = rank, number = warp.block.rank, warp.number
        found = self._keepers.get(key)
        if found is None:
            memory = self.records(rank)[number * layout.KEEPER_BYTES :]
            memory = memory[: layout.KEEPER_BYTES]
            pairs = self._pairs[rank][number]
            found = Keeper(warp, self._dirty, self._uses, memory, pairs)
            self._keepers[key] = found
        return found

    def begin(self) -> None:
        """A new cluster begins."""
        for each in self._keepers.values():
            each.reset()

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what :meth:`begin` does."""
        for each in self._keepers.values():
            each.renewed(resets)

    def touch(self, step: Step, product: Located | None = None) -> None:
        """A warp is about to issue a product; or it uses registers in flight."""
        if product is not None:
            self._of(step.warp).issued(self._uses.of(product), step.event)
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


class Keeper(Record):
    """Knows the registers of one warp: what is in flight, and what was written."""

    _fenced = Flag(layout.KEEPER_FENCED)
    _recent = Flag(layout.KEEPER_RECENT)
    _issued = Word(layout.KEEPER_ISSUED)
    _first = Word(layout.KEEPER_FIRST)
    _count = Word(layout.KEEPER_SINCE_COUNT)
    _capacity = Word(layout.KEEPER_CAPACITY)

    def __init__(
        self,
        warp: Warp,
        dirty: int,
        uses: RegisterUses,
        memory: Bytes,
        pairs: NDArray[np.int32],
    ) -> None:
        """``dirty`` is where the bytes begin in the warp's memory; 0: there are none.

        First those of registers that were used, then those of registers in flight.
        """
        super().__init__(memory)
        self._warp, self._uses, self._dirty = warp, uses, dirty
        size = (dirty or warp.memory.size) // REGISTER_BYTES
        if dirty:
            both = warp.memory[dirty : dirty + 2 * size].reshape(2, size)
        else:
            both = zeros((2, size), np.uint8)
        self._touched, self._busy = both
        self.longs[layout.KEEPER_TOUCHED >> 3] = address_of(self._touched)
        self.longs[layout.KEEPER_BUSY >> 3] = address_of(self._busy)
        self.longs[layout.KEEPER_SIZE >> 3] = size
        self._have_room(pairs)
        self.reset()

    def _make_room(self, capacity: int) -> None:
        """Have memory for so many products in flight, and since the last fence."""
        pairs = np.zeros((2, capacity, 2), np.int32)
        old = self._capacity
        for number in range(self._first, self._issued):
            pairs[0, number % capacity] = self._pairs[0, number % old]
        pairs[1, : self._count] = self._pairs[1, : self._count]
        self._have_room(pairs)

    def _have_room(self, pairs: NDArray[np.int32]) -> None:
        self._pairs, self._capacity = pairs, pairs.shape[1]
        self.longs[layout.KEEPER_FLIGHTS >> 3] = address_of(pairs[0])
        self.longs[layout.KEEPER_SINCE >> 3] = address_of(pairs[1])

    def reset(self) -> None:
        """The warp begins anew; its memory is clear."""
        self._issued = self._first = self._count = 0
        self._fenced = self._recent = False
        if not self._dirty:
            self._busy[:] = self._touched[:] = 0

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what :meth:`reset` does."""
        resets.clear(self.words[: layout.KEEPER_CAPACITY >> 2])
        if not self._dirty:
            resets.clear(self._busy, self._touched)

    @property
    def _flights(self) -> list[_Flight]:
        """The products in flight."""
        numbers = range(self._first, self._issued)
        pairs = [self._pairs[0, each % self._capacity].tolist() for each in numbers]
        every = self._uses.all
        return [
            _Flight(number, every[use], site)
            for number, (use, site) in zip(numbers, pairs, strict=True)
        ]

    @property
    def _since(self) -> list[tuple[RegisterUse, int]]:
        """The products since the last fence, and their sites."""
        pairs = self._pairs[1, : self._count].tolist()
        return [(self._uses.all[use], site) for use, site in pairs]

    def fence(self) -> None:
        """``wgmma.fence``."""
        self._fenced = self._recent = True
        self._touched[:] = 0
        self._count = 0

    def retired(self, end: int) -> None:
        """The warp has waited for so many of its products."""
        self._recent = False
        if self._first >= min(self._issued, end):
            return
        self._first = min(self._issued, end)
        self._busy[:] = 0
        for each in self._flights:
            self._mark(each.of)

    def issued(self, use: RegisterUse, event: Event) -> None:
        """The warp has issued a product."""
        self._check_fence(use, event)
        if self._first < self._issued and self._busy[use.used.bytes].any():
            self._check_flights(use, event)
        full = self._issued - self._first, self._count
        if max(full) >= self._capacity:
            self._make_room(2 * self._capacity)
        self._pairs[0, self._issued % self._capacity] = use.number, event.site
        self._issued += 1
        self._mark(use)
        # Until the next fence, only this shape may go on with these accumulators.
        known = self._pairs[1, : self._count, 0].tolist()
        place = known.index(use.number) if use.number in known else len(known)
        self._pairs[1, place] = use.number, event.site
        self._count = max(self._count, place + 1)

    def _mark(self, use: RegisterUse) -> None:
        self._busy[use.used.bytes] |= use.used.roles

    # ── rules ───────────────────────────────────────────────────────────────

    def _check_fence(self, use: RegisterUse, event: Event) -> None:
        mine = use.used
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
            self._check_shapes(use, event)
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

    def _check_shapes(self, use: RegisterUse, event: Event) -> None:
        """Accumulators of another shape, or taken as A, need a fence, too."""
        for other, site in self._since:
            if use.misfits(other):
                self._report(
                    rules.MISSING_WGMMA_FENCE,
                    event,
                    site,
                    "this wgmma takes accumulators of a wgmma of another shape, or as "
                    f"its A, without a wgmma.fence between; {FENCED}",
                )
                return

    def _check_flights(self, use: RegisterUse, event: Event) -> None:
        """Products in flight that give or take what this one takes or gives."""
        for each in self._flights:
            found = use.collides(each.of)
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
            mine = each.of.used.places
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
