// Training with a fixed mask: move the kept values of a sparse matrix, in one pass each.
//
// The kept values are a matrix of half the columns, row by row.  Their codes are 4 bits
// for each chunk, four of them in a 16-bit word, one word for each unit.  A unit is
// COUNT columns of a row, 32 bytes, of which 16 bytes are kept.
//
// The launcher defines ELEMENT (an unsigned type that holds an element), ONE_OF_TWO,
// EMPTY (the codes of a unit without values), BLOCK_BYTES, and PLACES as for prepare.cu.

typedef unsigned int u32;
typedef unsigned short u16;

constexpr int ITEM = sizeof(ELEMENT);
constexpr int COUNT = 32 / ITEM;  // columns of a unit
constexpr int KEPT = COUNT / 2;
constexpr int CHUNK = ONE_OF_TWO ? 2 : 4;
constexpr int CHUNKS = COUNT / CHUNK;
constexpr int SLAB = 4 * COUNT;  // columns of a packed block
constexpr int ROWS = 64;         // rows of a packed block
static_assert(CHUNKS == 4, "a word has four codes");

#include "places.cuh"

struct alignas(16) Wide { ELEMENT at[COUNT]; };
struct alignas(16) Unit { ELEMENT at[KEPT]; };

// The kept values and their codes.
struct Kept {
    char* values;
    long long pitch;    // bytes from row to row
    int rows, columns;  // of the matrix
    const u16* codes;
    __device__ int width() const { return (columns + CHUNK - 1) / CHUNK * (CHUNK / 2); }
    __device__ int units() const { return (columns + COUNT - 1) / COUNT; }
};

// ── one unit ────────────────────────────────────────────────────────────────

// Bring or store up to N elements of a row, from element `first` on.
template <int N>
__device__ __forceinline__ void bring(
    ELEMENT* to, const char* row, long long first, long long width) {
    const ELEMENT* from = reinterpret_cast<const ELEMENT*>(row) + first;
    if (first + N <= width) {
#pragma unroll
        for (int i = 0; i < N * ITEM / 16; i++)
            reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++) to[i] = first + i < width ? from[i] : 0;
    }
}

template <int N>
__device__ __forceinline__ void leave(
    const ELEMENT* from, char* row, long long first, long long width) {
    ELEMENT* to = reinterpret_cast<ELEMENT*>(row) + first;
    if (first + N <= width) {
#pragma unroll
        for (int i = 0; i < N * ITEM / 16; i++)
            reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(from)[i];
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            if (first + i < width) to[i] = from[i];
    }
}

__device__ __forceinline__ u32 unit_of(const Kept& kept, int row, int unit, Unit& out) {
    bool inside = row < kept.rows;
    const char* from = kept.values + row * kept.pitch;
    bring<KEPT>(out.at, from, unit * (long long)KEPT, inside ? kept.width() : 0);
    if (!inside || unit >= kept.units()) return EMPTY;
    return kept.codes[row * (long long)kept.units() + unit];
}

// The column of a kept value within its chunk; `which` is 0 or 1 (1:2: always 0).
__device__ __forceinline__ u32 column(u32 codes, int chunk, int which) {
    u32 code = codes >> 4 * chunk & 15;
    if (ONE_OF_TWO) return code >> 1 & 1;
    return which ? code >> 2 : code & 3;
}

// Put the kept values at their columns, and say which columns these are.
__device__ __forceinline__ u32 spread(const Unit& unit, u32 codes, Wide& wide) {
    constexpr int PER = CHUNK / 2;
    u32 marks = 0;
    wide = Wide{};
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
        for (int which = 0; which < PER; which++) {
            u32 at = column(codes, chunk, which);
            marks |= 1u << (chunk * CHUNK + at);
#pragma unroll
            for (int i = 0; i < CHUNK; i++)  // an index that is known: no local memory
                if (at == i) wide.at[chunk * CHUNK + i] = unit.at[chunk * PER + which];
        }
    return marks;
}

// Take the values at the columns that the codes name.
__device__ __forceinline__ void select(const Wide& wide, u32 codes, Unit& unit) {
    constexpr int PER = CHUNK / 2;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
        for (int which = 0; which < PER; which++) {
            u32 at = column(codes, chunk, which);
            ELEMENT found = 0;
#pragma unroll
            for (int i = 0; i < CHUNK; i++)
                if (at == i) found = wide.at[chunk * CHUNK + i];
            unit.at[chunk * PER + which] = found;
        }
}

// The code of a chunk from its marks.  Fewer marks than kept values are filled up as
// prepare.cu fills them: the zero in place 2 is stored too, and then the one in place 3.
__device__ __forceinline__ u32 code_of(u32 some) {
    bool has0 = some & 1, has1 = some & 2, has3 = some & 8;
    if (ONE_OF_TWO) return has0 ? 4 : 14;
    u32 first = has0 ? 0 : has1 ? 1 : 2;
    return first | (has0 && has1 ? 4 : has3 || !(has0 || has1) ? 12 : 8);
}

