// Atomic operations whose answer does not depend on the order.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "common.cuh"

KERNEL histogram_shared(const unsigned char *x, unsigned *counts, int n) {
    __shared__ unsigned bins[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (int i = global_id(); i < n / 4; i += gridDim.x * blockDim.x) {
        uchar4 four = reinterpret_cast<const uchar4 *>(x)[i];
        atomicAdd(&bins[four.x], 1);
        atomicAdd(&bins[four.y], 1);
        atomicAdd(&bins[four.z], 1);
        atomicAdd(&bins[four.w], 1);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (bins[i]) atomicAdd(&counts[i], bins[i]);
}

// Lanes with the same key add once: the leader adds the number of its peers.
KERNEL histogram_aggregated(const int *keys, int *counts, int *ranks, int n) {
    int i = global_id();
    if (i >= n) return;
    unsigned peers = __match_any_sync(__activemask(), keys[i]), before = peers & ((1u << lane_id()) - 1);
    if (!before) atomicAdd(&counts[keys[i]], __popc(peers));
    ranks[i] = __popc(before);
}

// Sums of small whole numbers are exact in each of these types.
KERNEL add_floats(const int *keys, const float *x, float *f, double *d, half2 *h, __nv_bfloat162 *b, half *one) {
    int i = global_id(), key = keys[i];
    atomicAdd(&f[key], x[i]);
    atomicAdd(&d[key], static_cast<double>(x[i]) * 0x1p-40);
    atomicAdd(&h[key], __floats2half2_rn(x[i], -x[i]));
    atomicAdd(&b[key], __floats2bfloat162_rn(x[i] > 0, 1.0f));
    atomicAdd(&one[key], __float2half(x[i]));
}

KERNEL integer_atomics(const int *x, int *s, unsigned *u, long long *sl, unsigned long long *ul, unsigned *bits) {
    int value = x[global_id()];
    unsigned key = value & 3;
    atomicMin(&s[key], value);
    atomicMax(&s[4 + key], value);
    atomicSub(&s[8 + key], value);
    atomicMin(&u[key], static_cast<unsigned>(value));
    atomicMax(&u[4 + key], static_cast<unsigned>(value));
    atomicInc(&u[8 + key], 41);
    atomicDec(&u[12 + key], 29);
    long long wide = static_cast<long long>(value) * 0x100000001ll;
    atomicMin(&sl[key], wide);
    atomicMax(&sl[4 + key], wide);
    atomicAdd(&ul[key], static_cast<unsigned long long>(wide));
    atomicMin(&ul[4 + key], static_cast<unsigned long long>(wide));
    atomicXor(&ul[8 + key], static_cast<unsigned long long>(wide));
    atomicAnd(&bits[key], ~(1u << (value >> 2 & 31)));
    atomicOr(&bits[4 + key], 1u << (value >> 3 & 31));
    atomicXor(&bits[8 + key], 1u << (value >> 4 & 31));
}

// What CAS makes possible: any associative operation.  Products of powers of two are exact.
KERNEL cas_loops(const float *x, float *product, double *most, unsigned long long *packed) {
    int i = global_id();
    int *word = reinterpret_cast<int *>(product), seen = *word, old;
    do {
        old = seen;
        seen = atomicCAS(word, old, __float_as_int(__int_as_float(old) * (x[i] > 0 ? 2.0f : 0.5f)));
    } while (seen != old);
    unsigned long long *wide = reinterpret_cast<unsigned long long *>(most), was = *wide, expected;
    while (__longlong_as_double(was) < x[i]) {
        expected = was;
        was = atomicCAS(wide, expected, __double_as_longlong(x[i]));
        if (was == expected) break;
    }
    // Two counters in one word, each with its own carry stop.
    unsigned long long all = *packed, next;
    do {
        expected = all;
        unsigned low = static_cast<unsigned>(expected) + i, high = (expected >> 32) ^ (i * 2654435761u);
        next = static_cast<unsigned long long>(high) << 32 | low;
        all = atomicCAS(packed, expected, next);
    } while (all != expected);
}

KERNEL cas_16_bit(const unsigned short *keys, unsigned short *counts) {
    unsigned short *at = &counts[keys[global_id()] & 15], seen = *at, old;
    do {
        old = seen;
        seen = atomicCAS(at, old, static_cast<unsigned short>(old * 1 + 3));
    } while (seen != old);
}

// A token is exchanged: whatever the order, the sum of all that is held stays the same.
KERNEL exchange(const int *x, int *slots, int *held, unsigned long long *wide) {
    __shared__ int slot;
    if (threadIdx.x == 0) slot = 0;
    __syncthreads();
    int mine = x[global_id()], got = atomicExch(&slot, mine);
    got = atomicExch(&slots[blockIdx.x], got);
    atomicAdd(&held[blockIdx.x], got);
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(&held[blockIdx.x], slot + slots[blockIdx.x]);
        slots[blockIdx.x] = 0;
        wide[blockIdx.x] = atomicExch(&wide[gridDim.x + blockIdx.x], 0x123456789abcdefull);
    }
}

// Open addressing: insert keys by CAS, then count each by looking it up.
KERNEL hash_table(const int *keys, int *table, int *counts, int *found, int slots) {
    extern __shared__ int shared_counts[];
    for (int i = threadIdx.x; i < slots; i += blockDim.x) table[i] = -1, shared_counts[i] = 0;
    __syncthreads();
    int key = keys[threadIdx.x], at = (key * 0x9e3779b1u >> 8) % slots;
    for (;; at = (at + 1) % slots) {
        int there = atomicCAS(&table[at], -1, key);
        if (there == -1 || there == key) break;
    }
    atomicAdd(&shared_counts[at], 1);
    __syncthreads();
    found[threadIdx.x] = shared_counts[at];
    // The places depend on the order of arrival; the set of keys does not.
    __syncthreads();
    for (int i = threadIdx.x; i < slots; i += blockDim.x) {
        if (table[i] >= 0) atomicAdd(&counts[table[i] & 63], shared_counts[i]);
        table[i] = -2;
    }
}

// Union-find with path halving: the label of a component is its smallest member.
KERNEL components(const int2 *edges, int *parent, int n, int m) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) parent[i] = i;
    __syncthreads();
    volatile int *up = parent;
    for (int i = threadIdx.x; i < m; i += blockDim.x) {
        int a = edges[i].x, b = edges[i].y;
        while (true) {
            while (up[a] != a) a = up[a];
            while (up[b] != b) b = up[b];
            if (a == b) break;
            if (a < b) {
                int swap = a;
                a = b;
                b = swap;
            }
            if (atomicCAS(&parent[a], a, b) == a) break;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int root = i;
        while (up[root] != root) root = up[root];
        parent[i] = root;
    }
}

