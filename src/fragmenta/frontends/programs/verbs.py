"""What the client asks the server for, and how both write it down."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from fragmenta.engine.simt.layout import POISON


class Verb(IntEnum):
    """A question of the client."""

    HELLO = 1
    ALLOCATE = 2
    FREE = 3
    LOAD = 4
    UNLOAD = 5
    KERNEL = 6
    VARIABLE = 7
    LAUNCH = 8
    ENCODE = 9
    REFUSED = 10
    RESET = 11
    CARD = 12
    MEMORY = 13
    AFTER = 14
    READ = 15
    GONE = 16
    UNLAUNCHED = 17


WORDS = 14
"""Numbers in a message."""
HEAD = struct.Struct(f"<IiQ{WORDS}Q")
"""A verb, the error of an answer, how many bytes follow, and numbers."""
ATTRIBUTES = 256
"""Attributes of the device that the client keeps."""


class Request(NamedTuple):
    """What the client asks."""

    verb: Verb
    words: tuple[int, ...]
    data: bytes


class Answer(NamedTuple):
    """What the server answers; ``file`` is shared memory that the client maps."""

    words: tuple[int, ...] = ()
    data: bytes = b""
    status: int = 0
    file: int | None = None

    def head(self) -> bytes:
        """The bytes before the data."""
        numbers = (*self.words, *[0] * WORDS)[:WORDS]
        return HEAD.pack(0, self.status, len(self.data), *numbers)


def header() -> str:
    """The same for C++.

    >>> "LAUNCH = 8" in header()
    True
    """
    verbs = ", ".join(f"{each.name} = {each.value}" for each in Verb)
    return (
        f"#pragma once\nenum Verb {{ {verbs} }};\n"
        f"enum {{ WORDS = {WORDS}, ATTRIBUTES = {ATTRIBUTES} }};\n"
        f"constexpr unsigned UNWRITTEN = {POISON:#x};  // a word that nobody wrote\n"
    )
