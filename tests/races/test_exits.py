"""What is known at the end of a block, for all records of its shadow at once."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta.watch.races.exits import _known
from fragmenta.watch.races.order import knows
from fragmenta.watch.races.shadow.layout import (
    LAST_EPOCH,
    LAST_SITE,
    Lanes,
    ShadowRecord,
)
from tests.simt.kernels import kernel


def test_records_are_known_as_one_by_one() -> None:
    rng, agents = np.random.default_rng(6), 24
    plane = rng.integers(0, 6, (3, agents), np.int32)
    plane[2] = rng.integers(-(1 << 31), 1 << 31, agents, np.int64).astype(np.int32)
    plane[:2, 0] = LAST_EPOCH
    kept = [
        ShadowRecord(
            LAST_SITE - i, int(epoch), int(agent), i % 32, Lanes(i % 7), 15, i % 16
        )
        for i, (epoch, agent) in enumerate(rng.integers(0, (7, agents), (2000, 2)))
    ]
    kept.append(ShadowRecord(0, LAST_EPOCH, 0, 31, Lanes.ONE, 1, 0))
    words = np.array([each.pack() for each in kept], np.uint64)
    expected = [knows(plane, each.agent, each.lane, each.epoch) for each in kept]
    assert _known(plane, words).tolist() == expected
    assert 100 < sum(expected) < 1900


COPIED = """
    .shared .align 16 .b32 tile[64];
    .reg .b32 %at;
    mov.u32 %at, tile;
    mad.lo.u32 %at, %t, 4, %at;
    cp.async.ca.shared.global [%at], [%mine], 4;
    {wait}
    ret;
"""


@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize(
    "wait, left",
    [("", 1), ("cp.async.commit_group;", 1), ("cp.async.wait_all;", 0)],
)
def test_copies_that_nobody_waits_for(wait: str, left: int, schedule: str) -> None:
    """Also those in no group, which are made at once."""
    made = kernel(COPIED.format(wait=wait))
    given = [np.zeros(64, np.uint32)]
    found = made.launch(1, 64, given, watch="report", schedule=schedule).hazards
    assert [(each.rule, each.severity) for each in found] == [
        ("leak", "warning")
    ] * left
    assert all(each.line for each in found)
