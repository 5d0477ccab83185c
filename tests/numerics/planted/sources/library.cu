// Functions of CUDA's library.  They compute with whole numbers in floats and with bits of
// floats; none of them is wrong by more than some units of the last place.
#include <cuda_fp16.h>

#include "planted.cuh"

KERNEL library(const float *x, float *y)
{
    float v = x[threadIdx.x], *to = y + threadIdx.x;
    to[0 * 32] = expf(v);
    to[1 * 32] = exp10f(v);
    to[2 * 32] = expm1f(v);
    to[3 * 32] = logf(v);
    to[4 * 32] = log10f(v + 1);
    to[5 * 32] = log1pf(v);
    to[6 * 32] = sinf(v);
    to[7 * 32] = cosf(v * 0.25f);
    to[8 * 32] = tanf(v * 0.25f);
    to[9 * 32] = tanhf(v);
    to[10 * 32] = erff(v);
    to[11 * 32] = erfcf(v);
    to[12 * 32] = powf(v, 2.5f);
    to[13 * 32] = cbrtf(v);
    to[14 * 32] = sinhf(v);
    to[15 * 32] = atanf(v);
    to[16 * 32] = asinf(v * 0.25f);
    to[17 * 32] = __expf(v);
    to[18 * 32] = __powf(v, 1.5f);
    to[19 * 32] = __fdividef(v, 3.0f);
    to[20 * 32] = 1.0f / (1.0f + expf(-v));
    to[21 * 32] = hypotf(v, 2.0f);
}

KERNEL library_of_halves(const half *x, half *y)
{
    half v = x[threadIdx.x], *to = y + threadIdx.x;
    to[0 * 32] = hexp(v);
    to[1 * 32] = hexp2(v);
    to[2 * 32] = hlog2(__hadd(v, v));
    to[3 * 32] = hsin(v);
    to[4 * 32] = hsqrt(v);
    to[5 * 32] = hrcp(v);
    to[6 * 32] = hrsqrt(v);
    to[7 * 32] = __hdiv(v, to[5 * 32]);
}
