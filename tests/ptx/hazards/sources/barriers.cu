// mbarriers used as they must not be used.
#include "hopper.cuh"

// Nobody arrives any more.
KERNEL never(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0)
        init(&bar, 64);
    __syncthreads();
    if (BUG == 0 || threadIdx.x < 63)
        arrive(&bar);
    wait(&bar, 0);
    out[threadIdx.x] = 3;
}

// Two warps: each waits before it arrives.
KERNEL circle(u32 *out)
{
    __shared__ u64 bar[2];
    if (threadIdx.x == 0) {
        init(&bar[0], 32);
        init(&bar[1], 32);
    }
    __syncthreads();
    if (BUG == 0 || warp() == 1) {
        if (BUG == 0 && warp() == 0) {
            arrive(&bar[0]);
            wait(&bar[1], 0);
        } else {
            wait(&bar[0], 0);
            arrive(&bar[1]);
        }
    } else {
        wait(&bar[1], 0);
        arrive(&bar[0]);
    }
    out[threadIdx.x] = 8;
}

// A wait for a phase that the loop never reaches: the parity is not turned.
KERNEL unturned(u32 *out, int steps)
{
    __shared__ u64 bar;
    __shared__ u32 tile[64];
    if (threadIdx.x == 0)
        init(&bar, 64);
    __syncthreads();
    u32 sum = 0;
    for (int i = 0; i < steps; i++) {
        tile[threadIdx.x] = i + threadIdx.x;
        arrive(&bar);
        wait(&bar, BUG == 0 ? i & 1 : 0);
        sum = 2 * sum + tile[63 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

// More arrivals than the mbarrier was initialised for.
KERNEL too_many(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0)
        init(&bar, BUG == 1 ? 31 : BUG == 2 ? 16 : 32);
    __syncwarp();
    arrive(&bar);
    wait(&bar, 0);
    out[threadIdx.x] = 2;
}

// One arrival with a count that is larger than what is pending.
KERNEL large_count(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 4);
        arrive(&bar, BUG == 0 ? 4 : 5);
    }
    __syncwarp();
    if (BUG == 0)
        wait(&bar, 0);
    out[threadIdx.x] = 2;
}

// Arrivals before init.
KERNEL before_init(u32 *out)
{
    __shared__ u64 bar;
    if (BUG == 0 && threadIdx.x == 0)
        init(&bar, 32);
    __syncwarp();
    arrive(&bar);
    if (BUG == 0)
        wait(&bar, 0);
    out[threadIdx.x] = 7;
}

// A wait that is not ordered after init: the barrier between them is missing.
KERNEL unordered_init(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0)
        init(&bar, 1);
    if (BUG == 0)
        __syncthreads();
    if (threadIdx.x == 0)
        arrive(&bar);
    wait(&bar, 0);
    out[threadIdx.x] = 7;
}

// init over an mbarrier that is in use.
KERNEL init_again(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0)
        init(&bar, 2);
    __syncwarp();
    if (threadIdx.x == 0) {
        arrive(&bar);
        if (BUG != 0)
            init(&bar, 1);
        arrive(&bar);
    }
    __syncwarp();
    wait(&bar, 0);
    out[threadIdx.x] = 9;
}

// inval while another warp waits.
KERNEL invalidated(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0)
        init(&bar, 1);
    __syncthreads();
    if (warp() == 0) {
        if (lane() == 0 && BUG == 0)
            arrive(&bar);
        __syncwarp();
        if (BUG == 0)
            bar_sync(1, 64);
        if (lane() == 0)
            inval(&bar);
    } else {
        wait(&bar, 0);
        if (BUG == 0)
            bar_sync(1, 64);
        out[lane()] = 4;
    }
}

// Use after inval.
KERNEL after_inval(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        if (BUG != 0)
            inval(&bar);
        arrive(&bar);
    }
    __syncwarp();
    out[threadIdx.x] = 4;
}

// Memory of an mbarrier is used for data, after inval.
KERNEL data_again(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0)
        init(&bar, 32);
    __syncwarp();
    arrive(&bar);
    wait(&bar, 0);
    __syncwarp();
    if (threadIdx.x == 0) {
        inval(&bar);
        put((u32 *)&bar, 0x12345);
    }
    __syncwarp();
    out[threadIdx.x] = get((u32 *)&bar) + 1;
}

// An ordinary load of a live mbarrier.
KERNEL peeked(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0)
        init(&bar, 32);
    __syncwarp();
    arrive(&bar);
    if (BUG != 0)
        get((u32 *)&bar);
    wait(&bar, 0);
    out[threadIdx.x] = 1;
}

// An arrival with .noComplete that completes the phase.
KERNEL no_complete(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        u64 state;
        init(&bar, 3);
        asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], %2;"
                     : "=l"(state) : "r"(at(&bar)), "r"(BUG == 0 ? 2 : 3) : "memory");
        arrive(&bar);
    }
    __syncwarp();
    if (BUG == 0)
        wait(&bar, 0);
    out[threadIdx.x] = 1;
}

// A wait at the mbarrier of another block.
KERNEL __cluster_dims__(2, 1, 1) remote_wait(u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        fence_init();
    }
    __syncwarp();
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x == 0) {
        arrive_remote(remote(&bar, rank() ^ 1));
        if (BUG == 0)
            wait(&bar, 0);
        else {
            u32 done;
            u64 there;
            asm volatile("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(&bar), "r"(rank() ^ 1));
            asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "l"(there) : "memory");
        }
    }
    __syncwarp();
    out[32 * blockIdx.x + threadIdx.x] = 5;
    cluster_arrive();
    cluster_wait();
}

// A copy that nobody waits for: the block exits under it.
KERNEL forgotten_load(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, 128);
        load(tile, in, 128, &full);
    }
    __syncwarp();
    if (BUG == 0)
        wait(&full, 0);
    out[threadIdx.x] = BUG == 0 ? tile[threadIdx.x] : 1;
}

// A copy whose mbarrier was never initialised.
KERNEL copy_before_init(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        if (BUG == 0)
            init(&full, 1);
        fence_init();
        load(tile, in, 128, &full);
        if (BUG != 0)
            init(&full, 1);
        arrive_expect(&full, 128);
    }
    __syncwarp();
    if (BUG == 0)
        wait(&full, 0);
    out[threadIdx.x] = BUG == 0 ? tile[threadIdx.x] : 0;
}
