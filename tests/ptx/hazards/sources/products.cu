// wgmma used as it must not be used.
#include "hopper.cuh"

struct Operands { alignas(128) u16 A[1024]; alignas(128) u16 B[256]; u64 full; };

// A and B come by bulk copies; b_bytes is what of B is copied.
DEVICE void fetch(Operands &s, const u16 *a, const u16 *b, u32 b_bytes = B_BYTES)
{
    if (threadIdx.x == 0) {
        init(&s.full, 1);
        fence_init();
        arrive_expect(&s.full, A_BYTES + b_bytes);
        load(s.A, a, A_BYTES, &s.full);
        load(s.B, b, b_bytes, &s.full);
    }
    __syncthreads();
    wait(&s.full, 0);
}

// Sums are read before wgmma.wait_group.
KERNEL early_sums(const u16 *a, const u16 *b, float *out)
{
    __shared__ Operands s;
    fetch(s, a, b);
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma(d, tile_of(s.A), tile_of(s.B));
    wgmma_commit();
    if (BUG == 1)
        put(out, d);
    if (BUG == 2) {
        wgmma_wait<1>();
        put(out, d);
    }
    wgmma_wait<0>();
    if (BUG == 0)
        put(out, d);
}

// Registers of A are read while the product may be running.
KERNEL a_in_registers(const u32 *a, const u16 *zeros, const u16 *b, float *out, u32 *copy)
{
    __shared__ Operands s;
    fetch(s, zeros, b);
    u32 r[4];
    for (int i = 0; i < 4; i++)
        r[i] = a[4 * threadIdx.x + i];
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma(d, r, tile_of(s.B));
    wgmma_commit();
    if (BUG != 0)
        copy[threadIdx.x] = r[0];
    wgmma_wait<0>();
    if (BUG == 0)
        copy[threadIdx.x] = r[0];
    put(out, d);
}

// wgmma.fence is missing: before the first product, or after the sums were changed.
KERNEL fences(const u16 *a, const u16 *b, float *out)
{
    __shared__ Operands s;
    fetch(s, a, b);
    float d[4] = {1, 1, 1, 1};
    if (BUG != 1)
        wgmma_fence();
    wgmma(d, tile_of(s.A), tile_of(s.B));
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < 4; i++)
        d[i] *= 2;
    if (BUG != 2)
        wgmma_fence();
    wgmma(d, tile_of(s.A), tile_of(s.B));
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// A product that nobody waits for.
KERNEL forgotten_product(const u16 *a, const u16 *b, float *out)
{
    __shared__ Operands s;
    fetch(s, a, b);
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma(d, tile_of(s.A), tile_of(s.B));
    if (BUG != 2)
        wgmma_commit();
    if (BUG == 0) {
        wgmma_wait<0>();
        put(out, d);
    }
}

// An operand is overwritten by stores before wgmma.wait_group.
KERNEL early_store(const u16 *a, const u16 *b, float *out)
{
    __shared__ Operands s;
    fetch(s, a, b);
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma(d, tile_of(s.A), tile_of(s.B));
    wgmma_commit();
    if (BUG == 0) {
        wgmma_wait<0>();
        __syncthreads();
    }
    if (threadIdx.x < 64)
        put((u32 *)s.B + threadIdx.x, 0);
    if (BUG == 2) // orders nothing that came before
        fence_async();
    wgmma_wait<0>();
    put(out, d);
}

