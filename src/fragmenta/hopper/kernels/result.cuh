// What happens to the sums: scaled, staged in shared memory, stored by bulk copies.

// acc * (scale * scale_m) * scale_n + bias, rounded to f32 after each step.  A null
// pointer leaves its step out.  For XOR: the number of set bits in each row of A and B.
struct Epilogue {
    const float* scale;
    const float* scale_m;
    const float* scale_n;
    const float* bias;  // one for each row of D; ACTIVATED: 1 / the scale of all elements
    const int* count_m;  // ACTIVATED: the packed D
    const int* count_n;
};

// Where columns of D that a tensor map cannot end at are stored.
struct Edge {
    char* d;
    int pitch, width;  // bytes from one column to the next, and of a column
    int end;           // columns from here on are not stored
};

#if OUTPUT == 1 || OUTPUT == 2  // bf16, f16
#define OUTPUT_BYTES 2
typedef float result_t;
__device__ __forceinline__ u32 join(float x, float y) {
    u32 z;
    if (OUTPUT == 1) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x));
    return z;
}
#elif OUTPUT == 0  // f32
#define OUTPUT_BYTES 4
typedef float result_t;
#else  // s32
#define OUTPUT_BYTES 4
typedef int result_t;
#endif

constexpr int ITEM = OUTPUT_BYTES;
constexpr int WIDE = BOX_WIDE, HIGH = BOX_HIGH;
constexpr int BOX = WIDE * HIGH;  // bytes that one tensor-map copy stores
// A slice is the fewest columns of an m64 block of D that fill whole boxes.
#if ACTIVATED  // a slice is a block of the packed D
constexpr int COLUMNS = 128, SLICE = PACKED_BLOCK;
#else
constexpr int COLUMNS = TRANSPOSED ? HIGH : WIDE / ITEM;
constexpr int SLICE = TRANSPOSED ? BOX * (64 * ITEM / 128) : BOX;
#endif
constexpr int SLICES = TILE_N / COLUMNS;
static_assert(TILE_N % COLUMNS == 0, "slices leave no columns behind");
constexpr int ROOM = STAGING_ROOM / SLICE < 1 ? 1 : STAGING_ROOM / SLICE;
constexpr int TOGETHER = SLICES < ROOM ? SLICES : ROOM;  // slices in the staging buffer
constexpr int STAGING = TOGETHER * SLICE;                // bytes per consumer

// Swizzle 16-byte units as the tensor map expects; this also avoids bank conflicts.
template <int SPAN>
__device__ __forceinline__ u32 swizzled(u32 at) {
    return at ^ ((at >> 7) & (SPAN / 16 - 1)) << 4;
}

// The factors, biases and bit counts of the two rows of an m64 block that a lane holds.
struct Rows {
    float factor[2];
    float bias[2];
    int count[2];
#if ACTIVATED
    char* packed;  // null for rows that the packed D does not have
#endif
};

__device__ __forceinline__ Rows rows_of(
    const Epilogue& e, int block, int m, int expert) {
    Rows rows{};
    int row = block + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int at = row + 8 * h;
        bool inside = at < m;
        [[maybe_unused]] long long weight = GROUPED ? (long long)expert * m + at : at;
        if constexpr (SCALED) {
            float factor = e.scale ? *e.scale : 1.0f;
            if (e.scale_m && inside) factor = __fmul_rn(factor, e.scale_m[weight]);
            rows.factor[h] = factor;
            rows.bias[h] = e.bias && inside ? e.bias[weight] : -0.0f;  // x + -0.0 is x
#if ACTIVATED
            rows.bias[h] = *e.bias;
            bool there = block / PACKED_M <= (m - 1) / PACKED_M;
            rows.packed = there ? (char*)e.count_m : nullptr;
#endif
        }
        if constexpr (XOR) rows.count[h] = inside ? e.count_m[at] : 0;
    }
    return rows;
}

