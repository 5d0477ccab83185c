"""The lane whose store stays is the one of an H200, where the manual leaves it open."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from tests.ptx import colliding

RECORDED = Path(__file__).parent.parent / "golden" / "h200" / "colliding_stores.json"


@pytest.mark.parametrize("width", colliding.WIDTHS)
@pytest.mark.parametrize("space", colliding.SPACES)
def test_the_same_lane_stays_as_on_an_h200(space: str, width: str) -> None:
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["kept"]
    out = np.zeros(colliding.WARPS, np.uint32)
    scratch = np.zeros(16 * colliding.WARPS, np.uint8)
    kernel = ptx.parse(colliding.kernel(space, width)).kernels["f"]
    shape = colliding.WARPS // colliding.BLOCK, 32 * colliding.BLOCK
    kernel.launch(*shape, [colliding.masks(), out, scratch], watch="report")
    assert out.tolist() == recorded[f"{space} {width}"]


@pytest.mark.parametrize("width, group", [("u32", 32), ("v2.u32", 16), ("v4.u32", 8)])
def test_the_lowest_lane_of_the_last_group_stays(width: str, group: int) -> None:
    """A warp stores 128 bytes at a time: those of 32, 16 or 8 lanes."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["kept"]
    for space in colliding.SPACES:
        found = recorded[f"{space} {width}"]
        for mask, kept in zip(colliding.masks().tolist(), found, strict=True):
            lanes = [lane for lane in range(32) if mask >> lane & 1]
            last = lanes[-1] // group
            assert kept == min(lane for lane in lanes if lane // group == last)
