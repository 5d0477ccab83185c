"""The engine: what a launch with numerics keeps, and what it finds at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.planes.algebra import Algebra
from fragmenta.engine.planes.code.flow import DOTS
from fragmenta.engine.planes.code.following import PlaneStep
from fragmenta.engine.planes.group_products import port_functions
from fragmenta.engine.simt import untouched
from fragmenta.engine.simt.compiled import address_of, aligned, sparse
from fragmenta.engine.simt.empties import empty_parts
from fragmenta.engine.simt.layout import LANES, POISON
from fragmenta.ptx.families import PERMUTATIONS
from fragmenta.ptx.module import Module
from fragmenta.values.numerics.code import keeping
from fragmenta.values.numerics.code import layout as at
from fragmenta.values.numerics.code.nodes import CONTEXT_BITS
from fragmenta.values.numerics.code.steps import (
    NumericsProbes,
    NumericsStep,
    StoppingStep,
)
from fragmenta.values.numerics.multiplying import LaunchProducts
from fragmenta.values.numerics.products import Chain, ProductStatistics, record_of
from fragmenta.values.numerics.seconds import (
    FORMATS,
    ArrayPlanes,
    Seconds,
    best_format,
    encoded,
)

if TYPE_CHECKING:
    from fragmenta.engine.planes.memory import PlaneObserver, PlaneWatch
    from fragmenta.engine.simt.arguments import Segment
    from fragmenta.engine.simt.context import Context
    from fragmenta.engine.units.blocks import Warp
    from fragmenta.engine.units.tcgen05 import QueuedMma
    from fragmenta.engine.units.warpgroups import Wgmma

_SMALL = ("e4m3", "e5m2", "e2m1", "e2m3", "e3m2", "ue8m0")
_BYTES = PERMUTATIONS | {"s8", "u8", "bfi"}
_ROUNDED = frozenset({"rni", "rzi", "rmi", "rpi"})
ALL_LANES = (1 << LANES) - 1
_KINDS = ("kind::f8f6f4", "kind::mxf8f6f4", "kind::mxf4", "kind::mxf4nvf4")


def _words(module: Module) -> set[str]:
    """All opcodes and qualifiers of the instructions of a module."""
    return {
        word
        for each in module.functions.values()
        for instruction in each.instructions
        for word in (instruction.opcode, *instruction.qualifiers)
    }


def planes_for(words: set[str]) -> tuple[int, int]:
    """How many planes a kernel needs, and the bits of its smallest elements.

    Bytes may stand for numbers if some are rounded, or multiplied as bytes.

    >>> planes_for({"f32", "rn"}), planes_for({"e4m3x2"}), planes_for({"e2m1x2"})
    ((4, 8), (8, 8), (8, 4))
    >>> planes_for({"rni", "s32", "u8"}), planes_for({"dp4a", "s32"})
    ((8, 8), (8, 8))
    """
    small = any(each.startswith(_SMALL) or each in _KINDS for each in words)
    small |= bool(words & DOTS) or bool(words & _ROUNDED and words & _BYTES)
    tiny = any(each.startswith("e2m1") or "f4" in each for each in words)
    return 8 if small else 4, 4 if tiny else 8


class NonFiniteNode(NamedTuple):
    """Where a NaN or an infinity was born, or passed."""

    number: int
    site: int
    kind: at.Birth
    parent: int
    operand: int
    times: int
    block: int
    thread: int
    time: int
    values: tuple[float, float, float]
    value: float
    unwritten: bool = False
    """Whether an operand is a word that nobody had written."""


@dataclass
class TrackedArray:
    """An array of a launch with its second values, as it was left."""

    segment: Segment
    before: dict[str, int]
    """How many elements were NaN or infinite before, and which came first."""
    changed: bool = False
    held: ArrayPlanes | None = None
    """Its floats with their second values, if it has any."""

    @property
    def seconds(self) -> Seconds | None:
        """The same, decoded."""
        return None if self.held is None else self.held.whole()


@dataclass
class NumericsRecord:
    """All that a launch with numerics found, as numbers."""

    places: list[tuple[str, int]] = field(default_factory=list)
    """The function and the index of each site."""
    records: dict[int, dict[str, float]] = field(default_factory=dict)
    """The record of each site that did something."""
    nodes: dict[int, NonFiniteNode] = field(default_factory=dict)
    lost_nodes: int = 0
    products: list[ProductStatistics] = field(default_factory=list)
    """What each instruction lost that multiplies matrices."""
    chain: Chain | None = None
    """The operands of one of their accumulators."""
    arrays: list[TrackedArray] = field(default_factory=list)
    kept: StoredSeconds | None = None
    """What was stored, in its order, if that is kept."""


class StoredSeconds(NamedTuple):
    """What lanes have stored with its second values: see :mod:`numerics.code.keeping`.

    What another context has stored is in a log of its own.
    """

    logs: list[NDArray[np.uint8]]
    """The rows of each context."""
    planes: int
    places: list[tuple[str, int]]
    """The function and the index of each site."""
    lost: bool
    """Whether there was no room for some of them."""


class NumericsAlgebra(Algebra):
    """Nearly exact values beside all floats of one launch."""

    name: ClassVar[str] = "numerics"
    step: ClassVar[type[PlaneStep]] = NumericsStep
    counts_losses: ClassVar[bool] = True

    def __init__(self, planes: int = 4, granule: int = 8) -> None:
        super().__init__(planes, granule)
        self.found = NumericsRecord()
        self._tables: list[NDArray[np.uint8]] = []
        self._nodes: list[NDArray[np.uint8]] = []
        self._times: list[NDArray[np.uint8]] = []
        self._directory = np.zeros(at.MOST_CONTEXTS, np.int64)
        self._sums: list[int] = []
        self._products = LaunchProducts(planes)
        self.exact_sites: frozenset[int] | None = None
        """Sites whose errors second values leave out; None: those of all sites."""
        self.exact_inputs: dict[str, NDArray[np.float64]] = {}
        """What elements of arrays stand for exactly, by the name of the array."""

    def probes(self) -> NumericsProbes:
        """A new instrument for the code of a kernel."""
        given = self.step, self.planes, self.granule, self.counts_losses
        return NumericsProbes(*given)

    @classmethod
    def of(cls, module: Module, planes: int = 0) -> NumericsAlgebra:
        """The algebra for the kernels of a module."""
        from fragmenta.values.numerics import births  # it registers an event

        assert births
        wanted, granule = planes_for(_words(module))
        return cls(planes or wanted, granule)

    def begin(self, watch: PlaneWatch) -> None:
        """Look at the arrays before the launch."""
        for each in watch.launch.places:
            self.found.arrays.append(TrackedArray(each, _specials(each)))
            self._sums.append(_sum(each))
            exact = self.exact_inputs.get(each.name)
            if exact is not None and each.elements is not None:
                planes = watch.memories[each.slot]
                encoded(each.data, exact, FORMATS[each.elements.type], planes)

    def context_table(
        self, watch: PlaneWatch, context: Context
    ) -> NDArray[np.uint8] | None:
        """A table for the code of a context."""
        sites = len(watch.compiled.followed)
        table = aligned(at.HEAD + at.RECORD * max(1, sites))
        number = len(self._tables)
        nodes = sparse(at.NODE_BYTES * at.MOST_NODES)
        times = sparse(8 * max(1, sites * watch.launch.shape.warps))
        self._directory[number] = address_of(nodes)
        words = table.view(np.int64)
        for place, value in (
            (at.NODES, address_of(self._directory)),
            (at.FIRST_NODE, number << CONTEXT_BITS),
            (at.NODE_COUNT, 1),
            (at.TIMES, address_of(times)),
            (at.WARPS, watch.launch.shape.warps),
        ):
            words[place // 8] = value
        if self.exact_sites is not None:
            rows = table[at.HEAD :].view(np.float64).reshape(-1, len(at.FIELDS))
            rows[:, at.FIELDS.index("kept")] = 1.0
            rows[list(self.exact_sites), at.FIELDS.index("kept")] = 0.0
        self._tables.append(table)
        self._nodes.append(nodes)
        self._times.append(times)
        self._products.attach(watch, context, table)
        return table

    def port_functions(self) -> Mapping[int, int]:
        """``wgmma`` does not need Python."""
        return port_functions()

    def product(
        self, observer: PlaneObserver, work: Wgmma | QueuedMma, warp: Warp
    ) -> None:
        """A ``wgmma`` or ``tcgen05.mma`` was issued."""
        self._products.multiply(observer, work, warp)

    def births_at(self, site: int) -> list[NonFiniteNode]:
        """The births at a site so far, while the launch runs."""
        found: list[NonFiniteNode] = []
        for number, (table, nodes) in enumerate(
            zip(self._tables, self._nodes, strict=True)
        ):
            count = int(table.view(np.int64)[at.NODE_COUNT // 8])
            found += _nodes(number, nodes, count).values()
        born = (at.Birth.OVERFLOW, at.Birth.DIVISION, at.Birth.INVALID)
        return [each for each in found if each.site == site and each.kind in born]

    def finish(self, watch: PlaneWatch) -> None:
        """The launch has ended: keep what was found."""
        found = self.found
        found.places = [(name, index) for name, index in watch.compiled.followed]
        found.records = merged([_records(each) for each in self._tables])
        digests = _digests(self._tables)
        for number, (table, nodes) in enumerate(
            zip(self._tables, self._nodes, strict=True)
        ):
            head = table.view(np.int64)
            found.lost_nodes += int(head[at.LOST_NODES // 8])
            found.nodes |= _nodes(number, nodes, int(head[at.NODE_COUNT // 8]))
        for each, before in zip(found.arrays, self._sums, strict=True):
            planes = watch.memories[each.segment.slot]
            each.changed = _sum(each.segment) != before
            first = _first(each.segment, planes) if each.segment.writable else -1
            if not each.segment.writable or not (each.changed or first >= 0):
                continue
            name = _format(each.segment, planes, first)
            if name:
                each.held = ArrayPlanes.of(each.segment.data, planes, name)
        found.products = self._products.statistics()
        found.chain = self._products.chain()
        for one in found.products:
            found.records[one.number] = record_of(one)
        for number, record in found.records.items():
            record["digest"] = int(digests[number])
        self._products = LaunchProducts(self.planes)
        self._tables, self._nodes, self._times = [], [], []


MOST_KEPT = 1 << 25
"""Bytes of what a context has stored that are kept."""


class KeepingAlgebra(NumericsAlgebra):
    """The same; what lanes store is kept with its second values, in its order."""

    name: ClassVar[str] = "numerics-keeps"
    step: ClassVar[type[PlaneStep]] = keeping.KeepingStep

    def __init__(self, planes: int = 4, granule: int = 8) -> None:
        super().__init__(planes, granule)
        self._logs: list[NDArray[np.uint8]] = []

    def context_table(
        self, watch: PlaneWatch, context: Context
    ) -> NDArray[np.uint8] | None:
        """A table for the code of a context, with a log."""
        table = super().context_table(watch, context)
        assert table is not None
        log = sparse(MOST_KEPT)
        words = log[: keeping.LOG_HEAD].view(np.int64)
        words[keeping.USED // 8] = keeping.LOG_HEAD
        words[keeping.ROOM // 8] = MOST_KEPT
        table.view(np.int64)[at.KEPT // 8] = address_of(log)
        self._logs.append(log)
        return table

    def finish(self, watch: PlaneWatch) -> None:
        """The launch has ended: keep the logs, too."""
        super().finish(watch)
        rows, lost = [], False
        for each in self._logs:
            words = each[: keeping.LOG_HEAD].view(np.int64)
            used = int(words[keeping.USED // 8])
            rows.append(each[keeping.LOG_HEAD : used].copy())
            lost |= bool(words[keeping.LOST // 8])
        self._logs = []
        self.found.kept = StoredSeconds(rows, self.planes, self.found.places, lost)


class StoppingAlgebra(NumericsAlgebra):
    """The same; the birth of a NaN or of an infinity stops the launch."""

    name: ClassVar[str] = "numerics-stops"
    step: ClassVar[type[PlaneStep]] = StoppingStep

    def port_functions(self) -> Mapping[int, int]:
        """``wgmma`` is Python's: it looks for births after each."""
        return {}

    def product(
        self, observer: PlaneObserver, work: Wgmma | QueuedMma, warp: Warp
    ) -> None:
        """A ``wgmma`` or ``tcgen05.mma`` was issued: it may stop the launch."""
        from fragmenta.values.numerics.births import stopped

        super().product(observer, work, warp)
        number = self._products.number_of(observer, work)
        nodes = [] if number is None else self.births_at(number)
        if nodes and number is not None:
            raise stopped(nodes, number, work.site, warp, ALL_LANES)


