"""Whether the error of an output is more than its type explains.

The error of an element is measured in the size of its exact value.  Where the launch
has sums, it is measured in the size of its row, if that is larger: a sum of numbers
with both signs may be near zero, and its error is that of its terms.
A type explains

- the rounding of the exact result: two units of the last place of the output's type;
- the arithmetic of f32 on the way: 2**-14, which is 1,024 units; of f64, 2**-43;
- in a launch with products whose sums are f32, 2**-12: they cut off what f32 rounds,
  and over thousands of steps that adds up;
- in a launch with products of 8-bit floats, 2**-11: four steps of an accumulator that
  keeps 13 bits, which is what a promotion after every 128 products leaves;
- one unit of a smaller type, if most of the error of the element comes from one
  conversion to it, or from one product in it.  Sums in a smaller type explain nothing;
- of a scale in ``ue8m0``, 2**-3, as of the ``e4m3`` that it scales; of codes that are
  scaled by it, everything;
- for an approximation, such as ``sin.approx``, 2**-10 of the row;
- for a conversion to an integer that quantises, 2**-4 of the row.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.ptx import rules
from fragmenta.ptx.opcodes.kinds import opcodes_of
from fragmenta.values.numerics.code.elements import KINDS, PackedFloats
from fragmenta.values.numerics.code.exact import SUMS
from fragmenta.values.numerics.seconds import PART, kind_of

if TYPE_CHECKING:
    from fragmenta.values.numerics.report import Numerics, OutputErrors, Site

Floats = NDArray[np.float64]
ADDS = frozenset({*SUMS, *opcodes_of("updates", "multiplies")})
"""Opcodes that add."""
_EIGHT = frozenset({"e4m3", "e5m2"})
_CODES = frozenset({*_EIGHT, "e2m1", "e2m3", "e3m2"})
ARITHMETIC = 10
"""Bits that arithmetic in the type of the output, or in f32, may lose."""


class Limits(NamedTuple):
    """From which relative error on an output is reported.

    >>> Limits().error
    0.1
    """

    warning: float | None = None
    """None: what its type explains."""
    error: float = 0.1


class Loss(NamedTuple):
    """The worst element of an output, as far as its type does not explain it."""

    size: float
    """The error, relative to the size of the element or of its row; or infinite."""
    explained: float
    """What the type explains of it."""
    place: int
    """The element, by its place in memory."""
    source: int
    """The site that most of its error comes from; -1 if none is known."""
    ulp: float
    """The largest error of all elements, in units of the last place of that size."""
    by: str = ""
    """The type that explains most: of the output, or of a conversion on the way."""

    @property
    def words(self) -> str:
        """How far off the element is."""
        if math.isinf(self.size):
            return "has no digit that is right"
        return f"is {self.size:.3g} off, as a part of its size"

    def severity(self, limits: Limits) -> str:
        """``error``, ``warning``, or nothing if it is explained."""
        least = self.explained if limits.warning is None else limits.warning
        if self.size <= least:
            return ""
        return rules.ERROR if self.size > max(limits.error, least) else rules.WARNING


NOTHING = Loss(0.0, 0.0, 0, -1, 0.0)


def loss(found: Numerics, output: OutputErrors) -> Loss:
    """The worst element of an output."""
    sites = {each.number: each for each in found.instructions}
    adds = any(each.instruction.opcode in ADDS for each in found.instructions)
    row = output.shape[-1] if len(output.shape) > 1 else output.held.size
    base = 2.0 ** (ARITHMETIC - max(24, kind_of(output.format).precision))
    if any(each.op.types["d"].name == "f32" for each in found.products):
        base = max(base, 2.0**-12)
    if any(_EIGHT & {each.op.types["a"].name} for each in found.products):
        base = max(base, 2.0**-11)
    explains = _Explains(output.format, sites, base, adds)
    worst = NOTHING
    step = max(1, row) if row <= PART else PART
    for first, part in output.held.parts(max(1, PART // step) * step):
        made = explains.worst(part.values, part.error, part.exact, part.sources, step)
        ulp = max(worst.ulp, made.ulp)
        if _excess(made) > _excess(worst):
            worst = made._replace(place=first + made.place)
        worst = worst._replace(ulp=ulp)
    return worst


def _excess(of: Loss) -> float:
    return of.size / of.explained if of.explained else 0.0


class _Explains:
    """What types explain of the errors of an output."""

    def __init__(
        self, format_: str, sites: dict[int, Site], base: float, adds: bool
    ) -> None:
        kind = kind_of(format_)
        self.least, self.precision, self.format = kind.least, kind.precision, format_
        self.sites, self.base, self.adds = sites, base, adds

    def _type_of(self, number: int) -> str:
        """The type that a site has; that of the output if it explains no more."""
        site, (allowed, _) = self.sites.get(number), self._of_source(number)
        if site is None or allowed <= 2.0 ** (2 - self.precision):
            return self.format
        kind = _smallest(site)
        small = kind is not None and kind.precision < self.precision
        return kind.format if kind is not None and small else self.format

    def _rounder(self, number: int) -> int:
        """The site that made the codes which a site reads: those have no source.

        The site itself if that is another, or if there are several.
        """
        site = self.sites.get(number)
        kind = None if site is None else _smallest(site)
        if site is None or kind is None or not _reads_codes(site):
            return number
        makers = [
            each.number
            for each in self.sites.values()
            if each.instruction.is_conversion
            and not _reads_codes(each)
            and _smallest(each) == kind
        ]
        return makers[0] if len(makers) == 1 else number

    def _of_source(self, number: int) -> tuple[float, float]:
        """What one unit of a type on the way explains, and the part of the row."""
        rows = 1.0 if self.adds else 2.0**-self.precision
        site = self.sites.get(number)
        if site is None or site.instruction.opcode in ADDS:
            return 0.0, rows
        words = site.instruction.qualifiers
        if {"rni", "rzi", "rmi", "rpi"} & set(words):
            return 2.0**-4, 1.0
        if "approx" in words:
            return 2.0**-10, 1.0
        kind = _smallest(site)
        if kind is not None and kind.format == "ue8m0":
            return (1.0 if self.precision <= 4 else 2.0**-3), rows
        if kind is None or kind.precision >= self.precision:
            return 0.0, rows
        return 2.0 ** (1 - kind.precision), max(rows, 2.0**-kind.precision)

    def worst(
        self, values: Floats, error: Floats, exact: Floats, sources: object, row: int
    ) -> Loss:
        """The worst of some elements."""
        numbers = np.asarray(sources) - 1
        size = np.abs(np.where(np.isfinite(error), error, 0.0))
        large = np.abs(np.where(np.isfinite(exact) & np.isfinite(values), exact, 0.0))
        size = np.where(size <= 2 * self.least, 0.0, size)
        if not size.any():
            return NOTHING
        rows = _row_sizes(large, row)
        allowed, share = np.zeros(size.shape), np.zeros(size.shape)
        for each in np.unique(numbers):
            here = numbers == each
            allowed[here], share[here] = self._of_source(int(each))
        unit = np.maximum(large, share * rows)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            relative = np.where(size == 0, 0.0, size / unit)
        explained = self.base + np.maximum(2.0 ** (2 - self.precision), allowed)
        place = int(np.argmax(relative / explained))
        ulp = float(relative.max()) * 2.0 ** (self.precision - 1)
        return Loss(
            float(relative[place]),
            float(explained[place]),
            place,
            self._rounder(int(numbers[place])),
            ulp,
            self._type_of(int(numbers[place])),
        )


def _formats(site: Site) -> list[PackedFloats]:
    """The types of floats of an instruction, that of its result first."""
    words = site.instruction.qualifiers
    return [KINDS[each] for each in words if each in KINDS]


def _reads_codes(site: Site) -> bool:
    """Whether it makes wider floats of codes, which is exact."""
    kinds = _formats(site)
    wide = len(kinds) == 2 and kinds[0].precision > kinds[1].precision
    return site.instruction.is_conversion and wide and kinds[1].format in _CODES


def _smallest(site: Site) -> PackedFloats | None:
    """The type that a result has, or the codes that it is made of."""
    kinds = _formats(site)
    return kinds[1] if _reads_codes(site) else kinds[0] if kinds else None


def _row_sizes(large: Floats, row: int) -> Floats:
    """The root of the mean square of each row, for each of its elements."""
    whole = large.size // row * row
    parts = [large[:whole].reshape(-1, row), large[whole:].reshape(1, -1)]
    made = []
    for each in parts:
        if each.size:
            most = each.max(axis=1, keepdims=True)
            scale = np.where(most == 0, 1.0, most)  # squares do not overflow
            mean = np.sqrt(np.square(each / scale).mean(axis=1, keepdims=True)) * scale
            made.append(np.broadcast_to(mean, each.shape).reshape(-1))
    return np.concatenate(made)
