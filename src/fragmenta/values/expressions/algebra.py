"""The expressions of one launch: names of inputs before it, hashes of results after it.

An input has a name for each element: the label of its array, and the number of the
element in it (:class:`Name`).  Memory without a name, such as that of whole numbers, is
taken as it is.  The planes of memory are kept between launches (:class:`Remembered`):
the results of one launch are the inputs of the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.engine.planes.algebra import Algebra
from fragmenta.engine.planes.elements import joined, split
from fragmenta.engine.simt.arguments import Arguments
from fragmenta.errors import BadCall
from fragmenta.values.expressions.code import hashing
from fragmenta.values.expressions.code.elements import LOW_WORD
from fragmenta.values.expressions.code.following import (
    ExpressionProbes,
    ExpressionStep,
    LoggedStep,
)
from fragmenta.values.expressions.code.hashing import Hash
from fragmenta.values.expressions.code.notes import (
    FIRST,
    KINDS,
    LOG_AT,
    LOG_SIZE,
    LOG_USED,
    NOTES,
)
from fragmenta.values.expressions.code.products import LOGGED, ProductHashes
from fragmenta.values.expressions.multiplying import UnitProducts, sites_of

if TYPE_CHECKING:
    from fragmenta.engine.planes.memory import PlaneObserver, PlaneWatch
    from fragmenta.engine.simt.context import Context
    from fragmenta.engine.units.blocks import Warp
    from fragmenta.engine.units.tcgen05 import QueuedMma
    from fragmenta.engine.units.warpgroups import Wgmma

Words = NDArray[np.uint64]
LOG_WORDS = 1 << 27
"""Words of a log, a gigabyte."""
LOG_MARGIN = 1 << 20
"""A log with less room than this may lack entries."""


@dataclass(frozen=True)
class Name:
    """The name of an array: its elements are ``label[start]`` and so on."""

    label: str
    start: int = 0
    """The number of the first element."""
    bits: int = 32
    """The bits of an element."""


@dataclass(frozen=True)
class Assumption:
    """What a proof depends on, at one instruction."""

    kind: str
    function: str
    index: int
    """The number of the instruction in its function."""


def input_words(name: Name, count: int) -> Words:
    """The words of second values of an array's elements: (elements, words).

    >>> input_words(Name("x"), 3).shape, input_words(Name("y", 0, 16), 3).shape
    ((3, 2), (3, 1))
    """
    numbers = np.arange(name.start, name.start + count, dtype=np.uint64)
    found = hashing.leaf(f"{name.label} of {name.bits} bits", numbers)
    if name.bits == 64:
        low = np.uint64(LOW_WORD)
        return np.stack([*found, *(each ^ low for each in found)], 1)
    if name.bits == 32:
        return np.stack(found, 1)
    return np.asarray(hashing.short(found))[:, None]


def result_hashes(bits: int, raw: Words, words: Words) -> Hash:
    """The hashes of elements in memory: constants where they have none.

    ``words`` are (elements, words); ``raw`` are the bits of the elements.
    """
    columns = [np.ascontiguousarray(words[:, n]) for n in range(words.shape[1])]
    if bits == 64:
        high = _of_halves(raw >> np.uint64(32), columns[0], columns[1])
        low = _of_halves(raw & np.uint64(0xFFFFFFFF), columns[2], columns[3])
        flip = np.uint64(LOW_WORD)
        alike = (low.u == high.u ^ flip) & (low.v == high.v ^ flip)
        alike &= (columns[0] | columns[1]) != 0
        mixed = hashing.operation("pair of words", [high, low])
        return Hash(np.where(alike, high.u, mixed.u), np.where(alike, high.v, mixed.v))
    if bits == 32:
        return _of_halves(raw, columns[0], columns[1])
    u = np.where(columns[0] == 0, hashing.constant(raw), columns[0])
    return hashing.widened(u)


def _of_halves(raw: Words, upper: Words, lower: Words) -> Hash:
    """As in :mod:`fragmenta.values.expressions.code.elements`, for arrays."""
    high, low = raw >> np.uint64(16), raw & np.uint64(0xFFFF)
    v = np.where((upper != 0) & (low == 0), lower, hashing.constant(low))
    u = np.where(upper == 0, hashing.constant(high), upper)
    return Hash(u, np.where(lower == 0, v, lower))


@dataclass(eq=False)
class Remembered:
    """The planes of some memory of this machine, from one launch to the next."""

    start: int
    planes: NDArray[np.uint8]
    """(planes, bytes)"""

    @classmethod
    def named(cls, start: int, size: int, planes: int, name: Name | None) -> Remembered:
        """Memory at an address whose elements have names."""
        made = np.zeros((planes, size), np.uint8)
        if name is not None:
            count = size * 8 // name.bits
            words = input_words(name, count)
            if name.bits >= 16 and planes > 4:
                more = words.shape[1] * (planes // 4 - 1)
                words = np.concatenate([words, np.zeros((count, more), np.uint64)], 1)
            found = split(words, name.bits, planes).view(np.uint8)
            made[:, : found.shape[1]] = found
        return cls(start, made)

    def _words(self, array: Array) -> Words:
        first = int(array.__array_interface__["data"][0]) - self.start
        there = np.ascontiguousarray(self.planes[:, first : first + array.nbytes])
        return joined(there, 8 * array.itemsize)

    def has(self, array: Array) -> NDArray[np.bool_]:
        """Which elements of an array have a hash, and are no constants."""
        return np.asarray(self._words(array).any(1))

    def of(self, array: Array) -> Hash:
        """The hashes of an array in this memory, one for each element."""
        flat = np.ascontiguousarray(array).reshape(-1).view(f"u{array.itemsize}")
        bits = 8 * array.itemsize
        return result_hashes(bits, flat.astype(np.uint64), self._words(array))


class Expressions(Algebra):
    """Follows the expressions of a launch through some memory."""

    name: ClassVar[str] = "expressions"
    step: ClassVar[type[ExpressionStep]] = ExpressionStep
    counts_losses: ClassVar[bool] = True

    def __init__(self, memories: Sequence[Remembered], planes: int = 4) -> None:
        super().__init__(planes)
        self.memories = memories
        self.notes: list[Assumption] = []
        self.clusters = 0
        """How many clusters the grid has, once it runs."""
        self.units = UnitProducts(self.products)

    def probes(self) -> ExpressionProbes:
        """A new instrument for the code of a kernel."""
        given = self.planes, self.granule, self.counts_losses
        return ExpressionProbes(self.step, *given)

    @property
    def products(self) -> ProductHashes:
        """The steps of Tensor Cores."""
        return ProductHashes(self.planes)

    def _shared(
        self, watch: PlaneWatch
    ) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.uint8]]]:
        """The same bytes in what is remembered and in the planes of the launch."""
        given: object = getattr(watch.launch, "arguments", None)
        if not isinstance(given, Arguments):
            raise BadCall("expressions are followed in the process of the launch")
        for segment, (start, stop) in zip(given.segments, given.spans, strict=True):
            for each in self.memories:
                first = max(start, each.start)
                last = min(stop, each.start + each.planes.shape[1])
                if first < last:
                    here = each.planes[:, first - each.start : last - each.start]
                    there = watch.memories[segment.slot]
                    yield here, there[:, first - start : last - start]

    def begin(self, watch: PlaneWatch) -> None:
        """Give the elements of arrays their names."""
        self.clusters = watch.launch.cluster_count
        for here, there in self._shared(watch):
            there[:] = here

    def context_table(
        self, watch: PlaneWatch, context: Context
    ) -> NDArray[np.uint8] | None:
        """The notes of a context."""
        size = FIRST + NOTES * len(sites_of(watch.compiled))
        made = np.zeros(8 * size, np.uint8)
        self.units.attach(watch, context, made)
        return made

    def product(
        self, observer: PlaneObserver, work: Wgmma | QueuedMma, warp: Warp
    ) -> None:
        """A ``wgmma`` or ``tcgen05.mma`` was issued."""
        self.units.multiply(observer, work, warp)

    def finish(self, watch: PlaneWatch) -> None:
        """Keep the planes of all memory, and the notes."""
        for here, there in self._shared(watch):
            here[:] = there
        if watch.tables:
            total = sum(each.view(np.int64) for each in watch.tables)
            self._read(np.asarray(total), sites_of(watch.compiled))

    def _read(self, total: NDArray[np.int64], sites: Sequence[tuple[str, int]]) -> None:
        counts = total[FIRST:].reshape(-1, NOTES)
        for number, kind in zip(*np.nonzero(counts), strict=True):
            self.notes.append(Assumption(KINDS[kind], *sites[number]))


class LoggedExpressions(Expressions):
    """The same, with a log of all operations: what trees are made from."""

    name: ClassVar[str] = LOGGED
    step: ClassVar[type[ExpressionStep]] = LoggedStep

    def __init__(self, memories: Sequence[Remembered], planes: int = 4) -> None:
        super().__init__(memories, planes)
        self.log: list[Words] = []
        self.full = False
        self.sites: list[tuple[str, int]] = []
        self._logs: list[tuple[NDArray[np.uint8], Words]] = []

    @property
    def products(self) -> ProductHashes:
        """The steps of Tensor Cores, which are logged, too."""
        return ProductHashes(self.planes, LOGGED)

    def context_table(
        self, watch: PlaneWatch, context: Context
    ) -> NDArray[np.uint8] | None:
        """The notes of a context, and its log."""
        made = super().context_table(watch, context)
        assert made is not None
        log = np.zeros(LOG_WORDS, np.uint64)  # memory that is not touched costs nothing
        head = made.view(np.uint64)
        head[LOG_AT], head[LOG_SIZE] = log.ctypes.data, log.size
        self._logs.append((made, log))
        return made

    def finish(self, watch: PlaneWatch) -> None:
        """Keep the log, too."""
        for table, log in self._logs:
            head = table.view(np.uint64)
            used = int(head[LOG_USED])
            self.log.append(log[:used].copy())
            self.full |= used + LOG_MARGIN > log.size
            head[:FIRST] = 0
        self._logs.clear()
        self.sites = sites_of(watch.compiled)
        super().finish(watch)
