// D = A B for Hopper.  A is m x k, sparse (2:4, or 1:2 for tf32) or dense.  B is stored
// as n x k, so k is contiguous in both.
//
// A block of threads computes tiles of TILE_M x TILE_N of D, one after the other.
// One thread (the producer) keeps a ring of STAGES filled by bulk copies.  The other
// warpgroups (the consumers) multiply, each of them BLOCKS m64 blocks, and store.  They
// share a tile by rows; with TURNS they take whole tiles alternately, and one stores
// while the other multiplies.
//
// Counted in bytes, the kernel is the same for all types.  A slab is 128 bytes of each
// row of B.  An instruction reads 32 stored bytes of each row of A, and from each row of
// B the 32 (dense) or 64 (sparse) bytes that they are multiplied with.  A stage is SLABS
// slabs: the slabs of small tiles have little arithmetic, so several share one barrier.
//
// With SPLIT, so many blocks of a cluster share a tile along k.  Each sums its part of
// the stages.  Then they exchange their sums through shared memory, and each adds and
// stores some columns: the parts are always added in ascending k.
//
// The weights of a layer do not depend on the kernel that ran before.  If the launcher
// says so, a kernel starts before that one has ended, and copies the first stages of A.
//
// The launcher defines TILE_M TILE_N STAGES SLABS STAGING_ROOM CLUSTER SPLIT CONSUMERS
// TURNS BLOCKS; SPARSE, WORDS (metadata words per lane and slab), PAIRED (whether two
// instructions share a word); ACCUMULATOR OUTPUT, BOX_WIDE and BOX_HIGH (bytes and rows of
// D that a copy stores); PROMOTE SCALED TRANSPOSED XOR; and the function `multiply` around
// one wgmma.

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr int ROW_A = SPARSE ? 64 : 128;  // stored bytes of a row of A in a slab
constexpr int ROW_B = 128;
constexpr int STEPS = ROW_A / 32;  // instructions along k in a slab
// 64 rows of A in a slab; the metadata follows the sparse values.
constexpr int BLOCK_VALUES = 64 * ROW_A;
constexpr int BLOCK_A = BLOCK_VALUES + (SPARSE ? 128 * WORDS * 4 : 0);
constexpr int BYTES_A = TILE_M / 64 * BLOCK_A;
constexpr int BYTES_B = TILE_N * ROW_B;
constexpr int OFFSET_B = (BYTES_A + 1023) / 1024 * 1024;
constexpr int SLAB = OFFSET_B + BYTES_B;
constexpr int STAGE = SLABS * SLAB;
constexpr int ACCUMULATORS = TILE_N / 2;  // per lane and m64 block
constexpr int CODES = SPARSE ? BLOCKS * WORDS : 1;
constexpr int GROUP = 8;       // rows of tiles whose A stays in the L2 together
constexpr int PACKED_M = 256;  // rows of A whose slabs are adjacent in memory
constexpr int PACKED_SLAB = PACKED_M / 64 * BLOCK_A;
constexpr int WARPS = 4 * CONSUMERS;
constexpr int TEAM = TURNS ? 1 : CONSUMERS;  // consumers that share a tile

static_assert(TILE_M == 64 * TEAM * BLOCKS, "consumers share a tile by rows");
static_assert(!TURNS || CONSUMERS == 2, "two take turns");
static_assert(!PROMOTE || SLABS == 1, "what a slab gives is added outside");
static_assert(TILE_N % (8 * CLUSTER) == 0, "a block brings whole swizzle patterns");
static_assert(SPLIT == 1 || !TURNS, "blocks that share a tile compute no other one");

struct alignas(64) TensorMap { char opaque[128]; };

// ── barriers and copies ─────────────────────────────────────────────────────

__device__ __forceinline__ u32 shared_address(const void* p) {
    return static_cast<u32>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void barrier_init(u32 bar, u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}

__device__ __forceinline__ void barrier_expect(u32 bar, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                 ::"r"(bar), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_wait(u32 bar, u32 parity) {
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
        "@done bra finished;\n"
        "bra again;\n"
        "finished:\n"
        "}\n" ::"r"(bar), "r"(parity) : "memory");
}

__device__ __forceinline__ void barrier_arrive_here(u32 bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}

// Arrive at the barrier with the same address in another block of the cluster.
__device__ __forceinline__ void barrier_arrive(u32 bar, u32 block) {
    if constexpr (CLUSTER * SPLIT == 1) {
        barrier_arrive_here(bar);
    } else {
        asm volatile(
            "{\n"
            ".reg .b32 there;\n"
            "mapa.shared::cluster.u32 there, %0, %1;\n"
            "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
            "}\n" ::"r"(bar), "r"(block) : "memory");
    }
}

__device__ __forceinline__ void copy_tile(
    u32 to, const TensorMap* map, u32 bar, int x, int y, u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5;"
        ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "l"(policy) : "memory");
}

