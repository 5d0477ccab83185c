"""A record in a file, and as the page has it; runs beside it have what differs."""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fragmenta.base.arrays import npy
from fragmenta.errors import BadFile, shortened
from fragmenta.inspect.replay.checking import checked, checked_beside
from fragmenta.inspect.replay.parts import (
    ALL_LANES,
    COLUMNS,
    LATER,
    MOST_RUNS,
    Columns,
    Head,
    Row,
)

if TYPE_CHECKING:
    from fragmenta.inspect.replay.recorded import Replay

FORMAT = 1
OWN = ("name", "lines")
"""What a run beside another one has of its own."""
_NAMES = {"u1": "u8", "u2": "u16", "u4": "u32", "i4": "i32"}


def save(replay: Replay, path: str | PathLike[str]) -> None:
    """Write a record into a file."""
    Path(path).write_bytes(saved(replay))


def saved(replay: Replay) -> bytes:
    """A record and the runs beside it as bytes, which :func:`load` reads."""
    file, arrays = BytesIO(), {}
    for number, each in enumerate(replay.runs):
        head, columns = own_parts(each, replay)
        begin = f"{number}." if number else ""
        given = {"format": FORMAT, **head, "runs": len(replay.runs)}
        arrays[f"{begin}head"] = np.frombuffer(json.dumps(given).encode(), np.uint8)
        arrays |= {f"{begin}{name}": data for name, data in columns.items()}
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


def own_parts(replay: Replay, first: Replay) -> tuple[Head, Columns]:
    """The head and the columns of a run, without those that the first run has, too."""
    if replay is first:
        return replay.head, replay.columns
    same = [
        name
        for name, value in replay.head.items()
        if name not in OWN and first.head.get(name) == value
    ]
    head = {name: value for name, value in replay.head.items() if name not in same}
    columns = {
        name: data
        for name, data in replay.columns.items()
        if not np.array_equal(data, first.columns[name])
    }
    return {**head, "same": same}, columns


def load(path: str | PathLike[str]) -> list[tuple[Head, Columns]]:
    """Read a record and the runs beside it; a file that is damaged is refused."""
    name = os.fspath(path)
    read = npy.read(name)
    own = dict(read) if isinstance(read, Mapping) else {}
    absent = {"head", *COLUMNS} - {*LATER} - set(own)
    if absent:
        raise BadFile(f"{name} is no record of a launch: it has no {min(absent)}")
    found = {**{each: np.empty(0, COLUMNS[each]) for each in LATER}, **own}
    first = _head(found["head"], name)
    count = first.pop("runs", 1)
    if type(count) is not int or not 1 <= count <= MOST_RUNS:
        raise BadFile(f"{name} is no record of a launch: it has no valid runs")
    runs = [(first, _with_lanes({each: found[each] for each in COLUMNS}))]
    checked(*runs[0], name)
    for number in range(1, count):
        if f"{number}.head" not in found:
            raise BadFile(f"{name} is no record of a launch: run {number} is missing")
        head = _with_same(_head(found[f"{number}.head"], name), first, name)
        columns = {each: found.get(f"{number}.{each}", found[each]) for each in COLUMNS}
        columns = _with_lanes(columns)
        checked(head, columns, name)
        checked_beside(head, first, name)
        runs.append((head, columns))
    return runs


def _with_lanes(columns: Columns) -> Columns:
    """Columns in which lanes have their registers before the first step.

    Records of earlier versions do not say which lanes have written them.
    """
    if columns["i_lanes"].size:
        return columns
    every = np.full(columns["i_at"].size, ALL_LANES, np.uint32)
    return {**columns, "i_lanes": every}


def _head(data: NDArray[np.uint8], name: str) -> Head:
    """The head of a run."""
    try:
        head: Row = json.loads(data.tobytes())
    except (ValueError, RecursionError) as why:
        raise BadFile(f"{name} is no record of a launch: {why}") from why
    given = head.pop("format", None) if isinstance(head, dict) else None
    if given != FORMAT:
        raise BadFile(f"{name} has format {shortened(str(given))}; {FORMAT} is read")
    return head


def _with_same(head: Head, first: Head, name: str) -> Head:
    """A head with what is the same in the first run."""
    head.pop("runs", None)
    same = head.pop("same", None)
    known = isinstance(same, list) and all(
        isinstance(each, str) and each in first for each in same
    )
    if not known:
        raise BadFile(f"{name} is no record of a launch: a run has no valid same")
    return {**{each: first[each] for each in same}, **head}


def packed(replay: Replay, first: Replay) -> tuple[Head, bytes]:
    """The head and the columns of a run as a page has them: columns are deflated."""
    described = {}
    parts = []
    head, own = own_parts(replay, first)
    for name, kind in COLUMNS.items():
        data = replay.columns[name]
        described[name] = {"type": _NAMES[kind], "count": int(data.size)}
        if name not in own:
            described[name]["same"] = True
            continue
        raw = data.tobytes()
        parts.append(raw + bytes(-len(raw) % 4))
    pressed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return {**head, "columns": described}, pressed.compress(
        b"".join(parts)
    ) + pressed.flush()
