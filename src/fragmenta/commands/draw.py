"""What does an instruction look like?"""

from __future__ import annotations

from fragmenta.commands.app import command
from fragmenta.commands.arguments import (
    InstructionText,
    OperandName,
    find_holding,
    operand,
)
from fragmenta.commands.files import (
    Force,
    Output,
    check_output,
    picture_format,
    save_bytes,
)
from fragmenta.commands.output import colour, emit, paint, width
from fragmenta.registers.fragment import Fragment
from fragmenta.view import svg, terminal


@command(
    "draw",
    "fragmenta draw mma.m16n8k64.s4.s4 A",
    "fragmenta draw mma.sp.m16n8k64.s4.s4 -o sparse.svg",
    "fragmenta draw wgmma.m64n256k16.f32.f16 D -o d.svg",
)
def draw(
    instruction: InstructionText,
    operand_: OperandName = "",
    output: Output = None,
    force: Force = False,
) -> None:
    """The ending of the file's name says what is written: SVG, PNG or PDF."""
    op = find_holding(instruction, "draw")
    part = operand(op, operand_) if operand_ else None
    if output is not None:
        format = picture_format(output)
        check_output(output, force)
        picture = svg.convert(part.to_svg() if part else op.to_svg(), format)
        save_bytes(output, picture, force)
        emit(f"{op}\n{part.name if part else 'all operands'} drawn in {output}")
        return
    parts = [part] if part else list(op.fragments.values())
    emit(str(op))
    for each in parts:
        _print(each)


def _print(part: Fragment) -> None:
    if not colour():
        emit("\n" + terminal.plain(part, width()))
        return
    emit("")
    paint(terminal.painted(part, width()))
