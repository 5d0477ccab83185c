"""The command ``compare``: errors of instructions on several targets."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import typer

from fragmenta.base.arrays.checks import Array
from fragmenta.commands.app import command
from fragmenta.commands.arguments import HELP_OF_SEVERAL, complete_instruction, find
from fragmenta.commands.files import (
    Force,
    check_output,
    complete_file,
    is_matrix_file,
    load_one,
    save_text,
)
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json
from fragmenta.commands.shell_words import grouped
from fragmenta.commands.targets import complete_target
from fragmenta.errors import BadCall, BadFile, one_of
from fragmenta.inspect.view.plot import error_plot
from fragmenta.reference.execution import compare as comparing
from fragmenta.reference.execution.samples import KINDS, LENGTHS

Instructions = Annotated[
    list[str],
    typer.Argument(
        metavar="INSTRUCTION...",
        help=HELP_OF_SEVERAL,
        autocompletion=complete_instruction,
        show_default=False,
    ),
]


@command(
    "compare",
    "fragmenta compare mma.m16n8k16.f32.f16 mma.m16n8k32.f32.e4m3.e4m3",
    "fragmenta compare wgmma.m64n8k32.f32.e4m3.e4m3 --input uniform --k 4096",
    "fragmenta compare mma.m16n8k16.f32.f16 --targets sm_80,sm_90 --plot f16.svg",
    "fragmenta compare mma.m16n8k16.f32.f16 --input a.npy b.npy --json",
    "fragmenta compare mma m16n8k16 bf16, mma m16n8k32 int8 --targets ada,hopper",
)
def compare(
    instructions: Instructions,
    targets: Annotated[
        str,
        typer.Option(
            "--targets",
            metavar="TARGETS",
            help="Targets, or words such as hopper, with commas between them.",
            autocompletion=complete_target,
        ),
    ] = ",".join(comparing.TARGETS),
    k: Annotated[
        list[int] | None,
        typer.Option(
            "--k",
            help="Products in a sum; may be repeated.  Default: "
            f"{one_of(LENGTHS, 'and')}, or all columns of a file.",
            show_default=False,
        ),
    ] = None,
    input: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="normal|uniform|A B",
            help="Random numbers around 0, from 0 to 1, or two files of matrices.",
            autocompletion=complete_file,
        ),
    ] = "normal",
    seed: Annotated[int, typer.Option(help="Of the random numbers.")] = 0,
    plot: Annotated[
        str | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Also draw the mean relative errors over k, as SVG.",
            autocompletion=complete_file,
        ),
    ] = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Prints the greatest and the mean error of the sums of D = A B, relative and in
    units in the last place of D.  The numbers are rounded to each instruction's types
    first, or quantised if it takes block scales; these errors are against the exact
    product of the operands that this gives.  The last column is the mean relative error
    in all, against the numbers as they were.  A target without the instruction is
    named.
    """
    if plot is not None:
        check_output(plot, force, ".svg", option="--plot")
    # An option takes one word, so the second file is among the instructions.
    files = list(filter(is_matrix_file, instructions))
    result = comparing.compare(
        [find(each) for each in grouped(e for e in instructions if e not in files)],
        targets,
        k or None,
        input if input in KINDS and not files else _files(input, files),
        seed=seed,
        began=None if as_json else emit,
    )
    if plot is not None:
        save_text(plot, error_plot(result), force)
    if as_json:
        emit_json({**result.to_dict(), **({"plot": plot} if plot else {})})
    else:
        emit(result.tables() + (f"\n\nplot in {plot}" if plot else ""))


def _files(first: str, others: list[str]) -> tuple[Array, Array]:
    names = [*first.split(","), *others]
    if len(names) != 2 or first in KINDS:
        raise BadCall(
            f"--input is {one_of(KINDS)}, or two files, as in --input a.npy b.npy; "
            f"given {' '.join(names)}"
        )
    a, b = (_matrix(name) for name in names)
    return a, b


def _matrix(path: str) -> Array:
    found = load_one(path)
    if found.dtype.type.__module__ == "ml_dtypes":  # a safetensors file has types
        return found.astype(np.float64)
    if found.dtype.kind not in "fiub":
        raise BadFile(
            f"{path} holds {found.dtype}, which is not a type of numbers; save float32"
        )
    return found
