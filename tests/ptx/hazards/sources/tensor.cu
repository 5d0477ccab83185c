// tcgen05 and tensor memory, used as they should be and as they must not be.
#include "hopper.cuh"
#include "blackwell.cuh"

// A product of one tile.  The sums are loaded before the mbarrier of the commit says that
// they are there; the commit comes before the product; the wait is for another phase.
KERNEL product(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b);
    if (threadIdx.x == 0) {
        if (BUG == 2)
            commit(&s.done);
        mma(tensor, operand(s.A), operand(s.B));
        if (BUG != 2)
            commit(&s.done);
    }
    if (BUG != 1)
        wait(&s.done, BUG == 3);
    after_sync();
    finish(out, tensor);
    if (BUG == 1 || BUG == 3)
        wait(&s.done, 0);
    end(tensor);
}

// Several products add to the same sums, one commit for all of them.
KERNEL chain(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 4; i++)
            mma(tensor, operand(s.A), operand(s.B), i > 0);
        commit(&s.done);
    }
    wait(&s.done, 0);
    after_sync();
    finish(out, tensor);
    end(tensor);
}

// A comes from registers.  Without tcgen05.wait::st, or without the barrier, it need not be
// there when the product reads it.
KERNEL stored(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b), r[8];
    for (int i = 0; i < 8; i++) // a row of A, two elements in each word
        r[i] = *(const u32 *)&a[threadIdx.x / 8 * 128 + i / 4 * 64 + threadIdx.x % 8 * 8 + i % 4 * 2];
    st(tensor + 16, r);
    if (BUG != 1)
        wait_st();
    before_sync();
    if (BUG != 2)
        __syncthreads();
    if (threadIdx.x == 0) {
        after_sync();
        mma_stored(tensor, tensor + 16, operand(s.B));
        commit(&s.done);
    }
    wait(&s.done, 0);
    after_sync();
    finish(out, tensor);
    end(tensor);
}

// A is copied into tensor memory.  The product may follow at once; a load may not.
KERNEL copied_in(const u16 *a, const u16 *b, u32 *out, u32 *words)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b), r[8];
    if (threadIdx.x == 0) {
        copy_in(tensor + 16, operand(s.A));
        mma_stored(tensor, tensor + 16, operand(s.B));
        commit(&s.done);
    }
    if (BUG != 1)
        wait(&s.done, 0);
    after_sync();
    ld(r, tensor + 16);
    wait_ld();
    for (int i = 0; i < 8; i++)
        words[8 * threadIdx.x + i] = r[i];
    if (BUG == 1)
        wait(&s.done, 0);
    finish(out, tensor);
    end(tensor);
}

// Tensor memory is given back while it is in use: other warps still load it; the product
// need not be done.
KERNEL freed(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b);
    if (threadIdx.x == 0) {
        mma(tensor, operand(s.A), operand(s.B));
        commit(&s.done);
    }
    if (BUG != 2) {
        wait(&s.done, 0);
        after_sync();
        finish(out, tensor);
    }
    if (BUG == 0)
        end(tensor);
    else if (warp() == 0)
        dealloc(tensor);
}

// B is overwritten while the product may still read it: by a copy, or by stores.
KERNEL refilled_operand(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b);
    if (threadIdx.x == 0) {
        mma(tensor, operand(s.A), operand(s.B));
        commit(&s.done);
        if (BUG == 0)
            wait(&s.done, 0);
        if (BUG == 2) {
            put((u32 *)s.B, 0);
        } else {
            arrive_expect(&s.more, RIGHT_BYTES);
            load(s.B, b + 256, RIGHT_BYTES, &s.more);
            wait(&s.more, 0);
            mma(tensor, operand(s.A), operand(s.B), 1);
            commit(&s.next);
        }
    }
    wait(BUG == 2 ? &s.done : &s.next, 0);
    after_sync();
    finish(out, tensor);
    end(tensor);
}

// B is written by ordinary stores.  The Tensor Core reads through the async proxy.
KERNEL written_operand(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b);
    put((u32 *)s.B + threadIdx.x, 0x3C003C00);
    if (BUG == 2)
        put((u32 *)s.A + threadIdx.x, 0x3C003C00);
    if (BUG == 0)
        fence_async();
    before_sync();
    __syncthreads();
    after_sync();
    if (threadIdx.x == 0) {
        if (BUG == 2) { // as a copy
            copy_in(tensor + 16, operand(s.A));
            commit(&s.next);
        } else {
            mma(tensor, operand(s.A), operand(s.B));
            commit(&s.done);
        }
    }
    if (BUG == 2) {
        wait(&s.next, 0);
    } else {
        wait(&s.done, 0);
        after_sync();
        finish(out, tensor);
    }
    end(tensor);
}

// Cells that nobody has written are loaded; sums that nobody has set are added to.
KERNEL unset_cells(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b), r[8];
    if (threadIdx.x == 0) {
        mma(tensor, operand(s.A), operand(s.B), BUG == 2);
        commit(&s.done);
    }
    wait(&s.done, 0);
    after_sync();
    ld(r, tensor + (BUG == 1 ? 16 : 0));
    wait_ld();
    put(out, r);
    end(tensor);
}

// Columns that are not freed; allocation after the permit was given up; too many columns.
KERNEL allocation(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b), r[8];
    if (BUG == 2 && warp() == 1)
        alloc(&s.place);
    if (threadIdx.x == 0) {
        mma(tensor + (BUG == 3 ? 24 : 0), operand(s.A), operand(s.B));
        commit(&s.done);
    }
    wait(&s.done, 0);
    after_sync();
    ld(r, tensor);
    wait_ld();
    put(out, r);
    if (BUG != 1)
        end(tensor);
}

