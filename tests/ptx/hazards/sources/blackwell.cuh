// The instructions of Blackwell's Tensor Core as functions, one instruction each.
#pragma once

// Tensor memory: 32 columns

DEVICE void alloc(u32 *place)
{
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(at(place)) : "memory");
}
DEVICE void relinquish() { asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory"); }
DEVICE void dealloc(u32 tensor)
{
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(tensor) : "memory");
}

// Loads and stores: the 32 lanes of a warp, 8 columns

DEVICE u32 lanes_of(u32 tensor) { return tensor + (warp() % 4 << 21); }
DEVICE void ld(u32 (&r)[8], u32 tensor)
{
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]), "=r"(r[7])
                 : "r"(lanes_of(tensor)) : "memory");
}
DEVICE void st(u32 tensor, const u32 (&r)[8])
{
    asm volatile("tcgen05.st.sync.aligned.32x32b.x8.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};"
                 ::"r"(lanes_of(tensor)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]), "r"(r[4]), "r"(r[5]), "r"(r[6]), "r"(r[7])
                 : "memory");
}
DEVICE void wait_ld() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
DEVICE void wait_st() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
DEVICE void before_sync() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
DEVICE void after_sync() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// Products m128n16k16 of f16 with sums of f32: tiles of 8 rows of 16 bytes, k fastest

enum { LEFT_BYTES = 4096, RIGHT_BYTES = 512, PRODUCT = 0x08040010, HALF_PRODUCT = 0x04040010 };
DEVICE u64 operand(const void *tile, u32 leading = 128, u32 stride = 256)
{
    return tile_of(tile, leading, stride) | 1ull << 46;
}
DEVICE void mma(u32 d, u64 a, u64 b, u32 adds = 0, u32 form = PRODUCT)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0; tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, p; }"
                 ::"r"(d), "l"(a), "l"(b), "r"(form), "r"(adds) : "memory");
}
DEVICE void mma_stored(u32 d, u32 a, u64 b)
{
    asm volatile("tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, 0;" ::"r"(d), "r"(a), "l"(b), "r"((u32)PRODUCT) : "memory");
}
DEVICE void copy_in(u32 tensor, u64 tile)
{
    asm volatile("tcgen05.cp.cta_group::1.128x256b [%0], %1;" ::"r"(tensor), "l"(tile) : "memory");
}
DEVICE void commit(u64 *bar)
{
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(at(bar)) : "memory");
}

// The operands of a product, by bulk copies, and 32 columns of tensor memory

struct Tiles { alignas(128) u16 A[2048]; alignas(128) u16 B[256]; u64 full, done, next, more; u32 place; };
DEVICE u32 begin(Tiles &s, const u16 *a, const u16 *b)
{
    if (threadIdx.x == 0) {
        init(&s.full, 1);
        init(&s.done, 1);
        init(&s.next, 1);
        init(&s.more, 1);
        arrive_expect(&s.full, LEFT_BYTES + RIGHT_BYTES);
        load(s.A, a, LEFT_BYTES, &s.full);
        load(s.B, b, RIGHT_BYTES, &s.full);
    }
    if (warp() == 0) {
        alloc(&s.place);
        relinquish();
    }
    __syncthreads();
    wait(&s.full, 0);
    return *(volatile u32 *)&s.place;
}
DEVICE void end(u32 tensor)
{
    before_sync();
    __syncthreads();
    after_sync();
    if (warp() == 0)
        dealloc(tensor);
}
// Eight sums of each row, from a column on, where they belong in a matrix of 128 x 16.
DEVICE void put(u32 *out, const u32 (&r)[8], u32 column = 0)
{
    for (int i = 0; i < 8; i++)
        asm volatile("st.global.u32 [%0], %1;" ::"l"(out + 16 * threadIdx.x + column + i), "r"(r[i]) : "memory");
}
DEVICE void finish(u32 *out, u32 tensor)
{
    for (int column = 0; column < 16; column += 8) {
        u32 r[8];
        ld(r, tensor + column);
        wait_ld();
        put(out, r, column);
    }
}
