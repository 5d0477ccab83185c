// A sparse A of 4-bit integers becomes one of 8 or 16 bits, in one pass.
//
// Its places stay: an integer is multiplied with the scale of its group, divided by the
// power of two that its row keeps, and rounded once.  A block of threads takes a block of
// 64 rows and 128 columns.  Each thread writes 16 bytes of values at a time.
//
// The launcher defines TO (1: bf16, 2: f16, 8: e4m3), BYTES (e4m3 has integers in bytes,
// the others in halves of words), GROUP_SCALES (1: bf16, 2: f16, 0: none) of A,
// BLOCK_IN and BLOCK_OUT (bytes of 64 rows), PARTS (blocks that one becomes), and SOURCES:
// for each word of the new values the word that it comes from, the bits by which that has
// to be turned, the row, and its scale in the block.

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

constexpr int THREADS = 256;
constexpr int INTEGERS = 2048;  // bytes of a block before its codes
constexpr int CODES = 1024;
constexpr int VALUES = 4096;  // bytes of a new block before its codes

// Not in constant memory, which serves different addresses one after the other.
struct alignas(8) Source { u16 word, turn, row, scale; };
__device__ const Source sources[PARTS * VALUES / 4] = {SOURCES};

__device__ __forceinline__ float scale_of(u32 bits) {
#if GROUP_SCALES == 2
    float found;
    asm("{.reg .b16 low, high;\n"
        "mov.b32 {low, high}, %1;\n"
        "cvt.f32.f16 %0, low;}" : "=f"(found) : "r"(bits));
    return found;
#else
    return __uint_as_float(bits << 16);
#endif
}

// An integer of a word.  Bytes have three bits and a sign, and negative ones are stored
// less one; halves have the integer plus 8.
__device__ __forceinline__ float integer(u32 word, int which) {
#if BYTES
    u32 each = word >> 8 * which;
    int low = each & 7;
    return static_cast<float>(each & 0x80 ? -1 - low : low);
#else
    return static_cast<float>(static_cast<int>(word >> 16 * which & 15) - 8);
#endif
}

__device__ __forceinline__ u32 pair(float low, float high) {
#if TO == 8
    u16 found;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(found) : "f"(high), "f"(low));
#elif TO == 2
    u32 found;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(high), "f"(low));
#else
    u32 found;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(found) : "f"(high), "f"(low));
#endif
    return found;
}

// The integers are where they were; e4m3 from halves, or halves from bytes, are not asked.
__device__ __forceinline__ u32 values(u32 word, float factor) {
#if BYTES
    u32 low = pair(integer(word, 0) * factor, integer(word, 1) * factor);
    u32 high = pair(integer(word, 2) * factor, integer(word, 3) * factor);
    return low | high << 16;
#else
    return pair(integer(word, 0) * factor, integer(word, 1) * factor);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS) widen(
    const char* __restrict__ packed, const float* __restrict__ powers,
    char* __restrict__ wide, int rows, int parts) {
    __shared__ uint4 integers[INTEGERS / 16];
    __shared__ float inverses[64];
    int slab = blockIdx.x, slabs = gridDim.x, block = blockIdx.y, thread = threadIdx.x;
    const char* from = packed + (static_cast<u64>(block) * slabs + slab) * BLOCK_IN;
    if (thread < INTEGERS / 16)
        integers[thread] = reinterpret_cast<const uint4*>(from)[thread];
    if (thread < 64) {
        int row = block * 64 + thread;
        inverses[thread] = powers && row < rows ? __frcp_rn(powers[row]) : 1.0f;
    }
    __syncthreads();
    const u16* scales = reinterpret_cast<const u16*>(from + INTEGERS + CODES);
    u64 first = static_cast<u64>(block / 4) * parts + slab * PARTS;
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        if (slab * PARTS + part >= parts) break;  // k ends before
        char* to = wide + ((first + part) * 4 + block % 4) * BLOCK_OUT;
        u32 made[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            Source source = sources[part * (VALUES / 4) + thread * 4 + i];
            u32 word = reinterpret_cast<const u32*>(integers)[source.word];
            word = __funnelshift_r(word, word, source.turn);
            float factor = inverses[source.row];
#if GROUP_SCALES
            factor *= scale_of(scales[source.scale]);
#endif
            made[i] = values(word, factor);
        }
        reinterpret_cast<uint4*>(to)[thread] = make_uint4(made[0], made[1], made[2], made[3]);
        // A lane has two words of codes: both are of one block, or one of each.
        if (PARTS == 1 || thread % 2 == part)
            reinterpret_cast<u32*>(to + VALUES)[thread / PARTS] =
                reinterpret_cast<const u32*>(from + INTEGERS)[thread];
    }
}
