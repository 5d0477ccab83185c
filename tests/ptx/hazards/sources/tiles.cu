// Tiles that are larger than what they hold: what is behind the end is undefined, is
// moved and computed with, and does no harm unless somebody uses it.
#include "hopper.cuh"

// Registers of a partial tile go through shared memory; only whole elements are stored.
KERNEL dropped(const u32 *in, u32 *out, int count)
{
    __shared__ u32 tile[128];
    u32 items[2];
    for (int i = 0; i < 2; i++)
        if (2 * threadIdx.x + i < count)
            items[i] = in[2 * threadIdx.x + i];
    for (int i = 0; i < 2; i++)
        tile[2 * threadIdx.x + i] = items[i];
    __syncthreads();
    for (int i = 0; i < 2; i++)
        if (threadIdx.x + 64 * i < count + (BUG == 1))
            out[threadIdx.x + 64 * i] = tile[threadIdx.x + 64 * i];
}

// A warp adds up more words than there are warps; lanes of warps that are there use them.
KERNEL shuffled(const u32 *in, u32 *out)
{
    __shared__ u32 sums[32];
    u32 value = in[threadIdx.x];
    for (int step = 1; step < 32; step *= 2) {
        u32 before = __shfl_up_sync(~0u, value, step);
        if (lane() >= step)
            value += before;
    }
    if (lane() == 31)
        sums[warp()] = value;
    __syncthreads();
    if (warp() == 0) {
        u32 sum = get(&sums[lane()]); // only three of them are written
        for (int step = 1; step < 32; step *= 2) {
            u32 before = __shfl_up_sync(~0u, sum, step);
            if (lane() >= step)
                sum += before;
        }
        put(&sums[lane()], sum);
    }
    __syncthreads();
    if (warp() > 0)
        value += get(&sums[BUG == 1 ? 3 : warp() - 1]);
    out[threadIdx.x] = value;
}

// Each thread adds up its items, also those that it has not; a scan over the block.
KERNEL scanned(const u32 *in, u32 *out, int count)
{
    __shared__ u32 sums[64];
    u32 items[4];
    for (int i = 0; i < 4; i++)
        if (4 * threadIdx.x + i < count)
            items[i] = in[4 * threadIdx.x + i];
    for (int i = 1; i < 4; i++)
        items[i] += items[i - 1];
    sums[threadIdx.x] = items[3];
    __syncthreads();
    for (int step = 1; step < 64; step *= 2) {
        u32 before = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
        __syncthreads();
        sums[threadIdx.x] += before;
        __syncthreads();
    }
    u32 prefix = threadIdx.x ? sums[threadIdx.x - 1] : 0;
    for (int i = 0; i < 4; i++)
        if (4 * threadIdx.x + i < count)
            out[4 * threadIdx.x + i] = prefix + items[i];
    if (BUG == 1 && threadIdx.x == 0)
        out[count] = sums[63];
}

// The sum of the lanes before: the sum with one's own number, and then without it.
KERNEL cancelled(const u32 *in, u32 *out, int count)
{
    u32 mine;
    if (threadIdx.x < count)
        mine = in[threadIdx.x];
    u32 sum = mine;
    for (int step = 1; step < 32; step *= 2) {
        u32 before = __shfl_up_sync(~0u, sum, step);
        if (lane() >= step)
            sum += before;
    }
    if (threadIdx.x <= count + (BUG == 1))
        out[threadIdx.x] = sum - mine;
}