// Copy into these blocks of the cluster.  Data and signal have the same address in each.
__device__ __forceinline__ void copy_tile_to_all(
    u32 to, const TensorMap* map, u32 bar, int x, int y, unsigned short all,
    u64 policy) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster.L2::cache_hint [%0], [%1, {%3, %4}], [%2], %5, %6;"
        ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "h"(all), "l"(policy)
        : "memory");
}

__device__ __forceinline__ void copy_bytes(
    u32 to, const void* from, u32 bytes, u32 bar, u64 policy) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".L2::cache_hint [%0], [%1], %2, [%3], %4;"
        ::"r"(to), "l"(from), "r"(bytes), "r"(bar), "l"(policy) : "memory");
}

__device__ __forceinline__ void store_tile(
    const TensorMap* map, u32 from, int x, int y) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
        ::"l"(map), "r"(from), "r"(x), "r"(y) : "memory");
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Wait until what ran before this kernel has ended, and its results are there.
__device__ __forceinline__ void previous_wait() {
    asm volatile("griddepcontrol.wait;" ::: "memory");
}

// Let the next kernel start where there is room.  After previous_wait: so whatever the
// next one copies early is older than this kernel.
__device__ __forceinline__ void next_start() {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

__device__ __forceinline__ u32 cluster_rank() {
    u32 rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Synchronize the 128 threads of one consumer.
__device__ __forceinline__ void group_sync(int consumer) {
    asm volatile("bar.sync %0, 128;" ::"r"(consumer + 1) : "memory");
}

// ── wgmma ───────────────────────────────────────────────────────────────────

// K-major, rows of ROW bytes, swizzled over ROW bytes; the stride is eight rows.
template <int ROW>
__device__ __forceinline__ u64 descriptor(u32 address) {
    constexpr u64 mode = ROW == 128 ? 1 : 2;
    return (u64)((address & 0x3FFFF) >> 4) | (u64)(8 * ROW >> 4) << 32 | mode << 62;
}

__device__ __forceinline__ void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

template <int STEP>
__device__ __forceinline__ void step(
    ACCUMULATOR (&acc)[ACCUMULATORS], u64 a, u64 b, u32 codes, bool add) {
#if PAIRED
    multiply<STEP % 2>(acc, a, b, codes, add);
#elif SPARSE
    multiply(acc, a, b, codes, add);
#else
    multiply(acc, a, b, add);
#endif
}

// ── which tile next ─────────────────────────────────────────────────────────

// Clusters go down GROUP rows of tiles, then to the next column.  So tiles that are
// computed at the same time share rows of A and columns of B in the L2.
__device__ __forceinline__ void tile_at(
    int index, int tiles_m, int tiles_n, int* m, int* n) {
    int per_group = GROUP * tiles_n;
    int group = index / per_group;
    int first = group * GROUP;
    int height = min(GROUP, tiles_m - first);
    int inside = index - group * per_group;
    *m = first + inside % height;
    *n = inside / height;
}

// ── the result ──────────────────────────────────────────────────────────────

// acc * (scale * scale_m) * scale_n + bias, rounded to f32 after each step.  A null
// pointer leaves its step out.  For XOR: the number of set bits in each row of A and B.
struct Epilogue {
    const float* scale;
    const float* scale_m;
    const float* scale_n;
    const float* bias;  // one for each row of D
    const int* count_m;
    const int* count_n;
};

#if OUTPUT == 1 || OUTPUT == 2  // bf16, f16
#define OUTPUT_BYTES 2
typedef float result_t;
__device__ __forceinline__ u32 join(float x, float y) {
    u32 z;
    if (OUTPUT == 1) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x));
    else asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(z) : "f"(y), "f"(x));
    return z;
}
#elif OUTPUT == 0  // f32
#define OUTPUT_BYTES 4
typedef float result_t;
#else  // s32
#define OUTPUT_BYTES 4
typedef int result_t;
#endif

constexpr int ITEM = OUTPUT_BYTES;
constexpr int WIDE = BOX_WIDE, HIGH = BOX_HIGH;
constexpr int BOX = WIDE * HIGH;  // bytes that one tensor-map copy stores
// A slice is the fewest columns of an m64 block of D that fill whole boxes.
constexpr int COLUMNS = TRANSPOSED ? HIGH : WIDE / ITEM;
constexpr int SLICE = TRANSPOSED ? BOX * (64 * ITEM / 128) : BOX;
constexpr int SLICES = TILE_N / COLUMNS;
static_assert(TILE_N % COLUMNS == 0, "slices leave no columns behind");
constexpr int ROOM = STAGING_ROOM / SLICE < 1 ? 1 : STAGING_ROOM / SLICE;
constexpr int TOGETHER = SLICES < ROOM ? SLICES : ROOM;  // slices in the staging buffer
constexpr int STAGING = TOGETHER * SLICE;                // bytes per consumer

