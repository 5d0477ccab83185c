"""Hashes through Tensor Core instructions: the model of the target as an expression.

A step adds products exactly, so its hash is that of their sum in two rings, of the
accumulator and of the numbers of the step (:func:`.equality.step_form`).  Two targets
with equal models have equal hashes.

- A product with a constant zero is left out: it has no exponent, and it adds nothing.
  It would matter only if the other factor were infinite or NaN; the launch counts such
  products as a condition.
- A step without products leaves the result of an earlier step, and +0, as it is.
- Where operands are converted first, where c is added last, and where the result is
  rounded once more, the hash is that of the instructions which do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fragmenta.base.jit.trace import (
    I1,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    any_lane,
    convert,
    select,
)
from fragmenta.engine.planes.code.products import (
    Eight,
    ProductMatrices,
    ProductShape,
    each_eight,
)
from fragmenta.reference.arithmetic.equality import step_form
from fragmenta.reference.arithmetic.models import GROUP, Model
from fragmenta.reference.registers.dtype import dtype
from fragmenta.values.expressions.code import hashing
from fragmenta.values.expressions.code.elements import element, stored, zero_of
from fragmenta.values.expressions.code.hashing import Hash
from fragmenta.values.expressions.code.logging import log_product
from fragmenta.values.expressions.code.names import conversion
from fragmenta.values.expressions.code.notes import FIRST, KINDS, NOTES

LOGGED = "expressions-logged"
"""The name of the algebra that writes a log."""


def step_name(model: Model, first: bool = False) -> str:
    """The name of a step; c may enter the first step as another type.

    >>> from fragmenta.reference.arithmetic import model
    >>> step_name(model("sm_90", "f16", "f16", "f32", "f32", 16))
    'fused 25 None 23 rz f32 -14 -14'
    """
    name = " ".join(map(str, step_form(model)))
    if first and model.c_enters != model.accumulator:
        name += f" c as {model.c_enters}"
    return name


def keeps_accumulator(model: Model) -> bool:
    """Whether a step without products keeps every bit of an earlier result."""
    bits = dtype(model.accumulator).fraction_bits
    return model.form in ("fused", "grouped") and model.fraction >= model.keep == bits


@dataclass(frozen=True)
class ProductHashes:
    """The algebra of products: a ``ProductAlgebra`` of planes."""

    planes: int = 4
    name: str = "expressions"
    most: int = 4

    def product(self, code: Code, how: ProductShape, tiles: ProductMatrices) -> Value:
        """The hashes of D, if any operand has one."""
        some = tiles.has_a | tiles.has_b | tiles.has_c
        made = code.variable(code.constant(0, I32))
        with code.when(some):
            work = _Work(code, how, tiles)
            work.factors()
            work.notes()
            with each_eight(code, how) as at:
                work.eight(at)
            made.value = convert(work.found.value, I32, signed=False)
            if self.name == LOGGED:
                work.log()
        return made.value


class _Work:
    """The code of one product."""

    def __init__(self, code: Code, how: ProductShape, tiles: ProductMatrices) -> None:
        self.code, self.how, self.tiles, self.model = code, how, tiles, how.model
        self.scalar = self.model.form in ("chain", "pairs")
        sizes = how.sizes
        self.a = [code.scratch(I64, sizes["a"]) for _ in range(2)]
        self.b = [code.scratch(I64, sizes["b"]) for _ in range(2)]
        self.found = code.variable(code.constant(0, I1))

    # ── operands ────────────────────────────────────────────────────────────

    def _element(self, name: str, at: Value) -> tuple[Hash, Value]:
        """The hashes of eight elements, and which of them are constants."""
        tiles, how = self.tiles, self.how
        bits, second = getattr(tiles, name), getattr(tiles, f"{name}2")
        has = getattr(tiles, f"has_{name}")
        raw = convert(bits.lanes(at), I64, signed=False)
        zero = raw ^ raw
        size = how.sizes[name]
        there = [
            # Without second values there is memory for the first eight only.
            select(
                has.in_all_lanes(), second.lanes(select(has, at + word * size, 0)), zero
            )
            for word in range(min(how.words(name), 4))
        ]
        return element(how.bits(name), raw, there)

    def factors(self) -> None:
        """The factors of A and B, or their hashes where steps are operations."""
        for name, goal in (("a", self.a), ("b", self.b)):
            with self.code.loop(self.how.sizes[name], step=LANES) as at:
                found, known = self._element(name, at)
                u, v = self._factor(name, at, found, known)
                goal[0][at], goal[1][at] = u, v

    def _factor(self, name: str, at: Value, found: Hash, known: Value) -> Hash:
        model = self.model
        kind: str = getattr(model, name)
        if self.how.negated[name == "b"]:
            minus = hashing.negative(found)
            found = Hash(
                select(known, found.u, minus.u), select(known, found.v, minus.v)
            )
        if model.operand and model.operand != kind:
            converted = hashing.operation(conversion(model.operand, kind), [found])
            narrow = dtype(model.operand).bits == 16
            found = hashing.widened(hashing.short(converted)) if narrow else converted
        if self.scalar:
            return found
        u, v = hashing.factor(found)
        raw = convert(getattr(self.tiles, name).lanes(at), I64, signed=False)
        gone = known & self._is_zero(raw, kind)
        return Hash(select(gone, u.lift(0), u), select(gone, v.lift(0), v))

    def _is_zero(self, raw: Value, kind: str) -> Value:
        of = dtype(kind)
        kept = raw if of.is_integer else raw & ((1 << (of.bits - 1)) - 1)
        found: Value = kept == 0
        return found

    def log(self) -> None:
        """Write the matrices into the log."""
        how, tiles = self.how, self.tiles
        parts: list[tuple[Memory, int, Value | None]] = []
        for name in ("a", "b", "c"):
            size = how.sizes[name]
            parts.append((getattr(tiles, name), size, None))
            has = getattr(tiles, f"has_{name}")
            parts.append((getattr(tiles, f"{name}2"), how.words(name) * size, has))
        parts.append((tiles.d2, how.words("d") * how.sizes["d"], None))
        if tiles.index is not None:
            parts.append((tiles.index, how.sizes["a"], None))
        log_product(self.code, tiles.data, tiles.site, parts)

    def notes(self) -> None:
        """Note zeros that meet what may be infinite, and scales."""
        if self.model.form in ("integer", "bits"):
            return
        if self.tiles.scale_a is not None:
            self._note("scales", self.code.constant(1, I1))
        if self.scalar:
            return
        self._note("infinite", self._meets())

    def _note(self, kind: str, condition: Value) -> None:
        code, tiles = self.code, self.tiles
        place = tiles.site * NOTES + (FIRST + KINDS.index(kind))
        with code.when(condition & (tiles.data != 0)):
            pointer = code.builder.inttoptr(tiles.data.raw, I64.as_pointer())
            counts = Memory(code.builder, pointer, I64)
            counts[place] = counts[place] + 1

    def _meets(self) -> Value:
        """Whether a constant zero is multiplied with something that has a hash.

        Asked for each k, not for each product: a row or column of zeros is enough.
        """
        model, code = self.model, self.code
        zero_a, zero_b = (code.scratch(I64, model.k) for _ in range(2))
        held_a, held_b = (code.scratch(I64, model.k) for _ in range(2))
        for each in (zero_a, zero_b, held_a, held_b):
            with code.loop(model.k) as p:
                each[p] = code.constant(0, I64)
        for name, zeros, held, length in (
            ("a", zero_a, held_a, model.stored),
            ("b", zero_b, held_b, model.k),
        ):
            with self.code.loop(self.how.sizes[name], step=LANES) as at:
                _, known = self._element(name, at)
                ring = (self.a if name == "a" else self.b)[0]
                gone = any_lane(ring.lanes(at) == 0)
                p = (at >> 3) % length
                zeros[p] = zeros[p] | convert(gone, I64, signed=False)
                held[p] = held[p] | convert(any_lane(~known), I64, signed=False)
        found = code.variable(code.constant(0, I64))
        if model.sparse:  # which k a stored element meets is data: any of them
            every = [code.variable(code.constant(0, I64)) for _ in range(4)]
            for goal, of in zip(every, (zero_a, held_b, zero_b, held_a), strict=True):
                with code.loop(model.k) as p:
                    goal.value = goal.value | of[p]
            a0, b1, b0, a1 = (one.value for one in every)
            found.value = (a0 & b1) | (b0 & a1)
        else:
            with code.loop(model.k) as p:
                both = (zero_a[p] & held_b[p]) | (zero_b[p] & held_a[p])
                found.value = found.value | both
        some: Value = found.value != 0
        return some

    # ── eight results ───────────────────────────────────────────────────────

    def eight(self, at: Eight) -> None:
        """Eight elements of a row of D."""
        model, code = self.model, self.code
        c, known = self._element("c", at.c)
        alone = known & ~self._used(at)
        state = self._scalar(at, c) if self.scalar else self._steps(at, c)
        if model.accumulator == "f32" and model.d == "f16":
            made = hashing.short(hashing.operation(conversion("f16", "f32"), [state]))
            state = hashing.widened(made)
        written = stored(self.how.bits("d"), state)
        size = self.how.sizes["d"]
        for word in range(self.how.words("d")):
            value = written[word] if word < len(written) else state.u ^ state.u
            self.tiles.d2[at.c + word * size] = select(alone, value.lift(0), value)
        some = any_lane(~alone)
        with code.when(some):
            self.found.value = some

    def _used(self, at: Eight) -> Value:
        """Whether a product that is not left out has a factor with a hash."""
        one = self.code.constant(0, I1).in_all_lanes()
        return one | (self.tiles.has_a | self.tiles.has_b).in_all_lanes()

    def _steps(self, at: Eight, c: Hash) -> Hash:
        model, code = self.model, self.code
        zero = c.u ^ c.u
        start = c
        if model.start == "zero":
            start = zero_of(self.how.bits("c"), zero)
        if model.form in ("integer", "bits"):
            total = self._sum(at, range(model.stored))
            return hashing.step(
                f"{model.form} {model.bitop} {model.satfinite}", c, total
            )
        state = Hash(*(each for each in start))
        for number, positions in enumerate(model.steps):
            if model.form == "grouped":
                total = self._groups(at, positions)
            else:
                total = self._sum(at, positions)
            made = self._step(state, total, number == 0)
            state = self._kept(state, total, made)
        if model.start == "zero":
            state = hashing.operation(f"add.rn.{model.accumulator}", [c, state], 2)
            if model.accumulator == "f16":
                state = hashing.widened(hashing.short(state))
        del code
        return state

    def _step(self, state: Hash, total: Hash, first: bool) -> Hash:
        made = hashing.step(step_name(self.model, first), state, total)
        if self.model.accumulator == "f16":
            return hashing.widened(hashing.short(made))
        return made

    def _kept(self, before: Hash, total: Hash, made: Hash) -> Hash:
        """Without products, what was there before, if it cannot change."""
        if not keeps_accumulator(self.model):
            return made
        zero = zero_of(self.how.bits("c"), before.u ^ before.u)
        of_step = before.u if self.model.accumulator == "f16" else before.v
        same = (before.u == zero.u) & (before.v == zero.v)
        same = same | ((of_step & hashing.STEP) != 0)
        same = same & ((total.u | total.v) == 0)
        return Hash(select(same, before.u, made.u), select(same, before.v, made.v))

    def _sum(self, at: Eight, positions: Sequence[int]) -> Hash:
        """The sum of products in both rings."""
        code = self.code
        none = code.constant(0, I64).in_all_lanes()
        total = [code.variable(none) for _ in range(2)]

        def add(p: Value | int) -> None:
            place = self._column(at, p)
            for ring in range(2):
                x = self.a[ring][at.a + p * LANES].in_all_lanes()
                y = self.b[ring].lanes(place)
                total[ring].value = total[ring].value + x * y * self._scale(at, p, ring)

        first, count = positions[0], len(positions)
        if list(positions) == list(range(first, first + count)):
            with code.loop(first + count, start=first) as p:
                add(p)
        else:
            for each in positions:
                add(code.constant(each, I64))
        return Hash(total[0].value, total[1].value)

    def _column(self, at: Eight, p: Value | int) -> Value:
        """Where the eight elements of B are that stored product p takes."""
        index = self.tiles.index
        if index is None:
            return at.b + p * LANES
        return at.b + convert(index[at.row * self.model.stored + p], I64) * LANES

    def _scale(self, at: Eight, p: Value | int, ring: int) -> Value | int:
        """The factor of the block scales of a product: scales are constants."""
        tiles, model = self.tiles, self.model
        if tiles.scale_a is None or tiles.scale_b is None or model.form == "grouped":
            return 1
        found: Value = self._scales(at, p)[ring]
        return found

    def _scales(self, at: Eight, p: Value | int) -> Hash:
        tiles, model, code = self.tiles, self.model, self.code
        assert tiles.scale_a is not None
        assert tiles.scale_b is not None
        place = code.constant(0, I64) + p
        block = place * model.scale_vec // model.stored
        left = tiles.scale_a[(at.panel_a * model.scale_vec + block) * LANES + at.lane]
        right = tiles.scale_b.lanes((at.panel_b * model.scale_vec + block) * LANES)
        x, y = (
            hashing.factor(
                hashing.widened(hashing.constant(convert(e, I64, signed=False)))
            )
            for e in (left.in_all_lanes(), right)
        )
        return Hash(x.u * y.u, x.v * y.v)

    def _groups(self, at: Eight, positions: Sequence[int]) -> Hash:
        """Groups of products are added first; a group has its own scales."""
        total: Hash | None = None
        for first in range(0, len(positions), GROUP):
            some = positions[first : first + GROUP]
            part = self._sum(at, some)
            none = (part.u | part.v) == 0
            mixed = hashing.factor(part)
            scales = self._scales(at, some[0])
            u = select(none, part.u, mixed.u * scales.u)
            v = select(none, part.v, mixed.v * scales.v)
            total = Hash(u, v) if total is None else Hash(total.u + u, total.v + v)
        assert total is not None
        return total

    # ── chains of ordinary operations ───────────────────────────────────────

    def _operands(self, at: Eight, p: Value | int) -> tuple[Hash, Hash]:
        place = self._column(at, p)
        x = Hash(*(ring[at.a + p * LANES].in_all_lanes() for ring in self.a))
        y = Hash(*(ring.lanes(place) for ring in self.b))
        return x, y

    def _scalar(self, at: Eight, c: Hash) -> Hash:
        """Fused multiply-adds one after the other, or in pairs."""
        model, code = self.model, self.code
        kind = "f64" if model.accumulator == "f64" else "f32"
        fma, add = f"fma.{model.rounding}.{kind}", f"add.rn.{kind}"
        if model.form == "chain":
            zero = zero_of(64 if kind == "f64" else 32, c.u ^ c.u)
            start = c if model.start == "c" else zero
            state = [code.variable(each) for each in start]
            with code.loop(model.stored) as p:
                before = Hash(state[0].value, state[1].value)
                made = hashing.operation(fma, [*self._operands(at, p), before], 2)
                state[0].value, state[1].value = made
            found = Hash(state[0].value, state[1].value)
            return (
                found if model.start == "c" else hashing.operation(add, [c, found], 2)
            )
        if model.c == "f16":
            c = hashing.operation(conversion("f32", "f16"), [c])
        parts = []
        for first in (0, 2):
            low = hashing.operation(f"mul.rn.{kind}", self._operands(at, first), 2)
            some = [*self._operands(at, first + 1), low]
            parts.append(hashing.operation(fma, some, 2))
        found = hashing.operation(add, [c, parts[0]], 2)
        return hashing.operation(add, [found, parts[1]], 2)
