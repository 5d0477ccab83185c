"""What one thread computes from the numbers that it loads: a graph that can be run.

A *cone* is the graph behind one result.  Its leaves are inputs and constants, its nodes
are lines of the table of opcodes, so that it has the bits of the engine.  Equal nodes
are one object.  A cone is compiled as a whole: it is run on many inputs at once, or on
all of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from fragmenta.base.jit.compiler import Traced, pointer
from fragmenta.base.jit.llvm import Raw, Type
from fragmenta.base.jit.trace import (
    I1,
    I8,
    I16,
    I32,
    I64,
    LANES,
    Code,
    Memory,
    Value,
    any_lane,
    convert,
    select,
    shift_unsigned,
)
from fragmenta.ptx.opcodes.table import Match

Words: TypeAlias = NDArray[np.uint64]
_TYPES: dict[int, Type] = {1: I1, 8: I8, 16: I16, 32: I32, 64: I64}
WIDTHS = frozenset(_TYPES)
"""The bits that a node may have."""


class Computed(NamedTuple):
    """A line of the table of opcodes, with all that its function is given."""

    mnemonic: str
    match: Match
    extra: tuple[tuple[str, str], ...]
    sources: tuple[int, ...]
    """The bits of the type of each operand; 0: it was left out."""

    @property
    def key(self) -> tuple[object, ...]:
        """What decides its result."""
        return self.mnemonic, self.extra, self.sources


@dataclass(frozen=True, eq=False, slots=True)
class ConeNode:
    """A number that a thread computes."""

    kind: str
    """``input``, ``constant``, or what it is made by."""
    bits: int
    operands: tuple[ConeNode, ...] = ()
    about: Any = None
    """The number of a constant or of an input; of what else, all that decides it."""
    name: str = ""

    def every(self) -> Iterator[ConeNode]:
        """All nodes of the graph, operands first."""
        seen: set[int] = set()
        left: list[tuple[ConeNode, bool]] = [(self, False)]
        while left:
            node, ready = left.pop()
            if ready:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                left.append((node, True))
                left += [(each, False) for each in node.operands]

    def inputs(self) -> list[ConeNode]:
        """The inputs that it depends on, in their order."""
        found = [each for each in self.every() if each.kind == "input"]
        return sorted(found, key=lambda each: int(each.about))


class Nodes:
    """Makes nodes: two that are made alike are one."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], ConeNode] = {}

    def made(
        self,
        kind: str,
        bits: int,
        operands: Sequence[ConeNode] = (),
        about: Any = None,
        name: str = "",
        of: object = None,
    ) -> ConeNode:
        """A node; ``of`` is what decides it besides, if ``about`` has no hash."""
        key = kind, bits, tuple(map(id, operands)), about if of is None else of
        if key not in self._known:
            self._known[key] = ConeNode(kind, bits, tuple(operands), about, name)
        return self._known[key]

    def constant(self, bits: int, number: int) -> ConeNode:
        """A number."""
        return self.made("constant", bits, (), number & (1 << bits) - 1)

    def input(self, bits: int, number: int, name: str = "") -> ConeNode:
        """An input by its number."""
        return self.made("input", bits, (), number, name, of=number)

    def resized(self, of: ConeNode, bits: int, signed: bool) -> ConeNode:
        """A number in a register of another width."""
        if of.bits == bits:
            return of
        if of.kind == "constant":
            number = int(of.about)
            if signed and number >> (of.bits - 1) & 1:
                number -= 1 << of.bits
            return self.constant(bits, number)
        return self.made("resize", bits, [of], signed and bits > of.bits)

    def extracted(self, of: ConeNode, first: int, bits: int) -> ConeNode:
        """Some bits of a number."""
        if (first, bits) == (0, of.bits):
            return of
        if of.kind == "constant":
            return self.constant(bits, int(of.about) >> first)
        if of.kind == "join":
            size = of.operands[0].bits
            if size == bits and first % size == 0:
                return of.operands[first // size]
        return self.made("extract", bits, [of], first)

    def joined(self, parts: Sequence[ConeNode]) -> ConeNode:
        """One number of several, the lowest first."""
        if len(parts) == 1:
            return parts[0]
        whole = sum(each.bits for each in parts)
        if all(each.kind == "constant" for each in parts):
            number = 0
            for each in reversed(parts):
                number = number << each.bits | int(each.about)
            return self.constant(whole, number)
        return self.made("join", whole, parts)

    def chosen(self, condition: ConeNode, yes: ConeNode, no: ConeNode) -> ConeNode:
        """One of two numbers."""
        if yes is no:
            return yes
        if condition.kind == "constant":
            return yes if condition.about else no
        return self.made("select", yes.bits, [condition, yes, no])

    def negated(self, condition: ConeNode) -> ConeNode:
        """The other truth value."""
        if condition.kind == "constant":
            return self.constant(1, 1 - int(condition.about))
        if condition.kind == "not":
            return condition.operands[0]
        return self.made("not", 1, [condition])

    def computed(
        self, how: Computed, operands: Sequence[ConeNode], result: int, bits: int
    ) -> ConeNode:
        """A result of an instruction, as many bits as its type has."""
        about = how, result
        of = *how.key, result
        return self.made("computed", bits, operands, about, how.mnemonic, of)


# ── machine code ────────────────────────────────────────────────────────────


class _Writing:
    """Writes the code of some cones, eight inputs at a time."""

    def __init__(self, code: Code, given: dict[int, Value]) -> None:
        self.code, self._given = code, given
        self._made: dict[int, Value] = {}
        self._results: dict[tuple[object, ...], tuple[Value, ...]] = {}

    def of(self, node: ConeNode) -> Value:
        """The value of a node."""
        for each in node.every():
            if id(each) not in self._made:
                self._made[id(each)] = self._value(each)
        return self._made[id(node)]

    def _value(self, node: ConeNode) -> Value:
        operands = [self._made[id(each)] for each in node.operands]
        if node.kind == "input":
            return self._given[int(node.about)]
        if node.kind == "constant":
            return self._constant(int(node.about), node.bits)
        if node.kind == "resize":
            return convert(operands[0], _TYPES[node.bits], signed=bool(node.about))
        if node.kind == "extract":
            moved = shift_unsigned(operands[0], int(node.about))
            return convert(moved, _TYPES[node.bits], signed=False)
        if node.kind == "join":
            return self._joined(node, operands)
        if node.kind == "select":
            return select(operands[0], operands[1], operands[2])
        if node.kind == "not":
            return ~operands[0]
        return self._computed(node, operands)

    def _constant(self, number: int, bits: int) -> Value:
        signed = number - (1 << bits) if bits > 1 and number >> (bits - 1) else number
        return self.code.constant(signed, _TYPES[bits]).in_all_lanes(LANES)

    def _joined(self, node: ConeNode, parts: Sequence[Value]) -> Value:
        of, first, total = _TYPES[node.bits], 0, None
        for part, each in zip(parts, node.operands, strict=True):
            wide = convert(part, of, signed=False)
            wide = wide << first if first else wide
            total = wide if total is None else total | wide
            first += each.bits
        assert total is not None
        return total

    def _computed(self, node: ConeNode, operands: Sequence[Value]) -> Value:
        how, result = node.about
        key = *how.key, *map(id, node.operands)
        if key not in self._results:
            rest = iter(operands)
            given = [
                None if not bits else convert(next(rest), _TYPES.get(bits, I8))
                for bits in how.sources
            ]
            emit = how.match.syntax.emit
            made = emit({**how.match.qualifiers, **dict(how.extra)}, *given)
            self._results[key] = made if isinstance(made, tuple) else (made,)
        found = self._results[key][result]
        return found if node.bits == 1 else convert(found, _TYPES[node.bits])


def _loaded(memory: Memory, at: Value, bits: int) -> Value:
    word = memory.lanes(at)
    return word != 0 if bits == 1 else convert(word, _TYPES[bits], signed=False)


def runner(
    roots: Sequence[ConeNode], inputs: Sequence[ConeNode]
) -> Callable[..., list[Words]]:
    """What computes some nodes from arrays of inputs; all are words of 64 bits.

    >>> nodes = Nodes()
    >>> x = nodes.input(32, 0)
    >>> run = runner([nodes.extracted(x, 16, 16)], [x])
    >>> [hex(each) for each in run(np.array([0x12345678], np.uint64))[0]]
    ['0x1234']
    """
    count, results = len(inputs), len(roots)

    def trace(code: Code, *given: Any) -> None:
        *memories, stop = given
        with code.loop(stop, 0, LANES) as at:
            words = {
                int(each.about): _loaded(memories[i], at, each.bits)
                for i, each in enumerate(inputs)
            }
            writing = _Writing(code, words)
            made = [convert(writing.of(each), I64, signed=False) for each in roots]
            for memory, value in zip(memories[count:], made, strict=True):
                memory[at] = value

    names = {f"x{i}": pointer(I64) for i in range(count)}
    names |= {f"y{i}": pointer(I64) for i in range(results)}
    call = Traced("cone", {**names, "count": I64}, trace)

    def run(*arrays: Words) -> list[Words]:
        size = max((each.size for each in arrays), default=1)
        whole = -(-size // LANES) * LANES
        padded = [np.resize(each, whole).astype(np.uint64) for each in arrays]
        outs = [np.zeros(whole, np.uint64) for _ in roots]
        call(*padded, *outs, whole)
        return [each[:size] for each in outs]

    return run


def written(
    roots: Sequence[ConeNode], inputs: Sequence[ConeNode]
) -> tuple[list[Raw], list[Raw]]:
    """The code of some nodes, which is read and not compiled; and its arguments."""
    kinds = [ir.VectorType(_TYPES[each.bits], LANES) for each in inputs]
    made = ir.FunctionType(ir.VoidType(), kinds)
    function = ir.Function(ir.Module("cone"), made, "cone")
    code, arguments = Code(function), list(function.args)
    given = {
        int(each.about): Value(code.builder, argument)
        for each, argument in zip(inputs, arguments, strict=True)
    }
    writing = _Writing(code, given)
    return [writing.of(each).raw for each in roots], arguments


def are_one(one: ConeNode, two: ConeNode, inputs: Sequence[ConeNode]) -> bool:
    """Whether LLVM finds that two cones give the same for every input.

    Its passes follow IEEE 754 and the ring of integers to the bit.  They are asked for
    a function that says whether results differ: if it becomes the constant 0, they do
    not.

    >>> nodes = Nodes()
    >>> x, y = nodes.input(32, 0), nodes.input(32, 1)
    >>> both = nodes.joined([nodes.extracted(x, 0, 16), nodes.extracted(x, 16, 16)])
    >>> are_one(both, x, [x, y]), are_one(both, y, [x, y])
    (True, False)
    """

    def trace(code: Code, memory: Memory) -> Value:
        given = {
            int(each.about): _loaded(memory, code.constant(n * LANES, I64), each.bits)
            for n, each in enumerate(inputs)
        }
        writing = _Writing(code, given)
        apart = any_lane(writing.of(one) != writing.of(two))
        return convert(apart, I64, signed=False)

    made = Traced("apart", {"x": pointer(I64)}, trace, I64)
    return _IS_ZERO.search(made.optimised()) is not None


_IS_ZERO = re.compile(
    r"define [^{]*@\"?apart\"?\([^{]*\{\s*[\w.]+:[^\n]*\n\s*ret i64 0\s*\}"
)


def counting(one: ConeNode, two: ConeNode, inputs: Sequence[ConeNode]) -> Traced:
    """Runs two cones on a range of all inputs: ``(first, count)``, of eights.

    The bits of the inputs, one after the other, are a number that is counted.  It
    returns the first of eight numbers for one of which results differ, or -1.
    """

    def trace(code: Code, first: Value, count: Value) -> Value:
        found = code.variable(code.constant(-1, I64))
        own = ir.Constant(ir.VectorType(I64, LANES), list(range(LANES)))
        with code.loop(count, 0, LANES) as at:
            start = first + at
            number = start.in_all_lanes(LANES) + Value(code.builder, own)
            given, place = {}, 0
            for each in inputs:
                word = shift_unsigned(number, place) if place else number
                given[int(each.about)] = (
                    (word & 1) != 0
                    if each.bits == 1
                    else convert(word, _TYPES[each.bits], signed=False)
                )
                place += each.bits
            writing = _Writing(code, given)
            apart = writing.of(one) != writing.of(two)
            with code.when(any_lane(apart) & (found.value == -1)):
                found.value = start
        last: Value = found.value
        return last

    return Traced("different", {"first": I64, "count": I64}, trace, I64)
