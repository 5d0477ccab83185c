// Right by the manual or by what shipped kernels do, and easily taken for wrong.
#include "hopper.cuh"

// cp.async, a barrier, wgmma: CUTLASS and FlashAttention-3 have no proxy fence here.
KERNEL copied_operands(const u32 *a, const u32 *b, float *out)
{
    __shared__ alignas(128) u32 A[512], B[64];
    copy16(&A[4 * threadIdx.x], a + 4 * threadIdx.x);
    if (threadIdx.x < 16)
        copy16(&B[4 * threadIdx.x], b + 4 * threadIdx.x);
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma(d, tile_of(A), tile_of(B));
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// Generic reads, a barrier, the next bulk copy: CUTLASS has no proxy fence here.
KERNEL plain_refill(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
    }
    __syncthreads();
    for (int i = 0; i < 3; i++) {
        if (threadIdx.x == 0) {
            arrive_expect(&full, 256);
            load(tile, in + 64 * i, 256, &full);
        }
        wait(&full, i & 1);
        out[64 * i + threadIdx.x] = get(&tile[63 - threadIdx.x]);
        __syncthreads();
    }
}

// A block ends while its last store is under way.
KERNEL pending_store(u32 *out)
{
    __shared__ alignas(128) u32 tile[64];
    tile[threadIdx.x] = 21 * threadIdx.x;
    fence_async();
    __syncthreads();
    if (threadIdx.x == 0) {
        store(out, tile, 256);
        commit_stores();
    }
}

// Bulk reductions of all blocks to one place.
KERNEL reductions(u32 *sum)
{
    __shared__ alignas(128) u32 tile[32];
    tile[threadIdx.x] = blockIdx.x + threadIdx.x;
    fence_async();
    __syncwarp();
    if (threadIdx.x == 0) {
        store_add(sum, tile, 128);
        commit_stores();
        wait_stores<0>();
    }
}

// What a thread has stored and waited for, it may load again.
KERNEL round_trip(u32 *data, u32 *out)
{
    __shared__ alignas(128) u32 tile[2][32];
    __shared__ u64 full;
    tile[0][threadIdx.x] = 31 * threadIdx.x;
    fence_async();
    __syncwarp();
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        store(data, tile[0], 128);
        commit_stores();
        wait_stores<0>();
        arrive_expect(&full, 128);
        load(tile[1], data, 128, &full);
    }
    __syncwarp();
    wait(&full, 0);
    out[threadIdx.x] = tile[1][threadIdx.x] + data[threadIdx.x];
}

// stmatrix, fence, barrier, bulk store.
KERNEL stored_matrix(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};"
                 ::"r"(at(tile + 4 * (threadIdx.x % 8))), "r"(in[threadIdx.x]) : "memory");
    fence_async_shared();
    __syncwarp();
    if (elect()) {
        store(out, tile, 128);
        commit_stores();
        wait_read<0>();
    }
}

// All lanes write the same value to the same word.
KERNEL same_value(u32 *out)
{
    __shared__ u32 word;
    put(&word, 77);
    __syncwarp();
    out[threadIdx.x] = get(&word);
}

// Warps write neighbouring bytes of the same words.
KERNEL bytes(u32 *out)
{
    __shared__ alignas(4) unsigned char tile[128];
    u32 place = 4 * lane() + warp();
    asm volatile("st.shared.u8 [%0], %1;" ::"r"(at(tile + place)), "r"(place) : "memory");
    __syncthreads();
    if (warp() == 0)
        out[lane()] = get((u32 *)tile + lane());
}

// Halves of a warp, each with its own __syncwarp.
KERNEL half_warps(u32 *out)
{
    __shared__ u32 tile[32];
    u32 half = threadIdx.x / 16;
    put(&tile[threadIdx.x], 6 * threadIdx.x);
    if (half == 0) {
        __syncwarp(0x0000FFFF);
        out[threadIdx.x] = get(&tile[15 - threadIdx.x]);
    } else {
        __syncwarp(0xFFFF0000);
        out[threadIdx.x] = get(&tile[47 - threadIdx.x]);
    }
}

