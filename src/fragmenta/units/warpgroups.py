"""Warpgroups: four warps, and the products that their Tensor Cores run.

A warpgroup is four warps.  Each of them issues every ``wgmma.mma_async``, in the same
order, but not at the same time.  A product can run when all four have issued it, and
products run in the order in which they were issued.  A warp that waits for a group goes
on when the products of that group, and all before them, have run.

A schedule may run a product as soon as it can be run, or late.  A warpgroup that is
late hides D: from the moment a warp issues a product until it has run, the warp's
registers of D hold ``POISON``.  Their true values are kept aside.
A, metadata and shared memory are read when the product runs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.once import once
from fragmenta.errors import BadCall, Error
from fragmenta.execution.warpgroup import WarpgroupFunction, warpgroup_function
from fragmenta.ptx import rules
from fragmenta.ptx.effects import effect
from fragmenta.ptx.rules import Rule
from fragmenta.simt.layout import IN_FLIGHT, LANES, POISON
from fragmenta.simt.naming import illegal_code
from fragmenta.simt.wgmma_operands import Located, Source
from fragmenta.units.wgmma_sources import bad_descriptor, owners, units
from fragmenta.units.work import Work

WARPS = 4
ALL = 0xFFFFFFFF
_LINE = 16
"""Words of 64 bytes: registers of a warp begin at multiples of that."""
_ILLEGAL = 1
"""What a product returns if a code of the metadata is illegal."""


class Warp(Protocol):
    """A warp, as far as a warpgroup needs it."""

    number: int
    memory: NDArray[np.uint8]


class WgmmaError(Error):
    """A wrong use of ``wgmma``, which ends the kernel."""

    def __init__(self, rule: Rule, message: str, site: int) -> None:
        super().__init__(rule, message, site)  # all of them, for pickling
        self.rule = rule
        self.message = message
        self.site = site

    def __str__(self) -> str:
        return self.message


# ── registers ───────────────────────────────────────────────────────────────


class Registers:
    """Some registers of 32 bits of one warp."""

    def __init__(self, words: NDArray[np.uint32], offsets: Sequence[int]) -> None:
        self.offsets = tuple(offsets)
        places = np.array(offsets, np.int64) // 4
        self._shape = len(offsets), LANES
        first = int(places[0])
        #: A view of them, if one follows the other.
        self._view: NDArray[np.uint32] | None = None
        if (np.diff(places) == LANES).all():
            self._view = words[first : first + places.size * LANES].reshape(self._shape)
        self._lines = words.reshape(-1, _LINE)
        self._places = (places // _LINE)[:, None] + np.arange(LANES // _LINE)

    def get(self, goal: NDArray[np.uint32]) -> None:
        """Copy their values, (registers, lanes)."""
        if self._view is not None:
            goal[...] = self._view
        else:
            goal[...] = self._lines[self._places].reshape(self._shape)

    def put(self, values: NDArray[np.uint32]) -> None:
        """Set them."""
        if self._view is not None:
            self._view[...] = values
        else:
            self._lines[self._places] = values.reshape((*self._places.shape, _LINE))

    def fill(self, value: int) -> None:
        """Set them all to one value."""
        if self._view is not None:
            self._view.fill(value)
        else:
            self._lines[self._places] = value


class Bundle:
    """The registers of D of some products, with their values in all four warps."""

    def __init__(
        self, offsets: tuple[int, ...], words: list[NDArray[np.uint32]]
    ) -> None:
        self.offsets = offsets
        self.values = np.zeros((len(offsets), WARPS * LANES), np.uint32)
        self.parts = [
            self.values[:, LANES * warp : LANES * (warp + 1)] for warp in range(WARPS)
        ]
        self.registers = [Registers(each, offsets) for each in words]
        self.pending = [0] * WARPS
        """Products that each warp has issued and that have not run."""


class Bound:
    """An instruction in one warpgroup, with its registers and its compiled function."""

    def __init__(self, of: Warpgroup, located: Located, bundle: Bundle) -> None:
        self.located = located
        self.bundle = bundle
        read = (*located.a, *([located.metadata] if located.metadata else ()))
        inputs = np.zeros((max(len(read), 1), WARPS * LANES), np.uint32)
        self.inputs = []
        """Registers of A and metadata, and where they are copied to."""
        for row, each in zip(inputs, read, strict=False):
            row[:] = each.constant & ALL
            for warp, words in enumerate(of.words if each.offset >= 0 else ()):
                goal = row[LANES * warp : LANES * (warp + 1)].reshape(1, LANES)
                self.inputs.append((goal, Registers(words, [each.offset])))
        self.metadata = inputs[len(located.a)] if located.metadata else inputs[0]
        """The words of all lanes, if it has metadata."""
        self.scalars = np.zeros(4, np.uint64)
        self.scalars[3] = located.selector
        self.given: tuple[int, ...] = ()
        self._function = _function(located, of.target)
        self._call = self._function.traced.compile()
        self._kept = inputs, of.shared  # as long as their addresses are used
        start, scalars = _address(inputs), _address(self.scalars)
        self._arguments = (
            _address(bundle.values),
            start,
            scalars,
            _address(of.shared),
            of.shared.size,
            start + inputs[: len(located.a)].nbytes,
            scalars + 16,
        )

    def multiply(self, given: tuple[int, ...]) -> int:
        """Add the product to the values of the bundle; 0 if that could be done."""
        for goal, register in self.inputs:
            register.get(goal)
        if given != self.given:
            *descriptors, self.scalars[2] = given
            self.scalars[: len(descriptors)] = descriptors
            self.given = given
        return int(self._call(*self._arguments))


@once
def _function(located: Located, target: str) -> WarpgroupFunction:
    ways = located.ways
    return warpgroup_function(
        located.op,
        target,
        a_from_registers=ways.a_from_registers,
        imm_scale_a=ways.imm_scale_a,
        imm_scale_b=ways.imm_scale_b,
        trans_a=ways.trans_a,
        trans_b=ways.trans_b,
    )


@lru_cache(maxsize=4096)
def _bad(located: Located, given: tuple[int, ...], size: int) -> str:
    """What is wrong with the descriptors."""
    ways = located.ways
    names = "B" if ways.a_from_registers else "AB"
    for name, word in zip(names, given, strict=False):
        trans = ways.trans_a if name == "A" else ways.trans_b
        wrong = bad_descriptor(located.op, name, word, trans, size)
        if wrong:
            return wrong
    return ""


# ── a product ───────────────────────────────────────────────────────────────


class Wgmma(Work):
    """One product of a warpgroup: work that is done later."""

    effect = effect("wgmma.mma_async")

    def __init__(
        self,
        of: Warpgroup,
        located: Located,
        site: int,
        given: tuple[int, ...],
        number: int,
        group: int,
    ) -> None:
        super().__init__(site)
        self._of = of
        self.located = located
        self.given = given
        """The descriptors, and whether the old D is added."""
        self.index = number
        """Its number among the products of the warpgroup."""
        self.group = group
        """The number of the group that the next commit makes."""
        self.issued = 0
        """How many warps have issued it."""
        self.failed: Callable[[WgmmaError], Error] | None = None
        """Makes the error that ends the kernel, once the work is in flight."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptor of A, if A is in shared memory, and that of B."""
        return self.given[:-1]

    @property
    def ready(self) -> bool:
        """Whether all four warps have issued it."""
        return self.issued == WARPS

    # D is hidden already: each warp's when that warp issued the product.  The operands
    # are read when the product runs, not before.

    def finish(self) -> None:
        """Run it, and all products before it; nothing if it has run."""
        try:
            self._of.run(self.index + 1)
        except WgmmaError as error:
            raise (error if self.failed is None else self.failed(error)) from error

    def write(self) -> None:
        """Run it."""
        self._of.run_next(self)

    def reads(self) -> list[tuple[str, NDArray[np.uint32], NDArray[np.uint8] | None]]:
        """What it reads from shared memory: the operand, the addresses of its units.

        Of A, the warp that reads each unit, too; all warps read B.
        """
        op, ways = self.located.op, self.located.ways
        *of_a, of_b = self.descriptors
        found: list[tuple[str, NDArray[np.uint32], NDArray[np.uint8] | None]] = []
        for word in of_a:
            there = units(op, "A", word, ways.trans_a)
            found.append(("A", there, owners(op, ways.trans_a)))
        return [*found, ("B", units(op, "B", of_b, ways.trans_b), None)]


