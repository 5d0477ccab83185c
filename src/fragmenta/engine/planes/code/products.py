"""Products of matrices for algebras: what their code is given.

:mod:`fragmenta.engine.planes.products` explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

from fragmenta.base.arrays.once import once
from fragmenta.base.jit.compiler import Traced, pointer
from fragmenta.base.jit.llvm import Type
from fragmenta.base.jit.trace import I8, I32, I64, LANES, Code, Memory, Value, convert
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.execution.mma import numeric_model
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import chosen_target
from fragmenta.reference.registers.fragment import Fragment

QUARTER = 16
"""Bits of an element that four planes make a word of."""


class Ends(NamedTuple):
    """What is done with C and D before and after each panel of eight columns."""

    begin: Callable[[Value], None]
    end: Callable[[Value], None]


class ProductShape(NamedTuple):
    """Which instruction it is, and how large its matrices are."""

    op: Instruction
    model: Model
    planes: int
    negated: tuple[bool, bool] = (False, False)
    """Whether ``imm-scale-a`` or ``imm-scale-b`` is -1: ``a`` and ``b`` are negated
    already, their second values are not."""
    most: int = 4
    """How many words of a second value the algebra uses, at most."""
    ends: Ends | None = None
    """What reads C and writes D, if one panel of them is in memory at a time."""

    @property
    def matrices(self) -> int:
        """How many products one instruction computes: usually one."""
        return self.op.d.shape[0] if len(self.op.d.shape) > 2 else 1

    @property
    def rows(self) -> int:
        """Rows of D, in all matrices."""
        return self.op.shape[0] * self.matrices

    @property
    def columns(self) -> int:
        """Columns of each D."""
        return self.op.shape[1]

    @property
    def sizes(self) -> dict[str, int]:
        """How many elements the operands have."""
        model, many = self.model, self.matrices
        end = self.rows * (self.columns if self.ends is None else LANES)
        return {
            "a": self.rows * model.stored,
            "b": many * self.columns * model.k,
            "c": end,
            "d": end,
        }

    def bits(self, name: str) -> int:
        """The bits of an element of an operand where it is stored."""
        part = self.op.fragments.get(name.upper())
        if isinstance(part, Fragment):
            return part.container.bits
        # In shared or tensor memory, where D is C before.
        return self.op.types["d" if name == "c" else name].bits

    def words(self, name: str) -> int:
        """The words of the second value of an element that the algebra uses."""
        return min(self.most, words(self.bits(name), self.planes))

    @property
    def raw(self) -> Type:
        """The type of raw bits."""
        found: Type = I64 if self.model.accumulator == "f64" else I32
        return found


def words(bits: int, planes: int) -> int:
    """How many words of 64 bits the second value of an element has.

    >>> words(16, 4), words(32, 4), words(8, 8), words(4, 8), words(64, 4)
    (1, 2, 1, 1, 4)
    """
    return max(1, -(-bits * planes // 64))


class ProductMatrices(NamedTuple):
    """The operands of a product as matrices, and their second values."""

    a: Memory
    b: Memory
    c: Memory
    d: Memory
    index: Memory | None  # type: ignore[assignment]  # hides tuple.index
    scale_a: Memory | None
    scale_b: Memory | None
    a2: Memory
    b2: Memory
    c2: Memory
    d2: Memory
    has_a: Value
    has_b: Value
    has_c: Value
    data: Value
    """The address of the algebra's own memory, as the launch gave it."""
    site: Value
    """The number of the instruction in the kernel."""
    chain: Value
    """Which accumulator it is, among those of all warps of the context."""
    block: Value
    """The number of the block in the grid."""
    warp: Value
    """The number of the warp in the block; of ``wgmma``, of the first of four."""
    scale_a2: Memory | None = None
    """The second values of block scales, in the order of ``scale_a``, of one word each;
    only for algebras whose second values are ``numbers``."""
    scale_b2: Memory | None = None
    has_scale_a: Value | None = None
    has_scale_b: Value | None = None


class ProductAlgebra(Protocol):
    """What second values mean in products."""

    @property
    def name(self) -> str:
        """Its name, which is a part of the names of compiled functions."""

    @property
    def planes(self) -> int:
        """How many planes there are."""

    @property
    def most(self) -> int:
        """How many words of a second value it uses, at most; the others are 0."""

    def product(self, code: Code, how: ProductShape, tiles: ProductMatrices) -> Value:
        """Write the code that fills ``tiles.d2``; 1 if it did (I1 or I32).

        0: no element of D has a second value, and ``d2`` is not filled.  Other bits are
        for the algebra's own step.
        """


