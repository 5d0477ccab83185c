"""Warpgroups: four warps, and the products that their Tensor Cores run.

A warpgroup is four warps.  Each of them issues every ``wgmma.mma_async``, in the same
order, but not at the same time.  A product can run when all four have issued it, and
products run in the order in which they were issued.  A warp that waits for a group goes
on when the products of that group, and all before them, have run.

A schedule may run a product as soon as it can be run, or late.  A warpgroup that is
late hides D: from the moment a warp issues a product until it has run, the warp's
registers of D hold ``POISON``.  Their true values are kept aside.
A, metadata and shared memory are read when the product runs.

The state is in records of memory (:mod:`fragmenta.engine.units.fast.layout`), which
fast paths read and change, too.  A :class:`Wgmma` is made of a record when Python needs
one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import address_of, aligned, zeros
from fragmenta.engine.simt.layout import IN_FLIGHT, LANES, POISON
from fragmenta.engine.simt.naming import illegal_code
from fragmenta.engine.simt.wgmma_operands import LaneOperand, Located
from fragmenta.engine.units.fast import layout
from fragmenta.engine.units.records import Bytes, Flag, Long, Record, Word
from fragmenta.engine.units.reset_schedule import ResetSchedule
from fragmenta.engine.units.wgmma_forms import (
    ALL,
    WARPS,
    Bound,
    Bundle,
    BundlePlan,
    FormRecord,
    Forms,
    Registers,
    signed,
)
from fragmenta.engine.units.wgmma_sources import owners, units
from fragmenta.engine.units.work import QueueSlot, Range, Work
from fragmenta.errors import BadCall, Error
from fragmenta.ptx import rules
from fragmenta.ptx.effects import effect
from fragmenta.ptx.rules import Rule

if TYPE_CHECKING:
    from fragmenta.engine.units.blocks import Warp as BlockWarp

_UNIT = 16
"""Bytes of a unit of shared memory."""
_ILLEGAL = 1
"""What a product returns if a code of the metadata is illegal."""
_QUEUE, _ENDS, _BOUND = 16, 256, 16
"""For how many products, groups and forms there is memory at first."""


class MemberWarp(Protocol):
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


# ── a product ───────────────────────────────────────────────────────────────


class ProductRecord(Record):
    """The record of a product, from its first issue until it has run."""

    form = Long(layout.PRODUCT_FORM)
    scale_d = Long(layout.PRODUCT_SCALE_D)
    selector = Long(layout.PRODUCT_SELECTOR)
    number = Word(layout.PRODUCT_NUMBER)
    group = Word(layout.PRODUCT_GROUP)
    warpgroup = Word(layout.PRODUCT_WARPGROUP)
    site = Word(layout.PRODUCT_SITE)
    issued = Word(layout.PRODUCT_ISSUED)
    status = Word(layout.PRODUCT_STATUS)
    ordinal = Long(layout.PRODUCT_ORDINAL)
    warp = Word(layout.PRODUCT_WARP)
    done = Word(layout.PRODUCT_DONE)

    def given(self, count: int) -> tuple[int, ...]:
        """So many descriptors, and whether the old D is added."""
        first = layout.PRODUCT_DESCRIPTORS >> 3
        words = self.longs[first : first + count].view(np.uint64).tolist()
        return (*words, self.scale_d)


Read: TypeAlias = tuple[str, NDArray[np.uint32], NDArray[np.uint8] | None]
"""An operand of a product, and its units in shared memory; see :func:`read_units`."""


class Wgmma(Work):
    """One product of a warpgroup: work that is done later."""

    effect = effect("wgmma.mma_async")
    is_product = True
    kept = False
    """Whether it is in flight in Python, so that machine code must not run it."""

    def __init__(self, of: Warpgroup, located: Located, product: ProductRecord) -> None:
        super().__init__(product.site)
        self._of = of
        self.located = located
        self.op, self.registers = located.op, located.d
        self.given = product.given(len(located.descriptors))
        """The descriptors, and whether the old D is added."""
        self.index = product.number
        """Its number among the products of the warpgroup."""
        self.group = product.group
        """The number of the group that the next commit makes."""
        self.failed: Callable[[WgmmaError], Error] | None = None
        """Makes the error that ends the kernel, once the work is in flight."""

    @property
    def warps(self) -> tuple[MemberWarp, ...]:
        """The four warps that issued it."""
        return self._of.warps

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptor of A, if A is in shared memory, and that of B."""
        return self.given[:-1]

    @property
    def ready(self) -> bool:
        """Whether all four warps have issued it."""
        return not self._of.behind(self.index)

    # D is hidden already: each warp's when that warp issued the product.  The operands
    # are read when the product runs, not before.

    def poison(self) -> None:
        """It is in flight; it is Python's, until it has run."""
        self._of.keep(self)

    def finish(self) -> None:
        """Run it, and all products before it; nothing if it has run."""
        try:
            self._of.run(self.index + 1)
        except WgmmaError as error:
            raise (error if self.failed is None else self.failed(error)) from error

    def write(self) -> None:
        """Run it."""
        self._of.run_next(self)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """D as it is now; in flight, its registers hold poison."""
        hidden = self._of.hidden(self)
        for register, part in hidden:
            register.put(part)
        yield
        for register, _ in hidden:
            register.fill(POISON)

    @property
    def fills(self) -> Sequence[BlockWarp]:  # type: ignore[override]
        """The warps whose registers it writes; in a launch, they are in a block."""
        return cast("Sequence[BlockWarp]", self.warps)

    @property
    def slot(self) -> QueueSlot:
        """Its group among those of its warpgroup."""
        first = self.fills[0]
        number = first.number // WARPS
        return QueueSlot("wgmma", first.block.rank, number, epoch=self.group)

    @property
    def sources(self) -> list[Range]:
        """The units of shared memory that it reads."""
        rank = self.fills[0].block.rank
        return [
            Range("shared", rank, np.unique(starts.astype(np.int64)), _UNIT)
            for _, starts, _ in self.reads()
        ]

    def reads(self) -> list[Read]:
        """What it reads from shared memory, by operand, and which warps read it."""
        return read_units(self.located, self.descriptors)


