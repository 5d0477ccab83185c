// Kernels as they were written before Hopper: barriers, atomics, flags, cp.async.
#include "hopper.cuh"

// Neighbours exchange values through shared memory.
KERNEL exchange(u32 *x)
{
    __shared__ u32 tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    if (BUG == 0)
        __syncthreads();
    else
        __syncwarp();
    x[threadIdx.x] = tile[63 - threadIdx.x];
}

// A loop reads the tile and writes the next one.
KERNEL sliding(const u32 *in, u32 *out, int steps)
{
    __shared__ u32 tile[64];
    u32 sum = 0;
    for (int i = 0; i < steps; i++) {
        tile[threadIdx.x] = in[64 * i + threadIdx.x];
        __syncthreads();
        sum = 3 * sum + tile[63 - threadIdx.x];
        if (BUG == 0)
            __syncthreads();
    }
    out[threadIdx.x] = sum;
}

// Two groups of warps, each with a barrier of its own.
KERNEL two_barriers(u32 *out)
{
    __shared__ u32 tile[128];
    u32 group = threadIdx.x / 64;
    tile[threadIdx.x] = threadIdx.x;
    if (BUG == 0)
        bar_sync(1 + group, 64);
    else // warps 0 and 2 meet, and warps 1 and 3
        bar_sync(1 + warp() % 2, 64);
    out[threadIdx.x] = tile[64 * group + (threadIdx.x ^ 63) % 64];
}

// bar.arrive by the producer, bar.sync by the consumer; and back.
KERNEL handed_over(u32 *out, int steps)
{
    __shared__ u32 tile[32];
    for (int i = 0; i < steps; i++) {
        if (warp() == 0) {
            if (i > 0)
                bar_sync(2, 64);
            tile[lane()] = 100 * i + lane();
            bar_arrive(1, 64);
        } else {
            bar_sync(1, 64);
            if (BUG != 0 && i + 1 < steps) // before it has read
                bar_arrive(2, 64);
            out[32 * i + lane()] = get(&tile[31 - lane()]);
            if (BUG == 0 && i + 1 < steps)
                bar_arrive(2, 64);
        }
    }
}

// Lanes of one warp exchange values.
KERNEL lanes(u32 *out)
{
    __shared__ u32 tile[32];
    put(&tile[threadIdx.x], threadIdx.x * 3);
    if (BUG == 0)
        __syncwarp();
    if (BUG == 2) // waits for the lanes, but orders no memory
        __shfl_sync(~0u, threadIdx.x, 0);
    out[threadIdx.x] = get(&tile[threadIdx.x ^ 1]);
}

// A sum over the lanes of a warp, step by step.
KERNEL warp_sum(u32 *x)
{
    __shared__ u32 tile[64];
    tile[threadIdx.x] = x[threadIdx.x];
    tile[threadIdx.x + 32] = 0;
    __syncwarp();
    u32 mine = tile[threadIdx.x];
    for (int step = 16; step > 0; step /= 2) {
        mine += get(&tile[threadIdx.x + step]);
        if (BUG == 0)
            __syncwarp();
        put(&tile[threadIdx.x], mine);
        if (BUG == 0)
            __syncwarp();
    }
    x[threadIdx.x] = mine;
}

KERNEL histogram(const u32 *x, u32 *out)
{
    __shared__ u32 bins[16];
    if (threadIdx.x < 16)
        bins[threadIdx.x] = 0;
    __syncthreads();
    if (BUG == 0)
        atomicAdd(&bins[x[threadIdx.x] & 15], 1);
    else
        bins[x[threadIdx.x] & 15]++;
    __syncthreads();
    if (threadIdx.x < 16)
        out[threadIdx.x] = bins[threadIdx.x];
}

// All blocks count in global memory.
KERNEL global_histogram(const u32 *x, u32 *bins)
{
    u32 bin = x[blockDim.x * blockIdx.x + threadIdx.x] & 15;
    if (BUG == 0)
        atomicAdd(&bins[bin], 1);
    else
        bins[bin]++;
}

// Each block writes its part, or a part that belongs to the next block as well.
KERNEL overlapping(u32 *out)
{
    u32 first = BUG == 0 ? 32 : 31;
    out[first * blockIdx.x + threadIdx.x] = blockIdx.x;
}

// A block reads what another block writes in the same launch.
KERNEL neighbour(u32 *x, u32 *out)
{
    u32 i = 32 * blockIdx.x + threadIdx.x;
    if (BUG == 0)
        out[i] = x[(i + 32) % 64] + 1;
    else
        x[i] = x[(i + 32) % 64] + 1;
}

