"""Elements of D that are NaN or infinite: where each comes from.

Zero times infinity comes first: a NaN of two operands that are none.
Then come a NaN in C, and a NaN in A or B.  What is left of NaN is an infinity less an
infinity.  An infinity comes from C, from A or B, or from a sum that is too large.
"""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.base.jit.trace import (
    F64,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    Variable,
    convert,
    is_nan,
    select,
)
from fragmenta.engine.planes.code.products import Eight
from fragmenta.engine.simt.library import POINTER
from fragmenta.values.numerics.code.layout import Birth
from fragmenta.values.numerics.code.nodes import new_node
from fragmenta.values.numerics.code.product_operands import Factors

_NEVER, _INFINITE, _NAN, _BORN = range(4)
"""What a product of two elements is: a number, infinite or NaN as an operand is, or NaN
of operands that are none."""
_A, _B, _C = range(3)


class _Origin(NamedTuple):
    """What is known of the worst product of an element, while k goes on."""

    rank: Variable
    k: Variable
    x: Variable
    y: Variable
    node: Variable
    """The node of the operand that is NaN or infinite."""
    operand: Variable


class Births:
    """Writes the nodes of one instruction."""

    def __init__(self, operands: Factors, depth: Value, time: Value) -> None:
        """``depth`` is how many products C has, ``time`` counts executions."""
        self.operands, self.depth, self.time = operands, depth, time
        self.code: Code = operands.code
        self.tiles, self.how = operands.tiles, operands.how
        self.count = self.code.variable(self.code.constant(0, I64))
        """How many elements were born so far."""

    def _spilled(self, x: Value) -> Memory:
        held = self.code.scratch(F64, LANES)
        held[0] = x
        return held

    def write(self, here: Eight, odd: Value, c: Value, d: Value, exact: Value) -> None:
        """Give each odd element a node, beside what its second value has already."""
        code, flags = self.code, self.code.scratch(I32, LANES)
        flags[0] = convert(odd, I32, signed=False)
        every = [self._spilled(each) for each in (c, d, exact)]
        with code.loop(LANES) as lane, code.when(flags[lane] != 0):
            node = self._node(here, lane, *(each[lane] for each in every))
            place = here.c + lane
            wide = convert(node, I64, signed=False)
            self.tiles.d2[place] = self.tiles.d2[place] | wide

    def _origin(self, here: Eight, lane: Value) -> _Origin:
        """The first of the worst products."""
        code, sides = self.code, self.operands
        zero, none = lane.lift(0), code.variable(code.constant(0.0, F64)).value
        made = _Origin(
            *(code.variable(each) for each in (zero, zero, none, none, zero, zero))
        )
        with code.loop(self.how.model.stored) as place:
            own = here.a + place * LANES
            column = sides.columns(here, place)
            row = here.b + column * LANES + lane
            a, b = sides.a.given[own], sides.b.given[row]
            product = a * b
            given = is_nan(a) | is_nan(b)
            rank = select((product - product) == 0.0, zero, _INFINITE)
            rank = select(given, rank.lift(_NAN), rank)
            rank = select(is_nan(product) & ~given, rank.lift(_BORN), rank)
            with code.when(rank > made.rank.value):
                made.rank.value, made.k.value = rank, column
                made.x.value, made.y.value = a, b
                left = select(given, is_nan(a), ~((a - a) == 0.0))
                made.operand.value = select(left, zero, _B)
                with code.when(left):
                    made.node.value = sides.node("a", own)
                with code.when(~left):
                    made.node.value = sides.node("b", row)
        return made

    def _node(
        self, here: Eight, lane: Value, c: Value, d: Value, exact: Value
    ) -> Value:
        """The node: what was born here, or what came with an operand."""
        code, tiles = self.code, self.tiles
        zero = lane.lift(0)
        worst = self._origin(here, lane)
        rank = worst.rank.value
        nan, infinite = is_nan(c), ~((c - c) == 0.0) & ~is_nan(c)
        of_c = (nan & (rank != _BORN)) | (infinite & ~is_nan(d))
        of_side = ~of_c & ((rank == _NAN) | ((rank == _INFINITE) & ~is_nan(d)))
        parent, operand = code.variable(zero), code.variable(zero)
        with code.when(of_c):
            parent.value = self.operands.node("c", here.c + lane)
            operand.value = zero.lift(_C)
        with code.when(of_side):
            parent.value, operand.value = worst.node.value, worst.operand.value
        kind = select(is_nan(d), zero.lift(int(Birth.INVALID)), int(Birth.OVERFLOW))
        born = ~(of_c | of_side)
        came = select(parent.value == 0, zero.lift(int(Birth.GIVEN)), int(Birth.PASSED))
        kind = select(born, kind, came)
        # Where in the sum of its accumulator, which C may have begun.
        depth = select((c == 0.0) | nan, zero, self.depth)
        counted = born & is_nan(d) & (rank != _NEVER)
        operand.value = select(counted, worst.k.value + depth, operand.value)
        x = select(born & ~is_nan(d), exact, worst.x.value)
        self.count.value = self.count.value + select(born, zero.lift(1), 0)
        given = [tiles.site, kind, parent.value, operand.value, tiles.block]
        given += [tiles.warp * 32, self.time]
        table = code.builder.inttoptr(tiles.data.raw, POINTER)
        return new_node(code, table, [*given, x, worst.y.value, c, d])
