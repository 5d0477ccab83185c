"""What a launch with numerics shows: errors by line, births of NaN, wrong outputs."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.once import once_property
from fragmenta.engine.simt.arguments import Elements
from fragmenta.engine.simt.naming import array as array_name
from fragmenta.engine.simt.naming import element as element_name
from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.ptx.module import Instruction, Location
from fragmenta.ptx.opcodes.table import TYPES
from fragmenta.values.numerics.code.layout import Birth
from fragmenta.values.numerics.engine import NumericsRecord, StoredSeconds
from fragmenta.values.numerics.judging import Limits, Loss, loss
from fragmenta.values.numerics.products import (
    Chain,
    CurvePoint,
    ProductStatistics,
    Promotion,
    joined_curve,
    promotion,
)
from fragmenta.values.numerics.seconds import ArrayPlanes, Seconds, kind_of
from fragmenta.values.numerics.summaries import (
    Summary,
    bits_lost,
    relative,
    summary,
    ulps,
)
from fragmenta.values.numerics.words import event_words, number

if TYPE_CHECKING:
    from fragmenta.values.numerics.blame import Blame

Again: TypeAlias = (
    "Callable[[frozenset[int] | None, Mapping[str, Any]], NumericsRecord]"
)
"""Runs a launch again: with the sites that are exact, and with exact inputs."""


class ThreadVisit(NamedTuple):
    """A thread, and how often it had been at the instruction."""

    block: tuple[int, int, int]
    thread: tuple[int, int, int]
    iteration: int

    def __str__(self) -> str:
        def shown(place: tuple[int, int, int]) -> str:
            x, y, z = place
            return str(x) if not y and not z else f"({x}, {y}, {z})"

        said = f"block {shown(self.block)}, thread {shown(self.thread)}"
        return f"{said}, iteration {self.iteration}" if self.iteration else said


class Worst(NamedTuple):
    """The element with the largest relative error at an instruction."""

    operands: tuple[float, ...]
    exact_operands: tuple[float, ...]
    value: float
    exact: float
    added: float
    """The error that the instruction itself added: signed."""
    thread: ThreadVisit


@dataclass(frozen=True)
class Site:
    """One instruction: what it lost."""

    number: int
    """The number of the site in its launch."""
    function: str
    index: int
    instruction: Instruction
    text: str
    """The line of the source, or of the PTX."""
    executions: int
    """By warps."""
    elements: int
    added: float
    """The sum of all errors that it added, without their signs."""
    worst_added: float
    worst_ulp: float
    """The largest error that it added, in units of the last place."""
    worst_error: float
    """The largest error of a result: what was added, and what came with operands."""
    worst_relative: float
    """The largest relative error; infinite if the exact result is 0."""
    cancelled_bits: float
    """The most bits that cancelled between operands with errors."""
    counts: dict[str, int]
    """What happened to how many elements: names of :data:`COUNTED`."""
    worst: Worst
    share: float = 0.0
    """The share of the errors of an output that comes mostly from here; 0 to 1."""
    digest: int = 0
    """The sum of the bits of all results, as f64."""
    other: Worst | None = None
    """The first element that decided otherwise than exact values would."""
    ptx: str = ""
    """The instruction as the PTX has it; of a fused product and sum, the sum."""
    contraction_ulp: float = 0.0
    """The largest difference between an ``fma`` and a product that is rounded first."""

    @property
    def mnemonic(self) -> str:
        """The instruction."""
        return self.instruction.mnemonic

    @property
    def fused(self) -> bool:
        """Whether it is a product and a sum of the PTX, which ``ptxas`` fuses."""
        return self.instruction.is_fused and self.instruction.opcode not in self.ptx

    @property
    def line(self) -> int:
        """Its line in the PTX."""
        return self.instruction.line

    @property
    def source(self) -> Location | None:
        """The line that it was compiled from."""
        return self.instruction.source

    @property
    def place(self) -> str:
        """The line of the source, or of the PTX."""
        return place_of(self.instruction)

    @property
    def amplification(self) -> float:
        """How much larger the relative error is than that of its operands.

        It is about the worst element; 0 if its operands have no error.
        """
        before = max(
            (
                abs(x - y) / abs(y)
                for x, y in zip(
                    self.worst.operands, self.worst.exact_operands, strict=True
                )
                if y and math.isfinite(x) and math.isfinite(y)
            ),
            default=0.0,
        )
        known = before and math.isfinite(self.worst_relative)
        return self.worst_relative / before if known else 0.0

    @property
    def origin(self) -> float:
        """The relative error that begins here, at the worst element."""
        exact = abs(self.worst.exact)
        own = abs(self.worst.added) / exact if exact else 0.0
        if self.amplification > 4 or not self.amplification:
            return max(own, self.worst_relative)
        return own

    def to_dict(self) -> dict[str, Any]:
        """The site in plain types."""
        return {
            "function": self.function,
            "line": self.line,
            "source": None if self.source is None else str(self.source),
            "instruction": self.mnemonic,
            "text": self.text,
            "ptx": self.ptx,
            "fused": self.fused,
            "contraction_ulp": self.contraction_ulp,
            "executions": self.executions,
            "elements": self.elements,
            "added": self.added,
            "worst_added": self.worst_added,
            "worst_ulp": self.worst_ulp,
            "worst_error": self.worst_error,
            "worst_relative": self.worst_relative,
            "amplification": self.amplification,
            "cancelled_bits": self.cancelled_bits,
            "share": self.share,
            "counts": self.counts,
            "worst": _worst_dict(self.worst),
            "other": None if self.other is None else _worst_dict(self.other),
        }


def _worst_dict(worst: Worst) -> dict[str, Any]:
    return {
        **worst._asdict(),
        "operands": list(worst.operands),
        "exact_operands": list(worst.exact_operands),
        "thread": worst.thread._asdict(),
    }


def place_of(instruction: Instruction) -> str:
    """The line of the source, or of the PTX."""
    if instruction.source is not None:
        return instruction.source.words
    return f"PTX line {instruction.line}"


class Moment(NamedTuple):
    """A place on the way of a NaN or an infinity."""

    kind: Birth
    function: str
    at: int
    """The index of the instruction in its function."""
    instruction: Instruction
    text: str
    operands: tuple[float, ...]
    value: float
    thread: ThreadVisit
    times: int
    """Elements that came this way."""
    unwritten: bool
    operand: int

    @property
    def place(self) -> str:
        """The line of the source, or of the PTX."""
        return place_of(self.instruction)

    @property
    def line(self) -> int:
        """The line of the PTX."""
        return self.instruction.line

    @property
    def source(self) -> Location | None:
        """The line that it was compiled from."""
        return self.instruction.source

    @property
    def words(self) -> str:
        """What happened, in some words."""
        if self.kind == Birth.GIVEN:
            value = number(self.operands[self.operand])
            if self.unwritten:
                return "a word that nobody had written"
            return f"{value} is given to {self.instruction.opcode}"
        made = event_words(
            self.instruction,
            self.operands,
            self.value,
            self.operand,
            born=self.kind != Birth.PASSED,
        )
        return {
            Birth.OVERFLOW: f"overflow: {made}",
            Birth.DIVISION: f"division by zero: {made}",
            Birth.INVALID: f"no result: {made}",
        }.get(self.kind, made)


@dataclass(frozen=True)
class NonFinitePath:
    """Where a NaN or an infinity was born, which way it went, and where it ended."""

    moments: tuple[Moment, ...]
    """The birth first; a value that was given begins with the operand."""
    outputs: dict[str, tuple[int, str]]
    """Arrays that it reached: how many elements, and the first of them."""
    nan: bool
    wrong: str = ""
    """Why an infinity in an array is wrong; nothing if the exact result is one, too."""

    @property
    def born(self) -> Moment:
        """Where it was born: an overflow, a division by zero, or what has no result.

        If it was given, it is where it was used first.
        """
        births = (Birth.OVERFLOW, Birth.DIVISION, Birth.INVALID, Birth.PRODUCT)
        found = (each for each in self.moments if each.kind in births)
        return next(found, self.moments[0])

    @property
    def cause(self) -> Moment:
        """The first place that is known of its way: the same, or what led to it."""
        return self.moments[0]

    @property
    def line(self) -> int:
        """The line of the PTX where it was born."""
        return self.born.line

    @property
    def source(self) -> Location | None:
        """The line of the source where it was born."""
        return self.born.source

    def to_dict(self) -> dict[str, Any]:
        """The way in plain types."""
        return {
            "nan": self.nan,
            "outputs": {
                name: {"elements": count, "first": first}
                for name, (count, first) in self.outputs.items()
            },
            "way": [
                {
                    "kind": each.kind.name.lower(),
                    "line": each.line,
                    "source": None if each.source is None else str(each.source),
                    "instruction": each.instruction.mnemonic,
                    "text": each.text,
                    "operands": list(each.operands),
                    "value": each.value,
                    "words": each.words,
                    "thread": each.thread._asdict(),
                    "count": each.times,
                }
                for each in self.moments
            ],
        }


@dataclass(frozen=True, eq=False)
class OutputErrors:
    """An array that a launch wrote, with the error of each element."""

    name: str
    format: str
    elements: Elements | None
    held: ArrayPlanes = field(repr=False)

    @cached_property
    def seconds(self) -> Seconds:
        """Its elements and their second values, one after the other."""
        return self.held.whole()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Its shape; that of a list if it is not known."""
        given = self.elements
        if given is None or math.prod(given.shape) != self.held.size:
            return (self.held.size,)
        return given.shape

    @cached_property
    def summary(self) -> Summary:
        """Its errors in a few numbers; elements are decoded in parts."""
        return summary(self.held)

    def _shaped(self, values: NDArray[Any]) -> NDArray[Any]:
        given = self.elements
        if given is None or math.prod(given.shape) != values.size:
            return values
        return values.reshape(given.shape, order=given.order)

    @cached_property
    def values(self) -> NDArray[np.float64]:
        """What the hardware left, as f64."""
        return self._shaped(self.seconds.values)

    @cached_property
    def exact(self) -> NDArray[np.float64]:
        """The exact values, rounded to f64."""
        return self._shaped(self.seconds.exact + self.seconds.lower)

    @cached_property
    def error(self) -> NDArray[np.float64]:
        """What the hardware left less the exact values; NaN where one is not finite."""
        return self._shaped(self.seconds.error)

    @cached_property
    def relative(self) -> NDArray[np.float64]:
        """The error of each element, relative to its exact value."""
        return relative(self.error, self.exact)

    @cached_property
    def ulp(self) -> NDArray[np.float64]:
        """The error of each element in units of the last place."""
        return ulps(self.error, self.exact, self.format)

    @cached_property
    def lost_bits(self) -> NDArray[np.float64]:
        """The bits of each element that are wrong: 0 if it is rounded well."""
        return bits_lost(self.ulp, self.format)

    @property
    def nan(self) -> int:
        """How many elements are NaN."""
        return self.summary.nan

    @property
    def infinite(self) -> int:
        """How many elements are infinite."""
        return self.summary.infinite

    @property
    def total(self) -> float:
        """The error of the array: its norm, relative to that of the exact values."""
        return self.summary.total

    @property
    def worst(self) -> tuple[tuple[int, ...], float]:
        """The element with the largest relative error, and that error."""
        found = self.summary
        if found.worst < 0:
            return (), 0.0
        order = "C" if self.elements is None else self.elements.order
        index = np.unravel_index(found.worst, self.shape, order)
        return tuple(map(int, index)), found.relative

    def at(self, number: int) -> str:
        """The name of an element by its place in memory."""
        size = kind_of(self.format).bits // 8
        return element_name(self.name, self.elements, number * size)

    @property
    def shown(self) -> str:
        """What the array is called."""
        return array_name(self.name)

    def to_svg(self, what: str = "lost_bits") -> str:
        """A map of the array: ``error``, ``relative``, ``ulp`` or ``lost_bits``.

        Dark is large, and red is NaN or infinite.
        """
        from fragmenta.values.numerics.maps import heat_map

        known = ("error", "relative", "ulp", "lost_bits")
        if what not in known:
            raise BadCall(f"no map of {what}{nearest(what, known)}")
        sizes = np.where(np.isfinite(self.values), np.abs(getattr(self, what)), np.nan)
        return heat_map(sizes, f"{self.shown}: {what.replace('_', ' ')}")

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def to_dict(self) -> dict[str, Any]:
        """The array in plain types, without its elements."""
        index, worst = self.worst
        return {
            "name": self.shown,
            "format": self.format,
            "shape": list(self.shape),
            "nan": self.nan,
            "infinite": self.infinite,
            "total": self.total,
            "worst_relative": worst,
            "worst_element": list(index),
            "worst_ulp": self.summary.ulp,
            "mean_lost_bits": self.summary.mean_bits,
        }


