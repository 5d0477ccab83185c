"""Second values through ``wgmma``: all at issue, in one call of compiled code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced
from fragmenta.base.jit.trace import Code, Value
from fragmenta.engine.planes.code.group_products import described, group_product, room
from fragmenta.engine.planes.code.product_port import MOST_FORMS, PRODUCT, TOUCH
from fragmenta.engine.planes.code.routines import QUIET
from fragmenta.engine.planes.products import (
    NOWHERE,
    ProductAlgebra,
    ProductMatrices,
    ProductShape,
    ProductSite,
)
from fragmenta.engine.simt.compiled import address_of
from fragmenta.engine.simt.loaded import LoadedRoutines
from fragmenta.engine.simt.wgmma_operands import Located
from fragmenta.engine.units.blocks import Warp
from fragmenta.engine.units.fast import layout as fast
from fragmenta.engine.units.warpgroups import Wgmma


class _Form(NamedTuple):
    """A ``wgmma`` of a kernel: its code, and the places of its registers."""

    call: Traced
    table: NDArray[np.int64]
    work: NDArray[np.uint64]


def port_functions() -> dict[int, int]:
    """What an observer has in machine code, so that ``wgmma`` does not need Python."""
    code = _port()
    quiet = code.address(QUIET)
    return {
        fast.PORT_TOUCH: code.address(TOUCH),
        fast.PORT_PRODUCT: code.address(PRODUCT),
        fast.PORT_FENCE: quiet,
        fast.PORT_MULTIPLIED: quiet,
    }


@once
def _port() -> LoadedRoutines:
    return LoadedRoutines([TOUCH, PRODUCT, QUIET])


@dataclass(frozen=True)
class _WithoutPanels:
    """An algebra whose products are computed all at once."""

    of: ProductAlgebra
    by_panel: bool = False

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def planes(self) -> int:
        return self.of.planes

    @property
    def most(self) -> int:
        return self.of.most

    def product(self, code: Code, how: ProductShape, tiles: ProductMatrices) -> Value:
        return self.of.product(code, how, tiles)


class GroupProducts:
    """The second values of the ``wgmma`` of a launch."""

    def __init__(
        self, target: str, algebra: ProductAlgebra, twins: Mapping[int, Sequence[int]]
    ) -> None:
        """``twins`` says where the planes of a register are, by where it is."""
        self._target, self._algebra, self._twins = target, algebra, twins
        self._forms: dict[Located, _Form] = {}
        self.entries = np.zeros(MOST_FORMS, np.int64)
        """Where machine code finds the entry of a form."""
        self._kept: list[NDArray[np.int64]] = []
        self._work = np.zeros(0, np.uint64)

    def make_known(
        self,
        located: Located,
        number: int,
        shadows: Sequence[NDArray[np.uint8]],
        where: ProductSite,
        chain: tuple[int, int],
        eager: bool,
    ) -> None:
        """Let machine code make the second values of a form from now on.

        ``number`` is that of the form, ``chain`` that of the accumulator, and how many
        a warp has.  If products are ``eager``, machine code writes D, too.
        """
        form = self._forms.get(located)
        if form is None or number >= MOST_FORMS or self.entries[number]:
            return
        places = np.array([address_of(each) for each in shadows], np.int64)
        entry = np.array(
            [
                form.call.address,
                address_of(form.table),
                address_of(places),
                address_of(form.work),
                where.data,
                where.site,
                *chain,
                eager,
            ],
            np.int64,
        )
        self._kept += [places, entry]
        self.entries[number] = address_of(entry)

    def multiply(
        self,
        work: Wgmma,
        warps: Sequence[Warp],
        shared: NDArray[np.uint8],
        shadows: Sequence[NDArray[np.uint8]],
        where: ProductSite = NOWHERE,
    ) -> int:
        """Make the second values of D of a product that all warps have issued.

        ``shadows`` are the planes of shared memory.  1 if D could be computed.
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
            0,
        )

    def _made(self, located: Located) -> _Form:
        algebra = self._algebra
        of_d = [(each, self._first(each)) for each in located.d]
        if any(first < 0 for _, first in of_d):  # some are not followed
            algebra = _WithoutPanels(algebra)
        call = group_product(located.op, self._target, algebra, located.ways)
        how = described(located.op, self._target, algebra, located.ways)
        pairs = []
        for each in located.read:
            if each.offset < 0:
                pairs.append((-1, each.constant))
            else:
                pairs.append((each.offset, self._first(each.offset)))
        table = np.array(pairs + of_d, np.int64).reshape(-1)
        if self._work.size < room(how):  # products of a context run one at a time
            self._work = np.zeros(room(how), np.uint64)
        return _Form(call, table, self._work)

    def _first(self, place: int) -> int:
        """Where plane 0 of a register is; -1 if it has none."""
        return self._twins.get(place, (-1,))[0]
