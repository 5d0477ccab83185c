"""The mode of a kernel: what its code is compiled for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Mode(NamedTuple):
    """What the code of a kernel depends on besides its text and the target."""

    watch: bool = False
    """Whether the code is instrumented for the race detector."""
    clustered: bool = False
    """Whether blocks are in clusters, so that shared addresses have a rank."""
    scheduled: bool = False
    """Whether asynchronous copies are done when a schedule says so, not at once."""
    defined: bool = False
    """Whether each register has shadow bits that say which of its bits are defined."""
    stepped: bool = False
    """Whether the turn of a warp ends at every synchronising event."""
    recorded: bool = False
    """Whether what synchronises is recorded, so that all orders can be explored."""
    raced: bool = False
    """Whether what racy loads read is undefined, where undefined bits are followed."""
    counted: bool = False
    """Whether memory traffic, lanes and branches are counted."""
    traced: bool = False
    """Whether every step is recorded, with the registers and memory that it writes."""
    valued: bool = False
    """Whether it is counted, too, how results of instructions differ."""
    planes: int = 0
    """How many planes of second values go beside registers and memory."""

    @classmethod
    def of(cls, fields: Sequence[int]) -> Mode:
        """The mode with these fields, as they are kept on disk.

        >>> Mode.of(list(Mode(watch=True, planes=4))).planes
        4
        """
        flags = len(cls._fields) - 1
        made = cls(*map(bool, fields[:flags]))
        return made._replace(planes=sum(fields[flags:]))

    @property
    def shadows(self) -> int:
        """How many shadows each register and each memory has."""
        return 1 if self.defined else self.planes

    @property
    def probed(self) -> bool:
        """Whether an instrument wants to know of accesses by copies and matrices."""
        return self.watch or self.counted or self.traced


PLAIN = Mode()
