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
    kernel.launch(
        colliding.WARPS, 32, [colliding.masks(), out, scratch], problems="report"
    )
    assert out.tolist() == recorded[f"{space} {width}"]