// Descriptors: out of shared memory; a field that must be 0; different in each warp.
KERNEL descriptors(const u16 *a, const u16 *b, float *out)
{
    __shared__ Operands s;
    fetch(s, a, b);
    u64 tile = tile_of(s.B);
    if (BUG == 1)
        tile = tile_of(s.B) | 0x3F00;
    if (BUG == 2)
        tile |= 1ull << 14;
    if (BUG == 3)
        tile = tile_of(s.B + 8 * warp());
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma(d, tile_of(s.A), tile);
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// A sparse product with the metadata that it is given.
KERNEL metadata(const u16 *a, const u16 *b, const u32 *words, float *out)
{
    __shared__ Operands s;
    fetch(s, a, b, 2 * B_BYTES);
    float d[4] = {0, 0, 0, 0};
    u32 word = words[threadIdx.x];
    if (BUG == 1) // the same column twice
        word = 0x55555555;
    if (BUG == 2 && threadIdx.x == 4) // in one row only
        word = 0x44044444;
    wgmma_fence();
    wgmma_sparse(d, tile_of(s.A), tile_of(s.B, 128, 512), word);
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// A part of B was never copied.
KERNEL half_operand(const u16 *a, const u16 *b, float *out)
{
    __shared__ Operands s;
    fetch(s, a, b, BUG == 0 ? B_BYTES : B_BYTES / 2);
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma(d, tile_of(s.A), tile_of(s.B));
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// wgmma that not all lanes, or not all warps, of the warpgroup reach.
KERNEL some_threads(const u16 *a, const u16 *b, float *out)
{
    __shared__ Operands s;
    fetch(s, a, b);
    float d[4] = {0, 0, 0, 0};
    if (BUG == 0 || (BUG == 1 && lane() < 31) || (BUG == 2 && warp() != 3)) {
        wgmma_fence();
        wgmma(d, tile_of(s.A), tile_of(s.B));
        wgmma_commit();
        wgmma_wait<0>();
    }
    put(out, d);
}

// Registers that are written in PTX itself while a product may read them.
#define SPARSE "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, m, 0, 1, 1, 1, 0, 0;\n"
#define FROM_REGISTERS "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {a0, a1, a2, a3}, %8, 1, 1, 1, 0;\n"
#define FENCE "wgmma.fence.sync.aligned;\n"
#define COMMIT "wgmma.commit_group.sync.aligned;\n"
#define WAIT "wgmma.wait_group.sync.aligned 0;\n"
#define SUMS "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])

KERNEL metadata_register(const u16 *a, const u16 *b, const u32 *words, float *out)
{
    __shared__ Operands s;
    fetch(s, a, b, 2 * B_BYTES);
    float d[4] = {0, 0, 0, 0};
    u64 A = tile_of(s.A), B = tile_of(s.B, 128, 512);
    u32 word = words[threadIdx.x];
    if (BUG == 0)
        asm volatile("{ .reg .b32 m; mov.b32 m, %6;\n" FENCE SPARSE COMMIT WAIT "mov.b32 m, 0; }"
                     : SUMS : "l"(A), "l"(B), "r"(word) : "memory");
    else if (BUG == 1)
        asm volatile("{ .reg .b32 m; mov.b32 m, %6;\n" FENCE SPARSE "mov.b32 m, 0x44444444;\n" COMMIT WAIT "}"
                     : SUMS : "l"(A), "l"(B), "r"(word) : "memory");
    else // between two products of one group
        asm volatile("{ .reg .b32 m; mov.b32 m, %6;\n" FENCE SPARSE "xor.b32 m, m, 0;\n" SPARSE COMMIT WAIT "}"
                     : SUMS : "l"(A), "l"(B), "r"(word) : "memory");
    put(out, d);
}

KERNEL a_registers(const u32 *a, const u16 *zeros, const u16 *b, float *out)
{
    __shared__ Operands s;
    fetch(s, zeros, b);
    u32 r[4];
    for (int i = 0; i < 4; i++)
        r[i] = a[4 * threadIdx.x + i];
    float d[4] = {0, 0, 0, 0};
#define MOVED "{ .reg .b32 a<4>; mov.b32 a0, %4; mov.b32 a1, %5; mov.b32 a2, %6; mov.b32 a3, %7;\n"
#define GIVEN : SUMS : "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "l"(tile_of(s.B)) : "memory"
    if (BUG == 0)
        asm volatile(MOVED FENCE FROM_REGISTERS COMMIT WAIT "mov.b32 a0, 0; }" GIVEN);
    else
        asm volatile(MOVED FENCE FROM_REGISTERS COMMIT "mov.b32 a0, 0;\n" WAIT "}" GIVEN);
    put(out, d);
}
