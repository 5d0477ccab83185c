// Integers: wide arithmetic, bits and bytes, hashing, random numbers.
#include "common.cuh"

KERNEL division_64(const long long *a, const long long *b, long long *out) {
    int i = global_id();
    unsigned long long ua = a[i], ub = b[i];
    long long *to = out + i * 6;
    to[0] = ua / ub;
    to[1] = ua % ub;
    // The one quotient that has no representation is not asked for.
    bool safe = !(a[i] == LLONG_MIN && b[i] == -1);
    to[2] = safe ? a[i] / b[i] : 0;
    to[3] = safe ? a[i] % b[i] : 0;
    to[4] = ua / 1000000007u + a[i] / 10;
    to[5] = static_cast<int>(a[i]) / (static_cast<int>(b[i]) | 1) + static_cast<unsigned>(ua) % 641u;
}

KERNEL arithmetic_128(const unsigned long long *a, const unsigned long long *b, unsigned long long *out) {
    int i = global_id();
    unsigned __int128 wide = static_cast<unsigned __int128>(a[i]) * b[i], sum = wide + (wide >> 37) - a[i];
    unsigned long long *to = out + i * 6;
    to[0] = static_cast<unsigned long long>(sum);
    to[1] = static_cast<unsigned long long>(sum >> 64);
    to[2] = __umul64hi(a[i], b[i]) ^ __mul64hi(a[i], b[i]);
    to[3] = static_cast<unsigned long long>(wide % 0xffffffffffffffc5ull);
    to[4] = wide < sum;
    to[5] = static_cast<unsigned long long>((wide / (b[i] >> 7 | 3)) >> 11);
}

// 256-bit products by carry chains: mad.lo.cc, madc.hi.cc, addc.
KERNEL multiply_256(const unsigned *a, const unsigned *b, unsigned *out) {
    const unsigned *x = a + global_id() * 8, *y = b + global_id() * 8;
    unsigned sum[16] = {};
    for (int i = 0; i < 8; i++) {
        unsigned carry = 0;
        for (int j = 0; j < 8; j++) {
            unsigned low, high;
            asm("mad.lo.cc.u32 %0, %2, %3, %4;\n\t"
                "madc.hi.u32 %1, %2, %3, 0;\n\t"
                "add.cc.u32 %0, %0, %5;\n\t"
                "addc.u32 %1, %1, 0;"
                : "=&r"(low), "=&r"(high)
                : "r"(x[j]), "r"(y[i]), "r"(sum[i + j]), "r"(carry));
            sum[i + j] = low;
            carry = high;
        }
        sum[i + 8] = carry;
    }
    unsigned long long borrow;
    asm("sub.cc.u64 %0, %1, %2;\n\tsubc.cc.u64 %0, %0, 0;\n\tsubc.u64 %0, %0, %2;"
        : "=&l"(borrow)
        : "l"(static_cast<unsigned long long>(sum[0]) << 32 | sum[1]), "l"(static_cast<unsigned long long>(x[0])));
    for (int i = 0; i < 16; i++) out[global_id() * 18 + i] = sum[i];
    out[global_id() * 18 + 16] = static_cast<unsigned>(borrow);
    out[global_id() * 18 + 17] = static_cast<unsigned>(borrow >> 32);
}

