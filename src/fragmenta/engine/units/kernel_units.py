"""What all launches of a kernel share: events, products and tensor maps that are known.

Reading the events, writing their records, making the forms of products and checking
tensor maps takes longer than a small launch.  All of it depends on the kernel, the
target and the size of shared memory only, so it is done once for all launches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property
from typing import TYPE_CHECKING

from fragmenta.base.arrays.forking import Lock
from fragmenta.base.arrays.once import once_property
from fragmenta.engine.units.event_table import EventTable, calls
from fragmenta.engine.units.events import (
    Described,
    Event,
    Plain,
    events,
    once_per_kernel,
)
from fragmenta.engine.units.known_maps import KnownMaps
from fragmenta.ptx import effects
from fragmenta.ptx.families import TENSOR_MEMORY

if TYPE_CHECKING:
    from fragmenta.engine.simt.wgmma_operands import Located
    from fragmenta.engine.units.tensor_forms import TensorForms
    from fragmenta.engine.units.tensor_ways import KnownMoves
    from fragmenta.engine.units.wgmma_forms import Forms

WATCHED = frozenset(
    {
        "apart",
        "collides",
        "exited",
        "location",
        "membermask",
        "past-the-end",
        "raced",
        "raced-rows",
        "unwritten",
        "undefined",
        "undefined-product",
        "fence",
        "membar",
    }
)
"""Events that change nothing; only an observer needs them."""


class Sized:
    """What depends on the target and on the size of shared memory, too."""

    def __init__(self, events: list[Event], target: str, shared: int) -> None:
        self._events, self._target, self._shared = events, target, shared
        self._tables: dict[tuple[frozenset[int] | None, bool], EventTable] = {}
        self._known: dict[int, int] = {}
        """Where the forms of events are that were used, by the number of the event."""
        self.lock = Lock()
        self.settled: set[bool] = set()
        """Whether clusters have run without Python: observed (False), or not (True)."""
        self.warpgroups: set[tuple[int, int]] = set()
        """The warpgroups that have issued products: rank of the block, and number."""

    @once_property
    def forms(self) -> Forms:
        """The forms of the products of ``wgmma``."""
        from fragmenta.engine.units.wgmma_forms import Forms

        return Forms(self._target, self._shared)

    @once_property
    def tensor_forms(self) -> TensorForms:
        """The forms of the products of ``tcgen05``."""
        from fragmenta.engine.units.tensor_forms import TensorForms

        return TensorForms(self._target)

    @once_property
    def tensor_moves(self) -> KnownMoves:
        """The loads and stores of tensor memory."""
        from fragmenta.engine.units.tensor_ways import KnownMoves

        return KnownMoves()

    @once_property
    def calls(self) -> frozenset[int]:
        """The functions of an observer that fast paths call, by slot."""
        return calls(self._events)

    def table(
        self, observed: Collection[int] | None, traced: bool = False
    ) -> EventTable:
        """The events in memory, as fast paths read them."""
        key = None if observed is None else frozenset(observed), traced
        found = self._tables.get(key)
        if found is None:  # several threads may be here: one table is kept
            found = self._tables.setdefault(
                key, EventTable(self._events, observed, traced)
            )
            for number, form in tuple(self._known.items()):
                found.know_form(number, form)
        return found

    def know_form(self, event: Event, form: int) -> None:
        """Let fast paths find the form of an event."""
        self._known.setdefault(event.number, form)
        for table in tuple(self._tables.values()):
            table.know_form(event.number, form)


class KernelUnits:
    """What the launches of a kernel share."""

    def __init__(self, described: list[list[Plain]], counted: list[list[str]]) -> None:
        self._described, self._counted = described, counted
        self.events = events(described)
        self._located: dict[int, Located] = {}
        self._sized: dict[tuple[str, int], Sized] = {}
        self._maps = KnownMaps()

    def sized(self, target: str, shared: int) -> Sized:
        """What depends on the target and the bytes of shared memory."""
        found = self._sized.get((target, shared))
        if found is None:
            made = Sized(self.events, target, shared)
            found = self._sized.setdefault((target, shared), made)
        return found

    @property
    def maps(self) -> KnownMaps:
        """The tensor maps that are known; a full table is given up for a new one."""
        if self._maps.full:
            self._maps = KnownMaps()
        return self._maps

    def located(self, event: Event, read: Callable[[list[Plain]], Located]) -> Located:
        """Where the operands of a product are, read once."""
        found = self._located.get(event.number)
        if found is None:
            given = self._described[event.number][2]
            assert isinstance(given, list)
            assert isinstance(given[0], list)
            found = self._located.setdefault(event.number, read(given[0]))
        return found

    @cached_property
    def asynchronous(self) -> bool:
        """Whether there is asynchronous work.

        Machine code makes ``cp.async`` by itself, if it is to be done at once.
        """
        if any(each.words[0] not in WATCHED for each in self.events):
            return True
        return any(each.startswith("cp.") for names in self._counted for each in names)

    @cached_property
    def on_tensor_cores(self) -> bool:
        """Whether some of it is done by Tensor Cores."""
        found = (effects.find(each.mnemonic) for each in self.events)
        return any(each is not None and each.on_tensor_cores for each in found)

    @cached_property
    def tensor(self) -> bool:
        """Whether the kernel uses tensor memory."""
        return any(each.words[0] in TENSOR_MEMORY for each in self.events)


@once_per_kernel
def kernel_units(compiled: Described) -> KernelUnits:
    """What all launches of a kernel share."""
    return KernelUnits(compiled.events, compiled.counted)
