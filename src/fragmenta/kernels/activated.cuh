// ACTIVATED: D is stored as the packed sparse A of the next product.
//
// The results are rounded to 16 bits.  Then they go through the activation, two of each
// four are kept and rounded to e4m3 with one scale.  Beside what result.cuh needs, the
// launcher defines ACTIVATION, FLOATS, PACKED_BLOCK (bytes of 64 rows and 128 columns of
// the packed D) and PLACES.

#include "chunk.cuh"
#include "places.cuh"

// A lane has two neighbours of a chunk in two rows, and the next lane the other two.
// They swap: even lanes keep the chunk of the upper row, odd lanes that of the lower one.
// The result has two elements, and the code above them.
__device__ __forceinline__ u32 kept_of_group(
    const ACCUMULATOR (&acc)[ACCUMULATORS], int g, const Rows& rows,
    const Columns& columns) {
    result_t v[4];
    take_group(v, acc, g, rows, columns);
    bool odd = threadIdx.x % 2;
    u32 upper = join(v[0], v[1]), lower = join(v[2], v[3]);
    u32 other = __shfl_xor_sync(~0u, odd ? upper : lower, 1);
    Kept kept = keep_two(odd ? other : upper, odd ? lower : other);
    return elements(kept.pair, rows.bias[0]) | kept.code << 16;
}

// Write 128 columns of an m64 block to the staging buffer, as a packed block.  Lanes that
// are two apart have the two chunks of a group of eight columns in the same row.  They
// swap: one keeps the first group, the other the second.
__device__ __forceinline__ void pack_slice(
    u32 slice, const ACCUMULATOR (&acc)[ACCUMULATORS], int s, const Rows& rows,
    const Columns& columns) {
    int lane = threadIdx.x % 32, second = lane / 2 % 2;
    int row = threadIdx.x / 32 % 4 * 16 + lane / 4 + lane % 2 * 8;
#pragma unroll
    for (int unit = 0; unit < 4; unit++) {
        Where where = places[4 * row + unit];
        u32 codes = 0;
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int g = s * (COLUMNS / 8) + unit * 4 + i * 2;
            u32 one = kept_of_group(acc, g, rows, columns);
            u32 two = kept_of_group(acc, g + 1, rows, columns);
            u32 other = __shfl_xor_sync(~0u, second ? one : two, 2);
            u32 low = second ? other : one, high = second ? two : other;
            codes |= (low >> 16 | high >> 12 & 0xF0) << (16 * i + 8 * second);
            asm volatile("st.shared.u32 [%0], %1;"
                         ::"r"(slice + where.values * 16 + (2 * i + second) * 4),
                           "r"(__byte_perm(low, high, 0x5410)) : "memory");
        }
        codes |= __shfl_xor_sync(~0u, codes, 2);
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
