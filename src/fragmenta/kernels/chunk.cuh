// An activation, the two greatest of four, and eight bits.
//
// The launcher defines ACTIVATION (0: none, 1: relu, 2: the square of relu) and FLOATS
// (16 or 0xB16).  A word has two numbers of 16 bits, and two words are a chunk.

typedef unsigned short u16;

constexpr u32 INFINITE_16 = FLOATS == 16 ? 0x7C00 : 0x7F80;

// The order of a chunk.  The high half of a key has the bits of a number.  Then comes
// its rank among equal ones: the lower place is greater.  The last byte is 4 << place.
// A number that the activation turns to zero has a key below those of all others; place
// 2 is the greatest of these, and then place 3.  So the two greatest keys are those that
// compression stores, also if fewer than two are not zero.
template <int PLACE>
__device__ __forceinline__ int key(u32 word) {
    constexpr u32 RANK = 3 - PLACE, OWN = 4 << PLACE;
    constexpr u32 LOW = RANK << 8 | OWN, ZERO = (4 + (RANK ^ 2)) << 8 | OWN;
    if constexpr (!ACTIVATION) word &= 0x7FFF7FFF;
    u32 bits = PLACE % 2 ? (word & 0xFFFF0000) | LOW : word * 0x10000 + LOW;
    return max(static_cast<int>(bits), static_cast<int>(ZERO));
}

// The codes of two places, by the set of both: entry 4 << p | 4 << q, in bits.
__device__ constexpr unsigned long long codes_of_pairs() {
    unsigned long long all = 0;
    for (int p = 0; p < 4; p++)
        for (int q = p + 1; q < 4; q++)
            all |= static_cast<unsigned long long>(q << 2 | p) << (4 << p | 4 << q);
    return all;
}

struct Kept {
    u32 pair;  // the two numbers, before the activation
    u32 code;
    int most;  // the greatest key
};

__device__ __forceinline__ Kept keep_two(u32 low, u32 high) {
    int a = key<0>(low), b = key<1>(low), c = key<2>(high), d = key<3>(high);
    int left = max(a, b), right = max(c, d);
    int second = max(max(min(left, right), min(a, b)), min(c, d));
    int first = max(left, right);
    constexpr unsigned long long ALL = codes_of_pairs();
    u32 code = static_cast<u32>(ALL >> ((first | second) & 0x3C)) & 15;
    // Place p of the chunk has the bytes 2 p and 2 p + 1.
    u32 bytes = 0x1010 + (code & 3) * 0x22 + (code >> 2) * 0x2200;
    return {__byte_perm(low, high, bytes), code, first};
}

// A negative NaN is no zero, although its key is: the greatest bits show it.
__device__ __forceinline__ u32 greatest_bits(u32 so_far, u32 low, u32 high) {
    if constexpr (ACTIVATION) {
        asm("max.u16x2 %0, %0, %1;" : "+r"(so_far) : "r"(low));
        asm("max.u16x2 %0, %0, %1;" : "+r"(so_far) : "r"(high));
    }
    return so_far;
}

__device__ __forceinline__ bool has_negative_nan(u32 greatest) {
    constexpr u32 LAST = 0x8000 | INFINITE_16;
    return ACTIVATION && ((greatest & 0xFFFF) > LAST || greatest >> 16 > LAST);
}

// The numbers of a pair as f32, and the activation.
__device__ __forceinline__ float wide(u32 pair, int i) {
#if FLOATS == 16
    u16 half = pair >> 16 * i;
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(half));
    return x;
#else
    return __uint_as_float(i ? pair & 0xFFFF0000 : pair << 16);
#endif
}

__device__ __forceinline__ float activated(float x) {
    return ACTIVATION == 2 ? __fmul_rn(x, x) : x;
}

// Two elements of e4m3: the numbers of a pair times a power of two, rounded once.
__device__ __forceinline__ u32 elements(u32 pair, float inverse) {
    if constexpr (ACTIVATION) asm("max.s16x2 %0, %0, %1;" : "+r"(pair) : "r"(0));
    float x = __fmul_rn(activated(wide(pair, 0)), inverse);
    float y = __fmul_rn(activated(wide(pair, 1)), inverse);
    u16 both;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(both) : "f"(y), "f"(x));
    return both;
}
