// Small floats: arithmetic on pairs, conversions, packed weights.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "common.cuh"

KERNEL half_arithmetic(const half2 *a, const half2 *b, half2 *out) {
    int i = global_id();
    half2 x = a[i], y = b[i], *to = out + i * 14;
    to[0] = __hadd2(x, y), to[1] = __hsub2(x, y), to[2] = __hmul2(x, y), to[3] = __hfma2(x, y, x);
    to[4] = __hfma2_sat(x, y, y), to[5] = __hfma2_relu(x, y, x), to[6] = __hmax2(x, y), to[7] = __hmin2_nan(x, y);
    to[8] = __h2div(x, y), to[9] = __hneg2(__habs2(x)), to[10] = __hgt2(x, y), to[11] = __hadd2_sat(x, y);
    to[12] = __halves2half2(__hadd(__low2half(x), __high2half(y)), __hfma(x.x, y.y, x.y));
    to[13] = __halves2half2(__hlt(x.x, y.x) ? x.y : y.y, __hequ(x.x, y.x) ? y.x : x.x);
}

KERNEL half_functions(const half2 *a, half2 *out) {
    int i = global_id();
    half2 x = a[i], t, e, *to = out + i * 10;
    to[0] = h2exp2(x), to[1] = h2log2(x), to[2] = h2sqrt(x), to[3] = h2rsqrt(x), to[4] = h2rcp(x);
    to[5] = h2sin(x), to[6] = h2floor(x), to[7] = h2rint(x);
    asm("tanh.approx.f16x2 %0, %1;" : "=r"(*reinterpret_cast<unsigned *>(&t)) : "r"(*reinterpret_cast<unsigned *>(&x)));
    asm("ex2.approx.f16x2 %0, %1;" : "=r"(*reinterpret_cast<unsigned *>(&e)) : "r"(*reinterpret_cast<unsigned *>(&x)));
    to[8] = t, to[9] = e;
}

KERNEL bfloat_arithmetic(const __nv_bfloat162 *a, const __nv_bfloat162 *b, __nv_bfloat162 *out) {
    int i = global_id();
    __nv_bfloat162 x = a[i], y = b[i], *to = out + i * 10;
    to[0] = __hadd2(x, y), to[1] = __hsub2(x, y), to[2] = __hmul2(x, y), to[3] = __hfma2(x, y, x);
    to[4] = __hfma2_relu(x, y, y), to[5] = __hmax2(x, y), to[6] = __hmin2_nan(x, y), to[7] = __hneg2(__habs2(x));
    to[8] = __h2div(x, y), to[9] = __halves2bfloat162(hexp2(x.x), hrsqrt(x.y));
}

KERNEL half_conversions(const float *x, unsigned *out) {
    int i = global_id();
    float v = x[i], w = x[i ^ 1];
    unsigned *to = out + i * 10, r;
    half rn = __float2half_rn(v);
    to[0] = __half_as_ushort(rn) | __half_as_ushort(__float2half_rz(v)) << 16;
    to[1] = __half_as_ushort(__float2half_ru(v)) | __half_as_ushort(__float2half_rd(v)) << 16;
    to[2] = __bfloat16_as_ushort(__float2bfloat16_rn(v)) | __bfloat16_as_ushort(__float2bfloat16_rz(v)) << 16;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(to[3]) : "f"(v), "f"(w));
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(to[4]) : "f"(v), "f"(w));
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to[5]) : "f"(v));
    to[6] = __half2int_rn(rn), to[7] = __half2uint_rz(rn) ^ __half_as_ushort(__int2half_rn(i * 77 - 9000)) << 16;
    to[8] = __half_as_ushort(__double2half(v * 1.0000001)) | __half_as_ushort(__ull2half_rn(i * 999ull)) << 16;
    r = __half2short_rd(rn);
    to[9] = r ^ __bfloat162int_rz(__float2bfloat16(v)) << 8;
}

KERNEL fp8_conversions(const float *x, const half *h, unsigned char *e4m3, unsigned char *e5m2, float *back) {
    int i = global_id();
    e4m3[i] = __nv_cvt_float_to_fp8(x[i], __NV_SATFINITE, __NV_E4M3);
    e5m2[i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E5M2);
    __nv_fp8x2_storage_t two = __nv_cvt_halfraw2_to_fp8x2(
        static_cast<__half2_raw>(__halves2half2(h[2 * i], h[2 * i + 1])), __NV_SATFINITE, __NV_E4M3);
    half2 both = half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3));
    __half_raw one = __nv_cvt_fp8_to_halfraw(e5m2[i], __NV_E5M2);
    back[i * 3] = __low2float(both), back[i * 3 + 1] = __high2float(both), back[i * 3 + 2] = __half2float(half(one));
}

// Eight 4-bit weights to halves without a conversion: lop3 places them in the mantissa
// of 1024, and subtraction takes the 1024 away.
KERNEL dequantise_int4(const unsigned *packed, const half *scale, half2 *out, int group) {
    int i = global_id();
    unsigned word = packed[i], r[4];
    for (int k = 0; k < 2; k++) {
        asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r[2 * k]) : "r"(word), "n"(0x000f000f), "n"(0x64006400));
        asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(r[2 * k + 1]) : "r"(word), "n"(0x00f000f0), "n"(0x64006400));
        word >>= 8;
    }
    half2 s = __half2half2(scale[i / group]), eight = __float2half2_rn(1032.0f);
    half2 sixteenth = __float2half2_rn(0.0625f), shifted = __float2half2_rn(-72.0f);
    for (int k = 0; k < 4; k++) {
        half2 value = *reinterpret_cast<half2 *>(&r[k]);
        value = k % 2 ? __hfma2(value, sixteenth, shifted) : __hsub2(value, eight);
        out[i * 4 + k] = __hmul2(value, s);
    }
}

// Rows to eight bits with a scale of their own: the largest magnitude becomes 127.
KERNEL quantise_rows(const float *x, char4 *q, float *scales, int width) {
    __shared__ unsigned most;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    float4 v = reinterpret_cast<const float4 *>(x + blockIdx.x * width)[threadIdx.x];
    float own = fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    atomicMax(&most, __float_as_uint(own));
    __syncthreads();
    float scale = __uint_as_float(most) / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
    q[blockIdx.x * blockDim.x + threadIdx.x] =
        make_char4(__float2int_rn(v.x * inverse), __float2int_rn(v.y * inverse), __float2int_rn(v.z * inverse),
                   __float2int_rn(v.w * inverse));
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

// Weights of four bits through a table of 16 values that the lanes of a warp hold.
KERNEL dequantise_table(const unsigned char *codes, const float *table, __nv_bfloat16 *out) {
    float mine = table[lane_id() % 16];
    unsigned char code = codes[global_id()];
    float low = __shfl_sync(~0u, mine, code & 15), high = __shfl_sync(~0u, mine, code >> 4);
    out[global_id() * 2] = __float2bfloat16(low);
    out[global_id() * 2 + 1] = __float2bfloat16(high);
}
