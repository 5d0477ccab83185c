"""What is known at the end of a block, for all records of its shadow at once."""

from __future__ import annotations

import numpy as np

from fragmenta.races.exits import _known
from fragmenta.races.order import knows
from fragmenta.races.shadow.layout import LAST_EPOCH, LAST_SITE, Lanes, Record


def test_records_are_known_as_one_by_one() -> None:
    rng, agents = np.random.default_rng(6), 24
    plane = rng.integers(0, 6, (3, agents), np.int32)
    plane[2] = rng.integers(-(1 << 31), 1 << 31, agents, np.int64).astype(np.int32)
    plane[:2, 0] = LAST_EPOCH
    kept = [
        Record(LAST_SITE - i, int(epoch), int(agent), i % 32, Lanes(i % 7), 15, i % 16)
        for i, (epoch, agent) in enumerate(rng.integers(0, (7, agents), (2000, 2)))
    ]
    kept.append(Record(0, LAST_EPOCH, 0, 31, Lanes.ONE, 1, 0))
    words = np.array([each.pack() for each in kept], np.uint64)
    expected = [knows(plane, each.agent, each.lane, each.epoch) for each in kept]
    assert _known(plane, words).tolist() == expected
    assert 100 < sum(expected) < 1900
