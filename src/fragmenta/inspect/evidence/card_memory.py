"""The memory of a recorded launch: where it was on the card, and where it is here.

A recording of a program has its memory as the card had it, with pointers in it: in
structs, in arrays of pointers, in tensor maps.  Here each allocation has an address of
its own.  A word of memory, or of the parameters, whose value is an address inside of a
recorded allocation, or the one just behind it, counts as a pointer and is moved with
the allocation.  Words are those at multiples of eight bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt import layout
from fragmenta.engine.simt.arguments import Received, Segment
from fragmenta.engine.simt.program import parameter_offsets, variable_addresses
from fragmenta.errors import BadFile, ValueRangeError, one_of
from fragmenta.inspect.evidence.arguments import Spec
from fragmenta.launch.kernel import Kernel

Bytes = NDArray[np.uint8]


class CardAllocation(NamedTuple):
    """An allocation, or a variable of the module, that a launch could reach."""

    name: str
    """That of a variable, or what reports call it."""
    address: int
    """Where it was on the card."""
    variable: bool
    array: Spec


class Addresses:
    """Parts of memory: their first addresses and sizes, and where they are here.

    >>> there = Addresses([(0x7000, 64), (0x9000, 64)], [1 << 36, 2 << 36])
    >>> words = np.array([5, 0x9008, 0x9040, 0x9041], np.uint64)
    >>> there.holders(words).tolist()
    [-1, 1, 1, -1]
    >>> [hex(word) for word in there.moved(words.view(np.uint8)).view(np.uint64)]
    ['0x5', '0x2000000008', '0x2000000040', '0x9041']
    """

    def __init__(
        self, parts: Sequence[tuple[int, int]], here: Sequence[int] = ()
    ) -> None:
        # What has no bytes holds nothing: a null pointer does not point to it.
        there = [index for index, (_, size) in enumerate(parts) if size]
        order = sorted(there, key=lambda index: parts[index][0])
        self._numbers = np.array(order, np.int64)
        self._starts = np.array([parts[index][0] for index in order], np.uint64)
        self._sizes = np.array([parts[index][1] for index in order], np.uint64)
        self._here = np.array([here[i] for i in order] if here else [], np.uint64)

    def _candidates(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Places of words that may be pointers: those between the ends of all parts."""
        if not self._starts.size:
            return np.zeros(0, np.int64)
        last = self._starts[-1] + self._sizes[-1]
        return np.flatnonzero((words >= self._starts[0]) & (words <= last))

    def _found(
        self, words: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The places of pointers, and the parts that they point into."""
        places = self._candidates(words)
        part = np.searchsorted(self._starts, words[places], "right") - 1
        inside = words[places] - self._starts[part] <= self._sizes[part]
        return places[inside], part[inside]

    def holders(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The number of the part that each word points into; -1 for none."""
        made = np.full(words.shape, -1, np.int64)
        places, part = self._found(words)
        made[places] = self._numbers[part]
        return made

    def reached(self, data: Bytes) -> list[int]:
        """The numbers of the parts that pointers in some bytes point into."""
        _, part = self._found(words_of(data))
        return [int(number) for number in np.unique(self._numbers[part])]

    def moved(self, data: Bytes) -> Bytes:
        """A copy of bytes whose pointers point to where the parts are here."""
        made = data.copy()
        words = words_of(made)
        places, part = self._found(words)
        words[places] += self._here[part] - self._starts[part]
        return made


def words_of(data: Bytes) -> NDArray[np.uint64]:
    """The whole words of some bytes; they may be changed if the bytes are aligned."""
    return data[: data.size // 8 * 8].view(np.uint64)


class Placed:
    """The memory of a recorded launch, ready to be launched here."""

    def __init__(
        self, kernel: Kernel, memory: Sequence[CardAllocation], arrays: Sequence[Bytes]
    ) -> None:
        self.kernel, self.memory = kernel, memory
        self.addresses = Addresses(
            [(m.address, a.size) for m, a in zip(memory, arrays, strict=True)],
            _here(kernel, memory),
        )
        self.arrays = [self.addresses.moved(each) for each in arrays]

    def given(self, parameters: Sequence[bytes]) -> Received:
        """What ``kernel.launch`` takes; the variables of the module are set, too."""
        offsets = list(parameter_offsets(self.kernel.function).values())
        _check_sizes(self.kernel, parameters)
        whole = bytearray(8)
        for offset, data in zip(offsets, parameters, strict=True):
            whole += bytes(max(0, offset + len(data) - len(whole)))
            whole[offset : offset + len(data)] = data
        whole += bytes(-len(whole) % 8)
        self.kernel.loaded.renew(
            {
                each.name: data.tobytes()
                for each, data in zip(self.memory, self.arrays, strict=True)
                if each.variable
            }
        )
        free = iter(range(layout.FIRST_ARGUMENT, layout.FIRST_VARIABLE))
        segments = [
            Segment(each.name, data, True, next(free))
            for each, data in zip(self.memory, self.arrays, strict=True)
            if not each.variable
        ]
        moved = self.addresses.moved(np.frombuffer(bytes(whole), np.uint8))
        return Received(segments, moved.tobytes())

    def after(self) -> list[Bytes]:
        """The memory as a launch left it."""
        kept = self.kernel.loaded.kept
        return [
            np.frombuffer(kept[each.name], np.uint8) if each.variable else data
            for each, data in zip(self.memory, self.arrays, strict=True)
        ]


def _check_sizes(kernel: Kernel, parameters: Sequence[bytes]) -> None:
    """Refuse parameters that are not as many bytes as the kernel's."""
    has = [each.size for each in kernel.function.parameters]
    given = [len(each) for each in parameters]
    if given != has:
        raise BadFile(
            f"{kernel.function.shown} has parameters of {one_of(has, 'and') or 'no'} "
            f"bytes; given {one_of(given, 'and') or 'none'}"
        )


def _here(kernel: Kernel, memory: Sequence[CardAllocation]) -> list[int]:
    """Where memory is here: allocations in their order, variables as compiled."""
    held = variable_addresses(kernel.loaded.module)
    variables = kernel.loaded.module.variables
    slots = range(layout.FIRST_ARGUMENT, layout.FIRST_VARIABLE)
    found, used = [], 0
    for each in memory:
        if each.variable:
            known = variables.get(each.name)
            if known is None or known.space not in ("global", "const"):
                raise BadFile(f"the PTX has no variable {each.name:.80}")
            found.append(held.get(each.name, 0))
            continue
        if used == len(slots):
            raise ValueRangeError(f"a launch has at most {len(slots):,} allocations")
        found.append(slots[used] << layout.SLOT_BITS)
        used += 1
    return found
