"""Runs a program with the expressions of its results; its arrays are put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import Array
from fragmenta.errors import Error
from fragmenta.inspect.sameness.calls import Call, Program
from fragmenta.inspect.sameness.naming import Root
from fragmenta.inspect.sameness.tree import Tree
from fragmenta.ptx.module import Instruction
from fragmenta.values.expressions.algebra import (
    Assumption,
    Expressions,
    Name,
    Remembered,
)
from fragmenta.values.expressions.code.hashing import Hash

_NARROW = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "ue8m0", "ue4m3")


class HashedOutput(NamedTuple):
    """An array that a program wrote to."""

    name: str
    array: Array
    """A copy of what it left there."""
    hashes: Hash
    """One for each element, in the order of memory."""
    source: Array
    """The array itself."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.array.shape


class CallNote(NamedTuple):
    """A note of one call, with its instruction."""

    kind: str
    call: Call
    instruction: Instruction
    why: str = ""
    """More about it."""

    @property
    def where(self) -> str:
        """The line of the program that it was compiled from, or of the PTX."""
        source = self.instruction.source
        line = f"line {self.instruction.line}"
        return f"{source}" if source is not None else line


@dataclass(frozen=True, eq=False)
class Followed:
    """A program that ran with expressions."""

    program: Program
    roots: list[Root]
    outputs: list[HashedOutput]
    places: list[CallNote]
    trees: dict[tuple[str, tuple[int, ...]], Tree] = field(default_factory=dict)
    """The expressions of elements that were asked for."""

    def noted(self, *kinds: str) -> list[CallNote]:
        """The notes of some kinds, each instruction once."""
        found: dict[tuple[str, int], CallNote] = {}
        for each in self.places:
            if each.kind in kinds:
                found.setdefault((each.kind, id(each.instruction)), each)
        return list(found.values())


@contextmanager
def put_back(given: list[Root]) -> Iterator[list[Array]]:
    """Give memory back what it held before; yields copies of that."""
    before = [np.array(each.array, copy=True, order="K") for each in given]
    try:
        yield before
    finally:
        for each, old in zip(given, before, strict=True):
            _raw(each.array)[...] = _raw(old)


def _raw(array: Array) -> Array:
    """The bytes of an array, so that every NaN is copied as it is."""
    return array.view(f"u{array.itemsize}") if array.itemsize in (1, 2, 4, 8) else array


def planes_for(of: Program, given: list[Root]) -> int:
    """How many planes a program needs: twice as many if it has floats of 8 bits."""
    if any(each.bits == 8 for each in given):
        return 8
    texts = (each.kernel.loaded.module.text for each in of)
    return 8 if any(kind in text for text in texts for kind in _NARROW) else 4


Known = dict[tuple[Name | None, int, int], NDArray[np.uint8]]
"""The planes of names, by the name, the bytes and the planes: many runs share them."""


def follow(
    of: Program,
    given: list[Root],
    planes: int | None = None,
    known: Known | None = None,
    **options: object,
) -> Followed:
    """Run a program; its memory is as it was afterwards.

    ``options`` are further ones of its launches.
    """
    many = planes or planes_for(of, given)
    named = [_names(each, many, {} if known is None else known) for each in given]
    memories = [
        Remembered(e.start, n.copy()) for e, n in zip(given, named, strict=True)
    ]
    places: list[CallNote] = []
    with put_back(given) as before:
        for call in of:
            algebra = Expressions(memories, many)
            call.run(algebra=algebra, **options)
            places += (_place(call, note) for note in algebra.notes)
        outputs = list(_outputs(of, given, memories, named, before))
        if not outputs:  # whole numbers may be written without a change
            outputs = list(_outputs(of, given, memories, named, before, taken=True))
    return Followed(of, given, outputs, places)


def _names(root: Root, planes: int, known: Known) -> NDArray[np.uint8]:
    """The planes of the names of some memory."""
    name = root.named()
    key = name, root.size, planes
    if key not in known:
        known[key] = Remembered.named(root.start, root.size, planes, name).planes
    return known[key]


def _place(call: Call, note: Assumption) -> CallNote:
    contract = call.options.get("contract", True)
    function = call.kernel.loaded.changed(contract).functions[note.function]
    return CallNote(note.kind, call, function.instructions[note.index])


def _outputs(
    of: Program,
    given: list[Root],
    memories: list[Remembered],
    named: list[NDArray[np.uint8]],
    before: list[Array],
    *,
    taken: bool = False,
) -> Iterator[HashedOutput]:
    """The arrays that were written, each once; ``taken``: those of whole numbers."""
    seen: set[tuple[int, int]] = set()
    for call in of:
        for name, array in call.arrays():
            if not array.nbytes:
                continue
            number = next(n for n, each in enumerate(given) if each.holds(array))
            start = int(array.__array_interface__["data"][0])
            key = start, array.nbytes
            if key in seen:
                continue
            first = start - given[number].start
            part = slice(first, first + array.nbytes)
            old = _raw(before[number]).reshape(-1).view(np.uint8)
            now = memories[number].planes[:, part]
            same = np.array_equal(now, named[number][:, part])
            kept = same and np.array_equal(_bytes(array), old[part])
            if kept and not (taken and not given[number].bits):
                continue
            seen.add(key)
            yield HashedOutput(name, array.copy(), memories[number].of(array), array)


def _bytes(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def run_plain(of: Program, given: list[Root], wanted: list[Array]) -> list[Array]:
    """Run a program without expressions; copies of what it left in some arrays."""
    with put_back(given):
        for call in of:
            call.run()
        return [each.copy() for each in wanted]


def runs(of: Program, given: list[Root], wanted: list[Array]) -> list[Array] | None:
    """What :func:`run_plain` gives, or None if a launch ends with an error."""
    try:
        return run_plain(of, given, wanted)
    except Error:
        return None
