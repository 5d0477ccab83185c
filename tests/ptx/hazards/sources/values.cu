// What is written without an order: the same value in every byte and lane, or not.
#include "hopper.cuh"

// All lanes of a warp store to one word.
// row: "one_word", 32, out(32), wrong={1: SHARED, 2: SHARED}, leaves=[np.full(32, 77)]
KERNEL one_word(u32 *out)
{
    __shared__ u32 word;
    u32 last = threadIdx.x == 31;
    put(&word, BUG == 1 ? threadIdx.x : BUG == 2 ? 77 + last : 77);
    __syncwarp();
    out[threadIdx.x] = get(&word);
}

// Two warps store to the same words; with 1, all but one of the lanes store another value.
// row: "two_warps", 64, out(32), wrong={1: SHARED, 2: SHARED},
//      leaves=[np.arange(32)]
KERNEL two_warps(u32 *out)
{
    __shared__ u32 tile[32];
    u32 apart = BUG == 1 ? lane() > 0 : BUG == 2 ? lane() == 17 : 0;
    put(&tile[lane()], lane() + warp() * apart);
    __syncthreads();
    if (warp() == 0)
        out[lane()] = get(&tile[lane()]);
}

// The same in global memory.
// row: "two_warps_global", 64, out(32), wrong={1: GLOBAL, 2: GLOBAL},
//      leaves=[np.arange(32)]
KERNEL two_warps_global(u32 *out)
{
    u32 apart = BUG == 1 ? lane() > 0 : BUG == 2 ? lane() == 17 : 0;
    out[lane()] = lane() + warp() * apart;
}

// An atomic operation leaves what depends on the order, even if it is the value of the store.
// row: "counted", 64, out(32), zero(32), wrong={1: (SHARED,), 2: (GLOBAL,)},
//      leaves=[np.full(32, 2), np.full(32, 2)]
KERNEL counted(u32 *out, u32 *counts)
{
    __shared__ u32 tile[32];
    if (warp() == 0)
        put(&tile[lane()], 0);
    __syncthreads();
    if (BUG == 1 && warp() == 0)
        put(&tile[lane()], 1);
    else
        atomicAdd(&tile[lane()], 1);
    if (BUG == 2 && warp() == 0)
        counts[lane()] = 1;
    else
        atomicAdd(&counts[lane()], 1);
    __syncthreads();
    if (warp() == 0)
        out[lane()] = get(&tile[lane()]);
}

// Two warps store one tile with bulk copies, each from its own buffer.
// row: "tile_twice", 64, out(64), wrong={1: GLOBAL, 2: GLOBAL},
//      leaves=[np.arange(64) % 32]
KERNEL tile_twice(u32 *out)
{
    __shared__ alignas(128) u32 tile[2][32];
    u32 apart = BUG == 1 ? lane() == 31 : 0;
    put(&tile[warp()][lane()], lane() + (warp() * apart << 24));
    fence_async_shared();
    __syncthreads();
    if (elect()) {
        store(out, tile[warp()], 128);
        store(out + 32, tile[BUG == 2 ? 0 : warp()] + (BUG == 2 ? 16 * warp() : 0),
              BUG == 2 ? 64 : 128);
        commit_stores();
        wait_read<0>();
    }
}

// Two warps store one box of a tensor, each from its own buffer.
// row: "box_twice", 64, box_map(1), out(16, 32), wrong={1: GLOBAL},
//      leaves=[np.pad(np.arange(128).reshape(8, 16), ((0, 8), (0, 16)),
//                     constant_values=0xA5A5A5A5)]
KERNEL box_twice(const __grid_constant__ Map map, u32 *tensor)
{
    __shared__ alignas(128) u32 tile[2][128];
    for (int i = lane(); i < 128; i += 32)
        put(&tile[warp()][i], i + warp() * (BUG == 1 && i == 100));
    fence_async_shared();
    __syncthreads();
    if (elect()) {
        store_box(&map, 0, 0, tile[warp()]);
        commit_stores();
        wait_read<0>();
    }
}

DEVICE u32 loaded(const u32 *place)
{
    u32 value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(__cvta_generic_to_global(place)) : "memory");
    return value;
}

// Both warps load what the first one stores; the second one does not use it.
// row: "replicated", 64, zero(32), out(32), wrong={1: GLOBAL, 2: GLOBAL, 3: GLOBAL},
//      leaves=[np.full(32, 1), np.full(32, 7)]
KERNEL replicated(u32 *x, u32 *out)
{
    u32 value = loaded(x + lane()), kept = 7;
    if (BUG == 1)
        kept += value; // it is stored
    if (BUG == 2 && __shfl_sync(-1, value, 3) > 5)
        kept = 8; // it decides what is stored
    u32 at = BUG == 3 ? lane() ^ (value & 1) : lane(); // it is part of an address
    if (warp() == 0)
        x[lane()] = value + 1;
    else
        out[at] = kept;
}

// All threads load the first element, which one of them overwrites.
// row: "first_of_all", 64, full("u32", 64, value=6), wrong={1: GLOBAL},
//      leaves=[np.full(64, 12)]
KERNEL first_of_all(u32 *x)
{
    u32 first = loaded(x);
    if (BUG == 0)
        __syncthreads();
    x[threadIdx.x] += first;
}

