"""Whole kernels leave the same bytes in memory as a GPU.

The recordings hold the PTX and what an H200 did with it; the sources are in the corpus
beside this file.
"""

import os
import zlib
from dataclasses import replace

import numpy as np
import pytest

from fragmenta.inspect.evidence import launches
from tests.ptx import recordings
from tests.thinning import kinds

LAUNCHES = recordings.every_launch()
RACES = {
    # While a thread climbs to its root by volatile loads, others shorten the same path
    # by a plain store.  Every order gives the same labels, but PTX calls it a race.
    "atomics.sm_80-components": {"global-race"},
    # A thread reads the depth of its node by a plain load, while others try in vain to
    # swap it.  PTX calls a compare-and-swap that fails a write, too.
    "simulation.sm_80-breadth_first": {"global-race"},
}


# One of each source and some others, the same every time; ``make hopper``: all.
CHOSEN = {each.identity for each in kinds(LAUNCHES, lambda each: each.source, 30)}


def is_replayed(launch: recordings.Launch) -> bool:
    chosen = launch.identity in CHOSEN
    return chosen or launch.identity in RACES or "FRAGMENTA_HOPPER" in os.environ


REPLAYED = [each for each in LAUNCHES if is_replayed(each)]


def is_watched(launch: recordings.Launch) -> bool:
    """Some launches are watched, the same every time; ``make hopper``: all."""
    chosen = zlib.crc32(launch.identity.encode()) % 5 == 0
    return chosen or launch.identity in RACES or "FRAGMENTA_HOPPER" in os.environ


@pytest.mark.long
@pytest.mark.parametrize("launch", REPLAYED, ids=[each.identity for each in REPLAYED])
def test_a_launch_leaves_the_bytes_of_the_gpu(launch: recordings.Launch) -> None:
    found = launches.replay_one(launch.file, launch.row, watch=is_watched(launch))
    assert not found.lines
    wrong = {each.rule for each in found.hazards}
    assert wrong == RACES.get(launch.identity, set())
    arrays = [a for a in launch.expected() if isinstance(a, np.ndarray)]
    assert found.bytes == sum(each.nbytes for each in arrays) > 0


def test_a_wrong_byte_is_seen() -> None:
    launch = LAUNCHES[0]
    change, *others = launch.row.changes
    wrong = launch.file.changes.copy()
    wrong[change.start + 5] ^= 0x80
    found = launches.replay_one(replace(launch.file, changes=wrong), launch.row)
    assert [(each.argument, each.elements) for each in found.differences] == [
        (change.argument, 1)
    ]
    assert "1 of" in found.lines[0]
    unchanged = replace(launch.row, changes=others)
    found = launches.replay_one(launch.file, unchanged)
    assert found.differences[0].argument == change.argument


def test_other_words_are_seen() -> None:
    launch = next(each for each in LAUNCHES if each.row.printed)
    other = replace(launch.row, printed=launch.row.printed + "more\n")
    assert launches.replay_one(launch.file, other).lines == ["it printed other lines"]
