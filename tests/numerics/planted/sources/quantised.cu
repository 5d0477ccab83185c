// Quantisation: scales that are zero, too small, of another row, rounded the wrong way.
#include <cuda_fp16.h>

#include "planted.cuh"

// One warp for each row of 64; the scale takes the largest magnitude to 448.
KERNEL zero_row(const float *x, uint16_t *q, float *scales)
{
    int row = blockIdx.x, lane = threadIdx.x;
    float low = x[row * 64 + lane * 2], high = x[row * 64 + lane * 2 + 1];
    float most = warp_max(fmaxf(fabsf(low), fabsf(high)));
    float scale = most / 448.0f;
#if !BUG
    scale = fmaxf(scale, 1e-12f);
#endif
    float inverse = 1.0f / scale;
    float first = low * inverse, second = high * inverse;
    q[row * 32 + lane] = e4m3x2(first, second);
    if (lane == 0) scales[row] = scale;
}

// The scale must be a power of two (UE8M0).  Cutting the fraction rounds it down.
KERNEL cut_scale(const float *x, uint16_t *q, uint8_t *scales)
{
    int row = blockIdx.x, lane = threadIdx.x;
    float low = x[row * 64 + lane * 2], high = x[row * 64 + lane * 2 + 1];
    float most = warp_max(fmaxf(fabsf(low), fabsf(high)));
    uint32_t bits = __float_as_uint(most / 448.0f);
    uint32_t exponent = bits >> 23;
#if !BUG
    exponent += (bits & 0x7FFFFF) != 0;
#endif
    float inverse = __uint_as_float((254 - exponent) << 23);
    uint16_t both = e4m3x2(low * inverse, high * inverse);
    q[row * 32 + lane] = both;
    if (lane == 0) scales[row] = exponent;
}

// The largest magnitude belongs to another row.
KERNEL other_row(const float *x, uint16_t *q, float *scales, int rows)
{
    __shared__ float most[8];
    int row = threadIdx.x / 32, lane = threadIdx.x % 32;
    float low = x[row * 64 + lane * 2], high = x[row * 64 + lane * 2 + 1];
    float largest = warp_max(fmaxf(fabsf(low), fabsf(high)));
    if (lane == 0) most[row] = largest;
    __syncthreads();
    float scale = most[BUG ? (row + 1) % rows : row] / 448.0f;
    uint16_t both = e4m3x2(low / scale, high / scale);
    q[row * 32 + lane] = both;
    if (lane == 0) scales[row] = scale;
}

// 57344 is the largest number of e5m2, not of e4m3.
KERNEL wrong_limit(const float *x, uint16_t *q, float most)
{
    int i = blockIdx.x * 64 + threadIdx.x;
    float factor = (BUG ? 57344.0f : 448.0f) / most;
    float low = x[i * 2] * factor;
    float high = x[i * 2 + 1] * factor;
    q[i] = e4m3x2(low, high);
}

// Activations are quantised with a scale for all of them: a large one leaves the others no bits.
KERNEL one_scale(const float *x, uint16_t *q, float *y, int columns)
{
    __shared__ float four[4];
    int row = threadIdx.x / 32, lane = threadIdx.x % 32;
    float low = x[row * columns + lane * 2], high = x[row * columns + lane * 2 + 1];
    float most = fmaxf(fabsf(low), fabsf(high));
#if BUG
    most = block_max(most, four);
#else
    most = warp_max(most);
#endif
    float scale = most / 448.0f;
    uint16_t both = e4m3x2(low / scale, high / scale);
    uint32_t halves;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(both));
    half2 wide = *reinterpret_cast<half2 *>(&halves);
    q[row * 32 + lane] = both;
    y[row * columns + lane * 2] = __low2float(wide) * scale;
    y[row * columns + lane * 2 + 1] = __high2float(wide) * scale;
}

// Weights of 4 bits become halves: 0x6400 | q is 1024 + q.  The scale must come last.
KERNEL dequantise(const uint32_t *packed, const half *scales, half2 *y)
{
    int i = threadIdx.x;
    uint32_t word = packed[i];
    half2 scale = __half2half2(scales[i]);
    half2 offset = __float2half2_rn(1032.0f);
    for (int pair = 0; pair < 4; pair++) {
        uint32_t bits = (word & 0x000F000F) | 0x64006400;
        half2 raised = *reinterpret_cast<half2 *>(&bits);
#if BUG
        half2 large = __hmul2(raised, scale);
        half2 shift = __hmul2(offset, scale);
        y[i * 4 + pair] = __hsub2(large, shift);
#else
        half2 whole = __hsub2(raised, offset);
        y[i * 4 + pair] = __hmul2(whole, scale);
#endif
        word >>= 4;
    }
}
