// Blocks of a cluster that use each other's shared memory.
#include "hopper.cuh"

DEVICE void cluster_sync()
{
    cluster_arrive();
    cluster_wait();
}

// Each block writes into the other one.
KERNEL __cluster_dims__(2, 1, 1) remote_write(u32 *out)
{
    __shared__ u32 tile[32];
    cluster_sync();
    store_remote(remote(&tile[threadIdx.x], rank() ^ 1), 100 * rank() + threadIdx.x);
    if (BUG == 0)
        cluster_sync();
    else
        __syncthreads();
    out[32 * blockIdx.x + threadIdx.x] = get(&tile[threadIdx.x]);
    cluster_sync();
}

// Each block reads from the other one, which then writes its own memory again.
KERNEL __cluster_dims__(2, 1, 1) remote_read(u32 *out)
{
    __shared__ u32 tile[32];
    put(&tile[threadIdx.x], 7 * threadIdx.x + rank());
    cluster_sync();
    out[32 * blockIdx.x + threadIdx.x] = load_remote(remote(&tile[31 - threadIdx.x], rank() ^ 1));
    if (BUG == 0)
        cluster_sync();
    put(&tile[threadIdx.x], 0);
    if (BUG != 0)
        cluster_sync();
}

// A block exits while the other one may still read its memory.
KERNEL __cluster_dims__(2, 1, 1) early_exit(u32 *out, u32 *flag)
{
    __shared__ u32 tile[32];
    put(&tile[threadIdx.x], 9 * threadIdx.x + rank());
    cluster_sync();
    if (rank() == 1 && BUG != 0) {
        if (threadIdx.x == 0) // let block 0 leave
            while (load_acquire(flag) == 0) {}
        __syncwarp();
    }
    if (rank() == 1)
        out[threadIdx.x] = load_remote(remote(&tile[threadIdx.x], 0));
    else if (threadIdx.x == 0)
        store_release(flag, 1);
    __syncwarp();
    if (BUG == 0)
        cluster_sync();
}

// A bulk copy into the other block, which waits at its own mbarrier.
KERNEL __cluster_dims__(2, 1, 1) pushed(u32 *out)
{
    __shared__ alignas(128) u32 mine[32], theirs[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, 128);
    }
    mine[threadIdx.x] = 1000 * rank() + threadIdx.x;
    fence_async();
    __syncwarp();
    cluster_sync();
    if (threadIdx.x == 0)
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                     ::"r"(remote(theirs, rank() ^ 1)), "r"(at(mine)), "r"(128), "r"(remote(&full, rank() ^ 1)) : "memory");
    __syncwarp();
    if (BUG == 0)
        wait(&full, 0);
    out[32 * blockIdx.x + threadIdx.x] = get(&theirs[threadIdx.x]);
    wait(&full, 0);
    cluster_sync();
}

// st.async into the other block.
KERNEL __cluster_dims__(2, 1, 1) sent(u32 *out)
{
    __shared__ u32 theirs[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, 128);
    }
    __syncwarp();
    cluster_sync();
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];"
                 ::"r"(remote(&theirs[threadIdx.x], rank() ^ 1)), "r"(50 * rank() + threadIdx.x),
                 "r"(remote(&full, rank() ^ 1)) : "memory");
    if (BUG == 0)
        wait(&full, 0);
    out[32 * blockIdx.x + threadIdx.x] = get(&theirs[threadIdx.x]);
    wait(&full, 0);
    cluster_sync();
}

// Arrivals at the other block's mbarrier hand data over, in the default scope too.
KERNEL __cluster_dims__(2, 1, 1) remote_arrive(u32 *out)
{
    __shared__ u32 tile[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 32);
        fence_init();
    }
    __syncwarp();
    cluster_sync();
    if (BUG == 0)
        store_remote(remote(&tile[threadIdx.x], rank() ^ 1), 3 * threadIdx.x + rank());
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote(&full, rank() ^ 1)) : "memory");
    if (BUG != 0) // after the arrival
        store_remote(remote(&tile[threadIdx.x], rank() ^ 1), 3 * threadIdx.x + rank());
    wait(&full, 0);
    out[32 * blockIdx.x + threadIdx.x] = get(&tile[31 - threadIdx.x]);
    cluster_sync();
}

// A ring that two blocks share: each loads one half for both, and both must release it.
KERNEL __cluster_dims__(2, 1, 1) shared_ring(const u32 *in, u32 *out, int steps)
{
    __shared__ alignas(128) u32 tile[64];
    __shared__ u64 full, empty;
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&empty, BUG == 0 ? 2 : 1);
        fence_init();
    }
    __syncthreads();
    cluster_sync();
    u32 sum = 0;
    if (threadIdx.x == 64)
        for (int i = 0; i < steps; i++) {
            wait(&empty, (i & 1) ^ 1);
            arrive_expect(&full, 256);
            load_many(tile + 32 * rank(), in + 64 * i + 32 * rank(), 128, &full, 3);
        }
    else if (threadIdx.x < 64)
        for (int i = 0; i < steps; i++) {
            wait(&full, i & 1);
            sum = 3 * sum + tile[63 - threadIdx.x];
            bar_sync(1, 64);
            if (threadIdx.x < 2 && (BUG == 0 || threadIdx.x == rank()))
                asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(remote(&empty, threadIdx.x)) : "memory");
        }
    if (threadIdx.x < 64)
        out[64 * blockIdx.x + threadIdx.x] = sum;
    __syncthreads();
    cluster_sync();
}
