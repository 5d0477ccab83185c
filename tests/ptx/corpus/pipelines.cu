// Matrix products as fast libraries write them: cp.async fills a ring of shared
// buffers, ldmatrix reads fragments, mma.sync multiplies.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>

#include "common.cuh"

// One mma.sync of shape m16n8 whose A row is 32 bytes long, whatever the elements are.
#define MMA(NAME, TEXT, SUM, CONSTRAINT)                                                              \
    struct NAME {                                                                                     \
        using Sum = SUM;                                                                              \
        __device__ static void mma(SUM(&d)[4], const uint32_t(&a)[4], uint32_t b0, uint32_t b1) {     \
            asm volatile("mma.sync.aligned." TEXT                                                     \
                         " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"         \
                         : "+" CONSTRAINT(d[0]), "+" CONSTRAINT(d[1]), "+" CONSTRAINT(d[2]),          \
                           "+" CONSTRAINT(d[3])                                                       \
                         : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));             \
        }                                                                                             \
    };

MMA(F16, "m16n8k16.row.col.f32.f16.f16.f32", float, "f")
MMA(BF16, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "f")
MMA(TF32, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "f")
MMA(S8, "m16n8k32.row.col.satfinite.s32.s8.s8.s32", int, "r")
MMA(U8S8, "m16n8k32.row.col.s32.u8.s8.s32", int, "r")
MMA(S4, "m16n8k64.row.col.s32.s4.s4.s32", int, "r")
MMA(B1, "m16n8k256.row.col.s32.b1.b1.s32.and.popc", int, "r")
#if __CUDA_ARCH__ >= 890
MMA(E4M3, "m16n8k32.row.col.f32.e4m3.e4m3.f32", float, "f")
MMA(E5M2E4M3, "m16n8k32.row.col.f32.e5m2.e4m3.f32", float, "f")
#endif

// A slab is 64 rows of 64 bytes.  Its 16-byte chunks are exchanged within a row so that
// the eight rows that ldmatrix reads at once lie in different banks.
struct Slab {
    uint4 chunks[64 * 4];
    __device__ uint4 *at(int row, int chunk) { return &chunks[row * 4 + (chunk ^ ((row >> 1) & 3))]; }
};

// D = A B^T for A of m rows and B of n rows, both `pitch` bytes long.  A block of four
// warps computes 64 x 64, each warp 32 x 32.
template <class Op, int Stages>
__device__ void gemm(const char *a, const char *b, typename Op::Sum *d, int n, int pitch) {
    extern __shared__ uint4 dynamic[];
    Slab *slabs_a = reinterpret_cast<Slab *>(dynamic), *slabs_b = slabs_a + Stages;
    int lane = lane_id(), warp = warp_id(), steps = pitch / 64;
    int first_row = blockIdx.y * 64, first_col = blockIdx.x * 64;
    int warp_row = warp / 2 * 32, warp_col = warp % 2 * 32;
    auto load = [&](int step) {
        if (step < steps) {
            for (int i = threadIdx.x; i < 256; i += blockDim.x) {
                int row = i / 4, chunk = i % 4, offset = step * 64 + chunk * 16;
                copy_async16(slabs_a[step % Stages].at(row, chunk), a + (first_row + row) * pitch + offset);
                copy_async16(slabs_b[step % Stages].at(row, chunk), b + (first_col + row) * pitch + offset);
            }
        }
        commit_group();
    };
    typename Op::Sum sum[2][4][4] = {};
    for (int step = 0; step < Stages - 1; step++) load(step);
    for (int step = 0; step < steps; step++) {
        wait_group<Stages - 2>();
        __syncthreads();
        load(step + Stages - 1);
        Slab &slab_a = slabs_a[step % Stages], &slab_b = slabs_b[step % Stages];
#pragma unroll
        for (int half = 0; half < 2; half++) {
            uint32_t fa[2][4], fb[2][4];
            for (int i = 0; i < 2; i++) {
                ldmatrix_x4(fa[i], slab_a.at(warp_row + i * 16 + lane % 16, half * 2 + lane / 16));
                int row = warp_col + i * 16 + lane % 8 + lane / 16 * 8;
                ldmatrix_x4(fb[i], slab_b.at(row, half * 2 + lane / 8 % 2));
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++)
                    Op::mma(sum[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
        }
    }
    wait_group<0>();
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++) {
            int row = first_row + warp_row + i * 16 + lane / 4;
            int col = first_col + warp_col + j * 8 + lane % 4 * 2;
            for (int e = 0; e < 4; e++) d[(row + e / 2 * 8) * n + col + e % 2] = sum[i][j][e];
        }
}

#define GEMM(NAME, OP, STAGES)                                                                        \
    KERNEL __launch_bounds__(128)                                                                     \
        NAME(const char *a, const char *b, OP::Sum *d, int n, int pitch) {                            \
        gemm<OP, STAGES>(a, b, d, n, pitch);                                                          \
    }

GEMM(gemm_f16_3_stages, F16, 3)
GEMM(gemm_bf16_2_stages, BF16, 2)
GEMM(gemm_tf32_3_stages, TF32, 3)
GEMM(gemm_s8_4_stages, S8, 4)
GEMM(gemm_u8_s8, U8S8, 2)
GEMM(gemm_s4, S4, 2)
GEMM(gemm_b1, B1, 2)
#if __CUDA_ARCH__ >= 890
GEMM(gemm_e4m3, E4M3, 3)
GEMM(gemm_e5m2_e4m3, E5M2E4M3, 2)
#endif

// B is stored by rows, so ldmatrix transposes.  The sums are f16, and go through shared
// memory to become whole rows: bias, ReLU, 16-byte stores.  One warp, 16 x 32.
KERNEL gemm_f16_trans(const __half *a, const __half *b, const __half *bias, __half *d, int n, int k) {
    __shared__ __align__(16) __half slab_a[2][16][24], slab_b[2][16][40], result[16][40];
    int lane = lane_id(), row0 = blockIdx.y * 16, col0 = blockIdx.x * 32;
    auto load = [&](int i) {
        int row = lane / 2, part = lane % 2 * 8;
        __pipeline_memcpy_async(&slab_a[i / 16 % 2][row][part], a + (row0 + row) * k + i + part, 16);
        for (int p = part; p < 32; p += 16)
            __pipeline_memcpy_async(&slab_b[i / 16 % 2][row][p], b + (i + row) * n + col0 + p, 16);
        __pipeline_commit();
    };
    uint32_t sum[4][2] = {};
    load(0);
    for (int i = 0; i < k; i += 16) {
        if (i + 16 < k) load(i + 16);
        __pipeline_wait_prior(i + 16 < k ? 1 : 0);
        __syncwarp();
        uint32_t fa[4], fb[4];
        ldmatrix_x4(fa, &slab_a[i / 16 % 2][lane % 16][lane / 16 * 8]);
        for (int j = 0; j < 4; j++) {
            if (j % 2 == 0) ldmatrix_x4_trans(fb, &slab_b[i / 16 % 2][lane % 16][j * 8 + lane / 16 * 8]);
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
                         "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};\n"
                         : "+r"(sum[j][0]), "+r"(sum[j][1])
                         : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[j % 2 * 2]),
                           "r"(fb[j % 2 * 2 + 1]));
        }
        __syncwarp();
    }
