// The lock that only threads with schedulers of their own survive: the lane that has the
// lock leaves the loop in which the other lanes of its warp still wait.
#include "common.cuh"

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
