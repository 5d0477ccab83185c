// Bugs that shipped, each beside its repair (BUG 0).
#include "hopper.cuh"

DEVICE void ready(u64 *bar, u32 count = 1)
{
    if (threadIdx.x == 0) {
        init(bar, count);
        fence_init();
    }
    __syncthreads();
}

// 1. Generic stores, a barrier, a bulk store.
KERNEL stored_tile(u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    if (BUG == 2) // too early
        fence_async();
    tile[threadIdx.x] = 3 * threadIdx.x;
    if (BUG == 0)
        fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        store(out, tile, 256);
        commit_stores();
        wait_stores<0>();
    }
}

// 2. Generic stores, a barrier, wgmma.
KERNEL written_operands(const u32 *a, const u32 *b, float *out)
{
    __shared__ alignas(128) u32 A[512], B[64];
    for (int i = 0; i < 4; i++)
        A[128 * i + threadIdx.x] = a[128 * i + threadIdx.x];
    if (threadIdx.x < 64)
        B[threadIdx.x] = b[threadIdx.x];
    if (BUG == 0 || (BUG == 2 && threadIdx.x == 0)) // 2: one thread fences for itself
        fence_async();
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma(d, tile_of(A), tile_of(B));
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// 3. The destination of a copy is read before any wait.
KERNEL early_read(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    ready(&full);
    if (threadIdx.x == 0) {
        arrive_expect(&full, 128);
        load(tile, in, 128, &full);
    }
    __syncwarp();
    if (BUG == 0)
        wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x];
    if (BUG != 0)
        wait(&full, 0);
}

// 4. Two copies on two mbarriers; the order of copies is taken for granted.
KERNEL other_barrier(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[2][32];
    __shared__ u64 full[2];
    if (threadIdx.x == 0)
        init(&full[1], 1);
    ready(&full[0]);
    if (threadIdx.x == 0)
        for (int s = 0; s < 2; s++) {
            arrive_expect(&full[s], 128);
            load(tile[s], in + 32 * s, 128, &full[s]);
        }
    __syncwarp();
    wait(&full[1], 0);
    if (BUG == 0)
        wait(&full[0], 0);
    out[threadIdx.x] = tile[0][threadIdx.x] + tile[1][threadIdx.x];
    if (BUG != 0)
        wait(&full[0], 0);
}

// 5. A wrong parity: the phase before satisfies the wait.
KERNEL wrong_parity(const u32 *in, u32 *out, int steps)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    ready(&full);
    u32 sum = 0;
    for (int i = 0; i < steps; i++) {
        if (threadIdx.x == 0) {
            arrive_expect(&full, 128);
            load(tile, in + 32 * i, 128, &full);
        }
        __syncwarp();
        wait(&full, BUG == 0 ? i & 1 : BUG == 1 ? (i & 1) ^ 1 : 0);
        sum = 2 * sum + tile[threadIdx.x];
        fence_async();
        __syncwarp();
        if (BUG == 1)
            wait(&full, i & 1);
    }
    out[threadIdx.x] = sum;
}

// 6. A stage is released before wgmma.wait_group, or with too large a number.
KERNEL early_release(const u16 *a, const u16 *b, float *out, int steps)
{
    __shared__ alignas(128) u16 A[2][1024], B[2][128];
    __shared__ u64 full[2], empty[2];
    if (threadIdx.x == 0) {
        init(&full[1], 1);
        init(&empty[0], 1);
        init(&empty[1], 1);
    }
    ready(&full[0]);
    if (threadIdx.x == 128) {
        for (int i = 0; i < steps; i++) {
            int s = i & 1;
            wait(&empty[s], (i >> 1 & 1) ^ 1);
            arrive_expect(&full[s], A_BYTES + B_BYTES);
            load(A[s], a + 1024 * i, A_BYTES, &full[s]);
            load(B[s], b + 128 * i, B_BYTES, &full[s]);
        }
    } else if (threadIdx.x < 128) {
        float d[4] = {0, 0, 0, 0};
        for (int i = 0; i < steps; i++) {
            int s = i & 1;
            wait(&full[s], i >> 1 & 1);
            wgmma_fence();
            wgmma(d, tile_of(A[s]), tile_of(B[s]));
            wgmma_commit();
            if (BUG == 1 && threadIdx.x == 0)
                arrive(&empty[s]);
            if (BUG == 2)
                wgmma_wait<1>();
            else
                wgmma_wait<0>();
            if (BUG != 1 && threadIdx.x == 0)
                arrive(&empty[s]);
        }
        wgmma_wait<0>();
        put(out, d);
    }
}

