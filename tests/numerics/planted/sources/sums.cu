// Sums: addends that vanish, compensation that is lost, differences of sums.
#include <cuda_fp16.h>

#include "planted.cuh"

// Each thread sums a row of its own.
KERNEL naive_sum(const float *x, float *y, int n)
{
    const float *row = x + threadIdx.x * n;
#if BUG
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum += row[i];
#else
    double wide = 0;
    for (int i = 0; i < n; i++)
        wide += row[i];
    float sum = wide;
#endif
    y[threadIdx.x] = sum;
}

// Kahan's sum.  The bug is what reassociation makes of it: the correction is always zero.
KERNEL kahan_sum(const float *x, float *y, int n)
{
    const float *row = x + threadIdx.x * n;
    float sum = 0, lost = 0;
    for (int i = 0; i < n; i++) {
        float addend = row[i] - lost;
        float next = sum + addend;
#if BUG
        lost = next - (sum + addend);
#else
        lost = (next - sum) - addend;
#endif
        sum = next;
    }
    y[threadIdx.x] = sum;
}

// Many blocks add what they have to one counter in global memory.
KERNEL counter(const float *x, float *y)
{
    float mine = x[blockIdx.x * 32 + threadIdx.x];
#if BUG
    atomicAdd(y, mine);
#else
    mine = warp_sum(mine);
    if (threadIdx.x == 0) atomicAdd(y, mine);
#endif
}

// The variance of a row: of its squares, or of its distances from the mean.
KERNEL variance(const float *x, float *y, int columns)
{
    __shared__ float four[4];
    const float *row = x + blockIdx.x * columns;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < columns; i += 128) sum += row[i];
    float mean = block_sum(sum, four) / columns;
#if BUG
    for (int i = threadIdx.x; i < columns; i += 128) squares += row[i] * row[i];
    float average = block_sum(squares, four) / columns;
    float spread = average - mean * mean;
#else
    for (int i = threadIdx.x; i < columns; i += 128) squares += (row[i] - mean) * (row[i] - mean);
    float spread = block_sum(squares, four) / columns;
#endif
    if (threadIdx.x == 0) y[blockIdx.x] = spread;
}

// The product of a row and a vector, with a sum in half precision or in single.
KERNEL half_dot(const half *a, const half *b, float *y, int n)
{
    const half *row = a + threadIdx.x * n;
#if BUG
    half sum = __float2half_rn(0.0f);
    for (int i = 0; i < n; i++)
        sum = __hfma(row[i], b[i], sum);
    y[threadIdx.x] = __half2float(sum);
#else
    float sum = 0;
    for (int i = 0; i < n; i++)
        sum = fmaf(__half2float(row[i]), __half2float(b[i]), sum);
    y[threadIdx.x] = sum;
#endif
}

// Does the parabola a x^2 + b x + c meet the axis?  Its discriminant in one product or two.
KERNEL meets(const float *a, const float *b, const float *c, float *y)
{
    int i = threadIdx.x;
#if BUG
    float square = __fmul_rn(b[i], b[i]);
    float found = __fsub_rn(square, __fmul_rn(a[i], c[i]));
#else
    float other = __fmul_rn(a[i], c[i]);
    float rest = fmaf(-a[i], c[i], other);
    float found = __fadd_rn(fmaf(b[i], b[i], -other), rest);
#endif
    if (found > 0)
        y[i] = 2;
    else
        y[i] = 0;
}

// sqrt(x + 1) - sqrt(x) of large x, and the same without a difference.
KERNEL root_step(const float *x, float *y)
{
    int i = threadIdx.x;
    float one = sqrtf(x[i] + 1), other = sqrtf(x[i]);
#if BUG
    y[i] = one - other;
#else
    y[i] = 1 / (one + other);
#endif
}

// Muller's sequence: 5 attracts it in exact arithmetic, 100 in any other.
KERNEL muller(float *y, int steps)
{
#if BUG
    float before = 4.0f, now = 4.25f;
    for (int i = 1; i < steps; i++) {
        float next = 108.0f - (815.0f - 1500.0f / before) / now;
        before = now;
        now = next;
    }
    *y = now;
#else
    float three = 1, five = 1;
    for (int i = 0; i < steps; i++) {
        three *= 3;
        five *= 5;
    }
    *y = (3 * three + 5 * five) / (three + five);
#endif
}