#if __CUDA_ARCH__ >= 900
    for (int j = 0; j < 4; j++)
        asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};\n" ::"r"(
                         shared_address(&result[lane % 16][j * 8])),
                     "r"(sum[j][0]), "r"(sum[j][1])
                     : "memory");
#else
    for (int j = 0; j < 4; j++)
        for (int e = 0; e < 2; e++)
            *reinterpret_cast<uint32_t *>(&result[lane / 4 + e * 8][j * 8 + lane % 4 * 2]) = sum[j][e];
#endif
    __syncwarp();
    for (int part = lane; part < 64; part += 32) {
        int row = part / 4, col = part % 4 * 8;
        __half2 values[4], biases[4];
        *reinterpret_cast<uint4 *>(values) = *reinterpret_cast<uint4 *>(&result[row][col]);
        *reinterpret_cast<uint4 *>(biases) = __ldg(reinterpret_cast<const uint4 *>(bias + col0 + col));
        for (int e = 0; e < 4; e++) values[e] = __hmax2(__hadd2(values[e], biases[e]), __half2{});
        *reinterpret_cast<uint4 *>(d + (row0 + row) * n + col0 + col) = *reinterpret_cast<uint4 *>(values);
    }
}

// A product whose m, n, k are no multiples of the tile: cp.async fills with zeros.
// One warp, 16 x 8, k in steps of 16.
KERNEL gemm_f16_ragged(const __half *a, const __half *b, float *d, int m, int n, int k, int pitch) {
    __shared__ __align__(16) __half slab_a[16][24], slab_b[8][24];
    int lane = lane_id(), row0 = blockIdx.y * 16, col0 = blockIdx.x * 8;
    float sum[4] = {};
    for (int i = 0; i < k; i += 16) {
        int row = lane / 2, part = lane % 2 * 8, left = 2 * max(0, min(8, k - i - part));
        const __half *from_a = a + min(row0 + row, m - 1) * pitch + (left ? i + part : 0);
        copy_async16_guarded(&slab_a[row][part], from_a, row0 + row < m ? left : 0);
        if (row < 8) {
            const __half *from_b = b + min(col0 + row, n - 1) * pitch + (left ? i + part : 0);
            copy_async16_guarded(&slab_b[row][part], from_b, col0 + row < n ? left : 0);
        }
        asm volatile("cp.async.wait_all;\n" ::: "memory");
        __syncwarp();
        uint32_t fa[4], fb[2];
        ldmatrix_x4(fa, &slab_a[lane % 16][lane / 16 * 8]);
        ldmatrix_x2(fb, &slab_b[lane % 8][lane / 8 % 2 * 8]);
        F16::mma(sum, fa, fb[0], fb[1]);
        __syncwarp();
    }
    for (int e = 0; e < 4; e++) {
        int row = row0 + lane / 4 + e / 2 * 8, col = col0 + lane % 4 * 2 + e % 2;
        if (row < m && col < n) d[row * n + col] = sum[e];
    }
}

// Double precision: mma.m8n8k4 straight from global memory, split over two warps in k.
KERNEL gemm_f64_split_k(const double *a, const double *b, double *d, int n, int k) {
    __shared__ double part[32][2];
    int lane = lane_id(), row = blockIdx.y * 8 + lane / 4, col = blockIdx.x * 8 + lane / 4;
    double s0 = 0, s1 = 0;
    for (int i = warp_id() * (k / 2); i < (warp_id() + 1) * (k / 2); i += 4)
        asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};\n"
                     : "+d"(s0), "+d"(s1)
                     : "d"(a[row * k + i + lane % 4]), "d"(b[col * k + i + lane % 4]));
    if (warp_id() == 1) part[lane][0] = s0, part[lane][1] = s1;
    __syncthreads();
    if (warp_id() == 0) {
        int column = blockIdx.x * 8 + lane % 4 * 2;
        d[row * n + column] = s0 + part[lane][0];
        d[row * n + column + 1] = s1 + part[lane][1];
    }
}
