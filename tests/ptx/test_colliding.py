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


# Lanes 8 i to 8 i + 7 store together; the last of these groups stays, and of it the
# lowest lane.
GROUPS = [(0xFFFFFFFF, 24), (0x00FFFFFF, 16), (0x0000FFFE, 8), (0x000000F0, 4), (0x80000001, 31)]  # fmt: skip


@pytest.mark.parametrize("warps", [1, 2, 3, 16])
@pytest.mark.parametrize("width", ["v4.b32", "v2.b64", "v2.b32"])
def test_wide_stores_of_several_warps(warps: int, width: str) -> None:
    register = "%l" if width.endswith("64") else "%lane"
    stored = ", ".join([register] * int(width[1]))
    text = f""".version 8.0
.target sm_90
.address_size 64
.visible .entry f(.param .u32 mask, .param .u64 out)
{{
    .shared .align 16 .b8 room[512];
    .reg .pred %p; .reg .b32 %lane, %mask, %warp, %place, %kept; .reg .b64 %l, %out;
    ld.param.u32 %mask, [mask]; ld.param.u64 %out, [out];
    mov.u32 %lane, %laneid; mov.u32 %warp, %tid.x; shr.u32 %warp, %warp, 5;
    mov.u32 %place, room; mad.lo.u32 %place, %warp, 16, %place;
    cvt.u64.u32 %l, %lane; shr.u32 %mask, %mask, %lane; and.b32 %mask, %mask, 1;
    setp.ne.u32 %p, %mask, 0;
    @%p st.shared.{width} [%place], {{{stored}}};
    bar.sync 0;
    ld.shared.u32 %kept, [%place];
    mad.wide.u32 %out, %warp, 4, %out; st.global.u32 [%out], %kept;
    ret;
}}
"""
    kernel = ptx.parse(text).kernels["f"]
    for mask, group in GROUPS:
        lowest = (mask & -mask).bit_length() - 1
        wide = warps > 1 and width != "v2.b32"
        out = np.zeros(warps, np.uint32)
        kernel.launch(1, 32 * warps, [mask, out], check=False)
        assert out.tolist() == [group if wide else lowest] * warps, hex(mask)