// Swizzle 16-byte units as the tensor map expects; this also avoids bank conflicts.
template <int SPAN>
__device__ __forceinline__ u32 swizzled(u32 at) {
    return at ^ ((at >> 7) & (SPAN / 16 - 1)) << 4;
}

// The factors, biases and bit counts of the two rows of an m64 block that a lane holds.
struct Rows {
    float factor[2];
    float bias[2];
    int count[2];
};

__device__ __forceinline__ Rows rows_of(const Epilogue& e, int block, int m) {
    Rows rows{};
    int row = block + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int at = row + 8 * h;
        bool inside = at < m;
        if constexpr (SCALED) {
            float factor = e.scale ? *e.scale : 1.0f;
            if (e.scale_m && inside) factor = __fmul_rn(factor, e.scale_m[at]);
            rows.factor[h] = factor;
            rows.bias[h] = e.bias && inside ? e.bias[at] : -0.0f;  // x + -0.0 is x
        }
        if constexpr (XOR) rows.count[h] = inside ? e.count_m[at] : 0;
    }
    return rows;
}

// The factors or bit counts of the columns of a tile: lane L holds those of the columns
// L, L + 32, ...
constexpr int PARTS = (TILE_N + 31) / 32;
struct Columns {
    float scale[SCALED ? PARTS : 1];
    int count[XOR ? PARTS : 1];
};

__device__ __forceinline__ Columns columns_of(const Epilogue& e, int col, int n) {
    Columns columns;
#pragma unroll
    for (int p = 0; p < PARTS; p++) {
        int at = col + p * 32 + threadIdx.x % 32;
        if constexpr (SCALED)
            columns.scale[p] = e.scale_n && at < n ? e.scale_n[at] : 1.0f;
        if constexpr (XOR) columns.count[p] = at < n ? e.count_n[at] : 0;
    }
    return columns;
}

__device__ __forceinline__ result_t finish(
    ACCUMULATOR value, const Rows& rows, int h, float scale_n, int count_n) {
#if XOR
    return rows.count[h] + count_n - 2 * value;
#elif SCALED
    float x = __fmul_rn(__fmul_rn((float)value, rows.factor[h]), scale_n);
    return __fadd_rn(x, rows.bias[h]);
#else
    return value;
#endif
}

// Half a warp stores pairs of 32-bit results: four rows of two 16-byte units each.  The
// swizzle alone would send adjacent rows to the same banks.  Therefore odd rows store
// the group of eight columns that is two groups further, within the same slice.
constexpr int APART = !TRANSPOSED && OUTPUT_BYTES == 4 && COLUMNS % 32 == 0 ? 2 : 0;

// The four results of a lane in the group g of eight columns.
__device__ __forceinline__ void take_group(
    result_t (&v)[4], const ACCUMULATOR (&acc)[ACCUMULATORS], int g, const Rows& rows,
    const Columns& columns) {
    int lane = threadIdx.x % 32;
    bool odd = APART && lane / 4 % 2;
    int first = (odd ? g ^ APART : g) % 4 * 8 + lane % 4 * 2;
    float scale_n[2] = {1.0f, 1.0f};
    int count_n[2] = {0, 0};
#pragma unroll
    for (int j = 0; j < 2; j++) {
        if constexpr (SCALED)
            scale_n[j] = __shfl_sync(~0u, columns.scale[g / 4], first + j);
        if constexpr (XOR)
            count_n[j] = __shfl_sync(~0u, columns.count[g / 4], first + j);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        ACCUMULATOR value = odd ? acc[4 * (g ^ APART) + i] : acc[4 * g + i];
        v[i] = finish(value, rows, i / 2, scale_n[i % 2], count_n[i % 2]);
    }
}

// Write eight columns of an m64 block to the staging buffer, at column `col` of a slice.
__device__ __forceinline__ void stage_columns(
    u32 slice, int col, const result_t (&v)[4]) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    [[maybe_unused]] int r = warp * 16 + lane / 4, c = lane % 4 * 2;
#if TRANSPOSED && OUTPUT_BYTES == 2
    // Lane L gives the address of row L % 8 of the 8x8 matrix L / 8; there is one matrix
    // for each half of m.  The swizzle repeats after eight columns.
    u32 at = lane % 8 * 128 + (warp * 16 + lane / 8 % 2 * 8) * ITEM;
    at = slice + col * 128 + swizzled<128>(at);
    asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
                 ::"r"(at), "r"(join(v[0], v[1])), "r"(join(v[2], v[3])) : "memory");
