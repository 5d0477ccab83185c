"""What a pool and its fork server say to one another."""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from typing import NamedTuple

ORDER = struct.Struct("<cxxxI")
"""An order of the pool: its letter, and the number of a worker."""
FORK, KILL, END = b"f", b"k", b"e"
NEWS = struct.Struct("<cxxxIi")
"""News for the pool: a letter, the number of a worker, and its exit status."""
READY, ENDED = b"r", b"x"
HERE = b"h"
"""What a worker says first; its time is counted from then on."""

PROGRAM = "from fragmenta.frontends.pool.forkserver import main; main()"
"""What a fork server runs.

The words after it: its socket, the process of the pool, the fields of
:class:`WorkerTerms`, whether it warms up, and those of :func:`remove_socket`, if there
is one to remove.
"""


class WorkerTerms(NamedTuple):
    """What a pool says to each of its workers."""

    launches: int
    """Launches after which it ends."""
    cores: int
    """Cores that a launch may use."""


def remove_socket(path: str, inode: str, folder: str) -> None:
    """Remove a socket, if it is still this one, and the folder that was made for it."""
    with suppress(OSError):
        if str(os.lstat(path).st_ino) == inode:
            os.unlink(path)
    with suppress(OSError):
        if folder:
            os.rmdir(folder)
