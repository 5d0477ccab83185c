// Bugs of the same kinds in other clothes.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "planted.cuh"

// The angle between vectors: 1 - cosine of nearly parallel ones.
KERNEL cosine_distance(const float *a, const float *b, float *y)
{
    int row = blockIdx.x, lane = threadIdx.x;
    float u = a[row * 32 + lane], v = b[row * 32 + lane];
#if BUG
    float dot = warp_sum(u * v), one = warp_sum(u * u), two = warp_sum(v * v);
    float similar = dot * rsqrtf(one) * rsqrtf(two);
    float far = 1.0f - similar;
#else
    float apart = v - u, one = sqrtf(warp_sum(u * u)), two = sqrtf(warp_sum(v * v));
    float longer = warp_sum(apart * (u + v)) / (one + two);
    float far = 0.5f * (warp_sum(apart * apart) - longer * longer) / (one * two);
#endif
    if (lane == 0) y[row] = far;
}

// Log of a probability: the smallest probabilities underflow in half precision.
KERNEL surprise(const float *score, float *y)
{
    int row = blockIdx.x, lane = threadIdx.x;
    float mine = score[row * 32 + lane];
    float most = warp_max(mine);
    float power = exp2f(mine - most);
    float total = warp_sum(power);
#if BUG
    half probability = __float2half_rn(power / total);
    y[row * 32 + lane] = log2f(__half2float(probability));
#else
    y[row * 32 + lane] = mine - most - log2f(total);
#endif
}

// A running mean with a small step, over many values in local memory.
KERNEL running_mean(const float *x, float *y, int n)
{
    int i = threadIdx.x;
    float kept[4];
    for (int k = 0; k < 4; k++) kept[k] = 65536.0f;
    for (int s = 0; s < n; s++) {
        float value = x[s * 32 + i];
#if BUG
        half mean = __float2half_rn(kept[s % 4] * 0.03125f);
        kept[s % 4] = (__half2float(mean) + (value - __half2float(mean)) * 0.0001f) * 32.0f;
#else
        float mean = kept[s % 4] * 0.03125f;
        kept[s % 4] = (mean + (value - mean) * 0.0001f) * 32.0f;
#endif
    }
    y[i] = (kept[0] + kept[1]) * 0.5f;
}

// 0 / 0 is no number.
KERNEL ratio(const float *a, const float *b, float *y)
{
    int i = threadIdx.x;
#if BUG
    float share = a[i] / b[i];
#else
    float share = b[i] == 0.0f ? 1.0f : a[i] / b[i];
#endif
    float weight = share * 0.5f + 0.25f;
    y[i] = weight;
}

// The sum of a geometric series from its closed form, near 1.
KERNEL geometric(const float *q, float *y)
{
    int i = threadIdx.x;
#if BUG
    float power = q[i] * q[i] * q[i] * q[i];
    y[i] = (1.0f - power) / (1.0f - q[i]);
#else
    y[i] = (1.0f + q[i]) * fmaf(q[i], q[i], 1.0f);
#endif
}

// Logits in bf16 between two products: their differences are what matters.
KERNEL bf16_logits(const float *q, const float *k, float *y)
{
    __shared__ float scores[32];
    int lane = threadIdx.x;
    float sum = 0;
    for (int i = 0; i < 32; i++) sum = fmaf(q[i], k[lane * 32 + i], sum);
#if BUG
    __nv_bfloat16 narrow = __float2bfloat16_rn(sum);
    scores[lane] = __bfloat162float(narrow);
#else
    scores[lane] = sum;
#endif
    __syncwarp();
    float most = warp_max(scores[lane ^ 1]);
    float power = exp2f(scores[lane] - most);
    y[lane] = power / warp_sum(power);
}

// Scaled integers: the sum of products of int8 as a float, times a scale that is too small for f16.
KERNEL int8_scale(const int *a, const int *b, half *y, float scale)
{
    int lane = threadIdx.x, sum = 0;
    for (int i = 0; i < 16; i++) sum = __dp4a(a[lane * 16 + i], b[i], sum);
#if BUG
    half small = __float2half_rn(scale);
    y[lane] = __hmul(__float2half_rn(float(sum)), small);
#else
    y[lane] = __float2half_rn(float(sum) * scale);
#endif
}

// Welford's update with the count in half precision: above 2048 it stays.
KERNEL counted(const float *x, float *y, int n)
{
    int i = threadIdx.x;
#if BUG
    half count = __float2half_rn(0.0f);
#else
    float count = 0;
#endif
    float sum = 0;
    for (int s = 0; s < n; s++) {
        sum += x[i];
#if BUG
        count = __hadd(count, __float2half_rn(1.0f));
#else
        count += 1.0f;
#endif
    }
#if BUG
    y[i] = sum / __half2float(count);
#else
    y[i] = sum / count;
#endif
}
