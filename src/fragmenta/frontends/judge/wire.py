"""Messages with processes that are not trusted: JSON and bytes, never a pickle.

A tree of plain values and arrays becomes one block of bytes, and back.  The arguments
of a launch become such a tree: what a kernel gets is then checked by the launch.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from fragmenta.frontends.pool.packing import (
    MemoryRegion,
    PackedArguments,
    PackedArray,
    PackedPointer,
    PackedStruct,
)

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
Tree: TypeAlias = object
"""Plain values, lists, dictionaries with texts as keys, bytes and NumPy arrays."""

_LENGTH = struct.Struct("<Q")
_TYPE = re.compile(r"[<>|=]?(?:[biufc](?:1|2|4|8|16)|V\d{1,4})")
_MOST_AXES = 32


# ── trees ───────────────────────────────────────────────────────────────────


def dump(tree: Tree) -> bytes:
    """A tree as bytes.

    >>> load(dump({"x": [np.arange(3), b"ab", None]}))
    {'x': [array([0, 1, 2]), b'ab', None]}
    """
    data: list[bytes] = []
    head = json.dumps(_listed(tree, data)).encode()
    return _LENGTH.pack(len(head)) + head + b"".join(data)


def _listed(tree: Tree, data: list[bytes]) -> Json:
    if isinstance(tree, np.ndarray):
        made = np.ascontiguousarray(tree)
        data.append(made.tobytes())
        return {"~": "array", "type": made.dtype.str, "shape": [*tree.shape]}
    if isinstance(tree, bytes | bytearray | memoryview):
        data.append(bytes(tree))
        return {"~": "bytes", "size": len(data[-1])}
    if isinstance(tree, Mapping):
        return {"~": "map", "of": {str(k): _listed(v, data) for k, v in tree.items()}}
    if isinstance(tree, list | tuple):
        return [_listed(each, data) for each in tree]
    if isinstance(tree, np.generic):
        return _listed(tree.item(), data)
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree
    raise TypeError(f"{type(tree).__name__} cannot be sent")


def load(block: bytes | memoryview) -> Tree:
    """The tree of some bytes; ValueError if they are none."""
    view = memoryview(block)
    try:
        (length,) = _LENGTH.unpack(view[: _LENGTH.size])
        head = json.loads(bytes(view[_LENGTH.size : _LENGTH.size + length]))
        reader = _TreeReader(view[_LENGTH.size + length :])
        return reader.tree(head)
    except (KeyError, TypeError, struct.error, RecursionError, OverflowError) as why:
        raise ValueError(f"this is no tree: {why}") from why


class _TreeReader:
    """Reads a tree; its arrays lie one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def tree(self, head: Json) -> Tree:
        if isinstance(head, list):
            return [self.tree(each) for each in head]
        if not isinstance(head, dict):
            return head
        if head["~"] == "map":
            return {
                k: self.tree(v) for k, v in cast("dict[str, Json]", head["of"]).items()
            }
        if head["~"] == "bytes":
            return bytes(self._take(_whole(head["size"])))
        dtype, shape = _type(head["type"]), _shape(head["shape"])
        size = dtype.itemsize * int(np.prod(shape, dtype=object))
        return np.frombuffer(self._take(size), dtype).reshape(shape).copy()

    def _take(self, size: int) -> memoryview:
        if not 0 <= size <= len(self._data) - self._at:
            raise ValueError("an array is longer than the message")
        self._at += size
        return self._data[self._at - size : self._at]


def _type(given: Json) -> np.dtype[np.generic]:
    if not isinstance(given, str) or not _TYPE.fullmatch(given):
        raise ValueError(f"{given!r} is no type")
    return np.dtype(given)


def _whole(given: Json) -> int:
    if not isinstance(given, int):
        raise TypeError(f"{given!r} is no number")
    return int(given)


def _numbers(given: Json) -> tuple[int, ...]:
    if not isinstance(given, list) or len(given) > _MOST_AXES:
        raise ValueError(f"{given!r} are no numbers")
    return tuple(_whole(each) for each in given)


def _shape(given: Json) -> tuple[int, ...]:
    made = _numbers(given)
    if any(each < 0 for each in made):
        raise ValueError(f"{given!r} is no shape")
    return made


