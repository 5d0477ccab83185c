// A block computes several slices of a product, one after the other, in the same shared
// memory: a pipeline of cp.async, a reduction over its warps, and the way out.
#include "hopper.cuh"

// Four matrices of 8 x 8 halves: a lane gets words 32 m + lane of 128 words.
DEVICE void rows(u32 (&to)[4], const u32 *from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at(from) + 16 * lane()) : "memory");
}
DEVICE void product(u32 &sum, const u32 (&fragment)[4])
{
    for (int i = 0; i < 4; i++)
        sum = 3 * sum + fragment[i];
}

// The result of a slice goes out through shared memory, which the next slice fills again.
// With 2, only the warps' own parts are known to be free.
// row: "way_out", 64, arange("u32", 2, 64), out(2, 64),
//      wrong={1: (SHARED, READ), 2: (SHARED, READ)}
KERNEL way_out(const u32 *in, u32 *out)
{
    __shared__ alignas(16) u32 tile[64];
    for (int slice = 0; slice < 2; slice++) {
        copy4(&tile[threadIdx.x], in + 64 * slice + threadIdx.x);
        commit_copies();
        wait_copies<0>();
        u32 sum = get(&tile[threadIdx.x]) + 1; // its own copy
        put(&tile[threadIdx.x], sum);
        __syncthreads();
        out[64 * slice + threadIdx.x] = get(&tile[63 - threadIdx.x]);
        if (BUG == 0)
            __syncthreads();
        if (BUG == 2)
            __syncwarp();
    }
}

// Each warp loads the fragment of the next tile before it multiplies the present one.
// After the last tile, nobody uses it: without a barrier before the reduction over the
// warps, that is a race which does no harm (1).  It does if the fragment is stored (2),
// decides something (3), or is part of an address (4).
// row: "last_prefetch", 64, arange("u32", 6, 256), out(32),
//      wrong={1: Mistake((SHARED,), NOTE), 2: SHARED, 3: SHARED, 4: SHARED}
KERNEL last_prefetch(const u32 *in, u32 *out)
{
    const int TILES = 6;
    __shared__ alignas(128) u32 stage[3][2][128];
    u32 sum = 0, fragment[2][4];
    for (int t = 0; t < 3; t++) {
        copy16(&stage[t][0][4 * threadIdx.x], in + 256 * t + 4 * threadIdx.x);
        commit_copies();
    }
    wait_copies<2>();
    __syncthreads();
    rows(fragment[0], stage[0][warp()]);
    #pragma unroll 2
    for (int t = 0; t < TILES; t++) {
        wait_copies<1>();
        __syncthreads(); // the next tile is there, and all have loaded the present one
        if (t + 3 < TILES)
            copy16(&stage[t % 3][0][4 * threadIdx.x], in + 256 * (t + 3) + 4 * threadIdx.x);
        commit_copies();
        rows(fragment[(t + 1) % 2], stage[(t + 1) % 3][warp()]);
        product(sum, fragment[t % 2]);
    }
    u32 *part = stage[TILES % 3][0];
    u32 last = fragment[TILES % 2][0];
    if (BUG == 0)
        __syncthreads();
    if (BUG == 2)
        sum += last;
    if (BUG == 3 && last > 7)
        sum = 8;
    if (warp() == 1)
        put(&part[lane()], sum);
    __syncthreads();
    if (warp() == 0)
        out[BUG == 4 ? lane() ^ (last & 1) : lane()] = sum + get(&part[lane()]);
}

// Two tiles have one row of scales.  The row of the second tile is still being read when
// the next group but one is fetched, so two places are not enough.
// row: "scales", 64, arange("u32", 8, 64), u32(4, 64), out(64), wrong={1: (SHARED, READ)}
KERNEL scales(const u32 *in, const u32 *scale, u32 *out)
{
    const int TILES = 8, PLACES = BUG == 0 ? 3 : 2;
    __shared__ alignas(16) u32 tile[4][64], row[3][64];
    u32 sum = 0;
    auto fetch = [&](int t) {
        if (t < TILES) {
            copy4(&tile[t % 4][threadIdx.x], in + 64 * t + threadIdx.x);
            if (t % 2 == 0)
                copy4(&row[t / 2 % PLACES][threadIdx.x], scale + 64 * (t / 2) + threadIdx.x);
        }
        commit_copies();
    };
    for (int t = 0; t < 3; t++)
        fetch(t);
    for (int t = 0; t < TILES; t++) {
        wait_copies<2>();
        __syncthreads();
        fetch(t + 3);
        sum += get(&tile[t % 4][63 - threadIdx.x]) * get(&row[t / 2 % PLACES][63 - threadIdx.x]);
    }
    out[threadIdx.x] = sum;
}
