// The tiles of D, the parts of k, and the ring of stages that both sides follow.

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
#if GROUPED
    Experts experts;
    char* d;
    int pitch;  // bytes from one row of tokens to the next
    int settled;  // whether the previous kernel writes neither A nor the experts' ends
#endif
    __device__ __forceinline__ Tiles(int m, int n) {
        tall = (m + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER);
        wide = (n + TILE_N - 1) / TILE_N;
        count = tall * wide;
        first = blockIdx.x / (CLUSTER * SPLIT), pace = gridDim.x / (CLUSTER * SPLIT);
    }
};

// A tile: its first row and column, and whose they are.
struct Spot {
    int row, col;
    int expert;  // whose weight it is
    int end;     // columns from here on belong to others
    int wide;    // tiles beside it that read the same A
};

// The tile of this block.  A grouped one must be there.
__device__ __forceinline__ Spot spot_at(
    const Tiles& tiles, int index, int rank, int n) {
    Spot spot{0, 0, 0, n, tiles.wide};
    int tm, tn;
#if GROUPED
    const Experts& all = tiles.experts;
    spot.expert = expert_at(all, index / tiles.tall);
    int before = all.columns[spot.expert];
    spot.wide = all.columns[spot.expert + 1] - before;
    spot.end = all.bounds[spot.expert + 1];
    index -= before * tiles.tall;
    spot.col = all.bounds[spot.expert];
#endif
    tile_at(index, tiles.tall, spot.wide, &tm, &tn);
    spot.row = (tm * CLUSTER + rank) * TILE_M;
    spot.col += tn * TILE_N;
    return spot;
}

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
