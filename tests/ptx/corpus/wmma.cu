// Warp matrix functions of CUDA C++: one warp computes one tile of D.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include "common.cuh"

using namespace nvcuda;
using wmma::col_major;
using wmma::row_major;

// A is m x k, B is k x n, C and D are m x n; each stored as its layout says.
template <int M, int N, int K, class Type, class LayoutA, class LayoutB, class Store, class Sum>
__device__ void multiply(const Store *a, const Store *b, const Sum *c, Sum *d, int m, int n, int k) {
    int tiles = n / N, warp = global_id() / 32;
    if (warp >= (m / M) * tiles) return;
    int row = warp / tiles * M, col = warp % tiles * N;
    constexpr bool row_a = std::is_same<LayoutA, row_major>::value;
    constexpr bool row_b = std::is_same<LayoutB, row_major>::value;
    wmma::fragment<wmma::accumulator, M, N, K, Sum> sum;
    wmma::load_matrix_sync(sum, c + row * n + col, n, wmma::mem_row_major);
    for (int i = 0; i < k; i += K) {
        wmma::fragment<wmma::matrix_a, M, N, K, Type, LayoutA> fa;
        wmma::fragment<wmma::matrix_b, M, N, K, Type, LayoutB> fb;
        wmma::load_matrix_sync(fa, a + (row_a ? row * k + i : i * m + row), row_a ? k : m);
        wmma::load_matrix_sync(fb, b + (row_b ? i * n + col : col * k + i), row_b ? n : k);
        if constexpr (std::is_same<Type, wmma::precision::tf32>::value) {
            for (int e = 0; e < fa.num_elements; e++) fa.x[e] = wmma::__float_to_tf32(fa.x[e]);
            for (int e = 0; e < fb.num_elements; e++) fb.x[e] = wmma::__float_to_tf32(fb.x[e]);
        }
        wmma::mma_sync(sum, fa, fb, sum);
    }
    wmma::store_matrix_sync(d + row * n + col, sum, n, wmma::mem_row_major);
}

KERNEL wmma_f16_f32(const half *a, const half *b, const float *c, float *d, int m, int n, int k) {
    multiply<16, 16, 16, half, row_major, col_major>(a, b, c, d, m, n, k);
}

KERNEL wmma_f16_f16(const half *a, const half *b, const half *c, half *d, int m, int n, int k) {
    multiply<32, 8, 16, half, col_major, row_major>(a, b, c, d, m, n, k);
}

KERNEL wmma_bf16(const __nv_bfloat16 *a, const __nv_bfloat16 *b, const float *c, float *d, int m, int n,
                 int k) {
    multiply<8, 32, 16, __nv_bfloat16, row_major, row_major>(a, b, c, d, m, n, k);
}

KERNEL wmma_tf32(const float *a, const float *b, const float *c, float *d, int m, int n, int k) {
    multiply<16, 16, 8, wmma::precision::tf32, row_major, col_major>(a, b, c, d, m, n, k);
}

KERNEL wmma_s8(const signed char *a, const signed char *b, const int *c, int *d, int m, int n, int k) {
    multiply<16, 16, 16, signed char, row_major, col_major>(a, b, c, d, m, n, k);
}

KERNEL wmma_u8(const unsigned char *a, const unsigned char *b, const int *c, int *d, int m, int n, int k) {
    multiply<32, 8, 16, unsigned char, col_major, row_major>(a, b, c, d, m, n, k);
}

KERNEL wmma_f64(const double *a, const double *b, const double *c, double *d, int m, int n, int k) {
    multiply<8, 8, 4, double, row_major, col_major>(a, b, c, d, m, n, k);
}

// Four-bit integers: two of them in a byte, k counts elements.
KERNEL wmma_s4(const unsigned char *a, const unsigned char *b, int *d, int n, int k) {
    using wmma::experimental::precision::s4;
    int warp = global_id() / 32, row = warp / (n / 8) * 8, col = warp % (n / 8) * 8;
    wmma::fragment<wmma::accumulator, 8, 8, 32, int> sum;
    wmma::fill_fragment(sum, 7);
    for (int i = 0; i < k; i += 32) {
        wmma::fragment<wmma::matrix_a, 8, 8, 32, s4, row_major> fa;
        wmma::fragment<wmma::matrix_b, 8, 8, 32, s4, col_major> fb;
        wmma::load_matrix_sync(fa, a + (row * k + i) / 2, k);
        wmma::load_matrix_sync(fb, b + (col * k + i) / 2, k);
        wmma::mma_sync(sum, fa, fb, sum);
    }
    wmma::store_matrix_sync(d + row * n + col, sum, n, wmma::mem_row_major);
}

// Single bits: how many of k bits are set in both (AND) of a row of A and a column of B.
KERNEL wmma_b1(const unsigned *a, const unsigned *b, int *d, int n, int k) {
    using wmma::experimental::precision::b1;
    int warp = global_id() / 32, row = warp / (n / 8) * 8, col = warp % (n / 8) * 8;
    wmma::fragment<wmma::accumulator, 8, 8, 128, int> sum;
    wmma::fill_fragment(sum, 0);
    for (int i = 0; i < k; i += 128) {
        wmma::fragment<wmma::matrix_a, 8, 8, 128, b1, row_major> fa;
        wmma::fragment<wmma::matrix_b, 8, 8, 128, b1, col_major> fb;
        wmma::load_matrix_sync(fa, a + (row * k + i) / 32, k);
        wmma::load_matrix_sync(fb, b + (col * k + i) / 32, k);
        wmma::bmma_sync(sum, fa, fb, sum, wmma::experimental::bmmaBitOpAND);
    }
    wmma::store_matrix_sync(d + row * n + col, sum, n, wmma::mem_row_major);
}

// The epilogue of a GEMM on fragments in shared memory: D = alpha A B + beta C, as f16,
// and the largest magnitude of each warp's tile.
KERNEL wmma_epilogue(const half *a, const half *b, const half *c, half *d, float *largest, float alpha,
                     float beta) {
    __shared__ __align__(32) half tile_a[4][16 * 16], tile_b[4][16 * 16];
    int warp = warp_id(), lane = lane_id(), offset = (blockIdx.x * 4 + warp) * 256;
    for (int i = lane; i < 256; i += 32) {
        tile_a[warp][i] = a[offset + i];
        tile_b[warp][i] = b[offset + i];
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, row_major> fa;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, row_major> fb;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fragment<wmma::accumulator, 16, 16, 16, half> fc;
    wmma::load_matrix_sync(fa, tile_a[warp], 16);
    wmma::load_matrix_sync(fb, tile_b[warp], 16);
    wmma::load_matrix_sync(fc, c + offset, 16, wmma::mem_col_major);
    wmma::fill_fragment(sum, 0.0f);
    wmma::mma_sync(sum, fa, fb, sum);
    float most = 0;
    for (int e = 0; e < fc.num_elements; e++) {
        float value = alpha * sum.x[e] + beta * __half2float(fc.x[e]);
        most = fmaxf(most, fabsf(value));
        fc.x[e] = __float2half_rn(value);
    }
    for (int step = 16; step; step /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    wmma::store_matrix_sync(d + offset, fc, 16, wmma::mem_col_major);
    if (lane == 0) largest[blockIdx.x * 4 + warp] = most;
}