def _sum(segment: Segment) -> int:
    """A number that changes if an array does."""
    return untouched.digest(segment.data) if segment.writable else 0


def _first(segment: Segment, planes: NDArray[np.uint8]) -> int:
    """The first byte that has a second value, which was touched; -1 if none has."""
    for part in untouched.touched(segment.data):
        there = planes[:, part]
        if there.any():
            return int(part.start) + int(there.any(axis=0).argmax())
    return -1


def _format(segment: Segment, planes: NDArray[np.uint8], first: int) -> str:
    """The format of the floats of an array; empty if it has none.

    ``first`` is the first byte that has a second value.
    """
    named = "" if segment.elements is None else segment.elements.type
    if named in FORMATS:
        return FORMATS[named]
    if named.startswith(("int64", "bool", "complex")) or first < 0:
        return ""
    return best_format(segment.data, planes, first)


def _specials(segment: Segment) -> dict[str, int]:
    """How many elements are NaN or infinite, and the first of them."""
    named = "" if segment.elements is None else segment.elements.type
    if named not in FORMATS:
        return {}
    found: dict[str, int] = {}
    none = np.zeros((0, segment.data.size), np.uint8)
    for first, part in ArrayPlanes(segment.data, none, FORMATS[named]).parts():
        nan, infinite = np.isnan(part.values), np.isinf(part.values)
        for name, where in (("nan", nan), ("infinite", infinite)):
            if where.any():
                found.setdefault(f"first_{name}", first + int(np.argmax(where)))
                found[name] = found.get(name, 0) + int(where.sum())
    unwritten = sum(
        int(
            (
                segment.data[first : last // 4 * 4 + first % 4].view(np.uint32)
                == POISON
            ).sum()
        )
        for first, last in empty_parts(segment.data)
        if first % 4 == 0 and (last - first) % 4 == 0
    )
    if unwritten:
        found["unwritten"] = unwritten
    return found


def _records(table: NDArray[np.uint8]) -> dict[int, dict[str, float]]:
    """The records of a context that are not empty."""
    rows = table[at.HEAD :].view(np.int64).reshape(-1, len(at.FIELDS))
    found = {}
    for number in np.flatnonzero(rows[:, 0]):
        row = rows[number]
        found[int(number)] = {
            name: int(row[i])
            if name in at.WHOLE
            else float(row[i : i + 1].view(np.float64)[0])
            for i, name in enumerate(at.FIELDS)
        }
    return found


def _digests(tables: list[NDArray[np.uint8]]) -> NDArray[np.int64]:
    """The sum of the bits of all results, for each site."""
    column = at.FIELDS.index("digest")
    rows = [
        each[at.HEAD :].view(np.int64).reshape(-1, len(at.FIELDS))[:, column]
        for each in tables
    ]
    with np.errstate(over="ignore"):
        found: NDArray[np.int64] = np.sum(rows, axis=0, dtype=np.int64)
    return found


_WORST = at.FIELDS[at.FIELDS.index("a") : at.FIELDS.index("time") + 1]
_OTHER = at.FIELDS[
    at.FIELDS.index("other_block") : at.FIELDS.index("other_exact_b") + 1
]


def merged(tables: list[dict[int, dict[str, float]]]) -> dict[int, dict[str, float]]:
    """The records of all contexts together."""
    total: dict[int, dict[str, float]] = {}
    for table in tables:
        for number, record in table.items():
            old = total.get(number)
            total[number] = dict(record) if old is None else _both(old, record)
    return total


def _both(old: dict[str, float], new: dict[str, float]) -> dict[str, float]:
    made: dict[str, Any] = {}
    for name in at.FIELDS:
        summed = name in at.COUNTS or name == "added"
        made[name] = old[name] + new[name] if summed else max(old[name], new[name])
    worst = old if old["worst_relative"] >= new["worst_relative"] else new
    made |= {name: worst[name] for name in _WORST}
    first = old
    if not old["other_way"] or (
        new["other_way"] and new["other_block"] < old["other_block"]
    ):
        first = new
    return made | {name: first[name] for name in _OTHER}


def _nodes(
    context: int, memory: NDArray[np.uint8], count: int
) -> dict[int, NonFiniteNode]:
    rows = memory.view(np.int64)[: count * len(at.NODE_FIELDS)]
    table = rows.reshape(-1, len(at.NODE_FIELDS))
    found = {}
    for index in range(1, count):
        row = table[index]
        floats = row[-4:].view(np.float64)
        number = (context << CONTEXT_BITS) + index
        site, kind, parent, operand, times, block, thread, time = map(int, row[:8])
        operands = floats[:3]
        poison = operands[operand : operand + 1].copy()
        found[number] = NonFiniteNode(
            number,
            site,
            at.Birth(kind),
            parent,
            operand,
            times,
            block,
            thread,
            time,
            (float(floats[0]), float(floats[1]), float(floats[2])),
            float(floats[3]),
            kind == at.Birth.GIVEN and _is_poison(poison),
        )
    return found


def _is_poison(value: NDArray[np.float64]) -> bool:
    """Whether a NaN has the bits of words that nobody had written."""
    words = np.array([POISON], np.uint32)
    single = words.view(np.float32).astype(np.float64).view(np.uint64)[0]
    bits = value.view(np.uint64)[0]
    return bool(bits == single)
