"""Routines in memory, as machine code and Python call them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any

from fragmenta.engine.simt import library
from fragmenta.engine.simt.library import Routine


class LoadedRoutines:
    """Some routines, with all that they call; they stay in memory."""

    def __init__(self, routines: Iterable[Routine]) -> None:
        self._addresses = library.addresses(routines)

    def address(self, routine: Routine) -> int:
        """Where the code of a routine is."""
        return self._addresses[routine.name]

    def function(
        self, routine: Routine, *kinds: type, returns: type | None = None
    ) -> Callable[..., Any]:
        """A routine as a function of Python, with the types that it takes."""
        return ctypes.CFUNCTYPE(returns, *kinds)(self.address(routine))
