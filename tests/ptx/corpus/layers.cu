// What stands between the matrix products of a network: norms, softmax, activations.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common.cuh"

// The sum over a block; every thread gets it.
template <class T> __device__ T block_sum(T x) {
    __shared__ T parts[32];
    for (int step = 16; step; step /= 2) x += __shfl_down_sync(~0u, x, step);
    if (lane_id() == 0) parts[warp_id()] = x;
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < blockDim.x / 32; i++) sum += parts[i];
    __syncthreads();
    return sum;
}

KERNEL layernorm(const float *x, const float *gain, const float *bias, float *y, int width, float epsilon) {
    const float *row = x + blockIdx.x * width;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += row[i];
    float mean = block_sum(sum) / width;
    for (int i = threadIdx.x; i < width; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
    float scale = rsqrtf(block_sum(squares) / width + epsilon);
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        y[blockIdx.x * width + i] = (row[i] - mean) * scale * gain[i] + bias[i];
}

// Welford's method, merged across lanes: no second pass over the row.
KERNEL layernorm_welford(const float *x, float *y, int width) {
    const float *row = x + (blockIdx.x * blockDim.y + threadIdx.y) * width;
    float mean = 0, moment = 0, count = 0;
    for (int i = threadIdx.x; i < width; i += 32) {
        count += 1;
        float delta = row[i] - mean;
        mean += delta / count;
        moment += delta * (row[i] - mean);
    }
    for (int step = 1; step < 32; step *= 2) {
        float mean2 = __shfl_xor_sync(~0u, mean, step), moment2 = __shfl_xor_sync(~0u, moment, step);
        float count2 = __shfl_xor_sync(~0u, count, step), all = count + count2, delta = mean2 - mean;
        mean = (count * mean + count2 * mean2) / all;
        moment += moment2 + delta * delta * count * count2 / all;
        count = all;
    }
    float deviation = sqrtf(moment / count + 1e-5f);
    for (int i = threadIdx.x; i < width; i += 32)
        y[(blockIdx.x * blockDim.y + threadIdx.y) * width + i] = (row[i] - mean) / deviation;
}

KERNEL rmsnorm_bf16(const __nv_bfloat162 *x, const __nv_bfloat162 *gain, __nv_bfloat162 *y, int pairs) {
    float squares = 0;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        float2 both = __bfloat1622float2(x[blockIdx.x * pairs + i]);
        squares += both.x * both.x + both.y * both.y;
    }
    float scale = rsqrtf(block_sum(squares) / (2 * pairs) + 1e-6f);
    __nv_bfloat162 scales = __float2bfloat162_rn(scale);
    for (int i = threadIdx.x; i < pairs; i += blockDim.x)
        y[blockIdx.x * pairs + i] = __hmul2(__hmul2(x[blockIdx.x * pairs + i], scales), gain[i]);
}

KERNEL softmax(const float *x, float *y, int width) {
    __shared__ float largest;
    const float *row = x + blockIdx.x * width;
    float most = -INFINITY;
    for (int i = threadIdx.x; i < width; i += blockDim.x) most = fmaxf(most, row[i]);
    // Order-preserving integers, so that one atomic finds the largest float.
    if (threadIdx.x == 0) largest = -INFINITY;
    __syncthreads();
    if (most >= 0)
        atomicMax(reinterpret_cast<int *>(&largest), __float_as_int(most));
    else
        atomicMin(reinterpret_cast<unsigned *>(&largest), __float_as_uint(most));
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < width; i += blockDim.x) sum += expf(row[i] - largest);
    sum = block_sum(sum);
    for (int i = threadIdx.x; i < width; i += blockDim.x)
        y[blockIdx.x * width + i] = expf(row[i] - largest) / sum;
}

KERNEL activations(const float *x, float *gelu, float *gelu_tanh, float *swish, float *mish, float *fast, int n) {
    int i = global_id();
    if (i >= n) return;
    float v = x[i], cubic = 0.7978845608f * (v + 0.044715f * v * v * v), t;
    gelu[i] = 0.5f * v * (1.0f + erff(v * 0.70710678f));
    gelu_tanh[i] = 0.5f * v * (1.0f + tanhf(cubic));
    swish[i] = v / (1.0f + __expf(-v));
    mish[i] = v * tanhf(log1pf(expf(v)));
    asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(cubic));
    fast[i] = 0.5f * v * (1.0f + t);
}

// Rotary position embedding on halves, with sincosf of large angles.
KERNEL rotary(half2 *x, const int *position, int pairs) {
    int token = blockIdx.x;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        float s, c, angle = position[token] * powf(10000.0f, -float(i) / pairs);
        sincosf(angle, &s, &c);
        float2 both = __half22float2(x[token * pairs + i]);
        x[token * pairs + i] = __floats2half2_rn(both.x * c - both.y * s, both.x * s + both.y * c);
    }
}

// Cross-entropy of logits with their label, and the gradient; log-sum-exp by one warp.
KERNEL cross_entropy(const half *logits, const long long *label, float *loss, half *gradient, int classes) {
    int row = blockIdx.x;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < classes; i += 32) most = fmaxf(most, __half2float(logits[row * classes + i]));
    for (int step = 16; step; step >>= 1) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    for (int i = threadIdx.x; i < classes; i += 32) sum += __expf(__half2float(logits[row * classes + i]) - most);
    for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(~0u, sum, step);
    float log_sum = most + __logf(sum);
    for (int i = threadIdx.x; i < classes; i += 32) {
        float p = __expf(__half2float(logits[row * classes + i]) - log_sum);
        gradient[row * classes + i] = __float2half_rn(p - (i == label[row]));
    }
    if (threadIdx.x == 0) loss[row] = log_sum - __half2float(logits[row * classes + label[row]]);
}
