// Norms and gradients: squares that underflow, an epsilon that does not help, scaled losses.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "planted.cuh"

// The root mean square of a row of 32 tiny values; one warp for each row.
KERNEL tiny_norm(const float *x, float *y)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    float value = x[i];
#if !BUG
    value *= 0x1p+60f;
#endif
    float square = value * value;
    float mean = warp_sum(square) / 32;
    float inverse = rsqrt_ftz(mean);
    y[i] = value * inverse;
}

// A layer norm of rows of 64; the epsilon keeps rows without variance finite.
KERNEL layer_norm(const float *x, float *y, float epsilon)
{
    int i = blockIdx.x * 64 + threadIdx.x;
    float one = x[i], two = x[i + 32];
    float mean = warp_sum(one + two) / 64;
    one -= mean, two -= mean;
    float spread = warp_sum(one * one + two * two) / 64;
#if BUG
    float inverse = rsqrtf(spread) + epsilon;
#else
    float inverse = rsqrtf(spread + epsilon);
#endif
    y[i] = one * inverse;
    y[i + 32] = two * inverse;
}

// The epsilon of a layer norm in half precision is a zero.
KERNEL half_epsilon(const half *x, half *y, float epsilon)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    float value = __half2float(x[i]);
    float mean = warp_sum(value) / 32;
    float spread = warp_sum((value - mean) * (value - mean)) / 32;
#if BUG
    half small = __float2half_rn(epsilon);
    half bottom = __hadd(__float2half_rn(spread), small);
    half inverse = hrsqrt(bottom);
    y[i] = __hmul(__float2half_rn(value - mean), inverse);
#else
    float inverse = rsqrtf(spread + epsilon);
    y[i] = __float2half_rn((value - mean) * inverse);
#endif
}

// Gradients times the loss scale, as halves; summed over the batch; scaled back.
KERNEL scaled_gradients(const float *gradient, float *y, int batch, float scale)
{
    int i = threadIdx.x;
    float sum = 0;
    for (int b = 0; b < batch; b++) {
        float scaled = gradient[b * 64 + i] * scale;
        half kept = __float2half_rn(scaled);
        sum += __half2float(kept);
    }
    y[i] = sum / scale / batch;
}

// Weights are kept as halves; on their way they are bf16 once too often.
KERNEL detour(const float *x, half *y)
{
    int i = blockIdx.x * 128 + threadIdx.x;
    float value = x[i] * 0.5f;
#if BUG
    __nv_bfloat16 narrow = __float2bfloat16_rn(value);
    value = __bfloat162float(narrow);
#endif
    y[i] = __float2half_rn(value);
}

// The weights of an optimiser in bf16: a small step vanishes.
KERNEL bf16_step(__nv_bfloat16 *weight, const float *gradient, float *master, float rate, int steps)
{
    int i = threadIdx.x;
#if BUG
    __nv_bfloat16 w = weight[i];
    for (int s = 0; s < steps; s++) {
        float moved = __bfloat162float(w) - rate * gradient[i];
        w = __float2bfloat16_rn(moved);
    }
    weight[i] = w;
    master[i] = __bfloat162float(w);
#else
    float w = __bfloat162float(weight[i]);
    for (int s = 0; s < steps; s++)
        w = w - rate * gradient[i];
    master[i] = w;
    weight[i] = __float2bfloat16_rn(w);
#endif
}
