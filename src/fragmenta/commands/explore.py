"""Can I look at it and play with it?"""

from __future__ import annotations

from typing import Annotated

import typer

from fragmenta.commands.app import command
from fragmenta.commands.arguments import complete_instruction, find_holding
from fragmenta.commands.files import Force, Output, check_output, save_text
from fragmenta.commands.output import emit
from fragmenta.errors import Error
from fragmenta.view import explorer


@command(
    "explore",
    "fragmenta explore",
    "fragmenta explore mma.sp.m16n8k64.s4.s4",
    "fragmenta explore -o explorer.html",
)
def explore(
    instruction: Annotated[
        str | None,
        typer.Argument(
            metavar="INSTRUCTION",
            help="The instruction to open first.",
            autocompletion=complete_instruction,
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
) -> None:
    op = None if instruction is None else find_holding(instruction, "explore")
    if output is None:
        if not explorer.show(op):
            raise Error(
                "no browser could be opened; fragmenta explore -o explorer.html "
                "writes the page to a file"
            )
        emit(explorer.address(op))
        return
    if op is not None:
        raise Error(
            "the page that -o writes has every instruction; leave out "
            f"{instruction!r}, or -o"
        )
    check_output(output, force)
    text = explorer.page()
    save_text(output, text, force)
    emit(f"{len(text.encode()) // 1024} KiB to {output}")
