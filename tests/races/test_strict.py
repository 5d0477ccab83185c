"""Rules on which sources disagree are reported with ``watch="strict"`` only."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx
from tests.ptx.hazards import running
from tests.ptx.hazards.cases import ROWS

CONTESTED = {
    "idioms-ring_ldmatrix": "ldmatrix reads what the next copy overwrites",
}


@pytest.mark.parametrize("name", CONTESTED)
@pytest.mark.parametrize("strict", [False, True])
def test_a_fence_that_shipped_kernels_leave_out(name: str, strict: bool) -> None:
    (row,) = [each for each in ROWS if f"{each.source}-{each.entry}" == name]
    kernel = running.loaded(row.source, 0).kernels[row.entry]
    given = running.for_launch(row, running.made(row))
    result = kernel.launch(
        row.grid,
        row.block,
        given,
        cluster=row.cluster,
        watch=ptx.Watch("report", strict=strict),
    )
    told = {(each.rule, each.severity) for each in result.hazards}
    contested = ("missing-proxy-fence", "warning")
    assert (contested in told) == strict
    assert not [each for each in told if each[1] == "error"]


VOLATILE = """
extern "C" __global__ void sum(unsigned *out, int together)
{
    __shared__ volatile unsigned s[64];
    unsigned i = threadIdx.x;
    s[i] = i;
    s[i + 32] = 0;
    __syncwarp();
    for (int step = 16; step; step /= 2) {
        unsigned value = s[i + step];
        if (together)
            __syncwarp();
        s[i] += value;
        if (together)
            __syncwarp();
    }
    out[i] = s[i];
}"""


def test_lanes_that_rely_on_volatile_alone():
    """It is no race, but lanes of a warp need not run together since Volta."""
    kernel = ptx.RawKernel(VOLATILE, "sum").kernel
    for strict, together in ((False, 0), (False, 1), (True, 1), (True, 0)):
        out = np.zeros(32, np.uint32)
        watch = ptx.Watch("report", strict=strict)
        found = kernel.launch(1, 32, [out, together], watch=watch).problems
        assert out[0] == sum(range(32))
        if not strict or together:
            assert found == []
    assert {(each.rule, each.severity) for each in found} == {
        ("shared-race", "warning")
    }
    assert "both are volatile" in found[0].message
    assert "__syncwarp()" in found[0].hint


@pytest.mark.parametrize("bug", range(4))
def test_a_fence_of_tensor_memory_is_missing_among_others(bug: int) -> None:
    """The first cluster is looked at again, if the kernel has such fences at all."""
    (row,) = [e for e in ROWS if (e.source, e.entry) == ("strict", "fenced")]
    kernel = running.loaded(row.source, bug).kernels[row.entry]
    given = running.for_launch(row, running.made(row))
    result = kernel.launch(2, row.block, given, watch="report")
    found = [(each.rule, each.severity) for each in result.problems]
    race = ("global-race", "info")  # two blocks leave the same
    assert {*found} - {race} == (
        {("missing-tensor-fence", "warning")} if bug else set()
    )


def test_a_kernel_without_such_fences_is_left_alone() -> None:
    (row,) = [e for e in ROWS if (e.source, e.entry) == ("strict", "fenced")]
    text = running.loaded(row.source, 3).kernels[row.entry].loaded.module.text
    plain = "\n".join(e for e in text.splitlines() if "tcgen05.fence" not in e)
    kernel = ptx.parse(plain).kernels[row.entry]
    given = running.for_launch(row, running.made(row))
    for watch, wanted in (("report", set()), ("strict", {"missing-tensor-fence"})):
        result = kernel.launch(
            1, row.block, given, watch=ptx.Watch("report", strict=watch == "strict")
        )
        assert {each.rule for each in result.problems} == wanted


LOCK = """
extern "C" __global__ void add(int *lock, float *sum, const float *x)
{
    if (threadIdx.x == 0) {
        int seen = 1;
        while (seen)
            asm volatile("atom.global.gpu.%s.cas.b32 %%0, [%%1], 0, 1;" : "=r"(seen) : "l"(lock) : "memory");
    }
    __syncthreads();
    sum[threadIdx.x] += x[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("st.release.gpu.global.b32 [%%0], 0;" :: "l"(lock) : "memory");
}"""


@pytest.mark.parametrize("order", ["relaxed", "acquire"])
def test_a_lock_that_is_taken_without_acquire(order: str) -> None:
    """Shipped kernels do so, and a barrier follows; the model does not order it."""
    kernel = ptx.RawKernel(LOCK % order, "add").kernel
    for strict in (False, True):
        given = [np.zeros(2, np.int32), np.zeros(64, np.float32), np.ones(256, "f4")]
        watch = ptx.Watch("report", strict=strict)
        result = kernel.launch(4, 64, given, watch=watch)
        found = {each.rule for each in result.hazards if each.severity == "error"}
        assert found == ({"global-race"} if strict and order == "relaxed" else set())
