// Tiles that a tensor copy has written, and that are read in this layout or another.
#include "hopper.cuh"

enum { SWIZZLE_128 = 1, SWIZZLE_64 = 2, SWIZZLE_32 = 3, PLAIN = 0 };

DEVICE u64 described(const void *tile, u64 swizzle, u32 stride, u32 leading = 0, u64 base = 0)
{
    return tile_of(tile, leading, stride) | swizzle << 62 | base << 49;
}

// A and B are K-major, 128 bytes of k in each row; four products advance along k.
// row: "k_major", 128, box_map(2, (64, 64), 128), box_map(3, (8, 64), 128),
//      integers("f16", 64, 64, low=-4, high=5), integers("f16", 8, 64, low=-4, high=5), D,
//      wrong={1: LAYOUT, 2: LAYOUT, 3: LAYOUT, 4: LAYOUT, 5: LAYOUT, 6: LAYOUT}
KERNEL k_major(const __grid_constant__ Map of_a, const __grid_constant__ Map of_b, const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(1024) u16 A[64 * 64], B[8 * 64];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, sizeof A + sizeof B);
        load_box(A, &of_a, 0, 0, &full);
        load_box(B, &of_b, 0, 0, &full);
    }
    __syncthreads();
    wait(&full, 0);
    u64 swizzle = BUG == 1 ? SWIZZLE_64 : BUG == 2 ? PLAIN : SWIZZLE_128;
    u32 stride = BUG == 3 ? 512 : 1024;
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    for (int k = 0; k < 4; k++) {
        u32 shift = 16 * k + (BUG == 4 ? 8 : 0);
        wgmma(d, described(A + shift, swizzle, stride, 16, BUG == 5), described(B + 16 * k, BUG == 6 ? SWIZZLE_32 : SWIZZLE_128, 1024, 16));
    }
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// A comes by a plain copy, as it was packed before: only the descriptor itself is judged.
// Its parts overlap, or begin at different bytes of their lines.
// row: "prepacked", 128, box_map(2, (8, 64), 128), integers("f16", 64, 64, low=-4, high=5),
//      integers("f16", 8, 64, low=-4, high=5), D,
//      wrong={1: Mistake((LAYOUT,), WARNING), 2: Mistake((LAYOUT,), WARNING), 3: Mistake((LAYOUT,), WARNING)}
KERNEL prepacked(const __grid_constant__ Map of_b, const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(1024) u16 A[64 * 64 + 64], B[8 * 64];
    __shared__ u64 full;
    if (threadIdx.x < 64) A[64 * 64 + threadIdx.x] = 0;
    fence_async();
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, 64 * 64 * 2 + sizeof B);
        load(A, a, 64 * 64 * 2, &full);
        load_box(B, &of_b, 0, 0, &full);
    }
    __syncthreads();
    wait(&full, 0);
    u32 stride = BUG == 1 ? 512 : BUG == 2 ? 1024 - 128 : BUG == 3 ? 1024 + 16 : 1024;
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    for (int k = 0; k < 4; k++)
        wgmma(d, described(A + 16 * k, SWIZZLE_128, stride, 16), described(B + 16 * k, SWIZZLE_128, 1024, 16));
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

DEVICE void wgmma32(float (&d)[16], u64 a, u64 b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
                 "%12, %13, %14, %15}, %16, %17, 1, 1, 1, 1, 1;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
                   "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])
                 : "l"(a), "l"(b) : "memory");
}