#elif TRANSPOSED
#pragma unroll
    for (int i = 0; i < 4; i++) {
        int m = r + i / 2 * 8;
        u32 at = swizzled<128>((c + i % 2) * 128 + m % 32 * ITEM);
        asm volatile("st.shared.u32 [%0], %1;"
                     ::"r"(slice + m / 32 * BOX + col * 128 + at),
                       "r"(*(const u32*)&v[i]) : "memory");
    }
#else
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 at = slice + swizzled<WIDE>((r + 8 * h) * WIDE + (col + c) * ITEM);
#if OUTPUT_BYTES == 2
        asm volatile("st.shared.u32 [%0], %1;"
                     ::"r"(at), "r"(join(v[2 * h], v[2 * h + 1])) : "memory");
#else
        asm volatile("st.shared.v2.u32 [%0], {%1, %2};"
                     ::"r"(at), "r"(*(const u32*)&v[2 * h]),
                       "r"(*(const u32*)&v[2 * h + 1]) : "memory");
#endif
    }
#endif
}

// Store the boxes of one slice from the staging buffer, as far as they are inside D.
__device__ __forceinline__ void store_slice(
    const TensorMap* map, u32 slice, int row, int col) {
#if TRANSPOSED
    for (int b = 0; b < SLICE / BOX; b++)
        store_tile(map, slice + b * BOX, row * ITEM + b * 128, col);
#else
    store_tile(map, slice, col * ITEM, row);
#endif
}

// The slices of a tile are numbered, and the parts of k take them in turn.
__device__ __forceinline__ int slice_number(int block, int slice) {
    return block * SLICES + slice;
}
__device__ __forceinline__ int owner(int block, int slice) {
    return slice_number(block, slice) % SPLIT;
}

// Store one m64 block of D, or what of it this part of k stores.  Its slices take turns in
// the TOGETHER slots of the staging buffer, and `slot` is the next one: while one is
// stored, another is written.
__device__ __forceinline__ void store_block(
    const ACCUMULATOR (&acc)[ACCUMULATORS], const Rows& rows, const Columns& columns,
    const TensorMap* map, u32 staging, int& slot, int consumer, int row, int col,
    int block, int part) {
#pragma unroll
    for (int s = 0; s < SLICES; s++) {
        if (SPLIT > 1 && owner(block, s) != part) continue;
        u32 slice = staging + slot * SLICE;
#pragma unroll
        for (int i = 0; i < COLUMNS / 8; i++) {
            int g = s * (COLUMNS / 8) + i;
            result_t v[4];
            take_group(v, acc, g, rows, columns);
            int ours = APART && threadIdx.x / 4 % 2 ? i ^ APART : i;
            stage_columns(slice, ours * 8, v);
        }
        // The copy engine must see what the threads wrote.  And it must have read the
        // next slot before the threads write there.
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (TOGETHER > 1 && threadIdx.x % 128 == 0)
            asm volatile("cp.async.bulk.wait_group.read %0;"
                         ::"n"(TOGETHER > 1 ? TOGETHER - 2 : 0) : "memory");
        group_sync(consumer);
        if (threadIdx.x % 128 == 0) {
            store_slice(map, slice, row, col + s * COLUMNS);
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            if (TOGETHER == 1)
                asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
        if (TOGETHER == 1) group_sync(consumer);
        slot = slot + 1 == TOGETHER ? 0 : slot + 1;
    }
}

// ── metadata ────────────────────────────────────────────────────────────────

// Load the metadata words of one lane for the m64 blocks of one consumer.
__device__ __forceinline__ void load_codes(u32 (&codes)[CODES], u32 a) {
#if SPARSE
#pragma unroll
    for (int i = 0; i < BLOCKS; i++) {
        u32 from = a + i * BLOCK_A + BLOCK_VALUES + threadIdx.x % 128 * 4 * WORDS;
        if constexpr (WORDS == 2) {
            asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
                         : "=r"(codes[2 * i]), "=r"(codes[2 * i + 1]) : "r"(from));
        } else {
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(codes[i]) : "r"(from));
        }
    }
#endif
}

// ── the ring of stages ──────────────────────────────────────────────────────

// Addresses in the shared memory of the block.
struct Room {
    u32 stages;  // STAGES of A and B, then the staging buffers
    u32 full, empty;
    u32 turns, stores;  // whose turn it is to multiply, and to store
};

// A stage of the ring, and the parity of the current round.
struct Position {
    int stage, phase;
    __device__ __forceinline__ void next() {
        if (++stage == STAGES) { stage = 0; phase ^= 1; }
    }
    __device__ __forceinline__ void pass(int count) {
        phase ^= (stage + count) / STAGES & 1;
        stage = (stage + count) % STAGES;
    }
};

