"""Does the package compute what the GPU computes?

Every instruction of the GPU that is present runs on inputs of every kind (see
:mod:`fragmenta.evidence.inputs`), and the package computes the same: all bits of D
are compared.  The first difference comes with its inputs, as a program to run.
"""

from __future__ import annotations

import textwrap
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import (
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from itertools import islice
from multiprocessing import get_context
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fragmenta import __version__
from fragmenta.cuda.tools import assembler, device, launch
from fragmenta.cuda.tools.device import GPU
from fragmenta.cuda.tools.launch import Arrays, Kernel
from fragmenta.errors import Error, UnsupportedTarget, nearest, one_of
from fragmenta.evidence import inputs, wgmma_inputs
from fragmenta.evidence.record import (
    Mismatch,
    compare,
    kernel_of,
    on_cpu,
    shared_on_cpu,
    shared_operands,
)
from fragmenta.evidence.report import First, Outcome, Report
from fragmenta.evidence.wgmma_inputs import Variant
from fragmenta.execution.mma import stored_columns
from fragmenta.isa.families import catalogue
from fragmenta.isa.instruction import MULTIPLYING, Instruction, check_multiplies
from fragmenta.progress import Progress
from fragmenta.shared.tiles import read_tile

GOAL = 1 << 20
"""Elements of D for a floating-point instruction."""
EXACT_GOAL = 1 << 17
"""Elements of D for integers and bits, whose arithmetic leaves no choice."""
PORTION = 1 << 21
"""Elements of an operand that are made at a time: what bounds the memory."""
VARIANTS = 4
"""Ways to run one ``wgmma`` (where A is, its immediates); its neighbours, of
another n, take the next ones."""
SEED = 1


class Portion(Protocol):
    """Some tiles of one instruction: its kernel, operands and expected result."""

    @property
    def kernel(self) -> Kernel:
        """What the GPU runs."""

    @property
    def tiles(self) -> int:
        """How many tiles are asked for."""

    def operands(self) -> Any:
        """The inputs, made anew from the seed."""

    def arrays(self, operands: Any) -> Arrays:
        """The inputs as the kernel takes them."""

    def expect(self, operands: Any, target: str) -> NDArray[Any]:
        """The registers of D that the package computes."""

    def program(self, operands: Any, found: Mismatch, target: str) -> str:
        """Python that repeats one difference."""


# ── what is asked ───────────────────────────────────────────────────────────


@dataclass(frozen=True)
class InRegisters:
    """Tiles of ``mma``, ``mma.sp`` or ``wmma.mma``."""

    op: Instruction
    selector: int | None
    tiles: int
    seed: int

    @property
    def kernel(self) -> Kernel:
        """One for each selector."""
        return kernel_of(self.op, self.selector)

    def operands(self) -> inputs.Trial:
        """Registers, as many tiles of each kind."""
        return inputs.trial(self.op, self.tiles, self.seed, self.selector)

    def arrays(self, operands: inputs.Trial) -> Arrays:
        """The registers by name."""
        return operands.registers

    def expect(self, operands: inputs.Trial, target: str) -> NDArray[Any]:
        """By ``execute``."""
        return on_cpu(self.op, operands, target)

    def program(self, operands: inputs.Trial, found: Mismatch, target: str) -> str:
        """A program with the registers of the tile in it."""
        op = self.op
        one = {name: words[found.tile] for name, words in operands.registers.items()}
        selector = self.selector or 0
        index = stored_columns(op, one.get("metadata"), selector)
        fed = Fed(op.a.unpack_bits(one["a"]), op.b.unpack_bits(one["b"]), index)
        given = [f"{name}={name}" for name in one if name not in "abc"]
        if self.selector is not None:
            given.append(f"selector={selector}")
        lines = [*_PACKED, "", f'op = fm.instruction("{op}")']
        for name, words in one.items():
            lines += _written(name, words)
        lines += [f"operands, options = (a, b, c), dict({', '.join(given)})"]
        return _program(op, lines, fed, op.c.unpack_bits(one["c"]), found, target)


@dataclass(frozen=True)
class InSharedMemory:
    """Tiles of ``wgmma`` or ``wgmma.sp``, all run in one way."""

    op: Instruction
    variant: Variant
    tiles: int
    seed: int

    @property
    def kernel(self) -> Kernel:
        """One for each variant; every trial of one has an image of one size."""
        one = wgmma_inputs.trial(self.op, self.variant, 1, self.seed)
        chosen = tuple(self.variant.immediates(self.op).items())
        size = one.image.shape[-1]
        return Kernel(self.op, chosen, self.variant.a_registers, size)

    def operands(self) -> wgmma_inputs.Trial:
        """Registers, descriptors and images."""
        return wgmma_inputs.trial(self.op, self.variant, self.tiles, self.seed)

    def arrays(self, operands: wgmma_inputs.Trial) -> Arrays:
        """The operands by the names of the kernel's parameters."""
        return operands.arrays()

    def expect(self, operands: wgmma_inputs.Trial, target: str) -> NDArray[Any]:
        """By ``execute``."""
        return shared_on_cpu(self.op, operands, target)

    def program(
        self, operands: wgmma_inputs.Trial, found: Mismatch, target: str
    ) -> str:
        """A program that makes the tile again: its image is too long to print."""
        op, variant = self.op, self.variant
        arrays = {name: x[found.tile] for name, x in operands.arrays().items()}
        image = arrays["image"]
        a = (
            op.a.unpack_bits(arrays["a"])
            if variant.a_registers
            else read_tile(image, arrays["a"], op, "A", major=variant.major("A"))
        )
        b = read_tile(image, arrays["b"], op, "B", major=variant.major("B"))
        index = stored_columns(op, arrays.get("metadata"), variant.selector or 0)
        c = op.c.unpack_bits(arrays["c"]) * arrays["scale_d"].astype(arrays["c"].dtype)
        lines = [
            "import fragmenta as fm",
            "from fragmenta.evidence.verify import Variant, wgmma_tile",
            "",
            f'op = fm.instruction("{op}")',
            *textwrap.wrap(f"variant = {variant}", 84, subsequent_indent="    "),
            "operands, options = wgmma_tile(",
            f"    op, variant, tiles={self.tiles}, seed={self.seed}, tile={found.tile}",
            ")",
        ]
        return _program(op, lines, Fed(a, b, index), c, found, target)


def wgmma_tile(
    op: Instruction, variant: Variant, *, tiles: int, seed: int, tile: int
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """One tile of a trial, as ``execute`` and ``on_device`` take it.

    >>> import fragmenta as fm
    >>> op = fm.wgmma("m64n8k32", a="s8")
    >>> operands, options = wgmma_tile(op, Variant(True), tiles=8, seed=1, tile=3)
    >>> op.execute(*operands, **options).shape
    (128, 4)
    """
    trial = wgmma_inputs.trial(op, variant, tiles, seed)
    operands, options = shared_operands(op, trial)
    one = {
        name: value[tile] if isinstance(value, np.ndarray) else value
        for name, value in options.items()
    }
    return tuple(each[tile] for each in operands), one


# ── a program for one difference ────────────────────────────────────────────

_PACKED = [
    "import numpy as np",
    "import fragmenta as fm",
    "",
    "",
    "def words(text, bits):",
    '    """Registers of 32 lanes, in hexadecimal."""',
    "    found = [int(word, 16) for word in text.split()]",
    '    return np.array(found, f"uint{bits}").reshape(32, -1)',
    "",
]


@dataclass(frozen=True)
class Fed:
    """What a tile is made of: raw bits of A as stored and of B, A's columns."""

    a: NDArray[Any]
    b: NDArray[Any]
    index: NDArray[Any] | None


def _written(name: str, words: NDArray[Any]) -> list[str]:
    """An assignment of registers, four lanes to a line or fewer."""
    bits = 8 * words.itemsize
    digits = [f"{int(word):0{bits // 4}x}" for word in words.ravel()]
    lines = textwrap.wrap(" ".join(digits), 84)
    return [f'{name} = words("""', *lines, f'""", {bits})']


def _program(
    op: Instruction,
    lines: list[str],
    fed: Fed,
    c: NDArray[Any],
    found: Mismatch,
    target: str,
) -> str:
    """The program: what feeds the element, the operands, both computations."""
    *matrix, row, col = found.place  # some instructions do several at once
    at = ", ".join(map(str, found.place))
    a, b = fed.a[tuple(matrix)][row], fed.b[tuple(matrix)][:, col]
    said = [
        f"# {op}",
        f"# D[{at}] is made of these raw bits:",
        *_comment("A", a),
        *([] if fed.index is None else _comment("in columns", fed.index[row], "d")),
        *_comment("B", b),
        *_comment("C", c[found.place].reshape(1)),
    ]
    asked = [
        f'cpu = op.execute(*operands, **options, target="{target}")',
        f'print("CPU", hex(op.d.unpack_bits(cpu)[{at}]))  # {found.cpu:#x}',
        "gpu = op.on_device(*operands, **options)",
        f'print("GPU", hex(op.d.unpack_bits(gpu)[{at}]))  # {found.gpu:#x}',
    ]
    return "\n".join([*said, *lines, *asked]) + "\n"


def _comment(what: str, bits: NDArray[Any], form: str = "x") -> list[str]:
    text = f"{what}: " + " ".join(f"{int(each):{form}}" for each in bits)
    return textwrap.wrap(text, 84, initial_indent="#   ", subsequent_indent="#     ")


# ── the plan ────────────────────────────────────────────────────────────────


def chosen(
    target: str,
    families: Iterable[str] = (),
    instructions: Iterable[Instruction] = (),
) -> list[Instruction]:
    """What to verify on a target: everything, some families or these.

    >>> len(chosen("sm_90a", ["mma", "mma.sp"]))
    194
    """
    given = list(instructions)
    for op in given:
        check_multiplies(op)
        if not op.supported_on(target):
            raise UnsupportedTarget(f"{op} needs {op.requires}; this is {target}")
    wanted = list(families)
    for family in wanted:
        if family not in MULTIPLYING:
            raise Error(
                f"no family {family}{nearest(family, MULTIPLYING)}; verified are "
                f"{one_of(MULTIPLYING, 'and')}"
            )
    if given and not wanted:
        return given
    found = [
        op
        for family in wanted or MULTIPLYING
        for op in catalogue(family)
        if op.supported_on(target)
    ]
    if not found:
        raise UnsupportedTarget(f"{target} has no {one_of(wanted)}")
    return [*given, *found]


def portions(
    op: Instruction, tiles: int | None = None, seed: int = SEED, turn: int = 0
) -> list[Portion]:
    """What one instruction is tried on: so many tiles, or enough of them.

    >>> import fragmenta as fm
    >>> found = portions(fm.mma("m16n8k16", a="f16", d="f32"))
    >>> sum(each.tiles for each in found) * 16 * 8 >= 1_000_000
    True
    """
    ways: list[Any]
    if op.family.startswith("wgmma"):
        ways = list(_variants(op, turn))
    else:
        ways = list(op.selectors or (None,))
    per_tile = op.shape.m * op.shape.n
    goal = GOAL if op.types["a"].kind == "float" else EXACT_GOAL
    each = -(-(tiles or -(-goal // per_tile)) // len(ways))
    most = max(8, PORTION // _largest(op))
    found: list[Portion] = []
    for way in ways:
        for first in range(0, each, most):
            count, number = min(most, each - first), seed + len(found)
            if isinstance(way, Variant):
                found.append(InSharedMemory(op, way, count, number))
            else:
                found.append(InRegisters(op, way, count, number))
    return found


def _largest(op: Instruction) -> int:
    """Elements that one tile takes, the image of shared memory included."""
    m, n, k = op.shape
    if op.family.startswith("wgmma"):
        spans = 128 * 8 // op.types["b"].bits  # a row may take a whole swizzle span
        return (m + n + 32) * max(k, spans)
    return max(m, n) * max(n, k)


def _variants(op: Instruction, turn: int) -> Iterator[Variant]:
    """Some ways to run a ``wgmma``, others for every turn; signs alternate."""
    every = wgmma_inputs.variants(op)
    for step in range(min(VARIANTS, len(every))):
        number = turn * VARIANTS + step
        # A stride that visits all: every[] has 1, 2, 4, 6 or 12 members.
        way = every[(turn + step * max(1, len(every) // VARIANTS)) % len(every)]
        yield replace(
            way,
            scale_a=-1 if number & 1 else 1,
            scale_b=-1 if (number // 2 + turn) & 1 else 1,
            turn=number,
        )


# ── the run ─────────────────────────────────────────────────────────────────


def verify(
    gpu: GPU | None = None,
    *,
    families: Iterable[str] = (),
    instructions: Iterable[Instruction] = (),
    tiles: int | None = None,
    seed: int = SEED,
    jobs: int = 1,
    progress: Progress = lambda _: None,
) -> Report:
    """Compare the GPU with ``execute``; all that it has unless told otherwise.

    ``tiles`` is how many tiles each instruction is tried on, by default enough
    for a million elements of D of a floating-point instruction.  More ``jobs``
    than one are processes of their own, which a script must allow for: what
    it does belongs under ``if __name__ == "__main__"``.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> try:
    ...     found = verify(instructions=[op], tiles=80).differing
    ... except fm.NoDevice:
    ...     found = []
    >>> found
    []
    """
    chip = gpu or device.present()
    if tiles is not None and tiles < 1:
        raise Error(f"an instruction is tried on 1 tile or more; given {tiles}")
    ops = chosen(chip.target, families, instructions)
    started = time.monotonic()
    plan = [portions(op, tiles, seed, turn) for turn, op in enumerate(ops)]
    work = (
        (each, chip.target, () if number else tuple(listed))
        for listed in plan
        for number, each in enumerate(listed)
    )
    outcomes = []
    with _ahead(work, jobs) as ready:
        for op, listed in zip(ops, plan, strict=True):
            outcomes.append(_outcome(chip, op, islice(ready, len(listed))))
            progress(len(outcomes) / len(ops))
    made = {
        "fragmenta": __version__,
        **chip.versions(),
        "date": date.today().isoformat(),
    }
    return Report(made, seed, time.monotonic() - started, outcomes)


@dataclass(frozen=True)
class Prepared:
    """All that one portion needs; the machine code comes with the first."""

    portion: Portion
    kernel: Kernel
    operands: Any
    expected: NDArray[Any]
    cubin: bytes | None


Work = tuple[Portion, str, tuple[Portion, ...]]


def _prepare(portion: Portion, target: str, assembled: Iterable[Portion]) -> Prepared:
    """The part that needs no GPU, which takes most of the time."""
    kernels = {each.kernel.name: each.kernel for each in assembled}
    cubin = None
    if kernels:
        text = launch.source(list(kernels.values()), target)
        cubin = assembler.assemble(text, target)
    operands = portion.operands()
    expected = portion.expect(operands, target)
    return Prepared(portion, portion.kernel, operands, expected, cubin)


def _outcome(chip: GPU, op: Instruction, ready: Iterable[Prepared]) -> Outcome:
    """Run all portions of an instruction and add up."""
    types = " ".join(f"{name} {of}" for name, of in op.types.items())
    total = Outcome(str(op), op.family, types, 0, 0)
    module: Any = None
    for each in ready:
        if each.cubin is not None:
            module = chip.load(each.cubin)
        arrays = each.portion.arrays(each.operands)
        d = each.kernel.run(chip, module, arrays)
        total = replace(
            total,
            trials=total.trials + len(d),
            elements=total.elements + len(d) * op.shape.m * op.shape.n,
        )
        found = compare(op, d, each.expected)
        if found is not None:
            total = replace(
                total,
                differing_bits=total.differing_bits + found.bits,
                differing_elements=total.differing_elements + found.elements,
                first=total.first or _first(each, found, chip.target),
            )
    return total


def _first(each: Prepared, found: Mismatch, target: str) -> First:
    at = ", ".join(map(str, found.place))
    program = each.portion.program(each.operands, found, target)
    return First(f"D[{at}]", f"{found.gpu:#x}", f"{found.cpu:#x}", program)


@contextmanager
def _ahead(work: Iterable[Work], jobs: int) -> Iterator[Iterator[Prepared]]:
    """What is prepared, in the order of the work; some of it beforehand."""
    pool: Executor
    if jobs > 1:
        # A process that has talked to a GPU must not be forked.
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    else:
        pool = ThreadPoolExecutor(1)

    def results() -> Iterator[Prepared]:
        waiting: deque[Future[Prepared]] = deque()
        for each in work:
            waiting.append(pool.submit(_prepare, *each))
            if len(waiting) > jobs + 1:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    try:
        yield results()
    finally:
        pool.shutdown(cancel_futures=True)
