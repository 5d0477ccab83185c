"""A record in a file, and as the page has it."""

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

from fragmenta.arrays import npy
from fragmenta.errors import BadFile, shortened
from fragmenta.replay.checking import checked
from fragmenta.replay.parts import COLUMNS, Columns, Head, Row

if TYPE_CHECKING:
    from fragmenta.replay.recorded import Replay

FORMAT = 1
_NAMES = {"u1": "u8", "u2": "u16", "u4": "u32", "i4": "i32"}


def save(replay: Replay, path: str | PathLike[str]) -> None:
    """Write a record into a file."""
    Path(path).write_bytes(saved(replay))


def saved(replay: Replay) -> bytes:
    """A record as bytes, which :func:`load` reads."""
    head = json.dumps({"format": FORMAT, **replay.head}).encode()
    about, file = np.frombuffer(head, np.uint8), BytesIO()
    np.savez_compressed(file, head=about, **replay.columns)  # type: ignore[arg-type]
    return file.getvalue()


def load(path: str | PathLike[str]) -> tuple[Head, Columns]:
    """Read a record from a file; one that is damaged is refused."""
    name = os.fspath(path)
    found = npy.read(name)
    absent = {"head", *COLUMNS} - (set(found) if isinstance(found, Mapping) else set())
    if absent:
        raise BadFile(f"{name} is no record of a launch: it has no {min(absent)}")
    try:
        head: Row = json.loads(found["head"].tobytes())
    except (ValueError, RecursionError) as why:
        raise BadFile(f"{name} is no record of a launch: {why}") from why
    given = head.pop("format", None) if isinstance(head, dict) else None
    if given != FORMAT:
        raise BadFile(f"{name} has format {shortened(str(given))}; {FORMAT} is read")
    columns = {each: found[each] for each in COLUMNS}
    checked(head, columns, name)
    return head, columns


def packed(replay: Replay) -> tuple[Head, bytes]:
    """The head and the columns as a page has them: columns are deflated."""
    described = {}
    parts = []
    for name, kind in COLUMNS.items():
        data = replay.columns[name]
        described[name] = {"type": _NAMES[kind], "count": int(data.size)}
        raw = data.tobytes()
        parts.append(raw + bytes(-len(raw) % 4))
    pressed = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return {**replay.head, "columns": described}, pressed.compress(
        b"".join(parts)
    ) + pressed.flush()
