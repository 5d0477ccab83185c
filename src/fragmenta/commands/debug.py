"""The command ``debug``: steps through a launch, in a terminal or an editor."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fragmenta.commands.app import NOTHING, command, parsed
from fragmenta.commands.debug_options import How
from fragmenta.commands.debug_streams import converse, listen, serve
from fragmenta.commands.launch_options import (
    Args,
    Block,
    Cluster,
    Cooperative,
    Flags,
    Grid,
    NoContract,
    ScheduleText,
    Shared,
    Target,
    split_flags,
)
from fragmenta.commands.options import Limit, Memory, Printed, Seconds
from fragmenta.commands.output import width
from fragmenta.commands.replays import Blocks, ReplayFrom
from fragmenta.errors import BadCall
from fragmenta.launch.limits import OUTPUT, SECONDS, Limits

if TYPE_CHECKING:
    from fragmenta.inspect.replay.recorded import Replay

_Words = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE... [KERNEL]",
        help="As for fragmenta launch; or a replay, or a recording of launches and "
        "the name of one, as .npz files.",
        show_default=False,
    ),
]


@command(
    "debug",
    "fragmenta debug kernel.ptx --block 32 --arg ones:f32:32",
    "fragmenta debug kernel.ptx --block 32 --arg ones:f32:32 -x commands.txt",
    "fragmenta debug kernel.ptx --block 32 --arg ones:f32:32 -e 'info warps'",
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
    blocks: Blocks = None,
    replay_from: ReplayFrom = None,
    no_contract: NoContract = False,
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
    execute: Annotated[
        list[str] | None,
        typer.Option(
            "--execute",
            "-e",
            metavar="COMMAND",
            help="Carry out a command; may be repeated.",
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

    The arguments are those of fragmenta launch.  Commands come from a terminal, from a
    pipe, from a file or from options; the exit status is 1 if one of them fails.
    Editors use --dap, as docs/debugger.md says.
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
        blocks,
        replay_from,
        no_contract,
        Limits(seconds, memory, printed, limit),
    )
    if dap:
        if script is not None or execute:
            raise BadCall("--dap takes no commands, neither by --script nor --execute")
        _adapt(how, port)
        return
    if port is not None:
        raise BadCall("--port needs --dap")
    if not words:
        raise BadCall("a kernel's file is missing, or --dap")
    if script is not None and not Path(script).is_file():
        raise BadCall(f"--script {script} is no file")
    if not converse(_recorded(how), width(), script, execute or ()):
        raise typer.Exit(NOTHING)


def _recorded(how: How) -> Replay:
    """The recording; an editor is answered before what makes it is loaded."""
    from fragmenta.commands.debug_launches import recorded

    return recorded(how)


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
    replay = _recorded(how)
    listen(port, lambda given: replay)


def _asked(how: How, given: Mapping[str, Any]) -> Replay:
    """The launch that a request names, or that of the command line."""
    program, args = given.get("program"), given.get("args") or []
    if program is None:
        if not how.words:
            raise BadCall(
                "program is missing: the file of the kernel; args are as for fragmenta "
                'launch, such as ["--block", "32"]'
            )
        return _recorded(how)
    listed = split_flags([args]) if isinstance(args, str) else args
    if not isinstance(program, str) or not isinstance(listed, list):
        raise BadCall("program is the file of a kernel, and args a list of words")
    known = parsed("debug", [program, *map(str, listed)])
    bounds = (known[name] for name in ("seconds", "memory", "printed", "limit"))
    fields = {name: known[name] for name in How._fields if name != "limits"}
    return _recorded(How(**fields, limits=Limits(*bounds)))
