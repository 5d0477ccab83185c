"""Options of the commands about files with kernels, and how their texts are read.

Nothing here loads what reads or launches kernels: help and mistakes come at once.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fragmenta.commands.files import complete_file
from fragmenta.commands.targets import complete_target
from fragmenta.errors import BadCall, BadFile, one_of, shortened

if TYPE_CHECKING:
    from fragmenta.engine.units.schedule import Given as Schedule

KernelFiles = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE... [KERNEL]",
        help="PTX, CUDA C++ (.cu), or a cubin, fat binary or program with PTX in it; "
        "then the kernel, which may be left out if there is one only.",
        autocompletion=complete_file,
        show_default=False,
    ),
]
Flags = Annotated[
    list[str] | None,
    typer.Option(
        "--flags",
        metavar="FLAGS",
        help="Flags for the compiler of a .cu file, such as '-DN=4 -Iinclude'; may be "
        "repeated.",
        show_default=False,
    ),
]
Tolerance = Annotated[
    str | None,
    typer.Option(
        "--tolerance",
        metavar="WARNING[,ERROR]",
        help="With --numerics: the relative errors of outputs that are a warning "
        "and an error; by default what types explain, and 0.1.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="The GPU whose bits are wanted, such as sm_80 or hopper; by default "
        "that of the file.",
        autocompletion=complete_target,
    ),
]
Grid = Annotated[
    str, typer.Option("--grid", metavar="X[,Y[,Z]]", help="Blocks of the grid.")
]
Block = Annotated[
    str | None,
    typer.Option(
        "--block",
        metavar="X[,Y[,Z]]",
        help="Threads of a block; may be left out if the kernel says them.",
        show_default=False,
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="X[,Y[,Z]]",
        help="Blocks of a cluster; may be left out if the kernel says them.",
        show_default=False,
    ),
]
Cooperative = Annotated[
    bool,
    typer.Option(
        "--cooperative",
        help="All blocks are under way at once, and grid.sync() synchronises them.",
    ),
]
NoContract = Annotated[
    bool,
    typer.Option(
        "--no-contract", help="Do not fuse products and sums, as --fmad=false."
    ),
]
ScheduleText = Annotated[
    str | None,
    typer.Option(
        "--schedule",
        metavar="WHEN",
        help="When asynchronous work is done: eager (by default), lazy, or a seed; "
        "then which warp is next, as in lazy+oldest-waits, or a .json file with a "
        "recorded schedule.",
        show_default=False,
    ),
]
ScheduleTexts = Annotated[
    str | None,
    typer.Option(
        "--schedules",
        metavar="WHEN,...",
        help="Several, such as eager,lazy,1 or eager,adversarial: all must give the "
        "same bits.",
        show_default=False,
    ),
]
Shared = Annotated[
    int, typer.Option("--shared", metavar="BYTES", help="Dynamic shared memory.")
]
Args = Annotated[
    list[str] | None,
    typer.Option(
        "--arg",
        metavar="ARGUMENT",
        help="An argument, in the order of the parameters; see above.",
        show_default=False,
        autocompletion=complete_file,
    ),
]


def sides(text: str, option: str) -> tuple[int, ...]:
    """One to three numbers.

    >>> sides("2,3", "--grid")
    (2, 3)
    """
    if not re.fullmatch(r" ?-?\d+(,\d+){0,2}", text, re.ASCII):
        raise BadCall(
            f"{option} takes one to three whole numbers, such as 8 or 8,4,2; given "
            f"{shortened(text)}"
        )
    return tuple(map(int, text.split(",")))


def schedules_of(one: str | None, several: str | None) -> Schedule | list[Schedule]:
    """The schedules of a launch, as ``kernel.launch`` takes them.

    >>> schedules_of(None, "eager,lazy,7"), schedules_of(None, None)
    (['eager', 'lazy', 7], 'eager')
    """
    if one is not None and several is not None:
        raise BadCall("--schedule and --schedules cannot both be given")

    def read(text: str) -> Schedule:
        if text.endswith(".json"):
            return _recorded(text)
        return int(text) if text.isdecimal() and len(text) < 10 else text

    if several is not None:
        return [read(each.strip()) for each in several.split(",")]
    return "eager" if one is None else read(one)


def _recorded(path: str) -> Mapping[str, object]:
    """A schedule that ``--save-schedule`` has written."""
    try:
        found = json.loads(Path(path).read_bytes())
    except OSError as why:
        raise BadFile(f"{path} cannot be read: {why.strerror}") from why
    except ValueError as why:
        raise BadFile(f"{path} is not JSON: {why}") from why
    if not isinstance(found, dict):
        raise BadFile(f"{path} has no schedule; --save-schedule writes one")
    return found


def split_flags(given: Sequence[str] | None) -> list[str]:
    """The words of ``--flags``, as a shell splits them.

    >>> split_flags(["-DN=4 -I'my headers'", "-O1"])
    ['-DN=4', '-Imy headers', '-O1']
    """
    try:
        return [word for text in given or () for word in shlex.split(text)]
    except ValueError as why:
        raise BadCall(f"--flags {one_of(given or ())}: {why}") from why


def tolerances(text: str | None, numerics: bool) -> tuple[float, float] | None:
    """The relative errors of ``--tolerance``: of a warning and of an error.

    >>> tolerances("1e-3", True), tolerances("1e-3,0.5", True), tolerances(None, True)
    ((0.001, 0.1), (0.001, 0.5), None)
    """
    if text is None:
        return None
    if not numerics:
        raise BadCall("--tolerance is for --numerics, which is not given")
    try:
        numbers = [float(each) for each in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(0 <= n < inf for n in numbers):
        raise BadCall(
            "--tolerance is one or two relative errors, such as 1e-3,0.1; given "
            f"{shortened(text)}"
        )
    return numbers[0], (*numbers, 0.1)[1]
