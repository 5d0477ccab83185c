"""Runs the blocks of one grid on the workers of a Dask cluster.

Each worker runs some blocks on a copy of the memory and notes which bytes it wrote.
Then the copies are merged.  A byte that two workers wrote is an error, unless both
changed it by the same atomic operation whose order does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol, TypeAlias, TypedDict

import numpy as np
from numpy.typing import NDArray

from fragmenta.arrays.checks import Array
from fragmenta.errors import BadCall, KernelFault
from fragmenta.launch.grid import run_blocks
from fragmenta.launch.launch import Launch
from fragmenta.launch.limits import Limits, Meter
from fragmenta.launch.options import Options
from fragmenta.launch.source import Source
from fragmenta.ptx import reading
from fragmenta.ptx.module import demangled
from fragmenta.simt.arguments import Pointer, Segment, Struct
from fragmenta.simt.atomics import COMMUTATIVE
from fragmenta.simt.context import Shape
from fragmenta.simt.memory import MIXED, PLAIN

_PORTIONS = 4
"""Portions of the grid for each worker."""


class Client(Protocol):
    """What is used of a ``dask.distributed.Client``."""

    def submit(
        self,
        function: Callable[[int, int], tuple[object, ...]],
        first: int,
        last: int,
        *,
        pure: bool,
    ) -> object:
        """Let a worker call a function; the future of what it returns."""

    def gather(
        self, futures: list[object]
    ) -> list[tuple[Sequence[Sent], NDArray[np.int64], str]]:
        """The results of futures."""

    def nthreads(self) -> dict[str, int]:
        """The threads of each worker."""


class Asked(NamedTuple):
    """What a launch was asked for."""

    kernel: str
    arguments: list[object]
    """Pointers are pairs of an array and an offset."""
    options: Options
    limits: Limits


class Recipe(TypedDict):
    """What a worker makes the same launch from, in plain types."""

    text: str
    variables: dict[str, bytes]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    name: str
    arguments: list[object]
    options: Options
    limits: tuple[float | None, int | None, int | None]


def run_on_cluster(
    source: Source,
    launch: Launch,
    asked: Asked,
    limit: int | None,
    client: Client,
) -> str:
    """Let workers run portions of the grid; what they printed."""
    ready = launch.compiled
    named = demangled(ready.kernel)
    if ready.ordered:
        raise BadCall(
            f"the blocks of {named} may influence one another, by atomics with "
            "results, atomics of floats, or volatile or ordered accesses: their order "
            "matters; launch without client="
        )
    if launch.machine is not None:
        raise BadCall(
            f"{named} has asynchronous copies, mbarriers or clusters, which "
            "cannot be spread; launch without client="
        )
    if launch.arguments.overlap:
        raise BadCall(
            "arrays that share memory cannot be spread; launch without client="
        )
    kept, limits = source.variables_of(ready).segments, asked.limits
    recipe: Recipe = {
        "text": source.module.text,
        "variables": {each.name: each.data.tobytes() for each in kept},
        "grid": launch.shape.grid,
        "block": launch.shape.block,
        "name": asked.kernel,
        "arguments": asked.arguments,
        "options": asked.options,
        "limits": (limits.seconds, limits.memory, limits.output),
    }

    # A function without a name of its own is sent as it is.
    def work(first: int, last: int) -> tuple[object, ...]:
        from fragmenta.launch.dask import run_portion

        return tuple(run_portion(recipe, first, last, limit))

    futures = [
        client.submit(work, first, last, pure=False)
        for first, last in portions(launch.shape.blocks, workers(client))
    ]
    parts = [Portion(*each) for each in client.gather(futures)]
    merge([each for each in launch.places if each.writable], parts)
    launch.arguments.write_back()
    launch.counts = np.sum([part.counts for part in parts], axis=0)
    return "".join(part.output for part in parts)


def run_portion(recipe: Recipe, first: int, last: int, limit: int | None) -> Portion:
    """Run some blocks of a launch on copies of its memory; for a worker."""
    launch = _again(recipe)
    writable = [each for each in launch.places if each.writable]
    notes = [np.zeros(each.data.size, np.uint8) for each in writable]
    for segment, note in zip(writable, notes, strict=True):
        launch.segments[segment.slot, 2:] = 2, note.ctypes.data
    run_blocks(launch, limit, first, last)
    written: list[Sent] = [
        (each.places, each.values, each.notes) for each in collect(writable, notes)
    ]
    launch.close()
    return Portion(written, launch.counts, launch.host.text)


def _again(recipe: Recipe) -> Launch:
    """The same launch, on copies of its arrays."""
    source = Source(reading.parse(recipe["text"]))
    variables = recipe["variables"]
    shape = Shape(recipe["grid"], recipe["block"])
    copied: dict[int, Array] = {}

    def own(array: Array) -> Array:
        return copied.setdefault(id(array), array.copy())

    def own_argument(value: object) -> object:
        if isinstance(value, tuple):  # a pointer
            array, offset = value
            return Pointer(own(array), offset)
        if isinstance(value, Struct):
            pairs = ((at, Pointer(own(p.array), p.offset)) for at, p in value.pointers)
            return Struct(value.data, tuple(pairs))
        return own(value) if isinstance(value, np.ndarray) else value

    given = [own_argument(each) for each in recipe["arguments"]]
    launch = source.launch(
        recipe["name"],
        shape,
        given,
        meter=Meter(Limits(*recipe["limits"])),
        **recipe["options"],
    )
    for each in launch.places:
        if each.name in variables:
            each.data[:] = np.frombuffer(variables[each.name], np.uint8)
    return launch


Sent: TypeAlias = tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8]]
"""The fields of a :class:`Written`."""


class Written(NamedTuple):
    """What one portion wrote in one segment."""

    places: NDArray[np.int64]
    values: NDArray[np.uint8]
    notes: NDArray[np.uint8]


class Portion(NamedTuple):
    """What came of some blocks."""

    written: Sequence[Sent]
    """A :class:`Written` for each segment, as a plain tuple."""
    counts: NDArray[np.int64]
    output: str


def portions(blocks: int, workers: int) -> list[tuple[int, int]]:
    """The grid cut into portions.

    >>> portions(10, 1)
    [(0, 2), (2, 5), (5, 7), (7, 10)]
    """
    count = max(1, min(blocks, workers * _PORTIONS))
    edges = [blocks * i // count for i in range(count + 1)]
    return list(pairwise(edges))


def collect(segments: list[Segment], notes: list[NDArray[np.uint8]]) -> list[Written]:
    """What was written, after a portion has run."""
    found = []
    for segment, note in zip(segments, notes, strict=True):
        places = np.flatnonzero(note)
        found.append(Written(places, segment.data[places], note[places]))
    return found


def merge(segments: list[Segment], parts: list[Portion]) -> None:
    """Put what all portions wrote into the memory."""
    for number, segment in enumerate(segments):
        _merge(segment, [Written(*part.written[number]) for part in parts])


def _merge(segment: Segment, parts: list[Written]) -> None:
    before = segment.data.copy()
    owner = np.full(segment.data.size, -1, np.int32)
    note = np.zeros(segment.data.size, np.uint8)
    for number, part in enumerate(parts):
        again = owner[part.places] >= 0
        _refuse(segment, part, again, note, number, owner)
        fresh = part.places[~again]
        segment.data[fresh] = part.values[~again]
        note[fresh] = part.notes[~again]
        for code in np.unique(part.notes[again]).tolist():
            some = again & (part.notes == code)
            _combine(segment, before, part.places[some], part.values[some], code)
        owner[part.places] = number


def _refuse(
    segment: Segment,
    part: Written,
    again: NDArray[np.bool_],
    note: NDArray[np.uint8],
    number: int,
    owner: NDArray[np.int32],
) -> None:
    """Bytes that two portions wrote, but not by the same atomic operation."""
    codes = part.notes[again]
    wrong = (codes == PLAIN) | (codes == MIXED) | (codes != note[part.places[again]])
    if wrong.any():
        place = int(part.places[again][wrong][0])
        raise KernelFault(
            f"byte {place} of {segment.name} was written by blocks of portion "
            f"{int(owner[place])} and of portion {number}; the result would depend on "
            "their order; launch without client=",
            "order",
        )


def _combine(
    segment: Segment,
    before: NDArray[np.uint8],
    places: NDArray[np.int64],
    values: NDArray[np.uint8],
    code: int,
) -> None:
    """Two portions changed words by the same atomic operation."""
    operation, kind = COMMUTATIVE[code - 2]
    size = int(kind[1:]) // 8
    of = np.dtype(f"{'i' if kind[0] == 's' else 'u'}{size}")
    first = places.reshape(-1, size)
    here = np.ascontiguousarray(segment.data[first]).view(of).reshape(-1)
    there = np.ascontiguousarray(values.reshape(-1, size)).view(of).reshape(-1)
    old = np.ascontiguousarray(before[first]).view(of).reshape(-1)
    with np.errstate(over="ignore"):
        joined = {
            "add": lambda: here + (there - old),
            "min": lambda: np.minimum(here, there),
            "max": lambda: np.maximum(here, there),
            "and": lambda: here & there,
            "or": lambda: here | there,
            "xor": lambda: here ^ there ^ old,
        }[operation]()
    segment.data[first] = joined.astype(of).view(np.uint8).reshape(-1, size)


def workers(client: Client) -> int:
    """How many threads a cluster has."""
    try:
        return max(1, sum(map(int, client.nthreads().values())))
    except AttributeError as error:
        raise BadCall(
            f"client is a dask.distributed.Client; given {type(client).__name__}"
        ) from error