class Warpgroup:
    """Four warps of a block, and the products that they have issued.

    ``late`` says whether D is hidden until a product has run.  Who schedules decides
    when products run, by :meth:`Wgmma.finish`; waiting runs those it waits for.
    """

    def __init__(
        self,
        warps: Sequence[Warp],
        shared: NDArray[np.uint8],
        target: str = "sm_90a",
        *,
        late: bool = False,
    ) -> None:
        self.warps = tuple(warps)
        self.target = target
        self.late = late
        self.shared = shared
        self.words = [warp.memory.view(np.uint32) for warp in warps]
        self._views = [warp.memory.data for warp in warps]
        self._counts = [words[IN_FLIGHT // 4 :] for words in self.words]
        self._bounds: dict[Located, Bound] = {}
        self._owners: dict[int, Bundle] = {}
        self.reset()

    def reset(self) -> None:
        """Begin another block."""
        self._queue: deque[Wgmma] = deque()
        self._ends: list[int] = []
        self._issued = [0] * WARPS
        self._committed = [0] * WARPS
        self._retired = [0] * WARPS
        self.ran = 0
        """Products that have run."""
        self.last_site = -1
        """The instruction that was issued last."""
        for bundle in self._owners.values():
            bundle.pending[:] = [0] * WARPS

    # ── what warps do ───────────────────────────────────────────────────────

    def issue(
        self, warp: Warp, located: Located, site: int, lanes: int = ALL
    ) -> Wgmma | None:
        """Issue the next product of a warp; return it, if all four have issued it."""
        own = self._own(warp, site, lanes)
        self.last_site = site
        given = self._given(own, located, site)
        number = self._issued[own]
        place = number - self.ran
        if place == len(self._queue):
            wrong = _bad(located, given, self.shared.size)
            if wrong:
                raise WgmmaError(rules.BAD_DESCRIPTOR, wrong, site)
            work = Wgmma(self, located, site, given, number, self._committed[own])
            self._queue.append(work)
        else:
            work = self._queue[place]
            if work.located is not located or work.given != given:
                self._refuse(work, own, located, given, site)
        if self.late:
            self._hide(own, self._bound(located, site).bundle)
        work.issued += 1
        self._issued[own] = number + 1
        self._counts[own][0] = number + 1 - self._retired[own]
        return work if work.issued == WARPS else None

    def commit(self, warp: Warp, site: int = -1) -> None:
        """Close the group of the products that a warp has issued."""
        own = self._own(warp, site)
        group, end = self._committed[own], self._issued[own]
        if group == len(self._ends):
            self._ends.append(end)
        elif self._ends[group] != end:
            raise WgmmaError(
                rules.DIVERGENT_ALIGNED,
                f"warp {warp.number} commits a group after {end} wgmma; another warp "
                f"of its warpgroup did so after {self._ends[group]}",
                site,
            )
        self._committed[own] = group + 1

    def wait(self, warp: Warp, n: int, site: int = -1) -> bool:
        """Whether a warp may go on that waits for all groups but the newest ``n``.

        It may not if another warp has still to issue a product of these groups.
        """
        own = self._own(warp, site)
        groups = self._committed[own] - n
        end = self._ends[groups - 1] if groups > 0 else 0
        if end <= self._retired[own]:
            return True
        if min(self._issued) < end:
            return False
        self.run(end)
        self._retired[own] = end
        self._counts[own][0] = self._issued[own] - end
        return True

    def issued(self, warp: Warp) -> int:
        """How many products a warp has issued."""
        return self._issued[warp.number % WARPS]

    def behind(self, number: int) -> bool:
        """Whether a warp has not issued a product yet."""
        return min(self._issued) <= number

    def waited(self, warp: Warp, n: int) -> int:
        """The number of the first group that a warp does not wait for."""
        return max(0, self._committed[warp.number % WARPS] - n)

    def fence(self, warp: Warp, site: int = -1) -> None:
        """Order the accesses of a warp to registers before later products.

        Nothing has to be done: registers are read when a product runs.
        """
        self._own(warp, site)

    def retired(self, warp: Warp) -> int:
        """The products that a warp has waited for."""
        return self._retired[warp.number % WARPS]

    def in_flight(self, warp: Warp) -> int:
        """The products that a warp has issued and not waited for."""
        own = warp.number % WARPS
        return self._issued[own] - self._retired[own]

    # ── what the tensor cores do ────────────────────────────────────────────

    @property
    def waiting(self) -> tuple[Wgmma, ...]:
        """The products that can run and have not, the next one first."""
        return tuple(work for work in self._queue if work.issued == WARPS)

    @property
    def groups(self) -> int:
        """The groups whose products have all run."""
        return bisect_right(self._ends, self.ran)

    def run(self, end: int) -> None:
        """Run products until this number of them has run."""
        while self.ran < end:
            work = self._queue[0]
            if work.issued < WARPS:
                raise BadCall("a product cannot run before all four warps issued it")
            Work.finish(work)

    def run_next(self, work: Wgmma) -> None:
        """Run the product that is next."""
        self._queue.popleft()
        self.ran += 1
        self._multiply(work)

    def _multiply(self, work: Wgmma) -> None:
        bound = self._bound(work.located, work.site)
        bundle, late = bound.bundle, self.late
        if not late:
            for register, part in zip(bundle.registers, bundle.parts, strict=True):
                register.get(part)
        status = bound.multiply(work.given)
        if status:
            self._fail(work, bound, status)
        for own, part in enumerate(bundle.parts):
            bundle.pending[own] -= late
            if not bundle.pending[own]:  # no further product that hides it
                bundle.registers[own].put(part)

    def _hide(self, own: int, bundle: Bundle) -> None:
        """Keep D of a warp aside, and poison its registers."""
        if not bundle.pending[own]:
            bundle.registers[own].get(bundle.parts[own])
            bundle.registers[own].fill(POISON)
        bundle.pending[own] += 1

    def _bound(self, located: Located, site: int) -> Bound:
        """An instruction in this warpgroup; those with the same D share a bundle."""
        found = self._bounds.get(located)
        if found is None:
            bundle = self._owners.get(located.d[0])
            if bundle is None or bundle.offsets != located.d:
                bundle = self._new_bundle(located.d, site)
            found = self._bounds[located] = Bound(self, located, bundle)
        return found

    def _new_bundle(self, offsets: tuple[int, ...], site: int) -> Bundle:
        others = {self._owners[each] for each in offsets if each in self._owners}
        if self.late and others:  # rare; what can run frees its registers
            self.run(min(self._issued))
        if any(any(each.pending) for each in others):
            raise WgmmaError(
                rules.WGMMA_REGISTERS_IN_FLIGHT,
                "D has registers in common with the D of another wgmma that is in "
                "flight, but not all of them; that is undefined in PTX",
                site,
            )
        for each in others:
            for offset in each.offsets:
                del self._owners[offset]
        self._bounds = {
            key: each for key, each in self._bounds.items() if each.bundle not in others
        }
        made = Bundle(offsets, self.words)
        self._owners.update(dict.fromkeys(offsets, made))
        return made

    # ── operands ────────────────────────────────────────────────────────────

    def _own(self, warp: Warp, site: int, lanes: int = ALL) -> int:
        """The number of a warp in the warpgroup, if the warpgroup is whole."""
        if len(self.warps) != WARPS:
            first = WARPS * (warp.number // WARPS)
            raise WgmmaError(
                rules.DIVERGENT_ALIGNED,
                f"a warpgroup has four warps; warp {first} and those after it are only "
                f"{len(self.warps)}",
                site,
            )
        if lanes & ALL != ALL:
            raise WgmmaError(
                rules.DIVERGENT_ALIGNED,
                f"all threads of a warp execute wgmma together; in warp {warp.number} "
                f"only the lanes {lanes & ALL:#010x} did",
                site,
            )
        return warp.number % WARPS

    def _given(self, own: int, located: Located, site: int) -> tuple[int, ...]:
        """The descriptors, and 1 if the old D is added, else 0."""
        found = [self._descriptor(own, each, site) for each in located.descriptors]
        scale = located.scale_d
        if scale.offset < 0:
            kept = scale.constant & 1
        else:
            word = bytes(self._views[own][scale.offset : scale.offset + 4])
            if word not in (b"\0\0\0\0", b"\xff\xff\xff\xff"):
                self._unequal(own, "scale-d", site)
            kept = word[0] & 1
        return (*found, kept ^ scale.negated)

    def _descriptor(self, own: int, source: Source, site: int) -> int:
        if source.offset < 0:
            return source.constant
        data = bytes(self._views[own][source.offset : source.offset + 8 * LANES])
        first = data[:8]
        if data != first * LANES:
            self._unequal(own, "a descriptor", site)
        return int.from_bytes(first, "little")

    def _unequal(self, own: int, what: str, site: int) -> None:
        raise WgmmaError(
            rules.DIVERGENT_ALIGNED,
            f"{what} of wgmma is not the same in all lanes of warp "
            f"{self.warps[own].number}",
            site,
        )

    def _refuse(
        self, work: Wgmma, own: int, located: Located, given: tuple[int, ...], site: int
    ) -> None:
        """Report how a warp differs from those that issued the product before."""
        number = self.warps[own].number
        if work.located is not located:
            what = "is another instruction than"
        elif work.given[-1] != given[-1]:
            what = f"has scale-d {given[-1]}; it is {work.given[-1]} in"
        else:
            first, other = next(
                (a, b) for a, b in zip(work.given, given, strict=True) if a != b
            )
            what = f"has the descriptor {other:#018x}; it is {first:#018x} in"
        raise WgmmaError(
            rules.DIVERGENT_ALIGNED,
            f"wgmma number {work.index} of warp {number} {what} another warp of its "
            "warpgroup",
            site,
        )

    def _fail(self, work: Wgmma, bound: Bound, status: int) -> None:
        if status == _ILLEGAL:
            why = illegal_code(work.located.op, bound.metadata, work.located.selector)
            raise WgmmaError(
                rules.ILLEGAL_METADATA,
                f"{work.located.mnemonic} was given illegal metadata: {why}",
                work.site,
            )
        raise WgmmaError(
            rules.BAD_DESCRIPTOR,
            f"{work.located.mnemonic} cannot read its operands",
            work.site,
        )


def _address(memory: NDArray[np.generic]) -> int:
    return int(memory.__array_interface__["data"][0])