def read_units(located: Located, descriptors: Sequence[int]) -> list[Read]:
    """What a product reads from shared memory: the operand, where its units are.

    Of A, the warp that reads each unit, too; all warps read B.
    """
    op, ways = located.op, located.ways
    *of_a, of_b = descriptors
    found: list[Read] = []
    for word in of_a:
        there = units(op, "A", word, ways.trans_a)
        found.append(("A", there, owners(op, ways.trans_a)))
    return [*found, ("B", units(op, "B", of_b, ways.trans_b), None)]


class Warpgroup(Record):
    """Four warps of a block, and the products that they have issued.

    ``late`` says whether D is hidden until a product has run.  Who schedules decides
    when products run, by :meth:`Wgmma.finish`; waiting runs those it waits for.
    ``memory`` is that of its record.
    """

    ran = Word(layout.GROUP_RAN)
    """Products that have run."""
    last_site = Word(layout.GROUP_LAST_SITE)
    """The instruction that was issued last."""
    _ready = Flag(layout.GROUP_READY)
    _number = Word(layout.GROUP_NUMBER)
    _queued = Word(layout.GROUP_QUEUED)
    _kept = Word(layout.GROUP_PYTHON)
    _ends_count = Word(layout.GROUP_ENDS_COUNT)

    def __init__(
        self,
        warps: Sequence[MemberWarp],
        shared: NDArray[np.uint8],
        target: str = "sm_90a",
        *,
        late: bool = False,
        forms: Forms | None = None,
        memory: Bytes | None = None,
        plan: BundlePlan | None = None,
    ) -> None:
        super().__init__(aligned(layout.GROUP_BYTES) if memory is None else memory)
        self.warps = tuple(warps)
        self.late = late
        self.shared = shared
        self._in_shared = address_of(shared), shared.size
        self.forms = Forms(target, shared.size) if forms is None else forms
        self._plan = self.forms.plan if plan is None else plan
        self.started: Callable[[Wgmma, ProductRecord], None] | None = None
        """Tells a product that machine code has put in flight how it ends."""
        self.memories = [warp.memory.view(np.uint32) for warp in warps]
        self._views = [warp.memory.data for warp in warps]
        self._counts = [words[IN_FLIGHT // 4 :] for words in self.memories]
        self._issued = self._four(layout.GROUP_ISSUED)
        self._committed = self._four(layout.GROUP_COMMITTED)
        self._retired = self._four(layout.GROUP_RETIRED)
        self._held = self._four(layout.GROUP_HELD)
        self._bounds: dict[FormRecord, Bound] = {}
        self._owners: dict[int, Bundle] = {}
        self._bundles: dict[tuple[int, ...], Bundle] = {}
        self._works: dict[int, Wgmma] = {}
        """Products that Python knows, by their numbers."""
        self._allocate()
        self.reset()

    def _four(self, offset: int) -> NDArray[np.int32]:
        """A number for each warp."""
        return self.words[offset >> 2 :][:WARPS]

    def _allocate(self) -> None:
        for offset, warp in enumerate(self.warps):
            place = (layout.GROUP_WARPS >> 3) + offset
            self.longs[place] = address_of(warp.memory)
        self._number = self.warps[0].number // WARPS
        self._set_queue(aligned(_QUEUE * layout.PRODUCT_BYTES))
        self._set_ends(zeros(_ENDS, np.int32))
        self._bind_known()
        self._ready = len(self.warps) == WARPS

    def _bind_known(self) -> None:
        """Bind the forms that are known, which hide different registers."""
        plan = self._plan
        if self.late and not plan.disjoint:
            plan = BundlePlan(())
        addresses = zeros(max(_BOUND, 2 * len(plan.forms)), np.int64)
        self._plan, self._planned = plan, plan.made(addresses)
        self._set_bound(addresses)

    def _set_queue(self, memory: Bytes) -> None:
        self._queue = memory.reshape(-1, layout.PRODUCT_BYTES)
        self._products: dict[int, ProductRecord] = {}
        self.longs[layout.GROUP_QUEUE >> 3] = address_of(memory)
        self.words[layout.GROUP_CAPACITY >> 2] = len(self._queue)

    def _set_ends(self, memory: NDArray[np.int32]) -> None:
        self._ends = memory
        self.longs[layout.GROUP_ENDS >> 3] = address_of(memory)
        self.words[layout.GROUP_ENDS_CAPACITY >> 2] = memory.size

    def _set_bound(self, memory: NDArray[np.int64]) -> None:
        self._addresses = memory
        self.longs[layout.GROUP_BOUND >> 3] = address_of(memory)
        self.words[layout.GROUP_BOUND_COUNT >> 2] = memory.size

    def reset(self) -> None:
        """Begin another block."""
        self._works.clear()
        self._queued = self.ran = self._kept = self._ends_count = 0
        for each in (self._issued, self._committed, self._retired, self._held):
            each[:] = 0
        self.last_site = -1
        self._plan.clear(self._planned)
        for bundle in self._bundles.values():
            bundle.pending[:] = 0

    def renewed(self, resets: ResetSchedule) -> None:
        """Tell what is renewed when another block begins, and what is over then."""
        first, last = layout.GROUP_QUEUED >> 2, layout.GROUP_ENDS_COUNT >> 2
        resets.copy(self.words[first : last + 1])
        for each in (self._issued, self._committed, self._retired, self._held):
            resets.clear(each)
        self._plan.renewed(self._planned, resets)
        for bundle in self._bundles.values():
            resets.clear(bundle.pending)
        ran = self.words[layout.GROUP_RAN >> 2 :][:1]
        for own in range(WARPS):
            resets.equal_at_end(self._issued[own : own + 1], ran)

    def waited_at_end(self, resets: ResetSchedule) -> None:
        """Tell that the warps have to wait for all their products."""
        resets.equal_at_end(self._issued, self._retired)

    def product(self, number: int) -> ProductRecord:
        """The record of a product that has not run."""
        place = number % len(self._queue)
        found = self._products.get(place)
        if found is None:
            found = self._products[place] = ProductRecord(self._queue[place])
        return found

    # ── what warps do ───────────────────────────────────────────────────────

    def issue(
        self, warp: MemberWarp, located: Located, site: int, lanes: int = ALL
    ) -> Wgmma | None:
        """Issue the next product of a warp; return it, if all four have issued it."""
        own = self._own(warp, site, lanes)
        self.last_site = site
        given = self._given(own, located, site)
        form = self.forms.of(located)
        number = int(self._issued[own])
        if number == self._queued:
            wrong = form.bad(given[:-1])
            if wrong:
                raise WgmmaError(rules.BAD_DESCRIPTOR, wrong, site)
            product = self._append(form, given, site, own)
        else:
            product = self.product(number)
            there = product.given(len(located.descriptors))
            if product.form != form.address or there != given:
                self._refuse(product, own, located, given, site)
        bound = self._bound(form, site)
        if self.late:
            self._hide(own, bound.bundle)
        product.issued += 1
        self._issued[own] = number + 1
        self._counts[own][0] = number + 1 - self._retired[own]
        if product.issued < WARPS:
            return None
        product.warp = warp.number
        return self._work(product)

    def _append(
        self, form: FormRecord, given: tuple[int, ...], site: int, own: int
    ) -> ProductRecord:
        """A new product, which a warp is the first to issue."""
        number = self._queued
        if number - self.ran == len(self._queue):
            self._grow()
        product = self.product(number)
        product.raw[:] = 0
        product.form, product.number = form.address, number
        *descriptors, product.scale_d = given
        first = layout.PRODUCT_DESCRIPTORS >> 3
        product.longs[first : first + len(descriptors)] = list(map(signed, descriptors))
        product.selector = form.located.selector
        product.group, product.site = int(self._committed[own]), site
        product.warpgroup = self._number
        self._queued = number + 1
        return product

    def _grow(self) -> None:
        """Make room for more products."""
        old = self._queue
        self._set_queue(aligned(2 * len(old) * layout.PRODUCT_BYTES))
        for number in range(self.ran, self._queued):
            self.product(number).raw[:] = old[number % len(old)]

    def commit(self, warp: MemberWarp, site: int = -1) -> None:
        """Close the group of the products that a warp has issued."""
        own = self._own(warp, site)
        group, end = int(self._committed[own]), int(self._issued[own])
        if group == self._ends_count:
            if group == self._ends.size:
                self._set_ends(np.concatenate([self._ends, np.zeros_like(self._ends)]))
            self._ends[group] = end
            self._ends_count = group + 1
        elif self._ends[group] != end:
            raise WgmmaError(
                rules.DIVERGENT_ALIGNED,
                f"warp {warp.number} commits a group after {end} wgmma; another warp "
                f"of its warpgroup did so after {self._ends[group]}",
                site,
            )
        self._committed[own] = group + 1

    def wait(self, warp: MemberWarp, n: int, site: int = -1) -> bool:
        """Whether a warp may go on that waits for all groups but the newest ``n``.

        It may not if another warp has still to issue a product of these groups.
        """
        own = self._own(warp, site)
        groups = int(self._committed[own]) - n
        end = int(self._ends[groups - 1]) if groups > 0 else 0
        if end <= self._retired[own]:
            return True
        if self._issued.min() < end:
            return False
        self.run(end)
        self._retired[own] = end
        self._counts[own][0] = self._issued[own] - end
        return True

    def issued(self, warp: MemberWarp) -> int:
        """How many products a warp has issued."""
        return int(self._issued[warp.number % WARPS])

    def behind(self, number: int) -> bool:
        """Whether a warp has not issued a product yet."""
        return bool(self._issued.min() <= number)

    def hold(self, warp: MemberWarp, product: int | None) -> None:
        """Let a warp wait at a product for the others; None: let it go on."""
        self._held[warp.number % WARPS] = 0 if product is None else product + 1

    def held(self, warp: MemberWarp) -> int | None:
        """The product at which a warp waits for the others."""
        found = int(self._held[warp.number % WARPS])
        return found - 1 if found else None

    def waited(self, warp: MemberWarp, n: int) -> int:
        """The number of the first group that a warp does not wait for."""
        return max(0, int(self._committed[warp.number % WARPS]) - n)

    def fence(self, warp: MemberWarp, site: int = -1) -> None:
        """Order the accesses of a warp to registers before later products.

        Nothing has to be done: registers are read when a product runs.
        """
        self._own(warp, site)

    def retired(self, warp: MemberWarp) -> int:
        """The products that a warp has waited for."""
        return int(self._retired[warp.number % WARPS])

    def in_flight(self, warp: MemberWarp) -> int:
        """The products that a warp has issued and not waited for."""
        own = warp.number % WARPS
        return int(self._issued[own] - self._retired[own])

    # ── what the tensor cores do ────────────────────────────────────────────

    @property
    def waiting(self) -> tuple[Wgmma, ...]:
        """The products that can run and have not, the next one first."""
        return tuple(self._work(each) for each in self._complete())

    @property
    def unknown(self) -> tuple[Wgmma, ...]:
        """Those of them that machine code has put in flight."""
        found = (each for each in self._complete() if each.number not in self._works)
        return tuple(self._work(each) for each in found)

    def _complete(self) -> list[ProductRecord]:
        end = int(self._issued.min())
        return [self.product(number) for number in range(self.ran, end)]

    @property
    def undone(self) -> bool:
        """Whether machine code left the next product, which was to run at once."""
        return not self.late and self.ran < self._issued.min()

    @property
    def groups(self) -> int:
        """The groups whose products have all run."""
        return bisect_right(self._ends[: self._ends_count].tolist(), self.ran)

    def _work(self, product: ProductRecord) -> Wgmma:
        """The product as work."""
        found = self._works.get(product.number)
        if found is None:
            form = self.forms.by_address[product.form]
            found = Wgmma(self, form.located, product)
            self._works[product.number] = found
            if product.ordinal and self.started is not None:
                self.started(found, product)
        return found

    def keep(self, work: Wgmma) -> None:
        """A product is in flight in Python: machine code must not run it."""
        self._kept += 1
        work.kept = True
        self.product(work.index).ordinal = work.ordinal

    def run(self, end: int) -> None:
        """Run products until this number of them has run."""
        while self.ran < end:
            product = self.product(self.ran)
            if product.issued < WARPS:
                raise BadCall("a product cannot run before all four warps issued it")
            Work.finish(self._work(product))

    def run_next(self, work: Wgmma) -> None:
        """Run the product that is next."""
        self._kept -= work.kept
        self.ran += 1
        self._works.pop(work.index, None)
        self._multiply(work)

    def _multiply(self, work: Wgmma) -> None:
        product = self.product(work.index)
        bound = self._bound(self.forms.by_address[product.form], work.site)
        status = 0 if product.done else product.status or self._add(bound, product)
        if status:
            self._fail(work, bound, status)
        for own, part in enumerate(bound.bundle.parts if self.late else ()):
            bound.bundle.pending[own] -= 1
            if not bound.bundle.pending[own]:  # no further product that hides it
                bound.bundle.registers[own].put(part)

    def hidden(self, work: Wgmma) -> list[tuple[Registers, NDArray[np.uint32]]]:
        """The registers that hide D of a product in flight, and what D is."""
        product = self.product(work.index)
        bundle = self._bound(self.forms.by_address[product.form], work.site).bundle
        pairs = list(zip(bundle.registers, bundle.parts, strict=True))
        return pairs if self.late else []

    def _add(self, bound: Bound, product: ProductRecord) -> int:
        """Add a product to D; 0 if that could be done."""
        bundle, late = bound.bundle, self.late
        pairs = list(zip(bundle.registers, bundle.parts, strict=True))
        for register, part in () if late else pairs:
            register.get(part)
        status = bound.multiply(product.address, *self._in_shared)
        for register, part in () if late or status else pairs:
            register.put(part)
        return status

    def _hide(self, own: int, bundle: Bundle) -> None:
        """Keep D of a warp aside, and poison its registers."""
        if not bundle.pending[own]:
            bundle.registers[own].get(bundle.parts[own])
            bundle.registers[own].fill(POISON)
        bundle.pending[own] += 1

    def _bound(self, form: FormRecord, site: int) -> Bound:
        """An instruction in this warpgroup; those with the same D share a bundle."""
        found = self._bounds.get(form)
        if found is None and form in self._plan.bound:
            found = self._plan_bound(form)
        elif found is None:
            for each in self._plan.bound:  # bundles that there are must be known
                self._bounds.get(each) or self._plan_bound(each)
            offsets = form.located.d
            bundle = self._bundles.get(offsets)
            if bundle is None:
                bundle = self._new_bundle(offsets, site)
            found = self._bounds[form] = Bound(form, bundle, self.memories)
            while form.number >= self._addresses.size:
                more = np.zeros_like(self._addresses)
                self._set_bound(np.concatenate([self._addresses, more]))
            self._addresses[form.number] = found.address
        return found

    def _plan_bound(self, form: FormRecord) -> Bound:
        """A form that was bound when the warpgroup was made."""
        plan, offsets = self._plan, form.located.d
        bundle = self._bundles.get(offsets)
        if bundle is None:
            memory = self._planned[plan.bundles[offsets]]
            bundle = self._keep_bundle(Bundle(offsets, self.memories, memory))
        memory = self._planned[plan.bound[form]]
        found = self._bounds[form] = Bound(form, bundle, self.memories, memory)
        return found

    def _keep_bundle(self, bundle: Bundle) -> Bundle:
        self._bundles[bundle.offsets] = bundle
        self._owners.update(dict.fromkeys(bundle.offsets, bundle))
        return bundle

    def _new_bundle(self, offsets: tuple[int, ...], site: int) -> Bundle:
        """Memory for a D; if D is hidden, no other may have registers in common."""
        if self.late:
            self._free(offsets, site)
        return self._keep_bundle(Bundle(offsets, self.memories))

    def _free(self, offsets: tuple[int, ...], site: int) -> None:
        others = {
            id(self._owners[each]): self._owners[each]
            for each in offsets
            if each in self._owners
        }
        if others:  # rare; what can run frees its registers
            self.run(int(self._issued.min()))
        if any(each.pending.any() for each in others.values()):
            raise WgmmaError(
                rules.WGMMA_REGISTERS_IN_FLIGHT,
                "D has registers in common with the D of another wgmma that is in "
                "flight, but not all of them; that is undefined in PTX",
                site,
            )
        for each in others.values():
            del self._bundles[each.offsets]
            for offset in each.offsets:
                del self._owners[offset]
        if others:  # what is bound anew has memory of its own
            self._plan = BundlePlan(())
        for form in [f for f, b in self._bounds.items() if id(b.bundle) in others]:
            del self._bounds[form]
            self._addresses[form.number] = 0

    # ── operands ────────────────────────────────────────────────────────────

    def _own(self, warp: MemberWarp, site: int, lanes: int = ALL) -> int:
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

    def _descriptor(self, own: int, source: LaneOperand, site: int) -> int:
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
        self,
        product: ProductRecord,
        own: int,
        located: Located,
        given: tuple[int, ...],
        site: int,
    ) -> None:
        """Report how a warp differs from those that issued the product before."""
        number = self.warps[own].number
        work = Wgmma(self, self.forms.by_address[product.form].located, product)
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
