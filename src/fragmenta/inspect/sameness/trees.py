"""The expression of one element, as a tree: rebuilt from the log of a second run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.once import once
from fragmenta.engine.planes.products import ProductShape, product_model
from fragmenta.engine.simt.layout import LANES
from fragmenta.engine.simt.matrices import operation
from fragmenta.errors import BadCall, Error
from fragmenta.inspect.sameness.calls import Call, Program
from fragmenta.inspect.sameness.following import planes_for, put_back
from fragmenta.inspect.sameness.naming import Root, name_roots, roots
from fragmenta.inspect.sameness.telling import Node, parts
from fragmenta.inspect.sameness.tree import Tree
from fragmenta.ptx.module import Instruction
from fragmenta.reference.arithmetic.models import Model
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.values.expressions.algebra import (
    Expressions,
    LoggedExpressions,
    Remembered,
    input_words,
)
from fragmenta.values.expressions.code import hashing
from fragmenta.values.expressions.code.hashing import Hash
from fragmenta.values.expressions.code.names import named
from fragmenta.values.expressions.code.notes import HEAD, OPERATION

Words = NDArray[np.uint64]
EIGHT = 8
MANY = 4
"""Blocks of a grid that are worth a search for the one that matters."""


def tree_of(
    of: Program,
    array: Array,
    element: Sequence[int],
    types: Mapping[str, str] | None = None,
) -> Tree:
    """The expression of an element of an array among the arguments of a program."""
    given = roots(of, types=types)
    name_roots(given)
    place = int(array.__array_interface__["data"][0]), array.nbytes
    for call in of:
        for name, each in call.arrays():
            if (int(each.__array_interface__["data"][0]), each.nbytes) == place:
                return tree(of, given, array, name, element)
    raise BadCall("the array is none of the arguments of the launch")


def tree(
    of: Program,
    given: list[Root],
    array: Array,
    name: str,
    element: Sequence[int],
    wanted: Hash | None = None,
) -> Tree:
    """The expression of an element of an array that a program writes to.

    ``wanted`` is its hash, if it is known: then few blocks have to run.
    """
    index = tuple(int(each) for each in element)
    if len(index) != array.ndim or any(
        not 0 <= i < n for i, n in zip(index, array.shape, strict=False)
    ):
        raise BadCall(f"{name} has shape {array.shape}; it has no element {index}")
    own = _Element(given, planes_for(of, given), array, index)
    part = None
    if len(of) == 1:  # blocks of one launch may be alone; launches need all of theirs
        part = _part(of[0], own, wanted)
    log = ExpressionLog(own.planes)
    with own.fresh() as memories:
        for call in of:
            algebra = LoggedExpressions(memories, own.planes)
            algebra.part = part
            call.run(algebra=algebra)
            log.add(call, algebra)
        found, value = own.hash(), np.asarray(array[index])
    log.finish(given)
    return Tree(name, index, log.expanded(found, value), not log.full)


# ── the blocks that an element needs ────────────────────────────────────────


class _Element:
    """An element of an array: its hash after some blocks of a launch."""

    def __init__(
        self, given: list[Root], planes: int, array: Array, index: tuple[int, ...]
    ) -> None:
        self.given, self.planes = given, planes
        self._memories = [
            Remembered.named(e.start, e.size, planes, e.named()) for e in given
        ]
        self._named = [each.planes.copy() for each in self._memories]
        number = next(n for n, each in enumerate(given) if each.holds(array))
        self._memory = self._memories[number]
        self._there = array[tuple(slice(i, i + 1) for i in index)]

    @contextmanager
    def fresh(self) -> Iterator[list[Remembered]]:
        """Memory with the names of inputs; its numbers are put back."""
        for each, old in zip(self._memories, self._named, strict=True):
            each.planes[...] = old
        with put_back(self.given):
            yield self._memories

    def hash(self) -> Hash:
        """Its hash now; nothing if it is a constant."""
        if not self._memory.has(self._there).all():
            return Hash(0, 0)
        u, v = self._memory.of(self._there)
        return Hash(int(u[0]), int(v[0]))

    def hash_after(self, call: Call, part: tuple[int, int] | None) -> tuple[Hash, int]:
        """Its hash after some blocks, and how many clusters the grid has."""
        with self.fresh() as memories:
            algebra = Expressions(memories, self.planes)
            algebra.part = part
            call.run(algebra=algebra)
            return self.hash(), algebra.clusters


def _part(call: Call, element: _Element, wanted: Hash | None) -> tuple[int, int] | None:
    """The cluster that makes an element, as a range; None if all have to run.

    A cluster that leaves the right hash alone is enough.  The first one is tried, then
    halves of the others: together they take as long as one launch.
    """
    if np.prod(call.grid) < MANY:
        return None
    if wanted is None:
        wanted, _ = element.hash_after(call, None)
    found, clusters = element.hash_after(call, (0, 1))
    if found == wanted:
        return 0, 1
    first, last = 1, clusters
    while last - first > 1:
        middle = (first + last) // 2
        found, _ = element.hash_after(call, (first, middle))
        first, last = (first, middle) if found == wanted else (middle, last)
    found, _ = element.hash_after(call, (first, last))
    return (first, last) if found == wanted else None


# ── the log ─────────────────────────────────────────────────────────────────


@dataclass(frozen=True, eq=False)
class _LoggedEntry:
    """One entry: its call, its instruction, and where it is in a log."""

    call: Call
    instruction: Instruction
    op: Op | None
    log: Words
    start: int

    @property
    def kind(self) -> int:
        return int(self.log[self.start])


class ExpressionLog:
    """All that was computed, found by hash."""

    def __init__(self, planes: int) -> None:
        self.planes, self.full = planes, False
        self._entries: list[_LoggedEntry] = []
        self._keys: list[Words] = []
        self._owners: list[NDArray[np.int64]] = []
        self._known: dict[tuple[int, int], Node] = {}
        self._roots: list[Root] = []

    def add(self, call: Call, algebra: LoggedExpressions) -> None:
        """Add what one call computed."""
        self.full |= algebra.full
        contract = call.options.get("contract", True)
        functions = call.kernel.loaded.changed(contract).functions
        sites = [functions[f].instructions[i] for f, i in algebra.sites]
        for log in algebra.log:
            start = 0
            while start < log.size:
                number, size = int(log[start + 1]), int(log[start + 2])
                self._add(
                    call, sites[number], algebra.units.ops.get(number), log, start
                )
                start += size

    def _add(
        self, call: Call, of: Instruction, op: Op | None, log: Words, start: int
    ) -> None:
        if int(log[start]) == OPERATION:
            op, keys = None, _operation_keys(log, start)
        else:
            op = operation(of) if op is None else op
            keys = self._product_keys(op, call.target, log, start)
        owner = np.arange(keys.size, dtype=np.int64) + (len(self._entries) << 32)
        self._entries.append(_LoggedEntry(call, of, op, log, start))
        self._keys.append(keys)
        self._owners.append(owner)

    def _product_keys(self, op: Op, target: str, log: Words, start: int) -> Words:
        shape = _Shape.of(op, target, self.planes)
        first = start + HEAD + shape.first["d"]
        return log[first : first + shape.sizes["d"]]

    def finish(self, given: list[Root]) -> None:
        """Sort everything, with the names of inputs."""
        self._roots = [each for each in given if each.bits]
        for number, each in enumerate(self._roots):
            name = each.named()
            assert name is not None
            keys = input_words(name, each.size * 8 // each.bits)[:, 0]
            self._keys.append(keys)
            self._owners.append(
                np.arange(keys.size, dtype=np.int64) - (number + 1 << 40)
            )
        keys = np.concatenate(self._keys) if self._keys else np.zeros(0, np.uint64)
        owners = np.concatenate(self._owners) if self._owners else np.zeros(0, np.int64)
        order = np.argsort(keys, kind="stable")
        self._sorted, self._found = keys[order], owners[order]

    def _owner(self, u: int) -> int | None:
        place = int(np.searchsorted(self._sorted, np.uint64(u)))
        if place < self._sorted.size and int(self._sorted[place]) == u:
            return int(self._found[place])
        return None

    # ── nodes ───────────────────────────────────────────────────────────────

    def expanded(self, of: Hash, value: Array) -> Node:
        """The whole expression with a hash."""
        root = self._node(of, value)
        left = [root]
        while left:
            node = left.pop()
            negates = node.kind == "operation" and node.name == "neg"
            if node.kind == "pending":
                self._expand(node)
            elif not negates:  # the minus of a difference is no entry of the log
                continue
            left += parts(node)
        return root

    def _node(self, of: Hash, value: object = None) -> Node:
        """A node that is not expanded yet; constants have no hash."""
        u, v = int(of.u), int(of.v)
        if not u and not v:
            return Node("constant", _shown(value))
        key = u, v
        if key not in self._known:
            self._known[key] = Node("pending", "", key)
        return self._known[key]

    def _expand(self, node: Node) -> None:
        u, v = node.hash
        owner = self._owner(u)
        if owner is None:
            minus = hashing.negative(Hash(np.uint64(u), np.uint64(v)))
            other = self._owner(int(minus.u))
            if other is None:
                node.kind, node.name = "unknown", f"{u:#x}"
                return
            node.kind, node.name = "operation", "neg"
            node.operands = (self._node(minus),)
        elif owner < 0:
            self._input(node, owner)
        else:
            entry = self._entries[owner >> 32]
            place = owner & 0xFFFFFFFF
            node.instruction, node.target = entry.instruction, entry.call.target
            if entry.kind == OPERATION:
                self._operation(node, entry, place)
            else:
                self._product(node, entry, place)

    def _input(self, node: Node, owner: int) -> None:
        number, place = divmod(owner, 1 << 40)
        root = self._roots[-number - 1]
        place = min(place, root.size * 8 // root.bits - 1)
        shape = root.shape
        node.kind, node.array = "input", root.label
        node.index = tuple(int(n) for n in np.unravel_index(place, shape))
        node.name = f"{root.label}[{', '.join(map(str, node.index))}]"

    def _operation(self, node: Node, entry: _LoggedEntry, place: int) -> None:
        log, start = entry.log, entry.start
        operands = int(log[start + 4])
        element, lane = divmod(place, LANES)
        first = start + HEAD + element * (2 + 3 * operands) * LANES + 2 * LANES + lane
        of = named(entry.instruction)
        node.kind, node.name = "operation", of.name
        made = []
        for number in range(operands):
            u, v, raw = (int(log[first + (3 * number + n) * LANES]) for n in range(3))
            bits = of.sources
            found = self._node(Hash(u, v), _constant(raw, bits, of.name))
            if of.negated == number and (u or v):
                found = Node("operation", "neg", operands=(found,))
            made.append(found)
        node.operands = tuple(made)

    def _product(self, node: Node, entry: _LoggedEntry, place: int) -> None:
        assert entry.op is not None
        shape = _Shape.of(entry.op, entry.call.target, self.planes)
        model = shape.model
        row, column, m = shape.place(place)
        base = entry.start + HEAD
        read = _EntryReader(entry.log, base, shape)
        node.kind, node.model = "product", model
        node.name = str(entry.op)
        node.operands = (self._node(*read.element("c", place, model.c)),)
        steps = []
        for step in (
            model.steps if model.form != "chain" else [tuple(range(model.stored))]
        ):
            made = []
            for p in step:
                k = read.column(row, p)
                x = self._node(*read.element("a", shape.a_at(row, p), model.a))
                y = self._node(*read.element("b", shape.b_at(k, column, m), model.b))
                made.append((x, y))
            steps.append(tuple(made))
        node.steps = tuple(steps)


def _operation_keys(log: Words, start: int) -> Words:
    elements, operands = int(log[start + 3]), int(log[start + 4])
    stride = (2 + 3 * operands) * LANES
    first = start + HEAD
    found = [
        log[first + e * stride : first + e * stride + LANES] for e in range(elements)
    ]
    return np.concatenate(found)


@dataclass(frozen=True)
class _Shape:
    """Where the matrices of a product are in its entry."""

    model: Model
    m: int
    n: int
    sizes: dict[str, int]
    first: dict[str, int]
    words: dict[str, int]

    @staticmethod
    @once
    def of(op: Op, target: str, planes: int) -> _Shape:
        """The shape of an instruction."""
        how = ProductShape(op, product_model(op, target), planes, most=4)
        first, start = {}, 0
        for name in ("a", "b", "c"):
            first[name] = start
            start += how.sizes[name] * (1 + how.words(name))
        first["d"] = start
        first["index"] = start + how.sizes["d"] * how.words("d")
        many = {name: how.words(name) for name in "abcd"}
        m, n = op.shape[0], op.shape[1]
        return _Shape(how.model, m, n, how.sizes, first, many)

    def place(self, at: int) -> tuple[int, int, int]:
        """Row over all matrices, column, and the matrix of a place in D."""
        panel, rest = divmod(at, self.m * EIGHT)
        row, lane = divmod(rest, EIGHT)
        matrix, own = divmod(panel, self.n // EIGHT)
        return matrix * self.m + row, own * EIGHT + lane, matrix

    def a_at(self, row: int, p: int) -> int:
        """The place of an element of A."""
        return (row // EIGHT * self.model.stored + p) * EIGHT + row % EIGHT

    def b_at(self, k: int, column: int, matrix: int) -> int:
        """The place of an element of B."""
        panel = matrix * (self.n // EIGHT) + column // EIGHT
        return (panel * self.model.k + k) * EIGHT + column % EIGHT


@dataclass(frozen=True)
class _EntryReader:
    """Reads elements of an entry."""

    log: Words
    base: int
    shape: _Shape

    def element(self, name: str, at: int, kind: str) -> tuple[Hash, object]:
        """The hash of an element, and its value if it is a constant."""
        size = self.shape.sizes[name]
        first = self.base + self.shape.first[name]
        raw = int(self.log[first + at])
        found = [
            int(self.log[first + size * (1 + word) + at])
            for word in range(min(2, self.shape.words[name]))
        ]
        return Hash(found[0], found[1] if len(found) > 1 else 0), _value(raw, kind)

    def column(self, row: int, p: int) -> int:
        """The logical k of a stored product."""
        model = self.shape.model
        if not model.sparse:
            return p
        first = self.base + self.shape.first["index"]
        return int(self.log[first + row * model.stored + p])


def _constant(raw: int, bits: int, name: str) -> object:
    """The value of a constant operand, by the type at the end of a name."""
    return _value(raw, name.rpartition(".")[2]) if bits else raw


def _value(raw: int, kind: str) -> object:
    from fragmenta.reference.registers.dtype import dtype

    try:
        of = dtype(kind)
        found = of.decode(np.array([raw & of.mask], of.bits_dtype))
        return found[0]
    except (Error, ValueError):
        return raw


def _shown(value: object) -> str:
    return str(value[()]) if isinstance(value, np.ndarray) else str(value)
