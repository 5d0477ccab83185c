"""The report of a launch with numerics, made from what its engine found.

Numbers of sites, threads and nodes become the records of
:mod:`fragmenta.values.numerics.report`, which have names, places and texts.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fragmenta.engine.simt.context import Grid
from fragmenta.ptx.languages import PTX, Words
from fragmenta.ptx.module import Instruction, Module
from fragmenta.ptx.sources import source_lines
from fragmenta.values.numerics.code.constants import constant_of
from fragmenta.values.numerics.code.elements import KINDS, MOST_SOURCES
from fragmenta.values.numerics.code.layout import Birth
from fragmenta.values.numerics.engine import NonFiniteNode, NumericsRecord
from fragmenta.values.numerics.report import (
    Again,
    Moment,
    NonFinitePath,
    Numerics,
    OutputErrors,
    Site,
    ThreadVisit,
    Worst,
)
from fragmenta.values.numerics.seconds import kind_of
from fragmenta.values.numerics.words import COUNTED, operand_count

FINITE = "exact values are finite there"
MISTAKEN = "what overflowed is taken for a given infinity"
"""Why an infinity in an output is wrong."""
HUGE = 1e300
"""A relative error that code writes if the exact result is 0."""


class _SiteNames:
    """Names of what numbers stand for."""

    def __init__(
        self, found: NumericsRecord, module: Module, shape: Grid, language: Words
    ) -> None:
        self.found, self.module, self.shape = found, module, shape
        self._language = language
        self._lines = module.text.splitlines()

    def instruction(self, site: int) -> tuple[str, int, Instruction]:
        """A function, the index of an instruction in it, and the instruction."""
        function, index = self.found.places[site]
        return function, index, self.module.functions[function].instructions[index]

    def text(self, instruction: Instruction) -> str:
        """The line of the source, or of the PTX."""
        source = instruction.source
        if source is not None:
            lines = source_lines(source.file, self._language)
            said = " ".join("".join(lines[source.line - 1 : source.line]).split())
            if said:
                return said
        if 0 < instruction.line <= len(self._lines):
            return " ".join(self._lines[instruction.line - 1].split())
        return instruction.mnemonic

    def ptx(self, instruction: Instruction) -> str:
        """The instruction as the PTX has it, which may be some lines."""
        if not 0 < instruction.line <= len(self._lines):
            return instruction.mnemonic
        first = self._lines[instruction.line - 1][max(0, instruction.column - 1) :]
        found = [first.split("//")[0]]
        for line in self._lines[instruction.line :]:
            if ";" in found[-1]:
                break
            found.append(line.split("//")[0])
        said = " ".join(" ".join(found).partition(";")[0].split())
        return f"{said};" if said else instruction.mnemonic

    def thread(self, block: float, thread: float, time: float) -> ThreadVisit:
        """A thread by its numbers."""
        return ThreadVisit(
            _unravelled(int(block), self.shape.grid),
            _unravelled(int(thread), self.shape.block),
            int(time),
        )


def _unravelled(place: int, of: tuple[int, int, int]) -> tuple[int, int, int]:
    x, y, _ = of
    return place % x, place // x % y, place // (x * y)


def numerics(
    found: NumericsRecord,
    module: Module,
    shape: Grid,
    kernel: str,
    again: Again | None = None,
    language: Words = PTX,
) -> Numerics:
    """What a launch found, in words that users know."""
    places = _SiteNames(found, module, shape, language)
    outputs = {
        each.segment.name: OutputErrors(
            each.segment.name, each.held.format, each.segment.elements, each.held
        )
        for each in found.arrays
        if each.held is not None
    }
    shares = _shares(outputs)
    sites = [
        _site(places, number, each, shares.get(number, 0.0))
        for number, each in found.records.items()
    ]
    order = lambda each: (-each.share, -each.origin, each.function, each.index)  # noqa: E731
    sites.sort(key=order)
    births, notes = _ways(places, outputs)
    inputs = {each.segment.name: each.before for each in found.arrays if each.before}
    shapes = {
        each.segment.name: each.segment.elements
        for each in found.arrays
        if each.segment.elements is not None
    }
    return Numerics(
        kernel,
        outputs,
        sites,
        births,
        notes,
        inputs,
        shapes,
        found.lost_nodes,
        module.text,
        again,
        products=found.products,
        chain=found.chain,
        kept=found.kept,
    )


def _shares(outputs: Mapping[str, OutputErrors]) -> dict[int, float]:
    """How much of the error of an output comes mostly from each site, at most."""
    found: dict[int, float] = {}
    for output in outputs.values():
        weights = np.zeros(MOST_SOURCES + 1)
        for _, part in output.held.parts():
            error = np.abs(np.nan_to_num(part.error))
            weights += np.bincount(part.sources, error, weights.size)
        total = float(weights.sum())
        for source in np.flatnonzero(weights):
            if source:
                share = float(weights[source]) / total
                found[int(source) - 1] = max(found.get(int(source) - 1, 0.0), share)
    return found


def _site(
    places: _SiteNames, number: int, record: Mapping[str, float], share: float
) -> Site:
    function, index, instruction = places.instruction(number)
    count = operand_count(instruction)
    names = "abc"[:count]
    worst = Worst(
        tuple(record[each] for each in names),
        tuple(record[f"exact_{each}"] for each in names),
        record["value"],
        record["exact"],
        record["local"],
        places.thread(record["block"], record["thread"], record["time"]),
    )
    other = None
    if record["other_way"]:
        pair = "ab"[: min(2, count)]
        other = Worst(
            tuple(record[f"other_{each}"] for each in pair),
            tuple(record[f"other_exact_{each}"] for each in pair),
            0.0,
            0.0,
            0.0,
            places.thread(
                record["other_block"], record["other_thread"], record["other_time"]
            ),
        )
    ratio = record["worst_cancelled"]
    return Site(
        number,
        function,
        index,
        instruction,
        places.text(instruction),
        int(record["executions"]),
        int(record["elements"]),
        record["added"],
        record["worst_added"],
        record["worst_ulp"],
        record["worst_total"],
        math.inf if record["worst_relative"] >= HUGE else record["worst_relative"],
        min(_precision(instruction), math.log2(ratio)) if ratio > 1 else 0.0,
        {name: int(record[name]) for name in COUNTED if record[name]},
        worst,
        share,
        int(record["digest"]),
        other,
        places.ptx(instruction),
        record["worst_contracted"],
    )


def _precision(instruction: Instruction) -> float:
    """The bits of the type of an instruction: no more of them cancel."""
    known = (KINDS[each] for each in instruction.qualifiers if each in KINDS)
    return max((each.precision for each in known), default=math.inf)


def _ways(
    places: _SiteNames, outputs: Mapping[str, OutputErrors]
) -> tuple[list[NonFinitePath], list[NonFinitePath]]:
    """The ways of NaN and infinities: those that reached an array, and the others."""
    nodes = places.found.nodes
    ends: dict[int, dict[str, tuple[int, str]]] = defaultdict(dict)
    nan: dict[int, bool] = {}
    wrong: dict[int, str] = {}
    for name, output in outputs.items():
        most = kind_of(output.format).largest / 2
        for start, part in output.held.parts():
            finite = np.isinf(part.values) & (np.abs(part.exact) < most)
            special = ~np.isfinite(part.values)
            for node in map(int, np.unique(part.nodes[special])):
                where = special & (part.nodes == node)
                first = output.at(start + int(np.argmax(where)))
                before, earliest = ends[node].get(name, (0, first))
                ends[node][name] = before + int(where.sum()), earliest
                is_nan = bool(np.isnan(part.values[where]).any())
                nan[node] = nan.get(node, False) or is_nan
                if (where & finite).any():
                    wrong[node] = FINITE
    births = []
    reached: set[int] = set()
    for node, where in ends.items():
        chain = list(_chain(nodes, node))
        reached |= {each.number for each in chain}
        if chain:
            why = wrong.get(node) or _mistaken(places, chain)
            births.append(NonFinitePath(_moments(places, chain), where, nan[node], why))
    births = _grouped(births)
    starts = [
        each
        for each in nodes.values()
        if each.kind not in (Birth.PASSED, Birth.GIVEN) and each.number not in reached
    ]
    chains = {each: list(_chain(nodes, each.number)) for each in starts}
    # What became a NaN is told by the way of that.
    passed = {node.number for _, *way in chains.values() for node in way}
    notes = [
        NonFinitePath(_moments(places, chain), {}, math.isnan(each.value))
        for each, chain in chains.items()
        if each.number not in passed
    ]
    return births, _grouped(notes)


def _mistaken(places: _SiteNames, chain: Sequence[NonFiniteNode]) -> str:
    """Why an infinity is wrong that is computed with one of the kernel's own.

    So ``logf`` and the like do with infinite operands, and those overflowed here.
    """
    *way, born = chain
    if born.kind != Birth.OVERFLOW:
        return ""
    for node in way:
        function, _, given = places.instruction(node.site)
        kind = next((each for each in given.qualifiers if each in KINDS), "")
        code = places.module.functions[function]
        constants = (constant_of(code, each, kind) for each in given.operands[1:])
        if math.inf in map(abs, filter(None, constants)):
            return MISTAKEN
    return ""


def _grouped(ways: list[NonFinitePath]) -> list[NonFinitePath]:
    """One way for each birth: its outputs together, the longest way first."""
    found: dict[tuple[object, ...], NonFinitePath] = {}
    for each in ways:
        born = each.born
        # A loop that was unrolled has several instructions for one line.
        key = (born.place, born.kind, born.instruction.opcode, each.nan)
        old = found.get(key)
        if old is None:
            found[key] = each
            continue
        outputs = dict(old.outputs)
        for name, (count, first) in each.outputs.items():
            before = outputs.get(name)
            total = count + (before[0] if before else 0)
            earliest = min(first, before[1], key=_numbers) if before else first
            outputs[name] = total, earliest
        longer = each if len(each.moments) > len(old.moments) else old
        why = old.wrong or each.wrong
        found[key] = NonFinitePath(longer.moments, outputs, each.nan, why)
    ordered = sorted(
        found.values(),
        key=lambda each: (not each.nan, -sum(n for n, _ in each.outputs.values())),
    )
    return list(ordered)


def _numbers(name: str) -> list[int]:
    """The numbers in the name of an element, which order elements."""
    return [int(each) for each in re.findall(r"\d+", name)]


def _chain(nodes: Mapping[int, NonFiniteNode], number: int) -> Iterator[NonFiniteNode]:
    """The nodes from a result back to where it was born; the birth comes last."""
    seen: set[int] = set()
    while number in nodes and number not in seen:
        seen.add(number)
        yield nodes[number]
        number = nodes[number].parent


def _moments(places: _SiteNames, chain: Sequence[NonFiniteNode]) -> tuple[Moment, ...]:
    made = []
    for node in reversed(chain):
        function, index, instruction = places.instruction(node.site)
        made.append(
            Moment(
                node.kind,
                function,
                index,
                instruction,
                places.text(instruction),
                node.values,
                node.value,
                places.thread(node.block, node.thread, node.time),
                node.times,
                node.unwritten,
                node.operand,
            )
        )
    return tuple(made)
