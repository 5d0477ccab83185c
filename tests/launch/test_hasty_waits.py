"""``mbarrier.try_wait`` may give up: some schedules enter what a kernel does then."""

import numpy as np
import pytest

from fragmenta import ptx

KERNEL = r"""
__device__ unsigned test(unsigned bar)
{
    unsigned done;
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done) : "r"(bar) : "memory");
    return done;
}
extern "C" __global__ void k(unsigned *out, const unsigned *in, int stale)
{
    __shared__ alignas(128) unsigned tile[2][32];
    __shared__ unsigned long long full[2];
    unsigned bar = __cvta_generic_to_shared(full), to = __cvta_generic_to_shared(tile);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++)
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bar + 8 * i) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; i++) {
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 128;" ::"r"(bar + 8 * i) : "memory");
            asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 128, [%2];"
                         ::"r"(to + 128 * i), "l"(in + 32 * i), "r"(bar + 8 * i) : "memory");
        }
    unsigned sum = 0, tests = 0;
    for (int i = 0; i < 2; i++) {
        unsigned done = test(bar + 8 * i);  // perhaps it has arrived
        for (; !done; tests++)
            done = test(bar + (stale ? 0 : 8 * i));
        sum += tile[i][threadIdx.x];
    }
    out[threadIdx.x] = sum;
    out[32 + threadIdx.x] = tests;
}
"""
PATIENT = ("eager", "lazy", "lazy+in-steps", "eager+round-robin")
HASTY = ("lazy+oldest-waits", "lazy+random-3", "lazy+consumer-waits")
WANTED = np.arange(32) + np.arange(32, 64)


def launch(schedule: str | int, stale: bool) -> tuple[np.ndarray, list[str]]:
    """What it leaves, how often it tested again, and the rules that it breaks."""
    kernel = ptx.RawKernel(KERNEL, "k", target="sm_90a").kernel
    out, given = np.zeros(64, np.uint32), np.arange(64, dtype=np.uint32)
    result = kernel.launch(
        1, 32, [out, given, stale], watch="report", schedule=schedule
    )
    return out, [each.rule for each in result.problems]


@pytest.mark.parametrize("schedule", [*PATIENT, *HASTY, 1, 2])
def test_a_right_kernel_waits_again(schedule):
    out, problems = launch(schedule, False)
    assert problems == []
    assert (out[:32] == WANTED).all()
    assert (out[32] > 0) == (schedule in HASTY) or isinstance(schedule, int)


def test_the_mbarrier_of_another_stage_is_tested_again():
    """As in a kernel whose loop keeps the address of its first test."""
    for schedule in PATIENT:
        assert launch(schedule, True)[1] == []
    for schedule in HASTY:
        assert "read-before-arrival" in launch(schedule, True)[1]
    assert any(launch(seed, True)[1] for seed in range(4))
