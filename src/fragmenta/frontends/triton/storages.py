"""What is known about the storages of PyTorch's tensors: marks, and addresses.

All tensors are in this machine's memory.  Which of them a program believes to be on the
GPU is a mark of their storage:

    DEVICE   made with ``device="cuda"``, moved there, or computed from such tensors
    HOST     made with ``device="cpu"``, moved there, or computed from such only
    none     all others; they count as tensors on the GPU

A grouped product takes a tensor of pointers: a program writes ``tensor.data_ptr()`` of
its matrices there.  Addresses of a kernel are virtual.  So ``data_ptr()`` gives a
virtual address: each storage that is asked for its address has a slot of its own, as
long as it lives.  A launch gets the memory of those storages whose addresses are in
what it was given.  No other address leads anywhere.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from triton import knobs

from fragmenta.base.arrays.forking import Lock
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt import empties, layout
from fragmenta.engine.simt.arguments import Pointer
from fragmenta.errors import ValueRangeError

if TYPE_CHECKING:
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef

DEVICE, HOST = "cuda", "cpu"
_MASK = layout.FIRST_SLOT - 1


def _watched(storage: torch.UntypedStorage) -> StorageWeakRef:
    """A reference that does not keep a storage, but its number from other storages."""
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(storage)


# ── marks ───────────────────────────────────────────────────────────────────


class Marks:
    """The marks of storages, as long as these live; see :data:`MARKS`."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, StorageWeakRef]] = {}
        self._most = 1024

    def of(self, tensor: torch.Tensor) -> str | None:
        """The mark of a tensor's storage."""
        if not self._known or not _has_storage(tensor):
            return None
        found = self._known.get(tensor.untyped_storage()._cdata)
        return None if found is None or found[1].expired() else found[0]

    def set(self, tensor: torch.Tensor, mark: str) -> None:
        """Mark the storage of a tensor."""
        if not _has_storage(tensor):
            return
        if len(self._known) > self._most:
            alive = [e for e in self._known.items() if not e[1][1].expired()]
            self._known = dict(alive)
            self._most = 1024 + 2 * len(alive)
        storage = tensor.untyped_storage()
        self._known[storage._cdata] = mark, _watched(storage)


def _has_storage(tensor: torch.Tensor) -> bool:
    """Whether it is a tensor with memory, and not of a class that stands for one."""
    plain = type(tensor).__name__ in ("Tensor", "Parameter")
    return plain and not tensor.is_sparse and hasattr(tensor, "untyped_storage")


MARKS = Marks()
"""The marks of this process."""


# ── memory that nobody has written ──────────────────────────────────────────


class Empties:
    """Storages that nobody has written, as long as these live; see :data:`EMPTIES`."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[NDArray[np.uint8], StorageWeakRef]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Fill a new storage, and let what stays so count as unwritten."""
        if not _has_storage(tensor):
            return
        storage = tensor.untyped_storage()
        start, size = int(storage.data_ptr()), int(storage.nbytes())
        if start and 4 <= size <= MOST_FILLED:
            self.forget()
            found = (ctypes.c_uint8 * size).from_address(start)
            memory = np.ctypeslib.as_array(found)
            memory[:] = empties.poison(size)
            empties.count_as_empty(memory)
            self._known[storage._cdata] = memory, _watched(storage)

    def forget(self) -> None:
        """Forget storages that are gone: others may have their memory."""
        gone = [key for key, (_, alive) in self._known.items() if alive.expired()]
        for key in gone:
            del self._known[key]


MOST_FILLED = 1 << 26
"""Larger memory is not filled, and does not count as unwritten: that takes too long."""
EMPTIES = Empties()
"""The storages of ``torch.empty`` in this process."""


# ── addresses ───────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _Known:
    """A storage that was asked for its address."""

    slot: int
    alive: StorageWeakRef
    start: int
    size: int

    def memory(self) -> Pointer:
        """Its bytes, at its address."""
        found = (ctypes.c_uint8 * self.size).from_address(self.start)
        return Pointer(np.ctypeslib.as_array(found), 0, slot=self.slot)


