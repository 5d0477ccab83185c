"""Messages between a pool and its workers.

A message is a head and data, after their lengths and the number of the question.  The
head of a question is a pickle, that of an answer is JSON: nothing that a worker answers
is executed.  The data are the bytes of arrays.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from fragmenta.engine.simt.compiled import aligned

LENGTHS = struct.Struct("<QQQ")
"""The lengths of the head and of the data, and the number of the question."""
MOST_HEAD = 1 << 28
"""Bytes of a head, unless it says what was lost."""

Bytes: TypeAlias = NDArray[np.uint8]
Head = TypeVar("Head")


def frame(number: int, head: bytes, data: Sequence[Bytes]) -> list[memoryview]:
    """The parts of a message, to be sent one after the other."""
    size = sum(each.size for each in data)
    parts = [memoryview(LENGTHS.pack(len(head), size, number) + head)]
    return parts + [each.data for each in data if each.size]


def send(to: socket.socket, parts: Iterable[memoryview]) -> None:
    """Send a message and wait until all of it is on its way."""
    for each in parts:
        to.sendall(each)


def receive(
    source: socket.socket, read: Callable[[bytes], tuple[Head, Sequence[int]]]
) -> tuple[Head, list[Bytes]] | None:
    """Wait for a message; None if the other side has gone.

    ``read`` reads the head, and says how long each part of the data is.
    """
    lengths = _exactly(source, LENGTHS.size)
    if lengths is None:
        return None
    head = _exactly(source, LENGTHS.unpack(lengths.tobytes())[0])
    if head is None:
        return None
    found, sizes = read(head.tobytes())
    data = [_exactly(source, size) for size in sizes]
    return found, [each for each in data if each is not None]


def _exactly(source: socket.socket, size: int) -> Bytes | None:
    """So many bytes; None if the other side goes before they have come."""
    made = aligned(size)
    view = made.data
    while view:
        count = source.recv_into(view)
        if not count:
            return None
        view = view[count:]
    return made


class Incoming:
    """A message that comes in parts, from a worker that may send anything.

    Its number is that of the question, its data are either none, or of these sizes, and
    its head has at most so many bytes.
    """

    def __init__(
        self, number: int, sizes: Sequence[int], most: int = MOST_HEAD
    ) -> None:
        self._number, self._sizes, self._most = number, sizes, most
        self._lengths = bytearray()
        self._parts: list[Bytes] = []
        self._left: list[memoryview] = []
        self.broken = False
        """Whether what came is no message that is expected."""

    @property
    def complete(self) -> bool:
        """Whether all of it has come."""
        return bool(self._parts) and not self._left

    @property
    def head(self) -> bytes:
        """The head of a message that is complete."""
        return self._parts[0].tobytes()

    @property
    def data(self) -> list[Bytes]:
        """The parts of its data; none if it has none."""
        return self._parts[1:]

    def read(self, source: socket.socket) -> bool:
        """Take what has come; False if no more is to come."""
        if not self._parts:
            part = source.recv(LENGTHS.size - len(self._lengths))
            self._lengths += part
            if len(self._lengths) == LENGTHS.size:
                self._begin(*LENGTHS.unpack(self._lengths))
            return bool(part) and not self.broken
        count = source.recv_into(self._left[0])
        self._left[0] = self._left[0][count:]
        if not self._left[0]:
            del self._left[0]
        return count > 0

    def _begin(self, head: int, data: int, number: int) -> None:
        fits = 0 < head <= self._most and data in (0, sum(self._sizes))
        if not fits or number != self._number:
            self.broken = True
            return
        self._parts = [aligned(head), *(aligned(size) for size in self._sizes if data)]
        self._left = [each.data for each in self._parts if each.size]
