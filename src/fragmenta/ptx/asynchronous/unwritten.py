"""What is said about a register that is read before it was written?"""

from __future__ import annotations

from typing import Any

from fragmenta.ptx.asynchronous.events import Event, carries_out


@carries_out("unwritten")
def read_too_early(warp: Any, event: Event, lanes: int) -> int:
    """Lanes read a register that they have not written."""
    name = event.words[1]
    warp.report(
        "uninitialised", event, lanes,
        f"{name} is read, but these lanes have not written it on their way here",
        severity="warning",
    )  # fmt: skip
    return lanes
