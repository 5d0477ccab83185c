"""The command ``emit``: CUDA C++ and PTX for instructions."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from fragmenta.commands.app import command
from fragmenta.commands.arguments import HELP_OF_SEVERAL, complete_instruction, find
from fragmenta.commands.files import Force, Output, check_output, save_text
from fragmenta.commands.output import printable, write
from fragmenta.commands.shell_words import grouped
from fragmenta.commands.targets import complete_target, target_of
from fragmenta.cuda.source import emit as library
from fragmenta.cuda.source.ptx import MmaOptions
from fragmenta.errors import BadCall, UnknownOperand, nearest, one_of


@command(
    "emit",
    "fragmenta emit mma.sp.m16n8k32.f32.f16",
    "fragmenta emit wgmma.m64n64k32.f32.e4m3.e4m3 --a-registers",
    "fragmenta emit mma.m16n8k64.s4.s4 --language ptx --target sm_80",
    "fragmenta emit 'tcgen05.mma.cta_group::1.kind::f16 0x08400010' --kernel",
    "fragmenta emit mma m16n8k16 bf16 --language ptx --target hopper",
    "fragmenta emit mma.m16n8k16.f32 mma.m16n8k32.s8.s8 --header -o mma.cuh",
)
def emit(
    instruction: Annotated[
        list[str],
        typer.Argument(
            metavar="INSTRUCTION...",
            help=HELP_OF_SEVERAL,
            autocompletion=complete_instruction,
            show_default=False,
        ),
    ],
    language: Annotated[
        Literal["cuda", "ptx"],
        typer.Option(help="CUDA functions to paste, or a whole PTX module."),
    ] = "cuda",
    header: Annotated[
        bool,
        typer.Option(
            "--header", help="Write one .cuh file for every instruction that matches."
        ),
    ] = False,
    a_registers: Annotated[
        bool,
        typer.Option("--a-registers", help="Read A of wgmma from registers."),
    ] = False,
    kernel: Annotated[
        bool,
        typer.Option(
            "--kernel", help="Write a whole kernel that multiplies with tcgen05.mma."
        ),
    ] = False,
    a_tensor: Annotated[
        bool,
        typer.Option("--a-tensor", help="Read A of tcgen05.mma from tensor memory."),
    ] = False,
    operand: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="OPERAND",
            help="An operand that tcgen05.mma may take: disable_output_lane, "
            "scale_input_d or zero_column_mask.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="The target of the PTX, such as sm_80 or hopper; default: the first.",
            autocompletion=complete_target,
        ),
    ] = None,
    output: Output = None,
    force: Force = False,
) -> None:
    if target is not None and language == "cuda":
        raise BadCall("--target needs --language ptx; CUDA code is for every target")
    if output is not None:
        check_output(output, force)
    texts = grouped(instruction)
    text = library.emit(
        texts,
        language=language,
        as_header=header,
        a_registers=a_registers,
        target=target_of(target, find(texts[0])) if target else None,
        kernel=kernel,
        options=_options(a_tensor, operand or []),
    )
    if output is None:
        write(text.rstrip("\n"))
        return
    save_text(output, text, force)
    lines = len(text.splitlines())
    what = "PTX" if language == "ptx" else "CUDA"
    write(printable(f"{lines} lines of {what} to {output}"))


def _options(a_tensor: bool, operands: list[str]) -> MmaOptions:
    known = MmaOptions._fields[1:]
    for each in operands:
        if each not in known:
            raise UnknownOperand(
                f"no operand {each}{nearest(each, known)}; --with takes {one_of(known)}"
            )
    return MmaOptions(a_tensor, **dict.fromkeys(operands, True))
