"""The requests of ``fragmenta serve``: read, checked, and turned into jobs of a pool.

A request is a JSON object on a line.  Every field is checked, and one that does not
exist is refused.  Paths are read only in the folders that the server was started with.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

import numpy as np

from fragmenta.base.arrays.checks import Array, is_whole
from fragmenta.commands.launch_arguments import (
    check_goal,
    check_shape,
    check_size,
    described,
    from_file,
)
from fragmenta.commands.numerics import numerics_fields
from fragmenta.commands.problems import fault_fields, result_fields
from fragmenta.engine.simt.arguments import pointer
from fragmenta.errors import (
    BadCall,
    BadFile,
    Error,
    KernelError,
    KernelHazard,
    ShapeError,
    UnknownType,
    ValueRangeError,
    nearest,
    one_of,
    shortened,
)
from fragmenta.frontends.api.kernels import Result
from fragmenta.frontends.pool.job import Job
from fragmenta.frontends.pool.pool import Pool
from fragmenta.inspect.evidence.arguments import TYPES, Into
from fragmenta.launch.limits import Limits
from fragmenta.launch.request import options_of_json
from fragmenta.ptx.checking.problem import Problem

PROTOCOL = 1
"""The version of what is said; it grows when an old client would misunderstand."""
MOST_LINE = 1 << 26
"""Bytes of a line."""
MOST_MEMORY = 1 << 29
"""Bytes of all requests of a server that are under way, their arrays included."""
MOST_JOBS = 4096
"""Requests of one client that are under way."""

Json: TypeAlias = dict[str, object]
Key: TypeAlias = str | int
Work: TypeAlias = Job[Result] | Job[list[Problem]]

_SOURCE = ("ptx", "file")
_COMMON = ("id", "op", *_SOURCE, "target", "limits")
_OPTIONS = (
    *("cluster", "cooperative", "shared", "contract", "schedule"),
    *("watch", "numerics", "nan", "instruments"),
)
FIELDS = {
    "hello": ("op", "protocol", "id"),
    "launch": (
        *_COMMON,
        *("kernel", "grid", "block", "arguments", "arrays", *_OPTIONS),
    ),
    "check": _COMMON,
    "cancel": ("id", "op"),
    "shutdown": ("op", "id"),
}
"""The operations, and the fields of each."""


class ServerRequest(NamedTuple):
    """A request that is well formed."""

    id: Key | None
    op: str
    fields: Json

    def text(self, name: str) -> str | None:
        """A field that is a text, if it is there."""
        found = self.fields.get(name)
        if found is not None and not isinstance(found, str):
            raise BadCall(f"{name} is a text; given {shown(found)}")
        return found

    def flag(self, name: str, default: bool) -> bool:
        """A field that is true or false."""
        found = self.fields.get(name, default)
        if not isinstance(found, bool):
            raise BadCall(f"{name} is true or false; given {shown(found)}")
        return found


def id_of(line: bytes) -> Key | None:
    """The id of a request that may be wrong in other ways."""
    try:
        found = json.loads(line)["id"]
    except (ValueError, RecursionError, KeyError, TypeError, IndexError):
        return None
    return found if _is_key(found) else None


def _is_key(given: object) -> bool:
    text = isinstance(given, str) and len(given) <= 200
    return text or (is_whole(given) and abs(int(str(given))) < 1 << 63)


def read(line: bytes) -> ServerRequest:
    """The request of a line.

    >>> read(b'{"op": "lanch", "id": 1}')
    Traceback (most recent call last):
    fragmenta.errors.BadCall: there is no op 'lanch' (did you mean launch?); op is \
