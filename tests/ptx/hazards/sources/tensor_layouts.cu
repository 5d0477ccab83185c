// Boxes that tcgen05.mma reads in the layout of the copy, or in another.
#include "hopper.cuh"
#include "blackwell.cuh"

enum { OF_128 = 2, OF_64 = 4, OF_32 = 6 };

// row: "tensor_boxes", 128, box_map(2, (128, 64), 128), box_map(3, (16, 64), 128),
//      integers("f16", 128, 64, low=-4, high=5), integers("f16", 16, 64, low=-4, high=5), output("f32", 128, 16),
//      wrong={1: LAYOUT, 2: LAYOUT, 3: LAYOUT, 4: LAYOUT}
KERNEL tensor_boxes(const __grid_constant__ Map of_a, const __grid_constant__ Map of_b, const u16 *a, const u16 *b, u32 *out)
{
    __shared__ alignas(1024) u16 A[128 * 64], B[16 * 64];
    __shared__ u64 full, done;
    __shared__ u32 place;
    if (threadIdx.x == 0) {
        init(&full, 1);
        init(&done, 1);
        fence_init();
        arrive_expect(&full, sizeof A + sizeof B);
        load_box(A, &of_a, 0, 0, &full);
        load_box(B, &of_b, 0, 0, &full);
    }
    if (warp() == 0) {
        alloc(&place);
        relinquish();
    }
    __syncthreads();
    wait(&full, 0);
    u32 tensor = *(volatile u32 *)&place;
    if (threadIdx.x == 0) {
        u64 swizzle = BUG == 1 ? OF_64 : BUG == 2 ? OF_32 : OF_128;
        for (int k = 0; k < 4; k++)
            mma(tensor, operand(A + 16 * k, 16, BUG == 3 ? 512 : 1024) | swizzle << 61,
                operand(B + 16 * k, 16, 1024) | (u64)(BUG == 4 ? 0 : OF_128) << 61, k > 0);
        commit(&done);
    }
    wait(&done, 0);
    after_sync();
    finish(out, tensor);
    end(tensor);
}

// A tile has 32 rows, and a product takes 128: its other rows are the next tiles, which are
// in flight.  Nobody uses the sums of these rows.
// row: "tensor_few_rows", 128, integers("f16", 2048, low=-4, high=5), integers("f16", 256, low=-4, high=5),
//      output("u32", 128, 16), wrong={1: READ}
KERNEL tensor_few_rows(const u16 *a, const u16 *b, u32 *out)
{
    __shared__ Tiles s;
    if (threadIdx.x == 0) {
        init(&s.full, 1);
        init(&s.done, 1);
        init(&s.next, 1);
        arrive_expect(&s.full, 1024 + RIGHT_BYTES);
        load(s.A, a, 1024, &s.full);
        load(s.B, b, RIGHT_BYTES, &s.full);
        arrive_expect(&s.next, 3 * 1024);
        load(s.A + 512, a + 512, 3 * 1024, &s.next);
    }
    if (warp() == 0) {
        alloc(&s.place);
        relinquish();
    }
    __syncthreads();
    wait(&s.full, 0);
    u32 tensor = *(volatile u32 *)&s.place;
    if (threadIdx.x == 0) {
        mma(tensor, operand(s.A), operand(s.B));
        commit(&s.done);
    }
    wait(&s.done, 0);
    after_sync();
    for (int column = 0; column < 16; column += 8) {
        u32 r[8];
        ld(r, tensor + column);
        wait_ld();
        if (BUG == 1 || warp() == 0)
            put(out, r, column);
    }
    wait(&s.next, 0);
    end(tensor);
}
