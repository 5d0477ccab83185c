"""Second values through ``wgmma``: all at issue, in one call of compiled code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.jit.compiler import Traced
from fragmenta.planes.code.group_products import described, group_product, room
from fragmenta.planes.products import NOWHERE, ProductAlgebra, Where
from fragmenta.simt.compiled import address_of
from fragmenta.simt.wgmma_operands import Located
from fragmenta.units.machine import Warp
from fragmenta.units.warpgroups import Wgmma


class _Form(NamedTuple):
    """A ``wgmma`` of a kernel: its code, and the places of its registers."""

    call: Traced
    table: NDArray[np.int64]
    work: NDArray[np.uint64]


class GroupProducts:
    """The second values of the ``wgmma`` of a launch."""

    def __init__(
        self, target: str, algebra: ProductAlgebra, twins: Mapping[int, Sequence[int]]
    ) -> None:
        """``twins`` says where the planes of a register are, by where it is."""
        self._target, self._algebra, self._twins = target, algebra, twins
        self._forms: dict[Located, _Form] = {}

    def multiply(
        self,
        work: Wgmma,
        warps: Sequence[Warp],
        shared: NDArray[np.uint8],
        shadows: Sequence[NDArray[np.uint8]],
        where: Where = NOWHERE,
    ) -> int:
        """Make the second values of D of a product that all warps have issued.

        ``shadows`` are the planes of shared memory.  1 if D has second values.
        """
        form = self._forms.get(work.located)
        if form is None:
            form = self._forms[work.located] = self._made(work.located)
        addresses = [address_of(each.memory) for each in warps]
        # A second descriptor is read if A is in shared memory.
        words = np.array([*work.descriptors, 0], np.uint64)
        selectors = np.array([work.given[-1], work.located.selector], np.int64)
        return form.call(
            np.array(addresses, np.int64),
            form.table,
            words,
            shared,
            shared.size,
            np.array([address_of(each) for each in shadows], np.int64),
            selectors,
            form.work,
            *where,
        )

    def _made(self, located: Located) -> _Form:
        call = group_product(located.op, self._target, self._algebra, located.ways)
        how = described(located.op, self._target, self._algebra, located.ways)
        pairs = []
        for each in located.read:
            if each.offset < 0:
                pairs.append((-1, each.constant))
            else:
                pairs.append((each.offset, self._first(each.offset)))
        pairs += [(each, self._first(each)) for each in located.d]
        table = np.array(pairs, np.int64).reshape(-1)
        return _Form(call, table, np.zeros(room(how), np.uint64))

    def _first(self, place: int) -> int:
        """Where plane 0 of a register is; -1 if it has none."""
        return self._twins.get(place, (-1,))[0]