// The tiles of D, and those of this block's cluster.  A cluster computes CLUSTER tiles
// at a time, one below the other: they share B.
struct Tiles {
    int tall, wide, count, first, pace;
    __device__ __forceinline__ Tiles(int m, int n) {
        tall = (m + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER);
        wide = (n + TILE_N - 1) / TILE_N;
        count = tall * wide;
        first = blockIdx.x / (CLUSTER * SPLIT), pace = gridDim.x / (CLUSTER * SPLIT);
    }
};

// Where this block stands in its cluster: which of the tiles one below the other, which
// part of k, and the slabs of that part.
struct Place {
    int rank, part, first, last;
    __device__ __forceinline__ Place(u32 in_cluster, int slabs_k) {
        if constexpr (SPLIT == 1) {
            rank = in_cluster, part = 0, first = 0, last = slabs_k;
        } else {
            rank = in_cluster % CLUSTER, part = in_cluster / CLUSTER;
            int stages = (slabs_k + SLABS - 1) / SLABS;
            first = stages * part / SPLIT * SLABS;
            last = min(stages * (part + 1) / SPLIT * SLABS, slabs_k);
        }
    }
};

// ── the producer ────────────────────────────────────────────────────────────

// Copy COUNT slabs of a tile's rows of A, beginning with slab k.
template <int COUNT>
__device__ __forceinline__ void copy_a(
    u32 to, const char* from, const TensorMap* map, u32 bar, int row, int k,
    u64 policy) {
#pragma unroll
    for (int s = 0; s < COUNT; s++) {
        if constexpr (SPARSE)
            copy_bytes(to + s * SLAB, from + s * PACKED_SLAB, BYTES_A, bar, policy);
        else
            copy_tile(to + s * SLAB, map, bar, (k + s) * ROW_A, row, policy);
    }
}

// Copy COUNT slabs of B.  Each block of a cluster copies its share to all of them.
template <int COUNT>
__device__ __forceinline__ void copy_b(
    u32 to, const TensorMap* map, u32 bar, int col, int k, const Place& place,
    u64 policy) {
#pragma unroll
    for (int s = 0; s < COUNT; s++) {
        u32 there = to + s * SLAB + OFFSET_B;
        if constexpr (CLUSTER > 1) {
            constexpr int share = TILE_N / CLUSTER;
            unsigned short all = ((1 << CLUSTER) - 1) << place.part * CLUSTER;
            copy_tile_to_all(there + place.rank * share * ROW_B, map, bar,
                             (k + s) * ROW_B, col + place.rank * share, all, policy);
        } else {
            copy_tile(there, map, bar, (k + s) * ROW_B, col, policy);
        }
    }
}

// What the producer copies next: slabs of a tile's rows of A and columns of B.
struct Source {
    const TensorMap *map_a, *map_b;
    const char* packed;
    int row, col, k;
    u64 policy_a, policy_b;

    // Go to the first slab of a tile.
    __device__ __forceinline__ void take(
        const Tiles& tiles, const Place& place, const char* all, int tile, int m,
        int slabs_k) {
        int tm, tn;
        tile_at(tile, tiles.tall, tiles.wide, &tm, &tn);
        row = (tm * CLUSTER + place.rank) * TILE_M, col = tn * TILE_N, k = place.first;
        // A tile entirely below A has no data and no result, so it may read any rows.
        if (SPARSE) row = min(row, (m - 1) / TILE_M * TILE_M);
        packed = all + ((long long)(row / PACKED_M) * slabs_k + k) * PACKED_SLAB
                 + row % PACKED_M / 64 * BLOCK_A;
    }

    // Copy a whole stage of A, B or both.
    template <bool A, bool B>
    __device__ __forceinline__ void copy(const Place& place, u32 to, u32 bar) {
        if constexpr (A) {
            barrier_expect(bar, SLABS * (BYTES_A + BYTES_B));
            copy_a<SLABS>(to, packed, map_a, bar, row, k, policy_a);
        }
        if constexpr (B) copy_b<SLABS>(to, map_b, bar, col, k, place, policy_b);
        packed += SLABS * PACKED_SLAB, k += SLABS;
    }

    // Copy the end of k: fewer slabs than a stage can have.  Loops that a tile runs once
    // are not unrolled: the less code, the sooner a kernel starts.
    __device__ __forceinline__ void copy_end(const Place& place, u32 to, u32 bar) {
        barrier_expect(bar, (place.last - k) * (BYTES_A + BYTES_B));
#pragma unroll 1
        for (; k < place.last; k++, to += SLAB, packed += PACKED_SLAB) {
            copy_a<1>(to, packed, map_a, bar, row, k, policy_a);
            copy_b<1>(to, map_b, bar, col, k, place, policy_b);
        }
    }
};

