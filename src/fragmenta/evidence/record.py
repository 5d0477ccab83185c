"""What did a real GPU answer?

A recording holds the results of one family of instructions on one GPU, with
the versions that made them.  The inputs are not stored: they are made anew
from the seed and checked by a digest.  ``replay`` computes the same on the
CPU and counts the bits that differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fragmenta.cuda.tools import assembler, launch
from fragmenta.cuda.tools.device import GPU
from fragmenta.cuda.tools.launch import Kernel
from fragmenta.errors import Error, UnsupportedTarget, nearest, one_of
from fragmenta.evidence import validation
from fragmenta.evidence.inputs import Trial, tile_count, trials
from fragmenta.execution.mma import execute
from fragmenta.isa.families import catalogue
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.reading import instruction

if TYPE_CHECKING:
    from fragmenta.evidence import wgmma_inputs

#: Bits that no kernel of ours writes by chance: shows what was left unwritten.
POISON = launch.POISON

KINDS = ("mma", "mma.sp", "wgmma", "moves", "wmma")
"""What is recorded, a file for each: ``wgmma`` is dense and sparse, ``moves``
ldmatrix, stmatrix and movmatrix, ``wmma`` its loads, products and stores."""

TILES = 40
"""Tiles of an ``mma``: five of each kind of floating-point input."""


@dataclass(frozen=True)
class Case:
    """One instruction with one selector, and where its results are."""

    instruction: str
    selector: int | None
    tiles: int
    seed: int
    digest: str
    start: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Recording:
    """Cases, their results one after the other, and what made them."""

    made: dict[str, str]
    cases: list[Case]
    words: NDArray[np.uint32]

    case_type: ClassVar[type[Case]] = Case
    families: ClassVar[tuple[tuple[str, ...], ...]] = (("mma", "mma.sp"),)
    """Which families a file holds: one of these groups."""

    def result(self, case: Case) -> NDArray[Any]:
        """What the GPU answered: the registers of D, or an image."""
        shape, kind = self.form(case)
        count = prod(shape) * kind.itemsize // 4
        words = self.words[case.start : case.start + count]
        return np.ascontiguousarray(words).view(kind).reshape(shape)

    def form(self, case: Case) -> validation.Form:
        """The shape and the type of what a GPU answers to a case."""
        op = instruction(case.instruction)
        tiles = tile_count(op, case.tiles)
        kind = np.dtype(f"uint{op.d.register_bits}")
        return (tiles, op.d.lanes, op.d.registers), kind

    def check(self, case: Case) -> None:
        """Refuse a case that could not be replayed, or would take for ever."""
        if case.tiles > self.words.size:
            raise Error(f"{case.tiles} tiles, and {self.words.size} words in all")
        self.check_instruction(case)
        validation.check_answers(case, self.form(case), self.words.size)

    def check_instruction(self, case: Case) -> None:
        """Refuse what the target does not have, or this kind of file not hold."""
        op, target = instruction(case.instruction), self.made["target"]
        group = next((each for each in self.families if op.family in each), None)
        if group is None:
            known = one_of(name for each in self.families for name in each)
            raise Error(f"such a recording is of {known}; given {op}")
        first = instruction(self.cases[0].instruction).family
        if first not in group:  # the first case decides how a file is replayed
            raise Error(
                f"one file has {first} and {op.family}; they are replayed apart"
            )
        if not op.supported_on(target):
            raise Error(f"{target} does not have {op}")
        if case.selector not in (op.selectors or (None,)):
            raise Error(f"selector {case.selector} is none of {op}")

    def save(self, path: Path) -> None:
        """Write one compressed file."""
        about = {"made": self.made, "cases": [asdict(case) for case in self.cases]}
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez_compressed(path, about=text, words=self.words)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` wrote, and check it."""
        return cls.checked(path, validation.content(path))

    @classmethod
    def checked(cls, path: Path, found: validation.Content) -> Self:
        """A recording of what a file holds, if all of it can be replayed."""
        cases: list[Case] = []
        for number, each in enumerate(found.cases):
            with validation.refused(f"{path} is not a recording: case {number}"):
                cases.append(
                    cls.case_type(**validation.case_fields(each, cls.case_type))
                )
        recording = cls(found.made, cases, found.words)
        for number, case in enumerate(cases):
            with validation.refused(f"{path} is not a recording: case {number}"):
                recording.check(case)
        return recording


@dataclass(frozen=True)
class Difference:
    """How one case differs from the recording."""

    case: Case
    bits: int
    elements: int
    first: str


