"""The command ``idesc``: reads and writes instruction descriptors of ``tcgen05.mma``.

The fields of the 32-bit word differ with the kind.  Without a kind, the word is read in
every kind in which it is valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields
from typing import Annotated

import typer

from fragmenta.commands.app import command
from fragmenta.commands.arguments import number
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import emit, emit_json
from fragmenta.errors import BadCall, UnknownInstruction, ValueRangeError, one_of
from fragmenta.reference.isa.building import tcgen05
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.instruction_descriptor import (
    TABLES,
    InstructionDescriptor,
    check_kind,
)
from fragmenta.reference.isa.possible import possible_sizes
from fragmenta.reference.isa.tcgen05_shapes import OF_KIND

_GROUPS = ((1, False), (2, False), (1, True))

Word = Annotated[
    str | None,
    typer.Argument(
        metavar="[WORD]",
        help="The word to read, such as 0x08400010; without it, one is written.",
        show_default=False,
    ),
]


def _option(name: str, metavar: str, what: str) -> object:
    return typer.Option(name, metavar=metavar, help=what, show_default=False)


@command(
    "idesc",
    "fragmenta idesc 0x08400010 --kind f16",
    "fragmenta idesc --shape m128n256k16 --kind f16 --a f16 --d f32 --cta-group 1",
    "fragmenta idesc --shape m256n64k64 --a s8 --sp --cta-group 2 --set saturate",
)
def idesc(
    word: Word = None,
    kind: Annotated[
        str | None,
        _option("--kind", "KIND", "f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4 or mxf4nvf4."),
    ] = None,
    shape: Annotated[
        str | None, _option("--shape", "SHAPE", "The shape, such as m128n256k16.")
    ] = None,
    a: Annotated[str | None, _option("--a", "TYPE", "The type of A.")] = None,
    b: Annotated[
        str | None, _option("--b", "TYPE", "The type of B; by default that of A.")
    ] = None,
    d: Annotated[
        str | None,
        _option("--d", "TYPE", "The type of D; by default f32, or s32 of i8."),
    ] = None,
    scale: Annotated[
        str | None, _option("--scale", "TYPE", "The type of scales.")
    ] = None,
    scale_vec: Annotated[
        str | None, _option("--scale-vec", "SIZE", "1X, 2X, 4X, block16 or block32.")
    ] = None,
    group: Annotated[
        int, typer.Option("--cta-group", help="How many CTAs multiply together.")
    ] = 1,
    ws: Annotated[bool, typer.Option("--ws", help="Weight-stationary: .ws.")] = False,
    sp: Annotated[bool, typer.Option("--sp", help="With a sparse A: .sp.")] = False,
    others: Annotated[
        list[str] | None,
        _option(
            "--set",
            "FIELD",
            "Another field: its name, or NAME=NUMBER; may be repeated.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The fields are selector, saturate, negate_a, negate_b, transpose_a, transpose_b,
    max_shift, scale_a_id and scale_b_id.
    """
    writing = [shape, a, b, d, scale, scale_vec, ws or None, sp or None, others or None]
    if word is None:
        op = _written(
            shape, a, b, d, kind, scale, scale_vec, group, ws, sp, others or []
        )
        assert op.descriptor is not None
        _print([op.descriptor], as_json, op)
        return
    if any(each is not None for each in writing):
        raise BadCall(
            "a word is read, or written from --shape and types; both are given"
        )
    value = number(word, "an instruction descriptor")
    _print(_readings(value, kind), as_json)


def _written(
    shape: str | None,
    a: str | None,
    b: str | None,
    d: str | None,
    kind: str | None,
    scale: str | None,
    scale_vec: str | None,
    group: int,
    ws: bool,
    sp: bool,
    others: list[str],
) -> Instruction:
    """The instruction that the options describe."""
    if shape is None:
        raise BadCall("give a word to read, or --shape and --a to write one")
    if a is None and kind is None:
        raise BadCall("the type of A is missing: add --a, such as --a f16")
    a = a or OF_KIND[check_kind(kind)].operands[0]
    return tcgen05(
        shape,
        a,
        b,
        d,
        kind=kind,
        cta_group=group,
        sp=sp,
        ws=ws,
        scale=scale,
        scale_vec=scale_vec,
        collector="",
        ashift=False,
        **dict(_settings(others)),
    )


