"""Checks that a file is a recording that can be replayed.

A recording may come from anywhere, so it is checked once, when it is loaded: every
field is present and of its type, the instructions exist, the target has them, and each
case has as many answers as it names.  Replaying needs no further checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields
from math import prod
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays.checks import is_whole
from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.base.arrays.npy import Archive, read
from fragmenta.cuda.tools.device import Array
from fragmenta.errors import BadFile, Error, one_of
from fragmenta.reference.isa.instruction import Instruction
from fragmenta.reference.isa.reading import instruction
from fragmenta.reference.isa.target import check_target_name

RecordedWords = NDArray[np.uint32]

_DIGEST = re.compile(r"[0-9a-f]{16}")
_LARGE = 1 << 63
"""Whole numbers of a recording lie below this."""


@dataclass(frozen=True)
class RecordedCase:
    """A case as a file keeps it, and the place of its answer among the words."""

    kind: str
    """Which module made the case, such as ``registers``."""
    instruction: str
    selector: int | None
    tiles: int
    seed: int
    digest: str
    start: int
    shape: tuple[int, ...]
    variant: dict[str, object] | int | None = None
    """What else determines the case; it depends on the kind."""


class Content(NamedTuple):
    """The parts of a recording, before its cases are checked."""

    made: dict[str, str]
    cases: list[dict[str, object]]
    words: RecordedWords


@contextmanager
def refused(what: str) -> Iterator[None]:
    """Put before the message of each error what is refused."""
    try:
        yield
    except Error as why:
        raise BadFile(f"{what}: {why}") from None


def content(path: Path) -> Content:
    """The parts of a recording, each of the right type."""
    with refused(f"{path} is not a recording"):
        found = read(path)
        if not isinstance(found, Archive) or not {"about", "words"} <= set(found):
            raise BadFile("it is an archive of about and words")
        words, about = found["words"], json_of(found["about"], "about")
        if words.ndim != 1 or words.dtype != np.uint32:
            raise BadFile(
                f"words are uint32; given {words.dtype} of shape {words.shape}"
            )
        made, cases = check_made(about.get("made")), about.get("cases")
        if not isinstance(cases, list) or not cases:
            raise BadFile("it has no cases")
        for each in cases:
            if not isinstance(each, dict):
                raise BadFile(f"a case has names and values; given {short(each)}")
        check_target_name(made.get("target", ""))
        return Content(made, cases, words)


def check_made(made: object) -> dict[str, str]:
    """The versions that made a recording, if all of them are texts."""
    if not isinstance(made, dict) or not all(is_text(x) for x in made.values()):
        raise BadFile("made says what made it, in words")
    return made


def json_of(written: Array, what: str) -> dict[str, Any]:
    """Names and values that are kept as bytes of JSON."""
    if written.ndim != 1 or written.dtype != np.uint8:
        raise BadFile(
            f"{what} is bytes; given {written.dtype} of shape {written.shape}"
        )
    try:
        found = json.loads(written.tobytes())
    except (ValueError, RecursionError) as why:
        raise BadFile(f"{what} is not JSON ({why})") from None
    if not isinstance(found, dict):
        raise BadFile(f"{what} has names and values; given {short(found)}")
    return found


# ── the fields of a case ────────────────────────────────────────────────────


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is text."""
    return isinstance(value, str)


def is_number(value: object) -> TypeGuard[int]:
    """Whether a value is a whole number that 64 bits hold."""
    return isinstance(value, int) and is_whole(value) and -_LARGE <= value < _LARGE


def is_count(value: object) -> TypeGuard[int]:
    """Whether a value is such a number, 0 or more."""
    return is_number(value) and value >= 0


def is_shape(value: object) -> bool:
    """Whether a value is a list of counts."""
    return isinstance(value, list) and all(map(is_count, value))


class Rule(NamedTuple):
    """The values that a field may have: a predicate, and the same in words."""

    allows: Callable[[object], bool]
    what: str


# The rules for the fields of a case.
RULES = {
    "kind": Rule(is_text, "text"),
    "instruction": Rule(is_text, "text"),
    "selector": Rule(lambda x: x is None or is_count(x), "a whole number or null"),
    "tiles": Rule(lambda x: is_count(x) and x > 0, "a whole number, 1 or more"),
    "seed": Rule(is_number, "a whole number"),
    "digest": Rule(
        lambda x: is_text(x) and bool(_DIGEST.fullmatch(x)), "16 hexadecimal digits"
    ),
    "start": Rule(is_count, "a whole number, 0 or more"),
    "shape": Rule(is_shape, "a list of whole numbers"),
    "variant": Rule(
        lambda x: x is None or isinstance(x, dict) or is_count(x),
        "names and values, a number or null",
    ),
}


def recorded_case(given: object) -> RecordedCase:
    """A case of a file, after its fields have been checked."""
    wanted = {each.name: each.default is MISSING for each in fields(RecordedCase)}
    found = check_fields(given, wanted, RULES, "a case")
    return RecordedCase(**{**found, "shape": tuple(found["shape"])})


def check_fields(
    given: object, wanted: Mapping[str, bool], rules: Mapping[str, Rule], what: str
) -> dict[str, Any]:
    """The fields, if none is missing, unknown, or of a wrong value.

    ``wanted`` says of each field whether it is required.
    """
    if not isinstance(given, dict):
        raise BadFile(f"{what} has names and values; given {short(given)}")
    missing = [name for name, needed in wanted.items() if needed and name not in given]
    unknown = [name for name in given if name not in wanted]
    if missing or unknown:
        raise BadFile(
            f"{what} has {one_of(wanted, 'and')}; "
            + (f"{missing[0]} is missing" if missing else f"not {short(unknown[0])}")
        )
    for name, value in given.items():
        if not rules[name].allows(value):
            raise BadFile(f"{name} is {rules[name].what}; given {short(value)}")
    return given


def recorded_instruction(
    recorded: RecordedCase, families: Sequence[str], target: str
) -> Instruction:
    """The instruction of a case, if it is of some families and the target has it."""
    op = instruction(recorded.instruction)
    if op.family not in families:
        raise BadFile(
            f"a recording of kind {recorded.kind} is of {one_of(families)}; given {op}"
        )
    if not op.supported_on(target):
        raise BadFile(f"{target} does not have {op}")
    return op


def check_answer(
    recorded: RecordedCase,
    form: tuple[tuple[int, ...], np.dtype[np.unsignedinteger]],
    words: int,
) -> None:
    """Refuse a case whose answer does not have the shape of its inputs."""
    shape, kind = form
    if recorded.shape != shape:
        raise BadFile(
            f"{recorded.tiles} tiles have answers of shape {list(shape)}; given "
            f"{list(recorded.shape)}"
        )
    end = recorded.start + prod(shape) * kind.itemsize // 4
    if end > words:
        raise BadFile(
            f"its answers end with word {end - 1}, and there are {words} words"
        )


def short(value: object) -> str:
    """A value as text that fits a message."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python writes
        text = "a very large number"
    return text if len(text) <= 40 else f"{text[:37]}..."