Compared = tuple[Case, Difference | None]


# ── recording ───────────────────────────────────────────────────────────────


def record(
    gpu: GPU,
    family: str,
    *,
    tiles: int = TILES,
    seed: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Run every ``mma`` or ``mma.sp`` that the GPU supports and keep the results."""
    ops = [op for op in catalogue(family) if op.supported_on(gpu.target)]
    work = [(op, each) for op in ops for each in trials(op, tiles, seed)]
    kernels = [kernel_of(op, each.selector) for op, each in work]
    text = launch.source(kernels, gpu.target)
    module = gpu.load(assembler.assemble(text, gpu.target))
    cases: list[Case] = []
    results: list[NDArray[np.uint32]] = []
    start = 0
    for kernel, (op, each) in zip(kernels, work, strict=True):
        progress(str(op))
        d = kernel.run(gpu, module, each.registers)
        words = d.reshape(-1).view(np.uint32)
        cases.append(
            Case(str(op), each.selector, tiles, seed, each.digest(), start, d.shape)
        )
        results.append(words)
        start += words.size
    made = {**gpu.versions(), "date": date.today().isoformat()}
    return Recording(made, cases, np.concatenate(results))


def kernel_of(op: Instruction, selector: int | None) -> Kernel:
    """The kernel of an instruction that works on registers.

    >>> import fragmenta as fm
    >>> kernel_of(fm.mma("m16n8k64", a="s8", sp="sp"), 0).immediates
    (('selector', 0),)
    """
    return Kernel(op, () if selector is None else (("selector", selector),))


def record_kind(
    gpu: GPU,
    kind: str,
    *,
    tiles: int | None = None,
    seed: int = 1,
    progress: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Record one of :data:`KINDS`; ``wgmma`` has its own plan of tiles."""
    # These modules are built on this one.
    from fragmenta.evidence import wgmma_record, wmma_record

    check_kind(kind)
    if not count_on(kind, gpu.target):
        raise UnsupportedTarget(f"{gpu.name} ({gpu.target}) has no {kind}")
    given = {} if tiles is None else {"tiles": tiles}
    if kind == "moves":
        return wgmma_record.record_moves(gpu, seed=seed, progress=progress, **given)
    if kind == "wmma":
        return wmma_record.record_wmma(gpu, seed=seed, progress=progress, **given)
    if kind == "wgmma":
        return wgmma_record.record_wgmma(gpu, seed=seed, progress=progress)
    return record(gpu, kind, seed=seed, progress=progress, **given)


def check_kind(kind: str) -> str:
    """The kind, or an error that names the nearest.

    >>> check_kind("moves")
    'moves'
    """
    if kind not in KINDS:
        raise Error(
            f"no recording of {kind}{nearest(kind, KINDS)}; "
            f"there are {one_of(KINDS, 'and')}"
        )
    return kind


def kinds_on(target: str) -> list[str]:
    """Those of :data:`KINDS` that a target has anything of.

    >>> kinds_on("sm_90a"), kinds_on("sm_80")
    (['mma', 'mma.sp', 'wgmma', 'moves', 'wmma'], ['mma', 'mma.sp', 'moves', 'wmma'])
    """
    return [kind for kind in KINDS if count_on(kind, target)]


def count_on(kind: str, target: str) -> int:
    """How many cases a recording of a target has.

    >>> count_on("moves", "sm_90a")
    37
    """
    from fragmenta.evidence import wgmma_inputs, wmma_record

    if kind == "wmma":
        return len(wmma_record.works(target, 1, 1))
    if kind == "moves":
        return sum(1 for _ in wgmma_inputs.move_plan(target))
    if kind == "wgmma":
        return sum(op.supported_on(target) for op, _, _ in wgmma_inputs.plan())
    ops = (op for op in catalogue(kind) if op.supported_on(target))
    return sum(len(op.selectors or (None,)) for op in ops)


# ── replaying ───────────────────────────────────────────────────────────────


def load(path: Path) -> Recording:
    """A recording of any kind, from its file."""
    from fragmenta.evidence import wgmma_record, wmma_record

    kinds: dict[type, type[Recording]] = {
        dict: wgmma_record.SharedRecording,
        int: wmma_record.WmmaRecording,
    }
    found = validation.content(path)
    variant = found.cases[0].get("variant")
    return kinds.get(type(variant), Recording).checked(path, found)


def files(paths: Iterable[Path]) -> list[Path]:
    """The recordings that are meant: files, and all that folders hold.

    >>> files([Path("no such folder")])
    Traceback (most recent call last):
    ...
    fragmenta.errors.Error: there is no file or folder 'no such folder'
    """
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise Error(f"there is no file or folder {str(path)!r}")
        inside = sorted(path.rglob("*.npz")) if path.is_dir() else [path]
        if not inside:
            raise Error(f"the folder {str(path)!r} has no recordings (*.npz)")
        found += inside
    return found


def replay_any(recording: Recording) -> Iterator[Compared]:
    """Compute each case of any recording on the CPU and compare every bit."""
    from fragmenta.evidence import wgmma_record, wmma_record

    if isinstance(recording, wmma_record.WmmaRecording):
        return wmma_record.replay_wmma(recording)
    if not isinstance(recording, wgmma_record.SharedRecording):
        return replay(recording)
    first = instruction(recording.cases[0].instruction)
    if first.family.startswith("wgmma"):
        return wgmma_record.replay_wgmma(recording, shared_on_cpu)
    return wgmma_record.replay_moves(recording)


def on_cpu(op: Instruction, each: Trial, target: str) -> NDArray[Any]:
    """The registers of D that the package computes."""
    given: dict[str, Any] = dict(each.registers)
    operands = [given.pop(name) for name in "abc"]
    if each.selector is not None:
        given["selector"] = each.selector
    return execute(op, *operands, **given, target=target)


def shared_on_cpu(
    op: Instruction, each: wgmma_inputs.Trial, target: str
) -> NDArray[Any]:
    """The same for ``wgmma``."""
    operands, options = shared_operands(op, each)
    return op.execute(*operands, **options, target=target)


def shared_operands(
    op: Instruction, each: wgmma_inputs.Trial
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What ``execute`` and ``on_device`` take, from a trial of ``wgmma``."""
    options = {
        "smem": each.image,
        "scale_d": each.scale_d,
        **each.variant.immediates(op),
    }
    if each.metadata is not None:
        options["metadata"] = each.metadata
    return (each.c, each.a, each.b), options


def replay(recording: Recording) -> Iterator[Compared]:
    """Compute each case of an ``mma`` on the CPU and compare every bit."""
    made: dict[tuple[str, int, int], dict[int | None, Trial]] = {}
    for case in recording.cases:
        op = instruction(case.instruction)
        key = (case.instruction, case.tiles, case.seed)
        if key not in made:
            made = {key: {t.selector: t for t in trials(op, case.tiles, case.seed)}}
        each = made[key][case.selector]
        if each.digest() != case.digest:
            raise Error(
                f"the inputs of {case.instruction} are not those that were recorded "
                f"({each.digest()}, not {case.digest})"
            )
        d = on_cpu(op, each, recording.made["target"])
        yield case, _difference(case, op, recording.result(case), d)


def _difference(
    case: Case, op: Instruction, gpu: NDArray[Any], cpu: NDArray[Any]
) -> Difference | None:
    found = compare(op, gpu, cpu)
    if found is None:
        return None
    return Difference(case, found.bits, found.elements, str(found))


@dataclass(frozen=True)
class Mismatch:
    """How much two results differ, and where first."""

    bits: int
    elements: int
    tile: int
    place: tuple[int, ...]
    """Row and column, after the matrix where there are several."""
    gpu: int
    cpu: int

    def __str__(self) -> str:
        answers = f"GPU {self.gpu:#x}, CPU {self.cpu:#x}"
        return f"tile {self.tile} D[{', '.join(map(str, self.place))}]: {answers}"


def compare(op: Instruction, gpu: NDArray[Any], cpu: NDArray[Any]) -> Mismatch | None:
    """Compare every bit of D, (tiles, lanes, n); None if none differs.

    >>> import numpy as np, fragmenta as fm
    >>> op = fm.mma("m16n8k32", a="s8")
    >>> d = np.zeros((2, 32, 4), np.uint32)
    >>> spoiled = d.copy()
    >>> spoiled[1, 5, 2] = 3
    >>> print(compare(op, spoiled, d))
    tile 1 D[9, 2]: GPU 0x3, CPU 0x0
    """
    wrong = gpu ^ cpu
    if not wrong.any():
        return None
    elements = op.d.unpack_bits(wrong)
    tile, *inside = np.argwhere(elements)[0].tolist()
    place = tuple(inside)
    answers = (int(op.d.unpack_bits(each[tile])[place]) for each in (gpu, cpu))
    return Mismatch(
        int(np.bitwise_count(wrong).sum()),
        int(np.count_nonzero(elements)),
        tile,
        place,
        *answers,
    )
