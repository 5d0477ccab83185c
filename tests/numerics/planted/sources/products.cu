// Tensor Cores: accumulators that are too narrow, operands that are cut.
#include <cuda_fp16.h>

#include "planted.cuh"

// 16 x 8 products of k halves: the chain of sums is in halves, or in f32.
KERNEL half_chain(const uint32_t *a, const uint32_t *b, float *y, int steps)
{
    int group = threadIdx.x / 4, within = threadIdx.x % 4, pitch = steps * 8;
    uint32_t h[2] = {};
    float d[4] = {};
    for (int i = 0; i < steps; i++) {
        const uint32_t *x = a + group * pitch + i * 8 + within, *w = b + group * pitch + i * 8 + within;
        uint32_t a0 = x[0], a1 = x[8 * pitch], a2 = x[4], a3 = x[8 * pitch + 4], b0 = w[0], b1 = w[4];
#if BUG
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};" : "+r"(h[0]), "+r"(h[1]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
#endif
    }
#if BUG
    for (int i = 0; i < 2; i++) {
        half2 both = *reinterpret_cast<half2 *>(&h[i]);
        d[i * 2] = __low2float(both);
        d[i * 2 + 1] = __high2float(both);
    }
#endif
    for (int i = 0; i < 4; i++) y[(group + i / 2 * 8) * 8 + within * 2 + i % 2] = d[i];
}

DEVICE void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE uint32_t to_tf32(float x)
{
    uint32_t y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
}

// Single precision by tf32: the bits that do not fit are lost, or are products of their own.
KERNEL tf32_product(const float *a, const float *b, float *y, int steps)
{
    int group = threadIdx.x / 4, within = threadIdx.x % 4, pitch = steps * 8;
    float d[4] = {};
    for (int i = 0; i < steps; i++) {
        const float *x = a + group * pitch + i * 8 + within, *w = b + group * pitch + i * 8 + within;
        float given[6] = {x[0], x[8 * pitch], x[4], x[8 * pitch + 4], w[0], w[4]};
        uint32_t high[6];
        for (int j = 0; j < 6; j++)
            high[j] = to_tf32(given[j]);
        uint32_t a_high[4] = {high[0], high[1], high[2], high[3]}, b_high[2] = {high[4], high[5]};
#if !BUG
        uint32_t low[6];
        for (int j = 0; j < 6; j++)
            low[j] = to_tf32(given[j] - __uint_as_float(high[j]));
        uint32_t a_low[4] = {low[0], low[1], low[2], low[3]}, b_low[2] = {low[4], low[5]};
        mma_tf32(d, a_low, b_high);
        mma_tf32(d, a_high, b_low);
#endif
        mma_tf32(d, a_high, b_high);
    }
    for (int i = 0; i < 4; i++) y[(group + i / 2 * 8) * 8 + within * 2 + i % 2] = d[i];
}

// 64 x 8 products of k numbers in e4m3, by wgmma: a chain of k, or sums of 128 added in f32.
// Tiles are 8 rows of 16 bytes, k fastest: A has 64 x 32 bytes for each step, B 8 x 32.
DEVICE uint64_t tile_of(const void *tile)
{
    uint64_t at = __cvta_generic_to_shared(tile);
    return (at >> 4 & 0x3FFF) | uint64_t(128 >> 4) << 16 | uint64_t(256 >> 4) << 32;
}
KERNEL fp8_chain(const uint4 *a, const uint4 *b, float *y, int steps)
{
    __shared__ __align__(128) uint4 tile_a[128], tile_b[16];
    int thread = threadIdx.x, promoted = 4;
    float d[4] = {}, sum[4] = {};
    for (int i = 0; i < steps; i++) {
        // Row r, half h of the step: core matrix r / 8, h; row r % 8 of it.
        int row = thread / 2, half_row = thread % 2;
        tile_a[row / 8 * 16 + half_row * 8 + row % 8] = a[row * steps * 2 + i * 2 + half_row];
        if (thread < 16) tile_b[half_row * 8 + row] = b[row * steps * 2 + i * 2 + half_row];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, %4, %5, 1, 1, 1;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(tile_of(tile_a)), "l"(tile_of(tile_b)) : "memory");
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
        if (!BUG && i % promoted == promoted - 1)
            for (int j = 0; j < 4; j++) {
                sum[j] += d[j];
                d[j] = 0;
            }
        __syncthreads();
    }
    int top = thread / 32 * 16 + thread % 32 / 4, left = thread % 4 * 2;
    for (int j = 0; j < 4; j++) y[(top + j / 2 * 8) * 8 + left + j % 2] = sum[j] + d[j];
}
