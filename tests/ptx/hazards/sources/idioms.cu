// Seventeen idioms of shipped kernels that are right: nothing may be reported.
#include "hopper.cuh"

// 1. One lane waits for a copy; after __syncwarp all lanes read.
KERNEL elected_wait(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        arrive_expect(&full, 128);
        load(tile, in, 128, &full);
    }
    if (warp() == 1) {
        if (lane() == 0)
            wait(&full, 0);
        __syncwarp();
        out[lane()] = tile[lane()] + 1;
    }
}

// 1. The same with a flag in global memory.
KERNEL elected_flag(u32 *data, u32 *flag, u32 *out)
{
    if (blockIdx.x == 0) {
        data[lane()] = lane() * lane();
        __syncwarp();
        if (lane() == 0)
            store_release(flag, 1);
    } else {
        if (lane() == 0)
            while (load_acquire(flag) == 0) {}
        __syncwarp();
        out[lane()] = data[lane()];
    }
}

// 2. The producer's first wait is for the phase before the first one, which succeeds.
KERNEL first_wait(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full, empty;
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&empty, 1);
        fence_init();
    }
    __syncthreads();
    for (u32 i = 0; i < 3; i++) {
        if (threadIdx.x == 32) {
            wait(&empty, (i & 1) ^ 1);
            arrive_expect(&full, 128);
            load(tile, in + 32 * i, 128, &full);
        }
        if (warp() == 0) {
            wait(&full, i & 1);
            out[32 * i + lane()] = tile[lane()];
            __syncwarp();
            if (lane() == 0)
                arrive(&empty);
        }
    }
}

// 3. A stage that TMA writes and wgmma reads is used again after the consumers arrived.
KERNEL ring_wgmma(const u16 *a, const u16 *b, float *out, int steps)
{
    __shared__ alignas(128) u16 A[2][1024], B[2][128];
    __shared__ u64 full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; s++) {
            init(&full[s], 1);
            init(&empty[s], 128);
        }
        fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 128) {
        for (int i = 0; i < steps; i++) {
            int s = i & 1, phase = i >> 1 & 1;
            wait(&empty[s], phase ^ 1);
            arrive_expect(&full[s], A_BYTES + B_BYTES);
            load(A[s], a + 1024 * i, A_BYTES, &full[s]);
            load(B[s], b + 128 * i, B_BYTES, &full[s]);
        }
    } else if (threadIdx.x < 128) {
        float d[4] = {0, 0, 0, 0};
        for (int i = 0; i < steps; i++) {
            int s = i & 1, phase = i >> 1 & 1;
            wait(&full[s], phase);
            wgmma_fence();
            wgmma(d, tile_of(A[s]), tile_of(B[s]));
            wgmma_commit();
            wgmma_wait<0>();
            arrive(&empty[s]);
        }
        put(out, d);
    }
}

// 4. The same with ordinary loads: no fence between reading and the next copy.
KERNEL ring_loads(const u32 *in, u32 *out, int steps)
{
    __shared__ alignas(128) u32 tile[2][64];
    __shared__ u64 full[2], empty[2];
    if (threadIdx.x == 0) {
        for (int s = 0; s < 2; s++) {
            init(&full[s], 1);
            init(&empty[s], 2);
        }
        fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 64) {
        for (int i = 0; i < steps; i++) {
            int s = i & 1;
            wait(&empty[s], (i >> 1 & 1) ^ 1);
            arrive_expect(&full[s], 256);
            load(tile[s], in + 64 * i, 256, &full[s]);
        }
    } else if (threadIdx.x < 64) {
        u32 sum = 0;
        for (int i = 0; i < steps; i++) {
            int s = i & 1;
            wait(&full[s], i >> 1 & 1);
            sum = 3 * sum + tile[s][63 - threadIdx.x];
            __syncwarp();
            if (lane() == 0)
                arrive(&empty[s]);
        }
        out[threadIdx.x] = sum;
    }
}

// 4. The same with ldmatrix.
KERNEL ring_ldmatrix(const u32 *in, u32 *out, int steps)
{
    __shared__ alignas(128) u32 tile[128];
    __shared__ u64 full, empty;
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&empty, 1);
        fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 32) {
        for (int i = 0; i < steps; i++) {
            wait(&empty, (i & 1) ^ 1);
            arrive_expect(&full, 512);
            load(tile, in + 128 * i, 512, &full);
        }
    } else if (warp() == 0) {
        u32 sum = 0;
        for (int i = 0; i < steps; i++) {
            u32 r[4];
            wait(&full, i & 1);
            __syncwarp();
            asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                         : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at(tile + 4 * lane())) : "memory");
            sum = 5 * sum + r[0] + r[1] * 3 + r[2] * 7 + r[3] * 11;
            __syncwarp();
            if (lane() == 0)
                arrive(&empty);
        }
        out[lane()] = sum;
    }
}

