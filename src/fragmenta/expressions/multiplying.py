"""Products that units carry out: hashes of ``wgmma`` and ``tcgen05.mma``, at issue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.expressions.code.products import ProductHashes
from fragmenta.isa.instruction import Instruction
from fragmenta.planes.group_products import GroupProducts
from fragmenta.planes.products import Where
from fragmenta.planes.tensor_products import tensor_product
from fragmenta.simt.compiled import address_of
from fragmenta.units.machine import Warp
from fragmenta.units.tcgen05 import Product
from fragmenta.units.tmem_operands import memory
from fragmenta.units.warpgroups import Wgmma

if TYPE_CHECKING:
    from fragmenta.planes.memory import PlaneObserver, PlaneWatch
    from fragmenta.simt.context import Context


class UnitProducts:
    """The products of the units of one launch."""

    def __init__(self, algebra: ProductHashes) -> None:
        self._algebra = algebra
        self._own: dict[int, tuple[GroupProducts, int]] = {}
        self.ops: dict[int, Instruction] = {}
        """The instructions by number: that of a ``tcgen05`` is known when it runs."""
        self._numbers: dict[tuple[str, int], int] = {}

    def attach(
        self, watch: PlaneWatch, context: Context, table: NDArray[np.uint8]
    ) -> None:
        """Let a context write notes into its table."""
        groups = GroupProducts(watch.launch.target, self._algebra, watch.twins)
        self._own[id(context)] = groups, address_of(table)
        if not self._numbers:
            self._numbers = {
                (name, index): number
                for number, (name, index) in enumerate(watch.compiled.followed)
            }

    def multiply(
        self, observer: PlaneObserver, work: Wgmma | Product, warp: Warp
    ) -> None:
        """Hash a product that was issued, before it is carried out."""
        name, index = observer.watch.compiled.places[work.site][:2]
        number = self._numbers.get((name, index), 0)
        self.ops[number] = work.located.op if isinstance(work, Wgmma) else work.op
        groups, data = self._own[id(warp.block.context)]
        where = Where(data, number, 0, warp.block.index, warp.number)
        if isinstance(work, Wgmma):
            warps = observer.warpgroup(warp)
            shadows = [every[warp.block.rank].shared for every in observer.planes]
            groups.multiply(work, warps, warp.block.shared, shadows, where)
        else:
            self._tensor(observer, work, warp, where)

    def _tensor(
        self, observer: PlaneObserver, work: Product, warp: Warp, where: Where
    ) -> None:
        ranks = [each.rank for each in work.blocks]
        pair = len(ranks) == 2

        def one(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
            return np.stack(parts) if pair else parts[0]

        cells = [memory(warp, work.event, each).operand() for each in work.blocks]
        hardware = one(cells), one([each.shared for each in work.blocks])
        planes = [
            (
                one([every[r].cells for r in ranks]),
                one([every[r].shared for r in ranks]),
            )
            for every in observer.planes
        ]
        made = tensor_product(
            work.op,
            observer.watch.launch.target,
            self._algebra,
            hardware,  # type: ignore[arg-type]
            planes,  # type: ignore[arg-type]
            work.given,
            where,
        )
        for every, image in zip(observer.planes, made, strict=True):
            parts = image if pair else image[None]
            for rank, part in zip(ranks, parts, strict=True):
                for each in work.writes:
                    if each.rank == rank:
                        every[rank].cells[each.index] = part[each.index]
