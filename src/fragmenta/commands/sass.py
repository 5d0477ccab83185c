"""The command ``which`` for machine instructions: from SASS to PTX and back."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from textwrap import wrap

from fragmenta.commands.arguments import find
from fragmenta.commands.output import emit, emit_json, width
from fragmenta.errors import BadCall, UnknownInstruction, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.sass import (
    Origin,
    by_architecture,
    from_sass,
    is_machine_name,
    machine_name,
    names,
    names_below,
    sass,
    targets_text,
)
from fragmenta.reference.isa.synonyms import named_target

MOST = 8
"""The most instructions under one name, and the most names in full."""
NAMES = 48
"""The most names in a list."""


def print_machine(
    text: str, idesc: str | None, target: str | None, as_json: bool
) -> None:
    """Print the PTX of a machine instruction, or the SASS of one of PTX."""
    if not is_machine_name(text):
        _print_code(find(text, idesc), target, as_json)
        return
    if idesc is not None:
        raise BadCall("a machine instruction has no --idesc; leave it out")
    if target is not None:  # a word may mean several, if they write the same
        target = named_target(target, same=lambda each: _written_on(text, each))
    origins = from_sass(text, target)
    if as_json:
        emit_json(_about(machine_name(text), origins))
        return
    found = sorted({origin.name for origin in origins}, key=_numbered)
    if len(found) > MOST:
        emit("\n".join(_listed(machine_name(text), found)))
        return
    lines = []
    for name in found:
        lines += [name, *_block([each for each in origins if each.name == name])]
    emit("\n".join([*lines, *_further(machine_name(text), origins)]))


def _written_on(text: str, target: str) -> object:
    """A key that is equal for targets with the same origins."""
    try:
        found = from_sass(text, target)
    except UnknownInstruction:
        return None
    return tuple((each.name, str(each.instruction), each.alone) for each in found)


def _numbered(name: str) -> list[tuple[int, str]]:
    """The parts of a name, so that 64x8x16 comes before 64x16x16."""
    return [(int(each or 0), rest) for each, rest in re.findall(r"(\d*)(\D*)", name)]


def _listed(name: str, found: list[str]) -> Iterator[str]:
    """Many names, in columns."""
    yield f"{name} fits {len(found)} machine instructions"
    shown = found[:NAMES]
    wide = max(map(len, shown)) + 2
    columns = max(1, (width() - 2) // wide)
    for at in range(0, len(shown), columns):
        line = "".join(each.ljust(wide) for each in shown[at : at + columns])
        yield f"  {line}".rstrip()
    if len(found) > len(shown):
        yield f"  and {len(found) - len(shown)} more, which --json lists"
    yield f"more about one of them:\n  fragmenta which {found[0]}"


def _about(name: str, origins: Iterable[Origin]) -> dict[str, object]:
    return {
        "name": name,
        "origins": [
            {
                "name": each.name,
                "instruction": str(each.instruction),
                "targets": each.targets,
                "alone": each.alone,
                "sass": str(sass(each.instruction, each.targets[0])),
            }
            for each in origins
        ],
    }


def _block(origins: list[Origin]) -> Iterator[str]:
    """The instructions of one name: those that are it, then those that contain it."""
    alone: dict[str, list[Origin]] = {}
    for each in origins:
        if each.alone:
            alone.setdefault(targets_text(each.targets), []).append(each)
    for where, some in alone.items():
        yield from (f"  is {each.instruction}" for each in some[:MOST])
        if len(some) > MOST:
            yield f"  and {len(some) - MOST} more, which --json lists"
        yield f"     on {where}"
    groups: dict[tuple[str, str], list[Origin]] = {}
    for each in origins:
        if not each.alone:
            to = each.instruction.expanded_to(each.targets[0]) or ""
            groups.setdefault((each.instruction.family, to), []).append(each)
    for (family, to), some in groups.items():
        have = dict.fromkeys(target for each in some for target in each.targets)
        many = f"part of {len(some)} {family}, such as" if len(some) > 1 else "part of"
        yield f"  is {many}"
        yield f"     {some[0].instruction}"
        yield f"     on {targets_text(have)}{f', expanded to {to}' if to else ''}"


def _further(name: str, origins: tuple[Origin, ...]) -> Iterator[str]:
    """The fragments, longer names and the next command."""
    ops = list(dict.fromkeys(each.instruction for each in origins if each.alone))
    first = ops[0] if ops else origins[0].instruction
    if len(ops) == 1:
        yield from _held(first)
    below = names_below(name) if names(name) == (name,) else ()
    if below:
        more = len(below) - MOST
        listed = [*below[:MOST], f"{more} more"] if more > 1 else below
        text = f"longer names: {one_of(listed, 'and')}"
        yield from wrap(text, width(), break_long_words=False)
    yield f"more: fragmenta show {first}"


def _held(op: Instruction) -> Iterator[str]:
    """One line for each layout."""
    alike: dict[str, list[str]] = {}
    for part in op.fragments.values():
        size = " x ".join(map(str, part.shape))
        alike.setdefault(f"{size} {part.dtype}: {part.layout}", []).append(part.name)
    yield from (f"{' and '.join(names)}: {text}" for text, names in alike.items())


def _print_code(op: Instruction, target: str | None, as_json: bool) -> None:
    if target is not None:  # a word may mean several, if their code is the same
        have = op.requires.targets
        target = named_target(target, have, lambda each: sass(op, each).code)
    one = [] if target is None else [(target, sass(op, target))]
    found = one or by_architecture(op)
    if as_json:
        targets = op.requires.targets if target is None else (target,)
        about = {each: sass(op, each).to_dict() for each in targets}
        emit_json({"instruction": str(op), "sass": about})
        return
    lines = [str(op)]
    for where, code in found:
        lines += wrap(
            f"{where}: {code}",
            width(),
            initial_indent="  ",
            subsequent_indent="    ",
            break_long_words=False,
        )
    emit("\n".join(lines))
