// Things that are used by two at once, or after their end: barriers, mbarriers, tensor maps.
#include "hopper.cuh"

// Two groups of warps, each with a barrier; or with one, and two counts of threads.
// row: "two_roles", 128, out(128), wrong={1: COLLISION, 2: COLLISION}, leaves=[np.repeat([2, 1, 4, 3], 32)]
KERNEL two_roles(u32 *out)
{
    __shared__ u32 words[4];
    int group = warp() / 2;
    if (lane() == 0)
        words[warp()] = warp() + 1;
    bar_sync(BUG == 1 ? 1 : 1 + group, 64);
    out[threadIdx.x] = get(&words[warp() ^ 1]);
    if (warp() == 0)
        bar_arrive(3, BUG == 2 ? 96 : 64);
    if (warp() == 1)
        bar_sync(3, 64);
}

// One group after the other uses a barrier.
// row: "in_turns", 128, out(128), i32(3), wrong={n: Mistake((COLLISION,), also=(SHARED,)) for n in (1, 2)},
//      leaves=[np.repeat([4, 3, 8, 7], 32)]
KERNEL in_turns(u32 *out, int steps)
{
    __shared__ u32 words[4];
    int group = warp() / 2;
    for (int i = 0; i < steps; i++) {
        if (group == 1 && BUG != 1)
            bar_sync(2, 128); // the first group is done
        if (lane() == 0)
            put(&words[warp()], warp() + i + group);
        bar_sync(1, 64);
        u32 found = get(&words[warp() ^ 1]) + (group ? 2 : 1);
        bar_sync(1, 64);
        out[threadIdx.x] = found;
        if (group == 0 && BUG != 1)
            bar_sync(2, 128);
        if (BUG != 2)
            bar_sync(3, 128); // the second one is done, too
    }
}

// Copies and stores end before the mbarrier that is next to the tile.
// row: "next_to_barrier", 32, u32(64), out(32), wrong={1: MISUSED, 2: MISUSED, 3: MISUSED}
KERNEL next_to_barrier(const u32 *in, u32 *out)
{
    __shared__ struct { alignas(128) u32 tile[32]; alignas(16) u64 other, used; u64 full; } s;
    if (threadIdx.x == 0) {
        init(&s.full, 1);
        init(&s.other, 1);
        fence_init();
        u32 bytes = BUG == 1 ? 144 : 128;
        arrive_expect(&s.full, bytes);
        load(s.tile, in, bytes, &s.full);
    }
    __syncwarp();
    wait(&s.full, 0);
    if (BUG == 2 && threadIdx.x == 0)
        copy16(&s.other, in + 32);
    if (BUG == 3)
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};"
                     ::"r"(at(s.tile) + (threadIdx.x == 0 ? 128 : 0)), "r"(threadIdx.x) : "memory");
    commit_copies();
    wait_copies<0>();
    __syncwarp();
    if (threadIdx.x == 0)
        arrive(&s.other);
    __syncwarp();
    wait(&s.other, 0);
    out[threadIdx.x] = s.tile[threadIdx.x];
}

DEVICE void acquire_map(const Map *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}
DEVICE void release_map() { asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory"); }

// A map in global memory, which ordinary stores write; then another one in its place.
// row: "stored_map", 32, box_map(2), made_map(), u32(16, 32), out(256),
//      wrong={1: FENCE, 2: Mistake((WRITE, GLOBAL), also=(READ, FENCE)), 3: Mistake((WRITE, GLOBAL), also=(READ, FENCE))}
KERNEL stored_map(const __grid_constant__ Map given, Map *maps, const u32 *tensor, u32 *out)
{
    __shared__ alignas(128) u32 tile[2][128];
    __shared__ u64 full[2];
    if (threadIdx.x == 0) {
        init(&full[0], 1);
        init(&full[1], 1);
        fence_init();
    }
    __syncwarp();
    for (int i = 0; i < 2; i++) {
        u32 word = given.words[threadIdx.x];
        asm volatile("st.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(&maps->words[threadIdx.x])), "r"(word) : "memory");
        if (BUG != 1) {
            release_map();
            __syncwarp();
            acquire_map(maps);
        }
        __syncwarp();
        if (threadIdx.x == 0) {
            arrive_expect(&full[i], 512);
            load_box(tile[i], maps, 8, 4 * i, &full[i]);
        }
        __syncwarp();
        if (BUG != 2 && (BUG != 3 || threadIdx.x < 31))
            wait(&full[i], 0);
        if (BUG != 3)
            __syncwarp();
    }
    wait(&full[0], 0);
    wait(&full[1], 0);
    __syncwarp();
    for (int i = 0; i < 8; i++)
        out[32 * i + threadIdx.x] = tile[i / 4][32 * (i % 4) + threadIdx.x];
}
