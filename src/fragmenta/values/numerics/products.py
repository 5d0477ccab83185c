"""What the Tensor Cores of a launch lose: by instruction, over k, and where most.

Compiled code (:mod:`fragmenta.values.numerics.code.products`) adds to the records of a
:class:`ProductTable`, one for each context.  :func:`statistics` puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum, log2

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.jit.trace import LANES
from fragmenta.engine.simt.compiled import address_of, aligned
from fragmenta.reference.arithmetic import multiply
from fragmenta.reference.arithmetic.trace import explain_steps
from fragmenta.reference.execution.explain import Explained
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.registers.dtype import dtype
from fragmenta.values.numerics.code import layout
from fragmenta.values.numerics.code import product_layout as at

EVERY = 16
"""Of so many rows, one is split into its losses."""
LOG_WORDS = 1 << 20
"""Room for the operands of one accumulator."""
_SINGLE = 24
"""The bits of the significand of an f32."""


# ── while a launch runs ─────────────────────────────────────────────────────


class ProductTable:
    """The records of one context: those of all instructions that multiply matrices.

    ``sites`` are their numbers, ``numbers`` how many numbers there are, and ``chains``
    how many accumulators.
    """

    def __init__(
        self, sites: Iterable[int], numbers: int, chains: int, every: int = EVERY
    ) -> None:
        self.records = {site: aligned(at.RECORD) for site in sites}
        self.ops: dict[int, tuple[Instruction, str]] = {}
        """The instructions, and their targets."""
        self._pointers = np.zeros(max(1, numbers), np.int64)
        for site, record in self.records.items():
            self._pointers[site] = address_of(record)
        self._depths = np.zeros(max(1, chains), np.int64)
        self._log = np.empty(LOG_WORDS, np.uint32)  # only what is written is read
        self.head = aligned(at.HEAD).view(np.int64)
        for place, number in (
            (at.RECORDS, address_of(self._pointers)),
            (at.DEPTHS, address_of(self._depths)),
            (at.EVERY, every),
            (at.LOG, address_of(self._log)),
            (at.LOG_SIZE, LOG_WORDS),
            (at.CHAINS, max(1, chains)),
        ):
            self.head[place // 8] = number

    @property
    def address(self) -> int:
        """What the head of numerics' table points to."""
        return address_of(self.head)

    def chain(self) -> Chain | None:
        """The logged accumulator, if there is one."""
        used = int(self.head[at.LOG_USED // 8])
        site = int(self.head[at.LOG_SITE // 8])
        if not used or site not in self.ops:
            return None
        op, target = self.ops[site]
        words = self._log[:used].reshape(-1, op.shape[2] * (1 + LANES))
        k = op.shape[2]
        a = words[:, :k].reshape(-1)
        b = words[:, k:].reshape(-1, LANES)
        return Chain(op, target, a.copy(), b.copy())


# ── after it ────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Split:
    """What the steps of an instruction lose, by cause: sums over some elements."""

    elements: int
    alignment: float
    """Cut when terms were aligned to the largest exponent."""
    keep: float
    """Cut when a step kept 13 or 23 bits, say, of its sum."""
    rounding: float
    """Lost when the result was rounded to the type of D."""
    alignment_size: float
    """The sum of absolute values; the same for the others."""
    keep_size: float
    rounding_size: float
    differing: int = 0
    """Elements whose steps do not give the hardware's D: 0."""


@dataclass(frozen=True)
class CurvePoint:
    """The accumulators of one instruction after so many products."""

    k: int
    """Products in an accumulator before the instruction."""
    elements: int
    added: float
    """The mean absolute error that one instruction adds."""
    error: float
    """The mean absolute difference between D and its nearly exact value."""
    value: float
    """The mean absolute nearly exact value of D."""
    worst: float
    vanished: float
    """The part of the products that are not zero which alignment cuts to zero."""

    @property
    def lost_bits(self) -> float:
        """Bits of an f32 that are lost: 0 if the error is at most half an ulp."""
        return lost_bits(self.error, self.value)


@dataclass(frozen=True)
class WorstElement:
    """The element to which an instruction added the largest error."""

    op: Instruction
    target: str
    error: float
    exact: float
    """The nearly exact value."""
    row: int
    column: int
    k: int
    """Products that the accumulator had before."""
    block: int
    warp: int
    a: NDArray[np.generic]
    """The row of A, the column of B, C: raw bits."""
    b: NDArray[np.generic]
    c: int
    d: int
    index: NDArray[np.generic] | None = None
    scale_a: NDArray[np.generic] | None = None
    scale_b: NDArray[np.generic] | None = None

    def explain(self) -> Explained:
        """How the hardware computed it, step by step, as ``op.explain``."""
        model = numeric_model(self.op, chosen_target(self.op, self.target))
        found = explain_steps(
            self.a,
            self.b,
            self.c,
            model,
            index=self.index,
            scale_a=self.scale_a,
            scale_b=self.scale_b,
        )
        return Explained(self.op, self.target, self.row, self.column, found)


@dataclass(frozen=True)
class ProductStatistics:
    """What one instruction of a kernel lost, in all executions."""

    number: int
    op: Instruction
    target: str
    executions: int
    elements: int
    """Elements of D that are finite."""
    not_finite: int
    added: float
    """The sum of the errors: D minus the exact result of A, B and C as given."""
    size: float
    """The sum of their absolute values."""
    worst_added: float
    total: float
    """The sum of the absolute differences between D and its nearly exact value."""
    worst_total: float
    values: float
    """The sum of the absolute nearly exact values."""
    products: int
    """Products that are not zero, of the elements that were split."""
    vanished: int
    """Those of them that were cut to zero: they did not count at all."""
    split: Split
    curve: tuple[CurvePoint, ...]
    worst: WorstElement | None
    longest: int
    """The most products in one accumulator."""

    @property
    def mean(self) -> float:
        """The mean absolute error that an execution adds to an element."""
        return self.size / self.elements if self.elements else 0.0

    def to_dict(self) -> dict[str, object]:
        """Everything as plain Python values."""
        found: dict[str, object] = {name: getattr(self, name) for name in _PLAIN}
        found["instruction"] = str(self.op)
        found["split"] = dict(vars(self.split))
        found["curve"] = [
            {**vars(each), "lost_bits": each.lost_bits} for each in self.curve
        ]
        worst = self.worst
        found["worst"] = None
        if worst is not None:
            where = ("error", "exact", "row", "column", "k", "block", "warp")
            found["worst"] = {name: getattr(worst, name) for name in where}
        return found


_PLAIN = (
    "number",
    "target",
    "executions",
    "elements",
    "not_finite",
    "added",
    "size",
    "worst_added",
    "total",
    "worst_total",
    "values",
    "products",
    "vanished",
    "longest",
)


def statistics(tables: Iterable[ProductTable]) -> list[ProductStatistics]:
    """The statistics of all instructions, of all contexts together."""
    parts: dict[int, list[tuple[ProductTable, NDArray[np.uint8]]]] = {}
    for table in tables:
        for site, record in table.records.items():
            if site in table.ops and _numbers(record)["executions"]:
                parts.setdefault(site, []).append((table, record))
    return [_merged(site, every) for site, every in sorted(parts.items())]


def _numbers(record: NDArray[np.uint8]) -> dict[str, float]:
    """The numbers of a record."""
    head = record[: at.CURVE]
    whole, floats = head.view(np.int64), head.view(np.float64)
    return {
        name: int(whole[place]) if name in at.WHOLE else float(floats[place])
        for place, name in enumerate(at.FIELDS)
    }


def _merged(
    site: int, every: list[tuple[ProductTable, NDArray[np.uint8]]]
) -> ProductStatistics:
    table, _ = every[0]
    op, target = table.ops[site]
    found = [_numbers(record) for _, record in every]

    def total(name: str) -> float:
        return fsum(each[name] for each in found)

    def most(name: str) -> float:
        return max(each[name] for each in found)

    worst = max(range(len(found)), key=lambda place: found[place]["worst"])
    split = Split(
        int(total("sampled")),
        total("alignment"),
        total("keep"),
        total("rounding"),
        total("alignment_size"),
        total("keep_size"),
        total("rounding_size"),
        int(total("differing")),
    )
    return ProductStatistics(
        site,
        op,
        target,
        int(total("executions")),
        int(total("elements")),
        int(total("odd")),
        total("added"),
        total("size"),
        most("worst"),
        total("total"),
        most("worst_total"),
        total("values"),
        int(total("nonzero")),
        int(total("vanished")),
        split,
        _curve(op, [record for _, record in every]),
        _worst(op, target, every[worst][1], found[worst]),
        int(most("deepest")),
    )


def _curve(op: Instruction, records: list[NDArray[np.uint8]]) -> tuple[CurvePoint, ...]:
    shape = at.BINS, len(at.BIN_FIELDS)
    parts = [each[at.CURVE : at.OPERANDS].view(np.float64) for each in records]
    every = np.stack([each.reshape(shape) for each in parts])
    sums, tops = every.sum(axis=0), every.max(axis=0)
    points = []
    for number in np.flatnonzero(sums[:, 0]).tolist():
        of = dict(zip(at.BIN_FIELDS, sums[number].tolist(), strict=True))
        count = of["elements"]
        points.append(
            CurvePoint(
                at.first_of(number) * op.shape[2],
                int(count),
                of["size"] / count,
                of["total"] / count,
                of["values"] / count,
                float(tops[number, at.BIN_FIELDS.index("worst")]),
                of["vanished"] / of["nonzero"] if of["nonzero"] else 0.0,
            )
        )
    return tuple(points)


def _worst(
    op: Instruction, target: str, record: NDArray[np.uint8], of: Mapping[str, float]
) -> WorstElement | None:
    if not of["worst"]:
        return None
    model = numeric_model(op, chosen_target(op, target))
    words = record[at.OPERANDS :].view(np.uint64).reshape(-1, at.MOST_K)
    kept = dict(zip(at.OPERAND_FIELDS, words, strict=True))

    def bits(name: str, count: int, kind: str) -> NDArray[np.generic]:
        return kept[name][:count].astype(dtype(kind).bits_dtype)

    index = kept["index"][: model.stored].astype(np.uint8) if model.sparse else None
    scales: dict[str, NDArray[np.generic]] = {}
    if model.scale:
        for name in ("scale_a", "scale_b"):
            scales[name] = bits(name, model.scale_vec, model.scale)
    return WorstElement(
        op,
        target,
        of["worst"],
        of["worst_exact"],
        row=int(of["worst_row"]),
        column=int(of["worst_column"]),
        k=int(of["worst_depth"]),
        block=int(of["worst_block"]),
        warp=int(of["worst_warp"]),
        a=bits("a", model.stored, model.a),
        b=bits("b", model.k, model.b),
        c=int(of["worst_c"]),
        d=int(of["worst_d"]),
        index=index,
        **scales,
    )


def joined_curve(found: Iterable[ProductStatistics]) -> list[CurvePoint]:
    """One curve over k: that of all instructions, such as those of an unrolled loop."""
    every: dict[int, list[CurvePoint]] = {}
    for each in found:
        for point in each.curve:
            every.setdefault(point.k, []).append(point)
    return [_joined(k, points) for k, points in sorted(every.items())]


def _joined(k: int, points: list[CurvePoint]) -> CurvePoint:
    count = sum(each.elements for each in points)

    def mean(name: str) -> float:
        parts = (getattr(each, name) * each.elements for each in points)
        return fsum(parts) / count

    names = ("added", "error", "value", "vanished")
    added, error, value, vanished = map(mean, names)
    worst = max(each.worst for each in points)
    return CurvePoint(k, count, added, error, value, worst, vanished)


def record_of(found: ProductStatistics) -> dict[str, float]:
    """The same as the record of a site of any instruction."""
    record = dict.fromkeys(layout.FIELDS, 0.0)
    record |= {"executions": found.executions, "elements": found.elements}
    record |= {"added": found.size, "worst_added": found.worst_added}
    record |= {"worst_total": found.worst_total, "absorbed": found.vanished}
    worst = found.worst
    if worst is not None:
        of = found.op.types["d"]
        value = float(of.to_float64(np.array([worst.d], of.bits_dtype))[0])
        record |= {"value": value, "exact": worst.exact, "local": worst.error}
        record |= {"block": worst.block, "thread": worst.warp * 32}
        if worst.exact:
            relative = abs(value - worst.exact) / abs(worst.exact)
            record["worst_relative"] = relative
            _, power = np.frexp(worst.exact)
            unit = 2.0 ** (int(power) - 1 - of.fraction_bits)
            record["worst_ulp"] = worst.error / unit
    return record


# ── chains ──────────────────────────────────────────────────────────────────


def lost_bits(error: float, value: float) -> float:
    """The bits of an f32 that an error costs.

    >>> lost_bits(2.0**-24, 1.0), lost_bits(2.0**-13, 1.0)
    (0.0, 11.0)
    """
    if not error or not value:
        return 0.0
    return max(0.0, _SINGLE + log2(error / value))


@dataclass(frozen=True)
class Chain:
    """The operands of one accumulator: a row of A, and eight columns of B.

    The instruction adds k products at a time to the same accumulators.
    """

    op: Instruction
    target: str
    a: NDArray[np.uint32]
    """Raw bits along k."""
    b: NDArray[np.uint32]
    """(k, 8)"""

    @property
    def k(self) -> int:
        """Products in each accumulator."""
        return int(self.a.size)

    @cached_property
    def exact(self) -> NDArray[np.float64]:
        """The exact sums, rounded once to f64."""
        a, b = (
            dtype(self.op.types[name]).to_float64(self._bits(name)) for name in "ab"
        )
        return np.array([fsum(a * column) for column in b.T])

    def _bits(self, name: str) -> NDArray[np.generic]:
        kind = self.op.types[name].bits_dtype
        return (self.a if name == "a" else self.b).astype(kind)

    def sums(self, every: int | None = None) -> NDArray[np.float64]:
        """The accumulators as the hardware computes them.

        With ``every``, they are added to others in f32, and begin again, after so many
        products.
        """
        model = numeric_model(self.op, chosen_target(self.op, self.target))
        step = self.k if every is None else every
        a, b = self._bits("a")[None], self._bits("b")
        of = self.op.types["d"]
        total = np.zeros(LANES, np.float32)
        for first in range(0, self.k, step):
            some = slice(first, first + step)
            zero = np.zeros((1, LANES), dtype(model.c).bits_dtype)
            made = multiply(a[:, some], b[some], zero, model)
            part = of.to_float64(made)[0]
            total = part.astype(np.float32) if not first else total + part.astype("f4")
        return total.astype(np.float64)

    def lost_bits(self, every: int | None = None) -> float:
        """The bits of an f32 that the sums lose, as mean of their errors."""
        error = np.abs(self.sums(every) - self.exact)
        return lost_bits(float(error.mean()), float(np.abs(self.exact).mean()))


@dataclass(frozen=True)
class Promotion:
    """What promoting an accumulator to f32 again and again would save."""

    chain: Chain
    lost: float
    """Bits that the chain loses as it is."""
    every: int
    """Products between promotions."""
    promoted: float
    """Bits that it loses with them."""

    def to_dict(self) -> dict[str, object]:
        """It in plain types."""
        numbers = {"lost_bits": self.lost, "every": self.every}
        return {"products": self.chain.k, **numbers, "promoted_bits": self.promoted}

    def __str__(self) -> str:
        kind = self.chain.op.types["a"].name
        return (
            f"accumulating {self.chain.k:,} {kind} products in one chain loses "
            f"{self.lost:.0f} bits; promoting every {self.every} products would lose "
            f"{self.promoted:.0f}"
        )


INTERVALS = (512, 256, 128, 64)
"""Products between promotions that are tried."""
_WORTH = 1.0
"""Bits that advice must save."""


def promotion(chain: Chain | None) -> Promotion | None:
    """The longest interval between promotions that saves nearly all that can be saved.

    It is computed on the operands of the launch.  None if it saves less than a bit.
    """
    if chain is None:
        return None
    step = chain.op.shape[2]
    tried = [each for each in INTERVALS if each < chain.k and each % step == 0]
    if not tried or dtype(chain.op.types["d"]).name != "f32":
        return None
    lost = chain.lost_bits()
    found = {each: chain.lost_bits(each) for each in tried}
    best = min(found.values())
    if lost - best < _WORTH:
        return None
    every = next(each for each in tried if found[each] <= best + 1.0)
    return Promotion(chain, lost, every, found[every])