class Addresses:
    """The virtual addresses of storages; see :data:`ADDRESSES`."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        """By slot."""
        self._slots: dict[int, int] = {}
        """By the storage."""
        self._lock = Lock()
        self._local = threading.local()

    @contextmanager
    def real(self) -> Iterator[None]:
        """In this block and thread, tensors have the addresses of this machine."""
        before = getattr(self._local, "real", False)
        self._local.real = True
        try:
            yield
        finally:
            self._local.real = before

    def of(self, tensor: torch.Tensor) -> int:
        """What ``tensor.data_ptr()`` is."""
        real = int(tensor.data_ptr())
        if getattr(self._local, "real", False) or knobs.runtime.interpret or not real:
            return real  # Triton's interpreter reads memory by itself
        storage = tensor.untyped_storage()
        start, size = int(storage.data_ptr()), int(storage.nbytes())
        with self._lock:
            self._forget()
            key = storage._cdata
            if key not in self._slots or self._moved(key, start, size):
                slot = self._slots.get(key) or self._free()
                self._known[slot] = _Known(slot, _watched(storage), start, size)
                self._slots[key] = slot
            return (self._slots[key] << layout.SLOT_BITS) + real - start

    def true(self, address: int) -> int:
        """The address of this machine, of one that :meth:`of` may have given."""
        with self._lock:
            self._forget()
            known = self._known.get(address >> layout.SLOT_BITS)
        place = address & _MASK
        inside = known is not None and place <= known.size
        return known.start + place if known is not None and inside else address

    def _moved(self, key: int, start: int, size: int) -> bool:
        """Whether a storage has other memory than before: it was resized."""
        known = self._known[self._slots[key]]
        return (known.start, known.size) != (start, size)

    def _free(self) -> int:
        """A slot for one more storage, from the last one down."""
        every = range(layout.FIRST_VARIABLE - 1, layout.FIRST_ARGUMENT - 1, -1)
        found = next((slot for slot in every if slot not in self._known), None)
        if found is None:
            raise ValueRangeError(
                f"data_ptr() was asked of {len(every):,} tensors that are alive; that "
                "is the most"
            )
        return found

    def _forget(self) -> None:
        """Free the slots of storages that are gone."""
        for key, slot in list(self._slots.items()):
            if self._known[slot].alive.expired():
                del self._known[slot], self._slots[key]

    def reached(self, memory: Iterable[NDArray[np.generic]]) -> tuple[Pointer, ...]:
        """The storages whose addresses are in memory.

        What is in them is looked through, too: a pointer may lead to pointers.
        """
        with self._lock:
            self._forget()
            known = dict(self._known)
        if not known:
            return ()
        found: dict[int, Pointer] = {}
        todo = [*map(_words, memory)]
        while todo:
            for slot in _slots_in(todo.pop(), known):
                if slot not in found:
                    found[slot] = known[slot].memory()
                    todo.append(_words(found[slot].array))
        return tuple(found.values())


def _words(memory: NDArray[np.generic]) -> NDArray[np.uint64]:
    """The words of eight bytes in memory, from its first aligned address on."""
    flat = memory.reshape(-1).view(np.uint8)
    skipped = -flat.ctypes.data % 8
    return flat[skipped : skipped + (flat.size - skipped) // 8 * 8].view(np.uint64)


def _slots_in(words: NDArray[np.uint64], known: dict[int, _Known]) -> list[int]:
    """The slots of the storages that words are addresses in."""
    low, high = min(known) << layout.SLOT_BITS, (max(known) + 1) << layout.SLOT_BITS
    near = words[(words >= low) & (words < high)]
    found = []
    for slot in np.unique(near >> np.uint64(layout.SLOT_BITS)).tolist():
        mine = near[near >> np.uint64(layout.SLOT_BITS) == slot]
        if slot in known and int((mine & np.uint64(_MASK)).min()) <= known[slot].size:
            found.append(int(slot))
    return found


ADDRESSES = Addresses()
"""The addresses of this process.  A virtual address means the same in each context."""
