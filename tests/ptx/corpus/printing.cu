// printf and assert, which call functions that the PTX only declares.
#include <cassert>
#include <cstdio>

#include "common.cuh"

KERNEL printing(const int *x, const double *y, int *count, int n) {
    if (threadIdx.x == 0)
        for (int i = 0; i < n; i++) {
            printf("%d: %5d %08x %g|%-6s|%c %llu %%\n", i, x[i], x[i], y[i], i & 1 ? "odd" : "even", 'a' + i,
                   static_cast<unsigned long long>(x[i]) * 1000003ull);
            atomicAdd(count, 1);
        }
    if (threadIdx.x == 0) printf("done\n");
}

KERNEL asserting(const int *x, int *y, int most) {
    int value = x[global_id()];
    assert(value <= most && "the caller promised");
    y[global_id()] = most - value;
}
