"""Compares the package with the GPU, instruction by instruction.

Every instruction of the GPU that is present runs on inputs of every kind (see
:mod:`fragmenta.inspect.evidence.inputs`), and the package computes the same: all bits
of D are compared.  The first difference comes with its inputs, as a program to run.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import (
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from itertools import islice
from multiprocessing import get_context

from fragmenta import __version__
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.progress import Progress
from fragmenta.cuda.tools import device
from fragmenta.cuda.tools.device import GPU, LoadedCode
from fragmenta.cuda.tools.launch import Arrays
from fragmenta.errors import BadCall, ShapeError, UnsupportedTarget, nearest, one_of
from fragmenta.inspect.evidence.case import Answer, Mismatch, compare, machine_code
from fragmenta.inspect.evidence.registers import RegisterCase
from fragmenta.inspect.evidence.report import First, Outcome, VerificationReport
from fragmenta.inspect.evidence.variants import Variant, variants
from fragmenta.inspect.evidence.warpgroup import WarpgroupCase
from fragmenta.reference.isa.families import IN_REGISTERS, catalogue, check_multiplies
from fragmenta.reference.isa.instruction import Instruction

Portion = RegisterCase | WarpgroupCase
"""Some tiles of one instruction, which multiplies."""

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


# ── what is tried ───────────────────────────────────────────────────────────


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
        if op.tensor_memory:
            raise BadCall(
                f"{op} is not verified: verified are {one_of(IN_REGISTERS, 'and')}; a "
                "kernel with it is, with kernel.verify on a GPU that has it"
            )
        if not op.supported_on(target):
            raise UnsupportedTarget(f"{op} needs {op.requires}; this is {target}")
    wanted = list(families)
    for family in wanted:
        if family not in IN_REGISTERS:
            raise BadCall(
                f"no family {family}{nearest(family, IN_REGISTERS)}; verified are "
                f"{one_of(IN_REGISTERS, 'and')}"
            )
    if given and not wanted:
        return given
    found = [
        op
        for family in wanted or IN_REGISTERS
        for op in catalogue(family)
        if op.supported_on(target)
    ]
    if not found:
        raise UnsupportedTarget(f"{target} has no {one_of(wanted)}")
    return [*given, *found]


def portions(
    op: Instruction, tiles: int | None = None, seed: int = SEED, turn: int = 0
) -> list[Portion]:
    """The cases of one instruction: this number of tiles, or enough for the goal.

    >>> import fragmenta as fm
    >>> found = portions(fm.mma("m16n8k16", a="f16", d="f32"))
    >>> sum(each.tiles for each in found) * 16 * 8 >= 1_000_000
    True
    """
    ways: Sequence[Variant | int | None]
    ways = list(_variants(op, turn)) if op.warpgroup else op.selectors or (None,)
    per_tile = op.shape.m * op.shape.n
    goal = GOAL if op.types["a"].kind == "float" else EXACT_GOAL
    each = -(-(tiles or -(-goal // per_tile)) // len(ways))
    most = max(8, PORTION // _largest(op))
    found: list[Portion] = []
    for way in ways:
        for first in range(0, each, most):
            count, number = min(most, each - first), seed + len(found)
            if isinstance(way, Variant):
                found.append(WarpgroupCase(op, way, count, number))
            else:
                found.append(RegisterCase(op, way, count, number))
    return found


def _largest(op: Instruction) -> int:
    """Elements that one tile takes, the image of shared memory included."""
    m, n, k = op.shape
    if op.warpgroup:
        spans = 128 * 8 // op.types["b"].bits  # a row may take a whole swizzle span
        return (m + n + 32) * max(k, spans)
    return max(m, n) * max(n, k)


def _variants(op: Instruction, turn: int) -> Iterator[Variant]:
    """Some ways to run a ``wgmma``, others for every turn; signs alternate."""
    every = variants(op)
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
) -> VerificationReport:
    """Compare the GPU with ``execute``, by default for all of its instructions.

    ``tiles`` is how many tiles each instruction is tried on, by default enough
    for a million elements of D of a floating-point instruction.  More ``jobs``
    than one are processes of their own, which a script must allow for: what
    it does belongs under ``if __name__ == "__main__"``.

    >>> import fragmenta as fm
    >>> op = fm.mma("m16n8k16", a="f16", d="f32")
    >>> try:
    ...     found = verify(instructions=[op], tiles=80).differing
    ... except fm.errors.NoDevice:
    ...     found = []
    >>> found
    []
    """
    chip = gpu or device.present()
    if tiles is not None and tiles < 1:
        raise ShapeError(f"an instruction is tried on 1 tile or more; given {tiles}")
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
    return VerificationReport(made, seed, time.monotonic() - started, outcomes)


@dataclass(frozen=True)
class PreparedPortion:
    """Inputs and expected answer of a portion; the first has the machine code."""

    portion: Portion
    inputs: Arrays
    expected: Answer
    cubin: bytes | None


def _prepare(
    portion: Portion, target: str, assembled: Sequence[Portion]
) -> PreparedPortion:
    """The part that needs no GPU, which takes most of the time."""
    cubin = machine_code(assembled, target) if assembled else None
    inputs = portion.inputs()
    return PreparedPortion(portion, inputs, portion.expect(inputs, target), cubin)


def _outcome(chip: GPU, op: Instruction, ready: Iterable[PreparedPortion]) -> Outcome:
    """Run all portions of an instruction and add up."""
    types = " ".join(f"{name} {of}" for name, of in op.types.items())
    total = Outcome(str(op), op.family, types, 0, 0)
    module: LoadedCode | None = None
    for each in ready:
        if each.cubin is not None:
            module = chip.load(each.cubin)
        assert module is not None  # the first one has the machine code
        d = each.portion.ask(chip, module, each.inputs)
        total = replace(
            total,
            trials=total.trials + len(d),
            elements=total.elements + len(d) * op.shape.m * op.shape.n,
        )
        found = compare(each.portion, d, each.expected)
        if found is not None:
            total = replace(
                total,
                differing_bits=total.differing_bits + found.bits,
                differing_elements=total.differing_elements + found.elements,
                first=total.first or _first(each, found, chip.target),
            )
    return total


def _first(each: PreparedPortion, found: Mismatch, target: str) -> First:
    at = ", ".join(map(str, found.place))
    program = each.portion.program(each.inputs, found, target)
    return First(f"D[{at}]", f"{found.gpu:#x}", f"{found.cpu:#x}", program)


@contextmanager
def _ahead(
    work: Iterable[tuple[Portion, str, tuple[Portion, ...]]], jobs: int
) -> Iterator[Iterator[PreparedPortion]]:
    """Prepare portions in order, some of them ahead of their use."""
    pool: Executor
    if jobs > 1:
        # A process that has used a GPU must not be forked.
        pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    else:
        pool = ThreadPoolExecutor(1)

    def results() -> Iterator[PreparedPortion]:
        waiting: deque[Future[PreparedPortion]] = deque()
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