// Stages of A that are copied before the previous kernel ends, at most four: the wider B
// is, the fewer, because the first B waits behind them.
constexpr int EARLY_BYTES = TILE_N <= 32 ? 65536 : TILE_N <= 64 ? 32768 : 16384;
constexpr int EARLY_FIT = EARLY_BYTES / (SLABS * TILE_M * ROW_A);
constexpr int EARLY = EARLY_FIT < 1 ? 1 : EARLY_FIT > 4 ? 4 : EARLY_FIT;

__device__ __forceinline__ void produce(
    const Room& room, const Tiles& tiles, const Place& place, const TensorMap* map_a,
    const TensorMap* map_b, const char* packed, int m, int slabs_k) {
    Source from{map_a, map_b};
    u64 keep, once;
    asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(keep));
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
    from.policy_a = tiles.wide > 1 ? keep : once;  // is A read again?
    from.policy_b = keep;
    Position at{0, 1};
    from.take(tiles, place, packed, tiles.first, m, slabs_k);
    if constexpr (SPARSE) {
        Source early = from;
        int whole = (place.last - place.first) / SLABS;
#pragma unroll 1
        for (int s = 0; s < min(min(EARLY, STAGES), whole); s++)
            early.copy<true, false>(
                place, room.stages + s * STAGE, room.full + 8 * s);
        previous_wait();
        next_start();
#pragma unroll 1
        while (from.k < early.k) {  // B beside it
            from.copy<false, true>(
                place, room.stages + at.stage * STAGE, room.full + 8 * at.stage);
            at.next();
        }
    } else {
        previous_wait();
        next_start();
    }
    for (int tile = tiles.first; tile < tiles.count;) {
        while (from.k < place.last) {
            barrier_wait(room.empty + 8 * at.stage, at.phase);
            u32 to = room.stages + at.stage * STAGE, bar = room.full + 8 * at.stage;
            if (SLABS == 1 || place.last - from.k >= SLABS)
                from.copy<true, true>(place, to, bar);
            else
                from.copy_end(place, to, bar);
            at.next();
        }
        tile += tiles.pace;
        from.take(tiles, place, packed, tile, m, slabs_k);
    }
}

// ── a consumer ──────────────────────────────────────────────────────────────

typedef ACCUMULATOR Sums[BLOCKS][ACCUMULATORS];

// Start the products of COUNT slabs; they may still run when this returns.
template <int COUNT>
__device__ __forceinline__ void multiply_slabs(
    Sums& acc, u32 (&codes)[SLABS][CODES], u32 a, u32 b, bool fresh) {
#pragma unroll
    for (int s = 0; s < COUNT; s++) load_codes(codes[s], a + s * SLAB);
    wgmma_fence();
#pragma unroll
    for (int x = 0; x < COUNT * STEPS; x++) {
        int s = x / STEPS, j = x % STEPS;
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) {
            u64 da = descriptor<ROW_A>(a + s * SLAB + i * BLOCK_A + j * 32);
            u64 db = descriptor<ROW_B>(b + s * SLAB + j * (ROW_B / STEPS));
            u32 code = codes[s][SPARSE ? i * WORDS + (PAIRED ? 0 : j) : 0];
            if (j % 2) step<1>(acc[i], da, db, code, true);
            else step<0>(acc[i], da, db, code, !fresh || x > 0);
        }
    }
    wgmma_commit();
}

// Start the products of a stage.  At the end of k it may have fewer slabs: one by one.
__device__ __forceinline__ void multiply_stage(
    Sums& acc, u32 (&codes)[SLABS][CODES], u32 a, u32 b, bool fresh, int left) {
    if (SLABS == 1 || left >= SLABS) {
        multiply_slabs<SLABS>(acc, codes, a, b, fresh);
    } else if constexpr (SLABS > 1) {
#pragma unroll 1
        for (int s = 0; s < left; s++) {
            multiply_slabs<1>(acc, codes, a + s * SLAB, b + s * SLAB, fresh && s == 0);
            wgmma_wait<0>();
        }
    }
}

// Every lane signals that it has read its metadata.  One lane could signal for all, but
// racecheck does not see the order between lanes.  It costs nothing while products run.
__device__ __forceinline__ void release_codes(const Room& room, int stage) {
    if constexpr (SPARSE) barrier_arrive_here(room.empty + 8 * stage);
}

// Signal every block that copies into this one, one lane for each, that this warp has
// finished with the stage.
__device__ __forceinline__ void release(
    const Room& room, const Place& place, int stage) {
    if (threadIdx.x % 32 < CLUSTER)
        barrier_arrive(room.empty + 8 * stage, place.part * CLUSTER + threadIdx.x % 32);
}

