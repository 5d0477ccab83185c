"""Records the answers of a GPU, and replays them on the CPU.

A recording holds the answers to the cases of one file on one GPU, with the
versions that made them.  The inputs are not stored: they are made anew from the
seed and checked by a digest.  ``replay`` computes the same on the CPU and counts
the bits that differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools.device import GPU
from fragmenta.errors import BadCall, BadFile, UnsupportedTarget, nearest, one_of
from fragmenta.inspect.evidence import moves, registers, validation, warpgroup, wmma
from fragmenta.inspect.evidence.case import (
    Answer,
    Case,
    Mismatch,
    compare,
    machine_code,
)
from fragmenta.inspect.evidence.validation import RecordedCase

KINDS = ("mma", "mma.sp", "wgmma", "moves", "wmma")
"""The kinds of recordings, one file each: ``wgmma`` is dense and sparse, ``moves``
ldmatrix, stmatrix and movmatrix, ``wmma`` its loads, products and stores."""

READERS: dict[str, Callable[[RecordedCase, str], Case]] = {
    "registers": registers.again,
    "warpgroup": warpgroup.again,
    "moves": moves.again,
    "wmma": wmma.again,
}
"""How a case of each kind is made again, from what a file says of it."""


@dataclass(frozen=True)
class CaseRecording:
    """Cases, their answers one after the other, and what made them."""

    made: dict[str, str]
    cases: list[RecordedCase]
    words: NDArray[np.uint32]

    def question(self, recorded: RecordedCase) -> Case:
        """The case that was recorded; an error if there is no such case."""
        if recorded.kind not in READERS:
            raise BadFile(
                f"no kind of case {recorded.kind:.40}{nearest(recorded.kind, READERS)};"
                f" there are {one_of(READERS, 'and')}"
            )
        return READERS[recorded.kind](recorded, self.made["target"])

    def result(self, recorded: RecordedCase) -> Answer:
        """What the GPU answered: the registers of D, or an image."""
        shape, kind = self.question(recorded).form
        count = prod(shape) * kind.itemsize // 4
        words = self.words[recorded.start : recorded.start + count]
        return np.ascontiguousarray(words).view(kind).reshape(shape)

    def check(self, recorded: RecordedCase) -> None:
        """Refuse a case that cannot be replayed, or not in reasonable time."""
        size = self.words.size
        if recorded.tiles > size:
            raise BadFile(f"{recorded.tiles} tiles, and {size} words in all")
        validation.check_answer(recorded, self.question(recorded).form, size)

    def save(self, path: Path) -> None:
        """Write one compressed file."""
        about = {"made": self.made, "cases": [asdict(case) for case in self.cases]}
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez_compressed(path, about=text, words=self.words)


# ── recording ───────────────────────────────────────────────────────────────


def record(
    gpu: GPU,
    kind: str,
    *,
    tiles: int | None = None,
    seed: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> CaseRecording:
    """Ask a GPU everything that belongs to one of :data:`KINDS`."""
    asked = cases(kind, gpu.target, tiles, seed)
    if not asked:
        raise UnsupportedTarget(f"{gpu.name} ({gpu.target}) has no {kind}")
    return record_cases(gpu, asked, progress=progress)


def record_cases(
    gpu: GPU,
    asked: Sequence[Case],
    *,
    cubin: bytes | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> CaseRecording:
    """Ask a GPU these cases and keep the answers; ``cubin`` has their kernels.

    The cubin needs no GPU: ``machine_code`` can make it beforehand.
    """
    module = gpu.load(cubin or machine_code(asked, gpu.target))
    recorded: list[RecordedCase] = []
    answers: list[NDArray[np.uint32]] = []
    start = 0
    for case in asked:
        progress(case.instruction)
        inputs = case.inputs()
        answer = case.ask(gpu, module, inputs)
        recorded.append(
            RecordedCase(
                kind=case.kind,
                instruction=case.instruction,
                tiles=case.tiles,
                seed=case.seed,
                digest=case.digest(inputs),
                start=start,
                shape=answer.shape,
                selector=case.options.get("selector"),
                variant=case.options.get("variant"),
            )
        )
        answers.append(np.ascontiguousarray(answer).reshape(-1).view(np.uint32))
        start += answers[-1].size
    made = {**gpu.versions(), "date": date.today().isoformat()}
    return CaseRecording(made, recorded, np.concatenate(answers))


def cases(
    kind: str, target: str, tiles: int | None = None, seed: int = 1
) -> Sequence[Case]:
    """All cases of a recording of one kind; those of ``wgmma`` have their own tiles.

    >>> len(cases("moves", "sm_90a"))
    37
    """
    check_kind(kind)
    given = {} if tiles is None else {"tiles": tiles}
    if kind == "wgmma":
        return warpgroup.cases(target, seed=seed)
    if kind == "moves":
        return moves.cases(target, seed=seed, **given)
    if kind == "wmma":
        return wmma.cases(target, seed=seed, **given)
    return registers.cases(kind, target, seed=seed, **given)


def check_kind(kind: str) -> str:
    """The kind, or an error that names the nearest.

    >>> check_kind("moves")
    'moves'
    """
    if kind not in KINDS:
        raise BadCall(
            f"no recording of {kind}{nearest(kind, KINDS)}; "
            f"there are {one_of(KINDS, 'and')}"
        )
    return kind


def kinds_on(target: str) -> list[str]:
    """Those of :data:`KINDS` that have instructions of a target.

    >>> kinds_on("sm_90a"), kinds_on("sm_80")
    (['mma', 'mma.sp', 'wgmma', 'moves', 'wmma'], ['mma', 'mma.sp', 'moves', 'wmma'])
    """
    return [kind for kind in KINDS if count_on(kind, target)]


def count_on(kind: str, target: str) -> int:
    """How many cases a recording of a target has.

    >>> count_on("moves", "sm_90a")
    37
    """
    return len(cases(kind, target))


# ── files ───────────────────────────────────────────────────────────────────


def load(path: Path) -> CaseRecording:
    """A recording from its file, if all of it can be replayed."""
    found = validation.content(path)
    listed: list[RecordedCase] = []
    for number, each in enumerate(found.cases):
        with validation.refused(f"{path} is not a recording: case {number}"):
            listed.append(validation.recorded_case({"kind": _kind(each), **each}))
    recording = CaseRecording(found.made, listed, found.words)
    for number, recorded in enumerate(listed):
        with validation.refused(f"{path} is not a recording: case {number}"):
            recording.check(recorded)
    return recording


def _kind(given: Mapping[str, object]) -> str:
    """The kind of a case in a file that does not name it."""
    first = str(given.get("instruction")).split(".")[0]
    if first in moves.FAMILIES:
        return "moves"
    return {"wgmma": "warpgroup", "wmma": "wmma", "cvt": "wmma"}.get(first, "registers")


def files(paths: Iterable[Path]) -> list[Path]:
    """The given files, and the recordings in the given folders.

    >>> files([Path("no such folder")])
    Traceback (most recent call last):
    ...
    fragmenta.errors.BadFile: there is no file or folder 'no such folder'
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise BadFile(f"there is no file or folder {str(path)!r}")
        inside = sorted(path.rglob("*.npz")) if path.is_dir() else [path]
        if not inside:
            raise BadFile(f"the folder {str(path)!r} holds no recordings (*.npz)")
        found += inside
    return found


# ── replaying ───────────────────────────────────────────────────────────────


def replay(recording: CaseRecording) -> Iterator[tuple[RecordedCase, Mismatch | None]]:
    """Compute each case on the CPU and compare every bit."""
    for recorded in recording.cases:
        case = recording.question(recorded)
        inputs = case.inputs()
        if case.digest(inputs) != recorded.digest:
            raise BadFile(
                f"the inputs of {case.instruction} are not those that were recorded "
                f"({case.digest(inputs)}, not {recorded.digest})"
            )
        expected = case.expect(inputs, recording.made["target"])
        yield recorded, compare(case, recording.result(recorded), expected)


replay_any = replay
"""The name that the documentation uses: there is one replay for every kind."""
