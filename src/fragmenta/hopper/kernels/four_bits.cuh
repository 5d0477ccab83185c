// A of 4-bit integers: loaded, converted in registers, multiplied, and its groups scaled.
//
// A block of 64 rows and 128 columns is stored by lanes: 16 bytes of integers each, then
// the metadata words, then the scales of the two rows that four lanes share.  The tensor
// core multiplies the integers themselves.  The sum of each group of columns leaves it
// and is added in f32: total = fma(sum, scale, total), in ascending k.
//
// The products of a group of one m64 block are a unit.  While those of one unit run, the
// next one is converted.  A running product still reads its registers of A and metadata,
// and writes its sums.  So units take turns in two sets of registers; with SETS == 2, in
// two sets of sums, too.

constexpr int GROUP_STEPS = STEPS / GROUPS;     // instructions of a unit
constexpr int UNITS = SLABS * GROUPS * BLOCKS;  // of a stage
// e4m3 has the integers as multiples of 2^-9: these are its least bits.
constexpr float UNIT_SCALE = FOUR_BITS == 8 ? 512.0f : 1.0f;

static_assert(!TURNS && !PROMOTE, "consumers of 4-bit integers share a tile");
static_assert(STEPS % GROUPS == 0, "a group has whole instructions");

// ── integers ────────────────────────────────────────────────────────────────

// What a lane holds of one block.
struct Stored {
    u32 integers[4], codes[2], scales[GROUPS];
};

// The same value.  The assembler does not compute it again before each use.
__device__ __forceinline__ u32 kept(u32 x) {
    return __shfl_sync(~0u, x, threadIdx.x % 32);
}

// Where a lane finds the parts of the first block.
struct Parts {
    u32 integers, codes, scales;

    __device__ __forceinline__ explicit Parts(u32 block) {
        u32 lane = threadIdx.x % 128;
        integers = kept(block + lane * 16);
        codes = kept(block + BLOCK_VALUES + lane * 8);
        scales = kept(block + BLOCK_VALUES + 1024 + lane / 4 * (4 * GROUPS));
    }
};

// Load the parts of a block that is so many bytes after the first one.
__device__ __forceinline__ void load_codes(Stored& x, const Parts& first, u32 after) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                 : "=r"(x.codes[0]), "=r"(x.codes[1]) : "r"(first.codes + after));
}

__device__ __forceinline__ void load_integers(
    Stored& x, const Parts& first, u32 after) {
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.integers[0]), "=r"(x.integers[1]), "=r"(x.integers[2]),
                   "=r"(x.integers[3]) : "r"(first.integers + after));
#if GROUP_SCALES
#pragma unroll
    for (int g = 0; g < GROUPS; g++)
        asm volatile("ld.shared.u32 %0, [%1];"
                     : "=r"(x.scales[g]) : "r"(first.scales + after + 4 * g));
#endif
}

// The scales of a group, for the two rows of a lane.
__device__ __forceinline__ void scales_of(float (&s)[2], const Stored& x, int group) {
#if GROUP_SCALES == 1
    s[0] = __uint_as_float(x.scales[group] << 16) * UNIT_SCALE;
    s[1] = __uint_as_float(x.scales[group] & 0xFFFF0000) * UNIT_SCALE;
#elif GROUP_SCALES == 2
    asm("{.reg .b16 low, high;\n"
        "mov.b32 {low, high}, %2;\n"
        "cvt.f32.f16 %0, low;\n"
        "cvt.f32.f16 %1, high;}" : "=f"(s[0]), "=f"(s[1]) : "r"(x.scales[group]));
    s[0] *= UNIT_SCALE, s[1] *= UNIT_SCALE;
#else
    s[0] = s[1] = UNIT_SCALE;
#endif
}

// The registers of A of an instruction.
__device__ __forceinline__ void convert(
    u32 (&a)[4], const Stored& x, int step, u32 mask) {
#if FOUR_BITS == 8
    // A byte has three bits of one integer and of the next one, and a sign bit for each:
    // those of the second are four bits away.  A negative one is stored less one.
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 w = x.integers[2 * step + i / 2];
        if (i % 2) asm("shf.r.wrap.b32 %0, %1, %1, 4;" : "=r"(w) : "r"(w));
        a[i] = (w & 0x87878787) + ((w & 0x80808080) >> 7);
    }
#else
    // An integer plus 8 in the lowest bits of 128 (bf16) or 1024 (f16).
    constexpr u32 base = FOUR_BITS == 1 ? 0x43004300 : 0x64006400;
    constexpr u32 less = FOUR_BITS == 1 ? 0xC308C308 : 0xE408E408;  // -136, -1032
    constexpr u32 one = FOUR_BITS == 1 ? 0x3F803F80 : 0x3C003C00;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        u32 w = (x.integers[step] >> 4 * i & mask) | base;
        if (FOUR_BITS == 1)
            asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(a[i]) : "r"(w), "r"(one), "r"(less));
        else
            asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(a[i]) : "r"(w), "r"(one), "r"(less));
    }
