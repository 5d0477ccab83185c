"""The commands ``same`` and ``invariant``: whether launches leave the same bits."""

from __future__ import annotations

import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.files import (
    Force,
    check_output,
    picture_format,
    save_bytes,
)
from fragmenta.commands.launch_arguments import (
    block_of,
    check_parameters,
    read_arguments,
    read_files,
)
from fragmenta.commands.launch_options import Args, Block, Grid, Shared, sides
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import complain, emit, emit_json, printable
from fragmenta.errors import BadCall
from fragmenta.evidence.arguments import for_kernel
from fragmenta.evidence.recorded import recorded
from fragmenta.registers.dtype import dtype
from fragmenta.sameness.calls import Call, Program, program
from fragmenta.sameness.capturing import captured
from fragmenta.sameness.deciding import TRIES, Sameness, same
from fragmenta.sameness.invariance import Classes, invariant, targets
from fragmenta.view.svg import convert

_Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE [FILE]",
        help="Programs that launch kernels (.py), recordings (.npz), or kernels.",
        show_default=False,
    ),
]
_Targets = Annotated[
    str | None,
    typer.Option(
        "--targets",
        metavar="TARGETS",
        help="Compare one launch on several targets, such as sm_80,sm_90a,sm_120a.",
    ),
]
_Types = Annotated[
    str | None,
    typer.Option(
        "--types",
        metavar="NAME=TYPE,...",
        help="Which floats the whole numbers of parameters are, such as x=bf16.",
    ),
]
_Tries = Annotated[
    int,
    typer.Option(
        "--tries", metavar="N", help="Inputs to try if the expressions differ."
    ),
]

_Svg = Annotated[
    str | None,
    typer.Option(
        "--svg",
        metavar="FILE",
        help="Draw both expressions where they part: SVG, PNG or PDF.",
    ),
]


@command(
    "same",
    "fragmenta same kernel.ptx other.ptx --block 32 --arg ones:f32:32",
    "fragmenta same kernel.ptx --block 32 --arg ones:f32:32 --targets sm_80,sm_90",
    "fragmenta same kernel.py other.py --json",
    "fragmenta same tile-1.npz tile-1.npz",
    "fragmenta same kernel.py other.py --svg trees.svg",
)
def same_command(
    files: _Files,
    grid: Grid = "1",
    block: Block = None,
    shared: Shared = 0,
    arg: Args = None,
    over: _Targets = None,
    types: _Types = None,
    tries: _Tries = TRIES,
    svg: _Svg = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    r"""A Python program is run, and all its launches are compared.  A recording has
    launches.  The launch of another file is described as for fragmenta launch.

    \b
      same        for every input that takes the same path: a proof
      same here   for these inputs and others; no proof
      different   with an input that shows it, and where the expressions part
      unknown     what was not followed, and where

    The exit status is 1 unless it is proved that the bits are the same.
    """
    if len(files) > 2 or (len(files) == 2) == (over is not None):
        raise BadCall("same takes two files, or one file and --targets")

    if svg is not None:
        picture_format(svg)
        check_output(svg, force, option="--svg")

    def read(file: str) -> Program:
        if file.endswith(".py"):
            return _program(file)
        if file.endswith(".npz"):
            return recorded(file)
        return _launch([file], grid, block, shared, arg or ())

    floats = _floats(types)
    made: Sameness | Classes
    if over is not None:
        made = targets(read(files[0]), over.split(","), tries=tries, types=floats)
    else:
        made = same(*map(read, files), tries=tries, types=floats)
    if svg is not None:
        _draw(made, svg, force)
    _show(made, as_json)


@command("invariant", "fragmenta invariant rows.py --over 1,2,7,64")
def invariant_command(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="A Python file with make(n).")
    ],
    over: Annotated[
        str,
        typer.Option("--over", metavar="SIZES", help="The sizes n, such as 1,2,7,64."),
    ],
    tries: _Tries = TRIES,
    as_json: AsJson = False,
) -> None:
    """The function make(n) of a Python file gives a ptx.Call, or several, for a size.
    Rows that two sizes have in common are compared.

    The exit status is 1 unless it is proved that all sizes leave the same bits.
    """
    if not Path(file).is_file():
        raise BadCall(f"{file} is no file")
    made = runpy.run_path(file).get("make")
    if not callable(made):
        raise BadCall(
            f"{file} has no function make(n), which gives a ptx.Call for a size n"
        )
    sizes = [int(each) if each.isdigit() else each for each in over.split(",")]
    _show(invariant(made, sizes, tries=tries), as_json)


def _floats(types: str | None) -> dict[str, str]:
    """Types by the names of parameters."""
    found = {}
    for each in types.split(",") if types else ():
        name, equals, kind = each.partition("=")
        if not (name and equals and kind):
            raise BadCall(f"--types is NAME=TYPE, such as x=bf16; given {each!r}")
        found[name] = dtype(kind).name
    return found


def _program(file: str) -> Program:
    """The launches that a Python program makes."""
    if not Path(file).is_file():
        raise BadCall(f"{file} is no file")
    with captured() as calls:
        runpy.run_path(file, run_name="__main__")
    if not calls:
        raise BadCall(f"{file} launches no kernel with fragmenta")
    return tuple(calls)


def _launch(
    words: Sequence[str], grid: str, block: str | None, shared: int, arg: Sequence[str]
) -> Program:
    """A launch that options describe."""
    _, found = read_files(words, None, ()).one(None)
    given = read_arguments(arg)
    check_parameters(found, given)
    sizes = sides(grid, "--grid"), block_of(found, block)
    typed = [each.value if each.elements is None else each.elements for each in given]
    values = for_kernel(typed)
    return program(Call(found, *sizes, values, shared=shared))


def _draw(made: Sameness | Classes, file: str, force: bool) -> None:
    """Write both trees where they part; of classes, those of the first two."""
    pairs = made.between.values() if isinstance(made, Classes) else [made]
    found = next((each for each in pairs if each.trees), None)
    if found is None:
        complain(f"all expressions are equal: {file} is not written")
    else:
        save_bytes(file, convert(found.to_svg(), picture_format(file)), force)


def _show(made: Sameness | Classes, as_json: bool) -> None:
    if as_json:
        emit_json(made.to_dict())
    else:
        emit(printable(str(made)))
    if not made:
        raise typer.Exit(NOTHING)
