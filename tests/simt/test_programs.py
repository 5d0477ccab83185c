"""The engine runs random programs as threads without warps would."""

from __future__ import annotations

import numpy as np
import pytest

from tests.simt.programs import THREADS, Maker, Step, difference, executed
from tests.thinning import some

INITIAL = np.arange(THREADS * 8, dtype=np.uint32).reshape(THREADS, 8)


@pytest.mark.long
@pytest.mark.parametrize("seed", some(range(10), 2))
def test_random_programs(seed: int) -> None:
    assert difference(seed) == ""


def test_the_programs_contain_what_they_should() -> None:
    steps = [step for seed in range(100) for step in Maker(seed).program()]
    names = {step.text.split(".")[0] for step in steps}
    assert names >= {"add", "bra", "setp", "selp", "shfl", "vote", "label", "sad"}
    assert any(step.guard for step in steps)


def test_the_interpreter_by_hand() -> None:
    # x0 counts down to 0; lanes exchange x1 with their neighbours.
    steps = [
        Step("and.b32", ("x0", "x0", 31)),
        Step("mov.u32", ("x2", 0)),
        Step("label", ("L1",)),
        Step("setp.eq.u32", ("p0", "x0", 0)),
        Step("bra", ("L2",), "p0"),
        Step("add.u32", ("x2", "x2", "x0")),
        Step("sub.u32", ("x0", "x0", 1)),
        Step("bra", ("L1",)),
        Step("label", ("L2",)),
        Step("shfl.sync.bfly.b32", ("x3", "x1", 1)),
        Step("vote.sync.ballot.b32", ("x4", "p0")),
    ]
    found = executed(steps, INITIAL)
    start = INITIAL[:, 0] & 31
    assert (found[:, 2] == start * (start + 1) // 2).all()
    assert (found[:, 3] == INITIAL[np.arange(THREADS) ^ 1, 1]).all()
    assert found[:, 4].tolist() == [0xFFFFFFFF] * 32 + [0xFF] * 8
    assert (found[:, 8] == 1).all()
