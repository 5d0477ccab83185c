"""Warps that meet at different ``__syncthreads()`` of CUDA C++."""

from __future__ import annotations

import numpy as np
import pytest

from fragmenta import ptx

HELPER = """
__device__ void meet(float *sums)
{
    __syncthreads();
    sums[threadIdx.x] += 1;
}
"""
BODIES = {
    "in a branch": """
    if (threadIdx.x < 64) {
        __syncthreads();  // 1
        s[threadIdx.x] += 1;
    }
    __syncthreads();  // 2
    """,
    "in a function": """
    if (threadIdx.x < 64)
        meet(s);  // 1
    else
        meet(s);  // 2
    """,
}
RIGHT = {
    "behind a branch": """
    if (threadIdx.x < 64)
        s[threadIdx.x] += 1;
    __syncthreads();
    s[threadIdx.x ^ 64] += 1;
    __syncthreads();
    """,
    "the same branch for all": """
    if (blockIdx.x & 1) {
        __syncthreads();
        s[threadIdx.x] += 1;
    } else {
        s[threadIdx.x] += 2;
        __syncthreads();
    }
    """,
    "in a loop": """
    for (int i = 0; i < 5; i++) {
        if ((threadIdx.x >> 5) == i)
            s[i] = i;
        __syncthreads();
    }
    """,
    "in a function": "meet(s); s[threadIdx.x ^ 32] += 1; meet(s);",
    "barriers of their own": """
    if (threadIdx.x < 64)
        asm volatile("bar.sync 1, 64;" ::: "memory");
    else
        asm volatile("bar.sync 2, 64;" ::: "memory");
    """,
    "after a return": """
    if (threadIdx.x >= 64)
        return;
    __syncthreads();
    s[threadIdx.x] += 1;
    __syncthreads();
    """,
}


def found(body: str) -> list[ptx.Problem]:
    """What is said about barriers."""
    text = f"""{HELPER}
extern "C" __global__ void f(float *y)
{{
    __shared__ float s[128];
    s[threadIdx.x] = 0;
    {body}
    y[128 * blockIdx.x + threadIdx.x] = s[threadIdx.x];
}}"""
    kernel = ptx.RawKernel(text, "f", path="f.cu").kernel
    result = kernel.launch(2, 128, [np.zeros(256, np.float32)], watch="report")
    return [each for each in result.hazards if each.rule == "barrier-collision"]


@pytest.mark.parametrize("name", BODIES)
def test_warps_that_meet_others_at_another_line(name: str) -> None:
    (problem,) = found(BODIES[name])
    assert problem.severity == "warning"
    assert "came to another barrier" in problem.message
    assert "warps 0-1" in problem.message or "warps 2-3" in problem.message
    assert problem.source is not None
    (other,) = problem.related
    assert other.source is not None
    assert str(other.source.frames[0]) != str(problem.source.frames[0])


@pytest.mark.parametrize("name", RIGHT)
def test_right_barriers_are_silent(name: str) -> None:
    assert not found(RIGHT[name])
