"""Tensor maps in global memory that earlier launches used or wrote.

Copies read a tensor map through the tensormap proxy, which may keep the map that it
has read before.  The start of a kernel does not change that: whoever uses a map that
was written since has to acquire it (``fence.proxy.tensormap::generic.acquire``), also
if an earlier kernel or the host wrote it.  Maps among the parameters of a kernel are
always up to date.

So the maps that a watched launch used, and those that it wrote, are known to later
launches in the same process, as long as the array exists.  Two things are reported:
another map is where an earlier launch used one, and a map that a kernel wrote is used
as that kernel left it.  A map in memory that no launch has used or written is not: no
proxy can have kept anything of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.layout import SLOT_BITS
from fragmenta.reference.shared.tensor_map import BYTES as MAP_BYTES

if TYPE_CHECKING:
    from fragmenta.engine.units.observing import Launch
    from fragmenta.watch.races.global_watch import GlobalWatch

MOST = 1024
"""Maps that were used, and ranges that were written: the oldest are forgotten."""
SMALL = 1 << 14
"""Bytes of an array in which ordinary stores are remembered, since it may hold maps."""
WORD = 4
_FENCE = "no fence.proxy.tensormap::generic.acquire comes before that"
ACQUIRE = (
    "Execute fence.proxy.tensormap::generic.acquire for the map in every block, before "
    "its first copy; or pass the map as a parameter."
)
WAIT_FOR_COPY = (
    "Wait for that copy before the change: for the phase of its mbarrier, or with "
    "cp.async.bulk.wait_group."
)


class Used(NamedTuple):
    """A map that a launch used."""

    owner: weakref.ref[NDArray[np.uint8]]
    kernel: str
    map: bytes


class Wrote(NamedTuple):
    """Memory that a launch wrote."""

    owner: weakref.ref[NDArray[np.uint8]]
    kernel: str
    data: NDArray[np.uint8]
    """What it left there."""
    words: NDArray[np.bool_]
    """Which words it wrote, and nobody has acquired since."""


EntryT = TypeVar("EntryT", Used, Wrote)


class HostHistory(NamedTuple):
    """What is known of the memory of the host, by address; the oldest first."""

    used: dict[int, Used]
    wrote: dict[int, Wrote]

    def add(self, more: HostHistory) -> None:
        """Add what a launch did."""
        with _LOCK:
            _put(self.used, more.used)
            _put(self.wrote, more.wrote)

    def writer(self, owner: NDArray[np.uint8], at: int, now: bytes) -> str:
        """The kernel that wrote a map, if it is still as that kernel left it."""
        for start, each in reversed(list(self.wrote.items())):
            place = at - start
            inside = 0 <= place <= each.data.size - MAP_BYTES
            if not inside or each.owner() is not owner:
                continue
            if each.words[place // WORD :][: MAP_BYTES // WORD].all():
                same = each.data[place : place + MAP_BYTES].tobytes() == now
                return each.kernel if same else ""
        return ""

    def acquire(self, at: int) -> None:
        """A launch has acquired a map."""
        for start, each in list(self.wrote.items()):
            if start <= at < start + each.data.size:
                each.words[(at - start) // WORD :][: MAP_BYTES // WORD] = False


def _put(known: dict[int, EntryT], more: dict[int, EntryT]) -> None:
    for at, each in more.items():
        known.pop(at, None)
        known[at] = each
    while len(known) > MOST:
        del known[next(iter(known))]


KNOWN = HostHistory({}, {})
"""What earlier launches did."""
_LOCK = Lock()


class MapHistory:
    """The tensor maps of a launch, compared with those of earlier launches."""

    def __init__(self, launch: Launch) -> None:
        self._kernel = launch.compiled.kernel
        self._places = {each.slot: each for each in launch.places}
        self._used: dict[int, bytes] = {}
        self._changed: set[int] = set()
        self._acquired: set[int] = set()

    def use(self, address: int) -> str:
        """A copy uses a map that was neither acquired nor written by this launch.

        The result says what is wrong with that.
        """
        found = self._note(address)
        if found is None:
            return ""
        owner, at, now = found
        writer, used = KNOWN.writer(owner, at, now), KNOWN.used.get(at)
        if writer:
            return (
                f"a copy uses a tensor map that the kernel {writer} wrote in an "
                f"earlier launch, and {_FENCE}"
            )
        if used is not None and used.owner() is owner and used.map != now:
            return (
                "a copy uses a tensor map in global memory, where the kernel "
                f"{used.kernel} used another one in an earlier launch, and {_FENCE}: "
                "the copy may still use the earlier one"
            )
        return ""

    def acquired(self, address: int) -> None:
        """A copy uses a map that was acquired."""
        self._note(address)
        self._acquired.add(address)

    def change(self, address: int) -> None:
        """The launch changes a map."""
        self._changed.add(address)

    def _note(self, address: int) -> tuple[NDArray[np.uint8], int, bytes] | None:
        """A map is used: its owner, its address in the host's memory, and its bytes."""
        segment = self._places.get(address >> SLOT_BITS)
        owner = None if segment is None else _owner(segment.data)
        if segment is None or owner is None:
            return None
        place = address & (1 << SLOT_BITS) - 1
        now = segment.data[place : place + MAP_BYTES].tobytes()
        self._used[address] = now
        return owner, int(segment.data.ctypes.data) + place, now

    def known(self, memory: GlobalWatch) -> HostHistory:
        """The launch has ended: what later ones are to know."""
        made = HostHistory({}, {})
        for slot, segment in self._places.items():
            owner, start = _owner(segment.data), int(segment.data.ctypes.data)
            if owner is None:
                continue
            ref = weakref.ref(owner)
            words = memory.records.get(slot)
            small = MAP_BYTES <= segment.data.size <= SMALL and segment.writable
            if small and words is not None and words.any():
                stored = words[: segment.data.size // WORD] != 0
                data = segment.data.copy()
                made.wrote[start] = Wrote(ref, self._kernel, data, stored)
            for place in self._in(slot, self._changed):
                data = segment.data[place : place + MAP_BYTES].copy()
                whole = np.ones(MAP_BYTES // WORD, np.bool_)
                made.wrote[start + place] = Wrote(ref, self._kernel, data, whole)
            for place in self._in(slot, self._used):
                used = self._used[(slot << SLOT_BITS) + place]
                made.used[start + place] = Used(ref, self._kernel, used)
            for place in self._in(slot, self._acquired):
                KNOWN.acquire(start + place)
                made.acquire(start + place)
        return made

    @staticmethod
    def _in(slot: int, addresses: set[int] | dict[int, bytes]) -> Iterator[int]:
        """Those of some addresses that are in an array, as places there."""
        for each in sorted(addresses):
            if each >> SLOT_BITS == slot:
                yield each & (1 << SLOT_BITS) - 1


def _owner(data: NDArray[np.uint8]) -> NDArray[np.uint8] | None:
    """The array that has the memory of a view; None if it is not an array."""
    while isinstance(data.base, np.ndarray):
        data = data.base
    return data if data.base is None else None
