"""Models: in which steps, and how precisely, a target computes one instruction.

A tensor core multiplies exactly, but does not add as IEEE 754 does.  One *fused
step* adds ``L`` products and the accumulator:

1. Every product is exact.  Its exponent is the sum of its operands' exponents
   and is not renormalised: 1.5 x 1.5 has exponent 0.  A subnormal keeps the
   smallest exponent of its type.
2. ``emax`` is the largest exponent of all products and the accumulator.  Zeros
   do not count.  ``emax`` is at least ``floor``.
3. Every term, also the accumulator, is truncated toward zero to a multiple of
   ``2**(emax - F)``.  Then the terms are added exactly.
4. The sum is rounded once, to ``keep`` fraction bits: toward zero (``rz``), or
   to nearest with ties to even (``rn``).  A sum that rounds to zero is +0.  A sum
   that is too large is infinite.  Every NaN has all bits set except its sign.

If an instruction has more than ``L`` products, it has several steps, in ascending
k.  In a sparse instruction only stored products count.

``source`` says how sure a row is: measured on a GPU, published by others, or assumed.
An assumption is written out, as in ``assumed: as on sm_100``.

The first table below describes the fused steps of every target, the second one the
steps of mxf4 and mxf4nvf4.  The third one lists the instructions that a target does
not have in hardware, and how the assembler expands them.  Integers, single bits and
f64 need no rows: integers and bits are exact, and f64 is a chain of IEEE 754 fused
multiply-adds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple, TypeAlias, cast

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.errors import (
    BadCall,
    BadOperands,
    Error,
    ShapeError,
    UnsupportedTarget,
    one_of,
)
from fragmenta.reference.isa.native import TOOLKIT
from fragmenta.reference.isa.target import ARCHITECTURES, expand, number
from fragmenta.reference.registers.dtype import dtype

FormName: TypeAlias = Literal["fused", "grouped", "chain", "pairs", "integer", "bits"]

# A row was either measured on the GPU that it names, or published by others.
# The first row that fits is used.
_FUSED = """
targets      unit      k    operands                  result  L   F   floor  keep   source
sm_70..72    mma,wmma  any  f16                       f32     4   23  -131   23 rz  published
sm_70..72    mma,wmma  any  f16                       f16     4   23  -19    10 rn  published

sm_75        mma       4    f16                       f32     4   23  -131   23 rz  published
sm_75        mma       4    f16                       f16     4   23  -19    10 rn  published
sm_75        mma,wmma  any  f16                       f32     8   24  -132   23 rz  published
sm_75        mma,wmma  any  f16                       f16     8   24  -20    10 rn  published

sm_80..89    mma,wmma  any  f16,bf16                  f32     8   24  -132   23 rz  published
sm_80..89    mma,wmma  any  f16                       f16     8   24  -20    10 rn  published
sm_80..89    mma,wmma  any  tf32                      f32     4   24  -132   23 rz  published
sm_89        mma       any  e4m3,e5m2                 f32     16  13  -132   13 rz  published
sm_89        mma       any  e4m3,e5m2                 f16     16  13  -20    10 rn  published

sm_90        all       any  f16,bf16                  f32     16  25  -133   23 rz  measured on H200
sm_90        all       any  f16                       f16     16  25  -21    10 rn  measured on H200
sm_90        all       any  tf32                      f32     8   25  -133   23 rz  measured on H200
sm_90        wgmma     any  e4m3,e5m2                 f32     32  13  -133   13 rz  measured on H200
sm_90        wgmma     any  e4m3,e5m2                 f16     32  13  -21    10 rn  measured on H200

sm_100..121  mma,wmma  any  f16,bf16                  f32     16  25  -133   23 rz  published
sm_100..121  mma,wmma  any  f16                       f16     16  25  -21    10 rn  published
sm_100..121  mma,wmma  any  tf32                      f32     8   25  -133   23 rz  published
sm_120..121  mma       any  e4m3,e5m2,e3m2,e2m3,e2m1  f32     32  25  -133   23 rz  published
sm_120..121  mma       any  e4m3,e5m2,e3m2,e2m3,e2m1  f16     32  25  -21    10 rn  published

