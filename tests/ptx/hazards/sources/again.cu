// Mbarriers that are made again where one is.
#include "hopper.cuh"

// Each round makes its mbarrier anew.
// row: "rounds", 32, values("u32", list(range(64))), out(64),
//      wrong={1: Mistake((BARRIER,), WARNING)}, leaves=[list(range(64)), list(range(64))]
KERNEL rounds(const u32 *in, u32 *out)
{
    __shared__ alignas(128) u32 tile[32];
    __shared__ u64 full;
    for (int i = 0; i < 2; i++) {
        if (threadIdx.x == 0) {
            init(&full, 1);
            fence_async();
            arrive_expect(&full, 128);
            load(tile, in + 32 * i, 128, &full);
        }
        __syncwarp();
        wait(&full, 0);
        out[32 * i + threadIdx.x] = tile[threadIdx.x];
        __syncwarp();
        if (BUG == 0 && threadIdx.x == 0)
            asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at(&full)) : "memory");
        __syncwarp();
    }
}
