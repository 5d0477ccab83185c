"""Products of a launch with numerics: their tables, and those that units carry out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.planes.code.layout import PRODUCTS
from fragmenta.engine.planes.group_products import GroupProducts
from fragmenta.engine.planes.products import ProductSite
from fragmenta.engine.planes.tensor_products import issued_product
from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.tcgen05 import QueuedMma
from fragmenta.engine.units.warpgroups import Wgmma
from fragmenta.ptx.checking.tensor import Remark, named
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.registers.tensor_fragment import COLUMNS, TensorAddress
from fragmenta.values.numerics.code import layout
from fragmenta.values.numerics.code import product_layout as at
from fragmenta.values.numerics.code.products import NumericProducts
from fragmenta.values.numerics.products import (
    EVERY,
    Chain,
    ProductStatistics,
    ProductTable,
    statistics,
)

if TYPE_CHECKING:
    from fragmenta.engine.planes.memory import PlaneObserver, PlaneWatch
    from fragmenta.engine.simt.context import Context

_RANKS = 16


class _Own:
    """What one context has: its records, and code for its ``wgmma``."""

    def __init__(self, table: ProductTable, groups: GroupProducts, data: int) -> None:
        self.table, self.groups, self.data = table, groups, data


class LaunchProducts:
    """The products of one launch."""

    def __init__(self, planes: int, every: int = EVERY) -> None:
        self._algebra, self._every = NumericProducts(planes), every
        self._own: dict[int, _Own] = {}
        self._numbers: dict[tuple[str, int], int] = {}

    def attach(
        self, watch: PlaneWatch, context: Context, table: NDArray[np.uint8]
    ) -> None:
        """Give a context records of its products; ``table`` is that of numerics."""
        compiled = watch.compiled
        sites = {int(site) for site in compiled.remembered.get("products", {})}
        warps = watch.launch.shape.warps
        chains = compiled.remembered.get("chains", 0) * warps + COLUMNS * _RANKS
        numbers = len(compiled.followed)
        made = ProductTable(sites, numbers, chains if sites else 0, self._every)
        for number in sites:
            op = self._op(watch, *compiled.followed[number])
            if op is not None:
                made.ops[number] = op, watch.launch.target
        table.view(np.int64)[at.POINTER // 8] = made.address
        groups = GroupProducts(watch.launch.target, self._algebra, watch.twins)
        self._own[id(context)] = _Own(made, groups, address_of(table))
        if not self._numbers:
            self._numbers = {
                (name, index): number
                for number, (name, index) in enumerate(compiled.followed)
            }

    def _op(self, watch: PlaneWatch, function: str, index: int) -> Instruction | None:
        """The instruction of a site; of ``tcgen05``, only its descriptor tells it."""
        module = watch.launch.module()
        found = named(module.functions[function].instructions[index].mnemonic)
        if isinstance(found, Remark) or found.tensor_memory:
            return None
        return found

    def multiply(
        self, observer: PlaneObserver, work: Wgmma | QueuedMma, warp: Warp
    ) -> None:
        """A ``wgmma`` or ``tcgen05.mma`` was issued: make its nearly exact D."""
        watch = observer.watch
        op = work.op
        number = self.number_of(observer, work)
        own = self._own.get(id(warp.block.context))
        if number is None or own is None or op.types["d"].is_integer:
            observer.clear_product(work)
        elif isinstance(work, Wgmma):
            self._group(observer, work, warp, number, own)
        else:
            own.table.ops[number] = op, watch.launch.target
            self._tensor(observer, work, warp, number, own)

    def number_of(self, observer: PlaneObserver, work: Wgmma | QueuedMma) -> int | None:
        """The number of the place of a product; None if it has none."""
        place = observer.watch.compiled.places[work.site]
        return self._numbers.get((place[0], place[1]))

    def _group(
        self, observer: PlaneObserver, work: Wgmma, warp: Warp, number: int, own: _Own
    ) -> None:
        warps = observer.warpgroup(warp)
        remembered = observer.watch.compiled.remembered
        chain = remembered["products"][str(number)]
        chain += warps[0].number * remembered["chains"]
        rank = warp.block.rank
        shadows = [every[rank].shared for every in observer.planes]
        where = ProductSite(own.data, number, chain, warp.block.index, warps[0].number)
        own.groups.multiply(work, warps, warp.block.shared, shadows, where)
        cluster = warp.block.cluster
        forms, eager = cluster.machine.forms, cluster.schedule.eager
        known = remembered["products"][str(number)], remembered["chains"]
        own.groups.make_known(
            work.located, forms.of(work.located).number, shadows, where, known, eager
        )
        observer.planes[0][rank].point(PRODUCTS, address_of(own.groups.entries))

    def _tensor(
        self,
        observer: PlaneObserver,
        work: QueuedMma,
        warp: Warp,
        number: int,
        own: _Own,
    ) -> None:
        watch = observer.watch
        goal = TensorAddress.of(work.given["d"])
        first = watch.compiled.remembered["chains"] * watch.launch.shape.warps
        chain = first + work.blocks[0].rank * COLUMNS + goal.column
        where = ProductSite(own.data, number, chain, warp.block.index, warp.number)
        issued_product(observer, work, warp, self._algebra, where)

    # ── after the launch ────────────────────────────────────────────────────

    @property
    def tables(self) -> list[ProductTable]:
        """The records of all contexts."""
        return [each.table for each in self._own.values()]

    def statistics(self) -> list[ProductStatistics]:
        """What each instruction lost."""
        return statistics(self.tables)

    def chain(self) -> Chain | None:
        """The longest accumulator that was logged."""
        found = [chain for each in self.tables if (chain := each.chain()) is not None]
        return max(found, key=lambda each: each.k, default=None)


assert at.POINTER < layout.HEAD
