"""What did a GPU answer to the launches of the corpus?

A recording is one ``.npz`` for each source file of the corpus.  ``index`` is JSON: the
texts and the launches.  ``texts`` is the PTX of all variants, ``changes`` what each
launch did to its arrays; both are compressed by xz.  A change is the exclusive or of an
array's bytes before and after, the first bytes of all elements first.  Arguments are
made again from their descriptions (:mod:`tests.ptx.inputs`); a digest proves that they
are those that the GPU had.
"""

from __future__ import annotations

import hashlib
import json
import lzma
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tests.ptx import inputs

FOLDER = Path(__file__).parent.parent / "golden" / "launches"


class Change(NamedTuple):
    """Which argument a launch changed, and where its bytes lie in the recording."""

    argument: int
    start: int
    length: int


class Launch(NamedTuple):
    """One recorded launch."""

    source: str
    """The stem of the source file."""
    text: int
    """The number of its PTX among those of the source."""
    name: str
    entry: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: list[inputs.Spec]
    seed: int
    digest: str
    changes: list[Change]
    printed: str
    """What the kernel printed."""

    @property
    def identity(self) -> str:
        """A name that no other launch has."""
        return f"{variants(self.source)[self.text]}-{self.name}"

    def ptx(self) -> str:
        """The PTX that was assembled and run."""
        return texts(self.source)[self.text]

    def make_arguments(self) -> list[inputs.Argument]:
        """Arrays and scalars as they were before the launch."""
        made = make_arguments(self.arguments, self.seed)
        if digest(made) != self.digest:
            raise ValueError(f"{self.identity}: the arguments are not the GPU's")
        return made

    def expected(self) -> list[inputs.Argument]:
        """Arrays and scalars as the GPU left them."""
        after = self.make_arguments()
        recorded = changes(self.source)
        for change in self.changes:
            array = after[change.argument]
            difference = recorded[change.start : change.start + change.length]
            after[change.argument] = apply(array, difference)
        return after


def make_arguments(specs: Sequence[inputs.Spec], seed: int) -> list[inputs.Argument]:
    """Every argument has a seed of its own."""
    return [inputs.make(spec, seed + 7919 * i) for i, spec in enumerate(specs)]


def digest(arguments: Sequence[inputs.Argument]) -> str:
    """SHA-256 of the bytes of all arguments, shortened."""
    state = hashlib.sha256()
    for argument in arguments:
        state.update(argument.tobytes())
    return state.hexdigest()[:16]


# ── reading ─────────────────────────────────────────────────────────────────


def sources() -> list[str]:
    """The source files that have a recording."""
    return sorted(path.stem for path in FOLDER.glob("*.npz"))


@cache
def _index(source: str) -> dict[str, Any]:
    with np.load(FOLDER / f"{source}.npz") as stored:
        return dict(json.loads(stored["index"].tobytes()))


def variants(source: str) -> list[str]:
    """The names of a source's PTX texts: file, target, and options if any."""
    return [entry["name"] for entry in _index(source)["texts"]]


@cache
def texts(source: str) -> list[str]:
    """The PTX texts of a source."""
    with np.load(FOLDER / f"{source}.npz") as stored:
        joined = lzma.decompress(stored["texts"].tobytes())
    found, start = [], 0
    for entry in _index(source)["texts"]:
        found.append(joined[start : start + entry["bytes"]].decode())
        start += entry["bytes"]
    return found


@cache
def changes(source: str) -> NDArray[np.uint8]:
    """The changes of all launches of a source, one after the other."""
    with np.load(FOLDER / f"{source}.npz") as stored:
        return np.frombuffer(lzma.decompress(stored["changes"].tobytes()), np.uint8)


def launches(source: str) -> list[Launch]:
    """The recorded launches of a source."""
    found = []
    for row in _index(source)["launches"]:
        row = {**row, "grid": tuple(row["grid"]), "block": tuple(row["block"])}
        row["changes"] = [Change(*change) for change in row["changes"]]
        found.append(Launch(source=source, **row))
    return found


def every_launch() -> list[Launch]:
    """All recorded launches."""
    return [launch for source in sources() for launch in launches(source)]


# ── writing ─────────────────────────────────────────────────────────────────


def difference(before: inputs.Argument, after: inputs.Argument) -> NDArray[np.uint8]:
    """The exclusive or of all bytes, the first bytes of all elements first."""
    size = before.dtype.itemsize
    pair = [
        np.frombuffer(a.tobytes(), np.uint8).reshape(-1, size) for a in (before, after)
    ]
    return np.ascontiguousarray((pair[0] ^ pair[1]).T).reshape(-1)


def apply(before: inputs.Argument, recorded: NDArray[np.uint8]) -> NDArray[Any]:
    """The array after a launch: the inverse of :func:`difference`."""
    size = before.dtype.itemsize
    old = np.frombuffer(before.tobytes(), np.uint8).reshape(-1, size)
    new = np.ascontiguousarray(old ^ recorded.reshape(size, -1).T)
    return new.view(before.dtype).reshape(before.shape)


class Writer:
    """Collects the texts and launches of one source."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._texts: list[tuple[str, bytes]] = []
        self._launches: list[dict[str, Any]] = []
        self._changes: list[bytes] = []
        self._size = 0

    def add_text(self, name: str, text: str) -> int:
        """Keep a PTX text; its number."""
        self._texts.append((name, text.encode()))
        return len(self._texts) - 1

    def add_launch(
        self,
        before: Sequence[inputs.Argument],
        after: Sequence[inputs.Argument],
        **row: Any,
    ) -> int:
        """Keep what a launch changed; how many bytes are in changed arrays."""
        found = []
        for i, (old, new) in enumerate(zip(before, after, strict=True)):
            if old.tobytes() != new.tobytes():
                content = difference(old, new).tobytes()
                found.append((i, self._size, len(content)))
                self._changes.append(content)
                self._size += len(content)
        self._launches.append({**row, "digest": digest(before), "changes": found})
        return sum(length for _, _, length in found)

    def save(self, folder: Path) -> int:
        """Write the recording; its size in bytes."""
        index = {
            "texts": [{"name": name, "bytes": len(text)} for name, text in self._texts],
            "launches": self._launches,
        }
        path = folder / f"{self.source}.npz"
        np.savez(
            path,
            index=_packed(json.dumps(index, separators=(",", ":")).encode()),
            texts=_packed(lzma.compress(b"".join(t for _, t in self._texts))),
            changes=_packed(lzma.compress(b"".join(self._changes))),
        )
        return path.stat().st_size


def _packed(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8)
