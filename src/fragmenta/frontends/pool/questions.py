"""What a pool asks a worker: to launch a kernel, or to check a text."""

from __future__ import annotations

from typing import NamedTuple, Protocol, Self

from fragmenta.frontends.pool.packing import PackedArguments
from fragmenta.launch.limits import Limits
from fragmenta.launch.request import LaunchRequest
from fragmenta.ptx.languages import PTX, Words


class KernelText(NamedTuple):
    """A PTX text, and what is known about its module and its kernel."""

    text: str
    file: str = ""
    kernel: str | None = None
    """Its name; None if there is one only."""
    kept: dict[str, bytes] = {}  # noqa: RUF012 - it is never changed
    """The variables of the module that have other values than the text says."""
    names: tuple[str, ...] = ()
    language: Words = PTX


class LaunchQuestion(NamedTuple):
    """A launch."""

    text: KernelText
    request: LaunchRequest
    """Without its arguments."""
    arguments: PackedArguments
    timeline: bool = False
    """Whether to draw what a cluster did."""
    number: int = 0
    """It is repeated in the answer."""

    @property
    def limits(self) -> Limits:
        """What the launch may take."""
        return self.request.limits


class Check(NamedTuple):
    """A check of a text, without running it."""

    text: KernelText
    target: str | None
    limits: Limits
    arguments: PackedArguments = PackedArguments([], [])
    number: int = 0


Question = LaunchQuestion | Check


class PoolQuestion(Protocol):
    """What a pool knows of every question, also of those of other rooms."""

    @property
    def text(self) -> KernelText:
        """Questions about the same text go to the same worker."""

    @property
    def limits(self) -> Limits:
        """What the answer may take."""

    @property
    def arguments(self) -> PackedArguments:
        """Memory that is sent with it."""

    @property
    def number(self) -> int:
        """It is repeated in the answer."""

    def _replace(self, *, number: int = ...) -> Self:
        """The same with another number."""
