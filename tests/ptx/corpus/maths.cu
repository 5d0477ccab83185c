// Functions of f32 and f64: approximations of the hardware, and libdevice around them.
#include "common.cuh"

KERNEL trigonometry(const float *x, float *out) {
    int i = global_id();
    float v = x[i], s, c, *to = out + i * 10;
    to[0] = sinf(v), to[1] = cosf(v), to[2] = tanf(v);
    sincosf(v * 1e6f, &s, &c);
    to[3] = s, to[4] = c;
    to[5] = asinf(v / 8), to[6] = acosf(v / 8), to[7] = atan2f(v, 1.5f);
    to[8] = sinpif(v), to[9] = __sinf(v) + __cosf(v) * 2;
}

KERNEL exponentials(const float *x, const float *y, float *out) {
    int i = global_id();
    float v = x[i], w = y[i], *to = out + i * 16;
    to[0] = expf(v), to[1] = exp2f(v), to[2] = exp10f(v), to[3] = expm1f(v);
    to[4] = logf(v), to[5] = log2f(v), to[6] = log10f(v), to[7] = log1pf(v);
    to[8] = powf(v, w), to[9] = __powf(fabsf(v), w), to[10] = __expf(v), to[11] = __logf(v);
    to[12] = sinhf(v), to[13] = tanhf(v), to[14] = asinhf(v), to[15] = __exp10f(w) + __log2f(v);
}

KERNEL roots(const float *x, const float *y, float *out) {
    int i = global_id();
    float v = x[i], w = y[i], *to = out + i * 14;
    to[0] = sqrtf(v), to[1] = rsqrtf(v), to[2] = cbrtf(v), to[3] = hypotf(v, w), to[4] = v / w;
    to[5] = __frcp_rn(w), to[6] = __fdividef(v, w), to[7] = __frsqrt_rn(v), to[8] = fmodf(v, w);
    to[9] = remainderf(v, w), to[10] = __fsqrt_ru(v), to[11] = __fdiv_rd(v, w), to[12] = norm3df(v, w, 1);
    to[13] = __frcp_rz(w);
}

KERNEL special_functions(const float *x, float *out) {
    int i = global_id();
    float v = x[i], *to = out + i * 8;
    to[0] = erff(v), to[1] = erfcf(v), to[2] = erfinvf(v / 8), to[3] = lgammaf(v), to[4] = tgammaf(v);
    to[5] = j0f(v), to[6] = normcdff(v), to[7] = erfcxf(v);
}

// Rounding modes, fused products, pieces of a float, steps to its neighbours.
KERNEL rounding(const float *x, const float *y, float *out) {
    int i = global_id(), exponent;
    float v = x[i], w = y[i], whole, *to = out + i * 16;
    to[0] = __fadd_rz(v, w), to[1] = __fmul_ru(v, w), to[2] = __fmaf_rd(v, w, v), to[3] = __fsub_rd(v, w);
    to[4] = floorf(v), to[5] = ceilf(v), to[6] = truncf(v), to[7] = rintf(v), to[8] = roundf(v);
    to[9] = modff(v, &whole) + whole, to[10] = frexpf(v, &exponent), to[11] = ldexpf(w, exponent % 16);
    to[12] = nextafterf(v, w), to[13] = copysignf(v, w), to[14] = __saturatef(v), to[15] = logbf(v) + fdimf(v, w);
}

KERNEL conversions(const float *x, const double *y, long long *out) {
    int i = global_id();
    float v = x[i];
    double w = y[i];
    long long *to = out + i * 14;
    to[0] = __float2int_rz(v), to[1] = __float2int_rn(v), to[2] = __float2uint_ru(v), to[3] = __float2ll_rd(v);
    to[4] = __float2ull_rn(v), to[5] = __double2int_rz(w), to[6] = __double2ll_rn(w), to[7] = __double2uint_rd(w);
    to[8] = __float_as_uint(__double2float_rz(w)), to[9] = __double_as_longlong(static_cast<double>(v));
    to[10] = __float_as_int(__ll2float_rn(__double_as_longlong(w))), to[11] = __float_as_int(__uint2float_rz(to[8]));
    to[12] = __double_as_longlong(__ull2double_ru(__double_as_longlong(w) | 1));
    to[13] = static_cast<signed char>(static_cast<int>(fminf(fmaxf(v, -128.0f), 127.0f)));
}

KERNEL double_functions(const double *x, const double *y, double *out) {
    int i = global_id();
    double v = x[i], w = y[i], *to = out + i * 14;
    to[0] = sqrt(v), to[1] = rsqrt(v), to[2] = cbrt(v), to[3] = v / w, to[4] = exp(v), to[5] = log(v);
    to[6] = sin(v), to[7] = cos(v * 1e9), to[8] = pow(fabs(v), w), to[9] = tanh(v), to[10] = erf(v);
    to[11] = lgamma(v), to[12] = fmod(v, w), to[13] = atan2(v, w);
}

KERNEL double_rounding(const double *x, const double *y, double *out) {
    int i = global_id();
    double v = x[i], w = y[i], *to = out + i * 10;
    to[0] = __dadd_rz(v, w), to[1] = __dmul_ru(v, w), to[2] = __fma_rd(v, w, v), to[3] = __ddiv_rz(v, w);
    to[4] = __dsqrt_ru(v), to[5] = floor(v) + rint(w), to[6] = nextafter(v, w), to[7] = fmin(v, w) + fmax(v, w);
    to[8] = __drcp_rd(w), to[9] = scalbn(v, -1030);
}

// Polynomials and series with double-double sums: the error of each step is kept.
KERNEL compensated(const float *x, double *out, int n) {
    double sum = 0, low = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        double value = static_cast<double>(x[i]) * x[i] * x[i], total = sum + value, part = total - sum;
        low += (sum - (total - part)) + (value - part);
        sum = total;
    }
    for (int step = 16; step; step /= 2) {
        sum += __shfl_down_sync(~0u, sum, step);
        low += __shfl_down_sync(~0u, low, step);
    }
    if (threadIdx.x % 32 == 0) out[threadIdx.x / 16] = sum, out[threadIdx.x / 16 + 1] = low;
}