// ── packed blocks ───────────────────────────────────────────────────────────

// Write one packed block; every thread has one unit of it.
__device__ __forceinline__ void put_block(char* packed, const Unit& unit, u32 codes) {
    alignas(16) __shared__ char codes_of_block[BLOCK_BYTES - VALUES];
    Where where = places[threadIdx.x];
    // Packed order is [256 rows][slab][64 rows].
    long long tall = blockIdx.y / 4, number = (tall * gridDim.x + blockIdx.x) * 4;
    char* block = packed + (number + blockIdx.y % 4) * BLOCK_BYTES;
    reinterpret_cast<uint4*>(block)[where.values] = *reinterpret_cast<const uint4*>(&unit);
    *reinterpret_cast<u16*>(codes_of_block + where.codes) = codes;
    __syncthreads();
    if (threadIdx.x < (BLOCK_BYTES - VALUES) / 16)
        reinterpret_cast<uint4*>(block + VALUES)[threadIdx.x] =
            reinterpret_cast<uint4*>(codes_of_block)[threadIdx.x];
}

#define KEPT_ARGUMENTS \
    char *values, long long pitch, int rows, int columns, const u16 *codes
#define KEPT_GIVEN Kept{values, pitch, rows, columns, codes}

extern "C" __global__ void __launch_bounds__(256) pack(KEPT_ARGUMENTS, char* packed) {
    int row = blockIdx.y * ROWS + threadIdx.x / 4;
    Unit unit;
    u32 found = unit_of(KEPT_GIVEN, row, blockIdx.x * 4 + threadIdx.x % 4, unit);
    put_block(packed, unit, found);
}

// The packed transpose, of a matrix whose mask is sparse in both directions.  A block of
// it has 64 columns of the matrix, and SLAB of its rows.
extern "C" __global__ void __launch_bounds__(256) pack_transposed(
    KEPT_ARGUMENTS, char* packed) {
    constexpr int ACROSS = ROWS / COUNT;    // units of a row in the block
    constexpr int PITCH = ROWS + 4 / ITEM;  // one word more, for other banks
    __shared__ ELEMENT tile[SLAB][PITCH];
    __shared__ u16 marks[SLAB][ACROSS];
    int down = threadIdx.x / ACROSS, across = threadIdx.x % ACROSS;
    int row = blockIdx.x * SLAB + down, at = blockIdx.y * ACROSS + across;
    Unit unit;
    Wide wide;
    u32 found = unit_of(KEPT_GIVEN, row, at, unit);
    u32 marked = spread(unit, found, wide);
#pragma unroll
    for (int i = 0; i < COUNT; i++) tile[down][across * COUNT + i] = wide.at[i];
    // What is outside of the matrix has codes all the same, and no marks.
    int inside = row < rows ? max(0, min(COUNT, columns - at * COUNT)) : 0;
    marks[down][across] = marked & ((1 << inside) - 1);
    __syncthreads();
    int column = threadIdx.x / 4, first = threadIdx.x % 4 * COUNT;
    u32 some = 0;
#pragma unroll
    for (int i = 0; i < COUNT; i++) {
        wide.at[i] = tile[first + i][column];
        some |= (marks[first + i][column / COUNT] >> column % COUNT & 1u) << i;
    }
    found = 0;
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        found |= code_of(some >> chunk * CHUNK & ((1 << CHUNK) - 1)) << 4 * chunk;
    select(wide, found, unit);
    put_block(packed, unit, found);
}

// ── dense matrices ──────────────────────────────────────────────────────────

// The dense matrix of kept values; a block of threads writes 64 rows of a slab.
extern "C" __global__ void __launch_bounds__(256) to_dense(
    KEPT_ARGUMENTS, char* dense, long long dense_pitch) {
    int row = blockIdx.y * ROWS + threadIdx.x / 4, at = blockIdx.x * 4 + threadIdx.x % 4;
    if (row >= rows) return;
    Unit unit;
    Wide wide;
    u32 found = unit_of(KEPT_GIVEN, row, at, unit);
    spread(unit, found, wide);
    leave<COUNT>(wide.at, dense + row * dense_pitch, at * (long long)COUNT, columns);
}

// The values of a dense matrix at the kept places, written to `values`.
extern "C" __global__ void __launch_bounds__(256) gather(
    KEPT_ARGUMENTS, const char* dense, long long dense_pitch) {
    int row = blockIdx.y * ROWS + threadIdx.x / 4, at = blockIdx.x * 4 + threadIdx.x % 4;
    Kept kept = KEPT_GIVEN;
    if (row >= rows || at >= kept.units()) return;
    Wide wide;
    Unit unit;
    bring<COUNT>(wide.at, dense + row * dense_pitch, at * (long long)COUNT, columns);
    select(wide, codes[row * (long long)kept.units() + at], unit);
    leave<KEPT>(unit.at, values + row * pitch, at * (long long)KEPT, kept.width());
}