#if __CUDA_ARCH__ >= 900
// Sixteen bytes at once: two sums that are always changed together.
KERNEL cas_128(const unsigned *x, ulonglong2 *both) {
    unsigned long long value = x[global_id()], low = 0, high = 0;
    for (bool done = false; !done;) {
        unsigned long long next_low = low + value, next_high = high ^ (value * value), seen_low, seen_high;
        asm volatile("{ .reg .b128 expected, next, seen;\n\t"
                     "mov.b128 expected, {%2, %3};\n\t"
                     "mov.b128 next, {%4, %5};\n\t"
                     "atom.global.cas.b128 seen, [%6], expected, next;\n\t"
                     "mov.b128 {%0, %1}, seen; }"
                     : "=l"(seen_low), "=l"(seen_high)
                     : "l"(low), "l"(high), "l"(next_low), "l"(next_high), "l"(both)
                     : "memory");
        done = seen_low == low && seen_high == high;
        low = seen_low, high = seen_high;
    }
}

// Two and four floats by one instruction.
KERNEL add_vectors(const int *keys, const float *x, float2 *twos, float4 *fours) {
    int i = global_id(), key = keys[i];
    atomicAdd(&twos[key], make_float2(x[i], 1.0f));
    atomicAdd(&fours[key], make_float4(x[i], -x[i], 2 * x[i], 0.5f));
}
#endif
