"""The commands ``record`` and ``replay``: results of a GPU in files, and their check.

``record`` needs a GPU and the extra ``cuda``; ``replay`` needs neither.  Exit status 1
means that some bit differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Annotated, TypedDict, final

import typer

from fragmenta.base.progress import bar
from fragmenta.commands.app import command
from fragmenta.commands.files import Force, Output, complete_file
from fragmenta.commands.gpu import DIFFERENT, Seed, family_option
from fragmenta.commands.launch_options import Args, Block, Grid, Shared
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json
from fragmenta.commands.recorded_launches import (
    FileRecord,
    different,
    launch_lines,
    maker,
    record_launch,
    replayed_launches,
)
from fragmenta.commands.recorded_programs import LaunchFilter, record_program
from fragmenta.cuda.tools import device
from fragmenta.errors import BadCall
from fragmenta.inspect.evidence import record as recordings
from fragmenta.inspect.evidence.launches import is_recording
from fragmenta.inspect.evidence.record import replay_any

# ── record ──────────────────────────────────────────────────────────────────


@command(
    "record",
    "fragmenta record mine",
    "fragmenta record mine --family wgmma --family moves",
    "fragmenta record --launch kernel.ptx --block 32 --arg ones:f32:32 -o k.npz",
    "fragmenta record -- ./program --size 64",
    "fragmenta record --kernels gemm --launches 3 -o found -- python script.py",
)
def record(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="DIR|KERNEL|PROGRAM",
            help="The folder to write to; with --launch the kernel; after -- a program "
            "and its arguments.",
            show_default=False,
        ),
    ] = None,
    family: Annotated[
        list[str] | None, family_option("mma, mma.sp, wgmma, moves or wmma")
    ] = None,
    seed: Seed = 1,
    launch: Annotated[
        str | None,
        typer.Option(
            "--launch",
            metavar="FILE",
            help="Record the launch of a kernel of this PTX file instead.",
            autocompletion=complete_file,
        ),
    ] = None,
    grid: Grid = "1",
    block: Block = None,
    shared: Shared = 0,
    arg: Args = None,
    output: Output = None,
    force: Force = False,
    program: Annotated[
        bool,
        typer.Option(
            "--program", help="Record launches of a program; -- before it says so, too."
        ),
    ] = False,
    kernels: Annotated[
        str,
        typer.Option(
            "--kernels",
            metavar="REGEX",
            help="Of a program, only kernels whose names have a match.",
            show_default=False,
        ),
    ] = "",
    launches: Annotated[
        int,
        typer.Option(help="How many launches of each kernel of a program."),
    ] = 1,
) -> None:
    """With --launch, the kernel is launched as 'fragmenta launch' does it, whose help
    explains --arg.  One file, a .npz, keeps the PTX, the arguments and what the GPU
    changed.

    With -- and a program, the program runs on the GPU as it is.  Launches that
    --kernels and --launches choose are written to the folder that -o names, by default
    recorded: the PTX, the parameters, and all memory that they can reach, before and
    after.  'fragmenta replay recorded' runs them on any machine.
    """
    if program:
        if launch is not None or family or arg or block:
            raise BadCall("--launch, --family, --arg and --block are not for a program")
        record_program(words or [], output, LaunchFilter(kernels, launches))
        return
    if kernels or launches != 1:
        raise BadCall("--kernels and --launches are for a program: record -- ./program")
    if len(words or ()) > 1:
        raise BadCall("name one folder or kernel; a program stands behind --")
    folder = words[0] if words else None
    if launch is None and folder is not None and Path(folder).is_file():
        raise BadCall(
            f"{folder} is a file, not a folder to write to; fragmenta record -- "
            "./program records launches of a program, and --launch FILE those of a "
            "kernel"
        )
    if launch is not None:
        if family:
            raise BadCall("--family is for instructions; --launch records a kernel")
        record_launch(launch, folder, (grid, block, shared), arg, output, force)
        return
    if folder is None:
        raise BadCall("name a folder to write to, or a kernel's file with --launch")
    if arg or output or block:
        raise BadCall("--arg, --block and --output are for --launch FILE")
    _record_instructions(Path(folder), family or [], seed)


def _record_instructions(folder: Path, family: list[str], seed: int) -> None:
    gpu = device.present()
    kinds = list(map(recordings.check_kind, family))
    kinds = kinds or recordings.kinds_on(gpu.target)
    emit(device.describe(gpu.versions()))
    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        path = folder / f"{kind}.npz"
        with bar(f"recording {kind}") as progress:
            callback = _counting(progress, recordings.count_on(kind, gpu.target))
            found = recordings.record(gpu, kind, seed=seed, progress=callback)
        found.save(path)
        emit(f"{path}  {len(found.cases)} cases, {path.stat().st_size:,} bytes")


def _counting(progress: Callable[[float], object], cases: int) -> Callable[[str], None]:
    """A callback that counts the cases that a recorder names, for the bar."""
    numbers = count(1)

    def callback(_: str) -> None:
        progress(next(numbers) / cases)

    return callback


# ── replay ──────────────────────────────────────────────────────────────────


@command(
    "replay",
    "fragmenta replay tests/golden/h200/moves.npz",
    "fragmenta replay tests/golden/h200/mma.npz --json",
    "fragmenta replay tests/golden/launches/sort.npz",
)
def replay(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR|FILE",
            help="Recordings, or folders of them.",
            show_default=False,
        ),
    ],
    as_json: AsJson = False,
) -> None:
    """A recording is of instructions or of launches; both are recognised.  The exit
    status is 1 if anything differs.
    """
    results = [_replayed(path) for path in recordings.files(map(Path, paths))]
    if as_json:
        emit_json(results)
    else:
        emit("\n".join(line for each in results for line in _replay_lines(each)))
    if any(map(_differs, results)):
        raise typer.Exit(DIFFERENT)


class _WrongCase(TypedDict):
    """A case whose result differs."""

    instruction: str
    bits: int
    elements: int
    first: str


@final
class _Cases(TypedDict):
    """What came of the cases of a file."""

    file: str
    made: Mapping[str, str]
    cases: int
    differing_cases: int
    differing_bits: int
    differences: list[_WrongCase]


def _differs(result: _Cases | FileRecord) -> bool:
    if "launches" in result:
        return different(result)
    return bool(result["differing_bits"])


def _replayed(path: Path) -> _Cases | FileRecord:
    """Replay the cases of a file."""
    if is_recording(path):
        return replayed_launches(path)
    found = recordings.load(path)
    wrong = []
    with bar(path.name) as progress:
        for number, (_, difference) in enumerate(replay_any(found)):
            progress((number + 1) / len(found.cases))
            if difference is not None:
                wrong.append(difference)
    return {
        "file": str(path),
        "made": found.made,
        "cases": len(found.cases),
        "differing_cases": len(wrong),
        "differing_bits": sum(each.bits for each in wrong),
        "differences": [
            {
                "instruction": each.case.instruction,
                "bits": each.bits,
                "elements": each.elements,
                "first": each.first,
            }
            for each in wrong
        ],
    }


def _replay_lines(each: _Cases | FileRecord) -> list[str]:
    if "launches" in each:
        return launch_lines(each)
    bits = each["differing_bits"]
    how = f"{bits} bits differ" if bits else "no bit differs"
    lines = [f"{each['cases']:>6} cases  {how}  {each['file']}  {maker(each['made'])}"]
    for wrong in each["differences"]:
        lines += [f"  {wrong['instruction']}", f"    {wrong['first']}"]
    return lines
