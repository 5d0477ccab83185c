// Attention with online softmax: the exponentials are rescaled as larger scores appear.
#include <cuda_fp16.h>

#include "common.cuh"

constexpr int HEAD = 64, QUERIES = 64, KEYS = 32, PITCH = HEAD + 8;

__device__ inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t pair(float low, float high) {
    half2 both = __floats2half2_rn(low, high);
    return *reinterpret_cast<uint32_t *>(&both);
}

// A row of scores lies in four lanes.
__device__ inline float row_max(float x) {
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ inline float row_sum(float x) {
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}

// One block of four warps: 64 queries of one head; a warp has 16 of them.
KERNEL __launch_bounds__(128) flash_attention(const half *q, const half *k, const half *v, half *out,
                                              float *log_sum, int length, int causal, float scale) {
    __shared__ __align__(16) half tile_q[QUERIES][PITCH], tile_k[KEYS][PITCH], tile_v[KEYS][PITCH];
    int lane = lane_id(), warp_row = warp_id() * 16, first = blockIdx.x * QUERIES;
    size_t head = size_t(blockIdx.y) * length * HEAD;
    for (int i = threadIdx.x; i < QUERIES * 8; i += 128)
        copy_async16(&tile_q[i / 8][i % 8 * 8], q + head + (first + i / 8) * HEAD + i % 8 * 8);
    commit_group();
    wait_group<0>();
    __syncthreads();
    uint32_t fq[4][4];
    for (int i = 0; i < 4; i++) ldmatrix_x4(fq[i], &tile_q[warp_row + lane % 16][i * 16 + lane / 16 * 8]);
    float sum[8][4] = {}, most[2] = {-INFINITY, -INFINITY}, total[2] = {};
    int end = causal ? first + QUERIES : length;
    for (int key = 0; key < end; key += KEYS) {
        __syncthreads();
        for (int i = threadIdx.x; i < KEYS * 8; i += 128) {
            copy_async16(&tile_k[i / 8][i % 8 * 8], k + head + (key + i / 8) * HEAD + i % 8 * 8);
            copy_async16(&tile_v[i / 8][i % 8 * 8], v + head + (key + i / 8) * HEAD + i % 8 * 8);
        }
        commit_group();
        wait_group<0>();
        __syncthreads();
        float score[4][4] = {};
        for (int n = 0; n < 4; n += 2)
            for (int i = 0; i < 4; i++) {
                uint32_t fk[4];
                ldmatrix_x4(fk, &tile_k[n * 8 + lane % 8 + lane / 16 * 8][i * 16 + lane / 8 % 2 * 8]);
                mma_f16(score[n], fq[i], fk[0], fk[1]);
                mma_f16(score[n + 1], fq[i], fk[2], fk[3]);
            }
        float largest[2] = {most[0], most[1]};
        for (int n = 0; n < 4; n++)
            for (int e = 0; e < 4; e++) {
                int row = first + warp_row + lane / 4 + e / 2 * 8, col = key + n * 8 + lane % 4 * 2 + e % 2;
                score[n][e] = causal && col > row ? -INFINITY : score[n][e] * scale;
                largest[e / 2] = fmaxf(largest[e / 2], score[n][e]);
            }
        for (int h = 0; h < 2; h++) {
            largest[h] = row_max(largest[h]);
            float factor = exp2f(most[h] - largest[h]);
            most[h] = largest[h];
            total[h] *= factor;
            for (int n = 0; n < 8; n++) sum[n][h * 2] *= factor, sum[n][h * 2 + 1] *= factor;
        }
        for (int n = 0; n < 4; n++)
            for (int e = 0; e < 4; e++) {
                score[n][e] = exp2f(score[n][e] - most[e / 2]);
                total[e / 2] += score[n][e];
            }
        for (int i = 0; i < 2; i++) {
            uint32_t fp[4] = {pair(score[2 * i][0], score[2 * i][1]), pair(score[2 * i][2], score[2 * i][3]),
                              pair(score[2 * i + 1][0], score[2 * i + 1][1]),
                              pair(score[2 * i + 1][2], score[2 * i + 1][3])};
            for (int n = 0; n < 8; n += 2) {
                uint32_t fv[4];
                ldmatrix_x4_trans(fv, &tile_v[i * 16 + lane % 16][n * 8 + lane / 16 * 8]);
                mma_f16(sum[n], fp, fv[0], fv[1]);
                mma_f16(sum[n + 1], fp, fv[2], fv[3]);
            }
        }
    }
    for (int h = 0; h < 2; h++) {
        int row = first + warp_row + lane / 4 + h * 8;
        float all = row_sum(total[h]), inverse = 1.0f / all;
        for (int n = 0; n < 8; n++)
            *reinterpret_cast<uint32_t *>(out + head + row * HEAD + n * 8 + lane % 4 * 2) =
                pair(sum[n][h * 2] * inverse, sum[n][h * 2 + 1] * inverse);
        if (lane % 4 == 0) log_sum[blockIdx.y * length + row] = most[h] + log2f(all);
    }
}

// The plain way: one warp per query, f32, __expf and a division by approximation.
KERNEL attention_by_warp(const float *q, const float *k, const float *v, float *out, int length) {
    int lane = lane_id(), row = blockIdx.x * (blockDim.x / 32) + warp_id();
    if (row >= length) return;
    float2 query = reinterpret_cast<const float2 *>(q + row * HEAD)[lane], sum = {0, 0};
    float most = -INFINITY, total = 0;
    for (int key = 0; key <= row; key++) {
        float2 other = reinterpret_cast<const float2 *>(k + key * HEAD)[lane];
        float score = query.x * other.x + query.y * other.y;
        for (int step = 16; step; step /= 2) score += __shfl_xor_sync(~0u, score, step);
        score *= 0.125f;
        float largest = fmaxf(most, score), factor = __expf(most - largest), weight = __expf(score - largest);
        float2 value = reinterpret_cast<const float2 *>(v + key * HEAD)[lane];
        sum.x = sum.x * factor + weight * value.x;
        sum.y = sum.y * factor + weight * value.y;
        total = total * factor + weight;
        most = largest;
    }
    reinterpret_cast<float2 *>(out + row * HEAD)[lane] =
        make_float2(__fdividef(sum.x, total), __fdividef(sum.y, total));
}