# ── arguments of a launch ───────────────────────────────────────────────────


def arguments_json(packed: PackedArguments) -> Json:
    """The arguments of a launch, without their memory."""
    return {
        "values": [_value(each) for each in packed.values],
        "regions": [
            [each.size, each.writable, [list(part) for part in each.empty]]
            for each in packed.regions
        ],
    }


def _value(value: object) -> Json:
    if isinstance(value, PackedArray):
        about: list[Json] = [_plain_type(value.dtype)]
        about += [[*value.shape], [*value.strides]]
        return ["array", value.region, value.offset, *about]
    if isinstance(value, PackedPointer):
        return ["pointer", _value(value.array), value.offset]
    if isinstance(value, PackedStruct):
        inside: list[Json] = [[at, _value(to)] for at, to in value.pointers]
        return ["struct", value.data.hex(), inside, value.align]
    if isinstance(value, bytes):
        return ["bytes", value.hex()]
    if isinstance(value, np.generic):
        return ["bytes", value.tobytes().hex()]
    if value is None or isinstance(value, bool | int | float):
        return ["number", value]
    raise TypeError(f"{type(value).__name__} cannot be an argument here")


def _plain_type(dtype: np.dtype[np.generic]) -> str:
    """The type of elements; that of another package is bytes."""
    return dtype.str if _TYPE.fullmatch(dtype.str) else f"V{dtype.itemsize}"


def arguments_of(given: Json) -> PackedArguments:
    """The inverse of :func:`arguments_json`, of somebody who may send anything."""
    try:
        if not isinstance(given, dict):
            raise TypeError(f"{given!r:.80} has no names")
        made = [_region(each) for each in _list(given["regions"])]
        values = [_value_of(each, len(made)) for each in _list(given["values"])]
        return PackedArguments(values, made)
    except (KeyError, TypeError, IndexError, RecursionError) as why:
        raise ValueError(f"these are no arguments: {why!r}") from why


def _list(given: Json) -> list[Json]:
    if not isinstance(given, list):
        raise TypeError(f"{given!r:.80} is no list")
    return given


def _demand(right: bool, what: str) -> None:
    """Refuse what is not right; unlike ``assert``, also if Python optimises."""
    if not right:
        raise TypeError(what)


def _region(given: Json) -> MemoryRegion:
    size, writable, empty = _list(given)
    parts = []
    for each in _list(empty):
        first, last = _numbers(each)
        _demand(0 <= first < last <= _whole(size), f"no part from {first} to {last}")
        parts.append((first, last))
    _demand(_whole(size) >= 0, f"no region of {size} bytes")
    return MemoryRegion(_whole(size), bool(writable), tuple(parts))


def _value_of(given: Json, regions: int) -> object:
    kind, *rest = _list(given)
    if kind == "number":
        (value,) = rest
        plain = value is None or isinstance(value, bool | int | float)
        _demand(plain, f"{value!r:.80} is no number")
        return value
    if kind == "bytes":
        return bytes.fromhex(cast("str", rest[0]))
    if kind == "pointer":
        inner = _value_of(rest[0], regions)
        if not isinstance(inner, PackedArray):
            raise TypeError("a pointer points into an array")
        return PackedPointer(inner, _whole(rest[1]))
    if kind == "struct":
        data, inside, align = rest
        pointers: list[tuple[int, PackedPointer]] = []
        for at, to in cast("Sequence[tuple[Json, Json]]", _list(inside)):
            found = _value_of(to, regions)
            if not isinstance(found, PackedPointer):
                raise TypeError("a struct has pointers")
            pointers.append((_whole(at), found))
        return PackedStruct(
            bytes.fromhex(cast("str", data)), tuple(pointers), _whole(align)
        )
    _demand(kind == "array", f"no kind of argument {kind!r:.80}")
    region, offset, dtype, shape, strides = rest
    _demand(0 <= _whole(region) < regions, f"there is no region {region}")
    return PackedArray(
        _whole(region), _whole(offset), _type(dtype), _shape(shape), _numbers(strides)
    )


Bytes: TypeAlias = NDArray[np.uint8]
