"""What did a real GPU answer when it read shared memory?

Recordings of ``wgmma`` and of the moves, of the same kind as
:mod:`fragmenta.evidence.record` makes: the results and the versions that made
them, with inputs that are made anew from a seed.  :func:`observed_addresses`
asks a GPU the shortest question of all: from which address did you read?
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fragmenta.cuda.source import wgmma
from fragmenta.cuda.tools import assembler
from fragmenta.cuda.tools.device import GPU
from fragmenta.errors import Error
from fragmenta.evidence.record import POISON, Case, Difference, Recording
from fragmenta.evidence.validation import Form
from fragmenta.evidence.wgmma_inputs import (
    MOVE_BYTES,
    MoveTrial,
    Trial,
    Variant,
    check_variant,
    move_plan,
    move_trial,
    plan,
    trial,
)
from fragmenta.isa.instruction import Instruction
from fragmenta.isa.reading import instruction
from fragmenta.shared import moves
from fragmenta.shared.descriptor import Addresses, Descriptor

Planned = tuple[Instruction, Variant, int]
Progress = Callable[[str], None]


@dataclass(frozen=True)
class SharedCase(Case):
    """A case with its variant: where A is, and the immediates.

    The variant is empty for a move.
    """

    variant: dict[str, Any]


class SharedRecording(Recording):
    """A recording of :class:`SharedCase`."""

    case_type = SharedCase
    families = (("wgmma", "wgmma.sp"), ("ldmatrix", "stmatrix", "movmatrix"))

    def form(self, case: Case) -> Form:
        """The registers of D, or the image that an ``stmatrix`` left."""
        op = instruction(case.instruction)
        if op.family == "stmatrix":
            return (case.tiles, MOVE_BYTES), np.dtype(np.uint8)
        part = op.fragments["D"]
        return (case.tiles, part.lanes, part.registers), np.dtype(np.uint32)

    def check(self, case: Case) -> None:
        """The variant, too, must be one that the instruction has."""
        super().check(case)
        assert isinstance(case, SharedCase)
        op = instruction(case.instruction)
        if not op.family.startswith("wgmma"):
            if case.variant != {}:
                raise Error(f"{op.family} has no variants; given {case.variant!r:.40}")
            return
        check_variant(op, case.variant)
        if case.variant["selector"] != case.selector:
            raise Error(f"its selector is {case.selector}, and that of its variant not")


# ── recording ───────────────────────────────────────────────────────────────


def assemble_wgmma(cases: Sequence[Planned], seed: int, target: str) -> bytes:
    """One cubin with a kernel ``case0``, ``case1`` … for each case.

    It needs no GPU: it can be made beforehand, elsewhere.

    >>> assemble_wgmma(list(plan())[:1], seed=1, target="sm_90a")[1:4]
    b'ELF'
    """
    entries = []
    for number, (op, variant, tiles) in enumerate(cases):
        size = trial(op, variant, tiles, seed).image.shape[-1]
        entries.append(
            wgmma.entry(
                op,
                f"case{number}",
                image_bytes=size,
                a_registers=variant.a_registers,
                **variant.immediates(op),
            )
        )
    text = wgmma.module(entries, [op for op, _, _ in cases], target)
    return assembler.assemble(text, target)


def record_wgmma(
    gpu: GPU,
    *,
    seed: int,
    cases: Iterable[Planned] | None = None,
    cubin: bytes | None = None,
    progress: Progress = lambda _: None,
) -> SharedRecording:
    """Run the plan (or these cases of it) and keep the registers of D."""
    chosen = list(plan() if cases is None else cases)
    module = gpu.load(cubin or assemble_wgmma(chosen, seed, gpu.target))
    results = []
    for number, (op, variant, tiles) in enumerate(chosen):
        progress(str(op))
        each = trial(op, variant, tiles, seed)
        d = _run(gpu, module, f"case{number}", op, each, variant.a_registers)
        case = SharedCase(
            str(op), variant.selector, tiles, seed, each.digest(), 0, d.shape,
            asdict(variant),
        )  # fmt: skip
        results.append((case, d))
    return _recording(gpu, results)


def record_moves(
    gpu: GPU, *, tiles: int = 4, seed: int, progress: Progress = lambda _: None
) -> SharedRecording:
    """Run every move that the GPU has and keep what it loaded or stored."""
    ops = list(move_plan(gpu.target))
    entries = [
        wgmma.entry(op, f"case{number}", image_bytes=_image_bytes(op))
        for number, op in enumerate(ops)
    ]
    text = wgmma.module(entries, ops, gpu.target)
    module = gpu.load(assembler.assemble(text, gpu.target))
    results = []
    for number, op in enumerate(ops):
        progress(str(op))
        each = move_trial(op, tiles, seed)
        d = _run(gpu, module, f"case{number}", op, each)
        case = SharedCase(str(op), None, tiles, seed, each.digest(), 0, d.shape, {})
        results.append((case, d))
    return _recording(gpu, results)


def _image_bytes(op: Instruction) -> int:
    return 0 if op.family == "movmatrix" else MOVE_BYTES


def _run(
    gpu: GPU,
    module: Any,
    name: str,
    op: Instruction,
    each: Trial | MoveTrial,
    a_registers: bool = False,
) -> NDArray[Any]:
    """One kernel on one trial: what it writes to ``d``."""
    arrays = each.arrays()
    names = wgmma.parameters(op, a_registers=a_registers)
    inputs = [arrays[parameter] for parameter in names[1:]]
    tiles = len(inputs[0])
    if op.family == "stmatrix":
        output = np.full((tiles, MOVE_BYTES), POISON & 0xFF, np.uint8)
    else:
        part = op.fragments["D"]
        output = np.full((tiles, part.lanes, part.registers), POISON, np.uint32)
    block = wgmma.WARPGROUP if op.family.startswith("wgmma") else wgmma.WARP
    return gpu.run(module, name, tiles, block, inputs, output)


def _recording(
    gpu: GPU, results: Sequence[tuple[SharedCase, NDArray[Any]]]
) -> SharedRecording:
    cases: list[Case] = []
    words = []
    start = 0
    for case, d in results:
        flat = np.ascontiguousarray(d).reshape(-1).view(np.uint32)
        cases.append(SharedCase(**{**asdict(case), "start": start}))
        words.append(flat)
        start += flat.size
    made = {**gpu.versions(), "date": date.today().isoformat()}
    return SharedRecording(made, cases, np.concatenate(words))


# ── replaying ───────────────────────────────────────────────────────────────


def replay_wgmma(
    recording: Recording,
    execute: Callable[[Instruction, Trial, str], NDArray[Any]],
) -> Iterator[tuple[Case, Difference | None]]:
    """Compute each case on the CPU, by ``execute(op, trial, target)``.

    Yields each case with how the registers of D differ, None if not at all.
    """
    for case in recording.cases:
        assert isinstance(case, SharedCase)
        op = instruction(case.instruction)
        each = trial(op, Variant(**case.variant), case.tiles, case.seed)
        _same_inputs(case, each)
        d = execute(op, each, recording.made["target"])
        yield case, _difference(case, recording.result(case), d)


def replay_moves(
    recording: Recording,
) -> Iterator[tuple[Case, Difference | None]]:
    """Move everything again on the CPU, and compare every bit."""
    for case in recording.cases:
        op = instruction(case.instruction)
        each = move_trial(op, case.tiles, case.seed)
        _same_inputs(case, each)
        yield case, _difference(case, recording.result(case), _moved(op, each))


def _moved(op: Instruction, each: MoveTrial) -> NDArray[Any]:
    arrays = each.arrays()
    if op.family == "ldmatrix":
        return moves.ldmatrix(op, arrays["image"], arrays["address"])
    if op.family == "stmatrix":
        return moves.stmatrix(op, arrays["image"], arrays["address"], arrays["a"])
    return moves.movmatrix(op, arrays["a"])


def _same_inputs(case: Case, each: Trial | MoveTrial) -> None:
    if each.digest() != case.digest:
        raise Error(
            f"the inputs of {case.instruction} are not those that were recorded "
            f"({each.digest()}, not {case.digest})"
        )


def _difference(case: Case, gpu: NDArray[Any], cpu: NDArray[Any]) -> Difference | None:
    wrong = gpu ^ np.asarray(cpu).reshape(gpu.shape)
    if not wrong.any():
        return None
    op = instruction(case.instruction)
    found: tuple[Any, ...] = tuple(np.argwhere(wrong)[0].tolist())
    where = f"tile {found[0]}, index {list(found[1:])}"
    if "D" in op.fragments:
        bits = op.fragments["D"].unpack_bits(wrong)
        place = np.argwhere(bits)[0].tolist()
        where = f"tile {place[0]} D{place[1:]}"
        count = int((bits != 0).sum())
    else:
        count = int((wrong != 0).sum())
    first = f"{where}: GPU {int(gpu[found]):#x}, CPU {int(cpu[found]):#x}"
    return Difference(case, int(np.bitwise_count(wrong).sum()), count, first)


# ── asking for addresses ────────────────────────────────────────────────────

PROBE_BYTES = 48 * 1024
"""The image of :func:`observed_addresses`; longer than any start plus tile."""


def observed_addresses(gpu: GPU, descriptors: Sequence[Descriptor]) -> Addresses:
    """From which address the GPU reads each element (k, n) of a u8 B.

    For each descriptor (32, 8) addresses, those of B of ``m64n8k32``,
    K-major.  A picks out single elements, and the image holds the low byte of
    each address in one run and the high byte in another, so D *is* the
    address.  Base offsets are passed on as they are.
    """
    op = instruction("wgmma.mma_async.sync.aligned.m64n8k32.s32.u8.u8")
    pick = np.zeros((64, 32), np.uint8)
    pick[np.arange(32), np.arange(32)] = 1
    address = np.arange(PROBE_BYTES, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    words = np.repeat(np.array([d.encode() for d in descriptors], np.uint64), 2)
    tiles = len(words)
    variant = Variant(a_registers=True)
    each = Trial(
        variant,
        np.zeros((tiles, 128, op.d.registers), np.uint32),
        np.tile(op.a.pack(pick), (tiles, 1, 1)),
        words,
        None,
        np.zeros(tiles, np.uint32),
        np.tile(np.ascontiguousarray(address.T), (tiles // 2, 1)),
    )
    text = wgmma.entry(op, "probe", image_bytes=PROBE_BYTES, a_registers=True)
    cubin = assembler.assemble(wgmma.module([text], [op], gpu.target), gpu.target)
    d = _run(gpu, gpu.load(cubin), "probe", op, each, a_registers=True)
    low, high = op.d.unpack(d)[:, :32].reshape(-1, 2, 32, 8).swapaxes(0, 1)
    found: Addresses = low.astype(np.int64) + 256 * high.astype(np.int64)
    return found
