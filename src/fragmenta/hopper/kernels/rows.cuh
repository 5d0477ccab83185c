// Rows of f32, f16 or bf16, read 16 bytes at a time.
//
// The launcher defines FLOATS (32, 16 or 0xB16: float, half or bfloat16).

typedef unsigned int u32;
typedef unsigned short u16;
typedef long long i64;

constexpr int ITEM = FLOATS == 32 ? 4 : 2;
constexpr int PER = 16 / ITEM;  // elements that a thread reads at once
constexpr u32 INFINITE = 0x7F800000, ONE_NAN = 0x7FFFFFFF, MAGNITUDE = 0x7FFFFFFF;

struct alignas(16) Given { u32 words[4]; };

__device__ __forceinline__ Given take(const char* row, i64 at, i64 columns) {
    Given in{};
    if (at + PER <= columns) {
        uint4 found = *reinterpret_cast<const uint4*>(row + at * ITEM);
        in = {{found.x, found.y, found.z, found.w}};
    } else {
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (at + i < columns) {
                const char* from = row + (at + i) * ITEM;
                if (ITEM == 4) in.words[i] = *reinterpret_cast<const u32*>(from);
                else in.words[i / 2] |= static_cast<u32>(
                    *reinterpret_cast<const u16*>(from)) << i % 2 * 16;
            }
    }
    return in;
}

// The bits of element i as f32.
__device__ __forceinline__ u32 bits(const Given& in, int i) {
#if FLOATS == 32
    return in.words[i];
#elif FLOATS == 16
    u16 half = in.words[i / 2] >> i % 2 * 16;
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(half));
    return __float_as_uint(wide);
#else
    return i % 2 ? in.words[i / 2] & 0xFFFF0000 : in.words[i / 2] << 16;
#endif
}