// 5. The copy is issued before its bytes are expected.
KERNEL copy_before_expect(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        load(tile, in, 128, &full);
        arrive_expect(&full, 128);
    }
    __syncthreads();
    wait(&full, 0);
    out[threadIdx.x] = tile[threadIdx.x] ^ 5;
}

// 6. Several copies on one mbarrier, with one expect_tx.
KERNEL copies_one_barrier(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[4][32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, 512);
        for (int i = 0; i < 4; i++)
            load(tile[i], in + 32 * (3 - i), 128, &full);
    }
    __syncthreads();
    wait(&full, 0);
    for (int i = 0; i < 4; i++)
        out[32 * i + threadIdx.x] = tile[i][threadIdx.x];
}

// 7. The writers fence and arrive; the storing warp synchronises, one lane stores.
KERNEL epilogue(u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    if (threadIdx.x < 64) {
        tile[threadIdx.x] = 7 * threadIdx.x;
        fence_async_shared();
        bar_arrive(1, 96);
    } else {
        bar_sync(1, 96);
        if (elect()) {
            store(out, tile, 256);
            commit_stores();
            wait_read<0>();
        }
    }
}

// 8. Only the lane that stores has a fence, after the barrier.
KERNEL fence_by_issuer(u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    tile[threadIdx.x] = 9 * threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        fence_async_shared();
        store(out, tile, 256);
        commit_stores();
        wait_read<0>();
    }
}

// 9. Two buffers, and wait_group.read 1 before one of them is written again.
KERNEL store_ring(u32 *out, int steps)
{
    __shared__ alignas(128) u32 tile[2][64];
    for (int i = 0; i < steps; i++) {
        if (threadIdx.x == 0)
            wait_read<1>();
        bar_sync(2, 64);
        tile[i & 1][threadIdx.x] = 100 * i + threadIdx.x;
        fence_async_shared();
        bar_sync(2, 64);
        if (threadIdx.x == 0) {
            store(out + 64 * i, tile[i & 1], 256);
            commit_stores();
        }
    }
    if (threadIdx.x == 0)
        wait_read<0>();
}

// 10. Products chained without a fence; wait_group 1, then the stage before is released.
KERNEL wgmma_chain(const u16 *a, const u16 *b, float *out, int steps)
{
    __shared__ alignas(128) u16 A[3][1024], B[3][128];
    __shared__ u64 full[3], empty[3];
    if (threadIdx.x == 0) {
        for (int s = 0; s < 3; s++) {
            init(&full[s], 1);
            init(&empty[s], 1);
        }
        fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 128) {
        for (int i = 0; i < steps; i++) {
            int s = i % 3;
            wait(&empty[s], (i / 3 & 1) ^ 1);
            arrive_expect(&full[s], A_BYTES + B_BYTES);
            load(A[s], a + 1024 * i, A_BYTES, &full[s]);
            load(B[s], b + 128 * i, B_BYTES, &full[s]);
        }
    } else if (threadIdx.x < 128) {
        float d[4] = {0, 0, 0, 0};
        wait(&full[0], 0);
        wgmma_fence();
        wgmma(d, tile_of(A[0]), tile_of(B[0]));
        wgmma_commit();
        for (int i = 1; i < steps; i++) {
            int s = i % 3;
            wait(&full[s], i / 3 & 1);
            wgmma(d, tile_of(A[s]), tile_of(B[s]));
            wgmma_commit();
            wgmma_wait<1>();
            if (threadIdx.x == 0)
                arrive(&empty[(i - 1) % 3]);
        }
        wgmma_wait<0>();
        put(out, d);
    }
}

// 11. Empty assembly around the accumulators tells the compiler not to move them.
KERNEL fence_operand(const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(128) u16 A[1024], B[128];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, A_BYTES + B_BYTES);
        load(A, a, A_BYTES, &full);
        load(B, b, B_BYTES, &full);
    }
    __syncthreads();
    float d[4] = {1, 2, 3, 4};
    wait(&full, 0);
    for (int i = 0; i < 4; i++)
        asm volatile("" : "+f"(d[i])::"memory");
    wgmma_fence();
    wgmma(d, tile_of(A), tile_of(B));
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++)
        asm volatile("" : "+f"(d[i])::"memory");
    put(out, d);
}