// A product with half the rows writes the sums of another one.
KERNEL two_shapes(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b);
    if (threadIdx.x == 0) {
        mma(tensor, operand(s.A), operand(s.B));
        commit(&s.done);
        if (BUG == 0)
            wait(&s.done, 0);
        after_sync();
        mma(tensor, operand(s.A), operand(s.B), 0, HALF_PRODUCT);
        commit(&s.next);
    }
    wait(&s.next, 0);
    after_sync();
    finish(out, tensor);
    end(tensor);
}

// Two threads issue products with the same sums, the second after the first.
KERNEL two_issuers(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b);
    if (threadIdx.x == 0) {
        mma(tensor, operand(s.A), operand(s.B));
        before_sync();
        arrive(&s.next);
        commit(&s.done);
    }
    if (threadIdx.x == 32) {
        if (BUG == 0)
            wait(&s.next, 0);
        after_sync();
        mma(tensor, operand(s.A), operand(s.B), 1);
        commit(&s.more);
    }
    wait(&s.done, 0);
    wait(&s.more, 0);
    after_sync();
    finish(out, tensor);
    end(tensor);
}

// The loop of a GEMM: warp 4 copies, warp 5 multiplies, and the commit gives the stage free.
// Wrong: an arrival right after the product gives it free; or nobody waits for that.
KERNEL pipeline(const u16 *a, const u16 *b, u32 *out, int steps)
{
    __shared__ struct { alignas(128) u16 A[2][2048]; alignas(128) u16 B[2][256]; u64 full[2], empty[2], done; u32 place; } s;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) {
            init(&s.full[i], 1);
            init(&s.empty[i], 1);
        }
        init(&s.done, 1);
    }
    if (warp() == 0)
        alloc(&s.place);
    __syncthreads();
    u32 tensor = *(volatile u32 *)&s.place;
    if (threadIdx.x == 128)
        for (int i = 0; i < steps; i++) {
            int stage = i & 1, turn = i >> 1 & 1;
            if (BUG != 2)
                wait(&s.empty[stage], turn ^ 1);
            arrive_expect(&s.full[stage], LEFT_BYTES + RIGHT_BYTES);
            load(s.A[stage], a + 2048 * i, LEFT_BYTES, &s.full[stage]);
            load(s.B[stage], b + 256 * i, RIGHT_BYTES, &s.full[stage]);
        }
    if (threadIdx.x == 160) {
        for (int i = 0; i < steps; i++) {
            int stage = i & 1, turn = i >> 1 & 1;
            wait(&s.full[stage], turn);
            after_sync();
            mma(tensor, operand(s.A[stage]), operand(s.B[stage]), i > 0);
            if (BUG == 1)
                arrive(&s.empty[stage]);
            else
                commit(&s.empty[stage]);
        }
        commit(&s.done);
    }
    __syncwarp();
    if (warp() < 4) {
        wait(&s.done, 0);
        after_sync();
        finish(out, tensor);
    }
    end(tensor);
}

// Sums in two buffers: warps 0-3 load one while warp 4 fills the other.  Wrong: a buffer is
// given free before tcgen05.wait::ld; before anybody has loaded it; or nobody waits for that.
KERNEL sums_in_turns(const u16 *a, const u16 *b, u32 *out, int steps)
{
    __shared__ Tiles s;
    __shared__ u64 filled[2], taken[2];
    if (threadIdx.x == 0)
        for (int i = 0; i < 2; i++) {
            init(&filled[i], 1);
            init(&taken[i], 128);
        }
    u32 tensor = begin(s, a, b);
    if (threadIdx.x == 128)
        for (int i = 0; i < steps; i++) {
            int buffer = i & 1, turn = i >> 1 & 1;
            if (BUG != 2)
                wait(&taken[buffer], turn ^ 1);
            after_sync();
            mma(tensor + 16 * buffer, operand(s.A), operand(s.B));
            commit(&filled[buffer]);
        }
    __syncwarp();
    if (warp() < 4)
        for (int i = 0; i < steps; i++) {
            int buffer = i & 1, turn = i >> 1 & 1;
            wait(&filled[buffer], turn);
            after_sync();
            if (BUG == 1) {
                u32 r[8];
                ld(r, tensor + 16 * buffer);
                arrive(&taken[buffer]);
                wait_ld();
                put(out + 2048 * i, r);
            } else {
                finish(out + 2048 * i, tensor + 16 * buffer);
                before_sync();
                arrive(&taken[buffer]);
            }
        }
    end(tensor);
}

// Block 1 of four copies into blocks 1 and 3.  The mbarrier of block 0 counts what goes to
// the first pair of blocks, that of block 2 what goes to the second.
KERNEL counted_by_pairs(const __grid_constant__ Map map, u32 *out, const u32 *tensor)
{
    __shared__ alignas(128) u32 tile[128];
    __shared__ u64 full;
    if (threadIdx.x == 0 && rank() % 2 == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, 512);
    }
    cluster_arrive();
    cluster_wait();
    if (threadIdx.x == 0 && rank() == 1)
        asm volatile("cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;"
                     ::"r"(at(tile)), "l"(&map), "r"(16), "r"(4), "r"(remote(&full, 0)), "h"((u16)10) : "memory");
    if (rank() % 2 == 0) {
        if (BUG == 0 || rank() == 0)
            wait(&full, 0);
        out[64 * rank() + threadIdx.x] = load_remote(remote(&tile[threadIdx.x], rank() + 1));
        wait(&full, 0);
    }
    cluster_arrive();
    cluster_wait();
}
