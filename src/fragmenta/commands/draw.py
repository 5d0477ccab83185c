"""The command ``draw``: pictures of an instruction or of one operand."""

from __future__ import annotations

from typing import Annotated

import typer

from fragmenta.base.arrays.checks import Array
from fragmenta.commands.app import command
from fragmenta.commands.arguments import (
    Idesc,
    InstructionText,
    OperandName,
    find_holding,
    operand,
)
from fragmenta.commands.files import (
    Force,
    Output,
    check_output,
    complete_file,
    load_matrix,
    picture_format,
    save_bytes,
)
from fragmenta.commands.output import colour, emit, paint, width
from fragmenta.errors import BadCall
from fragmenta.frontends.api.instructions import public
from fragmenta.inspect.view import svg, terminal
from fragmenta.inspect.view.grid import value_texts
from fragmenta.inspect.view.path import path_svg
from fragmenta.reference.registers.fragment import Fragment


@command(
    "draw",
    "fragmenta draw mma.m16n8k64.s4.s4 A",
    "fragmenta draw mma.sp.m16n8k64.s4.s4 -o sparse.svg",
    "fragmenta draw wgmma.m64n256k16.f32.f16 D -o d.svg",
    "fragmenta draw tcgen05.m128n256k16.f32.f16 -o tensor-memory.svg",
    "fragmenta draw tcgen05.m128n256k16.f32.f16 --path -o path.svg",
    "fragmenta draw mma.m16n8k16.f32.f16 A --values tile.npy",
)
def draw(
    instruction: InstructionText,
    operand_: OperandName = "",
    output: Output = None,
    path: Annotated[
        bool,
        typer.Option(
            "--path",
            help="Draw the way from shared memory through tensor memory to registers.",
        ),
    ] = False,
    values: Annotated[
        str | None,
        typer.Option(
            "--values",
            metavar="FILE",
            help="Draw the values of this file of a matrix in the cells of an operand.",
            autocompletion=complete_file,
            show_default=False,
        ),
    ] = None,
    idesc: Idesc = None,
    force: Force = False,
) -> None:
    """The ending of the file's name says what is written: SVG, PNG or PDF.  Of a
    tcgen05.mma, it is a picture of tensor memory with all operands.
    """
    op = find_holding(instruction, "draw", idesc)
    part = operand(op, operand_) if operand_ else None
    if values is not None and (part is None or path):
        raise BadCall(f"--values {values} needs an operand to draw it in, such as A")
    shown = None if values is None or part is None else load_matrix(values, part.dtype)
    if path:
        _check_path(operand_, output)
        assert output is not None
        check_output(output, force)
        save_bytes(output, svg.convert(path_svg(op), picture_format(output)), force)
        emit(f"{op}\nthe path of its operands drawn in {output}")
        return
    if output is not None:
        format = picture_format(output)
        check_output(output, force)
        picture = svg.convert(
            svg.fragment_svg(part, shown) if part else public(op).to_svg(), format
        )
        save_bytes(output, picture, force)
        emit(f"{op}\n{part.name if part else 'all operands'} drawn in {output}")
        return
    parts = [part] if part else list(op.fragments.values())
    if part is not None and shown is not None:
        value_texts(part, shown)  # refuses what the operand cannot hold
    emit(str(op))
    for each in parts:
        _print(each, shown)


def _check_path(name: str, output: object) -> None:
    if name:
        raise BadCall(f"--path draws all operands; leave out {name!r}, or --path")
    if output is None:
        raise BadCall("--path draws into a file; add -o path.svg")


def _print(part: Fragment, values: Array | None) -> None:
    if not colour():
        emit("\n" + terminal.plain(part, width(), values))
        return
    emit("")
    paint(terminal.painted(part, width(), values))
