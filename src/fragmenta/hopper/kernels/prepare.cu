// Prune, compress and pack a dense matrix in one pass; count the set bits of rows.
//
// The launcher defines ELEMENT (an unsigned type of BITS bits that holds an element),
// SIGNED, MAGNITUDE (a mask of the magnitude), INFINITY_KEY (magnitudes from here on are
// NaN, and equal), ONE_OF_TWO, BLOCK_BYTES, and PLACES.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

constexpr int ITEM = sizeof(ELEMENT);
constexpr int COUNT = 32 / ITEM;  // elements of a row that become one unit
constexpr int CHUNK = ONE_OF_TWO ? 2 : 4;
constexpr int CODE_BYTES = COUNT / CHUNK / 2;

#include "places.cuh"

// The elements that a thread reads, and the unit that it stores.
struct alignas(16) Given { ELEMENT at[COUNT]; };
struct alignas(16) Unit { ELEMENT at[COUNT / 2]; };

// ── one chunk ───────────────────────────────────────────────────────────────

// The two greatest of four are kept; of equal ones, those in lower places.  Two elements
// are always stored.  If fewer are not zero, the zero in place 2 is stored too, and then
// the one in place 3.  So the code depends on four bits: which kept ones are not zero.
__device__ __forceinline__ constexpr u32 code_of(u32 some) {
    bool has0 = some & 1, has1 = some & 2, has3 = some & 8;
    u32 first = has0 ? 0 : has1 ? 1 : 2;
    return first | (has0 && has1 ? 4 : has3 || !(has0 || has1) ? 12 : 8);
}

#if BITS == 8
// The four elements of a chunk are the bytes of a word, and all are compared at once.
// The high bit of a byte is the result for its element.
constexpr u32 ONES = 0x01010101, HIGH = 0x80808080, LOW = ~HIGH;
constexpr bool SEVEN_BITS = !SIGNED && MAGNITUDE == 0x7F;

// Copy the high bit of each byte to all bits of the byte.
__device__ __forceinline__ u32 spread(u32 word) {
    u32 all;
    asm("prmt.b32 %0, %1, 0, 0xBA98;" : "=r"(all) : "r"(word));
    return all;
}

__device__ __forceinline__ u32 keys(u32 word) {
    if constexpr (SIGNED) {
        u32 minus = spread(word);
        return (word ^ minus) + (minus & ONES);
    }
    u32 found = word & ONES * MAGNITUDE;
    if constexpr (INFINITY_KEY < MAGNITUDE) {  // 7D, 7E and 7F are NaN, and equal
        static_assert(INFINITY_KEY == 0x7D || INFINITY_KEY >= MAGNITUDE);
        u32 more = spread(found + 2 * ONES);
        found = (found & ~more) | (more & ONES * INFINITY_KEY);
    }
    return found;
}

// x > y in bytes where `strict` is one, x >= y where it is zero.
__device__ __forceinline__ u32 before(u32 x, u32 y, u32 strict) {
    if constexpr (SEVEN_BITS) return (x | HIGH) - y - strict;
    u32 low = (x | HIGH) - (y & LOW) - strict;
    return (x & ~y) | (~(x ^ y) & low);
}

__device__ constexpr u64 codes_of_all() {
    u64 all = 0;
    for (u32 some = 0; some < 16; some++) all |= (u64)code_of(some) << 4 * some;
    return all;
}

__device__ __forceinline__ u32 shrink(const Given& in, int chunk, Unit& out) {
    u32 word = reinterpret_cast<const u32*>(&in)[chunk], k = keys(word);
    // Compare each element with its right neighbour (3 with 0), with the one after that,
    // and with its left neighbour.  It is kept if it wins two of the three.
    u32 right = before(k, __byte_perm(k, 0, 0x0321), 0x01000000);
    u32 over = before(k, __byte_perm(k, 0, 0x1032), 0x01010000);
    u32 left = ~__byte_perm(right, 0, 0x2103);
    u32 kept = word & spread((right & over) | (left & (right | over)));
    u32 some = (kept & LOW) + LOW;
    if constexpr (!SEVEN_BITS) some |= kept;
    // Gather the four high bits at the top: a number from 0 to 15, times four.
    u32 shift = (some & HIGH) * 0x00204081 >> 26;
    constexpr u64 all = codes_of_all();
    u32 code = all >> shift & 15;
    u32 stored = __byte_perm(kept, 0, code + (code & 12) * 3);
    reinterpret_cast<u16*>(&out)[chunk] = stored;
    return code;
}
#else
__device__ __forceinline__ u32 key(ELEMENT bits) {
    return min(static_cast<u32>(bits & MAGNITUDE), static_cast<u32>(INFINITY_KEY));
}

__device__ __forceinline__ bool is_value(ELEMENT bits) {
    return (bits & MAGNITUDE) != 0;
}

