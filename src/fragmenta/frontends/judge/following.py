"""Follows bytes from inputs and launches to what kernels read, by several calls.

Calls with other inputs of the same sizes are laid side by side.  Memory that is the
same in all of them is a table, a weight or a constant, whoever made it.  Memory that
differs must be elements of the inputs, or of what launches left, *at the same places in
all calls*: moved, padded or in another type.  What is neither was computed by the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.frontends.judge.held import PLAIN as CONTIGUOUS
from fragmenta.frontends.judge.held import dtype_of, elements, image, leaves
from fragmenta.frontends.judge.wire import Tree

if TYPE_CHECKING:
    from fragmenta.frontends.judge.wire import Json

Bytes: TypeAlias = NDArray[np.uint8]
Mask: TypeAlias = NDArray[np.bool_]
Hashes: TypeAlias = NDArray[np.uint64]

RUN = 8
"""Neighbours that are looked for together if single elements say too little."""
DIFFERENT = 0.25
"""The share of different elements from which on one element is known by its value."""
PARTNERS = 1
"""Values that an element may have in another call, to be known by its own."""
MANY_VALUES = 64
"""Values from which on elements are known by themselves, as those of small formats."""
MOST_FORMS = 1 << 17
"""Elements of an input that is looked for in other types and orders, too."""
MOST_SOURCES = 1 << 22
"""Elements of inputs and launches that are looked through."""
WORD = 4
REMEMBERED = 512
"""Places that launches have left, of which the contents are kept."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_FLOATS = ("float16", "bfloat16", "float32", "float64")
_WHOLE = ("int32", "int64", "float32", "float16", "bfloat16")


# ── what was launched ───────────────────────────────────────────────────────


@dataclass
class CandidateLaunch:
    """One launch of a call."""

    text: str
    """The digest of its module."""
    about: tuple[object, ...]
    """The kernel, its grid and options, and the form of its arguments."""
    numbers: tuple[str, ...]
    """Its arguments that are no memory."""
    types: list[str]
    """The type of the elements of each region."""
    before: list[Bytes]
    after: list[Bytes]
    left: list[Mask]
    """The bytes that an input or an earlier launch has at that address."""
    variables: dict[str, bytes]
    """Variables of the module that the host has changed since its last launch."""

    meant: tuple[frozenset[str], ...] = ()
    """The elements of small inputs that each of these numbers may be."""
    old: list[Mask] = field(default_factory=list)
    """The bytes that a launch of an earlier call has left there."""
    old_variables: dict[str, tuple[Bytes, Mask]] = field(default_factory=dict)
    """Variables of the module, and the bytes that are those of earlier calls."""

    def like(self, other: CandidateLaunch) -> bool:
        """Whether it is the same launch, but for the contents of memory."""
        return (
            (self.text, self.about) == (other.text, other.about)
            and len(self.numbers) == len(other.numbers)
            and self.changed_numbers(other) == []
        )

    def changed_numbers(self, other: CandidateLaunch) -> list[tuple[str, str]]:
        """The numbers that are neither the same nor the same element of an input."""
        return [
            (self.numbers[i], other.numbers[i])
            for i in range(len(self.numbers))
            if self.numbers[i] != other.numbers[i]
            and not self.meant[i] & other.meant[i]
        ]


def same_launches(
    one: Sequence[CandidateLaunch], other: Sequence[CandidateLaunch]
) -> bool:
    """Whether two calls made the same launches."""
    return len(one) == len(other) and all(
        a.like(b) for a, b in zip(one, other, strict=True)
    )


SMALL = 16
"""Elements of an input that the host may read, to give a kernel numbers."""


def meanings(inputs: Tree) -> dict[str, frozenset[str]]:
    """Numbers that are elements of small inputs, and which they may be.

    >>> from fragmenta.frontends.judge.held import hold
    >>> sorted(meanings(hold([np.float32([2.5])]))["2.5"])
    ['input 0[0]']
    """
    found: dict[str, set[str]] = {}
    for number, leaf in enumerate(leaves(inputs)):
        array = elements(leaf).reshape(-1)
        if array.size > SMALL:
            continue
        for made in forms(array):
            for at, value in enumerate(made):
                texts = {value.tobytes().hex(), str(value.item())}
                for text in texts:
                    found.setdefault(text, set()).add(f"input {number}[{at}]")
    return {text: frozenset(where) for text, where in found.items()}


