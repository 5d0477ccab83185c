// Reductions, votes and matches: how threads of a warp and of a block agree.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include "common.cuh"

namespace cg = cooperative_groups;

KERNEL reduce_shuffle(const float *x, float *sums, int n) {
    float sum = 0;
    for (int i = global_id(); i < n; i += gridDim.x * blockDim.x) sum += x[i];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (lane_id() == 0) sums[global_id() / 32] = sum;
}

// The tree in shared memory, with unrolled last steps on volatile words.
KERNEL reduce_tree(const double *x, double *sums) {
    extern __shared__ double tree[];
    int t = threadIdx.x;
    tree[t] = x[global_id()];
    __syncthreads();
    for (int half = blockDim.x / 2; half > 16; half /= 2) {
        if (t < half) tree[t] += tree[t + half];
        __syncthreads();
    }
    if (t < 32) {
        volatile double *last = tree;
        for (int half = 16; half; half /= 2) {
            double other = t < half ? last[t + half] : 0;
            __syncwarp();
            if (t < half) last[t] = last[t] + other;
            __syncwarp();
        }
    }
    if (t == 0) sums[blockIdx.x] = tree[0];
}

// redux.sync for integers, over the lanes that are still in the loop.
KERNEL reduce_redux(const unsigned *x, unsigned *out) {
    unsigned value = x[global_id()], *to = out + global_id() / 32 * 8;
    unsigned sum = __reduce_add_sync(~0u, value), all = __reduce_and_sync(~0u, value);
    unsigned any = __reduce_or_sync(~0u, value), odd = __reduce_xor_sync(~0u, value);
    unsigned least = __reduce_min_sync(~0u, value), part = 0;
    int most = __reduce_max_sync(~0u, static_cast<int>(value));
    if (lane_id() % 3 == 1) part = __reduce_add_sync(0x92492492u, value & 0xffff);
    if (lane_id() == 1) {
        to[0] = sum, to[1] = all, to[2] = any, to[3] = odd, to[4] = least, to[5] = most, to[6] = part;
        to[7] = blockIdx.x;
    }
}

KERNEL votes(const int *x, unsigned *out) {
    int value = x[global_id()];
    unsigned *to = out + global_id() * 6, low, same, equal;
    int uniform = 0;
    to[0] = __ballot_sync(~0u, value & 1);
    to[1] = __all_sync(~0u, value > -900) | __any_sync(~0u, value > 900) << 1;
    same = __match_any_sync(~0u, value & 7);
    equal = __match_all_sync(~0u, value / 500, &uniform);
    to[2] = same, to[3] = equal | uniform;
    // The lanes of one branch only.
    if (value & 2) {
        low = __match_any_sync(__activemask(), static_cast<long long>(value & 12) << 40);
        to[4] = __popc(low) << 8 | (__ffs(low) - 1);
    } else
        to[4] = __activemask();
    to[5] = __fns(same, 0, 2);
}

KERNEL shuffles(const int *x, int *out) {
    int value = x[global_id()], lane = lane_id(), *to = out + global_id() * 6;
    to[0] = __shfl_sync(~0u, value, (lane * 7 + 3) & 31);
    to[1] = __shfl_up_sync(~0u, value, 3, 8);
    to[2] = __shfl_down_sync(~0u, value, 5, 16);
    to[3] = __shfl_xor_sync(~0u, value, 9, 32);
    to[4] = __shfl_sync(~0u, value, lane / 2 + 40, 4);
    long long both = __shfl_xor_sync(~0u, static_cast<long long>(value) << 20 | lane, 16);
    to[5] = static_cast<int>(both ^ both >> 32);
}

// The barriers that also reduce: bar.red.popc, .and, .or.
KERNEL barrier_reductions(const int *x, int *out) {
    int value = x[global_id()];
    int count = __syncthreads_count(value % 3 == 0);
    int all = __syncthreads_and(value != 5), any = __syncthreads_or(value == 7);
    if (threadIdx.x == blockDim.x - 1) {
        out[blockIdx.x * 3] = count;
        out[blockIdx.x * 3 + 1] = all != 0;
        out[blockIdx.x * 3 + 2] = any != 0;
    }
}

// The block that finishes last adds the sums of all blocks.
__device__ unsigned finished = 0;

KERNEL reduce_last_block(const int *x, long long *sums, long long *total, int n) {
    __shared__ long long parts[8];
    __shared__ bool last;
    long long sum = 0;
    for (int i = global_id(); i < n; i += gridDim.x * blockDim.x) sum += x[i];
    for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    if (lane_id() == 0) parts[warp_id()] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        sum = 0;
        for (int i = 0; i < blockDim.x / 32; i++) sum += parts[i];
        sums[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        sum = 0;
        for (int i = 0; i < gridDim.x; i++) sum += static_cast<volatile long long *>(sums)[i];
        *total = sum;
    }
}

// The largest value and the first place it stands at: both in one 64-bit atomic.
KERNEL argmax(const float *x, unsigned long long *best, int n) {
    for (int i = global_id(); i < n; i += gridDim.x * blockDim.x) {
        unsigned bits = __float_as_uint(x[i]), ordered = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        atomicMax(best, static_cast<unsigned long long>(ordered) << 32 | (0xffffffffu - i));
    }
}

// Cooperative groups of 32, 8 and of lanes that share a label.
KERNEL cooperative(const int *x, int *out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(warp);
    int value = x[block.group_index().x * block.size() + block.thread_rank()];
    int *to = out + (block.group_index().x * block.size() + block.thread_rank()) * 6;
    to[0] = cg::reduce(tile, value, cg::plus<int>());
    to[1] = cg::reduce(warp, value, cg::greater<int>());
    to[2] = cg::inclusive_scan(tile, value);
    to[3] = cg::exclusive_scan(warp, value, cg::bit_xor<int>());
    auto same = cg::labeled_partition(warp, value & 3);
    to[4] = cg::reduce(same, value, cg::less<int>());
    to[5] = 0;
    if (value % 5 < 2) {
        cg::coalesced_group active = cg::coalesced_threads();
        to[5] = active.size() << 8 | active.thread_rank();
        to[5] += active.shfl(value, 0) << 16;
    }
    block.sync();
}

// Smallest, largest, and how many are no numbers: fminf and fmaxf pass NaN by.
KERNEL extremes(const float *x, float *out, int n) {
    float least = INFINITY, most = -INFINITY;
    int missing = 0;
    for (int i = threadIdx.x; i < n; i += 32) {
        least = fminf(least, x[i]);
        most = fmaxf(most, x[i]);
        missing += isnan(x[i]);
    }
    for (int step = 16; step; step /= 2) {
        least = fminf(least, __shfl_xor_sync(~0u, least, step));
        most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
    }
    missing = __reduce_add_sync(~0u, missing);
    if (threadIdx.x == 0) out[0] = least, out[1] = most, out[2] = missing;
}
