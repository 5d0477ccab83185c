"""Second values through products of matrices: one gather, any algebra.

Beside every bit of a register or of memory there are P bits, one in each *plane*.  The
bits of an element in all planes together are its *second value*.  If all of them are 0,
the element has no second value.  An *algebra* says what second values mean.  This module
hands it the operands of ``mma``, ``mma.sp``, ``wmma.mma``, ``wgmma``, ``wgmma.sp`` or
``tcgen05.mma`` as matrices, with their second values, and puts the second values of D
back into the planes.

An algebra writes its code once, for all of these instructions (:class:`ProductAlgebra`)::

    class Sums:
        name, planes, most = "sums", 4, 2

        def product(self, code, how, tiles):
            with each_eight(code, how) as at:        # eight neighbours of a row of D
                tiles.d2[at.c] = tiles.c2.lanes(at.c)
            return tiles.has_c                       # whether D has second values

Everything in :class:`Tiles` is memory of traced code (:mod:`fragmenta.jit.trace`), in
*panels* of eight:

=================  =====================================================================
``a``              A: (panels of 8 rows, stored k, 8), the raw bits of each element
``b``              B: (panels of 8 columns, k, 8)
``c``, ``d``       (panels of 8 columns, rows, 8): before and after the instruction
``index``          of a sparse A, (rows, stored k): the logical k of each element
``scale_a``        block scales, their raw bits: (panels of 8 rows, scales along k, 8)
``scale_b``        the same of B
``a2`` ... ``d2``  second values, in the order of ``a`` ... ``d``
=================  =====================================================================

Raw bits are words of 32 bits (of f64, 64).  A second value is :func:`words` words of
64 bits; word w of all elements comes before word w + 1.  Word by word:

- 16 bits: planes 0 to 3, plane 0 lowest; then planes 4 to 7, and so on
- 32 bits: the upper halves of planes 0 to 3, then their lower halves; and so on
- 64 bits: those of the upper 32 bits, then those of the lower
- 8 bits: planes 0 to 7; 4 bits: planes 0 to 15

``a2``, ``b2`` and ``c2`` are filled only if ``has_a``, ``has_b``, ``has_c`` (I1) say that
any element has a second value.  ``d2`` must be filled if the algebra answers 1.

Who calls:

- ``mma``, ``mma.sp``, ``wmma.mma``: :func:`fragmenta.planes.warp_products.write_product`
  writes a call of compiled code after the instruction
- ``wgmma``: :class:`fragmenta.planes.group_products.GroupProducts`, at issue
- ``tcgen05.mma``: :class:`fragmenta.planes.tensor_products.TensorProducts`, at issue
- matrices in NumPy arrays, for tests: :func:`on_matrices`
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta.arithmetic.models import Model
from fragmenta.arrays.once import once
from fragmenta.execution.mma import numeric_model
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.target import chosen_target
from fragmenta.jit.compiler import Traced, pointer
from fragmenta.jit.llvm import Type
from fragmenta.jit.trace import I8, I32, I64, LANES, Code, Memory, Value, convert
from fragmenta.registers.fragment import Fragment

QUARTER = 16
"""Bits of an element that four planes make a word of."""


class Product(NamedTuple):
    """Which instruction it is, and how large its matrices are."""

    op: Instruction
    model: Model
    planes: int
    negated: tuple[bool, bool] = (False, False)
    """Whether ``imm-scale-a`` or ``imm-scale-b`` is -1: ``a`` and ``b`` are negated
    already, their second values are not."""
    most: int = 4
    """How many words of a second value the algebra uses, at most."""

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
        end = self.rows * self.columns
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
        return self.op.types[name].bits  # in shared or tensor memory

    def words(self, name: str) -> int:
        """The words of the second value of an element that the algebra uses."""
        return min(self.most, words(self.bits(name), self.planes))

    @property
    def raw(self) -> Type:
        """The type of raw bits."""
        return I64 if self.model.accumulator == "f64" else I32


def words(bits: int, planes: int) -> int:
    """How many words of 64 bits the second value of an element has.

    >>> words(16, 4), words(32, 4), words(8, 8), words(4, 8), words(64, 4)
    (1, 2, 1, 1, 4)
    """
    return max(1, -(-bits * planes // 64))


class Tiles(NamedTuple):
    """The operands of a product as matrices, and their second values."""

    a: Memory
    b: Memory
    c: Memory
    d: Memory
    index: Memory | None
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

    def product(self, code: Code, how: Product, tiles: Tiles) -> Value:
        """Write the code that fills ``tiles.d2``; 1 if it did (I1 or I32).

        0: no element of D has a second value, and ``d2`` is not filled.
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
def each_eight(code: Code, how: Product) -> Iterator[Eight]:
    """Every row of the result, eight columns at a time."""
    model, m = how.model, how.op.shape[0]
    panels, a_panels = how.columns // LANES, m // LANES
    with (
        code.loop(how.matrices) as matrix,
        code.loop(panels) as panel,
        code.loop(m) as row,
    ):
        panel_a = matrix * a_panels + (row >> 3)
        panel_b = matrix * panels + panel
        yield Eight(
            matrix * m + row,
            panel_a * (model.stored * LANES) + (row & (LANES - 1)),
            panel_b * (model.k * LANES),
            (panel_b * m + row) * LANES,
            panel_a,
            panel_b,
            row & (LANES - 1),
        )


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


