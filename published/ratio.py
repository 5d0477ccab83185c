"""The speed of the package against MMA-Sim, in one run on this machine.

Both are given the same elements in one batch, in their own formats, and may use
all cores: ask on an otherwise idle machine.
"""

from __future__ import annotations

import os
import platform

import judge
import numpy as np
from compare import surveyed
from timing import least

from fragmenta.reference.arithmetic import multiply
from tests.arithmetic.inputs import operands

PRODUCTS = 1 << 23  #: enough for both to be at their best, in every case
CASES = (
    "sm_80 MMA m16n8k16.f32.f16.f16.f32",
    "sm_90 MMA m16n8k16.f32.f16.f16.f32",
    "sm_90 MMA m16n8k16.f32.bf16.bf16.f32",
    "sm_90a WGMMA m64nNk32.f32.e4m3.e4m3",
    "sm_120a MMABlockScale m16n8k32.kind::mxf8f6f4.block32.f32.e4m3.e4m3.f32.ue8m0",
    "sm_120a MMABlockScale m16n8k64.kind::mxf4nvf4.block16.f32.e2m1.e2m1.f32.ue4m3",
)


def main() -> None:
    """Print a line for each case."""
    print(f"{platform.machine()}, {os.cpu_count()} cores; million products a second")
    rows = {row.id: row for row in surveyed()[0]}
    for name in CASES:
        row = rows[name]
        rng, how = np.random.default_rng(0), row.model
        tiles = PRODUCTS // (16 * 8 * how.k)
        a, b, c, more = operands(rng, how, "near", tiles, 16, 8)
        asked = judge.Judge(row)
        given = asked.vectors(a, b, c, tuple(more.values()))
        given = [each.contiguous() for each in given]
        answer = asked.instruction.dpa
        products = c.size * how.k / 1e6
        ours = products / least(lambda: multiply(a, b, c, how, **more), 15)  # noqa: B023
        theirs = products / least(lambda: answer(*given), 3)  # noqa: B023
        short = name.replace("MMABlockScale ", "").replace(".f32.ue", ".ue")
        print(f"{short:<66}{ours:8.0f}{theirs:8.1f}{ours / theirs:6.0f} times")


if __name__ == "__main__":
    main()