#if ONE_OF_TWO
__device__ __forceinline__ u32 shrink(const Given& given, int chunk, Unit& out) {
    const ELEMENT* in = given.at + 2 * chunk;
    bool second = key(in[1]) > key(in[0]);
    bool has0 = !second && is_value(in[0]);
    out.at[chunk] = has0 ? in[0] : second ? in[1] : 0;
    return has0 ? 0b0100 : 0b1110;
}
#else
__device__ __forceinline__ u32 shrink(const Given& given, int chunk, Unit& out) {
    const ELEMENT* in = given.at + 4 * chunk;
    ELEMENT* stored = out.at + 2 * chunk;
    u32 k0 = key(in[0]), k1 = key(in[1]), k2 = key(in[2]), k3 = key(in[3]);
    int b01 = k1 > k0, b02 = k2 > k0, b03 = k3 > k0;
    int b12 = k2 > k1, b13 = k3 > k1, b23 = k3 > k2;
    ELEMENT p0 = b01 + b02 + b03 < 2 ? in[0] : 0;
    ELEMENT p1 = 1 - b01 + b12 + b13 < 2 ? in[1] : 0;
    ELEMENT p2 = 2 - b02 - b12 + b23 < 2 ? in[2] : 0;
    ELEMENT p3 = 3 - b03 - b13 - b23 < 2 ? in[3] : 0;
    bool has0 = is_value(p0), has1 = is_value(p1), has3 = is_value(p3);
    bool both = has0 && has1, last = has3 || !(has0 || has1);
    stored[0] = has0 ? p0 : has1 ? p1 : p2;
    stored[1] = both ? p1 : last ? p3 : p2;
    return code_of(has0 | has1 << 1 | has3 << 3);
}
#endif
#endif

// ── a matrix ────────────────────────────────────────────────────────────────

// One block of threads writes one packed block: 64 rows of one slab.
extern "C" __global__ void __launch_bounds__(256, 8) compress(
    const char* __restrict__ matrix, long long pitch, int rows, long long width,
    char* __restrict__ packed) {
    alignas(16) __shared__ char codes_of_block[BLOCK_BYTES - VALUES];
    int row = threadIdx.x / 4, unit = threadIdx.x % 4;
    // Packed order is [256 rows][slab][64 rows].
    long long slab = blockIdx.x;
    int at_row = blockIdx.y * 64 + row;
    long long at = slab * 128 + unit * 32;
    Where where = places[threadIdx.x];
    Given in{};
    if (at_row < rows && at + 32 <= width) {
        const uint4* from = reinterpret_cast<const uint4*>(matrix + at_row * pitch + at);
        reinterpret_cast<uint4*>(&in)[0] = __ldcs(from);
        reinterpret_cast<uint4*>(&in)[1] = __ldcs(from + 1);
    } else if (at_row < rows) {
        const ELEMENT* from =
            reinterpret_cast<const ELEMENT*>(matrix + at_row * pitch + at);
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            if (at + (i + 1) * ITEM <= width) in.at[i] = from[i];
    }
    Unit out;
    u32 codes = 0;
#pragma unroll
    for (int i = 0; i < COUNT / CHUNK; i++) codes |= shrink(in, i, out) << 4 * i;
    long long number =
        (static_cast<long long>(blockIdx.y / 4) * gridDim.x + slab) * 4 + blockIdx.y % 4;
    char* block = packed + number * BLOCK_BYTES;
    reinterpret_cast<uint4*>(block)[where.values] =
        *reinterpret_cast<uint4*>(&out);
    char* code = codes_of_block + where.codes;
    if (CODE_BYTES == 4) *reinterpret_cast<u32*>(code) = codes;
    else *reinterpret_cast<u16*>(code) = codes;
    __syncthreads();
    if (threadIdx.x < (BLOCK_BYTES - VALUES) / 16)
        reinterpret_cast<uint4*>(block + VALUES)[threadIdx.x] =
            reinterpret_cast<uint4*>(codes_of_block)[threadIdx.x];
}

// One warp counts the set bits of one row; rows must begin on multiples of 16 bytes.
extern "C" __global__ void __launch_bounds__(256) count_bits(
    const char* __restrict__ matrix, long long pitch, int rows, long long width,
    int* __restrict__ counts) {
    int row = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    const char* from = matrix + row * pitch;
    int count = 0;
    for (long long i = lane * 16; i + 16 <= width; i += 512) {
        uint4 x = *reinterpret_cast<const uint4*>(from + i);
        count += __popc(x.x) + __popc(x.y) + __popc(x.z) + __popc(x.w);
    }
    for (long long i = width / 16 * 16 + lane; i < width; i += 32)
        count += __popc(static_cast<unsigned char>(from[i]));
    count = __reduce_add_sync(~0u, count);
    if (lane == 0) counts[row] = count;
}
