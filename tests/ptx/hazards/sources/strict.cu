// What the manual wants of tcgen05 and compilers leave out: only strict=True asks for it.
#include "hopper.cuh"
#include "blackwell.cuh"

// After the wait for the commit, and around the barrier before the product.
KERNEL fenced(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b), r[8];
    for (int i = 0; i < 8; i++)
        r[i] = *(const u32 *)&a[threadIdx.x / 8 * 128 + i / 4 * 64 + threadIdx.x % 8 * 8 + i % 4 * 2];
    st(tensor + 16, r);
    wait_st();
    if (BUG != 1)
        before_sync();
    __syncthreads();
    if (threadIdx.x == 0) {
        if (BUG != 2)
            after_sync();
        mma_stored(tensor, tensor + 16, operand(s.B));
        commit(&s.done);
    }
    wait(&s.done, 0);
    if (BUG != 3)
        after_sync();
    finish(out, tensor);
    end(tensor);
}

// Two copies to the same cells, with a product in between: in the order of issue.
KERNEL copied_twice(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b);
    if (threadIdx.x == 0) {
        copy_in(tensor + 16, operand(s.A));
        mma_stored(tensor, tensor + 16, operand(s.B));
        if (BUG == 0) {
            commit(&s.next);
            wait(&s.next, 0);
            after_sync();
        }
        copy_in(tensor + 16, operand(s.A));
        commit(&s.done);
    }
    wait(&s.done, 0);
    after_sync();
    finish(out, tensor);
    end(tensor);
}

// Registers of tcgen05.ld are used before tcgen05.wait::ld.
KERNEL loaded(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    u32 tensor = begin(s, a, b), r[8];
    if (threadIdx.x == 0) {
        mma(tensor, operand(s.A), operand(s.B));
        commit(&s.done);
    }
    wait(&s.done, 0);
    after_sync();
    ld(r, tensor);
    if (BUG == 2) // waits for stores
        wait_st();
    if (BUG == 0)
        wait_ld();
    put(out, r);
    if (BUG != 0)
        wait_ld();
    end(tensor);
}
