// Quantise every row of a matrix: 8-bit elements, and one f32 scale for each row.
//
// The launcher defines FLOATS (32, 16 or 0xB16: float, half or bfloat16), E4M3 (else s8),
// LARGEST (the largest element), THREADS, and DIGITS: the significant bits of the numbers
// half way between two elements.
//
// One block of threads has one row.  The scale is max|x| / LARGEST in f32; it is 1 for a
// row of zeros, and never 0.  Each x / scale is rounded once, as if the quotient was exact.
// A row with NaN or infinity has the scale NaN, so that its products are NaN.

#include "rows.cuh"

constexpr int HELD = 4;  // reads that stay in registers; the rest is read again
constexpr int WARPS = THREADS / 32;

struct alignas(PER) Elements { u32 words[PER / 4]; };

// The bits of magnitudes are in the order of the magnitudes, and NaN is the greatest.
__device__ __forceinline__ u32 largest(const Given& in, u32 so_far) {
#pragma unroll
    for (int i = 0; i < PER; i++) so_far = max(so_far, bits(in, i) & MAGNITUDE);
    return so_far;
}

// ── one element ─────────────────────────────────────────────────────────────

// x / scale is (x * lift) / (scale * lift).  The lift is a power of two.  It keeps the
// reciprocal of a tiny scale, and the rest of the division, within the range of f32.
struct Divisor { float lift, lifted, reciprocal; };

__device__ __forceinline__ Divisor divisor(float scale) {
    float lift = scale < 0x1p-60f ? 0x1p80f : 1.0f;
    float lifted = __fmul_rn(scale, lift);
    return {lift, lifted, __frcp_rn(lifted)};
}

// A number that is rounded to an element as the exact quotient is.
//
// Where rounding changes, and at every element, are numbers of few digits.  The nearest
// one is found with the approximate quotient.  The sign of the rest then says on which
// side of it the exact quotient is, and one step in the last place goes to that side.
__device__ __forceinline__ float quotient(u32 magnitude, const Divisor& by) {
    constexpr u32 UNIT = 1u << (24 - DIGITS);
    float x = __fmul_rn(__uint_as_float(magnitude), by.lift);
    u32 about = __float_as_uint(__fmul_rn(x, by.reciprocal));
    u32 few = (about + UNIT / 2) & ~(UNIT - 1);
    float rest = __fmaf_rn(-__uint_as_float(few), by.lifted, x);
    return __uint_as_float(few + (rest > 0) - (rest < 0));
}

__device__ __forceinline__ u32 four(const u32 (&x)[4], const Divisor& by) {
    float found[4];
#pragma unroll
    for (int i = 0; i < 4; i++) found[i] = quotient(x[i] & MAGNITUDE, by);
    u32 all = 0;
#if E4M3
    u16 pairs[2];
#pragma unroll
    for (int i = 0; i < 4; i++)
        found[i] = __uint_as_float(__float_as_uint(found[i]) | (x[i] & ~MAGNITUDE));
#pragma unroll
    for (int i = 0; i < 2; i++)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
            : "=h"(pairs[i]) : "f"(found[2 * i + 1]), "f"(found[2 * i]));
    all = pairs[0] | static_cast<u32>(pairs[1]) << 16;
#else
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int whole = __float2int_rn(fminf(found[i], LARGEST));
        all |= (static_cast<u32>(x[i] >> 31 ? -whole : whole) & 255) << 8 * i;
    }
#endif
    return all;
}

__device__ __forceinline__ Elements converted(const Given& in, const Divisor& by) {
    Elements out;
#pragma unroll
    for (int i = 0; i < PER; i += 4) {
        u32 x[4] = {bits(in, i), bits(in, i + 1), bits(in, i + 2), bits(in, i + 3)};
        out.words[i / 4] = four(x, by);
    }
    return out;
}

// ── a row ───────────────────────────────────────────────────────────────────

__device__ __forceinline__ void put(char* row, i64 at, const Elements& out) {
    *reinterpret_cast<Elements*>(row + at) = out;
}

// Each row of values has room for a multiple of 16 bytes.
extern "C" __global__ void __launch_bounds__(THREADS) quantize_rows(
    const char* __restrict__ matrix, i64 pitch, i64 columns, char* __restrict__ values,
    i64 value_pitch, float* __restrict__ scales) {
    __shared__ u32 largest_of[WARPS];
    constexpr i64 STEP = THREADS * PER;
    const char* from = matrix + blockIdx.x * pitch;
    char* to = values + blockIdx.x * value_pitch;
    i64 first = threadIdx.x * PER;
    Given held[HELD];
    u32 most = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        held[i] = take(from, first + i * STEP, columns);
        most = largest(held[i], most);
    }
    for (i64 at = first + HELD * STEP; at < columns; at += STEP)
        most = largest(take(from, at, columns), most);
    most = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 == 0) largest_of[threadIdx.x / 32] = most;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WARPS; i++) most = max(most, largest_of[i]);

    bool finite = most < INFINITE;
    float scale = fmaxf(__fdiv_rn(__uint_as_float(most), LARGEST), 0x1p-149f);
    if (!most) scale = 1;
    if (!finite) scale = __uint_as_float(ONE_NAN);
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    Divisor by = divisor(scale);
#pragma unroll
    for (int i = 0; i < HELD; i++)
        if (first + i * STEP < columns)
            put(to, first + i * STEP, finite ? converted(held[i], by) : Elements{});
    for (i64 at = first + HELD * STEP; at < columns; at += STEP)
        put(to, at, finite ? converted(take(from, at, columns), by) : Elements{});
}

// The same with one scale that is known.  An element that is not finite becomes zero, and
// its row has the scale NaN; if the scale is not above zero and finite, all rows have.
extern "C" __global__ void __launch_bounds__(THREADS) quantize_rows_by(
    const char* __restrict__ matrix, i64 pitch, i64 columns, char* __restrict__ values,
    i64 value_pitch, float* __restrict__ scales, const float* __restrict__ given) {
    const char* from = matrix + blockIdx.x * pitch;
    char* to = values + blockIdx.x * value_pitch;
    float scale = *given;
    bool usable = scale > 0 && __float_as_uint(scale) < INFINITE;
    Divisor by = divisor(usable ? scale : 1);
    bool finite = usable;
    for (i64 at = threadIdx.x * PER; at < columns; at += THREADS * PER) {
        Given in = take(from, at, columns);
        Elements out{};
#pragma unroll
        for (int i = 0; i < PER; i += 4) {
            u32 x[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                x[j] = bits(in, i + j);
                bool whole = (x[j] & MAGNITUDE) < INFINITE;
                finite &= whole;
                x[j] = whole && usable ? x[j] : 0;
            }
            out.words[i / 4] = four(x, by);
        }
        put(to, at, out);
    }
    finite = __syncthreads_and(finite);
    if (threadIdx.x == 0) scales[blockIdx.x] = finite ? scale : __uint_as_float(ONE_NAN);
}