def numbers_in(tree: Tree) -> list[float]:
    """The numbers among inputs that are no arrays.

    >>> numbers_in([1, [2.5, "a"]])
    [1, 2.5]
    """
    if isinstance(tree, list):
        return [found for each in tree for found in numbers_in(each)]
    if isinstance(tree, dict) and tree.get("held") == "dict":
        return numbers_in([*tree["of"].values()])
    return [tree] if isinstance(tree, int | float) else []


def texts_of(number: float) -> list[str]:
    """How a number may come as an argument of a launch."""
    made = [str(number), str(float(number))]
    with np.errstate(all="ignore"):
        for kind in (np.float32, np.float64, np.int32, np.int64):
            try:
                made.append(kind(number).tobytes().hex())
            except (OverflowError, ValueError):
                continue
    return made


def numbers_of(values: Sequence[Json]) -> tuple[object, tuple[str, ...]]:
    """The form of the arguments of a launch, and those that are no memory.

    >>> numbers_of([["number", 3], ["array", 0, 0, "<f4", [2], [4]]])[1]
    ('3',)
    """
    form: list[object] = []
    numbers: list[str] = []
    for each in values:
        assert isinstance(each, list)
        if each[0] in ("number", "bytes"):
            numbers.append(str(each[1]))
            form.append(each[0])
        elif each[0] == "struct":
            numbers.append(str(each[1]))
            form.append(("struct", repr(each[2:])))
        else:
            form.append(repr(each))
    return tuple(form), tuple(numbers)


def difference(one: Sequence[CandidateLaunch], other: Sequence[CandidateLaunch]) -> str:
    """How the launches of two calls differ first."""
    if len(one) != len(other):
        return f"{len(one)} launches for some inputs, {len(other)} for others"
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        if a.text != b.text:
            return f"launch {number} has another text for other inputs"
        if a.about != b.about:
            return f"launch {number} has another kernel, grid or form of arguments"
        if len(a.numbers) != len(b.numbers):
            return f"launch {number} gets more numbers"
        changed = a.changed_numbers(b)
        if changed:
            x, y = map(_shown, changed[0])
            return f"launch {number} gets the number {x} or {y}"
    return ""


def _shown(text: str) -> str:
    return text if len(text) <= 24 else f"{text[:24]}..."


