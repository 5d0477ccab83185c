"""The commands ``verify`` and ``throughput``, which need a GPU and the extra ``cuda``.

What compares and measures is loaded after the GPU was found: a machine without one says
so at once.  Exit status 1 means that some bit differs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fragmenta.base.arrays.threads import cores
from fragmenta.base.progress import bar
from fragmenta.commands.app import command
from fragmenta.commands.arguments import HELP_OF_SEVERAL, find
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json
from fragmenta.commands.shell_words import grouped
from fragmenta.cuda.tools import device
from fragmenta.errors import ValueRangeError

NEED_A_GPU = ("verify", "record", "throughput")
"""The commands that need a GPU."""

DIFFERENT = 1

Instructions = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="INSTRUCTION...",
        help=HELP_OF_SEVERAL,
        show_default=False,
    ),
]
Seed = Annotated[int, typer.Option(help="The seed of the random inputs.")]


def family_option(names: str) -> object:
    """The option ``--family``, with the families that a command takes."""
    said = f"Only this family: {names}; may be repeated."
    return typer.Option("--family", metavar="FAMILY", help=said)


# ── verify ──────────────────────────────────────────────────────────────────


@command(
    "verify",
    "fragmenta verify --family mma --family mma.sp",
    "fragmenta verify mma.m16n8k16.f32.f16 --tiles 100000",
    "fragmenta verify mma m16n8k16 bf16, wgmma m64n8k16 half f32",
    "fragmenta verify --markdown docs/verification/mine.md",
)
def verify(
    instructions: Instructions = None,
    family: Annotated[
        list[str] | None, family_option("mma, mma.sp, wgmma, wgmma.sp or wmma.mma")
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
    ops = [find(text) for text in grouped(instructions or ())]
    device.present()
    from fragmenta.inspect.evidence.verify import verify as run

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
    ops = [find(text) for text in grouped(instructions or ())]
    if runs < 1:
        raise ValueRangeError(f"--runs must be 1 or more; given {runs}")
    gpu = device.present()
    from fragmenta.inspect.evidence import throughput as rates

    with bar("measuring") as progress:
        found = rates.throughput(ops or None, gpu, runs=runs, progress=progress)
    if as_json:
        emit_json(rates.to_json(found, gpu.versions()))
    else:
        emit(f"{device.describe(gpu.versions())}\n\n{rates.to_text(found)}")
