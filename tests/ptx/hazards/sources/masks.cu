// Membermasks: which lanes of a warp exchange values.
#include "hopper.cuh"

// How many lanes below have a number that 3 divides.
// row: "counted_below", 32, out(32), wrong={1: "membermask", 2: "membermask"},
//      leaves=[[-(-n // 3) for n in range(32)]]
KERNEL counted_below(u32 *out)
{
    u32 below = (1u << lane()) - 1, mask = ~0u;
    if (BUG == 1) // the lane itself is missing
        mask = below;
    if (BUG == 2) // each lane has another mask
        mask = 2 * below + 1;
    out[lane()] = __popc(__ballot_sync(mask, lane() % 3 == 0) & below);
}

// Half a warp adds up.  What lanes 8 to 15 read of others is dropped.
// row: "half_sum", 32, zero(32), wrong={1: Mistake(("membermask",), WARNING)},
//      leaves=[[120] + 31 * [0]]
KERNEL half_sum(u32 *out)
{
    u32 sum = lane();
    if (lane() < 16) {
        for (u32 step = 8; step; step /= 2)
            sum += __shfl_down_sync(0xffff, sum, step);
        if (lane() == 0 || BUG == 1)
            out[lane()] = sum;
    }
}

// Some lanes have returned before the others exchange.
// row: "returned", 32, zero(32), wrong={1: Mistake(("membermask",), WARNING)},
//      leaves=[[n ^ 1 for n in range(20)] + 12 * [0]]
KERNEL returned(u32 *out)
{
    if (lane() >= 20)
        return;
    out[lane()] = __shfl_xor_sync(~0u, lane(), BUG == 0 ? 1 : 16);
}

// Half a warp hands its numbers on.
// row: "half_meets", 32, out(16), wrong={1: "membermask"}, leaves=[[15 - n for n in range(16)]]
KERNEL half_meets(u32 *out)
{
    __shared__ u32 tile[32];
    tile[lane()] = lane();
    if (BUG == 1 || lane() < 16)
        __syncwarp(0xffff);
    if (lane() < 16)
        out[lane()] = tile[15 - lane()];
}