// ── parts of k ──────────────────────────────────────────────────────────────

// Each block sends every other one its sums of the slices that the other one stores.
// They go where the stages were.  A lane sends the sums of eight columns as 16 bytes.
constexpr int SENT = COLUMNS / 8 * 128 * 16;  // bytes of a slice, from one block
constexpr int OWNED = (TILE_M / 64 * SLICES + SPLIT - 1) / SPLIT;  // slices, at most
static_assert(SPLIT == 1 || OWNED * SPLIT * SENT <= STAGES * STAGE, "sums need room");

__device__ __forceinline__ u32 sums_at(const Room& room, int number, int from, int g) {
    int slot = number / SPLIT * SPLIT + from;
    return room.stages + slot * SENT + (g * 128 + threadIdx.x % 128) * 16;
}

__device__ __forceinline__ u32 in_block(u32 address, int block) {
    u32 there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there) : "r"(address), "r"(block));
    return there;
}

// The registers keep their type: if they were moved, the products would wait for it.
__device__ __forceinline__ void send(u32 to, const float* x) {
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}
__device__ __forceinline__ void send(u32 to, const int* x) {
    asm volatile("st.shared::cluster.v4.s32 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
}
__device__ __forceinline__ void receive(u32 from, float (&x)[4]) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(from));
}
__device__ __forceinline__ void receive(u32 from, int (&x)[4]) {
    asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(from));
}

// Add the sums of all parts, in ascending k, in the slices that this block stores.
__device__ __forceinline__ void add_parts(
    const Room& room, const Place& place, Sums& acc, int member) {
    cluster_sync();  // every block has finished with its stages
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
#pragma unroll
        for (int s = 0; s < SLICES; s++) {
            int block = member * BLOCKS + i, to = owner(block, s);
            if (to == place.part) continue;
            int number = slice_number(block, s);
#pragma unroll
            for (int g = 0; g < COLUMNS / 8; g++)
                send(in_block(sums_at(room, number, place.part, g),
                              to * CLUSTER + place.rank),
                     &acc[i][(s * (COLUMNS / 8) + g) * 4]);
        }
    cluster_sync();  // all sums have arrived
#pragma unroll
    for (int i = 0; i < BLOCKS; i++)
#pragma unroll
        for (int s = 0; s < SLICES; s++) {
            int block = member * BLOCKS + i;
            if (owner(block, s) != place.part) continue;
            int number = slice_number(block, s);
#pragma unroll
            for (int g = 0; g < COLUMNS / 8; g++) {
                ACCUMULATOR* own = &acc[i][(s * (COLUMNS / 8) + g) * 4];
                ACCUMULATOR sum[4], next[4];
#pragma unroll
                for (int p = 0; p < SPLIT; p++) {
                    if (p != place.part) receive(sums_at(room, number, p, g), next);
#pragma unroll
                    for (int x = 0; x < 4; x++) {
                        ACCUMULATOR y = p == place.part ? own[x] : next[x];
                        sum[x] = p ? sum[x] + y : y;
                    }
                }
#pragma unroll
                for (int x = 0; x < 4; x++) own[x] = sum[x];
            }
        }
}

