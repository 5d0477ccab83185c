"""Routines are in memory once, whatever the number of kernels."""

import sys
from pathlib import Path

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.engine.simt import library, warps

TEXT = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry store(.param .u64 at)
{{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd0, [at];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %rd1, %r0, 4;
    add.u64 %rd2, %rd0, %rd1;
    add.u32 %r1, %r0, {number};
    st.global.u32 [%rd2], %r1;
    bar.sync 0;
    ret;
}}
"""


def launched(number: int) -> ptx.Kernel:
    kernel = ptx.parse(TEXT.format(number=number)).kernels["store"]
    found = np.zeros(32, np.uint32)
    kernel.launch(1, 32, [found], watch=False)
    assert (found == np.arange(32) + number).all()
    return kernel


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_kernel_takes_few_ranges_of_pages() -> None:
    """A process may have 65,530 of them; one more is a segmentation fault."""
    maps = Path("/proc/self/maps")
    kept = [launched(1000)]
    before = len(maps.read_text().splitlines())
    kept += [launched(1001 + each) for each in range(12)]
    after = len(maps.read_text().splitlines())
    assert after - before <= 6 * (len(kept) - 1)


def test_a_routine_stays_where_it_is() -> None:
    first = library.addresses([warps.TICK])
    assert (
        library.addresses([warps.TICK, warps.FAULT])[warps.TICK.name]
        == first[warps.TICK.name]
    )
