"""Findings: the problems that are found while a kernel runs.

The same problem in a loop, in many blocks or in many threads is one finding with a
count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import NamedTuple, TypeAlias

from fragmenta.base.arrays.lazy_dataclass import dataclass
from fragmenta.engine.simt.arguments import Elements
from fragmenta.engine.simt.compiled import Compiled
from fragmenta.engine.simt.context import Grid
from fragmenta.ptx.languages import PTX, Words
from fragmenta.ptx.module import Module
from fragmenta.ptx.rules import Rule


class ArrayName(NamedTuple):
    """Global memory of a launch, without its bytes."""

    slot: int
    name: str
    elements: Elements | None


class Launched(NamedTuple):
    """What is kept of a launch to report its problems later.

    It has none of the memory: neither the arrays nor their shadows.
    """

    module: Callable[[], Module]
    compiled: Compiled
    shape: Grid
    places: tuple[ArrayName, ...]
    language: Words = PTX
    """What the kernel was written in; PTX if that is not known."""


Key: TypeAlias = tuple[Rule, str, int, int | None]
"""What makes two findings one: rule, severity, site, and the other site."""
Use: TypeAlias = tuple[str, tuple[str, int]]
"""How an undefined value is used, and the instruction: its function and its number."""


@dataclass
class Finding:
    """One problem of a launch, before it is put into words.

    What two accesses of memory are about is in a subclass of the race detector.
    """

    rule: Rule
    site: int
    """The instruction at which it was seen: a number of ``Compiled.places``."""
    message: str
    block: int = 0
    """The number of the block in the grid."""
    warp: int = 0
    lanes: int = 0
    severity: str = ""
    """The severity of the rule, if nothing else is given."""
    other: int | None = None
    """The instruction that it collides with, if there is one."""
    count: int = 1
    repair: str | None = None
    """What repairs it, if not what the rule says."""
    line: int = 0
    """The line of the text, if the instruction is not known."""
    apart: int = 0
    """How far apart the threads are, of all pairs: bits of ``shadow.layout.Apart``."""
    use: str = ""
    """How undefined bits are used, if this is such a use."""
    register: str = ""
    """The register that was read before it was written."""
    uses: tuple[Use, ...] = ()
    """The uses of a value that was never written."""
    alike: int = 0
    """How many other loads there are with the same uses."""
    time: int = -1
    """When it was reported: the number of the event; -1 if that is not known."""

    def __post_init__(self) -> None:
        self.severity = self.severity or self.rule.severity

    @property
    def key(self) -> Key:
        """What makes it the same as another.  A note does not hide an error."""
        return self.rule, self.severity, self.site, self.other


class Problems:
    """All problems of a launch; threads of the host add to it."""

    def __init__(self) -> None:
        self._found: dict[Key, Finding] = {}
        self._lock = Lock()

    def put(self, made: Finding) -> None:
        """Add a problem, or count it if it is known."""
        with self._lock:
            known = self._found.get(made.key)
            if known is None:
                self._found[made.key] = made
                return
            known.count += made.count
            known.apart = made.apart = known.apart | made.apart
            # The first block is reported, in whatever order the host ran them.
            if (made.block, made.warp) < (known.block, known.warp):
                made.count = known.count
                self._found[made.key] = made

    def drop(self, unwanted: Callable[[Finding], bool]) -> None:
        """Forget some problems."""
        with self._lock:
            self._found = {k: v for k, v in self._found.items() if not unwanted(v)}

    def __iter__(self) -> Iterator[Finding]:
        with self._lock:
            some = [*self._found.values()]
        return iter(sorted(some, key=lambda each: each.site))

    def __len__(self) -> int:
        return len(self._found)
