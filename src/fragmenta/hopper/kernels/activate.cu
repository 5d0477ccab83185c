// Activations as a packed sparse A, in one pass: activation, two of four, eight bits.
//
// The launcher defines FLOATS (16 or 0xB16), ACTIVATION, THREADS, BLOCK_BYTES, PLACES, and
// HELD: the slabs of a warp that stay in registers.  The rest is read again.
//
// A block of threads has four rows r, r + 1, r + 8, r + 9: their values of a slab are two
// whole lines of 128 bytes, and their metadata one run of 64 bytes.  A warp takes a slab
// of the four rows at a time, and its lanes 16 bytes each of two rows.  What is kept
// stays in registers until the scales are known.

#include "rows.cuh"
#include "chunk.cuh"
#include "places.cuh"

constexpr int WARPS = THREADS / 32;
constexpr int SLAB = 128;
static_assert(WARPS % 16 == 0, "half a warp reduces what the warps found");

// The scale of numbers up to the greatest one: the least power of two with which none is
// beyond 448, from 2^-127 on.  The scale of zeros is 1.
struct Scale { float scale, inverse; bool finite; };

__device__ __forceinline__ Scale scale_of(u32 greatest) {  // 16 bits
    u32 most = __float_as_uint(activated(wide(greatest, 0)));
    bool finite = most < INFINITE;
    u32 exponent = (most + 0x1FFFFF) >> 23;  // one more above 1.75 times a power of two
    exponent = most ? exponent > 8 ? exponent - 8 : 0 : 127;
    u32 scale = exponent ? exponent << 23 : 0x400000;
    return {__uint_as_float(finite ? scale : ONE_NAN),
            __uint_as_float((254 - exponent) << 23), finite};
}

// What a lane keeps of a slab: two chunks of each of its two rows.
struct Item { u32 pairs[2][2]; };

struct Lane {
    const char* rows[2];  // null for a row beyond the matrix
    int first;            // column in a slab
    int columns;
    char* packed;  // the m64 block in the first slab
    int values[2]; // where the elements of both rows go in a block
    int codes;     // where a word of codes goes
    u32 joined, gathered;  // which bytes this lane takes when codes are joined
};

__device__ __forceinline__ Lane lane_of(
    const char* matrix, i64 pitch, int rows, int columns, char* packed) {
    int lane = threadIdx.x % 32, block = blockIdx.x / 16, four = blockIdx.x % 16;
    int row = four / 4 * 16 + four % 4 * 2 + lane / 16;
    int unit = lane % 16 / 4, part = lane % 4;
    Lane me;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int at = block * 64 + row + 8 * j;
        me.rows[j] = at < rows ? matrix + at * pitch : nullptr;
        me.values[j] = places[4 * (row + 8 * j) + unit].values * 16 + part * 4;
    }
    me.first = lane % 16 * PER;
    me.columns = columns;
    i64 slabs = (columns + SLAB - 1) / SLAB;  // packed order is [256 rows][slab][64 rows]
    me.packed = packed + (block / 4 * slabs * 4 + block % 4) * BLOCK_BYTES;
    me.codes = VALUES + places[4 * (row + 8 * (part % 2)) + unit].codes;
    me.joined = part % 2 ? 0x2604 : 0x6240;
    me.gathered = part % 2 ? 0x7632 : 0x5410;
    return me;
}

__device__ __forceinline__ char* block_of(const Lane& me, int slab) {
    return me.packed + static_cast<i64>(slab) * (4 * BLOCK_BYTES);
}

// The greatest keys and bits of both rows, as far as a lane has seen them.
struct Most { int keys[2]; u32 bits[2]; };

// What a lane reads of a slab: 16 bytes of each of its two rows, zeros beyond the end.
struct Read { Given rows[2]; };

template <bool RAGGED>  // whether a row ends within 16 bytes
__device__ __forceinline__ Read read(const Lane& me, int slab) {
    Read in{};
    int at = slab * SLAB + me.first;
#pragma unroll
    for (int j = 0; j < 2; j++)
        if (RAGGED) {
            if (me.rows[j]) in.rows[j] = take(me.rows[j], at, me.columns);
        } else if (me.rows[j] && at < me.columns) {  // no branch, so that more are read
            uint4 x = __ldcs(reinterpret_cast<const uint4*>(me.rows[j] + at * ITEM));
            in.rows[j] = {{x.x, x.y, x.z, x.w}};
        }
    return in;
}

// Keep two of each four.  Codes of two chunks share a byte: bytes 0 and 2, one for each row.
__device__ __forceinline__ Item kept_of(const Read& in, Most& most, u32& codes) {
    u32 low[4], high[4];
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const Given& row = in.rows[c / 2];
        low[c] = row.words[c % 2 * 2], high[c] = row.words[c % 2 * 2 + 1];
    }
    Kept kept = keep(low, high);
    codes = kept.codes | kept.codes >> 4;
    Item item;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        item.pairs[c / 2][c % 2] = kept.pairs[c];
        most.keys[c / 2] = max(most.keys[c / 2], kept.most[c]);
        most.bits[c / 2] = greatest_bits(most.bits[c / 2], low[c], high[c]);
    }
    return item;
}

