// ACTIVATED: D is stored as the packed sparse A of the next product.
//
// The results are rounded to 16 bits.  Then they go through the activation, two of each
// four are kept and rounded to e4m3 with one scale.  Beside what result.cuh needs, the
// launcher defines ACTIVATION, FLOATS, PACKED_BLOCK (bytes of 64 rows and 128 columns of
// the packed D) and PLACES.

#include "chunk.cuh"
#include "places.cuh"

// Two words of a chunk.  A lane has one in each of two rows, and the next lane the other
// ones.  They swap: even lanes take the chunk of the upper row, odd lanes the lower one.
__device__ __forceinline__ void chunk_of_group(
    u32& low, u32& high, const ACCUMULATOR (&acc)[ACCUMULATORS], int g,
    const Rows& rows, const Columns& columns) {
    result_t v[4];
    take_group(v, acc, g, rows, columns);
    bool odd = threadIdx.x % 2;
    u32 upper = join(v[0], v[1]), lower = join(v[2], v[3]);
    u32 other = __shfl_xor_sync(~0u, odd ? upper : lower, 1);
    low = odd ? other : upper, high = odd ? lower : other;
}

// Write 128 columns of an m64 block to the staging buffer, as a packed block.  A unit has
// four groups of eight columns.  Lanes that are two apart have the two chunks of each
// group, in the same row.  They swap: one stores groups 0 and 2, the other 1 and 3.
__device__ __forceinline__ void pack_slice(
    u32 slice, const ACCUMULATOR (&acc)[ACCUMULATORS], int s, const Rows& rows,
    const Columns& columns) {
    int lane = threadIdx.x % 32, second = lane / 2 % 2;
    int row = threadIdx.x / 32 % 4 * 16 + lane / 4 + lane % 2 * 8;
#pragma unroll
    for (int unit = 0; unit < 4; unit++) {
        u32 low[4], high[4], bytes[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            chunk_of_group(low[i], high[i], acc, s * (COLUMNS / 8) + unit * 4 + i, rows,
                           columns);
        Kept kept = keep(low, high);
#pragma unroll
        for (int i = 0; i < 4; i++) bytes[i] = elements(kept.pairs[i], rows.bias[0]);
        u32 even = bytes[0] | bytes[2] << 16, odd = bytes[1] | bytes[3] << 16;
        u32 mine = second ? odd : even;
        u32 other = __shfl_xor_sync(~0u, second ? even : odd, 2);
        u32 codes = kept.codes << 4 * second;
        codes |= __shfl_xor_sync(~0u, codes, 2);
        Where where = places[4 * row + unit];
        u32 at = slice + where.values * 16 + second * 4;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at),
                     "r"(bytes_of(mine, other, second ? 0x1054 : 0x5410)) : "memory");
        asm volatile("st.shared.u32 [%0 + 8], %1;" ::"r"(at),
                     "r"(bytes_of(mine, other, second ? 0x3276 : 0x7632)) : "memory");
        if (!second)
            asm volatile("st.shared.u32 [%0], %1;"
                         ::"r"(slice + VALUES + where.codes), "r"(codes) : "memory");
    }
}

// Packed order is [256 rows][slab][64 rows].
__device__ __forceinline__ void store_packed(
    const Rows& rows, const Columns& columns, u32 slice, int row, int col) {
    if (!rows.packed || col >= columns.all) return;
    u64 slabs = (columns.all + COLUMNS - 1) / COLUMNS;
    u64 at = (row / PACKED_M * slabs + col / COLUMNS) * (PACKED_M / 64) + row / 64 % 4;
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"
                 ::"l"(rows.packed + at * SLICE), "r"(slice), "n"(SLICE) : "memory");
}