KERNEL bit_fiddling(const unsigned *a, const unsigned *b, unsigned *out) {
    int i = global_id();
    unsigned x = a[i], y = b[i], r, *to = out + i * 16;
    unsigned long long w = static_cast<unsigned long long>(x) << 32 | y, r64;
    to[0] = __brev(x) ^ __clz(y) ^ __ffs(x) << 8 ^ __popc(y) << 16;
    to[1] = __byte_perm(x, y, 0x2745 ^ (x & 0x7777));
    to[2] = __funnelshift_l(x, y, y) ^ __funnelshift_rc(x, y, x & 63);
    to[3] = __funnelshift_lc(x, y, x & 63) + __funnelshift_r(x, y, 13);
    to[4] = (x & y) | (~x & (y ^ 0x0f0f0f0f));
    asm("bfe.u32 %0, %1, %2, %3;" : "=r"(to[5]) : "r"(x), "r"(y & 255), "r"(y >> 8 & 63));
    asm("bfe.s32 %0, %1, %2, %3;" : "=r"(to[6]) : "r"(x), "r"(y & 31), "r"(y >> 8 & 31));
    asm("bfi.b32 %0, %1, %2, %3, %4;" : "=r"(to[7]) : "r"(x), "r"(y), "r"(x >> 8 & 63), "r"(y & 63));
    asm("bfe.s64 %0, %1, %2, %3;" : "=l"(r64) : "l"(w), "r"(y & 127), "r"(x & 127));
    to[8] = static_cast<unsigned>(r64 ^ r64 >> 32);
    asm("bfi.b64 %0, %1, %2, %3, %4;" : "=l"(r64) : "l"(w), "l"(w * 3), "r"(x & 63), "r"(y & 63));
    to[9] = static_cast<unsigned>(r64 ^ r64 >> 32);
    asm("bfind.s32 %0, %1;" : "=r"(r) : "r"(x));
    asm("bfind.shiftamt.u64 %0, %1;" : "=r"(to[10]) : "l"(w >> (y & 63)));
    to[10] ^= r << 8;
    asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(to[11]) : "r"(x), "r"(y), "r"(x * y));
    asm("prmt.b32.f4e %0, %1, %2, %3;" : "=r"(to[12]) : "r"(x), "r"(y), "r"(y & 3));
    asm("prmt.b32.ecl %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(x & 3));
    to[12] ^= r;
    asm("prmt.b32.rc16 %0, %1, %2, %3;" : "=r"(to[13]) : "r"(x), "r"(y), "r"(x & 3));
    asm("bmsk.clamp.b32 %0, %1, %2;" : "=r"(to[14]) : "r"(x & 63), "r"(y & 63));
    asm("szext.wrap.s32 %0, %1, %2;" : "=r"(to[15]) : "r"(x), "r"(y & 31));
}

// Products, sums and differences of bytes and halfwords in words.
KERNEL packed_integers(const unsigned *a, const unsigned *b, unsigned *out) {
    int i = global_id();
    unsigned x = a[i], y = b[i], *to = out + i * 12;
    to[0] = __dp4a(static_cast<int>(x), static_cast<int>(y), static_cast<int>(x ^ y));
    to[1] = __dp4a(x, y, ~x);
    to[2] = __dp2a_lo(static_cast<int>(x), static_cast<int>(y), 5) + __dp2a_hi(x, y, 7u);
    to[3] = __vadd4(x, y) ^ __vsubss2(x, y);
    to[4] = __vabsdiffu4(x, y) + __vmaxs2(x, y);
    to[5] = __vcmpgtu4(x, y) ^ __vavgu4(x, y);
    to[6] = __vabsss4(x) - __vminu2(x, y);
    to[7] = __viaddmax_s32(x, y, 9) ^ __vimax3_s16x2(x, y, x + y);
    to[8] = __mulhi(static_cast<int>(x), static_cast<int>(y)) ^ __umulhi(x, y) ^ __umul24(x, y) ^ __mul24(x, y);
    to[9] = __sad(x, y, 3u) + __hadd(x, y) - __rhadd(x, y) + __usad(x, y, 1u);
    to[10] = __vsetltu2(x, y) | __vsads4(x, y) << 4;
    to[11] = max(static_cast<short>(x), static_cast<short>(y)) * min(static_cast<unsigned char>(x >> 3), 99);
}

// SHA-256 of one 64-byte block per thread.
__constant__ unsigned sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

__device__ inline unsigned turn(unsigned x, int by) { return __funnelshift_r(x, x, by); }

