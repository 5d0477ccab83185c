"""The command ``debug``: steps through a recorded launch, in a terminal or an editor."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from fragmenta.commands.app import NOTHING, command, parsed
from fragmenta.commands.debug_streams import converse, listen, serve
from fragmenta.commands.launch import patience
from fragmenta.commands.launch_arguments import (
    block_of,
    check_parameters,
    read_arguments,
    read_files,
)
from fragmenta.commands.launch_options import (
    Args,
    Block,
    Cluster,
    Cooperative,
    Flags,
    Grid,
    KernelFiles,
    ScheduleText,
    Shared,
    Target,
    schedule_options,
    sides,
    split_flags,
)
from fragmenta.commands.options import Limit, Memory, Printed, Seconds
from fragmenta.commands.output import width
from fragmenta.commands.targets import target_of
from fragmenta.debugging.debugger import Debugger
from fragmenta.debugging.terminal import Terminal
from fragmenta.errors import BadCall, nearest, one_of
from fragmenta.evidence import launches
from fragmenta.evidence.arguments import for_kernel
from fragmenta.launch.limits import OUTPUT, SECONDS, Limits
from fragmenta.launch.options import Watch
from fragmenta.launch.result import Result
from fragmenta.replay.making import replay_of
from fragmenta.replay.recorded import Replay

_Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE... [KERNEL]",
        help="As for fragmenta launch; or a replay, or a recording of launches and "
        "the name of one, as .npz files.",
        show_default=False,
    ),
]


class How(NamedTuple):
    """A launch as the command line describes it."""

    words: list[str] | None
    grid: str
    block: str | None
    cluster: str | None
    cooperative: bool
    shared: int
    arg: list[str] | None
    target: str | None
    flags: list[str] | None
    schedule: str | None
    no_contract: bool
    limits: Limits


@command(
    "debug",
    "fragmenta debug kernel.ptx --block 32 --arg ones:f32:32",
    "fragmenta debug kernel.ptx --block 32 --arg ones:f32:32 -x commands.txt",
    "echo 'info warps' | fragmenta debug kernel.ptx --block 32 --arg ones:f32:32",
    "fragmenta debug --dap < requests.txt",
)
def debug(
    words: _Words = None,
    grid: Grid = "1",
    block: Block = None,
    cluster: Cluster = None,
    cooperative: Cooperative = False,
    shared: Shared = 0,
    arg: Args = None,
    target: Target = None,
    flags: Flags = None,
    schedule: ScheduleText = None,
    no_contract: Annotated[
        bool,
        typer.Option(
            "--no-contract", help="Do not fuse products and sums, as --fmad=false."
        ),
    ] = False,
    limit: Limit = None,
    seconds: Seconds = SECONDS,
    memory: Memory = None,
    printed: Printed = OUTPUT,
    script: Annotated[
        str | None,
        typer.Option(
            "--script",
            "-x",
            metavar="FILE",
            help="Read commands from a file; a pipe works, too.",
            show_default=False,
        ),
    ] = None,
    dap: Annotated[
        bool,
        typer.Option(
            "--dap", help="Speak the Debug Adapter Protocol on the standard streams."
        ),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            metavar="N",
            help="With --dap: listen on this port of this machine; 0 chooses one.",
            show_default=False,
        ),
    ] = None,
) -> None:
    r"""The launch is recorded, and the debugger goes forwards and backwards in it:

    \b
      step, next, back, continue, reverse-continue, finish, goto 100
      break k.cu:31, break ptx:12 if %r5[0] == 2, break mma, watch shared[0x400]
      problem, nan          to the next problem, to the next NaN
      print %r5[3], print %f1 * 2, print shared[0x400:0x420] as f16
      fragment D, who 0x400, info warps, list, backtrace, help

    The arguments are those of fragmenta launch.  Editors use --dap.
    """
    how = How(
        words,
        grid,
        block,
        cluster,
        cooperative,
        shared,
        arg,
        target,
        flags,
        schedule,
        no_contract,
        Limits(seconds, memory, printed, limit),
    )
    if dap:
        if script is not None:
            raise BadCall("--dap and --script cannot both be given")
        _adapt(how, port)
        return
    if port is not None:
        raise BadCall("--port needs --dap")
    if not words:
        raise BadCall("a kernel's file is missing, or --dap")
    if script is not None and not Path(script).is_file():
        raise BadCall(f"--script {script} is no file")
    terminal = Terminal(Debugger(recorded(how)), min(width(), 120))
    if not converse(terminal, script):
        raise typer.Exit(NOTHING)


def _adapt(how: How, port: int | None) -> None:
    """Serve an editor."""
    if port is None:
        serve(sys.stdin.buffer, sys.stdout.buffer, lambda given: _asked(how, given))
        return
    if not 0 <= port < 65536:
        raise BadCall(f"a port is 0 to 65535; given {port}")
    if not how.words:
        # Others on this machine can connect, too: they choose no files.
        raise BadCall("--port needs the kernel's file on the command line")
    replay = recorded(how)
    listen(port, lambda given: replay)


def _asked(how: How, given: Mapping[str, Any]) -> Replay:
    """The launch that a request names, or that of the command line."""
    program, args = given.get("program"), given.get("args") or []
    if program is None:
        if not how.words:
            raise BadCall(
                'program is missing: the file of the kernel; args are as for fragmenta '
                'launch, such as ["--block", "32"]'
            )
        return recorded(how)
    listed = split_flags([args]) if isinstance(args, str) else args
    if not isinstance(program, str) or not isinstance(listed, list):
        raise BadCall("program is the file of a kernel, and args a list of words")
    known = parsed("debug", [program, *map(str, listed)])
    limits = Limits(*(known.pop(name) for name in ("seconds", "memory", "printed", "limit")))
    fields = {name: known[name] for name in How._fields if name != "limits"}
    return recorded(How(**fields, limits=limits))


# ── recording ───────────────────────────────────────────────────────────────


def recorded(how: How) -> Replay:
    """The recording of a launch: read from a file, or made."""
    words = how.words or []
    if words[0].endswith(".npz"):
        return _of_archive(words, how)
    target = target_of(how.target)
    _, found = read_files(words, target, split_flags(how.flags)).one(target)
    given = read_arguments(how.arg or ())
    check_parameters(found, given)
    sizes = sides(how.grid, "--grid"), block_of(found, how.block)
    with patience(f"recording {found.function.shown}") as progress:
        result = found.launch(
            *sizes,
            for_kernel([each.value for each in given]),
            target=target,
            shared=how.shared,
            contract=not how.no_contract,
            watch=Watch("report"),
            cooperative=how.cooperative,
            cluster=None if how.cluster is None else sides(how.cluster, "--cluster"),
            limits=how.limits,
            replay=True,
            progress=progress,
            **schedule_options(how.schedule, None),
        )
    return replay_of(result)


def _of_archive(words: Sequence[str], how: How) -> Replay:
    """A replay that was saved, or a launch that was recorded."""
    path = Path(words[0])
    if not path.is_file():
        raise BadCall(f"{words[0]} is no file")
    if not launches.is_recording(path):
        if len(words) > 1:
            raise BadCall(f"{words[0]} is a replay, which is of one launch")
        return Replay.load(path)
    return replay_of(_launched(path, words[1:], how))


def _launched(path: Path, name: Sequence[str], how: How) -> Result:
    """A launch of a recording, which has the arguments."""
    found = launches.load(path)
    named = {each.name: each for each in found.launches}
    if not name and len(named) == 1:
        name = list(named)
    if len(name) != 1 or name[0] not in named:
        wanted = "".join(name)
        have = one_of(named, "and")
        raise BadCall(
            f"{path} has the launches {have}; name one{nearest(wanted, named)}"
        )
    launch = named[name[0]]
    kernel = found.kernel(launch)
    launches.check_room(launch, how.limits)
    given = launches.Started(found, launch, kernel).given
    with patience(f"recording {kernel.function.shown}") as progress:
        return kernel.launch(
            launch.grid,
            launch.block,
            given,
            cluster=launch.cluster,
            cooperative=launch.cooperative,
            shared=launch.shared,
            target=target_of(how.target) or found.made["target"],
            watch=Watch("report"),
            limits=how.limits,
            replay=True,
            progress=progress,
            **schedule_options(how.schedule, None),
        )