def combined(planes: NDArray[np.generic], bits: int) -> NDArray[np.uint64]:
    """Second values as words, (words, ...), of the elements in planes, (P, ...).

    >>> planes = np.array([[0x11112222], [0x33334444], [0], [0x5555]], np.uint32)
    >>> [hex(word) for word in combined(planes, 32)[:, 0].tolist()]
    ['0x33331111', '0x5555000044442222']
    """
    part, given = fields(bits), planes.astype(np.uint64)
    mask = np.uint64((1 << part.bits) - 1)
    rounds = -(-len(given) // part.per)
    found = np.zeros((rounds, len(part.quarters), *given.shape[1:]), np.uint64)
    for number, plane in enumerate(given):
        turn, place = divmod(number, part.per)
        for goal, quarter in enumerate(part.quarters):
            field = plane >> np.uint64(part.bits * quarter) & mask
            found[turn, goal] |= field << np.uint64(part.bits * place)
    return found.reshape(-1, *given.shape[1:])


def separated(
    values: NDArray[np.uint64], bits: int, planes: int
) -> NDArray[np.uint64]:
    """The inverse of :func:`combined`: the elements in planes, (P, ...).

    >>> values = np.array([[0x33331111], [0x5555000044442222]], np.uint64)
    >>> [hex(word) for word in separated(values, 32, 4)[:, 0].tolist()]
    ['0x11112222', '0x33334444', '0x0', '0x5555']
    """
    part = fields(bits)
    mask = np.uint64((1 << part.bits) - 1)
    found = np.zeros((planes, *values.shape[1:]), np.uint64)
    for number in range(planes):
        turn, place = divmod(number, part.per)
        for source, quarter in enumerate(part.quarters):
            word = values[turn * len(part.quarters) + source]
            field = word >> np.uint64(part.bits * place) & mask
            found[number] |= field << np.uint64(part.bits * quarter)
    return found


# ── matrices in arrays ──────────────────────────────────────────────────────

_ARRAYS = ("a", "b", "c", "d", "index", "scale_a", "scale_b", "a2", "b2", "c2", "d2")
_NUMBERS = ("data", "site", "chain", "block", "warp")


class Where(NamedTuple):
    """The last fields of :class:`Tiles`, as numbers."""

    data: int = 0
    site: int = 0
    chain: int = 0
    block: int = 0
    warp: int = 0


@once
def _matrix_function(
    op: Instruction, target: str, algebra: ProductAlgebra, negated: tuple[bool, bool]
) -> Traced:
    how = Product(op, product_model(op, target), algebra.planes, negated, algebra.most)
    kinds = {**dict.fromkeys("abcd", how.raw), "index": I32}
    kinds |= {"scale_a": I8, "scale_b": I8}
    kinds |= dict.fromkeys(("a2", "b2", "c2", "d2"), I64)
    parameters: dict[str, object] = {name: pointer(kinds[name]) for name in _ARRAYS}
    parameters |= dict.fromkeys(("has", *_NUMBERS), I64)
    trace = partial(_trace_matrices, how, algebra)
    name = f"{algebra.name}_product"
    return Traced(name, parameters, trace, returns=I32)  # type: ignore[arg-type]


def _trace_matrices(
    how: Product, algebra: ProductAlgebra, code: Code, *given: Memory | Value
) -> Value:
    memories = dict(zip(_ARRAYS, given, strict=False))
    has, *numbers = given[len(_ARRAYS) :]
    if not how.op.sparse:
        memories["index"] = None  # type: ignore[assignment]
    if not how.model.scale:
        memories |= {"scale_a": None, "scale_b": None}  # type: ignore[dict-item]
    flags = [(has & (1 << place)) != 0 for place in range(3)]  # type: ignore[operator]
    tiles = Tiles(*memories.values(), *flags, *numbers)  # type: ignore[arg-type]
    return convert(algebra.product(code, how, tiles), I32, signed=False)


def product_model(op: Instruction, target: str) -> Model:
    """How a target computes an instruction."""
    return numeric_model(op, chosen_target(op, target))


class Matrices(NamedTuple):
    """The operands of a product in arrays: raw bits, and words of second values.

    A is (m, stored k), B (k, n), C and D are (m, n); second values have one more axis
    in front, :func:`words`.  None: no element has one.
    """

    a: NDArray[np.generic]
    b: NDArray[np.generic]
    c: NDArray[np.generic]
    d: NDArray[np.generic]
    index: NDArray[np.generic] | None = None
    scale_a: NDArray[np.generic] | None = None
    """(m, scales along k)"""
    scale_b: NDArray[np.generic] | None = None
    """(scales along k, n)"""
    a2: NDArray[np.uint64] | None = None
    b2: NDArray[np.uint64] | None = None
    c2: NDArray[np.uint64] | None = None


def on_matrices(
    op: Instruction,
    target: str,
    algebra: ProductAlgebra,
    given: Matrices,
    *,
    negated: tuple[bool, bool] = (False, False),
    where: Where = Where(),
) -> NDArray[np.uint64] | None:
    """The second values of D, (words, m, n), as an algebra computes them.

    None if no element has one.
    """
    function = _matrix_function(op, target, algebra, negated)
    how = Product(op, product_model(op, target), algebra.planes, negated, algebra.most)
    raw = np.uint64 if how.raw == I64 else np.uint32
    none = np.zeros(LANES, np.uint64)
    arrays: dict[str, NDArray[np.generic]] = {
        "a": _panels(given.a.astype(raw)),
        **{name: _panels(getattr(given, name).astype(raw).T) for name in "bcd"},
        "index": np.zeros(LANES, np.int32),
        "scale_a": none.view(np.uint8),
        "scale_b": none.view(np.uint8),
    }
    if given.index is not None:
        arrays["index"] = np.ascontiguousarray(given.index, np.int32)
    if given.scale_a is not None and given.scale_b is not None:
        arrays["scale_a"] = _panels(given.scale_a.view(np.uint8))
        arrays["scale_b"] = _panels(given.scale_b.view(np.uint8).T)
    has = 0
    for place, name in enumerate("abc"):
        second = getattr(given, f"{name}2")
        if second is not None and second.any():
            has |= 1 << place
            turned = second if name == "a" else second.swapaxes(1, 2)
            arrays[f"{name}2"] = np.stack([_panels(each) for each in turned])
        else:
            arrays[f"{name}2"] = none
    count = how.words("d")
    arrays["d2"] = np.zeros((count, how.sizes["d"]), np.uint64)
    ordered = [arrays[name] for name in _ARRAYS]
    if not function(*ordered, has, *where):
        return None
    m, n = given.c.shape
    made = arrays["d2"].reshape(count, n // LANES, m, LANES)
    return np.ascontiguousarray(made.transpose(0, 2, 1, 3).reshape(count, m, n))


def _panels(matrix: NDArray[np.generic]) -> NDArray[np.generic]:
    """A matrix of rows in panels of eight rows: (panels, along, 8)."""
    rows, along = matrix.shape
    parted = matrix.reshape(rows // LANES, LANES, along).swapaxes(1, 2)
    return np.ascontiguousarray(parted)
