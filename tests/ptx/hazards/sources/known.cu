// Bugs that were found late in public projects, and one false alarm.
#include "hopper.cuh"

// Generic stores, a barrier, a sparse product: silicon hid it for 29,000 runs.
KERNEL sparse_operands(const u32 *a, const u32 *b, const u32 *metadata, float *out)
{
    __shared__ alignas(128) u32 A[512], B[128];
    for (int i = 0; i < 4; i++)
        A[128 * i + threadIdx.x] = a[128 * i + threadIdx.x];
    B[threadIdx.x] = b[threadIdx.x];
    if (BUG == 0)
        fence_async();
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma_sparse(d, tile_of(A), tile_of(B, 128, 512), metadata[threadIdx.x]);
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// A block polls a flag with ordinary loads, then copies what the other block stored.
KERNEL polled_copy(u32 *data, u32 *flag, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    if (blockIdx.x == 0) {
        data[threadIdx.x] = 13 * threadIdx.x;
        __syncwarp();
        if (threadIdx.x == 0)
            store_release(flag, 1);
        return;
    }
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        while (load_acquire(flag) == 0) {}
        if (BUG == 0)
            asm volatile("fence.proxy.async.global;" ::: "memory");
        arrive_expect(&full, 128);
        load(tile, data, 128, &full);
    }
    __syncwarp();
    wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x];
}

// A bulk store reads a tile that half of the warps have not written yet.
KERNEL half_written(u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    tile[threadIdx.x] = 17 * threadIdx.x;
    fence_async();
    if (BUG == 0)
        __syncthreads();
    else
        __syncwarp();
    if (threadIdx.x == 0) {
        store(out, tile, 256);
        commit_stores();
        wait_read<0>();
    }
}

// Two warpgroups share B; one of them refills it while the other one may still read.
KERNEL shared_operand(const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(128) u16 A[2][1024], B[128];
    __shared__ u64 full[2];
    u32 group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        init(&full[0], 1);
        init(&full[1], 1);
        fence_init();
        arrive_expect(&full[0], 2 * A_BYTES + B_BYTES);
        load(A, a, 2 * A_BYTES, &full[0]);
        load(B, b, B_BYTES, &full[0]);
    }
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    for (u32 i = 0; i < 2; i++) {
        wait(&full[i], 0);
        wgmma_fence();
        wgmma(d, tile_of(A[group]), tile_of(B));
        wgmma_commit();
        wgmma_wait<0>();
        if (BUG == 0)
            __syncthreads();
        if (i == 0 && threadIdx.x == 0) {
            arrive_expect(&full[1], B_BYTES);
            load(B, b + 128, B_BYTES, &full[1]);
        }
    }
    put(out + 512 * group, d);
}

// Ordinary loads, then the next copy to the same place.
KERNEL refilled(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    __shared__ u64 full[3];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 3; i++)
            init(&full[i], 1);
        fence_init();
    }
    __syncthreads();
    for (int i = 0; i < 3; i++) {
        if (threadIdx.x == 0) {
            arrive_expect(&full[i], 256);
            load(tile, in + 64 * i, 256, &full[i]);
        }
        wait(&full[i], 0);
        out[64 * i + threadIdx.x] = get(&tile[63 - threadIdx.x]);
        if (BUG == 0)
            fence_async();
        if (BUG != 1)
            __syncthreads();
    }
}

// Bulk copies and mbarriers across warps in a loop: racecheck reports a hazard here.
KERNEL dynamic_loop(const u32 *in, u32 *out, int steps)
{
    __shared__ alignas(128) u32 tile[2][32];
    __shared__ u64 full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; s++) {
            init(&full[s], 1);
            init(&empty[s], 32);
        }
        fence_init();
    }
    __syncthreads();
    if (warp() == 0) {
        for (int i = 0; i < steps; i++) {
            wait(&empty[i & 1], (i >> 1 & 1) ^ 1);
            if (lane() == 0) {
                arrive_expect(&full[i & 1], 128);
                load(tile[i & 1], in + 32 * i, 128, &full[i & 1]);
            }
        }
    } else {
        for (int i = 0; i < steps; i++) {
            wait(&full[i & 1], i >> 1 & 1);
            out[32 * i + lane()] = tile[i & 1][lane()];
            arrive(&empty[i & 1]);
        }
    }
}
