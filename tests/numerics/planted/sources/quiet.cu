// Nothing is wrong here: what is not finite is never stored.
#include <cuda_fp16.h>

#include "planted.cuh"

// Lanes past the end compute with zeros, and store nothing.
KERNEL masked_lanes(const float *x, float *y, int n)
{
    int i = threadIdx.x;
    float value = i < n ? x[i] : 0.0f;
    float inverse = 1.0f / value;
    float ratio = value * inverse - inverse * 0.0f;
    if (i < n) y[i] = ratio;
}

// The cube overflows in half precision, and tanh of it is one.
KERNEL gelu(const half *x, float *y)
{
    int i = threadIdx.x;
    half cube = __hmul(x[i], __hmul(x[i], x[i]));
    float inner = 0.7978846f * (__half2float(x[i]) + 0.044715f * __half2float(cube)), squashed;
    asm("tanh.approx.f32 %0, %1;" : "=f"(squashed) : "f"(inner));
    y[i] = 0.5f * __half2float(x[i]) * (1.0f + squashed);
}

// The score -inf of a key that is not seen gives a weight of zero.
KERNEL masked_keys(const float *score, const int *seen, float *y)
{
    float mine = seen[threadIdx.x] ? score[threadIdx.x] : -INFINITY;
    float power = exp2f(mine - warp_max(mine));
    y[threadIdx.x] = power / warp_sum(power);
}

// Both sides of a choice are computed; the wrong one is not taken.
KERNEL chosen(const float *x, float *y)
{
    float value = x[threadIdx.x], logarithm = log2f(value);
    y[threadIdx.x] = value > 0 ? logarithm : 0.0f;
}
