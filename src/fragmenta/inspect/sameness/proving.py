"""Small kernels, decided for every input: by the graph of each thread.

Expressions say that two kernels compute alike.  Kernels may compute otherwise and leave
the same bits, as ``x + x`` and ``2 * x`` do.  If threads work for themselves
(:mod:`fragmenta.inspect.sameness.threads`), the graphs behind an element are compared:

- if they are one graph, that is a proof, also if the rules for signs
  (:mod:`fragmenta.inspect.sameness.signs`) and LLVM make one of them;
- if they have whole numbers only, they may be compared bit by bit
  (:mod:`fragmenta.inspect.sameness.bits`);
- they are run on inputs at which kernels part: NaN, infinities, -0, subnormals, ties;
- if they have at most 32 bits of input, they are run on all of them: a proof.

What separates two graphs is given to the kernels themselves, and counts if they part.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.progress import Progress, ignore_progress
from fragmenta.inspect.sameness.bits import Undecided, parting
from fragmenta.inspect.sameness.calls import Program
from fragmenta.inspect.sameness.cones import (
    ConeNode,
    Nodes,
    Words,
    are_one,
    counting,
    runner,
)
from fragmenta.inspect.sameness.following import Followed, HashedOutput
from fragmenta.inspect.sameness.naming import Root
from fragmenta.inspect.sameness.numbers import numbers_for
from fragmenta.inspect.sameness.signs import outside
from fragmenta.inspect.sameness.threads import (
    NOWHERE,
    Following,
    Input,
    Inputs,
    Stores,
    Unfit,
)
from fragmenta.inspect.sameness.witness import Witness, given_inputs, separates

MOST = 1 << 32
"""Inputs that are run, if there are no more."""
MOST_CLASSES = 32
VECTORS = 1 << 18
"""Inputs of each kind that are tried."""
PART = 1 << 24
"""Inputs that are counted at a time."""
Index: TypeAlias = NDArray[np.int64]
Pairs: TypeAlias = list[tuple[HashedOutput, HashedOutput]]


@dataclass(frozen=True)
class Proof:
    """What was found about two programs."""

    proved: bool
    how: str = ""
    """What proves it, in a line."""
    witness: Witness | None = None
    tried: int = 0
    """Inputs that were run."""


class _Element(NamedTuple):
    """Where a program makes the elements of an array."""

    node: Index
    """Which of its nodes; -1: it leaves the element as it is."""
    thread: Index


@dataclass(eq=False)
class _Side:
    """One of the programs: the nodes that its threads store."""

    following: Following
    inputs: Inputs
    left: list[Stores]
    nodes: list[ConeNode] = field(default_factory=list)

    def elements(self, array: Array) -> _Element:
        """Which node each element of an array is, and whose."""
        if not array.flags.c_contiguous:
            raise Unfit("an array with gaps")
        start, width = int(array.__array_interface__["data"][0]), array.itemsize
        node = np.full(array.size, -1, np.int64)
        thread = np.zeros(array.size, np.int64)
        for each in self.left:
            mine = np.flatnonzero(each.threads)
            for stored in each.stores:
                there = self.following.on_this_machine(stored.address[mine])
                for place in range(max(1, stored.value.bits // 8 // width)):
                    at = there.astype(np.int64) - start + place * width
                    inside = (at >= 0) & (at < array.nbytes)
                    if not inside.any():
                        continue
                    where = at[inside] // width
                    known = (node[where] >= 0).any() or np.unique(
                        where
                    ).size < where.size
                    if known or stored.value.bits // 8 < width or (at % width).any():
                        raise Unfit("an element is stored twice, or in parts")
                    node[where] = len(self.nodes)
                    thread[where] = mine[inside]
                    self.nodes.append(self._piece(stored.value, place, 8 * width))
        return _Element(node, thread)

    def _piece(self, value: ConeNode, place: int, bits: int) -> ConeNode:
        return self.inputs.nodes.extracted(value, place * bits, bits)

    def check_apart(self, roots: Sequence[Root]) -> None:
        """No thread loads what another one stores."""
        owners: dict[str, dict[int, int]] = {}
        for each in self.left:
            for stored in each.stores:
                mine = np.flatnonzero(each.threads)
                there = self.following.on_this_machine(stored.address[mine])
                root = next(
                    r for r in roots if r.start <= int(there[0]) < r.start + r.size
                )
                first = root.first * (root.bits or 8 * root.array.itemsize) // 8
                own = owners.setdefault(root.label, {})
                for at, thread in zip(there.tolist(), mine.tolist(), strict=True):
                    for byte in range(stored.value.bits // 8):
                        own[at - root.start + first + byte] = thread
        for loaded in self.following.loads:
            own = owners.get(loaded.label, {})
            for thread, at in enumerate(loaded.bytes.tolist() if own else ()):
                if own.get(at, thread) != thread:
                    raise Unfit("a thread loads what another one stores")


class _Class(NamedTuple):
    """Elements that are made alike: by one graph in each of the programs."""

    pair: int
    elements: Index
    one: ConeNode
    two: ConeNode
    inputs: list[ConeNode]
    given: list[tuple[str, Words]]
    """For each input its label, and for each element the byte; or its numbers."""
    nodes: Nodes


def prove(
    one: Followed,
    two: Followed,
    pairs: Pairs,
    most: int = MOST,
    seed: int = 0,
    progress: Progress = ignore_progress,
) -> Proof | None:
    """Decide for every input; None if the kernels are none of this kind."""
    if len(one.program) != 1 or len(two.program) != 1:
        return None
    try:
        classes = _classes(one, two, pairs)
    except Unfit:
        return None
    tried, how = 0, []
    for number, each in enumerate(classes):
        if each.one is each.two:
            continue
        found, runs = _separated(each, one, two, pairs, seed)
        tried += runs
        if found is not None:
            return Proof(False, witness=found, tried=tried)
        plain = [outside(node, each.nodes) for node in (each.one, each.two)]
        if plain[0] is plain[1] or are_one(plain[0], plain[1], each.inputs):
            how.append("arithmetic makes one expression of both")
            continue
        with suppress(Undecided):
            vector = parting(each.one, each.two, each.inputs)
            if vector is not None:
                return _at(vector, each, one, two, pairs, tried)
            how.append("every bit is one function of the bits of the inputs")
            continue
        bits = sum(node.bits for node in each.inputs)
        if bits > 62 or 1 << bits > most:
            return Proof(False, tried=tried)
        progress(number / len(classes))
        vector = _exhausted(each, bits, progress)
        tried += 1 << bits
        if vector is not None:
            return _at(vector, each, one, two, pairs, tried)
        how.append(f"all {1 << bits:,} inputs of an element were run")
    said = "; ".join(dict.fromkeys(how)) or "threads compute the same"
    return Proof(True, said, tried=tried)


# ── classes of elements ─────────────────────────────────────────────────────


def _classes(one: Followed, two: Followed, pairs: Pairs) -> list[_Class]:
    sides = [_side(each) for each in (one, two)]
    found: list[_Class] = []
    for number, (x, y) in enumerate(pairs):
        if x.shape != y.shape:
            raise Unfit("arrays of other shapes")
        first, second = (
            side.elements(each.source) for side, each in zip(sides, (x, y), strict=True)
        )
        both = np.stack([first.node, second.node], 1)
        for row in np.unique(both, axis=0):
            if row[0] < 0 and row[1] < 0 and _same_memory(one, two, x, y):
                continue
            if (row < 0).any():
                raise Unfit("only one program writes an element")
            elements = np.flatnonzero((both == row).all(1))
            made = [
                (side.nodes[n], where.thread[elements], side.inputs)
                for side, n, where in zip(sides, row, (first, second), strict=True)
            ]
            found.append(_class(number, elements, made))
            if len(found) > MOST_CLASSES:
                raise Unfit("too many expressions")
    return found


def _side(of: Followed) -> _Side:
    inputs = Inputs()
    following = Following(of.program[0], of.roots, inputs)
    made = _Side(following, inputs, following.followed())
    made.check_apart(of.roots)
    return made


def _same_memory(
    one: Followed, two: Followed, x: HashedOutput, y: HashedOutput
) -> bool:
    """Whether elements that nobody writes are the same input."""
    found = []
    for followed, output in ((one, x), (two, y)):
        root = next(each for each in followed.roots if each.holds(output.source))
        start = int(output.source.__array_interface__["data"][0]) - root.start
        size = root.bits or 8 * root.array.itemsize
        found.append((root.label, start + root.first * size // 8))
    return found[0] == found[1]


def _class(
    number: int, elements: Index, made: Sequence[tuple[ConeNode, Index, Inputs]]
) -> _Class:
    """Both graphs over the same inputs."""
    nodes = Nodes()
    known: dict[tuple[str, bytes, int], ConeNode] = {}
    inputs: list[ConeNode] = []
    given: list[tuple[str, Words]] = []
    graphs = []
    for root, threads, of in made:
        leaves: dict[int, ConeNode] = {}
        for leaf in root.inputs():
            what = of.every[int(leaf.about)]
            label = what.label if isinstance(what, Input) else ""
            numbers = (what.bytes if isinstance(what, Input) else what)[threads]
            if label and (numbers == NOWHERE).any():
                raise Unfit("an input of only some threads")
            if not label and (numbers == numbers[0]).all():
                leaves[id(leaf)] = nodes.constant(leaf.bits, int(numbers[0]))
                continue
            key = label, numbers.tobytes(), leaf.bits
            if key not in known:
                known[key] = nodes.input(leaf.bits, len(inputs), leaf.name)
                inputs.append(known[key])
                given.append((label, numbers))
            leaves[id(leaf)] = known[key]
        graphs.append(_rebuilt(root, leaves, nodes))
    return _Class(number, elements, graphs[0], graphs[1], inputs, given, nodes)


def _rebuilt(root: ConeNode, leaves: dict[int, ConeNode], nodes: Nodes) -> ConeNode:
    made = dict(leaves)
    for each in root.every():
        if id(each) not in made:
            operands = [made[id(e)] for e in each.operands]
            of = None
            if each.kind == "computed":
                how, result = each.about
                of = *how.key, result
            made[id(each)] = nodes.made(
                each.kind, each.bits, operands, each.about, each.name, of
            )
    return made[id(root)]


# ── inputs that separate ────────────────────────────────────────────────────


def _separated(
    of: _Class, one: Followed, two: Followed, pairs: Pairs, seed: int
) -> tuple[Witness | None, int]:
    """An input for which both graphs part, and the kernels, too."""
    random = np.random.default_rng(seed)
    run = runner([of.one, of.two], of.inputs)
    loaded = [bool(label) for label, _ in of.given]
    tried = 0
    for vectors in numbers_for(of.inputs, loaded, random, VECTORS):
        size = max((each.size for each in vectors), default=1)
        places = random.integers(0, of.elements.size, size)
        every = [
            given if label else numbers[places]
            for given, (label, numbers) in zip(vectors, of.given, strict=True)
        ]
        first, second = run(*every)
        tried += size
        apart = np.flatnonzero(first != second)
        for number in apart[:1]:
            vector = [int(each[number]) for each in every]
            place = places[number : number + 1]
            found = _confirmed(of, vector, place, one, two, pairs)
            if found is not None:
                return found, tried
    return None, tried


def _exhausted(of: _Class, bits: int, progress: Progress) -> list[int] | None:
    """All inputs: the first for which both graphs part, or None."""
    call = counting(of.one, of.two, of.inputs)
    call.compile()
    total = 1 << bits
    starts = range(0, total, PART)
    size = min(PART, total)
    with ThreadPoolExecutor(2) as pool:
        for done, found in enumerate(pool.map(lambda s: call(s, size), starts)):
            progress(done / len(starts))
            if found >= 0:
                return _vector(of, found)
    return None


def _vector(of: _Class, start: int) -> list[int]:
    """The first of eight numbers for which both graphs part, as inputs."""
    run = runner([of.one, of.two], of.inputs)
    numbers = np.arange(start, start + 8, dtype=np.uint64)
    every, place = [], 0
    for each in of.inputs:
        mask = np.uint64((1 << each.bits) - 1)
        every.append(numbers >> np.uint64(place) & mask)
        place += each.bits
    first, second = run(*every)
    number = int(np.flatnonzero(first != second)[0])
    return [int(each[number]) for each in every]


def _at(
    vector: Sequence[int],
    of: _Class,
    one: Followed,
    two: Followed,
    pairs: Pairs,
    tried: int,
) -> Proof:
    """What is known if both graphs part at an input."""
    found = _confirmed(of, vector, np.zeros(1, np.int64), one, two, pairs)
    return Proof(False, witness=found, tried=tried)


def _confirmed(
    of: _Class,
    vector: Sequence[int],
    place: Index,
    one: Followed,
    two: Followed,
    pairs: Pairs,
) -> Witness | None:
    """Give the kernels an input; a witness if their results differ."""
    both = [*one.roots, *two.roots]
    given = given_inputs(both, whole=True)
    for number, (label, bytes_), leaf in zip(vector, of.given, of.inputs, strict=True):
        if label:
            raw = given[label].view(f"u{leaf.bits // 8}")
            raw[int(bytes_[place[0]]) * 8 // leaf.bits] = number
    arrays = [((x.name, x.source), (y.name, y.source)) for x, y in pairs]
    programs: tuple[Program, Program] = (one.program, two.program)
    return separates(given, programs, (one.roots, two.roots), arrays)