// Both are MN-major: rows of k.  B is two boxes of 16 columns, side by side.
// row: "mn_major", 128, box_map(2, (32, 64), 128), box_map(3, (32, 16), 32),
//      integers("f16", 32, 64, low=-4, high=5), integers("f16", 32, 32, low=-4, high=5),
//      output("f32", 64, 32), wrong={1: LAYOUT, 2: LAYOUT, 3: LAYOUT, 4: LAYOUT}
KERNEL mn_major(const __grid_constant__ Map of_a, const __grid_constant__ Map of_b, const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(1024) u16 A[32 * 64], B[2][32 * 16];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, sizeof A + sizeof B);
        load_box(A, &of_a, 0, 0, &full);
        load_box(B[0], &of_b, 0, 0, &full);
        load_box(B[1], &of_b, 16, 0, &full);
    }
    __syncthreads();
    wait(&full, 0);
    u32 leading = BUG == 1 ? 512 : BUG == 2 ? 256 : 1024, stride = BUG == 2 ? 1024 : 256;
    u64 swizzle = BUG == 3 ? SWIZZLE_64 : SWIZZLE_32;
    float d[16] = {};
    wgmma_fence();
    for (int k = 0; k < 2; k++)
        wgmma32(d, described(A + 1024 * k, SWIZZLE_128, BUG == 4 ? 2048 : 1024, 0), described(B[0] + 256 * k, swizzle, stride, leading));
    wgmma_commit();
    wgmma_wait<0>();
    for (int n = 0; n < 4; n++) {
        float part[4] = {d[4 * n], d[4 * n + 1], d[4 * n + 2], d[4 * n + 3]};
        u32 row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, column = 8 * n + threadIdx.x % 4 * 2;
        for (int i = 0; i < 4; i++)
            out[(row + i / 2 * 8) * 32 + column + i % 2] = part[i];
    }
}

// Without a swizzle, a box has 16 bytes of k: eight boxes are a tile.
// row: "plain_boxes", 128, box_map(2, (64, 8), 0), box_map(3, (8, 8), 0),
//      integers("f16", 64, 16, low=-4, high=5), integers("f16", 8, 16, low=-4, high=5), D,
//      wrong={1: LAYOUT, 2: LAYOUT}
KERNEL plain_boxes(const __grid_constant__ Map of_a, const __grid_constant__ Map of_b, const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(1024) u16 A[2][64 * 8], B[2][8 * 8];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, sizeof A + sizeof B);
        for (int k = 0; k < 2; k++) {
            load_box(A[k], &of_a, 8 * k, 0, &full);
            load_box(B[k], &of_b, 8 * k, 0, &full);
        }
    }
    __syncthreads();
    wait(&full, 0);
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    u32 leading = BUG == 1 ? 256 : 1024, stride = BUG == 2 ? 144 : 128;
    wgmma(d, tile_of(A, leading, stride), tile_of(B, 128, 128));
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// Threads bring a box into the layout that the product takes: nothing is wrong with it.
// row: "rearranged", 128, box_map(2, (64, 16), 0), box_map(3, (8, 16), 0),
//      integers("f16", 64, 16, low=-4, high=5), integers("f16", 8, 16, low=-4, high=5), D,
//      wrong={1: LAYOUT, 2: LAYOUT}
KERNEL rearranged(const __grid_constant__ Map of_a, const __grid_constant__ Map of_b, const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(1024) u16 A[64 * 16], B[8 * 16];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, sizeof A + sizeof B);
        load_box(A, &of_a, 0, 0, &full);
        load_box(B, &of_b, 0, 0, &full);
    }
    __syncthreads();
    wait(&full, 0);
    uint4 *units = (uint4 *)A, mine = units[threadIdx.x];
    uint4 *few = (uint4 *)B, other = few[threadIdx.x % 16];
    u32 row = threadIdx.x / 2, half = threadIdx.x % 2;
    __syncthreads();
    if (BUG != 1)
        units[row / 8 * 16 + half * 8 + row % 8] = mine;
    if (BUG != 2 && threadIdx.x < 16)
        few[half * 8 + row] = other;
    fence_async();
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    wgmma(d, tile_of(A), tile_of(B));
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// Each lane of ldmatrix has to find its row in the swizzle of the copy.
// row: "matrix_rows", 32, box_map(1, (32, 64), 128), integers("f16", 32, 64, low=0, high=99), out(4, 32),
//      wrong={1: LAYOUT, 2: LAYOUT}
KERNEL matrix_rows(const __grid_constant__ Map map, const u16 *tensor, u32 *out)
{
    __shared__ alignas(1024) u16 tile[32 * 64];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, sizeof tile);
        load_box(tile, &map, 0, 0, &full);
    }
    __syncwarp();
    wait(&full, 0);
    u32 row = lane(), unit = 3;
    u32 there = BUG == 1 ? unit : unit ^ row % (BUG == 2 ? 4 : 8), r[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at(tile + 64 * row + 8 * there)) : "memory");
    for (int i = 0; i < 4; i++)
        out[32 * i + lane()] = r[i];
}