hello, launch, check, cancel or shutdown
    """
    try:
        given = json.loads(line, parse_constant=_no_constant)
    except (ValueError, RecursionError) as why:
        raise BadCall(f"a line is one JSON object; {why}") from None
    if not isinstance(given, dict):
        raise BadCall(f"a line is one JSON object; given {shown(given)}")
    op = given.get("op")
    if not isinstance(op, str) or op not in FIELDS:
        hint = nearest(op, FIELDS) if isinstance(op, str) else ""
        raise BadCall(f"there is no op {shown(op)}{hint}; op is {one_of(FIELDS)}")
    for name in given:
        if name not in FIELDS[op]:
            raise BadCall(
                f"{op} has no field {shortened(name)}{nearest(name, FIELDS[op])}; it "
                f"has {one_of(FIELDS[op], 'and')}"
            )
    key = given.get("id")
    if key is None and op in ("launch", "check", "cancel"):
        raise BadCall(f"{op} needs an id: a text or a whole number")
    if key is not None and not _is_key(key):
        raise BadCall(
            f"id is a text of at most 200 characters, or a whole number; given "
            f"{shown(key)}"
        )
    return ServerRequest(key, op, given)


def _no_constant(word: str) -> object:
    raise ValueError(f"{word} is no JSON; write a number such as 'f32:nan'")


def shown(given: object) -> str:
    """What was given, cut if it is long."""
    return shortened(given if isinstance(given, str) else str(given))


# ── jobs ────────────────────────────────────────────────────────────────────


class Folders(NamedTuple):
    """The folders whose files may be read."""

    allowed: tuple[str, ...]

    @classmethod
    def of(cls, given: Sequence[str]) -> Folders:
        """These folders, which must exist."""
        for each in given:
            if not os.path.isdir(each):
                raise BadFile(f"--allow takes a folder; {each} is none")
        return cls(tuple(os.path.realpath(each) for each in given))

    def path(self, given: str) -> str:
        """A path without links, if it is in an allowed folder."""
        if not self.allowed:
            raise BadCall(
                "this server reads no files; fragmenta serve --allow FOLDER lets it "
                f"read those of a folder; given {shortened(given)}"
            )
        if "\0" in given:
            raise BadCall(f"a path has no zero bytes; given {shortened(given)}")
        found = os.path.realpath(given)
        if not any(Path(found).is_relative_to(each) for each in self.allowed):
            raise BadCall(
                f"{shortened(given)} is not in a folder that this server may read: "
                f"{one_of(self.allowed, 'or')}"
            )
        return found


class PendingRequest(NamedTuple):
    """A request, the job that was made of it, and the types of its arrays."""

    request: ServerRequest
    job: Work
    types: list[str]
    """The name of each argument's type; empty for what is no array."""
    size: int
    """Bytes of its text and its arrays."""


def submit(
    request: ServerRequest, pool: Pool, folders: Folders, room: int
) -> PendingRequest:
    """Make a job of a request, whose text and arrays have at most so many bytes."""
    text = _source(request, folders, room)
    size = len(text)
    limits = _limits(request.fields.get("limits", {}), pool.limits)
    target = request.text("target")
    if request.op == "check":
        return PendingRequest(
            request, pool.check(text, target, limits=limits), [], size
        )
    for name in ("grid", "block"):
        if name not in request.fields:
            raise BadCall(f"launch needs {name}: one to three whole numbers")
    request.flag("arrays", True)
    options = options_of_json(
        {name: request.fields[name] for name in _OPTIONS if name in request.fields}
    )
    options["target"], options["limits"] = target, limits
    given = _arguments(request.fields.get("arguments", []), folders, room - size)
    job = pool.submit(
        text,
        cast(int, request.fields["grid"]),  # a launch checks them
        cast(int, request.fields["block"]),
        given.values,
        kernel=request.text("kernel"),
        **options,
    )
    return PendingRequest(request, job, given.types, size + given.size)


def _source(request: ServerRequest, folders: Folders, room: int) -> str:
    given = {name: request.text(name) for name in _SOURCE if name in request.fields}
    if len(given) != 1 or None in given.values():
        raise BadCall(
            f"{request.op} needs one of ptx (a text) and file (a path); given "
            f"{one_of(given, 'and') or 'none'}{', null' * (None in given.values())}"
        )
    ((name, found),) = given.items()
    assert found is not None
    if name == "ptx":
        return found
    path = folders.path(found)
    try:
        with open(path, "rb") as file:
            data = file.read(room + 1)
    except OSError as why:
        raise BadFile(f"{found}: {why.strerror}") from None
    check_size(len(data), room)
    return data.decode("utf-8-sig", errors="replace")


def _limits(given: object, most: Limits) -> Limits:
    """The limits of a request; they may be narrower than those of the server."""
    if not isinstance(given, dict):
        raise BadCall(f"limits is an object; given {shown(given)}")
    for name in given:
        if name not in Limits._fields:
            raise BadCall(
                f"there is no limit {shortened(name)}{nearest(name, Limits._fields)}; "
                f"limits are {one_of(Limits._fields, 'and')}"
            )
    for name, number in given.items():
        if name != "stack" and _wider(number, getattr(most, name)):
            raise BadCall(
                f"this server allows at most {name} = {getattr(most, name):,}; given "
                + shown(number)
            )
    return most._replace(**given)


def _wider(number: object, most: float | None) -> bool:
    """Whether a limit is wider than another; what is no number is refused later."""
    if most is None:
        return False
    return number is None or (isinstance(number, int | float) and number > most)


# ── arguments ───────────────────────────────────────────────────────────────


class _Values(NamedTuple):
    """The arguments of a launch, and the types of those that are arrays."""

    values: list[object]
    types: list[str]
    size: int


