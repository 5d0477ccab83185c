"""Nothing is wrong with files that ptxas takes, and what it refuses is found."""

from __future__ import annotations

import random
import re

import pytest

from fragmenta import catalogue
from fragmenta.cuda.tools import assembler
from fragmenta.ptx.checking.texts import check_text
from tests.ptx.checking.kernels import errors, files

FILES = dict(files())


@pytest.mark.parametrize("name", FILES)
def test_a_file_without_errors(name: str) -> None:
    assert FILES[name]
    assert not errors(FILES[name])
    warned = [each for each in check_text(FILES[name]) if each.severity == "warning"]
    assert {each.rule for each in warned} <= {"deprecated"}


def test_what_this_library_writes() -> None:
    ops = [op for op in catalogue() if op.fragments]
    for op in ops[::40]:
        problems = check_text(op.to_ptx())
        wrong = [each for each in problems if each.severity != "info"]
        assert {each.rule for each in wrong} <= {"deprecated"}, op


# ── one wrong word at a time ────────────────────────────────────────────────

_LINE = re.compile(
    r"^(\s*(?:@!?%\w+\s+)?)([a-z]\w*(?:\.\w+(?:::\w+)*)*)\s+([^;:]*);\s*$"
)
_TYPES = [
    "b8",
    "b16",
    "b32",
    "b64",
    "u16",
    "u32",
    "u64",
    "s16",
    "s32",
    "s64",
    "f16",
    "f32",
    "f64",
    "bf16x2",
    "pred",
]
_WORDS = [
    "global",
    "shared",
    "ftz",
    "sat",
    "rn",
    "v2",
    "lo",
    "wide",
    "relaxed",
    "gpu",
    "sync",
    "uni",
    "cg",
    "nc",
    "noftz",
]


def mutated(line: str, registers: list[str], draw: random.Random) -> str | None:
    """The line with one thing changed; None if it is no plain instruction."""
    found = _LINE.match(line)
    if found is None or found[2].split(".")[0] == "call":
        return None
    guard, mnemonic, operands = found.groups()
    opcode, *words = mnemonic.split(".")
    names = list(re.finditer(r"%[a-z]+\d+", operands))
    typed = [i for i, word in enumerate(words) if word in _TYPES]
    kind = draw.choice(("type", "register", "register", "constant", "word", "less"))
    if kind == "type" and typed:
        words[draw.choice(typed)] = draw.choice(_TYPES)
    elif kind in ("register", "constant") and names:
        name = draw.choice(names)
        other = draw.choice(registers if kind == "register" else ["5", "1.0"])
        operands = operands[: name.start()] + other + operands[name.end() :]
    elif kind == "word" and words:
        words[draw.randrange(len(words))] = draw.choice(_WORDS)
    elif kind == "less" and "," in operands and "{" not in operands:
        operands = operands.rpartition(",")[0]
    else:
        return None
    return f"{guard}{'.'.join((opcode, *words))} {operands};"


def verdicts(lines: list[str], target: str) -> dict[int, str]:
    """What ptxas says of each line, by its number; code is not generated."""
    said = assembler._run(lines, target.replace("sm_", "compute_")).stdout
    found = assembler._MESSAGE.findall(said)
    return {int(line): message for line, _, message in reversed(found)}


def judged(
    lines: list[str], changes: dict[int, str], target: str
) -> tuple[dict[int, str], dict[int, str]]:
    """What ptxas and what the check say of lines that were changed.

    A line that cannot be parsed hides the others, and is judged alone.
    """
    theirs, ours, left = {}, {}, dict(changes)
    while left:
        text = [left.get(place, line) for place, line in enumerate(lines)]
        said = verdicts(text, target)
        hiding = [n for n, why in said.items() if why.startswith("Parsing error")]
        found = {each.line: each for each in errors("\n".join(text) + "\n")}
        unread = [n for n, each in found.items() if each.rule == "syntax"]
        for number in hiding or unread:
            theirs[number - 1] = said.get(number, "")
            alone = [*lines[: number - 1], left.pop(number - 1), *lines[number:]]
            ours[number - 1] = "; ".join(map(str, errors("\n".join(alone) + "\n")))
        if not hiding and not unread:
            for place in left:
                theirs[place] = said.get(place + 1, "")
                ours[place] = found[place + 1].message if place + 1 in found else ""
            break
    return theirs, ours


def test_what_ptxas_refuses_is_found_and_nothing_else() -> None:
    draw = random.Random(3)
    both = missed = taken = 0
    alarms = []
    for text in FILES.values():
        lines, target = text.splitlines(), re.search(r"\.target\s+(sm_\w+)", text)
        declared = re.findall(r"\.reg\s+\.\w+\s+(%\w+)<(\d+)>", text)
        registers = [f"{name}{int(count) - 1}" for name, count in declared]
        if target is None or not registers or target[1] == "sm_70":
            continue
        for _ in range(3):
            places = draw.sample(range(len(lines)), min(60, len(lines)))
            tried = {place: mutated(lines[place], registers, draw) for place in places}
            changes = {
                place: changed
                for place, changed in tried.items()
                if changed is not None and changed != lines[place]
            }
            theirs, ours = judged(lines, changes, target[1])
            both += sum(bool(theirs[place] and ours[place]) for place in theirs)
            missed += sum(bool(theirs[place]) and not ours[place] for place in theirs)
            taken += sum(not theirs[place] for place in theirs)
            alarms += [(changes[p], ours[p]) for p in ours if ours[p] and not theirs[p]]
    assert both > 200
    assert taken > 50
    assert missed <= both // 50
    assert not alarms
