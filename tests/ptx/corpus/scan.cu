// Prefix sums, from a warp to a grid.
#include "common.cuh"

template <class T> __device__ T warp_scan(T x) {
    for (int step = 1; step < 32; step *= 2) {
        T before = __shfl_up_sync(~0u, x, step);
        if (lane_id() >= step) x += before;
    }
    return x;
}

KERNEL scan_warp(const float *x, float *y) { y[global_id()] = warp_scan(x[global_id()]); }

// Blelloch's scan in shared memory: up the tree and down again.  Two elements a thread.
KERNEL scan_tree(const int *x, int *y) {
    extern __shared__ int tree[];
    int t = threadIdx.x, n = blockDim.x * 2, base = blockIdx.x * n, step = 1;
    tree[2 * t] = x[base + 2 * t];
    tree[2 * t + 1] = x[base + 2 * t + 1];
    for (int half = n / 2; half > 0; half /= 2, step *= 2) {
        __syncthreads();
        if (t < half) tree[step * (2 * t + 2) - 1] += tree[step * (2 * t + 1) - 1];
    }
    if (t == 0) tree[n - 1] = 0;
    for (int half = 1; half < n; half *= 2) {
        step /= 2;
        __syncthreads();
        if (t < half) {
            int low = step * (2 * t + 1) - 1, high = step * (2 * t + 2) - 1, sum = tree[low];
            tree[low] = tree[high];
            tree[high] += sum;
        }
    }
    __syncthreads();
    y[base + 2 * t] = tree[2 * t];
    y[base + 2 * t + 1] = tree[2 * t + 1];
}

__device__ int block_scan(int x, int *total) {
    __shared__ int sums[32];
    int inside = warp_scan(x), lane = lane_id(), warp = warp_id();
    if (lane == 31) sums[warp] = inside;
    __syncthreads();
    if (warp == 0) sums[lane] = warp_scan(lane < blockDim.x / 32 ? sums[lane] : 0);
    __syncthreads();
    *total = sums[blockDim.x / 32 - 1];
    return inside + (warp ? sums[warp - 1] : 0);
}

// One pass over global memory: a block publishes its sum, then looks back at the blocks
// before it until one has published its prefix.  The block's number is a ticket, so that
// the blocks it waits for have started.  A state is flag << 32 | value; 1 sum, 2 prefix.
KERNEL scan_look_back(const int *x, int *y, volatile unsigned long long *states, unsigned *tickets, int n) {
    __shared__ unsigned ticket;
    __shared__ int before;
    if (threadIdx.x == 0) ticket = atomicAdd(tickets, 1);
    __syncthreads();
    int i = ticket * blockDim.x + threadIdx.x, total;
    int inside = block_scan(i < n ? x[i] : 0, &total);
    if (threadIdx.x == 0) {
        int sum = 0;
        if (ticket) {
            states[ticket] = 1ull << 32 | static_cast<unsigned>(total);
            for (int other = ticket - 1;;) {
                unsigned long long state = states[other];
                if (state >> 32 == 0) continue;
                sum += static_cast<int>(state);
                if (state >> 32 == 2) break;
                other--;
            }
        }
        states[ticket] = 2ull << 32 | static_cast<unsigned>(sum + total);
        before = sum;
    }
    __syncthreads();
    if (i < n) y[i] = before + inside;
}

// Sums that start again where a flag is set: pairs are scanned.
KERNEL scan_segmented(const float *x, const unsigned char *heads, float *y) {
    int i = global_id(), lane = lane_id(), head = heads[i];
    float sum = x[i];
    for (int step = 1; step < 32; step *= 2) {
        float before = __shfl_up_sync(~0u, sum, step);
        int flag = __shfl_up_sync(~0u, head, step);
        if (lane >= step) {
            if (!head) sum += before;
            head |= flag;
        }
    }
    y[i] = sum;
}

// Keep what is positive, in order: a block ranks its elements by ballot and popc.
KERNEL compact(const short *x, short *kept, int *count, int n) {
    __shared__ int starts[32];
    int base = 0;
    for (int first = 0; first < n; first += blockDim.x) {
        int i = first + threadIdx.x;
        bool keep = i < n && x[i] > 0;
        unsigned ballot = __ballot_sync(~0u, keep);
        if (lane_id() == 0) starts[warp_id()] = __popc(ballot);
        __syncthreads();
        int before = base;
        for (int w = 0; w < blockDim.x / 32; w++) {
            if (w < warp_id()) before += starts[w];
            base += starts[w];
        }
        if (keep) kept[before + __popc(ballot & ((1u << lane_id()) - 1))] = x[i];
        __syncthreads();
    }
    if (threadIdx.x == 0) *count = base;
}
