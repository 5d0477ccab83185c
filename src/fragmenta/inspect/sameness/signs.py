"""Rules for signs of f32: graphs in a form in which signs stand outside.

Rounding to nearest and towards zero is symmetric, so a sign goes through a product and
a quotient.  An operation of f32 has one NaN, which ``neg`` and ``abs`` leave as it is.

- ``(-a) * b`` is ``-(a * b)``, and ``|a| * |b|`` is ``|a * b|``; so for quotients
- ``fma(-a, -b, c)`` is ``fma(a, b, c)``, and ``fma(a, -b, c)`` is ``fma(-a, b, c)``
- ``min(-a, -b)`` is ``-max(a, b)``, and the other way round
- ``-(-a)`` is ``a``, if ``a`` is the result of an operation; ``|-a|`` is ``|a|``
- ``a - b`` is ``a + (-b)``
- ``fma(a, 1, c)`` is ``a + c``, and ``fma(a, -1, c)`` is ``c - a``: such a product is
  exact
- operands of sums, products, ``min`` and ``max`` commute; those of several ``min`` or
  several ``max`` need no brackets, and count once

- rounding down is rounding up of what is negated: ``add.rm(a, b)`` is
  ``-add.rp(-a, -b)``, also for zeros and NaN; so for ``mul`` and ``fma``

A sum of two negated numbers is left as it is if it is rounded to nearest or towards
zero: 0 has another sign there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fragmenta.inspect.sameness.cones import Computed, ConeNode, Nodes
from fragmenta.ptx.families import PRODUCTS, SUMS
from fragmenta.ptx.opcodes.table import TABLE

_CLEAN = SUMS | PRODUCTS | {"fma", "div", "min", "max", "neg", "abs", "sqrt", "rcp"}
_SYMMETRIC = frozenset({"rn", "rz", "ftz", "f32"})
_DIRECTED = frozenset({"rm", "rp", "ftz", "f32"})
_TURNED = {"min": "max", "max": "min"}
_TURNED_BY = {"add": (0, 1), "mul": (0,), "fma": (0, 2), "div": (0,)}
"""The operands whose new signs give the result a new sign."""

_ONE, _MINUS_ONE = 0x3F800000, 0xBF800000
"""The bits of 1 and -1."""


def outside(root: ConeNode, nodes: Nodes) -> ConeNode:
    """A graph with the same bits for every input, with signs outside.

    Two graphs that become the same node are the same; the factory is theirs.
    """
    made: dict[int, ConeNode] = {}
    for each in root.every():
        operands = [made[id(e)] for e in each.operands]
        made[id(each)] = _Rules(nodes).applied(each, operands)
    return made[id(root)]


def _words(node: ConeNode) -> tuple[str, frozenset[str]]:
    """The opcode of an operation of f32, and its qualifiers; nothing of others."""
    if node.kind != "computed":
        return "", frozenset()
    opcode, *words = node.name.split(".")
    return (
        (opcode, frozenset(words))
        if words and words[-1] == "f32"
        else ("", frozenset())
    )


def _is(node: ConeNode, opcode: str) -> bool:
    """Whether a node is ``neg.f32`` or ``abs.f32``, which keep subnormals."""
    return node.kind == "computed" and node.name == f"{opcode}.f32"


def _clean(node: ConeNode) -> bool:
    """Whether it has only the one NaN."""
    opcode, words = _words(node)
    return opcode in _CLEAN and words <= _SYMMETRIC | _DIRECTED | {"NaN"}


class _Rules:
    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes

    def applied(self, node: ConeNode, operands: Sequence[ConeNode]) -> ConeNode:
        """A node of operands that have the form already."""
        opcode, words = _words(node)
        given = list(operands)
        if opcode in ("neg", "abs") and words == {"f32"}:
            return self._signed(opcode, given[0])
        if opcode == "sub" and words <= _SYMMETRIC | _DIRECTED:
            opcode, given = "add", [given[0], self._turned(given[1])]
            name = node.name.replace("sub", "add", 1)
            return self._sum_or_product(name, opcode, words, given)
        if opcode == "fma" and words <= _SYMMETRIC | _DIRECTED:
            opcode, given = self._added(given)
            name = node.name.replace("fma", opcode, 1)
            return self._sum_or_product(name, opcode, words, given)
        if opcode in _TURNED_BY and words <= _SYMMETRIC | _DIRECTED:
            return self._sum_or_product(node.name, opcode, words, given)
        if opcode in _TURNED and words <= {"f32", "ftz", "NaN"} and len(given) == 2:
            if all(_is(each, "neg") for each in given):
                name = node.name.replace(opcode, _TURNED[opcode], 1)
                inner = [each.operands[0] for each in given]
                return self._signed("neg", self._extreme(name, inner))
            return self._extreme(node.name, given)
        of = (*node.about[0].key, node.about[1]) if node.kind == "computed" else None
        return self.nodes.made(node.kind, node.bits, given, node.about, node.name, of)

    def _added(self, given: list[ConeNode]) -> tuple[str, list[ConeNode]]:
        """A fused operation as an addition, if a factor is 1 or -1."""
        for factor, other in (given[:2], given[1::-1]):
            if factor.kind == "constant" and factor.about in (_ONE, _MINUS_ONE):
                added = other if factor.about == _ONE else self._turned(other)
                return "add", [added, given[2]]
        return "fma", given

    def _sum_or_product(
        self, name: str, opcode: str, words: frozenset[str], given: list[ConeNode]
    ) -> ConeNode:
        """An operation in which signs go through; none rounds down."""
        if "rm" in words:
            for place in _TURNED_BY[opcode]:
                given[place] = self._turned(given[place])
            up = name.replace(".rm", ".rp", 1)
            made = self._sum_or_product(up, opcode, words - {"rm"} | {"rp"}, given)
            return self._signed("neg", made)
        if opcode == "add":
            return self._as(name, given, 2)
        commutes = 0 if opcode == "div" else 2
        if opcode in ("mul", "div") and words <= _SYMMETRIC:
            return self._product(name, given, commutes)
        bare = [self._bare(each) for each in given[:2]]
        first = [each for each, _ in bare]
        first = self._sorted(first) if commutes else first
        if bare[0][1] != bare[1][1]:
            first[0] = self._signed("neg", first[0])
        return self._as(name, [*first, *given[2:]], 0)

    def _extreme(self, name: str, given: Sequence[ConeNode]) -> ConeNode:
        """The least or the largest of all operands, in a chain."""
        every: list[ConeNode] = []
        for each in given:
            rest = each
            while rest.kind == "computed" and rest.name == name:
                rest, last = rest.operands
                every.append(last)
            every.append(rest)
        several = self._sorted({id(each): each for each in every}.values())
        found = several[0]
        for each in several[1:] or several:
            found = self._as(name, [found, each], 0)
        return found

    def _turned(self, node: ConeNode) -> ConeNode:
        """An operand with the other sign; which NaN it is does not matter there."""
        bare, minus = self._bare(node)
        return bare if minus else self._signed("neg", node)

    def _product(self, name: str, given: list[ConeNode], commutes: int) -> ConeNode:
        """A product, or a quotient, whose operands do not commute."""
        if all(_is(each, "abs") for each in given):
            inner = self._as(name, [each.operands[0] for each in given], commutes)
            return self._signed("abs", inner)
        (a, minus), (b, other) = (self._bare(each) for each in given)
        made = self._as(name, [a, b], commutes)
        return self._signed("neg", made) if minus != other else made

    def _bare(self, node: ConeNode) -> tuple[ConeNode, bool]:
        return (node.operands[0], True) if _is(node, "neg") else (node, False)

    def _signed(self, opcode: str, node: ConeNode) -> ConeNode:
        inner = node.operands[0] if _is(node, "neg") else None
        if opcode == "abs" and inner is not None:
            return self._signed("abs", inner)
        if opcode == "abs" and _is(node, "abs"):
            return node
        if opcode == "neg" and inner is not None and _clean(inner):
            return inner
        return self._as(f"{opcode}.f32", [node], 0)

    def _sorted(self, given: Iterable[ConeNode]) -> list[ConeNode]:
        return sorted(given, key=id)

    def _as(self, name: str, given: Sequence[ConeNode], commutes: int) -> ConeNode:
        """An operation of f32 by its name; some first operands commute."""
        match = TABLE.find(name, len(given) + 1)
        assert match is not None
        how = Computed(name, match, (), (32,) * len(given))
        first = self._sorted(given[:commutes])
        return self.nodes.computed(how, [*first, *given[commutes:]], 0, 32)