KERNEL sha256(const unsigned *message, unsigned *digest) {
    unsigned w[64], h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                            0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}, s[8];
    for (int i = 0; i < 16; i++) w[i] = __byte_perm(message[global_id() * 16 + i], 0, 0x0123);
    for (int i = 16; i < 64; i++) {
        unsigned a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    for (int i = 0; i < 8; i++) s[i] = h[i];
    for (int i = 0; i < 64; i++) {
        unsigned t1 = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) +
                      sha_k[i] + w[i];
        unsigned t2 = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) +
                      ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        for (int j = 7; j > 0; j--) s[j] = s[j - 1];
        s[4] += t1;
        s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++) digest[global_id() * 8 + i] = __byte_perm(h[i] + s[i], 0, 0x0123);
}

// CRC-32 with a table that the block makes in shared memory.
KERNEL crc32(const unsigned char *text, unsigned *crc, int length) {
    __shared__ unsigned table[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        unsigned word = i;
        for (int bit = 0; bit < 8; bit++) word = word & 1 ? word >> 1 ^ 0xedb88320u : word >> 1;
        table[i] = word;
    }
    __syncthreads();
    unsigned value = ~0u;
    for (int i = 0; i < length; i++) value = table[(value ^ text[global_id() * length + i]) & 255] ^ value >> 8;
    crc[global_id()] = ~value;
}

// Philox 4x32-10, and what is made of its words: uniform and normal floats.
KERNEL philox(unsigned long long seed, uint4 *words, float4 *normals) {
    uint4 c = make_uint4(global_id(), 17, 0, blockIdx.x);
    unsigned k0 = static_cast<unsigned>(seed), k1 = static_cast<unsigned>(seed >> 32);
    for (int round = 0; round < 10; round++, k0 += 0x9e3779b9u, k1 += 0xbb67ae85u) {
        unsigned h0 = __umulhi(0xd2511f53u, c.x), l0 = 0xd2511f53u * c.x;
        unsigned h1 = __umulhi(0xcd9e8d57u, c.z), l1 = 0xcd9e8d57u * c.z;
        c = make_uint4(h1 ^ c.y ^ k0, l1, h0 ^ c.w ^ k1, l0);
    }
    words[global_id()] = c;
    float s, t, u = c.x * 0x1p-32f + 0x1p-33f, v = c.z * 0x1p-32f + 0x1p-33f;
    float4 n;
    sincospif(c.y * 0x1p-31f, &s, &t);
    float r = sqrtf(-2 * logf(u));
    n.x = r * s, n.y = r * t;
    __sincosf(c.w * 0x1p-32f * 6.2831855f, &s, &t);
    r = sqrtf(-2 * __logf(v));
    n.z = r * s, n.w = r * t;
    normals[global_id()] = n;
}

// Points in a quarter disc, by xorshift generators that each thread seeds for itself.
KERNEL monte_carlo(unsigned long long *inside, unsigned *states, int rounds) {
    unsigned long long state = global_id() * 0x9e3779b97f4a7c15ull + 1;
    unsigned hits = 0;
    for (int i = 0; i < rounds; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        float x = static_cast<unsigned>(state) * 0x1p-32f, y = static_cast<unsigned>(state >> 32) * 0x1p-32f;
        hits += x * x + y * y < 1.0f;
    }
    hits = __reduce_add_sync(~0u, hits);
    if (lane_id() == 0) atomicAdd(inside, hits);
    states[global_id()] = static_cast<unsigned>(state);
}

// Modular powers and inverses: loops of 64-bit remainders.
KERNEL modular(const unsigned *base, const unsigned *exponent, unsigned *power, int *inverse, unsigned modulus) {
    int i = global_id();
    unsigned long long result = 1, b = base[i] % modulus;
    for (unsigned e = exponent[i]; e; e >>= 1) {
        if (e & 1) result = result * b % modulus;
        b = b * b % modulus;
    }
    power[i] = result;
    int r0 = modulus, r1 = base[i] % modulus, t0 = 0, t1 = 1;
    while (r1) {
        int q = r0 / r1, r = r0 - q * r1, t = t0 - q * t1;
        r0 = r1, r1 = r, t0 = t1, t1 = t;
    }
    inverse[i] = t0 < 0 ? t0 + static_cast<int>(modulus) : t0;
}
