// Threads that wait for one another: locks, and barriers with names.
#include <cuda_fp16.h>

#include "common.cuh"

// Every lane takes the same lock in turn, which needs lanes that go forward alone.
KERNEL lock_lanes(const int *x, int *sum, int *most) {
    __shared__ int lock, shared_sum;
    if (threadIdx.x == 0) lock = 0, shared_sum = 0;
    __syncthreads();
    for (bool done = false; !done;) {
        if (atomicCAS(&lock, 0, 1) == 0) {
            __threadfence_block();
            volatile int *plain = &shared_sum;
            *plain = *plain + x[global_id()];
            __threadfence_block();
            atomicExch(&lock, 0);
            done = true;
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) sum[blockIdx.x] = shared_sum, atomicMax(most, shared_sum);
}

// A lock between blocks, in the words of acquire and release, with backing off.
KERNEL lock_blocks(const int *x, int *lock, int *record) {
    if (threadIdx.x == 0) {
        unsigned pause = 8;
        int seen = 1;
        while (true) {
            asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(seen) : "l"(lock) : "memory");
            if (!seen) break;
            __nanosleep(pause);
            pause = min(pause * 2, 256u);
        }
    }
    __syncthreads();
    record[threadIdx.x] = record[threadIdx.x] + x[global_id()];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], 0;" ::"l"(lock) : "memory");
}

// A chain of blocks: each waits for the flag of the one before it (by ticket).
KERNEL chain(const float *x, float *y, int *flag, int *tickets) {
    __shared__ int ticket;
    if (threadIdx.x == 0) {
        ticket = atomicAdd(tickets, 1);
        int seen;
        do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        while (seen != ticket);
    }
    __syncthreads();
    int i = ticket * blockDim.x + threadIdx.x;
    float before = ticket ? __ldcg(&y[i - blockDim.x]) : 1.0f;
    y[i] = before * 0.75f + x[i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) asm volatile("red.release.gpu.global.add.s32 [%0], 1;" ::"l"(flag) : "memory");
}

// Producer and consumer warps: barrier 1 + slot says "full", 3 + slot says "empty".
// Two producers fill, two consumers use; each barrier counts all 128 threads.
KERNEL producer_consumer(const float *x, float *y, int rounds) {
    __shared__ float ring[2][64];
    int t = threadIdx.x % 64;
    if (threadIdx.x < 64) {
        for (int i = 0; i < rounds; i++) {
            int slot = i % 2;
            if (i >= 2) asm volatile("bar.sync %0, 128;" ::"r"(3 + slot) : "memory");
            ring[slot][t] = x[(blockIdx.x * rounds + i) * 64 + t] * 2.0f;
            asm volatile("bar.arrive %0, 128;" ::"r"(1 + slot) : "memory");
        }
    } else {
        float sum = 0;
        for (int i = 0; i < rounds; i++) {
            int slot = i % 2;
            asm volatile("bar.sync %0, 128;" ::"r"(1 + slot) : "memory");
            sum += ring[slot][t ^ 33];
            if (i + 2 < rounds) asm volatile("bar.arrive %0, 128;" ::"r"(3 + slot) : "memory");
        }
        y[blockIdx.x * 64 + t] = sum;
    }
}

// Halves of a block with barriers of their own, and reductions on them.
KERNEL half_blocks(const int *x, unsigned *out) {
    __shared__ int line[256];
    int side = threadIdx.x / 128, t = threadIdx.x % 128, value = x[global_id()];
    unsigned count, any;
    for (int round = 0; round < 3 + side * 4; round++) {
        line[threadIdx.x] = value;
        asm volatile("bar.sync %0, 128;" ::"r"(5 + side) : "memory");
        value += line[side * 128 + (t + 1 + round) % 128];
        asm volatile("barrier.sync %0, 128;" ::"r"(5 + side) : "memory");
    }
    asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 0; bar.red.popc.u32 %0, %2, 128, p; }"
                 : "=r"(count)
                 : "r"(value), "r"(7 + side)
                 : "memory");
    asm volatile("{ .reg .pred p, q; setp.eq.s32 p, %1, 77; bar.red.or.pred q, %2, 128, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(any)
                 : "r"(value & 127), "r"(7 + side)
                 : "memory");
    out[global_id()] = value * 512 + count * 2 + any;
}

// Lanes of a warp hand a value on in an order of their own, with __syncwarp of subsets.
KERNEL subsets(const int *x, int *y) {
    __shared__ int line[64];
    int lane = lane_id(), value = x[global_id()];
    line[threadIdx.x] = value;
    int *mine = line + warp_id() * 32;
    if (lane < 11) {
        __syncwarp(0x7ffu);
        value += mine[(lane + 1) % 11];
        __syncwarp(0x7ffu);
        mine[lane] = value;
    } else if (lane < 30) {
        for (int i = 0; i < lane % 4; i++) value = value * 3 + 1;
        __syncwarp(0x3ffff800u);
        value += __shfl_sync(0x3ffff800u, value, 11 + (lane * 5) % 19);
        mine[lane] = value;
    }
    __syncwarp();
    y[global_id()] = mine[31 - lane] ^ value;
}
