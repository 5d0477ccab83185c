"""What a pool of judges asks a worker: the cases of a task, or a verdict."""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.judge.settings import Settings
from fragmenta.launch.limits import Limits
from fragmenta.pool.packing import PackedArguments
from fragmenta.pool.questions import KernelText


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
    """One region: the cases, as :func:`fragmenta.judge.wire.dump` has them."""
    number: int = 0
