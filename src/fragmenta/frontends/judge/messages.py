"""Sends trees between an examiner and its children, over a socket."""

from __future__ import annotations

import socket
import struct

from fragmenta.frontends.judge.wire import Tree, dump, load

_LENGTH = struct.Struct("<Q")
MOST = 1 << 31
"""Bytes of a message."""


class Gone(Exception):
    """The other side has ended."""


def send(to: socket.socket, tree: Tree) -> None:
    """Send a tree, and wait until all of it is on its way."""
    block = dump(tree)
    try:
        to.sendall(_LENGTH.pack(len(block)))
        to.sendall(block)
    except (BrokenPipeError, ConnectionResetError) as why:
        raise Gone from why


def receive(source: socket.socket, most: int = MOST) -> Tree:
    """Wait for a tree; ValueError if something else comes."""
    (length,) = _LENGTH.unpack(_exactly(source, _LENGTH.size))
    if length > most:
        raise ValueError(f"a message has {length:,} bytes; {most:,} are allowed")
    return load(memoryview(_exactly(source, length)))


def _exactly(source: socket.socket, size: int) -> bytearray:
    made = bytearray(size)
    view = memoryview(made)
    while view:
        try:
            count = source.recv_into(view)
        except ConnectionResetError as why:
            raise Gone from why
        if not count:
            raise Gone
        view = view[count:]
    return made
