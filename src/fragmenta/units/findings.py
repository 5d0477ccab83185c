"""What was found while a kernel ran, and how is it told?

The same problem in a loop, in many blocks or in many threads is one problem with a
count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, NamedTuple

from fragmenta.ptx.module import Module
from fragmenta.ptx.rules import Rule
from fragmenta.simt.arguments import Elements
from fragmenta.simt.compiled import Compiled
from fragmenta.simt.context import Shape


class Place(NamedTuple):
    """Global memory of a launch, without its bytes."""

    slot: int
    name: str
    elements: Elements | None


class Launched(NamedTuple):
    """What is kept of a launch to tell its problems later.

    It has none of the memory: neither the arrays nor their shadows.
    """

    module: Callable[[], Module]
    compiled: Compiled
    shape: Shape
    places: tuple[Place, ...]
    language: str = ""
    """What the kernel was written in: ``triton``, ``cuda``, ``numba``; else unknown."""


@dataclass
class Found:
    """One problem of a launch, before it is put into words."""

    rule: Rule
    severity: str
    site: int
    """The instruction at which it was seen: a number of ``Compiled.places``."""
    message: str
    block: int
    """The number of the block in the grid."""
    warp: int
    lanes: int
    other: int | None = None
    """The instruction that it collides with, if there is one."""
    count: int = 1
    more: dict[str, Any] = field(default_factory=dict)


class Problems:
    """All problems of a launch; threads of the host add to it."""

    def __init__(self) -> None:
        self._found: dict[tuple[Any, ...], Found] = {}
        self._lock = Lock()

    def add(
        self, rule: Rule, severity: str, site: int, message: str, warp: Any, lanes: int,
        other: int | None = None, count: int = 1, **more: Any,
    ) -> None:  # fmt: skip
        """Add a problem, or count it if it is known."""
        block = warp.block.index
        made = Found(
            rule, severity, site, message, block, warp.number, lanes, other, count, more
        )
        self.put(made)

    def put(self, made: Found) -> None:
        """Add a problem, or count it if it is known."""
        # A note, such as that both wrote the same value, hides no error.
        key = made.rule, made.severity, made.site, made.other
        with self._lock:
            known = self._found.get(key)
            if known is None:
                self._found[key] = made
                return
            known.count += made.count
            apart = known.more.get("apart", 0) | made.more.get("apart", 0)
            known.more["apart"] = made.more["apart"] = apart
            # The first block says it, whichever thread of the host was the faster.
            if (made.block, made.warp) < (known.block, known.warp):
                made.count = known.count
                self._found[key] = made

    def drop(self, unwanted: Callable[[Found], bool]) -> None:
        """Forget some problems."""
        with self._lock:
            self._found = {k: v for k, v in self._found.items() if not unwanted(v)}

    def __iter__(self) -> Any:
        return iter(sorted(self._found.values(), key=lambda each: each.site))

    def __len__(self) -> int:
        return len(self._found)