__device__ __forceinline__ void consume(
    const Room& room, const Tiles& tiles, const Place& place, const Epilogue& e,
    const TensorMap* map_d, int consumer, int m, int n) {
    u32 staging = room.stages + STAGES * STAGE + (TURNS ? 0 : consumer * STAGING);
    Sums acc;
#if PROMOTE
    Sums total;
#endif
    Position at{0, 0};
    int slot = 0;
    int slabs = place.last - place.first;
    int stages_k = (slabs + SLABS - 1) / SLABS;
    int member = TURNS ? 0 : consumer, turn = TURNS ? consumer : 0;
    int parity = turn ^ 1;  // consumer 0 has the first turn
    if (turn) at.pass(stages_k);
    previous_wait();
    for (int tile = tiles.first + turn * tiles.pace; tile < tiles.count;
         tile += CONSUMERS / TEAM * tiles.pace) {
        int tm, tn;
        tile_at(tile, tiles.tall, tiles.wide, &tm, &tn);
        int row = (tm * CLUSTER + place.rank) * TILE_M + member * BLOCKS * 64;
        // Wait for our turn.  Without it, a stage of the other consumer's tile could be
        // taken for one of this tile: the parity of a barrier only tells one round of
        // the ring from the next.
        if constexpr (TURNS) barrier_wait(room.turns + 8 * turn, parity);
        int last = 0;
        auto one_stage = [&](u32 (&codes)[SLABS][CODES], int k) {
            barrier_wait(room.full + 8 * at.stage, at.phase);
            u32 a = room.stages + at.stage * STAGE + member * BLOCKS * BLOCK_A;
            u32 b = room.stages + at.stage * STAGE + OFFSET_B;
            multiply_stage(acc, codes, a, b, PROMOTE || k == 0, slabs - k * SLABS);
            release_codes(room, at.stage);
#if PROMOTE
            wgmma_wait<0>();
            release(room, place, at.stage);
#pragma unroll
            for (int i = 0; i < BLOCKS; i++)
#pragma unroll
                for (int x = 0; x < ACCUMULATORS; x++)
                    total[i][x] = __fadd_rn(total[i][x], acc[i][x]);
#else
            if (k) { wgmma_wait<1>(); release(room, place, last); }
            last = at.stage;
#endif
            at.next();
        };
#if PROMOTE
#pragma unroll
        for (int i = 0; i < BLOCKS; i++)
#pragma unroll
            for (int x = 0; x < ACCUMULATORS; x++) total[i][x] = 0.0f;
#endif
        // A running wgmma still reads its metadata registers, so the next stage needs
        // other registers.
        u32 even[SLABS][CODES] = {}, odd[SLABS][CODES] = {};
        for (int k = 0; k < stages_k; k += 2) {
            one_stage(even, k);
            if (k + 1 < stages_k) one_stage(odd, k + 1);
        }
        if constexpr (TURNS) {  // all products of this tile are started
            if (threadIdx.x % 32 == 0)
                barrier_arrive_here(room.turns + 8 * (turn ^ 1));
            at.pass(stages_k);
        }
        // Load what the epilogue needs while the last products still run.
        Columns columns = columns_of(e, tn * TILE_N, n);
        Rows rows[BLOCKS];
#pragma unroll
        for (int i = 0; i < BLOCKS; i++) rows[i] = rows_of(e, row + i * 64, m);
#if !PROMOTE
        wgmma_wait<0>();
        release(room, place, last);
        auto& total = acc;
#endif
        if constexpr (SPLIT > 1) add_parts(room, place, total, member);
        if constexpr (TURNS) {  // both share one staging buffer
            barrier_wait(room.stores + 8 * turn, parity);
            parity ^= 1;
        }
#pragma unroll
        for (int i = 0; i < BLOCKS; i++)
            store_block(total[i], rows[i], columns, map_d, staging, slot, consumer,
                        row + i * 64, tn * TILE_N, member * BLOCKS + i, place.part);
        if constexpr (TURNS) {  // every thread wrote there, so every thread signals
            if (threadIdx.x % 128 == 0)
                asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            group_sync(consumer);
            barrier_arrive_here(room.stores + 8 * (turn ^ 1));
        }
    }
}

// ── the kernel ──────────────────────────────────────────────────────────────

extern "C" __global__ void __cluster_dims__(CLUSTER * SPLIT, 1, 1)
__launch_bounds__(128 * CONSUMERS + 128, 1) gemm(
    const __grid_constant__ TensorMap map_a, const __grid_constant__ TensorMap map_b,
    const __grid_constant__ TensorMap map_d, const char* __restrict__ packed,
    const __grid_constant__ Epilogue e, int m, int n, int slabs_k) {
    extern __shared__ __align__(1024) char memory[];
    __shared__ alignas(8) u64 bars[2 * STAGES + 4];
    Room room;
    room.stages = (shared_address(memory) + 1023) & ~1023u;
    room.full = shared_address(bars), room.empty = room.full + 8 * STAGES;
    room.turns = room.empty + 8 * STAGES, room.stores = room.turns + 16;
    int warp = threadIdx.x / 32;
    Place place(CLUSTER * SPLIT > 1 ? cluster_rank() : 0, slabs_k);

    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_init(room.full + 8 * s, 1);
            barrier_init(room.empty + 8 * s, 4 * TEAM * (CLUSTER + (SPARSE ? 32 : 0)));
        }
        for (int c = 0; c < 2; c++) {
            barrier_init(room.turns + 8 * c, 4);
            barrier_init(room.stores + 8 * c, 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (CLUSTER * SPLIT > 1) cluster_sync(); else __syncthreads();

    Tiles tiles(m, n);
    if (warp >= WARPS) {
        if constexpr (CONSUMERS == 2)
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 128 * CONSUMERS)
            produce(room, tiles, place, &map_a, &map_b, packed, m, slabs_k);
        __syncwarp();
        if constexpr (SPLIT > 1) cluster_sync(), cluster_sync();  // see add_parts
    } else {
        if constexpr (CONSUMERS == 2)
            asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        consume(room, tiles, place, e, &map_d, warp / 4, m, n);
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    __syncwarp();
    if (CLUSTER > 1 && SPLIT == 1)
        cluster_sync();  // no block may exit while others still signal it
}