sm_100..110  tcgen05   any  f16,bf16                  f32     16  25  -133   23 rz  published
sm_100..110  tcgen05   any  f16                       f16     16  25  -21    10 rn  published
sm_100..110  tcgen05   any  tf32                      f32     8   25  -133   23 rz  published
sm_100..110  tcgen05   any  e4m3,e5m2,e3m2,e2m3,e2m1  f32     32  25  -133   23 rz  published
sm_100..110  tcgen05   any  e4m3,e5m2,e3m2,e2m3,e2m1  f16     32  25  -21    10 rn  published
"""  # noqa: E501

# Block scales.  With mxf8f6f4 the exponent of a product includes the exponents of
# both scales.  With mxf4 and mxf4nvf4 a term is a group of 16 products.  They are
# added exactly and multiplied by the significands of both scales.  The exponent of
# the group is the sum of the scales' exponents; it counts for emax unless all
# products of the group are zero.  One step adds the four groups of an instruction
# and the accumulator.
_GROUPED = """
targets      unit      k    operands                  result  L   F   floor  keep   source
sm_120..121  mma       any  e2m1                      f32     64  35  -139   23 rz  published
sm_100..110  tcgen05   any  e2m1                      f32     64  35  -139   23 rz  published
"""  # noqa: E501

#: Products in one group of mxf4 and mxf4nvf4.
GROUP = 16

# What is published about tcgen05 is about dense instructions of one CTA on sm_100.
# Whatever else is computed in the same way is marked as an assumption.
_UNPUBLISHED: tuple[tuple[str, Callable[[_Asked], bool]], ...] = (
    ("as on sm_100", lambda asked: asked.number != 100),
    ("stored products are counted as on sm_90", lambda asked: asked.sparse),
    ("as without .ws", lambda asked: asked.ws),
    ("as with cta_group::1", lambda asked: asked.cta_group == 2),
)

#: Products of 8-bit integers in one tcgen05.mma; their sum is exact.
_INTEGER_PRODUCTS = 32

# How the assembler of a toolkit expands an instruction that the target does not have.
# A test ties this table to the one in isa/native.py.
#   as      operands are first converted to this type
#   halves  first the stored products p with p % 4 in {0, 1}, then the others
#   chain   fused multiply-adds in f32, in ascending k
#   pairs   (c + (p0 + p1)) + (p2 + p3), each + rounded to f32
#   zero    the steps start from zero; c is added last, by an ordinary addition
#           in the accumulator's type, rounded to nearest
_EXPANDED = """
toolkit  targets      unit  k    operands   result   form   as   L   order      start
13.0     sm_90..110   mma   any  e4m3,e5m2  f16,f32  fused  f16  16  halves     zero
13.0     sm_80..121   mma   4    f16        f32      chain  f32  4   ascending  zero
13.0     sm_80..121   mma   4    f16        f16      pairs  f32  4   ascending  c
13.0     sm_80..121   wmma  8    tf32       f32      fused  -    4   ascending  c
"""

_MIXED = {"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}
_INTEGERS = ("s8", "u8", "s4", "u4")
_SCALED = ("mxf8f6f4", "mxf4", "mxf4nvf4")


@dataclass(frozen=True, slots=True)
class Model:
    """How one target computes one instruction; made by :func:`model`.

    >>> half = model("sm_80", "f16", "f16", "f32", "f32", 16)
    >>> half.steps
    ((0, 1, 2, 3, 4, 5, 6, 7), (8, 9, 10, 11, 12, 13, 14, 15))
    >>> half.fraction, half.floor, half.keep, half.rounding
    (24, -132, 23, 'rz')
    """

    target: str
    unit: str
    kind: str | None
    a: str
    b: str
    c: str
    d: str
    k: int  #: logical k of one instruction
    stored: int  #: products per output element: k, or k / 2 if A is sparse
    form: FormName
    accumulator: str  #: the type that every step rounds to
    c_enters: str  #: the type that determines the exponent of c in the first step
    operand: str | None  #: the type to which both operands are converted first
    products: int  #: L
    fraction: int  #: F
    floor: int
    keep: int
    rounding: str
    order: tuple[int, ...]  #: stored positions in the order in which they are added
    start: str  #: "c", or "zero" if c is added last
    scale: str | None  #: the type of block scales
    scale_vec: int  #: block scales per row of A in one instruction
    satfinite: bool
    bitop: str | None
    source: str

    @property
    def steps(self) -> tuple[tuple[int, ...], ...]:
        """The stored positions of the products in each step.

        >>> model("sm_90", "e4m3", "e4m3", "f32", "f32", 16).steps
        ((0, 1, 4, 5, 8, 9, 12, 13), (2, 3, 6, 7, 10, 11, 14, 15))
        """
        size = self.products
        return tuple(
            self.order[first : first + size]
            for first in range(0, len(self.order), size)
        )

    @property
    def sparse(self) -> bool:
        """Whether A holds only half of the columns.

        >>> model("sm_80", "s8", "s8", "s32", "s32", 64, sparse=True).sparse
        True
        """
        return self.stored != self.k

    @property
    def reordered(self) -> bool:
        """Whether products are not added in the order of k.

        >>> model("sm_90", "e4m3", "e4m3", "f32", "f32", 16).reordered
        True
        """
        return self.order != tuple(range(self.stored))

    def __hash__(self) -> int:
        """A hash of a few fields that differ in most models.

        Models are looked up on every call, so it must be fast.
        """
        return hash((self.target, self.unit, self.kind, self.a, self.b, self.d, self.k))

    def __str__(self) -> str:
        sparse = " sparse" if self.sparse else ""
        kind = f" {self.kind}" if self.kind else ""
        return (
            f"{self.unit}{kind}{sparse} k{self.k} {self.a} x {self.b} "
            f"with {self.c} -> {self.d} on {self.target}"
        )


@cache
def model(
    target: str,
    a: str,
    b: str,
    c: str,
    d: str,
    k: int,
    unit: str = "mma",
    kind: str | None = None,
    sparse: bool = False,
    scale: str | None = None,
    scale_vec: int | None = None,
    toolkit: str = TOOLKIT,
    rounding: str = "rn",
    satfinite: bool = False,
    bitop: str | None = None,
    cta_group: int = 1,
    ws: bool = False,
) -> Model:
    """How a target computes an instruction of these types and this k.

    ``a``, ``b``, ``c`` and ``d`` are element types, ``k`` is the instruction's
    logical k.  ``unit`` is ``mma``, ``wgmma``, ``wmma`` or ``tcgen05``.  ``kind`` is
    the word after ``.kind::``.  ``scale`` and ``scale_vec`` describe block scales.
    ``rounding`` is for f64, ``satfinite`` for integers and ``bitop`` (``xor``
    or ``and``) for b1.  ``toolkit`` names the toolkit whose assembler expands
    instructions that the target does not have.  ``cta_group`` and ``ws`` are those of
    tcgen05; they change no number, but less is published about them.

    >>> print(model("sm_90a", "e4m3", "e5m2", "f32", "f32", 32, unit="wgmma"))
    wgmma k32 e4m3 x e5m2 with f32 -> f32 on sm_90a
    >>> model("sm_80", "e4m3", "e4m3", "f32", "f32", 32)
    Traceback (most recent call last):
    ...
    fragmenta.errors.UnsupportedTarget: sm_80 has no mma of e4m3 x e4m3 with f32 \
