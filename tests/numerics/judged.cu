// Kernels whose outputs are wrong, and their right counterparts.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_sum(float *y, const __half *x, int n)
{
    __half total = __float2half(0.0f);
    for (int i = 0; i < n; i++) total = __hadd(total, x[threadIdx.x * n + i]);
    y[threadIdx.x] = __half2float(total);
}

extern "C" __global__ void float_sum(float *y, const __half *x, int n)
{
    float total = 0;
    for (int i = 0; i < n; i++) total += __half2float(x[threadIdx.x * n + i]);
    y[threadIdx.x] = total;
}

extern "C" __global__ void lost_steps(float *y, float step, int n)
{
    float value = y[threadIdx.x];
    for (int i = 0; i < n; i++) value += step;
    y[threadIdx.x] = value;
}

extern "C" __global__ void kept_steps(float *y, float step, int n)
{
    float total = 0;
    for (int i = 0; i < n; i++) total += step;
    y[threadIdx.x] += total;
}

extern "C" __global__ void bf16_weights(__nv_bfloat16 *w, const float *g, float rate, int n)
{
    __nv_bfloat16 value = w[threadIdx.x];
    for (int i = 0; i < n; i++)
        value = __float2bfloat16_rn(__bfloat162float(value) - rate * g[threadIdx.x]);
    w[threadIdx.x] = value;
}

extern "C" __global__ void f32_weights(__nv_bfloat16 *w, const float *g, float rate, int n)
{
    float value = __bfloat162float(w[threadIdx.x]);
    for (int i = 0; i < n; i++) value -= rate * g[threadIdx.x];
    w[threadIdx.x] = __float2bfloat16_rn(value);
}

extern "C" __global__ void flushed(float *y, const float *x)
{
    float small;
    asm("mul.ftz.f32 %0, %1, 0f1f000000;" : "=f"(small) : "f"(x[threadIdx.x]));
    y[threadIdx.x] = small * 8.5e37f;
}

extern "C" __global__ void unflushed(float *y, const float *x)
{
    float small = x[threadIdx.x] * 0x1p-65f;
    y[threadIdx.x] = small * 8.5e37f;
}

extern "C" __global__ void hidden_infinity(float *y, const float *x)
{
    __half square = __float2half(x[threadIdx.x] * x[threadIdx.x]);
    y[threadIdx.x] = 1.0f / (1.0f + __half2float(square));
}

extern "C" __global__ void hidden_nan(float *y, const float *x)
{
    float square = __half2float(__float2half(x[threadIdx.x] * x[threadIdx.x]));
    float part = square / (1.0f + square);
    y[threadIdx.x] = fmaxf(part, 0.0f);
}

extern "C" __global__ void no_nan(float *y, const float *x)
{
    float square = x[threadIdx.x] * x[threadIdx.x];
    y[threadIdx.x] = fmaxf(square / (1.0f + square), 0.0f);
}

extern "C" __global__ void no_infinity(float *y, const float *x)
{
    y[threadIdx.x] = 1.0f / (1.0f + x[threadIdx.x] * x[threadIdx.x]);
}

extern "C" __global__ void dot(float *y, const float *a, const float *b, int n)
{
    float total = 0;
    for (int i = 0; i < n; i++) total += a[threadIdx.x * n + i] * b[i];
    y[threadIdx.x] = total;
}

extern "C" __global__ void kahan(float *y, const float *x, int n)
{
    float sum = 0, lost = 0;
    for (int i = 0; i < n; i++) {
        float addend = __fsub_rn(x[threadIdx.x * n + i], lost);
        float next = __fadd_rn(sum, addend);
        lost = __fsub_rn(__fsub_rn(next, sum), addend);
        sum = next;
    }
    y[threadIdx.x] = sum;
}

extern "C" __global__ void neumaier(float *y, const float *x, int n)
{
    float sum = 0, lost = 0;
    for (int i = 0; i < n; i++) {
        float one = x[threadIdx.x * n + i], next = __fadd_rn(sum, one);
        bool larger = fabsf(sum) >= fabsf(one);
        float high = larger ? sum : one, low = larger ? one : sum;
        lost = __fadd_rn(lost, __fadd_rn(__fsub_rn(high, next), low));
        sum = next;
    }
    y[threadIdx.x] = sum + lost;
}

extern "C" __global__ void compensated_dot(float *y, const float *a, const float *b, int n)
{
    float sum = 0, lost = 0;
    for (int i = 0; i < n; i++) {
        float x = a[threadIdx.x * n + i], z = b[i];
        float product = __fmul_rn(x, z), rest = fmaf(x, z, -product);
        float next = __fadd_rn(sum, product), back = __fsub_rn(next, sum);
        float one = __fsub_rn(sum, __fsub_rn(next, back)), two = __fsub_rn(product, back);
        lost = __fadd_rn(lost, __fadd_rn(rest, __fadd_rn(one, two)));
        sum = next;
    }
    y[threadIdx.x] = sum + lost;
}

extern "C" __global__ void roots(float *y, const float *x)
{
    y[threadIdx.x] = sqrtf(-1.0f - x[threadIdx.x]);
}

extern "C" __global__ void rounded(float *y, const float *x)
{
    y[threadIdx.x] = (float)__float2int_rn(x[threadIdx.x] * 10.0f) * 0.5f;
}

// Scales of the wrong axis are too coarse for some rows, or cut them off.
extern "C" __global__ void fake_quantised(float *y, const float *x, const float *scales, int wrong)
{
    int row = threadIdx.x, column = blockIdx.x;
    float scale = scales[wrong ? column : row];
    float code = fminf(fmaxf(rintf(x[row * 32 + column] / scale), -127.0f), 127.0f);
    y[row * 32 + column] = code * scale;
}

extern "C" __global__ void quantised_dot(float *y, const float *x, const float *scales, int wrong)
{
    int row = threadIdx.x, total = 0;
    float scale = scales[wrong ? 31 - row : row];
    for (int i = 0; i < 32; i++) {
        int one = __float2int_rn(x[row * 32 + i] / scale);
        total += min(max(one, -127), 127) * (i + 1);
    }
    y[row] = (float)total * scale;
}
