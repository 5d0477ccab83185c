"""Sets of readers are kept as long as a word names them, and no longer."""

import numpy as np
import pytest

from fragmenta.watch.races.shadow import layout
from fragmenta.watch.races.shadow.collection import FULL
from tests.races.rig import START, Rig, line


def used(rig: Rig) -> int:
    return int(rig.shared._sets.view(np.int32)[layout.SETS_USED // 4])


@pytest.mark.long
def test_sets_are_collected() -> None:
    rig = Rig(4)
    rig.write(0, line())
    for start in (1024, 1152):
        rig.write(0, line(START + start))
    rig.sync()
    for warp in range(4):
        rig.read(warp, line())
    kept = {2, 3}
    # Warps 0 and 1 meet often; the reads of the others stay unknown to them.
    most = 0
    for _ in range(460):
        for word in range(20):
            for warp in (0, 1):
                rig.read(warp, START + 1024 + 4 * word, 1)
        rig.sync(0, 1, number=1)
        most = max(most, used(rig))
    assert FULL * 0.9 < most <= FULL + 40
    assert used(rig) < FULL
    assert not rig.shared.found()
    rig.write(0, line())
    found = rig.shared.found()
    assert {each.before.agent for each in found if each.before} == kept
    assert {each.count for each in found} == {32}


def test_equal_sets_have_equal_numbers() -> None:
    rig = Rig(4)
    rig.write(0, line())
    rig.sync()
    for _ in range(3):
        for warp in range(4):
            rig.read(warp, line(), site=10 + warp)
    # The first reader, and one more for each of the others.
    assert used(rig) == 4
