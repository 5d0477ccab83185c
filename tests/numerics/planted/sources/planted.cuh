// What the planted kernels share.  Every source is compiled twice: BUG 1 is the kernel
// with its numeric bug, BUG 0 its repaired twin.
#pragma once
#include <cstdint>

#define INFINITY __int_as_float(0x7F800000)
#define KERNEL extern "C" __global__ void
#define DEVICE static __device__ __forceinline__

DEVICE float warp_max(float x)
{
    for (int far = 16; far; far /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, far));
    return x;
}
DEVICE float warp_sum(float x)
{
    for (int far = 16; far; far /= 2) x += __shfl_xor_sync(~0u, x, far);
    return x;
}
// The same over a block of 128 threads, through shared memory.
DEVICE float block_max(float x, float *four)
{
    x = warp_max(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) four[threadIdx.x / 32] = x;
    __syncthreads();
    return fmaxf(fmaxf(four[0], four[1]), fmaxf(four[2], four[3]));
}
DEVICE float block_sum(float x, float *four)
{
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) four[threadIdx.x / 32] = x;
    __syncthreads();
    return (four[0] + four[1]) + (four[2] + four[3]);
}
DEVICE float exp2_ftz(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float log2_ftz(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float rsqrt_ftz(float x)
{
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
// Two values as e4m3, the first one in the low byte.
DEVICE uint16_t e4m3x2(float low, float high)
{
    uint16_t both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(high), "f"(low));
    return both;
}
