// Stores and additions to global memory that are done later, and release what came before.
#include "hopper.cuh"

DEVICE void store_later(u32 *flag, u32 value)
{
    asm volatile("st.async.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(flag)), "r"(value) : "memory");
}
DEVICE void add_later(u32 *count, u32 value)
{
    asm volatile("red.async.release.gpu.global.add.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(count)), "r"(value) : "memory");
}

// The reader has to acquire (1), and to wait at all (2).  What is stored after the issue is
// not released (3).  The thread does not know when the store is done: another one of its own
// may come first (4).
// row: "flagged", 1, out(1), zero(1), out(1), grid=2,
//      wrong={1: GLOBAL, 2: GLOBAL, 3: GLOBAL, 4: GLOBAL}, leaves=[[49], [1], [49]]
KERNEL flagged(u32 *data, u32 *flag, u32 *out)
{
    if (blockIdx.x == 0) {
        if (BUG != 3)
            *data = 49;
        store_later(flag, 1);
        if (BUG == 3)
            *data = 49;
        if (BUG == 4)
            *flag = 1;
    } else {
        if (BUG == 1)
            while (load_relaxed(flag) == 0) {}
        else if (BUG != 2)
            while (load_acquire(flag) == 0) {}
        *out = *data;
    }
}

// Blocks count themselves in, and the last part is read when all of them have.
// row: "counted_in", 32, out(96), zero(1), out(32), grid=4, wrong={1: GLOBAL},
//      leaves=[list(range(96)), [3], [sum(range(n, 96, 32)) for n in range(32)]]
KERNEL counted_in(u32 *parts, u32 *count, u32 *out)
{
    if (blockIdx.x < 3) {
        parts[32 * blockIdx.x + lane()] = 32 * blockIdx.x + lane();
        if (BUG != 1)
            __syncwarp();
        if (lane() == 0)
            add_later(count, 1);
    } else {
        while (load_acquire(count) < 3) {}
        out[lane()] = parts[lane()] + parts[32 + lane()] + parts[64 + lane()];
    }
}