@dataclass(frozen=True, eq=False)
class Numerics:
    """What a launch lost, and where: ``result.numerics``.

    ``print(result.numerics)`` is a report, worst first.  :attr:`outputs` are the arrays
    that it wrote, with the error of each element.  :attr:`births` are the ways of NaN
    and infinities to them.  :attr:`instructions` and :attr:`lines` say what each
    instruction and each source line lost.
    """

    kernel: str
    outputs: dict[str, OutputErrors]
    """By the name of the argument."""
    instructions: list[Site] = field(repr=False)
    """All that compute with floats; those that most errors come from first."""
    births: list[NonFinitePath] = field(repr=False)
    """The ways of NaN and infinities that reached an array."""
    notes: list[NonFinitePath] = field(repr=False)
    """Those that never did."""
    inputs: dict[str, dict[str, int]] = field(repr=False)
    """Arrays with NaN and infinities before the launch."""
    shapes: dict[str, Elements] = field(repr=False)
    """The elements of all arrays."""
    lost_nodes: int = 0
    text: str = field(default="", repr=False)
    """The PTX."""
    again: Again | None = field(default=None, repr=False)
    """Runs the launch again, with other sites exact: see :meth:`blame`."""
    products: list[ProductStatistics] = field(default_factory=list, repr=False)
    """What each instruction lost that multiplies matrices: by step, and over k."""
    chain: Chain | None = field(default=None, repr=False)
    """The operands of one of their accumulators."""
    kept: StoredSeconds | None = field(default=None, repr=False)
    """What was stored, in its order, if the launch is recorded, too."""

    limits: Limits = field(default_factory=Limits)
    """From which error on an output is a finding."""
    watched: bool = True
    """Whether the launch was watched for races, which leave other bits."""

    @cached_property
    def losses(self) -> dict[str, Loss]:
        """What each output has lost beyond what its type explains, by its name."""
        return {name: loss(self, each) for name, each in self.outputs.items()}

    def within(self, warning: float | None = None, error: float = 0.1) -> Numerics:
        """The same with other limits: relative errors that are findings.

        ``warning`` is by default what the type of an output explains.
        """
        for name, each in (("warning", warning), ("error", error)):
            if each is not None and not 0 <= each < math.inf:
                raise BadCall(f"{name} is a relative error from 0; given {each!r}")
        return replace(self, limits=Limits(warning, error))

    @property
    def curve(self) -> list[CurvePoint]:
        """What its Tensor Cores lost, over the products in an accumulator."""
        return joined_curve(self.products)

    @cached_property
    def promotion(self) -> Promotion | None:
        """What promoting its accumulators to f32 would save, if it is a bit or more."""
        return promotion(self.chain)

    def __getitem__(self, name: str) -> OutputErrors:
        for key, each in self.outputs.items():
            if name in (key, each.shown) or f"({name})" in key:
                return each
        shown = [each.shown for each in self.outputs.values()]
        raise BadCall(f"the launch wrote no floats to {name}{nearest(name, shown)}")

    def first_input(self, name: str, kind: str) -> str:
        """The first element of an array that was ``nan`` or ``infinite`` before."""
        elements = self.shapes.get(name)
        place = self.inputs[name][f"first_{kind}"]
        return element_name(name, elements, place * (elements.size if elements else 1))

    @property
    def branches(self) -> list[Site]:
        """Comparisons, choices and conversions where exact values decide otherwise.

        Choices are those of ``min`` and ``max``.
        """
        return [each for each in self.instructions if each.counts.get("other_way")]

    @property
    def restarts(self) -> list[Site]:
        """Where exact values were lost, and began anew with the value itself."""
        return [each for each in self.instructions if each.counts.get("restarted")]

    @property
    def integers(self) -> list[Site]:
        """Conversions to integers, from which exact values begin anew."""
        return [
            each
            for each in self.instructions
            if _to_integer(each.instruction) and not each.worst_error
        ]

    @property
    def contractions(self) -> list[Site]:
        """Where ``fma`` has other results than a product and a sum, each rounded."""
        return [each for each in self.instructions if each.counts.get("contracted")]

    @cached_property
    def lines(self) -> dict[str, list[Site]]:
        """The instructions of each line of the source, in the order of their errors."""
        found: dict[str, list[Site]] = defaultdict(list)
        for each in self.instructions:
            found[each.place].append(each)
        return dict(found)

    @property
    def clean(self) -> bool:
        """Whether no output has a NaN or an infinity that was born in the launch."""
        return not self.births

    def blame(
        self,
        output: Any = None,
        by: str = "kind",
        inputs: Mapping[str, Any] | None = None,
    ) -> Blame:
        """Split the error of an output among groups of instructions.

        The launch is run again for each group: second values then have the errors of
        all instructions but those of the group.  So each part is measured, together
        with all that happens to it on its way.  Arrays stay as they are.

        ``output`` is the name of an array, or an array; without it, it is the only one.
        ``by`` is ``kind`` (Tensor Core, sums, conversions ...), ``line`` or
        ``instruction``: the first 8 of these, and the others together.  ``inputs`` are
        the numbers that elements of an argument stand for before they were quantised.
        """
        from fragmenta.values.numerics.blame import blame

        return blame(self, self._chosen(output), by, inputs or {})

    def advice(self, output: Any = None) -> list[str]:
        """What would help most, measured: see :meth:`blame`."""
        from fragmenta.values.numerics.blame import advice

        return advice(self, self._chosen(output))

    def _chosen(self, output: Any) -> OutputErrors:
        """An output by its name, or by its array."""
        if isinstance(output, OutputErrors):
            return output
        if isinstance(output, str):
            return self[output]
        if output is None:
            wrong = [e for e in self.outputs.values() if np.nansum(np.abs(e.error))]
            if len(wrong) == 1 or (wrong and len(self.outputs) == 1):
                return wrong[0]
            if len(self.outputs) == 1:
                return next(iter(self.outputs.values()))
        else:
            values = np.asarray(output).astype(np.float64).reshape(-1)
            for each in self.outputs.values():
                if np.array_equal(each.values.reshape(-1), values, equal_nan=True):
                    return each
        shown = [each.shown for each in self.outputs.values()]
        raise BadCall(f"name one of the outputs: {one_of(shown) or 'there are none'}")

    @once_property
    def problems(self) -> list[Any]:
        """Findings as problems of a launch: for SARIF and for the command line."""
        from fragmenta.values.numerics.findings import findings

        return findings(self)

    def to_dict(self) -> dict[str, Any]:
        """All of it in plain types."""
        return {
            "kernel": self.kernel,
            "outputs": [
                each.to_dict() | self._judged(self.losses[name])
                for name, each in self.outputs.items()
            ],
            "births": [each.to_dict() for each in self.births],
            "notes": [each.to_dict() for each in self.notes],
            "instructions": [each.to_dict() for each in self.instructions],
            "products": [each.to_dict() for each in self.products],
            "promotion": None if self.promotion is None else self.promotion.to_dict(),
            "inputs": self.inputs,
            "watched": self.watched,
        }

    def _judged(self, lost: Loss) -> dict[str, Any]:
        severity = lost.severity(self.limits)
        known = {"error": lost.size, "explained": lost.explained}
        return {"judged": {**known, "severity": severity or "none"}}

    def to_json(self) -> str:
        """The same as text."""
        return json.dumps(_plain(self.to_dict()))

    def __str__(self) -> str:
        from fragmenta.values.numerics.text import report

        return report(self)

    def _repr_html_(self) -> str:
        from html import escape

        maps = "".join(each.to_svg() for each in self.outputs.values())
        return f"<pre>{escape(str(self))}</pre>{maps}"


def _to_integer(instruction: Instruction) -> bool:
    words = instruction.qualifiers
    kinds = [each for each in words if each in TYPES]
    whole = [kind[0] in "us" for kind in kinds]
    return instruction.is_conversion and whole[:1] == [True] and not all(whole)


def _plain(value: Any) -> Any:
    """Numbers that JSON has: NaN and infinities become words."""
    if isinstance(value, float) and not math.isfinite(value):
        return number(value)
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value