// The factors or bit counts of the columns of a tile: lane L holds those of the columns
// L, L + 32, ...
constexpr int PARTS = (TILE_N + 31) / 32;
struct Columns {
    float scale[SCALED ? PARTS : 1];
    int count[XOR ? PARTS : 1];
#if ACTIVATED
    int all;  // columns of D
#endif
};

__device__ __forceinline__ Columns columns_of(const Epilogue& e, int col, int n) {
    Columns columns;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int at = col + p * 32 + threadIdx.x % 32;
        if constexpr (SCALED)
            columns.scale[p] = e.scale_n && at < n ? e.scale_n[at] : 1.0f;
        if constexpr (XOR) columns.count[p] = at < n ? e.count_n[at] : 0;
    }
#if ACTIVATED
    columns.all = n;
#endif
    return columns;
}

__device__ __forceinline__ result_t finish(
    ACCUMULATOR value, const Rows& rows, int h, float scale_n, int count_n) {
#if XOR
    return rows.count[h] + count_n - 2 * value;
#elif SCALED
    float x = __fmul_rn(__fmul_rn((float)value, rows.factor[h]), scale_n);
    return ACTIVATED ? x : __fadd_rn(x, rows.bias[h]);
#else
    return value;
#endif
}

// Half a warp stores pairs of 32-bit results: four rows of two 16-byte units each.  The
// swizzle alone would send adjacent rows to the same banks.  Therefore odd rows store
// the group of eight columns that is two groups further, within the same slice.
constexpr int APART = !TRANSPOSED && OUTPUT_BYTES == 4 && COLUMNS % 32 == 0 ? 2 : 0;

// The four results of a lane in the group g of eight columns.
__device__ __forceinline__ void take_group(
    result_t (&v)[4], const ACCUMULATOR (&acc)[ACCUMULATORS], int g, const Rows& rows,
    const Columns& columns) {
    int lane = threadIdx.x % 32;
    bool odd = APART && lane / 4 % 2;
    int first = (odd ? g ^ APART : g) % 4 * 8 + lane % 4 * 2;
    float scale_n[2] = {1.0f, 1.0f};
    int count_n[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if constexpr (SCALED)
            scale_n[j] = __shfl_sync(~0u, columns.scale[g / 4], first + j);
        if constexpr (XOR)
            count_n[j] = __shfl_sync(~0u, columns.count[g / 4], first + j);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        ACCUMULATOR value = odd ? acc[4 * (g ^ APART) + i] : acc[4 * g + i];
        v[i] = finish(value, rows, i / 2, scale_n[i % 2], count_n[i % 2]);
    }
}

// Write eight columns of an m64 block to the staging buffer, at column `col` of a slice.
__device__ __forceinline__ void stage_columns(
    u32 slice, int col, const result_t (&v)[4]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    [[maybe_unused]] int r = warp * 16 + lane / 4, c = lane % 4 * 2;
#if TRANSPOSED && OUTPUT_BYTES == 2
    // Lane L gives the address of row L % 8 of the 8x8 matrix L / 8; there is one matrix
    // for each half of m.  The swizzle repeats after eight columns.
    u32 at = lane % 8 * 128 + (warp * 16 + lane / 8 % 2 * 8) * ITEM;
    at = slice + col * 128 + swizzled<128>(at);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 ::"r"(at), "r"(join(v[0], v[1])), "r"(join(v[2], v[3])) : "memory");
#elif TRANSPOSED
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int m = r + i / 2 * 8;
        u32 at = swizzled<128>((c + i % 2) * 128 + m % 32 * ITEM);
        asm volatile("st.shared.u32 [%0], %1;"
                     ::"r"(slice + m / 32 * BOX + col * 128 + at),
                       "r"(*(const u32*)&v[i]) : "memory");
    }
#else
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 at = slice + swizzled<WIDE>((r + 8 * h) * WIDE + (col + c) * ITEM);
#if OUTPUT_BYTES == 2
        asm volatile("st.shared.u32 [%0], %1;"
                     ::"r"(at), "r"(join(v[2 * h], v[2 * h + 1])) : "memory");
