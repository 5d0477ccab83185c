"""Of many pairs that race, the same pair is shown in whatever order clusters ran."""

import numpy as np
import pytest

from fragmenta import ptx
from fragmenta.errors import KernelHazard

TEXT = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry work(.param .u64 y)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<2>;
    .reg .pred %p<3>;
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r4, %r1, 32, %r2;
    mov.u32 %r3, 0;
turn:
    setp.ge.u32 %p1, %r3, %r2;
    @%p1 st.global.u32 [%rd1], %r4;
    add.u32 %r3, %r3, 1;
    setp.le.u32 %p2, %r3, %r1;
    @%p2 bra turn;
    ret;
}
"""
"""Lane 0 of every block stores in the first turn; in block 1, lane 1 in the second."""


def test_a_pair_inside_a_block_is_shown_before_a_pair_of_two_blocks() -> None:
    kernel = ptx.parse(TEXT).kernels["work"]
    with pytest.raises(KernelHazard) as raised:
        kernel.launch(2, 2, [np.zeros(1, np.uint32)])
    words = " ".join(str(raised.value).split())
    assert "block (1, 0, 0): st.global of warp 0 lane 1" in words
    assert "st.global of warp 0 lane 0 at PTX line 17 wrote it" in words
    assert "the same happens between blocks of the grid" in words


READ_AND_WRITTEN = r"""
extern "C" __global__ void total(float *x, float *out)
{
    float read = x[0];
    if (blockIdx.x)
        x[0] = read + threadIdx.x;
    out[blockIdx.x] = read;
}
"""


def test_reads_before_and_after_a_write_are_one_problem() -> None:
    # Several blocks have read x[0] before one writes it; others read it after that.
    kernel = ptx.RawKernel(READ_AND_WRITTEN, "total").kernel
    for _ in range(20):  # which block comes first is chance
        given = np.ones(1, np.float32), np.zeros(8, np.float32)
        found = kernel.launch(8, 1, given, watch="report").hazards
        errors = [each for each in found if each.severity == "error"]
        assert [each.rule for each in errors] == ["global-race"]