class ProcessMemory:
    """What launches and inputs have left at addresses of a process."""

    def __init__(self) -> None:
        self._left: dict[tuple[int, int], tuple[Bytes, Mask]] = {}
        self._new: list[tuple[int, Mask]] = []
        """What launches of this call have left: addresses, and their bytes."""
        self._first: dict[str, dict[str, bytes]] = {}
        """The variables of modules when this call first launched one of them."""
        self._inputs: list[tuple[int, Bytes]] = []
        self._variables: dict[str, dict[str, bytes]] = {}

    def begin(self, inputs: list[tuple[int, Bytes]]) -> None:
        """A call begins; its inputs are at these addresses."""
        self._inputs = inputs
        self._new.clear()
        self._first.clear()

    def known(self, at: int, data: Bytes) -> Mask:
        """The bytes of a region that are there because of an input or a launch."""
        made = np.zeros(data.size, np.bool_)
        for start, given in self._inputs:
            _agree(made, at, data, start, given, None)
        for (start, _), (given, mask) in self._left.items():
            _agree(made, at, data, start, given, mask)
        return made

    def old(self, at: int, data: Bytes) -> Mask:
        """The bytes of a region that launches of earlier calls have left there."""
        made = np.zeros(data.size, np.bool_)
        for (start, _), (given, mask) in self._left.items():
            _agree(made, at, data, start, given, mask)
        inputs = [(start, np.ones(n.size, np.bool_)) for start, n in self._inputs]
        for start, mask in (*inputs, *self._new):
            low, high = max(at, start), min(at + data.size, start + mask.size)
            if low < high:
                made[low - at : high - at] &= ~mask[low - start : high - start]
        return made

    def old_variables(
        self, digest: str, kept: dict[str, bytes]
    ) -> dict[str, tuple[Bytes, Mask]]:
        """The variables of a module, and their words that no launch changed so far."""
        first = self._first.setdefault(digest, dict(kept))
        by_host = self.host_variables(digest, kept)
        found = {}
        for name, data in kept.items():
            if name not in by_host and len(first.get(name, b"")) == len(data):
                now = np.frombuffer(data, np.uint8)
                then = np.frombuffer(first[name], np.uint8)
                found[name] = (now, whole_words(now == then, 0))
        return found

    def leave(self, at: int, data: Bytes, changed: Mask) -> None:
        """A launch has changed some bytes of a region."""
        if not changed.any():
            return
        # A byte of a word that is written may have been the same before.
        changed = ~whole_words(~changed, at)
        self._forget(at, changed)
        self._new.append((at, changed))
        key = (at, data.size)
        if key in self._left:
            changed = changed | self._left.pop(key)[1]
        self._left[key] = (data, changed)
        while len(self._left) > REMEMBERED:
            del self._left[next(iter(self._left))]

    def _forget(self, at: int, changed: Mask) -> None:
        """What other launches left there before is no longer there."""
        for (start, size), (given, mask) in [*self._left.items()]:
            low, high = max(at, start), min(at + changed.size, start + size)
            if low >= high or (start, size) == (at, changed.size):
                continue
            rest = mask.copy()
            rest[low - start : high - start] &= ~changed[low - at : high - at]
            self._left[start, size] = (given, rest)
            if not rest.any():
                del self._left[start, size]

    def touched(self, at: int, changed: Mask) -> set[int]:
        """The inputs of which a launch has changed bytes."""
        found = set()
        for number, (start, given) in enumerate(self._inputs):
            low, high = max(at, start), min(at + changed.size, start + given.size)
            if low < high and changed[low - at : high - at].any():
                found.add(number)
        return found

    def host_variables(self, digest: str, kept: dict[str, bytes]) -> dict[str, bytes]:
        """The variables that are not as the last launch of the module left them."""
        last = self._variables.get(digest, {})
        return {name: data for name, data in kept.items() if last.get(name) != data}

    def leave_variables(self, digest: str, kept: dict[str, bytes]) -> None:
        """A launch has left the variables of its module so."""
        self._variables[digest] = dict(kept)


def _agree(
    made: Mask, at: int, data: Bytes, start: int, given: Bytes, mask: Mask | None
) -> None:
    """Mark the bytes of a region that are those of other memory at the address."""
    low, high = max(at, start), min(at + data.size, start + given.size)
    if low >= high:
        return
    there = slice(low - start, high - start)
    same = data[low - at : high - at] == given[there]
    if mask is not None:
        same &= mask[there]
    made[low - at : high - at] |= whole_words(same, low)


def whole_words(same: Mask, at: int) -> Mask:
    """The bytes whose whole word is the same: single bytes are so by chance."""
    before, after = at % WORD, -(at + same.size) % WORD
    padded = np.pad(same, (before, after), constant_values=True).view(np.uint32)
    whole = np.where(padded == _ALL_SAME, _ALL_SAME, np.uint32(0)).view(np.bool_)
    return whole[before : before + same.size]


_ALL_SAME = np.uint32(0x01010101)
"""Four bytes of a mask, all of them true."""


def some_words(some: Mask) -> Mask:
    """The bytes of all words that have such a byte; words count from the start."""
    return ~whole_words(~some, 0)


# ── elements of inputs and launches ─────────────────────────────────────────


def _hashed(rows: Sequence[Hashes]) -> Hashes:
    """One number for the values that an element has in all calls."""
    made = np.zeros(rows[0].shape, np.uint64)
    for row in rows:
        made = (made ^ row) * _MIX
        made ^= made >> np.uint64(31)
    return made


def _runs(hashes: Hashes) -> Hashes:
    """One number for each element with its next neighbours."""
    count = hashes.size - RUN + 1
    if count < 1:
        return np.zeros(0, np.uint64)
    return _hashed([hashes[k : k + count] for k in range(RUN)])


