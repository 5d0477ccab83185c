// Sorting and searching.
#include "common.cuh"

// Bitonic sort of a block's keys, in place, in shared memory.
KERNEL sort_bitonic(float *keys) {
    extern __shared__ float line[];
    int t = threadIdx.x;
    line[t] = keys[global_id()];
    for (int size = 2; size <= blockDim.x; size *= 2)
        for (int stride = size / 2; stride; stride /= 2) {
            __syncthreads();
            int other = t ^ stride;
            if (other > t) {
                bool up = (t & size) == 0;
                float a = line[t], b = line[other];
                if ((a > b) == up) line[t] = b, line[other] = a;
            }
        }
    __syncthreads();
    keys[global_id()] = line[t];
}

// A warp sorts 32 pairs of 64-bit keys and values in registers.
KERNEL sort_warp_pairs(unsigned long long *keys, int *values) {
    unsigned lane = lane_id();
    unsigned long long key = keys[global_id()];
    int value = values[global_id()];
    for (unsigned size = 2; size <= 32; size *= 2)
        for (unsigned stride = size / 2; stride; stride /= 2) {
            unsigned long long key2 = __shfl_xor_sync(~0u, key, stride);
            int value2 = __shfl_xor_sync(~0u, value, stride);
            bool low = (lane & stride) == 0, up = (lane & size) == 0 || size == 32;
            bool take = low == up ? key2 < key : key2 > key;
            if (take) key = key2, value = value2;
        }
    keys[global_id()] = key;
    values[global_id()] = value;
}

// Stable radix sort of a block's keys, four bits at a time: match_any ranks equal digits
// within a warp, and counters in shared memory order the warps.
KERNEL sort_radix(const unsigned *keys, unsigned *sorted, int bits) {
    __shared__ unsigned line[256];
    __shared__ int counts[16][8], starts[16][8];
    int t = threadIdx.x, warp = warp_id(), lane = lane_id();
    unsigned key = keys[global_id()];
    for (int shift = 0; shift < bits; shift += 4) {
        if (t < 128) counts[t / 8][t % 8] = 0;
        __syncthreads();
        unsigned digit = key >> shift & 15, same = __match_any_sync(~0u, digit);
        int rank = __popc(same & ((1u << lane) - 1));
        if (rank == 0) counts[digit][warp] = __popc(same);
        __syncthreads();
        if (t == 0) {
            int sum = 0;
            for (int i = 0; i < 128; i++) {
                starts[i / 8][i % 8] = sum;
                sum += counts[i / 8][i % 8];
            }
        }
        __syncthreads();
        line[starts[digit][warp] + rank] = key;
        __syncthreads();
        key = line[t];
    }
    sorted[global_id()] = key;
}

// Merge two sorted lists: each thread finds its diagonal by binary search.
KERNEL merge_path(const int *a, const int *b, int *merged, int na, int nb, int each) {
    int diagonal = min(static_cast<int>(global_id()) * each, na + nb);
    int low = max(0, diagonal - nb), high = min(diagonal, na);
    while (low < high) {
        int middle = (low + high) / 2;
        if (a[middle] <= b[diagonal - 1 - middle])
            low = middle + 1;
        else
            high = middle;
    }
    int i = low, j = diagonal - low, end = min(diagonal + each, na + nb);
    for (int at = diagonal; at < end; at++) {
        bool from_a = j >= nb || (i < na && a[i] <= b[j]);
        merged[at] = from_a ? a[i++] : b[j++];
    }
}

// The k largest of each row, one after the other: a warp finds the largest that is left.
KERNEL top_k(const float *x, float *values, int *places, int width, int k) {
    const float *row = x + blockIdx.x * width;
    unsigned taken = 0;
    for (int round = 0; round < k; round++) {
        float best = -INFINITY;
        int place = width;
        for (int i = threadIdx.x, n = 0; i < width; i += 32, n++)
            if (!(taken >> n & 1) && row[i] > best) best = row[i], place = i;
        for (int step = 16; step; step /= 2) {
            float other = __shfl_xor_sync(~0u, best, step);
            int there = __shfl_xor_sync(~0u, place, step);
            if (other > best || (other == best && there < place)) best = other, place = there;
        }
        if (place % 32 == threadIdx.x) taken |= 1u << place / 32;
        if (threadIdx.x == 0) values[blockIdx.x * k + round] = best, places[blockIdx.x * k + round] = place;
    }
}
