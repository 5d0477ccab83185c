"""The command ``list``: instructions by words, family, type, shape and target."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated

import typer

from fragmenta.commands.app import NOTHING, command
from fragmenta.commands.options import AsJson
from fragmenta.commands.output import complain, emit, is_terminal, screen, write
from fragmenta.commands.summary import overview
from fragmenta.commands.targets import complete_target
from fragmenta.errors import UnknownInstruction, UnknownType, nearest
from fragmenta.frontends.api.instructions import public
from fragmenta.frontends.api.records import SCHEMA, brief, record
from fragmenta.reference.isa.families import FAMILIES, FORMS, catalogue
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.matching import fits
from fragmenta.reference.isa.possible import (
    TYPES,
    possible_shapes,
    possible_types,
    types_of,
)
from fragmenta.reference.isa.searching import find, search
from fragmenta.reference.isa.synonyms import meaning, meant_targets, vocabulary
from fragmenta.reference.isa.tcgen05_words import TYPES as TENSOR_TYPES
from fragmenta.reference.registers.dtype import nearest_type


def _complete_family(incomplete: str) -> list[str]:
    return [each for each in FAMILIES if each.startswith(incomplete)]


@command(
    "list",
    "fragmenta list --family mma.sp --type s4",
    "fragmenta list --shape 'm64n256k*' --long",
    "fragmenta list --target sm_75",
    "fragmenta list --family tcgen05.mma --shape m256n256k32 --type e4m3",
    "fragmenta list sparse fp8 hopper",
    "fragmenta list --type int8 --shape 16x8x32 --target ampere",
    "fragmenta list mma.sp s4 --full --json",
)
def list_(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[WORD]...",
            help="Only what has these words, such as fp8, sparse, hopper, 16x8x16, "
            "HMMA or qualifiers.",
            show_default=False,
        ),
    ] = None,
    family: Annotated[
        list[str] | None,
        typer.Option(
            "--family",
            metavar="FAMILY",
            help="Only this family, such as mma, wgmma.sp or ldmatrix; may be "
            "repeated.",
            autocompletion=_complete_family,
        ),
    ] = None,
    type_: Annotated[
        list[str] | None,
        typer.Option(
            "--type",
            metavar="TYPE",
            help="Only with an operand of this type, such as e4m3 or fp8; may be "
            "repeated.",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            "--shape",
            metavar="SHAPE",
            help="Only this shape, such as m16n8k64 or 16x8x64; * matches anything.",
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="TARGET",
            help="Only what this target has, such as sm_90a or hopper.",
            autocompletion=complete_target,
        ),
    ] = None,
    long: Annotated[
        bool, typer.Option("--long", "-l", help="Also print PTX versions and targets.")
    ] = False,
    full: Annotated[
        bool,
        typer.Option(
            "--full",
            help="Print all of a list that is longer than the screen; with --json, "
            "all about each instruction.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """A tcgen05.mma is listed by its mnemonic.  Shapes and types are those that its
    instruction descriptor may give it.

    A list that is longer than the screen of a terminal is summarised there; --full
    prints all of it.  A pipe and a file always get all.
    """
    found = _chosen(" ".join(words or ()), family or [], type_ or [], shape, target)
    if as_json:
        _write_json(found, full)
    elif len(found) > screen() and is_terminal() and not full:
        emit("\n".join(overview(found, _asked(words, family, type_, shape, target))))
    elif found and long:
        emit("\n".join(_long(found)))
    elif found:
        emit("\n".join(map(str, found)))
    if not found:
        complain("No instruction matches all of these options.")
        raise typer.Exit(NOTHING)


def _write_json(found: list[Instruction], full: bool) -> None:
    """Write records line by line, as they are made: a full record takes a while."""
    write(f'{{"schema": {SCHEMA}, "instructions": [')
    for number, op in enumerate(found):
        about = json.dumps(record(public(op)) if full else brief(op))
        write(f" {about}{',' * (number + 1 < len(found))}")
    write("]}")


def _asked(
    words: list[str] | None,
    families: list[str] | None,
    types: list[str] | None,
    shape: str | None,
    target: str | None,
) -> str:
    """The command line that asks the same again."""
    options = [
        *(("--family", each) for each in families or ()),
        *(("--type", each) for each in types or ()),
        *(("--shape", each) for each in (shape,) if each is not None),
        *(("--target", each) for each in (target,) if each is not None),
    ]
    given = [*(words or ()), *(text for pair in options for text in pair)]
    return shlex.join(["fragmenta", "list", *given])


def _chosen(
    words: str,
    families: list[str],
    types: list[str],
    shape: str | None,
    target: str | None,
) -> list[Instruction]:
    shapes = {word for form in FORMS for word in form.vocabulary("shape") if word}
    types = [each.lstrip(".").lower() for each in types]
    said = [each for each in types if (m := meaning(each)) and m.types]
    plain = {each for each in types if each not in said}
    shape = shape and _spelled(shape.lower())
    for each in families:
        _known("family", each, FAMILIES)
    for each in plain:
        _known("type", each, _types(), vocabulary())
    found = [
        op
        for op in (_found(words) if words else catalogue())
        if (not families or op.family in families)
        and plain <= {*types_of(op).values(), *possible_types(op)}
        and (not said or fits(op, said))
        and (shape is None or _has_shape(op, shape))
    ]
    if target is not None:
        places = meant_targets(target)
        found = [op for op in found if any(op.supported_on(t) for t in places)]
    if shape is not None and not found and not _exists(shape, shapes):
        raise UnknownInstruction(
            f"no instruction has the shape {shape}{nearest(shape, shapes)}"
        )
    return found


def _found(words: str) -> list[Instruction]:
    """Instructions with these words; the error says why there are none."""
    return search(words, every=True) or [find(words)]


def _types() -> list[str]:
    words = {v for form in FORMS for t in TYPES for v in form.vocabulary(t) if v}
    return sorted(words | TENSOR_TYPES)


def _spelled(shape: str) -> str:
    """A shape as PTX writes it: m16n8k64 for 16x8x64 and 16864."""
    meant = meaning(shape)
    return meant.shapes[0] if meant and meant.shapes else shape


def _exists(wanted: str, shapes: Iterable[str]) -> bool:
    if any(fnmatchcase(each, wanted) for each in shapes):
        return True
    return any(_has_shape(op, wanted) for op in catalogue() if op.tensor_memory)


def _has_shape(op: Instruction, wanted: str) -> bool:
    """Whether its shape, or one that a descriptor may give it, matches."""
    if op.tensor_memory:
        return any(fnmatchcase(str(each), wanted) for each in possible_shapes(op))
    return "shape" in op.values and fnmatchcase(op.values["shape"], wanted)


def _known(
    what: str, given: str, allowed: Iterable[str], said: Iterable[str] = ()
) -> None:
    """Refuse what is not allowed; a hint may also be a word that people say."""
    allowed = list(allowed)
    if given not in allowed:
        near = nearest_type if what == "type" else nearest
        hint = near(given, [*allowed, *said])
        raise (UnknownType if what == "type" else UnknownInstruction)(
            f"unknown {what} {given!r}{hint}; known: {', '.join(allowed)}"
        )


def _long(found: list[Instruction]) -> list[str]:
    """Lines of PTX version, targets and mnemonic; the widest column is last."""
    rows = [(f"PTX {op.requires.ptx}", op.requires.text, str(op)) for op in found]
    ptx, targets = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{row[0]:<{ptx}}  {row[1]:<{targets}}  {row[2]}" for row in rows]