DEVICE void load_matrix(u32 (&to)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at(row)) : "memory");
}
DEVICE void load_matrix(u32 (&to)[2], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(to[0]), "=r"(to[1]) : "r"(at(row)) : "memory");
}
DEVICE void multiply(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Rows behind the end are multiplied; their rows of the result are not stored.
// BUG 2: what is behind the end is in every sum.
KERNEL some_rows(const u16 *a, const u16 *b, float *out, int rows)
{
    __shared__ alignas(16) u16 A[16 * 16], B[8 * 16];
    for (int i = threadIdx.x; i < 16 * 16; i += 32)
        if (i / 16 < rows && (BUG != 2 || i % 16 < 15))
            A[i] = a[i];
    for (int i = threadIdx.x; i < 8 * 16; i += 32)
        B[i] = b[i];
    __syncwarp();
    u32 left[4], right[2];
    float d[4] = {0, 0, 0, 0};
    load_matrix(left, &A[lane() % 16 * 16 + lane() / 16 * 8]);
    load_matrix(right, &B[lane() % 8 * 16 + lane() / 8 % 2 * 8]);
    multiply(d, left, right);
    for (int i = 0; i < 4; i++) {
        int row = lane() / 4 + i / 2 * 8, col = lane() % 4 * 2 + i % 2;
        if (row < rows + (BUG == 1))
            out[8 * row + col] = d[i];
    }
}

// Columns behind the end are replaced before anything is done with them.
KERNEL some_columns(const u16 *a, const u16 *b, float *out, int columns)
{
    __shared__ alignas(16) u16 A[16 * 16], B[8 * 16];
    for (int i = threadIdx.x; i < 16 * 16; i += 32)
        A[i] = a[i];
    for (int i = threadIdx.x; i < 8 * 16; i += 32)
        if (i / 16 < columns)
            B[i] = b[i];
    __syncwarp();
    u32 left[4], right[2];
    float d[4] = {0, 0, 0, 0};
    load_matrix(left, &A[lane() % 16 * 16 + lane() / 16 * 8]);
    load_matrix(right, &B[lane() % 8 * 16 + lane() / 8 % 2 * 8]);
    multiply(d, left, right);
    float most[2];
    for (int i = 0; i < 2; i++) {
        int col = lane() % 4 * 2;
        float one = col < columns + (BUG == 1) ? d[2 * i] : -1e30f;
        float two = col + 1 < columns + (BUG == 1) ? d[2 * i + 1] : -1e30f;
        most[i] = fmaxf(one, two);
        most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], 1));
        most[i] = fmaxf(most[i], __shfl_xor_sync(~0u, most[i], 2));
    }
    if (lane() % 4 == 0) {
        out[lane() / 4] = most[0];
        out[lane() / 4 + 8] = most[1];
    }
}

// An undefined word decides on a branch, or is an index; or the index before it does.
KERNEL decided(const u32 *in, u32 *out, int count)
{
    __shared__ u32 tile[32], other[32];
    if (threadIdx.x < count)
        tile[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    u32 found = get(&tile[threadIdx.x]);
    if (BUG != 1 && threadIdx.x >= count)
        found = 0;
    put(&other[threadIdx.x], threadIdx.x);
    if (found > 500)
        put(&other[threadIdx.x], 1);
    out[threadIdx.x] = get(&other[threadIdx.x]);
}
// Lanes behind the end branch, too, as for the sum of a row that is not there.
KERNEL branched(const u32 *in, u32 *out, int count)
{
    __shared__ u32 tile[32];
    if (threadIdx.x < count)
        tile[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    u32 found = get(&tile[threadIdx.x]), made;
    asm volatile("{ .reg .pred p; setp.gt.u32 p, %1, 500; mov.u32 %0, 7; @p bra DONE; mul.lo.u32 %0, %1, 3; DONE: }"
                 : "=r"(made) : "r"(found));
    if (threadIdx.x < count + (BUG == 1))
        out[threadIdx.x] = made;
}
KERNEL indexed(const u32 *in, u32 *out, int count)
{
    __shared__ u32 tile[32], table[32];
    put(&table[threadIdx.x], 3 * threadIdx.x);
    if (threadIdx.x < count)
        tile[threadIdx.x] = in[threadIdx.x] % 32;
    __syncwarp();
    u32 found = get(&tile[threadIdx.x]);
    u32 place = BUG == 1 || threadIdx.x < count ? found & 31 : 0;
    out[threadIdx.x] = get(&table[place]) & (threadIdx.x < count ? ~0u : 0);
}

// Half of a register is undefined; the other half, or its bits, are used.
KERNEL halves(const u32 *in, u32 *out)
{
    __shared__ u16 tile[64];
    tile[2 * threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    u32 both = get((const u32 *)tile + threadIdx.x), sum;
    asm volatile("add.rn.f16x2 %0, %1, %1;" : "=r"(sum) : "r"(both));
    u32 low = BUG == 1 ? both >> 8 : (both & 0xFFFF) + (both << 16 >> 20);
    out[threadIdx.x] = (sum & 0xFFFF) * 3 + low;
}

// Lanes behind the end vote; their bits are masked out.
KERNEL voted(const u32 *in, u32 *out, int count)
{
    u32 value;
    if (threadIdx.x < count)
        value = in[threadIdx.x];
    u32 large;
    asm volatile("{ .reg .pred p; setp.gt.u32 p, %1, 500; vote.sync.ballot.b32 %0, p, -1; }"
                 : "=r"(large) : "r"(value));
    out[threadIdx.x] = BUG == 1 ? large : large & ((1u << count) - 1);
}
