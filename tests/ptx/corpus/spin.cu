// Waiting that hangs where lanes of a warp cannot go forward alone, or where a barrier
// waits for threads that have returned.
#include "common.cuh"

// The lane that has the lock leaves the loop in which the other lanes still wait.
KERNEL lock_spin(const int *x, int *sum) {
    __shared__ int lock, total;
    if (threadIdx.x == 0) lock = 0, total = 0;
    __syncthreads();
    while (atomicCAS(&lock, 0, 1) != 0) __nanosleep(20);
    volatile int *plain = &total;
    *plain = *plain * 1 + x[global_id()];
    __threadfence_block();
    atomicExch(&lock, 0);
    __syncthreads();
    if (threadIdx.x == 0) sum[blockIdx.x] = total;
}

// Lane 31 waits for lane 30, and so on down to lane 0: a word is handed through a warp.
KERNEL hand_on(const int *x, int *y) {
    __shared__ volatile int words[33];
    int lane = threadIdx.x;
    words[lane + 1] = -1;
    if (lane == 0) words[0] = 7;
    __syncwarp();
    while (words[lane] < 0) {
    }
    words[lane + 1] = (words[lane] * 5 + x[lane]) & 0xffff;
    __syncwarp();
    y[lane] = words[lane + 1];
}

// Threads that have returned no longer count at a barrier: some lanes, then whole warps.
KERNEL exits(const int *x, int *y, int n) {
    __shared__ int line[256];
    int t = threadIdx.x;
    line[t] = 0;
    __syncthreads();
    if (t % 7 == 3 || t >= n) return;
    line[t] = x[global_id()];
    __syncthreads();
    int sum = line[(t + 1) % 256] - line[(t + 255) % 256];
    if (t / 32 == 1) return;
    __syncthreads();
    line[t] = sum;
    __syncthreads();
    y[global_id()] = line[t ^ 8] + sum;
}
