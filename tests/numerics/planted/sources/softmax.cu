// Softmax and attention: exponentials that overflow, rows without a key, padding that is read.
#include <cuda_fp16.h>

#include "planted.cuh"

// One block of 128 threads for each row.
KERNEL softmax_unshifted(const float *x, float *y, int columns)
{
    __shared__ float four[4];
    const float *row = x + blockIdx.x * columns;
    float *out = y + blockIdx.x * columns;
    float most = 0, total = 0;
#if !BUG
    most = -INFINITY;
    for (int i = threadIdx.x; i < columns; i += 128) most = fmaxf(most, row[i]);
    most = block_max(most, four);
#endif
    for (int i = threadIdx.x; i < columns; i += 128) {
        float power = exp2f(row[i] - most);
        out[i] = power;
        total += power;
    }
    total = block_sum(total, four);
    for (int i = threadIdx.x; i < columns; i += 128)
        out[i] = out[i] / total;
}

// One warp for each row; a key that is not seen has the score -inf.
KERNEL softmax_masked(const float *score, const int *seen, float *y)
{
    int row = blockIdx.x * 4 + threadIdx.x / 32, i = row * 32 + threadIdx.x % 32;
    float mine = seen[i] ? score[i] : -INFINITY;
    float most = warp_max(mine);
#if !BUG
    most = most == -INFINITY ? 0.0f : most;
#endif
    float shifted = mine - most;
    float power = exp2f(shifted);
    float total = warp_sum(power);
#if !BUG
    total = total == 0.0f ? 1.0f : total;
#endif
    y[i] = power / total;
}

// One query for each warp, online softmax over blocks of keys; a lane has one of 32 features.
KERNEL decode(const float *q, const float *k, const float *v, const int *lengths, float *out)
{
    int query = blockIdx.x, lane = threadIdx.x;
    float mine = q[query * 32 + lane], most = -1e30f, total = 0, sum = 0;
    for (int key = 0; key < lengths[query]; key++) {
        float score = warp_sum(mine * k[key * 32 + lane]);
        float higher = fmaxf(most, score);
        float fade = exp2f(most - higher), weight = exp2f(score - higher);
        total = total * fade + weight;
        sum = sum * fade + weight * v[key * 32 + lane];
        most = higher;
    }
#if BUG
    out[query * 32 + lane] = sum / total;
#else
    out[query * 32 + lane] = total > 0 ? sum / total : 0.0f;
#endif
}

// Weights of keys past the length are zero; what the cache holds there is left from others.
KERNEL padded_values(const float *weight, const float *cache, float *out, int length, int padded)
{
    __shared__ float tile[32][33];
    float sum = 0;
    int end = BUG ? padded : (length + 31) / 32 * 32;
    for (int first = 0; first < end; first += 32) {
        for (int i = 0; i < 32; i++)
            tile[i][threadIdx.x] = BUG || first + i < length ? cache[(first + i) * 32 + threadIdx.x] : 0.0f;
        __syncwarp();
        for (int i = 0; i < 32; i++) {
            float share = first + i < length ? weight[first + i] : 0.0f;
            sum = fmaf(share, tile[i][threadIdx.x], sum);
        }
        __syncwarp();
    }
    out[threadIdx.x] = sum;
}

// The sum of the logarithms of n weights; the workspace has room for 128, and n are written.
KERNEL workspace_tail(const float *workspace, float *y, int n)
{
    __shared__ float four[4];
    float weight = 1.0f;
#if BUG
    weight = workspace[threadIdx.x];
#else
    if (threadIdx.x < n) weight = workspace[threadIdx.x];
#endif
    float share = log2f(weight);
    float sum = block_sum(share, four);
    if (threadIdx.x == 0) *y = sum;
}

DEVICE void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// 16 queries and 8 keys of 64 features.  The scores are kept as halves before they are scaled.
KERNEL half_logits(const uint32_t *q, const uint32_t *k, float *y, float scale)
{
    int group = threadIdx.x / 4, within = threadIdx.x % 4;
    float d[4] = {};
    for (int i = 0; i < 4; i++) {
        uint32_t a[4], b[2];
        a[0] = q[group * 32 + i * 8 + within], a[1] = q[(group + 8) * 32 + i * 8 + within];
        a[2] = q[group * 32 + i * 8 + within + 4], a[3] = q[(group + 8) * 32 + i * 8 + within + 4];
        b[0] = k[group * 32 + i * 8 + within], b[1] = k[group * 32 + i * 8 + within + 4];
        mma_f16(d, a, b);
    }
    for (int half_row = 0; half_row < 2; half_row++) {
        float score[2], most = -INFINITY, total = 0;
        for (int i = 0; i < 2; i++) {
            float logit = d[half_row * 2 + i];
#if BUG
            half kept = __float2half_rn(logit);
            score[i] = __half2float(kept) * scale;
#else
            half kept = __float2half_rn(logit * scale);
            score[i] = __half2float(kept);
#endif
            most = fmaxf(most, score[i]);
        }
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
        for (int i = 0; i < 2; i++) {
            float shifted = score[i] - most;
            score[i] = exp2f(shifted);
            total += score[i];
        }
        total += __shfl_xor_sync(~0u, total, 1);
        total += __shfl_xor_sync(~0u, total, 2);
        for (int i = 0; i < 2; i++)
            y[(group + half_row * 8) * 8 + within * 2 + i] = score[i] / total;
    }
}
