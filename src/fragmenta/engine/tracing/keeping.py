"""Which pieces of a log are kept: the first ones, and the last before a problem."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from fragmenta.engine.tracing.log import StepChunk
from fragmenta.engine.tracing.trace import State, Window


class KeptChunk(NamedTuple):
    """A piece, and what memories held when it began, if that was kept."""

    piece: StepChunk
    state: State | None

    @property
    def end(self) -> int:
        """The number of the step after the last one."""
        return self.piece.base + len(self.piece.steps)


class Keeping:
    """The pieces of a window: the first steps of it, and a ring of later ones."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self._head: list[KeptChunk] = []
        self._ring: deque[KeptChunk] = deque()
        self._dropped = False
        """Whether pieces between the two were dropped."""

    @property
    def full(self) -> bool:
        """Whether all steps of the window are there, unless a problem moves it."""
        last = self._head[-1].end if self._head else 0
        return last >= self.window.first + self.window.most

    @property
    def begins(self) -> bool:
        """Whether the next piece may be the first that is kept."""
        return self.full or not self._head

    def add(self, held: KeptChunk) -> None:
        """Keep a piece, and drop those that are too old."""
        if held.end <= self.window.first or not len(held.piece.steps):
            return
        if not self.full:
            self._head.append(held)
            return
        self._ring.append(held)
        while len(self._ring) > 1 and held.end - self._ring[0].end >= self.window.most:
            self._ring.popleft()
            self._dropped = True

    def chosen(self, wrong: bool) -> list[KeptChunk]:
        """The pieces to be shown: with a problem, those that end with it."""
        if not wrong or not self._ring:
            return self._head
        return [*self._ring] if self._dropped else [*self._head, *self._ring]
