// Loads through a cache that is not coherent: ld.global.nc, __ldg().
#include "hopper.cuh"

// What one thread stores, another one loads after a barrier.
// row: "read_back", 64, zero(64), out(64), wrong={1: GLOBAL, 2: GLOBAL},
//      leaves=[list(range(64)), [n ^ 32 for n in range(64)]]
KERNEL read_back(u32 *x, u32 *out)
{
    u32 i = threadIdx.x, value;
    x[i] = i;
    __syncthreads();
    const u32 *from = x + (BUG == 2 ? i : i ^ 32); // 2: its own
    if (BUG == 0)
        value = *(volatile const u32 *)from;
    else
        asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    out[i] = BUG == 2 ? value ^ 32 : value;
}

// In place: each thread loads an element, and stores it afterwards.
// row: "in_place", 64, zero(128), wrong={1: GLOBAL}, leaves=[64 * [5] + 64 * [0]]
KERNEL in_place(u32 *x)
{
    u32 i = threadIdx.x;
    u32 value = __ldg(x + i) + __ldg(x + 64 + i);
    x[i] = value + 5;
    if (BUG == 1) { // a second step
        asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(value) : "l"(x + i) : "memory");
        x[i] = value + 5;
    }
}
