"""What a launch with numerics found, as JSON, and back: for launches elsewhere.

The records of :mod:`fragmenta.values.numerics.report` and of products are written as
lists of their fields.  They are read by the types that their fields are declared with,
so that an answer of a process that is not trusted is either such a record, or refused.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Hashable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import IntEnum
from functools import cache
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.arguments import Elements
from fragmenta.ptx.module import Instruction, Location
from fragmenta.reference.isa.instruction import Instruction as Op
from fragmenta.reference.isa.reading import instruction as read_op
from fragmenta.values.numerics.products import Chain, ProductStatistics
from fragmenta.values.numerics.report import NonFinitePath, Numerics, OutputErrors, Site
from fragmenta.values.numerics.seconds import FORMATS

Given: TypeAlias = Any
"""What JSON has; nothing is known about it before it is read."""
_FIELDS: dict[str, object] = {
    "kernel": str,
    "outputs": dict[str, OutputErrors],
    "instructions": list[Site],
    "births": list[NonFinitePath],
    "notes": list[NonFinitePath],
    "inputs": dict[str, dict[str, int]],
    "shapes": dict[str, Elements],
    "lost_nodes": int,
    "products": list[ProductStatistics],
    "chain": Chain | None,
    "watched": bool,
}
"""What is sent: all but the text, and what runs the launch again."""
_TYPE = re.compile(r"<[iuf][248]|\|[iub]1")
_INSTRUCTION = tuple[str, tuple[str, ...], int, int, int, Location | None]
_MOST_OPERANDS = 64


def numerics_json(found: Numerics) -> dict[str, object]:
    """What was found, as JSON."""
    return {name: _written(getattr(found, name)) for name in _FIELDS}


def numerics_of(given: Mapping[str, Given], text: str) -> Numerics:
    """The inverse of :func:`numerics_json`; it cannot be run again.

    ``text`` is the PTX of the kernel.
    """
    found = {name: _read(kind, given[name]) for name, kind in _FIELDS.items()}
    for output in found["outputs"].values():
        held = output.held
        if held.format not in FORMATS.values() or held.format != output.format:
            raise ValueError(f"no format {held.format}")
        if held.data.ndim != 1 or held.planes.shape not in _shapes(held.data.size):
            raise ValueError("an array and its second values have different sizes")
        if not all(0 <= a <= b <= held.data.size for a, b in held.touched):
            raise ValueError("what was touched is not in the array")
    return replace(Numerics(**found), text=text)


def _shapes(size: int) -> list[tuple[int, int]]:
    """The shapes that planes may have."""
    return [(4, size), (8, size)]


# ── writing ─────────────────────────────────────────────────────────────────


def _written(value: object) -> object:
    if isinstance(value, np.ndarray):
        return _array_json(value)
    if isinstance(value, Op):
        return str(value)
    if isinstance(value, Instruction):
        names = (value.opcode, value.qualifiers, len(value.operands))
        return _written((*names, value.line, value.column, value.source))
    if is_dataclass(value) and not isinstance(value, type):
        return [_written(getattr(value, each.name)) for each in fields(value)]
    if isinstance(value, Mapping):
        return [[_written(name), _written(each)] for name, each in value.items()]
    if isinstance(value, list | tuple):
        return [_written(each) for each in value]
    if isinstance(value, np.generic):
        return value.item()
    return int(value) if isinstance(value, IntEnum) else value


def _array_json(array: NDArray[np.generic]) -> list[object]:
    """An array, in the smallest type that keeps all of its bits."""
    data = np.ascontiguousarray(array)
    smaller = {"f": ("<f4",), "i": ("|i1", "<i2", "<i4")}.get(data.dtype.kind, ())
    for name in smaller:
        with np.errstate(all="ignore"):
            less = data.astype(name)
        if less.astype(data.dtype).tobytes() == data.tobytes():
            data = less
            break
    return [data.dtype.str, list(data.shape), base64.b64encode(data.tobytes()).decode()]


# ── reading ─────────────────────────────────────────────────────────────────


def _read(kind: Given, given: Given) -> Given:
    """A value of a declared type; another one is a TypeError or a ValueError."""
    origin: object = get_origin(kind)
    inside = get_args(kind)
    if origin in (Union, UnionType):
        (wanted,) = (each for each in inside if each is not NoneType)
        return None if given is None else _read(wanted, given)
    if origin is np.ndarray or origin is NDArray:  # NumPy 2.5 keeps the name
        element = inside[0] if origin is NDArray else get_args(inside[1])[0]
        return _array(element, given)
    if origin is Literal:
        return inside[inside.index(given)]
    if kind is Op:
        return read_op(_read(str, given))
    if kind is Instruction:
        return _instruction(given)
    if kind in (str, bool, int):
        return _plain(kind, given)
    if kind is float:
        return given if type(given) is float else float(_plain(int, given))
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return kind(given)
    _plain(list, given)
    if origin is tuple:
        many = inside[-1] is Ellipsis
        kinds = inside[:1] * len(given) if many else inside
        return tuple(_read(k, each) for k, each in zip(kinds, given, strict=True))
    if origin is list:
        return [_read(inside[0], each) for each in given]
    if origin is dict:
        return {_read(inside[0], name): _read(inside[1], each) for name, each in given}
    pairs = zip(_declared(kind).values(), given, strict=True)
    return kind(*(_read(each, value) for each, value in pairs))


def _plain(kind: type, given: Given) -> Given:
    if type(given) is not kind:
        raise TypeError(f"{kind.__name__} expected, {type(given).__name__} given")
    return given


@cache
def _declared(kind: type) -> dict[str, Hashable]:
    """The types of the fields of a record, in their order."""
    hints = get_type_hints(kind)
    names = getattr(kind, "_fields", None) or [each.name for each in fields(kind)]
    return {name: hints[name] for name in names}


def _array(kind: type, given: Given) -> NDArray[np.generic]:
    name, shape, data = given
    if not _TYPE.fullmatch(_plain(str, name)):
        raise ValueError(f"no type {name}")
    made = np.frombuffer(base64.b64decode(_plain(str, data), validate=True), name)
    made = made.reshape(_read(tuple[int, ...], shape))
    return made if kind is np.generic else made.astype(kind)


def _instruction(given: Given) -> Instruction:
    """An instruction without its operands, but as many as it has."""
    opcode, words, count, line, column, source = _read(_INSTRUCTION, given)
    if not 0 <= count <= _MOST_OPERANDS:
        raise ValueError(f"{count} operands")
    return Instruction(opcode, words, (None,) * count, None, line, column, source)
