"""The log of a cluster: what happened, as compiled code and Python write it down.

A note has 64 bytes.  Python reads them when somebody asks for the history of a cluster:
:mod:`fragmenta.watch.races.report.history`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fragmenta.base.jit.llvm import Raw
from fragmenta.base.jit.trace import I32, I64, Code, Value, convert
from fragmenta.engine.simt.library import field
from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.order import BlockHead

NOTE = np.dtype(
    [
        ("time", "i8"),
        ("what", "i4"),
        ("rank", "i4"),
        ("warp", "i4"),
        ("lanes", "u4"),
        ("site", "i4"),
        ("epoch", "i4"),
        ("about", "i8", 4),
    ]
)
"""One note; what ``about`` holds depends on ``what``."""
WHATS = (
    "init",
    "arrive",
    "wait",
    "try",
    "phase",
    "copy",
    "done",
    "product",
    "multiplied",
    "waited",
    "cluster arrive",
    "cluster wait",
    "tensor",
    "move",
    "moved",
    "commit",
    "barrier arrive",
    "barrier",
)
"""What a note is about; a record has the number."""
MOST = 20_000
"""Notes of one cluster; what happens later is not noted."""
LANES_WAITED = 2
"""What a note of a wait for ``cp.async`` says; for bulk copies, if they were read."""
COUNT = 0  #: i64: how many there are
OWNER = 8  #: i64: the block that runs alone whose notes they are
ENDED = 16  #: i64: one more than it has, if no later block is to add any
NOTES_AT = 64
LOG_BYTES = NOTES_AT + MOST * NOTE.itemsize


class NoteFields(NamedTuple):
    """What compiled code notes; the fields of ``NOTE``."""

    time: Value
    what: str
    rank: Value
    warp: Value
    lanes: Value
    site: Value
    epoch: Value
    about: tuple[Value, ...]


def add(code: Code, head: BlockHead, note: NoteFields) -> None:
    """Add a note, if there is room."""
    log = head.pointer(layout.HEAD_NOTES)
    count = field(code, log, COUNT, I64)
    with code.when(count[0] < MOST):
        place = count[0] * NOTE.itemsize + NOTES_AT
        record = code.builder.gep(log, [place.raw])
        _put(code, record, "time", note.time)
        what = code.constant(WHATS.index(note.what), I32)
        _put(code, record, "what", what)
        for name in ("rank", "warp", "lanes", "site", "epoch"):
            _put(code, record, name, getattr(note, name))
        for number, each in enumerate(note.about):
            field(code, record, _offset("about") + 8 * number, I64)[0] = convert(
                each, I64
            )
        count[0] = count[0] + 1


def count(code: Code, head: BlockHead) -> Value:
    """How many notes there are."""
    return field(code, head.pointer(layout.HEAD_NOTES), COUNT, I64)[0]


def _offset(name: str) -> int:
    assert NOTE.fields is not None
    return int(NOTE.fields[name][1])


def _put(code: Code, record: Raw, name: str, value: Value) -> None:
    field(code, record, _offset(name), value.type)[0] = value
