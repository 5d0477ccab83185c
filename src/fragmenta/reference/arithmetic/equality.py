"""Whether two models give the same bits for all inputs.

Two models are compared over the same k: instructions with a smaller k follow one
another, and the result of one is the accumulator of the next.  :func:`normal_form` says
in which steps the sum is made, and leaves out what cannot change a bit: the order of
the products within a step, and limits that no input reaches.  Models with one normal
form are equal.  For two others, :func:`separate` finds an input whose results differ.

A model has a *signature*: the types of its operands and results, and how many products
share a block scale.  Models of different signatures take different inputs, so they are
never compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import lcm

import numpy as np
from numpy.typing import NDArray

from fragmenta.errors import BadCall
from fragmenta.reference.arithmetic.constants import least
from fragmenta.reference.arithmetic.matrix import multiply
from fragmenta.reference.arithmetic.models import GROUP, Model
from fragmenta.reference.arithmetic.operands import Bits
from fragmenta.reference.registers.dtype import DType, dtype, largest

# One round of the search multiplies so many pairs of matrices of this size.
_BATCH, _ROWS = 32, 6
_ROUNDS = 400


def signature(model: Model) -> tuple[object, ...]:
    """What two models must have in common to take the same inputs.

    >>> from fragmenta.reference.arithmetic import model
    >>> signature(model("sm_80", "f16", "f16", "f32", "f32", 16))
    ('f16', 'f16', 'f32', 'f32', False, None, 0)
    """
    block = model.k // model.scale_vec if model.scale_vec else 0
    kinds = model.a, model.b, model.c, model.d
    return (*kinds, model.sparse, model.scale, block)


def why_not_comparable(x: Model, y: Model) -> str:
    """Why two models cannot be compared; an empty text if they can.

    >>> from fragmenta.reference.arithmetic import model
    >>> half = model("sm_80", "f16", "f16", "f32", "f32", 16)
    >>> why_not_comparable(half, model("sm_80", "bf16", "bf16", "f32", "f32", 16))[:44]
    'they take different operands: f16 x f16 with'
    """
    if signature(x) != signature(y):
        words = [
            f"{'sparse ' if m.sparse else ''}{m.a} x {m.b} with {m.c} -> {m.d}"
            + (f", a {m.scale} scale for {signature(m)[-1]}" if m.scale else "")
            for m in (x, y)
        ]
        return f"they take different operands: {', '.join(words)}"
    if x.k != y.k and x.c != x.d:
        return f"a {x.d} result of one cannot be the {x.c} accumulator of the next"
    return ""


def common_k(x: Model, y: Model) -> int:
    """The least k over which both are whole instructions."""
    return lcm(x.k, y.k)


# ── the normal form ─────────────────────────────────────────────────────────


def normal_form(model: Model, k: int) -> tuple[object, ...]:
    """The steps of instructions that cover ``k``, without what changes no bit.

    >>> from fragmenta.reference.arithmetic import model
    >>> ampere = [model("sm_80", "f16", "f16", "f32", "f32", k) for k in (8, 16)]
    >>> normal_form(ampere[0], 16) == normal_form(ampere[1], 16)
    True
    """
    if k % model.k:
        raise BadCall(f"k = {k} is no multiple of {model.k}, the k of {model}")
    count = k // model.k
    if model.form == "integer":
        return "integer", model.satfinite, _clamped(model, count)
    if model.form == "bits":
        return "bits", model.bitop
    if model.form == "chain" and model.accumulator == "f64":
        return "chain", model.rounding  # one product after the other, whatever k is
    if model.form in ("chain", "pairs"):
        return model.form, model.start, count
    return (
        model.form,
        tuple(_steps(model, count)),
        step_form(model),
        _entering(model),
        model.start,
        count if model.start == "zero" else 1,
    )


def step_form(model: Model) -> tuple[object, ...]:
    """What decides the bits of one step: the numbers of its sum and of its operands.

    >>> from fragmenta.reference.arithmetic import model
    >>> step_form(model("sm_90", "f16", "f16", "f32", "f32", 16))
    ('fused', 25, None, 23, 'rz', 'f32', -14, -14)
    """
    return (
        model.form,
        model.fraction,
        model.floor if _reaches_floor(model) else None,
        model.keep,
        model.rounding,
        model.accumulator,
        *(least(model.operand or each) for each in (model.a, model.b)),
    )


def _clamped(model: Model, count: int) -> int:
    """How often a sum of integers is clamped on its way, if that can be seen.

    Products of unsigned integers only grow: to clamp once is enough.
    """
    unsigned = all(dtype(each).kind == "unsigned" for each in (model.a, model.b))
    return count if model.satfinite and not unsigned else 0


def _steps(model: Model, count: int) -> Iterator[frozenset[object]]:
    """The products of each step; of groups of them, if groups are added first."""
    for first in range(0, count * model.stored, model.stored):
        for step in model.steps:
            places = [first + each for each in step]
            if model.form == "grouped":
                groups = range(0, len(places), GROUP)
                yield frozenset(frozenset(places[g : g + GROUP]) for g in groups)
            else:
                yield frozenset(places)


def _entering(model: Model) -> int:
    """The exponent of the least c; it counts in the first step alone."""
    return least(model.c_enters)


def _reaches_floor(model: Model) -> bool:
    """Whether a term can have bits below what the floor of emax leaves.

    The floor changes a bit only if something is below ``2**(floor - F)``.
    """
    least_bits = [
        least(model.operand or name) - dtype(name).fraction_bits
        for name in (model.a, model.b)
    ]
    if model.scale:
        return True
    product = sum(least_bits)
    accumulated = least(model.accumulator) - dtype(model.accumulator).fraction_bits
    return min(product, accumulated) < model.floor - model.fraction


def equal_models(x: Model, y: Model) -> bool:
    """Whether two models give the same bits for all inputs.

    >>> from fragmenta.reference.arithmetic import model
    >>> hopper = model("sm_90a", "f16", "f16", "f32", "f32", 16, unit="wgmma")
    >>> ampere, blackwell = (
    ...     model(each, "f16", "f16", "f32", "f32", 16) for each in ("sm_80", "sm_100a")
    ... )
    >>> equal_models(hopper, blackwell), equal_models(hopper, ampere)
    (True, False)
    """
    wrong = why_not_comparable(x, y)
    if wrong:
        raise BadCall(f"{x} and {y} cannot be compared: {wrong}")
    k = common_k(x, y)
    return normal_form(x, k) == normal_form(y, k)


# ── inputs that separate ────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class Separation:
    """One row of A, one column of B and one c for which two models differ.

    All are raw bits; ``first`` and ``second`` are the results.  Of a sparse A, the
    first of each pair of columns is stored.
    """

    k: int
    a: Bits
    b: Bits
    c: Bits
    scale_a: Bits | None
    scale_b: Bits | None
    first: int
    second: int

    def run(self, model: Model) -> int:
        """The result of a model for this input."""
        return int(_run(model, self)[0, 0])


def separate(x: Model, y: Model, *, seed: int = 0) -> Separation | None:
    """An input for which the results of two models differ, or None.

    The input is reduced: products that do not matter are zero.

    >>> from fragmenta.reference.arithmetic import model
    >>> ampere, hopper = (
    ...     model(each, "f16", "f16", "f32", "f32", 16) for each in ("sm_80", "sm_90")
    ... )
    >>> found = separate(ampere, hopper)
    >>> found.first == found.run(ampere) != found.run(hopper) == found.second
    True
    >>> separate(ampere, ampere) is None
    True
    """
    if equal_models(x, y):
        return None
    random = np.random.default_rng(seed)
    k = common_k(x, y)
    for _ in range(_ROUNDS):
        given = Inputs(x, k, random)
        one, two = (given.run(each) for each in (x, y))
        apart = np.argwhere(one != two)
        if len(apart):
            return _reduced(given.element(*apart[0]), x, y)
    return None


class Inputs:
    """Matrices that put terms near one another's cut."""

    def __init__(self, model: Model, k: int, random: np.random.Generator) -> None:
        self.random, self.model, self.k = random, model, k
        self.stored = k * model.stored // model.k
        blocks = k // model.k * model.scale_vec
        kinds = [dtype(each) for each in (model.a, model.b, model.c)]
        shapes = (
            (_BATCH, _ROWS, self.stored),
            (_BATCH, k, _ROWS),
            (_BATCH, _ROWS, _ROWS),
        )
        if kinds[0].is_integer:
            self.a, self.b, self.c = map(self._integers, kinds, shapes)
        else:
            self.a, self.b, self.c = self._floats(kinds, shapes)
        self.scale_a = self.scale_b = None
        if model.scale:
            self.scale_a = self._scales((_BATCH, _ROWS, blocks))
            self.scale_b = self._scales((_BATCH, blocks, _ROWS))

    def _integers(self, of: DType, shape: tuple[int, ...]) -> Bits:
        """Any values; accumulators near both ends of their range, too."""
        bits = self.random.integers(0, of.mask + 1, shape, np.uint64)
        if of.bits == 32:
            near = self.random.integers(0, 4096, shape, np.uint64)
            ends = np.where(bits & 1, 0x7FFFFFFF - near, 0x80000000 + near)
            bits = np.where(bits & 2, ends, bits)
        return bits.astype(of.bits_dtype)

    def _floats(
        self, kinds: list[DType], shapes: tuple[tuple[int, ...], ...]
    ) -> tuple[Bits, Bits, Bits]:
        """Products of a few magnitudes: large, next to it, and about a cut below."""
        random, stored = self.random, self.stored
        tops = [np.log2(largest(each)) for each in kinds]
        lows = [least(each.name) - each.fraction_bits for each in kinds]
        low, high = lows[0] + lows[1], min(tops[0] + tops[1], tops[2])
        top = random.uniform(low, high, (_BATCH, 1))
        below = np.array([0, 0, 1, 3, 10, 11, 12, 13, 14, 22, 23, 24, 25, 26, 34, 35])
        depth = below[random.integers(0, len(below), (_BATCH, stored))]
        few = random.choice([0.0, 0.0, 0.5, 0.8, 0.95], (_BATCH, 1))
        gone = random.random((_BATCH, stored)) < few
        wanted = np.clip(top - depth, low, high)
        share = np.clip(
            wanted / 2 + random.integers(-3, 4, wanted.shape), lows[0], None
        )
        share = np.minimum(share, tops[0])
        other = wanted - share
        step = self.model.k // self.model.stored
        b_share = np.repeat(other, step, 1)
        a = self._numbers(kinds[0], share[:, None, :], shapes[0])
        a[np.broadcast_to(gone[:, None, :], shapes[0])] = 0
        b = self._numbers(kinds[1], b_share[:, :, None], shapes[1])
        depth = below[random.integers(0, len(below), shapes[2])]
        up = random.integers(0, 2, shapes[2]) * random.integers(0, 30, shapes[2])
        level = np.broadcast_to(top[:, :, None], shapes[2])
        c = self._numbers(kinds[2], level - depth + up, shapes[2])
        c[random.random(shapes[2]) < 0.2] = 0
        return a, b, c

    def _numbers(
        self, of: DType, level: NDArray[np.float64], shape: tuple[int, ...]
    ) -> Bits:
        """Raw bits of finite numbers near powers of two."""
        random = self.random
        level = np.floor(np.broadcast_to(level, shape)) + random.integers(-1, 2, shape)
        width = of.bits - 1 - of.exponent_bits  # more than a fraction has: tf32
        most = of.mask >> 1
        if of.has_infinity:
            most = (((1 << of.exponent_bits) - 1) << width) - 1
        elif of.has_nan:
            most -= 1
        field = np.clip(level + of.bias, 0, (1 << of.exponent_bits) - 1)
        ones = (1 << width) - (1 << (width - of.fraction_bits))
        kind = random.integers(0, 4, shape)
        any_bits = random.integers(0, ones + 1, shape, np.int64) & ones
        fraction = np.select([kind == 0, kind == 1], [0, ones], any_bits)
        body = np.minimum((field.astype(np.int64) << width) | fraction, most)
        sign = random.integers(0, 2, shape, np.int64) << (of.bits - 1)
        bits: Bits = body.astype(np.uint64) | sign.astype(np.uint64)
        return bits.astype(of.bits_dtype)

    def _scales(self, shape: tuple[int, ...]) -> Bits:
        if self.model.scale == "ue8m0":
            found = 127 + self.random.integers(-20, 21, shape)
        else:
            found = self.random.integers(1, 0x7F, shape)
        return found.astype(np.uint8)

    def run(self, model: Model) -> Bits:
        """The results of all matrices."""
        return _run(model, self)

    def element(self, batch: int, row: int, column: int) -> Separation:
        """The row, the column and the c of one result."""
        columns = slice(column, column + 1)
        rows = slice(row, row + 1)
        return Separation(
            self.k,
            self.a[batch, rows].copy(),
            self.b[batch, :, columns].copy(),
            self.c[batch, rows, columns].copy(),
            None if self.scale_a is None else self.scale_a[batch, rows].copy(),
            None if self.scale_b is None else self.scale_b[batch, :, columns].copy(),
            0,
            0,
        )