#else
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};"
                     ::"r"(at), "r"(*(const u32*)&v[2 * h]),
                       "r"(*(const u32*)&v[2 * h + 1]) : "memory");
#endif
    }
#endif
}

#if ACTIVATED
#include "activated.cuh"
#endif

// Store the boxes of one slice from the staging buffer, as far as they are inside D.
__device__ __forceinline__ void store_slice(
    const TensorMap* map, u32 slice, int row, int col) {
#if TRANSPOSED
    for (int b = 0; b < SLICE / BOX; b++)
        store_tile(map, slice + b * BOX, row * ITEM + b * 128, col);
#else
    store_tile(map, slice, col * ITEM, row);
#endif
}

#if GROUPED
// Store what of one slice is before the end of its expert, in units of 16 bytes.  A
// copy by a tensor map would go on into the rows of the next expert.
__device__ __forceinline__ void store_rows(
    const Edge& edge, u32 slice, int row, int col) {
    constexpr int UNITS = 64 * ITEM / 16;  // of one column of D
    for (int x = threadIdx.x % 128; x < COLUMNS * UNITS; x += 128) {
        int c = x / UNITS, unit = x % UNITS, first = row * ITEM + unit * 16;
        if (col + c >= edge.end || first >= edge.width) continue;
        u32 from = slice + unit / 8 * BOX + swizzled<128>(c * 128 + unit % 8 * 16);
        u32 v[4];
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]) : "r"(from));
        char* to = edge.d + (long long)(col + c) * edge.pitch + first;
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};"
                     ::"l"(to), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
    }
}
#endif

// The slices of a tile are numbered, and the parts of k take them in turn.
__device__ __forceinline__ int slice_number(int block, int slice) {
    return block * SLICES + slice;
}
__device__ __forceinline__ int owner(int block, int slice) {
    return slice_number(block, slice) % SPLIT;
}

// Store one m64 block of D, or what of it this part of k stores.  Its slices take turns in
// the TOGETHER slots of the staging buffer, and `slot` is the next one: while one is
// stored, another is written.
__device__ __forceinline__ void store_block(
    const ACCUMULATOR (&acc)[ACCUMULATORS], const Rows& rows, const Columns& columns,
    const TensorMap* map, u32 staging, int& slot, int consumer, int row, int col,
    int block, int part, [[maybe_unused]] const Edge& edge) {
#pragma unroll
    for (int s = 0; s < SLICES; s++) {
        if (SPLIT > 1 && owner(block, s) != part) continue;
#if GROUPED
        if (col + s * COLUMNS >= edge.end) continue;
        bool whole = col + (s + 1) * COLUMNS <= edge.end;
#else
        constexpr bool whole = true;
#endif
        u32 slice = staging + slot * SLICE;
#if ACTIVATED
        pack_slice(slice, acc, s, rows, columns);
#else
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; i++) {
            int g = s * (COLUMNS / 8) + i;
            result_t v[4];
            take_group(v, acc, g, rows, columns);
            int ours = APART && threadIdx.x / 4 % 2 ? i ^ APART : i;
            stage_columns(slice, ours * 8, v);
        }
#endif
        // The copy engine must see what the threads wrote.  And it must have read the
        // next slot before the threads write there.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (TOGETHER > 1 && threadIdx.x % 128 == 0)
            asm volatile("cp.async.bulk.wait_group.read %0;"
                         ::"n"(TOGETHER > 1 ? TOGETHER - 2 : 0) : "memory");
        group_sync(consumer);
#if GROUPED
        if (!whole) store_rows(edge, slice, row, col + s * COLUMNS);
#endif
        if (threadIdx.x % 128 == 0) {  // a group that stores nothing counts, too
#if ACTIVATED
            store_packed(rows, columns, slice, row, col + s * COLUMNS);
#else
            if (whole)
                store_slice(map, slice, row, col + s * COLUMNS);
#endif
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            if (TOGETHER == 1)
                asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
        if (TOGETHER == 1) group_sync(consumer);
        slot = slot + 1 == TOGETHER ? 0 : slot + 1;
    }
}
