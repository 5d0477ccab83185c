// Sparse products: a dense A is pruned two of four in the kernel, stored compressed in
// shared memory with its metadata, and multiplied by mma.sp.
#include <cuda_fp16.h>

#include "common.cuh"

// The places (low, high) of the two largest of four magnitudes; the earlier one of equals.
__device__ inline int two_largest(const float (&value)[4]) {
    int first = 0, second = -1;
    for (int i = 1; i < 4; i++)
        if (fabsf(value[i]) > fabsf(value[first])) first = i;
    for (int i = 0; i < 4; i++)
        if (i != first && (second < 0 || fabsf(value[i]) > fabsf(value[second]))) second = i;
    return min(first, second) | max(first, second) << 2;
}

// D = prune(A) B^T for A 16 x k and B n x k.  One warp computes 16 x 8 with m16n8k32.
KERNEL sparse_f16(const half *a, const half *b, float *d, unsigned *metadata, int n, int k) {
    __shared__ half kept[16][16];
    __shared__ unsigned char chosen[16][8];
    int lane = lane_id(), group = lane / 4, member = lane % 4, col0 = blockIdx.x * 8;
    float sum[4] = {};
    for (int i = 0; i < k; i += 32) {
        for (int chunk = lane; chunk < 128; chunk += 32) {
            int row = chunk / 8, place = chunk % 8;
            float value[4];
            for (int e = 0; e < 4; e++) value[e] = __half2float(a[row * k + i + place * 4 + e]);
            int two = two_largest(value);
            chosen[row][place] = two;
            kept[row][place * 2] = __float2half(value[two & 3]);
            kept[row][place * 2 + 1] = __float2half(value[two >> 2]);
        }
        __syncwarp();
        uint32_t fa[4], fb[4], e = 0;
        for (int r = 0; r < 4; r++) {
            fa[r] = *reinterpret_cast<uint32_t *>(&kept[group + r % 2 * 8][member * 2 + r / 2 * 8]);
            fb[r] = *reinterpret_cast<const uint32_t *>(&b[(col0 + group) * k + i + member * 2 + r * 8]);
        }
        for (int bit = 0; bit < 8; bit++)
            e |= chosen[group + bit / 4 * 8][lane % 2 * 4 + bit % 4] << 4 * bit;
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x1;\n"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "r"(fb[2]),
                       "r"(fb[3]), "r"(e));
        if (blockIdx.x == 0) metadata[i + lane] = e;
        __syncwarp();
    }
    for (int e = 0; e < 4; e++) d[(group + e / 2 * 8) * n + col0 + member * 2 + e % 2] = sum[e];
}

// The same for eight-bit integers and m16n8k64, where all four lanes hold metadata.
KERNEL sparse_s8(const signed char *a, const signed char *b, int *d, int n, int k) {
    __shared__ __align__(4) signed char kept[16][32];
    __shared__ unsigned char chosen[16][16];
    int lane = lane_id(), group = lane / 4, member = lane % 4, col0 = blockIdx.x * 8;
    int sum[4] = {};
    for (int i = 0; i < k; i += 64) {
        for (int chunk = lane; chunk < 256; chunk += 32) {
            int row = chunk / 16, place = chunk % 16;
            char4 four = *reinterpret_cast<const char4 *>(&a[row * k + i + place * 4]);
            float value[4] = {float(four.x), float(four.y), float(four.z), float(four.w)};
            int two = two_largest(value);
            chosen[row][place] = two;
            kept[row][place * 2] = value[two & 3];
            kept[row][place * 2 + 1] = value[two >> 2];
        }
        __syncwarp();
        uint32_t fa[4], fb[4], e = 0;
        for (int r = 0; r < 4; r++) {
            fa[r] = *reinterpret_cast<uint32_t *>(&kept[group + r % 2 * 8][member * 4 + r / 2 * 16]);
            fb[r] = *reinterpret_cast<const uint32_t *>(&b[(col0 + group) * k + i + member * 4 + r * 16]);
        }
        for (int bit = 0; bit < 8; bit++)
            e |= chosen[group + lane % 2 * 8][lane / 2 % 2 * 8 + bit] << 4 * bit;
        asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 "
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;\n"
                     : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                     : "r"(fa[0]), "r"(fa[1]), "r"(fa[2]), "r"(fa[3]), "r"(fb[0]), "r"(fb[1]), "r"(fb[2]),
                       "r"(fb[3]), "r"(e));
        __syncwarp();
    }
    for (int e = 0; e < 4; e++) d[(group + e / 2 * 8) * n + col0 + member * 2 + e % 2] = sum[e];
}
