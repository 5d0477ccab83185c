"""What survives an access of an ended block on an H200 survives it here, and no more."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fragmenta import ptx
from tests.launch.ended_blocks import ACCESSES, SOURCE
from tests.thinning import repeats

RECORDED: dict[str, list[Any]] = json.loads(
    (Path(__file__).parents[1] / "golden/h200/ended_blocks.json").read_text()
)


@cache
def reach() -> ptx.Kernel:
    return ptx.RawKernel(SOURCE, "reach", target="sm_90a").kernel


def launched(name: str, **options: Any) -> tuple[Any, Any]:
    flag, out = np.zeros(1, np.uint32), np.zeros(3, np.uint32)
    given = [flag, out, np.arange(64, dtype=np.uint32), list(ACCESSES).index(name)]
    return out, reach().launch(2, 32, given, cluster=2, **options)


def test_the_recording_is_whole() -> None:
    assert set(RECORDED) == set(ACCESSES)
    assert RECORDED["none"] == [[0xDEAD, 101, 1]] * 5
    survived = {name for name, found in RECORDED.items() if len(found) == 5}
    assert survived == {
        *("none", "st", "st_async", "red_async", "arrive", "copy_to_peer")
    }


# Every access; the schedules take turns.
@repeats(together=1)
@pytest.mark.parametrize("schedule", ["eager", "lazy"])
@pytest.mark.parametrize("name", ACCESSES)
def test_it_is_as_on_the_card(name: str, schedule: str) -> None:
    out, result = launched(name, watch="report", schedule=schedule)
    survived = isinstance(RECORDED[name][-1], list)
    assert result.complete == survived
    errors = [each for each in result.problems if each.severity in ("error", "fault")]
    assert bool(errors) == (name != "none")
    if survived:
        assert out.tolist() == RECORDED[name][-1]
        for each in errors:
            assert each.rule == "shared-race"
            assert "whose threads have all ended" in each.message
            assert "is ignored" in each.message


@pytest.mark.parametrize("name", ACCESSES)
def test_a_launch_that_is_not_watched_does_the_same(name: str) -> None:
    survived = isinstance(RECORDED[name][-1], list)
    if name == "none":
        assert launched(name, watch=False)[0].tolist() == RECORDED[name][-1]
    elif survived:
        with pytest.raises(ptx.KernelHazard, match="is ignored") as caught:
            launched(name, watch=False)
        assert caught.value.result.complete
    else:
        with pytest.raises(ptx.KernelFault):
            launched(name, watch=False)


def test_each_of_them_is_a_fault_if_errors_are_raised() -> None:
    for name in ACCESSES:
        if name != "none":
            with pytest.raises(ptx.KernelFault):
                launched(name)
