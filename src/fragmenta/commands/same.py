"""The commands ``same`` and ``invariant``: whether launches leave the same bits."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fragmenta.base.progress import bar, ignore_progress
from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.files import (
    Force,
    check_output,
    picture_format,
    save_arrays,
    save_bytes,
)
from fragmenta.commands.launch_arguments import (
    block_of,
    check_parameters,
    read_arguments,
    read_files,
)
from fragmenta.commands.launch_options import Args, Flags, Shared, sides, split_flags
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import complain, emit, emit_json, printable
from fragmenta.errors import BadCall
from fragmenta.inspect.evidence.arguments import for_kernel
from fragmenta.inspect.evidence.recorded import recorded
from fragmenta.inspect.sameness.calls import Call, Program, program
from fragmenta.inspect.sameness.capturing import captured
from fragmenta.inspect.sameness.deciding import TRIES, Sameness, same
from fragmenta.inspect.sameness.invariance import Classes, invariant, targets
from fragmenta.inspect.sameness.proving import MOST
from fragmenta.inspect.view.svg import convert
from fragmenta.launch.kernel import Kernel
from fragmenta.reference.registers.dtype import dtype

_SUFFIXES = (".py", ".npz", ".ptx", ".cu", ".cubin", ".fatbin", ".o", ".so")
_Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE [KERNEL] [FILE] [KERNEL]",
        help="Programs that launch kernels (.py), recordings (.npz), or files with "
        "kernels; then the kernel of the file, if it has several.",
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

_Most = Annotated[
    int,
    typer.Option(
        "--most",
        metavar="N",
        help="If an element has at most so many inputs, all of them are run.",
    ),
]
_Save = Annotated[
    str | None,
    typer.Option(
        "--witness",
        metavar="FILE.npz",
        help="Write the inputs for which bits differ, one array for each parameter.",
    ),
]
_Grids = Annotated[
    list[str] | None,
    typer.Option(
        "--grid",
        metavar="X[,Y[,Z]]",
        help="Blocks of the grid, 1 by default; given twice, those of each launch.",
        show_default=False,
    ),
]
_Blocks = Annotated[
    list[str] | None,
    typer.Option(
        "--block",
        metavar="X[,Y[,Z]]",
        help="Threads of a block; given twice, those of each launch.",
        show_default=False,
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
    "fragmenta same kernel.ptx other.ptx --block 8 --block 4,2 --arg ones:f32:8",
)
def same_command(
    files: _Files,
    grid: _Grids = None,
    block: _Blocks = None,
    shared: Shared = 0,
    arg: Args = None,
    flags: Flags = None,
    over: _Targets = None,
    types: _Types = None,
    tries: _Tries = TRIES,
    most: _Most = MOST,
    save: _Save = None,
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
    asked = _asked(files)
    if len(asked) > 2 or (len(asked) == 2) == (over is not None):
        raise BadCall(
            "same takes two files, two kernels of a file, or one file and --targets"
        )
    for name, given in (("--grid", grid), ("--block", block)):
        if len(given or ()) > len(asked):
            raise BadCall(f"{name} is given once, or once for each launch")
    if svg is not None:
        picture_format(svg)
        check_output(svg, force, option="--svg")
    if save is not None:
        check_output(save, force, ".npz", option="--witness")

    def read(number: int) -> Program:
        file, name = asked[number]
        if file.endswith(".py"):
            return _program(file)
        if file.endswith(".npz"):
            return recorded(file, name) if name else recorded(file)
        words = [file] if name is None else [file, name]
        place = -1 if number else 0
        threads = block[place] if block else None
        made = read_files(words, None, split_flags(flags)).one(None)[1]
        return _launch(made, (grid or ["1"])[place], threads, shared, arg or ())

    floats = _floats(types)
    made: Sameness | Classes
    if over is not None:
        made = targets(read(0), over.split(","), tries=tries, types=floats)
    else:
        with bar("running all inputs") as progress:
            one, two = read(0), read(1)
            made = same(
                one, two, tries=tries, types=floats, most=most, progress=progress
            )
    if svg is not None:
        _draw(made, svg, force)
    if save is not None:
        _save(made, save, force, arg or ())
    _show(made, as_json)


def _asked(words: Sequence[str]) -> list[tuple[str, str | None]]:
    """Files and kernels: a word that is no file is a kernel of the file before it.

    >>> _asked(["a.ptx", "sum", "b.ptx"])
    [('a.ptx', 'sum'), ('b.ptx', None)]
    >>> _asked(["a.ptx", "sum", "tree"])
    [('a.ptx', 'sum'), ('a.ptx', 'tree')]
    """
    found: list[tuple[str, str | None]] = []
    for word in words:
        if word.endswith(_SUFFIXES) or Path(word).is_file() or not found:
            found.append((word, None))
        elif found[-1][1] is None:
            found[-1] = found[-1][0], word
        else:
            found.append((found[-1][0], word))
    return found


def _save(made: Sameness | Classes, file: str, force: bool, arg: Sequence[str]) -> None:
    """Write the inputs of a witness; of classes, those of the first two."""
    pairs = made.between.values() if isinstance(made, Classes) else [made]
    found = next((each for each in pairs if each.witness is not None), None)
    if found is None or found.witness is None:
        complain(f"no input separates them: {file} is not written")
        return
    inputs = found.witness.inputs
    save_arrays(file, inputs, force, ignore_progress)
    if not arg:
        return
    call = found.followed[0].program[0]
    words = [*arg]
    for name, number in _places(call).items():
        if name in inputs and number < len(words):
            words[number] = f"{file}:{name}"
    repeated = " ".join(f"--arg {word}" for word in words)
    complain(f"the inputs are in {file}; repeat it with {repeated}")


def _places(call: Call) -> dict[str, int]:
    """Which argument an array is, by the name of its parameter."""
    found: dict[str, int] = {}
    for number, each in enumerate(call.arguments):
        for name, array in call.arrays():
            if array is each:
                found.setdefault(name, number)
    return found


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
    made = _ran(file).get("make")
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


def _ran(file: str, name: str = "<run_path>") -> dict[str, Any]:
    """What a Python file leaves; as with Python, it imports from its own folder."""
    folder = str(Path(file).resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return runpy.run_path(file, run_name=name)


def _program(file: str) -> Program:
    """The launches that a Python program makes."""
    if not Path(file).is_file():
        raise BadCall(f"{file} is no file")
    with captured() as calls:
        _ran(file, "__main__")
    if not calls:
        raise BadCall(f"{file} launches no kernel with fragmenta")
    return tuple(calls)


def _launch(
    found: Kernel, grid: str, block: str | None, shared: int, arg: Sequence[str]
) -> Program:
    """A launch that options describe."""
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
