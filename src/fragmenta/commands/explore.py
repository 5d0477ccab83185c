"""The command ``explore``: opens the explorer, or writes its page."""

from __future__ import annotations

from typing import Annotated

import typer

from fragmenta.commands.app import command
from fragmenta.commands.arguments import Idesc, complete_instruction, find_holding
from fragmenta.commands.files import Force, Output, check_output, save_text
from fragmenta.commands.output import emit
from fragmenta.errors import Error, UnknownInstruction
from fragmenta.inspect.view import explorer
from fragmenta.inspect.view.explorer_data import holding
from fragmenta.reference.isa.instruction import Instruction


@command(
    "explore",
    "fragmenta explore",
    "fragmenta explore mma.sp.m16n8k64.s4.s4",
    "fragmenta explore -o explorer.html",
    "fragmenta explore wgmma.m64n128k16.f32.f16 -o wgmma.html",
)
def explore(
    instruction: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="INSTRUCTION...",
            help="The instruction to open first.",
            autocompletion=complete_instruction,
            show_default=False,
        ),
    ] = None,
    output: Output = None,
    idesc: Idesc = None,
    force: Force = False,
) -> None:
    text = " ".join(instruction or ())
    op = find_holding(text, "explore", idesc) if text else None
    if op is not None and op.tensor_memory:
        _check_listed(op)
    if output is None:
        if not explorer.show(op):
            raise Error(
                "no browser could be opened; fragmenta explore -o explorer.html "
                "writes the page to a file"
            )
        emit(explorer.address(op))
        return
    check_output(output, force)
    page = explorer.page(op)
    save_text(output, page, force)
    opened = "" if op is None else f", which opens at {op}"
    emit(f"{len(page.encode()) // 1024} KiB to {output}{opened}")


def _check_listed(op: Instruction) -> None:
    """The page has every shape of ``tcgen05.mma``, but not all types and majors."""
    found = [each for each in holding() if each.tensor_memory]
    if op in found:
        return

    def far(other: Instruction) -> tuple[int, ...]:
        names = ("kind", "cta_group", "a", "d")
        return (
            other.family != op.family,
            *(other.values.get(name) != op.values.get(name) for name in names),
            other.shape.m != op.shape.m,
            abs(other.shape.n - op.shape.n),
        )

    near = min(found, key=far)
    types = f"{near.values['d']}.{near.values['a']}"
    kind = f"kind::{near.kind}." if near.scale_vec else ""
    group = "cta_group::2." if near.cta_group == 2 else ""
    words = near.family.replace("tcgen05.mma", "tcgen05")
    raise UnknownInstruction(
        f"the page has only some types of tcgen05.mma; nearest: "
        f"{words}.{group}{kind}{near.shape}.{types}; fragmenta draw draws every one"
    )
