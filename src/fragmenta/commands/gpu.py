"""What does the GPU of this machine say?

``verify``, ``record`` and ``throughput`` need a GPU and the extra ``cuda``;
``replay`` needs neither.  Exit status 1 means that some bit differs.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from fragmenta.arrays.threads import cores
from fragmenta.commands.app import command
from fragmenta.commands.arguments import AsJson, find
from fragmenta.commands.output import emit, emit_json
from fragmenta.cuda.tools import device
from fragmenta.errors import Error
from fragmenta.evidence import record as recordings
from fragmenta.evidence import throughput as rates
from fragmenta.evidence.record import Recording, replay_any
from fragmenta.evidence.verify import verify as run
from fragmenta.progress import bar

NEED_A_GPU = ("verify", "record", "throughput")
"""The commands that do nothing without one."""

DIFFERENT = 1

Instructions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INSTRUCTION",
        help="PTX mnemonics, or some of their qualifiers in order.",
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="The seed of the random inputs.")]


def _family(names: str) -> Any:
    """The option that names families; which, depends on the command."""
    said = f"Only this family: {names}; may be repeated."
    return typer.Option("--family", metavar="FAMILY", help=said)


# ── verify ──────────────────────────────────────────────────────────────────


@command(
    "verify",
    "fragmenta verify --family mma --family mma.sp",
    "fragmenta verify mma.m16n8k16.f32.f16 --tiles 100000",
    "fragmenta verify --markdown docs/verification/mine.md",
)
def verify(
    instructions: Instructions = None,
    family: Annotated[
        list[str] | None, _family("mma, mma.sp, wgmma, wgmma.sp or wmma.mma")
    ] = None,
    tiles: Annotated[
        int | None,
        typer.Option(
            help="Tiles of each instruction; by default enough for a thorough test."
        ),
    ] = None,
    seed: Seed = 1,
    jobs: Annotated[
        int | None,
        typer.Option(help="Processes that compute results; by default one per core."),
    ] = None,
    as_json: AsJson = False,
    markdown: Annotated[
        str | None,
        typer.Option(
            "--markdown",
            metavar="FILE",
            help="Also write a page like those in docs/verification.",
        ),
    ] = None,
) -> None:
    ops = [find(text) for text in instructions or ()]
    if markdown is not None:
        Path(markdown).open("a").close()  # a wrong name shows now, not in minutes
    with bar("verifying") as progress:
        report = run(
            families=family or (),
            instructions=ops,
            tiles=tiles,
            seed=seed,
            jobs=jobs or cores(),
            progress=progress,
        )
    if markdown is not None:
        Path(markdown).write_text(report.to_markdown(), encoding="utf-8")
    if as_json:
        emit_json(report.to_json())
    else:
        emit(report.to_text())
    if report.differing:
        raise typer.Exit(DIFFERENT)


# ── record ──────────────────────────────────────────────────────────────────


@command(
    "record",
    "fragmenta record mine",
    "fragmenta record mine --family wgmma --family moves",
)
def record(
    folder: Annotated[
        str,
        typer.Argument(
            metavar="DIR", help="The folder to write to.", show_default=False
        ),
    ],
    family: Annotated[
        list[str] | None, _family("mma, mma.sp, wgmma, moves or wmma")
    ] = None,
    seed: Seed = 1,
) -> None:
    gpu = device.present()
    kinds = list(map(recordings.check_kind, family or ()))
    kinds = kinds or recordings.kinds_on(gpu.target)
    emit(device.describe(gpu.versions()))
    Path(folder).mkdir(parents=True, exist_ok=True)
    for kind in kinds:
        path = Path(folder) / f"{kind}.npz"
        with bar(f"recording {kind}") as progress:
            told = _counting(progress, recordings.count_on(kind, gpu.target))
            found = recordings.record(gpu, kind, seed=seed, progress=told)
        found.save(path)
        emit(f"{path}  {len(found.cases)} cases, {path.stat().st_size:,} bytes")


def _counting(progress: Callable[[float], object], cases: int) -> Callable[[str], None]:
    """A recorder names each case; the bar wants to know how far it is."""
    numbers = count(1)

    def told(_: str) -> None:
        progress(next(numbers) / cases)

    return told


# ── replay ──────────────────────────────────────────────────────────────────


@command(
    "replay",
    "fragmenta replay tests/golden/h200/moves.npz",
    "fragmenta replay tests/golden/h200/mma.npz --json",
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
    results = [
        _replayed(path, recordings.load(path))
        for path in recordings.files(map(Path, paths))
    ]
    if as_json:
        emit_json(results)
    else:
        emit("\n".join(_replay_table(results)))
    if any(each["differing_bits"] for each in results):
        raise typer.Exit(DIFFERENT)


def _replayed(path: Path, found: Recording) -> dict[str, Any]:
    """One file: how many cases, and which of them differ how."""
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


def _replay_table(results: list[dict[str, Any]]) -> list[str]:
    lines = []
    for each in results:
        made = each["made"]
        bits = each["differing_bits"]
        how = f"{bits} bits differ" if bits else "no bit differs"
        gpu = f"{made.get('gpu', '?')}, {made.get('date', '?')}"
        lines.append(f"{each['cases']:>6} cases  {how}  {each['file']}  ({gpu})")
        for wrong in each["differences"]:
            lines += [f"  {wrong['instruction']}", f"    {wrong['first']}"]
    return lines


# ── throughput ──────────────────────────────────────────────────────────────


@command(
    "throughput",
    "fragmenta throughput",
    "fragmenta throughput mma.m16n8k16.f32.f16 wgmma.m64n256k16.f32.f16 --json",
)
def throughput(
    instructions: Instructions = None,
    runs: Annotated[
        int, typer.Option(help="How many runs to take the median of.")
    ] = 31,
    as_json: AsJson = False,
) -> None:
    ops = [find(text) for text in instructions or ()]
    if runs < 1:
        raise Error(f"--runs must be 1 or more; given {runs}")
    gpu = device.present()
    with bar("measuring") as progress:
        found = rates.throughput(ops or None, gpu, runs=runs, progress=progress)
    if as_json:
        emit_json(rates.to_json(found, gpu.versions()))
    else:
        emit(f"{device.describe(gpu.versions())}\n\n{rates.to_text(found)}")
