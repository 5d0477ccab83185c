"""What did a real GPU answer?

A recording holds the results of one family of instructions on one GPU, with
the versions that made them.  The inputs are not stored: they are made anew
from the seed and checked by a digest.  ``replay`` computes the same on the
CPU and counts the bits that differ.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.cuda import assembler, ptx
from fragmenta.cuda.device import GPU
from fragmenta.cuda.inputs import Trial, trials
from fragmenta.errors import Error
from fragmenta.execute import execute
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.parse import catalogue, instruction

#: Bits that no kernel of ours writes by chance: shows what was left unwritten.
POISON = 0xDEADBEEF


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

    def result(self, case: Case) -> NDArray[Any]:
        """The registers of D that the GPU answered."""
        op = instruction(case.instruction)
        kind = f"uint{op.d.register_bits}"
        count = int(np.prod(case.shape)) * np.dtype(kind).itemsize // 4
        words = self.words[case.start : case.start + count]
        return np.ascontiguousarray(words).view(kind).reshape(case.shape)

    def save(self, path: Path) -> None:
        """Write one compressed file."""
        about = {"made": self.made, "cases": [asdict(case) for case in self.cases]}
        text = np.frombuffer(json.dumps(about).encode(), np.uint8)
        np.savez_compressed(path, about=text, words=self.words)

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Read what :meth:`save` wrote."""
        with np.load(path) as data:
            about = json.loads(data["about"].tobytes())
            words = data["words"]
        cases = [Case(**{**c, "shape": tuple(c["shape"])}) for c in about["cases"]]
        return cls(about["made"], cases, words)


def record(
    gpu: GPU,
    family: str,
    *,
    tiles: int,
    seed: int,
    progress: Callable[[str], None] = lambda _: None,
) -> Recording:
    """Run every ``mma`` or ``mma.sp`` that the GPU supports and keep the results."""
    ops = [op for op in catalogue(family) if op.supported_on(gpu.target)]
    work = [(op, each) for op in ops for each in trials(op, tiles, seed)]
    module = gpu.load(_assemble(work, gpu.target))
    cases: list[Case] = []
    results: list[NDArray[np.uint32]] = []
    start = 0
    for number, (op, each) in enumerate(work):
        progress(str(op))
        d = run_one(gpu, module, f"case{number}", op, each)
        words = d.reshape(-1).view(np.uint32)
        cases.append(
            Case(str(op), each.selector, tiles, seed, each.digest(), start, d.shape)
        )
        results.append(words)
        start += words.size
    made = {**gpu.versions(), "date": date.today().isoformat()}
    return Recording(made, cases, np.concatenate(results))


def _assemble(work: list[tuple[Instruction, Trial]], target: str) -> bytes:
    """One module with a kernel for each case."""
    entries = []
    for number, (op, each) in enumerate(work):
        chosen = {} if each.selector is None else {"selector": each.selector}
        entries.append(ptx.entry(op, f"case{number}", **chosen))
    version = max(op.requires.ptx_on(target) for op, _ in work)
    return assembler.assemble(ptx.header(target, version) + "".join(entries), target)


def run_one(
    gpu: GPU, module: Any, name: str, op: Instruction, each: Trial
) -> NDArray[Any]:
    """One kernel on one trial: the registers of D."""
    order = [o.name for o in op.operands if o.ptx != "immediate" and o.name != "d"]
    inputs = [each.registers[operand] for operand in order]
    tiles = inputs[0].shape[0]
    shape = (tiles, op.d.lanes, op.d.registers)
    output = np.full(shape, POISON, f"uint{op.d.register_bits}")
    return gpu.run(module, name, tiles, op.d.lanes, inputs, output)


@dataclass(frozen=True)
class Difference:
    """How one case differs from the recording."""

    case: Case
    bits: int
    elements: int
    first: str


def on_cpu(op: Instruction, each: Trial, target: str) -> NDArray[Any]:
    """The registers of D that the package computes."""
    a, b, c = (each.registers[name] for name in "abc")
    if each.selector is None:
        return execute(op, a, b, c, target=target)
    words = each.registers["metadata"]
    return execute(op, a, b, c, metadata=words, selector=each.selector, target=target)


def replay(recording: Recording) -> Iterator[tuple[Case, Difference | None]]:
    """Compute each case on the CPU and compare every bit."""
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
        yield case, _difference(case, op, each, recording.result(case), d)


def _difference(
    case: Case, op: Instruction, each: Trial, gpu: NDArray[Any], cpu: NDArray[Any]
) -> Difference | None:
    wrong = gpu ^ cpu
    if not wrong.any():
        return None
    elements = op.d.unpack_bits(wrong)
    place = tuple(int(i) for i in np.argwhere(elements)[0])
    expected, found = (int(op.d.unpack_bits(x)[place]) for x in (gpu, cpu))
    inside = ", ".join(map(str, place[1:]))
    first = f"tile {place[0]} D[{inside}]: GPU {expected:#x}, CPU {found:#x}"
    bits = int(np.bitwise_count(wrong).sum())
    return Difference(case, bits, int(np.count_nonzero(elements)), first)
