"""What a pool asks a worker: to launch a kernel, or to check a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self, TypedDict

from fragmenta.launch.limits import Limits
from fragmenta.launch.options import Watch
from fragmenta.pool.packing import Packed
from fragmenta.ptx.languages import PTX, Words
from fragmenta.units.schedule import Given


class LaunchOptions(TypedDict, total=False):
    """The options of ``kernel.launch`` that a worker passes on."""

    cluster: int | Sequence[int] | None
    cooperative: bool
    shared: int
    target: str | None
    contract: bool
    schedule: Given | Sequence[Given]
    watch: bool | str | Watch
    counters: bool
    numerics: bool
    nan: str


class Text(NamedTuple):
    """A PTX text, and what is known about its module and its kernel."""

    text: str
    file: str = ""
    kernel: str | None = None
    """Its name; None if there is one only."""
    kept: dict[str, bytes] = {}  # noqa: RUF012 - it is never changed
    """The variables of the module that have other values than the text says."""
    names: tuple[str, ...] = ()
    language: Words = PTX


class Launch(NamedTuple):
    """A launch."""

    text: Text
    grid: int | Sequence[int]
    block: int | Sequence[int]
    arguments: Packed
    options: LaunchOptions
    limits: Limits
    timeline: bool = False
    """Whether to draw what a cluster did."""
    number: int = 0
    """It is repeated in the answer."""


class Check(NamedTuple):
    """A check of a text, without running it."""

    text: Text
    target: str | None
    limits: Limits
    arguments: Packed = Packed([], [])
    number: int = 0


Question = Launch | Check


class Asked(Protocol):
    """What a pool knows of every question, also of those of other rooms."""

    @property
    def text(self) -> Text:
        """Questions about the same text go to the same worker."""

    @property
    def limits(self) -> Limits:
        """What the answer may take."""

    @property
    def arguments(self) -> Packed:
        """Memory that is sent with it."""

    @property
    def number(self) -> int:
        """It is repeated in the answer."""

    def _replace(self, *, number: int = ...) -> Self:
        """The same with another number."""