// Four lanes have the codes of a unit.  The first of them stores those of one row, and
// the second those of the other.
__device__ __forceinline__ void put_codes(const Lane& me, int slab, u32 codes) {
    codes = bytes_of(codes, __shfl_xor_sync(~0u, codes, 1), me.joined);
    codes = bytes_of(codes, __shfl_xor_sync(~0u, codes, 2), me.gathered);
    if (threadIdx.x % 4 < 2)
        *reinterpret_cast<u32*>(block_of(me, slab) + me.codes) = codes;
}

__device__ __forceinline__ void put_values(
    const Lane& me, int slab, const Item& item, const Scale (&scales)[2]) {
    char* block = block_of(me, slab);
#pragma unroll
    for (int j = 0; j < 2; j++) {
        float inverse = scales[j].inverse;
        u32 word = elements(item.pairs[j][0], inverse)
            | elements(item.pairs[j][1], inverse) << 16;
        *reinterpret_cast<u32*>(block + me.values[j]) = scales[j].finite ? word : 0;
    }
}

// The greatest number of each of a lane's two rows: 16 bits of half a warp, then of all.
__device__ __forceinline__ int greatest_of_half(int x) {
#pragma unroll
    for (int apart = 1; apart < 16; apart *= 2)
        x = max(x, __shfl_xor_sync(~0u, x, apart));
    return x;
}

__device__ __forceinline__ void reduce(Most& most) {
    __shared__ int found[2][2][WARPS];
    int half = threadIdx.x / 16 % 2, warp = threadIdx.x / 32;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int key = has_negative_nan(most.bits[j]) ? 0x7FFF0000 : most.keys[j];
        key = greatest_of_half(key);
        if (threadIdx.x % 16 == 0) found[j][half][warp] = key;
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < 2; j++) {
        int key = 0;
#pragma unroll
        for (int i = 0; i < WARPS; i += 16)
            key = max(key, found[j][half][i + threadIdx.x % 16]);
        most.keys[j] = greatest_of_half(key);
    }
}

__device__ __forceinline__ void put_scale(
    const Scale (&of)[2], int rows, float* __restrict__ scales) {
    if (threadIdx.x >= 32 || threadIdx.x % 16 > 1) return;
    int four = blockIdx.x % 16, j = threadIdx.x % 2;
    int row = blockIdx.x / 16 * 64 + four / 4 * 16 + four % 4 * 2 + threadIdx.x / 16 + 8 * j;
    if (row < rows) scales[row] = j ? of[1].scale : of[0].scale;
}

template <bool RAGGED>
__device__ __forceinline__ void activate(
    const char* __restrict__ matrix, i64 pitch, int rows, int columns,
    char* __restrict__ packed, float* __restrict__ scales) {
    Lane me = lane_of(matrix, pitch, rows, columns, packed);
    int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // the same in all lanes
    int slabs = (columns + SLAB - 1) / SLAB;
    Item held[HELD];
    Most most{};
    u32 codes;
    Read next = read<RAGGED>(me, warp);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int slab = warp + i * WARPS;
        Read now = next;
        if (i + 1 < HELD) next = read<RAGGED>(me, slab + WARPS);
        held[i] = kept_of(now, most, codes);
        if (slab < slabs) put_codes(me, slab, codes);
    }
    for (int slab = warp + HELD * WARPS; slab < slabs; slab += WARPS) {
        kept_of(read<RAGGED>(me, slab), most, codes);
        put_codes(me, slab, codes);
    }
    reduce(most);
    Scale of[2];
#pragma unroll
    for (int j = 0; j < 2; j++) of[j] = scale_of(most.keys[j] >> 16);
    put_scale(of, rows, scales);
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        int slab = warp + i * WARPS;
        if (slab < slabs) put_values(me, slab, held[i], of);
    }
    for (int slab = warp + HELD * WARPS; slab < slabs; slab += WARPS)
        put_values(me, slab, kept_of(read<RAGGED>(me, slab), most, codes), of);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS) activate_rows(
    const char* __restrict__ matrix, i64 pitch, int rows, int columns,
    char* __restrict__ packed, float* __restrict__ scales) {
    activate<false>(matrix, pitch, rows, columns, packed, scales);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1024 / THREADS) activate_ragged_rows(
    const char* __restrict__ matrix, i64 pitch, int rows, int columns,
    char* __restrict__ packed, float* __restrict__ scales) {
    activate<true>(matrix, pitch, rows, columns, packed, scales);
}
