// The producer: one thread that keeps the ring filled.

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
#pragma unroll
        for (int box = 0; box < BOXES; box++) {
            u32 there = to + s * SLAB + OFFSET_B + box * (TILE_N * ROW_B);
            int x = ((k + s) * BOXES + box) * ROW_B;
            if constexpr (CLUSTER > 1) {
                constexpr int share = TILE_N / CLUSTER;
                unsigned short all = ((1 << CLUSTER) - 1) << place.part * CLUSTER;
                copy_tile_to_all(there + place.rank * share * ROW_B, map, bar, x,
                                 col + place.rank * share, all, policy);
            } else {
                copy_tile(there, map, bar, x, col, policy);
            }
        }
    }
}

// What the producer copies next: slabs of a tile's rows of A and columns of B.
struct Source {
    const TensorMap *map_a, *map_b;
    const char* packed;
    int row, col, k;
    u64 policy_a, policy_b, policy_once;
    long long apart;  // bytes from one m64 block of integers to the next

    // Go to the first slab of a tile.
    __device__ __forceinline__ void take(
        const Tiles& tiles, const Place& place, const char* all, int tile, int m,
        int slabs_k) {
        if (GROUPED && tile >= tiles.count) return;
        Spot spot = spot_at(tiles, tile, place.rank, 0);
        row = spot.row, col = spot.col, k = place.first;
        // A tile entirely below A has no data and no result, so it may read any rows.
        if (SPARSE) row = min(row, (m - 1) / TILE_M * TILE_M);
        int group = spot.expert * ((m + PACKED_M - 1) / PACKED_M) + row / PACKED_M;
        int block = row % PACKED_M / 64;
        if constexpr (GROUPED) policy_a = spot.wide > 1 ? policy_b : policy_once;
        apart = (long long)slabs_k * BLOCK_A;
        if constexpr (FOUR_BITS)
            packed = all + (group * (PACKED_M / 64) + block) * apart + k * BLOCK_A;
        else
            packed = all + ((long long)group * slabs_k + k) * PACKED_SLAB
                     + block * BLOCK_A;
    }

    // Copy `count` slabs of each m64 block of integers.
    __device__ __forceinline__ void copy_blocks(u32 to, u32 bar, int count) {
        const char* block = packed;
        constexpr int at_once = TILE_M > 128 ? 1 : 2;  // the producer has few registers
#pragma unroll(at_once)
        for (int i = 0; i < TILE_M / 64; i++, block += apart)
            copy_bytes(to + i * SLABS * BLOCK_A, block, count * BLOCK_A, bar, policy_a);
    }

    // Copy a whole stage of A, B or both.
    template <bool A, bool B>
    __device__ __forceinline__ void copy(const Place& place, u32 to, u32 bar) {
        if constexpr (A) {
            barrier_expect(bar, SLABS * (BYTES_A + BYTES_B));
            if constexpr (FOUR_BITS) copy_blocks(to, bar, SLABS);
            else copy_a<SLABS>(to, packed, map_a, bar, row, k, policy_a);
        }
        if constexpr (B) copy_b<SLABS>(to, map_b, bar, col, k, place, policy_b);
        packed += SLABS * PACKED_SLAB, k += SLABS;
    }

    // Copy the end of k: fewer slabs than a stage can have.  Loops that a tile runs once
    // are not unrolled: the less code, the sooner a kernel starts.
    __device__ __forceinline__ void copy_end(const Place& place, u32 to, u32 bar) {
        barrier_expect(bar, (place.last - k) * (BYTES_A + BYTES_B));
        if constexpr (FOUR_BITS) copy_blocks(to, bar, place.last - k);
#pragma unroll 1
        for (; k < place.last; k++, to += SLAB, packed += PACKED_SLAB) {
            if constexpr (!FOUR_BITS)
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
    from.policy_b = keep, from.policy_once = once;
    Position at{0, 1};
    from.take(tiles, place, packed, tiles.first, m, slabs_k);
    if constexpr (SPARSE) {
        Source early = from;
        int whole = (place.last - place.first) / SLABS;
#if GROUPED
        if (!tiles.settled || tiles.first >= tiles.count) whole = 0;
#endif
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
