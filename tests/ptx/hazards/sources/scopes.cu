// Scopes: which threads a release, an acquire, a fence or an atomic operation reaches.
#include "hopper.cuh"

// CUTLASS 3643: a block fills its shared memory and arrives at the mbarrier of the block
// that reads it.  Both scopes have to be the cluster.
// row: "handed_over", 32, out(32), grid=2, cluster=2, wrong={1: MISUSED,
//      2: Mistake((BARRIER,), WARNING)}, leaves=[[5 * n for n in range(32)]]
KERNEL __cluster_dims__(2, 1, 1) handed_over(u32 *out)
{
    __shared__ u32 tile[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 32);
        fence_init();
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    if (rank() == 1) {
        put(&tile[threadIdx.x], 5 * threadIdx.x);
        u32 there = remote(&full, 0);
        if (BUG == 1)
            asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
        else
            arrive_remote(there);
    } else {
        u32 done = 0;
        while (!done)
            if (BUG == 2)
                asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], 0; "
                             "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(&full)) : "memory");
            else
                asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], 0; "
                             "selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(at(&full)) : "memory");
        out[threadIdx.x] = load_remote(remote(&tile[threadIdx.x], 1));
    }
    cluster_arrive();
    cluster_wait();
}

// Marlin's lock: blocks add in turns, and the last one resets the lock by a plain store.
// row: "turns", 64, zero(64), zero(1), grid=3, wrong={1: GLOBAL, 2: GLOBAL, 3: GLOBAL},
//      leaves=[[n + 3 for n in range(64)], [0]]
KERNEL turns(u32 *sum, u32 *lock)
{
    if (threadIdx.x == 0) {
        u32 turn;
        do {
            if (BUG == 3)
                asm volatile("ld.acquire.cta.global.u32 %0, [%1];" : "=r"(turn) : "l"(__cvta_generic_to_global(lock)) : "memory");
            else
                turn = load_acquire(lock);
        } while (turn != blockIdx.x);
    }
    __syncthreads();
    sum[threadIdx.x] += blockIdx.x == 0 ? threadIdx.x : blockIdx.x;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (blockIdx.x == gridDim.x - 1)
            *lock = 0;
        else {
            if (BUG == 0 || BUG == 3)
                asm volatile("fence.acq_rel.gpu;" ::: "memory");
            if (BUG == 2)
                asm volatile("fence.acq_rel.cta;" ::: "memory");
            add_relaxed(lock, 1);
        }
    }
}

// A counter of the grid needs the scope of the GPU, and one of a cluster that of the cluster.
// row: "counted", 32, zero(1), zero(2), grid=4, cluster=2, wrong={1: GLOBAL, 2: GLOBAL},
//      leaves=[[4], [2, 2]]
KERNEL __cluster_dims__(2, 1, 1) counted(u32 *grid, u32 *cluster)
{
    if (threadIdx.x == 0) {
        u64 all = __cvta_generic_to_global(grid);
        u64 near = __cvta_generic_to_global(cluster + blockIdx.x / 2);
        if (BUG == 1)
            asm volatile("red.relaxed.cluster.global.add.u32 [%0], 1;" ::"l"(all) : "memory");
        else
            asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(all) : "memory");
        if (BUG == 2)
            asm volatile("red.relaxed.cta.global.add.u32 [%0], 1;" ::"l"(near) : "memory");
        else
            asm volatile("red.relaxed.cluster.global.add.u32 [%0], 1;" ::"l"(near) : "memory");
    }
}

// The block that comes last adds up what all have left: a fence of the block is too small.
// row: "last_block", 32, zero(96), zero(1), zero(1), grid=3, wrong={1: GLOBAL},
//      leaves=[[n + 1 for n in range(96)], [3], [96 * 97 // 2]]
KERNEL last_block(u32 *part, u32 *count, u32 *sum)
{
    __shared__ u32 last;
    part[32 * blockIdx.x + threadIdx.x] = 32 * blockIdx.x + threadIdx.x + 1;
    if (BUG == 1)
        __threadfence_block();
    else
        __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(count, 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) {
        u32 total = 0;
        for (int i = 0; i < 96; i++)
            total += part[i];
        *sum = total;
    }
}

// Decoupled look-back: each block takes the sum of those before it from the last one.
// row: "look_back", 32, zero(4), zero(4), grid=4, wrong={1: GLOBAL, 2: GLOBAL, 3: GLOBAL},
//      leaves=[[1, 3, 6, 10], [1, 1, 1, 1]]
KERNEL look_back(u32 *sums, u32 *ready)
{
    if (threadIdx.x != 0)
        return;
    u32 before = 0;
    if (blockIdx.x > 0) {
        u32 there = 0;
        u64 flag = __cvta_generic_to_global(ready + blockIdx.x - 1);
        while (there == 0)
            if (BUG == 1)
                asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
            else if (BUG == 2)
                asm volatile("ld.acquire.cluster.global.u32 %0, [%1];" : "=r"(there) : "l"(flag) : "memory");
            else
                there = load_acquire(ready + blockIdx.x - 1);
        before = sums[blockIdx.x - 1];
    }
    sums[blockIdx.x] = before + blockIdx.x + 1;
    if (BUG == 3)
        store_relaxed(ready + blockIdx.x, 1);
    else
        store_release(ready + blockIdx.x, 1);
}
