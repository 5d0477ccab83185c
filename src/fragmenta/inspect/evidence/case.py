"""Cases: a kernel, its inputs, and the answers of a GPU and of the package.

A :class:`Case` is a kernel, its inputs, and the answer that the package computes
from the same inputs.  Its ``kind`` names the module that made it.  The
inputs follow from the case alone, so a recording needs to keep only the case, a
digest of the inputs and the answer.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.cuda.tools import assembler, launch
from fragmenta.cuda.tools.device import GPU, LoadedCode
from fragmenta.cuda.tools.launch import Arrays, TileKernel
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.target import Version

Answer = NDArray[np.unsignedinteger]
AnswerForm = tuple[tuple[int, ...], np.dtype[np.unsignedinteger]]
"""The shape and the type of an answer."""


class CaseOptions(TypedDict, total=False):
    """What determines a case besides instruction, tiles and seed."""

    selector: int | None
    variant: dict[str, object] | int | None


class KernelCase(ABC):
    """One kernel and its inputs."""

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the kernel; tasks that share a kernel share its name."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """The threads of one block."""

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
        """Memory for the answer; poison marks what is left unwritten."""
        return launch.poisoned(*self.form)


class Case(KernelCase):
    """A task whose answer the package computes, too."""

    kind: ClassVar[str]
    tiles: int
    seed: int

    @property
    @abstractmethod
    def instruction(self) -> str:
        """The whole name of the instruction."""

    @property
    def options(self) -> CaseOptions:
        """What else determines the case, as a recording keeps it."""
        return {}

    @property
    def salt(self) -> str:
        """The text that enters the digest before the inputs."""
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
        """A short hash of the inputs, which detects a change of how they are made."""
        total = hashlib.sha256(self.salt.encode())
        for name in sorted(inputs):
            total.update(np.ascontiguousarray(inputs[name]).tobytes())
        return total.hexdigest()[:16]

    def ask(self, gpu: GPU, module: LoadedCode, inputs: Arrays) -> Answer:
        """What a GPU answers, with a module that has the kernel loaded."""
        return launch.run(gpu, module, self, inputs, self.output())


class TileCase(Case):
    """A case of one instruction that computes one tile in each block."""

    op: Instruction

    @property
    @abstractmethod
    def kernel(self) -> TileKernel:
        """The instruction with its immediates."""

    @property
    def count(self) -> int:
        """The real number of tiles."""
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
        """The PTX version of the instruction."""
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


def machine_code(tasks: Iterable[KernelCase], target: str) -> bytes:
    """The kernels of tasks, assembled for a target; this needs no GPU."""
    return assembler.assemble(launch.source(tasks, target), target)


# ── the comparison ──────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Mismatch:
    """How many elements of two answers differ, and the first that does."""

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
    >>> from fragmenta.inspect.evidence.registers import RegisterCase
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