def _run(model: Model, given: Separation | Inputs) -> Bits:
    return multiply(
        given.a,
        given.b,
        given.c,
        model,
        index=_index(model, given.a.shape),
        scale_a=given.scale_a,
        scale_b=given.scale_b,
    )


def _reduced(given: Separation, x: Model, y: Model) -> Separation:
    """The same with as many zeros as possible: products first, then c."""
    parts = [(given.a, (0, p)) for p in range(given.a.shape[1])] + [(given.c, (0, 0))]
    for array, place in parts:
        before = array[place]
        array[place] = 0
        if _run(x, given)[0, 0] == _run(y, given)[0, 0]:
            array[place] = before
    if x.form != "bits":  # where 0 counts
        given.b[np.repeat(given.a[0] == 0, x.k // x.stored)] = 0
    first, second = (int(_run(each, given)[0, 0]) for each in (x, y))
    return Separation(
        given.k,
        given.a,
        given.b,
        given.c,
        given.scale_a,
        given.scale_b,
        first,
        second,
    )


def _index(model: Model, shape: tuple[int, ...]) -> Bits | None:
    """Where stored products are: the first of each pair of columns."""
    if not model.sparse:
        return None
    place = np.arange(shape[-1]) * 2 % model.k
    return np.broadcast_to(place.astype(np.uint8), shape)