// The block that comes last adds up what all blocks left.
KERNEL last_block(const u32 *x, u32 *part, u32 *count, u32 *out)
{
    __shared__ u32 last;
    part[32 * blockIdx.x + threadIdx.x] = 2 * x[32 * blockIdx.x + threadIdx.x];
    if (BUG != 1)
        __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        last = atomicAdd(count, 1) == gridDim.x - 1;
    __syncthreads();
    if (last) {
        if (BUG == 0)
            __threadfence();
        u32 sum = 0;
        for (int i = 0; i < gridDim.x; i++)
            sum += part[32 * i + threadIdx.x];
        out[threadIdx.x] = sum;
    }
}

// All blocks wait for all blocks.
KERNEL grid_barrier(u32 *x, u32 *count)
{
    u32 i = 32 * blockIdx.x + threadIdx.x;
    x[i] = 3 * i;
    __syncthreads();
    if (threadIdx.x == 0) {
        if (BUG != 1)
            __threadfence();
        atomicAdd(count, 1);
        while (*(volatile u32 *)count < gridDim.x) {}
        if (BUG != 1)
            __threadfence();
    }
    if (BUG != 2)
        __syncthreads();
    x[32 * gridDim.x + i] = x[32 * (gridDim.x - 1 - blockIdx.x) + threadIdx.x];
}

// Blocks hand partial sums on, the next one adds its own: split-k with flags.
KERNEL stream_k(const u32 *x, u32 *partial, u32 *flags, u32 *out)
{
    u32 sum = x[32 * blockIdx.x + threadIdx.x];
    if (blockIdx.x > 0) {
        if (threadIdx.x == 0)
            while (load_acquire(&flags[blockIdx.x - 1]) == 0) {}
        __syncthreads();
        sum += partial[32 * (blockIdx.x - 1) + threadIdx.x];
    }
    if (blockIdx.x + 1 < gridDim.x) {
        partial[32 * blockIdx.x + threadIdx.x] = sum;
        if (BUG != 2)
            __syncthreads();
        if (threadIdx.x == 0) {
            if (BUG == 0)
                store_release(&flags[blockIdx.x], 1);
            else if (BUG == 1)
                store_relaxed(&flags[blockIdx.x], 1);
            else
                store_release(&flags[blockIdx.x], 1);
        }
    } else
        out[threadIdx.x] = sum;
}

// A lock around an ordinary addition.
KERNEL locked(u32 *sum, u32 *lock)
{
    if (threadIdx.x == 0) {
        if (BUG == 0)
            while (atomicCAS(lock, 0, 1) != 0) {}
        if (BUG == 0)
            __threadfence();
        *sum += 1 + blockIdx.x;
        if (BUG == 0) {
            __threadfence();
            atomicExch(lock, 0);
        }
    }
}

// Double buffering with cp.async.
KERNEL double_buffer(const u32 *in, u32 *out, int steps)
{
    __shared__ alignas(16) u32 tile[2][64];
    u32 sum = 0;
    if (threadIdx.x < 16)
        copy16(&tile[0][4 * threadIdx.x], in + 4 * threadIdx.x);
    commit_copies();
    for (int i = 0; i < steps; i++) {
        if (i + 1 < steps && threadIdx.x < 16)
            copy16(&tile[(i + 1) & 1][4 * threadIdx.x], in + 64 * (i + 1) + 4 * threadIdx.x);
        commit_copies();
        if (BUG == 1)
            wait_copies<2>();
        else
            wait_copies<1>();
        __syncthreads();
        sum = 5 * sum + tile[i & 1][63 - threadIdx.x];
        if (BUG != 2)
            __syncthreads();
    }
    wait_copies<0>();
    out[threadIdx.x] = sum;
}

// cp.async whose data nobody waits for.
KERNEL forgotten_copy(const u32 *in, u32 *out)
{
    __shared__ alignas(16) u32 tile[32];
    copy4(&tile[threadIdx.x], in + threadIdx.x);
    if (BUG == 0 || BUG == 2)
        commit_copies();
    if (BUG == 0) {
        wait_copies<0>();
        out[threadIdx.x] = tile[threadIdx.x];
    } else
        out[threadIdx.x] = 1;
}

// A part of shared memory that nobody writes is read.
KERNEL unset_shared(const u32 *in, u32 *out)
{
    __shared__ u32 tile[64];
    if (BUG == 0 || threadIdx.x < 60)
        tile[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x ^ 5];
}