class Eight(NamedTuple):
    """Eight neighbours of a row of D, and where their operands begin."""

    row: Value
    """The row, counted over all matrices."""
    a: Value
    """The first element of the row of A; the next ones are 8 further each."""
    b: Value
    """The first eight elements of the columns of B; the next k is 8 further."""
    c: Value
    """The place in C and D."""
    panel_a: Value
    panel_b: Value
    lane: Value
    """The place of the row in its panel of A."""


@contextmanager
def each_eight(code: Code, how: ProductShape) -> Iterator[Eight]:
    """Every row of the result, eight columns at a time."""
    model, m = how.model, how.op.shape[0]
    panels, a_panels = how.columns // LANES, m // LANES
    with code.loop(how.matrices) as matrix, code.loop(panels) as panel:
        panel_b = matrix * panels + panel
        if how.ends is not None:
            how.ends.begin(panel_b)
        with code.loop(m) as row:
            panel_a = matrix * a_panels + (row >> 3)
            yield Eight(
                matrix * m + row,
                panel_a * (model.stored * LANES) + (row & (LANES - 1)),
                panel_b * (model.k * LANES),
                (row if how.ends is not None else panel_b * m + row) * LANES,
                panel_a,
                panel_b,
                row & (LANES - 1),
            )
        if how.ends is not None:
            how.ends.end(panel_b)


# ── second values in planes ─────────────────────────────────────────────────


class Fields(NamedTuple):
    """Where the bits of one plane go in the words of a second value."""

    bits: int
    """Bits of a field."""
    per: int
    """Planes in a word."""
    quarters: tuple[int, ...]
    """Which field of the element makes each word, of one round of planes."""


def fields(bits: int) -> Fields:
    """The fields of an element of so many bits.

    >>> fields(32)
    Fields(bits=16, per=4, quarters=(1, 0))
    >>> fields(8)
    Fields(bits=8, per=8, quarters=(0,))
    """
    if bits < QUARTER:
        return Fields(bits, 64 // bits, (0,))
    orders = {16: (0,), 32: (1, 0), 64: (3, 2, 1, 0)}
    return Fields(QUARTER, 4, orders[bits])


class ProductSite(NamedTuple):
    """The last fields of :class:`ProductMatrices`, as numbers."""

    data: int = 0
    site: int = 0
    chain: int = 0
    block: int = 0
    warp: int = 0


NOWHERE = ProductSite()


# ── matrices in arrays ──────────────────────────────────────────────────────

ARRAYS = ("a", "b", "c", "d", "index", "scale_a", "scale_b", "a2", "b2", "c2", "d2")
SCALES = ("scale_a2", "scale_b2")
NUMBERS = ("data", "site", "chain", "block", "warp")


@once
def matrix_function(
    op: Instruction, target: str, algebra: ProductAlgebra, negated: tuple[bool, bool]
) -> Traced:
    """The function of an algebra for an instruction whose matrices are in arrays."""
    how = ProductShape(
        op, product_model(op, target), algebra.planes, negated, algebra.most
    )
    kinds = {**dict.fromkeys("abcd", how.raw), "index": I32}
    kinds |= {"scale_a": I8, "scale_b": I8}
    kinds |= dict.fromkeys(("a2", "b2", "c2", "d2", *SCALES), I64)
    parameters: dict[str, object] = {
        name: pointer(kinds[name]) for name in (*ARRAYS, *SCALES)
    }
    parameters |= dict.fromkeys(("has", *NUMBERS), I64)
    trace = partial(_trace_matrices, how, algebra)
    name = f"{algebra.name}_product"
    return Traced(name, parameters, trace, returns=I32)  # type: ignore[arg-type]


def _trace_matrices(
    how: ProductShape, algebra: ProductAlgebra, code: Code, *given: Memory | Value
) -> Value:
    memories = dict(zip(ARRAYS, given, strict=False))
    of_a, of_b, has, *numbers = given[len(ARRAYS) :]
    if not how.op.sparse:
        memories["index"] = None  # type: ignore[assignment]
    if not how.model.scale:
        memories |= {"scale_a": None, "scale_b": None}  # type: ignore[dict-item]
    flags = [(has & (1 << place)) != 0 for place in range(5)]  # type: ignore[operator]
    scales = (of_a, of_b, *flags[3:]) if how.model.scale else ()
    every: list[object] = [*memories.values(), *flags[:3], *numbers, *scales]
    tiles = ProductMatrices(*every)  # type: ignore[arg-type]
    return convert(algebra.product(code, how, tiles), I32, signed=False)


def product_model(op: Instruction, target: str) -> Model:
    """How a target computes an instruction."""
    return numeric_model(op, chosen_target(op, target))
