// Registers that warps release and ask for: setmaxnreg.
#include "hopper.cuh"

// 384 threads begin with 168 registers each.  One warpgroup releases, two ask for more.
// row: "pool", 384, out(384), wrong={1: DEADLOCK, 2: DEADLOCK}, leaves=[list(range(384))]
KERNEL __launch_bounds__(384, 1) pool(u32 *out)
{
    if (threadIdx.x < 128) {
        if (BUG == 0)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        else if (BUG == 1) // 2,048 registers too few
            asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    }
    out[threadIdx.x] = threadIdx.x;
}
