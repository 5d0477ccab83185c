"""Routines in memory, as machine code and Python call them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from threading import Lock
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


class RoutinesOnDemand(LoadedRoutines):
    """Routines of which each is loaded when it is first asked for.

    Those that it calls are loaded with it: a kernel compiles what it needs.
    """

    def __init__(self, routines: Iterable[Routine]) -> None:
        self._known = {n: each for each in routines for n in (each.name, *each.others)}
        self._addresses: dict[str, int] = {}
        self._lock = Lock()

    def address(self, routine: Routine) -> int:
        """Where the code of a routine is."""
        self.load([routine])
        return super().address(routine)

    def load(self, routines: Iterable[Routine]) -> None:
        """Load routines, and all that they call."""
        with self._lock:
            wanted: dict[str, Routine] = {}
            new = {each.name: each for each in routines}
            while new:
                missing = [e for n, e in new.items() if n not in self._addresses]
                wanted |= {each.name: each for each in missing}
                made = library.objects(missing)
                calls = {n for each in made for n in each.calls if _is_routine(n)}
                found = [self._known[n] for n in calls]
                new = {e.name: e for e in found if e.name not in wanted}
            if wanted:
                self._addresses |= library.addresses(wanted.values())


def _is_routine(name: str) -> bool:
    """Whether a function is one of ours: those of LLVM and of C are always there."""
    return "." in name and not name.startswith("llvm.")