// 7. Two buffers, but three stores may be in flight.
KERNEL store_depth(u32 *out, int steps)
{
    __shared__ alignas(128) u32 tile[2][32];
    for (int i = 0; i < steps; i++) {
        if (threadIdx.x == 0)
            wait_read<BUG ? 2 : 1>();
        __syncthreads();
        tile[i & 1][threadIdx.x] = 100 * i + threadIdx.x;
        fence_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            store(out + 32 * i, tile[i & 1], 128);
            commit_stores();
        }
    }
    if (threadIdx.x == 0)
        wait_read<0>();
}

// 8. The thread that stores waits; the others write the buffer again without a barrier.
KERNEL lonely_wait(u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    for (u32 i = 0; i < 2; i++) {
        tile[threadIdx.x] = 1000 * i + threadIdx.x;
        fence_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            store(out + 64 * i, tile, 256);
            commit_stores();
            wait_read<0>();
        }
        if (BUG == 0)
            __syncthreads();
    }
}

// 9. One thread stores, another one commits and waits: its groups are empty.
KERNEL other_group(u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    for (u32 i = 0; i < 2; i++) {
        tile[threadIdx.x] = 500 * i + threadIdx.x;
        fence_async();
        __syncthreads();
        if (threadIdx.x == 0) {
            store(out + 64 * i, tile, 256);
            if (BUG == 0 || BUG == 2)
                commit_stores();
            if (BUG == 0)
                wait_read<0>();
        }
        if (BUG != 0 && threadIdx.x == 32) {
            commit_stores();
            wait_read<0>();
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        commit_stores();
        wait_read<0>();
    }
}

// 10. All lanes write, one lane arrives, nothing joins the lanes before.
KERNEL elected_arrive(u32 *out)
{
    __shared__ u32 tile[32];
    __shared__ u64 full;
    ready(&full);
    if (warp() == 0) {
        tile[lane()] = 11 * lane();
        if (BUG == 0)
            __syncwarp();
        if (elect())
            arrive(&full);
    } else {
        wait(&full, 0);
        out[lane()] = tile[31 - lane()];
    }
}

// 11. Too many or too few bytes expected; a wrong number of arrivals; one too many.
KERNEL counts(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    ready(&full, BUG == 3 ? 2 : 1);
    if (threadIdx.x == 0) {
        arrive_expect(&full, BUG == 1 ? 144 : BUG == 2 ? 112 : 128);
        if (BUG == 4)
            arrive(&full);
        load(tile, in, 128, &full);
    }
    __syncwarp();
    wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x] + 4;
}

// 12. Two copies to one buffer on two mbarriers, the second before the first is there.
KERNEL two_loads(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full[2];
    if (threadIdx.x == 0)
        init(&full[1], 1);
    ready(&full[0]);
    if (threadIdx.x == 0) {
        arrive_expect(&full[0], 128);
        load(tile, in, 128, &full[0]);
        if (BUG == 0)
            wait(&full[0], 0);
        arrive_expect(&full[1], 128);
        load(tile, in + 32, 128, &full[1]);
    }
    __syncwarp();
    if (BUG != 0)
        wait(&full[0], 0);
    wait(&full[1], 0);
    out[threadIdx.x] = tile[threadIdx.x];
}

