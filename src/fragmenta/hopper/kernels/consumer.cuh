// The consumers: they multiply, add the parts of k, and store.

// ── wgmma ───────────────────────────────────────────────────────────────────

// K-major, rows of ROW bytes, swizzled over ROW bytes; the stride is eight rows.
template <int ROW>
__device__ __forceinline__ constexpr u64 descriptor(u32 address) {
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

typedef ACCUMULATOR Sums[BLOCKS][ACCUMULATORS];

#if FOUR_BITS
#include "four_bits.cuh"
#else

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

// ── products ────────────────────────────────────────────────────────────────

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

#endif

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

#if FOUR_BITS
// The stages of a tile, as one consumer goes through them.
struct Stages {
    Grouped& all;
    const Room& room;
    const Place& place;
    Parts first;  // of this consumer, in the first stage
    u32 b;        // and where B is

    __device__ __forceinline__ u32 b_of(int stage) {
        return box_of(b + stage * STAGE);
    }

    // Load a part of each block.  (NVRTC before 13.1 refuses generic lambdas.)
    __device__ __forceinline__ void load(
        Stage& to, int stage, void (*part)(Stored&, const Parts&, u32)) {
#pragma unroll
        for (int s = 0; s < SLABS; s++)
#pragma unroll
            for (int i = 0; i < BLOCKS; i++)
                part(to[s][i], first, stage * STAGE + (i * SLABS + s) * BLOCK_A);
    }

    __device__ __forceinline__ void enter(Stage& stored, const Position& at) {
        barrier_wait(room.full + 8 * at.stage, at.phase);
        load(stored, at.stage, load_integers);
    }

    __device__ __forceinline__ void leave(int stage) {
        release_codes(room, stage);
        release(room, place, stage);
    }
};

// All products of a tile.  The integers of a stage are loaded while the last products of
// the stage before run.
__device__ __forceinline__ void sum_stages(
    Grouped& all, const Room& room, const Place& place, Position& at, int member,
    int slabs) {
    u32 begin = room.stages;
    Stages stages{all, room, place, Parts(begin + member * BLOCKS * SLABS * BLOCK_A),
                  kept(begin + OFFSET_B)};
    Stage stored;
    int whole = slabs / SLABS, end = slabs - whole * SLABS;
    all.clear();
    if (whole) stages.enter(stored, at);
    for (int k = 0; k < whole; k++) {
        int stage = at.stage;
        stages.load(stored, stage, load_codes);
        start_slabs(all, stored, stages.b_of(stage));
        at.next();
        if (k + 1 < whole) stages.enter(stored, at);
        end_slabs(all, stored);
        stages.leave(stage);
    }
    if (SLABS > 1 && end) {  // the end of k
        barrier_wait(room.full + 8 * at.stage, at.phase);
#pragma unroll 1
        for (int s = 0; s < end; s++)
            multiply_slab(all, stages.first, at.stage * STAGE + s * BLOCK_A,
                          stages.b_of(at.stage) + s * SLAB / 16);
        stages.leave(at.stage);
        at.next();
    }
}
#endif

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

// ── a consumer ──────────────────────────────────────────────────────────────

__device__ __forceinline__ void consume(
    const Room& room, const Tiles& tiles, const Place& place, const Epilogue& e,
    const TensorMap* map_d, int consumer, int m, int n) {
    u32 staging = room.stages + STAGES * STAGE + (TURNS ? 0 : consumer * STAGING);
#if FOUR_BITS
    Grouped groups;
    Sums& total = groups.total;
#else
    Sums acc;
#if PROMOTE
    Sums total;
#endif
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
        Spot spot = spot_at(tiles, tile, place.rank, n);
        int row = spot.row + member * BLOCKS * 64;
        // Wait for our turn.  Without it, a stage of the other consumer's tile could be
        // taken for one of this tile: the parity of a barrier only tells one round of
        // the ring from the next.
        if constexpr (TURNS) barrier_wait(room.turns + 8 * turn, parity);
#if FOUR_BITS
        sum_stages(groups, room, place, at, member, slabs);
#else
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
#endif
        if constexpr (TURNS) {  // all products of this tile are started
            if (threadIdx.x % 32 == 0)
                barrier_arrive_here(room.turns + 8 * (turn ^ 1));
            at.pass(stages_k);
        }
        // Load what the epilogue needs while the last products still run.
        Columns columns = columns_of(e, spot.col, n);
        Rows rows[BLOCKS];
#pragma unroll
        for (int i = 0; i < BLOCKS; i++)
            rows[i] = rows_of(e, row + i * 64, m, spot.expert);
#if !FOUR_BITS && !PROMOTE
        wgmma_wait<0>();
        release(room, place, last);
        auto& total = acc;
#endif
        if constexpr (SPLIT > 1) add_parts(room, place, total, member);
        if constexpr (TURNS) {  // both share one staging buffer
            barrier_wait(room.stores + 8 * turn, parity);
            parity ^= 1;
        }
#if GROUPED
        Edge edge{tiles.d, tiles.pitch, m * ITEM, spot.end};
#else
        Edge edge{};
#endif
#pragma unroll
        for (int i = 0; i < BLOCKS; i++)
            store_block(total[i], rows[i], columns, map_d, staging, slot, consumer,
                        row + i * 64, spot.col, member * BLOCKS + i, place.part, edge);
        if constexpr (TURNS) {  // every thread wrote there, so every thread signals
            if (threadIdx.x % 128 == 0)
                asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            group_sync(consumer);
            barrier_arrive_here(room.stores + 8 * (turn ^ 1));
        }
    }
}
