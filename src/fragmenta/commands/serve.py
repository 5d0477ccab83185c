"""The command ``serve``: launches kernels for other programs."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from typing import Annotated

import typer

from fragmenta.commands.app import command
from fragmenta.commands.options import AsJson, Limit, Memory, Printed, Seconds
from fragmenta.commands.output import emit, write
from fragmenta.commands.serve_connections import (
    Bridge,
    Server,
    ServingPool,
    Socket,
    open_socket,
)
from fragmenta.commands.serve_requests import PROTOCOL, Folders
from fragmenta.errors import BadCall
from fragmenta.frontends.pool.confining import check_system
from fragmenta.frontends.pool.pool import LAUNCHES, Pool
from fragmenta.launch.limits import OUTPUT, SECONDS, Limits

INTERRUPTED = 130


@command(
    "serve",
    "fragmenta serve --workers 2 --seconds 10",
    "fragmenta serve --stdio > replies.jsonl",
    "fragmenta serve --socket my.sock --allow .",
)
def serve(
    socket_path: Annotated[
        str | None,
        typer.Option(
            "--socket",
            metavar="PATH",
            help="Where to listen; by default in a new folder, which is printed.",
            show_default=False,
        ),
    ] = None,
    stdio: Annotated[
        bool,
        typer.Option("--stdio", help="Read requests from stdin, answer to stdout."),
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            help="Launches that run at the same time; by default one on each core.",
            show_default=False,
        ),
    ] = None,
    launches: Annotated[
        int,
        typer.Option(
            "--launches", help="Launches of a process; with 1, each has one of its own."
        ),
    ] = LAUNCHES,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            "--allow",
            metavar="FOLDER",
            help="A folder whose files requests may name; without it, none.",
            show_default=False,
        ),
    ] = None,
    seconds: Seconds = SECONDS,
    memory: Memory = None,
    printed: Printed = OUTPUT,
    limit: Limit = None,
    as_json: AsJson = False,
) -> None:
    r"""Requests and replies are JSON objects, one in a line, as docs/serve.md says:

    \b
      {"id": 1, "op": "launch", "ptx": "...", "grid": 1, "block": 32,
       "arguments": ["ones:f32:32", 7], "limits": {"seconds": 2}}
      {"id": 2, "op": "check", "ptx": "..."}
      {"id": 1, "op": "cancel"}
      {"op": "shutdown"}

    Launches run in processes that stay warm, each under limits.  Only this user can
    connect.  The server ends with Ctrl-C, with shutdown, or with the end of stdin.
    """
    check_system()
    if stdio and socket_path is not None:
        raise BadCall("--stdio and --socket cannot both be given")
    folders = Folders.of(allow or ())
    place = None if stdio else open_socket(socket_path)
    try:
        limits = Limits(seconds, memory, printed, limit)
        with ServingPool(place, workers, launches, limits) as pool:
            if place is not None:
                _announce(place, as_json)
            ended = asyncio.run(_serve(pool, folders, place))
            pool.close(cancel=True)
    finally:
        if place is not None:
            place.remove()
    if ended == signal.SIGINT:
        raise typer.Exit(INTERRUPTED)


def _announce(place: Socket, as_json: bool) -> None:
    if as_json:
        said = {"event": "listening", "socket": place.path, "protocol": PROTOCOL}
        write(json.dumps(said))
    else:
        emit(f"listening at {place.path}")
    sys.stdout.flush()


async def _serve(pool: Pool, folders: Folders, place: Socket | None) -> int:
    """Serve until the end; the signal that ended it, if one did."""
    server = Server(pool, folders)
    if place is not None:
        await server.listen(place.listening)
    else:
        bridge = Bridge(0, 1)
        await server.serve(bridge.ours)
        bridge.finish()
    return server.signal
