"""Measures the rate at which the GPU issues an instruction.

A kernel that repeats the instruction (:mod:`fragmenta.inspect.evidence.bench`) runs on
all multiprocessors at once.  Rates count the full k of a sparse instruction, as
datasheets do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from statistics import median

import numpy as np

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.progress import Progress
from fragmenta.cuda.tools import device, launch
from fragmenta.cuda.tools.device import GPU, LoadedCode
from fragmenta.errors import Error
from fragmenta.inspect.evidence.bench import InstructionLoop, bench
from fragmenta.reference.isa.families import catalogue
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.table import read

RUNS = 31
SECONDS = 3e-3
"""The approximate seconds of one run."""

# Tera-operations a second from the data sheets, with sparsity where there is
# any: a dense instruction has half of it.  Names are the driver's.
DATASHEET = """
gpu              | tf32 | f16 bf16 | e4m3 e5m2 | s8 u8 | s4 u4 | f64
H200 NVL         | 835  | 1671     | 3341      | 3341  |       | 60
H200             | 989  | 1979     | 3958      | 3958  |       | 67
H100 NVL         | 835  | 1671     | 3341      | 3341  |       | 60
H100 PCIe        | 756  | 1513     | 3026      | 3026  |       | 51
H100 80GB HBM3   | 989  | 1979     | 3958      | 3958  |       | 67
A100             | 312  | 624      |           | 1248  | 2496  | 19.5
"""


# ── the measurement ─────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Rate:
    """Operations a second of one instruction, or a note why there are none."""

    instruction: str
    family: str
    rate: float | None
    datasheet: float | None
    note: str = ""

    @property
    def share(self) -> float | None:
        """The share of the datasheet's figure."""
        if self.rate is None or self.datasheet is None:
            return None
        return self.rate / self.datasheet


def throughput(
    ops: Iterable[Instruction] | None = None,
    gpu: GPU | None = None,
    *,
    runs: int = RUNS,
    progress: Progress = lambda _: None,
) -> list[Rate]:
    """Measure instructions, by default one for each family and type.

    >>> import fragmenta as fm
    >>> try:
    ...     found = throughput([fm.mma("m16n8k16", a="f16", d="f32")], runs=3)
    ...     fast = found[0].rate > 1e12
    ... except fm.errors.NoDevice:
    ...     fast = True
    >>> fast
    True
    """
    chip = gpu or device.present()
    listed = list(representative(chip.target) if ops is None else ops)
    found = []
    for number, op in enumerate(listed):
        found.append(measure(chip, op, runs))
        progress((number + 1) / len(listed))
    return found


def measure(gpu: GPU, op: Instruction, runs: int = RUNS) -> Rate:
    """The median rate of some runs, each long enough to be timed well."""
    nominal = datasheet(gpu.name, op)
    if not op.supported_on(gpu.target):
        note = f"needs {op.requires}; this is {gpu.target}"
        return Rate(str(op), op.family, None, nominal, note)
    try:
        made = bench(op, gpu.target)
    except Error as why:
        return Rate(str(op), op.family, None, nominal, str(why))
    module = launch.load(gpu, launch.source([made], gpu.target))
    rounds = 32
    seconds = min(_seconds(gpu, module, made, rounds, 3))
    rounds = max(rounds, round(rounds * SECONDS / seconds))
    seconds = median(_seconds(gpu, module, made, rounds, runs + 2)[2:])
    m, n, k = op.shape
    count = 2 * m * n * k * made.per_round * rounds * gpu.processors
    expanded = op.expanded_to(gpu.target)
    note = f"expanded to {expanded}" if expanded else ""
    return Rate(str(op), op.family, count / seconds, nominal, note)


def _seconds(
    gpu: GPU, module: LoadedCode, made: InstructionLoop, rounds: int, runs: int
) -> list[float]:
    arrays = {**made.inputs(), "rounds": np.array([rounds], np.uint32)}
    given = [arrays[name] for name in made.parameters]
    grid, output = gpu.processors, made.output()
    return gpu.time(module, made.name, grid, made.threads, given, output, runs)


def datasheet(gpu: str, op: Instruction) -> float | None:
    """Operations a second in the GPU's datasheet; None if it has no figure.

    >>> import fragmenta as fm
    >>> datasheet("NVIDIA H200", fm.mma("m16n8k16", a="f16", d="f32"))
    989500000000000.0
    >>> datasheet("NVIDIA H200", fm.mma("m16n8k32", a="f16", d="f32", sp="sp"))
    1979000000000000.0
    """
    for line in read(DATASHEET):
        if not re.search(rf"\b{re.escape(line['gpu'])}\b", gpu):
            continue
        for types, value in line.items():
            if str(op.types.get("a")) in types.split() and value:
                # f64 is not sparse, so its figure is the dense one
                half = not op.sparse and types != "f64"
                return float(value) * 1e12 / (2 if half else 1)
    return None


def representative(target: str) -> list[Instruction]:
    """The largest instruction of each family and types that a target has.

    >>> [str(op.shape) for op in representative("sm_80")][-3:]
    ['m16n8k64', 'm16n8k128', 'm16n8k128']
    """
    found: dict[tuple[str, ...], Instruction] = {}
    for family in ("mma", "mma.sp", "wgmma", "wgmma.sp"):
        for op in catalogue(family):
            types = [str(of) for of in op.types.values()]
            if not op.supported_on(target) or op.satfinite or op.values.get("rounding"):
                continue
            if (
                op.types["a"] != op.types["b"]
                or op.types.get("c", op.types["d"]) != (op.types["d"])
            ):
                continue
            key = (family, *types, op.kind or "", op.values.get("bitop", ""))
            best = found.get(key)
            if best is None or _size(op) >= _size(best):
                found[key] = op
    return list(found.values())


def _size(op: Instruction) -> int:
    m, n, k = op.shape
    return m * n * k


# ── the report ──────────────────────────────────────────────────────────────


def to_text(rates: Sequence[Rate]) -> str:
    """A table: what was measured, what the datasheet says, and the share of it.

    >>> print(to_text([Rate("mma …", "mma", 6.1e14, 9.895e14)]))
     TOP/s  datasheet  share  instruction
     610.0      989.5    62%  mma …
    """
    lines = [" TOP/s  datasheet  share  instruction"]
    for each in rates:
        rate, nominal = (
            "-" if value is None else f"{value / 1e12:.1f}"
            for value in (each.rate, each.datasheet)
        )
        share = "" if each.share is None else f"{each.share:.0%}"
        note = f"  ({each.note})" if each.note else ""
        lines.append(f"{rate:>6}  {nominal:>9}  {share:>5}  {each.instruction}{note}")
    return "\n".join(lines)


def to_json(rates: Sequence[Rate], made: dict[str, str]) -> dict[str, object]:
    """The same for a program, in operations a second."""
    return {
        "made": made,
        "rates": [{**asdict(each), "share": each.share} for each in rates],
    }