// Two tiles of k; of each, A and B advance together, one product after another.
// row: "k_steps", 128, box_map(2, (64, 64), 128), box_map(3, (8, 64), 128),
//      integers("f16", 64, 128, low=-4, high=5), integers("f16", 8, 128, low=-4, high=5), D,
//      wrong={1: STEPS, 2: STEPS, 3: STEPS, 4: STEPS, 5: STEPS}
KERNEL k_steps(const __grid_constant__ Map of_a, const __grid_constant__ Map of_b, const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(1024) u16 A[2][64 * 64], B[2][8 * 64];
    __shared__ u64 full[2];
    if (threadIdx.x == 0) {
        for (int tile = 0; tile < 2; tile++) {
            init(&full[tile], 1);
            fence_init();
            arrive_expect(&full[tile], sizeof A[0] + sizeof B[0]);
            load_box(A[tile], &of_a, 64 * tile, 0, &full[tile]);
            // The tiles of B overlap.
            load_box(B[tile], &of_b, (BUG == 4 ? 32 : 64) * tile, 0, &full[tile]);
        }
    }
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    for (int tile = 0; tile < 2; tile++) {
        wait(&full[tile], 0);
        wgmma_fence();
        for (int k = 0; k < 4; k++) {
            // Twice as far, at most to the end; the next one, around the end; not at all.
            int of = BUG == 1 ? (k < 2 ? 2 * k : 3) : BUG == 2 ? (k + 1) % 4 : BUG == 3 ? 0 : k;
            const u16 *from = B[BUG == 5 ? 0 : tile]; // the first tile, again
            wgmma(d, described(A[tile] + 16 * k, SWIZZLE_128, 1024, 16), described(from + 16 * of, SWIZZLE_128, 1024, 16));
        }
        wgmma_commit();
        wgmma_wait<0>();
    }
    put(out, d);
}

// The same from memory that threads have stored to, in one group of products.
// row: "stored_k_steps", 128, integers("f16", 64, 64, low=-4, high=5),
//      integers("f16", 8, 64, low=-4, high=5), D, wrong={1: STEPS, 2: STEPS}
KERNEL stored_k_steps(const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(1024) u16 A[64 * 64], B[8 * 64];
    for (int i = threadIdx.x; i < 64 * 64; i += 128)
        A[i ^ (i / 64 % 8 * 8)] = a[i];
    for (int i = threadIdx.x; i < 8 * 64; i += 128)
        B[i ^ (i / 64 % 8 * 8)] = b[i];
    fence_async();
    __syncthreads();
    float d[4] = {0, 0, 0, 0};
    wgmma_fence();
    for (int k = 0; k < 4; k++) {
        int of = BUG == 1 ? (k + 1) % 4 : BUG == 2 ? 3 - k : k;
        wgmma(d, described(A + 16 * k, SWIZZLE_128, 1024, 16), described(B + 16 * of, SWIZZLE_128, 1024, 16));
    }
    wgmma_commit();
    wgmma_wait<0>();
    put(out, d);
}

// Right, and like a mistake: two sums from the same tiles, whose k do not agree with one another.
// row: "two_sums", 128, box_map(2, (64, 64), 128), box_map(3, (8, 64), 128),
//      integers("f16", 64, 64, low=-4, high=5), integers("f16", 8, 64, low=-4, high=5),
//      output("f32", 128, 8), wrong={1: STEPS}
KERNEL two_sums(const __grid_constant__ Map of_a, const __grid_constant__ Map of_b, const u16 *a, const u16 *b, float *out)
{
    __shared__ alignas(1024) u16 A[64 * 64], B[8 * 64];
    __shared__ u64 full;
    if (threadIdx.x == 0) {
        init(&full, 1);
        fence_init();
        arrive_expect(&full, sizeof A + sizeof B);
        load_box(A, &of_a, 0, 0, &full);
        load_box(B, &of_b, 0, 0, &full);
    }
    __syncthreads();
    wait(&full, 0);
    for (int head = 0; head < 2; head++) {
        // Both heads of A share the first half of B.
        float d[4] = {0, 0, 0, 0};
        wgmma_fence();
        for (int k = 0; k < 2; k++) {
            int of = BUG == 1 && head == 1 ? 1 - k : k;
            wgmma(d, described(A + 32 * head + 16 * k, SWIZZLE_128, 1024, 16), described(B + 16 * of, SWIZZLE_128, 1024, 16));
        }
        wgmma_commit();
        wgmma_wait<0>();
        put(out + 512 * head, d);
    }
}
