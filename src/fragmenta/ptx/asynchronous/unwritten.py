"""What is said about a register that is used before it was written?"""

from __future__ import annotations

from typing import Any

from fragmenta.errors import one_of
from fragmenta.ptx.asynchronous.events import Event, carries_out


@carries_out("unwritten")
def read_too_early(warp: Any, event: Event, lanes: int) -> int:
    """Lanes need a register that they have not written."""
    name, *behind = event.words[1:]
    if name in behind:
        text = f"{name} is needed here, but these lanes have not written it"
    else:
        made = one_of(behind[:3], "or") + " and others" * (len(behind) > 3)
        text = f"{name} is made of {made}, which these lanes have not written"
    warp.report(
        "uninitialised", event, lanes,
        f"{text} on their way here",
        severity="warning",
    )  # fmt: skip
    return lanes