// A block arrives at the mbarrier of another one, which may have ended.
// row: "late_arrival", 32, zero(1), out(32), grid=2, cluster=2,
//      wrong={1: Mistake((SHARED,), also=(BARRIER,))},
//      leaves=[np.full(1, 1), np.arange(32)]
KERNEL __cluster_dims__(2, 1, 1) late_arrival(u32 *flag, u32 *out)
{
    __shared__ u64 bar;
    if (threadIdx.x == 0) {
        init(&bar, 1);
        fence_init();
    }
    cluster_arrive();
    cluster_wait();
    if (rank() == 1) {
        if (threadIdx.x == 0) {
            while (load_acquire(flag) == 0) {} // let block 0 leave
            arrive_remote(remote(&bar, 0));
        }
        __syncwarp();
        out[threadIdx.x] = threadIdx.x;
    } else if (threadIdx.x == 0)
        store_release(flag, 1);
    __syncwarp();
    if (BUG == 0) {
        cluster_arrive();
        cluster_wait();
    }
}

// Two warps read what the third one overwrites, and use nothing of it.  With 1, 2 and 3,
// a warp has read the same before, and uses that: the later read must not hide it.
// row: "read_twice", 96, out(96), wrong={1: SHARED, 2: SHARED, 3: SHARED},
//      leaves=[np.arange(96)]
KERNEL read_twice(u32 *out)
{
    __shared__ u32 tile[32];
    if (warp() == 0)
        put(&tile[lane()], 5);
    __syncthreads();
    u32 kept = 0;
    if (warp() < 2) {
        if (BUG == 1 || (BUG >= 2 && warp() == 0))
            kept = get(&tile[lane()]);
        if (BUG == 2) // the read of warp 0 is before that of warp 1
            bar_sync(1, 64);
        if (BUG != 2 || warp() == 1)
            get(&tile[lane()]);
    } else
        put(&tile[lane()], 6);
    out[threadIdx.x] = threadIdx.x + kept;
}

// The value goes through shared memory and other lanes before it is dropped, or is used.
// row: "passed_on", 64, out(32), wrong={1: SHARED, 2: SHARED}, leaves=[np.arange(32)]
KERNEL passed_on(u32 *out)
{
    __shared__ u32 tile[32], more[32];
    if (warp() == 0)
        put(&tile[lane()], 5);
    __syncthreads();
    if (warp() == 0) {
        u32 value = get(&tile[lane()]);
        put(&more[lane()], __shfl_xor_sync(-1, value, 1));
        __syncwarp();
        u32 passed = get(&more[31 - lane()]);
        u32 sum = BUG == 1 ? passed : 0;
        if (BUG == 2 && __any_sync(-1, passed == 6))
            sum = 1;
        out[lane()] = lane() + sum;
    } else
        put(&tile[lane()], 6);
}

// Tiles have 32 rows, and a product takes 64: its other rows are the next tile, which is in
// flight.  Nobody uses the sums of these rows.
// row: "few_rows", 128, integers("f16", 3, 512, low=-4, high=5), integers("f16", 128, low=-4, high=5),
//      output("f32", 2, 64, 8), wrong={1: READ, 2: READ}
KERNEL few_rows(const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(128) u16 A[3 * 512], B[128];
    __shared__ u64 full[3];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 3; i++)
            init(&full[i], 1);
        fence_init();
        for (int i = 0; i < 3; i++) {
            arrive_expect(&full[i], i ? 1024 : 1024 + sizeof B);
            load(A + 512 * i, a + 512 * i, 1024, &full[i]);
            if (i == 0)
                load(B, b, sizeof B, &full[i]);
        }
    }
    __syncthreads();
    for (int i = 0; i < 2; i++) {
        if (BUG != 2 || i == 0) // the second tile is used before it is there
            wait(&full[i], 0);
        float d[4] = {0, 0, 0, 0};
        wgmma_fence();
        wgmma(d, tile_of(A + 512 * i), tile_of(B));
        wgmma_commit();
        wgmma_wait<0>();
        if (BUG == 1 || warp() < 2)
            put(out + 512 * i, d);
    }
    wait(&full[1], 0);
    wait(&full[2], 0);
}

// The same, and another copy fills the second tile while the product may still read it.
// row: "few_rows_again", 160, integers("f16", 3, 512, low=-4, high=5), integers("f16", 128, low=-4, high=5),
//      output("f32", 64, 8), wrong={1: WRITE, 2: WRITE}
KERNEL few_rows_again(const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(128) u16 A[2 * 512], B[128];
    __shared__ u64 full, go, next;
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&go, 128);
        init(&next, 1);
        fence_init();
    }
    __syncthreads();
    if (threadIdx.x == 128) {
        arrive_expect(&full, 2048 + sizeof B);
        load(A, a, 2048, &full);
        load(B, b, sizeof B, &full);
        wait(&go, 0);
        arrive_expect(&next, 1024);
        load(A + (BUG == 2 ? 0 : 512), a + 1024, 1024, &next); // 2: over the first tile
        wait(&next, 0);
    }
    if (warp() < 4) {
        wait(&full, 0);
        float d[4] = {0, 0, 0, 0};
        wgmma_fence();
        wgmma(d, tile_of(A), tile_of(B));
        wgmma_commit();
        arrive(&go);
        wgmma_wait<0>();
        if (BUG == 1 || warp() < 2)
            put(out, d);
    }
}
