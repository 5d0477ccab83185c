"""Says that a launch spins, while it does.

A launch that spins may do so for an hour, until a limit ends it.  So after some
seconds a line says who spins on which word, and another one whenever ten times as long
has passed.  See :mod:`fragmenta.base.progress` for where the lines go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fragmenta.base import progress
from fragmenta.launch import faults
from fragmenta.ptx.module import demangled

MOST_LOOKED_AT = 8
"""Blocks that are looked at: if many spin, the first ones say why."""


class SpinNotices:
    """Looks now and then at the blocks of a launch, and says which of them spin."""

    def __init__(self) -> None:
        self._pause = progress.patience()
        self._next = progress.clock.now() + self._pause
        self._before: set[str] = set()
        """What spun when it last looked."""

    def look(
        self, kernel: str, blocks: Iterable[Callable[[], faults.FaultContext]]
    ) -> None:
        """Say who has been spinning on the same word for some time.

        ``blocks`` say where those are that run and are not in machine code now.
        """
        if progress.clock.now() < self._next:
            return
        places = [
            each() for each, _ in zip(blocks, range(MOST_LOOKED_AT), strict=False)
        ]
        found = [words for each in places for words in faults.spun_words(each)]
        again = [words for words in found if words in self._before]
        if again:
            more = f", and {len(again) - 1} more" if len(again) > 1 else ""
            progress.log().info(
                f"launching {demangled(kernel)}: {again[0]}{more}; {faults.ORDERS}"
            )
            self._pause *= 10
        self._before |= set(found)
        self._next = progress.clock.now() + self._pause
