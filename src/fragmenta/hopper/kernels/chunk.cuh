// An activation, the two greatest of four, and eight bits.
//
// The launcher defines ACTIVATION (0: none, 1: relu, 2: the square of relu) and FLOATS
// (16 or 0xB16).  A word has two numbers of 16 bits, and two words are a chunk.

typedef unsigned short u16;

constexpr u32 INFINITE_16 = FLOATS == 16 ? 0x7C00 : 0x7F80;

// The bytes of two words that the low 16 bits of `which` name.  Unlike __byte_perm, it does
// not clear the fourth bit of each name, which is zero here.
__device__ __forceinline__ u32 bytes_of(u32 low, u32 high, u32 which) {
    u32 found;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(found) : "r"(low), "r"(high), "r"(which));
    return found;
}

// The order of a chunk.  The high half of a key has the bits of a number.  Then comes
// its rank among equal ones: the lower place is greater.  The last byte is the weight of
// its place.  Weights are such that the exclusive or of two says which two they are.
constexpr u32 WEIGHTS[4] = {0, 1, 2, 4};

template <int PLACE>
__device__ __forceinline__ int key(u32 word) {
    constexpr u32 LOW = (3 - PLACE) << 8 | WEIGHTS[PLACE];
    if constexpr (!ACTIVATION) word &= 0x7FFF7FFF;
    return bytes_of(word, LOW, PLACE % 2 ? 0x3254 : 0x1054);
}

// Compression always stores two: if fewer are not zero, the zero in place 2, too, and
// then that in place 3.  These keys are above all keys of zeros and negative numbers.
constexpr int ZERO = 0x400;

struct Two {
    u32 which;  // the exclusive or of their weights; 0 stands for the places 2 and 3
    int most;   // the greatest key
};

__device__ __forceinline__ Two two_of(u32 low, u32 high) {
    int a = key<0>(low), b = key<1>(low), c = key<2>(high), d = key<3>(high);
    int left = max(a, b), right = max(c, d);
    constexpr int LAST = ZERO | WEIGHTS[3], FILL = ZERO | WEIGHTS[2];
    int first = max(max(left, right), LAST);
    int second = max(max(max(min(left, right), min(a, b)), FILL), min(c, d));
    return {(first ^ second) & 7u, first};
}

// Eight bytes, by `which`: what `of` says about the places p < q.
template <class Of>
__device__ constexpr unsigned long long by_places(Of of) {
    unsigned long long all = of(2, 3);  // a number in place 2 and the zero in place 3
    for (int p = 0; p < 4; p++)
        for (int q = p + 1; q < 4; q++)
            all |= of(p, q) << 8 * (WEIGHTS[p] ^ WEIGHTS[q]);
    return all;
}

struct CodeOf {
    __device__ constexpr unsigned long long operator()(int p, int q) const {
        return q << 2 | p;
    }
};
template <bool SECOND>
struct BytesOf {  // place p of a chunk has the bytes 2 p and 2 p + 1
    __device__ constexpr unsigned long long operator()(int p, int q) const {
        return 0x10 + 0x22 * (SECOND ? q : p);
    }
};

// What is kept of four chunks.
struct Kept {
    u32 codes;     // a byte for each chunk
    u32 pairs[4];  // two numbers of each, before the activation
    int most[4];   // the greatest keys
};

__device__ __forceinline__ Kept keep(const u32 (&low)[4], const u32 (&high)[4]) {
    constexpr auto CODES = by_places(CodeOf{});
    constexpr auto FIRST = by_places(BytesOf<false>{}), SECOND = by_places(BytesOf<true>{});
    Kept kept;
    u32 which = 0;
#pragma unroll
    for (int c = 0; c < 4; c++) {
        Two two = two_of(low[c], high[c]);
        which += two.which << 4 * c;
        kept.most[c] = two.most;
    }
    kept.codes = bytes_of(u32(CODES), u32(CODES >> 32), which);
    u32 first = bytes_of(u32(FIRST), u32(FIRST >> 32), which);
    u32 second = bytes_of(u32(SECOND), u32(SECOND >> 32), which);
#pragma unroll
    for (int c = 0; c < 4; c++)
        kept.pairs[c] = bytes_of(low[c], high[c], bytes_of(first, second, 0x40 + 0x11 * c));
    return kept;
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