def words(data: Bytes, width: int) -> Hashes:
    """Bytes as numbers of some bytes each; the rest is left out."""
    flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return flat[: flat.size // width * width].view(f"u{width}").astype(np.uint64)


def forms(array: Array) -> list[Array]:
    """An array in the types and orders of axes that a host may give it.

    >>> [str(each.dtype) for each in forms(np.zeros(2, np.float32))]
    ['float32', 'float16', 'bfloat16', 'float64']
    """
    name = array.dtype.name
    known = _FLOATS if "float" in name else _WHOLE
    types = [name, *(each for each in known if each != name)]
    with np.errstate(all="ignore"):
        cast_ = [array, *(array.astype(dtype_of(each)) for each in types[1:])]
    array = array.squeeze()
    if not 1 < array.ndim < 4:
        return cast_
    orders = [*itertools.permutations(range(array.ndim))]
    return [each.squeeze().transpose(order) for each in cast_ for order in orders]


class Sources:
    """Elements that memory may have come from, with their values in all calls."""

    def __init__(self) -> None:
        self._single: dict[int, list[Hashes]] = {1: [], 2: [], 4: [], 8: []}
        self._runs: dict[int, list[Hashes]] = {1: [], 2: [], 4: [], 8: []}
        self._size = 0

    def add(self, rows: Sequence[Array]) -> None:
        """Add an array, as it is in each call."""
        if self._size > MOST_SOURCES or not rows[0].size:
            return
        for made in zip(*(forms(each) for each in rows), strict=True):
            width = made[0].dtype.itemsize
            if width not in self._single:
                continue
            numbers = [words(raw(each), width) for each in made]
            hashes = _hashed(numbers)
            self._size += hashes.size
            if width > 1 and np.unique(hashes).size >= DIFFERENT * hashes.size:
                self._single[width].append(hashes[_known_by_value(numbers)])
            self._runs[width].append(_runs(hashes))

    def explain(self, rows: Sequence[Bytes]) -> Mask:
        """The bytes of some memory that are such elements in all calls."""
        made = np.zeros(rows[0].size, np.bool_)
        for width in self._single:
            hashes = _hashed([words(each, width) for each in rows])
            found = np.isin(hashes, _joined(self._single[width]))
            runs = np.isin(_runs(hashes), _joined(self._runs[width]))
            for at in range(RUN if runs.size else 0):
                found[at : at + runs.size] |= runs
            made[: found.size * width] |= np.repeat(found, width)
        return made


def _known_by_value(numbers: Sequence[Hashes]) -> Mask:
    """Elements that are known by their value alone; others only with neighbours.

    If a launch leaves few values, such as 0 and 1 in all combinations, everything can
    be written with them.  Then a value has several partners in other calls.
    """
    known = np.ones(numbers[0].size, np.bool_)
    if numbers[0].size > MOST_FORMS:
        return known
    pairs = np.unique(np.stack(numbers), axis=1)
    for row, own in zip(pairs, numbers, strict=True):
        values, counts = np.unique(row, return_counts=True)
        several = values[counts > PARTNERS]
        known &= ~np.isin(own, several) | (values.size > MANY_VALUES)
    return known


def _joined(parts: list[Hashes]) -> Hashes:
    return np.concatenate(parts) if parts else np.zeros(0, np.uint64)


def raw(array: Array) -> Bytes:
    """The bytes of an array."""
    made: Bytes = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return made


# ── what the host has made ──────────────────────────────────────────────────


@dataclass
class Foreign:
    """Memory that differs between calls, and that nobody but the host has made."""

    regions: dict[tuple[int, int], Mask] = field(default_factory=dict)
    """By launch and region: its bytes."""
    variables: set[int] = field(default_factory=set)
    """Launches whose module has variables that the host has written."""
    outputs: dict[int, Mask] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of what kernels get."""
        return sum(int(each.sum()) for each in self.regions.values())

    @property
    def is_there(self) -> bool:
        """Whether kernels get any of it."""
        return bool(self.regions or self.variables)


def foreign(
    calls: Sequence[Sequence[CandidateLaunch]],
    inputs: Sequence[Tree],
    outputs: Sequence[Sequence[Bytes]],
    outputs_left: Sequence[bool],
) -> Foreign:
    """What the host has made in calls with the same launches and other inputs."""
    found, sources = Foreign(), Sources()
    for row in zip(*(leaves(each) for each in inputs), strict=True):
        sources.add([elements(each) for each in row])
    for number, steps in enumerate(zip(*calls, strict=True)):
        for region in range(len(steps[0].before)):
            rows = [each.before[region] for each in steps]
            rest = _differ(rows)
            for each in steps:
                rest &= ~each.left[region]
            if rest.any():
                rest &= ~sources.explain(rows)
            if rest.any():
                found.regions[number, region] = rest
        if _host_made_variables(steps, sources):
            found.variables.add(number)
        add_left(sources, steps)
    for number, made in enumerate(zip(*outputs, strict=True)):
        if outputs_left[number]:
            continue
        rest = _differ(made)
        rest &= ~sources.explain(made)
        if rest.any():
            found.outputs[number] = rest
    return found


def _host_made_variables(steps: Sequence[CandidateLaunch], sources: Sources) -> bool:
    """Whether variables differ, and are no copies of inputs or launches' results."""
    names = [{*each.variables} for each in steps]
    if any(each != names[0] for each in names):
        return True
    for name in names[0]:
        held = [np.frombuffer(each.variables[name], np.uint8) for each in steps]
        if any(each.size != held[0].size for each in held):
            return True
        if (_differ(held) & ~sources.explain(held)).any():
            return True
    return False


def _differ(rows: Sequence[Bytes]) -> Mask:
    made = np.zeros(rows[0].size, np.bool_)
    for each in rows[1:]:
        made |= each != rows[0]
    return made


def add_left(sources: Sources, steps: Sequence[CandidateLaunch]) -> None:
    """What a launch has left is a source from then on."""
    for region, kind in enumerate(steps[0].types):
        if not any((s.before[region] != s.after[region]).any() for s in steps):
            continue
        dtype = dtype_of(kind)
        # The memory of another library may come without its type.
        for known in (dtype, np.dtype(np.int32)) if kind == "uint8" else (dtype,):
            size = steps[0].after[region].size // known.itemsize * known.itemsize
            sources.add([each.after[region][:size].view(known) for each in steps])


# ── other inputs for kernels than for the host ──────────────────────────────


@dataclass
class _Table:
    """Elements of one width: what they are in the calls, and what they become."""

    single: Hashes
    """The hashes that say what becomes of them, in order."""
    single_new: Hashes
    runs: Hashes
    """The hashes of runs that say what becomes of them, in order."""
    starts: NDArray[np.intp]
    new: Hashes
    """What elements become, of all inputs; a run has a start here."""

    def put(self, hashes: Hashes, into: Array, free: Mask, single: bool) -> None:
        """Put what elements become where they are, if that place is free.

        ``single``: also elements whose neighbours are others.
        """
        hit, at = _found(self.runs, _runs(hashes))
        for k in range(RUN):
            _place(hit + k, self.new[self.starts[at] + k], into, free)
        hit, at = _found(self.single, hashes)
        if single and 2 * hit.size > free.sum():  # a copy, not some values by chance
            _place(hit, self.single_new[at], into, free)


def _table(parts: Sequence[tuple[Hashes, Hashes]]) -> _Table:
    hashes, new = (_joined([each[i] for each in parts]) for i in (0, 1))
    first = _agreeing(hashes, new)
    # Orders of axes have the same rows: each of them becomes the same, too.
    runs, become = (_joined([_runs(each[i]) for each in parts]) for i in (0, 1))
    ends = np.cumsum([0, *(each[0].size for each in parts)])
    counts = [max(0, each[0].size - RUN + 1) for each in parts]
    starts = np.concatenate(
        [n + e for n, e in zip(map(np.arange, counts), ends, strict=False)]
    )
    at = _agreeing(runs, become)
    return _Table(hashes[first], new[first], runs[at], starts[at], new)


def _agreeing(hashes: Hashes, new: Hashes) -> NDArray[np.intp]:
    """Where hashes are that always become the same: one place of each, in order."""
    order = np.argsort(hashes, kind="stable")
    if not order.size:
        return order
    partners = new[order]
    first = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order[:1]]))
    low, high = (each.reduceat(partners, first) for each in (np.minimum, np.maximum))
    found: NDArray[np.intp] = order[first[low == high]]
    return found