def _settings(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    """``transpose_b`` is 1; ``scale_a_id=2`` is 2."""
    taken = {"kind", "m", "n", "a", "b", "d", "scale", "sparse", "wide"}
    known = [f.name for f in fields(InstructionDescriptor) if f.name not in taken]
    for text in texts:
        name, _, value = text.replace("-", "_").partition("=")
        if name not in known:
            raise BadCall(f"--set takes {one_of(known)}; given {name!r}")
        yield name, number(value, f"--set {name}") if value else 1


def _readings(value: int, kind: str | None) -> list[InstructionDescriptor]:
    """The word decoded in one kind, or in all in which it is valid."""
    if kind is not None:
        return [InstructionDescriptor.decode(value, kind=kind)]
    found = []
    for each in TABLES:
        try:
            found.append(InstructionDescriptor.decode(value, kind=each))
        except UnknownInstruction:
            continue
    if not found:
        raise ValueRangeError(
            f"{value:#010x} is no instruction descriptor of any kind; "
            "--kind says what is wrong with it in one"
        )
    return found


def _print(
    found: list[InstructionDescriptor], as_json: bool, op: Instruction | None = None
) -> None:
    if as_json:
        records = [_record(each) for each in found]
        about = {"word": f"{found[0].encode():#010x}", "descriptors": records}
        emit_json({"instruction": str(op), **about} if op else about)
        return
    parts = [str(op)] if op else []
    for each in found:
        head = f"{each.encode():#010x}  kind {each.kind}: {each}"
        lines = [head, *map(str, each.fields()), *_mnemonics(each)]
        parts.append("\n".join(lines))
    emit("\n\n".join(parts))


def _record(found: InstructionDescriptor) -> dict[str, object]:
    return {
        "kind": found.kind,
        "shape": found.shape,
        "fields": [
            {"name": f.name, "bits": [f.low, f.high], "code": f.code, "value": f.value}
            for f in found.fields()
        ],
        "mnemonics": list(_fitting(found)),
    }


def _fitting(found: InstructionDescriptor) -> Iterator[str]:
    """The beginnings of the mnemonics that take this descriptor."""
    for group, ws in _GROUPS:
        try:
            found.check(group, ws=ws, sparse=found.sparse)
        except UnknownInstruction:
            continue
        words = f"tcgen05.mma{'.ws' * ws}{'.sp' * found.sparse}"
        yield f"{words}.cta_group::{group}.kind::{found.kind}"


def _mnemonics(found: InstructionDescriptor) -> list[str]:
    fitting = list(_fitting(found))
    if not fitting:
        return ["no tcgen05.mma takes it"]
    return [f"for {each}" for each in fitting]


# ── what a mnemonic leaves open ─────────────────────────────────────────────


def shape_lines(op: Instruction) -> list[str]:
    """The shapes that a mnemonic may have, a line for each M.

    >>> import fragmenta as fm
    >>> for line in shape_lines(fm.instruction("tcgen05.mma.cta_group::1.kind::i8")):
    ...     print(line)
    m64   k32  n 8, 16, 24, 32 to 256 by 16
    m128  k32  n 8, 16, 24, 32 to 256 by 16
    """
    return [f"m{m:<4} k{k:<3} n {_steps(ns)}" for m, ns, k in possible_sizes(op)]


def _steps(values: tuple[int, ...]) -> str:
    """Numbers, with the longest run at their end as ``32 to 256 by 16``."""
    step = values[-1] - values[-2]
    first = len(values) - 1
    while first and values[first] - values[first - 1] == step:
        first -= 1
    if len(values) - first < 4:
        return ", ".join(map(str, values))
    while values[first] % step:  # 24, 40, 56 would be no steps of 16
        first += 1
    run = f"{values[first]} to {values[-1]} by {step}"
    return ", ".join([*map(str, values[:first]), run])
