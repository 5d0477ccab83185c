// Kernels that hang or race in some orders of their warps.  BUG 0 is right.
//
// Each is the kernel of a report that others made, with nothing left of it but what
// synchronises.  Sizes are small: every order is explored.
#include "hopper.cuh"

// Two compute warps tell a load warp that its tile is done, once for each tile (vLLM
// 26026).  BUG 1: they arrive and do not wait.  So they may arrive for the next tile
// before the load warp has come, and their arrivals count for the wrong tile.
KERNEL handshake(int tiles)
{
    for (int tile = 0; tile < tiles; tile++) {
        if (BUG == 1 && warp() != 0)
            bar_arrive(1, 96);
        else
            bar_sync(1, 96);
    }
}

// Math warps hand tiles to a store warp, without waiting for it (flashinfer 3700).  BUG 0:
// two barriers take turns, and the store warp lets the math warps go on.  BUG 1: one
// barrier, so that the second tile may arrive while the first is not taken.
KERNEL taken_turns(int tiles)
{
    for (int tile = 0; tile < tiles; tile++) {
        int id = BUG == 1 ? 1 : 1 + (tile & 1);
        if (warp() == 0) {
            bar_sync(id, 96);
            if (BUG == 0)
                bar_arrive(id + 4, 96);
        } else {
            if (BUG == 0 && tile > 1)
                bar_sync(id + 4, 96);
            bar_arrive(id, 96);
        }
    }
    if (BUG == 0 && warp() != 0)
        for (int tile = tiles < 2 ? 0 : tiles - 2; tile < tiles; tile++)
            bar_sync(5 + (tile & 1), 96);
}

// Warps 0 and 1 meet twice, warps 2 and 3 once, each pair at a barrier of its own
// (flashinfer 4533).  BUG 1: both pairs use the same barrier.
KERNEL two_roles()
{
    bool first = warp() < 2;
    int id = BUG == 1 || first ? 1 : 2;
    bar_sync(id, 64);
    if (first)
        bar_sync(id, 64);
}

// A ring of three stages: warp 0 loads, warps 1 and 2 read, and each of them releases
// the stage (as in DeepGEMM).
// BUG 1: a stage is released by one arrival, so the slower reader's is lost.
// BUG 2: the parity of the readers is not turned when the ring begins again.
// BUG 3: the loader's first wait names parity 0, and nobody has released anything.
// BUG 4: more bytes are expected than are copied, in the last round.
// BUG 5: one reader forgets to release the last stage.
// BUG 6: readers release a stage before they read it.
KERNEL ring(const u32 *in, u32 *out, int rounds)
{
    enum { STAGES = 3, WORDS = 32 };
    __shared__ alignas(16) u32 tile[STAGES][WORDS];
    __shared__ u64 full[STAGES], empty[STAGES];
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            init(&full[i], 1);
            init(&empty[i], BUG == 1 ? 1 : 2);
        }
        fence_init();
    }
    __syncthreads();
    u32 sum = 0;
    if (warp() == 0) {
        if (lane() == 0)
            for (int i = 0; i < rounds; i++) {
                int stage = i % STAGES;
                u32 turn = i / STAGES & 1;
                wait(&empty[stage], BUG == 3 ? turn : turn ^ 1);
                u32 more = BUG == 4 && i == rounds - 1 ? 16 : 0;
                arrive_expect(&full[stage], 4 * WORDS + more);
                load(tile[stage], in + i * WORDS, 4 * WORDS, &full[stage]);
            }
    } else {
        for (int i = 0; i < rounds; i++) {
            int stage = i % STAGES;
            wait(&full[stage], BUG == 2 ? 0 : i / STAGES & 1);
            if (BUG == 6 && lane() == 0)
                arrive(&empty[stage]);
            sum += get(&tile[stage][lane()]);
            __syncwarp();
            bool forgets = BUG == 5 && warp() == 2 && i == rounds - STAGES - 1;
            if (BUG != 6 && lane() == 0 && !forgets)
                arrive(&empty[stage]);
        }
        out[threadIdx.x - 32] = sum;
    }
}

// The answer of an asynchronous unit is waited for with the wrong parity (marin 8870:
// the answer of a scheduler).  BUG 1: parity 1 is that of the phase before the first,
// and after the answer has come, of the one that nobody will complete.
KERNEL which_parity(const u32 *in, u32 *out)
{
    __shared__ alignas(16) u32 answer[4];
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        fence_init();
    }
    __syncthreads();
    if (warp() == 0) {
        if (lane() == 0) {
            arrive_expect(&bar, 16);
            load(answer, in, 16, &bar);
        }
    } else {
        wait(&bar, BUG == 1 ? 1 : 0);
        out[lane()] = get(&answer[lane() & 3]);
    }
}

// Two blocks take two locks.  BUG 1: in opposite orders.
DEVICE void take(u32 *lock)
{
    u32 old;
    do
        asm volatile("atom.acquire.gpu.global.cas.b32 %0, [%1], 0, 1;" : "=r"(old) : "l"(lock) : "memory");
    while (old != 0);
}
KERNEL locks(u32 *lock, u32 *out)
{
    if (threadIdx.x != 0)
        return;
    int first = BUG == 1 && blockIdx.x == 1 ? 1 : 0;
    take(lock + first);
    take(lock + 1 - first);
    out[0] = out[0] + 1;
    store_release(lock + 1 - first, 0);
    store_release(lock + first, 0);
}

// A block waits for the flag of another, which waits for nothing.  BUG 1: for one that
// is set only after its own.
KERNEL flags(u32 *flag, u32 *out)
{
    if (threadIdx.x != 0)
        return;
    if (blockIdx.x == 0) {
        if (BUG == 1)
            while (load_acquire(flag + 1) == 0) {}
        out[0] = 7;
        store_release(flag, 1);
    } else {
        while (load_acquire(flag) == 0) {}
        out[1] = out[0];
        store_release(flag + 1, 1);
    }
}

// A block of a cluster loads for both, and the other tells it when it may (a pair).
// BUG 1: the other does not tell it.
KERNEL pair(const u32 *in, u32 *out)
{
    __shared__ alignas(16) u32 tile[32];
    __shared__ u64 full, ready;
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&ready, 2);
        fence_init();
    }
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x == 0) {
        arrive_expect(&full, 128);
        if (BUG != 1 || rank() == 0)
            arrive_remote(remote(&ready, 0));
        if (rank() == 0) {
            wait(&ready, 0);
            load_many(tile, in, 128, &full, 3);
        }
    }
    wait(&full, 0);
    out[32 * rank() + lane()] = get(&tile[lane()]);
    cluster_arrive();
    cluster_wait();
}

// The last block to come adds up what all have left (a reduction).  BUG 1: it waits for
// a count that only a further block would reach.
KERNEL last_block(u32 *partial, u32 *count, u32 *out)
{
    if (threadIdx.x != 0)
        return;
    partial[blockIdx.x] = blockIdx.x + 1;
    __threadfence();
    u32 old = atomicAdd(count, 1);
    if (old == gridDim.x - 1) {
        __threadfence();
        if (BUG == 1)
            while (load_acquire(count) != gridDim.x + 1) {}
        u32 sum = 0;
        for (u32 i = 0; i < gridDim.x; i++)
            sum += partial[i];
        out[0] = sum;
    }
}