// 13. cp.async: its own thread waits, others read without a barrier; or a wrong number.
KERNEL copied(const u32 *in, u32 *out)
{
    __shared__ alignas(16) u32 tile[2][64];
    copy4(&tile[0][threadIdx.x], in + threadIdx.x);
    commit_copies();
    copy4(&tile[1][threadIdx.x], in + 64 + threadIdx.x);
    commit_copies();
    if (BUG == 2)
        wait_copies<1>();
    else
        wait_copies<0>();
    if (BUG != 1)
        __syncthreads();
    out[threadIdx.x] = tile[0][63 - threadIdx.x] + tile[1][threadIdx.x ^ 32];
    wait_copies<0>();
}

// 14. Data published by a relaxed arrival at the cluster's barrier.
KERNEL __cluster_dims__(2, 1, 1) relaxed_arrival(u32 *out)
{
    __shared__ u32 tile[32];
    cluster_arrive();
    cluster_wait(); // both blocks are there
    store_remote(remote(&tile[threadIdx.x], rank() ^ 1), 10 * rank() + threadIdx.x);
    if (BUG == 0)
        fence_cluster();
    cluster_arrive_relaxed();
    cluster_wait();
    out[32 * blockIdx.x + threadIdx.x] = tile[31 - threadIdx.x];
    cluster_arrive();
    cluster_wait();
}

// 15. A flag is set after wait_group.read: the stored tile may not be there yet.
KERNEL early_flag(u32 *data, u32 *flag, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    if (blockIdx.x == 0) {
        tile[threadIdx.x] = 8 * threadIdx.x;
        fence_async();
        __syncwarp();
        if (threadIdx.x == 0) {
            store(data, tile, 128);
            commit_stores();
            if (BUG == 0)
                wait_stores<0>();
            else
                wait_read<0>();
            store_release(flag, 1);
        }
    } else {
        if (threadIdx.x == 0)
            while (load_acquire(flag) == 0) {}
        __syncwarp();
        out[threadIdx.x] = data[threadIdx.x];
    }
}

// 17. A store into the bytes of a live mbarrier.
KERNEL overwritten_barrier(const u32 *in, u32 *out)
{
    __shared__ struct { alignas(128) u32 tile[32]; u64 full; } s;
    ready(&s.full);
    if (threadIdx.x == 0) {
        arrive_expect(&s.full, 128);
        load(s.tile, in, 128, &s.full);
    }
    __syncwarp();
    wait(&s.full, 0);
    out[threadIdx.x] = s.tile[threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0)
        put(s.tile + (BUG == 0 ? 31 : 32), 1); // 32: one word too far
    __syncwarp();
    if (BUG == 2 && threadIdx.x == 0)
        arrive(&s.full);
    out[32 + threadIdx.x] = s.tile[threadIdx.x] + (BUG != 0 && try_wait(&s.full, 0));
}

// 17. An arrival at the mbarrier of a block that has exited.
KERNEL __cluster_dims__(2, 1, 1) exited_block(u32 *out, u32 *flag)
{
    __shared__ u64 full;
    ready(&full, 32);
    cluster_arrive();
    cluster_wait();
    if (rank() == 1) {
        if (BUG != 0 && threadIdx.x == 0) // long after block 0 has left
            while (load_acquire(flag) == 0) {}
        __syncwarp();
        arrive_remote(remote(&full, 0));
    } else {
        if (BUG == 0)
            wait(&full, 0);
        else if (threadIdx.x == 0)
            store_release(flag, 1);
        out[threadIdx.x] = 5 * threadIdx.x;
    }
}

// Two warps store the same matrices to the same place: as long as they are the same.
KERNEL replicated(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[128];
    u32 more = BUG == 1 && warp() == 1;
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(at(tile + 4 * lane())), "r"(in[lane()]), "r"(in[lane() + 32]), "r"(in[lane() + 64]),
                 "r"(in[lane() + 96] + more) : "memory");
    __syncthreads();
    out[threadIdx.x] = get(&tile[threadIdx.x]) + get(&tile[64 + threadIdx.x]);
}