def _arguments(given: object, folders: Folders, room: int) -> _Values:
    if not isinstance(given, list):
        raise BadCall(f"arguments is a list; given {shown(given)}")
    values: list[object] = []
    types: list[str] = []
    size = 0
    for index, each in enumerate(given):
        try:
            value, name = _argument(each, index, folders, room - size)
        except MemoryError:
            raise Error(f"argument {index} does not fit in memory") from None
        except OSError as why:
            raise BadFile(f"argument {index}: {why.strerror}") from None
        except Error as why:
            raise type(why)(f"argument {index}: {why}") from None
        size += value.nbytes if isinstance(value, np.ndarray) else 0
        values.append(value)
        types.append(name)
    return _Values([_pointed(each, values) for each in values], types, size)


def _argument(
    given: object, index: int, folders: Folders, room: int
) -> tuple[object, str]:
    """The value of an argument, and the name of its type if it is an array."""
    if isinstance(given, bool | int | float):
        return given, ""
    if isinstance(given, dict) and set(given) == {"type", "shape", "data"}:
        return _array(given, room), str(given["type"])
    if isinstance(given, str):
        found = described(given, index, room)
    elif isinstance(given, dict) and isinstance(given.get("file"), str):
        found = from_file(folders.path(given["file"]), room)
    else:
        raise BadCall(
            "an argument is a number, a text as --arg of fragmenta launch takes it, "
            '{"type": "f32", "shape": [2, 3], "data": BASE64} or {"file": PATH}; given '
            + shown(given)
        )
    array = isinstance(found.value, np.ndarray)
    return found.value, found.spec["type"] if array else ""


def _pointed(value: object, values: Sequence[object]) -> object:
    """A pointer into another argument, if it is one."""
    if not isinstance(value, Into):
        return value
    check_goal(value, values)
    return pointer(values[value.argument], value.offset)


def _array(given: Mapping[str, object], room: int) -> object:
    name, shape, data = given["type"], given["shape"], given["data"]
    if not isinstance(name, str) or name not in TYPES:
        raise UnknownType(f"no type {shown(name)}; there are {one_of(TYPES, 'and')}")
    if not isinstance(shape, list) or not all(is_whole(n) and n >= 0 for n in shape):
        raise ShapeError(f"shape is a list of whole numbers; given {shown(shape)}")
    dtype = np.dtype(TYPES[name])
    size = check_shape(shape, dtype.itemsize, room)
    if not isinstance(data, str):
        raise BadCall(f"data is the bytes in base64; given {shown(data)}")
    try:
        found = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as why:
        raise BadCall(f"data is the bytes in base64; {why}") from None
    if len(found) != size:
        raise ValueRangeError(
            f"data of {name} and shape {shape} is {size:,} bytes; given {len(found):,}"
        )
    return np.frombuffer(found, dtype.newbyteorder("<")).astype(dtype).reshape(shape)


# ── replies ─────────────────────────────────────────────────────────────────


def reply(asked: PendingRequest) -> Json:
    """What is said about a job that is done."""
    head, job = {"id": asked.request.id}, asked.job
    if job.cancelled():
        return {**head, "event": "cancelled"}
    error = job.exception()
    if error is not None:
        arrays = _arrays(asked) if isinstance(error, KernelError) else {}
        return {**head, **error_fields(error), **arrays}
    result = job.result()
    if isinstance(result, list):
        problems = [each.to_dict() for each in result]
        return {**head, "event": "result", "problems": problems}
    about = {
        "target": result.target,
        **result_fields(result),
        **numerics_fields(result),
    }
    return {**head, "event": "result", **about, **_arrays(asked)}


def error_fields(error: BaseException) -> Json:
    """What is said about an error; one that has no class of its own is a mistake."""
    kind = type(error).__name__
    said = str(error)
    if not isinstance(error, Error):
        said = f"{said}; this is a mistake of fragmenta, please report the request"
    told: Json = {"event": "error", "error": kind, "message": said}
    if isinstance(error, KernelHazard) and isinstance(error.result, Result):
        told |= result_fields(error.result)
    return told | (fault_fields(error) if isinstance(error, KernelError) else {})


def _arrays(asked: PendingRequest) -> Json:
    """The arrays of a launch, as it left them; a pointer brings none."""
    if not asked.request.flag("arrays", True):
        return {}
    named = zip(asked.types, asked.job.arguments, strict=True)
    return {
        "arrays": [
            {
                "argument": index,
                "type": name,
                "shape": list(value.shape),
                "data": base64.b64encode(_little(value)).decode(),
            }
            for index, (name, value) in enumerate(named)
            if isinstance(value, np.ndarray)
        ]
    }


def _little(array: Array) -> bytes:
    """The bytes of an array, the lowest first, as on a GPU."""
    return array.astype(array.dtype.newbyteorder("<")).tobytes()
