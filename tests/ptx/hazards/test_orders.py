"""No right kernel of the corpus hangs, races or misuses a barrier in any order."""

from typing import Any

import pytest

from fragmenta import ptx
from fragmenta.ptx.rules import INFO
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import Case, cases
from tests.thinning import some

STATES = 20_000
EVERY = 30
PATH_ONLY = ("quiet-voting",)
"""Kernels in which data decide what threads synchronise with."""
TOLD = ("plain-last_block", "scopes-last_block")
"""Kernels whose lane 0 draws a ticket and tells it to its block: no other is tried."""
ALWAYS = (
    "quiet-shared_counter",  # lanes poll one word, each with a fence of its own
    "slices-way_out",
    "slices-last_prefetch",
    "slices-scales",
)
RIGHT = {case.name: case for case in cases() if not case.bug}
CHOSEN = [RIGHT[name] for name in dict.fromkeys([*ALWAYS, *some(RIGHT, EVERY)])]


def explored(case: Case) -> Any:
    """A launch with all of its orders."""
    row = case.row
    cluster = row.cluster if row.cluster > 1 else None
    return (
        running.loaded(row.source, 0)
        .kernels[row.entry]
        .launch(
            row.grid,
            row.block,
            running.for_launch(row, running.made(row)),
            cluster=cluster,
            limits=ptx.Limits(instructions=2_000_000),
            watch=ptx.Watch("report", strict=row.source in running.STRICT),
            orders=STATES,
        )
    )


@pytest.mark.parametrize("case", CHOSEN, ids=[case.name for case in CHOSEN])
def test_a_right_kernel_is_clean_in_every_order(case: Case) -> None:
    result = explored(case)
    assert not [each for each in result.hazards if each.severity != INFO]
    assert result.orders.clean
    expected = "this path only" if case.name in PATH_ONLY else "all orders"
    expected = "incomplete" if case.name in TOLD else expected
    assert result.orders.verdict == expected, result.orders.reasons