// Some warps end early; the others still meet.
KERNEL early_return(u32 *out)
{
    __shared__ u32 tile[64];
    if (threadIdx.x >= 64)
        return;
    tile[threadIdx.x] = threadIdx.x + 1;
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

// Threads write, some of them return, and the others go on behind a barrier: it waits for
// those that have not returned.
KERNEL written_and_returned(u32 *out)
{
    __shared__ u32 tile[96];
    put(&tile[threadIdx.x], 5 * threadIdx.x);
    if (threadIdx.x >= 40)
        return;
    __syncthreads();
    out[threadIdx.x] = get(&tile[95 - threadIdx.x]) + get(&tile[39 - threadIdx.x]);
    __syncthreads();
    put(&tile[95 - threadIdx.x], 1);
}

// A barrier that also votes.
KERNEL voting(const u32 *in, u32 *out)
{
    __shared__ u32 tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    int any = __syncthreads_or(in[threadIdx.x] > 900);
    out[threadIdx.x] = tile[63 - threadIdx.x] + any;
}

// Warps hand data over by a flag in shared memory, with release and acquire.
KERNEL shared_flag(u32 *out)
{
    __shared__ u32 tile[32], flag;
    if (threadIdx.x == 0)
        flag = 0;
    __syncthreads();
    if (warp() == 0) {
        tile[lane()] = 12 * lane();
        __syncwarp();
        if (lane() == 0)
            asm volatile("st.release.cta.shared.u32 [%0], 1;" ::"r"(at(&flag)) : "memory");
    } else {
        u32 seen = 0;
        while (seen == 0)
            asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(seen) : "r"(at(&flag)) : "memory");
        out[lane()] = tile[31 - lane()];
    }
}

// The same with __threadfence_block and volatile, as it was written for Kepler.
KERNEL old_flag(u32 *out)
{
    __shared__ u32 tile[32];
    __shared__ volatile u32 flag;
    if (threadIdx.x == 0)
        flag = 0;
    __syncthreads();
    if (warp() == 0) {
        tile[lane()] = 14 * lane();
        __syncwarp();
        __threadfence_block();
        if (lane() == 0)
            flag = 1;
    } else {
        while (flag == 0) {}
        __threadfence_block();
        out[lane()] = tile[31 - lane()];
    }
}

// A counter in shared memory that all warps raise and poll.
KERNEL shared_counter(u32 *out)
{
    __shared__ u32 tile[64], count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    tile[threadIdx.x] = 18 * threadIdx.x;
    __threadfence_block();
    atomicAdd(&count, 1);
    while (atomicAdd(&count, 0) < 64) {}
    __threadfence_block();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

// An mbarrier waited on by the state that arrive returned; arrive_drop; expect_tx alone.
KERNEL states(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 32);
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 128;" ::"r"(at(&bar)) : "memory");
        load(tile, in, 128, &bar);
    }
    __syncwarp();
    u64 state;
    u32 done = 0;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(at(&bar)) : "memory");
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(at(&bar)), "l"(state) : "memory");
    u32 sum = tile[threadIdx.x];
    __syncwarp();
    if (threadIdx.x >= 16)
        asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0];" ::"r"(at(&bar)) : "memory");
    else
        arrive(&bar);
    wait(&bar, 1);
    if (threadIdx.x < 16)
        arrive(&bar);
    wait(&bar, 0);
    out[threadIdx.x] = sum;
}

// Producer and consumer warpgroups change their registers; two consumers take turns.
KERNEL __launch_bounds__(384, 1) two_consumers(const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(128) u16 A[2][1024], B[2][128];
    __shared__ u64 full[2];
    u32 group = threadIdx.x / 128;
    if (threadIdx.x == 0) {
        init(&full[0], 1);
        init(&full[1], 1);
        fence_init();
    }
    __syncthreads();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0)
            for (int s = 0; s < 2; s++) {
                arrive_expect(&full[s], A_BYTES + B_BYTES);
                load(A[s], a + 1024 * s, A_BYTES, &full[s]);
                load(B[s], b + 128 * s, B_BYTES, &full[s]);
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 168;");
        float d[4] = {0, 0, 0, 0};
        if (group == 2)
            bar_sync(4, 256); // the first one goes first
        wait(&full[group - 1], 0);
        wgmma_fence();
        wgmma(d, tile_of(A[group - 1]), tile_of(B[group - 1]));
        wgmma_commit();
        if (group == 1)
            bar_arrive(4, 256);
        wgmma_wait<0>();
        put(out + 512 * (group - 1), d);
    }
}