class Swap:
    """Gives kernels other inputs than the host has: in place, and in copies of them.

    ``seen`` are the inputs of some calls; the first are those that the host has.
    They lie in memory as the layout says.
    """

    def __init__(
        self, seen: Sequence[Tree], other: Tree, layout: str = CONTIGUOUS
    ) -> None:
        rows = [*seen, other]
        self._inputs = [
            [elements(leaf) for leaf in row]
            for row in zip(*(leaves(each) for each in rows), strict=True)
        ]
        pairs = zip(leaves(seen[0]), leaves(other), strict=True)
        self._images = [(image(a, layout), image(b, layout)) for a, b in pairs]
        self._tables: dict[int, _Table] | None = None

    def region(
        self,
        at: int,
        data: Bytes,
        left: Mask,
        places: Sequence[tuple[int, int]],
        others: Sequence[Bytes] | None,
    ) -> tuple[Bytes, Mask]:
        """The memory of a region with the other inputs, and where it is changed.

        ``others`` is that memory in the other calls; None if there are other launches.
        """
        made, done = data.copy(), np.zeros(data.size, np.bool_)
        for (start, _), (mine, new) in zip(places, self._images, strict=True):
            low, high = max(at, start), min(at + data.size, start + mine.size)
            if low >= high:
                continue
            here, there = slice(low - at, high - at), slice(low - start, high - start)
            same = data[here] == mine[there]
            made[here][same] = new[there][same]
            done[here] |= same
        # What a launch has left is of the other inputs already.
        if others is not None and not (done | left).all():
            self._copies([data, *others], made, done, left & ~done)
        return made, done

    def copied(self, rows: Sequence[Bytes]) -> Bytes:
        """Memory of the host in which copies of inputs are those of the others."""
        made, done = rows[0].copy(), np.zeros(rows[0].size, np.bool_)
        self._copies(rows, made, done, done.copy())
        return made

    def _copies(
        self, rows: Sequence[Bytes], made: Bytes, done: Mask, kept: Mask
    ) -> None:
        if self._tables is None:
            self._tables = self._prepared()
        for width, table in self._tables.items():
            numbers = [words(each, width) for each in rows]
            if all((each == each[:1]).all() for each in numbers):
                continue  # it is new memory
            size = numbers[0].size * width
            used: Mask = (done | kept)[:size].reshape(-1, width)
            free: Mask = np.logical_not(np.any(used, axis=1))
            into = made[:size].view(f"u{width}")
            table.put(_hashed(numbers), into, free, width * len(rows) > 3)
            done[:size] |= np.repeat(~free, width) & ~kept[:size]

    def _prepared(self) -> dict[int, _Table]:
        """Tables of elements, by width."""
        parts: dict[int, list[tuple[Hashes, Hashes]]] = {}
        for row in self._inputs:
            few = row[0].size <= MOST_FORMS
            every = [forms(each) if few else [each] for each in row]
            for made in zip(*every, strict=True):
                width = made[0].dtype.itemsize
                numbers = [words(raw(each), width) for each in made]
                if numbers[0].size and width <= 8:
                    pair = _hashed(numbers[:-1]), numbers[-1]
                    parts.setdefault(width, []).append(pair)
        return {width: _table(each) for width, each in parts.items()}


def _found(known: Hashes, hashes: Hashes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where hashes are that are known, and which they are."""
    if not known.size:
        none = np.zeros(0, np.intp)
        return none, none
    at = np.searchsorted(known, hashes)
    at[at == known.size] = 0
    hit = np.flatnonzero(known[at] == hashes)
    return hit, at[hit]


def _place(at: NDArray[np.intp], new: Hashes, into: Array, free: Mask) -> None:
    """Put elements where nothing was put before."""
    wanted = free[at]
    into[at[wanted]] = new[wanted].astype(into.dtype)
    free[at[wanted]] = False