// A half of a padded tile that nobody writes is multiplied.
KERNEL unset_tail(const u32 *in, u32 *out, int count)
{
    __shared__ u32 tile[64];
    if (threadIdx.x < count)
        tile[threadIdx.x] = in[threadIdx.x];
    else if (BUG == 0)
        tile[threadIdx.x] = 0;
    __syncthreads();
    u32 sum = 0;
    for (int i = 0; i < 64; i++)
        sum += (i + 1) * tile[i];
    if (threadIdx.x == 0)
        *out = sum;
}

// A scratch array that the host does not set.
KERNEL unset_global(u32 *scratch, u32 *out)
{
    if (BUG == 0 || threadIdx.x != 7)
        scratch[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = scratch[threadIdx.x ^ 1];
}

// A sum into an array that the host does not set.
KERNEL unset_sum(u32 *sum, u32 *out)
{
    if (BUG == 0 && threadIdx.x == 0)
        *sum = 0;
    __syncthreads();
    atomicAdd(sum, threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0)
        *out = *sum;
}

// Threads that return after a barrier write what the others read.
KERNEL returned(u32 *out)
{
    __shared__ u32 tile[64];
    put(&tile[threadIdx.x], threadIdx.x);
    __syncthreads();
    if (threadIdx.x >= 32) {
        if (BUG != 0)
            put(&tile[threadIdx.x], 7);
        return;
    }
    out[threadIdx.x] = get(&tile[threadIdx.x + 32]);
}

// A barrier that only some warps reach.
KERNEL some_warps(u32 *out)
{
    out[threadIdx.x] = threadIdx.x;
    if (BUG == 0 || warp() == 0)
        bar_sync(0, 64);
    else
        bar_sync(1, 64);
    out[threadIdx.x] += 1;
}

// Two warps: each waits for a barrier at which the other one arrives only later.
KERNEL cycle(u32 *out)
{
    if (warp() == 0) {
        if (BUG == 0) {
            bar_arrive(1, 64);
            bar_sync(2, 64);
        } else {
            bar_sync(2, 64);
            bar_arrive(1, 64);
        }
    } else {
        bar_sync(1, 64);
        bar_arrive(2, 64);
    }
    out[threadIdx.x] = 1;
}

// bar.sync that only some lanes of a warp reach.
KERNEL some_lanes(u32 *out)
{
    if (BUG == 0 || threadIdx.x < 40)
        asm volatile("bar.sync 0;" ::: "memory");
    out[threadIdx.x] = 6;
}

// ldmatrix that only some lanes of a warp reach.
KERNEL some_lanes_load(const u32 *in, u32 *out)
{
    __shared__ alignas(16) u32 tile[32];
    tile[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    u32 r = 0;
    if (BUG == 0 || in[threadIdx.x] & 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
                     : "=r"(r) : "r"(at(tile + 4 * (threadIdx.x % 8))) : "memory");
    out[threadIdx.x] = r;
}

// A column of a matrix: all lanes use one bank, unless rows are padded.
KERNEL column(u32 *out)
{
    __shared__ u32 tile[32][BUG == 0 ? 33 : 32];
    put(&tile[threadIdx.x][5], threadIdx.x);
    __syncwarp();
    out[threadIdx.x] = get(&tile[threadIdx.x ^ 1][5]);
}

// Every second word: two lanes for each bank.
KERNEL stride_two(u32 *out)
{
    __shared__ u32 tile[64];
    u32 step = BUG == 0 ? 1 : 2;
    tile[step * threadIdx.x] = 4 * threadIdx.x;
    __syncwarp();
    out[threadIdx.x] = tile[step * (31 - threadIdx.x)];
}

// A register that only some lanes set is read by all.
KERNEL unset_register(const u32 *in, u32 *out)
{
    u32 value;
    if (BUG == 0)
        asm volatile("{ .reg .pred p; .reg .b32 x; setp.gt.u32 p, %1, 500; mov.u32 x, 3;\n"
                     "@p mov.u32 x, 7; add.u32 %0, x, 1; }" : "=r"(value) : "r"(in[threadIdx.x]));
    else if (BUG == 1)
        asm volatile("{ .reg .pred p; .reg .b32 x; setp.gt.u32 p, %1, 500;\n"
                     "@p mov.u32 x, 7; add.u32 %0, x, 1; }" : "=r"(value) : "r"(in[threadIdx.x]));
    else
        asm volatile("{ .reg .b32 x; add.u32 %0, x, %1; }" : "=r"(value) : "r"(in[threadIdx.x]));
    out[threadIdx.x] = value;
}
