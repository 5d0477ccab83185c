"""What is asked of a GPU, and is its answer the right one?

A :class:`Case` is one question: a kernel, its inputs, and what the package
computes from the same inputs.  Its ``kind`` names the module that made it.  The
inputs follow from the case alone, so a recording needs to keep only the case, a
digest of the inputs and the answer.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.cuda.tools import assembler, launch
from fragmenta.cuda.tools.launch import Arrays, TileKernel
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.target import Version

Answer = NDArray[Any]
AnswerForm = tuple[tuple[int, ...], np.dtype[Any]]
"""The shape and the type of an answer."""


class Task(ABC):
    """One kernel and what it is given."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Of the kernel; tasks that share a kernel share its name."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """In one block."""

    @property
    @abstractmethod
    def parameters(self) -> tuple[str, ...]:
        """The arrays that the kernel reads, in order."""

    @property
    @abstractmethod
    def form(self) -> AnswerForm:
        """The shape and the type of what it writes."""

    @abstractmethod
    def version(self, target: str) -> Version:
        """The first PTX version that has the kernel on a target."""

    @abstractmethod
    def entry(self) -> str:
        """The kernel in PTX."""

    @abstractmethod
    def inputs(self) -> Arrays:
        """The arrays by name, made anew each time."""

    def output(self) -> Answer:
        """Room for the answer, which shows what is left unwritten."""
        return launch.poisoned(*self.form)


class Case(Task):
    """A task whose answer the package computes, too."""

    kind: ClassVar[str]
    tiles: int
    seed: int

    @property
    @abstractmethod
    def instruction(self) -> str:
        """What is asked about, by its whole name."""

    @property
    def options(self) -> dict[str, Any]:
        """What else decides the case, as a recording keeps it."""
        return {}

    @property
    def salt(self) -> str:
        """What goes into the digest before the inputs."""
        return ""

    @abstractmethod
    def expect(self, inputs: Arrays, target: str) -> Answer:
        """What the package computes."""

    def elements(self, answer: Answer) -> Answer:
        """The raw bits of an answer, element by element: (tiles, …)."""
        return answer

    @abstractmethod
    def where(self, tile: int, place: tuple[int, ...]) -> str:
        """What an element of the answer is."""

    def digest(self, inputs: Arrays) -> str:
        """A short fingerprint of the inputs, which shows if they ever change."""
        total = hashlib.sha256(self.salt.encode())
        for name in sorted(inputs):
            total.update(np.ascontiguousarray(inputs[name]).tobytes())
        return total.hexdigest()[:16]

    def ask(self, gpu: Any, module: Any, inputs: Arrays) -> Answer:
        """What a GPU answers, with a module that has the kernel loaded."""
        return launch.run(gpu, module, self, inputs, self.output())


class TileCase(Case):
    """A case of one instruction that does a tile in each block."""

    op: Instruction

    @property
    @abstractmethod
    def kernel(self) -> TileKernel:
        """The instruction with its immediates."""

    @property
    def count(self) -> int:
        """How many tiles there are in fact."""
        return self.tiles

    @property
    def instruction(self) -> str:
        """The mnemonic."""
        return str(self.op)

    @property
    def name(self) -> str:
        """The mnemonic and the immediates."""
        return self.kernel.name

    @property
    def threads(self) -> int:
        """A warp or a warpgroup."""
        return self.kernel.threads

    @property
    def parameters(self) -> tuple[str, ...]:
        """The operands."""
        return self.kernel.parameters

    @property
    def form(self) -> AnswerForm:
        """The registers of D, or the image that a store leaves."""
        return self.kernel.form(self.count)

    def version(self, target: str) -> Version:
        """That of the instruction."""
        return self.kernel.version(target)

    def entry(self) -> str:
        """The instruction once for each block."""
        return self.kernel.entry()

    def elements(self, answer: Answer) -> Answer:
        """The elements of D; of an image, its bytes."""
        part = self.op.fragments.get("D")
        return answer if part is None else part.unpack_bits(answer)

    def where(self, tile: int, place: tuple[int, ...]) -> str:
        """Row and column, after the matrix where there are several."""
        what = " D" if "D" in self.op.fragments else ", index "
        return f"tile {tile}{what}{list(place)}"


def machine_code(tasks: Iterable[Task], target: str) -> bytes:
    """The kernels of tasks, assembled for a target; this needs no GPU."""
    return assembler.assemble(launch.source(tasks, target), target)


# ── the comparison ──────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Mismatch:
    """How much a GPU's answer differs from ours, and where first."""

    case: Case
    bits: int
    elements: int
    tile: int
    place: tuple[int, ...]
    gpu: int
    cpu: int

    @property
    def first(self) -> str:
        """The first element that differs, and both answers."""
        where = self.case.where(self.tile, self.place)
        return f"{where}: GPU {self.gpu:#x}, CPU {self.cpu:#x}"

    def __str__(self) -> str:
        return self.first


def compare(case: Case, gpu: Answer, cpu: Answer) -> Mismatch | None:
    """Compare every bit of two answers; None if none differs.

    >>> import fragmenta as fm
    >>> from fragmenta.evidence.registers import RegisterCase
    >>> case = RegisterCase(fm.mma("m16n8k32", a="s8"), None, tiles=2, seed=1)
    >>> d = np.zeros((2, 32, 4), np.uint32)
    >>> spoiled = d.copy()
    >>> spoiled[1, 5, 2] = 3
    >>> print(compare(case, spoiled, d))
    tile 1 D[9, 2]: GPU 0x3, CPU 0x0
    """
    wrong = gpu ^ cpu
    if not wrong.any():
        return None
    elements = case.elements(wrong)
    tile, *inside = np.argwhere(elements)[0].tolist()
    place = tuple(inside)
    both = (case.elements(each[tile : tile + 1])[0][place] for each in (gpu, cpu))
    return Mismatch(
        case,
        int(np.bitwise_count(wrong).sum()),
        int(np.count_nonzero(elements)),
        tile,
        place,
        *map(int, both),
    )
