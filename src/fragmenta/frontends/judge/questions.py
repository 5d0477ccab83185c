"""What a pool of judges asks a worker: the cases of a task, or a verdict."""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.frontends.judge.settings import Settings
from fragmenta.frontends.pool.packing import PackedArguments
from fragmenta.frontends.pool.questions import KernelText
from fragmenta.launch.limits import Limits


class Prepare(NamedTuple):
    """The cases of a reference."""

    text: KernelText
    settings: Settings
    folder: str
    limits: Limits
    arguments: PackedArguments = PackedArguments([], [])
    number: int = 0


class Try(NamedTuple):
    """The verdict about a candidate."""

    text: KernelText
    settings: Settings
    folder: str
    limits: Limits
    arguments: PackedArguments = PackedArguments([], [])
    """One region: the cases, as ``dump`` of the module ``wire`` has them."""
    number: int = 0