#endif
}

// ── B ───────────────────────────────────────────────────────────────────────

// Where a stage of B is: the low word of its descriptor.  So that of every instruction is
// one addition away, and the same for all lanes.
__device__ __forceinline__ u32 box_of(u32 address) {
    return __shfl_sync(~0u, (u32)descriptor<ROW_B>(address), 0);
}

// The descriptor of what is `offset` bytes after it.
__device__ __forceinline__ u64 at_box(u32 b, int offset) {
    constexpr u64 high = descriptor<ROW_B>(0) >> 32 << 32;
    return high | (b + (u32)offset / 16);
}

// ── units ───────────────────────────────────────────────────────────────────

// The sums of a tile, and those of the units under way.
struct Grouped {
    Sums total;
    ACCUMULATOR sums[SETS][ACCUMULATORS];
    u32 a[2][GROUP_STEPS][4];
    float scales[2][2];
    // Of an integer in each half.  blockIdx.z is 0: a constant would be loaded each time.
    u32 mask = kept(0x000F000F + blockIdx.z);

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < BLOCKS; i++)
#pragma unroll
            for (int x = 0; x < ACCUMULATORS; x++) total[i][x] = 0.0f;
    }

    // Add the sums of a unit whose products have ended.
    __device__ __forceinline__ void add(int unit) {
        ACCUMULATOR(&sum)[ACCUMULATORS] = sums[unit % SETS];
        const float(&s)[2] = scales[unit & 1];
        ACCUMULATOR(&to)[ACCUMULATORS] = total[unit % BLOCKS];
#pragma unroll
        for (int x = 0; x < ACCUMULATORS; x++) {
            asm volatile("" : "+f"(sum[x])::"memory");  // not before the wait
            to[x] = __fmaf_rn(sum[x], s[x / 2 % 2], to[x]);
        }
    }

    __device__ __forceinline__ void prepare(int unit, const Stored& x, int group) {
#pragma unroll
        for (int q = 0; q < GROUP_STEPS; q++)
            convert(a[unit % 2][q], x, group * GROUP_STEPS + q, mask);
    }

    // Start the products of a unit.
    __device__ __forceinline__ void start(
        int unit, const Stored& x, int group, u32 b) {
        scales_of(scales[unit % 2], x, group);
        wgmma_fence();
#pragma unroll
        for (int q = 0; q < GROUP_STEPS; q++) {
            int j = group * GROUP_STEPS + q;
            constexpr int in_box = STEPS / BOXES;
            u64 db = at_box(
                b, j / in_box * (TILE_N * ROW_B) + j % in_box * (ROW_B / in_box));
            auto& sum = sums[unit % SETS];
            bool more = q > 0;
#if PAIRED
            if (j % 2) multiply<1>(sum, a[unit % 2][q], db, x.codes[j / 2], more);
            else multiply<0>(sum, a[unit % 2][q], db, x.codes[j / 2], more);
#else
            multiply(sum, a[unit % 2][q], db, x.codes[j], more);
#endif
        }
        wgmma_commit();
    }
};

typedef Stored Stage[SLABS][BLOCKS];  // what a lane holds of a stage

// The assembler reuses a register of metadata although a running product still reads it,
// unless something reads it afterwards.  No metadata are all ones, so this is true.
__device__ __forceinline__ bool still_there(const Stage& stored) {
    u32 ones = ~0u;
#pragma unroll
    for (int s = 0; s < SLABS; s++)
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) ones &= stored[s][i].codes[0] & stored[s][i].codes[1];
    return ones != ~0u;
}

// Start all products of a stage; those of the last unit may still run.
__device__ __forceinline__ void start_slabs(
    Grouped& all, const Stage& stored, u32 b) {
#pragma unroll
    for (int x = 0; x < UNITS; x++) {
        int s = x / (GROUPS * BLOCKS), g = x / BLOCKS % GROUPS, i = x % BLOCKS;
        all.prepare(x, stored[s][i], g);
        if (SETS == 1 && x) {
            wgmma_wait<0>();
            all.add(x - 1);
        }
        all.start(x, stored[s][i], g, b + s * SLAB / 16);
        if (SETS == 2 && x) {
            wgmma_wait<1>();
            all.add(x - 1);
        }
    }
}

__device__ __forceinline__ void end_slabs(Grouped& all, const Stage& stored) {
    wgmma_wait<0>();
    if (!still_there(stored)) asm volatile("trap;");
    all.add(UNITS - 1);
}

// One slab, one unit after the other.
__device__ __forceinline__ void multiply_slab(
    Grouped& all, const Parts& first, u32 after, u32 b) {
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) {
        Stored x;
        load_integers(x, first, after + i * SLABS * BLOCK_A);
        load_codes(x, first, after + i * SLABS * BLOCK_A);
#pragma unroll
        for (int g = 0; g < GROUPS; g++) {
            all.prepare(i, x, g);
            all.start(i, x, g, b);
            wgmma_wait<0>();
            all.add(i);
        }
    }
}