results; targets with it: sm_89, sm_90, sm_100, sm_103, sm_107, sm_110, sm_120 \
and sm_121
    """
    for name in (a, b, c, d):
        dtype(name)
    asked = _Asked(
        target, number(target), unit, kind, a, b, c, d, k, sparse, cta_group, ws
    )
    if a in _INTEGERS:
        return asked.exact("integer", _INTEGERS, "s32", satfinite=satfinite)
    if a == "b1":
        if bitop not in ("xor", "and"):
            raise BadCall(f"b1 needs bitop='xor' or bitop='and', not {bitop!r}")
        return asked.exact("bits", ("b1",), "s32", bitop=bitop)
    if a == "f64":
        if rounding not in ("rn", "rz", "rm", "rp"):
            raise BadCall(f"no rounding {rounding}; there are rn, rz, rm and rp")
        return asked.exact("chain", ("f64",), "f64", rounding=rounding)
    if a != b and not {a, b} <= _MIXED:
        raise BadOperands(f"with A of {a}, B must be {a}; given {b}")
    if kind in _SCALED:
        return asked.scaled(scale, scale_vec)
    return asked.expanded(_version(toolkit)) or asked.fused()


class _Where(NamedTuple):
    """The first columns of all tables: to which instructions a row applies."""

    architectures: frozenset[int]
    units: frozenset[str]
    k: int | None
    operands: frozenset[str]
    results: frozenset[str]

    @classmethod
    def read(
        cls, targets: str, units: str, k: str, operands: str, results: str
    ) -> _Where:
        every = ("mma", "wgmma", "wmma")  # of sm_90, which has no tcgen05
        return cls(
            frozenset(map(number, expand(targets))),
            frozenset(every if units == "all" else units.split(",")),
            None if k == "any" else int(k),
            frozenset(operands.split(",")),
            frozenset(results.split(",")),
        )

    def fits(self, asked: _Asked, number: int, operands: set[str]) -> bool:
        return (
            number in self.architectures
            and asked.unit in self.units
            and self.k in (None, asked.k)
            and operands <= self.operands
            and asked.accumulator in self.results
        )


class _Fused(NamedTuple):
    """One row of the tables of fused steps."""

    where: _Where
    products: int
    fraction: int
    floor: int
    keep: int
    rounding: str
    source: str

    @classmethod
    def read(cls, cells: list[str]) -> _Fused:
        *where, products, fraction, floor, keep, source = cells
        kept, rounding = keep.split()
        return cls(
            where=_Where.read(*where),
            products=int(products),
            fraction=int(fraction),
            floor=int(floor),
            keep=int(kept),
            rounding=rounding,
            source=source,
        )


class _Expanded(NamedTuple):
    """One row of the table of expansions."""

    toolkit: tuple[int, int]
    where: _Where
    form: FormName
    operand: str | None
    products: int
    order: str
    start: str

    @classmethod
    def read(cls, cells: list[str]) -> _Expanded:
        toolkit, *where, form, operand, products, order, start = cells
        return cls(
            _version(toolkit),
            _Where.read(*where),
            cast(FormName, form),
            None if operand == "-" else operand,
            int(products),
            order,
            start,
        )


def _cells(table: str) -> list[list[str]]:
    """The cells of each row below the heading; two spaces separate cells."""
    lines = [line for line in table.strip().splitlines() if line.strip()]
    return [re.split(r"\s{2,}", line.strip()) for line in lines[1:]]


def _version(toolkit: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.\d+)*", toolkit)
    if match is None:
        raise BadCall(f"{toolkit!r} is not a toolkit version such as {TOOLKIT!r}")
    return int(match[1]), int(match[2])


_FUSED_ROWS = tuple(map(_Fused.read, _cells(_FUSED)))
_GROUPED_ROWS = tuple(map(_Fused.read, _cells(_GROUPED)))
_EXPANDED_ROWS = tuple(map(_Expanded.read, _cells(_EXPANDED)))

# Integers, bits and IEEE 754 operations need no row of a table.
_NOWHERE = _Where(frozenset(), frozenset(), None, frozenset(), frozenset())
_EXACT = _Fused(_NOWHERE, 0, 0, 0, 0, "rn", "exact by definition")


@dataclass(frozen=True, slots=True)
class _Asked:
    """The arguments of :func:`model`, from which a Model is made."""

    target: str
    number: int
    unit: str
    kind: str | None
    a: str
    b: str
    c: str
    d: str
    k: int
    sparse: bool
    cta_group: int
    ws: bool

    @property
    def stored(self) -> int:
        if self.k < 1 or (self.sparse and self.k % 2):
            which = "an even" if self.sparse else "a positive"
            raise ShapeError(f"k is {self.k}; it must be {which} number")
        return self.k // 2 if self.sparse else self.k

    @property
    def accumulator(self) -> str:
        """The type that steps round to.

        If c and d differ, it is f32: an f16 c is widened, and an f16 result is
        rounded to nearest after the last step.
        """
        return self.d if self.c == self.d else "f32"

    @property
    def c_enters(self) -> str:
        """The type that c has in the first step.

        The steps of Volta (k = 4) add an f16 c to an f32 sum without conversion.
        All other steps convert c first.
        """
        volta = self.number < 75 or (self.unit == "mma" and self.k == 4)
        return self.c if volta else self.accumulator

    def exact(
        self,
        form: FormName,
        operands: tuple[str, ...],
        result: str,
        rounding: str = "rn",
        satfinite: bool = False,
        bitop: str | None = None,
    ) -> Model:
        """Integers, bits and f64: the same on every target."""
        if self.b not in operands:
            allowed = one_of(operands)
            raise BadOperands(
                f"with A of {self.a}, B must be {allowed}; given {self.b}"
            )
        if (self.c, self.d) != (result, result):
            raise BadOperands(
                f"C and D of {self.a} x {self.b} must be {result}; "
                f"given {self.c} and {self.d}"
            )
        return self._model(form, _EXACT, rounding, satfinite=satfinite, bitop=bitop)

    def fused(self) -> Model:
        """Fused steps in hardware."""
        return self._model("fused", self._row(_FUSED_ROWS, {self.a, self.b}))

    def scaled(self, scale: str | None, scale_vec: int | None) -> Model:
        """Steps of products with block scales."""
        grouped = self.kind != "mxf8f6f4"
        row = self._row(_GROUPED_ROWS if grouped else _FUSED_ROWS, {self.a, self.b})
        self._known(self.stored, row.products)  # before its scales, which differ, too
        vector = scale_vec or {"mxf8f6f4": 1, "mxf4": 2}.get(self.kind or "", 0)
        name = scale or "ue8m0"
        allowed = {
            "mxf8f6f4": (("ue8m0", 1),),
            "mxf4": (("ue8m0", 2),),
            "mxf4nvf4": (("ue8m0", 2), ("ue8m0", 4), ("ue4m3", 4)),
        }[self.kind or ""]
        if (name, vector) not in allowed:
            pairs = one_of(f"scale={s!r}, scale_vec={v}" for s, v in allowed)
            raise BadOperands(
                f"kind {self.kind} takes {pairs}; given scale={name!r}, "
                f"scale_vec={vector}"
            )
        form: FormName = "grouped" if grouped else "fused"
        return self._model(form, row, scale=name, scale_vec=vector)

    def expanded(self, toolkit: tuple[int, int]) -> Model | None:
        """How the assembler expands it; None if the target has it in hardware."""
        operands = {self.a, self.b}
        rows = [r for r in _EXPANDED_ROWS if r.where.fits(self, self.number, operands)]
        if not rows:
            return None
        known = [row for row in rows if row.toolkit <= toolkit]
        if not known:
            oldest = min(row.toolkit for row in rows)
            raise UnsupportedTarget(
                f"{self.target} does not have this instruction, and its expansion is "
                "known from toolkit {}.{} on; given {}.{}".format(*oldest, *toolkit)
            )
        row = max(known, key=lambda each: each.toolkit)
        native = {row.operand} if row.operand else operands
        steps = self._row(_FUSED_ROWS, native) if row.form == "fused" else _EXACT
        return self._model(row.form, steps, expanded=row)

    def _row(self, rows: tuple[_Fused, ...], operands: set[str]) -> _Fused:
        """The first row that fits, or an error that names targets with such a row."""
        for row in rows:
            if row.where.fits(self, self.number, operands):
                return row
        expanded = () if self.kind in _SCALED else _EXPANDED_ROWS
        places = [row.where for row in rows] + [row.where for row in expanded]
        numbers = [
            n for n in ARCHITECTURES if any(w.fits(self, n, operands) for w in places)
        ]
        others = one_of((f"sm_{n}" for n in numbers), "and") or "none"
        raise UnsupportedTarget(
            f"{self.target} has no {self.unit} of {self.a} x {self.b} with "
            f"{self.accumulator} results; targets with it: {others}"
        )

    def _model(
        self,
        form: FormName,
        row: _Fused,
        rounding: str | None = None,
        *,
        expanded: _Expanded | None = None,
        scale: str | None = None,
        scale_vec: int = 0,
        satfinite: bool = False,
        bitop: str | None = None,
    ) -> Model:
        stored = self.stored
        self._known(stored, row.products or _INTEGER_PRODUCTS)
        order = tuple(range(stored))
        limit = min(row.products or stored, stored)
        if expanded:
            limit = min(expanded.products, stored)
            if expanded.order == "halves":
                order = tuple(sorted(order, key=lambda p: p % 4 // 2))
                limit = min(limit, stored // 2)
        if stored % limit or (form == "grouped" and limit % GROUP):
            raise ShapeError(
                f"k = {self.k} has {stored} products, which is not a whole number of "
                f"steps of {limit}"
            )
        return Model(
            target=self.target,
            unit=self.unit,
            kind=self.kind,
            a=self.a,
            b=self.b,
            c=self.c,
            d=self.d,
            k=self.k,
            stored=stored,
            form=form,
            accumulator=self.accumulator,
            c_enters=self.c_enters,
            operand=expanded.operand if expanded else None,
            products=limit,
            fraction=row.fraction,
            floor=row.floor,
            keep=row.keep,
            rounding=rounding or row.rounding,
            order=order,
            start=expanded.start if expanded else "c",
            scale=scale,
            scale_vec=scale_vec,
            satfinite=satfinite,
            bitop=bitop,
            source=self._source(form, row.source, satfinite),
        )

    def _known(self, stored: int, products: int) -> None:
        """Refuse a k of tcgen05 whose sum is in no publication."""
        if self.unit == "tcgen05" and stored != products:
            k = products * (2 if self.sparse else 1)
            raise Error(
                f"nobody has published how {self.target} adds the products of "
                f"tcgen05 with k = {self.k} and {self.a} x {self.b}; k = {k} is known"
            )

    def _source(self, form: FormName, source: str, satfinite: bool) -> str:
        """The source of the row, or what is assumed because there is none."""
        if self.unit != "tcgen05":
            return source
        if form == "integer":
            return f"{source}; assumed: saturated at the end" if satfinite else source
        assumed = [words for words, holds in _UNPUBLISHED if holds(self)]
        return f"assumed: {'; '.join(assumed)}" if assumed else source
