"""What did a GPU answer to ``wmma``, and do we?

Recordings of every kind of work (:mod:`fragmenta.evidence.wmma_work`) on every shape,
type, layout and leading dimension, and their replay.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

import numpy as np

from fragmenta import wmma
from fragmenta.cuda.source import ptx
from fragmenta.cuda.tools import assembler
from fragmenta.errors import Error
from fragmenta.evidence.record import POISON, Case, Difference, Recording
from fragmenta.evidence.validation import Form
from fragmenta.evidence.wmma_work import (
    LONGER,
    ROUND,
    Load,
    Multiply,
    Round,
    Words32,
    Work,
)
from fragmenta.isa.families import catalogue
from fragmenta.isa.reading import instruction
from fragmenta.isa.target import TARGETS, Version, check_target


@dataclass(frozen=True)
class WmmaCase(Case):
    """One kernel on one set of inputs: which leading dimensions it was given."""

    variant: int = 0
    """Which of :data:`LONGER` comes first."""


@dataclass(frozen=True)
class WmmaRecording(Recording):
    """What a GPU answered to every shape, type, layout and leading dimension."""

    case_type = WmmaCase

    def form(self, case: Case) -> Form:
        """The words of one case: (tiles, words)."""
        return work_of(case).shape, np.dtype(np.uint32)

    def check_instruction(self, case: Case) -> None:
        """Among them rounding, which is no instruction of the catalogue."""
        assert isinstance(case, WmmaCase)
        target = self.made["target"]
        if case.instruction not in _recorded(target):
            raise Error(f"{target} is not asked for {case.instruction:.80}")
        if case.variant not in range(len(LONGER)):
            raise Error(f"variant {case.variant} is none of 0 to {len(LONGER) - 1}")
        if case.selector is not None:
            raise Error(f"wmma has no selectors; given {case.selector}")
        if case.instruction == ROUND and case.tiles != 1:
            raise Error(f"{ROUND} has one tile; given {case.tiles}")


def works(target: str, tiles: int, seed: int) -> list[Work]:
    """Everything that a target can be asked, in a fixed order.

    >>> found = works("sm_90a", tiles=8, seed=1)
    >>> len(found), found[0].instruction
    (631, 'wmma.load.a.sync.aligned.row.m16n16k16.global.f16')
    """
    variants = range(len(LONGER))
    loads = [
        op
        for op in catalogue("wmma.load")
        if op.values["space"] == "global" and op.supported_on(target)
    ]
    products = [
        op
        for op in catalogue("wmma.mma")
        # the C++ API rounds f64 to nearest only
        if not op.values.get("rounding") and op.supported_on(target)
    ]
    found: list[Work] = [Load(op, v, 1, seed) for op in loads for v in variants]
    found += [Multiply(op, v, tiles, seed) for op in products for v in variants]
    return [*found, Round(0, 1, seed)]


@cache
def _recorded(target: str) -> frozenset[str]:
    return frozenset(each.instruction for each in works(target, 1, 1))


def work_of(case: Case) -> Work:
    """The work that a case records.

    >>> case = WmmaCase("cvt.rna.tf32.f32", None, 1, 0, "", 0, ())
    >>> work_of(case).shape
    (672, 32)
    """
    variant = case.variant if isinstance(case, WmmaCase) else 0
    if case.instruction == ROUND:
        return Round(variant, case.tiles, case.seed)
    op = instruction(case.instruction)
    kind = Load if op.family == "wmma.load" else Multiply
    return kind(op, variant, case.tiles, case.seed)


def module(listed: Sequence[Work], target: str) -> str:
    """One PTX module with every kernel that the works need."""
    entries = {each.kernel: each.entry() for each in listed}
    names = {each.instruction for each in listed} - {ROUND}
    needed = [instruction(name).requires.ptx for name in names]
    # the target's own version, and at least that of cvt to tf32
    version = max(TARGETS[check_target(target)], Version(7, 0), *needed)
    return ptx.header(target, version) + "".join(entries.values())


def record_wmma(
    gpu: Any,
    *,
    tiles: int = 8,
    seed: int = 2024,
    progress: Callable[[str], None] = lambda _: None,
) -> WmmaRecording:
    """Run every work that the GPU supports and keep what it answers.

    ``gpu`` is a :class:`fragmenta.cuda.tools.device.GPU`.
    """
    listed = works(gpu.target, tiles, seed)
    code = gpu.load(assembler.assemble(module(listed, gpu.target), gpu.target))
    cases: list[Case] = []
    answers: list[Words32] = []
    start = 0
    for work in listed:
        progress(f"{work.instruction} ({work.variant})")
        output = np.full(work.shape, POISON, np.uint32)
        answer = gpu.run(code, work.kernel, work.shape[0], 32, work.inputs, output)
        count = 1 if isinstance(work, Load | Round) else tiles
        cases.append(
            WmmaCase(
                work.instruction,
                selector=None,
                tiles=count,
                seed=seed,
                digest=digest(work),
                start=start,
                shape=work.shape,
                variant=work.variant,
            )
        )
        answers.append(answer.reshape(-1))
        start += answer.size
    made = {**gpu.versions(), "date": date.today().isoformat()}
    return WmmaRecording(made, cases, np.concatenate(answers))


def digest(work: Work) -> str:
    """A short fingerprint of everything that a kernel reads."""
    total = hashlib.sha256()
    for each in work.inputs:
        total.update(np.ascontiguousarray(each).tobytes())
    return total.hexdigest()[:16]


def replay_wmma(recording: Recording) -> Iterator[tuple[Case, Difference | None]]:
    """Compute each case with :mod:`fragmenta.wmma` and compare every bit."""
    for case in recording.cases:
        work = work_of(case)
        if digest(work) != case.digest:
            raise Error(
                f"the inputs of {case.instruction} are not those that were recorded "
                f"({digest(work)}, not {case.digest})"
            )
        with warnings.catch_warnings():
            # the target is named, but a recording has no one to warn
            warnings.simplefilter("ignore", wmma.DeprecatedVariant)
            expected = work.expect(recording.made["target"])
        yield case, _difference(case, work, recording.result(case), expected)


def _difference(
    case: Case, work: Work, gpu: Words32, cpu: Words32
) -> Difference | None:
    wrong = gpu ^ cpu
    if not wrong.any():
        return None
    tile, word = (int(each) for each in np.argwhere(wrong)[0])
    first = (
        f"tile {tile}, {work.name(word)}: "
        f"GPU {int(gpu[tile, word]):#x}, CPU {int(cpu[tile, word]):#x}"
    )
    bits = int(np.bitwise_count(wrong).sum())
    return Difference(case, bits, int(np.count_nonzero(wrong)), first)
