"""Checks the fields of a recorded launch, before it is replayed.

Each field of a launch and of its arguments must be present and of its type, and arrays
and changes must have the sizes that the file gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import Any, NamedTuple, TypeGuard, cast

import numpy as np

from fragmenta.errors import BadFile, Error, nearest, one_of
from fragmenta.inspect.evidence.arguments import MOST_BYTES, TYPES, Spec
from fragmenta.inspect.evidence.validation import (
    RULES,
    Rule,
    check_fields,
    is_count,
    is_number,
    is_shape,
    is_text,
    short,
)

MOST_EXPONENT = 1100
"""No type has exponents beyond it."""


class Change(NamedTuple):
    """Which argument a launch changed, and where its bytes lie in the recording."""

    argument: int
    start: int
    length: int


class Sizes(NamedTuple):
    """The sizes of the parts of a file besides its index."""

    texts: int
    data: int
    changes: int


# ── arguments ───────────────────────────────────────────────────────────────


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_real(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float)  # bool is an int


def _is_finite(value: object) -> bool:
    try:
        return _is_real(value) and isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _is_hexadecimal(value: object) -> bool:
    try:
        return is_text(value) and bytes.fromhex(value) is not None
    except ValueError:
        return False


def _is_list_of_reals(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_real, value))


_ARRAY = ("type", "shape")
_MORE: dict[str, tuple[str, ...]] = {
    "normal": (*_ARRAY, "scale"),
    "uniform": (*_ARRAY, "low", "high"),
    "wide": (*_ARRAY, "low", "high"),
    "special": _ARRAY,
    "integers": (*_ARRAY, "low", "high", "ordered"),
    "bits": _ARRAY,
    "counting": _ARRAY,
    "arange": _ARRAY,
    "values": (*_ARRAY, "data"),
    "full": (*_ARRAY, "value"),
    "output": _ARRAY,
    "stored": (*_ARRAY, "start"),
    "scalar": ("type", "value"),
    "struct": ("bytes",),
    "pointer": ("argument", "offset"),
}
"""The kinds of arguments, and the fields of each."""

_RULES = {
    "kind": Rule(is_text, "text"),
    "type": Rule(lambda x: is_text(x) and x in TYPES, one_of(TYPES)),
    "shape": Rule(is_shape, "a list of whole numbers"),
    "scale": Rule(_is_finite, "a finite number"),
    "low": Rule(_is_finite, "a finite number"),
    "high": Rule(_is_finite, "a finite number"),
    "ordered": Rule(_is_flag, "true or false"),
    "data": Rule(_is_list_of_reals, "a list of numbers"),
    "value": Rule(_is_real, "a number"),
    "start": Rule(is_count, "a whole number, 0 or more"),
    "bytes": Rule(_is_hexadecimal, "hexadecimal digits"),
    "argument": Rule(is_count, "the number of an argument"),
    "offset": Rule(is_number, "a whole number of bytes"),
    "seed": Rule(is_number, "a whole number"),
}


def array_bytes(spec: Spec) -> int | None:
    """The bytes of the array that is described; None if it is not an array.

    >>> array_bytes({"kind": "bits", "type": "f16", "shape": [4, 2]})
    16
    """
    if "shape" not in spec:
        return None
    return prod(spec["shape"]) * np.dtype(TYPES[spec["type"]]).itemsize


def bytes_to_make(spec: Spec) -> int:
    """The memory that it takes to make an argument and to compare it.

    Random and counted elements are made from several words of eight bytes each.

    >>> bytes_to_make({"kind": "bits", "type": "u8", "shape": [100]})
    3200
    """
    size = array_bytes(spec)
    if size is None:
        return 0
    kept = spec["kind"] in ("stored", "values", "full", "output")
    return 3 * size if kept else 32 * prod(spec["shape"])


def _checked_argument(given: object, data: int) -> Spec:
    kind = str(given.get("kind")) if isinstance(given, dict) else ""
    if isinstance(given, dict) and kind not in _MORE:
        raise BadFile(
            f"no kind of argument {kind:.40}{nearest(kind, _MORE)}; there are "
            f"{one_of(_MORE, 'and')}"
        )
    names = _MORE.get(kind, ())
    wanted = {"kind": True, **dict.fromkeys(names, True)}
    if "shape" in names:
        wanted["seed"] = False
    fields = check_fields(given, wanted, _RULES, "an argument")
    spec = cast(Spec, fields)  # the rules are those of its fields
    match fields:
        case {"kind": "values", "shape": shape, "data": values}:
            if prod(shape) != len(values):
                raise BadFile(
                    f"shape {shape} has {prod(shape)} elements, not {len(values)}"
                )
        case {"kind": "integers" | "wide", "low": low, "high": high}:
            if not is_number(low) or not is_number(high) or not low < high:
                raise BadFile(
                    f"low is below high, whole numbers; given {low} and {high}"
                )
            if kind == "wide" and max(-low, high) > MOST_EXPONENT:
                raise BadFile(
                    f"exponents are at most {MOST_EXPONENT}; given {low}, {high}"
                )
        case {"kind": "stored", "start": start}:
            if start + (array_bytes(spec) or 0) > data:
                raise BadFile(f"an array ends past the {data} bytes of data")
    return spec


def _check_arguments(given: Sequence[object], data: int) -> None:
    specs: list[Spec] = []
    for number, each in enumerate(given):
        try:
            specs.append(_checked_argument(each, data))
        except Error as why:
            raise BadFile(f"argument {number}: {why}") from None
    whole = sum(array_bytes(spec) or 0 for spec in specs)
    if whole > MOST_BYTES:
        raise BadFile(f"arrays have at most {MOST_BYTES:,} bytes; given {whole:,}")
    for number, spec in enumerate(specs):
        if spec["kind"] == "pointer":
            goal = spec["argument"]
            if goal >= len(specs) or array_bytes(specs[goal]) is None:
                raise BadFile(
                    f"argument {number}: it points into {goal}, which is no array"
                )


# ── launches ────────────────────────────────────────────────────────────────


def _is_three(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(map(is_count, value))


LAUNCH_RULES = {
    "text": Rule(is_count, "the number of a text"),
    "name": Rule(is_text, "text"),
    "entry": Rule(is_text, "text"),
    "grid": Rule(_is_three, "three whole numbers"),
    "block": Rule(_is_three, "three whole numbers"),
    "shared": Rule(is_count, "a whole number, 0 or more"),
    "arguments": Rule(lambda x: isinstance(x, list), "a list"),
    "seed": RULES["seed"],
    "digest": RULES["digest"],
    "changes": Rule(
        lambda x: isinstance(x, list) and all(map(_is_three, x)),
        "a list of argument, start and length",
    ),
    "printed": Rule(lambda x: x is None or is_text(x), "text or null"),
    "memory": Rule(lambda x: isinstance(x, list), "a list"),
    "cluster": Rule(_is_three, "three whole numbers"),
    "cooperative": Rule(_is_flag, "true or false"),
    "fault": Rule(is_text, "text"),
}
"""The rules for the fields of a launch."""
_OPTIONAL = ("memory", "cluster", "cooperative", "fault")
_MEMORY_RULES = {
    "name": Rule(is_text, "text"),
    "address": Rule(is_count, "a whole number, 0 or more"),
    "variable": Rule(_is_flag, "true or false"),
    "array": Rule(lambda x: isinstance(x, dict), "the description of an array"),
}


def _checked_memory(given: Sequence[object]) -> list[dict[str, Any]]:
    """The fields of memory that no argument is; its arrays are checked later."""
    return [
        check_fields(each, dict.fromkeys(_MEMORY_RULES, True), _MEMORY_RULES, "memory")
        for each in given
    ]


def check_launch(given: object, sizes: Sizes) -> dict[str, Any]:
    """The fields of a launch, if it can be replayed."""
    wanted = {name: name not in _OPTIONAL for name in LAUNCH_RULES}
    given = check_fields(given, wanted, LAUNCH_RULES, "a launch")
    if given["text"] >= sizes.texts:
        raise BadFile(f"text {given['text']} is named, and there are {sizes.texts}")
    memory = _checked_memory(given.get("memory", []))
    specs = [*given["arguments"], *(each["array"] for each in memory)]
    _check_arguments(specs, sizes.data)
    _check_memory(given["arguments"], memory)
    changes = [Change(*each) for each in given["changes"]]
    for change in changes:
        which = change.argument
        size = array_bytes(specs[which]) if which < len(specs) else None
        if size is None:
            raise BadFile(f"argument {which} is changed, which is no array")
        if change.length != size:
            raise BadFile(
                f"argument {which} has {size} bytes, and its change {change.length}"
            )
        if change.start + change.length > sizes.changes:
            raise BadFile(f"a change ends past the {sizes.changes} bytes of changes")
    sides = ("grid", "block", "cluster")
    shape = {side: tuple(given[side]) for side in sides if side in given}
    return {**given, **shape, "changes": changes, "memory": memory}


def _check_memory(arguments: Sequence[Spec], memory: list[dict[str, Any]]) -> None:
    """With memory of a card, parameters are bytes, and its arrays are bytes, too."""
    if not memory:
        return
    for number, each in enumerate(arguments):
        if each["kind"] != "struct":
            raise BadFile(f"argument {number} is bytes if there is memory of a card")
    for held in memory:
        array = held["array"]
        if array.get("type") != "u8" or len(array.get("shape", ())) != 1:
            raise BadFile(f"memory {short(held['name'])} is a row of bytes, of type u8")


def check_texts(given: object) -> list[tuple[str, int]]:
    """The names and sizes of the texts of a recording."""
    if not isinstance(given, list) or not given:
        raise BadFile("it has no texts")
    rules = {"name": Rule(is_text, "text"), "bytes": Rule(is_count, "a count of bytes")}
    texts = [
        check_fields(each, dict.fromkeys(rules, True), rules, "a text")
        for each in given
    ]
    if (whole := sum(each["bytes"] for each in texts)) > MOST_BYTES:
        raise BadFile(f"texts have at most {MOST_BYTES:,} bytes; given {short(whole)}")
    return [(each["name"], each["bytes"]) for each in texts]