// 12. Each warp writes its own rows of A: fence and __syncwarp, no barrier.
KERNEL own_rows(const u32 *a, const u16 *b, float *out)
{
    __shared__ alignas(128) u32 A[512];
    __shared__ alignas(128) u16 B[128];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, B_BYTES);
        load(B, b, B_BYTES, &full);
    }
    __syncthreads();
    wait(&full, 0);
    float d[4] = {0, 0, 0, 0};
    for (int i = 0; i < 2; i++) {
        for (int j = 0; j < 4; j++)
            A[128 * warp() + 32 * j + lane()] = a[512 * i + 128 * warp() + 32 * j + lane()];
        fence_async_shared();
        __syncwarp();
        wgmma_fence();
        wgmma(d, tile_of(A), tile_of(B));
        wgmma_commit();
        wgmma_wait<0>();
    }
    put(out, d);
}

// 13. Warp 0 waits on the mbarrier; warp 1 learns of the copy by a named barrier.
KERNEL inherited_wait(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
    }
    __syncthreads();
    if (warp() == 0) {
        if (lane() == 0) {
            arrive_expect(&full, 128);
            load(tile, in, 128, &full);
        }
        __syncwarp();
        wait(&full, 0);
        bar_arrive(3, 64);
    } else {
        bar_sync(3, 64);
        out[lane()] = tile[31 - lane()];
    }
}

// 14. init, fence.mbarrier_init, relaxed arrive, wait; then a copy for both blocks.
KERNEL __cluster_dims__(2, 1, 1) multicast(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
    }
    __syncwarp();
    cluster_arrive_relaxed();
    cluster_wait();
    if (threadIdx.x == 0) {
        arrive_expect(&full, 256);
        load_many(tile + 32 * rank(), in + 32 * rank(), 128, &full, 3);
    }
    wait(&full, 0);
    out[64 * blockIdx.x + threadIdx.x] = tile[threadIdx.x];
    out[64 * blockIdx.x + 32 + threadIdx.x] = tile[threadIdx.x + 32];
    __syncwarp();
    cluster_arrive();
    cluster_wait();
}

// 15. A barrier, then one thread fences and adds; one thread of the next block polls.
KERNEL counted_blocks(u32 *data, u32 *count, u32 *out)
{
    if (blockIdx.x) {
        if (threadIdx.x == 0)
            while (load_acquire(count) != blockIdx.x) {}
        __syncthreads();
    }
    u32 before = data[63 - threadIdx.x];
    out[64 * blockIdx.x + threadIdx.x] = before;
    __syncthreads();
    data[threadIdx.x] = 2 * before + blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        fence_gpu();
        add_relaxed(count, 1);
    }
}

// 16. The answer of a first try is kept, and the wait is left out if it was yes.
KERNEL token(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[2][32];
    __shared__ u64 full[2];
    if (threadIdx.x == 0) {
        init(&full[0], 1);
        init(&full[1], 1);
        fence_init();
        for (int s = 0; s < 2; s++) {
            arrive_expect(&full[s], 128);
            load(tile[s], in + 32 * s, 128, &full[s]);
        }
    }
    __syncthreads();
    u32 sum = 0;
    bool ready = try_wait(&full[0], 0);
    for (int s = 0; s < 2; s++) {
        if (!ready)
            wait(&full[s], 0);
        if (s == 0)
            ready = try_wait(&full[1], 0);
        sum = 2 * sum + tile[s][threadIdx.x];
    }
    out[threadIdx.x] = sum;
}

// 17. cp.async arrives on an mbarrier, and the threads that store do too.
KERNEL cp_async_arrive(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    __shared__ u64 full;
    if (threadIdx.x == 0)
        init(&full, 64);
    __syncthreads();
    if (threadIdx.x < 32) {
        copy4(&tile[threadIdx.x], in + threadIdx.x);
        arrive_copies(&full);
    } else if (threadIdx.x < 64) {
        tile[threadIdx.x] = 1000 + threadIdx.x;
        arrive(&full);
    } else {
        wait(&full, 0);
        out[lane()] = tile[lane()];
        out[lane() + 32] = tile[lane() + 32];
    }
}
