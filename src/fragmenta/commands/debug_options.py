"""A launch that is debugged, as the command line describes it."""

from __future__ import annotations

from typing import NamedTuple

from fragmenta.launch.limits import Limits


class How(NamedTuple):
    """A launch as the command line describes it."""

    words: list[str] | None
    grid: str
    block: str | None
    cluster: str | None
    cooperative: bool
    shared: int
    arg: list[str] | None
    target: str | None
    flags: list[str] | None
    schedule: str | None
    blocks: str | None
    replay_from: int | None
    no_contract: bool
    limits: Limits
