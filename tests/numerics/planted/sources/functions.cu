// Functions: flushed exponentials, large arguments, indices that are no floats.
#include "planted.cuh"

// log2 of a sum of powers of two; all scores of a row may be very negative.
KERNEL log_sum(const float *score, float *y)
{
    int i = blockIdx.x * 32 + threadIdx.x;
    float most = 0;
#if !BUG
    most = warp_max(score[i]);
#endif
    float power = exp2_ftz(score[i] - most);
    float total = warp_sum(power);
    float found = log2_ftz(total) + most;
    if (threadIdx.x == 0) y[blockIdx.x] = found;
}

// The distance of an element from the start of its document, in a batch of many tokens.
KERNEL distance(const int *start, float *y, int first)
{
    int i = first + threadIdx.x;
#if BUG
    float here = i;
    float there = start[threadIdx.x];
    float far = here - there;
#else
    float far = i - start[threadIdx.x];
#endif
    y[threadIdx.x] = far * 0.125f;
}

// A rotary embedding: the angle is a position times a frequency, less turns of 2 pi.
KERNEL rotary(const float *frequency, float *y, float position)
{
    int i = threadIdx.x;
    float angle = position * frequency[i];
    float low = BUG ? 0.0f : fmaf(position, frequency[i], -angle);
    float turns = rintf(angle * 0x1.45f306p-3f);
    angle = fmaf(turns, -0x1.921fb6p+2f, angle);
    angle = fmaf(turns, 0x1.777a5cp-23f, angle);
    y[i] = __sinf(angle + low);
}

// A large argument of the hardware's own sine; the angle itself is exact.
KERNEL large_sine(const float *angle, float *y)
{
    int i = threadIdx.x;
    float x = angle[i];
#if !BUG
    float turns = rintf(x * 0x1.45f306p-3f);
    x = fmaf(turns, -0x1.921fb6p+2f, x);
    x = fmaf(turns, 0x1.777a5cp-23f, x);
#endif
    y[i] = __sinf(x);
}

// 1 - cos(x) of small angles.
KERNEL versine(const float *x, float *y)
{
    int i = threadIdx.x;
#if BUG
    float near = __cosf(x[i]);
    y[i] = 1.0f - near;
#else
    float root = __sinf(x[i] * 0.5f);
    y[i] = 2.0f * root * root;
#endif
}

// The length of a vector of large components: the squares overflow.
KERNEL length(const float *x, float *y)
{
    float value = x[blockIdx.x * 32 + threadIdx.x];
#if BUG
    float square = value * value;
    float found = sqrtf(warp_sum(square));
#else
    float most = warp_max(fabsf(value));
    float part = value / most;
    float found = most * sqrtf(warp_sum(part * part));
#endif
    if (threadIdx.x == 0) y[blockIdx.x] = found;
}
