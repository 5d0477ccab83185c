"""Products that units carry out: hashes of ``wgmma`` and ``tcgen05.mma``, at issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.planes.group_products import GroupProducts
from fragmenta.engine.planes.products import ProductSite
from fragmenta.engine.planes.tensor_products import issued_product
from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.tcgen05 import QueuedMma
from fragmenta.engine.units.warpgroups import Wgmma
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.values.expressions.code.products import ProductHashes

if TYPE_CHECKING:
    from fragmenta.engine.planes.memory import PlaneObserver, PlaneWatch
    from fragmenta.engine.simt.compiled import Compiled
    from fragmenta.engine.simt.context import Context


def sites_of(compiled: Compiled) -> list[tuple[str, int]]:
    """The instructions with numbers: those in code, then those that units carry out."""
    listed = (*compiled.followed, *compiled.places)
    return [(str(function), int(index)) for function, index, *_ in listed]


class UnitProducts:
    """The products of the units of one launch."""

    def __init__(self, algebra: ProductHashes) -> None:
        self._algebra = algebra
        self._own: dict[int, tuple[GroupProducts, int]] = {}
        self.ops: dict[int, Instruction] = {}
        """The instructions by number: that of a ``tcgen05`` is known when it runs."""

    def attach(
        self, watch: PlaneWatch, context: Context, table: NDArray[np.uint8]
    ) -> None:
        """Let a context write notes into its table."""
        groups = GroupProducts(watch.launch.target, self._algebra, watch.twins)
        self._own[id(context)] = groups, address_of(table)

    def multiply(
        self, observer: PlaneObserver, work: Wgmma | QueuedMma, warp: Warp
    ) -> None:
        """Hash a product that was issued, before it is carried out."""
        number = len(observer.watch.compiled.followed) + work.site
        self.ops[number] = work.op
        groups, data = self._own[id(warp.block.context)]
        where = ProductSite(data, number, 0, warp.block.index, warp.number)
        if isinstance(work, Wgmma):
            warps = observer.warpgroup(warp)
            shadows = [every[warp.block.rank].shared for every in observer.planes]
            groups.multiply(work, warps, warp.block.shared, shadows, where)
        else:
            issued_product(observer, work, warp, self._algebra, where)
